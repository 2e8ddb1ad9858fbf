"""Start and end: the server's messages, the cases in which it refuses to start, and how it ends."""

import os
import signal
import socket
import stat
import subprocess
import time

import pytest

from harness import DUNLIN, Server, command, free_port, is_redis

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="about Dunlin's own messages")


def refused(*arguments, **options):
    """Runs a server that has to refuse to start; gives the one line it says."""
    result = subprocess.run(
        command(DUNLIN, *arguments), stdin=subprocess.DEVNULL, capture_output=True, timeout=120, **options
    )
    said = (result.stderr + result.stdout).decode().strip()
    assert 0 < result.returncode < 128, f"exit code {result.returncode}: {said}"
    errors = [line for line in said.splitlines() if line.startswith("dunlin: ")]
    assert len(errors) == 1, said
    assert "panicked" not in said
    return errors[0]


# Fault → words that the one line has to hold.
FLAGS = {
    "unknown directive": (["--no-such-directive", "1"], ["no-such-directive", "unknown"]),
    "text for a number": (["--port", "x"], ["port", "x"]),
    "number out of range": (["--port", "70000"], ["port", "70000"]),
    "no value": (["--port"], ["port"]),
    "unit that is none": (["--maxmemory", "1zb"], ["maxmemory", "1zb"]),
    "neither yes nor no": (["--protected-mode", "maybe"], ["protected-mode", "maybe"]),
    "threads out of range": (["--threads", "-1"], ["threads", "-1"]),
    "address of another machine": (["--bind", "192.0.2.1"], ["192.0.2.1"]),
    "address that is none": (["--bind", "no-such-host.invalid"], ["no-such-host.invalid"]),
    "no file of that name": (["/nonexistent/dunlin.conf"], ["/nonexistent/dunlin.conf"]),
    "folder for a file": (["/tmp"], ["/tmp"]),
    "working directory missing": (["--dir", "/nonexistent"], ["dir", "/nonexistent"]),
    "log file's folder missing": (["--logfile", "/nonexistent/log"], ["logfile", "/nonexistent/log"]),
    "socket's folder missing": (["--unixsocket", "/nonexistent/socket"], ["/nonexistent/socket"]),
    "nothing to listen on": (["--port", "0"], ["listen"]),
}


@pytest.mark.parametrize("case", FLAGS)
def test_start_with_wrong_flags_is_one_clear_line(case, tmp_path):
    arguments, words = FLAGS[case]
    if arguments[0] != "--port":
        arguments = [*arguments, "--port", free_port()]
    line = refused(*arguments, cwd=tmp_path)
    for word in words:
        assert word in line


def test_line_and_file_of_a_bad_directive(tmp_path):
    config = tmp_path / "bad.conf"
    config.write_text("# fine\nport 0\n\nmaxmemory lots\n")
    line = refused(config)
    assert "bad.conf" in line and "4" in line and "maxmemory" in line


def test_quotes_that_do_not_close(tmp_path):
    config = tmp_path / "bad.conf"
    config.write_text('requirepass "never ends\n')
    assert "bad.conf" in refused(config)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file(tmp_path):
    config = tmp_path / "secret.conf"
    config.write_text("port 0\n")
    config.chmod(0)
    assert "secret.conf" in refused(config)


def test_port_in_use(tmp_path):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        line = refused("--bind", "127.0.0.1", "--port", port, cwd=tmp_path)
        assert str(port) in line


def test_start_on_a_port_in_use_is_refused(tmp_path):
    with Server() as first:
        line = refused("--bind", "127.0.0.1", "--port", first.port, cwd=tmp_path)
        assert str(first.port) in line
        with first.connect() as client:
            client.sendall(b"PING\r\n")
            assert client.recv(64) == b"+PONG\r\n"


def eventually(read, words, timeout_s=60):
    """The log is written beside the work: waits until it holds these words."""
    deadline = time.monotonic() + timeout_s
    while words not in read():
        assert time.monotonic() < deadline, f"{words!r} is not in\n{read()}"
        time.sleep(0.005)


def test_start_says_what_matters():
    with Server("--threads", "2") as server:
        eventually(server.log, "Ready to accept connections")
        log = server.log()
        assert len(log.splitlines()) <= 10, log
        for word in ("Dunlin", "2 worker threads", str(server.port), str(server.socket), "Ready to accept connections"):
            assert word in log, f"{word!r} is not in\n{log}"


def test_file_and_flags():
    """The file has redis.conf's syntax; a flag wins over it."""
    config = 'timeout 7\n# a comment\n  DATABASES  "8"\ntcp-keepalive 11\n'
    with Server("--timeout", "9", config=config) as server, server.connect() as client:
        for name, value in (("timeout", "9"), ("databases", "8"), ("tcp-keepalive", "11")):
            client.sendall(f"CONFIG GET {name}\r\n".encode())
            assert client.recv(4096).split(b"\r\n")[4] == value.encode()


