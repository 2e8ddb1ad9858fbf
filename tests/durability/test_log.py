"""The append-only log: the bytes that Redis would write, and directories that go back and forth."""

import re
import resource
import shutil
import signal
import socket as socket_module
import subprocess
import threading
import time

import pytest

from harness import DUNLIN, ORACLE, Server, command, free_port, is_redis
from log_files import LIBRARY, LOG, Client, await_refusal, await_rewrite, check, commands, copy_log, digest, encoded

pytestmark = pytest.mark.skipif(is_redis(DUNLIN), reason="compares Dunlin with Redis")

def increments(server):
    paths = sorted((server.folder / "appendonlydir").glob("*.incr.aof"))
    return b"".join(path.read_bytes() for path in paths)


def close_enough(ours, theirs):
    """Equal, but for milliseconds of the two clocks."""
    if ours == theirs:
        return True
    is_time = re.compile(r"\d{13}").fullmatch
    return bool(is_time(ours) and is_time(theirs)) and abs(int(ours) - int(theirs)) < 60_000


# Every kind of effect whose form is not simply the command's own words, and some that are.
SCENARIO = """
set a 1 ex 100
set a 2 px 100000 xx get
set a 3 keepttl get
set b 1 nx
set b 2 nx
setex c 100 v
psetex c 100000 v
getset c w
getex c ex 100
getex c persist
getex c persist
getdel c
getdel c
append b x
setrange b 5 y
setrange b 9
setbit bits 7 1
bitfield bits incrby u8 0 1
bitfield bits get u8 0
incr n
incrbyfloat n 1.5
mset k1 v k2 v
msetnx k1 v k3 v
expire k1 100
expire k1 50 gt
pexpireat k2 1
persist k1
persist k1
rename k1 k3
renamenx k3 b
copy k3 k4
move k4 2
del k3 missing
del missing
unlink b
sadd s 1
sadd s 1
spop s
sadd s 1
spop s 7
hset h f 1
hincrbyfloat h f 1.5
hsetnx h f 2
hdel h f g
rpush l 1 2 3 4 5 6 7 8 9
lpop l
lmpop 2 x l right count 2
blpop x l 0
brpop l 0
blmove l m left right 0
brpoplpush l m 0
blmpop 0 1 l left count 7
lpushx none 1
linsert m before 1 0
sort m store sorted
zadd z 1 a 2 b 3 c
zadd z nx 1 a
zincrby z 2 a
zmpop 1 z max count 2
zpopmin z
pfadd p a b c
pfadd p a
geoadd g 13 38 x
multi
set t 1
incr t
incrbyfloat t 1
exec
multi
set t 1
exec
multi
exec
swapdb 1 2
flushdb
flushall
"""


def test_log_is_the_one_that_redis_writes():
    with Server(*LOG) as ours, Server(*LOG, program=ORACLE) as theirs:
        replies = [Client(server).lines(SCENARIO) for server in (ours, theirs)]
        assert replies[0] == replies[1]
        # Keys that expire by themselves and are met by a command.
        for server in (ours, theirs):
            client = Client(server)
            client.lines("debug set-active-expire 0\nset e 1 px 1\nset f 1 px 1\nset g 1 px 1")
            time.sleep(0.02)
            client.lines("get e\nappend f x\nset g 2\ndebug set-active-expire 1\nset end 1")
        # Redis puts off writing while a sync of its takes time.
        deadline = time.monotonic() + 30
        while True:
            try:
                got, expected = commands(increments(ours)), commands(increments(theirs))
            except ValueError:
                # A record is being written.
                got = expected = []
            if all(log[-1:] == [["set", "end", "1"]] for log in (got, expected)):
                break
            assert time.monotonic() < deadline, f"{got[-1:]} and {expected[-1:]}"
            time.sleep(0.01)
        for mine, his in zip(got, expected):
            assert len(mine) == len(his) and all(map(close_enough, mine, his)), f"{mine} is not {his}"
        assert len(got) == len(expected)


