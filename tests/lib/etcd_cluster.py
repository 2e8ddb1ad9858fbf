"""etcd and clusters for tests: of Dunlin nodes that meet in it, and of redis-server or Valkey, the oracles."""

import base64
import contextlib
import functools
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import traceback
import urllib.error
import urllib.request

import pytest
import redis

import retellings
from harness import DUNLIN, Server, free_port, is_redis, suspend
from waiting import DEADLINE_S, until

ETCD, ETCDCTL = shutil.which("etcd"), shutil.which("etcdctl")
REDIS_CLI = shutil.which("redis-cli")
WITHOUT_ETCD = "there is no etcd (apt-get install etcd-server)"
NEEDS_ETCD = [
    pytest.mark.skipif(not ETCD, reason=WITHOUT_ETCD),
    pytest.mark.skipif(is_redis(DUNLIN), reason="a cluster of Dunlin's"),
]


class Stalls:
    """How long this machine has kept a thread waiting that only sleeps, on any of its processors: one may stand still while others
    go on. A node that stands still for longer than its lease is rightly replaced (`is_excuse`), and what a test says of healthy
    nodes is not of this one."""

    PROCESSORS_MAX = 8

    def __init__(self):
        self.longest_s, self.is_over = 0.0, threading.Event()
        processors = sorted(os.sched_getaffinity(0))[: self.PROCESSORS_MAX]
        self.threads = [threading.Thread(target=self.run, args=[one], daemon=True) for one in processors]

    def run(self, processor):
        # Of this thread alone. Where that is not allowed it looks wherever it is.
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {processor})
        before = time.monotonic()
        while not self.is_over.wait(0.01):
            now = time.monotonic()
            self.longest_s, before = max(self.longest_s, now - before - 0.01), now

    def is_excuse(self):
        return self.longest_s > 0.5

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over.set()
        for thread in self.threads:
            thread.join()


class StoodStill(AssertionError):
    """A test has found out by itself that a node stood still for longer than a promise lasts."""


TELLINGS_MAX = 3


@contextlib.contextmanager
def slow_leases():
    """Nodes that begin here keep their roles while the machine stands still for a second: leases and promises last as long as the
    table of times allows (crates/cluster/src/times.rs). Release builds do not know the variable."""
    os.environ["DUNLIN_TEST_SLOW_LEASES"] = "1"
    try:
        yield
    finally:
        del os.environ["DUNLIN_TEST_SLOW_LEASES"]


def told_again(scenario):
    """A test of what healthy nodes do: they keep their roles, and moves come to their ends. Leases are slow, so that a node may stand
    still for a second. If the test fails and the machine stood still meanwhile it is told once more, from the beginning: a primary
    that stands still for longer than its leases is rightly replaced, and a move whose other side does not answer in time rightly
    fails. Retellings are counted (retellings.py)."""

    @functools.wraps(scenario)
    def telling(**fixtures):
        for number in range(1, TELLINGS_MAX + 1):
            with slow_leases(), Stalls() as stalls:
                try:
                    return scenario(**fixtures)
                except (Exception, pytest.fail.Exception) as caught:
                    error = caught
                    is_excused = stalls.is_excuse() or isinstance(error, StoodStill)
                    # A test that has taken its whole time (pytest-timeout) is over.
                    if number == TELLINGS_MAX or not is_excused or str(error).startswith("Timeout (>"):
                        raise
                    traceback.print_exc()
            reason = f"{type(error).__name__}, the machine stood still for {stalls.longest_s:.1f} s"
            print(f"{reason}: told once more")
            retellings.note(reason)
            if "etcd" in fixtures:
                fixtures["etcd"].empty()

    return telling


