"""What a node's disk vouches for: a member counts as one only for what its next start would load, and a backup of etcd is none."""

import os
import resource
import shutil
import signal
import subprocess

import pytest
import redis

from etcd_cluster import DUNLIN, NEEDS_ETCD, ask_etcd, dunlin_nodes, records, text, told_again, until
from failovers import ALWAYS, SYNC, answer, id_of, in_sync, kill, logs, replica_value, serving, start_again
from harness import command
from moves import ends, jobs, key_in, migrate, record, state

pytestmark = NEEDS_ETCD


def promise(node):
    return (node.folder / "cluster-end").read_text()


def hand_over(cluster, etcd, node):
    """Makes a member the primary, in a history that does not begin at 0."""
    until(lambda: in_sync(etcd), lambda: logs(cluster))
    until(lambda: answer(node, "CLUSTER", "FAILOVER") in (b"OK", True), lambda: logs(cluster))
    until(lambda: serving([node]), lambda: logs(cluster))
    until(lambda: in_sync(etcd), lambda: logs(cluster))


@told_again
def test_copy_counts_when_its_log_has_a_base(etcd):
    with dunlin_nodes(etcd, 2, *SYNC, *ALWAYS, replicas=1) as cluster:
        first, second = cluster.nodes
        hand_over(cluster, etcd, second)
        kill(first)
        until(lambda: in_sync(etcd, 1), lambda: logs(cluster))
        shutil.rmtree(first.folder / "appendonlydir")
        # The base cannot be written while a directory has the name of its temporary file.
        own = ["--save", "", "--bind", "127.0.0.1", "--port", first.port, "--dir", first.folder, "--unixsocket", first.socket]
        own += ["--cluster-join", etcd.join(), "--cluster-replicas", "1", "--threads", "2", *SYNC, *ALWAYS]
        script = 'mkdir -p "$0/temp-$$.rdb" && exec "$@"'
        with open(first.log_path, "ab") as log:
            words = ["sh", "-c", script, str(first.folder / "appendonlydir"), *command(DUNLIN, *own)]
            first.process = subprocess.Popen(words, stdout=log, stderr=log)
        first._await_ping()
        until(lambda: answer(second, "SET", "key", "copied") in (b"OK", True), lambda: logs(cluster))
        until(lambda: replica_value(first) == b"copied", lambda: logs(cluster))
        failures = first.log().count("the log could not be rewritten")
        until(lambda: first.log().count("the log could not be rewritten") > failures + 1, lambda: logs(cluster))
        assert in_sync(etcd, 1), "it has all, and would not have it after a crash"
        assert promise(first) == ""
        (first.folder / "appendonlydir" / f"temp-{first.process.pid}.rdb").rmdir()
        until(lambda: in_sync(etcd), lambda: logs(cluster))
        until(lambda: promise(first) == "durable\n", lambda: logs(cluster))


@told_again
def test_data_in_memory_count_when_the_disk_vouches_for_synced_ones_no_more(etcd):
    with dunlin_nodes(etcd, 2, *SYNC, *ALWAYS, replicas=1) as cluster:
        first, second = cluster.nodes
        until(lambda: in_sync(etcd), lambda: logs(cluster))
        until(lambda: promise(second) == "durable\n", lambda: logs(cluster))
        blocked = block(second, "cluster-end")
        assert answer(second, "CONFIG", "SET", "appendonly", "no") in (b"OK", True)
        # It is expelled for its lag before the write is answered.
        assert answer(first, "SET", "key", "written", timeout=60) in (b"OK", True)
        assert promise(second) == "durable\n"
        assert id_of(second) not in in_sync(etcd, 1)["in_sync"]
        blocked.rmdir()
        until(lambda: in_sync(etcd), lambda: logs(cluster))
        assert promise(second) == ""


