"""JSON: the server beside RedisJSON, what clients see of documents in both protocols, logs, replicas, snapshots, events, memory."""

import json
import random
import re
import sys

import pytest

from captures import HAS_MODULES, WITH_MODULES
from harness import DUNLIN, REDIS_VERSIONS, ROOT, Server, is_redis
from links import Node, settle
from peer import Failure, Peer, Push
from wire import eventually

sys.path.append(str(ROOT / "tests" / "json"))
import differential

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="redis-server 7.0 has no JSON")
DOCUMENT = '{"a":1,"b":"foo","c":[1,2,3],"d":{"x":1},"e":true,"f":1.5,"n":null,"g":[]}'


def digest(peer):
    return peer.line("DEBUG DIGEST")


def info(peer, field):
    return int(re.search(rf"^{field}:(\d+)", peer.ask("INFO", "everything"), re.M).group(1))


def change(peer, rng, key, commands):
    """Random changes of a document under a key, some of which are refused."""
    peer.ask("JSON.SET", key, "$", json.dumps(differential.value(rng)))
    for _ in range(commands):
        words = differential.command(rng)
        peer.ask(words[0], key, *words[1:])


def large(records):
    """A document of many records, as text."""
    return json.dumps([{"id": number, "name": f"record {number}", "tags": ["a", "b"], "price": number / 4} for number in range(records)])


@pytest.mark.skipif(not HAS_MODULES, reason="the package with RedisJSON could not be had (scripts/get-redis.sh)")
@pytest.mark.parametrize("seed", [3, 11])
def test_random_commands_answer_as_those_of_redisjson(server, seed):
    ours, theirs, asked = differential.Keyed(("127.0.0.1", server.port)), None, 0
    module = WITH_MODULES[:2]
    rounds = iter(range(250))
    stack = None
    try:
        for number in rounds:
            if theirs is None:
                stack = Server(*module, program=REDIS_VERSIONS["7.4"])
                theirs = differential.Server(("127.0.0.1", stack.port))
            try:
                commands, difference = differential.play(seed, number, theirs, ours)
            except ConnectionError:
                # Some commands end RedisJSON 2.8.
                stack.kill()
                theirs = None
                continue
            asked += commands
            assert difference is None, difference
    finally:
        if stack:
            stack.kill()
    assert asked > 500


def test_values_in_the_types_of_resp3(server):
    with Peer(server, 3) as peer:
        peer.line("FLUSHALL")
        peer.ask("JSON.SET", "k", "$", DOCUMENT)
        assert peer.line("JSON.GET k FORMAT EXPAND $") == [[json.loads(DOCUMENT)]]
        assert peer.line("JSON.GET k FORMAT EXPAND1 $.*")[0][:4] == [1, "foo", "[1,2,3]", '{"x":1}']
        assert peer.line("JSON.NUMINCRBY k $.* 1") == [2, None, None, None, None, 2.5, None, None]
        assert peer.line("JSON.TYPE k $.a") == [["integer"]]
        assert peer.line("JSON.TYPE missing") == [None]
        assert peer.line("JSON.RESP k d") == ["{", "x", 1]
        assert peer.line("JSON.ARRPOP k FORMAT EXPAND c") == 3


def test_documents_are_keys_like_any_other(server):
    with Peer(server) as peer, Peer(server) as other, Peer(server, 3) as tracker:
        peer.line("FLUSHALL")
        peer.ask("JSON.SET", "k", "$", DOCUMENT)
        assert peer.line("TYPE k") == "ReJSON-RL"
        assert peer.line("OBJECT ENCODING k") == "raw"
        assert peer.line("SCAN 0 TYPE rejson-rl") == ["0", ["k"]]
        assert peer.line("COMMAND GETKEYS JSON.MGET k l $") == ["k", "l"]
        assert peer.ask("COMMAND", "GETKEYS", "JSON.MSET", "k", "$", "1", "l", "$", "2") == ["k", "l"]
        assert peer.line("COMMAND GETKEYS JSON.DEBUG MEMORY k") == ["k"]
        assert "json.set" in peer.line("ACL CAT json")
        assert isinstance(peer.line("LPUSH k x"), Failure) and isinstance(peer.line("SORT k"), Failure)
        # Transactions, scripts, watched keys.
        assert peer.line("WATCH k") == "OK"
        other.line("JSON.NUMINCRBY k $.a 1")
        peer.line("MULTI")
        peer.line("JSON.GET k a")
        assert peer.line("EXEC") is None
        peer.line("WATCH k")
        # Nothing has changed.
        other.line("JSON.DEL k $.zz")
        peer.line("MULTI")
        peer.line("JSON.NUMINCRBY k a 1")
        peer.line("JSON.GET k $.a")
        assert peer.line("EXEC") == ["3", "[3]"]
        script = "return {redis.call('JSON.NUMINCRBY', KEYS[1], '$.a', 4), redis.call('JSON.GET', KEYS[1], 'a')}"
        assert peer.ask("EVAL", script, 1, "k") == ["[7]", "7"]
        # Clients that cache it.
        tracker.line("CLIENT TRACKING ON")
        tracker.line("JSON.GET k $.a")
        peer.line("JSON.TOGGLE k e")
        assert tracker.read() == Push(["invalidate", ["k"]])


