//! The only way out of an engine's worker for things that its commands have left there.
//!
//! ```text
//! worker.served  ──▶ messages to the clients that waited
//! worker.garbage ──▶ the thread `maintenance`
//! ```
//! Events, invalidations and messages have left before, under the locks of the commands that have caused them
//! ([`Worker::tell`]); the record has gone into the log's ring.

use std::sync::Arc;

use dunlin_engine::{Served, Worker};
use dunlin_net::WorkerQueues;

use super::{
    WorkerMessage,
    blocked::{self, Unblocked},
    maintenance::Maintenance,
};

/// Sends the replies of clients that were served, and hands over what is freed elsewhere. No lock of the keyspace is held.
#[inline]
pub(crate) fn drain(worker: &mut Worker, maintenance: &Maintenance, queues: &WorkerQueues<WorkerMessage>) {
    if !worker.served.is_empty() {
        send_served(worker, queues);
    }
    if !worker.garbage.is_empty() {
        maintenance.discard(worker.garbage.take());
    }
}

/// Sends the replies of clients that were served.
#[cold]
pub(crate) fn send_served(worker: &mut Worker, queues: &WorkerQueues<WorkerMessage>) {
    for Served { waiter, reply, nanoseconds } in worker.served.drain(..) {
        let message = match reply {
            Some(reply) => {
                WorkerMessage::Unblocked(Arc::new(Unblocked { nanoseconds, ..Unblocked::with(reply) }))
            }
            None => WorkerMessage::Sooner,
        };
        queues.send(blocked::address(waiter.client()), message);
    }
}
