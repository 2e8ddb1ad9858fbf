//! Adding elements.

use dunlin_resp::ReplyBuffer;
use dunlin_structures::ListEnd;

use super::{list_of, notify_push, visits};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::WriteContext,
    keyspace::EntryRef,
    notify::EventClass,
    value::List,
};

pub(super) const LPUSH: Command = Command {
    name: "lpush",
    summary: "Adds elements before the first of a list, one after the other; the list is created where it is missing.",
    since: "1.0.0",
    group: Group::List,
    complexity: "O(n) for n elements given",
    arity: Arity::AtLeast(3),
    run: Run::Write(lpush),
    flags: Flags::DENY_OOM.and(Flags::FAST),
    keys: &[KeySpec::at(1).read_write().inserts()],
    args: &[Argument::key("key"), Argument::string("element").multiple()],
    ..Command::DEFAULT
};

fn lpush(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    push(context, args, reply, ListEnd::Front)
}

pub(super) const RPUSH: Command = Command {
    name: "rpush",
    summary: "Adds elements behind the last of a list; the list is created where it is missing.",
    run: Run::Write(rpush),
    ..LPUSH
};

fn rpush(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    push(context, args, reply, ListEnd::Back)
}

#[inline]
fn push(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
    end: ListEnd,
) -> CommandResult {
    let (key, texts) = (args.word(), args.take_rest());
    let layout = context.layout();
    let len = context.edit_or_create(key, |list: &mut List| {
        list.push(end, texts, layout);
        list.len()
    })?;
    context.count_changes(texts.len());
    reply.count(len);
    notify_push(context, end, key);
    Ok(())
}

pub(super) const LPUSHX: Command = Command {
    name: "lpushx",
    summary: "Adds elements before the first of a list that is there.",
    since: "2.2.0",
    run: Run::Write(lpushx),
    ..LPUSH
};

fn lpushx(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    push_existing(context, args, reply, ListEnd::Front)
}

pub(super) const RPUSHX: Command = Command {
    name: "rpushx",
    summary: "Adds elements behind the last of a list that is there.",
    run: Run::Write(rpushx),
    ..LPUSHX
};

fn rpushx(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    push_existing(context, args, reply, ListEnd::Back)
}

fn push_existing(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
    end: ListEnd,
) -> CommandResult {
    let (key, texts) = (args.word(), args.take_rest());
    let layout = context.layout();
    let len = context.edit(key, |list: &mut List| {
        list.push(end, texts, layout);
        list.len()
    })?;
    context.count_changes(texts.len());
    reply.count(len.unwrap_or(0));
    if len.is_some() {
        notify_push(context, end, key);
    }
    Ok(())
}

pub(super) const LINSERT: Command = Command {
    name: "linsert",
    summary: "Adds an element before or behind the first one that equals a pivot.",
    since: "2.2.0",
    complexity: "O(n) for n elements up to the pivot",
    arity: Arity::Exactly(5),
    run: Run::Write(linsert),
    flags: Flags::DENY_OOM,
    args: &[
        Argument::key("key"),
        Argument::one_of("where", &[Argument::word("before", "BEFORE"), Argument::word("after", "AFTER")]),
        Argument::string("pivot"),
        Argument::string("element"),
    ],
    ..LPUSH
};

fn linsert(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let side = if args.token("BEFORE") {
        ListEnd::Front
    } else if args.token("AFTER") {
        ListEnd::Back
    } else {
        return Err(CommandError::Syntax);
    };
    let (pivot, text) = (args.word(), args.word());
    let layout = context.layout();
    let elements = |entry: Option<EntryRef<'_>>| {
        entry.and_then(list_of).map_or(0, |list| visits(&list, pivot, 1, ListEnd::Front))
    };
    let place = context.compute_offloaded(key, elements, |entry, _| {
        entry.and_then(list_of)?.positions(pivot, ListEnd::Front).flatten().next()
    })?;
    let inserted = context.update(key, |list: &mut List| {
        let inserted = match place {
            None => list.insert(side, pivot, text, layout),
            Some(place) => place.is_some_and(|place| list.insert_beside(side, place, text, layout)),
        };
        (inserted.then_some(list.len()), inserted)
    })?;
    match inserted {
        None => reply.integer(0),
        Some(None) => reply.integer(-1),
        Some(Some(len)) => {
            reply.count(len);
            context.notify(EventClass::List, "linsert", key);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::{Scenario, check};

    #[test]
    fn elements_are_added_at_both_ends_and_between() {
        check(
            "
            > LPUSH l b a
            :2
            > RPUSH l c 4
            :4
            > LRANGE l 0 -1
            *4 $1 a $1 b $1 c $1 4
            > LPUSHX l z
            :5
            > RPUSHX l 5 6
            :7
            > LPUSHX missing z
            :0
            > RPUSHX missing z
            :0
            > EXISTS missing
            :0
            > LINSERT l before c x
            :8
            > LINSERT l AFTER 6 7
            :9
            > LINSERT l AFTER nowhere 7
            :-1
            > LINSERT missing AFTER a b
            :0
            > LRANGE l 0 -1
            *9 $1 z $1 a $1 b $1 x $1 c $1 4 $1 5 $1 6 $1 7
            > TYPE l
            +list
            ",
        );
    }

    #[test]
    fn mistakes_are_told_and_change_nothing() {
        check(
            "
            > SET text v
            +OK
            > LPUSH text a
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > RPUSHX text a
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > LINSERT text BEFORE a b
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > LINSERT text BESIDE a b
            -ERR syntax error
            > LINSERT missing BESIDE a b
            -ERR syntax error
            > LPUSH l
            -ERR wrong number of arguments for 'lpush' command
            > GET text
            $1 v
            ",
        );
    }

    #[test]
    fn push_changes_the_encoding_with_the_size() {
        let mut scenario = Scenario::new();
        let large = "x".repeat(9000);
        scenario.play(&format!(
            "
            > RPUSH l a
            :1
            > OBJECT ENCODING l
            $8 listpack
            > RPUSH l {large}
            :2
            > OBJECT ENCODING l
            $9 quicklist
            > LINDEX l 1
            $9000 {large}
            > RPOP l
            $9000 {large}
            > OBJECT ENCODING l
            $8 listpack
            > LINSERT l AFTER nowhere {large}
            :-1
            > OBJECT ENCODING l
            $9 quicklist
            "
        ));
    }
}
