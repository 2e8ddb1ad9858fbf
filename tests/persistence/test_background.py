"""Snapshots and rewritten logs, made while commands go on."""

import contextlib
import signal
import threading
import time

import pytest

from harness import DUNLIN, ORACLE, Server, is_redis
from resp import Client, Refused

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="Redis has no delay that can be changed while it saves")

DEBUG = ("--enable-debug-command", "yes")
KEYS = 500
# A delay with which a snapshot does not end before it is changed.
ENDLESS_US = 600_000_000


@contextlib.contextmanager
def mortal(*directives, **options):
    """A server that may be killed."""
    server = Server(*directives, **options)
    try:
        yield server
    finally:
        server.kill()


def end(server):
    server.process.kill()
    server.process.wait()


def info(client, field):
    lines = client("INFO", "persistence").decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)[field]


def wait(client, field, value="0"):
    deadline = time.monotonic() + 60
    while info(client, field) != value:
        assert time.monotonic() < deadline, client("INFO", "persistence").decode()
        time.sleep(0.01)


def fill(client):
    """Keys of every type; more than one part of a snapshot."""
    for number in range(KEYS):
        client("SET", f"string:{number}", f"value {number} " * 20)
        client("SET", f"expiring:{number}", number, "PX", 3_600_000)
        client("RPUSH", f"list:{number}", *range(10))
        client("SADD", f"set:{number}", "a", number)
        client("ZADD", f"sorted:{number}", 1, "a", number, "b")
        client("HSET", f"hash:{number}", "f", number, "g", "x" * 100)
        client("XADD", f"stream:{number}", f"{number + 1}-1", "f", number)
    client("SET", "long", "x" * 100_000)
    client("SELECT", 3)
    for number in range(KEYS):
        client("SET", f"other:{number}", number)
    client("SELECT", 0)


def change(client):
    """Something to every key."""
    for number in range(0, KEYS, 2):
        client("APPEND", f"string:{number}", "!")
        client("PERSIST", f"expiring:{number}")
        client("LPUSH", f"list:{number}", "new")
        client("SREM", f"set:{number}", "a")
        client("ZINCRBY", f"sorted:{number}", 5, "a")
        client("HDEL", f"hash:{number}", "g")
        client("XADD", f"stream:{number}", "*", "f", "new")
        client("RENAME", f"string:{number + 1}", f"renamed:{number + 1}")
        client("DEL", f"list:{number + 1}", f"set:{number + 1}")
        client("MOVE", f"sorted:{number + 1}", 2)
        client("SETRANGE", "long", number, "y")
    client("SWAPDB", 0, 3)
    client("FLUSHDB")
    client("SELECT", 3)
    client("SET", "new", 1)


def digest_of(data, loader, folder):
    """The digest of the data set that a program loads from a file."""
    (folder / "dump.rdb").write_bytes(data)
    with Server(*DEBUG, program=loader, files=folder) as server:
        client = Client(server)
        wait(client, "loading")
        return client("DEBUG", "DIGEST")


def test_bgsave_replies_and_info_lines():
    # The snapshot rests until the delay becomes less.
    with Server("--rdb-key-save-delay", ENDLESS_US) as server:
        client = Client(server)
        for number in range(100):
            client("SET", number, number)
        before = client("LASTSAVE")
        time.sleep(1.1)
        assert client("BGSAVE") == b"Background saving started"
        assert info(client, "rdb_bgsave_in_progress") == "1"
        assert info(client, "current_save_keys_total") == "100"
        for words in (["BGSAVE"], ["BGSAVE", "SCHEDULE"], ["SAVE"]):
            with pytest.raises(Refused, match="^ERR Background save already in progress$"):
                client(*words)
        assert client("SET", "new", 1) == b"OK"
        client("CONFIG", "SET", "rdb-key-save-delay", 0)
        wait(client, "rdb_bgsave_in_progress")
        assert client("LASTSAVE") > before
        assert info(client, "rdb_changes_since_last_save") == "1"
        assert info(client, "rdb_last_bgsave_status") == "ok"
        for words in (["BGSAVE", "x"], ["BGSAVE", "SCHEDULE", "CANCEL"]):
            with pytest.raises(Refused, match="syntax error"):
                client(*words)
        with pytest.raises(Refused, match="^ERR Background saving is currently not in progress or scheduled$"):
            client("BGSAVE", "CANCEL")
        client("CONFIG", "SET", "rdb-key-save-delay", ENDLESS_US)
        client("BGSAVE")
        assert client("BGSAVE", "CANCEL") == b"Background saving cancelled"
        wait(client, "rdb_bgsave_in_progress")
        assert not list(server.folder.glob("temp-*"))
        client("CONFIG", "SET", "rdb-key-save-delay", 0)
        client("MULTI")
        client("BGSAVE")
        client("BGREWRITEAOF")
        told = [b"Background saving scheduled", b"Background append only file rewriting scheduled"]
        assert client("EXEC") == told
        wait(client, "rdb_saves", "2")
        wait(client, "aof_rewrite_scheduled")


