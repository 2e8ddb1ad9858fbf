"""A disk that fails under a running server (faults.c): writes that were acknowledged under `appendfsync
always` are there afterwards, whatever failed and whenever the server was killed.
"""

import contextlib
import re
import select
import shutil
import signal
import subprocess
import threading
import time

import pytest

from disks import ERRORS, LOG, Mortal, await_that, counts, disk, failing, library, load  # noqa: F401
from harness import DUNLIN, Server, is_redis
from log_files import Client, await_rewrite

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="Redis ends where a sync fails")

def have_unread(writers):
    """Whether replies have come that the writers have not read, as where their threads stand still."""
    poll = select.poll()
    for writer in writers:
        poll.register(writer.client.socket, select.POLLIN)
    return bool(poll.poll(0))


def expect_all(server, writers):
    """Each key has the last number acknowledged, or one that was sent and had no answer yet."""
    client = Client(server)
    for writer in writers:
        found = int(client.call("get", writer.key) or 0)
        assert writer.acknowledged <= found <= writer.sent, f"{writer.key}: {found}\n{server.log()}"


@pytest.mark.parametrize("ends", ["by a repair", "by a kill"])
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("call", ["write", "fsync"])
def test_disk_that_fails_acknowledges_nothing_and_loses_nothing(call, error, ends, disk):
    number, words = ERRORS[error]
    with contextlib.closing(Mortal(disk.server("--appendfsync", "always"))) as mortal:
        server = mortal.server
        other = Client(server)
        waiting = Client(server)
        with load(server) as writers:
            disk.fail((call, number, "incr.aof"))
            await_that(disk.marker.exists)
            # From the first failure on; a client that writes now is refused or waits.
            waiting.send("set", "late", 1)
            await_that(lambda: failing(other))
            # The line comes once writes are refused; INFO may show the failure a moment earlier.
            await_that(lambda: f"{words}. Writes are refused until it works again" in server.log())
            refusal = f"-MISCONF Errors writing to the AOF file: {words}"
            assert other.call("set", "refused", 1) == refusal
            looks = [counts(writers)]

            def stand_still():
                time.sleep(0.3)
                looks.append(counts(writers))
                return looks[-1] == looks[-2] and not have_unread(writers)

            # Replies from before the failure may still lie in the writers' sockets.
            await_that(stand_still)
            before = looks[-1]
            # Through an attempt or two to go on.
            time.sleep(1.2)
            assert counts(writers) == before, "something was acknowledged"
            assert failing(other)
            if ends == "by a kill":
                mortal.kill()
            else:
                disk.mend()
                # Refused before it ran or behind it, or acknowledged by the attempt that succeeded.
                reply = waiting.read()
                assert reply in ("+OK", refusal) or reply.startswith(f"{refusal}. The command has run"), reply
                await_that(lambda: "can be written again" in server.log())
                assert not failing(other)
                # Clients that were not refused go on.
                going = [writer for writer in writers if writer.refusal is None]
                await_that(lambda: all(writer.acknowledged > at for writer, at in zip(writers, before) if writer in going))
                assert other.call("set", "after", 1) == "+OK"
        if ends == "by a repair":
            assert other.call("debug", "loadaof") == "+OK"
            assert other.call("get", "after") == "1"
            expect_all(server, writers)
            mortal.kill()
        with Server(*LOG, "--dir", disk.data) as again:
            expect_all(again, writers)
            assert ends == "by a kill" or Client(again).call("get", "after") == "1"


def test_everysec_forgets_nothing_that_a_failed_sync_may_have_dropped(disk):
    with disk.server("--appendfsync", "everysec") as server:
        client = Client(server)
        disk.fail(("fsync", 5, "incr.aof"))
        sent = 0
        while not failing(client):
            sent += client.call("rpush", "l", sent) == sent + 1
            time.sleep(0.001)
        # INFO shows the failure, and its end, a moment before writes are refused and accepted; the log's lines come after.
        await_that(lambda: "Writes are refused" in server.log())
        assert client.call("rpush", "l", 0).startswith("-MISCONF")
        disk.mend()
        await_that(lambda: "can be written again" in server.log())
        assert client.call("rpush", "l", sent) == sent + 1
        assert client.call("waitaof", 1, 0, 0) == [1, 0]
        assert client.call("debug", "loadaof") == "+OK"
        assert client.call("lrange", "l", 0, -1) == [str(number) for number in range(sent + 1)]


