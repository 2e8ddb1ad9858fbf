"""A server with HTTP, and requests to it."""

import contextlib
import http.client
import os
import shutil

import pytest

from harness import ROOT, Server, free_port
from waiting import until as eventually

__all__ = ["PATIENCE_S", "Answer", "ask", "eventually", "serving"]

PATIENCE_S = 60


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.text = response.read().decode()


def ask(port, path, method="GET", headers=None, body=None):
    """One request on a connection of its own. `headers` may have a Host."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        headers = headers or {}
        client.putrequest(method, path, skip_host="Host" in headers)
        if body is not None:
            headers = {"Content-Length": str(len(body)), **headers}
        for name, value in headers.items():
            client.putheader(name, value)
        client.endheaders(body)
        return Answer(client.getresponse())
    finally:
        client.close()


@contextlib.contextmanager
def serving(*directives, **options):
    """A server, and its port for HTTP."""
    port = free_port()
    with Server("--http-port", port, *directives, **options) as server:
        yield server, port


CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
MODULES = ROOT / "console" / "node_modules"
needs_browser = pytest.mark.skipif(
    not CHROMIUM or not all((MODULES / name).exists() for name in ["playwright-core", "axe-core"]),
    reason="there is no browser (Debian package chromium), or console/node_modules lacks playwright-core or axe-core",
)
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
