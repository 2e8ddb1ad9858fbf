//! For commands that change the keyspace as a whole.

use std::collections::VecDeque;

use crate::{
    command::CommandResult,
    keyspace::{EntryRef, Invalidation, LockedStripes, Usage},
    notify::Notice,
    rdb,
    snapshot::{self, Chunk, Form, Snapshot, SnapshotOptions},
    value::Layout,
};

use super::{Caller, Environment, EvictedKeys, Garbage, Policy, Worker};

/// Notes that all keys of a database that clients wait for may be ready.
fn note_ready(
    locked: &LockedStripes<'_>,
    stripe: usize,
    database: usize,
    ready: &mut VecDeque<(usize, Box<[u8]>)>,
) {
    if let Some(queues) = locked.stripe(stripe).queues() {
        ready.extend(queues.keys(database).map(|key| (database, Box::from(key))));
    }
}

/// For commands that change the keyspace as a whole; nothing else runs meanwhile.
#[derive(Debug)]
pub struct ExclusiveContext<'a> {
    locked: LockedStripes<'a>,
    database: usize,
    environment: Environment<'a>,
    worker: &'a mut Worker,
    /// Values that are freed before the reply leaves.
    freed: Garbage,
    changed: bool,
}

impl<'a> ExclusiveContext<'a> {
    pub(crate) fn new(
        locked: LockedStripes<'a>,
        database: usize,
        environment: Environment<'a>,
        worker: &'a mut Worker,
    ) -> Self {
        Self { locked, database, environment, worker, freed: Garbage::default(), changed: false }
    }

    /// The command, of these words, has ended: it is recorded if it has changed something.
    pub(crate) fn end_propagation(&mut self, words: &[&[u8]]) {
        self.worker.propagation.end(self.database, words, self.changed);
    }

