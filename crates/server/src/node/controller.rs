//! The proposals of the node that holds the key `controller`: the first shards, and from then on the planner's steps.
//!
//! Pure; every proposal compares the revisions that it was made of. A proposal compares and rewrites the controller's
//! record, too ([`signed`]): of the proposals that were made of one view at most one comes in, whichever nodes make
//! them and however late they are. Without that, a node would be put in two shards: a new shard's key is its own, and
//! another shard's record is not compared.

use std::collections::{BTreeMap, BTreeSet};

use dunlin_cluster::{
    HistoryId, NodeId, SLOTS, ShardId, SlotRange,
    meta::{LeaseId, Transaction},
    planner::{self, PlanLimits},
    records::{
        ControllerRecord, History, Key, Keys, NodeRecord, NodeState, Record, ShardRecord, SlotsRecord,
    },
};

use super::backoff::Limits;
use crate::cluster::view::{Stored, View};

/// Draws the bytes of an id.
pub(super) type Draw<'a> = &'a mut dyn FnMut() -> [u8; 20];

/// The next change, if there is one to be made. `is_settled` says that no node has come for a while: a cluster is founded of
/// those that are there.
pub(super) fn propose(
    view: &View,
    keys: &Keys,
    is_settled: bool,
    limits: Limits,
    draw: Draw<'_>,
) -> Option<Transaction> {
    let (_, cluster) = view.cluster.as_ref()?;
    let replicas = usize::from(cluster.replicas);
    match view.shards.is_empty() {
        true if is_settled => found(view, keys, replicas, draw),
        true => None,
        false => next_step(view, keys, limits, draw),
    }
}

/// Adds that the proposal is the first of the controller whose record this is since it was written. Any other one that rests on
/// it is void from then on.
pub(super) fn signed(
    transaction: Transaction,
    keys: &Keys,
    (revision, controller): &Stored<ControllerRecord>,
    lease: LeaseId,
) -> Transaction {
    let key = keys.text(Key::Controller);
    transaction.compare(&*key, *revision).put_leased(key, controller.encode(), lease)
}

/// The nodes that are there and have no shard, those that came first first.
fn free_nodes(view: &View) -> Vec<NodeId> {
    let taken: BTreeSet<NodeId> = view.shards.values().flat_map(|(_, shard)| shard.nodes()).collect();
    let is_free = |id: &NodeId| {
        let state = view.nodes[id].1.state;
        !taken.contains(id) && view.alive.contains_key(id) && state != NodeState::Draining
    };
    let mut free: Vec<NodeId> = view.nodes.keys().copied().filter(is_free).collect();
    free.sort_by_key(|id| (view.nodes[id].0, *id));
    free
}

/// Founds a cluster: as many shards as can have their replicas, which share out the slots in equal runs.
fn found(view: &View, keys: &Keys, replicas: usize, draw: Draw<'_>) -> Option<Transaction> {
    let mut free = free_nodes(view);
    if free.is_empty() {
        return None;
    }
    let count = (free.len() / (replicas + 1)).clamp(1, usize::from(SLOTS));
    let primaries = spread(view, &mut free, count);
    let mut shards: Vec<(ShardId, ShardRecord)> = primaries
        .into_iter()
        .map(|primary| {
            let history = History { id: HistoryId::from_bytes(draw()), from: 0, previous: None };
            let record = ShardRecord {
                epoch: 1,
                primary,
                in_sync: [primary].into(),
                learners: BTreeSet::new(),
                history,
                requested: None,
            };
            (ShardId::from_bytes(draw()), record)
        })
        .collect();
    for _ in 0..replicas {
        for (_, shard) in &mut shards {
            if let Some(at) = best_replica(view, &free, shard) {
                shard.learners.insert(free.remove(at));
            }
        }
    }
    let mut slots = SlotsRecord::default();
    for (number, (id, _)) in shards.iter().enumerate() {
        // Rounded as redis-cli does it.
        let bound = |number: usize| ((usize::from(SLOTS) * number + count / 2) / count) as u16;
        let run = SlotRange::new(bound(number), bound(number + 1) - 1).expect("each shard gets a slot");
        slots.slots.assign(&run.into(), Some(*id));
    }
    let mut transaction = Transaction::default().compare(keys.text(Key::Slots), revision_of_slots(view));
    transaction = transaction.put(keys.text(Key::Slots), slots.encode());
    for (id, shard) in &shards {
        let key = keys.text(Key::Shard(*id));
        transaction = transaction.compare(key.clone(), 0).put(key, shard.encode());
    }
    Some(transaction)
}

