//! Inputs and outputs of a machine: events, actions, and the words about data that both have.

use std::collections::{BTreeMap, BTreeSet};

use super::{Known, Message, Proposal};
use crate::{
    BootId, HistoryId, NodeId,
    lineage::Lineage,
    meta::{Revision, TransactionOutcome},
    records::Restart,
};

/// A node's part of its shard's data.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Local {
    /// The history that it is part of; `None`: it has nothing.
    pub history: Option<HistoryId>,
    /// The offset at which it ends.
    pub end: u64,
    /// How much of it counts: what is synced under `appendfsync always`, so that the next start loads it; everything otherwise.
    /// `held <= end`.
    pub held: u64,
    /// Whether it is all that was ever acknowledged, of this node's own word. A start decides it, and after it the replacement of
    /// the data. To be kept as durably as the data, before that is replaced: the next start has to know it.
    pub clean: bool,
}

/// How a follower gets the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attach {
    /// From where its data ends.
    Stream,
    /// After its data has been cut to this offset: [`Event::Rewound`] is to follow. Until then nothing is applied.
    Rewind(u64),
    /// After a copy of the primary's data has replaced its own: [`Event::Copied`] is to follow.
    Copy,
    /// Not at all: the node is a member by the record, and has lost what it had, or the record does not say how its data belongs to the
    /// history. The node is going to be a learner; in the second case, it may take over before.
    Not,
}

/// An input.
#[derive(Debug, Clone)]
pub enum Event {
    /// Time has passed. To be fed at least every `heartbeat_ms / 2`.
    Tick,
    /// The record, as a watch reports it, or a message. The first one has to come by [`Event::Read`].
    Watched(Known),
    /// The record, as the read with this number shows it, which began after its [`Action::Read`]; `None`: there is none.
    Read(u64, Option<Known>),
    /// The record is one that this server does not understand. The machine stops, visibly.
    Unreadable(String),
    /// The node has obeyed a newer state of the store: its marks, and the revisions of the marks of the record's nodes. To be fed before
    /// the records of that state.
    Obeyed(Lineage, BTreeMap<NodeId, Revision>),
    /// A record of a node: its revision, its process, and what it had of this shard when that started. All nodes of the shard
    /// have to be reported, this one, too.
    Node(NodeId, Revision, BootId, Option<Restart>),
    /// The outcome of a proposal.
    Outcome(u64, TransactionOutcome),
    /// A message of a node.
    Message(NodeId, Message),
    /// The data has grown: the history that it is part of, its end, and how much of it counts. While the stream of the record's
    /// history has not been joined, the data may still grow in the history before.
    Grown(HistoryId, u64, u64),
    /// The data has been cut, as [`Attach::Rewind`] asked.
    Rewound(u64),
    /// The data is a copy of this history, up to this offset; and how much of it counts.
    Copied(HistoryId, u64, u64),
    /// The data is gone: a copy is being loaded in its place. A member has lost what it had.
    Emptied,
    /// The operator, or the end of the process, wants another primary: this one, or the best.
    HandOver(Option<NodeId>),
    /// No command is under way that was let in before [`Action::Park`]: the data ends where it was reported last.
    Rested,
    /// The operator wants this node to lead with what it has, although these members are gone.
    Force(BTreeSet<NodeId>),
    /// The process is about to end. A member asks to be expelled, so that no takeover waits for its lease to run out.
    Ending,
    /// The part of the data that counts does not grow: the disk fails; or it grows again. A member asks to be expelled, and a primary
    /// hands over to one that has room.
    Failing(bool),
}

/// An output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Send a message.
    Send(NodeId, Message),
    /// Run a transaction; [`Event::Outcome`] is to follow.
    Propose(Proposal),
    /// Read the record, linearizably; [`Event::Read`] with the number is to follow unless the store does not answer.
    Read(u64),
    /// This node is the primary: write under this history, from this offset.
    Lead {
        /// The epoch.
        epoch: u64,
        /// The history.
        history: HistoryId,
        /// First offset of the history.
        from: u64,
    },
    /// Another node is. Replies that are withheld have an unknown outcome.
    Follow {
        /// The primary.
        primary: NodeId,
        /// The epoch.
        epoch: u64,
        /// How its stream is joined.
        attach: Attach,
    },
    /// The node is no part of the shard.
    Leave,
    /// Everything up to here is committed.
    Commit(u64),
    /// Hold commands back: a handover begins. [`Event::Rested`] is to follow.
    Park,
    /// Let them go on: it did not come about.
    Unpark,
    /// Write this node's record without the report of a restart that lost data: the node is a learner now.
    ClearReport,
    /// Write into this node's record what it has and that this is not all that it had acknowledged, as it would have at a restart;
    /// only if the shard's record is still of this revision. The node's record is written anew even if it says so already.
    ReportLoss(Restart, Revision),
    /// A line for the operator.
    Warn(String),
}
