//! Asking when fields expire.

use dunlin_resp::ReplyBuffer;

use super::{
    expire::{NO_DEADLINE, NO_FIELD, reply_to_all},
    named::{FIELDS, behind_fields, counted},
};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    commands::expiry::to_seconds,
    context::ReadContext,
    value::Hash,
};

pub(super) const HTTL: Command = Command {
    name: "httl",
    summary: "Returns in how many seconds fields of a hash expire.",
    since: "7.4.0",
    group: Group::Hash,
    complexity: "O(n) for n fields given",
    arity: Arity::AtLeast(5),
    run: Run::Read(httl),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).accesses()],
    args: &[Argument::key("key"), FIELDS],
    ..Command::DEFAULT
};

pub(super) const HPTTL: Command = Command {
    name: "hpttl",
    summary: "Returns in how many milliseconds fields of a hash expire.",
    run: Run::Read(hpttl),
    ..HTTL
};

pub(super) const HEXPIRETIME: Command = Command {
    name: "hexpiretime",
    summary: "Returns when fields of a hash expire, as unix times in seconds.",
    run: Run::Read(hexpiretime),
    ..HTTL
};

pub(super) const HPEXPIRETIME: Command = Command {
    name: "hpexpiretime",
    summary: "Returns when fields of a hash expire, as unix times in milliseconds.",
    run: Run::Read(hpexpiretime),
    ..HTTL
};

fn httl(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let clock_ms = context.clock_ms();
    answer(context, args, reply, |deadline_ms| to_seconds(deadline_ms.saturating_sub(clock_ms)))
}

fn hpttl(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let clock_ms = context.clock_ms();
    answer(context, args, reply, |deadline_ms| deadline_ms.saturating_sub(clock_ms))
}

fn hexpiretime(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    answer(context, args, reply, to_seconds)
}

fn hpexpiretime(
    context: &mut ReadContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    answer(context, args, reply, |deadline_ms| deadline_ms)
}

/// `tell` is only asked about deadlines that have not come.
fn answer(
    context: &mut ReadContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
    tell: impl Fn(u64) -> u64,
) -> CommandResult {
    let key = args.word();
    let fields = counted(behind_fields(args.take_rest())?, 1, CommandError::Syntax)?;
    let now_ms = context.now_ms();
    let Some(hash) = context.collection::<Hash>(key)? else {
        reply_to_all(reply, fields, NO_FIELD);
        return Ok(());
    };
    reply.array(fields.len());
    for field in fields {
        reply.integer(match hash.deadline_ms(field, now_ms) {
            None => NO_FIELD,
            Some(None) => NO_DEADLINE,
            Some(Some(deadline_ms)) => tell(deadline_ms) as i64,
        });
    }
    Ok(())
}
