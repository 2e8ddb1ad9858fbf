"""Links after a restart of either side: the data set goes on in the history that its files tell of."""

import socket
import threading
import time

import pytest
import redis

from harness import DUNLIN, ORACLE, VALKEY, WITHOUT_VALKEY
from links import Link, Node, has_link, is_online, raw, settle, until

HOUSES = {"dunlin": DUNLIN, "redis": ORACLE, "valkey": VALKEY}
LOG = ["--appendonly", "yes"]


def node(house, *directives, **options):
    if not HOUSES[house]:
        pytest.skip(WITHOUT_VALKEY)
    return Node(HOUSES[house], *directives, **options)


def end(server, save=False):
    """Ends a server cleanly, and leaves its folder."""
    if save:
        with pytest.raises(redis.ConnectionError):
            server.call("SHUTDOWN", "SAVE")
    else:
        server.process.terminate()
    server.client.close()
    assert server.process.wait(90) == 0
    server.stop = lambda: server.kill()


def kill(server):
    server.client.close()
    server.process.kill()
    server.process.wait()
    server.stop = lambda: server.kill()


def write(primary, count, database=0):
    with raw(primary.port, db=database, single_connection_client=True) as client:
        for n in range(count):
            client.execute_command("SET", f"k{n}", n)
            client.execute_command("INCR", "counter")


@pytest.mark.parametrize("house", ["dunlin", "redis", "valkey"])
@pytest.mark.parametrize("files", ["snapshot", "log", "killed log"])
def test_replica_goes_on_after_a_restart(house, files):
    directives = [] if files == "snapshot" else LOG
    with node(house) as primary, Node(DUNLIN, *directives) as replica:
        write(primary, 50)
        replica.follow(primary.port)
        settle(primary, replica)
        until(lambda: not replica.info("persistence")["aof_rewrite_in_progress"], "the log's base")
        write(primary, 50, database=3)
        settle(primary, replica)
        if files == "killed log":
            until(lambda: replica.info("persistence")["aof_buffer_length"] == 0, "a written log")
            kill(replica)
        else:
            end(replica, save=files == "snapshot")
        write(primary, 20, database=3)
        full = primary.info("stats")["sync_full"]
        follow = ["--replicaof", f"127.0.0.1 {primary.port}"]
        with Node(DUNLIN, *directives, *follow, files=replica.folder) as again:
            settle(primary, again)
            assert primary.info("stats")["sync_full"] == full
            assert again.info()["master_replid"] == primary.info()["master_replid"]
            write(primary, 20)
            settle(primary, again)


@pytest.mark.parametrize("house", ["dunlin", "redis", "valkey"])
@pytest.mark.parametrize("files", ["snapshot", "log", "killed log"])
def test_primary_goes_on_after_a_restart(house, files):
    directives = [] if files == "snapshot" else LOG
    # No PING comes to the replica that is not in the files of a server that is killed.
    quiet = ["--repl-ping-replica-period", 36_000]
    with Node(DUNLIN, *directives, *quiet) as primary, node(house) as replica, Link(primary.port) as link:
        write(primary, 50)
        replica.follow(link.port)
        settle(primary, replica)
        write(primary, 50, database=3)
        settle(primary, replica)
        if files == "killed log":
            until(lambda: primary.info("persistence")["aof_buffer_length"] == 0, "a written log")
            kill(primary)
        else:
            end(primary, save=files == "snapshot")
        id_before = replica.info()["master_replid"]
        with Node(DUNLIN, *directives, files=primary.folder) as again:
            link.target = again.port
            write(again, 1) if files == "snapshot" else None
            until(lambda: has_link(replica), "a link")
            write(again, 20, database=3)
            settle(again, replica)
            assert again.info("stats")["sync_full"] == 0
            assert again.info("stats")["sync_partial_ok"] == 1
            assert again.info()["master_replid2"] == id_before
            # Its log tells of the new history, too.
            is_online(again)
            end(again, save=files == "snapshot")
            with Node(DUNLIN, *directives, files=again.folder) as last:
                link.target = last.port
                settle(last, replica)
                assert last.info("stats")["sync_full"] == 0


