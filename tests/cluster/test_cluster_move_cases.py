"""Moves of slots in hard cases: targets whose primary dies, times that run out, large values, TLS, neighbours in etcd.

`MOVE_VALUE_MB` is the size of the large value."""

import itertools
import os
import pathlib
import signal
import time

import pytest
import redis
from redis.crc import key_slot

from etcd_cluster import NEEDS_ETCD, NOBODY, Nodes, dunlin_nodes, put, records, shard_order, told_again, until
from failovers import SYNC, Writer, answer, are_in_sync, held_by, id_of, kill, shard_order_at, start_again
from harness import Server, suspend
from moves import DEBUG, Load, all_content, ends, fill, hidden_keys, jobs, key_in, logs, migrate, record, slots_by_port, state


pytestmark = NEEDS_ETCD

VALUE_BYTES = int(os.environ.get("MOVE_VALUE_MB", "32")) << 20
OVER = ("success", "failed", "cancelled")


def primary_of(cluster, slot):
    """The node that serves a slot, as a node says that is up."""
    for node in cluster.nodes:
        try:
            runs = shard_order_at(node)
        except (redis.RedisError, OSError):
            continue
        ports = [run[2] for run in runs if run[0] <= slot <= run[1]]
        return next((node for node in cluster.nodes if node.port in ports), None)
    return None


@pytest.mark.parametrize("moment", ["during", "after"])
@told_again
def test_move_survives_the_death_of_the_targets_primary(etcd, moment):
    directives = (*SYNC, *DEBUG, "--appendonly", "yes")
    with dunlin_nodes(etcd, 4, *directives, replicas=1) as cluster:
        until(lambda: are_in_sync(etcd, 2), lambda: logs(cluster))
        fill(cluster, 60)
        before = all_content_of(cluster, etcd)
        keys = [key_in(at * 50, at * 50 + 49, "list") for at in range(4)]
        writers = [Writer(cluster.nodes, key) for key in keys]
        for writer in writers:
            writer.start()
        until(lambda: all(len(writer.acknowledged) > 50 for writer in writers), lambda: logs(cluster))
        name = migrate(cluster, [0, 299], slow=moment == "during")
        if moment == "during":
            until(lambda: state(cluster, name) == "snapshotting" and hidden_keys(cluster), lambda: logs(cluster))
        else:
            until(lambda: primary_of(cluster, 0) is cluster.nodes[1], lambda: logs(cluster))
        kill(cluster.nodes[1])
        until(lambda: state(cluster, name) in OVER, lambda: logs(cluster))
        # The source finds out that the target is gone when it sends next, if the planner has not struck the move off before.
        assert state(cluster, name) in (["success"] if moment == "after" else ["failed", "cancelled"]), (jobs(cluster), logs(cluster))
        heir = cluster.nodes[3]
        # Other slots of the two shards may move at any time.
        until(lambda: "master" in str(answer(heir, "ROLE")), lambda: logs(cluster))
        owner = heir if moment == "after" else cluster.nodes[0]
        until(lambda: primary_of(cluster, 0) is owner, lambda: logs(cluster))
        seen = [len(writer.acknowledged) for writer in writers]
        until(lambda: all(len(w.acknowledged) > s + 50 for w, s in zip(writers, seen)), lambda: logs(cluster))
        start_again(cluster.nodes[1], etcd, *directives, replicas=1)
        cluster.nodes[1]._await_ping()
        until(lambda: are_in_sync(etcd, 2), lambda: logs(cluster))
        if moment == "during":
            # With the shard's new primary it comes about.
            cluster.client(0).config_set("rdb-key-save-delay", 0)
            ends(cluster, migrate(cluster, [0, 299], 0, 3), "success")
        for writer in writers:
            writer.end()
            writer.check(held_by(cluster, writer.key))
        shown = all_content_of(cluster, etcd)
        assert {key: shown.get(key) for key in before} == before
        # Replicas have the same, and nothing that is not their shard's.
        primaries = {run[2] for run in shard_order(cluster)}
        for node in cluster.nodes:
            if node.port not in primaries:
                same = lambda: answer(node, "DEBUG", "DIGEST") == answer(primary_in(cluster, node), "DEBUG", "DIGEST")  # noqa: B023, E731
                until(same, lambda: logs(cluster))


