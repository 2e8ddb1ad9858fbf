"""Values of types that Dunlin does not have: TYPE, SCAN, OBJECT and MEMORY answer as clients expect (docs/decisions/0095)."""

import pytest

from harness import DUNLIN, REDIS_VERSIONS, Server, is_redis
from peer import Failure, Peer

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="Redis answers so with the modules loaded alone")

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
# Names of types as TYPE answers them, with the encoding version of their newest module.
TYPES = {
    "ReJSON-RL": 3,
    "MBbloom--": 4,
    "MBbloomCF": 4,
    "CMSk-TYPE": 0,
    "TopK-TYPE": 0,
    "TDIS-TYPE": 0,
    "TSDB-TYPE": 8,
    "vectorset": 0,
    "bloomfltr": 1,
}


def payload(name, version, value):
    """A dump of a module's value that is one string."""
    number = 0
    for letter in name:
        number = number << 6 | LETTERS.index(letter)
    number = number << 10 | version
    assert len(value) < 64
    body = b"\x07\x81" + number.to_bytes(8, "big") + b"\x05" + bytes([len(value)]) + value + b"\x00"
    # A checksum of zero says that there is none.
    return body + (9).to_bytes(2, "little") + bytes(8)


@pytest.fixture
def client(server):
    with Peer(server) as client:
        client.ask("FLUSHALL")
        yield client


def has_commands(client, name):
    commands = {"ReJSON-RL": "json.get", "MBbloom--": "bf.add", "vectorset": "vadd", "TSDB-TYPE": "ts.add"}
    return client.ask("COMMAND", "INFO", commands.get(name, "no.such")) != [None]


@pytest.mark.parametrize("name", TYPES)
def test_kept_value_has_the_name_of_its_type(client, name):
    if has_commands(client, name):
        pytest.skip("the type is there")
    dump = payload(name, TYPES[name], b"a value")
    assert client.ask("RESTORE", "key", 0, dump) == "OK"
    assert client.ask("RESTORE", "other", 0, payload("ReJSON-RM", 0, b"x")) == "OK"
    client.ask("SET", "text", "1")
    assert client.ask("TYPE", "key") == name
    assert client.ask("SCAN", 0, "COUNT", 1000, "TYPE", name) == ["0", ["key"]]
    assert client.ask("SCAN", 0, "COUNT", 1000, "TYPE", name.lower()) == ["0", ["key"]]
    assert client.ask("OBJECT", "ENCODING", "key") == "raw"
    assert client.ask("OBJECT", "REFCOUNT", "key") == 1
    bytes_used = client.ask("MEMORY", "USAGE", "key")
    assert len(dump) <= bytes_used <= len(dump) + 160, "its bytes, the key and some 56"
    assert client.ask("EXISTS", "key") == 1 and client.ask("TTL", "key") == -1
    for words in (["GET", "key"], ["LPUSH", "key", "a"], ["HGETALL", "key"], ["XADD", "key", "*", "a", "b"]):
        assert client.ask(*words).startswith("WRONGTYPE "), words
    assert client.ask("COPY", "key", "copy") == 1 and client.ask("RENAME", "copy", "renamed") == "OK"
    assert client.ask("DUMP", "renamed")[:-10] == dump.decode("latin1")[:-10]
    assert client.ask("EXPIRE", "renamed", 100) == 1 and client.ask("DEL", "key", "renamed") == 2


def test_types_that_are_not_there_are_counted_by_no_other_type(client):
    client.ask("RESTORE", "key", 0, payload("ReJSON-RL", 3, b"{}"))
    client.ask("SET", "text", "1")
    for kind in ("string", "hash", "list", "set", "zset", "stream", "nothing"):
        found = client.ask("SCAN", 0, "COUNT", 1000, "TYPE", kind)
        assert isinstance(found, Failure) or "key" not in found[1], kind


@pytest.mark.skipif("8.2" not in REDIS_VERSIONS, reason="no server of Redis 8.2 (scripts/get-redis.sh)")
def test_vector_set_of_redis_answers_as_there(client):
    if has_commands(client, "vectorset"):
        pytest.skip("the type is there")
    with Server(program=REDIS_VERSIONS["8.2"]) as redis, Peer(redis) as other:
        for number in range(20):
            other.ask("VADD", "v", "VALUES", 3, number, 1, 0.5, f"element {number}")
        # Peer reads text as Latin-1, which keeps the bytes.
        dump = other.ask("DUMP", "v").encode("latin1")
        assert client.ask("RESTORE", "v", 0, dump) == "OK"
        for line in ("TYPE v", "OBJECT ENCODING v", "OBJECT REFCOUNT v", "SCAN 0 TYPE vectorset", "GET v"):
            assert client.line(line) == other.line(line), line
        assert client.ask("DUMP", "v")[:-10] == other.ask("DUMP", "v")[:-10]
        # And back.
        assert other.ask("RESTORE", "back", 0, client.ask("DUMP", "v").encode("latin1")) == "OK"
        assert other.ask("VCARD", "back") == 20
