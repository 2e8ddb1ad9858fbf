"""maxmemory-clients: clients whose buffers take too much are closed, the largest first; the others stay."""

import re

import pytest
from harness import DUNLIN, is_redis
from peer import Peer
from wire import eventually

MB = 1 << 20
own = pytest.mark.skipif(is_redis(DUNLIN), reason="about Dunlin's own buffers")


def evicted(peer):
    return int(re.search(r"evicted_clients:(\d+)", peer.ask("INFO", "stats")).group(1))


def begin_request(peer, bytes_sent):
    """Leaves a request half sent, which the server has to keep."""
    peer.socket.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n" % (200 * 1024) + b"x" * bytes_sent)


@own
def test_client_eviction_takes_the_largest_and_leaves_the_rest(server):
    with Peer(server) as observer, Peer(server) as large, Peer(server) as small, Peer(server) as spared:
        observer.line("CONFIG RESETSTAT")
        spared.line("CLIENT NO-EVICT on")
        small.line("CLIENT SETNAME small")
        begin_request(spared, 190 * 1024)
        begin_request(large, 180 * 1024)
        try:
            assert observer.line("CONFIG SET maxmemory-clients 100000") == "OK"
            eventually(lambda: evicted(observer) == 1, "the large client is closed")
            assert large.is_closed()
            assert small.line("PING") == "PONG"
            spared.socket.sendall(b"x" * (10 * 1024) + b"\r\n")
            assert spared.read() == "OK"
        finally:
            assert observer.line("CONFIG SET maxmemory-clients 0") == "OK"


@own
def test_client_that_does_not_read_is_closed(server):
    with Peer(server) as observer, Peer(server) as lazy:
        observer.line("CONFIG RESETSTAT")
        observer.ask("SET", "value", b"v" * MB)
        assert observer.line("CONFIG SET maxmemory-clients 500kb") == "OK"
        try:
            lazy.socket.sendall(b"*2\r\n$3\r\nGET\r\n$5\r\nvalue\r\n" * 100)
            eventually(lambda: evicted(observer) == 1, "a client with so much output is closed")
            assert observer.line("PING") == "PONG"
        finally:
            observer.line("CONFIG SET maxmemory-clients 0")
            observer.line("DEL value")


def test_maxmemory_clients_takes_bytes_and_percent_as_in_redis(server, oracle):
    values = ["0", "100mb", "5%", "100%", "101%", "-1", "-5%", "x", "%", "1.5%", "12345"]
    replies = []
    for one in (server, oracle):
        with Peer(one) as peer:
            asked = []
            for value in values:
                asked.append((value, peer.ask("CONFIG", "SET", "maxmemory-clients", value)))
                asked.append(peer.ask("CONFIG", "GET", "maxmemory-clients"))
            peer.line("CONFIG SET maxmemory-clients 0")
            replies.append(asked)
    assert replies[0] == replies[1]
