"""etcd goes back to an earlier state: nodes that have seen more keep their data, write nothing, and wait for an operator's word."""

import signal
import threading

import pytest
import redis

from etcd_cluster import DUNLIN, ETCDCTL, NEEDS_ETCD, Relay, dunlin_nodes, records, shard_order, told_again, until
from failovers import ALWAYS, SYNC, answer, id_of, in_sync, kill, logs, replica_value, run, serving, start_again
from harness import Server, suspend
from moves import jobs, key_in, migrate, state

pytestmark = [*NEEDS_ETCD, pytest.mark.skipif(not ETCDCTL, reason="there is no etcdctl (apt-get install etcd-client)")]


def stray(node):
    """Whether a node says that it does not obey etcd."""
    reply = answer(node, "CLUSTER", "RECOVER", "RECORDS")
    if not isinstance(reply, (list, dict)):
        return False
    pairs = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2]))
    return pairs.get(b"obeys") == b"no"


def slots(etcd):
    return records(etcd)["slots"]["slots"]


@told_again
def test_restored_etcd_whose_numbers_catch_up_takes_no_moved_key(etcd):
    with dunlin_nodes(etcd, 2, *ALWAYS) as cluster:
        first, second = cluster.nodes
        etcd.save_snapshot()
        name = migrate(cluster, [0, 99])
        until(lambda: state(cluster, name) == "success", lambda: logs(cluster))
        until(lambda: not records(etcd)["slots"]["moving"], "the record")
        moved, key = slots(etcd), key_in(50, 50)
        assert answer(second, "SET", key, "acknowledged") in (True, b"OK")
        etcd.restore_snapshot()
        strays = lambda: [answer(node, "INFO", "cluster")["cluster_strays"] for node in cluster.nodes]  # noqa: E731
        until(lambda: stray(first) and stray(second) and strays() == [1, 1], lambda: logs(cluster))
        restored = slots(etcd)
        assert restored != moved
        # Its numbers would catch up by these.
        for number in range(12):
            refused = answer(cluster.nodes[number % 2], "CLUSTER", "PIN", 16000 + number, 16000 + number)
            assert isinstance(refused, redis.ResponseError) and "does not obey" in str(refused), refused
        # A node that comes obeys, and has all numbers grow, while another one restarts.
        kill(second)
        with Server("--cluster-join", etcd.join(), "--cluster-replicas", "0", "--threads", "2") as third:
            until(lambda: f"nodes/{id_of(third)}" in records(etcd), lambda: third.log())
            for number in range(12):
                pin = ["CLUSTER", "PIN", 16000 + number, 16000 + number]
                # It is refused while the node has not met the records.
                until(lambda: answer(third, *pin, timeout=30) in (True, b"OK"), lambda: third.log())  # noqa: B023
            start_again(second, etcd, *ALWAYS, replicas=0)
            until(lambda: "restored from a backup" in second.log(), lambda: logs(cluster))
            assert "were removed" not in second.log()
            # What differs is shown, and nothing is done without a word.
            shown = run("records", "-p", first.port)
            assert "does not obey etcd" in shown and "100 slots have another shard" in shown, shown
            asked = run("records", "--keep", "nodes", "--at", f"127.0.0.1:{first.port}", "-p", first.port, code=1)
            assert "nothing was changed: say --yes" in asked, asked
            done = run("records", "--keep", "nodes", "--at", f"127.0.0.1:{first.port}", "--yes", "-p", first.port)
            assert "they follow within seconds" in done, done
            until(lambda: not stray(first) and not stray(second), lambda: logs(cluster))
            until(lambda: answer(second, "GET", key) == b"acknowledged", lambda: logs(cluster))
            found = {tuple(sorted(one.items())) for one in slots(etcd)}
            assert {tuple(sorted(one.items())) for one in moved} <= found or len(found) > 2, (moved, found)