# Of a MiB each: more than the log's ring takes without a sync, 48 MiB.
LONG_VALUES = range(64)


def fill_while_a_sync_hangs(disk, client):
    """All of it is acknowledged though no sync comes to its end. Three seconds after the first write that is not synced writers wait
    for the disk: where the machine stands still for so long, it is tried again."""
    for _ in range(5):
        disk.fail(("hang", 1, "incr.aof"))
        client.call("set", "first", 1)
        await_that(disk.marker.exists)
        replies = []

        def fill():
            for number in LONG_VALUES:
                replies.append(client.call("set", f"long:{number}", str(number % 10) * (1 << 20)))

        filling = threading.Thread(target=fill)
        filling.start()
        filling.join(10)
        if not filling.is_alive():
            assert replies == ["+OK"] * len(LONG_VALUES)
            return
        disk.mend()
        filling.join()
        assert client.call("waitaof", 1, 0, 0) == [1, 0]
    raise AssertionError("writers wait for a sync")


def expect_filled(client):
    for number in LONG_VALUES:
        value = client.call("get", f"long:{number}")
        assert len(value) == 1 << 20 and set(value) == {str(number % 10)}
    assert client.call("get", "first") == "1"


def test_everysec_does_not_wait_for_a_slow_sync(disk):
    with disk.server("--appendfsync", "everysec") as server:
        client = Client(server)
        info = lambda: client.call("info", "persistence")  # noqa: E731
        assert "aof_pending_bio_fsync:0" in info() and "aof_delayed_fsync:0" in info()
        fill_while_a_sync_hangs(disk, client)
        assert "aof_pending_bio_fsync:1" in info()
        await_that(lambda: "aof_delayed_fsync:0" not in info())
        disk.mend()
        assert client.call("waitaof", 1, 0, 0) == [1, 0]
        assert client.call("debug", "loadaof") == "+OK"
        expect_filled(client)


def test_sync_that_is_slow_and_fails_has_the_log_written_anew(disk):
    """The ring has given up bytes that the failed sync may have dropped: they come back from memory."""
    with contextlib.closing(Mortal(disk.server("--appendfsync", "everysec"))) as mortal:
        client = Client(mortal.server)
        fill_while_a_sync_hangs(disk, client)
        disk.fail(("fsync", 5, "incr.aof"))
        await_that(lambda: failing(client))
        disk.mend()
        await_that(lambda: "can be written again" in mortal.server.log())
        assert "the log is to be rewritten" in mortal.server.log()
        assert client.call("set", "last", 1) == "+OK"
        assert client.call("waitaof", 1, 0, 0) == [1, 0]
        assert "rewrite finished successfully" in mortal.server.log()
        mortal.kill()
        with Server(*LOG, "--dir", disk.data) as again:
            expect_filled(Client(again))
            assert Client(again).call("get", "last") == "1"


# Where a rewrite can fail: writing and syncing the base, giving it its name, the manifest, the next increment and its opening.
REWRITES = {
    "the base is not written": ("write", 28, ".rdb"),
    "the base is not synced": ("fsync", 5, ".rdb"),
    "the base gets no name": ("rename", 5, ".base."),
    "the manifest is not written": ("write", 28, "manifest"),
    "the manifest is not synced": ("fsync", 5, "manifest"),
    "the manifest gets no name": ("rename", 28, ".manifest"),
    "there is no file to go on with": ("open", 28, ".incr.aof"),
    "the file to go on with cannot be begun": ("fsync", 5, ".2.incr.aof"),
}


