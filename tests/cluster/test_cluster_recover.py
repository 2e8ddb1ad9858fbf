"""`dunlin cluster recover`: a shard whose members are gone, on real processes."""

import signal
import subprocess

import redis

from etcd_cluster import NEEDS_ETCD, dunlin_nodes, records, told_again, until
from failovers import answer, id_of, in_sync, logs, replica_value, restart, run, serving
from harness import DUNLIN, Server, command, suspend

pytestmark = NEEDS_ETCD

SYNC = ("--cluster-durability", "sync")


def is_gone(etcd, node_id):
    return f"alive/{node_id}" not in records(etcd)


@told_again
def test_recover_takes_a_shard_from_members_that_are_gone(etcd):
    with dunlin_nodes(etcd, 2, *SYNC, replicas=1) as cluster:
        first, second = cluster.nodes
        until(lambda: in_sync(etcd), lambda: logs(cluster))
        assert answer(first, "SET", "key", "old") in (True, b"OK")
        first_id, second_id = id_of(first), id_of(second)
        (shard,) = [key.split("/")[1] for key in records(etcd) if key.startswith("shards/")]
        until(lambda: replica_value(second) == b"old", lambda: logs(cluster))
        # Nobody but the primary has what is written from here on.
        suspend(second.process)
        assert cluster.client(0).execute_command("CLIENT", "KILL", "TYPE", "replica") == 1
        until(lambda: in_sync(etcd, 1), lambda: logs(cluster))
        assert answer(first, "SET", "key", "new") in (True, b"OK")
        # Heartbeats say how much is acknowledged.
        until(lambda: serving([first], "other"), lambda: logs(cluster))
        suspend(first.process)
        second.process.send_signal(signal.SIGCONT)
        # The primary may be there still, as far as anybody knows.
        refused = run("recover", shard[:8], "--from", second_id, "--yes", "-p", second.port, code=1)
        assert "is not to be recovered" in refused and "has all that was acknowledged" in refused, refused
        first.process.kill()
        first.process.wait()
        until(lambda: is_gone(etcd, first_id), "the end of its presence")
        status = lambda: run("status", "-p", second.port)  # noqa: E731
        until(lambda: f"waits for node {first_id[:8]}" in status(), status)
        shown = run("recover", shard[:8], "-p", second.port)
        assert f"recover {shard[:8]} --from 127.0.0.1:{second.port}" in shown, shown
        assert "the data up to offset" in shown and "it is gone" in shown, shown
        asked = run("recover", second_id, "--from", second_id, "-p", second.port, code=1)
        assert "nothing was changed: say --yes" in asked, asked
        assert "of changes are lost" in asked or "nobody knows how much is lost" in asked, asked
        assert f"node {first_id[:8]}" in asked and "See to it that its process has ended" in asked, asked
        assert in_sync(etcd, 1)["primary"] == first_id
        done = run("recover", shard, "--from", f"127.0.0.1:{second.port}", "--yes", "-p", second.port)
        assert f"node {second_id[:8]} leads the shard" in done, done
        until(lambda: serving([second], "another"), lambda: logs(cluster))
        assert answer(second, "GET", "key") == b"old"
        record = in_sync(etcd, 1)
        assert record["primary"] == second_id and record["learners"] == [first_id]
        # It is served, so there is nothing to recover.
        assert "leads its shard" in run("recover", shard, "--from", second_id, "--yes", "-p", second.port, code=1)
        # The old primary comes back, and has what the new one has.
        restart(first, etcd, *SYNC)
        until(lambda: in_sync(etcd), lambda: logs(cluster))
        until(lambda: replica_value(first) == b"old", lambda: logs(cluster))


@told_again
def test_follower_copies_no_stranger_at_its_primarys_address(etcd):
    with dunlin_nodes(etcd, 2, *SYNC, replicas=1) as cluster:
        first, second = cluster.nodes
        until(lambda: in_sync(etcd), lambda: logs(cluster))
        assert answer(first, "SET", "key", "own") in (True, b"OK")
        until(lambda: replica_value(second) == b"own", lambda: logs(cluster))
        primary = id_of(first)
        # What is left of the shard is a learner, which may not lead by itself.
        suspend(second.process)
        until(lambda: in_sync(etcd, 1), lambda: logs(cluster))
        first.process.kill()
        first.process.wait()
        with Server() as stranger, redis.Redis(port=stranger.port) as client:
            client.set("key", "a stranger's")
            client.config_set("port", first.port)
            second.process.send_signal(signal.SIGCONT)
            until(lambda: "another history is offered than the shard's" in second.log(), second.log)
            with redis.Redis(port=second.port) as learner:
                assert learner.dbsize() == 1 and learner.info("persistence")["async_loading"] == 0
        (shard,) = [key.split("/")[1] for key in records(etcd) if key.startswith("shards/")]
        until(lambda: is_gone(etcd, primary), "the end of its presence")
        done = run("recover", shard, "--from", id_of(second), "--yes", "-p", second.port)
        assert f"node {id_of(second)[:8]} leads the shard" in done, done
        until(lambda: serving([second], "another"), lambda: logs(cluster))
        assert answer(second, "GET", "key") == b"own"
        restart(first, etcd, *SYNC)
        until(lambda: replica_value(first) == b"own", lambda: logs(cluster))


