#!/usr/bin/env python3
"""Instructions of the server for one request, counted by callgrind.

    scripts/instructions.py SERVER                 print the table
    scripts/instructions.py SERVER --check         fail if a row grew by more than 1% over docs/benchmarks/instructions.json
    scripts/instructions.py SERVER --update        write that file and docs/benchmarks/instructions.md
    scripts/instructions.py SERVER --rows get      count rows whose names begin so

A row is the difference of two runs of one server with one worker: one with few requests, one with many. What a start, a
connection and the first touch of memory cost cancels out. Counts repeat to about 0.3%, on any machine and beside any load;
they say nothing of caches or of the kernel.
"""

import argparse
import hashlib
import json
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BASELINE = ROOT / "docs/benchmarks/instructions.json"
PAGE = ROOT / "docs/benchmarks/instructions.md"
GROWTH_MAX = 1.01
KEYS = 10_000
VALUE = "v" * 100
FEW, MANY = 8_000, 40_000
SCRIPT = "local v = redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], ARGV[1]) return v"


def request(*words):
    """The bytes of a request."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        word = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
    return b"".join(parts)


def key(chance):
    return f"key:{chance.randrange(KEYS):012d}"


# name: (requests to prepare, a request by chance)
COMMANDS = {
    "get": (lambda: [("SET", f"key:{n:012d}", VALUE) for n in range(KEYS)], lambda c: ("GET", key(c))),
    "set": (lambda: [], lambda c: ("SET", key(c), VALUE)),
    "incr": (lambda: [], lambda c: ("INCR", key(c))),
    "hset": (lambda: [], lambda c: ("HSET", f"hash:{c.randrange(100)}", f"field:{c.randrange(100)}", "x" * 16)),
    "hget": (
        lambda: [("HSET", f"hash:{h}", *(w for f in range(100) for w in (f"field:{f}", "x" * 16))) for h in range(100)],
        lambda c: ("HGET", f"hash:{c.randrange(100)}", f"field:{c.randrange(100)}"),
    ),
    "sadd": (lambda: [], lambda c: ("SADD", f"set:{c.randrange(100)}", f"member:{c.randrange(1000)}")),
    "zadd": (lambda: [], lambda c: ("ZADD", "zset", c.randrange(1_000_000), f"member:{c.randrange(KEYS)}")),
    "lpush": (lambda: [], lambda c: ("LPUSH", f"list:{c.randrange(100)}", "x" * 16)),
    "mget-10": (
        lambda: [("SET", f"key:{n:012d}", VALUE) for n in range(KEYS)],
        lambda c: ("MGET", *(key(c) for _ in range(10))),
    ),
    "evalsha": (
        lambda: [("SCRIPT", "LOAD", SCRIPT)],
        lambda c: ("EVALSHA", SHA, 1, key(c), VALUE),
    ),
}
SHA = hashlib.sha1(SCRIPT.encode()).hexdigest()

# name of the row: (command, depth of the pipeline, directives, requests to prepare beside the command's)
ROWS = {
    f"{command}, pipeline {depth}": (command, depth, (), ())
    for command, depth in [
        ("get", 100), ("set", 100), ("incr", 100), ("get", 16), ("set", 16), ("incr", 16), ("get", 1), ("set", 1),
        ("hset", 16), ("hget", 16), ("sadd", 16), ("zadd", 16), ("lpush", 16), ("mget-10", 16), ("evalsha", 16),
    ]
}
ROWS["set, pipeline 16, appendonly yes"] = ("set", 16, ("--appendonly", "yes"), ())
ROWS["get, pipeline 16, user with three patterns"] = (
    "get", 16, (), (("ACL", "SETUSER", "default", "resetkeys", "~other:*", "~third:*", "~key:*"),),
)


class Client:
    """A connection that sends whole pipelines."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(120)
        self.socket.connect(path)

    @classmethod
    def of(cls, path):
        """A connection, or None while the server does not listen yet."""
        try:
            return cls(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return None

    def wait_until_loaded(self):
        while True:
            self.socket.sendall(request("PING"))
            if self.socket.recv(1 << 16).startswith(b"+PONG"):
                return
            time.sleep(0.02)

    def call(self, requests):
        """Sends requests at once, and waits for as many replies."""
        end = request("ECHO", "end-of-pipeline")
        self.socket.sendall(b"".join(requests) + end)
        tail = b""
        while not tail.endswith(b"$15\r\nend-of-pipeline\r\n"):
            received = self.socket.recv(1 << 20)
            if not received:
                raise SystemExit("the server closed the connection")
            if received.startswith(b"-") or b"\r\n-ERR" in received:
                raise SystemExit(f"an error came back: {received[:200]!r}")
            tail = (tail + received)[-64:]


def instructions(server, row, requests):
    """Instructions of a whole run with a number of requests."""
    command, depth, directives, settings = ROWS[row]
    prepare, generate = COMMANDS[command]
    chance = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/socket"
        log = open(f"{folder}/log", "wb")
        process = subprocess.Popen(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", server, "server", "--port", "0",
             "--unixsocket", path, "--threads", "1", "--dir", folder, "--save", "", "--hz", "10", *directives],
            stdout=log, stderr=log,
        )
        try:
            while (client := Client.of(path)) is None:
                if process.poll() is not None:
                    raise SystemExit(pathlib.Path(f"{folder}/log").read_text())
                time.sleep(0.02)
            client.wait_until_loaded()
            client.call([request(*words) for words in (*prepare(), *settings)])
            for start in range(0, requests, depth):
                pipeline = [request(*generate(chance)) for _ in range(min(depth, requests - start))]
                if depth == 1:
                    client.socket.sendall(pipeline[0])
                    client.socket.recv(1 << 16)
                else:
                    client.call(pipeline)
            process.send_signal(signal.SIGTERM)
            process.wait(120)
        finally:
            process.kill()
            process.wait()
        match = re.search(r"^(?:summary|totals): (\d+)", pathlib.Path(f"{folder}/out").read_text(), re.M)
        if match is None:
            raise SystemExit(f"callgrind wrote no summary: {open(f'{folder}/log').read()}")
        return int(match[1])


