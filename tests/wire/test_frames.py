"""Frames, good and bad: the bytes that come back, and whether the connection lives on.

Where Redis is strict, a real Redis in the same test says what is right. Where it is lax, Dunlin is not,
and the table holds Dunlin's answer.
"""

import pytest

from harness import DUNLIN, is_redis
from wire import SENTINEL, SENTINEL_REPLY, Bystander, command, converse, exactly, rest

PING = command("PING")

# name → bytes. Redis answers each of these in the way that Dunlin has to.
AS_REDIS = {
    "empty lines": b"\r\n\r\n\n",
    "no elements": b"*0\r\n",
    "null array": b"*-1\r\n",
    "negative array": b"*-5\r\n",
    "most negative array": b"*-9223372036854775808\r\n",
    "array count is text": b"*x\r\n",
    "array count is empty": b"*\r\n",
    "array count with plus sign": b"*+1\r\n$4\r\nPING\r\n",
    "array count with leading zero": b"*01\r\n$4\r\nPING\r\n",
    "array count with space": b"*1 \r\n$4\r\nPING\r\n",
    "array count over the limit": b"*2147483648\r\n",
    "array count over 64 bits": b"*18446744073709551616\r\n",
    "array count just over 64 bits": b"*9223372036854775808\r\n",
    "bulk length is text": b"*1\r\n$x\r\n",
    "bulk length is empty": b"*1\r\n$\r\n",
    "bulk length with plus sign": b"*1\r\n$+4\r\nPING\r\n",
    "bulk length with leading zero": b"*1\r\n$04\r\nPING\r\n",
    "bulk length with space": b"*1\r\n$ 4\r\nPING\r\n",
    "null bulk": b"*1\r\n$-1\r\n",
    "negative bulk": b"*1\r\n$-2\r\n",
    "bulk over proto-max-bulk-len": b"*1\r\n$536870913\r\n",
    "bulk over 64 bits": b"*1\r\n$18446744073709551616\r\n",
    "no bulk but a line": b"*1\r\nPING\r\n",
    "no bulk but an integer": b"*1\r\n:4\r\n",
    "no bulk but an array": b"*1\r\n*1\r\n$4\r\nPING\r\n",
    "second argument is no bulk": b"*2\r\n$4\r\nECHO\r\n+x\r\n",
    "empty name": b"*1\r\n$0\r\n\r\n",
    "empty argument": command("ECHO", ""),
    "binary argument": command("ECHO", bytes(range(256))),
    "unknown command": command("NONSENSE", "a", "b'c", b"\x01\xff"),
    "unknown command with a long name": command("N" * 500, "x" * 500),
    "name with line ends": command("A\r\nB", "c\r\nd"),
    "several in one write": PING * 3 + command("ECHO", "x") + PING,
    "good ones before a bad one": PING + PING + b"*1\r\n$x\r\n",
    "inline": b"PING\r\n",
    "inline with bare line feed": b"PING\n",
    "inline with an argument": b"PING hello\r\n",
    "inline with much space": b"  PING \t hello   \r\n",
    "inline in quotes": b'ECHO "hello world"\r\n',
    "inline in single quotes": b"ECHO 'hello world'\r\n",
    "inline with escapes": b'ECHO "a\\x41\\n\\r\\t\\b\\a\\"\\\\z\\q"\r\n',
    "inline with escaped single quote": b"ECHO 'it\\'s \\x41'\r\n",
    "inline with empty string": b'ECHO ""\r\n',
    "inline with unbalanced double quote": b'ECHO "abc\r\n',
    "inline with unbalanced single quote": b"ECHO 'abc\r\n",
    "inline with text after a quote": b'ECHO "abc"d\r\n',
    "inline unknown": b"NONSENSE a b\r\n",
    "inline with binary": b"ECHO \xff\xfe\r\n",
    "inline, then frames": b"PING\r\n" + PING + b"PING\r\n",
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "http post": b"POST / HTTP/1.1\r\nHost: x\r\n\r\n",
    "host line": b"Host: localhost\r\n",
    "wrong arity": command("GET") + command("GET", "a", "b") + command("SET", "a"),
    "quit": PING + command("QUIT") + PING,
    "reset": command("SELECT", 3) + command("RESET") + command("GET", "x"),
}