def test_primary_under_load_hands_all_to_its_replica_before_it_ends():
    with Node(DUNLIN, *LOG, "--shutdown-timeout", 60) as primary, Node(DUNLIN) as replica, Link(primary.port) as link:
        replica.follow(link.port)
        settle(primary, replica)
        with primary.connect() as client:
            client.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n" * 50_000)
            end(primary)
        with Node(DUNLIN, *LOG, files=primary.folder) as again:
            link.target = again.port
            settle(again, replica)
            assert again.info("stats")["sync_full"] == 0


def test_promotion_is_known_after_a_restart():
    with Node(DUNLIN) as primary, Node(DUNLIN, *LOG) as replica:
        replica.follow(primary.port)
        settle(primary, replica)
        until(lambda: not replica.info("persistence")["aof_rewrite_in_progress"], "the log's base")
        id_before = replica.info()["master_replid"]
        replica.call("REPLICAOF", "NO", "ONE")
        write(replica, 20)
        # What the former primary has behind the promotion is its own.
        write(primary, 3)
        end(replica)
        with Node(DUNLIN, *LOG, files=replica.folder) as again:
            info = again.info()
            assert id_before not in (info["master_replid"], info["master_replid2"])
            primary.follow(again.port)
            settle(again, primary)
            assert again.info("stats")["sync_full"] == 1, "the histories have parted"


def test_server_without_replicas_keeps_no_history():
    with Node(DUNLIN, *LOG) as server:
        write(server, 3)
        end(server)
        with Node(DUNLIN, *LOG, files=server.folder) as again:
            assert again.info()["repl_backlog_active"] == 0
            again.call("DEBUG", "LOADAOF")
            manifest = (again.folder / "appendonlydir" / "appendonly.aof.manifest").read_text()
            assert "# replication" not in manifest


@pytest.mark.parametrize("house", ["dunlin", "redis", "valkey"])
@pytest.mark.parametrize("load", ["quiet", "under load"])
def test_replica_that_was_away_goes_on_from_the_logs_files(house, load):
    with Node(DUNLIN, *LOG) as primary, node(house) as replica, Link(primary.port) as link:
        primary.call("CONFIG", "SET", "repl-backlog-size", 20_000)
        write(primary, 10)
        replica.follow(link.port)
        settle(primary, replica)
        counts = [primary.info("stats")[name] for name in ("sync_full", "sync_partial_ok")]
        for round in range(3):
            link.cut(refuse=True)
            until(lambda: primary.info()["connected_slaves"] == 0, "the replica's absence")
            with primary.client.pipeline(transaction=False) as pipe:
                for n in range(3000):
                    pipe.set(f"k{round}:{n % 700}", "x" * 1000)
                    pipe.rpush("list", n)
                pipe.execute()
            at = replica.info()["slave_repl_offset"]
            until(lambda: primary.info()["repl_backlog_first_byte_offset"] > at + 1, "a backlog without what it lacks")
            stop = threading.Event()

            def go_on():
                with raw(primary.port) as client:
                    while not stop.is_set():
                        client.execute_command("INCRBY", "counter", 3)
                        client.execute_command("APPEND", "text", "x" * 300)

            writer = threading.Thread(target=go_on)
            if load != "quiet":
                writer.start()
            try:
                link.heal()
                until(lambda: has_link(replica), "a link")
            finally:
                stop.set()
                if load != "quiet":
                    writer.join()
            settle(primary, replica)
        after = [primary.info("stats")[name] for name in ("sync_full", "sync_partial_ok")]
        assert after == [counts[0], counts[1] + 3]
        assert "from the log's files" in primary.log()


def rewrite(primary):
    until(lambda: not primary.info("persistence")["aof_rewrite_in_progress"], "the end of the rewrite before")
    count = primary.info("persistence")["aof_rewrites"]
    primary.call("BGREWRITEAOF")
    ended = lambda: (info := primary.info("persistence"))["aof_rewrites"] > count and not info["aof_rewrite_in_progress"]
    until(ended, "the end of a rewrite")


