"""TLS: clients, certificates, and everything that a peer can do to records and handshakes."""

import os
import socket
import ssl
import subprocess
import time

import pytest
from certificates import Authority, self_signed, serial_of
from harness import DUNLIN, ORACLE, Server, free_port
from peers import TlsServer, files  # noqa: F401
from wire import Session, command, eventually, exactly


@pytest.fixture(scope="module")
def server(files):  # noqa: F811
    with TlsServer(files, "--tls-auth-clients", "optional") as server:
        yield server


def redis_cli(server, *words, client=None, port=None, cacert=None):
    given = ["redis-cli", "-h", "127.0.0.1", "-p", str(port or server.tls_port), "--tls"]
    given += ["--cacert", str(cacert or server.files.authority.cert)]
    if client is not None:
        given += ["--cert", str(client[0]), "--key", str(client[1])]
    return subprocess.run([*given, *words], capture_output=True, text=True, timeout=60)


def info(server, section="tls"):
    with Session(server) as session:
        text = session("INFO", section)
    text = text.decode() if isinstance(text, bytes) else text
    return dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)


def test_redis_cli(server):
    assert redis_cli(server, "PING").stdout == "PONG\n"
    assert redis_cli(server, "PING", client=server.files.client).stdout == "PONG\n"
    assert redis_cli(server, "SET", "key", "value").stdout == "OK\n"
    with Session(server) as session:
        assert session("GET", "key") == b"value", "the plain port has the same data"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_versions(server, version):
    context = server.context(minimum_version=version, maximum_version=version)
    with server.session(context=context) as wrapped:
        wrapped.sendall(b"PING\r\n")
        assert wrapped.recv(64) == b"+PONG\r\n"
        assert wrapped.version() == ("TLSv1.2" if version == ssl.TLSVersion.TLSv1_2 else "TLSv1.3")


def test_tls_port_serves_alone_and_moves(files):  # noqa: F811
    port, given = files.directives("--tls-auth-clients", "no")
    with Server(*given, "--tls-replication", "no") as server:
        server.files, server.tls_port = files, port
        with Session(server) as session:
            assert session("CONFIG", "SET", "port", "0") == "OK"
            assert redis_cli(server, "PING").stdout == "PONG\n"
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", server.port))
            other = free_port()
            assert session("CONFIG", "SET", "tls-port", other) == "OK"
            assert redis_cli(server, "PING", port=other).stdout == "PONG\n"
            assert "PONG" not in redis_cli(server, "PING").stdout
            assert session("CONFIG", "SET", "tls-port", "0") == "OK"
            assert "PONG" not in redis_cli(server, "PING", port=other).stdout


def test_start_with_tls_alone(files):  # noqa: F811
    port, given = files.directives("--tls-auth-clients", "no")
    log = files.folder / "alone.log"
    words = [DUNLIN, "server", "--port", "0", "--save", "", "--dir", str(files.folder), *map(str, given)]
    with open(log, "wb") as out, subprocess.Popen(words, stdout=out, stderr=out) as process:
        try:
            eventually(lambda: "Ready to accept" in log.read_text(), "it serves")
            assert f"Ready to accept connections on 127.0.0.1:{port}" in log.read_text()
            context = ssl.create_default_context(cafile=str(files.authority.cert))
            with socket.create_connection(("127.0.0.1", port), timeout=30) as plain:
                with context.wrap_socket(plain, server_hostname="localhost") as wrapped:
                    wrapped.sendall(b"PING\r\n")
                    assert wrapped.recv(64) == b"+PONG\r\n"
        finally:
            process.terminate()
            assert process.wait() == 0


