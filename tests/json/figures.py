"""JSON beside RedisJSON: bytes a document, and processor time of the server a command, with pipelines of 16.

    DUNLIN=target/release/dunlin tests/.env/bin/python tests/json/figures.py [--commands N]

The other server is redis-server 7.4 with RedisJSON 2.8 of scripts/get-redis.sh. Documents: 1 KB with ten members, of which one is
an object and one an array of forty integers; arrays of 90 and of 9,000 of them. Prints a table for docs/benchmarks/json.md.
"""

import argparse
import json
import os
import pathlib
import re
import socket
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
from captures import WITH_MODULES
from harness import DUNLIN, REDIS_VERSIONS, Server

PIPELINE = 16


def record(number):
    return {
        "id": number,
        "name": f"A name of record {number}",
        "email": f"record.{number}@mail.example.org",
        "active": number % 2 == 0,
        "balance": round(number * 1.37 % 1000, 2),
        "created": "2026-11-28T08:45:49Z",
        "about": "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor. " * 7,
        "tags": ["one", "two", "three"],
        "address": {"street": "Main Street", "number": number % 100, "city": "Ghent", "zip": "9000"},
        "values": [number * place % 1000 for place in range(40)],
    }


def minified(value):
    return json.dumps(value, separators=(",", ":")).encode()


def encoded(*words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class Side:
    """A server, and a connection that sends pipelines."""

    def __init__(self, server):
        self.pid = server.process.pid
        self.socket = socket.create_connection(("127.0.0.1", server.port))
        self.file = self.socket.makefile("rb", 1 << 20)

    def skip(self):
        line = self.file.readline()
        assert line[:1] != b"-", line
        if line[:1] == b"$" and line[1:2] != b"-":
            self.file.read(int(line[1:]) + 2)
        elif line[:1] == b"*":
            for _ in range(int(line[1:])):
                self.skip()

    def send(self, commands):
        self.socket.sendall(b"".join(commands))
        for _ in commands:
            self.skip()

    def memory(self):
        self.socket.sendall(encoded("INFO", "memory"))
        length = int(self.file.readline()[1:])
        return int(re.search(rb"used_memory:(\d+)", self.file.read(length + 2))[1])

    def processor_s(self):
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def us_per_command(self, commands, count):
        """Microseconds of processor time of the server for each of `count` commands."""
        batches = [commands[at : at + PIPELINE] for at in range(0, len(commands), PIPELINE)]
        before, sent = self.processor_s(), 0
        while sent < count:
            for batch in batches:
                self.send(batch)
                sent += len(batch)
        return (self.processor_s() - before) * 1e6 / sent


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--commands", type=int, default=200_000)
    options = arguments.parse_args()
    rows = []
    with Server("--save", "") as dunlin, Server("--save", "", *WITH_MODULES[:2], program=REDIS_VERSIONS["7.4"]) as redis:
        sides = [Side(dunlin), Side(redis)]
        for title, records, documents in [("1 KB", None, 2000), ("100 KB", 90, 50), ("10 MB", 9000, 2)]:
            text = [minified(record(n) if records is None else [record(n + m) for m in range(records)]) for n in range(documents)]
            size = sum(map(len, text)) / documents
            at = "$" if records is None else f"$[{records // 2}]"
            keys = [f"doc:{n}" for n in range(documents)]
            figures = []
            for side in sides:
                side.send([encoded("FLUSHALL")])
                before = side.memory()
                for key, document in zip(keys, text):
                    side.send([encoded("JSON.SET", key, "$", document)])
                taken = (side.memory() - before) / documents / size
                count = options.commands if records is None else options.commands // 10
                wholes = max(4, count // (1 if records is None else records))
                figures.append(
                    [
                        taken,
                        side.us_per_command([encoded("JSON.GET", key, "$") for key in keys] * (1 + PIPELINE // documents), wholes),
                        side.us_per_command([encoded("JSON.GET", key, f"{at}.address.city") for key in keys] * (1 + PIPELINE // documents), count),
                        side.us_per_command([encoded("JSON.NUMINCRBY", key, f"{at}.balance", 1) for key in keys] * (1 + PIPELINE // documents), count),
                        side.us_per_command(
                            [encoded("JSON.SET", key, f"{at}.name", json.dumps("x" * (n % 30))) for n, key in enumerate(keys)] * (1 + PIPELINE // documents), count
                        ),
                        side.us_per_command([encoded("JSON.SET", key, "$", document) for key, document in zip(keys, text)], wholes),
                    ]
                )
            names = ["bytes in memory, of the text", "GET `$`", "GET of a member", "NUMINCRBY of a member", "SET of a member", "SET of the document"]
            for name, ours, theirs in zip(names, *figures):
                rows.append(f"| {title} ({size:,.0f} B) | {name} | {ours:,.2f} | {theirs:,.2f} | {ours / theirs:.2f} |")
                print(rows[-1], flush=True)
        string = [encoded("SET", f"s:{n}", "x" * 1024) for n in range(2000)]
        sides[0].send(string)
        print(f"| | GET of a string of 1 KB | {sides[0].us_per_command([encoded('GET', f's:{n}') for n in range(2000)], options.commands):,.2f} | | |")


if __name__ == "__main__":
    print("| document | command | Dunlin, µs | RedisJSON 2.8, µs | ratio |\n|---|---|---:|---:|---:|")
    main()
