"""DUMP and RESTORE: payloads of Redis are taken here, ours there, and their bytes are the same."""

import random

import pytest

from harness import DUNLIN, ORACLE, VALKEY, WITHOUT_VALKEY, Server, is_redis
from resp import Client, Refused

VALUES = 1500


@pytest.fixture(scope="module")
def dunlin():
    with Server("--enable-debug-command", "yes") as server:
        yield Client(server)


@pytest.fixture(scope="module")
def redis():
    with Server("--enable-debug-command", "yes", program=ORACLE) as server:
        yield Client(server)


def text(rng):
    """Numbers, noise, and texts that compress more or less."""
    kind = rng.randrange(8)
    if kind == 0:
        return str(rng.randrange(-200, 200)).encode()
    if kind == 1:
        return str(rng.randrange(-(2**63), 2**63) >> rng.randrange(64)).encode()
    if kind == 2:
        return rng.randbytes(rng.randrange(100))
    if kind == 3:
        return bytes(rng.choices(b"ab", k=rng.randrange(400)))
    if kind == 4:
        pieces = [b"hello ", b"world ", b"the quick ", rng.randbytes(3)]
        return b"".join(rng.choice(pieces) for _ in range(rng.randrange(60)))
    if kind == 5:
        return bytes([rng.randrange(256)]) * rng.randrange(3000)
    if kind == 6:
        return (rng.randbytes(rng.randrange(1, 300)) * 50)[: rng.randrange(12000)]
    return b"m%d" % rng.randrange(1000)


def short(rng):
    return text(rng)[:64]


def integer(rng):
    return rng.randrange(-(2**63), 2**63) >> rng.randrange(64)


def score(rng):
    return rng.choice([rng.randrange(-100, 100), rng.random(), integer(rng), "inf", "-inf", "1e300", "-0"])


def string_value(rng):
    return [["SET", "k", text(rng)]]


def set_value(rng):
    draw = rng.choice([text, short, integer])
    return [["SADD", "k", *(draw(rng) for _ in range(rng.choice([1, 3, 20, 130, 600])))]]


def sorted_set_value(rng):
    draw = rng.choice([text, short, integer])
    count = rng.choice([1, 3, 20, 100, 600])
    return [["ZADD", "k", *(word for _ in range(count) for word in (score(rng), draw(rng)))]]


def stream_value(rng):
    """Entries, deletions and groups; no consumer, whose dump has the time at which it was made."""
    commands = []
    for number in range(rng.choice([1, 5, 150, 400])):
        fields = [word for _ in range(rng.choice([1, 1, 2])) for word in (rng.choice([b"f", short(rng)]), short(rng))]
        commands.append(["XADD", "k", f"{1000 + number // 3}-{number % 3 + 1}", *fields])
    for _ in range(rng.choice([0, 3])):
        commands.append(["XDEL", "k", f"{1000 + rng.randrange(130)}-{rng.randrange(3) + 1}"])
    if rng.randrange(3) == 0:
        commands.append(["XTRIM", "k", "MAXLEN", rng.choice(["=", "~"]), rng.randrange(200)])
    for group in range(rng.randrange(3)):
        commands.append(["XGROUP", "CREATE", "k", f"group {group}", rng.choice(["0", "$", "1010-1"])])
    return commands


def hash_value(rng):
    draw = rng.choice([text, short])
    return [["HSET", "k", *(draw(rng) for _ in range(2 * rng.choice([1, 3, 20, 130, 520])))]]


def list_value(rng):
    """No element of a block's size: such stand alone since Redis 7.2, and here."""
    draw = rng.choice([lambda rng: text(rng)[:8000], short, integer])
    commands = []
    for _ in range(rng.choice([1, 1, 5])):
        push = rng.choice(["RPUSH", "LPUSH"])
        commands.append([push, "k", *(draw(rng) for _ in range(rng.choice([1, 3, 20, 130, 600])))])
    return commands


