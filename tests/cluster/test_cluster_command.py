"""`dunlin cluster`: tables of a cluster, why something waits, and the operator's wishes."""

import re
import subprocess

import pytest

from etcd_cluster import ETCD, WITHOUT_ETCD, Etcd, dunlin_nodes, until
from harness import DUNLIN, Server, is_redis
from test_cluster_membership import put, records

pytestmark = [
    pytest.mark.skipif(not ETCD, reason=WITHOUT_ETCD),
    pytest.mark.skipif(is_redis(DUNLIN), reason="a cluster of Dunlin's"),
]


@pytest.fixture()
def etcd():
    with Etcd() as etcd:
        yield etcd


def run(*words, code=0, environment=None):
    done = subprocess.run([DUNLIN, "cluster", *map(str, words)], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_status_shows_shards_and_what_waits(etcd):
    with dunlin_nodes(etcd, 4, "--cluster-zone", "west", replicas=1) as cluster:
        status = run("status", "-p", cluster.nodes[3].port)
        assert status.startswith("cluster test: 2 shards, 4 nodes, async with 1 replica wanted for each shard\n"), status
        rows = re.findall(r"^[0-9a-f]{8}  +\d+  +(\S+) \((\d+)\)  +127.0.0.1:(\d+)  +127.0.0.1:(\d+)$", status, re.M)
        ports = [str(node.port) for node in cluster.nodes]
        assert rows == [("0-8191", "8192", ports[0], ports[2]), ("8192-16383", "8192", ports[1], ports[3])], status
        assert "has all its copies on one machine" in status
        assert "\x1b" not in status, "colours go to terminals only"
        nodes = run("nodes", "-p", ports[0])
        assert re.search(rf"127.0.0.1:{ports[0]} +- +online +active +primary +[0-9a-f]{{8}} +\S+ +west +\d", nodes), nodes
        assert len(re.findall("^[0-9a-f]{8}", nodes, re.M)) == 4
        # Each shard is to have more than there are nodes. Nobody plans: the planner would make one shard of the two.
        put(etcd, "controller", {"v": 1, "node": "f" * 40, "boot": "f" * 40})
        assert "2 of 2 shards lack some" in run("replicas", 2, "-p", ports[0])
        assert records(etcd)["cluster"]["replicas"] == 2
        lacks = lambda: "has 1 of 2 replicas" in run("status", "-p", ports[1])  # noqa: E731
        until(lacks, lambda: run("status", "-p", ports[1]))
        cluster.nodes[2].process.kill()
        until(lambda: f"has a replica that is gone: 127.0.0.1:{ports[2]}" in run("status", "-p", ports[0]), "the death")
        etcd.kill()
        until(lambda: "does not follow etcd" in run("status", "-p", ports[0]), lambda: run("status", "-p", ports[0]))
        assert "nothing was changed" in run("replicas", 1, "-p", ports[0], code=1)
        cluster.nodes.pop(2).kill()


def test_drain_is_a_wish_that_can_be_undone(etcd):
    with dunlin_nodes(etcd, 2, replicas=1) as cluster:
        port = cluster.nodes[0].port
        replica = cluster.client(1).execute_command("CLUSTER MYID")
        replica = replica if isinstance(replica, str) else replica.decode()
        state = lambda: records(etcd)[f"nodes/{replica}"]["state"]  # noqa: E731
        assert f"node {replica[:8]} (127.0.0.1:{cluster.nodes[1].port}) is being drained" in run("drain", replica[:12], "-p", port)
        assert state() == "draining"
        until(lambda: "is being drained, and " in run("status", "-p", port), lambda: run("status", "-p", port))
        assert "may hold data again" in run("drain", f"127.0.0.1:{cluster.nodes[1].port}", "--undo", "-p", port)
        assert state() == "active"
        assert "no node is 'nobody': `dunlin cluster nodes` lists them" in run("drain", "nobody", "-p", port, code=1)


def test_command_says_what_to_do(etcd):
    assert "Examples:" in run("--help") and "drain" in run("--help")
    for words in (["replicas", "17"], ["replicas"], ["nonsense"]):
        run(*words, code=2)
    with Server() as alone:
        assert "start it with --cluster-join" in run("status", "-p", alone.port, code=1)
    assert "127.0.0.1:1" in run("status", "-p", 1, code=1)
