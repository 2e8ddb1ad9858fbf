//! ACL: users, their rules, and the log of denials.
//!
//! Texts and flags are those of redis-server 7.0; databases, and the entry numbers of the log, are Valkey's.

use std::{path::Path, sync::Arc};

use dunlin_acl::{
    DEFAULT_USER, GENPASS_BITS_MAX, LogEntry, Reason, Selector, User, is_user_name, random_password,
};
use dunlin_engine::command::{
    Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, Run,
};
use dunlin_net::Next;
use dunlin_resp::{ReplyBuffer, number::parse_integer};

use super::cluster::cluster_wide;
use crate::{
    access::{AclRequest, Change},
    cluster::cluster_wide::ClusterChange,
    config::Config,
    executor::{Flow, Handler, QUOTED_BYTES_MAX, ServerContext},
    session::{ClientFlags, order::Carried},
};

pub(super) const COMMANDS: &[Command] = &[ACL];

/// Entries that ACL LOG shows unless told otherwise.
const SHOWN_DEFAULT: usize = 10;
/// Bits of a password that ACL GENPASS makes unless told otherwise.
const GENPASS_BITS: usize = 256;

const ACL: Command = Command {
    name: "acl",
    summary: "Manages users and what they may do.",
    since: "6.0.0",
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    run: Run::Container,
    subcommands: &[
        CAT, DELUSER, DRYRUN, GENPASS, GETUSER, HELP, LIST, LOAD, LOG, SAVE, SETUSER, USERS, WHOAMI,
    ],
    ..Command::DEFAULT
};

/// For every client.
const SUBCOMMAND: Command = Command {
    since: "6.0.0",
    group: Group::Server,
    flags: Flags::NO_SCRIPT.and(Flags::LOADING).and(Flags::STALE),
    ..Command::DEFAULT
};

/// For operators.
const OPERATORS: Command = Command { flags: SUBCOMMAND.flags.and(Flags::ADMIN), ..SUBCOMMAND };

const CAT: Command = Command {
    name: "cat",
    summary: "Lists the categories of commands, or the commands of one.",
    complexity: "O(1), since there are a fixed number of commands.",
    arity: Arity::AtLeast(2),
    run: Run::Host(&Handler(cat)),
    args: &[Argument::string("categoryname").optional()],
    ..SUBCOMMAND
};

const DELUSER: Command = Command {
    name: "deluser",
    summary: "Removes users, and closes their connections.",
    complexity: "O(n) in the number of users and connections",
    arity: Arity::AtLeast(3),
    run: Run::Host(&Handler(deluser)),
    args: &[Argument::string("username").multiple()],
    ..OPERATORS
};

const DRYRUN: Command = Command {
    name: "dryrun",
    summary: "Says whether a user may run a command, without running it.",
    since: "7.0.0",
    complexity: "O(n) in the number of keys and patterns",
    arity: Arity::AtLeast(4),
    run: Run::Host(&Handler(dryrun)),
    args: &[
        Argument::string("username"),
        Argument::string("command"),
        Argument::string("arg").optional().multiple(),
    ],
    ..OPERATORS
};

const GENPASS: Command = Command {
    name: "genpass",
    summary: "Makes a password that cannot be guessed.",
    arity: Arity::AtLeast(2),
    run: Run::Host(&Handler(genpass)),
    args: &[Argument::integer("bits").optional()],
    ..SUBCOMMAND
};

const GETUSER: Command = Command {
    name: "getuser",
    summary: "Shows the rules of a user.",
    complexity: "O(n) in the number of rules",
    arity: Arity::Exactly(3),
    run: Run::Host(&Handler(getuser)),
    args: &[Argument::string("username")],
    ..OPERATORS
};

const HELP: Command = Command {
    name: "help",
    summary: "Shows this help.",
    arity: Arity::Exactly(2),
    run: Run::Host(&Handler(super::help)),
    flags: Flags::LOADING.and(Flags::STALE),
    ..SUBCOMMAND
};

const LIST: Command = Command {
    name: "list",
    summary: "Shows the users in the form of an ACL file.",
    complexity: "O(n) in the number of users",
    arity: Arity::Exactly(2),
    run: Run::Host(&Handler(list)),
    ..OPERATORS
};

