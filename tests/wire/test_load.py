"""Much at once: deep pipelines, huge values, many connections, slow and dead clients. However one client
behaves, the others keep working."""

import os
import resource
import threading

import pytest

from harness import Server
from wire import Bystander, command, eventually, exactly, rest, shut

MIB = 1 << 20


def send_aside(client, data):
    """Sends from another thread, because the server may wait for its replies to be read first."""
    sender = threading.Thread(target=client.sendall, args=(data,), daemon=True)
    sender.start()
    return sender


@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
def test_pipeline_of_a_hundred_thousand_commands_in_one_write(server, unix):
    count = 100_000
    with Bystander(server) as other, server.connect(unix=unix) as client:
        client.sendall(command("DEL", "n"))
        exactly(client, len(b":0\r\n"))
        sender = send_aside(client, command("INCR", "n") * count)
        other.works()
        expected = b"".join(b":%d\r\n" % n for n in range(1, count + 1))
        assert exactly(client, len(expected)) == expected
        sender.join()


def test_pipeline_of_a_hundred_thousand_inline_commands(server):
    with server.connect() as client:
        sender = send_aside(client, b"PING\r\n" * 100_000)
        assert exactly(client, 700_000) == b"+PONG\r\n" * 100_000
        sender.join()


def big_value(size):
    block = os.urandom(MIB)
    return block * (size // MIB) + block[: size % MIB]


def available_bytes():
    with open("/proc/meminfo") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))


@pytest.mark.parametrize("size", [64 * MIB, 512 * MIB], ids=["64MiB", "512MiB"])
def test_huge_value(server, size):
    # Asked now: other tests run beside this one.
    if size > 64 * MIB and available_bytes() < 4 << 30:
        pytest.skip("needs 4 GiB of memory")
    value = big_value(size)
    with Bystander(server) as other, server.connect(unix=True, timeout=120) as client:
        sender = send_aside(client, command("SET", "huge", value))
        other.works()
        assert exactly(client, 5) == b"+OK\r\n"
        sender.join()
        client.sendall(command("STRLEN", "huge") + command("GETRANGE", "huge", size - 3, size + 10))
        expected = b":%d\r\n$3\r\n%s\r\n" % (size, value[-3:])
        assert exactly(client, len(expected)) == expected
        client.sendall(command("GET", "huge"))
        head = b"$%d\r\n" % size
        assert exactly(client, len(head)) == head
        other.works()
        assert exactly(client, size + 2) == value + b"\r\n"
        client.sendall(command("DEL", "huge"))
        assert exactly(client, 4) == b":1\r\n"


def test_announced_value_that_never_comes_takes_no_memory(server):
    """Announcing the largest value costs the server nothing until bytes arrive."""
    before = memory(server)
    clients = [server.connect() for _ in range(50)]
    with Bystander(server) as other:
        for client in clients:
            client.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\nonly the beginning")
        other.works()
        assert memory(server) < before + 64 * MIB
    for client in clients:
        client.close()


def test_announced_array_that_never_comes_takes_no_memory(server):
    before = memory(server)
    clients = [server.connect() for _ in range(50)]
    with Bystander(server) as other:
        for client in clients:
            client.sendall(b"*1048576\r\n$4\r\nMGET\r\n")
        other.works()
        assert memory(server) < before + 64 * MIB
    for client in clients:
        client.close()


def test_query_buffer_limit(server):
    """A query buffer over its limit closes that client alone."""
    with Server("--client-query-buffer-limit", "1mb", "--proto-max-bulk-len", "8mb") as small:
        with Bystander(small), small.connect() as client:
            try:
                client.sendall(command("SET", "k", b"x" * (4 * MIB)))
            except (BrokenPipeError, ConnectionResetError):
                pass
            assert rest(client) == (b"", True)


def resident(pid):
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def memory(server):
    return resident(server.process.pid)


def test_slow_reader_is_bounded():
    """A client that asks for 4 GiB and reads nothing costs a bounded part of it: it is closed when its replies
    outgrow the limit, or not served further until it reads."""
    with Server("--client-output-buffer-limit", "normal", "16mb", "0", "0") as server:
        with Bystander(server) as other, server.connect() as client:
            client.sendall(command("SET", "big", b"x" * MIB))
            assert exactly(client, 5) == b"+OK\r\n"
            before = memory(server)
            sender = threading.Thread(target=flood, args=(client, command("GET", "big"), 4096), daemon=True)
            sender.start()
            sender.join(60)
            for _ in range(100):
                other.works()
                assert memory(server) < before + 64 * MIB
            shut(client)
            sender.join(60)
            assert not sender.is_alive()
        eventually(lambda: connected(server) == 1, "the slow reader is still connected")


