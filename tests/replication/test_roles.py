"""Changes of roles: clients that wait, links that are stopped, and planned failovers."""

import contextlib
import signal
import socket
import threading
import time

import pytest
import redis

from harness import DUNLIN, ORACLE, VALKEY, WITHOUT_VALKEY, suspend
from links import FakePrimary, Link, Node, has_link, is_online, raw, settle, until
from peer import Failure, Peer
from wire import command as packed

HOUSES = {"dunlin": DUNLIN, "redis": ORACLE, "valkey": VALKEY}
PAIRS = [
    ("dunlin", "dunlin"),
    ("dunlin", "redis"),
    ("redis", "dunlin"),
    ("dunlin", "valkey"),
    ("valkey", "dunlin"),
]
UNBLOCKED = b"-UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)\r\n"


def node(house, *directives):
    if not HOUSES[house]:
        pytest.skip(WITHOUT_VALKEY)
    return Node(HOUSES[house], *directives)


@pytest.fixture(params=PAIRS, ids=lambda pair: f"{pair[1]}-of-{pair[0]}")
def pair(request):
    primary, replica = request.param
    with node(primary) as first, node(replica) as second:
        second.follow(first.port)
        settle(first, second)
        is_online(first)
        yield first, second


def ask(connection, line):
    connection.sendall(line.encode() + b"\r\n")
    return read_line(connection)


def read_line(connection):
    line = b""
    while not line.endswith(b"\r\n"):
        byte = connection.recv(1)
        if not byte:
            break
        line += byte
    return line


@pytest.mark.parametrize("house", ["dunlin", "redis", "valkey"])
def test_demotion_unblocks_clients_and_closes_them(house):
    with node(house) as server, node(house) as other:
        server.call("XADD", "s", "1-1", "f", "v")
        lines = ["BLPOP x 0", "BZPOPMIN z 0", "XREAD BLOCK 0 STREAMS s $", "WAIT 1 0"]
        waiting = [server.connect() for _ in lines]
        for connection, line in zip(waiting, lines):
            connection.sendall(line.encode() + b"\r\n")
        until(lambda: server.info("clients")["blocked_clients"] == len(lines), "clients that wait")
        server.follow(other.port)
        for connection in waiting:
            assert read_line(connection) == UNBLOCKED
            assert connection.recv(1) == b""
            connection.close()
        assert server.info("clients")["blocked_clients"] == 0


def wait_for_keys(server, line):
    """A connection whose command waits for keys."""
    connection = server.connect()
    connection.sendall(line.encode() + b"\r\n")
    until(lambda: server.info("clients")["blocked_clients"] == 1, "a client that waits")
    return connection


@contextlib.contextmanager
def held_by_script(server, key):
    """A script that reads a key without end, and a client of another worker: it is kept out of that key alone."""
    clients = []

    def is_refused(client, key):
        try:
            return client.execute_command("EXISTS", key) is None
        except redis.ResponseError:
            return True

    def kept_out():
        clients.append(raw(server.port))
        return is_refused(clients[-1], key) and not is_refused(clients[-1], "free") and clients[-1]

    with server.connect() as slow:
        slow.sendall(f'EVAL_RO "while true do end" 1 {key}\r\n'.encode())
        try:
            yield until(kept_out, "a script that takes long")
        finally:
            clients[-1].execute_command("SCRIPT", "KILL")
            assert read_line(slow).startswith(b"-ERR Script killed by user")
            for client in clients:
                client.close()


def test_reader_that_a_script_keeps_out_is_served_when_it_ends():
    with node("dunlin") as first, node("dunlin", "--threads", "2", "--busy-reply-threshold", "50") as second:
        second.follow(first.port)
        settle(first, second)
        with wait_for_keys(second, "XREAD BLOCK 0 STREAMS a b 0 0") as waiting:
            with held_by_script(second, "b") as client:
                first.call("XADD", "a", "1-1", "f", "v")
                until(lambda: client.execute_command("XLEN", "a") == 1, "the entry")
            assert [read_line(waiting) for _ in range(4)] == [b"*1\r\n", b"*2\r\n", b"$1\r\n", b"a\r\n"]