fn revision_of_slots(view: &View) -> u64 {
    view.slots.as_ref().map_or(0, |(revision, _)| *revision)
}

/// Takes primaries out of the free nodes: on different hosts as far as that goes.
fn spread(view: &View, free: &mut Vec<NodeId>, count: usize) -> Vec<NodeId> {
    let mut on_host: BTreeMap<&str, usize> = BTreeMap::new();
    (0..count)
        .map(|_| {
            let host_of = |id: &NodeId| view.nodes[id].1.host.as_str();
            let (at, _) = free
                .iter()
                .enumerate()
                .min_by_key(|(at, id)| (on_host.get(host_of(id)).copied().unwrap_or(0), *at))
                .expect("there are as many nodes");
            let id = free.remove(at);
            *on_host.entry(host_of(&id)).or_default() += 1;
            id
        })
        .collect()
}

/// The place of the free node that does best as a replica of a shard: in another zone, then on another host.
fn best_replica(view: &View, free: &[NodeId], shard: &ShardRecord) -> Option<usize> {
    let members: Vec<_> = shard.nodes().filter_map(|id| Some(&view.nodes.get(&id)?.1)).collect();
    let badness = |id: &NodeId| {
        let record = &view.nodes[id].1;
        let same_zone = !record.zone.is_empty() && members.iter().any(|member| member.zone == record.zone);
        let same_host = members.iter().any(|member| member.host == record.host);
        (same_zone, same_host)
    };
    (0..free.len()).min_by_key(|at| (badness(&free[*at]), *at))
}

/// The planner's next step (`dunlin_cluster::planner`).
fn next_step(view: &View, keys: &Keys, limits: Limits, draw: Draw<'_>) -> Option<Transaction> {
    let (_, cluster) = view.cluster.as_ref()?;
    // A node without a limit of memory has as much as any.
    let most = view.nodes.values().map(|(_, record)| record.weight).max().unwrap_or(0).max(1);
    let nodes = view.nodes.iter().map(|(id, (_, record))| {
        let weight = if record.weight == 0 { most } else { record.weight };
        (
            *id,
            planner::Node {
                record: NodeRecord { weight, ..record.clone() },
                is_up: view.alive.contains_key(id),
            },
        )
    });
    let slots = view.slots.clone().unwrap_or_default();
    // Loads reported before the last move of slots would make the planner move them once more. The planner does not
    // wait for shards whose primaries are away: it leaves them out.
    let is_told = |(_, shard): &Stored<ShardRecord>| {
        view.alive.get(&shard.primary).is_none_or(|(revision, _)| *revision > slots.0)
    };
    let moves_max = if view.shards.values().all(is_told) { PlanLimits::default().moves_max } else { 0 };
    let bytes = view.shards.iter().filter_map(|(id, (_, shard))| {
        let (_, alive) = view.alive.get(&shard.primary)?;
        Some((*id, alive.used_bytes))
    });
    let heavy = view.shards.iter().flat_map(|(id, (_, shard))| {
        let alive = view.alive.get(&shard.primary).map(|(_, alive)| &alive.heavy[..]).unwrap_or_default();
        let is_own = |(slot, _): &&(u16, u64)| slots.1.slots.owner(*slot) == Some(*id);
        alive.iter().filter(is_own).copied()
    });
    let heavy = heavy.collect();
    let seen = planner::View {
        cluster: cluster.clone(),
        nodes: nodes.collect(),
        shards: view.shards.clone(),
        slots,
        bytes: bytes.collect(),
        heavy,
        paused: limits.paused,
        stranded: limits.stranded,
    };
    let steps = planner::plan(&seen, &PlanLimits { moves_max, ..PlanLimits::default() }, draw);
    steps.first().map(|step| step.transaction(keys))
}

