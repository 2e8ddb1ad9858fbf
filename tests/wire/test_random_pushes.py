"""Random commands of several clients, in both protocols: each hears the same from the server under test as from Redis.

One command is sent at a time. The replies to a client are compared in order. Its pushes (messages,
invalidations) are compared per command, since Redis sends those of several patterns in the order of
a hash table and may send a client's own message before the reply.
"""

import itertools
import os
import random

import pytest

from harness import DUNLIN, ORACLE, Server, is_redis
from peer import Peer

STEPS = int(os.environ.get("RANDOM_PUSHES_STEPS", "2000"))
TOLD = {"message", "pmessage", "smessage", "invalidate"}
PONGS = ("PONG", ["pong", ""])
# Answers that have no order of their own.
UNORDERED = ("PUBSUB CHANNELS", "PUBSUB SHARDCHANNELS", "CLIENT TRACKINGINFO", "KEYS")


def is_told(item):
    return isinstance(item, list) and bool(item) and isinstance(item[0], str) and item[0] in TOLD


def sortable(item):
    """The same for equal items, in any order inside."""
    return repr(sorted(map(sortable, item)) if isinstance(item, list) else item)


# Facts of HELLO that are the server's own: the client's number, and the version and modules that are announced.
OWN_FACTS = ("id", "version", "modules")


def without_id(item):
    """An answer; that of HELLO without the facts that are the server's own, wherever they stand."""
    if isinstance(item, dict):
        return {name: value for name, value in item.items() if name not in OWN_FACTS}
    if isinstance(item, list) and "id" in item:
        pairs = zip(item[::2], item[1::2])
        return [part for name, value in pairs if name not in OWN_FACTS for part in (name, value)]
    return [without_id(part) for part in item] if isinstance(item, list) else item


def without_age(item):
    """An answer with one number in the place of all seconds that are left of the 100 which keys get: two servers are not asked in
    the same millisecond."""
    if isinstance(item, list):
        return [without_age(part) for part in item]
    return 100 if type(item) is int and 50 <= item <= 100 else item


class Trio:
    """The clients of one server."""

    def __init__(self, server, protocols):
        self.server = server
        self.peers = [Peer(server, protocol) for protocol in protocols]

    def settle(self):
        """The pushes of every client so far; Redis sends some only after it has looked at all sockets."""
        heard = [[] for _ in self.peers]
        for _ in range(2):
            for peer in self.peers:
                peer.send("PING")
            for peer, items in zip(self.peers, heard):
                while (item := peer.read()) not in PONGS:
                    items.append(item)
        return heard

    def close(self):
        for peer in self.peers:
            peer.close()


def names(rng, words, most):
    return " ".join(rng.choice(words) for _ in range(rng.randint(1, most)))


def message(rng):
    """A command around messages."""
    channel, pattern = ["a", "b", "ab", "news", "__keyevent@0__:set"], ["*", "a*", "?", "n[ef]ws", "__key*__:*"]
    draw = rng.random()
    if draw < 0.28:
        verb = rng.choice(["SUBSCRIBE", "SSUBSCRIBE"])
        return f"{verb} {names(rng, channel, 3)}"
    if draw < 0.36:
        return f"PSUBSCRIBE {names(rng, pattern, 2)}"
    if draw < 0.5:
        verb, known = rng.choice([("UNSUBSCRIBE", channel), ("SUNSUBSCRIBE", channel), ("PUNSUBSCRIBE", pattern)])
        return f"{verb} {names(rng, known, 2)}"
    if draw < 0.53:
        return rng.choice(["RESET", "HELLO 3", "HELLO 2", "SUBSCRIBE", "PUBLISH a"])
    if draw < 0.78:
        return f"{rng.choice(['PUBLISH', 'PUBLISH', 'SPUBLISH'])} {rng.choice(channel)} {rng.randint(0, 99)}"
    if draw < 0.86:
        return rng.choice(
            ["PUBSUB CHANNELS", "PUBSUB CHANNELS a*", "PUBSUB NUMSUB a b ab none", "PUBSUB NUMPAT"]
            + ["PUBSUB SHARDCHANNELS", "PUBSUB SHARDNUMSUB a b", "PUBSUB NUMSUB", "PUBSUB WHAT"]
        )
    if draw < 0.92:
        return rng.choice(["SET k 1", "DEL k", "INCR n", "RPUSH l 1 2", "LPOP l", "RENAME k m", "SADD s x", "EXPIRE k 100"])
    return rng.choice(
        ["EVAL return(redis.call('publish','a',1)) 0", "EVAL return(redis.call('spublish','b',2)) 0"]
        + ["EVAL redis.call('set','k',1);redis.call('publish','news','x');redis.call('del','k') 0"]
    )


