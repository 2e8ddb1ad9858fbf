//! Lua scripts: conversions both ways, errors, and calls of commands.

use crate::grammar::Arg::*;
use crate::grammar::{Arg, Family, row};

const SCRIPT: Arg = Pick(&[
    "return 1",
    "return {1,2,{3,'four'},nil,5}",
    "return 3.99",
    "return true",
    "return false",
    "return nil",
    "return {ok='fine'}",
    "return {err='MY bad'}",
    "return redis.error_reply('MY bad')",
    "return redis.status_reply('fine')",
    "return KEYS[1]",
    "return ARGV[1]",
    "return #KEYS + #ARGV",
    "return redis.call('get', KEYS[1])",
    "return redis.call('set', KEYS[1], ARGV[1])",
    "return redis.call('incrby', KEYS[1], ARGV[1])",
    "return redis.pcall('incrby', KEYS[1], ARGV[1])",
    "local e = redis.pcall('incr', KEYS[1]) if type(e) == 'table' then return e.err end return e",
    "for i = 1, 5 do redis.call('append', KEYS[1], i) end return redis.call('strlen', KEYS[1])",
    "return {redis.call('exists', KEYS[1]), redis.call('type', KEYS[1])}",
    "redis.setresp(3) return redis.call('get', KEYS[1])",
    "return redis.sha1hex(ARGV[1])",
    "return cjson.encode({1, 'a', {b = true}})",
    "return cjson.decode('[1,2,\"x\"]')",
    "return tostring(cmsgpack.unpack(cmsgpack.pack(ARGV[1])))",
    "return struct.pack('>I4', 7)",
    "return bit.band(12, 10)",
    "return string.format('%s %d', ARGV[1], 3)",
    "error('boom')",
    "return nosuchglobal",
    "x = 1",
    "return redis.call('nonsense')",
    "return redis.call('get')",
    "return (",
]);

/// The table.
pub const FAMILY: Family = Family {
    name: "scripting",
    private: false,
    rows: &[
        row("EVAL", 20, &[SCRIPT, Word("1"), Key, Value]),
        row("EVAL", 4, &[SCRIPT, Counted(0, 3, &[Key]), Repeat(0, 3, &[Value])]),
        row("EVAL_RO", 6, &[SCRIPT, Word("1"), Key, Value]),
        row("SCRIPT LOAD", 3, &[SCRIPT]),
        row(
            "SCRIPT EXISTS",
            3,
            &[Repeat(1, 3, &[Pick(&["e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "ffff"])])],
        ),
        row("EVALSHA", 4, &[Pick(&["e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "ffff"]), Word("0")]),
        row("SCRIPT FLUSH", 1, &[Maybe(50, &[Pick(&["SYNC", "ASYNC", "NOW"])])]),
        row("GET", 4, &[Key]),
        row("SET", 4, &[Key, Value]),
    ],
};
