"""Scripts and functions: texts of errors, what the sandbox gives and refuses, libraries, slow scripts.

What a table says is what Redis 7.0 answers; the same tests pass on `DUNLIN=redis-server`, but for those
that say otherwise.
"""

import contextlib

import pytest

from harness import DUNLIN, Server, is_redis
from wire import command, exactly


class Session:
    """A client that decodes what it gets: errors as exceptions of their text, everything else as it is."""

    def __init__(self, server):
        self.socket = server.connect()
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()

    def send(self, *words):
        self.socket.sendall(command(*words))

    def read(self):
        line = self.file.readline()
        kind, text = line[:1], line[1:-2]
        match kind:
            case b"+":
                return text.decode()
            case b"-":
                return "-" + text.decode()
            case b":":
                return int(text)
            case b"$":
                return None if text == b"-1" else self.file.read(int(text) + 2)[:-2]
            case b"*":
                return None if text == b"-1" else [self.read() for _ in range(int(text))]
        raise AssertionError(line)

    def __call__(self, *words):
        self.send(*words)
        return self.read()


@pytest.fixture
def session(server):
    with Session(server) as session:
        session("FLUSHALL")
        session("SCRIPT", "FLUSH")
        session("FUNCTION", "FLUSH")
        yield session


WHERE = " script: {sha}, on @user_script:{line}."

# script → its error, without where.
RAISED = {
    "error('boom')": "ERR user_script:1: boom",
    "error({err='MY own'})": "MY own",
    "\n\nerror('third line')": "ERR user_script:3: third line",
    "return nosuch": "ERR user_script:1: Script attempted to access nonexistent global variable 'nosuch'",
    "x = 1": "ERR user_script:1: Attempt to modify a readonly table",
    "redis.call = nil": "ERR user_script:1: Attempt to modify a readonly table",
    "string.rep = nil": "ERR user_script:1: Attempt to modify a readonly table",
    "rawset(_G, 'x', 1)": "ERR Attempt to modify a readonly table",
    "table.insert(redis, 1)": "ERR Attempt to modify a readonly table",
    "setmetatable(redis, {})": "ERR Attempt to modify a readonly table",
    "print('x')": "ERR user_script:1: Script attempted to access nonexistent global variable 'print'",
    "require('os')": "ERR user_script:1: Script attempted to access nonexistent global variable 'require'",
    "io.open('x')": "ERR user_script:1: Script attempted to access nonexistent global variable 'io'",
    "redis.call()": "ERR Please specify at least one argument for this redis lib call",
    "redis.call({})": "ERR Lua redis lib command arguments must be strings or integers",
    "redis.call('nonsense')": "ERR Unknown Redis command called from script",
    "redis.call('get')": "ERR Wrong number of args calling Redis command from script",
    "redis.call('eval', 'return 1', 0)": "ERR This Redis command is not allowed from script",
    "redis.call('multi')": "ERR This Redis command is not allowed from script",
    "redis.call('sadd', 'set', 1) redis.call('incr', 'set')": "WRONGTYPE Operation against a key holding the wrong kind of value",
    "redis.setresp(4)": "ERR RESP version must be 2 or 3.",
    "redis.log(1)": "ERR redis.log() requires two arguments or more.",
    "redis.sha1hex()": "ERR wrong number of arguments",
    "redis.set_repl(9)": "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
    "local function f() return 1 + f() end f()": "ERR user_script:1: stack overflow",
}


@pytest.mark.parametrize("script", RAISED)
def test_an_error_says_what_and_where(session, script):
    sha = session("SCRIPT", "LOAD", script).decode()
    line = script.count("\n") + 1
    assert session("EVALSHA", sha, 0) == "-" + RAISED[script] + WHERE.format(sha=sha, line=line)


