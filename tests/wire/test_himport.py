"""HIMPORT of Redis 8.10: fieldsets belong to a connection or a script, hashes are made of them. Neither oracle has it: the
replies are those of its documentation."""

import re

import pytest

from harness import DUNLIN, Server, is_redis
from links import Node, settle
from peer import Failure, Peer

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="Redis has it from 8.10 on")
MISSING = "ERR no such fieldset"


@pytest.fixture
def boss(server):
    with Peer(server) as boss:
        boss.line("FLUSHALL")
        yield boss
        boss.line("RESET")


def total_bytes(peer):
    return int(re.search(r"tot-mem=(\d+)", peer.line("CLIENT INFO"))[1])


def test_fieldsets_come_and_go_by_name(boss):
    for line, reply in (
        ("HIMPORT SET k s 1", MISSING),
        ("HIMPORT PREPARE s a a b", "ERR duplicate field name in fieldset"),
        ("HIMPORT SET k s 1 2 3", MISSING),
        ("HIMPORT PREPARE s b a", "OK"),
        ("HIMPORT SET k s 1 2", "OK"),
        ("HGETALL k", ["b", "1", "a", "2"]),
        ("HIMPORT PREPARE s x y z", "OK"),
        ("HIMPORT SET k s 1 2", "ERR value count does not match fieldset field count"),
        ("HIMPORT SET k s 1 2 3", "OK"),
        ("HGETALL k", ["x", "1", "y", "2", "z", "3"]),
        ("HIMPORT DISCARD s", 1),
        ("HIMPORT DISCARD s", 0),
        ("HGETALL k", ["x", "1", "y", "2", "z", "3"]),
        ("HIMPORT SET k s 1 2 3", MISSING),
        ("HIMPORT PREPARE s a", "OK"),
        ("HIMPORT PREPARE t a", "OK"),
        ("HIMPORT DISCARDALL", 2),
        ("HIMPORT DISCARDALL", 0),
        ("HIMPORT SET k t 1", MISSING),
        ("HIMPORT", "ERR wrong number of arguments for 'himport' command"),
        ("HIMPORT PREPARE s", "ERR wrong number of arguments for 'himport|prepare' command"),
        ("HIMPORT SET k s", "ERR wrong number of arguments for 'himport|set' command"),
        ("HIMPORT DISCARD a b", "ERR wrong number of arguments for 'himport|discard' command"),
        ("HIMPORT DISCARDALL a", "ERR wrong number of arguments for 'himport|discardall' command"),
    ):
        assert boss.line(line) == reply, line
    assert boss.line("HIMPORT nosuch").startswith("ERR unknown subcommand")
    assert any(line.startswith("PREPARE") for line in boss.line("HIMPORT HELP"))
    assert boss.ask("HIMPORT", "PREPARE", "", "", "f") == "OK"
    assert boss.ask("HIMPORT", "SET", "", "", "1", "") == "OK"
    assert boss.ask("HGETALL", "") == ["", "1", "f", ""]


def test_himport_replaces_hashes_alone(boss):
    boss.line("HIMPORT PREPARE s a b")
    boss.line("HSET h old 1")
    boss.line("EXPIRE h 1000")
    assert boss.line("HIMPORT SET h s 1 2") == "OK"
    assert boss.line("HGETALL h") == ["a", "1", "b", "2"]
    assert boss.line("TTL h") == -1
    boss.line("SET text v")
    assert boss.line("HIMPORT SET text s 1 2").startswith("WRONGTYPE")
    assert boss.line("GET text") == "v"


def test_fieldsets_are_the_connections_own_and_end_with_it(server, boss):
    with Peer(server) as other:
        other.line("HIMPORT PREPARE s a")
        assert boss.line("HIMPORT SET k s 1") == MISSING
        assert other.line("HIMPORT SET k s 1") == "OK"
        other.line("SELECT 1")
        assert other.line("HIMPORT SET k s 1") == "OK"
        other.line("DEL k")
        assert other.line("RESET") == "RESET"
        assert other.line("HIMPORT SET k s 1") == MISSING


def test_transactions_prepare_and_set(boss):
    boss.line("HIMPORT PREPARE gone a")
    for line in ("MULTI", "HIMPORT DISCARDALL", "HIMPORT PREPARE s a b", "HIMPORT SET k s 1 2", "HIMPORT SET k s 1", "HGETALL k"):
        boss.line(line)
    assert boss.line("EXEC") == [1, "OK", "OK", "ERR value count does not match fieldset field count", ["a", "1", "b", "2"]]
    assert boss.line("HIMPORT SET k gone 1") == MISSING
    assert boss.line("HIMPORT SET k s 3 4") == "OK"


def test_fieldsets_of_a_script_last_for_one_call(boss):
    prepare, store = "redis.call('HIMPORT', 'PREPARE', 's', 'a')", "return redis.call('HIMPORT', 'SET', KEYS[1], 's', '1')"
    boss.line("HIMPORT PREPARE own x")
    assert boss.ask("EVAL", prepare, 0) is None
    assert MISSING in boss.ask("EVAL", store, 1, "k")
    assert boss.ask("EVAL", f"{prepare} {store}", 1, "k") == "OK"
    assert MISSING in boss.ask("EVAL", "return redis.call('HIMPORT', 'SET', KEYS[1], 'own', '1')", 1, "k")
    assert "ends here" in boss.ask("EVAL", f"{prepare} error('ends here')", 0)
    assert MISSING in boss.ask("EVAL", store, 1, "k")
    assert boss.line("HIMPORT SET other s 1") == MISSING
    assert boss.line("HIMPORT SET other own 1") == "OK"
    library = f"""#!lua name=imports
redis.register_function('prepare', function(KEYS) return {prepare} end)
redis.register_function('store', function(KEYS) {store} end)
redis.register_function('both', function(KEYS) {prepare} {store} end)"""
    boss.ask("FUNCTION", "LOAD", "REPLACE", library)
    assert boss.line("FCALL prepare 0") == "OK"
    assert MISSING in boss.line("FCALL store 1 k")
    assert boss.line("FCALL both 1 k") == "OK"
    boss.line("FUNCTION DELETE imports")


