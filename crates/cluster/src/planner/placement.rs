//! Which node is where: shards formed and dissolved, replicas placed, nodes emptied.

use std::{cmp::Reverse, collections::BTreeSet};

use super::{Plan, Step};
use crate::{
    NodeId, ShardId,
    records::{RequestedChange, ShardRecord},
    shard::Transition,
};

impl Plan<'_> {
    /// Nodes of the shard that are to stay.
    fn staying(&self, record: &ShardRecord) -> usize {
        record.nodes().filter(|node| !self.is_draining(*node)).count()
    }

    /// Nodes of the shard that are to stay and are up.
    fn serving(&self, record: &ShardRecord) -> usize {
        record.nodes().filter(|node| !self.is_draining(*node) && self.is_up(*node)).count()
    }

    /// Chooses shards that end, if there are more than nodes for them: those with fewest nodes to stay, then least
    /// data.
    pub(super) fn choose_leaving(&mut self) {
        let surplus = self.view.shards.len().saturating_sub(self.shards_wanted());
        let mut shards: Vec<_> = self
            .view
            .shards
            .iter()
            .map(|(id, (_, record))| {
                let owned = self.view.slots.1.slots.slots_of(*id).len();
                (self.staying(record), self.view.bytes.get(id).copied().unwrap_or(0), owned, *id)
            })
            .collect();
        shards.sort_unstable();
        self.leaving = shards.into_iter().take(surplus).map(|(.., id)| id).collect();
    }

    /// Takes draining nodes out of their shards, one step a shard.
    pub(super) fn empty_nodes(&mut self) {
        let view = self.view;
        for (shard, (_, record)) in &view.shards {
            if self.leaving.contains(shard) {
                continue;
            }
            let draining: Vec<NodeId> = record.nodes().filter(|node| self.is_draining(*node)).collect();
            for node in draining {
                if self.empty_node(*shard, record, node) {
                    break;
                }
            }
            // An order that has come true, or cannot from now on, is taken back by the planner that gave it.
            if let Some(RequestedChange::HandOver(to) | RequestedChange::Release(to)) = record.requested
                && (!record.in_sync.contains(&to) || record.primary == to)
            {
                self.change(*shard, Transition::Order, record.primary, None);
            }
        }
    }

    fn empty_node(&mut self, shard: ShardId, record: &ShardRecord, node: NodeId) -> bool {
        if record.learners.contains(&node) {
            return self.change(shard, Transition::Dismiss, node, None);
        }
        if record.primary == node {
            let others =
                record.in_sync.iter().filter(|other| !self.is_draining(**other) && self.is_up(**other));
            let successor = others
                .copied()
                .max_by_key(|other| (self.view.nodes.get(other).map(|node| node.record.weight), *other));
            return successor.is_some_and(|successor| {
                self.change(shard, Transition::Order, node, Some(RequestedChange::HandOver(successor)))
            });
        }
        let staying =
            record.in_sync.iter().filter(|other| !self.is_draining(**other) && self.is_up(**other)).count();
        let is_replaced = staying >= self.nodes_wanted() || !self.has_more_nodes_for(record);
        let is_enough = staying >= usize::from(self.view.cluster.min_sync);
        is_replaced
            && is_enough
            && self.change(shard, Transition::Order, record.primary, Some(RequestedChange::Release(node)))
    }

    /// Whether any node could still join the shard, or is about to.
    fn has_more_nodes_for(&self, record: &ShardRecord) -> bool {
        let learns = record.learners.iter().any(|node| !self.is_draining(*node) && self.is_up(*node));
        learns || self.unassigned().iter().any(|node| self.is_up(*node)) || self.surplus_node().is_some()
    }

    /// Active nodes that are part of no shard.
    fn unassigned(&self) -> Vec<NodeId> {
        let assigned: BTreeSet<NodeId> =
            self.view.shards.values().flat_map(|(_, record)| record.nodes()).collect();
        self.active().filter(|node| !assigned.contains(node) && !self.placed.contains(node)).collect()
    }

    /// Gives free nodes a shard. If shards are missing and no node is free, a surplus replica is freed.
    pub(super) fn place_nodes(&mut self) {
        let free: Vec<NodeId> = self.unassigned().into_iter().filter(|node| self.is_up(*node)).collect();
        let remaining = self.view.shards.len() - self.leaving.len();
        let mut missing = self.shards_wanted().saturating_sub(remaining);
        let is_short = self.shortest_shard(None).is_some_and(|(serving, ..)| serving < self.nodes_wanted());
        if free.is_empty() && (missing > 0 || is_short) {
            if let Some((shard, node)) = self.surplus_node() {
                self.free(shard, node);
            }
            return;
        }
        for node in free {
            if missing > 0 {
                self.form(node);
                missing -= 1;
            } else if let Some((.., shard)) = self.shortest_shard(Some(node)) {
                // A shard that has had its step gets the node in the next round.
                if self.change(shard, Transition::Learn, node, None) {
                    self.placed.insert(node);
                }
            }
        }
    }

    /// The shard that needs a node most: fewest nodes, then hosts and zones apart from the node's, then most data.
    #[allow(clippy::type_complexity, reason = "a key to sort by")]
    fn shortest_shard(&self, node: Option<NodeId>) -> Option<(usize, bool, bool, Reverse<u64>, ShardId)> {
        let node = node.and_then(|node| self.view.nodes.get(&node));
        let candidates = self
            .view
            .shards
            .iter()
            .filter(|(id, _)| !self.leaving.contains(id) && !self.touched.contains(id));
        candidates
            .map(|(id, (_, record))| {
                let others = || record.nodes().filter_map(|other| self.view.nodes.get(&other));
                let shares_host =
                    node.is_some_and(|node| others().any(|other| other.record.host == node.record.host));
                let shares_zone = node.is_some_and(|node| {
                    !node.record.zone.is_empty()
                        && others().any(|other| other.record.zone == node.record.zone)
                });
                let serving = self.serving(record);
                // Beyond what is wanted, places are as good as each other but for where they are.
                let bytes = self.view.bytes.get(id).copied().unwrap_or(0);
                (serving, shares_host, shares_zone, Reverse(bytes), *id)
            })
            .min()
    }

    /// A replica that its shard does not need: of the shard with most nodes, the one that shares a host or a zone first.
    fn surplus_node(&self) -> Option<(ShardId, NodeId)> {
        let (shard, record) = self
            .view
            .shards
            .iter()
            .filter(|(id, _)| !self.leaving.contains(id) && !self.touched.contains(id))
            .map(|(id, (_, record))| (id, record))
            .filter(|(_, record)| self.serving(record) > self.nodes_wanted())
            .max_by_key(|(id, record)| (self.serving(record), Reverse(**id)))?;
        let candidates = record
            .nodes()
            .filter(|node| *node != record.primary && !self.is_draining(*node) && self.is_up(*node));
        let node = candidates
            .max_by_key(|node| (record.learners.contains(node), self.shares(record, *node), *node))?;
        Some((*shard, node))
    }

    /// Whether the node shares its host, and its zone, with another one of the shard.
    fn shares(&self, record: &ShardRecord, node: NodeId) -> (bool, bool) {
        let Some(own) = self.view.nodes.get(&node) else { return (false, false) };
        let others =
            || record.nodes().filter(|other| *other != node).filter_map(|other| self.view.nodes.get(&other));
        let host = others().any(|other| other.record.host == own.record.host);
        let zone = !own.record.zone.is_empty() && others().any(|other| other.record.zone == own.record.zone);
        (host, zone)
    }

    /// Takes a replica out of its shard: as a learner at once, as a member by an order to the primary.
    fn free(&mut self, shard: ShardId, node: NodeId) -> bool {
        let Some((_, record)) = self.view.shards.get(&shard) else { return false };
        match record.learners.contains(&node) {
            true => self.change(shard, Transition::Dismiss, node, None),
            false => {
                self.change(shard, Transition::Order, record.primary, Some(RequestedChange::Release(node)))
            }
        }
    }

    /// Ends shards that have nothing left.
    pub(super) fn dissolve(&mut self) {
        let (slots_revision, slots) = &self.view.slots;
        if self.steps.iter().any(|step| matches!(step, Step::Slots { .. })) {
            // The record that says that nothing is left is about to be another one.
            return;
        }
        for shard in self.leaving.clone() {
            let is_moving = slots.moving.iter().any(|one| one.from == shard || one.to == shard);
            let Some((compare, _)) = self.view.shards.get(&shard) else { continue };
            let is_last = self.view.shards.len() == 1;
            if slots.slots.slots_of(shard).is_empty() && !is_moving && !is_last && *slots_revision > 0 {
                self.steps.push(Step::Dissolve { shard, compare: *compare, slots: *slots_revision });
            }
        }
    }
}
