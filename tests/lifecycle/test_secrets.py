"""Secrets that a server is given show up nowhere: not in its command line, its log, INFO, or what it says of mistakes."""

import pathlib
import resource

import pytest
from harness import Server

SECRETS = ["hush-of-default", "hush-of-primary", "hush-of-alice"]


def test_command_line_hides_secrets():
    given = ["--requirepass", SECRETS[0], "--masterauth", SECRETS[1], "--hz", "7", "--user", "alice", "on", f">{SECRETS[2]}"]

    with Server(*given) as server:
        shown = pathlib.Path(f"/proc/{server.process.pid}/cmdline").read_bytes().decode()
        assert "--requirepass\0" in shown and "--hz\0007\0" in shown
        for secret in SECRETS:
            assert secret not in shown
            assert secret not in server.log()
        with server.connect() as client:
            client.sendall(f"AUTH {SECRETS[0]}\r\n".encode())
            assert client.recv(64) == b"+OK\r\n", "it is known all the same"
            client.sendall(b"INFO everything\r\n")
            text = b""
            while not text.endswith(b"\r\n") or len(text) < 5000:
                text += client.recv(1 << 16)
            assert not any(secret.encode() in text for secret in SECRETS)


@pytest.mark.parametrize("wanted", [False, True])
def test_core_files_are_off_unless_wanted(wanted):
    with Server(*(["--core-files", "yes"] if wanted else [])) as server:
        soft, hard = resource.prlimit(server.process.pid, resource.RLIMIT_CORE)
        assert (soft == 0) or wanted
        assert hard == resource.getrlimit(resource.RLIMIT_CORE)[1]
        if wanted:
            assert soft == resource.getrlimit(resource.RLIMIT_CORE)[0]


def test_open_server_warning_knows_the_default_user():
    warning = "Every host that reaches this one is let in as the default user"
    given = ["--protected-mode", "no", "--bind", "0.0.0.0"]
    with Server(*given) as server:
        assert warning in server.log()
    with Server(config="user default on >secret ~* &* +@all\n" + "protected-mode no\n") as server:
        assert warning not in server.log()
