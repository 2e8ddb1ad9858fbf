"""GET /health: replies to load balancers."""

import http.client
import shutil
import socket
import time

import pytest

from harness import Server, free_port
from web import eventually

PATIENCE_S = 30


@pytest.fixture
def port():
    return free_port()


def ask(port, method="GET", path="/health"):
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        client.request(method, path)
        response = client.getresponse()
        return response.status, response.read().decode()
    finally:
        client.close()


def test_health_is_ok_while_the_server_serves(port):
    with Server("--http-port", port) as server:
        eventually(lambda: f"http://127.0.0.1:{port}/health" in server.log())
        assert ask(port) == (200, "ok\n")
        assert ask(port, method="HEAD") == (200, "")
        assert ask(port, path="/health?verbose") == (200, "ok\n")
        assert ask(port, method="POST") == (405, "GET or HEAD\n")
        assert ask(port, path="/nothing") == (404, "there are /health, /metrics and the console at /\n")
    with pytest.raises(OSError):
        ask(port)


def test_health_may_be_asked_often_on_a_connection(port):
    with Server("--http-port", port):
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        for _ in range(100):
            client.request("GET", "/health")
            assert client.getresponse().read() == b"ok\n"
        client.close()


def test_health_tells_of_a_disk_that_fails(port):
    with Server("--http-port", port, "--appendonly", "yes", "--appendfsync", "always") as server:
        assert ask(port) == (200, "ok\n")
        shutil.rmtree(server.folder / "appendonlydir")
        with server.connect() as client:
            client.sendall(b"SET k v\r\n")
            deadline = time.monotonic() + PATIENCE_S
            while (answer := ask(port))[0] == 200 and time.monotonic() < deadline:
                time.sleep(0.01)
        assert answer[0] == 503
        assert answer[1].startswith("the append-only file cannot be written: ")


def test_idle_clients_do_not_keep_others_out_for_ever(port):
    with Server("--http-port", port):
        idle = [socket.create_connection(("127.0.0.1", port), PATIENCE_S) for _ in range(40)]
        # More than are served at one time: the answer comes once the first ones have been sent away.
        assert ask(port) == (200, "ok\n")
        for client in idle:
            client.close()


def test_bytes_that_are_no_http_end_their_connection_alone(port):
    with Server("--http-port", port):
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
            client.sendall(b"*1\r\n$4\r\nPING\r\n")
            assert client.recv(64).startswith(b"HTTP/1.1 400")
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nx: " + b"x" * 100_000)
            assert client.recv(64).startswith(b"HTTP/1.1 431")
        assert ask(port) == (200, "ok\n")


def test_http_port_in_use_ends_the_start_with_one_line(port):
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        with pytest.raises(AssertionError, match=f"cannot listen on 127.0.0.1 port {port}: another process does"):
            Server("--http-port", port)
