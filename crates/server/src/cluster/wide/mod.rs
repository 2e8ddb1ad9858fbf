//! Users, functions and settings, which are the cluster's: the same on all nodes, because all follow the same records.
//!
//! ```text
//! ACL SETUSER · FUNCTION LOAD · CONFIG SET ─▶ order ─▶ thread `cluster-wide`
//!                         read the record ─▶ plan on a copy ─▶ compare-and-set ─▶ in force here ─▶ reply
//!                                                                    │
//! agents of all nodes ◀── watch ── etcd ◀────────────────────────────┘   in force there
//! ```
//!
//! Invariants:
//! - The record is changed first. Without etcd nothing changes anywhere, and the client gets an error.
//! - Nothing older than what is in force is put in force: revisions ascend.
//! - While a record is absent, each node has its own configuration's. The first change makes the record out of this node's.
//! - Functions are put in force by primaries only. Replicas get them in the stream, in their place among the writes.
//! - The last users and settings are kept in the data directory, so that a node that starts without etcd is not open to strangers.

mod functions;
mod kept;
mod settings;
mod thread;
mod users;

use std::sync::{
    Arc, OnceLock,
    mpsc::{Receiver, SyncSender, channel},
};

use dunlin_cluster::{
    ClusterId, NodeId,
    meta::{Meta, Revision},
    records::{FunctionsRecord, Keys, SettingsRecord, UsersRecord},
};

pub(super) use self::kept::load as load_kept;
use self::thread::Job;
use super::view::{Stored, View};
use crate::{session::order::Order, shared::Shared};

/// A change that a client wants.
#[derive(Debug)]
pub(crate) enum WideChange {
    /// `ACL SETUSER`.
    SetUser { name: Vec<u8>, rules: Vec<Vec<u8>> },
    /// `ACL DELUSER`.
    RemoveUsers { names: Vec<Vec<u8>> },
    /// `ACL LOAD`: the lines of all users.
    ReplaceUsers { lines: Vec<Vec<u8>> },
    /// The words of a subcommand of FUNCTION that changes something.
    Functions { words: Vec<Vec<u8>> },
    /// `CONFIG SET` of directives that are the cluster's, with their values as CONFIG GET shows them.
    Settings { pairs: Vec<(&'static str, Vec<u8>)> },
    /// Whether a node is to be emptied.
    Drain { node: NodeId, drains: bool },
    /// Replicas that each shard is to have.
    Replicas { replicas: u8 },
}

/// Orders that wait at most: each is one client's.
const ORDERS_MAX: usize = 1024;

/// The way to the thread.
#[derive(Debug, Default)]
pub(crate) struct Wide {
    jobs: OnceLock<SyncSender<Job>>,
    /// The cluster's id, once its records have been seen.
    cluster: OnceLock<ClusterId>,
}

impl Wide {
    /// Has the thread make a change on all nodes, for a client, which is left connected until it is answered.
    pub(crate) fn order(&self, change: WideChange, client: u64) -> Arc<Order> {
        let order = Arc::new(Order::default());
        let job = Job::Change { change, client, order: Arc::clone(&order) };
        if self.jobs.get().is_none_or(|jobs| jobs.try_send(job).is_err()) {
            order.finish(Err(thread::TOO_MANY));
        }
        order
    }

    /// The records are those of the cluster with this id.
    pub(super) fn found(&self, cluster: ClusterId) {
        let _ = self.cluster.set(cluster);
    }

    /// Starts the thread.
    pub(super) fn start(shared: &Arc<Shared>, meta: Arc<dyn Meta>, keys: Keys) -> Result<(), String> {
        let (sender, jobs) = std::sync::mpsc::sync_channel(ORDERS_MAX);
        // There is one thread.
        let _ = shared.cluster.wide.jobs.set(sender);
        thread::start(shared, meta, keys, jobs)
    }
}

/// The records as the agent has seen them.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    users: Option<Stored<Arc<UsersRecord>>>,
    functions: Option<Stored<Arc<FunctionsRecord>>>,
    settings: Option<Stored<Arc<SettingsRecord>>>,
    /// Whether the node is a primary, which puts functions in force.
    is_primary: bool,
}

impl Seen {
    fn revisions(&self) -> ([Revision; 3], bool) {
        let revision = |stored: Option<Revision>| stored.unwrap_or(0);
        let users = self.users.as_ref().map(|(revision, _)| *revision);
        let functions = self.functions.as_ref().map(|(revision, _)| *revision);
        let settings = self.settings.as_ref().map(|(revision, _)| *revision);
        ([users, functions, settings].map(revision), self.is_primary)
    }
}

/// The agent's end: what it has handed to the thread.
#[derive(Debug, Default)]
pub(super) struct Follower {
    handed: Option<([Revision; 3], bool)>,
}

impl Follower {
    /// Hands the records to the thread where they differ from those handed before. The receiver hears when they are in force.
    pub(super) fn follow(&mut self, shared: &Shared, view: &View, is_primary: bool) -> Option<Receiver<()>> {
        let seen = Seen {
            users: view.users.clone(),
            functions: view.functions.clone(),
            settings: view.settings.clone(),
            is_primary,
        };
        let revisions = seen.revisions();
        if self.handed == Some(revisions) {
            return None;
        }
        let (done, is_done) = channel();
        // Behind many orders, the next look tries again.
        shared.cluster.wide.jobs.get()?.try_send(Job::Follow { seen, done }).ok()?;
        self.handed = Some(revisions);
        Some(is_done)
    }
}
