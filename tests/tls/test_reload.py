"""Certificates and keys that change while the server serves: all or nothing, and no connection is cut."""

import os
import shutil
import threading

import pytest
from certificates import Authority, openssl, serial_of
from harness import Server
from peers import Files, TlsServer
from wire import Session, command, eventually

REFUSED = (
    "-ERR CONFIG SET failed (possibly related to argument '{}') - Unable to update TLS configuration. Check server logs."
)


@pytest.fixture
def place():
    """The files that a server is started with, others of the same kind, and the server."""
    files = Files()
    files.other = files.authority.issue("other")
    with TlsServer(files, "--tls-auth-clients", "no") as server:
        yield files, server
    files.remove()


def shown(server):
    """The serial number of the certificate that new connections are shown."""
    with server.session() as wrapped:
        return wrapped.getpeercert()["serialNumber"]


def put(source, target):
    """Replaces a file as tools do: by a rename."""
    beside = target.with_suffix(".new")
    shutil.copy(source, beside)
    os.replace(beside, target)


def test_config_set_of_the_same_path_loads_again(place):
    files, server = place
    with Session(server) as session, server.session() as old:
        assert shown(server) == serial_of(files.cert)
        put(files.other[0], files.cert)
        put(files.other[1], files.key)
        assert session("CONFIG", "SET", "tls-cert-file", str(files.cert)) == "OK"
        assert shown(server) == serial_of(files.other[0])
        old.sendall(b"PING\r\n")
        assert old.recv(64) == b"+PONG\r\n", "who was connected stays so"


def test_certificate_and_key_are_changed_together(place):
    files, server = place
    cert, key = files.other
    with Session(server) as session:
        for name, path in [("tls-cert-file", cert), ("tls-key-file", key)]:
            assert session("CONFIG", "SET", name, str(path)) == REFUSED.format(name)
            assert shown(server) == serial_of(files.cert)
            assert session("CONFIG", "GET", name)[1] != str(path).encode()
        assert "is not the key of the certificate" in server.log()
        assert session("CONFIG", "SET", "tls-cert-file", str(cert), "tls-key-file", str(key)) == "OK"
        assert shown(server) == serial_of(cert)


def test_wrong_values_are_refused_and_change_nothing(place):
    files, server = place
    junk = files.folder / "junk.pem"
    junk.write_text("no certificate\n")
    encrypted = files.folder / "encrypted.key"


    openssl("pkey", "-in", files.key, "-aes256", "-passout", "pass:secret", "-out", encrypted)
    with Session(server) as session:
        for name, value, reason in [
            ("tls-cert-file", "/nowhere.pem", "/nowhere.pem: No such file"),
            ("tls-cert-file", junk, "there is no certificate in it"),
            ("tls-key-file", encrypted, "the key is encrypted"),
            ("tls-ca-cert-file", junk, "there is no certificate in it"),
            ("tls-protocols", "TLSv1.1", "TLSv1.1 is broken and not available"),
            ("tls-protocols", "SSLv3", "'SSLv3' is unknown"),
            ("tls-ciphers", "RC4-SHA", "'RC4-SHA' is not available"),
            ("tls-ciphersuites", "TLS_AES_128_CCM_SHA256", "is not available"),
            ("tls-client-cert-file", files.cert, "are set together or not at all"),
        ]:
            assert session("CONFIG", "SET", name, str(value)) == REFUSED.format(name)
            assert reason in server.log(), (name, server.log())
            assert shown(server) == serial_of(files.cert)
        for name, value in [
            ("tls-protocols", "TLSv1.3"),
            ("tls-ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256"),
            ("tls-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"),
            ("tls-prefer-server-ciphers", "yes"),
            ("tls-session-cache-size", "10"),
            ("tls-session-cache-timeout", "60"),
        ]:
            assert session("CONFIG", "SET", name, value) == "OK"
        with server.session() as wrapped:
            assert wrapped.version() == "TLSv1.3" and wrapped.cipher()[0] == "TLS_CHACHA20_POLY1305_SHA256"


