"""Processor time of a SET, and of one that evicts, beside redis-server and Valkey.

    DUNLIN=target/release/dunlin PYTHONPATH=tests/lib tests/.env/bin/python tests/wire/eviction_figures.py [REQUESTS]

Values of 100 bytes, `allkeys-lru`, requests in pipelines of 100. A SET that evicts is one of 3 million keys at a limit of 64 MB, a
SET that does not one of 300,000 without a limit. Processor time is the server's own (/proc/PID/stat); runs alternate, and the median counts.
"""

import os
import pathlib
import random
import socket
import statistics
import sys

from harness import DUNLIN, ORACLE, VALKEY, Server, is_redis

TICK_US = 1e6 / os.sysconf("SC_CLK_TCK")
ROUNDS = 3
DEPTH = 100
VALUE = b"x" * 100


def cpu_us(server):
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK_US


def request(key):
    return b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(key), key, len(VALUE), VALUE)


def send(client, requests, keys, seed):
    choices = random.Random(seed)
    for _ in range(requests // DEPTH):
        client.sendall(b"".join(request(b"key:%012d" % choices.randrange(keys)) for _ in range(DEPTH)))
        missing = len(b"+OK\r\n") * DEPTH
        while missing:
            missing -= len(client.recv(missing))


def measure(program, requests, evicts):
    limit = ["--maxmemory", "64mb"] if evicts else []
    threads = [] if is_redis(program) else ["--threads", "2"]
    with Server("--maxmemory-policy", "allkeys-lru", *limit, *threads, program=program) as server:
        client = socket.create_connection(("127.0.0.1", server.port))
        keys = 3_000_000 if evicts else 300_000
        send(client, requests, keys, 1)
        before = cpu_us(server)
        send(client, requests, keys, 2)
        return (cpu_us(server) - before) / requests


def main():
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 600_000
    programs = [program for program in (DUNLIN, ORACLE, VALKEY) if program]
    for evicts in (True, False):
        runs = [[measure(program, requests, evicts) for program in programs] for _ in range(ROUNDS)]
        own, *theirs = (statistics.median(each) for each in zip(*runs))
        print("SET that evicts" if evicts else "SET")
        print(f"    {own:.2f} µs  {programs[0]}")
        for program, time in zip(programs[1:], theirs):
            print(f"    {time:.2f} µs  {program}: {own / time:.2f} of it")


if __name__ == "__main__":
    main()