@pytest.mark.parametrize("house", ["dunlin", "valkey"])
def test_clients_that_take_redirections_are_sent_to_the_primary(house):
    with node(house) as server, node(house) as other:
        redirect = f"-REDIRECT 127.0.0.1:{other.port}\r\n".encode()
        waiting, client = server.connect(), server.connect()
        for connection in (waiting, client):
            assert ask(connection, "CLIENT CAPA redirect") == b"+OK\r\n"
        assert ask(client, "SET a 1") == b"+OK\r\n", "a primary redirects nobody"
        waiting.sendall(b"BLPOP x 0\r\n")
        until(lambda: server.info("clients")["blocked_clients"] == 1, "a client that waits")
        server.follow(other.port)
        assert read_line(waiting) == redirect
        assert ask(waiting, "GET a") == redirect, "the connection stays"
        until(lambda: has_link(server), "a link")
        for line in ("GET a", "SET a 1", "SCAN 0", "WATCH a", "MULTI", "INCR a"):
            expected = b"+OK\r\n" if line in ("WATCH a", "MULTI") else redirect
            assert ask(client, line) == expected, line
        assert ask(client, "EXEC").startswith(b"-EXECABORT")
        assert ask(client, "READONLY") == b"+OK\r\n"
        assert ask(client, "GET a") == b"$-1\r\n"
        assert ask(client, "SET a 1") == redirect
        assert ask(client, "READWRITE") == b"+OK\r\n"
        assert ask(client, "GET a") == redirect
        with server.connect() as plain:
            assert ask(plain, "GET a") == b"$-1\r\n"
            assert ask(plain, "SET a 1").startswith(b"-READONLY ")
        server.call("REPLICAOF", "NO", "ONE")
        assert ask(client, "SET a 1") == b"+OK\r\n"
        waiting.close()
        client.close()


def test_link_stops_at_a_command_that_is_refused():
    with Node(ORACLE) as empty, Node(DUNLIN) as replica, Node(DUNLIN) as behind:
        empty.call("SAVE")
        primary = FakePrimary((empty.folder / "dump.rdb").read_bytes())
        behind.follow(replica.port)
        replica.follow(primary.port)
        until(lambda: primary.link and has_link(replica) and has_link(behind), "links")
        id_before = replica.info()["master_replid"]
        good = redis.connection.Connection().pack_command("SET", "text", "x")
        bad = redis.connection.Connection().pack_command("LPUSH", "text", "y")
        later = redis.connection.Connection().pack_command("SET", "later", "x")
        primary.link.sendall(b"".join(good) + b"".join(bad) + b"".join(later))
        error = until(lambda: replica.info().get("master_link_error"), "the end of the link")
        assert error == (
            "'LPUSH' of the primary's stream for the key 'text' was refused here: "
            "WRONGTYPE Operation against a key holding the wrong kind of value"
        )
        # INFO shows why a moment before it shows that the link is down.
        until(lambda: not has_link(replica), "the end of the link in INFO")
        info = replica.info()
        assert (info["role"], info["master_link_status"]) == ("slave", "down")
        assert info["master_replid"] != id_before, "nobody goes on from here"
        assert replica.call("EXISTS", "later") == 0
        # The same order begins anew.
        with Node(ORACLE) as other:
            other.call("SET", "of the other", 1)
            replica.follow(other.port)

            def goes_on():
                # What was refused may have reached it before it was cut off: then it has stopped, too.
                if "master_link_error" in behind.info():
                    behind.follow(replica.port)
                return has_link(behind)

            until(goes_on, "the replica behind it")
            settle(other, replica, behind)
            assert "master_link_error" not in replica.info()


def test_replica_writes_its_log_anew_in_any_database():
    with Node(ORACLE) as primary, Node(DUNLIN, "--appendonly", "yes") as replica:
        replica.follow(primary.port)
        settle(primary, replica)
        third = raw(primary.port, db=3)
        third.execute_command("SET", "before", 1)
        settle(primary, replica)
        until(lambda: not replica.info("persistence")["aof_rewrite_in_progress"], "the log's first base")
        rewrites = replica.info("persistence")["aof_rewrites"]
        replica.call("BGREWRITEAOF")

        def is_rewritten():
            info = replica.info("persistence")
            return info["aof_rewrites"] > rewrites and not info["aof_rewrite_in_progress"]

        until(is_rewritten, "the rewritten log")
        # No SELECT comes again.
        third.execute_command("SET", "after", 1)
        third.execute_command("INCR", "counter")
        settle(primary, replica)
        digest = replica.digest()
        replica.client.close()
        replica.process.terminate()
        assert replica.process.wait(30) == 0
        with Node(DUNLIN, "--appendonly", "yes", files=replica.folder) as again:
            assert again.digest() == digest
            client = raw(again.port, db=3)
            assert client.execute_command("MGET", "before", "after", "counter") == [b"1", b"1", b"1"]
            client.execute_command("SET", "later", 1)
            again.call("SET", "in 0", 1)
            digest = again.digest()
            again.client.close()
            again.process.terminate()
            assert again.process.wait(30) == 0
            with Node(DUNLIN, "--appendonly", "yes", files=again.folder) as last:
                assert last.digest() == digest
            again.stop = lambda: again.kill()
        replica.stop = lambda: replica.kill()
        third.close()


