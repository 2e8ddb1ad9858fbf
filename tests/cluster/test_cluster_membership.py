"""Nodes that join, follow the records in etcd, and are refused: roles, slots that leave a node, etcd that fails."""

import re
import shutil
import subprocess
import threading

import pytest
import redis
from redis.exceptions import MovedError

from etcd_cluster import NEEDS_ETCD, Etcd, ask_etcd, dunlin_nodes, put, records, shard_order, text, told_again, until
from failovers import fails
from harness import DUNLIN, command

pytestmark = NEEDS_ETCD


def shard_of(etcd, node):
    """The id of the shard that a node is the primary of."""
    name = redis.Redis(port=node.port).execute_command("CLUSTER MYID")
    name = name if isinstance(name, str) else name.decode()
    found = records(etcd)
    return next(key.split("/")[1] for key, shard in found.items() if key.startswith("shards/") and shard["primary"] == name)


def give(etcd, slots):
    """Has the record say who owns which slots: what a move ends with."""
    entries = [{"shard": shard, "slots": runs} for shard, runs in slots.items()]
    put(etcd, "slots", {"v": 1, "slots": entries, "moving": []})


def await_owner(cluster, number, key):
    """Waits until a node answers for a key that it has not: it may hear later than the one before that the slot is its own."""

    def owns():
        try:
            assert cluster.client(number).get(key) is None
        except MovedError:
            return False
        return True

    until(owns, cluster.nodes[number].log)


@told_again
def test_replicas_follow_and_redirect(etcd):
    with dunlin_nodes(etcd, 2, replicas=1) as cluster:
        primary, replica = cluster.client(0), cluster.client(1)
        assert [len(run) for run in shard_order(cluster)] == [4]
        primary.set("key", "value")
        with pytest.raises(MovedError, match=f"^12539 127.0.0.1:{cluster.nodes[0].port}$"):
            replica.get("key")
        reader = redis.Redis(port=cluster.nodes[1].port, single_connection_client=True)
        reader.execute_command("READONLY")
        until(lambda: reader.get("key") == b"value", "the replica's copy")
        with pytest.raises(MovedError, match="^12539 "):
            reader.set("key", "other")
        reader.execute_command("READWRITE")
        with pytest.raises(MovedError, match="^12539 "):
            reader.get("key")
        assert replica.info("replication")["role"] == "slave"
        for call in ("REPLICAOF NO ONE", "FAILOVER"):
            with pytest.raises(redis.ResponseError, match="not allowed in cluster mode"):
                replica.execute_command(*call.split())


def test_slots_that_leave_take_waiting_and_listening_clients_along(etcd):
    with dunlin_nodes(etcd, 2, replicas=0) as cluster:
        one, two = (shard_of(etcd, node) for node in cluster.nodes)
        port = cluster.nodes[1].port
        answers = []

        def block():
            client = redis.Redis(port=cluster.nodes[0].port, socket_timeout=60)
            try:
                answers.append(client.blpop(["{bar}list"], 0))
            except MovedError as error:
                answers.append(str(error))

        waiting = threading.Thread(target=block)
        waiting.start()
        listener = cluster.nodes[0].connect().makefile("rwb")
        listener.write(b"SSUBSCRIBE bar\r\nSSUBSCRIBE b\r\n")
        listener.flush()
        observer = cluster.client(0)
        until(lambda: observer.info("clients")["blocked_clients"] == 1, "the client that waits")
        until(lambda: dict(observer.pubsub_shardnumsub("bar", "b")).get(b"b") == 1, "the subscriptions")
        # Slot 5061 is bar's, 3300 b's.
        give(etcd, {one: "0-5060,5062-8191", two: "5061,8192-16383"})
        waiting.join(60)
        assert answers == [f"5061 127.0.0.1:{port}"], answers
        until(lambda: dict(observer.pubsub_shardnumsub("bar")).get(b"bar") == 0, "the end of the subscription")
        assert dict(observer.pubsub_shardnumsub("b")) == {b"b": 1}
        confirmed = [listener.readline() for _ in range(18)]
        assert confirmed[12:] == [b"*3\r\n", b"$12\r\n", b"sunsubscribe\r\n", b"$3\r\n", b"bar\r\n", b":1\r\n"]
        with pytest.raises(MovedError, match="^5061 "):
            observer.get("bar")
        await_owner(cluster, 1, "bar")


def test_transactions_meet_slots_that_leave(etcd):
    with dunlin_nodes(etcd, 2, replicas=0) as cluster:
        one, two = (shard_of(etcd, node) for node in cluster.nodes)
        client = redis.Redis(port=cluster.nodes[0].port, single_connection_client=True)
        client.execute_command("MULTI")
        client.execute_command("SET", "bar", 1)
        give(etcd, {one: "0-5060,5062-8191", two: "5061,8192-16383"})
        observer = cluster.client(0)

        def has_left():
            try:
                observer.get("bar")
            except MovedError:
                return True
            return False

        until(has_left, "the slot's end here")
        with pytest.raises(MovedError, match="^5061 "):
            client.execute_command("EXEC")
        # The transaction is over.
        with pytest.raises(redis.ResponseError, match="EXEC without MULTI"):
            client.execute_command("EXEC")
        await_owner(cluster, 1, "bar")


