"""A disk that fails, and servers on it that are killed at a change of a file (durability/faults.c)."""

import os
import subprocess
import time

import pytest

from harness import ROOT, Server

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