def test_files_that_change_are_loaded_by_themselves(place):
    files, server = place
    with Session(server) as session:
        assert session("CONFIG", "SET", "tls-auto-reload-interval", "1") == "OK"
        put(files.other[0], files.cert)
        # The key is not there yet: the old pair serves on.
        eventually(lambda: "so what was loaded before stays" in server.log(), "a line of the log")
        assert "is not the key of the certificate" in server.log()
        assert session("PING") == "PONG" and server.ask("PING") == b"+PONG\r\n"
        put(files.other[1], files.key)
        eventually(lambda: shown(server) == serial_of(files.other[0]), "the other pair")


def test_reloads_under_load_cut_nobody(place):
    """Certificates come and go, some of them without their keys, while clients come, work and stay."""
    files, server = place
    stop, failures, rounds = threading.Event(), [], [0]

    def work():
        try:
            with server.session() as staying:
                while not stop.is_set():
                    staying.sendall(command("INCR", "rounds"))
                    assert staying.recv(64).startswith(b":")
                    assert server.ask("PING") == b"+PONG\r\n"
                    rounds[0] += 1
        except Exception as error:
            failures.append(error)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    mine = files.folder / "mine.crt", files.folder / "mine.key"
    shutil.copy(files.cert, mine[0]), shutil.copy(files.key, mine[1])
    with Session(server) as session:
        for number in range(30):
            cert, key = files.other if number % 2 else mine
            good = session("CONFIG", "SET", "tls-cert-file", str(cert), "tls-key-file", str(key))
            assert good == "OK"
            wrong = mine[1] if number % 2 else files.other[1]
            assert session("CONFIG", "SET", "tls-key-file", str(wrong)).startswith("-ERR CONFIG SET failed")
    try:
        eventually(lambda: rounds[0] > 0 or failures, "a client works", 60)
    finally:
        stop.set()
    for worker in workers:
        worker.join()
    assert not failures, failures


def test_sessions_end_with_the_trust_that_they_began_with(place):
    """A session that a client of a former authority has cannot be resumed under another."""
    files, server = place
    second = files.folder / "second"
    second.mkdir(exist_ok=True)
    other = Authority(second)
    client = files.client
    with Session(server) as session:
        assert session("CONFIG", "SET", "tls-auth-clients", "yes") == "OK"
        context = server.context(client)
        with server.session(context=context) as wrapped:
            wrapped.sendall(b"PING\r\n")
            assert wrapped.recv(64) == b"+PONG\r\n"
            saved = wrapped.session
        assert session("CONFIG", "SET", "tls-ca-cert-file", str(other.cert)) == "OK"
        with pytest.raises(OSError):
            with server.session(context=context, session=saved) as wrapped:
                wrapped.sendall(b"PING\r\n")
                assert wrapped.recv(64) == b""
                raise ConnectionResetError


def test_certificate_that_expires_soon_is_told(place):
    files, server = place
    soon = files.authority.issue("soon", days=5)
    with Session(server) as session:
        assert session("CONFIG", "SET", "tls-cert-file", str(soon[0]), "tls-key-file", str(soon[1])) == "OK"
        assert f"{serial_of(soon[0])} (server) expires in 1" in server.log()


def test_start_with_wrong_files_fails_with_the_reason():
    files = Files()
    other = files.authority.issue("other")
    try:
        for given, reason in [
            (["--tls-key-file", str(other[1])], "is not the key of the certificate"),
            (["--tls-cert-file", "/nowhere.pem"], "/nowhere.pem: No such file"),
            (["--tls-ca-cert-file", ""], "tls-ca-cert-file or tls-ca-cert-dir must be set"),
            (["--tls-protocols", "TLSv1"], "TLSv1 is broken"),
        ]:
            _, directives = files.directives(*given)
            with pytest.raises(AssertionError, match="ended with 1") as failure:
                Server(*directives)
            assert reason in str(failure.value)
        directory = files.folder / "authorities"
        directory.mkdir()
        shutil.copy(files.authority.cert, directory / "one.pem")
        with TlsServer(files, "--tls-ca-cert-file", "", "--tls-ca-cert-dir", str(directory)) as server:
            assert server.ask("PING", client=files.client) == b"+PONG\r\n"
    finally:
        files.remove()
