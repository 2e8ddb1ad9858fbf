"""SLOWLOG, COMMANDLOG, LATENCY and the times of INFO: which commands they have, when, and the parts of them that stay
secret."""

import re

import pytest

from harness import Server
from peer import LIBRARY, Peer, until_it_has_gone, until_it_waits

# A log that holds all, however often a test has to look whether a client waits.
LENGTH = 1_000_000
EVERYTHING = [
    "--enable-debug-command", "yes", "--slowlog-log-slower-than", "0", "--slowlog-max-len", LENGTH,
    "--latency-monitor-threshold", "1",
]  # fmt: skip
SLEEP_US = 50_000


@pytest.fixture(scope="module")
def logging():
    """Every command is slow here."""
    with Server(*EVERYTHING) as server:
        yield server


@pytest.fixture(scope="module")
def logging_oracle(oracle):
    with Server(*EVERYTHING, program=oracle.program) as server:
        yield server


def forget(peer):
    for line in ("CONFIG RESETSTAT", "LATENCY RESET", "SLOWLOG RESET"):
        peer.line(line)


def slow(peer):
    """Command line, client name and microseconds of each entry, oldest first, but for those about the logs."""
    entries = [(" ".join(words), name, us) for _, _, us, words, _, name in reversed(peer.line("SLOWLOG GET -1"))]
    about_logs = ("SLOWLOG", "LATENCY", "CONFIG", "CLIENT LIST", "CLIENT ID", "INFO", "PING")
    return [entry for entry in entries if not entry[0].startswith(about_logs)]


def usec(peer, name):
    found = re.search(rf"cmdstat_{name}:calls=\d+,usec=(\d+)", peer.ask("INFO", "commandstats"))
    return found and int(found[1])


def has_histogram(peer, name):
    return f"latency_percentiles_usec_{name}:" in peer.ask("INFO", "latencystats")


# The command that waits, the one that runs meanwhile, and whether that ends the wait.
WAITS = {
    "list": ("BLPOP list 0", "RPUSH list a"),
    "move": ("BLMOVE list other LEFT RIGHT 0", "RPUSH list a"),
    "sorted set": ("BZPOPMIN zset 0", "ZADD zset 1 a"),
    "stream": ("XREAD BLOCK 0 STREAMS stream $", "XADD stream * a 1"),
    "group": ("XREADGROUP GROUP g c BLOCK 0 STREAMS stream >", "XADD stream * a 1"),
    "group gone": ("XREADGROUP GROUP g c BLOCK 0 STREAMS stream >", "XGROUP DESTROY stream g"),
    "unblocked": ("BLPOP list 0", "CLIENT UNBLOCK {}"),
    "unblocked with an error": ("BLPOP list 0", "CLIENT UNBLOCK {} ERROR"),
    "replicas": ("WAIT 1 0", "CLIENT UNBLOCK {}"),
}


@pytest.mark.parametrize("scenario", WAITS)
def test_blocked_command_is_logged_when_it_is_answered(logging, scenario):
    # A machine that is busy may stand still in the very moment that is measured, but not each time.
    times = (times_of_what_has_waited(logging, *WAITS[scenario]) for _ in range(4))
    assert any(max(found) < SLEEP_US for found in times), "the time that it has waited is not its own"


def times_of_what_has_waited(logging, waits, ends):
    """The times that the slow log and INFO have for it."""
    name = waits.split(" ")[0].lower()
    with Peer(logging) as peer, Peer(logging) as waiting:
        for line in ("FLUSHALL", "XGROUP CREATE stream g $ MKSTREAM"):
            peer.line(line)
        waiting.line("CLIENT SETNAME waiter")
        number = waiting.line("CLIENT ID")
        forget(peer)
        waiting.send(*waits.split(" "))
        until_it_waits(peer, number)
        peer.line(f"DEBUG SLEEP {SLEEP_US / 1e6}")
        assert [entry for entry in slow(peer) if entry[1] == "waiter"] == []
        assert usec(peer, name) is None and not has_histogram(peer, name)
        peer.line(ends.format(number))
        waiting.read()
        [(line, _, took_us)] = [entry for entry in slow(peer) if entry[1] == "waiter"]
        assert line == waits, "the words as they were sent"
        assert has_histogram(peer, name)
        return took_us, usec(peer, name)


