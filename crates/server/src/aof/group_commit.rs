//! How long a sync waits for group_commit.
//!
//! Clients that were released come back with their next writes a moment later. If a sync takes longer than
//! that, two groups would take turns, each waiting for the other's sync: half of the clients share one. So the
//! next sync waits until as many bytes have come as were under way, or half of a sync's duration has passed.
//!
//! ```text
//!            │◀─ sync ─▶│ released: a
//!  pending   │    b      │────────── wait ───────▶ a + b ─▶ sync
//! ```
//!
//! A single client is alone: b is nothing, so its next write is complete at once.
//!
//! If the disk is quick, two groups that take turns are best: one is served while the other's sync is under way. Take a
//! sync of `s`, and all clients back within `r`. Together they get a sync each `s + r`, in turns half of them each
//! `max(s, r / 2)`: the wait pays if `r < s`. The thread finds this out by trying: after a wait without gain there is
//! none for twice as many syncs as after the one before, 64 at most.

use std::time::{Duration, Instant};

/// The longest wait: on a disk that slow, one more group does not count.
const WAIT_MAX: Duration = Duration::from_millis(2);
/// Syncs without a wait after many without gain, as a power of two.
const SETBACKS_MAX: u32 = 6;
/// Shorter sleeps are not worth being woken for.
const STEP_MIN: Duration = Duration::from_micros(30);

/// Measurements of the last syncs.
#[derive(Debug, Default)]
pub(super) struct GroupCommit {
    /// Bytes that were under way when the last sync ended: those that it released, and those that had come.
    expected_bytes: u64,
    /// The duration of a sync, smoothed.
    sync_time: Duration,
    /// When the wait for the next sync began.
    since: Option<Instant>,
    /// Waits without gain, one after the other.
    setbacks: u32,
    /// Syncs before the next wait.
    skips: u32,
}

impl GroupCommit {
    /// Learns from a sync that took `time` and has released `released_bytes`, while `pending_bytes` of others had come.
    pub(super) fn note(&mut self, time: Duration, released_bytes: u64, pending_bytes: u64) {
        self.sync_time = (self.sync_time * 7 + time) / 8;
        self.skips = self.skips.saturating_sub(1);
        if self.since.is_some() {
            let in_vain = released_bytes < self.expected_bytes;
            self.setbacks = if in_vain { (self.setbacks + 1).min(SETBACKS_MAX) } else { 0 };
            self.skips = if in_vain { 1 << self.setbacks } else { 0 };
        }
        self.expected_bytes = released_bytes + pending_bytes;
        self.since = None;
    }

    /// How long to sleep before looking again; `None` when it is time for the sync.
    pub(super) fn wait(&mut self, pending_bytes: u64, now: Instant) -> Option<Duration> {
        if self.skips > 0 || pending_bytes == 0 || pending_bytes >= self.expected_bytes {
            return None;
        }
        let wait_limit = (self.sync_time / 2).min(WAIT_MAX);
        let waited = now.duration_since(*self.since.get_or_insert(now));
        let left = wait_limit.checked_sub(waited).filter(|left| *left >= STEP_MIN)?;
        Some((wait_limit / 8).clamp(STEP_MIN, left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYNC: Duration = Duration::from_millis(1);

    fn after(released_bytes: u64, pending_bytes: u64) -> GroupCommit {
        let mut group_commit = GroupCommit { sync_time: SYNC, ..GroupCommit::default() };
        group_commit.note(SYNC, released_bytes, pending_bytes);
        group_commit
    }

    #[test]
    fn group_commit_of_a_lone_client_does_not_wait() {
        let now = Instant::now();
        assert_eq!(GroupCommit::default().wait(10, now), None, "nothing is known yet");
        assert_eq!(after(100, 0).wait(100, now), None);
        assert_eq!(after(100, 0).wait(0, now), None, "there is nothing to sync");
    }

    #[test]
    fn groups_that_took_turns_become_one() {
        let mut group_commit = after(100, 100);
        let begun = Instant::now();
        let step = group_commit.wait(100, begun).unwrap();
        assert_eq!(step, SYNC / 16);
        assert!(group_commit.wait(150, begun + step).is_some());
        assert_eq!(group_commit.wait(200, begun + step * 2), None, "all are there");
    }

    #[test]
    fn group_commit_stops_waiting_if_no_client_comes() {
        let mut group_commit = after(100, 100);
        let begun = Instant::now();
        let mut now = begun;
        while let Some(step) = group_commit.wait(100, now) {
            now += step;
        }
        assert!(now - begun <= SYNC / 2);
        group_commit.note(SYNC, 100, 0);
        assert_eq!(group_commit.wait(100, now), None, "and nobody is expected then");
    }

    #[test]
    fn group_commit_waits_less_often_for_late_clients() {
        let mut group_commit = after(100, 100);
        let now = Instant::now();
        // How many syncs went by before the next wait, half of all clients being back each time.
        let go_on = |group_commit: &mut GroupCommit| {
            let is_waiting = |group_commit: &mut GroupCommit| group_commit.wait(100, now).is_some();
            (0..1000)
                .take_while(|_| {
                    !is_waiting(group_commit) && {
                        group_commit.note(SYNC, 100, 100);
                        true
                    }
                })
                .count()
        };
        let mut skipped = Vec::new();
        for _ in 0..8 {
            skipped.push(go_on(&mut group_commit));
            group_commit.note(SYNC, 100, 100);
        }
        assert_eq!(skipped, [0, 2, 4, 8, 16, 32, 64, 64]);
        go_on(&mut group_commit);
        group_commit.note(SYNC, 200, 0);
        group_commit.note(SYNC, 100, 100);
        assert_eq!(go_on(&mut group_commit), 0, "all came: the next wait is at once");
    }
}
