"""What befalls the nodes. Every few seconds one fault begins; it ends before the next, or a little later."""

import time


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
        self.note(f"clock: {ahead_s:.1f} s ahead", node.host.name)
        node.set_clock(ahead_s)

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
_FAULTS = {**_FAULTS_OF_NODES, "kill_two": Nemesis.kill_two, "stop_store": Nemesis.stop_store, "kill_store": Nemesis.kill_store}
