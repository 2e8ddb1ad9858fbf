//! FUNCTION, FCALL and FCALL_RO: libraries of functions.

use dunlin_engine::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    glob::Glob,
};
use dunlin_resp::ReplyBuffer;

use super::cluster::cluster_wide;
use crate::{
    cluster::cluster_wide::ClusterChange,
    executor::{Handler, QUOTED_BYTES_MAX, ServerContext},
    lua::{Kind, LibraryChange, RestorePolicy, operands},
    scripting,
    session::order::Carried,
};

pub(super) const COMMANDS: &[Command] = &[FCALL, FCALL_RO, FUNCTION];

const CALL: Command = Command {
    since: "7.0.0",
    group: Group::Scripting,
    complexity: "Depends on the function that is executed.",
    arity: Arity::AtLeast(3),
    flags: Flags::NO_SCRIPT
        .and(Flags::STALE)
        .and(Flags::SKIP_MONITOR)
        .and(Flags::NO_MANDATORY_KEYS)
        .and(Flags::WHOLE_KEYSPACE)
        .and(Flags::RUNS_SCRIPT),
    args: &[
        Argument::string("function"),
        Argument::integer("numkeys"),
        Argument::key("key").optional().multiple(),
        Argument::string("arg").optional().multiple(),
    ],
    ..Command::DEFAULT
};

const FCALL: Command = Command {
    name: "fcall",
    summary: "Calls a function of a library.",
    run: Run::Host(&Handler(|context, args, reply| fcall(context, args, false, reply))),
    keys: &[KeySpec::at(2).counted().read_write().accesses().updates()],
    ..CALL
};

const FCALL_RO: Command = Command {
    name: "fcall_ro",
    summary: "Calls a function of a library that changes nothing.",
    run: Run::Host(&Handler(|context, args, reply| fcall(context, args, true, reply))),
    flags: CALL.flags.and(Flags::READ_ONLY),
    keys: &[KeySpec::at(2).counted().accesses()],
    ..CALL
};

const SUBCOMMAND: Command = Command {
    since: "7.0.0",
    group: Group::Scripting,
    arity: Arity::Exactly(2),
    flags: Flags::NO_SCRIPT,
    ..Command::DEFAULT
};

/// A transaction with one of them has the keyspace to itself: so they are recorded in the order in which they
/// have happened.
const CHANGE: Flags = Flags::NO_SCRIPT.and(Flags::WRITE).and(Flags::WHOLE_KEYSPACE);
const CHANGE_TIPS: &[&str] = &["request_policy:all_shards", "response_policy:all_succeeded"];

