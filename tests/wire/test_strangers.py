"""Clients that have not authenticated make the server hold next to nothing, and keep no other client out
(CVE-2025-21605 and
its kind)."""

import http.client
import signal
import socket

import pytest

from harness import ORACLE, Server, free_port, suspend
from wire import Session, command, eventually, exactly, rest

KIB, MIB = 1 << 10, 1 << 20
# Held for each: the longest request that a stranger may send, and a connection.
BYTES_PER_STRANGER_MAX = 24 * KIB


@pytest.fixture(scope="module")
def guarded():
    """A server that asks for a password."""
    with Server("--requirepass", "secret") as server:
        yield server


class Owner(Session):
    """A client that knows the password."""

    def __init__(self, server):
        super().__init__(server)
        assert self("AUTH", "secret") == "OK"

    def used_bytes(self):
        lines = self("INFO", "memory").split(b"\r\n")
        return next(int(line.split(b":")[1]) for line in lines if line.startswith(b"used_memory:"))

    def clients(self):
        return self("CLIENT", "LIST").count(b"\n")


def flood(client, data, bytes_max=64 * MIB):
    """Sends without reading until the server closes the connection."""
    client.settimeout(60)
    try:
        for _ in range(bytes_max // len(data)):
            client.sendall(data)
    except ConnectionError:
        return
    raise AssertionError("the server takes everything")


def fill(client, data, bytes_max=64 * MIB):
    """Sends without reading until the socket takes no more."""
    client.settimeout(2)
    try:
        for _ in range(bytes_max // len(data)):
            client.sendall(data)
    except OSError:
        return
    raise AssertionError("the server takes everything")


# Wrong passwords are not among them: behind ten, each waits (test_acl_changes.py).
FLOODS = {
    "commands": command("GET", "k") * 1000,
    "unknown": b"x\n" * 10_000,
    "hello": command("HELLO", "3") * 1000,
    "reset": command("RESET") * 1000,
    "inline": b"GET k\r\n" * 4000,
}


@pytest.mark.parametrize("data", FLOODS.values(), ids=FLOODS.keys())
def test_stranger_that_does_not_read_replies_is_closed(guarded, data):
    with Owner(guarded) as owner:
        before, strangers = owner.used_bytes(), [guarded.connect() for _ in range(8)]
        for stranger in strangers:
            flood(stranger, data)
            assert owner.used_bytes() < before + MIB
        eventually(lambda: owner.clients() == 1, "the strangers are still there")
        for stranger in strangers:
            stranger.close()


def test_strangers_leave_memory_to_others():
    """The published case: with a limit, memory that strangers held was missing to all other clients."""
    with Server("--requirepass", "secret", "--maxmemory", "24mb") as server, Owner(server) as owner:
        for _ in range(8):
            with server.connect() as stranger:
                flood(stranger, FLOODS["commands"])
                assert owner("SET", "k", "v") == "OK"


BEGINNINGS = {
    "argument": b"*2\r\n$4\r\nAUTH\r\n$16384\r\n" + b"x" * 16_383,
    "arguments": b"*10\r\n" + b"$1600\r\n%s\r\n" % (b"x" * 1600) * 10,
    "inline": b"x" * 16_384,
    "quotes": b'"' + b"x" * 16_000,
    "count": b"*" + b"0" * 16_383,
    "length": b"*1\r\n$" + b"0" * 16_383,
    "hello": b"*7\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$7\r\nSETNAME\r\n$16000\r\n" + b"x" * 15_000,
}


@pytest.mark.parametrize("data", BEGINNINGS.values(), ids=BEGINNINGS.keys())
def test_half_a_request_takes_little(guarded, data):
    with Owner(guarded) as owner:
        before, strangers = owner.used_bytes(), [guarded.connect() for _ in range(200)]
        data = data[:-1]
        for stranger in strangers:
            stranger.sendall(data)
        total = len(data) * len(strangers)

        def arrived():
            lines = owner("CLIENT", "LIST").split(b"\n")
            return sum(int(line.split(b" qbuf=")[1].split()[0]) for line in lines if line) >= total

        eventually(arrived, "the beginnings are read")
        assert owner.used_bytes() < before + BYTES_PER_STRANGER_MAX * len(strangers)
        for stranger in strangers:
            stranger.close()
        eventually(lambda: owner.clients() == 1, "the strangers are still there")
        eventually(lambda: owner.used_bytes() < before + 64 * KIB, "what they have held is still held")


@pytest.mark.parametrize(
    "data",
    [
        b"*11\r\n",
        b"*1000000\r\n",
        b"*1\r\n$16385\r\n",
        b"*1\r\n$512000000\r\n",
        b"*2\r\n$4\r\nAUTH\r\n$16384\r\n" + b"x" * 16_384 + b"\r\n",
        command("GET", *["k"] * 8),
        command("AUTH", "wrong"),
        command("HELLO", "3", "AUTH", "default", "wrong", "SETNAME", "x" * 2000),
        command("MULTI"),
        command("SUBSCRIBE", "c"),
        b"nonsense\r\n",
    ],
    ids=range(11),
)
def test_stranger_gets_the_replies_of_redis(guarded, data):
    with Server("--requirepass", "secret", program=ORACLE) as oracle:
        answers = []
        for server in (guarded, oracle):
            with server.connect() as client:
                client.sendall(data + b"QUIT\r\n")
                answers.append(rest(client))
    assert answers[0] == answers[1]


def test_longer_arguments_together_are_refused_as_one_is(guarded):
    with guarded.connect() as client:
        client.sendall(command("AUTH", "x" * 10_000, "x" * 10_000))
        assert rest(client) == (b"-ERR Protocol error: unauthenticated bulk length\r\n", True)


def test_stranger_that_is_paused_holds_little(guarded):
    with Owner(guarded) as owner:
        before, strangers = owner.used_bytes(), [guarded.connect() for _ in range(8)]
        owner("CLIENT", "PAUSE", 60_000, "ALL")
        for stranger in strangers:
            stranger.sendall(command("AUTH", "wrong"))
            fill(stranger, command("AUTH", "wrong") * 1000)
        owner.send("CLIENT", "UNPAUSE")
        owner.send("INFO", "memory")
        assert owner.read() == "OK"
        owner.read()
        assert owner.used_bytes() < before + MIB
        for stranger in strangers:
            stranger.close()


def test_stranger_that_authenticates_has_all_the_room(guarded):
    """A client may send its password and a long pipeline at once, and read afterwards."""
    count = 20_000
    with guarded.connect() as client:
        client.sendall(command("HELLO", 3, "AUTH", "default", "secret") + command("GET", "missing") * count)
        got = b""
        while not got.endswith(b"_\r\n" * count):
            got += exactly(client, 1)
            got += client.recv(1 << 20)
        assert got.startswith(b"%7\r\n")
        # After RESET it is a stranger again; its replies from before are not lost.
        value = b"x" * MIB
        client.sendall(command("SET", "k", value) + command("GET", "k") * 10 + command("RESET"))
        expected = b"+OK\r\n" + (b"$%d\r\n%s\r\n" % (MIB, value)) * 10 + b"+RESET\r\n"
        assert exactly(client, len(expected)) == expected
        client.sendall(command("GET", "k"))
        assert exactly(client, 33) == b"-NOAUTH Authentication required.\r\n"[:33]


def test_strangers_do_not_keep_others_out():
    with Server("--requirepass", "secret", "--maxclients", "8") as server:
        strangers = [server.connect() for _ in range(8)]

        def enters():
            with server.connect() as client:
                client.sendall(command("AUTH", "secret"))
                return rest(client, b"+OK\r\n")[0] == b"+OK\r\n"

        eventually(enters, "nobody else can connect")
        for stranger in strangers:
            stranger.close()


def test_slow_http_clients_do_not_keep_others_out():
    port = free_port()

    def is_answered():
        """The answer comes in less time than a slow client may take, beside many that are slow."""
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(200)]
        for number, client in enumerate(idle):
            try:
                client.sendall([b"GET /hea", b"", b"POST /health HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n"][number % 3])
            except OSError:
                pass
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=4)
        try:
            client.request("GET", "/health")
            return client.getresponse().read() == b"ok\n"
        except OSError:
            return False
        finally:
            client.close()
            for client in idle:
                client.close()

    with Server("--http-port", port):
        # A machine that is busy may miss the time a few times.
        assert any(is_answered() for _ in range(5))


def test_http_clients_in_a_burst_are_answered_to_the_last():
    port = free_port()
    with Server("--http-port", port) as server:
        clients = [http.client.HTTPConnection("127.0.0.1", port, timeout=60) for _ in range(100)]
        # The server finds all of them with their requests: one that is slow to ask may be closed where others come. Their
        # number stays below the backlog of any system.
        suspend(server.process)
        try:
            for client in clients:
                client.connect()
            for client in clients:
                client.request("GET", "/health", headers={"Connection": "close"})
        finally:
            server.process.send_signal(signal.SIGCONT)
        for client in clients:
            response = client.getresponse()
            assert (response.status, response.read()) == (200, b"ok\n")
            client.close()