def primary_in(cluster, replica):
    # The node that is asked names replicas that it has seen, which takes a moment where one has just come back.
    ports = until(lambda: [run[2] for run in shard_order(cluster) if replica.port in run[3:]], lambda: logs(cluster))
    return next(node for node in cluster.nodes if node.port == ports[0])


def all_content_of(cluster, etcd):
    """What the primaries have."""
    ports = {run[2] for run in shard_order(cluster)}
    return all_content(Nodes([node for node in cluster.nodes if node.port in ports]), etcd)


@told_again
def test_move_is_committed_by_all_members_in_async_too(etcd):
    """What moves was acknowledged long ago, and is no write of the last moment."""
    with dunlin_nodes(etcd, 4, *DEBUG, replicas=1) as cluster:
        until(lambda: are_in_sync(etcd, 2), lambda: logs(cluster))
        fill(cluster, 40)
        replica = cluster.nodes[3]
        suspend(replica.process)
        target = next(key for key, record in are_in_sync(etcd, 2).items() if record["primary"] == id_of(cluster.nodes[1]))
        name = migrate(cluster, [0, 299])
        until(lambda: state(cluster, name) in OVER, lambda: logs(cluster))
        found = records(etcd)
        if _owner(found, 0) == target.split("/")[1]:
            # The stopped replica could not take over any more.
            assert found[target]["in_sync"] == [id_of(cluster.nodes[1])], logs(cluster)
        replica.process.send_signal(signal.SIGCONT)
        until(lambda: are_in_sync(etcd, 2), lambda: logs(cluster))


def _owner(found, slot):
    """Which shard the record says has a slot."""
    for run in found["slots"]["slots"]:
        for part in run["slots"].split(","):
            first, _, last = part.partition("-")
            if int(first) <= slot <= int(last or first):
                return run["shard"]
    return None


@told_again
def test_keys_whose_time_runs_out_during_a_move_are_gone(etcd):
    with dunlin_nodes(etcd, 2, *DEBUG) as cluster:
        client = redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port, socket_timeout=30)
        tag = f"{{{key_in(0, 99, 't')}}}"
        short = [f"{tag}short:{number}" for number in range(40)]
        # What lasts has the move go on for long behind the last of those that run out.
        lasting = 60
        long_ms = int(time.time() * 1000) + 3_600_000
        for number in range(lasting):
            client.set(f"{tag}long:{number}", number, pxat=long_ms + number)
        events = cluster.client(0).pubsub()
        cluster.client(0).config_set("notify-keyspace-events", "Ex")
        events.psubscribe("__keyevent@0__:expired")
        until(events.get_message, "the confirmation")
        for number, key in enumerate(short):
            client.set(key, number, px=500 + 40 * number)
        # A key in a quarter of a second: all of them run out while the snapshot is sent, most before it comes to them.
        name = migrate(cluster, [0, 99], slow=True)
        until(lambda: state(cluster, name) == "snapshotting", lambda: logs(cluster))
        expired, during = set(), set()

        def all_expired():
            while message := events.get_message():
                expired.add(message["data"].decode())
            if state(cluster, name) not in OVER:
                during.update(expired)
            return len(expired) == len(short)

        until(all_expired, lambda: f"{sorted(set(short) - expired)} {logs(cluster)}")
        assert len(during) > 10
        renewed = short[0]
        client.set(renewed, "again", px=3_600_000)
        cluster.client(0).config_set("rdb-key-save-delay", 0)
        ends(cluster, name, "success")
        assert [key for key in short if client.get(key) is not None] == [renewed]
        assert client.get(renewed) == b"again" and client.pttl(renewed) > 3_000_000
        assert [client.pexpiretime(f"{tag}long:{number}") for number in range(lasting)] == [long_ms + n for n in range(lasting)]
        until(lambda: (cluster.client(0).dbsize(), cluster.client(1).dbsize()) == (0, lasting + 1), lambda: logs(cluster))
        client.close()


