//! Strings.

use crate::grammar::Arg::*;
use crate::grammar::{Arg, Family, row};

const EXPIRY: Arg = OneOf(&[
    &[Word("EX"), FarSeconds],
    &[Word("PX"), FarMillis],
    &[Word("EXAT"), FarUnixSeconds],
    &[Word("PXAT"), FarUnixMillis],
]);

/// The table.
pub const FAMILY: Family = Family {
    name: "string",
    private: false,
    rows: &[
        row("APPEND", 8, &[Key, Value]),
        row("DECR", 4, &[Key]),
        row("DECRBY", 4, &[Key, Integer]),
        row("GET", 12, &[Key]),
        row("GETDEL", 3, &[Key]),
        row("GETEX", 5, &[Key, Maybe(70, &[OneOf(&[&[EXPIRY], &[Word("PERSIST")]])])]),
        row("GETEX", 1, &[Key, Options(&[&[EXPIRY], &[Word("PERSIST")], &[EXPIRY]])]),
        row("GETRANGE", 8, &[Key, Index, Index]),
        row("GETSET", 3, &[Key, Value]),
        row("INCR", 6, &[Key]),
        row("INCRBY", 6, &[Key, Integer]),
        row("INCRBYFLOAT", 6, &[Key, Float]),
        row("LCS", 1, &[Key, Key, Maybe(30, &[Word("LEN")])]),
        row(
            "LCS",
            2,
            &[
                Key,
                Key,
                Options(&[
                    &[Word("IDX")],
                    &[Word("LEN")],
                    &[Word("MINMATCHLEN"), SmallInteger],
                    &[Word("WITHMATCHLEN")],
                ]),
            ],
        ),
        row("MGET", 6, &[Repeat(1, 8, &[AnyKey])]),
        row("MSET", 5, &[Repeat(1, 6, &[Key, Value])]),
        row("MSETNX", 3, &[Repeat(1, 3, &[Key, Value])]),
        row("PSETEX", 2, &[Key, FarMillis, Value]),
        row("SET", 14, &[Key, Value]),
        row("SET", 6, &[Key, Letters]),
        row("SET", 6, &[Key, Integer]),
        row("SET", 4, &[Key, Float]),
        row(
            "SET",
            12,
            &[
                Key,
                Value,
                Options(&[
                    &[Pick(&["NX", "XX"])],
                    &[Word("GET")],
                    &[OneOf(&[&[EXPIRY], &[EXPIRY], &[Word("KEEPTTL")]])],
                ]),
            ],
        ),
        row(
            "SET",
            2,
            &[
                Key,
                Value,
                Options(&[
                    &[Word("NX")],
                    &[Word("XX")],
                    &[Word("GET")],
                    &[EXPIRY],
                    &[EXPIRY],
                    &[Word("KEEPTTL")],
                ]),
            ],
        ),
        row("SETEX", 3, &[Key, FarSeconds, Value]),
        row("SETNX", 3, &[Key, Value]),
        row("SETRANGE", 7, &[Key, Offset, Value]),
        row("STRLEN", 4, &[Key]),
        row("SUBSTR", 3, &[Key, Index, Index]),
        row("PSETEX", 1, &[Key, Word("1"), Value]).let_expire(),
        row("SET", 1, &[Key, Value, Word("PX"), Word("1")]).let_expire(),
        row("GETEX", 1, &[Key, Word("PX"), Word("1")]).let_expire(),
    ],
};
