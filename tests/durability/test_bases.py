"""Logs whose base is commands (aof-use-rdb-preamble no), and logs that hold scripts and relative times as Redis before 7.0
recorded them."""

import hashlib
import time

import pytest

from harness import DUNLIN, ORACLE, Server, is_redis
from log_files import LIBRARY, LOG, Client, await_rewrite, commands, copy_log, digest

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="about Dunlin's log")

COMMANDS = (*LOG, "--aof-use-rdb-preamble", "no", "--appendfsync", "always")

# Values that commands can make, as far as Redis 7.0 goes.
FILL = """
set text v
set int 12345
set expiring v px 100000000
set float 3.25
rpush list 1 2 a
sadd set a b c
sadd ints 1 2 3
hset hash f v g 1
zadd zset -inf a -0.5 b 3 c 0.1 d 1e300 e inf f
xadd stream 1-1 a b
xadd stream 2-1 a c d e
xadd stream 3-1 x y
xdel stream 2-1
xgroup create stream g 0
xreadgroup group g c count 1 streams stream >
xgroup createconsumer stream g idle
xgroup create stream other 1-1 entriesread 5
xadd empty 1-1 a b
xdel empty 1-1
xgroup create none g $ mkstream
select 3
set other database
"""


def fill(client):
    for line in FILL.strip().splitlines():
        assert not str(client.call(*line.split())).startswith("-"), line
    client.call("select", 0)
    client.call("rpush", "list:large", *(f"element {number}" for number in range(1000)))
    client.call("sadd", "set:large", *(f"member {number}" for number in range(1000)))
    client.call("hset", "hash:large", *(word for number in range(1000) for word in (f"field {number}", number)))
    client.call("zadd", "zset:large", *(word for number in range(1000) for word in (number / 8, f"member {number}")))
    client.call("set", "long", "x" * 100_000)
    client.call("pexpire", "long", 100_000_000)
    client.call("function", "load", LIBRARY % ("one", "one", "one"))


@pytest.mark.parametrize("first, second", [(DUNLIN, ORACLE), (ORACLE, DUNLIN), (DUNLIN, DUNLIN)])
def test_base_of_commands_is_loaded_by_both(first, second, tmp_path):
    with Server(*COMMANDS, program=first) as one:
        client = Client(one)
        fill(client)
        client.call("bgrewriteaof")
        await_rewrite(client)
        client.call("set", "behind", "it")
        expected = digest(one)
        groups = client.call("xinfo", "stream", "stream", "full")
        files = copy_log(one, tmp_path)
    (base,) = (files / "appendonlydir").glob("*.base.aof")
    assert not list((files / "appendonlydir").glob("*.rdb"))
    names = {words[0].lower() for words in commands(base.read_bytes())}
    assert {"set", "rpush", "sadd", "zadd", "xadd", "xsetid", "xgroup", "xclaim", "pexpireat", "function"} <= names
    with Server(*COMMANDS, program=second, files=files) as two:
        client = Client(two)
        assert digest(two) == expected
        assert client.call("fcall", "one", 1, "f") == "+OK"
        again = client.call("xinfo", "stream", "stream", "full")
        groups, again = ({name: value for name, value in zip(it[::2], it[1::2])} for it in (groups, again))
        # Commands do not say when a consumer was last seen, and Redis 7.0 knows no producers.
        common = [name for name in groups if name in again and not isinstance(groups[name], list)]
        assert {"length", "last-generated-id", "entries-added"} <= set(common)
        assert {name: groups[name] for name in common} == {name: again[name] for name in common}


def test_base_keeps_what_redis_would_lose():
    """A delivery whose entry is gone, and fields that expire."""
    with Server(*COMMANDS) as server:
        client = Client(server)
        client.call("xadd", "s", "1-1", "a", "b")
        client.call("xgroup", "create", "s", "g", "0")
        client.call("xreadgroup", "group", "g", "c", "streams", "s", ">")
        client.call("xdel", "s", "1-1")
        client.call("hset", "h", "a", 1, "b", 2)
        client.call("hpexpireat", "h", 2_000_000_000_123, "fields", 1, "a")
        client.call("pexpire", "s", 100_000_000)
        client.call("bgrewriteaof")
        await_rewrite(client)
        pending, expected = client.call("xpending", "s", "g"), digest(server)
        assert pending[0] == 1
        assert client.call("debug", "loadaof") == "+OK"
        assert client.call("xpending", "s", "g") == pending
        assert client.call("hpexpiretime", "h", "fields", 2, "a", "b") == [2_000_000_000_123, -1]
        assert digest(server) == expected


