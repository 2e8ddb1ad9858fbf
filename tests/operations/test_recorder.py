"""The flight recorder: RECORDER, and what is left after a restart."""

import time

import pytest
import redis

from harness import Server
from web import eventually


def connect(server):
    return redis.Redis(port=server.port, decode_responses=True, socket_timeout=60)


def now():
    return int(time.time())


def test_recorder_keeps_seconds_and_says_why():
    with Server("--enable-debug-command", "yes") as server:
        client = connect(server)
        begun = now()
        client.execute_command("CLIENT", "SETNAME", "sleeper")
        client.execute_command("DEBUG", "SLEEP", "0.3")
        found = lambda: client.execute_command("RECORDER", "RANGE", begun, now() + 1, "FIELDS", "commands", "worst", "worst_command")
        eventually(lambda: any(sample[3] == "debug|sleep" or sample[3] == "debug" for sample in found()[1]))
        step, samples = found()
        assert step == 1
        slow = max(samples, key=lambda sample: sample[2])
        assert 3_000_000 <= slow[2] < 60_000_000, "tenths of a microsecond"
        why = "\n".join(client.execute_command("RECORDER", "WHY"))
        assert "slower than usual" not in why and "No command ran in the ten minutes before, to compare with." in why
        assert "DEBUG SLEEP 0.3 took" in why and "name sleeper, user default" in why
        at = client.execute_command("RECORDER", "WHY", "AT", slow[0])
        assert "DEBUG SLEEP 0.3 took" in "\n".join(at)
        kinds = {kind for _, kind, _ in client.execute_command("RECORDER", "EVENTS", 0, now() + 1)}
        assert {"server", "slow-command"} <= kinds


def test_recorder_counts_what_scripts_call_apart_from_requests():
    with Server() as server:
        client = connect(server)
        begun = now()
        client.eval("for number = 1, 200000 do redis.call('ping') end", 0)
        names = ["seconds", "commands", "calls", "p50"]
        found = lambda: client.execute_command("RECORDER", "RANGE", begun, now() + 1, "FIELDS", *names)[1]  # noqa: E731
        eventually(lambda: sum(sample[3] for sample in found()) == 200_000)
        samples = found()
        assert all(sample[1] == 1 for sample in samples)
        assert all(sample[2] < 10_000 for sample in samples), "a call is no request"
        slow = next(sample for sample in samples if sample[3] > 0)
        lines = client.execute_command("RECORDER", "WHY", "AT", slow[0])
        assert "scripts called 200,000 more" in lines[0]
        # Its time is that of the script, which is named instead.
        assert not any(line.startswith("ping took") for line in lines), lines


def test_recorder_notes_what_happens():
    with Server() as server:
        client = connect(server)
        # The first look has nothing to compare with.
        eventually(lambda: client.execute_command("RECORDER", "RANGE", 0, now() + 1)[1])
        client.config_set("maxmemory", "100mb")
        client.config_set("requirepass", "hush")
        client.execute_command("AUTH", "hush")
        client.flushall()
        client.execute_command("ACL", "SETUSER", "somebody")
        client.save()
        wanted = ["maxmemory changed from", "requirepass changed", "FLUSHALL", "users were changed", "snapshot"]
        events = lambda: "\n".join(text for *_, text in client.execute_command("RECORDER", "EVENTS", 0, now() + 1))
        eventually(lambda: all(word in events() for word in wanted))
        assert "hush" not in events()


def test_recorder_knows_the_hot_key_of_a_second():
    with Server() as server, server.connect() as busy:
        client = connect(server)
        begun = now()
        keys = [b"hot\nkey" if number % 4 else b"cold:%d" % number for number in range(20)]
        request = b"".join(b"*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n" % (len(key), key) for key in keys)
        replies = len(b"$-1\r\n") * len(keys)

        def found():
            # Turn by turn, since the keys of some turns are looked at: one of 127, and ten in a second, on a slow machine, too.
            for _ in range(1000):
                busy.sendall(request)
                missing = replies
                while missing:
                    missing -= len(busy.recv(missing))
            return client.execute_command("RECORDER", "KEYS", begun, now() + 1)

        eventually(found)
        second, key, share = found()[0]
        assert begun <= second <= now() and key == "hot\\nkey" and 500 < share <= 1000
        assert "One key, hot\\nkey, got " in "\n".join(client.execute_command("RECORDER", "WHY", "AT", second))
        events = client.execute_command("RECORDER", "EVENTS", begun, now() + 1)
        [event] = [text for _, kind, text in events if kind == "hot-key"]
        assert "one key, hot\\nkey, got" in event and event.endswith("% of the commands on keys")
        with pytest.raises(redis.ResponseError, match="times are seconds since 1970"):
            client.execute_command("RECORDER", "KEYS", "x", 2)


