//! Sets.

use crate::grammar::Arg::*;
use crate::grammar::{Family, row};

/// The table.
pub const FAMILY: Family = Family {
    name: "set",
    private: false,
    rows: &[
        row("SADD", 14, &[Key, Repeat(1, 5, &[Member])]),
        row("SADD", 8, &[Key, Repeat(1, 6, &[SmallInteger])]),
        row("SADD", 2, &[Key, Repeat(1, 3, &[Value])]),
        row("SREM", 6, &[Key, Repeat(1, 3, &[Member])]),
        row("SCARD", 3, &[Key]),
        row("SISMEMBER", 4, &[Key, Member]).unspoiled(),
        row("SMISMEMBER", 3, &[Key, Repeat(1, 4, &[Member])]),
        row("SMEMBERS", 4, &[Key]).unordered(),
        row("SMOVE", 5, &[Key, Key, Member]),
        row("SINTER", 4, &[Repeat(1, 3, &[Key])]).unordered(),
        row("SUNION", 4, &[Repeat(1, 3, &[Key])]).unordered(),
        row("SDIFF", 4, &[Repeat(1, 3, &[Key])]).unordered(),
        row("SINTERSTORE", 3, &[Key, Repeat(1, 3, &[Key])]),
        row("SUNIONSTORE", 2, &[Key, Repeat(1, 3, &[Key])]),
        row("SDIFFSTORE", 3, &[Key, Repeat(1, 3, &[Key])]),
        row("SINTERCARD", 4, &[Counted(1, 3, &[Key]), Maybe(40, &[Word("LIMIT"), Count])]),
        row("SPOP", 1, &[Key]).shape().forget(),
        row("SPOP", 2, &[Key, Count]).shape().forget(),
        row("SRANDMEMBER", 2, &[Key]).sample(Some("SMEMBERS")).unspoiled(),
        row("SRANDMEMBER", 3, &[Key, SmallInteger]).sample(Some("SMEMBERS")).unspoiled(),
        row(
            "SSCAN",
            3,
            &[
                Key,
                Word("0"),
                Maybe(40, &[Word("MATCH"), Pattern]),
                Maybe(40, &[Word("COUNT"), Pick(&["1", "5", "100"])]),
            ],
        )
        .iterate(2),
        row("SSCAN", 1, &[Key, Integer, Options(&[&[Word("MATCH"), Pattern], &[Word("COUNT"), Count]])])
            .outcome(),
        row("OBJECT ENCODING", 3, &[Key]),
        row("DEL", 1, &[Key]),
    ],
};
