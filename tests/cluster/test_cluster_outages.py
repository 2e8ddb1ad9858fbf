"""Whole clusters that are killed, and etcd that is dead or goes back in time: nothing acknowledged is lost, and no request fails.

`CLUSTER_ROUNDS` says how often a whole cluster is killed, `ETCD_DEAD_S` how long etcd is dead."""

import os
import random
import shutil
import subprocess
import time

import pytest
import redis

from etcd_cluster import DUNLIN, NEEDS_ETCD, dunlin_nodes, put, records, revisions, shard_order, told_again, until
from failovers import ALWAYS, PROBE_S, SYNC, Writer, answer, are_in_sync, held_by, id_of, kill, shards, start_again
from harness import command, free_port
from moves import DEBUG, Load, all_content, fill, hidden_keys, jobs, key_in, migrate, migrate_once, state

pytestmark = NEEDS_ETCD

ROUNDS = int(os.environ.get("CLUSTER_ROUNDS", "2"))
ETCD_DEAD_S = float(os.environ.get("ETCD_DEAD_S", "4"))
def logs(cluster):
    return "\n".join(node.log()[-2500:] for node in cluster.nodes)


def writers_of(cluster, count=6):
    """Writers whose keys are spread over the slots."""
    each = 16_384 // count
    keys = [key_in(at * each, at * each + each - 1) for at in range(count)]
    writers = [Writer(cluster.nodes, key, Writer.PATIENT) for key in keys]
    for writer in writers:
        writer.start()
    return writers


def await_writes(writers, what, more=50):
    seen = [len(writer.acknowledged) for writer in writers]
    until(lambda: all(len(w.acknowledged) > before + more for w, before in zip(writers, seen)), what)


@pytest.mark.parametrize("durability, replicas", [("sync", 1), ("async", 0)])
def test_cluster_killed_as_a_whole_has_all_that_was_acknowledged(etcd, durability, replicas):
    directives = (*ALWAYS, "--cluster-durability", durability)
    with dunlin_nodes(etcd, 2 * (1 + replicas), *directives, replicas=replicas) as cluster:
        until(lambda: are_in_sync(etcd, 1 + replicas), lambda: logs(cluster))
        writers = writers_of(cluster)
        for number in range(ROUNDS):
            await_writes(writers, lambda: logs(cluster))
            kill(*cluster.nodes)
            for node in cluster.nodes:
                start_again(node, etcd, *directives, replicas=replicas)
            await_writes(writers, lambda: logs(cluster))
            for writer in writers:
                # The list may have grown since; what was acknowledged before is in it.
                known = list(writer.acknowledged)
                lost = set(known) - {int(element) for element in held_by(cluster, writer.key)}
                assert not lost, f"round {number}: {len(lost)} of {len(known)} are lost: {sorted(lost)[:10]}\n{logs(cluster)}"
            until(lambda: are_in_sync(etcd, 1 + replicas), lambda: logs(cluster))
        for writer in writers:
            writer.end()
            writer.check(held_by(cluster, writer.key))
        print(sum(len(writer.acknowledged) for writer in writers), "acknowledged writes")


@pytest.mark.parametrize("fault", ["kill", "stop"])
@told_again
def test_requests_do_not_fail_while_etcd_is_dead(etcd, fault):
    owners = lambda: {key: (shard["epoch"], shard["primary"]) for key, shard in shards(etcd).items()}  # noqa: E731
    with dunlin_nodes(etcd, 4, *SYNC, replicas=1) as cluster:
        until(lambda: are_in_sync(etcd, 2), lambda: logs(cluster))
        writers = writers_of(cluster)
        await_writes(writers, lambda: logs(cluster))
        before = owners()
        etcd.kill() if fault == "kill" else etcd.pause(True)
        over = time.monotonic() + ETCD_DEAD_S
        while time.monotonic() < over:
            # Clients that come now find their way, too.
            client = redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[3].port, socket_timeout=30)
            for number in range(100):
                client.set(f"key:{number}", number)
                assert int(client.get(f"key:{number}")) == number
            client.close()
        await_writes(writers, lambda: logs(cluster))
        etcd.start() if fault == "kill" else etcd.pause(False)
        follow = lambda node: "etcd" not in str(answer(node, "CLUSTER", "STATUS")).lower()  # noqa: E731
        until(lambda: all(follow(node) for node in cluster.nodes), lambda: logs(cluster))
        await_writes(writers, lambda: logs(cluster))
        # Longer than leases and promises: etcd's return is no reason for a failover.
        time.sleep(3)
        for writer in writers:
            writer.end()
            writer.check(held_by(cluster, writer.key))
        print(sum(len(writer.acknowledged) for writer in writers), "acknowledged writes, longest pause", max(w.gap_s for w in writers))
        errors = [error for writer in writers for error in writer.errors]
        assert not errors, (errors[:3], logs(cluster))
        assert owners() == before