const LOAD: Command = Command {
    name: "load",
    summary: "Takes the users of the ACL file over: all of them, or none if a line is wrong.",
    complexity: "O(n) in the number of users",
    arity: Arity::Exactly(2),
    run: Run::Host(&Handler(load)),
    ..OPERATORS
};

const LOG: Command = Command {
    name: "log",
    summary: "Shows what was denied lately, the newest first, or forgets it.",
    complexity: "O(n) in the number of entries shown",
    arity: Arity::AtLeast(2),
    run: Run::Host(&Handler(log)),
    args: &[Argument::one_of("operation", &[Argument::integer("count"), Argument::word("reset", "RESET")])
        .optional()],
    ..OPERATORS
};

const SAVE: Command = Command {
    name: "save",
    summary: "Writes the users into the ACL file.",
    complexity: "O(n) in the number of users",
    arity: Arity::Exactly(2),
    run: Run::Host(&Handler(save)),
    ..OPERATORS
};

const SETUSER: Command = Command {
    name: "setuser",
    summary: "Makes or changes a user by rules: all of them are applied, or none.",
    complexity: "O(n) in the number of rules",
    arity: Arity::AtLeast(3),
    run: Run::Host(&Handler(setuser)),
    secrets: Some(|words| (2..words.len()).collect()),
    args: &[Argument::string("username"), Argument::string("rule").optional().multiple()],
    ..OPERATORS
};

const USERS: Command = Command {
    name: "users",
    summary: "Lists the names of the users.",
    complexity: "O(n) in the number of users",
    arity: Arity::Exactly(2),
    run: Run::Host(&Handler(users)),
    ..OPERATORS
};

const WHOAMI: Command = Command {
    name: "whoami",
    summary: "Answers the name of the user that the client is.",
    arity: Arity::Exactly(2),
    run: Run::Host(&Handler(whoami)),
    ..SUBCOMMAND
};

type Context<'a, 'b, 'k> = &'a mut ServerContext<'b, 'k>;

fn too_many(args: &Args<'_>) -> CommandError {
    let typed = args.words()[1];
    CommandError::quoting_within(
        "ERR unknown subcommand or wrong number of arguments for '",
        &typed[..typed.len().min(QUOTED_BYTES_MAX)],
        "'. Try ACL HELP.",
    )
}

fn cat(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let commands = &context.shared.access.commands;
    let Some(name) = args.optional() else {
        reply.array(commands.categories().len());
        commands.categories().iter().for_each(|category| reply.bulk(category.as_bytes()));
        return Ok(());
    };
    if !args.is_empty() {
        return Err(too_many(args));
    }
    let category = commands
        .category(name)
        .ok_or_else(|| CommandError::quoting_within("ERR Unknown category '", name, "'"))?;
    let names: Vec<&str> = commands.in_category(category).collect();
    reply.array(names.len());
    names.iter().for_each(|name| reply.bulk(name.as_bytes()));
    Ok(())
}

fn setuser(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (name, rules) = (args.word(), args.take_rest());
    if !is_user_name(name) {
        return Err(CommandError::text("ERR Usernames can't contain spaces or null characters"));
    }
    if context.shared.cluster.is_on() {
        let owned = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect();
        let change =
            |_: Context<'_, '_, '_>| Ok(ClusterChange::SetUser { name: name.to_vec(), rules: owned(rules) });
        if cluster_wide::carry_out(context, change)?.is_some() {
            reply.ok();
        }
        return Ok(());
    }
    let config = context.shared.config.current();
    let change = context.shared.access.set(name, rules, &config).map_err(|error| {
        let text = [b"ERR ", &error.text()[..]].concat();
        CommandError::quoting("", &text)
    })?;
    felt(context, &[], &[change]);
    reply.ok();
    Ok(())
}

fn deluser(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let names = args.take_rest();
    if names.contains(&DEFAULT_USER) {
        return Err(CommandError::text("ERR The 'default' user cannot be removed"));
    }
    if context.shared.cluster.is_on() {
        let names = || names.iter().map(|name| name.to_vec()).collect();
        if let Some(carried) =
            cluster_wide::carry_out(context, |_| Ok(ClusterChange::RemoveUsers { names: names() }))?
        {
            reply.count(if let Carried::Count(removed) = carried { removed } else { 0 });
        }
        return Ok(());
    }
    let removed = context.shared.access.remove(names);
    felt(context, &removed, &[]);
    reply.count(removed.len());
    Ok(())
}

