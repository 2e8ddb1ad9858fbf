"""SYNC without a word about what the other side understands: the snapshot's length stands in front, as before Redis 2.8.18."""

import subprocess

import pytest
import redis

from harness import DUNLIN, Server, is_redis


@pytest.mark.skipif(is_redis(DUNLIN), reason="a file that dunlin checks")
def test_sync_without_eof_sends_the_length_first(tmp_path):
    with Server() as server:
        client = redis.Redis(port=server.port)
        for number in range(1000):
            client.set(f"key:{number}", "v" * number)
        stream = server.connect().makefile("rwb")
        stream.write(b"SYNC\r\n")
        stream.flush()
        line = stream.readline()
        while line == b"\n":
            line = stream.readline()
        assert line.startswith(b"$") and line[1:-2].isdigit(), line
        snapshot = tmp_path / "snapshot.rdb"
        snapshot.write_bytes(stream.read(int(line[1:-2])))
        done = subprocess.run([DUNLIN, "check", snapshot], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0 and "1000" in done.stdout, done.stdout
        # The stream goes on where the snapshot ends, and nothing is left in the directory.
        client.set("after", "it")
        found = b""
        while b"after" not in found:
            found += stream.readline()
        assert not list(server.folder.glob("temp-sync-*"))
        stream.close()
