"""Who waits for what, and what is answered: each test is a row of the table in docs/durability.md."""

import contextlib
import select

import pytest

from disks import Mortal, await_that, disk, failing, library  # noqa: F401
from harness import DUNLIN, Server, is_redis, suspend
from log_files import Client

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="Redis ends where a write of the log fails")

FULL = "-MISCONF Errors writing to the AOF file: No space left on device"
FEW = "-NOREPLICAS Not enough good replicas to write."


def clients(server, count):
    made = [Client(server) for _ in range(count)]
    for client in made:
        client.socket.settimeout(60)
    return made


def has_reply(client):
    return bool(select.select([client.socket], [], [], 0)[0])


def fill(client):
    assert client.call("mset", "old", "1", "also", "2") == "+OK"
    assert client.call("rpush", "list", "a", "b") == 2
    assert client.call("rpush", "long", *range(20_000)) == 20_000


def expect_durable_is_answered(client):
    """Reads of what has long been durable, and of what nobody has written."""
    assert client.call("get", "old") == "1"
    assert client.call("get", "nokey") is None
    assert client.call("exists", "old", "also", "nokey") == 2
    assert client.call("lrange", "list", 0, -1) == ["a", "b"]
    assert client.call("sort_ro", "list", "alpha", "desc") == ["b", "a"]
    # Offloaded: it visits more elements than a command may beside others.
    assert len(client.call("lrange", "long", 0, -1)) == 20_000
    assert client.call("eval", "return 1", 0) == 1
    assert client.call("eval", "return redis.call('get', KEYS[1])", 1, "old") == "1"
    assert client.call("multi") == "+OK"
    assert client.call("get", "old") == "+QUEUED"
    assert client.call("exec") == ["1"]
    assert client.call("ping") in ("+PONG", FULL)
    # One after the other in one piece.
    for words in (("get", "old"), ("get", "also"), ("type", "list")):
        client.send(*words)
    assert [client.read() for _ in range(3)] == ["1", "2", "+list"]


def expect_refused(reply, words):
    assert isinstance(reply, str) and reply.startswith(words), reply


def make_full(disk, server, other, *command):
    """The disk is full from this command's record on; its reply."""
    disk.fail(("write", 28, "incr.aof"))
    reply = other.call(*command)
    await_that(lambda: failing(other))
    await_that(lambda: "Writes are refused until it works again" in server.log())
    return reply


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("mode", ["configured", "disk"])
def test_full_disk_refuses_what_cannot_become_durable_and_answers_the_rest(mode, threads, disk):  # noqa: F811
    policy = "always" if mode == "configured" else "everysec"
    with disk.server("--appendfsync", policy, "--io-threads", threads) as server:
        first, second, third = clients(server, 3)
        for client in (first, second, third):
            assert client.call("client", "durability", mode) == "+OK"
        fill(first)
        refused = make_full(disk, server, first, "set", "new", 1)
        expect_refused(refused, FULL)
        assert "not on disk yet" in refused
        # The next ones are not run at all.
        assert second.call("set", "never", 1) == FULL
        for client in (first, second, third):
            expect_durable_is_answered(client)
            # What they have seen is not durable.
            expect_refused(client.call("get", "new"), FULL)
            expect_refused(client.call("dbsize"), FULL)
            expect_refused(client.call("scan", 0), FULL)
            expect_refused(client.call("eval", "return redis.call('get', 'new')", 0), FULL)
            for words in (("get", "old"), ("get", "new"), ("ping",), ("get", "also"), ("set", "never", 1)):
                client.send(*words)
            replies = [client.read() for _ in range(5)]
            assert replies[0] == "1" and replies[3] == "2" and replies[4] == FULL
            expect_refused(replies[1], FULL)
        disk.mend()
        await_that(lambda: "can be written again" in server.log())
        assert second.call("get", "new") == "1"
        assert second.call("dbsize") == 5
        assert second.call("exists", "never") == 0
        assert first.call("set", "after", 1) == "+OK"
        assert first.call("debug", "loadaof") == "+OK"
        assert first.call("mget", "new", "after") == ["1", "1"]


