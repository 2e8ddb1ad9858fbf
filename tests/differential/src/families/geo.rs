//! Places on earth: sorted sets whose scores are geohashes.

use crate::grammar::Arg::*;
use crate::grammar::{Arg, Family, row};

const UNIT: Arg = Pick(&["m", "km", "mi", "ft", "km", "miles"]);
const RADIUS: Arg = Pick(&["0", "1", "50", "1000", "20000", "1.5", "-1", "x"]);
const SHAPE: Arg = OneOf(&[&[Word("BYRADIUS"), RADIUS, UNIT], &[Word("BYBOX"), RADIUS, RADIUS, UNIT]]);
const CENTRE: Arg = OneOf(&[&[Word("FROMMEMBER"), Member], &[Word("FROMLONLAT"), Position]]);
const ORDER: Arg = Pick(&["ASC", "DESC"]);
const WITH: Arg = Options(&[
    &[Word("WITHCOORD")],
    &[Word("WITHDIST")],
    &[Word("WITHHASH")],
    &[ORDER],
    &[Word("COUNT"), Count],
]);

/// The table.
pub const FAMILY: Family = Family {
    name: "geo",
    private: false,
    rows: &[
        row("GEOADD", 20, &[Key, Repeat(1, 3, &[Position, Member])]),
        row("GEOADD", 4, &[Key, Options(&[&[Pick(&["NX", "XX"])], &[Word("CH")]]), Position, Member]),
        row("GEODIST", 5, &[Key, Member, Member, Maybe(60, &[UNIT])]),
        row("GEOHASH", 4, &[Key, Repeat(0, 3, &[Member])]),
        row("GEOPOS", 5, &[Key, Repeat(0, 3, &[Member])]),
        row("GEOSEARCH", 12, &[Key, CENTRE, SHAPE, ORDER, WITH]),
        row("GEOSEARCH", 3, &[Key, CENTRE, SHAPE]).unordered(),
        row(
            "GEOSEARCHSTORE",
            5,
            &[
                Key,
                Key,
                CENTRE,
                SHAPE,
                Maybe(40, &[Word("STOREDIST")]),
                Maybe(30, &[ORDER, Word("COUNT"), Count]),
            ],
        ),
        row("GEORADIUS", 5, &[Key, Position, RADIUS, UNIT, ORDER, WITH]),
        row("GEORADIUS", 2, &[Key, Position, RADIUS, UNIT, ORDER, Pick(&["STORE", "STOREDIST"]), Key]),
        row("GEORADIUS_RO", 2, &[Key, Position, RADIUS, UNIT, ORDER, WITH]),
        row("GEORADIUSBYMEMBER", 4, &[Key, Member, RADIUS, UNIT, ORDER, WITH]),
        row("GEORADIUSBYMEMBER_RO", 2, &[Key, Member, RADIUS, UNIT, ORDER, WITH]),
        row("ZSCORE", 3, &[Key, Member]),
        row("ZREM", 3, &[Key, Member]),
        row("DEL", 1, &[Key]),
    ],
};
