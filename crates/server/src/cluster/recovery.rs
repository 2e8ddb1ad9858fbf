//! A shard whose members are gone: what an operator may decide, and what is lost then. Pure.
//!
//! ```text
//! some members are gone, another node of the shard has data     it leads with what it has        Transition::Force
//! all nodes are gone                                            the slots are others', empty     give_up
//! ```
//!
//! Both are refused while any node is there that could go on with more: the transactions compare that the others are gone.

use std::collections::BTreeSet;

use dunlin_cluster::{
    NodeId, ShardId,
    meta::Transaction,
    records::{Key, Keys, Record, Restart, ShardRecord},
};

use super::{inbox::ShardStatus, view::View};

/// The report of a node's last start, if it is about this shard.
pub(crate) fn report_of(view: &View, shard: ShardId, node: NodeId) -> Option<&Restart> {
    let (_, record) = view.nodes.get(&node)?;
    record.restart.as_ref().filter(|restart| restart.shard == shard)
}

/// Whether a node's presence is recorded.
pub(crate) fn is_there(view: &View, node: NodeId) -> bool {
    view.alive.contains_key(&node)
}

/// The members that are gone, if this node may take its shard with what it has; the reason, if it may not.
pub(crate) fn absent_members(
    view: &View,
    status: &ShardStatus,
    me: NodeId,
) -> Result<BTreeSet<NodeId>, String> {
    let (id, (_, record)) = view.shard_of(me).ok_or("this node is no part of a shard")?;
    if status.leads {
        return Err("this node leads its shard".to_owned());
    }
    let others = || record.in_sync.iter().copied().filter(|node| *node != me);
    let is_lost = |node| report_of(view, id, node).is_some_and(|restart| !restart.clean);
    if let Some(node) = others().find(|node| is_there(view, *node) && !is_lost(*node)) {
        return Err(format!(
            "node {node} is there, or was {} s ago, and has all that was acknowledged: it leads, or takes over by itself",
            super::ALIVE_MS / 1000
        ));
    }
    if record.in_sync.contains(&me) && status.local.clean {
        return Err("this node has all that was acknowledged: it takes over by itself".to_owned());
    }
    let absent: BTreeSet<NodeId> = others().filter(|node| !is_there(view, *node)).collect();
    if absent.is_empty() {
        return Err("all members have come back: the one that has most goes on by itself".to_owned());
    }
    if status.local.history.is_none() {
        return Err("this node has no whole copy of the shard's data".to_owned());
    }
    Ok(absent)
}

/// The transaction by which a shard without nodes ends: its slots are those of another shard, or of any, and have no keys. Its nodes
/// are forgotten, so that one that comes back is refused, and keeps its data.
pub(crate) fn give_up(
    view: &View,
    keys: &Keys,
    shard: ShardId,
    epoch: u64,
    successor: Option<ShardId>,
) -> Result<Transaction, String> {
    let (revision, record): &(u64, ShardRecord) =
        view.shards.get(&shard).ok_or_else(|| format!("there is no shard {shard}"))?;
    if record.epoch != epoch {
        return Err(format!("the shard is in epoch {} by now: look at it again", record.epoch));
    }
    if let Some(node) = record.nodes().find(|node| is_there(view, *node)) {
        return Err(format!(
            "node {node} of the shard is there, or was {} s ago: have it go on instead",
            super::ALIVE_MS / 1000
        ));
    }
    if successor.is_some_and(|successor| successor == shard || !view.shards.contains_key(&successor)) {
        return Err("the slots need another shard that is there".to_owned());
    }
    let (slots_revision, mut slots) = view.slots.clone().ok_or("there is no record of slots")?;
    slots.moving.retain(|one| one.from != shard && one.to != shard);
    let owned = slots.slots.slots_of(shard);
    slots.slots.assign(&owned, successor);
    let key = keys.text(Key::Shard(shard));
    let mut transaction = Transaction::default()
        .compare(keys.text(Key::Slots), slots_revision)
        .put(keys.text(Key::Slots), slots.encode())
        .compare(key.clone(), *revision)
        .delete(key);
    if let Some(successor) = successor {
        // That shard must not end at the same time.
        transaction = transaction.compare(keys.text(Key::Shard(successor)), view.shards[&successor].0);
    }
    for node in record.nodes() {
        transaction = transaction.compare(keys.text(Key::Alive(node)), 0);
        if let Some((revision, _)) = view.nodes.get(&node) {
            let key = keys.text(Key::Node(node));
            transaction = transaction.compare(key.clone(), *revision).delete(key);
        }
    }
    Ok(transaction)
}

#[cfg(test)]
mod tests {
    use dunlin_cluster::{
        HistoryId, SlotMap, SlotRange,
        meta::{MemoryMeta, Meta, TransactionOutcome},
        records::{History, SlotsRecord},
        shard::Local,
    };

    use super::*;
    use crate::cluster::view::tests::{node_id, view_of};

