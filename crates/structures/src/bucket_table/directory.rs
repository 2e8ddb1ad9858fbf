//! Bucket numbers → buckets: blocks of buckets that never move.
//!
//! ```text
//! bucket   0..1  2..3  4..7  8..15  16..31  32..63  64..127 │ 128..255  256..383 …
//! block      0     1     2     3      4       5        6    │    7         8    …
//!            small blocks, from the general allocator        │ one page of the pool each
//! ```
//!
//! The small blocks double, so a table of a few entries costs 128 bytes of buckets and nothing is copied
//! when it grows. From block 7 on, a block is a page of 128 buckets. Block entries live in doubling tiers.
//! A block that the table no longer needs stays where it is: readers of the racy view may still look at it,
//! and growth finds it again.

use super::bucket::Bucket;
use super::tick::Tick;
use crate::page_pool::{PAGE_BYTES, Page, PagePool};
use crate::tiers::Tiers;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// Buckets in a page.
pub(super) const PAGE_BUCKETS: u32 = (PAGE_BYTES / size_of::<Bucket>()) as u32;
const SMALL_BLOCKS: u32 = PAGE_BUCKETS.ilog2();
const FIRST_TIER_LOG2: u32 = 3;
const TIERS: usize = 20;
/// The number that is added to a block number to make the first page block the first index of the tiers.
const TIER_OFFSET: u32 = (1 << FIRST_TIER_LOG2) - SMALL_BLOCKS;

/// A directory has at least this many buckets, if memory has.
pub(super) const DIRECTORY_BUCKETS_MAX: u32 = 1 << 29;

const _: () = {
    assert!(PAGE_BUCKETS.is_power_of_two());
    let last_block = DIRECTORY_BUCKETS_MAX / PAGE_BUCKETS + SMALL_BLOCKS;
    assert!(
        last_block + TIER_OFFSET < 1 << (FIRST_TIER_LOG2 + TIERS as u32),
        "the tiers reach the last block"
    );
};

/// The block of a bucket, and the bucket's place in it.
#[inline(always)]
fn locate(bucket: u32) -> (u32, u32) {
    if bucket >= PAGE_BUCKETS {
        (bucket / PAGE_BUCKETS + SMALL_BLOCKS - 1, bucket % PAGE_BUCKETS)
    } else {
        let block = (bucket | 1).ilog2();
        (block, if bucket < 2 { bucket } else { bucket ^ (1 << block) })
    }
}

/// The block of a bucket.
#[inline]
pub(super) fn block_of(bucket: u32) -> u32 {
    locate(bucket).0
}

/// The buckets of a block.
pub(super) fn buckets_of(block: u32) -> Range<u32> {
    if block >= SMALL_BLOCKS {
        let first = (block - SMALL_BLOCKS + 1) * PAGE_BUCKETS;
        first..first + PAGE_BUCKETS
    } else if block == 0 {
        0..2
    } else {
        1 << block..2 << block
    }
}

/// Invariant: `buckets` is null or the first of the block's buckets, initialized.
#[derive(Default)]
struct Block {
    buckets: AtomicPtr<Bucket>,
    /// The earliest deadline of the block's buckets (0 = none); only the owner looks at it.
    minimum: AtomicU32,
}

/// The blocks of a table, or of its overflow buckets. Changed by one owner at a time, read by any
/// thread; frees its blocks when dropped.
pub(super) struct Directory {
    small: [Block; SMALL_BLOCKS as usize],
    pages: Tiers<Block, TIERS, FIRST_TIER_LOG2>,
    pool: Arc<PagePool>,
    /// The number of the highest block that exists, plus one. Owner only, as the next.
    blocks_end: AtomicU32,
    /// Bytes of blocks and tiers.
    bytes: AtomicUsize,
}

impl Directory {
    pub(super) fn new(pool: Arc<PagePool>) -> Self {
        Self {
            small: Default::default(),
            pages: Tiers::new(),
            pool,
            blocks_end: AtomicU32::new(0),
            bytes: AtomicUsize::new(0),
        }
    }

    #[inline(always)]
    fn block(&self, number: u32) -> Option<&Block> {
        if number >= SMALL_BLOCKS {
            self.pages.get(number + TIER_OFFSET)
        } else {
            self.small.get(number as usize)
        }
    }

    /// The bucket of a number, or `None` if its block does not exist. O(1), three loads.
    #[inline(always)]
    pub(super) fn bucket(&self, number: u32) -> Option<&Bucket> {
        let (block, offset) = locate(number);
        let first = self.block(block)?.buckets.load(Ordering::Acquire);
        if first.is_null() {
            return None;
        }
        // SAFETY: the block exists, was published with `Release`, and `locate` keeps the offset below its
        // length. Only `release`, whose caller vouches for readers, and `drop` free it.
        Some(unsafe { &*first.add(offset as usize) })
    }