fn getuser(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let Some(user) = context.shared.access.find(args.word()) else {
        reply.null();
        return Ok(());
    };
    let mut selectors = user.selectors();
    reply.map(7);
    reply.bulk(b"flags");
    let flags = user.flags();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(user.passwords().len());
    user.passwords().iter().for_each(|hash| reply.bulk(hash.to_string().as_bytes()));
    describe_selector(selectors.next().expect("the root selector"), reply);
    reply.bulk(b"selectors");
    let others: Vec<&Selector> = selectors.collect();
    reply.array(others.len());
    for selector in others {
        reply.map(4);
        describe_selector(selector, reply);
    }
    Ok(())
}

/// Four pairs of a map.
fn describe_selector(selector: &Selector, reply: &mut ReplyBuffer) {
    for (name, text) in [
        ("commands", selector.commands_text()),
        ("keys", selector.keys_text()),
        ("channels", selector.channels_text()),
        ("databases", selector.databases().text().into_bytes()),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(&text);
    }
}

fn list(context: Context<'_, '_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let users = context.shared.access.list();
    reply.array(users.len());
    users.iter().for_each(|user| reply.bulk(&user.line()));
    Ok(())
}

fn users(context: Context<'_, '_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let users = context.shared.access.list();
    reply.array(users.len());
    users.iter().for_each(|user| reply.bulk(user.name()));
    Ok(())
}

fn whoami(context: Context<'_, '_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    reply.bulk(context.session.user.name());
    Ok(())
}

fn genpass(_: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    const OUT_OF_RANGE: CommandError = CommandError::text(
        "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096",
    );
    const _: () = assert!(GENPASS_BITS_MAX == 4096);
    let bits = match args.optional() {
        None => GENPASS_BITS,
        Some(_) if !args.is_empty() => return Err(too_many(args)),
        Some(word) => {
            let bits = parse_integer(word).ok_or(CommandError::NotInteger)?;
            usize::try_from(bits).map_err(|_| OUT_OF_RANGE)?
        }
    };
    let mut drawn = Ok(());
    let password = random_password(bits, |bytes| drawn = getrandom::fill(bytes)).ok_or(OUT_OF_RANGE)?;
    drawn.map_err(|error| CommandError::owned(format!("ERR the system gives no random bytes: {error}")))?;
    reply.bulk(password.as_bytes());
    Ok(())
}

fn dryrun(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (name, words) = (args.word(), args.take_rest());
    let table = &context.shared.commands;
    let user = context
        .shared
        .access
        .find(name)
        .ok_or_else(|| CommandError::quoting_within("ERR User '", name, "' not found"))?;
    let entry = table.find(words[0]).and_then(|entry| match words.get(1) {
        Some(name) if !entry.subcommands.is_empty() => table.find_subcommand(entry, name),
        _ => Some(entry),
    });
    let entry =
        entry.ok_or_else(|| CommandError::quoting_within("ERR Command '", words[0], "' not found"))?;
    if !entry.command.arity.accepts(words.len()) {
        return Err(CommandError::WrongArity(entry.full_name()));
    }
    match user.decide(&AclRequest { entry, words, database: context.session.database }) {
        Ok(()) => reply.ok(),
        Err(denial) => {
            let object = words[denial.word];
            let text = match denial.reason {
                Reason::Command | Reason::Authentication | Reason::Certificate => {
                    let name = entry.full_name();
                    format!("This user has no permissions to run the '{name}' command").into_bytes()
                }
                Reason::Key => [b"This user has no permissions to access the '", object, b"' key"].concat(),
                Reason::Channel => {
                    [b"This user has no permissions to access the '", object, b"' channel"].concat()
                }
                Reason::Database => {
                    let number = context.session.database.to_string();
                    let number = if denial.word == 0 { number.as_bytes() } else { object };
                    [b"User ", name, b" has no permissions to access database ", number].concat()
                }
            };
            reply.bulk(&text);
        }
    }
    Ok(())
}

