"""BACKUP, as Redis 8.10 has it (its tests/integration/backup.tcl and command reference are the measure): a directory that a server
starts from, with the data set as it was at SEAL, whatever happens to the server afterwards or meanwhile.
"""

import os
import pathlib
import shutil
import signal

import pytest

from disks import ERRORS, Disk, await_that, counts, library, load  # noqa: F401
from harness import DUNLIN, ORACLE, Server, is_redis
from log_files import digest
from peer import Failure, Peer

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="Redis 8.10 has it, and no package has that")

DEBUG = ("--enable-debug-command", "yes", "--auto-aof-rewrite-percentage", "0")
WITH_LOG = ("--appendonly", "yes", *DEBUG)
WAYS = {"log": WITH_LOG, "none": ("--appendonly", "no", *DEBUG)}


@pytest.fixture(params=WAYS)
def way(request):
    return request.param


@pytest.fixture
def server(way):
    with Server(*WAYS[way]) as server:
        yield server


@pytest.fixture
def client(server):
    with Peer(server) as client:
        yield client


def status(client):
    told = client.ask("BACKUP", "STATUS")
    fields = told if isinstance(told, dict) else dict(zip(told[::2], told[1::2], strict=True))
    assert list(fields) == ["state", "error", "start_time", "end_time"]
    return fields


def await_state(client, state):
    await_that(lambda: status(client)["state"] == state)


def info(client, name):
    lines = dict(line.split(":", 1) for line in client.ask("INFO", "persistence").split("\r\n") if ":" in line)
    return lines[name]


def start(client):
    assert client.ask("BACKUP", "START") == "OK"
    await_state(client, "incrementing")


def fill(client, count=300):
    for number in range(count):
        client.ask("SET", f"text {number}", "x" * number)
    client.ask("RPUSH", "list", *range(200))
    client.ask("HSET", "hash", "a", 1, "b", 2)
    client.ask("SELECT", 3)
    client.ask("ZADD", "sorted", 1.5, "one", 2, "two")
    client.ask("SELECT", 0)
    client.ask("FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() return 7 end)")


def change(client):
    """Changes of several databases, with times, scripts and transactions, that only the increment has."""
    for number in range(0, 300, 3):
        client.ask("APPEND", f"text {number}", "more")
    client.ask("DEL", "text 1")
    client.ask("EXPIRE", "hash", 100000)
    client.line("MULTI")
    client.ask("SET", "in a transaction", 1)
    client.ask("LPOP", "list")
    client.line("EXEC")
    client.ask("EVAL", "redis.call('SET', KEYS[1], ARGV[1])", 1, "by a script", 1)
    client.ask("SELECT", 5)
    client.ask("SET", "elsewhere", 1)
    client.ask("SELECT", 0)


def restored(folder, program=DUNLIN):
    """A server that starts from a directory of a backup, which is copied to where it is to be."""
    place = pathlib.Path(folder).parent / "restored"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder, place / "appendonlydir")
    own = ("--enable-debug-command", "yes", "--aof-load-truncated", "no")
    return Server("--appendonly", "yes", *own, program=program, files=place)


def names(folder):
    return sorted(path.name for path in pathlib.Path(folder).iterdir())


