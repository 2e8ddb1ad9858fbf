"""Pushes and replies. When a client sees an effect of a command, every push that was due before has
been sent, to its writer and to all other connections: invalidations of all modes, messages,
keyspace events, lines of MONITOR.

A listener waits for pushes about `k`. A writer changes `k`, then sets `f` to the number of the
round. A client that then reads that number from `f` must find that the listener has the push.
Connections are Unix sockets: the bytes that the server has written to one of them can be read at
once, so that nothing here depends on time.
"""

import itertools

import pytest

from harness import DUNLIN, Server, is_redis
from peer import Failure, Peer, Push
from wire import eventually

ROUNDS = 200
# Modes are servers with two threads whose replies wait: for the disk, or for a replica.
MODES = {"always": ["--appendonly", "yes", "--appendfsync", "always"], "sync": ["--min-sync-replicas", "1"]}
THREADS = [1] if is_redis(DUNLIN) else [1, 2, 4, *MODES]
# With more connections than threads of either kind, each pair of threads has its turn.
CONNECTIONS = 5


class Listener:
    """A client that is sent a push when `k` changes."""

    protocol = 3
    setup = []
    # Said before each change.
    arm = ["GET k"]
    # The command of the writer.
    change = "SET k %d"

    def __init__(self, server):
        self.peer = Peer(server, self.protocol, unix=True)
        self.others = []
        self.number = self.peer.line("CLIENT ID")
        for line in self.setup:
            assert not isinstance(self.peer.line(line), Failure), line
        self.asker = self.peer

    def prepare(self):
        """Makes the next change of `k` due for a push."""
        for line in self.arm:
            self.asker.send_all(line)
            while self.is_push(self.asker.read()):
                pass

    def is_push(self, item):
        return isinstance(item, Push)

    def is_due(self, item, number):
        """Whether this is the push of a round."""
        return item == ["invalidate", ["k"]]

    def close(self):
        for peer in [self.peer, *self.others]:
            peer.close()


class Default(Listener):
    setup = ["CLIENT TRACKING ON"]


class NoLoop(Listener):
    setup = ["CLIENT TRACKING ON NOLOOP"]


class OptIn(Listener):
    setup = ["CLIENT TRACKING ON OPTIN"]
    arm = ["CLIENT CACHING YES", "GET k"]


class OptOut(Listener):
    setup = ["CLIENT TRACKING ON OPTOUT"]


class Broadcast(Listener):
    setup = ["CLIENT TRACKING ON BCAST PREFIX k"]
    arm = []


class Redirected(Listener):
    """Invalidations go to another connection, in RESP2 or RESP3."""

    def __init__(self, server):
        super().__init__(server)
        self.asker = Peer(server, 2, unix=True)
        self.others = [self.asker]
        assert self.asker.line(f"CLIENT TRACKING ON REDIRECT {self.number}") == "OK"


class RedirectedTo2(Redirected):
    protocol = 2
    setup = ["SUBSCRIBE __redis__:invalidate"]

    def is_push(self, item):
        return isinstance(item, list) and item[0] == "message"

    def is_due(self, item, number):
        return item == ["message", "__redis__:invalidate", ["k"]]


class Channel(Listener):
    setup = ["SUBSCRIBE news"]
    arm = []
    change = "PUBLISH news %d"

    def is_due(self, item, number):
        return item == ["message", "news", str(number)]


class Channel2(Channel):
    """The same in RESP2."""

    protocol = 2

    def is_push(self, item):
        return isinstance(item, list) and item[0] == "message"


class Pattern(Channel):
    setup = ["PSUBSCRIBE n*s"]

    def is_due(self, item, number):
        return item == ["pmessage", "n*s", "news", str(number)]


class ShardChannel(Channel):
    setup = ["SSUBSCRIBE news"]
    change = "SPUBLISH news %d"

    def is_due(self, item, number):
        return item == ["smessage", "news", str(number)]


class KeyspaceEvent(Channel):
    setup = ["SUBSCRIBE __keyspace@0__:k"]
    change = "SET k %d"

    def is_due(self, item, number):
        return item == ["message", "__keyspace@0__:k", "set"]


class Monitor(Listener):
    protocol = 2
    setup = ["MONITOR"]
    arm = []

    def is_push(self, item):
        return isinstance(item, str) and '"' in item

    def is_due(self, item, number):
        return item.endswith(f'"SET" "k" "{number}"')


