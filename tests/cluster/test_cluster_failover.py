"""A shard whose primary dies, is stopped, or is to end: who serves then, and what is left of the writes."""

import pathlib
import signal
import subprocess
import threading
import time

import pytest
import redis
from redis.exceptions import MovedError

from etcd_cluster import ETCD, WITHOUT_ETCD, Etcd, dunlin_nodes, records, until
from harness import DUNLIN, command, is_redis

pytestmark = [
    pytest.mark.skipif(not ETCD, reason=WITHOUT_ETCD),
    pytest.mark.skipif(is_redis(DUNLIN), reason="a cluster of Dunlin's"),
]


@pytest.fixture()
def etcd():
    with Etcd() as etcd:
        yield etcd


def answer(node, *words, timeout=1):
    """The reply of a node, or the error."""
    try:
        with redis.Redis(port=node.port, socket_timeout=timeout, retry=None) as client:
            return client.execute_command(*words)
    except (redis.RedisError, OSError) as error:
        return error


def in_sync(etcd, count=2):
    """The record of the cluster's only shard, once so many members are in sync."""
    (shard,) = [record for key, record in records(etcd).items() if key.startswith("shards/")]
    return shard if len(shard["in_sync"]) == count else None


def serving(nodes, key="key"):
    """The node that takes writes of a key."""
    return next((node for node in nodes if answer(node, "SET", key, time.monotonic(), timeout=0.3) in (b"OK", True)), None)


def restart(node, etcd, *directives):
    arguments = ["--save", "", "--bind", "127.0.0.1", "--port", node.port, "--dir", node.folder]
    arguments += ["--cluster-join", etcd.join(), "--cluster-replicas", "1", "--unixsocket", node.socket, "--threads", "2"]
    with open(node.log_path, "ab") as log:
        node.process = subprocess.Popen(command(DUNLIN, *arguments, *directives), stdout=log, stderr=log)
    node._await_ping()


def stop(node):
    """Stops a process; every thread of it has."""
    node.process.send_signal(signal.SIGSTOP)
    tasks = pathlib.Path(f"/proc/{node.process.pid}/task")
    state = lambda task: (task / "stat").read_text().rsplit(")", 1)[1].split()[0]  # noqa: E731
    until(lambda: all(state(task) == "T" for task in tasks.iterdir()), "the end of its turn")


class Writer(threading.Thread):
    """Appends numbers to a list, wherever its shard's primary is, and keeps what was acknowledged."""

    def __init__(self, nodes, key="list"):
        super().__init__(daemon=True)
        self.nodes, self.key = nodes, key
        self.acknowledged, self.unknown, self.errors = [], [], []
        self.gap_s = 0.0
        self.is_over = threading.Event()

    def run(self):
        at, number, client, last = 0, 0, None, time.monotonic()
        while not self.is_over.is_set():
            try:
                if client is None:
                    client = redis.Redis(
                        port=self.nodes[at].port, socket_timeout=0.5, single_connection_client=True, retry=None
                    )
                number += 1
                client.rpush(self.key, number)
                self.acknowledged.append(number)
                self.gap_s, last = max(self.gap_s, time.monotonic() - last), time.monotonic()
                continue
            except MovedError as error:
                at = next(place for place, node in enumerate(self.nodes) if node.port == error.port)
            except (redis.RedisError, OSError) as error:
                self.errors.append(f"{type(error).__name__}: {error}")
                self.unknown.append(number)
                at = (at + 1) % len(self.nodes)
                time.sleep(0.005)
            client = None

    def end(self):
        self.is_over.set()
        self.join(30)
        assert not self.is_alive()
        return self

    def check(self, held, lost_max=0):
        """What a list has, against what was acknowledged: in order, nothing that was not written, nothing lost."""
        held = [int(number) for number in held]
        assert held == sorted(set(held)), "an order that nobody wrote"
        lost = set(self.acknowledged) - set(held)
        assert len(lost) <= lost_max, f"{len(lost)} of {len(self.acknowledged)} are lost: {sorted(lost)[:10]}"
        assert set(held) <= set(self.acknowledged) | set(self.unknown)