def test_events(server):
    """As RedisJSON tells them, though clients of Redis see `d` for modules."""
    with Peer(server) as peer, Peer(server, 3) as listener:
        peer.line("FLUSHALL")
        assert peer.line("CONFIG SET notify-keyspace-events Ed") == "OK"
        try:
            listener.line("PSUBSCRIBE __keyevent@0__:*")
            peer.ask("JSON.SET", "k", "$", DOCUMENT)
            lines = """JSON.SET k $.a 2 NX|JSON.NUMINCRBY k $.b 1|JSON.NUMINCRBY k $.a 1|JSON.NUMMULTBY k a 1|JSON.NUMPOWBY k a 1
                JSON.STRAPPEND k $.b "x"|JSON.TOGGLE k e|JSON.ARRAPPEND k $.c 1|JSON.ARRAPPEND k $.a 1|JSON.ARRINSERT k c 0 1
                JSON.ARRPOP k c|JSON.ARRPOP k $.a|JSON.ARRTRIM k c 0 9|JSON.CLEAR k c|JSON.CLEAR k $.c|JSON.MERGE k $.d 1
                JSON.MSET k $.a 1 l $ 1|JSON.DEL k $.zz|JSON.DEL k $.a|JSON.FORGET k"""
            for line in re.split(r"\||\n", lines):
                peer.line(line.strip())
            expected = "set numincrby nummultby numpowby strappend toggle arrappend arrinsert arrpop arrtrim clear merge mset mset del del"
            assert [listener.read()[2].split(".")[1] for _ in expected.split()] == expected.split()
            assert listener.is_silent()
        finally:
            peer.line("CONFIG SET notify-keyspace-events ''")


def test_hostile_words(server):
    with Peer(server) as peer:
        peer.line("FLUSHALL")
        peer.ask("JSON.SET", "k", "$", DOCUMENT)
        before = peer.ask("JSON.GET", "k")
        for words in [
            ("JSON.SET", "k", "$.a", "[" * 200 + "]" * 200),
            ("JSON.SET", "k", "$.a", b'"\xff"'),
            ("JSON.SET", "k", "$.a", "1e999"),
            ("JSON.SET", "k", "$.a", "NaN"),
            ("JSON.SET", "k", "$.a", "1 2"),
            ("JSON.SET", "k", "$." + "a" * 100_000, "1"),
            ("JSON.SET", "k", "$" + "[?(@.a)]" * 5_000, "1"),
            ("JSON.GET", "k", "$.." + "[?" * 40 + "@" + "]" * 40),
            ("JSON.SET", "k", b"$.\x00\xff", "1"),
            ("JSON.ARRINSERT", "k", "$.c", str(2**63), "1"),
            ("JSON.NUMINCRBY", "k", "$.a", str(2**64 - 1)),
            ("JSON.NUMMULTBY", "k", "$.f", "1e308"),
            ("JSON.NUMPOWBY", "k", "$.a", "1e400"),
        ]:
            peer.ask(*words)
            assert peer.line("PING") == "PONG"
        peer.ask("JSON.SET", "k", "$.a", "1")
        assert json.loads(peer.ask("JSON.GET", "k"))["c"] == [1, 2, 3], before
        # A filter that would take hours.
        peer.ask("JSON.SET", "l", "$", json.dumps([[number] * 30 for number in range(3_000)]))
        reply = peer.ask("JSON.GET", "l", "$..[?(@..[?(@==$..*)]==1)]")
        assert isinstance(reply, (str, Failure))


@pytest.mark.parametrize("rdb_preamble", ["yes", "no"])
def test_documents_survive_a_kill_and_a_rewrite(rdb_preamble):
    directives = ["--appendonly", "yes", "--appendfsync", "always", "--aof-use-rdb-preamble", rdb_preamble, "--enable-debug-command", "yes"]
    rng = random.Random(7)
    server = Server(*directives)
    try:
        with Peer(server) as peer:
            for number in range(40):
                change(peer, rng, f"before {number}", 12)
            peer.ask("JSON.SET", "large", "$", large(20_000))
            peer.ask("JSON.SET", "typed", "$", "[0.1,0.2]", "FPHA", "BF16")
            assert peer.line("BGREWRITEAOF") == "Background append only file rewriting started"
            eventually(lambda: info(peer, "aof_rewrite_in_progress") == 0 and info(peer, "aof_rewrites") == 1, "it is rewritten")
            for number in range(40):
                change(peer, rng, f"behind {number}", 12)
            peer.line("JSON.NUMINCRBY large $[100:200].price 0.5")
            peer.line("JSON.DEL large $[7].name")
            before, texts = digest(peer), [peer.ask("JSON.GET", key) for key in ("large", "typed", "behind 3")]
        server.process.kill()
        server.process.wait()
        with Server(*directives, files=server.folder) as again, Peer(again) as peer:
            assert [peer.ask("JSON.GET", key) for key in ("large", "typed", "behind 3")] == texts
            assert digest(peer) == before
            assert peer.line("DEBUG RELOAD") == "OK"
            assert digest(peer) == before
    finally:
        server.kill()