FILL = """
set a 1
set int 12345
set expiring v px 100000000
append long 0123456789012345678901234567890123456789012345678901234567890123456789
rpush l 1 2 3 x
sadd s a b c
sadd i 1 2 3
hset h f 1 g 2
zadd z 1 a 2.5 b
setbit bits 100 1
pfadd p a b c
geoadd g 13 38 x
select 3
set other database
"""


SCRIPTS = {
    "all of it": "redis.call('set', KEYS[1], 'x') redis.call('incr', KEYS[2])",
    "as far as it came": "redis.call('set', KEYS[1], 'x') redis.call('incr', KEYS[1])",
    "resolved": "redis.call('sadd', KEYS[3], 1, 2, 3) redis.call('spop', KEYS[3]) redis.call('incrbyfloat', KEYS[2], 1.5)",
    "nothing": "return redis.call('get', KEYS[1])",
    "not what is left out": "redis.call('set', KEYS[1], 'y') redis.set_repl(redis.REPL_NONE) redis.call('set', KEYS[1], 'z')",
    "again after that": "return redis.call('append', KEYS[1], 'w')",
    "replicas do not count": "redis.set_repl(redis.REPL_REPLICA) redis.call('del', KEYS[1])",
    "in another database": "redis.call('select', 3) redis.call('set', KEYS[1], 'there')",
}

def test_scripts_are_recorded_as_what_they_did_and_functions_as_they_are():
    found = []
    for program in (DUNLIN, ORACLE):
        with Server(*LOG, "--appendfsync", "always", program=program) as server:
            client = Client(server)
            for script in SCRIPTS.values():
                client.call("eval", script, 3, "{t}a", "{t}n", "{t}s")
                client.call("del", "{t}s")
            client.call("script", "load", "return 1")
            client.call("script", "flush")
            for name in ("one", "two"):
                client.call("function", "load", LIBRARY % (name, name, name))
            client.call("fcall", "one", 1, "f")
            dump = client.call("function", "list", "withcode")
            client.call("function", "delete", "two")
            client.call("function", "delete", "missing")
            client.lines("multi\nset m 1\nfcall one 1 g\nexec")
            client.call("multi")
            client.call("function", "load", LIBRARY % ("three", "three", "three"))
            client.call("set", "m", "2")
            client.call("exec")
            expected = client.call("function", "list", "withcode")
            assert expected != dump
            assert client.call("debug", "loadaof") == "+OK"
            assert client.call("function", "list", "withcode") == expected
            # The member that SPOP took is each server's own.
            record = [words[:2] if words[0].lower() == "srem" else words for words in commands(increments(server))]
            found.append((record, digest(server)))
            client.call("function", "flush")
            assert client.call("debug", "loadaof") == "+OK"
            assert client.call("function", "list") == []
    assert found[0] == found[1]


def test_commands_are_recorded_in_one_form_however_they_arrive():
    long = b"x" * 300_000
    sent = [
        (b"SET a 1\r\n", [b"SET", b"a", b"1"]),
        (b"\r\n*0\r\n*-1\r\n" + encoded(b"set", b"b", b"2"), [b"set", b"b", b"2"]),
        # Inline, and as long as an array of the same words.
        (b"SET c" + b" " * 19 + b"3\r\n", [b"SET", b"c", b"3"]),
        (encoded(b"SET", b"d", b""), [b"SET", b"d", b""]),
        (encoded(b"SET", b"e", b"*1\r\n$4\r\nPING\r\n"), [b"SET", b"e", b"*1\r\n$4\r\nPING\r\n"]),
        (encoded(b"SET", b"f", long), [b"SET", b"f", long]),
        (encoded(b"APPEND", b"f", long), [b"APPEND", b"f", long]),
    ]
    stream = b"".join(request for request, _ in sent) * 2
    expected = [encoded(*words) for _, words in sent] * 2
    for piece, dribbled in [(1, 200), (7, 400), (4096, len(stream)), (len(stream), 0)]:
        with Server(*LOG, "--appendfsync", "always") as server, server.connect() as socket:
            socket.setsockopt(socket_module.IPPROTO_TCP, socket_module.TCP_NODELAY, 1)
            for at in range(0, dribbled, piece):
                socket.sendall(stream[at : min(at + piece, dribbled)])
                time.sleep(0.001)
            socket.sendall(stream[dribbled:])
            with socket.makefile("rb") as replies:
                for _ in expected:
                    assert replies.readline()[:1] in b"+:"
            records = re.sub(rb"^#[^\n]*(\n|$)", b"", increments(server), flags=re.MULTILINE)
            assert records == b"".join(expected), piece


