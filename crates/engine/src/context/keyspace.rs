//! For commands that look at the keyspace as a whole.

use crate::{
    glob,
    keyspace::{Database, EntryRef, Keyspace, Usage},
};

use super::{Environment, Worker};

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
