"""SHUTDOWN of a primary whose replicas are behind: the wait for them, its end by SHUTDOWN ABORT, and what INFO says meanwhile."""

import signal

import pytest

from harness import DUNLIN, ORACLE, is_redis, suspend
from links import Node, has_link, is_online, settle, until
from wire import Session

NOT_SHUT_DOWN = "-ERR Errors trying to SHUTDOWN. Check logs."
# Only an order ends the wait.
PATIENT = ("--shutdown-timeout", 3600)


def left_ms(primary):
    return primary.info("server").get("shutdown_in_milliseconds")


@pytest.fixture
def pair():
    """A primary and its replica, which does not run."""
    with Node(DUNLIN, *PATIENT) as primary, Node(DUNLIN) as replica:
        replica.follow(primary.port)
        settle(primary, replica)
        is_online(primary)
        suspend(replica.process)
        primary.client.set("k", 1)
        try:
            yield primary, replica
        finally:
            replica.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("program", [DUNLIN, ORACLE], ids=["dunlin", "redis"])
def test_shutdown_abort_lets_writes_go_on(program):
    with Node(program, *PATIENT) as primary, Node(program) as replica:
        replica.follow(primary.port)
        settle(primary, replica)
        is_online(primary)
        suspend(replica.process)
        primary.client.set("k", 1)
        with Session(primary) as first, Session(primary) as second, Session(primary) as writer:
            first.send("SHUTDOWN", "NOSAVE")
            assert 3_000_000 < until(lambda: left_ms(primary), "the wait begins") <= 3_600_000
            second.send("SHUTDOWN")
            until(lambda: primary.info("clients")["blocked_clients"] == 2, "the second one joins it")
            waiting = [client for client in primary.client.client_list() if client["cmd"] == "shutdown"]
            assert [client["flags"] for client in waiting] == ["b", "b"]
            # No client but SHUTDOWN ABORT ends the pause of writes.
            assert primary.call("CLIENT", "UNPAUSE") == b"OK"
            writer.send("SET", "k", 2)
            until(lambda: primary.info("clients")["blocked_clients"] == 3, "the writer waits")
            assert primary.client.get("k") == b"1", "reads go on"
            assert primary.call("SHUTDOWN", "ABORT") == b"OK"
            assert first.read() == second.read() == NOT_SHUT_DOWN
            assert writer.read() == "OK"
            if not is_redis(program):
                # Redis 7.0 stops with an assertion here.
                assert first("SET", "k", 3) == second("SET", "k", 3) == "OK"
        primary.client.set("k", 3)
        assert left_ms(primary) is None
        with Session(primary) as client:
            assert client("SHUTDOWN", "ABORT") == "-ERR No shutdown in progress."
        assert "Shutdown manually aborted." in primary.log()
        replica.process.send_signal(signal.SIGCONT)
        settle(primary, replica)
        assert replica.client.get("k") == b"3"


def test_shutdown_ends_once_the_replica_has_all(pair):
    primary, replica = pair
    with Session(primary) as client:
        client.send("SHUTDOWN", "NOSAVE")
        until(lambda: left_ms(primary), "the wait begins")
        replica.process.send_signal(signal.SIGCONT)
        assert client.socket.recv(64) == b"", "no reply"
    assert primary.process.wait(60) == 0
    assert replica.client.get("k") == b"1"


def test_client_unblock_and_a_cut_connection_leave_a_shutdown_alone(pair):
    primary, replica = pair
    with Session(primary) as client:
        client.send("SHUTDOWN", "NOSAVE")
        until(lambda: left_ms(primary), "the wait begins")
        waiting = next(client for client in primary.client.client_list() if client["cmd"] == "shutdown")
        # Redis stops with an assertion here.
        assert primary.call("CLIENT", "UNBLOCK", waiting["id"]) == 0
    replica.process.send_signal(signal.SIGCONT)
    assert primary.process.wait(60) == 0


