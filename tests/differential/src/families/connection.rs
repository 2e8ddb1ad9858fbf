//! The connection itself: greetings, names, protocol versions, and bytes that are no command.

use crate::grammar::Arg::*;
use crate::grammar::{Action, Arg, Compare, Family, Row, row};

/// Bytes on a connection of their own.
const fn raw(weight: u32, bytes: &'static [Arg]) -> Row {
    Row { name: "", weight, arguments: bytes, compare: Compare::Exact, action: Action::Raw, spoiled: false }
}

/// The table.
pub const FAMILY: Family = Family {
    name: "connection",
    private: false,
    rows: &[
        row("PING", 80, &[Maybe(50, &[Value])]),
        row("ECHO", 80, &[Value]),
        row(
            "HELLO",
            60,
            &[Maybe(
                80,
                &[Pick(&["2", "3", "3", "2", "4", "1", "x"]), Maybe(30, &[Word("SETNAME"), Letters])],
            )],
        )
        .shape()
        // Redis applies the options that it has read before it meets a bad one; a wire test compares
        // those errors.
        .unspoiled(),
        row("CLIENT SETNAME", 60, &[OneOf(&[&[Letters], &[Value]])]),
        row("CLIENT GETNAME", 60, &[]),
        row("CLIENT ID", 20, &[]).shape(),
        row("CLIENT INFO", 20, &[]).outcome(),
        row(
            "CLIENT LIST",
            20,
            &[Maybe(50, &[Word("TYPE"), Pick(&["normal", "replica", "pubsub", "other"])])],
        )
        .outcome(),
        row("CLIENT NO-EVICT", 20, &[Pick(&["on", "off", "maybe"])]),
        row("CLIENT GETREDIR", 20, &[]),
        row(
            "CLIENT UNBLOCK",
            20,
            &[OneOf(&[&[Word("999999999")], &[Value]]), Maybe(50, &[Pick(&["TIMEOUT", "ERROR", "NONE"])])],
        ),
        row("CLIENT KILL", 20, &[Word("ID"), Word("999999999")]).unspoiled(),
        row("CLIENT KILL", 20, &[Word("127.0.0.1:1")]).unspoiled(),
        row("CLIENT HELP", 20, &[]).outcome(),
        row("CLIENT NONSENSE", 20, &[Maybe(50, &[Value])]),
        row("SELECT", 20, &[Database]),
        row("SELECT", 40, &[Word("0")]),
        row("AUTH", 20, &[Maybe(50, &[Word("default")]), Value]),
        row("RESET", 20, &[]),
        row("NONSENSE", 40, &[Repeat(0, 4, &[Value])]),
        raw(1, &[Word("PING\r\n")]),
        raw(1, &[Word("\r\n\r\n*0\r\n*-1\r\n*-10\r\nPING\r\n")]),
        raw(1, &[Word("  ECHO   'a\\'b'  \r\nECHO \"\\x41\\n\\t\\\"\"\n")]),
        raw(1, &[Word("ECHO 'unbalanced\r\n")]),
        raw(1, &[Word("ECHO \"a\"b\r\n")]),
        raw(
            1,
            &[
                Word("*1\r\n$"),
                Pick(&["-1", "-9223372036854775808", "536870913", "99999999999999999999"]),
                Word("\r\n"),
            ],
        ),
        raw(
            1,
            &[
                Word("*"),
                Pick(&["1048577", "2147483648", "9223372036854775808", "x", "1 ", " 1", "+1", "1a", "-", ""]),
                Word("\r\n$4\r\nPING\r\n"),
            ],
        ),
        raw(
            1,
            &[
                Word("*1\r\n"),
                Pick(&[
                    "4",
                    "PING",
                    ":4",
                    "$",
                    "$-1",
                    "$-2",
                    "$4x",
                    "$ 4",
                    "$+4",
                    "$536870913",
                    "$9223372036854775808",
                    "*1",
                ]),
                Word("\r\nPING\r\n"),
            ],
        ),
    ],
};
