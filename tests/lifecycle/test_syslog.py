"""`syslog-enabled`: the lines of the log at a socket like that of syslog(3)."""

import re
import socket

import pytest
import redis

from harness import Server


@pytest.fixture
def daemon(tmp_path):
    """A daemon that listens, and the environment that names its socket."""
    path = tmp_path / "log"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        listener.settimeout(60)
        yield listener, {"DUNLIN_SYSLOG_SOCKET": str(path)}


def hear(listener, text):
    """Lines up to one with this text."""
    lines = []
    while not lines or text not in lines[-1]:
        lines.append(listener.recv(16384).decode())
    return lines


def test_syslog_has_the_lines_of_the_log(daemon):
    listener, environment = daemon
    directives = ["--syslog-enabled", "yes", "--syslog-ident", "store-1", "--syslog-facility", "local3"]
    with Server(*directives, environment=environment) as server:
        lines = hear(listener, "Ready to accept connections")
        # local3 is 19, and a notice 5.
        assert re.fullmatch(rf"<157>[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d store-1\[{server.process.pid}\]: Ready to accept connections.*", lines[-1])
        assert "Ready to accept connections" in server.log(), "standard output has them, too"
        client = redis.Redis(port=server.port, decode_responses=True)
        assert client.config_get("syslog-*") == {"syslog-enabled": "yes", "syslog-ident": "store-1", "syslog-facility": "local3"}
        with pytest.raises(redis.ResponseError, match="can't set immutable config"):
            client.config_set("syslog-enabled", "no")


def test_syslog_is_off_by_default(daemon):
    listener, environment = daemon
    with Server(environment=environment) as server:
        client = redis.Redis(port=server.port, decode_responses=True)
        assert client.config_get("syslog-*") == {"syslog-enabled": "no", "syslog-ident": "dunlin", "syslog-facility": "local0"}
    listener.setblocking(False)
    with pytest.raises(BlockingIOError):
        listener.recv(100)


def test_syslog_that_does_not_listen_is_said_once_and_waited_for(tmp_path):
    path = tmp_path / "log"
    with Server("--syslog-enabled", "yes", environment={"DUNLIN_SYSLOG_SOCKET": str(path)}) as server:
        assert server.log().count("syslog does not listen") == 1
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(str(path))
            listener.settimeout(60)
            redis.Redis(port=server.port).save()
            assert "<133>" in hear(listener, "DB saved on disk")[0]


@pytest.mark.parametrize("words", [("--syslog-facility", "mail"), ("--syslog-enabled", "perhaps")])
def test_syslog_directives_refuse_other_values(words):
    with pytest.raises(AssertionError, match=words[0].lstrip("-")):
        Server(*words).stop()
