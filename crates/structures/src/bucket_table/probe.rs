//! The part of a table that other threads may see while its owner changes it: enough to prefetch.

use super::bucket::{Bucket, fingerprint};
use super::directory::Directory;
use crate::prefetch::prefetch;
use crate::slab::Handle;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use crate::page_pool::PagePool;

/// The racy view of a [`BucketTable`](super::BucketTable). Everything it reads is atomic, so it is sound on
/// any thread at any time but for [`release_spare`](super::BucketTable::release_spare); everything it answers
/// may be stale and is good for prefetching only. The probe keeps the table's buckets alive, even past the
/// table.
pub struct TableProbe {
    pub(super) primary: Directory,
    pub(super) overflow: OnceLock<Box<Directory>>,
    buckets: AtomicU32,
    pool: Arc<PagePool>,
}

/// The bucket of a hash among `buckets` (at least 2): the hash's low bits, one fewer if that bucket does
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

    /// The bucket where an entry of this hash would be, which is prefetched.
    #[inline]
    pub fn fetch_bucket(&self, hash: u64) -> Option<BucketProbe<'_>> {
        self.bucket(hash).map(BucketProbe::fetch)
    }

    /// A candidate for the entry of this hash, from a bucket that was asked for some 100 ns ago. An overflow
    /// bucket is prefetched.
    #[inline]
    pub fn candidate(&self, bucket: BucketProbe<'_>, hash: u64) -> Candidate<'_> {
        if let Some(slot) = bucket.0.matches(fingerprint(hash)).lowest() {
            return bucket.0.handle(slot).map_or(Candidate::None, Candidate::Entry);
        }
        let overflow = bucket.0.link().and_then(|link| self.overflow.get()?.bucket(link));
        overflow.map_or(Candidate::None, |bucket| Candidate::Overflow(BucketProbe::fetch(bucket)))
    }
}

/// A bucket on its way to the processor.
#[derive(Debug, Clone, Copy)]
pub struct BucketProbe<'a>(&'a Bucket);

impl<'a> BucketProbe<'a> {
    #[inline(always)]
    fn fetch(bucket: &'a Bucket) -> Self {
        prefetch(std::ptr::from_ref(bucket).cast());
        Self(bucket)
    }
}

/// A place that an entry may have, by the look of one bucket.
#[derive(Debug, Clone, Copy)]
pub enum Candidate<'a> {
    /// Nowhere.
    None,
    /// The first handle with its fingerprint.
    Entry(Handle),
    /// In another bucket.
    Overflow(BucketProbe<'a>),
}