def test_replicas_have_the_same_documents(tmp_path):
    rng = random.Random(19)
    with Node(DUNLIN, "--dir", tmp_path) as primary, Node(DUNLIN) as replica, Peer(primary) as peer:
        for number in range(20):
            change(peer, rng, f"before {number}", 12)
        peer.ask("JSON.SET", "large", "$", large(10_000))
        replica.follow(primary.port)
        for number in range(60):
            change(peer, rng, f"behind {number}", 12)
            peer.ask("JSON.MERGE", "large", f"$[{number * 100}]", json.dumps({"name": None, "more": [number]}))
        settle(primary, replica)
        # A small edit of a large document is a small record.
        before = primary.info()["master_repl_offset"]
        peer.line("JSON.SET large $[5].price 7")
        peer.line("JSON.NUMINCRBY large $[6].price 7")
        assert primary.info()["master_repl_offset"] - before < 500
        settle(primary, replica)


def test_documents_move_to_another_server(server):
    with Server() as target, Peer(server) as peer, Peer(target) as other:
        peer.line("FLUSHALL")
        peer.ask("JSON.SET", "small", "$", DOCUMENT)
        peer.ask("JSON.SET", "large", "$", large(20_000))
        texts = [peer.ask("JSON.GET", key) for key in ("small", "large")]
        assert peer.ask("MIGRATE", "127.0.0.1", target.port, "", 0, 30_000, "KEYS", "small", "large") == "OK"
        assert [other.ask("JSON.GET", key) for key in ("small", "large")] == texts
        assert peer.line("EXISTS small large") == 0
        assert other.line("JSON.NUMINCRBY large $[7].price 1") == "[2.75]"


def test_snapshot_has_the_document_of_its_instant():
    with Server("--enable-debug-command", "yes", "--save", "") as server, Peer(server) as peer, Peer(server) as other:
        peer.ask("JSON.SET", "k", "$", large(60_000))
        before = digest(peer)
        assert peer.line("BGSAVE") == "Background saving started"
        for number in range(300):
            other.line(f"JSON.NUMINCRBY k $[{number * 199}].price 1")
        other.line("JSON.ARRTRIM k $ 100 50000")
        other.line("RENAME k l")
        eventually(lambda: info(peer, "rdb_bgsave_in_progress") == 0, "it is saved")
        assert digest(peer) != before
        assert peer.line("DEBUG RELOAD NOSAVE") == "OK"
        assert digest(peer) == before


def test_long_commands_answer_as_short_ones(server):
    """Commands that are offloaded, and the same in a transaction, where they are not."""
    with Peer(server) as peer:
        peer.line("FLUSHALL")
        peer.ask("JSON.SET", "a", "$", large(30_000))
        peer.line("COPY a b")
        for call in [
            "JSON.GET a",
            "JSON.GET a $",
            "JSON.GET a INDENT _ $[5:20]",
            "JSON.GET a $..id",
            "JSON.GET a $[?(@.price>7000)].name .[3]",
            "JSON.TYPE a $[*]",
            "JSON.NUMINCRBY a $..price 1.25",
            'JSON.STRAPPEND a $[*].name "!"',
            "JSON.ARRAPPEND a $..tags 1 2 3",
            "JSON.DEL a $[*].tags[0]",
            "JSON.CLEAR a $[10:20000].price",
            "JSON.ARRTRIM a $ 10 20000",
            "JSON.ARRINDEX a $ 7",
            "JSON.MGET a $",
            "JSON.RESP a",
        ]:
            alone = peer.line(call)
            assert not isinstance(alone, Failure), (call, alone)
            peer.line("MULTI")
            assert peer.line(call.replace(" a", " b", 1)) == "QUEUED"
            assert peer.line("EXEC") == [alone], call
        assert peer.line("JSON.GET a") == peer.line("JSON.GET b")


def test_memory_is_counted_and_given_back(server):
    with Peer(server) as peer:
        peer.line("FLUSHALL")
        eventually(lambda: info(peer, "lazyfree_pending_objects") == 0, "all is freed")
        used, text = info(peer, "used_memory"), large(50_000)
        peer.ask("JSON.SET", "k", "$", text)
        own = peer.line("MEMORY USAGE k")
        minified = len(json.dumps(json.loads(text), separators=(",", ":")))
        assert own < minified * 1.1
        assert abs(info(peer, "used_memory") - used - own) < own // 10 + 300_000
        peer.line("JSON.ARRTRIM k $ 0 10")
        assert peer.line("MEMORY USAGE k") < 10_000
        eventually(lambda: info(peer, "used_memory") - used < 600_000, "it is given back")
        # A small document stands in its key's cell.
        peer.ask("JSON.SET", "small", "$", DOCUMENT)
        assert peer.line("MEMORY USAGE small") < len(DOCUMENT) + 40
