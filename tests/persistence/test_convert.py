"""`dunlin convert` and `dunlin check`: a data set keeps everything on its way through all forms of files, and files for
older servers hold nothing that these do not know.

There is no Redis before 7.0 at hand: files for it are checked here, type by type, by the rules of its rdb.h.
"""

import os
import re
import shutil
import signal
import struct
import subprocess
import time

import pytest
import redis

from harness import DUNLIN, ORACLE, REDIS_VERSIONS, VALKEY, WITHOUT_VALKEY, Server, is_redis
from links import raw
from rdb_data import fill
from resp import Client

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="about Dunlin's tools")

DEBUG = ("--enable-debug-command", "yes")
LIBRARY = "#!lua name=one\nredis.register_function('one', function() return 7 end)"
# Types that servers that load version 9 know: string, set, hash; then zset 2 and the packed forms of old,
# stream.
TYPES_OF_9 = {0, 2, 4, 5, 11, 12, 13, 14, 15}


def run(*arguments, code=0):
    result = subprocess.run([DUNLIN, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    told = result.stdout + result.stderr
    assert result.returncode == code, told
    return told


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    """A snapshot of keys of all types with a library of functions, and its DEBUG DIGEST."""
    folder = tmp_path_factory.mktemp("source")
    with Server(*DEBUG, "--dir", folder) as server:
        client = Client(server)
        fill(client)
        client("FUNCTION", "LOAD", LIBRARY)
        client("SAVE")
        return folder / "dump.rdb", client("DEBUG", "DIGEST")


def loaded(folder, program, *directives):
    """A server's replies about the data set of its directory: digest, functions, keys with an expiry."""
    with Server(*DEBUG, "--dir", folder, *directives, program=program) as server:
        client = Client(server)
        functions = len(client("FUNCTION", "LIST"))
        return client("DEBUG", "DIGEST"), functions, client("PEXPIRETIME", "hash:small"), client("PEXPIRETIME", "expiring")


LOG = ("--appendonly", "yes")


@pytest.mark.parametrize("program", [DUNLIN, ORACLE])
def test_convert_loses_nothing_through_all_forms(dump, program, tmp_path):
    source, digest = dump
    shutil.copy(source, tmp_path / "dump.rdb")
    expected = loaded(tmp_path, program)
    assert expected[0] == digest and expected[1] == 1 and expected[2] > 0 < expected[3]
    steps = [
        ("log/appendonlydir", [], "log", LOG),
        ("commands/appendonlydir", ["--commands"], "commands", LOG),
        ("file/appendonly.aof", [], "file", LOG),
        ("snapshot/dump.rdb", ["--no-compression"], "snapshot", ()),
        ("eleven/dump.rdb", ["--rdb-version", 11], "eleven", ()),
    ]
    before = source
    for path, options, folder, directives in steps:
        (tmp_path / folder).mkdir()
        path = tmp_path / path
        told = run("convert", *options, before, path)
        assert f"{path}: 30" in told and "1 library of functions" in told and "checked" in told, told
        assert run("check", path).count("good") >= 1
        before = path
        # Redis 7.0 does not load version 11; servers that load it have another file to load it from.
        if folder == "eleven" and program == ORACLE:
            assert path.read_bytes().startswith(b"REDIS0011")
            continue
        copy = tmp_path / f"{folder}-copy"
        shutil.copytree(tmp_path / folder, copy)
        assert loaded(copy, program, *directives) == expected, path


def test_convert_when_interrupted_leaves_nothing_behind(dump, tmp_path):
    pipe = tmp_path / "dump.rdb"
    target = tmp_path / "target"
    target.mkdir()
    (target / "out.rdb").write_bytes(b"old")
    shutil.copy(dump[0], pipe)
    # Stopped while it writes: the file beside is there, and the process waits to be let go on.
    words = [DUNLIN, "convert", "--force", "--quiet", str(pipe), str(target / "out.rdb")]
    seen = 0
    for _ in range(200):
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not list(target.glob("temp-convert-*")):
            pass
        process.send_signal(signal.SIGSTOP)
        was_there = bool(list(target.glob("temp-convert-*")))
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        code = process.wait(timeout=60)
        assert not list(target.glob("temp-convert-*")), "half a file"
        if was_there and code == -signal.SIGINT:
            seen += 1
            break
    assert seen, "it was never interrupted in time"


def lzf(data, length):
    out, at = bytearray(), 0
    while at < len(data):
        control = data[at]
        at += 1
        if control < 32:
            out += data[at : at + control + 1]
            at += control + 1
            continue
        size, start = control >> 5, (control & 31) << 8
        if size == 7:
            size += data[at]
            at += 1
        start = len(out) - (start | data[at]) - 1
        at += 1
        for position in range(start, start + size + 2):
            out.append(out[position])
    assert len(out) == length
    return bytes(out)


class Rdb:
    """Reads a file by the rules of version 9, which has no more than these."""

    def __init__(self, data):
        assert data[:9] == b"REDIS0009"
        self.data, self.at, self.types = data, 9, {}
        self.read()

    def take(self, count):
        self.at += count
        assert self.at <= len(self.data)
        return self.data[self.at - count : self.at]

    def length(self):
        first = self.take(1)[0]
        if first < 0x40:
            return first
        if first < 0x80:
            return (first & 0x3F) << 8 | self.take(1)[0]
        return int.from_bytes(self.take({0x80: 4, 0x81: 8}[first]), "big")

    def string(self):
        first = self.data[self.at]
        if first < 0xC0:
            return self.take(self.length())
        self.at += 1
        if first == 0xC3:
            packed, plain = self.length(), self.length()
            return lzf(self.take(packed), plain)
        return str(int.from_bytes(self.take({0xC0: 1, 0xC1: 2, 0xC2: 4}[first]), "little", signed=True)).encode()

    def ziplist(self):
        data = self.string()
        total, last, count = struct.unpack_from("<IIH", data)
        assert total == len(data) and data[-1] == 255
        at, before, elements = 10, 0, []
        while data[at] != 255:
            start = at
            stated, at = (data[at], at + 1) if data[at] < 254 else (struct.unpack_from("<I", data, at + 1)[0], at + 5)
            assert stated == before
            head = data[at]
            at += 1
            if head < 0xC0:
                length = head & 0x3F
                if head >= 0x80:
                    (length,) = struct.unpack_from(">I", data, at)
                    at += 4
                elif head >= 0x40:
                    length, at = length << 8 | data[at], at + 1
                elements.append(data[at : at + length])
                at += length
            elif 0xF1 <= head <= 0xFD:
                elements.append(str(head - 0xF1).encode())
            else:
                width = {0xC0: 2, 0xD0: 4, 0xE0: 8, 0xF0: 3, 0xFE: 1}[head]
                elements.append(str(int.from_bytes(data[at : at + width], "little", signed=True)).encode())
                at += width
            before = at - start
        assert last == (at - before if elements else 10) and count in (len(elements), 65535) and at == len(data) - 1
        return elements

    def value(self, kind):
        if kind == 0:
            return self.string()
        if kind == 14:
            return [element for _ in range(self.length()) for element in self.ziplist()]
        if kind in (12, 13):
            return self.ziplist()
        if kind == 11:
            return self.string()
        if kind == 15:
            nodes = [(self.string(), self.string()) for _ in range(self.length())]
            assert all(len(name) == 16 for name, _ in nodes)
            self.length(), self.length(), self.length()
            for _ in range(self.length()):
                self.string(), self.length(), self.length()
                pending = [(self.take(16), self.take(8), self.length()) for _ in range(self.length())]
                for _ in range(self.length()):
                    self.string(), self.take(8)
                    for _ in range(self.length()):
                        assert self.take(16) in [name for name, *_ in pending]
            return nodes
        count = self.length()
        if kind == 5:
            return [(self.string(), struct.unpack("<d", self.take(8))) for _ in range(count)]
        return [self.string() for _ in range(count * (2 if kind == 4 else 1))]

    def read(self):
        self.keys = {}
        while True:
            code = self.take(1)[0]
            if code == 0xFF:
                assert len(self.take(8)) == 8 and self.at == len(self.data)
                return
            if code == 0xFA:
                self.string(), self.string()
            elif code == 0xFE:
                self.length()
            elif code == 0xFB:
                self.length(), self.length()
            elif code == 0xFC:
                self.take(8)
            else:
                assert code in TYPES_OF_9, f"type {code} at {self.at}"
                key = self.string()
                self.keys[key] = self.value(code)
                self.types.setdefault(code, []).append(key)


def test_convert_for_an_older_redis_writes_what_it_knows(dump, tmp_path):
    source, digest = dump
    told = run("convert", "--rdb-version", 9, source, tmp_path / "dump.rdb", code=1)
    assert "libraries of functions (1)" in told and not (tmp_path / "dump.rdb").exists()
    with Server(*DEBUG, "--dir", tmp_path) as server:
        client = Client(server)
        fill(client)
        client("SAVE")
        text, elements = client("GET", "compressed"), client("LRANGE", "list:large", 0, -1)
        small, scores = client("HGETALL", "hash:small"), client("ZRANGE", "sorted:small", 0, -1, "WITHSCORES")
        plain = client("LRANGE", "list:plain", 0, -1)
    told = run("convert", "--rdb-version", 9, tmp_path / "dump.rdb", tmp_path / "old.rdb")
    assert "RDB version 9" in told
    rdb = Rdb((tmp_path / "old.rdb").read_bytes())
    assert set(rdb.types) == TYPES_OF_9, "the data set shows all of them"
    assert rdb.keys[b"compressed"] == text and rdb.keys[b"list:large"] == elements and rdb.keys[b"list:plain"] == plain
    assert rdb.keys[b"hash:small"] == small and rdb.keys[b"sorted:small"] == scores
    # Newer servers load it too, with the same values.
    for program in (DUNLIN, ORACLE):
        (tmp_path / "dump.rdb").unlink()
        shutil.copy(tmp_path / "old.rdb", tmp_path / "dump.rdb")
        assert loaded(tmp_path, program)[0] == digest
    # As one file of commands, none of which is newer than Redis 6.2.
    run("convert", "--rdb-version", 9, tmp_path / "old.rdb", tmp_path / "appendonly.aof")
    data = (tmp_path / "appendonly.aof").read_bytes()
    assert data.startswith(b"*") and b"\r\n#CRC32C" not in data and b"ENTRIES" not in data and b"FUNCTION" not in data
    told = run("convert", "--rdb-version", 9, tmp_path / "old.rdb", tmp_path / "dir", code=1)
    assert "ends in .aof" in told and not (tmp_path / "dir").exists()


def test_fields_that_expire_go_where_they_are_known(tmp_path):
    with Server("--dir", tmp_path) as server:
        client = Client(server)
        client("HSET", "h", "a", 1, "b", 2)
        client("HPEXPIREAT", "h", 2_000_000_000_123, "FIELDS", 1, "a")
        client("HSET", "other", "a", 1)
        client("HEXPIRE", "other", 1000, "FIELDS", 1, "a")
        client("SAVE")
    source = tmp_path / "dump.rdb"
    for version in (9, 10, 11):
        told = run("convert", "--rdb-version", version, source, tmp_path / "none.rdb", code=1)
        assert re.search(r'key "(h|other)" in database 0 \(and 1 more keys\) has no form in version', told), told
    assert not (tmp_path / "none.rdb").exists()
    for version, magic in ((12, b"REDIS0012"), (80, b"VALKEY080")):
        folder = tmp_path / str(version)
        folder.mkdir()
        run("convert", "--rdb-version", version, source, folder / "dump.rdb")
        assert (folder / "dump.rdb").read_bytes().startswith(magic)
        with Server("--dir", folder) as server:
            client = Client(server)
            assert client("HPEXPIRETIME", "h", "FIELDS", 2, "a", "b") == [2_000_000_000_123, -1]
            assert client("HGET", "h", "a") == b"1"


def test_fields_that_expire_later_than_redis_knows_go_to_valkey(tmp_path):
    with Server("--dir", tmp_path) as server:
        client = Client(server)
        client("HSETEX", "h", "PXAT", 2**48, "FIELDS", 1, "a", 1)
        client("SAVE")
    told = run("convert", "--rdb-version", 12, tmp_path / "dump.rdb", tmp_path / "none.rdb", code=1)
    assert 'key "h" in database 0 has no form in version' in told, told
    (tmp_path / "80").mkdir()
    run("convert", "--rdb-version", 80, tmp_path / "dump.rdb", tmp_path / "80/dump.rdb")
    with Server("--dir", tmp_path / "80") as server:
        assert Client(server)("HPEXPIRETIME", "h", "FIELDS", 1, "a") == [2**48]


@pytest.mark.skipif(not VALKEY, reason=WITHOUT_VALKEY)
@pytest.mark.parametrize("version", [9, 10, 11, 80])
def test_valkey_loads_what_is_written(version, dump, tmp_path):
    """It is the one server at hand that knows versions 11 and 80."""
    source, digest = dump
    if version == 9:
        with Server(*DEBUG, "--dir", tmp_path) as server:
            client = Client(server)
            fill(client)
            client("SAVE")
        source = tmp_path / "source.rdb"
        (tmp_path / "dump.rdb").rename(source)
    run("convert", "--rdb-version", version, source, tmp_path / "dump.rdb")
    assert loaded(tmp_path, VALKEY)[:2] == (digest, int(version > 9))
    run("convert", "--commands", tmp_path / "dump.rdb", tmp_path / "appendonlydir")
    assert loaded(tmp_path, VALKEY, *LOG)[:2] == (digest, int(version > 9))


@pytest.mark.skipif(not VALKEY, reason=WITHOUT_VALKEY)
def test_fields_that_expire_in_logs_of_valkey(tmp_path):
    directives = ("--dir", tmp_path, *LOG, "--appendfsync", "always")
    with Server(*directives, program=VALKEY) as server:
        client = Client(server)
        client("HSET", "h", "a", 1, "b", 2)
        client("HPEXPIREAT", "h", 2_000_000_000_123, "FIELDS", 1, "a")
    assert run("check", tmp_path).count("good") == 3
    for options in ([], ["--commands"]):
        run("convert", "--force", *options, tmp_path / "appendonlydir", tmp_path / "appendonlydir")
        for program in (VALKEY, DUNLIN):
            copy = tmp_path / "copy"
            shutil.copytree(tmp_path / "appendonlydir", copy / "appendonlydir")
            with Server("--dir", copy, *LOG, program=program) as server:
                assert Client(server)("HPEXPIRETIME", "h", "FIELDS", 2, "a", "b") == [2_000_000_000_123, -1]
            shutil.rmtree(copy)


def test_convert_writes_expired_keys_with_their_time(tmp_path):
    log = tmp_path / "log"
    log.mkdir()
    words = lambda *words: b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
    (tmp_path / "a.aof").write_bytes(words(b"SET", b"k", b"v") + words(b"PEXPIREAT", b"k", b"1000"))
    assert ": 1 key," in run("convert", tmp_path / "a.aof", tmp_path / "a.rdb")
    assert b"\xfc" + struct.pack("<Q", 1000) in (tmp_path / "a.rdb").read_bytes()
    run("convert", tmp_path / "a.rdb", tmp_path / "b.aof")
    assert words(b"PEXPIREAT", b"k", b"1000") in (tmp_path / "b.aof").read_bytes()


def test_convert_forgives_nothing_and_overwrites_nothing(dump, tmp_path):
    source, _ = dump
    data = source.read_bytes()
    out = tmp_path / "out.rdb"
    for cut in (0, 5, 9, len(data) // 2, len(data) - 1):
        (tmp_path / "cut.rdb").write_bytes(data[:cut])
        told = run("convert", tmp_path / "cut.rdb", out, code=1)
        assert "at byte" in told or "does not begin like an RDB file" in told, told
        assert "damaged at byte" in run("check", tmp_path / "cut.rdb", code=1)
        assert list(tmp_path.iterdir()) == [tmp_path / "cut.rdb"], "neither DEST nor anything beside it"
    flipped = bytearray(data)
    flipped[-20] ^= 4
    (tmp_path / "cut.rdb").write_bytes(flipped)
    assert "at byte" in run("convert", tmp_path / "cut.rdb", out, code=1)
    (tmp_path / "torn.aof").write_bytes(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n*3\r\n$3\r\nSE")
    told = run("convert", tmp_path / "torn.aof", out, code=1)
    assert "damaged at byte 27" in told and "dunlin check" in told, told
    (tmp_path / "odd.aof").write_bytes(b"*2\r\n$3\r\nFOO\r\n$1\r\na\r\n")
    assert "unknown command 'FOO'" in run("convert", tmp_path / "odd.aof", out, code=1)
    assert "No such file" in run("convert", tmp_path / "none", out, code=1)
    assert "raise databases" in run("convert", "--databases", 2, source, out, code=1)
    assert not out.exists()
    out.write_bytes(b"mine")
    assert "--force" in run("convert", source, out, code=1)
    assert out.read_bytes() == b"mine"
    run("convert", "--force", "--quiet", source, out)
    assert run("check", out).count("good") == 1
    log = tmp_path / "log"
    run("convert", source, log)
    assert "--force" in run("convert", source, log, code=1)
    run("convert", "--force", "--commands", log, log)
    assert sorted(path.name for path in log.iterdir()) == ["appendonly.aof.2.base.aof", "appendonly.aof.manifest"]
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        assert "is neither a file nor a directory" in run("convert", "--force", "--to", "rdb", source, path, code=1)
    assert pipe.is_fifo() and link.is_symlink()
    assert "is a directory" in run("convert", "--to", "rdb", source, log, code=1)
    assert "is no directory" in run("convert", "--to", "aof-dir", source, out, code=1)


def test_convert_on_a_full_disk_leaves_nothing_behind(dump, tmp_path):
    source, _ = dump
    (tmp_path / "old.rdb").write_bytes(b"old")
    command = f"ulimit -f 16; trap '' XFSZ; exec {DUNLIN} convert --force {source} {tmp_path / 'old.rdb'}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert result.returncode == 1 and "File too large" in result.stderr, result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["old.rdb"]
    assert (tmp_path / "old.rdb").read_bytes() == b"old"


def await_rewrite(client):
    deadline = time.monotonic() + 60
    while b"aof_rewrite_in_progress:1" in client("INFO", "persistence"):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_check_counts_what_no_command_reads(tmp_path):
    """A file of Redis 8 with vector sets and a library of functions; and one with a module's data beside keys."""
    if "8.2" not in REDIS_VERSIONS:
        pytest.skip("no server of Redis 8.2 (scripts/get-redis.sh)")
    with Server(program=REDIS_VERSIONS["8.2"]) as server:
        client = redis.Redis(port=server.port)
        client.execute_command("VADD", "v", "VALUES", 2, 1, 2, "element")
        client.execute_command("FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() return 1 end)")
        client.set("text", 1)
        client.save()
        path = tmp_path / "dump.rdb"
        path.write_bytes((server.folder / "dump.rdb").read_bytes())
        there = redis.Redis(port=server.port).execute_command("VCARD", "v")
    assert there == 1
    told = subprocess.run([DUNLIN, "check", path], capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "an RDB file of 2 keys" in told.stdout and "a library of functions" in told.stdout
    with Server() as server:
        has_vectors = raw(server.port).execute_command("COMMAND", "INFO", "vadd") != [None]
    if not has_vectors:
        assert "1 of types that are kept and that no command here can read: vectorset 1" in told.stdout


@pytest.mark.parametrize("program", [DUNLIN, ORACLE])
@pytest.mark.parametrize("preamble", ["yes", "no"])
def test_check_knows_the_directory_of_a_server(program, preamble, tmp_path):
    directives = ("--aof-use-rdb-preamble", preamble, "--appendfsync", "always", *LOG)
    with Server(*directives, "--dir", tmp_path, program=program) as server:
        client = Client(server)
        fill(client)
        client("BGREWRITEAOF")
        await_rewrite(client)
        # Redis removes the files before in the background.
        deadline = time.monotonic() + 60
        while len(list((tmp_path / "appendonlydir").iterdir())) > 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        client("SET", "behind", "it")
        client("SAVE")
    shutil.copy(tmp_path / "dump.rdb", tmp_path / "appendonly.aof")
    with open(tmp_path / "appendonly.aof", "ab") as file:
        file.write(b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n")
    told = run("check", tmp_path)
    assert told.count(": good: ") == 5, told
    assert "a manifest of 2 files" in told and "then 1 commands" in told, told
    assert "several data sets" in run("convert", tmp_path, tmp_path / "out.rdb", code=1)
    # The file that a killed rewrite leaves behind is no part of the log.
    (tmp_path / "appendonlydir/appendonly.aof.9.base.rdb").write_bytes(b"REDIS0010")
    assert "no part of the log" in run("check", tmp_path)
    # A file that is gone, and one that is damaged before the last one.
    increment = next((tmp_path / "appendonlydir").glob("*.incr.aof"))
    newest = increment.read_bytes()
    increment.unlink()
    told = run("check", tmp_path / "appendonlydir", code=1)
    assert "it cannot be read: No such file or directory" in told, told
    increment.write_bytes(newest[:-1])
    assert "cutting it at byte" in run("check", tmp_path / "appendonlydir", code=1)
    for answer, code in (("n\n", 1), ("", 1), ("y\n", 0)):
        result = subprocess.run(
            [DUNLIN, "check", "--fix", tmp_path / "appendonlydir"], input=answer, capture_output=True, text=True
        )
        assert result.returncode == code and "[y/N]" in result.stdout, result.stdout
        assert (increment.stat().st_size < len(newest) - 1) == (answer == "y\n")
    increment.write_bytes(newest[:-1])
    manifest = tmp_path / "appendonlydir/appendonly.aof.manifest"
    with open(manifest, "a") as file:
        file.write("file last.aof seq 99 type i\n")
    (tmp_path / "appendonlydir/last.aof").write_bytes(b"")
    told = run("check", "--fix", "--yes", manifest, code=1)
    assert "would leave a hole" in told and increment.read_bytes() == newest[:-1], told
    manifest.write_text("file a seq 1 type x\n")
    assert "is damaged: line 1" in run("check", manifest, code=1)