def test_blocked_command_is_logged_if_it_times_out_and_not_if_it_is_left(logging):
    with Peer(logging) as peer, Peer(logging) as waiting:
        forget(peer)
        assert waiting.line("BLPOP nothing 0.01") is None
        assert [line for line, *_ in slow(peer)] == ["BLPOP nothing 0.01"]
        number = waiting.line("CLIENT ID")
        waiting.send("BLPOP", "nothing", "0")
        until_it_waits(peer, number)
        waiting.close()
        until_it_has_gone(peer, number)
        assert [line for line, *_ in slow(peer)] == ["BLPOP nothing 0.01"]


def test_blocked_command_served_late_is_logged_with_its_own_time(logging):
    """Other commands of the same pipeline are logged as themselves."""
    with Peer(logging) as peer, Peer(logging) as waiting:
        number = waiting.line("CLIENT ID")
        forget(peer)
        waiting.send_all("SET a 1", "GET a", "BLPOP list 0", "GET b", "SET b 1")
        assert [waiting.read() for _ in range(2)] == ["OK", "1"]
        until_it_waits(peer, number)
        assert [line for line, *_ in slow(peer)] == ["SET a 1", "GET a"]
        peer.line("RPUSH list a")
        assert [waiting.read() for _ in range(3)] == [["list", "a"], None, "OK"]
        lines = [line for line, *_ in slow(peer)]
        assert [line for line in lines if line != "RPUSH list a"] == ["SET a 1", "GET a", "BLPOP list 0", "GET b", "SET b 1"]


def test_debug_sleep_takes_its_time(logging, logging_oracle):
    for server in (logging, logging_oracle):
        with Peer(server) as peer:
            forget(peer)
            assert peer.line("DEBUG SLEEP 0.05") == "OK"
            [(line, _, took_us)] = slow(peer)
            assert line == "DEBUG SLEEP 0.05" and took_us >= SLEEP_US
            assert usec(peer, "debug") >= SLEEP_US
            # Commands behind it may be slow, too, where the machine is busy.
            most_ms = {event: ms for event, _, _, ms in peer.line("LATENCY LATEST")}
            assert most_ms["command"] >= 50


def test_commands_of_scripts_are_logged_like_others(logging):
    text = "redis.call('set', 'a', 'b') redis.call('get', 'a') redis.pcall('get') return redis.pcall('incr', 'a')"
    with Peer(logging) as peer:
        peer.line("CLIENT SETNAME caller")
        peer.ask("SET", "text", "abc")
        peer.ask("FUNCTION", "LOAD", "REPLACE", LIBRARY)
        forget(peer)
        peer.ask("EVAL", text, 0)
        peer.ask("FCALL", "call", 0)
        lines = ["set a b", "get a", "incr a", f"EVAL {text} 0", "incr text", "FCALL call 0"]
        assert [(line, name) for line, name, _ in slow(peer)] == [(line, "caller") for line in lines]
        assert all(has_histogram(peer, name) for name in ("set", "get", "incr", "eval"))
        times = {name: usec(peer, name) for name in ("set", "get", "incr", "eval", "fcall")}
        assert times["set"] + times["get"] <= times["eval"], "a script's time is that of its commands, too"


def test_times_of_commands_in_scripts_are_counted_where_not_all_are_taken(server):
    with Peer(server) as peer:
        forget(peer)
        peer.ask("EVAL", "for i = 1, 1000 do redis.call('set', 'a', i) redis.call('get', 'a') end", 0)
        stats = peer.ask("INFO", "commandstats")
        assert "cmdstat_set:calls=1000," in stats and "cmdstat_get:calls=1000," in stats
        calls = peer.ask("LATENCY", "HISTOGRAM", "set", "get")
        assert [calls[at + 1][1] for at in (0, 2)] == [1000, 1000]


