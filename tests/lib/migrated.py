"""Keys of every type, and MIGRATE from one server to another."""

import itertools

import redis

SLOW = 30_000
KEYS = [
    ("SET", "text", "some text"),
    ("SET", "number", "12345"),
    ("SET", "long", "x" * 3_000_000),
    ("SET", "short-lived", "v", "PX", "1000000"),
    ("RPUSH", "list", *"abc"),
    ("RPUSH", "long list", *(f"element {number}" for number in range(5000))),
    ("SADD", "numbers", 1, 2, 3),
    ("SADD", "set", *"abc"),
    ("HSET", "hash", "a", "1", "b", "2"),
    ("HSET", "large hash", *itertools.chain(*((f"field {n}", n) for n in range(3000)))),
    ("ZADD", "sorted", 1, "a", 2.5, "b"),
    ("XADD", "stream", "1-1", "f", "v"),
    ("XGROUP", "CREATE", "stream", "group", "0"),
]


def reply(server, *words):
    try:
        answer = server.call(*words)
        return answer.decode() if isinstance(answer, bytes) else answer
    except redis.ResponseError as error:
        return f"-{error}"


def migrate(server, port, *words, timeout=SLOW, key="", database=0):
    return reply(server, "MIGRATE", "127.0.0.1", port, key, database, timeout, *words)
