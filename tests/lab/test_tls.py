"""Servers behind TLS: the load generator, the lab and recorded traffic reach them, and trust no stranger."""

import shutil
import subprocess

import pytest

from harness import DUNLIN, LAB, ORACLE, Server, free_port, is_redis

pytestmark = [
    pytest.mark.skipif(is_redis(DUNLIN), reason="the load generator is a part of dunlin"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates"),
]


@pytest.fixture(scope="module")
def secured(certificates):
    """A redis-server that asks its clients for certificates; its plain port is there for the harness."""
    port = free_port()
    with Server(
        "--tls-port", port, "--tls-cert-file", certificates / "server.crt", "--tls-key-file", certificates / "server.key",
        "--tls-ca-cert-file", certificates / "ca.crt", "--tls-auth-clients", "yes", program=ORACLE,
    ) as server:  # fmt: skip
        server.tls_port = port
        yield server


def url(secured, certificates, host="127.0.0.1", database=0, **more):
    options = {"cacert": certificates / "ca.crt", "cert": certificates / "client.crt", "key": certificates / "client.key"}
    options = "&".join(f"{name}={value}" for name, value in {**options, **more}.items())
    return f"rediss://{host}:{secured.tls_port}/{database}?{options}"


def bench(*arguments):
    done = subprocess.run([DUNLIN, "bench", *map(str, arguments)], capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("load", [["-P", "1"], ["-P", "100"], ["-P", "50", "-d", "20000"], ["-k", "0"], ["--rate", "2000"]])
def test_load_goes_through_tls(secured, certificates, load):
    # Values of 20,000 bytes, fifty at a time: more than sockets take while the client does not read.
    requests = 500 if "-k" in load or "-d" in load else 5000
    code, text = bench("-u", url(secured, certificates), "-t", "set,get", "-n", requests, "-c", "4", "-q", *load)
    assert code == 0 and text.count("requests per second") == 2, text


def test_flags_say_the_same_as_the_url(secured, certificates):
    flags = ["--cacert", certificates / "ca.crt", "--cert", certificates / "client.crt"]
    flags += ["--key", certificates / "client.key", "-p", secured.tls_port, "-n", 100, "-q", "PING"]
    code, text = bench(*flags)
    assert code == 0, text
    code, text = bench("--sni", "cache.example", *flags)
    assert code == 0, text
    code, text = bench("--sni", "other.example", *flags)
    assert code == 1 and "not valid for name" in text, text


def test_strangers_are_not_trusted(secured, certificates):
    client = ["--cert", certificates / "client.crt", "--key", certificates / "client.key"]
    asked = ["-p", secured.tls_port, "-n", 10, "-q", "PING"]
    code, text = bench("--tls", *client, *asked)
    assert code == 1 and "UnknownIssuer" in text and len(text.splitlines()) == 1, text
    code, text = bench("--insecure", *client, *asked)
    assert code == 0, text
    # The server trusts no stranger either.
    code, text = bench("--insecure", *asked)
    assert code == 1, text


def test_lab_measures_and_checks_through_tls(secured, certificates, tmp_path):
    tiny = ["--scale", "0.0002", "--rounds", "1", "--seed", "1", "--without-dunlin", "--out", tmp_path]
    target = ["--target", f"secured={url(secured, certificates, database=5)}"]
    command = [LAB, "pipelining", "lengths", "fan-pages", "round-trips", *map(str, tiny), *target]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    code, text = done.returncode, done.stdout + done.stderr
    assert code == 0, text
    assert "secured" in (tmp_path / "report.html").read_text()
    assert "client.key" not in (tmp_path / "report.md").read_text()


def test_traffic_is_replayed_through_tls(secured, certificates, tmp_path):
    path = tmp_path / "traffic.txt"
    path.write_text('1.000000 [0 a:1] "SET" "tls:k" "x"\n1.000100 [0 a:1] "GET" "tls:k"\n')
    code, text = bench("replay", "-u", url(secured, certificates), path)
    assert code == 0 and "2 commands" in text, text