    /// Returns the values that are left to be freed before the reply leaves.
    pub(crate) fn finish(self) -> Garbage {
        self.freed
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

    /// The client's database.
    pub fn database(&self) -> usize {
        self.database
    }

    /// How many databases there are.
    pub fn databases(&self) -> usize {
        self.locked.keyspace().databases()
    }

    /// Keys and bytes of a database, expired keys that are still there included.
    pub fn usage(&self, database: usize) -> Usage {
        let mut usage = Usage::default();
        for stripe in self.locked.keyspace().stripes() {
            usage.add(self.locked.stripe(stripe).usage(Some(database)));
        }
        usage
    }

    /// Visits all entries of a database, those included that have expired, until `visit` fails.
    pub fn try_for_each<E>(
        &self,
        database: usize,
        mut visit: impl FnMut(EntryRef<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for stripe in self.locked.keyspace().stripes() {
            let Some(part) = self.locked.stripe(stripe).database(database) else { continue };
            let mut result = Ok(());
            part.for_each(|entry| {
                if result.is_ok() {
                    result = visit(entry);
                }
            });
            result?;
        }
        Ok(())
    }

    /// How collections that are read are laid out.
    pub fn layout(&self) -> Layout<'a> {
        let resources = self.locked.keyspace().resources();
        Layout { limits: &self.environment.policy.collection_limits, resources }
    }

    /// Begins a snapshot of the keyspace as it is now; `None` if there are [`SNAPSHOTS_MAX`]
    /// already. O(stripes × databases).
    ///
    /// [`SNAPSHOTS_MAX`]: crate::snapshot::SNAPSHOTS_MAX
    pub fn begin_snapshot(&mut self, options: SnapshotOptions) -> Option<Snapshot> {
        Snapshot::begin(&mut self.locked, options)
    }

    /// Copies a database chunk by chunk, until `show` fails: [`Self::begin_snapshot`] for a caller that
    /// has nothing else running anyway.
    pub fn try_for_each_chunk<E>(
        &self,
        database: usize,
        form: Form,
        show: impl FnMut(&Chunk) -> Result<(), E>,
    ) -> Result<(), E> {
        snapshot::try_for_each_chunk(self, database, form, show)
    }

    /// Stores a value that was read from a file, last used `idle_seconds` ago, unless its key is there. Returns whether
    /// it was stored. The value counts as no change.
    pub fn insert(
        &mut self,
        database: usize,
        key: &[u8],
        value: rdb::Value,
        expiry_ms: Option<u64>,
        idle_seconds: u64,
    ) -> bool {
        self.locked
            .load(database, key, value, (expiry_ms, idle_seconds, self.environment.caller.now_ms))
            .is_some()
    }

    /// Removes a key, if it is there.
    pub fn remove(&mut self, database: usize, key: &[u8]) {
        let key = self.locked.keyspace().key(key);
        let Some(part) = self.locked.stripe_mut(key.stripe).database_mut(database) else { return };
        if let Some(slot) = part.find(key.hash, key.bytes) {
            part.remove(slot, &mut self.worker.garbage);
            self.locked.publish_usage(key.stripe, database);
        }
    }

    /// Whether clients may empty no database now ([`Keyspace::hold_flushes`]).
    ///
    /// [`Keyspace::hold_flushes`]: crate::keyspace::Keyspace::hold_flushes
    pub fn holds_flushes(&self) -> bool {
        self.locked.keyspace().holds_flushes()
    }

    /// Runs the host's task after FLUSHALL.
    pub(crate) fn note_emptied(&self) {
        if let Some(task) = self.locked.keyspace().on_emptied() {
            task(self);
        }
    }

    /// Empties one database, or all. O(stripes) while everything stands still: the keys are freed later,
    /// before the answer leaves or, if `lazy`, by the thread that takes the worker's garbage.
    pub fn flush(&mut self, database: Option<usize>, lazy: bool) {
        let databases = match database {
            Some(database) => database..database + 1,
            None => 0..self.databases(),
        };
        self.locked.keyspace().note_flush();
        self.locked.keyspace().own_expiries().forget_databases(&databases);
        let garbage = if lazy { &mut self.worker.garbage } else { &mut self.freed };
        let mut keys = 0;
        for stripe in self.locked.keyspace().stripes() {
            for database in databases.clone() {
                if let Some(watches) = self.locked.stripe(stripe).watches() {
                    watches.replaced(database, |_| false);
                }
                if let Some(taken) = self.locked.stripe_mut(stripe).take_database(database) {
                    keys += taken.len() as u64;
                    if let Some(taken) = taken.retire() {
                        garbage.push_database(*taken);
                    }
                    self.locked.publish_database(stripe, database);
                    note_ready(&self.locked, stripe, database, &mut self.worker.ready);
                }
            }
        }
        // Whichever database it was: clients know keys by name alone.
        for stripe in self.locked.keyspace().stripes() {
            self.locked.untrack_all(stripe);
        }
        self.worker.notices.push(Notice::Invalidation(Invalidation::Everything));
        self.worker.statistics.changes.add(keys);
        // Recorded even if nothing was there, as in Redis: a reader of the log may wait for the command.
        self.changed = true;
    }

    /// Refuses to exchange databases if one of them has a limit that leaves no room for what the other one has more, and no key
    /// may be evicted for that.
    pub fn check_swap(&self, one: usize, other: usize) -> CommandResult {
        let limits = self.environment.policy.database_limits.as_deref();
        if limits.is_none_or(|limits| limits.evicted != EvictedKeys::None) {
            return Ok(());
        }
        let keyspace = self.locked.keyspace();
        let used = |database| keyspace.database_bytes(database);
        let check = |database: usize, coming: usize| match coming.saturating_sub(used(database)) {
            0 => Ok(()),
            more => self.environment.check_room(keyspace, database, more),
        };
        check(one, used(other))?;
        check(other, used(one))
    }

    /// Exchanges two databases. O(stripes).
    pub fn swap(&mut self, one: usize, other: usize) {
        self.locked.keyspace().access_clock().restart_sweep();
        self.locked.keyspace().own_expiries().swap_databases(one, other);
        for stripe in self.locked.keyspace().stripes() {
            self.show_swap(stripe, one, other);
            self.show_swap(stripe, other, one);
            self.locked.stripe_mut(stripe).swap_databases(one, other);
            self.locked.publish_database(stripe, one);
            self.locked.publish_database(stripe, other);
            note_ready(&self.locked, stripe, one, &mut self.worker.ready);
            note_ready(&self.locked, stripe, other, &mut self.worker.ready);
        }
        self.worker.statistics.changes.add(1);
        self.changed = true;
    }

    /// Notifies clients that watch keys of one database that it gives way to another.
    fn show_swap(&self, stripe: usize, database: usize, replacement: usize) {
        let state = self.locked.stripe(stripe);
        let Some(watches) = state.watches() else { return };
        let (keyspace, replacement) = (self.locked.keyspace(), state.database(replacement));
        watches.replaced(database, |key| {
            let hash = keyspace.key(key).hash;
            let entry = replacement.and_then(|part| Some(part.entry(part.find(hash, key)?)));
            entry.is_some_and(|entry| !entry.is_expired(self.environment.caller.now_ms))
        });
    }
}
