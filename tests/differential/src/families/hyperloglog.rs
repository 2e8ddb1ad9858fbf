//! HyperLogLog: strings of a fixed layout, compared byte for byte by GET.

use crate::grammar::Arg::*;
use crate::grammar::{Family, row};

/// The table.
pub const FAMILY: Family = Family {
    name: "hyperloglog",
    private: false,
    rows: &[
        row("PFADD", 20, &[Key, Repeat(0, 12, &[Value])]),
        row("PFADD", 6, &[Key, Repeat(1, 12, &[Integer])]),
        // Enough to reach the dense encoding now and then.
        row("PFADD", 2, &[Key, Repeat(200, 600, &[Integer])]),
        row("PFCOUNT", 8, &[Key]),
        row("PFCOUNT", 5, &[Repeat(1, 4, &[Key])]),
        row("PFMERGE", 5, &[Key, Repeat(0, 4, &[Key])]),
        row("GET", 4, &[Key]),
        row("PFDEBUG ENCODING", 1, &[Key]).unspoiled(),
        row("PFDEBUG DECODE", 1, &[Key]),
        row("PFDEBUG GETREG", 1, &[Key]),
        row("PFDEBUG TODENSE", 1, &[Key]).unspoiled(),
        row("OBJECT ENCODING", 1, &[Key]),
        row("SETRANGE", 1, &[Key, Pick(&["0", "3", "4", "8", "16", "20"]), Value]).unspoiled(),
        row("DEL", 1, &[Key]),
        row("SET", 1, &[Key, Value]),
    ],
};
