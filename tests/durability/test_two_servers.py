"""Two servers on one directory: the second one is refused, and a server that writes into the log all the same is
noticed."""

import shutil
import subprocess

import pytest

from harness import DUNLIN, ORACLE, Server, command, free_port, is_redis
from log_files import Client, await_refusal, await_rewrite

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="Redis does not lock its directory")

KEEPERS = {
    "the log": ("--appendonly", "yes"),
    "save points": ("--save", "3600 1"),
}


def refused(*arguments):
    """The output of a server that does not start."""
    words = ["--bind", "127.0.0.1", "--port", free_port(), *arguments]
    result = subprocess.run(command(DUNLIN, *words), stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    said = (result.stderr + result.stdout).decode()
    assert result.returncode == 1, said
    (line,) = [line for line in said.splitlines() if line.startswith("dunlin: ")]
    assert "Ready to accept" not in said
    return line


def tool(*words):
    result = subprocess.run([DUNLIN, *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    return result.returncode, (result.stdout + result.stderr).decode()


@pytest.mark.parametrize("second", KEEPERS)
@pytest.mark.parametrize("first", KEEPERS)
def test_directory_lock_refuses_a_second_server_and_names_the_first(first, second):
    with Server(*KEEPERS[first]) as server:
        line = refused("--dir", server.folder, *KEEPERS[second])
        assert f"process {server.process.pid}" in line and "--dir" in line and str(server.folder) in line
        assert Client(server).call("set", "a", 1) == "+OK"


def test_directory_lock_leaves_nothing_behind_and_ends_with_a_kill(tmp_path):
    for ends in (Server.stop, Server.kill, Server.stop):
        server = Server("--appendonly", "yes", "--dir", tmp_path)
        lock = tmp_path / ".dunlin.lock"
        assert f"pid {server.process.pid}\n" in lock.read_text()
        ends(server)
        assert lock.exists() == (ends is Server.kill)


def test_directory_lock_is_not_taken_by_servers_that_keep_nothing(tmp_path):
    with Server("--dir", tmp_path) as one, Server("--dir", tmp_path) as two:
        assert not (tmp_path / ".dunlin.lock").exists()
        first, second = Client(one), Client(two)
        assert first.call("save") == "+OK"
        expected = f"in use by process {one.process.pid}"
        for words in (["save"], ["bgsave"], ["bgrewriteaof"]):
            assert expected in second.call(*words), words
        for words in (["appendonly", "yes"], ["save", "60 1"]):
            assert expected in second.call("config", "set", *words), words
            assert second.call("config", "get", words[0])[1] in ("no", "")
        assert f"process {one.process.pid}" in refused("--dir", tmp_path)


def test_directory_lock_follows_config_set_dir(tmp_path):
    for name in "abc":
        (tmp_path / name).mkdir()
    protected = ("--enable-protected-configs", "yes", "--save", "3600 1")
    with Server("--dir", tmp_path / "a", *protected) as one, Server("--dir", tmp_path / "b", *protected) as two:
        first, second = Client(one), Client(two)
        reply = second.call("config", "set", "dir", tmp_path / "a")
        assert f"in use by process {one.process.pid}" in reply and "'dir'" in reply
        assert second.call("config", "get", "dir")[1] == str(tmp_path / "b")
        assert second.call("save") == "+OK" and (tmp_path / "b/dump.rdb").exists()
        assert first.call("config", "set", "dir", tmp_path / "c") == "+OK"
        assert second.call("config", "set", "dir", tmp_path / "a") == "+OK"
        # The log stays where it has begun, and so does its lock.
        assert second.call("config", "set", "appendonly", "yes") == "+OK"
        await_rewrite(second)
        assert second.call("config", "set", "dir", tmp_path / "b") == "+OK"
        assert f"process {two.process.pid}" in first.call("config", "set", "dir", tmp_path / "a")
        assert second.call("config", "set", "appendonly", "no") == "+OK"
        assert first.call("config", "set", "dir", tmp_path / "a") == "+OK"
        assert second.call("config", "set", "save", "", "appendonly", "no") == "+OK"


def test_directory_that_cannot_be_locked_is_told_of(tmp_path):
    (tmp_path / ".dunlin.lock").mkdir()
    with Server("--appendonly", "yes", "--dir", tmp_path) as server:
        assert "cannot be locked" in server.log()
        assert Client(server).call("set", "a", 1) == "+OK"


def test_tools_refuse_the_files_of_a_running_server(tmp_path):
    with Server("--appendonly", "yes", "--appendfsync", "always") as server:
        client = Client(server)
        assert client.call("set", "a", 1) == "+OK"
        assert client.call("save") == "+OK"
        pid = f"process {server.process.pid}"
        files = {path: path.read_bytes() for path in server.folder.rglob("*.aof")}
        for path in (server.folder, server.folder / "appendonlydir", *files):
            code, said = tool("check", "--fix", "--yes", path)
            assert code == 1 and pid in said, said
        for source, destination in [
            (server.folder / "appendonlydir", tmp_path / "out.rdb"),
            (server.folder / "dump.rdb", tmp_path / "out.rdb"),
            (tmp_path / "none.rdb", server.folder / "appendonlydir"),
            (tmp_path / "none.rdb", server.folder / "new.rdb"),
        ]:
            code, said = tool("convert", "--force", source, destination)
            assert code == 1 and pid in said, said
        assert {path: path.read_bytes() for path in files} == files
        code, said = tool("check", server.folder)
        assert code == 0 and pid in said and "good" in said


def redis_on(server, *directives):
    """A redis-server on the directory of another server, which it does not ask."""
    return Server("--appendonly", "yes", "--dir", server.folder, *directives, program=ORACLE)


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_log_stops_where_redis_has_written_and_keeps_what_both_have_acknowledged(policy, tmp_path):
    with Server("--appendonly", "yes", "--appendfsync", policy, "--enable-debug-command", "yes") as server:
        client = Client(server)
        for number in range(100):
            assert client.call("set", f"ours:{number}", number) == "+OK"
        assert client.call("waitaof", 1, 0, 0) == [1, 0]
        with redis_on(server, "--appendfsync", "always") as other:
            theirs = Client(other)
            assert theirs.call("dbsize") == 100
            assert theirs.call("set", "theirs", "1") == "+OK"
            client.send("set", "late", "1")
            if policy == "everysec":
                assert client.read() == "+OK"
            watcher = Client(server)
            await_refusal(watcher, server)
            reply = watcher.call("set", "refused", "1")
            assert reply.startswith("-MISCONF Errors writing to the AOF file: another process has changed"), reply
            assert theirs.call("set", "theirs", "2") == "+OK"
        # The other one is gone: nothing is destroyed, and a new log can be begun.
        assert watcher.call("set", "refused", "1").startswith("-MISCONF")
        shutil.copytree(server.folder / "appendonlydir", tmp_path / "appendonlydir")
        assert watcher.call("config", "set", "appendonly", "no") == "+OK"
        if policy == "always":
            assert "another process has changed" in (reply := client.read()) and "The command has run" in reply
        assert watcher.call("config", "set", "appendonly", "yes") == "+OK"
        await_rewrite(watcher)
        assert watcher.call("set", "accepted", "1") == "+OK"
        assert watcher.call("debug", "loadaof") == "+OK"
        assert watcher.call("mget", "ours:99", "late", "accepted") == ["99", "1", "1"]
        kept = server.folder / "appendonlydir/kept-1"
        assert str(kept) in server.log()
        code, said = tool("check", kept)
        assert code == 0, said
    with Server("--appendonly", "yes", "--dir", tmp_path) as again:
        client = Client(again)
        assert client.call("dbsize") == 101 and client.call("get", "theirs") == "2"


def test_log_stops_where_redis_has_rewritten_it():
    with Server("--appendonly", "yes", "--appendfsync", "always", "--enable-debug-command", "yes") as server:
        client = Client(server)
        assert client.call("set", "a", 1) == "+OK"
        with redis_on(server, "--auto-aof-rewrite-percentage", "0") as other:
            theirs = Client(other)
            assert theirs.call("bgrewriteaof").startswith("+Background")
            await_rewrite(theirs)
            client.send("set", "late", "1")
            watcher = Client(server)
            await_refusal(watcher, server)
            assert watcher.call("set", "b", 1).startswith("-MISCONF")
            assert theirs.call("get", "a") == "1"
        with redis_on(server) as again:
            assert Client(again).call("get", "a") == "1"
        assert watcher.call("config", "set", "appendonly", "no") == "+OK"


def test_server_does_not_start_on_a_log_that_redis_is_writing():
    with Server("--appendonly", "yes", program=ORACLE) as redis:
        theirs = Client(redis)
        assert theirs.call("set", "a", 1) == "+OK"
        line = refused("--appendonly", "yes", "--dir", redis.folder)
        assert f"process {redis.process.pid} (redis-server)" in line and "stop it first" in line
        code, said = tool("convert", redis.folder / "appendonlydir", redis.folder / "new.rdb")
        assert code == 1 and str(redis.process.pid) in said
        assert theirs.call("set", "b", 1) == "+OK"


def test_rolling_restart_loses_nothing_that_was_acknowledged(tmp_path):
    """The next server is started before the last one has ended: it is refused until then, and has everything after."""
    acknowledged = 0
    for _ in range(3):
        with Server("--appendonly", "yes", "--dir", tmp_path) as old:
            client = Client(old)
            assert int(client.call("get", "n") or 0) == acknowledged
            for _ in range(50):
                acknowledged = client.call("incr", "n")
                if acknowledged % 25 == 0:
                    refused("--appendonly", "yes", "--dir", tmp_path)
