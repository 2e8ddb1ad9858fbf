"""Commands of a cluster in windows of 100 ms while a fourth node joins three and takes its part of the slots.

    tests/.env/bin/python tests/cluster/move_figures.py [--program valkey-server] [--keys 2000000] [--clients 24] [--verbs set,get]

redis-benchmark writes and reads keys of 100 bytes all the time, as fast as it can; one client of redis-py checks replies meanwhile.
The windows are counted at the servers. Dunlin's planner moves the slots; Valkey (9.0 and newer) is told to, by CLUSTER MIGRATESLOTS.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import threading
import time

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent), str(pathlib.Path(__file__).resolve().parent)]

import redis  # noqa: E402
from etcd_cluster import REDIS_CLI, Etcd, dunlin_nodes, oracle_nodes, shard_order, until  # noqa: E402
from harness import DUNLIN, Server, free_port, is_redis  # noqa: E402
from test_cluster_moves import Load  # noqa: E402

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


def benchmark(port, *options):
    words = ["redis-benchmark", "--cluster", "-p", port, "-d", 100, *options]
    return subprocess.Popen(list(map(str, words)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def counts(cluster):
    """How many slots each port has."""
    found = {}
    for first, last, port, *_ in shard_order(cluster):
        found[port] = found.get(port, 0) + last - first + 1
    return found


def join_dunlin(etcd, cluster):
    """A node that joins; what waits until the slots are balanced."""
    newcomer = Server("--cluster-join", etcd.join(), "--cluster-replicas", "0", "--threads", "2")
    return newcomer, lambda: until(lambda: len(counts(cluster)) == 4 and min(counts(cluster).values()) > 3_800, newcomer.log, 300)


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
            until(lambda n=number: counts(cluster).get(newcomer.port, 0) == 1_365 * (n + 1), "the move", 300)

    return newcomer, move


def measure(etcd, program, options):
    is_ours = not is_redis(program)
    with (dunlin_nodes(etcd, 3) if is_ours else oracle_nodes(program)) as cluster:
        port = cluster.nodes[0].port
        benchmark(port, "-t", "set", "-r", options.keys, "-n", 2 * options.keys, "-P", 32, "-c", 12, "-q").wait()
        print(f"{sum(cluster.client(number).dbsize() for number in range(3))} keys", flush=True)
        load = benchmark(port, "-t", options.verbs, "-r", options.keys, "-c", options.clients, "-n", 10**9, "-q")
        windows = Windows(cluster.nodes)
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
                    checked.stopping.set()
                    load.kill()
                    checked.check()
        finally:
            load.kill()
            load.wait()
        before, during, after = windows.between(0, begun - 1), windows.between(begun, ended), windows.between(ended, ended + 3)
        median = statistics.median(before)
        print(f"balanced in {ended - begun:.1f} s, {len(during)} windows, errors {checked.errors}")
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
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--verbs", default="set")
    parser.add_argument("--before", type=float, default=8)
    options = parser.parse_args()
    if is_redis(options.program):
        measure(None, options.program, options)
    else:
        with Etcd() as etcd:
            measure(etcd, options.program, options)


if __name__ == "__main__":
    main()
