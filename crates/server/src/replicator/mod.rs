//! Replication at work: the two threads that follow a primary and feed replicas, and those of MIGRATE. The state that they share
//! with workers and INFO is [`Replication`]; the states of a link are the crate `dunlin-replication`'s.
//!
//! ```text
//! primary   workers ─▶ ring ─▶ thread `feeder` ─▶ sockets of replicas        REPLCONF ACK comes through workers
//!                              thread `snapshot` ─▶ the same, for a full resynchronisation
//! replica   thread `replica`: socket ─▶ loader, by way of a spool or not ─▶ keyspace; then stream ─▶ keyspace and ring
//! ```

mod apply;
mod catch_up;
mod failover;
mod feeder;
mod link;
mod migration;
mod roles;
pub(crate) mod shutdown;
mod snapshot;
mod transfer;
mod waiting;

use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    thread::JoinHandle,
    time::{Duration, Instant},
};

pub(crate) use self::{
    failover::{abort as abort_failover, begin as begin_failover, redirection},
    migration::send as send_keys,
};
use crate::{replication::RoleOrder, shared::Shared};

/// How long the threads wait at most for the workers to begin.
const BEGIN_TIME_MAX: Duration = Duration::from_secs(5);

/// The threads of replication.
pub(crate) struct Threads {
    replica: JoinHandle<()>,
    feeder: JoinHandle<()>,
}

impl Threads {
    /// Starts them. [`Replication::attach`] has been called.
    pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<Self> {
        let until = Instant::now() + BEGIN_TIME_MAX;
        // The first worker that runs brings it.
        let queues = loop {
            match shared.durability.queues() {
                Some(queues) => break queues,
                None if Instant::now() < until => std::thread::sleep(Duration::from_micros(200)),
                None => return Err(std::io::Error::other("the workers do not run")),
            }
        };
        let server = Arc::downgrade(shared);
        shared.config.on_change(
            &["min-replicas-to-write", "min-replicas-max-lag"],
            Box::new(move |_, new| {
                server.upgrade().into_iter().for_each(|server| server.replication.ask_for_replicas(new));
                Ok(())
            }),
        );
        let feeder = feeder::start(shared, queues)?;
        let replica = link::start(shared, queues)?;
        let config = shared.config.current();
        if let Some(primary) = config.replicaof.clone() {
            shared.replication.order(RoleOrder::Follow { primary, hands_over: false });
        }
        Ok(Self { replica, feeder })
    }

    /// Ends them.
    pub(crate) fn join(self, shared: &Shared) {
        shared.replication.ended.store(true, SeqCst);
        shared.replication.wake_replica();
        shared.replication.feed.wake();
        for thread in [self.replica, self.feeder] {
            if thread.join().is_err() {
                tracing::error!("a thread of replication failed");
            }
        }
    }
}
