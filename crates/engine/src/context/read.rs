//! For commands that read values.

use dunlin_resp::SharedSlice;

use crate::{
    command::{CommandError, CommandResult},
    keyspace::{EntryRef, Key, Keyspace, Locked, Ranking, View},
    notify::{Event, EventClass, Notice},
    rdb::{Compressor, serialized_bytes, write_dump_in_pieces},
    value::{Collection, Layout, StringRef},
};

use super::{Caller, Environment, Policy, Worker, collection_of, keys::KnownKeys, string_of};

/// The source in which keys are looked up.
#[derive(Debug, Clone, Copy)]
enum Source<'a> {
    /// In stripes that are locked.
    Stripes(&'a Locked<'a>),
    /// In a view that was taken under their locks.
    View(&'a View),
}

/// For commands that read values.
#[derive(Debug)]
pub struct ReadContext<'a> {
    keyspace: &'a Keyspace,
    source: Source<'a>,
    database: usize,
    keys: KnownKeys<'a>,
    environment: Environment<'a>,
    worker: &'a mut Worker,
    met_expired: bool,
}

impl<'a> ReadContext<'a> {
    #[inline]
    pub(crate) fn new(
        locked: &'a Locked<'a>,
        database: usize,
        keys: &'a [Key<'a>],
        environment: Environment<'a>,
        worker: &'a mut Worker,
    ) -> Self {
        let (keyspace, source) = (locked.keyspace(), Source::Stripes(locked));
        let keys = KnownKeys::new(keys);
        Self { keyspace, source, database, keys, environment, worker, met_expired: false }
    }

    /// For a command that is offloaded.
    pub(crate) fn offloaded(
        keyspace: &'a Keyspace,
        view: &'a View,
        database: usize,
        environment: Environment<'a>,
        worker: &'a mut Worker,
    ) -> Self {
        let (source, keys) = (Source::View(view), KnownKeys::new(&[]));
        Self { keyspace, source, database, keys, environment, worker, met_expired: false }
    }

    /// Call this once everything is looked up and before the work begins: the command is about to visit
    /// that many elements. The error, which is to be passed on, offloads it.
    #[inline]
    pub fn weigh(&self, elements: usize) -> CommandResult {
        match (self.source, self.environment.caller.visits_max) {
            (Source::Stripes(locked), Some(max)) if elements > max => {
                // Transactions and scripts have to have the answer now; a command with undeclared keys may look anywhere.
                let must_stay = self.environment.caller.deny_blocking || locked.is_everything();
                if must_stay { Ok(()) } else { Err(CommandError::TooLong) }
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn met_expired(&self) -> bool {
        self.met_expired
    }

    /// Unix time in milliseconds up to which keys and elements have expired: 0 in a replay. Commands count relative times
    /// from [`Self::clock_ms`].
    pub fn now_ms(&self) -> u64 {
        self.environment.caller.now_ms
    }

    /// Unix time in milliseconds by the clock.
    pub fn clock_ms(&self) -> u64 {
        self.environment.caller.clock_ms()
    }

    /// The settings that the command obeys.
    #[inline]
    pub fn policy(&self) -> &'a Policy {
        self.environment.policy
    }

    /// On whose behalf it runs.
    #[inline]
    pub fn caller(&self) -> &'a Caller {
        self.environment.caller
    }

    /// The entry of a key that is there and has not expired, without noting the access.
    pub fn peek(&mut self, key: &[u8]) -> Option<EntryRef<'a>> {
        self.peek_in(self.database, key)
    }

    /// [`Self::peek`] in another database.
    #[inline(always)]
    pub fn peek_in(&mut self, database: usize, key: &[u8]) -> Option<EntryRef<'a>> {
        let locked = match self.source {
            Source::Stripes(locked) => locked,
            Source::View(view) => return view.find(key),
        };
        let key = self.keys.resolve(self.keyspace, key);
        let database = locked.stripe(key.stripe).database(database)?;
        let (_, entry) = database.find_entry(key.hash, key.bytes)?;
        if entry.is_expired(self.environment.caller.now_ms) {
            self.met_expired = true;
            return None;
        }
        Some(entry)
    }

    /// The entry of a key that is there and has not expired; counts a hit or a miss and notes the
    /// access.
    #[inline]
    pub fn find(&mut self, key: &[u8]) -> Option<EntryRef<'a>> {
        let entry = self.peek_in(self.database, key);
        match entry {
            Some(entry) => {
                self.worker.statistics.keyspace_hits.add(1);
                if !self.environment.caller.no_touch && !self.environment.caller.access.is_settled(entry) {
                    self.touch_entry(entry);
                }
            }
            None => self.note_miss(key),
        }
        entry
    }

    /// [`Self::find`] for questions about a key that do not count as its use.
    pub fn inspect(&mut self, key: &[u8]) -> Option<EntryRef<'a>> {
        let entry = self.peek(key);
        let statistics = &self.worker.statistics;
        if entry.is_some() {
            statistics.keyspace_hits.add(1)
        } else {
            self.note_miss(key);
        }
        entry
    }

    /// [`Self::inspect`] without a notice.
    pub fn inspect_quietly(&mut self, key: &[u8]) -> Option<EntryRef<'a>> {
        let entry = self.peek(key);
        let statistics = &self.worker.statistics;
        if entry.is_some() {
            statistics.keyspace_hits.add(1)
        } else {
            statistics.keyspace_misses.add(1)
        }
        entry
    }

    #[inline]
    fn note_miss(&mut self, key: &[u8]) {
        self.worker.statistics.keyspace_misses.add(1);
        if self.environment.policy.notifications.has(EventClass::KeyMiss) {
            let (class, database) = (EventClass::KeyMiss, self.database);
            let (key, subkeys) = (key.to_vec(), Vec::new());
            let event = Event { class, name: "keymiss", database, key, subkeys };
            self.worker.notices.push(Notice::Event(event));
        }
    }

    #[inline(never)]
    fn touch_entry(&mut self, entry: EntryRef<'_>) {
        entry.touch(self.environment.caller.access.one(|| self.worker.random()));
    }

    /// Notes an access even if reads do not. Returns whether the key is there.
    pub fn touch(&mut self, key: &[u8]) -> bool {
        let entry = self.inspect(key);
        if let Some(entry) = entry
            && !self.environment.policy.stamps_changes
        {
            self.touch_entry(entry);
        }
        entry.is_some()
    }

    /// Bytes that a key takes: its cell, what key and value have on the heap, and its slot in the index. No access is
    /// noted. Free slots and cells belong to no key: `MEMORY STATS` shows them.
    pub fn memory_bytes(&mut self, key: &[u8]) -> Option<usize> {
        self.peek(key).map(EntryRef::memory_bytes)
    }

    /// The entry's value as DUMP answers it, in pieces. O(n).
    pub fn dump(&mut self, entry: EntryRef<'_>) -> Vec<SharedSlice> {
        write_dump_in_pieces(entry, self.environment.caller.now_ms, self.compressor())
    }

    /// The compressor for strings of dumps, unless they stay as they are.
    fn compressor(&mut self) -> Option<&mut Compressor> {
        self.environment.policy.compress_dumps.then_some(&mut self.worker.compressor)
    }

    /// Bytes that the entry's value takes in a dump. O(n).
    pub fn serialized_bytes(&mut self, entry: EntryRef<'_>) -> usize {
        serialized_bytes(entry, self.environment.caller.now_ms, self.compressor())
    }

    /// Seconds since a key was last used, rather too many than too few; `None` if the policy counts uses instead.
    pub fn idle_seconds(&self, entry: EntryRef<'_>) -> Option<u64> {
        let clock = self.keyspace.access_clock();
        let is_known = clock.ranking() != Ranking::Frequency;
        is_known.then(|| clock.idle_ms(entry.access(), self.clock_ms()) / 1000)
    }

    /// How often a key is used, on the logarithmic scale of Redis; `None` if the policy goes by times instead.
    pub fn frequency(&self, entry: EntryRef<'_>) -> Option<u8> {
        (self.keyspace.access_clock().ranking() == Ranking::Frequency).then(|| entry.access())
    }

    /// The string under a key; an error if it holds another type.
    #[inline]
    pub fn string(&mut self, key: &[u8]) -> Result<Option<StringRef<'a>>, CommandError> {
        self.find(key).map(string_of).transpose()
    }

    /// A random number, for sampling.
    pub fn random(&mut self) -> u64 {
        self.worker.random()
    }

    /// How collections that a command builds for its answer are laid out.
    pub fn layout(&self) -> Layout<'a> {
        Layout { limits: &self.environment.policy.collection_limits, resources: self.keyspace.resources() }
    }

    /// The collection under a key; an error if it holds another type.
    #[inline]
    pub fn collection<T: Collection>(&mut self, key: &[u8]) -> Result<Option<T::Ref<'a>>, CommandError> {
        self.find(key).map(collection_of::<T>).transpose()
    }
}
