//! Making room: when keys are evicted, and how many at a time.
//!
//! ```text
//! in use   0 ─────────────── limit - ahead ── limit ── limit + a slice's worth
//!            nothing          background       before a command that needs memory
//! ```
//!
//! A command that needs memory makes room first, for as long as `maxmemory-eviction-tenacity` allows; what is left to
//! do then is done in the background, in slices between which clients are served. The command is refused only if no
//! key is left that may go.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use dunlin_engine::{
    Environment, Eviction, EvictionOrder,
    command::{Entry, Flags},
    keyspace::Inside,
};
use dunlin_net::{Client, OutputClass};
use dunlin_resp::number::parse_integer;

use super::Executor;
use crate::{
    admission::Effects,
    config::{Config, MaxmemoryPolicy},
    observe::stats::CONNECTION_BYTES,
    session::{
        ClientFlags,
        transaction::{Given, Queue},
    },
    shared::Shared,
    workers::drain::drain,
};

/// Bytes of arguments that may be admitted on the strength of one sum of the memory in use.
const ADMITTED_BYTES_MAX: usize = 16 * 1024;
/// Part of the limit that is kept free ahead of need, and the most bytes that it may be.
const AHEAD_DIVISOR: usize = 1024;
const AHEAD_BYTES_MAX: usize = 4 << 20;
/// Keys that are evicted between two looks at the clock.
const KEYS_PER_STEP: usize = 16;
/// Values that may wait to be freed in the background; those evicted beyond are freed at once, unless freeing them
/// would stall other clients.
const PENDING_VALUES_MAX: usize = 16;
/// Bytes of arguments that give a command another microsecond for eviction.
const BYTES_PER_MICROSECOND: u64 = 1024;
/// How long a slice in the background takes.
const SLICE: Duration = Duration::from_micros(500);

/// The memory in use as far as it is known, while there is a limit.
#[derive(Debug, Default)]
pub(super) struct MemoryCheck {
    /// Bytes in use when last summed up, in this window.
    used: Option<usize>,
    /// Bytes of arguments admitted since then.
    admitted: usize,
}

/// How keys give way under a configuration; `None` if none does.
pub(crate) fn eviction(config: &Config) -> Option<Eviction> {
    use EvictionOrder::{Deadline, Frequency, Random, Recency, Weighed};
    let (expiring_only, order) = match config.maxmemory_policy {
        MaxmemoryPolicy::Noeviction => return None,
        // Stamps say when keys were changed ([`Policy::stamps_changes`]).
        MaxmemoryPolicy::AllkeysLru | MaxmemoryPolicy::AllkeysLrm => (false, Recency),
        MaxmemoryPolicy::AllkeysLfu => (false, Frequency),
        MaxmemoryPolicy::AllkeysRandom => (false, Random),
        MaxmemoryPolicy::AllkeysAuto => (false, Weighed),
        MaxmemoryPolicy::VolatileLru | MaxmemoryPolicy::VolatileLrm => (true, Recency),
        MaxmemoryPolicy::VolatileLfu => (true, Frequency),
        MaxmemoryPolicy::VolatileRandom => (true, Random),
        MaxmemoryPolicy::VolatileTtl => (true, Deadline),
        MaxmemoryPolicy::VolatileAuto => (true, Weighed),
    };
    let samples = config.maxmemory_samples as usize;
    Some(Eviction { order, expiring_only, samples, database: None, lazy: config.lazyfree_lazy_eviction })
}

/// How long a command may make room, by `maxmemory-eviction-tenacity`: as in Redis, up to 0.5 ms in even steps, from
/// there on 15% more with each, and any time at 100.
fn time_max(tenacity: u32) -> Duration {
    match tenacity {
        0..=10 => Duration::from_micros(50) * tenacity,
        11..=99 => Duration::from_secs_f64(500e-6 * 1.15_f64.powi(tenacity as i32 - 10)),
        _ => Duration::MAX,
    }
}

impl Executor {
    /// Whether memory stays short for a command of a client in a database, although room was made if that is possible. The sum of
    /// the memory in use is as old as this window of the pipeline, or as [`ADMITTED_BYTES_MAX`].
    pub(crate) fn is_short_for(
        &mut self,
        entry: &Entry,
        words: &[&[u8]],
        database: usize,
        inside: Option<&Inside<'_>>,
    ) -> bool {
        // A script's operands need not be stored.
        let words: &[&[u8]] = if entry.command.flags.has(Flags::RUNS_SCRIPT) { &[] } else { words };
        self.is_short_in(entry, words, database, inside) || self.is_short_of_all(words, inside)
    }

