"""Options of Valkey 9.2 that ask whether a key is there: EXEC with conditions, SISMEMBER XX and ZRANGE XX. Neither oracle has them: the
replies are those that Valkey's description of the version shows."""

import pytest

from harness import DUNLIN, is_redis
from peer import Failure, Peer

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="Valkey has them from 9.2 on")
SYNTAX = "EXECABORT Transaction discarded because of: invalid check condition syntax"


@pytest.fixture
def boss(server):
    with Peer(server) as boss:
        boss.line("FLUSHALL")
        yield boss
        boss.line("RESET")


def queue(peer, *lines):
    for line in ("MULTI", *lines):
        assert not isinstance(peer.line(line), Failure), line


def execute(peer, line):
    """The reply to EXEC behind a SET of `done`, and whether it was done."""
    peer.line("DEL done")
    queue(peer, "SET done 1")
    return peer.line(line), peer.line("EXISTS done") == 1


def test_sets_and_ranges_of_keys_that_are_not_there(server, boss):
    boss.line("SADD s a")
    boss.line("ZADD z 1 a")
    boss.line("SET text 1")
    for protocol in (2, 3):
        with Peer(server, protocol) as peer:
            for line, reply in (
                ("SISMEMBER s a XX", 1),
                ("SISMEMBER s b xx", 0),
                ("SISMEMBER no a XX", -1),
                ("SISMEMBER no a", 0),
                ("ZRANGE z 0 -1 XX", ["a"]),
                ("ZRANGE z 5 9 XX", []),
                ("ZRANGE no 0 -1 XX", None),
                ("ZRANGE no 0 -1", []),
                ("ZRANGE no -inf +inf BYSCORE XX LIMIT 0 5", None),
                ("ZRANGE no 0 -1 XX WITHSCORES", None),
            ):
                assert peer.line(line) == reply, line
    assert boss.line("SISMEMBER text a XX").startswith("WRONGTYPE")
    assert boss.line("ZRANGE text 0 -1 XX").startswith("WRONGTYPE")
    for line in ("SISMEMBER s a NX", "SISMEMBER s a XX XX", "ZRANGEBYSCORE z 0 1 XX", "ZREVRANGE z 0 1 XX", "ZRANGESTORE d z 0 1 XX"):
        assert boss.line(line) == "ERR syntax error", line


def test_exec_runs_if_all_conditions_hold(boss):
    boss.line("MSET a 1 n 007")
    boss.line("SETRANGE long 100000 x")
    for line, holds in (
        ("EXEC", True),
        ("EXEC IFEQ a 1", True),
        ("EXEC ifeq a 2", False),
        ("EXEC IFEQ n 7", False),
        ("EXEC IFEQ no 1", False),
        ("EXEC IFNE a 2", True),
        ("EXEC IFNE a 1", False),
        ("EXEC IFNE no 1", True),
        ("EXEC XX a", True),
        ("EXEC XX no", False),
        ("EXEC NX no", True),
        ("EXEC NX a", False),
        ("EXEC IFEQ a 1 IFNE n 7 XX long NX no", True),
        ("EXEC IFEQ a 1 IFNE n 7 XX long NX a", False),
        ("EXEC IFNE long x", True),
        ("EXEC XX xx", False),
        ("EXEC IFEQ ifeq ifeq", False),
    ):
        assert execute(boss, line) == (["OK"] if holds else None, holds), line
    assert boss.line("EXEC IFEQ a 1") == "ERR EXEC without MULTI"
    boss.line("SET a 1 PX 1")
    while boss.line("EXISTS a"):
        pass
    assert execute(boss, "EXEC XX a") == (None, False)


def test_exec_discards_if_a_condition_cannot_be_looked_at(boss):
    boss.line("RPUSH list 1")
    for line in ("EXEC IFEQ list 1", "EXEC IFNE list 1"):
        reply, done = execute(boss, line)
        assert (reply.startswith("WRONGTYPE"), done) == (True, False)
    assert execute(boss, "EXEC XX list")[1]
    for line in ("EXEC IFEQ", "EXEC IFEQ a", "EXEC XX", "EXEC a", "EXEC XX list more", "EXEC IFDEQ list 1"):
        assert execute(boss, line) == (SYNTAX, False), line
        assert boss.line("EXEC") == "ERR EXEC without MULTI"
    assert execute(boss, "EXEC" + " NX no" * 5) == ("EXECABORT Transaction discarded because of: more than 4 conditions", False)


def test_conditions_and_watched_keys_both_count(server, boss):
    boss.line("SET a 1")
    with Peer(server) as other:
        boss.line("WATCH w")
        queue(boss, "SET done 1")
        other.line("SET w 1")
        assert boss.line("EXEC IFEQ a 1") is None
        boss.line("WATCH w")
        queue(boss, "SET done 1")
        assert boss.line("EXEC IFEQ a 2") is None
        # Neither watches afterwards.
        queue(boss, "SET done 1")
        other.line("SET w 2")
        assert boss.line("EXEC IFEQ a 1") == ["OK"]


def test_exec_sees_what_others_have_done_before(server, boss):
    """Clients that add one to a number, each if it still is what it has read: no addition is lost."""
    boss.line("SET n 0")
    with Peer(server) as one, Peer(server) as other:
        added = 0
        for turn in range(200):
            peers = (one, other) if turn % 2 else (other, one)
            seen = [peer.line("GET n") for peer in peers]
            for peer, number in zip(peers, seen):
                peer.send_all("MULTI", f"SET n {int(number) + 1}", f"EXEC IFEQ n {number}")
            for peer in peers:
                assert [peer.read(), peer.read()] == ["OK", "QUEUED"]
                added += peer.read() == ["OK"]
        assert int(boss.line("GET n")) == added == 200


def test_keys_of_conditions_are_known_and_guarded(server, boss):
    assert boss.line("COMMAND GETKEYS EXEC IFEQ a 1 NX b XX c") == ["a", "b", "c"]
    boss.line("SET secret 1")
    boss.line("ACL SETUSER app on nopass +@all ~done ~ok %W~written resetchannels")
    with Peer(server) as client:
        client.line("AUTH app x")
        for line, allowed in (("EXEC NX ok", True), ("EXEC IFEQ secret 1", False), ("EXEC NX ok XX secret", False), ("EXEC XX written", False)):
            reply, _ = execute(client, line)
            assert isinstance(reply, Failure) != allowed, (line, reply)
            assert allowed or "NOPERM" in reply or "permission" in reply, reply
    boss.line("ACL DELUSER app")
