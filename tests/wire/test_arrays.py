"""Arrays: what clients see of them in both protocols, hostile input, files, logs, replicas, events and memory."""

import random
import re

import pytest
from harness import DUNLIN, Server, is_redis
from peer import Failure, Peer
from wire import eventually

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="redis-server 7.0 has no arrays")
LAST = 2**64 - 2


def digest(peer):
    return peer.line("DEBUG DIGEST")


def info(peer, field):
    return int(re.search(rf"^{field}:(\d+)", peer.ask("INFO", "everything"), re.M).group(1))


def fill(peer, key, count, apart=1):
    """Values of all kinds at `count` indexes."""
    for start in range(0, count, 500):
        words = []
        for number in range(start, min(start + 500, count)):
            value = [number, f"{number}.25", f"text {number}", "x" * (number % 200)][number % 4]
            words += [number * apart, value]
        peer.ask("ARMSET", key, *words)


@pytest.mark.parametrize("protocol", [2, 3])
def test_replies_in_both_protocols(server, protocol):
    with Peer(server, protocol) as peer:
        peer.line("FLUSHALL")
        assert peer.line("ARMSET a 0 x 1 2.50 5 7") == 3
        assert peer.line("ARGETRANGE a 0 2") == ["x", "2.50", None]
        assert peer.line("ARSCAN a 9 0") == [[5, "7"], [1, "2.50"], [0, "x"]]
        assert peer.line("ARGREP a - + RE ^[0-9.]+$ WITHVALUES") == [[1, "2.50"], [5, "7"]]
        assert peer.line("AROP a 0 9 SUM") == "9.5"
        assert peer.line("AROP a 0 0 SUM") is None
        facts = peer.line("ARINFO a FULL")
        facts = facts if protocol == 3 else dict(zip(facts[::2], facts[1::2]))
        assert (facts["count"], facts["len"], facts["dense-slices"]) == (3, 6, 1)
        assert float(facts["avg-dense-size"]) == 3.0
        assert peer.line("OBJECT ENCODING a") == "sliced-array"
        assert peer.line("TYPE a") == "array"
        assert peer.line("SCAN 0 TYPE array") == ["0", ["a"]]


def test_hostile_words(server):
    with Peer(server) as peer:
        peer.line("FLUSHALL")
        assert peer.ask("ARSET", "a", LAST, "end") == 1
        for call, error in [
            (["ARSET", "a", LAST, "x", "y"], "ERR array index overflow"),
            (["ARSET", "a", LAST + 1, "x"], "ERR invalid array index"),
            (["ARSET", "a", "-0", "x"], "ERR invalid array index"),
            (["ARSET", "a", "", "x"], "ERR invalid array index"),
            (["ARGETRANGE", "a", 0, LAST], "ERR range exceeds maximum of 1000000 items"),
            (["ARGETRANGE", "a", 0, 1_000_000], "ERR range exceeds maximum of 1000000 items"),
            (["ARLASTITEMS", "a", 2**63 - 1], "ERR count exceeds maximum of 1000000 items"),
            (["ARRING", "a", -1, "x"], "ERR size must be positive"),
            (["ARGREP", "a", "-", "+", "RE", "((((a{1,200}){1,200}){1,200}){1,200})"], "ERR invalid regular expression: Out of memory"),
            (["ARGREP", "a", "-", "+", "RE", b"(\\1"], "ERR regular expression backreferences are not supported"),
            (["ARGREP", "a", "-", "+", "GLOB", "?" * 2000 + "*" + "[a-z]" * 1500 + "*"], "ERR pattern is too complex"),
        ]:
            reply = peer.ask(*call)
            assert isinstance(reply, Failure) and reply.startswith(error), (call, reply)
        assert peer.ask("ARSCAN", "a", 0, LAST) == [[LAST, "end"]]
        # An expression that takes exponential time with backtracking.
        assert peer.ask("ARSET", "a", 0, "a" * 50_000) == 1
        assert peer.ask("ARGREP", "a", "-", "+", "RE", "^(a|a|aa)+(a|aa)+$b") == []
        # The ring of the largest size, behind the last index.
        assert peer.ask("ARSEEK", "a", LAST + 1) == 1
        assert peer.ask("ARRING", "a", 2**63 - 1, "x") in (0, 1)
        assert peer.ask("ARDELRANGE", "a", 0, LAST) >= 1
        assert peer.ask("EXISTS", "a") == 0


def test_restore_refuses_an_array_payload_that_lies(server):
    with Peer(server) as peer:
        peer.line("FLUSHALL")
        peer.line("ARSET a 3 x y 12 2.5")
        payload = peer.line("DUMP a").encode("latin1")
        assert peer.ask("RESTORE", "b", 0, payload) == "OK"
        assert peer.line("ARGETRANGE b 3 6") == ["x", "y", "12", "2.5"]
        rng = random.Random(7)
        for _ in range(300):
            # A checksum of zeros counts as left out.
            broken = bytearray(payload[:-8] + bytes(8))
            for _ in range(rng.randint(1, 3)):
                broken[rng.randrange(len(broken) - 10)] = rng.randrange(256)
            reply = peer.ask("RESTORE", "c", 0, bytes(broken), "REPLACE")
            if not isinstance(reply, Failure):
                peer.line("DUMP c")
        assert peer.line("PING") == "PONG"