@told_again
def test_snapshot_loaded_instead_of_the_log_lacks_synced_writes(etcd):
    with dunlin_nodes(etcd, 2, *SYNC, *ALWAYS, replicas=1) as cluster:
        first, second = cluster.nodes
        until(lambda: in_sync(etcd), lambda: logs(cluster))
        client = cluster.client(0)
        client.set("key", "older")
        until(lambda: replica_value(second) == b"older", lambda: logs(cluster))
        assert answer(second, "SAVE", timeout=30) in (b"OK", True)
        client.set("key", "newer")
        until(lambda: promise(second) == "durable\n", lambda: logs(cluster))
        key = f"nodes/{id_of(second)}"
        boot = records(etcd)[key]["boot"]
        kill(first, second)
        start_again(second, etcd, *SYNC, "--appendonly", "no", replicas=1)
        until(lambda: records(etcd)[key]["boot"] != boot, lambda: logs(cluster))
        assert records(etcd)[key]["restart"]["clean"] is False
        start_again(first, etcd, *SYNC, *ALWAYS, replicas=1)
        until(lambda: serving([first], "other"), lambda: logs(cluster))
        assert cluster.client(0).get("key") == b"newer"
        until(lambda: replica_value(second) == b"newer", lambda: logs(cluster))


@told_again
def test_node_does_not_obey_an_etcd_backup_from_before_a_failover(etcd):
    with dunlin_nodes(etcd, 2, *SYNC, *ALWAYS, replicas=1) as cluster:
        first, second = cluster.nodes
        until(lambda: in_sync(etcd), lambda: logs(cluster))
        etcd.back_up()
        hand_over(cluster, etcd, second)
        known = lambda: (first.folder / "cluster-node").read_text()  # noqa: E731
        until(lambda: (record := in_sync(etcd)) and f" {record['epoch']}\n" in known(), lambda: logs(cluster))
        kill(first)
        # The successor goes on alone.
        until(lambda: in_sync(etcd, 1), lambda: logs(cluster))
        assert answer(second, "SET", "key", "newer", timeout=30) in (b"OK", True)
        etcd.restore()
        size = os.path.getsize(first.log_path)
        start_again(first, etcd, *SYNC, *ALWAYS, replicas=1)
        until(lambda: "restored from a backup" in first.log()[size:], lambda: logs(cluster))
        assert "is its shard's primary" not in first.log()[size:]
        assert answer(second, "SET", "key", "newest", timeout=30) in (b"OK", True)
        assert isinstance(answer(first, "SET", "key", "older"), (redis.RedisError, OSError))


@told_again
def test_node_that_was_away_stops_when_it_hears_that_etcd_is_a_backup(etcd):
    with dunlin_nodes(etcd, 2, *SYNC, *ALWAYS, replicas=1) as cluster:
        first, second = cluster.nodes
        until(lambda: in_sync(etcd), lambda: logs(cluster))
        etcd.back_up()
        kill(first)
        until(lambda: serving([second]), lambda: logs(cluster))
        until(lambda: in_sync(etcd, 1), lambda: logs(cluster))
        etcd.restore()
        start_again(first, etcd, *SYNC, *ALWAYS, replicas=1)
        until(lambda: "this node stops, and keeps its data" in first.log(), lambda: logs(cluster))
        assert answer(second, "SET", "key", "newest", timeout=30) in (b"OK", True)
        assert isinstance(answer(first, "SET", "key", "older"), (redis.RedisError, OSError))


def block(node, name):
    """Keeps a node from writing a file: a directory has the name of its temporary one. The node may be writing it this moment."""
    directory = node.folder / f"{name}.{node.process.pid}.tmp"

    def is_there():
        try:
            directory.mkdir()
        except FileExistsError:
            assert not directory.is_dir(), directory
            return False
        return True

    until(is_there, node.log)
    return directory


def until_renewed(etcd, node):
    """Waits until a node renews its presence, which is there all the time."""
    seen = []

    def is_renewed():
        key = text(f"/dunlin/test/alive/{id_of(node)}")
        (item,) = ask_etcd(etcd, "kv/range", key=key)["kvs"]
        seen.append(int(ask_etcd(etcd, "lease/timetolive", ID=item["lease"])["TTL"]))
        return seen[-1] > min(seen)

    until(is_renewed, lambda: f"{seen} {node.log()[-2000:]}")


def is_sent_to(node, target, key):
    """Whether a node sends who reads a key to another one."""
    error = answer(node, "GET", key)
    return isinstance(error, redis.exceptions.MovedError) and error.port == target.port


