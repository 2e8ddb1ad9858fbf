"""Keyspace events: random commands to the server and to Redis have to publish the same, in the same order."""

import random

import pytest

from harness import DUNLIN, Server, is_redis
from peer import Failure, Peer
from wire import eventually

ALL = "KEAnm"
COMMANDS = 2000
KEYS = ["a", "b", "c", "d"]
SMALL = ["0", "1", "2", "7"]
WORDS = ["x", "y", "z", "10", "3"]

# Shapes of commands: K is a key, V a word, N a small number, D a dump, the rest stands for itself. Times are such that no key
# expires meanwhile.
SHAPES = """
SET K V
SET K V EX 10000
SET K V NX
SET K V XX GET
SET K V KEEPTTL
SETNX K V
SETEX K 10000 V
PSETEX K 10000000 V
GETSET K V
GETDEL K
GETEX K
GETEX K EX 10000
GETEX K PERSIST
GETEX K PXAT 1
GET K
STRLEN K
GETRANGE K 0 1
MGET K K
MSET K V K V
MSETNX K V K V
APPEND K V
APPEND K
SETRANGE K N V
SETRANGE K 0
INCR K
DECR K
INCRBY K N
DECRBY K N
INCRBYFLOAT K 1.5
LCS K K
SETBIT K N 1
SETBIT K N 0
GETBIT K N
BITCOUNT K
BITPOS K 1
BITFIELD K SET u4 N 1
BITFIELD K INCRBY u4 N 1
BITFIELD K OVERFLOW FAIL INCRBY u1 N 1
BITFIELD K GET u4 N
BITFIELD_RO K GET u4 N
BITOP OR K K K
BITOP AND K K
BITOP NOT K K
DEL K K
UNLINK K
EXISTS K K
TYPE K
TTL K
TOUCH K K
OBJECT ENCODING K
DUMP K
RESTORE K 0 D
RESTORE K 0 D REPLACE
RESTORE K 1 D REPLACE ABSTTL
RESTORE K 10000000 D
RENAME K K
RENAMENX K K
COPY K K
COPY K K REPLACE
COPY K K DB 1
COPY K K DB 1 REPLACE
MOVE K 1
EXPIRE K 10000
EXPIRE K 10000 NX
EXPIRE K 1000 GT
EXPIRE K 1000 LT
EXPIRE K -1
EXPIREAT K 1
PEXPIREAT K 1
PERSIST K
EXPIRETIME K
SELECT 1
SELECT 0
HSET K V V V V
HMSET K V V
HSETNX K V V
HDEL K V V
HGET K V
HMGET K V V
HGETALL K
HEXISTS K V
HLEN K
HRANDFIELD K
HSCAN K 0
HINCRBY K N 1
HINCRBYFLOAT K N 1.5
SADD K V V
SREM K V V
SREM K V V V V V
SPOP K
SPOP K N
SMOVE K K V
SISMEMBER K V
SMISMEMBER K V V
SRANDMEMBER K 1
SMEMBERS K
SINTER K K
SUNION K K
SDIFF K K
SINTERCARD 2 K K
SINTERSTORE K K K
SINTERSTORE K K
SUNIONSTORE K K K
SDIFFSTORE K K K
RPUSH K V V
LPUSH K V
LPUSHX K V
RPUSHX K V
LPOP K
LPOP K 0
RPOP K 2
LRANGE K 0 -1
LINDEX K 0
LPOS K V
LSET K 0 V
LINSERT K BEFORE V V
LINSERT K AFTER V V
LREM K 0 V
LTRIM K 1 -1
LTRIM K 5 1
LTRIM K 0 -1
LMOVE K K LEFT RIGHT
RPOPLPUSH K K
LMPOP 2 K K LEFT
LMPOP 2 K K RIGHT COUNT 2
BLPOP K K 0.001
BRPOP K 0.001
BLMOVE K K LEFT LEFT 0.001
BRPOPLPUSH K K 0.001
BLMPOP 0.001 2 K K LEFT COUNT 2
PFADD K V
PFADD K
PFCOUNT K
PFCOUNT K K
PFMERGE K K
PFMERGE K
SORT K ALPHA STORE K
SORT K BY nosort
SORT K ALPHA GET # GET V*
SORT_RO K ALPHA
FLUSHDB
SWAPDB 0 1
ZADD K N V
ZADD K NX N V
ZADD K XX CH N V
ZADD K GT N V N V
ZADD K INCR N V
ZADD K XX INCR N V
ZINCRBY K N V
ZREM K V
ZREM K V V V V
ZPOPMIN K
ZPOPMIN K 0
ZPOPMAX K 2
ZREMRANGEBYSCORE K 0 N
ZREMRANGEBYRANK K 0 0
ZREMRANGEBYLEX K - +
ZRANGE K 0 -1
ZSCORE K V
ZRANK K V
ZCOUNT K 0 1
ZRANDMEMBER K
ZUNION 2 K K
ZDIFF 2 K K
ZINTERCARD 2 K K
ZUNIONSTORE K 2 K K
ZUNIONSTORE K 1 K WEIGHTS 2
ZINTERSTORE K 2 K K
ZDIFFSTORE K 2 K K
ZRANGESTORE K K 0 1
ZRANGESTORE K K 0 1 BYSCORE
ZMPOP 2 K K MIN
ZMPOP 2 K K MAX COUNT 2
BZPOPMIN K K 0.001
BZPOPMAX K 0.001
BZMPOP 0.001 2 K K MIN COUNT 2
GEOADD K 1 2 V
GEOADD K XX CH 1 3 V
GEOPOS K V
GEODIST K V V
GEOSEARCH K FROMLONLAT 1 2 BYRADIUS 9 km
GEOSEARCHSTORE K K FROMLONLAT 1 2 BYRADIUS 9 km
GEORADIUS K 1 2 9 km
GEORADIUS K 1 2 9 km STORE K
GEORADIUSBYMEMBER K V 9 km STOREDIST K
XADD K 1-N x y
XADD K MAXLEN 1 * x y
XADD K NOMKSTREAM MINID 1 * x y
XADD K MAXLEN 0 * x y
XDEL K 1-1
XDEL K 1-N
XTRIM K MAXLEN 1
XTRIM K MINID 2
XLEN K
XRANGE K - +
XREAD COUNT 1 STREAMS K K 0 0
XGROUP CREATE K g 0 MKSTREAM
XGROUP CREATE K g 0
XGROUP DESTROY K g
XGROUP SETID K g 0
XGROUP CREATECONSUMER K g V
XGROUP DELCONSUMER K g V
XREADGROUP GROUP g V COUNT 1 STREAMS K >
XREADGROUP GROUP g V STREAMS K 0
XREADGROUP GROUP g V COUNT 1 NOACK STREAMS K >
XACK K g 1-N
XPENDING K g
XCLAIM missing g V 0 1-N
XAUTOCLAIM missing g V 0 0
XSETID K 9-9
""".split("\n")
# Consumers come into being earlier than in Redis 7.0: with the first command that names them, as in 7.2.
OWN = ("xgroup-createconsumer", "xgroup-delconsumer")
# Differences that a random choice makes between two servers are left to other tests: only the published
# events must be equal here.
FILL = {"K": KEYS, "V": WORDS, "N": SMALL}


