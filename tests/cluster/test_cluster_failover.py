"""A shard whose primary dies, is stopped, or is to end: who serves then, and what is left of the writes."""

import signal
import subprocess
import threading
import time

import pytest
import redis
from redis.exceptions import ClusterDownError, MovedError

from etcd_cluster import NEEDS_ETCD, dunlin_nodes, put, records, told_again, until
from failovers import (
    PROBE_S, SYNC, Writer, answer, id_of, in_sync, list_of, logs, replica_value, restart, serving, shard_order_at,
)
from harness import DUNLIN, ORACLE, Server, command, free_port, suspend

pytestmark = NEEDS_ETCD

def replica_list(node, key="list"):
    try:
        with redis.Redis(port=node.port, single_connection_client=True, socket_timeout=5) as client:
            client.execute_command("READONLY")
            return client.lrange(key, 0, -1)
    except (redis.RedisError, OSError) as error:
        return error


@told_again
def test_failover_after_kill(etcd):
    with dunlin_nodes(etcd, 2, replicas=1) as cluster:
        first, second = cluster.nodes
        until(lambda: in_sync(etcd), first.log)
        writer = Writer(cluster.nodes)
        writer.start()
        until(lambda: len(writer.acknowledged) > 200, "writes")
        first.process.kill()
        first.process.wait()
        seen = len(writer.acknowledged)
        until(lambda: len(writer.acknowledged) > seen + 200, lambda: second.log()[-3000:])
        print("gap", writer.gap_s)
        assert shard_order_at(second)[0][2] == second.port
        # The old primary is a replica now, and has what the new one has.
        restart(first, etcd)
        until(lambda: in_sync(etcd), lambda: first.log()[-3000:] + second.log()[-3000:])
        writer.end()
        until(lambda: replica_list(first) == list_of(cluster.nodes), lambda: first.log()[-3000:])
        assert isinstance(answer(first, "GET", "list"), MovedError)


@told_again
def test_failover_of_a_primary_that_is_stopped(etcd):
    with dunlin_nodes(etcd, 2, replicas=1) as cluster:
        first, second = cluster.nodes
        until(lambda: in_sync(etcd), first.log)
        # Written before it stops, answered when it wakes, if at all: a reply would be of a primary that is none any more.
        late = first.connect(timeout=30)
        writer = Writer(cluster.nodes)
        writer.start()
        until(lambda: len(writer.acknowledged) > 200, "writes")
        suspend(first.process)
        late.sendall(b"SET list{list} late\r\nGET list{list}\r\n")
        seen = len(writer.acknowledged)
        until(lambda: len(writer.acknowledged) > seen + 200, lambda: second.log()[-3000:])
        print("gap", writer.gap_s)
        first.process.send_signal(signal.SIGCONT)
        try:
            reply = late.recv(200)
        except ConnectionResetError:
            reply = b""
        assert reply == b"" or reply.startswith(b"-MOVED "), reply
        until(lambda: in_sync(etcd), lambda: first.log()[-3000:] + second.log()[-3000:])
        writer.end()
        until(lambda: replica_list(first) == list_of(cluster.nodes), lambda: first.log()[-3000:])


@pytest.mark.parametrize("number", [0, 1])
@told_again
def test_script_on_the_worker_of_the_heartbeats_ends_no_lease(etcd, number):
    with dunlin_nodes(etcd, 2, *SYNC, "--threads", "1", "--busy-reply-threshold", "600000", replicas=1) as cluster:
        first, second = cluster.nodes
        before = until(lambda: in_sync(etcd), first.log)
        assert answer(first, "SET", "key", "value") in (b"OK", True)
        node = cluster.nodes[number]
        ends = []

        def script():
            ends.append(answer(node, "EVAL", "while true do end", 0, timeout=120))

        running = threading.Thread(target=script)
        running.start()
        try:
            # Another client waits, and is not answered BUSY.
            waiting = redis.Redis(port=node.port, socket_timeout=120, retry=None)
            replies = []
            reader = threading.Thread(target=lambda: replies.append(waiting.execute_command("DBSIZE")))
            reader.start()
            # Longer than leases and promises.
            time.sleep(4)
            if number == 1:
                assert answer(first, "SET", "key", "again", timeout=30) in (b"OK", True), logs(cluster)
        finally:
            until(lambda: answer(node, "SCRIPT", "KILL", timeout=30) in (b"OK", True), lambda: logs(cluster))
            running.join()
        reader.join()
        assert "killed by user" in str(ends[0]) and replies == [1], (ends, replies)
        assert answer(first, "SET", "key", "at last", timeout=30) in (b"OK", True), logs(cluster)
        assert in_sync(etcd)["epoch"] == before["epoch"], logs(cluster)


