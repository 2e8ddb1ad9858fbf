"""`dunlin cluster`: tables of a cluster, why something waits, and the operator's requests."""

import re
import signal
import subprocess
import time

import pytest
import redis

from etcd_cluster import NEEDS_ETCD, dunlin_nodes, put, records, shard_order, told_again, until
from failovers import run
from harness import DUNLIN, Server, suspend
from moves import jobs

pytestmark = NEEDS_ETCD


@told_again
def test_status_shows_shards_and_what_waits(etcd):
    with dunlin_nodes(etcd, 4, "--cluster-zone", "west", replicas=1) as cluster:
        status = run("status", "-p", cluster.nodes[3].port)
        assert status.startswith("cluster test: 2 shards, 4 nodes, async with 1 replica wanted for each shard\n"), status
        rows = re.findall(r"^[0-9a-f]{8}  +\d+  +(\S+) \((\d+)\)  +127.0.0.1:(\d+)  +127.0.0.1:(\d+)$", status, re.M)
        ports = [str(node.port) for node in cluster.nodes]
        assert rows == [("0-8191", "8192", ports[0], ports[2]), ("8192-16383", "8192", ports[1], ports[3])], status
        assert "has all its copies on one machine" in status
        assert "\x1b" not in status, "colours go to terminals only"
        nodes = run("nodes", "-p", ports[0])
        assert re.search(rf"127.0.0.1:{ports[0]} +- +online +active +primary +[0-9a-f]{{8}} +\S+ +west +\d", nodes), nodes
        assert len(re.findall("^[0-9a-f]{8}", nodes, re.M)) == 4
        # Each shard is to have more than there are nodes. Nobody plans: the planner would make one shard of the two.
        put(etcd, "controller", {"v": 1, "node": "f" * 40, "boot": "f" * 40})
        assert "2 of 2 shards lack some" in run("replicas", 2, "-p", ports[0])
        assert records(etcd)["cluster"]["replicas"] == 2
        lacks = lambda: "has 1 of 2 replicas" in run("status", "-p", ports[1])  # noqa: E731
        until(lacks, lambda: run("status", "-p", ports[1]))
        cluster.nodes[2].process.kill()
        until(lambda: f"has a replica that is gone: 127.0.0.1:{ports[2]}" in run("status", "-p", ports[0]), "the death")
        etcd.kill()
        until(lambda: "does not follow etcd" in run("status", "-p", ports[0]), lambda: run("status", "-p", ports[0]))
        assert "nothing was changed" in run("replicas", 1, "-p", ports[0], code=1)
        cluster.nodes.pop(2).kill()


def test_drain_is_a_wish_that_can_be_undone(etcd):
    with dunlin_nodes(etcd, 2, replicas=1) as cluster:
        port = cluster.nodes[0].port
        replica = cluster.client(1).execute_command("CLUSTER MYID")
        replica = replica if isinstance(replica, str) else replica.decode()
        state = lambda: records(etcd)[f"nodes/{replica}"]["state"]  # noqa: E731
        assert f"node {replica[:8]} (127.0.0.1:{cluster.nodes[1].port}) is being drained" in run("drain", replica[:12], "-p", port)
        assert state() == "draining"
        until(lambda: "is being drained, and " in run("status", "-p", port), lambda: run("status", "-p", port))
        assert "may hold data again" in run("drain", f"127.0.0.1:{cluster.nodes[1].port}", "--undo", "-p", port)
        assert state() == "active"
        assert "no node is 'nobody': `dunlin cluster nodes` lists them" in run("drain", "nobody", "-p", port, code=1)


def test_command_says_what_to_do(etcd):
    assert "Examples:" in run("--help") and "drain" in run("--help")
    for words in (["replicas", "17"], ["replicas"], ["nonsense"]):
        run(*words, code=2)
    with Server() as alone:
        assert "start it with --cluster-join" in run("status", "-p", alone.port, code=1)
    assert "127.0.0.1:1" in run("status", "-p", 1, code=1)


def held_slots(cluster, number, seen_by=0):
    runs = [run for run in shard_order(cluster, seen_by) if run[2] == cluster.nodes[number].port]
    return {slot for first, last, *_ in runs for slot in range(first, last + 1)}


@told_again
def test_move_brings_slots_to_a_shard_and_shows_how_far_that_is(etcd):
    with dunlin_nodes(etcd, 3) as cluster:
        # The planner would move them back.
        put(etcd, "controller", {"v": 1, "node": "f" * 40, "boot": "f" * 40})
        ports = [node.port for node in cluster.nodes]
        with redis.RedisCluster(host="127.0.0.1", port=ports[0], socket_timeout=30) as client:
            for number in range(2000):
                client.set(f"key:{number}", number)
            # Of two shards, to the third.
            done = run("move", "5400-5500,0", "--to", f"127.0.0.1:{ports[2]}", "-p", ports[0])
            assert re.search(r"^102 slots to shard [0-9a-f]{8} \(127.0.0.1:\d+\): done in [\d.]+ s$", done, re.M), done
            # Each source knows of its own move first.
            are_held = lambda: all({0, *range(5400, 5501)} <= held_slots(cluster, 2, number) for number in (0, 1))  # noqa: E731
            until(are_held, lambda: str([shard_order(cluster, number) for number in (0, 1)]))
            assert "has these slots already" in run("move", "5400-5500,0", "--to", f"127.0.0.1:{ports[2]}", "-p", ports[1])
            third = cluster.client(2).execute_command("CLUSTER MYSHARDID")
            third = third if isinstance(third, str) else third.decode()
            for words, line in [
                (["5-3", "--to", third[:10]], "'5-3' are no slots"),
                (["16384", "--to", third[:10]], "are no slots"),
                (["1", "--to", "nobody"], "no shard and no node is 'nobody'"),
            ]:
                assert line in run("move", *words, "-p", ports[0], code=1)
            run("move", "1", "-p", ports[0], code=2)
            run("move", "-p", ports[0], code=2)
            assert "no slots are being moved" in run("move", "--cancel", "-p", ports[0])
            # A target that is stopped holds its move up, which any node shows.
            status = lambda: run("status", "-p", ports[1])  # noqa: E731
            suspend(cluster.nodes[2].process)
            try:
                # Its source gives it up after five seconds: then another move is looked at.
                until(lambda: is_shown_and_cancelled(cluster, third[:10]), status)
            finally:
                cluster.nodes[2].process.send_signal(signal.SIGCONT)
            until(lambda: "connecting" not in status(), status)
            assert {7, 8, 9} <= held_slots(cluster, 0)
            until(lambda: cluster.client(0).info("cluster")["cluster_moves_from_here"] == 0, "the end in INFO")
            until(lambda: not any(key.startswith("progress/") for key in records(etcd)), lambda: str(records(etcd)))
            assert [client.get(f"key:{number}") for number in range(2000)] == [b"%d" % number for number in range(2000)]


