"""Clients that need not say who they are: by their certificate, or as a process at the Unix socket."""

import os
import ssl
import subprocess
import threading

import pytest
from harness import Server
from peers import TlsServer, files  # noqa: F401
from wire import Session, command


@pytest.fixture(scope="module")
def server(files):  # noqa: F811
    files.alice = files.authority.issue("alice")
    files.spiffe = files.authority.issue(
        "spiffe", subject="", uris=["spiffe://example/none", "spiffe://example/off", "spiffe://example/app"]
    )
    with TlsServer(files, "--tls-auth-clients", "optional") as server, Session(server) as session:
        assert session("ACL", "SETUSER", "alice", "on", "~a:*", "+@all") == "OK"
        assert session("ACL", "SETUSER", "spiffe://example/app", "on", "~*", "+get", "+acl|whoami") == "OK"
        assert session("ACL", "SETUSER", "spiffe://example/off", "off", "~*", "+@all") == "OK"
        yield server


@pytest.fixture
def session(server):
    with Session(server) as session:
        assert session("ACL", "LOG", "RESET") == "OK"
        yield session


def test_common_name(server, session):
    who = command("ACL", "WHOAMI")
    with server.session(server.files.alice) as wrapped:
        wrapped.sendall(who)
        assert wrapped.recv(64) == b"$7\r\ndefault\r\n", "off by default"
    assert session("CONFIG", "SET", "tls-auth-clients-user", "CN") == "OK"
    with server.session(server.files.alice) as wrapped:
        # The handshake's last flight and the first request may come in one piece.
        wrapped.sendall(who + command("SET", "b", "1") + command("SET", "a:1", "1"))
        expected = (
            b"$5\r\nalice\r\n-NOPERM No permissions to access a key\r\n+OK\r\n",
            b"$5\r\nalice\r\n-NOPERM this user has no permissions to access one of the keys used as arguments\r\n+OK\r\n",
        )
        got = b""
        while not got.endswith(b"+OK\r\n"):
            got += wrapped.recv(1 << 10)
        assert got in expected
        listed = [line for line in session("CLIENT", "LIST").decode().split("\n") if "user=alice" in line]
        assert len(listed) == 1
    with server.session() as wrapped:
        wrapped.sendall(who)
        assert wrapped.recv(64) == b"$7\r\ndefault\r\n", "without a certificate"


def test_certificate_that_names_no_user(server, session):
    assert session("CONFIG", "SET", "tls-auth-clients-user", "CN") == "OK"
    before = denied(session)
    with server.session(server.files.client) as wrapped:
        wrapped.sendall(command("ACL", "WHOAMI"))
        assert wrapped.recv(64) == b"$7\r\ndefault\r\n"
    entry = session("ACL", "LOG")[0]
    entry = dict(zip(entry[::2], entry[1::2]))
    assert (entry[b"reason"], entry[b"object"], entry[b"username"]) == (b"tls-cert", b"TLS certificate", b"client")
    assert denied(session) == before + 1


def denied(session):
    text = session("INFO", "stats").decode()
    return int(text.split("acl_access_denied_tls_cert:")[1].split("\r\n")[0])


def test_uris(server, session):
    assert session("CONFIG", "SET", "tls-auth-clients-user", "URI") == "OK"
    with server.session(server.files.spiffe) as wrapped:
        wrapped.sendall(command("ACL", "WHOAMI"))
        assert wrapped.recv(64) == b"$20\r\nspiffe://example/app\r\n", "the first that is an enabled user's"


def test_user_without_passwords_comes_by_certificate_only(server, session):
    assert session("AUTH", "alice", "") == "-WRONGPASS invalid username-password pair or user is disabled."
    assert session("AUTH", "alice", "alice") == "-WRONGPASS invalid username-password pair or user is disabled."


def test_user_that_is_deleted_takes_its_clients_along(server, session):
    assert session("CONFIG", "SET", "tls-auth-clients-user", "CN") == "OK"
    bob = server.files.authority.issue("bob")
    assert session("ACL", "SETUSER", "bob", "on", "~*", "+@all") == "OK"
    with server.session(bob) as wrapped:
        wrapped.sendall(command("ACL", "WHOAMI"))
        assert wrapped.recv(64) == b"$3\r\nbob\r\n"
        assert session("ACL", "DELUSER", "bob") == 1
        assert wrapped.recv(64) == b""


