//! Handshakes of TLS that a worker has under way: bounded in number and in the time that they take from others.
//!
//! A handshake costs a signature, a thousand times what a request does. So a worker takes a few steps of handshakes a
//! tick and serves all other clients in between. The worker keeps a limited number of handshakes that do not go on;
//! each further one that begins ends the oldest. A client that opens connections and says nothing displaces others like
//! it: a handshake that goes on is over after two round trips.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Steps of handshakes in one tick: some milliseconds.
const STEPS_PER_TICK: u32 = 8;
/// Handshakes that are kept if few clients are allowed.
const KEPT_MIN: usize = 64;

/// Lines of the log about failed handshakes in [`LOG_WINDOW`]: strangers must not fill a disk.
const LOGGED_MAX: u32 = 20;
const LOG_WINDOW: Duration = Duration::from_secs(10);

/// The budget of lines about failed handshakes.
#[derive(Debug, Default)]
struct LogBudget {
    begun: Option<Instant>,
    logged: u32,
    unlogged: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    /// Slots and clients in the order in which they have begun; those that are over are dropped when they come up.
    begun: VecDeque<(u32, u64)>,
    under_way: usize,
    /// In this tick.
    steps: u32,
    log: LogBudget,
}

impl Handshakes {
    pub(crate) fn begin_tick(&mut self) {
        self.steps = 0;
    }

    /// Whether another step may be made in this tick.
    #[inline]
    pub(crate) fn may_step(&self) -> bool {
        self.steps < STEPS_PER_TICK
    }

    /// Notes that a step was made.
    pub(crate) fn note_step(&mut self) {
        self.steps += 1;
    }

    /// Notes a handshake that begins.
    pub(crate) fn begin(&mut self, slot: u32, id: u64) {
        self.begun.push_back((slot, id));
        self.under_way += 1;
    }

    /// Notes that a handshake is over, or that its connection is.
    pub(crate) fn note_end(&mut self) {
        self.under_way -= 1;
        if self.under_way == 0 {
            self.begun = VecDeque::new();
        }
    }

    /// Whether a failure may be logged, and how many were not since the last that was.
    pub(crate) fn may_log(&mut self, now: Instant) -> Option<u32> {
        let LogBudget { begun, logged, unlogged } = &mut self.log;
        if begun.is_none_or(|begun| now.saturating_duration_since(begun) >= LOG_WINDOW) {
            (*begun, *logged) = (Some(now), 0);
        }
        if *logged == LOGGED_MAX {
            *unlogged += 1;
            return None;
        }
        *logged += 1;
        Some(std::mem::take(unlogged))
    }

    /// The oldest handshake that may still be under way, if there are more than a worker's share of a quarter of all
    /// clients.
    pub(crate) fn excess(&mut self, clients_max: usize, workers: usize) -> Option<(u32, u64)> {
        let kept_max = (clients_max / 4 / workers).max(KEPT_MIN);
        // Handshakes that are over may still stand in the list.
        let is_long = self.begun.len() > 4 * kept_max;
        (self.under_way > kept_max || is_long).then(|| self.begun.pop_front()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_handshakes_are_logged_within_a_budget() {
        let (mut handshakes, start) = (Handshakes::default(), Instant::now());
        assert!((0..LOGGED_MAX).all(|_| handshakes.may_log(start) == Some(0)));
        assert!((0..5).all(|_| handshakes.may_log(start).is_none()));
        assert_eq!(handshakes.may_log(start + LOG_WINDOW), Some(5));
        assert_eq!(handshakes.may_log(start + LOG_WINDOW), Some(0));
    }

    #[test]
    fn handshakes_that_are_oldest_make_room() {
        let mut handshakes = Handshakes::default();
        for id in 0..100 {
            handshakes.begin(id as u32, id);
        }
        assert_eq!(handshakes.excess(400, 1), None, "a quarter of 400");
        handshakes.begin(100, 100);
        assert_eq!(handshakes.excess(400, 1), Some((0, 0)));
        assert_eq!(handshakes.excess(400, 1), Some((1, 1)), "until it is noted that one is over");
        handshakes.note_end();
        assert_eq!(handshakes.excess(400, 1), None);
        assert_eq!(handshakes.excess(400, 4), Some((2, 2)), "a worker's share");
        (0..36).for_each(|_| handshakes.note_end());
        assert_eq!(handshakes.excess(1, 4), None, "64 at least");
    }
}
