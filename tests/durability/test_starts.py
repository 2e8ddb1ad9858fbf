"""Whatever a directory holds, a start ends with the best of it, and loses nothing of what it does not load."""

import os
import shutil
import subprocess
import time

import pytest

from harness import DUNLIN, ORACLE, Server, command, free_port, is_redis
from test_log import Client, await_rewrite, encoded

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="Redis starts empty in some of these cases")

ON = ("--appendonly", "yes", "--auto-aof-rewrite-percentage", "0")
OFF = ("--appendonly", "no")
OLD = 1_000_000_000


def fill(folder, *words, program=DUNLIN, directives=OFF, saves=False):
    """Has a server add to what a directory holds."""
    with Server("--dir", folder, *directives, program=program) as server:
        client = Client(server)
        for line in words:
            assert not str(client.call(*line.split())).startswith("-"), line
        if directives is ON:
            assert client.call("config", "set", "appendfsync", "always") == "+OK"
            assert client.call("set", "synced", 1) == "+OK"
            assert client.call("del", "synced") == 1
        if saves:
            assert client.call("save") == "+OK"


def age(folder, when):
    """Has files been written to last at that time."""
    for path in [folder] if folder.is_file() else folder.iterdir():
        os.utime(path, (when, when))


def found(server):
    client = Client(server)
    keys = sorted(client.call("keys", "*"))
    return {key: client.call("get", key) for key in keys}


def all_files(folder):
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name not in ("socket", ".dunlin.lock")]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def expect(folder, expected, *directives):
    """Starts servers until what is there has been loaded, changed, saved and loaded again; the last log."""
    with Server("--dir", folder, *directives) as server:
        assert found(server) == expected, server.log()
        client = Client(server)
        assert client.call("set", "more", 1) == "+OK"
        log = server.log()
    if "yes" in directives:
        with Server("--dir", folder, *directives) as server:
            assert found(server) == {**expected, "more": "1"}, server.log()
    return log


def snapshot_only(folder, program):
    fill(folder, "set a 1", program=program, saves=True)
    return {"a": "1"}


def snapshot_and_a_void_log(folder, program):
    """What a start of redis-server with appendonly makes of a directory with a snapshot."""
    fill(folder, "set a 1", program=program, saves=True)
    shutil.move(folder / "dump.rdb", folder / "hidden")
    fill(folder, program=program, directives=("--appendonly", "yes"))
    shutil.move(folder / "hidden", folder / "dump.rdb")
    return {"a": "1"}


def log_only(folder, program):
    fill(folder, "set a 1", program=program, directives=ON)
    (folder / "dump.rdb").unlink(missing_ok=True)
    return {"a": "1"}


def log_and_an_older_snapshot(folder, program):
    fill(folder, "set a 1", program=program, saves=True)
    shutil.move(folder / "dump.rdb", folder / "hidden")
    fill(folder, "set a 2", program=program, directives=ON)
    shutil.move(folder / "hidden", folder / "dump.rdb")
    age(folder / "appendonlydir", time.time() + 5)
    return {"a": "2"}


def log_that_was_turned_off(folder, program):
    fill(folder, "set a 1", "set gone 1", program=program, directives=ON)
    age(folder / "appendonlydir", OLD)
    shutil.move(folder / "appendonlydir", folder / "hidden")
    fill(folder, "set a 2", program=program, saves=True)
    shutil.move(folder / "hidden", folder / "appendonlydir")
    return {"a": "2"}


def single_file(folder, program):
    (folder / "appendonly.aof").write_bytes(encoded(b"SET", b"a", b"1"))
    return {"a": "1"}


def single_file_and_an_older_snapshot(folder, program):
    fill(folder, "set a 2", program=program, saves=True)
    (folder / "appendonly.aof").write_bytes(encoded(b"SET", b"a", b"1"))
    age(folder / "appendonly.aof", time.time() + 5)
    return {"a": "1"}


def single_file_and_a_newer_snapshot(folder, program):
    (folder / "appendonly.aof").write_bytes(encoded(b"SET", b"a", b"1"))
    age(folder / "appendonly.aof", OLD)
    save_apart(folder, "set a 2", program)
    return {"a": "2"}