@told_again
def test_failover_leaves_healthy_shards_alone_while_etcd_is_dead(etcd):
    with dunlin_nodes(etcd, 2, replicas=1) as cluster:
        first, second = cluster.nodes
        until(lambda: in_sync(etcd), first.log)
        etcd.kill()
        primary = shard_order_at(second)[0][2]
        writer = Writer(cluster.nodes, patience_s=Writer.PATIENT)
        writer.start()
        seen = len(writer.acknowledged)
        # Longer than leases and promises.
        time.sleep(4)
        until(lambda: len(writer.acknowledged) > seen + 200, "writes")
        writer.end()
        assert not writer.errors, (writer.errors[:3], logs(cluster))
        etcd.start()
        until(lambda: all("following the records again" in node.log() for node in cluster.nodes), "that it is back")
        assert shard_order_at(second)[0][2] == primary, "a healthy primary stays"
        writer.check(list_of(cluster.nodes))


@told_again
def test_node_that_leaves_its_shard_and_comes_back_is_in_sync_again(etcd):
    with dunlin_nodes(etcd, 2, *SYNC, "--appendonly", "yes", "--appendfsync", "always", replicas=1) as cluster:
        first, second = cluster.nodes
        until(lambda: in_sync(etcd), first.log)
        promise = lambda: (second.folder / "cluster-end").read_text()  # noqa: E731
        until(lambda: promise() == "durable\n", second.log)
        # Nobody plans: the test does.
        put(etcd, "controller", {"v": 1, "node": "f" * 40, "boot": "f" * 40})
        (shard,) = [key for key in records(etcd) if key.startswith("shards/")]
        for number in range(3):
            cluster.client(0).set("key", number)
            put(etcd, shard, {**records(etcd)[shard], "requested": {"release": id_of(second)}})
            until(lambda: records(etcd)[shard]["in_sync"] == [id_of(first)], first.log)
            until(lambda: promise() == "", second.log)
            put(etcd, shard, {**records(etcd)[shard], "learners": [id_of(second)]})
            until(lambda: in_sync(etcd), lambda: first.log()[-3000:] + second.log()[-3000:])
            until(lambda: promise() == "durable\n", second.log)
            assert replica_value(second) == str(number).encode()


@told_again
def test_failover_old_primary_keeps_nothing_uncommitted(etcd):
    with dunlin_nodes(etcd, 2, *SYNC, replicas=1) as cluster:
        first, second = cluster.nodes
        until(lambda: in_sync(etcd), first.log)
        client = cluster.client(0)
        client.set("key", "old")
        # What is written now is nobody's but the primary's, and nobody can be expelled.
        etcd.pause(True)
        suspend(second.process)
        assert client.execute_command("CLIENT", "KILL", "TYPE", "replica") == 1
        late = first.connect(timeout=30)
        late.sendall(b"SET key new\r\n")
        reader = first.connect(timeout=0.5)

        def is_withheld():
            reader.sendall(b"GET key\r\n")
            try:
                reply = reader.recv(100)
            except TimeoutError:
                return True
            assert reply == b"$3\r\nold\r\n", "the other worker may not have made the write yet"
            return False

        until(is_withheld, "a reply that waits")
        suspend(first.process)
        second.process.send_signal(signal.SIGCONT)
        etcd.pause(False)
        assert until(lambda: answer(second, "GET", "key", timeout=PROBE_S) == b"old" and serving([second], "other"), second.log)
        first.process.send_signal(signal.SIGCONT)
        shard = until(lambda: in_sync(etcd), lambda: first.log()[-3000:])
        assert shard["primary"] == id_of(second)
        until(lambda: replica_value(first) == b"old", first.log)
        # The client learns that nobody knows what became of it.
        assert late.recv(100) == b""


