//! Commands on sets.

mod cardinality;
mod combine;
mod members;
mod sample;
mod scan;

use dunlin_resp::ReplyBuffer;
use dunlin_structures::Element;

use crate::{
    command::Command,
    keyspace::EntryRef,
    value::{CollectionRef, Set},
};

/// The rows of the family.
pub(super) const COMMANDS: &[Command] = &[
    members::SADD,
    members::SCARD,
    combine::SDIFF,
    cardinality::SDIFFCARD,
    combine::SDIFFSTORE,
    combine::SINTER,
    cardinality::SINTERCARD,
    combine::SINTERSTORE,
    members::SISMEMBER,
    members::SMEMBERS,
    members::SMISMEMBER,
    members::SMOVE,
    sample::SPOP,
    sample::SRANDMEMBER,
    members::SREM,
    scan::SSCAN,
    combine::SUNION,
    cardinality::SUNIONCARD,
    combine::SUNIONSTORE,
];

/// A member as a bulk string.
#[inline]
fn reply_member(reply: &mut ReplyBuffer, member: Element<'_>) {
    match member {
        Element::Integer(integer) => reply.bulk_integer(integer),
        Element::String(text) => reply.bulk(text),
    }
}

/// The set of an entry.
fn set_of(entry: EntryRef<'_>) -> Option<CollectionRef<'_, Set>> {
    entry.object().and_then(CollectionRef::of)
}
