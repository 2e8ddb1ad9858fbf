"""The time of day is set while the server runs (replication/environment.c): ages, pauses and timeouts go by a clock that only goes forward."""

import pathlib
import socket
import ssl
import subprocess

import pytest

from harness import DUNLIN, ROOT, Server
from peers import Files, TlsServer
from wire import Session, eventually

pytestmark = pytest.mark.skipif("redis" in pathlib.Path(DUNLIN).name, reason="redis-server takes ages from the time of day")

HOUR = 3600


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("environment") / "environment.so"
    source = ROOT / "tests" / "replication" / "environment.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", path, source, "-ldl"], check=True)
    return path


@pytest.fixture
def clock(library, tmp_path):
    return Clock(library, tmp_path / "clock")


class Clock:
    def __init__(self, library, path):
        self.path = path
        self.environment = {"LD_PRELOAD": str(library), "ENVIRONMENT_CLOCK": str(path)}
        self.set(0)

    def set(self, seconds):
        beside = self.path.with_suffix(".new")
        beside.write_text(str(seconds))
        beside.rename(self.path)


@pytest.fixture(scope="module")
def files():
    files = Files()
    yield files
    files.remove()


def clients(session):
    lines = session("CLIENT", "LIST").decode().strip().split("\n")
    return [dict(word.split("=", 1) for word in line.split(" ") if "=" in word) for line in lines]


def day(session):
    return int(session("TIME")[0])


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_clients_are_as_old_and_as_idle_as_they_are(clock, jump):
    with Server(environment=clock.environment) as server, Session(server) as session, server.connect() as idle:
        eventually(lambda: len(clients(session)) == 2, "both are there")
        before = day(session)
        clock.set(jump)
        eventually(lambda: abs(day(session) - before - jump) < HOUR / 2, "the jump")
        assert all(int(one["age"]) < HOUR / 2 and int(one["idle"]) < HOUR / 2 for one in clients(session))
        assert session("CLIENT", "KILL", "MAXAGE", HOUR // 2, "SKIPME", "no") == 0
        assert len(session("CLIENT", "LIST", "IDLE", HOUR // 2)) == 0
        # Both go on by themselves.
        eventually(lambda: all(int(one["age"]) >= 2 for one in clients(session)), "they get older")
        eventually(lambda: max(int(one["idle"]) for one in clients(session)) >= 2, "one is idle")
        assert session("CLIENT", "KILL", "MAXAGE", 2) == 1
        assert idle.recv(1) == b""


def test_strangers_go_though_the_clock_was_set_back(clock):
    with Server("--requirepass", "secret", "--maxclients", "8", environment=clock.environment) as server:
        with Session(server) as session:
            assert session("AUTH", "secret") == "OK"
            before = day(session)
            silent = [server.connect() for _ in range(7)]
            eventually(lambda: len(clients(session)) == 8, "all places are taken")
            clock.set(-600)
            eventually(lambda: day(session) < before, "the jump")

            def gets_in():
                with server.connect() as client:
                    try:
                        client.sendall(b"AUTH secret\r\n")
                        return client.recv(64) == b"+OK\r\n"
                    except ConnectionError:
                        return False

            eventually(gets_in, "a client with the password", 120)
            [one.close() for one in silent]


@pytest.mark.parametrize("jump", [HOUR, -HOUR])
def test_handshakes_last_as_long_as_they_may(clock, files, jump):
    with TlsServer(files, "--tls-auth-clients", "no", environment=clock.environment) as server, Session(server) as session:
        context = server.context()
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        with socket.create_connection(("127.0.0.1", server.tls_port), timeout=120) as good:
            with pytest.raises(ssl.SSLWantReadError):
                tls.do_handshake()
            good.sendall(outgoing.read())
            incoming.write(good.recv(1 << 16))
            before = day(session)
            clock.set(jump)
            eventually(lambda: abs(day(session) - before - jump) < HOUR / 2, "the jump")
            # Each connection is looked at once a second.
            eventually(lambda: int(clients(session)[0]["age"]) >= 2, "two seconds")
            tls.do_handshake()
            tls.write(b"PING\r\n")
            good.sendall(outgoing.read())
            answer = b""
            while answer != b"+PONG\r\n":
                got = good.recv(1 << 16)
                assert got, "the handshake was given up"
                incoming.write(got)
                try:
                    answer += tls.read(64)
                except ssl.SSLWantReadError:
                    pass
        with socket.create_connection(("127.0.0.1", server.tls_port), timeout=120) as half:
            half.sendall(b"\x16\x03\x01")
            assert half.recv(10) == b"", "one that says nothing more is given up"


def test_save_points_go_on_though_the_clock_was_set_back(clock):
    with Server("--save", "2 1", environment=clock.environment) as server, Session(server) as session:
        before = day(session)
        clock.set(-HOUR)
        eventually(lambda: day(session) < before, "the jump")
        assert session("SET", "key", "value") == "OK"
        eventually(lambda: (server.folder / "dump.rdb").exists(), "a snapshot", 60)


def test_denials_are_as_old_as_they_are(clock):
    with Server(environment=clock.environment) as server, Session(server) as session, Session(server) as user:
        assert session("ACL", "SETUSER", "low", "on", ">low") == "OK"
        assert user("AUTH", "low", "low") == "OK"
        assert user("GET", "key").startswith("-NOPERM")
        before = day(session)
        clock.set(HOUR)
        eventually(lambda: day(session) > before + HOUR / 2, "the jump")
        entry = session("ACL", "LOG")[0]
        age = float(dict(zip(entry[::2], entry[1::2]))[b"age-seconds"])
        assert 0 <= age < HOUR / 2
        # The same denial is one entry still.
        assert user("GET", "key").startswith("-NOPERM")
        assert len(session("ACL", "LOG")) == 1


def test_sealed_backup_stays_though_the_clock_was_set_forward(clock):
    with Server("--appendonly", "yes", "--backup-sealed-ttl", str(HOUR // 2), environment=clock.environment) as server, Session(server) as session:
        assert session("BACKUP", "START") == "OK"
        eventually(lambda: b"incrementing" in session("BACKUP", "STATUS"), "the base")
        assert session("BACKUP", "SEAL") == "OK"
        before = day(session)
        clock.set(HOUR)
        eventually(lambda: day(session) > before + HOUR / 2, "the jump")
        # It is looked at ten times a second.
        eventually(lambda: int(clients(session)[0]["age"]) >= 2, "two seconds")
        assert b"sealed" in session("BACKUP", "STATUS")
