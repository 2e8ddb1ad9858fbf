"""Forms of collections: in the key's cell, listpack, block, table. Values go over each border to and fro beside Redis, and through
files and crashes.

The borders: the cell's 1,535 bytes of a listpack or intset and its way back at 1,151, Redis's directives, the block's index (8,
16, then groups of 14 members), its ends at 1,024 members and 64 KiB, and the table's way back at a quarter of these.
"""

import random

import pytest

from harness import DUNLIN, ORACLE, VALKEY, WITHOUT_VALKEY, Server, is_redis
from resp import Client

COUNTS = [1, 3, 7, 8, 9, 15, 16, 17, 18, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 1100]
BYTES = [0, 1, 40, 63, 64, 65, 100, 251, 252, 1000, 4000]
STEPS = 120


def value(rng, size):
    return rng.choice([b"v", b"w"]) * size


class Hash:
    def add(self, key, numbers, size, rng):
        return ["HSET", key, *(word for n in numbers for word in (f"f{n}", value(rng, size)))]

    def remove(self, key, numbers):
        return ["HDEL", key, *(f"f{n}" for n in numbers)]

    def look(self, key, n):
        return [["HGET", key, f"f{n}"], ["HEXISTS", key, f"f{n + 1}"], ["HLEN", key], ["HSTRLEN", key, f"f{n}"]]

    def whole(self, key):
        return ["HGETALL", key]

    scan = "HSCAN"
    members = staticmethod(lambda reply: sorted(zip(reply[::2], reply[1::2])))


class Set:
    def add(self, key, numbers, size, rng):
        return ["SADD", key, *(b"m%d" % n + b"x" * size for n in numbers)]

    def remove(self, key, numbers):
        return ["SREM", key, *(b"m%d" % n + b"x" * size for n in numbers for size in BYTES)]

    def look(self, key, n):
        return [["SISMEMBER", key, f"m{n}"], ["SCARD", key]]

    def whole(self, key):
        return ["SMEMBERS", key]

    scan = "SSCAN"
    members = staticmethod(sorted)


