//! Replies that must not leave yet, with the pushes among them.
//!
//! ```text
//! served ──▶ [level 0 to 7 | output] [level 2 to 9 | output] ── level 0 is at 8 ──▶ the first becomes output
//! ```
//!
//! Invariants: marks of a level grow from front to back; parts leave in order, whatever their levels. An empty part bars
//! the way to those behind it.

use std::collections::VecDeque;
use std::sync::Arc;

use dunlin_resp::ReplyBuffer;

use super::output::Output;

/// The place that one of the service's measures has to come to before a reply may leave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Commitment {
    /// Which measure: the service's own number.
    pub level: u8,
    /// The place; 0 for a reply that may leave at once.
    pub mark: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Withheld {
    #[expect(clippy::box_collection, reason = "one word in the many connections that never have any")]
    parts: Option<Box<VecDeque<(Commitment, Output)>>>,
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

    /// Withholds a reply until its commitment is met, and at least as long as what was withheld before. Leaves `reply`
    /// empty; an empty one needs no commitment.
    pub(crate) fn push(&mut self, commitment: Commitment, reply: &mut ReplyBuffer) {
        if reply.is_empty() {
            return;
        }
        self.bytes += reply.len();
        self.part(commitment).push(reply, 0);
    }

    /// Has replies that are pushed next wait for this, too: pushes with that commitment stand among them.
    pub(crate) fn bar(&mut self, commitment: Commitment) {
        self.part(commitment);
    }

    /// The last part, which waits for this commitment at least.
    fn part(&mut self, commitment: Commitment) -> &mut Output {
        let parts = self.parts.get_or_insert_default();
        let is_covered = |(last, _): &(Commitment, Output)| {
            commitment.mark == 0 || last.level == commitment.level && last.mark >= commitment.mark
        };
        if !parts.back().is_some_and(is_covered) {
            parts.push_back((commitment, Output::default()));
            self.news.push(commitment);
        }
        &mut parts.back_mut().expect("there is a part").1
    }

    /// Queues bytes that may go to other clients too, behind what is withheld; `false` where nothing is.
    #[inline]
    pub(crate) fn push_shared(&mut self, bytes: &Arc<Vec<u8>>) -> bool {
        let last = self.parts.as_mut().and_then(|parts| parts.back_mut());
        if let Some((_, output)) = last {
            output.push_shared(bytes);
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
        while parts.front().is_some_and(|(first, _)| is_met(*first))
            && let Some((_, part)) = parts.pop_front()
        {
            self.bytes -= part.len();
            output.append(part);
        }
        if parts.is_empty() {
            self.parts = None;
        }
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
        withheld.push(to(0, 5), &mut reply);
        assert!(withheld.is_empty() && withheld.take_news().is_empty(), "nothing was said");
        for (mark, news) in [(5, Some(5)), (5, None), (0, None), (9, Some(9)), (7, None)] {
            reply.ok();
            withheld.push(to(0, mark), &mut reply);
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
    fn a_bar_holds_up_the_reply_behind_it() {
        let (mut withheld, mut output) = (Withheld::default(), Output::default());
        let mut reply = ReplyBuffer::default();
        withheld.bar(to(2, 5));
        reply.ok();
        withheld.push(to(0, 3), &mut reply);
        assert_eq!(withheld.take_news(), [to(2, 5), to(0, 3)]);
        withheld.release(|commitment| commitment.level == 0, &mut output);
        assert!(output.is_empty() && !withheld.is_empty());
        withheld.release(|_| true, &mut output);
        assert!(output.len() == 5 && withheld.is_empty());
    }

    #[test]
    fn a_reply_of_another_level_waits_for_its_own_and_for_those_before() {
        let (mut withheld, mut output) = (Withheld::default(), Output::default());
        let mut reply = ReplyBuffer::default();
        for commitment in [to(2, 5), to(0, 5), to(2, 4)] {
            reply.ok();
            withheld.push(commitment, &mut reply);
        }
        assert_eq!(withheld.take_news(), [to(2, 5), to(0, 5), to(2, 4)]);
        withheld.release(|commitment| commitment.level == 0, &mut output);
        assert!(output.is_empty(), "the first one is of another level");
        withheld.release(|commitment| commitment.level == 2, &mut output);
        assert_eq!((output.len(), withheld.len()), (5, 10));
        withheld.release(|_| true, &mut output);
        assert_eq!(output.len(), 15);
    }
}
