"""MONITOR shows the commands that redis-server shows, in its words; and COMMAND LIST names those that it names."""

import re

import pytest

from peer import Peer

LIBRARY = """#!lua name=l
redis.register_function('f', function() redis.call('incr', 'n') return redis.call('incr', 'text') end)"""

SCENARIOS = {
    "unknown digest": [("EVALSHA", "a" * 40, 0), ("EVALSHA", "abc", 0), ("EVALSHA_RO", "abc", 0)],
    "not Lua": [("EVAL", "no Lua at all", 0), ("EVAL", "#!lua flags=nowhere\nreturn 1", 0), ("EVAL", "#!js\n1", 0)],
    "bad number of keys": [("EVAL", "return 1", "x"), ("EVAL", "return 1", 9), ("EVAL", "return 1", -1), ("FCALL", "f", "x")],
    "few words": [("EVAL", "return 1"), ("EVALSHA", "x"), ("FCALL", "f"), ("GET",), ("NOWHERE",)],
    "scripts": [("EVAL", "return redis.call('get', 'a')", 0), ("eval_ro", "return redis.call('get', 'a')", 0)],
    "calls that are refused": [
        ("EVAL", "return redis.call('nowhere', 'a')", 0), ("EVAL", "return redis.call('get')", 0),
        ("EVAL", "return redis.call('subscribe', 'a')", 0), ("EVAL_RO", "return redis.call('set', 'a', 'b')", 0),
        ("EVAL", "return redis.call('config', 'get', 'port')", 0),
    ],
    "calls that fail": [("EVAL", "return redis.call('incr', 'text')", 0), ("EVAL", "return nowhere", 0)],
    "databases of scripts": [("EVAL", "redis.call('select', 3) return redis.call('get', 'x')", 0), ("GET", "x")],
    "functions": [("FCALL", "nowhere", 0), ("FCALL", "f", 0), ("FCALL_RO", "f", 0)],
    "scripts in a transaction": [("MULTI",), ("EVALSHA", "abc", 0), ("EVAL", "return redis.call('get', 'a')", 0), ("EXEC",)],
    "handshakes": [
        ("HELLO",), ("HELLO", 2), ("HELLO", 2, "SETNAME", "bob"), ("HELLO", 2, "SETNAME", "auth"), ("HELLO", 9),
        ("HELLO", 2, "AUTH", "default", "secret"), ("hello", 2, "setname", "x", "auth", "default", "secret"),
    ],
    "passwords": [("AUTH", "secret"), ("AUTH", "default", "secret")],
    "credentials of others": [
        ("MIGRATE", "127.0.0.1", 1, "none", 0, 10, "COPY", "AUTH", "secret"), ("MIGRATE", "127.0.0.1", 1, "AUTH", 0, 10, "REPLACE"),
        ("MIGRATE", "127.0.0.1", 1, "", 0, 10, "auth2", "me", "secret", "KEYS", "AUTH", "none"),
    ],
    "transactions": [("MULTI",), ("SET", "a", "b"), ("GET", "a"), ("EXEC",), ("MULTI",), ("GET", "a"), ("DISCARD",), ("EXEC",)],
    "aborted transactions": [("MULTI",), ("NOWHERE",), ("GET", "a"), ("EXEC",)],
    "watched keys": [("WATCH", "a"), ("SET", "a", 1), ("MULTI",), ("GET", "a"), ("EXEC",), ("UNWATCH",)],
    "databases": [("SELECT", 1), ("GET", "x"), ("SELECT", 0), ("SWAPDB", 0, 1), ("FLUSHALL",)],
    "operators": [
        ("CONFIG", "GET", "port"), ("CLIENT", "SETNAME", "x"), ("CLIENT", "ID"), ("CLIENT", "LIST"), ("INFO", "server"),
        ("CLIENT", "NO-EVICT", "off"), ("SLOWLOG", "LEN"), ("LATENCY", "LATEST"), ("COMMAND", "COUNT"), ("LASTSAVE",), ("DBSIZE",),
        ("SCRIPT", "LOAD", "return 1"), ("SCRIPT", "EXISTS", "x"), ("SCRIPT", "FLUSH"), ("FUNCTION", "STATS"), ("OBJECT", "HELP"),
        ("MEMORY", "USAGE", "x"), ("TIME",), ("LOLWUT",), ("PUBLISH", "a", "b"), ("WAIT", 0, 0),
    ],
    "what waits": [("BLPOP", "nothing", "0.01"), ("BLPOP", "list", "0.01"), ("XREAD", "BLOCK", 10, "STREAMS", "s", "$")],
    "letters": [("set", "a", "b"), ("SeT", "a", 'q"\\\r\n\x01'), ("GET", "")],
}  # fmt: skip


def told(server, calls):
    with Peer(server) as peer, Peer(server) as monitor:
        peer.ask("FLUSHALL")
        peer.ask("SET", "text", "abc")
        peer.ask("RPUSH", "list", "1")
        peer.ask("FUNCTION", "LOAD", "REPLACE", LIBRARY)
        monitor.ask("MONITOR")
        for call in calls:
            peer.ask(*call)
        peer.ask("PING", "over")
        shown = []
        while not shown or '"over"' not in shown[-1]:
            line = re.sub(r"^\d+\.\d{6} ", "", monitor.read())
            shown.append(re.sub(r"127\.0\.0\.1:\d+\]", "CLIENT]", line))
        return shown


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_commands_are_shown_as_by_redis(server, oracle, scenario):
    ours = told(server, SCENARIOS[scenario])
    assert ours == told(oracle, SCENARIOS[scenario])
    assert not any("secret" in line for line in ours)


def test_command_list_has_the_subcommands(server, oracle):
    def listed(one, *filtered):
        with Peer(one) as peer:
            names = peer.ask("COMMAND", "LIST", *filtered)
            assert len(names) == len(set(names))
            return set(names)

    ours, redis = listed(server), listed(oracle)
    assert len([name for name in redis if "|" in name]) == 126
    with Peer(server) as peer:
        known = {name for name in redis if peer.ask("COMMAND", "INFO", name) != [None]}
    assert known <= ours
    assert sum("|" in name for name in known) > 70
    for filtered in (["PATTERN", "config*"], ["PATTERN", "*"], ["ACLCAT", "string"], ["MODULE", "x"]):
        assert listed(server, "FILTERBY", *filtered) >= listed(oracle, "FILTERBY", *filtered) & known
