"""Sentinel's protocol on the nodes of a cluster of one shard: clients without cluster support find its primary and follow it."""

import pathlib
import shutil
import subprocess
import tempfile

import pytest
import redis
from redis.sentinel import MasterNotFoundError, Sentinel

from drivers import OF_SENTINEL, Drivers, missing, skip_without
from etcd_cluster import NEEDS_ETCD, Etcd, dunlin_nodes, put, records, told_again, until
from failovers import SYNC, in_sync, restart
from harness import Server, free_port

NAME = "orders"
PLAIN = ("--cluster-plain-clients", "yes")
pytestmark = [
    *NEEDS_ETCD,
    # The scenario of all clients takes minutes on a busy machine.
    pytest.mark.timeout(1800),
]


def switch(etcd, cluster):
    """Makes the replica the primary, as a failover does; the nodes in their new order."""
    # The primary changes the record no more from here on: it would be overwritten, by another one of the same epoch.
    until(lambda: in_sync(etcd, name=NAME), "the replica in sync")
    (key, shard), = ((key, value) for key, value in records(etcd, NAME).items() if key.startswith("shards/"))
    others = [member for member in shard["in_sync"] + shard["learners"] if member != shard["primary"]]
    new = {**shard, "epoch": shard["epoch"] + 1, "primary": others[0], "in_sync": [others[0]], "learners": [shard["primary"]]}
    put(etcd, key, new, NAME)
    cluster.nodes.reverse()
    roles = lambda: [cluster.client(number).role()[0] for number in range(2)]  # noqa: E731
    until(lambda: roles() in ([b"master", b"slave"], ["master", "slave"]), lambda: str(roles()))


def call(port, *words):
    client = redis.Redis(port=port, protocol=2)
    client.response_callbacks.clear()
    try:
        return client.execute_command(*words)
    except redis.ResponseError as error:
        return error


def names(flat):
    return [name.decode() for name in flat[::2]]


class RedisSentinel:
    """The oracle: a Sentinel of redis-server beside another one, for a primary with a replica."""

    def __enter__(self):
        self.primary = Server(program="redis-server")
        self.replica = Server("--replicaof", f"127.0.0.1 {self.primary.port}", program="redis-server")
        self.folders, self.processes, self.ports = [], [], [free_port(), free_port()]
        for port in self.ports:
            folder = pathlib.Path(tempfile.mkdtemp(prefix="dunlin-sentinel-"))
            self.folders.append(folder)
            config = folder / "sentinel.conf"
            config.write_text(f"port {port}\ndir {folder}\nsentinel monitor {NAME} 127.0.0.1 {self.primary.port} 1\n")
            self.processes.append(
                subprocess.Popen(["redis-server", config, "--sentinel"], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
            )
        ready = lambda: len(call(self.ports[0], "SENTINEL", "SENTINELS", NAME)) == 1  # noqa: E731
        until(lambda: answers(ready) and call(self.ports[0], "SENTINEL", "REPLICAS", NAME), "Sentinels")
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)
        self.replica.kill()
        self.primary.kill()


def answers(question):
    try:
        return question()
    except (redis.ConnectionError, redis.TimeoutError, TypeError):
        return False


