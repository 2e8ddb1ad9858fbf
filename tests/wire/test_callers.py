"""Commands that bring others along (scripts, functions, EXEC) under every condition of the server that holds or refuses writes:
Dunlin does as redis-server 7.0 does, and where memory is short inside MULTI, as Valkey 9.1.

The pure table of callers and checks is in crates/server/src/admission/tests.rs; this file plays what a client sees of it.
"""

import contextlib
import hashlib
import re

import pytest

from harness import DUNLIN, ORACLE, VALKEY, WITHOUT_VALKEY, Server, is_redis
from peer import Failure, Peer
from wire import eventually

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="Redis is what is compared with")

LIBRARY = """#!lua name=lib
redis.register_function('plain', function(keys) return redis.call('set', keys[1], 1) end)
redis.register_function{function_name='reads', callback=function(keys) return redis.call('get', keys[1]) end, flags={'no-writes'}}
redis.register_function{function_name='grows', callback=function(keys) return redis.call('get', keys[1]) end, flags={'allow-oom'}}
redis.register_function{function_name='stale', callback=function() return redis.sha1hex('') end, flags={'no-writes', 'allow-stale'}}
"""
SET, GET = "return redis.call('set', KEYS[1], 1)", "return redis.call('get', KEYS[1])"
UNDECLARED = "return redis.call('sadd', 'set' .. ARGV[1], 1)"


def declared(flags, text):
    return f"#!lua flags={flags}\n{text}"


def sha(text):
    return hashlib.sha1(text.encode()).hexdigest()


CALLERS = [
    ("GET", "k"),
    ("SET", "k", "v"),
    ("DEL", "nothing"),
    ("PING",),
    ("PFCOUNT", "hll"),
    ("PUBLISH", "channel", "message"),
    ("SORT", "list", "STORE", "sorted"),
    ("SORT_RO", "list"),
    ("FUNCTION", "LOAD", "REPLACE", LIBRARY),
    ("SCRIPT", "LOAD", "return 1"),
    ("EVAL", GET, 1, "k"),
    ("EVAL", SET, 1, "k"),
    ("EVAL", UNDECLARED, 0, "x"),
    ("EVAL", "return redis.call('publish', 'channel', 'message')", 0),
    ("EVAL", "return 1", 0),
    ("EVAL_RO", GET, 1, "k"),
    ("EVAL_RO", SET, 1, "k"),
    ("EVAL", declared("", GET), 1, "k"),
    ("EVAL", declared("", SET), 1, "k"),
    ("EVAL", declared("no-writes", GET), 1, "k"),
    ("EVAL", declared("no-writes", SET), 1, "k"),
    ("EVAL", declared("allow-oom", GET), 1, "k"),
    ("EVAL", declared("allow-stale", "return 1"), 0),
    ("EVAL", declared("no-writes,allow-stale", "return 1"), 0),
    ("EVAL", declared("no-writes,allow-stale", GET), 1, "k"),
    ("EVAL_RO", declared("", GET), 1, "k"),
    ("EVAL_RO", declared("no-writes", GET), 1, "k"),
    ("EVAL", declared("nonsense", GET), 1, "k"),
    ("EVALSHA", sha(GET), 1, "k"),
    ("EVALSHA", sha(declared("", SET)), 1, "k"),
    ("EVALSHA", sha(declared("no-writes", GET)), 1, "k"),
    ("EVALSHA", "0" * 40, 0),
    ("EVALSHA_RO", sha(GET), 1, "k"),
    ("EVALSHA_RO", "0" * 40, 0),
    ("FCALL", "plain", 1, "k"),
    ("FCALL", "reads", 1, "k"),
    ("FCALL", "grows", 1, "k"),
    ("FCALL", "stale", 0),
    ("FCALL", "unknown", 0),
    ("FCALL_RO", "reads", 1, "k"),
    ("FCALL_RO", "plain", 1, "k"),
]
LOADED = [GET, declared("", SET), declared("no-writes", GET)]


@contextlib.contextmanager
def pause(program):
    with Server(program=program) as server, Peer(server) as boss:
        yield server, boss, lambda: boss.line("CLIENT PAUSE 600000 WRITE")
        boss.line("CLIENT UNPAUSE")


