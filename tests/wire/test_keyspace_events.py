"""Keyspace events: random commands to the server and to Redis have to publish the same, in the same order."""

import random

import pytest

from harness import DUNLIN, Server, is_redis
from peer import Failure, Peer
from wire import eventually

ALL = "KEAnm"
KEYS = ["a", "b", "c", "d"]
SMALL = ["0", "1", "2", "7"]
WORDS = ["x", "y", "z", "10", "3"]

# Shapes of commands: K is a key, V a word, N a small number, the rest stands for itself.
SHAPES = """
SET K V
SET K V EX 100
SET K V NX
SET K V XX GET
SET K V KEEPTTL
SETNX K V
SETEX K 100 V
PSETEX K 100000 V
GETSET K V
GETDEL K
GETEX K
GETEX K EX 100
GETEX K PERSIST
GETEX K PXAT 1
GET K
STRLEN K
MGET K K
MSET K V K V
MSETNX K V K V
APPEND K V
APPEND K
SETRANGE K N V
INCR K
DECRBY K N
INCRBYFLOAT K 1.5
SETBIT K N 1
SETBIT K N 0
GETBIT K N
BITCOUNT K
BITFIELD K SET u4 N 1
BITFIELD K GET u4 N
BITOP OR K K K
BITOP AND K K
DEL K K
UNLINK K
EXISTS K K
TYPE K
TTL K
TOUCH K K
OBJECT ENCODING K
RENAME K K
RENAMENX K K
COPY K K
COPY K K REPLACE
COPY K K DB 1
MOVE K 1
EXPIRE K 100
EXPIRE K 100 NX
EXPIRE K -1
PEXPIREAT K 1
PERSIST K
SELECT 1
SELECT 0
HSET K V V V V
HMSET K V V
HSETNX K V V
HDEL K V V
HGET K V
HGETALL K
HINCRBY K N 1
HINCRBYFLOAT K N 1.5
SADD K V V
SREM K V V
SPOP K
SPOP K N
SMOVE K K V
SISMEMBER K V
SINTERSTORE K K K
SUNIONSTORE K K K
SDIFFSTORE K K K
RPUSH K V V
LPUSH K V
LPUSHX K V
LPOP K
RPOP K 2
LRANGE K 0 -1
LSET K 0 V
LINSERT K BEFORE V V
LREM K 0 V
LTRIM K 1 -1
LMOVE K K LEFT RIGHT
RPOPLPUSH K K
LMPOP 2 K K LEFT
BLPOP K K 0.001
BLMOVE K K LEFT LEFT 0.001
PFADD K V
PFCOUNT K
PFMERGE K K
SORT K ALPHA STORE K
FLUSHDB
SWAPDB 0 1
ZADD K N V
ZADD K NX N V
ZINCRBY K N V
ZREM K V
ZPOPMIN K
ZREMRANGEBYSCORE K 0 N
ZUNIONSTORE K 2 K K
ZINTERSTORE K 2 K K
ZRANGESTORE K K 0 1
ZREMRANGEBYRANK K 0 0
ZMPOP 2 K K MIN
GEOADD K 1 2 V
GEOSEARCHSTORE K K FROMLONLAT 1 2 BYRADIUS 9 km
XADD K 1-N x y
XDEL K 1-1
XTRIM K MAXLEN 1
XGROUP CREATE K g 0 MKSTREAM
XGROUP DESTROY K g
XSETID K 9-9
""".split("\n")
# What a random choice makes differ between two servers is left to other tests: it is deterministic only
# in what it publishes.
FILL = {"K": KEYS, "V": WORDS, "N": SMALL}


def commands(seed, known):
    chance = random.Random(seed)
    shapes = [shape.split() for shape in SHAPES if shape]
    shapes = [shape for shape in shapes if known(shape[0])]
    while True:
        yield [chance.choice(FILL[word]) if word in FILL else word for word in chance.choice(shapes)]


class Listener:
    """What a server publishes about its keys."""

    def __init__(self, server):
        self.listener, self.client = Peer(server), Peer(server)
        self.listener.line("PSUBSCRIBE __key*__:*")
        self.turn = 0

    def of(self, words):
        """The reply to a command and the events that it made."""
        reply = self.client.ask(*words)
        # A message of our own marks the end.
        self.turn += 1
        self.client.ask("PUBLISH", "__keymark__:", self.turn)
        events = []
        while True:
            message = self.listener.read()
            if message[2] == "__keymark__:":
                assert message[3] == str(self.turn)
                return reply, events
            events.append((message[2], message[3]))