const FUNCTION: Command = Command {
    name: "function",
    summary: "Manages libraries of functions.",
    since: "7.0.0",
    group: Group::Scripting,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    run: Run::Container,
    subcommands: &[
        Command {
            name: "delete",
            summary: "Removes a library.",
            arity: Arity::Exactly(3),
            run: Run::Host(&Handler(change)),
            flags: CHANGE,
            args: &[Argument::string("library-name")],
            tips: CHANGE_TIPS,
            ..SUBCOMMAND
        },
        Command {
            name: "dump",
            summary: "Shows all libraries as one payload, which FUNCTION RESTORE takes.",
            complexity: "O(n) in the number of functions",
            run: Run::Host(&Handler(dump)),
            ..SUBCOMMAND
        },
        Command {
            name: "flush",
            summary: "Removes all libraries.",
            complexity: "O(n) in the number of functions",
            arity: Arity::AtLeast(2),
            run: Run::Host(&Handler(change)),
            flags: CHANGE,
            args: &[Argument::one_of(
                "async",
                &[Argument::word("async", "ASYNC"), Argument::word("sync", "SYNC")],
            )
            .optional()],
            tips: CHANGE_TIPS,
            ..SUBCOMMAND
        },
        Command {
            name: "help",
            summary: "Shows this help.",
            run: Run::Host(&Handler(super::help)),
            flags: Flags::LOADING.and(Flags::STALE),
            ..SUBCOMMAND
        },
        Command {
            name: "kill",
            summary: "Ends the function that has been running longest, unless it has written.",
            run: Run::Host(&Handler(kill)),
            flags: Flags::NO_SCRIPT.and(Flags::ALLOW_BUSY),
            tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
            ..SUBCOMMAND
        },
        Command {
            name: "list",
            summary: "Lists the libraries, all or those whose names match a pattern, with their functions.",
            complexity: "O(n) in the number of functions",
            arity: Arity::AtLeast(2),
            run: Run::Host(&Handler(list)),
            args: &[
                Argument::string("library-name-pattern").after("LIBRARYNAME").optional(),
                Argument::word("withcode", "WITHCODE").optional(),
            ],
            tips: &["nondeterministic_output_order"],
            ..SUBCOMMAND
        },
        Command {
            name: "load",
            summary: "Loads a library; its name.",
            complexity: "O(1), compilation aside",
            arity: Arity::AtLeast(3),
            run: Run::Host(&Handler(change)),
            flags: CHANGE.and(Flags::DENY_OOM),
            args: &[Argument::word("replace", "REPLACE").optional(), Argument::string("function-code")],
            tips: CHANGE_TIPS,
            ..SUBCOMMAND
        },
        Command {
            name: "restore",
            summary: "Loads all libraries of a payload, or none.",
            complexity: "O(n) in the number of functions of the payload",
            arity: Arity::AtLeast(3),
            run: Run::Host(&Handler(change)),
            flags: CHANGE.and(Flags::DENY_OOM),
            args: &[
                Argument::string("serialized-value"),
                Argument::one_of(
                    "policy",
                    &[
                        Argument::word("flush", "FLUSH"),
                        Argument::word("append", "APPEND"),
                        Argument::word("replace", "REPLACE"),
                    ],
                )
                .optional(),
            ],
            tips: CHANGE_TIPS,
            ..SUBCOMMAND
        },
        Command {
            name: "stats",
            summary: "Tells which function is running, and how many libraries and functions there are.",
            run: Run::Host(&Handler(stats)),
            flags: Flags::NO_SCRIPT.and(Flags::ALLOW_BUSY),
            tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
            ..SUBCOMMAND
        },
    ],
    ..Command::DEFAULT
};

fn fcall(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    read_only: bool,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    scripting::show(context, args.words());
    let name = args.peek().unwrap_or_default();
    let operands = || operands(args, CommandError::text("ERR Bad number of keys provided"));
    scripting::call(context, name, operands, read_only, reply)
}

/// Runs the subcommands that change something.
fn change(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let words = args.words();
    let change = LibraryChange::read(args)?;
    if context.shared.cluster.is_on() {
        let functions =
            || ClusterChange::Functions { words: words.iter().map(|word| word.to_vec()).collect() };
        match cluster_wide::carry_out(context, |_| Ok(functions()))? {
            Some(Carried::Name(name)) => reply.bulk(&name),
            Some(_) => reply.ok(),
            None => {}
        }
        return Ok(());
    }
    let (shared, database) = (context.shared, context.session.database);
    context.executor.see_everything();
    let (libraries, worker) = (&mut context.executor.libraries, &mut context.executor.worker);
    let record = || match &context.transaction {
        Some(transaction) => transaction.record(database, worker, words),
        None => shared.engine.record(database, worker, words),
    };
    let applied = libraries.apply(&shared.libraries, &shared.commands, &change, record);
    context.executor.publish_heaps();
    match applied? {
        Some(name) => reply.bulk(&name),
        None => reply.ok(),
    }
    Ok(())
}

impl<'a> LibraryChange<'a> {
    /// Reads what a subcommand of FUNCTION that changes something is to do.
    ///
    /// # Panics
    /// For the other ones.
    pub(crate) fn read(args: &mut Args<'a>) -> Result<Self, CommandError> {
        let subcommand = args.words().get(1).map(|word| word.to_ascii_lowercase());
        match subcommand.as_deref() {
            Some(b"load") => Self::read_load(args),
            Some(b"delete") => Ok(Self::Delete { name: args.word() }),
            Some(b"flush") => Self::read_flush(args),
            Some(b"restore") => Self::read_restore(args),
            _ => unreachable!("it changes nothing"),
        }
    }

    fn read_load(args: &mut Args<'a>) -> Result<Self, CommandError> {
        let mut replace = false;
        while args.remaining() > 1 {
            if !args.token("REPLACE") {
                return Err(CommandError::quoting("ERR Unknown option given: ", args.word()));
            }
            replace = true;
        }
        Ok(Self::Load { code: args.word(), replace })
    }