@pytest.mark.parametrize("rdb_preamble", ["yes", "no"])
def test_arrays_survive_a_kill_and_a_rewrite(rdb_preamble):
    directives = ["--appendonly", "yes", "--appendfsync", "always", "--aof-use-rdb-preamble", rdb_preamble, "--enable-debug-command", "yes"]
    server = Server(*directives)
    try:
        with Peer(server) as peer:
            fill(peer, "dense", 3000)
            fill(peer, "sparse", 1000, 10**15)
            peer.line("ARINSERT log a b c 1.0 -0.0 1e5 007")
            peer.line("ARSEEK sparse 18446744073709551615")
            assert peer.line("BGREWRITEAOF") == "Background append only file rewriting started"
            eventually(lambda: info(peer, "aof_rewrite_in_progress") == 0 and info(peer, "aof_rewrites") == 1, "it is rewritten")
            peer.line("ARDELRANGE dense 100 2000")
            peer.line("ARINSERT log d")
            for number in range(20):
                peer.line(f"ARRING ring 8 {number}")
            peer.line("ARRING ring 12 more")
            before = digest(peer)
        server.process.kill()
        server.process.wait()
        with Server(*directives, files=server.folder) as again, Peer(again) as peer:
            assert digest(peer) == before
            assert peer.line("ARLASTITEMS log 8") == ["a", "b", "c", "1.0", "-0.0", "1e5", "007", "d"]
            assert peer.line("ARNEXT sparse") is None
            assert peer.line("ARNEXT ring") == 9
            assert peer.line("DEBUG RELOAD") == "OK"
            assert digest(peer) == before
    finally:
        server.kill()


def test_snapshot_has_the_array_of_its_instant():
    """A large array that changes while it is saved, by pages and as a whole."""
    with Server("--enable-debug-command", "yes", "--save", "") as server, Peer(server) as peer, Peer(server) as other:
        fill(peer, "a", 60_000)
        before = digest(peer)
        assert peer.line("BGSAVE") == "Background saving started"
        for number in range(300):
            other.ask("ARSET", "a", number * 199, "changed")
        other.line("ARDELRANGE a 1000 50000")
        other.line("RENAME a b")
        eventually(lambda: info(peer, "rdb_bgsave_in_progress") == 0, "it is saved")
        assert digest(peer) != before
        assert peer.line("DEBUG RELOAD NOSAVE") == "OK"
        assert digest(peer) == before


def test_long_commands_answer_as_short_ones(server):
    """Commands that are offloaded, and the same in a transaction, where they are not."""
    with Peer(server) as peer:
        peer.line("FLUSHALL")
        fill(peer, "a", 40_000)
        calls = [
            "ARGREP a - + MATCH 99 GLOB *x* RE ^[0-9]+$ NOCASE",
            "ARSCAN a 39999 5",
            "AROP a 0 39999 SUM",
            "AROP a 0 39999 MATCH 8",
            "ARGETRANGE a 0 39999",
            "ARDELRANGE a 10 35000",
            "ARCOUNT a",
            "ARRING a 3000 x y z",
            "ARSCAN a 0 50000",
        ]
        peer.line("COPY a b")
        for call in calls:
            alone = peer.line(call)
            peer.line("MULTI")
            assert peer.line(call.replace(" a ", " b ") if call.count(" a ") else call.replace(" a", " b")) == "QUEUED"
            assert peer.line("EXEC") == [alone], call


def test_events(server):
    with Peer(server) as peer, Peer(server, 3) as listener:
        peer.line("FLUSHALL")
        peer.line("CONFIG SET notify-keyspace-events Ea")
        try:
            listener.line("PSUBSCRIBE __keyevent@0__:*")
            for line in ["ARSET a 0 x", "ARMSET a 1 y", "ARINSERT a z", "ARRING a 3 z", "ARSEEK a 2", "ARDEL a 0 1", "ARDEL a 7", "ARDELRANGE a 0 9"]:
                peer.line(line)
            names = [listener.read()[2].split(":")[1] for _ in range(7)]
            assert names == ["arset", "armset", "arinsert", "arring", "arseek", "ardel", "ardelrange"]
        finally:
            peer.line("CONFIG SET notify-keyspace-events ''")


def test_memory_is_counted_and_given_back(server):
    with Peer(server) as peer:
        peer.line("FLUSHALL")
        eventually(lambda: info(peer, "lazyfree_pending_objects") == 0, "all is freed")
        used = info(peer, "used_memory")
        fill(peer, "a", 100_000)
        own = peer.line("MEMORY USAGE a")
        grown = info(peer, "used_memory") - used
        assert own > 100_000 * 30
        assert abs(grown - own) < own // 10 + 300_000
        peer.line("ARDELRANGE a 10 99999")
        assert peer.line("MEMORY USAGE a") < 10_000
        eventually(lambda: info(peer, "used_memory") - used < 400_000, "it is given back")


def test_acl_has_a_category(server):
    with Peer(server) as peer, Peer(server) as user:
        assert set(peer.line("ACL CAT array")) >= {"arset", "arget", "argrep", "arinfo"}
        assert len(peer.line("ACL CAT array")) == 18
        peer.line("ACL SETUSER arrays on nopass ~* +@array -@write")
        user.line("AUTH arrays any")
        assert user.line("ARGET none 0") is None
        assert user.line("ARSET a 0 x").startswith("NOPERM")
        assert user.line("GET a").startswith("NOPERM")
        peer.line("ACL DELUSER arrays")
