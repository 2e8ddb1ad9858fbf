//! Watched keys: which transactions must not happen because a key has changed (`WATCH`).
//!
//! ```text
//! stripe ─▶ Watches ─▶ database ─▶ key ─▶ [Watch { watcher, present }]
//! ```
//!
//! The registry of a stripe stands behind its lock, and is not there while no client watches a key of
//! the stripe: then a writer looks at one pointer. A worker that runs a transaction holds the locks of
//! all keys that its client watches, so the state of the [`Watcher`] is true until the transaction
//! ends.
//!
//! Invariant: no database and no key without a watch is kept.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use super::{Expiration, slot};

/// A client that watches keys, and whether one of them has changed. Clones are the same watcher.
#[derive(Debug, Clone, Default)]
pub struct Watcher(Arc<AtomicBool>);

impl Watcher {
    /// A watcher that marks this flag.
    pub fn marking(flag: Arc<AtomicBool>) -> Self {
        Self(flag)
    }

    /// Whether a watched key has changed.
    pub fn is_dirty(&self) -> bool {
        self.0.load(Relaxed)
    }

    /// Forgets that keys have changed. Nothing is watched at this moment.
    pub fn clear(&self) {
        self.0.store(false, Relaxed);
    }

    fn mark(&self) {
        self.0.store(true, Relaxed);
    }
}

/// A key as one of its watchers knows it.
#[derive(Debug)]
struct Watch {
    watcher: Watcher,
    /// Whether the key was there, and had not expired, when the watch began.
    present: bool,
}

type Watched = HashMap<Box<[u8]>, Vec<Watch>>;

/// The watched keys of a stripe.
#[derive(Debug, Default)]
pub(crate) struct Watches(BTreeMap<usize, Watched>);

impl Watches {
    /// Whether it is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a watch.
    pub(super) fn add(&mut self, database: usize, key: &[u8], watcher: &Watcher, present: bool) {
        let watches = self.0.entry(database).or_default().entry(key.into()).or_default();
        watches.push(Watch { watcher: watcher.clone(), present });
    }

    /// Ends a watch.
    pub(super) fn remove(&mut self, database: usize, key: &[u8], watcher: &Watcher) {
        let Some(watched) = self.0.get_mut(&database) else { return };
        let Some(watches) = watched.get_mut(key) else { return };
        watches.retain(|watch| !Arc::ptr_eq(&watch.watcher.0, &watcher.0));
        if watches.is_empty() {
            watched.remove(key);
        }
        if watched.is_empty() {
            self.0.remove(&database);
        }
    }

    /// Whether this watcher has seen the key there.
    pub(super) fn saw(&self, database: usize, key: &[u8], watcher: &Watcher) -> bool {
        let watches = self.0.get(&database).and_then(|watched| watched.get(key));
        let own = |watch: &&Watch| Arc::ptr_eq(&watch.watcher.0, &watcher.0);
        watches.and_then(|watches| watches.iter().find(own)).is_some_and(|watch| watch.present)
    }

    /// The key has changed.
    pub(crate) fn changed(&self, database: usize, key: &[u8]) {
        self.mark(database, key, |_| true);
    }

    /// The time of a key, or of some of its elements, has come. A key that is removed for it is nothing
    /// new to a watcher that found it expired already.
    pub(crate) fn expired(&self, database: usize, key: &[u8], what: Expiration) {
        self.mark(database, key, |watch| watch.present || what == Expiration::Elements);
    }

    /// Keys of these slots are another server's from now on.
    pub(super) fn moved(&self, is_gone: impl Fn(u16) -> bool) {
        let watched = self.0.values().flatten().filter(|(key, _)| is_gone(slot(key)));
        watched.flat_map(|(_, watches)| watches).for_each(|watch| watch.watcher.mark());
    }

    fn mark(&self, database: usize, key: &[u8], concerns: impl Fn(&Watch) -> bool) {
        let watches = self.0.get(&database).and_then(|watched| watched.get(key));
        watches.into_iter().flatten().filter(|watch| concerns(watch)).for_each(|watch| watch.watcher.mark());
    }

    /// Notes that the whole database is replaced by one that has the keys of which `will_have` says
    /// so. That is a change to a watcher that has seen a key there, and to one that will see a key
    /// where there was none.
    pub(crate) fn replaced(&self, database: usize, will_have: impl Fn(&[u8]) -> bool) {
        for (key, watches) in self.0.get(&database).into_iter().flatten() {
            let appears = will_have(key);
            watches.iter().filter(|watch| watch.present || appears).for_each(|watch| watch.watcher.mark());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watcher_is_marked_by_changes_of_its_keys() {
        let marked = |present: bool, happen: &dyn Fn(&Watches)| {
            let (mut watches, watcher) = (Watches::default(), Watcher::default());
            watches.add(3, b"key", &watcher, present);
            happen(&watches);
            watches.remove(3, b"key", &watcher);
            assert!(watches.is_empty());
            watcher.is_dirty()
        };
        for (present, happen, expected) in [
            (true, &(|w: &Watches| w.changed(3, b"key")) as &dyn Fn(&Watches), true),
            (false, &|w: &Watches| w.changed(3, b"key"), true),
            (true, &|w: &Watches| w.changed(2, b"key"), false),
            (true, &|w: &Watches| w.changed(3, b"other"), false),
            (true, &|w: &Watches| w.expired(3, b"key", Expiration::Key), true),
            (false, &|w: &Watches| w.expired(3, b"key", Expiration::LastElement), false),
            (true, &|w: &Watches| w.replaced(3, |_| false), true),
            (true, &|w: &Watches| w.replaced(3, |_| true), true),
            (false, &|w: &Watches| w.replaced(3, |_| false), false),
            (false, &|w: &Watches| w.replaced(3, |_| true), true),
            (true, &|w: &Watches| w.replaced(0, |_| true), false),
        ] {
            assert_eq!(marked(present, happen), expected);
        }
    }

    #[test]
    fn watchers_of_keys_whose_slots_have_moved_are_marked() {
        let mut watches = Watches::default();
        let (one, other) = (Watcher::default(), Watcher::default());
        watches.add(0, b"foo", &one, false);
        watches.add(0, b"bar", &other, true);
        watches.moved(|moved| moved == slot(b"foo"));
        assert!(one.is_dirty() && !other.is_dirty());
    }

    #[test]
    fn watcher_that_leaves_lets_the_other_stay() {
        let (mut watches, one, other) = (Watches::default(), Watcher::default(), Watcher::default());
        watches.add(0, b"key", &one, true);
        watches.add(0, b"key", &other, false);
        assert!(watches.saw(0, b"key", &one) && !watches.saw(0, b"key", &other));
        watches.remove(0, b"key", &one);
        watches.changed(0, b"key");
        assert!(!one.is_dirty() && other.is_dirty());
    }
}
