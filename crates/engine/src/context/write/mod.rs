//! For commands that change values.

mod collections;
mod phase;
mod strings;

use std::sync::Arc;

use dunlin_structures::Slot;

use crate::{
    command::{Command, CommandError, CommandResult},
    fieldsets::Fieldset,
    keyspace::{EntryRef, Expiration, Invalidation, Key, LockedStripes, Ranking, Touch},
    notify::{Event, EventClass, Notice},
    propagation::removal_word,
    value::{CollectionRef, Layout, List, NewValue, Object, Resources, StringRef, ValueType},
};

pub use collections::Change;

use super::{Caller, Environment, ExpiryChange, Policy, Worker, collection_of, keys::KnownKeys, string_of};
use phase::Phase;

/// For commands that change values.
#[derive(Debug)]
pub struct WriteContext<'a> {
    locked: LockedStripes<'a>,
    database: usize,
    keys: KnownKeys<'a>,
    environment: Environment<'a>,
    worker: &'a mut Worker,
    /// Whether a waiter's command is being run again.
    serving: bool,
    /// Whether keys that have expired stay where they are, hidden from clients.
    keeps_expired: bool,
    phase: Phase<'a>,
    /// Changes of keys so far.
    changed_keys: u64,
    /// The number of changes that the command has declared.
    declared_changes: Option<u64>,
}

