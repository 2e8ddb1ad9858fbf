"""`rdb_changes_since_last_save`: each writing command counts as many changes as it does in Redis; and the objects that
were freed in the background."""

import os
import re
import shlex
import shutil
from fnmatch import fnmatchcase

import pytest

import options
from harness import ORACLE, Server
from peer import Failure, Peer
from wire import eventually

NEWER_ORACLE = os.environ.get("DUNLIN_VALKEY") or os.environ.get("DUNLIN_NEWER_ORACLE", "valkey-server")
DEBUG = ["--enable-debug-command", "yes"]

# One scenario for each family: every writing command with one element and with several, and where there is nothing to do.
SCENARIOS = {
    "strings": """SET a 1|SET a 2 NX|SET a 2 XX GET|SETNX a 3|SETNX b 3|MSET a 1 b 2 c 3|MSETNX a 1 d 2|MSETNX e 1 d 2
        GETSET a 5|SETEX a 100 6|PSETEX a 100000 6|INCR i|INCRBY i 0|INCRBY i 2|DECR i|DECRBY i 3|INCRBYFLOAT i 1.5|APPEND a x
        APPEND a ''|SETRANGE a 3 xyz|SETRANGE a 0 ''|GETEX a|GETEX a EX 100|GETEX a PERSIST|GETEX a PERSIST|GETDEL a|GETDEL a
        SET a x PXAT 1|SET a x EX 100 KEEPTTL|SUBSTR a 0 1""",
    "bits": """SETBIT a 100 1|SETBIT a 100 1|BITFIELD a SET u8 0 1 SET u8 8 2 INCRBY u8 16 3|BITFIELD a SET u8 0 1 GET u8 0
        BITFIELD a INCRBY u8 0 0|BITFIELD a OVERFLOW FAIL INCRBY u8 0 255|BITFIELD b GET u8 0|BITOP AND c a missing
        BITOP AND c no nope|BITOP AND c no nope""",
    "lists": """RPUSH a 1 2 3 4 5|LPUSH a 6 7|LPUSHX a 1|RPUSHX a 1 2|LPUSHX missing 1|RPUSHX missing 1 2|LINSERT a BEFORE 3 x
        LINSERT a BEFORE no x|LSET a 0 y|LREM a 0 1|LREM a 0 no|LTRIM a 1 4|LTRIM a 0 -1|LMOVE a b LEFT RIGHT|LMOVE a a LEFT RIGHT
        RPOPLPUSH a b|BLMOVE a b LEFT RIGHT 0|BRPOPLPUSH a b 0|LPOP b|LPOP b 2|LPOP b 0|RPOP b 9|RPOP missing 2|RPUSH a 1 2 3 4 5
        LMPOP 2 no a LEFT COUNT 2|BLMPOP 0 2 no a RIGHT COUNT 2|BLPOP a 0|RPUSH a 1 2|BRPOP a 0|LTRIM a 9 10
        RPUSH a 3 1 2|SORT a STORE b|SORT missing STORE b|SORT missing STORE b""",
    "sets": """SADD a 1 2 3 4|SADD a 1|SADD a 1 5|SREM a 1 2 no|SREM a no|SADD b 3 6|SMOVE a b 3|SMOVE a b 4|SMOVE a b no|SMOVE b b 4
        SINTERSTORE c a b|SUNIONSTORE c a b|SDIFFSTORE c a b|SDIFFSTORE c no b|SDIFFSTORE c no b|SPOP b|SPOP b 2|SPOP b 9|SPOP b""",
    "hashes": """HSET a f 1 g 2 h 3|HSET a f 1|HMSET a f 2 g 3|HSETNX a f 1|HSETNX a i 1|HINCRBY a n 5|HINCRBYFLOAT a n 0.5
        HDEL a f g no|HDEL a no|HDEL a h i n""",
    "sorted sets": """ZADD a 1 x 2 y 3 z|ZADD a 1 x 3 y|ZADD a CH 1 x 9 w|ZADD a GT 0 x|ZADD a NX 5 x 6 v|ZADD a XX 5 x 6 no
        ZADD a XX INCR 1 x|ZINCRBY a 1 x|ZINCRBY a 0 x|ZREM a x no|ZREM a no|ZPOPMIN a|ZPOPMAX a 2|ZADD a 1 x 2 y 3 z 4 w
        ZADD b 1 x 2 y|ZUNIONSTORE c 2 a b|ZINTERSTORE c 2 a b|ZDIFFSTORE c 2 a b|ZDIFFSTORE c 2 no b|ZRANGESTORE c a 0 -1
        ZRANGESTORE c a 10 20|ZRANGESTORE c a 10 20|ZREMRANGEBYSCORE a 1 2|ZREMRANGEBYRANK a 0 9|ZREMRANGEBYLEX b - +
        ZREMRANGEBYSCORE b 1 2|ZADD a 1 x 2 y 3 z 4 w 5 v|ZMPOP 1 a MIN COUNT 2|BZMPOP 0 1 a MAX COUNT 2|BZPOPMIN a 0|ZADD a 1 x 2 y
        BZPOPMAX a 0|ZPOPMIN a 5""",
    "places": """GEOADD a 13.361389 38.115556 x 15.087269 37.502669 y 2.35 48.85 z|GEOADD a 13.361389 38.115556 x
        GEORADIUS a 15 37 200 km STORE b|GEORADIUS a 15 37 200 km STOREDIST b|GEORADIUSBYMEMBER a x 200 km STORE b
        GEOSEARCHSTORE b a FROMLONLAT 15 37 BYRADIUS 200 km|GEOSEARCHSTORE b a FROMLONLAT 15 0 BYRADIUS 2 km
        GEOSEARCHSTORE b a FROMLONLAT 15 0 BYRADIUS 2 km""",
    "estimates": """PFADD a x y z|PFADD a x y z w|PFADD a x|PFCOUNT a|PFCOUNT a|PFADD b q|PFMERGE c a b|PFADD d|PFADD d
        PFDEBUG TODENSE a|PFADD a 1 2 3""",
    "streams": """XADD s 1-0 a 1|XADD s 2-0 a 1|XADD s 3-0 a 1|XADD s 4-0 a 1|XADD s MAXLEN 2 5-0 a 1|XDEL s 4-0 5-0 9-0|XDEL s 9-0
        XADD s 6-0 a 1|XADD s 7-0 a 1|XADD s 8-0 a 1|XTRIM s MAXLEN 1|XTRIM s MAXLEN 1|XGROUP CREATE s g 0|XADD s 9-0 a 1
        XADD s 10-0 a 1|XADD t 1-0 a 1|XGROUP CREATE t g 0|XREADGROUP GROUP g c STREAMS s t > >
        XREADGROUP GROUP g c STREAMS s t 0 0|XREADGROUP GROUP g c STREAMS s t > >|XREADGROUP GROUP g d STREAMS s 0
        XACK s g 8-0 9-0 99-0|XACK s g 99-0|XCLAIM s g e 0 10-0 1-1|XCLAIM s g e 0 10-0 JUSTID|XAUTOCLAIM s g f 0 0
        XGROUP CREATECONSUMER s g h|XGROUP CREATECONSUMER s g h|XGROUP DELCONSUMER s g h|XGROUP DELCONSUMER s g h
        XGROUP SETID s g 0|XGROUP DESTROY s g|XGROUP DESTROY s g|XSETID s 20-0""",
    "keys": """MSET a 1 b 2 c 3|DEL a b no|DEL no|MSET a 1 b 2|UNLINK a b no|SET a 1|RENAME a b|SET a 1|RENAME a b|RENAME b b
        RENAMENX b c|RENAMENX c d|COPY d e|COPY d e|COPY d e REPLACE|MOVE d 1|MOVE no 1|EXPIRE e 100|EXPIRE e 100 NX|PEXPIRE e 100000
        EXPIREAT e 9999999999|PEXPIREAT e 9999999999000|PERSIST e|PERSIST e|EXPIRE e -1|EXPIRE no 100|SWAPDB 0 1|TOUCH d|FLUSHDB
        MSET a 1 b 2 c 3|FLUSHALL|FLUSHALL|MSET a 1 b 2|FLUSHALL ASYNC""",
    "scripts": """EVAL "redis.call('rpush', 'a', 1, 2, 3) return redis.call('set', 'b', 1)" 0|SCRIPT LOAD 'return 1'|SCRIPT FLUSH
        EVAL 'return 1' 0|FUNCTION LOAD '#!lua name=l\\nredis.register_function("f", function() return 1 end)'|FCALL f 0
        FUNCTION LOAD REPLACE '#!lua name=l\\nredis.register_function("f", function() return 1 end)'|FUNCTION DELETE l
        FUNCTION DELETE l|FUNCTION FLUSH|PUBLISH a b|SPUBLISH a b""",
}
NEWER_SCENARIOS = {
    "fields with a time": """HSET a f 1 g 2 h 3|HEXPIRE a 100 FIELDS 3 f g no|HEXPIRE a 100 NX FIELDS 3 f g h|HPERSIST a FIELDS 3 f g no
        HPEXPIRE a 100000 FIELDS 2 f g|HEXPIREAT a 9999999999 FIELDS 2 f g|HPEXPIREAT a 9999999999000 FIELDS 2 f g
        HGETEX a FIELDS 2 f g|HGETEX a EX 100 FIELDS 2 f g|HGETEX a PERSIST FIELDS 2 f g|HGETEX a PXAT 1 FIELDS 2 f g
        HSETEX a EX 100 FIELDS 2 f 1 g 2|HSETEX a PXAT 1 FIELDS 2 f 1 g 2|HSETEX no PXAT 1 FIELDS 2 f 1 g 2
        HSETEX a PXAT 1 FIELDS 2 p 1 q 2|HSET a f 1 g 2|HEXPIRE a 0 FIELDS 2 f g|HSET a f 1 g 2|HGETDEL a FIELDS 3 f g no""",
    "conditions": "MSETEX 2 a 1 b 2 EX 100|MSETEX 2 a 1 c 2 NX|DELIFEQ a 2|DELIFEQ a 1|SET b 3 IFEQ 1|SET b 3 IFEQ 2",
}  # fmt: skip

