"""Figures of replication beside redis-server and Valkey.

    PYTHONPATH=tests/lib tests/.env/bin/python tests/replication/figures.py [set] [apply] [full] [primary] [psync] [sentinel] [--keys N] [--requests N] [--away SECONDS]
                                               [--rounds N]

Without a name, all of them. Runs of the houses alternate, and the median counts. Processor time is a server's own (/proc/PID/stat),
so that other load on the machine matters little; where time itself is the figure, it is that of a busy machine.

set        processor time of a primary for each SET of 100 bytes at pipeline 16, without and with one replica of its house
apply      processor time and rate of a replica that catches up with SETs of a redis-server
full       a full resynchronisation under load: throughput of the primary before and during, memory, time, loading
primary    the same as the primary sees it: the replica is a program that throws away what it gets, as one on another machine
           takes no processor time of this one
psync      a replica that is away under full load, 20 times: resynchronisations that were partial
sentinel   from kill -9 of a primary to the first write that its replica takes
"""

import pathlib
import os
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

from harness import DUNLIN, ORACLE, VALKEY, suspend
from links import Link, Node, has_link, settle, until
from sentinels import Sentinel

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
HOUSES = {"dunlin": DUNLIN, "redis": ORACLE, **({"valkey": VALKEY} if VALKEY else {})}


def option(name, default):
    return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else default


KEYS = option("--keys", 200_000)
ROUNDS = option("--rounds", 3)
REQUESTS = option("--requests", 4 * KEYS)
AWAY_S = option("--away", 6)


def cpu_s(server):
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def resident_bytes(server):
    for line in pathlib.Path(f"/proc/{server.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no such line")


def node(house, *directives):
    own = ["--threads", "1"] if house == "dunlin" else []
    return Node(HOUSES[house], "--client-output-buffer-limit", "replica 0 0 0", *own, *directives)


def writer(server, requests, keys=None):
    words = ["redis-benchmark", "-p", server.port, "-t", "set", "-n", requests, "-P", 16, "-c", 20, "-d", 100]
    return subprocess.Popen([str(word) for word in [*words, "-r", keys or KEYS, "-q"]], stdout=subprocess.DEVNULL)


def write(server, requests, keys=None):
    assert writer(server, requests, keys).wait() == 0


def fill(server, keys):
    server.call("DEBUG", "POPULATE", keys, "key", 100)


def table(title, rows):
    print(f"\n{title}\n{'':34}" + "".join(f"{house:>12}" for house in HOUSES))
    for name, values in rows.items():
        print(f"{name:34}" + "".join(f"{values[house]:12.2f}" for house in HOUSES), flush=True)


def medians(measure):
    """What each house has in the middle of its runs, which alternate."""
    runs = {house: [] for house in HOUSES}
    for _ in range(ROUNDS):
        for house in HOUSES:
            runs[house].append(measure(house))
    return {house: statistics.median(run) for house, run in runs.items()}


def figures_set():
    requests = REQUESTS

    def measure(house, has_replica):
        with node(house) as primary, node(house) as replica:
            if has_replica:
                replica.follow(primary.port)
                settle(primary, replica)
            write(primary, KEYS)
            before = cpu_s(primary)
            write(primary, requests)
            return (cpu_s(primary) - before) / requests * 1e6

    alone = medians(lambda house: measure(house, False))
    fed = medians(lambda house: measure(house, True))
    rows = {"alone, µs": alone, "with a replica, µs": fed}
    rows["increase, %"] = {house: (fed[house] / alone[house] - 1) * 100 for house in HOUSES}
    table("SET of 100 bytes, pipeline 16: the primary's processor time for each", rows)


def figures_apply():
    requests = REQUESTS
    seconds = {}

    def measure(house):
        with node("redis") as primary, node(house) as replica:
            replica.follow(primary.port)
            settle(primary, replica)
            # What it lacks waits in the primary's output buffer.
            suspend(replica.process)
            write(primary, requests)
            wanted = primary.info()["master_repl_offset"]
            before, begun = cpu_s(replica), time.monotonic()
            replica.process.send_signal(signal.SIGCONT)
            until(lambda: replica.info()["slave_repl_offset"] >= wanted, "a replica that has caught up")
            seconds.setdefault(house, []).append(time.monotonic() - begun)
            return (cpu_s(replica) - before) / requests * 1e6

    cost = medians(measure)
    rate = {house: requests / statistics.median(took) / 1000 for house, took in seconds.items()}
    rows = {"processor time for each, µs": cost, "rate, thousand a second": rate}
    rows["rate, redis = 1"] = {house: rate[house] / rate["redis"] for house in HOUSES}
    table("A replica that applies SETs of a redis-server", rows)


def throughput(primary, interval_s, until_true):
    """Commands of the primary in each interval until something is so."""
    count = lambda: primary.info("stats")["total_commands_processed"]
    rates, last, at = [], count(), time.monotonic()
    while not until_true():
        time.sleep(max(0, at + interval_s - time.monotonic()))
        now, seen = time.monotonic(), count()
        rates.append((seen - last) / (now - at))
        last, at = seen, now
    return rates