def test_closed_to_others(server, session):
    """Where the default user is off, a certificate is what lets clients in."""
    assert session("CONFIG", "SET", "tls-auth-clients-user", "CN") == "OK"
    assert session("ACL", "SETUSER", "default", "off") == "OK"
    try:
        with server.session(server.files.alice) as wrapped:
            wrapped.sendall(command("ACL", "WHOAMI"))
            assert wrapped.recv(64) == b"$5\r\nalice\r\n"
        with server.session() as wrapped:
            wrapped.sendall(command("PING"))
            assert wrapped.recv(64).startswith(b"-NOAUTH")
    finally:
        assert session("ACL", "SETUSER", "default", "on") == "OK"


@pytest.mark.parametrize("word", ["uid={uid}:app", "gid={gid}:app", "uid=4294967295:other gid={gid}:app"])
def test_unix_peers(word):
    word = word.format(uid=os.getuid(), gid=os.getgid())
    with Server("--unixsocket-user", *word.split()) as server, Session(server) as session:
        assert session("CONFIG", "GET", "unixsocket-user") == [b"unixsocket-user", word.encode()]
        assert session("ACL", "SETUSER", "app", "on", "~*", "+@all") == "OK"
        with server.connect(unix=True) as client:
            client.sendall(command("ACL", "WHOAMI"))
            assert client.recv(64) == b"$3\r\napp\r\n"
        assert session("ACL", "WHOAMI") == b"default", "over TCP nobody knows"
        assert session("CONFIG", "SET", "unixsocket-user", "") == "OK"
        with server.connect(unix=True) as client:
            client.sendall(command("ACL", "WHOAMI"))
            assert client.recv(64) == b"$7\r\ndefault\r\n"
        for wrong in ["uid=x:app", "uid=1", "app", "uid=1:", "uid=-1:app", "uid=4294967296:app"]:
            assert session("CONFIG", "SET", "unixsocket-user", wrong) == (
                "-ERR CONFIG SET failed (possibly related to argument 'unixsocket-user') - "
                "argument must be words of uid=NUMBER:USER or gid=NUMBER:USER"
            )


def test_unix_peer_whose_user_is_off_stays_the_default_user():
    with Server("--unixsocket-user", f"uid={os.getuid()}:app") as server, Session(server) as session:
        with server.connect(unix=True) as client:
            client.sendall(command("ACL", "WHOAMI"))
            assert client.recv(64) == b"$7\r\ndefault\r\n"
        entry = session("ACL", "LOG")[0]
        entry = dict(zip(entry[::2], entry[1::2]))
        assert (entry[b"reason"], entry[b"object"], entry[b"username"]) == (b"auth", b"unixsocket-user", b"app")


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("field", ["CN", "URI"])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_requests_beside_the_handshake_are_the_certificates_own(files, version, field, workers):  # noqa: F811
    """Requests arrive in one piece with the handshake's last flight, while others have left requests in the worker's buffers."""
    name = {"CN": "app", "URI": "spiffe://example/app"}[field]
    certificate = files.authority.issue("app", uris=["spiffe://example/app"])
    with TlsServer(files, "--tls-auth-clients-user", field, "--threads", workers) as server:
        with Session(server) as admin:
            assert admin("ACL", "SETUSER", name, "on", "~*", "+@all") == "OK"
            assert admin("ACL", "SETUSER", "low", "on", ">low", "~low:*", "+incr") == "OK"
            low = [Session(server) for _ in range(workers * 2)]
            assert all(one("AUTH", "low", "low") == "OK" for one in low)
            assert admin("ACL", "SETUSER", "default", "resetpass", ">secret") == "OK"
            context = server.context(certificate, minimum_version=version, maximum_version=version)
            session = None
            for number in range(24):
                counted = [one("INCR", f"low:{at}") for at, one in enumerate(low)]
                assert counted == [number + 1] * len(low)
                for one in low:
                    assert one("ACL", "SETUSER", "low", "+@all", "~*").startswith("-NOPERM")
                resumed = session if number % 2 else None
                requests = command("SET", f"app:{number}", number) + command("ACL", "WHOAMI")
                expected = b"+OK\r\n$%d\r\n%s\r\n" % (len(name), name.encode())
                with server.in_one_piece(requests, context=context, session=resumed) as client:
                    assert client.read(len(expected)) == expected, number
                    assert bool(resumed) == client.tls.session_reused
                    session = client.tls.session
            assert low[0]("GET", "app:1").startswith("-NOPERM"), "the refused request of low was not run by another client"
            assert admin("MGET", *(f"app:{number}" for number in range(24))) == [b"%d" % number for number in range(24)]
            for one in low:
                one.socket.close()


