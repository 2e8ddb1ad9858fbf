//! Taking elements from lists that may have to be waited for.

use dunlin_resp::ReplyBuffer;
use dunlin_structures::ListEnd;

use super::{
    pop::{LPOP, ManyKeys, pop_one, pop_word},
    transfer::{LMOVE, Transfer},
};
use crate::{
    command::{Args, Argument, Arity, Blocking, Command, CommandError, Flags, Group, KeySpec, Run},
    commands::timeout::parse_seconds,
    context::WriteContext,
    value::{List, ValueType},
};

/// The properties that the rows have in common.
const FLAGS: Flags = Flags::WRITE.and(Flags::NO_SCRIPT).and(Flags::BLOCKING);
type Outcome<'a> = Result<Blocking<'a>, CommandError>;

pub(super) const BLPOP: Command = Command {
    name: "blpop",
    summary: "Removes and returns the first element of the first list among several that is there, or waits for one.",
    since: "2.0.0",
    group: Group::List,
    complexity: "O(n) for n keys",
    arity: Arity::AtLeast(3),
    run: Run::Block(blpop),
    flags: FLAGS,
    keys: &[KeySpec::at(1).through(-2, 1).read_write().accesses().deletes()],
    args: &[Argument::key("key").multiple(), Argument::double("timeout")],
    ..LPOP
};

fn blpop<'a>(context: &mut WriteContext<'_>, args: &mut Args<'a>, reply: &mut ReplyBuffer) -> Outcome<'a> {
    pop(context, args, reply, ListEnd::Front)
}

pub(super) const BRPOP: Command = Command {
    name: "brpop",
    summary: "Removes and returns the last element of the first list among several that is there, or waits for one.",
    run: Run::Block(brpop),
    ..BLPOP
};

fn brpop<'a>(context: &mut WriteContext<'_>, args: &mut Args<'a>, reply: &mut ReplyBuffer) -> Outcome<'a> {
    pop(context, args, reply, ListEnd::Back)
}

fn pop<'a>(
    context: &mut WriteContext<'_>,
    args: &mut Args<'a>,
    reply: &mut ReplyBuffer,
    end: ListEnd,
) -> Outcome<'a> {
    let keys = args.take(args.remaining().saturating_sub(1));
    let timeout_ms = parse_seconds(args, context.now_ms())?;
    for key in keys {
        if context.collection::<List>(key)?.is_some() && !context.is_reserved(key, ValueType::List) {
            reply.array(2);
            reply.bulk(key);
            pop_one(context, key, reply, end)?;
            context.propagate(&[pop_word(end), key]);
            return Ok(Blocking::Done);
        }
    }
    Ok(Blocking::wait_for(ValueType::List, keys, timeout_ms, ReplyBuffer::null_array))
}

pub(super) const BLMPOP: Command = Command {
    name: "blmpop",
    summary: "Removes and returns elements from one end of the first list among several that is there, or waits for one.",
    since: "7.0.0",
    complexity: "O(n + m) for n keys and m elements returned",
    arity: Arity::AtLeast(5),
    run: Run::Block(blmpop),
    flags: Flags::WRITE.and(Flags::BLOCKING),
    keys: &[KeySpec::at(2).counted().read_write().accesses().deletes()],
    args: &[
        Argument::double("timeout"),
        Argument::integer("numkeys"),
        Argument::key("key").multiple(),
        Argument::one_of("where", &[Argument::word("left", "LEFT"), Argument::word("right", "RIGHT")]),
        Argument::integer("count").after("COUNT").optional(),
    ],
    ..BLPOP
};

fn blmpop<'a>(context: &mut WriteContext<'_>, args: &mut Args<'a>, reply: &mut ReplyBuffer) -> Outcome<'a> {
    // As in Redis, a mistake in the timeout is reported last.
    let mut timeout = Args::new(args.take(1), 0);
    let request = ManyKeys::parse(args)?;
    let timeout_ms = parse_seconds(&mut timeout, context.now_ms())?;
    if request.pop(context, reply, |context, key| context.is_reserved(key, ValueType::List))? {
        return Ok(Blocking::Done);
    }
    Ok(Blocking::wait_for(ValueType::List, request.keys, timeout_ms, ReplyBuffer::null_array))
}

pub(super) const BLMOVE: Command = Command {
    name: "blmove",
    summary: "Takes an element from one end of a list, adds it to one of another, and returns it, or waits for one.",
    arity: Arity::Exactly(6),
    run: Run::Block(blmove),
    flags: FLAGS.and(Flags::DENY_OOM),
    args: &[
        Argument::key("source"),
        Argument::key("destination").key_spec(1),
        Argument::one_of("wherefrom", &[Argument::word("left", "LEFT"), Argument::word("right", "RIGHT")]),
        Argument::one_of("whereto", &[Argument::word("left", "LEFT"), Argument::word("right", "RIGHT")]),
        Argument::double("timeout"),
    ],
    ..LMOVE
};

fn blmove<'a>(context: &mut WriteContext<'_>, args: &mut Args<'a>, reply: &mut ReplyBuffer) -> Outcome<'a> {
    let source = &args.rest()[..1];
    let transfer = Transfer::parse(args)?;
    transfer_or_wait(context, args, reply, &transfer, source, b"LMOVE")
}

pub(super) const BRPOPLPUSH: Command = Command {
    name: "brpoplpush",
    summary: "Takes the last element of a list, adds it before the first of another, and returns it, or waits for one.",
    since: "2.2.0",
    deprecated: Some(("6.2.0", "`BLMOVE` with the `RIGHT` and `LEFT` arguments")),
    arity: Arity::Exactly(4),
    run: Run::Block(brpoplpush),
    args: &[Argument::key("source"), Argument::key("destination").key_spec(1), Argument::double("timeout")],
    ..BLMOVE
};

fn brpoplpush<'a>(
    context: &mut WriteContext<'_>,
    args: &mut Args<'a>,
    reply: &mut ReplyBuffer,
) -> Outcome<'a> {
    let source = &args.rest()[..1];
    let transfer = Transfer::last_to_front(args);
    transfer_or_wait(context, args, reply, &transfer, source, b"RPOPLPUSH")
}

fn transfer_or_wait<'a>(
    context: &mut WriteContext<'_>,
    args: &mut Args<'a>,
    reply: &mut ReplyBuffer,
    transfer: &Transfer<'a>,
    source: &'a [&'a [u8]],
    plain: &[u8],
) -> Outcome<'a> {
    let timeout_ms = parse_seconds(args, context.now_ms())?;
    if !context.is_reserved(source[0], ValueType::List) && transfer.run(context, reply)? {
        if context.is_recorded() {
            // The command that does not wait has no timeout behind the rest.
            let words = args.words();
            context.propagate(&[&[plain], &words[1..words.len() - 1]].concat());
        }
        return Ok(Blocking::Done);
    }
    Ok(Blocking::wait_for(ValueType::List, source, timeout_ms, ReplyBuffer::null))
}
