"""Cluster clients do real work, unmodified: redis-py, ioredis, go-redis."""

import pathlib
import subprocess

import pytest
import redis

from etcd_cluster import ETCD, WITHOUT_ETCD, Etcd, dunlin_nodes
from harness import DUNLIN, ROOT, is_redis

HERE = pathlib.Path(__file__).parent
PROGRAMS = {
    "ioredis": lambda port: ["node", str(HERE / "ioredis_cluster.js"), str(port)],
    "go-redis": lambda port: [str(ROOT / "tests" / ".env" / "bin" / "goredis-cluster"), f"127.0.0.1:{port}"],
}
pytestmark = [
    pytest.mark.skipif(not ETCD, reason=WITHOUT_ETCD),
    pytest.mark.skipif(is_redis(DUNLIN), reason="a cluster of Dunlin's"),
]


@pytest.fixture(scope="module")
def cluster():
    with Etcd() as etcd, dunlin_nodes(etcd, 3, replicas=0) as cluster:
        yield cluster


@pytest.mark.parametrize("name", PROGRAMS)
def test_cluster_client_works(cluster, name):
    for node in cluster.nodes:
        done = subprocess.run(
            PROGRAMS[name](node.port), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py_works(cluster, protocol):
    client = redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[1].port, protocol=protocol, decode_responses=True)
    keys = [f"py:{protocol}:{number}" for number in range(1000)]
    for number, key in enumerate(keys):
        client.set(key, number)
    assert client.mget_nonatomic(*keys) == [str(number) for number in range(1000)]
    with client.pipeline() as pipeline:
        for key in keys:
            pipeline.incr(key)
        assert pipeline.execute() == list(range(1, 1001))
    assert client.dbsize() >= len(keys)
    assert set(client.scan_iter(match=f"py:{protocol}:*", count=100)) == set(keys)
    with pytest.raises(redis.RedisClusterException):
        client.mget(keys[0], keys[1])
    script = client.register_script("return redis.call('incrby', KEYS[1], ARGV[1])")
    assert script(keys=["{py}a"], args=[41]) >= 41
    listener = client.pubsub()
    listener.ssubscribe("py:channel")
    assert listener.get_sharded_message(timeout=10)["type"] == "ssubscribe"
    assert client.spublish("py:channel", "hello") == 1
    message = None
    while message is None:
        message = listener.get_sharded_message(timeout=10)
    assert (message["type"], message["data"]) == ("smessage", "hello")
    listener.close()
    assert client.delete(*keys) == len(keys)
    client.close()


def test_redis_py_reads_at_replicas():
    with Etcd() as etcd, dunlin_nodes(etcd, 4, replicas=1) as cluster:
        client = redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port, read_from_replicas=True, decode_responses=True)
        for number in range(300):
            client.set(f"key:{number}", number)
        client.execute_command("WAIT", 1, 5000, target_nodes=redis.RedisCluster.PRIMARIES)
        for number in range(300):
            # A replica may be a moment behind.
            value = None
            while value is None:
                value = client.get(f"key:{number}")
            assert value == str(number)
        client.close()
