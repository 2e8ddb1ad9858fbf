"""Primaries and replicas of all houses: the data sets are the same after all writes, however links fail."""

import random
import subprocess
import threading

import pytest
import redis

from harness import DUNLIN, ORACLE, VALKEY, WITHOUT_VALKEY, Server
from link_calls import fill, primary, random_calls, run
from links import Link, Node, has_link, raw, settle, until
from options import DATA

HOUSES = {"dunlin": DUNLIN, "redis": ORACLE, "valkey": VALKEY}
PAIRS = [
    ("dunlin", "dunlin"),
    ("dunlin", "redis"),
    ("redis", "dunlin"),
    ("dunlin", "valkey"),
    ("valkey", "dunlin"),
]
@pytest.fixture(params=PAIRS, ids=lambda pair: f"{pair[1]}-of-{pair[0]}")
def pair(request):
    primary, replica = (HOUSES[house] for house in request.param)
    if not (primary and replica):
        pytest.skip(WITHOUT_VALKEY)
    with Node(primary) as first, Node(replica) as second:
        yield first, second


def test_full_sync_has_every_type_and_database(pair):
    primary, replica = pair
    fill(primary)
    primary.call("SELECT", 0)
    for words in DATA[1:]:
        primary.call(*words)
    with redis.Redis(port=primary.port, db=5, protocol=2) as other:
        other.set("elsewhere", 1, px=10_000_000)
        other.set("large", b"x" * 3_000_000)
    replica.call("SET", "of the replica", 1)
    replica.follow(primary.port)
    settle(primary, replica)
    assert replica.call("EXISTS", "of the replica") == 0
    assert b"library" in replica.call("FUNCTION", "LIST")[0]


@pytest.mark.parametrize("seed", [1, 2])
def test_stream_of_every_command_comes_to_the_same(pair, seed):
    primary, replica = pair
    replica.follow(primary.port)
    until(lambda: has_link(replica), "a link")
    run(primary, random_calls(primary, replica, seed, 4000), seed)
    settle(primary, replica)


def test_cut_links_go_on_where_they_were(pair):
    primary, replica = pair
    fill(primary, 200)
    with Link(primary.port) as link:
        replica.follow(link.port)
        until(lambda: has_link(replica), "a link")
        full = primary.info("stats")["sync_full"]
        client = redis.Redis(port=primary.port, protocol=2)
        for round in range(5):
            for n in range(500):
                with client.pipeline(transaction=n % 2 == 0) as pipe:
                    pipe.set(f"k{n}", round).rpush(f"l{n % 10}", n).incr("counter")
                    pipe.execute()
                if n == 250:
                    link.cut()
        settle(primary, replica)
        stats = primary.info("stats")
        assert stats["sync_full"] == full
        assert stats["sync_partial_ok"] >= 1
        assert link.made >= 2


def test_replica_that_lacks_more_than_the_backlog_gets_a_snapshot(pair):
    primary, replica = pair
    primary.call("CONFIG", "SET", "repl-backlog-size", 20_000)
    with Link(primary.port) as link:
        replica.follow(link.port)
        until(lambda: has_link(replica), "a link")
        link.cut(refuse=True)
        until(lambda: primary.info()["connected_slaves"] == 0, "the replica's absence")
        counts = [primary.info("stats")[name] for name in ("sync_full", "sync_partial_err")]
        at = replica.info()["slave_repl_offset"]
        for n in range(200):
            primary.call("SET", f"k{n}", "x" * 1000)
        until(lambda: primary.info()["repl_backlog_first_byte_offset"] > at + 1, "a backlog without what it lacks")
        link.heal()
        settle(primary, replica)
        after = [primary.info("stats")[name] for name in ("sync_full", "sync_partial_err")]
        assert after == [count + 1 for count in counts]