@told_again
def test_recover_is_refused_where_a_takeover_comes(etcd):
    with dunlin_nodes(etcd, 3, *SYNC, replicas=2) as cluster:
        until(lambda: in_sync(etcd, 3), lambda: logs(cluster))
        first, second, third = cluster.nodes
        ids = [id_of(node) for node in cluster.nodes]
        (shard,) = [key.split("/")[1] for key in records(etcd) if key.startswith("shards/")]
        epoch = in_sync(etcd, 3)["epoch"]
        first.process.kill()
        first.process.wait()
        errors = [
            answer(second, "CLUSTER", "RECOVER", "HERE", epoch),
            answer(second, "CLUSTER", "RECOVER", "HERE", epoch + 7),
            answer(second, "CLUSTER", "RECOVER", "HERE", "x"),
            answer(second, "CLUSTER", "RECOVER", "EMPTY", shard, epoch),
            answer(second, "CLUSTER", "RECOVER", "EMPTY", "f" * 40, epoch),
            answer(second, "CLUSTER", "RECOVER", "EMPTY", "odd", epoch),
            answer(second, "CLUSTER", "RECOVER", "NONSENSE"),
        ]
        for error, expected in zip(
            errors,
            ["acknowledged|epoch", "look at it again", "Invalid epoch", "is there|look at it again", "no shard", "Invalid shard id", "syntax error"],
        ):
            assert isinstance(error, redis.ResponseError), (error, expected)
            assert any(part in str(error) for part in expected.split("|")), (error, expected)
        heir = until(lambda: serving([second, third]), lambda: logs(cluster))
        record = until(lambda: in_sync(etcd, 2), lambda: logs(cluster))
        assert record["primary"] == id_of(heir) != ids[0]
        cluster.nodes.pop(0).kill()


@told_again
def test_recover_gives_a_shard_without_nodes_up(etcd):
    durable = ("--appendonly", "yes", "--appendfsync", "always")
    with dunlin_nodes(etcd, 3, *durable) as cluster:
        client = redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port, socket_timeout=30)
        for number in range(300):
            client.set(f"key:{number}", number)
        client.close()
        lost = cluster.nodes[1]
        lost_id, port = id_of(lost), cluster.nodes[0].port
        slots = lambda: records(etcd)["slots"]["slots"]  # noqa: E731
        shard = next(key.split("/")[1] for key, record in records(etcd).items() if key.startswith("shards/") and record["primary"] == lost_id)
        others = {key.split("/")[1] for key in records(etcd) if key.startswith("shards/")} - {shard}
        heir = min(others)
        refused = run("recover", lost_id, "--empty", "--yes", "-p", port, code=1)
        assert "is there: recover it --from there" in refused, refused
        lost.process.kill()
        lost.process.wait()
        until(lambda: is_gone(etcd, lost_id), "the end of its presence")
        until(lambda: "(gone)" in run("status", "-p", port), lambda: run("status", "-p", port))
        assert "--empty" in run("recover", shard, "-p", port)
        asked = run("recover", shard, "--empty", "--to", heir, "-p", port, code=1)
        assert "nothing was changed" in asked and f"go to shard {heir[:8]}, without keys" in asked, asked
        assert f"shards/{shard}" in records(etcd)
        run("recover", shard, "--empty", "--to", heir, "--yes", "-p", port)
        assert f"shards/{shard}" not in records(etcd) and f"nodes/{lost_id}" not in records(etcd), slots()
        living = [cluster.nodes[0], cluster.nodes[2]]

        def all_answered():
            try:
                with redis.RedisCluster(host="127.0.0.1", port=port, socket_timeout=30) as client:
                    values = [client.get(f"key:{number}") for number in range(300)]
                    client.set("key:new", "written")
            except (redis.RedisError, redis.exceptions.RedisClusterException, OSError) as error:
                # The heir may not have read yet that the slots are its own, and sends clients to the node that is gone.
                print(error)
                return False
            return 0 < sum(value is None for value in values) < 300

        until(lambda: all(cluster.info(n)["cluster_state"] == "ok" for n in (0, 2)) and all_answered(), lambda: logs(cluster))
        # The node comes back with data of a shard that is no more: it is refused, and they stay.
        arguments = ["--save", "", "--bind", "127.0.0.1", "--port", lost.port, "--dir", lost.folder, *durable]
        done = subprocess.run(
            command(DUNLIN, *arguments, "--cluster-join", etcd.join()), capture_output=True, text=True, timeout=60
        )
        assert done.returncode != 0 and "the data set has keys" in done.stdout + done.stderr, done.stdout + done.stderr
        alone = subprocess.Popen(command(DUNLIN, *arguments), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with redis.Redis(port=lost.port, socket_timeout=30, retry=redis.retry.Retry(redis.backoff.ConstantBackoff(0.1), 600)) as client:
                assert client.dbsize() > 0
        finally:
            alone.terminate()
            alone.wait(60)
        assert all(node.process.poll() is None for node in living)
        cluster.nodes.remove(lost)
        lost.kill()
