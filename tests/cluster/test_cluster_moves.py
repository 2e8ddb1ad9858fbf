"""Slots move between shards: with all that their keys are and have, under load, and through failures of either side."""

import random
import socket
import subprocess
import threading
import time

import pytest
import redis
from redis.crc import key_slot

from etcd_cluster import DUNLIN, NEEDS_ETCD, dunlin_nodes, shard_order, told_again, until
from harness import Server, command
from moves import (
    DEBUG, Load, all_content, ends, fill, hidden_keys, jobs, key_in, logs, migrate, node_id, record, slots_by_port,
    state,
)

pytestmark = NEEDS_ETCD


def nodes_of(etcd, count, *directives):
    """A cluster whose nodes tell digests."""
    return dunlin_nodes(etcd, count, *DEBUG, *directives)


@told_again
def test_migrateslots_moves_keys_as_they_are(etcd):
    with nodes_of(etcd, 2) as cluster:
        fill(cluster)
        before = all_content(cluster, etcd)
        name = migrate(cluster, [0, 99, 4000, 4099])
        ends(cluster, name, "success")
        # The target names the same move.
        until(lambda: state(cluster, name, 1) == "success", lambda: logs(cluster))
        first, second = (node.port for node in cluster.nodes)
        runs = [run[:3] for run in shard_order(cluster)]
        assert {(0, 99, second), (100, 3999, first), (4000, 4099, second)} <= set(runs), runs
        assert all_content(cluster, etcd) == before
        # What was given away is removed, and shows nowhere meanwhile.
        until(lambda: cluster.client(0).dbsize() + cluster.client(1).dbsize() == len(before), "DBSIZE")
        assert cluster.client(1).execute_command("CLUSTER COUNTKEYSINSLOT", 50) == sum(
            key_slot(key) == 50 for key in before
        )
        [job] = [job for job in jobs(cluster) if job["name"] == name]
        assert (job["operation"], job["slot_ranges"]) == (b"EXPORT", b"0-99 4000-4099")
        assert job["remaining_repl_size"] == 0 and job["message"] == b""
        # And back again.
        back = migrate(cluster, [0, 99, 4000, 4099], 1, 0)
        ends(cluster, back, "success", 1)
        assert all_content(cluster, etcd) == before


@told_again
def test_slots_move_to_and_fro_under_load(etcd):
    with nodes_of(etcd, 2) as cluster:
        with Load(cluster) as load:
            for _ in range(3):
                for source, target in ((0, 1), (1, 0)):
                    name = migrate(cluster, [0, 299], source, target)
                    ends(cluster, name, "success", source)
        load.check()
        all_content(cluster, etcd)


@told_again
def test_clients_that_wait_or_watch_learn_that_slots_have_moved(etcd):
    with nodes_of(etcd, 2) as cluster:
        key, stays = key_in(0, 99), key_in(200, 8000)
        waiting, watching = cluster.client(0), cluster.client(0)
        outcome = []
        def wait():
            try:
                outcome.append(waiting.execute_command("BLPOP", key, 60))
            except redis.exceptions.MovedError as error:
                outcome.append(str(error))
        thread = threading.Thread(target=wait)
        thread.start()
        pipeline = watching.pipeline()
        pipeline.watch(key)
        until(lambda: cluster.client(0).info("clients")["blocked_clients"] == 1, "a client that waits")
        ends(cluster, migrate(cluster, [0, 99]), "success")
        thread.join(60)
        assert outcome == [f"{key_slot(key.encode())} 127.0.0.1:{cluster.nodes[1].port}"]
        pipeline.multi()
        pipeline.set(stays, 1)
        with pytest.raises(redis.WatchError):
            pipeline.execute()


@told_again
def test_cancelslotmigrations_leaves_the_slots_where_they_are(etcd):
    with nodes_of(etcd, 2) as cluster:
        fill(cluster, 100)
        before = all_content(cluster, etcd)
        name = migrate(cluster, [0, 299], slow=True)
        until(lambda: state(cluster, name) == "snapshotting" and hidden_keys(cluster), lambda: logs(cluster))
        info = lambda number, name: cluster.client(number).info("cluster")[f"cluster_{name}"]  # noqa: E731
        # The key that was sent last may not be held yet.
        until(lambda: info(0, "moves_behind_bytes") > 0, "the target is behind")
        sides = [info(number, name) for number in (0, 1) for name in ("moves_from_here", "moves_to_here", "moving_slots")]
        assert sides == [1, 0, 300, 0, 1, 0]
        assert info(0, "moves_sent_bytes") > 0 == info(1, "moves_sent_bytes")
        assert cluster.client(0).execute_command("CLUSTER CANCELSLOTMIGRATIONS") in (b"OK", True, "OK")
        until(lambda: state(cluster, name) in ("cancelled", "failed"), lambda: logs(cluster))
        until(lambda: not record(etcd, "slots")["moving"], "the record")
        until(lambda: info(1, "moves_to_here") == info(0, "moves_sent_bytes") == info(0, "moves_behind_bytes") == 0, "the end in INFO")
        with pytest.raises(redis.ResponseError, match="No migrations ongoing"):
            cluster.client(0).execute_command("CLUSTER CANCELSLOTMIGRATIONS")
        assert all_content(cluster, etcd) == before
        until(lambda: sum(cluster.client(n).dbsize() for n in (0, 1)) == len(before), "what was imported is removed")
        # It can be done again.
        cluster.client(0).config_set("rdb-key-save-delay", 0)
        ends(cluster, migrate(cluster, [0, 299]), "success")
        assert all_content(cluster, etcd) == before


