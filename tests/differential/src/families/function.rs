//! Libraries of functions: loading, replacing and removing them, their calls and their rights.

use crate::grammar::Arg::*;
use crate::grammar::{Arg, Family, row};

/// Libraries that load, each function in one of them only: what `REPLACE` may be said of, since Redis 7.0 crashes
/// when a library is not replaced after all.
const LOADABLE: Arg = Text(&[
    "#!lua name=one\nredis.register_function('get', function(keys, args) return redis.call('get', keys[1]) end)",
    "#!lua name=two\nredis.register_function{function_name='read', flags={'no-writes'}, callback=function(keys, args) return redis.call('get', keys[1]) end}",
    "#!lua name=three\nredis.register_function{function_name='write', description='writes', callback=function(keys, args) return redis.call('set', keys[1], args[1]) end}\nredis.register_function{function_name='liar', flags={'no-writes', 'allow-oom', 'allow-stale', 'no-cluster', 'allow-cross-slot-keys'}, callback=function(keys, args) return redis.call('set', keys[1], args[1]) end}",
    "#!lua name=Three\nredis.register_function('INCREASE', function(keys, args) return redis.pcall('incr', keys[1]) end)",
    "#!lua name=fail\nredis.register_function('fail', function(keys, args) error('boom') end)\nredis.register_function('table', function(keys, args) error({err='MY own'}) end)\nredis.register_function('reply', function(keys, args) return redis.error_reply('NO way') end)",
    "#!lua name=sandbox\nredis.register_function('sandbox', function() x = 1 end)\nredis.register_function('lookup', function() return nosuch end)\nredis.register_function('patch', function() redis.call = nil end)\nredis.register_function('upvalue', function() return type(redis.register_function) end)",
    "#!lua name=shared\nlocal function helper(key) return redis.call('exists', key) end\nredis.register_function('help', function(keys) return helper(keys[1]) end)\nredis.register_function('globals', function(keys) return {type(KEYS), type(ARGV)} end)",
    "#!lua name=resp\nredis.register_function('map', function(keys) redis.setresp(3) redis.call('set', keys[1], 'v') return redis.call('config', 'get', 'maxmemory') end)\nredis.register_function('bool', function() redis.setresp(3) return true end)",
]);

/// Libraries, right and wrong. Calls that make Redis 7.0 crash are left out: `register_function` with none or
/// three arguments, libraries without code, names that differ in their letter case only.
const LIBRARY: Arg = Text(&[
    "#!lua name=one\nredis.register_function('double', function(keys, args) return {keys, args, keys, args} end)",
    "#!lua name=two\nlocal function double(keys, args) return #keys * 2 + #args end\nredis.register_function('double', double)",
    "#!lua name=fail\nredis.register_function('fail', function(keys, args)\n\n  return redis.call('incr', keys[1], 'too', 'many') end)",
    "#!lua name=one",
    "#!lua name=one\nreturn 1",
    "#!lua name=one\nreturn (",
    "#!lua name=one\nerror('at load')",
    "#!lua name=one\nerror({err='ERR a table'})",
    "#!lua name=one\nlocal x = nosuch",
    "#!lua name=one\nglobal = 1",
    "#!lua name=one\nfunction global() end",
    "#!lua name=one\nredis.call('set', 'k', 1)",
    "#!lua name=one\nredis.pcall('ping')",
    "#!lua name=one\nredis.setresp(3)",
    "#!lua name=one\nredis.log(redis.LOG_DEBUG, 'x') redis.register_function('logs', function() return 1 end)",
    "#!lua name=one\nredis.register_function('f')",
    "#!lua name=one\nredis.register_function('f', 'g')",
    "#!lua name=one\nredis.register_function(1, function() return 1 end)",
    "#!lua name=one\nredis.register_function({}, function() return 1 end)",
    "#!lua name=one\nredis.register_function('a-b', function() return 1 end)",
    "#!lua name=one\nredis.register_function('', function() return 1 end)",
    "#!lua name=one\nredis.register_function('f', function() end) redis.register_function('f', function() end)",
    "#!lua name=one\nredis.register_function{}",
    "#!lua name=one\nredis.register_function{function_name='f'}",
    "#!lua name=one\nredis.register_function{callback=function() end}",
    "#!lua name=one\nredis.register_function{function_name='f', callback='g'}",
    "#!lua name=one\nredis.register_function{function_name=1, callback=function() end}",
    "#!lua name=one\nredis.register_function{function_name='f', callback=function() end, description=1}",
    "#!lua name=one\nredis.register_function{function_name='f', callback=function() end, description={}}",
    "#!lua name=one\nredis.register_function{function_name='f', callback=function() end, flags='no-writes'}",
    "#!lua name=one\nredis.register_function{function_name='f', callback=function() end, flags={'what'}}",
    "#!lua name=one\nredis.register_function{function_name='f', callback=function() end, flags={1}}",
    "#!lua name=one\nredis.register_function{function_name='f', callback=function() end, what=1}",
    "#!lua name=one\nredis.register_function{function_name='f', callback=function() end, [1]=1}",
    "#!lua name=one name=two\nreturn 1",
    "#!lua name=one what=1\nreturn 1",
    "#!lua name=\nreturn 1",
    "#!lua name=a-b\nreturn 1",
    "#!lua name='quoted'\nredis.register_function('quoted', function() return 1 end)",
    "#!lua\nreturn 1",
    "#!\nreturn 1",
    "#! lua name=one\nreturn 1",
    "#!LUA name=one\nredis.register_function('upper', function() return 1 end)",
    "#!js name=one\nreturn 1",
    "return 1",
    "",
]);