def log_files(primary):
    return sorted(path.name for path in (primary.folder / "appendonlydir").glob("*.incr.aof"))


def test_replica_that_was_away_over_rewrites_needs_no_snapshot():
    with Node(DUNLIN, *LOG) as primary, Node(DUNLIN) as replica, Link(primary.port) as link:
        primary.call("CONFIG", "SET", "repl-backlog-size", 20_000)
        replica.follow(link.port)
        settle(primary, replica)
        counts = [primary.info("stats")[name] for name in ("sync_full", "sync_partial_ok")]
        link.cut(refuse=True)
        until(lambda: primary.info()["connected_slaves"] == 0, "the replica's absence")
        for round in range(3):
            for n in range(200):
                primary.call("SET", f"k{round}:{n % 70}", "x" * 1000)
                primary.call("RPUSH", "list", n)
            rewrite(primary)
        assert len(log_files(primary)) == 4
        link.heal()
        settle(primary, replica)
        after = [primary.info("stats")[name] for name in ("sync_full", "sync_partial_ok")]
        assert after == [counts[0], counts[1] + 1]
        primary.call("CONFIG", "SET", "repl-backlog-disk-size", 0)
        rewrite(primary)
        assert len(log_files(primary)) == 1


def test_files_of_a_log_without_replicas_are_not_kept():
    with Node(DUNLIN, *LOG) as server:
        write(server, 10)
        rewrite(server)
        assert len(log_files(server)) == 1


def test_files_that_are_kept_for_replicas_survive_a_restart():
    with Node(DUNLIN, *LOG) as primary, Node(DUNLIN) as replica, Link(primary.port) as link:
        replica.follow(link.port)
        settle(primary, replica)
        link.cut(refuse=True)
        until(lambda: primary.info()["connected_slaves"] == 0, "the replica's absence")
        for n in range(200):
            primary.call("SET", f"k{n}", "x" * 1000)
        rewrite(primary)
        primary.call("SET", "behind", 1)
        kept = log_files(primary)
        end(primary)
        with Node(DUNLIN, *LOG, files=primary.folder) as again:
            assert log_files(again)[0] == kept[0]
            replica.follow(again.port)
            settle(again, replica)
            assert again.info("stats")["sync_full"] == 0


def test_replica_that_lacks_more_than_the_logs_files_gets_a_snapshot():
    with Node(DUNLIN, *LOG) as primary, Node(DUNLIN) as replica, Link(primary.port) as link:
        primary.call("CONFIG", "SET", "repl-backlog-size", 20_000, "repl-backlog-disk-size", 0)
        replica.follow(link.port)
        settle(primary, replica)
        full = primary.info("stats")["sync_full"]
        link.cut(refuse=True)
        until(lambda: primary.info()["connected_slaves"] == 0, "the replica's absence")
        for n in range(100):
            primary.call("SET", f"k{n}", "x" * 1000)
        at = replica.info()["slave_repl_offset"]
        until(lambda: primary.info()["repl_backlog_first_byte_offset"] > at + 1, "a backlog without what it lacks")
        rewrite(primary)
        link.heal()
        settle(primary, replica)
        assert primary.info("stats")["sync_full"] == full + 1


@pytest.mark.parametrize("house, database", [("dunlin", 0), ("redis", 3)])
def test_replica_goes_on_though_nothing_has_come_since_its_log_was_rewritten(house, database):
    with node(house) as primary, Node(DUNLIN, *LOG) as replica:
        # Nor does a PING come.
        primary.call("CONFIG", "SET", "repl-ping-replica-period", 36_000)
        replica.follow(primary.port)
        settle(primary, replica)
        until(lambda: not replica.info("persistence")["aof_rewrite_in_progress"], "the log's base")
        write(primary, 50, database)
        settle(primary, replica)
        rewrite(replica)
        end(replica)
        full = primary.info("stats")["sync_full"]
        with Node(DUNLIN, *LOG, "--replicaof", f"127.0.0.1 {primary.port}", files=replica.folder) as again:
            settle(primary, again)
            write(primary, 20, database)
            settle(primary, again)
            assert primary.info("stats")["sync_full"] == full


