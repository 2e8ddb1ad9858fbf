"""Client-side caching: each client is notified of the keys that it caches, once, and of none too
few."""

import random
import threading

import pytest

from harness import DUNLIN, Server, is_redis
from peer import Failure, Peer, Push
from wire import eventually


@pytest.fixture
def peers(server):
    """A client that tracks in RESP3, and one that writes."""
    with Peer(server, 3) as one, Peer(server) as other:
        other.line("FLUSHALL")
        yield one, other


def told(peer):
    """The pushes of a client so far: those before the reply to a PING."""
    peer.send("PING")
    pushes = []
    while (reply := peer.read()) != "PONG":
        assert isinstance(reply, Push), reply
        pushes.append(reply[1:])
    return [keys for pushed in pushes for keys in pushed]


def invalidated(peer, *expected):
    """Waits for invalidations of these keys, each by itself, in any order, and no more."""
    got = []
    eventually(lambda: got.extend(told(peer)) or len(got) >= len(expected), f"{expected}: {got}")
    assert sorted(got, key=str) == sorted(([key] if key else None for key in expected), key=str)
    assert told(peer) == []


MISTAKES = [
    ("CLIENT TRACKING maybe", "ERR syntax error"),
    ("CLIENT TRACKING ON NOPE", "ERR syntax error"),
    ("CLIENT TRACKING ON REDIRECT", "ERR syntax error"),
    ("CLIENT TRACKING ON REDIRECT x", "ERR value is not an integer or out of range"),
    ("CLIENT TRACKING ON REDIRECT 0", "ERR The client ID you want redirect to does not exist"),
    ("CLIENT TRACKING OFF REDIRECT 99999999", "ERR The client ID you want redirect to does not exist"),
    ("CLIENT TRACKING ON PREFIX a", "ERR PREFIX option requires BCAST mode to be enabled"),
    ("CLIENT TRACKING ON BCAST OPTIN", "ERR OPTIN and OPTOUT are not compatible with BCAST"),
    ("CLIENT TRACKING ON OPTIN OPTOUT", "ERR You can't specify both OPTIN mode and OPTOUT mode"),
    (
        "CLIENT TRACKING ON BCAST PREFIX ab PREFIX a",
        "ERR Prefix 'ab' overlaps with another provided prefix 'a'. Prefixes for a single client must not overlap.",
    ),
    (
        "CLIENT CACHING YES",
        "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled",
    ),
]


@pytest.mark.parametrize("line, error", MISTAKES, ids=[line for line, _ in MISTAKES])
def test_mistakes_are_told(peers, line, error):
    one, _ = peers
    assert one.line(line) == Failure(error)
    assert one.line("CLIENT TRACKINGINFO") == {"flags": ["off"], "redirect": -1, "prefixes": []}
    assert one.line("CLIENT GETREDIR") == -1


def test_modes_are_shown_and_cannot_be_mixed(peers):
    one, other = peers
    number = one.line("CLIENT ID")
    for line, flags, prefixes in [
        ("CLIENT TRACKING ON", ["on"], []),
        ("CLIENT TRACKING ON NOLOOP OPTIN", ["on", "optin", "noloop"], []),
        ("CLIENT CACHING YES", ["on", "optin", "caching-yes", "noloop"], []),
        ("PING", ["on", "optin", "noloop"], []),
        ("CLIENT TRACKING ON OPTOUT", ["on", "optin", "noloop"], []),
        ("CLIENT TRACKING ON BCAST", ["on", "optin", "noloop"], []),
        ("CLIENT TRACKING OFF", ["off"], []),
        ("CLIENT TRACKING ON OPTOUT", ["on", "optout"], []),
        ("CLIENT CACHING YES", ["on", "optout"], []),
        ("CLIENT CACHING NO", ["on", "optout", "caching-no"], []),
        ("CLIENT TRACKING OFF", ["off"], []),
        ("CLIENT TRACKING ON BCAST PREFIX b PREFIX a", ["on", "bcast"], ["a", "b"]),
        ("CLIENT TRACKING ON BCAST PREFIX aa", ["on", "bcast"], ["a", "b"]),
        ("CLIENT TRACKING ON BCAST", ["on", "bcast"], ["", "a", "b"]),
    ]:
        one.line(line)
        info = one.line("CLIENT TRACKINGINFO")
        assert (info["flags"], info["prefixes"]) == (flags, prefixes), line
    assert " flags=tB " in other.line("CLIENT LIST")
    for field in ["tracking_clients:1", "tracking_total_prefixes:3"]:
        assert field in other.line("INFO clients") + other.line("INFO stats")
    assert one.line("RESET") == "RESET"
    assert f" id={number} " not in other.line("CLIENT LIST").replace("flags=t", " id=")
    assert "tracking_clients:0" in other.line("INFO clients")
    assert "tracking_total_prefixes:0" in other.line("INFO stats")


