"""Links under faults: servers killed at each step of a handshake and of a transfer, one-way cuts, full disks, many replicas."""

import os
import pathlib
import random
import socket
import subprocess
import tempfile
import threading

import pytest
import redis

from harness import DUNLIN, ORACLE
from links import Link, Node, has_link, raw, settle, until

# Bytes that the primary has sent when something happens: in each reply of the handshake, around the reply to PSYNC, in the
# head of the snapshot, in its middle, at its end.
PLACES = [1, 7, 8, 12, 20, 30, 60, 75, 90, 120, 150, 1_000, 50_000, 400_000, 900_000]


def fill(node, count=300, size=3000):
    rng = random.Random(5)
    with node.client.pipeline(transaction=False) as pipe:
        for n in range(count):
            pipe.set(f"string:{n}", rng.randbytes(size))
            pipe.rpush(f"list:{n % 20}", *range(n % 50 + 1))
            pipe.hset(f"hash:{n % 20}", f"f{n}", n)
        pipe.execute()


class Trap(Link):
    """Passes so many bytes of the primary's on, and then calls something, once."""

    def __init__(self, port, place, spring):
        self.place, self.spring, self.passed = place, spring, 0
        super().__init__(port)

    def _pump(self, one, other):
        from_primary = any(one is server for _, server in self.pairs)
        try:
            while data := one.recv(4096):
                if from_primary and self.spring and self.passed + len(data) >= self.place:
                    other.sendall(data[: self.place - self.passed])
                    spring, self.spring = self.spring, None
                    spring()
                    break
                self.passed += len(data) if from_primary else 0
                other.sendall(data)
        except OSError:
            pass
        for end in (one, other):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def load(node, stop):
    client, n = raw(node.port), 0
    try:
        while not stop.is_set():
            n += 1
            client.execute_command("INCRBY", f"counter:{n % 7}", n)
            client.execute_command("APPEND", "text", n)
    except redis.RedisError:
        pass


@pytest.mark.parametrize("place", PLACES)
def test_link_that_is_cut_at_any_place_comes_to_the_same(place):
    with Node(DUNLIN) as primary, Node(DUNLIN) as replica:
        fill(primary)
        replica.call("SET", "former", 1)
        sprung = threading.Event()
        stop = threading.Event()
        writer = threading.Thread(target=load, args=[primary, stop])
        with Trap(primary.port, place, sprung.set) as link:
            writer.start()
            try:
                replica.follow(link.port)
                until(sprung.is_set, "the place")
                until(lambda: has_link(replica), "a link")
            finally:
                stop.set()
                writer.join()
            settle(primary, replica)


@pytest.mark.parametrize("place", PLACES)
def test_replica_that_is_killed_at_any_place_starts_whole(place):
    log = ["--appendonly", "yes"]
    with Node(DUNLIN) as primary:
        fill(primary)
        replica = Node(DUNLIN, *log)
        try:
            replica.call("SET", "former", 1)
            with Trap(primary.port, place, replica.process.kill) as link:
                with pytest.raises(redis.RedisError):
                    replica.follow(link.port)
                    until(lambda: replica.call("PING") is None, "the end", deadline_s=30)
                replica.process.wait()
            # What it has is its former data, all of the new, or nothing: never a part.
            with Node(DUNLIN, *log, files=replica.folder) as again:
                keys = again.call("DBSIZE")
                assert keys in (0, 1, primary.call("DBSIZE"))
                again.follow(primary.port)
                settle(primary, again)
        finally:
            replica.client.close()
            replica.kill()


@pytest.mark.parametrize("place", PLACES[::3])
def test_primary_that_is_killed_at_any_place_is_found_again(place):
    log = ["--appendonly", "yes"]
    with Node(DUNLIN) as replica:
        primary = Node(DUNLIN, *log)
        try:
            fill(primary)
            until(lambda: primary.info("persistence")["aof_buffer_length"] == 0, "a written log")
            with Trap(primary.port, place, primary.process.kill) as link:
                replica.follow(link.port)
                primary.process.wait(60)
                with Node(DUNLIN, *log, files=primary.folder) as again:
                    link.target = again.port
                    until(lambda: has_link(replica), "a link")
                    again.call("SET", "later", 1)
                    settle(again, replica)
        finally:
            primary.client.close()
            primary.kill()


