"""Captured files of real servers: data sets with every type, as snapshots and as append-only files, and what those servers
said of each key. `tests/.env/bin/python tests/lib/captures.py` makes tests/persistence/captures again, with the servers and
modules that scripts/get-redis.sh unpacks.

    NAME/dump.rdb          SAVE
    NAME/appendonlydir/    BGREWRITEAOF, and then the commands of `change`
    NAME/keys.json         what `describe` says, after `change`; NAME/keys-rdb.json before it
"""

import hashlib
import json
import pathlib
import shutil
import time

from harness import REDIS_VERSIONS, ROOT, Server
from resp import Client

FOLDER = ROOT / "tests" / "persistence" / "captures"
# Those of the package that has the server.
MODULES = [
    ROOT / "tests" / ".env" / "redis" / "modules-7.4" / f"{name}.so" for name in ("rejson", "redisbloom", "redistimeseries", "redisearch")
]
WITH_MODULES = [word for path in MODULES for word in ("--loadmodule", path)]
HAS_MODULES = "7.4" in REDIS_VERSIONS and all(path.exists() for path in MODULES)
# name: the server's version, its directives, and which values of modules it has.
CAPTURES = {
    "redis-7.4-commands": ("7.4", ["--aof-use-rdb-preamble", "no"], None),
    "redis-stack-7.4": ("7.4", WITH_MODULES, "stack"),
    "redis-8.2": ("8.2", [], "vectors"),
}
# Small files have all encodings.
LIMITS = ("--hash-max-listpack-entries", 64, "--list-max-listpack-size", 32, "--set-max-listpack-entries", 64, "--zset-max-listpack-entries", 64)
DEBUG = ("--enable-debug-command", "yes")
# In the year 2100, ms.
LATE = 4_102_444_800_000
# How values of Redis's own types are read. Digests of servers differ: Redis 7.4 mixes in whether fields expire.
CORE = {
    b"string": lambda client, key: client("GET", key),
    b"list": lambda client, key: client("LRANGE", key, 0, -1),
    b"set": lambda client, key: sorted(client("SMEMBERS", key)),
    b"zset": lambda client, key: [float(word) if at % 2 else word for at, word in enumerate(client("ZRANGE", key, 0, -1, "WITHSCORES"))],
    b"hash": lambda client, key: sorted(zip(*[iter(client("HGETALL", key))] * 2)),
    b"stream": lambda client, key: [client("XRANGE", key, "-", "+"), stream_state(client, key)],
}
LIBRARY = "#!lua name=one\nredis.register_function('one', function() return 7 end)"
# The types of modules that Dunlin has, so that it reads their values.
HERE = {"ReJSON-RL"}
# The key of a module's value: the command that reads it. Iterators, sizes in memory and the like are left out.
READS = {
    "json": ("JSON.GET", "json", "$"),
    "json:text": ("JSON.GET", "json:text", "$"),
    "bloom": ("BF.MEXISTS", "bloom", *range(0, 400, 7)),
    "cuckoo": ("CF.MEXISTS", "cuckoo", *range(0, 90, 7)),
    "sketch": ("CMS.QUERY", "sketch", *range(20)),
    "top": ("TOPK.LIST", "top", "WITHCOUNT"),
    "digest": ("TDIGEST.QUANTILE", "digest", "0.1", "0.5", "0.9"),
    "series": ("TS.RANGE", "series", "-", "+"),
    "series:plain": ("TS.RANGE", "series:plain", "-", "+"),
    "series:mean": ("TS.RANGE", "series:mean", "-", "+"),
    "vectors": ("VSIM", "vectors", "VALUES", 3, 1, 2, 3, "COUNT", 4),
}


