//! A planned failover, at the primary that hands over.
//!
//! ```text
//! None ── begin ──▶ WaitingForSync ── a replica has all, or TIMEOUT with FORCE ──▶ InProgress ── accepted ──▶ None
//!   ▲                      │ ABORT, TIMEOUT                                            │ ABORT, refused
//!   └──────────────────────┘◀─────────────────────────── primary again ────────────────┘
//! ```
//!
//! Writes are paused from the beginning to the end. While it is in progress the server is a replica that asks the target with
//! `PSYNC id offset FAILOVER`, which promotes it.
//!
//! Invariant: a target is chosen only while it has acknowledged all of the stream, unless the order says FORCE.

/// The options of FAILOVER.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FailoverOptions {
    /// TO host port; any replica without.
    pub target: Option<(String, u16)>,
    /// TIMEOUT, in milliseconds; without, the wait has no end.
    pub timeout_ms: Option<u64>,
    /// FORCE: the target takes over when the time is over though it lacks something.
    pub force: bool,
}

/// The duty of the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailoverStep {
    /// Nothing.
    Wait,
    /// The server is to follow this replica, and to ask it to take over.
    HandOver {
        /// Its address.
        target: (String, u16),
    },
    /// The failover is over, and nothing has changed.
    GiveUp,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum State {
    #[default]
    None,
    WaitingForSync {
        options: FailoverOptions,
        deadline_ms: Option<u64>,
    },
    InProgress,
}

/// The machine.
#[derive(Debug, Default)]
pub struct Failover(State);

impl Failover {
    /// Returns the name that INFO has for the state.
    pub fn name(&self) -> &'static str {
        match self.0 {
            State::None => "no-failover",
            State::WaitingForSync { .. } => "waiting-for-sync",
            State::InProgress => "failover-in-progress",
        }
    }

    /// Whether there is one.
    pub fn is_active(&self) -> bool {
        self.0 != State::None
    }

    /// Whether a replica is awaited.
    pub fn is_waiting(&self) -> bool {
        matches!(self.0, State::WaitingForSync { .. })
    }

    /// Whether the target has been asked.
    pub fn is_in_progress(&self) -> bool {
        self.0 == State::InProgress
    }

    /// Begins one. The caller has paused writes.
    pub fn begin(&mut self, options: FailoverOptions, now_ms: u64) {
        debug_assert!(!self.is_active());
        let deadline_ms = options.timeout_ms.map(|timeout_ms| now_ms.saturating_add(timeout_ms));
        self.0 = State::WaitingForSync { options, deadline_ms };
    }

    /// Looks at the time and at the replicas that follow the stream: the address of each, and the offset that it has
    /// acknowledged. `end` is the stream's.
    pub fn tick(&mut self, now_ms: u64, end: u64, replicas: &[((String, u16), u64)]) -> FailoverStep {
        let State::WaitingForSync { options, deadline_ms } = &self.0 else { return FailoverStep::Wait };
        let is_late = deadline_ms.is_some_and(|deadline_ms| now_ms >= deadline_ms);
        let is_wanted =
            |address: &(String, u16)| options.target.as_ref().is_none_or(|target| target == address);
        let level = replicas.iter().find(|(address, acked)| is_wanted(address) && *acked >= end);
        let target = match (is_late, &options.target, level) {
            (true, Some(target), _) if options.force => target.clone(),
            (true, ..) => {
                self.0 = State::None;
                return FailoverStep::GiveUp;
            }
            (false, _, Some((address, _))) => address.clone(),
            (false, _, None) => return FailoverStep::Wait,
        };
        self.0 = State::InProgress;
        FailoverStep::HandOver { target }
    }

    /// Ends it: it was aborted, refused, or has succeeded.
    pub fn end(&mut self) {
        self.0 = State::None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replica(port: u16, acked: u64) -> ((String, u16), u64) {
        (("host".to_owned(), port), acked)
    }

    fn begun(target: Option<u16>, timeout_ms: Option<u64>, force: bool) -> Failover {
        let target = target.map(|port| ("host".to_owned(), port));
        let mut failover = Failover::default();
        failover.begin(FailoverOptions { target, timeout_ms, force }, 1000);
        failover
    }

    fn to(port: u16) -> FailoverStep {
        FailoverStep::HandOver { target: ("host".to_owned(), port) }
    }

    #[test]
    fn failover_hands_over_to_a_replica_that_has_all() {
        let mut failover = begun(None, None, false);
        assert_eq!(failover.name(), "waiting-for-sync");
        assert_eq!(failover.tick(u64::MAX, 100, &[replica(1, 99), replica(2, 98)]), FailoverStep::Wait);
        assert_eq!(failover.tick(1001, 100, &[replica(1, 99), replica(2, 100)]), to(2));
        assert_eq!(failover.name(), "failover-in-progress");
        assert_eq!(failover.tick(1002, 100, &[replica(1, 100)]), FailoverStep::Wait, "one target");
        failover.end();
        assert_eq!(failover.name(), "no-failover");
    }

    #[test]
    fn failover_waits_for_its_target_and_no_other() {
        let mut failover = begun(Some(1), None, false);
        assert_eq!(failover.tick(1001, 100, &[replica(2, 100)]), FailoverStep::Wait);
        assert_eq!(failover.tick(1002, 100, &[replica(2, 100), replica(1, 100)]), to(1));
    }

    #[test]
    fn failover_that_is_late_is_given_up_or_forced() {
        let mut failover = begun(Some(1), Some(50), false);
        assert_eq!(failover.tick(1049, 100, &[replica(1, 1)]), FailoverStep::Wait);
        assert_eq!(failover.tick(1050, 100, &[replica(1, 1)]), FailoverStep::GiveUp);
        assert!(!failover.is_active());
        let mut failover = begun(Some(1), Some(50), true);
        assert_eq!(failover.tick(1050, 100, &[]), to(1));
        let mut failover = begun(Some(1), Some(u64::MAX), true);
        assert_eq!(failover.tick(u64::MAX - 1, 100, &[]), FailoverStep::Wait);
    }
}
