"""db-maxmemory: a database with a limit of its own evicts its own keys, and nobody else's."""

import re

import pytest
from harness import DUNLIN, Server, is_redis
from peer import Failure, Peer
from wire import at_rest, command, eventually, exactly

MB = 1 << 20
OOM = Failure("OOM command not allowed when used memory > 'maxmemory'.")
pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="Redis has no limits of databases")


def figures(peer, database):
    found = re.search(rf"^db_maxmemory_{database}:limit=(\d+),used=(\d+),evicted=(\d+)", peer.ask("INFO", "memory"), re.M)
    return tuple(map(int, found.groups())) if found else None


def fill(peer, count, start=0, size=1000, more=()):
    bad = []
    for first in range(start, start + count, 500):
        for number in range(first, first + 500):
            peer.send("SET", f"key:{number}", b"x" * size, *more)
        bad += [reply for reply in (peer.read() for _ in range(500)) if reply != "OK"]
    return bad


@pytest.fixture
def limited():
    with Server("--db-maxmemory", "3:4mb", "--maxmemory-policy", "allkeys-lru") as server, Peer(server) as peer:
        yield server, peer


def test_database_limit_evicts_its_own_keys_only(limited):
    _, peer = limited
    # However long it takes to make room.
    peer.line("CONFIG SET maxmemory-eviction-tenacity 100")
    assert fill(peer, 3000) == []
    peer.line("SELECT 3")
    assert fill(peer, 12_000) == []
    limit, used, _ = figures(peer, 3)
    assert limit == 4 * MB and used <= limit + 64 * 1024

    def is_accounted_for():
        (_, _, evicted), kept = at_rest(lambda: figures(peer, 3), lambda: peer.line("DBSIZE"))
        return kept + evicted == 12_000 and kept > 2000

    eventually(is_accounted_for, "each key is there, or was evicted")
    peer.line("SELECT 0")
    assert peer.line("DBSIZE") == 3000
    assert figures(peer, 0) is None


@pytest.mark.parametrize("policy, more", [("noeviction", ()), ("volatile-lru", ())])
def test_writes_are_refused_in_that_database_where_nothing_may_go(limited, policy, more):
    _, peer = limited
    peer.line(f"CONFIG SET maxmemory-policy {policy}")
    peer.line("SELECT 3")
    bad = fill(peer, 6000, more=more)
    assert bad and set(bad) == {OOM}
    assert peer.line("DEL key:0 key:1") == 2
    peer.line("SELECT 0")
    assert fill(peer, 6000) == []


def test_scripts_transactions_and_copies_keep_to_the_limit(limited):
    _, peer = limited
    script = "for i = 1, 300 do redis.call('SET', KEYS[1] .. i, string.rep('z', 20000)) end return 'done'"
    peer.line("SELECT 3")
    assert peer.ask("EVAL", script, 1, "s") == "done"
    eventually(lambda: figures(peer, 3)[1] <= 4 * MB, "the background evicts what is left to do")
    assert peer.line("MULTI") == "OK"
    for number in range(60):
        assert peer.ask("SET", f"t{number}", b"y" * 100_000) == "QUEUED"
    assert peer.line("EXEC") == ["OK"] * 60
    eventually(lambda: figures(peer, 3)[1] <= 4 * MB, "the background evicts what is left to do")
    peer.line("SELECT 0")
    assert peer.ask("SET", "large", b"z" * MB) == "OK"
    for number in range(10):
        assert peer.line(f"COPY large copy:{number} DB 3") == 1
    eventually(lambda: figures(peer, 3)[1] <= 4 * MB, "copies into the database count")
    assert peer.line("DBSIZE") == 1
    script = "redis.call('SELECT', 3) redis.call('SET', KEYS[1], string.rep('z', 5000000)) return 'done'"
    # A value that would not fit if nothing else were there is refused, as outside of scripts.
    assert str(OOM) in peer.ask("EVAL", script, 1, "far")
    script = "redis.call('SELECT', 3) for i = 1, 5 do redis.call('SET', KEYS[1] .. i, string.rep('z', 1000000)) end return 'done'"
    assert peer.ask("EVAL", script, 1, "far") == "done"
    eventually(lambda: figures(peer, 3)[1] <= 4 * MB, "as do writes of scripts elsewhere")
    assert peer.line("EXISTS large") == 1