def test_cluster_is_down_while_a_slot_has_no_shard(etcd):
    with dunlin_nodes(etcd, 1, replicas=0) as cluster:
        one = shard_of(etcd, cluster.nodes[0])
        client = cluster.client(0)
        client.set("bar", 1)
        # Nobody plans: the planner would give the slot to a shard at once.
        put(etcd, "controller", {"v": 1, "node": "f" * 40, "boot": "f" * 40})
        give(etcd, {one: "1-16383"})
        until(lambda: cluster.info()["cluster_state"] == "fail", "the state")
        assert client.info("cluster")["cluster_slots_unserved"] == 1
        for call, error in [
            (("GET", "bar"), "CLUSTERDOWN|The cluster is down"),
            (("GET", "{06S}"), "CLUSTERDOWN|Hash slot not served"),
        ]:
            with pytest.raises(redis.RedisError, match=error):
                client.execute_command(*call)
        client.config_set("cluster-allow-reads-when-down", "yes")
        assert client.get("bar") == b"1"
        with pytest.raises(redis.RedisError, match="only accepts read commands"):
            client.set("bar", 2)
        client.config_set("cluster-require-full-coverage", "no")
        client.set("bar", 3)
        assert client.get("bar") == b"3"
        with pytest.raises(redis.RedisError, match="Hash slot not served"):
            client.get("{06S}")


def test_etcd_that_is_dead_stops_nothing(etcd):
    with dunlin_nodes(etcd, 3, replicas=0) as cluster:
        client = redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port, socket_timeout=30)
        before = shard_order(cluster)
        node, follows = cluster.client(0), lambda: cluster.client(0).info("cluster")["cluster_follows_etcd"]
        assert follows() == 1
        etcd.kill()
        until(lambda: follows() == 0, "that INFO says it")
        until(lambda: all("etcd" in node.log() or "metadata store" in node.log() for node in cluster.nodes), "that it is noticed")
        for number in range(1000):
            client.set(f"key:{number}", number)
        assert all(client.get(f"key:{number}") == str(number).encode() for number in range(0, 1000, 7))
        etcd.start()
        until(lambda: all("following the records again" in node.log() for node in cluster.nodes), "that it is back")
        assert shard_order(cluster) == before and follows() == 1
        # Messages of pub/sub go to the other nodes.
        node.publish("channel", "x")
        until(lambda: node.info("clients")["cluster_connections"] == 2, "the links")
        assert node.info("memory")["mem_cluster_links"] > 0
        client.close()


def test_node_keeps_its_id_and_slots_over_a_restart(etcd):
    with dunlin_nodes(etcd, 2, "--appendonly", "yes", "--appendfsync", "always", replicas=0) as cluster:
        first = cluster.nodes[0]
        before = cluster.client(0).execute_command("CLUSTER MYID"), shard_order(cluster)
        cluster.client(0).set("bar", "kept")
        first.process.kill()
        first.process.wait()
        arguments = ["--save", "", "--bind", "127.0.0.1", "--port", first.port, "--dir", first.folder]
        arguments += ["--appendonly", "yes", "--cluster-join", etcd.join(), "--unixsocket", first.socket]
        with open(first.log_path, "ab") as log:
            first.process = subprocess.Popen(command(DUNLIN, *arguments), stdout=log, stderr=log)
        first._await_ping()

        def is_back():
            try:
                return cluster.client(0).get("bar") == b"kept"
            except redis.RedisError:
                return False

        until(is_back, first.log)
        assert (cluster.client(0).execute_command("CLUSTER MYID"), shard_order(cluster)) == before


def test_node_does_not_obey_an_etcd_backup_that_is_too_old(etcd):
    with dunlin_nodes(etcd, 1, "--appendonly", "yes", replicas=0) as cluster:
        (node,) = cluster.nodes
        cluster.client(0).set("bar", "kept")
        node.process.terminate()
        node.process.wait()
        identity = node.folder / "cluster-node"
        known = identity.read_text()
        assert re.search("^slots [0-9]+$", known, re.M)
        arguments = ["--save", "", "--bind", "127.0.0.1", "--port", node.port, "--dir", node.folder]
        arguments += ["--appendonly", "yes", "--cluster-join", etcd.join(), "--unixsocket", node.socket]

        def start():
            with open(node.log_path, "ab") as log:
                node.process = subprocess.Popen(command(DUNLIN, *arguments), stdout=log, stderr=log)
            node._await_ping()

        # As if more had happened since the backup, by the file of a version that left no marks.
        assert re.search("^mark [0-9a-f]{40} [0-9]+ [0-9]+ [0-9a-f.,]+$", known, re.M)
        before = re.sub("^mark .*\n", "", known, flags=re.M)
        identity.write_text(re.sub("^slots .*$", "slots 999999999", before, flags=re.M))
        start()
        until(lambda: "restored from a backup" in node.log(), node.log)
        assert cluster.info(0)["cluster_state"] == "fail"
        node.process.terminate()
        node.process.wait()
        identity.write_text(known)
        start()
        client = cluster.client(0)

        def is_kept():
            try:
                return client.get("bar") == b"kept"
            except redis.RedisError:
                return False

        until(is_kept, node.log)


