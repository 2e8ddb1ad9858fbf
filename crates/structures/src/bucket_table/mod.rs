//! Linear hashing (Litwin, 1980) from 64-bit hashes to 32-bit handles, over buckets of one cache line.
//!
//! ```text
//! N = 2^L + p buckets          hash's low L+1 bits, or L bits where that bucket does not exist yet
//!
//! bucket   0 … p-1 │ p … 2^L-1 │ 2^L … N-1        growing splits bucket p into p and p + 2^L = N;
//!           split  │ not split │ other halves      shrinking merges bucket N-1 into N-1 - 2^L
//!
//! primary bucket (12 slots) ──full──▶ overflow bucket ──▶ … ──▶ overflow bucket
//!                                     the only one with room     full, 12 slots
//! ```
//!
//! An insertion splits at most one bucket, so there is no pause and never a second table. The table has
//! never heard of keys: callers bring the hash, a closure that recognizes their entry, and [`Entries`] to
//! hash entries again when a bucket splits.
//!
//! Invariants: a bucket is chained only when its other 11 slots are full. Only the *first* overflow
//! bucket of a chain may have room (at least one entry; at least two if it is also the last). So an
//! insertion looks at two buckets however long the chain is. Fingerprints do not depend on N.

mod bucket;
mod deadlines;
mod directory;
mod overflow;
mod probe;
mod scan;
mod tick;

#[cfg(test)]
mod tests;

pub use bucket::SLOTS_PER_BUCKET;
pub use deadlines::Verdict;
pub use probe::{BucketProbe, Candidate, TableProbe};
pub use tick::Tick;

use crate::page_pool::PagePool;
use crate::slab::Handle;
use bucket::{Bucket, fingerprint};
use directory::{DIRECTORY_BUCKETS_MAX, block_of};
use overflow::OverflowMap;
use probe::index_of;
use std::sync::Arc;

/// Buckets a table grows to; from there on, chains grow.
pub const BUCKETS_MAX: u32 = DIRECTORY_BUCKETS_MAX;

const BUCKETS_MIN: u32 = 2;
/// Entries per 100 primary slots above which an insertion splits a bucket. Measured between two doublings at a
/// million entries (`examples/table_cost.rs`), overflow buckets and directories included:
///
/// | percent | bytes an entry, mean | entries in overflow |
/// |---|---|---|
/// | 70 | 8.59 to 8.99, 8.80 | 4 to 9% |
/// | 72 | 8.46 to 8.86, 8.67 | 4 to 10% |
/// | 75 | 8.28 to 8.69, 8.49 | 5 to 11% |
/// | 80 | 7.95 to 8.47, 8.24 | 7 to 13% |
/// | 84 | 7.75 to 8.32, 8.08 | 8 to 15% |
///
/// Half a byte more than at 80 spares a quarter of the second cache misses (docs/decisions/0004).
const SPLIT_PERCENT: usize = 72;
/// Entries per 100 primary slots below which a removal merges two buckets: far enough from the other that
/// a table of changing size does not split and merge by turns.
const MERGE_PERCENT: usize = SPLIT_PERCENT / 2;
/// This many insertions before a split, the entries of the bucket to split are prefetched.
const PREPARE_INSERTIONS: usize = 4;

/// The entries behind a table's handles, as far as the table has to know them.
pub trait Entries {
    /// The hash that the handle was inserted with.
    fn hash(&self, handle: Handle) -> u64;
    /// [`hash`](Self::hash) will soon be asked of this handle.
    fn prefetch(&self, handle: Handle);
}

/// The place of an entry in a table. Valid until the table's next insertion, removal or `due`; used later, it
/// may name another entry or make the table panic.
#[derive(Debug, Clone, Copy)]
pub struct Slot {
    primary: u32,
    place: Place,
    position: u8,
    handle: Handle,
}

impl Slot {
    /// The handle found there.
    #[inline]
    pub fn handle(&self) -> Handle {
        self.handle
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Primary,
    Overflow(u32),
}

/// A table of handles; see the module's head. An empty one takes no buckets; dropping it, on any thread,
/// returns everything once the last [`TableProbe`] of it is gone too.
pub struct BucketTable {
    probe: Arc<TableProbe>,
    /// N; 0 before the first insertion.
    buckets: u32,
    len: usize,
    split_above: usize,
    merge_below: usize,
    overflow: OverflowMap,
    /// Not later than any block's minimum.
    minimum: Option<Tick>,
    /// The block at which the next search for due buckets begins.
    due_block: u32,
}

impl BucketTable {
    /// An empty table whose bigger blocks come from `pool`.
    pub fn new(pool: Arc<PagePool>) -> Self {
        Self {
            probe: Arc::new(TableProbe::new(pool)),
            buckets: 0,
            len: 0,
            split_above: 0,
            merge_below: 0,
            overflow: OverflowMap::default(),
            minimum: None,
            due_block: 0,
        }
    }