class OneWay(Link):
    """Drops what goes one way, without closing anything."""

    silent = None

    def _pump(self, one, other):
        from_primary = any(one is server for _, server in self.pairs)
        try:
            while data := one.recv(4096):
                if self.silent != ("replica" if from_primary else "primary"):
                    other.sendall(data)
        except OSError:
            pass
        for end in (one, other):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


@pytest.mark.parametrize("deaf", ["primary", "replica"])
def test_one_way_cut_ends_the_link_and_heals(deaf):
    with Node(DUNLIN, "--repl-timeout", 2, "--repl-ping-replica-period", 1) as primary:
        with Node(DUNLIN, "--repl-timeout", 2) as replica, OneWay(primary.port) as link:
            replica.follow(link.port)
            settle(primary, replica)
            full, made = primary.info("stats")["sync_full"], link.made
            link.silent = deaf
            primary.call("SET", "unheard", 1)
            until(lambda: link.made > made, "the end of the link")
            link.silent = None
            settle(primary, replica)
            assert primary.info("stats")["sync_full"] == full


def test_full_disk_of_the_replica_keeps_what_it_had():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dunlin-full-"))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        os.rmdir(folder)
        pytest.skip("a small file system needs the right to mount one")
    try:
        with Node(DUNLIN) as primary, Node(DUNLIN, "--enable-protected-configs", "yes") as replica:
            fill(primary)
            replica.call("SET", "former", 1)
            replica.call("CONFIG", "SET", "dir", str(folder))
            replica.follow(primary.port)
            until(lambda: "the snapshot cannot be kept" in replica.log(), "the full disk")
            assert replica.call("GET", "former") == b"1"
            replica.call("CONFIG", "SET", "dir", str(replica.folder))
            settle(primary, replica)
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
        os.rmdir(folder)


def test_chain_of_four_has_the_same_bytes_and_goes_on_without_its_head():
    with Node(DUNLIN) as one, Node(DUNLIN) as two, Node(DUNLIN) as three, Node(DUNLIN) as four:
        fill(one)
        chain = [one, two, three, four]
        for above, below in zip(chain, chain[1:]):
            below.follow(above.port)
            until(lambda: has_link(below), "a link")
        stop = threading.Event()
        writer = threading.Thread(target=load, args=[one, stop])
        writer.start()
        try:
            until(lambda: four.call("GET", "counter:3"), "writes at the end of the chain")
        finally:
            stop.set()
            writer.join()
        settle(*chain)
        assert len({node.info()["master_replid"] for node in chain}) == 1
        full = [node.info("stats")["sync_full"] for node in chain]
        one.process.kill()
        one.process.wait()
        one.stop = lambda: one.kill()
        two.call("REPLICAOF", "NO", "ONE")
        two.call("SET", "of the second", 1)
        settle(two, three, four)
        assert [node.info("stats")["sync_full"] for node in chain[1:]] == full[1:]


def test_ten_replicas_at_once_share_few_snapshots():
    with Node(DUNLIN) as primary:
        fill(primary)
        stop = threading.Event()
        writer = threading.Thread(target=load, args=[primary, stop])
        replicas = []
        writer.start()
        try:
            replicas = [Node(DUNLIN if n % 2 else ORACLE) for n in range(10)]
            for replica in replicas:
                replica.follow(primary.port)
            for replica in replicas:
                until(lambda: has_link(replica), "a link")
            stop.set()
            writer.join()
            settle(primary, *replicas)
            assert primary.info("stats")["sync_full"] == 10, "no replica needed a second one"
        finally:
            stop.set()
            for replica in replicas:
                replica.stop()


def test_primary_that_is_full_of_writes_feeds_a_flapping_link():
    with Node(DUNLIN) as primary, Node(DUNLIN) as replica, Link(primary.port) as link:
        primary.call("CONFIG", "SET", "repl-backlog-size", "64mb")
        replica.follow(link.port)
        settle(primary, replica)
        full = primary.info("stats")["sync_full"]
        stop = threading.Event()
        writers = [threading.Thread(target=load, args=[primary, stop]) for _ in range(3)]
        for writer in writers:
            writer.start()
        try:
            for _ in range(20):
                until(lambda: has_link(replica), "a link")
                link.cut()
                until(lambda: not has_link(replica), "the loss of the link")
        finally:
            stop.set()
            for writer in writers:
                writer.join()
        settle(primary, replica)
        stats = primary.info("stats")
        assert stats["sync_full"] == full
        assert stats["sync_partial_ok"] >= 20
