//! The rows of `CLIENT` and its subcommands.
//!
//! Flags and argument shapes are those of redis-server 7.0, and of Valkey 9.1 for what Redis 7.0
//! lacks: `CAPA`, `NO-TOUCH`, `SETINFO`, and the conditions of `LIST` and `KILL`.

use dunlin_engine::command::{Argument, Arity, Command, Flags, Group, Run};

use crate::executor::Handler;

/// Flags of a subcommand that concerns the client's own connection.
const OWN: Flags = Flags::NO_SCRIPT.and(Flags::LOADING).and(Flags::STALE);
/// Flags of a subcommand that concerns other clients.
const OTHERS: Flags = OWN.and(Flags::ADMIN);

const NONDETERMINISTIC: &[&str] = &["nondeterministic_output"];
const EVERY_NODE: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];

const ON_OFF: &[Argument] = &[Argument::word("on", "ON"), Argument::word("off", "OFF")];
const YES_NO: &[Argument] = &[Argument::word("yes", "YES"), Argument::word("no", "NO")];

const SUBCOMMAND: Command =
    Command { group: Group::Connection, arity: Arity::Exactly(2), flags: OWN, ..Command::DEFAULT };

pub(super) const CLIENT: Command = Command {
    name: "client",
    summary: "Commands about connections, one's own and others'.",
    since: "2.4.0",
    group: Group::Connection,
    complexity: "as the subcommand",
    arity: Arity::AtLeast(2),
    subcommands: &[
        CACHING,
        CAPA,
        DURABILITY,
        GETNAME,
        GETREDIR,
        HELP,
        ID,
        INFO,
        KILL,
        LIST,
        NO_EVICT,
        NO_TOUCH,
        PAUSE,
        REPLY,
        SETINFO,
        SETNAME,
        TRACKING,
        TRACKINGINFO,
        UNBLOCK,
        UNPAUSE,
    ],
    ..Command::DEFAULT
};

const CACHING: Command = Command {
    name: "caching",
    summary: "Says whether the keys of the next command are tracked.",
    since: "6.0.0",
    arity: Arity::Exactly(3),
    run: Run::Host(&Handler(super::tracking::caching)),
    args: &[Argument::one_of("mode", YES_NO)],
    ..SUBCOMMAND
};

const CAPA: Command = Command {
    name: "capa",
    summary: "Says what the client is capable of.",
    since: "8.0.0",
    arity: Arity::AtLeast(3),
    run: Run::Host(&Handler(super::capa)),
    flags: OWN.and(Flags::ALLOW_BUSY),
    args: &[Argument::string("capability").multiple()],
    ..SUBCOMMAND
};

const DURABILITY: Command = Command {
    name: "durability",
    summary: "Chooses what the replies to this connection wait for: nothing, the disk, or a number of replicas.",
    since: "7.4.0",
    arity: Arity::AtLeast(3),
    run: Run::Host(&Handler(super::durability)),
    args: &[
        Argument::one_of(
            "mode",
            &[
                Argument::word("configured", "CONFIGURED"),
                Argument::word("async", "ASYNC"),
                Argument::word("disk", "DISK"),
                Argument::word("sync", "SYNC"),
            ],
        ),
        Argument::integer("replicas").optional(),
    ],
    ..SUBCOMMAND
};

const GETNAME: Command = Command {
    name: "getname",
    summary: "Tells the connection's name.",
    since: "2.6.9",
    run: Run::Host(&Handler(super::get_name)),
    ..SUBCOMMAND
};

const GETREDIR: Command = Command {
    name: "getredir",
    summary: "Tells the client that invalidations of tracked keys go to.",
    since: "6.0.0",
    run: Run::Host(&Handler(super::tracking::get_redirection)),
    ..SUBCOMMAND
};

const HELP: Command = Command {
    name: "help",
    summary: "Tells what subcommands there are.",
    since: "5.0.0",
    run: Run::Host(&Handler(crate::commands::help)),
    flags: Flags::LOADING.and(Flags::STALE),
    ..SUBCOMMAND
};

const ID: Command = Command {
    name: "id",
    summary: "Tells the connection's number.",
    since: "5.0.0",
    run: Run::Host(&Handler(super::id)),
    ..SUBCOMMAND
};

const INFO: Command = Command {
    name: "info",
    summary: "Describes the connection.",
    since: "6.2.0",
    run: Run::Host(&Handler(super::info)),
    tips: NONDETERMINISTIC,
    ..SUBCOMMAND
};

/// A condition of `LIST` and `KILL`: a word behind a word.
const fn condition(name: &'static str, token: &'static str, since: &'static str) -> Argument {
    Argument::string(name).after(token).since(since).optional()
}

const fn number(name: &'static str, token: &'static str, since: &'static str) -> Argument {
    Argument::integer(name).after(token).since(since).optional()
}

const KINDS_TO_KILL: &[Argument] = &[
    Argument::word("normal", "NORMAL"),
    Argument::word("master", "MASTER").since("3.2.0"),
    Argument::word("primary", "PRIMARY").since("8.0.0"),
    Argument::word("slave", "SLAVE"),
    Argument::word("replica", "REPLICA").since("5.0.0"),
    Argument::word("pubsub", "PUBSUB"),
];

