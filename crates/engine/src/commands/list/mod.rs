//! Commands on lists.

mod blocking;
mod edit;
mod pop;
mod push;
mod read;
mod transfer;
mod transfer_many;

use dunlin_resp::ReplyBuffer;
use dunlin_structures::{Element, ListEnd, TakenBlocks};

use crate::{
    command::{Args, Command, CommandError},
    context::WriteContext,
    keyspace::EntryRef,
    notify::EventClass,
    value::{CollectionRef, List},
};

/// The rows of the family.
pub(super) const COMMANDS: &[Command] = &[
    blocking::BLMOVE,
    transfer_many::BLMOVEM,
    blocking::BLMPOP,
    blocking::BLPOP,
    blocking::BRPOP,
    blocking::BRPOPLPUSH,
    read::LINDEX,
    push::LINSERT,
    read::LLEN,
    transfer::LMOVE,
    transfer_many::LMOVEM,
    pop::LMPOP,
    pop::LPOP,
    read::LPOS,
    push::LPUSH,
    push::LPUSHX,
    read::LRANGE,
    edit::LREM,
    edit::LSET,
    edit::LTRIM,
    pop::RPOP,
    transfer::RPOPLPUSH,
    push::RPUSH,
    push::RPUSHX,
];

/// An element as a bulk string.
#[inline]
fn reply_element(reply: &mut ReplyBuffer, element: Element<'_>) {
    match element {
        Element::Integer(integer) => reply.bulk_integer(integer),
        Element::String(text) => reply.bulk(text),
    }
}

/// The list of an entry.
fn list_of(entry: EntryRef<'_>) -> Option<CollectionRef<'_, List>> {
    entry.object().and_then(CollectionRef::of)
}

/// How many elements of a list a search for `count` that equal `text` has to look at: few if they are found near
/// `end`, otherwise perhaps all.
fn visits(list: &List, text: &[u8], count: usize, end: ListEnd) -> usize {
    /// Elements that are looked at to find out.
    const NEAR: usize = 2048;
    if list.len() <= NEAR {
        return list.len();
    }
    let found = list.positions(text, end).take(NEAR).flatten().take(count).count();
    if found == count { 0 } else { list.len() }
}

/// Reads `LEFT` or `RIGHT`.
fn parse_end(args: &mut Args<'_>) -> Result<ListEnd, CommandError> {
    let word = args.word();
    if word.eq_ignore_ascii_case(b"LEFT") {
        Ok(ListEnd::Front)
    } else if word.eq_ignore_ascii_case(b"RIGHT") {
        Ok(ListEnd::Back)
    } else {
        Err(CommandError::Syntax)
    }
}

/// Frees blocks that were taken out of a list at a moment that delays no client.
fn discard(context: &mut WriteContext<'_>, taken: TakenBlocks) {
    /// 512 KiB of blocks, as they are by default.
    const BLOCKS_MAX: usize = 64;
    if taken.len() > BLOCKS_MAX {
        context.discard_other(taken);
    }
}

/// The integers that count elements in both directions: all of 64 bits but the smallest.
fn parse_signed_count(args: &mut Args<'_>) -> Result<i64, CommandError> {
    let count = args.integer();
    if count == i64::MIN {
        args.fail(CommandError::text(
            "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
        ));
    }
    args.check()?;
    Ok(count)
}

/// The number of an element counted from the front; a negative `index` counts from the back. The
/// result may lie outside the list on either side.
fn from_front(index: i64, len: usize) -> i64 {
    if index < 0 { index.saturating_add(len as i64) } else { index }
}

/// The elements from number `start` through number `stop`, as far as there are any.
fn inclusive(start: i64, stop: i64, len: usize) -> std::ops::Range<usize> {
    let start = from_front(start, len).clamp(0, len as i64) as usize;
    let end = from_front(stop, len).saturating_add(1).clamp(start as i64, len.max(start) as i64) as usize;
    start..end
}

/// Reports that elements were added at an end.
#[inline]
fn notify_push(context: &mut WriteContext<'_>, end: ListEnd, key: &[u8]) {
    let name = match end {
        ListEnd::Front => "lpush",
        ListEnd::Back => "rpush",
    };
    context.notify(EventClass::List, name, key);
}

/// Reports that elements were taken from an end, and whether that was the end of the list.
#[inline]
fn notify_pop(context: &mut WriteContext<'_>, end: ListEnd, key: &[u8], is_empty: bool) {
    let name = match end {
        ListEnd::Front => "lpop",
        ListEnd::Back => "rpop",
    };
    context.notify(EventClass::List, name, key);
    notify_emptied(context, key, is_empty);
}

/// Reports that a list has lost its last element and its key with that.
#[inline]
fn notify_emptied(context: &mut WriteContext<'_>, key: &[u8], is_empty: bool) {
    if is_empty {
        context.notify(EventClass::Generic, "del", key);
    }
}
