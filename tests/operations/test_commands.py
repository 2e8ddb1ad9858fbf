"""dunlin why, doctor and health; signals, the journal and the watchdog of a supervisor."""

import os
import signal
import socket
import subprocess
import threading

import pytest
import redis

from harness import DUNLIN, Server, closed_port, free_port
from web import eventually, serving


def run(*arguments, code=0):
    done = subprocess.run([DUNLIN, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_why_asks_the_server():
    with Server("--requirepass", "secret", "--enable-debug-command", "yes") as server:
        client = redis.Redis(port=server.port, password="secret")
        client.execute_command("DEBUG", "SLEEP", "0.2")
        why = lambda: run("why", "-p", server.port, "-a", "secret")
        eventually(lambda: "DEBUG SLEEP 0.2 took" in why())
        assert "slower than usual" not in why(), "an idle server has no usual latency"
        assert "a time is" in run("why", "-p", server.port, "-a", "secret", "--at", "noon", code=1)
        assert "NOAUTH" in run("why", "-p", server.port, code=1)
    with closed_port() as port:
        assert "refused" in run("why", "-p", port, code=1).lower()


def read_little(*arguments):
    """Runs a command whose reader has gone before it prints; its code, and what it complains of."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([DUNLIN, *map(str, arguments)], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["doctor"],
        ["why"],
        ["top", "--once"],
        ["completions", "bash"],
        ["server", "--help"],
        ["server", "--print-config"],
        ["check", "DUMP"],
        ["convert", "--to", "aof-file", "DUMP", "COPY"],
    ],
)
def test_reader_that_goes_away_is_no_fault(arguments, tmp_path):
    with Server("--dir", tmp_path) as server:
        redis.Redis(port=server.port).save()
        places = {"DUMP": tmp_path / "dump.rdb", "COPY": tmp_path / "copy.aof"}
        words = [places.get(word, word) for word in arguments]
        if arguments[0] in ("doctor", "why", "top"):
            words[1:1] = ["-p", server.port]
            code, complaints = read_little(*words)
    if arguments[0] not in ("doctor", "why", "top"):
        code, complaints = read_little(*words)
    assert code == 0, complaints
    assert "panicked" not in complaints


def test_output_that_is_lost_is_a_fault():
    with open("/dev/full", "w") as full:
        done = subprocess.run([DUNLIN, "completions", "bash"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == 1 and done.stderr == "dunlin: standard output cannot be written: No space left on device (os error 28)\n"


def test_check_refuses_what_has_no_end(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in ("/dev/zero", "/dev/null", pipe):
        assert "it is no regular file" in run("check", path, code=1)


def test_server_takes_a_directive_and_its_values_in_one_word():
    with Server("--save 60 1", "--maxmemory 100mb") as server:
        client = redis.Redis(port=server.port, decode_responses=True)
        assert client.config_get("save")["save"] == "60 1"
        assert client.config_get("maxmemory")["maxmemory"] == str(100 << 20)


def test_doctor_tells_of_machine_and_server_and_no_secret(tmp_path):
    with Server("--requirepass", "secret-word", "--maxmemory", "100mb") as server:
        client = redis.Redis(port=server.port, password="secret-word")
        client.set("private-key", "private-value")
        client.config_set("slowlog-log-slower-than", 0)
        client.get("private-key")
        text = run("doctor", "-p", server.port, "-a", "secret-word", "--dir", tmp_path)
    for part in ["# Machine", "processors:", "a sync takes", "# Server", "dunlin_version:", "maxmemory 104857600", "requirepass (not shown)", "# The last minute"]:
        assert part in text, part
    assert "secret-word" not in text and "private" not in text
    assert list(tmp_path.iterdir()) == []
    with closed_port() as port:
        alone = run("doctor", "-p", port)
    assert "# Machine" in alone and "not reached" in alone


def test_health_ends_with_the_state():
    with serving() as (_, port):
        assert run("health", "-p", port) == "ok\n"
    assert "refused" in run("health", "-p", port, code=1).lower()


def test_sighup_leaves_the_server_at_work_and_opens_the_log_anew(tmp_path):
    log = tmp_path / "dunlin.log"
    with Server("--logfile", log) as server:
        log.rename(tmp_path / "dunlin.log.1")
        server.process.send_signal(signal.SIGHUP)
        eventually(log.exists)
        eventually(lambda: "Received SIGHUP" in log.read_text())
        assert redis.Redis(port=server.port).ping()


def test_lines_for_the_journal_have_priorities(tmp_path):
    # So systemd names the stream that it has opened.
    output = tmp_path / "output"
    with open(output, "wb") as stream:
        about = os.fstat(stream.fileno())
        environment = {**os.environ, "JOURNAL_STREAM": f"{about.st_dev}:{about.st_ino}"}
        port = free_port()
        process = subprocess.Popen([DUNLIN, "server", "--port", str(port), "--save", "", "--dir", str(tmp_path)], stdout=stream, stderr=stream, env=environment)
        try:
            eventually(lambda: "<5>Ready to accept connections" in output.read_text())
        finally:
            process.terminate()
            process.wait(60)
    lines = output.read_text().splitlines()
    assert all(line[0] == "<" and line[1] in "34567" and line[2] == ">" for line in lines), lines


def test_watchdog_of_the_supervisor_is_fed(tmp_path):
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(path))
        heard = []

        def hear():
            # To the end: a supervisor that does not listen would hold the server up.
            while not any(text.startswith("STOPPING=1") for text in heard):
                heard.append(listener.recv(200).decode())

        hearing = threading.Thread(target=hear, daemon=True)
        hearing.start()
        environment = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "200000"}
        with Server("--supervised", "systemd", environment=environment):
            eventually(lambda: any(text.startswith("READY=1") for text in heard))
            # It is fed before all is ready, too, and behind that.
            before = heard.count("WATCHDOG=1\n")
            eventually(lambda: heard.count("WATCHDOG=1\n") >= before + 3)
        hearing.join(60)
        assert not hearing.is_alive(), heard


def test_limits_of_the_machine_are_said_at_the_start():
    with Server("--threads", "2") as server:
        text = server.log()
    assert "2 worker threads" in text
    limit = next((line for line in text.splitlines() if "Limits of the control group" in line), None)
    memory = "/sys/fs/cgroup/memory.max"
    if os.path.exists(memory) and open(memory).read().strip() != "max":
        assert limit is not None
