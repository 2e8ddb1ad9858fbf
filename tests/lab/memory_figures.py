"""Memory of keys that applications have, beside redis-server and Valkey: rows of docs/benchmarks/README.md.

    DUNLIN=target/release/dunlin PYTHONPATH=tests/lib tests/.env/bin/python tests/lab/memory_figures.py

Growth of `used_memory` for a key, in brackets that of the resident memory, of a fresh server that gets so many of one kind that
the smallest of them takes 64 MB. Texts are as long as real ones and differ from key to key.
"""

import hashlib
import pathlib
import time

from harness import DUNLIN, ORACLE, VALKEY, Server
from resp import Client

BATCH = 200


def text(number, name, length):
    """Letters and digits that depend on a key's number and the name of the text."""
    words = "".join(hashlib.sha256(f"{name}{number}{part}".encode()).hexdigest() for part in range(length // 64 + 1))
    return words[:length]


def session(n):
    key = "session:" + text(n, "id", 32)
    fields = {
        "user": str(10_000_000 + n),
        "created": str(1_700_000_000 + n),
        "seen": str(1_700_100_000 + n),
        "address": f"10.{n % 251}.{n % 241}.{n % 239}",
        "token": text(n, "token", 32),
        "locale": "en_GB",
    }
    words = [word for pair in fields.items() for word in pair]
    return [["HSET", key, *words], ["EXPIRE", key, 86_400]]


def profile(n):
    fields = {
        "name": text(n, "name", 18),
        "email": text(n, "email", 26),
        "phone": f"+4915{n:09}",
        "street": text(n, "street", 40),
        "city": text(n, "city", 12),
        "about": text(n, "about", 500),
        "settings": text(n, "settings", 300),
        "created": str(1_600_000_000 + n),
    }
    return [["HSET", f"user:{n:08}", *(word for pair in fields.items() for word in pair)]]


def feed(n):
    return [["RPUSH", f"feed:{n:08}", *(1_234_567_890_000_000 + n * 1000 + post for post in range(100))]]


def followers(n):
    return [["SADD", f"followers:{n:08}", *(1_000_000 + n * 61 + other * 7919 for other in range(50))]]


def leaderboard(n):
    players = [word for p in range(100) for word in (p * p % 9973, f"player:{n % 1000 * 100 + p:06}")]
    return [["ZADD", f"board:{n:06}", *players]]


def counter(n):
    return [["SET", f"views:{n:08}", n * 7]]


ROWS = [
    ("a counter", counter, 1_000_000),
    ("a session: 6 fields, 120 B in all, expires", session, 300_000),
    ("a profile: 8 fields, 1 KB in all", profile, 60_000),
    ("a feed: list of 100 numbers of 16 digits", feed, 75_000),
    ("followers: set of 50 numbers", followers, 250_000),
    ("a leaderboard: 100 players", leaderboard, 40_000),
]


def info(client, field):
    lines = client("INFO", "memory").decode().splitlines()
    return next(int(line.split(":")[1]) for line in lines if line.startswith(f"{field}:"))


def resident(server):
    return int(pathlib.Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * 4096


def measure(program, make, keys):
    with Server("--appendonly", "no", program=program) as server:
        client = Client(server)
        client("PING")
        before = info(client, "used_memory"), resident(server)
        for start in range(0, keys, BATCH):
            commands = [command for n in range(start, min(keys, start + BATCH)) for command in make(n)]
            client.together(commands)
        # Tables that grow step by step come to their end.
        for _ in range(50):
            client.together([["EXISTS", "none"]] * 200)
        client("MEMORY", "PURGE")
        time.sleep(0.5)
        return (info(client, "used_memory") - before[0]) / keys, (resident(server) - before[1]) / keys


def main():
    programs = [program for program in (DUNLIN, ORACLE, VALKEY) if program]
    print("| key | " + " | ".join(pathlib.Path(program).name for program in programs) + " |")
    for name, make, keys in ROWS:
        figures = [measure(program, make, keys) for program in programs]
        better = min(used for used, _ in figures[1:])
        cells = [f"{used:.0f} ({own:.0f})" for used, own in figures]
        print(f"| {name} | " + " | ".join(cells) + f" | {figures[0][0] / better:.2f}×", flush=True)


if __name__ == "__main__":
    main()
