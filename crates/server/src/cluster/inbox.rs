//! The way to the thread `shard`, which drives the machine of the node's shard.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc::Sender,
    },
};

use dunlin_cluster::{
    NodeId, ShardId,
    meta::TransactionOutcome,
    records::{RecordError, SlotsRecord},
    shard::{Known, Local},
};
use mio::Waker;

use super::{
    peer_message::PeerMessage,
    view::{Stored, View},
};
use crate::session::order::AwaitedChange;

/// Inputs that wait for the thread at most; messages beyond are dropped, as a network would.
const INPUTS_MAX: usize = 4096;

/// An input of the thread.
#[derive(Debug)]
pub(crate) enum Input {
    /// The data set as it was when the process started.
    Started(Local),
    /// The cluster's records.
    Records(Arc<View>),
    /// The store is another one than was obeyed until now, and is right: the records that follow may have any numbers.
    Anew,
    /// A message of another node.
    PeerMessage(Box<PeerMessage>),
    /// The outcome of a proposal.
    Outcome(ShardId, u64, TransactionOutcome),
    /// The answer to a read of the shard's record.
    Read(ShardId, u64, Result<Option<Known>, RecordError>),
    /// The record of slots, as it was read in this term; 0 if it may have been read before.
    Slots(u64, Option<Stored<SlotsRecord>>),
    /// The record of slots, as the primary's stream has it before it removes keys; the receiver of the sender waits
    /// until it is in force.
    StreamSlots(Stored<SlotsRecord>, Sender<()>),
    /// Another primary is wanted.
    HandOver,
    /// The process is about to end.
    Ending,
    /// An operator wants this node to be the primary, or another member if it is that.
    Promote(Arc<AwaitedChange>),
    /// An operator wants a node forgotten, which has gone.
    Forget(NodeId, Arc<AwaitedChange>),
    /// An operator wants this node to lead with what it has, although these members are gone.
    Force(BTreeSet<NodeId>),
}

/// A node's own word about its part of the shard's data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShardStatus {
    pub(crate) epoch: u64,
    pub(crate) leads: bool,
    pub(crate) local: Local,
    /// The commit of the primary's last heartbeat of this epoch, and when that came, on the clock of leases.
    pub(crate) heard: Option<(u64, u64)>,
}

/// The way to the thread.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    inputs: Mutex<Vec<Input>>,
    pub(crate) waker: OnceLock<Waker>,
    /// Members that the node could hand its role to; 0 if it has none.
    pub(crate) successors: AtomicUsize,
    /// The node is in the in-sync set, and no primary.
    pub(crate) is_successor: AtomicBool,
    status: Mutex<Option<ShardStatus>>,
}

impl Inbox {
    pub(crate) fn push(&self, input: Input) {
        let mut inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        if inputs.len() >= INPUTS_MAX && matches!(input, Input::PeerMessage(_)) {
            return;
        }
        inputs.push(input);
        let is_first = inputs.len() == 1;
        drop(inputs);
        if is_first {
            self.wake();
        }
    }

    /// A message of another node has come.
    pub(crate) fn deliver(&self, peer_message: PeerMessage) {
        self.push(Input::PeerMessage(Box::new(peer_message)));
    }

    /// Makes the thread look at the data set.
    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            // Waking fails only if the thread has ended.
            let _ = waker.wake();
        }
    }

    /// Asks for another primary. Returns whether there is a member that could be one.
    pub(crate) fn hand_over(&self) -> bool {
        let has_successor = self.successors.load(SeqCst) > 0;
        if has_successor {
            self.push(Input::HandOver);
        }
        has_successor
    }

    /// Asks the shard's primary to hand its role over to this node, by a request in the shard's record, at which the order
    /// ends. `None`: this node may not have it.
    pub(crate) fn promote(&self) -> Option<Arc<AwaitedChange>> {
        self.is_successor.load(SeqCst).then(|| self.order(Input::Promote))
    }

    /// Asks for another primary of the shard in the same way: this node if it is none, another member otherwise. `None`: there
    /// is none.
    pub(crate) fn fail_over(&self) -> Option<Arc<AwaitedChange>> {
        let has_successor = self.is_successor.load(SeqCst) || self.successors.load(SeqCst) > 0;
        has_successor.then(|| self.order(Input::Promote))
    }

    /// Removes the record of a node that has gone, if nothing rests on it.
    pub(crate) fn forget(&self, node: NodeId) -> Arc<AwaitedChange> {
        self.order(|order| Input::Forget(node, order))
    }

    fn order(&self, input: impl FnOnce(Arc<AwaitedChange>) -> Input) -> Arc<AwaitedChange> {
        let order = Arc::new(AwaitedChange::default());
        self.push(input(Arc::clone(&order)));
        order
    }

    /// Makes this node lead its shard with what it has, although these members are gone.
    pub(crate) fn force(&self, absent: BTreeSet<NodeId>) {
        self.push(Input::Force(absent));
    }

    /// This node's own part of its shard's data; `None` while it is of none.
    pub(crate) fn status(&self) -> Option<ShardStatus> {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_status(&self, status: Option<ShardStatus>) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    pub(crate) fn take(&self) -> Vec<Input> {
        std::mem::take(&mut *self.inputs.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
