"""Nodes of a shard: who serves, who is in sync, and writers that notice what was acknowledged."""

import subprocess
import threading
import time

import pytest
import redis
from redis.exceptions import MovedError

from etcd_cluster import records, until
from harness import DUNLIN, Server, command

SYNC = ("--cluster-durability", "sync")
PROBE_S = 1


def answer(node, *words, timeout=30):
    """The reply of a node, or the error. Who asks again and again has less patience (`PROBE_S`): the next reply may be another."""
    try:
        with redis.Redis(port=node.port, socket_timeout=timeout, retry=None) as client:
            return client.execute_command(*words)
    except (redis.RedisError, OSError) as error:
        return error


def in_sync(etcd, count=2, name="test"):
    """The record of the cluster's only shard, once so many members are in sync."""
    (shard,) = [record for key, record in records(etcd, name).items() if key.startswith("shards/")]
    return shard if len(shard["in_sync"]) == count else None


def serving(nodes, key="key"):
    """The node that takes writes of a key."""
    return next((node for node in nodes if answer(node, "SET", key, time.monotonic(), timeout=PROBE_S) in (b"OK", True)), None)


def restart(node, etcd, *directives, name="test"):
    arguments = ["--save", "", "--bind", "127.0.0.1", "--port", node.port, "--dir", node.folder]
    arguments += ["--cluster-join", etcd.join(name), "--cluster-replicas", "1", "--unixsocket", node.socket, "--threads", "2"]
    with open(node.log_path, "ab") as log:
        node.process = subprocess.Popen(command(DUNLIN, *arguments, *directives), stdout=log, stderr=log)
    node._await_ping()


def logs(cluster):
    return "\n".join(node.log()[-2500:] for node in cluster.nodes)


def id_of(node):
    name = answer(node, "CLUSTER", "MYID")
    return name if isinstance(name, str) else name.decode()


def replica_value(node, key="key"):
    try:
        with redis.Redis(port=node.port, single_connection_client=True, socket_timeout=5) as client:
            client.execute_command("READONLY")
            return client.get(key)
    except (redis.RedisError, OSError) as error:
        return error


def shard_order_at(node):
    client = redis.Redis(port=node.port, protocol=2)
    client.response_callbacks.clear()
    return [(run[0], run[1], *(member[1] for member in run[2:])) for run in client.execute_command("CLUSTER", "SLOTS")]


class Writer(threading.Thread):
    """Appends numbers to a list, wherever its shard's primary is, and keeps what was acknowledged. Where nothing fails it has
    all patience (`PATIENT`), since the machine may be slow; where something does it looks elsewhere soon."""

    PATIENT = 20.0

    def __init__(self, nodes, key="list", patience_s=0.5):
        super().__init__(daemon=True)
        self.nodes, self.key, self.patience_s = nodes, key, patience_s
        self.acknowledged, self.unknown, self.errors = [], [], []
        self.gap_s = 0.0
        self.is_over = threading.Event()

    def run(self):
        at, number, client, last = 0, 0, None, time.monotonic()
        while not self.is_over.is_set():
            try:
                if client is None:
                    client = redis.Redis(
                        port=self.nodes[at].port,
                        socket_timeout=self.patience_s,
                        single_connection_client=True,
                        retry=None,
                    )
                number += 1
                client.rpush(self.key, number)
                self.acknowledged.append(number)
                self.gap_s, last = max(self.gap_s, time.monotonic() - last), time.monotonic()
                continue
            except MovedError as error:
                places = (place for place, node in enumerate(self.nodes) if node.port == error.port)
                # A node may have got another address meanwhile.
                at = next(places, (at + 1) % len(self.nodes))
            except (redis.RedisError, OSError) as error:
                self.errors.append(f"{type(error).__name__}: {error}")
                self.unknown.append(number)
                at = (at + 1) % len(self.nodes)
                time.sleep(0.005)
                if not any(node.folder.exists() for node in self.nodes):
                    # The test has failed, and they are gone.
                    return
            client = None

    def end(self):
        self.is_over.set()
        self.join(30)
        assert not self.is_alive()
        return self

    def check(self, held, lost_max=0):
        """What a list has, against what was acknowledged: in order, nothing twice, nothing that was not written, nothing lost. What
        was given up may have been made behind what was sent next, on another connection."""
        held = [int(number) for number in held]
        acknowledged = set(self.acknowledged)
        in_order = [number for number in held if number in acknowledged]
        assert in_order == sorted(in_order) and len(held) == len(set(held)), "an order that nobody wrote"
        lost = acknowledged - set(held)
        assert len(lost) <= lost_max, f"{len(lost)} of {len(self.acknowledged)} are lost: {sorted(lost)[:10]}"
        assert set(held) <= acknowledged | set(self.unknown)


def list_of(nodes, key="list"):
    """A list, as the primary has it. Another member may become that between the question who it is and the read."""

    def found():
        node = serving(nodes, key + "{" + key + "}")
        items = node and answer(node, "LRANGE", key, 0, -1)
        return [items] if isinstance(items, list) else None

    (items,) = until(found, "a primary")
    return items


ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")


def start_again(node, etcd, *directives, replicas=0, port=None):
    """Starts a node that has ended, in its directory, and does not wait for it."""
    node.port = port or node.port
    own = ["--save", "", "--bind", "127.0.0.1", "--port", node.port, "--dir", node.folder, "--unixsocket", node.socket]
    own += ["--cluster-join", etcd.join(), "--cluster-replicas", str(replicas), "--threads", "2", *directives]
    with open(node.log_path, "ab") as log:
        node.process = subprocess.Popen(command(DUNLIN, *own), stdout=log, stderr=log)


def kill(*nodes):
    for node in nodes:
        node.process.kill()
    for node in nodes:
        node.process.wait()


def shards(etcd):
    return {key: record for key, record in records(etcd).items() if key.startswith("shards/")}


def are_in_sync(etcd, count):
    """The records of all shards, once so many members of each are in sync."""
    found = shards(etcd)
    return found if all(len(record["in_sync"]) == count for record in found.values()) else None


def held_by(cluster, key):
    client = redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port, socket_timeout=30)
    held = client.lrange(key, 0, -1)
    client.close()
    return held


def run(*words, code=0, environment=None):
    done = subprocess.run([DUNLIN, "cluster", *map(str, words)], capture_output=True, text=True, timeout=180, env=environment)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def fails(*directives, folder=None):
    """What a server says that does not start, or ends by itself."""
    with pytest.raises(AssertionError) as failure:
        with Server(*directives, files=folder) as server:
            code = server.process.wait(120)
            raise AssertionError(f"ended with {code}:\n{server.log()}")
    return str(failure.value)