def dumps(oracle):
    """Values of several types as Redis dumps them."""
    with Peer(oracle) as peer:
        for line in ("SET d:1 x", "RPUSH d:2 x 3", "SADD d:3 1 2", "HSET d:4 x 1", "ZADD d:5 1 x"):
            peer.line(line)
        return [peer.line(f"DUMP d:{number}").encode("latin1") for number in range(1, 6)]


def commands(seed, known, fill):
    chance = random.Random(seed)
    shapes = [shape.split() for shape in SHAPES if shape]
    shapes = [shape for shape in shapes if known(shape[0])]
    while True:
        yield [chance.choice(fill[word]) if word in fill else word for word in chance.choice(shapes)]


class Listener:
    """The events that a server publishes about its keys."""

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
            if not message[2].endswith(OWN) and message[3] not in OWN:
                events.append((message[2], message[3]))


@pytest.fixture(scope="module")
def listeners(server, oracle):
    for peer in (Peer(server), Peer(oracle)):
        assert peer.line(f"CONFIG SET notify-keyspace-events {ALL}") == "OK"
    yield Listener(server), Listener(oracle)
    for peer in (Peer(server), Peer(oracle)):
        peer.ask("CONFIG", "SET", "notify-keyspace-events", "")


@pytest.mark.parametrize("seed", range(10))
def test_events_are_those_of_redis(listeners, oracle, seed):
    ours, oracles = listeners
    fill = {**FILL, "D": dumps(oracle)}
    known = {command[0].upper() for command in ours.client.line("COMMAND")}
    for listener in listeners:
        listener.of(["FLUSHALL"])
        listener.of(["SELECT", "0"])
    done = []
    for words in commands(seed, known.__contains__, fill):
        if words[0] == "SPOP" and len(words) == 2:
            # The sets have to stay the same.
            words = ["SPOP", words[1], "1000"]
        done.append(" ".join(map(str, words)))
        (reply, events), (expected_reply, expected) = ours.of(words), oracles.of(words)
        assert events == expected, f"{done[-12:]}: {reply} {expected_reply}"
        if words[0] == "SPOP" and isinstance(reply, list):
            # Each server has chosen others of the members: what is left goes, too.
            assert ours.of(["DEL", words[1]])[1] == oracles.of(["DEL", words[1]])[1], done[-12:]
        if len(done) == COMMANDS:
            return


def test_expired_keys_are_told_of(server):
    listener = Listener(server)
    listener.of(["CONFIG", "SET", "notify-keyspace-events", "KEx"])
    listener.of(["FLUSHALL"])
    # Where the machine stands still, the second may be over before the mark comes.
    _, events = listener.of(["SET", "gone", "1", "PX", "1000"])
    while len(events) < 2:
        events.append(tuple(listener.listener.read()[2:]))
    assert events == [("__keyspace@0__:gone", "expired"), ("__keyevent@0__:expired", "gone")], "in the background"
    listener.of(["CONFIG", "SET", "notify-keyspace-events", ""])


def test_set_with_a_past_expiry_publishes_both_events(server):
    listener = Listener(server)
    listener.of(["CONFIG", "SET", "notify-keyspace-events", "EAn"])
    listener.of(["FLUSHALL"])
    assert [channel for channel, _ in listener.of(["SET", "gone", "1", "PXAT", "1"])[1]] == [
        f"__keyevent@0__:{name}" for name in ("new", "set", "expire", "expired")
    ]
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
