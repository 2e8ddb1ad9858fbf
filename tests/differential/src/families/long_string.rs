//! Strings that are kept in chunks of 64 KiB, beside the places where these meet.

use crate::grammar::Arg::*;
use crate::grammar::{Arg, Family, row};

const PLACE: Arg = Pick(&[
    "0", "1", "65530", "65535", "65536", "65537", "131071", "131072", "196607", "262140", "262143", "262144",
    "262145", "300000", "327679", "327680", "393216", "400001",
]);
const END: Arg = Pick(&[
    "0", "65535", "65536", "131072", "262143", "262144", "262150", "327680", "393215", "500000", "-1", "-2",
    "-65536", "-65537", "-262145",
]);
const BIT: Arg = Pick(&[
    "0", "524280", "524287", "524288", "524295", "1048575", "1048576", "2097143", "2097151", "2097152",
    "2097160", "2621439", "2621440", "3145727", "3200000",
]);
const FIELD: Arg = OneOf(&[
    &[Word("GET"), BitType, BIT],
    &[Word("SET"), BitType, BIT, Integer],
    &[Word("INCRBY"), BitType, BIT, SmallInteger],
]);

/// The table.
pub const FAMILY: Family = Family {
    name: "long_string",
    private: false,
    rows: &[
        row("SETRANGE", 12, &[Key, PLACE, Value]),
        row("APPEND", 8, &[Key, Value]),
        row("SETBIT", 8, &[Key, BIT, Pick(&["0", "1"])]),
        row("GETBIT", 4, &[Key, BIT]),
        row("BITFIELD", 6, &[Key, Repeat(1, 4, &[FIELD])]),
        row("BITFIELD_RO", 2, &[Key, Word("GET"), BitType, BIT]),
        row("GETRANGE", 8, &[Key, END, END]),
        row("SUBSTR", 1, &[Key, END, END]),
        row("GET", 2, &[Key]),
        row("MGET", 1, &[Key, Key]),
        row("STRLEN", 4, &[Key]),
        row("BITCOUNT", 4, &[Key, END, END]),
        row("BITCOUNT", 2, &[Key, BIT, BIT, Word("BIT")]),
        row("BITPOS", 4, &[Key, Pick(&["0", "1"]), END, Maybe(60, &[END])]),
        row("BITPOS", 2, &[Key, Pick(&["0", "1"]), BIT, BIT, Word("BIT")]),
        row("BITOP", 4, &[Pick(&["AND", "OR", "XOR"]), Key, Repeat(1, 3, &[Key])]),
        row("BITOP", 1, &[Word("NOT"), Key, Key]),
        row("COPY", 4, &[Key, Key, Maybe(60, &[Word("REPLACE")])]),
        row("RENAME", 1, &[Key, Key]),
        row("SET", 2, &[Key, Value]),
        row("SET", 1, &[Key, Value, Word("GET")]),
        row("GETSET", 1, &[Key, Value]),
        row("GETDEL", 1, &[Key]),
        row("DEL", 1, &[Key]),
        row("INCR", 1, &[Key]),
        row("INCRBYFLOAT", 1, &[Key, SmallInteger]),
        row("PFCOUNT", 1, &[Key]),
        row("OBJECT ENCODING", 2, &[Key]),
        row("LCS", 1, &[Key, Key]),
    ],
};