    /// Blocks are created and released below this number only.
    #[inline]
    pub(super) fn blocks_end(&self) -> u32 {
        self.blocks_end.load(Ordering::Relaxed)
    }

    /// Bytes of buckets and of the tiers that find them, this struct not included.
    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn minimum(&self, block: u32) -> Option<Tick> {
        self.block(block).and_then(|block| Tick::from_raw(block.minimum.load(Ordering::Relaxed)))
    }

    pub(super) fn set_minimum(&self, block: u32, minimum: Option<Tick>) {
        if let Some(block) = self.block(block) {
            block.minimum.store(minimum.map_or(0, Tick::raw), Ordering::Relaxed);
        }
    }

    /// Lets a block's minimum be no later than `deadline`.
    #[inline]
    pub(super) fn lower_minimum(&self, block: u32, deadline: Tick) {
        if let Some(block) = self.block(block) {
            let minimum = Tick::from_raw(block.minimum.load(Ordering::Relaxed));
            if minimum.is_none_or(|minimum| deadline.is_before(minimum)) {
                block.minimum.store(deadline.raw(), Ordering::Relaxed);
            }
        }
    }

    /// The bucket of a number, whose block is created, empty, if there is none.
    pub(super) fn ensure(&self, bucket: u32) -> &Bucket {
        let (number, _) = locate(bucket);
        let mut allocated = 0;
        let block = if number >= SMALL_BLOCKS {
            let (block, tier_bytes) = self.pages.ensure(number + TIER_OFFSET);
            allocated += tier_bytes;
            block
        } else {
            &self.small[number as usize]
        };
        if block.buckets.load(Ordering::Relaxed).is_null() {
            let fresh = self.allocate(number);
            block.minimum.store(0, Ordering::Relaxed);
            block.buckets.store(fresh.as_ptr(), Ordering::Release);
            allocated += block_bytes(number);
            self.blocks_end.store(self.blocks_end().max(number + 1), Ordering::Relaxed);
        }
        self.bytes.store(self.heap_bytes() + allocated, Ordering::Relaxed);
        let Some(bucket) = self.bucket(bucket) else { unreachable!("the block was just created") };
        bucket
    }

    fn allocate(&self, number: u32) -> NonNull<Bucket> {
        if number >= SMALL_BLOCKS {
            let page = self.pool.take().into_address();
            // SAFETY: a page is PAGE_BYTES long, and ours; a reused one carries its last owner's bytes.
            unsafe { page.write_bytes(0, PAGE_BYTES) };
            page.cast()
        } else {
            let layout = small_layout(number);
            // SAFETY: the layout is not empty.
            let block = unsafe { alloc_zeroed(layout) };
            NonNull::new(block.cast()).unwrap_or_else(|| crate::out_of_memory(layout.size()))
        }
    }

    /// Frees the blocks in a range that exist.
    ///
    /// # Safety
    /// No other thread is inside [`bucket`](Self::bucket) or uses its result.
    pub(super) unsafe fn release(&self, blocks: Range<u32>) {
        let end = self.blocks_end();
        let mut freed = 0;
        let pages = blocks.clone().filter_map(|number| {
            let first = self.block(number)?.buckets.swap(ptr::null_mut(), Ordering::AcqRel);
            let first = NonNull::new(first)?;
            self.set_minimum(number, None);
            freed += block_bytes(number);
            if number >= SMALL_BLOCKS {
                // SAFETY: `allocate` made the block of a page, and the directory has just forgotten it.
                Some(unsafe { Page::from_address(first.cast()) })
            } else {
                // SAFETY: `allocate` used the same layout, and the directory has just forgotten it.
                unsafe { dealloc(first.as_ptr().cast(), small_layout(number)) };
                None
            }
        });
        self.pool.give_back_all(pages);
        self.bytes.store(self.heap_bytes() - freed, Ordering::Relaxed);
        if blocks.end >= end {
            self.blocks_end.store(blocks.start.min(end), Ordering::Relaxed);
        }
    }
}

fn block_bytes(number: u32) -> usize {
    buckets_of(number).len() * size_of::<Bucket>()
}

fn small_layout(number: u32) -> Layout {
    Layout::from_size_align(block_bytes(number), align_of::<Bucket>()).expect("a few cache lines")
}

impl Drop for Directory {
    fn drop(&mut self) {
        // SAFETY: `&mut self` is the only reference left.
        unsafe { self.release(0..self.blocks_end()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_every_bucket_once() {
        let mut next = 0;
        for block in 0..40 {
            let buckets = buckets_of(block);
            assert_eq!(buckets.start, next, "block {block} begins where the last one ended");
            next = buckets.end;
            for (offset, bucket) in buckets.enumerate() {
                assert_eq!(locate(bucket), (block, offset as u32));
            }
        }
    }
}
