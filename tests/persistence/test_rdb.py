"""RDB files: written by one server, loaded by another, the same data set; and how saving can fail."""

import pathlib
import random
import subprocess
import threading
import time

import pytest

from harness import DUNLIN, ORACLE, VALKEY, WITHOUT_VALKEY, Server, command, free_port, is_redis
from rdb_data import HOUR_MS, fill
from resp import Client, Refused

DEBUG = ("--enable-debug-command", "yes")
def digests(*programs, directory, directives=()):
    """Fills and saves with the first program, loads with the others: the digests of all."""
    found = []
    for at, program in enumerate(programs):
        extra = directives if at == 0 else ()
        with Server(*DEBUG, "--dir", directory, *extra, program=program) as server:
            client = Client(server)
            if at == 0:
                fill(client)
                assert client("SAVE") == b"OK"
            found.append(client("DEBUG", "DIGEST"))
    return found


@pytest.mark.parametrize("directives", [(), ("--rdbcompression", "no"), ("--rdbchecksum", "no")], ids=str)
@pytest.mark.parametrize("way", [(DUNLIN, DUNLIN), (ORACLE, DUNLIN), (DUNLIN, ORACLE)], ids=["own", "in", "out"])
def test_files_of_redis(way, directives, tmp_path):
    one, other = digests(*way, directory=tmp_path, directives=directives)
    assert one == other


# Unix times in milliseconds around those that take more than six bytes, to the last one.
FAR_TIMES = (2**48 - 2, 2**48 - 1, 2**48, 2**53 + 1, 2**63 - 1)
needs_valkey = pytest.mark.skipif(not VALKEY, reason=WITHOUT_VALKEY)


@pytest.mark.parametrize("through", ["rdb", "aof", "aof-base"])
@pytest.mark.parametrize(
    "first, second",
    [
        (DUNLIN, DUNLIN),
        (DUNLIN, ORACLE),
        (ORACLE, DUNLIN),
        pytest.param(DUNLIN, VALKEY, marks=needs_valkey),
        pytest.param(VALKEY, DUNLIN, marks=needs_valkey),
    ],
    ids=["own", "to-redis", "from-redis", "to-valkey", "from-valkey"],
)
def test_expiry_is_kept_exactly(first, second, through, tmp_path):
    directives = ["--dir", tmp_path]
    if through != "rdb":
        directives += ["--appendonly", "yes", "--aof-use-rdb-preamble", "no"]
    has_fields = ORACLE not in (first, second)
    with Server(*DEBUG, *directives, program=first) as server:
        client = Client(server)
        for at_ms in FAR_TIMES:
            client("SET", f"k:{at_ms}", "v", "PXAT", at_ms)
            client("RPUSH", f"l:{at_ms}", "v")
            client("PEXPIREAT", f"l:{at_ms}", at_ms)
            if has_fields:
                client("HSET", f"h:{at_ms}", "f", "v", "g", "w")
                client("HPEXPIREAT", f"h:{at_ms}", at_ms, "FIELDS", 1, "f")
        if through == "rdb":
            client("SAVE")
        elif through == "aof-base":
            client("BGREWRITEAOF")
            deadline = time.monotonic() + 60
            while b"aof_rewrite_in_progress:1" in client("INFO", "persistence"):
                assert time.monotonic() < deadline
                time.sleep(0.01)
    with Server(*directives, program=second) as server:
        client = Client(server)
        for at_ms in FAR_TIMES:
            assert client("PEXPIRETIME", f"k:{at_ms}") == at_ms
            assert client("PEXPIRETIME", f"l:{at_ms}") == at_ms
            if has_fields:
                assert client("HPEXPIRETIME", f"h:{at_ms}", "FIELDS", 2, "f", "g") == [at_ms, -1]


@needs_valkey
@pytest.mark.parametrize("way", [(VALKEY, DUNLIN), (DUNLIN, VALKEY)], ids=["in", "out"])
def test_files_of_valkey(way, tmp_path):
    one, other = digests(*way, directory=tmp_path)
    assert one == other


@needs_valkey
@pytest.mark.parametrize("way", [(VALKEY, DUNLIN), (DUNLIN, VALKEY)], ids=["in", "out"])
def test_deadlines_of_fields(way, tmp_path):
    with Server(*DEBUG, "--dir", tmp_path, program=way[0]) as server:
        client = Client(server)
        client("HSET", "h", "a", 1, "b", 2, "c", 3)
        client("HPEXPIREAT", "h", 2_000_000_000_123, "FIELDS", 2, "a", "b")
        client("SAVE")
    with Server(*DEBUG, "--dir", tmp_path, program=way[1]) as server:
        client = Client(server)
        times = client("HPEXPIRETIME", "h", "FIELDS", 3, "a", "b", "c")
        assert times == [2_000_000_000_123, 2_000_000_000_123, -1]
        assert client("HMGET", "h", "a", "b", "c") == [b"1", b"2", b"3"]


