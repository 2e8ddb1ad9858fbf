//! Commands on hashes.

mod counter;
mod fields;
mod sample;
mod scan;
mod whole;

use dunlin_resp::ReplyBuffer;
use dunlin_structures::Element;

use crate::command::Command;

/// The rows of the family.
pub(super) const COMMANDS: &[Command] = &[
    fields::HDEL,
    fields::HEXISTS,
    fields::HGET,
    whole::HGETALL,
    counter::HINCRBY,
    counter::HINCRBYFLOAT,
    whole::HKEYS,
    whole::HLEN,
    fields::HMGET,
    fields::HMSET,
    sample::HRANDFIELD,
    scan::HSCAN,
    fields::HSET,
    fields::HSETNX,
    fields::HSTRLEN,
    whole::HVALS,
];

/// A field or a value as a bulk string.
#[inline]
fn reply_text(reply: &mut ReplyBuffer, text: Element<'_>) {
    match text {
        Element::Integer(integer) => reply.bulk_integer(integer),
        Element::String(text) => reply.bulk(text),
    }
}
