//! Replies that must not leave yet, with the pushes among them.
//!
//! ```text
//! served ──▶ [level 0 to 7 | output] [level 2 to 9 | output] ── level 0 is at 8 ──▶ the first becomes output
//! ```
//!
//! A part whose commitment cannot be met is *refused*: an error takes the place of each reply in it that has seen too
//! much, and the rest leaves as it is.
//!
//! Invariants: marks of a level grow from front to back; parts leave in order, whatever their levels. An empty part bars
//! the way to those behind it. The replies of a part take all of its bytes, unless they are not known one by one.

use std::collections::VecDeque;
use std::sync::Arc;

use dunlin_resp::ReplyBuffer;

use super::{output::Output, service::SeenReply};

/// The place that one of the service's measures has to come to before a reply may leave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Commitment {
    /// Which measure: the service's own number.
    pub level: u8,
    /// The place; 0 for a reply that may leave at once.
    pub mark: u64,
}

/// Replies that wait for one commitment.
#[derive(Debug, Default)]
struct Part {
    commitment: Commitment,
    output: Output,
    /// The replies in it.
    replies: Vec<SeenReply>,
    /// Not all replies are known one by one.
    is_opaque: bool,
}

impl Part {
    /// Puts an error in the place of each reply that has seen more than `released`.
    fn refuse(&mut self, released: u64, error: &[u8]) {
        let output = std::mem::take(&mut self.output);
        let replies = std::mem::take(&mut self.replies);
        let is_refused = |reply: &&SeenReply| reply.mark > released;
        if replies.iter().all(|reply| is_refused(&reply)) {
            replies.iter().for_each(|_| self.output.gather(error));
        } else {
            let (bytes, mut at) = (output.to_vec(), 0);
            for reply in &replies {
                let own = &bytes[at..at + reply.bytes];
                at += reply.bytes;
                self.output.gather(if is_refused(&reply) { error } else { own });
            }
        }
        self.commitment = Commitment::default();
    }
}

#[derive(Debug, Default)]
pub(crate) struct Withheld {
    #[expect(clippy::box_collection, reason = "one word in the many connections that never have any")]
    parts: Option<Box<VecDeque<Part>>>,
    bytes: usize,
    /// The commitments of parts that the worker has not asked for yet.
    news: Vec<Commitment>,
}