OVER = ("success", "failed", "cancelled")


@told_again
def test_etcd_that_dies_during_a_move_loses_no_key(etcd):
    with dunlin_nodes(etcd, 2, *DEBUG) as cluster:
        fill(cluster, 100)
        before = all_content(cluster, etcd)
        with Load(cluster) as load:
            name = migrate(cluster, [0, 299], slow=True)
            until(lambda: state(cluster, name) == "snapshotting" and hidden_keys(cluster), lambda: logs(cluster))
            etcd.kill()
            done = load.done_count()
            cluster.client(0).config_set("rdb-key-save-delay", 0)
            until(lambda: state(cluster, name) in ("replicating", "failover-paused", *OVER), lambda: logs(cluster))
            until(lambda: load.done_count() > done + 50, lambda: logs(cluster))
            etcd.start()
            until(lambda: state(cluster, name) in OVER, lambda: logs(cluster))
            # Many are at their last step when it dies.
            chance = random.Random(1)
            for round_ in range(6):
                first, second = (0, 1) if round_ % 2 == 0 else (1, 0)

                def begin():
                    # The planner moves slots, too, and a node is refused while it has not found etcd again.
                    owned = next(run for run in shard_order(cluster) if run[2] == cluster.nodes[first].port)  # noqa: B023
                    return migrate_once(cluster, [owned[0], min(owned[1], owned[0] + 299)], first, second)  # noqa: B023

                name = until(begin, lambda: logs(cluster))
                time.sleep(chance.uniform(0, 0.04))
                etcd.kill()
                time.sleep(chance.uniform(0, 1))
                etcd.start()
                ended = until(lambda: (now := state(cluster, name, first)) in OVER and now, lambda: logs(cluster))
                print(ended, jobs(cluster, first)[0]["message"])
        load.check()
        shown = all_content(cluster, etcd)
        assert {key: shown.get(key) for key in before} == before
        until(lambda: cluster.client(0).dbsize() + cluster.client(1).dbsize() == len(shown), "what was given away is removed")


@told_again
def test_etcd_that_is_restored_from_a_backup_is_not_obeyed(etcd):
    with dunlin_nodes(etcd, 2, *DEBUG) as cluster:
        fill(cluster, 60)
        etcd.kill()
        shutil.copytree(etcd.folder / "data", etcd.folder / "backup")
        etcd.start()
        until(lambda: all(cluster.info(number)["cluster_state"] == "ok" for number in (0, 1)), lambda: logs(cluster))
        name = migrate(cluster, [0, 999])
        until(lambda: state(cluster, name) == "success", lambda: logs(cluster))
        until(lambda: not records(etcd)["slots"]["moving"], "the record")
        before, owners = all_content(cluster, etcd), shard_order(cluster)
        # A node that comes has made for revisions since then.
        etcd.kill()
        newest = etcd.folder / "newest"
        (etcd.folder / "data").rename(newest)
        (etcd.folder / "backup").rename(etcd.folder / "data")
        etcd.start()
        until(lambda: all("restored from a backup" in node.log() for node in cluster.nodes), lambda: logs(cluster))
        client = redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port, socket_timeout=30)
        for number in range(200):
            client.set(f"later:{number}", number)
        assert shard_order(cluster) == owners
        # The right one comes back.
        etcd.kill()
        (etcd.folder / "data").rename(etcd.folder / "wrong")
        newest.rename(etcd.folder / "data")
        etcd.start()
        follows = lambda number: cluster.client(number).execute_command("CLUSTER", "MYID") and state(cluster, name)  # noqa: E731
        until(lambda: all(follows(number) for number in (0, 1)), lambda: logs(cluster))
        shown = all_content(cluster, etcd)
        assert {key: shown.get(key) for key in before} == before
        assert all(client.get(f"later:{number}") == str(number).encode() for number in range(200))
        client.close()