    /// Whether memory stays short for queued commands of a client in a database.
    pub(super) fn is_short_for_queue(
        &mut self,
        queue: &Queue,
        effects: Effects,
        inside: Option<&Inside<'_>>,
    ) -> bool {
        if !effects.has_any(Effects::NEEDS_MEMORY) {
            return false;
        }
        // If keys may go, each command makes its own room.
        let is_fixed = self.config.config().maxmemory_policy == MaxmemoryPolicy::Noeviction;
        let coming = |given: &Given| if is_fixed { given.bytes } else { 0 };
        queue.given.iter().any(|given| self.is_database_short(given.database, coming(given), inside))
            || self.is_short_of_all(&[], inside)
    }

    /// The database that a command which may need memory fills, and the bytes of its arguments; `None` if the database has no limit.
    pub(super) fn given(&self, entry: &Entry, words: &[&[u8]], database: usize) -> Option<(usize, usize)> {
        if !self.limits_databases() || !entry.command.flags.has(Flags::DENY_OOM) {
            return None;
        }
        let filled = filled_database(entry, words, database);
        self.config.config().db_maxmemory.of(filled).map(|_| (filled, bytes_of(words)))
    }

    /// Whether there are databases with limits of their own.
    pub(crate) fn limits_databases(&self) -> bool {
        !self.config.config().db_maxmemory.is_empty()
    }

    /// Whether `maxmemory` leaves no room for a command with these words.
    pub(crate) fn is_short_of_all(&mut self, words: &[&[u8]], inside: Option<&Inside<'_>>) -> bool {
        let limit = self.config.config().maxmemory;
        limit > 0 && self.may_be_short() && self.check_memory(words, limit, inside)
    }

    /// Whether the limit of the database that a command fills leaves no room for its words.
    pub(crate) fn is_short_in(
        &mut self,
        entry: &Entry,
        words: &[&[u8]],
        database: usize,
        inside: Option<&Inside<'_>>,
    ) -> bool {
        if !self.limits_databases() {
            return false;
        }
        let bytes = bytes_of(words);
        let database = filled_database(entry, words, database);
        self.is_database_short(database, if bytes > ADMITTED_BYTES_MAX { bytes } else { 0 }, inside)
    }

    /// Whether limits are asked for. A replica has as much as its primary, which evicts for both. Commands that nested polling
    /// lets in need next to nothing.
    fn may_be_short(&self) -> bool {
        !self.shared.replication.is_replica() && self.paused_script.is_none()
    }

    /// Whether the limit of a database leaves no room for `coming` more bytes. The sum is as of now: it costs a look at
    /// each stripe.
    fn is_database_short(&mut self, database: usize, coming: usize, inside: Option<&Inside<'_>>) -> bool {
        let Some(limit) = self.config.config().db_maxmemory.of(database) else { return false };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let used = self.shared.engine.keyspace.database_bytes(database);
        used.saturating_add(coming) > limit
            && self.may_be_short()
            && self.make_room(limit, coming, Some(database), inside)
    }

    fn check_memory(&mut self, words: &[&[u8]], limit: u64, inside: Option<&Inside<'_>>) -> bool {
        let shared = &self.shared;
        let mut used = *self.memory.used.get_or_insert_with(|| shared.stats.limited_bytes(&shared.engine));
        let bytes = bytes_of(words);
        self.memory.admitted += bytes;
        // Large arguments get their room before they are stored.
        let coming = if bytes > ADMITTED_BYTES_MAX { bytes } else { 0 };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        if used > limit && coming == 0 && shared.stats.revisit_clients(self.now.steady_ms) {
            shared.stats.note_held(&shared.held());
            used = shared.stats.limited_bytes(&shared.engine);
            self.memory.used = Some(used);
        }
        let is_over = used > limit
            || coming > 0
                && self.config.config().maxmemory_policy != MaxmemoryPolicy::Noeviction
                && in_use(shared, None, coming) > limit;
        if is_over || self.memory.admitted > ADMITTED_BYTES_MAX {
            self.memory = MemoryCheck::default();
        }
        if !is_over {
            shared.stats.eviction.note(false, self.now.steady_ms);
            return false;
        }
        let is_short = self.make_room(limit, coming, None, inside);
        let is_over = in_use(&self.shared, None, coming) > limit;
        self.shared.stats.eviction.note(is_over, self.now.steady_ms);
        is_short
    }