def test_links_that_flap_during_writes_lose_nothing(pair):
    primary, replica = pair
    stop = threading.Event()
    rng = random.Random(7)

    def write():
        client = redis.Redis(port=primary.port, protocol=2)
        n = 0
        while not stop.is_set():
            with client.pipeline() as pipe:
                for _ in range(rng.randrange(1, 20)):
                    n += 1
                    pipe.append(f"a{n % 100}", n)
                pipe.execute()

    with Link(primary.port) as link:
        replica.follow(link.port)
        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(8):
                made = link.made
                until(lambda: link.made > made or has_link(replica), "another connection")
                link.cut()
            until(lambda: has_link(replica), "a link")
        finally:
            stop.set()
            writer.join()
        settle(primary, replica)


def test_transaction_is_seen_whole_or_not_at_all(pair):
    primary, replica = pair
    replica.follow(primary.port)
    until(lambda: has_link(replica), "a link")
    names = [f"t{n}" for n in range(20)]
    torn, stop = [], threading.Event()

    def read():
        client = redis.Redis(port=replica.port, protocol=2)
        while not stop.is_set():
            values = set(client.mget(names))
            if len(values) > 1:
                torn.append(values)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for value in range(1000):
            with primary.client.pipeline() as pipe:
                for name in names:
                    pipe.set(name, value)
                pipe.execute()
        settle(primary, replica)
    finally:
        stop.set()
        reader.join()
    assert torn == []


def test_expiry_is_the_primarys_business(pair):
    primary, replica = pair
    replica.follow(primary.port)
    until(lambda: has_link(replica), "a link")
    primary.call("DEBUG", "SET-ACTIVE-EXPIRE", 0)
    primary.call("SET", "short", 1, "PX", 20)
    primary.call("SET", "long", 1, "PX", 10_000_000)
    until(lambda: replica.call("EXISTS", "long"), "the second key")
    until(lambda: replica.call("GET", "short") is None, "the end of its time")
    # No client sees it, but it is there until the primary says otherwise.
    assert replica.call("DBSIZE") == 2
    # Nor do commands remove it that read like a write.
    assert replica.call("PFCOUNT", "short") == 0 and replica.call("XREAD", "STREAMS", "short", "0") is None
    assert replica.call("DBSIZE") == 2
    primary.call("GET", "short")
    settle(primary, replica)
    assert replica.call("DBSIZE") == 1


def test_command_of_very_many_words_reaches_replicas(pair):
    primary, replica = pair
    replica.follow(primary.port)
    until(lambda: has_link(replica), "a link")
    primary.call("RPUSH", "long", *["e"] * (1 << 20))
    settle(primary, replica)
    assert has_link(replica) and replica.call("LLEN", "long") == 1 << 20


def test_kill_of_the_replica_and_of_the_primary(pair):
    primary, replica = pair
    fill(primary, 300)
    with Node(replica.program) as second:
        second.follow(primary.port)
        replica.follow(primary.port)
        settle(primary, replica, second)
        second.process.kill()
        second.process.wait()
        primary.call("SET", "after", 1)
        settle(primary, replica)
        # A server that has gone does not come back by itself; the context's end would look for a clean stop.
        second.stop = lambda: second.kill()
    with Node(primary.program) as successor, Link(primary.port) as link:
        replica.follow(link.port)
        settle(primary, replica)
        primary.process.kill()
        primary.process.wait()
        until(lambda: not has_link(replica), "the loss of the link")
        assert replica.call("GET", "after") == b"1"
        fill(successor, 100)
        link.target = successor.port
        settle(successor, replica)
        primary.stop = lambda: primary.kill()


def test_promoted_replica_goes_on_with_its_sibling(pair):
    primary, replica = pair
    # The sibling is not to have a PING that has not come to the promoted one.
    primary.call("CONFIG", "SET", "repl-ping-replica-period", 36_000)
    with Node(replica.program) as sibling:
        fill(primary, 100)
        for node in (replica, sibling):
            node.follow(primary.port)
        settle(primary, replica, sibling)
        with redis.Redis(port=primary.port, db=3, protocol=2) as other:
            other.set("in another database", 1)
        settle(primary, replica, sibling)
        replica.call("REPLICAOF", "NO", "ONE")
        assert replica.info()["role"] == "master"
        replica.call("SET", "new", 1)
        sibling.follow(replica.port)
        settle(replica, sibling)
        stats = replica.info("stats")
        assert (stats["sync_full"], stats["sync_partial_ok"]) == (0, 1)
        # The former primary has nothing that the promoted one lacks.
        primary.follow(replica.port)
        settle(replica, sibling, primary)
        assert primary.call("GET", "new") == b"1"


