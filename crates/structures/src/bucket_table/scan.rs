//! Looking at many entries: all, some from anywhere, or piece by piece while the table changes.

use super::bucket::SLOTS_PER_BUCKET;
use super::directory::{block_of, buckets_of};
use super::probe::index_of;
use super::{BucketTable, Entries};
use crate::slab::Handle;

/// Draws of a random bucket and slot before `random` takes the next entry instead.
const RANDOM_DRAWS_MAX: usize = 128;
/// Slots drawn from: a primary bucket's, and as many of a usual chain.
const RANDOM_SLOTS: u32 = 2 * SLOTS_PER_BUCKET as u32;

impl BucketTable {
    /// Visits some entries and returns the cursor for the next call; begin with 0, 0 means the end.
    ///
    /// Each entry that is in the table from the call with 0 to the call that returns 0 is visited at least
    /// once, however the table grows and shrinks between the calls. An entry is visited twice only if the
    /// table shrank meanwhile. Cursors stay below 2^32. Visits one or two chains: about 10 to 20 entries.
    ///
    /// Why: read a hash's bits from the lowest to the highest as a binary fraction r(hash) in [0, 1), and the
    /// cursor likewise. With L address bits, the entries whose hash ends in the L bits `v` are exactly those
    /// with r in one interval of length 2^-L that starts at r(v). Linear hashing keeps them in bucket v and,
    /// when v is behind the split pointer (bucket v + 2^L exists), in bucket v + 2^L, and nowhere else. A
    /// call takes the interval of the table's *present* L that the cursor lies in, visits its one or two
    /// buckets, and answers with the interval's end: incrementing the reversed number. So at any time all
    /// entries with r below the cursor's have been visited. A growing L only makes the next intervals
    /// smaller. A shrinking L makes the interval begin before the cursor, and what lies between is visited
    /// again. The cursor reaches 1, written as 0, when all intervals are done.
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(Handle)) -> u64 {
        let Some(level) = self.buckets.checked_ilog2() else { return 0 };
        let size = 1 << level;
        let index = cursor as u32 & (size - 1);
        self.for_each_in_chain(index, &mut visit);
        if index + size < self.buckets {
            self.for_each_in_chain(index + size, &mut visit);
        }
        // Setting the bits above L lets the increment carry into the highest of the L.
        let reversed = (index | !(size - 1)).reverse_bits();
        u64::from(reversed.wrapping_add(1).reverse_bits())
    }

    /// [`scan`](Self::scan) without repetitions: an entry that is in the table throughout is visited exactly once, any other at
    /// most once.
    ///
    /// Why: the entries with r below the cursor's are those that earlier calls have visited. Such entries come again
    /// only if the interval of the present L begins before the cursor, because the table has shrunk; their hashes
    /// distinguish them.
    pub fn scan_once(&self, cursor: u64, entries: &impl Entries, mut visit: impl FnMut(Handle)) -> u64 {
        let cursor_bits = cursor as u32;
        if u64::from(cursor_bits) >> self.level() == 0 {
            return self.scan(cursor, visit);
        }
        let begin = cursor_bits.reverse_bits();
        self.scan(cursor, |handle| {
            if (entries.hash(handle) as u32).reverse_bits() >= begin {
                visit(handle);
            }
        })
    }

    /// Address bits: the table has 2^level buckets, and some that were split off these.
    pub fn level(&self) -> u32 {
        self.buckets.checked_ilog2().unwrap_or(0)
    }

    /// Visits the entries whose hash ends in the `level` low bits of `region`; if the table has fewer address bits by
    /// now, others with them, which the caller distinguishes by their hashes. O(1) an entry, and O(1).
    pub fn for_each_in_region(&self, region: u32, level: u32, mut visit: impl FnMut(Handle)) {
        if self.buckets == 0 {
            return;
        }
        let size = 1 << level;
        debug_assert!(region < size, "a region has no more bits than the level");
        if self.buckets < size {
            return self.for_each_in_chain(index_of(region.into(), self.buckets), visit);
        }
        for index in (region..self.buckets).step_by(size as usize) {
            self.for_each_in_chain(index, &mut visit);
        }
    }

    /// Visits every entry once, in no order.
    pub fn for_each(&self, mut visit: impl FnMut(Handle)) {
        for index in 0..self.buckets {
            self.for_each_in_chain(index, &mut visit);
        }
    }

    /// Ends the table: hands every handle to `free`, then returns all memory. O(n), on any thread.
    pub fn drain(self, free: impl FnMut(Handle)) {
        self.for_each(free);
    }

    /// An entry chosen with equal probability (less in chains of more than 24), from 64
    /// random bits. O(1) expected.
    pub fn random(&self, random: u64) -> Option<Handle> {
        if self.len == 0 {
            return None;
        }
        // A draw that hits an empty slot is repeated, so that the slots' chances are equal.
        let mut state = random;
        let mut index = 0;
        for _ in 0..RANDOM_DRAWS_MAX {
            let bits = next_random(&mut state);
            index = scale(bits, self.buckets);
            let mut chain_len = 0;
            self.for_each_in_chain(index, |_| chain_len += 1);
            let mut left = scale(bits >> 32, chain_len.max(RANDOM_SLOTS));
            if left >= chain_len {
                continue;
            }
            let mut chosen = None;
            self.for_each_in_chain(index, |handle| {
                if left == 0 {
                    chosen = Some(handle);
                }
                left = left.wrapping_sub(1);
            });
            return chosen;
        }
        let mut found = None;
        self.sample_from(index, 1, |handle| found = Some(handle));
        found
    }

    /// Visits at least `count` entries that are neighbours at a random place, or all if there are fewer, and
    /// returns how many. Cheaper than as many calls of [`random`](Self::random): about ten from each bucket.
    pub fn sample(&self, random: u64, count: usize, visit: impl FnMut(Handle)) -> usize {
        let mut state = random;
        self.sample_from(scale(next_random(&mut state), self.buckets), count, visit)
    }

    /// Hands the entries of neighbouring buckets to `visit`, from a random place on and a chain at a time, until it
    /// answers that this is enough, or `buckets_max` buckets have been looked at. With `deadlines_only` buckets none of
    /// whose entries has a deadline are passed over, and blocks of 128 such buckets in one look. `chain` is scratch space.
    pub fn visit_chains(
        &self,
        random: u64,
        buckets_max: usize,
        deadlines_only: bool,
        chain: &mut Vec<Handle>,
        mut visit: impl FnMut(&[Handle]) -> bool,
    ) {
        let start = scale(random, self.buckets);
        let (mut index, mut passed, mut looks) = (start, 0, 0);
        while passed < self.buckets && looks < buckets_max {
            looks += 1;
            if deadlines_only && self.probe.primary.minimum(block_of(index)).is_none() {
                let end = buckets_of(block_of(index)).end.min(self.buckets);
                passed += end - index;
                index = if end == self.buckets { 0 } else { end };
                continue;
            }
            if !deadlines_only || self.primary(index).deadline().is_some() {
                chain.clear();
                self.for_each_in_chain(index, |handle| chain.push(handle));
                if !chain.is_empty() && visit(chain) {
                    return;
                }
            }
            passed += 1;
            index = if index + 1 == self.buckets { 0 } else { index + 1 };
        }
    }

    fn sample_from(&self, start: u32, count: usize, mut visit: impl FnMut(Handle)) -> usize {
        let mut visited = 0;
        for index in (start..self.buckets).chain(0..start) {
            if visited >= count {
                break;
            }
            self.for_each_in_chain(index, |handle| {
                visit(handle);
                visited += 1;
            });
        }
        visited
    }
}

/// Maps the lower 32 bits onto 0..end.
fn scale(bits: u64, end: u32) -> u32 {
    ((u64::from(bits as u32) * u64::from(end)) >> 32) as u32
}

/// SplitMix64 (Steele, Lea, Flood, 2014).
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut bits = *state;
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