    /// Evicts until there is room for `coming` bytes and a little more, in all or in a database. Returns whether there
    /// is not, and nothing is left to go.
    #[cold]
    fn make_room(
        &mut self,
        limit: usize,
        coming: usize,
        database: Option<usize>,
        inside: Option<&Inside<'_>>,
    ) -> bool {
        let config = self.config.config();
        let Some(how) = eviction(config) else { return true };
        let how = Eviction { database, ..how };
        // A value that would not fit if nothing else were there evicts nothing.
        let fixed = if database.is_none() { self.shared.stats.startup_bytes } else { 0 };
        if coming + fixed > limit || database.is_none() && self.is_in_vain(limit, coming) {
            return true;
        }
        let Some(inside) = inside.filter(|_| self.may_evict()) else { return false };
        // A large command may take longer: its arrival has taken as long.
        let time = time_max(config.maxmemory_eviction_tenacity)
            .saturating_add(Duration::from_micros(coming as u64 / BYTES_PER_MICROSECOND));
        let target = limit.saturating_sub(ahead(limit).min(ADMITTED_BYTES_MAX));
        let none_left = self.evict_to(target, coming, &how, time, inside);
        none_left && in_use(&self.shared, database, coming) > limit
    }

    /// Whether all that is not a key takes as much as the limit: then all keys would go, and to no avail.
    fn is_in_vain(&self, limit: usize, coming: usize) -> bool {
        in_use(&self.shared, None, coming).saturating_sub(self.shared.engine.keyspace.used_bytes()) >= limit
    }

    /// Whether keys may go: nothing changes by itself while data are being loaded, under `CLIENT PAUSE`, or while the
    /// log cannot be written.
    fn may_evict(&self) -> bool {
        let shared = &self.shared;
        !shared.loading.is_active()
            && shared.durability.may_expire()
            && !(shared.pause.is_set() && shared.pause.in_force(self.now.instant).is_some())
    }

    /// Evicts until at most `target` bytes are in use with those that are coming, within a time. Returns whether no key
    /// is left that may go.
    fn evict_to(
        &mut self,
        target: usize,
        coming: usize,
        how: &Eviction,
        time: Duration,
        inside: &Inside<'_>,
    ) -> bool {
        let shared = Arc::clone(&self.shared);
        let started = Instant::now();
        let evictor = &mut self.evictor;
        let mut none_left = false;
        loop {
            let used = in_use(&shared, how.database, coming);
            if used <= target {
                break;
            }
            let most = (used - target, KEYS_PER_STEP);
            let evicted =
                shared.engine.evict(inside, how, most, Environment::new(&self.policy, &self.caller), evictor);
            none_left = evicted.none_left;
            if !evictor.garbage.is_empty() {
                let garbage = evictor.garbage.take();
                // Memory that waits to be freed is still in use: it must not pile up.
                if garbage.is_large() || shared.maintenance.pending_objects() < PENDING_VALUES_MAX {
                    shared.maintenance.discard(garbage);
                }
            }
            if evicted.keys == 0 || started.elapsed() >= time {
                break;
            }
        }
        drain(evictor, &shared.maintenance, &self.queues);
        let took = started.elapsed();
        if took.as_millis() as u64 >= self.meter.thresholds().event_ms {
            let time_s = self.caller.now_ms / 1000;
            shared.stats.latency.record("eviction-cycle", time_s, took.as_millis() as u64);
        }
        none_left
    }

    /// A slice of background work: access stamps are kept fresh, entries moved together, and keys evicted ahead
    /// of need. Returns how long the worker may wait before the next slice.
    pub(super) fn tend_memory(&mut self) -> Duration {
        const SWEPT_ENTRIES: usize = 512;
        const SWEEP_PAUSE: Duration = Duration::from_millis(1);
        let shared = Arc::clone(&self.shared);
        let Some(inside) = shared.engine.keyspace.enter_unless_long(self.worker.id()) else {
            return Duration::MAX;
        };
        let is_swept = !shared.loading.is_active()
            && shared.engine.sweep_stamps(&inside, self.caller.now_ms, SWEPT_ENTRIES);
        let pause = if is_swept { SWEEP_PAUSE } else { Duration::MAX };
        let pause = pause.min(self.defragment(&inside));
        self.evict_clients();
        let is_behind = !shared.replication.is_replica() && self.tend_databases(&inside);
        let pause = if is_behind { Duration::ZERO } else { pause };
        let config = self.config.config();
        if config.maxmemory == 0 || shared.replication.is_replica() {
            shared.stats.eviction.note(false, self.now.steady_ms);
            return pause;
        }
        let limit = usize::try_from(config.maxmemory).unwrap_or(usize::MAX);
        let target = limit.saturating_sub(ahead(limit));
        let used = || shared.stats.limited_bytes(&shared.engine);
        if used() > target && shared.stats.revisit_clients(self.now.steady_ms) {
            shared.stats.note_held(&shared.held());
        }
        if let Some(how) = eviction(config)
            && used() > target
            && self.may_evict()
            && !self.is_in_vain(limit, 0)
            && !self.evict_to(target, 0, &how, SLICE, &inside)
            && used() > limit
        {
            shared.stats.eviction.note(true, self.now.steady_ms);
            return Duration::ZERO;
        }
        shared.stats.eviction.note(used() > limit, self.now.steady_ms);
        pause
    }
}