def test_database_limit_stays_with_its_number_after_swapdb(limited):
    _, peer = limited
    assert fill(peer, 8000) == []
    assert peer.line("SWAPDB 0 3") == "OK"
    eventually(lambda: figures(peer, 3)[1] <= 4 * MB, "the database that has come keeps to the limit")
    assert peer.line("DBSIZE") == 0


def test_limits_change_at_run_time_and_survive_a_rewrite():
    with Server(config="db-maxmemory 1:8mb\ndb-maxmemory 2:1gb\n") as server, Peer(server) as peer:
        get = lambda: peer.line("CONFIG GET db-maxmemory")[1]
        assert get() == "1:8mb 2:1gb"
        assert peer.ask("CONFIG", "SET", "db-maxmemory", "3:2gb 2:0") == "OK"
        assert get() == "1:8mb 3:2gb"
        peer.line("SELECT 1")
        peer.line("CONFIG SET maxmemory-policy allkeys-random")
        assert fill(peer, 7000) == []
        assert peer.ask("CONFIG", "SET", "db-maxmemory", "1:2mb") == "OK"
        eventually(lambda: figures(peer, 1)[1] <= 2 * MB, "a lower limit is reached by itself")
        assert peer.line("CONFIG REWRITE") == "OK"
        assert "db-maxmemory 1:2mb 3:2gb" in (server.folder / "server.conf").read_text()
        for wrong in ("1", "x:1mb", "-1:1mb", "1:1parsec", ":1mb", "1:"):
            assert isinstance(peer.ask("CONFIG", "SET", "db-maxmemory", wrong), Failure), wrong
        assert peer.ask("CONFIG", "SET", "db-maxmemory", "") == "OK"
        assert get() == ""
        assert figures(peer, 1) is None


@pytest.fixture
def full():
    """A server whose database 3 is full, and refuses."""
    with Server("--db-maxmemory", "3:1mb 4:1mb", "--enable-debug-command", "yes") as server, Peer(server) as peer:
        peer.line("SELECT 3")
        while peer.ask("SET", f"fill:{figures(peer, 3)[1]}", b"x" * 10_000) == "OK":
            pass
        assert figures(peer, 3)[1] > MB
        peer.line("SELECT 0")
        assert peer.ask("SET", "small", "v") == "OK" and peer.ask("SET", "large", b"x" * 2 * MB) == "OK"
        yield server, peer


WRITE = "return redis.call('SET', 'new', ARGV[1])"
ELSEWHERE = "redis.call('SELECT', 3) " + WRITE


@pytest.mark.parametrize(
    "lines",
    [
        [["MOVE", "small", 3]],
        [["COPY", "small", "copied", "DB", 3]],
        [["EVAL", ELSEWHERE, 0, "v"]],
        [["EVAL", "redis.call('SET', 'here', 1) " + ELSEWHERE, 0, "v"]],
        [["EVAL", "#!lua\n" + ELSEWHERE, 0, "v"]],
        [["EVAL", "return redis.call('COPY', 'small', 'copied', 'DB', 3)", 0]],
        [["EVAL", "return redis.call('MOVE', 'small', 3)", 0]],
        [["FCALL", "write", 0, "v"]],
        [["SELECT", 3], ["FCALL", "write", 0, "v"]],
        [["SELECT", 3], ["RESTORE", "new", 0, "DUMP small"]],
    ],
    ids=lambda lines: " ".join(str(word)[:60] for word in lines[-1]),
)
def test_database_that_is_full_takes_no_write_by_any_way(full, lines):
    server, peer = full
    library = "#!lua name=lib\nredis.register_function('write', function(keys, args) %s end)"
    assert peer.ask("FUNCTION", "LOAD", library % ELSEWHERE.replace("ARGV", "args")) == "lib"
    dump = dumped(server, "small")
    lines = [[dump if word == "DUMP small" else word for word in words] for words in lines]
    used = figures(peer, 3)[1]
    replies = [peer.ask(*words) for words in lines]
    assert isinstance(replies[-1], Failure) and replies[-1].startswith(str(OOM)), replies
    assert figures(peer, 3)[1] == used
    peer.line("SELECT 0")
    # In a transaction the command is refused when it is queued, or when its turn comes.
    queued = [peer.ask(*words) for words in [["MULTI"], *lines, ["EXEC"]]]
    assert any(str(OOM) in str(reply) for reply in queued), queued
    assert figures(peer, 3)[1] == used


def dumped(server, key):
    with server.connect() as client:
        client.sendall(command("DUMP", key))
        size = b""
        while not size.endswith(b"\r\n"):
            size += exactly(client, 1)
        return exactly(client, int(size[1:]))


