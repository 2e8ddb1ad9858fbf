"""Links under faults: servers killed at each step of a handshake and of a transfer, one-way cuts, full disks, many replicas."""

import os
import pathlib
import random
import resource
import signal
import socket
import subprocess
import tempfile
import threading
import time

import pytest
import redis

from harness import DUNLIN, ORACLE
from links import Link, Node, has_link, raw, settle, until

# Bytes that the primary has sent when something happens: in each reply of the handshake, around the reply to PSYNC, in the
# head of the snapshot, in its middle, at its end.
PLACES = [1, 7, 8, 12, 20, 30, 60, 75, 90, 120, 150, 1_000, 50_000, 400_000, 900_000]


# How a replica takes a snapshot: into a file first, beside its former data, or directly, without data.
WAYS = ["spooled", "direct"]


def former(replica, way):
    """The data that a replica has before: with them it does not load directly."""
    if way == "spooled":
        replica.call("SET", "former", 1)


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


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", PLACES)
def test_link_that_is_cut_at_any_place_comes_to_the_same(place, way):
    with Node(DUNLIN) as primary, Node(DUNLIN) as replica:
        fill(primary)
        former(replica, way)
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


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", PLACES)
def test_replica_that_is_killed_at_any_place_starts_whole(place, way):
    log = ["--appendonly", "yes"]
    with Node(DUNLIN) as primary:
        fill(primary)
        replica = Node(DUNLIN, *log)
        try:
            former(replica, way)
            with Trap(primary.port, place, replica.process.kill) as link:
                with pytest.raises(redis.RedisError):
                    replica.follow(link.port)
                    until(lambda: replica.call("PING") is None, "the end")
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


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", PLACES[::3])
def test_primary_that_is_killed_at_any_place_is_found_again(place, way):
    log = ["--appendonly", "yes"]
    with Node(DUNLIN) as replica:
        former(replica, way)
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


class Fake:
    """A primary that answers as told: it sends a snapshot, or a part of one, and what comes then."""

    def __init__(self, *parts):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.parts, self.asked, self.held = parts, [], []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.held.append(client)
            threading.Thread(target=self._answer, args=[client], daemon=True).start()

    def _answer(self, client):
        lines = client.makefile("rb")
        try:
            while line := lines.readline():
                words = []
                if line.startswith(b"*"):
                    for _ in range(int(line[1:])):
                        words.append(lines.read(int(lines.readline()[1:]) + 2)[:-2])
                if not words or words[:2] == [b"REPLCONF", b"ACK"]:
                    continue
                if words[0] == b"PSYNC":
                    self.asked.append(words)
                    client.sendall(b"+FULLRESYNC " + b"a" * 40 + b" 100\r\n")
                    for part in self.parts:
                        part(client) if callable(part) else client.sendall(part)
                else:
                    client.sendall(b"+PONG\r\n" if words[0] == b"PING" else b"+OK\r\n")
        except OSError:
            pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()
        for client in self.held:
            client.close()


def snapshot(keys=3000):
    """The bytes of a snapshot."""
    with Node(DUNLIN) as node:
        node.call("DEBUG", "POPULATE", keys, "key", 200)
        node.call("SAVE")
        return (node.folder / "dump.rdb").read_bytes()


MARK = b"m" * 40


def end(client):
    client.shutdown(socket.SHUT_RDWR)


def promote(replica):
    """Promotes a replica, unless it loads."""
    try:
        return replica.call("REPLICAOF", "NO", "ONE")
    except redis.exceptions.BusyLoadingError:
        return None


