//! Keys as they were at one moment, outside the keyspace.
//!
//! A view is taken under the locks of its keys and read without them. A view costs O(1) a key, because large
//! values are shared. While it lives, a command has to copy such a value before it changes it; a command that
//! can wait does that instead ([`Locked::is_viewed`]).

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use super::{EntryRef, Locked, entry::LooseEntry};
use crate::value::Object;

/// Says that there is a view, while it lives.
#[derive(Debug)]
pub(crate) struct ViewMark(Arc<AtomicUsize>);

impl ViewMark {
    /// A view that no test looks for.
    #[cfg(test)]
    pub(crate) fn alone() -> Self {
        Self::new(&Arc::default())
    }

    pub(super) fn new(views: &Arc<AtomicUsize>) -> Self {
        views.fetch_add(1, Relaxed);
        Self(Arc::clone(views))
    }
}

impl Clone for ViewMark {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Drop for ViewMark {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Some keys of a database, with their values.
pub(crate) struct View {
    database: usize,
    /// In order, with their entries if they were there.
    keys: Vec<(Box<[u8]>, Option<LooseEntry>)>,
    /// Last, so that it is dropped last: a thread that sees no view must not find a value shared.
    _mark: ViewMark,
}

impl View {
    /// A view of some keys of a database, whose stripes are locked. O(k log k) for k keys.
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
        let viewed = keys.into_iter().map(|key| {
            let entry = find(locked, database, key).filter(|entry| !entry.is_expired(now_ms));
            (Box::from(key), entry.map(LooseEntry::of))
        });
        let keys = viewed.collect();
        Self { database, keys, _mark: keyspace.mark_view() }
    }

    /// The entry of a key.
    pub(crate) fn find(&self, key: &[u8]) -> Option<EntryRef<'_>> {
        let at = self.keys.binary_search_by(|(known, _)| (**known).cmp(key)).ok()?;
        self.keys[at].1.as_ref().map(LooseEntry::get)
    }

    /// The entry that is under a key of its database now, if the key's stripe is locked.
    pub(crate) fn present<'a>(
        &self,
        locked: &'a Locked<'_>,
        key: &[u8],
        now_ms: u64,
    ) -> Option<EntryRef<'a>> {
        find(locked, self.database, key).filter(|entry| !entry.is_expired(now_ms))
    }

    /// Whether its keys, whose stripes are locked, are as they were.
    pub(crate) fn is_current(&self, locked: &Locked<'_>, now_ms: u64) -> bool {
        self.keys.iter().all(|(key, seen)| {
            match (self.present(locked, key, now_ms), seen.as_ref().map(LooseEntry::get)) {
                (None, None) => true,
                (Some(entry), Some(seen)) => entry.has_value_of(seen),
                _ => false,
            }
        })
    }
}

/// A large entry that a snapshot has yet to write, as it was at the cut.
pub(crate) struct LentEntry {
    entry: LooseEntry,
    /// As in [`View`].
    _mark: ViewMark,
}

impl LentEntry {
    /// O(1).
    pub(crate) fn new(entry: EntryRef<'_>, mark: ViewMark) -> Self {
        Self { entry: LooseEntry::of(entry), _mark: mark }
    }

    pub(crate) fn get(&self) -> EntryRef<'_> {
        self.entry.get()
    }
}

impl std::fmt::Debug for LentEntry {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("LentEntry").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for View {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("View").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

fn find<'a>(locked: &'a Locked<'_>, database: usize, key: &[u8]) -> Option<EntryRef<'a>> {
    let key = locked.keyspace().key(key);
    let part = locked.stripe(key.stripe).database(database)?;
    Some(part.entry(part.find(key.hash, key.bytes)?))
}

impl Locked<'_> {
    /// Whether a view shares the value of one of these keys, which would have to be copied before it is
    /// changed.
    /// Snapshots that have yet to see one of them, and would be lent it, have it now.
    #[inline(never)]
    pub(crate) fn is_viewed<'a>(
        &mut self,
        database: usize,
        mut keys: impl Iterator<Item = &'a [u8]>,
    ) -> bool {
        keys.any(|key| {
            let key = self.keyspace().key(key);
            let mut stripes = self.stripes();
            let Some(part) = stripes.stripe_mut(key.stripe).database_mut(database) else { return false };
            let Some(slot) = part.find(key.hash, key.bytes) else { return false };
            part.lend(slot);
            part.entry(slot).stored_object().is_some_and(Object::is_shared)
        })
    }
}