const NO_FILE: CommandError = CommandError::text(
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis configuration.",
);

/// Does something with the ACL file, outside of the gate if that is possible: disks may be slow.
fn with_file<R>(context: Context<'_, '_, '_>, work: impl Fn(&Path, &Config) -> R) -> Result<R, CommandError> {
    let config = context.shared.config.current();
    if config.aclfile.as_os_str().is_empty() {
        return Err(NO_FILE);
    }
    let result = context.outside_gate(|_| work(&config.aclfile, &config));
    Ok(result.unwrap_or_else(|| work(&config.aclfile, &config)))
}

fn load(context: Context<'_, '_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let shared = context.shared;
    let failed = |text: Vec<u8>| {
        tracing::warn!("ACL LOAD: {}", String::from_utf8_lossy(&text));
        CommandError::quoting("", &[b"ERR ", &text[..]].concat())
    };
    if shared.cluster.is_on() {
        let change = |context: Context<'_, '_, '_>| {
            let lines = with_file(context, |path, config| shared.access.lines_in(path, config))?;
            Ok(ClusterChange::ReplaceUsers { lines: lines.map_err(failed)? })
        };
        if cluster_wide::carry_out(context, change)?.is_some() {
            reply.ok();
        }
        return Ok(());
    }
    let before = shared.access.list();
    let changes = with_file(context, |path, config| shared.access.load(path, config))?.map_err(failed)?;
    let is_gone = |user: &&Arc<User>| !changes.iter().any(|change| change.after.is_same(user));
    let gone: Vec<&[u8]> = before.iter().filter(is_gone).map(|user| user.name()).collect();
    felt(context, &gone, &changes);
    reply.ok();
    Ok(())
}

fn save(context: Context<'_, '_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let shared = context.shared;
    with_file(context, |path, _| shared.access.save(path))?.map_err(|error| {
        tracing::warn!("ACL SAVE: {error}");
        CommandError::text(
            "ERR There was an error trying to save the ACLs. Please check the server logs for more information",
        )
    })?;
    reply.ok();
    Ok(())
}

fn log(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let access = &context.shared.access;
    let count = match args.optional() {
        None => SHOWN_DEFAULT,
        Some(_) if !args.is_empty() => return Err(too_many(args)),
        Some(word) if word.eq_ignore_ascii_case(b"reset") => {
            access.reset_log();
            reply.ok();
            return Ok(());
        }
        Some(word) => usize::try_from(parse_integer(word).ok_or(CommandError::NotInteger)?).unwrap_or(0),
    };
    let (entries, steady_ms) = (access.log_entries(count), context.executor.now().steady_ms);
    reply.array(entries.len());
    entries.iter().for_each(|entry| describe_entry(entry, steady_ms, reply));
    Ok(())
}

fn describe_entry(entry: &LogEntry, steady_ms: u64, reply: &mut ReplyBuffer) {
    reply.map(10);
    reply.bulk(b"count");
    reply.integer(entry.count as i64);
    for (name, text) in [
        ("reason", entry.reason.name().as_bytes()),
        ("context", entry.context.name().as_bytes()),
        ("object", &entry.object),
        ("username", &entry.user),
    ] {
        reply.bulk(name.as_bytes());
        reply.bulk(text);
    }
    reply.bulk(b"age-seconds");
    reply.double(steady_ms.saturating_sub(entry.updated_steady_ms) as f64 / 1000.0);
    reply.bulk(b"client-info");
    reply.bulk(entry.client.as_bytes());
    for (name, number) in [
        ("entry-id", entry.id),
        ("timestamp-created", entry.created_ms),
        ("timestamp-last-updated", entry.updated_ms),
    ] {
        reply.bulk(name.as_bytes());
        reply.integer(number as i64);
    }
}

/// Applies a change of users to clients, to the one that asks once it has been answered.
fn felt(context: Context<'_, '_, '_>, gone: &[&[u8]], changes: &[Change]) {
    let own = context.session.client.id();
    let (shared, queues) = (context.shared, context.executor.queues());
    if shared.connected(queues).follow(gone, changes, Some(own)) {
        context.session.flags.set(ClientFlags::CLOSING, true);
        context.flow = Flow::Stop(Next::CloseAfterReply);
    }
}
