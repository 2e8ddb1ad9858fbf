"""Clusters under test: of Dunlin nodes that meet in etcd, and of redis-server."""

import os
import pathlib
import shutil
import signal
import struct
import subprocess
import time

from harness import DUNLIN, ORACLE, suspend

from .client import Connection

PORT = 6379
_READY_S = 90
_HERE = pathlib.Path(__file__).parent


def build_shims(folder):
    """Builds what makes disks fail and sets clocks; the paths, for LD_PRELOAD."""
    shims = []
    for source in (_HERE.parent / "durability" / "faults.c", _HERE / "clock.c"):
        shim = pathlib.Path(folder) / f"{source.stem}.so"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", shim, source, "-ldl", "-pthread"], check=True)
        shims.append(str(shim.resolve()))
    return shims


class Process:
    """A program on a host, with a folder of its own that outlives it."""

    def __init__(self, host, folder, command, shims=()):
        self.host, self.folder, self.command = host, pathlib.Path(folder).resolve(), command
        self.data = self.folder / "data"
        self.data.mkdir(parents=True, exist_ok=True)
        self.environment = None
        if shims:
            self.break_disk(None)
            self.ahead_s = 0
            self.set_clock(0)
            self.environment = {
                **os.environ,
                "LD_PRELOAD": ":".join(shims),
                "FAULTS_DIRECTORY": str(self.data),
                "FAULTS_CONTROL": str(self.folder / "disk"),
                "CLOCK_OFFSET": str(self.folder / "clock"),
            }
        self.process = None

    def break_disk(self, fault):
        """Has the disk fail from here on, in a line of durability/faults.c, or no longer."""
        (self.folder / "disk.new").write_text(f"{fault}\n" if fault else "")
        (self.folder / "disk.new").rename(self.folder / "disk")

    def set_clock(self, ahead_s):
        """Sets the clock on the wall, so far ahead of the others'."""
        self.ahead_s = ahead_s
        # In place: processes have it mapped.
        with open(self.folder / "clock", "r+b" if (self.folder / "clock").exists() else "wb") as clock:
            clock.write(struct.pack("q", int(ahead_s * 1e9)))

    @property
    def address(self):
        return (self.host.address, PORT)

    def start(self):
        if self.process is None or self.process.poll() is not None:
            with open(self.folder / "output", "ab") as output:
                self.process = self.host.start(
                    [str(word) for word in self.command],
                    cwd=self.data,
                    env=self.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def pause(self, on):
        if self.process is not None and self.process.poll() is None:
            suspend(self.process) if on else self.process.send_signal(signal.SIGCONT)

    def ask(self, *command, timeout_s=1.0):
        """The reply to a command, `None` where there is none."""
        try:
            connection = Connection(self.address, timeout_s)
        except OSError:
            return None
        try:
            connection.send(command)
            return connection.reply()
        except OSError:
            return None
        finally:
            connection.close()


def _until(condition, what):
    deadline = time.monotonic() + _READY_S
    while not condition():
        assert time.monotonic() < deadline, f"in vain: {what()}"
        time.sleep(0.2)


class Cluster:
    """What both kinds have."""

    stores = ()

    def addresses(self):
        return [node.address for node in self.nodes]

    def primaries(self):
        """The nodes that any node says are primaries with slots."""
        for node in self.nodes:
            text = node.ask("CLUSTER", "NODES", timeout_s=0.5)
            if isinstance(text, bytes) and not text.startswith(b"ERR"):
                lines = [line.split() for line in text.decode().splitlines()]
                hosts = {line[1].split(":")[0] for line in lines if "master" in line[2] and "fail" not in line[2].split(",") and len(line) > 8}
                found = [node for node in self.nodes if node.host.address in hosts]
                if found:
                    return found
        return self.nodes

    def shards(self):
        """The shards with slots, by the ids of their primaries: the node and its runs of slots, as any node says."""
        for node in self.nodes:
            runs = node.ask("CLUSTER", "SLOTS", timeout_s=0.5)
            if not isinstance(runs, list):
                continue
            found = {}
            for first, last, (host, _, name, *_), *_ in runs:
                primary = next((node for node in self.nodes if node.host.address == host.decode()), None)
                if primary is not None:
                    found.setdefault(name.decode(), (primary, []))[1].append((first, last))
            return found
        return {}

    def set_clock(self, node, ahead_s):
        """Sets a node's clock as far ahead of the others' as this kind of cluster comes back from."""
        node.set_clock(ahead_s)

    def repair(self):
        for node in self.nodes:
            node.break_disk(None)
            self.set_clock(node, 0)
        for process in (*self.stores, *self.nodes):
            process.pause(False)
            process.start()

    def await_ready(self):
        def is_ready():
            return all(b"cluster_state:ok" in (node.ask("CLUSTER", "INFO") or b"") for node in self.nodes)

        _until(is_ready, self.logs)

    def logs(self):
        return "\n".join(
            f"--- {process.host.name}\n{(process.folder / 'output').read_text(errors='replace')[-1500:]}"
            for process in (*self.stores, *self.nodes)
        )

    def stop(self):
        for process in (*self.nodes, *self.stores):
            process.pause(False)
            process.kill()


class Dunlin(Cluster):
    """Nodes of `shards` shards with `replicas` replicas each, and one etcd."""

    def __init__(self, network, folder, shards, replicas, directives):
        shims = build_shims(folder)
        host = network.host("etcd")
        url = f"http://{host.address}"
        etcd = [shutil.which("etcd"), "--name", "one", "--data-dir", ".", "--unsafe-no-fsync"]
        etcd += ["--listen-client-urls", f"{url}:2379", "--advertise-client-urls", f"{url}:2379"]
        etcd += ["--listen-peer-urls", f"{url}:2380", "--initial-advertise-peer-urls", f"{url}:2380"]
        etcd += ["--initial-cluster", f"one={url}:2380"]
        self.stores = (Process(host, folder / "etcd", etcd),)
        self.nodes = []
        for number in range(shards * (1 + replicas)):
            host = network.host(f"node{number}")
            command = [DUNLIN, "server", "--port", PORT, "--bind", host.address, "--protected-mode", "no", "--dir", "."]
            command += ["--threads", "2", "--cluster-join", f"etcd://{network.hosts[0].address}:2379/jepsen"]
            command += ["--cluster-replicas", replicas, *directives]
            self.nodes.append(Process(host, folder / host.name, command, shims))

    def begin(self):
        self.stores[0].start()
        for node in self.nodes:
            node.start()
        self.await_ready()


class Redis(Cluster):
    """As many nodes of redis-server, made a cluster by redis-cli, which asks for three shards at least."""

    def __init__(self, network, folder, shards, replicas, directives):
        shims = build_shims(folder)
        nodes = max(shards * (1 + replicas), 3)
        self.replicas = nodes // max(shards, 3) - 1
        self.nodes = []
        for number in range(nodes):
            host = network.host(f"node{number}")
            command = [ORACLE, "--port", PORT, "--bind", host.address, "--protected-mode", "no", "--dir", "."]
            command += ["--cluster-enabled", "yes", "--cluster-node-timeout", 2000, *directives]
            self.nodes.append(Process(host, folder / host.name, command, shims))

    def begin(self):
        for node in self.nodes:
            node.start()
        _until(lambda: all(node.ask("PING") == b"PONG" for node in self.nodes), self.logs)
        addresses = [f"{host}:{port}" for host, port in self.addresses()]
        command = [shutil.which("redis-cli"), "--cluster", "create", *addresses, "--cluster-replicas", str(self.replicas)]
        subprocess.run([*command, "--cluster-yes"], check=True, stdout=subprocess.DEVNULL)
        self.await_ready()

    def set_clock(self, node, ahead_s):
        # It serves nothing until its clock says that it has run for two seconds, and dates messages by it. A clock that is set
        # back would keep the cluster down for as long as it was ahead.
        node.set_clock(max(node.ahead_s, ahead_s))


ALL = {"dunlin": Dunlin, "redis": Redis}
# What nodes keep: nothing but by chance, what is a second old, everything.
KEPT = (
    ("--appendonly", "no"),
    ("--appendonly", "yes", "--appendfsync", "everysec"),
    ("--appendonly", "yes", "--appendfsync", "always"),
)
