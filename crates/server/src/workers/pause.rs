//! `CLIENT PAUSE`: commands of all clients are held back until a moment, or until `CLIENT UNPAUSE`.
//!
//! ```text
//! state = 0                                          nobody is held back
//! state = until_ms << 3 | shutdown << 2 | failover << 1 | all        until_ms counts from `origin`
//! ```
//!
//! A failover holds writes back until it ends, and so does a shutdown that waits for replicas; `CLIENT UNPAUSE` does not end
//! either.
//!
//! A worker looks at the state before every command; a command that has to wait stays in its
//! connection's input, and the connection is parked. The thread that pauses closes the gate once
//! after storing the state: when its reply leaves, no worker is inside a batch that has not seen
//! it.
//!
//! A pause on top of another one makes it longer or stricter, never shorter or laxer.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::admission::PauseScope;

/// The bit of what holds back everything, not only writes.
const ALL: u64 = 1 << 0;
/// The bit of a failover.
const FAILOVER: u64 = 1 << 1;
/// The bit of a shutdown that waits for replicas.
const SHUTDOWN: u64 = 1 << 2;
/// The pauses that no clock ends.
const ENDLESS: u64 = FAILOVER | SHUTDOWN;
const UNTIL_SHIFT: u32 = 3;
/// The end of a pause that the clock does not come to.
const UNTIL_MAX: u64 = u64::MAX >> UNTIL_SHIFT;

/// The pause of a server.
#[derive(Debug)]
pub(crate) struct Pause {
    origin: Instant,
    state: AtomicU64,
}

impl Pause {
    pub(crate) fn new(now: Instant) -> Self {
        Self { origin: now, state: AtomicU64::new(0) }
    }

    /// Whether a pause was begun and may be in force.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.state.load(SeqCst) != 0
    }

    /// The scope that is held back at `now`, and until when; `None` in place of a moment that the clock
    /// cannot express.
    pub(crate) fn in_force(&self, now: Instant) -> Option<(PauseScope, Option<Instant>)> {
        let state = self.state.load(SeqCst);
        if state == 0 {
            return None;
        }
        let until_ms = state >> UNTIL_SHIFT;
        let in_force = until_ms > self.milliseconds(now);
        let until = self.origin.checked_add(Duration::from_millis(until_ms));
        match (state & ENDLESS != 0, in_force) {
            (true, true) if held(state) == PauseScope::Everything => Some((PauseScope::Everything, until)),
            (true, _) => Some((PauseScope::Writes, None)),
            (false, true) => Some((held(state), until)),
            (false, false) => {
                // Another worker may have begun a new one meanwhile, which stays.
                let _ = self.state.compare_exchange(state, 0, SeqCst, SeqCst);
                None
            }
        }
    }

    /// Holds `held` back for `timeout_ms` milliseconds from `now` on, at most `i64::MAX` of them.
    pub(crate) fn begin(&self, now: Instant, timeout_ms: u64, held: PauseScope) {
        let now_ms = self.milliseconds(now);
        // Rounded up: no pause is shorter than asked for.
        let begin_ms = now.saturating_duration_since(self.origin).as_nanos().div_ceil(1_000_000) as u64;
        let until_ms = begin_ms.saturating_add(timeout_ms).min(UNTIL_MAX);
        let merged = |state: u64| {
            let in_force = state >> UNTIL_SHIFT > now_ms;
            let before = if in_force { state } else { state & ENDLESS };
            let all = if held == PauseScope::Everything { ALL } else { before & ALL };
            let until_ms = (before >> UNTIL_SHIFT).max(until_ms);
            (timeout_ms > 0 || in_force).then_some(until_ms << UNTIL_SHIFT | before & ENDLESS | all)
        };
        // Refused only if nothing changes: a pause of no time on none.
        let _ = self.state.fetch_update(SeqCst, SeqCst, merged);
    }

    /// Ends the pause that [`Self::begin`] has begun.
    pub(crate) fn end(&self) {
        self.state.fetch_and(ENDLESS, SeqCst);
    }

    /// Holds writes back while a shutdown waits for replicas.
    pub(crate) fn begin_shutdown(&self) {
        self.state.fetch_or(SHUTDOWN, SeqCst);
    }

    /// Ends what [`Self::begin_shutdown`] has begun.
    pub(crate) fn end_shutdown(&self) {
        self.state.fetch_and(!SHUTDOWN, SeqCst);
    }

    /// Holds writes back for a failover.
    pub(crate) fn begin_failover(&self) {
        self.state.fetch_or(FAILOVER, SeqCst);
    }

    /// Ends what [`Self::begin_failover`] has begun.
    pub(crate) fn end_failover(&self) {
        self.state.fetch_and(!FAILOVER, SeqCst);
    }

    fn milliseconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.origin).as_millis() as u64
    }
}

