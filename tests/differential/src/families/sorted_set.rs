//! Sorted sets.

use super::list::TIMEOUT;
use crate::grammar::Arg::*;
use crate::grammar::{Arg, Family, row};

const LIMIT: Arg = Maybe(35, &[Word("LIMIT"), SmallInteger, SmallInteger]);
const AGGREGATE: Arg = Maybe(40, &[Word("AGGREGATE"), Pick(&["SUM", "MIN", "MAX", "MIN", "MAX", "AVERAGE"])]);
const WITH_SCORES: Arg = Maybe(40, &[Word("WITHSCORES")]);
const RANGE: Arg = OneOf(&[
    &[Index, Index, Options(&[&[Word("REV")]])],
    &[
        ScoreBound,
        ScoreBound,
        Word("BYSCORE"),
        Options(&[&[Word("REV")], &[Word("LIMIT"), SmallInteger, SmallInteger]]),
    ],
    &[Index, Index, Options(&[&[Word("REV")], &[Word("BYSCORE")], &[Word("LIMIT"), Integer, Integer]])],
]);

/// The table.
pub const FAMILY: Family = Family {
    name: "sorted_set",
    private: false,
    rows: &[
        row("ZADD", 18, &[Key, Repeat(1, 4, &[Score, Member])]),
        row(
            "ZADD",
            10,
            &[
                Key,
                Options(&[&[Pick(&["NX", "XX"])], &[Pick(&["GT", "LT"])], &[Word("CH")], &[Word("INCR")]]),
                Repeat(1, 2, &[Score, Member]),
            ],
        ),
        row("ZINCRBY", 6, &[Key, Score, Member]),
        row("ZREM", 5, &[Key, Repeat(1, 3, &[Member])]),
        row("ZCARD", 2, &[Key]),
        row("ZSCORE", 3, &[Key, Member]),
        row("ZMSCORE", 3, &[Key, Repeat(1, 4, &[Member])]),
        row("ZRANK", 4, &[Key, Member]).unspoiled(),
        row("ZREVRANK", 3, &[Key, Member]).unspoiled(),
        row("ZCOUNT", 4, &[Key, ScoreBound, ScoreBound]),
        row("ZRANGE", 10, &[Key, RANGE, WITH_SCORES]),
        row("ZREVRANGE", 4, &[Key, Index, Index, WITH_SCORES]),
        row("ZRANGEBYSCORE", 4, &[Key, ScoreBound, ScoreBound, WITH_SCORES, LIMIT]),
        row("ZREVRANGEBYSCORE", 4, &[Key, ScoreBound, ScoreBound, WITH_SCORES, LIMIT]),
        row("ZRANGESTORE", 4, &[Key, Key, RANGE]),
        row("ZREMRANGEBYRANK", 3, &[Key, Index, Index]),
        row("ZREMRANGEBYSCORE", 3, &[Key, ScoreBound, ScoreBound]),
        row("ZPOPMIN", 3, &[Key, Maybe(50, &[Count])]),
        row("ZPOPMAX", 3, &[Key, Maybe(50, &[Count])]),
        row(
            "ZMPOP",
            3,
            &[
                Counted(1, 3, &[Key]),
                Pick(&["MIN", "MAX", "MIN", "MAX", "MID"]),
                Maybe(50, &[Word("COUNT"), Count]),
            ],
        ),
        row("BZPOPMIN", 1, &[Repeat(1, 3, &[Key]), TIMEOUT]).unspoiled(),
        row("BZPOPMAX", 1, &[Repeat(1, 3, &[Key]), TIMEOUT]).unspoiled(),
        row(
            "BZMPOP",
            1,
            &[
                TIMEOUT,
                Counted(1, 3, &[Key]),
                Pick(&["MIN", "MAX", "MIN", "MAX", "MID"]),
                Maybe(50, &[Word("COUNT"), Count]),
            ],
        )
        .unspoiled(),
        row("ZUNION", 3, &[WeightedKeys, AGGREGATE, WITH_SCORES]),
        row("ZINTER", 3, &[WeightedKeys, AGGREGATE, WITH_SCORES]),
        row("ZDIFF", 3, &[Counted(1, 3, &[Key]), WITH_SCORES]),
        row("ZUNIONSTORE", 3, &[Key, WeightedKeys, AGGREGATE]),
        row("ZINTERSTORE", 3, &[Key, WeightedKeys, AGGREGATE]),
        row("ZDIFFSTORE", 3, &[Key, Counted(1, 3, &[Key])]),
        row("ZINTERCARD", 3, &[Counted(1, 3, &[Key]), Maybe(40, &[Word("LIMIT"), Count])]),
        row("ZRANDMEMBER", 2, &[Key]).sample(Some("ZRANGE 0 -1 WITHSCORES")).unspoiled(),
        row("ZRANDMEMBER", 3, &[Key, SmallInteger, WITH_SCORES])
            .sample(Some("ZRANGE 0 -1 WITHSCORES"))
            .unspoiled(),
        row(
            "ZSCAN",
            3,
            &[
                Key,
                Word("0"),
                Maybe(40, &[Word("MATCH"), Pattern]),
                Maybe(40, &[Word("COUNT"), Pick(&["1", "5", "100"])]),
            ],
        )
        .iterate(2),
        row("OBJECT ENCODING", 3, &[Key]),
        row("DEL", 1, &[Key]),
    ],
};