def failed_over(primary, replica):
    """Waits until two servers have changed places."""
    until(lambda: replica.info()["role"] == "master", "the new primary")
    until(lambda: primary.info()["role"] == "slave" and has_link(primary), "the new replica")
    until(lambda: primary.info()["master_failover_state"] == "no-failover", "the end of the failover")


@pytest.mark.parametrize("target", ["any", "named"])
def test_failover_loses_nothing_and_needs_no_snapshot(pair, target):
    primary, replica = pair
    stop, acknowledged, refused = threading.Event(), [], []

    def write():
        client, n = redis.Redis(port=primary.port, protocol=2), 0
        while not stop.is_set():
            n += 1
            try:
                client.set(f"k{n}", n)
                acknowledged.append(n)
            except redis.ResponseError as error:
                refused.append(str(error))
                return

    writers = [threading.Thread(target=write)]
    writers[0].start()
    until(lambda: len(acknowledged) > 100, "writes")
    try:
        words = ["TO", "127.0.0.1", replica.port] if target == "named" else []
        assert primary.call("FAILOVER", *words, "TIMEOUT", 30_000) == b"OK"
        failed_over(primary, replica)
        writers[0].join(30)
    finally:
        stop.set()
    assert refused == ["You can't write against a read only replica."]
    settle(replica, primary)
    assert all(replica.call("GET", f"k{n}") == str(n).encode() for n in acknowledged)
    assert replica.info("stats")["sync_full"] == 0
    assert replica.info("stats")["sync_partial_ok"] == 1
    # And back.
    is_online(replica)
    assert replica.call("FAILOVER") == b"OK"
    failed_over(replica, primary)
    primary.call("SET", "back", 1)
    settle(primary, replica)


SCRIPTED = {
    "declared": ("EVAL", "return redis.call('SADD', KEYS[1], ARGV[1])", 1),
    # Keys that the script computes make it wait until it is alone: what let it in may have ended by then.
    "undeclared": ("EVAL", "return redis.call('SADD', 'acknowledged' .. '', ARGV[2])", 1),
    "queued": ("EVAL", "return redis.call('SADD', KEYS[1], ARGV[1])", 1),
    "function": ("FCALL", "add", 1),
}
BATCH = 200


def is_of_roles(reply):
    """Whether a write was done, or refused by a replica or one that becomes one."""
    texts = ("READONLY", "UNBLOCKED", "EXECABORT Transaction discarded because of: READONLY")
    return reply in (1, [1]) or str(reply).startswith(texts) or isinstance(reply, list) and is_of_roles(reply[0])


ADD = "#!lua name=lib\nredis.register_function('add', function(keys, args) return redis.call('SADD', keys[1], args[1]) end)"


@pytest.mark.parametrize("house", ["dunlin", "redis"])
def test_failover_loses_nothing_that_scripts_have_written(house):
    """Clients that write by scripts only, beside rounds of planned failovers: every acknowledged member is there in the end."""
    with node(house) as first, node(house) as second:
        first.call("FUNCTION", "LOAD", ADD)
        second.follow(first.port)
        settle(first, second)
        is_online(first)
        stop, acknowledged, unexpected = threading.Event(), {way: [] for way in SCRIPTED}, []

        def write(way):
            nodes, n = [first, second], 0
            command, script, count = SCRIPTED[way]
            while not stop.is_set():
                numbers = range(n, n := n + BATCH)
                words = [(command, script, count, "acknowledged", f"{way}:{n}", f"{way}:{n}") for n in numbers]
                if way == "queued":
                    words = [each for one in words for each in (("MULTI",), one, ("EXEC",))]
                with Peer(nodes[0]) as client:
                    client.socket.sendall(b"".join(packed(*each) for each in words))
                    try:
                        replies = [client.read() for _ in words]
                    except (EOFError, ConnectionResetError):
                        replies = []
                replies = replies[2::3] if way == "queued" else replies
                acknowledged[way] += [n for n, reply in zip(numbers, replies) if reply in (1, [1])]
                if len(replies) < BATCH or any(isinstance(reply, Failure) for reply in replies):
                    unexpected.extend(reply for reply in replies if not is_of_roles(reply))
                    nodes.reverse()

        writers = [threading.Thread(target=write, args=[way]) for way in SCRIPTED]
        [writer.start() for writer in writers]
        try:
            for primary, replica in [(first, second), (second, first)] * 3:
                count = sum(map(len, acknowledged.values()))
                until(lambda: sum(map(len, acknowledged.values())) > count + 20 * BATCH, "writes")
                is_online(primary)
                assert primary.call("FAILOVER", "TIMEOUT", 30_000) == b"OK"
                failed_over(primary, replica)
        finally:
            stop.set()
            [writer.join(60) for writer in writers]
        assert not unexpected
        settle(first, second)
        expected = {f"{way}:{n}".encode() for way, numbers in acknowledged.items() for n in numbers}
        assert not expected - set(first.call("SMEMBERS", "acknowledged"))


