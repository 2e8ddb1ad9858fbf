//! Lists.

use crate::grammar::Arg::*;
use crate::grammar::{Arg, Family, row};

const END: Arg = Pick(&["LEFT", "RIGHT", "LEFT", "RIGHT", "LEFT", "RIGHT", "MIDDLE"]);

/// Short if it is one, or no client comes to end the wait.
pub(super) const TIMEOUT: Arg = Pick(&["0.001", "0.01", "-1", "x", "inf"]);

/// The table.
pub const FAMILY: Family = Family {
    name: "list",
    private: false,
    rows: &[
        row("RPUSH", 14, &[Key, Repeat(1, 5, &[Member])]),
        row("LPUSH", 10, &[Key, Repeat(1, 5, &[Member])]),
        row("RPUSH", 3, &[Key, Repeat(1, 3, &[Value])]),
        row("RPUSHX", 2, &[Key, Repeat(1, 2, &[Value])]),
        row("LPUSHX", 2, &[Key, Repeat(1, 2, &[Value])]),
        row("LPOP", 5, &[Key, Maybe(40, &[Count])]),
        row("RPOP", 5, &[Key, Maybe(40, &[Count])]),
        row("LLEN", 3, &[Key]),
        row("LINDEX", 5, &[Key, Index]),
        row("LINSERT", 5, &[Key, Pick(&["BEFORE", "AFTER", "BEFORE", "AFTER", "INSIDE"]), Member, Value]),
        row("LRANGE", 8, &[Key, Index, Index]),
        row("LREM", 5, &[Key, SmallInteger, Member]),
        row("LSET", 5, &[Key, Index, Value]),
        row("LTRIM", 4, &[Key, Index, Index]),
        row(
            "LPOS",
            6,
            &[
                Key,
                Member,
                Options(&[&[Word("RANK"), SmallInteger], &[Word("COUNT"), Count], &[Word("MAXLEN"), Count]]),
            ],
        ),
        row("LPOS", 1, &[Key, Member, Word("RANK"), Pick(&["0", "-9223372036854775808", "x"])]),
        row("RPOPLPUSH", 4, &[Key, Key]),
        row("LMOVE", 5, &[Key, Key, END, END]),
        row("LMPOP", 4, &[Counted(1, 3, &[Key]), END, Maybe(50, &[Word("COUNT"), Count])]),
        row("BLPOP", 1, &[Repeat(1, 3, &[Key]), TIMEOUT]).unspoiled(),
        row("BRPOP", 1, &[Repeat(1, 3, &[Key]), TIMEOUT]).unspoiled(),
        row("BLMOVE", 1, &[Key, Key, END, END, TIMEOUT]).unspoiled(),
        row("BRPOPLPUSH", 1, &[Key, Key, TIMEOUT]).unspoiled(),
        row("BLMPOP", 1, &[TIMEOUT, Counted(1, 3, &[Key]), END, Maybe(50, &[Word("COUNT"), Count])])
            .unspoiled(),
        row("OBJECT ENCODING", 3, &[Key]),
        row("DEL", 1, &[Key]),
    ],
};