@told_again
def test_move_of_an_expired_key_leaves_none_at_the_target(etcd):
    with dunlin_nodes(etcd, 2, *DEBUG) as cluster:
        client = redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port, socket_timeout=30)
        key = key_in(0, 99, "t")
        for _ in range(5):
            client.set(key, "x", px=700)
            source = 0 if primary_of(cluster, 0) is cluster.nodes[0] else 1
            ends(cluster, migrate(cluster, [0, 99], source, 1 - source), "success", source)
            until(lambda: client.get(key) is None, "its end")
            until(lambda: cluster.client(0).dbsize() + cluster.client(1).dbsize() == 0, lambda: logs(cluster))
        client.close()


@told_again
def test_move_of_a_large_value_lets_others_be_served(etcd):
    with dunlin_nodes(etcd, 2, *DEBUG, "--proto-max-bulk-len", "1gb") as cluster:
        client = redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port, socket_timeout=120)
        key = key_in(0, 99, "large")
        piece = os.urandom(1 << 20)
        for at in range(0, VALUE_BYTES, len(piece)):
            client.setrange(key, at, at.to_bytes(8, "big") + piece[8:])
        digest = client.execute_command("DEBUG", "DIGEST-VALUE", key, target_nodes=client.get_node_from_key(key))
        # The planner may move light slots away from it meanwhile.
        slot = key_slot(key.encode())
        source = cluster.nodes.index(primary_of(cluster, slot))
        with Load(cluster) as load:
            begun, done = time.monotonic(), load.done_count()
            ends(cluster, migrate(cluster, [slot, slot], source, 1 - source), "success", source)
            took_s = time.monotonic() - begun
            print(f"{VALUE_BYTES >> 20} MB in {took_s:.1f} s, beside {load.done_count() - done} changes of other keys")
        load.check()
        moved = cluster.client(1 - source, single_connection_client=True)
        assert moved.execute_command("DEBUG", "DIGEST-VALUE", key) == digest
        assert moved.strlen(key) == VALUE_BYTES
        until(lambda: key.encode() not in cluster.client(source).scan_iter(count=1000), "the end of the copy")
        client.close()


@told_again
def test_tls_between_nodes_carries_failovers_and_moves(etcd):
    from peers import Files

    files = Files()
    ports = []

    def each():
        port, given = files.directives()
        ports.append(port)
        return given

    common = (*SYNC, *DEBUG, "--tls-cluster", "yes", "--tls-replication", "yes", "--appendonly", "yes")
    try:
        with dunlin_nodes(etcd, 4, *common, each, replicas=1) as cluster:
            until(lambda: are_in_sync(etcd, 2), lambda: logs(cluster))
            fill(cluster, 40)
            before = all_content_of(cluster, etcd)
            with Load(cluster) as load:
                ends(cluster, migrate(cluster, [0, 299]), "success")
            load.check()
            writer = Writer(cluster.nodes, key_in(0, 299, "list"))
            writer.start()
            until(lambda: len(writer.acknowledged) > 50, lambda: logs(cluster))
            kill(cluster.nodes[1])
            seen = len(writer.acknowledged)
            until(lambda: len(writer.acknowledged) > seen + 50, lambda: logs(cluster))
            writer.end()
            writer.check(held_by(cluster, writer.key))
            # And back, from the heir.
            ends(cluster, migrate(cluster, [0, 299], 3, 0), "success", 3)
            shown = all_content_of(cluster, etcd)
            assert {key: shown.get(key) for key in before} == before
            # Nodes speak TLS only with each other. A primary has connections to its replica, a replica to its primary.
            plain = {node.port for node in cluster.nodes}
            cluster.nodes.pop(1).kill()
            assert not connections_of(cluster.nodes[-1].process.pid) & plain
            for number in (0, 1):
                pid = cluster.nodes[number].process.pid
                until(lambda: connections_of(pid) & set(ports), lambda: f"{connections_of(pid)} {ports}")  # noqa: B023
                assert not connections_of(pid) & plain, plain
    finally:
        files.remove()


def connections_of(pid):
    """The remote ports of a process's connections that are up."""
    inodes = set()
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(link)
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[2].split(":")[1], 16) for row in rows if row[9] in inodes and row[3] == "01"}


