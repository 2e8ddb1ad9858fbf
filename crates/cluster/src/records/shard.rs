//! `shards/ID`: the configuration of a shard, the only thing that its members have to agree on.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Record;
use crate::{HistoryId, NodeId};

/// Members and learners of a shard at most, each.
const NODES_MAX: usize = 64;

/// The history of a shard's stream, with the place at which the current one branched off the one before.
///
/// A copy of `previous` goes on with `id` if it ends at `from` or before; what it has beyond is not part of the shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct History {
    /// The current history.
    pub id: HistoryId,
    /// First offset of the current history.
    pub from: u64,
    /// The history before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<HistoryId>,
}

/// An order to the primary, by the planner or an operator. The primary obeys when it may, and clears the order with the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RequestedChange {
    /// Hand the role of primary over to this member.
    HandOver(NodeId),
    /// Take this member out of the shard.
    Release(NodeId),
}

/// A shard's configuration.
///
/// The epoch counts changes of the primary and of the in-sync set. Learners and requested changes come and go within one: they concern no
/// lease and no commit, so a primary that is cut off from the store need not know of them (docs/decisions/0048).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardRecord {
    /// Counts the changes of primary and in-sync set, from 1.
    pub epoch: u64,
    /// The only node that may serve.
    pub primary: NodeId,
    /// The members, the primary among them: each has every committed write.
    pub in_sync: BTreeSet<NodeId>,
    /// Nodes that follow and may lack anything.
    #[serde(default)]
    pub learners: BTreeSet<NodeId>,
    /// The history of the stream.
    pub history: History,
    /// An order to the primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested: Option<RequestedChange>,
}

impl ShardRecord {
    /// Whether the node is a member or a learner.
    pub fn has(&self, node: NodeId) -> bool {
        self.in_sync.contains(&node) || self.learners.contains(&node)
    }

    /// Returns members, then learners.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.in_sync.iter().chain(&self.learners).copied()
    }
}

impl Record for ShardRecord {
    fn check(&self) -> Result<(), String> {
        let fault = if self.epoch == 0 {
            "there is no epoch 0"
        } else if !self.in_sync.contains(&self.primary) {
            "the primary is no member of the in-sync set"
        } else if !self.in_sync.is_disjoint(&self.learners) {
            "a member of the in-sync set is a learner, too"
        } else if self.in_sync.len() > NODES_MAX || self.learners.len() > NODES_MAX {
            "the shard has too many nodes"
        } else if self.history.previous == Some(self.history.id) {
            "the history comes before itself"
        } else {
            return Ok(());
        };
        Err(fault.to_owned())
    }
}