def test_sync_loses_no_acknowledged_write(etcd):
    with dunlin_nodes(etcd, 3, *SYNC, replicas=2) as cluster:
        until(lambda: in_sync(etcd, 3), cluster.nodes[0].log)
        writers = [Writer(cluster.nodes, f"list:{number}") for number in range(4)]
        for writer in writers:
            writer.start()
        for fault in ("kill", "stop", "kill", "hand over"):
            seen = [len(writer.acknowledged) for writer in writers]
            until(lambda: all(len(w.acknowledged) > s + 50 for w, s in zip(writers, seen)), lambda: logs(cluster))
            primary = until(lambda: serving(cluster.nodes), lambda: logs(cluster))
            if fault == "stop":
                suspend(primary.process)
                until(lambda: serving([node for node in cluster.nodes if node is not primary]), lambda: logs(cluster))
                primary.process.send_signal(signal.SIGCONT)
            elif fault == "kill":
                primary.process.kill()
                primary.process.wait()
                until(lambda: serving([node for node in cluster.nodes if node is not primary]), lambda: logs(cluster))
                restart(primary, etcd, *SYNC)
            else:
                other = next(node for node in cluster.nodes if node is not primary)
                # The wish ends where a third node takes over meanwhile.
                wish = lambda: answer(other, "CLUSTER", "FAILOVER") in (b"OK", True)  # noqa: B023, E731
                until(lambda: serving([other]) or wish() and serving([other]), lambda: logs(cluster))
            until(lambda: in_sync(etcd, 3), lambda: logs(cluster))
        for writer in writers:
            writer.end()
            writer.check(list_of(cluster.nodes, writer.key))
            print("gap", writer.gap_s, len(writer.acknowledged))


@told_again
def test_sync_refuses_writes_with_too_few_members(etcd):
    with dunlin_nodes(etcd, 2, *SYNC, "--cluster-min-sync", "2", replicas=1) as cluster:
        first, second = cluster.nodes
        until(lambda: in_sync(etcd), first.log)
        until(lambda: serving([first]), first.log)
        second.process.kill()
        second.process.wait()
        # It may not be expelled, so the primary has no lease of it and answers nobody.
        assert isinstance(answer(first, "SET", "key", 1, timeout=3), redis.TimeoutError)
        # Both what came before and what comes later are refused in the end.
        assert isinstance(answer(first, "SET", "key", 1, timeout=60), ClusterDownError)
        assert isinstance(answer(first, "GET", "key", timeout=60), ClusterDownError)
        restart(second, etcd, *SYNC, "--cluster-min-sync", "2")
        until(lambda: serving([first, second]), lambda: logs(cluster))


@told_again
def test_cluster_failover_hands_over_without_an_error(etcd):
    with dunlin_nodes(etcd, 2, replicas=1) as cluster:
        first, second = cluster.nodes
        assert "should send CLUSTER FAILOVER to a replica" in str(answer(first, "CLUSTER", "FAILOVER"))
        until(lambda: in_sync(etcd), first.log)
        writer = Writer(cluster.nodes, patience_s=Writer.PATIENT)
        writer.start()
        until(lambda: len(writer.acknowledged) > 200, "writes")
        for replica in (second, first, second):
            until(lambda: answer(replica, "CLUSTER", "FAILOVER") in (b"OK", True), replica.log)
            until(lambda: serving([replica]), lambda: logs(cluster))
            until(lambda: in_sync(etcd), lambda: logs(cluster))
        writer.end()
        assert not writer.errors, (writer.errors[:3], logs(cluster))
        print("gap", writer.gap_s)
        assert "has changed meanwhile" not in logs(cluster), "the first proposal fits"
        writer.check(list_of(cluster.nodes))


