//! For commands that change the keyspace as a whole.

use std::collections::VecDeque;

use crate::keyspace::LockedShards;

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

    /// The command, of these words, has ended: records it, and answers what is left to be freed before
    /// the answer leaves.
    pub(crate) fn finish(self, words: &[&[u8]]) -> Garbage {
        self.worker.effects.settle(self.database, words, self.changed);
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
                    note_ready(&self.locked, shard, database, &mut self.worker.ready);
                }
            }
        }
        self.worker.statistics.changes.add(keys);
        // Recorded even where nothing was there, as Redis has it: somebody may wait for the word.
        self.changed = true;
    }

    /// Exchanges two databases. O(shards).
    pub fn swap(&mut self, one: usize, other: usize) {
        for shard in self.locked.keyspace().shards() {
            self.locked.shard_mut(shard).swap_databases(one, other);
            self.locked.publish_database(shard, one);
            self.locked.publish_database(shard, other);
            note_ready(&self.locked, shard, one, &mut self.worker.ready);
            note_ready(&self.locked, shard, other, &mut self.worker.ready);
        }
        self.worker.statistics.changes.add(1);
        self.changed = true;
    }
}
