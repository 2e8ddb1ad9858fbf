//! Which overflow buckets are free.
//!
//! The lowest free one is always taken first, so use stays packed at the bottom, and blocks at the top, or
//! wherever a page's worth became free, can go back to the pool.

use super::directory::{PAGE_BUCKETS, block_of};
use crate::bit_set::BitSet;
use std::ops::Range;

const ALL_FREE: u128 = u128::MAX;
const _: () = assert!(PAGE_BUCKETS == u128::BITS, "one bit for each bucket of a group");

/// Overflow buckets by groups of a page's worth (the first group is the small blocks).
#[derive(Default)]
pub(super) struct OverflowMap {
    /// By group: a bit for each free bucket.
    free: Vec<u128>,
    /// Groups with a free bucket.
    with_free: BitSet,
    /// Some group became wholly free since the last release.
    idle: bool,
}

impl OverflowMap {
    pub(super) fn allocate(&mut self) -> u32 {
        let group = self.with_free.lowest().unwrap_or_else(|| {
            self.free.push(ALL_FREE);
            self.with_free.insert(self.free.len() - 1);
            self.free.len() - 1
        });
        let free = &mut self.free[group];
        let bit = free.trailing_zeros();
        *free &= *free - 1;
        if *free == 0 {
            self.with_free.remove(group);
        }
        group as u32 * PAGE_BUCKETS + bit
    }

    pub(super) fn free(&mut self, bucket: u32) {
        let group = bucket / PAGE_BUCKETS;
        let free = &mut self.free[group as usize];
        let bit = 1 << (bucket % PAGE_BUCKETS);
        assert!(*free & bit == 0, "an overflow bucket is freed once");
        *free |= bit;
        self.idle |= *free == ALL_FREE;
        self.with_free.insert(group as usize);
    }

    pub(super) fn has_idle(&self) -> bool {
        self.idle
    }

    /// Hands the block ranges of all wholly free groups to `release`, and forgets groups at the end.
    pub(super) fn release_idle(&mut self, mut release: impl FnMut(Range<u32>)) {
        for (group, free) in self.free.iter().enumerate() {
            if *free == ALL_FREE {
                let first = group as u32 * PAGE_BUCKETS;
                release(block_of(first)..block_of(first + PAGE_BUCKETS - 1) + 1);
            }
        }
        while self.free.last() == Some(&ALL_FREE) {
            self.free.pop();
            self.with_free.remove(self.free.len());
        }
        self.idle = false;
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.free.capacity() * size_of::<u128>() + self.with_free.heap_bytes()
    }
}
