"""What befalls the nodes. Every few seconds one fault begins; it ends before the next, or a little later.

Where the cluster can move slots, they move between shards all the time."""

import collections
import threading
import time

from redis.crc import key_slot

_SLOTS = 16_384
# Moves take a second or two where nothing is wrong. Behind this time the next one is asked for.
_MOVE_S = 8


class Nemesis:
    """Chooses faults by a seed, and aims most of them at primaries."""

    def __init__(self, cluster, network, random, clock, note):
        self.cluster, self.network, self.random, self.clock, self.note = cluster, network, random, clock, note

    def run(self, until):
        """One fault after the other until a time; then everything is repaired."""
        while self.clock() < until - 1:
            time.sleep(self.random.uniform(2, 4))
            name = self.random.choice(list(_FAULTS if self.cluster.stores else _FAULTS_OF_NODES))
            {**_FAULTS_OF_NODES, **_FAULTS}[name](self, self.random.uniform(0.5, 5))
        self.repair()

    def repair(self):
        self.network.heal()
        self.cluster.repair()
        if self.cluster.stores:
            self.undrain()
        self.note("repair", "all")

    def _target(self):
        primaries = self.cluster.primaries()
        return self.random.choice(primaries if self.random.random() < 0.75 else self.cluster.nodes)

    def kill(self, time_s):
        node = self._target()
        self.note("kill", node.host.name)
        node.kill()
        time.sleep(time_s)
        node.start()

    def stop(self, time_s):
        node = self._target()
        self.note("stop", node.host.name)
        node.pause(True)
        time.sleep(time_s)
        node.pause(False)

    def cut(self, time_s):
        node = self._target()
        self.note("cut off", node.host.name)
        node.host.link(False)
        time.sleep(time_s)
        node.host.link(True)

    def isolate(self, time_s):
        """Clients reach the node, other nodes and the store do not."""
        node = self._target()
        self.note("cut off from other nodes", node.host.name)
        others = [host for host in self.network.hosts if host is not node.host]
        node.host.block(*others)
        time.sleep(time_s)
        node.host.unblock()

    def one_way(self, time_s):
        """What the node sends to one other does not arrive."""
        node = self._target()
        other = self.random.choice([host for host in self.network.hosts if host is not node.host])
        self.note(f"blocked towards {other.name}", node.host.name)
        node.host.block(other)
        time.sleep(time_s)
        node.host.unblock()

    def break_disk(self, time_s):
        node = self._target()
        fault = self.random.choice(["write 28 *", "fsync 5 *", "hang 1 *"])
        self.note(f"disk: {fault}", node.host.name)
        node.break_disk(fault)
        time.sleep(time_s)
        node.break_disk(None)

    def set_clock(self, time_s):
        """It stays wrong."""
        node = self._target()
        ahead_s = self.random.choice([-1, 1]) * 10 ** self.random.uniform(-1, 4)
        self.cluster.set_clock(node, ahead_s)
        self.note(f"clock: {node.ahead_s:.1f} s ahead", node.host.name)

    def kill_two(self, time_s):
        nodes = self.random.sample(self.cluster.nodes, 2)
        self.note("kill", " ".join(node.host.name for node in nodes))
        for node in nodes:
            node.kill()
        time.sleep(time_s)
        for node in nodes:
            node.start()

    def stop_store(self, time_s):
        self.note("stop", "etcd")
        self.cluster.stores[0].pause(True)
        time.sleep(time_s)
        self.cluster.stores[0].pause(False)

    def kill_store(self, time_s):
        self.note("kill", "etcd")
        self.cluster.stores[0].kill()
        time.sleep(time_s)
        self.cluster.stores[0].start()

    def drain(self, time_s):
        """An operator takes a node away, and brings it back. With as few nodes as there are its shard may go, too."""
        node = self._target()
        name = node.ask("CLUSTER", "MYID")
        self.note("drain", node.host.name)
        self._wish("DRAIN", name)
        time.sleep(2 * time_s)
        self.undrain()

    def undrain(self):
        """All nodes may hold data."""
        for node in self.cluster.nodes:
            name = node.ask("CLUSTER", "MYID")
            if isinstance(name, bytes):
                self._wish("DRAIN", name, "off")

    def _wish(self, *words):
        """Says something to the cluster, over any node; whether it was heard."""
        return any(node.ask("CLUSTER", *words) == b"OK" for node in self.cluster.nodes)


class Mover(threading.Thread):
    """Has slots move between shards all the time, the workloads' more often than others. `outcomes` counts the ends of moves."""

    def __init__(self, cluster, tags, random, clock, until):
        super().__init__(daemon=True)
        self.cluster, self.random, self.clock, self.until = cluster, random, clock, until
        self.slots = [key_slot(tag.encode()) for tag in tags]
        self.outcomes = collections.Counter()

    def run(self):
        while self.clock() < self.until:
            time.sleep(self.random.uniform(0.05, 0.8))
            shards = self.cluster.shards()
            if len(shards) < 2:
                continue
            source, target = self.random.sample(list(shards), 2)
            words = self._ranges(shards[source][1])
            if words:
                self._move(shards[source][0], [*words, "NODE", target])

    def _ranges(self, runs):
        """One to three runs of slots that a shard has, around a slot that is in use."""
        words = []
        for _ in range(self.random.randint(1, 3)):
            slot = self.random.choice(self.slots)
            for first, last in runs:
                if first <= slot <= last:
                    length = int(10 ** self.random.uniform(0, 3.5))
                    own = [max(first, slot - self.random.randint(0, length)), min(last, slot + length)]
                    if all(own[1] < words[at] or words[at + 1] < own[0] for at in range(0, len(words), 2)):
                        words += own
        return words and ["SLOTSRANGE", *words]

    def _move(self, source, words):
        if source.ask("CLUSTER", "MIGRATESLOTS", *words) != b"OK":
            self.outcomes["refused"] += 1
            return
        name, state = None, None
        until = self.clock() + _MOVE_S
        while self.clock() < min(until, self.until):
            jobs = source.ask("CLUSTER", "GETSLOTMIGRATIONS")
            jobs = [dict(zip(job[::2], job[1::2])) for job in jobs] if isinstance(jobs, list) else []
            if name is None and jobs:
                name = jobs[0][b"name"]
            state = next((job[b"state"].decode() for job in jobs if job[b"name"] == name), state)
            if state in ("success", "failed", "cancelled"):
                break
            if self.random.random() < 0.02:
                source.ask("CLUSTER", "CANCELSLOTMIGRATIONS")
            time.sleep(0.1)
        self.outcomes[state if state in ("success", "failed", "cancelled") else "unknown"] += 1


_FAULTS_OF_NODES = {
    "kill": Nemesis.kill,
    "stop": Nemesis.stop,
    "cut": Nemesis.cut,
    "isolate": Nemesis.isolate,
    "one_way": Nemesis.one_way,
    "break_disk": Nemesis.break_disk,
    "set_clock": Nemesis.set_clock,
}
# Two killed nodes of redis-server's cluster can be a majority, which it does not come back from by itself.
_FAULTS = {**_FAULTS_OF_NODES, "kill_two": Nemesis.kill_two, "stop_store": Nemesis.stop_store, "kill_store": Nemesis.kill_store, "drain": Nemesis.drain}
