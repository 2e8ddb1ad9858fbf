//! Eviction: keys give way if memory is short.
//!
//! ```text
//! stripe, by its share of memory ─▶ try its lock ─▶ sample, rank (keyspace/database/eviction.rs) ─▶ remove ─▶ notify
//!                                       └ has few keys: some stripes ─▶ try each lock, sample ─▶ the best of all (pool.rs)
//! ```
//!
//! A caller that needs room calls [`Engine::evict`] before it takes locks of its own. Locks of stripes are tried and
//! never waited for, so that eviction neither stalls nor closes a circle of waiting. The host decides when and how
//! much. Slices of eviction also keep access stamps fresh ([`Engine::sweep_stamps`]).

mod pool;

use dunlin_structures::Slot;

pub(crate) use self::pool::VictimPool;
use crate::{
    context::{Caller, Environment, Worker},
    execute::Engine,
    keyspace::{ClientToken, Database, Inside, Invalidation, Locked, LockedStripes, Ranking, Sampling},
    notify::{Event, EventClass, Notice},
    propagation::removal_word,
    random::Random,
};

/// Keys that go from one stripe before another is chosen.
const KEYS_PER_LOCK: usize = 4;
/// Keys of hidden slots that are chosen before another stripe is.
const HIDDEN_VICTIMS_MAX: usize = 16;

/// Which key goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvictionOrder {
    /// The one that was used longest ago.
    Recency,
    /// The one that is used least.
    Frequency,
    /// The one that was used longest ago and least, and takes most memory; the weight of each is learned.
    Weighed,
    /// The one that expires first.
    Deadline,
    /// Any.
    Random,
}

impl EvictionOrder {
    /// The ranking that stamps have to hold for it.
    pub fn ranking(self) -> Ranking {
        match self {
            Self::Frequency => Ranking::Frequency,
            Self::Weighed => Ranking::Weighed,
            Self::Recency | Self::Deadline | Self::Random => Ranking::Recency,
        }
    }
}

/// How keys are chosen that give way (`maxmemory-policy` and its kin).
#[derive(Debug, Clone, Copy)]
pub struct Eviction {
    /// Which goes first.
    pub order: EvictionOrder,
    /// Whether only keys with an expiry may go.
    pub expiring_only: bool,
    /// Keys that are compared for each that goes (`maxmemory-samples`).
    pub samples: usize,
    /// The database whose keys may go, `None` for all.
    pub database: Option<usize>,
    /// Whether the record says UNLINK rather than DEL (`lazyfree-lazy-eviction`).
    pub lazy: bool,
}

/// The result of [`Engine::evict`].
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Evicted {
    /// Keys removed.
    pub keys: usize,
    /// Bytes in use that went with them.
    pub bytes: usize,
    /// Whether no key is left that may go.
    pub none_left: bool,
}

/// The next key of a locked stripe to go.
enum Choice {
    /// This one.
    Key { database: usize, slot: Slot },
    /// None of those that were looked at.
    Nothing,
    /// No key is left that may go.
    NoneLeft,
}

impl Eviction {
    fn sampling<'a>(&self, engine: &'a Engine, now_ms: u64) -> Sampling<'a> {
        let Self { order, expiring_only, samples, .. } = *self;
        Sampling { order, expiring_only, samples, clock: engine.keyspace.access_clock(), now_ms }
    }
}

