"""A client that speaks words and reads whole replies, pushes included, in either protocol."""

from wire import command, eventually

TIMEOUT_S = 120


class Push(list):
    """An out-of-band array of RESP3."""


class Failure(str):
    """An error reply."""


class Peer:
    """One connection."""

    def __init__(self, server, protocol=2, unix=False):
        self.socket = server.connect(unix=unix)
        self.held = b""
        if protocol == 3:
            self.ask("HELLO", 3)

    def send(self, *words):
        self.socket.sendall(command(*words))

    def send_all(self, *lines):
        """Sends lines of words as one pipeline."""
        self.socket.sendall(b"".join(command(*line.split(" ")) for line in lines))

    def ask(self, *words):
        self.send(*words)
        return self.read()

    def line(self, text):
        """Sends a line of words, reads one reply."""
        return self.ask(*text.split(" "))

    def _fill(self):
        part = self.socket.recv(1 << 16)
        if not part:
            raise EOFError
        self.held += part

    def _line(self):
        while b"\r\n" not in self.held:
            self._fill()
        line, self.held = self.held.split(b"\r\n", 1)
        return line

    def _bytes(self, count):
        while len(self.held) < count + 2:
            self._fill()
        text, self.held = self.held[:count], self.held[count + 2 :]
        return text

    def read(self):
        """One reply or push."""
        line = self._line()
        kind, rest = line[:1], line[1:].decode("latin1")
        if kind == b"+":
            return rest
        if kind == b"-":
            return Failure(rest)
        if kind == b":":
            return int(rest)
        if kind == b"_":
            return None
        if kind == b"#":
            return rest == "t"
        if kind == b",":
            return float(rest)
        if kind in b"$=":
            return None if rest == "-1" else self._bytes(int(rest)).decode("latin1")
        if kind in b"*~":
            return None if rest == "-1" else [self.read() for _ in range(int(rest))]
        if kind == b">":
            return Push(self.read() for _ in range(int(rest)))
        if kind == b"%":
            return {self.read(): self.read() for _ in range(int(rest))}
        raise AssertionError(f"what is {line!r}?")

    def pending(self):
        """Replies and pushes that have arrived and are still to be read; does not wait."""
        self.socket.setblocking(False)
        try:
            while True:
                self._fill()
        except BlockingIOError:
            pass
        finally:
            self.socket.settimeout(TIMEOUT_S)
        items = []
        while self.held:
            items.append(self.read())
        return items

    def is_silent(self):
        """Whether nothing has been said so far: a PING is answered, and by nothing else."""
        return self.line("PING") in ("PONG", ["pong", ""])

    def is_closed(self):
        """Whether the server closes the connection, after any reply."""
        try:
            while True:
                self.read()
        except (EOFError, ConnectionResetError):
            return True

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# A library of functions: one that fails, one that catches that, one that only reads.
LIBRARY = """#!lua name=l
redis.register_function('call', function() return redis.call('incr', 'text') end)
redis.register_function('pcall', function() return redis.pcall('incr', 'text') end)
redis.register_function{function_name='read', callback=function() return 1 end, flags={'no-writes'}}"""


def until_it_waits(peer, number):
    """Waits until a client, by its ID, is blocked."""
    eventually(lambda: " flags=b " in peer.ask("CLIENT", "LIST", "ID", number), "it does not wait")


def until_it_has_gone(peer, number):
    """Waits until the server no longer lists a client, by its ID."""
    eventually(lambda: not peer.ask("CLIENT", "LIST", "ID", number), "it is still there")
