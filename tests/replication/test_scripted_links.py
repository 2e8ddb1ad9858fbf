"""Links whose other end is a script: what a replica or a primary may say at any time, and what comes of it."""

import socket
import threading
import time

import pytest
import redis

from harness import DUNLIN
from links import FakePrimary, Node, has_link, raw, settle, until

pytestmark = pytest.mark.skipif(DUNLIN is None, reason="about Dunlin")


def packed(*words):
    return b"".join(redis.connection.Connection().pack_command(*words))


class ScriptedReplica:
    """A replica that says nothing by itself."""

    def __init__(self, primary, *capabilities):
        self.socket = socket.create_connection(("127.0.0.1", primary.port), timeout=60)
        self.file = self.socket.makefile("rb")
        assert self.ask("PING") == b"+PONG"
        for capability in capabilities:
            assert self.ask("REPLCONF", "capa", capability) == b"+OK"

    def say(self, *words):
        self.socket.sendall(packed(*words))

    def line(self):
        line = self.file.readline()
        assert line.endswith(b"\n"), "the link is closed"
        return line.rstrip(b"\r\n")

    def ask(self, *words):
        self.say(*words)
        return self.line()

    def synchronize(self):
        """Takes a snapshot; its offset."""
        self.say("PSYNC", "?", -1)
        reply = b""
        while not reply:
            reply = self.line()
        word, _, offset = reply.split(b" ")
        assert word == b"+FULLRESYNC"
        head = b""
        while not head:
            head = self.line()
        if not head.startswith(b"$EOF:"):
            self.file.read(int(head[1:]))
            return int(offset)
        mark, snapshot = head[5:], b""
        while not snapshot.endswith(mark):
            snapshot += self.file.read(1)
        return int(offset)

    def await_command(self, *wanted):
        """Reads the stream up to a command; the bytes up to behind it."""
        count = 0
        while True:
            head = self.file.readline()
            assert head.startswith(b"*"), head
            count += len(head)
            words = []
            for _ in range(int(head[1:])):
                size = self.file.readline()
                words.append(self.file.read(int(size[1:]) + 2)[:-2])
                count += len(size) + len(words[-1]) + 2
            if words[: len(wanted)] == [word.encode() for word in wanted]:
                return count

    def acknowledge(self, offset):
        self.say("REPLCONF", "ACK", offset)

    def go_online(self, primary, offset):
        """Acknowledges its snapshot, which is heard only where all of that has been sent."""

        def is_online():
            self.acknowledge(offset)
            return primary.info()["slave0"]["state"] == "online"

        until(is_online, "the first acknowledgement")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()


@pytest.mark.parametrize("capabilities", [("eof", "psync2"), ("psync2",)], ids=["by a mark", "by its length"])
def test_replica_that_loads_for_longer_than_repl_timeout_is_kept(capabilities):
    # A machine that stands still for as long as the first one is given time for another.
    assert any(is_kept_while_it_loads(capabilities, timeout_s) for timeout_s in (1, 10))


def is_kept_while_it_loads(capabilities, timeout_s):
    """Whether a replica has its link after four times of repl-timeout in which it has said nothing but that it loads."""
    with Node(DUNLIN, "--repl-timeout", timeout_s) as primary:
        with ScriptedReplica(primary, *capabilities) as replica:
            offset = replica.synchronize()
            # Replicas send empty lines while they load.
            for _ in range(20):
                try:
                    replica.socket.sendall(b"\n")
                except OSError:
                    return False
                time.sleep(timeout_s / 5)
            primary.call("CONFIG", "SET", "repl-timeout", 600)
            try:
                replica.go_online(primary, offset)
                primary.call("SET", "k", 1)
                replica.await_command("SET", "k", "1")
            except (OSError, KeyError, AssertionError):
                # The link is closed.
                return False
            return True


def test_replica_that_asks_again_has_what_it_asked_for():
    with Node(DUNLIN) as primary:
        with ScriptedReplica(primary, "eof", "psync2") as replica:
            replica.go_online(primary, replica.synchronize())
            replica.say("PSYNC", "?", -1)
            replica.say("SYNC")
            for n in range(20):
                primary.call("SET", "k", n)
                replica.await_command("SET", "k", str(n))
            assert primary.info("stats")["sync_full"] == 1


def test_shutdown_ends_when_the_replicas_have_all():
    # No PING comes in front of the question.
    with Node(DUNLIN, "--save", "", "--shutdown-timeout", "60", "--repl-ping-replica-period", "36000") as primary:
        with ScriptedReplica(primary, "eof", "psync2") as replica:
            offset = replica.synchronize()
            replica.go_online(primary, offset)
            primary.call("SET", "k", 1)
            offset += replica.await_command("SET", "k", "1")
            primary.process.terminate()
            asked = offset + replica.await_command("REPLCONF", "GETACK")
            # All of it is in the socket, and may be lost with it.
            time.sleep(1)
            assert primary.process.poll() is None
            # Redis answers with what is in front of the question.
            replica.acknowledge(offset if asked % 2 else asked)
            assert primary.process.wait(30) == 0


