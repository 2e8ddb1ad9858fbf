//! How long requests take in each stage of a worker, measured in one tick of some.
//!
//! ```text
//! tick ──▶ turn of A ──▶ turn of B ──▶ … ──▶ writes
//!  ├─ queue ─┤├─ run ─┤                       ├┤ write
//!  ├─────── queue ─────┤├─ run ─┤
//! ```
//!
//! A tick that is not measured pays a countdown, and a comparison for each turn. Decision 0056 has the figures.

use std::time::Instant;

use dunlin_structures::Log2Histogram;

/// Ticks of which one is measured: a prime, so that nothing that comes in rounds is always or never met.
const TICKS_PER_SAMPLE: u32 = 61;

/// Times of the stages of requests, in nanoseconds, as one worker has measured them.
#[derive(Debug, Default)]
pub struct StageTimes {
    /// From the poller's answer to the turn of the connection: others are served meanwhile.
    pub queue: Log2Histogram,
    /// Requests of one connection's turn, decoded and executed together, with their waits for locks.
    pub run: Log2Histogram,
    /// A write to a socket.
    pub write: Log2Histogram,
}

/// Decides which ticks are measured.
#[derive(Debug)]
pub(crate) struct StageClock {
    ticks_left: u32,
    is_measured: bool,
}

impl Default for StageClock {
    fn default() -> Self {
        Self { ticks_left: TICKS_PER_SAMPLE, is_measured: false }
    }
}

impl StageClock {
    #[inline]
    pub(crate) fn begin_tick(&mut self) {
        self.ticks_left -= 1;
        self.is_measured = self.ticks_left == 0;
        if self.is_measured {
            self.ticks_left = TICKS_PER_SAMPLE;
        }
    }

    /// The time, if this tick is measured.
    #[inline]
    pub(crate) fn now(&self) -> Option<Instant> {
        self.is_measured.then(Instant::now)
    }

    /// Ends the measurements of a tick, as where a turn is interrupted for others.
    pub(crate) fn give_up(&mut self) {
        self.is_measured = false;
    }
}

/// Records the time from `since` to `until`.
#[cold]
pub(crate) fn record(histogram: &Log2Histogram, since: Instant, until: Instant) {
    histogram.record(until.saturating_duration_since(since).as_nanos() as u64);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn stage_clock_measures_one_tick_of_many() {
        let mut clock = StageClock::default();
        let measured = (0..10 * TICKS_PER_SAMPLE).filter(|_| {
            clock.begin_tick();
            clock.now().is_some()
        });
        assert_eq!(measured.count(), 10);
        let times = StageTimes::default();
        let now = Instant::now();
        record(&times.run, now, now);
        record(&times.run, now + Duration::from_nanos(1000), now);
        assert_eq!((times.run.counts().count(), times.run.counts().sum), (2, 0));
    }
}
