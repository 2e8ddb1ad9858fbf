//! Removing members from either end and returning them.

use std::ops::Range;

use dunlin_resp::{Protocol, ReplyBuffer};

use super::{notify_removal, reply_member, set_of};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::WriteContext,
    keyspace::EntryRef,
    value::SortedSet,
};

pub(super) const ZPOPMIN: Command = Command {
    name: "zpopmin",
    summary: "Removes and returns the members with the lowest scores.",
    since: "5.0.0",
    group: Group::SortedSet,
    complexity: "O(m log n) for m members removed of n",
    arity: Arity::AtLeast(2),
    run: Run::Write(zpopmin),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).read_write().accesses().deletes()],
    args: &[Argument::key("key"), Argument::integer("count").optional()],
    ..Command::DEFAULT
};

pub(super) const ZPOPMAX: Command = Command {
    name: "zpopmax",
    summary: "Removes and returns the members with the highest scores.",
    run: Run::Write(zpopmax),
    ..ZPOPMIN
};

pub(super) const ZMPOP: Command = Command {
    name: "zmpop",
    summary: "Removes and returns members from one end of the first of several sorted sets that is there.",
    since: "7.0.0",
    complexity: "O(k + m log n) for k keys and m members removed of n",
    arity: Arity::AtLeast(4),
    run: Run::Write(zmpop),
    flags: Flags::NONE,
    keys: &[KeySpec::at(1).counted().read_write().accesses().deletes()],
    args: &[
        Argument::integer("numkeys"),
        Argument::key("key").multiple(),
        Argument::one_of("where", &[Argument::word("min", "MIN"), Argument::word("max", "MAX")]),
        Argument::integer("count").after("COUNT").optional(),
    ],
    ..ZPOPMIN
};

/// An end of a sorted set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Min,
    Max,
}

/// The form of popped members in the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Members and scores in one array.
    Flat,
    /// An array of pairs.
    Pairs,
    /// The key, then an array of pairs.
    KeyAndPairs,
    /// The key, a member and its score in one array.
    KeyAndMember,
}

fn zpopmin(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    pop_one_key(context, args, reply, End::Min)
}

fn zpopmax(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    pop_one_key(context, args, reply, End::Max)
}

fn pop_one_key(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
    end: End,
) -> CommandResult {
    let key = args.word();
    if args.remaining() > 1 {
        return Err(CommandError::Syntax);
    }
    let is_counted = !args.is_empty();
    let mut count = 1;
    if is_counted {
        let not_positive = CommandError::text("ERR value is out of range, must be positive");
        count = args.integer_in(0..=i64::MAX, not_positive) as usize;
        args.finish()?;
    }
    let in_pairs = is_counted && reply.protocol() == Protocol::Resp3;
    let shape = if in_pairs { Shape::Pairs } else { Shape::Flat };
    if pop_told(context, key, end, count, shape, reply)?.is_none() {
        reply.array(0);
    }
    Ok(())
}

fn zmpop(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (keys, end, count) = parse_many(args)?;
    for key in keys {
        let is_there = match context.is_offloaded() {
            true => context.read(key).is_some(),
            false => context.collection::<SortedSet>(key)?.is_some(),
        };
        if is_there {
            let popped = pop_told(context, key, end, count, Shape::KeyAndPairs, reply)?;
            record_pop(context, key, end, popped);
            return Ok(());
        }
    }
    reply.null_array();
    Ok(())
}

/// Reads `numkeys key [key …] MIN|MAX [COUNT count]`: the keys, the end and how many members.
pub(super) fn parse_many<'a>(args: &mut Args<'a>) -> Result<(&'a [&'a [u8]], End, usize), CommandError> {
    let no_keys = CommandError::text("ERR numkeys should be greater than 0");
    let keys = args.integer_in(1..=i64::MAX, no_keys);
    args.check()?;
    let keys = args.take(keys as usize);
    let end = match () {
        () if args.token("MIN") => End::Min,
        () if args.token("MAX") => End::Max,
        () => return Err(CommandError::Syntax),
    };
    let mut count = None;
    while !args.is_empty() {
        if count.is_some() || !args.token_with("COUNT", 1) {
            return Err(CommandError::Syntax);
        }
        let too_few = CommandError::text("ERR count should be greater than 0");
        count = Some(args.integer_in(1..=i64::MAX, too_few) as usize);
        args.check()?;
    }
    args.finish()?;
    Ok((keys, end, count.unwrap_or(1)))
}

/// Records that members were popped from a key that a command has chosen itself: one, or `count`.
pub(super) fn record_pop(context: &mut WriteContext<'_>, key: &[u8], end: End, count: Option<usize>) {
    let word: &[u8] = if end == End::Min { b"ZPOPMIN" } else { b"ZPOPMAX" };
    match count {
        None => context.propagate(&[word, key]),
        Some(count) => context.propagate(&[word, key, itoa::Buffer::new().format(count).as_bytes()]),
    }
}

