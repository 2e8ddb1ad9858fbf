//! Streams, with the IDs given, so that both servers write the same ones.

use crate::grammar::Arg::*;
use crate::grammar::{Arg, Family, row};

const TRIM: Arg = OneOf(&[
    &[Word("MAXLEN"), Count],
    &[Word("MAXLEN"), Word("="), Count],
    &[Word("MINID"), StreamId],
    &[Word("MINID"), Word("="), StreamId],
    // Which whole nodes go is each server's own affair, but with few entries none does.
    &[Word("MAXLEN"), Word("~"), Word("1000")],
    &[Word("MAXLEN"), Word("="), Count, Word("LIMIT"), Count],
]);
const GROUP: Arg = Pick(&["one", "two", "three"]);
/// Redis 7.0 takes more than the stream ever had, and answers a negative lag then; newer servers clamp it.
const ENTRIES_READ: Arg = OneOf(&[&[Word("0")], &[Word("-1")]]);
const CONSUMER: Arg = Pick(&["ann", "bob"]);
const COUNT: Arg = Maybe(40, &[Word("COUNT"), Count]);

/// The table.
pub const FAMILY: Family = Family {
    name: "stream",
    private: false,
    rows: &[
        row("XADD", 20, &[Key, StreamId, Repeat(1, 3, &[Member, Value])]),
        row("XADD", 4, &[Key, Pick(&["1-*", "20-*", "40-*", "50-*"]), Member, Value]),
        row("XADD", 5, &[Key, Options(&[&[Word("NOMKSTREAM")], &[TRIM]]), StreamId, Member, Value]),
        row("XLEN", 3, &[Key]),
        row(
            "XRANGE",
            6,
            &[
                Key,
                OneOf(&[&[StreamId], &[Word("-")], &[Word("(5-0")]]),
                OneOf(&[&[StreamId], &[Word("+")]]),
                COUNT,
            ],
        ),
        row(
            "XREVRANGE",
            5,
            &[
                Key,
                OneOf(&[&[StreamId], &[Word("+")]]),
                OneOf(&[&[StreamId], &[Word("-")], &[Word("(5-0")]]),
                COUNT,
            ],
        ),
        row("XDEL", 5, &[Key, Repeat(1, 3, &[StreamId])]),
        row("XTRIM", 4, &[Key, TRIM]),
        // Redis 7.0 takes IDs that newer servers refuse, and then goes on from there.
        row(
            "XSETID",
            2,
            &[Key, StreamId, Options(&[&[Word("ENTRIESADDED"), Count], &[Word("MAXDELETEDID"), StreamId]])],
        )
        .forget(),
        row("XREAD", 5, &[COUNT, Word("STREAMS"), Key, StreamId]),
        row("XREAD", 3, &[COUNT, Word("STREAMS"), Key, Key, StreamId, StreamId]),
        row(
            "XREAD",
            1,
            &[Word("BLOCK"), Pick(&["1", "-1", "x"]), COUNT, Word("STREAMS"), Key, Pick(&["$", "30-0"])],
        )
        .unspoiled(),
        row(
            "XREADGROUP",
            1,
            &[
                Word("GROUP"),
                GROUP,
                CONSUMER,
                Word("BLOCK"),
                Pick(&["1", "-1", "x"]),
                Word("STREAMS"),
                Key,
                Word(">"),
            ],
        )
        .unspoiled(),
        row(
            "XGROUP CREATE",
            8,
            &[
                Key,
                GROUP,
                OneOf(&[&[StreamId], &[Word("$")], &[Word("0")]]),
                Options(&[&[Word("MKSTREAM")], &[Word("ENTRIESREAD"), ENTRIES_READ]]),
            ],
        ),
        row("XGROUP SETID", 2, &[Key, GROUP, StreamId, Maybe(30, &[Word("ENTRIESREAD"), ENTRIES_READ])]),
        row("XGROUP DESTROY", 1, &[Key, GROUP]),
        row("XGROUP CREATECONSUMER", 2, &[Key, GROUP, CONSUMER]),
        row("XGROUP DELCONSUMER", 1, &[Key, GROUP, CONSUMER]),
        row(
            "XREADGROUP",
            10,
            &[
                Word("GROUP"),
                GROUP,
                CONSUMER,
                COUNT,
                Maybe(20, &[Word("NOACK")]),
                Word("STREAMS"),
                Key,
                OneOf(&[&[Word(">")], &[Word(">")], &[StreamId]]),
            ],
        ),
        row("XACK", 5, &[Key, GROUP, Repeat(1, 3, &[StreamId])]),
        row("XPENDING", 3, &[Key, GROUP]).unspoiled(),
        row(
            "XPENDING",
            3,
            &[
                Key,
                GROUP,
                Maybe(30, &[Word("IDLE"), Word("0")]),
                Word("-"),
                Word("+"),
                Count,
                Maybe(30, &[CONSUMER]),
            ],
        )
        .times()
        .unspoiled(),
        row(
            "XCLAIM",
            4,
            &[
                Key,
                GROUP,
                CONSUMER,
                Word("0"),
                Repeat(1, 3, &[StreamId]),
                Options(&[
                    &[Word("JUSTID")],
                    &[Word("FORCE")],
                    &[Word("RETRYCOUNT"), Count],
                    &[Word("LASTID"), StreamId],
                ]),
            ],
        )
        .unspoiled(),
        row(
            "XAUTOCLAIM",
            4,
            &[Key, GROUP, CONSUMER, Word("0"), StreamId, COUNT, Maybe(30, &[Word("JUSTID")])],
        )
        .unspoiled(),
        row("XINFO STREAM", 4, &[Key, Maybe(40, &[Word("FULL"), COUNT])]).times(),
        row("XINFO GROUPS", 4, &[Key]),
        row("XINFO CONSUMERS", 2, &[Key, GROUP]).times(),
        row("DEBUG DIGEST-VALUE", 2, &[Key]).unspoiled(),
        row("COPY", 1, &[Key, Key, Maybe(30, &[Word("REPLACE")])]),
        row("DEL", 1, &[Key]),
    ],
};
