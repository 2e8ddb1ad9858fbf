"""Subkey notifications of Redis 8.8: the four kinds of channels, their payloads, and what turns them on. Neither oracle has them: the
messages are those of its documentation."""

import pytest

from harness import DUNLIN, is_redis
from links import Node, settle
from peer import Failure, Peer
from wire import eventually

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="Redis has them from 8.8 on")


class Subscriber:
    """Hears all messages about subkeys, and about keys."""

    def __init__(self, server, boss):
        self.peer, self.boss = Peer(server), boss
        for pattern in ("__subkey*", "__key*", "end"):
            self.peer.ask("PSUBSCRIBE", pattern)

    def heard(self):
        """The messages so far, in order: channel and payload. All come before the last one."""
        self.boss.line("PUBLISH end all")
        messages = []
        while (message := self.peer.read())[2] != "end":
            messages.append(tuple(message[2:]))
        return messages


@pytest.fixture
def boss(server):
    with Peer(server) as boss:
        boss.line("FLUSHALL")
        yield boss
        boss.ask("CONFIG", "SET", "notify-keyspace-events", "")


@pytest.fixture
def subscriber(server, boss):
    subscriber = Subscriber(server, boss)
    with subscriber.peer:
        yield subscriber


def of(letters, event, key, *fields, database=0):
    """The messages about an event of fields, for each kind of channel."""
    listed = ",".join(f"{len(field)}:{field}" for field in fields)
    messages = {
        "S": [(f"__subkeyspace@{database}__:{key}", f"{event}|{listed}")],
        "T": [(f"__subkeyevent@{database}__:{event}", f"{len(key)}:{key}|{listed}")],
        "I": [(f"__subkeyspaceitem@{database}__:{key}\n{field}", event) for field in fields if "\n" not in key],
        "V": [(f"__subkeyspaceevent@{database}__:{event}|{key}", listed)],
    }
    return [message for letter in letters for message in messages[letter]]


@pytest.mark.parametrize("letters", ["S", "T", "I", "V", "STIV"])
def test_letters_are_kinds_of_channels(boss, subscriber, letters):
    assert boss.line(f"CONFIG SET notify-keyspace-events {letters}h") == "OK"
    boss.line("HSET h f 1 longer 2 f 3")
    assert subscriber.heard() == of(letters, "hset", "h", "f", "longer", "f")
    boss.line("SELECT 3")
    boss.line("HDEL h nosuch")
    boss.line("HSET h a 1")
    assert subscriber.heard() == of(letters, "hset", "h", "a", database=3)
    boss.line("SELECT 0")


def test_channels_of_keys_and_of_subkeys_are_independent(boss, subscriber):
    for letters, keys, subkeys in (("KEA", True, False), ("ASTIV", False, True), ("KESTIVh", True, True), ("KESTIVg", False, False), ("STIV", False, False)):
        boss.line(f"CONFIG SET notify-keyspace-events {letters}")
        boss.line("HSET h f 1")
        expected = [("__keyspace@0__:h", "hset"), ("__keyevent@0__:hset", "h")] if keys else []
        assert subscriber.heard() == expected + (of("STIV", "hset", "h", "f") if subkeys else []), letters
    assert boss.line("CONFIG GET notify-keyspace-events")[1] == "STIV"


def test_events_that_are_about_no_fields_have_no_subkeys(boss, subscriber):
    boss.line("CONFIG SET notify-keyspace-events ASTIV")
    boss.line("SET text 1")
    boss.line("SADD set a")
    boss.line("HSET h f 1")
    assert subscriber.heard() == of("STIV", "hset", "h", "f")
    boss.line("RENAME h g")
    boss.line("DEL g")
    assert subscriber.heard() == []


def test_names_with_separators_are_unambiguous(boss, subscriber):
    boss.line("CONFIG SET notify-keyspace-events STIVh")
    boss.ask("HSET", "a|b", "1:x,2", "v", "", "v", "new\nline", "v")
    assert subscriber.heard() == of("STIV", "hset", "a|b", "1:x,2", "", "new\nline")
    boss.ask("HSET", "k\nl", "f", "v")
    assert subscriber.heard() == of("STV", "hset", "k\nl", "f")


def test_transactions_and_scripts_tell_each_change(boss, subscriber):
    boss.line("CONFIG SET notify-keyspace-events Th")
    for line in ("MULTI", "HSET h a 1", "HINCRBY h b 1", "HDEL h a b", "EXEC"):
        boss.line(line)
    boss.ask("EVAL", "redis.call('HSET', KEYS[1], 'a', 1) redis.call('HGETDEL', KEYS[1], 'FIELDS', 1, 'a')", 1, "h")
    expected = [("hset", "a"), ("hincrby", "b"), ("hdel", "a", "b"), ("hset", "a"), ("hdel", "a")]
    assert subscriber.heard() == [message for event, *fields in expected for message in of("T", event, "h", *fields)]
    boss.line("HIMPORT PREPARE s x y")
    boss.line("HIMPORT SET h s 1 2")
    assert subscriber.heard() == of("T", "hset", "h", "x", "y")


def test_fields_that_expire_are_named(boss, subscriber):
    boss.line("CONFIG SET notify-keyspace-events STIVh")
    boss.line("HSET h stays 1")
    boss.line("HSETEX h PX 1 FIELDS 2 a 1 b 2")
    messages = []

    def expired():
        messages.extend(subscriber.heard())
        return any("hexpired" in channel for channel, _ in messages)

    eventually(expired, "the fields expire")
    fields = [field for channel, field in messages if channel.startswith("__subkeyspaceevent@0__:hexpired")]
    assert sorted(",".join(fields).split(",")) == ["1:a", "1:b"]


def test_replicas_tell_their_own_subscribers():
    with Node(DUNLIN) as primary, Node(DUNLIN, "--notify-keyspace-events", "STIVh") as replica:
        replica.follow(primary.port)
        settle(primary, replica)
        with Peer(replica) as boss, Subscriber(replica, boss).peer as peer:
            primary.call("HSET", "h", "a", 1, "b", 2)
            settle(primary, replica)
            messages = [tuple(peer.read()[2:]) for _ in range(5)]
            assert messages == of("STIV", "hset", "h", "a", "b")


def test_letters_without_a_meaning_are_refused(boss):
    for letters in ("STIVq", "W"):
        reply = boss.line(f"CONFIG SET notify-keyspace-events {letters}")
        assert isinstance(reply, Failure) and "Invalid event class character" in reply


def test_users_hear_of_the_channels_that_their_rules_allow(server, boss):
    boss.line("CONFIG SET notify-keyspace-events STIVh")
    boss.line("ACL SETUSER app on nopass +@all ~* resetchannels &__subkeyspace@0__:mine")
    with Peer(server) as client:
        client.line("AUTH app x")
        assert client.line("SUBSCRIBE __subkeyspace@0__:other").startswith("NOPERM")
        assert client.line("PSUBSCRIBE __subkeyspaceitem@0__:*").startswith("NOPERM")
        assert client.line("SUBSCRIBE __subkeyspace@0__:mine")[0] == "subscribe"
        boss.line("HSET mine f 1")
        assert client.read() == ["message", "__subkeyspace@0__:mine", "hset|1:f"]
    boss.line("ACL DELUSER app")
