//! Hashes whose fields expire. Redis 7.0 does not know these commands: the oracle is Valkey 9.
//!
//! A dropped key would make Valkey take the word FIELDS for the key of HSETEX: no bad calls are made of it.
//! Nor does time pass here: Valkey counts fields that have expired until it has reclaimed them, and keeps a
//! key without others for as long.

use crate::grammar::Arg::*;
use crate::grammar::{Arg, Family, row};

const FIELDS: Arg = OneOf(&[
    &[Word("FIELDS"), Counted(1, 3, &[Member])],
    &[Word("FIELDS"), Counted(1, 3, &[Member])],
    &[Word("FIELDS"), Word("1"), Member],
]);

const CONDITION: Arg = Maybe(40, &[Repeat(1, 2, &[Pick(&["NX", "XX", "GT", "LT"])])]);

/// The table.
pub const FAMILY: Family = Family {
    name: "hash-expiry",
    private: false,
    rows: &[
        row("HSET", 20, &[Key, Repeat(1, 4, &[Member, Value])]),
        row("HEXPIRE", 6, &[Key, FarSeconds, CONDITION, FIELDS]),
        row("HPEXPIRE", 6, &[Key, FarMillis, CONDITION, FIELDS]),
        row("HEXPIREAT", 3, &[Key, FarUnixSeconds, CONDITION, FIELDS]),
        row("HPEXPIREAT", 3, &[Key, FarUnixMillis, CONDITION, FIELDS]),
        row("HTTL", 6, &[Key, FIELDS]).near(60),
        row("HPTTL", 6, &[Key, FIELDS]).near(60_000),
        row("HEXPIRETIME", 4, &[Key, FIELDS]).near(60),
        row("HPEXPIRETIME", 4, &[Key, FIELDS]).near(60_000),
        row("HPERSIST", 5, &[Key, FIELDS]),
        row("HGETDEL", 3, &[Key, FIELDS]),
        row(
            "HGETEX",
            8,
            &[
                Key,
                Options(&[
                    &[Word("EX"), FarSeconds],
                    &[Word("PX"), FarMillis],
                    &[Word("EXAT"), FarUnixSeconds],
                    &[Word("PXAT"), FarUnixMillis],
                    &[Word("PERSIST")],
                ]),
                FIELDS,
            ],
        ),
        row(
            "HSETEX",
            10,
            &[
                Key,
                Options(&[
                    &[Word("EX"), FarSeconds],
                    &[Word("PXAT"), FarUnixMillis],
                    &[Word("KEEPTTL")],
                    &[Pick(&["FNX", "FXX"])],
                ]),
                Word("FIELDS"),
                Counted(1, 3, &[Member, Value]),
            ],
        )
        .unspoiled(),
        row("HSETEX", 2, &[Key, Pick(&["NX", "XX", "FOO", "EX"]), Word("FIELDS"), Word("1"), Member, Value])
            .unspoiled(),
        row("HSETNX", 3, &[Key, Member, Value]),
        row("HINCRBY", 4, &[Key, Member, Integer]),
        row("HINCRBYFLOAT", 3, &[Key, Member, Float]),
        row("HGET", 4, &[Key, Member]),
        row("HEXISTS", 2, &[Key, Member]),
        row("HSTRLEN", 2, &[Key, Member]),
        row("HMGET", 3, &[Key, Repeat(1, 4, &[Member])]),
        row("HDEL", 3, &[Key, Repeat(1, 3, &[Member])]),
        row("HGETALL", 5, &[Key]).pairs(),
        row("HKEYS", 2, &[Key]).unordered(),
        row("HVALS", 2, &[Key]).unordered(),
        row("HLEN", 2, &[Key]),
        row("HSCAN", 2, &[Key, Word("0")]).iterate(2),
        row("HRANDFIELD", 2, &[Key]).sample(Some("HGETALL")).unspoiled(),
        row("OBJECT ENCODING", 3, &[Key]),
        row("COPY", 3, &[Key, Key]),
        row("RENAME", 2, &[Key, Key]),
        row("DEL", 1, &[Key]),
    ],
};