@pytest.mark.parametrize("program", [DUNLIN, ORACLE], ids=["dunlin", "redis"])
def test_backup_when_sealed_is_the_data_set_at_seal(server, client, program):
    folder = server.folder / "backupdir"
    assert status(client) == {"state": "idle", "error": "", "start_time": 0, "end_time": 0}
    assert client.ask("BACKUP", "LIST") == [] and info(client, "backup_in_progress") == "0"
    fill(client)
    start(client)
    assert info(client, "backup_in_progress") == "1"
    base, = client.ask("BACKUP", "LIST")
    assert os.path.isabs(base) and pathlib.Path(base).parent == folder and pathlib.Path(base).name.endswith(".base.rdb")
    change(client)
    expected = digest(server)
    assert client.ask("BACKUP", "SEAL") == "OK"
    assert digest(server) == expected
    told = status(client)
    assert told["state"] == "sealed" and told["error"] == "" and 0 < told["start_time"] <= told["end_time"]
    files = client.ask("BACKUP", "LIST")
    assert files[0] == base and [pathlib.Path(file).name.split(".", 3)[3:] or [pathlib.Path(file).name] for file in files] == [
        ["base.rdb"], ["incr.aof"], ["appendonly.aof.manifest"],
    ]  # fmt: skip
    assert names(folder) == sorted(pathlib.Path(file).name for file in files)
    bytes_before = {file: pathlib.Path(file).read_bytes() for file in files}
    # The server goes on, and rewrites its log: the backup stays.
    client.ask("FLUSHALL")
    client.ask("SET", "after", 1)
    if info(client, "aof_enabled") == "1":
        assert client.ask("BGREWRITEAOF").startswith("Background append only file rewriting")
        await_that(lambda: info(client, "aof_rewrite_in_progress") == "0")
    assert {file: pathlib.Path(file).read_bytes() for file in files} == bytes_before
    with restored(folder, program) as other, Peer(other) as reader:
        assert digest(other) == expected
        assert reader.ask("EXISTS", "after") == 0 and reader.ask("FCALL", "f", 0) == 7
        assert 0 < reader.ask("TTL", "hash") <= 100000
    assert client.ask("BACKUP", "CLEANUP") == "OK"
    assert names(folder) == [] and status(client)["state"] == "idle"
    assert client.ask("GET", "after") == "1"


def test_backup_without_a_log_leaves_no_log(client, server, way):
    fill(client)
    expected = digest(server)
    for last in ("SEAL", "ABORT"):
        start(client)
        assert (server.folder / "appendonlydir").exists()
        assert info(client, "aof_enabled") == ("1" if way == "log" else "0")
        assert client.ask("BACKUP", last) == "OK"
        if way == "none":
            await_that(lambda: not (server.folder / "appendonlydir").exists())
        assert client.ask("SET", "text 0", "") == "OK" and digest(server) == expected
        assert client.ask("BACKUP", "CLEANUP") == "OK"
    # A log that is turned on meanwhile stays.
    start(client)
    assert client.ask("CONFIG", "SET", "appendonly", "yes") == "OK"
    assert client.ask("BACKUP", "SEAL") == "OK" and info(client, "aof_enabled") == "1"
    assert (server.folder / "appendonlydir" / "appendonly.aof.manifest").exists()
    client.ask("SET", "last", 1)
    expected = digest(server)
    server.process.kill()
    server.process.wait()
    with Server(*WITH_LOG, files=server.folder) as again:
        assert digest(again) == expected
    server.process.returncode = 0


