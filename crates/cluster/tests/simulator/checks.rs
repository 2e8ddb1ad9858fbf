//! Checks at every moment: the invariants I1 to I9 of one shard, by name.

use std::collections::BTreeSet;

use dunlin_cluster::{records::ShardRecord, shard::Transition};

use crate::node::{Entry, Node, agree};

/// A broken invariant.
#[derive(Debug, Clone)]
pub struct Violation {
    pub name: &'static str,
    pub what: String,
}

/// How much was known to be there when a command was sent, and in which generation.
pub type Floor = (u64, usize);

/// Facts that every node may rely on so far.
#[derive(Default)]
pub struct Oracle {
    /// All that was acknowledged, seen, or known to be committed anywhere.
    pub committed: Vec<Entry>,
    /// Writes whose clients were answered that nothing was done.
    pub refused: BTreeSet<u64>,
    /// Counts recoveries that gave something up.
    pub generation: u64,
    pub recoveries: u64,
    pub forced: u64,
    /// The epoch of the last Recover or Force. A node that knows an older epoch may think committed what that gave up.
    decided_epoch: u64,
    pub takeovers: u64,
    pub handovers: u64,
    pub acknowledged: u64,
    /// The store was restored from a backup that a node knows to be older: there are two lines from here on, and the node's own side
    /// is all that is checked (`world/restored.rs`).
    pub is_forked: bool,
}

type Checked = Result<(), Violation>;

fn violation(name: &'static str, what: impl Into<String>) -> Checked {
    Err(Violation { name, what: what.into() })
}

/// At most one node at a time may answer. A node that hands over has the lease still, and holds all commands back.
pub fn leases(nodes: &[Node], now: u64) -> Checked {
    let may_answer = |node: &&Node| {
        let process = node.process.as_ref().filter(|process| !process.parked);
        let shard = process.and_then(|process| process.shard.as_ref());
        shard.is_some_and(|shard| shard.leads() && shard.lease_until_ms() > node.clock(now))
    };
    let mut answering = nodes.iter().filter(may_answer);
    match (answering.next(), answering.next()) {
        (Some(one), Some(other)) => violation("I2", format!("{:?} and {:?} may answer", one.id, other.id)),
        _ => Ok(()),
    }
}

impl Oracle {
    /// A node holds the beginning of its log for committed. All such beginnings are of one log.
    pub fn commit(&mut self, node: &Node, commit: u64) -> Checked {
        if self.is_forked {
            return Ok(());
        }
        let Some(prefix) = node.log.get(..commit as usize) else {
            return violation("I4", format!("{:?} commits {commit} and has {}", node.id, node.log.len()));
        };
        if node.shard().is_some_and(|shard| shard.epoch() < self.decided_epoch) {
            return Ok(());
        }
        if !agree(prefix, &self.committed) {
            return violation("I4", format!("{:?} commits another log at {commit}", node.id));
        }
        if prefix.len() > self.committed.len() {
            self.committed = prefix.to_vec();
        }
        Ok(())
    }

    /// Checks a reply that has seen `seen` of the log, of which `known_before` was known to be there when its command
    /// was sent.
    pub fn reply(&mut self, node: &Node, seen: u64, known_before: usize, is_write: bool) -> Checked {
        if self.is_forked {
            self.acknowledged += u64::from(is_write);
            return Ok(());
        }
        if (seen as usize) < known_before {
            return violation("I2", format!("{:?} answers from {seen} of {known_before}", node.id));
        }
        let Some(prefix) = node.log.get(..seen as usize) else {
            return violation("I4", format!("{:?} answers from what it has no more", node.id));
        };
        if !agree(prefix, &self.committed) {
            return violation("I4", format!("{:?} shows another log at {seen}", node.id));
        }
        if prefix.len() > self.committed.len() {
            self.committed = prefix.to_vec();
        }
        if is_write {
            self.acknowledged += 1;
        }
        Ok(())
    }

    /// A write was acknowledged: every member that the store names has it.
    pub fn acknowledged(&self, record: &ShardRecord, nodes: &[Node], seen: u64) -> Checked {
        if self.is_forked {
            return Ok(());
        }
        for member in nodes.iter().filter(|node| record.in_sync.contains(&node.id)) {
            let is_lost = member.shard().is_some_and(|shard| !shard.local().clean)
                || !member.clean && member.shard().is_none();
            let prefix = member.log.get(..seen as usize);
            if !is_lost && !prefix.is_some_and(|prefix| agree(prefix, &self.committed)) {
                return violation(
                    "I1",
                    format!("{:?} of the in-sync set lacks an acknowledged write at {seen}", member.id),
                );
            }
        }
        Ok(())
    }

    /// The record has changed in the store.
    pub fn record(
        &mut self,
        before: &ShardRecord,
        after: &ShardRecord,
        transition: Transition,
        is_durable: bool,
    ) -> Checked {
        match transition {
            Transition::TakeOver => self.takeovers += 1,
            Transition::HandOver => self.handovers += 1,
            Transition::Recover => self.recoveries += 1,
            Transition::Force => self.forced += 1,
            _ => {}
        }
        if matches!(transition, Transition::Recover | Transition::Force) {
            self.decided_epoch = after.epoch;
        }
        if self.is_forked {
            return Ok(());
        }
        if after.epoch < before.epoch || after.epoch > before.epoch + 1 {
            return violation("I6", format!("epoch {} after {}", after.epoch, before.epoch));
        }
        // If no member has all that was acknowledged, a learner may have most.
        let is_decision = matches!(transition, Transition::Recover | Transition::Force);
        let may_promote = before.in_sync.contains(&after.primary) || is_decision && before.has(after.primary);
        if after.primary != before.primary && !may_promote {
            return violation("I3", format!("{:?} is promoted and was no member", after.primary));
        }
        // A node that takes the shard by Force, and ends before it hears that it has, recovers by itself after its restart.
        if transition == Transition::Recover && is_durable && self.forced == 0 {
            return violation("I1", "a recovery where nothing can be lost");
        }
        Ok(())
    }

    /// Nodes in the same history have the same log.
    pub fn histories(&self, nodes: &[Node]) -> Checked {
        if self.is_forked {
            return Ok(());
        }
        for (at, one) in nodes.iter().enumerate() {
            for other in &nodes[at + 1..] {
                let is_same = one.history.is_some() && one.history == other.history;
                let counts = |node: &Node| node.leads() || node.is_streaming();
                if is_same && counts(one) && counts(other) && !agree(&one.log, &other.log) {
                    return violation(
                        "I5",
                        format!("{:?} and {:?} have one history and two logs", one.id, other.id),
                    );
                }
            }
        }
        Ok(())
    }

    /// At the end, on the primary of a healthy shard.
    pub fn end(&self, primary: &Node) -> Checked {
        if self.is_forked {
            return Ok(());
        }
        if !agree(&primary.log, &self.committed) || primary.log.len() < self.committed.len() {
            return violation("I1", format!("{} of {} are left", primary.log.len(), self.committed.len()));
        }
        if let Some(odd) = primary.log.iter().find(|entry| self.refused.contains(&entry.id)) {
            return violation("I8", format!("write {} was refused, and is there", odd.id));
        }
        Ok(())
    }
}
