"""Slots that no node serves: what requests, states, metrics and operators are told. And etcd that answers, and makes no changes."""

import http.client
import itertools
import time

import pytest
import redis
from redis.exceptions import ClusterDownError

from etcd_cluster import NEEDS_ETCD, Relay, ask_etcd, dunlin_nodes, told_again, until
from failovers import answer, id_of, kill, logs, run, start_again
from harness import free_port
from moves import key_in

pytestmark = NEEDS_ETCD


class WithHttp:
    """Directives of nodes with a port for HTTP each, in their order."""

    def __init__(self):
        self.ports = []

    def __call__(self):
        self.ports.append(free_port())
        return ["--http-port", self.ports[-1]]


def ask(port, path):
    """The status and the text of a page."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        client.request("GET", path)
        response = client.getresponse()
        return response.status, response.read().decode()
    finally:
        client.close()


def info(node, field):
    return answer(node, "INFO", "cluster")[field]


def down(reply, what="The cluster is down"):
    return isinstance(reply, ClusterDownError) and what in str(reply)


@told_again
def test_slots_of_a_dead_primary_without_replicas_make_the_cluster_down(etcd):
    http = WithHttp()
    with dunlin_nodes(etcd, 2, http, replicas=0) as cluster:
        # In the order of their slots, which is not that of their starts.
        first, second = cluster.nodes
        port = cluster.client(0).config_get("http-port")["http-port"]
        mine, lost = key_in(0, 99), key_in(16000, 16383)
        assert answer(first, "SET", mine, "1") in (True, b"OK")
        assert ask(port, "/health") == (200, "ok\n")
        assert "cluster is down" not in run("status", "-p", first.port)
        kill(second)
        until(lambda: down(answer(first, "GET", mine)), lambda: logs(cluster))
        assert down(answer(first, "SET", mine, "2")) and down(answer(first, "GET", lost))
        assert down(answer(first, "EVAL", "return redis.call('get', KEYS[1])", 1, mine))
        assert answer(first, "PING") in (True, b"PONG", "PONG"), "it has no keys"
        assert cluster.info(0)["cluster_state"] == "fail"
        fields = {"cluster_is_down": 1, "cluster_slots_unserved": 8192, "cluster_shards_without_primary": 1, "cluster_strays": 0}
        assert {name: info(first, name) for name in fields} == fields
        assert "\ndunlin_cluster_is_down 1\n" in ask(port, "/metrics")[1]
        assert ask(port, "/health") == (503, "the cluster is down: 8192 slots are not served\n")
        status = run("status", "-p", first.port)
        assert "The cluster is down: some slots are not served" in status and f"its primary 127.0.0.1:{second.port} is gone" in status, status
        # An operator lets the others go on.
        assert answer(first, "CONFIG", "SET", "cluster-require-full-coverage", "no") in (True, b"OK")
        until(lambda: answer(first, "GET", mine) == b"1", lambda: logs(cluster))
        assert cluster.info(0)["cluster_state"] == "ok" and ask(port, "/health") == (200, "ok\n")
        assert answer(first, "CONFIG", "SET", "cluster-require-full-coverage", "yes") in (True, b"OK")
        until(lambda: down(answer(first, "GET", mine)), lambda: logs(cluster))
        start_again(second, etcd, replicas=0)
        until(lambda: answer(first, "GET", mine) == b"1", lambda: logs(cluster))
        until(lambda: cluster.info(0)["cluster_state"] == "ok" and info(first, "cluster_slots_unserved") == 0, lambda: logs(cluster))


@told_again
def test_cluster_stays_up_if_only_etcd_misses_a_primary(etcd):
    relays = [Relay(etcd.port) for _ in range(2)]
    by_port = {relay.port: relay for relay in relays}
    waiting = iter(relays)
    with dunlin_nodes(etcd, 2, lambda: ["--cluster-join", f"etcd://127.0.0.1:{next(waiting).port}/test"], replicas=0) as cluster:
        first, second = cluster.nodes
        mine, other = key_in(0, 99), key_in(16000, 16383)
        joined = cluster.client(1).config_get("cluster-join")["cluster-join"]
        by_port[int(joined.rsplit(":", 1)[1].split("/")[0])].cut()
        until(lambda: info(first, "cluster_shards_without_primary") == 1, lambda: logs(cluster))
        # Longer than a primary that does not answer is waited for.
        until_s = time.monotonic() + 8
        for number in itertools.takewhile(lambda _: time.monotonic() < until_s, itertools.count()):
            assert answer(first, "SET", mine, number) in (True, b"OK"), logs(cluster)
            assert answer(second, "SET", other, number) in (True, b"OK"), logs(cluster)
        assert (cluster.info(0)["cluster_state"], info(first, "cluster_is_down")) == ("ok", 0)


def cluster_error(node):
    """The reply to a request for a slot of the first shard."""
    error = answer(node, "GET", key_in(0, 99))
    return f"{getattr(error, 'host', '')}:{getattr(error, 'port', '')}" if isinstance(error, redis.exceptions.MovedError) else error


@pytest.mark.parametrize("asked", [0, 1])
def test_announced_names_change_while_a_node_runs(etcd, asked):
    with dunlin_nodes(etcd, 2, replicas=0) as cluster:
        first = cluster.nodes[0]
        name = id_of(first)

        def shown(*words):
            text = str(answer(cluster.nodes[asked], "CLUSTER", "NODES"))
            return all(word in text for word in words)

        own = cluster.client(0)
        for directive, value, error in [
            ("cluster-announce-hostname", "bad host,x", "Hostnames may only contain"),
            ("cluster-announce-ip", "10.0.0.1 x", "address"),
            ("cluster-announce-human-nodename", "a,b", "human node name contained invalid character"),
            ("cluster-announce-port", "65536", "between 0 and 65535"),
        ]:
            with pytest.raises(redis.ResponseError, match=error):
                own.config_set(directive, value)
        own.config_set("cluster-announce-hostname", "one.example", "cluster-announce-human-nodename", "west")
        until(lambda: shown("one.example", "west"), lambda: logs(cluster))
        own.config_set("cluster-announce-ip", "127.0.0.2", "cluster-announce-port", 7)
        until(lambda: shown("127.0.0.2", ":7@"), lambda: logs(cluster))
        # MOVED, too.
        until(lambda: "127.0.0.2:7" in str(cluster_error(cluster.nodes[1])), lambda: logs(cluster))
        # Empty: as at a start without them.
        own.config_set("cluster-announce-ip", "", "cluster-announce-port", 0)
        until(lambda: shown(f":{first.port}@"), lambda: logs(cluster))
        assert id_of(first) == name


@told_again
def test_status_says_that_etcd_is_out_of_space(etcd):
    with dunlin_nodes(etcd, 2, replicas=1) as cluster:
        first = cluster.nodes[0]
        alarm = {"memberID": "0", "alarm": "NOSPACE"}
        ask_etcd(etcd, "maintenance/alarm", action="ACTIVATE", **alarm)
        status = until(lambda: "space exceeded" in (text := run("status", "-p", first.port)) and text, lambda: logs(cluster))
        assert "Nothing can change, because etcd refuses changes" in status and "etcdctl alarm disarm" in status, status
        assert info(first, "cluster_etcd_refuses") == 1
        assert answer(first, "SET", key_in(0, 99), "served") in (True, b"OK")
        raised = ask_etcd(etcd, "maintenance/alarm", action="GET", **alarm)["alarms"]
        for one in raised:
            ask_etcd(etcd, "maintenance/alarm", action="DEACTIVATE", **one)
        until(lambda: "space exceeded" not in run("status", "-p", first.port), lambda: logs(cluster))
        until(lambda: info(first, "cluster_etcd_refuses") == 0, lambda: logs(cluster))
