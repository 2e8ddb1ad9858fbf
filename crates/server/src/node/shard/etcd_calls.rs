//! The thread `cluster-etcd`: makes the calls for a shard's machine that block.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use dunlin_cluster::{
    NodeId, ShardId,
    meta::{Meta, Revision, Transaction, TransactionOutcome},
    records::{Key, Keys, NodeRecord, Record, RecordError, Restart, SlotsRecord},
    shard::{Known, Proposal},
};

use super::{Restarts, Settings};
use crate::{
    cluster::{inbox::Input, view::Stored},
    session::order::AwaitedChange,
    shared::Shared,
};

/// A call.
#[derive(Debug)]
pub(super) enum EtcdCall {
    /// Makes a change of a shard's record. [`Input::Outcome`] follows.
    Propose(ShardId, Box<Proposal>),
    /// Reads a shard's record. [`Input::Read`] follows, unless etcd fails.
    Read(ShardId, u64),
    /// Reads who owns which slots. [`Input::Slots`] follows, unless etcd fails.
    Slots(u64),
    /// Writes the node's record without the report of a restart that has lost data.
    ClearReport(NodeId, Box<Stored<NodeRecord>>),
    /// Writes such a report, if the shard's record is of this revision.
    ReportLoss(NodeId, Box<(Stored<NodeRecord>, Restart)>, ShardId, Revision),
    /// Writes an operator's request for another primary into the shard's record.
    Promote(ShardId, Arc<AwaitedChange>),
    /// Removes the record of a node that has gone, which is of this shard.
    Forget(NodeId, Option<ShardId>, Arc<AwaitedChange>),
}

/// The driver's end.
pub(super) struct EtcdCalls(Sender<EtcdCall>);

impl EtcdCalls {
    /// Makes a call to etcd, on the thread.
    pub(super) fn run(&self, etcd_call: EtcdCall) {
        // The thread ends with the sender only.
        let _ = self.0.send(etcd_call);
    }

    /// Starts the thread. The thread ends with the value.
    pub(super) fn start(shared: &Arc<Shared>, settings: &Settings) -> Result<Self, String> {
        let (sender, receiver) = channel();
        let runner = Runner {
            me: settings.me,
            shared: Arc::clone(shared),
            meta: Arc::clone(&settings.meta),
            keys: settings.keys.clone(),
            restarts: Arc::clone(&settings.restarts),
        };
        thread::Builder::new()
            .name("cluster-etcd".to_owned())
            .spawn(move || runner.run(&receiver))
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Self(sender))
    }
}

pub(super) struct Runner {
    pub(super) me: NodeId,
    shared: Arc<Shared>,
    pub(super) meta: Arc<dyn Meta>,
    pub(super) keys: Keys,
    restarts: Arc<Restarts>,
}

impl Runner {
    fn run(&self, etcd_calls: &Receiver<EtcdCall>) {
        while let Ok(first) = etcd_calls.recv() {
            let mut waiting = vec![first];
            waiting.extend(etcd_calls.try_iter());
            // Only the newest read of a kind is waited for: it shows what the ones before would.
            let last = |is_kind: fn(&EtcdCall) -> bool| waiting.iter().rposition(is_kind);
            let last_reads = [
                last(|etcd_call| matches!(etcd_call, EtcdCall::Read(..))),
                last(|etcd_call| matches!(etcd_call, EtcdCall::Slots(_))),
            ];
            for (at, etcd_call) in waiting.into_iter().enumerate() {
                let is_read = matches!(etcd_call, EtcdCall::Read(..) | EtcdCall::Slots(_));
                if !is_read || last_reads.contains(&Some(at)) {
                    self.make(etcd_call);
                }
            }
        }
    }

    fn make(&self, etcd_call: EtcdCall) {
        let answer = match etcd_call {
            EtcdCall::Propose(shard, proposal) => {
                let outcome = self.meta.commit(&proposal.transaction(&self.keys, shard));
                Some(Input::Outcome(shard, proposal.number, outcome))
            }
            EtcdCall::Read(shard, number) => self.read(Key::Shard(shard)).map(|read| {
                let read: Result<Option<Known>, _> = read;
                Input::Read(shard, number, read)
            }),
            EtcdCall::Slots(term) => match self.read::<SlotsRecord>(Key::Slots) {
                Some(Ok(slots)) => Some(Input::Slots(term, slots)),
                Some(Err(error)) => {
                    tracing::error!("Cluster: the record of slots: {error}");
                    None
                }
                None => None,
            },
            EtcdCall::ClearReport(node, known) => {
                self.clear_report(node, *known);
                None
            }
            EtcdCall::ReportLoss(node, report, shard, compare) => {
                let ((revision, record), restart) = *report;
                self.report_loss(node, (revision, record), restart, (Key::Shard(shard), compare));
                None
            }
            EtcdCall::Promote(shard, order) => {
                order.finish(self.promote(shard));
                None
            }
            EtcdCall::Forget(node, shard, order) => {
                order.finish(self.forget(node, shard));
                None
            }
        };
        answer.into_iter().for_each(|answer| self.shared.cluster.shard.push(answer));
    }

    /// Reads a record; `None` if etcd fails.
    fn read<R: Record>(&self, key: Key) -> Option<Result<Option<Stored<R>>, RecordError>> {
        let snapshot = self.meta.get(&self.keys.text(key)).ok()?;
        let item = snapshot.items.first();
        Some(item.map(|item| Ok((item.revision, R::decode(&item.value)?))).transpose())
    }

    fn report_loss(
        &self,
        node: NodeId,
        (revision, mut record): Stored<NodeRecord>,
        restart: Restart,
        (shard, compare): (Key, Revision),
    ) {
        record.restart = Some(restart.clone());
        let key = self.keys.text(Key::Node(node));
        let transaction = Transaction::default()
            .compare(self.keys.text(shard), compare)
            .compare(key.clone(), revision)
            .put(key, record.encode());
        // If the change fails, the machine asks again.
        if let TransactionOutcome::Done(_) = self.meta.commit(&transaction) {
            self.restarts.set(Some(restart));
        }
    }

    fn clear_report(&self, node: NodeId, (revision, mut record): Stored<NodeRecord>) {
        // First here: the agent writes the record as it should be.
        self.restarts.set(None);
        record.restart = None;
        let key = self.keys.text(Key::Node(node));
        let transaction = Transaction::default().compare(key.clone(), revision).put(key, record.encode());
        // If the change fails, the machine asks again.
        let _ = self.meta.commit(&transaction);
    }
}