def test_configuration_from_standard_input(tmp_path):
    port = free_port()
    config = f"bind 127.0.0.1\nport {port}\ntimeout 7\n"
    process = subprocess.Popen(
        command(DUNLIN, "-"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=tmp_path
    )
    try:
        process.stdin.write(config.encode())
        process.stdin.close()
        await_port(port)
    finally:
        process.terminate()
        assert process.wait(60) == 0


def await_port(port, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while True:
        reply = None
        try:
            with socket.create_connection(("127.0.0.1", port), timeout_s) as client:
                client.sendall(b"PING\r\n")
                reply = client.recv(64)
        except ConnectionRefusedError:
            pass
        if reply == b"+PONG\r\n":
            return
        # It listens before it has found that there is nothing to load.
        assert reply is None or reply.startswith(b"-LOADING"), reply
        assert time.monotonic() < deadline, "the server does not listen"
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_signals_end_it_cleanly(number):
    server = Server()
    try:
        with server.connect() as idle, server.connect() as busy:
            busy.sendall(b"SET k v\r\n")
            assert busy.recv(64) == b"+OK\r\n"
            server.process.send_signal(number)
            assert server.process.wait(60) == 0
            assert idle.recv(64) == b"", "connections are closed"
        assert not server.socket.exists(), "the Unix socket is removed"
    finally:
        server.stop()


def test_sigterm_that_could_not_save_goes_on_and_says_how_to_end_without():
    """The next one tries again; it does not end the process as a second one does while the first is being obeyed."""
    with Server("--save", "3600 1") as server, server.connect() as client:
        (server.folder / "dump.rdb").mkdir()
        client.sendall(b"SET k v\r\n")
        assert client.recv(64) == b"+OK\r\n"
        for times in (1, 2):
            server.process.send_signal(signal.SIGTERM)
            eventually(lambda: str(server.log().count("so the server goes on")), str(times))
        assert "SHUTDOWN NOSAVE" in server.log() and "SIGINT" in server.log()
        client.sendall(b"GET k\r\n")
        assert client.recv(64) == b"$1\r\nv\r\n"
        (server.folder / "dump.rdb").rmdir()
    

@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_sigint_after_a_save_that_failed_ends_the_server_without(first):
    with Server("--save", "3600 1") as server, server.connect() as client:
        (server.folder / "dump.rdb").mkdir()
        client.sendall(b"SET k v\r\n")
        assert client.recv(64) == b"+OK\r\n"
        server.process.send_signal(first)
        eventually(server.log, "so the server goes on")
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(60) == 0
        assert (server.folder / "dump.rdb").is_dir()


def test_sigint_saves_again_once_a_snapshot_was_written():
    server = Server("--save", "3600 1")
    try:
        with server.connect() as client:
            (server.folder / "dump.rdb").mkdir()
            client.sendall(b"SET k v\r\n")
            assert client.recv(64) == b"+OK\r\n"
            server.process.send_signal(signal.SIGINT)
            eventually(server.log, "so the server goes on")
            (server.folder / "dump.rdb").rmdir()
            client.sendall(b"SAVE\r\n")
            assert client.recv(64) == b"+OK\r\n"
            written = (server.folder / "dump.rdb").stat().st_ino
            client.sendall(b"SET k w\r\n")
            assert client.recv(64) == b"+OK\r\n"
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(60) == 0
        assert (server.folder / "dump.rdb").stat().st_ino != written
    finally:
        server.stop()


@pytest.mark.parametrize("words", ["SHUTDOWN", "SHUTDOWN NOSAVE", "shutdown nosave now force"])
def test_shutdown(words):
    server = Server()
    try:
        with server.connect() as client:
            client.sendall(words.encode() + b"\r\n")
            assert client.recv(64) == b"", "SHUTDOWN has no reply when it succeeds"
        assert server.process.wait(60) == 0
    finally:
        server.stop()


def test_shutdown_refuses_nonsense():
    with Server() as server, server.connect() as client:
        client.sendall(b"SHUTDOWN NONSENSE\r\nSHUTDOWN ABORT\r\nPING\r\n")
        got = b""
        while not got.endswith(b"+PONG\r\n"):
            got += client.recv(4096)
        assert got == b"-ERR syntax error\r\n-ERR No shutdown in progress.\r\n+PONG\r\n"


def test_pidfile(tmp_path):
    pidfile = tmp_path / "pid"
    with Server("--pidfile", pidfile) as server:
        assert pidfile.read_text().strip() == str(server.process.pid)
    assert not pidfile.exists(), "the pidfile goes with the server"


def test_logfile(tmp_path):
    logfile = tmp_path / "log"
    with Server("--logfile", logfile) as server:
        eventually(logfile.read_text, "Ready to accept connections")
        assert "Ready to accept connections" not in server.log()
    first = logfile.read_text()
    assert "SIGTERM" in first
    with Server("--logfile", logfile):
        assert logfile.read_text().startswith(first), "a log is appended to"


def test_unixsocketperm():
    with Server("--unixsocketperm", "700") as server:
        assert stat.S_IMODE(server.socket.stat().st_mode) == 0o700


def test_socket_left_behind_is_replaced():
    """After a crash the socket file is still there; that must not keep the server from starting."""
    with Server() as first:
        path = first.folder / "left-behind"
        left = socket.socket(socket.AF_UNIX)
        left.bind(str(path))
        left.close()
        with Server("--unixsocket", path), socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            assert client.recv(64) == b"+PONG\r\n"


def test_port_zero_is_unix_only():
    with Server() as first:
        path = first.folder / "only"
        process = subprocess.Popen(
            command(DUNLIN, "--port", "0", "--unixsocket", path, "--dir", first.folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            deadline = time.monotonic() + 60
            while not path.exists():
                assert time.monotonic() < deadline
                time.sleep(0.01)
        finally:
            process.terminate()
            assert process.wait(60) == 0


def test_help_lists_every_directive():
    result = subprocess.run(command(DUNLIN, "--print-config"), capture_output=True, timeout=60)
    assert result.returncode == 0
    for directive in ("port", "unixsocket", "threads", "maxmemory", "client-output-buffer-limit"):
        assert directive in result.stdout.decode()