def test_node_that_was_killed_does_not_wait_for_its_former_presence(etcd):
    with dunlin_nodes(etcd, 2, replicas=1) as cluster:
        first, second = cluster.nodes
        until(lambda: in_sync(etcd), lambda: logs(cluster))
        for node in (first, second):
            node.process.kill()
            node.process.wait()
            restart(node, etcd)
            until(lambda: in_sync(etcd), lambda: logs(cluster))
            assert "presence of an earlier process" not in node.log(), node.log()
        # A copy of a directory is another place: it waits, and ends.
        copy = first.folder / "copy"
        copy.mkdir()
        (copy / "cluster-node").write_bytes((first.folder / "cluster-node").read_bytes())
        arguments = ["--save", "", "--bind", "127.0.0.1", "--port", free_port(), "--dir", copy, "--cluster-join", etcd.join()]
        done = subprocess.run(command(DUNLIN, *arguments), capture_output=True, text=True, timeout=180)
        assert done.returncode != 0 and "its data directory was copied" in done.stdout + done.stderr, done


@told_again
def test_primary_that_ends_hands_over_first(etcd):
    with dunlin_nodes(etcd, 2, replicas=1) as cluster:
        first, second = cluster.nodes
        until(lambda: in_sync(etcd), first.log)
        writer = Writer(cluster.nodes, patience_s=Writer.PATIENT)
        writer.start()
        until(lambda: len(writer.acknowledged) > 200, "writes")
        seen = len(writer.acknowledged)
        first.process.terminate()
        assert first.process.wait(60) == 0, first.log()
        until(lambda: len(writer.acknowledged) > seen + 200, lambda: logs(cluster))
        writer.end()
        assert not writer.errors, (writer.errors[:3], logs(cluster))
        print("gap", writer.gap_s)
        writer.check(list_of([second]))
        # A node that has gone can be forgotten, once it is no member any more.
        gone = next(key for key, record in records(etcd).items() if key.startswith("nodes/") and record["addresses"]["port"] == first.port)
        gone = gone.split("/")[1]
        assert "can't forget myself" in str(answer(second, "CLUSTER", "FORGET", id_of(second)))
        assert "Unknown node" in str(answer(second, "CLUSTER", "FORGET", "0" * 40))

        def is_forgotten():
            answer(second, "CLUSTER", "FORGET", gone)
            return f"nodes/{gone}" not in records(etcd)

        until(is_forgotten, second.log)
        assert gone not in in_sync(etcd, 1)["learners"]


@told_again
@pytest.mark.parametrize("durability", ["sync", "async"])
@pytest.mark.parametrize("how", ["CLUSTER FAILOVER", "SIGTERM"])
def test_clients_that_wait_are_told_of_a_planned_handover(etcd, how, durability):
    with dunlin_nodes(etcd, 2, "--cluster-durability", durability, replicas=1) as cluster:
        first, second = cluster.nodes
        until(lambda: in_sync(etcd), lambda: logs(cluster))
        until(lambda: answer(first, "XADD", "stream", "1-1", "f", "v") == b"1-1", lambda: logs(cluster))
        waits = {"BLPOP nokey 0": b"-", "XREAD BLOCK 0 STREAMS stream $": b"-", "WAIT 5 0": b"-:"}
        clients = {}
        for words in waits:
            clients[words] = first.connect()
            clients[words].sendall(words.encode() + b"\r\n")
        # WAIT is not counted there, and comes last to the same worker or another one.
        until(lambda: b"blocked_clients:3" in first_info(first), lambda: logs(cluster))
        if how == "SIGTERM":
            first.process.terminate()
        else:
            until(lambda: answer(second, "CLUSTER", "FAILOVER") in (b"OK", True), lambda: logs(cluster))
        for words, client in clients.items():
            reply = client.recv(1024)
            assert reply[:1] and reply[:1] in waits[words], (words, reply)
            assert reply[:1] != b"-" or reply.startswith((b"-UNBLOCKED", b"-MOVED")), (words, reply)
        until(lambda: serving([second]), lambda: logs(cluster))


def first_info(node):
    with node.connect() as client:
        client.sendall(b"INFO clients\r\n")
        return client.recv(65536)


