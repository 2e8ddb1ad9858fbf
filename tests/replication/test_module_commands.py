"""Commands of modules in a stream: the link goes on without them, and kept values that they name are stale (docs/decisions/0095)."""

import pytest
import redis

from captures import HAS_MODULES, WITH_MODULES
from harness import DUNLIN, REDIS_VERSIONS, Server
from links import FakePrimary, Node, has_link, settle, until
from rdb_data import module_payload

pytestmark = pytest.mark.skipif(DUNLIN is None, reason="about Dunlin")
LOG = ("--appendonly", "yes", "--appendfsync", "always")


def packed(*words):
    return b"".join(redis.connection.Connection().pack_command(*words))


@pytest.fixture(scope="module")
def snapshot():
    with Node(DUNLIN) as server:
        server.call("RESTORE", "kept", 0, module_payload("no-module", 1, b"value"))
        server.call("RESTORE", "other", 0, module_payload("no-module", 1, b"value"))
        server.call("SET", "text", 1)
        server.call("SAVE")
        return (server.folder / "dump.rdb").read_bytes()


class Stream:
    """What a scripted primary has sent."""

    def __init__(self, replica, snapshot):
        self.replica, self.sent = replica, 0
        self.primary = FakePrimary(snapshot)
        replica.follow(self.primary.port)
        until(lambda: self.primary.link and has_link(replica), "a link")

    def send(self, *commands):
        record = b"".join(packed(*words) for words in commands)
        self.primary.link.sendall(record)
        self.sent += len(record)

    def has_arrived(self):
        until(lambda: self.replica.info()["slave_repl_offset"] == self.sent, f"{self.sent} bytes\n{self.replica.log()[-2000:]}")


def figures(server):
    stats = server.info("stats")
    return stats["module_commands_passed_over"], stats["module_values_stale"]


def test_link_goes_on_behind_commands_of_modules(snapshot):
    with Node(DUNLIN) as replica:
        stream = Stream(replica, snapshot)
        stream.send(("SET", "a", 1), ("NO.SET", "kept", "$", "x"), ("SET", "b", 2), ("no.set", "kept", "y"), ("NO.SET", "new", 1), ("FT.NOSUCH", "index"), ("SET", "c", 3))
        stream.has_arrived()
        assert [replica.call("GET", key) for key in "abc"] == [b"1", b"2", b"3"]
        assert figures(replica) == (4, 1)
        assert replica.call("DUMP", "kept") == replica.call("DUMP", "other"), "its bytes stay"
        assert replica.call("EXISTS", "new") == 0
        log = replica.log()
        assert log.count("'NO.SET' is a command of a module") + log.count("'NO.SET' has changed the value of the key 'kept'") == 2
        assert log.count("'FT.NOSUCH' is a command of a module") == 1
        # A command without a dot would be Redis's own.
        stream.send(("NOSUCH", "a"),)
        error = until(lambda: replica.info().get("master_link_error"), "the end of the link")
        assert error == "unknown command 'NOSUCH'"


def test_block_with_commands_of_modules_is_applied_without_them(snapshot):
    with Node(DUNLIN) as replica:
        stream = Stream(replica, snapshot)
        stream.send(("MULTI",), ("SET", "a", 1), ("NO.SET", "kept", 1), ("SELECT", 3), ("NO.SET", "other", 1), ("SET", "b", 1), ("EXEC",), ("SELECT", 0), ("SET", "c", 1))
        stream.has_arrived()
        assert replica.call("MGET", "a", "c") == [b"1", b"1"]
        assert figures(replica) == (2, 1), "the key 'other' of database 3 is not there"
        stream.send(("MULTI",), ("NO.SET", "kept", 1), ("NO.SET", "other", 1), ("EXEC",), ("SET", "d", 1))
        stream.has_arrived()
        assert (figures(replica), replica.call("GET", "d")) == ((4, 2), b"1")


def test_log_and_replicas_behind_have_the_same_stream(snapshot):
    with Node(DUNLIN, *LOG) as replica, Node(DUNLIN) as behind:
        stream = Stream(replica, snapshot)
        behind.follow(replica.port)
        until(lambda: has_link(behind), "a link")
        stream.send(("SET", "a", 1), ("NO.SET", "kept", 1), ("SET", "b", 2))
        stream.has_arrived()
        settle(replica, behind)
        assert figures(behind) == (1, 1)
        replica.process.kill()
        replica.process.wait()
        with Server(*LOG, files=replica.folder) as again:
            client = redis.Redis(port=again.port, protocol=2)
            assert client.mget("a", "b") == [b"1", b"2"]
            stats = client.info("stats")
            assert (stats["module_commands_passed_over"], stats["module_values_stale"]) == (1, 1)
        replica.process.returncode = 0


def test_module_data_refuse_ends_the_link(snapshot, tmp_path):
    with Node(DUNLIN) as server:
        server.call("SAVE")
        empty = (server.folder / "dump.rdb").read_bytes()
    with Node(DUNLIN, "--module-data", "refuse") as replica:
        stream = Stream(replica, empty)
        stream.send(("NO.SET", "kept", 1))
        error = until(lambda: replica.info().get("master_link_error"), "the end of the link")
        assert error == "'NO.SET' is a command of a module that is not here"


@pytest.mark.parametrize("treatment", ["keep", "skip"])
def test_log_of_a_redis_with_modules_is_refused_unless_they_are_to_be_left_out(treatment, tmp_path):
    (tmp_path / "appendonlydir").mkdir()
    (tmp_path / "appendonlydir" / "appendonly.aof.manifest").write_text("file appendonly.aof.1.incr.aof seq 1 type i\n")
    record = packed("SET", "a", 1) + packed("NO.SET", "kept", 1) + packed("SET", "b", 2)
    (tmp_path / "appendonlydir" / "appendonly.aof.1.incr.aof").write_bytes(record)
    start = lambda: Server("--appendonly", "yes", "--module-data", treatment, files=tmp_path)  # noqa: E731
    if treatment == "keep":
        with pytest.raises(AssertionError, match="'NO.SET' is a command of a module that is not here"):
            start()
        return
    with start() as server:
        assert redis.Redis(port=server.port, protocol=2).mget("a", "b") == [b"1", b"2"]


@pytest.mark.skipif(not HAS_MODULES, reason="the package with Redis 7.4 and its modules could not be had (scripts/get-redis.sh)")
def test_indexes_of_a_redis_stack_server_do_not_end_the_link():
    with Node(REDIS_VERSIONS["7.4"], *WITH_MODULES) as primary, Node(DUNLIN) as replica:
        primary.call("FT.SUGADD", "names", "ann", 1)
        replica.follow(primary.port)
        until(lambda: has_link(replica), "a link")
        assert replica.call("TYPE", "names") == b"trietype0"
        primary.call("FT.CREATE", "index", "SCHEMA", "title", "TEXT")
        primary.call("HSET", "document", "title", "words")
        primary.call("FT.SUGADD", "names", "bob", 1)
        primary.call("SET", "last", 1)
        until(lambda: replica.call("GET", "last") == b"1", "the stream behind them")
        assert replica.call("HGETALL", "document") == [b"title", b"words"]
        assert figures(replica) == (2, 1)
