//! The cursor of an array: values behind the last inserted one, or in a ring.

use std::mem;

use dunlin_resp::ReplyBuffer;

use super::{PLACES_MAX, array_of, check_values, index_in, reply_index, reply_value, set_from};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::{ExpiryChange, ReadContext, WriteContext},
    keyspace::EntryRef,
    notify::EventClass,
    value::Array,
};

const OVERFLOW: CommandError = CommandError::text("ERR insert index overflow");

pub(super) const ARINSERT: Command = Command {
    name: "arinsert",
    summary: "Puts values behind the one that was inserted last into an array, and returns the last index.",
    since: "8.8.0",
    group: Group::Array,
    complexity: "O(log n) for each value",
    arity: Arity::AtLeast(3),
    run: Run::Write(arinsert),
    flags: Flags::DENY_OOM.and(Flags::FAST),
    keys: &[KeySpec::at(1).read_write().updates()],
    args: &[Argument::key("key"), Argument::string("value").multiple()],
    ..Command::DEFAULT
};

/// The index that the next value goes to; `None` behind the largest one.
fn next_index(cursor: Option<u64>) -> Option<u64> {
    match cursor {
        None => Some(0),
        Some(last) => (last < Array::INDEX_MAX).then(|| last + 1),
    }
}

fn arinsert(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, values) = (args.word(), args.take_rest());
    check_values(values)?;
    let cursor = context.collection::<Array>(key)?.and_then(|array| array.cursor());
    let first = next_index(cursor).ok_or(OVERFLOW)?;
    let more = values.len() as u64 - 1;
    if Array::INDEX_MAX - first < more {
        return Err(OVERFLOW);
    }
    let last = first + more;
    context.update_or_create(key, |array: &mut Array| {
        set_from(array, first, values);
        array.set_cursor(Some(last));
        ((), true)
    })?;
    context.count_changes(values.len());
    context.notify(EventClass::Array, "arinsert", key);
    reply_index(reply, last);
    Ok(())
}

pub(super) const ARRING: Command = Command {
    name: "arring",
    summary: "Puts values into an array as a ring of a size, whose oldest values are overwritten, and returns the last index.",
    complexity: "O(log n) for each value, and O(n) if the ring has another size",
    arity: Arity::AtLeast(4),
    run: Run::Write(arring),
    flags: Flags::DENY_OOM,
    args: &[Argument::key("key"), Argument::integer("size"), Argument::string("value").multiple()],
    ..ARINSERT
};

/// How many values of a ring stay, at most, in one of another size that has to be laid out anew; `None` if they may stay where
/// they are.
fn kept_max(array: &Array, size: u64) -> Option<u64> {
    let span = array.len();
    if size < span {
        return Some(size);
    }
    // The ring has begun again at its beginning: the values behind the cursor are older than those before it.
    let has_wrapped = array.cursor().is_some_and(|last| last.saturating_add(1) < span);
    (size > span && has_wrapped).then_some(span)
}

/// The newest values of a ring, up to the first empty place, from index 0 on.
fn laid_out(array: &Array, kept_max: u64) -> Array {
    let span = array.len();
    let newest = array.cursor().map_or(span - 1, |last| last % span);
    let before = |index: u64| if index == 0 { span - 1 } else { index - 1 };
    let (mut oldest, mut kept) = (newest, 0);
    while kept < kept_max && array.get(oldest).is_some() {
        kept += 1;
        oldest = before(oldest);
    }
    let mut ring = Array::default();
    for place in 0..kept {
        oldest = if oldest == span - 1 { 0 } else { oldest + 1 };
        if let Some(value) = array.get(oldest) {
            ring.set(place, value);
        }
    }
    ring.set_cursor(kept.checked_sub(1));
    ring
}