# How to make a value, and the encodings whose dumps have the same bytes on both sides.
KINDS = {
    "list": (list_value, ["quicklist", "listpack"]),
    "string": (string_value, ["int", "embstr", "raw"]),
    "set": (set_value, ["intset"]),
    "sorted set": (sorted_set_value, ["listpack", "skiplist"]),
    "stream": (stream_value, ["stream"]),
    "hash": (hash_value, ["listpack"]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_dumps_cross_over_with_the_same_bytes(kind, dunlin, redis):
    make, same_bytes = KINDS[kind]
    rng = random.Random(kind)
    compared = 0
    for _ in range(VALUES):
        commands = make(rng)
        for server in (dunlin, redis):
            server("DEL", "k")
            for command in commands:
                server(*command)
        ours, theirs = dunlin("DUMP", "k"), redis("DUMP", "k")
        encodings = {server("OBJECT", "ENCODING", "k").decode() for server in (dunlin, redis)}
        if encodings <= set(same_bytes):
            assert ours == theirs, commands
            compared += 1
        digest = redis("DEBUG", "DIGEST-VALUE", "k")
        assert dunlin("DEBUG", "DIGEST-VALUE", "k") == digest
        for server, payload in ((dunlin, theirs), (redis, ours), (dunlin, ours)):
            assert server("RESTORE", "copy", 0, payload, "REPLACE") == b"OK", commands
            assert server("DEBUG", "DIGEST-VALUE", "copy") == digest, commands
    assert compared > VALUES / 10


def test_deliveries_survive_the_way_through_the_other_server(dunlin, redis):
    rng = random.Random(1)
    for _ in range(200):
        for server, other in ((dunlin, redis), (redis, dunlin)):
            server("DEL", "k")
            for command in stream_value(rng):
                server(*command)
            server("XGROUP", "CREATE", "k", "deliveries", "0")
            for consumer in range(rng.randrange(1, 4)):
                count = rng.choice([1, 10, 100])
                server("XREADGROUP", "GROUP", "deliveries", f"consumer {consumer}", "COUNT", count, "STREAMS", "k", ">")
            server("XCLAIM", "k", "deliveries", "thief", 0, "1000-2", "RETRYCOUNT", 7, "JUSTID")
            server("XACK", "k", "deliveries", "1001-1", "1001-2")
            server("XGROUP", "CREATECONSUMER", "k", "deliveries", "idle")
            payload = server("DUMP", "k")
            assert other("RESTORE", "copy", 0, payload, "REPLACE") == b"OK"
            assert other("DUMP", "copy") == payload
            assert other("DEBUG", "DIGEST-VALUE", "copy") == server("DEBUG", "DIGEST-VALUE", "k")


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis before 7.2 does not check so deeply by default")
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_dumps_are_refused_or_harmless(kind, dunlin):
    """A changed byte under a right checksum: the value is refused, or it is one that can be used."""
    make, _ = KINDS[kind]
    rng = random.Random(kind)
    refused = 0
    for _ in range(300):
        dunlin("FLUSHALL")
        for command in make(rng):
            dunlin(*command)
        payload = bytearray(dunlin("DUMP", "k"))
        for _ in range(rng.randrange(1, 4)):
            payload[rng.randrange(len(payload) - 8)] = rng.randrange(256)
        payload[-8:] = crc64(payload[:-8]).to_bytes(8, "little")
        try:
            dunlin("RESTORE", "damaged", 0, bytes(payload))
        except Refused as error:
            assert str(error) in (
                "ERR Bad data format",
                "ERR DUMP payload version or checksum are wrong",
            )
            refused += 1
            continue
        again = dunlin("DUMP", "damaged")
        assert dunlin("RESTORE", "again", 0, again) == b"OK"
        assert dunlin("DEBUG", "DIGEST-VALUE", "damaged") == dunlin("DEBUG", "DIGEST-VALUE", "again")
    assert refused


def crc64(data):
    """The checksum of dumps, bit by bit from its definition: Jones's polynomial, reflected."""
    value = 0
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x95AC9329AC4BC9B5 if value & 1 else 0)
    return value


@pytest.mark.skipif(not VALKEY or is_redis(DUNLIN), reason=WITHOUT_VALKEY)
def test_active_time_of_consumers_comes_with_dumps_of_newer_servers_and_not_with_ours(dunlin):
    """Dumps in the form of Redis 7.0 have no place for it: docs/formats/rdb.md."""

    def times(client):
        [consumer] = client("XINFO", "CONSUMERS", "s", "g")
        fields = dict(zip(consumer[::2], consumer[1::2]))
        return fields[b"idle"], fields[b"inactive"]

    with Server(program=VALKEY) as server:
        valkey = Client(server)
        for client in (valkey, dunlin):
            client("DEL", "s")
            client("XADD", "s", "1-1", "f", "v")
            client("XGROUP", "CREATE", "s", "g", "0")
            client("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
            while True:
                # An attempt in vain makes the consumer less idle, and no less inactive.
                client("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
                idle, inactive = times(client)
                if inactive - idle >= 100:
                    break
        of_valkey, ours = valkey("DUMP", "s"), dunlin("DUMP", "s")
        for dump, keeps in ((of_valkey, True), (ours, False)):
            dunlin("RESTORE", "s", 0, dump, "REPLACE")
            idle, inactive = times(dunlin)
            assert (inactive - idle >= 100) == keeps