@told_again
def test_clusters_in_one_etcd_do_not_see_each_other(etcd):
    # The name of one begins with the other's.
    with dunlin_nodes(etcd, 2, *DEBUG, name="test") as one, dunlin_nodes(etcd, 2, *DEBUG, name="test2") as other:
        clients = [redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port) for cluster in (one, other)]
        for number in range(300):
            clients[0].set(f"key:{number}", f"one:{number}")
            clients[1].set(f"key:{number}", f"other:{number}")
        theirs = records(etcd, "test2")
        ends(one, migrate(one, [0, 999]), "success")
        own = {name for name in records(etcd, "test") if name.startswith(("nodes/", "shards/"))}
        assert not own & set(theirs)
        assert records(etcd, "test2")["slots"] == theirs["slots"]
        for number in range(300):
            assert clients[0].get(f"key:{number}") == f"one:{number}".encode()
            assert clients[1].get(f"key:{number}") == f"other:{number}".encode()
        for cluster in (one, other):
            ports = {node.port for node in cluster.nodes}
            assert {port for run in shard_order(cluster) for port in run[2:]} == ports
            assert cluster.info(0)["cluster_known_nodes"] == "2"
        for client in clients:
            client.close()


@told_again
def test_node_that_was_drained_may_come_back(etcd):
    with dunlin_nodes(etcd, 2, *DEBUG) as cluster:
        fill(cluster, 60)
        before = all_content(cluster, etcd)
        with Load(cluster) as load:
            for round_ in range(2):
                drained = cluster.nodes[1 - round_]
                keeps = cluster.nodes[round_]
                assert answer(keeps, "CLUSTER", "DRAIN", id_of(drained)) in (b"OK", True)
                dissolved = lambda: len([name for name in records(etcd) if name.startswith("shards/")]) == 1  # noqa: E731
                until(dissolved, lambda: logs(cluster), 120)
                # The node that is asked may not have read the record yet.
                until(lambda: slots_by_port(cluster) == {keeps.port: 16_384}, lambda: f"{slots_by_port(cluster)}")  # noqa: B023
                assert answer(keeps, "CLUSTER", "DRAIN", id_of(drained), "off") in (b"OK", True)
                until(lambda: len(slots_by_port(cluster)) == 2 and not record(etcd, "slots")["moving"], lambda: logs(cluster), 120)
        load.check()
        shown = all_content(cluster, etcd)
        assert {key: shown.get(key) for key in before} == before


@told_again
def test_replica_of_a_dissolved_shard_is_used_elsewhere(etcd):
    with dunlin_nodes(etcd, 4, *DEBUG, replicas=1) as cluster:
        until(lambda: are_in_sync(etcd, 2), lambda: logs(cluster))
        fill(cluster, 40)
        before = all_content_of(cluster, etcd)
        name = id_of(cluster.nodes[0])
        assert answer(cluster.nodes[1], "CLUSTER", "DRAIN", name) in (b"OK", True)
        shards = lambda: [record for key, record in records(etcd).items() if key.startswith("shards/")]  # noqa: E731
        until(lambda: len(shards()) == 1 and len(shards()[0]["in_sync"]) == 3, lambda: logs(cluster), 120)
        assert answer(cluster.nodes[1], "CLUSTER", "DRAIN", name, "off") in (b"OK", True)
        until(lambda: len(shards()) == 2 and are_in_sync(etcd, 2) and len(slots_by_port(cluster)) == 2, lambda: logs(cluster), 120)
        shown = all_content_of(cluster, etcd)
        assert {key: shown.get(key) for key in before} == before


def keys_in(first, last, count, prefix="moves"):
    """Some keys whose slots are in this run."""
    found = (key for key in (f"{prefix}:{at}" for at in itertools.count()) if first <= key_slot(key.encode()) <= last)
    return list(itertools.islice(found, count))