#[cfg(test)]
mod tests {
    use dunlin_cluster::{
        BootId, ClusterId,
        meta::{MemoryMeta, Meta, TransactionOutcome},
        records::{ClusterRecord, Durability},
    };

    use super::*;
    use crate::cluster::view::tests::{node_id, node_record, view_of};

    fn keys() -> Keys {
        Keys::new("c").unwrap()
    }

    fn requested(mut view: View, replicas: u8) -> View {
        let cluster = ClusterRecord {
            id: ClusterId::from_bytes([1; 20]),
            replicas,
            durability: Durability::Async,
            min_sync: 1,
            created_ms: 0,
        };
        view.cluster = Some((1, cluster));
        view
    }

    /// Applies proposals until there is none; the view then.
    fn run(mut view: View, meta: &MemoryMeta) -> View {
        let keys = keys();
        let mut next = 100;
        let mut draw = || {
            next += 1;
            [next; 20]
        };
        for _ in 0..50 {
            let Some(transaction) = propose(&view, &keys, true, Limits::default(), &mut draw) else {
                return view;
            };
            assert!(matches!(meta.commit(&transaction), TransactionOutcome::Done(_)), "{transaction:?}");
            let snapshot = meta.range(keys.prefix()).unwrap();
            let stored = View::of(&keys, snapshot.revision, &snapshot.items);
            (view.shards, view.slots) = (stored.shards, stored.slots);
        }
        panic!("it never ends");
    }

    /// For each shard: its primary, how many replicas, how many slots.
    fn shards(view: &View) -> Vec<(NodeId, usize, u16)> {
        let slots = &view.slots.as_ref().unwrap().1.slots;
        let mut shards: Vec<_> = view
            .shards
            .iter()
            .map(|(id, (_, shard))| (shard.primary, shard.nodes().count() - 1, slots.slots_of(*id).len()))
            .collect();
        shards.sort_unstable();
        shards
    }

    #[test]
    fn controller_founds_as_many_shards_as_have_replicas() {
        for (hosts, replicas, expected) in [
            (&["a"; 1][..], 1, &[(1, 0, 16384)][..]),
            (&["a"; 2], 1, &[(1, 1, 16384)]),
            (&["a"; 3], 0, &[(1, 0, 5461), (2, 0, 5462), (3, 0, 5461)]),
            (&["a"; 6], 1, &[(1, 1, 5461), (2, 1, 5462), (3, 1, 5461)]),
            (&["a", "a", "b", "b"], 1, &[(1, 1, 8192), (3, 1, 8192)]),
        ] {
            let view = run(requested(view_of(hosts), replicas), &MemoryMeta::default());
            let expected: Vec<_> =
                expected.iter().map(|(node, replicas, slots)| (node_id(*node), *replicas, *slots)).collect();
            assert_eq!(shards(&view), expected, "{hosts:?}");
            assert_eq!(view.slots.unwrap().1.slots.unowned().len(), 0);
        }
    }

    #[test]
    fn controller_puts_replicas_on_other_hosts_and_zones() {
        let view = run(requested(view_of(&["a", "a", "b", "b"]), 1), &MemoryMeta::default());
        for (_, shard) in view.shards.values() {
            let hosts: BTreeSet<_> = shard.nodes().map(|id| view.nodes[&id].1.host.clone()).collect();
            assert_eq!(hosts.len(), 2, "{shard:?}");
        }
    }

    #[test]
    fn controller_puts_no_node_in_two_shards_when_an_earlier_proposal_comes_in_late() {
        let (meta, keys) = (MemoryMeta::default(), keys());
        let mut view = run(requested(view_of(&["a"]), 0), &meta);
        join(&mut view, 2, 2);
        let (lease, _) = meta.grant(10).unwrap();
        let controller = ControllerRecord { node: node_id(1), boot: BootId::from_bytes([1; 20]) };
        let key = keys.text(Key::Controller);
        let taken = meta.commit(&Transaction::default().put_leased(key, controller.encode(), lease));
        let TransactionOutcome::Done(revision) = taken else { panic!("{taken:?}") };
        let own = (revision, controller);
        // The outcome of the first is not known: the second is planned from the present records.
        let [late, next] = [201, 202].map(|byte| {
            let planned = propose(&view, &keys, true, Limits::default(), &mut || [byte; 20]).unwrap();
            signed(planned, &keys, &own, lease)
        });
        assert!(matches!(meta.commit(&next), TransactionOutcome::Done(_)));
        assert!(matches!(meta.commit(&late), TransactionOutcome::Refused(_)));
        let snapshot = meta.range(keys.prefix()).unwrap();
        let stored = View::of(&keys, snapshot.revision, &snapshot.items);
        let of_two = stored.shards.values().filter(|(_, shard)| shard.has(node_id(2)));
        assert_eq!(of_two.count(), 1);
        assert_eq!(stored.controller.unwrap().1.node, node_id(1));
    }

