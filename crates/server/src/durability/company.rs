//! How long a sync waits for company.
//!
//! Clients that were released come back with their next writes a moment later. Where a sync takes longer than
//! that, two groups would take turns, each waiting for the other's sync: half of the clients share one. So the
//! next sync waits until as much has come as was under way, or half of what a sync takes has passed.
//!
//! ```text
//!            │◀─ sync ─▶│ released: a
//!  pending   │    b      │────────── wait ───────▶ a + b ─▶ sync
//! ```
//!
//! A single client is alone: b is nothing, so what it writes next is complete at once.

use std::time::{Duration, Instant};

/// The longest wait: on a disk that slow, one more group does not count.
const PATIENCE_MAX: Duration = Duration::from_millis(2);
/// Shorter sleeps are not worth being woken for.
const STEP_MIN: Duration = Duration::from_micros(30);

/// What is known of the last syncs.
#[derive(Debug, Default)]
pub(super) struct Company {
    /// Bytes that were under way when the last sync ended: those that it released, and those that had come.
    expected_bytes: u64,
    /// What a sync takes, smoothed.
    sync_time: Duration,
    /// When the wait for the next sync began.
    since: Option<Instant>,
}

impl Company {
    /// A sync that took `time` has released so many bytes; others had come meanwhile.
    pub(super) fn note(&mut self, time: Duration, released_bytes: u64, pending_bytes: u64) {
        self.sync_time = (self.sync_time * 7 + time) / 8;
        self.expected_bytes = released_bytes + pending_bytes;
        self.since = None;
    }

    /// How long to sleep before looking again; `None` when it is time for the sync.
    pub(super) fn wait(&mut self, pending_bytes: u64, now: Instant) -> Option<Duration> {
        if pending_bytes == 0 || pending_bytes >= self.expected_bytes {
            return None;
        }
        let patience = (self.sync_time / 2).min(PATIENCE_MAX);
        let waited = now.duration_since(*self.since.get_or_insert(now));
        let left = patience.checked_sub(waited).filter(|left| *left >= STEP_MIN)?;
        Some((patience / 8).clamp(STEP_MIN, left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_millis(1);

    fn after(released_bytes: u64, pending_bytes: u64) -> Company {
        let mut company = Company { sync_time: SYNC, ..Company::default() };
        company.note(SYNC, released_bytes, pending_bytes);
        company
    }

    #[test]
    fn who_is_alone_does_not_wait() {
        let now = Instant::now();
        assert_eq!(Company::default().wait(10, now), None, "nothing is known yet");
        assert_eq!(after(100, 0).wait(100, now), None);
        assert_eq!(after(100, 0).wait(0, now), None, "there is nothing to sync");
    }

    #[test]
    fn groups_that_took_turns_become_one() {
        let mut company = after(100, 100);
        let begun = Instant::now();
        let step = company.wait(100, begun).unwrap();
        assert_eq!(step, SYNC / 16);
        assert!(company.wait(150, begun + step).is_some());
        assert_eq!(company.wait(200, begun + step * 2), None, "all are there");
    }

    #[test]
    fn the_wait_ends_though_nobody_comes() {
        let mut company = after(100, 100);
        let begun = Instant::now();
        let mut now = begun;
        while let Some(step) = company.wait(100, now) {
            now += step;
        }
        assert!(now - begun <= SYNC / 2);
        company.note(SYNC, 100, 0);
        assert_eq!(company.wait(100, now), None, "and nobody is expected then");
    }
}
