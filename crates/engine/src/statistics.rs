//! Counters that one worker writes and any thread may read.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count with one writer: adding is a plain load and store, never a read-modify-write.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds; only the owning worker may.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
    }

    /// Replaces the count; only the owning worker may.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The count as last written.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Starts anew (`CONFIG RESETSTAT`); a concurrent addition may win.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Counts of one worker's work on the keyspace. On cache lines of its own, since workers write
/// these all the time.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Statistics {
    /// Reads that found their key.
    pub keyspace_hits: Counter,
    /// Reads that did not.
    pub keyspace_misses: Counter,
    /// Keys removed because their time had come.
    pub expired_keys: Counter,
    /// Fields of hashes removed because theirs had.
    pub expired_fields: Counter,
    /// Keys that gave way to `maxmemory`.
    pub evicted_keys: Counter,
    /// Entries moved by compaction.
    pub moved_entries: Counter,
    /// Entries that compaction has looked at and left.
    pub left_entries: Counter,
    /// Changes to the data set, as `rdb_changes_since_last_save` counts them.
    pub changes: Counter,
}
