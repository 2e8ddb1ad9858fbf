"""Random calls of every command, for links to replicas."""

import random

import pytest
import redis

from harness import DUNLIN, REDIS_VERSIONS
from links import Node, raw
from options import DATA, calls

# Commands that wait, speak about the server or the connection, or are replication itself.
ELSEWHERE = """acl asking auth bgrewriteaof bgsave client cluster command commandlog config debug discard exec failover
hello info lastsave latency lolwut memory migrate module monitor multi pfdebug pfselftest psubscribe psync punsubscribe quit
readonly readwrite replconf replicaof reset restore-asking role save shutdown slaveof slowlog ssubscribe subscribe
sunsubscribe sync time unsubscribe wait waitaof hotkeys""".split()
CONDITIONS = [["NX"], ["XX"], ["FNX"], ["FXX"], ["FIELDS"]]
SMALLEST = "-9223372036854775808"
BLOCKING = "blpop brpop blmove brpoplpush blmpop bzpopmin bzpopmax bzmpop xread xreadgroup".split()


def fill(node, count=2000):
    pipe = node.client.pipeline(transaction=False)
    for n in range(count):
        pipe.execute_command("SET", f"string:{n}", f"{n}" * (n % 40 + 1))
        pipe.execute_command("RPUSH", f"list:{n % 50}", n, "x" * (n % 100))
        pipe.execute_command("HSET", f"hash:{n % 50}", f"field:{n}", n)
        pipe.execute_command("SADD", f"set:{n % 50}", n, f"m{n}")
        pipe.execute_command("ZADD", f"zset:{n % 50}", n / 8, f"m{n}")
        pipe.execute_command("XADD", f"entries:{n % 20}", f"{n + 1}-1", "f", n)
    pipe.execute()


def known_to(node):
    # Before 7.0 there was no COMMAND LIST.
    return {name.decode() for name, *_ in node.call("COMMAND")}


def random_calls(primary, replica, seed, count):
    """Calls of every command that both know, good and bad ones, in random order."""
    both = known_to(primary) & known_to(replica)
    found = []
    # Options that only one of the two knows could not be replicated.
    other = primary if primary.program != DUNLIN else replica
    if other.program == REDIS_VERSIONS.get("6.2"):
        # It describes no options, and refuses those that it does not know.
        other = primary if other is replica else replica
    for name in sorted(both - set(ELSEWHERE) - set(BLOCKING)):
        found += calls_of(other, name)
    # Valkey 9.1 takes a key that is called like the condition for the condition, and sends the command without its key.
    found = [call for call in found if call[0] != "hsetex" or call[1:2] not in CONDITIONS]
    # Valkey 9.1 changes the first element for an LSET at the smallest index, which is out of range. Redis 7.0 takes the
    # smallest count of LREM for all elements; Valkey and Dunlin refuse it.
    found = [call for call in found if call[0] not in ("lset", "lrem") or SMALLEST not in call]
    rng = random.Random(seed)
    rng.shuffle(found)
    return found[:count]


_docs = {}


def calls_of(node, name):
    key = (node.program, name)
    if key not in _docs:
        with raw(node.port, protocol=3, decode_responses=True) as client:
            docs = client.execute_command("COMMAND", "DOCS", name)
        made = []
        for command, doc in docs.items():
            for sub, inner in [(command, doc), *doc.get("subcommands", {}).items()]:
                if "subcommands" not in inner:
                    made += [list(call) for call in calls(sub.replace("|", " "), inner)]
        _docs[key] = made
    return _docs[key]


def run(node, stream, seed, is_own=True):
    """Runs calls, some in transactions, in several databases."""
    rng = random.Random(seed)
    client = raw(node.port, single_connection_client=True)
    for database in range(2):
        client.execute_command("SELECT", database)
        for words in DATA:
            if node.program != REDIS_VERSIONS.get("6.2") or words[0] != "FUNCTION":
                client.execute_command(*words)
    in_transaction = False
    for call in stream:
        if rng.random() < 0.05:
            try:
                client.execute_command("SELECT", rng.randrange(3))
                client.execute_command(*(["EXEC"] if in_transaction else ["MULTI"]))
            except redis.ResponseError:
                pass
            in_transaction = not in_transaction
        if rng.random() < 0.02 and not in_transaction:
            for words in DATA[1:]:
                try:
                    client.execute_command(*words)
                except redis.ResponseError:
                    pass
        try:
            client.execute_command(*call)
        except (redis.ResponseError, redis.exceptions.DataError):
            pass
        except redis.exceptions.InvalidResponse:
            if is_own:
                raise
            # A Redis 7.4.1 has answered one with junk. The stream is what counts.
            client.connection_pool.disconnect()
            in_transaction = False
    if in_transaction:
        try:
            client.execute_command("EXEC")
        except redis.ResponseError:
            pass
    client.close()


@pytest.fixture
def primary():
    with Node(DUNLIN) as node:
        yield node
