"""CLIENT PAUSE and UNPAUSE: the commands held back, for how long, and that nothing is lost or
reordered."""

import time

import pytest

from harness import DUNLIN, is_redis
from wire import command, eventually, exactly

PONG = b"+PONG\r\n"
OK = b"+OK\r\n"
LONG_MS = 600_000


@pytest.fixture(autouse=True)
def unpaused(server):
    """Leaves no pause behind, with any result of a test."""
    yield
    with server.connect() as client:
        client.sendall(command("CLIENT", "UNPAUSE"))
        assert exactly(client, 5) == OK


def order(client, *words):
    client.sendall(command(*words))
    assert exactly(client, 5) == OK


def blocked(client):
    """How many clients are being held back."""
    client.sendall(command("CLIENT", "LIST"))
    line = b""
    while not line.endswith(b"\r\n"):
        line += exactly(client, 1)
    return exactly(client, int(line[1:]) + 2).count(b" flags=b ")


def is_silent(client):
    client.setblocking(False)
    try:
        client.recv(1)
        return False
    except BlockingIOError:
        return True
    finally:
        client.settimeout(30)


def test_writes_wait_and_reads_do_not(server):
    with server.connect() as boss, server.connect() as client:
        order(boss, "CLIENT", "PAUSE", LONG_MS, "WRITE")
        client.sendall(command("PING") + command("GET", "paused") + command("SET", "paused", 1) + command("PING"))
        assert exactly(client, 12) == PONG + b"$-1\r\n"
        eventually(lambda: blocked(boss) == 1, "the write waits")
        assert is_silent(client), "what stands behind a command that waits waits too"
        order(boss, "CLIENT", "UNPAUSE")
        assert exactly(client, 12) == OK + PONG
        client.sendall(command("DEL", "paused"))
        assert exactly(client, 4) == b":1\r\n"


def test_pause_ends_by_itself(server):
    with server.connect() as boss, server.connect() as client:
        start = time.monotonic()
        order(boss, "CLIENT", "PAUSE", 300)
        client.sendall(command("PING"))
        assert exactly(client, 7) == PONG
        assert time.monotonic() - start >= 0.3


def test_pause_holds_back_its_own_pipeline_too(server):
    with server.connect() as boss, server.connect() as other:
        boss.sendall(command("CLIENT", "PAUSE", LONG_MS, "WRITE") + command("INCR", "own") + command("DEL", "own"))
        assert exactly(boss, 5) == OK
        eventually(lambda: blocked(other) == 1, "its own write waits")
        order(other, "CLIENT", "UNPAUSE")
        assert exactly(boss, 8) == b":1\r\n:1\r\n"


@pytest.mark.skipif(is_redis(DUNLIN), reason="in Redis a pause of everything cannot be ended")
def test_unpause_passes_a_pause_of_everything(server):
    with server.connect() as boss, server.connect() as client:
        order(boss, "CLIENT", "PAUSE", LONG_MS)
        client.sendall(command("PING"))
        time.sleep(0.05)
        assert is_silent(client)
        order(boss, "CLIENT", "UNPAUSE")
        assert exactly(client, 7) == PONG


def test_pause_for_the_second_time_does_not_shorten_the_first(server):
    with server.connect() as boss, server.connect() as client:
        start = time.monotonic()
        order(boss, "CLIENT", "PAUSE", 400, "WRITE")
        order(boss, "CLIENT", "PAUSE", 1, "WRITE")
        client.sendall(command("DEL", "nothing"))
        assert exactly(client, 4) == b":0\r\n"
        assert time.monotonic() - start >= 0.4


def test_pause_that_is_longer_keeps_waiting_clients(server):
    with server.connect() as boss, server.connect() as client:
        while True:
            begun = time.monotonic()
            order(boss, "CLIENT", "PAUSE", 1000, "WRITE")
            client.sendall(command("DEL", "nothing"))
            order(boss, "CLIENT", "PAUSE", LONG_MS, "WRITE")
            if time.monotonic() - begun < 0.9:
                break
            # The first pause may have been over before the second began.
            order(boss, "CLIENT", "UNPAUSE")
            assert exactly(client, 4) == b":0\r\n"
        eventually(lambda: blocked(boss) == 1, "the write waits")
        time.sleep(1.2)
        assert is_silent(client)
        assert blocked(boss) == 1
        order(boss, "CLIENT", "UNPAUSE")
        assert exactly(client, 4) == b":0\r\n"