def invalidation(rng):
    """A command around tracking. (With BCAST, scripts of Redis 7.0 do not know of NOLOOP.)"""
    key = lambda: rng.choice(["a:1", "a:2", "b:1", "b:2", "c"])
    draw = rng.random()
    if draw < 0.12:
        options = rng.choice(
            ["", "", " OPTIN", " OPTOUT", " NOLOOP", " BCAST", " BCAST PREFIX a:", " BCAST PREFIX a: PREFIX b:"]
            + [" PREFIX a:", " OPTIN OPTOUT", " BCAST OPTIN", " BCAST PREFIX a PREFIX a:", " REDIRECT 999999"]
        )
        return f"CLIENT TRACKING {rng.choice(['ON', 'ON', 'ON', 'OFF'])}{options}"
    if draw < 0.16:
        return rng.choice(["CLIENT CACHING YES", "CLIENT CACHING NO", "CLIENT TRACKINGINFO", "CLIENT GETREDIR"])
    if draw < 0.5:
        return rng.choice(
            [f"GET {key()}", f"MGET {key()} {key()}", f"EXISTS {key()}", f"STRLEN {key()}", f"TTL {key()}"]
            + [f"EVAL return(redis.call('get',KEYS[1])) 1 {key()}", f"EVAL_RO return(redis.call('get',KEYS[1])) 1 {key()}"]
        )
    if draw < 0.97:
        return rng.choice(
            [f"SET {key()} 1", f"SET {key()} 2 EX 100", f"DEL {key()}", f"DEL {key()} {key()}", f"APPEND {key()} x"]
            + [f"MSET {key()} 1 {key()} 2", f"EXPIRE {key()} 100", f"PERSIST {key()}", f"RENAME {key()} {key()}"]
            + [f"EVAL redis.call('set',KEYS[1],1) 1 {key()}", f"SETNX {key()} 1", f"EXPIRE {key()} -1", f"UNLINK {key()}"]
        )
    return rng.choice(["FLUSHALL", "FLUSHDB", "RESET", "HELLO 3"])


def step(rng, draw):
    """A command, or several in a transaction; not of messages, which Redis 7.0 puts into the middle of EXEC's answer."""
    if draw is message or rng.random() < 0.9:
        return [draw(rng)]
    # The receivers are decided when the key changes; Redis decides them when the transaction has
    # ended.
    inside = (line for line in iter(lambda: draw(rng), None) if not line.startswith(("HELLO", "RESET", "CLIENT TRACKING ")))
    return ["MULTI", *itertools.islice(inside, rng.randint(0, 3)), rng.choice(["EXEC", "EXEC", "DISCARD"])]


@pytest.mark.parametrize("draw", [message, invalidation])
@pytest.mark.parametrize("seed", range(4))
def test_clients_hear_what_they_would_from_redis(draw, seed):
    threads = [] if is_redis(DUNLIN) else ["--threads", "2"]
    rng = random.Random(seed)
    with Server(*threads) as server, Server(program=ORACLE) as oracle:
        both = [Trio(server, [2, 3, 3, 2]), Trio(oracle, [2, 3, 3, 2])]
        ours, theirs = both
        for trio in both:
            with Peer(trio.server) as peer:
                peer.line("FLUSHALL")
                peer.ask("CONFIG", "SET", "notify-keyspace-events", "KEA" if draw is message else "")
        done = []
        for _ in range(STEPS):
            client = rng.randrange(len(ours.peers))
            lines = step(rng, draw)
            done += [f"{client}> {line}" for line in lines]
            for trio in both:
                trio.peers[client].send_all(*lines)
            wanted, got = theirs.settle(), ours.settle()
            for index, items in enumerate(wanted):
                # Pushes from another worker may come after the PING.
                try:
                    while len(got[index]) < len(items):
                        got[index].append(ours.peers[index].read())
                except TimeoutError:
                    pass  # The comparison below reports the missing ones.
                said, expected = ([without_id(item) for item in heard if not is_told(item)] for heard in (got[index], items))
                if index == client and any(line.startswith("TTL ") for line in lines):
                    said, expected = without_age(said), without_age(expected)
                if index == client and any(line.startswith(UNORDERED) for line in lines):
                    said, expected = sortable(said), sortable(expected)
                assert said == expected, "\n".join(done[-40:])
                told, expected = (sorted(map(sortable, filter(is_told, heard))) for heard in (got[index], items))
                assert told == expected, f"client {index}\n" + "\n".join(done[-40:])
        for trio in both:
            trio.close()
