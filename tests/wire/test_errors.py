"""INFO's counts of errors: each error reply once, by its code, and at the command that has failed or was rejected."""

import re

import pytest

from harness import Server
from peer import LIBRARY, Failure, Peer, until_it_has_gone, until_it_waits

LONGEST = "ABCDEFGHIJKLMNOPQRSTUVWXYZABCD"


def script(text, *behind):
    return [("EVAL", text, *(behind or (0,)))]


# Scenarios: calls, after which the counts are those of redis-server.
SCENARIOS = {
    "commands": [("GET",), ("INCR", "text"), ("LPUSH", "text", 1), ("SET", "a", "b", "NOWHERE"), ("SETEX", "a", -1, "b")],
    "unknown": [("NOWHERE", "x"), ("CONFIG", "NOWHERE"), ("CONFIG",)],
    "connection": [("AUTH", "x"), ("HELLO", 9), ("SELECT", 99), ("CLIENT", "UNBLOCK", "x")],
    "queued": [("MULTI",), ("INCR", "text"), ("INCR", "text"), ("EXEC",)],
    "aborted": [("MULTI",), ("INCR", "text"), ("GET",), ("EXEC",)],
    "out of place": [("EXEC",), ("MULTI",), ("MULTI",), ("EXEC",)],
    "streams": [("XREADGROUP", "GROUP", "g", "c", "STREAMS", "missing", ">")],
    "raised": script("return redis.call('incr', 'text')"),
    "returned": script("return redis.pcall('incr', 'text')"),
    "passed over": script("redis.pcall('incr', 'text') return 1"),
    "several": script("redis.pcall('incr', 'text') redis.pcall('incr', 'text') return redis.call('incr', 'text')"),
    "made anew": script("local e = redis.pcall('incr', 'text') return redis.error_reply(e.err)"),
    "raised again": script("local e = redis.pcall('incr', 'text') error(e)"),
    "few words": script("return redis.call('get')"),
    "few words, caught": script("return redis.pcall('get')"),
    "no command": script("return redis.call('nowhere')"),
    "no subcommand": script("return redis.call('config', 'nowhere')"),
    "no words": script("return redis.call()"),
    "no text": script("return redis.call({})"),
    "not from scripts": script("return redis.call('subscribe', 'a')"),
    "script in a script": script("return redis.call('eval', 'return 1', 0)"),
    "write of EVAL_RO": [("EVAL_RO", "return redis.call('set', 'a', 'b')", 0)],
    "write without leave": script("#!lua flags=no-writes\nreturn redis.call('set', 'a', 'b')"),
    "bad flags": script("#!lua flags=nowhere\nreturn 1"),
    "own code": script("return redis.error_reply('MINE no')"),
    "own code with a mark": script("return redis.error_reply('-MINE no')"),
    "one word": script("return redis.error_reply('no')"),
    "one word in a table": script("return {err='NO'}"),
    "within an array": script("return {1, redis.error_reply('MINE no'), {redis.error_reply('MINE no')}}"),
    "error of Lua": script("error('boo')"),
    "error table of Lua": script("error({err='MINE boo'})"),
    "not Lua": script("this is not Lua"),
    "longest code": script(f"return {{err='{LONGEST} x'}}"),
    "too long for a code": script(f"return {{err='{LONGEST}E x'}}"),
    "forged": script("return redis.error_reply('-ERR\\r\\n-ERR FAKE')"),
    "forged field": script("return redis.error_reply('A:B\\r\\n#x FAKE')"),
    "unsafe letters": script("return redis.error_reply('A:B#C no')"),
    "unknown script": [("EVALSHA", "a" * 40, 0), ("EVALSHA", "abc", 0)],
    "bad number of keys": [*script("return 1", "x"), *script("return 1", 5), *script("return 1", -1)],
    "functions": [("FCALL", "call", 0), ("FCALL", "pcall", 0), ("FCALL", "nowhere", 0), ("FCALL_RO", "call", 0)],
    "libraries": [("FUNCTION", "LOAD", "x"), ("FUNCTION", "DELETE", "nowhere"), ("SCRIPT", "KILL")],
}


def counts(peer):
    """INFO's lines about errors and commands, without times and without the questions themselves."""
    found = {}
    for section in ("errorstats", "commandstats", "stats"):
        for line in peer.ask("INFO", section).split("\r\n"):
            name, _, value = line.partition(":")
            if name in ("cmdstat_info", "cmdstat_config|resetstat") or (section == "stats" and name != "total_error_replies"):
                continue
            if value or not line.startswith("#"):
                found[name] = re.sub(r"usec=\d+,usec_per_call=[\d.]+,", "", value)
    return found


def told(server, calls):
    with Peer(server) as peer:
        peer.ask("FLUSHALL")
        peer.ask("SCRIPT", "FLUSH")
        peer.ask("SET", "text", "abc")
        peer.ask("FUNCTION", "LOAD", "REPLACE", LIBRARY)
        peer.ask("CONFIG", "RESETSTAT")
        replies = [peer.ask(*call) for call in calls]
        return replies, counts(peer)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_errors_are_counted_as_in_redis(server, oracle, scenario):
    ours, redis = told(server, SCENARIOS[scenario]), told(oracle, SCENARIOS[scenario])
    assert ours == redis
    assert scenario in ("passed over",) or any("error" in name for name in ours[1])