def test_replica_whose_log_does_not_say_where_it_is_gets_a_snapshot():
    with Node(DUNLIN) as primary, Node(DUNLIN, *LOG) as replica:
        replica.follow(primary.port)
        settle(primary, replica)
        until(lambda: not replica.info("persistence")["aof_rewrite_in_progress"], "the log's base")
        write(primary, 50)
        settle(primary, replica)
        rewrite(replica)
        end(replica)
        # As an older version has left it.
        (replica.folder / "appendonlydir" / log_files(replica)[-1]).write_bytes(b"")
        full = primary.info("stats")["sync_full"]
        with Node(DUNLIN, *LOG, "--replicaof", f"127.0.0.1 {primary.port}", files=replica.folder) as again:
            settle(primary, again)
            assert primary.info("stats")["sync_full"] == full + 1


def test_primary_goes_on_though_nothing_was_written_since_its_log_was_rewritten():
    with Node(DUNLIN, *LOG, "--repl-ping-replica-period", 36_000) as primary, Node(DUNLIN) as replica:
        with Link(primary.port) as link:
            replica.follow(link.port)
            settle(primary, replica)
            write(primary, 50)
            settle(primary, replica)
            rewrite(primary)
            end(primary)
            with Node(DUNLIN, *LOG, files=primary.folder) as again:
                link.target = again.port
                settle(again, replica)
                write(again, 20)
                settle(again, replica)
                assert again.info("stats")["sync_full"] == 0


def test_log_that_begins_with_a_replicas_snapshot_knows_the_database_that_its_primary_has_selected():
    with Node(ORACLE) as primary, Node(DUNLIN) as replica:
        replica.follow(primary.port)
        settle(primary, replica)
        write(primary, 5, database=3)
        settle(primary, replica)
        end(replica, save=True)
        follow = ["--replicaof", f"127.0.0.1 {primary.port}"]
        full = primary.info("stats")["sync_full"]
        with Node(DUNLIN, *LOG, *follow, files=replica.folder) as again:
            # No SELECT comes again.
            write(primary, 20, database=3)
            settle(primary, again)
            assert primary.info("stats")["sync_full"] == full
            end(again)
            with Node(DUNLIN, *LOG, files=again.folder) as last:
                assert last.digest() == primary.digest()


class Scripted:
    """A primary with an empty data set whose stream is what a test puts into it; a replica goes on in it where it asks for."""

    ID = b"a" * 40

    def __init__(self):
        with Node(ORACLE) as empty:
            empty.call("SAVE")
            self.snapshot = (empty.folder / "dump.rdb").read_bytes()
        self.stream, self.links, self.full = b"", [], 0
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                link, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[link], daemon=True).start()

    def _serve(self, link):
        file = link.makefile("rb")
        try:
            while head := file.readline():
                words = [file.read(int(file.readline()[1:]) + 2)[:-2] for _ in range(int(head[1:]))]
                if words[0] == b"PSYNC":
                    self._synchronise(link, words)
                elif words[1:2] != [b"ACK"]:
                    link.sendall(b"+PONG\r\n" if words[0] == b"PING" else b"+OK\r\n")
        except OSError:
            pass

    def _synchronise(self, link, words):
        with self.lock:
            if words[1] == self.ID:
                link.sendall(b"+CONTINUE\r\n" + self.stream[int(words[2]) - 1 :])
            else:
                self.full += 1
                head = b"+FULLRESYNC %s %d\r\n$%d\r\n" % (self.ID, len(self.stream), len(self.snapshot))
                link.sendall(head + self.snapshot)
            self.links.append(link)

    def send(self, replica, *words):
        """Puts a command into the stream, and waits until the replica has it."""
        record = b"".join(redis.connection.Connection().pack_command(*words))
        with self.lock:
            self.stream += record
            for link in self.links:
                try:
                    link.sendall(record)
                except OSError:
                    pass
        until(lambda: replica.info()["slave_repl_offset"] == len(self.stream), f"{words} at the replica")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()
        for link in self.links:
            link.close()


