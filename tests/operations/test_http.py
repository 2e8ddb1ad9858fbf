"""HTTP from people who mean harm: each request is answered, and bounded."""

import contextlib
import http.client
import random
import socket

import pytest
from mutations import mutated
from web import PATIENCE_S, ask, serving


@pytest.fixture(scope="module")
def port():
    with serving("--http-hosts", "store.example.com") as (_, port):
        yield port


def raw(port, request):
    """The first bytes of the answer to these bytes."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
        # The answer, and the end of the connection, may come before all is sent.
        with contextlib.suppress(ConnectionError):
            client.sendall(request)
        return client.recv(4096)


@pytest.mark.parametrize("path", ["/health", "/metrics"])
def test_http_methods_that_only_read_are_allowed(port, path):
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"]:
        answer = ask(port, path, method=method)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD"), method
    head = ask(port, path, method="HEAD")
    assert (head.status, head.text) == (200, "")


def test_http_host_of_another_site_is_refused(port):
    refused = ask(port, "/metrics", headers={"Host": "evil.example.com"})
    assert refused.status == 421
    assert "http-hosts" in refused.text
    assert "redis_" not in refused.text
    for host in ["127.0.0.1", f"localhost:{port}", "store.example.com", "[::1]"]:
        assert ask(port, "/metrics", headers={"Host": host}).status == 200, host
    # Load balancers call it what they like.
    assert ask(port, "/health", headers={"Host": "evil.example.com"}).status == 200


def test_http_request_needs_exactly_one_host(port):
    assert raw(port, b"GET /metrics HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 400")
    two = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example.com\r\n\r\n"
    assert raw(port, two).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("path", ["/../etc/passwd", "/%2e%2e/etc/passwd", "/metrics/../x", "//metrics", "/metrics/", "/x" * 1000])
def test_http_has_no_other_paths(port, path):
    answer = ask(port, path)
    assert answer.status == 404
    assert "root:" not in answer.text


def test_bodies_are_not_expected(port):
    assert ask(port, "/metrics", body=b"x" * 100).status == 413
    # It is refused before it has come: nothing waits for the rest.
    head = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000000\r\n\r\n"
    assert raw(port, head).startswith(b"HTTP/1.1 413")
    chunked = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert raw(port, chunked).startswith(b"HTTP/1.1 413")


def test_http_head_is_limited_in_size(port):
    for head in [b"X: " + b"x" * 100_000, b"x: y\r\n" * 10_000]:
        assert raw(port, b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + head).startswith(b"HTTP/1.1 431")


def test_http_head_that_comes_too_slowly_ends_the_connection(port):
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: loc")
        # Closed, whether with an answer or without.
        answer = client.recv(4096)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 408")


def test_http_answers_forbid_to_keep_frame_and_guess(port):
    for path in ["/health", "/metrics", "/nothing"]:
        headers = ask(port, path).headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers


def test_requests_in_a_row_share_a_connection(port):
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    for path in ["/health", "/metrics", "/nothing", "/metrics"]:
        client.request("GET", path)
        client.getresponse().read()
    client.close()


HOST = b"Host: localhost\r\n"
UPGRADE = (
    b"GET /connect HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
REQUESTS = [
    b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /metrics HTTP/1.1\r\n" + HOST + b"Accept: application/openmetrics-text; version=1.0.0\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + HOST + b"Accept-Encoding: gzip\r\n\r\n",
    b"POST /metrics HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\nabc",
    b"GET /metrics HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"GET /health HTTP/1.0\r\n\r\nGET /health HTTP/1.1\r\n" + HOST + b"\r\n",
    UPGRADE + b"\x82\x8e\x00\x00\x00\x00*1\r\n$4\r\nPING\r\n" + b"\x88\x80\x00\x00\x00\x00",
]


def test_mutated_requests_hurt_nobody():
    rng = random.Random(31)
    with serving() as (server, port):
        for _ in range(1500):
            request = mutated(rng, REQUESTS)
            with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
                try:
                    client.sendall(request)
                    client.shutdown(socket.SHUT_WR)
                    while client.recv(65536):
                        pass
                except OSError:
                    # It is closed before all has come.
                    pass
        assert ask(port, "/health").status == 200
        with server.connect() as client:
            client.sendall(b"PING\r\n")
            assert client.recv(64) == b"+PONG\r\n"
        assert "panicked at" not in server.log()