    fn read_flush(args: &mut Args<'a>) -> Result<Self, CommandError> {
        if args.remaining() > 1 {
            return Err(wrong_arguments(args));
        }
        let is_mode = |word: &[u8]| word.eq_ignore_ascii_case(b"sync") || word.eq_ignore_ascii_case(b"async");
        if !args.optional().is_none_or(is_mode) {
            return Err(CommandError::text("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
        }
        Ok(Self::Flush)
    }

    fn read_restore(args: &mut Args<'a>) -> Result<Self, CommandError> {
        if args.remaining() > 2 {
            return Err(wrong_arguments(args));
        }
        let dump = args.word();
        let policy = match args.optional().map(<[u8]>::to_ascii_lowercase).as_deref() {
            None | Some(b"append") => RestorePolicy::Append,
            Some(b"flush") => RestorePolicy::Flush,
            Some(b"replace") => RestorePolicy::Replace,
            Some(_) => {
                return Err(CommandError::text(
                    "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.",
                ));
            }
        };
        Ok(Self::Restore { dump, policy })
    }
}

fn kill(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    context.shared.running.kill(Kind::Function)?;
    reply.ok();
    Ok(())
}

fn list(context: &mut ServerContext<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (mut pattern, mut with_code) = (None, false);
    while !args.is_empty() {
        if !with_code && args.token("WITHCODE") {
            with_code = true;
        } else if pattern.is_none() && args.token("LIBRARYNAME") {
            let given = args.optional();
            pattern = Some(given.ok_or(CommandError::text("ERR library name argument was not given"))?);
        } else {
            // Unlike elsewhere, a line break at the end becomes a blank.
            let word = args.word().split(|byte| *byte == 0).next().unwrap_or_default();
            return Err(CommandError::Text([b"ERR Unknown argument ", word].concat().into()));
        }
    }
    let libraries = context.shared.libraries.now();
    let glob = pattern.map(Glob::ignoring_case).transpose()?;
    let matches = |name: &[u8]| glob.as_ref().is_none_or(|glob| glob.matches(name));
    let listed: Vec<_> = libraries.iter().filter(|library| matches(&library.name)).collect();
    reply.array(listed.len());
    for library in listed {
        reply.map(3 + usize::from(with_code));
        reply.bulk(b"library_name");
        reply.bulk(&library.name);
        reply.bulk(b"engine");
        reply.bulk(b"LUA");
        reply.bulk(b"functions");
        reply.array(library.functions.len());
        for function in &library.functions {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(&function.name);
            reply.bulk(b"description");
            match &function.description {
                Some(description) => reply.bulk(description),
                None => reply.null(),
            }
            reply.bulk(b"flags");
            reply.set(function.flags.names().count());
            function.flags.names().for_each(|name| reply.simple(name));
        }
        if with_code {
            reply.bulk(b"library_code");
            reply.bulk(&library.code);
        }
    }
    Ok(())
}

fn dump(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    reply.bulk(&context.shared.libraries.dump());
    Ok(())
}

fn stats(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let libraries = context.shared.libraries.now();
    reply.map(2);
    reply.bulk(b"running_script");
    match context.shared.running.longest().filter(|running| running.kind == Kind::Function) {
        Some(running) => {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(&running.name);
            reply.bulk(b"command");
            reply.array(running.words.len());
            running.words.iter().for_each(|word| reply.bulk(word));
            reply.bulk(b"duration_ms");
            reply.integer(running.since.elapsed().as_millis() as i64);
        }
        None => reply.null(),
    }
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    reply.bulk(b"libraries_count");
    reply.count(libraries.len());
    reply.bulk(b"functions_count");
    reply.count(libraries.functions());
    Ok(())
}

/// Redis's words if a subcommand has too many operands.
fn wrong_arguments(args: &Args<'_>) -> CommandError {
    let typed = args.words().get(1).copied().unwrap_or_default();
    CommandError::quoting_within(
        "ERR unknown subcommand or wrong number of arguments for '",
        &typed[..typed.len().min(QUOTED_BYTES_MAX)],
        "'. Try FUNCTION HELP.",
    )
}