def list_of(nodes, key="list"):
    node = until(lambda: serving(nodes, key + "{" + key + "}"), "a primary")
    return answer(node, "LRANGE", key, 0, -1, timeout=10)


def test_failover_after_kill(etcd):
    with dunlin_nodes(etcd, 2, replicas=1) as cluster:
        first, second = cluster.nodes
        until(lambda: in_sync(etcd), first.log)
        writer = Writer(cluster.nodes)
        writer.start()
        until(lambda: len(writer.acknowledged) > 200, "writes")
        first.process.kill()
        first.process.wait()
        seen = len(writer.acknowledged)
        until(lambda: len(writer.acknowledged) > seen + 200, lambda: second.log()[-3000:])
        print("gap", writer.gap_s)
        assert shard_order_at(second)[0][2] == second.port
        # The old primary is a replica now, and has what the new one has.
        restart(first, etcd)
        until(lambda: in_sync(etcd), lambda: first.log()[-3000:] + second.log()[-3000:])
        writer.end()
        until(lambda: replica_list(first) == list_of(cluster.nodes), lambda: first.log()[-3000:])
        assert isinstance(answer(first, "GET", "list"), MovedError)


def test_failover_of_a_primary_that_is_stopped(etcd):
    with dunlin_nodes(etcd, 2, replicas=1) as cluster:
        first, second = cluster.nodes
        until(lambda: in_sync(etcd), first.log)
        # Written before it stops, answered when it wakes, if at all: a reply would be of a primary that is none any more.
        late = first.connect(timeout=30)
        writer = Writer(cluster.nodes)
        writer.start()
        until(lambda: len(writer.acknowledged) > 200, "writes")
        stop(first)
        late.sendall(b"SET list{list} late\r\nGET list{list}\r\n")
        seen = len(writer.acknowledged)
        until(lambda: len(writer.acknowledged) > seen + 200, lambda: second.log()[-3000:])
        print("gap", writer.gap_s)
        first.process.send_signal(signal.SIGCONT)
        reply = late.recv(200)
        assert reply == b"" or reply.startswith(b"-MOVED "), reply
        until(lambda: in_sync(etcd), lambda: first.log()[-3000:] + second.log()[-3000:])
        writer.end()
        until(lambda: replica_list(first) == list_of(cluster.nodes), lambda: first.log()[-3000:])


def test_failover_leaves_healthy_shards_alone_while_etcd_is_dead(etcd):
    with dunlin_nodes(etcd, 2, replicas=1) as cluster:
        first, second = cluster.nodes
        until(lambda: in_sync(etcd), first.log)
        writer = Writer(cluster.nodes)
        writer.start()
        etcd.kill()
        seen = len(writer.acknowledged)
        # Longer than leases and promises.
        time.sleep(4)
        until(lambda: len(writer.acknowledged) > seen + 200, "writes")
        writer.end()
        assert not writer.errors, writer.errors[:3]
        etcd.start()
        until(lambda: all("following the records again" in node.log() for node in cluster.nodes), "that it is back")
        assert shard_order_at(second)[0][2] == first.port, "a healthy primary stays"
        writer.check(list_of(cluster.nodes))


def replica_list(node, key="list"):
    try:
        with redis.Redis(port=node.port, single_connection_client=True, socket_timeout=5) as client:
            client.execute_command("READONLY")
            return client.lrange(key, 0, -1)
    except (redis.RedisError, OSError) as error:
        return error


def shard_order_at(node):
    client = redis.Redis(port=node.port, protocol=2)
    client.response_callbacks.clear()
    return [(run[0], run[1], *(member[1] for member in run[2:])) for run in client.execute_command("CLUSTER", "SLOTS")]
