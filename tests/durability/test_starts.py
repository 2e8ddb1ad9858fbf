"""Starts: with any files in its directory, the server ends with the data of the fullest one, and loses nothing of the
others."""

import os
import shutil
import subprocess
import time

import pytest

from disks import Disk, await_that, library  # noqa: F401
from harness import DUNLIN, ORACLE, Server, command, free_port, is_redis
from log_files import Client, await_refusal, await_rewrite, encoded

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="Redis starts empty in some of these cases")

ON = ("--appendonly", "yes", "--auto-aof-rewrite-percentage", "0")
SYNCED = (*ON, "--appendfsync", "always")
OFF = ("--appendonly", "no")
OLD = 1_000_000_000


def run(folder, *lines, program=DUNLIN, directives=OFF, ends=None):
    """Has a server add to the data of a directory."""
    with Server("--dir", folder, *directives, program=program) as server:
        client = Client(server)
        for line in lines:
            assert not str(client.call(*line.split())).startswith("-"), line
            if line in ("bgrewriteaof", "config set appendonly yes"):
                await_rewrite(client)
        if ends:
            ends(server)
    return server


def killed(server):
    server.process.kill()
    server.process.wait()
    server.stop = lambda: None


def apart(folder, *lines, program=DUNLIN, directives=OFF, name="dump.rdb"):
    """Has a server of another directory make one of its files."""
    other = folder / "other"
    other.mkdir()
    run(other, *lines, program=program, directives=directives)
    shutil.move(other / name, folder / name)
    shutil.rmtree(other)


def age(path, when=OLD):
    """Has files been written to last at that time."""
    for file in [path] if path.is_file() else path.iterdir():
        os.utime(file, (when, when))


def found(server):
    client = Client(server)
    keys = sorted(client.call("keys", "*"))
    return {key: client.call("get", key) for key in keys}


def all_files(folder):
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name not in ("socket", ".dunlin.lock")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def refused(folder, *directives):
    words = ["--bind", "127.0.0.1", "--port", free_port(), "--dir", folder, "--save", "", *directives]
    result = subprocess.run(command(DUNLIN, *words), capture_output=True, timeout=30)
    assert result.returncode == 1, result.stdout.decode()
    return result.stderr.decode()


# Contents of directories: made by a server of that program; returns the best of its data, and the message of the start.


def nothing(folder, program):
    return {}, "There is neither {dump} nor an append-only log in {log}"


def snapshot_alone(folder, program):
    run(folder, "set a 1", "save", program=program)
    return {"a": "1"}, "Loading {dump}, since there is no append-only log in {log} yet: a copy of the file becomes the base of the log"


def snapshot_and_an_empty_log(folder, program):
    """A directory with a snapshot, as redis-server changes it when its log is turned on."""
    apart(folder, "set a 1", "save", program=program)
    shutil.move(folder / "dump.rdb", folder / "hidden")
    run(folder, program=program, directives=ON)
    shutil.move(folder / "hidden", folder / "dump.rdb")
    return {"a": "1"}, "Loading {dump}, since the append-only log in {log} is empty"


def log_alone(folder, program):
    run(folder, "set a 1", program=program, directives=ON)
    return {"a": "1"}, "Loading the append-only log in {log}"


def log_and_its_snapshot(folder, program):
    run(folder, "set a 1", "save", "set a 2", program=program, directives=ON)
    return {"a": "2"}, {DUNLIN: "Loading the append-only log in {log}, which holds all that {dump} does"}.get(
        program, "Loading the append-only log in {log}, which is newer than {dump}"
    )


def emptied_log_and_its_snapshot(folder, program):
    if program != DUNLIN:
        pytest.skip("nobody knows whether the log of redis-server was always empty")
    run(folder, "set a 1", "save", "flushall", "bgrewriteaof", program=program, directives=ON)
    return {}, "Loading the append-only log in {log}, which holds all that {dump} does"


def idle_log_and_its_snapshot(folder, program):
    run(folder, "set a 1", "save", program=program, directives=ON)
    age(folder / "appendonlydir")
    return {"a": "1"}, {DUNLIN: "which holds all that {dump} does"}.get(program, "Loading {dump}, which is newer than")


