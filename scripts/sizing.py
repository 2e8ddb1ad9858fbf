#!/usr/bin/env python3
"""Measures what docs/sizing.md tabulates, on this machine: scripts/sizing.py [PROGRAM] [--keys N] [--write]

Starts servers on the loopback in temporary directories, fills each with one kind of data, and prints the rows of the page's table: memory, files,
starts, copies, processor time. `--write` replaces the table in docs/sizing.md. Memory and files are the same on every run; seconds are of processor
time, which depends on the machine and little on what else it does. Needs nothing but Python.
"""

import argparse
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "sizing.md"
MARK = re.compile(r"(<!-- measured: .* -->\n)(.*?)(?=\n\n|\Z)", re.S)
# Kind of data: the command that writes one entry, which `dunlin bench` fills in.
KINDS = {
    "string of 100 bytes": ["-d", "100", "SET", "key:__seq_int__", "__data__"],
    "string of 1,000 bytes": ["-d", "1000", "SET", "key:__seq_int__", "__data__"],
    "hash of 5 fields of 20 bytes": ["-d", "20", "HSET", "key:__seq_int__"] + [w for n in range(5) for w in (f"field{n}", "__data__")],
    "session: 300 bytes, expiring": ["-d", "300", "SET", "key:__seq_int__", "__data__", "EX", "86400"],
}
TICK = os.sysconf("SC_CLK_TCK")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, program, folder, *directives):
        self.program, self.port = program, free_port()
        words = [program, "server", "--port", self.port, "--bind", "127.0.0.1", "--dir", folder, "--save", "", *directives]
        self.process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
        self.until(lambda: self.ask("DBSIZE").startswith(":"), 600)

    def ask(self, *words):
        """A reply as its first line, or the text of a bulk string."""
        request = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode()) for word in words)
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=600) as client, client.makefile("rb") as replies:
                client.sendall(request)
                head = replies.readline().decode().strip()
                return replies.read(int(head[1:])).decode() if head.startswith("$") else head
        except OSError:
            return ""

    def info(self, section):
        return dict(line.split(":", 1) for line in self.ask("INFO", section).splitlines() if ":" in line)

    def cpu_s(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def until(self, holds, deadline_s):
        end = time.monotonic() + deadline_s
        while not holds():
            if self.process.poll() is not None or time.monotonic() > end:
                sys.exit("sizing: a server has ended, or does not get on")
            time.sleep(0.05)

    def bench(self, *words):
        """Runs `dunlin bench` and returns its processor time of the server for each request, in µs."""
        command = [self.program, "bench", "-p", self.port, "-q", *words]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
        return float(re.search(r"CPU per request: ([\d.]+)", done.stdout)[1])

    def end(self):
        self.process.terminate()
        self.process.wait()


def size(folder):
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())


def measure(program, kind, keys):
    """One row: bytes a key in memory, resident, in a snapshot and in a log, and processor seconds for a million keys of a write, a start and a copy."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dunlin-sizing-"))
    (folder / "one").mkdir(), (folder / "two").mkdir()
    try:
        server = Server(program, folder / "one", "--appendonly", "yes", "--auto-aof-rewrite-percentage", "0")
        empty = int(server.info("memory")["used_memory"])
        write_us = server.bench("-n", keys, "-r", keys, "-c", 8, "-P", 64, *KINDS[kind])
        assert server.ask("DBSIZE") == f":{keys}"
        log = size(folder / "one" / "appendonlydir")
        memory = server.info("memory")
        used = int(memory["used_memory"]) - int(memory["mem_not_counted_for_evict"]) - empty
        resident = int(memory["used_memory_rss"])
        before = server.cpu_s()
        server.ask("SAVE")
        save_s, snapshot = server.cpu_s() - before, (folder / "one" / "dump.rdb").stat().st_size
        before = server.cpu_s()
        replica = Server(program, folder / "two", "--replicaof", f"127.0.0.1 {server.port}")
        replica.until(lambda: replica.info("replication").get("master_link_status") == "up" and replica.ask("DBSIZE") == f":{keys}", 600)
        copy_s = server.cpu_s() - before + replica.cpu_s()
        replica.end()
        server.end()
        shutil.rmtree(folder / "two")
        shutil.copytree(folder / "one" / "appendonlydir", folder / "two" / "appendonlydir")
        again = Server(program, folder / "two", "--appendonly", "yes")
        from_log_s = again.cpu_s()
        again.end()
        shutil.rmtree(folder / "two"), (folder / "two").mkdir()
        shutil.copy(folder / "one" / "dump.rdb", folder / "two")
        again = Server(program, folder / "two")
        from_snapshot_s = again.cpu_s()
        again.end()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    per_million = 1e6 / keys
    figures = [used / keys, resident / keys, log / keys, snapshot / keys]
    times = [write_us, save_s * per_million, from_snapshot_s * per_million, from_log_s * per_million, copy_s * per_million]
    return [kind, *(f"{figure:,.0f}" for figure in figures), *(f"{seconds:.2f}" for seconds in times)]


def table(program, keys):
    heads = ["data", "memory", "resident", "log", "snapshot", "write", "save", "start from a snapshot", "start from a log", "copy to a replica"]
    rows = [measure(program, kind, keys) for kind in KINDS]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1), *("| " + " | ".join(row) + " |" for row in rows)]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", default=str(ROOT / "target" / "release" / "dunlin"))
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--write", action="store_true", help="replace the table in docs/sizing.md")
    arguments = parser.parse_args()
    made = table(arguments.program, arguments.keys)
    print(made)
    if arguments.write:
        PAGE.write_text(MARK.sub(lambda found: found[1] + made, PAGE.read_text()))


if __name__ == "__main__":
    main()
