//! Reading entries by ID.

use dunlin_resp::ReplyBuffer;

use super::{parse_end, parse_start, reply_entries};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::ReadContext,
    value::{Stream, stream::StreamId},
};

pub(super) const XLEN: Command = Command {
    name: "xlen",
    summary: "Returns the number of entries of a stream.",
    since: "5.0.0",
    group: Group::Stream,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    run: Run::Read(xlen),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1)],
    args: &[Argument::key("key")],
    ..Command::DEFAULT
};

fn xlen(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let stream = context.collection::<Stream>(args.word())?;
    reply.integer(stream.map_or(0, |stream| stream.log().len() as i64));
    Ok(())
}

const RANGE: Command = Command {
    since: "5.0.0",
    group: Group::Stream,
    complexity: "O(log n) to begin with, O(1) per entry",
    arity: Arity::AtLeast(4),
    keys: &[KeySpec::at(1).accesses()],
    ..Command::DEFAULT
};

pub(super) const XRANGE: Command = Command {
    name: "xrange",
    summary: "Returns the entries of a stream within a range of IDs.",
    run: Run::Read(xrange),
    args: &[
        Argument::key("key"),
        Argument::string("start"),
        Argument::string("end"),
        Argument::integer("count").after("COUNT").optional(),
    ],
    ..RANGE
};

pub(super) const XREVRANGE: Command = Command {
    name: "xrevrange",
    summary: "Returns the entries of a stream within a range of IDs, the last one first.",
    run: Run::Read(xrevrange),
    args: &[
        Argument::key("key"),
        Argument::string("end"),
        Argument::string("start"),
        Argument::integer("count").after("COUNT").optional(),
    ],
    ..RANGE
};

fn xrange(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, start, end) = (args.word(), args.word(), args.word());
    let start = parse_start(start)?;
    let end = parse_end(end)?;
    range(context, args, reply, key, (start, end), false)
}

fn xrevrange(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, end, start) = (args.word(), args.word(), args.word());
    let start = parse_start(start)?;
    let end = parse_end(end)?;
    range(context, args, reply, key, (start, end), true)
}

fn range(
    context: &mut ReadContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
    key: &[u8],
    (start, end): (StreamId, StreamId),
    is_reversed: bool,
) -> CommandResult {
    let mut count = None;
    while !args.is_empty() {
        if !args.token_with("COUNT", 1) {
            return Err(CommandError::Syntax);
        }
        count = Some(super::not_negative(args)?);
    }
    let Some(stream) = context.collection::<Stream>(key)? else {
        reply.array(0);
        return Ok(());
    };
    let entries_max = count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
    context.weigh(entries_max.min(stream.log().entries_about(start, end)))?;
    match count {
        Some(0) => reply.null_array(),
        count if is_reversed => {
            reply_entries(reply, stream.log().range_reversed(start, end), count.unwrap_or(0));
        }
        count => reply_entries(reply, stream.log().range(start, end), count.unwrap_or(0)),
    }
    Ok(())
}
