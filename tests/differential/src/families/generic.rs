//! Commands on keys of any type.

use crate::grammar::Arg::*;
use crate::grammar::{Arg, Family, row};

const CONDITION: Arg = Options(&[&[Pick(&["NX", "XX"])], &[Pick(&["GT", "LT"])]]);
const TYPE_NAME: Arg = Pick(&["string", "list", "set", "zset", "hash", "stream", "nonsense"]);

/// The table.
pub const FAMILY: Family = Family {
    name: "generic",
    private: false,
    rows: &[
        // Something for the others to work on, with any families enabled.
        row("SET", 12, &[AnyKey, Value]),
        row("COPY", 8, &[AnyKey, AnyKey, Options(&[&[Word("REPLACE")], &[Word("DB"), Database]])]),
        row("DEL", 3, &[Repeat(1, 3, &[AnyKey])]),
        row("UNLINK", 2, &[Repeat(1, 3, &[AnyKey])]),
        row("EXISTS", 4, &[Repeat(1, 6, &[AnyKey])]),
        row("TOUCH", 2, &[Repeat(1, 6, &[AnyKey])]),
        row("EXPIRE", 8, &[AnyKey, FarSeconds, Maybe(60, &[CONDITION])]),
        row("PEXPIRE", 6, &[AnyKey, FarMillis, Maybe(60, &[CONDITION])]),
        row("EXPIREAT", 6, &[AnyKey, FarUnixSeconds, Maybe(60, &[CONDITION])]),
        row("PEXPIREAT", 6, &[AnyKey, FarUnixMillis, Maybe(60, &[CONDITION])]),
        row("PEXPIRE", 1, &[AnyKey, Word("1")]).let_expire(),
        row("EXPIRETIME", 3, &[AnyKey]).near(60),
        row("PEXPIRETIME", 3, &[AnyKey]).near(60_000),
        row("TTL", 4, &[AnyKey]).near(60),
        row("PTTL", 4, &[AnyKey]).near(60_000),
        row("PERSIST", 4, &[AnyKey]),
        row("TYPE", 4, &[AnyKey]),
        row("OBJECT ENCODING", 6, &[AnyKey]),
        row("OBJECT REFCOUNT", 1, &[AnyKey]).shape(),
        row("OBJECT IDLETIME", 1, &[AnyKey]).near(60),
        row("OBJECT FREQ", 1, &[AnyKey]),
        row("OBJECT HELP", 1, &[]).outcome(),
        row("RENAME", 6, &[AnyKey, AnyKey]),
        row("RENAMENX", 4, &[AnyKey, AnyKey]),
        // A third word is wrong only for servers before Valkey 9.2.
        row("MOVE", 3, &[AnyKey, Database]).unspoiled(),
        row("MOVE", 1, &[AnyKey]).unspoiled(),
        row("MOVE", 1, &[AnyKey, Value]).unspoiled(),
        row("SWAPDB", 1, &[Database, Database]),
        row("SELECT", 1, &[Database]),
        // The databases that are not 0 would rarely be left otherwise.
        row("SELECT", 3, &[Word("0")]),
        row("DBSIZE", 3, &[]),
        row("KEYS", 3, &[Pattern]).unordered(),
        row("RANDOMKEY", 2, &[]).sample(None),
        row(
            "SCAN",
            3,
            &[
                Word("0"),
                Options(&[
                    &[Word("MATCH"), Pattern],
                    &[Word("COUNT"), Pick(&["1", "3", "10", "1000"])],
                    &[Word("TYPE"), TYPE_NAME],
                ]),
            ],
        )
        .iterate(1),
        row(
            "SCAN",
            2,
            &[
                OneOf(&[&[Integer], &[Value], &[Word("0")]]),
                Options(&[&[Word("MATCH"), Pattern], &[Word("COUNT"), Count], &[Word("TYPE"), TYPE_NAME]]),
            ],
        )
        .outcome(),
        row("FLUSHDB", 1, &[Maybe(50, &[Pick(&["ASYNC", "SYNC", "NOW"])])]),
    ],
};
