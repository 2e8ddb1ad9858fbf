//! HIMPORT: fieldsets, by which a client names the fields of many hashes once.

use dunlin_engine::{
    command::{Args, Argument, Arity, Command, CommandResult, Flags, Group, Run},
    commands::himport::SET,
};
use dunlin_resp::ReplyBuffer;

use crate::executor::{Handler, ServerContext};

pub(super) const COMMANDS: &[Command] = &[HIMPORT];

const HIMPORT: Command = Command {
    name: "himport",
    summary: "Holds the commands that import hashes of equal fields.",
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    subcommands: &[DISCARD, DISCARDALL, HELP, PREPARE, SET],
    ..SUBCOMMAND
};

const SUBCOMMAND: Command =
    Command { since: "8.10.0", group: Group::Hash, arity: Arity::Exactly(2), ..Command::DEFAULT };

/// A cluster's clients prepare a fieldset on all nodes.
const OF_ALL_NODES: &[&str] = &["request_policy:all_shards"];

const DISCARD: Command = Command {
    name: "discard",
    summary: "Removes a fieldset of the connection.",
    arity: Arity::Exactly(3),
    run: Run::Host(&Handler(discard)),
    args: &[Argument::string("fieldset-name")],
    tips: OF_ALL_NODES,
    ..SUBCOMMAND
};

const DISCARDALL: Command = Command {
    name: "discardall",
    summary: "Removes all fieldsets of the connection.",
    complexity: "O(n) for n fieldsets",
    run: Run::Host(&Handler(discard_all)),
    tips: OF_ALL_NODES,
    ..SUBCOMMAND
};

const HELP: Command = Command {
    name: "help",
    summary: "Shows this help.",
    run: Run::Host(&Handler(super::help)),
    flags: Flags::LOADING.and(Flags::STALE),
    ..SUBCOMMAND
};

const PREPARE: Command = Command {
    name: "prepare",
    summary: "Names fields for HIMPORT SET, for as long as the connection lasts.",
    complexity: "O(n log n) for n fields",
    arity: Arity::AtLeast(4),
    run: Run::Host(&Handler(prepare)),
    flags: Flags::DENY_OOM,
    args: &[Argument::string("fieldset-name"), Argument::string("field").multiple()],
    tips: OF_ALL_NODES,
    ..SUBCOMMAND
};

fn prepare(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let (name, fields) = (args.word(), args.take_rest());
    let executor = &mut *context.executor;
    executor.worker.fieldsets.prepare(&executor.caller, name, fields)?;
    executor.show_fieldsets(context.session);
    reply.ok();
    Ok(())
}

fn discard(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let executor = &mut *context.executor;
    let is_gone = executor.worker.fieldsets.discard(&executor.caller, args.word());
    executor.show_fieldsets(context.session);
    reply.integer(is_gone.into());
    Ok(())
}

fn discard_all(
    context: &mut ServerContext<'_, '_>,
    _: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let executor = &mut *context.executor;
    let removed = executor.worker.fieldsets.discard_all(&executor.caller);
    executor.show_fieldsets(context.session);
    reply.count(removed);
    Ok(())
}