def test_keys_categories_and_events_are_known(server, boss):
    assert boss.line("COMMAND GETKEYS HIMPORT SET k s 1") == ["k"]
    categories = {name: {*boss.line(f"ACL CAT {name}")} for name in ("write", "read", "fast", "slow", "hash")}
    for name, expected in (("prepare", {"slow", "hash"}), ("discard", {"slow", "hash"}), ("set", {"write", "slow", "hash"})):
        assert {category for category, names in categories.items() if f"himport|{name}" in names} == expected, name
    boss.line("ACL SETUSER app on nopass +@all ~ok* resetchannels")
    boss.line("CONFIG SET notify-keyspace-events KEAn")
    with Peer(server) as client, Peer(server) as watcher:
        client.line("AUTH app x")
        client.line("HIMPORT PREPARE s a b")
        assert client.line("HIMPORT SET other s 1 2").startswith("NOPERM")
        watcher.line("PSUBSCRIBE __keyevent@0__:*")
        assert client.line("HIMPORT SET ok s 1 2") == "OK"
        assert client.line("HIMPORT SET ok s 1 2") == "OK"
        heard = [watcher.read()[2:] for _ in range(3)]
        assert heard == [[f"__keyevent@0__:{event}", "ok"] for event in ("new", "hset", "hset")]
    boss.ask("CONFIG", "SET", "notify-keyspace-events", "")
    boss.line("ACL DELUSER app")


def test_watchers_and_readers_hear_of_a_stored_hash(server, boss):
    boss.line("HIMPORT PREPARE s a")
    boss.line("HIMPORT SET k s 1")
    with Peer(server, 3) as client:
        client.line("WATCH k")
        boss.line("HIMPORT SET k s 1")
        client.line("MULTI")
        client.line("PING")
        assert client.line("EXEC") is None
        client.line("CLIENT TRACKING ON")
        client.line("HGET k a")
        boss.line("HIMPORT SET k s 2")
        assert client.read() == ["invalidate", ["k"]]


def test_fieldsets_count_as_the_clients_memory_and_are_bounded(server, boss):
    before = total_bytes(boss)
    for number in range(100):
        boss.ask("HIMPORT", "PREPARE", f"s{number}", *(f"field_{number}_{field}" for field in range(64)))
    taken = total_bytes(boss) - before
    assert 100 * 64 * 10 < taken < 100 * 64 * 40
    for number in range(50):
        boss.line(f"HIMPORT DISCARD s{number}")
    assert boss.line("HIMPORT DISCARDALL") == 50
    assert total_bytes(boss) - before < taken / 10
    long = "x" * (1 << 20)
    replies = [boss.ask("HIMPORT", "PREPARE", f"s{number}", long) for number in range(64)]
    assert replies.count("OK") == 63
    assert replies[-1] == f"ERR the fieldsets of a client take {64 << 20} bytes at most"
    assert boss.line("HIMPORT DISCARDALL") == 63


def test_clients_with_too_many_fieldsets_are_evicted():
    with Server("--maxmemory-clients", "2mb") as server, Peer(server) as observer, Peer(server) as client:
        observer.line("CLIENT NO-EVICT ON")
        prepared = 0
        with pytest.raises((OSError, EOFError)):
            while prepared < 1000:
                client.ask("HIMPORT", "PREPARE", f"s{prepared}", *(f"field_{prepared}_{field}" for field in range(2000)))
                prepared += 1
        assert 10 < prepared
        assert "evicted_clients:1\r\n" in observer.line("INFO stats")


def test_replicas_get_the_hash_itself():
    with Node(DUNLIN) as primary, Node(DUNLIN) as replica:
        replica.follow(primary.port)
        settle(primary, replica)
        with Peer(primary) as peer:
            peer.line("HIMPORT PREPARE s b a")
            peer.line("HIMPORT SET k s 1 2")
            peer.line("EXPIRE k 1000")
            peer.line("HIMPORT SET k s 3 4")
        settle(primary, replica)
        assert replica.call("HGETALL", "k") == [b"b", b"3", b"a", b"4"]
        assert replica.call("TTL", "k") == -1
        with Peer(replica) as peer:
            assert peer.line("HIMPORT PREPARE s b a") == "OK"
            assert peer.line("HIMPORT SET k s 1 2").startswith("READONLY")


def test_log_replays_the_hashes():
    with Node(DUNLIN, "--appendonly", "yes") as server, Peer(server) as peer:
        peer.line("HIMPORT PREPARE s b a")
        for number in range(100):
            peer.line(f"HIMPORT SET k{number % 7} s {number} x")
        digest = server.digest()
        assert peer.line("DEBUG LOADAOF") == "OK"
        assert server.digest() == digest
        assert peer.line("HGETALL k0") == ["b", "98", "a", "x"]
