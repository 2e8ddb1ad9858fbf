//! FAILOVER at work: pausing writes, and handing over to a replica.
//!
//! ```text
//! worker: FAILOVER ─▶ pause ─▶ thread `feeder`: gate closed once, GETACK, until a replica has all ─▶ order
//!                              thread `replica`: role changes, PSYNC id offset FAILOVER ─▶ end of the pause
//! ```

use dunlin_engine::command::CommandError;
use dunlin_replication::{FailoverOptions, FailoverStep, Phase};

use crate::{
    config::PrimaryAddress, replication::RoleOrder, session::replica::ReplicaClient, shared::Shared,
    system::host::monotonic_ms, workers::WorkerMessage,
};

/// The error that sends clients to the primary, if they take redirections.
pub(crate) fn redirection(shared: &Shared) -> Option<CommandError> {
    let config = shared.config.current();
    let primary = config.replicaof.as_ref()?;
    Some(CommandError::owned(format!("REDIRECT {}:{}", primary.host, primary.port)))
}

/// Begins a failover; the texts are Redis's.
pub(crate) fn begin(shared: &Shared, options: FailoverOptions) -> Result<(), CommandError> {
    let replication = &shared.replication;
    let mut failover = replication.failover();
    if failover.is_active() {
        return Err(CommandError::text("ERR FAILOVER already in progress."));
    }
    if replication.is_replica() {
        return Err(CommandError::text("ERR FAILOVER is not valid when server is a replica."));
    }
    let replicas = replication.replicas();
    if replicas.is_empty() {
        return Err(CommandError::text("ERR FAILOVER requires connected replicas."));
    }
    if options.force && (options.timeout_ms.is_none() || options.target.is_none()) {
        return Err(CommandError::text(
            "ERR FAILOVER with force option requires both a timeout and target HOST and IP.",
        ));
    }
    if let Some(target) = &options.target {
        let Some(replica) = replicas.iter().find(|replica| replica.address() == *target) else {
            return Err(CommandError::text("ERR FAILOVER target HOST and PORT is not a replica."));
        };
        if replica.peer().phase() != Phase::Online {
            return Err(CommandError::text("ERR FAILOVER target replica is not online."));
        }
    }
    match &options.target {
        Some((host, port)) => tracing::info!("FAILOVER requested to {host}:{port}."),
        None => tracing::info!("FAILOVER requested to any replica."),
    }
    failover.begin(options, monotonic_ms());
    shared.pause.begin_failover();
    replication.feed.wake();
    Ok(())
}

/// FAILOVER ABORT.
pub(crate) fn abort(shared: &Shared) -> Result<(), CommandError> {
    if !shared.replication.is_failing_over() {
        return Err(CommandError::text("ERR No failover in progress."));
    }
    give_up(shared, "Failover manually aborted");
    Ok(())
}

/// Ends a failover that has come to nothing.
pub(super) fn give_up(shared: &Shared, reason: &str) {
    tracing::warn!("The failover is aborted: {reason}");
    if shared.replication.is_handing_over() {
        // Writers are held until the server is a primary again.
        shared.replication.failover().end();
        shared.config.follow(None);
        shared.replication.order(RoleOrder::Promote);
        return;
    }
    end(shared);
}

/// Ends a failover, and the pause with it.
pub(super) fn end(shared: &Shared) {
    shared.replication.failover().end();
    end_pause(shared);
}

/// Lets writers go on, unless there is a failover.
pub(super) fn end_pause(shared: &Shared) {
    if shared.replication.is_failing_over() {
        return;
    }
    shared.pause.end_failover();
    // Behind the store, as with CLIENT UNPAUSE.
    if let Some(queues) = shared.durability.queues() {
        queues.send_to_everyone(WorkerMessage::Unpaused);
    }
}

/// The failover as the thread `feeder` goes on with it.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Writes have been paused for all workers, and replicas were asked how far they are.
    is_quiet: bool,
}

impl Progress {
    /// Looks how far a failover is. To be called often while there is one.
    pub(super) fn advance(&mut self, shared: &Shared) {
        let replication = &shared.replication;
        if !replication.failover().is_waiting() {
            self.is_quiet = false;
            return;
        }
        if !self.is_quiet {
            // Batches that are under way may not have seen the pause. A script that takes long is waited for.
            let quiet = shared.alone_unless_long(|_| {
                shared.engine.log.end_admissions();
                shared.ask_replicas();
            });
            self.is_quiet = quiet.is_some();
        }
        let end = replication.offset(shared.durability.tail());
        let online = |replica: &&std::sync::Arc<ReplicaClient>| {
            !replica.is_gone() && replica.peer().phase() == Phase::Online
        };
        let replicas = replication.replicas();
        let replicas: Vec<_> = replicas
            .iter()
            .filter(online)
            // No replica has all before it is known what that is.
            .filter(|_| self.is_quiet)
            .map(|replica| (replica.address(), replica.peer().acked))
            .collect();
        // Bound first: ending it locks it again.
        let step = replication.failover().tick(monotonic_ms(), end, &replicas);
        match step {
            FailoverStep::Wait => {}
            FailoverStep::GiveUp => give_up(shared, "Replica never caught up before timeout"),
            FailoverStep::HandOver { target: (host, port) } => {
                tracing::info!("Failover target {host}:{port} is to take over from offset {end}.");
                let primary = PrimaryAddress { host, port };
                shared.config.follow(Some(primary.clone()));
                replication.order(RoleOrder::Follow { primary, hands_over: true });
            }
        }
    }
}
