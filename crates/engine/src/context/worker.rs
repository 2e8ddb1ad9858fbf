//! A worker's own resources, and the values that its commands have removed.

use std::{any::Any, collections::VecDeque, sync::Arc};

use crate::{
    eviction::VictimPool,
    fieldsets::Fieldsets,
    keyspace::{ClientToken, Database},
    notify::{Audience, Notice},
    propagation::Propagation,
    random::Random,
    rdb::Compressor,
    serve::Served,
    statistics::Statistics,
    value::Owned,
};

/// Payloads below this many bytes are freed on the spot; larger ones are worth carrying away.
const GARBAGE_BYTES_MIN: usize = 32 * 1024;
/// Freeing this many bytes takes up to half a millisecond.
const LARGE_GARBAGE_BYTES_MIN: usize = if cfg!(test) { 4 << 20 } else { 32 << 20 };

/// Large values and whole databases on their way out. Dropping it frees them: outside all locks,
/// and on whichever thread can afford it.
#[derive(Debug, Default)]
pub struct Garbage {
    values: Vec<Owned>,
    databases: Vec<Database>,
    /// Values that were taken or made without a worker.
    others: Vec<Box<dyn Any + Send>>,
    /// From which value on they are to be freed before the answer leaves.
    freed_from: Option<usize>,
}

impl Garbage {
    #[inline]
    pub(crate) fn push(&mut self, value: Owned) {
        if value.heap_bytes() >= GARBAGE_BYTES_MIN {
            self.values.push(value);
        }
    }

    pub(crate) fn push_database(&mut self, database: Database) {
        self.databases.push(database);
    }

    /// Adds something that is not a value.
    pub fn push_other(&mut self, other: Box<dyn Any + Send>) {
        self.others.push(other);
    }

    /// From here on, values are freed before the answer leaves, though outside the locks
    /// ([`Self::free_marked`]), instead of being handed over.
    pub(crate) fn free_soon(&mut self) {
        self.freed_from.get_or_insert(self.values.len());
    }

    /// Frees the values queued by [`Self::free_soon`], unless freeing them here would stall the worker's other
    /// clients: then they are handed over with the rest. No lock is held.
    #[inline]
    pub(crate) fn free_marked(&mut self) {
        if let Some(kept) = self.freed_from.take()
            && self.bytes_from(kept) < LARGE_GARBAGE_BYTES_MIN
        {
            self.values.truncate(kept);
        }
    }

    fn bytes_from(&self, kept: usize) -> usize {
        self.values[kept..].iter().map(Owned::heap_bytes).sum()
    }

    /// Whether freeing it would stall the thread that does.
    pub fn is_large(&self) -> bool {
        self.bytes() >= LARGE_GARBAGE_BYTES_MIN
    }

    /// Bytes that freeing it gives back: without blocks that others share, and things that are no value.
    pub fn bytes(&self) -> usize {
        let databases: usize = self.databases.iter().map(|database| database.usage().bytes()).sum();
        self.bytes_from(0) + databases
    }

    /// Whether [`Self::free_soon`] was said of anything.
    #[inline]
    pub(crate) fn is_freed_soon(&self) -> bool {
        self.freed_from.is_some()
    }

    /// Takes the values queued by [`Self::free_soon`] if freeing them here would stall the worker.
    #[inline]
    pub(crate) fn take_large_marked(&mut self) -> Option<Garbage> {
        let kept = self.freed_from?;
        if self.bytes_from(kept) < LARGE_GARBAGE_BYTES_MIN {
            return None;
        }
        self.freed_from = None;
        Some(Garbage { values: self.values.split_off(kept), ..Garbage::default() })
    }

    /// Takes everything out.
    pub fn take(&mut self) -> Garbage {
        std::mem::take(self)
    }

    /// How many values and keys there are, which INFO calls objects.
    pub fn objects(&self) -> usize {
        self.values.len() + self.databases.iter().map(Database::len).sum::<usize>()
    }

    /// Whether there is nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.databases.is_empty() && self.others.is_empty()
    }
}

/// Keys, each with its database, whose clients are served when a script has ended.
#[derive(Debug, Clone, Default)]
pub struct BlockedByScript(pub(crate) Vec<(usize, Box<[u8]>)>);