def log_that_was_turned_off(folder, program):
    run(folder, "set a 1", "set gone 1", program=program, directives=ON)
    age(folder / "appendonlydir")
    shutil.move(folder / "appendonlydir", folder / "hidden")
    run(folder, "set a 2", "save", program=program)
    shutil.move(folder / "hidden", folder / "appendonlydir")
    return {"a": "2"}, "Loading {dump}, which is newer than the append-only log in {log}"


def log_that_was_turned_off_just_now(folder, program):
    if program != DUNLIN:
        pytest.skip("the files of redis-server do not say how they stand to each other within a second or two")
    run(folder, "set a 1", "set gone 1", "config set appendonly no", "set a 2", "del gone", "save", directives=ON)
    return {"a": "2"}, "Loading {dump}, which is newer than the append-only log in {log}"


def log_that_was_turned_off_and_on_again(folder, program):
    words = ("set a 1", "config set appendonly no", "set a 2", "save", "config set appendonly yes", "set a 3")
    run(folder, *words, program=program, directives=SYNCED, ends=killed)
    return {"a": "3"}, "Loading the append-only log in {log}, which is newer than {dump}"


def log_that_was_turned_on_beside_a_snapshot(folder, program):
    words = ("set a 1", "save", "config set appendonly yes", "set a 2")
    run(folder, *words, program=program, directives=("--appendfsync", "always"), ends=killed)
    return {"a": "2"}, "Loading the append-only log in {log}, which is newer than {dump}"


def log_that_redis_went_on_with(folder, program):
    if program != DUNLIN:
        pytest.skip("it is about a log of both")
    run(folder, "set a 1", "config set appendonly no", "set a 2", "save", directives=ON)
    run(folder, "set a 3", program=ORACLE, directives=ON)
    age(folder / "appendonlydir", time.time() + 5)
    return {"a": "3"}, "Loading the append-only log in {log}, which is newer than {dump}"


def log_and_an_older_snapshot(folder, program):
    apart(folder, "set a 1", "save", program=program)
    shutil.move(folder / "dump.rdb", folder / "hidden")
    run(folder, "set a 2", program=program, directives=ON)
    shutil.move(folder / "hidden", folder / "dump.rdb")
    return {"a": "2"}, "Loading the append-only log in {log}, which is newer than {dump}"


def single_file(folder, program):
    (folder / "appendonly.aof").write_bytes(encoded(b"SET", b"a", b"1"))
    return {"a": "1"}, "is the base of the log now"


def single_file_and_an_older_snapshot(folder, program):
    apart(folder, "set a 2", "save", program=program)
    (folder / "appendonly.aof").write_bytes(encoded(b"SET", b"a", b"1"))
    return {"a": "1"}, "is the base of the log now"


def single_file_and_a_newer_snapshot(folder, program):
    (folder / "appendonly.aof").write_bytes(encoded(b"SET", b"a", b"1"))
    age(folder / "appendonly.aof")
    apart(folder, "set a 2", "save", program=program)
    return {"a": "2"}, "Loading {dump}, which is newer than the append-only log"


def stray_files_and_a_snapshot(folder, program):
    run(folder, "set a 1", program=program, directives=ON)
    (folder / "appendonlydir/appendonly.aof.manifest").unlink()
    apart(folder, "set a 2", "save", program=program)
    return {"a": "2"}, "{log} has no manifest, so nothing of this log was loaded"


def unfinished_files(folder, program):
    run(folder, "set a 1", "save", program=program)
    (folder / "temp-99999999.rdb").write_bytes(b"REDIS0011")
    (folder / "appendonlydir").mkdir()
    (folder / "appendonlydir/temp-appendonly.aof.manifest").write_bytes(b"file x seq 1 ty")
    (folder / "appendonlydir/temp-base-99999999.rdb").write_bytes(b"REDIS0011")
    return {"a": "1"}, "Loading {dump}, since there is no append-only log in {log} yet"


CASES = [
    nothing,
    snapshot_alone,
    snapshot_and_an_empty_log,
    log_alone,
    log_and_its_snapshot,
    emptied_log_and_its_snapshot,
    idle_log_and_its_snapshot,
    log_that_was_turned_off,
    log_that_was_turned_off_just_now,
    log_that_was_turned_off_and_on_again,
    log_that_was_turned_on_beside_a_snapshot,
    log_that_redis_went_on_with,
    log_and_an_older_snapshot,
    single_file,
    single_file_and_an_older_snapshot,
    single_file_and_a_newer_snapshot,
    stray_files_and_a_snapshot,
    unfinished_files,
]


