//! [`Overview`]: what the cluster's records say beside the topology, for operators.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_cluster::{
    NodeId,
    meta::Revision,
    records::{Durability, MoveProgress, NodeState, ShardRecord},
};

use super::view::View;

/// The records' contents beside the topology.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Overview {
    /// The revision of etcd's whose records these are, at least.
    pub(crate) revision: Revision,
    /// Replicas that each shard is to have.
    pub(crate) replicas: u8,
    pub(crate) durability: &'static str,
    pub(crate) min_sync: u8,
    /// The node that plans; empty for none.
    pub(crate) controller: String,
    /// By id.
    pub(crate) nodes: BTreeMap<String, NodeOverview>,
    pub(crate) moves: Vec<MoveOverview>,
    /// The last moves that have failed, between two nodes each.
    pub(crate) failed_moves: Vec<FailedMove>,
    /// Slots that the planner leaves where they are, as `0-99,200`.
    pub(crate) pinned: String,
}

/// A node's record.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeOverview {
    /// The machine.
    pub(crate) host: String,
    pub(crate) state: &'static str,
    pub(crate) version: String,
    /// Its part in its shard: `in-sync`, `learner`, or empty.
    pub(crate) sync: &'static str,
    /// Bytes that it may use; 0 for no limit.
    pub(crate) weight: u64,
}

/// A move that has begun.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MoveOverview {
    pub(crate) id: String,
    /// As `0-99,200`.
    pub(crate) slots: String,
    /// A shard.
    pub(crate) from: String,
    /// A shard.
    pub(crate) to: String,
    /// How far it is, as its source says; `None` if it has not said anything yet.
    pub(crate) progress: Option<MoveProgress>,
}

/// Slots that have stayed with their source.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FailedMove {
    /// A node.
    pub(crate) from: String,
    /// A node.
    pub(crate) to: String,
    pub(crate) why: String,
}

impl Overview {
    /// The contents of these records.
    pub(crate) fn of(view: &View) -> Self {
        let mut overview = Self { revision: view.revision, ..Self::default() };
        if let Some((_, cluster)) = &view.cluster {
            overview.replicas = cluster.replicas;
            overview.min_sync = cluster.min_sync;
            overview.durability = match cluster.durability {
                Durability::Async => "async",
                Durability::Sync => "sync",
            };
        }
        if let Some((_, controller)) = &view.controller {
            overview.controller = controller.node.to_string();
        }
        let members = |of: fn(&ShardRecord) -> &BTreeSet<NodeId>| {
            view.shards.values().flat_map(move |(_, shard)| of(shard)).copied().collect::<BTreeSet<_>>()
        };
        let (in_sync, learners) = (members(|shard| &shard.in_sync), members(|shard| &shard.learners));
        for (id, (_, record)) in &view.nodes {
            let state = match record.state {
                NodeState::Joining => "joining",
                NodeState::Active => "active",
                NodeState::Draining => "draining",
            };
            let node = NodeOverview {
                host: record.host.clone(),
                state,
                version: record.version.clone(),
                sync: match (in_sync.contains(id), learners.contains(id)) {
                    (true, _) => "in-sync",
                    (false, true) => "learner",
                    (false, false) => "",
                },
                weight: record.weight,
            };
            overview.nodes.insert(id.to_string(), node);
        }
        if let Some((_, record)) = &view.slots {
            overview.pinned = record.pinned.to_string();
        }
        for one in view.slots.iter().flat_map(|(_, record)| &record.moving) {
            overview.moves.push(MoveOverview {
                id: one.id.to_string(),
                slots: one.slots.to_string(),
                from: one.from.to_string(),
                to: one.to.to_string(),
                progress: view.progress_of(one.id).cloned(),
            });
        }
        for (source, (_, record)) in &view.progress {
            let failed = record.failed.iter().map(|one| FailedMove {
                from: source.to_string(),
                to: one.to.to_string(),
                why: one.why.clone(),
            });
            overview.failed_moves.extend(failed);
        }
        overview
    }
}
