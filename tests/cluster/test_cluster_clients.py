"""Cluster clients work, unmodified: on a cluster that stands still, and while it grows, shrinks and fails under their load."""

import pytest
import redis

from drivers import PROGRAMS, Driver, Drivers, missing, skip_without
from etcd_cluster import NEEDS_ETCD, Etcd, dunlin_nodes, put, records, shard_order, until
from failovers import answer, id_of, restart
from harness import Server

REPLICAS, SHARDS = 1, 2
SYNC = ("--cluster-durability", "sync")
# What happens to the cluster, in this order.
PHASES = CALM, GROWTH, HANDOVER, DRAIN, KILL, RETURN = "calm", "growth", "planned failover", "drain", "kill", "return"
pytestmark = [
    *NEEDS_ETCD,
    # The scenario of all clients takes minutes on a busy machine.
    pytest.mark.timeout(1800),
]


@pytest.fixture(scope="module")
def etcd():
    with Etcd() as etcd:
        yield etcd


@pytest.fixture(scope="module")
def cluster(etcd):
    with dunlin_nodes(etcd, SHARDS * (1 + REPLICAS), *SYNC, replicas=REPLICAS) as cluster:
        yield cluster


@pytest.mark.parametrize("name", PROGRAMS)
def test_cluster_client_works(cluster, name):
    skip_without(name)
    with Driver(name, "cluster", [cluster.nodes[-1].port]) as driver:
        driver.ask("check", f"check-{name}")


class Scenario:
    """What happens to the cluster."""

    def __init__(self, etcd, cluster):
        self.etcd, self.cluster = etcd, cluster
        happenings = (lambda: None, self.grow, self.hand_over, self.drain, self.kill, self.come_back)
        self.happenings = dict(zip(PHASES, happenings))

    def primaries(self):
        """The nodes that have slots, and how many each has."""
        counts = {}
        for first, last, primary, *_ in shard_order(self.cluster):
            counts[primary] = counts.get(primary, 0) + last - first + 1
        return counts

    def logs(self):
        return "\n".join([str(self.primaries()), *(node.log()[-1500:] for node in self.cluster.nodes)])

    def grow(self):
        own = ["--cluster-join", self.etcd.join(), "--cluster-replicas", str(REPLICAS), "--threads", "2", *SYNC]
        self.newcomers = [Server(*own) for _ in range(1 + REPLICAS)]
        self.cluster.nodes += self.newcomers
        share = 16384 // (SHARDS + 1)

        def is_balanced():
            counts = self.primaries()
            return len(counts) == SHARDS + 1 and all(abs(count - share) < share // 4 for count in counts.values())

        until(is_balanced, self.logs, 120)

    def drain(self):
        ports = {node.port for node in self.newcomers}
        for node in self.newcomers:
            name = id_of(node)
            put(self.etcd, f"nodes/{name}", {**records(self.etcd)[f"nodes/{name}"], "state": "draining"})
        until(lambda: not ports & {port for run in shard_order(self.cluster) for port in run[2:]}, self.logs, 120)

    def redirections(self):
        """How many commands the drained nodes have sent elsewhere."""
        stats = [redis.Redis(port=node.port, socket_timeout=30).info("errorstats") for node in self.newcomers]
        return sum(stat.get("errorstat_MOVED", {}).get("count", 0) for stat in stats)

    def retire(self):
        """The drained nodes end."""
        for node in self.newcomers:
            self.cluster.nodes.remove(node)
            node.stop()

    def shard(self, number=0):
        """Primary and replica of a shard."""
        members = lambda: shard_order(self.cluster)[number][2:]  # noqa: E731
        ports = until(lambda: len(found := members()) == 1 + REPLICAS and found, self.logs)
        return [next(node for node in self.cluster.nodes if node.port == port) for port in ports]

    def is_primary(self, node):
        return redis.Redis(port=node.port, socket_timeout=30).role()[0] in (b"master", "master")

    def in_sync(self):
        shards = [record for key, record in records(self.etcd).items() if key.startswith("shards/") and record["in_sync"]]
        return all(len(shard["in_sync"]) == 1 + REPLICAS for shard in shards)

    def hand_over(self):
        until(self.in_sync, self.logs)
        _, replica = self.shard(0)
        # A machine that stands still may have had them change their roles meanwhile.
        is_ordered = lambda: self.is_primary(replica) or answer(replica, "CLUSTER", "FAILOVER") in (b"OK", True)  # noqa: E731
        until(is_ordered, self.logs)
        until(lambda: self.is_primary(replica), self.logs)

    def kill(self):
        until(self.in_sync, self.logs)
        self.killed, replica = self.shard(1)
        self.killed.process.kill()
        self.killed.process.wait()
        until(lambda: self.is_primary(replica), self.logs)

    def come_back(self):
        restart(self.killed, self.etcd, *SYNC)
        until(self.in_sync, self.logs)


@pytest.fixture(scope="module")
def clients(etcd, cluster):
    """All clients at once, through all phases."""
    scenario = Scenario(etcd, cluster)
    names = [name for name in PROGRAMS if not missing(name)]
    with Drivers(names, "cluster", [node.port for node in cluster.nodes]) as clients:
        clients.load()
        for phase, happens in scenario.happenings.items():
            with clients.phase(phase):
                happens()
                clients.settle(phase, errors_end=phase == KILL)
                if phase == DRAIN:
                    # Nodes are stopped when clients have learnt where the slots are: none was sent elsewhere while each did some
                    # steps. Lettuce, which reads the topology once a second, keeps a command for a node that has ended until that
                    # command's timeout.
                    def is_left_alone():
                        before = scenario.redirections()
                        clients.settle(phase)
                        return scenario.redirections() == before

                    until(is_left_alone, scenario.logs, 120)
                    scenario.retire()
                    clients.settle(phase)
        client = redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port, socket_timeout=30)
        clients.stop(client)
        client.close()
        yield clients


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_cluster_client_sees_no_error(clients, name, phase):
    skip_without(name)
    clients.expect_alive(name)
    report = clients.reports[phase][name]
    print(report)
    assert report.done >= clients.STEPS and not report.lost
    # A node that dies takes answers along: libraries report errors, or send increments again.
    assert phase == KILL or phase in clients.troubled or report.errors <= own_errors(name, phase, report) and not report.doubled, report


def own_errors(name, phase, report):
    """Errors that come of how a library works. node-redis gives commands up that are under way when it has read another topology,
    and closes its connection to a node whose role has changed. The node that returns is still away when that phase begins, and
    go-redis asks it whether it is there."""
    texts = report.texts.split(" | ")
    if name == "node-redis" and set(texts) <= {"Error: Disconnects client"}:
        return report.errors
    return report.errors if phase == "return" and all("connection refused" in text for text in texts) else 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_cluster_client_finds_what_was_acknowledged(clients, name):
    skip_without(name)
    clients.expect_alive(name)
    clients.check_counters(name)