def save_apart(folder, line, program=DUNLIN):
    """A snapshot by a server that does not see what else there is."""
    apart = folder / "apart"
    apart.mkdir()
    fill(apart, line, program=program, saves=True)
    shutil.move(apart / "dump.rdb", folder / "dump.rdb")
    apart.rmdir()


def single_file_and_an_older_log(folder, program):
    fill(folder, "set a 1", program=program, directives=ON)
    (folder / "appendonly.aof").write_bytes(encoded(b"SET", b"a", b"2"))
    age(folder / "appendonlydir", OLD)
    return {"a": "2"}


def files_without_a_manifest(folder, program):
    fill(folder, "set a 1", program=program, directives=ON)
    (folder / "appendonlydir/appendonly.aof.manifest").unlink()
    (folder / "dump.rdb").unlink(missing_ok=True)
    return {"a": "1"}


def manifest_without_files_and_a_snapshot(folder, program):
    fill(folder, "set a 1", program=program, directives=ON)
    for path in (folder / "appendonlydir").iterdir():
        if path.suffix != ".manifest":
            path.unlink()
    save_apart(folder, "set a 2")
    return {"a": "2"}


def unfinished_files(folder, program):
    fill(folder, "set a 1", program=program, saves=True)
    (folder / "temp-99999999.rdb").write_bytes(b"REDIS0011")
    (folder / "appendonlydir").mkdir()
    (folder / "appendonlydir/temp-appendonly.aof.manifest").write_bytes(b"file x seq 1 ty")
    (folder / "appendonlydir/temp-base-99999999.rdb").write_bytes(b"REDIS0011")
    return {"a": "1"}


CASES = [
    snapshot_only,
    snapshot_and_a_void_log,
    log_only,
    log_and_an_older_snapshot,
    log_that_was_turned_off,
    single_file,
    single_file_and_an_older_snapshot,
    single_file_and_a_newer_snapshot,
    single_file_and_an_older_log,
    files_without_a_manifest,
    manifest_without_files_and_a_snapshot,
    unfinished_files,
]


@pytest.mark.parametrize("directives", [ON, OFF], ids=["appendonly", "no log"])
@pytest.mark.parametrize("program", [DUNLIN, ORACLE], ids=["dunlin", "redis"])
@pytest.mark.parametrize("case", CASES)
def test_start_loads_the_best_of_what_is_there(case, program, directives, tmp_path):
    expected = case(tmp_path, program)
    before = {path: data for path, data in all_files(tmp_path).items() if data and "temp-" not in path}
    log = expect(tmp_path, expected, *directives)
    after = all_files(tmp_path)
    if directives is OFF:
        assert {path: after[path] for path in before} == before, "nothing is touched"
    else:
        # Files whose content goes on elsewhere: the newest increment grows, the manifest names what there is.
        kept = list(after.values())
        for path, data in before.items():
            is_there = any(data == other or (path.endswith(".aof") and other.startswith(data.rstrip(b"#\n"))) for other in kept)
            assert is_there or path.endswith(".manifest"), f"{path} is lost\n{log}"
        assert not [path for path in after if "temp-" in path and path.endswith(".rdb")]


def test_snapshot_becomes_the_base_of_a_log_and_the_start_says_so(tmp_path):
    fill(tmp_path, *(f"set k:{number} {number}" for number in range(1000)), saves=True)
    server = Server("--dir", tmp_path, *ON, "--appendfsync", "always")
    client = Client(server)
    assert client.call("dbsize") == 1000
    assert client.call("set", "more", 1) == "+OK"
    base = tmp_path / "appendonlydir/appendonly.aof.1.base.rdb"
    assert base.read_bytes() == (tmp_path / "dump.rdb").read_bytes()
    assert f"{tmp_path}/dump.rdb is loaded, and a copy of it is the base of the append-only log: {base}" in server.log()
    server.kill()
    with Server("--dir", tmp_path, *ON) as again:
        assert Client(again).call("dbsize") == 1001
        assert "is the base" not in again.log()
    with Server("--dir", tmp_path, *ON, program=ORACLE) as redis:
        assert Client(redis).call("dbsize") == 1001


