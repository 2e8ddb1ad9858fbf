"""docs/disaster-recovery.md: each loss, and its commands as they stand on the page."""

import shutil
import subprocess

import pytest
import redis

import pages
from etcd_cluster import ETCD, ETCDCTL, Etcd, dunlin_nodes, records, told_again
from failovers import SYNC, answer, id_of, in_sync, logs, replica_value, serving
from harness import DUNLIN, Server, is_redis
from links import Node, settle, until

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="disasters of Dunlin")
needs_etcd = pytest.mark.skipif(not ETCD, reason="there is no etcd (apt-get install etcd-server)")

PAGE = pages.blocks(pages.page("disaster-recovery.md"))


def test_drill_has_no_other_commands():
    assert {heading: len(lines) for heading, lines in PAGE.items()} == {
        "Back up": 6, "A server is lost": 5, "A primary is lost": 5, "A file is damaged": 2, "Keys were deleted": 2, "A shard is lost": 3,
        "Etcd is lost": 3,
    }  # fmt: skip


def test_drill_brings_a_lost_server_and_deleted_keys_back(tmp_path):
    backup = tmp_path / "backup"
    backup.mkdir()
    start, status, seal, copy, clean, check = PAGE["Back up"]
    make, put, look, serve, ask = PAGE["A server is lost"]
    with Server("--appendonly", "yes") as server:
        client = redis.Redis(port=server.port)
        for number in range(1000):
            client.set(f"user:{number}", f"value {number}")
        places = {
            "-h db1 -p 6379": f"-p {server.port}", "db1 6379": f"127.0.0.1 {server.port}", "/var/lib/dunlin": server.folder,
            "/backup/monday": backup / "monday", "/var/lib/restored": tmp_path / "restored",
        }  # fmt: skip
        pages.run(start, places)
        until(lambda: "incrementing" in pages.run(status, places), "the base")
        client.set("late", "before the seal")
        for line in (seal, copy, clean):
            pages.run(line, places)
        assert "good" in pages.run(check, places)
        client.delete("user:1", "user:2")
        client.set("user:1", "wrong")

        for line in (make, put, look):
            pages.run(line, places)
        words = pages.words_of(serve, places)
        assert words[1:4] == ["server", "--port", "7000"]
        # The harness has a port of its own, waits for the server, and ends it.
        with Server(*words[4:]) as restored:
            places["-p 7000"] = f"-p {restored.port}"
            assert "keys=1001" in pages.run(ask, places)
            assert redis.Redis(port=restored.port).get("late") == b"before the seal"
            migrate, exist = PAGE["Keys were deleted"]
            pages.run(migrate, places)
            assert pages.run(exist, places).strip() == "2"
            assert client.mget("user:1", "user:2") == [b"value 1", b"value 2"]
            assert redis.Redis(port=restored.port).get("user:1") == b"value 1", "COPY"
    text = tmp_path / "users.aof"
    pages.run("dunlin convert /backup/monday users.aof", {**places, "users.aof": text}, more=["--commands"])
    assert b"user:999" in text.read_bytes()
    assert "dunlin convert /backup/monday users.aof" in pages.page("disaster-recovery.md")


def test_drill_promotes_the_replica_that_has_more():
    with Node(DUNLIN) as first, Node(DUNLIN) as second:
        with Node(DUNLIN) as primary:
            first.follow(primary.port), second.follow(primary.port)
            primary.client.set("k", "v")
            settle(primary, first, second)
            primary.process.kill()
            primary.process.wait()
            primary.stop = primary.kill
        places = {
            "-h replica1 -p 6379": f"-p {first.port}", "-h replica2 -p 6379": f"-p {second.port}", "replica1 6379": f"127.0.0.1 {first.port}",
        }  # fmt: skip
        offset, other_offset, promote, follow, role = PAGE["A primary is lost"]
        assert "slave_repl_offset:" in pages.run(offset, places) and "slave_repl_offset:" in pages.run(other_offset, places)
        copies = lambda: first.client.info("stats")["sync_full"]  # noqa: E731
        before = copies()
        for line in (promote, follow):
            assert pages.run(line, places).strip() == "OK"
        settle(first, second)
        assert pages.run(role, places).startswith("master")
        assert copies() == before, "the other one goes on without a copy"


