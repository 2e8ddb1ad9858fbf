//! SCRIPT: the cache of scripts.

use dunlin_engine::command::{
    Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, Run,
};
use dunlin_resp::ReplyBuffer;
use dunlin_scripting::Sha;

use crate::{
    executor::{Handler, ServerContext},
    lua::Kind,
    scripting,
};

pub(super) const COMMANDS: &[Command] = &[SCRIPT];

const SUBCOMMAND: Command = Command {
    group: Group::Scripting,
    arity: Arity::Exactly(2),
    flags: Flags::NO_SCRIPT,
    ..Command::DEFAULT
};

const SCRIPT: Command = Command {
    name: "script",
    summary: "Manages the scripts that the server knows.",
    since: "2.6.0",
    group: Group::Scripting,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    run: Run::Container,
    subcommands: &[
        Command {
            name: "debug",
            summary: "Attaches the debugger to the scripts of the connection: there is none, so only NO is accepted.",
            since: "3.2.0",
            arity: Arity::Exactly(3),
            run: Run::Host(&Handler(debug)),
            args: &[Argument::one_of(
                "mode",
                &[Argument::word("yes", "YES"), Argument::word("sync", "SYNC"), Argument::word("no", "NO")],
            )],
            ..SUBCOMMAND
        },
        Command {
            name: "exists",
            summary: "Tells which of some scripts the server knows.",
            since: "2.6.0",
            complexity: "O(n) in the number of scripts asked for",
            arity: Arity::AtLeast(3),
            run: Run::Host(&Handler(exists)),
            args: &[Argument::string("sha1").multiple()],
            tips: &["request_policy:all_shards", "response_policy:agg_logical_and"],
            ..SUBCOMMAND
        },
        Command {
            name: "flush",
            summary: "Forgets all scripts.",
            since: "2.6.0",
            complexity: "O(n) in the number of scripts",
            arity: Arity::AtLeast(2),
            run: Run::Host(&Handler(flush)),
            args: &[Argument::one_of(
                "async",
                &[Argument::word("async", "ASYNC"), Argument::word("sync", "SYNC")],
            )
            .optional()],
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            ..SUBCOMMAND
        },
        Command {
            name: "help",
            summary: "Shows this help.",
            since: "5.0.0",
            run: Run::Host(&Handler(super::help)),
            flags: Flags::LOADING.and(Flags::STALE),
            ..SUBCOMMAND
        },
        Command {
            name: "kill",
            summary: "Ends the script that has been running longest, unless it has written.",
            since: "2.6.0",
            run: Run::Host(&Handler(kill)),
            flags: Flags::NO_SCRIPT.and(Flags::ALLOW_BUSY),
            tips: &["request_policy:all_shards", "response_policy:one_succeeded"],
            ..SUBCOMMAND
        },
        Command {
            name: "load",
            summary: "Makes a script known to the server without running it; its SHA-1.",
            since: "2.6.0",
            complexity: "O(n) in the length of the script",
            arity: Arity::Exactly(3),
            run: Run::Host(&Handler(load)),
            flags: Flags::NO_SCRIPT.and(Flags::STALE),
            args: &[Argument::string("script")],
            tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
            ..SUBCOMMAND
        },
        Command {
            name: "show",
            summary: "Shows the text of a script that the server knows.",
            since: "8.0.0",
            arity: Arity::Exactly(3),
            run: Run::Host(&Handler(show)),
            flags: SUBCOMMAND.flags.and(Flags::STALE),
            args: &[Argument::string("sha1")],
            ..SUBCOMMAND
        },
    ],
    ..Command::DEFAULT
};

fn debug(_: &mut ServerContext<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let mode = args.word();
    if mode.eq_ignore_ascii_case(b"no") {
        reply.ok();
        return Ok(());
    }
    Err(match mode.eq_ignore_ascii_case(b"yes") || mode.eq_ignore_ascii_case(b"sync") {
        true => CommandError::text("ERR SCRIPT DEBUG is not available: there is no debugger"),
        false => CommandError::text("ERR Use SCRIPT DEBUG YES/SYNC/NO"),
    })
}

fn exists(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let shas = args.take_rest();
    reply.array(shas.len());
    for sha in shas {
        let known = Sha::parse(sha).is_some_and(|sha| context.shared.scripts.get(&sha).is_some());
        reply.integer(i64::from(known));
    }
    Ok(())
}

fn flush(context: &mut ServerContext<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let is_mode = |word: &[u8]| word.eq_ignore_ascii_case(b"sync") || word.eq_ignore_ascii_case(b"async");
    let known = args.optional().is_none_or(is_mode);
    if !known || !args.is_empty() {
        return Err(CommandError::text("ERR SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    // The texts are freed here, what the workers have compiled when each runs its next script.
    context.shared.scripts.flush();
    reply.ok();
    Ok(())
}

fn kill(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    context.shared.running.kill(Kind::Script)?;
    reply.ok();
    Ok(())
}

fn load(context: &mut ServerContext<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let script = scripting::load(context, args.word())?;
    reply.bulk(&script.sha.hex());
    Ok(())
}

fn show(context: &mut ServerContext<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let script = Sha::parse(args.word()).and_then(|sha| context.shared.scripts.get(&sha));
    let script = script.ok_or(CommandError::text("NOSCRIPT No matching script."))?;
    reply.bulk(&script.text);
    Ok(())
}