def test_redis_cli_by_certificate_is_answered_each_time(files):  # noqa: F811
    certificate = files.authority.issue("app")
    with TlsServer(files, "--tls-auth-clients-user", "CN", "--threads", 2) as server, Session(server) as admin:
        assert admin("ACL", "SETUSER", "app", "on", "~*", "+@all") == "OK"
        assert admin("ACL", "SETUSER", "default", "resetpass", ">secret") == "OK"
        ended, answers = threading.Event(), []

        def others():
            while not ended.is_set():
                with Session(server) as other:
                    assert other("AUTH", "default", "secret") == "OK"
                    assert other("PING") == "PONG"

        def call(first):
            given = ["redis-cli", "-p", server.tls_port, "--tls", "--cacert", files.authority.cert]
            given += ["--cert", certificate[0], "--key", certificate[1]]
            for number in range(first, 150, 3):
                done = subprocess.run([*map(str, given), "SET", f"k:{number}", "v"], capture_output=True, text=True, timeout=120)
                answers.append(done.stdout)

        threads = [threading.Thread(target=others), *(threading.Thread(target=call, args=(first,)) for first in range(3))]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads[1:]]
        ended.set()
        threads[0].join()
        assert answers == ["OK\n"] * 150
        assert admin("DBSIZE") == 150


def test_reset_goes_back_to_the_certificates_user(files):  # noqa: F811
    certificate = files.authority.issue("app")
    with TlsServer(files, "--tls-auth-clients-user", "CN") as server, Session(server) as admin:
        assert admin("ACL", "SETUSER", "app", "on", "~*", "+@all") == "OK"
        assert admin("ACL", "SETUSER", "other", "on", ">other", "~*", "+@all") == "OK"
        with server.in_one_piece(command("AUTH", "other", "other") + command("RESET"), certificate) as client:
            assert client.read(13) == b"+OK\r\n+RESET\r\n"
            assert client.ask(command("ACL", "WHOAMI"), 9) == b"$3\r\napp\r\n"
            listed = [line for line in admin("CLIENT", "LIST").decode().split("\n") if " user=app " in line]
            assert len(listed) == 1, "others see it, too"
            # As if it had just connected: what has changed since holds.
            assert admin("ACL", "SETUSER", "app", "off") == "OK"
            assert client.ask(command("RESET") + command("ACL", "WHOAMI"), 21) == b"+RESET\r\n$7\r\ndefault\r\n"
            assert admin("ACL", "SETUSER", "app", "on") == "OK"
            assert admin("ACL", "SETUSER", "default", "off") == "OK"
            assert client.ask(command("RESET") + command("ACL", "WHOAMI"), 17) == b"+RESET\r\n$3\r\napp\r\n"
            assert admin("CONFIG", "SET", "tls-auth-clients-user", "off") == "OK"
            assert client.ask(command("RESET") + command("PING"), 32).startswith(b"+RESET\r\n-NOAUTH")


def test_reset_goes_back_to_the_unix_sockets_user():
    with Server("--unixsocket-user", f"uid={os.getuid()}:app") as server, Session(server) as admin:
        assert admin("ACL", "SETUSER", "app", "on", "~*", "+@all") == "OK"
        assert admin("ACL", "SETUSER", "other", "on", ">other", "~*", "+@all") == "OK"
        with server.connect(unix=True) as client:
            client.sendall(command("AUTH", "other", "other") + command("RESET") + command("ACL", "WHOAMI"))
            expected = b"+OK\r\n+RESET\r\n$3\r\napp\r\n"
            got = b""
            while len(got) < len(expected):
                got += client.recv(64)
            assert got == expected
        assert admin("RESET") == "RESET" and admin("ACL", "WHOAMI") == b"default"
