//! Popping from sorted sets that may have to be waited for.

use dunlin_resp::ReplyBuffer;

use super::pop::{End, Shape, ZMPOP, ZPOPMIN, parse_many, pop, record_pop};
use crate::{
    command::{Args, Argument, Arity, Blocking, Command, CommandError, Flags, KeySpec, Run},
    commands::timeout::parse_seconds,
    context::WriteContext,
    value::ValueType,
};

type Outcome<'a> = Result<Blocking<'a>, CommandError>;

pub(super) const BZPOPMIN: Command = Command {
    name: "bzpopmin",
    summary: "Removes and returns the member with the lowest score of the first of several sorted sets that is there, or waits for one.",
    complexity: "O(k + log n) for k keys and n members",
    arity: Arity::AtLeast(3),
    run: Run::Block(bzpopmin),
    flags: Flags::WRITE.and(Flags::NO_SCRIPT).and(Flags::FAST).and(Flags::BLOCKING),
    keys: &[KeySpec::at(1).through(-2, 1).read_write().accesses().deletes()],
    args: &[Argument::key("key").multiple(), Argument::double("timeout")],
    ..ZPOPMIN
};

pub(super) const BZPOPMAX: Command = Command {
    name: "bzpopmax",
    summary: "Removes and returns the member with the highest score of the first of several sorted sets that is there, or waits for one.",
    run: Run::Block(bzpopmax),
    ..BZPOPMIN
};

pub(super) const BZMPOP: Command = Command {
    name: "bzmpop",
    summary: "Removes and returns members from one end of the first of several sorted sets that is there, or waits for one.",
    arity: Arity::AtLeast(5),
    run: Run::Block(bzmpop),
    flags: Flags::WRITE.and(Flags::BLOCKING),
    keys: &[KeySpec::at(2).counted().read_write().accesses().deletes()],
    args: &[
        Argument::double("timeout"),
        Argument::integer("numkeys"),
        Argument::key("key").multiple(),
        Argument::one_of("where", &[Argument::word("min", "MIN"), Argument::word("max", "MAX")]),
        Argument::integer("count").after("COUNT").optional(),
    ],
    ..ZMPOP
};

fn bzpopmin<'a>(context: &mut WriteContext<'_>, args: &mut Args<'a>, reply: &mut ReplyBuffer) -> Outcome<'a> {
    pop_one(context, args, reply, End::Min)
}

fn bzpopmax<'a>(context: &mut WriteContext<'_>, args: &mut Args<'a>, reply: &mut ReplyBuffer) -> Outcome<'a> {
    pop_one(context, args, reply, End::Max)
}

fn pop_one<'a>(
    context: &mut WriteContext<'_>,
    args: &mut Args<'a>,
    reply: &mut ReplyBuffer,
    end: End,
) -> Outcome<'a> {
    let keys = args.take(args.remaining().saturating_sub(1));
    pop_or_wait(context, args, reply, keys, end, 1, Shape::KeyAndMember)
}

fn bzmpop<'a>(context: &mut WriteContext<'_>, args: &mut Args<'a>, reply: &mut ReplyBuffer) -> Outcome<'a> {
    // As in Redis, a mistake in the timeout is reported last.
    let mut timeout = Args::new(args.take(1), 0);
    let (keys, end, count) = parse_many(args)?;
    pop_or_wait(context, &mut timeout, reply, keys, end, count, Shape::KeyAndPairs)
}

/// Reads the timeout off `timeout`, pops from the first key that is there and not for others, or waits.
fn pop_or_wait<'a>(
    context: &mut WriteContext<'_>,
    timeout: &mut Args<'a>,
    reply: &mut ReplyBuffer,
    keys: &'a [&'a [u8]],
    end: End,
    count: usize,
    shape: Shape,
) -> Outcome<'a> {
    let timeout_ms = parse_seconds(timeout, context.now_ms())?;
    for key in keys {
        if !context.is_reserved(key, ValueType::SortedSet)
            && let Some(popped) = pop(context, key, end, count, shape, reply)?
        {
            record_pop(context, key, end, (shape == Shape::KeyAndPairs).then_some(popped));
            return Ok(Blocking::Done);
        }
    }
    Ok(Blocking::wait_for(ValueType::SortedSet, keys, timeout_ms, ReplyBuffer::null_array))
}
