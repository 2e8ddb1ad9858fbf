//! What a running command is given: keys under lock, the time, limits, its worker.
//!
//! The type carries the permission: [`ReadContext`] has no way to change a value. All changes go
//! through [`WriteContext`], which counts them, so that whatever must learn of a change has one
//! place to stand.

use std::sync::Arc;

use crate::{
    command::CommandError,
    glob,
    keyspace::{Database, EXPIRY_MS_MAX, EntryRef, Key, Keyspace, Locked, Usage, access_clock, idle_seconds},
    random::Random,
    statistics::Statistics,
    value::{Collection, CollectionLimits, Layout, NewString, NewValue, Owned, Resources, StringRef},
};

/// Payloads below this many bytes are freed on the spot; larger ones are worth carrying away.
const GARBAGE_BYTES_MIN: usize = 32 * 1024;

/// What is the same for all commands of a batch.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// Unix time in milliseconds, read once a batch.
    pub now_ms: u64,
    /// Longest string, in bytes (`proto-max-bulk-len`).
    pub string_bytes_max: usize,
    /// Whether reads leave the keys' access clocks alone (`CLIENT NO-TOUCH`).
    pub no_touch: bool,
    /// Whether the freeing of what has expired is left for later (`lazyfree-lazy-expire`).
    pub lazyfree_expire: bool,
    /// Whether the freeing of what a command replaces is (`lazyfree-lazy-server-del`).
    pub lazyfree_server_del: bool,
    /// Whether `DEL` leaves the freeing of what it removes for later (`lazyfree-lazy-user-del`).
    pub lazyfree_user_del: bool,
    /// Whether `FLUSHALL` and `FLUSHDB` do so where they are not told (`lazyfree-lazy-user-flush`).
    pub lazyfree_user_flush: bool,
    /// Whether keys that have expired stay where they are, seen by nobody (`CLIENT PAUSE`).
    pub keep_expired: bool,
    /// Thresholds of the compact encodings.
    pub collection_limits: CollectionLimits,
}

/// Large values and whole databases on their way out. Dropping it frees them: outside all locks,
/// and on whichever thread can afford it.
#[derive(Debug, Default)]
pub struct Garbage {
    values: Vec<Owned>,
    databases: Vec<Database>,
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

    /// How many values there are.
    pub(crate) fn values(&self) -> usize {
        self.values.len()
    }

    /// Takes the values out that came after the first `kept`.
    pub(crate) fn split_off(&mut self, kept: usize) -> Garbage {
        Garbage { values: self.values.split_off(kept), databases: Vec::new() }
    }

    /// Takes everything out.
    pub fn take(&mut self) -> Garbage {
        std::mem::take(self)
    }

    /// Whether there is nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.databases.is_empty()
    }
}

/// What a worker brings along: its number, counters, random numbers, garbage.
#[derive(Debug)]
pub struct Worker {
    id: usize,
    /// Its counters.
    pub statistics: Arc<Statistics>,
    /// What its commands have thrown away.
    pub garbage: Garbage,
    /// Where short texts are edited before they are stored again.
    scratch: Vec<u8>,
    random: Random,
}

impl Worker {
    /// A worker with a number, which is also its place in the gate, and a seed.
    pub fn new(id: usize, seed: u64) -> Self {
        Self {
            id,
            statistics: Arc::default(),
            garbage: Garbage::default(),
            scratch: Vec::new(),
            random: Random::new(seed),
        }
    }

    /// Its number.
    #[inline]
    pub fn id(&self) -> usize {
        self.id
    }

    /// The next of its random numbers: for sampling, not for secrets.
    pub fn random(&mut self) -> u64 {
        self.random.bits()
    }
}

/// What happens to a key's expiry when its value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpiryChange {
    /// It stays as it is.
    Keep,
    /// It is removed.
    Clear,
    /// It becomes this unix time in milliseconds.
    At(u64),
}

/// For commands that read values.
#[derive(Debug)]
pub struct ReadContext<'a> {
    locked: &'a Locked<'a>,
    database: usize,
    keys: KnownKeys<'a>,
    environment: &'a Environment,
    worker: &'a mut Worker,
    met_expired: bool,
}

