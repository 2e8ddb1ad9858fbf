//! The state of MIGRATE: commands that wait for a thread, and connections that are kept for the next ones.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use super::connection::Connection;
use crate::workers::migration::{Migration, MigrationTarget};

/// Idle connections that are kept.
const CONNECTIONS_MAX: usize = 64;

/// An idle connection.
pub(crate) struct Idle {
    connection: Connection,
    pub(crate) since: Instant,
}

#[derive(Default)]
pub(crate) struct MigrationState {
    pub(crate) waiting: VecDeque<Box<Migration>>,
    pub(crate) threads: usize,
    pub(crate) idle_threads: usize,
    pub(crate) connections: Vec<Idle>,
}

/// The commands under way, and the connections that are kept for the next ones.
#[derive(Default)]
pub(crate) struct Migrations {
    state: Mutex<MigrationState>,
    pub(crate) arrival: Condvar,
}

impl fmt::Debug for Migrations {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Migrations").finish_non_exhaustive()
    }
}

impl Migrations {
    pub(crate) fn state(&self) -> MutexGuard<'_, MigrationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections that are kept.
    pub(crate) fn idle_connections(&self) -> usize {
        self.state().connections.len()
    }

    /// Takes an idle connection to a target. A connection that was let in with other credentials is another one.
    pub(crate) fn take_connection(&self, target: &MigrationTarget) -> Option<Connection> {
        let mut state = self.state();
        let at = state.connections.iter().position(|idle| idle.connection.leads_to(target))?;
        Some(state.connections.swap_remove(at).connection)
    }

    pub(crate) fn keep_connection(&self, connection: Connection) {
        let mut state = self.state();
        if state.connections.len() >= CONNECTIONS_MAX {
            state.connections.remove(0);
        }
        state.connections.push(Idle { connection, since: Instant::now() });
    }
}