    fn shard(number: u8) -> ShardId {
        ShardId::from_bytes([number; 20])
    }

    fn history(number: u8) -> HistoryId {
        HistoryId::from_bytes([number; 20])
    }

    /// Members 1 and 2, learner 3; only the learner is there.
    fn lost() -> View {
        let mut view = view_of(&["a", "b", "c"]);
        let record = ShardRecord {
            epoch: 4,
            primary: node_id(1),
            in_sync: [node_id(1), node_id(2)].into(),
            learners: [node_id(3)].into(),
            history: History { id: history(1), from: 0, previous: None },
            requested: None,
        };
        view.shards.insert(shard(50), (5, record));
        view.alive.retain(|node, _| *node == node_id(3));
        view
    }

    fn status(clean: bool, has_data: bool) -> ShardStatus {
        let history = has_data.then(|| history(1));
        let local = Local { history, end: 7, held: 7, clean };
        ShardStatus { epoch: 4, leads: false, local, heard: None }
    }

    fn restarted(view: &mut View, node: u8, clean: bool) {
        let (_, record) = view.nodes.get_mut(&node_id(node)).unwrap();
        record.restart = Some(Restart { shard: shard(50), epoch: 4, history: history(1), offset: 5, clean });
    }

    #[test]
    fn shard_is_taken_only_from_members_that_are_gone() {
        let view = lost();
        let absent = |view: &View, me: u8, clean| absent_members(view, &status(clean, true), node_id(me));
        assert_eq!(absent(&view, 3, true), Ok([node_id(1), node_id(2)].into()));
        assert!(
            absent_members(&view, &status(true, false), node_id(3)).unwrap_err().contains("no whole copy")
        );
        let mut there = lost();
        there.alive.insert(node_id(2), view_of(&["a"]).alive[&node_id(1)].clone());
        assert!(absent(&there, 3, true).unwrap_err().contains("takes over by itself"));
        restarted(&mut there, 2, false);
        assert_eq!(absent(&there, 3, true), Ok([node_id(1)].into()), "it has lost something, too");
        assert_eq!(absent(&there, 2, false), Ok([node_id(1)].into()));
        assert!(absent(&there, 2, true).unwrap_err().contains("takes over by itself"));
        there.alive.insert(node_id(1), view_of(&["a"]).alive[&node_id(1)].clone());
        restarted(&mut there, 1, false);
        assert!(absent(&there, 3, true).unwrap_err().contains("all members have come back"));
        let leading = ShardStatus { leads: true, ..status(true, true) };
        assert!(absent_members(&view, &leading, node_id(3)).unwrap_err().contains("leads its shard"));
    }

    #[test]
    fn shard_without_nodes_leaves_its_slots_to_another() {
        let keys = Keys::new("c").unwrap();
        let meta = MemoryMeta::default();
        let mut view = lost();
        let other = ShardRecord {
            primary: node_id(9),
            in_sync: [node_id(9)].into(),
            learners: BTreeSet::new(),
            ..view.shards[&shard(50)].1.clone()
        };
        let mut slots = SlotMap::default();
        slots.assign(&SlotRange::new(0, 99).unwrap().into(), Some(shard(50)));
        slots.assign(&SlotRange::new(100, 199).unwrap().into(), Some(shard(60)));
        let put = |key: Key, value: Vec<u8>| {
            assert!(matches!(
                meta.commit(&Transaction::default().put(keys.text(key), value)),
                TransactionOutcome::Done(_)
            ));
        };
        put(Key::Slots, SlotsRecord { slots, ..SlotsRecord::default() }.encode());
        put(Key::Shard(shard(60)), other.encode());
        put(Key::Shard(shard(50)), view.shards[&shard(50)].1.encode());
        put(Key::Node(node_id(1)), view.nodes[&node_id(1)].1.encode());
        let read = || {
            let snapshot = meta.range(keys.prefix()).unwrap();
            View::of(&keys, snapshot.revision, &snapshot.items)
        };
        view = View { alive: view.alive, ..read() };
        let refusal =
            |view: &View, epoch, successor| give_up(view, &keys, shard(50), epoch, successor).unwrap_err();
        assert!(refusal(&view, 4, None).contains("is there"), "the learner has data");
        view.alive.clear();
        assert!(refusal(&view, 3, None).contains("in epoch 4"));
        assert!(refusal(&view, 4, Some(shard(50))).contains("another shard"));
        assert!(refusal(&view, 4, Some(shard(70))).contains("another shard"));
        let transaction = give_up(&view, &keys, shard(50), 4, Some(shard(60))).unwrap();
        assert!(matches!(meta.commit(&transaction), TransactionOutcome::Done(_)));
        let after = read();
        assert_eq!(after.shards.len(), 1);
        assert!(after.nodes.is_empty(), "its nodes are forgotten");
        assert_eq!(after.slots.unwrap().1.slots.slots_of(shard(60)).len(), 200);
        assert!(!matches!(meta.commit(&transaction), TransactionOutcome::Done(_)), "once");
    }
}