impl<'a> ReadContext<'a> {
    #[inline]
    pub(crate) fn new(
        locked: &'a Locked<'a>,
        database: usize,
        keys: &'a [Key<'a>],
        environment: &'a Environment,
        worker: &'a mut Worker,
    ) -> Self {
        Self { locked, database, keys: KnownKeys::new(keys), environment, worker, met_expired: false }
    }

    pub(crate) fn met_expired(&self) -> bool {
        self.met_expired
    }

    /// Unix time in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.environment.now_ms
    }

    /// What is the same for the whole batch.
    pub fn environment(&self) -> &'a Environment {
        self.environment
    }

    /// The entry of a key that is there and has not expired, without noting the access.
    pub fn peek(&mut self, key: &[u8]) -> Option<EntryRef<'a>> {
        self.peek_in(self.database, key)
    }

    /// [`Self::peek`] in another database.
    #[inline]
    pub fn peek_in(&mut self, database: usize, key: &[u8]) -> Option<EntryRef<'a>> {
        let key = self.keys.resolve(self.locked.keyspace(), key);
        let database = self.locked.shard(key.shard).database(database)?;
        let entry = database.entry(database.find(key.hash, key.bytes)?);
        if entry.is_expired(self.environment.now_ms) {
            self.met_expired = true;
            return None;
        }
        Some(entry)
    }

    /// The entry of a key that is there and has not expired; counts a hit or a miss and notes the
    /// access.
    #[inline]
    pub fn find(&mut self, key: &[u8]) -> Option<EntryRef<'a>> {
        let entry = self.peek(key);
        match entry {
            Some(entry) => {
                self.worker.statistics.keyspace_hits.add(1);
                if !self.environment.no_touch {
                    entry.touch(access_clock(self.environment.now_ms));
                }
            }
            None => self.worker.statistics.keyspace_misses.add(1),
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
            statistics.keyspace_misses.add(1)
        }
        entry
    }

    /// Notes an access even where reads do not; whether the key is there.
    pub fn touch(&mut self, key: &[u8]) -> bool {
        let clock = access_clock(self.environment.now_ms);
        let entry = self.inspect(key);
        entry.inspect(|entry| entry.touch(clock)).is_some()
    }

    /// Bytes that a key takes: its cell, what key and value have on the heap, and its slot in the
    /// index. No access is noted. Free slots and cells are nobody's: `MEMORY STATS` shows them.
    pub fn memory_bytes(&mut self, key: &[u8]) -> Option<usize> {
        self.peek(key).map(EntryRef::memory_bytes)
    }

    /// Seconds since a key was last used, in steps of eight and modulo 35 minutes: one byte of an
    /// entry is all there is for it.
    pub fn idle_seconds(&self, entry: EntryRef<'_>) -> u64 {
        idle_seconds(entry.access(), self.environment.now_ms)
    }

    /// The string under a key; an error where it holds another type.
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
        Layout { limits: &self.environment.collection_limits, resources: self.locked.keyspace().resources() }
    }

    /// The collection under a key; an error where it holds another type.
    #[inline]
    pub fn collection<T: Collection>(&mut self, key: &[u8]) -> Result<Option<&'a T>, CommandError> {
        self.find(key).map(collection_of).transpose()
    }
}

/// The string of an entry; an error where it holds another type.
#[inline]
pub(crate) fn string_of(entry: EntryRef<'_>) -> Result<StringRef<'_>, CommandError> {
    if entry.object().is_some() { Err(CommandError::WrongType) } else { Ok(entry.string()) }
}

/// The collection of an entry; an error where it holds another type.
#[inline]
fn collection_of<'a, T: Collection>(entry: EntryRef<'a>) -> Result<&'a T, CommandError> {
    entry.object().and_then(T::of).ok_or(CommandError::WrongType)
}

/// The keys of a request whose hashes the executor has computed ahead.
#[derive(Debug)]
struct KnownKeys<'a> {
    keys: &'a [Key<'a>],
    /// The next key that the command will probably ask for.
    next: usize,
}