def test_wait_knows_of_a_shorter_copy():
    with Node(DUNLIN, "--threads", "2") as first, Node(DUNLIN) as second, Node(DUNLIN) as third:
        third.follow(first.port)
        settle(first, third)
        for n in range(100):
            first.call("SET", "long", "x" * 10_000)
        third.call("REPLICAOF", "NO", "ONE")
        first.follow(second.port)
        settle(second, first)
        first.call("REPLICAOF", "NO", "ONE")
        third.follow(first.port)
        settle(first, third)
        until(lambda: first.info()["slave0"]["state"] == "online", "an acknowledgement")
        for _ in range(4):
            # On either worker, also where nothing was written since.
            with raw(first.port) as client:
                assert client.execute_command("WAIT", 1, 30_000) == 1


def test_wait_counts_from_what_another_worker_has_served():
    with Node(DUNLIN, "--threads", "2") as primary, ScriptedReplica(primary, "eof", "psync2") as replica:
        offset = replica.synchronize()
        replica.go_online(primary, offset)
        waiting = [redis.Redis(port=primary.port, protocol=2, socket_timeout=60) for _ in range(4)]
        # Each has a connection, and its worker has recorded something.
        for n, client in enumerate(waiting):
            client.set(f"of {n}", 1)
        offset += sum(replica.await_command("SET", f"of {n}") for n in range(len(waiting)))
        replica.acknowledge(offset)
        until(lambda: primary.info()["slave0"]["offset"] == offset, "the acknowledgement")
        got = {}

        def move(n, client):
            with client.client() as connection:
                connection.execute_command("BLMOVE", f"from {n}", "to", "LEFT", "RIGHT", 0)
                got[n] = connection.execute_command("WAIT", 1, 200)

        threads = [threading.Thread(target=move, args=pair) for pair in enumerate(waiting)]
        for thread in threads:
            thread.start()
        until(lambda: primary.info("clients")["blocked_clients"] == len(waiting), "clients that wait")
        for n in range(len(waiting)):
            primary.call("RPUSH", f"from {n}", n)
        for thread in threads:
            thread.join()
        assert got == dict.fromkeys(range(len(waiting)), 0), "the replica has acknowledged none of them"
        for client in waiting:
            client.close()


def test_block_that_cannot_be_applied_leaves_nothing():
    with Node(DUNLIN) as empty, Node(DUNLIN) as replica, Node(DUNLIN) as other:
        empty.call("SAVE")
        primary = FakePrimary((empty.folder / "dump.rdb").read_bytes())
        replica.follow(primary.port)
        until(lambda: primary.link and has_link(replica), "a link")
        block = [("MULTI",), ("SET", "half", 1), ("SELECT", 20), ("SET", "other half", 1), ("EXEC",)]
        primary.link.sendall(b"".join(packed(*words) for words in block))
        error = until(lambda: replica.info().get("master_link_error"), "the end of the link")
        assert error == "it selects a database that there is not here; set databases above 16"
        assert replica.call("DBSIZE") == 0
        # Its bytes are no part of what comes later, which would make all offsets wrong.
        other.call("SET", "k", 1)
        replica.follow(other.port)
        settle(other, replica)
        other.call("SET", "k", 2)
        settle(other, replica)


def test_replica_does_not_acknowledge_what_it_ran_as_a_primary():
    directives = ("--min-sync-replicas", "1", "--sync-replicas-missing", "wait", "--threads", "2")
    with Node(DUNLIN, *directives) as primary, Node(DUNLIN) as other, raw(primary.port) as operator:
        operator.execute_command("CLIENT", "DURABILITY", "async")
        waiting = [primary.connect() for _ in range(4)]
        for n, client in enumerate(waiting):
            client.sendall(packed("BLPOP", f"list {n}", 0))
        until(lambda: primary.info("clients")["blocked_clients"] == len(waiting), "clients that wait")
        # They are served by the primary, and read their replies from a replica.
        pushes = [packed("RPUSH", f"list {n}", n) for n in range(len(waiting))]
        with primary.connect() as pushing:
            pushing.sendall(b"".join(pushes) + packed("REPLICAOF", "127.0.0.1", other.port))
            until(lambda: primary.info().get("master_link_status") == "up", "a link")
        for client in waiting:
            assert client.recv(1) == b"", "it was acknowledged, and is thrown away"
            client.close()
