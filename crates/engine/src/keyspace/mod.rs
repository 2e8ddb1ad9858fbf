//! The keyspace: databases of keys, striped over stripes that are locked one by one.
//!
//! ```text
//! Keyspace ─▶ gate                        every batch passes it shared
//!          ─▶ stripes[N]  lock │ state ─▶ databases[16] ─▶ table: hash → handle ┐
//!                                                         slab:  handle → entry ┘
//! ```
//!
//! A key's stripe is its cluster slot modulo the number of stripes, so keys with one hash tag share a
//! stripe, and a slot never spans stripes.
//!
//! Invariants:
//! - The state of a stripe is reached only through [`Locked`], which holds the stripe's lock (or the
//!   closed gate), and what borrows from it.
//! - Locks of several stripes are taken in ascending order, all before anything runs.
//! - Entries are freed only under the lock of their stripe; tables only behind the closed gate.

mod access;
mod blocked;
mod claims;
mod database;
mod entry;
mod gate;
mod hidden;
mod key;
mod lock;
mod locked;
mod own_expiries;
mod stripe;
mod stripe_set;
mod tracked;
mod view;
mod watch;
mod weighed;

use std::{
    fmt,
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use dunlin_structures::PagePool;

use crate::{context::ExclusiveContext, snapshot::Snapshots, value::Resources};

pub(crate) use access::Touch;
pub use access::{Access, AccessClock, Ranking};
pub use blocked::{BlockingKeys, ClientToken, Waiter};
pub(crate) use blocked::{NEVER, Queues};
pub(crate) use claims::{Claim, Claims};
pub use database::Database;
pub(crate) use database::{Candidates, Expiration, Part, Sampling};
pub use entry::EntryRef;
pub(crate) use entry::{Edited, STAMP_BITS};
use gate::Gate;
pub use gate::Inside;
pub(crate) use gate::KeptOpen;
pub use hidden::{HiddenSlots, SlotBits};
pub(crate) use key::KeyHasher;
pub use key::{Key, SLOTS, slot};
#[cfg(not(loom))]
pub use lock::lock_sleeps;
pub use locked::Locked;
pub(crate) use locked::LockedStripes;
pub(crate) use own_expiries::OwnExpiries;
use stripe::Stripe;
pub(crate) use stripe::StripeState;
pub use stripe_set::{STRIPES_MAX, StripeSet};
pub use tracked::Invalidation;
pub(crate) use tracked::{PARTS as TRACKED_PARTS, Tracked};
pub(crate) use view::{LentEntry, View, ViewMark};
pub use watch::Watcher;

/// Fewest stripes: enough that two workers rarely meet.
const STRIPES_MIN: usize = 16;
/// Stripes per worker.
const STRIPES_PER_WORKER: usize = 16;

/// Keys whose buckets are fetched together: as many as the first-level cache bears.
const PREFETCH_KEYS: usize = 64;

/// All databases of a server.
pub struct Keyspace {
    stripes: Box<[Stripe]>,
    gate: Gate,
    hasher: KeyHasher,
    /// Databases that may be used: fewer than there are if the server has become a node of a cluster.
    databases: AtomicUsize,
    pool: Arc<PagePool>,
    /// Keys that clients keep copies of, readers of all of them, and bytes of their names.
    tracked: [AtomicUsize; 3],
    /// The number of views of some keys.
    views: Arc<AtomicUsize>,
    /// Keys on their way to another server.
    claims: Arc<Claims>,
    resources: Arc<Resources>,
    snapshots: Arc<Snapshots>,
    access_clock: AccessClock,
    /// By database: keys that were evicted.
    evicted: Box<[AtomicU64]>,
    hidden: HiddenSlots,
    own_expiries: OwnExpiries,
    /// How often databases were emptied.
    flushes: AtomicU64,
    /// Whether FLUSHALL and FLUSHDB are refused.
    holds_flushes: AtomicBool,
    /// See [`Self::set_on_emptied`].
    on_emptied: OnceLock<OnEmptied>,
}

/// A task of the host after FLUSHALL.
type OnEmptied = Box<dyn Fn(&ExclusiveContext<'_>) + Send + Sync>;

impl fmt::Debug for Keyspace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Keyspace")
            .field("stripes", &self.stripes.len())
            .field("databases", &self.databases())
            .finish_non_exhaustive()
    }
}

