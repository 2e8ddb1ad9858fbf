"""A denied command changes nothing and reveals nothing: its answer is the same whatever the data are."""

import random

import pytest
from harness import Server
from wire import Session

# What the user may not: the key, the command, the database, the channel.
COMMANDS = [
    "GET {key}",
    "SET {key} 1",
    "SET {key} 1 NX GET",
    "INCR {key}",
    "APPEND {key} x",
    "DEL {key}",
    "UNLINK {key} mine:1",
    "EXISTS {key}",
    "TYPE {key}",
    "TTL {key}",
    "EXPIRE {key} 100",
    "PERSIST {key}",
    "DUMP {key}",
    "OBJECT ENCODING {key}",
    "LPUSH {key} a",
    "LRANGE {key} 0 -1",
    "HGET {key} f",
    "HSET {key} f v",
    "SADD {key} a",
    "ZADD {key} 1 a",
    "XADD {key} * f v",
    "XREAD STREAMS {key} 0",
    "BLPOP {key} 1",
    "MGET mine:1 {key}",
    "MSET mine:1 x {key} y",
    "RENAME {key} mine:2",
    "RENAME mine:1 {key}",
    "COPY {key} mine:2",
    "LMOVE {key} mine:2 LEFT LEFT",
    "SORT mine:1 BY w_* GET {key}*",
    "SINTERSTORE mine:2 {key} mine:1",
    "BITOP AND mine:2 mine:1 {key}",
    "PFMERGE mine:2 {key}",
    "GETRANGE {key} 0 10",
    "RESTORE {key} 0 x",
    "WATCH {key}",
    "KEYS *",
    "SCAN 0",
    "DBSIZE",
    "RANDOMKEY",
    "FLUSHDB",
    "SELECT 3",
    "DEBUG DIGEST",
    "PUBLISH other x",
    "SUBSCRIBE other",
    "CONFIG GET *",
    "ACL LIST",
    "MEMORY USAGE {key}",
]
STATES = [
    "DEL {key}",
    "SET {key} text",
    "SET {key} 12",
    "SET {key} soon PX 100000",
    "RPUSH {key} a b c",
    "HSET {key} f v",
    "SADD {key} a b",
    "ZADD {key} 1 a",
    "XADD {key} 1-1 f v",
]


@pytest.fixture(scope="module")
def place():
    with Server("--enable-debug-command", "yes") as server, Session(server) as root, Session(server) as user:
        rules = "on nopass ~mine:* &mine:* resetchannels +@all -@dangerous -scan -dbsize -randomkey -select -config -acl -publish"
        assert root("ACL", "SETUSER", "user", *rules.split()) == "OK"
        assert user("AUTH", "user", "x") == "OK"
        yield root, user


def test_answers_do_not_depend_on_data(place):
    root, user = place
    rng = random.Random(27)
    for line in COMMANDS:
        answers = set()
        for state in rng.sample(STATES, 5):
            for key in ("other:1",):
                root("DEL", key)
                root(*state.format(key=key).split())
                root("SET", "mine:1", "own")
                before = root("DEBUG", "DIGEST")
                user.send(*line.format(key=key).split())
                answer = user.read()
                assert isinstance(answer, str) and answer.startswith("-NOPERM"), (line, state, answer)
                answers.add(answer)
                assert root("DEBUG", "DIGEST") == before, (line, state)
        assert len(answers) == 1, (line, answers)


def test_denied_command_in_a_transaction_or_script_reveals_nothing(place):
    root, user = place
    for state in STATES:
        root("DEL", "other:1")
        root(*state.format(key="other:1").split())
        before = root("DEBUG", "DIGEST")
        assert user("MULTI") == "OK"
        assert user("GET", "other:1").startswith("-NOPERM")
        assert user("EXEC").startswith("-EXECABORT")
        answer = user("EVAL", "return redis.pcall('GET', 'other:1')", "0")
        assert "can.t access at least one of the keys" in answer.replace("'", "."), answer
        assert root("DEBUG", "DIGEST") == before


def test_unknown_and_denied_options_are_not_told_apart_by_keys(place):
    """Mistakes in a request that is denied are not looked for."""
    root, user = place
    root("SET", "other:1", "x")
    one = user("SET", "other:1", "1", "NONSENSE")
    root("DEL", "other:1")
    assert user("SET", "other:1", "1", "NONSENSE") == one and one.startswith("-NOPERM")
