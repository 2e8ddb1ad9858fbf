"""Transactions: commands that are queued or refused, the effect of watched keys on EXEC, and the view of other
clients."""

import pytest

from harness import DUNLIN, Server, is_redis
from peer import Failure, Peer
from wire import eventually

ABORTED = Failure("EXECABORT Transaction discarded because of previous errors.")


@pytest.fixture
def peers(server):
    """Two clients of an empty server."""
    with Peer(server) as one, Peer(server) as other:
        one.line("FLUSHALL")
        yield one, other


def test_commands_run_together_or_not_at_all(peers):
    one, other = peers
    assert one.line("MULTI") == "OK"
    assert [one.line(line) for line in ("SET k 1", "INCR k", "HSET k f v", "GET k")] == ["QUEUED"] * 4
    assert other.line("GET k") is None, "nothing has run yet"
    wrong_type = Failure("WRONGTYPE Operation against a key holding the wrong kind of value")
    assert one.line("EXEC") == ["OK", 2, wrong_type, "2"], "what fails when it runs stops nothing else"
    assert other.line("GET k") == "2"
    one.send_all("MULTI", "SET k 3", "GET", "EXEC", "GET k")
    assert [one.read() for _ in range(5)] == [
        "OK",
        "QUEUED",
        Failure("ERR wrong number of arguments for 'get' command"),
        ABORTED,
        "2",
    ]
    one.send_all("MULTI", "SET k 3", "DISCARD", "GET k", "EXEC", "DISCARD")
    assert [one.read() for _ in range(6)] == [
        "OK",
        "QUEUED",
        "OK",
        "2",
        Failure("ERR EXEC without MULTI"),
        Failure("ERR DISCARD without MULTI"),
    ]


@pytest.mark.parametrize("line", ["NOSUCH", "GET", "CONFIG NOSUCH", "SHUTDOWN NOSAVE", "DISCARD x", "GET a b"])
def test_exec_is_aborted_by_a_command_refused_in_the_queue(peers, line):
    one, _ = peers
    one.line("MULTI")
    assert isinstance(one.line(line), Failure)
    assert one.line("EXEC") == ABORTED
    assert one.line("EXEC") == Failure("ERR EXEC without MULTI")


@pytest.mark.parametrize("line", ["MULTI", "WATCH a"])
def test_multi_is_not_spoiled_by_commands_that_run_at_once(peers, line):
    one, _ = peers
    one.line("MULTI")
    assert isinstance(one.line(line), Failure)
    assert one.line("EXEC") == []


def test_exec_itself_may_be_refused(peers):
    one, _ = peers
    one.line("MULTI")
    text = "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command"
    assert one.line("EXEC now") == Failure(text)
    assert one.line("EXEC") == Failure("ERR EXEC without MULTI")


def test_commands_of_every_kind_run_inside(peers):
    one, other = peers
    other.line("SUBSCRIBE inside")
    one.send_all(
        "MULTI",
        "SET a 1",
        "SELECT 1",
        "SET b 2",
        "DBSIZE",
        "KEYS *",
        "SWAPDB 0 1",
        "GET a",
        "FLUSHDB",
        "RANDOMKEY",
        "SELECT 0",
        "SCAN 0",
        "PUBLISH inside message",
        "CONFIG GET hz",
        "CLIENT GETNAME",
        "INFO keyspace",
        "MEMORY PURGE",
        "CLIENT PAUSE 1 WRITE",
        "MONITOR",
        "PING",
        "FLUSHALL",
        "EXEC",
        "PING",
    )
    got = [one.read() for _ in range(23)]
    assert got[0] == "OK" and got[1:21] == ["QUEUED"] * 20 and got[22] == "PONG"
    info = got[21].pop(14)
    assert "keys=1" in info
    assert got[21] == [
        "OK",
        "OK",
        "OK",
        1,
        ["b"],
        "OK",
        "1",
        "OK",
        None,
        "OK",
        ["0", ["b"]],
        1,
        ["hz", "10"],
        None,
        "OK",
        "OK",
        Failure("ERR MONITOR isn't allowed for DENY BLOCKING client"),
        "PONG",
        "OK",
    ]
    assert other.read() == ["message", "inside", "message"]