@pytest.mark.parametrize("name", AS_REDIS)
@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
def test_answers_as_redis(server, oracle, name, unix):
    with Bystander(server):
        assert converse(server, AS_REDIS[name], unix) == converse(oracle, AS_REDIS[name], unix)


# Lines that do not end; nothing follows them.
ENDLESS = {
    "inline": b"A" * 70_000,
    "array count": b"*" + b"1" * 70_000,
    "bulk length": b"*1\r\n$" + b"1" * 70_000,
}


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_line_is_refused_as_in_redis(server, oracle, name):
    def ask(which):
        with which.connect() as client:
            client.sendall(ENDLESS[name])
            return rest(client)

    with Bystander(server):
        assert ask(server) == ask(oracle)


# Redis skips two bytes after a bulk without looking at them, and reads on.
LAX_IN_REDIS = {
    "junk after a bulk": b"*1\r\n$4\r\nPINGxx",
    "junk after an argument": b"*2\r\n$4\r\nECHO\r\n$1\r\naXY",
    "bulk too short by one": b"*1\r\n$3\r\nPING\r\n",
    "line feed before carriage return": b"*1\r\n$4\r\nPING\n\r",
}


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis is lax here; Dunlin means not to be")
@pytest.mark.parametrize("name", LAX_IN_REDIS)
def test_refuses_what_redis_lets_pass(server, name):
    with Bystander(server):
        reply, closed = converse(server, PING + LAX_IN_REDIS[name])
        assert closed
        assert reply.startswith(b"+PONG\r\n-ERR Protocol error"), reply
        assert reply.count(b"\r\n") == 2, "nothing is answered after the error"


@pytest.mark.parametrize("protocol", [2, 3])
def test_byte_by_byte(server, protocol):
    """However the bytes arrive, the commands are the same."""
    stream = b"".join(
        [PING, b"\r\nPING inline\r\n", command("SET", "k", b"\r\n$1\r\n"), command("GET", "k"), command("ECHO", "x" * 300)]
    )
    expected = b"+PONG\r\n$6\r\ninline\r\n+OK\r\n$6\r\n\r\n$1\r\n\r\n$300\r\n" + b"x" * 300 + b"\r\n"
    with server.connect() as client:
        client.sendall(command("HELLO", protocol) + SENTINEL)
        rest(client, SENTINEL_REPLY)
        for at in range(len(stream)):
            client.sendall(stream[at : at + 1])
        assert exactly(client, len(expected)) == expected


def test_requests_may_be_split_in_two_anywhere(server):
    stream = command("SET", "key", "value") + b"GET key\r\n" + command("APPEND", "key", "s")
    expected = b"+OK\r\n$5\r\nvalue\r\n:6\r\n"
    with server.connect() as client:
        for at in range(len(stream) + 1):
            client.sendall(stream[:at])
            # An answer to another client lies between the halves, so the server has read the first.
            with Bystander(server):
                pass
            client.sendall(stream[at:])
            assert exactly(client, len(expected)) == expected, f"split at {at}"


def test_protocol_versions(server, oracle):
    """The types of both versions, and switching in the middle of a pipeline."""
    stream = b"".join(
        [
            command("GET", "nothing"),
            command("MGET", "nothing", "nothing"),
            command("HELLO", "4"),
            command("HELLO", "x"),
            command("HELLO", "3", "NONSENSE"),
            command("HELLO", "3", "SETNAME", "a b"),
            command("CONFIG", "GET", "databases"),
        ]
    )
    assert converse(server, stream) == converse(oracle, stream)

    def after_hello(version):
        def ask(which):
            with which.connect() as client:
                client.sendall(command("HELLO", version) + SENTINEL)
                rest(client, SENTINEL_REPLY)
                client.sendall(stream + SENTINEL)
                return rest(client, SENTINEL_REPLY)

        return ask

    for version in (2, 3):
        assert after_hello(version)(server) == after_hello(version)(oracle)


def test_reply_before_the_protocol_error_is_not_lost(server):
    """The replies before a protocol error arrive, however many bytes they are."""
    big = b"x" * 100_000
    stream = command("SET", "big", big) + command("GET", "big") * 50 + b"*1\r\n$x\r\n"
    with server.connect() as client:
        client.sendall(stream)
        got, closed = rest(client)
    one = b"$100000\r\n" + big + b"\r\n"
    assert closed
    assert got == b"+OK\r\n" + one * 50 + b"-ERR Protocol error: invalid bulk length\r\n"
