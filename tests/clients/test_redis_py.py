"""redis-py does real work: RESP2 and RESP3, TCP and Unix sockets."""

import time

import pytest
import redis

from lengths import EVERY_LENGTH_MAX, landmarks, pattern


@pytest.fixture(params=[(2, "tcp"), (2, "unix"), (3, "tcp"), (3, "unix")], ids=lambda p: f"resp{p[0]}-{p[1]}")
def client(request, server):
    protocol, network = request.param
    place = {"port": server.port} if network == "tcp" else {"unix_socket_path": str(server.socket)}
    with redis.Redis(**place, protocol=protocol) as client:
        client.flushall()
        yield client


def test_strings(client):
    assert client.set("greeting", "hello") is True
    assert client.append("greeting", " world") == 11
    assert client.get("greeting") == b"hello world"
    assert client.getrange("greeting", 0, 4) == b"hello"
    assert client.setrange("greeting", 6, "redis") == 11
    assert client.get("greeting") == b"hello redis"
    assert client.strlen("greeting") == 11
    assert client.set("greeting", "no", nx=True) is None
    assert client.set("greeting", "bye", get=True) == b"hello redis"
    assert client.getdel("greeting") == b"bye"
    assert client.get("greeting") is None
    assert client.incr("counter", 41) == 41
    assert client.incr("counter") == 42
    assert client.decr("counter", 2) == 40
    assert client.incrbyfloat("float", 1.5) == 1.5
    assert client.mset({"a": 1, "b": 2, "c": 3}) is True
    assert client.mget("a", "nothing", "c") == [b"1", None, b"3"]
    assert client.msetnx({"a": 9, "new": 9}) is False
    assert client.exists("new") == 0


def test_json(client):
    documents = client.json()
    assert documents.set("doc", "$", {"a": 1, "list": [1, 2, 3], "of": {"x": 1.5, "s": "foo"}, "t": True}) is True
    assert documents.set("doc", "$.a", 2, nx=True) is None
    assert documents.set("doc", "$.new", 1, xx=True) is None
    assert documents.get("doc") == {"a": 1, "list": [1, 2, 3], "of": {"x": 1.5, "s": "foo"}, "t": True}
    assert documents.get("doc", "$.of.x") == [1.5]
    assert documents.get("doc", "a", "list") == {"a": 1, "list": [1, 2, 3]}
    assert documents.get("nothing") is None
    assert documents.mset([("one", "$", {"v": 1}), ("two", "$", {"v": 2})]) is True
    assert documents.mget(["one", "two", "nothing"], "$.v") == [[1], [2], None]
    assert documents.numincrby("doc", "$.a", 41) in ([42], [[42]])
    assert documents.nummultby("doc", "$.of.x", 2) in ([3.0], [[3.0]])
    assert documents.toggle("doc", "$.t") == [0]
    assert documents.strappend("doc", "bar", "$.of.s") == [6]
    assert documents.strlen("doc", "$.of.s") == [6]
    assert documents.arrappend("doc", "$.list", 4, {"five": 5}) == [5]
    assert documents.arrindex("doc", "$.list", 3) == [2]
    assert documents.arrinsert("doc", "$.list", 0, 0) == [6]
    assert documents.arrlen("doc", "$.list") == [6]
    assert documents.arrpop("doc", "$.list") == ['{"five":5}'] or documents.get("doc", "$.list[-1]") == [4]
    assert documents.arrtrim("doc", "$.list", 1, 2) == [2]
    assert documents.objkeys("doc", "$.of") in ([["x", "s"]], [[b"x", b"s"]])
    assert documents.objlen("doc", "$.of") == [2]
    assert documents.merge("doc", "$", {"of": None, "more": {"y": [True]}}) is True
    assert documents.type("doc", "$.more.y") in (["array"], [["array"]], [b"array"], [[b"array"]])
    assert documents.clear("doc", "$.list") == 1
    assert documents.get("doc", "$..y") == [[True]]
    assert documents.debug("MEMORY", "doc") > 10
    assert documents.delete("doc", "$.list") == 1
    assert documents.forget("doc") == 1
    with client.pipeline() as pipeline:
        pipeline.json().set("doc", "$", [1])
        pipeline.json().arrappend("doc", "$", 2)
        assert pipeline.execute()[-1] == [2]
    with pytest.raises(redis.ResponseError, match="new objects must be created at the root"):
        documents.set("missing", "$.a", 1)


def test_binary_safety(client):
    every_byte = bytes(range(256))
    for name in (every_byte, b"\r\n$5\r\n", b"", b"\0" * 100):
        client.set(name, every_byte + name)
        assert client.get(name) == every_byte + name
    assert sorted(client.keys()) == sorted([every_byte, b"\r\n$5\r\n", b"", b"\0" * 100])


