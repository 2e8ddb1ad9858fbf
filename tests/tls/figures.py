"""Processor time of requests inside TLS, of handshakes, and memory of idle connections, beside redis-server.

    PYTHONPATH=tests/lib tests/.env/bin/python tests/tls/figures.py [REQUESTS]

Both servers have one thread and the same certificate (ECDSA P-256). Processor time is the server's own (/proc/PID/stat), so
that other load on the machine matters little; runs alternate, and the median counts.
"""

import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

from harness import DUNLIN, ORACLE, is_redis
from peers import Files, TlsServer

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
ROUNDS = 5
IDLE = 400


def cpu_s(server):
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def resident(server):
    for line in pathlib.Path(f"/proc/{server.process.pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no such line")


def start(files, program):
    given = [] if is_redis(program) else ["--threads", "1"]
    return TlsServer(files, "--tls-auth-clients", "no", *given, program=program)


def benchmark(server, files, command, pipeline, requests):
    given = ["redis-benchmark", "-h", "localhost", "-p", server.tls_port, "--tls", "--cacert", files.authority.cert]
    given += ["-t", command, "-n", requests, "-P", pipeline, "-c", 20, "-d", 100, "-r", 1000, "-q"]
    before = cpu_s(server)
    subprocess.run(list(map(str, given)), check=True, capture_output=True)
    return (cpu_s(server) - before) / requests * 1e6


def handshakes(server, count, resumes):
    context = server.context()
    session = None
    if resumes:
        with server.session(context=context) as wrapped:
            wrapped.sendall(b"PING\r\n")
            wrapped.recv(64)
            session = wrapped.session
    before = cpu_s(server)
    for _ in range(count):
        with server.session(context=context, session=session) as wrapped:
            wrapped.sendall(b"PING\r\n")
            wrapped.recv(64)
            assert wrapped.session_reused == resumes
            if resumes:
                session = wrapped.session
    return (cpu_s(server) - before) / count * 1e6


def idle_bytes(server):
    def connect():
        plain = socket.create_connection(("127.0.0.1", server.tls_port))
        wrapped = server.context().wrap_socket(plain, server_hostname="localhost")
        wrapped.sendall(b"PING\r\n")
        assert wrapped.recv(64) == b"+PONG\r\n"
        return wrapped

    few = [connect() for _ in range(20)]
    time.sleep(1.5)
    before = resident(server)
    many = [connect() for _ in range(IDLE)]
    time.sleep(1.5)
    grown = resident(server) - before
    for one in few + many:
        one.close()
    return grown / IDLE


def main():
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 40_000
    files = Files()
    try:
        with start(files, DUNLIN) as ours, start(files, ORACLE) as redis:
            print(f"{'':28}{'dunlin':>10}{'redis':>10}{'ratio':>8}")

            def row(name, measure):
                pairs = [(measure(ours), measure(redis)) for _ in range(ROUNDS)]
                ours_median, redis_median = (statistics.median(side) for side in zip(*pairs))
                print(f"{name:28}{ours_median:10.2f}{redis_median:10.2f}{ours_median / redis_median:8.2f}", flush=True)

            for command in ("set", "get"):
                for pipeline in (1, 16, 100):
                    count = requests if pipeline == 1 else requests * 4
                    row(f"{command.upper()} pipeline {pipeline}, µs", lambda one: benchmark(one, files, command, pipeline, count))
            row("handshake, µs", lambda one: handshakes(one, 300, False))
            row("resumed handshake, µs", lambda one: handshakes(one, 300, True))
        with start(files, DUNLIN) as ours, start(files, ORACLE) as redis:
            pair = idle_bytes(ours), idle_bytes(redis)
            print(f"{'idle connection, bytes':28}{pair[0]:10.0f}{pair[1]:10.0f}{pair[0] / pair[1]:8.2f}")
    finally:
        files.remove()


if __name__ == "__main__":
    main()
