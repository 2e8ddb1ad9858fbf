//! The primary: leases, commit, who is admitted and expelled, handover.

use std::collections::{BTreeMap, BTreeSet};

use super::{Action, Facts, Fault, Message, Shard, Transition};
use crate::{NodeId, meta::Revision, records::RequestedChange, times};

/// A primary's knowledge of another node.
#[derive(Debug, Clone, Default)]
struct Peer {
    /// The node takes nothing over before this time, by the primary's clock.
    lease_until_ms: u64,
    /// Whether it follows the current history.
    is_attached: bool,
    /// How much of it it has, for good.
    held: u64,
    /// The times that its data was replaced.
    copy: u64,
    lost: bool,
    revision: Revision,
    /// The end of the stream at some time, and that time: a member is behind since then.
    mark: (u64, u64),
}

#[derive(Debug)]
struct HandOver {
    to: NodeId,
    since_ms: u64,
    /// Whether the last command under way has ended.
    is_rested: bool,
}

/// The state of a primary.
#[derive(Debug)]
pub(super) struct Lead {
    /// The epoch in which it began. Echoes of earlier ones are of another process, or another primary.
    epoch: u64,
    since_ms: u64,
    heartbeat_at_ms: u64,
    peers: BTreeMap<NodeId, Peer>,
    handover: Option<HandOver>,
    handover_at_ms: u64,
    /// A handover that was asked for here, and not in the record.
    wanted: Option<Option<NodeId>>,
}

impl Lead {
    /// Notes that a node runs another process: reports of the former process about its data no longer count. The
    /// node's promise stands.
    pub(super) fn forget(&mut self, node: NodeId) {
        if let Some(peer) = self.peers.get_mut(&node) {
            (peer.is_attached, peer.held, peer.copy, peer.lost) = (false, 0, 0, false);
        }
    }
}

impl Shard {
    /// The record has made this node the primary.
    pub(super) fn begin_to_lead(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let Some((_, record)) = &self.known else { return };
        self.local.history = Some(record.history.id);
        self.restarted = false;
        self.lead = Some(Lead {
            epoch: record.epoch,
            since_ms: now_ms,
            heartbeat_at_ms: now_ms,
            peers: BTreeMap::new(),
            handover: None,
            handover_at_ms: now_ms,
            wanted: None,
        });
        self.attach = super::Attach::Stream;
        let (epoch, history) = (record.epoch, record.history);
        actions.push(Action::Lead { epoch, history: history.id, from: history.from });
    }

    /// The record has changed, or a proposal came to nothing, and this node is the primary still.
    pub(super) fn still_leads(&mut self, is_settled: bool, actions: &mut Vec<Action>) {
        let Some(lead) = &mut self.lead else { return };
        if is_settled && lead.handover.take().is_some() {
            actions.push(Action::Unpark);
        }
    }

    /// Returns the other nodes whose leases and data count: the members of the record, before and after a proposal.
    fn counted(&self) -> BTreeSet<NodeId> {
        let Some((_, record)) = &self.known else { return BTreeSet::new() };
        let mut counted = record.in_sync.clone();
        if let Some(pending) = &self.pending {
            counted.extend(&pending.proposal.record.in_sync);
        }
        counted.remove(&self.me);
        counted
    }

    /// Returns the time, by this node's clock, until which it may answer: 0 if it is not the primary, and the end of time if it
    /// is alone.
    pub fn lease_until_ms(&self) -> u64 {
        let Some(lead) = &self.lead else { return 0 };
        if self.is_broken(Fault::ServeWithoutLease) {
            return u64::MAX;
        }
        let held = |node: &NodeId| lead.peers.get(node).map_or(0, |peer| peer.lease_until_ms);
        self.counted().iter().map(held).min().unwrap_or(u64::MAX)
    }

    /// Whether the primary sends this node everything, and not only what is committed. Nodes of the record know how to
    /// go back; others, which may be Redis or Valkey, do not.
    pub fn sends_uncommitted(&self, node: NodeId) -> bool {
        self.record().is_some_and(|record| record.has(node)) || self.counted().contains(&node)
    }

    pub(super) fn take_handover(&mut self, to: Option<NodeId>) {
        if let Some(lead) = &mut self.lead {
            lead.wanted = Some(to);
        }
    }

    pub(super) fn take_rest(&mut self) {
        if let Some(handover) = self.lead.as_mut().and_then(|lead| lead.handover.as_mut()) {
            handover.is_rested = true;
        }
    }

    /// Sends the record by which this node ceases to lead to the others: they hear of it before the store says so.
    pub(super) fn pass_on(&self, actions: &mut Vec<Action>) {
        let Some(known) = &self.known else { return };
        for node in known.1.nodes().filter(|node| *node != self.me) {
            actions.extend(self.stale().map(|stale| Action::Send(node, stale)));
        }
    }

