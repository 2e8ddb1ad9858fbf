//! Rewriting the log: a snapshot becomes its base, and the records before the cut go.
//!
//! ```text
//!                 cut, gate closed        thread `log`                     thread `log-base`
//! records  ───────────┤ boundary ├──▶ … rotates there ──────────────▶ adopts the base ─▶ removes
//!  files    incr 1    │          │     incr 1 │ incr 2               base │ incr 2
//! snapshot            └── thread `snapshot` writes ── done ─────────────┘
//! ```
//!
//! A log that is turned on begins the same way, but that there is nothing before the cut: its first
//! incremental file is in no manifest until the base is there.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, MutexGuard, PoisonError, atomic::Ordering::SeqCst},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use dunlin_engine::{ExclusiveContext, LogConsumer};
use dunlin_persist::{Disk, Replacement, Storage, manifest::BaseFormat};

use super::{LogThread, Order};
use crate::{
    config::Config,
    persistence::stamp::{Standing, next_id},
    persistence::{Cut, Destination, Progress, SaveError, cancelled, thread_for_cut},
    shared::Shared,
};

/// So many rewrites may fail in a row before those that begin by themselves are held back.
const FAILURES_FREE: u32 = 3;
/// For how long at first; for twice as long each further time.
const HOLD_BACK: Duration = Duration::from_secs(60);
const HOLD_BACK_MAX: Duration = Duration::from_secs(3600);
/// Others wait so long after a failure.
const RETRY: Duration = Duration::from_secs(5);

/// A base that is written and waits to be put in place.
#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) file: Replacement,
    pub(crate) format: BaseFormat,
}

/// The state of rewriting.
#[derive(Debug, Default)]
pub(crate) struct Rewriting {
    pub(crate) current: Option<Arc<Progress>>,
    thread: Option<JoinHandle<()>>,
    /// One is to begin when that is possible.
    pub(crate) scheduled: bool,
    /// How long the last one took.
    pub(crate) last_took: Option<Duration>,
    /// How many have begun.
    pub(crate) count: u64,
    /// How many have failed in a row.
    pub(crate) failures: u32,
    failed_at: Option<Instant>,
    /// No more are begun: the server ends.
    ended: bool,
}

impl Rewriting {
    /// Whether one may begin by itself.
    pub(super) fn may_begin(&self) -> bool {
        let wait = match self.failures.checked_sub(FAILURES_FREE) {
            None => Duration::ZERO,
            Some(more) => HOLD_BACK.saturating_mul(1 << more.min(16)).min(HOLD_BACK_MAX),
        };
        self.current.is_none() && !self.ended && self.failed_at.is_none_or(|at| at.elapsed() >= wait)
    }

    /// Whether one is to begin that was asked for earlier.
    fn is_due(&self) -> bool {
        let is_rested = self.failed_at.is_none_or(|at| at.elapsed() >= RETRY);
        self.scheduled && self.current.is_none() && !self.ended && is_rested
    }

    /// The thread that goes on with the rewrite under way.
    pub(super) fn set_thread(&mut self, thread: JoinHandle<()>) {
        self.thread = Some(thread);
    }

    /// Gives up the rewrite under way.
    pub(super) fn cancel(&self) {
        self.current.iter().for_each(|progress| progress.cancel());
    }

    /// It has ended.
    pub(super) fn end(&mut self, is_ok: bool) {
        self.last_took = self.current.take().map(|progress| progress.begun.elapsed());
        self.failures = if is_ok { 0 } else { self.failures.saturating_add(1) };
        self.failed_at = (!is_ok).then(Instant::now);
    }
}

impl super::Durability {
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

    /// Waits until the rewrite under way has ended, but for the log thread's part; whether there was
    /// something.
    pub(super) fn await_rewriting(&self) -> bool {
        let Some(thread) = self.rewriting().thread.take() else { return false };
        if thread.join().is_err() {
            tracing::error!("the thread that writes the log's base failed");
        }
        true
    }
}