impl Engine {
    /// Removes keys until `bytes_wanted` bytes are free, or `keys_max` keys are gone. The caller holds no lock.
    pub fn evict(
        &self,
        _inside: &Inside<'_>,
        how: &Eviction,
        (bytes_wanted, keys_max): (usize, usize),
        environment: Environment<'_>,
        worker: &mut Worker,
    ) -> Evicted {
        let mut evicted = Evicted::default();
        let stripes = self.keyspace.stripes().len();
        while evicted.bytes < bytes_wanted && evicted.keys < keys_max {
            let first = match how.database {
                None => self.keyspace.stripe_by_bytes(worker.random()),
                Some(database) => self.keyspace.stripe_by_bytes_of(database, worker.random()),
            };
            let keys_before = evicted.keys;
            let mut is_certain = true;
            for stripe in (first..stripes).chain(0..first) {
                let Some(mut locked) = self.keyspace.try_lock_one(stripe) else {
                    is_certain = false;
                    continue;
                };
                if stripe == first && pool::has_few(locked.stripe(stripe), how) {
                    drop(locked);
                    let pooled = self.evict_pooled(how, environment, worker);
                    evicted.keys += pooled.keys;
                    evicted.bytes += pooled.bytes;
                    if pooled.keys > 0 {
                        break;
                    }
                    let Some(again) = self.keyspace.try_lock_one(stripe) else {
                        is_certain = false;
                        continue;
                    };
                    locked = again;
                }
                let most = (bytes_wanted - evicted.bytes, KEYS_PER_LOCK.min(keys_max - evicted.keys));
                let sampling = how.sampling(self, environment.caller.now_ms);
                let choose = |stripes: &mut LockedStripes<'_>, random: &mut Random| {
                    choose_of_stripe(stripes, stripe, how, &sampling, random)
                };
                let of_stripe = self.evict_from(locked, stripe, how, most, environment, worker, choose);
                evicted.keys += of_stripe.keys;
                evicted.bytes += of_stripe.bytes;
                is_certain &= of_stripe.none_left;
                if of_stripe.keys > 0 {
                    break;
                }
            }
            if evicted.keys == keys_before {
                evicted.none_left = is_certain;
                break;
            }
        }
        evicted
    }

    /// Removes keys of one stripe, which is locked, as `choose` finds them.
    #[expect(
        clippy::too_many_arguments,
        reason = "both ways of choosing share all that a removal brings about"
    )]
    fn evict_from(
        &self,
        mut locked: Locked<'_>,
        stripe: usize,
        how: &Eviction,
        (bytes_wanted, keys_max): (usize, usize),
        environment: Environment<'_>,
        worker: &mut Worker,
        mut choose: impl FnMut(&mut LockedStripes<'_>, &mut Random) -> Choice,
    ) -> Evicted {
        let clock = self.keyspace.access_clock();
        let now_ms = environment.caller.now_ms;
        let word = removal_word(how.lazy);
        let mut evicted = Evicted::default();
        let (hidden, mut hidden_left) = (self.keyspace.hidden(), HIDDEN_VICTIMS_MAX);
        let mut stripes = locked.stripes();
        let is_observed = stripes.stripe(stripe).is_observed() | environment.caller.broadcasts;
        worker.propagation.begin(&self.log);
        while evicted.bytes < bytes_wanted && evicted.keys < keys_max {
            let (database, slot) = match choose(&mut stripes, worker.random_source()) {
                Choice::Key { database, slot } => (database, slot),
                Choice::Nothing => break,
                Choice::NoneLeft => {
                    evicted.none_left = true;
                    break;
                }
            };
            let before = stripes.stripe(stripe).used_bytes();
            let Some(part) = stripes.stripe_mut(stripe).database_mut(database) else { break };
            let entry = part.entry(slot);
            if hidden.has_key(entry.key()) {
                hidden_left -= 1;
                if hidden_left == 0 {
                    break;
                }
                continue;
            }
            if matches!(how.order, EvictionOrder::Recency | EvictionOrder::Weighed) {
                clock.note_victim(now_ms.saturating_sub(clock.start_ms(entry.access())));
            }
            worker.propagation.add(database, &[word, entry.key()]);
            let is_told = is_observed || environment.policy.notifications.has(EventClass::Evicted);
            let key = is_told.then(|| entry.key().to_vec());
            part.remove(slot, &mut worker.garbage);
            worker.propagation.publish(&self.log, worker.id());
            stripes.publish_usage(stripe, database);
            evicted.keys += 1;
            self.keyspace.note_evicted(database);
            evicted.bytes += before.saturating_sub(stripes.stripe(stripe).used_bytes());
            if let Some(key) = key {
                let state = stripes.stripe(stripe);
                state.watches().inspect(|watches| watches.changed(database, &key));
                if state.queues().is_some() {
                    worker.ready.push_back((database, key.as_slice().into()));
                }
                let readers = stripes.untrack(stripe, &key);
                if readers.is_some() || environment.caller.broadcasts {
                    let (key, readers) = (key.as_slice().into(), readers.unwrap_or_default());
                    worker.notices.push(Notice::Invalidation(Invalidation::Key { key, readers }));
                }
                if environment.policy.notifications.has(EventClass::Evicted) {
                    let event = Event { class: EventClass::Evicted, name: "evicted", database, key };
                    worker.notices.push(Notice::Event(event));
                }
            }
        }
        worker.statistics.evicted_keys.add(evicted.keys as u64);
        // No client's command has removed them: a client with NOLOOP gets the invalidation, too.
        worker.tell(ClientToken::default());
        if worker.ready.is_empty() {
            drop(locked);
        } else {
            let server = Caller { client: ClientToken::default(), ..*environment.caller };
            self.serve_waiters(locked, Environment { caller: &server, ..environment }, worker);
        }
        evicted
    }

    /// Does a part of the sweep over access stamps that is under way or due, over some `entries_max` entries. Returns
    /// whether there is more of it to do. The caller holds no lock.
    pub fn sweep_stamps(&self, _inside: &Inside<'_>, now_ms: u64, entries_max: usize) -> bool {
        let clock = self.keyspace.access_clock();
        // Another worker does the sweep.
        let Ok(mut state) = clock.sweep.try_lock() else { return false };
        if state.is_none() {
            *state = clock.due_sweep(now_ms);
        }
        let Some(sweep) = &mut *state else { return false };
        let (mut entries, mut handles) = (0, Vec::new());
        while self.keyspace.stripes().contains(&sweep.stripe) {
            if entries >= entries_max {
                return true;
            }
            // A stripe that a script holds for long is left to the next slice.
            let Some(locked) = self.keyspace.lock_one_unless_long(sweep.stripe) else { return true };
            while sweep.database < self.keyspace.databases() {
                if let Some(part) = locked.stripe(sweep.stripe).database(sweep.database) {
                    let (next, seen) = part.sweep_stamps(sweep.cursor, &sweep.stamps, &mut handles);
                    entries += seen;
                    sweep.entries += seen as u64;
                    sweep.cursor = next;
                    if next != 0 {
                        break;
                    }
                }
                sweep.database += 1;
            }
            if sweep.database == self.keyspace.databases() {
                (sweep.stripe, sweep.database) = (sweep.stripe + 1, 0);
            }
        }
        clock.end_sweep(sweep);
        *state = None;
        false
    }
}