# Differences that are meant: of which calls, and why.
MEANT = [
    ("XREADGROUP GROUP g * STREAMS s t > >", "a consumer that finds nothing is there from then on, as in Redis 7.2"),
]
# Writing commands that no scenario has, and why.
WITHOUT_SCENARIO = {
    "restore": "a payload is made of bytes that no scenario can hold; every option of it is called below",
    "cluster flushslot": "this version refuses it",
    "migrate": "it needs another server; tests/replication/test_migrate.py has it",
    "restore-asking": "it is RESTORE under another name",
    **dict.fromkeys(
        ["json.arrappend", "json.arrinsert", "json.arrpop", "json.arrtrim", "json.clear", "json.del", "json.forget", "json.merge", "json.mset", "json.nummultby",
         "json.numincrby", "json.numpowby", "json.set", "json.strappend", "json.toggle"], "neither oracle has it; it is told below"),
    **dict.fromkeys(["ardel", "ardelrange", "arinsert", "armset", "arring", "arseek", "arset", "blmovem", "delex", "himport set", "increx", "lmovem", "xackdel", "xcfgset", "xdelex", "xnack"], "neither oracle has it; it is told below"),
    "function restore": "as RESTORE; every option of it is called below",
}  # fmt: skip


def changes(peer):
    """The changes that were counted so far; of either kind of peer."""
    reply = peer.ask("INFO", "persistence")
    text = reply[1].decode() if isinstance(reply, tuple) else reply
    return int(re.search(r"rdb_changes_since_last_save:(\d+)", text)[1])


