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
//! - Nothing older than what is in force is put in force: revisions ascend, but after an operator's word about a restored store.
//! - While a record is absent, each node has its own configuration's. The first change makes the record out of this node's.
//! - Functions are put in force by primaries only. Replicas get them in the stream, in their place among the writes.
//! - The last users and settings are kept in the data directory, so that a node that starts without etcd is not open to strangers.

mod functions;
mod kept;
mod settings;
mod thread;
mod users;

use std::sync::{
    Arc,
    mpsc::{Receiver, channel, sync_channel},
};

use dunlin_cluster::{
    meta::{Meta, Revision},
    records::Keys,
};

pub(super) use self::kept::load as load_kept;
use crate::{
    cluster::{
        cluster_wide::{Job, Seen},
        view::View,
    },
    shared::Shared,
};

/// The agent's end: what it has handed to the thread.
#[derive(Debug, Default)]
pub(super) struct Follower {
    handed: Option<([Revision; 3], bool)>,
    /// The records may have lower revisions than those in force.
    is_anew: bool,
}

impl Follower {
    /// Begins with records whose revisions say nothing beside those before.
    pub(super) fn anew() -> Self {
        Self { handed: None, is_anew: true }
    }

    /// Hands the records to the thread if they differ from those handed before. The receiver hears when they are in
    /// force.
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
        shared
            .cluster
            .cluster_wide
            .jobs
            .get()?
            .try_send(Job::Follow { seen, done, is_anew: self.is_anew })
            .ok()?;
        (self.handed, self.is_anew) = (Some(revisions), false);
        Some(is_done)
    }
}

/// Orders that wait at most: each is one client's.
const ORDERS_MAX: usize = 1024;

/// Starts the thread.
pub(super) fn start(shared: &Arc<Shared>, meta: Arc<dyn Meta>, keys: Keys) -> Result<(), String> {
    let (sender, jobs) = sync_channel(ORDERS_MAX);
    // There is one thread.
    let _ = shared.cluster.cluster_wide.jobs.set(sender);
    thread::start(shared, meta, keys, jobs)
}