def test_chain_has_the_same_bytes(pair):
    primary, replica = pair
    with Node(replica.program) as last:
        fill(primary, 100)
        replica.follow(primary.port)
        until(lambda: has_link(replica), "a link")
        last.follow(replica.port)
        until(lambda: has_link(last), "a link")
        run(primary, random_calls(primary, replica, 3, 500), 3)
        settle(primary, replica, last)
        assert last.info()["master_replid"] == primary.info()["master_replid"]


def test_snapshot_of_a_replica_has_the_libraries_of_its_place_in_the_stream():
    """A replica of a replica attaches again and again, libraries come and go in the stream, and scripts hold up each cut."""
    library = "#!lua name=l\nredis.register_function('f', function() return 1 end)"
    slow = "local n = 0 for i = 1, 1000000 do n = n + i end return n"

    with Node(DUNLIN) as first, Node(DUNLIN, "--threads", "2") as second, Node(DUNLIN) as third:
        second.follow(first.port)
        settle(first, second)
        ended = threading.Event()

        def change():
            with raw(first.port) as client:
                while not ended.is_set():
                    client.execute_command("FUNCTION", "LOAD", library)
                    client.execute_command("FUNCTION", "DELETE", "l")

        def hold_up():
            with raw(second.port) as client:
                while not ended.is_set():
                    client.execute_command("EVAL_RO", slow, 1, "k")

        threads = [threading.Thread(target=target) for target in (change, hold_up)]
        for thread in threads:
            thread.start()
        try:
            for attempt in range(10):
                # What it writes itself has it need a snapshot.
                third.call("REPLICAOF", "NO", "ONE")
                third.call("SET", "own", attempt)
                third.follow(second.port)
                start = second.info()["master_repl_offset"]

                def has_gone_on():
                    info = third.info()
                    assert "master_link_error" not in info, info["master_link_error"]
                    return info["master_link_status"] == "up" and info["slave_repl_offset"] > start + 1000

                until(has_gone_on, "the stream behind a snapshot")
        finally:
            ended.set()
            for thread in threads:
                thread.join()
        settle(first, second, third)
        assert second.info("stats")["sync_full"] >= 10


def test_wait_counts_replicas_that_have_acknowledged(pair):
    primary, replica = pair
    assert primary.call("WAIT", 1, 10) == 0
    replica.follow(primary.port)
    until(lambda: has_link(replica), "a link")
    until(lambda: primary.info()["connected_slaves"] == 1, "a replica")
    for n in range(20):
        primary.call("SET", "k", n)
        assert primary.call("WAIT", 1, 30_000) == 1
        assert replica.call("GET", "k") == str(n).encode()