@pytest.mark.parametrize("right", ["nodes", "etcd"])
@told_again
def test_restored_etcd_whose_epochs_catch_up_takes_no_acknowledged_write(etcd, right):
    with dunlin_nodes(etcd, 2, *SYNC, *ALWAYS, replicas=1) as cluster:
        first, second = cluster.nodes
        until(lambda: in_sync(etcd), lambda: logs(cluster))
        assert answer(first, "SET", "key", "before") in (True, b"OK")
        etcd.save_snapshot()
        kill(first)
        until(lambda: serving([second]), lambda: logs(cluster))
        until(lambda: in_sync(etcd, 1), lambda: logs(cluster))
        assert answer(second, "SET", "key", "acknowledged", timeout=30) in (True, b"OK")
        second_id = id_of(second)
        etcd.restore_snapshot()
        until(lambda: stray(second), lambda: logs(cluster))
        # While it is away, the other one obeys, leads, and expels it: its epochs go beyond.
        suspend(second.process)
        start_again(first, etcd, *SYNC, *ALWAYS, replicas=1)
        until(lambda: (record := in_sync(etcd, 1)) and second_id not in record["in_sync"], lambda: logs(cluster))
        until(lambda: answer(first, "SET", "other", "newer", timeout=30) in (True, b"OK"), lambda: logs(cluster))
        for _ in range(6):
            answer(first, "CLUSTER", "PIN", 7, 7, timeout=30)
            answer(first, "CLUSTER", "UNPIN", 7, 7, timeout=30)
        second.process.send_signal(signal.SIGCONT)
        until(lambda: stray(second), lambda: logs(cluster))
        assert answer(second, "GET", "key") == b"acknowledged"
        shown = run("records", "-p", second.port)
        assert "epoch" in shown and "does not obey etcd" in shown, shown
        run("records", "--keep", right, "--at", second_id, "--yes", "-p", second.port)
        until(lambda: not stray(second), lambda: logs(cluster))
        until(lambda: in_sync(etcd), lambda: logs(cluster))
        leader, follower = (second, first) if right == "nodes" else (first, second)
        until(lambda: serving([leader], "last"), lambda: logs(cluster))
        expected = {"nodes": (b"acknowledged", None), "etcd": (b"before", b"newer")}[right]
        assert (answer(leader, "GET", "key"), answer(leader, "GET", "other")) == expected
        until(lambda: replica_value(follower) == expected[0], lambda: logs(cluster))


@told_again
def test_shard_is_not_emptied_while_a_learner_has_its_data(etcd):
    with dunlin_nodes(etcd, 2, replicas=1) as cluster:
        first, second = cluster.nodes
        until(lambda: in_sync(etcd), lambda: logs(cluster))
        assert answer(first, "SET", "key", "kept") in (True, b"OK")
        until(lambda: replica_value(second) == b"kept", lambda: logs(cluster))
        # The replica is no member any more, and has everything but the last write.
        suspend(second.process)
        until(lambda: in_sync(etcd, 1), lambda: logs(cluster))
        assert answer(first, "SET", "last", "lost", timeout=30) in (True, b"OK")
        kill(first)
        second.process.send_signal(signal.SIGCONT)
        # It starts empty: it saves nothing.
        start_again(first, etcd, replicas=1)
        until(lambda: serving([second], "other"), lambda: logs(cluster))
        assert answer(second, "GET", "key") == b"kept"
        until(lambda: replica_value(first) == b"kept", lambda: logs(cluster))


@told_again
def test_replica_without_etcd_redirects_before_moved_keys_go(etcd):
    relays = [Relay(etcd.port) for _ in range(4)]
    waiting = iter(relays)
    joins = {}

    def own():
        relay = next(waiting)
        joins[relay.port] = relay
        return ["--cluster-join", f"etcd://127.0.0.1:{relay.port}/test"]

    with dunlin_nodes(etcd, 4, own, replicas=1) as cluster:
        first, second, replica, _ = cluster.nodes
        # A new epoch would end the move.
        of_shards = lambda: [one for key, one in records(etcd).items() if key.startswith("shards/")]  # noqa: E731
        until(lambda: all(len(one["in_sync"]) == 2 for one in of_shards()), lambda: logs(cluster))
        key = key_in(50, 50)
        assert answer(first, "SET", key, "there") in (True, b"OK")
        until(lambda: replica_value(replica, key) == b"there", lambda: logs(cluster))
        # The replica of the source hears of the move from its primary alone.
        joined = cluster.client(2).config_get("cluster-join")["cluster-join"]
        joins[int(joined.rsplit(":", 1)[1].split("/")[0])].cut()
        answers, is_over = [], threading.Event()

        def read():
            while not is_over.is_set():
                answers.append(replica_value(replica, key))

        reader = threading.Thread(target=read)
        reader.start()
        try:
            name = migrate(cluster, [0, 99])
            until(lambda: state(cluster, name) == "success", lambda: f"{jobs(cluster)} {logs(cluster)}")
            until(lambda: str(answers[-1]).startswith(("MOVED", "50 ")), lambda: f"{answers[-5:]} {logs(cluster)}")
            until(lambda: answer(first, "DBSIZE") == 0, lambda: logs(cluster))
            until(lambda: answer(replica, "DBSIZE") == 0, lambda: logs(cluster))
        finally:
            is_over.set()
            reader.join()
        assert None not in answers, "a key that is another shard's is not gone"


__all__ = ["DUNLIN", "shard_order"]