    pub(super) fn take_echo(&mut self, now_ms: u64, from: NodeId, message: Message) {
        let Message::Echo { epoch, sent_ms, boot, revision, history, held, copy, lost } = message else {
            return;
        };
        let is_own = self.nodes.get(&from).is_some_and(|process| process.boot == boot);
        let is_hearsay = self.is_broken(Fault::AdmitOnHearsay);
        let (fault, lease_ms) = (self.options.fault, self.options.lease_ms);
        let own_epoch = self.epoch();
        let (Some((_, record)), Some(lead)) = (&self.known, &mut self.lead) else { return };
        // An echo of another process of the sender, or of this node before it led, is nothing that is known now.
        if epoch < lead.epoch
            || epoch > own_epoch
            || sent_ms < lead.since_ms
            || sent_ms > now_ms
            || !(is_own || is_hearsay)
        {
            return;
        }
        let peer = lead
            .peers
            .entry(from)
            .or_insert_with(|| Peer { mark: (self.local.end, now_ms), ..Peer::default() });
        if copy < peer.copy {
            // Said of data that are gone.
            return;
        }
        if copy > peer.copy {
            let held = if fault == Some(Fault::HeldOutlivesCopy) { peer.held } else { 0 };
            (peer.copy, peer.held) = (copy, held);
        }
        peer.lost = lost;
        peer.revision = peer.revision.max(revision);
        if !lost {
            let since_ms = if fault == Some(Fault::LeaseFromReceipt) { now_ms } else { sent_ms };
            peer.lease_until_ms = peer.lease_until_ms.max(since_ms + lease_ms);
        }
        peer.is_attached = history == Some(record.history.id);
        if peer.is_attached {
            peer.held = peer.held.max(held);
        }
        if peer.held >= peer.mark.0 {
            peer.mark = (self.local.end, now_ms);
        }
    }

    pub(super) fn work_as_primary(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        self.send_heartbeats(now_ms, actions);
        self.commit_what_all_have(actions);
        if self.hand_over(now_ms, actions) || self.pending.is_some() {
            return;
        }
        let Some((_, record)) = &self.known else { return };
        let (members, learners) = (record.in_sync.clone(), record.learners.clone());
        for node in members {
            let (facts, nodes) = self.facts_about(now_ms, node);
            // A new primary has had no time to get leases yet.
            let is_early =
                self.lead.as_ref().is_some_and(|lead| now_ms < lead.since_ms + self.options.lease_ms);
            if (facts.lost || !is_early)
                && self.propose(now_ms, Transition::Expel, node, &facts, nodes, actions)
            {
                return;
            }
        }
        // A recovery made this node the primary in spite of its report. A member that lost data, too, would take the report for
        // today's word, and recover from a primary that lacks nothing.
        if self.clear_report(now_ms, actions) {
            return;
        }
        for node in learners {
            let (facts, nodes) = self.facts_about(now_ms, node);
            // Its process is the one that said so, or the proposal fails. Nothing may be left in its record that would be taken
            // for a member's loss.
            let is_known = self
                .nodes
                .get(&node)
                .is_some_and(|process| process.restart.as_ref().is_none_or(|restart| restart.clean));
            if is_known && self.propose(now_ms, Transition::Admit, node, &facts, nodes, actions) {
                return;
            }
        }
    }

    fn facts_about(&self, now_ms: u64, node: NodeId) -> (Facts, Vec<(NodeId, Revision)>) {
        let peer = self.lead.as_ref().and_then(|lead| lead.peers.get(&node)).cloned().unwrap_or_default();
        // The primary before may have committed more than this one has heard of, but nothing beyond where its history ends.
        let committed = self.commit.max(self.record().map_or(0, |record| record.history.from));
        let facts = Facts {
            lease: now_ms < peer.lease_until_ms,
            caught_up: peer.is_attached && peer.held >= committed,
            lags: peer.held < peer.mark.0 && now_ms >= peer.mark.1 + self.options.lag_ms,
            lost: peer.lost,
            min_sync: self.options.min_sync,
            ..Facts::default()
        };
        let is_learner = self.record().is_some_and(|record| record.learners.contains(&node));
        let process = self.nodes.get(&node).filter(|_| is_learner && !self.is_broken(Fault::AdmitOnHearsay));
        (facts, process.map(|process| (node, process.revision)).into_iter().collect())
    }

    /// Whether another node has the current history up to an offset.
    fn holds(&self, node: NodeId, end: u64) -> bool {
        let peer = self.lead.as_ref().and_then(|lead| lead.peers.get(&node));
        peer.is_some_and(|peer| peer.is_attached && peer.held >= end)
    }