impl<'a> WriteContext<'a> {
    #[inline]
    pub(crate) fn new(
        locked: LockedStripes<'a>,
        database: usize,
        keys: &'a [Key<'a>],
        environment: Environment<'a>,
        worker: &'a mut Worker,
    ) -> Self {
        Self {
            locked,
            database,
            keys: KnownKeys::new(keys),
            environment,
            worker,
            serving: false,
            keeps_expired: false,
            phase: Phase::Whole,
            changed_keys: 0,
            declared_changes: None,
        }
    }

    /// For a command that has waited and is now run again.
    pub(crate) fn serving(
        locked: LockedStripes<'a>,
        database: usize,
        environment: Environment<'a>,
        worker: &'a mut Worker,
    ) -> Self {
        Self { serving: true, ..Self::new(locked, database, &[], environment, worker) }
    }

    /// For a command that may be one that only reads: it leaves expired keys alone if those are not its server's to
    /// remove ([`Caller::keep_expired`]).
    #[inline]
    pub(crate) fn of(self, command: &Command) -> Self {
        let keeps_expired = self.environment.caller.keep_expired && command.is_read_only();
        Self { keeps_expired, ..self }
    }

    /// The type of value that a key holds, without noting an access.
    pub(crate) fn value_type(&mut self, key: &[u8]) -> Option<ValueType> {
        let key = self.key(key);
        let slot = self.slot(self.database, &key)?;
        Some(self.locked.stripe(key.stripe).database(self.database)?.entry(slot).value_type())
    }

    /// Whether the value of a key belongs to clients that have waited for it and are about to be served:
    /// a blocking command that has just come does not overtake them.
    pub fn is_reserved(&mut self, key: &[u8], value_type: ValueType) -> bool {
        if self.serving {
            return false;
        }
        let place = self.key(key);
        let queue = self
            .locked
            .stripe(place.stripe)
            .queues()
            .and_then(|queues| queues.get(self.database, place.bytes));
        match queue.and_then(|queue| queue.elements_wanted(value_type)) {
            None => false,
            Some(0 | 1) => true,
            // Clients that wait for more are not about to be served.
            Some(wanted) => {
                let list =
                    self.find(key).and_then(|entry| entry.object()).and_then(CollectionRef::<List>::of);
                list.is_some_and(|list| list.len() >= wanted)
            }
        }
    }

    /// Notes that a key may be ready for clients that wait for it.
    #[cold]
    fn note_ready(&mut self, database: usize, key: &Key<'_>) {
        let queues = self.locked.stripe(key.stripe).queues();
        if queues.is_some_and(|queues| queues.get(database, key.bytes).is_some()) {
            let is_last = |(other, last): &(usize, Box<[u8]>)| *other == database && **last == *key.bytes;
            if !self.worker.ready.back().is_some_and(is_last) {
                self.worker.ready.push_back((database, key.bytes.into()));
            }
        }
    }

    /// From here on, the values that the command removes are freed before its answer leaves, though
    /// outside the locks, instead of being handed over.
    pub fn free_before_answering(&mut self) {
        self.worker.garbage.free_soon();
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

    /// Whether the command comes from a log.
    pub fn is_replaying(&self) -> bool {
        self.environment.caller.replaying_at_ms > 0
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

    /// The fieldset of that name that the client, or the script that runs, has prepared.
    pub fn fieldset(&self, name: &[u8]) -> Option<Arc<Fieldset>> {
        self.worker.fieldsets.find(self.environment.caller, name)
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
    fn slot(&mut self, database: usize, key: &Key<'_>) -> Option<Slot> {
        let part = self.locked.stripe(key.stripe).database(database)?;
        let (slot, entry) = part.find_entry(key.hash, key.bytes)?;
        if entry.is_expired(self.environment.caller.now_ms) {
            if !self.keeps_expired {
                self.expire_slot(database, key, slot);
            }
            return None;
        }
        Some(slot)
    }

    /// Removes a key whose time has come.
    #[cold]
    fn expire_slot(&mut self, database: usize, key: &Key<'_>, slot: Slot) {
        if !self.environment.policy.lazyfree_expire {
            self.free_before_answering();
        }
        let entry = self.locked.stripe(key.stripe).database(database).map(|part| part.entry(slot));
        let now_ms = self.environment.caller.now_ms;
        let names_elements = self.environment.policy.notifications.has_subkeys(EventClass::Hash);
        let mut names = Vec::new();
        let fields = match entry.filter(|entry| !entry.is_due(now_ms)).and_then(EntryRef::stored_object) {
            Some(Object::Hash(hash)) => {
                if names_elements {
                    // At this time no field has expired yet.
                    hash.for_each(0, |field, _| names.push(field.text().into_owned()));
                }
                Some(hash.expired(now_ms))
            }
            _ => None,
        };
        self.remove_slot(database, key.stripe, slot);
        if self.is_recorded() {
            self.worker
                .propagation
                .add(database, &[removal_word(self.environment.policy.lazyfree_expire), key.bytes]);
        }
        let statistics = &self.worker.statistics;
        let what = match fields {
            Some(fields) => {
                statistics.expired_fields.add(fields as u64);
                Expiration::LastElement
            }
            None => {
                statistics.expired_keys.add(1);
                Expiration::Key
            }
        };
        self.report_expiration(database, key.bytes, what, names);
        if self.locked.stripe(key.stripe).queues().is_some() {
            self.note_ready(database, key);
        }
    }

    fn remove_slot(&mut self, database: usize, stripe: usize, slot: Slot) {
        if let Some(part) = self.locked.stripe_mut(stripe).database_mut(database) {
            part.remove(slot, &mut self.worker.garbage);
        }
        self.locked.publish_usage(stripe, database);
    }

    /// Removes a key whose time has come, if that is the given one.
    pub(crate) fn remove_expired_at(&mut self, key: &[u8], deadline_ms: u64) {
        let key = self.key(key);
        let part = self.locked.stripe(key.stripe).database(self.database);
        let entry = part.and_then(|part| Some(part.find_entry(key.hash, key.bytes)?.1));
        if entry.is_some_and(|entry| entry.expiry() == Some(deadline_ms)) {
            self.slot(self.database, &key);
        }
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
        self.touched(database, &key, slot)
    }

    /// [`Self::find`] that counts a hit or a miss: for commands that read some of their keys.
    pub fn read(&mut self, key: &[u8]) -> Option<EntryRef<'_>> {
        if let Some(view) = self.view() {
            return view.find(key);
        }
        let (key, slot) = self.look_up(key)?;
        self.touched(self.database, &key, slot)
    }

    /// [`Self::read`] of a key whose elements the command's changes depend on: expired ones are reclaimed, as where the
    /// collection itself is about to change.
    pub fn read_elements(&mut self, key: &[u8]) -> Option<EntryRef<'_>> {
        let (key, slot) = self.look_up(key)?;
        if self.is_recorded() && self.has_expired_elements(&key, slot) {
            self.reclaim_elements(&key, slot);
        }
        self.touched(self.database, &key, slot)
    }

    /// The slot of a key that is there, counted as a hit or a miss.
    fn look_up<'k>(&mut self, key: &'k [u8]) -> Option<(Key<'k>, Slot)> {
        let key = self.key(key);
        let found = self.slot(self.database, &key);
        self.count_lookup(key.bytes, found.is_some());
        Some((key, found?))
    }

    /// The entry in a slot, which the command has used.
    #[inline]
    fn touched(&mut self, database: usize, key: &Key<'_>, slot: Slot) -> Option<EntryRef<'_>> {
        let entry = self.locked.stripe(key.stripe).database(database)?.entry(slot);
        if !self.environment.caller.no_touch {
            entry.touch(self.environment.caller.access.one(|| self.worker.random()));
        }
        Some(entry)
    }

    /// Whether a key is there and has not expired.
    pub fn contains_in(&mut self, database: usize, key: &[u8]) -> bool {
        let key = self.key(key);
        self.slot(database, &key).is_some()
    }

    /// Refuses to give a database the entry under a key if the database has a limit that leaves no room for it.
    pub fn check_room_for(&mut self, database: usize, from: (usize, &[u8])) -> CommandResult {
        if self.environment.policy.database_limits.is_none() {
            return Ok(());
        }
        let bytes = self.find_in(from.0, from.1).map_or(0, EntryRef::memory_bytes);
        self.check_room(database, bytes)
    }

    /// Refuses to give a database `bytes` bytes if that is more than its limit has room for.
    pub fn check_room(&self, database: usize, bytes: usize) -> CommandResult {
        self.environment.check_room(self.locked.keyspace(), database, bytes)
    }

    /// The string under a key; an error if it holds another type.
    pub fn string(&mut self, key: &[u8]) -> Result<Option<StringRef<'_>>, CommandError> {
        self.find(key).map(string_of).transpose()
    }

    /// The resources that new collections need.
    pub fn resources(&self) -> &'a Arc<Resources> {
        self.locked.keyspace().resources()
    }

    /// How collections that grow are laid out.
    pub fn layout(&self) -> Layout<'a> {
        Layout { limits: &self.environment.policy.collection_limits, resources: self.resources() }
    }

    /// Reclaims the expired elements of a collection that is about to change, or to be read for a change. The
    /// record needs this: the command would find them there again in a replay, which knows no time.
    #[cold]
    fn reclaim_elements(&mut self, key: &Key<'_>, slot: Slot) {
        let now_ms = self.environment.caller.now_ms;
        let Some(part) = self.locked.stripe_mut(key.stripe).database_mut(self.database) else { return };
        let mut gone = Vec::new();
        part.edit_object(slot, |object| {
            object.expire(now_ms, usize::MAX, |element| gone.push(element.text().into_owned()))
        });
        self.locked.publish_usage(key.stripe, self.database);
        if !gone.is_empty() {
            self.worker.propagation.add_removal(self.database, key.bytes, &gone);
            self.worker.statistics.expired_fields.add(gone.len() as u64);
            self.report_expiration(self.database, key.bytes, Expiration::Elements, gone);
        }
    }

    /// Reports that the time of a key, or of these elements of it, has come.
    fn report_expiration(
        &mut self,
        database: usize,
        key: &[u8],
        what: Expiration,
        mut elements: Vec<Vec<u8>>,
    ) {
        for (class, name) in what.events() {
            let subkeys = if *class == EventClass::Hash { std::mem::take(&mut elements) } else { Vec::new() };
            self.notify_with(database, *class, name, key, |_| subkeys);
        }
        let stripe = self.locked.keyspace().stripe_of(key);
        self.invalidate(stripe, key);
        if let Some(watches) = self.locked.stripe(stripe).watches() {
            watches.expired(database, key, what);
        }
    }

    /// Counts a hit or a miss of a key, for commands that read and write.
    pub fn count_lookup(&mut self, key: &[u8], found: bool) {
        if !self.phase.counts() {
            return;
        }
        let statistics = &self.worker.statistics;
        if found {
            statistics.keyspace_hits.add(1);
        } else {
            statistics.keyspace_misses.add(1);
            self.notify(EventClass::KeyMiss, "keymiss", key);
        }
    }

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

    /// Stores a value under a key that stands at `found`, or nowhere.
    #[inline]
    fn store(
        &mut self,
        database: usize,
        key: &Key<'_>,
        found: Option<Slot>,
        value: NewValue<'_>,
        expiry: ExpiryChange,
    ) {
        self.put(database, key, found, value, expiry);
        self.changed(database, key);
    }

    /// Does what [`Self::store`] does, without telling any listener, the accounting included.
    #[inline]
    fn put(
        &mut self,
        database: usize,
        key: &Key<'_>,
        found: Option<Slot>,
        value: NewValue<'_>,
        expiry: ExpiryChange,
    ) {
        let now_ms = self.environment.caller.now_ms;
        if let ExpiryChange::At(at) = expiry {
            if at <= now_ms {
                match found {
                    Some(slot) => self.remove_slot(database, key.stripe, slot),
                    None => self.notify_in(database, EventClass::New, "new", key.bytes),
                }
                return;
            }
            if self.locked.keyspace().own_expiries().is_on() {
                self.note_own_expiry(database, key, at);
            }
        }
        if found.is_some() && !self.environment.policy.lazyfree_server_del {
            self.free_before_answering();
        }
        let touch = self.touch();
        let (part, new) = self.locked.stripe_mut(key.stripe).database_or_new(database);
        let expiry = match (expiry, found) {
            (ExpiryChange::At(at), _) => Some(at),
            (ExpiryChange::Keep, Some(slot)) => part.entry(slot).expiry(),
            (ExpiryChange::Keep, None) | (ExpiryChange::Clear, _) => None,
        };
        let clock_ms = self.environment.caller.clock_ms();
        let now = (clock_ms, touch);
        part.put((key.hash, key.bytes), found, value, expiry, now, &mut self.worker.garbage);
        if new {
            self.locked.publish_new(key.stripe, database);
        }
        if found.is_none() {
            self.notify_in(database, EventClass::New, "new", key.bytes);
        }
    }

    /// Removes a key. Returns whether it was there.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        self.remove_in(self.database, key)
    }

    /// [`Self::remove`] in another database.
    pub fn remove_in(&mut self, database: usize, key: &[u8]) -> bool {
        let key = self.key(key);
        let Some(slot) = self.slot(database, &key) else { return false };
        self.remove_slot(database, key.stripe, slot);
        self.changed_in_place(database, &key);
        true
    }

    /// Gives a key another expiry, or none. Returns whether the key is there. A time that has
    /// passed removes the key.
    pub fn set_expiry(&mut self, key: &[u8], expiry: Option<u64>) -> bool {
        if expiry.is_some_and(|at| at <= self.environment.caller.now_ms) {
            return self.remove(key);
        }
        let key = self.key(key);
        let Some(slot) = self.slot(self.database, &key) else { return false };
        if self.environment.policy.stamps_changes {
            // Before the entry may move to another slot.
            self.stamp_change(&key, slot);
        }
        let part = self.locked.stripe_mut(key.stripe).database_mut(self.database);
        let clock_ms = self.environment.caller.clock_ms();
        part.expect("the slot was found in it").set_expiry(slot, expiry, clock_ms);
        if let Some(at) = expiry
            && self.locked.keyspace().own_expiries().is_on()
        {
            self.note_own_expiry(self.database, &key, at);
        }
        self.changed(self.database, &key);
        true
    }

    /// Notes the expiry of a key that is written on a replica, unless the primary's stream or a log writes it.
    #[cold]
    fn note_own_expiry(&mut self, database: usize, key: &Key<'_>, at_ms: u64) {
        if !self.is_replaying() {
            self.locked.keyspace().own_expiries().note((database, key.bytes.into()), at_ms);
        }
    }

    /// Makes a key seem to have been last used that many seconds ago, or that often, whichever the policy goes by.
    pub fn set_usage(&mut self, key: &[u8], idle_seconds: Option<u64>, frequency: Option<u8>) {
        let clock = self.locked.keyspace().access_clock();
        let stamp = match (clock.ranking(), idle_seconds, frequency) {
            (Ranking::Frequency, _, Some(frequency)) => frequency,
            (Ranking::Recency | Ranking::Weighed, Some(seconds), _) => {
                clock.stamp_of_age(seconds.saturating_mul(1000), self.environment.caller.clock_ms())
            }
            _ => return,
        };
        let key = self.key(key);
        let Some(slot) = self.slot(self.database, &key) else { return };
        if let Some(part) = self.locked.stripe(key.stripe).database(self.database) {
            part.entry(slot).set_access(stamp);
        }
    }

    /// Stamps an entry as changed now.
    #[cold]
    fn stamp_change(&mut self, key: &Key<'_>, slot: Slot) {
        let touch = self.touch();
        if let Some(part) = self.locked.stripe(key.stripe).database(self.database) {
            part.entry(slot).touch(touch);
        }
    }

    /// The value that an access leaves in stamps.
    #[inline]
    fn touch(&mut self) -> Touch {
        self.environment.caller.access.one(|| self.worker.random())
    }

    /// Copies a value with its expiry to another place, replacing a value there. Returns whether the
    /// source is there. Long strings are shared, not copied; of a collection `copy` may have been made
    /// before.
    pub fn copy(&mut self, from: (usize, &[u8]), to: (usize, &[u8]), copy: Option<Object>) -> bool {
        let replaces = self.notes_new() && self.contains_in(to.0, to.1);
        let Some(entry) = self.find_in(from.0, from.1) else { return false };
        let expiry = entry.expiry().map_or(ExpiryChange::Clear, ExpiryChange::At);
        let mut buffer = Vec::new();
        let value = match copy {
            Some(object) => NewValue::Object(object),
            None => entry.to_new().copied_to(&mut buffer),
        };
        self.set_value_in(to.0, to.1, value, expiry);
        if replaces {
            self.notify_in(to.0, EventClass::New, "new", to.1);
        }
        true
    }

    /// Whether a client wants to know of new keys. A key that is moved over another is one.
    fn notes_new(&self) -> bool {
        self.environment.policy.notifications.has(EventClass::New)
    }

    /// Moves a value with its expiry to another place, replacing a value there. Returns whether the
    /// source is there. The places must differ. Long values are handed on, not copied.
    pub fn relocate(&mut self, from: (usize, &[u8]), to: (usize, &[u8])) -> bool {
        let replaces = self.notes_new() && self.contains_in(to.0, to.1);
        let key = self.key(from.1);
        let Some(slot) = self.slot(from.0, &key) else { return false };
        let part = self.locked.stripe_mut(key.stripe).database_mut(from.0);
        let mut buffer = Vec::new();
        let taken = part.expect("the slot was found in it").take(slot, &mut buffer);
        self.locked.publish_usage(key.stripe, from.0);
        self.show_change(from.0, &key);
        let expiry = taken.expiry.map_or(ExpiryChange::Clear, ExpiryChange::At);
        self.set_value_in(to.0, to.1, taken.value, expiry);
        if !taken.pieces.is_empty() {
            let key = self.key(to.1);
            let slot = self.slot(to.0, &key).expect("what had not expired was put there");
            let part = self.locked.stripe_mut(key.stripe).database_mut(to.0);
            part.expect("the slot was found in it").receive_pieces(slot, taken.pieces);
        }
        if replaces {
            self.notify_in(to.0, EventClass::New, "new", to.1);
        }
        true
    }

    /// Every change of a value ends here, or in [`Self::changed_in_place`].
    #[inline]
    fn changed(&mut self, database: usize, key: &Key<'_>) {
        self.locked.publish_usage(key.stripe, database);
        self.changed_in_place(database, key);
    }

    /// [`Self::changed`] if the value takes as much memory as before, or that has been published.
    #[inline(always)]
    fn changed_in_place(&mut self, database: usize, key: &Key<'_>) {
        self.changed_keys += 1;
        self.show_change(database, key);
    }

    /// [`Self::changed_in_place`] without notice to clients that watch the key, or keep copies of it.
    fn changed_groups(&mut self, database: usize, key: &Key<'_>) {
        self.changed_keys += 1;
        if self.locked.stripe(key.stripe).queues().is_some() {
            self.note_ready(database, key);
        }
    }

    /// Marks the watchers of a changed key, and notes the key for clients that wait for it.
    #[inline(always)]
    fn show_change(&mut self, database: usize, key: &Key<'_>) {
        if self.locked.stripe(key.stripe).is_observed() | self.environment.caller.broadcasts {
            self.show_observers(database, key);
        }
    }

    #[cold]
    fn show_observers(&mut self, database: usize, key: &Key<'_>) {
        self.invalidate(key.stripe, key.bytes);
        let state = self.locked.stripe(key.stripe);
        if let Some(watches) = state.watches() {
            watches.changed(database, key.bytes);
        }
        if state.queues().is_some() {
            self.note_ready(database, key);
        }
    }

    /// Whether changes are recorded: if not, commands need not compute what only the record needs.
    #[inline]
    pub fn is_recorded(&self) -> bool {
        self.worker.propagation.are_recorded()
    }

    /// Records the command's changes, in the client's database, if its own words would not change the same again.
    /// Several in a row belong together. Their form is that of Redis 7 in such a case.
    pub fn propagate(&mut self, words: &[&[u8]]) {
        self.worker.propagation.replace(self.database, words);
    }

    /// [`Self::propagate`] in another database.
    pub fn propagate_in(&mut self, database: usize, words: &[&[u8]]) {
        self.worker.propagation.replace(database, words);
    }

    /// Says that a key now expires at a time, or has been removed if that has passed.
    pub fn record_expiry(&mut self, key: &[u8], at_ms: u64) {
        if !self.is_recorded() {
            return;
        }
        if at_ms <= self.environment.caller.now_ms {
            self.record_removal(key);
        } else {
            self.propagate(&[b"PEXPIREAT", key, itoa::Buffer::new().format(at_ms).as_bytes()]);
        }
    }

    /// Says that a key was removed because the time to come that a command gave it has passed.
    pub fn record_removal(&mut self, key: &[u8]) {
        self.propagate(&[removal_word(self.environment.policy.lazyfree_expire), key]);
    }

    /// Counts `changes` changes for the command, rather than one for each key that it changes: elements, as
    /// `rdb_changes_since_last_save` does in Redis. Several counts add up. Nothing counts if no key changes.
    #[inline]
    pub fn count_changes(&mut self, changes: usize) {
        self.declared_changes = Some(self.declared_changes.unwrap_or(0) + changes as u64);
    }

    /// The command has ended: its changes are counted, and unless it has recorded them otherwise, its words are the
    /// record.
    #[inline]
    pub(crate) fn end_propagation(&mut self, words: &[&[u8]]) {
        let changed = self.changed_keys > 0;
        if changed {
            let changes = self.declared_changes.unwrap_or(self.changed_keys).max(1);
            self.worker.statistics.changes.add(changes);
        }
        self.worker.propagation.end(self.database, words, changed);
    }

    /// Queues the invalidation of a changed key for clients that keep copies of it.
    fn invalidate(&mut self, stripe: usize, key: &[u8]) {
        let readers = self.locked.untrack(stripe, key);
        if readers.is_some() || self.environment.caller.broadcasts {
            let readers = readers.unwrap_or_default();
            let invalidation = Invalidation::Key { key: key.into(), readers };
            self.worker.notices.push(Notice::Invalidation(invalidation));
        }
    }

    /// Reports an event of a key in the client's database.
    #[inline]
    pub fn notify(&mut self, class: EventClass, name: &'static str, key: &[u8]) {
        self.notify_in(self.database, class, name, key);
    }

    /// Reports `del` if a key that has lost elements has gone with the last one.
    pub fn notify_if_gone(&mut self, key: &[u8]) {
        if self.environment.policy.notifications.has(EventClass::Generic)
            && !self.contains_in(self.database, key)
        {
            self.notify(EventClass::Generic, "del", key);
        }
    }

    /// [`Self::notify`] in another database.
    #[inline]
    pub fn notify_in(&mut self, database: usize, class: EventClass, name: &'static str, key: &[u8]) {
        self.notify_with(database, class, name, key, |_| Vec::new());
    }

    /// Reports an event of these fields of a hash in the client's database.
    #[inline]
    pub fn notify_fields<'f>(
        &mut self,
        name: &'static str,
        key: &[u8],
        fields: impl IntoIterator<Item = &'f [u8]>,
    ) {
        self.notify_with(self.database, EventClass::Hash, name, key, |is_wanted| match is_wanted {
            true => fields.into_iter().map(<[u8]>::to_vec).collect(),
            false => Vec::new(),
        });
    }

    /// Whether a subscriber may want to know the fields that an event is about.
    pub fn names_fields(&self) -> bool {
        self.environment.policy.notifications.has_subkeys(EventClass::Hash)
    }

    /// Reports an event with the elements that `subkeys` returns. Its argument says whether a subscriber wants them.
    #[inline]
    fn notify_with(
        &mut self,
        database: usize,
        class: EventClass,
        name: &'static str,
        key: &[u8],
        subkeys: impl FnOnce(bool) -> Vec<Vec<u8>>,
    ) {
        let notifications = self.environment.policy.notifications;
        if notifications.has(class) && !self.locked.keyspace().hidden().has_key(key) {
            let subkeys = subkeys(notifications.has_subkeys(class));
            let event = Event { class, name, database, key: key.to_vec(), subkeys };
            self.worker.notices.push(Notice::Event(event));
        }
    }
}
