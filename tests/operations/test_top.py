"""dunlin top: driven in a real terminal, that of tmux, and as text."""

import contextlib
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import threading

import pytest
import redis

from harness import DUNLIN, Server, closed_port, suspend
from web import eventually

needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is missing (Debian: tmux)")


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, folder, words, width=80, height=24):
        self.tmux = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]
        # The line behind it shows how the program ended and in which state it left the terminal.
        program = f"{shlex.join(map(str, words))}; echo ended with $?; stty -a | grep -o '.icanon'; exec cat"
        self("new-session", "-d", "-x", width, "-y", height, "-s", "top", "sh", "-c", program)

    def __call__(self, *words):
        return subprocess.run([*self.tmux, *map(str, words)], check=True, capture_output=True, text=True, timeout=60).stdout

    def text(self):
        return self("capture-pane", "-p", "-t", "top")

    def press(self, *keys):
        self("send-keys", "-t", "top", *keys)

    def shows(self, *parts):
        try:
            eventually(lambda: all(part in self.text() for part in parts))
        except AssertionError:
            raise AssertionError(f"{parts} is not on the screen:\n{self.text()}") from None

    def program(self):
        """The process id of the program."""
        shell = self("display-message", "-p", "-t", "top", "#{pane_pid}").strip()
        (child,) = subprocess.run(["pgrep", "-P", shell], capture_output=True, text=True, check=True).stdout.split()
        return int(child)

    def resize(self, width, height):
        self("resize-window", "-t", "top", "-x", width, "-y", height)


@contextlib.contextmanager
def top(folder, *words, **size):
    terminal = Terminal(folder, [DUNLIN, "top", *words], **size)
    try:
        yield terminal
    finally:
        terminal("kill-server")


@contextlib.contextmanager
def load(port, **login):
    """A client that reads one key over and over."""
    client, is_over = redis.Redis(port=port, client_name="reader", **login), threading.Event()
    client.set("hot:key", "v" * 100)

    def work():
        with contextlib.suppress(redis.RedisError):
            while not is_over.is_set():
                client.get("hot:key")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield client
    finally:
        is_over.set()
        thread.join()


@needs_tmux
def test_top_shows_a_server_at_work(tmp_path):
    with Server("--maxmemory", "1gb") as server, load(server.port), top(tmp_path, "-p", server.port) as screen:
        screen.shows(f"127.0.0.1:{server.port}", "primary", "a second", "of 1.0 GiB", "COMMAND", "CALLS/S▼", "q quit")
        eventually(lambda: screen.text().splitlines()[7].startswith("get "))
        # By name, from Z on.
        screen.press("Left", "r")
        screen.shows("COMMAND▼")
        screen.press("2")
        screen.shows("No session of HOTKEYS has run")
        screen.press("s")
        screen.shows("HOTKEYS runs", "hot:key")
        screen.press("3")
        screen.shows("ADDRESS", "reader")
        screen.press("4")
        screen.shows("This server has no replicas.")
        screen.press("5")
        screen.shows("the server started, version")
        redis.Redis(port=server.port).config_set("maxmemory", "2gb")
        screen.shows("maxmemory changed", "of 2.0 GiB")
        screen.press("?")
        screen.shows("reverse the order")
        screen.press("x")
        screen.press("+")
        screen.shows("every 2 s")
        screen.press("q")
        screen.shows("ended with 0", " icanon")


@needs_tmux
def test_top_survives_any_size(tmp_path):
    with Server() as server, top(tmp_path, "-p", server.port, "--page", "clients", width=200, height=50) as screen:
        screen.shows("LIBRARY")
        for width, height in [(20, 5), (1, 1), (80, 2), (300, 100), (80, 24)]:
            screen.resize(width, height)
            screen.press("Right", "End")
        screen.shows("ADDRESS", "CALLS/S")
        assert "LIBRARY" not in screen.text()


@needs_tmux
def test_top_pauses(tmp_path):
    with Server() as server, top(tmp_path, "-p", server.port, "--page", "events") as screen:
        screen.shows("the server started")
        screen.press("Space")
        screen.shows("PAUSED")
        redis.Redis(port=server.port).config_set("maxmemory", "1gb")
        why = lambda: redis.Redis(port=server.port).execute_command("RECORDER", "EVENTS", 0, 2**32 - 1)
        eventually(lambda: any(b"maxmemory" in text for *_, text in why()))
        assert "maxmemory" not in screen.text()
        screen.press("Space")
        screen.shows("maxmemory changed")