def test_libraries_are_in_the_base():
    with Server(*LOG) as server:
        client = Client(server)
        client.call("function", "load", LIBRARY % ("one", "one", "one"))
        client.lines("config set appendonly no\nconfig set appendonly yes")
        await_rewrite(client)
        assert client.call("debug", "loadaof") == "+OK"
        assert b"FUNCTION" not in increments(server).upper()
        assert client.call("fcall", "one", 1, "f") == "+OK"


@pytest.mark.parametrize("first, second", [(DUNLIN, ORACLE), (ORACLE, DUNLIN), (DUNLIN, DUNLIN)])
@pytest.mark.parametrize("rewritten", [False, True])
def test_directories_go_back_and_forth(first, second, rewritten, tmp_path):
    with Server(*LOG, program=first) as one:
        client = Client(one)
        client.lines(FILL)
        if rewritten:
            # A base with the data set so far.
            client.lines("config set appendonly no\nconfig set appendonly yes")
            await_rewrite(client)
            client.call("select", 0)
            client.lines("set behind the-base\nrpush l y")
        client.call("config", "set", "appendfsync", "always")
        client.call("set", "last", "1")
        expected = digest(one)
        files = copy_log(one, tmp_path / "one")
    with Server(*LOG, "--appendfsync", "always", program=second, files=files) as two:
        assert digest(two) == expected
        assert Client(two).call("set", "more", "1") == "+OK"
        expected = digest(two)
        files = copy_log(two, tmp_path / "two")
    with Server(*LOG, program=first, files=files) as three:
        assert digest(three) == expected


