//! The victim where stripes hold few keys: the best of several stripes.
//!
//! A stripe with ten keys has a best one, which may be worth more than all keys of the next stripe. Few keys are spread
//! unevenly, too: some stripes run out of idle keys while others have many. So a worker keeps candidates of
//! several stripes, as Redis keeps a pool of one table's:
//!
//! ```text
//! draw some stripes by memory ─▶ for each: try its lock ─▶ sample ─▶ pool of 16, by rank
//!                                 the best of the pool ─▶ try its stripe's lock ─▶ still there, still as old? ─▶ remove
//! ```
//!
//! A worker holds one lock at a time, and waits for none. Stripes with many keys never get here: their own samples are as
//! good, and cost one lock.

use crate::{
    context::{Environment, Worker},
    eviction::{Choice, Evicted, Eviction, EvictionOrder},
    execute::Engine,
    keyspace::{Candidates, Database, LockedStripes, Part, Sampling, StripeState},
    random::Random,
};

/// Keys of a stripe that are few.
const FEW_KEYS: usize = 256;
/// Stripes that are sampled for one key that goes.
const DRAWS: usize = 4;

/// A worker's candidates, and what they were sampled for.
#[derive(Debug, Default)]
pub(crate) struct VictimPool(Option<Pool>);

#[derive(Debug)]
struct Pool {
    order: EvictionOrder,
    expiring_only: bool,
    database: Option<usize>,
    candidates: Candidates,
}

impl VictimPool {
    /// The candidates of this way of evicting.
    fn take(&mut self, how: &Eviction) -> Pool {
        let Eviction { order, expiring_only, database, .. } = *how;
        let is_same =
            |pool: &Pool| (pool.order, pool.expiring_only, pool.database) == (order, expiring_only, database);
        let candidates = || Candidates::of_parts(order);
        let known = self.0.take().filter(is_same);
        known.unwrap_or_else(|| Pool { order, expiring_only, database, candidates: candidates() })
    }
}

/// Whether few keys of a stripe may go.
pub(super) fn has_few(stripe: &StripeState, how: &Eviction) -> bool {
    let mut keys = 0;
    stripe.parts(how.database).all(|(_, part)| {
        keys += part.victims(how.expiring_only);
        keys < FEW_KEYS
    })
}

impl Engine {
    /// Removes the best of some keys of several stripes; none where all of those are locked or have none. The caller holds
    /// no lock.
    pub(super) fn evict_pooled(
        &self,
        how: &Eviction,
        environment: Environment<'_>,
        worker: &mut Worker,
    ) -> Evicted {
        let sampling = how.sampling(self, environment.caller.now_ms);
        let mut pool = worker.victims.take(how);
        let candidates = &mut pool.candidates;
        self.sample_stripes(how, &sampling, worker.random_source(), candidates);
        let mut evicted = Evicted::default();
        while let Some(best) = candidates.pop() {
            let Part { stripe, database } = best.part;
            let Some(locked) = self.keyspace.try_lock_one(stripe) else { continue };
            let choose = |stripes: &mut LockedStripes<'_>, _: &mut Random| {
                let part = stripes.stripe_mut(stripe).database_mut(database);
                match part.and_then(|part| part.victim_of_parts(&best, candidates, &sampling)) {
                    Some(slot) => Choice::Key { database, slot },
                    None => Choice::Nothing,
                }
            };
            evicted = self.evict_from(locked, stripe, how, (usize::MAX, 1), environment, worker, choose);
            if evicted.keys > 0 {
                break;
            }
        }
        worker.victims.0 = Some(pool);
        evicted
    }

    /// Adds the best of some entries of several stripes to the candidates.
    fn sample_stripes(
        &self,
        how: &Eviction,
        sampling: &Sampling<'_>,
        random: &mut Random,
        candidates: &mut Candidates,
    ) {
        let draws = sampling.samples.clamp(1, DRAWS);
        let mut drawn = [0; DRAWS + 1];
        let mut count = 0;
        self.keyspace.stripes_by_bytes(how.database, draws, random.bits(), |stripe| {
            if let Some(place) = drawn.get_mut(count) {
                *place = stripe;
                count += 1;
            }
        });
        // Drawn stripes come in order, and of equal ranks the first are kept: each is to be the first as often.
        let first = random.below(count);
        let mut left = sampling.samples;
        candidates.begin_sample();
        for nth in 0..count {
            let stripe = drawn[(first + nth) % count];
            let Some(locked) = self.keyspace.try_lock_one(stripe) else { continue };
            let may_go = |part: &Database| !part.has_no_victim(how.expiring_only);
            let state = locked.stripe(stripe);
            let database = state.database_by_bytes(random.bits(), how.database, may_go);
            let Some((database, part)) = database.and_then(|it| Some((it, state.database(it)?))) else {
                continue;
            };
            let share = left.div_ceil(count - nth);
            left -= share;
            let sampling = Sampling { samples: share, ..*sampling };
            part.sample_evenly(&sampling, random, Part { stripe, database }, candidates);
        }
        candidates.end_sample(sampling);
    }
}