def is_kept(path, data, after):
    """A file is there, under any name; the newest increment has grown and a manifest names the present files."""
    if path.endswith(".manifest"):
        return True
    grows = path.endswith(".aof")
    return any(data == other or (grows and other.startswith(data.rstrip(b"#\n"))) for other in after.values())


@pytest.mark.parametrize("program", [DUNLIN, ORACLE], ids=["dunlin", "redis"])
@pytest.mark.parametrize("case", CASES)
def test_start_loads_the_best_of_what_is_there(case, program, tmp_path):
    """Loaded, changed, killed, loaded, saved, loaded: nothing of it is lost, nor are the files that were not loaded."""
    best, said = case(tmp_path, program)
    before = {path: data for path, data in all_files(tmp_path).items() if data and "temp-" not in path}
    with Server("--dir", tmp_path, *SYNCED) as server:
        assert found(server) == best, server.log()
        said = said.format(dump=tmp_path / "dump.rdb", log=tmp_path / "appendonlydir")
        assert said in server.log(), server.log()
        assert Client(server).call("set", "more", 1) == "+OK"
        killed(server)
    lost = [path for path, data in before.items() if not is_kept(path, data, all_files(tmp_path))]
    assert not lost, f"{lost}\n{server.log()}"
    for count in range(2):
        with Server("--dir", tmp_path, *ON) as again:
            assert found(again) == {**best, "more": "1"}, again.log()
            assert Client(again).call("save") == "+OK"
    after = all_files(tmp_path)
    # The log, as far as it was loaded, is the present data set; other files are kept, but for a snapshot of the same
    # data.
    if "Loading the append-only log" in server.log() and "holds all" not in server.log() and "dump.rdb" in before:
        assert before["dump.rdb"] in after.values(), sorted(after)
    assert not [path for path in after if "temp-" in path and path.endswith(".rdb")]
    with Server("--dir", tmp_path, *ON, program=ORACLE) as redis:
        assert found(redis) == {**best, "more": "1"}


def test_snapshot_becomes_the_base_of_a_log(tmp_path):
    run(tmp_path, *(f"set k:{number} {number}" for number in range(1000)), "save")
    dump = (tmp_path / "dump.rdb").read_bytes()
    with Server("--dir", tmp_path, *SYNCED) as server:
        client = Client(server)
        assert client.call("dbsize") == 1000
        assert "rdb_last_load_keys_loaded:1000" in client.call("info", "persistence")
        assert client.call("set", "more", 1) == "+OK"
        assert (tmp_path / "appendonlydir/appendonly.aof.1.base.rdb").read_bytes() == dump
        killed(server)
    with Server("--dir", tmp_path, *ON) as again:
        assert Client(again).call("dbsize") == 1001
        assert "holds all that" in again.log()
        assert Client(again).call("save") == "+OK"
    assert not list(tmp_path.glob("*kept*")), "the log holds what is overwritten"


def test_old_log_is_kept_with_its_manifest(tmp_path):
    run(tmp_path, "set old 1", "bgrewriteaof", "set old 2", directives=ON)
    files = {path.name: path.read_bytes() for path in (tmp_path / "appendonlydir").iterdir()}
    age(tmp_path / "appendonlydir")
    apart(tmp_path, "set a 1", "save")
    with Server("--dir", tmp_path, *ON) as server:
        assert found(server) == {"a": "1"}
        kept = tmp_path / "appendonlydir/kept-1"
        assert f"kept in {kept}" in server.log()
        assert {path.name: path.read_bytes() for path in kept.iterdir()} == files
    shutil.copytree(kept, tmp_path / "back/appendonlydir")
    with Server("--dir", tmp_path / "back", *ON) as server:
        assert found(server) == {"old": "2"}


def test_log_that_is_turned_off_and_on_again_loses_nothing(tmp_path):
    """At every stage the server is killed, and another one finds the data that were durable by then."""
    for stage in ("off", "saved", "on", "changed"):
        folder = tmp_path / stage
        folder.mkdir()
        expected = {"a": "1"}
        lines = ["set a 1", "config set appendonly no", "set b 2"]
        if stage != "off":
            lines.append("save")
            expected["b"] = "2"
        if stage in ("on", "changed"):
            lines.append("config set appendonly yes")
        if stage == "changed":
            lines.append("set c 3")
            expected["c"] = "3"
        run(folder, *lines, directives=SYNCED, ends=killed)
        for _ in range(2):
            with Server("--dir", folder, *ON) as again:
                assert found(again) == expected, f"{stage}\n{again.log()}"


