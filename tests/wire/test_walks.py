"""KEYS, SCAN and their kin where they walk over the keyspace apart from their worker, while others change it."""

import itertools
import socket
import threading

import pytest

from harness import DUNLIN, Server, is_redis
from peer import Peer, Push
from wire import Bystander, Session, command, eventually, shut

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="Redis has no commands that run apart")

DEBUG = ["--enable-debug-command", "yes"]


@pytest.fixture(params=[1, 2])
def store(request):
    """A server that offloads every walk."""
    with Server("--threads", str(request.param), *DEBUG) as server:
        with Session(server) as session:
            assert session("DEBUG", "VISITS-MAX", 0) == "OK"
        yield server


def in_order(reply):
    """A reply whose keys have no order of their own."""
    if isinstance(reply, list):
        return sorted((in_order(item) for item in reply), key=repr)
    return reply


def ask_all(server, protocol, lines):
    with Peer(server, protocol) as peer:
        return [in_order(peer.line(line)) for line in lines]


@pytest.mark.parametrize("protocol", [2, 3])
def test_replies_are_those_of_redis(store, oracle, protocol):
    setup = ["FLUSHALL", "MSET {a}1 v {a}2 v", "SADD set m", "XADD stream 1-1 f v", "SET gone v PX 1"]
    setup += [f"SET key:{number} v" for number in range(2000)]
    walks = ["KEYS *", "KEYS key:1*", "KEYS {a}*", "KEYS [a-s]*", "KEYS nothing*", "KEYS set", "KEYS gone", "DBSIZE"]
    walks += ["SCAN 0 COUNT 100000", "SCAN 0 COUNT 100000 MATCH *7 TYPE string", "SCAN 0 TYPE stream COUNT 100000"]
    walks += ["SCAN 0 COUNT 100000 MATCH {a}*", "SCAN 0 COUNT 100000 TYPE nothing", "SCAN 0 COUNT 0", "KEYS a b"]
    for server in (store, oracle):
        ask_all(server, protocol, setup)
        with Session(server) as session:
            eventually(lambda: session("EXISTS", "gone") == 0, "it expires")
            # Until it is removed, it is counted.
            eventually(lambda: session("DBSIZE") == 2004, "it is removed")
    assert ask_all(store, protocol, walks) == ask_all(oracle, protocol, walks)


def test_scan_finds_everything_once_at_any_count(store):
    with Session(store) as session:
        names = {b"key:%d" % number for number in range(3000)}
        session("MSET", *itertools.chain.from_iterable((name, "v") for name in names))
        for count in (1, 7, 100, 1000, 10_000):
            cursor, found = b"0", []
            while True:
                cursor, keys = session("SCAN", cursor, "COUNT", count)
                found += keys
                if cursor == b"0":
                    break
            assert sorted(found) == sorted(names)


def test_debug_digest_by_offload_equals_the_one_in_place(store):
    with Session(store) as session:
        for number in range(500):
            session("SET", f"key:{number}", "v")
            session("RPUSH", f"list:{number}", "a", "b")
        apart = session("DEBUG", "DIGEST")
        session("MULTI")
        session("DEBUG", "DIGEST")
        assert session("EXEC") == [apart]
        session("CONFIG", "SET", "slowlog-log-slower-than", 0)
        session("SLOWLOG", "RESET")
        session("DEBUG", "DIGEST")
        assert [b"DEBUG", b"DIGEST"] in [entry[3] for entry in session("SLOWLOG", "GET")]


def test_keys_that_are_there_throughout_come_once_beside_writers(store):
    names = {b"stay:%d" % number for number in range(5000)}
    ended = threading.Event()

    def write(number):
        """Makes the tables grow and shrink."""
        with store.connect() as client:
            replies = client.makefile("rb")
            for turn in itertools.count():
                pairs = [word for key in range(4000) for word in (f"guest:{number}:{key}", "v")]
                client.sendall(command("MSET", *pairs) + command("DEL", *pairs[::2]))
                replies.readline(), replies.readline()
                if ended.is_set():
                    return

    with Session(store) as session:
        session("MSET", *itertools.chain.from_iterable((name, "v") for name in names))
        writers = [threading.Thread(target=write, args=(number,)) for number in range(2)]
        for writer in writers:
            writer.start()
        try:
            for _ in range(15):
                for words in [("KEYS", "*"), ("KEYS", "stay*"), ("SCAN", 0, "COUNT", 10**9)]:
                    keys = session(*words)
                    keys = keys[1] if words[0] == "SCAN" else keys
                    assert len(keys) == len(set(keys)), words
                    assert {key for key in keys if key.startswith(b"stay")} == names, words
        finally:
            ended.set()
            for writer in writers:
                writer.join()


@pytest.mark.parametrize("protocol", [2, 3])
def test_pipeline_with_offloaded_commands_is_answered_in_order(store, protocol):
    with Peer(store, protocol) as peer:
        peer.line("MSET a 1 b 2")
        peer.send_all("PING", "KEYS *", "SET c 3", "KEYS c*", "CLIENT REPLY SKIP", "KEYS *", "DBSIZE")
        assert peer.read() == "PONG"
        assert sorted(peer.read()) == ["a", "b"]
        assert [peer.read() for _ in range(3)] == ["OK", ["c"], 3]


