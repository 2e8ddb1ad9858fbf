//! Commands on sorted sets.

mod add;
mod blocking;
mod bounds;
mod combine;
mod count;
mod members;
mod pop;
mod range;
mod remove;
mod sample;
mod scan;

use dunlin_resp::{Protocol, ReplyBuffer};
use dunlin_structures::Element;

use crate::{
    command::Command,
    context::WriteContext,
    keyspace::EntryRef,
    notify::EventClass,
    value::{CollectionRef, SortedSet},
};

pub(super) use add::{Conditions, put};
pub(super) use range::store;

/// The rows of the family.
pub(super) const COMMANDS: &[Command] = &[
    blocking::BZMPOP,
    blocking::BZPOPMAX,
    blocking::BZPOPMIN,
    add::ZADD,
    add::ZINCRBY,
    members::ZCARD,
    count::ZCOUNT,
    combine::ZDIFF,
    combine::ZDIFFSTORE,
    combine::ZINTER,
    combine::ZINTERCARD,
    combine::ZINTERSTORE,
    count::ZLEXCOUNT,
    pop::ZMPOP,
    members::ZMSCORE,
    pop::ZPOPMAX,
    pop::ZPOPMIN,
    sample::ZRANDMEMBER,
    range::ZRANGE,
    range::ZRANGEBYLEX,
    range::ZRANGEBYSCORE,
    range::ZRANGESTORE,
    members::ZRANK,
    remove::ZREM,
    remove::ZREMRANGEBYLEX,
    remove::ZREMRANGEBYRANK,
    remove::ZREMRANGEBYSCORE,
    range::ZREVRANGE,
    range::ZREVRANGEBYLEX,
    range::ZREVRANGEBYSCORE,
    members::ZREVRANK,
    scan::ZSCAN,
    members::ZSCORE,
    combine::ZUNION,
    combine::ZUNIONSTORE,
];

/// A member as a bulk string.
#[inline]
pub(super) fn reply_member(reply: &mut ReplyBuffer, member: Element<'_>) {
    match member {
        Element::Integer(integer) => reply.bulk_integer(integer),
        Element::String(text) => reply.bulk(text),
    }
}

/// Writes members, with their scores if they are wanted: behind each member in RESP2, in pairs in
/// RESP3.
struct MemberReply<'r> {
    reply: &'r mut ReplyBuffer,
    scores: bool,
    in_pairs: bool,
}

impl<'r> MemberReply<'r> {
    /// Begins the answer of `count` members.
    fn begin(reply: &'r mut ReplyBuffer, count: usize, scores: bool) -> Self {
        let in_pairs = scores && reply.protocol() == Protocol::Resp3;
        reply.array(if scores && !in_pairs { 2 * count } else { count });
        Self { reply, scores, in_pairs }
    }

    #[inline]
    fn member(&mut self, member: Element<'_>, score: f64) {
        if self.in_pairs {
            self.reply.array(2);
        }
        reply_member(self.reply, member);
        if self.scores {
            self.reply.double(score);
        }
    }
}

/// The sorted set of an entry.
pub(super) fn set_of(entry: EntryRef<'_>) -> Option<CollectionRef<'_, SortedSet>> {
    entry.object().and_then(CollectionRef::of)
}

/// Reports that members were removed, and the key if it went with the last of them.
fn notify_removal(context: &mut WriteContext<'_>, event: &'static str, key: &[u8], is_empty: bool) {
    context.notify(EventClass::SortedSet, event, key);
    if is_empty {
        context.notify(EventClass::Generic, "del", key);
    }
}
