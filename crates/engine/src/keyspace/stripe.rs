//! A stripe: one lock over one part of every database.

use std::{
    cell::UnsafeCell,
    collections::HashSet,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicPtr, AtomicUsize, Ordering},
    },
};

use dunlin_structures::PagePool;

use super::{
    ClientToken, Inside, KeyHasher, Queues, Tracked, Usage,
    database::{Database, Probe},
    lock::StripeLock,
    watch::{Watcher, Watches},
};

/// A part of the keyspace. Two cache lines of its own, so that neighbours' locks do not share one
/// (processors fetch lines in pairs).
#[repr(align(128))]
pub(super) struct Stripe {
    lock: StripeLock,
    /// Bytes in use as last published, for limits and statistics.
    used_bytes: AtomicUsize,
    /// Bytes in use by database, as last published.
    database_bytes: Box<[AtomicUsize]>,
    /// The part of each database that prefetching reads, null if the database is empty.
    probes: Box<[AtomicPtr<Probe>]>,
    state: UnsafeCell<StripeState>,
}

// SAFETY: `state` is reached only under the lock or behind the closed gate; the rest is atomic.
unsafe impl Sync for Stripe {}

/// The state that the lock of a stripe guards.
pub(crate) struct StripeState {
    databases: Box<[Option<Box<Database>>]>,
    /// Keys that clients keep copies of, while there are any.
    tracked: Option<Box<Tracked>>,
    /// Watched keys, while there are any.
    watches: Option<Box<Watches>>,
    /// Bytes in use by all databases.
    used_bytes: usize,
    hasher: KeyHasher,
    pool: Arc<PagePool>,
    /// Clients that wait for keys of the stripe, `None` if there are none.
    queues: Option<Box<Queues>>,
}

impl fmt::Debug for StripeState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("StripeState").field("databases", &self.databases.len()).finish_non_exhaustive()
    }
}

impl Stripe {
    pub(super) fn new(databases: usize, hasher: &KeyHasher, pool: &Arc<PagePool>) -> Self {
        Self {
            lock: StripeLock::new(),
            used_bytes: AtomicUsize::new(0),
            database_bytes: (0..databases).map(|_| AtomicUsize::new(0)).collect(),
            probes: (0..databases).map(|_| AtomicPtr::default()).collect(),
            state: UnsafeCell::new(StripeState {
                databases: (0..databases).map(|_| None).collect(),
                tracked: None,
                watches: None,
                used_bytes: 0,
                hasher: hasher.clone(),
                pool: Arc::clone(pool),
                queues: None,
            }),
        }
    }

    #[inline]
    pub(super) fn lock(&self) {
        self.lock.lock();
    }

    pub(super) fn try_lock(&self) -> bool {
        self.lock.try_lock()
    }

    /// Takes the lock, unless its holder has said that it will take long. Returns whether it is taken.
    #[inline]
    pub(super) fn lock_unless_long(&self) -> bool {
        self.lock.lock_unless_long()
    }

    /// Says that the lock will be held for long; the caller must hold it.
    pub(super) fn mark_long(&self) {
        self.lock.mark_long();
    }

    #[inline]
    pub(super) fn unlock(&self) {
        self.lock.unlock();
    }

    /// # Safety
    /// The caller holds the lock or has closed the gate, and no thread changes the state meanwhile.
    #[inline]
    pub(super) unsafe fn state(&self) -> &StripeState {
        // SAFETY: the caller vouches.
        unsafe { &*self.state.get() }
    }

    /// # Safety
    /// The caller holds the lock or has closed the gate, and this is the only reference.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the lock is what makes it exclusive")]
    pub(super) unsafe fn state_mut(&self) -> &mut StripeState {
        // SAFETY: the caller vouches.
        unsafe { &mut *self.state.get() }
    }

    pub(super) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Bytes in use by a database, as last published.
    pub(super) fn database_bytes(&self, database: usize) -> usize {
        self.database_bytes[database].load(Ordering::Relaxed)
    }

