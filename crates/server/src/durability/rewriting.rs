//! The state of rewriting the log.

use std::{
    sync::{Arc, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use super::Durability;
use crate::persistence::saving::Progress;

/// The number of rewrites that may fail in a row before those that begin by themselves are held back.
const FAILURES_FREE: u32 = 3;
/// For how long at first; for twice as long each further time.
const HOLD_BACK: Duration = Duration::from_secs(60);
const HOLD_BACK_MAX: Duration = Duration::from_secs(3600);
/// The pause of other rewrites after a failure.
const RETRY: Duration = Duration::from_secs(5);

/// The state of rewriting.
#[derive(Debug, Default)]
pub(crate) struct Rewriting {
    pub(crate) current: Option<Arc<Progress>>,
    pub(crate) thread: Option<JoinHandle<()>>,
    /// A rewrite is to begin when that is possible.
    pub(crate) scheduled: bool,
    /// How long the last one took.
    pub(crate) last_took: Option<Duration>,
    /// How many have begun.
    pub(crate) count: u64,
    /// How many have failed in a row.
    pub(crate) failures: u32,
    failed_at: Option<Instant>,
    /// None is begun from now on: the server ends.
    pub(crate) ended: bool,
}

impl Rewriting {
    /// Whether one may begin by itself.
    pub(crate) fn may_begin(&self) -> bool {
        let wait = match self.failures.checked_sub(FAILURES_FREE) {
            None => Duration::ZERO,
            Some(more) => HOLD_BACK.saturating_mul(1 << more.min(16)).min(HOLD_BACK_MAX),
        };
        self.current.is_none() && !self.ended && self.failed_at.is_none_or(|at| at.elapsed() >= wait)
    }

    /// Whether one is to begin that was asked for earlier.
    pub(crate) fn is_due(&self) -> bool {
        let is_rested = self.failed_at.is_none_or(|at| at.elapsed() >= RETRY);
        self.scheduled && self.current.is_none() && !self.ended && is_rested
    }

    /// Schedules a rewrite if one is wanted and none is under way.
    pub(crate) fn schedule_if(&mut self, is_wanted: bool) {
        self.scheduled |= is_wanted && self.current.is_none();
    }

    /// The thread that goes on with the rewrite under way.
    pub(crate) fn set_thread(&mut self, thread: JoinHandle<()>) {
        self.thread = Some(thread);
    }

    /// Gives up the rewrite under way.
    pub(crate) fn cancel(&self) {
        self.current.iter().for_each(|progress| progress.cancel());
    }

    /// The rewrite has ended.
    pub(crate) fn end(&mut self, is_ok: bool) {
        self.last_took = self.current.take().map(|progress| progress.begun.elapsed());
        self.failures = if is_ok { 0 } else { self.failures.saturating_add(1) };
        self.failed_at = (!is_ok).then(Instant::now);
    }
}

impl Durability {
    /// The state of rewriting.
    pub(crate) fn rewriting(&self) -> MutexGuard<'_, Rewriting> {
        self.rewriting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends rewriting for good: the rewrite under way has no result.
    pub(crate) fn end_rewriting(&self) {
        self.rewriting().ended = true;
        self.rewriting().cancel();
        self.await_rewriting();
    }

    /// Waits until the rewrite under way has ended, but for the log thread's part. Returns whether
    /// there was something.
    pub(crate) fn await_rewriting(&self) -> bool {
        let Some(thread) = self.rewriting().thread.take() else { return false };
        if thread.join().is_err() {
            tracing::error!("the thread that writes the log's base failed");
        }
        true
    }
}