fn arring(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, size) = (args.word(), args.integer_or(CommandError::text("ERR invalid size")));
    args.check()?;
    let size = u64::try_from(size).ok().filter(|size| *size > 0);
    let size = size.ok_or(CommandError::text("ERR size must be positive"))?;
    let values = args.take_rest();
    check_values(values)?;
    let elements = |entry: Option<EntryRef<'_>>| {
        let array = entry.and_then(array_of);
        array.map_or(0, |array| kept_max(&array, size).map_or(0, |kept| kept.min(array.count()) as usize))
    };
    let computed = context.compute_offloaded(key, elements, |entry, _| {
        let array = entry.and_then(array_of)?;
        kept_max(&array, size).map(|kept| laid_out(&array, kept))
    })?;
    if let Some(ring) = computed.flatten().filter(|ring| !ring.is_empty()) {
        context.set_collection(key, ring, ExpiryChange::Keep);
    }
    let (last, former) = context.update_or_create(key, |array: &mut Array| {
        let laid_out = kept_max(array, size).map(|kept| laid_out(array, kept));
        let former = laid_out.map(|ring| mem::replace(array, ring));
        let mut last = 0;
        for value in values {
            last = next_index(array.cursor()).map_or(u64::MAX, |next| next) % size;
            array.set(last, *value);
            array.set_cursor(Some(last));
        }
        ((last, former), true)
    })?;
    former.into_iter().for_each(|former| context.discard(former));
    context.count_changes(values.len());
    context.notify(EventClass::Array, "arring", key);
    reply_index(reply, last);
    Ok(())
}

pub(super) const ARSEEK: Command = Command {
    name: "arseek",
    summary: "Sets the index at which the next value is inserted into an array.",
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    run: Run::Write(arseek),
    flags: Flags::FAST,
    args: &[Argument::key("key"), Argument::integer("index")],
    ..ARINSERT
};

fn arseek(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, index) = (args.word(), index_in(args.word(), u64::MAX)?);
    let found = context.edit(key, |array: &mut Array| array.set_cursor(index.checked_sub(1)))?;
    if found.is_some() {
        context.count_changes(1);
        context.notify(EventClass::Array, "arseek", key);
    }
    reply.integer(found.is_some().into());
    Ok(())
}

pub(super) const ARNEXT: Command = Command {
    name: "arnext",
    summary: "Returns the index at which the next value is inserted into an array; null behind the largest.",
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    run: Run::Read(arnext),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).accesses()],
    args: &[Argument::key("key")],
    ..ARINSERT
};

fn arnext(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let array = context.collection::<Array>(args.word())?;
    match next_index(array.and_then(|array| array.cursor())) {
        Some(index) => reply_index(reply, index),
        None => reply.null(),
    }
    Ok(())
}

pub(super) const ARLASTITEMS: Command = Command {
    name: "arlastitems",
    summary: "Returns the last places of an array up to the one that a value was inserted into last.",
    complexity: "O(n) for n places",
    arity: Arity::AtLeast(3),
    run: Run::Read(arlastitems),
    flags: Flags::NONE,
    args: &[Argument::key("key"), Argument::integer("count"), Argument::word("rev", "REV").optional()],
    ..ARNEXT
};

