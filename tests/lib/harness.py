"""Starts and stops the servers that the black-box tests talk to.

The server under test is the program that the environment variable DUNLIN names; any program of the
same protocol will do (`DUNLIN=redis-server make test` shows what the tests say about Redis itself).
"""

import contextlib
import itertools
import os
import pathlib
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
DUNLIN = os.environ.get("DUNLIN", str(TARGET / "fast" / "dunlin"))
DRIVERS = pathlib.Path(os.environ.get("DUNLIN_DRIVERS", TARGET / "fast"))
# The program of the lab, a workspace of its own.
LAB = os.environ.get("DUNLIN_LAB", str(DRIVERS / "dunlin-lab"))
ORACLE = os.environ.get("DUNLIN_ORACLE", "redis-server")
# A Valkey of version 9 or newer, the oracle of commands that redis-server 7.0 lacks: the one that the set-up has got
# unless another is named; empty where there is none.
_valkey = ROOT / "tests" / ".env" / "valkey" / "bin" / "valkey-server"
VALKEY = os.environ.get("DUNLIN_VALKEY", str(_valkey) if _valkey.exists() else "")
WITHOUT_VALKEY = "there is no Valkey server of version 9 or newer (scripts/get-valkey.sh, DUNLIN_VALKEY)"
# Servers of other versions of Redis, by version.
REDIS_VERSIONS = {
    path.name.removeprefix("redis-server-"): str(path)
    for path in sorted((ROOT / "tests" / ".env" / "redis").glob("redis-server-*"))
}
# They protect against hanging alone: on a busy machine a process may stand still for seconds.
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 120

# The limit of open files goes to the servers too; ten thousand connections need it.
_soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (_hard, _hard))


def is_redis(program):
    name = pathlib.Path(program).name
    return "redis" in name or "valkey" in name


# Ports below those that the system gives to outgoing connections, some for each process that runs tests.
_PORTS_EACH = 2000
_first_port = 10000 + _PORTS_EACH * (int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 10)
_ports = itertools.count(os.getpid())


def free_port():
    for number in itertools.islice(_ports, _PORTS_EACH):
        port = _first_port + number % _PORTS_EACH
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("all ports are taken")


@contextlib.contextmanager
def closed_port():
    """A port that nothing listens on, kept from other processes meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def command(program, *arguments):
    """The command line that starts this program as a server."""
    return [program, *([] if is_redis(program) else ["server"]), *map(str, arguments)]


class Server:
    """A server in a folder of its own, with a copy of `files` in it, on a port and a Unix socket of its own, and with
    `environment` besides the environment of the tests."""

    def __init__(self, *directives, program=DUNLIN, config=None, files=None, environment=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dunlin-test-"))
        if files is not None:
            shutil.copytree(files, self.folder, ignore=shutil.ignore_patterns("socket"), dirs_exist_ok=True)
        self.program = program
        self.port = free_port()
        self.socket = self.folder / "socket"
        self.log_path = self.folder / "output"
        arguments = []
        if config is not None:
            path = self.folder / "server.conf"
            path.write_text(config)
            arguments.append(path)
        arguments += ["--save", ""]
        arguments += ["--bind", "127.0.0.1", "--port", self.port]
        arguments += ["--unixsocket", self.socket, "--dir", self.folder, *directives]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                command(program, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
            )
        try:
            self._await_ping()
        except BaseException:
            self.kill()
            raise

    def _await_ping(self):
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            if self.process.poll() is not None:
                raise AssertionError(f"{self.program} ended with {self.process.returncode}:\n{self.log()}")
            try:
                with self.connect() as client:
                    # Unlike PING, it is refused while the data set is being loaded.
                    client.sendall(b"DBSIZE\r\n")
                    reply = client.recv(64)
                    # Nothing comes from one that is ending.
                    if reply and not reply.startswith((b"-LOADING", b"-BUSY")):
                        return
            except OSError:
                pass
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.program} does not answer PING:\n{self.log()}")
            time.sleep(0.01)

    def connect(self, unix=False, timeout=120):
        """A plain socket to the server."""
        if unix:
            client = socket.socket(socket.AF_UNIX)
            # Without a timeout a full backlog makes connect wait; with one it would fail at once.
            client.connect(str(self.socket))
            client.settimeout(timeout)
        else:
            client = socket.create_connection(("127.0.0.1", self.port), timeout)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client

    def log(self):
        return self.log_path.read_text(errors="replace")

    def stop(self):
        """SIGTERM; asserts that the server ends in time, with code 0, and that no thread panicked."""
        try:
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
            code = self.process.wait(STOP_TIMEOUT_S)
            log = self.log()
        finally:
            self.kill()
        assert code == 0, f"exit code {code}:\n{log}"
        assert "panicked at" not in log, log

    def kill(self):
        """Ends the process, in any state, and removes its folder."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        if kind is None:
            self.stop()
        else:
            # The test has failed already; the server's output helps to see why.
            print(self.log())
            self.kill()


def suspend(process):
    """Suspends a process with SIGSTOP, and returns when none of its threads runs any more, which the signal does not wait for."""
    process.send_signal(signal.SIGSTOP)
    deadline = time.monotonic() + 60
    # Threads may come and go until then.
    while not all(map(_stands_still, pathlib.Path(f"/proc/{process.pid}/task").iterdir())):
        assert time.monotonic() < deadline, "a thread goes on"
        time.sleep(0.001)


def _stands_still(thread):
    try:
        return (thread / "stat").read_text().rsplit(") ", 1)[1][0] in "TZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def driver(name, *arguments, timeout=1800):
    """Runs one of the Rust test drivers and asserts that it succeeds."""
    program = DRIVERS / name
    assert program.exists(), f"build it first: cargo build --profile fast -p {name}"
    result = subprocess.run(
        [str(program), *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout
    )
    output = result.stdout.decode(errors="replace")
    print(output)
    assert result.returncode == 0, f"{name} failed; its output is below"
    return output
