"""db-maxmemory: a database with a limit of its own evicts its own keys, and nobody else's."""

import re

import pytest
from harness import DUNLIN, Server, is_redis
from peer import Failure, Peer
from wire import at_rest, eventually

MB = 1 << 20
OOM = Failure("OOM command not allowed when used memory > 'maxmemory'.")
pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="Redis has no limits of databases")


def figures(peer, database):
    found = re.search(rf"^db_maxmemory_{database}:limit=(\d+),used=(\d+),evicted=(\d+)", peer.ask("INFO", "memory"), re.M)
    return tuple(map(int, found.groups())) if found else None


def fill(peer, count, start=0, size=1000, more=()):
    bad = []
    for first in range(start, start + count, 500):
        for number in range(first, first + 500):
            peer.send("SET", f"key:{number}", b"x" * size, *more)
        bad += [reply for reply in (peer.read() for _ in range(500)) if reply != "OK"]
    return bad


@pytest.fixture
def limited():
    with Server("--db-maxmemory", "3:4mb", "--maxmemory-policy", "allkeys-lru") as server, Peer(server) as peer:
        yield server, peer


def test_a_database_evicts_its_own_keys_alone(limited):
    _, peer = limited
    # However long it takes to make room.
    peer.line("CONFIG SET maxmemory-eviction-tenacity 100")
    assert fill(peer, 3000) == []
    peer.line("SELECT 3")
    assert fill(peer, 12_000) == []
    limit, used, _ = figures(peer, 3)
    assert limit == 4 * MB and used <= limit + 64 * 1024

    def is_accounted_for():
        (_, _, evicted), kept = at_rest(lambda: figures(peer, 3), lambda: peer.line("DBSIZE"))
        return kept + evicted == 12_000 and kept > 2000

    eventually(is_accounted_for, "each key is there, or was evicted")
    peer.line("SELECT 0")
    assert peer.line("DBSIZE") == 3000
    assert figures(peer, 0) is None


@pytest.mark.parametrize("policy, more", [("noeviction", ()), ("volatile-lru", ())])
def test_writes_are_refused_in_that_database_where_nothing_may_go(limited, policy, more):
    _, peer = limited
    peer.line(f"CONFIG SET maxmemory-policy {policy}")
    peer.line("SELECT 3")
    bad = fill(peer, 6000, more=more)
    assert bad and set(bad) == {OOM}
    assert peer.line("DEL key:0 key:1") == 2
    peer.line("SELECT 0")
    assert fill(peer, 6000) == []


def test_scripts_transactions_and_copies_keep_to_the_limit(limited):
    _, peer = limited
    script = "for i = 1, 300 do redis.call('SET', KEYS[1] .. i, string.rep('z', 20000)) end return 'done'"
    peer.line("SELECT 3")
    assert peer.ask("EVAL", script, 1, "s") == "done"
    eventually(lambda: figures(peer, 3)[1] <= 4 * MB, "the background evicts what is left to do")
    assert peer.line("MULTI") == "OK"
    for number in range(60):
        assert peer.ask("SET", f"t{number}", b"y" * 100_000) == "QUEUED"
    assert peer.line("EXEC") == ["OK"] * 60
    eventually(lambda: figures(peer, 3)[1] <= 4 * MB, "the background evicts what is left to do")
    peer.line("SELECT 0")
    assert peer.ask("SET", "large", b"z" * MB) == "OK"
    for number in range(10):
        assert peer.line(f"COPY large copy:{number} DB 3") == 1
    eventually(lambda: figures(peer, 3)[1] <= 4 * MB, "copies into the database count")
    assert peer.line("DBSIZE") == 1
    script = "redis.call('SELECT', 3) redis.call('SET', KEYS[1], string.rep('z', 5000000)) return 'done'"
    assert peer.ask("EVAL", script, 1, "far") == "done"
    eventually(lambda: figures(peer, 3)[1] <= 4 * MB, "as do writes of scripts elsewhere")
    assert peer.line("EXISTS large") == 1


def test_a_limit_comes_with_its_number_when_databases_are_exchanged(limited):
    _, peer = limited
    assert fill(peer, 8000) == []
    assert peer.line("SWAPDB 0 3") == "OK"
    eventually(lambda: figures(peer, 3)[1] <= 4 * MB, "the database that has come keeps to the limit")
    assert peer.line("DBSIZE") == 0


def test_limits_change_at_run_time_and_survive_a_rewrite():
    with Server(config="db-maxmemory 1:8mb\ndb-maxmemory 2:1gb\n") as server, Peer(server) as peer:
        get = lambda: peer.line("CONFIG GET db-maxmemory")[1]
        assert get() == "1:8mb 2:1gb"
        assert peer.ask("CONFIG", "SET", "db-maxmemory", "3:2gb 2:0") == "OK"
        assert get() == "1:8mb 3:2gb"
        peer.line("SELECT 1")
        peer.line("CONFIG SET maxmemory-policy allkeys-random")
        assert fill(peer, 7000) == []
        assert peer.ask("CONFIG", "SET", "db-maxmemory", "1:2mb") == "OK"
        eventually(lambda: figures(peer, 1)[1] <= 2 * MB, "a lower limit is reached by itself")
        assert peer.line("CONFIG REWRITE") == "OK"
        assert "db-maxmemory 1:2mb 3:2gb" in (server.folder / "server.conf").read_text()
        for wrong in ("1", "x:1mb", "-1:1mb", "1:1parsec", ":1mb", "1:"):
            assert isinstance(peer.ask("CONFIG", "SET", "db-maxmemory", wrong), Failure), wrong
        assert peer.ask("CONFIG", "SET", "db-maxmemory", "") == "OK"
        assert get() == ""
        assert figures(peer, 1) is None
