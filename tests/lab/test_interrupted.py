"""However the lab or a comparison ends, the servers that it has started end with it."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from harness import DUNLIN, LAB, ORACLE, is_redis

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="the lab is a part of dunlin")

DEADLINE_S = 60
COMMANDS = {
    "lab": [LAB, "--dunlin", DUNLIN, "compaction", "--scale", "1", "--rounds", "1", "--peer", f"redis-server={shutil.which(ORACLE)}"],
    "compare": [DUNLIN, "bench", "compare", "--rows", "get-tcp-1"],
}


def servers_of(process):
    """Servers that it has started: children that listen on a port. (Others only say their version.)"""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                listens = b"\0--port\0" in (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if int(fields[1]) == process.pid and listens:
                found.append(int(entry.name))
    return found


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def eventually(condition):
    deadline = time.monotonic() + DEADLINE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)
    return value


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_lab_leaves_no_server_behind(name, sent, tmp_path):
    # Paths of sockets have to be short, and those of pytest are not.
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="dunlin-test-"))
    said = tmp_path / "said"
    with said.open("w") as output:
        process = subprocess.Popen(
            [*COMMANDS[name], "--out", tmp_path / "report"],
            stdout=output, stderr=output, env={**os.environ, "TMPDIR": str(scratch)},
        )  # fmt: skip
    servers = []
    try:
        servers = eventually(lambda: servers_of(process) or process.poll() is not None and [0])
        assert servers != [0], f"it ended by itself with {process.returncode}: {said.read_text()}"
        process.send_signal(sent)
        assert process.wait(DEADLINE_S) == -sent
        eventually(lambda: not any(map(is_alive, servers)))
        if sent != signal.SIGKILL:
            assert list(scratch.iterdir()) == [], "files were left behind"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(scratch, ignore_errors=True)
        for pid in filter(is_alive, servers):
            if pid:
                os.kill(pid, signal.SIGKILL)
