"""CONFIG SET bind and port: where a running server listens. `DUNLIN=redis-server` passes these tests."""

import contextlib
import socket

import pytest

from harness import Server, free_port
from wire import Session

BUSY_PORT = "Unable to listen on this port. Check server logs."
NO_ADDRESS = "Failed to bind to specified addresses."


def failed(name, reason):
    return f"-ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}"


@contextlib.contextmanager
def client_of(server, host="127.0.0.1", port=None):
    with socket.create_connection((host, port or server.port), timeout=30) as client:
        yield client


def answers(server, **where):
    """Whether the server answers there."""
    try:
        with client_of(server, **where) as client:
            client.sendall(b"PING\r\n")
            return client.recv(64) == b"+PONG\r\n"
    except ConnectionRefusedError:
        return False


@pytest.fixture
def session():
    with Server() as server, Session(server) as session:
        yield server, session


def test_config_set_port_listens_there(session):
    server, session = session
    other = free_port()
    with client_of(server) as old_client:
        old_client.sendall(b"PING\r\n")
        assert old_client.recv(64) == b"+PONG\r\n"
        assert session("CONFIG", "SET", "port", other) == "OK"
        assert answers(server, port=other)
        assert not answers(server)
        # A client that was connected stays so.
        old_client.sendall(b"PING\r\n")
        assert old_client.recv(64) == b"+PONG\r\n"
    assert session("CONFIG", "GET", "port") == [b"port", b"%d" % other]
    assert b"tcp_port:%d\r\n" % other in session("INFO", "server")
    assert session("CONFIG", "SET", "port", server.port) == "OK"
    assert answers(server)
    assert not answers(server, port=other)


def test_config_set_port_that_is_taken_changes_nothing(session):
    server, session = session
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert session("CONFIG", "SET", "port", port, "maxclients", 77) == failed("port", BUSY_PORT)
        assert answers(server)
    assert session("CONFIG", "GET", "port") == [b"port", b"%d" % server.port]
    assert session("CONFIG", "GET", "maxclients") != [b"maxclients", b"77"]
    for port in ["-1", "65536", "x", ""]:
        assert session("CONFIG", "SET", "port", port).startswith("-ERR CONFIG SET failed")


def test_config_set_bind_listens_at_other_addresses(session):
    server, session = session
    assert not answers(server, host="127.0.0.2")
    assert session("CONFIG", "SET", "bind", "127.0.0.1 127.0.0.2") == "OK"
    assert answers(server) and answers(server, host="127.0.0.2")
    assert session("CONFIG", "SET", "bind", "127.0.0.2 -192.0.2.1") == "OK"
    assert answers(server, host="127.0.0.2") and not answers(server)
    # 192.0.2.0/24 is reserved for documentation: no host has it.
    assert session("CONFIG", "SET", "bind", "127.0.0.1 192.0.2.1") == failed("bind", NO_ADDRESS)
    assert answers(server, host="127.0.0.2") and not answers(server)
    assert session("CONFIG", "SET", "bind", "127.0.0.1") == "OK"
    assert answers(server) and not answers(server, host="127.0.0.2")


def test_config_set_port_0_closes_tcp_until_set_again():
    with Server() as server, server.connect(unix=True) as client:
        client.sendall(b"CONFIG SET port 0\r\n")
        assert client.recv(64) == b"+OK\r\n"
        assert not answers(server)
        with server.connect(unix=True) as newcomer:
            newcomer.sendall(b"PING\r\n")
            assert newcomer.recv(64) == b"+PONG\r\n"
        client.sendall(b"CONFIG SET port %d\r\n" % server.port)
        assert client.recv(64) == b"+OK\r\n"
        assert answers(server)