LISTENERS = [
    Default,
    NoLoop,
    OptIn,
    OptOut,
    Broadcast,
    Redirected,
    RedirectedTo2,
    Channel,
    Channel2,
    Pattern,
    ShardChannel,
    KeyspaceEvent,
    Monitor,
]


@pytest.fixture(scope="module", params=THREADS, ids=lambda threads: f"threads={threads}")
def threaded(request):
    threads = [] if is_redis(DUNLIN) else ["--threads", request.param]
    if request.param in MODES:
        threads = ["--threads", 2, *MODES[request.param]]
    with Server(*threads, "--notify-keyspace-events", "KEA") as server:
        if request.param != "sync":
            yield server
            return
        with Server("--replicaof", f"127.0.0.1 {server.port}"), Peer(server) as client:
            eventually(lambda: client.line("SET k 0") == "OK", "a replica")
            yield server


@pytest.fixture(params=LISTENERS, ids=lambda kind: kind.__name__)
def listeners(request, threaded):
    # Alternating with the others below, they are spread over all threads.
    listeners = [request.param(threaded) for _ in range(CONNECTIONS)]
    yield listeners
    for listener in listeners:
        listener.close()


@pytest.fixture
def others(threaded):
    peers = [Peer(threaded, unix=True) for _ in range(CONNECTIONS)]
    yield peers
    for peer in peers:
        peer.close()


def has_push(listener, items, number):
    return any(listener.is_push(item) and listener.is_due(item, number) for item in items)


def lacking(listeners, number):
    """Those of the listeners that have not been sent the push of a round."""
    return [listener for listener in listeners if not has_push(listener, listener.peer.pending(), number)]


def answer(peer, listener):
    """The next reply, and the pushes before it."""
    pushes = []
    while listener.is_push(item := peer.read()):
        pushes.append(item)
    return item, pushes


def test_push_comes_before_the_writers_reply(listeners, others):
    late = 0
    for number, writer in zip(range(1, ROUNDS), itertools.cycle(others)):
        for listener in listeners:
            listener.prepare()
        writer.line(listeners[0].change % number)
        late += len(lacking(listeners, number))
    assert late == 0, f"{late} pushes of {ROUNDS * len(listeners)} were late"


def test_ping_is_a_barrier(listeners, others):
    late = 0
    for number, writer in zip(range(1, ROUNDS), itertools.cycle(others)):
        for listener in listeners:
            listener.prepare()
        writer.line(listeners[0].change % number)
        for listener in listeners:
            listener.peer.send("PING")
        for listener in listeners:
            pong, pushes = answer(listener.peer, listener)
            assert pong in ("PONG", ["pong", ""])
            late += not has_push(listener, pushes, number)
    assert late == 0, f"{late} pushes of {ROUNDS * len(listeners)} came after the PONG"


def writes(number, change):
    """Lines that make a change, then set `f`: one after the other, as a transaction, as a script, in turns."""
    call = ",".join(f"'{word}'" for word in change.split(" "))
    return [
        [change, f"SET f {number}"],
        ["MULTI", change, f"SET f {number}", "EXEC"],
        [f"EVAL redis.call({call});redis.call('set','f',{number}) 0"],
    ][number % 3]


def test_push_comes_before_a_reply_that_shows_a_later_change(listeners, others):
    """The writer has not been answered yet, and another client sees its change."""
    late = 0
    for number in range(1, ROUNDS):
        for listener in listeners:
            listener.prepare()
        writer, reader = others[number % len(others)], others[(3 * number + 1) % len(others)]
        lines = writes(number, listeners[0].change % number)
        writer.send_all(*lines)
        if writer is not reader:
            items = [[] for _ in listeners]
            while reader.line("GET f") != str(number):
                # MONITOR shows this: many would fill a socket that nobody reads.
                for own, listener in zip(items, listeners):
                    own += listener.peer.pending()
            for own, listener in zip(items, listeners):
                late += not has_push(listener, own + listener.peer.pending(), number)
        for _ in lines:
            writer.read()
        for listener in listeners:
            listener.peer.pending()
    assert late == 0, f"{late} pushes of {ROUNDS * len(listeners)} were late"


