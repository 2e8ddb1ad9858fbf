//! MIGRATE: keys move to another server.

use std::time::Duration;

use dunlin_engine::command::{
    Args, Argument, Arity, Command, CommandError, CommandResult, Flags, KeySpec, Run,
};
use dunlin_resp::{ReplyBuffer, number::parse_integer};

use crate::{
    executor::{Handler, ServerContext},
    workers::migration::{Credentials, MigrationTarget},
};

pub(super) const COMMANDS: &[Command] = &[MIGRATE];

/// Place of the first option.
const OPTIONS_FROM: usize = 6;
/// How long a socket is waited for if the client says nothing of use.
const TIMEOUT: Duration = Duration::from_secs(1);

const MIGRATE: Command = Command {
    name: "migrate",
    summary: "Moves keys to another server.",
    since: "2.6.0",
    complexity: "O(n) in the size of the values",
    arity: Arity::AtLeast(6),
    run: Run::Host(&Handler(migrate)),
    flags: Flags::WRITE.and(Flags::DANGEROUS),
    keys: &[
        KeySpec::at(3).unless_empty().read_write().accesses().deletes(),
        KeySpec::behind("KEYS", -2)
            .past(OPTIONS_FROM, &[("COPY", 0), ("REPLACE", 0), ("AUTH", 1), ("AUTH2", 2)])
            .through(-1, 1)
            .read_write()
            .accesses()
            .deletes()
            .incomplete(),
    ],
    secrets: Some(secrets),
    args: &[
        Argument::string("host"),
        Argument::integer("port"),
        Argument::one_of("key-selector", &[Argument::key("key"), Argument::word("empty-string", "\"\"")]),
        Argument::integer("destination-db"),
        Argument::integer("timeout"),
        Argument::word("copy", "COPY").since("3.0.0").optional(),
        Argument::word("replace", "REPLACE").since("3.0.0").optional(),
        Argument::one_of(
            "authentication",
            &[
                Argument::string("password").after("AUTH").since("4.0.7"),
                Argument::block("auth2", &[Argument::string("username"), Argument::string("password")])
                    .after("AUTH2")
                    .since("6.0.0"),
            ],
        )
        .optional(),
        Argument::key("key").key_spec(1).after("KEYS").since("3.0.6").optional().multiple(),
    ],
    tips: &["nondeterministic_output"],
    ..Command::DEFAULT
};

/// The option that a word is, and how many operands it has.
fn option_of(word: &[u8]) -> (MigrateOption, usize) {
    match &word.to_ascii_uppercase()[..] {
        b"COPY" => (MigrateOption::Copy, 0),
        b"REPLACE" => (MigrateOption::Replace, 0),
        b"AUTH" => (MigrateOption::Auth, 1),
        b"AUTH2" => (MigrateOption::Auth2, 2),
        b"KEYS" => (MigrateOption::Keys, 0),
        _ => (MigrateOption::Unknown, 0),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MigrateOption {
    Copy,
    Replace,
    Auth,
    Auth2,
    Keys,
    Unknown,
}

/// The places of the user and the password.
fn secrets(words: &[&[u8]]) -> Vec<usize> {
    let (mut found, mut at) = (Vec::new(), OPTIONS_FROM);
    while at < words.len() {
        let (option, operands) = option_of(words[at]);
        if matches!(option, MigrateOption::Keys | MigrateOption::Unknown) {
            break;
        }
        found.extend((at + 1..=at + operands).take_while(|secret| *secret < words.len()));
        at += 1 + operands;
    }
    found
}

fn migrate(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    const NOT_EMPTY: CommandError = CommandError::text(
        "ERR When using MIGRATE KEYS option, the key argument must be set to the empty string",
    );
    let words = args.words();
    args.take_rest();
    let (mut copy, mut replace, mut credentials) = (false, false, None);
    let (mut keys, mut at) = (&words[3..4], OPTIONS_FROM);
    while at < words.len() {
        let (option, operands) = option_of(words[at]);
        let operands = words.get(at + 1..at + 1 + operands).ok_or(CommandError::Syntax)?;
        match (option, operands) {
            (MigrateOption::Copy, _) => copy = true,
            (MigrateOption::Replace, _) => replace = true,
            (MigrateOption::Auth, [password]) => {
                // A user that came before stays.
                let user = credentials.and_then(|Credentials { user, .. }| user);
                credentials = Some(Credentials { user, password: password.to_vec() });
            }
            (MigrateOption::Auth2, [user, password]) => {
                let (user, password) = (Some(user.to_vec()), password.to_vec());
                credentials = Some(Credentials { user, password });
            }
            (MigrateOption::Keys, _) if !words[3].is_empty() => return Err(NOT_EMPTY),
            (MigrateOption::Keys, _) => {
                keys = &words[at + 1..];
                break;
            }
            _ => return Err(CommandError::Syntax),
        }
        at += 1 + operands.len();
    }
    let timeout_ms = parse_integer(words[5]).ok_or(CommandError::NotInteger)?;
    let database = parse_integer(words[4]).ok_or(CommandError::NotInteger)?;
    let timeout = u64::try_from(timeout_ms).ok().filter(|timeout_ms| *timeout_ms > 0);
    if context.in_transaction || context.executor.caller.in_script {
        return Err(CommandError::text(
            "ERR MIGRATE is not possible in transactions and scripts: their keys would be locked while another server answers",
        ));
    }
    let target = MigrationTarget {
        host: words[1].to_vec(),
        port: words[2].to_vec(),
        database,
        timeout: timeout.map_or(TIMEOUT, Duration::from_millis),
        copy,
        replace,
        credentials,
    };
    context.migrate(target, keys, words, reply)
}