@pytest.mark.parametrize("preamble", ["yes", "no"])
@pytest.mark.parametrize("what", REWRITES)
def test_rewrite_that_fails_costs_nothing(what, preamble, disk):
    directives = ("--appendfsync", "always", "--aof-use-rdb-preamble", preamble)
    with disk.server(*directives) as server:
        client = Client(server)
        client.call("debug", "populate", 2000)
        with load(server, 2) as writers:
            disk.fail(REWRITES[what])
            assert client.call("bgrewriteaof").startswith("+Background")
            await_that(disk.marker.exists)
            await_that(lambda: "aof_rewrite_in_progress:0" in client.call("info", "persistence"))
            info = client.call("info", "persistence")
            assert "aof_last_bgrewrite_status:err" in info or "cancelled" in server.log(), server.log()
            assert "aof_rewrites_consecutive_failures:1" in info or "cancelled" in server.log(), info
            assert "aof_last_write_status:ok" in info
            at = counts(writers)
            await_that(lambda: all(writer.acknowledged > before for writer, before in zip(writers, at)))
            expect_acknowledged_in_a_copy(disk, writers)
            disk.mend()
            client.call("bgrewriteaof")
            await_rewrite(client)
            assert "aof_last_bgrewrite_status:ok" in client.call("info", "persistence"), server.log()
            assert all(writer.refusal is None for writer in writers)
        assert client.call("debug", "loadaof") == "+OK"
        assert client.call("get", "key:1999") == "value:1999"
        expect_all(server, writers)


def expect_acknowledged_in_a_copy(disk, writers):
    """Writes that have been acknowledged by now are in the files as they are now."""
    acknowledged = counts(writers)
    folder = disk.data.parent / "copy"
    shutil.copytree(disk.data, folder, ignore=shutil.ignore_patterns("temp-*"))
    with Server(*LOG, "--dir", folder) as server:
        client = Client(server)
        for writer, before in zip(writers, acknowledged):
            assert int(client.call("get", writer.key)) >= before, server.log()
    shutil.rmtree(folder)


def test_snapshot_that_fails_leaves_the_one_before(disk):
    with disk.server("--appendonly", "no", "--save", "3600 100000") as server:
        client = Client(server)
        client.call("set", "a", 1)
        assert client.call("save") == "+OK"
        before = (disk.data / "dump.rdb").read_bytes()
        client.call("set", "a", 2)
        for fault in (("write", 28, "temp-"), ("fsync", 5, "temp-"), ("rename", 28, "dump.rdb"), ("open", 28, "temp-")):
            disk.fail(fault)
            assert client.call("save").startswith("-ERR")
            assert client.call("bgsave").startswith("+Background")
            await_that(lambda: "rdb_bgsave_in_progress:0" in client.call("info", "persistence"))
            assert "rdb_last_bgsave_status:err" in client.call("info", "persistence")
            assert client.call("set", "a", 3).startswith("-MISCONF")
            assert (disk.data / "dump.rdb").read_bytes() == before
            assert sorted(path.name for path in disk.data.iterdir()) == [".dunlin.lock", "dump.rdb"]
            disk.mend()
            assert client.call("save") == "+OK"
            assert client.call("set", "a", 2) == "+OK"
            before = (disk.data / "dump.rdb").read_bytes()


def test_interrupt_for_the_second_time_does_not_wait_for_the_snapshot(disk):
    with contextlib.closing(Mortal(disk.server("--appendonly", "no", "--save", "3600 100000"))) as mortal:
        assert Client(mortal.server).call("set", "a", 1) == "+OK"
        disk.fail(("hang", 1, "temp-"))
        process = mortal.server.process
        process.send_signal(signal.SIGINT)
        await_that(disk.marker.exists)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 1