/// Sums over the keyspace, in keys and bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Keys.
    pub keys: usize,
    /// Keys with an expiry.
    pub expiring: usize,
    /// Their expiries in all, in unix milliseconds.
    pub expiry_sum_ms: u128,
    /// Bytes of entries, by the cells they occupy.
    pub entry_bytes: usize,
    /// Bytes of the index.
    pub table_bytes: usize,
    /// Bytes of long strings and keys outside the cells.
    pub heap_bytes: usize,
}

impl Usage {
    /// Bytes in all.
    pub fn bytes(&self) -> usize {
        self.entry_bytes + self.table_bytes + self.heap_bytes
    }

    /// Milliseconds that keys with an expiry have left on average; 0 if there are none.
    pub fn average_ttl_ms(&self, now_ms: u64) -> u64 {
        let average = self.expiry_sum_ms.checked_div(self.expiring as u128).unwrap_or(0);
        // An average of numbers of 64 bits.
        (average as u64).saturating_sub(now_ms)
    }

    pub(crate) fn add(&mut self, other: Usage) {
        self.keys += other.keys;
        self.expiring += other.expiring;
        self.expiry_sum_ms += other.expiry_sum_ms;
        self.entry_bytes += other.entry_bytes;
        self.table_bytes += other.table_bytes;
        self.heap_bytes += other.heap_bytes;
    }
}

impl Keyspace {
    /// An empty keyspace for `workers` workers and `databases` databases. `seeds` are the secret of
    /// the process. `participants` is how many threads will pass the gate.
    pub fn new(workers: usize, participants: usize, databases: usize, seeds: [u64; 4]) -> Self {
        let stripes = (workers * STRIPES_PER_WORKER).next_power_of_two().clamp(STRIPES_MIN, STRIPES_MAX);
        let hasher = KeyHasher::new(seeds);
        // That of the first keyspace stays: documents of one process compare and share their tables of names.
        dunlin_json::set_name_seed(seeds.into_iter().fold(0, |seed, part| seed.rotate_left(13) ^ part));
        let pool = Arc::new(PagePool::new());
        Self {
            stripes: (0..stripes).map(|_| Stripe::new(databases, &hasher, &pool)).collect(),
            gate: Gate::new(participants),
            resources: Resources::new(Arc::clone(&pool), hasher.clone()),
            hasher,
            tracked: Default::default(),
            views: Arc::default(),
            claims: Arc::default(),
            databases: AtomicUsize::new(databases),
            pool,
            snapshots: Arc::default(),
            access_clock: AccessClock::default(),
            evicted: (0..databases).map(|_| AtomicU64::new(0)).collect(),
            hidden: HiddenSlots::default(),
            own_expiries: OwnExpiries::default(),
            flushes: AtomicU64::new(0),
            holds_flushes: AtomicBool::new(false),
            on_emptied: OnceLock::new(),
        }
    }

    /// The slots whose keys clients do not see.
    #[inline]
    pub fn hidden(&self) -> &HiddenSlots {
        &self.hidden
    }

    /// The keys with an expiry that clients have written while the data set follows a primary.
    #[inline]
    pub(crate) fn own_expiries(&self) -> &OwnExpiries {
        &self.own_expiries
    }

    /// How many keys with an expiry clients have written since the data set follows a primary.
    pub fn own_expiring_keys(&self) -> usize {
        self.own_expiries.len()
    }