def test_tracking_tells_a_reader_once(peers):
    one, other = peers
    one.line("CLIENT TRACKING ON")
    one.line("MGET a b")
    one.line("EXISTS c")
    assert "tracking_total_keys:3" in other.line("INFO stats")
    for line in ("SET a 1", "SET a 2", "SET d 1", "HSET b f v", "SADD c x"):
        other.line(line)
    invalidated(one, "a", "b", "c")
    assert "tracking_total_keys:0" in other.line("INFO stats")
    one.line("GET a")
    one.line("SET a 3")
    invalidated(one, "a")


WRITES = [
    ("SET k 1", "APPEND k x"),
    ("SET k 1", "EXPIRE k 100"),
    ("SET k 1 EX 100", "PERSIST k"),
    ("SET k 1", "RENAME k gone"),
    ("SET other 1", "RENAME other k"),
    ("SET k 1", "MOVE k 1"),
    ("SET k 1", "DEL k"),
    ("SADD k x", "SPOP k"),
    ("RPUSH k x", "LPOP k"),
    ("SET k 1", "SELECT 1|SET k 2"),
]


@pytest.mark.parametrize("before, write", WRITES, ids=[write for _, write in WRITES])
def test_tracking_tells_of_every_write(peers, before, write):
    one, other = peers
    other.line(before)
    one.line("CLIENT TRACKING ON")
    one.line("TTL k")
    for line in write.split("|"):
        other.line(line)
    invalidated(one, "k")


def test_tracking_tells_nothing_of_commands_without_effect(peers):
    one, other = peers
    other.line("SADD k x")
    one.line("CLIENT TRACKING ON")
    one.line("SMEMBERS k")
    for line in ("SADD k x", "SREM k y", "GET k", "PERSIST k", "SWAPDB 1 2"):
        other.line(line)
    invalidated(one)


def test_expired_keys_are_told(peers):
    one, other = peers
    one.line("CLIENT TRACKING ON")

    def is_cached():
        other.line("SET soon 1 PX 1000")
        # Of a time before, where it had expired before it was read.
        told(one)
        return one.line("GET soon") == "1"

    eventually(is_cached, "it is cached before it expires")
    invalidated(one, "soon")


@pytest.mark.parametrize("flush", ["FLUSHALL", "FLUSHDB ASYNC", "SELECT 5|FLUSHDB"])
@pytest.mark.parametrize("mode", ["", " NOLOOP", " BCAST PREFIX x"])
def test_tracking_tells_all_clients_of_a_flush(peers, flush, mode):
    one, other = peers
    one.line("CLIENT TRACKING ON" + mode)
    one.line("GET a")
    for line in flush.split("|"):
        other.line(line)
    invalidated(one, None)
    other.line("SET a 1")
    invalidated(one)


def test_tracking_optin_and_optout_choose_keys(peers):
    one, other = peers
    one.line("CLIENT TRACKING ON OPTIN")
    one.line("GET a")
    one.line("CLIENT CACHING YES")
    one.line("GET b")
    one.line("GET c")
    one.send_all("CLIENT CACHING YES", "MULTI", "GET d", "GET e", "EXEC", "GET f")
    for _ in range(6):
        one.read()
    other.line("MSET a 1 b 1 c 1 d 1 e 1 f 1")
    invalidated(one, "b", "d", "e")
    one.line("CLIENT TRACKING OFF")
    one.line("CLIENT TRACKING ON OPTOUT")
    one.line("GET a")
    one.line("CLIENT CACHING NO")
    one.line("GET b")
    one.line("GET c")
    other.line("MSET a 2 b 2 c 2")
    invalidated(one, "a", "c")


def test_own_changes_can_be_left_out(peers):
    one, other = peers
    for mode in ("", " BCAST"):
        one.line(f"CLIENT TRACKING ON NOLOOP{mode}")
        one.line("MGET own others")
        one.line("SET own 1")
        other.line("SET others 1")
        invalidated(one, "others")
        one.line("CLIENT TRACKING OFF")


def test_prefixes_tell_of_all_keys_together(peers):
    one, other = peers
    one.line("CLIENT TRACKING ON BCAST PREFIX user: PREFIX item:")
    other.line("MSET user:2 x user:1 x user:2 y item:1 x thing:1 x")
    got = []
    eventually(lambda: got.extend(told(one)) or len(got) == 2, "one push for each prefix")
    assert got == [["item:1"], ["user:1", "user:2"]] or got == [["user:1", "user:2"], ["item:1"]]
    one.line("CLIENT TRACKING OFF")
    other.line("SET user:1 z")
    assert told(one) == []


def test_tracking_turned_on_twice_tells_once(peers):
    one, other = peers
    one.line("CLIENT TRACKING ON BCAST")
    one.line("CLIENT TRACKING ON BCAST")
    other.line("SET asked-twice 1")
    got = []
    eventually(lambda: got.extend(told(one)) or got, "it is told")
    assert (got + told(one)) == [["asked-twice"]]
    one.line("CLIENT TRACKING OFF")


