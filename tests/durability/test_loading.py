"""While the data set is being loaded: the replies to clients, and how it ends.

The snapshot comes through a pipe, so that loading is as far as the test has let it come.
"""

import os
import signal
import time

import pytest

from harness import DUNLIN, Server, is_redis
from log_files import Client, Piped

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="Redis does not load from a pipe")

KEYS = 5000


@pytest.fixture(scope="module")
def snapshot():
    with Server("--enable-debug-command", "yes") as server:
        client = Client(server)
        client.call("debug", "populate", KEYS)
        client.call("function", "load", "#!lua name=l\nredis.register_function('f', function() return 7 end)")
        assert client.call("save") == "+OK"
        return (server.folder / "dump.rdb").read_bytes()


def await_line(client, *words, text):
    deadline = time.monotonic() + 30
    while text not in str(client.call(*words)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_clients_are_told_that_it_is_loading_until_it_is_done(snapshot):
    with Piped() as server:
        client = server.client()
        half = len(snapshot) // 2
        server.pipe.write(snapshot[:half])
        for words in (["ping"], ["get", "key:1"], ["set", "a", 1], ["dbsize"], ["eval", "return 1", 0], ["fcall", "f", 0], ["save"]):
            assert client.call(*words) == "-LOADING Redis is loading the dataset in memory", words
        assert client.call("hello", 2)[:2] == ["server", "redis"]
        info = client.call("info", "persistence")
        assert "loading:1" in info and "loading_loaded_perc:" in info and "loading_eta_seconds:" in info
        server.pipe.write(snapshot[half:])
        server.pipe.close()
        await_line(client, "dbsize", text=str(KEYS))
        assert client.call("get", "key:4999") == "value:4999"
        assert client.call("fcall", "f", 0) == 7
        info = client.call("info", "persistence")
        assert "loading:0" in info and f"rdb_last_load_keys_loaded:{KEYS}" in info


def test_damaged_file_ends_the_server_with_a_line(snapshot):
    with Piped() as server:
        client = server.client()
        assert "loading:1" in client.call("info", "persistence")
        server.pipe.write(snapshot[: len(snapshot) // 2])
        server.pipe.close()
        assert server.process.wait(30) == 1
        server.output.seek(0)
        assert "cannot load" in server.output.read().decode()


@pytest.mark.parametrize("words", [None, ["shutdown"], ["shutdown", "save"]])
def test_shutdown_while_loading_does_not_wait_and_saves_nothing(words, snapshot):
    with Piped() as server:
        client = server.client()
        assert "loading:1" in client.call("info", "persistence")
        if words is None:
            server.process.send_signal(signal.SIGTERM)
        else:
            client.send(*words)
        server.output.seek(0)
        deadline = time.monotonic() + 30
        while words is None and "shutting down" not in open(server.output.name, errors="replace").read():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        try:
            server.pipe.write(snapshot)
        except BrokenPipeError:
            pass
        server.pipe.close()
        assert server.process.wait(30) == 0
        assert os.path.exists(os.path.join(server.folder, "dump.rdb"))