@told_again
def test_node_that_was_away_has_no_say(etcd):
    """It was a primary, in an old epoch, of slots that are another shard's now."""
    with dunlin_nodes(etcd, 4, *SYNC, *ALWAYS, *DEBUG, replicas=1) as cluster:
        until(lambda: are_in_sync(etcd, 2), lambda: logs(cluster))
        key = key_in(0, 99)
        client = redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[1].port, socket_timeout=30)
        client.set(key, "old")
        old = cluster.nodes[0]
        kill(old)
        heir = cluster.nodes[2]
        until(lambda: answer(heir, "SET", key, "new", timeout=PROBE_S) in (b"OK", True), lambda: logs(cluster))
        name = migrate(cluster, [0, 99], 2, 1)
        until(lambda: state(cluster, name, 2) in OVER, lambda: logs(cluster))
        assert state(cluster, name, 2) == "success", (jobs(cluster, 2), logs(cluster))
        assert answer(cluster.nodes[1], "SET", key, "newest") in (b"OK", True)
        start_again(old, etcd, *SYNC, *ALWAYS, *DEBUG, replicas=1)
        old._await_ping()
        until(lambda: are_in_sync(etcd, 2), lambda: logs(cluster))
        assert f"127.0.0.1:{cluster.nodes[1].port}" in str(answer(old, "GET", key))
        assert client.get(key) == b"newest"
        assert next(run for run in shard_order(cluster) if run[0] == 0)[2] == cluster.nodes[1].port
        until(lambda: answer(old, "CLUSTER", "COUNTKEYSINSLOT", 0) == 0 and answer(old, "DBSIZE") == answer(heir, "DBSIZE"), lambda: logs(cluster))
        client.close()


def test_node_whose_address_has_changed_is_found(etcd):
    with dunlin_nodes(etcd, 4, *ALWAYS, *SYNC, replicas=1) as cluster:
        until(lambda: are_in_sync(etcd, 2), lambda: logs(cluster))
        writers = writers_of(cluster)
        for number in (3, 0):
            await_writes(writers, lambda: logs(cluster))
            moved = cluster.nodes[number]
            before, name = moved.port, id_of(moved)
            kill(moved)
            start_again(moved, etcd, *ALWAYS, *SYNC, replicas=1, port=free_port())
            moved._await_ping()
            assert id_of(moved) == name and moved.port != before

            def is_known():
                ports = {port for run in shard_order(cluster) for port in run[2:]}
                return moved.port in ports and before not in ports

            until(lambda: is_known() and are_in_sync(etcd, 2), lambda: logs(cluster))
            await_writes(writers, lambda: logs(cluster))
        for writer in writers:
            writer.end()
            writer.check(held_by(cluster, writer.key))


def test_directory_is_used_by_one_process_at_a_time(etcd):
    with dunlin_nodes(etcd, 1, *ALWAYS) as cluster:
        (node,) = cluster.nodes
        cluster.client(0).set("key", "value")
        own = ["--port", free_port(), "--unixsocket", node.folder / "other", "--dir", node.folder, "--cluster-join", etcd.join(), *ALWAYS]
        second = subprocess.run(command(DUNLIN, *own), capture_output=True, text=True, timeout=60)
        assert second.returncode != 0 and str(node.process.pid) in second.stdout + second.stderr, second
        assert cluster.client(0).get("key") == b"value"


@pytest.mark.parametrize("key", ["slots", "cluster", "shards", "nodes"])
@told_again
def test_record_of_a_newer_version_changes_nothing(etcd, key):
    with dunlin_nodes(etcd, 2) as cluster:
        client = redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port, socket_timeout=30)
        client.set("bar", 1)
        owners = shard_order(cluster)
        found = next(name for name in records(etcd) if name.startswith(key))
        record = records(etcd)[found]
        put(etcd, found, {**record, "v": 99, "something": "new"})
        until(lambda: all(found in node.log() for node in cluster.nodes), lambda: logs(cluster))
        written = revisions(etcd, "alive/")
        assert client.get("bar") == b"1" and client.set("bar", 2)
        assert shard_order(cluster) == owners
        # For longer than a presence lasts: it is renewed, and not written anew.
        time.sleep(6)
        assert len(written) == 2 and revisions(etcd, "alive/") == written
        put(etcd, found, record)
        until(lambda: all("following the records again" in node.log() for node in cluster.nodes), lambda: logs(cluster))
        assert client.get("bar") == b"2"
        client.close()