def test_log_that_records_keeps_no_snapshot_of_its_own(tmp_path):
    """Save points and the log together, as Redis's own configuration file has them: nothing piles up over restarts."""
    for number in range(3):
        with Server("--dir", tmp_path, *ON, "--save", "3600 1") as server:
            client = Client(server)
            assert client.call("dbsize") == number
            assert client.call("set", f"k:{number}", 1) == "+OK"
            assert client.call("save") == "+OK"
            assert client.call("bgsave").startswith("+")
        assert not [path for path in tmp_path.rglob("*") if "kept-" in path.name]


def test_snapshot_during_a_rewrite_of_a_log_that_is_off_counts(tmp_path):
    """BGREWRITEAOF without a log makes one; a later snapshot holds more than that."""
    run(tmp_path, "set a 1", "config set appendonly no", "bgrewriteaof", "set a 2", "save", directives=ON)
    for _ in range(2):
        with Server("--dir", tmp_path, *ON) as server:
            assert found(server) == {"a": "2"}, server.log()


@pytest.mark.parametrize("way", ["save", "bgsave"])
def test_snapshot_of_somebody_else_is_kept(way, tmp_path):
    with Server("--dir", tmp_path) as server:
        client = Client(server)
        assert client.call("save") == "+OK"
        (tmp_path / "theirs").write_bytes(b"theirs")
        os.replace(tmp_path / "theirs", tmp_path / "dump.rdb")
        for number in range(2):
            assert client.call("set", "a", number) == "+OK"
            assert not client.call(way).startswith("-")
            await_that(lambda: "rdb_bgsave_in_progress:0" in client.call("info", "persistence"))
        assert (tmp_path / "dump.rdb.kept-1").read_bytes() == b"theirs"
        assert not (tmp_path / "dump.rdb.kept-2").exists()
        assert server.log().count(f"it is kept as {tmp_path}/dump.rdb.kept-1") == 1
    with Server("--dir", tmp_path) as server:
        assert found(server) == {"a": "1"}


# Without a log.


def test_start_without_a_log_loads_the_snapshot_and_names_the_log(tmp_path):
    run(tmp_path, "set a 1", "save", "set a 2", directives=ON)
    age(tmp_path / "appendonlydir", time.time() + 60)
    before = all_files(tmp_path)
    with Server("--dir", tmp_path, *OFF) as server:
        assert found(server) == {"a": "1"}
        (line,) = [line for line in server.log().splitlines() if "may hold more" in line]
        assert f"Loading {tmp_path}/dump.rdb, since appendonly is no" in line
        assert f"{tmp_path}/appendonlydir" in line and "SHUTDOWN NOSAVE" in line and "--appendonly yes" in line
        assert all_files(tmp_path) == before
        client = Client(server)
        # Turned on by hand, the log of before is kept.
        assert client.call("config", "set", "appendonly", "yes") == "+OK"
        await_rewrite(client)
        kept = all_files(tmp_path / "appendonlydir/kept-1")
        assert kept == {path.removeprefix("appendonlydir/"): data for path, data in before.items() if "dir/" in path}
    with Server("--dir", tmp_path, *ON) as server:
        assert found(server) == {"a": "1"}


def test_start_without_a_log_loads_the_log_where_there_is_no_snapshot(tmp_path):
    run(tmp_path, "set a 1", "bgrewriteaof", "set a 2", directives=SYNCED, ends=killed)
    (path,) = (tmp_path / "appendonlydir").glob("*.incr.aof")
    with path.open("ab") as file:
        file.write(b"*3\r\n$3\r\nset\r\n$1")
    before = all_files(tmp_path)
    with Server("--dir", tmp_path, *OFF) as server:
        assert found(server) == {"a": "2"}
        assert f"Loading the append-only log in {tmp_path}/appendonlydir, since there is no {tmp_path}/dump.rdb" in server.log()
        assert all_files(tmp_path) == before
        client = Client(server)
        assert client.call("set", "a", 3) == "+OK"
        assert client.call("save") == "+OK"
    for directives in (OFF, ON, ON):
        with Server("--dir", tmp_path, *directives) as server:
            assert found(server) == {"a": "3"}, server.log()