@pytest.mark.parametrize("interrupted", [False, True])
def test_single_file_of_an_older_redis_becomes_the_base(interrupted, tmp_path):
    (tmp_path / "appendonly.aof").write_bytes(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n")
    if interrupted:
        # A start that got no further than to the manifest.
        (tmp_path / "appendonlydir").mkdir()
        (tmp_path / "appendonlydir/appendonly.aof.manifest").write_text("file appendonly.aof seq 1 type b\n")
    for program in (DUNLIN, ORACLE, DUNLIN):
        files = tmp_path if program == DUNLIN and not (tmp_path / "last").exists() else tmp_path / "last"
        with Server(*LOG, "--appendfsync", "always", program=program, files=files) as server:
            client = Client(server)
            assert client.call("append", "a", 2) == len(client.call("get", "a"))
            assert not (server.folder / "appendonly.aof").exists()
            expected = digest(server)
            shutil.rmtree(tmp_path / "last", ignore_errors=True)
            (tmp_path / "last").mkdir()
            copy_log(server, tmp_path / "last")
        with Server(*LOG, files=tmp_path / "last") as again:
            assert digest(again) == expected


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_records_larger_than_a_write_and_many_at_once_are_loaded_again(policy, tmp_path):
    # Once the check of a batch of four megabytes could stand inside a record, and one of sixteen ended the server.
    large = {f"large:{n}": str(n) * ((6 + 17 * n) << 20) for n in range(3)}
    many = {f"key:{n}": f"{n}-" * 50 for n in range(100_000)}
    with Server(*LOG, "--appendfsync", policy) as server:
        client = Client(server)
        for key, value in large.items():
            assert client.call("SET", key, value) == "+OK"
        sender = threading.Thread(target=lambda: [client.send("SET", *pair) for pair in many.items()])
        sender.start()
        assert {client.read() for _ in many} == {"+OK"}
        sender.join()
        assert client.call("WAITAOF", 1, 0, 0) == [1, 0]
        files = copy_log(server, tmp_path)
    code, told = check(files / "appendonlydir")
    assert code == 0, told
    with Server(*LOG, files=files) as again:
        client = Client(again)
        assert client.call("DBSIZE") == len(large) + len(many)
        for key, value in [*large.items(), *list(many.items())[::1000]]:
            assert client.call("GET", key) == value


def test_blocked_client_waits_on_while_the_log_is_loaded_again():
    with Server(*LOG) as server:
        client, waiting = Client(server), Client(server)
        assert client.lines("rpush list a\nlpop list") == [1, "a"]
        waiting.send("BLPOP", "list", "0")
        deadline = time.monotonic() + 20
        while "blocked_clients:1" not in client.call("INFO", "clients"):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert client.call("DEBUG", "LOADAOF") == "+OK"
        assert client.call("RPUSH", "list", "b") == 1
        assert waiting.read() == ["list", "b"]
        assert client.call("EXISTS", "list") == 0


def test_full_disk_refuses_writes_until_there_is_room():
    """The limit on the size of files stands in for a full disk: it can be lifted again."""

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    limit()
    with Server(*LOG, "--appendfsync", "always") as server:
        client = Client(server)
        assert client.call("set", "before", "1") == "+OK"
        queued = Client(server)
        assert queued.lines("multi\nset refused 1") == ["+OK", "+QUEUED"]
        log = next((server.folder / "appendonlydir").glob("*.incr.aof"))
        # Without the room that it ends with.
        size = len(log.read_bytes().rstrip(b"#\n")) + 1
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size + 20, resource.RLIM_INFINITY))
        refusal = "-MISCONF Errors writing to the AOF file: File too large"
        # It has run, and cannot become durable.
        assert client.call("set", "during", "1").startswith(refusal)
        other = Client(server)
        await_refusal(other, server)
        for words in (["set", "refused", 1], ["ping"], ["function", "flush"]):
            assert other.call(*words) == refusal, words
        scripted = Client(server)
        for call in ("call", "pcall"):
            reply = scripted.call("eval", f"return redis.{call}('set', KEYS[1], 1)", 1, "refused")
            assert reply.startswith(refusal)
        assert scripted.call("get", "before") == "1"
        script = "#!lua\nreturn redis.call('set', KEYS[1], 1)"
        assert other.call("eval", script, 1, "refused") == refusal
        assert other.lines("multi\nset refused 1\nexec") == [
            "+OK",
            refusal,
            "-EXECABORT Transaction discarded because of previous errors.",
        ]
        assert queued.call("exec") == refusal.replace("-", "-EXECABORT Transaction discarded because of: ", 1)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        deadline = time.monotonic() + 60
        while "can be written again" not in server.log():
            assert time.monotonic() < deadline, server.log()
            time.sleep(0.01)
        assert client.call("get", "during") == "1"
        assert other.call("set", "after", "1") == "+OK"
        assert "aof_last_write_status:ok" in other.call("info", "persistence")
        assert "can be written again" in server.log()
        assert other.call("debug", "loadaof") == "+OK"
        assert other.call("mget", "before", "during", "refused", "after") == ["1", "1", None, "1"]


def test_log_directory_that_vanishes_is_noticed_and_a_new_log_can_begin():
    with Server(*LOG, "--appendfsync", "always") as server:
        client = Client(server)
        client.call("set", "a", "1")
        shutil.rmtree(server.folder / "appendonlydir")
        assert client.call("set", "b", "1").startswith("-MISCONF")
        other = Client(server)
        await_refusal(other, server)
        assert other.call("set", "c", "1").startswith("-MISCONF")
        assert other.call("config", "set", "appendonly", "no") == "+OK"
        assert client.call("get", "b") == "1"
        assert other.call("config", "set", "appendonly", "yes") == "+OK"
        assert other.call("set", "c", "2") == "+OK"
        await_rewrite(other)
        assert other.call("debug", "loadaof") == "+OK"
        assert other.call("mget", "a", "b", "c") == ["1", "1", "2"]