def test_roles_are_enforced_in_the_words_of_redis(pair):
    primary, replica = pair
    replica.follow(primary.port)
    until(lambda: has_link(replica), "a link")
    with pytest.raises(redis.exceptions.ReadOnlyError, match="You can't write against a read only replica"):
        replica.call("SET", "k", 1)
    assert replica.call("ROLE")[0] == b"slave"
    assert until(lambda: primary.call("ROLE")[2], "a replica in ROLE")[0][1] == str(replica.port).encode()
    replica.call("CONFIG", "SET", "replica-serve-stale-data", "no")
    primary.call("CONFIG", "SET", "min-replicas-to-write", 2)

    def refused():
        try:
            primary.call("SET", "k", 1)
        except redis.ResponseError as error:
            return str(error)

    assert until(refused, "a refusal") == "NOREPLICAS Not enough good replicas to write."
    primary.process.kill()
    primary.process.wait()
    primary.stop = lambda: primary.kill()

    def is_down():
        try:
            replica.call("GET", "k")
        except redis.ResponseError as error:
            return type(error), str(error)

    down = until(is_down, "MASTERDOWN")
    assert down == (
        redis.exceptions.MasterDownError,
        "Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    )


def test_publish_reaches_subscribers_of_replicas(pair):
    primary, replica = pair
    replica.follow(primary.port)
    until(lambda: has_link(replica), "a link")
    with redis.Redis(port=replica.port, protocol=2).pubsub() as pubsub:
        pubsub.subscribe("channel")
        until(lambda: pubsub.get_message(timeout=1), "the subscription")
        primary.call("PUBLISH", "channel", "hello")
        assert until(lambda: pubsub.get_message(timeout=1), "the message")["data"] == b"hello"


def test_redis_cli_fetches_a_snapshot(primary, tmp_path):
    fill(primary, 100)
    path = tmp_path / "fetched.rdb"
    subprocess.run(["redis-cli", "-p", str(primary.port), "--rdb", str(path)], check=True, timeout=60)
    with Node(ORACLE, "--dbfilename", "dump.rdb") as other:
        target = other.folder / "dump.rdb"
        target.write_bytes(path.read_bytes())
        other.call("DEBUG", "RELOAD", "NOSAVE")
        assert other.digest() == primary.digest()


def test_hash_fields_that_expire_reach_old_replicas(primary):
    with Node(ORACLE) as old, Node(DUNLIN) as new:
        primary.call("HSET", "h", "a", 1, "b", 2)
        primary.call("HPEXPIRE", "h", 10_000_000, "FIELDS", 1, "a")
        for node in (old, new):
            node.follow(primary.port)
            until(lambda: has_link(node), "a link")
        assert sorted(old.call("HGETALL", "h")) == sorted(new.call("HGETALL", "h"))
        assert new.call("HPEXPIRETIME", "h", "FIELDS", 1, "a") == primary.call("HPEXPIRETIME", "h", "FIELDS", 1, "a")


def test_replica_with_a_log_starts_with_what_it_had(primary):
    fill(primary, 100)
    with Node(DUNLIN, "--appendonly", "yes", "--appendfsync", "always") as replica:
        replica.follow(primary.port)
        settle(primary, replica)
        for n in range(100):
            primary.call("INCR", "counter")
        settle(primary, replica)
        digest = replica.digest()
        until(lambda: replica.info("persistence")["aof_rewrite_in_progress"] == 0, "the log's base")
        primary.call("INCR", "counter")
        settle(primary, replica)
        digest = primary.digest()
        replica.client.close()
        replica.process.terminate()
        assert replica.process.wait(30) == 0
        with Server("--appendonly", "yes", "--enable-debug-command", "yes", files=replica.folder) as again:
            with redis.Redis(port=again.port, protocol=2) as client:
                assert client.execute_command("DEBUG", "DIGEST") == digest
        replica.stop = lambda: replica.kill()


def test_replica_that_takes_nothing_is_cut_and_holds_up_no_client(primary):
    primary.call("CONFIG", "SET", "client-output-buffer-limit", "replica 4mb 0 0")
    primary.call("CONFIG", "SET", "repl-backlog-size", "1mb")
    with primary.connect() as slow:
        slow.sendall(b"REPLCONF capa eof capa psync2\r\nPSYNC ? -1\r\n")
        received = b""

        def is_whole():
            at = received.find(b"$EOF:")
            mark = received[at + 5 : at + 45]
            return at >= 0 and len(mark) == 40 and received.count(mark) == 2 and received.endswith(mark)

        while not is_whole():
            received += slow.recv(65536)
        slow.sendall(b"REPLCONF ACK 0\r\n")
        until(lambda: primary.info()["connected_slaves"] == 1, "the replica")
        for n in range(200):
            primary.call("SET", f"k{n % 10}", "x" * 100_000)
        until(lambda: primary.info()["connected_slaves"] == 0, "the end of its link")
