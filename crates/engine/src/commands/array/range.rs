//! Ranges of indexes.

use dunlin_resp::ReplyBuffer;

use super::{PLACES_MAX, array_of, parse_index, removed, reply_index, reply_value, take_range, visits};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::{ExpiryChange, ReadContext, WriteContext},
    keyspace::EntryRef,
    value::Array,
};

/// Values that go with their page in the time that visiting one takes.
const REMOVED_PER_VISIT: usize = 16;

pub(super) const ARGETRANGE: Command = Command {
    name: "argetrange",
    summary: "Returns all places of an array from one index to another, null for the empty ones.",
    since: "8.8.0",
    group: Group::Array,
    complexity: "O(n) for n places",
    arity: Arity::Exactly(4),
    run: Run::Read(argetrange),
    keys: &[KeySpec::at(1).accesses()],
    args: &[Argument::key("key"), Argument::integer("start"), Argument::integer("end")],
    ..Command::DEFAULT
};

fn argetrange(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let (low, high, is_reversed) = take_range(args)?;
    let array = context.collection::<Array>(key)?;
    if high - low >= PLACES_MAX {
        return Err(CommandError::text("ERR range exceeds maximum of 1000000 items"));
    }
    let places = (high - low + 1) as usize;
    context.weigh(places)?;
    reply.array(places);
    let mut next = 0;
    for (index, value) in array.iter().flat_map(|array| array.range(low, high, is_reversed)) {
        let place = if is_reversed { high - index } else { index - low };
        (next..place).for_each(|_| reply.null());
        reply_value(reply, Some(value));
        next = place + 1;
    }
    (next..places as u64).for_each(|_| reply.null());
    Ok(())
}

pub(super) const ARSCAN: Command = Command {
    name: "arscan",
    summary: "Returns the values of an array from one index to another, with their indexes.",
    complexity: "O(log n + m) for m values",
    arity: Arity::AtLeast(4),
    run: Run::Read(arscan),
    args: &[
        Argument::key("key"),
        Argument::integer("start"),
        Argument::integer("end"),
        Argument::integer("limit").after("LIMIT").optional(),
    ],
    ..ARGETRANGE
};

fn arscan(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let (low, high, is_reversed) = take_range(args)?;
    let limit = match args.remaining() {
        0 => usize::MAX,
        2 if args.token("LIMIT") => take_limit(args)?,
        2 => return Err(CommandError::Syntax),
        _ => return Err(CommandError::WrongArity("arscan".to_owned())),
    };
    let Some(array) = context.collection::<Array>(key)? else {
        reply.array(0);
        return Ok(());
    };
    context.weigh(visits(&array, low, high).min(limit))?;
    let (mark, mut count) = (reply.mark(), 0);
    for (index, value) in array.range(low, high, is_reversed).take(limit) {
        reply.array(2);
        reply_index(reply, index);
        reply_value(reply, Some(value));
        count += 1;
    }
    reply.array_since(mark, count);
    Ok(())
}

/// Reads the number behind LIMIT.
pub(super) fn take_limit(args: &mut Args<'_>) -> Result<usize, CommandError> {
    let limit = args.integer();
    args.check()?;
    let limit = usize::try_from(limit).ok().filter(|limit| *limit > 0);
    limit.ok_or(CommandError::text("ERR LIMIT must be positive"))
}

pub(super) const ARDELRANGE: Command = Command {
    name: "ardelrange",
    summary: "Removes the values of an array from one index to another; the last one takes the array with it.",
    complexity: "O(log n + m) for m pages with values removed",
    arity: Arity::AtLeast(4),
    run: Run::Write(ardelrange),
    flags: Flags::NONE,
    keys: &[KeySpec::at(1).read_write().deletes()],
    args: &[
        Argument::key("key"),
        Argument::block("range", &[Argument::integer("start"), Argument::integer("end")]).multiple(),
    ],
    ..ARGETRANGE
};

