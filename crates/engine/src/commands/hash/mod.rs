//! Commands on hashes.

mod counter;
mod expire;
mod fields;
mod named;
mod sample;
mod scan;
mod ttl;
mod whole;
mod with_expiry;

use dunlin_resp::ReplyBuffer;
use dunlin_structures::Element;

use crate::command::Command;

/// The rows of the family.
pub(super) const COMMANDS: &[Command] = &[
    fields::HDEL,
    fields::HEXISTS,
    expire::HEXPIRE,
    expire::HEXPIREAT,
    ttl::HEXPIRETIME,
    fields::HGET,
    whole::HGETALL,
    with_expiry::HGETDEL,
    with_expiry::HGETEX,
    counter::HINCRBY,
    counter::HINCRBYFLOAT,
    whole::HKEYS,
    whole::HLEN,
    fields::HMGET,
    fields::HMSET,
    expire::HPERSIST,
    expire::HPEXPIRE,
    expire::HPEXPIREAT,
    ttl::HPEXPIRETIME,
    ttl::HPTTL,
    sample::HRANDFIELD,
    scan::HSCAN,
    fields::HSET,
    with_expiry::HSETEX,
    fields::HSETNX,
    fields::HSTRLEN,
    ttl::HTTL,
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