@pytest.mark.parametrize("protocol", [2, 3])
def test_shard_channels_cannot_be_subscribed_to_inside(server, protocol):
    with Peer(server, protocol) as one:
        one.send_all("MULTI", "SSUBSCRIBE a b", "PING", "EXEC")
        replies = [one.read() for _ in range(4)][-1]
        assert replies == [Failure("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"), "PONG"]
        assert one.line("PING") == "PONG"


def test_hello_may_change_the_protocol_inside_a_transaction(peers):
    one, _ = peers
    one.send_all("MULTI", "HGETALL h", "HELLO 3", "HGETALL h", "EXEC")
    replies = [one.read() for _ in range(5)][-1]
    assert replies[0] == [] and replies[2] == {}


# A write of another client, and whether it changes the keys `w` (a string), `h`, `s`, `x` (a stream with the group `g`) or
# `gone`.
WRITES = [
    ("w", "SET w 1", True),
    ("w", "APPEND w x", True),
    ("w", "EXPIRE w 100", True),
    ("w", "PERSIST w", False),
    ("w", "TOUCH w", False),
    ("w", "GETEX w", False),
    ("w", "GET w", False),
    ("w", "SETNX w 2", False),
    ("w", "RENAME w v", True),
    ("w", "RENAME h w", True),
    ("w", "MOVE w 1", True),
    ("w", "COPY w v", False),
    ("w", "COPY h w REPLACE", True),
    ("w", "DEL w", True),
    ("w", "UNLINK w gone", True),
    ("w", "EXPIRE w -1", True),
    ("w", "FLUSHDB", True),
    ("w", "FLUSHALL", True),
    ("w", "FLUSHALL ASYNC", True),
    ("w", "SWAPDB 0 1", True),
    ("w", "SWAPDB 1 2", False),
    ("h", "HSET h f v", True),
    ("h", "HSETNX h f v", False),
    ("h", "HDEL h nothing", False),
    ("h", "HINCRBY h n 0", True),
    ("s", "SADD s a", False),
    ("s", "SADD s b", True),
    ("s", "SREM s b", False),
    ("s", "SREM s a", True),
    ("s", "SMOVE s gone a", True),
    ("gone", "SMOVE s gone a", True),
    ("gone", "SINTERSTORE gone s h2", False),
    ("gone", "DEL gone", False),
    ("gone", "FLUSHALL", False),
    ("gone", "SWAPDB 0 1", False),
    ("gone", "SWAPDB 0 2", True),
    ("gone", "SET gone 1", True),
    ("gone", "RENAME w gone", True),
    # Groups, and a stream's memory of its past, are no entries.
    ("x", "XADD x 4-0 f v", True),
    ("x", "XDEL x 1-0", True),
    ("x", "XDEL x 9-0", False),
    ("x", "XTRIM x MAXLEN 1", True),
    ("x", "XSETID x 9-0 ENTRIESADDED 9", False),
    ("x", "XREADGROUP GROUP g c STREAMS x >", False),
    ("x", "XREADGROUP GROUP g c STREAMS x 0", False),
    ("x", "XREADGROUP GROUP g new STREAMS x >", False),
    ("x", "XACK x g 1-0", False),
    ("x", "XCLAIM x g d 0 1-0", False),
    ("x", "XCLAIM x g d 0 1-0 LASTID 3-0", False),
    ("x", "XAUTOCLAIM x g d 0 0", False),
    ("x", "XGROUP CREATE x other 0", False),
    ("x", "XGROUP SETID x g 2-0", False),
    ("x", "XGROUP CREATECONSUMER x g d", False),
    ("x", "XGROUP DELCONSUMER x g c", False),
    ("x", "XGROUP DESTROY x g", False),
    ("gone", "XGROUP CREATE gone g 0 MKSTREAM", True),
]


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("key, write, changes", WRITES, ids=[f"{key}: {write}" for key, write, _ in WRITES])
def test_exec_fails_after_a_change_of_a_watched_key(server, peers, key, write, changes, protocol):
    _, other = peers
    for line in ("SET w 1", "HSET h f v", "SADD s a", "SELECT 2", "SET gone 1", "SELECT 0"):
        other.line(line)
    for line in ("XADD x 1-0 f v", "XADD x 2-0 f v", "XADD x 3-0 f v", "XGROUP CREATE x g 0"):
        other.line(line)
    other.line("XREADGROUP GROUP g c COUNT 1 STREAMS x >")
    with Peer(server, protocol) as one:
        assert one.line(f"WATCH nothing {key} {key}") == "OK"
        assert not isinstance(other.line(write), Failure)
        one.line("MULTI")
        one.line("PING")
        assert one.line("EXEC") == (None if changes else ["PONG"])
        one.line("MULTI")
        assert one.line("EXEC") == [], "the watch is over"


