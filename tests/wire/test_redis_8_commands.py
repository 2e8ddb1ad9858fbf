"""Commands of Redis 8.8 and 8.10 over connections: in transactions and scripts, in both protocols, under ACL, for clients that
wait and that watch. Neither redis-server 7.0 nor Valkey has them: the replies are a table here."""

import pytest

from harness import DUNLIN, is_redis
from peer import Failure, Peer
from wire import eventually

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="Redis has them from 8.8 and 8.10 on")
NAMES = ["increx", "lmovem", "blmovem", "sunioncard", "sdiffcard"]


@pytest.fixture
def boss(server):
    with Peer(server) as boss:
        boss.line("FLUSHALL")
        yield boss


def wait(boss, client, line):
    number = client.line("CLIENT ID")
    client.send(*line.split(" "))
    eventually(lambda: " flags=b " in boss.line(f"CLIENT LIST ID {number}"), f"{line} waits")


def test_transactions_and_scripts_run_them_without_waiting(boss):
    boss.line("RPUSH l 1 2 3")
    assert boss.line("MULTI") == "OK"
    for line in (
        "INCREX n BYINT 7 UBOUND 5 SATURATE",
        "LMOVEM l m LEFT LEFT COUNT 2 OBO",
        "BLMOVEM l m LEFT LEFT 0 EXACTLY 2 BULK",
        "BLMOVEM nosuch m LEFT LEFT 0 COUNT 2 BULK",
        "SUNIONCARD 1 nosuch",
        "XREAD MAXCOUNT 1 BLOCK 0 STREAMS s 0",
    ):
        assert boss.line(line) == "QUEUED"
    assert boss.line("EXEC") == [[5, 5], ["2", "1"], None, None, 0, None]
    script = "return {redis.call('increx', KEYS[1], 'byfloat', '0.5'), redis.call('blmovem', KEYS[2], KEYS[3], 'left', 'left', 0, 'exactly', 2, 'bulk')}"
    assert boss.ask("EVAL", script, 3, "n", "l", "m") == [["5.5", "0.5"], None]
    assert boss.ask("EVAL", "redis.setresp(3) return tostring(redis.call('increx', KEYS[1], 'byfloat', '0.5')[1].double)", 1, "n") == "6"


def test_replies_of_the_newer_protocol(server, boss):
    with Peer(server, 3) as peer:
        assert peer.line("INCREX f BYFLOAT 2.5") == [2.5, 2.5]
        assert peer.line("INCREX n BYINT 2") == [2, 2]
        assert peer.line("LMOVEM nosuch m LEFT LEFT EXACTLY 1 OBO") is None
        assert peer.line("LMOVEM nosuch m LEFT LEFT COUNT 1 OBO") == []
        peer.line("ZADD z 9 a")
        assert peer.line("ZUNION 2 z z AGGREGATE COUNT WITHSCORES") == [["a", 2.0]]


def test_keyspace_events_of_each(server, boss):
    boss.line("CONFIG SET notify-keyspace-events KEA")
    with Peer(server) as watcher:
        watcher.line("PSUBSCRIBE __keyevent@0__:*")

        def heard():
            """The events so far: all come before this message."""
            boss.line("PUBLISH __keyevent@0__:end all")
            events = []
            while (message := watcher.read())[3] != "all":
                events.append(f"{message[2].partition(':')[2]} {message[3]}")
            return events

        boss.line("SET n 1 EX 100")
        boss.line("RPUSH l 1 2 3")
        assert heard() == ["set n", "expire n", "rpush l"]
        for line, events in (
            ("INCREX n BYINT 5", ["incrby n"]),
            ("INCREX n BYINT 5 UBOUND 6", []),
            ("INCREX n PERSIST", ["incrby n", "persist n"]),
            ("INCREX n BYFLOAT 0.5 EX 100", ["incrbyfloat n", "expire n"]),
            ("INCREX n BYFLOAT 0.5 EX 10 ENX", ["incrbyfloat n"]),
            ("INCREX n BYFLOAT 1 PXAT 1", ["del n"]),
            ("LMOVEM l m LEFT RIGHT COUNT 2 BULK", ["rpush m", "lpop l"]),
            ("LMOVEM l l RIGHT LEFT EXACTLY 1 BULK", ["lpush l", "rpop l"]),
            ("BLMOVEM l m RIGHT LEFT 0 COUNT 9 OBO", ["lpush m", "rpop l", "del l"]),
            ("LMOVEM l m LEFT LEFT", []),
        ):
            assert not isinstance(boss.line(line), Failure), line
            assert heard() == events, line
    boss.ask("CONFIG", "SET", "notify-keyspace-events", "")