def resynchronise(primary, begin, is_done):
    """A full resynchronisation under load, which `begin` begins: its time, and the primary's throughput and memory meanwhile."""
    fill(primary, 5 * KEYS)
    load = writer(primary, 10**9)
    time.sleep(1)
    ended = time.monotonic() + 3
    before = statistics.median(throughput(primary, 0.1, lambda: time.monotonic() > ended))
    memory, peak = resident_bytes(primary), [0]
    done = threading.Event()

    def watch():
        while not done.is_set():
            peak[0] = max(peak[0], resident_bytes(primary))
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    begun = time.monotonic()
    begin()
    during = throughput(primary, 0.1, is_done)
    took = time.monotonic() - begun
    done.set()
    watcher.join()
    load.kill()
    load.wait()
    return {
        "time, s": took,
        "throughput during, before = 1": statistics.mean(during) / before,
        "worst 100 ms, before = 1": min(during) / before,
        "memory of the primary, before = 1": peak[0] / memory,
    }


def tables_of(title, measure):
    """A table of what `measure` finds for each house, in the middle of its runs."""
    found = {}

    def note(house):
        row = measure(house)
        for name, value in row.items():
            found.setdefault(name, {}).setdefault(house, []).append(value)
        return row["time, s"]

    medians(note)
    rows = {name: {house: statistics.median(runs) for house, runs in row.items()} for name, row in found.items()}
    table(title, rows)


def figures_full():
    def measure(house):
        with node(house) as primary, node(house) as replica:
            spent = cpu_s(replica)
            row = resynchronise(primary, lambda: replica.follow(primary.port), lambda: has_link(replica))
            return {**row, "processor time of the replica, s": cpu_s(replica) - spent}

    tables_of(f"Full resynchronisation of {5 * KEYS} keys of 100 bytes under load", measure)


class Sink(threading.Thread):
    """A replica that throws away what it gets, as far as the end of the snapshot."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.socket = socket.create_connection(("127.0.0.1", port))

    def run(self):
        stream = self.socket.makefile("rb", 1 << 20)
        self.socket.sendall(b"REPLCONF capa eof capa psync2 capa dunlin capa frames\r\n")
        assert stream.readline() == b"+OK\r\n"
        self.socket.sendall(b"PSYNC ? -1\r\n")
        while not (line := stream.readline()).startswith(b"$"):
            assert line.startswith((b"+FULLRESYNC", b"\n")), line
        if line.startswith(b"$FRAMES"):
            while not (head := stream.read(5)).startswith(b"E"):
                stream.read(int.from_bytes(head[1:], "big"))
        elif line.startswith(b"$EOF:"):
            mark, last = line[5:45], b""
            while not last.endswith(mark):
                last = last[-40:] + stream.read1(1 << 20)
        else:
            left = int(line[1:])
            while left > 0:
                left -= len(stream.read1(min(left, 1 << 20)))


def figures_primary():
    def measure(house):
        with node(house) as primary:
            sink = Sink(primary.port)
            row = resynchronise(primary, sink.start, lambda: not sink.is_alive())
            sink.socket.close()
            return row

    tables_of(f"The primary of a full resynchronisation of {5 * KEYS} keys of 100 bytes under load", measure)


def figures_psync():
    rows = {"partial of 20": {}}
    for house in HOUSES:
        given = ["--repl-backlog-size", "10mb"]
        if house == "dunlin":
            # A minute at full load is more than the 1 GB of log files that are kept by default.
            given += ["--appendonly", "yes", "--repl-backlog-disk-size", "8gb"]
        with node(house, *given) as primary, node(house) as replica, Link(primary.port) as link:
            replica.follow(link.port)
            settle(primary, replica)
            count = lambda: primary.info("stats")["sync_partial_ok"]
            before, load = count(), writer(primary, 10**9)
            for _ in range(20):
                link.cut(refuse=True)
                time.sleep(AWAY_S)
                link.heal()
                until(lambda: has_link(replica), "a link", 300)
            load.kill()
            load.wait()
            rows["partial of 20"][house] = count() - before
    table(f"A replica that is away for {AWAY_S} s under full load, with 10 MB of backlog in memory", rows)


def figures_sentinel():
    def measure(house):
        with node(house) as primary, node(house, "--replica-priority", 1) as replica:
            replica.follow(primary.port)
            settle(primary, replica)
            with Sentinel(ORACLE, primary, down_after_ms=1000, failover_timeout_ms=10_000) as sentinel:
                until(lambda: sentinel.knows(replica), "the discovery of the replica")
                primary.client.close()
                primary.process.kill()
                begun = time.monotonic()
                primary.process.wait()
                primary.stop = primary.kill

                def takes_a_write():
                    try:
                        return replica.call("SET", "after", 1)
                    except Exception:
                        return False

                until(takes_a_write, "a new primary")
                return time.monotonic() - begun

    table("Sentinel, 1 s until a server counts as down: from kill -9 to the first write", {"seconds": medians(measure)})


def main():
    known = {name.removeprefix("figures_"): run for name, run in globals().items() if name.startswith("figures_")}
    wanted = [name for name in known if name in sys.argv[1:]] or list(known)
    for name in wanted:
        known[name]()


if __name__ == "__main__":
    main()