def test_slips_of_operators_are_refused_with_a_line(etcd):
    join = etcd.join()
    for directives, line in [
        (("--cluster-enabled", "yes"), "with cluster-join etcd://HOST:2379/NAME"),
        (("--cluster-join", "127.0.0.1:2379/x"), "the address of a cluster is etcd://"),
        (("--cluster-join", "etcd://127.0.0.1"), "the name of the cluster is missing"),
        (("--cluster-join", join, "--cluster-min-sync", "3", "--cluster-durability", "sync"), "larger than a shard's number of nodes"),
        (("--cluster-join", join, "--cluster-min-sync", "2"), "cluster-min-sync above 1 needs"),
        (("--cluster-join", join, "--replicaof", "127.0.0.1 1"), "exclude each other"),
        (("--cluster-join", join, "--cluster-etcd-cert-file", "x"), "belong together"),
    ]:
        assert line in fails(*directives), directives


def test_directory_belongs_to_one_cluster_and_one_process(etcd):
    with dunlin_nodes(etcd, 1, replicas=0) as cluster:
        node = cluster.nodes[0]
        assert "belongs to a node of the cluster 'test'" in fails("--cluster-join", etcd.join("other"), folder=node.folder)
        copied = fails("--cluster-join", etcd.join(), folder=node.folder)
        assert "its data directory was copied" in copied, copied
        assert cluster.client(0).set("key", 1)
        # The records are gone: another etcd under the same address.
        shutil.copytree(node.folder, node.folder / "copy", ignore=shutil.ignore_patterns("socket", "copy"))
        with Etcd() as another:
            lost = fails("--cluster-join", another.join(), folder=node.folder / "copy")
            assert "etcd has no records of the cluster 'test'" in lost, lost


def test_records_that_are_wiped_change_nothing(etcd):
    with dunlin_nodes(etcd, 2, replicas=0) as cluster:
        client = redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port, socket_timeout=30)
        client.set("bar", 1)
        before = shard_order(cluster)
        ask_etcd(etcd, "kv/deleterange", key=text("/dunlin/test/"), range_end=text("/dunlin/test0"))
        until(lambda: all("nothing is thrown away" in node.log() for node in cluster.nodes), "the line")
        assert client.get("bar") == b"1" and shard_order(cluster) == before
        client.close()


@told_again
def test_scripts_at_replicas_are_let_in_where_they_do_not_write(etcd):
    with dunlin_nodes(etcd, 2, replicas=1) as cluster:
        client = redis.Redis(port=cluster.nodes[1].port, single_connection_client=True)
        client.execute_command("READONLY")
        read, write = "return redis.call('get', KEYS[1])", "return redis.call('set', KEYS[1], 1)"
        assert client.eval(read, 1, "bar") is None
        assert client.eval("#!lua flags=no-writes\n" + read, 1, "bar") is None
        for script in ("#!lua\n" + read, "#!lua\n" + write):
            with pytest.raises(MovedError):
                client.eval(script, 1, "bar")
        sha = cluster.client(1).script_load("#!lua\n" + read)
        with pytest.raises(MovedError):
            client.evalsha(sha, 1, "bar")
        with pytest.raises(redis.ResponseError, match="non local key|READONLY"):
            client.eval(write, 1, "bar")


@told_again
def test_publish_reaches_subscribers_at_all_nodes(etcd):
    with dunlin_nodes(etcd, 4, replicas=1) as cluster:
        listeners = []
        for number in range(4):
            listener = cluster.nodes[number].connect().makefile("rwb")
            listener.write(b"SUBSCRIBE news\r\nPSUBSCRIBE n*\r\n")
            listener.flush()
            for _ in range(12):
                listener.readline()
            listeners.append(listener)
        # From a primary, and from a replica.
        for publisher in (0, 3):
            client = cluster.client(publisher)
            for count in range(100):
                assert client.publish("news", f"{publisher}:{count}") == 2
        for listener in listeners:
            payloads, last = [], 0
            while last < 4:
                word = listener.readline()
                last += b":99\r\n" in word
                payloads += [word] if word.count(b":") == 1 and word[:1].isdigit() else []
            for publisher in (b"0", b"3"):
                own = [word for word in payloads if word.startswith(publisher + b":")]
                assert own == [b"%s:%d\r\n" % (publisher, count) for count in range(100) for _ in range(2)]


@told_again
def test_shard_messages_reach_the_members_of_the_shard(etcd):
    with dunlin_nodes(etcd, 2, replicas=1) as cluster:
        listener = cluster.nodes[1].connect().makefile("rwb")
        listener.write(b"SSUBSCRIBE news\r\n")
        listener.flush()
        for _ in range(6):
            listener.readline()
        assert cluster.client(0).execute_command("SPUBLISH", "news", "hello") == 0
        got = [listener.readline() for _ in range(7)]
        assert got[2::2] == [b"smessage\r\n", b"news\r\n", b"hello\r\n"]
