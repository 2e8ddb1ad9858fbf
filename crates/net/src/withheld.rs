//! Replies that must not leave yet.
//!
//! ```text
//! served ──▶ [to mark 7 | output] [to mark 9 | output] ──released up to 8──▶ the first becomes output
//! ```
//!
//! Invariants: marks grow from front to back; no part is empty.

use std::collections::VecDeque;
use std::sync::Arc;

use dunlin_resp::ReplyBuffer;

use super::output::Output;

#[derive(Debug, Default)]
pub(crate) struct Withheld {
    #[expect(clippy::box_collection, reason = "one word in the many connections that never have any")]
    parts: Option<Box<VecDeque<(u64, Output)>>>,
    bytes: usize,
    /// The mark of a part that the worker has not asked for yet.
    news: Option<u64>,
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

    /// Withholds a reply up to a mark, and at least as long as what was withheld before. Leaves `reply`
    /// empty; an empty one needs no mark.
    pub(crate) fn push(&mut self, mark: u64, reply: &mut ReplyBuffer) {
        if reply.is_empty() {
            return;
        }
        self.bytes += reply.len();
        let parts = self.parts.get_or_insert_default();
        match parts.back_mut() {
            Some((last, output)) if *last >= mark => output.push(reply, 0),
            _ => {
                let mut output = Output::default();
                output.push(reply, 0);
                parts.push_back((mark, output));
                self.news = Some(mark);
            }
        }
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

    /// The mark of a new part, once.
    #[inline]
    pub(crate) fn take_news(&mut self) -> Option<u64> {
        self.news.take()
    }

    /// Moves what was withheld up to a mark to the output.
    pub(crate) fn release(&mut self, mark: u64, output: &mut Output) {
        let Some(parts) = &mut self.parts else { return };
        while parts.front().is_some_and(|(first, _)| *first <= mark)
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

    #[test]
    fn replies_leave_in_order_and_not_before_their_mark() {
        let (mut withheld, mut output) = (Withheld::default(), Output::default());
        let mut reply = ReplyBuffer::default();
        withheld.push(5, &mut reply);
        assert!(withheld.is_empty() && withheld.take_news().is_none(), "nothing was said");
        for (mark, news) in [(5, Some(5)), (5, None), (0, None), (9, Some(9)), (7, None)] {
            reply.ok();
            withheld.push(mark, &mut reply);
            assert_eq!(withheld.take_news(), news);
        }
        assert_eq!(withheld.len(), 25);
        withheld.release(4, &mut output);
        assert!(output.is_empty());
        withheld.release(8, &mut output);
        assert_eq!((output.len(), withheld.len()), (15, 10));
        withheld.release(9, &mut output);
        assert_eq!((output.len(), withheld.len()), (25, 0));
        assert!(withheld.is_empty());
    }
}
