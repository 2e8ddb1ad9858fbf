"""MIGRATE between the houses, beside what redis-server and Valkey answer as the source, and what happens to keys that
change on their way."""

import contextlib
import itertools
import socket
import threading
import time

import pytest
import redis

from harness import DUNLIN, ORACLE, VALKEY, WITHOUT_VALKEY, free_port
from links import Node, differences, raw, settle, until
from migrated import KEYS, SLOW, migrate, reply

HOUSES = {"dunlin": DUNLIN, "redis": ORACLE, "valkey": VALKEY}
def node(house, *directives):
    if not HOUSES[house]:
        pytest.skip(WITHOUT_VALKEY)
    return Node(HOUSES[house], *directives)


@pytest.mark.parametrize(("source", "target"), list(itertools.product(HOUSES, HOUSES)))
def test_keys_of_every_type_move(source, target):
    if "dunlin" not in (source, target):
        pytest.skip("no server of ours takes part")
    with node(source) as one, node(source) as same, node(target) as other:
        for words in KEYS:
            one.call(*words)
            same.call(*words)
        names = sorted(set(words[1] if words[0] != "XGROUP" else words[2] for words in KEYS))
        assert migrate(one, other.port, key=names[0]) == "OK"
        assert migrate(one, other.port, "KEYS", *names[1:], "none") == "OK"
        assert one.client.dbsize() == 0
        assert differences(same, other) == []
        assert 0 < other.client.pttl("short-lived") <= 1_000_000


def test_fields_that_expire_move_to_those_that_know_them():
    with node("dunlin") as one, node("dunlin") as other, node("redis") as old:
        one.call("HSETEX", "h", "EX", 1000, "FIELDS", 1, "f", "v")
        one.call("HSET", "h", "g", "w")
        refusal = "-Target instance replied with error: ERR DUMP payload version or checksum are wrong"
        assert migrate(one, old.port, key="h") == refusal
        assert one.client.exists("h"), "it stays where the target refuses it"
        assert migrate(one, other.port, key="h") == "OK"
        left_s, never = other.call("HTTL", "h", "FIELDS", 2, "f", "g")
        assert 900 <= left_s <= 1000 and never == -1


# A scenario: what is done at the source, and what each house answers is compared.
SCENARIO = [
    ("SET", "a", 1),
    ("SET", "b", 2),
    ("MIGRATE", "127.0.0.1", "PORT", "none", 0, SLOW),
    ("MIGRATE", "127.0.0.1", "PORT", "", 0, SLOW, "KEYS", "none", "other"),
    ("MIGRATE", "127.0.0.1", "PORT", "a", 0, SLOW, "COPY"),
    ("EXISTS", "a"),
    ("MIGRATE", "127.0.0.1", "PORT", "a", 0, SLOW),
    ("MIGRATE", "127.0.0.1", "PORT", "a", 0, SLOW, "replace", "copy"),
    ("MIGRATE", "127.0.0.1", "PORT", "", 0, SLOW, "KEYS", "a", "b", "none"),
    ("MGET", "a", "b"),
    ("MIGRATE", "127.0.0.1", "PORT", "", 0, SLOW, "REPLACE", "KEYS", "a", "b"),
    ("MGET", "a", "b"),
    ("MIGRATE", "127.0.0.1", "PORT", "", 0, SLOW, "REPLACE", "KEYS", "a", "b"),
    ("SET", "a", 3),
    ("MIGRATE", "127.0.0.1", "PORT", "a", 3, 0, "COPY", "REPLACE"),
    ("MIGRATE", "127.0.0.1", "PORT", "a", 3, -5, "COPY"),
    ("MIGRATE", "127.0.0.1", "PORT", "a", 99, SLOW),
    ("MIGRATE", "127.0.0.1", "PORT", "a", -1, SLOW),
    ("MIGRATE", "127.0.0.1", "PORT", "a", 0, SLOW, "AUTH"),
    ("MIGRATE", "127.0.0.1", "PORT", "a", 0, SLOW, "AUTH2", "u"),
    ("MIGRATE", "127.0.0.1", "PORT", "a", 0, SLOW, "AUTH2", "nobody", "secret"),
    ("MIGRATE", "127.0.0.1", "PORT", "a", 0, SLOW, "COPY", "REPLACE", "NOW"),
    ("MIGRATE", "127.0.0.1", "PORT", "a", 0, SLOW, "KEYS", "a"),
    ("MIGRATE", "127.0.0.1", "PORT", "", 0, SLOW, "KEYS"),
    ("MIGRATE", "127.0.0.1", "PORT", "a", "x", SLOW),
    ("MIGRATE", "127.0.0.1", "PORT", "a", 0, "x"),
    ("MIGRATE", "127.0.0.1", "PORT", "a", 0),
    ("MIGRATE", "127.0.0.1", "CLOSED", "a", 0, SLOW),
    ("MIGRATE", "127.0.0.1", "CLOSED", "none", 0, SLOW),
    ("MIGRATE", "127.0.0.1", "nonsense", "a", 0, SLOW),
    ("MIGRATE", "no.such.name.invalid", "PORT", "a", 0, SLOW),
    ("MIGRATE", "127.0.0.1", "SILENT", "a", 0, 100),
    ("MIGRATE", "127.0.0.1", "RUDE", "a", 0, SLOW),
    ("GET", "a"),
    ("RESTORE-ASKING", "a", 0, "junk"),
    ("RESTORE-ASKING", "c", 0, "junk"),
    ("RESTORE-ASKING", "c", -1, "junk"),
    ("COMMAND", "GETKEYS", "MIGRATE", "h", 1, "", 0, 10, "AUTH", "keys", "KEYS", "a", "b"),
    ("COMMAND", "GETKEYS", "MIGRATE", "h", 1, "k", 0, 10, "COPY"),
    ("COMMAND", "GETKEYSANDFLAGS", "MIGRATE", "keys", 1, "k", 0, 10),
]


