"""Starts by configuration files of other servers: in the background, under a supervisor, with directives that are not ours."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import time

import pytest

from harness import DUNLIN, ROOT, command, free_port, is_redis

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="about Dunlin's own start")


def run(*arguments, **options):
    """The code and the words of a command that ends by itself."""
    done = subprocess.run(command(DUNLIN, *arguments), stdin=subprocess.DEVNULL, capture_output=True, timeout=120, **options)
    return done.returncode, (done.stdout + done.stderr).decode()


def ask(port, line):
    with socket.create_connection(("127.0.0.1", port), 60) as client:
        client.sendall(line.encode() + b"\r\n")
        return client.recv(4096)


def end(pid):
    """SIGTERM to a process that is no child of this one."""
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 60
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        # It may go between the opening of the file and the reading, too.
        return False


def test_daemonize_returns_once_the_server_listens(tmp_path):
    port, pidfile, logfile = free_port(), tmp_path / "pid", tmp_path / "log"
    words = ["--port", port, "--dir", tmp_path, "--save", "", "--daemonize", "yes", "--pidfile", pidfile, "--logfile", logfile]
    assert run(*words) == (0, "")
    pid = int(pidfile.read_text())
    try:
        assert ask(port, "PING") in (b"+PONG\r\n", b"-LOADING Redis is loading the dataset in memory\r\n")
        assert os.getsid(pid) == pid
        assert [os.readlink(f"/proc/{pid}/fd/{number}") for number in (0, 1, 2)] == ["/dev/null"] * 3
    finally:
        end(pid)
    assert not pidfile.exists()
    log = logfile.read_text()
    assert log.count("Ready to accept connections") == 1 and "bye bye" in log


def test_daemonize_says_why_the_server_does_not_start(tmp_path):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        logfile = tmp_path / "log"
        code, said = run("--bind", "127.0.0.1", "--port", port, "--dir", tmp_path, "--daemonize", "yes", "--logfile", logfile)
    assert code == 1 and said.startswith("dunlin: cannot listen") and said.count("\n") == 1, said
    assert "cannot listen" in logfile.read_text()


def test_supervisor_hears_of_readiness_and_the_server_stays_in_the_foreground(tmp_path):
    path, port = tmp_path / "notify", free_port()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.bind(str(path))
        notify.settimeout(60)
        words = ["--port", port, "--dir", tmp_path, "--save", "", "--supervised", "systemd", "--daemonize", "yes"]
        environment = {**os.environ, "NOTIFY_SOCKET": str(path)}
        server = subprocess.Popen(command(DUNLIN, *words), env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            assert notify.recv(200) == b"STATUS=Loading the data set\n"
            assert notify.recv(200).startswith(b"READY=1\n")
            server.send_signal(signal.SIGTERM)
            assert notify.recv(200).startswith(b"STOPPING=1\n")
            assert server.wait(60) == 0
        finally:
            server.kill()
            server.wait()


def test_supervised_upstart_is_refused():
    code, said = run("--supervised", "upstart")
    assert code == 1 and "upstart is not told of anything" in said


STOCK = {
    "redis": pathlib.Path("/etc/redis/redis.conf"),
    "valkey": ROOT / "tests/lifecycle/valkey-9.1-directives.conf",
}


@pytest.mark.parametrize("house", STOCK)
def test_stock_configuration_starts(house, tmp_path):
    """The file of the package as it is, but for its directories, which belong to another user."""
    if not STOCK[house].exists():
        pytest.skip(f"{STOCK[house]} is not there")
    try:
        text = STOCK[house].read_text()
    except PermissionError:
        pytest.skip(f"{STOCK[house]} cannot be read")
    port = free_port()
    places = {"dir": tmp_path, "pidfile": tmp_path / "pid", "logfile": tmp_path / "log", "port": port}
    for name, value in places.items():
        text, count = re.subn(rf"^{name} .*$", f"{name} {value}", text, flags=re.MULTILINE)
        assert count == 1, name
    config = tmp_path / "server.conf"
    config.write_text(text)
    assert run(config) == (0, "")
    pid = int((tmp_path / "pid").read_text())
    try:
        assert b"server_name:dunlin" in ask(port, "INFO server") or b"+PONG" in ask(port, "PING")
        ignored = [line for line in (tmp_path / "log").read_text().splitlines() if " is ignored: " in line]
        assert len(ignored) >= 10 and any("repl-disable-tcp-nodelay" in line for line in ignored)
    finally:
        end(pid)


def test_mistakes_are_listed_all_at_once(tmp_path):
    config = tmp_path / "server.conf"
    config.write_text("hz 20\nfoo 1\nloadmodule x.so\nport x\n")
    code, said = run(config, "--rdma-port", "1")
    lines = said.splitlines()
    assert code == 1 and len(lines) == 4 and all(line.startswith("dunlin: ") for line in lines), said
    for line, words in zip(lines, ("foo 1", "modules cannot be loaded", "port x", "leave this option out")):
        assert words in line


def test_port_answers_that_it_is_loading_and_readiness_is_logged_once(tmp_path):
    """The snapshot is a pipe without a writer: loading does not end."""
    os.mkfifo(tmp_path / "dump.rdb")
    port, log = free_port(), tmp_path / "log"
    words = ["--bind", "127.0.0.1", "--port", port, "--dir", tmp_path, "--logfile", log]
    server = subprocess.Popen(command(DUNLIN, *words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        pipe = os.open(tmp_path / "dump.rdb", os.O_WRONLY)
        assert ask(port, "PING").startswith(b"-LOADING")
        assert b"loading:1" in ask(port, "INFO persistence")
        assert "Ready to accept" not in log.read_text()
        os.close(pipe)
        assert server.wait(60) == 1
    finally:
        server.kill()
        server.wait()
    text = log.read_text()
    assert "Ready to accept" not in text and text.count("cannot load") == 1


def test_file_that_a_killed_server_was_writing_is_removed_by_the_next(tmp_path):
    (tmp_path / "temp-bg-99999999.rdb").write_bytes(b"REDIS0011")
    port = free_port()
    words = ["--bind", "127.0.0.1", "--port", port, "--dir", tmp_path, "--save", "3600 1"]
    server = subprocess.Popen(command(DUNLIN, *words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        for line in server.stdout:
            if b"Ready to accept" in line:
                break
        assert not (tmp_path / "temp-bg-99999999.rdb").exists()
    finally:
        server.terminate()
        server.stdout.read()
        assert server.wait(60) == 0