def test_expired_keys_are_not_loaded(tmp_path):
    with Server("--dir", tmp_path) as server:
        client = Client(server)
        client("SET", "stays", 1)
        for seconds in (2, 10, 60):
            deadline_ms = int(time.time() * 1000) + seconds * 1000
            client("SET", "goes", 1, "PXAT", deadline_ms)
            client("SAVE")
            if time.time() * 1000 < deadline_ms:
                break
    while time.time() * 1000 <= deadline_ms:
        time.sleep(0.01)
    with Server("--dir", tmp_path) as server:
        client = Client(server)
        assert client("DBSIZE") == 1
        assert b"rdb_last_load_keys_expired:1\r\nrdb_last_load_keys_loaded:1" in client("INFO", "persistence")


def test_rdb_fields_of_a_key_may_come_in_any_order(tmp_path):
    """KeyDB with `active-replica yes` has a time stamp between each key and its expiry."""
    deadline_ms = int(time.time() * 1000) + HOUR_MS
    expiry = b"\xfc" + deadline_ms.to_bytes(8, "little")
    key = b"\xfa\x0bmvcc-tstamp\x041234" + b"\x00\x03key\x05value"
    # A checksum of zeros is none.
    data = b"REDIS0009\xfe\x00" + expiry + key + b"\x00\x05other\x05value" + b"\xff" + bytes(8)
    for program in (DUNLIN, ORACLE):
        (tmp_path / "dump.rdb").write_bytes(data)
        with Server("--dir", tmp_path, program=program) as server:
            client = Client(server)
            assert [client("PEXPIRETIME", key) for key in ("key", "other")] == [deadline_ms, -1]


def test_reload_keeps_everything(tmp_path):
    with Server(*DEBUG, "--dir", tmp_path) as server:
        client = Client(server)
        fill(client)
        before, keys = client("DEBUG", "DIGEST"), client("DBSIZE")
        assert client("DEBUG", "RELOAD") == b"OK"
        assert (client("DEBUG", "DIGEST"), client("DBSIZE")) == (before, keys)
        client("SET", "text", "another")
        assert client("DEBUG", "RELOAD", "NOSAVE") == b"OK"
        assert client("DEBUG", "DIGEST") == before, "the file of before was loaded"
        with pytest.raises(Refused, match="twice|exists"):
            client("DEBUG", "RELOAD", "NOFLUSH")
        assert client("DEBUG", "RELOAD", "NOFLUSH", "MERGE") == b"OK"
        assert client("DEBUG", "DIGEST") == before


def test_shutdown_saves_and_the_counters_tell(tmp_path):
    with Server("--dir", tmp_path) as server:
        client = Client(server)
        client("SET", "a", 1)
        assert b"rdb_changes_since_last_save:1\r\n" in client("INFO", "persistence")
        assert client("SAVE") == b"OK"
        assert b"rdb_changes_since_last_save:0\r\n" in client("INFO", "persistence")
        assert abs(client("LASTSAVE") - time.time()) < 60
        client("SET", "b", 2)
        with pytest.raises(ConnectionError):
            client("SHUTDOWN", "SAVE")
        server.process.wait(60)
    with Server("--dir", tmp_path) as server:
        client = Client(server)
        assert client("MGET", "a", "b") == [b"1", b"2"]
        client("SET", "a", 3)
        with pytest.raises(ConnectionError):
            client("SHUTDOWN", "NOSAVE")
        server.process.wait(60)
    with Server("--dir", tmp_path, "--shutdown-on-sigterm", "save") as server:
        client = Client(server)
        assert client("GET", "a") == b"1"
        client("SET", "a", 4)
    with Server("--dir", tmp_path) as server:
        assert Client(server)("GET", "a") == b"4"


