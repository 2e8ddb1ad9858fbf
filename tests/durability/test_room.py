"""The room that a log under `appendfsync always` ends with: lines of `#`, written over by the next batches."""

import shutil
import subprocess

import pytest

from harness import DUNLIN, ORACLE, Server, is_redis
from log_files import LOG, Client, check, digest

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="Redis makes no room")

ROOM_BYTES_MIN = 4096
VALUES = 50


@pytest.fixture
def killed(tmp_path):
    """The directory of a server that was killed after it had acknowledged `SET n 0` … `SET n 49`, and its digest."""
    server = Server(*LOG, "--appendfsync", "always")
    try:
        client = Client(server)
        client.call("set", "long", "v" * 10000)
        for value in range(VALUES):
            assert client.call("set", "n", value) == "+OK"
        expected = digest(server)
        server.process.kill()
        server.process.wait()
        shutil.copytree(server.folder / "appendonlydir", tmp_path / "appendonlydir")
    finally:
        server.kill()
    return tmp_path, expected


def increment(files):
    return next((files / "appendonlydir").glob("*.incr.aof"))


def room(begin, end):
    return bytes(b"#\n"[at % 512 == 511] for at in range(begin, end))


def content(data):
    end = len(data.rstrip(b"#\n")) + 1
    assert len(data) - end >= ROOM_BYTES_MIN and data[end:] == room(end, len(data))
    return data[:end]


def test_log_with_room_is_read_by_every_server(killed, tmp_path):
    files, expected = killed
    found = content(increment(files).read_bytes())
    code, told = check(increment(files))
    assert code == 0 and "bytes of room" in told, told
    with Server(*LOG, "--appendfsync", "always", program=ORACLE, files=files) as server:
        assert digest(server) == expected
        # Redis goes on behind the room.
        assert Client(server).call("set", "redis", "1") == "+OK"
        beyond = tmp_path / "beyond"
        shutil.copytree(server.folder / "appendonlydir", beyond / "appendonlydir")
        now = digest(server)
    for program in (ORACLE, DUNLIN, DUNLIN):
        with Server(*LOG, "--appendfsync", "always", program=program, files=beyond) as server:
            assert digest(server) == now
            shutil.copytree(server.folder / "appendonlydir", beyond / "appendonlydir", dirs_exist_ok=True)
    tool = shutil.which("redis-check-aof")
    assert subprocess.run([tool, increment(files)], capture_output=True, timeout=30).returncode == 0
    # A server that goes on with it writes where the room was, and leaves none behind where the server
    # ends.
    with Server(*LOG, "--appendfsync", "always", "--aof-load-truncated", "no", files=files) as server:
        assert Client(server).call("set", "more", 1) == "+OK"
        now = digest(server)
        path = increment(server.folder)
        data = path.read_bytes()
        assert data.startswith(found) and content(data)
        server.process.terminate()
        assert server.process.wait(30) == 0
        data = path.read_bytes()
        assert data.startswith(found) and data.endswith(b"\r\n")
        increment(files).write_bytes(data)
    with Server(*LOG, program=ORACLE, files=files) as server:
        assert digest(server) == now


def test_log_has_room_only_if_every_write_is_synced():
    with Server(*LOG) as server:
        client = Client(server)
        client.call("set", "a", 1)
        assert client.call("waitaof", 1, 0, 0) == [1, 0]
        assert increment(server.folder).read_bytes().endswith(b"\r\n")
        assert client.call("config", "set", "appendfsync", "always") == "+OK"
        client.call("set", "a", 2)
        content(increment(server.folder).read_bytes())
        assert client.call("config", "set", "appendfsync", "everysec") == "+OK"
        client.call("set", "a", 3)
        assert client.call("waitaof", 1, 0, 0) == [1, 0]
        assert increment(server.folder).read_bytes().endswith(b"\r\n")


@pytest.mark.parametrize("lost", [slice(0, None), slice(0, 8), slice(8, 20), slice(-12, None)])
def test_batch_that_is_torn_is_cut_and_told(killed, lost):
    files, _ = killed
    data = increment(files).read_bytes()
    end = len(content(data))
    begin = data.rindex(b"*3\r\n")
    torn = bytearray(data)
    places = range(begin, end)[lost]
    torn[places.start : places.stop] = room(places.start, places.stop)
    increment(files).write_bytes(torn)
    is_told = len(places) < end - begin
    code, told = check(increment(files))
    assert code == int(is_told) and ("the last batch is torn" in told) == is_told, told
    if is_told:
        with pytest.raises(AssertionError, match="is damaged at byte"):
            Server(*LOG, "--aof-load-truncated", "no", files=files)
    with Server(*LOG, files=files) as server:
        client = Client(server)
        assert client.call("get", "n") == str(VALUES - 2)
        assert (f"from byte {begin} on were cut off" in server.log()) == is_told
        assert client.call("set", "n", "on") == "+OK"
        assert client.call("debug", "loadaof") == "+OK"
        assert client.call("get", "n") == "on"
    if is_told:
        code, told = check("--fix", "--yes", increment(files))
        assert code == 0 and f"cut at byte {begin}" in told, told
        assert check(increment(files))[0] == 0


def test_damage_before_the_last_batch_is_refused(killed):
    files, _ = killed
    data = bytearray(increment(files).read_bytes())
    data[data.index(b"$2\r\n25\r\n") + 4] ^= 1
    data[len(content(data)) - 10] ^= 1
    increment(files).write_bytes(data)
    with pytest.raises(AssertionError, match="is damaged at byte"):
        Server(*LOG, files=files)
    assert increment(files).read_bytes() == data