def fill(client, modules):
    """Keys of every type in every encoding, and of the modules that the server has."""
    client("SET", "string:integer", 12345)
    client("SET", "string:negative", -70_000)
    client("SET", "string:short", "hello")
    client("SET", "string:long", "compressible " * 80)
    client("SET", "string:bytes", bytes(range(256)))
    client("SET", "string:empty", "")
    client("SET", "string:expiring", "x", "PXAT", LATE)
    client("SETBIT", "string:bits", 700, 1)
    client("PFADD", "string:loglog", *range(50))
    client("RPUSH", "list:packed", 1, -2, 300, 70_000, 5_000_000_000, "text", "")
    client("RPUSH", "list:nodes", *(f"element {number} " * 6 for number in range(90)))
    client("RPUSH", "list:plain", "before", "x" * 9_000, "behind")
    client("SADD", "set:16", 1, -2, 300)
    client("SADD", "set:32", 1, 70_000)
    client("SADD", "set:64", 1, 5_000_000_000)
    client("SADD", "set:packed", "a", "b", 3)
    client("SADD", "set:table", *(f"member {number}" for number in range(80)))
    client("ZADD", "sorted:packed", 1, "a", "2.5", "b", "-inf", "c")
    client("ZADD", "sorted:skiplist", *(word for number in range(80) for word in (number / 3, f"member {number}")))
    client("GEOADD", "sorted:places", "13.361389", "38.115556", "Palermo", "15.087269", "37.502669", "Catania")
    client("HSET", "hash:packed", "a", 1, "b", "text", "c", "")
    client("HSET", "hash:table", *(word for number in range(80) for word in (f"field {number}", number)))
    client("HSET", "hash:packed:expiring", "a", 1, "b", 2, "c", 3)
    client("HPEXPIREAT", "hash:packed:expiring", LATE, "FIELDS", 2, "a", "c")
    client("HSET", "hash:table:expiring", *(word for number in range(80) for word in (f"field {number}", number)))
    client("HPEXPIREAT", "hash:table:expiring", LATE + 5, "FIELDS", 1, "field 7")
    client("PEXPIREAT", "hash:table:expiring", LATE + 9)
    for number in range(1, 150):
        client("XADD", "stream", f"{number}-{number % 3 + 1}", "n", number, "text", f"entry {number}")
    client("XDEL", "stream", "7-2", "8-3")
    client("XGROUP", "CREATE", "stream", "group", "0")
    client("XREADGROUP", "GROUP", "group", "one", "COUNT", 5, "STREAMS", "stream", ">")
    client("XREADGROUP", "GROUP", "group", "two", "COUNT", 3, "STREAMS", "stream", ">")
    client("XACK", "stream", "group", "1-2")
    client("XGROUP", "CREATECONSUMER", "stream", "group", "idle")
    client("XADD", "stream:empty", "MAXLEN", 0, "9-9", "a", 1)
    client("FUNCTION", "LOAD", LIBRARY)
    client("SELECT", 3)
    client("SET", "elsewhere", "in database 3")
    client("SELECT", 0)
    if modules == "stack":
        fill_stack(client)
    elif modules == "vectors":
        for number in range(12):
            client("VADD", "vectors", "VALUES", 3, number, number * 2, 5 - number, f"element {number}")
        client("VSETATTR", "vectors", "element 3", '{"year":1980}')
        client("VADD", "vectors:plain", "VALUES", 2, 1, 2, "one", "NOQUANT", "M", 8)


def fill_stack(client):
    """Values of each module of Redis Stack, and an index."""
    client("JSON.SET", "json", "$", '{"a":[1,2.5,-3,null,true,{"b":"text"}],"big":12345678901234567890,"empty":{},"é":"ü"}')
    client("JSON.SET", "json:text", "$", json.dumps({f"member {number}": [number] * 3 for number in range(40)}))
    client("PEXPIREAT", "json:text", LATE)
    client("BF.RESERVE", "bloom", "0.01", 50)
    client("BF.MADD", "bloom", *range(200))
    client("CF.RESERVE", "cuckoo", 64)
    for number in range(60):
        client("CF.ADD", "cuckoo", number)
    client("CMS.INITBYDIM", "sketch", 60, 4)
    client("CMS.INCRBY", "sketch", *(word for number in range(30) for word in (number, number + 1)))
    client("TOPK.RESERVE", "top", 4, 16, 4, "0.9")
    client("TOPK.ADD", "top", *"aaabbbccddeffffff")
    client("TDIGEST.CREATE", "digest", "COMPRESSION", 30)
    client("TDIGEST.ADD", "digest", *(number * number for number in range(60)))
    client("TS.CREATE", "series", "LABELS", "place", "attic", "kind", "temperature")
    client("TS.CREATE", "series:mean", "RETENTION", 0)
    client("TS.CREATERULE", "series", "series:mean", "AGGREGATION", "avg", 1_000)
    client("TS.CREATE", "series:plain", "ENCODING", "UNCOMPRESSED", "CHUNK_SIZE", 128)
    for number in range(120):
        client("TS.ADD", "series", 1_000 + number * 100, number / 7)
    for number in range(10):
        client("TS.ADD", "series:plain", 1_000 + number, number)
    client("FT.CREATE", "index", "ON", "HASH", "PREFIX", 1, "hash:", "SCHEMA", "b", "TEXT", "a", "NUMERIC")


