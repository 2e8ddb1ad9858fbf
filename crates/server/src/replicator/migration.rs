//! MIGRATE: keys that go to another server, on threads that wait for its sockets in place of a worker.
//!
//! ```text
//! worker ─ view, claim ─▶ queue ─▶ thread `migrate` ─ AUTH, SELECT, RESTORE … ─▶ target
//! worker ◀─ these have arrived ──┘                  ◀─ replies ───────────────┘
//!   └─ removes what is as it was sent; what has changed goes once more
//! ```
//!
//! Threads come with commands and stay for as long as their idle connections do. A key is here or there; if the
//! target's reply is lost, it may be in both places; never in none.

mod conversation;

use std::{
    io,
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use dunlin_engine::{Worker, command::CommandError};

use self::conversation::Broken;
use crate::{
    replication::connection::Connection,
    shared::Shared,
    workers::{WorkerMessage, migration::Migration},
};

/// Commands that are carried out at a time; more wait.
const THREADS_MAX: usize = 32;
/// How long a connection, and a thread, is kept without a use.
const IDLE_MAX: Duration = Duration::from_secs(10);

const CONNECTING: &str = "IOERR error or timeout connecting to the client";
const READING: &str = "IOERR error or timeout reading to target instance";
const WRITING: &str = "IOERR error or timeout writing to target instance";

/// Sends the keys of a migration; their worker gets [`WorkerMessage::Migrated`] then.
pub(crate) fn send(shared: &Arc<Shared>, mut migration: Box<Migration>) {
    let migrations = &shared.replication.migrations;
    let mut state = migrations.state();
    if state.idle_threads == 0 && state.threads < THREADS_MAX {
        let weak = Arc::downgrade(shared);
        let thread = thread::Builder::new().name("migrate".to_owned()).spawn(move || work(&weak));
        match thread {
            Ok(_) => state.threads += 1,
            Err(error) if state.threads == 0 => {
                drop(state);
                migration.fail(CommandError::owned(format!("ERR no thread for the transfer: {error}")));
                return report(migration);
            }
            // Another thread comes to it.
            Err(_) => {}
        }
    }
    state.waiting.push_back(migration);
    drop(state);
    migrations.arrival.notify_one();
}

/// Sends the worker of its client a migration whose round is over.
fn report(migration: Box<Migration>) {
    let (worker, queues) = (migration.client.worker as usize, migration.queues.clone());
    queues.send_to_service(worker, WorkerMessage::Migrated(Arc::new(Mutex::new(Some(migration)))));
}

/// A thread: takes one migration after the other, and ends when there has been none for some time.
fn work(shared: &Weak<Shared>) {
    // This worker passes no gate and has no counters that are read: its number is of no meaning.
    let mut worker = Worker::new(usize::MAX, 1);
    while let Some(shared) = shared.upgrade() {
        let Some(mut migration) = next(&shared) else { return };
        (migration.arrived, migration.failure) = attempt(&shared, &migration, &mut worker);
        report(migration);
    }
}

/// The next migration; `None` for the end of the thread.
fn next(shared: &Arc<Shared>) -> Option<Box<Migration>> {
    let migrations = &shared.replication.migrations;
    let until = Instant::now() + IDLE_MAX;
    let mut state = migrations.state();
    loop {
        state.connections.retain(|idle| idle.since.elapsed() < IDLE_MAX);
        if let Some(migration) = state.waiting.pop_front() {
            return Some(migration);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || shared.is_ending() {
            state.threads -= 1;
            if state.threads == 0 {
                state.connections.clear();
            }
            return None;
        }
        state.idle_threads += 1;
        // In steps, so that it sees the end of the server.
        let step = left.min(Duration::from_secs(1));
        (state, _) = migrations.arrival.wait_timeout(state, step).unwrap_or_else(PoisonError::into_inner);
        state.idle_threads -= 1;
    }
}

/// Sends the keys of a round: which have arrived, and why the command fails, if it does. A connection that breaks before
/// the first key is answered is made once more.
fn attempt(
    shared: &Arc<Shared>,
    migration: &Migration,
    worker: &mut Worker,
) -> (Vec<bool>, Option<CommandError>) {
    let (migrations, target) = (&shared.replication.migrations, &migration.target);
    let keys = migration.migrating.as_ref().map_or(0, |migrating| migrating.keys().len());
    let mut is_last = false;
    loop {
        // If the target has closed one, it may have closed the others.
        let kept = if is_last { None } else { migrations.take_connection(target) };
        let connection = match kept {
            Some(connection) => Ok(connection),
            None => Connection::make(&shared.tls, &shared.config.current(), shared.ending_flag(), target),
        };
        let mut connection = match connection {
            Ok(connection) => connection,
            Err(error) => {
                let (host, port) = (target.host.escape_ascii(), target.port.escape_ascii());
                tracing::debug!("MIGRATE: no connection to {host}:{port}: {error}");
                return (vec![false; keys], Some(CommandError::text(unconnected(&error))));
            }
        };
        let mut arrived = vec![false; keys];
        let said = conversation::send(shared, &mut connection, migration, worker, &mut arrived);
        match said {
            Ok(refusal) => {
                migrations.keep_connection(connection);
                return (arrived, refusal.map(refused));
            }
            Err(Broken { refusal: Some(line), .. }) => return (arrived, Some(refused(line))),
            Err(Broken { error, has_begun: false, .. })
                if !is_last && error.kind() != io::ErrorKind::TimedOut && !shared.is_ending() =>
            {
                is_last = true;
            }
            Err(Broken { while_writing, .. }) => {
                let text = if while_writing { WRITING } else { READING };
                return (arrived, Some(CommandError::text(text)));
            }
        }
    }
}

/// The error that Redis answers: it sees only while it writes that a connection was refused.
fn unconnected(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::NotFound => CONNECTING,
        _ => WRITING,
    }
}

/// An error line of the target, for the client.
fn refused(line: Vec<u8>) -> CommandError {
    CommandError::quoting("ERR Target instance replied with error: ", &line)
}