@pytest.fixture(scope="module")
def listeners(server, oracle):
    for peer in (Peer(server), Peer(oracle)):
        assert peer.line(f"CONFIG SET notify-keyspace-events {ALL}") == "OK"
    yield Listener(server), Listener(oracle)
    for peer in (Peer(server), Peer(oracle)):
        peer.ask("CONFIG", "SET", "notify-keyspace-events", "")


@pytest.mark.parametrize("seed", range(10))
def test_events_are_those_of_redis(listeners, seed):
    ours, oracles = listeners
    # Sorted sets came later: what they tell of missing sources is still to be compared.
    known = {command[0].upper() for command in ours.client.line("COMMAND")}
    known = {name for name in known if not name.startswith(("Z", "BZ", "GEO"))}
    for listener in listeners:
        listener.of(["FLUSHALL"])
        listener.of(["SELECT", "0"])
    done = []
    for words in commands(seed, known.__contains__):
        if words[0] == "SPOP" and len(words) == 2:
            # The sets have to stay the same.
            words = ["SPOP", words[1], "1000"]
        done.append(" ".join(words))
        (reply, events), (expected_reply, expected) = ours.of(words), oracles.of(words)
        assert events == expected, f"{done[-12:]}: {reply} {expected_reply}"
        if len(done) == 1500:
            return


def test_expired_keys_are_told_of(server):
    listener = Listener(server)
    listener.of(["CONFIG", "SET", "notify-keyspace-events", "KEx"])
    listener.of(["FLUSHALL"])
    assert listener.of(["SET", "gone", "1", "PX", "20"])[1] == []
    assert listener.listener.read()[2:] == ["__keyspace@0__:gone", "expired"], "in the background"
    assert listener.listener.read()[2:] == ["__keyevent@0__:expired", "gone"]
    listener.of(["CONFIG", "SET", "notify-keyspace-events", ""])


def test_letters_choose(server):
    listener = Listener(server)
    for letters, expected in [
        ("K$", [("__keyspace@0__:k", "set")]),
        ("Eg", [("__keyevent@0__:del", "k")]),
        ("A", []),
        ("Kl", []),
        ("En", [("__keyevent@0__:new", "k")]),
    ]:
        assert listener.of(["CONFIG", "SET", "notify-keyspace-events", letters])[0] == "OK"
        assert listener.of(["SET", "k", "1"])[1] + listener.of(["DEL", "k"])[1] == expected, letters
    error = listener.of(["CONFIG", "SET", "notify-keyspace-events", "KEAq"])[0]
    assert error == Failure(
        "ERR CONFIG SET failed (possibly related to argument 'notify-keyspace-events') - "
        "Invalid event class character. Use 'Ag$lshzxeKEtmdn'."
    )
    listener.of(["CONFIG", "SET", "notify-keyspace-events", ""])


def test_transactions_tell_in_order(server):
    listener = Listener(server)
    listener.of(["CONFIG", "SET", "notify-keyspace-events", "EA"])
    listener.of(["FLUSHALL"])
    for words in (["MULTI"], ["SET", "k", "1"], ["INCR", "k"], ["DEL", "k"]):
        listener.client.ask(*words)
    _, events = listener.of(["EXEC"])
    assert events == [("__keyevent@0__:set", "k"), ("__keyevent@0__:incrby", "k"), ("__keyevent@0__:del", "k")]
    listener.of(["CONFIG", "SET", "notify-keyspace-events", ""])


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis delivers before it goes on")
def test_writers_do_not_get_far_ahead_of_listeners():
    with Server("--threads", "2", "--notify-keyspace-events", "KA") as server:
        listeners = [Peer(server) for _ in range(20)]
        for listener in listeners:
            listener.line("PSUBSCRIBE __keyspace*")
        with Peer(server) as writer:
            writer.send_all(*["INCR counter"] * 5000)
            assert [writer.read() for _ in range(5000)] == list(range(1, 5001))
        for listener in listeners:
            for _ in range(5000):
                assert listener.read()[2:] == ["__keyspace@0__:counter", "incrby"]
            listener.close()
        with Peer(server) as peer:
            eventually(lambda: peer.line("PUBSUB NUMPAT") == 0, "they have gone")
