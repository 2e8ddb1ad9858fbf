//! Moving an element from one list to another, or around within one.

use dunlin_resp::ReplyBuffer;
use dunlin_structures::ListEnd;

use super::{notify_pop, notify_push, parse_end};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::WriteContext,
    value::List,
};

pub(super) const LMOVE: Command = Command {
    name: "lmove",
    summary: "Takes an element from one end of a list, adds it to one of another, and returns it.",
    since: "6.2.0",
    group: Group::List,
    arity: Arity::Exactly(5),
    run: Run::Write(lmove),
    flags: Flags::DENY_OOM,
    keys: &[KeySpec::at(1).read_write().accesses().deletes(), KeySpec::at(2).read_write().inserts()],
    args: &[
        Argument::key("source"),
        Argument::key("destination").key_spec(1),
        Argument::one_of("wherefrom", &[Argument::word("left", "LEFT"), Argument::word("right", "RIGHT")]),
        Argument::one_of("whereto", &[Argument::word("left", "LEFT"), Argument::word("right", "RIGHT")]),
    ],
    ..Command::DEFAULT
};

fn lmove(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let transfer = Transfer::parse(args)?;
    args.finish()?;
    if !transfer.run(context, reply)? {
        reply.null();
    }
    Ok(())
}

pub(super) const RPOPLPUSH: Command = Command {
    name: "rpoplpush",
    summary: "Takes the last element of a list, adds it before the first of another, and returns it.",
    since: "1.2.0",
    deprecated: Some(("6.2.0", "`LMOVE` with the `RIGHT` and `LEFT` arguments")),
    arity: Arity::Exactly(3),
    run: Run::Write(rpoplpush),
    args: &[Argument::key("source"), Argument::key("destination").key_spec(1)],
    ..LMOVE
};

fn rpoplpush(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let transfer = Transfer::last_to_front(args);
    if !transfer.run(context, reply)? {
        reply.null();
    }
    Ok(())
}

/// From where to where an element moves.
pub(super) struct Transfer<'a> {
    pub(super) source: &'a [u8],
    pub(super) destination: &'a [u8],
    pub(super) from: ListEnd,
    pub(super) to: ListEnd,
}

impl<'a> Transfer<'a> {
    /// Reads two keys and an end of each.
    pub(super) fn parse(args: &mut Args<'a>) -> Result<Self, CommandError> {
        let (source, destination) = (args.word(), args.word());
        Ok(Self { source, destination, from: parse_end(args)?, to: parse_end(args)? })
    }

    /// Reads two keys; the ends are those of RPOPLPUSH.
    pub(super) fn last_to_front(args: &mut Args<'a>) -> Self {
        let (source, destination) = (args.word(), args.word());
        Self { source, destination, from: ListEnd::Back, to: ListEnd::Front }
    }

    /// Moves the element and answers it. Returns whether there is one.
    pub(super) fn run(
        &self,
        context: &mut WriteContext<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<bool, CommandError> {
        let Self { source, destination, from, to } = *self;
        if context.collection::<List>(source)?.is_none() {
            return Ok(false);
        }
        context.collection::<List>(destination)?;
        let layout = context.layout();
        let mut is_empty = false;
        let mut text = Vec::new();
        if source == destination {
            context.edit(source, |list: &mut List| {
                list.pop(from, |element| element.write_text(&mut text));
                list.push(to, &[&text], layout);
                list.settle(layout);
            })?;
        } else {
            let emptied = context.edit(source, |list: &mut List| {
                list.pop(from, |element| element.write_text(&mut text));
                list.settle(layout);
                list.is_empty()
            })?;
            is_empty = emptied.unwrap_or(false);
            context.edit_or_create(destination, |list: &mut List| list.push(to, &[&text], layout))?;
        }
        // A single element has moved, though two keys have changed.
        context.count_changes(1);
        reply.bulk(&text);
        notify_push(context, to, destination);
        notify_pop(context, from, source, is_empty);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn elements_move_between_lists_and_around_in_one() {
        check(
            "
            > RPUSH a 1 2 3
            :3
            > LMOVE a b LEFT RIGHT
            $1 1
            > RPOPLPUSH a b
            $1 3
            > LRANGE b 0 -1
            *2 $1 3 $1 1
            > LMOVE b b left right
            $1 3
            > LRANGE b 0 -1
            *2 $1 1 $1 3
            > RPOPLPUSH a a
            $1 2
            > LRANGE a 0 -1
            *1 $1 2
            > LMOVE a b RIGHT LEFT
            $1 2
            > EXISTS a
            :0
            > LMOVE a b RIGHT LEFT
            $-1
            3> RPOPLPUSH a b
            _
            ",
        );
    }

    #[test]
    fn mistakes_are_told_and_change_nothing() {
        check(
            "
            > SET text v
            +OK
            > RPUSH l a
            :1
            > LMOVE l text LEFT LEFT
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > RPOPLPUSH text l
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > LMOVE missing text LEFT LEFT
            $-1
            > LMOVE l text LEFT UP
            -ERR syntax error
            > LRANGE l 0 -1
            *1 $1 a
            ",
        );
    }
}
