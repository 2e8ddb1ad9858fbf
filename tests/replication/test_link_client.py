"""The link to the primary among a replica's clients, as redis-server shows it: CLIENT LIST, CLIENT KILL, INFO; and replicas among a primary's."""

import pytest
import redis

from harness import DUNLIN, ORACLE, is_redis, suspend
from links import Link, Node, has_link, is_online, settle, until

BOTH = pytest.mark.parametrize("program", [DUNLIN, ORACLE], ids=["dunlin", "redis"])


def masters(node):
    return node.client.client_list(_type="master")


@pytest.fixture
def pair(program):
    with Node(program) as primary, Node(program) as replica:
        replica.follow(primary.port)
        settle(primary, replica)
        yield primary, replica


@BOTH
def test_client_list_shows_the_link_to_the_primary(program):
    # Its stream stays in the database that it has selected.
    with Node(ORACLE) as primary, Node(program) as replica:
        replica.follow(primary.port)
        settle(primary, replica)
        with redis.Redis(port=primary.port, db=3) as other:
            other.rpush("l", 1, 2)
        settle(primary, replica)
        check_line(primary, replica)


def check_line(primary, replica):
    line = until(lambda: next((line for line in masters(replica) if line["cmd"] == "rpush"), None), "the link's line")
    expected = {
        "addr": f"127.0.0.1:{primary.port}", "flags": "M", "db": "3", "name": "", "user": "(superuser)", "resp": "2", "events": "r",
        "sub": "0", "psub": "0", "ssub": "0", "multi": "-1", "redir": "-1", "qbuf": "0", "omem": "0", "oll": "0",
    }
    assert {name: line[name] for name in expected} == expected
    replicas = primary.client.client_list(_type="replica")
    assert [(one["flags"], one["addr"]) for one in replicas] == [("S", line["laddr"])]
    everything = {one["id"]: one["flags"] for one in replica.client.client_list()}
    assert everything[line["id"]] == "M" and sorted(everything.values()).count("M") == 1
    assert line["id"] not in [one["id"] for one in replica.client.client_list(_type="normal")]
    assert [one["id"] for one in replica.client.client_list(client_id=[line["id"]])] == [line["id"]]
    assert replica.client.client_info()["flags"] == "N"


@BOTH
def test_connected_clients_counts_the_link_to_the_primary_and_no_replica(pair):
    primary, replica = pair
    counted = lambda node: node.info("clients")["connected_clients"]
    listed = lambda node: len(node.client.client_list())
    until(lambda: counted(replica) == listed(replica), "clients of the tests have gone")
    until(lambda: counted(primary) == listed(primary) - 1, "the replica does not count")


@BOTH
@pytest.mark.parametrize("words", ["TYPE master", "ID {id}", "ADDR {addr}", "LADDR {laddr}", "{addr}", "SKIPME yes", "TYPE master ID {id}"])
def test_client_kill_ends_the_link_and_it_is_made_again(pair, words, program):
    primary, replica = pair
    before = primary.info("stats")["sync_partial_ok"]
    line = masters(replica)[0]
    # The tests' other client of the replica would be closed, too.
    replica.client.close()
    until(lambda: len(replica.call("CLIENT", "LIST").splitlines()) == 2, "it has gone")
    reply = replica.call("CLIENT", "KILL", *words.format(**line).split())
    assert reply == (b"OK" if words == "{addr}" else 1)
    until(lambda: primary.info("stats")["sync_partial_ok"] == before + 1, "a partial resynchronisation")
    primary.client.set("k", "v")
    settle(primary, replica)
    assert [line["flags"] for line in masters(replica)] == ["M"]


@BOTH
def test_client_kill_of_other_types_and_users_leaves_the_link_alone(pair):
    primary, replica = pair
    before, made = masters(replica)[0], primary.info("stats")["sync_partial_ok"]
    for words in ("TYPE normal SKIPME yes", "TYPE pubsub", "TYPE replica", "USER default SKIPME yes"):
        replica.call("CLIENT", "KILL", *words.split())
    primary.client.set("k", "v")
    settle(primary, replica)
    after = masters(replica)[0]
    assert (after["id"], after["laddr"]) == (before["id"], before["laddr"])
    assert primary.info("stats")["sync_partial_ok"] == made
    assert replica.call("CLIENT", "UNBLOCK", after["id"]) == 0


