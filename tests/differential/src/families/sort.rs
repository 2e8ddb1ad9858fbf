//! SORT of lists, sets and sorted sets, with weights under other keys.

use crate::grammar::Arg::*;
use crate::grammar::{Arg, Family, row};

/// Elements: mostly numbers, so that most sorts succeed.
const ELEMENT: Arg = Pick(&["1", "2", "3", "4", "5", "6", "07", "10", "-2.5", "1e1", "2", "3", "", "inf"]);
/// Keys that the patterns below find for some elements.
const WEIGHT_KEY: Arg = Pick(&["w_1", "w_2", "w_3", "w_10", "w_", "w_3_z", "w_1_z"]);
const WEIGHT: Arg = Pick(&["1", "2", "3", "1", "2.5", "-1", "0x10", " 4", "", "1e3"]);
const PATTERN: Arg = Pick(&["w_*", "h_*->f", "w_*_z", "h_*->g", "*", "w_*->"]);
const LIMIT: Arg = Maybe(30, &[Word("LIMIT"), SmallInteger, SmallInteger]);
const ORDER: Arg = Maybe(40, &[Pick(&["ASC", "DESC"])]);
const GET: Arg = Maybe(40, &[Repeat(1, 3, &[Word("GET"), OneOf(&[&[Word("#")], &[PATTERN], &[Word("w")]])])]);
const STORE: Arg = Maybe(20, &[Word("STORE"), Key]);

/// The table.
pub const FAMILY: Family = Family {
    name: "sort",
    private: true,
    rows: &[
        // Once Redis 7.0 has read a number that a double cannot hold, it refuses others (it forgets to clear
        // errno): no junk among the elements.
        row("RPUSH", 10, &[Key, Repeat(1, 6, &[ELEMENT])]).unspoiled(),
        row("SADD", 10, &[Key, Repeat(1, 6, &[ELEMENT])]).unspoiled(),
        row("ZADD", 6, &[Key, Repeat(1, 6, &[Pick(&["1", "2", "3", "-4"]), ELEMENT])]).unspoiled(),
        row("SADD", 1, &[Key, Pick(&["word", "other"])]),
        row("SET", 6, &[WEIGHT_KEY, WEIGHT]).unspoiled(),
        row("SET", 1, &[WEIGHT_KEY, Word("heavy")]),
        row("HSET", 6, &[Pick(&["h_1", "h_2", "h_3", "h_4"]), Pick(&["f", "g"]), WEIGHT]).unspoiled(),
        row("DEL", 1, &[WEIGHT_KEY]),
        row("SORT", 10, &[Key, LIMIT, ORDER, GET, STORE]),
        row("SORT", 8, &[Key, Word("ALPHA"), LIMIT, ORDER, GET, STORE]),
        // BY something without a star leaves a set in an order of each server's own: no bad calls.
        row("SORT", 12, &[Key, Word("BY"), PATTERN, LIMIT, ORDER, GET, STORE]).unspoiled(),
        // Elements of equal weight come in any order.
        row("SORT", 4, &[Key, Word("BY"), PATTERN, Word("ALPHA"), ORDER]).unordered().unspoiled(),
        row("SORT", 3, &[Key, Word("BY"), Word("nosort")]).unordered().unspoiled(),
        row("SORT", 2, &[Key, Word("BY"), Word("nosort"), ORDER, LIMIT, GET, Word("STORE"), Key]).unspoiled(),
        row("SORT_RO", 6, &[Key, Maybe(50, &[Word("BY"), PATTERN]), LIMIT, ORDER, GET]).unspoiled(),
        row("LRANGE", 4, &[Key, Word("0"), Word("-1")]),
        row("TYPE", 2, &[Key]),
        row("DEL", 3, &[Key]),
        row("COMMAND GETKEYS", 1, &[Word("SORT"), Key, GET, STORE]).unspoiled(),
        row("COMMAND INFO", 1, &[Pick(&["SORT", "SORT_RO"])]).unspoiled(),
    ],
};