def test_call_fails_once_whatever_errors_its_reply_has(server):
    # redis-server 7.0 counts two failed calls of this one.
    text = "return {redis.pcall('incr', 'text'), redis.error_reply('MINE no')}"
    _, found = told(server, script(text))
    assert found["cmdstat_eval"] == "calls=1,rejected_calls=0,failed_calls=1"
    assert found["cmdstat_incr"] == "calls=1,rejected_calls=0,failed_calls=1"
    assert (found["errorstat_ERR"], found["errorstat_MINE"], found["total_error_replies"]) == ("count=1", "count=1", "2")


def test_scripts_cannot_make_info_grow(server):
    with Peer(server) as peer, Peer(server) as other:
        peer.ask("CONFIG", "RESETSTAT")
        for number in range(300):
            # Connections spread over the worker threads.
            (peer, other)[number % 2].ask("EVAL", "return {err=ARGV[1]}", 0, f"E{number} x")
        other.ask("EVAL", "return {err=ARGV[1]}", 0, "E0 x")
        peer.ask("GET")
        found = {name: value for name, value in counts(peer).items() if name.startswith("errorstat")}
        assert len(found) == 128 + 2
        assert found["errorstat_E0"] == "count=2"
        assert found["errorstat_ERR"] == "count=1", "the server's own codes are always counted"
        assert found["errorstat_ERRORSTATS_OVERFLOW"] == f"count={300 - 128}"
        assert counts(peer)["total_error_replies"] == "302"
        peer.ask("CONFIG", "RESETSTAT")
        other.ask("EVAL", "return {err='E299 x'}", 0)
        assert counts(peer)["errorstat_E299"] == "count=1"


def test_errors_of_the_protocol_are_counted_as_in_redis(server, oracle):
    for one in (server, oracle):
        with Peer(one) as peer, Peer(one) as other:
            peer.ask("CONFIG", "RESETSTAT")
            other.socket.sendall(b"*1\r\n:1\r\n")
            assert isinstance(other.read(), Failure)
            assert other.is_closed()
            found = counts(peer)
            assert (found["errorstat_ERR"], found["total_error_replies"]) == ("count=1", "1")


# Endings of a wait: the command that waits, and the command that ends it. {} stands for the number of the client.
WAITS = {
    "served": ("BLPOP list 0", ["RPUSH list a"], "calls=1,rejected_calls=0,failed_calls=0", None),
    "destination of another type": (
        "BRPOPLPUSH list text 0", ["RPUSH list a"], "calls=1,rejected_calls=0,failed_calls=1", "WRONGTYPE",
    ),
    "group gone": (
        "XREADGROUP GROUP g c BLOCK 0 STREAMS stream >", ["XGROUP DESTROY stream g"],
        "calls=1,rejected_calls=0,failed_calls=1", "NOGROUP",
    ),
    "unblocked": ("BLPOP list 0", ["CLIENT UNBLOCK {}"], "calls=1,rejected_calls=0,failed_calls=0", None),
    "unblocked with an error": (
        "BLPOP list 0", ["CLIENT UNBLOCK {} ERROR"], "calls=1,rejected_calls=0,failed_calls=1", "UNBLOCKED",
    ),
    "replicas unblocked with an error": (
        "WAIT 1 0", ["CLIENT UNBLOCK {} ERROR"], "calls=1,rejected_calls=0,failed_calls=1", "UNBLOCKED",
    ),
}  # fmt: skip


@pytest.mark.parametrize("ending", WAITS)
def test_blocked_command_is_counted_when_it_is_answered(server, ending):
    command, enders, expected, code = WAITS[ending]
    name = "cmdstat_" + command.split(" ")[0].lower()
    with Peer(server) as peer, Peer(server) as waiting:
        for line in ("FLUSHALL", "SET text abc", "XGROUP CREATE stream g $ MKSTREAM", "CONFIG RESETSTAT"):
            peer.line(line)
        number = waiting.line("CLIENT ID")
        waiting.send(*command.split(" "))
        until_it_waits(peer, number)
        assert name not in counts(peer)
        for line in enders:
            peer.line(line.format(number))
        waiting.read()
        found = counts(peer)
        assert found[name] == expected
        assert found["total_error_replies"] == ("1" if code else "0")
        if code:
            assert found[f"errorstat_{code}"] == "count=1"
        assert found.get("cmdstat_client|unblock", "failed_calls=0").endswith("failed_calls=0")


def test_blocked_client_that_leaves_is_not_counted(server):
    with Peer(server) as peer, Peer(server) as waiting:
        peer.line("CONFIG RESETSTAT")
        number = waiting.line("CLIENT ID")
        waiting.send("BLPOP", "nothing", "0")
        until_it_waits(peer, number)
        waiting.close()
        until_it_has_gone(peer, number)
        assert "cmdstat_blpop" not in counts(peer)


def test_errors_are_counted_that_nobody_hears(server):
    with Peer(server) as peer, Peer(server) as silent:
        peer.line("CONFIG RESETSTAT")
        silent.send_all("CLIENT REPLY OFF", "INCR text text", "CLIENT REPLY ON")
        assert silent.read() == "OK"
        assert counts(peer)["cmdstat_incr"] == "calls=0,rejected_calls=1,failed_calls=0"


def test_offloaded_command_is_counted_once():
    with Server("--enable-debug-command", "yes") as server, Peer(server) as peer:
        peer.ask("RPUSH", "list", *range(50_000))
        peer.line("CONFIG RESETSTAT")
        assert isinstance(peer.line("SORT list BY w_* GET nowhere STORE text"), int)
        assert isinstance(peer.line("SORT list"), list)
        found = counts(peer)
        assert found["cmdstat_sort"] == "calls=2,rejected_calls=0,failed_calls=0"
        assert found["total_error_replies"] == "0"
