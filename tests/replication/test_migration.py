"""docs/migration.md: its commands, as they stand there, and claims that no other test has."""

import re
import shlex
import socket
import subprocess
import threading

import pytest
import redis

import pages
from harness import DUNLIN, ORACLE, Server, is_redis
from links import Node, has_link, is_online, settle, until
from pages import page
from sentinels import NAME, Sentinel

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="about moves to Dunlin")

PAGE = page("migration.md")
# It needs a cluster: cluster/test_cluster_cli.py, cli_imports_from_a_server.
ELSEWHERE = "redis-cli --cluster import"


def blocks():
    return pages.blocks(PAGE, lambda line: line.startswith(ELSEWHERE))


def run(line, places):
    has_no_target = line.startswith("dunlin adopt") and "--into" not in line
    return pages.run(line, places, more=["--into", places["NEW"]] if has_no_target else [])


def fill(server):
    client = redis.Redis(port=server.port, protocol=2)
    for number in range(100):
        client.set(f"text {number}", number)
    client.rpush("list", *range(300))
    client.hset("hash", mapping={"a": 1, "b": 2})
    client.zadd("sorted", {"one": 1.5})
    client.xadd("stream", {"a": 1}, id="1-1")
    client.set("expiring", 1, ex=100_000)
    client.close()


def test_commands_of_the_page_work(tmp_path):
    page = blocks()
    assert {heading: len(lines) for heading, lines in page.items()} == {
        "Look first": 2, "From where": 2, "With Sentinel": 3, "From Redis Cluster": 3, "The way back": 2,
    }  # fmt: skip
    with Node(ORACLE) as old, Node(DUNLIN) as new:
        fill(old)
        expected = old.digest()
        uris = {"redis://old:6379": f"redis://127.0.0.1:{old.port}", "redis://new:6379": f"redis://127.0.0.1:{new.port}"}
        places = {**uris, "NEW": uris["redis://new:6379"], "/var/lib/redis": old.folder, "/var/lib/dunlin": tmp_path}

        look, check = page["Look first"]
        assert "nothing would be lost. Nothing was changed" in run(look, places)
        old.client.save()
        assert "good: an RDB file of 105 keys" in run(check, places)

        copy, start = page["From where"]
        run(copy, places)
        words = shlex.split(start.replace("/var/lib/dunlin", str(tmp_path)))
        assert words[:3] == ["dunlin", "server", "--dir"]
        with Server("--enable-debug-command", "yes", "--dir", tmp_path) as loaded:
            client = redis.Redis(port=loaded.port, protocol=2)
            assert client.execute_command("DEBUG", "DIGEST") == expected

        adopt, convert = page["The way back"]
        # There first.
        run("dunlin adopt redis://old:6379 --into redis://new:6379 --hand-over", places)
        until(lambda: has_link(old), "the old server as a replica")
        new.client.set("afterwards", 1)
        assert "all equal" in run(adopt.split("#")[0] + "--hand-over", {name: place for name, place in places.items() if name.startswith("redis:")})
        assert old.info()["role"] == "master" and old.client.get("afterwards") == b"1"
        (old.folder / "dump.rdb").unlink()
        run(convert, places)
        # What is for 7.2 is too new for 7.0, as the table says.
        assert (old.folder / "dump.rdb").read_bytes().startswith(b"REDIS0011")
        run(convert.replace("--rdb-version 11", "--rdb-version 10 --force"), places)
        with Server(program=ORACLE, files=old.folder) as loaded:
            assert redis.Redis(port=loaded.port, protocol=2).dbsize() == 105


def test_commands_with_sentinel_work():
    lines = blocks()["With Sentinel"]
    with Node(ORACLE, config="# of the node\n") as old, Node(DUNLIN, config="# of the node\n") as new:
        fill(old)
        with Sentinel(ORACLE, old) as sentinel:
            places = {
                "-h new": f"-p {new.port}", "old 6379": f"127.0.0.1 {old.port}",
                "-h sentinel -p 26379": f"-p {sentinel.port}", "mymaster": NAME,
            }  # fmt: skip
            assert run(lines[0], places).strip() == "OK"
            settle(old, new)
            is_online(old)
            until(lambda: sentinel.knows(new), "the discovery of the replica")
            assert str(new.port) in run(lines[1], places)
            assert run(lines[2], places).strip() == "OK"
            until(lambda: sentinel.primary() == new.port, "the failover", deadline_s=180)
            until(lambda: new.info()["role"] == "master", "the new primary")
            until(lambda: old.info()["role"] == "slave" and has_link(old), "the demotion", deadline_s=180)
            settle(new, old)


