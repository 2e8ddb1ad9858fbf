"""ioredis (Node), go-redis and Jedis do the same work; each is a program that exits with 0 when all went well."""

import json
import pathlib
import subprocess

import pytest

from certificates import Authority
from harness import ROOT, Server, free_port
from lengths import EVERY_LENGTH_MAX, landmarks

HERE = pathlib.Path(__file__).parent
JEDIS = ROOT / "tests" / ".env" / "jedis"
PROGRAMS = {
    "ioredis": ["node", str(HERE / "ioredis_client.js")],
    "go-redis": [str(ROOT / "tests" / ".env" / "bin" / "goredis")],
    "Jedis": ["java", "-cp", f"{JEDIS / 'classes'}:{JEDIS / 'libraries'}/*", "JedisClient"],
}


def places():
    for name in PROGRAMS:
        # Jedis has no Unix sockets.
        for network in ("tcp", "tls") if name == "Jedis" else ("tcp", "unix", "tls"):
            for protocol in (2, 3):
                yield pytest.param(name, network, protocol, id=f"{name}-{network}-resp{protocol}")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One that speaks TLS, too."""
    authority = Authority(tmp_path_factory.mktemp("tls"))
    cert, key = authority.issue("server")
    port = free_port()
    given = ["--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", authority.cert]
    with Server(*given) as server:
        client = authority.issue("client")
        server.tls = {"ca": str(authority.cert), "cert": str(client[0]), "key": str(client[1])}
        server.addresses = {"tcp": f"127.0.0.1:{server.port}", "unix": str(server.socket), "tls": f"127.0.0.1:{port}"}
        yield server


@pytest.mark.parametrize("protocol", [2, 3])
def test_json_by_node_redis(server, protocol):
    command = ["node", str(HERE / "node_redis_json.js"), server.addresses["tcp"], str(protocol)]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    assert result.returncode == 0, result.stdout.decode(errors="replace")


@pytest.mark.parametrize("name, network, protocol", list(places()))
def test_client(server, name, network, protocol):
    if name == "Jedis" and not (JEDIS / "libraries").exists():
        pytest.skip("there is no Jedis: the set-up has found no Java or no Maven")
    task = {
        "network": network,
        "address": server.addresses[network],
        **server.tls,
        "protocol": protocol,
        "lengths": landmarks(),
        # Every length once through each client; the other connections take the landmarks.
        "everyLengthMax": EVERY_LENGTH_MAX if network == "unix" and protocol == 2 else 0,
    }
    result = subprocess.run(
        PROGRAMS[name], input=json.dumps(task).encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300
    )
    assert result.returncode == 0, result.stdout.decode(errors="replace")