impl Withheld {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_none()
    }

    /// Bytes that are withheld.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// Withholds replies until their commitment is met, and at least as long as what was withheld before. Leaves
    /// `reply` empty; an empty one needs no commitment. `replies` are what it consists of, or none if that is not
    /// known.
    pub(crate) fn push(&mut self, commitment: Commitment, reply: &mut ReplyBuffer, replies: &[SeenReply]) {
        if reply.is_empty() {
            return;
        }
        debug_assert!(
            replies.is_empty() || replies.iter().map(|reply| reply.bytes).sum::<usize>() == reply.len()
        );
        self.bytes += reply.len();
        let part = self.part(commitment);
        part.output.push(reply, 0);
        part.replies.extend(replies);
        part.is_opaque |= replies.is_empty();
    }

    /// Withholds a single reply, as [`Self::push`] does.
    pub(crate) fn push_one(&mut self, commitment: Commitment, reply: &mut ReplyBuffer) {
        let one = SeenReply { bytes: reply.len(), mark: commitment.mark };
        self.push(commitment, reply, &[one]);
    }

    /// Makes replies that are pushed next wait for this, too: pushes with that commitment stand among them.
    pub(crate) fn bar(&mut self, commitment: Commitment) {
        self.part(commitment);
    }

    /// The last part, which waits for this commitment at least.
    fn part(&mut self, commitment: Commitment) -> &mut Part {
        let parts = self.parts.get_or_insert_default();
        let is_covered = |Part { commitment: last, .. }: &Part| {
            commitment.mark == 0 || last.level == commitment.level && last.mark >= commitment.mark
        };
        if !parts.back().is_some_and(is_covered) {
            parts.push_back(Part { commitment, ..Part::default() });
            self.news.push(commitment);
        }
        parts.back_mut().expect("there is a part")
    }

    /// Queues bytes that may go to other clients too, behind what is withheld; `false` if nothing is.
    #[inline]
    pub(crate) fn push_shared(&mut self, bytes: &Arc<Vec<u8>>) -> bool {
        let last = self.parts.as_mut().and_then(|parts| parts.back_mut());
        if let Some(part) = last {
            part.output.push_shared(bytes);
            part.replies.push(SeenReply { bytes: bytes.len(), mark: 0 });
            self.bytes += bytes.len();
            return true;
        }
        false
    }

    /// The commitments of new parts, each once.
    #[inline]
    pub(crate) fn take_news(&mut self) -> Vec<Commitment> {
        std::mem::take(&mut self.news)
    }

    /// Moves what was withheld to the output, up to the first part whose commitment is not met.
    pub(crate) fn release(&mut self, is_met: impl Fn(Commitment) -> bool, output: &mut Output) {
        let Some(parts) = &mut self.parts else { return };
        while parts.front().is_some_and(|first| first.commitment.mark == 0 || is_met(first.commitment))
            && let Some(part) = parts.pop_front()
        {
            self.bytes -= part.output.len();
            output.append(part.output);
        }
        if parts.is_empty() {
            self.parts = None;
        }
    }

    /// Lets the parts that wait for this level leave with errors in them, but for those whose commitment is met
    /// by `released`. `false`: it is not known how many replies there are, and nothing has changed.
    pub(crate) fn refuse(&mut self, level: u8, released: u64, error: &[u8]) -> bool {
        let Some(parts) = &mut self.parts else { return true };
        let waits = |part: &Part| part.commitment.level == level && part.commitment.mark > released;
        if parts.iter().any(|part| waits(part) && part.is_opaque) {
            return false;
        }
        for part in parts.iter_mut().filter(|part| waits(part)) {
            self.bytes -= part.output.len();
            part.refuse(released, error);
            self.bytes += part.output.len();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(level: u8, mark: u64) -> Commitment {
        Commitment { level, mark }
    }

    #[test]
    fn replies_leave_in_order_and_not_before_their_mark() {
        let (mut withheld, mut output) = (Withheld::default(), Output::default());
        let mut reply = ReplyBuffer::default();
        withheld.push_one(to(0, 5), &mut reply);
        assert!(withheld.is_empty() && withheld.take_news().is_empty(), "nothing was said");
        for (mark, news) in [(5, Some(5)), (5, None), (0, None), (9, Some(9)), (7, None)] {
            reply.ok();
            withheld.push_one(to(0, mark), &mut reply);
            assert_eq!(withheld.take_news(), news.map(|mark| to(0, mark)).into_iter().collect::<Vec<_>>());
        }
        assert_eq!(withheld.len(), 25);
        let up_to = |mark| move |commitment: Commitment| commitment.mark <= mark;
        withheld.release(up_to(4), &mut output);
        assert!(output.is_empty());
        withheld.release(up_to(8), &mut output);
        assert_eq!((output.len(), withheld.len()), (15, 10));
        withheld.release(up_to(9), &mut output);
        assert_eq!((output.len(), withheld.len()), (25, 0));
        assert!(withheld.is_empty());
    }

    #[test]
    fn bar_holds_up_the_reply_behind_it() {
        let (mut withheld, mut output) = (Withheld::default(), Output::default());
        let mut reply = ReplyBuffer::default();
        withheld.bar(to(2, 5));
        reply.ok();
        withheld.push_one(to(0, 3), &mut reply);
        assert_eq!(withheld.take_news(), [to(2, 5), to(0, 3)]);
        withheld.release(|commitment| commitment.level == 0, &mut output);
        assert!(output.is_empty() && !withheld.is_empty());
        withheld.release(|_| true, &mut output);
        assert!(output.len() == 5 && withheld.is_empty());
    }

    #[test]
    fn reply_of_another_level_waits_for_itself_and_earlier_ones() {
        let (mut withheld, mut output) = (Withheld::default(), Output::default());
        let mut reply = ReplyBuffer::default();
        for commitment in [to(2, 5), to(0, 5), to(2, 4)] {
            reply.ok();
            withheld.push_one(commitment, &mut reply);
        }
        assert_eq!(withheld.take_news(), [to(2, 5), to(0, 5), to(2, 4)]);
        withheld.release(|commitment| commitment.level == 0, &mut output);
        assert!(output.is_empty(), "the first one is of another level");
        withheld.release(|commitment| commitment.level == 2, &mut output);
        assert_eq!((output.len(), withheld.len()), (5, 10));
        withheld.release(|_| true, &mut output);
        assert_eq!(output.len(), 15);
    }

    fn seen(bytes: usize, mark: u64) -> SeenReply {
        SeenReply { bytes, mark }
    }

    fn sent(withheld: &mut Withheld, is_met: impl Fn(Commitment) -> bool) -> String {
        let mut output = Output::default();
        withheld.release(is_met, &mut output);
        String::from_utf8(output.to_vec()).unwrap()
    }

    #[test]
    fn refused_part_keeps_replies_that_saw_less() {
        let (mut withheld, mut reply) = (Withheld::default(), ReplyBuffer::default());
        reply.integer(1);
        reply.integer(2);
        reply.raw(b">push");
        reply.integer(3);
        withheld.push(to(0, 9), &mut reply, &[seen(4, 5), seen(4, 9), seen(5, 0), seen(4, 8)]);
        reply.ok();
        withheld.push_one(to(2, 3), &mut reply);
        reply.integer(4);
        withheld.push_one(to(0, 10), &mut reply);
        assert!(withheld.refuse(0, 5, b"-E\r\n"));
        assert_eq!(
            sent(&mut withheld, |_| false),
            ":1\r\n-E\r\n>push-E\r\n",
            "the rest is behind another level"
        );
        assert_eq!(withheld.len(), 9);
        assert_eq!(sent(&mut withheld, |commitment| commitment.level == 2), "+OK\r\n-E\r\n");
        assert!(withheld.is_empty());
    }

    #[test]
    fn refuse_ignores_parts_released_or_unknown() {
        let (mut withheld, mut reply) = (Withheld::default(), ReplyBuffer::default());
        reply.ok();
        withheld.push_one(to(0, 5), &mut reply);
        assert!(withheld.refuse(0, 5, b"-E\r\n") && withheld.refuse(1, 0, b"-E\r\n"));
        assert_eq!(sent(&mut withheld, |_| true), "+OK\r\n");
        reply.ok();
        withheld.push(to(0, 7), &mut reply, &[]);
        assert!(!withheld.refuse(0, 5, b"-E\r\n"));
    }
}