    fn send_heartbeats(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        let (Some(known), Some(lead)) = (&self.known, &mut self.lead) else { return };
        if now_ms < lead.heartbeat_at_ms {
            return;
        }
        lead.heartbeat_at_ms = now_ms + self.options.heartbeat_ms;
        let (revision, record) = known;
        let held = |node: NodeId| lead.peers.get(&node).map_or(0, |peer| peer.held);
        for node in record.nodes().filter(|node| *node != self.me) {
            let is_before = |other: NodeId| {
                (std::cmp::Reverse(held(other)), other) < (std::cmp::Reverse(held(node)), node)
            };
            let others = record.in_sync.iter().filter(|other| **other != self.me);
            let rank = others.filter(|other| is_before(**other)).count() as u32;
            let peer = lead.peers.get(&node);
            if peer.is_some_and(|peer| peer.revision < *revision) {
                let record = Box::new(known.clone());
                let lineage = Box::new(self.lineage.clone());
                actions.push(Action::Send(node, Message::Stale { record, lineage }));
            }
            let is_admitted = self.pending.as_ref().is_some_and(|pending| pending.proposal.subject == node);
            let process = self.nodes.get(&node).filter(|_| !is_admitted);
            let counted = peer.zip(process).map(|(peer, process)| (process.boot, peer.copy));
            let heartbeat = Message::Heartbeat {
                epoch: record.epoch,
                sent_ms: now_ms,
                history: record.history.id,
                commit: self.commit,
                rank,
                counted,
            };
            actions.push(Action::Send(node, heartbeat));
        }
    }

    fn commit_what_all_have(&mut self, actions: &mut Vec<Action>) {
        let (Some((_, record)), Some(lead)) = (&self.known, &self.lead) else { return };
        if record.in_sync.len() < self.options.min_sync {
            return;
        }
        let held =
            |node: &NodeId| lead.peers.get(node).filter(|peer| peer.is_attached).map_or(0, |peer| peer.held);
        let mut offsets: Vec<u64> = self.counted().iter().map(held).collect();
        offsets.push(self.local.held);
        offsets.sort_unstable();
        let at = if self.is_broken(Fault::CommitByMajority) { (offsets.len() - 1) / 2 } else { 0 };
        self.raise_commit(offsets[at].min(self.local.end), actions);
    }

    /// Begins, continues or ends a handover. Returns whether one is under way.
    fn hand_over(&mut self, now_ms: u64, actions: &mut Vec<Action>) -> bool {
        let (Some((_, record)), Some(lead)) = (&self.known, &mut self.lead) else { return false };
        let Some(handover) = &lead.handover else {
            let ordered = match record.requested {
                Some(RequestedChange::HandOver(to)) => Some(to),
                _ => None,
            };
            let is_ready = |node: &NodeId| {
                *node != self.me
                    && record.in_sync.contains(node)
                    && lead
                        .peers
                        .get(node)
                        .is_some_and(|peer| peer.is_attached && now_ms < peer.lease_until_ms)
            };
            let most = || {
                let ready = record.in_sync.iter().filter(|node| is_ready(node));
                ready.max_by_key(|node| lead.peers.get(node).map_or(0, |peer| peer.held)).copied()
            };
            let resigns = self.is_failing && record.in_sync.len() > self.options.min_sync;
            let wanted = lead.wanted.and_then(|wanted| wanted.or_else(most));
            let to = wanted.or(ordered).or_else(|| resigns.then(most)?).filter(is_ready);
            if let (Some(to), true, true) = (to, self.pending.is_none(), now_ms >= lead.handover_at_ms) {
                lead.handover = Some(HandOver { to, since_ms: now_ms, is_rested: false });
                lead.wanted = None;
                actions.push(Action::Park);
                return true;
            }
            return false;
        };
        let HandOver { to, since_ms, is_rested } = *handover;
        if self.pending.is_some() {
            return true;
        }
        if now_ms >= since_ms + self.options.handover_ms {
            lead.handover = None;
            lead.handover_at_ms = now_ms + times::HANDOVER_AGAIN_MS;
            actions.push(Action::Unpark);
            return false;
        }
        let (mut facts, nodes) = self.facts_about(now_ms, to);
        let end = self.local.end;
        facts.resigns = self.is_failing;
        facts.parked = is_rested
            && match self.is_failing {
                true => self.counted().iter().all(|node| self.holds(*node, end)),
                false => self.commit == end && self.local.held == end,
            };
        facts.history = self.local.history;
        facts.end = self.local.end;
        facts.new_history = Some(self.new_history());
        self.propose(now_ms, Transition::HandOver, to, &facts, nodes, actions);
        true
    }
}
