//! Commands on arrays: values at indexes of 64 bits, as Redis 8.8 has them.

mod grep;
mod info;
mod operate;
mod range;
mod regular_expression;
mod ring;
mod single;

use dunlin_resp::ReplyBuffer;
use dunlin_structures::Element;

use crate::{
    command::{Args, Command, CommandError, CommandResult},
    context::WriteContext,
    keyspace::EntryRef,
    value::{Array, CollectionRef},
};

/// The rows of the family.
pub(super) const COMMANDS: &[Command] = &[
    info::ARCOUNT,
    single::ARDEL,
    range::ARDELRANGE,
    single::ARGET,
    range::ARGETRANGE,
    grep::ARGREP,
    info::ARINFO,
    ring::ARINSERT,
    ring::ARLASTITEMS,
    info::ARLEN,
    single::ARMGET,
    single::ARMSET,
    ring::ARNEXT,
    operate::AROP,
    ring::ARRING,
    range::ARSCAN,
    ring::ARSEEK,
    single::ARSET,
];

/// Places that a reply may show, empty ones among them.
const PLACES_MAX: u64 = 1_000_000;

/// A value as a bulk string.
fn reply_value(reply: &mut ReplyBuffer, value: Option<Element<'_>>) {
    match value {
        Some(Element::Integer(integer)) => reply.bulk_integer(integer),
        Some(Element::String(text)) => reply.bulk(text),
        None => reply.null(),
    }
}

/// An index, which may be larger than the integers of the protocol, as an integer.
fn reply_index(reply: &mut ReplyBuffer, index: u64) {
    match i64::try_from(index) {
        Ok(index) => reply.integer(index),
        Err(_) => reply.raw(format!(":{index}\r\n").as_bytes()),
    }
}

/// The array of an entry.
fn array_of(entry: EntryRef<'_>) -> Option<CollectionRef<'_, Array>> {
    entry.object().and_then(CollectionRef::of)
}

const INVALID_INDEX: CommandError = CommandError::text("ERR invalid array index");

/// The number in a word: digits alone.
fn index_in(word: &[u8], max: u64) -> Result<u64, CommandError> {
    let index = std::str::from_utf8(word).ok().and_then(|word| word.parse().ok());
    index.filter(|index| *index <= max).ok_or(INVALID_INDEX)
}

/// The index in a word.
fn parse_index(word: &[u8]) -> Result<u64, CommandError> {
    index_in(word, Array::INDEX_MAX)
}

/// Reads two indexes: the smaller one, the larger one, and whether they came the other way round.
fn take_range(args: &mut Args<'_>) -> Result<(u64, u64, bool), CommandError> {
    let (start, end) = (parse_index(args.word())?, parse_index(args.word())?);
    Ok((start.min(end), start.max(end), start > end))
}

/// How many values of an array may lie between two indexes.
fn visits(array: &Array, low: u64, high: u64) -> usize {
    array.count().min((high - low).saturating_add(1)) as usize
}

/// Refuses values that no page holds.
fn check_values(values: &[&[u8]]) -> CommandResult {
    let is_too_long = values.iter().any(|value| value.len() > Array::VALUE_BYTES_MAX);
    if is_too_long { Err(CommandError::StringTooLong) } else { Ok(()) }
}

/// Puts values at consecutive indexes. Returns how many of the places were empty.
fn set_from(array: &mut Array, first: u64, values: &[&[u8]]) -> usize {
    let places = (first..).zip(values);
    places.filter(|(index, value)| array.set(*index, **value)).count()
}

/// Replies how many values were removed, and reports it.
fn removed(
    context: &mut WriteContext<'_>,
    key: &[u8],
    event: &'static str,
    count: u64,
    reply: &mut ReplyBuffer,
) {
    if count > 0 {
        context.count_changes(count as usize);
        context.notify(crate::notify::EventClass::Array, event, key);
        context.notify_if_gone(key);
    }
    reply_index(reply, count);
}
