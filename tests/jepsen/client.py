"""A client of a cluster that knows what became of each request.

The outcome of a request is one of three: `ok` with its reply; `fail`, it has certainly not run; `info`, nobody knows.
"""

import random
import socket

# Replies that are given in the place of a command's, before it runs.
_NOT_RUN = (
    b"MOVED", b"ASK", b"CLUSTERDOWN", b"TRYAGAIN", b"READONLY", b"LOADING", b"MASTERDOWN", b"EXECABORT", b"NOREPLICAS",
    b"MISCONF", b"BUSY", b"OOM",
)  # fmt: skip
# In such a reply all the same: of one that has run, and whose effect cannot be made durable as things are.
_HAS_RUN = b"The command has run"
_REDIRECTIONS_MAX = 5


class Unknown(Exception):
    """The request was sent, or part of it, and no reply came."""


class Refused(Exception):
    """The request has not run."""


class Error(bytes):
    """A reply that is an error."""


class Connection:
    """One connection. An error of the network ends it."""

    def __init__(self, address, timeout_s):
        self.socket = socket.create_connection(address, timeout_s)
        self.socket.settimeout(timeout_s)
        self.input = self.socket.makefile("rb")

    def close(self):
        self.input.close()
        self.socket.close()

    def send(self, *commands):
        self.socket.sendall(b"".join(map(_encode, commands)))

    def reply(self):
        line = self.input.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the connection has ended")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b"-":
            return Error(rest)
        if kind == b":":
            return int(rest)
        if int(rest) < 0:
            return None
        if kind == b"$":
            text = self.input.read(int(rest) + 2)
            if len(text) < int(rest) + 2:
                raise ConnectionError("the connection has ended")
            return text[:-2]
        assert kind == b"*", line
        return [self.reply() for _ in range(int(rest))]


def _encode(words):
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


class Client:
    """Sends requests where a node says that they belong. It forgets a node that does not answer."""

    def __init__(self, addresses, seed, timeout_s=1.0):
        self.addresses, self.timeout_s = addresses, timeout_s
        self.random = random.Random(seed)
        self.connections, self.owners = {}, {}

    def close(self):
        for connection in self.connections.values():
            connection.close()
        self.connections.clear()

    def call(self, tag, *commands, reads=False):
        """Runs commands on keys with one hash tag, several as a transaction; the reply, or the list of them. Raises `Refused`
        or `Unknown`. Those that only read have not run where no reply came: it makes no difference."""
        batch = [("MULTI",), *commands, ("EXEC",)] if len(commands) > 1 else list(commands)
        target = self.owners.get(tag) or self.random.choice(self.addresses)
        for _ in range(_REDIRECTIONS_MAX):
            try:
                replies = self._ask(target, batch)
            except Refused:
                self.owners.pop(tag, None)
                raise
            except Unknown:
                self.owners.pop(tag, None)
                if reads:
                    raise Refused("no reply") from None
                raise
            moved = next((reply for reply in replies if isinstance(reply, Error) and reply.startswith(b"MOVED")), None)
            if moved is None:
                break
            host, _, port = moved.split()[2].rpartition(b":")
            target = (host.decode(), int(port))
            self.owners[tag] = target
        last = replies[-1]
        if isinstance(last, Error):
            if last.startswith(_NOT_RUN) and _HAS_RUN not in last:
                # Another node may know better.
                self.owners.pop(tag, None)
                raise Refused(last.decode(errors="replace"))
            if reads:
                raise Refused(last.decode(errors="replace"))
            raise Unknown(last.decode(errors="replace"))
        self.owners[tag] = target
        return last

    def _ask(self, target, batch):
        try:
            connection = self.connections.get(target)
            if connection is None:
                connection = self.connections[target] = Connection(target, self.timeout_s)
        except OSError as error:
            raise Refused(str(error)) from None
        try:
            connection.send(*batch)
            return [connection.reply() for _ in batch]
        except OSError as error:
            self.connections.pop(target).close()
            raise Unknown(str(error)) from None
