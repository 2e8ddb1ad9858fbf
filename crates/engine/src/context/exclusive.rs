//! For commands that change the keyspace as a whole.

use std::collections::VecDeque;

use crate::{
    keyspace::{EntryRef, Invalidation, LockedShards, Usage},
    notify::Notice,
    rdb,
    snapshot::{self, Chunk, Form, Snapshot, SnapshotOptions},
    value::Layout,
};

use super::{Environment, Garbage, Worker};

/// Notes that all keys of a database that somebody waits for may be ready.
fn note_ready(
    locked: &LockedShards<'_>,
    shard: usize,
    database: usize,
    ready: &mut VecDeque<(usize, Box<[u8]>)>,
) {
    if let Some(queues) = locked.shard(shard).queues() {
        ready.extend(queues.keys(database).map(|key| (database, Box::from(key))));
    }
}

/// For commands that change the keyspace as a whole; nothing else runs meanwhile.
#[derive(Debug)]
pub struct ExclusiveContext<'a> {
    locked: LockedShards<'a>,
    database: usize,
    environment: &'a Environment,
    worker: &'a mut Worker,
    /// What is freed before the answer leaves.
    freed: Garbage,
    changed: bool,
}

impl<'a> ExclusiveContext<'a> {
    pub(crate) fn new(
        locked: LockedShards<'a>,
        database: usize,
        environment: &'a Environment,
        worker: &'a mut Worker,
    ) -> Self {
        Self { locked, database, environment, worker, freed: Garbage::default(), changed: false }
    }

    /// The command, of these words, has ended: it is recorded where it has changed something.
    pub(crate) fn settle_effect(&mut self, words: &[&[u8]]) {
        self.worker.effects.settle(self.database, words, self.changed);
    }

    /// What is left to be freed before the answer leaves.
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

    /// Keys and bytes of a database, expired keys that are still there included.
    pub fn usage(&self, database: usize) -> Usage {
        let mut usage = Usage::default();
        for shard in self.locked.keyspace().shards() {
            usage.add(self.locked.shard(shard).usage(Some(database)));
        }
        usage
    }

    /// Visits all entries of a database that have not expired, until `visit` fails.
    pub fn try_for_each<E>(
        &self,
        database: usize,
        mut visit: impl FnMut(EntryRef<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        for shard in self.locked.keyspace().shards() {
            let Some(stripe) = self.locked.shard(shard).database(database) else { continue };
            let mut result = Ok(());
            stripe.for_each(|entry| {
                if result.is_ok() && !entry.is_expired(self.environment.now_ms) {
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
        Layout { limits: &self.environment.collection_limits, resources }
    }

    /// Begins a snapshot of the keyspace as it is now; `None` where there are [`SNAPSHOTS_MAX`]
    /// already. O(shards × databases).
    ///
    /// [`SNAPSHOTS_MAX`]: crate::snapshot::SNAPSHOTS_MAX
    pub fn begin_snapshot(&mut self, options: SnapshotOptions) -> Option<Snapshot> {
        Snapshot::begin(&mut self.locked, self.environment.now_ms, options)
    }

    /// Copies a database chunk by chunk, until `show` fails: [`Self::begin_snapshot`] for who has nothing
    /// else running anyway.
    pub fn try_for_each_chunk<E>(
        &self,
        database: usize,
        form: Form,
        show: impl FnMut(&Chunk) -> Result<(), E>,
    ) -> Result<(), E> {
        snapshot::try_for_each_chunk(self, database, form, show)
    }

    /// Stores a value that was read from a file, last used so many seconds ago, unless its key is there;
    /// whether it was stored. It counts as no change.
    pub fn insert(
        &mut self,
        database: usize,
        key: &[u8],
        value: rdb::Value,
        expiry_ms: Option<u64>,
        idle_seconds: u64,
    ) -> bool {
        self.locked.load(database, key, value, (expiry_ms, idle_seconds, self.environment.now_ms)).is_some()
    }

    /// Removes a key, if it is there.
    pub fn remove(&mut self, database: usize, key: &[u8]) {
        let key = self.locked.keyspace().key(key);
        let Some(stripe) = self.locked.shard_mut(key.shard).database_mut(database) else { return };
        if let Some(slot) = stripe.find(key.hash, key.bytes) {
            stripe.remove(slot, &mut self.worker.garbage);
            self.locked.publish_usage(key.shard, database);
        }
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
                if let Some(watches) = self.locked.shard(shard).watches() {
                    watches.replaced(database, |_| false);
                }
                if let Some(taken) = self.locked.shard_mut(shard).take_database(database) {
                    keys += taken.len() as u64;
                    if let Some(taken) = taken.retire() {
                        garbage.push_database(*taken);
                    }
                    self.locked.publish_database(shard, database);
                    note_ready(&self.locked, shard, database, &mut self.worker.ready);
                }
            }
        }
        // Whichever database it was: clients know keys by name alone.
        for shard in self.locked.keyspace().shards() {
            self.locked.untrack_all(shard);
        }
        self.worker.notices.push(Notice::Invalidation(Invalidation::Everything));
        self.worker.statistics.changes.add(keys);
        // Recorded even where nothing was there, as Redis has it: somebody may wait for the word.
        self.changed = true;
    }

    /// Exchanges two databases. O(shards).
    pub fn swap(&mut self, one: usize, other: usize) {
        for shard in self.locked.keyspace().shards() {
            self.show_swap(shard, one, other);
            self.show_swap(shard, other, one);
            self.locked.shard_mut(shard).swap_databases(one, other);
            self.locked.publish_database(shard, one);
            self.locked.publish_database(shard, other);
            note_ready(&self.locked, shard, one, &mut self.worker.ready);
            note_ready(&self.locked, shard, other, &mut self.worker.ready);
        }
        self.worker.statistics.changes.add(1);
        self.changed = true;
    }

    /// Tells those who watch keys of one database that it gives way to another.
    fn show_swap(&self, shard: usize, database: usize, replacement: usize) {
        let state = self.locked.shard(shard);
        let Some(watches) = state.watches() else { return };
        let (keyspace, replacement) = (self.locked.keyspace(), state.database(replacement));
        watches.replaced(database, |key| {
            let hash = keyspace.key(key).hash;
            let entry = replacement.and_then(|stripe| Some(stripe.entry(stripe.find(hash, key)?)));
            entry.is_some_and(|entry| !entry.is_expired(self.environment.now_ms))
        });
    }
}