@pytest.mark.parametrize("way", SCRIPTED)
def test_failover_holds_scripts_that_may_write(way):
    with node("dunlin") as primary, node("dunlin") as replica:
        primary.call("FUNCTION", "LOAD", ADD)
        replica.follow(primary.port)
        settle(primary, replica)
        is_online(primary)
        suspend(replica.process)
        try:
            # The replica lacks it, so the failover waits.
            primary.call("SET", "unseen", 1)
            assert primary.call("FAILOVER") == b"OK"
            command, script, count = SCRIPTED[way]
            with Peer(primary) as client:
                if way == "queued":
                    assert client.line("MULTI") == "OK"
                client.send(command, script, count, "acknowledged", "member", "member")
                until(lambda: primary.info("clients")["blocked_clients"] == 1, "a held script")
                assert primary.call("EXISTS", "acknowledged") == 0
                assert primary.call("EVAL_RO", "return redis.call('GET', KEYS[1])", 1, "unseen") == b"1"
                assert primary.call("FAILOVER", "ABORT") == b"OK"
                reply = client.read()
                assert (client.line("EXEC") if way == "queued" else [reply]) == [1]
        finally:
            replica.process.send_signal(signal.SIGCONT)
        settle(primary, replica)


def test_failover_pauses_writes_until_it_is_aborted(pair):
    primary, replica = pair
    if primary.program != DUNLIN:
        pytest.skip("about Dunlin as a primary")
    with Link(primary.port) as link:
        replica.follow(link.port)
        settle(primary, replica)
        suspend(replica.process)
        try:
            primary.call("SET", "unseen", 1)
            assert primary.call("FAILOVER") == b"OK"
            assert primary.info()["master_failover_state"] == "waiting-for-sync"
            for words, text in [
                (("FAILOVER",), "FAILOVER already in progress."),
                (("REPLICAOF", "127.0.0.1", 1), "REPLICAOF not allowed while failing over."),
            ]:
                with pytest.raises(redis.ResponseError, match=text):
                    primary.call(*words)
            with primary.connect() as client, primary.connect() as psync:
                client.sendall(b"SET held 1\r\n")
                until(lambda: primary.info("clients")["blocked_clients"] == 1, "a held write")
                primary.call("CLIENT", "UNPAUSE")
                assert primary.call("GET", "held") is None
                assert ask(psync, "PSYNC ? -1") == b"-NOMASTERLINK Can't SYNC while failing over\r\n"
                assert primary.call("FAILOVER", "ABORT") == b"OK"
                assert read_line(client) == b"+OK\r\n"
            assert primary.info()["master_failover_state"] == "no-failover"
            begun = time.monotonic()
            assert primary.call("FAILOVER", "TIMEOUT", 50) == b"OK"
            primary.call("SET", "after", 1)
            assert time.monotonic() - begun >= 0.05
            assert primary.info()["role"] == "master"
        finally:
            replica.process.send_signal(signal.SIGCONT)
        settle(primary, replica)


def test_failover_by_force_goes_on_without_what_is_lacking(pair):
    primary, replica = pair
    suspend(replica.process)
    try:
        primary.call("SET", "lacking", 1)
        words = ("FAILOVER", "TO", "127.0.0.1", replica.port, "FORCE", "TIMEOUT", 50)
        assert primary.call(*words) == b"OK"
        until(lambda: primary.info()["master_failover_state"] == "failover-in-progress", "the order")
        until(lambda: primary.info()["role"] == "slave", "the change of the role")
        assert primary.info()["master_failover_state"] == "failover-in-progress"
    finally:
        replica.process.send_signal(signal.SIGCONT)
    failed_over(primary, replica)
    settle(replica, primary)


