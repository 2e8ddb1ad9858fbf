"""Data that is there before its cluster is."""

import threading

import pytest
import redis

from etcd_cluster import NEEDS_ETCD, Nodes, dunlin_nodes, records, told_again, until
from failovers import PROBE_S, Writer, answer, fails, id_of, in_sync, logs, replica_value
from harness import Server

pytestmark = NEEDS_ETCD


def fill(server, count=500, database=0):
    with redis.Redis(port=server.port, db=database) as client:
        pipe = client.pipeline(transaction=False)
        for number in range(count):
            pipe.set(f"key:{number}", number)
        pipe.execute()


def end(server):
    """Ends a server in good order; its folder stays."""
    server.process.terminate()
    assert server.process.wait(60) == 0, server.log()


def node(etcd, *directives, **options):
    return Server("--cluster-join", etcd.join(), "--threads", "2", *directives, **options)


@pytest.mark.parametrize("kept", [["--appendonly", "yes"], ["--save", "3600 1"]], ids=["log", "snapshot"])
@told_again
def test_data_set_founds_a_cluster(etcd, kept):
    with Server(*kept) as before:
        fill(before)
        end(before)
        with node(etcd, *kept, "--cluster-replicas", "1", files=before.folder) as first:
            cluster = Nodes([first])
            until(lambda: answer(first, "GET", "key:7", timeout=PROBE_S) == b"7", first.log)
            assert answer(first, "DBSIZE") == 500
            (shard,) = [record for key, record in records(etcd).items() if key.startswith("shards/")]
            assert shard["primary"] == id_of(first)
            assert answer(first, "SET", "key:new", "x") in (True, b"OK")
            # A replica has all of it, a third and a fourth node make another shard.
            with node(etcd, "--cluster-replicas", "1") as second:
                until(lambda: in_sync(etcd), lambda: first.log() + second.log())
                until(lambda: replica_value(second, "key:7") == b"7", lambda: second.log())
                assert answer(second, "DBSIZE") == 501
                with node(etcd, "--cluster-replicas", "1") as third, node(etcd, "--cluster-replicas", "1") as fourth:
                    shards = lambda: [key for key in records(etcd) if key.startswith("shards/")]  # noqa: E731
                    until(lambda: len(shards()) == 2, lambda: logs(Nodes([first, second, third, fourth])))

                    def is_spread():
                        slots = records(etcd)["slots"]
                        owners = {entry["shard"] for entry in slots["slots"]}
                        return len(owners) == 2 and not slots.get("moving")

                    until(is_spread, lambda: str(records(etcd)["slots"]) + logs(Nodes([first, second, third, fourth])))
                    with redis.RedisCluster(host="127.0.0.1", port=first.port, socket_timeout=30) as client:
                        assert [client.get(f"key:{number}") for number in range(500)] == [b"%d" % n for n in range(500)]
                        assert client.get("key:new") == b"x"


def test_data_set_does_not_join_a_cluster_that_has_shards(etcd):
    with dunlin_nodes(etcd, 1) as cluster, Server("--appendonly", "yes") as before:
        fill(before)
        end(before)
        line = fails("--appendonly", "yes", "--cluster-join", etcd.join(), folder=before.folder)
        assert "the data set has keys, and so may the cluster 'test'" in line, line
        assert cluster.info()["cluster_known_nodes"] == "1"
        # Nothing is thrown away, and the directory may found another cluster.
        with Server("--appendonly", "yes", "--cluster-join", etcd.join("other"), files=before.folder) as other:
            until(lambda: answer(other, "GET", "key:7", timeout=PROBE_S) == b"7", other.log)


def test_data_set_of_several_databases_founds_no_cluster(etcd):
    with Server("--appendonly", "yes") as before:
        fill(before)
        fill(before, count=1, database=3)
        end(before)
        line = fails("--appendonly", "yes", "--cluster-join", etcd.join(), folder=before.folder)
        assert "database" in line.lower(), line
    assert not any(key.startswith("shards/") for key in records(etcd))


