//! The state of a failover. The thread `feeder` goes on with it.

use std::sync::{MutexGuard, PoisonError};

use dunlin_replication::Failover;

use super::Replication;

impl Replication {
    pub(crate) fn failover(&self) -> MutexGuard<'_, Failover> {
        self.failover.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state of a failover, as INFO names it.
    pub(crate) fn failover_state(&self) -> &'static str {
        self.failover().name()
    }

    /// Whether there is a failover.
    pub(crate) fn is_failing_over(&self) -> bool {
        self.failover().is_active()
    }

    /// Whether a replica has been asked to take over and has not answered.
    pub(crate) fn is_handing_over(&self) -> bool {
        self.failover().is_in_progress()
    }
}
