"""dunlin adopt: data sets move between servers of all houses while clients write."""

import contextlib
import subprocess
import threading

import pytest
import redis

from harness import DUNLIN, ORACLE, REDIS_VERSIONS, VALKEY, WITHOUT_VALKEY
from links import Node, differences, has_link, raw, settle, until

HOUSES = {"dunlin": DUNLIN, "redis": ORACLE, "valkey": VALKEY}
MOVES = [
    ("redis", "dunlin"),
    ("valkey", "dunlin"),
    ("dunlin", "dunlin"),
    ("dunlin", "redis"),
    ("dunlin", "valkey"),
    ("redis", "valkey"),
]


def node(house, *directives):
    if not HOUSES[house]:
        pytest.skip(WITHOUT_VALKEY)
    return Node(HOUSES[house], *directives)


def adopt(*arguments, code=0):
    if "--hand-over" in arguments:
        # A busy machine may need longer than it takes by itself.
        arguments = [*arguments, "--pause-max", 60]
    done = subprocess.run([DUNLIN, "adopt", *map(str, arguments)], capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def uri(server, password=None):
    return f"redis://{':' + password + '@' if password else ''}127.0.0.1:{server.port}"


def fill(server, password=None):
    client = redis.Redis(port=server.port, protocol=2, password=password, socket_timeout=60)
    for number in range(500):
        client.set(f"text {number}", "x" * number)
    client.set("long", b"\0\xff" * 700_000)
    client.set("expiring", 1, px=10_000_000)
    client.rpush("list", *range(10))
    client.rpush("long list", *(f"element {number}" for number in range(3500)))
    client.sadd("set", *range(2000))
    client.hset("hash", mapping={f"f{number}": number for number in range(1500)})
    client.hset("small hash", mapping={"a": 1, "b": 2})
    client.zadd("sorted", {f"m{number}": number / 3 for number in range(1500)})
    for number in range(2100):
        client.xadd("stream", {"n": number}, id=f"{number + 1}-1")
    client.xgroup_create("stream", "group", "0")
    client.xreadgroup("group", "one", {"stream": ">"}, count=3)
    other = redis.Redis(port=server.port, db=5, protocol=2, password=password, socket_timeout=60)
    other.set("elsewhere", 1)


class Writers:
    """Clients that count, and remember what was acknowledged."""

    def __init__(self, server):
        self.port = server.port
        self.acknowledged = [0] * 4
        self.refusals = []
        self.ended = threading.Event()
        self.threads = [threading.Thread(target=self._write, args=(number,)) for number in range(4)]
        for thread in self.threads:
            thread.start()

    def _write(self, number):
        with contextlib.closing(raw(self.port)) as client:
            while not self.ended.is_set():
                try:
                    self.acknowledged[number] = client.execute_command("INCR", f"counter {number}")
                    client.execute_command("RPUSH", f"log {number}", self.acknowledged[number])
                    client.execute_command("LTRIM", f"log {number}", -100, -1)
                except redis.RedisError as error:
                    self.refusals.append(str(error))
                    return

    def join(self):
        self.ended.set()
        for thread in self.threads:
            thread.join()


@pytest.mark.parametrize(("old", "new"), MOVES, ids=lambda house: house)
def test_adopt_under_load_loses_nothing(old, new):
    with node(old) as one, node(new) as other:
        fill(one)
        # Without it min-replicas-to-write refuses nothing.
        one.client.config_set("min-replicas-max-lag", 0)
        # A PING that comes between the equal offsets and the change of roles would cost a snapshot.
        one.client.config_set("repl-ping-replica-period", 36_000)
        writers = Writers(one)
        until(lambda: min(writers.acknowledged) > 100, "writes")
        said = adopt(uri(one), "--into", uri(other), "--hand-over")
        assert "all equal" in said and "writes were paused for" in said
        until(lambda: len(writers.refusals) == 4, "the refusal of every writer")
        writers.join()
        # Redis 7.0 does not understand Valkey 9 as its primary, and refuses writes otherwise.
        comes_back = (old, new) != ("redis", "valkey")
        refusal = "read only replica" if comes_back else "NOREPLICAS"
        assert all(refusal in refused for refused in writers.refusals)
        assert other.info()["role"] == "master"
        for number, acknowledged in enumerate(writers.acknowledged):
            assert int(other.client.get(f"counter {number}")) >= acknowledged
        if not comes_back:
            return
        until(lambda: has_link(one), "the old server as a replica")
        settle(other, one)
        assert other.info("stats")["sync_full"] == 0, "the old server goes on where it was"
        # The way back.
        other.client.set("afterwards", 1)
        said = adopt(uri(other), "--into", uri(one), "--hand-over")
        assert "all equal" in said
        assert one.info()["role"] == "master"
        assert one.client.get("afterwards") == b"1"


def test_adopt_without_a_word_changes_nothing_but_the_replica():
    with node("redis") as one, node("dunlin") as other:
        fill(one)
        said = adopt(uri(one), "--into", uri(other))
        assert "goes on as a replica" in said
        assert one.info()["role"] == "master" and one.client.set("a", 1)
        settle(one, other)
        assert differences(one, other) == []
        assert "all equal" in adopt(uri(one), "--into", uri(other), "--hand-over"), "it goes on where it was"
        assert other.info()["role"] == "master"


def test_dry_run_changes_nothing_and_names_what_would_be_lost():
    with node("dunlin") as one, node("redis") as other:
        fill(one)
        before = one.digest()
        said = adopt(uri(one), "--into", uri(other), "--dry-run")
        assert "hash 2, list 2, set 1, stream 1, string 503, zset 1" in said
        assert "nothing would be lost" in said
        one.call("HSETEX", "fields", "EX", 1000, "FIELDS", 1, "f", "v")
        said = adopt(uri(one), "--into", uri(other), "--dry-run", code=1)
        assert "LOST  the expiry of fields in 1 hashes or more" in said
        one.call("DEL", "fields")
        assert (other.info()["role"], other.client.dbsize(), one.digest()) == ("master", 0, before)


@pytest.fixture
def redis_8():
    if "8.2" not in REDIS_VERSIONS:
        pytest.skip("no server of Redis 8.2 (scripts/get-redis.sh)")
    with Node(REDIS_VERSIONS["8.2"]) as server:
        yield server


def has_vectors(server):
    return server.call("COMMAND", "INFO", "vadd") != [None]


def test_dry_run_counts_types_that_the_new_server_lacks(redis_8):
    redis_8.client.set("text", 1)
    for number in range(3):
        redis_8.call("VADD", f"v{number}", "VALUES", 2, 1, number, "element")
    found = "3 keys of the type vectorset, such as 'v"
    with node("dunlin") as other:
        if has_vectors(other):
            pytest.skip("the type is there")
        said = adopt(uri(redis_8), "--into", uri(other), "--dry-run")
        assert "keys  string 1, vectorset 3" in said
        assert f"KEPT  {found}" in said and "no command of the new server reads them" in said and "LOST" not in said
        assert "have called commands that the new server lacks: vadd (3 calls)" in said
        said = adopt(uri(redis_8), "--into", uri(other), "--hand-over")
        assert f"KEPT  {found}" in said and "all equal" in said
        assert other.client.type("v1") == b"vectorset"
    with node("dunlin", "--module-data", "skip") as other:
        assert f"LOST  {found}" in adopt(uri(redis_8), "--into", uri(other), "--dry-run", code=1)
    with node("dunlin", "--module-data", "refuse") as other:
        said = adopt(uri(redis_8), "--into", uri(other), "--dry-run", code=1)
        assert f"STOP  {found}" in said and "which module-data refuse does not load" in said


def test_dry_run_names_rules_functions_and_directives_that_are_missing(redis_8):
    redis_8.call("ACL", "SETUSER", "bob", "on", "nopass", "~*", "+@read", "+vsim", "-config|set", "(+vadd ~v*)")
    redis_8.call("FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() return 1 end)")
    with node("dunlin") as other:
        if has_vectors(other):
            pytest.skip("the commands are there")
        said = adopt(uri(redis_8), "--into", uri(other), "--dry-run")
        assert "2 users of the old server are not moved" in said
        assert "rules of the user 'bob' that the new server lacks: +vsim, +vadd\n" in said
        assert "directives of the old server have no effect here" in said
        assert "directives that the new server would refuse" not in said
        assert "functions" not in said, "those in Lua come along"
        redis_8.call("CONFIG", "SET", "oom-score-adj", "relative")
        said = adopt(uri(redis_8), "--into", uri(other), "--dry-run")
        assert "would refuse in a file: oom-score-adj (the score is left alone; use 'no'" in said
    # A user that may not look is told so.
    redis_8.call("ACL", "SETUSER", "default", "-acl")
    with node("dunlin") as other:
        said = adopt(uri(redis_8), "--into", uri(other), "--dry-run")
        assert "the users of the old server are not known: the old server: ACL: NOPERM" in said


def test_adopt_refuses_what_would_go_wrong():
    with node("redis") as one, node("dunlin") as other, node("redis") as third:
        one.client.set("a", 1)
        third.follow(one.port)
        settle(one, third)
        other.client.set("mine", 1)
        assert "has 1 keys, which would be lost" in adopt(uri(one), "--into", uri(other), code=1)
        assert "both are the same server" in adopt(uri(one), "--into", uri(one), code=1)
        assert f"adopt its primary, 127.0.0.1:{one.port}" in adopt(uri(third), "--into", uri(other), code=1)
        assert "is a replica of another one" in adopt(uri(other), "--into", uri(third), code=1)
        redis.Redis(port=one.port, db=15).set("far", 1)
        with node("dunlin", "--databases", "4") as small:
            said = adopt(uri(one), "--into", uri(small), code=1)
            assert "database 15 of the old server has 1 keys, and the new one has 4 databases" in said
        assert other.client.keys() == [b"mine"]
        assert "all equal" in adopt(uri(one), "--into", uri(other), "--replace", "--hand-over")
        assert other.client.keys() == [b"a"]


def test_valkey_and_redis_are_led_by_way_of_dunlin():
    with node("valkey") as one, node("redis") as other:
        assert "adopt it into Dunlin" in adopt(uri(one), "--into", uri(other), "--dry-run", code=1)


@pytest.mark.parametrize("change", ["SET text 1", "SET new 1", "DEL hash", "PEXPIRE list 100000", "LPUSH stream2 1"])
def test_adopt_finds_a_difference_and_stops(change):
    with node("redis") as one, node("dunlin") as other:
        for words in ["SET text 0", "HSET hash f v", "RPUSH list a"]:
            one.call(*words.split())
        other.follow(one.port)
        settle(one, other)
        other.call("CONFIG", "SET", "replica-read-only", "no")
        other.call(*change.split())
        said = adopt(uri(one), "--into", uri(other), "--hand-over", code=1)
        assert f"DIFF  '{change.split()[1]}' in database 0" in said
        assert one.info()["role"] == "master" and other.info()["role"] == "slave"


def test_passwords_of_both_servers_are_used():
    with node("redis") as one, node("dunlin") as other:
        fill(one)
        for server, password in [(one, "old-secret"), (other, "new-secret")]:
            server.call("CONFIG", "SET", "requirepass", password)
        assert "NOAUTH" in adopt(uri(one), "--into", uri(other), code=1)
        said = adopt(uri(one, "old-secret"), "--into", uri(other, "new-secret"), "--hand-over")
        assert "all equal" in said and "secret" not in said
        with contextlib.closing(raw(one.port, password="old-secret")) as client:
            until(lambda: b"master_link_status:up" in client.execute_command("INFO", "replication"), "a link back")


def test_help_teaches_the_steps():
    said = adopt("--help")
    assert "The way back" in said or "the way back" in said
    assert "CLIENT PAUSE" in said
