//! For commands that look at the keyspace as a whole.

use std::{cell::Cell, fmt, ops::Range, sync::Arc};

use super::{
    Environment, Worker,
    walk::{Held, Host, Place, Walk, hold},
};
use crate::{
    command::{CommandError, CommandResult},
    glob,
    keyspace::{Database, EntryRef, Keyspace},
};

/// Bytes of a key that take as long as another key.
const VISIT_BYTES: usize = 64;

/// For commands that look at the keyspace as a whole. No lock is held between visits to stripes: what such a command
/// answers is true of each stripe at its own moment, or of each slice of one if the command is offloaded.
pub struct KeyspaceContext<'a> {
    keyspace: &'a Keyspace,
    database: usize,
    environment: Environment<'a>,
    worker: &'a mut Worker,
    /// The thread that runs the command, if that is not its worker.
    host: Option<&'a dyn Host>,
}

impl fmt::Debug for KeyspaceContext<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("KeyspaceContext").field("database", &self.database).finish_non_exhaustive()
    }
}

impl<'a> KeyspaceContext<'a> {
    pub(crate) fn new(
        keyspace: &'a Keyspace,
        database: usize,
        environment: Environment<'a>,
        worker: &'a mut Worker,
    ) -> Self {
        Self { keyspace, database, environment, worker, host: None }
    }

    /// For a command that is offloaded.
    pub(crate) fn offloaded(
        keyspace: &'a Keyspace,
        database: usize,
        environment: Environment<'a>,
        worker: &'a mut Worker,
        host: &'a dyn Host,
    ) -> Self {
        Self { keyspace, database, environment, worker, host: Some(host) }
    }

    /// How many keys the command may visit where it stands. Transactions and scripts have to have the answer now.
    fn visits_max(&self) -> usize {
        let must_stay = self.host.is_some() || self.environment.caller.deny_blocking;
        self.environment.caller.visits_max.filter(|_| !must_stay).unwrap_or(usize::MAX)
    }

    /// Call this before the work begins: the command is about to visit that many keys. The error, which is to be
    /// passed on, offloads it.
    pub fn weigh(&self, keys: usize) -> CommandResult {
        if keys > self.visits_max() { Err(CommandError::TooLong) } else { Ok(()) }
    }

