"""What nodes of a cluster answer: three shards, beside redis-server 7.0 and Valkey in the same state.

Names of nodes, ports, offsets and epochs are made alike before replies are compared."""

import re
import socket
import subprocess

import pytest
import redis

from etcd_cluster import NEEDS_ETCD, REDIS_CLI, Etcd, dunlin_nodes, oracle_nodes
from harness import ORACLE, VALKEY, WITHOUT_VALKEY

pytestmark = [
    *NEEDS_ETCD,
    pytest.mark.skipif(not REDIS_CLI, reason="there is no redis-cli"),
]


@pytest.fixture(scope="module")
def dunlin():
    with Etcd() as etcd, dunlin_nodes(etcd, 3, replicas=0) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def redis_cluster():
    with oracle_nodes(ORACLE) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def valkey_cluster():
    if not VALKEY:
        pytest.skip(WITHOUT_VALKEY)
    with oracle_nodes(VALKEY) as cluster:
        yield cluster


class Connection:
    """A raw connection that reads whole replies as bytes."""

    def __init__(self, port, protocol):
        self.socket = socket.create_connection(("127.0.0.1", port), 30)
        self.stream = self.socket.makefile("rb")
        if protocol == 3:
            self.ask("HELLO", "3")

    def send(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        parts = [b"*%d\r\n" % len(words)] + [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
        self.socket.sendall(b"".join(parts))

    def read(self):
        line = self.stream.readline()
        kind, count = line[:1], line[1:-2]
        if kind in b"$=" and count != b"-1":
            return line + self.stream.read(int(count) + 2)
        if kind in b"*%~>" and count != b"-1":
            parts = int(count) * (2 if kind == b"%" else 1)
            return line + b"".join(self.read() for _ in range(parts))
        return line

    def ask(self, *words):
        self.send(*words)
        return self.read()

    def close(self):
        self.stream.close()
        self.socket.close()


def alike(text, cluster):
    """A reply without what differs from cluster to cluster."""
    for number, node in enumerate(cluster.nodes):
        text = re.sub(rb"(?<!\d)%d(?!\d)" % node.port, b"PORT%d" % number, text)
        text = text.replace(cluster.ids[number], b"NODE%d" % number)
    text = re.sub(rb"@\d+", b"@BUS", text)
    return re.sub(rb"(replication-offset\r\n):\d+", rb"\1:OFFSET", text)


def prepare(cluster):
    if not hasattr(cluster, "ids"):
        ids = [Connection(node.port, 2).ask("CLUSTER", "MYID").split(b"\r\n")[1] for node in cluster.nodes]
        cluster.ids = ids
    return cluster


def replies(cluster, scenario, protocol, node=0):
    connection = Connection(prepare(cluster).nodes[node].port, protocol)
    try:
        return [(words, alike(connection.ask(*words), cluster)) for words in scenario]
    finally:
        connection.close()


def lines(text):
    return [tuple(line.split("|")) for line in text.strip().splitlines()]


# Key foo is node 2's, bar and b node 0's, a node 2's.
SHARED = lines(
    """
GET|foo
GET|bar
SET|bar|1
MGET|foo|bar
MSET|foo|1|bar|2
GET|{bar}1
MGET|{bar}1|{bar}2
WATCH|foo
MULTI
GET|bar
EXEC
MULTI
GET|foo
EXEC
MULTI
SET|bar|1
MGET|bar|f
SET|bar|2
EXEC
MULTI
GET|bar
GET|b
EXEC
DISCARD
SELECT|0
PING
DBSIZE
KEYS|nothing*
SSUBSCRIBE|foo
SSUBSCRIBE|bar|f
SUNSUBSCRIBE|foo
SPUBLISH|foo|x
SPUBLISH|bar|x
READONLY
GET|foo
READWRITE
ASKING
EVAL|return 1|1|foo
EVAL|return 1|2|foo|bar
EVAL|return redis.call('get','bar')|0
EVAL|return redis.call('mget','bar','f')|2|bar|f
EVAL|#!lua flags=no-cluster\\nreturn 1|0
XREAD|COUNT|1|STREAMS|foo|bar|0|0
XREAD|COUNT|1|STREAMS|foo|0
BLPOP|foo|bar|0
OBJECT|ENCODING|foo
OBJECT|ENCODING|bar
RENAME|foo|bar
RENAME|bar|foo
COPY|bar|{bar}2
DEL|{bar}2
REPLICAOF|127.0.0.1|1
SLAVEOF|NO|ONE
FAILOVER
CLUSTER|KEYSLOT|foo
CLUSTER|KEYSLOT|{bar}foo
CLUSTER|KEYSLOT
CLUSTER|COUNTKEYSINSLOT|5061
CLUSTER|COUNTKEYSINSLOT|-1
CLUSTER|COUNTKEYSINSLOT|16384
CLUSTER|COUNTKEYSINSLOT|x
CLUSTER|GETKEYSINSLOT|5061|0
CLUSTER|GETKEYSINSLOT|5061|10
CLUSTER|GETKEYSINSLOT|0|-1
CLUSTER|GETKEYSINSLOT|0|x
CLUSTER|GETKEYSINSLOT|16384|1
CLUSTER|COUNT-FAILURE-REPORTS|xx
CLUSTER|REPLICAS|xx
CLUSTER|SLAVES|xx
CLUSTER|NOPE
CLUSTER
CLUSTER|SLOTS
CLUSTER|MYID
CLUSTER|SAVECONFIG
"""
)
# Where later versions say it better than 7.0, Valkey's words count.
VALKEYS = lines(
    """
SELECT|1
MOVE|bar|1
COPY|bar|{bar}2|DB|1
SORT|bar|BY|x_*
SORT|nothing|BY|nosort|GET|#
SORT|nothing|BY|{nothing}_*
SORT|nothing|GET|{nothing}_*
CLUSTERSCAN
CLUSTERSCAN|0|SLOT|99999
CLUSTERSCAN|0-{06S}-0|SLOT|5
CLUSTERSCAN|0-{06S}
CLUSTERSCAN|0-{06S}-0|TYPE|foo
CLUSTERSCAN|0-{06S}-0|COUNT|0
CLUSTERSCAN|0-{06S}-0|COUNT|1000
CLUSTERSCAN|0-{8YG}-0
CLUSTER|SLOT-STATS|SLOTSRANGE|5060|5062
CLUSTER|SLOT-STATS|SLOTSRANGE|5459|5462
CLUSTER|SLOT-STATS|ORDERBY|key-count|LIMIT|2
CLUSTER|SLOT-STATS|ORDERBY|key-count|ASC|LIMIT|1
CLUSTER|SLOT-STATS|ORDERBY|foo
CLUSTER|SLOT-STATS|ORDERBY|key-count|LIMIT|0
CLUSTER|SLOT-STATS|ORDERBY|key-count|DESC|ASC
CLUSTER|SLOT-STATS|ORDERBY|key-count|FOO
CLUSTER|SLOT-STATS|SLOTSRANGE|2|1
CLUSTER|SLOT-STATS|SLOTSRANGE|0|16384
CLUSTER|SLOT-STATS|SLOTSRANGE|0|1|2
CLUSTER|GETSLOTMIGRATIONS
CLUSTER|MIGRATESLOTS
CLUSTER|MIGRATESLOTS|a|b
CLUSTER|MIGRATESLOTS|SLOTSRANGE|1
CLUSTER|MIGRATESLOTS|SLOTSRANGE|1|2
CLUSTER|MIGRATESLOTS|SLOTSRANGE|1|2|3|NODE|abc
CLUSTER|MIGRATESLOTS|SLOTSRANGE|1|2|NODE
CLUSTER|MIGRATESLOTS|SLOTSRANGE|1|2|NODE|abc
CLUSTER|MIGRATESLOTS|SLOTSRANGE|1|2|NODE|ffffffffffffffffffffffffffffffffffffffff
CLUSTER|MIGRATESLOTS|SLOTSRANGE|2|1|NODE|abc
CLUSTER|MIGRATESLOTS|SLOTSRANGE|1|16384|NODE|abc
CLUSTER|MIGRATESLOTS|SLOTSRANGE|x|3|NODE|abc
CLUSTER|MIGRATESLOTS|SLOTSRANGE|1|2|2|3|NODE|abc
CLUSTER|MIGRATESLOTS|SLOTSRANGE|NODE|abc
CLUSTER|CANCELSLOTMIGRATIONS
CLUSTER|CANCELSLOTMIGRATIONS|x
CLUSTER|GETSLOTMIGRATIONS|x
"""
)


@pytest.mark.parametrize("protocol", [2, 3])
def test_cluster_replies_are_those_of_redis(dunlin, redis_cluster, protocol):
    expected = replies(redis_cluster, SHARED, protocol)
    for (words, reply), (_, wanted) in zip(replies(dunlin, SHARED, protocol), expected):
        assert reply == wanted, words


@pytest.mark.parametrize("protocol", [2, 3])
def test_cluster_replies_are_those_of_valkey(dunlin, valkey_cluster, protocol):
    for cluster in (dunlin, valkey_cluster):
        for number in range(3):
            prepare(cluster).client(number).flushall()
        cluster.client(0).set("bar", 1)
    expected = replies(valkey_cluster, VALKEYS, protocol)
    for (words, reply), (_, wanted) in zip(replies(dunlin, VALKEYS, protocol), expected):
        assert reply == wanted, words


@pytest.mark.parametrize("protocol", [2, 3])
def test_cluster_shards_has_the_fields_of_valkey(dunlin, valkey_cluster, protocol):
    def shards(cluster):
        [(_, reply)] = replies(cluster, [("CLUSTER", "SHARDS")], protocol)
        # The ids of shards are drawn, and they come in any order.
        reply = re.sub(rb"\$40\r\n[0-9a-f]{40}", b"SHARD", reply)
        head, *parts = re.split(rb"(?=[*%]\d\r\n\$5\r\nslots)", reply)
        return head, sorted(parts)

    assert shards(dunlin) == shards(valkey_cluster)


def test_cluster_nodes_has_the_fields_of_redis(dunlin, redis_cluster):
    def nodes(cluster):
        [(_, reply)] = replies(cluster, [("CLUSTER", "NODES")], 2)
        found = []
        for line in reply.split(b"\r\n")[1].decode().splitlines():
            name, address, flags, primary, _, _, _, link, *slots = line.split(" ")
            found.append((name, address, flags, primary, link, slots))
        return sorted(found)

    assert nodes(dunlin) == nodes(redis_cluster)


def test_info_and_hello_say_that_it_is_a_cluster(dunlin, redis_cluster):
    for cluster in (dunlin, redis_cluster):
        client = cluster.client(0)
        assert client.info("server")["redis_mode"] == "cluster"
        assert client.info("cluster")["cluster_enabled"] == 1
        [(_, hello)] = replies(cluster, [("HELLO", "2")], 2)
        assert b"mode\r\n$7\r\ncluster\r\n" in hello
        assert client.config_get("cluster-enabled") == {"cluster-enabled": "yes"}


def test_scripts_keep_to_slots_of_the_node(dunlin, redis_cluster):
    scenario = [
        ("SET", "bar", "1"),
        ("EVAL", "return redis.call('get','foo')", "0"),
        ("EVAL", "return redis.call('get','foo')", "1", "bar"),
        ("EVAL", "redis.call('get','bar'); return redis.call('get','f')", "0"),
        ("EVAL", "#!lua\nredis.call('get','bar'); return redis.call('get','f')", "0"),
        ("EVAL", "#!lua\nreturn redis.call('get','f')", "1", "bar"),
        ("EVAL", "#!lua flags=allow-cross-slot-keys\nredis.call('get','bar'); return redis.call('get','f')", "0"),
        ("EVAL", "#!lua flags=allow-cross-slot-keys\nreturn redis.call('get','foo')", "0"),
        ("EVAL", "#!lua flags=no-cluster\nreturn 1", "0"),
        ("EVAL", "return redis.call('mget','bar','f')", "0"),
        ("EVAL", "return redis.pcall('get','foo').err", "0"),
    ]
    # Behind the text stands where in the script it happened.
    plain = lambda reply: reply.split(b" script: ")[0]  # noqa: E731
    expected = replies(redis_cluster, scenario, 2)
    for (words, reply), (_, wanted) in zip(replies(dunlin, scenario, 2), expected):
        assert plain(reply) == plain(wanted), words


def test_slots_are_not_assigned_by_hand(dunlin):
    for words in lines(
        """
CLUSTER|ADDSLOTS|1
CLUSTER|ADDSLOTSRANGE|1|2
CLUSTER|BUMPEPOCH
CLUSTER|DELSLOTS|1
CLUSTER|DELSLOTSRANGE|1|2
CLUSTER|FLUSHSLOTS
CLUSTER|MEET|127.0.0.1|7000
CLUSTER|REPLICATE|xx
CLUSTER|RESET
CLUSTER|SET-CONFIG-EPOCH|1
"""
    ):
        [(_, reply)] = replies(dunlin, [words], 2)
        assert b"is not for hands" in reply, words


def test_clusterscan_finds_all_keys_of_all_nodes(dunlin):
    client = redis.RedisCluster(host="127.0.0.1", port=dunlin.nodes[0].port, socket_timeout=30)
    keys = {f"scan:{number}".encode() for number in range(1000)}
    for key in keys:
        client.set(key, 1)
    connections = [Connection(node.port, 2) for node in dunlin.nodes]
    cursor, found, calls = b"0", set(), 0
    while cursor != b"0" or calls == 0:
        for connection in connections:
            reply = connection.ask("CLUSTERSCAN", cursor, "MATCH", "scan:*", "COUNT", 100)
            if not reply.startswith(b"-MOVED"):
                break
        words = [word for word in reply.split(b"\r\n") if word and word[:1] not in b"*$"]
        cursor, calls = words[0], calls + 1
        found.update(words[1:])
        assert calls < 10_000
    assert found == keys
    counted = sum(dunlin.client(number).dbsize() for number in range(3))
    assert counted >= len(keys)
    client.close()


def test_redis_cli_checks_the_cluster(dunlin):
    address = f"127.0.0.1:{dunlin.nodes[0].port}"
    check = subprocess.run([REDIS_CLI, "--cluster", "check", address], stdout=subprocess.PIPE, text=True, timeout=60)
    assert check.returncode == 0 and "All 16384 slots covered" in check.stdout, check.stdout
    info = subprocess.run([REDIS_CLI, "--cluster", "info", address], stdout=subprocess.PIPE, text=True, timeout=60)
    assert info.returncode == 0 and "in 3 masters" in info.stdout, info.stdout
    call = subprocess.run(
        [REDIS_CLI, "--cluster", "call", address, "PING"], stdout=subprocess.PIPE, text=True, timeout=60
    )
    assert call.stdout.count("PONG") == 3, call.stdout
    follow = subprocess.run(
        [REDIS_CLI, "-c", "-p", str(dunlin.nodes[0].port), "SET", "foo", "there"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert follow.stdout.strip() == "OK"
    assert dunlin.client(2).get("foo") == b"there"
