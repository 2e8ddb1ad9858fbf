//! What INFO tells of durability.

use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often `everysec` makes the log durable.
pub(super) const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// What the log's thread has to tell.
#[derive(Debug, Clone, Default)]
pub(crate) struct Status {
    /// Why the log cannot be written, in the system's words; `None` where it can.
    pub(crate) write_error: Option<String>,
    /// Where its files are, while it is on.
    pub(crate) directory: Option<PathBuf>,
    /// Bytes of the files of the log.
    pub(crate) log_bytes: u64,
    /// Bytes of them when the last base was made, or at start.
    pub(crate) base_bytes: u64,
    /// When the sync began that is being made.
    pub(crate) syncing_since: Option<Instant>,
    /// Syncs that have taken longer than there is between two of them.
    pub(crate) delayed_syncs: u64,
}

impl Status {
    /// Delayed syncs, the one included that has not come to its end.
    pub(crate) fn delayed_syncs_by_now(&self) -> u64 {
        let is_late = |since: Instant| since.elapsed() > SYNC_INTERVAL;
        self.delayed_syncs + u64::from(self.syncing_since.is_some_and(is_late))
    }
}