@pytest.mark.parametrize("emptied", [0, 1])
@told_again
def test_flushall_ends_a_move(etcd, emptied):
    with nodes_of(etcd, 2) as cluster:
        fill(cluster, 100)
        with Load(cluster, 1):
            name = migrate(cluster, [0, 299], slow=True)
            until(lambda: state(cluster, name) == "snapshotting" and hidden_keys(cluster), lambda: logs(cluster))
            cluster.client(emptied).flushall()
            # The target takes it off the record before it empties its databases.
            ends(cluster, name, ["failed", "cancelled"][emptied])
        until(lambda: not record(etcd, "slots")["moving"], "the record")
        shown = all_content(cluster, etcd)
        until(lambda: sum(cluster.client(n).dbsize() for n in (0, 1)) == len(shown), "what was imported is removed")


@pytest.mark.parametrize("emptied", [0, 1])
@told_again
def test_flushall_waits_while_it_is_open_whose_the_slots_are(etcd, emptied):
    with nodes_of(etcd, 2) as cluster:
        fill(cluster, 100)
        before = all_content(cluster, etcd)
        name = migrate(cluster, [0, 299], slow=True)
        until(lambda: state(cluster, name) == "snapshotting" and hidden_keys(cluster), lambda: logs(cluster))
        # The source proposes what nobody answers.
        etcd.pause(True)
        cluster.client(0).config_set("rdb-key-save-delay", 0)

        def is_giving():
            [job] = [job for job in jobs(cluster) if job["name"] == name]
            return job["state"] == b"failover-paused" and job["remaining_repl_size"] == 0

        until(is_giving, lambda: logs(cluster))
        for request, answered in (b"FLUSHALL\r\n", b""), (b"MULTI\r\nFLUSHDB\r\nEXEC\r\n", b"+OK\r\n"):
            with socket.create_connection(("127.0.0.1", cluster.nodes[emptied].port), timeout=60) as raw:
                raw.sendall(request)
                answer = b""
                while len(answer) < len(answered):
                    answer += raw.recv(1000)
                raw.settimeout(2)
                with pytest.raises(TimeoutError):
                    answer += raw.recv(1000)
                assert answer == answered
        with pytest.raises(redis.ResponseError, match="slots are changing hands"):
            cluster.client(emptied).eval("return redis.call('FLUSHALL')", 0)
        etcd.pause(False)
        until(lambda: state(cluster, name) in ("success", "failed", "cancelled"), lambda: logs(cluster))
        # Clients that have gone away empty nothing. The target shows the keys once it has heard of the end.
        until(lambda: all_content(cluster, etcd) == before, lambda: logs(cluster))
        cluster.client(emptied).flushall()
        assert cluster.client(emptied).dbsize() == 0


def restart(node, etcd):
    """Kills a node and starts it again, where it was."""
    node.process.kill()
    node.process.wait()
    own = ["--save", "", "--bind", "127.0.0.1", "--port", node.port, "--dir", node.folder, "--unixsocket", node.socket]
    own += ["--cluster-join", etcd.join(), "--cluster-replicas", "0", "--threads", "2", "--appendonly", "yes"]
    with open(node.log_path, "ab") as log:
        node.process = subprocess.Popen(command(DUNLIN, *own, *DEBUG), stdout=log, stderr=log)
    node._await_ping()


@pytest.mark.parametrize("victim", [0, 1])
@told_again
def test_move_whose_source_or_target_dies_is_void(etcd, victim):
    with nodes_of(etcd, 2, "--appendonly", "yes", "--appendfsync", "always") as cluster:
        fill(cluster, 100)
        before = all_content(cluster, etcd)
        name = migrate(cluster, [0, 299], slow=True)
        until(lambda: state(cluster, name) == "snapshotting" and hidden_keys(cluster), lambda: logs(cluster))
        owners = shard_order(cluster)
        restart(cluster.nodes[victim], etcd)
        until(lambda: not record(etcd, "slots")["moving"], lambda: logs(cluster), 90)
        until(lambda: all(cluster.info(n)["cluster_state"] == "ok" for n in (0, 1)), lambda: logs(cluster))
        until(lambda: sum(cluster.client(n).dbsize() for n in (0, 1)) == len(before), lambda: logs(cluster))
        assert all_content(cluster, etcd) == before
        assert shard_order(cluster) == owners


