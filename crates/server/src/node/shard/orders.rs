//! Changes of the records that an operator asks a node for. The thread `cluster-etcd` makes them on what the records say then.

use std::sync::Arc;

use dunlin_cluster::{
    NodeId, ShardId,
    meta::{Revision, Transaction, TransactionOutcome},
    records::{Key, NodeRecord, Record, RequestedChange, ShardRecord},
    shard::{Facts, Transition, table},
};
use dunlin_engine::command::CommandError;

use super::{
    Driver,
    etcd_calls::{EtcdCall, Runner},
};
use crate::session::order::{AwaitedChange, Carried};

/// Attempts at a change while others are faster.
const ATTEMPTS_MAX: usize = 20;

impl Driver {
    /// Writes an operator's order into the shard's record; the primary obeys it.
    pub(super) fn order_promotion(&self, order: Arc<AwaitedChange>) {
        match &self.machine {
            Some(machine) => self.etcd_calls.run(EtcdCall::Promote(machine.id, order)),
            None => order.finish(Err(CommandError::text("ERR this node has no shard"))),
        }
    }

    /// Removes the record of a node that is not there, and with it its place among the learners of a shard.
    pub(super) fn order_forgetting(&self, node: NodeId, order: Arc<AwaitedChange>) {
        let shard = self.view.as_ref().and_then(|view| view.shard_of(node)).map(|(id, _)| id);
        self.etcd_calls.run(EtcdCall::Forget(node, shard, order));
    }
}

impl Runner {
    pub(super) fn promote(&self, shard: ShardId) -> Result<Carried, CommandError> {
        self.change("CLUSTER FAILOVER", || {
            let (key, revision, record) = self.need::<ShardRecord>(Key::Shard(shard))?;
            let other = record.in_sync.iter().copied().find(|node| *node != self.me);
            let wanted = if record.primary == self.me { other.unwrap_or(self.me) } else { self.me };
            let facts = Facts { requested: Some(RequestedChange::HandOver(wanted)), ..Facts::default() };
            let record = table::change(Transition::Order, &record, self.me, &facts)
                .map_err(|why| CommandError::owned(format!("ERR nobody else may lead the shard: {why}")))?;
            Ok(Transaction::default().compare(key.clone(), revision).put(key, record.encode()))
        })
    }

    pub(super) fn forget(&self, node: NodeId, shard: Option<ShardId>) -> Result<Carried, CommandError> {
        self.change("CLUSTER FORGET", || {
            let alive = self.keys.text(Key::Alive(node));
            let snapshot = self.meta.get(&alive).map_err(|error| unchanged(&error))?;
            if !snapshot.items.is_empty() {
                return Err(CommandError::text("ERR The node is there: stop it before it is forgotten"));
            }
            let (key, revision, _) = self.need::<NodeRecord>(Key::Node(node))?;
            let transaction =
                Transaction::default().compare(key.clone(), revision).delete(key).compare(alive, 0);
            let Some(shard) = shard else { return Ok(transaction) };
            let (key, revision, record) = self.need::<ShardRecord>(Key::Shard(shard))?;
            if !record.has(node) {
                return Ok(transaction);
            }
            let record =
                table::change(Transition::Dismiss, &record, node, &Facts::default()).map_err(|why| {
                    CommandError::owned(format!("ERR The node is a member of a shard that is in sync: {why}"))
                })?;
            Ok(transaction.compare(key.clone(), revision).put(key, record.encode()))
        })
    }

    /// Makes a change, planned anew if others were faster.
    fn change(
        &self,
        what: &str,
        plan: impl Fn() -> Result<Transaction, CommandError>,
    ) -> Result<Carried, CommandError> {
        for _ in 0..ATTEMPTS_MAX {
            match self.meta.commit(&plan()?) {
                TransactionOutcome::Done(_) => {
                    tracing::info!("{what}: done");
                    return Ok(Carried::Ok);
                }
                TransactionOutcome::Refused(_) => {}
                TransactionOutcome::Unknown(why) => {
                    return Err(CommandError::owned(format!(
                        "ERR etcd has not said what became of it, look at it: {why}"
                    )));
                }
                TransactionOutcome::Failed(error) => return Err(unchanged(&error)),
            }
        }
        Err(CommandError::text("ERR the records are changed by others all the time; try again"))
    }

    /// A record that has to be there, with its key and revision.
    fn need<R: Record>(&self, key: Key) -> Result<(String, Revision, R), CommandError> {
        let key = self.keys.text(key);
        let snapshot = self.meta.get(&key).map_err(|error| unchanged(&error))?;
        let gone = || CommandError::owned(format!("ERR etcd has no record '{key}'"));
        let item = snapshot.items.first().ok_or_else(gone)?;
        let record = R::decode(&item.value).map_err(|error| {
            CommandError::owned(format!("ERR etcd's record '{key}' is not understood: {error}"))
        })?;
        Ok((key, item.revision, record))
    }
}

fn unchanged(error: &dyn std::fmt::Display) -> CommandError {
    CommandError::owned(format!("ERR nothing was changed: {error}"))
}