def test_client_certificates(files):  # noqa: F811
    with TlsServer(files) as server, Session(server) as session:
        assert session("CONFIG", "GET", "tls-auth-clients") == [b"tls-auth-clients", b"yes"]
        assert "PONG" not in redis_cli(server, "PING").stdout
        assert redis_cli(server, "PING", client=files.client).stdout == "PONG\n"
        # One that signs itself is nobody's.
        stranger = files.folder / "stranger"
        stranger.mkdir(exist_ok=True)
        other = Authority(stranger).issue("client")
        assert "PONG" not in redis_cli(server, "PING", client=other).stdout
        assert session("CONFIG", "SET", "tls-auth-clients", "optional") == "OK"
        assert redis_cli(server, "PING").stdout == "PONG\n"
        assert "PONG" not in redis_cli(server, "PING", client=other).stdout, "where it shows one, it must be good"
        assert session("CONFIG", "SET", "tls-auth-clients", "no") == "OK"
        assert redis_cli(server, "PING", client=other).stdout == "PONG\n"
        eventually(lambda: int(info(server)["tls_handshakes_failed"]) >= 3, "failed handshakes are counted")


def test_records_of_one_byte(server):
    """A client may cut its stream as it likes: here each byte is a record of its own."""
    request = command("SET", "bytes", "x" * 300) + command("GET", "bytes")
    with server.session() as wrapped:
        for byte in request:
            wrapped.sendall(bytes([byte]))
        assert exactly(wrapped, 5 + 6 + 302) == b"+OK\r\n$300\r\n" + b"x" * 300 + b"\r\n"