@pytest.mark.parametrize("loader", [ORACLE, DUNLIN])
def test_bgsave_writes_the_state_of_one_moment(loader, tmp_path):
    # The changes' copies have room enough to wait.
    with Server("--rdb-key-save-delay", ENDLESS_US, *DEBUG) as server:
        client = Client(server)
        fill(client)
        digest = client("DEBUG", "DIGEST")
        client("BGSAVE")
        change(client)
        assert info(client, "rdb_bgsave_in_progress") == "1"
        client("CONFIG", "SET", "rdb-key-save-delay", 0)
        wait(client, "rdb_bgsave_in_progress")
        assert client("DEBUG", "DIGEST") != digest
        data = (server.folder / "dump.rdb").read_bytes()
    assert digest_of(data, loader, tmp_path) == digest


@pytest.mark.parametrize("loader", [ORACLE, DUNLIN])
def test_large_collections_change_while_they_are_written(loader, tmp_path):
    members = 100_000
    entries = "for n = ARGV[1], ARGV[2] do redis.call('XADD', KEYS[1], n .. '-1', 'number', n) end"

    def add(client, first, *names):
        for start in range(first, first + members, 1000):
            some = range(start, start + 1000)
            for name in names:
                pairs = [word for number in some for word in (number, f"member:{number}")]
                client("ZADD", "sorted" + name, *pairs)
                client("SADD", "set" + name, *pairs[1::2])
                client("HSET", "hash" + name, *reversed(pairs))
                client("RPUSH", "list" + name, *pairs)
                client("EVAL", entries, 1, "stream" + name, start + 1, start + 1000)

    # Some writes wait for the snapshot, so that it has to go on; a slow machine may need more time for the changes.
    for delay_us in (20_000, 60_000, 180_000):
        with Server("--rdb-key-save-delay", delay_us, *DEBUG) as server:
            client = Client(server)
            # Writes wait for the snapshot's thread, which rests, and others have the processor before it.
            client.socket.settimeout(120)
            add(client, 0, "", ":gone", ":moved")
            for number in range(KEYS):
                client("SET", f"string:{number}", number)
            client("XGROUP", "CREATE", "stream", "group", 0)
            client("XREADGROUP", "GROUP", "group", "reader", "COUNT", 500, "STREAMS", "stream", ">")
            digest = client("DEBUG", "DIGEST")
            client("BGSAVE")
            for number in range(0, members, 100):
                client("LPUSH", "list", number)
                client("RPOP", "list", 3)
                client("LSET", "list", number, "another")
                client("XACK", "stream", "group", f"{number + 1}-1")
                client("XDEL", "stream", f"{number + 1}-1")
                client("ZINCRBY", "sorted", 0.5, f"member:{number}")
                client("SREM", "set", f"member:{number}")
                client("HSET", "hash", f"member:{number}", "another", f"new:{number}", "value")
            client("DEL", "sorted:gone", "set:gone", "hash:gone", "list:gone", "stream:gone")
            for name in ("sorted", "set", "hash", "list", "stream"):
                client("RENAME", f"{name}:moved", f"{name}:other")
            client("ZREMRANGEBYRANK", "sorted", 1000, 30_000)
            client("SPOP", "set", 5000)
            client("LTRIM", "list", 20_000, 150_000)
            client("LINSERT", "list", "BEFORE", "member:50000", "inserted")
            client("LREM", "list", 0, "another")
            client("XTRIM", "stream", "MAXLEN", 60_000)
            client("HPEXPIRE", "hash", 1, "FIELDS", 1, "member:7")
            is_under_way = info(client, "rdb_bgsave_in_progress") == "1"
            client("CONFIG", "SET", "rdb-key-save-delay", 0)
            add(client, members, "")
            wait(client, "rdb_bgsave_in_progress")
            assert info(client, "rdb_last_bgsave_status") == "ok"
            data = (server.folder / "dump.rdb").read_bytes()
        if is_under_way:
            break
    assert is_under_way, "the snapshot ends before all is changed"
    assert digest_of(data, loader, tmp_path) == digest