@pytest.mark.parametrize("kept", [["--appendonly", "yes"], []], ids=["log", "memory"])
@told_again
def test_running_server_founds_a_cluster(etcd, kept):
    with Server("--threads", "2", *kept) as first:
        fill(first)
        writer = Writer([first], patience_s=Writer.PATIENT)
        writer.start()
        until(lambda: len(writer.acknowledged) > 100, "writes")
        # It is answered when the node leads its shard. One that was sent again would be refused.
        with redis.Redis(port=first.port, socket_timeout=60) as client:
            assert client.config_set("cluster-join", etcd.join(), "cluster-replicas", "1")
            assert client.config_get("cluster-join")["cluster-join"] == etcd.join()
            assert client.info("cluster")["cluster_enabled"] == 1
            with pytest.raises(redis.ResponseError, match="DB index is out of range"):
                client.execute_command("SELECT", 1)
            with pytest.raises(redis.ResponseError, match="is a node of a cluster already"):
                client.config_set("cluster-join", etcd.join("other"))
        seen = len(writer.acknowledged)
        until(lambda: len(writer.acknowledged) > seen + 100, first.log)
        assert Nodes([first]).info()["cluster_state"] == "ok"
        with node(etcd, "--cluster-replicas", "1") as second:
            until(lambda: in_sync(etcd), lambda: first.log() + second.log())
            seen = len(writer.acknowledged)
            until(lambda: len(writer.acknowledged) > seen + 100, first.log)
            writer.end()
            assert not writer.errors, writer.errors[:3]
            writer.check(answer(first, "LRANGE", "list", 0, -1))
            until(lambda: replica_value(second, "key:7") == b"7", second.log)
            assert answer(second, "DBSIZE") == answer(first, "DBSIZE") == 501
            # It is a node like any other: the replica takes over, and the first one comes back as its replica.
            writer = Writer([first, second], patience_s=Writer.PATIENT)
            writer.start()
            until(lambda: len(writer.acknowledged) > 100, first.log)
            until(lambda: answer(second, "CLUSTER", "FAILOVER") in (True, b"OK"), second.log)
            until(lambda: (record := in_sync(etcd)) and record["primary"] == id_of(second), second.log)
            seen = len(writer.acknowledged)
            until(lambda: len(writer.acknowledged) > seen + 100, second.log)
            writer.end()
            assert not writer.errors, (writer.errors[:3], first.log()[-2000:], second.log()[-2000:])


def test_running_server_that_cannot_join_is_refused(etcd):
    def refused(server, line, **directives):
        with redis.Redis(port=server.port, socket_timeout=60) as client:
            with pytest.raises(redis.ResponseError, match=line):
                pairs = [word for name, value in {"cluster_join": etcd.join(), **directives}.items() for word in (name.replace("_", "-"), value)]
                client.config_set(*pairs)
            assert client.info("cluster")["cluster_enabled"] == 0
            assert client.set("alive", 1)
            client.execute_command("SELECT", 5)
            # The server may hear late that the connection is closed, and tells the next one of a client that uses a database.
            client.execute_command("SELECT", 0)
        assert not (server.folder / "cluster-node").exists()

    with Server() as server:
        replica = Server("--replicaof", f"127.0.0.1 {server.port}")
        fill(server)
        until(lambda: answer(replica, "DBSIZE", timeout=PROBE_S) == 500, replica.log)
        with redis.Redis(port=replica.port) as client, pytest.raises(redis.ResponseError, match="is a replica"):
            client.config_set("cluster-join", etcd.join())
        refused(server, "replicas follow the server")
        replica.kill()
        until(lambda: answer(server, "INFO", "replication")["connected_slaves"] == 0, server.log)
        refused(server, "only directives of the cluster", maxmemory="0")
        refused(server, "the address of a cluster is etcd://", cluster_join="127.0.0.1:1/x")
        refused(server, "cluster-join", cluster_join="etcd://127.0.0.1:1/x")
        refused(server, "larger than a shard's number of nodes", cluster_min_sync="9", cluster_durability="sync")
        with redis.Redis(port=server.port, db=3, single_connection_client=True) as other:
            other.ping()
            refused(server, "uses database 3")
            other.set("key", 1)
        refused(server, "database 3 has keys")
        with redis.Redis(port=server.port, db=3, single_connection_client=True) as other:
            other.flushdb()
            other.execute_command("SELECT", 0)
        with dunlin_nodes(etcd, 1):
            refused(server, "the cluster 'test' has shards")
        # Nothing is left of all that.
        with redis.Redis(port=server.port, socket_timeout=60) as client:
            assert client.config_set("cluster-join", etcd.join("fresh"), "cluster-replicas", "0")
        until(lambda: answer(server, "GET", "key:7", timeout=PROBE_S) == b"7", server.log)


def test_running_servers_become_one_cluster_at_most(etcd):
    with Server() as first, Server() as second:
        answers = []
        for server in (first, second):
            fill(server)

        def join(server):
            with redis.Redis(port=server.port, socket_timeout=60) as client:
                try:
                    answers.append(client.config_set("cluster-join", etcd.join()))
                except redis.ResponseError as error:
                    answers.append(error)

        threads = [threading.Thread(target=join, args=[server]) for server in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(isinstance(one, redis.ResponseError) for one in answers) == [False, True], answers
        for server in (first, second):
            until(lambda: answer(server, "GET", "key:7", timeout=PROBE_S) == b"7", server.log)  # noqa: B023
