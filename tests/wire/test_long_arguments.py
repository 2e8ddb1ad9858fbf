"""Arguments of 256 KiB and more are read from the socket to where they can stay: for every command, and
wherever the stream is cut, the replies are those of redis-server."""

import random

import pytest

from harness import DUNLIN, ORACLE, Server, is_redis
from wire import Bystander, Session, command, eventually, rest, shut

KIB, MIB = 1 << 10, 1 << 20
# Strings longer than this stand in chunks of CHUNK_BYTES, and such arguments arrive in blocks of their own.
BLOCK_BYTES_MAX = 256 * KIB
CHUNK_BYTES = 64 * KIB
LENGTHS = [
    BLOCK_BYTES_MAX - 1,
    BLOCK_BYTES_MAX,
    BLOCK_BYTES_MAX + 1,
    BLOCK_BYTES_MAX + CHUNK_BYTES - 1,
    BLOCK_BYTES_MAX + CHUNK_BYTES,
    MIB + 1,
    4 * MIB - 1,
    4 * MIB,
    5 * MIB + 12_345,
]


def commands(value, other):
    """Every way of using long arguments: as value, key, member, in transactions and scripts."""
    length = len(value)
    yield from [
        ("SET", "k", value),
        ("APPEND", "k", "short"),
        ("SETBIT", "k", 5, 1),
        ("SETRANGE", "k", length - 2, "end of it"),
        ("GET", "k"),
        ("SET", "k", "small"),
        ("APPEND", "k", value),
        ("GET", "k"),
        ("APPEND", "k", other),
        ("STRLEN", "k"),
        ("GETRANGE", "k", length - 3, length + 12),
        ("SETRANGE", "k", 7, other),
        ("SETRANGE", "k", length, value),
        ("SETRANGE", "hole", 3 * CHUNK_BYTES - 1, value),
        ("SETRANGE", "hole", CHUNK_BYTES, other),
        ("GET", "k"),
        ("GET", "hole"),
        ("APPEND", "missing", value),
        ("GETSET", "k", value),
        ("SET", "k", other, "GET"),
        ("SET", "k", value, "NX"),
        ("SET", "k", value, "XX", "GET", "PXAT", "99999999999999"),
        ("SETNX", "k", value),
        ("SETNX", "new", value),
        ("SETEX", "k", 1000, value),
        ("PSETEX", "k", 1_000_000, other),
        ("MSET", "a", value, "b", other, "c", "short", "a", other),
        ("MGET", "a", "b", "c"),
        ("MSETNX", "d", value, "e", other),
        ("MSETNX", "d", other, "f", other),
        ("MGET", "d", "e", "f"),
        ("SET", "k", value, "EX", "x"),
        ("SETRANGE", "k", "x", value),
        ("INCRBY", "k", value),
        ("GET", value),
        ("SET", value, other),
        ("GET", value),
        ("STRLEN", value),
        ("DEL", value),
        ("SADD", "set", value, other, "m"),
        ("SISMEMBER", "set", value),
        ("SREM", "set", value, other),
        ("HSET", "hash", value, other),
        ("HGET", "hash", value),
        ("HDEL", "hash", value),
        ("RPUSH", "list", value, "m", other),
        ("LPOS", "list", other),
        ("LRANGE", "list", 0, -1),
        ("ZADD", "zset", 1, value),
        ("ZSCORE", "zset", value),
        ("XADD", "stream", "1-1", value, other),
        ("XRANGE", "stream", "-", "+"),
        ("PFADD", "sketch", value),
        ("PFCOUNT", "sketch"),
        ("ECHO", value),
        ("PING", value),
        ("PUBLISH", value, other),
        ("SET", "k", value, value),
        ("AUTH", value),
        ("EVAL", "return redis.call('SET', KEYS[1], ARGV[1])", 1, "k", value),
        ("EVAL", "return redis.call('APPEND', KEYS[1], ARGV[1])", 1, "k", other),
        ("EVAL", "return {#ARGV[1], ARGV[2]}", 0, value, other),
        ("EVAL", "return redis.call('GET', KEYS[1])", 1, "k"),
        ("EVAL", "--" + "x" * length + "\nreturn 1", 0),
        ("MULTI",),
        ("SET", "k", value),
        ("APPEND", "k", other),
        ("SETRANGE", "k", 3, other),
        ("SADD", "set", value),
        ("SET", "l", value),
        ("GET", "k"),
        ("GET", "l"),
        ("EXEC",),
        ("MULTI",),
        ("SET", "k", value),
        ("DISCARD",),
        ("WATCH", value),
        ("SET", value, "changed"),
        ("MULTI",),
        ("SET", "k", other),
        ("EXEC",),
        ("DBSIZE",),
    ]


def same(mine, theirs):
    """Compared without a difference of megabytes being shown."""
    return mine == theirs


