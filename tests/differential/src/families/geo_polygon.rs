//! Places in polygons, which Redis 7.0 does not search: the oracle is Valkey 9.

use crate::grammar::Arg::*;
use crate::grammar::{Family, row};

/// The table.
pub const FAMILY: Family = Family {
    name: "geo_polygon",
    private: true,
    rows: &[
        row("GEOADD", 20, &[Key, Repeat(1, 5, &[Position, Member])]).unspoiled(),
        row(
            "GEOSEARCH",
            20,
            &[
                Key,
                Word("BYPOLYGON"),
                Counted(2, 6, &[Position]),
                Pick(&["ASC", "DESC"]),
                Options(&[
                    &[Word("WITHCOORD")],
                    &[Word("WITHDIST")],
                    &[Word("WITHHASH")],
                    &[Word("COUNT"), Count],
                ]),
            ],
        ),
        row("GEOSEARCH", 5, &[Key, Word("BYPOLYGON"), Counted(3, 5, &[Position])]).unordered(),
        row(
            "GEOSEARCHSTORE",
            8,
            &[Key, Key, Word("BYPOLYGON"), Counted(3, 5, &[Position]), Maybe(40, &[Word("STOREDIST")])],
        ),
        row("ZRANGE", 8, &[Key, Word("0"), Word("-1"), Word("WITHSCORES")]),
        row("ZREM", 3, &[Key, Member]),
        row("DEL", 1, &[Key]),
    ],
};