def life(disk, **more):
    """The life of a server, which may be killed at any moment of it; returns the numbers that it has
    acknowledged and those that it was sent."""
    acknowledged, sent = {}, {}
    try:
        server = disk.server("--appendfsync", "always", **more)
    except AssertionError as error:
        assert "ended with -9" in str(error), error
        return acknowledged, sent, False
    client, count = Client(server), 0

    def write(*keys):
        nonlocal count
        count += 1
        sent.update({key: count for key in keys})
        words = [word for key in keys for word in (key, count)]
        assert client.call("mset", *words) == "+OK"
        acknowledged.update({key: count for key in keys})

    try:
        for key in ("a", "b", "a"):
            write(key)
        for _ in range(2):
            assert client.call("bgrewriteaof").startswith("+Background")
            write("a", "c")
            await_rewrite(client)
            write("b")
        assert client.call("bgsave").startswith("+Background")
        write("a")
        client.call("config", "set", "appendonly", "no")
        client.call("config", "set", "appendonly", "yes")
        # Until its base is there, a log that is turned on promises nothing.
        await_rewrite(client)
        write("c", "d")
        server.process.terminate()
        assert server.process.wait(30) in (0, -9)
        return acknowledged, sent, server.process.returncode == 0
    except (OSError, AssertionError, ValueError):
        assert server.process.wait(30) == -9, server.log()
        return acknowledged, sent, False
    finally:
        server.kill()


@pytest.mark.parametrize("power", ["", "1"], ids=["kill", "power cut"])
def test_kill_at_every_change_of_a_file(power, disk):
    """Rewrites, switches of the manifest, a log that is turned off and on, the end: killed in each call that changes a file."""
    at, has_survived, tried = 1, False, 0
    while not has_survived:
        shutil.rmtree(disk.data)
        disk.data.mkdir()
        acknowledged, sent, has_survived = life(disk, KILL_AT=at, POWER=power)
        told = subprocess.run([DUNLIN, "check", disk.data / "appendonlydir"], capture_output=True, text=True)
        scenario = f"call {at}: {acknowledged} of {sent}\n{told.stdout}{told.stderr}"
        with Server(*LOG, "--dir", disk.data) as server:
            found = Client(server).call("mget", "a", "b", "c", "d")
            for key, value in zip("abcd", found):
                low, high = acknowledged.get(key, 0), sent.get(key, 0)
                assert low <= int(value or 0) <= high, f"{scenario}{key}: {found}\n{server.log()}"
            assert Client(server).call("set", "on", 1) == "+OK"
            # A cut is reported with its place.
            cut = re.search(r"damaged at byte \d+ of \d+: the (file was cut off|file ends inside|last batch is torn)", told.stdout)
            assert not cut or "were cut off" in server.log(), scenario + server.log()
        tried += 1
        at += 1
    assert tried > 30, "the scenario changes many files"


def follow(replica, primary):
    client = Client(replica)
    client.call("replicaof", "127.0.0.1", primary.port)
    await_that(lambda: "master_link_status:up" in client.call("info", "replication"))
    return client


def same_data(*clients):
    return len({client.call("debug", "digest") for client in clients}) == 1


def test_full_disk_of_the_primary_keeps_no_replica_from_its_snapshot(disk):
    with disk.server("--appendfsync", "everysec") as primary, Server("--enable-debug-command", "yes") as replica:
        above = Client(primary)
        for number in range(2000):
            above.call("set", f"k{number}", "x" * 1000)
        disk.fail(("write", 28, "*"))
        above.call("set", "n", 1)
        await_that(lambda: failing(above))
        below = follow(replica, primary)
        await_that(lambda: same_data(above, below))
        disk.mend()
        await_that(lambda: above.call("set", "n", 2) == "+OK")
        await_that(lambda: same_data(above, below))
        assert "sync_full:1\r" in above.call("info", "stats")


def test_log_thread_that_hangs_holds_up_no_replica(disk):
    with disk.server("--appendfsync", "everysec") as primary, Server("--enable-debug-command", "yes") as replica:
        above = Client(primary)
        below = follow(replica, primary)
        disk.fail(("hang", 1, "*"))
        above.call("set", "n", 0)
        await_that(disk.marker.exists)
        for number in range(100):
            assert above.call("set", "n", number) == "+OK"
            assert above.call("wait", 1, 30_000) == 1
        assert same_data(above, below)
        disk.mend()
        above.call("set", "n", "last")
        await_that(lambda: same_data(above, below))
        assert "sync_full:1\r" in above.call("info", "stats")