def calls_of(scenario):
    lines = [call.strip() for line in scenario.splitlines() for call in line.split("|")]
    return [[word.replace("\\n", "\n") for word in shlex.split(line)] for line in lines if line]


def compare(scenario, ours, oracle):
    differences = []
    with Peer(ours) as one, Peer(oracle) as other:
        for peer in (one, other):
            peer.ask("FLUSHALL")
        for call in calls_of(scenario):
            counted, replies = [], []
            for peer in (one, other):
                before = changes(peer)
                replies.append(peer.ask(*call))
                counted.append(changes(peer) - before)
            is_known = not (isinstance(replies[1], Failure) and replies[1].startswith("ERR unknown command"))
            assert is_known, f"the oracle does not know {call[0]}"
            is_meant = any(fnmatchcase(" ".join(call), pattern) for pattern, _ in MEANT)
            if counted[0] != counted[1] and not is_meant:
                differences.append(f"{' '.join(call)}: {counted[0]}, not {counted[1]}; replies {replies}")
    assert not differences, "\n".join(differences)


@pytest.fixture(scope="module")
def newer_oracle():
    with Server(program=NEWER_ORACLE) as server:
        yield server


@pytest.mark.parametrize("family", SCENARIOS)
def test_changes_are_counted_as_in_redis(server, oracle, family):
    compare(SCENARIOS[family], server, oracle)