def test_commands_out_of_turn_are_refused(client, server):
    for words, text in [
        ("SEAL", "No backup ready to seal (must be in the incrementing state)"),
        ("ABORT", "No backup in progress"),
    ]:
        assert client.ask("BACKUP", words) == Failure(f"ERR {text}")
    assert client.ask("BACKUP", "CLEANUP") == "OK"
    assert client.ask("BACKUP").startswith("ERR wrong number of arguments for 'backup' command")
    assert client.ask("BACKUP", "START", "now").startswith("ERR wrong number of arguments for 'backup|start' command")
    assert client.ask("BACKUP", "NOW").startswith("ERR unknown subcommand 'NOW'. Try BACKUP HELP")
    assert client.ask("BACKUP", "HELP")[0].startswith("BACKUP <subcommand> ")
    stale = server.folder / "backupdir" / "stale"
    stale.parent.mkdir(exist_ok=True)
    stale.write_text("")
    assert client.ask("BACKUP", "START") == Failure(f"ERR Backup directory '{stale.parent}' is not empty")
    assert status(client)["state"] == "idle" and stale.exists()
    stale.unlink()
    start(client)
    assert client.ask("BACKUP", "START") == Failure("ERR A backup is already in progress, ABORT it first")
    assert client.ask("BACKUP", "CLEANUP") == Failure("ERR Backup is in progress")
    assert client.ask("BACKUP", "SEAL") == "OK"
    assert client.ask("BACKUP", "START") == Failure("ERR A sealed backup exists, CLEANUP it first")
    assert client.ask("BACKUP", "ABORT") == Failure("ERR No backup in progress")
    assert client.ask("BACKUP", "CLEANUP") == "OK"
    start(client)
    assert client.ask("BACKUP", "ABORT") == "OK"
    told = status(client)
    assert (told["state"], told["error"], names(stale.parent)) == ("failed", "aborted by user", [])
    await_that(lambda: client.ask("BACKUP", "START") == "OK")
    await_state(client, "incrementing")
    client.line("MULTI")
    assert client.ask("BACKUP", "SEAL") == Failure("ERR Command not allowed inside a transaction")
    client.line("DISCARD")
    assert client.ask("EVAL", "return redis.call('BACKUP', 'START')", 0).startswith("ERR This Redis command is not allowed from script")
    with Peer(server, 3) as other:
        assert status(other)["state"] == "incrementing"
        assert other.ask("BACKUP", "ABORT") == "OK"


@pytest.mark.parametrize("way", ["log"])
def test_backup_holds_rewrites_until_it_is_sealed(client):
    client.ask("SET", "a", 1)
    start(client)
    before = int(info(client, "aof_rewrites"))
    assert client.ask("BGREWRITEAOF") == "Background append only file rewriting scheduled"
    client.ask("SET", "b", 1)
    assert (info(client, "aof_rewrites"), info(client, "aof_rewrite_scheduled")) == (str(before), "1")
    assert client.ask("BACKUP", "SEAL") == "OK"
    await_that(lambda: int(info(client, "aof_rewrites")) == before + 1 and info(client, "aof_rewrite_in_progress") == "0")
    assert info(client, "aof_rewrite_scheduled") == "0"


@pytest.mark.parametrize("way", ["log"])
def test_backup_takes_a_rewrite_under_way_and_waits_for_a_snapshot(client, server):
    for number in range(50):
        client.ask("SET", number, number)
    client.ask("CONFIG", "SET", "rdb-key-save-delay", 1000000)
    assert client.ask("BGREWRITEAOF") == "Background append only file rewriting started"
    client.ask("SET", "behind the cut", 1)
    rewrites = info(client, "aof_rewrites")
    assert client.ask("BACKUP", "START") == "OK"
    assert status(client)["state"] == "snapshotting" and client.ask("BACKUP", "LIST") == []
    client.ask("CONFIG", "SET", "rdb-key-save-delay", 0)
    await_state(client, "incrementing")
    assert info(client, "aof_rewrites") == rewrites, "no other one was begun"
    expected = digest(server)
    assert client.ask("BACKUP", "SEAL") == "OK"
    with restored(server.folder / "backupdir") as other:
        assert digest(other) == expected
    assert client.ask("BACKUP", "CLEANUP") == "OK"
    # In a transaction it begins behind it, as a whole.
    client.line("MULTI")
    client.ask("SET", "first", 1)
    client.ask("BACKUP", "START")
    client.ask("SET", "second", 1)
    assert client.line("EXEC") == ["OK", "OK", "OK"]
    await_state(client, "incrementing")
    assert client.ask("BACKUP", "SEAL") == "OK"
    with restored(server.folder / "backupdir") as other, Peer(other) as reader:
        assert (reader.ask("GET", "first"), reader.ask("GET", "second")) == ("1", "1")


@pytest.mark.parametrize("way", ["log"])
def test_backup_ends_when_the_log_is_turned_off(client, server):
    start(client)
    assert client.ask("CONFIG", "SET", "appendonly", "no") == "OK"
    told = status(client)
    assert (told["state"], told["error"]) == ("failed", "appendonly is stopped")
    assert names(server.folder / "backupdir") == []