def test_base_form_can_be_changed():
    with Server(*LOG) as server:
        client = Client(server)
        client.call("set", "a", "1")
        names = lambda: [path.name for path in (server.folder / "appendonlydir").glob("*.base.*")]
        for preamble, name in (("no", "appendonly.aof.1.base.aof"), ("yes", "appendonly.aof.2.base.rdb"), ("no", "appendonly.aof.3.base.aof")):
            client.call("config", "set", "aof-use-rdb-preamble", preamble)
            client.call("bgrewriteaof")
            await_rewrite(client)
            assert names() == [name]
            assert client.call("debug", "loadaof") == "+OK"
            assert client.call("get", "a") == "1"


def encode(*words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def test_scripts_of_an_older_log_run_again(tmp_path):
    """As Redis before 7.0 recorded them: EVAL first, EVALSHA for the same script later."""
    copy = "for _, m in ipairs(redis.call('smembers', KEYS[1])) do redis.call('rpush', KEYS[2], m) end"
    lines = [
        ("select", 0),
        ("sadd", "s", *"qwertyuiop"),
        ("eval", copy, 2, "s", "l"),
        ("script", "load", "return redis.call('incrby', KEYS[1], ARGV[1])"),
        ("multi",),
        ("evalsha", "SHA", 1, "n", 5),
        ("eval", "redis.call('select', 3) redis.call('set', KEYS[1], 'x') redis.call('publish', 'c', 'm')", 1, "other"),
        ("exec",),
        ("eval", "redis.call('set', KEYS[1], 'half') redis.call('incr', KEYS[1])", 1, "failed"),
        ("set", "last", 1),
    ]
    sha = hashlib.sha1(lines[3][2].encode()).hexdigest()
    data = b"".join(encode(*(sha if word == "SHA" else word for word in words)) for words in lines)
    (tmp_path / "appendonly.aof").write_bytes(data)
    found = []
    for program in (DUNLIN, ORACLE):
        with Server(*LOG, program=program, files=tmp_path) as server:
            client = Client(server)
            values = client.call("mget", "n", "failed", "last")
            assert values == ["5", "half", "1"], server.log()
            assert client.call("select", 3) == "+OK"
            assert client.call("get", "other") == "x"
            client.call("select", 0)
            found.append(sorted(client.call("lrange", "l", 0, -1)))
            if program == DUNLIN:
                # Redis before 7.0 sorted elements without an order by their bytes; 7.0 no longer does.
                assert client.call("lrange", "l", 0, -1) == sorted("qwertyuiop")
                assert "'eval' in the log was refused" in server.log().lower()
            # Scripts of a log belong to no client afterwards.
            assert client.call("script", "exists", sha) == [0] or program == ORACLE
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "call",
    ["time", "lastsave", "publish c m", "spublish c m", "pubsub numsub c", "pubsub channels", "pubsub numpat", "info", "lolwut",
     "command count", "slowlog len", "slowlog get", "memory usage none", "ping", "echo text", "readonly"],
)
def test_logged_scripts_may_ask_the_server(tmp_path, call):
    """Servers before 7.0 let a script ask for the time as long as its writes did not depend on it."""
    words = ", ".join(f"'{word}'" for word in call.split())
    script = f"local answer = redis.pcall({words}) redis.call('set', KEYS[1], type(answer)) return redis.call('incr', KEYS[2])"
    raising = f"redis.call('incr', KEYS[1]) redis.call({words}) return redis.call('incr', KEYS[1])"
    lines = [("select", 0), ("eval", script, 2, "type", "n"), ("eval", raising, 1, "n"), ("set", "last", 1)]
    (tmp_path / "appendonly.aof").write_bytes(b"".join(encode(*words) for words in lines))
    found = []
    # Redis refuses READONLY without a cluster, and 7.0 does not survive an error of a script in a log.
    for program in (DUNLIN, ORACLE) if call != "readonly" else (DUNLIN,):
        with Server(*LOG, program=program, files=tmp_path) as server:
            found.append(Client(server).call("mget", "type", "n", "last"))
            assert program == ORACLE or "was refused" not in server.log()
    assert found[0][1:] == ["3", "1"]
    assert found[0] == found[-1]