@told_again
def test_node_with_a_full_disk_follows_its_cluster(etcd):
    with dunlin_nodes(etcd, 2) as cluster:
        first, second = cluster.nodes
        key = key_in(0, 99)
        cluster.client(0).set(key, "value")
        blocked = [block(node, "cluster-node") for node in cluster.nodes]
        for number, (source, target) in enumerate([(first, second), (second, first)]):
            ends(cluster, migrate(cluster, [0, 99], number, 1 - number), "success", number)
            until(lambda: answer(target, "GET", key) == b"value", lambda: logs(cluster))  # noqa: B023
            assert is_sent_to(source, target, key)
        assert [node.log().count("cannot write") for node in cluster.nodes] == [1, 1], logs(cluster)
        for directory in blocked:
            directory.rmdir()
        until(lambda: all("has what it obeys again" in node.log() for node in cluster.nodes), lambda: logs(cluster))


@told_again
def test_source_that_cannot_obey_the_records_redirects_to_the_target(etcd):
    with dunlin_nodes(etcd, 2) as cluster:
        first, second = cluster.nodes
        key = key_in(0, 99)
        # Enough for the records to change while they are sent slowly.
        cluster.client(0).mset({key: "value"} | {f"{{{key}}}{at}": at for at in range(200)})
        name = migrate(cluster, [0, 99], slow=True)
        until(lambda: state(cluster, name) == "snapshotting", lambda: f"{jobs(cluster)} {logs(cluster)}")
        known = record(etcd, "cluster")
        record(etcd, "cluster", {**known, "v": 99})
        until(lambda: all("/cluster: " in node.log() for node in cluster.nodes), lambda: logs(cluster))
        cluster.client(0).config_set("rdb-key-save-delay", 0)
        ends(cluster, name, "success")
        assert is_sent_to(first, second, key)
        # Nodes that do not obey are there all the same.
        for node in cluster.nodes:
            until_renewed(etcd, node)
        # The target obeys no more than the source.
        record(etcd, "cluster", known)
        until(lambda: answer(second, "GET", key) == b"value", lambda: logs(cluster))


def fill_disk(node):
    """The limit on the size of files stands in for a full disk: the log takes no more than 20 bytes."""
    (log,) = (node.folder / "appendonlydir").glob("*.incr.aof")
    size = len(log.read_bytes().rstrip(b"#\n")) + 1
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (size + 20, resource.RLIM_INFINITY))


def empty_disk(node):
    resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)


@pytest.fixture
def no_signals():
    """Writes beyond the limit fail, and end no process."""
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGXFSZ, before)


@told_again
def test_primary_with_a_full_disk_hands_over(etcd, no_signals):
    with dunlin_nodes(etcd, 2, *SYNC, *ALWAYS, replicas=1) as cluster:
        first, second = cluster.nodes
        until(lambda: in_sync(etcd), lambda: logs(cluster))
        assert answer(first, "SET", "key", "durable") in (b"OK", True)
        fill_disk(first)
        # Refused, sent to the other one, or cut off with the role; never OK.
        refused = answer(first, "SET", "key", "x" * 100)
        assert isinstance(refused, Exception), refused
        until(lambda: serving([second], "other"), lambda: logs(cluster))
        shard = in_sync(etcd, 1)
        assert shard["in_sync"] == [id_of(second)] == [shard["primary"]]
        assert answer(second, "GET", "key") in (b"durable", b"x" * 100)
        # It is no member until it can keep what it gets.
        assert answer(second, "SET", "key", "newer") in (b"OK", True)
        empty_disk(first)
        until(lambda: in_sync(etcd), lambda: logs(cluster))
        until(lambda: replica_value(first) == b"newer", lambda: logs(cluster))


@told_again
def test_member_with_a_full_disk_is_expelled_at_once(etcd, no_signals):
    with dunlin_nodes(etcd, 2, *SYNC, *ALWAYS, replicas=1) as cluster:
        first, second = cluster.nodes
        until(lambda: in_sync(etcd), lambda: logs(cluster))
        assert answer(first, "SET", "key", "durable") in (b"OK", True)
        until(lambda: replica_value(second) == b"durable", lambda: logs(cluster))
        fill_disk(second)
        # One that only lags is waited for for 10 s.
        assert answer(first, "SET", "key", "x" * 100, timeout=8) in (b"OK", True)
        assert in_sync(etcd, 1)["in_sync"] == [id_of(first)]
        assert answer(first, "SET", "key", "newer") in (b"OK", True)
        empty_disk(second)
        until(lambda: in_sync(etcd), lambda: logs(cluster))
        until(lambda: replica_value(second) == b"newer", lambda: logs(cluster))
