"""XADD's IDMP and XCFGSET over connections, and the part of it that files, logs and dumps keep.

Neither redis-server 7.0 nor Valkey has it: the replies are a table here. Redis 7.0 has to load what is written all the same.
"""

import shutil

import pytest

from harness import DUNLIN, ORACLE, Server, is_redis
from peer import Failure, Peer

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="Redis has it from 8.6 on")

DEBUG = ("--enable-debug-command", "yes")
FIELDS = "idmp-duration idmp-maxsize pids-tracked iids-tracked iids-added iids-duplicates".split()


def told(client, key="s"):
    info = client.line(f"XINFO STREAM {key}")
    return [info[info.index(name) + 1] for name in FIELDS]


def fill(client):
    """A stream with producers, the ID of one entry, and the reply of XINFO."""
    client.line("DEL s")
    first = client.line("XADD s IDMP ann 7 * a 1")
    assert client.line("XADD s IDMP ann 7 * b 2") == first
    gone = client.line("XADD s IDMPAUTO ann * gone 1")
    assert client.line("XADD s IDMP bob 7 * a 1") not in (first, gone)
    assert client.line(f"XDEL s {gone}") == 1
    assert told(client) == [100, 100, 2, 3, 3, 1]
    return first, gone


def remembers(client, first, gone, key="s"):
    assert client.line(f"XADD {key} IDMP ann 7 * c 3") == first
    assert client.line(f"XADD {key} IDMPAUTO ann * gone 1") == gone


def test_entries_are_added_once_by_many_connections(server):
    with Peer(server) as boss:
        boss.line("DEL s")
        peers = [Peer(server) for _ in range(8)]
        for peer in peers:
            peer.send_all(*(f"XADD s IDMP p {number} * n {number}" for number in range(50)))
        ids = [[peer.read() for _ in range(50)] for peer in peers]
        assert all(one == ids[0] for one in ids), "all hear of the same entries"
        assert boss.line("XLEN s") == 50
        assert told(boss) == [100, 100, 1, 50, 50, 350]
        for peer in peers:
            peer.close()


def test_transactions_and_settings(server):
    with Peer(server, 3) as client:
        client.line("DEL s")
        client.line("MULTI")
        for number in (1, 2, 1):
            client.line(f"XADD s IDMP p {number} * f v")
        one, two, again = client.line("EXEC")
        assert one == again != two
        assert client.line("XCFGSET s IDMP-MAXSIZE 1") == "OK"
        info = client.line("XINFO STREAM s FULL")
        assert [info[name] for name in FIELDS] == [100, 1, 0, 0, 2, 1], "a change forgets names, not counts"
        assert client.line("XCFGSET missing IDMP-MAXSIZE 1") == Failure("ERR no such key")
        assert client.line("XCFGSET s") == Failure("ERR At least one parameter must be specified")
        client.line("CONFIG SET stream-idmp-duration 7 stream-idmp-maxsize 9")
        client.line("XADD new * f v")
        assert client.line("XINFO STREAM new")["idmp-duration"] == 7
        client.line("CONFIG SET stream-idmp-duration 100 stream-idmp-maxsize 100")
        client.line("DEL new")


@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_log_and_its_base_keep_producers(preamble):
    log = ("--appendonly", "yes", "--appendfsync", "always", "--aof-use-rdb-preamble", preamble)
    with Server(*log, *DEBUG) as server, Peer(server) as client:
        first, gone = fill(client)
        assert client.line("DEBUG LOADAOF") == "OK"
        assert told(client) == [100, 100, 2, 3, 3, 1], "from records"
        client.line("XCFGSET s IDMP-DURATION 1000 IDMP-MAXSIZE 2")
        first, gone = client.line("XADD s IDMP ann 7 * a 1"), client.line("XADD s IDMPAUTO ann * gone 1")
        client.line("BGREWRITEAOF")
        while "aof_rewrite_in_progress:1" in client.line("INFO persistence"):
            pass
        before = told(client)
        server.process.kill()
        server.process.wait()
        with Server(*log, files=server.folder) as again, Peer(again) as reader:
            assert told(reader) == before == [1000, 2, 1, 2, 5, 1]
            remembers(reader, first, gone)
        # It has ended already.
        server.stop = server.kill


def test_files_keep_producers_and_redis_loads_them(tmp_path):
    with Server(*DEBUG, "--dir", tmp_path) as server, Peer(server) as client:
        first, gone = fill(client)
        client.line("XADD plain * f v")
        client.line("HSET h f v")
        client.line("HEXPIRE h 1000 FIELDS 1 f")
        client.line("XGROUP CREATE s g 0")
        assert client.line("DEBUG RELOAD") == "OK"
        assert told(client) == [100, 100, 2, 3, 3, 1] and told(client, "plain") == [100, 100, 0, 0, 0, 0]
        remembers(client, first, gone)
        client.line("DEL h")
        assert client.line("SAVE") == "OK"
        digest, length = client.line("DEBUG DIGEST"), client.line("XLEN s")
    shutil.copy(tmp_path / "dump.rdb", tmp_path / "kept.rdb")
    with Server(*DEBUG, "--dir", tmp_path, program=ORACLE) as redis, Peer(redis) as client:
        assert client.line("DEBUG DIGEST") == digest, "Redis 7.0 passes over what it does not know"
        assert client.line("XLEN s") == length == 2


def test_copies_have_the_producers_and_dumps_for_redis_have_not(server):
    with Peer(server) as client:
        first, gone = fill(client)
        client.line("DEL copy other")
        assert client.line("COPY s copy") == 1
        remembers(client, first, gone, "copy")
        assert client.line("MEMORY USAGE copy") > 0
        client.send("DUMP", "s")
        payload = client.read().encode("latin1")
        assert client.ask("RESTORE", "other", 0, payload) == "OK"
        assert told(client, "other") == [100, 100, 0, 0, 0, 0]
        with Server(program=ORACLE) as redis, Peer(redis) as reader:
            assert reader.ask("RESTORE", "s", 0, payload) == "OK"
            assert reader.line("XLEN s") == 2


def test_memory_is_accounted_for(server):
    with Peer(server) as client:
        client.line("DEL s")
        client.line("XADD s * f v")
        before = client.line("MEMORY USAGE s SAMPLES 0")
        client.send_all(*(f"XADD s IDMP producer {'n' * 200}{number} MAXLEN 1 * f v" for number in range(100)))
        for _ in range(100):
            client.read()
        taken = client.line("MEMORY USAGE s SAMPLES 0") - before
        assert taken > 100 * 200
        client.line("XCFGSET s IDMP-DURATION 5")
        assert client.line("MEMORY USAGE s SAMPLES 0") - before < taken - 100 * 200, "a change forgets the names"