@pytest.mark.parametrize("queued", [0, 1])
@told_again
def test_exec_behind_a_command_that_was_sent_elsewhere_is_sent_there_too(etcd, queued):
    with dunlin_nodes(etcd, 2, replicas=1) as cluster:
        first, second = cluster.nodes
        until(lambda: in_sync(etcd), lambda: logs(cluster))
        with redis.Redis(port=first.port, single_connection_client=True) as client:
            assert client.execute_command("MULTI") in (b"OK", True)
            for _ in range(queued):
                assert client.execute_command("INCR", "a{t}") == b"QUEUED"
            until(lambda: answer(second, "CLUSTER", "FAILOVER") in (b"OK", True), lambda: logs(cluster))
            until(lambda: serving([second], "a{t}"), lambda: logs(cluster))
            for words in (("INCR", "b{t}"), ("EXEC",)):
                with pytest.raises(MovedError) as error:
                    client.execute_command(*words)
                assert error.value.port == second.port
            # The transaction is over, and nothing of it has run.
            assert client.execute_command("MULTI") in (b"OK", True)
        assert answer(second, "GET", "b{t}") is None


@told_again
def test_sync_shows_no_event_that_could_be_lost(etcd):
    with dunlin_nodes(etcd, 2, *SYNC, "--notify-keyspace-events", "KEA", replicas=1) as cluster:
        until(lambda: in_sync(etcd), "the replica")
        listener = cluster.client(0).pubsub()
        listener.psubscribe("__key*__:*")
        assert until(listener.get_message, "the confirmation")["type"] == "psubscribe"
        # Nobody has the write but the primary, and nobody can be expelled.
        etcd.pause(True)
        suspend(cluster.nodes[1].process)
        replies = []
        writer = threading.Thread(target=lambda: replies.append(answer(cluster.nodes[0], "SET", "key", "value")))
        writer.start()
        assert listener.get_message(timeout=0.5) is None
        assert not replies
        cluster.nodes[1].process.send_signal(signal.SIGCONT)
        etcd.pause(False)
        writer.join()
        # A member that has been away for long may take over; then neither the reply nor the event comes.
        if replies[0] in (b"OK", True):
            assert until(listener.get_message, "the event")["data"] in (b"set", b"key")


@told_again
def test_sync_shows_other_replicas_nothing_that_could_be_lost(etcd):
    with dunlin_nodes(etcd, 2, *SYNC, replicas=1) as cluster, Server(program=ORACLE) as other:
        until(lambda: in_sync(etcd), "the replica")
        client = redis.Redis(port=other.port)
        # It is no node of the cluster.
        client.replicaof("127.0.0.1", cluster.nodes[0].port)
        assert answer(cluster.nodes[0], "SET", "before", 1) in (b"OK", True)
        until(lambda: client.get("before"), "the link")
        etcd.pause(True)
        suspend(cluster.nodes[1].process)
        replies = []
        writer = threading.Thread(target=lambda: replies.append(answer(cluster.nodes[0], "SET", "key", "value")))
        writer.start()
        time.sleep(0.5)
        assert client.get("key") is None
        assert not replies
        cluster.nodes[1].process.send_signal(signal.SIGCONT)
        etcd.pause(False)
        writer.join()
        if replies[0] in (b"OK", True):
            until(lambda: client.get("key"), "the write")


@told_again
def test_former_primary_answers_what_takes_long(etcd):
    with dunlin_nodes(etcd, 2, *SYNC, replicas=1) as cluster:
        first, second = cluster.nodes
        until(lambda: in_sync(etcd), "the replica")
        with redis.Redis(port=first.port, socket_timeout=60) as client, client.pipeline(transaction=False) as pipeline:
            for n in range(20_000):
                pipeline.set(f"key:{n}", n)
            pipeline.execute()
        # The other node may hear later that it is in sync.
        until(lambda: answer(second, "CLUSTER", "FAILOVER") in (b"OK", True), lambda: logs(cluster))
        until(lambda: "slave" in str(answer(first, "ROLE")), "the failover")
        # It is read apart from the worker, as on any replica.
        assert len(answer(first, "KEYS", "*")) == 20_000