# script → its reply.
ANSWERED = {
    "return {1, 2, {3, 'four'}, nil, 5}": [1, 2, [3, b"four"]],
    "return {3.99, -3.99, true, false}": [3, -3, 1, None],
    "return {ok='fine'}": "fine",
    "return {err='MY bad'}": "-MY bad",
    "return redis.error_reply('bad')": "-ERR bad",
    "return redis.pcall('nonsense')": "-ERR Unknown Redis command called from script",
    "local ok, e = pcall(redis.call, 'get') return {tostring(ok), e}": [
        b"false",
        b"ERR Wrong number of args calling Redis command from script",
    ],
    "return redis.sha1hex('')": b"da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "return redis.call('set', 'k', 3.0) and redis.call('get', 'k')": b"3",
    "return tostring(redis.call('get', 'nokey'))": b"false",
    "redis.setresp(3) return tostring(redis.call('get', 'nokey'))": b"nil",
    "return cjson.encode({1, 'a/b', {x = cjson.null}})": b'[1,"a\\/b",{"x":null}]',
    "return cmsgpack.pack({1, 'a', 2.5})": b"\x93\x01\xa1a\xca\x40\x20\x00\x00",
    "return struct.pack('>I2s', 258, 'ab')": b"\x01\x02ab\x00",
    "return bit.tohex(bit.bor(1, 16))": b"00000011",
    "return ('x'):rep(3)": b"xxx",
    "return select('#', pairs({}))": 3,
    "#!lua flags=no-writes\nreturn redis.pcall('set', 'k', 1)": "-ERR Write commands are not allowed from read-only scripts.",
}


@pytest.mark.parametrize("script", ANSWERED)
def test_values_cross_the_border(session, script):
    assert session("EVAL", script, 0) == ANSWERED[script]


def test_nothing_of_a_script_is_left_to_the_next(session):
    session("EVAL", "KEYS[1] = 'changed' local t = getmetatable('') t = nil", 1, "k")
    session("EVAL", "pcall(function() string.len = nil end) pcall(rawset, string, 'len', nil)", 0)
    session("EVAL", "collectgarbage('stop')", 0)
    assert session("EVAL", "return {KEYS[1], string.len('abc'), ('abc'):len()}", 1, "k") == [b"k", 3, 3]


def test_compiled_chunks_are_refused(session):
    script = "local f = loadstring(string.dump(function() return 1 end)) return tostring(f)"
    assert session("EVAL", script, 0) == b"nil"


def test_a_script_is_known_by_its_sha_until_the_flush(session):
    sha = session("SCRIPT", "LOAD", "return 7").decode()
    assert session("SCRIPT", "EXISTS", sha, "f" * 40) == [1, 0]
    assert session("EVALSHA", sha.upper(), 0) == 7
    assert session("SCRIPT", "FLUSH") == "OK"
    assert session("EVALSHA", sha, 0) == "-NOSCRIPT No matching script. Please use EVAL."
    assert session("EVAL", "return 7", 0) == 7
    assert session("EVALSHA", sha, 0) == 7


def test_scripts_run_in_transactions(session):
    assert session("MULTI") == "OK"
    for words in [("SET", "k", 1), ("EVAL", "return redis.call('incr', 'k')", 0), ("GET", "k")]:
        assert session(*words) == "QUEUED"
    assert session("EXEC") == ["OK", 2, b"2"]


LIBRARY = """#!lua name=mylib
local calls = 0
redis.register_function('echo', function(keys, args) calls = calls + 1 return {keys, args, calls} end)
redis.register_function{
    function_name = 'peek', description = 'looks', flags = {'no-writes'},
    callback = function(keys) return redis.call('get', keys[1]) end
}"""


def test_functions_are_called_by_name(session):
    assert session("FUNCTION", "LOAD", LIBRARY) == b"mylib"
    assert session("FCALL", "echo", 1, "k", "a", "b") == [[b"k"], [b"a", b"b"], 1]
    assert session("SET", "k", "v") == "OK"
    assert session("FCALL_RO", "peek", 1, "k") == b"v"
    assert session("FCALL_RO", "echo", 0) == "-ERR Can not execute a script with write flag using *_ro command."
    assert session("FCALL", "nosuch", 0) == "-ERR Function not found"
    assert session("FUNCTION", "LOAD", LIBRARY) == "-ERR Library 'mylib' already exists"
    assert session("FUNCTION", "LOAD", "REPLACE", LIBRARY) == b"mylib"
    assert session("FUNCTION", "DELETE", "mylib") == "OK"
    assert session("FCALL", "echo", 0) == "-ERR Function not found"