def test_blmovem_that_waits_for_more_lets_others_pass(server, boss):
    with Peer(server) as one, Peer(server) as other:
        wait(boss, one, "BLMOVEM a b LEFT RIGHT 0 EXACTLY 3 BULK")
        boss.line("RPUSH a 1 2")
        assert other.line("BLPOP a 0") == ["a", "1"]
        wait(boss, other, "BRPOP b 0")
        boss.line("RPUSH a 3 4")
        assert one.read() == ["2", "3", "4"]
        assert other.read() == ["b", "4"]
        assert boss.line("LRANGE b 0 -1") == ["2", "3"]


def test_blmovem_ends_by_timeout_unblock_and_wrong_type(server, boss):
    with Peer(server) as one:
        assert one.line("BLMOVEM a b LEFT RIGHT 0.01 EXACTLY 3 BULK") is None
        number = one.line("CLIENT ID")
        wait(boss, one, "BLMOVEM a b LEFT RIGHT 0")
        assert boss.line(f"CLIENT UNBLOCK {number}") == 1
        assert one.read() is None
        wait(boss, one, "BLMOVEM a b LEFT RIGHT 0 COUNT 2 OBO")
        boss.line("SET b text")
        boss.line("RPUSH a 1")
        assert one.read().startswith("WRONGTYPE")
        assert boss.line("LRANGE a 0 -1") == ["1"]


def test_watched_and_tracked_keys_change_only_if_the_command_changes_them(server, boss):
    boss.line("SET n 5")
    with Peer(server, 3) as client:
        for line, changes in (("INCREX n UBOUND 5", False), ("INCREX n UBOUND 6", True)):
            client.line("WATCH n")
            boss.line(line)
            client.line("MULTI")
            client.line("PING")
            assert client.line("EXEC") == (None if changes else ["PONG"]), line
        client.line("CLIENT TRACKING ON")
        client.line("GET n")
        boss.line("INCREX n UBOUND 6")
        assert client.is_silent()
        boss.line("INCREX n UBOUND 7")
        assert client.read() == ["invalidate", ["n"]]


def test_keys_and_categories_are_known(server, boss):
    for line, keys in (
        ("increx n byint 1", ["n"]),
        ("lmovem a b left right", ["a", "b"]),
        ("blmovem a b left right 0 count 2 obo", ["a", "b"]),
        ("sunioncard 2 a b approx", ["a", "b"]),
        ("sdiffcard 2 a b limit 3", ["a", "b"]),
        ("xread count 1 maxcount 2 maxsize 3 streams a b 0 0", ["a", "b"]),
        ("xreadgroup maxcount 2 group streams c streams a >", ["a"]),
    ):
        assert boss.line(f"COMMAND GETKEYS {line}") == keys, line
    in_category = {name: {*boss.line(f"ACL CAT {name}")} for name in ("write", "read", "fast", "slow", "blocking", "string", "list", "set")}
    for name, expected in (
        ("increx", {"write", "fast", "string"}),
        ("lmovem", {"write", "slow", "list"}),
        ("blmovem", {"write", "slow", "list", "blocking"}),
        ("sunioncard", {"read", "slow", "set"}),
        ("sdiffcard", {"read", "slow", "set"}),
    ):
        assert {category for category, names in in_category.items() if name in names} == expected, name
    documented = boss.ask("COMMAND", "DOCS", *NAMES)
    assert documented[::2] == NAMES
    boss.line("ACL SETUSER app on nopass +@all ~ok* %R~read* resetchannels")
    with Peer(server) as client:
        client.line("AUTH app x")
        for line, allowed in (
            ("INCREX ok", True),
            ("INCREX read", False),
            ("LMOVEM ok1 ok2 LEFT LEFT", True),
            ("LMOVEM read ok2 LEFT LEFT", False),
            ("LMOVEM ok1 read LEFT LEFT", False),
            ("SUNIONCARD 2 read ok1", True),
            ("SDIFFCARD 2 ok1 other", False),
            ("XREAD MAXCOUNT 1 STREAMS other 0", False),
        ):
            reply = client.line(line)
            assert (isinstance(reply, Failure) and reply.startswith("NOPERM")) != allowed, (line, reply)
    boss.line("ACL DELUSER app")


def test_policies_by_the_last_change_are_settings(server, boss):
    for policy in ("allkeys-lrm", "volatile-lrm"):
        assert boss.line(f"CONFIG SET maxmemory-policy {policy}") == "OK"
        assert boss.line("CONFIG GET maxmemory-policy") == ["maxmemory-policy", policy]
        assert f"maxmemory_policy:{policy}\r\n" in boss.line("INFO memory")
    boss.line("CONFIG SET maxmemory-policy noeviction")