impl<'a> KnownKeys<'a> {
    #[inline]
    fn new(keys: &'a [Key<'a>]) -> Self {
        Self { keys, next: 0 }
    }

    /// The key with its hash; computed where it is not one of those at hand. Commands mostly go
    /// through their keys in order, some twice, and some leave the first one for last.
    #[inline]
    fn resolve<'k>(&mut self, keyspace: &Keyspace, key: &'k [u8]) -> Key<'k> {
        for at in [self.next, self.next.wrapping_sub(1), self.next + 1, 0] {
            if let Some(known) = self.keys.get(at)
                && std::ptr::eq(known.bytes, key)
            {
                self.next = at + 1;
                return Key { bytes: key, ..*known };
            }
        }
        keyspace.key(key)
    }
}

/// For commands that change values.
#[derive(Debug)]
pub struct WriteContext<'a> {
    locked: Locked<'a>,
    database: usize,
    keys: KnownKeys<'a>,
    environment: &'a Environment,
    worker: &'a mut Worker,
    /// From which piece of garbage on it is freed before the answer leaves.
    freed_from: Option<usize>,
}

impl<'a> WriteContext<'a> {
    #[inline]
    pub(crate) fn new(
        locked: Locked<'a>,
        database: usize,
        keys: &'a [Key<'a>],
        environment: &'a Environment,
        worker: &'a mut Worker,
    ) -> Self {
        Self { locked, database, keys: KnownKeys::new(keys), environment, worker, freed_from: None }
    }

    /// Releases the locks; what is left to be freed before the answer leaves.
    #[inline]
    pub(crate) fn finish(self) -> Option<Garbage> {
        let Self { worker, freed_from, .. } = self;
        let kept = freed_from.filter(|kept| *kept < worker.garbage.values())?;
        Some(worker.garbage.split_off(kept))
    }

    /// Has the values that the command removes from here on freed before its answer leaves, though
    /// outside the locks, instead of handing them over.
    pub fn free_before_answering(&mut self) {
        self.freed_from.get_or_insert(self.worker.garbage.values());
    }

    /// Unix time in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.environment.now_ms
    }

    /// What is the same for the whole batch.
    pub fn environment(&self) -> &'a Environment {
        self.environment
    }

    /// The client's database.
    pub fn database(&self) -> usize {
        self.database
    }

    /// How many databases there are.
    pub fn databases(&self) -> usize {
        self.locked.keyspace().databases()
    }

    /// A random number, for sampling.
    pub fn random(&mut self) -> u64 {
        self.worker.random()
    }

    #[inline]
    fn key<'k>(&mut self, key: &'k [u8]) -> Key<'k> {
        self.keys.resolve(self.locked.keyspace(), key)
    }

    /// The slot of a key that is there; an expired one is removed.
    #[inline]
    fn slot(&mut self, database: usize, key: &Key<'_>) -> Option<dunlin_structures::Slot> {
        let stripe = self.locked.shard(key.shard).database(database)?;
        let slot = stripe.find(key.hash, key.bytes)?;
        if stripe.entry(slot).is_expired(self.environment.now_ms) {
            if !self.environment.lazyfree_expire {
                self.free_before_answering();
            }
            self.remove_slot(database, key.shard, slot);
            self.worker.statistics.expired_keys.add(1);
            return None;
        }
        Some(slot)
    }

    fn remove_slot(&mut self, database: usize, shard: usize, slot: dunlin_structures::Slot) {
        if let Some(stripe) = self.locked.shard_mut(shard).database_mut(database) {
            stripe.remove(slot, &mut self.worker.garbage);
        }
        self.locked.publish_usage(shard, database);
    }

    /// Removes a key whose time has come.
    pub(crate) fn remove_expired(&mut self, key: &[u8]) {
        let key = self.key(key);
        self.slot(self.database, &key);
    }

    /// The entry of a key that is there and has not expired.
    #[inline]
    pub fn find(&mut self, key: &[u8]) -> Option<EntryRef<'_>> {
        self.find_in(self.database, key)
    }

    /// [`Self::find`] in another database.
    #[inline]
    pub fn find_in(&mut self, database: usize, key: &[u8]) -> Option<EntryRef<'_>> {
        let key = self.key(key);
        let slot = self.slot(database, &key)?;
        let entry = self.locked.shard(key.shard).database(database)?.entry(slot);
        if !self.environment.no_touch {
            entry.touch(access_clock(self.environment.now_ms));
        }
        Some(entry)
    }

    /// Whether a key is there and has not expired.
    pub fn contains_in(&mut self, database: usize, key: &[u8]) -> bool {
        let key = self.key(key);
        self.slot(database, &key).is_some()
    }

    /// The string under a key; an error where it holds another type.
    pub fn string(&mut self, key: &[u8]) -> Result<Option<StringRef<'_>>, CommandError> {
        self.find(key).map(string_of).transpose()
    }

    /// The collection under a key; an error where it holds another type.
    pub fn collection<T: Collection>(&mut self, key: &[u8]) -> Result<Option<&T>, CommandError> {
        self.find(key).map(collection_of).transpose()
    }

    /// The collections under several keys at once; an error where one of them holds another type.
    pub fn collections<T: Collection>(&mut self, keys: &[&[u8]]) -> Result<Vec<Option<&T>>, CommandError> {
        // Removing what has expired moves other entries, so it comes first.
        for key in keys {
            self.find(key);
        }
        let resolved: Vec<Key<'_>> = keys.iter().map(|key| self.key(key)).collect();
        let found = resolved.iter().map(|key| {
            let stripe = self.locked.shard(key.shard).database(self.database)?;
            Some(stripe.entry(stripe.find(key.hash, key.bytes)?))
        });
        found.map(|entry| entry.map(collection_of).transpose()).collect()
    }

    /// Works on the collection under a key; `None` where there is none, an error where the key holds
    /// another type. A collection that is empty afterwards is removed with its key.
    pub fn edit<T: Collection, R>(
        &mut self,
        key: &[u8],
        edit: impl FnOnce(&mut T) -> R,
    ) -> Result<Option<R>, CommandError> {
        self.update(key, |collection| (edit(collection), true))
    }

    /// [`Self::edit`], on a new collection where the key is missing. One that is left empty is not
    /// stored.
    pub fn edit_or_create<T: Collection, R>(
        &mut self,
        key: &[u8],
        edit: impl FnOnce(&mut T) -> R,
    ) -> Result<R, CommandError> {
        self.update_or_create(key, |collection| (edit(collection), true))
    }

    /// [`Self::edit`] that may find nothing to do: `edit` also answers whether it has changed the
    /// collection.
    pub fn update<T: Collection, R>(
        &mut self,
        key: &[u8],
        edit: impl FnOnce(&mut T) -> (R, bool),
    ) -> Result<Option<R>, CommandError> {
        let key = self.key(key);
        let Some(slot) = self.slot(self.database, &key) else { return Ok(None) };
        let now_ms = self.environment.now_ms;
        let stripe = self.locked.shard_mut(key.shard).database_mut(self.database);
        let stripe = stripe.expect("the slot was found in it");
        stripe.entry(slot).touch(access_clock(now_ms));
        let edited = stripe.edit_object(slot, |object| {
            T::of_mut(object).map(|collection| (edit(collection), collection.is_empty()))
        });
        let ((result, changed), is_empty) = edited.flatten().ok_or(CommandError::WrongType)?;
        if is_empty {
            self.remove_slot(self.database, key.shard, slot);
        }
        if changed {
            self.changed(self.database, key.shard);
        }
        Ok(Some(result))
    }

    /// [`Self::update`], on a new collection where the key is missing.
    pub fn update_or_create<T: Collection, R>(
        &mut self,
        key: &[u8],
        edit: impl FnOnce(&mut T) -> (R, bool),
    ) -> Result<R, CommandError> {
        let mut edit = Some(edit);
        let mut run = |collection: &mut T| (edit.take().expect("called once"))(collection);
        if let Some(result) = self.update(key, &mut run)? {
            return Ok(result);
        }
        let mut collection = T::new(self.resources());
        let (result, _) = run(&mut collection);
        if !collection.is_empty() {
            self.set_collection(key, collection, ExpiryChange::Clear);
        }
        Ok(result)
    }

    /// Stores a collection, whatever the key held; an empty one removes the key.
    pub fn set_collection<T: Collection>(&mut self, key: &[u8], collection: T, expiry: ExpiryChange) {
        if collection.is_empty() {
            self.remove(key);
            return;
        }
        self.set_value_in(self.database, key, NewValue::Object(Box::new(collection.into_object())), expiry);
    }

    /// What new collections need.
    pub fn resources(&self) -> &'a Arc<Resources> {
        self.locked.keyspace().resources()
    }

    /// How collections that grow are laid out.
    pub fn layout(&self) -> Layout<'a> {
        Layout { limits: &self.environment.collection_limits, resources: self.resources() }
    }

    /// Counts a hit or a miss, for commands that read and write.
    pub fn count_lookup(&mut self, found: bool) {
        let statistics = &self.worker.statistics;
        if found { statistics.keyspace_hits.add(1) } else { statistics.keyspace_misses.add(1) }
    }

    /// Stores a string, whatever the key held. With an expiry that has passed, the key is removed.
    pub fn set_string(&mut self, key: &[u8], value: NewString<'_>, expiry: ExpiryChange) {
        self.set_string_in(self.database, key, value, expiry);
    }

    /// [`Self::set_string`] in another database.
    #[inline]
    pub fn set_string_in(&mut self, database: usize, key: &[u8], value: NewString<'_>, expiry: ExpiryChange) {
        self.set_value_in(database, key, NewValue::String(value), expiry);
    }

    /// Stores a value, whatever the key held.
    #[inline]
    pub(crate) fn set_value_in(
        &mut self,
        database: usize,
        key: &[u8],
        value: NewValue<'_>,
        expiry: ExpiryChange,
    ) {
        let key = self.key(key);
        let found = self.slot(database, &key);
        self.store(database, &key, found, value, expiry);
    }

    /// Stores the string that `decide` makes of what the key holds, if it makes one; whether it did.
    /// With an expiry that has passed, the key is removed instead.
    ///
    /// The key is looked up once.
    #[inline]
    pub fn replace_string<'v>(
        &mut self,
        key: &[u8],
        expiry: ExpiryChange,
        decide: impl FnOnce(Option<EntryRef<'_>>) -> Result<Option<NewString<'v>>, CommandError>,
    ) -> Result<bool, CommandError> {
        let key = self.key(key);
        let found = self.slot(self.database, &key);
        let stripe = self.locked.shard(key.shard).database(self.database);
        let entry = found.and_then(|slot| Some(stripe?.entry(slot)));
        let Some(value) = decide(entry)? else { return Ok(false) };
        self.store(self.database, &key, found, NewValue::String(value), expiry);
        Ok(true)
    }

    /// Stores a string under a key that stands at `found`, or nowhere.
    #[inline]
    fn store(
        &mut self,
        database: usize,
        key: &Key<'_>,
        found: Option<dunlin_structures::Slot>,
        value: NewValue<'_>,
        expiry: ExpiryChange,
    ) {
        let now_ms = self.environment.now_ms;
        if let ExpiryChange::At(at) = expiry
            && at <= now_ms
        {
            if let Some(slot) = found {
                self.remove_slot(database, key.shard, slot);
            }
            return self.changed(database, key.shard);
        }
        if found.is_some() && !self.environment.lazyfree_server_del {
            self.free_before_answering();
        }
        let (stripe, new) = self.locked.shard_mut(key.shard).database_or_new(database);
        let expiry = match (expiry, found) {
            (ExpiryChange::At(at), _) => Some(at.min(EXPIRY_MS_MAX)),
            (ExpiryChange::Keep, Some(slot)) => stripe.entry(slot).expiry(),
            (ExpiryChange::Keep, None) | (ExpiryChange::Clear, _) => None,
        };
        stripe.put((key.hash, key.bytes), found, value, expiry, now_ms, &mut self.worker.garbage);
        if new {
            self.locked.publish_new(key.shard, database);
        }
        self.changed(database, key.shard);
    }

    /// Works on the bytes of the string under a key. The result replaces the text; the expiry
    /// stays. A missing key is an empty text, and is created.
    ///
    /// Long strings are edited in their block: O(edit), not O(text).
    pub fn edit_string<R>(
        &mut self,
        key: &[u8],
        edit: impl FnOnce(&mut Vec<u8>) -> R,
    ) -> Result<R, CommandError> {
        let key = self.key(key);
        let found = self.slot(self.database, &key);
        self.edit_found(&key, found, |text| Ok(edit(text)))
    }

    /// [`Self::edit_string`] where the key is there, `None` where it is not. An `edit` that fails has
    /// left the bytes alone.
    pub fn edit_existing_string<R>(
        &mut self,
        key: &[u8],
        edit: impl FnOnce(&mut Vec<u8>) -> Result<R, CommandError>,
    ) -> Result<Option<R>, CommandError> {
        let key = self.key(key);
        match self.slot(self.database, &key) {
            Some(slot) => self.edit_found(&key, Some(slot), edit).map(Some),
            None => Ok(None),
        }
    }

    fn edit_found<R>(
        &mut self,
        key: &Key<'_>,
        found: Option<dunlin_structures::Slot>,
        edit: impl FnOnce(&mut Vec<u8>) -> Result<R, CommandError>,
    ) -> Result<R, CommandError> {
        let mut edit = Some(edit);
        let mut text = std::mem::take(&mut self.worker.scratch);
        text.clear();
        if let Some(slot) = found {
            let stripe = self.locked.shard_mut(key.shard).database_mut(self.database);
            let stripe = stripe.expect("the slot was found in it");
            let result = stripe.edit_shared(slot, |bytes| (edit.take().expect("called once"))(bytes));
            if let Some(result) = result {
                if result.is_ok() {
                    self.changed(self.database, key.shard);
                }
                return result;
            }
            let value = string_of(stripe.entry(slot))?;
            text.extend_from_slice(value.text(&mut itoa::Buffer::new()));
        }
        let result = (edit.take().expect("not called yet"))(&mut text)?;
        let value = NewValue::String(NewString::from_edited(&mut text));
        self.store(self.database, key, found, value, ExpiryChange::Keep);
        self.worker.scratch = text;
        Ok(result)
    }

    /// Works on the bytes of the string under a key where its length does not change. `None`, and
    /// nothing done, where there is no such text (no key, an integer, another type) or where `edit`
    /// says so and has left the bytes alone.
    pub fn edit_string_in_place<R>(
        &mut self,
        key: &[u8],
        edit: impl FnOnce(&mut [u8]) -> Option<R>,
    ) -> Option<R> {
        let key = self.key(key);
        let slot = self.slot(self.database, &key)?;
        let stripe = self.locked.shard_mut(key.shard).database_mut(self.database);
        let edited = stripe.expect("the slot was found in it").edit_in_place(slot, edit)?;
        self.changed(self.database, key.shard);
        Some(edited)
    }

    /// Removes a key; whether it was there.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        self.remove_in(self.database, key)
    }

    /// [`Self::remove`] in another database.
    pub fn remove_in(&mut self, database: usize, key: &[u8]) -> bool {
        let key = self.key(key);
        let Some(slot) = self.slot(database, &key) else { return false };
        self.remove_slot(database, key.shard, slot);
        self.changed(database, key.shard);
        true
    }

    /// Gives a key another expiry, or none; whether the key is there. A time that has passed
    /// removes the key.
    pub fn set_expiry(&mut self, key: &[u8], expiry: Option<u64>) -> bool {
        if expiry.is_some_and(|at| at <= self.environment.now_ms) {
            return self.remove(key);
        }
        let key = self.key(key);
        let Some(slot) = self.slot(self.database, &key) else { return false };
        let stripe = self.locked.shard_mut(key.shard).database_mut(self.database);
        let expiry = expiry.map(|at| at.min(EXPIRY_MS_MAX));
        let now_ms = self.environment.now_ms;
        stripe.expect("the slot was found in it").set_expiry(slot, expiry, now_ms);
        self.changed(self.database, key.shard);
        true
    }

    /// Copies a value with its expiry to another place, replacing what is there; whether the source
    /// is there. Long values are shared, not copied.
    pub fn copy(&mut self, from: (usize, &[u8]), to: (usize, &[u8])) -> bool {
        let Some(entry) = self.find_in(from.0, from.1) else { return false };
        let expiry = entry.expiry().map_or(ExpiryChange::Clear, ExpiryChange::At);
        let mut buffer = Vec::new();
        let value = entry.to_new().copied_to(&mut buffer);
        self.set_value_in(to.0, to.1, value, expiry);
        true
    }

    /// Moves a value with its expiry to another place, replacing what is there; whether the source
    /// is there. The places must differ. Long values are handed on, not copied.
    pub fn relocate(&mut self, from: (usize, &[u8]), to: (usize, &[u8])) -> bool {
        let key = self.key(from.1);
        let Some(slot) = self.slot(from.0, &key) else { return false };
        let stripe = self.locked.shard_mut(key.shard).database_mut(from.0);
        let mut buffer = Vec::new();
        let (value, expiry) = stripe.expect("the slot was found in it").take(slot, &mut buffer);
        self.locked.publish_usage(key.shard, from.0);
        let expiry = expiry.map_or(ExpiryChange::Clear, ExpiryChange::At);
        self.set_value_in(to.0, to.1, value, expiry);
        true
    }

    /// Every change of a value ends here.
    #[inline]
    fn changed(&mut self, database: usize, shard: usize) {
        self.worker.statistics.changes.add(1);
        self.locked.publish_usage(shard, database);
    }
}