@contextlib.contextmanager
def read_only_replica(program):
    def begin():
        boss.line(f"REPLICAOF 127.0.0.1 {primary.port}")
        eventually(lambda: "master_link_status:up" in boss.line("INFO replication"), "a link")

    with Server(program=program) as primary, Peer(primary) as owner, Server(program=program) as server, Peer(server) as boss:
        prepare(owner)
        yield server, boss, begin


@contextlib.contextmanager
def stale_replica(program):
    with Server("--replica-serve-stale-data", "no", program=program) as server, Peer(server) as boss:
        yield server, boss, lambda: boss.line("REPLICAOF 127.0.0.1 1")
        boss.line("REPLICAOF NO ONE")


@contextlib.contextmanager
def few_replicas(program):
    def begin():
        boss.line("CONFIG SET min-replicas-to-write 1")
        if is_redis(program):
            eventually(lambda: isinstance(boss.line("SET other 1"), Failure), "the next look at the replicas")

    with Server(program=program) as server, Peer(server) as boss:
        yield server, boss, begin


@contextlib.contextmanager
def unsaved(program):
    def begin():
        # No file can take the place of a folder.
        (server.folder / "dump.rdb" / "full").mkdir(parents=True)
        boss.line("BGSAVE")
        eventually(lambda: "rdb_last_bgsave_status:err" in boss.line("INFO persistence"), "a snapshot that fails")

    with Server("--save", "3600 100000", program=program) as server, Peer(server) as boss:
        yield server, boss, begin
        boss.ask("CONFIG", "SET", "save", "")


@contextlib.contextmanager
def short_of_memory(program):
    with Server(program=program) as server, Peer(server) as boss:
        yield server, boss, lambda: boss.line("CONFIG SET maxmemory 1")


STATES = [pause, read_only_replica, stale_replica, few_replicas, unsaved, short_of_memory]


def prepare(peer):
    peer.send_all("SET k v", "DEL list", "RPUSH list 2 1", "PFADD hll a")
    [peer.read() for _ in range(4)]
    peer.ask("FUNCTION", "LOAD", "REPLACE", LIBRARY)
    for text in LOADED:
        peer.ask("SCRIPT", "LOAD", text)


class Caller(Peer):
    """A client, and whether the server holds its command."""

    def __init__(self, server):
        super().__init__(server)
        self.id = self.line("CLIENT ID")

    def reply(self, boss, *words):
        """The reply to a command that was sent, or `held` if the server lists the client as one that waits."""
        if words:
            self.send(*words)
        while True:
            self.socket.settimeout(0.02)
            try:
                self._fill()
            except TimeoutError:
                if re.search(r" flags=\w*b", boss.line(f"CLIENT LIST ID {self.id}")):
                    return "held"
                continue
            finally:
                self.socket.settimeout(120)
            return shown(self.read())


def shown(reply):
    """A reply; errors without the place in a script, and without the advice, which the servers write in different ways."""
    if isinstance(reply, Failure):
        return "-" + re.sub(r" script: .*| Please use EVAL\.", "", reply)
    return [shown(each) for each in reply] if isinstance(reply, list) else reply


def play(state, program):
    """What becomes of each caller in a state: alone, in a queue, and in a queue from before, at EXEC."""
    with state(program) as (server, boss, begin):
        prepare(boss)
        queued = [Caller(server) for _ in CALLERS]
        for caller, words in zip(queued, CALLERS):
            assert caller.line("MULTI") == "OK" and caller.ask(*words) == "QUEUED"
        begin()
        became = {}
        for number, (words, before) in enumerate(zip(CALLERS, queued)):
            with Caller(server) as alone, Caller(server) as queueing:
                first = alone.reply(boss, *words)
                assert queueing.line("MULTI") == "OK"
                second = queueing.reply(boss, *words)
                third = "" if second == "held" else queueing.reply(boss, "EXEC")
            became[f"{number} {' '.join(map(str, words))}"] = (first, second, third, before.reply(boss, "EXEC"))
            before.close()
        return became


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_commands_that_bring_others_along_meet_every_condition(state):
    # redis-server 7.0 refuses all that is queued where memory is short, Valkey what needs memory.
    oracle = VALKEY if state is short_of_memory else ORACLE
    if not oracle:
        pytest.skip(WITHOUT_VALKEY)
    ours, theirs = play(state, DUNLIN), play(state, oracle)
    differences = {call: (ours[call], theirs[call]) for call in ours if ours[call] != theirs[call]}
    for call in list(differences) if oracle == VALKEY else []:
        # As in redis-server 7.0, a script that writes though it must not hears that first.
        if "-ERR Write commands are not allowed from read-only scripts." in differences[call][0]:
            del differences[call]
    assert differences == {}