def large(peer, kind):
    entries = [(" ".join(words), value) for _, _, value, words, *_ in reversed(peer.line(f"COMMANDLOG GET -1 {kind}"))]
    return [entry for entry in entries if not entry[0].startswith(("COMMANDLOG", "CLIENT"))]


def test_large_requests_and_replies():
    long = "y" * 64
    limits = ["--commandlog-request-larger-than", "200", "--commandlog-reply-larger-than", "200"]
    with Server(*limits, "--commandlog-large-reply-max-len", LENGTH) as server:
        with Peer(server) as peer, Peer(server) as waiting:
            peer.ask("SET", "a", "x" * 300)
            peer.ask("EVAL", "redis.call('get', KEYS[1]) redis.call('set', 'b', string.rep('z', 300)) return 1", 1, "a")
            number = waiting.line("CLIENT ID")
            waiting.send("BLPOP", *[long] * 4, "list", "0")
            until_it_waits(peer, number)
            peer.ask("RPUSH", "list", "z" * 300)
            waiting.read()
            requests, replies = large(peer, "large-request"), large(peer, "large-reply")
            assert [line.split(" ")[0] for line, _ in requests[:1]] == ["SET"]
            assert sorted(line.split(" ")[0] for line, _ in requests[1:]) == ["BLPOP", "RPUSH"], "scripts' come from nowhere"
            assert [line.split(" ")[0] for line, _ in replies] == ["get", "BLPOP"]
            assert dict(requests)[f"BLPOP {' '.join([long] * 4)} list 0"] > 4 * len(long)
            assert all(value > 300 for _, value in replies)


# The logged form of requests with secrets.
SECRETS = {
    "AUTH secret": "AUTH (redacted)",
    "AUTH me secret": "AUTH (redacted) (redacted)",
    "AUTH me my secret": "AUTH (redacted) (redacted) (redacted)",
    "HELLO 2": "HELLO 2",
    "HELLO 2 SETNAME auth": "HELLO 2 SETNAME auth",
    "HELLO 2 AUTH me secret SETNAME x": "HELLO 2 AUTH (redacted) (redacted) SETNAME x",
    "HELLO 2 BY AUTH me secret": "HELLO 2 BY AUTH (redacted) (redacted)",
    "HELLO 2 AUTH secret": "HELLO 2 AUTH (redacted)",
    "CONFIG GET requirepass": "CONFIG GET requirepass",
    "CONFIG SET requirepass secret hz 10": "CONFIG SET requirepass (redacted) hz 10",
    "CONFIG SET hz 10 masterauth secret": "CONFIG SET hz 10 masterauth (redacted)",
    "CONFIG SET tls-key-file-pass secret": "CONFIG SET tls-key-file-pass (redacted)",
    "CONFIG SET requirepass my secret": "CONFIG SET requirepass (redacted) (redacted)",
    "SET requirepass secret": "SET requirepass secret",
}  # fmt: skip


def test_secrets_are_in_no_log():
    thresholds = ["--slowlog-log-slower-than", "0", "--commandlog-request-larger-than", "0"]
    with Server(*thresholds) as server:
        with Peer(server) as peer, Peer(server) as monitor:
            for request in SECRETS:
                # A password that was set holds for every new client.
                peer.line("AUTH secret")
                monitor.line("AUTH secret")
                assert monitor.line("MONITOR") == "OK"
                peer.line("SLOWLOG RESET")
                peer.line("COMMANDLOG RESET large-request")
                peer.line(request)
                peer.ask("CONFIG", "SET", "requirepass", "")
                for log in ("SLOWLOG GET -1", "COMMANDLOG GET -1 large-request"):
                    shown = [" ".join(entry[3]) for entry in peer.line(log)]
                    assert SECRETS[request] in shown, request
                peer.line("PING over")
                shown = []
                while not shown or '"over"' not in shown[-1]:
                    shown.append(monitor.read())
                words = [" ".join(re.findall(r'"([^"]*)"', line)) for line in shown if "] " in line]
                is_shown = not request.startswith("CONFIG")
                assert (SECRETS[request] in words) == is_shown, request
                monitor.line("RESET")
        with open(server.log_path) as log:
            assert "secret" not in log.read()
