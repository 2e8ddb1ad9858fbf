"""ioredis (Node) and go-redis do the same work; each is a program that exits with 0 when all went well."""

import json
import pathlib
import subprocess

import pytest

from harness import ROOT
from lengths import EVERY_LENGTH_MAX, landmarks

HERE = pathlib.Path(__file__).parent
PROGRAMS = {
    "ioredis": ["node", str(HERE / "ioredis_client.js")],
    "go-redis": [str(ROOT / "tests" / ".env" / "bin" / "goredis")],
}


def places():
    for name in PROGRAMS:
        for network in ("tcp", "unix"):
            for protocol in (2, 3):
                yield pytest.param(name, network, protocol, id=f"{name}-{network}-resp{protocol}")


@pytest.mark.parametrize("name, network, protocol", list(places()))
def test_client(server, name, network, protocol):
    task = {
        "network": network,
        "address": f"127.0.0.1:{server.port}" if network == "tcp" else str(server.socket),
        "protocol": protocol,
        "lengths": landmarks(),
        # Every length once through each client; the other connections take the landmarks.
        "everyLengthMax": EVERY_LENGTH_MAX if network == "unix" and protocol == 2 else 0,
    }
    result = subprocess.run(
        PROGRAMS[name], input=json.dumps(task).encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300
    )
    assert result.returncode == 0, result.stdout.decode(errors="replace")