def test_save_points_save_and_so_does_the_end():
    with Server() as server:
        client = Client(server)
        client("CONFIG", "SET", "save", "3600 1 1 2")
        assert client("CONFIG", "GET", "save")[1] == b"3600 1 1 2"
        client("SET", "a", 1)
        client("SET", "b", 1)
        wait(client, "rdb_changes_since_last_save")
        wait(client, "rdb_bgsave_in_progress")
        before = (server.folder / "dump.rdb").read_bytes()
        client("CONFIG", "SET", "rdb-key-save-delay", 1_000_000)
        client("SET", "c", 1)
        client("BGSAVE")
        client("SET", "d", "last")
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(60)
        after = (server.folder / "dump.rdb").read_bytes()
        assert b"last" in after and after != before, "a snapshot of the end, not the one under way"
        assert not list(server.folder.glob("temp-*"))


def test_writes_are_refused_while_snapshots_fail():
    refusal = "^MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."
    with Server("--save", "3600 1") as server:
        client = Client(server)
        client("SET", "a", 1)
        blocker = server.folder / "dump.rdb"
        blocker.mkdir()
        client("BGSAVE")
        wait(client, "rdb_last_bgsave_status", "err")
        wait(client, "rdb_bgsave_in_progress")
        client("MULTI")
        for words in (["SET", "a", 2], ["PING"]):
            with pytest.raises(Refused, match=refusal):
                client(*words)
        with pytest.raises(Refused, match="^EXECABORT"):
            client("EXEC")
        with pytest.raises(Refused, match="MISCONF"):
            client("EVAL", "return redis.call('SET', KEYS[1], 2)", 1, "a")
        # One that declares its flags is refused as a whole.
        with pytest.raises(Refused, match=refusal):
            client("EVAL", "#!lua\nreturn 1", 0)
        assert client("EVAL", "#!lua flags=no-writes\nreturn 1", 0) == 1
        assert client("PFCOUNT", "none") == 0
        assert client("GET", "a") == b"1"
        client("CONFIG", "SET", "stop-writes-on-bgsave-error", "no")
        assert client("SET", "a", 2) == b"OK"
        client("CONFIG", "SET", "stop-writes-on-bgsave-error", "yes")
        blocker.rmdir()
        client("BGSAVE")
        wait(client, "rdb_last_bgsave_status", "ok")
        assert client("SET", "a", 3) == b"OK"


class Writers:
    """Connections that write as fast as they can, and the writes acknowledged to them."""

    def __init__(self, server, count=3):
        self.acknowledged = [0] * count
        self.ended = False
        clients = [Client(server) for _ in range(count)]
        self.threads = [threading.Thread(target=self.write, args=(n, clients[n])) for n in range(count)]
        for thread in self.threads:
            thread.start()

    def write(self, writer, client):
        try:
            while not self.ended:
                number = self.acknowledged[writer] + 1
                client("SET", f"writer:{writer}", number)
                client("RPUSH", f"numbers:{writer}", number)
                client("SET", f"key:{writer}:{number % 1000}", "x" * (number % 300))
                self.acknowledged[writer] = number
        except (ConnectionError, OSError):
            pass

    def end(self):
        self.ended = True
        for thread in self.threads:
            thread.join()

    def check(self, client):
        for writer, acknowledged in enumerate(self.acknowledged):
            found = int(client("GET", f"writer:{writer}"))
            assert found >= acknowledged
            numbers = client("LRANGE", f"numbers:{writer}", 0, -1)
            assert [int(number) for number in numbers] in (list(range(1, found + 1)), list(range(1, found)))