@pytest.mark.parametrize("ends", ["cleanly", "killed"])
def test_log_that_was_left_out_by_mistake(ends, tmp_path):
    """A server ran on its snapshot while its log lay beside it. Where the snapshot held the log, nothing is lost; otherwise nobody
    but the operator knows which of the two counts."""
    lines = ("set a 1", "save") if ends == "cleanly" else ("set a 1", "save", "set a 2")
    run(tmp_path, *lines, directives=ON)
    if ends == "killed":
        age(tmp_path / "appendonlydir", time.time() + 60)
    run(tmp_path, "set b 1", "save")
    if ends == "cleanly":
        with Server("--dir", tmp_path, *ON) as server:
            assert found(server) == {"a": "1", "b": "1"}
        return
    before = all_files(tmp_path)
    said = refused(tmp_path, *ON)
    assert f"To go on with {tmp_path}/dump.rdb, move {tmp_path}/appendonlydir away" in said
    assert all_files(tmp_path) == before
    shutil.move(tmp_path / "dump.rdb", tmp_path / "dump.away")
    with Server("--dir", tmp_path, *ON) as server:
        assert found(server) == {"a": "2"}


def test_log_that_another_process_has_changed_and_a_snapshot(tmp_path):
    """Each holds writes that were acknowledged and that the other one lacks."""
    with Server("--dir", tmp_path, *SYNCED, "--shutdown-timeout", 0) as server:
        client = Client(server)
        assert client.call("set", "ours", 1) == "+OK"
        (path,) = (tmp_path / "appendonlydir").glob("*.incr.aof")
        with path.open("ab") as file:
            file.write(encoded(b"SET", b"theirs", b"1"))
        # Its reply waits for a log that cannot be written.
        Client(server).send("set", "ours", 2)
        # By then it is known, too, that the log has been changed.
        await_refusal(client, server)
        assert client.call("save") == "+OK"
    assert f"To go on with {tmp_path}/dump.rdb, move {tmp_path}/appendonlydir away" in refused(tmp_path, *ON)


# Refusals, with the next step.


def test_start_is_refused_where_files_of_the_log_are_gone(tmp_path):
    run(tmp_path, "set a 1", "bgrewriteaof", "set a 2", directives=ON)
    directory = tmp_path / "appendonlydir"
    base = directory / "appendonly.aof.1.base.rdb"
    shutil.move(base, tmp_path / "hidden")
    before = all_files(tmp_path)
    said = refused(tmp_path, *ON)
    assert f"{directory}/appendonly.aof.manifest names files that are not there: {base.name}. Nothing was changed" in said
    assert f"move {directory} away to start without this log, empty" in said
    assert all_files(tmp_path) == before
    with Server("--dir", tmp_path, *OFF) as server:
        assert "names files that are not there" in server.log()
    assert all_files(tmp_path) == before
    shutil.move(tmp_path / "hidden", base)
    with Server("--dir", tmp_path, *ON) as server:
        assert found(server) == {"a": "2"}


def test_start_is_refused_where_an_older_redis_has_written_a_log_beside(tmp_path):
    run(tmp_path, "set a 1", directives=ON)
    single = tmp_path / "appendonly.aof"
    single.write_bytes(encoded(b"SET", b"a", b"2"))
    age(single, time.time() + 60)
    said = refused(tmp_path, *ON)
    assert f"To go on with {single}, move {tmp_path}/appendonlydir away; to go on with the log, move {single} away" in said
    age(single, OLD)
    with Server("--dir", tmp_path, *ON) as server:
        assert found(server) == {"a": "1"}
    shutil.rmtree(tmp_path / "appendonlydir")
    with Server("--dir", tmp_path, *ON) as server:
        assert found(server) == {"a": "2"}


@pytest.mark.parametrize("directives", [ON, OFF], ids=["log", "no log"])
def test_damaged_snapshot_ends_the_start_with_the_next_step(directives, tmp_path):
    run(tmp_path, "set a 1", "save")
    path = tmp_path / "dump.rdb"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    before = all_files(tmp_path)
    said = refused(tmp_path, *directives)
    assert said.count("cannot load") == 1 and f"cannot load {path}: " in said
    assert f"'dunlin check {path}'" in said and "move it away" in said and "Nothing was changed" in said
    assert {path: data for path, data in all_files(tmp_path).items() if data} == before


