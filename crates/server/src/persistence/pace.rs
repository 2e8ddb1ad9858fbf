//! How fast a snapshot goes: as fast as it can while the workers have little to do, and with a small share of
//! one core while they are busy.
//!
//! It goes in slices, each under the lock of one shard: short enough that a client who needs the shard does
//! not notice. Between two of them it rests, the longer the busier the workers are; how busy is sampled at
//! the end of each.

use std::time::{Duration, Instant};

use crate::shared::Shared;

/// How long a slice holds a lock, about.
const SLICE: Duration = Duration::from_micros(50);
/// Bytes that a slice copies at least and at most.
const BUDGET_BYTES: (usize, usize) = (4 * 1024, 512 * 1024);
/// Slices between two rests: sleeping has a price of its own, and a precision.
const SLICES_PER_REST: u32 = 8;
/// The share of its time that it works while all workers are busy.
const SHARE_MIN: f64 = 0.15;
/// What the newest sample of how busy the workers are weighs against those before.
const SAMPLE_WEIGHT: f64 = 0.1;

/// The pace of one snapshot.
#[derive(Debug)]
pub(super) struct Pace {
    budget_bytes: usize,
    /// The share of the workers that were awake lately, 0 to 1.
    busy: f64,
    /// Work since the last rest.
    worked: Duration,
    slices: u32,
}

impl Pace {
    pub(super) fn new() -> Self {
        // Careful until it is known: a snapshot is often begun while there is most to do.
        Self { budget_bytes: BUDGET_BYTES.0, busy: 1.0, worked: Duration::ZERO, slices: 0 }
    }

    /// Does a slice of work, which is told how many bytes it may copy.
    pub(super) fn slice<R>(&mut self, work: impl FnOnce(usize) -> R) -> R {
        let begun = Instant::now();
        let result = work(self.budget_bytes);
        let took = begun.elapsed();
        self.worked += took;
        self.slices += 1;
        // Whoever was not let run for a while learns nothing from that: it is halved or doubled at most.
        let fitting = self.budget_bytes as f64 * SLICE.as_secs_f64() / took.as_secs_f64().max(1e-9);
        let near = fitting.clamp(self.budget_bytes as f64 / 2.0, self.budget_bytes as f64 * 2.0);
        self.budget_bytes = (near as usize).clamp(BUDGET_BYTES.0, BUDGET_BYTES.1);
        result
    }

    /// How long to rest now.
    pub(super) fn rest(&mut self, shared: &Shared) -> Duration {
        if self.slices < SLICES_PER_REST {
            return Duration::ZERO;
        }
        let awake = shared.durability.awake_workers() as f64 / shared.workers as f64;
        self.busy += (awake - self.busy) * SAMPLE_WEIGHT;
        let share = 1.0 - self.busy.min(1.0) * (1.0 - SHARE_MIN);
        let worked = std::mem::take(&mut self.worked);
        self.slices = 0;
        worked.mul_f64(1.0 / share - 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_grow_and_shrink_with_the_time_they_take() {
        let mut pace = Pace::new();
        assert_eq!(pace.slice(|bytes| bytes), BUDGET_BYTES.0);
        (0..20).for_each(|_| pace.slice(|_| ()));
        assert_eq!(pace.slice(|bytes| bytes), BUDGET_BYTES.1, "work that takes no time");
        for _ in 0..20 {
            pace.slice(|_| {
                let begun = Instant::now();
                while begun.elapsed() < 20 * SLICE {}
            });
        }
        assert_eq!(pace.slice(|bytes| bytes), BUDGET_BYTES.0);
    }
}