# Commands with a time to live of a thousand seconds, as a log may hold them: in words, and in a script.
RELATIVE = {
    "set": "set {key} v ex 1000",
    "setex": "setex {key} 1000 v",
    "psetex": "psetex {key} 1000000 v",
    "getex": "getex {key} px 1000000",
    "expire": "expire {key} 1000",
    "pexpire": "pexpire {key} 1000000",
    "msetex": "msetex 1 {key} v ex 1000",
    "restore": "restore {key} 1000000 PAYLOAD replace",
}
RELATIVE_FIELDS = {
    "hexpire": "hexpire {key} 1000 fields 1 f",
    "hpexpire": "hpexpire {key} 1000000 fields 1 f",
    "hgetex": "hgetex {key} ex 1000 fields 1 f",
    "hsetex": "hsetex {key} px 1000000 fields 1 f v",
}
NOT_IN_REDIS_7 = {"msetex", *RELATIVE_FIELDS}


def milliseconds():
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize("program", [DUNLIN, ORACLE])
def test_relative_times_of_an_older_log_count_from_its_load(program, tmp_path):
    with Server(*LOG) as server:
        client = Client(server)
        client.call("set", "v", "v")
        client.send("dump", "v")
        payload = client.file.read(int(client.file.readline()[1:]) + 2)[:-2]
    call = "return redis.call(unpack(ARGV))"
    known = {name: line for name, line in RELATIVE.items() if program == DUNLIN or name not in NOT_IN_REDIS_7}
    fields = RELATIVE_FIELDS if program == DUNLIN else {}
    data = [encode("select", 0)]
    for name, line in {**known, **fields}.items():
        for key in (name, "script:" + name):
            data.append(encode("hset", key, "f", "v") if name in fields else encode("set", key, "v"))
            words = [payload if word == "PAYLOAD" else word for word in line.format(key=key).split()]
            data.append(encode(*words) if key == name else encode("eval", call, 0, *words))
    data += [
        encode("eval", "redis.call('set', KEYS[1], redis.call('pttl', 'expire'))", 1, "pttl"),
        encode("eval", "redis.call('xadd', KEYS[1], '*', 'f', 'v')", 1, "stream"),
        encode("xgroup", "create", "stream", "g", "0"),
        encode("xgroup", "createconsumer", "stream", "g", "c"),
        encode("set", "passed", "v", "pxat", 1),
    ]
    (tmp_path / "appendonly.aof").write_bytes(b"".join(data))
    before = milliseconds()
    with Server(*LOG, program=program, files=tmp_path) as server:
        after, client = milliseconds(), Client(server)

        def is_loads(at_ms):
            return before <= at_ms <= after

        for name in known:
            for key in (name, "script:" + name):
                assert is_loads(client.call("pexpiretime", key) - 1_000_000), key
        for name in fields:
            for key in (name, "script:" + name):
                (at_ms,) = client.call("hpexpiretime", key, "fields", 1, "f")
                assert is_loads(at_ms - 1_000_000), key
        assert 0 < int(client.call("get", "pttl")) <= 1_000_000
        ((entry, _),) = client.call("xrange", "stream", "-", "+")
        assert is_loads(int(entry.partition("-")[0]))
        (consumer,) = client.call("xinfo", "consumers", "stream", "g")
        idle_ms = consumer[consumer.index("idle") + 1]
        assert idle_ms <= milliseconds() - before
        assert client.call("exists", "passed") == 0


def test_log_with_a_foreign_command_ends_the_start(tmp_path):
    (tmp_path / "appendonly.aof").write_bytes(encode("set", "a", 1) + encode("subscribe", "c"))
    with pytest.raises(Exception, match="does not belong into a log|exited|ended"):
        with Server(*LOG, files=tmp_path):
            pass