@told_again
def test_moves_that_fail_begin_again_after_pauses(etcd):
    with nodes_of(etcd, 2) as cluster:
        client = redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port, socket_timeout=120)
        for number in range(80):
            client.set(f"key:{number}", random.Random(number).randbytes(100_000))
        client.close()
        # The other node has more than it may have.
        target = cluster.client(1)
        target.config_set("maxmemory", 1_000_000)
        target.execute_command("CLUSTER", "DRAIN", node_id(cluster, 0))
        failed = lambda: [job for job in jobs(cluster) if job["operation"] == b"EXPORT" and job["state"] == b"failed"]  # noqa: E731
        until(lambda: len(failed()) >= 4, lambda: logs(cluster), 120)
        # Seconds, the last one first: pauses of 1, 2 and 4 s, of which the first and the last second may not be whole.
        begun = sorted(job["create_time"] for job in failed())
        assert begun[3] - begun[0] >= 6, (failed(), logs(cluster))

        def reasons():
            reader = cluster.client(1, protocol=3)
            reader.response_callbacks.clear()
            return [move[b"why"] for move in reader.execute_command("CLUSTER", "STATUS")[b"failed-moves"]]

        until(lambda: any(b"OOM" in why for why in reasons()), lambda: f"{reasons()} {logs(cluster)}")
        # With the reason, the failures are at an end.
        target.config_set("maxmemory", 0)
        until(lambda: slots_by_port(cluster) == {cluster.nodes[1].port: 16_384}, lambda: logs(cluster), 120)
        until(lambda: not reasons(), lambda: f"{reasons()}")


@told_again
def test_drain_does_not_wait_for_a_node_that_is_gone(etcd):
    with nodes_of(etcd, 3) as cluster:
        fill(cluster, 60)
        # A move from it to the node that is drained is under way when it dies.
        slot = next(first for first, _, primary, *_ in shard_order(cluster) if primary == cluster.nodes[2].port)
        client = cluster.client(2)
        for number in range(20):
            client.set(key_in(slot, slot, f"slow{number}-"), random.Random(number).randbytes(100_000))
        name = migrate(cluster, [slot, slot], source=2, target=1, slow=True)
        until(lambda: state(cluster, name, 2) == "snapshotting" and hidden_keys(cluster, 1), lambda: logs(cluster))
        gone = cluster.nodes.pop(2)
        gone.kill()
        cluster.client(0).execute_command("CLUSTER", "DRAIN", node_id(cluster, 1))
        until(lambda: set(slots_by_port(cluster)) == {cluster.nodes[0].port, gone.port}, lambda: f"{slots_by_port(cluster)} {logs(cluster)}", 120)
        assert not record(etcd, "slots")["moving"]


@told_again
def test_node_that_joins_gets_its_share_and_one_that_drains_gives_it_away(etcd):
    with nodes_of(etcd, 3) as cluster:
        fill(cluster, 200)
        before = all_content(cluster, etcd)
        with Load(cluster, 2) as load:
            own = ["--cluster-join", etcd.join(), "--cluster-replicas", "0", "--threads", "2", *DEBUG]
            newcomer = Server(*own)
            cluster.nodes.append(newcomer)

            def is_balanced():
                counts = slots_by_port(cluster)
                return len(counts) == 4 and all(3_800 < count < 4_400 for count in counts.values())

            until(is_balanced, lambda: f"{slots_by_port(cluster)} {logs(cluster)}", 120)
            drained = cluster.client(3).execute_command("CLUSTER MYID")
            drained = drained if isinstance(drained, str) else drained.decode()
            node = record(etcd, f"nodes/{drained}")
            record(etcd, f"nodes/{drained}", {**node, "state": "draining"})
            until(lambda: newcomer.port not in slots_by_port(cluster), lambda: logs(cluster), 120)
        load.check()
        until(lambda: cluster.client(3).dbsize() == 0, "an empty node")
        shown = all_content(cluster, etcd)
        assert {key: shown[key] for key in before} == before


@told_again
def test_slots_that_are_light_leave_the_shard_of_a_heavy_one(etcd):
    with nodes_of(etcd, 2) as cluster:
        client = redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port, socket_timeout=120)
        # An empty slot counts as 4 KB, 64 MB in all; 120 MB in one slot are more than all others together.
        for number in range(1_000):
            client.set(f"light:{number}", b"x" * 2_000)
        for number in range(120):
            client.rpush("heavy", *(f"{number}:{part}:" + "x" * 100_000 for part in range(10)))
        slot = key_slot(b"heavy")

        def runs_beside_it():
            runs = shard_order(cluster)
            (owner,) = [run[2] for run in runs if run[0] <= slot <= run[1]]
            return [run for run in runs if run[2] == owner] != [(slot, slot, owner)]

        until(lambda: not runs_beside_it(), lambda: f"{shard_order(cluster)} {logs(cluster)}", 120)
        begun = [job["name"] for number in range(2) for job in jobs(cluster, number)]
        # It stays so: looks at a balanced cluster, one each half second, move nothing.
        time.sleep(6)
        assert [job["name"] for number in range(2) for job in jobs(cluster, number)] == begun
        assert not runs_beside_it()
        assert client.llen("heavy") == 1_200 and client.get("light:999") == b"x" * 2_000
        client.close()