def test_direct_load_that_is_cut_leaves_nothing_and_begins_again():
    body = snapshot()
    for head in (b"$EOF:" + MARK + b"\r\n", b"$%d\r\n" % (len(body) + 1)):
        for place in (0, 9, 100, len(body) // 2, len(body) - 4, len(body)):
            with Node(DUNLIN, "--appendonly", "yes") as replica, Fake(head, body[:place], end) as fake:
                replica.follow(fake.port)
                until(lambda: len(fake.asked) >= 2, "another attempt")
                assert all(words[1] == b"?" for words in fake.asked)
                assert replica.info()["master_link_status"] == "down"
                until(lambda: promote(replica), "the time between two loads")
                until(lambda: replica.info()["role"] == "master", "the promotion")
                assert replica.call("DBSIZE") == 0
                # It is part of no history: others that come for the primary's have to begin anew.
                assert replica.info()["master_replid"] != "a" * 40
                assert replica.info()["master_replid2"] != "a" * 40


def test_replicaof_is_answered_though_a_load_has_begun_by_then():
    turn = (
        b"EVAL \"local now = function() local t = redis.call('time') return t[1] * 1000000 + t[2] end "
        b"local e = now() + 5e5 repeat until now() > e\" 0\r\n"
    )
    body = snapshot()
    with Node(DUNLIN, "--threads", "2") as replica, Fake(b"$EOF:" + MARK + b"\r\n", body[: len(body) // 2]) as fake:
        with replica.connect() as follower, replica.connect() as first, replica.connect() as second:
            # What comes during the first script runs in order, and the second lasts until the load has begun.
            first.sendall(turn)
            time.sleep(0.02)
            follower.sendall(b"REPLICAOF 127.0.0.1 %d\r\n" % fake.port)
            time.sleep(0.02)
            second.sendall(turn)
            assert follower.recv(100) == b"+OK\r\n"


def test_direct_load_takes_no_snapshot_before_its_mark():
    body = snapshot()
    with Node(DUNLIN) as replica, Fake(b"$EOF:" + MARK + b"\r\n", body, MARK[:39]) as fake:
        replica.follow(fake.port)
        until(lambda: replica.info("persistence")["loading"] == 1, "the load")
        with pytest.raises(redis.exceptions.BusyLoadingError):
            replica.client.get("key:1")
        fake.parts = [b"$EOF:" + MARK + b"\r\n", body, MARK]
        end(fake.held[0])
        until(lambda: has_link(replica), "a link")
        assert replica.call("DBSIZE") == 3000
        assert len(fake.asked) == 2


def test_direct_load_of_a_length_goes_on_with_the_bytes_behind_it():
    body, behind = snapshot(), b"*3\r\n$3\r\nSET\r\n$6\r\nbehind\r\n$1\r\n1\r\n" * 20
    with Node(DUNLIN) as replica, Fake(b"$%d\r\n" % len(body) + body + behind) as fake:
        replica.follow(fake.port)
        until(lambda: has_link(replica), "a link")
        until(lambda: replica.call("GET", "behind") == b"1", "the stream")
        until(lambda: replica.info()["slave_repl_offset"] == 100 + len(behind), "all of it")
        assert replica.call("DBSIZE") == 3001


def in_frames(*frames):
    return b"$FRAMES\r\n" + b"".join(
        kind + len(bytes).to_bytes(4, "big") + bytes for kind, bytes in frames
    )


@pytest.mark.parametrize("way", WAYS)
def test_stream_beside_a_snapshot_is_applied_behind_it(way):
    body = snapshot()
    # More than is kept in memory.
    writes = [b"*3\r\n$6\r\nAPPEND\r\n$6\r\nbeside\r\n$5\r\n%05d\r\n" % n for n in range(40_000)]
    stream = b"".join(writes)
    assert len(stream) > 1_500_000
    half, third = len(body) // 2, len(stream) // 3
    sent = in_frames(
        (b"S", body[:half]), (b"L", stream[:third]), (b"S", b""), (b"S", body[half:]), (b"L", stream[third : 2 * third]), (b"E", b"")
    )
    with Node(DUNLIN) as replica, Fake(sent + stream[2 * third :]) as fake:
        former(replica, way)
        replica.follow(fake.port)
        until(lambda: has_link(replica), "a link")
        until(lambda: replica.info()["slave_repl_offset"] == 100 + len(stream), "the stream")
        assert replica.call("GET", "beside") == b"".join(b"%05d" % n for n in range(40_000))
        assert replica.call("DBSIZE") == 3001
        assert len(fake.asked) == 1


def test_frames_that_make_no_sense_end_the_link():
    body = snapshot()
    for wrong in ((b"X", b"1"), (b"E", b"1")):
        with Node(DUNLIN) as replica, Fake(in_frames((b"S", body[:1000]), wrong)) as fake:
            replica.follow(fake.port)
            until(lambda: len(fake.asked) >= 2, "another attempt")
            assert "frames make no sense" in replica.log()


def test_stream_goes_to_the_replica_while_it_loads():
    """What is written during a full resynchronisation does not wait in the primary's memory."""
    # The snapshot takes longer than the writes, however busy the machine is.
    with Node(DUNLIN, "--rdb-key-save-delay", 100) as primary, Node(DUNLIN) as replica:
        primary.call("DEBUG", "POPULATE", 200_000, "key", 100)
        replica.follow(primary.port)
        until(lambda: replica.info("persistence")["loading"] == 1, "the load")
        before = primary.info()["master_repl_offset"]
        written = waiting = 0
        while written < 20_000_000 or waiting > written / 2:
            assert primary.info()["slave0"]["state"] != "online", f"{waiting} of {written} bytes wait until the end"
            with primary.client.pipeline(transaction=False) as pipe:
                for n in range(100):
                    pipe.set(f"large:{n}", b"x" * 10_000)
                pipe.execute()
            written = primary.info()["master_repl_offset"] - before
            waiting = primary.info("memory")["mem_replication_backlog"]
            if waiting > 50_000_000:
                # The limit of a replica's output is not to be reached, however fast this writes.
                time.sleep(0.05)
        primary.call("CONFIG", "SET", "rdb-key-save-delay", 0)
        settle(primary, replica)


def test_replica_with_a_full_disk_obeys():
    """The limit on the size of files stands in for a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with Node(DUNLIN) as primary, Node(DUNLIN, "--appendonly", "yes", "--appendfsync", "always") as replica:
        replica.follow(primary.port)
        settle(primary, replica)
        resource.prlimit(replica.process.pid, resource.RLIMIT_FSIZE, (1 << 16, resource.RLIM_INFINITY))
        primary.client.config_set("repl-backlog-size", 200_000_000)
        for n in range(100):
            primary.client.set(f"large:{n}", b"x" * 1_000_000)
        # The log takes nothing, and so much waits for it in memory.
        until(lambda: replica.info("persistence")["aof_last_write_status"] == "err", "the failure")
        offset = lambda: replica.info()["slave_repl_offset"]  # noqa: E731
        until(lambda: 30_000_000 < offset() == (time.sleep(0.5) or offset()), "what fits into memory")
        assert offset() < 100_000_000
        replica.call("REPLICAOF", "NO", "ONE")
        assert replica.call("ROLE")[0] == b"master"
        resource.prlimit(replica.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        until(lambda: replica.info("persistence")["aof_last_write_status"] == "ok", "room")


def test_direct_load_of_a_damaged_snapshot_stops_the_link():
    body = bytearray(snapshot())
    body[-1] ^= 1
    with Node(DUNLIN) as replica, Fake(b"$EOF:" + MARK + b"\r\n", bytes(body), MARK) as fake:
        replica.follow(fake.port)
        until(lambda: "master_link_error" in replica.info(), "the end of the link")
        assert "checksum" in replica.info()["master_link_error"]
        assert replica.call("DBSIZE") == 0
        assert len(fake.asked) == 1


def test_direct_load_ends_with_the_server_and_with_a_primary_that_is_silent():
    body = snapshot()
    half = [b"$EOF:" + MARK + b"\r\n", body[: len(body) // 2]]
    with Node(DUNLIN, "--repl-timeout", 2) as replica, Fake(*half) as fake:
        replica.follow(fake.port)
        until(lambda: replica.info("persistence")["loading"] == 1, "the load")
        # Where this one is over by now, as on a machine that has stood still, the next ones are like it.
        until(lambda: replica.info()["master_sync_in_progress"] == 1, "the load in INFO replication")
        until(lambda: len(fake.asked) >= 2, "another attempt")
        until(lambda: replica.info("persistence")["loading"] == 1, "the next load")
        # The context ends the server in the middle of it.


@pytest.mark.parametrize(("way", "is_direct"), [("disabled", False), ("on-empty-db", False), ("swapdb", False), ("flush-before-load", True)])
def test_data_that_are_there_are_served_until_the_snapshot_is_whole(way, is_direct):
    body = snapshot()
    go_on = threading.Event()
    parts = [b"$%d\r\n" % len(body), body[:-1000], lambda _: go_on.wait(60), body[-1000:]]
    with Node(DUNLIN, "--repl-diskless-load", way) as replica, Fake(*parts) as fake:
        replica.call("SET", "former", 1)
        replica.follow(fake.port)
        until(lambda: fake.asked, "the snapshot")
        if is_direct:
            until(lambda: replica.info("persistence")["loading"] == 1, "the load")
        else:
            assert replica.call("GET", "former") == b"1"
        go_on.set()
        until(lambda: has_link(replica), "a link")
        assert (replica.call("DBSIZE"), replica.call("EXISTS", "former")) == (3000, 0)


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
def test_link_cut_one_way_ends_and_heals(deaf):
    with Node(DUNLIN, "--repl-timeout", 2, "--repl-ping-replica-period", 1) as primary:
        with Node(DUNLIN, "--repl-timeout", 2) as replica, OneWay(primary.port) as link:
            replica.follow(link.port)
            settle(primary, replica)
            full = primary.info("stats")["sync_full"]
            link.silent = deaf
            # Counted after that: the next connection is not one whose stream has lost something.
            made = link.made
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


def test_replicas_that_come_at_once_share_few_snapshots():
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
                made = link.made
                link.cut()
                # The replica has seen the end of the one before by then.
                until(lambda: link.made > made, "another connection")
        finally:
            stop.set()
            for writer in writers:
                writer.join()
        settle(primary, replica)
        stats = primary.info("stats")
        assert stats["sync_full"] == full
        assert stats["sync_partial_ok"] >= 20