    /// The view for other threads' prefetches.
    pub fn probe(&self) -> &Arc<TableProbe> {
        &self.probe
    }

    /// Entries in the table.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the table has no entry.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Primary buckets.
    pub fn buckets(&self) -> u32 {
        self.buckets
    }

    /// Entries outside their primary bucket: the share of successful lookups that read a second line or more.
    /// O(N).
    pub fn overflow_entries(&self) -> usize {
        self.len - (0..self.buckets).map(|index| self.primary(index).occupied().len()).sum::<usize>()
    }

    /// Bytes that the table takes, this struct not included: buckets in use or spare, and their directory.
    pub fn memory_bytes(&self) -> usize {
        // An Arc carries two counters.
        let probe = size_of::<TableProbe>() + 2 * size_of::<usize>() + self.probe.primary.heap_bytes();
        let overflow = self.probe.overflow.get().map_or(0, |directory| {
            size_of_val(&**directory) + directory.heap_bytes() + self.overflow.heap_bytes()
        });
        probe + overflow
    }

    #[inline(always)]
    fn primary(&self, index: u32) -> &Bucket {
        self.probe.primary.bucket(index).expect("every bucket below N exists")
    }

    #[inline]
    fn overflow_bucket(&self, number: u32) -> &Bucket {
        let directory = self.probe.overflow.get().expect("a chain has overflow buckets");
        directory.bucket(number).expect("a link names an existing bucket")
    }

    #[inline]
    fn bucket_at(&self, primary: u32, place: Place) -> &Bucket {
        match place {
            Place::Primary => self.primary(primary),
            Place::Overflow(number) => self.overflow_bucket(number),
        }
    }

    /// Finds the entry with this hash that `eq` recognizes. `eq` is asked about entries with the same
    /// fingerprint only: 1 in 25 lookups of absent entries, beside the right one otherwise. O(1).
    #[inline(always)]
    pub fn find(&self, hash: u64, mut eq: impl FnMut(Handle) -> bool) -> Option<Slot> {
        if self.buckets == 0 {
            return None;
        }
        let primary = index_of(hash, self.buckets);
        let byte = fingerprint(hash);
        let mut bucket = self.primary(primary);
        let mut place = Place::Primary;
        loop {
            for position in bucket.matches(byte) {
                if let Some(handle) = bucket.handle(position)
                    && eq(handle)
                {
                    return Some(Slot { primary, place, position: position as u8, handle });
                }
            }
            let number = bucket.link()?;
            place = Place::Overflow(number);
            bucket = self.overflow_bucket(number);
        }
    }

    /// Lets a slot name another handle of the same hash: the entry has moved. O(1).
    #[inline]
    pub fn replace(&mut self, slot: Slot, handle: Handle) -> Slot {
        self.bucket_at(slot.primary, slot.place).set_handle(usize::from(slot.position), handle);
        Slot { handle, ..slot }
    }

    /// Inserts a handle; the caller knows that its entry is not in the table yet. May split one bucket,
    /// whose entries are then hashed again. O(1).
    #[inline]
    pub fn insert(&mut self, hash: u64, handle: Handle, entries: &impl Entries) -> Slot {
        if self.len >= self.split_above {
            self.grow(entries);
        } else if self.len + PREPARE_INSERTIONS == self.split_above {
            self.prepare_split(entries);
        }
        let primary = index_of(hash, self.buckets);
        let (place, position) = self.push(primary, fingerprint(hash), handle);
        self.len += 1;
        Slot { primary, place, position: position as u8, handle }
    }

    /// The bucket that entries of a hash belong to: a visitor of many in this order passes through memory
    /// once.
    #[inline]
    pub fn bucket_of(&self, hash: u64) -> u32 {
        index_of(hash, self.buckets)
    }

