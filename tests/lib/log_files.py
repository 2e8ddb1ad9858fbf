"""The append-only log: a client of raw replies, and what stands in its files."""

import os
import re
import shutil
import subprocess
import tempfile
import time

from harness import DUNLIN, Server, command, free_port

# Nothing is rewritten unless a test asks for it: files are copied while the server runs.
LOG = ["--appendonly", "yes", "--auto-aof-rewrite-percentage", "0", "--enable-debug-command", "yes"]


def encoded(*words):
    """A command as clients send it and as the log has it."""
    return b"".join([b"*%d\r\n" % len(words)] + [b"$%d\r\n%s\r\n" % (len(word), word) for word in words])


class Client:
    """Commands in words, replies as Python values."""

    def __init__(self, server):
        self.socket = server.connect()
        self.file = self.socket.makefile("rb")

    def send(self, *words):
        self.socket.sendall(encoded(*[word if isinstance(word, bytes) else str(word).encode() for word in words]))

    def read(self):
        line = self.file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind in b"+-":
            return line[:-2].decode()
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2].decode(errors="replace")
        if kind == b"*":
            return None if rest == b"-1" else [self.read() for _ in range(int(rest))]
        raise AssertionError(f"not a reply: {line!r}")

    def call(self, *words):
        self.send(*words)
        return self.read()

    def lines(self, text):
        return [self.call(*line.split()) for line in text.strip().splitlines()]


def await_rewrite(client):
    """Waits until the log has a base with the present data set."""
    deadline = time.monotonic() + 60
    while re.search("aof_rewrite_(in_progress|scheduled):1", client.call("info", "persistence")):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def await_refusal(client, server):
    """Waits until writes are refused because the log cannot be written."""
    deadline = time.monotonic() + 60
    while "aof_last_write_status:err" not in client.call("info", "persistence"):
        assert time.monotonic() < deadline, server.log()
        time.sleep(0.01)


def commands(data):
    """The commands of an increment as lists of words, without comments and without SELECT."""
    found, at = [], 0
    while at < len(data):
        end = data.index(b"\r\n", at)
        if data[at : at + 1] == b"#":
            at = end + 2
            continue
        words, count = [], int(data[at + 1 : end])
        at = end + 2
        for _ in range(count):
            end = data.index(b"\r\n", at)
            length = int(data[at + 1 : end])
            words.append(data[end + 2 : end + 2 + length].decode(errors="replace"))
            at = end + 4 + length
        if words[0].lower() != "select":
            found.append(words)
    return found


LIBRARY = "#!lua name=%s\nredis.register_function('%s', function(keys, args) return redis.call('set', keys[1], '%s') end)"


def digest(server):
    return Client(server).call("debug", "digest")


def copy_log(server, target):
    """The files of a server whose last command was answered under `appendfsync always`."""
    shutil.copytree(server.folder / "appendonlydir", target / "appendonlydir")
    return target


def check(*arguments):
    result = subprocess.run([DUNLIN, "check", *map(str, arguments)], capture_output=True, text=True, timeout=120)
    return result.returncode, result.stdout + result.stderr


class Piped:
    """A server whose dump.rdb is a pipe."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="dunlin-test-")
        self.port = free_port()
        path = os.path.join(self.folder, "dump.rdb")
        os.mkfifo(path)
        self.output = open(os.path.join(self.folder, "output"), "w+b")
        arguments = ["--bind", "127.0.0.1", "--port", self.port, "--dir", self.folder]
        self.process = subprocess.Popen(command(DUNLIN, *arguments), stdout=self.output, stderr=subprocess.STDOUT)
        self.pipe = open(path, "wb", buffering=0)

    connect = Server.connect

    def client(self):
        deadline = time.monotonic() + 30
        while True:
            try:
                return Client(self)
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.01)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.output.close()
