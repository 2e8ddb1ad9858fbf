//! What other threads may see of a table while its owner changes it: enough to prefetch.

use super::bucket::{Bucket, fingerprint};
use super::directory::Directory;
use crate::prefetch::prefetch;
use crate::slab::Handle;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use crate::page_pool::PagePool;

/// The racy view of a [`BucketTable`](super::BucketTable). Everything it reads is atomic, so it is sound on
/// any thread at any time but for [`release_spare`](super::BucketTable::release_spare); everything it answers
/// may be stale and is good for prefetching only. It keeps the table's buckets alive, even past the table.
pub struct TableProbe {
    pub(super) primary: Directory,
    pub(super) overflow: OnceLock<Box<Directory>>,
    buckets: AtomicU32,
    pool: Arc<PagePool>,
}

/// The bucket of a hash among `buckets` (at least 2): the hash's low bits, one fewer where that bucket does
/// not exist yet.
#[inline(always)]
pub(super) fn index_of(hash: u64, buckets: u32) -> u32 {
    let mask = u32::MAX >> (buckets - 1).leading_zeros();
    let index = hash as u32 & mask;
    if index < buckets { index } else { index & (mask >> 1) }
}

impl TableProbe {
    pub(super) fn new(pool: Arc<PagePool>) -> Self {
        Self {
            primary: Directory::new(pool.clone()),
            overflow: OnceLock::new(),
            buckets: AtomicU32::new(0),
            pool,
        }
    }

    pub(super) fn set_buckets(&self, buckets: u32) {
        self.buckets.store(buckets, Ordering::Release);
    }

    pub(super) fn overflow_directory(&self) -> &Directory {
        self.overflow.get_or_init(|| Box::new(Directory::new(self.pool.clone())))
    }

    #[inline(always)]
    fn bucket(&self, hash: u64) -> Option<&Bucket> {
        let buckets = self.buckets.load(Ordering::Acquire);
        if buckets == 0 {
            return None;
        }
        self.primary.bucket(index_of(hash, buckets))
    }

    /// Prefetches the bucket where an entry of this hash would be.
    #[inline]
    pub fn prefetch_bucket(&self, hash: u64) {
        if let Some(bucket) = self.bucket(hash) {
            prefetch(std::ptr::from_ref(bucket).cast());
        }
    }

    /// A handle that may belong to an entry of this hash: the first in its bucket with the fingerprint. Where
    /// there is none, the overflow bucket, if any, is prefetched. Call it some 100 ns after
    /// [`prefetch_bucket`](Self::prefetch_bucket).
    #[inline]
    pub fn candidate(&self, hash: u64) -> Option<Handle> {
        let bucket = self.bucket(hash)?;
        if let Some(slot) = bucket.matches(fingerprint(hash)).lowest() {
            return bucket.handle(slot);
        }
        let overflow = self.overflow.get()?.bucket(bucket.link()?)?;
        prefetch(std::ptr::from_ref(overflow).cast());
        None
    }
}