@pytest.mark.parametrize("way", ["snapshot", "background snapshot", "log", "log of commands", "reload", "replica behind"])
def test_replica_keeps_what_has_expired_until_its_primary_says_otherwise(way):
    """Its clock does not count: the primary may have given the keys more time already, which is yet to come."""
    log = LOG if way.startswith("log") else []
    with Scripted() as primary, Node(DUNLIN, *log) as replica, Node(DUNLIN) as behind:
        replica.call("CONFIG", "SET", "aof-use-rdb-preamble", "no" if way == "log of commands" else "yes")
        replica.follow(primary.port)
        until(lambda: has_link(replica), "a link")
        primary.send(replica, "SET", "text", "v", "PXAT", 1000)
        primary.send(replica, "RPUSH", "list", 1, 2)
        primary.send(replica, "PEXPIREAT", "list", 1000)
        primary.send(replica, "HSET", "hash", "f", 1, "g", 2)
        primary.send(replica, "HPEXPIREAT", "hash", 1000, "FIELDS", 2, "f", "g")
        # So many that they are copied in pieces.
        fields = [word for n in range(60_000) for word in (f"field:{n}", "value")]
        primary.send(replica, "HSET", "large", *fields)
        primary.send(replica, "HPEXPIREAT", "large", 1000, "FIELDS", 1, "field:7")
        primary.send(replica, "PEXPIREAT", "large", 1000)
        assert replica.call("EXISTS", "text", "list", "large") == 0

        def check(server, fed=None):
            fed = fed or server
            for key in ("text", "list", "large"):
                primary.send(fed, "PERSIST", key)
            primary.send(fed, "HPERSIST", "hash", "FIELDS", 2, "f", "g")
            primary.send(fed, "HPERSIST", "large", "FIELDS", 1, "field:7")
            until(lambda: server.info()["slave_repl_offset"] == len(primary.stream), "the stream")
            assert server.call("GET", "text") == b"v"
            assert server.call("LRANGE", "list", 0, -1) == [b"1", b"2"]
            assert server.call("HMGET", "hash", "f", "g") == [b"1", b"2"]
            assert server.call("HLEN", "large") == 60_000
            assert server.call("HGET", "large", "field:7") == b"value"
            assert primary.full == 1

        if way == "reload":
            replica.call("DEBUG", "RELOAD")
            return check(replica)
        if way == "replica behind":
            behind.follow(replica.port)
            until(lambda: has_link(behind), "the link behind")
            return check(behind, fed=replica)
        if log:
            rewrite(replica)
        if way == "background snapshot":
            replica.call("BGSAVE")
            until(lambda: not replica.info("persistence")["rdb_bgsave_in_progress"], "the snapshot")
            kill(replica)
        else:
            end(replica, save=way == "snapshot")
        with Node(DUNLIN, *log, "--replicaof", f"127.0.0.1 {primary.port}", files=replica.folder) as again:
            until(lambda: has_link(again), "a link")
            check(again)


@pytest.mark.parametrize("files", ["snapshot", "log"])
def test_key_that_expires_while_its_primary_is_down_goes_with_a_del(files):
    log = LOG if files == "log" else []
    with Node(DUNLIN, *log) as primary, Node(DUNLIN) as replica, Link(primary.port) as link:
        replica.follow(link.port)
        settle(primary, replica)
        # It is to be there when the server ends.
        primary.call("DEBUG", "SET-ACTIVE-EXPIRE", 0)
        primary.call("SET", "k", 5, "PX", 300)
        at_ms = int(time.time() * 1000) + 300
        until(lambda: time.time() * 1000 > at_ms, "its time")
        if files == "log":
            rewrite(primary)
        end(primary, save=files == "snapshot")
        with Node(DUNLIN, *log, files=primary.folder) as again:
            link.target = again.port
            assert again.call("INCR", "k") == 1
            settle(again, replica)
            assert replica.call("GET", "k") == b"1"
            assert again.info("stats")["sync_full"] == 0
