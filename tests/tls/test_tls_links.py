"""Replication inside TLS: primaries and replicas of Dunlin and of redis-server, in both directions."""

import pytest
from certificates import self_signed
from harness import DUNLIN, ORACLE, Server, free_port
from peers import Files
from wire import Session, eventually


@pytest.fixture(scope="module")
def files():
    files = Files()
    yield files
    files.remove()


def node(files, program):
    port, given = files.directives("--tls-replication", "yes")
    server = Server(*given, program=program)
    server.tls_port = port
    return server


def link(session):
    text = session("INFO", "replication").decode()
    return "master_link_status:up" in text


@pytest.mark.parametrize("programs", [(DUNLIN, DUNLIN), (ORACLE, DUNLIN), (DUNLIN, ORACLE)], ids=["own", "from-redis", "to-redis"])
def test_links_inside_tls(files, programs):
    with node(files, programs[0]) as primary, node(files, programs[1]) as replica:
        with Session(primary) as above, Session(replica) as below:
            assert above("SET", "before", "b" * 200_000) == "OK"
            for number in range(1000):
                above("SET", f"key:{number}", "v" * 100)
            assert below("REPLICAOF", "127.0.0.1", primary.tls_port) == "OK"
            eventually(lambda: link(below), f"a link\n{primary.log()[-1500:]}\n{replica.log()[-1500:]}", 60)
            assert above("SET", "behind", "c" * 300_000) == "OK"
            for number in range(2000):
                above("INCR", "counter")
            assert above("WAIT", "1", "20000") == 1
            assert below("GET", "before") == b"b" * 200_000
            assert below("GET", "behind") == b"c" * 300_000
            assert below("GET", "counter") == b"2000"
            assert below("DBSIZE") == above("DBSIZE")


def test_link_without_tls_does_not_come_up_at_the_port_for_tls(files):
    with node(files, DUNLIN) as primary, Server() as replica, Session(replica) as below:
        assert below("REPLICAOF", "127.0.0.1", primary.tls_port) == "OK"
        eventually(lambda: "link to the primary" in replica.log().lower(), "a line of the log")
        assert not link(below)


def test_primary_with_an_unknown_certificate_is_refused(files):
    other = Files()
    try:
        with node(other, DUNLIN) as primary, node(files, DUNLIN) as replica, Session(replica) as below:
            assert below("REPLICAOF", "127.0.0.1", primary.tls_port) == "OK"
            eventually(lambda: "the certificate's signature is not its authority's" in replica.log(), "the reason in the log")
            eventually(lambda: "the peer refuses our certificate" in primary.log(), "and at the other end")
            assert not link(below)
    finally:
        other.remove()


@pytest.mark.parametrize("programs", [(DUNLIN, DUNLIN), (ORACLE, DUNLIN), (DUNLIN, ORACLE)], ids=["own", "from-redis", "to-redis"])
def test_migrate_inside_tls(files, programs):
    with node(files, programs[0]) as source, node(files, programs[1]) as target:
        with Session(source) as above, Session(target) as below:
            assert above("CONFIG", "SET", "tls-cluster", "yes") == "OK"
            above("SET", "a", "x" * 1_000_000)
            above("SET", "b", "small")
            move = lambda *words: above("MIGRATE", "127.0.0.1", target.tls_port, "", 0, 25_000, *words)
            assert move("KEYS", "a", "b") == "OK"
            assert (above("DBSIZE"), below("STRLEN", "a"), below("GET", "b")) == (0, 1_000_000, b"small")


@pytest.mark.parametrize("programs", [(ORACLE, ORACLE), (DUNLIN, DUNLIN), (ORACLE, DUNLIN), (DUNLIN, ORACLE)], ids=["redis", "own", "from-redis", "to-redis"])
def test_self_signed_certificate_serves_links_and_migrate(tmp_path, programs):
    cert, key = self_signed(tmp_path, "all", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")

    def start(program):
        port = free_port()
        given = ["--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert]
        server = Server(*given, "--tls-replication", "yes", program=program)
        server.tls_port = port
        return server

    with start(programs[0]) as primary, start(programs[1]) as replica:
        with Session(primary) as above, Session(replica) as below:
            assert below("REPLICAOF", "127.0.0.1", primary.tls_port) == "OK"
            eventually(lambda: link(below), f"a link\n{primary.log()[-1500:]}\n{replica.log()[-1500:]}", 60)
            assert below("REPLICAOF", "NO", "ONE") == "OK"
            assert above("CONFIG", "SET", "tls-cluster", "yes") == "OK"
            above("SET", "a", "moved")
            assert above("MIGRATE", "127.0.0.1", replica.tls_port, "a", 0, 25_000) == "OK"
            assert below("GET", "a") == b"moved"


def test_migrate_names_the_reason_in_the_log(files):
    other = Files()
    try:
        with node(other, DUNLIN) as target, node(files, DUNLIN) as source, Session(source) as above:
            assert above("CONFIG", "SET", "tls-cluster", "yes") == "OK"
            above("SET", "a", "stays")
            assert above("MIGRATE", "127.0.0.1", target.tls_port, "a", 0, 25_000).startswith("-IOERR")
            assert f"TLS to 127.0.0.1:{target.tls_port} fails: the certificate's signature is not its authority's" in source.log()
            eventually(lambda: "the peer refuses our certificate" in target.log(), "the other end's log")
    finally:
        other.remove()
