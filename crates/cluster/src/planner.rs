//! The planner: a pure function from the present state to the next steps.
//!
//! [`plan`] looks at nodes, shards, slots and loads, and returns the steps that may be taken now, each of which is one
//! transaction. The planner keeps no state: the controller calls it again after anything has changed. Two controllers
//! are harmless: every step compares what it was planned for, and is carried out with a comparison and a new version of
//! the controller's record.
//!
//! ```text
//! unassigned nodes ──▶ form shards, or learn        (hosts and zones apart, shortest shard first)
//! too few shards   ──▶ release surplus replicas     (they form the next shard)
//! draining nodes   ──▶ hand over, release, dismiss  (never below what was wanted, while anybody can take the place)
//! too many shards  ──▶ move all slots away, dissolve
//! slots            ──▶ assign, and move from the fullest to the emptiest
//! ```
//!
//! Rules:
//! - The number of shards follows the nodes that are *recorded* as active, never those that are up at the moment: a node that
//!   flaps moves nothing.
//! - A shard changes by one step a round, and is part of one move at a time.
//! - An order to a primary, an operator's or the planner's, is replaced only if it cannot come true.
//! - Slots move only if a shard is further from its share than [`PlanLimits::tolerance`], so that a balanced cluster is
//!   left alone.
//! - Shards whose primaries are away have no part in moves: the others share out what they have among themselves.
//!
//! Complexity: O(nodes × shards) for placement, O(shards × log shards + runs) for slots.

mod placement;
mod slots;

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    HistoryId, MoveId, NodeId, ShardId,
    meta::{Revision, Transaction},
    records::{
        ClusterRecord, Key, Keys, NodeRecord, NodeState, Record, RequestedChange, ShardRecord, SlotsRecord,
    },
    shard::{Facts, Transition, table},
};

/// A node, as the planner sees it.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its record.
    pub record: NodeRecord,
    /// Whether it is up. The caller waits some seconds before it believes that a node is down, or up again.
    pub is_up: bool,
}

/// Everything that a plan rests on.
#[derive(Debug, Clone)]
pub struct View {
    /// The cluster's settings: replicas, durability.
    pub cluster: ClusterRecord,
    /// The nodes.
    pub nodes: BTreeMap<NodeId, Node>,
    /// The shards, with the revisions of their records.
    pub shards: BTreeMap<ShardId, (Revision, ShardRecord)>,
    /// The owners of slots, with the record's revision; 0 while there is no record.
    pub slots: (Revision, SlotsRecord),
    /// Bytes of data of each shard. A shard that is missing has none.
    pub bytes: BTreeMap<ShardId, u64>,
    /// Bytes of slots that take much more than others of their shard, whose [`bytes`](Self::bytes) include them.
    pub heavy: BTreeMap<u16, u64>,
    /// Sources and targets between which no move begins until a pause is over, because the last moves failed.
    pub paused: BTreeSet<(ShardId, ShardId)>,
    /// Moves that are given up because their sources have been away for too long.
    pub stranded: BTreeSet<MoveId>,
}

/// Limits of a plan.
#[derive(Debug, Clone)]
pub struct PlanLimits {
    /// Moves at once, in the whole cluster.
    pub moves_max: usize,
    /// Bytes of one move, as far as it is more than one slot.
    pub move_bytes_max: u64,
    /// How far from its share a shard may be, in hundredths of the share.
    pub tolerance: u64,
}

impl Default for PlanLimits {
    fn default() -> Self {
        Self { moves_max: 4, move_bytes_max: 1 << 30, tolerance: 5 }
    }
}

/// A step: one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A new shard with one node.
    Form {
        /// Its id.
        shard: ShardId,
        /// Its record.
        record: ShardRecord,
    },
    /// A change of a shard by a row of the table.
    Change {
        /// The shard.
        shard: ShardId,
        /// The row.
        transition: Transition,
        /// The node that it is about.
        subject: NodeId,
        /// The revision of the record that is compared.
        compare: Revision,
        /// The new record.
        record: ShardRecord,
    },
    /// A shard that owns no slot ends; its nodes are free.
    Dissolve {
        /// The shard.
        shard: ShardId,
        /// The revision of its record.
        compare: Revision,
        /// The revision of the record of slots, which says that it owns none.
        slots: Revision,
    },
    /// Slots without an owner are assigned, moves begin, and void moves end.
    Slots {
        /// The revision of the record that is compared.
        compare: Revision,
        /// The new record.
        record: SlotsRecord,
    },
}

