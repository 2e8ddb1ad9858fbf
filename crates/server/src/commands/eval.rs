//! EVAL, EVALSHA and their read-only kin.

use dunlin_engine::command::{
    Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run,
};
use dunlin_resp::ReplyBuffer;
use dunlin_scripting::Sha;

use crate::{
    executor::{Handler, ServerContext},
    lua::operands,
    scripting,
};

pub(super) const COMMANDS: &[Command] = &[EVAL, EVAL_RO, EVALSHA, EVALSHA_RO];

const SCRIPT: Command = Command {
    group: Group::Scripting,
    complexity: "Depends on the script that is executed.",
    arity: Arity::AtLeast(3),
    flags: Flags::NO_SCRIPT
        .and(Flags::STALE)
        .and(Flags::SKIP_MONITOR)
        .and(Flags::NO_MANDATORY_KEYS)
        .and(Flags::WHOLE_KEYSPACE)
        .and(Flags::RUNS_SCRIPT),
    ..Command::DEFAULT
};

const READ_ONLY: Command = Command {
    since: "7.0.0",
    flags: SCRIPT.flags.and(Flags::READ_ONLY),
    keys: &[KeySpec::at(2).counted().accesses()],
    ..SCRIPT
};

const BY_TEXT: &[Argument] = &[
    Argument::string("script"),
    Argument::integer("numkeys"),
    Argument::key("key").optional().multiple(),
    Argument::string("arg").optional().multiple(),
];

const BY_SHA: &[Argument] = &[
    Argument::string("sha1"),
    Argument::integer("numkeys"),
    Argument::key("key").optional().multiple(),
    Argument::string("arg").optional().multiple(),
];

/// A script's use of its keys is not known ahead.
const WRITTEN: &[KeySpec] = &[KeySpec::at(2).counted().read_write().accesses().updates()];

const EVAL: Command = Command {
    name: "eval",
    summary: "Runs a Lua script.",
    since: "2.6.0",
    run: Run::Host(&Handler(|context, args, reply| eval(context, args, false, reply))),
    keys: WRITTEN,
    args: BY_TEXT,
    ..SCRIPT
};

const EVAL_RO: Command = Command {
    name: "eval_ro",
    summary: "Runs a Lua script that changes nothing.",
    run: Run::Host(&Handler(|context, args, reply| eval(context, args, true, reply))),
    args: BY_TEXT,
    ..READ_ONLY
};

const EVALSHA: Command = Command {
    name: "evalsha",
    summary: "Runs a Lua script that the server knows, by the SHA-1 of its text.",
    since: "2.6.0",
    run: Run::Host(&Handler(|context, args, reply| evalsha(context, args, false, reply))),
    keys: WRITTEN,
    args: BY_SHA,
    ..SCRIPT
};

const EVALSHA_RO: Command = Command {
    name: "evalsha_ro",
    summary: "Runs a Lua script that the server knows and that changes nothing, by the SHA-1 of its text.",
    run: Run::Host(&Handler(|context, args, reply| evalsha(context, args, true, reply))),
    args: BY_SHA,
    ..READ_ONLY
};

fn eval(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    read_only: bool,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    scripting::show(context, args.words());
    let operands = operands(args, CommandError::NotInteger)?;
    let script = scripting::load(context, operands.name)?;
    scripting::run(context, &script, operands, read_only, reply)
}

fn evalsha(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    read_only: bool,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    const UNKNOWN: CommandError = CommandError::text("NOSCRIPT No matching script. Please use EVAL.");
    scripting::show(context, args.words());
    if args.peek().is_some_and(|sha| sha.len() != 40) {
        return Err(UNKNOWN);
    }
    let operands = operands(args, CommandError::NotInteger)?;
    let sha = Sha::parse(operands.name).ok_or(UNKNOWN)?;
    let script = scripting::find(context, &sha).ok_or(UNKNOWN)?;
    scripting::run(context, &script, operands, read_only, reply)
}