@pytest.mark.skipif(not shutil.which("redis-server"), reason="there is no redis-server")
@told_again
def test_sentinel_answers_as_redis_sentinel_does(etcd):
    with RedisSentinel() as oracle, dunlin_nodes(etcd, 2, replicas=1, name=NAME) as cluster:
        port, oracle_port = cluster.nodes[1].port, oracle.ports[0]
        primary, replica = (str(node.port).encode() for node in cluster.nodes)

        def both(*words):
            return call(port, "SENTINEL", *words), call(oracle_port, "SENTINEL", *words)

        for words in [("MASTER", NAME), ("MASTERS",), ("REPLICAS", NAME), ("SLAVES", NAME), ("SENTINELS", NAME)]:
            own, theirs = both(*words)
            if words[0] == "MASTER":
                own, theirs = [own], [theirs]
            assert len(own) == len(theirs) == 1, words
            assert names(own[0]) == names(theirs[0]), words
        for words in [
            ("GET-MASTER-ADDR-BY-NAME", "other"),
            ("MASTER", "other"),
            ("REPLICAS", "other"),
            ("SENTINELS", "other"),
            ("CKQUORUM", "other"),
            ("CKQUORUM", NAME),
            ("FAILOVER", "other"),
            ("MASTER",),
            ("MASTERS", "more"),
            ("NONSENSE",),
            ("IS-MASTER-DOWN-BY-ADDR", "127.0.0.1", "1", "0", "*"),
            ("IS-MASTER-DOWN-BY-ADDR", "127.0.0.1", "x", "0", "*"),
            ("IS-MASTER-DOWN-BY-ADDR", "127.0.0.1", "1", "x", "*"),
        ]:
            own, theirs = both(*words)
            assert (type(own), str(own)) == (type(theirs), str(theirs)), words
        assert call(port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME) == [b"127.0.0.1", primary]
        fields = call(port, "SENTINEL", "REPLICAS", NAME)[0]
        fields = dict(zip(names(fields), fields[1::2]))
        assert (fields["name"], fields["master-port"], fields["flags"]) == (b"127.0.0.1:" + replica, primary, b"slave")
        assert call(port, "SENTINEL", "MYID") == call(port, "CLUSTER", "MYID")
        assert call(port, "SENTINEL", "IS-MASTER-DOWN-BY-ADDR", "127.0.0.1", primary, "0", "*") == [0, b"*", 0]
        assert "not for hands" in str(call(port, "SENTINEL", "MONITOR", "a", "127.0.0.1", "1", "1"))
        # Each node is one of the Sentinels, and RESP3 has maps.
        assert redis.Redis(port=port, protocol=3).execute_command("SENTINEL", "MASTER", NAME)
        # A failover by hand, there and back, asked of the replica and of the primary.
        address = lambda: call(port, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)  # noqa: E731
        for wanted in (replica, primary):
            until(lambda: call(port, "SENTINEL", "FAILOVER", NAME) == b"OK", lambda: call(port, "SENTINEL", "FAILOVER", NAME))
            until(lambda: address() == [b"127.0.0.1", wanted], address)  # noqa: B023
        # The primary dies, and the other node takes over.
        cluster.nodes[0].process.kill()
        until(lambda: address() == [b"127.0.0.1", replica], address)
        assert call(port, "SENTINEL", "IS-MASTER-DOWN-BY-ADDR", "127.0.0.1", primary, "0", "*") == [0, b"*", 0]
        until(lambda: b"s_down" in call(port, "SENTINEL", "REPLICAS", NAME)[0][9], "the death of the other")
        etcd.kill()
        until(lambda: str(call(port, "SENTINEL", "CKQUORUM", NAME)).startswith("NOQUORUM 1 usable"), "the loss of etcd")
        for node in cluster.nodes:
            node.kill()
        cluster.nodes.clear()


def test_sentinel_of_several_shards_and_of_none(etcd):
    with dunlin_nodes(etcd, 2, replicas=0, name=NAME) as cluster:
        for words in (["GET-MASTER-ADDR-BY-NAME", NAME], ["MASTERS"], ["SENTINELS", NAME]):
            answer = str(call(cluster.nodes[0].port, "SENTINEL", *words))
            assert answer == "the cluster 'orders' has 2 shards, and no one primary: use a client with cluster support"
    with Server() as alone:
        assert str(call(alone.port, "SENTINEL", "MASTERS")) == "This instance has cluster support disabled"


@told_again
def test_redis_py_follows_by_sentinel(etcd):
    with dunlin_nodes(etcd, 2, *PLAIN, replicas=1, name=NAME) as cluster:
        ports = [node.port for node in cluster.nodes]
        sentinel = Sentinel([("127.0.0.1", port) for port in ports], min_other_sentinels=1)
        assert sentinel.discover_master(NAME) == ("127.0.0.1", ports[0])
        assert sentinel.discover_slaves(NAME) == [("127.0.0.1", ports[1])]
        with pytest.raises(MasterNotFoundError):
            sentinel.discover_master("other")
        primary, replica = sentinel.master_for(NAME), sentinel.slave_for(NAME)
        assert primary.mset({"one": 1, "two": 2}), "keys of several slots"
        until(lambda: replica.mget("one", "two") == [b"1", b"2"], "the replica's copy")
        with pytest.raises(redis.exceptions.ReadOnlyError):
            replica.set("one", 1)
        listener = redis.Redis(port=ports[1]).pubsub()
        listener.subscribe("+switch-master")
        assert listener.get_message(timeout=60)["type"] == "subscribe"
        switch(etcd, cluster)
        message = listener.get_message(timeout=60)
        assert message["data"].decode() == f"{NAME} 127.0.0.1 {ports[0]} 127.0.0.1 {ports[1]}"
        until(lambda: answers(lambda: primary.set("one", 3)), "a write at the new primary")
        assert redis.Redis(port=ports[1]).get("one") == b"3"
        assert sentinel.discover_master(NAME) == ("127.0.0.1", ports[1])


