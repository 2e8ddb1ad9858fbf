"""Replies that wait for replicas: what was acknowledged survives the primary, and nobody who asks for that sees more."""

import signal
import threading

import pytest
import redis

from harness import DUNLIN, ORACLE, VALKEY, WITHOUT_VALKEY, suspend
from links import Link, Node, has_link, is_online, raw, settle, until
from peer import Peer

HOUSES = {"dunlin": DUNLIN, "redis": ORACLE, "valkey": VALKEY}
SYNC = ["--min-sync-replicas", 1, "--sync-replicas-missing", "wait"]


def read_line(connection):
    line = b""
    while not line.endswith(b"\r\n"):
        byte = connection.recv(1)
        if not byte:
            break
        line += byte
    return line


def ask(connection, line):
    connection.sendall(line.encode() + b"\r\n")
    return read_line(connection)


def is_silent(connection):
    """Whether nothing has come. The server is asked on another connection meanwhile, so it has had its turns."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == "never"
    except BlockingIOError:
        return True
    finally:
        connection.settimeout(30)


class Group:
    """A primary and a replica that can be stopped and let go on."""

    def __init__(self, *directives, house="dunlin", replica=()):
        if not HOUSES[house]:
            pytest.skip(WITHOUT_VALKEY)
        self.primary = Node(DUNLIN, *directives)
        self.replica = Node(HOUSES[house], *replica)

    def __enter__(self):
        self.replica.follow(self.primary.port)
        until(lambda: has_link(self.replica), "a link")
        is_online(self.primary)
        return self.primary, self.replica

    def __exit__(self, *_):
        self.replica.process.send_signal(signal.SIGCONT)
        self.replica.stop()
        self.primary.stop()


def quiet_turns(primary, times=20):
    """Lets the primary take some turns, and its replica some time to answer if it can."""
    for _ in range(times):
        primary.call("PING")
        primary.call("DEBUG", "SLEEP", 0.01)


@pytest.mark.parametrize("house", ["dunlin", "redis", "valkey"])
def test_replies_wait_for_replicas_and_for_what_they_show(house):
    with Group(*SYNC, house=house) as (primary, replica):
        with primary.connect() as writer, primary.connect() as reader, primary.connect() as careless:
            assert ask(writer, "SET k 1") == b"+OK\r\n"
            assert ask(careless, "CLIENT DURABILITY async") == b"+OK\r\n"
            suspend(replica.process)
            writer.sendall(b"SET k 2\r\n")

            def seen():
                careless.sendall(b"GET k\r\n")
                return careless.recv(100)

            until(lambda: seen() == b"$1\r\n2\r\n", "the write, which this client has chosen to see")
            reader.sendall(b"GET k\r\nPING\r\n")
            quiet_turns(primary)
            assert is_silent(writer), "nobody has it"
            assert is_silent(reader), "it shows what nobody has"
            # What shows no data does not wait.
            assert b"role:master" in primary.call("INFO", "replication")
            replica.process.send_signal(signal.SIGCONT)
            assert read_line(writer) == b"+OK\r\n"
            received = b""
            while not received.endswith(b"+PONG\r\n"):
                received += reader.recv(100)
            assert received == b"$1\r\n2\r\n+PONG\r\n"


def test_client_durability_is_chosen_by_each_connection():
    with Group() as (primary, replica):
        with primary.connect() as payment, primary.connect() as cache:
            assert ask(payment, "CLIENT DURABILITY sync 1") == b"+OK\r\n"
            suspend(replica.process)
            payment.sendall(b"SET payment 1\r\n")
            assert ask(cache, "SET cache 1") == b"+OK\r\n"
            quiet_turns(primary)
            assert is_silent(payment)
            replica.process.send_signal(signal.SIGCONT)
            assert read_line(payment) == b"+OK\r\n"
            for line, error in [
                ("CLIENT DURABILITY sync 0", b"-ERR the number of replicas must be between 1 and 16\r\n"),
                ("CLIENT DURABILITY sync x", b"-ERR the number of replicas must be between 1 and 16\r\n"),
                ("CLIENT DURABILITY some", b"-ERR syntax error\r\n"),
                ("CLIENT DURABILITY disk", b"-ERR CLIENT DURABILITY DISK needs appendonly yes\r\n"),
            ]:
                assert ask(payment, line) == error
            # Two are wanted, one is there: refused before anything has happened.
            assert ask(payment, "CLIENT DURABILITY sync 2") == b"+OK\r\n"
            assert ask(payment, "SET payment 2") == b"-NOREPLICAS Not enough good replicas to write.\r\n"
            assert ask(payment, "RESET") == b"+RESET\r\n"
            assert ask(payment, "SET payment 3") == b"+OK\r\n"
            settle(primary, replica)


def test_disk_of_the_replica_counts_where_that_is_wanted():
    log = ["--appendonly", "yes", "--appendfsync", "everysec"]
    with Group(*SYNC, "--sync-replicas-ack", "disk", replica=log) as (primary, replica):
        until(lambda: not replica.info("persistence")["aof_rewrite_in_progress"], "the log's base")
        for n in range(5):
            primary.call("SET", "k", n)
        assert primary.call("WAITAOF", 0, 1, 1) == [0, 1], "it is on the replica's disk by then"


def test_disk_of_the_primary_is_waited_for():
    with Node(DUNLIN, "--appendonly", "yes", "--appendfsync", "no") as server, server.connect() as client:
        assert ask(client, "CLIENT DURABILITY disk") == b"+OK\r\n"
        for n in range(20):
            assert ask(client, f"SET k {n}") == b"+OK\r\n"
            with raw(server.port) as other:
                assert other.execute_command("WAITAOF", 1, 0, 1)[0] == 1


def test_reply_waits_for_the_first_replica_there_ever_is():
    with Node(DUNLIN, *SYNC) as primary, Node(DUNLIN) as replica, primary.connect() as writer:
        writer.sendall(b"SET k 1\r\n")
        quiet_turns(primary)
        assert is_silent(writer)
        replica.follow(primary.port)
        assert writer.recv(5) == b"+OK\r\n"
        with raw(replica.port) as reader:
            assert reader.execute_command("GET", "k") == b"1"


def test_demotion_ends_what_waits_in_vain():
    with Group(*SYNC) as (primary, replica), Node(DUNLIN) as other:
        with primary.connect() as writer:
            suspend(replica.process)
            writer.sendall(b"SET k 1\r\n")
            quiet_turns(primary)
            assert is_silent(writer)
            with raw(primary.port) as operator:
                operator.execute_command("CLIENT", "DURABILITY", "async")
            primary.follow(other.port)
            assert writer.recv(1) == b"", "the outcome is unknown"


# What a listener says, the change by another client, and the push as the listener gets it.
PUSHES = {
    "event": (["SUBSCRIBE __keyspace@0__:k"], ["SET k 1"], ["message", "__keyspace@0__:k", "set"]),
    "event of an expiry": (["SUBSCRIBE __keyevent@0__:del"], ["SET k 1", "PEXPIRE k -1"], ["message", "__keyevent@0__:del", "k"]),
    "message": (["SUBSCRIBE news"], ["SET k 1", "PUBLISH news k"], ["message", "news", "k"]),
    "message by a pattern": (["PSUBSCRIBE n*"], ["SET k 1", "PUBLISH news k"], ["pmessage", "n*", "news", "k"]),
    "message of a transaction": (
        ["SUBSCRIBE news"],
        ["MULTI", "SET k 1", "PUBLISH news k", "EXEC"],
        ["message", "news", "k"],
    ),
    "message of a script": (
        ["SUBSCRIBE news"],
        ["EVAL redis.call('set','k',1);redis.call('publish','news','k') 0"],
        ["message", "news", "k"],
    ),
    "line": (["MONITOR"], ["SET k 1"], '"SET" "k" "1"'),
    "line of a transaction": (["MONITOR"], ["MULTI", "SET k 1", "EXEC"], '"SET" "k" "1"'),
    "line of a script": (["MONITOR"], ["EVAL redis.call('set','k',1) 0"], '"set" "k" "1"'),
}


def is_push(item, wanted):
    return item == wanted if isinstance(wanted, list) else isinstance(item, str) and item.endswith(wanted)


def await_push(listener, wanted):
    while not is_push(listener.read(), wanted):
        pass


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("kind", PUSHES)
def test_pushes_wait_for_replicas(kind, protocol, threads):
    setup, change, push = PUSHES[kind]
    directives = ["--threads", threads, "--notify-keyspace-events", "KEA"]
    with Group(*SYNC, *directives) as (primary, replica), Peer(primary, protocol) as listener:
        with Peer(primary, protocol) as careless, Peer(primary) as writer, Peer(primary, 3) as cache:
            for peer in listener, careless:
                # The level is the server's, whatever a listener has chosen.
                assert peer is listener or peer.line("CLIENT DURABILITY async") == "OK"
                for line in setup:
                    peer.line(line)
            assert cache.line("CLIENT TRACKING ON BCAST") == "OK"
            suspend(replica.process)
            writer.send_all(*change)
            assert cache.read() == ["invalidate", ["k"]], "which shows no value and does not wait"
            quiet_turns(primary)
            for peer in listener, careless:
                assert not any(is_push(item, push) for item in peer.pending()), "nobody has it"
            replica.process.send_signal(signal.SIGCONT)
            for peer in listener, careless:
                await_push(peer, push)
            for _ in change:
                writer.read()
            # The way is free for the next ones.
            writer.send_all(*change)
            for peer in listener, careless:
                await_push(peer, push)


def test_push_that_waits_holds_up_later_replies_of_its_listener():
    with Group(*SYNC, "--notify-keyspace-events", "KEA") as (primary, replica), Peer(primary, 3) as listener:
        with Peer(primary) as writer:
            assert listener.line("CLIENT DURABILITY async") == "OK"
            listener.line("SUBSCRIBE __keyspace@0__:k")
            suspend(replica.process)
            writer.send_all("SET k 1")
            until(lambda: primary.info("keyspace"), "the write")
            listener.send_all("PING", "GET k", "PING")
            quiet_turns(primary)
            assert not listener.pending(), "the push comes first"
            replica.process.send_signal(signal.SIGCONT)
            assert [listener.read() for _ in range(4)] == [["message", "__keyspace@0__:k", "set"], "PONG", "1", "PONG"]


def test_pushes_wait_while_no_replica_is_there():
    with Node(DUNLIN, *SYNC, "--notify-keyspace-events", "KEA") as primary, Node(DUNLIN) as replica:
        with Link(primary.port) as link, Peer(primary) as listener, Peer(primary) as writer:
            replica.follow(link.port)
            until(lambda: has_link(replica), "a link")
            is_online(primary)
            listener.line("SUBSCRIBE __keyspace@0__:k")
            link.cut(refuse=True)
            until(lambda: primary.info()["connected_slaves"] == 0, "the loss of the replica")
            writer.send_all("SET k 1")
            with Peer(primary) as passing:
                passing.line("SUBSCRIBE __keyspace@0__:k")
                quiet_turns(primary)
                assert not listener.pending() and not passing.pending()
            # One that leaves meanwhile takes its pushes along.
            quiet_turns(primary)
            link.heal()
            assert listener.read() == ["message", "__keyspace@0__:k", "set"]
            assert writer.read() == "OK"


@pytest.mark.parametrize("kind", ["event", "message of a transaction", "line"])
def test_pushes_of_a_demoted_primary_are_not_delivered(kind):
    setup, change, push = PUSHES[kind]
    with Group(*SYNC, "--notify-keyspace-events", "KEA") as (primary, replica), Node(DUNLIN) as other:
        with Peer(primary) as listener, Peer(primary) as writer:
            for line in setup:
                listener.line(line)
            suspend(replica.process)
            writer.send_all(*change)
            quiet_turns(primary)
            with raw(primary.port) as operator:
                operator.execute_command("CLIENT", "DURABILITY", "async")
            primary.follow(other.port)
            seen = []
            with pytest.raises((EOFError, ConnectionResetError)):
                while True:
                    seen.append(listener.read())
            assert not any(is_push(item, push) for item in seen)


@pytest.mark.parametrize("seed", range(3))
def test_acknowledged_writes_survive_the_primary(seed):
    """Writers append to lists of their own until the primary is killed; the replica has all that they were told."""
    with Node(DUNLIN, *SYNC) as primary, Node(DUNLIN) as replica:
        replica.follow(primary.port)
        until(lambda: has_link(replica), "a link")
        is_online(primary)
        acknowledged = [0] * 8

        def write(writer):
            client = redis.Redis(port=primary.port, protocol=2, socket_timeout=60, retry=None)
            try:
                while True:
                    with client.pipeline(transaction=writer % 2 == 0) as pipe:
                        for n in range(4):
                            pipe.rpush(f"l{writer}", acknowledged[writer] + n)
                        pipe.execute()
                    acknowledged[writer] += 4
            except redis.ConnectionError:
                pass

        writers = [threading.Thread(target=write, args=[writer]) for writer in range(len(acknowledged))]
        for writer in writers:
            writer.start()
        until(lambda: min(acknowledged) > 40 * (seed + 1), "writes")
        primary.process.kill()
        primary.process.wait()
        for writer in writers:
            writer.join()
        primary.stop = lambda: primary.kill()
        replica.call("REPLICAOF", "NO", "ONE")
        for writer, count in enumerate(acknowledged):
            values = [int(value) for value in replica.call("LRANGE", f"l{writer}", 0, -1)]
            assert len(values) >= count, "acknowledged, and lost"
            assert values == list(range(len(values))), "torn"
