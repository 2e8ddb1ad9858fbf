//! Changes of the records that an operator asks a node for.

use dunlin_cluster::{
    NodeId,
    meta::Transaction,
    records::{Key, Record, Wish},
    shard::{Facts, Transition, table},
};

use super::{Driver, errands::Errand};

impl Driver {
    /// Writes the wish of an operator into the shard's record; the primary obeys it.
    pub(super) fn order_promotion(&self) {
        let Some(machine) = &self.machine else { return };
        let Some((revision, record)) = machine.shard.known() else { return };
        let me = self.settings.me;
        let other = record.in_sync.iter().copied().find(|node| *node != me);
        let wanted = if record.primary == me { other.unwrap_or(me) } else { me };
        let facts = Facts { wish: Some(Wish::HandOver(wanted)), ..Facts::default() };
        match table::change(Transition::Order, record, me, &facts) {
            Ok(record) => {
                let key = self.settings.keys.text(Key::Shard(machine.id));
                let transaction =
                    Transaction::default().compare(key.clone(), *revision).put(key, record.encode());
                self.errands.run(Errand::Change("CLUSTER FAILOVER".to_owned(), transaction));
            }
            Err(why) => tracing::warn!("CLUSTER FAILOVER waits: {why}"),
        }
    }

    /// Removes the record of a node that is not there, and with it its place among the learners of a shard.
    pub(super) fn order_forgetting(&self, node: NodeId) {
        let Some(view) = &self.view else { return };
        let Some((revision, _)) = view.nodes.get(&node) else { return };
        let keys = &self.settings.keys;
        let key = keys.text(Key::Node(node));
        let mut transaction = Transaction::default()
            .compare(key.clone(), *revision)
            .delete(key)
            .compare(keys.text(Key::Alive(node)), 0);
        if let Some((id, (revision, record))) = view.shard_of(node) {
            match table::change(Transition::Dismiss, record, node, &Facts::default()) {
                Ok(record) => {
                    let key = keys.text(Key::Shard(id));
                    transaction = transaction.compare(key.clone(), *revision).put(key, record.encode());
                }
                Err(why) => {
                    return tracing::warn!("CLUSTER FORGET {node} waits: {why}, and this one is in sync");
                }
            }
        }
        self.errands.run(Errand::Change(format!("CLUSTER FORGET {node}"), transaction));
    }
}