@told_again
def test_writes_to_other_slots_do_not_hold_a_move_up(etcd):
    narrow = ("--client-output-buffer-limit", "replica 8mb 0 0", "--repl-backlog-size", "1mb")
    with dunlin_nodes(etcd, 2, *DEBUG, *narrow) as cluster:
        # The planner begins none of its own.
        put(etcd, "controller", NOBODY)
        moving, other = keys_in(0, 299, 60), key_in(1000, 8000)
        client = cluster.client(0)
        for key in moving:
            client.set(key, key.encode() * 5000)
        client.config_set("rdb-key-save-delay", 1_000_000)
        name = migrate(cluster, [0, 299])
        until(lambda: state(cluster, name) == "snapshotting", lambda: logs(cluster))
        for _ in range(300):
            client.set(other, b"x" * 100_000)
            time.sleep(0.001)
        assert state(cluster, name) == "snapshotting", logs(cluster)
        client.config_set("rdb-key-save-delay", 0)
        ends(cluster, name, "success")
        assert [cluster.client(1).get(key) for key in moving] == [key.encode() * 5000 for key in moving]


@told_again
def test_move_without_its_target_does_not_hold_the_log_while_etcd_is_away(etcd):
    with dunlin_nodes(etcd, 2, *DEBUG, "--repl-backlog-size", "1mb") as cluster:
        fill(cluster, 100)
        name = migrate(cluster, [0, 299], slow=True)
        until(lambda: state(cluster, name) == "snapshotting" and hidden_keys(cluster), lambda: logs(cluster))
        etcd.pause(True)
        kill(cluster.nodes[1])
        client, other = cluster.client(0), key_in(1000, 8000)
        client.config_set("rdb-key-save-delay", 0)
        for _ in range(400):
            client.set(other, b"x" * 100_000)
        kept = lambda: client.info("memory")["mem_replication_backlog"]  # noqa: E731
        until(lambda: kept() < 20_000_000, lambda: f"{kept()} bytes are kept\n{logs(cluster)}")
        assert state(cluster, name) not in OVER, "etcd does not answer"
        etcd.pause(False)
        start_again(cluster.nodes[1], etcd)
        until(lambda: state(cluster, name) in OVER, lambda: logs(cluster))


@told_again
def test_keys_that_migrate_has_sent_stay_where_they_have_moved(etcd):
    with dunlin_nodes(etcd, 2, *DEBUG) as cluster, Server() as elsewhere:
        put(etcd, "controller", NOBODY)
        key = key_in(0, 299)
        cluster.client(0).set(key, "value")
        # Its answer comes when the slot has left.
        suspend(elsewhere.process)
        with cluster.nodes[0].connect(timeout=120) as client:
            client.sendall(f"MIGRATE 127.0.0.1 {elsewhere.port} {key} 0 100000\r\n".encode())
            ends(cluster, migrate(cluster, [0, 299]), "success")
            elsewhere.process.send_signal(signal.SIGCONT)
            assert client.recv(200).startswith(b"-MOVED ")
        assert cluster.client(1).get(key) == b"value"


@told_again
def test_moves_that_are_cancelled_before_they_begin_end(etcd):
    with dunlin_nodes(etcd, 2, *DEBUG) as cluster:
        put(etcd, "controller", NOBODY)
        target = id_of(cluster.nodes[1])
        for _ in range(20):
            # The node may see both changes of the record at once.
            with cluster.nodes[0].connect(timeout=60) as client:
                begin = f"CLUSTER MIGRATESLOTS SLOTSRANGE 0 9 NODE {target}\r\n"
                client.sendall(f"{begin}CLUSTER CANCELSLOTMIGRATIONS\r\n".encode())
                answers = client.makefile("rb")
                assert answers.readline() == b"+OK\r\n"
                # It may be over by then.
                assert answers.readline() == b"+OK\r\n" or "success" in {job["state"].decode() for job in jobs(cluster)}
            until(lambda: all(job["state"].decode() in OVER for job in jobs(cluster)), lambda: f"{jobs(cluster)} {logs(cluster)}")
            if "success" in {job["state"].decode() for job in jobs(cluster)}:
                break
        words = ("CLUSTER", "SETSLOT", 20, "MIGRATING", target)
        assert cluster.client(0).execute_command(*words) in (b"OK", True, "OK"), "it may be moved"