impl Step {
    /// Returns the transaction.
    pub fn transaction(&self, keys: &Keys) -> Transaction {
        let put =
            |key: String, revision, json| Transaction::default().compare(&*key, revision).put(key, json);
        match self {
            Self::Form { shard, record } => put(keys.text(Key::Shard(*shard)), 0, record.encode()),
            Self::Change { shard, compare, record, .. } => {
                put(keys.text(Key::Shard(*shard)), *compare, record.encode())
            }
            Self::Dissolve { shard, compare, slots } => {
                let key = keys.text(Key::Shard(*shard));
                Transaction::default()
                    .compare(&*key, *compare)
                    .compare(keys.text(Key::Slots), *slots)
                    .delete(key)
            }
            Self::Slots { compare, record } => put(keys.text(Key::Slots), *compare, record.encode()),
        }
    }
}

/// The planner's work sheet.
struct Plan<'a> {
    view: &'a View,
    limits: &'a PlanLimits,
    /// Draws 20 random bytes, for ids.
    draw: &'a mut dyn FnMut() -> [u8; 20],
    /// Shards that are to be emptied and dissolved.
    leaving: BTreeSet<ShardId>,
    /// Shards that have a step in this round.
    touched: BTreeSet<ShardId>,
    /// Nodes that got a place in this round.
    placed: BTreeSet<NodeId>,
    steps: Vec<Step>,
}

/// Returns the steps that may be taken now, in any order. None: everything is as it was asked for.
pub fn plan(view: &View, limits: &PlanLimits, draw: &mut dyn FnMut() -> [u8; 20]) -> Vec<Step> {
    let mut plan = Plan {
        view,
        limits,
        draw,
        leaving: BTreeSet::new(),
        touched: BTreeSet::new(),
        placed: BTreeSet::new(),
        steps: Vec::new(),
    };
    plan.choose_leaving();
    plan.empty_nodes();
    plan.place_nodes();
    plan.move_slots();
    plan.dissolve();
    plan.steps
}

impl Plan<'_> {
    fn is_draining(&self, node: NodeId) -> bool {
        self.view.nodes.get(&node).is_none_or(|node| node.record.state == NodeState::Draining)
    }

    fn is_up(&self, node: NodeId) -> bool {
        self.view.nodes.get(&node).is_some_and(|node| node.is_up)
    }

    /// Nodes that may hold data.
    fn active(&self) -> impl Iterator<Item = NodeId> + '_ {
        let nodes = self.view.nodes.iter();
        nodes.filter(|(_, node)| node.record.state == NodeState::Active).map(|(id, _)| *id)
    }

    /// Nodes of a full shard.
    fn nodes_wanted(&self) -> usize {
        usize::from(self.view.cluster.replicas) + 1
    }

    /// The number of full shards that the nodes are enough for, at least one.
    fn shards_wanted(&self) -> usize {
        (self.active().count() / self.nodes_wanted()).max(1)
    }

    /// Whether the primary is about to obey an order. Another one in its place would undo what it has begun, and two that
    /// replace each other round by round would never be obeyed.
    fn is_ordered(&self, record: &ShardRecord) -> bool {
        let is_other_member = |node| record.in_sync.contains(&node) && node != record.primary;
        match record.requested {
            Some(RequestedChange::HandOver(successor)) => is_other_member(successor) && self.is_up(successor),
            Some(RequestedChange::Release(node)) => {
                is_other_member(node) && record.in_sync.len() > usize::from(self.view.cluster.min_sync)
            }
            None => false,
        }
    }

    /// Adds a step, if the table allows it, the shard has none in this round, and no order is open that it would replace.
    fn change(
        &mut self,
        shard: ShardId,
        transition: Transition,
        subject: NodeId,
        requested: Option<RequestedChange>,
    ) -> bool {
        let Some((revision, record)) = self.view.shards.get(&shard) else { return false };
        let replaces_order = transition == Transition::Order && self.is_ordered(record);
        if self.touched.contains(&shard) || replaces_order {
            return false;
        }
        let active = self.view.nodes.get(&subject).is_some_and(|node| node.record.state == NodeState::Active);
        let facts = Facts { active, requested, ..Facts::default() };
        let Ok(record) = table::change(transition, record, subject, &facts) else { return false };
        self.touched.insert(shard);
        self.steps.push(Step::Change { shard, transition, subject, compare: *revision, record });
        true
    }

    fn form(&mut self, node: NodeId) {
        let shard = ShardId::from_bytes((self.draw)());
        // A node that has data of its own brings it along, as the first of its shard.
        let facts = Facts {
            active: true,
            new_history: Some(HistoryId::from_bytes((self.draw)())),
            ..Facts::default()
        };
        if let Ok(record) = table::form(node, &facts) {
            self.placed.insert(node);
            self.steps.push(Step::Form { shard, record });
        }
    }

    fn new_move(&mut self) -> MoveId {
        MoveId::from_bytes((self.draw)())
    }
}

#[cfg(test)]
mod tests;