def test_watch_notices_that_its_key_expires(peers):
    one, other = peers

    def is_watched():
        one.line("UNWATCH")
        one.line("SET w 1 PX 1000")
        one.line("WATCH w")
        return one.line("EXISTS w") == 1

    eventually(is_watched, "it is watched before it expires")
    eventually(lambda: other.line("EXISTS w") == 0, "it expires")
    one.line("MULTI")
    assert one.line("EXEC") is None


def test_watch_of_an_expired_key_is_as_of_a_missing_one(peers):
    one, other = peers
    one.line("DEBUG SET-ACTIVE-EXPIRE 0")
    one.line("SET w 1 PX 1")
    eventually(lambda: one.line("PEXPIRETIME w") == -2, "it expires")
    one.line("WATCH w")
    assert other.line("GET w") is None
    one.line("MULTI")
    assert one.line("EXEC") == []
    one.line("DEBUG SET-ACTIVE-EXPIRE 1")


@pytest.mark.parametrize("end", ["UNWATCH", "DISCARD", "RESET", "EXEC"])
def test_watches_end(peers, end):
    one, other = peers
    one.line("WATCH w")
    if end in ("DISCARD", "EXEC"):
        one.line("MULTI")
    one.line(end)
    other.line("SET w 1")
    one.line("MULTI")
    assert one.line("EXEC") == []


def test_watches_of_a_closed_client_are_forgotten(server, peers):
    one, other = peers
    for _ in range(50):
        with Peer(server) as gone:
            gone.line("WATCH w")
            gone.line("MULTI")
            gone.line("SET w 1")
    other.line("WATCH w")
    one.line("SET w 2")
    other.line("MULTI")
    assert other.line("EXEC") is None
    assert one.line("GET w") == "2"


def fields(line):
    return dict(field.split("=", 1) for field in line.strip().split(" "))


def test_client_list_shows_transactions(peers):
    one, other = peers
    number = one.line("CLIENT ID")

    def listed():
        return fields(other.line(f"CLIENT LIST ID {number}"))

    assert (listed()["multi"], listed()["flags"]) == ("-1", "N")
    one.line("WATCH w v")
    one.line("MULTI")
    assert (listed()["multi"], listed()["flags"], listed()["multi-mem"]) == ("0", "x", listed()["multi-mem"])
    one.line("SET w 1")
    one.line("SET w 1")
    assert (listed()["multi"], listed()["flags"]) == ("2", "x")
    assert int(listed()["multi-mem"]) > 0 and int(listed()["tot-mem"]) > int(listed()["multi-mem"])
    other.line("SET v 1")
    assert listed()["flags"] == "xd"
    if not is_redis(DUNLIN):
        assert listed()["watch"] == "2"
        eventually(lambda: "watching_clients:1\r\n" in other.line("INFO clients"), "those of the tests before have gone")
    one.line("EXEC")
    assert (listed()["multi"], listed()["flags"], listed()["multi-mem"]) == ("-1", "N", "0")