@pytest.mark.skipif(not shutil.which(NEWER_ORACLE), reason=f"no {NEWER_ORACLE}")
@pytest.mark.parametrize("family", NEWER_SCENARIOS)
def test_changes_of_newer_commands_are_counted_as_in_valkey(server, newer_oracle, family):
    compare(NEWER_SCENARIOS[family], server, newer_oracle)


def test_writing_commands_all_have_a_scenario(server):
    told = set()
    for scenario in (*SCENARIOS.values(), *NEWER_SCENARIOS.values()):
        for call in calls_of(scenario):
            told |= {call[0].lower(), " ".join(call[:2]).lower()}
    with options.RawPeer(server, 3) as peer:
        commands = options.documented(peer)
        traits = options.traits(peer, commands)
    writing = {name for name in commands if "write" in traits[name]}
    assert len(writing) > 100
    assert writing - told == WITHOUT_SCENARIO.keys() & writing
    assert WITHOUT_SCENARIO.keys() <= writing


@pytest.mark.parametrize("program", [ORACLE, NEWER_ORACLE])
def test_changes_of_every_option_are_counted_as_by_the_oracle(program):
    if not shutil.which(program):
        pytest.skip(f"no {program}")
    differences, asked = [], 0
    with Server(*DEBUG) as ours, Server(*DEBUG, program=program) as oracle:
        with options.RawPeer(oracle, 3) as peer:
            commands = options.documented(peer)
            traits = options.traits(peer, commands)
        peers = [options.RawPeer(server, 2) for server in (ours, oracle)]
        options.reset(peers)
        before = [changes(peer) for peer in peers]
        for name, told in commands.items():
            if any(fnmatchcase(name, pattern) for pattern in options.ELSEWHERE):
                continue
            for call in options.calls(name, told, with_mistakes=False):
                asked += 1
                for peer in peers:
                    peer.begin(call)
                replies = [peer.finish()[0] for peer in peers]
                if ("waits", b"") in replies:
                    peers = [options.replaced(peer, server, 2) for peer, server in zip(peers, (ours, oracle))]
                after = [changes(peer) for peer in peers]
                counted = [now - then for now, then in zip(after, before)]
                if counted[0] != counted[1]:
                    differences.append(f"{' '.join(map(str, call))}: {counted[0]}, not {counted[1]}")
                if after != before or ("waits", b"") in replies or told["group"] == "scripting":
                    options.reset(peers)
                    after = [changes(peer) for peer in peers]
                before = after
        for peer in peers:
            peer.close()
    assert asked > 500, "there was hardly anything to ask"
    assert not differences, "\n".join(differences[:40])