    /// Publishes how many bytes are in use in all, and by a database.
    #[inline]
    pub(super) fn set_used_bytes(&self, bytes: usize, database: usize, database_bytes: usize) {
        self.used_bytes.store(bytes, Ordering::Relaxed);
        self.database_bytes[database].store(database_bytes, Ordering::Relaxed);
    }

    /// Makes a database known to prefetching.
    ///
    /// # Safety
    /// The caller holds the lock. A probe that was published before may only be replaced behind the
    /// closed gate.
    pub(super) unsafe fn publish(&self, database: usize) {
        // SAFETY: the caller vouches.
        let state = unsafe { self.state() };
        let probe = state.databases[database].as_ref().map_or(std::ptr::null(), |database| database.probe());
        self.probes[database].store(probe.cast_mut(), Ordering::Release);
    }

    /// The state of a database that prefetching reads, unless the database is empty. `_inside` is
    /// the pass of the calling thread.
    #[inline]
    pub(super) fn probe<'a>(&'a self, database: usize, _inside: &'a Inside<'_>) -> Option<&'a Probe> {
        // SAFETY: a published probe lives until it is replaced behind the closed gate, and the
        // caller is inside for as long as it has the answer.
        unsafe { self.probes[database].load(Ordering::Acquire).as_ref() }
    }
}

#[cold]
#[inline(never)]
fn new_database(hasher: &KeyHasher, pool: &Arc<PagePool>) -> Box<Database> {
    Box::new(Database::new(hasher.clone(), pool))
}

impl StripeState {
    /// A database, unless it has always been empty.
    #[inline]
    pub(crate) fn database(&self, database: usize) -> Option<&Database> {
        self.databases[database].as_deref()
    }

    #[inline]
    pub(crate) fn database_mut(&mut self, database: usize) -> Option<&mut Database> {
        self.databases[database].as_deref_mut()
    }

    /// Returns a database, created if need be, and whether it was created.
    #[inline]
    pub(crate) fn database_or_new(&mut self, database: usize) -> (&mut Database, bool) {
        let slot = &mut self.databases[database];
        let new = slot.is_none();
        (slot.get_or_insert_with(|| new_database(&self.hasher, &self.pool)), new)
    }

    /// A database of which `fits` says so, the more likely the more memory it uses; `only` that one if it is named.
    pub(crate) fn database_by_bytes(
        &self,
        random: u64,
        only: Option<usize>,
        fits: impl Fn(&Database) -> bool,
    ) -> Option<usize> {
        let fitting = || {
            let databases = self.databases.iter().enumerate();
            databases
                .filter(|(number, _)| only.is_none_or(|only| only == *number))
                .filter_map(|(number, database)| Some((number, database.as_deref().filter(|it| fits(it))?)))
        };
        let total: usize = fitting().map(|(_, database)| database.measured_bytes()).sum();
        let mut left = ((u128::from(random) * total as u128) >> 64) as usize;
        let mut last = None;
        for (number, database) in fitting() {
            last = Some(number);
            if left < database.measured_bytes() {
                break;
            }
            left -= database.measured_bytes();
        }
        last
    }

    /// Takes a database out.
    pub(crate) fn take_database(&mut self, database: usize) -> Option<Box<Database>> {
        let taken = self.databases[database].take()?;
        self.used_bytes -= taken.measured_bytes();
        Some(taken)
    }

    pub(crate) fn swap_databases(&mut self, one: usize, other: usize) {
        self.databases.swap(one, other);
    }

    /// Whether a client watches a key of the stripe, waits for one, or keeps a copy of one.
    #[inline]
    pub(crate) fn is_observed(&self) -> bool {
        self.watches.is_some() | self.queues.is_some() | self.tracked.is_some()
    }

    /// Notes that a client keeps a copy of a key. Returns whether the key is new, and whether the client is.
    pub(super) fn track(&mut self, key: &[u8], client: ClientToken) -> (bool, bool) {
        self.tracked.get_or_insert_default().add(key, client)
    }