const NAME: Arg =
    Text(&["one", "two", "three", "Three", "fail", "sandbox", "shared", "resp", "quoted", "none"]);

const FUNCTION: Arg = Text(&[
    "get", "double", "DOUBLE", "read", "write", "liar", "WRITE", "increase", "fail", "table", "reply",
    "sandbox", "lookup", "patch", "upvalue", "help", "globals", "map", "bool", "logs", "quoted", "upper",
    "f", "none", "",
]);

/// The table.
pub const FAMILY: Family = Family {
    name: "function",
    private: false,
    rows: &[
        row("FUNCTION LOAD", 20, &[Word("REPLACE"), LOADABLE]),
        row("FUNCTION LOAD", 20, &[LIBRARY]),
        row("FUNCTION LOAD", 4, &[LOADABLE]),
        row("FCALL", 40, &[FUNCTION, Word("1"), Key, Value]),
        row("FCALL", 8, &[FUNCTION, Counted(0, 3, &[Key]), Repeat(0, 3, &[Value])]),
        row("FCALL_RO", 12, &[FUNCTION, Word("1"), Key, Value]),
        row("FUNCTION DELETE", 6, &[NAME]),
        row("FUNCTION FLUSH", 1, &[Maybe(50, &[Pick(&["SYNC", "ASYNC", "NOW"])])]),
        row(
            "FUNCTION LIST",
            8,
            &[
                Maybe(30, &[Word("WITHCODE")]),
                Maybe(40, &[Word("LIBRARYNAME"), Text(&["one", "T*", "*e", "[ft]*", "none"])]),
                Maybe(30, &[Word("WITHCODE")]),
            ],
        )
        .unordered(),
        row("FUNCTION DUMP", 1, &[]).outcome(),
        row("FUNCTION RESTORE", 2, &[Value, Maybe(60, &[Pick(&["FLUSH", "APPEND", "REPLACE", "WHAT"])])]),
        row("FUNCTION STATS", 3, &[]),
        row("FUNCTION KILL", 1, &[]),
        row("FUNCTION NONSENSE", 1, &[]),
        row(
            "EVAL",
            4,
            &[
                Text(&["return type(redis.register_function)", "return redis.pcall('fcall', 'get', 0)"]),
                Word("0"),
            ],
        ),
        row("MULTI", 2, &[]),
        row("EXEC", 4, &[]).transaction().unspoiled(),
        row("HELLO", 1, &[Pick(&["2", "3"])]).shape(),
        row("GET", 8, &[Key]),
        row("SET", 6, &[Key, Value]),
    ],
};
