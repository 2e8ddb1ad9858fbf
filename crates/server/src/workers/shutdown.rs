//! A shutdown that waits for replicas: clients read meanwhile, writes are paused, and SHUTDOWN ABORT ends it.
//!
//! ```text
//! none ─ begin ─▶ waiting for replicas ─ save ─▶ saving ─▶ the server ends
//!  ▲                    │ abort                    │ not saved
//!  └────────────────────┴──────────────────────────┘
//! ```

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use dunlin_engine::OwnedWord;
use dunlin_net::Address;

use super::pause::Pause;

/// How a shutdown that has waited ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownOutcome {
    /// The server ends.
    Ends,
    /// The data set could not be saved, so the server goes on.
    NotSaved,
    /// SHUTDOWN ABORT came first.
    Aborted,
}

/// A client whose SHUTDOWN waits.
#[derive(Debug)]
pub(crate) struct ShutdownClient {
    pub(crate) address: Address,
    /// The words of its command, the name first.
    pub(crate) words: Vec<OwnedWord>,
}

/// A shutdown that waits.
#[derive(Debug)]
pub(crate) struct ShutdownWait {
    /// When the server ends without the replicas that are behind.
    pub(crate) until: Instant,
    end: Mutex<End>,
    settled: Condvar,
}

#[derive(Debug, Default)]
struct End {
    outcome: Option<ShutdownOutcome>,
    clients: Vec<ShutdownClient>,
}

impl ShutdownWait {
    /// Enters a client; the settler of the wait owes it the reply. Returns it if the wait is over.
    pub(crate) fn join(&self, client: ShutdownClient) -> Result<(), ShutdownClient> {
        let mut end = self.end();
        if end.outcome.is_some() {
            return Err(client);
        }
        end.clients.push(client);
        Ok(())
    }

    /// Ends the wait; the caller owes the returned clients their replies.
    pub(crate) fn settle(&self, outcome: ShutdownOutcome) -> Vec<ShutdownClient> {
        let mut end = self.end();
        end.outcome = Some(outcome);
        self.settled.notify_all();
        std::mem::take(&mut end.clients)
    }

    /// Blocks until the wait is over.
    pub(crate) fn outcome(&self) -> ShutdownOutcome {
        let mut end = self.end();
        loop {
            if let Some(outcome) = end.outcome {
                return outcome;
            }
            end = self.settled.wait(end).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Blocks for `time` at most; whether the wait is over.
    pub(crate) fn is_settled_within(&self, time: Duration) -> bool {
        let end = self.end();
        let (end, _) = self
            .settled
            .wait_timeout_while(end, time, |end| end.outcome.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        end.outcome.is_some()
    }

    fn end(&self) -> MutexGuard<'_, End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
enum State {
    #[default]
    None,
    Waiting(Arc<ShutdownWait>),
    Saving(Arc<ShutdownWait>),
}

/// The shutdown under way, if one has waited for replicas; changed together with the pause of writes that belongs to it.
#[derive(Debug, Default)]
pub(crate) struct Shutdown {
    state: Mutex<State>,
}

impl Shutdown {
    /// Begins to wait and pauses writes; or returns, as an error, the wait that goes on already.
    pub(crate) fn begin(
        &self,
        pause: &Pause,
        until: Instant,
    ) -> Result<Arc<ShutdownWait>, Arc<ShutdownWait>> {
        let mut state = self.state();
        match &*state {
            State::Waiting(wait) | State::Saving(wait) => Err(Arc::clone(wait)),
            State::None => {
                let wait = Arc::new(ShutdownWait { until, end: Mutex::default(), settled: Condvar::new() });
                *state = State::Waiting(Arc::clone(&wait));
                pause.begin_shutdown();
                Ok(wait)
            }
        }
    }

    /// Ends the wait for replicas, and the pause with it; `None` if none is waited for.
    pub(crate) fn abort(&self, pause: &Pause) -> Option<Arc<ShutdownWait>> {
        let mut state = self.state();
        match std::mem::take(&mut *state) {
            State::Waiting(wait) => {
                pause.end_shutdown();
                Some(wait)
            }
            other => {
                *state = other;
                None
            }
        }
    }

    /// From here on `wait` is not to be aborted. `false`: it was.
    pub(crate) fn begin_saving(&self, wait: &Arc<ShutdownWait>) -> bool {
        let mut state = self.state();
        let is_mine = matches!(&*state, State::Waiting(current) if Arc::ptr_eq(current, wait));
        if is_mine {
            *state = State::Saving(Arc::clone(wait));
        }
        is_mine
    }

    /// The data set could not be saved: writes go on.
    pub(crate) fn fail(&self, pause: &Pause) {
        let mut state = self.state();
        *state = State::None;
        pause.end_shutdown();
    }

    /// The time that replicas have left, while they are waited for.
    pub(crate) fn left(&self, now: Instant) -> Option<Duration> {
        match &*self.state() {
            State::Waiting(wait) => Some(wait.until.saturating_duration_since(now)),
            State::None | State::Saving(_) => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::PauseScope;

    #[test]
    fn shutdown_is_aborted_while_it_waits_and_not_while_it_saves() {
        let now = Instant::now();
        let (shutdown, pause) = (Shutdown::default(), Pause::new(now));
        let until = now + Duration::from_secs(10);
        assert!(shutdown.abort(&pause).is_none());
        let first = shutdown.begin(&pause, until).unwrap();
        assert_eq!(pause.in_force(now), Some((PauseScope::Writes, None)));
        assert_eq!(shutdown.left(now), Some(Duration::from_secs(10)));
        assert!(Arc::ptr_eq(&first, &shutdown.begin(&pause, now).unwrap_err()), "a second one joins it");
        shutdown.abort(&pause).unwrap().settle(ShutdownOutcome::Aborted);
        assert_eq!((pause.in_force(now), first.outcome()), (None, ShutdownOutcome::Aborted));
        assert!(!shutdown.begin_saving(&first), "the aborted one saves nothing");

        let second = shutdown.begin(&pause, until).unwrap();
        assert!(!shutdown.begin_saving(&first) && shutdown.begin_saving(&second));
        assert!(shutdown.abort(&pause).is_none() && shutdown.left(now).is_none());
        shutdown.fail(&pause);
        assert_eq!(pause.in_force(now), None);
        assert!(shutdown.begin(&pause, until).is_ok());
    }
}
