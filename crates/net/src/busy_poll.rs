//! How long a worker looks for requests before it sleeps.
//!
//! ```text
//! tick ─▶ give way ─ look ─ give way ─ look ─ … ─▶ sleep
//!                     └── something has come: tick
//! ```
//!
//! A worker that sleeps at once is woken for each request. If a client shares the worker's processor, giving way lets
//! it send what it is about to send, and one tick serves all of that. If no thread does, a look or two cost less than
//! being put to sleep and woken, above all on a virtual machine, whose processors are stopped when they are idle.
//!
//! docs/decisions/0020 has what this was measured to gain.

use std::time::{Duration, Instant};

/// Looks before a sleep, at least and at most. A look takes most of a microsecond on an idle core.
const LOOKS: (u32, u32) = (1, 16);
/// A shorter sleep was not worth it: more looks would have spared it.
const SLEEP_MIN: Duration = Duration::from_micros(15);
/// A worker that gave way for longer has met a thread that computes; a sleeper that is woken is let run sooner.
const YIELD_MAX: Duration = Duration::from_millis(3);
/// After such a wait, a worker does not give way for this many times as long.
const BACKOFF: u32 = 25;

/// The busy_poll of one worker.
#[derive(Debug)]
pub(crate) struct BusyPoll {
    looks: u32,
    /// The worker does not give way until then.
    resumes_at: Option<Instant>,
    last: Last,
}

/// The outcome of the last wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    /// There was something to do.
    Nothing,
    /// Something came while it looked, since then.
    Looked(Instant),
    /// The worker slept, since then.
    Slept(Instant),
}

impl BusyPoll {
    pub(crate) fn new() -> Self {
        Self { looks: LOOKS.0, resumes_at: None, last: Last::Nothing }
    }

    /// How often to give way and look now.
    pub(crate) fn looks(&self, now: Instant) -> u32 {
        if self.resumes_at.is_some_and(|at| now < at) { 0 } else { self.looks }
    }

    /// Something came while it looked, which began then.
    pub(crate) fn has_looked(&mut self, begun: Instant) {
        self.last = Last::Looked(begun);
    }

    /// The worker sleeps, from then on.
    pub(crate) fn sleeps(&mut self, begun: Instant) {
        self.last = Last::Slept(begun);
    }

    /// Learns from the wait that has ended now.
    #[inline]
    pub(crate) fn learn(&mut self, now: Instant) {
        match std::mem::replace(&mut self.last, Last::Nothing) {
            Last::Nothing => {}
            Last::Looked(begun) => {
                let took = now - begun;
                if took > YIELD_MAX {
                    self.resumes_at = Some(now + took * BACKOFF);
                }
            }
            Last::Slept(begun) => {
                let looks = if now - begun < SLEEP_MIN { self.looks * 2 } else { self.looks / 2 };
                self.looks = looks.clamp(LOOKS.0, LOOKS.1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn busy_poll_looks_longer_after_a_quick_wake() {
        let (mut busy_poll, mut now) = (BusyPoll::new(), Instant::now());
        let mut after_sleep = |time: Duration| {
            busy_poll.sleeps(now);
            now += time;
            busy_poll.learn(now);
            busy_poll.looks(now)
        };
        assert_eq!([10; 5].map(|us| after_sleep(us * US)), [2, 4, 8, 16, 16]);
        assert_eq!([20, 10_000, 20, 20, 20].map(|us| after_sleep(us * US)), [8, 4, 2, 1, 1]);
    }

    #[test]
    fn busy_poll_after_being_kept_away_does_not_yield_for_a_while() {
        let (mut busy_poll, begun) = (BusyPoll::new(), Instant::now());
        busy_poll.has_looked(begun);
        busy_poll.learn(begun + 3000 * US);
        assert_eq!(busy_poll.looks(begun + 3000 * US), 1, "not for so long");
        busy_poll.has_looked(begun);
        let now = begun + 4000 * US;
        busy_poll.learn(now);
        assert_eq!([0, 99_999, 100_000].map(|us| busy_poll.looks(now + us * US)), [0, 0, 1]);
        busy_poll.learn(now + 500_000 * US);
        assert_eq!(busy_poll.looks(now + 500_000 * US), 1, "a wait is learnt from once");
    }
}
