//! Users, functions and settings, which are the cluster's: the way of a change to the thread `cluster-wide`
//! ([`crate::node::wide`]).

use std::sync::{
    Arc, OnceLock,
    mpsc::{Sender, SyncSender},
};

use dunlin_cluster::{
    ClusterId, NodeId, ShardId, SlotSet,
    meta::Revision,
    records::{FunctionsRecord, SettingsRecord, UsersRecord},
};
use dunlin_engine::command::CommandError;

use super::{descent::Side, view::Stored};
use crate::session::order::AwaitedChange;

const TOO_MANY: CommandError =
    CommandError::text("ERR too many changes of the cluster wait for etcd; try again later");

/// A job of the thread.
#[derive(Debug)]
pub(crate) enum Job {
    /// A client's.
    Change { change: ClusterChange, client: u64, order: Arc<AwaitedChange> },
    /// The agent's.
    Follow {
        seen: Seen,
        done: Sender<()>,
        /// Revisions begin anew.
        is_anew: bool,
    },
}

/// A change that a client wants.
#[derive(Debug)]
pub(crate) enum ClusterChange {
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
    /// Whether the planner leaves slots where they are.
    Pins { slots: SlotSet, are_pinned: bool },
    /// Replicas that each shard is to have.
    Replicas { replicas: u8 },
    /// A restored store, or this node, is right.
    Decide(Side),
    /// A shard without nodes ends, as it is in this epoch: its slots are those of `successor`, or of any shard.
    GiveUp { shard: ShardId, epoch: u64, successor: Option<ShardId> },
}

/// The way to the thread.
#[derive(Debug, Default)]
pub(crate) struct ClusterWide {
    pub(crate) jobs: OnceLock<SyncSender<Job>>,
    /// The cluster's id, once its records have been seen.
    pub(crate) cluster: OnceLock<ClusterId>,
}

impl ClusterWide {
    /// Orders a change on all nodes, for a client, which is left connected until it is answered.
    pub(crate) fn order(&self, change: ClusterChange, client: u64) -> Arc<AwaitedChange> {
        let order = Arc::new(AwaitedChange::default());
        let job = Job::Change { change, client, order: Arc::clone(&order) };
        if self.jobs.get().is_none_or(|jobs| jobs.try_send(job).is_err()) {
            order.finish(Err(TOO_MANY));
        }
        order
    }

    /// The records are those of the cluster with this id.
    pub(crate) fn found(&self, cluster: ClusterId) {
        let _ = self.cluster.set(cluster);
    }
}

/// The records as the agent has seen them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    pub(crate) users: Option<Stored<Arc<UsersRecord>>>,
    pub(crate) functions: Option<Stored<Arc<FunctionsRecord>>>,
    pub(crate) settings: Option<Stored<Arc<SettingsRecord>>>,
    /// Whether the node is a primary, which puts functions in force.
    pub(crate) is_primary: bool,
}

impl Seen {
    pub(crate) fn revisions(&self) -> ([Revision; 3], bool) {
        let revision = |stored: Option<Revision>| stored.unwrap_or(0);
        let users = self.users.as_ref().map(|(revision, _)| *revision);
        let functions = self.functions.as_ref().map(|(revision, _)| *revision);
        let settings = self.settings.as_ref().map(|(revision, _)| *revision);
        ([users, functions, settings].map(revision), self.is_primary)
    }
}