fn arlastitems(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, count) = (args.word(), args.integer_or(CommandError::text("ERR invalid COUNT")));
    args.check()?;
    let Some(count) = u64::try_from(count).ok().filter(|count| *count > 0) else {
        reply.array(0);
        return Ok(());
    };
    let is_reversed = match args.remaining() {
        0 => false,
        1 if args.token("REV") => true,
        1 => return Err(CommandError::Syntax),
        _ => return Err(CommandError::WrongArity("arlastitems".to_owned())),
    };
    let Some(array) = context.collection::<Array>(key)? else {
        reply.array(0);
        return Ok(());
    };
    let len = array.len();
    let places = count.min(len);
    if places > PLACES_MAX {
        return Err(CommandError::text("ERR count exceeds maximum of 1000000 items"));
    }
    context.weigh(places as usize)?;
    let newest = array.cursor().map_or(len - 1, |last| last.min(len - 1));
    reply.array(places as usize);
    for number in 0..places {
        let back = if is_reversed { number } else { places - 1 - number };
        let index = if back <= newest { newest - back } else { len - (back - newest) };
        reply_value(reply, array.get(index));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn arinsert_goes_on_at_the_cursor() {
        check(
            "
            > ARNEXT a
            :0
            > ARINSERT a x y
            :1
            > ARNEXT a
            :2
            > ARSET a 7 z
            :1
            > ARNEXT a
            :2
            > ARSEEK a 10
            :1
            > ARINSERT a w
            :10
            > ARSEEK a 18446744073709551615
            :1
            3> ARNEXT a
            _
            > ARINSERT a v
            -ERR insert index overflow
            > ARSEEK a 18446744073709551614
            :1
            > ARINSERT a v w
            -ERR insert index overflow
            > ARINSERT a v
            :18446744073709551614
            > ARSEEK a 0
            :1
            > ARINSERT a first
            :0
            > ARSEEK missing 3
            :0
            > EXISTS missing
            :0
            > ARSEEK a -1
            -ERR invalid array index
            ",
        );
    }

    #[test]
    fn arlastitems_walks_back_from_the_cursor() {
        check(
            "
            > ARINSERT a 0 10 20 30 40
            :4
            > ARLASTITEMS a 3
            *3 $2 20 $2 30 $2 40
            > ARLASTITEMS a 3 REV
            *3 $2 40 $2 30 $2 20
            > ARDEL a 1
            :1
            > ARLASTITEMS a 10
            *5 $1 0 $-1 $2 20 $2 30 $2 40
            > ARDEL a 4
            :1
            > ARLASTITEMS a 10 REV
            *4 $2 30 $2 20 $-1 $1 0
            > ARSEEK a 0
            :1
            > ARLASTITEMS a 2
            *2 $2 20 $2 30
            > ARLASTITEMS a 0
            *0
            > ARLASTITEMS a x
            -ERR invalid COUNT
            > ARLASTITEMS a 1 BACK
            -ERR syntax error
            > ARLASTITEMS missing 3
            *0
            > ARSET a 2000000 far
            :1
            > ARLASTITEMS a 1000001
            -ERR count exceeds maximum of 1000000 items
            > ARLASTITEMS a 2
            *2 $-1 $3 far
            ",
        );
    }

    #[test]
    fn arring_overwrites_the_oldest() {
        check(
            "
            > ARRING a 3 0 1 2 3
            :0
            > ARGETRANGE a 0 2
            *3 $1 3 $1 1 $1 2
            > ARLASTITEMS a 10
            *3 $1 1 $1 2 $1 3
            > ARRING a 0 x
            -ERR size must be positive
            > ARRING a x x
            -ERR invalid size
            ",
        );
    }

    /// The newest values stay, in their order, up to the first empty place.
    #[test]
    fn arring_of_another_size_keeps_the_newest() {
        check(
            "
            > ARRING a 5 0 1 2 3 4 5 6 7
            :2
            > ARRING a 8 8
            :5
            > ARGETRANGE a 0 6
            *7 $1 3 $1 4 $1 5 $1 6 $1 7 $1 8 $-1
            > ARRING b 10 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14
            :4
            > ARRING b 5 new
            :0
            > ARGETRANGE b 0 5
            *6 $3 new $2 11 $2 12 $2 13 $2 14 $-1
            > ARRING c 5 0 1 2 3 4
            :4
            > ARDEL c 3
            :1
            > ARRING c 3 new
            :1
            > ARGETRANGE c 0 2
            *3 $1 4 $3 new $-1
            > ARRING d 3 0 1 2 3 4
            :1
            > ARSEEK d 0
            :1
            > ARRING d 8 new
            :0
            > ARGETRANGE d 0 2
            *3 $3 new $1 4 $1 2
            > ARRING e 3 0 1 2 3 4
            :1
            > ARSET e 100 outside
            :1
            > ARRING e 3 5
            :0
            > ARSCAN e 0 1000
            *3 *2 :0 $1 5 *2 :1 $1 3 *2 :2 $1 4
            ",
        );
    }
}