/// The best of some keys of one stripe, and of those that earlier samples have left over.
fn choose_of_stripe(
    stripes: &mut LockedStripes<'_>,
    stripe: usize,
    how: &Eviction,
    sampling: &Sampling<'_>,
    random: &mut Random,
) -> Choice {
    let drawn = random.bits();
    let may_go = |part: &Database| !part.has_no_victim(how.expiring_only);
    let Some(database) = stripes.stripe(stripe).database_by_bytes(drawn, how.database, may_go) else {
        return Choice::NoneLeft;
    };
    let part = stripes.stripe_mut(stripe).database_mut(database);
    match part.and_then(|part| part.victim(sampling, random)) {
        Some(slot) => Choice::Key { database, slot },
        None => Choice::Nothing,
    }
}

#[cfg(test)]
mod traces;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use dunlin_resp::Protocol;
    use proptest::prelude::*;

    use super::*;
    use crate::transcript::{Records, Scenario};

    /// Some hundred in each stripe: stripes are drawn, and give up more or less than their share.
    const KEYS: usize = 2000;

    fn how(order: EvictionOrder, expiring_only: bool) -> Eviction {
        Eviction { order, expiring_only, samples: 64, database: None, lazy: false }
    }

    fn ask(scenario: &mut Scenario, line: &str) {
        let reply = scenario.reply(line, Protocol::Resp2);
        assert_ne!(reply.first(), Some(&b'-'), "{line}: {}", String::from_utf8_lossy(&reply));
    }

    fn evict(scenario: &mut Scenario, how: &Eviction, keys: usize) -> Evicted {
        let inside = scenario.engine.keyspace.enter(0);
        let evicted = scenario.engine.evict(
            &inside,
            how,
            (usize::MAX, keys),
            Environment::new(&scenario.policy, &scenario.caller),
            &mut scenario.worker,
        );
        drop(inside);
        let keyspace = &scenario.engine.keyspace;
        assert_eq!(keyspace.used_bytes(), keyspace.usage(None).bytes(), "the accounting is exact");
        evicted
    }

    fn sweep(scenario: &Scenario) {
        let inside = scenario.engine.keyspace.enter(0);
        while scenario.engine.sweep_stamps(&inside, scenario.caller.now_ms, 50) {}
    }

    /// Keys of equal rank come and go; those that were there first go, too.
    #[test]
    fn eviction_spares_no_key_of_equal_rank() {
        let orders =
            [EvictionOrder::Random, EvictionOrder::Recency, EvictionOrder::Frequency, EvictionOrder::Weighed];
        for order in orders {
            let mut scenario = Scenario::new();
            scenario.engine.keyspace.access_clock().configure(order.ranking(), 0, 1);
            sweep(&scenario);
            (0..KEYS).for_each(|number| ask(&mut scenario, &format!("SET first:{number} v")));
            for number in 0..KEYS * 16 {
                ask(&mut scenario, &format!("SET k:{number} v"));
                let how = Eviction { samples: 5, ..how(order, false) };
                assert_eq!(evict(&mut scenario, &how, 1).keys, 1);
            }
            let keys = scenario.reply("KEYS first:*", Protocol::Resp2);
            assert!(
                keys == b"*0\r\n",
                "{order:?}: {}",
                String::from_utf8_lossy(&keys).lines().next().unwrap_or_default()
            );
        }
    }

    /// The numbers of the keys `k:…` that were recorded as removed.
    fn removed(records: &Records) -> Vec<usize> {
        let numbers = records.take().into_iter().filter_map(|record| {
            record.strip_prefix("DEL k:").map(|number| number.parse().expect("a number"))
        });
        numbers.collect()
    }

    /// How many of the first half went, when half of the keys were evicted.
    fn of_first_half(order: EvictionOrder, prepare: impl Fn(&mut Scenario)) -> usize {
        let (mut scenario, records) = Scenario::recorded();
        scenario.engine.keyspace.access_clock().configure(order.ranking(), 0, 1);
        sweep(&scenario);
        prepare(&mut scenario);
        records.take();
        let evicted = evict(&mut scenario, &how(order, false), KEYS / 2);
        assert_eq!((evicted.keys, evicted.none_left), (KEYS / 2, false));
        let removed = removed(&records);
        assert_eq!(removed.iter().collect::<BTreeSet<_>>().len(), KEYS / 2, "each was recorded once");
        assert_eq!(scenario.reply("DBSIZE", Protocol::Resp2), format!(":{}\r\n", KEYS / 2).as_bytes());
        removed.into_iter().filter(|number| *number < KEYS / 2).count()
    }

    #[test]
    fn eviction_takes_the_least_recently_used_first() {
        let count = of_first_half(EvictionOrder::Recency, |scenario| {
            for number in 0..KEYS {
                scenario.caller.now_ms += 10_000;
                sweep(scenario);
                ask(scenario, &format!("SET k:{number} v"));
            }
        });
        assert!(count >= KEYS / 2 * 8 / 10, "{count}");
    }

    #[test]
    fn eviction_takes_the_least_frequently_used_first() {
        let count = of_first_half(EvictionOrder::Frequency, |scenario| {
            for number in 0..KEYS {
                ask(scenario, &format!("SET k:{number} v"));
                (0..number / 100).for_each(|_| ask(scenario, &format!("GET k:{number}")));
            }
        });
        assert!(count >= KEYS / 2 * 8 / 10, "{count}");
    }

    #[test]
    fn eviction_weighs_use_at_equal_age_and_age_at_equal_use() {
        let by_use = of_first_half(EvictionOrder::Weighed, |scenario| {
            for number in 0..KEYS {
                ask(scenario, &format!("SET k:{number} v"));
                (0..number / 200).for_each(|_| ask(scenario, &format!("GET k:{number}")));
            }
        });
        assert!(by_use >= KEYS / 2 * 8 / 10, "{by_use}");
        let by_age = of_first_half(EvictionOrder::Weighed, |scenario| {
            for number in 0..KEYS {
                scenario.caller.now_ms += 10_000;
                sweep(scenario);
                ask(scenario, &format!("SET k:{number} v"));
                ask(scenario, &format!("GET k:{number}"));
            }
        });
        assert!(by_age >= KEYS / 2 * 8 / 10, "{by_age}");
    }

    #[test]
    fn eviction_takes_the_first_to_expire_first() {
        let count = of_first_half(EvictionOrder::Deadline, |scenario| {
            for number in 0..KEYS {
                ask(scenario, &format!("SET k:{number} v EX {}", 1000 + number));
            }
        });
        assert!(count >= KEYS / 2 * 8 / 10, "{count}");
    }

    #[test]
    fn chance_prefers_nobody() {
        let count = of_first_half(EvictionOrder::Random, |scenario| {
            (0..KEYS).for_each(|number| ask(scenario, &format!("SET k:{number} v")));
        });
        assert!((KEYS / 8..KEYS * 3 / 8).contains(&count), "{count}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn exactly_the_keys_that_may_go_do(
            expires in proptest::collection::vec((0..3_usize, any::<bool>()), 1..300),
            order in prop_oneof![
                Just(EvictionOrder::Recency), Just(EvictionOrder::Deadline), Just(EvictionOrder::Random),
                Just(EvictionOrder::Weighed)],
        ) {
            let mut scenario = Scenario::new();
            for (number, (database, expires)) in expires.iter().enumerate() {
                scenario.database = *database;
                let more = if *expires { " EX 1000" } else { "" };
                ask(&mut scenario, &format!("SET k:{number} {}{more}", "x".repeat(1 + number * 7 % 2000)));
            }
            let expected = expires.iter().filter(|(_, expires)| *expires).count();
            let evicted = evict(&mut scenario, &how(order, true), usize::MAX);
            prop_assert_eq!((evicted.keys, evicted.none_left), (expected, true));
            let usage = scenario.engine.keyspace.usage(None);
            prop_assert_eq!((usage.keys, usage.expiring), (expires.len() - expected, 0));
            prop_assert_eq!(scenario.worker.statistics.evicted_keys.get(), expected as u64);
        }
    }

    #[test]
    fn eviction_in_one_database_leaves_the_others_alone() {
        let mut scenario = Scenario::new();
        for number in 0..KEYS {
            scenario.database = number % 3;
            ask(&mut scenario, &format!("SET k:{number} v"));
        }
        let only = Eviction { database: Some(1), ..how(EvictionOrder::Random, false) };
        let of = |scenario: &Scenario, database| scenario.engine.keyspace.usage(Some(database));
        let others = [0, 2].map(|database| of(&scenario, database));
        let before = scenario.engine.keyspace.database_bytes(1);
        assert_eq!(before, of(&scenario, 1).bytes());
        assert_eq!(evict(&mut scenario, &only, 100).keys, 100);
        assert_eq!((of(&scenario, 1).keys, scenario.engine.keyspace.evicted(1)), ((KEYS + 1) / 3 - 100, 100));
        assert!(scenario.engine.keyspace.database_bytes(1) < before);
        let evicted = evict(&mut scenario, &only, usize::MAX);
        assert_eq!((evicted.none_left, of(&scenario, 1).keys), (true, 0));
        assert_eq!([0, 2].map(|database| of(&scenario, database)), others);
        ask(&mut scenario, "SWAPDB 1 2");
        let bytes = [1, 2].map(|database| scenario.engine.keyspace.database_bytes(database));
        assert_eq!(bytes, [others[1].bytes(), of(&scenario, 2).bytes()]);
    }

    #[test]
    fn eviction_leaves_a_locked_stripe_alone() {
        let mut scenario = Scenario::new();
        (0..KEYS).for_each(|number| ask(&mut scenario, &format!("SET k:{number} v")));
        let held = scenario.engine.keyspace.stripe_of(b"k:7");
        let keys = scenario.engine.keyspace.lock_one(held).stripe(held).usage(None).keys;
        let inside = scenario.engine.keyspace.enter(0);
        let lock = scenario.engine.keyspace.lock_one(held);
        let how = how(EvictionOrder::Random, false);
        let evicted = scenario.engine.evict(
            &inside,
            &how,
            (usize::MAX, usize::MAX),
            Environment::new(&scenario.policy, &scenario.caller),
            &mut scenario.worker,
        );
        drop((lock, inside));
        assert_eq!((evicted.keys, evicted.none_left), (KEYS - keys, false));
        assert_eq!(scenario.engine.keyspace.usage(None).keys, keys);
    }

    #[test]
    fn idle_times_survive_sweeps_and_exchanged_databases() {
        let mut scenario = Scenario::new();
        ask(&mut scenario, "SET k v");
        for step in 0..20_000_u64 {
            scenario.caller.now_ms += 1000;
            scenario.engine.keyspace.access_clock().access(scenario.caller.now_ms);
            let inside = scenario.engine.keyspace.enter(0);
            scenario.engine.sweep_stamps(&inside, scenario.caller.now_ms, 1);
            drop(inside);
            if step % 100 == 0 {
                ask(&mut scenario, &format!("SET other:{} v", step % 1000));
            }
            if step == 10_000 {
                ask(&mut scenario, "SWAPDB 0 1");
                scenario.database = 1;
            }
        }
        let reply = String::from_utf8(scenario.reply("OBJECT IDLETIME k", Protocol::Resp2)).unwrap();
        let idle: u64 = reply.trim().trim_start_matches(':').parse().unwrap();
        assert!((20_000..23_000).contains(&idle), "{idle}");
    }
}
