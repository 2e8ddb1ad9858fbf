//! Lines of the store: records that have not come from the one that this node has obeyed, and what ends a machine that meets them.

use super::{Action, Fault, Known, Message, Shard};
use crate::{
    NodeId,
    lineage::{DECISION_EPOCHS, Lineage},
    records::ShardRecord,
};

/// A machine that has stopped.
#[derive(Debug)]
pub(super) struct Halted {
    /// The epoch of the record that contradicts its own, and its marks, if they came along. An operator's decision ends the stop: a
    /// record far above both epochs, in a state that has come from both lines.
    pub(super) by: Option<(u64, Lineage)>,
}

impl Shard {
    /// Whether the machine has stopped because another line of the store contradicted its own, and this record comes after both: an
    /// operator has decided ([`DECISION_EPOCHS`]), and a new machine may begin. Half of them are left for the epochs that a line may
    /// have had beyond those that the operator's node and this one know.
    pub fn may_begin_anew(&self, record: &ShardRecord, lineage: &Lineage) -> bool {
        let by = self.halted.as_ref().and_then(|halted| halted.by.as_ref());
        by.is_some_and(|(epoch, marks)| {
            record.epoch >= (*epoch).max(self.epoch()) + DECISION_EPOCHS / 2
                && lineage.covers(marks)
                && lineage.covers(&self.lineage)
        })
    }

    /// Stops, visibly, and keeps the data.
    pub(super) fn halt(&mut self, why: String, by: Option<(u64, Lineage)>, actions: &mut Vec<Action>) {
        actions.push(Action::Warn(format!("this node stops, and keeps its data: {why}")));
        actions.push(Action::Leave);
        self.lead = None;
        self.halted = Some(Halted { by });
    }

    /// Returns the message with the record that this node knows.
    pub(super) fn stale(&self) -> Option<Message> {
        let record = Box::new(self.known.clone()?);
        Some(Message::Stale { record, lineage: Box::new(self.lineage.clone()) })
    }

    /// Whether a record cannot be of the same line of the store as the one that is known: within a line, revisions and epochs rise
    /// together, and an epoch has one primary. If the record is in a state that has come from all that this node has obeyed, an
    /// operator has decided, and a new machine is to begin ([`Self::anew`]).
    pub fn contradicts(&self, (revision, record): &Known) -> bool {
        self.known.as_ref().is_some_and(|(own_revision, own)| match record.epoch.cmp(&own.epoch) {
            std::cmp::Ordering::Less => revision > own_revision,
            std::cmp::Ordering::Equal => record.primary != own.primary,
            std::cmp::Ordering::Greater => revision < own_revision,
        })
    }

    /// Whether marks are of a line of the store from which this node's has not come, and which has not come from this node's. Without
    /// marks nothing is known of the line.
    fn is_of_another_line(&self, lineage: &Lineage) -> bool {
        lineage.is_empty() || !self.lineage.covers(lineage) && !lineage.covers(&self.lineage)
    }

    /// Takes the record that another node knows, and the marks of its state.
    pub(super) fn take_stale(
        &mut self,
        now_ms: u64,
        from: NodeId,
        record: Known,
        lineage: Lineage,
        actions: &mut Vec<Action>,
    ) {
        // The lower revision is the backup's. A primary that may answer does not yield to that.
        let may_yield = record.0 > self.revision() || now_ms >= self.lease_until_ms();
        if self.contradicts(&record) && self.is_of_another_line(&lineage) && may_yield {
            let line =
                format!("node {from} leads its shard by another record: etcd was restored from a backup");
            return self.halt(line, Some((record.1.epoch, lineage)), actions);
        }
        // The first record has to be read: an older one may have this node for a learner, who owes nothing.
        if self.known.is_none() {
            return;
        }
        if lineage.covers(&self.lineage) || self.is_broken(Fault::ObeyRestored) {
            self.lineage.join(&lineage);
            self.adopt(now_ms, record, actions);
        } else if record.0 > self.revision() {
            // The sender has seen less than this node, or another line of the store. The store knows.
            self.want_read();
        }
    }
}