def test_errors_are_told_at_once(server):
    """A command that would not run does not wait."""
    with server.connect() as boss, server.connect() as client:
        order(boss, "CLIENT", "PAUSE", LONG_MS, "WRITE")
        client.sendall(command("SET", "a"))
        expected = b"-ERR wrong number of arguments for 'set' command\r\n"
        assert exactly(client, len(expected)) == expected


def test_paused_client_can_be_killed_and_can_leave(server):
    with server.connect() as boss, server.connect() as killed, server.connect() as leaving:
        killed.sendall(command("CLIENT", "ID"))
        number = exactly(killed, 1)
        while not number.endswith(b"\r\n"):
            number += exactly(killed, 1)
        order(boss, "CLIENT", "PAUSE", LONG_MS, "WRITE")
        for client in (killed, leaving):
            client.sendall(command("INCR", "never"))
        eventually(lambda: blocked(boss) == 2, "both wait")
        leaving.close()
        eventually(lambda: blocked(boss) == 1, "the one that has gone waits no more")
        boss.sendall(command("CLIENT", "KILL", "ID", number[1:-2]))
        assert exactly(boss, 4) == b":1\r\n"
        assert exactly(killed, 1) == b""
        order(boss, "CLIENT", "UNPAUSE")
        boss.sendall(command("EXISTS", "never"))
        assert exactly(boss, 4) == b":0\r\n", "nothing was run for them"


def test_pause_of_writes_lets_nothing_expire(server):
    """The data set stands still: a key whose time has come is hidden from all clients, and still counted."""
    with server.connect() as boss:
        order(boss, "SELECT", 9)
        while True:
            begun = time.monotonic()
            order(boss, "SET", "short", "v", "PX", 1000)
            order(boss, "CLIENT", "PAUSE", LONG_MS, "WRITE")
            if time.monotonic() - begun < 0.9:
                break
            # Its time may have come before the pause.
            order(boss, "CLIENT", "UNPAUSE")
        time.sleep(1.3)
        boss.sendall(command("GET", "short") + command("DBSIZE"))
        assert exactly(boss, 9) == b"$-1\r\n:1\r\n"
        order(boss, "CLIENT", "UNPAUSE")

        def gone():
            boss.sendall(command("DBSIZE"))
            return exactly(boss, 4) == b":0\r\n"

        eventually(gone, "the key is removed once the pause is over")


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis has no commands that run apart")
def test_pause_of_writes_stores_no_offloaded_result(server):
    """A failover counts on a pause: nothing is written behind it, not even the result of a command that began before."""
    with server.connect() as boss, server.connect() as client:
        for start in range(0, 300_000, 10_000):
            client.sendall(command("SADD", "apart", *range(start, start + 10_000)))
            assert exactly(client, 8) == b":10000\r\n"
        client.sendall(command("SUNIONSTORE", "paused", "apart", "apart"))
        order(boss, "CLIENT", "PAUSE", LONG_MS, "WRITE")
        boss.sendall(command("EXISTS", "paused"))
        began_before = exactly(boss, 4) == b":0\r\n"
        time.sleep(1)
        boss.sendall(command("EXISTS", "paused"))
        assert exactly(boss, 4) == b":0\r\n" or not began_before
        order(boss, "CLIENT", "UNPAUSE")
        assert exactly(client, 9) == b":300000\r\n"
        client.sendall(command("DEL", "apart", "paused"))
        assert exactly(client, 4) == b":2\r\n"


def test_paused_clients_wait_in_order(server):
    count, commands = 1000, 20
    clients = [server.connect() for _ in range(count)]
    with server.connect() as boss:
        order(boss, "CLIENT", "PAUSE", LONG_MS, "WRITE")
        for number, client in enumerate(clients):
            client.sendall(b"".join(command("APPEND", f"list:{number}", chr(97 + turn)) for turn in range(commands)))
        eventually(lambda: blocked(boss) == count, "all wait")
        boss.sendall(command("EXISTS", *(f"list:{number}" for number in range(count))))
        assert exactly(boss, 4) == b":0\r\n", "nobody has written"
        order(boss, "CLIENT", "UNPAUSE")
        expected = b"".join(b":%d\r\n" % (turn + 1) for turn in range(commands))
        for client in clients:
            assert exactly(client, len(expected)) == expected
        value = b"".join(bytes([97 + turn]) for turn in range(commands))
        for number in range(count):
            boss.sendall(command("GET", f"list:{number}"))
            assert exactly(boss, commands + 7) == b"$%d\r\n%s\r\n" % (commands, value)
        boss.sendall(command("DEL", *(f"list:{number}" for number in range(count))))
        assert exactly(boss, 7) == b":%d\r\n" % count
        assert blocked(boss) == 0
    for client in clients:
        client.close()
