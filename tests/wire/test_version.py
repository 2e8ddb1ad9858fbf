"""Which Redis this server says it is, and the conclusions of clients from that.

A real Redis gives the expected replies for a server without a cluster; those of later versions are
written out.
"""

import pytest

from harness import DUNLIN, is_redis
from peer import Peer

WITHOUT_CLUSTER = """READONLY;READWRITE;ASKING;READONLY x;ASKING x;CLUSTER;CLUSTER INFO;CLUSTER HELP;CLUSTER FOO;CLUSTER SLOTS
CLUSTER SLOTS x;CLUSTER SHARDS;CLUSTER NODES;CLUSTER MYID;CLUSTER KEYSLOT k;CLUSTER KEYSLOT;CLUSTER COUNTKEYSINSLOT 1
CLUSTER GETKEYSINSLOT 1 1;CLUSTER ADDSLOTS 1;CLUSTER ADDSLOTSRANGE 1;CLUSTER MEET 127.0.0.1 1;CLUSTER RESET;CLUSTER SLAVES x
CLUSTER FAILOVER;CLUSTER SETSLOT 1 STABLE;CLUSTER LINKS;CLUSTER REPLICATE x;CLUSTER FORGET x""".replace("\n", ";").split(";")


def info(client):
    lines = client.ask("INFO", "server").split("\r\n")
    return dict(line.split(":", 1) for line in lines if ":" in line)


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis says its own name and version")
@pytest.mark.parametrize("protocol", [2, 3])
def test_hello_info_and_scripts_agree_on_the_version(server, protocol):
    with Peer(server, protocol) as client:
        told = client.ask("HELLO")
        hello = told if protocol == 3 else dict(zip(told[::2], told[1::2]))
        fields = info(client)
        version = fields["redis_version"]
        assert tuple(map(int, version.split("."))) >= (7, 4, 0)
        # Clients that cache ask for this name, not for that of the program.
        assert (hello["server"], hello["version"]) == ("redis", version)
        assert fields["server_name"] == "dunlin" and fields["dunlin_version"]
        major, minor, patch = map(int, version.split("."))
        assert client.ask("EVAL", "return redis.REDIS_VERSION", 0) == version
        number = client.ask("EVAL", "return redis.REDIS_VERSION_NUM", 0)
        assert number == major << 16 | minor << 8 | patch


@pytest.mark.parametrize("line", WITHOUT_CLUSTER)
def test_cluster_commands_without_a_cluster_answer_as_in_redis(server, oracle, line):
    for protocol in (2, 3):
        with Peer(server, protocol) as client, Peer(oracle, protocol) as redis:
            assert client.line(line) == redis.line(line)


def test_cluster_commands_are_described_as_in_redis(server, oracle):
    def described(which):
        with Peer(which) as client:
            told = client.ask("COMMAND", "INFO", "cluster", "readonly", "readwrite", "asking")
        rows = [row for command in told for row in [command, *command[9]]]
        # Name, arity, flags, and categories; fields that newer versions have added stay out.
        return {row[0]: (row[1], sorted(row[2]), sorted(row[6])) for row in rows}

    ours, theirs = described(server), described(oracle)
    assert {name: ours[name] for name in theirs} == theirs
    # Of Redis 7.2 and Valkey 8 and 9, and of this server.
    later = "cancelslotmigrations drain flushslot getslotmigrations import migrateslots myshardid pin recover relay setreplicas slot-stats status tell unpin".split()
    assert set(ours) - set(theirs) in (set(), {f"cluster|{name}" for name in later})


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis does so from 8.2.2 on")
def test_xgroup_entries_read_is_limited_to_what_there_was(server):
    with Peer(server, 3) as client:
        for number in range(1, 4):
            client.ask("XADD", "stream", f"{number}-0", "f", "v")
        assert client.line("XGROUP CREATE stream created 3-0 ENTRIESREAD 1000") == "OK"
        assert client.line("XGROUP CREATE stream moved 0") == "OK"
        assert client.line("XGROUP SETID stream moved 3-0 ENTRIESREAD 9223372036854775807") == "OK"
        assert client.line("XGROUP CREATE none g $ MKSTREAM ENTRIESREAD 7") == "OK"
        groups = client.line("XINFO GROUPS stream") + client.line("XINFO GROUPS none")
        assert [(group["name"], group["entries-read"], group["lag"]) for group in groups] == [
            ("created", 3, 0), ("moved", 3, 0), ("g", 0, 0),
        ]
        client.ask("DEL", "stream", "none")


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis knows them from 7.2 and 7.4 on")
def test_commands_up_to_the_announced_version_are_there(server):
    """The commands and options of Redis 7.2 and 7.4."""
    seven_two_and_four = """client|no-touch client|setinfo cluster|myshardid waitaof hexpire hexpireat hexpiretime hpersist
    hpexpire hpexpireat hpexpiretime hpttl httl""".split()
    with Peer(server, 3) as client:
        for name in seven_two_and_four:
            [row] = client.ask("COMMAND", "INFO", name)
            assert row and row[0] == name
        client.line("ZADD z 1 a")
        assert client.line("ZRANK z a WITHSCORE") == [0, 1.0]
        client.line("HSET h f v")
        assert client.line("HSCAN h 0 NOVALUES") == ["0", ["f"]]
        assert client.line("HEXPIRE h 100 FIELDS 1 f") == [1]
        assert client.line("CLIENT KILL MAXAGE 100000") == 0
        client.line("XADD s 1-0 f v")
        assert client.line("XREAD STREAMS s +") == {"s": [["1-0", ["f", "v"]]]}
        client.line("XGROUP CREATE s g 0")
        client.line("XREADGROUP GROUP g c STREAMS s >")
        assert "inactive" in client.line("XINFO CONSUMERS s g")[0]
        client.ask("DEL", "z", "h", "s")
