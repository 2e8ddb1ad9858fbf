"""Scripts and functions: texts of errors, the functions that the sandbox gives and refuses, libraries.

The tables have the replies of Redis 7.0; the same tests pass on `DUNLIN=redis-server`, but for those
that say otherwise.
"""

import hashlib

import pytest

from harness import DUNLIN, Server, is_redis
from wire import Session


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
def test_script_error_says_what_and_where(session, script):
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


# They are held back where writes are paused, which read-only scripts are not.
HELD_WITH_WRITES = ["'set', 'k', 1", "'publish', 'c', 'm'", "'spublish', 'c', 'm'", "'pfcount', 'p'"]


@pytest.mark.parametrize("call", HELD_WITH_WRITES)
def test_read_only_scripts_neither_write_nor_publish(session, call):
    refusal = "-ERR Write commands are not allowed from read-only scripts."
    library = (
        "#!lua name=held\nredis.register_function{function_name='held', flags={'no-writes'}, "
        f"callback=function() return redis.pcall({call}) end}}"
    )
    assert session("FUNCTION", "LOAD", "REPLACE", library) == b"held"
    script = f"return redis.pcall({call})"
    for name in ("EVAL_RO", "EVALSHA_RO"):
        text = script if name == "EVAL_RO" else hashlib.sha1(script.encode()).hexdigest()
        assert session(name, text, 0) == refusal
    assert session("EVAL", "#!lua flags=no-writes\n" + script, 0) == refusal
    for name in ("FCALL", "FCALL_RO"):
        assert session(name, "held", 0) == refusal
    assert not str(session("EVAL", script, 0)).startswith("-")


def test_sort_has_an_order_in_scripts_whatever_it_is_asked_for(session):
    members = [str(number * 7919 % 10007) for number in range(1000)]
    session("DEL", "set", "list")
    session("SADD", "set", *members)
    session("RPUSH", "list", "b", "a", "c")
    in_order = [member.encode() for member in sorted(members)]
    for name, by in (("sort", "nosort"), ("sort_ro", "constant")):
        script = f"return redis.call('{name}', KEYS[1], 'by', '{by}', unpack(ARGV))"
        assert session("EVAL", script, 1, "set") == in_order
        assert session("EVAL", script, 1, "set", "limit", 1, 3) == in_order[1:4]
        assert session("EVAL", script, 1, "set", "desc") == in_order[::-1]
        assert session("EVAL", script, 1, "list") == [b"b", b"a", b"c"], "a list has an order of its own"
        session("MULTI")
        session("EVAL", script, 1, "set")
        session("SORT", "set", "BY", by)
        inside, outside = session("EXEC")
        assert inside == in_order and sorted(outside) == in_order
        assert sorted(session("SORT", "set", "BY", by)) == in_order


@pytest.mark.parametrize("script", ANSWERED)
def test_values_cross_the_border(session, script):
    assert session("EVAL", script, 0) == ANSWERED[script]


def test_script_leaves_nothing_to_the_next(session):
    session("EVAL", "KEYS[1] = 'changed' local t = getmetatable('') t = nil", 1, "k")
    session("EVAL", "pcall(function() string.len = nil end) pcall(rawset, string, 'len', nil)", 0)
    session("EVAL", "collectgarbage('stop')", 0)
    assert session("EVAL", "return {KEYS[1], string.len('abc'), ('abc'):len()}", 1, "k") == [b"k", 3, 3]


def test_compiled_chunks_are_refused(session):
    script = "local f = loadstring(string.dump(function() return 1 end)) return tostring(f)"
    assert session("EVAL", script, 0) == b"nil"


def test_script_is_known_by_its_sha_until_the_flush(session):
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
def test_library_that_does_not_load_leaves_nothing(session, library):
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


OOM = "-OOM command not allowed when used memory > 'maxmemory'."

# script → how its reply begins while memory is short.
SHORT_OF_MEMORY = {
    "return redis.call('set', KEYS[1], 1)": OOM,
    "return redis.pcall('set', KEYS[1], 1)": OOM,
    "return redis.call('get', KEYS[1])": b"old",
    "return redis.call('getdel', KEYS[1])": b"old",
    # A script that has begun to write goes on.
    "redis.call('del', KEYS[1]) return redis.call('set', KEYS[1], 1)": "OK",
    "redis.call('get', KEYS[1]) return redis.call('set', KEYS[1], 1)": OOM,
    "#!lua\nreturn 1": OOM,
    "#!lua\nreturn redis.call('set', KEYS[1], 1)": OOM,
    "#!lua flags=allow-oom\nreturn redis.call('set', KEYS[1], 1)": "OK",
    "#!lua flags=no-writes\nreturn redis.call('get', KEYS[1])": b"old",
    "#!lua flags=no-writes,allow-oom\nreturn redis.pcall('set', KEYS[1], 1)": "-ERR Write commands are not allowed",
}


@pytest.fixture(scope="module")
def crowded():
    with Server() as server, Session(server) as session:
        yield session


