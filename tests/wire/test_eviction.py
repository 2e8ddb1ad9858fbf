"""Eviction: keys give way at maxmemory, by every policy, wherever memory is needed; watchers,
caches and listeners learn of it."""

import random
import re

import pytest
from harness import DUNLIN, Server, is_redis
from peer import Failure, Peer, Push
from wire import at_rest, eventually, repeated

MB = 1 << 20
OOM = Failure("OOM command not allowed when used memory > 'maxmemory'.")
POLICIES = [f"{scope}-{order}" for scope in ("allkeys", "volatile") for order in ("lru", "lfu", "random")]
POLICIES.append("volatile-ttl")
if not is_redis(DUNLIN):
    POLICIES += ["allkeys-auto", "volatile-auto", "allkeys-lrm", "volatile-lrm"]

own = pytest.mark.skipif(is_redis(DUNLIN), reason="about Dunlin's own memory")


def info(peer, field):
    found = re.search(rf"^{field}:(\d+)", peer.ask("INFO", "everything"), re.M)
    return int(found.group(1))


def limited(peer):
    """What maxmemory limits, as of one moment."""
    text = peer.ask("INFO", "memory")
    used, uncounted = (
        int(re.search(rf"^{field}:(\d+)", text, re.M).group(1)) for field in ("used_memory", "mem_not_counted_for_evict")
    )
    return used - uncounted


def config(peer, **directives):
    words = [word for name, value in directives.items() for word in (name.replace("_", "-"), value)]
    assert peer.ask("CONFIG", "SET", *words) == "OK"


@pytest.fixture
def full(server):
    """A client of a server that may take 4 MB more than it does when empty, and evicts."""
    with Peer(server) as peer:
        eventually(lambda: info(peer, "connected_clients") == 1, "clients of former tests have gone, with their buffers")
        config(peer, maxmemory=0, maxmemory_policy="allkeys-lru", maxmemory_samples=5, notify_keyspace_events="", maxmemory_eviction_tenacity=10)
        peer.line("FLUSHALL")
        peer.line("CONFIG RESETSTAT")
        config(peer, maxmemory=limited(peer) + 4 * MB)
        yield peer
        config(peer, maxmemory=0)
        peer.line("FLUSHALL")


def fill(peer, count, value=b"x" * 1000, start=0, more=()):
    """Sets so many keys in a pipeline, and returns the replies that are not OK."""
    bad = []
    for first in range(start, start + count, 500):
        batch = range(first, min(first + 500, start + count))
        for number in batch:
            peer.send("SET", f"key:{number}", value, *more)
        bad += [reply for reply in (peer.read() for _ in batch) if reply != "OK"]
    return bad


@pytest.mark.parametrize("policy", POLICIES)
def test_eviction_keeps_to_the_limit_and_refuses_nothing(full, policy):
    config(full, maxmemory_policy=policy, maxmemory_eviction_tenacity=100)
    more = ("EX", 1000) if policy.startswith("volatile") else ()
    assert fill(full, 12_000, more=more) == []
    assert limited(full) <= info(full, "maxmemory") + 64 * 1024

    def are_accounted_for():
        evicted, kept = at_rest(lambda: info(full, "evicted_keys"), lambda: full.line("DBSIZE"))
        return kept + evicted == 12_000 and kept > 1500

    eventually(are_accounted_for, "each key is there, or was evicted")
    assert full.line("CONFIG GET maxmemory-policy") == ["maxmemory-policy", policy]


def test_volatile_policies_leave_keys_without_an_expiry_alone(full):
    config(full, maxmemory_policy="volatile-lru")
    for number in range(1000):
        full.ask("SET", f"stays:{number}", b"x" * 1000)
    assert fill(full, 8000, more=("EX", 1000)) == []
    assert sum(full.ask("EXISTS", f"stays:{number}") for number in range(1000)) == 1000