def test_drill_repairs_a_damaged_log(tmp_path):
    with Server("--appendonly", "yes", "--appendfsync", "always") as server:
        client = redis.Redis(port=server.port)
        for number in range(100):
            client.set(f"key {number}", number)
        folder = tmp_path / "dunlin"
        shutil.copytree(server.folder / "appendonlydir", folder / "appendonlydir")
    [log] = folder.glob("appendonlydir/*.incr.aof")
    data = log.read_bytes()
    log.write_bytes(data[: data.index(b"key 99")])
    places = {"/var/lib/dunlin": folder}
    look, repair = PAGE["A file is damaged"]
    assert log.name in pages.run(look, places, code=1)
    pages.run(repair, places)
    pages.run(look, places)
    with Server("--appendonly", "yes", "--aof-load-truncated", "no", files=folder) as server:
        assert redis.Redis(port=server.port).dbsize() == 99


@needs_etcd
@told_again
def test_drill_recovers_a_shard():
    with Etcd() as etcd, dunlin_nodes(etcd, 2, *SYNC, replicas=1) as cluster:
        first, second = cluster.nodes
        until(lambda: in_sync(etcd), lambda: logs(cluster))
        assert answer(first, "SET", "key", "kept") in (True, b"OK")
        until(lambda: replica_value(second) == b"kept", lambda: logs(cluster))
        # Of two members one leaves the set, then the last one dies with its disk.
        (shard,) = [key.split("/")[1] for key in records(etcd) if key.startswith("shards/")]
        second.process.kill()
        second.process.wait()
        until(lambda: in_sync(etcd, 1), lambda: logs(cluster))
        gone = id_of(first)
        first.process.kill()
        first.process.wait()
        arguments = ["--save", "", "--bind", "127.0.0.1", "--port", second.port, "--dir", second.folder, "--unixsocket", second.socket]
        with open(second.log_path, "ab") as log:
            words = [DUNLIN, "server", *arguments, "--cluster-join", etcd.join(), "--cluster-replicas", "1", *SYNC]
            second.process = subprocess.Popen([str(word) for word in words], stdout=log, stderr=log)
        until(lambda: f"alive/{gone}" not in records(etcd), "the end of its presence")
        places = {"-h db1 -p 6379": f"-p {second.port}", "SHARD": shard[:8], "NODE": f"127.0.0.1:{second.port}"}
        status, look, recover = PAGE["A shard is lost"]

        def shown():
            done = subprocess.run(pages.words_of(status, places), capture_output=True, text=True, timeout=60)
            return f"waits for node {gone[:8]}" in done.stdout

        until(shown, lambda: logs(cluster))
        assert "--from" in pages.run(look, places)
        assert "leads the shard" in pages.run(recover, places)
        until(lambda: serving([second], "another"), lambda: logs(cluster))
        cluster.nodes.remove(first)
        first.kill()


@needs_etcd
@pytest.mark.skipif(not ETCDCTL, reason="there is no etcdctl (apt-get install etcd-client)")
@told_again
def test_drill_survives_the_loss_of_etcd():
    with Etcd() as etcd, dunlin_nodes(etcd, 2, replicas=1) as cluster:
        until(lambda: in_sync(etcd), lambda: logs(cluster))
        primary = cluster.nodes[0]
        assert answer(primary, "SET", "key", "kept") in (True, b"OK")
        # The backup of etcd is from before a change of its records.
        etcd.save_snapshot()
        assert answer(primary, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru") in (True, b"OK")
        etcd.empty()
        assert answer(primary, "GET", "key") == b"kept", "served on"
        etcd.restore_snapshot()
        places = {"-h db1 -p 6379": f"-p {primary.port}"}
        look, keep, status = PAGE["Etcd is lost"]
        until(lambda: "does not obey" in pages.run(look, places), lambda: logs(cluster))
        pages.run(keep, places)
        until(lambda: "does not obey" not in pages.run(look, places), lambda: logs(cluster))
        until(lambda: "waits for" not in pages.run(status, places), lambda: pages.run(status, places) + logs(cluster))
        until(lambda: in_sync(etcd), lambda: logs(cluster))
        until(lambda: answer(primary, "GET", "key") == b"kept", lambda: logs(cluster))
        assert "allkeys-lru" in str(answer(cluster.nodes[1], "CONFIG", "GET", "maxmemory-policy"))