@pytest.fixture(scope="module")
def clients():
    """All clients of Sentinel at once, while their primary hands over, is killed, and comes back."""

    def leads(node):
        return answers(lambda: call(node.port, "ROLE")[0] == b"master")

    library_names = [name for name in OF_SENTINEL if not missing(name)]
    with Etcd() as etcd, dunlin_nodes(etcd, 2, *PLAIN, *SYNC, replicas=1, name=NAME) as cluster:
        with Drivers(library_names, "sentinel", [node.port for node in cluster.nodes], NAME) as clients:
            ready = lambda: in_sync(etcd, name=NAME)  # noqa: E731
            logs = lambda: "\n".join(node.log()[-2000:] for node in cluster.nodes)  # noqa: E731
            clients.ask("check", lambda name: f"check-{name}")
            clients.load()
            with clients.phase("calm"):
                clients.settle("calm")
            primary, replica = cluster.nodes
            with clients.phase("planned failover"):
                # A machine that stands still may have had them change their roles before.
                is_ordered = lambda: leads(replica) or call(replica.port, "CLUSTER", "FAILOVER") == b"OK"  # noqa: E731
                until(lambda: ready() and is_ordered(), logs)
                until(lambda: leads(replica), logs)
                clients.settle("planned failover", errors_end=True)
            with clients.phase("kill"):
                until(ready, logs)
                replica.process.kill()
                replica.process.wait()
                until(lambda: leads(primary), logs)
                clients.settle("kill", errors_end=True)
            with clients.phase("return"):
                restart(replica, etcd, *PLAIN, *SYNC, name=NAME)
                until(ready, logs)
                clients.settle("return")
            clients.stop(redis.Redis(port=next(node for node in cluster.nodes if leads(node)).port))
            yield clients


@pytest.mark.parametrize("name", OF_SENTINEL)
def test_sentinel_client_follows(clients, name):
    skip_without(name)
    clients.expect_alive(name)
    for phase, reports in clients.reports.items():
        report = reports[name]
        print(phase, report)
        assert report.done >= clients.STEPS and not report.lost
        # A primary that is none any more disconnects its clients, as by Sentinel, so what they wait for is unknown to them.
        is_troubled = phase in ("planned failover", "kill") or phase in clients.troubled
        assert is_troubled or not report.errors and not report.doubled, (phase, report)
    clients.check_counters(name)


@told_again
def test_clients_without_cluster_support_are_served_as_the_cluster_says(etcd):
    with dunlin_nodes(etcd, 2, replicas=1, name=NAME) as cluster:
        primary, replica = cluster.client(0), cluster.client(1)
        with pytest.raises(redis.ResponseError, match="^CROSSSLOT|hash to the same slot"):
            primary.mset({"one": 1, "two": 2})
        # It is the cluster's setting, so one node is enough.
        replica.config_set("cluster-plain-clients", "yes")
        until(lambda: answers_write(lambda: primary.mset({"one": 1, "two": 2})), "the setting")
        with primary.pipeline() as pipeline:
            assert pipeline.incr("one").incr("two").execute() == [2, 3]
        script = "return redis.call('get', KEYS[1]) .. redis.call('get', KEYS[2])"
        assert primary.eval(script, 2, "one", "two") == b"23"
        assert primary.eval("#!lua\n" + script, 2, "one", "two") == b"23"
        until(lambda: replica.mget("one", "two") == [b"2", b"3"], "the replica's copy")
        with pytest.raises(redis.exceptions.ReadOnlyError):
            replica.set("one", 1)
        # Clients of a primary that is demoted are disconnected, as by Sentinel.
        stream = cluster.nodes[0].connect().makefile("rwb")
        stream.write(b"PING\r\n")
        stream.flush()
        assert stream.readline() == b"+PONG\r\n"
        switch(etcd, cluster)
        assert stream.read() == b""


def answers_write(write):
    try:
        return write()
    except redis.ResponseError:
        return False