class Etcd:
    """One etcd, on ports and in a folder of its own."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dunlin-etcd-"))
        self.port, self.peer_port = free_port(), free_port()
        self.process = None
        self.start()

    def back_up(self):
        """Keeps a copy of the data, of which nothing changes meanwhile."""
        self.kill()
        shutil.copytree(self.folder / "data", self.folder / "backup")
        self.start()

    def restore(self):
        """Goes on with the copy instead of the data."""
        self.kill()
        shutil.rmtree(self.folder / "data")
        (self.folder / "backup").rename(self.folder / "data")
        self.start()

    def save_snapshot(self):
        """Keeps a snapshot, as operators do, while it runs."""
        etcdctl = [ETCDCTL, "--endpoints", f"http://127.0.0.1:{self.port}", "snapshot", "save", self.folder / "snapshot"]
        subprocess.run(etcdctl, check=True, env={**os.environ, "ETCDCTL_API": "3"}, stdout=subprocess.DEVNULL)

    def restore_snapshot(self):
        """Goes on with the snapshot instead of the data."""
        self.kill()
        shutil.rmtree(self.folder / "data")
        peer = f"http://127.0.0.1:{self.peer_port}"
        restore = [ETCDCTL, "snapshot", "restore", self.folder / "snapshot", "--data-dir", self.folder / "data", "--name", "one"]
        restore += ["--initial-cluster", f"one={peer}", "--initial-advertise-peer-urls", peer]
        subprocess.run(restore, check=True, env={**os.environ, "ETCDCTL_API": "3"}, stdout=subprocess.DEVNULL)
        self.start()

    def empty(self):
        """Goes on without any data."""
        self.kill()
        for data in (self.folder / "data", self.folder / "backup"):
            shutil.rmtree(data, ignore_errors=True)
        self.start()

    def start(self):
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.peer_port}"
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [
                    ETCD,
                    *("--data-dir", self.folder / "data", "--name", "one", "--unsafe-no-fsync"),
                    *("--listen-client-urls", client, "--advertise-client-urls", client),
                    *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                    *("--initial-cluster", f"one={peer}"),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )

        def listens():
            assert self.process.poll() is None, (self.folder / "log").read_text()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        until(listens, "etcd")

    def join(self, name="test"):
        """What `cluster-join` says for a cluster in it."""
        return f"etcd://127.0.0.1:{self.port}/{name}"

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def pause(self, on):
        suspend(self.process) if on else self.process.send_signal(signal.SIGCONT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def ask_etcd(etcd, path, **request):
    body = json.dumps(request).encode()

    def answer():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{etcd.port}/v3/{path}", body, timeout=DEADLINE_S) as reply:
                return [json.load(reply)]
        except urllib.error.HTTPError as error:
            # It has stood still for too long itself, or has only just begun.
            if error.code < 500:
                raise
            return None

    [found] = until(answer, "etcd's answer")
    return found


def text(value):
    return base64.b64encode(value.encode()).decode()


def records(etcd, name="test"):
    """All records of a cluster, by what follows its name."""
    prefix = f"/dunlin/{name}/"
    found = ask_etcd(etcd, "kv/range", key=text(prefix), range_end=text(f"/dunlin/{name}0"))
    entries = [(base64.b64decode(item["key"]).decode(), base64.b64decode(item["value"])) for item in found.get("kvs", [])]
    return {key.removeprefix(prefix): json.loads(value) for key, value in entries}


def revisions(etcd, kind, name="test"):
    """The revisions of the last changes of some records, by the records' keys."""
    key = f"/dunlin/{name}/{kind}"
    found = ask_etcd(etcd, "kv/range", key=text(key), range_end=text(key[:-1] + chr(ord(key[-1]) + 1)))
    return {item["key"]: item["mod_revision"] for item in found.get("kvs", [])}


def put(etcd, key, record, name="test"):
    ask_etcd(etcd, "kv/put", key=text(f"/dunlin/{name}/{key}"), value=text(json.dumps(record)))


# A controller that is none: nobody plans.
NOBODY = {"v": 1, "node": "f" * 40, "boot": "f" * 40}


class Nodes:
    """Nodes of one cluster, in the order of their slots; the replicas come last."""

    def __init__(self, nodes):
        self.nodes = nodes

    def client(self, number=0, **options):
        return redis.Redis(port=self.nodes[number].port, socket_timeout=30, **options)

    def info(self, number=0):
        text = self.client(number, protocol=2).execute_command("CLUSTER", "INFO")
        lines = text if isinstance(text, dict) else dict(
            line.split(":", 1) for line in text.decode().splitlines() if ":" in line
        )
        return {str(name): str(value) for name, value in lines.items()}

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        try:
            for node in self.nodes:
                node.__exit__(kind, value, trace)
        finally:
            # Where one does not end well, the others end all the same.
            for node in self.nodes:
                node.kill()


