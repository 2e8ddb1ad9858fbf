"""A replica that its own clients may write on."""

import pytest

from harness import DUNLIN, ORACLE
from links import Node, settle, until

HOUSES = {"dunlin": DUNLIN, "redis": ORACLE}

# Each writes one key that expires soon.
WRITES = [
    ("SET", "set", "v", "PX", "100"),
    ("PEXPIRE", "list", "100"),
    ("COPY", "set", "copied"),
    ("MOVE", "list", "1"),
    ("EVAL", "return redis.call('set', KEYS[1], 'v', 'PX', '100')", "1", "scripted"),
    ("GETEX", "got", "PX", "100"),
]


@pytest.mark.parametrize("house", HOUSES)
def test_writable_replica_expires_what_was_written_on_it(house):
    with Node(HOUSES[house]) as primary, Node(HOUSES[house], "--replica-read-only", "no") as replica:
        replica.follow(primary.port)
        settle(primary, replica)
        # It removes a key only when a client asks for the key.
        primary.call("DEBUG", "SET-ACTIVE-EXPIRE", "0")
        primary.call("SET", "of the primary", "v", "PX", "100")
        until(lambda: replica.call("DBSIZE") == 1, "the primary's key")
        replica.call("RPUSH", "list", "a")
        replica.call("SET", "got", "v")
        replica.call("SET", "kept", "v", "PX", "60000")
        replica.call("PERSIST", "kept")
        for line in WRITES:
            replica.call(*line)
        replica.call("SET", "late", "v", "EX", "1000")
        assert replica.info("stats")["slave_expires_tracked_keys"] >= 1
        until(lambda: replica.call("GET", "of the primary") is None, "the end of the primary's key")
        # The time of the primary's key has come, but only the primary removes it.
        until(lambda: replica.call("DBSIZE") == 3, "the end of the keys that were written here")
        assert sorted(replica.call("KEYS", "*")) == [b"kept", b"late"]
        until(lambda: "db1" not in replica.info("keyspace"), "the end of the key that was moved")
        until(lambda: replica.info("stats")["slave_expires_tracked_keys"] == 1, "the last key that is tracked")
        assert replica.call("DBSIZE") == 3
        assert primary.call("GET", "of the primary") is None
        until(lambda: replica.call("DBSIZE") == 2, "the primary's deletion")
        replica.call("REPLICAOF", "NO", "ONE")
        until(lambda: replica.info()["role"] == "master", "a primary")
        until(lambda: replica.info("stats")["slave_expires_tracked_keys"] == 0 or house != "dunlin", "no key tracked")