def test_backup_is_removed_its_time_after_the_seal(client, server):
    client.ask("SET", "a", 1)
    assert client.ask("CONFIG", "SET", "backup-sealed-ttl", "1") == "OK"
    start(client)
    assert client.ask("BACKUP", "SEAL") == "OK"
    await_state(client, "idle")
    assert names(server.folder / "backupdir") == []
    assert client.ask("CONFIG", "SET", "backupdirname", "x").startswith("ERR CONFIG SET failed")
    for path in ("/tmp/mine", "a/b"):
        with pytest.raises(AssertionError, match="backupdirname can't be a path, just a dirname"):
            Server("--backupdirname", path)


def test_backup_killed_in_the_middle_leaves_nothing_and_loses_nothing(way):
    server = Server(*WAYS[way], "--appendfsync", "always")
    try:
        with Peer(server) as client:
            fill(client)
            assert client.ask("SAVE") == "OK"
            start(client)
            client.ask("SET", "acknowledged", 1)
            expected = digest(server)
            server.process.kill()
            server.process.wait()
        folder = server.folder / "backupdir"
        assert not any(name.endswith(".manifest") for name in names(folder)), "what is not sealed is no backup"
        with Server(*WAYS[way], files=server.folder) as again, Peer(again) as client:
            if way == "log":
                assert digest(again) == expected
            else:
                assert client.ask("GET", "text 299") == "x" * 299, "the snapshot is loaded, as appendonly is no"
            assert client.ask("BACKUP", "STATUS")[1] == "idle"
            place = again.folder / "backupdir"
            told = client.ask("BACKUP", "START")
            assert told.startswith("ERR ") and ("is not empty" in told or "of a time with appendonly yes" in told)
            shutil.rmtree(place)
            if way == "none":
                shutil.rmtree(again.folder / "appendonlydir")
            start(client)
            expected = digest(again)
            assert client.ask("BACKUP", "SEAL") == "OK"
            with restored(place) as other:
                assert digest(other) == expected
    finally:
        server.kill()


def test_backup_cut_by_a_clean_end_leaves_no_backup_and_no_log(way):
    with Server(*WAYS[way]) as server, Peer(server) as client:
        fill(client)
        start(client)
        server.process.terminate()
        assert server.process.wait(60) == 0
        if way == "none":
            assert not (server.folder / "appendonlydir").exists() and names(server.folder / "backupdir") == []
        assert not any(name.endswith(".manifest") for name in names(server.folder / "backupdir"))


def test_backup_under_load_has_acknowledged_writes_and_whole_transactions(server, client):
    with load(server) as writers, Peer(server) as other:
        def both(number):
            other.line("MULTI")
            other.ask("SET", "left", number)
            other.ask("SET", "right", number)
            return other.line("EXEC")

        start(client)
        for number in range(200):
            assert both(number) == ["OK", "OK"]
        before = counts(writers)
        other.send_all("MULTI", "SET left 200", "SET right 200", "EXEC")
        assert client.ask("BACKUP", "SEAL") == "OK"
        after = [writer.sent for writer in writers]
        with restored(server.folder / "backupdir") as copy, Peer(copy) as reader:
            for writer, least, most in zip(writers, before, after, strict=True):
                assert least <= int(reader.ask("GET", writer.key)) <= most
            assert reader.ask("GET", "left") == reader.ask("GET", "right") and int(reader.ask("GET", "left")) >= 199


@pytest.fixture
def disk(library, tmp_path):  # noqa: F811
    return Disk(library, tmp_path)


