"""Data that a killed lab leaves in a server are erased by the next, and nothing else is."""

import signal
import subprocess
import time

import pytest
import redis

from harness import DUNLIN, LAB, ORACLE, Server, is_redis

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="the lab is a part of dunlin")

TINY = ["--scale", "0.0002", "--rounds", "1", "--seed", "1", "--without-dunlin"]
LONG = ["--scale", "0.01", "--rounds", "100", "--seed", "1", "--without-dunlin"]
DEADLINE_S = 60


def lab(*arguments):
    done = subprocess.run([LAB, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


class Running:
    """A lab at work in a database that has keys by now; killed in the end."""

    def __init__(self, store, experiment, target, folder):
        command = [LAB, experiment, *LONG, "--target", target, "--out", str(folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + DEADLINE_S
        while store.dbsize() < 20:
            assert self.process.poll() is None, "it ended by itself"
            assert time.monotonic() < deadline, "it writes nothing"
            time.sleep(0.005)

        self.store = store

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        # Commands that it had sent are still carried out.
        deadline = time.monotonic() + DEADLINE_S
        while len(self.store.client_list()) > 1:
            assert time.monotonic() < deadline, "the server keeps its connections"
            time.sleep(0.005)


@pytest.fixture(params=[DUNLIN, ORACLE], ids=["dunlin", "redis"], scope="module")
def store(request):
    """Database 3 of a server."""
    with Server(program=request.param) as server:
        with redis.Redis(port=server.port, db=3) as store:
            store.url = f"redis://127.0.0.1:{server.port}/3"
            yield store


@pytest.mark.parametrize("experiment", ["pipelining", "round-trips", "fan-pages", "autocomplete", "ycsb"])
def test_lab_erases_what_a_killed_run_left_and_says_so(store, experiment, tmp_path):
    target = f"mine={store.url}"
    with Running(store, experiment, target, tmp_path):
        pass
    left = store.dbsize()
    assert left > 0
    code, text = lab("pings", *TINY, "--target", target, "--out", tmp_path)
    assert code == 0, text
    assert f"mine: erased {left} keys that a lab had left which was killed" in text, text
    assert "which was killed" in (tmp_path / "report.md").read_text()
    assert store.dbsize() == 0
    if store.info("server").get("redis_version", "").startswith("7"):
        assert store.function_list() == []


def test_keys_that_came_later_are_somebodys(store, tmp_path):
    target = f"mine={store.url}"
    with Running(store, "pipelining", target, tmp_path):
        pass
    store.set("precious", 1)
    before = store.dbsize()
    code, text = lab("pings", *TINY, "--target", target, "--out", tmp_path)
    assert code == 1 and '"precious" (8 bytes) is not one of them: nothing was erased' in text, text
    assert store.dbsize() == before
    store.flushdb()


def test_lab_at_work_is_not_disturbed(store, tmp_path):
    target = f"mine={store.url}"
    with Running(store, "pipelining", target, tmp_path) as running:
        code, text = lab("pings", *TINY, "--target", target, "--out", tmp_path)
        assert code == 1 and "mine: another lab is at work in it" in text, text
        # It empties the database for its next part, and fills it again.
        deadline = time.monotonic() + DEADLINE_S
        while store.dbsize() <= 20:
            assert time.monotonic() < deadline, "its keys are gone"
            time.sleep(0.005)
        assert running.process.poll() is None
    store.flushdb()


def test_database_may_be_two_columns(store, tmp_path):
    targets = ["--target", f"one={store.url}", "--target", f"other={store.url}"]
    code, text = lab("pipelining", "round-trips", *TINY, *targets, "--out", tmp_path)
    assert code == 0, text
    assert store.dbsize() == 0


def test_mark_of_another_program_is_an_ordinary_key(store, tmp_path):
    store.set("lab:mark", "mine")
    code, text = lab("pings", *TINY, "--target", f"mine={store.url}", "--out", tmp_path)
    assert code == 1 and "mine: holds 1 keys" in text, text
    assert store.get("lab:mark") == b"mine"
    store.flushdb()
