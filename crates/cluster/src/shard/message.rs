//! Messages between the nodes of a shard, over the replication links and beside the stream.

use crate::{
    BootId, HistoryId, NodeId, ShardId,
    lineage::Lineage,
    meta::{Revision, Transaction},
    records::{Key, Keys, Record, ShardRecord},
};

use super::Transition;

/// A record and its revision.
pub type Known = (Revision, ShardRecord);

/// A message. Any may be lost, delayed, doubled or overtaken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The primary to each node of its record: every tenth of a lease.
    Heartbeat {
        /// The sender's epoch.
        epoch: u64,
        /// The sender's monotonic clock, in milliseconds. The receiver does not interpret it, and sends it back.
        sent_ms: u64,
        /// The history of the stream.
        history: HistoryId,
        /// Everything up to here is committed.
        commit: u64,
        /// The receiver's place among the members, by what they have. The first takes over first.
        rank: u32,
        /// The receiver's process, and which copy of its data the sender counts: the sender has dropped all that came
        /// before it, and no admission is under way that rests on that.
        counted: Option<(BootId, u64)>,
    },
    /// The answer: the sender promises not to take over for a while.
    Echo {
        /// The epoch of the heartbeat.
        epoch: u64,
        /// The time of the heartbeat, by its sender's clock.
        sent_ms: u64,
        /// The sender's process.
        boot: BootId,
        /// The revision of the record that the sender knows.
        revision: Revision,
        /// The history that its data is part of.
        history: Option<HistoryId>,
        /// How much of it it has, for good.
        held: u64,
        /// Counts the times that the process's data was replaced: what it had before counts for nothing.
        copy: u64,
        /// Whether it has lost what it had acknowledged, and promises nothing.
        lost: bool,
    },
    /// The record that the sender knows: the answer to a heartbeat of an older epoch, the first word of a primary that
    /// has handed over, and a primary's word to a node that knows an older record.
    Stale {
        /// The record.
        record: Box<Known>,
        /// The marks of the newest state of the store that the sender has obeyed, of this record or a later one.
        lineage: Box<Lineage>,
    },
}

/// A transaction that the machine wants: the record's new state, if nothing that it rests on has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// Its number, for [`super::Event::Outcome`].
    pub number: u64,
    /// The row of the table.
    pub transition: Transition,
    /// The node that changes its role.
    pub subject: NodeId,
    /// The revision of the shard's record that is compared. `None` only under a [`super::Fault`].
    pub compare: Option<Revision>,
    /// Records of nodes whose revisions are compared, too: their processes are still the ones that this rests on.
    pub nodes: Vec<(NodeId, Revision)>,
    /// Marks of nodes of the record that have to be there still: revisions of two lines of the store may be the same by chance.
    pub marks: Vec<(NodeId, Revision)>,
    /// Nodes that must not be there.
    pub absent: Vec<NodeId>,
    /// The new record.
    pub record: ShardRecord,
}

impl Proposal {
    /// Returns the transaction that makes the change.
    pub fn transaction(&self, keys: &Keys, shard: ShardId) -> Transaction {
        let key = keys.text(Key::Shard(shard));
        let mut transaction = Transaction::default().put(&*key, self.record.encode());
        if let Some(revision) = self.compare {
            transaction = transaction.compare(key, revision);
        }
        let absent = self.absent.iter().map(|node| (Key::Alive(*node), 0));
        let marks = self.marks.iter().map(|(node, revision)| (Key::Mark(*node), *revision));
        let nodes = self.nodes.iter().map(|(node, revision)| (Key::Node(*node), *revision));
        let compared = nodes.chain(marks).chain(absent);
        compared
            .fold(transaction, |transaction, (key, revision)| transaction.compare(keys.text(key), revision))
    }
}