def test_expiry(client):
    client.set("long", "v", ex=1000)
    assert 990 <= client.ttl("long") <= 1000
    assert client.persist("long") is True
    assert client.ttl("long") == -1
    assert client.ttl("nothing") == -2
    assert client.expireat("long", 33_000_000_000) is True
    assert client.expiretime("long") == 33_000_000_000
    assert client.expire("long", 5, gt=True) is False
    assert client.expire("long", 500, lt=True) is True
    client.set("short", "v", px=20)
    deadline = time.monotonic() + 60
    while client.get("short") is not None:
        assert time.monotonic() < deadline, "the key outlives its time"
    assert client.exists("short") == 0
    # No command asks for these: they have to go by themselves.
    with client.pipeline(transaction=False) as pipe:
        for n in range(1000):
            pipe.set(f"gone:{n}", "v", px=1)
        pipe.execute()
    while client.dbsize() > 1:
        assert time.monotonic() < deadline, "expired keys are not removed in the background"
        time.sleep(0.01)


def test_pipelines(client):
    with client.pipeline(transaction=False) as pipe:
        for n in range(10_000):
            pipe.set(f"key:{n}", n)
            pipe.get(f"key:{n}")
        replies = pipe.execute()
    assert replies[0::2] == [True] * 10_000
    assert replies[1::2] == [str(n).encode() for n in range(10_000)]
    # An error in the middle is that command's own affair.
    with client.pipeline(transaction=False) as pipe:
        pipe.set("text", "abc")
        pipe.incr("text")
        pipe.get("text")
        replies = pipe.execute(raise_on_error=False)
    assert replies[0] is True and isinstance(replies[1], redis.ResponseError) and replies[2] == b"abc"


def test_bitmaps(client):
    for bit in range(0, 1000, 7):
        assert client.setbit("bits", bit, 1) == 0
    assert client.bitcount("bits") == 143
    assert client.getbit("bits", 14) == 1 and client.getbit("bits", 15) == 0
    assert client.bitpos("bits", 1) == 0
    assert client.bitpos("bits", 1, 1) == 14
    client.set("mask", b"\xff" * 10)
    assert client.bitop("AND", "both", "bits", "mask") == 125
    assert client.bitcount("both") == len(range(0, 80, 7))
    fields = client.bitfield("packed").set("u8", "#0", 200).incrby("u8", "#0", 100, "SAT").get("u8", "#0")
    assert fields.execute() == [0, 255, 255]


def test_scan_meets_every_key(client):
    names = {f"key:{n}".encode() for n in range(5_000)}
    client.mset({name: "v" for name in names})
    assert set(client.scan_iter(count=37)) == names
    assert set(client.scan_iter(match="key:*7", count=100)) == {name for name in names if name.endswith(b"7")}
    # Keys that stay throughout are met, however others come and go meanwhile.
    met = set()
    for turn, name in enumerate(client.scan_iter(match="key:*", count=10)):
        met.add(name)
        if turn % 10 == 0:
            client.mset({f"other:{turn}:{n}": "v" for n in range(50)})
        if turn % 500 == 0:
            for other in range(0, turn, 10):
                client.delete(*[f"other:{other}:{n}" for n in range(50)])
    assert met == names


def test_generic(client):
    client.set("source", "v", ex=1000)
    assert client.copy("source", "copy") is True
    assert 990 <= client.ttl("copy") <= 1000
    assert client.rename("copy", "moved") is True
    assert client.exists("source", "copy", "moved") == 2
    assert client.type("moved") == b"string"
    assert client.unlink("moved", "nothing") == 1
    assert client.randomkey() == b"source"
    assert client.object("encoding", "source") in (b"embstr", b"raw")
    with pytest.raises(redis.ResponseError, match="no such key"):
        client.rename("nothing", "x")


def test_information(client):
    info = client.info()
    assert info["redis_version"] and info["connected_clients"] >= 1
    assert client.config_get("port")["port"]
    assert client.client_setname("me") is True
    assert client.client_getname() in ("me", b"me")
    assert client.command_count() > 50
    assert client.ping() is True
    assert client.echo("x") == b"x"
    seconds, micros = client.time()
    assert abs(seconds - time.time()) < 60 and 0 <= micros < 1_000_000


def test_lengths_around_powers(client):
    block = pattern(17 << 20)
    for length in landmarks():
        value = block[length % 251 :][:length]
        client.set("value", value)
        assert client.strlen("value") == length
        assert client.get("value") == value, f"length {length}"
        client.append("value", b"tail")
        assert client.getrange("value", -6, -1) == (value + b"tail")[-6:], f"length {length}"


@pytest.mark.parametrize("client", [(3, "unix")], indirect=True, ids=["resp3-unix"])
def test_values_of_every_length(client):
    block = pattern(EVERY_LENGTH_MAX + 251)
    for first in range(0, EVERY_LENGTH_MAX + 1, 200):
        lengths = range(first, min(first + 200, EVERY_LENGTH_MAX + 1))
        values = [block[length % 251 : length % 251 + length] for length in lengths]
        with client.pipeline(transaction=False) as pipe:
            for slot, value in enumerate(values):
                pipe.set(f"slot:{slot}", value)
            for slot in range(len(values)):
                pipe.get(f"slot:{slot}")
            replies = pipe.execute()
        assert replies[: len(values)] == [True] * len(values)
        for length, value, reply in zip(lengths, values, replies[len(values) :]):
            assert reply == value, f"length {length}"