impl Executor {
    /// Evicts ahead of need in databases with limits of their own. Returns whether one of them is above its limit
    /// still.
    fn tend_databases(&mut self, inside: &Inside<'_>) -> bool {
        let config = self.config.config();
        if config.db_maxmemory.is_empty() || !self.may_evict() {
            return false;
        }
        let Some(how) = eviction(config) else { return false };
        let limits: Vec<(usize, u64)> = config.db_maxmemory.iter().collect();
        let databases = self.shared.engine.keyspace.databases();
        let mut is_behind = false;
        for (database, limit) in limits.into_iter().filter(|(database, _)| *database < databases) {
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            let how = Eviction { database: Some(database), ..how };
            let is_over = in_use(&self.shared, how.database, 0) > limit - ahead(limit);
            if is_over && !self.evict_to(limit - ahead(limit), 0, &how, SLICE, inside) {
                is_behind |= in_use(&self.shared, how.database, 0) > limit;
            }
        }
        is_behind
    }

    /// Closes the clients that hold most memory, as long as all together hold more than `maxmemory-clients`. The sum
    /// is that of the last sample.
    fn evict_clients(&mut self) {
        let config = self.config.config();
        let Some(limit) = config.maxmemory_clients.limit(config.maxmemory) else { return };
        let (shared, queues) = (&self.shared, &self.queues);
        if shared.stats.client_bytes() as u64 <= limit {
            return;
        }
        let may_go = |client: &Arc<Client>| {
            client.output_class() != OutputClass::Replica
                && !client.is_outgoing()
                && !ClientFlags::of(client).has(ClientFlags::NO_EVICT)
        };
        let clients = self.clients.list().into_iter().filter(may_go);
        let mut sized: Vec<(u64, Arc<Client>)> =
            clients.map(|client| (client.held_bytes() + CONNECTION_BYTES as u64, client)).collect();
        let mut sum: u64 = sized.iter().map(|(bytes, _)| bytes).sum();
        sized.sort_unstable_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        for (bytes, client) in sized {
            if sum <= limit {
                break;
            }
            sum -= bytes;
            // Another worker may be at it, too.
            if !client.mark_killed() {
                continue;
            }
            tracing::info!(
                "closing {client}: it holds {bytes} bytes, more than maxmemory-clients leaves room for"
            );
            shared.blocked.cancel_wait(client.address);
            queues.kill(client.address);
            shared.stats.evicted_clients.fetch_add(1, Relaxed);
        }
    }
}

fn bytes_of(words: &[&[u8]]) -> usize {
    words.iter().map(|word| word.len()).sum()
}

/// The database that a command fills: that of the client, or the one that COPY names.
pub(crate) fn filled_database(entry: &Entry, words: &[&[u8]], database: usize) -> usize {
    if entry.command.name != "copy" {
        return database;
    }
    let options = words.get(3..).unwrap_or_default();
    let at = options.iter().position(|word| word.eq_ignore_ascii_case(b"db"));
    let named =
        at.and_then(|at| parse_integer(options.get(at + 1)?)).and_then(|index| usize::try_from(index).ok());
    named.unwrap_or(database)
}

/// Bytes in use that a limit is about, that of all or that of a database, with those that are coming.
fn in_use(shared: &Shared, database: Option<usize>, coming: usize) -> usize {
    match database {
        None => shared.stats.limited_bytes_with(&shared.engine, coming),
        Some(database) => shared.engine.keyspace.database_bytes(database) + coming,
    }
}

/// Bytes that are kept free ahead of need.
fn ahead(limit: usize) -> usize {
    (limit / AHEAD_DIVISOR).min(AHEAD_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenacity_is_time() {
        assert_eq!(time_max(0), Duration::ZERO);
        assert_eq!(time_max(10), Duration::from_micros(500));
        assert!(time_max(11) > time_max(10) && time_max(99) > Duration::from_secs(100));
        assert_eq!(time_max(100), Duration::MAX);
    }
}