def test_writers_that_wait_for_the_snapshot_go_on_when_there_is_room():
    count, writers = 3000, 4
    # No room is made before the delay becomes less: who waits does so until then.
    with Server("--rdb-key-save-delay", ENDLESS_US) as server:
        client = Client(server)
        for number in range(count):
            client("SET", f"key:{number}", "x" * 10_000)

        def blocked():
            return int(client("INFO", "clients").split(b"blocked_clients:")[1].split()[0])

        def overwrite(writer, connection):
            for number in range(writer, count, writers):
                connection("SET", f"key:{number}", "y")

        client("BGSAVE")
        # More than may wait to be written.
        threads = [
            threading.Thread(target=overwrite, args=(writer, Client(server)), daemon=True)
            for writer in range(writers)
        ]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 60
        while blocked() < writers:
            assert time.monotonic() < deadline, "nobody has to wait"
        # One of the waiting clients hangs up, and all are asked for nothing.
        gone = server.connect()
        gone.sendall(b"SET key:0 z\r\n")
        while blocked() < writers + 1:
            assert time.monotonic() < deadline, "it does not wait"
        gone.close()
        client("CLIENT", "UNPAUSE")
        assert client("EXISTS", "key:0") == 1, "who reads does not wait"
        client("CONFIG", "SET", "rdb-key-save-delay", 0)
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        wait(client, "rdb_bgsave_in_progress")
        assert info(client, "rdb_last_bgsave_status") == "ok"
        assert client("MGET", *(f"key:{number}" for number in range(1, count))) == [b"y"] * (count - 1)
        assert blocked() == 0


def log_files(server):
    return sorted(path.name for path in (server.folder / "appendonlydir").iterdir())


@pytest.mark.parametrize("kill", [False, True])
def test_bgrewriteaof_under_load(kill):
    options = ["--appendonly", "yes", "--appendfsync", "always", *DEBUG]
    with mortal(*options) as server:
        client = Client(server)
        fill(client)
        writers = Writers(server)
        for round in range(1, 6):
            # It is under way when the second one is asked for.
            client("CONFIG", "SET", "rdb-key-save-delay", ENDLESS_US)
            assert client("BGREWRITEAOF") == b"Background append only file rewriting started"
            with pytest.raises(Refused, match="^ERR Background append only file rewriting already in progress$"):
                client("BGREWRITEAOF")
            client("CONFIG", "SET", "rdb-key-save-delay", 0)
            wait(client, "aof_rewrite_in_progress")
            assert info(client, "aof_last_bgrewrite_status") == "ok"
            assert info(client, "aof_rewrites") == str(round)
        assert log_files(server) == [
            "appendonly.aof.5.base.rdb",
            "appendonly.aof.6.incr.aof",
            "appendonly.aof.manifest",
        ]
        if kill:
            end(server)
        writers.end()
        if not kill:
            digest = client("DEBUG", "DIGEST")
            with Server("--appendonly", "yes", *DEBUG, program=ORACLE, files=server.folder) as other:
                client = Client(other)
                wait(client, "loading")
                assert client("DEBUG", "DIGEST") == digest
            end(server)
        with Server(*options, files=server.folder) as again:
            writers.check(Client(again))


@pytest.mark.parametrize("version", ["this", "older"])
def test_log_whose_rewrite_is_interrupted_is_loaded_though_nothing_was_written_since_the_one_before(version):
    with mortal("--appendonly", "yes") as server:
        client = Client(server)
        client("SET", "before", 1)
        client("BGREWRITEAOF")
        wait(client, "aof_rewrite_in_progress")
        # Longer than it takes to end the server.
        client("CONFIG", "SET", "rdb-key-save-delay", ENDLESS_US)
        client("BGREWRITEAOF")
        client("SET", "behind", 1)
        wait(client, "aof_buffer_length")
        assert [name for name in log_files(server) if "incr" in name] == [
            "appendonly.aof.2.incr.aof",
            "appendonly.aof.3.incr.aof",
        ]
        end(server)
        if version == "older":
            # It did not say where the log is.
            (server.folder / "appendonlydir" / "appendonly.aof.2.incr.aof").write_bytes(b"")
        with Server("--appendonly", "yes", files=server.folder) as again:
            assert Client(again)("MGET", "before", "behind") == [b"1", b"1"]


def test_log_turned_on_begins_with_what_there_is():
    with mortal("--appendfsync", "always", "--rdb-key-save-delay", ENDLESS_US, *DEBUG) as server:
        client = Client(server)
        fill(client)
        writers = Writers(server)
        client("CONFIG", "SET", "appendonly", "yes")
        assert info(client, "aof_rewrite_in_progress") == "1"
        assert log_files(server)[0] == "appendonly.aof.1.incr.aof", "no manifest before there is a base"
        client("CONFIG", "SET", "appendonly", "no")
        wait(client, "aof_rewrite_in_progress")
        client("CONFIG", "SET", "appendonly", "yes")
        client("CONFIG", "SET", "rdb-key-save-delay", 0)
        wait(client, "aof_rewrite_in_progress")
        assert info(client, "aof_last_bgrewrite_status") == "ok"
        end(server)
        writers.end()
        with Server("--appendonly", "yes", files=server.folder) as again:
            client = Client(again)
            writers.check(client)
            client("SELECT", 3)
            assert client("DBSIZE") == KEYS