@pytest.fixture
def member():
    """A node of a Redis Cluster that has all slots."""
    with Node(ORACLE, "--cluster-enabled", "yes") as server:
        server.call("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        until(lambda: b"cluster_state:ok" in server.call("CLUSTER", "INFO"), "a cluster")
        fill(server)
        yield server


def test_primary_of_a_redis_cluster_is_copied(member):
    lines = blocks()["From Redis Cluster"]
    with Node(DUNLIN) as new:
        places = {"-h new": f"-p {new.port}", "old 6379": f"127.0.0.1 {member.port}"}
        assert run(lines[0], places).strip() == "OK"
        settle(member, new)
        member.client.set("afterwards", 1)
        settle(member, new)
        assert "master_link_status:up" in run(lines[1], places)
        expected = member.digest()
        assert run(lines[2], places).strip() == "OK"
        assert (new.info()["role"], new.digest()) == ("master", expected)


def test_adopt_refuses_a_member_of_a_cluster(member):
    with Node(DUNLIN) as new:
        words = [DUNLIN, "adopt", f"redis://127.0.0.1:{member.port}", "--into", f"redis://127.0.0.1:{new.port}", "--dry-run"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and "STOP  the old server is a member of a cluster" in done.stdout


def answer_as_dragonfly(client):
    """Answers INFO with its fields and SELECT, and refuses everything else."""
    fields = b"# Server\r\nredis_version:7.4.0\r\ndragonfly_version:df-v1.36.0\r\nrole:master\r\n"
    with client, client.makefile("rb") as requests:
        while head := requests.readline():
            words = [requests.read(int(requests.readline()[1:]) + 2)[:-2] for _ in range(int(head[1:]))]
            answers = {b"INFO": b"$%d\r\n%s\r\n" % (len(fields), fields), b"SELECT": b"+OK\r\n"}
            client.sendall(answers.get(words[0].upper(), b"-ERR unknown command\r\n"))


def test_adopt_refuses_dragonfly():
    with socket.create_server(("127.0.0.1", 0)) as listener, Node(DUNLIN) as new:
        threading.Thread(target=lambda: answer_as_dragonfly(listener.accept()[0]), daemon=True).start()
        words = [DUNLIN, "adopt", f"redis://127.0.0.1:{listener.getsockname()[1]}", "--into", f"redis://127.0.0.1:{new.port}"]
        done = subprocess.run([*words, "--dry-run"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and "STOP  the old server is Dragonfly" in done.stdout, done.stdout + done.stderr


def test_file_of_an_unknown_version_says_what_to_do(tmp_path):
    with Server(program=ORACLE) as server:
        client = redis.Redis(port=server.port)
        client.set("a", 1)
        client.save()
        data = bytearray((server.folder / "dump.rdb").read_bytes())
    assert data.startswith(b"REDIS0010")
    # A version that is to come, without a checksum.
    data[:9], data[-8:] = b"REDIS0016", bytes(8)
    (tmp_path / "dump.rdb").write_bytes(data)
    with pytest.raises(AssertionError, match="known are REDIS0001 to REDIS0015, VALKEY080 to VALKEY081.*rdb-version-check relaxed"):
        Server(files=tmp_path)
    with Server("--rdb-version-check", "relaxed", files=tmp_path) as server:
        assert redis.Redis(port=server.port).get("a") == b"1"
    done = subprocess.run([DUNLIN, "check", tmp_path / "dump.rdb"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "rdb-version-check relaxed reads it" in done.stdout


def test_roles_of_valkey_9_2_are_refused(tmp_path):
    path = tmp_path / "users.acl"
    path.write_text("user default on nopass ~* &* +@all\nuser app on nopass role=reader\n")
    with Server() as server:
        client = redis.Redis(port=server.port)
        with pytest.raises(redis.ResponseError, match=re.escape("'role=reader': Syntax error")):
            client.execute_command("ACL", "SETUSER", "app", "role=reader")
        # The remedy of the page.
        client.execute_command("ACL", "SETUSER", "app", "on", "nopass", "(+@read ~app:*)")
        assert client.execute_command("ACL", "DRYRUN", "app", "GET", "app:1") in (b"OK", True, "OK")
    with pytest.raises(AssertionError, match=r"users.acl:2: Syntax error \(word 5\)"):
        Server("--aclfile", path)