fn held(state: u64) -> PauseScope {
    if state & ALL == 0 { PauseScope::Writes } else { PauseScope::Everything }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(pause: &Pause, ms: u64) -> Instant {
        pause.origin + Duration::from_millis(ms)
    }

    #[test]
    fn pause_ends_by_itself() {
        let pause = Pause::new(Instant::now());
        assert_eq!(pause.in_force(at(&pause, 0)), None);
        pause.begin(at(&pause, 5), 10, PauseScope::Writes);
        assert_eq!(pause.in_force(at(&pause, 14)), Some((PauseScope::Writes, Some(at(&pause, 15)))));
        assert!(pause.is_set());
        assert_eq!(pause.in_force(at(&pause, 15)), None);
        assert!(!pause.is_set(), "what is over costs nothing any more");
    }

    #[test]
    fn pause_only_adds_to_an_earlier_one() {
        let pause = Pause::new(Instant::now());
        pause.begin(at(&pause, 0), 100, PauseScope::Writes);
        pause.begin(at(&pause, 10), 20, PauseScope::Everything);
        assert_eq!(pause.in_force(at(&pause, 50)), Some((PauseScope::Everything, Some(at(&pause, 100)))));
        pause.begin(at(&pause, 50), 100, PauseScope::Writes);
        assert_eq!(pause.in_force(at(&pause, 149)), Some((PauseScope::Everything, Some(at(&pause, 150)))));
        pause.end();
        assert_eq!(pause.in_force(at(&pause, 51)), None);
    }

    #[test]
    fn pause_that_is_over_leaves_nothing() {
        let pause = Pause::new(Instant::now());
        pause.begin(at(&pause, 0), 10, PauseScope::Everything);
        pause.begin(at(&pause, 20), 10, PauseScope::Writes);
        assert_eq!(pause.in_force(at(&pause, 20)), Some((PauseScope::Writes, Some(at(&pause, 30)))));
    }

    #[test]
    fn pause_is_never_shorter_than_asked_for() {
        let pause = Pause::new(Instant::now());
        let begin = pause.origin + Duration::from_micros(1);
        pause.begin(begin, 10, PauseScope::Writes);
        assert!(pause.in_force(begin + Duration::from_micros(9_999)).is_some());
    }

    #[test]
    fn failover_holds_writes_until_it_ends() {
        let pause = Pause::new(Instant::now());
        pause.begin_failover();
        let writes = Some((PauseScope::Writes, None));
        assert_eq!(pause.in_force(at(&pause, 1 << 40)), writes);
        pause.begin(at(&pause, 0), 10, PauseScope::Everything);
        assert_eq!(pause.in_force(at(&pause, 5)), Some((PauseScope::Everything, Some(at(&pause, 10)))));
        assert_eq!(pause.in_force(at(&pause, 10)), writes);
        pause.end();
        assert_eq!(pause.in_force(at(&pause, 5)), writes, "CLIENT UNPAUSE is about CLIENT PAUSE");
        pause.begin(at(&pause, 20), 10, PauseScope::Writes);
        pause.end_failover();
        assert_eq!(pause.in_force(at(&pause, 25)), Some((PauseScope::Writes, Some(at(&pause, 30)))));
        assert_eq!(pause.in_force(at(&pause, 30)), None);
        assert!(!pause.is_set());
    }

    #[test]
    fn shutdown_holds_writes_beside_a_failover() {
        let pause = Pause::new(Instant::now());
        let writes = Some((PauseScope::Writes, None));
        pause.begin_failover();
        pause.begin_shutdown();
        pause.end_failover();
        pause.begin(at(&pause, 0), 10, PauseScope::Writes);
        pause.end();
        assert_eq!(pause.in_force(at(&pause, 1 << 40)), writes);
        pause.end_shutdown();
        assert!(!pause.is_set());
    }

    #[test]
    fn pause_of_no_time_is_none_and_the_longest_does_not_overflow() {
        let pause = Pause::new(Instant::now());
        pause.begin(at(&pause, 3), 0, PauseScope::Everything);
        assert!(!pause.is_set());
        pause.begin(at(&pause, 3), i64::MAX as u64, PauseScope::Everything);
        assert!(pause.in_force(at(&pause, 1 << 40)).is_some());
    }
}