def test_shutdown_timeout_ends_the_wait(pair):
    primary, _ = pair
    primary.client.config_set("shutdown-timeout", 1)
    with Session(primary) as client:
        client.send("SHUTDOWN")
        assert client.socket.recv(64) == b""
    assert primary.process.wait(60) == 0
    assert "Waiting for replicas before shutting down." in primary.log()


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis goes on to wait for replicas")
def test_shutdown_now_ends_a_wait(pair):
    primary, _ = pair
    with Session(primary) as client, Session(primary) as other:
        client.send("SHUTDOWN", "NOSAVE")
        until(lambda: left_ms(primary), "the wait begins")
        other.send("SHUTDOWN", "NOSAVE", "NOW")
        assert client.socket.recv(64) == other.socket.recv(64) == b""
    assert primary.process.wait(60) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_shutdown_abort_ends_what_a_signal_has_begun(pair, number):
    primary, replica = pair
    for times in (1, 2):
        primary.process.send_signal(number)
        until(lambda: left_ms(primary), "the wait begins")
        assert primary.call("SHUTDOWN", "ABORT") == b"OK"
        assert primary.client.set("k", 2)
        # The next signal is a first one again.
        until(lambda: primary.log().count("is called off") == times, "the thread of the signal knows")
    primary.process.send_signal(number)
    until(lambda: left_ms(primary), "the wait begins")
    replica.process.send_signal(signal.SIGCONT)
    assert primary.process.wait(60) == 0
    assert replica.client.get("k") == b"2"


@pytest.mark.skipif(is_redis(DUNLIN), reason="a folder does not stop Redis from renaming its file")
def test_writes_go_on_after_a_shutdown_that_could_not_save(pair):
    primary, replica = pair
    blocker = primary.folder / f"temp-{primary.process.pid}.rdb"
    blocker.mkdir()
    with Session(primary) as client, Session(primary) as writer:
        client.send("SHUTDOWN", "SAVE")
        until(lambda: left_ms(primary), "the wait begins")
        writer.send("SET", "k", 2)
        until(lambda: primary.info("clients")["blocked_clients"] == 2, "the writer waits")
        replica.process.send_signal(signal.SIGCONT)
        assert client.read() == NOT_SHUT_DOWN
        assert writer.read() == "OK"
    blocker.rmdir()
    settle(primary, replica)


@pytest.mark.parametrize("words", [("NOW",), ("NOSAVE", "NOW"), ("SAVE", "NOW")], ids=" ".join)
def test_shutdown_now_adds_nothing_to_the_stream(words):
    with Node(DUNLIN, "--repl-ping-replica-period", 36000) as primary, Node(DUNLIN) as replica:
        replica.follow(primary.port)
        settle(primary, replica)
        primary.client.set("k", 1)
        settle(primary, replica)
        before = primary.info()["master_repl_offset"]
        with Session(primary) as client:
            client.send("SHUTDOWN", *words)
            assert client.socket.recv(64) == b""
        primary.process.wait(60)
        until(lambda: not has_link(replica), "the replica knows")
        assert replica.info()["slave_repl_offset"] == before


@pytest.mark.skipif(is_redis(DUNLIN), reason="a field of Dunlin's")
def test_master_link_error_says_why_the_primary_refuses():
    with Node(DUNLIN) as primary, Node(DUNLIN, "--masterauth", "wrong") as replica:
        primary.client.config_set("requirepass", "right")
        primary.client.auth("right")
        error = lambda: replica.info().get("master_link_error")
        assert error() is None
        replica.follow(primary.port)
        until(lambda: "masterauth" in (error() or "") and "WRONGPASS" in error(), "the refusal")
        replica.client.config_set("masterauth", "")
        until(lambda: "NOAUTH" in (error() or ""), "the primary asks for a password")
        replica.client.config_set("masterauth", "right")
        until(lambda: has_link(replica), "the link")
        assert error() is None
        assert replica.call("REPLICAOF", "NO", "ONE") == b"OK"
        assert error() is None
        replica.follow(1)
        until(lambda: "refused" in (error() or ""), "nothing listens there")
