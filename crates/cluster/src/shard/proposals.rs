//! Changes of the record that this node proposes, until their outcome is known.

use super::{Action, Facts, Fault, Proposal, Shard, Transition, table};
use crate::{
    HistoryId, NodeId,
    meta::{Revision, TransactionOutcome},
    records::ShardRecord,
};

/// A proposal whose outcome is not known yet.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub(super) proposal: Proposal,
    /// The revision that it compares.
    pub(super) compare: Revision,
    /// The number of the first copy that was sent.
    pub(super) first: u64,
    /// The answer was lost: the record has to be read.
    pub(super) is_unknown: bool,
    /// A copy of it was refused, by the record or by another key that it compares.
    pub(super) was_refused: bool,
    /// Another key that it compares has moved on: seen after this read had begun.
    pub(super) void_since: Option<u64>,
}

impl Shard {
    /// Whether the outcome of a takeover by this node is open. Meanwhile the node applies no stream, cuts nothing and takes no copy: its
    /// new history begins where its data ended.
    pub fn takes_over(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| {
            let transition = pending.proposal.transition;
            matches!(transition, Transition::TakeOver | Transition::Recover | Transition::Force)
        })
    }

    /// Proposes a transition, if the table allows it.
    pub(super) fn propose(
        &mut self,
        now_ms: u64,
        transition: Transition,
        subject: NodeId,
        facts: &Facts,
        mut nodes: Vec<(NodeId, Revision)>,
        actions: &mut Vec<Action>,
    ) -> bool {
        let Some((revision, before)) = &self.known else { return false };
        if self.pending.is_some() || now_ms < self.propose_at_ms {
            return false;
        }
        let marks = self.marks_of(before);
        let Ok(record) = table::change(transition, before, subject, facts) else { return false };
        // A proposal must not outlive its process: the next one may have got further, and would be cut back by it.
        let own = self.nodes.get(&self.me).filter(|own| own.boot == self.boot);
        let Some(own) = own.map(|own| own.revision) else { return false };
        if !self.is_broken(Fault::ProposeAfterDeath) && nodes.iter().all(|(node, _)| *node != self.me) {
            nodes.push((self.me, own));
        }
        self.next_number += 1;
        let is_blind = transition == Transition::TakeOver && self.is_broken(Fault::TakeOverWithoutCompare);
        let compare = (!is_blind).then_some(*revision);
        let absent = facts.absent.iter().copied().collect();
        let proposal =
            Proposal { number: self.next_number, transition, subject, compare, nodes, marks, absent, record };
        self.pending = Some(Pending {
            compare: *revision,
            first: proposal.number,
            is_unknown: false,
            was_refused: false,
            void_since: None,
            proposal: proposal.clone(),
        });
        actions.push(Action::Propose(proposal));
        true
    }

    /// Returns the marks that a change of this record compares: those of its other nodes. This node's own is the signer's to compare.
    fn marks_of(&self, record: &ShardRecord) -> Vec<(NodeId, Revision)> {
        let Some(marks) = self.marks.as_ref().filter(|_| !self.is_broken(Fault::ObeyRestored)) else {
            return Vec::new();
        };
        let others = record.nodes().filter(|node| *node != self.me);
        others.map(|node| (node, marks.get(&node).copied().unwrap_or(0))).collect()
    }

    /// Returns a history's id that nothing has had: no other process makes it, and this one makes it for one epoch.
    pub(super) fn new_history(&self) -> HistoryId {
        let mut bytes = self.boot.bytes();
        let epoch = self.epoch().to_be_bytes();
        bytes[12..].iter_mut().zip(epoch).for_each(|(byte, epoch)| *byte ^= epoch);
        HistoryId::from_bytes(bytes)
    }

    pub(super) fn take_outcome(
        &mut self,
        now_ms: u64,
        number: u64,
        outcome: TransactionOutcome,
        actions: &mut Vec<Action>,
    ) {
        let Some(pending) = self.pending.as_mut().filter(|pending| pending.proposal.number == number) else {
            return;
        };
        match outcome {
            TransactionOutcome::Done(revision) => {
                let record = pending.proposal.record.clone();
                self.adopt(now_ms, (revision, record), actions);
            }
            // Nothing was sent before it. A member that is there again has the word.
            TransactionOutcome::Refused(_)
                if pending.proposal.transition == Transition::Force
                    && pending.proposal.number == pending.first =>
            {
                pending.was_refused = true;
                self.give_up(actions);
            }
            // An earlier copy of it may have succeeded, so the record decides.
            TransactionOutcome::Refused(_) => {
                (pending.is_unknown, pending.was_refused) = (true, true);
                self.want_read();
            }
            TransactionOutcome::Unknown(_) if self.options.fault == Some(Fault::UnknownIsFailure) => {
                self.give_up(actions)
            }
            TransactionOutcome::Unknown(_) => {
                pending.is_unknown = true;
                self.want_read();
            }
            // This copy was never sent, which says nothing of the ones before it.
            TransactionOutcome::Failed(_) if pending.proposal.number != pending.first => {
                pending.is_unknown = true;
                self.want_read();
            }
            TransactionOutcome::Failed(error) => {
                actions.push(Action::Warn(format!("{:?} failed: {error}", pending.proposal.transition)));
                self.give_up(actions);
            }
        }
        self.propose_at_ms = now_ms + self.options.retry_ms;
    }

    /// Settles a proposal whose outcome is unknown, if the record as a read with this number shows it at this revision allows that.
    pub(super) fn settle(&mut self, number: u64, revision: Revision, actions: &mut Vec<Action>) {
        let Some(pending) = self.pending.as_mut().filter(|pending| pending.is_unknown) else { return };
        // An answer that was overtaken settles nothing.
        self.read_wanted = true;
        if pending.compare != revision {
            return;
        }
        let has_moved = |(node, revision): &(NodeId, Revision)| {
            self.nodes.get(node).is_some_and(|process| process.revision > *revision)
        };
        if pending.proposal.nodes.iter().any(has_moved) {
            // From now on no copy of it can succeed. A copy may have succeeded before: a read decides that began after this was seen.
            match pending.void_since {
                Some(read) if number > read => self.give_up(actions),
                Some(_) => {}
                None => pending.void_since = Some(self.reads),
            }
            return;
        }
        // A member that was absent is there, and may be so for good. The member may also be absent once more, when a lost copy comes: that is
        // void as soon as this node's own record has moved, which it compares, too.
        if pending.proposal.transition == Transition::Force && pending.was_refused {
            return self.report(actions);
        }
        // The record has not moved: a lost proposal may still come, and so may this copy of it. Of the two, one wins, or neither.
        self.read_wanted = false;
        self.next_number += 1;
        // Nodes of the record may have changed other records meanwhile.
        let marks = self.record().map(|record| self.marks_of(record)).unwrap_or_default();
        let Some(pending) = &mut self.pending else { return };
        (pending.is_unknown, pending.proposal.number, pending.proposal.marks) =
            (false, self.next_number, marks);
        actions.push(Action::Propose(pending.proposal.clone()));
    }

    /// Whether the record is what this proposal made of it.
    pub(super) fn won(&self, settled: Option<&Pending>) -> bool {
        let record = self.record();
        settled.is_some_and(|settled| {
            let is_decision = matches!(settled.proposal.transition, Transition::Recover | Transition::Force);
            is_decision && record == Some(&settled.proposal.record)
        })
    }

    /// The pending proposal is known to be nothing.
    fn give_up(&mut self, actions: &mut Vec<Action>) {
        let pending = self.pending.take();
        let is_force = |pending: &Pending| pending.proposal.transition == Transition::Force;
        if pending.is_some_and(|pending| is_force(&pending) && pending.was_refused) {
            let line = "the shard was not taken: its record, or the presence of a member, has changed";
            actions.push(Action::Warn(line.to_owned()));
        }
        self.read_wanted = false;
        if self.lead.is_some() {
            self.still_leads(true, actions);
        }
    }
}