def change(client):
    """Commands that stand behind the base of an append-only file; all of them are known to servers without modules."""
    client("DEL", "set:16", "list:plain")
    client("RENAME", "string:short", "string:renamed")
    client("INCRBY", "string:integer", 7)
    client("LPOP", "list:packed", 2)
    client("HPERSIST", "hash:packed:expiring", "FIELDS", 1, "a")
    client("HPEXPIREAT", "hash:packed", LATE, "FIELDS", 1, "b")
    client("ZINCRBY", "sorted:packed", "1.5", "a")
    client("XADD", "stream", "1000-1", "last", 1)
    client("MULTI")
    client("SET", "together", 1)
    client("SADD", "set:packed", "c")
    client("EXEC")
    client("EVAL", "redis.call('SET', KEYS[1], ARGV[1])", 1, "scripted", "by a script")
    client("SELECT", 3)
    client("APPEND", "elsewhere", " and longer")
    client("SELECT", 0)


def stream_state(client, key):
    """What a server knows of a stream beside its entries, but for times."""
    said = client("XINFO", "STREAM", key)
    said = dict(zip(said[::2], said[1::2]))
    known = [said[name] for name in (b"length", b"last-generated-id", b"max-deleted-entry-id", b"entries-added")]
    groups = client("XINFO", "GROUPS", key)
    waiting = [client("XPENDING", key, group[1], "-", "+", 100) for group in groups]
    return known, groups, [[entry[:2] + entry[3:] for entry in entries] for entries in waiting]


def value_of(client, key):
    """A module's value as files have it: DUMP without the type in front, the version and the checksum."""
    return client("DUMP", key)[1:-10]


def describe(client, read_modules=False):
    """What a server says of all its keys, by database and name: types, times of expiry, and hashes of what Redis's own types
    hold. With `read_modules`, what the modules' commands answer, too: of all types, or of a set of them."""
    databases = {}
    for database in (0, 3):
        client("SELECT", database)
        keys = databases[str(database)] = {}
        for key in sorted(client("KEYS", "*")):
            name, kind = key.decode(), client("TYPE", key)
            said = keys[name] = {"type": kind.decode(), "expires": client("PEXPIRETIME", key)}
            if kind in CORE:
                said["holds"] = hashlib.sha256(repr(CORE[kind](client, key)).encode()).hexdigest()[:32]
            elif (read_modules is True or read_modules and said["type"] in read_modules) and name in READS:
                said["read"] = shown(client(*READS[name]))
            if kind == b"hash":
                fields = sorted(client("HKEYS", key))
                times = client("HPEXPIRETIME", key, "FIELDS", len(fields), *fields)
                said["fields"] = {field.decode(): at for field, at in zip(fields, times) if at != -1}
        client("SELECT", 0)
    functions = sorted(shown(library)[1] for library in client("FUNCTION", "LIST"))
    return {"functions": functions, "databases": databases}


def shown(reply):
    """A reply as JSON can hold it."""
    if isinstance(reply, list):
        return [shown(part) for part in reply]
    return reply.decode() if isinstance(reply, bytes) else reply


def kept(name, file):
    """What the captured server said of its keys: `keys.json` or `keys-rdb.json`."""
    return json.loads((FOLDER / name / file).read_text())


def without_reads(described):
    """A description of a server with modules as Dunlin gives it with `read_modules=HERE`."""
    for keys in described["databases"].values():
        for said in keys.values():
            if said["type"] not in HERE:
                said.pop("read", None)
    return described


def make(name):
    version, directives, modules = CAPTURES[name]
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with Server(*DEBUG, *LIMITS, "--appendonly", "yes", *directives, program=REDIS_VERSIONS[version]) as server:
        client = Client(server)
        fill(client, modules)
        client("SAVE")
        write(folder / "keys-rdb.json", describe(client, read_modules=True))
        shutil.copy(server.folder / "dump.rdb", folder)
        client("BGREWRITEAOF")
        while b"aof_rewrite_in_progress:0\r\naof_rewrite_scheduled:0" not in client("INFO", "persistence"):
            time.sleep(0.01)
        change(client)
        write(folder / "keys.json", describe(client, read_modules=True))
        # An append-only file is written before the reply leaves.
        shutil.copytree(server.folder / "appendonlydir", folder / "appendonlydir")


def write(path: pathlib.Path, described):
    path.write_text(json.dumps(described, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    for name in CAPTURES:
        make(name)
