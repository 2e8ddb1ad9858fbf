"""The audit log: what it has, what it never has, and what happens while it cannot be written."""

import json
import os
import socket
import subprocess

import pytest
from harness import DUNLIN, Server
from peers import TlsServer, files  # noqa: F401
from wire import Session, command, eventually

PROTECTED = ["--enable-protected-configs", "yes"]


def lines(path):
    # A line that is being written has no end yet.
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
    return [json.loads(line) for line in whole.splitlines()]


@pytest.fixture
def audited(tmp_path):
    path = tmp_path / "audit.log"

    def start(*directives):
        return Server("--audit-log", path, "--enable-debug-command", "yes", *PROTECTED, *directives)

    return path, start


def events(path, kind):
    return [line for line in lines(path) if line["event"] == kind]


def test_audit_records_each_kind_of_event(audited):
    path, start = audited
    with start() as server:
        with Session(server) as session:
            assert session("ACL", "SETUSER", "alice", "on", ">wonderland", "~a:*", "+get") == "OK"
            assert session("CONFIG", "SET", "maxmemory-samples", "7", "requirepass", "hush") == "OK"
            assert session("CONFIG", "SET", "requirepass", "") == "OK"
            assert session("SET", "a:1", "precious") == "OK"
            assert session("FLUSHALL", "ASYNC") == "OK"
            assert session("DEBUG", "SLEEP", "0") == "OK"
            assert session("AUTH", "alice", "looking-glass").startswith("-WRONGPASS")
            assert session("AUTH", "alice", "wonderland") == "OK"
            assert session("GET", "b:1").startswith("-NOPERM")
            assert session("SET", "a:1", "other").startswith("-NOPERM")
        eventually(lambda: len(events(path, "denied")) == 2, "the last line")
        assert events(path, "acl")[0]["command"] == "acl|setuser" and events(path, "acl")[0]["names"] == ["alice"]
        assert events(path, "config")[0]["names"] == ["maxmemory-samples", "requirepass"]
        assert events(path, "flush")[0]["names"] == ["ASYNC"]
        assert events(path, "debug")[0]["names"] == ["SLEEP"]
        auth = [(line["outcome"], line["user"], line["reason"]) for line in events(path, "auth")]
        assert auth == [("failure", "alice", "password"), ("success", "alice", "password")]
        denied = [(line["command"], line["reason"], line.get("names"), line["user"]) for line in events(path, "denied")]
        assert denied == [("get", "key", ["b:1"], "alice"), ("set", "command", None, "alice")]
        opened = events(path, "connection")[-1]
        assert opened["transport"] == "tcp" and opened["address"].startswith("127.0.0.1:")
        text = path.read_text()
        for secret in ["wonderland", "looking-glass", "hush", "precious", "other", ">"]:
            assert secret not in text, secret
        assert path.stat().st_mode & 0o777 == 0o600
        with Session(server) as session:
            found = session("INFO", "audit").decode()
            assert "audit_lines_dropped:0" in found


def test_chosen_commands_and_keys(audited):
    path, start = audited
    with start("--audit-log-categories", "@dangerous", "--audit-log-keys", "secret:* pin", "--audit-log-events", "command") as server:
        with Session(server) as session:
            session("SET", "public", "1")
            session("SET", "secret:1", "value")
            session("MGET", "public", "pin")
            session("KEYS", "*")
            session("MULTI")
            session("GET", "secret:2")
            assert session("EXEC") == [None]
            session("EVAL", "return redis.call('get', KEYS[1])", "1", "secret:3")
            session("SET", b"secret:\xff\"\n", "1")
        eventually(lambda: len(lines(path)) >= 7, "seven lines")
        found = [(line["command"], line.get("names")) for line in lines(path)]
        assert found == [
            ("set", ["secret:1"]),
            ("mget", ["public", "pin"]),
            ("keys", None),
            ("get", ["secret:2"]),
            ("eval", ["secret:3"]),
            ("get", ["secret:3"]),
            ("set", ['secret:\\xff"\n']),
        ]
        assert "value" not in path.read_text()


def test_origins(files, tmp_path):  # noqa: F811
    path = tmp_path / "audit.log"
    with TlsServer(files, "--audit-log", path, "--tls-auth-clients-user", "CN", "--unixsocket-user", f"uid={os.getuid()}:client") as server:
        with Session(server) as session:
            assert session("ACL", "SETUSER", "client", "on", "~*", "+@all") == "OK"
        assert server.ask("PING", client=files.client) == b"+PONG\r\n"
        with server.connect(unix=True) as client:
            client.sendall(command("PING"))
            assert client.recv(64) == b"+PONG\r\n"
        eventually(lambda: len(events(path, "auth")) == 2, "two are let in")
        found = {(line["transport"], line["reason"], line["user"], line["outcome"]) for line in events(path, "auth")}
        assert found == {("tls", "certificate", "client", "success"), ("unix", "unix socket", "client", "success")}


