//! The end of a server: replicas get what they lack, the data set is saved, and the process is ordered to stop.
//!
//! ```text
//! SHUTDOWN, SIGTERM ─▶ replicas behind? ─ yes ─▶ writes paused, thread `shutdown` waits ─▶ save ─▶ stop ─▶ drain
//!                             └─ no, NOW, no time ──────────────────────────────────────▶ save ─▶ stop
//! ```
//!
//! SHUTDOWN ABORT ends the wait; nothing has changed then. A node of a cluster hands its shard over instead, once it stops.

use std::{
    io,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use dunlin_engine::ExclusiveContext;
use dunlin_resp::{Protocol, ReplyBuffer};

use crate::{
    admission::PauseScope,
    config::{Config, ShutdownFlags},
    replication::ReplicaClient,
    shared::{Shared, Stop},
    workers::{
        WorkerMessage,
        offload::Finished,
        shutdown::{ShutdownOutcome, ShutdownWait},
    },
};

/// Between two looks whether replicas have all.
const LOOK_PAUSE: Duration = Duration::from_millis(2);

/// The reply to a SHUTDOWN after which the server goes on.
pub(crate) const NOT_SHUT_DOWN: &str = "ERR Errors trying to SHUTDOWN. Check logs.";

/// Returns how long clients and replicas get to take what is theirs.
pub(crate) fn grace(flags: ShutdownFlags, config: &Config) -> Duration {
    if flags.now { Duration::ZERO } else { Duration::from_secs(config.shutdown_timeout.into()) }
}

/// Whether a snapshot is written before the end: when it is asked for, or there are save points; never of a
/// data set that is not loaded yet.
pub(crate) fn saves(flags: ShutdownFlags, shared: &Shared) -> bool {
    let wanted = flags.save || (!flags.nosave && !shared.config.current().save.is_empty());
    wanted && !shared.loading.is_active()
}

/// Whether a shutdown with these options waits for replicas that follow the stream and lack something.
pub(crate) fn waits(flags: ShutdownFlags, shared: &Shared) -> bool {
    let (tail, written) = written(shared);
    !grace(flags, &shared.config.current()).is_zero()
        && !shared.cluster.is_on()
        // Nothing closes the gate while a script runs for long.
        && !shared.engine.keyspace.is_held_for_long()
        && shared.replication.replicas().iter().any(|replica| replica.is_behind(tail, written))
}

/// Begins a shutdown that [`waits`], or joins the one under way. Returns its wait, and whether the caller has begun it and is to
/// [`carry_out`] the rest.
pub(crate) fn begin(shared: &Shared, flags: ShutdownFlags) -> (Arc<ShutdownWait>, bool) {
    let time = grace(flags, &shared.config.current());
    match shared.shutdown.begin(&shared.pause, Instant::now() + time) {
        Ok(wait) => {
            tracing::info!("Waiting for replicas before shutting down.");
            (wait, true)
        }
        Err(wait) => (wait, false),
    }
}

/// [`carry_out`] on a thread of its own, named `shutdown`.
pub(crate) fn start(shared: &Arc<Shared>, wait: Arc<ShutdownWait>, flags: ShutdownFlags) -> io::Result<()> {
    let shared = Arc::clone(shared);
    let run = move || _ = carry_out(&shared, &wait, flags);
    thread::Builder::new().name("shutdown".to_owned()).spawn(run).map(drop)
}

/// Waits for replicas, saves, and stops the server, as far as it comes.
pub(crate) fn carry_out(shared: &Shared, wait: &Arc<ShutdownWait>, flags: ShutdownFlags) -> ShutdownOutcome {
    await_replicas(shared, wait);
    if !shared.shutdown.begin_saving(wait) {
        return wait.outcome();
    }
    if !save_last(shared, flags) {
        shared.shutdown.fail(&shared.pause);
        settle(shared, wait, ShutdownOutcome::NotSaved);
        return ShutdownOutcome::NotSaved;
    }
    let grace = grace(flags, &shared.config.current());
    shared.stop(Stop { grace, replicas: wait.until.saturating_duration_since(Instant::now()) });
    settle(shared, wait, ShutdownOutcome::Ends);
    ShutdownOutcome::Ends
}

/// SHUTDOWN ABORT; whether there was something to abort.
pub(crate) fn abort(shared: &Shared) -> bool {
    let Some(wait) = shared.shutdown.abort(&shared.pause) else { return false };
    tracing::info!("Shutdown manually aborted.");
    settle(shared, &wait, ShutdownOutcome::Aborted);
    true
}

/// Saves the data set as `flags` say; whether the server may end.
pub(crate) fn save_last(shared: &Shared, flags: ShutdownFlags) -> bool {
    let is_awaited = !grace(flags, &shared.config.current()).is_zero();
    let save = |context: &mut ExclusiveContext<'_>| {
        // A client that has ended the server meanwhile, and with it the script, may have said NOSAVE.
        if shared.is_ending() { Ok(()) } else { shared.save_last(context, is_awaited) }
    };
    !saves(flags, shared) || shared.alone(save).is_ok() || flags.force
}