class SortedSet:
    def add(self, key, numbers, size, rng):
        pairs = ((rng.choice([n % 7, n / 4, -n]), b"m%d" % n + b"x" * size) for n in numbers)
        return ["ZADD", key, *(word for pair in pairs for word in pair)]

    def remove(self, key, numbers):
        return ["ZREM", key, *(b"m%d" % n + b"x" * size for n in numbers for size in BYTES)]

    def look(self, key, n):
        return [
            ["ZSCORE", key, f"m{n}"],
            ["ZRANK", key, f"m{n}"],
            ["ZREVRANK", key, f"m{n}"],
            ["ZRANGE", key, n // 2, n // 2 + 5, "WITHSCORES"],
            ["ZCOUNT", key, "(2", "40"],
            ["ZCARD", key],
        ]

    def whole(self, key):
        return ["ZRANGE", key, 0, -1, "WITHSCORES"]

    scan = "ZSCAN"
    members = staticmethod(list)


class List:
    def add(self, key, numbers, size, rng):
        return [rng.choice(["RPUSH", "LPUSH"]), key, *(b"%d" % n + b"x" * size for n in numbers)]

    def remove(self, key, numbers):
        return [["LPOP", "RPOP"][numbers[0] % 2], key, len(numbers)]

    def look(self, key, n):
        return [["LINDEX", key, n], ["LLEN", key], ["LRANGE", key, n // 2, n // 2 + 5], ["LPOS", key, b"%d" % n]]

    def whole(self, key):
        return ["LRANGE", key, 0, -1]

    scan = None
    members = staticmethod(list)


class Integers:
    def add(self, key, numbers, size, rng):
        return ["SADD", key, *(n * rng.choice([1, 1, 1, 1000]) - 7 for n in numbers)]

    def remove(self, key, numbers):
        return ["SREM", key, *(n * factor - 7 for n in numbers for factor in (1, 1000))]

    def look(self, key, n):
        return [["SISMEMBER", key, n - 7], ["SCARD", key], ["SMISMEMBER", key, n, 1000 * n - 7]]

    def whole(self, key):
        return ["SMEMBERS", key]

    scan = "SSCAN"
    members = staticmethod(sorted)


KINDS = {"hash": Hash, "set": Set, "sorted set": SortedSet, "list": List, "integers": Integers}
LENGTHS = {"hash": "HLEN", "sorted set": "ZCARD", "list": "LLEN"}


def scanned(server, kind, key):
    """All that a scan finds, in the order of a set; nothing of a list."""
    if not kind.scan:
        return []
    found, cursor = [], b"0"
    while True:
        cursor, part = server(kind.scan, key, cursor, "COUNT", 50)
        found += part
        if cursor == b"0":
            break
    return sorted(zip(found[::2], found[1::2])) if kind.scan != "SSCAN" else sorted(found)


@pytest.mark.parametrize("name", KINDS)
def test_collections_cross_each_border_as_in_redis(name):
    kind, rng = KINDS[name](), random.Random(name)
    with Server("--enable-debug-command", "yes") as ours, Server(
        "--enable-debug-command", "yes", "--hash-max-listpack-entries", 512, program=ORACLE
    ) as theirs:
        ours, theirs = Client(ours), Client(theirs)
        ours("CONFIG", "SET", "hash-max-listpack-entries", 512)
        for step in range(STEPS):
            key = f"k{step % 5}"
            have = theirs(LENGTHS.get(name, "SCARD"), key)
            count, size = rng.choice(COUNTS), rng.choice(BYTES)
            commands = []
            if count >= have:
                numbers = list(range(have, count))
                some = rng.choice([1, 100, 2000])
                for start in range(0, len(numbers), some):
                    commands.append(kind.add(key, numbers[start : start + some], size, rng))
                commands.append(kind.add(key, rng.sample(range(count), min(count, 5)), rng.choice(BYTES), rng))
            else:
                for start in range(count, have, 50):
                    commands.append(kind.remove(key, range(start, min(start + 50, have))))
            commands += kind.look(key, rng.randrange(count)) + [["OBJECT", "ENCODING", key]]
            for command in commands:
                expected = theirs(*command)
                if command[0] == "OBJECT" and name == "list":
                    # Redis 7.2 and newer, and this, have listpacks of lists.
                    continue
                if command[0] == "OBJECT" and name == "set" and expected == b"hashtable":
                    # Redis 7.2 and newer, and this, have listpacks of sets.
                    assert ours(*command) in (b"hashtable", b"listpack")
                    continue
                assert ours(*command) == expected, command[:4]
            if theirs("EXISTS", key):
                expected = kind.members(theirs(*kind.whole(key)))
                assert kind.members(ours(*kind.whole(key))) == expected
                assert scanned(ours, kind, key) == scanned(theirs, kind, key)
                digest = theirs("DEBUG", "DIGEST-VALUE", key)
                assert ours("DEBUG", "DIGEST-VALUE", key) == digest
                assert theirs("RESTORE", "copy", 0, ours("DUMP", key), "REPLACE") == b"OK"
                assert theirs("DEBUG", "DIGEST-VALUE", "copy") == digest
                assert ours("RESTORE", "copy", 0, theirs("DUMP", key), "REPLACE") == b"OK"
                assert ours("DEBUG", "DIGEST-VALUE", "copy") == digest


@pytest.mark.skipif(is_redis(DUNLIN) or not VALKEY, reason=WITHOUT_VALKEY)
def test_fields_that_expire_cross_each_border_as_in_valkey():
    rng = random.Random(4)
    with Server() as ours, Server(program=VALKEY) as theirs:
        ours, theirs = Client(ours), Client(theirs)
        for step in range(STEPS):
            key = f"h{step % 5}"
            count, size = rng.choice(COUNTS), rng.choice(BYTES)
            fields = [f"f{n}" for n in rng.sample(range(count), min(count, rng.choice([1, 9, 300])))]
            far = rng.choice([b"1893456000000", b"4102444800000"])
            for command in (
                Hash().add(key, range(count), size, rng),
                ["HPEXPIREAT", key, far, "FIELDS", len(fields), *fields],
                ["HPEXPIRETIME", key, "FIELDS", 3, "f0", "f1", "missing"],
                ["HPERSIST", key, "FIELDS", 1, fields[0]],
                ["HPEXPIREAT", key, 1, "FIELDS", 1, fields[-1]],
                ["HGET", key, fields[-1]],
                ["HLEN", key],
            ):
                assert ours(*command) == theirs(*command), command[:4]
            if theirs("EXISTS", key):
                assert Hash.members(ours("HGETALL", key)) == Hash.members(theirs("HGETALL", key))
                times = ["HPEXPIRETIME", key, "FIELDS", len(fields), *fields]
                assert ours(*times) == theirs(*times)
                for one, other in ((ours, theirs), (theirs, ours)):
                    other("DEL", "copy")
                    assert other("RESTORE", "copy", 0, one("DUMP", key)) == b"OK"
                    assert Hash.members(other("HGETALL", "copy")) == Hash.members(one("HGETALL", key))
                    times[1] = "copy"
                    expected = other(*times)
                    times[1] = key
                    assert expected == one(*times)


def filled(client, rng):
    """A collection of each type in each form, and some that came back from a table."""
    for count in (3, 9, 100, 513, 900, 1500, 4000):
        for size in (5, 100):
            for name, kind in KINDS.items():
                key = f"{name}:{count}:{size}"
                for start in range(0, count, 300):
                    client(*kind().add(key, range(start, min(count, start + 300)), size, rng))
                if count == 1500:
                    for start in range(50, count, 50):
                        client(*kind().remove(key, range(start, start + 50)))
    if not is_redis(DUNLIN):
        for key in ("hash:9:5", "hash:900:5", "hash:4000:5"):
            client("HPEXPIREAT", key, b"4102444800000", "FIELDS", 2, "f1", "f8")


@pytest.mark.parametrize("way", ["rdb", "log"])
def test_forms_are_loaded_as_they_were_before_a_crash(way):
    directives = ["--appendonly", "no" if way == "rdb" else "yes", "--appendfsync", "always"]
    directives += ["--enable-debug-command", "yes"]
    server = Server(*directives)
    try:
        client = Client(server)
        filled(client, random.Random(5))
        if way == "rdb":
            client("SAVE")
        before = client("DEBUG", "DIGEST")
        usage = {key: client("MEMORY", "USAGE", key) for key in client("KEYS", "*")}
        server.process.kill()
        server.process.wait()
        with Server(*directives, files=server.folder) as loaded:
            client = Client(loaded)
            assert client("DEBUG", "DIGEST") == before
            for key, bytes_before in usage.items():
                # The final form at once: none takes much more than it did.
                assert client("MEMORY", "USAGE", key) <= bytes_before * 1.3 + 100, key
            if not is_redis(DUNLIN):
                assert client("HPEXPIRETIME", "hash:900:5", "FIELDS", 1, "f8") == [4102444800000]
    finally:
        server.kill()


# Kind, members, bytes of a value: the most that a key takes, relative to Redis. Redis's own listpacks are as dense as ours.
RATIOS = [
    ("hash", 1, 10, 0.85),
    ("hash", 10, 10, 0.85),
    ("set", 10, 10, 0.4),
    ("sorted set", 10, 10, 0.85),
    ("list", 1, 10, 0.5),
    ("list", 10, 10, 0.7),
    ("list", 3, 100, 0.85),
    ("integers", 10, 0, 0.75),
    ("integers", 200, 0, 1.0),
    ("hash", 3, 100, 0.75),
    ("hash", 20, 100, 0.75),
    ("hash", 8, 150, 0.85),
    ("hash", 100, 100, 0.8),
    ("hash", 300, 100, 0.85),
    ("hash", 600, 10, 0.5),
    ("hash", 1000, 10, 0.5),
    ("hash", 1000, 1, 0.4),
    ("hash", 30, 500, 1.0),
    ("set", 1, 100, 0.8),
    ("set", 129, 10, 0.5),
    ("set", 300, 65, 0.8),
    ("set", 1000, 10, 0.5),
    ("sorted set", 1, 100, 0.4),
    ("sorted set", 129, 10, 0.5),
    ("sorted set", 200, 10, 0.5),
    ("sorted set", 1000, 10, 0.5),
    ("sorted set", 300, 100, 0.8),
]


def used_memory(client):
    lines = client("INFO", "memory").decode().splitlines()
    return next(int(line.split(":")[1]) for line in lines if line.startswith("used_memory:"))


def bytes_a_key(client, kind, members, size):
    rng, keys = random.Random(6), max(20, 1_500_000 // (members * (size + 20)))
    client("FLUSHALL")
    before = used_memory(client)
    for number in range(keys):
        for start in range(0, members, 200):
            client(*kind().add(f"key:{number:010}", range(start, min(members, start + 200)), size, rng))
    return (used_memory(client) - before) / keys


@pytest.mark.skipif(is_redis(DUNLIN), reason="about Dunlin's own memory")
def test_collection_costs_what_it_holds():
    with Server() as ours, Server(program=ORACLE) as theirs:
        ours, theirs = Client(ours), Client(theirs)
        over = []
        for name, members, size, most in RATIOS:
            one, other = (bytes_a_key(client, KINDS[name], members, size) for client in (ours, theirs))
            if one > most * other:
                over.append(f"{name} of {members} × {size}: {one:.0f} beside {other:.0f}, {one / other:.2f} > {most}")
        assert not over, "\n".join(over)
