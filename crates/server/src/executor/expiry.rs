//! Background expiry: each worker goes round its share of the stripes in slices.
//!
//! The tables' deadline hints show what is due, so a round with nothing due costs a lock and
//! a comparison a stripe. With much due, slices alternate with the worker's connections: a slice is
//! bounded in time, and the next one comes after one more poll.

use std::time::{Duration, Instant};

use dunlin_engine::{Environment, Worker};
use dunlin_net::Now;

use crate::{config::Config, shared::Shared};

/// How long a slice may take at `active-expire-effort 1`; each further step adds as much.
const SLICE_PER_EFFORT: Duration = Duration::from_micros(200);
/// Buckets that are looked at between two looks at the clock, under one hold of a stripe's lock:
/// about 20 µs.
const BUCKETS_PER_STEP: usize = 16;
/// Keys that are removed between two looks at the clock, on a replica whose clients have written them.
const OWN_KEYS_PER_STEP: usize = 64;

/// A worker's progress round its stripes.
#[derive(Debug)]
pub(crate) struct ExpiryCycle {
    /// The worker's first stripe; its others follow at distances of `workers`.
    first: usize,
    workers: usize,
    /// The stripe of the next step.
    stripe: usize,
    /// When the present round is over, the next may begin.
    next_round: Option<Instant>,
}

impl ExpiryCycle {
    pub(crate) fn new(worker: usize, workers: usize) -> Self {
        Self { first: worker, workers, stripe: worker, next_round: None }
    }

    /// Runs a slice. Returns how long the worker may wait before the next. During `CLIENT PAUSE`
    /// nothing changes by itself either.
    pub(crate) fn run(
        &mut self,
        shared: &Shared,
        worker: &mut Worker,
        environment: Environment<'_>,
        config: &Config,
        now: Now,
    ) -> Duration {
        let round = Duration::from_secs(1) / config.hz.max(1);
        let due = *self.next_round.get_or_insert(now.instant);
        if now.instant < due {
            return due - now.instant;
        }
        let engine = &shared.engine;
        let slice = SLICE_PER_EFFORT * config.active_expire_effort;
        let stripes = engine.keyspace.stripes();
        let started = Instant::now();
        // If a script runs for long, this round does not wait for it.
        let inside = engine.keyspace.enter_unless_long(worker.id());
        if inside.is_none() || engine.keyspace.is_held_for_long() {
            return round;
        }
        // Inside the gate, as `CLIENT PAUSE` waits for all threads that are there.
        if shared.pause.in_force(now.instant).is_some()
            || !shared.durability.may_expire()
            || shared.loading.is_active()
        {
            return round;
        }
        if shared.replication.is_replica() {
            // The stream says which keys of the primary have expired. A single worker removes those that clients have
            // written here.
            while self.first == 0 && !engine.expire_own(environment, OWN_KEYS_PER_STEP, worker) {
                if started.elapsed() >= slice {
                    return Duration::ZERO;
                }
            }
            if self.first == 0 {
                engine.verify_own(OWN_KEYS_PER_STEP);
            }
            self.next_round = Some(now.instant + round);
            return round;
        }
        while stripes.contains(&self.stripe) {
            if engine.expire(self.stripe, environment, BUCKETS_PER_STEP, worker) {
                self.stripe += self.workers;
            }
            if started.elapsed() >= slice {
                return Duration::ZERO;
            }
        }
        self.stripe = self.first;
        self.next_round = Some(now.instant + round);
        round
    }
}
