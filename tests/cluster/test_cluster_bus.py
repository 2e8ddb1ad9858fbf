"""PUBLISH over the bus of a cluster: inside TLS, and never before what a message shows is committed."""

import contextlib
import signal
import time

import redis

from certificates import Authority
from etcd_cluster import NEEDS_ETCD, StoodStill, dunlin_nodes, records, told_again, until
from harness import free_port, suspend

pytestmark = NEEDS_ETCD


@contextlib.contextmanager
def listening(node, *channels):
    with redis.Redis(port=node.port, socket_timeout=30) as client, client.pubsub(ignore_subscribe_messages=True) as listener:
        listener.subscribe(*channels)
        # Its reply is that of the last subscription.
        client.ping()
        while not listener.subscribed:
            listener.get_message(timeout=1)
        yield listener


def next_payload(listener):
    """The next message but for those that show that there is a connection."""
    payload = b"begin"
    while payload == b"begin":
        payload = until(lambda: listener.get_message(timeout=0.05), "a message")["data"]
    return payload


def test_publish_reaches_other_shards_inside_tls(etcd, tmp_path):
    authority = Authority(tmp_path)
    cert, key = authority.issue("node")
    own = lambda: (  # noqa: E731
        *("--tls-port", str(free_port()), "--tls-cluster", "yes", "--tls-replication", "yes"),
        *("--tls-cert-file", str(cert), "--tls-key-file", str(key), "--tls-ca-cert-file", str(authority.cert)),
    )
    with dunlin_nodes(etcd, 2, own) as cluster, listening(cluster.nodes[1], "news") as listener:
        publisher = cluster.client(0)
        # The first ones may find no connection yet: they are not kept.
        until(lambda: publisher.publish("news", "begin") == 0 and listener.get_message(timeout=0.1), "a message")
        for number in range(100):
            publisher.publish("news", number)
        assert [next_payload(listener) for _ in range(100)] == [b"%d" % number for number in range(100)]


@told_again
def test_messages_wait_for_the_commit_of_their_shard(etcd):
    sync = ("--cluster-durability", "sync", "--cluster-min-sync", "2", "--shutdown-timeout", "1")
    with dunlin_nodes(etcd, 4, *sync, replicas=1) as cluster:
        first, second, *replicas = cluster.nodes
        until(lambda: takes_writes(first, "bar") and takes_writes(second, "foo"), "both shards")
        replica = next(node for node in replicas if shard_of(node) == shard_of(first))
        with listening(second, "news") as listener:
            until(lambda: cluster.client(0).publish("news", "begin") == 0 and listener.get_message(timeout=0.1), "it")
            other = cluster.client(1)
            other.ping()
            before = primaries(etcd)
            suspend(replica.process)
            writers = []
            # Alone behind a write, in a transaction with it, and in a script.
            for words in (
                [("SET", "bar", "1"), ("PUBLISH", "news", "alone")],
                [("MULTI",), ("SET", "bar", "2"), ("PUBLISH", "news", "multi"), ("EXEC",)],
                [("EVAL", "redis.call('set', KEYS[1], 3) redis.call('publish', 'news', 'script')", "1", "bar")],
            ):
                writer = first.connect()
                writer.sendall(b"".join(packed(*command) for command in words))
                writers.append(writer)
            # Nothing that shows would do for a sign: replies wait, too. A message that does not wait has left by then.
            time.sleep(0.5)
            # Messages of another shard are not held up.
            for number in range(3):
                other.publish("news", f"other {number}")
            seen = [next_payload(listener) for _ in range(3)]
            assert seen == [b"other 0", b"other 1", b"other 2"]
            replica.process.send_signal(signal.SIGCONT)
            # They are three clients', so any may be first.
            payloads = set()

            def have_come():
                # One that was stopped for longer than its promise lasts takes over, and what was not committed is lost.
                if primaries(etcd) != before:
                    raise StoodStill("a replica has taken over")
                message = listener.get_message(timeout=0.05)
                payloads.update([message["data"]] if message and message["data"] != b"begin" else [])
                return len(payloads) == 3

            until(have_come, lambda: str(payloads))
            assert payloads == {b"alone", b"multi", b"script"}
            for writer in writers:
                writer.close()


def primaries(etcd):
    return {key: record["primary"] for key, record in records(etcd).items() if key.startswith("shards/")}


def takes_writes(node, key):
    try:
        return redis.Redis(port=node.port, socket_timeout=30).set(key, 0)
    except redis.ResponseError as error:
        assert "NOREPLICAS" in str(error)


def shard_of(node):
    return redis.Redis(port=node.port, socket_timeout=30).execute_command("CLUSTER", "MYSHARDID")


def packed(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word.encode()) for word in words)