def test_log_is_rewritten_by_itself():
    options = ["--auto-aof-rewrite-percentage", 100, "--auto-aof-rewrite-min-size", 100_000]
    with Server("--appendonly", "yes", *options) as server:
        client = Client(server)
        value = "x" * 1000
        while int(info(client, "aof_rewrites")) < 2:
            client("SET", "key", value)
        client("CONFIG", "SET", "auto-aof-rewrite-percentage", 0)
        wait(client, "aof_rewrite_in_progress")
        assert len(log_files(server)) == 3


def test_bgrewriteaof_that_fails_leaves_the_log_as_it_is():
    with mortal("--appendonly", "yes", "--appendfsync", "always") as server:
        client = Client(server)
        client("SET", "a", 1)
        # A folder where the file would be written stops even root.
        blocker = server.folder / "appendonlydir" / f"temp-{server.process.pid}.rdb"
        blocker.mkdir()
        client("BGREWRITEAOF")
        wait(client, "aof_rewrite_in_progress")
        assert info(client, "aof_last_bgrewrite_status") == "err"
        client("SET", "b", 2)
        blocker.rmdir()
        client("BGREWRITEAOF")
        wait(client, "aof_rewrite_in_progress")
        assert info(client, "aof_last_bgrewrite_status") == "ok"
        client("SET", "c", 3)
        end(server)
        with Server("--appendonly", "yes", files=server.folder) as again:
            assert Client(again)("MGET", "a", "b", "c") == [b"1", b"2", b"3"]


FLUSHES = {
    "alone": [("FLUSHALL",)],
    "in a transaction": [("MULTI",), ("SET", "x", 1), ("FLUSHALL", "ASYNC"), ("EXEC",)],
    "in a script": [("EVAL", "return redis.call('flushall', 'sync')", 0)],
}


@pytest.mark.parametrize("how", FLUSHES)
def test_flushall_is_remembered_at_once_where_there_are_save_points(how):
    with mortal("--save", "3600 1") as server:
        client = Client(server)
        for number in range(4):
            client("SET", number, number)
        client("SAVE")
        for words in FLUSHES[how]:
            client(*words)
        end(server)
        with Server("--dir", server.folder) as again:
            assert Client(again)("DBSIZE") == 0


def test_flushall_without_save_points_and_flushdb_leave_the_file():
    for points, flush in (("", "FLUSHALL"), ("3600 1", "FLUSHDB")):
        with mortal("--save", points) as server:
            client = Client(server)
            client("SET", "a", 1)
            client("SAVE")
            client(flush)
            end(server)
            with Server("--dir", server.folder) as again:
                assert Client(again)("DBSIZE") == 1


@pytest.mark.parametrize("points", ["", "3600 1"])
def test_flushall_ends_a_snapshot_in_the_background(points):
    with mortal("--save", points) as server:
        client = Client(server)
        fill(client)
        client("CONFIG", "SET", "rdb-key-save-delay", ENDLESS_US)
        client("BGSAVE")
        wait(client, "rdb_bgsave_in_progress", "1")
        client("FLUSHALL")
        wait(client, "rdb_bgsave_in_progress")
        assert "Background saving cancelled" in server.log()
        assert info(client, "rdb_last_bgsave_status") == "ok"
        assert (server.folder / "dump.rdb").exists() == bool(points)
        assert client("SET", "a", 1) == b"OK"
        end(server)
        with Server("--dir", server.folder) as again:
            assert Client(again)("DBSIZE") == 0


def test_flushall_of_the_primary_empties_the_file_of_a_replica():
    with Server() as primary, mortal("--save", "3600 1", "--replicaof", f"127.0.0.1 {primary.port}") as replica:
        client, reader = Client(primary), Client(replica)
        client("SET", "a", 1)
        client("WAIT", 1, 0)
        reader("SAVE")
        client("FLUSHALL")
        client("WAIT", 1, 0)
        end(replica)
        with Server("--dir", replica.folder) as again:
            assert Client(again)("DBSIZE") == 0
