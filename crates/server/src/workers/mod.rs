//! State that is between the workers: their messages to each other, clients that wait, a pause, and the work that they leave to other
//! threads.

pub(crate) mod blocked;
pub(crate) mod drain;
pub(crate) mod maintenance;
pub(crate) mod migration;
pub(crate) mod offload;
pub(crate) mod pause;
pub(crate) mod rest;
pub(crate) mod shutdown;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use dunlin_engine::BlockedByScript;

use self::{
    blocked::Unblocked,
    migration::Migration,
    offload::{Finished, OffloadedResult},
};

/// Messages between executors.
#[derive(Debug, Clone)]
pub enum WorkerMessage {
    /// To every client: a pause has ended before its time.
    Unpaused,
    /// To a worker: another one is held up, and does not do what any worker may do.
    HeldUp,
    /// To a worker: a client has ended the rest of an empty server.
    Awake,
    /// To a worker: there is room in the log, or in the queue of a snapshot. To a client: for its command, which has
    /// waited for that.
    HasRoom,
    /// To a worker: the log is durable farther than before. To a client: as far as it waits for.
    Durable,
    /// To a client: its command that has waited has been answered.
    Unblocked(Arc<Unblocked>),
    /// To a client that waits for keys or listens to shard channels: the slots of some may have left this node.
    SlotsMoved,
    /// To a client: what it waits for comes of age earlier than it was to.
    Sooner,
    /// To a client: what became of its command that was offloaded.
    Finished(Arc<Finished>),
    /// To a client: its command that was offloaded has come too late, and waits, at most this long.
    Waits {
        /// Without, for ever.
        timeout: Option<Duration>,
        /// How long it has taken so far.
        nanoseconds: u64,
    },
    /// To a worker: a command of one of its clients has computed what it will store. Taken once.
    Computed(Arc<Mutex<Option<OffloadedResult>>>),
    /// To a worker: the thread that applies a primary's stream leaves it the clients that a script keeps from being
    /// served.
    BlockedByScript(Arc<BlockedByScript>),
    /// To a worker: keys of one of its clients have been sent to another server. Taken once.
    Migrated(Arc<Mutex<Option<Box<Migration>>>>),
}
