"""Real traffic, recorded through MONITOR and sent to another server, leaves the same data behind."""

import subprocess
import time

import pytest
import redis

from harness import DUNLIN, Server, is_redis

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="the recorder is a part of dunlin")

WRITES = 200


def work(store, name):
    """Some of everything: binary values, transactions, another database."""
    for number in range(WRITES):
        store.set(f"{name}:{number}", bytes(range(256)))
    with store.pipeline(transaction=True) as transaction:
        transaction.incr(f"{name}:counter").incr(f"{name}:counter")
        transaction.execute()
    store.set(f"{name}:quoted", "\r\n\"quoted\" \\")
    store.lpush(f"{name}:list", *range(50))


def digest(server):
    with redis.Redis(port=server.port) as store:
        return store.execute_command("DEBUG", "DIGEST")


@pytest.mark.parametrize("speed", ["max", "20"])
def test_replay_repeats_a_recording(tmp_path, speed):
    path = tmp_path / "traffic.txt"
    with Server("--enable-debug-command", "yes") as origin, Server("--enable-debug-command", "yes") as copy:
        url = f"redis://127.0.0.1:{origin.port}"
        recorder = subprocess.Popen(
            [DUNLIN, "bench", "record", "-u", url, path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            stores = [redis.Redis(port=origin.port, db=database) for database in (0, 1)]
            # The first command in the recording shows that the recorder watches.
            while not (path.exists() and "ready" in path.read_text(errors="replace")):
                stores[0].get("ready")
                assert recorder.poll() is None, recorder.stdout.read()
                time.sleep(0.01)
            for number, store in enumerate(stores):
                work(store, f"client{number}")
            stores[0].echo("the end")
            while "the end" not in path.read_text(errors="replace"):
                assert recorder.poll() is None
                time.sleep(0.01)
        finally:
            recorder.kill()
            recorder.wait()
        assert path.stat().st_mode & 0o077 == 0, "others may read the recording"
        replay = [DUNLIN, "bench", "replay", "-u", f"redis://127.0.0.1:{copy.port}", "--speed", speed, path]
        done = subprocess.run(replay, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "over 2 connections" in done.stdout, done.stdout
        assert digest(copy) == digest(origin)


def test_monitor_shows_scripts_and_what_they_call(server):
    with redis.Redis(port=server.port) as store, store.monitor() as monitor:
        store.eval("redis.call('incr', KEYS[1]) return redis.call('get', KEYS[1])", 1, "k")
        store.echo("the end")
        # The new connection introduces itself first.
        shown = [monitor.next_command()]
        while not shown[0]["command"].upper().startswith("EVAL"):
            shown[0] = monitor.next_command()
        shown += [monitor.next_command() for _ in range(3)]
        assert [line["command"].split()[0].lower() for line in shown] == ["eval", "incr", "get", "echo"]
        assert [line["client_type"] for line in shown] == ["tcp", "lua", "lua", "tcp"]


def test_errors_fail_a_replay_and_are_named(tmp_path, server):
    path = tmp_path / "traffic.txt"
    path.write_text('1.000000 [0 a:1] "SET" "traffic:k" "x"\n1.000100 [0 a:1] "INCR" "traffic:k"\n')
    command = [DUNLIN, "bench", "replay", "-u", f"redis://127.0.0.1:{server.port}", path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "1 × ERR value is not an integer" in done.stdout, done.stdout + done.stderr
    done = subprocess.run([*command, "--allow-errors"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
