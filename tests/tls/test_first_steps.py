"""The first steps of docs/security.md, as they stand there."""

import re
import shlex
import socket
import subprocess

import pytest
from harness import DUNLIN, ROOT, free_port
from peers import files  # noqa: F401  (it finds the module `wire`)
from wire import eventually

pytestmark = pytest.mark.skipif("redis" in DUNLIN, reason="the page is about this server")


def test_first_steps_give_what_the_page_says(tmp_path):
    page = (ROOT / "docs" / "security.md").read_text()
    steps = page.split("## First steps")[1].split("\n## ")[0]
    blocks = re.findall(r"```(\w+)\n(.*?)```", steps, re.S)
    assert [kind for kind, _ in blocks] == ["sh", "acl", "sh", "sh"]
    (_, certificates), (_, users), (_, start), (_, calls) = blocks
    port = free_port()
    for line in certificates.splitlines():
        done = subprocess.run(shlex.split(line), cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    (tmp_path / "users.acl").write_text(users)
    words = shlex.split(start.replace("6379", str(port)))
    with open(tmp_path / "log", "wb") as log:
        server = subprocess.Popen([DUNLIN, *words[1:]], cwd=tmp_path, stdout=log, stderr=log)
    try:
        eventually(lambda: is_listening(port), "the server listens")
        lines = calls.splitlines()
        assert lines
        for call, answer in zip(lines[::2], lines[1::2], strict=True):
            # As at a terminal.
            words = [call.split()[0], "--no-raw", *shlex.split(call.replace("6379", str(port)))[1:]]
            done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
            assert "# " + done.stdout.strip() == answer, done.stderr
        stranger = [word for word in words if word not in ("--cert", "app.crt", "--key", "app.key")]
        subprocess.run(stranger, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        eventually(lambda: "TLS: closing client" in (tmp_path / "log").read_text(), "the reason is in the log")
        assert "the peer shows no certificate" in (tmp_path / "log").read_text()
    finally:
        server.terminate()
        assert server.wait(60) == 0


def is_listening(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=60).close()
        return True
    except ConnectionError:
        return False
