"""Commands of a cluster in windows of 100 ms while a fourth node joins three and takes its part of the slots.

    PYTHONPATH=tests/lib tests/.env/bin/python tests/cluster/move_figures.py [--program valkey-server] [--keys 2000000] [--clients 3]

Processes write values of 100 bytes to keys of all slots, 16 in a pipeline, as fast as they can; a client of redis-py checks what it
reads meanwhile. (redis-benchmark keeps to one slot of each node.) The windows are counted at the servers. Dunlin's planner moves the
slots; Valkey (9.0 and newer) is told to, by CLUSTER MIGRATESLOTS.
"""

import argparse
import binascii
import itertools
import multiprocessing
import random
import re
import socket
import statistics
import string
import subprocess
import threading
import time


import redis

from etcd_cluster import REDIS_CLI, Etcd, dunlin_nodes, oracle_nodes, shard_order, until
from harness import DUNLIN, Server, free_port, is_redis
from moves import Load, slots_by_port

WINDOW_S = 0.1


class Windows(threading.Thread):
    """Counts what all nodes execute in each window."""

    def __init__(self, nodes):
        super().__init__(daemon=True)
        self.clients = [redis.Redis(port=node.port, socket_timeout=30) for node in nodes]
        self.rates, self.is_over = [], threading.Event()

    def add(self, node):
        self.clients.append(redis.Redis(port=node.port, socket_timeout=30))

    def total(self):
        return sum(client.info("stats")["total_commands_processed"] for client in list(self.clients))

    def run(self):
        last, last_at = self.total(), time.monotonic()
        while not self.is_over.wait(max(0.0, last_at + WINDOW_S - time.monotonic())):
            count, now = self.total(), time.monotonic()
            self.rates.append((now, (count - last) / (now - last_at)))
            last, last_at = count, now

    def between(self, start, end):
        return sorted(rate for at, rate in self.rates if start + WINDOW_S < at <= end)


def tags():
    """For each slot a tag of four letters that is in it."""
    found = [None] * 16_384
    missing = len(found)
    for letters in itertools.product(string.ascii_lowercase.encode(), repeat=4):
        tag = bytes(letters)
        slot = binascii.crc_hqx(tag, 0) % len(found)
        if found[slot] is None:
            found[slot] = tag
            missing -= 1
            if not missing:
                return found
    raise AssertionError("four letters are too few")


class Writes:
    """Sends SETs where their slots are, and follows redirections."""

    BATCH = 16
    VALUE = b"x" * 100

    def __init__(self, ports, each):
        self.links = {port: self.connect(port) for port in ports}
        self.owners = [ports[0]] * 16_384
        self.tags, self.each = tags(), each
        self.errors = []

    def connect(self, port):
        link = socket.create_connection(("127.0.0.1", port), timeout=30)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return link

    def write(self, slot, numbers):
        head = b"*3\r\n$3\r\nSET\r\n$11\r\n{%s}:" % self.tags[slot]
        request = b"".join([b"%s%04d\r\n$100\r\n%s\r\n" % (head, number, self.VALUE) for number in numbers])
        while True:
            port = self.owners[slot]
            link = self.links.get(port) or self.links.setdefault(port, self.connect(port))
            link.sendall(request)
            answer = b""
            while answer.count(b"\r\n") < len(numbers):
                answer += link.recv(1 << 16)
            if b"-" not in answer:
                return
            moved = re.search(rb"-MOVED \d+ [^:]*:(\d+)", answer)
            if moved is None:
                self.errors.append(answer[:200])
                return
            self.owners[slot] = int(moved[1])

    def fill(self):
        for slot in range(16_384):
            for first in range(0, self.each, 64):
                self.write(slot, range(first, min(first + 64, self.each)))

    def go_on(self, until):
        while not until.is_set():
            first = random.randrange(max(1, self.each - self.BATCH))
            self.write(random.randrange(16_384), range(first, first + self.BATCH))


