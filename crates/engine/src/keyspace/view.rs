//! Keys as they were at one moment, apart from the keyspace.
//!
//! A view is taken under the locks of its keys and read without them. It costs O(1) a key, because large
//! values are shared; while it lives, who wants to change one of those has to copy it first, and who can wait
//! instead does ([`Locked::is_viewed`]).

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use super::{EntryRef, Locked, entry::LooseEntry};

/// Some keys of a database, with their values.
pub(crate) struct View {
    /// Those that were there, by key.
    entries: Vec<LooseEntry>,
    /// How many views there are.
    views: Arc<AtomicUsize>,
}

impl View {
    /// A view of those keys of a database that are there and have not expired; their shards are locked.
    /// O(k log k) for k keys.
    pub(crate) fn new<'a>(
        locked: &Locked<'_>,
        database: usize,
        keys: impl Iterator<Item = &'a [u8]>,
        now_ms: u64,
    ) -> Self {
        let keyspace = locked.keyspace();
        let mut keys: Vec<&[u8]> = keys.collect();
        keys.sort_unstable();
        keys.dedup();
        let entries = keys.into_iter().filter_map(|key| {
            let entry = find(locked, database, key).filter(|entry| !entry.is_expired(now_ms));
            entry.map(LooseEntry::of)
        });
        let entries = entries.collect();
        keyspace.views.fetch_add(1, Relaxed);
        Self { entries, views: Arc::clone(&keyspace.views) }
    }

    /// The entry of a key.
    pub(crate) fn find(&self, key: &[u8]) -> Option<EntryRef<'_>> {
        let found = self.entries.binary_search_by(|entry| entry.get().key().cmp(key));
        found.ok().map(|at| self.entries[at].get())
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // First what it shares: who sees that there is no view must not find anything shared.
        self.entries.clear();
        self.views.fetch_sub(1, Relaxed);
    }
}

impl std::fmt::Debug for View {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("View").field("keys", &self.entries.len()).finish_non_exhaustive()
    }
}

fn find<'a>(locked: &'a Locked<'_>, database: usize, key: &[u8]) -> Option<EntryRef<'a>> {
    let key = locked.keyspace().key(key);
    let stripe = locked.shard(key.shard).database(database)?;
    Some(stripe.entry(stripe.find(key.hash, key.bytes)?))
}

impl Locked<'_> {
    /// Whether somebody has a view of one of these keys that would have to be copied before it is changed.
    #[cold]
    pub(crate) fn is_viewed<'a>(&self, database: usize, mut keys: impl Iterator<Item = &'a [u8]>) -> bool {
        keys.any(|key| {
            let entry = find(self, database, key);
            entry.and_then(EntryRef::object).is_some_and(|object| object.is_shared())
        })
    }
}
