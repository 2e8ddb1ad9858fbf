"""docs/upgrade.md: its commands, as they stand there, from the program that DUNLIN_PREVIOUS names to the one under test, and back. Without
DUNLIN_PREVIOUS both are the same, so only the steps are tested."""

import os
import re
import subprocess
import threading

import pytest
import redis

import pages
from etcd_cluster import ETCD, Etcd, dunlin_nodes, told_again
from failovers import in_sync, logs
from harness import DUNLIN, Server, is_redis
from links import Node, settle, until

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="upgrades of Dunlin")
OLD = os.environ.get("DUNLIN_PREVIOUS", DUNLIN)
PAGE = pages.blocks(pages.page("upgrade.md"))


def words_of_server(line, places):
    words = pages.words_of(line, places)
    assert words[1:4] == ["server", "--port", "6379"], line
    return words[4:]


def await_end(server):
    assert server.process.wait(60) == 0, server.log()


def again(server, line, places, program):
    """The next life of a server, at the same port, with a line of the page."""
    words = ["--port", server.port, "--bind", "127.0.0.1", "--unixsocket", server.socket, "--enable-debug-command", "yes", *words_of_server(line, places)]
    with open(server.log_path, "ab") as log:
        server.process = subprocess.Popen([program, "server", *map(str, words)], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    server._await_ping()


def fill(client):
    for number in range(500):
        client.set(f"text {number}", "x" * number)
    client.rpush("list", *range(300))
    client.hset("hash", mapping={str(number): number for number in range(200)})
    client.zadd("sorted", {str(number): number for number in range(200)})
    client.xadd("stream", {"a": 1}, id="1-1")
    client.set("expiring", 1, ex=100_000)


def test_upgrade_of_one_server_and_back(tmp_path):
    stop, start, ask = PAGE["A single server"]
    debug = ("--enable-debug-command", "yes", "--appendonly", "yes")
    with Server(*debug, program=OLD) as server:
        places = {"-h db1 -p 6379": f"-p {server.port}", "/var/lib/dunlin": server.folder}
        client = redis.Redis(port=server.port, protocol=2)
        fill(client)
        digest = client.execute_command("DEBUG", "DIGEST")
        for program in (DUNLIN, OLD, DUNLIN):
            pages.run(stop, places)
            await_end(server)
            again(server, start, places, program)
            assert pages.run(ask, places).strip() == "PONG"
            assert client.execute_command("DEBUG", "DIGEST") == digest
            client.set("later", program)
            digest = client.execute_command("DEBUG", "DIGEST")
        pages.run(stop, places)
        await_end(server)
        convert, check = PAGE["Back"]
        places["older.rdb"] = tmp_path / "older.rdb"
        pages.run(convert, places, more=["--force"])
        assert (tmp_path / "older.rdb").read_bytes().startswith(b"REDIS0010")
        assert "good" in pages.run(check, places)


class Writer(threading.Thread):
    """Increments a key wherever a server takes writes, and keeps what was acknowledged."""

    def __init__(self, connect):
        super().__init__(daemon=True)
        self.connect, self.acknowledged, self.unknown, self.is_over = connect, 0, 0, threading.Event()
        self.start()

    def run(self):
        clients = self.connect()
        while not self.is_over.is_set():
            try:
                clients[0].incr("counter")
                self.acknowledged += 1
            except (redis.ReadOnlyError, redis.BusyLoadingError):
                clients.append(clients.pop(0))
            except redis.ResponseError as error:
                if "READONLY" not in str(error) and "UNBLOCKED" not in str(error):
                    raise
            except (redis.RedisError, OSError):
                self.unknown += 1
                clients.append(clients.pop(0))

    def goes_on(self):
        before = self.acknowledged
        until(lambda: self.acknowledged > before + 50, "writes")

    def end(self, value):
        self.is_over.set()
        self.join()
        assert self.acknowledged <= value() <= self.acknowledged + self.unknown


def test_upgrade_of_a_primary_with_a_replica_under_load():
    stop, start, look, fail_over, role, stop_old, start_old = PAGE["A primary with replicas"]
    with Node(OLD, "--appendonly", "yes") as primary, Node(OLD, "--appendonly", "yes") as replica:
        replica.follow(primary.port)
        fill(primary.client)
        settle(primary, replica)
        connect = lambda: [redis.Redis(port=node.port, socket_timeout=30, retry=None) for node in (primary, replica)]  # noqa: E731
        writer = Writer(connect)
        writer.goes_on()
        places = {
            "-h db1 -p 6379": f"-p {primary.port}", "-h replica1 -p 6379": f"-p {replica.port}", "replica1 6379": f"127.0.0.1 {replica.port}",
            "db1 6379": f"127.0.0.1 {primary.port}",
        }  # fmt: skip
        pages.run(stop, places)
        await_end(replica)
        again(replica, start, {**places, "/var/lib/dunlin": replica.folder}, DUNLIN)
        until(lambda: "master_link_status:up" in pages.run(look, places), replica.log)
        until(lambda: primary.info().get("slave0", {}).get("state") == "online", primary.log)
        pages.run(fail_over, places)
        until(lambda: pages.run(role, places).startswith("master"), replica.log)
        writer.goes_on()
        until(lambda: primary.info()["role"] == "slave", primary.log)
        pages.run(stop_old, places)
        await_end(primary)
        again(primary, start_old, {**places, "/var/lib/dunlin": primary.folder}, DUNLIN)
        until(lambda: primary.info()["master_link_status"] == "up", primary.log)
        writer.goes_on()
        writer.end(lambda: int(replica.client.get("counter")))
        settle(replica, primary)


@pytest.mark.skipif(not ETCD, reason="there is no etcd (apt-get install etcd-server)")
@told_again
def test_upgrade_of_a_cluster_under_load():
    look, stop, start, status = PAGE["A cluster"]
    with Etcd() as etcd, dunlin_nodes(etcd, 2, "--appendonly", "yes", "--cluster-durability", "sync", replicas=1) as cluster:
        own = ["--cluster-replicas", "1", "--threads", "2", "--appendonly", "yes"]
        for node in cluster.nodes:
            # From the tests' own first life to the program before.
            node.client = redis.Redis(port=node.port, socket_timeout=30, protocol=2)
        until(lambda: in_sync(etcd), lambda: logs(cluster))
        connect = lambda: [redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port, socket_timeout=30)]  # noqa: E731

        def roll(program):
            for node in cluster.nodes:
                places = {"-h db1 -p 6379": f"-p {node.port}", "/var/lib/dunlin": node.folder, "etcd://ETCD:2379/orders": etcd.join()}
                assert "online" in pages.run(look, places)
                pages.run(stop, places)
                await_end(node)
                again(node, start + " " + " ".join(own), places, program)
                until(lambda: in_sync(etcd), lambda: logs(cluster))
                # They stand on one machine here, which is all that may be said.
                until(lambda places=places: "waits for" not in pages.run(status, places), lambda: logs(cluster))

        roll(OLD)
        writer = Writer(connect)
        writer.goes_on()
        roll(DUNLIN)
        writer.goes_on()
        roll(OLD)
        writer.goes_on()
        writer.end(lambda: int(connect()[0].get("counter")))
        assert not re.search("panicked at", logs(cluster))
