"""A client that speaks bytes: keys and values of any content, replies as they are."""


class Client:
    def __init__(self, server):
        self.socket = server.connect()
        self.replies = self.socket.makefile("rb")

    def __call__(self, *words):
        """Sends a command; its reply. An error reply is raised."""
        self.socket.sendall(self._request(words))
        reply = self._read()
        if isinstance(reply, Exception):
            raise reply
        return reply

    def together(self, commands):
        """Sends commands in one pipeline; their replies."""
        self.socket.sendall(b"".join(map(self._request, commands)))
        replies = [self._read() for _ in commands]
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    def _request(self, words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        bulk = [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
        return b"*%d\r\n%s" % (len(words), b"".join(bulk))

    def _read(self):
        line = self.replies.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server has closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            return Refused(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self.replies.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if rest == b"-1" else [self._read() for _ in range(int(rest))]
        return rest


class Refused(Exception):
    """An error reply."""