def test_exec_that_lacks_memory_is_refused(peers):
    one, other = peers
    one.line("MULTI")
    one.line("SET k 1")
    other.line("CONFIG SET maxmemory 1")
    try:
        oom = "OOM command not allowed when used memory > 'maxmemory'."
        assert one.line("EXEC") == Failure(f"EXECABORT Transaction discarded because of: {oom}")
        one.line("MULTI")
        if not is_redis(DUNLIN):
            # As in Valkey 9.1: what frees or reads is queued.
            assert [one.line(line) for line in ("GET k", "DEL k", "PING")] == ["QUEUED"] * 3
        assert one.line("SET k 1") == Failure(oom)
        assert one.line("EXEC") == ABORTED
        assert one.line("DISCARD") == Failure("ERR DISCARD without MULTI")
    finally:
        other.line("CONFIG SET maxmemory 0")


def test_exec_with_writes_waits_for_a_pause_of_writes(peers):
    one, other = peers
    one.line("MULTI")
    one.line("SET k 1")
    other.line("CLIENT PAUSE 600000 WRITE")
    one.send("EXEC")
    eventually(lambda: " flags=xb " in other.line("CLIENT LIST"), "it waits")
    assert other.line("GET k") is None
    other.line("MULTI")
    other.line("GET k")
    assert other.line("EXEC") == [None], "reads do not wait"
    other.line("CLIENT UNPAUSE")
    assert one.read() == ["OK"]


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis 7.0 does not count the queue")
def test_queue_of_a_transaction_counts_for_the_query_buffer_limit():
    with Server("--client-query-buffer-limit", "1mb") as server, Peer(server) as one:
        one.line("MULTI")
        with pytest.raises((EOFError, ConnectionError)):
            for _ in range(40):
                assert one.ask("SET", "k", "x" * 50_000) == "QUEUED"


def test_monitor_shows_what_runs_and_when(server, peers):
    one, _ = peers
    with Peer(server) as watcher:
        watcher.line("MONITOR")
        for line in ("WATCH w", "MULTI", "SET k 1", "SELECT 2", "GET k", "EXEC", "SELECT 0"):
            one.line(line)
        shown = [watcher.read().split("] ")[1] for _ in range(7)]
        assert shown == ['"WATCH" "w"', '"MULTI"', '"SET" "k" "1"', '"SELECT" "2"', '"GET" "k"', '"EXEC"', '"SELECT" "0"']


def test_slow_commands_are_logged_by_themselves(peers):
    one, _ = peers
    one.line("CONFIG SET slowlog-log-slower-than 0")
    one.line("SLOWLOG RESET")
    one.send_all("MULTI", "SET k 1", "GET k", "EXEC")
    for _ in range(4):
        one.read()
    logged = [entry[3] for entry in one.line("SLOWLOG GET")]
    one.line("CONFIG SET slowlog-log-slower-than 10000")
    assert [words for words in logged if words[0] in ("SET", "GET", "EXEC", "MULTI")] == [
        ["GET", "k"],
        ["SET", "k", "1"],
        ["MULTI"],
    ]


def test_exec_that_is_refused_leaves_the_other_checks_in_force(server):
    owner, client = Peer(server), Peer(server)
    client.line("MULTI")
    assert client.line("SET queued 1") == "QUEUED"
    owner.line("CONFIG SET maxmemory 1")
    try:
        client.send_all("EXEC", "SET behind 1", "PING")
        replies = [client.read() for _ in range(3)]
    finally:
        owner.line("CONFIG SET maxmemory 0")
    assert replies[0].startswith("EXECABORT") and replies[1].startswith("OOM") and replies[2] == "PONG"
    assert owner.line("EXISTS queued behind") == 0