@contextlib.contextmanager
def silent():
    """A port that takes what it is sent and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@contextlib.contextmanager
def rude():
    """A port that closes each connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def close():
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    client.recv(100)
                    client.close()

        threading.Thread(target=close, daemon=True).start()
        yield listener.getsockname()[1]


def told_line(server, words):
    """The reply to a line. Without a timeout there is one of a second: where the machine stands still for so long, it is asked again."""
    for _ in range(5):
        answer = reply(server, *words)
        if words[5:6] not in ((0,), (-5,)) or not str(answer).startswith("-IOERR"):
            break
    return answer


# Redis takes -1 for the database that a new connection is in, and sends no SELECT.
MEANT = {("MIGRATE", "127.0.0.1", "PORT", "a", -1, SLOW)}


def told(source, target):
    """The replies to the scenario."""
    with node(source) as one, node(target) as other, silent() as mute, rude() as hasty:
        ports = {"PORT": other.port, "CLOSED": free_port(), "SILENT": mute, "RUDE": hasty}
        return [told_line(one, tuple(ports.get(word, word) for word in words)) for words in SCENARIO]


@pytest.mark.parametrize("target", HOUSES)
@pytest.mark.parametrize("oracle", ["redis", "valkey"])
def test_replies_are_those_of_redis_and_valkey(oracle, target):
    if (oracle, target) == ("valkey", "redis"):
        pytest.skip("Redis 7.0 refuses Valkey's form")
    mine, theirs = told("dunlin", target), told(oracle, target)
    different = [found for found in zip(SCENARIO, mine, theirs) if found[1] != found[2]]
    assert [found for found in different if found[0] not in MEANT] == []


def secured(target):
    server = node(target)
    server.call("ACL", "SETUSER", "mover", "on", ">pass", "~*", "+@all")
    server.call("CONFIG", "SET", "requirepass", "hush")
    return server


@pytest.mark.parametrize("target", HOUSES)
def test_credentials_let_keys_in(target):
    with node("dunlin") as one, secured(target) as other:
        for name in "abc":
            one.call("SET", name, 1)
        refused = migrate(one, other.port, key="a")
        assert refused.startswith("-Target instance replied with error: NOAUTH")
        refused = migrate(one, other.port, "AUTH", "wrong", key="a")
        assert refused.startswith("-Target instance replied with error: WRONGPASS")
        assert migrate(one, other.port, "AUTH", "hush", key="a") == "OK"
        assert migrate(one, other.port, "AUTH2", "mover", "pass", "KEYS", "b") == "OK"
        refused = migrate(one, other.port, key="c")
        assert refused.startswith("-Target instance replied with error: NOAUTH"), "nobody else's connection is used"
        assert one.client.keys() == [b"c"]


