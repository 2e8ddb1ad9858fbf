"""Links and moves of keys between Dunlin and each version of Redis from 6.2 on (scripts/get-redis.sh)."""

import pytest
import redis

from harness import DUNLIN, ORACLE, REDIS_VERSIONS
from link_calls import fill, random_calls, run
from links import Link, Node, differences, has_link, settle, until
from migrated import KEYS, migrate

VERSIONS = ["6.2", "7.0", "7.2", "7.4", "8.2"]


def server(version):
    program = ORACLE if version == "7.0" else REDIS_VERSIONS.get(version)
    if not program:
        pytest.skip(f"there is no Redis {version} (scripts/get-redis.sh)")
    return Node(program)


def is_from(version, first):
    return [int(part) for part in version.split(".")] >= [int(part) for part in first.split(".")]


def write(node, version):
    """Something of all that a version knows."""
    fill(node, 500)
    with redis.Redis(port=node.port, db=5, protocol=2, socket_timeout=60) as other:
        other.set("elsewhere", 1, px=10_000_000)
        other.set("long", b"x" * 3_000_000)
        other.xgroup_create("entries", "group", mkstream=True)
    if is_from(version, "7.0"):
        node.call("FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function() return 1 end)")


def follow_and_cut(primary, replica, seed):
    """A full resynchronisation, random commands, a cut, and more of them: one more partial resynchronisation and no other."""
    # Digests of hashes with fields that expire differ between the houses.
    calls = [call for call in random_calls(primary, replica, seed, 2000) if not is_about_fields(call)]
    with Link(primary.port) as link:
        replica.follow(link.port)
        settle(primary, replica)
        run(primary, calls[:1000], seed, primary.program == DUNLIN)
        full, made = primary.info("stats")["sync_full"], link.made
        link.cut()
        run(primary, calls[1000:], seed + 1, primary.program == DUNLIN)
        until(lambda: link.made > made and has_link(replica), "another link")
        settle(primary, replica)
        # Redis from 7.4 on forgets where it was if the link ends while a FLUSHALL of its primary is freed in the background.
        forgotten = replica.log().count("Partial resynchronization not possible (no cached master)")
        assert primary.info("stats")["sync_full"] == full + forgotten


def is_about_fields(call):
    name = call[0].lower()
    return name.startswith(("hexpire", "hpexpire", "hsetex", "hgetex"))


@pytest.mark.parametrize("load", ["on-empty-db", "disabled"])
@pytest.mark.parametrize("version", VERSIONS)
def test_dunlin_is_a_replica_of_each_version(version, load):
    with server(version) as primary, Node(DUNLIN, "--repl-diskless-load", load) as replica:
        write(primary, version)
        follow_and_cut(primary, replica, 3)


@pytest.mark.parametrize("version", ["7.4", "8.2"])
def test_fields_that_expire_come_from_those_that_know_them(version):
    with server(version) as primary, Node(DUNLIN) as replica:
        primary.call("HSET", "h", "a", 1, "b", 2)
        primary.call("HPEXPIRE", "h", 10_000_000, "FIELDS", 1, "a")
        replica.follow(primary.port)
        until(lambda: has_link(replica), "a link")
        primary.call("HPEXPIRE", "h", 20_000_000, "FIELDS", 1, "b")
        until(lambda: replica.call("HTTL", "h", "FIELDS", 1, "b")[0] > 0, "the second expiry")
        first, second = replica.call("HPTTL", "h", "FIELDS", 2, "a", "b")
        assert 9_900_000 < first <= 10_000_000 and 19_900_000 < second <= 20_000_000
        assert sorted(replica.call("HGETALL", "h")) == [b"1", b"2", b"a", b"b"]


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_dunlin_is_a_primary_of_each_version(version):
    with Node(DUNLIN) as primary, server(version) as replica:
        write(primary, "7.0")
        follow_and_cut(primary, replica, 4)