@pytest.mark.parametrize("cut", [1, 5, 100, 16 * 1024 + 22])
def test_records_in_pieces(server, cut):
    """The bytes of records arrive in pieces that cut their heads and their tags."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = server.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    value = b"v" * (3 * 16 * 1024 if cut > 5 else 2000)
    with socket.create_connection(("127.0.0.1", server.tls_port), timeout=30) as plain:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def send():
            data = outgoing.read()
            for at in range(0, len(data), cut):
                plain.sendall(data[at : at + cut])

        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                send()
                incoming.write(plain.recv(1 << 16))
        tls.write(command("SET", "pieces", value) + command("GET", "pieces"))
        send()
        got = b""
        expected = b"+OK\r\n$%d\r\n" % len(value) + value + b"\r\n"
        while len(got) < len(expected):
            try:
                got += tls.read(1 << 16)
            except ssl.SSLWantReadError:
                incoming.write(plain.recv(1 << 16))
        assert got == expected


def test_replies_behind_the_end_of_the_clients_side(server):
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = server.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", server.tls_port), timeout=30) as plain:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                plain.sendall(outgoing.read())
                incoming.write(plain.recv(1 << 16))
        tls.write(command("SET", "end", "e" * 50_000) + command("GET", "end"))
        requests = outgoing.read()
        with pytest.raises(ssl.SSLWantReadError):
            tls.unwrap()
        # Requests and close_notify in one piece, and then the end of TCP's side, too.
        plain.sendall(requests + outgoing.read())
        plain.shutdown(socket.SHUT_WR)
        raw = b""
        while part := plain.recv(1 << 16):
            raw += part
        # Two replies in records, and the server's close_notify.
        assert len(raw) >= 5 + 8 + 50_002


def test_plain_requests_at_the_port_for_tls(server):
    before = int(info(server)["tls_handshakes_failed"])
    with socket.create_connection(("127.0.0.1", server.tls_port), timeout=30) as plain:
        plain.sendall(b"PING\r\n" * 10)
        got = plain.recv(1 << 10)
        # An alert, and nothing of the protocol.
        assert got == b"" or got[:1] == b"\x15"
        assert b"PONG" not in got
    eventually(lambda: int(info(server)["tls_handshakes_failed"]) > before, "a failed handshake is counted")


@pytest.mark.parametrize("name", ["garbage", "long record", "empty records", "alert", "bad tag", "huge handshake"])
def test_hostile_records(server, name):
    """None of it harms anybody but the connection that it comes from."""
    hostile = {
        "garbage": os.urandom(5000),
        "long record": b"\x16\x03\x01\xff\xff" + b"x" * 70_000,
        "empty records": b"\x16\x03\x01\x00\x00" * 1000,
        "alert": b"\x15\x03\x03\x00\x02\x02\x28",
        "huge handshake": b"\x16\x03\x01\x40\x00" + b"\x01\xff\xff\xff" + b"x" * (0x4000 - 4),
    }
    with socket.create_connection(("127.0.0.1", server.tls_port), timeout=30) as plain:
        if name == "bad tag":
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = server.context().wrap_bio(incoming, outgoing, server_hostname="localhost")
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    plain.sendall(outgoing.read())
                    incoming.write(plain.recv(1 << 16))
            tls.write(command("SET", "forged", "yes"))
            record = bytearray(outgoing.read())
            record[-1] ^= 1
            plain.sendall(record)
        else:
            try:
                plain.sendall(hostile[name])
                plain.shutdown(socket.SHUT_WR)
            except OSError:
                # It is closed before all has come.
                pass
        try:
            while plain.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass
    with Session(server) as session:
        assert session("EXISTS", "forged") == 0
        assert session("PING") == "PONG"


def test_renegotiation_is_refused(server):
    """A client of TLS 1.2 that asks for another handshake is not given one, and harms nobody."""
    given = ["openssl", "s_client", "-connect", f"127.0.0.1:{server.tls_port}", "-tls1_2"]
    given += ["-CAfile", str(server.files.authority.cert)]
    with subprocess.Popen(given, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as client:

        def read_to(word):
            while line := client.stdout.readline():
                if word in line:
                    return
            raise AssertionError(f"no {word}")

        client.stdin.write(b"PING\r\n")
        client.stdin.flush()
        read_to(b"+PONG")
        # A line of its own that begins so is an order to the program.
        client.stdin.write(b"R\n")
        client.stdin.flush()
        read_to(b"RENEGOTIATING")
        client.stdin.close()
        assert b"no renegotiation" in client.stdout.read()
    with Session(server) as session:
        assert session("PING") == "PONG"


@pytest.mark.parametrize(
    ("version", "options"),
    [(ssl.TLSVersion.TLSv1_2, 0), (ssl.TLSVersion.TLSv1_2, ssl.OP_NO_TICKET), (ssl.TLSVersion.TLSv1_3, 0)],
    ids=["1.2", "1.2-without-tickets", "1.3"],
)
def test_sessions_are_resumed(server, version, options):
    def connect(session=None):
        with server.session(context=context, session=session) as wrapped:
            wrapped.sendall(b"PING\r\n")
            assert wrapped.recv(64) == b"+PONG\r\n"
            return wrapped.session, wrapped.session_reused

    context = server.context(minimum_version=version, maximum_version=version)
    context.options |= options
    session, is_reused = connect()
    assert not is_reused
    before = int(info(server)["tls_handshakes_resumed"])
    assert connect(session)[1]
    eventually(lambda: int(info(server)["tls_handshakes_resumed"]) == before + 1, "a resumption is counted")
    with Session(server) as plain:
        try:
            assert plain("CONFIG", "SET", "tls-session-caching", "no") == "OK"
            assert not connect(session)[1]
            session, _ = connect()
            assert session is None or not connect(session)[1]
        finally:
            assert plain("CONFIG", "SET", "tls-session-caching", "yes") == "OK"


def test_long_values(server):
    """A value of many records, both ways, while the server holds no second copy of it."""
    value = os.urandom(1 << 20) * 32
    with server.session() as wrapped:
        wrapped.sendall(command("SET", "long", value))
        assert wrapped.recv(64) == b"+OK\r\n"
        wrapped.sendall(command("GET", "long"))
        head = b"$%d\r\n" % len(value)
        assert exactly(wrapped, len(head) + len(value) + 2) == head + value + b"\r\n"
        # A reader that stops: what waits is bounded by the socket and a few records.
        wrapped.sendall(command("GET", "long") * 2)
        with Session(server) as session:
            time.sleep(0.1)
            # Those of the tests before may be about to be closed.
            eventually(lambda: session("CLIENT", "LIST").decode().count("tot-mem") == 2, "the two are clients")
            assert "PONG" == session("PING")
        for _ in range(2):
            assert exactly(wrapped, len(head) + len(value) + 2)[-2:] == b"\r\n"
        wrapped.sendall(command("DEL", "long"))
        assert wrapped.recv(64) == b":1\r\n"


def test_pushes_inside_tls(server):
    """Messages of pub/sub reach an idle subscriber, whoever publishes."""
    with server.session() as wrapped, Session(server) as session:
        wrapped.sendall(command("SUBSCRIBE", "news"))
        assert wrapped.recv(1 << 10).startswith(b"*3\r\n$9\r\nsubscribe")
        for number in range(200):
            assert session("PUBLISH", "news", f"message {number}") == 1
        expected = b"".join(command("message", "news", f"message {number}") for number in range(200))
        assert exactly(wrapped, len(expected)) == expected


def test_pushes_to_a_reader_that_stops(server):
    """What a full socket does not take of pushes leaves when it takes more, though nothing else happens."""
    plain = socket.socket()
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    plain.settimeout(30)
    plain.connect(("127.0.0.1", server.tls_port))
    with server.context().wrap_socket(plain, server_hostname="localhost") as wrapped, Session(server) as session:
        wrapped.sendall(command("SUBSCRIBE", "flood"))
        assert wrapped.recv(1 << 10).startswith(b"*3\r\n$9\r\nsubscribe")
        # In one of the rounds the last message is the first that finds no room.
        for count in range(1, 100):
            text = "x" * 60_000
            for _ in range(count):
                assert session("PUBLISH", "flood", text) == 1
            expected = command("message", "flood", text) * count
            assert exactly(wrapped, len(expected)) == expected


def test_handshakes_that_are_half_open_displace_no_client(files):  # noqa: F811
    """Connections that say nothing displace each other, not clients."""
    with TlsServer(files, "--tls-auth-clients", "no", "--maxclients", "400") as server:
        silent = []
        for _ in range(1000):
            silent.append(socket.create_connection(("127.0.0.1", server.tls_port), timeout=30))
        with Session(server) as session:
            assert session("PING") == "PONG"
        assert server.ask("PING") == b"+PONG\r\n"
        eventually(lambda: int(info(server)["tls_handshakes_given_up"]) > 500, "handshakes are given up")
        for one in silent:
            one.close()


def test_slow_handshakes_end(server):
    """A handshake that takes too long is given up."""
    with socket.create_connection(("127.0.0.1", server.tls_port), timeout=90) as plain:
        plain.sendall(b"\x16\x03\x01")
        assert plain.recv(10) == b""


def test_info(server):
    found = info(server)
    assert found["tls_server_cert_serial"] == serial_of(server.files.cert)
    assert found["tls_ca_cert_serial"] == serial_of(server.files.authority.cert)
    assert 89 * 86400 < int(found["tls_server_cert_expires_in_seconds"]) <= 90 * 86400
    assert found["tls_client_cert_serial"] == "none" and found["tls_client_cert_expires_in_seconds"] == "0"
    with Server() as plain:
        found = info(plain)
        assert found["tls_server_cert_serial"] == "none" and found["tls_server_cert_expires_in_seconds"] == "0"


def test_redis_py(server):
    import redis

    client, key = map(str, server.files.client)
    given = dict(host="localhost", port=server.tls_port, ssl=True, ssl_ca_certs=str(server.files.authority.cert))
    with redis.Redis(**given, ssl_certfile=client, ssl_keyfile=key, protocol=3) as store:
        assert store.set("py", "x" * 70_000) and store.get("py") == b"x" * 70_000
        pipeline = store.pipeline(transaction=False)
        for number in range(1000):
            pipeline.incr("counter")
        assert pipeline.execute()[-1] == 1000


CERTIFICATES = {
    # name: how it is made, whether it is accepted, and else the words of the log
    "good": (lambda ca, place: ca.issue("good"), None),
    "own-authority": (lambda ca, place: self_signed(place, "own"), None),
    "own-authority-for-signing": (
        lambda ca, place: self_signed(place, "signer", "-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        "usage (keyUsage, extendedKeyUsage) does not allow this",
    ),
    "own-authority-for-servers": (
        lambda ca, place: self_signed(place, "serving", "-addext", "extendedKeyUsage=serverAuth"),
        "usage (keyUsage, extendedKeyUsage) does not allow this",
    ),
    "version-1": (lambda ca, place: ca.issue_version_1("one"), None),
    "version-1-expired": (lambda ca, place: ca.issue_version_1("late", is_late=True), "the certificate has expired"),
    "version-1-of-another": (lambda ca, place: Authority(place, "another").issue_version_1("foreign"), "no authority in tls-ca-cert-file"),
    "version-1-forged": (lambda ca, place: Authority(place, "ca").issue_version_1("forged"), "signature is not its authority's"),
    "another-authority": (lambda ca, place: self_signed(place, "alone"), "not itself among the trusted ones"),
    "for-servers": (lambda ca, place: ca.issue("serving", usage="serverAuth"), "usage (keyUsage, extendedKeyUsage) does not allow this"),
    "expired": (lambda ca, place: ca.issue("expired", days=-1), "the certificate has expired"),
    "none": (lambda ca, place: None, "the peer shows no certificate"),
}
TRUSTED = {"own-authority", "own-authority-for-signing", "own-authority-for-servers"}


@pytest.mark.parametrize("program", [ORACLE, DUNLIN], ids=["redis", "own"])
@pytest.mark.parametrize("name", CERTIFICATES)
def test_certificates_that_redis_accepts_are_accepted_and_refusals_have_a_reason(tmp_path, name, program):
    (tmp_path / "made").mkdir()
    authority = Authority(tmp_path)
    server_pair = authority.issue("server")
    make, refusal = CERTIFICATES[name]
    client = make(authority, tmp_path / "made")
    trusted = tmp_path / "trusted.pem"
    trusted.write_text(authority.cert.read_text() + (client[0].read_text() if name in TRUSTED else ""))
    port = free_port()
    given = ["--tls-port", port, "--tls-cert-file", server_pair[0], "--tls-key-file", server_pair[1]]
    with Server(*given, "--tls-ca-cert-file", trusted, program=program) as server:
        for version in [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]:
            context = ssl.create_default_context(cafile=str(authority.cert))
            context.minimum_version = context.maximum_version = version
            if client is not None:
                context.load_cert_chain(*map(str, client))
            answer = b""
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=60) as plain:
                    with context.wrap_socket(plain, server_hostname="localhost") as wrapped:
                        wrapped.sendall(b"PING\r\n")
                        answer = wrapped.recv(64)
            except (ssl.SSLError, ConnectionError):
                pass
            assert (answer == b"+PONG\r\n") == (refusal is None), server.log()
        if refusal is not None and program == DUNLIN:
            eventually(lambda: server.log().count(refusal) == 2, f"a line for each\n{server.log()}")


def test_refused_handshakes_do_not_fill_the_log(files):  # noqa: F811
    with TlsServer(files) as server:
        for _ in range(200):
            with socket.create_connection(("127.0.0.1", server.tls_port), timeout=60) as plain:
                context = server.context(maximum_version=ssl.TLSVersion.TLSv1_2)
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    context.wrap_socket(plain, server_hostname="localhost")
        eventually(lambda: int(info(server)["tls_handshakes_failed"]) >= 200, "all of them failed")
        lines = server.log().count("shows no certificate")
        assert 0 < lines < 200, lines