def short_of_memory(session, *calls):
    """The replies to calls while there is less memory than is in use."""
    assert session("SET", "k", "old") == "OK"
    assert session("CONFIG", "SET", "maxmemory", 1) == "OK"
    try:
        return [session(*call) for call in calls]
    finally:
        assert session("CONFIG", "SET", "maxmemory", 0) == "OK"


@pytest.mark.parametrize("script", SHORT_OF_MEMORY)
def test_memory_runs_short_for_scripts_as_they_say(crowded, script):
    sha = crowded("SCRIPT", "LOAD", script)
    expected = SHORT_OF_MEMORY[script]
    for got in short_of_memory(crowded, ("EVALSHA", sha, 1, "k")):
        assert got == expected if isinstance(expected, bytes) else got.startswith(expected)


def test_memory_runs_short_for_functions_as_they_say(crowded):
    library = """#!lua name=memory
local function set(keys) return redis.call('set', keys[1], 1) end
redis.register_function('plain', set)
redis.register_function{function_name = 'greedy', callback = set, flags = {'allow-oom'}}
redis.register_function{
    function_name = 'reader', callback = function(keys) return redis.call('get', keys[1]) end, flags = {'no-writes'}
}"""
    assert crowded("FUNCTION", "LOAD", "REPLACE", library) == b"memory"
    calls = [("FCALL", name, 1, "k") for name in ("plain", "reader", "greedy")]
    assert short_of_memory(crowded, *calls) == [OOM, b"old", "OK"]


def test_memory_runs_short_for_scripts_in_transactions(crowded):
    script = "return redis.pcall('set', KEYS[1], 1)"
    # A script without a shebang may read or free: it is queued, and its commands that need memory fail, as in Valkey 9.1.
    assert crowded("MULTI") == "OK"
    assert crowded("EVAL", script, 1, "k") == "QUEUED"
    assert crowded("DISCARD") == "OK"
    _, queued, [refused] = short_of_memory(crowded, ("MULTI",), ("EVAL", script, 1, "k"), ("EXEC",))
    assert queued == "QUEUED" and refused == OOM


@pytest.mark.skipif(is_redis(DUNLIN), reason="Redis has no limit")
@pytest.mark.parametrize("growth", ["s = s .. s", "t[#t + 1] = s .. #t"])
def test_script_that_takes_memory_without_end_is_ended(crowded, growth):
    script = f"local s, t = ('x'):rep(1000000), {{}} while true do {growth} end"
    assert crowded("EVAL", script, 0).endswith("not enough memory")
    caught = f"local ok, e = pcall(function() {script} end) return {{tostring(ok), e}}"
    assert crowded("EVAL", caught, 0) == [b"false", b"not enough memory"]
    assert crowded("EVAL", "return #('x'):rep(1000000)", 0) == 1000000


ALL = "local t = {} for i = 1, %d do t[i] = 'x' end "

# script → its reply, or the text of its error. Each of them once ended the server, or answered something else.
HOSTILE = {
    "return {unpack({1, 2, 3}, -2, 2147483647)}": "too many results to unpack",
    ALL % 7995 + "return redis.pcall('incrby', 'a', unpack(t))": "Wrong number of args calling Redis command from script",
    ALL % 7995 + "return redis.pcall('nosuch', unpack(t))": "Unknown Redis command called from script",
    ALL % 7995 + "return redis.call('rpush', 'list', unpack(t))": 7995,
    ALL % 7995 + "return coroutine.wrap(function() return redis.call('rpush', 'list', unpack(t)) end)()": 7995,
    "return string.find(string.rep('x', 40000), string.rep('x?', 40000))": "pattern too complex",
    "local t = {1} for i = 1, 7900 do t = {t} end return #cjson.encode(t)": "Cannot serialise, excessive nesting (1001)",
    "return #string.rep('x', 2^31 - 1)": "not enough memory",
    "local s = string.rep('x', 2^26) error(select(2, load(function() return s end)))": "chunk has too many bytes",
    "local function f() return coroutine.wrap(f)() end return f()": "C stack overflow",
}


@pytest.mark.skipif(is_redis(DUNLIN), reason="redis-server 7.0 ends here")
@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("script", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_scripts_end_in_an_error(session, script, protocol):
    session("HELLO", protocol)
    library = f"#!lua name=hostile\nredis.register_function('hostile', function() {script} end)"
    assert session("FUNCTION", "LOAD", library) == b"hostile"
    for words in [("EVAL", script, 0), ("FCALL", "hostile", 0)]:
        session("DEL", "list")
        reply, expected = session(*words), HOSTILE[script]
        if isinstance(expected, str):
            assert reply.startswith("-ERR ") and expected in reply
        else:
            assert reply == expected
        assert session("PING") == "PONG"


def test_deep_replies_end_where_the_stack_of_scripts_does(session):
    reply, depth = session("EVAL", "local t = {} for i = 1, 100 do t = {t} end return t", 0), 0
    while reply:
        (reply,), depth = reply, depth + 1
    assert depth == 100
