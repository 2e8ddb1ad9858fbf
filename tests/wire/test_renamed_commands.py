"""rename-command: another name for clients, or none; the log and replicas keep the old one."""

import shutil

import pytest
from harness import DUNLIN, ORACLE, Server
from wire import Session

RENAMED = "rename-command CONFIG admin\nrename-command FLUSHALL \"\"\nrename-command SET put\nrename-command XGROUP groups\n"


@pytest.mark.parametrize("program", [DUNLIN, ORACLE], ids=["dunlin", "redis"])
def test_renamed_commands_have_their_new_names_only(program):
    with Server(program=program, config=RENAMED) as server, Session(server) as session:
        assert session("CONFIG", "GET", "port").startswith("-ERR unknown command 'CONFIG'")
        assert session("ADMIN", "GET", "port") == [b"port", str(server.port).encode()]
        assert session("flushall").startswith("-ERR unknown command 'flushall'")
        assert session("SET", "key", "1").startswith("-ERR unknown command 'SET'")
        assert session("Put", "key", "1") == "OK"
        assert session("GET", "key") == b"1"
        assert session("put", "key").startswith("-ERR wrong number of arguments for ")
        # Scripts are clients, too.
        assert session("EVAL", "return redis.call('put', KEYS[1], ARGV[1])", "1", "key", "2") == "OK"
        assert session("GET", "key") == b"2"
        for name in ("flushall", "set"):
            answer = session("EVAL", f"return redis.call('{name}', KEYS[1], '3')", "1", "key")
            assert "Unknown Redis command called from script" in answer
        assert session("MULTI") == "OK"
        assert session("put", "key", "4") == "QUEUED"
        assert session("EXEC") == ["OK"]
        # Rules know commands by the old names.
        assert session("ACL", "SETUSER", "alice", "on", "nopass", "~*", "+get", "+set") == "OK"
        assert session("AUTH", "alice", "x") == "OK"
        assert session("put", "key", "5") == "OK"
        assert session("ADMIN", "GET", "port").startswith("-NOPERM")


def test_renamed_commands_are_logged_by_their_old_names(tmp_path):
    files = tmp_path / "files"
    with Server("--appendonly", "yes", "--appendfsync", "always", config=RENAMED) as server:
        with Session(server) as session:
            assert session("put", "key", "1") == "OK"
            assert session("groups", "CREATE", "stream", "g", "$", "MKSTREAM") == "OK"
            assert session("EVAL", "return redis.call('put', 'scripted', '1')", "0") == "OK"
        shutil.copytree(server.folder / "appendonlydir", files / "appendonlydir")
    log = b"".join(path.read_bytes() for path in (files / "appendonlydir").iterdir()).lower()
    assert b"\r\nset\r\n" in log and b"\r\nput\r\n" not in log and b"\r\ngroups\r\n" not in log
    with Server("--appendonly", "yes", files=files) as again, Session(again) as session:
        assert session("GET", "key") == b"1" and session("GET", "scripted") == b"1"
        assert session("XLEN", "stream") == 0


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("rename-command nothing x", "there is no such command"),
        ("rename-command get set", "set is the name of a command"),
        ('rename-command get "a b"', "cannot be a name"),
        ("rename-command get", "takes a command and its new name"),
    ],
)
def test_rename_command_refuses_what_cannot_be_renamed(line, reason):
    with pytest.raises(AssertionError, match="ended with 1") as failure:
        Server(config=f"hz 10\n{line}\n")
    assert reason in str(failure.value) and "server.conf:2" in str(failure.value)