def test_clients_that_close_or_are_killed_harm_nobody(store):
    with Bystander(store) as bystander, Session(store) as session:
        session("DEBUG", "POPULATE", 200_000)
        for turn in range(10):
            client = store.connect()
            client.sendall(command("CLIENT", "SETNAME", "walker") + command("KEYS", "*") * 3)
            if turn % 2:
                shut(client)
            else:
                eventually(lambda: b"name=walker" in session("CLIENT", "LIST"), "it has come")
                for line in session("CLIENT", "LIST").splitlines():
                    if b"name=walker" in line:
                        session("CLIENT", "KILL", "ID", line.split()[0].removeprefix(b"id="))
                client.close()
            bystander.works()
        eventually(lambda: b"name=walker" not in session("CLIENT", "LIST"), "all have gone")
        assert len(session("KEYS", "*")) == 200_001


@pytest.mark.parametrize("line", ["KEYS *", "SMEMBERS large", "SCAN 0 COUNT 1000000"])
def test_clients_that_end_their_side_are_answered_and_closed(store, line):
    """As with `printf 'KEYS *\\r\\n' | nc`."""
    with Session(store) as session:
        session("DEBUG", "POPULATE", 1000)
        session("SADD", "large", *range(20_000))
        with store.connect() as client:
            client.sendall(command(*line.split()) + command("ECHO", "the last"))
            client.shutdown(socket.SHUT_WR)
            got = b""
            while part := client.recv(1 << 16):
                got += part
        assert got.endswith(b"$8\r\nthe last\r\n") and len(got) > 10_000


def test_output_limit_holds_for_offloaded_replies(store):
    with Session(store) as session:
        session("DEBUG", "POPULATE", 100_000)
        session("CONFIG", "SET", "client-output-buffer-limit", "normal 1mb 0 0")
        with store.connect() as client:
            client.sendall(command("KEYS", "*"))
            got = 0
            while part := client.recv(1 << 16):
                got += len(part)
                if got >= 100_000 * 10:
                    break
        session("CONFIG", "SET", "client-output-buffer-limit", "normal 0 0 0")
        assert len(session("KEYS", "*")) == 100_000


@pytest.mark.parametrize("line", ["FLUSHALL", "FLUSHALL ASYNC", "FLUSHDB SYNC", "SWAPDB 0 1"])
def test_databases_are_emptied_and_exchanged_meanwhile(store, line):
    with Session(store) as walker, Session(store) as session:
        for _ in range(5):
            session("DEBUG", "POPULATE", 30_000)
            walker.send("KEYS", "*")
            assert session(*line.split(" ")) == "OK"
            keys = walker.read()
            assert len(keys) == len(set(keys)) <= 30_000
            assert session("DBSIZE") == len(session("KEYS", "*")) == 0
            session("FLUSHALL")


def test_shutdown_does_not_wait_for_a_walk(store):
    with Session(store) as walker, Session(store) as session:
        session("DEBUG", "POPULATE", 300_000)
        for _ in range(20):
            walker.send("KEYS", "x*y")
        session.send("SHUTDOWN", "NOSAVE")
        assert store.process.wait(timeout=120) == 0


@pytest.mark.parametrize("line", ["FLUSHALL SYNC", "FLUSHDB SYNC"])
def test_flush_frees_in_the_background(store, line):
    """The answer comes when it is done, as that of Redis does, and others are served meanwhile."""
    with Bystander(store) as bystander, Session(store) as session:
        session("DEBUG", "POPULATE", 400_000, "key", 100)
        session.send(*line.split(" "))
        bystander.works()
        assert session.read() == "OK"
        assert session("DBSIZE") <= 1
        session("MULTI")
        session(*line.split(" "))
        assert session("EXEC") == ["OK"]


def test_walk_waits_for_a_script_that_holds_keys_for_long():
    with Server("--threads", "2", "--busy-reply-threshold", "200", *DEBUG) as server:
        with Session(server) as first, Session(server) as second, Session(server) as third:
            first("DEBUG", "VISITS-MAX", 0)
            first("DEBUG", "POPULATE", 20_000)
            # One of the two comes too late, or has done before the script begins: then it is tried again.
            for turn in range(20):
                slow, walker = (first, second) if turn % 2 else (second, first)
                walker.send("KEYS", "*")
                slow.send("EVAL", "while true do redis.call('get', KEYS[1]) end", 1, f"key:{turn}")
                eventually(lambda: str(third("GET", f"key:{turn}")).startswith("-BUSY"), "the script is slow")
                eventually(lambda: third("SCRIPT", "KILL") == "OK", "it ends")
                assert slow.read().startswith("-ERR")
                keys = walker.read()
                assert isinstance(keys, str) and keys.startswith("-BUSY") or len(set(keys)) == len(keys) == 20_000


def test_events_come_before_the_reply_that_shows_their_keys(store):
    """A walk is no point in time: a client that listens learns of a change before it sees it, and it may learn of it while it
    waits for the reply."""
    with Peer(store, 3, unix=True) as listener, Peer(store, unix=True) as writer:
        writer.line("CONFIG SET notify-keyspace-events KA")
        writer.line("DEBUG POPULATE 5000")
        listener.line("PSUBSCRIBE __keyspace@0__:new:*")
        told = set()
        for turn in range(40):
            listener.send("KEYS", "*")
            writer.send_all(*(f"SET new:{turn}:{number} v" for number in range(20)))
            for _ in range(20):
                assert writer.read() == "OK"
            while isinstance(item := listener.read(), Push):
                told.add(item[2].removeprefix("__keyspace@0__:"))
            assert {key for key in item if key.startswith("new:")} <= told
