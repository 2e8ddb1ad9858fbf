//! An executor's work for others while a script of one client takes its time.
//!
//! ```text
//! serve ─▶ EVAL ─▶ Lua ─▶ looks at the clock ─▶ poll_nested ─▶ EventLoop::attend ─▶ serve (without event_loop)
//! ```
//!
//! The script is inside the gate, or behind it, and holds its locks: clients that are served meanwhile stay out of the
//! keyspace, as if the gate were closed for long ([`Executor::has_blocked_by_script`]). Things that the script's commands have
//! left in the worker for their end (events, invalidations, the record) stay there; those of the client at hand are
//! put aside.

use dunlin_engine::{
    Caller, Environment, Notice,
    keyspace::{Inside, Keyspace},
};

use dunlin_net::Commitment;

use super::{
    Executor, ServerContext,
    seen::{SawData, Seen},
};
use crate::{observe::command_stats::Stopwatch, shared::Shared, workers::WorkerMessage};

/// The state that is put aside.
pub(super) struct PausedScript {
    caller: Caller,
    stopwatch: Stopwatch,
    notices: Vec<Notice>,
    saw_data: SawData,
    seen: Seen,
    pushed_to: Vec<Commitment>,
}

impl Executor {
    /// The pass through the gate; `None` if a script closes it for long, or this worker pauses one.
    #[inline]
    pub(super) fn pass<'k>(&self, keyspace: &'k Keyspace) -> Option<Inside<'k>> {
        if self.paused_script.is_some() || self.is_abandoned {
            return None;
        }
        keyspace.enter_unless_long(self.worker.id())
    }

    fn put_aside(&mut self) {
        self.paused_script = Some(PausedScript {
            caller: self.caller,
            stopwatch: self.meter.stop(),
            notices: std::mem::take(&mut self.worker.notices),
            saw_data: self.saw_data,
            seen: std::mem::take(&mut self.seen),
            pushed_to: std::mem::take(&mut self.pushed_to),
        });
    }

    fn take_up(&mut self) {
        let Some(aside) = self.paused_script.take() else { return };
        debug_assert!(self.worker.notices.is_empty());
        self.caller = aside.caller;
        self.meter.go_on(aside.stopwatch);
        self.worker.notices = aside.notices;
        self.saw_data = aside.saw_data;
        self.seen = aside.seen;
        self.pushed_to = aside.pushed_to;
    }

    /// Whether a message can be received now: what an aside computation has found is stored when the keyspace is
    /// accessible.
    pub(super) fn may_receive(message: &WorkerMessage) -> bool {
        !matches!(message, WorkerMessage::Computed(_) | WorkerMessage::Migrated(_))
    }

    /// Does what clients have left to be done in the keyspace, if that is accessible now.
    #[cold]
    pub(super) fn clear_away(&mut self) {
        let shared = std::sync::Arc::clone(&self.shared);
        if let Some(inside) = self.pass(&shared.engine.keyspace) {
            self.let_go(&inside);
            self.cancel_waits(&inside);
            if self.worker.has_blocked_by_script() && !self.is_write_paused() {
                self.serve_kept_out(&shared, &inside);
            }
        }
    }

    /// Serves clients that a script has kept from being served. On a replica, which records nothing, those that would
    /// change something are sent away.
    fn serve_kept_out(&mut self, shared: &Shared, _: &Inside<'_>) {
        // Inside the gate: the role changes behind it.
        let follows_primary = shared.engine.log.follows();
        let caller = Caller { follows_primary, keep_expired: follows_primary, ..self.caller };
        shared.engine.serve_kept_out(Environment::new(&self.policy, &caller), &mut self.worker);
    }
}

impl ServerContext<'_, '_> {
    /// Lets replies to others leave that are ready.
    #[cold]
    pub(crate) fn send_gathered(&mut self) {
        if let Some(event_loop) = self.turn.event_loop.as_deref_mut() {
            event_loop.depart();
            event_loop.send_pushes();
        }
    }

    /// Attends to the other clients of the worker once. Returns whether the server is to stop meanwhile.
    #[cold]
    pub(crate) fn poll_nested(&mut self) -> bool {
        let Some(event_loop) = self.turn.event_loop.as_deref_mut() else { return false };
        self.executor.put_aside();
        event_loop.attend(self.executor);
        self.executor.take_up();
        event_loop.is_stopping()
    }
}
