"""Servers that speak TLS, and clients with every chance to misbehave."""

import contextlib
import pathlib
import shutil
import socket
import ssl
import tempfile

import pytest

from certificates import Authority
from harness import Server, free_port
from wire import command


class Files:
    """An authority, the server's certificate, and clients' by name."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="dunlin-tls-"))
        self.authority = Authority(self.folder)
        self.cert, self.key = self.authority.issue("server")
        self.client = self.authority.issue("client")

    def directives(self, *more, port=None):
        """What a server with TLS is started with; and its port."""
        port = port or free_port()
        given = ["--tls-port", port, "--tls-cert-file", self.cert, "--tls-key-file", self.key]
        return port, [*given, "--tls-ca-cert-file", self.authority.cert, *more]

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)


class TlsServer(Server):
    """A server with a port for TLS beside the plain one."""

    def __init__(self, files, *directives, **more):
        self.tls_port, given = files.directives(*directives)
        self.files = files
        super().__init__(*given, **more)

    def context(self, client=None, **versions):
        context = ssl.create_default_context(cafile=str(self.files.authority.cert))
        if client is not None:
            context.load_cert_chain(*map(str, client))
        for name, version in versions.items():
            setattr(context, name, version)
        return context

    @contextlib.contextmanager
    def session(self, client=None, context=None, session=None):
        """A socket of the ssl module behind its handshake."""
        context = context or self.context(client)
        plain = socket.create_connection(("127.0.0.1", self.tls_port), timeout=30)
        with context.wrap_socket(plain, server_hostname="localhost", session=session) as wrapped:
            yield wrapped

    def in_one_piece(self, requests, client=None, context=None, session=None):
        """A socket and its TLS whose last flight of the handshake and these requests have left in one write."""
        context = context or self.context(client)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost", session=session)
        return OnePiece(socket.create_connection(("127.0.0.1", self.tls_port), timeout=60), tls, incoming, outgoing, requests)

    def ask(self, *words, client=None):
        """One request over a connection of its own; the bytes that come back first."""
        with self.session(client) as wrapped:
            wrapped.sendall(command(*words))
            return wrapped.recv(1 << 16)


class OnePiece:
    """A client whose records leave when the test says so."""

    def __init__(self, plain, tls, incoming, outgoing, requests):
        self.plain, self.tls, self.incoming, self.outgoing = plain, tls, incoming, outgoing
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                plain.sendall(outgoing.read())
                self._feed()
        tls.write(requests)
        plain.sendall(outgoing.read())

    def _feed(self):
        got = self.plain.recv(1 << 16)
        assert got, "the server has closed the connection"
        self.incoming.write(got)

    def read(self, count):
        got = b""
        while len(got) < count:
            try:
                got += self.tls.read(count - len(got))
            except ssl.SSLWantReadError:
                self._feed()
        return got

    def ask(self, request, count):
        self.tls.write(request)
        self.plain.sendall(self.outgoing.read())
        return self.read(count)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.plain.close()


@pytest.fixture(scope="module")
def files():
    files = Files()
    yield files
    files.remove()
