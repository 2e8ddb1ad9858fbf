//! Replacing and removing elements wherever they stand.

use dunlin_resp::ReplyBuffer;
use dunlin_structures::ListEnd;

use super::{discard, from_front, inclusive, list_of, notify_emptied, parse_signed_count, visits};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::{ExpiryChange, WriteContext},
    keyspace::EntryRef,
    notify::EventClass,
    value::{List, Stored},
};

pub(super) const LSET: Command = Command {
    name: "lset",
    summary: "Replaces an element of a list by its number.",
    since: "1.0.0",
    group: Group::List,
    complexity: "O(n) for n blocks from the nearer end to the element",
    arity: Arity::Exactly(4),
    run: Run::Write(lset),
    flags: Flags::DENY_OOM,
    keys: &[KeySpec::at(1).read_write().updates()],
    args: &[Argument::key("key"), Argument::integer("index"), Argument::string("element")],
    ..Command::DEFAULT
};

fn lset(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    // As in Redis, the number is looked at only if there is a list.
    let len = context.collection::<List>(key)?.ok_or(CommandError::NoSuchKey)?.len();
    let (index, text) = (args.integer(), args.word());
    args.finish()?;
    let layout = context.layout();
    let index = usize::try_from(from_front(index, len)).unwrap_or(usize::MAX);
    let replaced = context.update(key, |list: &mut List| {
        let replaced = list.set(index, text, layout);
        if replaced {
            list.settle(layout);
        }
        (replaced, replaced)
    })?;
    if replaced != Some(true) {
        return Err(CommandError::IndexOutOfRange);
    }
    reply.ok();
    context.notify(EventClass::List, "lset", key);
    Ok(())
}

pub(super) const LREM: Command = Command {
    name: "lrem",
    summary: "Removes elements that equal one from a list; the last one takes the list with it.",
    complexity: "O(n) for n elements looked at",
    run: Run::Write(lrem),
    flags: Flags::NONE,
    keys: &[KeySpec::at(1).read_write().deletes()],
    args: &[Argument::key("key"), Argument::integer("count"), Argument::string("element")],
    ..LSET
};

fn lrem(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, count, text) = (args.word(), parse_signed_count(args)?, args.word());
    let end = if count < 0 { ListEnd::Back } else { ListEnd::Front };
    let count = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
    let layout = context.layout();
    let remove = |list: &mut List| {
        let removed = list.remove_equal(text, count, end);
        if removed > 0 {
            list.settle(layout);
        }
        (removed, list.is_empty())
    };
    let elements = |entry: Option<EntryRef<'_>>| {
        entry.and_then(list_of).map_or(0, |list| visits(&list, text, count, end))
    };
    // Copying a list takes less time than looking through it.
    let rest = context.compute_offloaded(key, elements, |entry, _| {
        let mut rest = entry.and_then(list_of)?.copied();
        Some((remove(&mut rest), rest))
    })?;
    let (removed, is_empty) = match rest.flatten() {
        Some(((0, _), rest)) => {
            context.discard(rest);
            (0, false)
        }
        Some((removed, rest)) => {
            context.set_collection(key, rest, ExpiryChange::Keep);
            removed
        }
        None => {
            let removed = context.update(key, |list| {
                let removed = remove(list);
                (removed, removed.0 > 0)
            });
            removed?.unwrap_or((0, false))
        }
    };
    reply.count(removed);
    if removed > 0 {
        context.count_changes(removed);
        context.notify(EventClass::List, "lrem", key);
        notify_emptied(context, key, is_empty);
    }
    Ok(())
}

pub(super) const LTRIM: Command = Command {
    name: "ltrim",
    summary: "Removes all elements of a list but those from one number through another.",
    complexity: "O(n) for n elements removed",
    run: Run::Write(ltrim),
    args: &[Argument::key("key"), Argument::integer("start"), Argument::integer("stop")],
    ..LREM
};

fn ltrim(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, start, stop) = (args.word(), args.integer(), args.integer());
    args.finish()?;
    let layout = context.layout();
    let trimmed = context.update(key, |list: &mut List| {
        let len = list.len();
        let kept = inclusive(start, stop, len);
        let taken = [kept.end..len, 0..kept.start].map(|range| list.take_range(range).1);
        list.settle(layout);
        let removed = len - list.len();
        ((list.is_empty(), taken, removed), removed > 0)
    })?;
    reply.ok();
    if let Some((is_empty, taken, removed)) = trimmed {
        context.count_changes(removed);
        taken.into_iter().for_each(|blocks| discard(context, blocks));
        context.notify(EventClass::List, "ltrim", key);
        notify_emptied(context, key, is_empty);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn elements_are_replaced_and_removed() {
        check(
            "
            > RPUSH l a b a 4 a
            :5
            > LSET l 3 x
            +OK
            > LSET l -1 7
            +OK
            > LRANGE l 0 -1
            *5 $1 a $1 b $1 a $1 x $1 7
            > LSET l 5 x
            -ERR index out of range
            > LSET l -6 x
            -ERR index out of range
            > LREM l -1 a
            :1
            > LREM l 0 7
            :1
            > LREM l 2 nowhere
            :0
            > LRANGE l 0 -1
            *3 $1 a $1 b $1 x
            > LTRIM l 1 -1
            +OK
            > LRANGE l 0 -1
            *2 $1 b $1 x
            > LTRIM l 5 9
            +OK
            > EXISTS l
            :0
            > LTRIM l 5 9
            +OK
            > RPUSH l a a
            :2
            > LREM l 0 a
            :2
            > EXISTS l
            :0
            ",
        );
    }

    #[test]
    fn mistakes_are_told_in_the_order_of_redis() {
        check(
            "
            > SET text v
            +OK
            > RPUSH l a
            :1
            > LSET missing x a
            -ERR no such key
            > LSET text x a
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > LSET l x a
            -ERR value is not an integer or out of range
            > LREM text x a
            -ERR value is not an integer or out of range
            > LREM text 1 a
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > LREM missing -9223372036854775808 a
            -ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807
            > LTRIM text 1 x
            -ERR value is not an integer or out of range
            > LTRIM text 1 2
            -WRONGTYPE Operation against a key holding the wrong kind of value
            ",
        );
    }
}
