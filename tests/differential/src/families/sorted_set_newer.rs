//! Commands on sorted sets since Redis 7.0: the oracle is Valkey 9.

use crate::grammar::Arg::*;
use crate::grammar::{Arg, Family, row};

/// Spellings that both read: Valkey knows no hexadecimal ones.
const SCORE: Arg = Pick(&["1", "-2", "0.1", "3.5", "1e20", "-7.123456789", "inf", "-inf", "0", "100000000"]);

/// The table.
pub const FAMILY: Family = Family {
    name: "sorted_set_newer",
    private: true,
    rows: &[
        row("ZADD", 20, &[Key, Repeat(1, 4, &[SCORE, Member])]).unspoiled(),
        row("ZINCRBY", 6, &[Key, SCORE, Member]).unspoiled(),
        row("ZREM", 4, &[Key, Repeat(1, 3, &[Member])]),
        row("ZRANK", 10, &[Key, Member, Maybe(70, &[Word("WITHSCORE")])]),
        row("ZREVRANK", 10, &[Key, Member, Maybe(70, &[Word("WITHSCORE")])]),
        row("ZSCAN", 4, &[Key, Word("0"), Word("NOSCORES"), Maybe(40, &[Word("MATCH"), Pattern])]).iterate(2),
        row("ZRANGE", 10, &[Key, Index, Index, Word("WITHSCORES")]),
        row("DEL", 1, &[Key]),
    ],
};