const KINDS_NOT_TO_KILL: &[Argument] = &[
    Argument::word("normal", "NORMAL"),
    Argument::word("master", "MASTER"),
    Argument::word("primary", "PRIMARY"),
    Argument::word("slave", "SLAVE"),
    Argument::word("replica", "REPLICA"),
    Argument::word("pubsub", "PUBSUB"),
];

const KINDS_TO_LIST: &[Argument] = &[
    Argument::word("normal", "NORMAL"),
    Argument::word("master", "MASTER"),
    Argument::word("replica", "REPLICA"),
    Argument::word("pubsub", "PUBSUB"),
];

const KILL: Command = Command {
    name: "kill",
    summary: "Closes the connections that meet all conditions.",
    since: "2.4.0",
    complexity: "O(n) in the number of clients",
    arity: Arity::AtLeast(3),
    run: Run::Host(&Handler(super::kill)),
    flags: OTHERS.and(Flags::WHOLE_KEYSPACE),
    args: &[Argument::one_of(
        "filter",
        &[
            Argument::string("old-format"),
            Argument::one_of(
                "new-format",
                &[
                    number("client-id", "ID", "2.8.12").multiple(),
                    Argument::one_of("client-type", KINDS_TO_KILL).after("TYPE").since("2.8.12").optional(),
                    Argument::string("username").after("USER").optional(),
                    Argument::string("addr").after("ADDR").optional(),
                    condition("laddr", "LADDR", "6.2.0"),
                    Argument::one_of("skipme", YES_NO).after("SKIPME").optional(),
                    number("maxage", "MAXAGE", "8.0.0"),
                    condition("name", "NAME", "9.0.0"),
                    number("idle", "IDLE", "9.0.0"),
                    condition("flags", "FLAGS", "9.0.0"),
                    condition("lib-name", "LIB-NAME", "9.0.0"),
                    condition("lib-ver", "LIB-VER", "9.0.0"),
                    number("db", "DB", "9.0.0"),
                    condition("capa", "CAPA", "9.0.0"),
                    condition("ip", "IP", "9.0.0"),
                    Argument::one_of("not-client-type", KINDS_NOT_TO_KILL)
                        .after("NOT-TYPE")
                        .since("9.0.0")
                        .optional(),
                    number("not-client-id", "NOT-ID", "9.0.0").multiple(),
                    condition("not-username", "NOT-USER", "9.0.0"),
                    condition("not-addr", "NOT-ADDR", "9.0.0"),
                    condition("not-laddr", "NOT-LADDR", "9.0.0"),
                    condition("not-name", "NOT-NAME", "9.0.0"),
                    condition("not-flags", "NOT-FLAGS", "9.0.0"),
                    condition("not-lib-name", "NOT-LIB-NAME", "9.0.0"),
                    condition("not-lib-ver", "NOT-LIB-VER", "9.0.0"),
                    number("not-db", "NOT-DB", "9.0.0"),
                    condition("not-capa", "NOT-CAPA", "9.0.0"),
                    condition("not-ip", "NOT-IP", "9.0.0"),
                ],
            )
            .multiple(),
        ],
    )],
    ..SUBCOMMAND
};

const LIST: Command = Command {
    name: "list",
    summary: "Describes the connections that meet all conditions, a line each.",
    since: "2.4.0",
    complexity: "O(n) in the number of clients",
    arity: Arity::AtLeast(2),
    run: Run::Host(&Handler(super::list)),
    flags: OTHERS,
    args: &[
        Argument::one_of("client-type", KINDS_TO_LIST).after("TYPE").since("5.0.0").optional(),
        number("client-id", "ID", "6.2.0").multiple(),
        condition("username", "USER", "8.1.0"),
        condition("addr", "ADDR", "8.1.0"),
        condition("laddr", "LADDR", "8.1.0"),
        Argument::one_of("skipme", YES_NO).after("SKIPME").since("8.1.0").optional(),
        number("maxage", "MAXAGE", "8.1.0"),
        condition("name", "NAME", "9.0.0"),
        number("idle", "IDLE", "9.0.0"),
        condition("flags", "FLAGS", "9.0.0"),
        condition("lib-name", "LIB-NAME", "9.0.0"),
        condition("lib-ver", "LIB-VER", "9.0.0"),
        number("db", "DB", "9.0.0"),
        condition("capa", "CAPA", "9.0.0"),
        condition("ip", "IP", "9.0.0"),
        Argument::one_of("not-client-type", KINDS_TO_LIST).after("NOT-TYPE").since("9.0.0").optional(),
        number("not-client-id", "NOT-ID", "9.0.0").multiple(),
        condition("not-username", "NOT-USER", "9.0.0"),
        condition("not-addr", "NOT-ADDR", "9.0.0"),
        condition("not-laddr", "NOT-LADDR", "9.0.0"),
        condition("not-name", "NOT-NAME", "9.0.0"),
        condition("not-flags", "NOT-FLAGS", "9.0.0"),
        condition("not-lib-name", "NOT-LIB-NAME", "9.0.0"),
        condition("not-lib-ver", "NOT-LIB-VER", "9.0.0"),
        number("not-db", "NOT-DB", "9.0.0"),
        condition("not-capa", "NOT-CAPA", "9.0.0"),
        condition("not-ip", "NOT-IP", "9.0.0"),
    ],
    tips: NONDETERMINISTIC,
    ..SUBCOMMAND
};

