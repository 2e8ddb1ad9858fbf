//! What sorted sets can do since Redis 7.0: the oracle is Valkey 9.

use crate::grammar::Arg::*;
use crate::grammar::{Family, row};

/// The table.
pub const FAMILY: Family = Family {
    name: "sorted_set_newer",
    private: true,
    rows: &[
        row("ZADD", 20, &[Key, Repeat(1, 4, &[Score, Member])]).unspoiled(),
        row("ZINCRBY", 6, &[Key, Score, Member]).unspoiled(),
        row("ZREM", 4, &[Key, Repeat(1, 3, &[Member])]),
        row("ZRANK", 10, &[Key, Member, Maybe(70, &[Word("WITHSCORE")])]),
        row("ZREVRANK", 10, &[Key, Member, Maybe(70, &[Word("WITHSCORE")])]),
        row("ZSCAN", 4, &[Key, Word("0"), Word("NOSCORES"), Maybe(40, &[Word("MATCH"), Pattern])])
            .unordered(),
        row("ZRANGE", 10, &[Key, Index, Index, Word("WITHSCORES")]),
        row("DEL", 1, &[Key]),
    ],
};
