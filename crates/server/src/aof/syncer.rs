//! The thread that waits for the disk so that the log's thread need not: `everysec` makes the log durable
//! beside the thread that writes it.
//!
//! ```text
//! thread `log`        write ─ begin ─ write ─ write ─ … ─ take: give up durable bytes
//! thread `log-sync`             └──── fdatasync ────┘ wakeup
//! ```

use std::{
    io, mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Instant,
};

use dunlin_persist::aof::{FinishedSync, PendingSync};

use crate::shared::Shared;

/// The thread, as the log's thread sees it. The thread ends with this.
#[derive(Debug)]
pub(super) struct Syncer {
    desk: Arc<Desk>,
    begun_at: Option<Instant>,
}

/// The meeting place of the two threads. (A channel would park the log's thread, and take the wakeup for its own.)
#[derive(Debug, Default)]
struct Desk {
    stage: Mutex<Stage>,
    changed: Condvar,
}

#[derive(Debug, Default)]
enum Stage {
    #[default]
    Idle,
    Ordered(PendingSync),
    Running,
    Ended(FinishedSync),
    Closed,
}

impl Desk {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, stage: Stage) {
        *self.stage() = stage;
        self.changed.notify_all();
    }

    /// Waits for one of the stages that `is_awaited` knows; the caller takes its content and leaves `then`.
    fn take(&self, is_awaited: impl Fn(&Stage) -> bool, then: Stage) -> Stage {
        let stage = self.changed.wait_while(self.stage(), |stage| !is_awaited(stage));
        mem::replace(&mut *stage.unwrap_or_else(PoisonError::into_inner), then)
    }

    /// Runs each order until the end; calls `ended` after each.
    fn serve(&self, ended: impl Fn()) {
        let is_for_us = |stage: &Stage| matches!(stage, Stage::Ordered(_) | Stage::Closed);
        while let Stage::Ordered(sync) = self.take(is_for_us, Stage::Running) {
            let finished = sync.run();
            let mut stage = self.stage();
            if matches!(*stage, Stage::Closed) {
                return;
            }
            *stage = Stage::Ended(finished);
            drop(stage);
            self.changed.notify_all();
            ended();
        }
    }
}

impl Syncer {
    pub(super) fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let desk = Arc::new(Desk::default());
        let (served, shared) = (Arc::clone(&desk), Arc::clone(shared));
        thread::Builder::new()
            .name("log-sync".to_owned())
            .spawn(move || served.serve(|| shared.durability.wakeup.wake()))?;
        Ok(Self { desk, begun_at: None })
    }

    /// Whether a sync was begun that has not been taken.
    pub(super) fn is_busy(&self) -> bool {
        self.begun_at.is_some()
    }

    /// Whether there is one to be taken.
    pub(super) fn has_ended(&self) -> bool {
        matches!(*self.desk.stage(), Stage::Ended(_))
    }

    /// Begins a sync; the wakeup rings when it has ended. None is under way.
    pub(super) fn begin(&mut self, sync: PendingSync, now: Instant) {
        debug_assert!(!self.is_busy());
        self.begun_at = Some(now);
        self.desk.set(Stage::Ordered(sync));
    }

    /// The sync that has ended, and when it had begun.
    pub(super) fn take(&mut self) -> Option<(FinishedSync, Instant)> {
        if self.has_ended() { self.wait() } else { None }
    }

    /// Waits for the sync that is under way, if there is one.
    pub(super) fn wait(&mut self) -> Option<(FinishedSync, Instant)> {
        let begun_at = self.begun_at.take()?;
        match self.desk.take(|stage| matches!(stage, Stage::Ended(_)), Stage::Idle) {
            Stage::Ended(finished) => Some((finished, begun_at)),
            other => unreachable!("waited for the end of a sync, not for {other:?}"),
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.desk.set(Stage::Closed);
    }
}