    /// Forgets the clients that keep copies of a key, and returns them.
    pub(super) fn untrack(&mut self, key: &[u8]) -> Option<Vec<ClientToken>> {
        let tracked = self.tracked.as_mut()?;
        let readers = tracked.take(key);
        if tracked.is_empty() {
            self.tracked = None;
        }
        readers
    }

    /// Forgets clients that are gone in one part of the keys that clients keep copies of, as [`Tracked::forget`].
    pub(super) fn untrack_clients(&mut self, part: usize, gone: &HashSet<u64>) -> (usize, usize, usize) {
        let Some(tracked) = &mut self.tracked else { return (0, 0, 0) };
        let forgotten = tracked.forget(part, gone);
        if tracked.is_empty() {
            self.tracked = None;
        }
        forgotten
    }

    /// Any key that a client keeps a copy of.
    pub(super) fn any_tracked(&self) -> Option<Box<[u8]>> {
        self.tracked.as_ref()?.any()
    }

    /// Forgets all keys that clients keep copies of: how many, how many readers they had, and the bytes of their names.
    pub(super) fn untrack_all(&mut self) -> (usize, usize, usize) {
        self.tracked.take().map_or((0, 0, 0), |tracked| tracked.count())
    }

    /// The watches of keys, if there are any.
    #[inline]
    pub(crate) fn watches(&self) -> Option<&Watches> {
        self.watches.as_deref()
    }

    /// Watches a key, which is there or not.
    pub(crate) fn watch(&mut self, database: usize, key: &[u8], watcher: &Watcher, present: bool) {
        self.watches.get_or_insert_default().add(database, key, watcher, present);
    }

    /// Ends a watch.
    pub(crate) fn unwatch(&mut self, database: usize, key: &[u8], watcher: &Watcher) {
        if let Some(watches) = &mut self.watches {
            watches.remove(database, key, watcher);
            if watches.is_empty() {
                self.watches = None;
            }
        }
    }

    /// Whether this watcher has seen the key there when its watch began.
    pub(crate) fn saw(&self, database: usize, key: &[u8], watcher: &Watcher) -> bool {
        self.watches().is_some_and(|watches| watches.saw(database, key, watcher))
    }

    /// Clients that wait for keys of the stripe, if there are any.
    #[inline]
    pub(crate) fn queues(&self) -> Option<&Queues> {
        self.queues.as_deref()
    }

    pub(crate) fn queues_mut(&mut self) -> Option<&mut Queues> {
        self.queues.as_deref_mut()
    }

    pub(crate) fn queues_or_new(&mut self) -> &mut Queues {
        self.queues.get_or_insert_default()
    }

    /// Call this after queues were taken from.
    pub(crate) fn drop_empty_queues(&mut self) {
        if self.queues.as_ref().is_some_and(|queues| queues.is_empty()) {
            self.queues = None;
        }
    }

    /// Whether tables or slabs hold memory that they do not need.
    pub(crate) fn has_spare(&self) -> bool {
        self.databases.iter().flatten().any(|database| database.has_spare())
    }

    /// # Safety
    /// The gate is closed.
    pub(crate) unsafe fn release_spare(&mut self) {
        for database in self.databases.iter_mut().flatten() {
            // SAFETY: the caller vouches.
            unsafe { database.release_spare() };
        }
    }

    /// Bytes in use, as last measured.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes
    }

    /// Bytes in use after a change in `database`, in all and by it. O(1).
    #[inline]
    pub(crate) fn measure(&mut self, database: usize) -> (usize, usize) {
        let Some(database) = self.databases[database].as_deref_mut() else { return (self.used_bytes, 0) };
        let (before, after) = database.measure();
        self.used_bytes = self.used_bytes + after - before;
        (self.used_bytes, after)
    }

    /// Keys and bytes of one database or of all.
    pub(crate) fn usage(&self, database: Option<usize>) -> Usage {
        let mut usage = Usage::default();
        match database {
            Some(database) => usage.add(self.database(database).map(Database::usage).unwrap_or_default()),
            None => self.databases.iter().flatten().for_each(|database| usage.add(database.usage())),
        }
        usage
    }
}