def test_reply_over_the_output_limit_closes_the_client():
    """One reply that is larger than the limit closes the connection; nothing of it is kept."""
    with Server("--client-output-buffer-limit", "normal", "16mb", "0", "0") as server:
        with Bystander(server) as other, server.connect() as client:
            sender = send_aside(client, command("SET", "big", b"x" * (64 * MIB)))
            assert exactly(client, 5) == b"+OK\r\n"
            sender.join()
            client.sendall(command("GET", "big"))
            eventually(lambda: connected(server) == 2, "the connection is still open")
            other.works()
            got, closed = rest(client)
            assert closed and len(got) < 64 * MIB


def flood(client, data, times):
    """Asks again and again, until the server closes the connection."""
    try:
        for _ in range(times):
            client.sendall(data)
    except OSError:
        pass


def connected(server):
    with server.connect() as client:
        return connected_beside(client)


def connected_beside(client):
    """How many are connected, as this client is told, which is one of them."""
    client.sendall(b"INFO clients\r\n")
    head = b""
    while not head.endswith(b"\r\n"):
        head += client.recv(1)
    text = exactly(client, int(head[1:]) + 2).decode()
    return int(next(line for line in text.splitlines() if line.startswith("connected_clients:")).split(":")[1])


def test_slow_reader_without_limit(server):
    """A client that reads late gets everything, in order, and holds no other client up meanwhile."""
    value = big_value(MIB)
    with Bystander(server) as other, server.connect() as client:
        client.sendall(command("SET", "late", value) + command("GET", "late") * 100 + command("ECHO", "end"))
        for _ in range(20):
            other.works()
        assert exactly(client, 5) == b"+OK\r\n"
        for _ in range(100):
            assert exactly(client, MIB + len(b"$1048576\r\n\r\n")) == b"$1048576\r\n" + value + b"\r\n"
        assert exactly(client, 9) == b"$3\r\nend\r\n"


def test_clients_that_vanish(server):
    """Connections that end in the middle of a command, or of a reply, leave nothing behind."""
    with Bystander(server) as other:
        for data in (b"", b"*", b"*2\r\n$3\r\nGE", b"SET a", command("GET", "bystander") * 1000, b"\xff" * 100):
            for _ in range(50):
                client = server.connect()
                client.sendall(data)
                shut(client)
            other.works()
    eventually(lambda: connected(server) == 1, "connections are left over")


def test_connections_of_ten_thousand_clients():
    available = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    count = min(10_000, available - 500)
    with Server("--maxclients", "11000") as server, Bystander(server) as other:
        clients = []
        try:
            for n in range(count):
                clients.append(server.connect(unix=n % 2 == 0))
            other.works()
            for n, client in enumerate(clients):
                client.sendall(command("SET", f"mine:{n}", n) + command("GET", f"mine:{n}"))
            for n, client in enumerate(clients):
                expected = b"+OK\r\n$%d\r\n%d\r\n" % (len(str(n)), n)
                assert exactly(client, len(expected)) == expected
            assert connected(server) == count + 2
            other.works()
        finally:
            for client in clients:
                client.close()
        eventually(lambda: connected(server) == 2, "connections are left over")


def test_maxclients():
    with Server("--maxclients", "10") as server:
        first = server.connect()
        eventually(lambda: connected_beside(first) == 1, "who has seen the server start has gone")
        clients = [first, *(server.connect() for _ in range(9))]
        for client in clients:
            client.sendall(b"PING\r\n")
            assert exactly(client, 7) == b"+PONG\r\n"
        with server.connect() as one_too_many:
            assert rest(one_too_many) == (b"-ERR max number of clients reached\r\n", True)
        clients.pop().close()

        def has_room():
            with server.connect() as client:
                client.sendall(b"PING\r\n")
                return exactly(client, 7) == b"+PONG\r\n"

        eventually(has_room, "no room after a client left")
        for client in clients:
            client.close()


def test_idle_timeout():
    with Server("--timeout", "1") as server, server.connect() as client:
        assert rest(client) == (b"", True)


def test_unauthenticated_limits():
    """Before AUTH a client may neither work nor announce much."""
    with Server("--requirepass", "secret") as server:
        with server.connect() as client:
            client.sendall(command("GET", "a") + command("AUTH", "wrong") + command("AUTH", "secret") + command("GET", "a"))
            got = rest(client, b"$-1\r\n")[0].splitlines()
            assert got == [
                b"-NOAUTH Authentication required.",
                b"-WRONGPASS invalid username-password pair or user is disabled.",
                b"+OK",
                b"$-1",
            ]
        for data, error in (
            (b"*11\r\n", b"-ERR Protocol error: unauthenticated multibulk length\r\n"),
            (b"*1\r\n$16385\r\n", b"-ERR Protocol error: unauthenticated bulk length\r\n"),
        ):
            with server.connect() as client:
                client.sendall(data)
                assert rest(client) == (error, True)