REFUSED_LIBRARIES = {
    "return 1": "ERR Missing library metadata",
    "#!lua name=a": "ERR Invalid library metadata",
    "#!lua\nreturn 1": "ERR Library name was not given",
    "#!lua name=a name=b\nreturn 1": "ERR Invalid metadata value, name argument was given multiple times",
    "#!lua name=a x=y\nreturn 1": "ERR Invalid metadata value given: x=y",
    "#!python name=a\nreturn 1": "ERR Engine 'python' not found",
    "#!lua name=a\nreturn 1": "ERR No functions registered",
    "#!lua name=a\nreturn (": "ERR Error compiling function: user_function:2: unexpected symbol near '<eof>'",
    "#!lua name=a\nredis.register_function('f')": "ERR Error registering functions: ERR calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).",
    "#!lua name=a\nredis.register_function('f', 1)": "ERR Error registering functions: ERR second argument to redis.register_function must be a function",
    "#!lua name=a\nredis.register_function{function_name='f', callback=function() end, flags={'x'}}": "ERR Error registering functions: ERR unknown flag given",
    "#!lua name=a\nredis.call('get', 'k')": "ERR Error registering functions: ERR user_function:2: Script attempted to access nonexistent global variable 'call'",
    "#!lua name=a\nwhile true do end": "ERR Error registering functions: ERR FUNCTION LOAD timeout",
}


@pytest.mark.parametrize("library", REFUSED_LIBRARIES)
def test_a_library_that_does_not_load_leaves_nothing(session, library):
    assert session("FUNCTION", "LOAD", library) == "-" + REFUSED_LIBRARIES[library]
    assert session("FUNCTION", "LIST") == []


def test_libraries_pass_through_a_dump(session):
    session("FUNCTION", "LOAD", LIBRARY)
    dump = session("FUNCTION", "DUMP")
    assert session("FUNCTION", "RESTORE", dump) == "-ERR Library mylib already exists"
    assert session("FUNCTION", "RESTORE", dump, "REPLACE") == "OK"
    assert session("FUNCTION", "FLUSH") == "OK"
    assert session("FUNCTION", "RESTORE", dump) == "OK"
    assert session("FCALL", "echo", 0)[:2] == [[], []]
    assert session("FUNCTION", "RESTORE", dump[:-1] + b"x") == "-ERR DUMP payload version or checksum are wrong"


LOOP = "redis.call('get', KEYS[1]) while true do end"
SLOW = ["--busy-reply-threshold", "50", *([] if is_redis(DUNLIN) else ["--threads", "2"])]


def until(answer, *words, session):
    """Asks until that is the answer."""
    while True:
        got = session(*words)
        if isinstance(got, str) and got.startswith(answer):
            return got


@contextlib.contextmanager
def two_workers():
    """A server with a client on each of its workers: newcomers go to the one with fewer."""
    with Server(*SLOW) as server, Session(server) as first:
        # Whoever looked whether the server answers has to be gone.
        while b"connected_clients:1\r\n" not in first("INFO", "clients"):
            pass
        with Session(server) as second:
            yield first, second


@pytest.mark.parametrize("script, keys", [(LOOP, ("1", "k")), ("redis.call('get', 'k') while true do end", ("0",))])
def test_a_slow_script_is_not_waited_for_and_can_be_ended(script, keys):
    with two_workers() as (slow, other):
        slow.send("EVAL", script, *keys)
        until("-BUSY", "GET", "k", session=other)
        assert other("SCRIPT", "KILL") == "OK"
        assert slow.read().startswith("-ERR Script killed by user with SCRIPT KILL.")
        until("-NOTBUSY", "SCRIPT", "KILL", session=other)
        assert other("SET", "k", "v") == "OK"


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis stands still")
def test_a_slow_script_holds_up_only_what_it_has_locked():
    with two_workers() as (slow, other):
        slow.send("EVAL", LOOP, 1, "k")
        until("-BUSY", "GET", "k", session=other)
        answers = {str(other("SET", f"other:{n}", n)) for n in range(100)}
        assert "OK" in answers
        assert other("EVAL", "return redis.call('get', KEYS[1])", 1, "k").startswith("-BUSY")
        assert other("FLUSHALL").startswith("-BUSY") and other("KEYS", "*").startswith("-BUSY")
        assert other("SCRIPT", "KILL") == "OK"
        assert slow.read().startswith("-ERR Script killed")


def test_a_script_that_has_written_is_not_ended():
    script = "redis.call('set', KEYS[1], 'begun') while redis.call('time')[1] < ARGV[1] do end return 'done'"
    with two_workers() as (slow, other):
        end = int(other("TIME")[0]) + 3
        slow.send("EVAL", script, 1, "k", end)
        until("-BUSY", "GET", "k", session=other)
        assert other("SCRIPT", "KILL").startswith("-UNKILLABLE")
        assert slow.read() == b"done"
        assert other("GET", "k") == b"begun"
