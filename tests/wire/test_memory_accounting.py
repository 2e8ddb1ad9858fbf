"""used_memory: all that the server holds counts, and keys give way only to what they can make room for."""

import contextlib
import re

import pytest
from harness import DUNLIN, Server, is_redis
from peer import Peer, Push
from wire import at_rest, eventually

MB = 1 << 20
pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="about Dunlin's own memory")


def info(peer, field):
    found = re.search(rf"^{field}:(\d+)", peer.ask("INFO", "everything"), re.M)
    return int(found.group(1))


def await_others(observer, clients=1):
    """Waits until clients of former tests have gone, with all that they had."""
    eventually(lambda: info(observer, "connected_clients") == clients, "others are connected")


def total_memory(observer, client):
    return int(re.search(r"tot-mem=(\d+)", observer.line(f"CLIENT LIST ID {client}")).group(1))


REGISTERED = {
    "channels": (lambda n: ("SUBSCRIBE", f"channel:{n}:" + "c" * 100), "UNSUBSCRIBE"),
    "patterns": (lambda n: ("PSUBSCRIBE", f"pattern:{n}:" + "c" * 100), "PUNSUBSCRIBE"),
    "shard channels": (lambda n: ("SSUBSCRIBE", f"shard:{n}:" + "c" * 100), "SUNSUBSCRIBE"),
    "watched keys": (lambda n: ("WATCH", f"watched:{n}:" + "c" * 100), "UNWATCH"),
    "prefixes": (lambda n: ("CLIENT", "TRACKING", "on", "BCAST", "PREFIX", f"{n:04}:" + "c" * 100), "CLIENT TRACKING off"),
}


@pytest.mark.parametrize("kind", REGISTERED)
def test_client_memory_counts_what_it_registers(server, kind):
    words, end = REGISTERED[kind]
    with Peer(server) as observer, Peer(server, 3) as client:
        number = client.line("CLIENT ID")
        await_others(observer, 2)
        used, own = info(observer, "used_memory"), total_memory(observer, number)
        for each in range(2000):
            client.ask(*words(each))
        assert total_memory(observer, number) >= own + 2000 * 200
        assert info(observer, "used_memory") >= used + 2000 * 200
        client.send(*end.split())
        eventually(lambda: total_memory(observer, number) <= own + 64 * 1024, "it has nothing registered")
        assert info(observer, "used_memory") <= used + 128 * 1024


def test_client_that_registers_too_much_is_evicted(server):
    with Peer(server) as observer, Peer(server) as greedy:
        observer.line("CONFIG RESETSTAT")
        try:
            assert observer.line("CONFIG SET maxmemory-clients 2mb") == "OK"
            with contextlib.suppress(ConnectionError):
                for number in range(20_000):
                    greedy.send("SUBSCRIBE", f"channel:{number}:" + "c" * 100)
            eventually(lambda: info(observer, "evicted_clients") == 1, "it is closed")
            await_others(observer)
        finally:
            observer.line("CONFIG SET maxmemory-clients 0")


def test_names_of_keys_that_clients_cache_count(server):
    with Peer(server) as observer, Peer(server, 3) as client:
        client.line("CLIENT TRACKING on")
        await_others(observer, 2)
        used = info(observer, "used_memory")
        for number in range(500):
            client.ask("GET", f"cached:{number}:" + "k" * 2000)
        assert info(observer, "used_memory") >= used + 500 * 2000
        client.line("CLIENT TRACKING off")
        observer.line("FLUSHALL")
        eventually(lambda: info(observer, "used_memory") < used + 256 * 1024, "they are forgotten")


def test_connections_count(server):
    with Peer(server) as observer:
        await_others(observer)
        used = info(observer, "used_memory")
        others = [Peer(server) for _ in range(200)]
        for other in others:
            other.line("PING")
        each = (info(observer, "used_memory") - used) / 200
        for other in others:
            other.close()
        assert each > 300


def test_log_buffers_count_and_evict_nothing():
    with Server("--appendonly", "yes") as server, Peer(server) as peer:
        for number in range(4000):
            peer.send("SET", f"key:{number}", b"x" * 1000)
        for _ in range(4000):
            assert peer.read() == "OK"
        assert info(peer, "mem_not_counted_for_evict") >= MB, "a segment of the ring at least"
        used, uncounted = info(peer, "used_memory"), info(peer, "mem_not_counted_for_evict")
        assert used > uncounted + 4000 * 1000
        assert peer.line(f"CONFIG SET maxmemory-policy allkeys-lru maxmemory {used - uncounted + MB // 4}") == "OK"
        for number in range(100):
            assert peer.ask("SET", f"key:{number}", b"y" * 1000) == "OK"
        assert info(peer, "evicted_keys") == 0


