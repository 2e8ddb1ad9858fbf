"""Bytes on a socket, and the replies; waiting for what goes on in the background."""

import socket

from waiting import until as eventually

SENTINEL = b"*2\r\n$4\r\nECHO\r\n$8\r\nsentinel\r\n"
SENTINEL_REPLY = b"$8\r\nsentinel\r\n"


def command(*words):
    """A command as an array of bulks."""
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def exactly(client, count):
    """Reads this many bytes; fewer where the server closes before."""
    parts = []
    while count > 0:
        part = client.recv(min(count, 1 << 20))
        if not part:
            break
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def rest(client, last=b""):
    """The bytes that the server sends until it closes the connection, or until `last`; and whether
    it closed."""
    got = bytearray()
    while True:
        try:
            part = client.recv(1 << 16)
        except ConnectionResetError:
            return bytes(got), True
        if not part:
            return bytes(got), True
        got += part
        if last and got.endswith(last):
            return bytes(got), False


def converse(server, data, unix=False):
    """Sends bytes and a sentinel; returns the reply without the sentinel, and whether the server
    closed."""
    with server.connect(unix=unix) as client:
        try:
            client.sendall(data + SENTINEL)
        except (BrokenPipeError, ConnectionResetError):
            pass
        got, closed = rest(client, SENTINEL_REPLY)
        return (got if closed else got[: -len(SENTINEL_REPLY)]), closed


class Session:
    """A client that decodes its replies: errors as exceptions of their text, everything else as it is."""

    def __init__(self, server):
        self.socket = server.connect()
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.hang_up()

    def hang_up(self):
        self.file.close()
        self.socket.close()

    def send(self, *words):
        self.socket.sendall(command(*words))

    def read(self):
        line = self.file.readline()
        kind, text = line[:1], line[1:-2]
        match kind:
            case b"+":
                return text.decode()
            case b"-":
                return "-" + text.decode()
            case b":":
                return int(text)
            case b"$":
                return None if text == b"-1" else self.file.read(int(text) + 2)[:-2]
            case b"*" | b">":
                return None if text == b"-1" else [self.read() for _ in range(int(text))]
            case b"%":
                return [self.read() for _ in range(2 * int(text))]
            case b"_":
                return None
        raise AssertionError(line)

    def __call__(self, *words):
        self.send(*words)
        return self.read()


class Bystander:
    """Another client that has to keep working, whatever load the first one puts on the server."""

    def __init__(self, server):
        self.client = server.connect()
        self.turn = 0

    def __enter__(self):
        self.works()
        return self

    def works(self):
        self.turn += 1
        value = b"turn %d" % self.turn
        self.client.sendall(command("SET", "bystander", value) + command("GET", "bystander"))
        expected = b"+OK\r\n$%d\r\n%s\r\n" % (len(value), value)
        got = exactly(self.client, len(expected))
        assert got == expected, f"the bystander got {got!r} for {expected!r}"

    def __exit__(self, kind, *_):
        if kind is None:
            self.works()
        self.client.close()


def at_rest(one, other):
    """What both return, as of one moment: the first returns the same before and after the second. Eviction, for one, goes on by
    itself. A counter may still lack what the second shows already: a worker counts a moment after it has acted."""
    while True:
        before, beside = one(), other()
        if one() == before:
            return before, beside


def repeated(play):
    """What a play returns once it returns the same twice: what happens once, in the background, may have come between."""
    before = play()
    while (now := play()) != before:
        before = now
    return now


def shut(client):
    """Closes with a reset, without waiting for anything."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    client.close()
