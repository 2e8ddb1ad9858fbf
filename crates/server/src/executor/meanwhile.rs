//! What an executor does for others while a script of one client takes its time.
//!
//! ```text
//! serve ─▶ EVAL ─▶ Lua ─▶ looks at the clock ─▶ attend_meanwhile ─▶ Neighbours::attend ─▶ serve (without neighbours)
//! ```
//!
//! The script is inside the gate, or behind it, and holds its locks: whoever is served meanwhile stays out of the keyspace,
//! as if the gate were closed for long ([`Executor::is_kept_out`]). What the script's commands have left in the worker for
//! their end (events, invalidations, the record) stays there; what belongs to the client at hand is put aside.

use dunlin_engine::{
    Environment, Event,
    keyspace::{Inside, Invalidation, Keyspace},
};

use super::{Executor, Letter, ServerContext};
use crate::{net::Neighbours, statistics::Stopwatch};

/// What is put aside.
pub(super) struct Meanwhile {
    environment: Environment,
    stopwatch: Stopwatch,
    events: Vec<Event>,
    invalidations: Vec<Invalidation>,
    saw_data: bool,
    /// Whether the script's client listens to something.
    listens: bool,
}

impl Executor {
    /// The pass through the gate; `None` where a script has it closed for long, or is one's own.
    #[inline]
    pub(super) fn pass<'k>(&self, keyspace: &'k Keyspace) -> Option<Inside<'k>> {
        if self.meanwhile.is_some() || self.is_abandoned {
            return None;
        }
        keyspace.enter_unless_long(self.worker.id())
    }

    fn put_aside(&mut self, listens: bool) {
        self.meanwhile = Some(Meanwhile {
            environment: self.environment.clone(),
            stopwatch: self.meter.stop(),
            events: std::mem::take(&mut self.worker.events),
            invalidations: std::mem::take(&mut self.worker.invalidations),
            saw_data: self.saw_data,
            listens,
        });
    }

    fn take_up(&mut self) {
        let Some(aside) = self.meanwhile.take() else { return };
        debug_assert!(self.worker.events.is_empty() && self.worker.invalidations.is_empty());
        self.environment = aside.environment;
        self.meter.go_on(aside.stopwatch);
        self.worker.events = aside.events;
        self.worker.invalidations = aside.invalidations;
        self.saw_data = aside.saw_data;
    }

    /// Whether a letter can be received now. Messages reach all subscribers in one order, so they wait for a client that
    /// is not there to hear them; and what an aside computation has found is stored when the keyspace is to be had.
    pub(super) fn may_receive(&self, letter: &Letter) -> bool {
        match letter {
            Letter::Published(_) | Letter::Settled(_) => {
                self.meanwhile.as_ref().is_none_or(|aside| !aside.listens)
            }
            Letter::Computed(_) => false,
            _ => true,
        }
    }

    /// Does what clients have left to be done in the keyspace, if that is to be had now.
    #[cold]
    pub(super) fn clear_away(&mut self) {
        let shared = std::sync::Arc::clone(&self.shared);
        if let Some(inside) = self.pass(&shared.engine.keyspace) {
            self.let_go(&inside);
            self.see_off(&inside);
            if self.worker.is_kept_out() {
                shared.engine.serve_kept_out(&self.environment, &mut self.worker);
            }
        }
    }
}

impl ServerContext<'_, '_> {
    /// Lets replies to others leave that are ready.
    #[cold]
    pub(crate) fn send_gathered(&mut self) {
        self.turn.neighbours.as_deref_mut().into_iter().for_each(Neighbours::depart);
    }

    /// Has the other clients of the worker attended to, once; whether the server is to stop meanwhile.
    #[cold]
    pub(crate) fn attend_meanwhile(&mut self) -> bool {
        let Some(neighbours) = self.turn.neighbours.as_deref_mut() else { return false };
        self.executor.put_aside(self.session.subscriptions.is_some());
        neighbours.attend(self.executor);
        self.executor.take_up();
        neighbours.is_stopping()
    }
}