def test_log_that_is_turned_off_and_on_again_loses_nothing(tmp_path):
    """At every stage the server is killed, and another one finds what was durable by then."""
    for stage in ("off", "saved", "on", "changed"):
        folder = tmp_path / stage
        folder.mkdir()
        expected = {"a": "1"}
        server = Server("--dir", folder, *ON, "--appendfsync", "always")
        client = Client(server)
        assert client.call("set", "a", 1) == "+OK"
        assert client.call("config", "set", "appendonly", "no") == "+OK"
        assert client.call("set", "b", 2) == "+OK"
        if stage != "off":
            assert client.call("save") == "+OK"
            expected["b"] = "2"
        if stage in ("on", "changed"):
            assert client.call("config", "set", "appendonly", "yes") == "+OK"
            await_rewrite(client)
        if stage == "changed":
            assert client.call("set", "c", 3) == "+OK"
            expected["c"] = "3"
        server.kill()
        for directives in (OFF, ON, OFF, ON):
            with Server("--dir", folder, *directives) as again:
                assert found(again) == expected, f"{stage}, {directives}\n{again.log()}"


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


@pytest.mark.parametrize("way", ["save", "bgsave"])
def test_snapshot_of_somebody_else_is_kept(way, tmp_path):
    with Server("--dir", tmp_path) as server:
        client = Client(server)
        assert client.call("save") == "+OK"
        (tmp_path / "dump.rdb").write_bytes(b"theirs")
        for number in range(2):
            assert client.call("set", "a", number) == "+OK"
            assert not client.call(way).startswith("-")
            deadline = time.monotonic() + 20
            while "rdb_bgsave_in_progress:1" in client.call("info", "persistence"):
                assert time.monotonic() < deadline
        assert (tmp_path / "kept-1-dump.rdb").read_bytes() == b"theirs"
        assert not (tmp_path / "kept-2-dump.rdb").exists()
        assert f"it is kept as {tmp_path}/kept-1-dump.rdb" in server.log()
    with Server("--dir", tmp_path) as server:
        assert found(server) == {"a": "1"}


def test_log_that_ends_before_its_snapshot_gives_way_to_it(tmp_path):
    """A power cut may leave less of the log than of a snapshot that was synced later."""
    fill(tmp_path, "set a 1", "set b 2", directives=ON, saves=True)
    (path,) = (tmp_path / "appendonlydir").glob("*.incr.aof")
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"*3\r\n$3\r\nset\r\n$1\r\nb")])
    with Server("--dir", tmp_path, *ON) as server:
        assert found(server) == {"a": "1", "b": "2"}, server.log()
        assert "kept-1" in server.log()
    assert (tmp_path / "appendonlydir/kept-1/appendonly.aof.manifest").exists()


AMBIGUOUS = {
    "a manifest without files": lambda log: [path.unlink() for path in log.iterdir() if path.suffix != ".manifest"],
    "files without a manifest": lambda log: [
        (log / "appendonly.aof.manifest").unlink(),
        (log / "appendonly.aof.7.incr.aof").write_bytes(encoded(b"SET", b"x", b"1")),
    ],
}


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_start_is_refused_where_nobody_knows_what_the_log_was(case, tmp_path):
    fill(tmp_path, "set a 1", directives=ON)
    AMBIGUOUS[case](tmp_path / "appendonlydir")
    before = all_files(tmp_path)
    words = ["--bind", "127.0.0.1", "--port", free_port(), "--dir", tmp_path, *ON]
    result = subprocess.run(command(DUNLIN, *words), capture_output=True, timeout=30)
    said = (result.stdout + result.stderr).decode()
    assert result.returncode == 1 and "Nothing was changed" in said and "move" in said, said
    assert all_files(tmp_path) == before
    with Server("--dir", tmp_path, *OFF) as server:
        assert "it is left as it is" in server.log()
    assert all_files(tmp_path) == before
