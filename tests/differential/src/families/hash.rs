//! Hashes.

use crate::grammar::Arg::*;
use crate::grammar::{Family, row};

/// The table.
pub const FAMILY: Family = Family {
    name: "hash",
    private: false,
    rows: &[
        row("HSET", 20, &[Key, Repeat(1, 4, &[Member, Value])]),
        row("HMSET", 3, &[Key, Repeat(1, 4, &[Member, Value])]),
        row("HSETNX", 4, &[Key, Member, Value]),
        row("HGET", 6, &[Key, Member]),
        row("HMGET", 4, &[Key, Repeat(1, 4, &[Member])]),
        row("HGETALL", 4, &[Key]).pairs(),
        row("HKEYS", 2, &[Key]).unordered(),
        row("HVALS", 2, &[Key]).unordered(),
        row("HLEN", 3, &[Key]),
        row("HSTRLEN", 3, &[Key, Member]),
        row("HEXISTS", 3, &[Key, Member]),
        row("HDEL", 6, &[Key, Repeat(1, 3, &[Member])]),
        row("HINCRBY", 6, &[Key, Member, Integer]),
        row("HINCRBYFLOAT", 6, &[Key, Member, Float]),
        row("HRANDFIELD", 2, &[Key]).sample(Some("HGETALL")).unspoiled(),
        row("HRANDFIELD", 3, &[Key, SmallInteger, Maybe(40, &[Word("WITHVALUES")])])
            .sample(Some("HGETALL"))
            .unspoiled(),
        row(
            "HSCAN",
            3,
            &[
                Key,
                Word("0"),
                Maybe(40, &[Word("MATCH"), Pattern]),
                Maybe(40, &[Word("COUNT"), Pick(&["1", "5", "100"])]),
            ],
        )
        .iterate(2),
        row("HSCAN", 1, &[Key, Integer, Options(&[&[Word("MATCH"), Pattern], &[Word("COUNT"), Count]])])
            .outcome(),
        row("OBJECT ENCODING", 3, &[Key]),
        row("DEL", 1, &[Key]),
    ],
};