def test_changes_of_commands_that_no_oracle_has(server):
    with Peer(server) as peer:
        peer.ask("FLUSHALL")
        for id in range(1, 7):
            peer.ask("XADD", "s", f"{id}-0", "a", "1")
        peer.line("XGROUP CREATE s g 0")
        peer.line("XREADGROUP GROUP g c STREAMS s >")
        for line, expected in [
            ("ARSET a 0 x y z", 3),
            ("ARMSET a 0 x 9 y", 2),
            ("ARDEL a 9 10", 1),
            ("ARDELRANGE a 0 1 5 6", 2),
            ("ARINSERT a x y", 2),
            ("ARSEEK a 5", 1),
            ("ARSEEK no 5", 0),
            ("ARRING a 2 x y z", 3),
            ("DEL a", 1),
            ('JSON.SET j $ {"a":1,"l":[1],"s":"x","t":true}', 1),
            ("JSON.SET j $.a 2 NX", 0),
            ("JSON.SET j $.a.b 2", 0),
            ("JSON.MSET j $.a 1 k $ 1 j $.b 1", 2),
            ('JSON.MERGE j $ {"c":1}', 1),
            ("JSON.MERGE j $.no.c 1", 0),
            ("JSON.NUMINCRBY j $.* 1", 1),
            ("JSON.NUMINCRBY j $.s 1", 0),
            ("JSON.NUMMULTBY j a 1", 1),
            ("JSON.NUMPOWBY j a 1", 1),
            ("JSON.TOGGLE j t", 1),
            ('JSON.STRAPPEND j s "y"', 1),
            ("JSON.ARRAPPEND j l 1 2 3", 1),
            ("JSON.ARRAPPEND j $.s 1", 0),
            ("JSON.ARRINSERT j l 0 1", 1),
            ("JSON.ARRPOP j l", 1),
            ("JSON.ARRTRIM j l 0 0", 1),
            ("JSON.CLEAR j l", 1),
            ("JSON.CLEAR j l", 0),
            ("JSON.DEL j $.no", 0),
            ("JSON.DEL j $.*", 1),
            ("JSON.FORGET j", 1),
            ("XDELEX s IDS 3 1-0 2-0 99-0", 2),
            ("XDELEX s IDS 1 99-0", 0),
            ("XACKDEL s g IDS 3 3-0 4-0 99-0", 2),
            ("XNACK s g FAIL IDS 3 5-0 6-0 99-0", 2),
            ("XNACK s g FAIL IDS 1 99-0", 0),
            ("XCFGSET s IDMP-DURATION 5", 1),
            ("XCFGSET s IDMP-DURATION 5", 0),
            ("SET a 1", 1),
            ("DELEX a IFEQ 2", 0),
            ("DELEX a IFEQ 1", 1),
            ("INCREX a EX 100", 1),
            ("INCREX a BYINT 5 UBOUND 3", 0),
            ("INCREX a PXAT 1", 1),
            ("INCREX a PXAT 1", 0),
            ("RPUSH l 1 2 3 4 5", 5),
            ("LMOVEM l m LEFT LEFT COUNT 2 OBO", 2),
            ("LMOVEM l m LEFT LEFT EXACTLY 4 OBO", 0),
            ("LMOVEM l l LEFT LEFT COUNT 2 BULK", 0),
            ("LMOVEM l l LEFT RIGHT COUNT 2 BULK", 2),
            ("BLMOVEM l m LEFT LEFT 0 COUNT 9 BULK", 3),
            ("HIMPORT PREPARE fields a b", 0),
            ("HIMPORT SET h fields 1 2", 2),
            ("HIMPORT SET h fields 1 2", 2),
        ]:
            before = changes(peer)
            peer.line(line)
            assert changes(peer) - before == expected, line


def test_swapdb_of_a_database_with_itself_is_no_change(server):
    with Peer(server) as peer:
        before = changes(peer)
        assert peer.line("SWAPDB 0 0") == "OK"
        assert changes(peer) == before, "Redis counts it, though nothing has changed"


def objects(peer):
    """The objects that are still to be freed in the background, and those that were."""
    memory = peer.ask("INFO", "memory")
    return [int(re.search(rf"{name}:(\d+)", memory)[1]) for name in ("lazyfree_pending_objects", "lazyfreed_objects")]


def freed(peer, expected):
    """Waits until so many objects were freed in the background, and none is left to be."""
    eventually(lambda: objects(peer) == [0, expected], f"{expected} are freed")


def test_objects_freed_in_the_background_are_counted(server):
    with Peer(server) as peer:
        peer.ask("FLUSHALL", "SYNC")
        eventually(lambda: objects(peer)[0] == 0, "what former tests have left is freed")
        peer.ask("CONFIG", "RESETSTAT")
        peer.ask("SADD", "large", *range(100_000))
        peer.ask("UNLINK", "large")
        freed(peer, 1)
        peer.ask("MSET", *range(20))
        peer.ask("FLUSHALL", "ASYNC")
        freed(peer, 11)
        peer.ask("MSET", *range(20))
        peer.ask("FLUSHALL", "SYNC")
        freed(peer, 11)
        peer.ask("CONFIG", "RESETSTAT")
        freed(peer, 0)