def test_idle_log_takes_little_and_has_its_own_info_line():
    """A segment of the ring remains, of 1 MB."""
    with Server("--appendonly", "yes", "--threads", 2) as server, Peer(server) as peer:
        before = info(peer, "used_memory")
        for number in range(100_000):
            peer.send("SET", f"key:{number}", b"x" * 100)
        for _ in range(100_000):
            assert peer.read() == "OK"
        assert info(peer, "mem_aof_ring") >= MB
        assert peer.line("FLUSHALL") == "OK"
        assert peer.line("BGREWRITEAOF") == "Background append only file rewriting started"
        eventually(lambda: info(peer, "aof_rewrite_in_progress") == 0 and info(peer, "aof_rewrites") == 1, "the log is rewritten")
        assert peer.line("MEMORY PURGE") == "OK"
        eventually(lambda: info(peer, "used_memory") < before + MB + MB // 2, "the ring shrinks")
        assert info(peer, "mem_aof_ring") <= info(peer, "used_memory") - before + 64 * 1024


def test_clients_that_are_gone_are_among_no_readers(server):
    with Peer(server) as peer:
        assert peer.line("FLUSHALL") == "OK"
        for number in range(300):
            with Peer(server, 3) as client:
                assert client.line("CLIENT TRACKING ON") == "OK"
                client.line("GET shared")
                client.line(f"GET own:{number}")
                if number % 3 == 0:
                    assert client.line("CLIENT TRACKING OFF") == "OK"
        with Peer(server, 3) as stays:
            assert stays.line("CLIENT TRACKING ON") == "OK"
            stays.line("GET shared")
            eventually(lambda: info(peer, "tracking_total_items") == 1, "only the client that is there is left")
            assert info(peer, "tracking_total_keys") == 1
            assert peer.line("SET shared 1") == "OK"
            assert stays.read() == Push(["invalidate", ["shared"]])


def test_copies_of_a_snapshot_count_while_they_wait():
    with Server("--rdb-key-save-delay", "1000") as server, Peer(server) as peer:
        for number in range(20_000):
            peer.send("SET", f"key:{number}", b"x" * 500)
        for _ in range(20_000):
            peer.read()
        assert peer.line("BGSAVE") == "Background saving started"
        for number in range(20_000):
            peer.send("SET", f"key:{number}", b"y" * 500)
        for _ in range(20_000):
            peer.read()
        assert info(peer, "rdb_bgsave_in_progress") == 1
        eventually(lambda: info(peer, "mem_not_counted_for_evict") > MB, "copies wait")


def test_limit_below_the_empty_server_refuses_writes_and_evicts_nothing(server):
    with Peer(server) as peer:
        peer.line("FLUSHALL")
        peer.line("SET k v")
        peer.line("CONFIG RESETSTAT")
        try:
            assert peer.line("CONFIG SET maxmemory-policy allkeys-lru maxmemory 1000") == "OK"
            assert str(peer.line("SET other v")).startswith("OOM ")
            assert peer.line("GET k") == "v"
            assert peer.line("DEL k") == 1
            assert info(peer, "evicted_keys") == 0
        finally:
            peer.line("CONFIG SET maxmemory 0 maxmemory-policy noeviction")


def fragment(peer, count=60_000):
    """Leaves one of five keys, all over the pages."""
    for first in range(0, count, 1000):
        for number in range(first, first + 1000):
            peer.send("SET", f"sparse:{number:06}", b"x" * 300)
        for _ in range(1000):
            assert peer.read() == "OK"
    for first in range(0, count, 1000):
        gone = [f"sparse:{number:06}" for number in range(first, first + 1000) if number % 5]
        assert peer.ask("DEL", *gone) == 800


DEFRAGMENTATION = ("--active-defrag-ignore-bytes", "100kb")


def test_sparse_pages_are_compacted():
    with Server("--activedefrag", "no", *DEFRAGMENTATION) as server, Peer(server) as peer:
        fragment(peer)
        kept = [f"sparse:{number:06}" for number in range(0, 60_000, 5)]
        values = peer.ask("MGET", *kept)
        before = info(peer, "allocator_active")
        assert info(peer, "allocator_frag_bytes") > 8 * MB
        assert (info(peer, "active_defrag_running"), info(peer, "active_defrag_hits")) == (0, 0)
        assert peer.line("CONFIG SET activedefrag yes") == "OK"
        eventually(lambda: info(peer, "allocator_active") < before - 8 * MB, "the pages are free")
        # Each worker has a share of the work, and takes it up and is done with it by itself.
        fields = ("active_defrag_running", "current_active_defrag_time")
        eventually(lambda: [info(peer, field) for field in fields] == [0, 0], "there is no more to do")
        hits, of_keys = at_rest(lambda: info(peer, "active_defrag_hits"), lambda: info(peer, "active_defrag_key_hits"))
        assert 5000 < hits < 60_000 and of_keys == hits
        assert peer.ask("MGET", *kept) == values


def test_compaction_and_snapshots_do_not_disturb_each_other():
    flags = ("--enable-debug-command", "yes", *DEFRAGMENTATION)
    with Server("--rdb-key-save-delay", "20", *flags) as server, Peer(server) as peer:
        for _ in range(3):
            fragment(peer, 20_000)
            assert peer.line("BGSAVE") == "Background saving started"
            fragment(peer, 20_000)
            eventually(lambda: info(peer, "rdb_bgsave_in_progress") == 0, "the end of the snapshot")
        # The snapshot of a moment without writes has exactly the keys of that moment.
        peer.line("SAVE")
        digest = peer.line("DEBUG DIGEST")
        with Server(*flags, files=server.folder) as again, Peer(again) as other:
            assert other.line("DBSIZE") == 4000
            assert other.line("DEBUG DIGEST") == digest