def test_waitaof_waits_for_the_disk():
    with Server("--appendonly", "yes") as server:
        client = Client(server)
        for policy in ("everysec", "always", "no"):
            client.call("config", "set", "appendfsync", policy)
            client.call("set", "a", policy)
            assert client.call("waitaof", 1, 0, 0) == [1, 0]
        # Its reply about this server is true whether the client waited or not.
        assert client.call("waitaof", 0, 0, 0) == [1, 0]
        assert client.call("waitaof", 0, 1, 20) == [1, 0]
        assert client.call("wait", 1, 20) == 0
        # No clock shows the moment when these would end.
        assert client.call("waitaof", 0, 1, 2**63 - 1) == "-ERR timeout is out of range"
        assert client.call("wait", 1, 2**63 - 1) == "-ERR timeout is out of range"
        client.call("config", "set", "appendonly", "no")
        assert client.call("waitaof", 1, 0, 0).startswith("-ERR WAITAOF cannot be used")
        assert client.call("waitaof", 0, 0, 0) == [0, 0]


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_waitaof_waits_for_the_base_of_a_log_that_was_turned_on(policy):
    """A kill before that leaves nothing that a start would load."""
    with Server("--appendfsync", policy) as server:
        client, other = Client(server), Client(server)
        assert client.call("set", "before", 1) == "+OK"
        # The base is not written to its end before this is taken back.
        assert client.call("config", "set", "rdb-key-save-delay", 60_000_000) == "+OK"
        assert client.call("config", "set", "appendonly", "yes") == "+OK"
        assert client.call("waitaof", 1, 0, 20) == [0, 0]
        assert client.call("set", "after", 1) == "+OK"
        assert client.call("waitaof", 1, 0, 20) == [0, 0]
        client.send("waitaof", 1, 0, 0)
        await_blocked(other)
        assert other.call("config", "set", "appendonly", "no") == "+OK"
        assert client.read() == "-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."
        assert client.call("config", "set", "appendonly", "yes", "rdb-key-save-delay", 0) == "+OK"
        assert client.call("waitaof", 1, 0, 0) == [1, 0]
        assert "aof_rewrite_in_progress:0" in client.call("info", "persistence")


def await_blocked(client):
    while "blocked_clients:1" not in client.call("info", "clients"):
        time.sleep(0.01)