    /// Removes an entry and returns its handle. May merge two buckets. O(1).
    #[inline]
    pub fn remove(&mut self, slot: Slot) -> Handle {
        let position = usize::from(slot.position);
        let bucket = self.bucket_at(slot.primary, slot.place);
        debug_assert_ne!(bucket.fingerprint(position), 0, "a slot is removed once");
        debug_assert_eq!(bucket.handle(position), Some(slot.handle), "the slot is not out of date");
        bucket.vacate(position);
        if self.primary(slot.primary).link().is_some() {
            self.close_gap(slot.primary, slot.place, position);
        }
        self.len -= 1;
        if self.len < self.merge_below {
            self.shrink();
        }
        slot.handle
    }

    /// Whether [`release_spare`](Self::release_spare) would find something. O(1).
    pub fn has_spare(&self) -> bool {
        self.probe.primary.blocks_end() > self.blocks_needed() || self.overflow.has_idle()
    }

    /// Returns the blocks that shrinking has left unused.
    ///
    /// # Safety
    /// No other thread is inside a method of this table's [`TableProbe`], and whatever keeps them out also
    /// orders this call before their next one.
    pub unsafe fn release_spare(&mut self) {
        if self.len == 0 {
            self.set_buckets(0);
            self.minimum = None;
        }
        let primary = &self.probe.primary;
        // SAFETY: by the caller no probe looks; the owner uses no bucket from N on.
        unsafe { primary.release(self.blocks_needed()..primary.blocks_end()) };
        if let Some(directory) = self.probe.overflow.get() {
            // SAFETY: as above; no chain leads to an overflow bucket that is free.
            self.overflow.release_idle(|blocks| unsafe { directory.release(blocks) });
        }
    }

    fn blocks_needed(&self) -> u32 {
        self.buckets.checked_sub(1).map_or(0, |last| block_of(last) + 1)
    }

    fn set_buckets(&mut self, buckets: u32) {
        self.buckets = buckets;
        let slots = buckets as usize * SLOTS_PER_BUCKET;
        self.split_above = if buckets == BUCKETS_MAX { usize::MAX } else { slots * SPLIT_PERCENT / 100 };
        self.merge_below = if buckets <= BUCKETS_MIN { 0 } else { slots * MERGE_PERCENT / 100 };
        self.probe.set_buckets(buckets);
    }

    /// Puts an entry into a chain. O(1) by the module's second invariant.
    #[inline]
    fn push(&mut self, primary: u32, byte: u8, handle: Handle) -> (Place, usize) {
        let bucket = self.primary(primary);
        if let Some(position) = bucket.vacant() {
            bucket.put(position, byte, handle);
            (Place::Primary, position)
        } else {
            self.push_overflow(primary, byte, handle)
        }
    }

    #[cold]
    #[inline(never)]
    fn push_overflow(&mut self, primary: u32, byte: u8, handle: Handle) -> (Place, usize) {
        let next = self.primary(primary).link();
        if let Some(number) = next {
            let first = self.overflow_bucket(number);
            if let Some(position) = first.vacant() {
                first.put(position, byte, handle);
                return (Place::Overflow(number), position);
            }
        }
        let number = self.overflow.allocate();
        let fresh = self.probe.overflow_directory().ensure(number);
        let bucket = self.primary(primary);
        let moved = if next.is_none() { bucket.take_link_slot() } else { None };
        fresh.set_link(next);
        bucket.set_link(Some(number));
        fresh.put(0, byte, handle);
        if let Some((byte, handle)) = moved {
            fresh.put(1, byte, handle);
        }
        (Place::Overflow(number), 0)
    }

    /// Restores the chain's invariants after a slot in it was emptied: an entry of the first overflow bucket
    /// fills the gap.
    #[cold]
    #[inline(never)]
    fn close_gap(&mut self, primary: u32, place: Place, position: usize) {
        let bucket = self.primary(primary);
        let Some(number) = bucket.link() else { return };
        let first = self.overflow_bucket(number);
        if place != Place::Overflow(number)
            && let Some(from) = first.occupied().highest()
            && let Some(handle) = first.handle(from)
        {
            self.bucket_at(primary, place).put(position, first.fingerprint(from), handle);
            first.vacate(from);
        }
        let left = first.occupied();
        match (left.len(), first.link()) {
            (0, next) => bucket.set_link(next),
            (1, None) => {
                // The last entry fits where the link was.
                bucket.set_link(None);
                for from in left {
                    if let Some(handle) = first.handle(from) {
                        bucket.put(SLOTS_PER_BUCKET - 1, first.fingerprint(from), handle);
                    }
                }
            }
            _ => return,
        }
        first.reset();
        self.overflow.free(number);
    }

