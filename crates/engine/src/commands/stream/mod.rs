//! Commands on streams.

mod add;
mod budget;
mod claim;
mod configure;
mod delete;
mod group;
mod info;
mod pending;
mod propagation;
mod range;
mod read;
mod release;
mod set_id;
mod trim;

use dunlin_resp::ReplyBuffer;
use dunlin_structures::Element;

use crate::{
    command::{Args, Command, CommandError},
    value::stream::{StreamEntry, StreamId},
};

/// The rows of the family.
pub(super) const COMMANDS: &[Command] = &[
    pending::XACK,
    delete::XACKDEL,
    add::XADD,
    claim::XAUTOCLAIM,
    configure::XCFGSET,
    claim::XCLAIM,
    delete::XDEL,
    delete::XDELEX,
    group::XGROUP,
    info::XINFO,
    range::XLEN,
    release::XNACK,
    pending::XPENDING,
    range::XRANGE,
    read::XREAD,
    read::XREADGROUP,
    range::XREVRANGE,
    set_id::XSETID,
    trim::XTRIM,
];

const INVALID_ID: CommandError =
    CommandError::text("ERR Invalid stream ID specified as stream command argument");

/// Reads an ID; a missing sequence number is 0.
fn parse_id(text: &[u8]) -> Result<StreamId, CommandError> {
    StreamId::parse(text, 0).ok_or(INVALID_ID)
}

/// Reads several.
fn parse_ids(texts: &[&[u8]]) -> Result<Vec<StreamId>, CommandError> {
    texts.iter().map(|text| parse_id(text)).collect()
}

/// Reads `numids id …` and returns the IDs, not parsed yet.
fn take_counted_ids<'a>(args: &mut Args<'a>) -> Result<&'a [&'a [u8]], CommandError> {
    let positive = CommandError::text("ERR Number of IDs must be a positive integer");
    let count = args.integer_in(1..=i64::MAX, positive) as usize;
    args.check()?;
    if count > args.remaining() {
        return Err(CommandError::text("ERR The `numids` parameter must match the number of arguments"));
    }
    Ok(args.take(count))
}

/// Reads the start of a range: `-`, `+`, an ID, or with `(` the one behind it.
fn parse_start(text: &[u8]) -> Result<StreamId, CommandError> {
    match text {
        [b'(', id @ ..] if !id.is_empty() => {
            let next = parse_id(id)?.next();
            next.ok_or(CommandError::text("ERR invalid start ID for the interval"))
        }
        _ => StreamId::parse_bound(text, 0).ok_or(INVALID_ID),
    }
}

/// Reads the end of a range; a missing sequence number is the largest.
fn parse_end(text: &[u8]) -> Result<StreamId, CommandError> {
    match text {
        [b'(', id @ ..] if !id.is_empty() => {
            let previous = StreamId::parse(id, u64::MAX).ok_or(INVALID_ID)?.previous();
            previous.ok_or(CommandError::text("ERR invalid end ID for the interval"))
        }
        _ => StreamId::parse_bound(text, u64::MAX).ok_or(INVALID_ID),
    }
}

/// Reads an option's integer where a negative one counts as 0.
fn not_negative(args: &mut Args<'_>) -> Result<u64, CommandError> {
    let value = args.integer();
    args.check()?;
    Ok(u64::try_from(value).unwrap_or(0))
}

/// An ID as a bulk string.
fn reply_id(reply: &mut ReplyBuffer, id: StreamId) {
    let mut text = [0; 2 * 20 + 1];
    let (mut ms, mut seq) = (itoa::Buffer::new(), itoa::Buffer::new());
    let (ms, seq) = (ms.format(id.ms).as_bytes(), seq.format(id.seq).as_bytes());
    let len = ms.len() + 1 + seq.len();
    text[..ms.len()].copy_from_slice(ms);
    text[ms.len()] = b'-';
    text[ms.len() + 1..len].copy_from_slice(seq);
    reply.bulk(&text[..len]);
}

/// An entry: its ID, and its fields and values in one array.
fn reply_entry(reply: &mut ReplyBuffer, entry: &StreamEntry<'_>) {
    reply.array(2);
    reply_entry_parts(reply, entry);
}

/// The two elements of [`reply_entry`], in an array that the caller has begun.
fn reply_entry_parts(reply: &mut ReplyBuffer, entry: &StreamEntry<'_>) {
    reply_id(reply, entry.id);
    reply.array(2 * entry.len());
    for (field, value) in entry.fields() {
        reply_text(reply, field);
        reply_text(reply, value);
    }
}

fn reply_text(reply: &mut ReplyBuffer, text: Element<'_>) {
    match text {
        Element::Integer(integer) => reply.bulk_integer(integer),
        Element::String(text) => reply.bulk(text),
    }
}

/// An array of up to `count` entries (0: all).
fn reply_entries<'a>(reply: &mut ReplyBuffer, entries: impl Iterator<Item = StreamEntry<'a>>, count: u64) {
    let mark = reply.mark();
    let mut told = 0;
    for entry in entries {
        reply_entry(reply, &entry);
        told += 1;
        if told as u64 == count {
            break;
        }
    }
    reply.array_since(mark, told);
}

/// The error of those that need key and group.
fn no_group(key: &[u8], group: &[u8]) -> CommandError {
    no_group_in(key, group, "")
}

/// [`no_group`] with more text behind it.
fn no_group_in(key: &[u8], group: &[u8], place: &str) -> CommandError {
    let key = key.split(|byte| *byte == 0).next().unwrap_or_default();
    let before = [b"NOGROUP No such key '", key, b"' or consumer group '"].concat();
    quoting(before, group, &format!("'{place}"))
}

/// The error of those that find the key, but no group in it.
fn no_such_group(key: &[u8], group: &[u8]) -> CommandError {
    let group = group.split(|byte| *byte == 0).next().unwrap_or_default();
    let before = [b"NOGROUP No such consumer group '", group, b"' for key name '"].concat();
    quoting(before, key, "'")
}

/// An error that quotes two words, each up to its first NUL.
fn quoting(mut text: Vec<u8>, word: &[u8], after: &str) -> CommandError {
    text.extend_from_slice(word.split(|byte| *byte == 0).next().unwrap_or_default());
    text.extend_from_slice(after.as_bytes());
    CommandError::Text(text.into())
}

/// The error of a subcommand with a wrong number of words, or with options that it does not have.
fn wrong_subcommand(args: &Args<'_>, container: &str) -> CommandError {
    const QUOTED_BYTES_MAX: usize = 128;
    let typed = args.words()[1];
    CommandError::quoting_within(
        "ERR unknown subcommand or wrong number of arguments for '",
        &typed[..typed.len().min(QUOTED_BYTES_MAX)],
        &format!("'. Try {container} HELP."),
    )
}
