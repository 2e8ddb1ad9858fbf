//! When to look for entries that have expired, at no cost per entry.
//!
//! ```text
//! table minimum ≤ block minimum (128 buckets) ≤ bucket's deadline (its chain) ≤ the deadlines of its entries
//! ```
//!
//! Each is a [`Tick`] or none. Deadlines are hints: noting one lowers all three; removing an entry raises
//! none, so a hint may be too early and costs a look, but is never too late. Splitting gives both halves the
//! old hint, merging keeps the earlier. `due` looks where the hints say, asks the owner about each entry, and
//! makes the hints exact again.

use super::bucket::Bucket;
use super::directory::{block_of, buckets_of};
use super::{BucketTable, Slot, Tick};
use crate::slab::Handle;

/// The owner's answer about an entry of a due bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The entry has no deadline.
    Keep,
    /// The entry has this one.
    KeepUntil(Tick),
    /// The entry goes; its handle is the owner's to free.
    Remove,
}

impl BucketTable {
    /// Notes that the entry in a slot has a deadline. O(1).
    #[inline]
    pub fn note_deadline(&mut self, slot: Slot, deadline: Tick) {
        let bucket = self.primary(slot.primary);
        if bucket.deadline().is_none_or(|noted| deadline.is_before(noted)) {
            bucket.set_deadline(Some(deadline));
            self.probe.primary.lower_minimum(block_of(slot.primary), deadline);
            self.minimum = Tick::earlier(self.minimum, Some(deadline));
        }
    }

    /// Not later than the earliest deadline in the table; `None` when no entry has one. O(1).
    #[inline]
    pub fn next_deadline(&self) -> Option<Tick> {
        self.minimum
    }

    /// Looks at up to `buckets_max` buckets that may hold an entry due at `now`: hands each of their entries
    /// to `judge` and acts on its verdict. Returns the number of buckets looked at; less than the limit means
    /// that nothing due is left. The next call goes on where this one stopped.
    ///
    /// O(1) when nothing is due; else one word per 128 buckets, and a line per bucket of a due block.
    pub fn due(&mut self, now: Tick, buckets_max: usize, mut judge: impl FnMut(Handle) -> Verdict) -> usize {
        if !self.minimum.is_some_and(|minimum| minimum.is_due(now)) {
            return 0;
        }
        let len = self.len;
        let visited = self.judge_due(now, buckets_max, &mut judge);
        // As many chances to merge as single removals would have had.
        for _ in self.len..len {
            if self.len >= self.merge_below {
                break;
            }
            self.shrink();
        }
        visited
    }

    fn judge_due(
        &mut self,
        now: Tick,
        buckets_max: usize,
        judge: &mut impl FnMut(Handle) -> Verdict,
    ) -> usize {
        let blocks = self.blocks_needed();
        let first = if self.due_block < blocks { self.due_block } else { 0 };
        let mut visited = 0;
        for block in (first..blocks).chain(0..first) {
            if !self.probe.primary.minimum(block).is_some_and(|minimum| minimum.is_due(now)) {
                continue;
            }
            let buckets = buckets_of(block);
            let mut minimum = None;
            for index in buckets.start..buckets.end.min(self.buckets) {
                let mut deadline = self.primary(index).deadline();
                if deadline.is_some_and(|deadline| deadline.is_due(now)) {
                    if visited == buckets_max {
                        self.due_block = block;
                        return visited;
                    }
                    visited += 1;
                    deadline = self.judge_chain(index, judge);
                }
                minimum = Tick::earlier(minimum, deadline);
            }
            self.probe.primary.set_minimum(block, minimum);
        }
        self.due_block = 0;
        self.minimum = (0..blocks)
            .fold(None, |minimum, block| Tick::earlier(minimum, self.probe.primary.minimum(block)));
        visited
    }

    /// Asks about every entry of a chain; notes and returns the earliest deadline of those that stay.
    fn judge_chain(&mut self, primary: u32, judge: &mut impl FnMut(Handle) -> Verdict) -> Option<Tick> {
        let mut deadline = None;
        let mut removed = 0;
        let mut judge_bucket = |bucket: &Bucket| {
            for position in bucket.occupied() {
                let Some(handle) = bucket.handle(position) else { continue };
                match judge(handle) {
                    Verdict::Keep => {}
                    Verdict::KeepUntil(tick) => deadline = Tick::earlier(deadline, Some(tick)),
                    Verdict::Remove => {
                        bucket.vacate(position);
                        removed += 1;
                    }
                }
            }
            bucket.link()
        };
        let bucket = self.primary(primary);
        let mut link = judge_bucket(bucket);
        let chained = link.is_some();
        while let Some(number) = link {
            link = judge_bucket(self.overflow_bucket(number));
        }
        bucket.set_deadline(deadline);
        self.len -= removed;
        if chained && removed > 0 {
            // The gaps are anywhere in the chain: build it anew.
            self.redistribute(primary, |_| primary);
        }
        deadline
    }
}