def test_push_comes_before_the_listeners_own_read_of_a_later_change(listeners, others):
    """In the one stream of a connection, whether it asks one by one or in a pipeline."""
    if listeners[0].protocol == 2:
        pytest.skip("who only listens reads no keys")
    late = 0
    for number, writer in zip(range(1, ROUNDS), itertools.cycle(others)):
        depth = (1, 8)[number // 3 % 2]
        ask = ["GET f"] * depth
        for listener in listeners:
            listener.prepare()
        lines = writes(number, listeners[0].change % number)
        for listener in listeners:
            listener.peer.send_all(*ask)
        writer.send_all(*lines)
        for listener in listeners:
            before, is_new = [], False
            while not is_new:
                for _ in range(depth):
                    reply, pushes = answer(listener.peer, listener)
                    before += pushes
                    if not is_new and reply == str(number):
                        is_new = True
                        late += not has_push(listener, before, number)
                if not is_new:
                    listener.peer.send_all(*ask)
        for _ in lines:
            writer.read()
        for listener in listeners:
            listener.peer.pending()
    assert late == 0, f"{late} pushes of {ROUNDS * len(listeners)} were late"


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis has no commands that run apart")
@pytest.mark.parametrize("mode", ["", " BCAST"])
def test_push_about_a_later_change_comes_after_an_offloaded_reply(mode):
    """An offloaded read replies with the key's value at its begin: had the push about a later change come
    before the reply, the client would keep a copy that nobody invalidates any more."""
    with Server("--threads", "2", "--enable-debug-command", "yes") as server:
        with Peer(server, 3, unix=True) as cache, Peer(server, unix=True) as writer:
            assert writer.line("DEBUG VISITS-MAX 10") == "OK"
            cache.line(f"CLIENT TRACKING ON{mode}")
            for number in range(200):
                writer.line("DEL list")
                writer.ask("RPUSH", "list", *range(500))
                cache.pending()
                cache.line("ECHO begin")
                cache.send("LRANGE", "list", 0, -1)
                writer.line(f"RPUSH list end{number}")
                copy = None
                while True:
                    item = cache.read()
                    if isinstance(item, Push):
                        copy = None
                    elif isinstance(item, list):
                        copy = item
                        cache.send("ECHO", "end")
                    elif item == "end":
                        break
                assert copy is None or copy[-1] == f"end{number}", f"a stale copy in round {number}"


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis has one thread, which the script would take")
def test_push_reaches_a_listener_whose_worker_is_busy():
    """No client waits for that worker: others write for it. Messages that the script itself has
    published leave while it runs."""
    with Server("--threads", "2", "--busy-reply-threshold", "60000") as server:
        peers = [Peer(server, 3, unix=True) for _ in range(8)]
        for peer in peers:
            peer.line("CLIENT TRACKING ON BCAST PREFIX k")
            peer.line("SUBSCRIBE begun")
        busy = Peer(server, unix=True)
        busy.send("EVAL", "redis.call('publish','begun','x') while true do end", 1, "other")
        for peer in peers:
            assert peer.read() == ["message", "begun", "x"]
            peer.send("PING")
        free = []

        def answered():
            free.extend(peer for peer in peers if peer not in free and "PONG" in peer.pending())
            return len(free) == len(peers) // 2

        eventually(answered, "the clients of the other worker are served")
        assert free[0].line("SET k 1") == "OK"
        for peer in peers[::-1]:
            # One's own changes come behind the reply.
            assert (peer.read() if peer is free[0] else peer.pending()[0]) == ["invalidate", ["k"]]
        eventually(lambda: free[0].line("SCRIPT KILL") == "OK", "the script can be ended")
        assert busy.read().startswith("ERR Script killed by user")
        for peer in peers:
            assert peer in free or peer.read() == "PONG"
            peer.close()
        busy.close()


@pytest.mark.skipif(is_redis(DUNLIN), reason="its order of several clients' writes is none")
def test_pushes_to_a_full_socket_come_in_order():
    """A listener that does not read holds up no other client, and gets everything when it does, in one order with its
    replies."""
    with Server("--threads", "2", "--client-output-buffer-limit", "pubsub 0 0 0") as server:
        with Peer(server, 3, unix=True) as slow, Peer(server, unix=True) as one, Peer(server, unix=True) as other:
            slow.line("SUBSCRIBE news")
            payload = "x" * 5000
            for number in range(300):
                (one, other)[number % 2].ask("PUBLISH", "news", f"{number} {payload}")
                if number % 50 == 0:
                    slow.send("ECHO", number)
            seen = [slow.read() for _ in range(306)]
            messages = [int(item[2].split(" ")[0]) for item in seen if isinstance(item, Push)]
            assert messages == list(range(300))
            assert [item for item in seen if not isinstance(item, Push)] == [str(number) for number in range(0, 300, 50)]
