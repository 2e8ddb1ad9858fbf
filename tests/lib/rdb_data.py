"""Keys of every type for RDB files."""

import random

HOUR_MS = 3_600_000


def fill(client):
    """Keys of every type and encoding."""
    rng = random.Random(1)
    client("SET", "int", 5)
    client("SET", "negative", -70000)
    client("SET", "large", 2**62)
    client("SET", "text", "hello")
    client("SET", "compressed", "abc" * 1000)
    client("SET", "noise", rng.randbytes(5000))
    client("SET", "huge", rng.randbytes(1000) * 1000)
    client("SET", b"\x00\xff bin", b"\x00\x01\r\n")
    client("SET", "expiring", "v", "PX", HOUR_MS)
    client("RPUSH", "list:small", "a", 1, "")
    client("RPUSH", "list:large", *(f"element {number}" for number in range(5000)))
    client("RPUSH", "list:plain", "a", "b" * 20000, "c", rng.randbytes(30000))
    client("SADD", "set:16", 1, 2, 3)
    client("SADD", "set:32", 1, 70000)
    client("SADD", "set:64", 1, -5000000000)
    client("SADD", "set:small", "a", "b", 3)
    client("SADD", "set:large", *(f"m{number}" for number in range(700)))
    client("ZADD", "sorted:small", "-inf", "a", 1, "b", 1, "c", 2.5, "d", "inf", "e")
    # Scores whose text is the same with 17 digits and with as few as there need be: digests hold the text.
    client("ZADD", "sorted:long", 1, "m" * 100, -0.5, "b")
    client("ZADD", "sorted:large", *(word for number in range(900) for word in (number / 4, f"m{number}")))
    for number in range(300):
        client("XADD", "stream", f"{number + 1}-1", "field", number, "other", "text")
    client("XDEL", "stream", "7-1")
    client("XGROUP", "CREATE", "stream", "group", "0")
    client("XREADGROUP", "GROUP", "group", "consumer", "COUNT", 20, "STREAMS", "stream", ">")
    client("HSET", "hash:small", "a", 1, "b", "two")
    client("HSET", "hash:long", "a", "v" * 100, "b", 2)
    client("HSET", "hash:large", *(word for number in range(1500) for word in (f"f{number}", number)))
    client("EXPIRE", "hash:small", 1000)
    for number in range(3000):
        client("SET", f"key:{number}", f"value:{number}")
    for database in (3, 15):
        client("SELECT", database)
        client("SET", "other", database)
    client("SELECT", 0)


MODULE_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def module_payload(name, version, value):
    """A dump of a module's value that is one string."""
    number = 0
    for letter in name:
        number = number << 6 | MODULE_LETTERS.index(letter)
    number = number << 10 | version
    assert len(value) < 64
    body = b"\x07\x81" + number.to_bytes(8, "big") + b"\x05" + bytes([len(value)]) + value + b"\x00"
    # A checksum of zero says that there is none.
    return body + (9).to_bytes(2, "little") + bytes(8)