#[cfg(test)]
mod tests {
    use dunlin_resp::Protocol;

    use super::*;
    use crate::transcript::Scenario;

    /// Keys that were evicted although they are of the better half, in percent, of rounds in which half of `keys` are.
    fn wrong_percent(order: EvictionOrder, keys: usize, samples: usize) -> usize {
        let (mut wrong, mut evicted) = (0, 0);
        for round in 0..8 {
            let (mut scenario, records) = Scenario::recorded();
            scenario.engine.keyspace.access_clock().configure(order.ranking(), 0, 1);
            let sweep = |scenario: &Scenario| {
                let inside = scenario.engine.keyspace.enter(0);
                while scenario.engine.sweep_stamps(&inside, scenario.caller.now_ms, 50) {}
            };
            for number in 0..keys {
                if number % (keys / 20) == 0 {
                    scenario.caller.now_ms += 1_000_000;
                    sweep(&scenario);
                }
                let (name, ttl_s) = (number * 100 + round, 1000 * keys + number * 1000);
                let line = format!("SET k:{name} {} EX {ttl_s}", "x".repeat(1000));
                assert_eq!(scenario.reply(&line, Protocol::Resp2), b"+OK\r\n");
                let uses = if order == EvictionOrder::Recency { 0 } else { number * 8 / keys };
                (0..uses).for_each(|_| _ = scenario.reply(&format!("GET k:{name}"), Protocol::Resp2));
            }
            records.take();
            let how = Eviction { order, expiring_only: false, samples, database: None, lazy: false };
            let inside = scenario.engine.keyspace.enter(0);
            let environment = Environment::new(&scenario.policy, &scenario.caller);
            scenario.engine.evict(&inside, &how, (usize::MAX, keys / 2), environment, &mut scenario.worker);
            drop(inside);
            for record in records.take() {
                let Some(name) = record.strip_prefix("DEL k:") else { continue };
                let number = name.parse::<usize>().unwrap() / 100;
                wrong += usize::from(number >= keys / 2);
                evicted += 1;
            }
        }
        assert_eq!(evicted, 8 * (keys / 2));
        wrong * 100 / evicted
    }

    #[test]
    fn victim_pool_compares_few_keys_across_stripes() {
        for (order, keys, samples, percent_max) in [
            (EvictionOrder::Recency, 200, 10, 6),
            (EvictionOrder::Recency, 200, 5, 12),
            (EvictionOrder::Deadline, 1000, 10, 9),
            (EvictionOrder::Deadline, 1000, 30, 3),
            (EvictionOrder::Weighed, 200, 10, 12),
        ] {
            let percent = wrong_percent(order, keys, samples);
            assert!(percent <= percent_max, "{order:?}, {keys} keys, {samples} samples: {percent}% wrong");
        }
    }

    #[test]
    fn victim_pool_has_separate_candidates_for_each_policy() {
        let mut pool = VictimPool::default();
        let how =
            |order, database| Eviction { order, expiring_only: false, samples: 5, database, lazy: false };
        let first = pool.take(&how(EvictionOrder::Recency, None));
        pool.0 = Some(first);
        assert_eq!(pool.take(&how(EvictionOrder::Deadline, None)).order, EvictionOrder::Deadline);
        let first = pool.take(&how(EvictionOrder::Recency, Some(3)));
        assert_eq!(first.database, Some(3));
    }
}