def test_backup_survives_a_full_disk_that_fails_its_seal(disk):
    with disk.server() as server, Peer(server) as client:
        fill(client)
        start(client)
        change(client)
        disk.fail(("write", ERRORS["ENOSPC"][0], "appendonly.aof.manifest"), ("open", ERRORS["ENOSPC"][0], "appendonly.aof.manifest"))
        told = client.ask("BACKUP", "SEAL")
        assert told == Failure("ERR the backup cannot be sealed: No space left on device (os error 28)") or told.startswith(
            "ERR the backup cannot be sealed: "
        )
        assert status(client)["state"] == "incrementing"
        assert not any(name.endswith(".manifest") for name in names(disk.data / "backupdir"))
        disk.mend()
        client.ask("SET", "after", 1)
        expected = digest(server)
        await_that(lambda: client.ask("BACKUP", "SEAL") == "OK")
        with restored(disk.data / "backupdir") as other:
            assert digest(other) == expected


def test_backup_without_a_log_ends_at_a_full_disk(disk):
    with Server("--appendonly", "no", *DEBUG, "--dir", disk.data, environment=disk.environment()) as server, Peer(server) as client:
        fill(client)
        start(client)
        disk.fail(("write", ERRORS["ENOSPC"][0], ".incr.aof"))
        assert client.ask("SET", "a", 1) == "OK"
        await_state(client, "failed")
        assert "No space left on device" in status(client)["error"]
        # Clients do not wait for a disk that the server does not need.
        await_that(lambda: client.ask("SET", "a", 2) == "OK")
        disk.mend()
        assert names(disk.data / "backupdir") == []
        await_that(lambda: not (disk.data / "appendonlydir").exists())
        start(client)
        expected = digest(server)
        assert client.ask("BACKUP", "SEAL") == "OK"
        with restored(disk.data / "backupdir") as other:
            assert digest(other) == expected


def test_backup_ends_if_the_disk_cannot_take_the_base(disk):
    with disk.server() as server, Peer(server) as client:
        fill(client)
        disk.fail(("write", ERRORS["ENOSPC"][0], ".rdb"))
        assert client.ask("BACKUP", "START") == "OK"
        await_state(client, "failed")
        assert "No space left on device" in status(client)["error"] and names(disk.data / "backupdir") == []
        disk.mend()
        assert client.ask("BACKUP", "START") == "OK"
        await_state(client, "incrementing")


def test_backup_killed_at_any_change_of_a_file_is_whole_or_none(library, tmp_path):  # noqa: F811
    """The server is killed in the n-th call that changes a file, for each n, until a run gets through START and SEAL."""
    for number in range(1, 400):
        folder = tmp_path / str(number)
        folder.mkdir()
        disk = Disk(library, folder)
        acknowledged, has_begun, is_sealed, server = {}, False, False, None
        try:
            server = disk.server("--appendfsync", "always", KILL_AT=number)
            with Peer(server) as client:
                for step in range(5):
                    client.ask("SET", f"before {step}", step)
                    acknowledged[f"before {step}"] = str(step)
                has_begun = True
                assert client.ask("BACKUP", "START") == "OK"
                while status(client)["state"] != "incrementing":
                    pass
                for step in range(5):
                    client.ask("SET", f"within {step}", step)
                    acknowledged[f"within {step}"] = str(step)
                is_sealed = client.ask("BACKUP", "SEAL") == "OK"
        except (AssertionError, EOFError, OSError):
            assert server is None or server.process.wait(60) == -signal.SIGKILL, server.log()
        finally:
            if server is not None:
                server.kill()
        if not has_begun:
            continue
        place = disk.data / "backupdir"
        has_manifest = place.exists() and any(name.endswith(".aof.manifest") and not name.startswith("temp") for name in names(place))
        assert has_manifest or not is_sealed
        with Server(*WITH_LOG, "--dir", disk.data) as again, Peer(again) as reader:
            for key, value in acknowledged.items():
                assert reader.ask("GET", key) == value, (number, key)
        if has_manifest:
            with restored(place) as copy, Peer(copy) as reader:
                assert reader.ask("DBSIZE") == 10, number
        if is_sealed:
            return
    raise AssertionError("it was never sealed")