def test_shutdown_save_loses_nothing_acknowledged(tmp_path):
    """Two clients write as fast as they can while a third saves and ends the server."""
    acknowledged = [0, 0]
    with Server("--dir", tmp_path, "--threads", "2") as server:
        clients = [Client(server), Client(server)]

        def write(writer):
            try:
                while True:
                    number = acknowledged[writer] + 1
                    clients[writer]("SET", f"writer:{writer}", number)
                    acknowledged[writer] = number
            except (ConnectionError, OSError):
                pass

        threads = [threading.Thread(target=write, args=(writer,)) for writer in (0, 1)]
        for thread in threads:
            thread.start()
        while min(acknowledged) < 100:
            time.sleep(0.01)
        with pytest.raises((ConnectionError, OSError)):
            Client(server)("SHUTDOWN", "SAVE")
        server.process.wait(60)
        for thread in threads:
            thread.join()
    with Server("--dir", tmp_path) as server:
        client = Client(server)
        for writer in (0, 1):
            assert int(client("GET", f"writer:{writer}")) >= acknowledged[writer]


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis answers without a reason")
def test_save_that_fails_leaves_the_old_file_alone(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    with Server("--dir", folder) as server:
        client = Client(server)
        client("SET", "a", 1)
        client("SAVE")
        before = (folder / "dump.rdb").read_bytes()
        client("SET", "a", 2)
        # Root may write anywhere, so that permissions do not stop it: a folder in the file's place does.
        blocker = folder / f"temp-{server.process.pid}.rdb"
        blocker.mkdir()
        with pytest.raises(Refused, match="cannot write .*dump.rdb"):
            client("SAVE")
        with pytest.raises(Refused, match="Errors trying to SHUTDOWN"):
            client("SHUTDOWN", "SAVE")
        assert b"rdb_last_bgsave_status:ok" in client("INFO", "persistence"), "that is BGSAVE's"
        assert (folder / "dump.rdb").read_bytes() == before
        assert client("SET", "b", 1) == b"OK", "the server goes on"
        blocker.rmdir()
        assert client("SAVE") == b"OK"


def damaged(data, rng):
    """A file with something wrong: cut, changed, or lengthened in the middle."""
    data = bytearray(data)
    kind = rng.randrange(3)
    at = rng.randrange(len(data))
    if kind == 0:
        return data[:at]
    if kind == 1:
        data[at] ^= 1 << rng.randrange(8)
        return data
    return data[:at] + rng.randbytes(3) + data[at:]


@pytest.mark.skipif(is_redis(DUNLIN), reason="about Dunlin's own messages")
def test_library_that_does_not_load_ends_the_start(tmp_path):
    """It would be gone with the next snapshot. Redis does not start either."""
    code = b"#!lua name=lost\nredis.register_function('f', function() return 1 end) error('not here')"
    # FUNCTION2, the code as a string with a length of two bytes; the end, no checksum.
    function = b"\xf5" + (0x4000 | len(code)).to_bytes(2, "big") + code
    (tmp_path / "dump.rdb").write_bytes(b"REDIS0010" + function + b"\xff" + bytes(8))
    arguments = ("--bind", "127.0.0.1", "--port", str(free_port()), "--dir", str(tmp_path))
    result = subprocess.run(command(DUNLIN, *arguments), capture_output=True, timeout=60, check=False)
    said = (result.stdout + result.stderr).decode()
    assert result.returncode == 1 and 'begins with "#!lua name=lost" does not load' in said, said
    with Server(*DEBUG) as server:
        client = Client(server)
        client("SET", "k", "v")
        (server.folder / "dump.rdb").write_bytes((tmp_path / "dump.rdb").read_bytes())
        with pytest.raises(Refused):
            client("DEBUG", "RELOAD", "NOSAVE", "NOFLUSH")
        assert client("GET", "k") == b"v"


@pytest.mark.skipif(is_redis(DUNLIN), reason="about Dunlin's own messages")
def test_damaged_files_are_refused_with_a_place_and_a_reason(tmp_path):
    with Server("--dir", tmp_path) as server:
        client = Client(server)
        client("SET", "text", "hello " * 20)
        client("SADD", "set", *range(20))
        client("HSET", "hash", "a", 1, "b", 2)
        client("SAVE")
    path = pathlib.Path(tmp_path) / "dump.rdb"
    good = path.read_bytes()
    rng = random.Random(1)
    for _ in range(40):
        path.write_bytes(damaged(good, rng))
        arguments = ["--port", free_port(), "--bind", "127.0.0.1", "--dir", tmp_path]
        result = subprocess.run(command(DUNLIN, *arguments), capture_output=True, timeout=120)
        said = (result.stdout + result.stderr).decode()
        assert result.returncode == 1 and "panicked" not in said, said
        assert f"cannot load {path}: at byte " in said