def count(server, row):
    command, depth, _, _ = ROWS[row]
    few, many = (FEW, MANY) if depth > 1 else (FEW // 4, MANY // 4)
    if command == "mget-10":
        few, many = few // 4, many // 4
    return (instructions(server, row, many) - instructions(server, row, few)) / (many - few)


def write_page(counts):
    lines = [
        "# Instructions of a request",
        "",
        "Instructions of the server for one request, by callgrind, one worker, values of 100 bytes, 10,000 keys: the difference of a long",
        "and a short run. A pipeline ends with one ECHO, whose share is in the figures. `make instructions` counts again and fails if a row",
        "grew by more than 1%; `make instructions ARGS=--update` writes this page.",
        "",
        "| request | instructions |",
        "|---|---:|",
        *(f"| {row} | {round(number):,} |" for row, number in counts.items()),
        "",
    ]
    PAGE.write_text("\n".join(lines))
    BASELINE.write_text(json.dumps({row: round(number, 1) for row, number in counts.items()}, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", help="the server's binary")
    parser.add_argument("--check", action="store_true", help="compare with the committed figures")
    parser.add_argument("--update", action="store_true", help="write the committed figures anew")
    parser.add_argument("--rows", action="append", help="beginning of rows' names; may be repeated")
    arguments = parser.parse_args()
    before = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    counts, grown = {}, []
    for row in ROWS:
        if arguments.rows and not row.startswith(tuple(arguments.rows)):
            continue
        counts[row] = count(arguments.server, row)
        ratio = counts[row] / before[row] if row in before else None
        print(f"{row:48} {counts[row]:10.1f}" + (f"  {ratio:.3f}×" if ratio else ""), flush=True)
        if ratio and ratio > GROWTH_MAX:
            grown.append(row)
    if arguments.update:
        write_page({**before, **counts})
    if arguments.check and grown:
        sys.exit(f"more than 1% above {BASELINE.relative_to(ROOT)}: {'; '.join(grown)}")


if __name__ == "__main__":
    main()