def load(ports, each, ends, errors):
    writes = Writes(ports, each)
    try:
        writes.go_on(ends)
    except OSError as error:
        writes.errors.append(repr(error))
    errors.put(writes.errors)


def join_dunlin(etcd, cluster):
    """A node that joins; what waits until the slots are balanced."""
    newcomer = Server("--cluster-join", etcd.join(), "--cluster-replicas", "0", "--threads", "2")
    is_balanced = lambda: len(slots_by_port(cluster)) == 4 and min(slots_by_port(cluster).values()) > 3_800  # noqa: E731
    return newcomer, lambda: until(is_balanced, lambda: f"{slots_by_port(cluster)} {newcomer.log()}", 300)


def join_valkey(program, cluster):
    own = ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "5000"]
    newcomer = Server(*own, "--cluster-port", str(free_port()), program=program)
    address, first = f"127.0.0.1:{newcomer.port}", f"127.0.0.1:{cluster.nodes[0].port}"
    subprocess.run([REDIS_CLI, "--cluster", "add-node", address, first], check=True, stdout=subprocess.DEVNULL)
    name = redis.Redis(port=newcomer.port, protocol=2).execute_command("CLUSTER MYID")
    name = name if isinstance(name, str) else name.decode()
    until(lambda: all(cluster.info(n)["cluster_known_nodes"] == "4" for n in range(3)), "the fourth node")

    def move():
        for number, (start, _, port, *_) in enumerate(shard_order(cluster)):
            node = next(node for node in cluster.nodes if node.port == port)
            words = ["SLOTSRANGE", start, start + 1_364, "NODE", name]
            redis.Redis(port=node.port, protocol=2).execute_command("CLUSTER MIGRATESLOTS", *words)
            until(lambda n=number: slots_by_port(cluster).get(newcomer.port, 0) == 1_365 * (n + 1), "the move", 300)

    return newcomer, move


def measure(etcd, program, options):
    is_ours = not is_redis(program)
    with (dunlin_nodes(etcd, 3) if is_ours else oracle_nodes(program)) as cluster:
        ports, each = [node.port for node in cluster.nodes], -(-options.keys // 16_384)
        Writes(ports, each).fill()
        print(f"{sum(cluster.client(number).dbsize() for number in range(3))} keys", flush=True)
        ends, errors = multiprocessing.Event(), multiprocessing.Queue()
        writers = [multiprocessing.Process(target=load, args=(ports, each, ends, errors)) for _ in range(options.clients)]
        windows = Windows(cluster.nodes)
        for writer in writers:
            writer.start()
        try:
            with Load(cluster, threads=1) as checked:
                windows.start()
                time.sleep(options.before)
                newcomer, move = join_dunlin(etcd, cluster) if is_ours else join_valkey(program, cluster)
                with newcomer:
                    windows.add(newcomer)
                    begun = time.monotonic()
                    move()
                    ended = time.monotonic()
                    time.sleep(3)
                    windows.is_over.set()
                    windows.join()
                    ends.set()
                    seen = [error for _ in writers for error in errors.get()]
                    checked.stopping.set()
                    checked.check()
        finally:
            for writer in writers:
                writer.kill()
        before, during, after = windows.between(0, begun - 1), windows.between(begun, ended), windows.between(ended, ended + 3)
        median = statistics.median(before)
        print(f"balanced in {ended - begun:.1f} s, {len(during)} windows, errors {checked.errors + seen[:3]}")
        for name, rates in (("before", before), ("during", during), ("after", after)):
            if rates:
                tenth = rates[len(rates) // 10]
                print(
                    f"{name:>7}: median {statistics.median(rates):8.0f}/s ({statistics.median(rates) / median:.2f}), "
                    f"lowest tenth {tenth / median:.2f}, least {rates[0] / median:.2f}",
                    flush=True,
                )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=DUNLIN)
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--before", type=float, default=8)
    options = parser.parse_args()
    if is_redis(options.program):
        measure(None, options.program, options)
    else:
        with Etcd() as etcd:
            measure(etcd, options.program, options)


if __name__ == "__main__":
    main()