@BOTH
def test_link_that_is_down_is_in_no_list(program):
    with Node(program) as primary, Node(program) as replica, Link(primary.port) as link:
        replica.follow(link.port)
        settle(primary, replica)
        assert len(masters(replica)) == 1
        link.cut(refuse=True)
        until(lambda: not has_link(replica), "the cut")
        assert masters(replica) == []
        link.heal()
        settle(primary, replica)
        assert len(masters(replica)) == 1
        replica.call("REPLICAOF", "NO", "ONE")
        assert masters(replica) == []


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis lets it, and sends invalidations to the primary")
def test_link_client_is_not_redirected_to_the_primary():
    with Node(DUNLIN) as primary, Node(DUNLIN) as replica:
        replica.follow(primary.port)
        settle(primary, replica)
        with pytest.raises(redis.ResponseError, match="does not exist"):
            replica.call("CLIENT", "TRACKING", "ON", "REDIRECT", masters(replica)[0]["id"])
        # A user of the name that the link's line shows has no part in it.
        replica.call("ACL", "SETUSER", "(superuser)", "on", "nopass", "+@all")
        assert replica.client.execute_command("CLIENT", "LIST", "USER", "(superuser)") in (b"", [])
        assert replica.call("CLIENT", "KILL", "USER", "(superuser)") == 0
        replica.call("ACL", "DELUSER", "(superuser)")
        replica.call("ACL", "SETUSER", "default", "resetchannels", "&only")
        primary.client.set("k", "v")
        settle(primary, replica)


@BOTH
def test_commands_of_the_stream_count(program):
    with Node(program) as primary, Node(program) as replica:
        replica.follow(primary.port)
        settle(primary, replica)
        replica.call("CONFIG", "RESETSTAT")
        before = replica.info("stats")["total_commands_processed"]
        with primary.client.pipeline(transaction=True) as pipe:
            pipe.set("a", 1).incr("a").execute()
        for number in range(100):
            primary.client.rpush("l", number)
        settle(primary, replica)
        stats = until(lambda: (found := replica.info("commandstats")).get("cmdstat_rpush", {}).get("calls") == 100 and found, "the stream's commands")
        counts = {name: stats[f"cmdstat_{name}"]["calls"] for name in ("set", "incrby", "multi", "exec") if f"cmdstat_{name}" in stats}
        assert {name: counts[name] for name in ("set", "incrby", "multi", "exec")} == {"set": 1, "incrby": 1, "multi": 1, "exec": 1}
        assert stats["cmdstat_rpush"]["usec"] > 0
        assert replica.info("stats")["total_commands_processed"] >= before + 104


@BOTH
def test_stalled_replica_holds_memory_that_client_list_and_info_show(program):
    with Node(program, "--repl-backlog-size", "1mb") as primary, Node(program) as replica:
        replica.follow(primary.port)
        settle(primary, replica)
        is_online(primary)
        suspend(replica.process)
        try:
            for _ in range(400):
                # Longer ones stand in the data set.
                primary.client.set("k", "x" * 100_000)

            def shown():
                line = primary.client.client_list(_type="replica")[0]
                memory, clients = primary.info("memory"), primary.info("clients")
                figures = [line["omem"], line["tot-mem"], memory["mem_clients_slaves"], memory["mem_total_replication_buffers"]]
                figures += [clients["client_recent_max_output_buffer"], memory["mem_not_counted_for_evict"]]
                return all(20_000_000 < int(figure) < 60_000_000 for figure in figures) and int(line["oll"]) > 0

            until(shown, "some twenty megabytes stand in no socket")
            assert primary.info("memory")["mem_replication_backlog"] < 2_000_000
        finally:
            replica.process.send_signal(18)
        settle(primary, replica)
        until(lambda: primary.info("memory")["mem_clients_slaves"] < 1_000_000, "it has all")
        assert primary.info("stats")["total_net_repl_output_bytes"] > 40_000_000
        assert replica.info("stats")["total_net_repl_input_bytes"] > 40_000_000
