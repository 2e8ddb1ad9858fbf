//! Keys with an expiry that clients have written on a replica. The primary knows nothing of them: the replica removes them.
//!
//! ```text
//! deadlines   (database, key) ─▶ deadline
//! by_deadline (deadline, database, key)      the due ones come first
//! ```
//!
//! Invariants:
//! - Both name the same keys, each once.
//! - An entry is a hint: only a key whose expiry is the noted one is the clients'. A stream may have replaced it since.
//! - Entries come and go under the lock of the key's stripe, but those of a whole database behind the closed gate.

use std::{
    collections::{BTreeSet, HashMap},
    mem,
    ops::{Bound, Range},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// A key of a database.
pub(crate) type DatabaseKey = (usize, Arc<[u8]>);

#[derive(Debug, Default)]
struct Entries {
    deadlines: HashMap<DatabaseKey, u64>,
    by_deadline: BTreeSet<(u64, DatabaseKey)>,
    /// The entry that was verified last.
    verified: Option<(u64, DatabaseKey)>,
}

/// The keys with an expiry that clients have written while the data set follows a primary.
#[derive(Debug, Default)]
pub(crate) struct OwnExpiries {
    /// Whether the data set follows a primary. Changes behind the closed gate only.
    is_on: AtomicBool,
    entries: Mutex<Entries>,
}

impl Entries {
    fn note(&mut self, place: DatabaseKey, deadline_ms: u64) {
        if let Some(before) = self.deadlines.insert(place.clone(), deadline_ms) {
            self.by_deadline.remove(&(before, place.clone()));
        }
        self.by_deadline.insert((deadline_ms, place));
    }
}

impl OwnExpiries {
    /// Whether clients' keys are noted.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    /// Begins to note keys, or ends and forgets them. The caller holds the gate closed.
    pub(crate) fn turn(&self, on: bool) {
        self.is_on.store(on, Relaxed);
        if !on {
            *self.entries() = Entries::default();
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a client has given a key this expiry. O(log keys).
    pub(crate) fn note(&self, place: DatabaseKey, deadline_ms: u64) {
        self.entries().note(place, deadline_ms);
    }

    /// Takes out the keys that are due, at most `keys_max`. O(`keys_max` × log keys).
    pub(crate) fn take_due(&self, now_ms: u64, keys_max: usize) -> Vec<(u64, DatabaseKey)> {
        let mut entries = self.entries();
        let mut due = Vec::new();
        while due.len() < keys_max
            && entries.by_deadline.first().is_some_and(|(deadline_ms, _)| *deadline_ms <= now_ms)
        {
            let first = entries.by_deadline.pop_first().expect("the set has a first entry");
            entries.deadlines.remove(&first.1);
            due.push(first);
        }
        due
    }

    /// The next `keys_max` keys to verify, round and round. O(`keys_max` × log keys).
    pub(crate) fn next_to_verify(&self, keys_max: usize) -> Vec<(u64, DatabaseKey)> {
        let mut entries = self.entries();
        let from = entries.verified.take().map_or(Bound::Unbounded, Bound::Excluded);
        let next: Vec<_> =
            entries.by_deadline.range((from, Bound::Unbounded)).take(keys_max).cloned().collect();
        entries.verified = next.last().filter(|_| next.len() == keys_max).cloned();
        next
    }

    /// Forgets a key, unless another expiry was noted since.
    pub(crate) fn forget(&self, entry: &(u64, DatabaseKey)) {
        let mut entries = self.entries();
        if entries.by_deadline.remove(entry) {
            entries.deadlines.remove(&entry.1);
        }
    }

    /// Forgets the keys of databases that were emptied. O(keys).
    pub(crate) fn forget_databases(&self, databases: &Range<usize>) {
        let mut entries = self.entries();
        entries.deadlines.retain(|(database, _), _| !databases.contains(database));
        entries.by_deadline.retain(|(_, (database, _))| !databases.contains(database));
    }

    /// Follows SWAPDB. O(keys × log keys).
    pub(crate) fn swap_databases(&self, one: usize, other: usize) {
        let mut entries = self.entries();
        let before = mem::take(&mut *entries);
        for (deadline_ms, (database, key)) in before.by_deadline {
            let database = match database {
                _ if database == one => other,
                _ if database == other => one,
                _ => database,
            };
            entries.note((database, key), deadline_ms);
        }
    }

    /// How many keys are noted.
    pub(crate) fn len(&self) -> usize {
        self.entries().deadlines.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_expiries_come_in_the_order_of_their_last_deadlines() {
        let own = OwnExpiries::default();
        let place = |database: usize, key: &[u8]| (database, Arc::from(key));
        own.note(place(0, b"a"), 10);
        own.note(place(1, b"a"), 20);
        own.note(place(0, b"b"), 30);
        own.note(place(0, b"a"), 40);
        assert_eq!(own.len(), 3);
        assert_eq!(own.take_due(19, 8), []);
        own.swap_databases(0, 1);
        assert_eq!(own.take_due(30, 1), [(20, place(0, b"a"))]);
        assert_eq!(own.take_due(30, 8), [(30, place(1, b"b"))]);
        own.forget(&(10, place(1, b"a")));
        assert_eq!(own.len(), 1, "it has another deadline");
        assert_eq!(own.next_to_verify(1), [(40, place(1, b"a"))]);
        assert_eq!(own.next_to_verify(1), []);
        assert_eq!(own.next_to_verify(2), [(40, place(1, b"a"))]);
        own.forget_databases(&(0..1));
        assert_eq!(own.len(), 1);
        own.forget_databases(&(1..2));
        assert_eq!((own.len(), own.take_due(u64::MAX, 8)), (0, Vec::new()));
    }
}