/// Begins a rewrite that was asked for earlier, where it is possible now. To be called often.
pub(crate) fn rewrite_if_due(shared: &Arc<Shared>) {
    if shared.durability.rewriting().is_due() && !shared.loading.is_active() {
        // Where it cannot begin, it is tried again.
        let _ = begin_rewrite(shared, |work| _ = shared.alone_unless_long(work));
    }
}

/// Begins a rewrite. `alone` does something behind the closed gate.
pub(crate) fn begin_rewrite(
    shared: &Arc<Shared>,
    alone: impl FnOnce(&mut dyn FnMut(&mut ExclusiveContext<'_>)),
) -> Result<(), SaveError> {
    let durability = &shared.durability;
    if durability.rewriting().current.is_some() {
        return Err(SaveError::InProgress);
    }
    let config = shared.config.current();
    let directory = durability.status().directory.clone();
    let directory = match directory {
        Some(directory) => directory,
        // There is no log that has it.
        None => {
            let held = shared.directory.hold(&config);
            held.map_err(|in_use| SaveError::InUse(in_use.to_string()))?;
            LogThread::options(&config).directory
        }
    };
    begin(shared, directory, &config, |work| {
        alone(&mut |context| {
            work(context).inspect(|_| {
                if shared.engine.log.is_on_for(LogConsumer::File) {
                    durability.ring.set_boundary();
                    durability.boundary_database.store(shared.replication.stream_database(), SeqCst);
                } else {
                    // It holds the data set of the cut; snapshots that are cut later hold more.
                    let mut status = durability.status();
                    status.log = next_id(status.held_log()).ok();
                    status.standing = Standing::Off;
                }
                // Nothing behind the boundary is written before the log has seen it.
                durability.order(Order::Rotate);
            });
        })
    })
}

/// Makes a cut behind the gate that `alone` closes, and has it written for the log in a directory.
pub(super) fn begin(
    shared: &Arc<Shared>,
    directory: PathBuf,
    config: &Config,
    alone: impl FnOnce(&mut dyn FnMut(&mut ExclusiveContext<'_>) -> Option<()>),
) -> Result<(), SaveError> {
    let durability = &shared.durability;
    let (thread, order) = thread_for_cut(shared, Destination::File, move |shared, cut| {
        let written = write_base(shared, cut, &directory);
        shared.durability.order(Order::Adopt(written));
    })?;
    let mut begun = Err(SaveError::KeptOut);
    alone(&mut |context| {
        let mut rewriting = durability.rewriting();
        begun = match (&rewriting.current, rewriting.ended) {
            (Some(_), _) => Err(SaveError::InProgress),
            (None, true) => Err(SaveError::NoThread),
            (None, false) => shared.cut(context, config, true).ok_or(SaveError::Busy),
        };
        let cut = begun.as_ref().ok()?;
        rewriting.current = Some(Arc::clone(&cut.progress));
        rewriting.scheduled = false;
        rewriting.count += 1;
        Some(())
    });
    let cut = begun?;
    tracing::info!("Background append only file rewriting started: {} keys", cut.progress.keys().1);
    durability.rewriting().thread = Some(thread);
    order.send(cut).unwrap_or_else(|_| unreachable!("the thread waits for it"));
    Ok(())
}

/// Writes a snapshot as the base of a log, for the log to put in place.
fn write_base(shared: &Shared, cut: Cut, directory: &std::path::Path) -> io::Result<Base> {
    let (progress, format) = (Arc::clone(&cut.progress), cut.base_format());
    // Where this fails, so does the writing, which brings the snapshot to its end.
    let made = Disk.create_directory(directory);
    let beside = format!("temp-{}.rdb", std::process::id());
    let written = shared.write_cut(cut, directory, &beside)?;
    made?;
    if progress.is_cancelled() { Err(cancelled()) } else { Ok(Base { file: written, format }) }
}