@pytest.mark.parametrize("length", LENGTHS)
def test_long_arguments_do_what_short_ones_do(length):
    dice = random.Random(length)
    value, other = dice.randbytes(length), dice.randbytes(dice.choice(LENGTHS))
    with Server() as server, Server(program=ORACLE) as oracle, Session(server) as mine, Session(oracle) as theirs:
        for words in commands(value, other):
            got, expected = mine(*words), theirs(*words)
            shown = [word if len(str(word)) < 80 else f"<{len(word)}>" for word in words]
            assert same(got, expected), shown
        dump, key = mine("DUMP", "l"), f"restored{length}"
        assert mine("RESTORE", key, 0, dump) == "OK"
        assert same(mine("GET", key), value)
        assert mine("RESTORE", key, 0, dump[:-1] + b"x", "REPLACE").startswith("-ERR DUMP payload")
        assert same(mine("GET", key), value)


def received_bytes(observer, number):
    """Bytes that the server has read of this client. Its name would not do: one that had it before may still be listed."""
    line = observer("CLIENT", "LIST", "ID", number).decode()
    fields = dict(field.split("=", 1) for field in line.split() if "=" in field)
    return int(fields["tot-net-in"])


@pytest.mark.skipif(is_redis(DUNLIN), reason="redis-server 7.0 does not show what it has read of a client")
@pytest.mark.parametrize("length", [BLOCK_BYTES_MAX + 1, 4 * MIB + 5])
def test_long_argument_may_be_cut_anywhere(server, length):
    dice = random.Random(length)
    value, other = dice.randbytes(length), dice.randbytes(length)
    stream = command("SET", "cut", value) + command("APPEND", "cut", other) + command("GET", "cut")
    first, second = stream.index(value), stream.index(other)
    places = [1, first - 11, first - 2, first - 1, first, first + 1, first + CHUNK_BYTES]
    places += [second - 40, second - 1, second, second + 1, second + length - 1, second + length + 1]
    end = first + length
    for cuts in [[place] for place in places] + [[end - 1], [end], [end + 1], [end + 2], [end, end + 1], sorted({first, end, end + 2, *places})]:
        with Session(server) as client, Session(server) as observer:
            number = client("CLIENT", "ID")
            before = received_bytes(observer, number)
            start = 0
            for cut in [*cuts, len(stream)]:
                client.socket.sendall(stream[start:cut])
                start = cut
                eventually(lambda: received_bytes(observer, number) >= before + start, "it is not read")
            assert client.read() == "OK", cuts
            assert client.read() == 2 * length, cuts
            assert same(client.read(), value + other), cuts
            assert client("PING") == "PONG"


def test_requests_around_a_long_one_keep_their_order(server):
    value = random.Random(1).randbytes(3 * MIB + 1)
    with Session(server) as client:
        before = [("SET", "order", 0), ("INCR", "order")]
        behind = [("STRLEN", "order"), ("SETRANGE", "order", 0, "x"), ("GETRANGE", "order", 0, 1), ("PING",)]
        lines = [*before, ("SET", "order", value), *behind, ("SET", "order", value), ("SET", "order", 7), ("INCR", "order")]
        client.socket.sendall(b"".join(command(*words) for words in lines))
        replies = [client.read() for _ in lines]
        expected = ["OK", 1, "OK", len(value), len(value), b"x" + value[1:2], "PONG", "OK", "OK", 8]
        assert same(replies, expected)


def test_long_argument_waits_for_the_end_of_a_pause(server):
    value = random.Random(2).randbytes(MIB)
    with Session(server) as client, Session(server) as other:
        assert other("CLIENT", "PAUSE", 100_000, "WRITE") == "OK"
        client.socket.sendall(command("SET", "paused", value) + command("APPEND", "paused", value) + command("STRLEN", "paused"))
        eventually(lambda: b"blocked_clients:1\r\n" in other("INFO", "clients"), "it does not wait")
        assert other("EXISTS", "paused") == 0
        assert other("CLIENT", "UNPAUSE") == "OK"
        assert [client.read() for _ in range(3)] == ["OK", 2 * MIB, 2 * MIB]
        assert same(client("GET", "paused"), value + value)


@pytest.mark.parametrize("tail, line", [(b"xx", "expected CRLF after bulk"), (b"\rx", "expected CRLF after bulk")])
@pytest.mark.skipif(is_redis(DUNLIN), reason="redis-server takes any two bytes for the end of an argument")
def test_long_argument_ends_with_its_line(server, tail, line):
    request = command("SET", "k", b"x" * MIB)
    with Bystander(server), server.connect() as client:
        client.sendall(request[:-2] + tail)
        assert rest(client) == (f"-ERR Protocol error: {line}\r\n".encode(), True)


def test_long_argument_of_a_stranger_is_refused():
    with Server("--requirepass", "secret") as server:
        for length in (16 * KIB + 1, BLOCK_BYTES_MAX + 1, 512 * MIB):
            with server.connect() as client:
                client.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\nxxx" % length)
                assert rest(client) == (b"-ERR Protocol error: unauthenticated bulk length\r\n", True)
        with Session(server) as client:
            client.socket.sendall(command("AUTH", "secret") + command("SET", "k", b"x" * MIB) + command("RESET"))
            assert [client.read() for _ in range(3)] == ["OK", "OK", "RESET"]
            # It is a stranger again.
            client.socket.sendall(b"*2\r\n$4\r\nECHO\r\n$%d\r\nxxx" % MIB)
            assert client.read() == "-ERR Protocol error: unauthenticated bulk length"