/// Blocks until replicas have what was written before the pause of writes, the time is over, or the wait was aborted.
fn await_replicas(shared: &Shared, wait: &ShutdownWait) {
    let mut target = None;
    while Instant::now() < wait.until {
        if target.is_none() {
            // Batches that are under way may not have seen the pause. A script that takes long is waited for.
            target = shared.alone_unless_long(|_| {
                shared.engine.log.end_admissions();
                let target = written(shared);
                shared.ask_replicas();
                target
            });
            shared.replication.feed.wake();
        }
        let is_done = target.is_some_and(|(tail, written)| {
            !shared.replication.replicas().iter().any(|replica| replica.is_behind(tail, written))
        });
        if is_done || wait.is_settled_within(LOOK_PAUSE) {
            return;
        }
    }
}

/// The ring's end, and the same in the stream.
fn written(shared: &Shared) -> (u64, u64) {
    let tail = shared.durability.tail();
    (tail, shared.replication.offset(tail))
}

/// Ends a wait: clients that ordered it are answered, or go with the server.
fn settle(shared: &Shared, wait: &ShutdownWait, outcome: ShutdownOutcome) {
    let clients = wait.settle(outcome);
    let Some(queues) = shared.durability.queues() else { return };
    for client in clients {
        if outcome == ShutdownOutcome::Ends {
            queues.kill(client.address);
            continue;
        }
        let mut reply = ReplyBuffer::default();
        // An error line is the same in both protocols.
        reply.set_protocol(Protocol::Resp2);
        reply.error(NOT_SHUT_DOWN);
        let finished = Finished { words: client.words, reply: reply.take_pieces(), nanoseconds: 0 };
        queues.send(client.address, WorkerMessage::Finished(Arc::new(finished)));
    }
    if outcome != ShutdownOutcome::Ends {
        // Behind the end of the pause, as with CLIENT UNPAUSE.
        queues.send_to_everyone(WorkerMessage::Unpaused);
    }
}

/// Has replicas get all that they lack before the server ends, within a time, and say so: what only stands in a socket may be lost
/// with it. After a restart they go on from there. Writes are held back for good.
pub(crate) fn drain(shared: &Shared, time: Duration) {
    let replication = &shared.replication;
    if time.is_zero() || replication.replicas().is_empty() {
        return;
    }
    let until = Instant::now() + time;
    shared.pause.begin(Instant::now(), i64::MAX as u64, PauseScope::Writes);
    // Batches that are under way may not have seen it.
    let end = shared.alone_unless_long(|_| {
        shared.engine.log.end_admissions();
        let (_, written) = written(shared);
        shared.ask_replicas();
        replication.end_stream();
        (shared.durability.tail(), written)
    });
    let Some((tail, written)) = end else { return };
    replication.feed.wake();
    // A replica of Redis acknowledges what is in front of the question.
    let is_behind = |replica: &Arc<ReplicaClient>| replica.is_behind(tail, written);
    while replication.replicas().iter().any(is_behind) && Instant::now() < until {
        thread::sleep(LOOK_PAUSE);
    }
}