/// A worker's own resources: its number, counters, random numbers, garbage.
#[derive(Debug)]
pub struct Worker {
    id: usize,
    /// Its counters.
    pub statistics: Arc<Statistics>,
    /// A monotonic clock of the host's, in nanoseconds: it times the commands of clients that have waited.
    pub clock_ns: fn() -> u64,
    /// Values and databases that its commands have removed and that are to be freed.
    pub garbage: Garbage,
    /// Its commands' changes that are not in the log yet.
    pub propagation: Propagation,
    /// Notices of its commands for others, in order, until the audience has them.
    pub notices: Vec<Notice>,
    /// The receiver of notices; without one, they are dropped.
    pub audience: Option<Box<dyn Audience>>,
    /// Keys that its commands have changed and that clients wait for, each with its database.
    pub(crate) ready: VecDeque<(usize, Box<[u8]>)>,
    /// Keys that are ready, but whose clients cannot be served while a script holds other stripes of theirs.
    pub(crate) blocked_by_script: BlockedByScript,
    /// Clients that its commands have served: they wait for the replies.
    pub served: Vec<Served>,
    /// Where short texts are edited before they are stored again.
    pub(super) scratch: Vec<u8>,
    /// For strings in dumps.
    pub(crate) compressor: Compressor,
    /// Keys that may be evicted next.
    pub(crate) victims: VictimPool,
    /// The fieldsets that its clients have prepared.
    pub fieldsets: Fieldsets,
    random: Random,
}

impl Worker {
    /// A worker with a number, which is also its place in the gate, and a seed.
    pub fn new(id: usize, seed: u64) -> Self {
        Self {
            id,
            statistics: Arc::default(),
            clock_ns: || 0,
            garbage: Garbage::default(),
            propagation: Propagation::default(),
            notices: Vec::new(),
            audience: None,
            ready: VecDeque::new(),
            blocked_by_script: BlockedByScript::default(),
            served: Vec::new(),
            scratch: Vec::new(),
            compressor: Compressor::default(),
            victims: VictimPool::default(),
            fieldsets: Fieldsets::default(),
            random: Random::new(seed),
        }
    }

    /// Its number.
    #[inline]
    pub fn id(&self) -> usize {
        self.id
    }

    /// Passes the notices since the last call to its audience, on behalf of a client. To be called before the locks go.
    #[inline]
    pub fn tell(&mut self, writer: ClientToken) {
        if !self.notices.is_empty() {
            self.tell_notices(writer);
        }
    }

    #[cold]
    fn tell_notices(&mut self, writer: ClientToken) {
        // First: the notices of clients' own commands come after the replies.
        self.mark_client();
        if let Some(audience) = &mut self.audience {
            audience.tell(&self.notices, writer);
        }
        self.notices.retain(|notice| matches!(notice, Notice::Client(_)));
    }

    /// Decides the place among all changes of the command at hand, if that matters to its client. The keys that it
    /// looks at are locked, and stay so for a while.
    pub fn mark_client(&self) {
        for notice in &self.notices {
            if let Notice::Client(client) = notice {
                client.mark();
            }
        }
    }

    /// Whether clients are to be served as soon as a script has ended ([`Engine::serve_kept_out`]).
    ///
    /// [`Engine::serve_kept_out`]: crate::Engine::serve_kept_out
    #[inline]
    pub fn has_blocked_by_script(&self) -> bool {
        !self.blocked_by_script.0.is_empty()
    }

    /// Takes the keys whose clients are to be served then, for another worker.
    pub fn take_blocked_by_script(&mut self) -> BlockedByScript {
        std::mem::take(&mut self.blocked_by_script)
    }

    /// Takes over the keys of a worker that does not look at them again itself.
    pub fn add_blocked_by_script(&mut self, keys: &BlockedByScript) {
        self.blocked_by_script.0.extend_from_slice(&keys.0);
    }

    /// The source of its random numbers.
    pub(crate) fn random_source(&mut self) -> &mut Random {
        &mut self.random
    }

    /// The next of its random numbers: for sampling, not for secrets.
    pub fn random(&mut self) -> u64 {
        self.random.bits()
    }
}