def test_write_is_refused_if_no_key_may_be_evicted(full):
    for policy in ("noeviction", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl", "volatile-auto"):
        full.line("FLUSHALL")
        config(full, maxmemory_policy=policy)
        bad = fill(full, 6000)
        assert bad and set(bad) == {OOM}, policy
        assert full.line("GET key:0") == "x" * 1000
        assert full.line("DEL key:0") == 1
    assert info(full, "evicted_keys") == 0
    assert info(full, "current_eviction_exceeded_time") >= 0


def test_volatile_ttl_removes_what_expires_first(full):
    config(full, maxmemory_policy="volatile-ttl", maxmemory_samples=64)
    for number in range(3000):
        full.ask("SET", f"soon:{number}", b"x" * 500, "EX", 100)
        full.ask("SET", f"late:{number}", b"x" * 500, "EX", 100_000)
    fill(full, 1500, more=("EX", 100_000))
    soon = sum(full.ask("EXISTS", f"soon:{number}") for number in range(3000))
    late = sum(full.ask("EXISTS", f"late:{number}") for number in range(3000))
    assert late > 2900 and soon < 2000, (soon, late)


def await_sweep(peer):
    """Waits until the sweep is over that follows a change of policy, and has all keys begin anew: there is no key. A worker does a
    part of the sweep behind each round of expiry; with two rounds since the change, all of it."""
    for _ in range(2):
        assert peer.line("SET gone 1 PX 1") == "OK"
        eventually(lambda: peer.line("DBSIZE") == 0, "it expires in the background")


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-auto"])
def test_keys_that_are_used_stay(full, policy):
    config(full, maxmemory_policy=policy, maxmemory_samples=10)
    await_sweep(full)
    hot = [f"hot:{number}" for number in range(500)]
    for key in hot:
        full.ask("SET", key, b"x" * 1000)
    for first in range(0, 20_000, 250):
        fill(full, 250, start=first)
        full.send_all(*(f"GET {key}" for key in hot))
        for _ in hot:
            full.read()
    assert sum(full.ask("EXISTS", key) for key in hot) >= 490


@pytest.mark.parametrize("policy", ["allkeys-lrm", "volatile-lrm"])
def test_keys_that_are_read_go_and_keys_that_are_changed_stay_by_lrm(full, policy):
    config(full, maxmemory_policy=policy, maxmemory_samples=10)
    await_sweep(full)
    read, changed = ([f"{name}:{number}" for number in range(300)] for name in ("read", "changed"))
    for key in (*read, *changed):
        full.ask("SET", key, b"x" * 1000, "EX", 100_000)
    for first in range(0, 20_000, 150):
        fill(full, 150, start=first, more=("EX", 100_000))
        full.send_all(*(f"GET {key}" for key in read), *(f"SETRANGE {key} 0 y" for key in changed))
        for _ in (*read, *changed):
            full.read()
    # SETRANGE on a key that has gone leaves a single byte.
    counts = [sum(full.ask("STRLEN", key) == 1000 for key in keys) for keys in (read, changed)]
    assert counts[0] < 20 and counts[1] >= 290, counts


LARGE = b"y" * 100_000
SCRIPT = "for i = 1, 200 do redis.call('SET', KEYS[1] .. i, string.rep('z', 20000)) end return 'done'"
ELSEWHERE = {
    "a large SET": [("SET", "large", b"y" * (3 * MB))],
    "a transaction": [("MULTI",), *(("SET", f"t{number}", LARGE) for number in range(30)), ("EXEC",)],
    "a script": [("EVAL", SCRIPT, 1, "s")],
    "many of APPEND": [("APPEND", "a", LARGE)] * 30,
    "SETRANGE": [("SETRANGE", "r", 3 * MB, "x")],
    "COPY": [("SADD", "set", *(f"{number}" * 20 for number in range(2000)))]
    + [("COPY", "set", f"copy:{number}") for number in range(30)],
    "RPUSH": [("RPUSH", f"list:{number}", *["e" * 1000] * 100) for number in range(30)],
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_room_is_made_for_every_command_that_needs_it(full, name):
    # However long that takes.
    config(full, maxmemory_eviction_tenacity=100)
    assert fill(full, 5000) == []
    for words in ELSEWHERE[name]:
        reply = full.ask(*words)
        assert not isinstance(reply, Failure), (words[0], reply)
    slack = 4 * MB if name in ("a large SET", "a script", "a transaction", "SETRANGE") else MB // 2
    assert limited(full) <= info(full, "maxmemory") + slack
    limit = info(full, "maxmemory")
    eventually(lambda: limited(full) <= limit, "the background evicts what is left to do")


def test_restore_and_functions_make_room(full):
    full.ask("SET", "model", LARGE)
    dump = full.ask("DUMP", "model").encode("latin1")
    fill(full, 5000)
    for number in range(60):
        assert full.ask("RESTORE", f"restored:{number}", 0, dump) == "OK"
    code = "#!lua name=lib\nredis.register_function('fill', function(keys) for i = 1, 100 do redis.call('SET', keys[1], string.rep('z', 20000 + i)) end end)"
    assert full.ask("FUNCTION", "LOAD", "REPLACE", code) == "lib"
    for number in range(60):
        assert full.ask("FCALL", "fill", 1, f"f:{number}") is None
    limit = info(full, "maxmemory")
    eventually(lambda: limited(full) <= limit, "within the limit")


@own
def test_value_larger_than_the_limit_is_refused_and_evicts_nothing(full):
    limit = info(full, "maxmemory")

    def keys_left():
        full.line("FLUSHALL")
        # INFO sums up anew what clients hold; the sum may be of a moment when the value before was arriving.
        assert limited(full) < limit
        assert fill(full, 1000) == []
        assert full.ask("SET", "huge", b"x" * (limit + MB)) == OOM
        return full.line("DBSIZE")

    # While a part of it has arrived, that is its client's memory, and would fit. Whoever looks just then makes room.
    assert any(keys_left() == 1000 for _ in range(6))


@own
def test_value_that_was_refused_does_not_get_others_refused(full):
    huge = b"x" * (info(full, "maxmemory") + 12 * MB)
    for turn in range(60):
        # What clients hold is summed up ten times a second: some of these sums are of a moment when much of it has come.
        assert full.ask("SET", "huge", huge) == OOM
        assert full.ask("SET", "k", turn) == "OK", turn


def test_limit_that_is_lowered_is_reached_without_commands(full):
    fill(full, 3500)
    limit = info(full, "maxmemory") - 2 * MB
    config(full, maxmemory=limit)
    eventually(lambda: limited(full) <= limit, "the lower limit")
    assert 1000 < full.line("DBSIZE") < 2500
    eventually(lambda: info(full, "current_eviction_exceeded_time") == 0, "the limit is kept to")


def test_idle_times_and_counters_are_answered_by_policy(server, oracle):
    for policy in ("allkeys-lru", "allkeys-lfu", "volatile-lfu", "volatile-ttl", "noeviction"):
        replies = []
        for one in (server, oracle):
            with Peer(one) as peer:

                def idle(key, least_s):
                    """Seconds pass between the two servers."""
                    told = peer.line(f"OBJECT IDLETIME {key}")
                    return least_s <= told <= least_s + 60 if isinstance(told, int) else told

                # A counter would lose 1 where a minute begins.
                config(peer, maxmemory_policy=policy, lfu_log_factor=1_000_000, lfu_decay_time=0)

                def play():
                    peer.line("FLUSHALL")
                    peer.line("SET k v")
                    peer.line("GET k")
                    asked = [peer.line("OBJECT FREQ k"), peer.line("OBJECT FREQ none"), idle("k", 0), idle("none", 0)]
                    dump = peer.line("DUMP k").encode("latin1")
                    peer.ask("RESTORE", "old", 0, dump, "IDLETIME", 5000)
                    peer.ask("RESTORE", "used", 0, dump, "FREQ", 77)
                    return asked + [peer.line("OBJECT FREQ used"), peer.line("TYPE used"), idle("old", 5000)]

                # After a change of policy, counters and times are made anew once.
                replies.append(repeated(play))
                config(peer, maxmemory_policy="noeviction", lfu_log_factor=10, lfu_decay_time=1)
        assert replies[0] == replies[1], policy


@own
def test_lfu_counter_grows_with_use(full):
    config(full, maxmemory_policy="allkeys-lfu")

    def play():
        full.line("DEL k")
        full.line("SET k 1")
        for _ in range(2000):
            full.line("GET k")
        return 12 <= full.line("OBJECT FREQ k") <= 40

    # After a change of policy, counters are made anew once.
    assert repeated(play)


def test_directives_have_the_limits_of_redis(server, oracle):
    cases = [
        (name, value)
        for name in ("maxmemory-samples", "maxmemory-eviction-tenacity", "lfu-log-factor", "lfu-decay-time")
        for value in ("-1", "0", "1", "100", "101", "x")
    ] + [("maxmemory-policy", "allkeys"), ("lazyfree-lazy-eviction", "maybe")]
    for name, value in cases:
        got = []
        for one in (server, oracle):
            with Peer(one) as peer:
                config(peer, maxmemory_policy="noeviction", maxmemory_samples=5)
                before = peer.ask("CONFIG", "GET", name)
                got.append((before, peer.ask("CONFIG", "SET", name, value)))
                peer.ask("CONFIG", "SET", *before)
        if isinstance(got[1][1], Failure) and "must be one of" in got[1][1]:
            got = [(before, reply.split(":")[0]) for before, reply in got]
        assert got[0] == got[1], (name, value)


def test_evicted_key_is_an_event(full, server):
    config(full, notify_keyspace_events="Ee")
    with Peer(server) as listener:
        listener.line("SUBSCRIBE __keyevent@0__:evicted")
        fill(full, 5000)
        evicted = info(full, "evicted_keys")
        heard = {listener.read()[2] for _ in range(evicted)}
        assert evicted > 500 and len(heard) == evicted
        assert all(full.ask("EXISTS", key) == 0 for key in list(heard)[:100])


def test_evicted_key_invalidates_client_caches(full, server):
    with Peer(server, 3) as reader:
        reader.line("CLIENT TRACKING ON NOLOOP")
        fill(full, 3000)
        for number in range(1000):
            reader.line(f"GET key:{number}")
        keys, gone = {f"key:{number}" for number in range(1000)}, set()
        fill(full, 9000, start=10_000)

        def are_told():
            """Eviction goes on by itself, and who is told of it learns it a moment later."""
            left = {key for key in keys if full.ask("EXISTS", key)}
            reader.send("PING")
            while (reply := reader.read()) != "PONG":
                assert isinstance(reply, Push)
                gone.update(reply[1])
            return gone | left >= keys and not gone & left

        eventually(are_told, "each key is there, or its reader was told")
        assert len(gone) > 500


def test_evicted_key_dirties_a_watch(full, server):
    config(full, maxmemory_policy="allkeys-random")
    with Peer(server) as one:
        full.line("SET watched 1")
        one.line("WATCH watched")
        start = 0
        while full.line("EXISTS watched"):
            fill(full, 5000, start=start)
            start += 5000
        one.line("MULTI")
        one.line("PING")
        assert one.line("EXEC") is None


def test_blocked_client_is_served_under_pressure(full, server):
    fill(full, 5000)
    with Peer(server) as waiting:
        for number in range(50):
            waiting.send("BLPOP", "queue", 0)
            full.ask("RPUSH", "queue", b"e" * 1000)
            assert waiting.read() == ["queue", "e" * 1000]
            fill(full, 50, start=5000 + 50 * number)


@own
@pytest.mark.parametrize("lazy, word", [("no", b"DEL"), ("yes", b"UNLINK")])
def test_evictions_are_recorded_and_survive_a_kill(lazy, word):
    server = Server("--appendonly", "yes", "--appendfsync", "always", "--lazyfree-lazy-eviction", lazy)
    try:
        with Peer(server) as peer:
            limit = limited(peer) + 2 * MB
            config(peer, maxmemory_policy="allkeys-lru", maxmemory=limit)
            rng = random.Random(7)
            for _ in range(40):
                fill(peer, 200, value=b"v" * rng.randrange(10, 2000), start=rng.randrange(10_000))
            eventually(lambda: limited(peer) <= limit, "nobody is about to evict any more")
            config(peer, maxmemory=0)
            # When this is answered, all before it is in the file, what was evicted in the background, too.
            peer.line("SET last 1")
            keys = sorted(peer.line("KEYS *"))
            lengths = [peer.line(f"STRLEN {key}") for key in keys]
            assert info(peer, "evicted_keys") > 1000
        server.process.kill()
        server.process.wait()
        log = b"".join(path.read_bytes() for path in server.folder.glob("appendonlydir/*.aof"))
        assert log.count(b"$%d\r\n%s\r\n" % (len(word), word)) > 1000
        with Server("--appendonly", "yes", files=server.folder) as again, Peer(again) as peer:
            assert sorted(peer.line("KEYS *")) == keys
            assert [peer.line(f"STRLEN {key}") for key in keys] == lengths
            assert info(peer, "evicted_keys") == 0, "a server that is loading evicts nothing"
    finally:
        server.kill()


@own
def test_snapshots_beside_eviction_hold_what_was_there(full, server):
    fill(full, 4000)
    for _ in range(5):
        assert full.line("BGSAVE") == "Background saving started"
        fill(full, 4000, start=4000)
        eventually(lambda: info(full, "rdb_bgsave_in_progress") == 0, "the end of the snapshot")
    assert full.line("PING") == "PONG"


@own
def test_expiry_beside_eviction(full):
    config(full, maxmemory_policy="volatile-ttl")
    for first in range(0, 20_000, 500):
        fill(full, 500, start=first, more=("PX", 20))
    eventually(lambda: full.line("DBSIZE") == 0, "all keys have expired or were evicted")
    # A worker counts a moment later.
    eventually(lambda: info(full, "expired_keys") + info(full, "evicted_keys") == 20_000, "each is counted, once")


@pytest.mark.parametrize("pusher", ["on", "off"])
@pytest.mark.parametrize("waiter", ["on", "off"])
def test_blocked_client_is_served_under_its_own_no_touch(server, waiter, pusher):
    with Peer(server) as one, Peer(server) as two:
        # A counter would lose 1 where a minute begins.
        config(one, maxmemory_policy="allkeys-lfu", lfu_log_factor=0, lfu_decay_time=0)
        two.line(f"CLIENT NO-TOUCH {waiter}")

        def play():
            one.line("DEL list")
            two.send("BLPOP", "list", "0")
            eventually(lambda: one.line("CLIENT LIST").count(" flags=b"), "a client that waits")
            one.line(f"CLIENT NO-TOUCH {pusher}")
            one.line("RPUSH list a b")
            assert two.read() == ["list", "a"]
            used = one.line("OBJECT FREQ list")
            one.line("CLIENT NO-TOUCH off")
            return used

        # After a change of policy, counters are made anew once.
        used = repeated(play)
        config(one, maxmemory_policy="noeviction", lfu_log_factor=10, lfu_decay_time=1)
    # A new key has 5; without a logarithm, the push and each use add 1.
    assert used == {"on": 6, "off": 7}[waiter]