const NO_EVICT: Command = Command {
    name: "no-evict",
    summary: "Exempts the connection from being closed for memory.",
    since: "7.0.0",
    arity: Arity::Exactly(3),
    run: Run::Host(&Handler(super::no_evict)),
    flags: OTHERS,
    args: &[Argument::one_of("enabled", ON_OFF)],
    ..SUBCOMMAND
};

const NO_TOUCH: Command = Command {
    name: "no-touch",
    summary: "Says whether the client's commands count as uses of their keys.",
    since: "7.2.0",
    arity: Arity::Exactly(3),
    run: Run::Host(&Handler(super::no_touch)),
    flags: OWN.and(Flags::ALLOW_BUSY),
    args: &[Argument::one_of("enabled", ON_OFF)],
    ..SUBCOMMAND
};

const PAUSE: Command = Command {
    name: "pause",
    summary: "Holds back the commands of all clients, or only their writes, for a time.",
    since: "2.9.50",
    arity: Arity::AtLeast(3),
    run: Run::Host(&Handler(super::pause)),
    flags: OTHERS.and(Flags::WHOLE_KEYSPACE),
    args: &[
        Argument::integer("timeout"),
        Argument::one_of("mode", &[Argument::word("write", "WRITE"), Argument::word("all", "ALL")])
            .since("6.2.0")
            .optional(),
    ],
    ..SUBCOMMAND
};

const REPLY: Command = Command {
    name: "reply",
    summary: "Says which commands are to be answered.",
    since: "3.2.0",
    arity: Arity::Exactly(3),
    run: Run::Host(&Handler(super::replies)),
    args: &[Argument::one_of(
        "on_off_skip",
        &[Argument::word("on", "ON"), Argument::word("off", "OFF"), Argument::word("skip", "SKIP")],
    )],
    ..SUBCOMMAND
};

const SETINFO: Command = Command {
    name: "setinfo",
    summary: "Says which library the client uses.",
    since: "7.2.0",
    arity: Arity::Exactly(4),
    run: Run::Host(&Handler(super::set_info)),
    flags: OWN.and(Flags::ALLOW_BUSY),
    args: &[Argument::one_of(
        "attr",
        &[Argument::string("libname").after("LIB-NAME"), Argument::string("libver").after("LIB-VER")],
    )],
    tips: EVERY_NODE,
    ..SUBCOMMAND
};

const SETNAME: Command = Command {
    name: "setname",
    summary: "Gives the connection a name.",
    since: "2.6.9",
    arity: Arity::Exactly(3),
    run: Run::Host(&Handler(super::set_name)),
    args: &[Argument::string("connection-name")],
    ..SUBCOMMAND
};

const TRACKING: Command = Command {
    name: "tracking",
    summary: "Has the client told when keys that it caches change.",
    since: "6.0.0",
    arity: Arity::AtLeast(3),
    run: Run::Host(&Handler(super::tracking::tracking)),
    flags: OWN.and(Flags::WHOLE_KEYSPACE),
    args: &[
        Argument::one_of("status", ON_OFF),
        Argument::integer("client-id").after("REDIRECT").optional(),
        Argument::string("prefix").after("PREFIX").multiple_token().optional(),
        Argument::word("bcast", "BCAST").optional(),
        Argument::word("optin", "OPTIN").optional(),
        Argument::word("optout", "OPTOUT").optional(),
        Argument::word("noloop", "NOLOOP").optional(),
    ],
    ..SUBCOMMAND
};

const TRACKINGINFO: Command = Command {
    name: "trackinginfo",
    summary: "Tells how the client's keys are tracked.",
    since: "6.2.0",
    run: Run::Host(&Handler(super::tracking::tracking_info)),
    ..SUBCOMMAND
};

const UNBLOCK: Command = Command {
    name: "unblock",
    summary: "Ends the waiting of a client whose command blocks.",
    since: "5.0.0",
    complexity: "O(log n) in the number of clients",
    arity: Arity::AtLeast(3),
    run: Run::Host(&Handler(super::unblock)),
    flags: OTHERS.and(Flags::WHOLE_KEYSPACE),
    args: &[
        Argument::integer("client-id"),
        Argument::one_of(
            "timeout_error",
            &[Argument::word("timeout", "TIMEOUT"), Argument::word("error", "ERROR")],
        )
        .optional(),
    ],
    ..SUBCOMMAND
};

const UNPAUSE: Command = Command {
    name: "unpause",
    summary: "Ends a pause: what was held back runs.",
    since: "6.2.0",
    complexity: "O(n) in the number of clients",
    run: Run::Host(&Handler(super::unpause)),
    flags: OTHERS.and(Flags::UNPAUSED),
    ..SUBCOMMAND
};