    /// Unix time in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.environment.caller.now_ms
    }

    /// Locks a stripe.
    fn hold(&self, stripe: usize) -> Result<Held<'a>, CommandError> {
        hold(self.keyspace, stripe, self.host)
    }

    /// Keys of a stripe, in the client's database, expired keys that are still there included.
    fn keys_of(&self, stripe: usize) -> Result<usize, CommandError> {
        Ok(self.hold(stripe)?.database(self.database).map_or(0, Database::len))
    }

    /// Keys of the client's database, expired keys that are still there included. O(stripes).
    pub fn keys(&self) -> Result<usize, CommandError> {
        self.keyspace.stripes().try_fold(0, |keys, stripe| Ok(keys + self.keys_of(stripe)?))
    }

    /// [`Self::keys`] without those of hidden slots. O(stripes), O(keys) while slots are hidden.
    pub fn visible_keys(&mut self) -> Result<usize, CommandError> {
        if self.keyspace.hidden().is_empty() {
            return self.keys();
        }
        let count = Cell::new(0);
        let counted = |_: EntryRef<'_>| {
            count.set(count.get() + 1);
            false
        };
        self.scan(0, usize::MAX, None, counted, |_| {})?;
        Ok(count.get())
    }

    /// [`Self::keys`] of all databases. O(stripes × databases).
    pub fn keys_of_all(&self) -> Result<usize, CommandError> {
        self.keyspace.stripes().try_fold(0, |keys, stripe| {
            let held = self.hold(stripe)?;
            let databases = (0..self.databases()).filter_map(|database| held.database(database));
            Ok(keys + databases.map(Database::len).sum::<usize>())
        })
    }

    /// Whether a key is there and has not expired.
    pub fn contains(&self, key: &[u8]) -> Result<bool, CommandError> {
        let key = self.keyspace.key(key);
        let held = self.hold(key.stripe)?;
        let entry = held
            .database(self.database)
            .and_then(|database| Some(database.entry(database.find(key.hash, key.bytes)?)));
        let is_hidden = self.keyspace.hidden().has_key(key.bytes);
        Ok(!is_hidden && entry.is_some_and(|entry| !entry.is_expired(self.environment.caller.now_ms)))
    }

    /// The runs of slots whose keys are here; `None` without a cluster.
    pub fn slots(&self) -> Option<Arc<[(u16, u16)]>> {
        self.environment.policy.slots.clone()
    }

    /// The stripe that holds every key of a slot.
    pub fn stripe_of_slot(&self, slot: u16) -> usize {
        self.keyspace.stripe_of_slot(slot)
    }

    /// A number that depends on these bytes and on the secret of the process.
    pub fn fingerprint(&self, bytes: &[u8]) -> u64 {
        self.keyspace.key(bytes).hash
    }

    /// The stripe that holds every key that can match a pattern, if its hash tag says so.
    pub fn shard_of_pattern(&self, pattern: &[u8]) -> Option<usize> {
        glob::hash_tag(pattern).map(|tag| self.keyspace.stripe_of(tag))
    }

    /// How many databases there are.
    pub fn databases(&self) -> usize {
        self.keyspace.databases()
    }

    /// The stripes to visit: all, or one.
    fn stripes(&self, only: Option<usize>) -> Range<usize> {
        only.map_or(self.keyspace.stripes(), |stripe| stripe..stripe + 1)
    }

    /// Visits all keys, or those of one stripe, that have not expired and are not hidden: each that is there throughout
    /// once. The error, which is to be passed on, comes if some have been visited without result.
    pub fn for_each_key(&mut self, only: Option<usize>, mut visit: impl FnMut(&[u8])) -> CommandResult {
        if let Some(host) = self.host {
            let begin = Place { stripe: self.stripes(only).start, position: 0 };
            let hidden = self.keyspace.hidden();
            self.scan_apart(host, begin, usize::MAX, only, |entry| !hidden.has_key(entry.key()), visit)?;
            return Ok(());
        }
        let (keys_max, now_ms) = (self.visits_max(), self.environment.caller.now_ms);
        let hidden = self.keyspace.hidden();
        let bytes_max = keys_max.saturating_mul(VISIT_BYTES);
        let (mut keys, mut bytes) = (0, 0);
        // Bytes of a stripe with which its keys need not be measured one by one.
        let unmeasured_max = bytes_max / self.stripes(only).len();
        for stripe in self.stripes(only) {
            let Some(locked) = self.keyspace.lock_one_unless_long(stripe) else {
                return Err(CommandError::Busy);
            };
            let Some(database) = locked.stripe(stripe).database(self.database) else { continue };
            keys += database.len();
            if keys > keys_max {
                return Err(CommandError::TooLong);
            }
            if database.entry_bytes() <= unmeasured_max {
                database.for_each(|entry| {
                    if !entry.is_expired(now_ms) && !hidden.has_key(entry.key()) {
                        visit(entry.key());
                    }
                });
                continue;
            }
            database.for_each(|entry| {
                if bytes <= bytes_max && !entry.is_expired(now_ms) && !hidden.has_key(entry.key()) {
                    let key = entry.key();
                    bytes += key.len();
                    visit(key);
                }
            });
            if bytes > bytes_max {
                return Err(CommandError::TooLong);
            }
        }
        Ok(())
    }

    /// Visits all entries of a database that have not expired, under the locks of their stripes. The error is to be passed on.
    pub fn for_each_in(&mut self, database: usize, mut visit: impl FnMut(EntryRef<'_>)) -> CommandResult {
        let now_ms = self.environment.caller.now_ms;
        let mut visit = |entry: EntryRef<'_>| {
            if !entry.is_expired(now_ms) {
                visit(entry);
            }
        };
        for stripe in self.keyspace.stripes() {
            if let Some(host) = self.host {
                let mut walk = Walk::new(self.keyspace, database, host);
                let mut place = Place { stripe, position: 0 };
                walk.visit(&mut place, &mut visit)?;
                while place.position != 0 {
                    walk.visit(&mut place, &mut visit)?;
                }
            } else {
                let held = self.hold(stripe)?;
                let part = held.database(database);
                part.into_iter().for_each(|part| part.for_each(&mut visit));
            }
        }
        Ok(())
    }

    /// Visits some keys behind `cursor` whose entries are wanted, not hidden, and have not expired, and answers the
    /// next cursor. A key that is there from the first call (with 0) to the last (that answers 0) is visited at least
    /// once. `count` is about how many are looked at. `only` confines the calls to one stripe. The error, which is to
    /// be passed on, comes if some have been visited without result.
    ///
    /// The cursor is the stripe in the low bits and the position inside the stripe's table above.
    pub fn scan(
        &mut self,
        cursor: u64,
        count: usize,
        only: Option<usize>,
        wanted: impl Fn(EntryRef<'_>) -> bool,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<u64, CommandError> {
        let (stripes, now_ms) = (self.keyspace.stripes().len() as u64, self.environment.caller.now_ms);
        let hidden = self.keyspace.hidden();
        let wanted = |entry: EntryRef<'_>| !hidden.has_key(entry.key()) && wanted(entry);
        let (mut stripe, mut position) = ((cursor % stripes) as usize, cursor / stripes);
        if let Some(only) = only {
            position = if stripe == only { position } else { 0 };
            stripe = only;
        }
        if let Some(host) = self.host {
            return self.scan_apart(host, Place { stripe, position }, count, only, wanted, visit);
        }
        let keys_max = self.visits_max();
        if count > keys_max {
            self.weigh(self.keys()?.min(count))?;
        }
        let end = self.stripes(only).end;
        let bytes_max = keys_max.saturating_mul(VISIT_BYTES);
        let (mut seen, mut bytes) = (0, 0);
        // Empty buckets count a little, so that a sparse table does not hold the worker for long.
        let mut steps = 0;
        loop {
            let Some(locked) = self.keyspace.lock_one_unless_long(stripe) else {
                return Err(CommandError::Busy);
            };
            match locked.stripe(stripe).database(self.database) {
                None => position = 0,
                Some(database) => loop {
                    position = database.scan(position, |entry| {
                        seen += 1;
                        if bytes <= bytes_max && !entry.is_expired(now_ms) && wanted(entry) {
                            let key = entry.key();
                            bytes += key.len();
                            visit(key);
                        }
                    });
                    if bytes > bytes_max {
                        return Err(CommandError::TooLong);
                    }
                    steps += 1;
                    if position == 0 || seen >= count || steps >= count.saturating_mul(10) {
                        break;
                    }
                },
            }
            if position == 0 {
                stripe += 1;
                if stripe == end {
                    return Ok(0);
                }
            }
            if seen >= count || steps >= count.saturating_mul(10) {
                return Ok(position * stripes + stripe as u64);
            }
        }
    }

    /// [`Self::scan`] in slices. Nothing is visited twice that is there throughout.
    fn scan_apart(
        &self,
        host: &dyn Host,
        mut place: Place,
        count: usize,
        only: Option<usize>,
        wanted: impl Fn(EntryRef<'_>) -> bool,
        mut visit: impl FnMut(&[u8]),
    ) -> Result<u64, CommandError> {
        let (now_ms, end) = (self.environment.caller.now_ms, self.stripes(only).end);
        let mut walk = Walk::new(self.keyspace, self.database, host);
        let mut left = count;
        loop {
            let wanted = |entry: EntryRef<'_>| !entry.is_expired(now_ms) && wanted(entry);
            left = left.saturating_sub(walk.copy_keys(&mut place, left, wanted)?);
            walk.keys().for_each(&mut visit);
            if place.position == 0 {
                place.stripe += 1;
                if place.stripe == end {
                    return Ok(0);
                }
            }
            if left == 0 {
                return Ok(place.position * self.keyspace.stripes().len() as u64 + place.stripe as u64);
            }
        }
    }

    /// A key chosen at random among those that have not expired and are not hidden, nearly uniformly.
    pub fn random_key(&mut self) -> Result<Option<Vec<u8>>, CommandError> {
        const TRIES_MAX: usize = 100;
        /// Keys that are looked at in a row if everything drawn has expired.
        const SCAN_COUNT: usize = 100;
        let keys = self.keyspace.stripes().map(|stripe| self.keys_of(stripe));
        let keys = keys.collect::<Result<Vec<usize>, _>>()?;
        let total: usize = keys.iter().sum();
        if total == 0 {
            return Ok(None);
        }
        for _ in 0..TRIES_MAX {
            let mut nth = (self.worker.random() % total as u64) as usize;
            let stripe = keys.iter().position(|keys| {
                let here = nth < *keys;
                nth -= if here { 0 } else { *keys };
                here
            });
            let stripe = stripe.expect("it is below the sum");
            let held = self.hold(stripe)?;
            let random = self.worker.random();
            let entry = held.database(self.database).and_then(|database| database.random(random));
            if let Some(entry) = entry
                && !entry.is_expired(self.environment.caller.now_ms)
                && !self.keyspace.hidden().has_key(entry.key())
            {
                return Ok(Some(entry.key().to_vec()));
            }
        }
        // Nearly everything has expired and awaits its removal, or is hidden: the first that is not will do.
        self.weigh(total)?;
        let (mut cursor, mut found) = (0, None);
        loop {
            cursor = self.scan(
                cursor,
                SCAN_COUNT,
                None,
                |_| true,
                |key| {
                    found.get_or_insert_with(|| key.to_vec());
                },
            )?;
            if cursor == 0 || found.is_some() {
                return Ok(found);
            }
        }
    }
}