def test_paused_script_waits_with_one_worker_too():
    with Server("--threads", "1") as server, Peer(server) as boss, Peer(server) as client:
        assert boss.line("CLIENT PAUSE 600000 WRITE") == "OK"
        client.send("EVAL", SET, 1, "k")
        eventually(lambda: "blocked_clients:1" in boss.line("INFO clients"), "the script waits")
        assert boss.line("EXISTS k") == 0
        boss.line("CLIENT UNPAUSE")
        assert client.read() == "OK"


def test_min_replicas_to_write_holds_for_the_next_command():
    with Server() as server, Peer(server) as boss, Peer(server) as other:
        for _ in range(50):
            assert boss.line("CONFIG SET min-replicas-to-write 1") == "OK"
            for client in (boss, other):
                assert client.line("SET k 1") == Failure("NOREPLICAS Not enough good replicas to write.")
            assert boss.line("CONFIG SET min-replicas-max-lag 0") == "OK"
            assert other.line("SET k 1") == "OK"
            assert boss.line("CONFIG SET min-replicas-max-lag 10") == "OK"
            assert isinstance(other.line("SET k 1"), Failure)
            assert boss.line("CONFIG SET min-replicas-to-write 0") == "OK"
            assert other.line("SET k 1") == "OK"
    with Server("--min-replicas-to-write", "1") as server, Peer(server) as client:
        assert isinstance(client.line("SET k 1"), Failure), "from the first command on"


def test_config_set_holds_for_the_next_command_of_any_worker():
    """A command may be read in a turn of its worker that began before CONFIG SET."""
    slow = "local x = 0 for i = 1, 400000 do x = x + i end return x"
    with Server("--threads", "2") as server, contextlib.ExitStack() as stack:
        peers = [stack.enter_context(Peer(server)) for _ in range(6)]
        for number in range(240):
            busy, client, boss = peers[number % 6], peers[(number + 1 + number // 6 % 5) % 6], peers[(number + 3) % 6]
            if len({id(busy), id(client), id(boss)}) < 3:
                continue
            busy.send("EVAL", slow, 0)
            client.send("PING")
            assert boss.line("CONFIG SET maxmemory 1") == "OK"
            client.send("SET", "k", "v")
            assert client.read() == "PONG"
            assert isinstance(client.read(), Failure), number
            busy.read()
            assert boss.line("CONFIG SET maxmemory 0") == "OK"


def test_queued_commands_are_judged_in_the_database_that_the_queue_selects():
    """ACL selectors name databases: what counts is where a queued command will run. Valkey 9.1 does the same."""

    def play(program):
        with Server(program=program) as server, Peer(server) as boss, Peer(server) as client:
            boss.ask("ACL", "SETUSER", "user", "on", ">p", "+@all", "-@dangerous", "~*", "resetdbs", "db=0,1")
            client.line("AUTH user p")
            replies = []
            for lines in [
                ["MULTI", "SELECT 1", "SET k 1", "EXEC"],
                ["MULTI", "SELECT 2", "SET k 1", "EXEC"],
                ["MULTI", "SET k 1", "SELECT 1", "SELECT x", "SET k 2", "EXEC"],
                ["SELECT 1", "MULTI", "SELECT 0", "SET k 1", "EXEC"],
            ]:
                replies.append([client.line(line) for line in lines])
            client.line("SELECT 0")
            boss.ask("ACL", "SETUSER", "user", "resetdbs", "db=1")
            # The client stays where it may no longer be, and leaves by a queued SELECT.
            for lines in [["GET k"], ["MULTI", "SELECT 1", "GET k", "EXEC"], ["MULTI", "SELECT 0", "GET k", "EXEC"]]:
                replies.append([client.line(line) for line in lines])
            return replies

    if not VALKEY:
        pytest.skip(WITHOUT_VALKEY)
    assert play(DUNLIN) == play(VALKEY)