def test_audit_file_that_is_renamed_is_begun_anew(audited):
    path, start = audited
    with start() as server, Session(server) as session:
        session("FLUSHALL")
        eventually(lambda: events(path, "flush"), "a line")
        os.rename(path, path.with_suffix(".1"))
        session("FLUSHDB")
        session("FLUSHALL")
        eventually(lambda: path.exists(), "another file")
        session("FLUSHALL")
        eventually(lambda: events(path, "flush"), "a line in it")


@pytest.mark.parametrize("when_full", ["drop", "refuse"])
def test_audit_log_that_cannot_be_written(tmp_path, when_full):
    """Behind /dev/full nothing is ever written."""
    target = tmp_path / "audit.log"
    os.symlink("/dev/full", target)
    given = ["--audit-log", target, "--audit-log-when-full", when_full, "--audit-log-keys", "k*", *PROTECTED]
    with Server(*given) as server, Session(server) as session:
        refused = "-ERR the audit log cannot be written, and commands that it records are refused"
        key = "k" * 200
        answers = set()
        for _ in range(60):
            session.socket.sendall(command("SET", key, "1") * 1000)
            answers.update(session.read() for _ in range(1000))
            if refused in answers:
                break
        assert answers == ({"OK", refused} if when_full == "refuse" else {"OK"})

        def info():
            return dict(line.split(":", 1) for line in session("INFO", "audit").decode().split("\r\n") if ":" in line)

        eventually(lambda: int(info()["audit_write_failures"]) > 0, "a write that fails", 60)
        found = info()
        assert int(found["audit_pending_bytes"]) <= 8 << 20
        if when_full == "refuse":
            assert session("FLUSHALL") == refused
            assert session("GET", "other") is None, "what is not recorded is served"
        else:
            assert int(found["audit_lines_dropped"]) > 0
        # Somebody makes room.
        good = tmp_path / "good.log"
        if when_full == "drop":
            assert session("CONFIG", "SET", "audit-log", str(good)) == "OK"
            eventually(lambda: good.exists() and len(lines(good)) > 1000, "the lines that waited")


@pytest.mark.parametrize(
    ("directives", "reason"),
    [
        (["--audit-log", "/nowhere/audit.log"], "audit-log /nowhere/audit.log: No such file"),
        (["--audit-log-events", "auth nothing"], "there is no event 'nothing'"),
        (["--audit-log-categories", "@nothing"], "there is no category '@nothing'"),
    ],
)
def test_audit_directives_that_are_wrong_end_the_start(directives, reason):
    with pytest.raises(AssertionError, match="ended with 1") as failure:
        Server(*directives)
    assert reason in str(failure.value)


def test_audit_log_is_a_protected_directive():
    with Server() as server, Session(server) as session:
        assert "can't set protected config" in session("CONFIG", "SET", "audit-log", "stderr")


def test_standard_error():
    with Server("--audit-log", "stderr") as server, Session(server) as session:
        session("FLUSHALL")
        eventually(lambda: '"event":"flush"' in server.log(), "a line")


def test_journald(tmp_path):
    """In a mount namespace of the server's own, the journal's folder is the test's."""
    journal = tmp_path / "journal"
    journal.mkdir()
    inside = f"mount -t tmpfs none /run && mkdir -p /run/systemd/journal && mount --bind {journal} /run/systemd/journal"
    program = tmp_path / "dunlin-under-a-journal"
    program.write_text(f"#!/bin/sh\nexec unshare --mount --map-root-user sh -c '{inside} && exec \"$0\" \"$@\"' {DUNLIN} \"$@\"\n")
    program.chmod(0o755)
    if subprocess.run(["unshare", "--mount", "--map-root-user", "sh", "-c", inside], capture_output=True).returncode:
        pytest.skip("this system lets nobody mount in a namespace")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as reader:
        reader.bind(str(journal / "socket"))
        reader.settimeout(30)
        with Server("--audit-log", "journald", "--audit-log-events", "auth flush", program=str(program)) as server:
            with Session(server) as session:
                assert session("AUTH", "nobody", "PRIORITY=0\nhush").startswith("-WRONGPASS")
                session("FLUSHALL")
            entries = [reader.recv(1 << 16).decode().splitlines() for _ in range(2)]
    found = []
    for entry in entries:
        fields = dict(line.split("=", 1) for line in entry)
        assert fields["PRIORITY"] == "5" and fields["SYSLOG_IDENTIFIER"] == "dunlin-audit"
        found.append(json.loads(fields["MESSAGE"])["event"])
    assert found == ["auth", "flush"]
