//! Transactions over strings.

use crate::grammar::Arg::*;
use crate::grammar::{Family, row};

/// The table.
pub const FAMILY: Family = Family {
    name: "transaction",
    private: false,
    rows: &[
        row("MULTI", 10, &[]),
        row("EXEC", 12, &[]).transaction(),
        row("DISCARD", 3, &[]),
        row("WATCH", 3, &[Repeat(1, 3, &[AnyKey])]),
        row("UNWATCH", 2, &[]),
        row("SET", 12, &[Key, Value]),
        row("GET", 8, &[Key]),
        row("INCRBY", 8, &[Key, SmallInteger]),
        row("APPEND", 4, &[Key, Letters]),
        row("MGET", 4, &[Repeat(1, 4, &[Key])]),
        row("RENAME", 3, &[Key, Key]),
        row("DEL", 3, &[Repeat(1, 2, &[AnyKey])]),
        row("EXPIREAT", 2, &[Key, FarUnixSeconds]),
        row("TTL", 2, &[Key]).near(5),
        row("SELECT", 1, &[Database]),
        row("SELECT", 2, &[Word("0")]),
        row("NONSENSE", 1, &[]),
    ],
};