def dunlin_nodes(etcd, count, *directives, replicas=0, name="test"):
    """A cluster of Dunlin nodes that is ready. A directive that is a function makes each node's own."""
    nodes = []
    logs = lambda: "\n".join(node.log()[-1500:] for node in nodes)  # noqa: E731
    # It is founded with all of them. Without this, that is done when none has come for two seconds, which one may need to start.
    is_new = not records(etcd, name)
    if is_new:
        put(etcd, "controller", NOBODY, name)
    try:
        for _ in range(count):
            own = ["--cluster-join", etcd.join(name), "--cluster-replicas", str(replicas), "--threads", "2"]
            made = [word for one in directives for word in (one() if callable(one) else [one])]
            nodes.append(Server(*own, *made))
        if is_new:
            of_kind = lambda kind: sum(key.startswith(kind) for key in records(etcd, name))  # noqa: E731
            until(lambda: of_kind("nodes/") == of_kind("alive/") == count, logs)
            ask_etcd(etcd, "kv/deleterange", key=text(f"/dunlin/{name}/controller"))
        cluster = Nodes(nodes)

        def is_ready():
            return all(
                cluster.info(number)["cluster_state"] == "ok" and cluster.info(number)["cluster_known_nodes"] == str(count)
                for number in range(count)
            )

        until(is_ready, logs)
        order = {}
        until(lambda: len(shard_ports(cluster)) == count, logs)
        for first, _, primary, *members in shard_order(cluster):
            order[primary] = (0, first)
            order.update({replica: (1, first) for replica in members})
        nodes.sort(key=lambda node: order.get(node.port, (2, 0)))
        return cluster
    except BaseException:
        for node in nodes:
            print(node.log())
            node.kill()
        raise


def raw_slots(cluster, number=0):
    """CLUSTER SLOTS of a node as it comes."""
    client = cluster.client(number, protocol=2)
    client.response_callbacks.clear()
    return client.execute_command("CLUSTER", "SLOTS")


def shard_order(cluster, number=0):
    """For each run, as a node sees it: its first slot, its last, the ports of primary and replicas."""
    return [(run[0], run[1], *(member[1] for member in run[2:])) for run in raw_slots(cluster, number)]


def shard_ports(cluster):
    return {port for run in shard_order(cluster) for port in run[2:]}


def oracle_nodes(program, count=3, replicas=0):
    """The same of redis-server or Valkey, which redis-cli makes a cluster of."""
    # A node that stands still for some seconds is none that fails.
    own = ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "60000"]
    # The port of the bus is the client's and 10,000.
    nodes = []
    try:
        for _ in range(count + replicas):
            nodes.append(Server(*own, "--cluster-port", str(free_port()), program=program))
        addresses = [f"127.0.0.1:{node.port}" for node in nodes]
        cli = [REDIS_CLI, "--cluster"]
        subprocess.run([*cli, "create", *addresses[:count], "--cluster-yes"], check=True, stdout=subprocess.DEVNULL)
        cluster = Nodes(nodes)
        until(lambda: all(cluster.info(n)["cluster_state"] == "ok" for n in range(count)), "the oracle's cluster")
        for number, address in enumerate(addresses[count:]):
            primary = cluster.client(number, protocol=2).execute_command("CLUSTER MYID")
            primary = primary if isinstance(primary, str) else primary.decode()
            command = [*cli, "add-node", address, addresses[0], "--cluster-slave", "--cluster-master-id", primary]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        wanted = ("ok", str(count + replicas))
        found = lambda info: (info["cluster_state"], info["cluster_known_nodes"])  # noqa: E731
        until(lambda: all(found(cluster.info(n)) == wanted for n in range(count + replicas)), "replicas")
        return cluster
    except BaseException:
        for node in nodes:
            node.kill()
        raise


class Relay:
    """A way to etcd that can be cut."""

    def __init__(self, port):
        self.target, self.is_cut, self.sockets = port, False, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                if self.is_cut:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self.target))
                self.sockets += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self.pass_on, args=[one, other], daemon=True).start()

    def pass_on(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for one in (source, target):
            one.close()

    def cut(self):
        self.is_cut = True
        for one in self.sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
