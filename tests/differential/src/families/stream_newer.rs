//! Commands on streams since Redis 8.4: no oracle has them, so this family is for replaying logs.

use crate::grammar::Arg::*;
use crate::grammar::{Arg, Family, row};

const GROUP: Arg = Pick(&["one", "two"]);
const CONSUMER: Arg = Pick(&["ann", "bob", "cyd"]);
/// Streams whose IDs are times.
const STREAM: Arg = Pick(&["once", "twice"]);
const PRODUCER: Arg = Pick(&["p", "q", "MAXLEN"]);

/// The table.
pub const FAMILY: Family = Family {
    name: "stream_newer",
    private: true,
    rows: &[
        row("XADD", 12, &[Key, StreamId, Member, Value]),
        row("XDEL", 2, &[Key, StreamId]),
        row("XGROUP CREATE", 4, &[Key, GROUP, Word("0"), Word("MKSTREAM")]),
        row("XGROUP SETID", 1, &[Key, GROUP, StreamId]),
        row("XGROUP DELCONSUMER", 1, &[Key, GROUP, CONSUMER]),
        row("XACK", 4, &[Key, GROUP, Repeat(1, 2, &[StreamId])]),
        row("XCLAIM", 2, &[Key, GROUP, CONSUMER, Word("0"), StreamId, Word("IDLE"), Pick(&["5", "900"])]),
        row(
            "XREADGROUP",
            14,
            &[
                Word("GROUP"),
                GROUP,
                CONSUMER,
                Word("CLAIM"),
                Pick(&["0", "1", "500"]),
                Maybe(50, &[Word("COUNT"), Count]),
                Maybe(20, &[Word("NOACK")]),
                Word("STREAMS"),
                Key,
                OneOf(&[&[Word(">")], &[Word(">")], &[StreamId]]),
            ],
        ),
        row(
            "XADD",
            10,
            &[
                STREAM,
                Maybe(20, &[Word("MAXLEN"), Word("~"), Word("50")]),
                OneOf(&[
                    &[Word("IDMP"), PRODUCER, Pick(&["1", "2", "3", "LIMIT"])],
                    &[Word("IDMPAUTO"), PRODUCER],
                ]),
                Word("*"),
                Member,
                Value,
            ],
        ),
        row("XCFGSET", 1, &[STREAM, Word("IDMP-MAXSIZE"), Pick(&["1", "2", "100"])]),
        row("COPY", 1, &[STREAM, STREAM, Word("REPLACE")]),
        row("DEL", 1, &[Key]),
    ],
};