fn ardelrange(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, words) = (args.word(), args.rest());
    if !words.len().is_multiple_of(2) {
        return Err(CommandError::WrongArity("ardelrange".to_owned()));
    }
    // All of them are looked at before anything changes.
    words.iter().try_for_each(|word| parse_index(word).map(drop))?;
    let mut ranges = Vec::with_capacity(words.len() / 2);
    while !args.is_empty() {
        ranges.push(take_range(args)?);
    }
    let remove =
        |array: &mut Array| -> u64 { ranges.iter().map(|(low, high, _)| array.remove(*low, *high)).sum() };
    let elements = |entry: Option<EntryRef<'_>>| {
        let array = entry.and_then(array_of);
        let all = |array: &Array| -> usize {
            ranges.iter().map(|(low, high, _)| visits(array, *low, *high)).fold(0, usize::saturating_add)
        };
        array.map_or(0, |array| all(&array).min(array.count() as usize)) / REMOVED_PER_VISIT
    };
    // A clone shares the pages that stay.
    let rest = context.compute_offloaded(key, elements, |entry, _| {
        let mut rest = entry.and_then(array_of)?.clone();
        let count = remove(&mut rest);
        Some((count, rest))
    })?;
    let count = match rest.flatten() {
        Some((0, rest)) => {
            context.discard(rest);
            0
        }
        Some((count, rest)) => {
            context.set_collection(key, rest, ExpiryChange::Keep);
            count
        }
        None => {
            let count = context.update(key, |array: &mut Array| {
                let count = remove(array);
                (count, count > 0)
            });
            count?.unwrap_or(0)
        }
    };
    removed(context, key, "ardelrange", count, reply);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn ranges_go_either_way() {
        check(
            "
            > ARMSET a 0 x 1 y 4 z
            :3
            > ARGETRANGE a 0 5
            *6 $1 x $1 y $-1 $-1 $1 z $-1
            3> ARGETRANGE a 5 3
            *3 _ $1 z _
            > ARGETRANGE missing 0 1
            *2 $-1 $-1
            > ARGETRANGE missing 0 1000000
            -ERR range exceeds maximum of 1000000 items
            > ARGETRANGE a 18446744073709551614 0
            -ERR range exceeds maximum of 1000000 items
            > ARSCAN a 0 10
            *3 *2 :0 $1 x *2 :1 $1 y *2 :4 $1 z
            > ARSCAN a 10 0 LIMIT 2
            *2 *2 :4 $1 z *2 :1 $1 y
            > ARSCAN a 2 3
            *0
            > ARSCAN missing 0 9
            *0
            > ARSCAN a 0 9 LIMIT 0
            -ERR LIMIT must be positive
            > ARSCAN a 0 9 LIMIT x
            -ERR value is not an integer or out of range
            > ARSCAN a 0 9 FIRST 2
            -ERR syntax error
            > ARSCAN a 0 9 LIMIT
            -ERR wrong number of arguments for 'arscan' command
            ",
        );
    }

    #[test]
    fn ardelrange_removes_each_value_once() {
        check(
            "
            > ARSET a 0 0 1 2 3 4 5 6 7 8 9
            :10
            > ARDELRANGE a 4 2 3 5
            :4
            > ARSCAN a 0 9
            *6 *2 :0 $1 0 *2 :1 $1 1 *2 :6 $1 6 *2 :7 $1 7 *2 :8 $1 8 *2 :9 $1 9
            > ARDELRANGE a 2 5
            :0
            > ARDELRANGE a 0 1 x 3
            -ERR invalid array index
            > ARDELRANGE a 0 1 2
            -ERR wrong number of arguments for 'ardelrange' command
            > ARCOUNT a
            :6
            > ARDELRANGE a 0 18446744073709551614
            :6
            > EXISTS a
            :0
            > ARDELRANGE a 0 1
            :0
            ",
        );
    }
}