    #[test]
    fn controller_waits_until_no_more_nodes_come() {
        let view = requested(view_of(&["a", "b"]), 1);
        assert!(propose(&view, &keys(), false, Limits::default(), &mut || [1; 20]).is_none());
        assert!(
            propose(&view_of(&["a"]), &keys(), true, Limits::default(), &mut || [1; 20]).is_none(),
            "nothing was asked for"
        );
    }

    /// A node comes.
    fn join(view: &mut View, number: u8, revision: u64) {
        view.nodes.insert(node_id(number), (u64::from(number), node_record(number, "b")));
        let (_, alive) = view.alive[&node_id(1)].clone();
        view.alive.insert(node_id(number), (revision, alive));
    }

    #[test]
    fn controller_makes_later_nodes_replicas_until_there_are_enough_for_a_shard() {
        let meta = MemoryMeta::default();
        let mut view = run(requested(view_of(&["a"]), 1), &meta);
        assert_eq!(shards(&view), [(node_id(1), 0, 16384)]);
        view.nodes.insert(node_id(2), (2, node_record(2, "b")));
        let mut view = run(view, &meta);
        assert_eq!(shards(&view), [(node_id(1), 0, 16384)], "a node that is not there is given nothing");
        view.nodes.remove(&node_id(2));
        join(&mut view, 3, 3);
        let mut view = run(view, &meta);
        assert_eq!(shards(&view), [(node_id(1), 1, 16384)], "one replica was asked for");
        join(&mut view, 4, 4);
        join(&mut view, 5, 5);
        let view = run(view, &meta);
        let counts: Vec<(usize, u16)> =
            shards(&view).iter().map(|(_, replicas, slots)| (*replicas, *slots)).collect();
        assert_eq!(counts.iter().map(|(replicas, _)| replicas).sum::<usize>(), 2);
        assert_eq!(counts.len(), 2, "four nodes are two shards");
    }

    #[test]
    fn controller_moves_slots_when_all_loads_are_newer_than_the_last_change() {
        let meta = MemoryMeta::default();
        let mut view = run(requested(view_of(&["a", "b"]), 0), &meta);
        join(&mut view, 3, 3);
        let mut view = run(view, &meta);
        assert!(view.moves().next().is_none(), "the loads are older than the record of slots");
        view.alive.values_mut().for_each(|(revision, _)| *revision = 1_000);
        let view = run(view, &meta);
        let moves: Vec<_> = view.moves().collect();
        assert_eq!(moves.len(), 1, "a shard is part of one move at a time");
        assert!((2_600..2_800).contains(&moves[0].slots.len()), "{moves:?}");
    }

    #[test]
    fn controller_drains_a_node_while_another_shard_has_no_primary() {
        let meta = MemoryMeta::default();
        let mut view = run(requested(view_of(&["a", "b", "c"]), 0), &meta);
        view.nodes.get_mut(&node_id(1)).unwrap().1.state = NodeState::Draining;
        view.alive.remove(&node_id(3));
        let view = run(view, &meta);
        assert!(view.moves().next().is_none(), "the loads are older than the record of slots");
        let mut view = view;
        view.alive.values_mut().for_each(|(revision, _)| *revision = 1_000);
        let view = run(view, &meta);
        let primary = |shard| view.shards[shard].1.primary;
        let moves: Vec<_> = view.moves().map(|one| (primary(&one.from), primary(&one.to))).collect();
        assert_eq!(moves, [(node_id(1), node_id(2))]);
    }
}