@pytest.mark.parametrize("house", HOUSES)
def test_secrets_are_shown_to_nobody(house):
    with node(house, "--slowlog-log-slower-than", "0") as one, node("redis") as other:
        one.call("MSET", "a", 1, "b", 1)
        migrate(one, other.port, "AUTH2", "someone", "hush", "KEYS", "a")
        migrate(one, other.port, "COPY", "AUTH", "hush", key="b")
        logged = [entry[3][6:] for entry in one.call("SLOWLOG", "GET", 10) if entry[3][0] == b"MIGRATE"]
        hidden = b"(redacted)"
        assert logged == [[b"COPY", b"AUTH", hidden], [b"AUTH2", hidden, hidden, b"KEYS", b"a"]]


class Target:
    """A server that keeps what it is sent, and answers when it is let."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.commands = []
        self.may_answer = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _talk(self, client):
        stream = client.makefile("rwb")
        while head := stream.readline():
            words = []
            for _ in range(int(head[1:])):
                words.append(stream.read(int(stream.readline()[1:]) + 2)[:-2])
            self.commands.append(words)
            self.may_answer.wait()
            stream.write(b"+OK\r\n")
            stream.flush()

    def names(self):
        return [(words[0].decode(), words[1].decode(), words[-1] == b"REPLACE") for words in self.commands]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()
        self.may_answer.set()


def begin(server, target, *words):
    """A MIGRATE in a thread of its own: the thread, and the list that gets the reply."""
    replies = []

    def run():
        with contextlib.closing(raw(server.port)) as client:
            try:
                replies.append(client.execute_command("MIGRATE", "127.0.0.1", target.port, *words))
            except redis.RedisError as error:
                replies.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    return thread, replies


def test_migrate_holds_up_only_writers_of_its_keys():
    with node("dunlin", "--threads", "1") as server, Target() as target:
        for name in "abc":
            server.call("SET", name, 1)
        mover, replies = begin(server, target, "", 0, SLOW, "KEYS", "a", "b")
        until(lambda: target.commands, "the first key")
        assert server.call("SET", "c", 2) == b"OK", "other keys are anybody's"
        assert server.call("MGET", "a", "b") == [b"1", b"1"], "reads go on"
        with server.connect() as writer:
            writer.sendall(b"INCR a\r\n")
            assert [server.call("GET", "a") for _ in range(100)] == [b"1"] * 100
            writer.setblocking(False)
            with pytest.raises(BlockingIOError):
                writer.recv(1)
            writer.settimeout(30)
            assert replies == []
            target.may_answer.set()
            mover.join()
            assert replies == [b"OK"]
            assert writer.recv(100) == b":1\r\n", "the key is a new one"
        assert server.call("EXISTS", "b") == 0


def test_keys_that_a_transaction_changes_under_way_are_sent_again():
    with node("dunlin") as server, Target() as target:
        for name in ["same", "changed", "expiring", "gone"]:
            server.call("SET", name, 1)
        mover, replies = begin(server, target, "", 0, SLOW, "KEYS", "same", "changed", "expiring", "gone")
        until(lambda: target.commands, "the first key")
        with server.client.pipeline(transaction=True) as pipeline:
            pipeline.incr("changed").expire("expiring", 1000).delete("gone").execute()
        assert replies == []
        target.may_answer.set()
        mover.join()
        assert replies == [b"OK"]
        assert target.names() == [
            ("RESTORE", "same", False),
            ("RESTORE", "changed", False),
            ("RESTORE", "expiring", False),
            ("RESTORE", "gone", False),
            ("DEL", "gone", False),
            ("RESTORE", "changed", True),
            ("RESTORE", "expiring", True),
        ]
        assert int(target.commands[-1][2]) > 0, "with its expiry"
        assert server.client.dbsize() == 0


def test_migrate_moves_a_key_once():
    with node("dunlin") as server, Target() as target, node("redis") as other:
        server.call("SET", "a", 1)
        first, replies = begin(server, target, "a", 0, SLOW)
        until(lambda: target.commands, "the key")
        second, answers = begin(server, other, "a", 0, SLOW)
        movers = lambda: [client for client in server.client.client_list() if client["cmd"] == "migrate"]
        until(lambda: len(movers()) == 2, "a second command")
        target.may_answer.set()
        first.join()
        second.join()
        assert (replies, answers) == ([b"OK"], [b"NOKEY"])


def test_migrate_keeps_what_a_target_that_ended_half_way_answered():
    class Half(Target):
        def _talk(self, client):
            stream = client.makefile("rwb")
            for answer in [b"+OK\r\n", b""]:
                words = [
                    stream.read(int(stream.readline()[1:]) + 2)[:-2] for _ in range(int(stream.readline()[1:]))
                ]
                self.commands.append(words)
                stream.write(answer)
                stream.flush()
            client.shutdown(socket.SHUT_RDWR)

    with node("dunlin") as server, Half() as target:
        server.call("MSET", "a", 1, "b", 1, "c", 1)
        failed = migrate(server, target.port, "KEYS", "a", "b", "c")
        assert failed == "-IOERR error or timeout reading to target instance"
        assert sorted(server.client.keys()) == [b"b", b"c"]


def test_migrate_removal_reaches_replicas_files_and_watchers():
    with node("dunlin", "--appendonly", "yes", "--notify-keyspace-events", "KEA") as server:
        with node("dunlin") as replica, node("redis") as other:
            replica.follow(server.port)
            server.call("MSET", "a", 1, "b", 2, "c", 3)
            settle(server, replica)
            listener = server.client.pubsub()
            listener.psubscribe("__keyevent@0__:*")
            listener.get_message(timeout=30)
            watcher = redis.Redis(port=server.port).pipeline()
            watcher.watch("a")
            assert migrate(server, other.port, "KEYS", "b", "a") == "OK"
            heard = [listener.get_message(timeout=30) for _ in range(2)]
            assert [(message["channel"], message["data"]) for message in heard] == [
                (b"__keyevent@0__:del", b"b"),
                (b"__keyevent@0__:del", b"a"),
            ]
            watcher.multi()
            with pytest.raises(redis.WatchError):
                watcher.set("x", 1).execute()
            settle(server, replica)
            assert replica.client.keys() == [b"c"]
            until(lambda: server.info("persistence")["aof_buffer_length"] == 0, "a written log")
            log = b"".join(path.read_bytes() for path in (server.folder / "appendonlydir").glob("*.incr.aof"))
            assert b"*3\r\n$3\r\nDEL\r\n$1\r\nb\r\n$1\r\na\r\n" in log
            assert b"MIGRATE" not in log


def test_migrate_is_refused_on_a_replica():
    with node("dunlin") as server, node("dunlin") as replica, node("redis") as other:
        server.call("SET", "a", 1)
        replica.follow(server.port)
        settle(server, replica)
        refusal = "-You can't write against a read only replica."
        assert migrate(replica, other.port, key="a") == refusal


def test_migrate_removes_keys_after_a_pause():
    with node("dunlin") as server, Target() as target:
        server.call("SET", "a", 1)
        mover, replies = begin(server, target, "a", 0, SLOW)
        until(lambda: target.commands, "the key")
        server.call("CLIENT", "PAUSE", 600_000, "WRITE")
        before = server.info()["master_repl_offset"]
        target.may_answer.set()
        time.sleep(0.3)
        assert (replies, server.call("EXISTS", "a")) == ([], 1), "nothing changes in a pause"
        assert server.info()["master_repl_offset"] == before
        server.call("CLIENT", "UNPAUSE")
        mover.join()
        assert (replies, server.call("EXISTS", "a")) == ([b"OK"], 0)


def test_transactions_and_scripts_do_not_wait_for_other_servers():
    with node("dunlin") as server, node("redis") as other:
        server.call("SET", "a", 1)
        refusal = "MIGRATE is not possible in transactions and scripts"
        with server.client.pipeline(transaction=True) as pipeline:
            pipeline.execute_command("MIGRATE", "127.0.0.1", other.port, "a", 0, 1000)
            with pytest.raises(redis.ResponseError, match=refusal):
                pipeline.execute()
        with pytest.raises(redis.ResponseError, match=refusal):
            server.call("EVAL", f"return redis.call('MIGRATE', '127.0.0.1', {other.port}, 'a', 0, 1000)", 1, "a")


def test_connections_are_used_again_for_some_time():
    with node("dunlin") as server, node("redis") as other:
        before = other.info("stats")["total_connections_received"]
        for name in ["a", "b", "c"]:
            server.call("SET", name, 1)
            assert migrate(server, other.port, key=name) == "OK"
        assert other.info("stats")["total_connections_received"] == before + 1
        assert server.info("stats")["migrate_cached_sockets"] == 1
        other.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        server.call("SET", "d", 1)
        assert migrate(server, other.port, key="d") == "OK", "a connection that was closed is made anew"