def test_script_loaded_in_another_database_leaves_the_stream_there():
    with server("6.2") as primary, Node(DUNLIN, "--appendonly", "yes", "--appendfsync", "always") as replica:
        replica.follow(primary.port)
        until(lambda: has_link(replica), "a link")
        with redis.Redis(port=primary.port, db=5, protocol=2) as other:
            other.script_load("return 1")
            settle(primary, replica)
            # Its new log begins where the stream is.
            is_rewritten = lambda: replica.info("persistence")["aof_rewrite_in_progress"] == 0  # noqa: E731
            until(is_rewritten, "the base of the copy")
            replica.call("BGREWRITEAOF")
            until(is_rewritten, "the rewrite")
            other.set("key", "in 5")
        settle(primary, replica)
        with Node(DUNLIN, "--appendonly", "yes", files=replica.folder) as again:
            assert again.info("keyspace").keys() == {"db5"}


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_changes_by_commands_that_a_version_lacks_reach_it(version):
    with Node(DUNLIN) as primary, server(version) as replica:
        replica.follow(primary.port)
        until(lambda: has_link(replica), "a link")
        for number in range(1, 6):
            primary.call("XADD", "entries", "KEEPREF", "MINID", "~", 1, f"{number}-0", "a", 1)
            primary.call("XADD", "old", f"{number}-0", "a", 1)
        assert primary.call("XTRIM", "old", "MINID", "~", 100) == 5
        primary.call("XGROUP", "CREATE", "entries", "group", 0)
        primary.call("XREADGROUP", "GROUP", "group", "ann", "COUNT", 4, "STREAMS", "entries", ">")
        assert primary.call("XDELEX", "entries", "DELREF", "IDS", 2, "1-0", "9-0") == [1, -1]
        assert primary.call("XACKDEL", "entries", "group", "ACKED", "IDS", 1, "2-0") == [1]
        if is_from(version, "7.4"):
            primary.call("HSETEX", "h", "EX", 10_000, "FIELDS", 2, "a", 1, "b", 2)
            primary.call("HSETEX", "h", "KEEPTTL", "FIELDS", 2, "a", 3, "c", 4)
            primary.call("HINCRBYFLOAT", "h", "b", 0.5)
        primary.call("SET", "n", 1, "EX", 10_000)
        primary.call("INCREX", "n", "BYINT", 5, "UBOUND", 9, "EX", 20_000, "ENX")
        primary.call("INCREX", "f", "BYFLOAT", "0.1", "PX", 30_000_000)
        primary.call("INCREX", "gone", "PXAT", 1)
        primary.call("RPUSH", "source", 1, 2, 3, 4, 5, 6)
        primary.call("LMOVEM", "source", "moved", "LEFT", "LEFT", "COUNT", 2, "OBO")
        primary.call("BLMOVEM", "source", "moved", "RIGHT", "LEFT", 0, "EXACTLY", 2, "BULK")
        primary.call("LMOVEM", "source", "source", "LEFT", "LEFT", "COUNT", 9, "OBO")
        primary.call("ZADD", "one", 5, "a", 6, "b")
        primary.call("ZUNIONSTORE", "both", 2, "one", "one", "WEIGHTS", 0.5, 1, "AGGREGATE", "COUNT")
        primary.call("SET", "moves", 1)
        assert primary.call("MOVE", "moves", 5, "REPLACE") == 1
        primary.call("SET", "moves", 2)
        assert primary.call("MOVE", "moves", 5, "REPLACE") == 1
        primary.call("SET", "last", 1)
        until(lambda: replica.call("GET", "last") == b"1", "all changes")
        for query in (
            ("GET", "n"),
            ("PEXPIRETIME", "n") if is_from(version, "7.0") else ("PERSIST", "nosuch"),
            ("GET", "f"),
            ("LRANGE", "source", 0, -1),
            ("LRANGE", "moved", 0, -1),
            ("ZRANGE", "both", 0, -1, "WITHSCORES"),
            ("XRANGE", "entries", "-", "+"),
            ("XPENDING", "entries", "group"),
            ("XRANGE", "old", "-", "+"),
            ("HMGET", "h", "a", "b", "c"),
        ):
            assert replica.call(*query) == primary.call(*query), query
        with redis.Redis(port=replica.port, db=5, protocol=2, socket_timeout=60) as other:
            assert other.get("moves") == b"2"
        if is_from(version, "7.4"):
            times = [node.call("HPEXPIRETIME", "h", "FIELDS", 3, "a", "b", "c") for node in (primary, replica)]
            assert times[0] == times[1]
            assert min(times[0][:2]) > 0 > times[0][2]


def test_redis_6_says_that_snapshots_of_its_successors_are_too_new():
    with Node(DUNLIN) as primary, server("6.2") as replica:
        fill(primary, 10)
        replica.follow(primary.port)
        until(lambda: "Can't handle RDB format version" in replica.log(), "the refusal")
        assert primary.call("SET", "goes on", 1) == b"OK"


@pytest.mark.parametrize("version", VERSIONS)
def test_keys_move_from_each_version(version):
    with server(version) as one, server(version) as same, Node(DUNLIN) as other:
        names = make_keys(one, same)
        assert migrate(one, other.port, "KEYS", *names) == "OK"
        assert one.client.dbsize() == 0
        assert differences(same, other) == []


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_keys_move_to_each_version(version):
    with Node(DUNLIN) as one, Node(DUNLIN) as same, server(version) as other:
        names = make_keys(one, same)
        assert migrate(one, other.port, "KEYS", *names) == "OK"
        assert one.client.dbsize() == 0
        assert differences(same, other) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_dumps_are_restored(version):
    with server(version) as theirs, Node(DUNLIN) as ours, Node(DUNLIN) as same:
        for name in make_keys(theirs, same):
            ours.call("RESTORE", name, 0, theirs.call("DUMP", name))
        ours.call("PEXPIRE", "short-lived", 1_000_000)
        assert differences(same, ours) == []
        if is_from(version, "7.0"):
            theirs.call("FLUSHALL")
            for name in same.call("KEYS", "*"):
                theirs.call("RESTORE", name, 0, same.call("DUMP", name))
            theirs.call("PEXPIRE", "short-lived", 1_000_000)
            assert differences(same, theirs) == []


def make_keys(*nodes):
    for node in nodes:
        for words in KEYS:
            node.call(*words)
    return sorted(key.decode() for key in nodes[0].call("KEYS", "*"))