def memory(server, name):
    with open(f"/proc/{server.process.pid}/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


@pytest.mark.skipif(is_redis(DUNLIN), reason="redis-server keeps a long value twice for a while")
def test_long_value_is_in_memory_once():
    length = 200 * MIB
    with Server() as server, Session(server) as client:
        before = memory(server, "VmRSS")
        assert client("SET", "k", b"x" * length) == "OK"
        assert memory(server, "VmHWM") < before + 1.1 * length
        assert client("DEL", "k") == 1
        eventually(lambda: memory(server, "VmRSS") < before + 24 * MIB, "the memory stays resident", 60)
        # Half of it in the list of a transaction.
        client("MULTI")
        assert client("APPEND", "k", b"x" * (length // 2)) == "QUEUED"
        assert client("APPEND", "k", b"x" * (length // 2)) == "QUEUED"
        assert client("EXEC") == [length // 2, length]
        assert memory(server, "VmHWM") < before + 1.1 * length
        assert client("SETRANGE", "k", 100, b"y" * (length // 2)) == length
        assert memory(server, "VmHWM") < before + 1.6 * length


@pytest.mark.parametrize("ending", ["reset", "kill", "limit", "discard", "not stored", "no memory"])
def test_memory_of_long_arguments_that_lead_nowhere_returns(ending):
    length = 64 * MIB
    whole = command("SET", "k", b"x" * length)
    with Server() as server, Session(server) as observer:
        observer("PING")
        before = memory(server, "VmRSS")
        clients = [Session(server) for _ in range(3)]
        if ending in ("reset", "kill"):
            for client in clients:
                client.socket.sendall(whole[: length - 5])
            eventually(lambda: memory(server, "VmRSS") > before + 2.5 * length, "it has not arrived")
            if ending == "reset":
                for client in clients:
                    client.file.close()
                    shut(client.socket)
            else:
                assert observer("CLIENT", "KILL", "SKIPME", "yes") == 3
        elif ending == "limit":
            assert observer("CONFIG", "SET", "client-query-buffer-limit", 32 * MIB) == "OK"
            for client in clients:
                with pytest.raises(OSError):
                    client.socket.sendall(whole * 4)
                    client.read()
                    raise OSError("closed")
        elif ending == "discard":
            for client in clients:
                client("MULTI")
                assert client("SET", "k", b"x" * length) == "QUEUED"
                client("DISCARD")
        elif ending == "not stored":
            for client in clients:
                assert client("SET", "k", b"x" * length, "XX") is None
                assert client("GET", b"x" * length) is None
        else:
            assert observer("CONFIG", "SET", "maxmemory", 1) == "OK"
            for client in clients:
                assert client("SET", "k", b"x" * length).startswith("-OOM")
        eventually(lambda: memory(server, "VmRSS") < before + 24 * MIB, "the memory stays resident", 60)
        assert observer("CONFIG", "SET", "maxmemory", 0) == "OK"
        with Bystander(server):
            assert observer("DBSIZE") == 1
        for client in clients:
            client.hang_up()


@pytest.mark.parametrize("loader", [DUNLIN, ORACLE])
def test_log_has_long_arguments(loader):
    dice = random.Random(3)
    value, other = dice.randbytes(5 * MIB + 7), dice.randbytes(MIB - 1)
    log = ["--appendonly", "yes"]
    with Server(*log) as server:
        with Session(server) as client:
            client("SELECT", 2)
            for words in [
                ("SET", "k", value),
                ("APPEND", "k", other),
                ("SETRANGE", "k", 1_000_001, other),
                ("MSET", "a", other, "b", value),
                ("SADD", "s", value),
                ("RPUSH", "l", value, other),
                ("HSET", "h", other, value),
                ("SET", other, value, "PX", 10**9),
                ("EVAL", "redis.call('SET', KEYS[1], ARGV[1]) redis.call('APPEND', KEYS[1], ARGV[2])", 1, "e", value, other),
            ]:
                reply = client(*words)
                assert not isinstance(reply, str) or not reply.startswith("-"), reply
            assert client("RESTORE", "r", 0, client("DUMP", "k")) == "OK"
            client("MULTI")
            client("SET", "m", value)
            client("APPEND", "m", other)
            assert client("EXEC") == ["OK", len(value) + len(other)]
            text = bytearray(value + other)
            text[1_000_001 : 1_000_001 + len(other)] = other
        server.process.terminate()
        assert server.process.wait(60) == 0
        with Server(*log, program=loader, files=server.folder) as another, Session(another) as client:
            client("SELECT", 2)
            assert same(client("GET", "k"), bytes(text))
            assert same(client("MGET", "a", "b", "m", "e", other), [other, value, value + other, value + other, value])
            assert same(client("GET", "r"), bytes(text))
            assert client("SISMEMBER", "s", value) == 1
            assert same(client("LRANGE", "l", 0, -1), [value, other])
            assert same(client("HGET", "h", other), value)