/// The ranks of up to `count` members at one end.
fn ranks_at(set: &SortedSet, end: End, count: usize) -> Range<usize> {
    let (len, count) = (set.len(), count.min(set.len()));
    match end {
        End::Min => 0..count,
        End::Max => len - count..len,
    }
}

/// Writes members to the reply, the outermost first.
fn tell(set: &SortedSet, ranks: Range<usize>, key: &[u8], end: End, shape: Shape, reply: &mut ReplyBuffer) {
    let count = ranks.len();
    match shape {
        Shape::Flat => reply.array(2 * count),
        Shape::Pairs => reply.array(count),
        Shape::KeyAndPairs => {
            reply.array(2);
            reply.bulk(key);
            reply.array(count);
        }
        Shape::KeyAndMember => {
            reply.array(3);
            reply.bulk(key);
        }
    }
    set.for_range(ranks, end == End::Max, |member, score| {
        if matches!(shape, Shape::Pairs | Shape::KeyAndPairs) {
            reply.array(2);
        }
        reply_member(reply, member);
        reply.double(score);
    });
}

/// [`pop`]; a long reply is written by an offload thread.
fn pop_told(
    context: &mut WriteContext<'_>,
    key: &[u8],
    end: End,
    count: usize,
    shape: Shape,
    reply: &mut ReplyBuffer,
) -> Result<Option<usize>, CommandError> {
    let elements = |entry: Option<EntryRef<'_>>| entry.and_then(set_of).map_or(0, |set| set.len().min(count));
    let protocol = reply.protocol();
    let told = context.compute_offloaded(key, elements, |entry, _| {
        let set = entry.and_then(set_of)?;
        let mut reply = ReplyBuffer::default();
        reply.set_protocol(protocol);
        tell(&set, ranks_at(&set, end, count), key, end, shape, &mut reply);
        Some(reply.take_pieces())
    })?;
    let Some(told) = told.flatten() else { return pop(context, key, end, count, shape, reply) };
    reply.append_pieces(&told);
    remove(context, key, end, count, |_, _| ())
}

/// Removes up to `count` members from one end of a sorted set and writes them to the reply, the
/// outermost first; returns how many, `None` if there is no key.
pub(super) fn pop(
    context: &mut WriteContext<'_>,
    key: &[u8],
    end: End,
    count: usize,
    shape: Shape,
    reply: &mut ReplyBuffer,
) -> Result<Option<usize>, CommandError> {
    remove(context, key, end, count, |set, ranks| tell(set, ranks, key, end, shape, reply))
}

/// Removes up to `count` members from one end of a sorted set, which `see` sees before.
fn remove(
    context: &mut WriteContext<'_>,
    key: &[u8],
    end: End,
    count: usize,
    see: impl FnOnce(&SortedSet, Range<usize>),
) -> Result<Option<usize>, CommandError> {
    let layout = context.layout();
    let popped = context.update(key, |set: &mut SortedSet| {
        let ranks = ranks_at(set, end, count);
        let count = ranks.len();
        see(set, ranks.clone());
        set.remove_range(ranks);
        set.settle(layout);
        ((count, set.is_empty()), count > 0)
    })?;
    if let Some((count @ 1.., is_empty)) = popped {
        context.count_changes(count);
        notify_removal(context, if end == End::Min { "zpopmin" } else { "zpopmax" }, key, is_empty);
    }
    Ok(popped.map(|(count, _)| count))
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn popping() {
        check(
            "
            > ZADD z 1 a 2 b 3 c 4 d 5 e 6 f
            :6
            > ZPOPMIN z
            *2 $1 a $1 1
            3> ZPOPMAX z
            *2 $1 f ,6
            3> ZPOPMIN z 1
            *1 *2 $1 b ,2
            > ZPOPMAX z 2
            *4 $1 e $1 5 $1 d $1 4
            > ZPOPMIN z 0
            *0
            > ZPOPMIN z 10
            *2 $1 c $1 3
            > EXISTS z
            :0
            > ZPOPMIN z
            *0
            > ZPOPMIN z -1
            -ERR value is out of range, must be positive
            > ZPOPMIN z 1 2
            -ERR syntax error
            ",
        );
    }

    #[test]
    fn popping_from_the_first_of_several() {
        check(
            "
            > ZADD z 1 a 2 b 3 c
            :3
            > ZMPOP 2 missing z MAX
            *2 $1 z *1 *2 $1 c $1 3
            > ZMPOP 1 z MIN COUNT 5
            *2 $1 z *2 *2 $1 a $1 1 *2 $1 b $1 2
            > ZMPOP 2 missing z MIN
            *-1
            3> ZMPOP 1 missing MIN
            _
            > ZMPOP 0 z MIN
            -ERR numkeys should be greater than 0
            > ZMPOP 3 z y MIN
            -ERR syntax error
            > ZMPOP 1 z MIN COUNT 0
            -ERR count should be greater than 0
            > ZMPOP 1 z MIN COUNT 1 COUNT 1
            -ERR syntax error
            > ZMPOP 1 z MID
            -ERR syntax error
            ",
        );
    }
}