    /// How often databases were emptied (FLUSHALL, FLUSHDB).
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Relaxed)
    }

    /// Refuses FLUSHALL and FLUSHDB of clients, or ends that. None runs that has not seen this once the gate was closed
    /// since.
    pub fn hold_flushes(&self, holds: bool) {
        self.holds_flushes.store(holds, Release);
    }

    /// Whether FLUSHALL and FLUSHDB of clients are refused.
    pub fn holds_flushes(&self) -> bool {
        self.holds_flushes.load(Acquire)
    }

    pub(crate) fn note_flush(&self) {
        self.flushes.fetch_add(1, Relaxed);
    }

    /// How many databases may be used.
    #[inline]
    pub fn databases(&self) -> usize {
        self.databases.load(Relaxed)
    }

    /// Limits the databases that are used from now on to `count`. The others are to be empty.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn use_databases(&self, count: usize) {
        assert!((1..=self.evicted.len()).contains(&count), "a database that there is");
        self.databases.store(count, Relaxed);
    }

    /// The numbers of all stripes.
    pub fn stripes(&self) -> Range<usize> {
        0..self.stripes.len()
    }

    /// The source of the memory of entries and tables.
    pub fn pool(&self) -> &PagePool {
        &self.pool
    }

    /// The snapshots that are being taken.
    pub fn snapshots(&self) -> &Arc<Snapshots> {
        &self.snapshots
    }

    /// The clock that gives entries' access stamps their meaning.
    #[inline]
    pub fn access_clock(&self) -> &AccessClock {
        &self.access_clock
    }

    /// The resources of collections.
    pub fn resources(&self) -> &Arc<Resources> {
        &self.resources
    }

    /// The stripe of a key.
    #[inline]
    pub fn stripe_of(&self, key: &[u8]) -> usize {
        self.stripe_of_slot(slot(key))
    }

    /// The stripe of a slot.
    #[inline]
    pub fn stripe_of_slot(&self, slot: u16) -> usize {
        usize::from(slot) & (self.stripes.len() - 1)
    }

    /// Runs this after every FLUSHALL, before its reply and while nothing else runs. To be called once.
    pub fn set_on_emptied(&self, task: impl Fn(&ExclusiveContext<'_>) + Send + Sync + 'static) {
        self.on_emptied.get_or_init(|| Box::new(task));
    }

    /// The task after FLUSHALL.
    pub(crate) fn on_emptied(&self) -> Option<&OnEmptied> {
        self.on_emptied.get()
    }

    /// A key with its slot, stripe and hash.
    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        let slot = slot(bytes);
        Key { bytes, hash: self.hasher.hash(bytes), stripe: self.stripe_of_slot(slot), slot }
    }

    /// Asks the processor for the buckets and entries that keys will probably be found in. No lock is
    /// needed. O(keys).
    ///
    /// All buckets are asked for before the first is looked at, so that they travel side by side;
    /// then the entries that they name, and those in overflow buckets last.
    pub fn prefetch(&self, inside: &Inside<'_>, database: usize, keys: &[Key<'_>]) {
        for keys in keys.chunks(PREFETCH_KEYS) {
            let mut buckets = [None; PREFETCH_KEYS];
            for (bucket, key) in buckets.iter_mut().zip(keys) {
                let probe = self.stripes[key.stripe].probe(database, inside);
                *bucket = probe.and_then(|probe| Some((probe, probe.fetch_bucket(key.hash)?, key.hash)));
            }
            let mut overflowing = 0;
            for at in 0..keys.len() {
                if let Some((probe, bucket, hash)) = buckets[at]
                    && let Some(next) = probe.fetch_entry(bucket, hash)
                {
                    buckets[overflowing] = Some((probe, next, hash));
                    overflowing += 1;
                }
            }
            for (probe, bucket, hash) in buckets[..overflowing].iter().copied().flatten() {
                probe.fetch_entry(bucket, hash);
            }
        }
    }

    /// Asks the processor for elements, by their names, of the collection under a key. The key's stripe is locked for
    /// it; if another thread has locked it, nothing is done. O(elements).
    pub fn prefetch_elements(&self, _: &Inside<'_>, database: usize, key: &Key<'_>, names: &[&[u8]]) {
        if !self.stripes[key.stripe].try_lock() {
            return;
        }
        let locked = Locked::one(self, key.stripe);
        let Some(part) = locked.stripe(key.stripe).database(database) else { return };
        let entry = part.find(key.hash, key.bytes).map(|slot| part.entry(slot));
        if let Some(object) = entry.and_then(EntryRef::object) {
            object.prefetch_elements(names);
        }
    }

    /// Passes the gate.
    #[inline]
    pub fn enter(&self, participant: usize) -> Inside<'_> {
        self.gate.enter(participant)
    }

    /// Passes the gate; `None` if it stays closed for long.
    #[inline]
    pub fn enter_unless_long(&self, participant: usize) -> Option<Inside<'_>> {
        self.gate.enter_unless_long(participant)
    }

    /// Whether a script holds locks for long.
    pub fn is_held_for_long(&self) -> bool {
        self.gate.is_long_inside()
    }

    /// Keeps the gate from being closed, for a thread that looks at stripes without being inside: behind the closed
    /// gate stripes are changed without their locks. `None` if it stays closed for long.
    pub(crate) fn keep_open(&self) -> Option<KeptOpen<'_>> {
        self.gate.keep_open()
    }

    /// Locks one stripe, unless that is held for long.
    #[inline]
    pub(crate) fn lock_one_unless_long(&self, stripe: usize) -> Option<Locked<'_>> {
        self.stripes[stripe].lock_unless_long().then(|| Locked::one(self, stripe))
    }

    /// Locks one stripe, unless another thread has it.
    pub(crate) fn try_lock_one(&self, stripe: usize) -> Option<Locked<'_>> {
        self.stripes[stripe].try_lock().then(|| Locked::one(self, stripe))
    }

    /// A stripe, the more likely the more memory it uses. No lock is taken. O(stripes).
    pub(crate) fn stripe_by_bytes(&self, random: u64) -> usize {
        self.drawn_stripe(random, Stripe::used_bytes)
    }

    /// Draws a stripe by the memory that one database uses.
    pub(crate) fn stripe_by_bytes_of(&self, database: usize, random: u64) -> usize {
        self.drawn_stripe(random, |stripe| stripe.database_bytes(database))
    }

    /// Hands `count` stripes to `visit`, drawn by the memory that they use, or that a database uses in them: evenly over all of it,
    /// from a random place on (systematic sampling). One may come more than once. O(stripes).
    pub(crate) fn stripes_by_bytes(
        &self,
        database: Option<usize>,
        count: usize,
        random: u64,
        mut visit: impl FnMut(usize),
    ) {
        let bytes = |stripe: &Stripe| match database {
            None => stripe.used_bytes(),
            Some(database) => stripe.database_bytes(database),
        };
        let total: usize = self.stripes.iter().map(bytes).sum();
        let step = (total / count.max(1)).max(1);
        let mut next = ((u128::from(random) * step as u128) >> 64) as usize;
        let mut end = 0;
        for (number, stripe) in self.stripes.iter().enumerate() {
            end += bytes(stripe);
            while next < end {
                visit(number);
                next += step;
            }
        }
    }

    fn drawn_stripe(&self, random: u64, bytes: impl Fn(&Stripe) -> usize) -> usize {
        let total: usize = self.stripes.iter().map(&bytes).sum();
        let mut left = ((u128::from(random) * total as u128) >> 64) as usize;
        for (number, stripe) in self.stripes.iter().enumerate() {
            let bytes = bytes(stripe);
            if left < bytes {
                return number;
            }
            left -= bytes;
        }
        random as usize % self.stripes.len()
    }

    /// Locks a set of stripes, in ascending order, unless one of them is held for long.
    pub(crate) fn lock_set_unless_long(&self, stripes: StripeSet) -> Option<Locked<'_>> {
        for stripe in stripes.iter() {
            if !self.stripes[stripe].lock_unless_long() {
                stripes
                    .iter()
                    .take_while(|taken| *taken < stripe)
                    .for_each(|taken| self.stripes[taken].unlock());
                return None;
            }
        }
        Some(Locked::set(self, stripes))
    }

    /// Waits until no batch is running and keeps new ones out; `None` if that would take long. The
    /// caller must not be inside.
    pub fn close_unless_long(&self) -> Option<Locked<'_>> {
        Some(Locked::all(self, self.gate.close_unless_long()?))
    }

    /// Locks one stripe.
    #[inline]
    pub fn lock_one(&self, stripe: usize) -> Locked<'_> {
        self.stripes[stripe].lock();
        Locked::one(self, stripe)
    }

    /// Locks a set of stripes, in ascending order.
    pub fn lock_set(&self, stripes: StripeSet) -> Locked<'_> {
        for stripe in stripes.iter() {
            self.stripes[stripe].lock();
        }
        Locked::set(self, stripes)
    }

    /// Waits until no batch is running and keeps new ones out. The caller must not be inside. A script that runs for long is
    /// waited for without keeping others out.
    pub fn close(&self) -> Locked<'_> {
        Locked::all(self, self.gate.close())
    }

    /// Keys and bytes of one database or of all. Stripes are visited one after the other.
    pub fn usage(&self, database: Option<usize>) -> Usage {
        let mut usage = Usage::default();
        for stripe in self.stripes() {
            usage.add(self.lock_one(stripe).stripe(stripe).usage(database));
        }
        usage
    }

    /// Bytes of the stripes and their lists of databases: the size of an empty keyspace.
    pub fn fixed_bytes(&self) -> usize {
        let database = size_of::<Option<Box<Database>>>() + size_of::<usize>();
        self.stripes.len() * (size_of::<Stripe>() + self.evicted.len() * database)
    }

    /// Says that there is a view, for as long as the result lives.
    pub(crate) fn mark_view(&self) -> ViewMark {
        ViewMark::new(&self.views)
    }

    /// Whether there is a view of some keys, a snapshot being one of all. A thread that holds the lock of a key knows
    /// of all views of that key.
    #[inline]
    pub(crate) fn has_views(&self) -> bool {
        self.views.load(Relaxed) > 0
    }

    /// The keys on their way to another server.
    #[inline]
    pub(crate) fn claims(&self) -> &Claims {
        &self.claims
    }

    /// Makes writers of some keys wait, whose stripes are locked. The caller has a view of them, too: without one, no
    /// command looks for claims.
    pub(crate) fn claim<'a>(&self, keys: impl Iterator<Item = &'a [u8]>) -> Claim {
        self.claims.claim(keys)
    }

    /// Keys that clients keep copies of, and readers of all of them.
    pub fn tracked(&self) -> (usize, usize) {
        (self.tracked[0].load(Relaxed), self.tracked[1].load(Relaxed))
    }

    /// Bytes of the tables of these keys, as hash tables and vectors of few readers are on average.
    pub fn tracked_bytes(&self) -> usize {
        /// A key's place in its table with its vector of readers.
        const KEY_BYTES: usize = 112;
        let [keys, readers, names] = self.tracked.each_ref().map(|count| count.load(Relaxed));
        keys * KEY_BYTES + readers * size_of::<ClientToken>() + names
    }

    /// Bytes in use, as the stripes last reported them: no lock is taken. O(stripes).
    pub fn used_bytes(&self) -> usize {
        self.stripes.iter().map(Stripe::used_bytes).sum()
    }

    /// Bytes in use by one database.
    pub fn database_bytes(&self, database: usize) -> usize {
        self.stripes.iter().map(|stripe| stripe.database_bytes(database)).sum()
    }

    /// Keys of a database that were evicted since the start.
    pub fn evicted(&self, database: usize) -> u64 {
        self.evicted[database].load(Relaxed)
    }

    pub(crate) fn note_evicted(&self, database: usize) {
        self.evicted[database].fetch_add(1, Relaxed);
    }
}