@needs_tmux
def test_top_comes_back_to_a_server_that_comes_back(tmp_path):
    socket = tmp_path / "socket"
    with Server("--unixsocket", socket):
        screen = Terminal(tmp_path, [DUNLIN, "top", "-s", socket])
        screen.shows("every 1 s")
    try:
        screen.shows("LOST for", "No such file or directory", "it is tried again")
        with Server("--unixsocket", socket):
            screen.shows("every 1 s", "The server is there again.")
            assert "LOST" not in screen.text()
    finally:
        screen("kill-server")


@needs_tmux
def test_top_says_that_a_server_hangs(tmp_path):
    with Server() as server, top(tmp_path, "-p", server.port) as screen:
        screen.shows("every 1 s")
        suspend(server.process)
        try:
            screen.shows("no answer for")
        finally:
            server.process.send_signal(signal.SIGCONT)
        screen.shows("every 1 s")


@needs_tmux
def test_top_shows_what_the_user_may_see(tmp_path):
    with Server() as server:
        redis.Redis(port=server.port).execute_command("ACL", "SETUSER", "watcher", "on", ">secret", "+info", "+client|list")
        with top(tmp_path, "-p", server.port, "--user", "watcher", "-a", "secret", width=160) as screen:
            screen.shows("primary", "COMMAND", "refused: RECORDER RANGE, LATENCY HISTOGRAM: NOPERM")
            screen.press("3")
            screen.shows("watcher", "ADDRESS")
            screen.press("2")
            screen.shows("HOTKEYS GET is refused: NOPERM")
            screen.press("s")
            screen.shows("NOPERM this user has no permissions to run the 'hotkeys|start'")


@needs_tmux
def test_top_leaves_the_terminal_as_it_was_when_it_is_ended(tmp_path):
    with Server() as server, top(tmp_path, "-p", server.port) as screen:
        screen.shows("every 1 s")
        os.kill(screen.program(), signal.SIGTERM)
        screen.shows("ended with 0", " icanon")


@needs_tmux
def test_top_ends_with_its_terminal(tmp_path):
    with Server() as server:
        with top(tmp_path, "-p", server.port) as screen:
            screen.shows("every 1 s")
            program = screen.program()

        def has_ended():
            try:
                return pathlib.Path(f"/proc/{program}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
            except (FileNotFoundError, ProcessLookupError):
                return True

        eventually(has_ended)


def run(*words, code=0):
    done = subprocess.run([DUNLIN, "top", *map(str, words)], capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def test_top_once_is_text_for_scripts():
    with Server() as server, load(server.port):
        text = run("-p", server.port, "--once")
        summary = dict(line.split("\t") for line in text.split("\n\n")[0].splitlines())
        assert summary["role"] == "primary" and float(summary["commands_per_second"]) > 1
        assert float(summary["used_bytes"]) > 0 and float(summary["clients"]) == 2
        pages = [page.splitlines() for page in text.split("\n\n")[1:]]
        assert [page[0] for page in pages] == ["# Commands", "# Hot keys", "# Clients", "# Replication", "# Events"]
        names, *rows = [line.split("\t") for line in pages[0][1:]]
        assert all(len(row) == len(names) for row in rows)
        get = dict(zip(names, rows[0]))
        assert get["command"] == "get" and float(get["calls_per_second"]) > 1 and float(get["p99_us"]) > 0
        assert any("\treader\t" in line for line in pages[2])


def test_top_once_names_what_is_refused():
    with Server() as server:
        redis.Redis(port=server.port).execute_command("ACL", "SETUSER", "watcher", "on", ">secret", "+client|list")
        text = run("-p", server.port, "--user", "watcher", "-a", "secret", "--once")
    assert "# INFO is refused: NOPERM" in text and "commands_per_second\t-\n" in text and "watcher" in text


def test_top_fails_at_once_where_it_cannot_begin():
    with Server("--requirepass", "secret") as server:
        assert "NOAUTH" in run("-p", server.port, "--once", code=1)
        assert "WRONGPASS" in run("-p", server.port, "-a", "wrong", "--once", code=1)
        assert "this is no terminal" in run("-p", server.port, "-a", "secret", code=1)
    with closed_port() as port:
        assert "refused" in run("-p", port, "--once", code=1).lower()


def test_top_knows_other_servers():
    with Server(program="redis-server") as server, load(server.port):
        text = run("-p", server.port, "--once")
    assert "# RECORDER RANGE is refused: ERR unknown command" in text
    assert "version\tredis protocol 7.0" in text and "\nget\t" in text
    assert "p99_us\t-" not in text, "from LATENCY HISTOGRAM"