class Refusing:
    """A server in front of a replica that answers the handshake, and refuses to take over."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.asked = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            link, _ = self.listener.accept()
            file = link.makefile("rb")
            while head := file.readline():
                words = [file.read(int(file.readline()[1:]) + 2)[:-2] for _ in range(int(head[1:]))]
                if words[0] == b"PSYNC":
                    self.asked.append(words)
                    link.sendall(b"-ERR PSYNC FAILOVER replid must match my replid.\r\n")
                    break
                link.sendall(b"+PONG\r\n" if words[0] == b"PING" else b"+OK\r\n")


def test_failover_that_the_target_refuses_is_undone():
    with Node(DUNLIN) as primary:
        refusing = Refusing()
        with Node(DUNLIN, "--replica-announce-port", refusing.port) as replica:
            replica.follow(primary.port)
            settle(primary, replica)
            id_before = primary.info()["master_replid"]
            suspend(replica.process)
            assert primary.call("FAILOVER") == b"OK"
            writer = primary.connect()
            writer.sendall(b"SET held 1\r\n")
            until(lambda: primary.info("clients")["blocked_clients"] == 1, "a held write")
            replica.process.send_signal(signal.SIGCONT)
            until(lambda: refusing.asked, "the request")
            assert read_line(writer) == b"+OK\r\n", "it was held until the server was a primary again"
            writer.close()
            until(lambda: primary.info()["role"] == "master", "the end of the failover")
            assert refusing.asked[0][3:] == [b"FAILOVER"]
            info = primary.info()
            assert info["master_failover_state"] == "no-failover"
            assert info["master_replid2"] == id_before
            primary.call("SET", "k", 1)
            settle(primary, replica)
            assert primary.info("stats")["sync_full"] == 1, "the replica goes on by the second id"


@pytest.mark.parametrize("house", ["dunlin", "redis"])
def test_failover_texts(house):
    with node(house) as server, node(house) as replica:
        def refusal(at, *words):
            with pytest.raises(redis.ResponseError) as raised:
                at.call(*words)
            return str(raised.value)

        assert refusal(server, "FAILOVER") == "FAILOVER requires connected replicas."
        assert refusal(server, "FAILOVER", "ABORT") == "No failover in progress."
        assert refusal(server, "FAILOVER", "TIMEOUT", 0) == "FAILOVER timeout must be greater than 0"
        for words in (["TO", "a"], ["ABORT", "TIMEOUT", 1], ["TO", "a", 1, "TO", "b", 2], ["FORCE", "FORCE"], ["x"]):
            assert refusal(server, "FAILOVER", *words) == "syntax error"
        for words in (["TO", "a", "b"], ["TIMEOUT", "x"]):
            assert refusal(server, "FAILOVER", *words) == "value is not an integer or out of range"
        assert refusal(server, "PSYNC", "?", -1, "FAILOVER") == "PSYNC FAILOVER can't be sent to a master."
        replica.follow(server.port)
        settle(server, replica)
        is_online(server)
        assert refusal(replica, "FAILOVER") == "FAILOVER is not valid when server is a replica."
        assert refusal(replica, "PSYNC", "x" * 40, 1, "FAILOVER") == "PSYNC FAILOVER replid must match my replid."
        force = "FAILOVER with force option requires both a timeout and target HOST and IP."
        for words in (["FORCE"], ["FORCE", "TIMEOUT", 1], ["TO", "127.0.0.1", replica.port, "FORCE"]):
            assert refusal(server, "FAILOVER", *words) == force
        other = "FAILOVER target HOST and PORT is not a replica."
        assert refusal(server, "FAILOVER", "TO", "127.0.0.1", replica.port + 1) == other


def test_client_pause_on_a_replica_holds_the_stream(pair):
    primary, replica = pair
    replica.call("CLIENT", "PAUSE", 10_000_000, "WRITE")
    primary.call("SET", "held", 1)
    assert primary.call("WAIT", 1, 500) == 0
    assert replica.call("GET", "held") is None
    replica.call("CLIENT", "UNPAUSE")
    assert primary.call("WAIT", 1, 0) == 1
    assert replica.call("GET", "held") == b"1"
