"""HOTKEYS: sessions, their counts, and the words of Redis 8.6, which neither redis-server 7.0 nor Valkey knows."""

import pytest

from harness import DUNLIN, is_redis
from peer import Failure, Peer
from wire import command

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="Redis has it from 8.6 on")

FIELDS = """tracking-active sample-ratio selected-slots all-commands-all-slots-us net-bytes-all-commands-all-slots
collection-start-time-unix-ms collection-duration-ms total-cpu-time-user-ms total-cpu-time-sys-ms total-net-bytes
by-cpu-time-us by-net-bytes""".split()


@pytest.fixture
def client(server):
    with Peer(server, 3) as client:
        client.line("HOTKEYS STOP")
        assert client.line("HOTKEYS RESET") == "OK"
        yield client
        client.line("HOTKEYS STOP")


def collected(client):
    [told] = client.line("HOTKEYS GET")
    return told


def ranking(told, name):
    pairs = told[name]
    return list(zip(pairs[::2], pairs[1::2]))


def test_hotkeys_session_begins_ends_and_is_forgotten(client):
    assert client.line("HOTKEYS GET") is None
    assert client.line("HOTKEYS STOP") is None
    assert client.line("HOTKEYS START METRICS 2 CPU NET COUNT 3 SAMPLE 1") == "OK"
    assert client.line("HOTKEYS START METRICS 1 CPU") == Failure("ERR hotkey tracking session already in progress")
    assert client.line("HOTKEYS RESET") == Failure("ERR hotkey tracking session in progress, stop tracking first")
    client.line("SET k v")
    told = collected(client)
    assert list(told) == FIELDS
    assert (told["tracking-active"], told["sample-ratio"], told["selected-slots"]) == (1, 1, [[0, 16383]])
    assert told["all-commands-all-slots-us"] > 0
    assert [key for key, _ in ranking(told, "by-cpu-time-us")] == ["k"]
    assert client.line("HOTKEYS STOP") == "OK"
    client.line("SET k v")
    ended = collected(client)
    assert (ended["tracking-active"], ended["by-net-bytes"]) == (0, told["by-net-bytes"])
    assert client.line("HOTKEYS RESET") == "OK"
    assert client.line("HOTKEYS GET") is None


def test_bytes_are_those_of_requests_and_replies_on_all_connections(server, client):
    assert client.line("HOTKEYS START METRICS 1 NET COUNT 2") == "OK"
    small = len(command("SET", "small", "v") + b"+OK\r\n")
    large = len(command("SET", "large", "v" * 1000) + b"+OK\r\n")
    for _ in range(4):
        with Peer(server) as other:
            other.line("PING")
            other.send_all("SET small v", "SET small v", "SET large " + "v" * 1000)
            assert [other.read() for _ in range(3)] == ["OK"] * 3
    both = len(command("MSET", "small", 1, "third", 2) + b"+OK\r\n")
    client.line("MSET small 1 third 2")
    told = collected(client)
    assert list(told) == [field for field in FIELDS if "cpu" not in field]
    assert ranking(told, "by-net-bytes") == [("large", 4 * large), ("small", 8 * small + both // 2)]
    assert told["net-bytes-all-commands-all-slots"] == 8 * small + 4 * large + both
    assert told["total-net-bytes"] == 8 * small + 4 * large + both // 2 * 2


def test_commands_of_transactions_count_one_by_one_and_scripts_as_a_whole(client):
    assert client.line("HOTKEYS START METRICS 1 CPU") == "OK"
    client.send_all("MULTI", "INCR n", "RPUSH l 1 2 3", "EXEC")
    client.read(), client.read(), client.read()
    assert client.read() == [1, 3]
    assert client.ask("EVAL", "redis.call('SET', KEYS[1], 'v') return redis.call('GET', 'n')", 1, "script") == "1"
    told = collected(client)
    assert {key for key, _ in ranking(told, "by-cpu-time-us")} == {"n", "l", "script"}
    client.line("DEL n l")


def test_hotkeys_session_ends_by_itself(client):
    assert client.line("HOTKEYS START METRICS 1 CPU DURATION 1") == "OK"
    while (told := collected(client))["tracking-active"]:
        client.line("SET k v")
    assert told["collection-duration-ms"] == 1000
    assert client.line("HOTKEYS STOP") is None
    before = ranking(told, "by-cpu-time-us")
    client.line("SET k v")
    assert ranking(collected(client), "by-cpu-time-us") == before
    assert client.line("HOTKEYS START METRICS 1 CPU") == "OK", "in the place of the one that has ended"


@pytest.mark.parametrize(
    "words, error",
    [
        ("", "METRICS parameter is required"),
        ("COUNT 5", "METRICS parameter is required"),
        ("METRICS", "METRICS parameter is required"),
        ("METRICS x CPU", "METRICS count must be > 0 and <= 2"),
        ("METRICS 0 CPU", "METRICS count must be > 0 and <= 2"),
        ("METRICS 3 CPU NET CPU", "METRICS count must be > 0 and <= 2"),
        ("METRICS 2 CPU", "METRICS count does not match number of metric types provided"),
        ("METRICS 2 CPU cpu", "METRICS CPU defined more than once!"),
        ("METRICS 2 NET net", "METRICS NET defined more than once!"),
        ("METRICS 1 DISK", "METRICS no valid metrics passed. Supported: CPU|NET"),
        ("METRICS 1 CPU NET", "syntax error"),
        ("METRICS 1 CPU COUNT", "syntax error"),
        ("METRICS 1 CPU COUNT 0", "COUNT must be between 1 and 64"),
        ("METRICS 1 CPU COUNT 65", "COUNT must be between 1 and 64"),
        ("METRICS 1 CPU DURATION 0", "DURATION must be between 1 and 1000000"),
        ("METRICS 1 CPU DURATION x", "DURATION must be between 1 and 1000000"),
        ("METRICS 1 CPU SAMPLE 0", "SAMPLE ratio must be positive"),
        ("METRICS 1 CPU SAMPLE 2147483648", "SAMPLE ratio must be positive"),
        ("METRICS 1 CPU SLOTS 1 5", "SLOTS parameter cannot be used in non-cluster mode"),
    ],
)
def test_mistakes(client, words, error):
    assert client.line(f"HOTKEYS START {words}".rstrip()) == Failure(f"ERR {error}")
    assert client.line("HOTKEYS GET") is None


def test_words_behind_a_whole_command(client):
    for name in ("stop", "get", "reset"):
        error = f"ERR wrong number of arguments for 'hotkeys|{name}' command"
        assert client.line(f"HOTKEYS {name} now") == Failure(error)
    assert any("METRICS" in line for line in client.line("HOTKEYS HELP"))


def test_info_has_a_section_while_there_is_a_session(server, client):
    def section(*words):
        lines = client.ask("INFO", *words).removeprefix("txt:").split("\r\n")
        return dict(line.split(":", 1) for line in lines if ":" in line) if "# Hotkeys" in lines else None

    assert section("hotkeys") is None and section() is None
    assert client.line("HOTKEYS START METRICS 2 CPU NET") == "OK"
    client.line("SET k v")
    told = section("hotkeys")
    assert list(told) == ["tracking-active", "used-memory", "cpu-time"]
    assert told["tracking-active"] == "1" and int(told["used-memory"]) > 100
    assert section()["tracking-active"] == "1"
    assert client.line("HOTKEYS STOP") == "OK"
    assert section("hotkeys")["tracking-active"] == "0"
