"""A disk that fails, and servers on it that are killed at a change of a file (durability/faults.c)."""

import contextlib
import os
import subprocess
import threading
import time

import pytest

from harness import ROOT, Server
from log_files import Client

LOG = ("--appendonly", "yes", "--auto-aof-rewrite-percentage", "0", "--enable-debug-command", "yes")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("faults") / "faults.so"
    source = ROOT / "tests" / "durability" / "faults.c"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", path, source, "-ldl", "-lpthread"], check=True)
    return path


class Disk:
    """The directory of a server, and the faults of its disk."""

    def __init__(self, library, folder):
        self.library, self.data = library, folder / "data"
        self.control, self.marker = folder / "control", folder / "marker"
        self.data.mkdir()

    def environment(self, **more):
        names = {"DIRECTORY": self.data, "CONTROL": self.control, "MARKER": self.marker, **more}
        return {"LD_PRELOAD": str(self.library), **{f"FAULTS_{name}": str(value) for name, value in names.items()}}

    def server(self, *directives, **more):
        return Server(*LOG, "--dir", self.data, *directives, environment=self.environment(**more))

    def fail(self, *faults):
        self.marker.unlink(missing_ok=True)
        beside = self.control.with_suffix(".new")
        beside.write_text("".join(f"{call} {number} {part}\n" for call, number, part in faults))
        os.replace(beside, self.control)

    def mend(self):
        self.control.unlink()


@pytest.fixture
def disk(library, tmp_path):
    return Disk(library, tmp_path)


class Mortal:
    """A server that is killed in its test."""

    def __init__(self, server):
        self.server = server

    def kill(self):
        self.server.process.kill()
        self.server.process.wait()
        assert "panicked at" not in self.server.log()

    def close(self):
        self.server.kill()


def await_that(is_so):
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def failing(client):
    return "aof_last_write_status:err" in client.call("info", "persistence")


ERRORS = {"EIO": (5, "Input/output error"), "ENOSPC": (28, "No space left on device")}


class Writer(threading.Thread):
    """Counts upwards under a key of its own as long as it is acknowledged; waits for a reply however long that takes."""

    def __init__(self, server, number):
        super().__init__(daemon=True)
        self.client, self.key = Client(server), f"n:{number}"
        self.client.socket.settimeout(None)
        self.sent = self.acknowledged = 0
        self.refusal, self.ending = None, False

    def run(self):
        while not self.ending:
            self.sent += 1
            try:
                reply = self.client.call("set", self.key, self.sent)
            except (OSError, ValueError, AssertionError):
                return
            if reply != "+OK":
                self.refusal = reply
                return
            self.acknowledged = self.sent


@contextlib.contextmanager
def load(server, count=4):
    writers = [Writer(server, number) for number in range(count)]
    for writer in writers:
        writer.start()
    await_that(lambda: all(writer.acknowledged > 20 for writer in writers))
    yield writers
    for writer in writers:
        writer.ending = True
        with contextlib.suppress(OSError):
            writer.client.socket.shutdown(2)
        writer.join(30)


def counts(writers):
    return [writer.acknowledged for writer in writers]