def test_recorder_survives_a_restart(tmp_path):
    # A file that is not there is made only after a minute.
    (tmp_path / "recorder.dunlin").touch()
    # Before the event that the server has started, in which second that may be.
    begun = now()
    with Server("--appendonly", "yes", "--dir", tmp_path) as server:
        client = connect(server)
        eventually(lambda: len(client.execute_command("RECORDER", "RANGE", begun, now() + 1)[1]) >= 2)
    assert (tmp_path / "recorder.dunlin").stat().st_size < 8 << 20
    with Server("--appendonly", "yes", "--dir", tmp_path) as server:
        client = connect(server)
        events = [text for *_, text in client.execute_command("RECORDER", "EVENTS", begun, now() + 1)]
        assert [text for text in events if "the server" in text] == [
            "the server started, version 0.1.0",
            "the server ended",
            "the server started, version 0.1.0",
        ]
        assert len(client.execute_command("RECORDER", "RANGE", begun, now() + 1)[1]) >= 2


def test_recorder_file_of_other_bytes_is_replaced_and_one_that_cannot_be_written_does_no_harm(tmp_path):
    (tmp_path / "recorder.dunlin").write_bytes(b"not a recorder" * 1000)
    with Server("--appendonly", "yes", "--dir", tmp_path) as server:
        assert connect(server).ping()
    assert (tmp_path / "recorder.dunlin").read_bytes().startswith(b"DUNLIN-R")
    (tmp_path / "recorder.dunlin").unlink()
    (tmp_path / "recorder.dunlin").mkdir()
    with Server("--appendonly", "yes", "--dir", tmp_path) as server:
        assert connect(server).set("k", "v")


def test_recorder_file_is_there_only_beside_a_data_set():
    server = Server()
    try:
        client = connect(server)
        eventually(lambda: client.execute_command("RECORDER", "RANGE", 0, now() + 1)[1])
        client.shutdown(nosave=True)
        assert server.process.wait(60) == 0
        assert not (server.folder / "recorder.dunlin").exists()
    finally:
        server.kill()


@pytest.mark.parametrize(
    "words, error",
    [
        ("RANGE", "wrong number of arguments"),
        ("RANGE 1", "wrong number of arguments"),
        ("RANGE x 2", "times are seconds since 1970"),
        ("RANGE -1 2", "times are seconds since 1970"),
        ("RANGE 1 99999999999", "times are seconds since 1970"),
        ("RANGE 1 2 POINTS 0", "POINTS is 1 to 10000"),
        ("RANGE 1 2 FIELDS nothing", "There is no figure 'nothing'"),
        ("RANGE 1 2 AND", "syntax error"),
        ("EVENTS 1 2 COUNT 0", "COUNT is 1 or more"),
        ("EVENTS 1 2 3", "syntax error"),
        ("WHY AT", "a time is"),
        ("WHY AT 25:00", "a time is"),
        ("WHY AT 2999-01-01T00:00", "a time is"),
        ("WHY AT 2100-01-01T00:00", "that time is yet to come"),
        ("WHY NOW", "syntax error"),
        ("NOTHING", "unknown subcommand"),
    ],
)
def test_recorder_refuses_what_it_does_not_understand(server, words, error):
    with pytest.raises(redis.ResponseError, match=f"(?i){error}"):
        connect(server).execute_command("RECORDER", *words.split())


def test_recorder_answers_any_span(server):
    client = connect(server)
    assert client.execute_command("RECORDER", "RANGE", 5, 3) == [300, []] or client.execute_command("RECORDER", "RANGE", 5, 3)[1] == []
    assert client.execute_command("RECORDER", "RANGE", 0, 2**32 - 1, "POINTS", 1)[1] is not None
    names = [name for name, *_ in client.execute_command("RECORDER", "FIELDS")]
    assert len(names) == len(set(names)) >= 40
    assert client.execute_command("RECORDER", "WHY", "AT", "2001-01-01T00:00")[0].startswith("Nothing was recorded")
    assert client.execute_command("RECORDER", "HELP")
