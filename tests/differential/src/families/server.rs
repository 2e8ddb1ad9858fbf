//! The server as a whole: configuration, the command table, databases.

use crate::grammar::Arg::*;
use crate::grammar::{Arg, Family, row};

const DIRECTIVE: Arg = Pick(&[
    "databases",
    "maxclients",
    "timeout",
    "tcp-keepalive",
    "maxmemory",
    "maxmemory-policy",
    "proto-max-bulk-len",
    "client-query-buffer-limit",
    "lazyfree-lazy-expire",
    "lazyfree-lazy-user-del",
    "hz",
    "slowlog-max-len",
    "slowlog-log-slower-than",
    "latency-monitor-threshold",
    "requirepass",
    "no-such-directive",
]);
const COMMAND_NAME: Arg = Pick(&[
    "get",
    "set",
    "mset",
    "mget",
    "del",
    "append",
    "setrange",
    "bitop",
    "bitfield",
    "getex",
    "copy",
    "rename",
    "expire",
    "object",
    "object|encoding",
    "scan",
    "client|setname",
    "config|get",
    "ping",
    "lcs",
    "nonsense",
    "object|nonsense",
]);

/// How many keys follow: also such as no request has. Redis takes `1x` for 1, which Dunlin refuses.
const KEY_COUNT: Arg = Pick(&[
    "1",
    "2",
    "3",
    "4",
    "0",
    "-1",
    "-2",
    "x",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
]);

/// The table.
pub const FAMILY: Family = Family {
    name: "server",
    private: false,
    rows: &[
        row("SET", 8, &[AnyKey, Value]),
        row("DBSIZE", 3, &[]),
        row("FLUSHDB", 1, &[Maybe(50, &[Pick(&["ASYNC", "SYNC", "NONE"])])]),
        row("FLUSHALL", 1, &[Maybe(50, &[Pick(&["ASYNC", "SYNC", "NONE"])])]),
        row("SWAPDB", 2, &[Database, Database]),
        row("TIME", 1, &[]).shape(),
        row("LASTSAVE", 1, &[]).shape(),
        row("CONFIG GET", 6, &[Repeat(1, 3, &[DIRECTIVE])]).pairs(),
        row("CONFIG SET", 2, &[Word("timeout"), Pick(&["0", "300", "-1", "x", "99999999999"])]),
        row("CONFIG SET", 1, &[Word("no-such-directive"), Value]),
        row("CONFIG SET", 1, &[Word("timeout"), Word("0"), Word("no-such-directive"), Value]),
        row("CONFIG SET", 1, &[Word("timeout"), Word("0"), Word("timeout"), Word("1")]),
        row("CONFIG RESETSTAT", 1, &[]),
        row("CONFIG NONSENSE", 1, &[]),
        row("COMMAND COUNT", 1, &[]).shape(),
        row("COMMAND INFO", 4, &[Repeat(1, 3, &[COMMAND_NAME])]).unordered().unspoiled(),
        row("COMMAND LIST", 1, &[Word("FILTERBY"), Word("PATTERN"), Pick(&["set*", "getr*", "nothing*"])])
            .outcome(),
        row(
            "COMMAND GETKEYS",
            3,
            &[OneOf(&[
                &[Word("GET"), AnyKey],
                &[Word("MGET"), Repeat(1, 5, &[AnyKey])],
                &[Word("MSET"), Repeat(1, 4, &[AnyKey, Value])],
                &[Word("BITOP"), Word("AND"), Repeat(1, 5, &[AnyKey])],
                &[Word("SET"), AnyKey, Value, Word("EX"), Word("5")],
                &[Word("COPY"), AnyKey, AnyKey],
                &[Word("OBJECT"), Word("ENCODING"), AnyKey],
                &[Word("PING")],
                &[Word("NONSENSE"), AnyKey],
            ])],
        ),
        row(
            "COMMAND GETKEYS",
            3,
            &[OneOf(&[
                &[Word("ZUNIONSTORE"), AnyKey, KEY_COUNT, Repeat(1, 3, &[AnyKey])],
                &[Word("ZDIFFSTORE"), AnyKey, KEY_COUNT, Repeat(1, 3, &[AnyKey])],
                &[Word("ZINTERCARD"), KEY_COUNT, Repeat(1, 3, &[AnyKey])],
                &[Word("LMPOP"), KEY_COUNT, Repeat(1, 3, &[AnyKey]), Word("LEFT")],
                &[Word("BZMPOP"), Word("1"), KEY_COUNT, Repeat(1, 3, &[AnyKey]), Word("MIN")],
                &[Word("EVAL"), Value, KEY_COUNT, Repeat(0, 3, &[AnyKey])],
                &[Word("FCALL_RO"), Value, KEY_COUNT, Repeat(0, 3, &[AnyKey])],
            ])],
        )
        .unordered()
        .unspoiled(),
        row(
            "COMMAND GETKEYSANDFLAGS",
            2,
            &[OneOf(&[
                &[Word("GET"), AnyKey],
                &[Word("SET"), AnyKey, Value],
                &[Word("SET"), AnyKey, Value, Word("GET")],
                &[Word("GETDEL"), AnyKey],
                &[Word("COPY"), AnyKey, AnyKey],
                &[Word("BITFIELD"), AnyKey, Word("GET"), Word("u8"), Word("0")],
                &[Word("BITFIELD"), AnyKey, Word("INCRBY"), Word("u8"), Word("0"), Word("1")],
            ])],
        )
        .unordered(),
        row("COMMAND NONSENSE", 1, &[]),
        row("MEMORY USAGE", 2, &[AnyKey]).shape(),
        row("MEMORY NONSENSE", 1, &[]),
        row("SLOWLOG LEN", 1, &[]).shape(),
        row("SLOWLOG NONSENSE", 1, &[]),
        row("LATENCY NONSENSE", 1, &[]),
        row("OBJECT NONSENSE", 1, &[AnyKey]),
        row(
            "INFO",
            1,
            &[Maybe(
                80,
                &[Pick(&[
                    "server",
                    "clients",
                    "memory",
                    "stats",
                    "keyspace",
                    "all",
                    "everything",
                    "nonsense",
                ])],
            )],
        )
        .outcome(),
    ],
};