/// For commands that look at the keyspace as a whole. No lock is held between visits to shards: what
/// such a command answers is true of each shard at its own moment.
#[derive(Debug)]
pub struct KeyspaceContext<'a> {
    keyspace: &'a Keyspace,
    database: usize,
    environment: &'a Environment,
    worker: &'a mut Worker,
}

impl<'a> KeyspaceContext<'a> {
    pub(crate) fn new(
        keyspace: &'a Keyspace,
        database: usize,
        environment: &'a Environment,
        worker: &'a mut Worker,
    ) -> Self {
        Self { keyspace, database, environment, worker }
    }

    /// Unix time in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.environment.now_ms
    }

    /// Keys and bytes of the client's database, expired keys that are still there included.
    pub fn usage(&self) -> Usage {
        self.keyspace.usage(Some(self.database))
    }

    /// Whether a key is there and has not expired.
    pub fn contains(&self, key: &[u8]) -> bool {
        let key = self.keyspace.key(key);
        let locked = self.keyspace.lock_one(key.shard);
        let database = locked.shard(key.shard).database(self.database);
        database
            .and_then(|database| Some(database.entry(database.find(key.hash, key.bytes)?)))
            .is_some_and(|entry| !entry.is_expired(self.environment.now_ms))
    }

    /// The shard that holds every key that can match a pattern, where its hash tag says so.
    pub fn shard_of_pattern(&self, pattern: &[u8]) -> Option<usize> {
        glob::hash_tag(pattern).map(|tag| self.keyspace.shard_of(tag))
    }

    /// How many databases there are.
    pub fn databases(&self) -> usize {
        self.keyspace.databases()
    }

    /// Visits all entries, or those of one shard, that have not expired; a shard at a time.
    pub fn for_each(&mut self, only: Option<usize>, visit: impl FnMut(EntryRef<'_>)) {
        self.for_each_in(self.database, only, visit);
    }

    /// [`Self::for_each`] in another database.
    pub fn for_each_in(&mut self, database: usize, only: Option<usize>, mut visit: impl FnMut(EntryRef<'_>)) {
        let shards = only.map_or(self.keyspace.shards(), |shard| shard..shard + 1);
        for shard in shards {
            let locked = self.keyspace.lock_one(shard);
            if let Some(database) = locked.shard(shard).database(database) {
                database.for_each(|entry| {
                    if !entry.is_expired(self.environment.now_ms) {
                        visit(entry);
                    }
                });
            }
        }
    }

    /// Visits some entries behind `cursor` that have not expired and answers the next cursor: what
    /// is there from the first call (with 0) to the last (that answers 0) is visited at least once.
    /// `count` is about how many are visited. `only` confines the calls to one shard.
    ///
    /// The cursor is the shard in the low bits and the position inside the shard's table above.
    pub fn scan(
        &mut self,
        cursor: u64,
        count: usize,
        only: Option<usize>,
        mut visit: impl FnMut(EntryRef<'_>),
    ) -> u64 {
        let shards = self.keyspace.shards().len() as u64;
        let (mut shard, mut position) = ((cursor % shards) as usize, cursor / shards);
        let mut end = shards as usize;
        if let Some(only) = only {
            position = if shard == only { position } else { 0 };
            (shard, end) = (only, only + 1);
        }
        let mut seen = 0;
        // Empty buckets count a little, so that a sparse table does not hold the worker for long.
        let mut steps = 0;
        loop {
            let locked = self.keyspace.lock_one(shard);
            match locked.shard(shard).database(self.database) {
                None => position = 0,
                Some(database) => loop {
                    position = database.scan(position, |entry| {
                        seen += 1;
                        if !entry.is_expired(self.environment.now_ms) {
                            visit(entry);
                        }
                    });
                    steps += 1;
                    if position == 0 || seen >= count || steps >= count.saturating_mul(10) {
                        break;
                    }
                },
            }
            if position == 0 {
                shard += 1;
                if shard == end {
                    return 0;
                }
            }
            if seen >= count || steps >= count.saturating_mul(10) {
                return position * shards + shard as u64;
            }
        }
    }

    /// A key chosen at random among those that have not expired, nearly uniformly.
    pub fn random_key(&mut self) -> Option<Vec<u8>> {
        const TRIES_MAX: usize = 100;
        let keys: Vec<usize> = self
            .keyspace
            .shards()
            .map(|shard| {
                let locked = self.keyspace.lock_one(shard);
                locked.shard(shard).database(self.database).map_or(0, Database::len)
            })
            .collect();
        let total: usize = keys.iter().sum();
        for _ in 0..TRIES_MAX {
            let mut nth = self.worker.random().checked_rem(total as u64)? as usize;
            let shard = keys.iter().position(|keys| {
                let here = nth < *keys;
                nth -= if here { 0 } else { *keys };
                here
            })?;
            let locked = self.keyspace.lock_one(shard);
            let entry = locked
                .shard(shard)
                .database(self.database)
                .and_then(|database| database.random(self.worker.random()));
            if let Some(entry) = entry
                && !entry.is_expired(self.environment.now_ms)
            {
                return Some(entry.key().to_vec());
            }
        }
        // Nearly everything has expired and awaits its removal: the first that has not will do.
        let (mut cursor, mut found) = (0, None);
        loop {
            cursor = self.scan(cursor, 1, None, |entry| found = Some(entry.key().to_vec()));
            if cursor == 0 || found.is_some() {
                return found;
            }
        }
    }
}

/// For commands that change the keyspace as a whole; nothing else runs meanwhile.
#[derive(Debug)]
pub struct ExclusiveContext<'a> {
    locked: Locked<'a>,
    database: usize,
    environment: &'a Environment,
    worker: &'a mut Worker,
    /// What is freed before the answer leaves.
    freed: Garbage,
}

impl<'a> ExclusiveContext<'a> {
    pub(crate) fn new(
        locked: Locked<'a>,
        database: usize,
        environment: &'a Environment,
        worker: &'a mut Worker,
    ) -> Self {
        Self { locked, database, environment, worker, freed: Garbage::default() }
    }

    /// Opens the gate; what is left to be freed before the answer leaves.
    pub(crate) fn finish(self) -> Garbage {
        self.freed
    }

    /// What is the same for the whole batch.
    pub fn environment(&self) -> &'a Environment {
        self.environment
    }

    /// The client's database.
    pub fn database(&self) -> usize {
        self.database
    }

    /// How many databases there are.
    pub fn databases(&self) -> usize {
        self.locked.keyspace().databases()
    }

    /// Empties one database, or all. O(shards) while everything stands still: the keys are freed
    /// later, before the answer leaves or, if `lazy`, by who takes the worker's garbage.
    pub fn flush(&mut self, database: Option<usize>, lazy: bool) {
        let databases = match database {
            Some(database) => database..database + 1,
            None => 0..self.databases(),
        };
        let garbage = if lazy { &mut self.worker.garbage } else { &mut self.freed };
        let mut keys = 0;
        for shard in self.locked.keyspace().shards() {
            for database in databases.clone() {
                if let Some(taken) = self.locked.shard_mut(shard).take_database(database) {
                    keys += taken.len() as u64;
                    garbage.push_database(*taken);
                    self.locked.publish_database(shard, database);
                }
            }
        }
        self.worker.statistics.changes.add(keys);
    }

    /// Exchanges two databases. O(shards).
    pub fn swap(&mut self, one: usize, other: usize) {
        for shard in self.locked.keyspace().shards() {
            self.locked.shard_mut(shard).swap_databases(one, other);
            self.locked.publish_database(shard, one);
            self.locked.publish_database(shard, other);
        }
        self.worker.statistics.changes.add(1);
    }
}