def is_shown_and_cancelled(cluster, target):
    """Has slots begin to move to a shard that is stopped, and ends that. Whether all was seen before the source gave the move up."""
    ports = [node.port for node in cluster.nodes]
    is_given_up = lambda: jobs(cluster)[0]["state"] == b"failed"  # noqa: E731
    begun = run("move", "7-9", "--to", target, "--no-wait", "-p", ports[1])
    assert "`dunlin cluster status` shows how far that is" in begun, begun
    line = r"^[0-9a-f]{8} +7-9 +[0-9a-f]{8} +[0-9a-f]{8} +connecting +not begun$"
    status = lambda: run("status", "-p", ports[1])  # noqa: E731
    until(lambda: re.search(line, status(), re.M) or is_given_up(), status)
    info = lambda: cluster.client(0).info("cluster")  # noqa: E731
    until(lambda: info()["cluster_moves_from_here"] == 1 or is_given_up(), "a move in INFO")
    slots = info()["cluster_moving_slots"]
    cancelled = run("move", "--cancel", "-p", ports[1])
    if "stay where they are" not in cancelled:
        until(is_given_up, lambda: cancelled + status())
        return False
    assert slots == 3, slots
    return True


def test_pinned_slots_stay_where_an_operator_has_moved_them(etcd):
    with dunlin_nodes(etcd, 2) as cluster:
        port = cluster.nodes[0].port
        done = run("move", "0-1999", "--to", f"127.0.0.1:{cluster.nodes[1].port}", "--pin", "-p", port)
        assert "The slots are pinned" in done
        # The planner gives the first shard others in their place.
        balanced = lambda: not records(etcd)["slots"]["moving"] and len(held_slots(cluster, 0)) > 7_700  # noqa: E731
        until(balanced, lambda: str(records(etcd)["slots"]), 180)
        assert set(range(2000)) <= held_slots(cluster, 1)
        assert "pinned, the planner does not move them: slots 0-1999" in run("status", "-p", port)
        assert "501 slots pinned" in run("pin", "9000,1500-1999", "-p", port)
        assert "1000 slots: the planner may move" in run("pin", "500-1499", "--undo", "-p", cluster.nodes[1].port)
        assert records(etcd)["slots"]["pinned"] == "0-499,1500-1999,9000"
        assert "are no slots" in run("pin", "3-1", "-p", port, code=1)
        client = cluster.client(0)
        for words, error in [
            ((0, 16384), "Invalid or out of range slot"),
            ((0, 1, 2), "No end slot for final slot range"),
            ((5, 3), "Start slot number 5 is greater than end slot number 3"),
            ((0,), "wrong number of arguments"),
        ]:
            with pytest.raises(redis.ResponseError, match=error):
                client.execute_command("CLUSTER", "PIN", *words)
        assert client.execute_command("CLUSTER", "UNPIN", 0, 16383) in (b"OK", True)
        assert "pinned" not in records(etcd)["slots"]
        assert "pinned" not in run("status", "-p", port)


@told_again
def test_move_shows_its_progress_while_it_runs(etcd):
    with dunlin_nodes(etcd, 2) as cluster:
        put(etcd, "controller", {"v": 1, "node": "f" * 40, "boot": "f" * 40})
        client = cluster.client(0)
        # 160 MB in one slot, sent slowly to a target that takes them slowly.
        for number in range(160):
            client.set(f"{{bar}}:{number}", bytes(1_000_000))
        client.config_set("rdb-key-save-delay", 20_000)
        slot = 5061
        target = cluster.client(1).execute_command("CLUSTER MYID")
        target = target if isinstance(target, str) else target.decode()
        begun = subprocess.Popen(
            [DUNLIN, "cluster", "move", str(slot), "--to", target, "-p", str(cluster.nodes[0].port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        seen = set()

        def is_done():
            if begun.poll() is None:
                suspend(cluster.nodes[1].process)
                time.sleep(0.05)
                cluster.nodes[1].process.send_signal(signal.SIGCONT)
                moves = [one for key, record in records(etcd).items() if key.startswith("progress/") for one in record["moves"]]
                seen.update((one["state"], one["sent_bytes"] > 0) for one in moves)
                time.sleep(0.02)
            return begun.poll() is not None

        until(is_done, "the end of the move", 300)
        assert begun.returncode == 0, begun.stdout.read()
        assert ("snapshotting", True) in seen or ("replicating", True) in seen, seen
        assert slot in held_slots(cluster, 1)
