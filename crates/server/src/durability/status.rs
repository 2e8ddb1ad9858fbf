//! The state of durability for INFO.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use dunlin_persist::manifest::LogId;

use crate::persistence::stamp::{LogRelation, LogStamp};

/// How often `everysec` makes the log durable.
pub(crate) const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// The report of the log's thread.
#[derive(Debug, Clone, Default)]
pub(crate) struct Status {
    /// Why the log cannot be written, in the system's words; `None` if it can.
    pub(crate) write_error: Option<String>,
    /// Directory of its files, while it is on.
    pub(crate) directory: Option<PathBuf>,
    /// Which log that is, or was, or is beside a data set that has none.
    pub(crate) log: Option<LogId>,
    /// How the data set stands to it.
    pub(crate) relation: LogRelation,
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
    /// For a snapshot that is cut now.
    pub(crate) fn stamp(&self) -> Option<LogStamp> {
        let LogId { name, generation, .. } = self.log.clone()?;
        let relation = match self.relation {
            // An unknown part of the log is there.
            LogRelation::On if self.write_error.is_some() => LogRelation::Off,
            relation => relation,
        };
        Some(LogStamp { name, generation, relation })
    }

    /// The log that the data set holds all of.
    pub(crate) fn held_log(&self) -> Option<&LogId> {
        self.log.as_ref().filter(|_| self.relation != LogRelation::Apart)
    }

    /// Delayed syncs, the one included that has not come to its end.
    pub(crate) fn delayed_syncs_by_now(&self) -> u64 {
        let is_late = |since: Instant| since.elapsed() > SYNC_INTERVAL;
        self.delayed_syncs + u64::from(self.syncing_since.is_some_and(is_late))
    }
}
