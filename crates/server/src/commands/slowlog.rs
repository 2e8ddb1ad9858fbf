//! SLOWLOG and COMMANDLOG: the logs of slow commands, large requests and large replies.

use dunlin_engine::command::{
    Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, Run,
};
use dunlin_resp::ReplyBuffer;

use crate::{
    executor::{Handler, ServerContext},
    observe::command_log::LogKind,
};

pub(super) const COMMANDS: &[Command] = &[COMMANDLOG, SLOWLOG];

/// Entries that SLOWLOG GET shows unless told otherwise.
const SHOWN_DEFAULT: usize = 10;

const CONTAINER: Command = Command {
    group: Group::Server,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    run: Run::Container,
    ..Command::DEFAULT
};

const SUBCOMMAND: Command = Command {
    group: Group::Server,
    flags: Flags::ADMIN.and(Flags::LOADING).and(Flags::STALE),
    ..Command::DEFAULT
};

const HELP: Command = Command {
    name: "help",
    summary: "Shows this help.",
    group: Group::Server,
    arity: Arity::Exactly(2),
    run: Run::Host(&Handler(super::help)),
    flags: Flags::LOADING.and(Flags::STALE),
    ..Command::DEFAULT
};

const GET_TIPS: &[&str] = &["request_policy:all_nodes", "nondeterministic_output"];
const LEN_TIPS: &[&str] = &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"];
const RESET_TIPS: &[&str] = &["request_policy:all_nodes", "response_policy:all_succeeded"];

const SLOWLOG: Command = Command {
    name: "slowlog",
    summary: "Shows and clears the log of slow commands.",
    since: "2.2.12",
    subcommands: &[
        Command {
            name: "get",
            summary: "Shows the newest entries: 10, or as many as asked for (-1: all). An entry has its number, unix time, microseconds, command line, client address and client name.",
            since: "2.2.12",
            complexity: "O(n) in the number of entries shown",
            arity: Arity::AtLeast(2),
            run: Run::Host(&Handler(slowlog_get)),
            args: &[Argument::integer("count").optional()],
            tips: GET_TIPS,
            ..SUBCOMMAND
        },
        Command { since: "6.2.0", ..HELP },
        Command {
            name: "len",
            summary: "Counts the entries.",
            since: "2.2.12",
            arity: Arity::Exactly(2),
            run: Run::Host(&Handler(slowlog_len)),
            tips: LEN_TIPS,
            ..SUBCOMMAND
        },
        Command {
            name: "reset",
            summary: "Forgets all entries.",
            since: "2.2.12",
            complexity: "O(n) in the number of entries",
            arity: Arity::Exactly(2),
            run: Run::Host(&Handler(slowlog_reset)),
            tips: RESET_TIPS,
            ..SUBCOMMAND
        },
    ],
    ..CONTAINER
};

const KIND: Argument = Argument::one_of(
    "type",
    &[
        Argument::word("slow", "SLOW"),
        Argument::word("large-request", "LARGE-REQUEST"),
        Argument::word("large-reply", "LARGE-REPLY"),
    ],
);

const COMMANDLOG: Command = Command {
    name: "commandlog",
    summary: "Shows and clears the logs of slow commands, large requests and large replies.",
    since: "8.1.0",
    subcommands: &[
        Command {
            name: "get",
            summary: "Shows as many of the newest entries as asked for (-1: all). An entry has its number, unix time, microseconds or bytes, command line, client address and client name.",
            since: "8.1.0",
            complexity: "O(n) in the number of entries shown",
            arity: Arity::Exactly(4),
            run: Run::Host(&Handler(commandlog_get)),
            args: &[Argument::integer("count"), KIND],
            tips: GET_TIPS,
            ..SUBCOMMAND
        },
        Command { since: "8.1.0", ..HELP },
        Command {
            name: "len",
            summary: "Counts the entries of a log.",
            since: "8.1.0",
            arity: Arity::Exactly(3),
            run: Run::Host(&Handler(commandlog_len)),
            args: &[KIND],
            tips: LEN_TIPS,
            ..SUBCOMMAND
        },
        Command {
            name: "reset",
            summary: "Forgets all entries of a log.",
            since: "8.1.0",
            complexity: "O(n) in the number of entries",
            arity: Arity::Exactly(3),
            run: Run::Host(&Handler(commandlog_reset)),
            args: &[KIND],
            tips: RESET_TIPS,
            ..SUBCOMMAND
        },
    ],
    ..CONTAINER
};

type Context<'a, 'k> = ServerContext<'a, 'k>;

fn slowlog_get(context: &mut Context<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    if args.remaining() > 1 {
        return Err(CommandError::text(
            "ERR unknown subcommand or wrong number of arguments for 'get'. Try SLOWLOG HELP.",
        ));
    }
    let count = if args.is_empty() { SHOWN_DEFAULT } else { read_count(args)? };
    show(context, LogKind::Slow, count, reply);
    Ok(())
}

fn slowlog_len(context: &mut Context<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    reply.count(context.shared.stats.logs.len(LogKind::Slow));
    Ok(())
}

fn slowlog_reset(context: &mut Context<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    context.shared.stats.logs.reset(LogKind::Slow);
    reply.ok();
    Ok(())
}

fn commandlog_get(
    context: &mut Context<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let count = read_count(args)?;
    show(context, read_kind(args)?, count, reply);
    Ok(())
}

fn commandlog_len(
    context: &mut Context<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    reply.count(context.shared.stats.logs.len(read_kind(args)?));
    Ok(())
}

fn commandlog_reset(
    context: &mut Context<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    context.shared.stats.logs.reset(read_kind(args)?);
    reply.ok();
    Ok(())
}

/// How many entries to show; −1 is all.
fn read_count(args: &mut Args<'_>) -> Result<usize, CommandError> {
    const NO_COUNT: CommandError = CommandError::text("ERR count should be greater than or equal to -1");
    let count = args.integer_in(-1..=i64::MAX, NO_COUNT);
    args.check()?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

fn read_kind(args: &mut Args<'_>) -> Result<LogKind, CommandError> {
    LogKind::named(args.word()).ok_or(CommandError::text(
        "ERR type should be one of the following: slow, large-request, large-reply",
    ))
}

fn show(context: &Context<'_, '_>, kind: LogKind, count: usize, reply: &mut ReplyBuffer) {
    let entries = context.shared.stats.logs.newest(kind, count);
    reply.array(entries.len());
    for entry in entries {
        reply.array(6);
        reply.integer(entry.id as i64);
        reply.integer(entry.time_s as i64);
        reply.integer(entry.value as i64);
        reply.array(entry.words.len());
        entry.words.iter().for_each(|word| reply.bulk(word));
        reply.bulk(entry.peer.as_bytes());
        reply.bulk(&entry.client_name);
    }
}