    /// The bucket that splits next, and the bit that decides which of its entries move.
    #[inline]
    fn next_split(&self) -> (u32, u32) {
        let level_bit = 1 << self.buckets.ilog2();
        (self.buckets - level_bit, level_bit)
    }

    /// Fetches the entries of one bucket, which the next split will read.
    #[cold]
    #[inline(never)]
    fn prepare_split(&self, entries: &impl Entries) {
        let (from, _) = self.next_split();
        self.for_each_in_chain(from, |handle| entries.prefetch(handle));
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, entries: &impl Entries) {
        if self.buckets == 0 {
            self.probe.primary.ensure(BUCKETS_MIN - 1);
            self.set_buckets(BUCKETS_MIN);
            return;
        }
        let to = self.buckets;
        let (from, level_bit) = self.next_split();
        let probe = self.probe.clone();
        let target = probe.primary.ensure(to);
        debug_assert_eq!(target.occupied().len(), 0, "a bucket above N is empty");
        let bucket = self.primary(from);
        // Either half may now hold the entry that the deadline belongs to.
        if let Some(deadline) = bucket.deadline() {
            target.set_deadline(Some(deadline));
            probe.primary.lower_minimum(block_of(to), deadline);
        }
        if bucket.link().is_none() {
            let mut moved = 0;
            for position in bucket.occupied() {
                if let Some(handle) = bucket.handle(position)
                    && entries.hash(handle) as u32 & level_bit != 0
                {
                    target.put(moved, bucket.fingerprint(position), handle);
                    bucket.vacate(position);
                    moved += 1;
                }
            }
        } else {
            self.redistribute(
                from,
                |handle| {
                    if entries.hash(handle) as u32 & level_bit == 0 { from } else { to }
                },
            );
        }
        self.set_buckets(to + 1);
    }

    /// Merges the last bucket into the one it was split from.
    #[cold]
    #[inline(never)]
    fn shrink(&mut self) {
        if self.buckets <= BUCKETS_MIN {
            return;
        }
        let from = self.buckets - 1;
        let to = from ^ (1 << from.ilog2());
        let probe = self.probe.clone();
        let (bucket, target) = (self.primary(from), self.primary(to));
        let deadline = Tick::earlier(bucket.deadline(), target.deadline());
        target.set_deadline(deadline);
        if let Some(deadline) = deadline {
            probe.primary.lower_minimum(block_of(to), deadline);
        }
        self.redistribute(from, |_| to);
        let emptied = probe.primary.bucket(from).expect("shrinking frees no block");
        emptied.reset();
        self.set_buckets(from);
        if block_of(from) >= self.blocks_needed() {
            probe.primary.set_minimum(block_of(from), None);
        }
    }

    /// Empties the chain of a bucket and puts each entry into the bucket that `destination` returns.
    fn redistribute(&mut self, primary: u32, mut destination: impl FnMut(Handle) -> u32) {
        let probe = self.probe.clone();
        let bucket = self.primary(primary);
        let mut link = bucket.link();
        let mut parts = take_entries(bucket);
        bucket.set_link(None);
        loop {
            for &(byte, handle) in parts.iter().flatten() {
                self.push(destination(handle), byte, handle);
            }
            let Some(number) = link else { return };
            let directory = probe.overflow.get().expect("a chain has overflow buckets");
            let overflow = directory.bucket(number).expect("a link names an existing bucket");
            link = overflow.link();
            parts = take_entries(overflow);
            overflow.reset();
            self.overflow.free(number);
        }
    }

    #[inline]
    fn for_each_in_chain(&self, primary: u32, mut visit: impl FnMut(Handle)) {
        let mut bucket = self.primary(primary);
        loop {
            for position in bucket.occupied() {
                if let Some(handle) = bucket.handle(position) {
                    visit(handle);
                }
            }
            let Some(number) = bucket.link() else { return };
            bucket = self.overflow_bucket(number);
        }
    }
}

/// Empties the slots of a bucket.
fn take_entries(bucket: &Bucket) -> [Option<(u8, Handle)>; SLOTS_PER_BUCKET] {
    let mut taken = [None; SLOTS_PER_BUCKET];
    for (position, place) in bucket.occupied().zip(&mut taken) {
        *place = bucket.handle(position).map(|handle| (bucket.fingerprint(position), handle));
        bucket.vacate(position);
    }
    taken
}