def test_check_finds_the_damage_and_cuts_it(tmp_path):
    with Server(*LOG) as server:
        client = Client(server)
        client.lines(FILL)
        client.lines("config set appendonly no\nconfig set appendonly yes")
        await_rewrite(client)
        for value in range(10):
            client.call("set", "n", value)
            client.call("waitaof", 1, 0, 0)
        files = tmp_path / "appendonlydir"
        shutil.copytree(server.folder / "appendonlydir", files)
    # The file that a kill in the middle of a switch leaves behind.
    (files / "temp-appendonly.aof.manifest").write_text("file app")
    code, told = check(files)
    assert code == 0 and told.count(": good: ") == 3, told
    increment = next(files.glob("*.incr.aof"))
    data = increment.read_bytes()
    increment.write_bytes(data[:-3])
    code, told = check(files)
    assert code == 1 and "damaged at byte" in told and "cut off" in told, told
    # The word of a node of a cluster that all that is synced is there.
    end = f"clean {'0' * 40} 7\n"
    (tmp_path / "cluster-end").write_text("durable\n" + end)
    code, told = check("--fix", "--yes", files)
    assert code == 0 and "cut at byte" in told, told
    assert (tmp_path / "cluster-end").read_text() == end
    (tmp_path / "cluster-end").unlink()
    assert check(files)[0] == 0
    flipped = bytearray(data)
    flipped[data.index(b"$1\r\n5\r\n") + 4] ^= 1
    increment.write_bytes(flipped)
    code, told = check(increment)
    assert code == 1 and "checksum" in told, told
    flipped[data.index(b"$1\r\n5\r\n") + 4] = ord("x")
    increment.write_bytes(flipped)
    # Even good commands in a batch that its check disproves go, and the check before it stays.
    cut_at = data.rindex(b"\r\n#CRC32C:", 0, data.index(b"$1\r\n5\r\n"))
    cut_at = data.index(b"\r\n", cut_at + 2) + 2
    code, told = check("--fix", "--yes", files)
    assert code == 0 and f"cut at byte {cut_at}" in told, told
    code, told = check(increment)
    assert code == 0 and "without a check" not in told, told
    with Server(*LOG, "--dir", tmp_path) as server:
        client = Client(server)
        client.call("select", 3)
        assert client.call("get", "n") == "4"
    base = next(files.glob("*.base.rdb"))
    damaged = bytearray(base.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    base.write_bytes(damaged)
    code, told = check(base)
    assert code == 1 and "damaged at byte" in told, told


def test_files_whose_manifest_is_gone_are_kept(tmp_path):
    files = tmp_path / "appendonlydir"
    manifest, increment = files / "appendonly.aof.manifest", files / "appendonly.aof.1.incr.aof"
    for number in (1, 2):
        with Server(*LOG, "--dir", tmp_path) as server:
            assert Client(server).call("set", "n", number) == "+OK"
        record, written = manifest.read_bytes(), increment.read_bytes()
        manifest.unlink()
        with Server(*LOG, "--dir", tmp_path) as server:
            assert Client(server).call("dbsize") == 0
            aside = files / f"lost-{number}-appendonly.aof.1.incr.aof"
            assert str(aside) in server.log()
            assert aside.read_bytes() == written
    shutil.copy(files / "lost-1-appendonly.aof.1.incr.aof", increment)
    manifest.write_bytes(record)
    with Server(*LOG, "--dir", tmp_path) as server:
        assert Client(server).call("get", "n") == "1"


def test_log_with_a_hole_between_files_is_noticed(tmp_path):
    with Server(*LOG) as server:
        client = Client(server)
        for value in range(6):
            client.call("set", "n", value)
            client.call("waitaof", 1, 0, 0)
        files = tmp_path / "appendonlydir"
        shutil.copytree(server.folder / "appendonlydir", files)
    increment = next(files.glob("*.incr.aof"))
    batches = re.findall(rb".*?\r\n#CRC32C:.*?\r\n", increment.read_bytes(), re.DOTALL)
    manifest = files / "appendonly.aof.manifest"
    manifest.write_text(manifest.read_text() + "file second seq 100 type i\n")
    for first, second, is_whole in [(3, 3, True), (0, 0, True), (6, 6, True), (2, 3, False), (3, 2, False)]:
        increment.write_bytes(b"".join(batches[:first]))
        (files / "second").write_bytes(b"".join(batches[second:]))
        code, told = check(files)
        assert (code == 0) == is_whole, told
        if is_whole:
            with Server(*LOG, "--dir", tmp_path) as server:
                assert Client(server).call("get", "n") == "5"
            continue
        hole = "the batch before is not the one that belongs here"
        assert f"second: damaged at byte {batches[second].index(b'#CRC32C')}" in told and hole in told, told
        arguments = ["--port", free_port(), "--bind", "127.0.0.1", "--dir", tmp_path, *LOG]
        ended = subprocess.run(command(DUNLIN, *arguments), capture_output=True, text=True, timeout=30)
        said = ended.stdout + ended.stderr
        assert ended.returncode == 1 and hole in said and f"dunlin check {manifest}'" in said, said
        arguments = ["convert", "--quiet", files, tmp_path / "dump.rdb"]
        ended = subprocess.run([DUNLIN, *map(str, arguments)], capture_output=True, text=True, timeout=30)
        assert ended.returncode == 1 and hole in ended.stderr


def refused_start(directory):
    """The output of a server that has to refuse the log of a directory."""
    arguments = ["--port", free_port(), "--bind", "127.0.0.1", "--dir", directory, *LOG]
    ended = subprocess.run(command(DUNLIN, *arguments), capture_output=True, text=True, timeout=30)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 1, said
    return said


@pytest.mark.parametrize(
    "lines, at, reason",
    [
        (["nonsense a"], 0, "unknown command 'nonsense'"),
        (["set a"], 0, "'set' has a wrong number of words"),
        (["subscribe a"], 0, "'subscribe' does not belong into a log"),
        (["set a 1", "exec"], 1, "a transaction ends that has not begun"),
        (["multi", "set a 1", "multi"], 0, "a transaction begins inside another"),
        (["set a 1", "multi", "incr n", "nonsense", "exec"], 1, "unknown command 'nonsense'"),
    ],
)
def test_check_refuses_what_a_start_refuses_and_cuts_before_it(lines, at, reason, tmp_path):
    with Server(*LOG) as server:
        Client(server).call("set", "n", 1)
        Client(server).call("waitaof", 1, 0, 0)
        files = tmp_path / "appendonlydir"
        shutil.copytree(server.folder / "appendonlydir", files)
    increment = next(files.glob("*.incr.aof"))
    good = increment.read_bytes()
    commands = [encoded(*line.encode().split()) for line in lines]
    increment.write_bytes(good + b"".join(commands))
    # A transaction goes as a whole.
    cut_at = len(good) + len(b"".join(commands[:at]))
    said = refused_start(tmp_path)
    assert reason in said and f"cuts the file at byte {cut_at}," in said, said
    code, told = check(files)
    assert code == 1 and reason in told and f"cutting it at byte {cut_at} " in told, told
    assert check("--fix", "--yes", files)[0] == 0
    with Server(*LOG, "--dir", tmp_path) as server:
        assert Client(server).call("mget", "n", "a") == ["1", "1" if at else None]


def test_check_fix_is_not_offered_for_a_file_that_others_follow(tmp_path):
    with Server(*LOG) as server:
        Client(server).call("set", "n", 1)
        Client(server).call("waitaof", 1, 0, 0)
        files = tmp_path / "appendonlydir"
        shutil.copytree(server.folder / "appendonlydir", files)
    increment = next(files.glob("*.incr.aof"))
    increment.write_bytes(increment.read_bytes()[:-3])
    manifest = files / "appendonly.aof.manifest"
    manifest.write_text(manifest.read_text() + "file second seq 100 type i\n")
    (files / "second").touch()
    said = refused_start(tmp_path)
    assert "was cut off" in said and f"dunlin check {manifest}'" in said, said
    assert "cuts the log's last file only" in said and "--fix" not in said, said
    code, told = check("--fix", "--yes", manifest)
    assert code == 1 and "cannot be repaired by cutting" in told, told


def test_check_cuts_no_file_that_is_none_of_ours(tmp_path):
    for name, text in [("notes.txt", b"dear diary\n"), ("list.md", b"* one\n* two\n"), ("title.md", b"# notes\ntext\n"), ("run.aof", b"#!/bin/sh\n:\n")]:
        path = tmp_path / name
        path.write_bytes(text)
        code, told = check("--fix", "--yes", path)
        assert code == 1 and "it begins neither as an append-only file" in told and "cannot be repaired" in told, told
        assert path.read_bytes() == text
    assert len(list(tmp_path.iterdir())) == 4


def test_check_keeps_what_it_cuts_off(tmp_path):
    whole, torn = encoded(b"SET", b"a", b"1"), b"*3\r\n$3\r\nSET\r\n$1\r\nb"
    path, kept = tmp_path / "log.aof", tmp_path / f"log.aof.cut-{len(whole)}"
    for copy in (kept, tmp_path / f"{kept.name}-2"):
        path.write_bytes(whole + torn)
        code, told = check("--fix", "--yes", path)
        assert code == 0 and f"loses {len(torn)} bytes" in told and str(copy) in told, told
        assert told.index("loses") < told.index("are kept in")
        assert path.read_bytes() == whole and copy.read_bytes() == torn
    path.write_bytes(torn)
    assert check("--fix", "--yes", path)[0] == 0
    assert path.read_bytes() == b"" and (tmp_path / "log.aof.cut-0").read_bytes() == torn


def test_check_and_a_start_pass_over_what_was_cut_off(tmp_path):
    files = tmp_path / "appendonlydir"
    files.mkdir()
    (files / "appendonly.aof.1.incr.aof.cut-7").write_bytes(b"x")
    with Server(*LOG, "--dir", tmp_path) as server:
        assert Client(server).call("set", "a", 1) == "+OK"
    code, told = check(files)
    assert code == 0 and ".cut-7" not in told, told
    assert (files / "appendonly.aof.1.incr.aof.cut-7").exists()
