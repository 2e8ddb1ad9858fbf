//! Sorted sets whose scores are all equal: the reply of a range by member is defined for these alone.

use crate::grammar::Arg::*;
use crate::grammar::{Arg, Family, row};

const LIMIT: Arg = Maybe(35, &[Word("LIMIT"), SmallInteger, SmallInteger]);
const RANGE: Arg = OneOf(&[
    &[LexBound, LexBound, Word("BYLEX"), LIMIT],
    &[LexBound, LexBound, Word("BYLEX"), Word("REV"), LIMIT],
]);

/// The table.
pub const FAMILY: Family = Family {
    name: "sorted_set_lex",
    private: true,
    rows: &[
        row("ZADD", 10, &[Key, Repeat(1, 4, &[Word("0"), Letters])]).unspoiled(),
        row("ZADD", 10, &[Key, Repeat(1, 4, &[Word("0"), Member])]).unspoiled(),
        row("ZREM", 4, &[Key, Repeat(1, 3, &[Member])]),
        row("ZLEXCOUNT", 6, &[Key, LexBound, LexBound]).unspoiled(),
        row("ZRANGEBYLEX", 6, &[Key, LexBound, LexBound, LIMIT]),
        row("ZREVRANGEBYLEX", 6, &[Key, LexBound, LexBound, LIMIT]),
        row("ZREMRANGEBYLEX", 3, &[Key, LexBound, LexBound]),
        row("ZRANGE", 6, &[Key, RANGE]),
        row("ZRANGE", 1, &[Key, RANGE, Word("WITHSCORES")]),
        row("ZRANGESTORE", 3, &[Key, Key, RANGE]),
    ],
};
