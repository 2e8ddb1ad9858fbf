//! Places in polygons, which Redis 7.0 does not search: the oracle is Valkey 9.

use crate::grammar::Arg::*;
use crate::grammar::{Arg, Family, row};

// Spellings that both read: Valkey knows no hexadecimal ones. Near each other: in wide polygons Valkey does
// not look everywhere. Without COUNT: which of several equally distant places it leaves out is chance.
const LONGITUDE: Arg = Pick(&["-1.9", "-1.25", "-0.7", "-0.3", "0", "0.2", "0.7", "0.8999", "1.3", "1.9"]);
const LATITUDE: Arg = Pick(&["-1.75", "-1.1", "-0.7", "-0.2", "0", "0.4", "0.55", "1.1", "1.6", "1.91"]);

/// The table.
pub const FAMILY: Family = Family {
    name: "geo_polygon",
    private: true,
    rows: &[
        row("GEOADD", 20, &[Key, Repeat(1, 5, &[LONGITUDE, LATITUDE, Member])]).unspoiled(),
        row(
            "GEOSEARCH",
            20,
            &[
                Key,
                Word("BYPOLYGON"),
                Counted(2, 6, &[LONGITUDE, LATITUDE]),
                Pick(&["ASC", "DESC"]),
                Options(&[&[Word("WITHCOORD")], &[Word("WITHDIST")], &[Word("WITHHASH")]]),
            ],
        ),
        row("GEOSEARCH", 5, &[Key, Word("BYPOLYGON"), Counted(3, 5, &[LONGITUDE, LATITUDE])]).unordered(),
        row(
            "GEOSEARCHSTORE",
            8,
            &[
                Key,
                Key,
                Word("BYPOLYGON"),
                Counted(3, 5, &[LONGITUDE, LATITUDE]),
                Maybe(40, &[Word("STOREDIST")]),
            ],
        ),
        row("ZRANGE", 8, &[Key, Word("0"), Word("-1"), Word("WITHSCORES")]),
        row("ZREM", 3, &[Key, Member]),
        row("DEL", 1, &[Key]),
    ],
};
