//! Replies on their way out: those of several connections leave together.
//!
//! ```text
//! turn a ─▶ ┐
//! turn b ─▶ ├─ gathered ─▶ write a, write b, write c
//! turn c ─▶ ┘
//! ```
//!
//! A write to a socket whose reader sleeps wakes it, which is a large part of the cost of the write. If one
//! program has many connections, the first of several writes in a row wakes it, and the others find it awake.
//! Decision 0014 has the figures.
//!
//! Invariant: nothing overtakes a reply that is gathered. Gathered replies leave before their connection has another
//! turn, is resumed or is closed, before messages are read, before others are attended to in a nested poll, and before
//! the worker sleeps.

use std::ops::Range;

use dunlin_resp::ReplyBuffer;

use super::Address;
use super::connection::REPLY_CAPACITY_MAX;

/// Replies that are gathered.
const REPLIES_MAX: usize = 16;
/// Bytes that are gathered; a reply that finds no room leaves at once.
const BYTES_MAX: usize = 32 * 1024;
/// A first reply of this many bytes is not copied: its buffer is exchanged for the empty one here.
const EXCHANGED_BYTES_MIN: usize = 1024;
/// Bytes of requests that may be served while a reply waits here: what bounds how long.
const SERVED_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(crate) struct PendingWrites {
    bytes: Vec<u8>,
    replies: Vec<(Address, Range<usize>)>,
    /// Bytes of the requests that were served since the first of the replies.
    served_bytes: usize,
}

impl PendingWrites {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    /// Whether those that are gathered should leave.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.replies.len() >= REPLIES_MAX || self.served_bytes >= SERVED_BYTES_MAX
    }

    /// Whether a reply of that many bytes may be gathered.
    #[inline]
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.bytes.len() + bytes <= BYTES_MAX
    }

    /// Notes that a connection's requests have been served.
    #[inline]
    pub(crate) fn note_served(&mut self, bytes: usize) {
        if !self.is_empty() {
            self.served_bytes += bytes;
        }
    }

    /// Gathers a reply that has no shared payloads. The caller clears the reply's buffer afterwards.
    #[inline]
    pub(crate) fn push(&mut self, address: Address, reply: &mut ReplyBuffer) {
        let start = self.bytes.len();
        if start > 0
            || reply.len() < EXCHANGED_BYTES_MIN
            || !reply.exchange(&mut self.bytes, REPLY_CAPACITY_MAX)
        {
            self.bytes.extend_from_slice(reply.bytes());
        }
        self.replies.push((address, start..self.bytes.len()));
    }

    /// The replies in the order in which they were gathered.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Address, &[u8])> {
        self.replies.iter().map(|(address, range)| (*address, &self.bytes[range.clone()]))
    }

    /// This buffer's memory, empty.
    pub(crate) fn recycle(mut self) -> Self {
        self.bytes.clear();
        self.replies.clear();
        self.served_bytes = 0;
        self
    }
}
