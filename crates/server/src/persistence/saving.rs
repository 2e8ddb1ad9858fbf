//! Snapshots in the background: the one under way, and why one does not begin.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// How far a snapshot is.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) begun: Instant,
    pub(crate) keys_total: u64,
    pub(crate) keys_written: AtomicU64,
    /// Thousandths of the keyspace that were visited.
    pub(crate) visited: AtomicU16,
    pub(crate) cancelled: AtomicBool,
}

impl Progress {
    /// Keys written, and keys in all.
    pub(crate) fn keys(&self) -> (u64, u64) {
        (self.keys_written.load(Relaxed).min(self.keys_total), self.keys_total)
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Relaxed);
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }
}

/// The state of snapshots that are written to the file of SAVE.
#[derive(Debug, Default)]
pub(crate) struct Saving {
    pub(crate) current: Option<Arc<Progress>>,
    pub(crate) thread: Option<JoinHandle<()>>,
    /// A snapshot is to begin when that is possible.
    pub(crate) scheduled: bool,
    /// When the last one ended that failed.
    pub(crate) failed_at: Option<Instant>,
    /// How long the last one took.
    pub(crate) last_took: Option<Duration>,
    /// None is begun from now on: the server ends.
    pub(crate) ended: bool,
}

/// Why a snapshot did not begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SaveError {
    /// A snapshot is under way.
    InProgress,
    /// There are too many of other kinds.
    Busy,
    /// A script has been running for long.
    BlockedByScript,
    /// The system has no room for a thread, or the server is ending.
    NoThread,
    /// Another process has the directory: a line without a prefix.
    InUse(String),
}

impl fmt::Display for SaveError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::InProgress => "there is one under way",
            Self::Busy => "there are too many under way",
            Self::BlockedByScript => "a script has been running for long",
            Self::NoThread => "there is no thread for it",
            Self::InUse(reason) => reason,
        })
    }
}