@pytest.mark.parametrize("directives", [ON, OFF], ids=["log", "no log"])
def test_start_names_data_sets_of_other_names(directives, tmp_path):
    other = {"--dbfilename": "old.rdb", "--appendfilename": "old.aof", "--appenddirname": "olddir"}
    run(tmp_path, "set a 1", "save", directives=(*ON, *[word for pair in other.items() for word in pair]))
    before = all_files(tmp_path)
    with Server("--dir", tmp_path, *directives) as server:
        assert found(server) == {}
        (line,) = [line for line in server.log().splitlines() if "not loaded" in line]
        assert f"{tmp_path}/old.rdb" in line and f"{tmp_path}/olddir/old.aof.manifest" in line
    assert before.items() <= all_files(tmp_path).items()


# Kills and power cuts.


@pytest.mark.parametrize("power", ["", "1"], ids=["kill", "power cut"])
@pytest.mark.parametrize("old", ["no log", "an older log", "a single file"])
def test_take_over_that_is_killed_at_every_change_of_a_file(old, power, library, tmp_path):
    """A snapshot becomes the base of a log: wherever that ends, the next start has the same data, and the old log is there."""
    origin = tmp_path / "origin"
    origin.mkdir()
    if old == "an older log":
        run(origin, "set old 1", "bgrewriteaof", "set old 2", directives=ON)
        age(origin / "appendonlydir")
    if old == "a single file":
        (origin / "appendonly.aof").write_bytes(encoded(b"SET", b"old", b"2"))
        age(origin / "appendonly.aof")
    apart(origin, "set a 1", "save")
    before = {path: data for path, data in all_files(origin).items() if data and not path.endswith("manifest")}
    disk = Disk(library, tmp_path)
    at, has_survived = 0, False
    while not has_survived:
        at += 1
        shutil.rmtree(disk.data)
        shutil.copytree(origin, disk.data)
        acknowledged = sent = {"a": "1"}
        try:
            server = Server(*SYNCED, "--dir", disk.data, environment=disk.environment(KILL_AT=at, POWER=power))
        except AssertionError as error:
            assert "ended with -9" in str(error), error
        else:
            # The start has ended: writes that are acknowledged from now on stay.
            sent = {**sent, "b": "2"}
            try:
                has_survived = Client(server).call("set", "b", "2") == "+OK"
            except OSError:
                pass
            if has_survived:
                acknowledged = sent
            server.kill()
        for _ in range(2):
            with Server("--dir", disk.data, *ON) as again:
                assert found(again) in (acknowledged, sent), f"call {at}: {again.log()}"
                assert "lost-" not in again.log(), f"call {at}: {again.log()}"
        after = all_files(disk.data)
        lost = [path for path, data in before.items() if not is_kept(path, data, after)]
        assert not lost, f"call {at}: {lost} of {sorted(after)}"
    assert at > 8, "the scenario changes many files"


def test_snapshot_holds_no_more_than_its_log_after_a_power_cut(library, tmp_path):
    """The log is synced once a second, a snapshot before it gets its name: its log must not end before it."""
    disk = Disk(library, tmp_path)
    at, has_survived = 0, False
    while not has_survived:
        at += 1
        shutil.rmtree(disk.data)
        disk.data.mkdir()
        try:
            server = disk.server("--appendfsync", "everysec", KILL_AT=at, POWER="1")
        except AssertionError as error:
            assert "ended with -9" in str(error), error
        else:
            client = Client(server)
            try:
                for number in range(3):
                    assert client.call("set", "n", number) == "+OK"
                    assert client.call("bgsave").startswith("+")
                    await_that(lambda: "rdb_bgsave_in_progress:0" in client.call("info", "persistence"))
                has_survived = True
            except (OSError, AssertionError, ValueError):
                pass
            server.kill()
        snapshot = {}
        if (disk.data / "dump.rdb").exists():
            with Server("--dir", disk.data, *OFF) as alone:
                snapshot = found(alone)
        with Server("--dir", disk.data, *ON) as again:
            after = found(again)
            assert int(after.get("n", -1)) >= int(snapshot.get("n", -1)), f"call {at}: {again.log()}"
    assert at > 20, "the scenario changes many files"
