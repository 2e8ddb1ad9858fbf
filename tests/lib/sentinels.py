"""A process of Redis Sentinel."""

import pathlib
import shutil
import subprocess
import tempfile

import redis

from harness import free_port
from links import until

NAME = "group"
# A server that lives is not taken for a dead one where the machine stands still.
LONG_MS = 60_000


class Sentinel:
    """One Sentinel, whose word alone counts."""

    def __init__(self, program, primary, down_after_ms=LONG_MS, failover_timeout_ms=LONG_MS):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dunlin-sentinel-"))
        self.port = free_port()
        config = self.folder / "sentinel.conf"
        lines = [
            f"port {self.port}",
            f"dir {self.folder}",
            f"sentinel monitor {NAME} 127.0.0.1 {primary.port} 1",
            f"sentinel down-after-milliseconds {NAME} {down_after_ms}",
            f"sentinel failover-timeout {NAME} {failover_timeout_ms}",
        ]
        config.write_text("\n".join(lines) + "\n")
        self.log = open(self.folder / "log", "wb")
        self.process = subprocess.Popen(
            [program, config, "--sentinel"], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log
        )
        self.client = redis.Redis(port=self.port, protocol=2, socket_timeout=30)
        self.client.response_callbacks.clear()
        until(self.answers, "a Sentinel")

    def answers(self):
        try:
            return self.client.ping()
        except redis.ConnectionError:
            return False

    def call(self, *words):
        return self.client.execute_command("SENTINEL", *words)

    def set_down_after(self, milliseconds):
        assert self.call("SET", NAME, "down-after-milliseconds", milliseconds) == b"OK"

    def primary(self):
        return int(self.call("GET-MASTER-ADDR-BY-NAME", NAME)[1])

    def replicas(self):
        found = [dict(zip(row[::2], row[1::2])) for row in self.call("REPLICAS", NAME)]
        return {int(row[b"port"]): row for row in found}

    def knows(self, *replicas):
        """Whether it has heard from these replicas of late, so that each could be chosen."""
        known = self.replicas()
        rows = [known.get(replica.port) for replica in replicas]
        return all(row and row[b"flags"] == b"slave" and row[b"master-link-status"] == b"ok" for row in rows)

    def text(self):
        return (self.folder / "log").read_text(errors="replace")[-4000:]

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            print(self.text())
        self.client.close()
        self.process.terminate()
        self.process.wait(30)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)