def test_transaction_that_selects_a_full_database_is_refused(full):
    _, peer = full
    assert [peer.line(line) for line in ("MULTI", "SELECT 3", "SET new 1")] == ["OK", "QUEUED", OOM]
    assert peer.line("EXEC") == Failure("EXECABORT Transaction discarded because of previous errors.")
    # What frees or reads is queued, and so is what fills another database.
    lines = ("MULTI", "SELECT 3", "DEL new", "GET new", "SELECT 0", "SET new 1", "EXEC")
    assert [peer.line(line) for line in lines][-1] == ["OK", 0, None, "OK", "OK"]
    assert figures(peer, 3)[1] > MB


def test_transaction_whose_commands_do_not_fit_together_is_refused(full):
    _, peer = full
    assert peer.line("MULTI") == "OK" and peer.line("SELECT 4") == "QUEUED"
    for number in range(150):
        assert peer.ask("SET", f"key:{number}", b"x" * 10_000) == "QUEUED"
    assert peer.line("EXEC") == Failure(f"EXECABORT Transaction discarded because of: {OOM}")
    assert figures(peer, 4)[1] < MB / 10


@pytest.mark.parametrize("policy", ["noeviction", "allkeys-lru", "volatile-lru"])
def test_empty_database_refuses_a_value_larger_than_its_limit(full, policy):
    server, peer = full
    peer.line(f"CONFIG SET maxmemory-policy {policy}")
    compressed = peer.line("CONFIG SET rdbcompression yes") and dumped(server, "large")
    assert len(compressed) < MB / 4
    assert peer.line("MOVE large 4") == OOM
    assert peer.line("COPY large large DB 4") == OOM
    peer.line("SELECT 4")
    assert peer.ask("SET", "large", b"x" * 2 * MB) == OOM
    assert peer.ask("EVAL", "return redis.call('SET', KEYS[1], ARGV[1])", 1, "large", b"x" * 2 * MB).startswith(str(OOM))
    assert peer.ask("RESTORE", "large", 0, compressed) == OOM
    assert peer.line("DBSIZE") == 0


def test_databases_are_not_exchanged_where_nothing_may_go(full):
    _, peer = full
    assert peer.line("SWAPDB 0 4") == OOM
    assert peer.line("SWAPDB 4 0") == OOM
    assert [peer.line(line) for line in ("MULTI", "SWAPDB 0 4", "EXEC")] == ["OK", "QUEUED", [OOM]]
    assert peer.line("SWAPDB 1 4") == "OK"
    # A full database may go where there is no limit.
    assert peer.line("SWAPDB 3 5") == "OK"
    assert peer.line("DBSIZE") == 2


def test_migrated_keys_keep_to_the_limit(full):
    server, peer = full
    with Server() as source, Peer(source) as client:
        client.line("SET small v")
        reply = client.line(f"MIGRATE 127.0.0.1 {server.port} small 3 5000")
        assert isinstance(reply, Failure) and str(OOM) in reply
        assert client.line("EXISTS small") == 1


def test_blocked_client_is_served_in_a_full_database(full):
    """It moves an element: the database takes no more than before."""
    server, peer = full
    with Peer(server) as waiting:
        waiting.line("SELECT 3")
        peer.line("SELECT 3")
        assert peer.line("DEL fill:0") == 1 and peer.line("RPUSH spare element") == 1
        waiting.send("BLMOVE", "list", "other", "LEFT", "RIGHT", "0")
        eventually(lambda: "blocked_clients:1" in peer.line("INFO clients"), "a client that waits")
        while peer.ask("SET", f"again:{figures(peer, 3)[1]}", b"x" * 5000) == "OK":
            pass
        used = figures(peer, 3)[1]
        assert peer.line("RPUSH list element") == OOM
        assert peer.line("RENAME spare list") == "OK"
        assert waiting.read() == "element"
        assert figures(peer, 3)[1] <= used + 64


def test_data_set_above_the_limit_is_loaded_and_refuses_writes():
    with Server() as server, Peer(server) as peer:
        peer.line("SELECT 3")
        assert fill(peer, 3000) == [] and peer.line("SAVE") == "OK"
        with Server("--db-maxmemory", "3:1mb", files=server.folder) as again, Peer(again) as other:
            other.line("SELECT 3")
            assert other.line("DBSIZE") == 3000
            assert other.line("SET new 1") == OOM
            assert other.line("DEL key:0") == 1