def test_tracking_redirects_to_another_client(server):
    with Peer(server) as cache, Peer(server) as listener, Peer(server) as other:
        number = listener.line("CLIENT ID")
        listener.line("SUBSCRIBE __redis__:invalidate")
        assert cache.line(f"CLIENT TRACKING ON REDIRECT {number}") == "OK"
        assert cache.line("CLIENT GETREDIR") == number
        assert f" redir={number} " in other.line("CLIENT LIST")
        cache.line("GET foo")
        other.line("SET foo 1")
        assert listener.read() == ["message", "__redis__:invalidate", ["foo"]]
        other.line("FLUSHALL")
        assert listener.read() == ["message", "__redis__:invalidate", None]
        assert cache.line("PING") == "PONG"


def test_tracking_redirection_may_break(server):
    with Peer(server, 3) as cache, Peer(server) as other:
        with Peer(server, 3) as listener:
            number = listener.line("CLIENT ID")
            cache.line(f"CLIENT TRACKING ON REDIRECT {number}")
            cache.line("GET foo")
            other.line("SET foo 1")
            assert listener.read() == Push(["invalidate", ["foo"]]), "whatever it listens to"
        eventually(lambda: f"id={number} " not in other.line("CLIENT LIST"), "it has gone")
        cache.line("GET foo")
        other.line("SET foo 2")
        assert cache.read() == Push(["tracking-redir-broken", number])
        info = cache.line("CLIENT TRACKINGINFO")
        assert (info["flags"], info["redirect"]) == (["on", "broken_redirect"], number)
        assert " flags=tR " in other.line("CLIENT LIST")


def test_resp2_without_redirection_is_told_nothing(server):
    with Peer(server) as one, Peer(server) as other:
        one.line("CLIENT TRACKING ON")
        one.line("GET foo")
        other.line("SET foo 1")
        assert one.is_silent()


def test_tracking_table_is_limited(peers):
    one, other = peers
    other.line("CONFIG SET tracking-table-max-keys 10")
    one.line("CLIENT TRACKING ON")
    keys = [f"key:{number}" for number in range(50)]
    one.ask("MGET", *keys)
    got = []
    eventually(lambda: got.extend(told(one)) or len(got) >= 40, "some are forgotten")
    assert "tracking_total_keys:10" in other.line("INFO stats")
    assert len({key for key, in got}) == 40
    other.line("CONFIG SET tracking-table-max-keys 1000000")


def test_tracking_leaves_no_copy_stale(server):
    """Random writers; the values in a cache in the end are those of the server."""
    keys = [f"cached:{number}" for number in range(20)]
    stop = threading.Event()

    def write(seed):
        chance = random.Random(seed)
        with Peer(server) as peer:
            while not stop.is_set():
                peer.ask("SET", chance.choice(keys), chance.randrange(1 << 40))

    writers = [threading.Thread(target=write, args=[seed]) for seed in range(3)]
    caches = [{} for _ in range(3)]

    def read(cache, seed):
        chance = random.Random(seed)
        with Peer(server, 3) as peer:
            peer.line("CLIENT TRACKING ON")

            def take(reply):
                """Obeys pushes until the reply comes."""
                while isinstance(reply, Push):
                    for key in reply[1]:
                        cache.pop(key, None)
                    reply = peer.read()
                return reply

            for turn in range(3000):
                key = chance.choice(keys)
                cache[key] = take(peer.ask("GET", key))
                if turn == 2500:
                    done.wait()
                    stop.set()
                    for writer in writers:
                        writer.join()
            assert take(peer.ask("ECHO", "all that was told before has been read")).startswith("all")

    done = threading.Barrier(len(caches))
    readers = [threading.Thread(target=read, args=[cache, seed]) for seed, cache in enumerate(caches)]
    for thread in writers + readers:
        thread.start()
    for reader in readers:
        reader.join()
    with Peer(server) as peer:
        for cache in caches:
            assert cache
            for key, value in cache.items():
                assert peer.ask("GET", key) == value, "a stale copy"


@pytest.mark.skipif(is_redis(DUNLIN), reason="a directive of more than one thread")
def test_changes_of_every_worker_are_broadcast():
    with Server("--threads", "4") as server, Peer(server, 3) as one:
        one.line("CLIENT TRACKING ON BCAST")
        writers = [Peer(server) for _ in range(16)]
        for number, writer in enumerate(writers):
            writer.line(f"SET key:{number} 1")
        got = []
        eventually(lambda: got.extend(key for keys in told(one) for key in keys) or len(got) == 16, f"{got}")
        assert sorted(got) == sorted(f"key:{number}" for number in range(16))
        for writer in writers:
            writer.close()