def test_full_disk_refuses_each_reply_of_a_pipeline(disk):  # noqa: F811
    with disk.server("--appendfsync", "always") as server:
        first, second, other = clients(server, 3)
        fill(first)
        disk.fail(("hang", 1, "incr.aof"))
        second.send("set", "hung", 1)
        await_that(disk.marker.exists)
        words = [("get", "old"), ("set", "a", 1), ("get", "old"), ("incr", "a"), ("get", "a"), ("ping",)]
        words += [("multi",), ("incr", "a"), ("exec",), ("eval", "return redis.call('incr', KEYS[1])", 1, "a")]
        for command in words:
            first.send(*command)
        # The first one has seen nothing of it, and leaves.
        assert first.read() == "1"
        # A command that came behind the failure would be refused without having run.
        await_that(lambda: "cmdstat_eval:" in other.call("info", "commandstats"))
        disk.fail(("fsync", 28, "incr.aof"))
        replies = [first.read() for _ in words[1:]]
        is_refused = [isinstance(reply, str) and reply.startswith(FULL) for reply in replies]
        assert is_refused == [True, False, True, True, False, False, False, True, True], replies
        assert [replies[1], *replies[4:7]] == ["1", "+PONG", "+OK", "+QUEUED"]
        expect_refused(second.read(), FULL)
        disk.mend()
        await_that(lambda: "can be written again" in server.log())
        assert first.call("get", "a") == "4"


def test_sync_that_hangs_holds_up_no_read_of_what_is_durable(disk):  # noqa: F811
    with disk.server("--appendfsync", "always") as server:
        writer, reader, third = clients(server, 3)
        fill(writer)
        disk.fail(("hang", 1, "incr.aof"))
        writer.send("set", "new", 1)
        await_that(disk.marker.exists)
        expect_durable_is_answered(reader)
        third.send("get", "new")
        # Behind it: its worker has run the other command by then.
        expect_durable_is_answered(reader)
        assert not has_reply(writer) and not has_reply(third)
        disk.mend()
        assert (writer.read(), third.read()) == ("+OK", "1")


def test_moved_and_deleted_keys_have_been_seen(disk):  # noqa: F811
    with disk.server("--appendfsync", "always") as server:
        writer, reader = clients(server, 2)
        fill(writer)
        writer.call("set", "x", 1)
        disk.fail(("hang", 1, "incr.aof"))
        for words in (("del", "also"), ("rename", "x", "y"), ("lmove", "list", "other", "left", "left")):
            writer.send(*words)
        await_that(disk.marker.exists)
        assert reader.call("get", "old") == "1"
        disk.fail(("fsync", 28, "incr.aof"))
        await_that(lambda: failing(reader))
        for words in (("get", "also"), ("get", "x"), ("get", "y"), ("lrange", "list", 0, -1), ("llen", "other")):
            expect_refused(reader.call(*words), FULL)
        assert reader.call("get", "old") == "1"


def test_min_sync_replicas_without_replicas_refuses(disk):  # noqa: F811
    with Server("--min-sync-replicas", "0") as server, contextlib.closing(Mortal(Server())) as mortal:
        replica = mortal.server
        writer, reader = clients(server, 2)
        link = Client(replica)
        fill(writer)
        link.call("replicaof", "127.0.0.1", server.port)
        await_that(lambda: "master_link_status:up" in link.call("info", "replication"))
        assert writer.call("wait", 1, 0) == 1
        writer.call("config", "set", "min-sync-replicas", 1)
        assert writer.call("set", "synced", 1) == "+OK"
        suspend(replica.process)
        writer.send("set", "new", 1)
        # Behind it: what is at the replica is answered, what is not waits for it.
        await_that(lambda: reader.call("get", "old") == "1")
        expect_durable_is_answered(reader)
        assert not has_reply(writer)
        mortal.kill()
        expect_refused(writer.read(), FEW)
        expect_refused(reader.call("get", "new"), FEW)
        assert reader.call("set", "never", 1) == FEW
        expect_durable_is_answered(reader)
        # With `wait` there is no verdict: a replica may come.
        writer.call("config", "set", "sync-replicas-missing", "wait")
        writer.send("set", "later", 1)
        expect_durable_is_answered(reader)
        assert not has_reply(writer)
        with Server("--replicaof", f"127.0.0.1 {server.port}"):
            assert writer.read() == "+OK"
            assert reader.call("get", "new") == "1"
