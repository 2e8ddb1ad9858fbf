//! [`View`]: the cluster's records as this node has read them last, and the topology that they make.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use dunlin_cluster::{
    MoveId, NodeId, SLOTS, ShardId,
    meta::{Change, Item, Revision},
    records::{
        AliveRecord, ClusterRecord, ControllerRecord, FunctionsRecord, Key, Keys, Mark, Move, MoveProgress,
        NodeRecord, ProgressRecord, Record, RecordError, SettingsRecord, ShardRecord, SlotsRecord,
        UsersRecord,
    },
};

use super::topology::{Addresses, Health, Node, Shard, Topology};

/// Shards of a cluster at most: each has a slot, and some may be about to get one.
const SHARDS_MAX: usize = 2 * SLOTS as usize;

/// A record with the revision of its last change.
pub(crate) type Stored<R> = (Revision, R);

/// The records.
#[derive(Debug, Default, Clone)]
pub(crate) struct View {
    pub(crate) cluster: Option<Stored<ClusterRecord>>,
    pub(crate) nodes: BTreeMap<NodeId, Stored<NodeRecord>>,
    pub(crate) alive: BTreeMap<NodeId, Stored<AliveRecord>>,
    /// The progress of nodes that give slots away.
    pub(crate) progress: BTreeMap<NodeId, Stored<ProgressRecord>>,
    pub(crate) shards: BTreeMap<ShardId, Stored<ShardRecord>>,
    /// The last change of each node.
    pub(crate) marks: BTreeMap<NodeId, Stored<Mark>>,
    pub(crate) slots: Option<Stored<SlotsRecord>>,
    pub(crate) controller: Option<Stored<ControllerRecord>>,
    pub(crate) users: Option<Stored<Arc<UsersRecord>>>,
    pub(crate) functions: Option<Stored<Arc<FunctionsRecord>>>,
    pub(crate) settings: Option<Stored<Arc<SettingsRecord>>>,
    /// Records that this version cannot read, by their keys.
    pub(crate) unreadable: BTreeMap<String, RecordError>,
    /// The last change that it has.
    pub(crate) revision: Revision,
}

/// Records that this node knows, and may know before the view has them.
#[derive(Debug, Default)]
pub(crate) struct Newest<'a> {
    pub(crate) shard: Option<(ShardId, Revision, &'a ShardRecord)>,
    pub(crate) slots: Option<&'a Stored<SlotsRecord>>,
}

impl View {
    /// The records of a snapshot.
    pub(crate) fn of(keys: &Keys, revision: Revision, items: &[Item]) -> Self {
        let mut view = Self { revision, ..Self::default() };
        items.iter().for_each(|item| view.set(keys, &item.key, Some(&item.value), item.revision));
        view
    }

    /// Takes a change over.
    pub(crate) fn apply(&mut self, keys: &Keys, change: &Change) {
        self.revision = self.revision.max(change.revision);
        self.set(keys, &change.key, change.value.as_deref(), change.revision);
    }

    fn set(&mut self, keys: &Keys, name: &str, value: Option<&[u8]>, revision: Revision) {
        let Some(key) = keys.parse(name) else { return };
        self.unreadable.remove(name);
        let unreadable = match key {
            // For eyes only: one that is not understood is none.
            Key::Progress(id) => {
                put_at(&mut self.progress, id, value, revision).is_some().then(|| self.progress.remove(&id));
                None
            }
            Key::Cluster => put(&mut self.cluster, value, revision),
            Key::Slots => put(&mut self.slots, value, revision),
            Key::Controller => put(&mut self.controller, value, revision),
            Key::Node(id) => put_at(&mut self.nodes, id, value, revision),
            Key::Alive(id) => put_at(&mut self.alive, id, value, revision),
            Key::Mark(id) => put_at(&mut self.marks, id, value, revision),
            Key::Shard(id) => put_at(&mut self.shards, id, value, revision),
            Key::Users => put_shared(&mut self.users, value, revision),
            Key::Functions => put_shared(&mut self.functions, value, revision),
            Key::Settings => put_shared(&mut self.settings, value, revision),
        };
        if let Some(error) = unreadable {
            self.unreadable.insert(name.to_owned(), error);
        }
    }

    /// The shard of a node.
    pub(crate) fn shard_of(&self, node: NodeId) -> Option<(ShardId, &Stored<ShardRecord>)> {
        self.shards.iter().find(|(_, (_, shard))| shard.has(node)).map(|(id, shard)| (*id, shard))
    }

    /// Whether a shard that was there has been dissolved: it has no record, and no slot.
    pub(crate) fn has_dissolved(&self, shard: ShardId) -> bool {
        let has_slots = |(_, record): &Stored<SlotsRecord>| !record.slots.slots_of(shard).is_empty();
        !self.shards.contains_key(&shard) && self.slots.as_ref().is_some_and(|slots| !has_slots(slots))
    }

    /// This view with what this node knows before the view has it.
    pub(crate) fn renewed(&self, newest: &Newest<'_>) -> Self {
        let mut view = self.clone();
        if let Some((id, revision, record)) = newest.shard
            && view.shards.get(&id).is_some_and(|(known, _)| revision > *known)
        {
            view.shards.insert(id, (revision, record.clone()));
        }
        if let Some(slots) = newest.slots
            && view.slots.as_ref().is_none_or(|(known, _)| slots.0 > *known)
        {
            view.slots = Some(slots.clone());
        }
        view
    }

    /// The topology, for one of the nodes. `None` while its own record is not among them. `silent` nodes do not answer it.
    pub(crate) fn topology(&self, me: NodeId, silent: &BTreeSet<NodeId>) -> Option<Topology> {
        if !self.nodes.contains_key(&me) || self.shards.len() > SHARDS_MAX {
            return None;
        }
        let shards = || self.shards.iter().map(|(id, (_, shard))| (id, shard));
        // A member that has no record is a member all the same.
        let members = shards().flat_map(|(_, shard)| shard.nodes());
        let ids: BTreeSet<NodeId> = self.nodes.keys().copied().chain(members).collect();
        let places: BTreeMap<NodeId, usize> =
            ids.iter().enumerate().map(|(place, id)| (*id, place)).collect();
        let nodes = ids.iter().map(|id| self.node(*id, *id == me, silent)).collect();
        let mut slots: BTreeMap<ShardId, Vec<(u16, u16)>> = BTreeMap::new();
        for run in self.slots.iter().flat_map(|(_, record)| record.slots.runs()) {
            slots.entry(run.shard).or_default().push((run.slots.first(), run.slots.last()));
        }
        let shards = shards().map(|(id, shard)| Shard {
            id: id.to_string(),
            epoch: shard.epoch,
            primary: places[&shard.primary],
            replicas: shard.nodes().filter(|node| *node != shard.primary).map(|node| places[&node]).collect(),
            slots: Arc::from(slots.remove(id).unwrap_or_default()),
        });
        let shards = shards.collect();
        let imports = self.moves().filter(|one| self.primary_of(one.to, one.to_epoch) == Some(me));
        let imports = imports.map(|one| (one.id.to_string(), one.slots.iter().collect())).collect();
        Some(Topology::new(nodes, shards, places[&me]).importing(imports))
    }

    /// The moves that have begun and not ended.
    pub(crate) fn moves(&self) -> impl Iterator<Item = &Move> {
        self.slots.iter().flat_map(|(_, record)| &record.moving)
    }

    /// How far a move is, as its source says.
    pub(crate) fn progress_of(&self, id: MoveId) -> Option<&MoveProgress> {
        let (_, record) =
            self.progress.values().find(|(_, record)| record.moves.iter().any(|one| one.id == id))?;
        record.moves.iter().find(|one| one.id == id)
    }

    /// The primary of a shard in an epoch, while that lasts.
    pub(crate) fn primary_of(&self, shard: ShardId, epoch: u64) -> Option<NodeId> {
        let (_, shard) = self.shards.get(&shard)?;
        (shard.epoch == epoch).then_some(shard.primary)
    }

    fn node(&self, id: NodeId, is_me: bool, silent: &BTreeSet<NodeId>) -> Node {
        let record = self.nodes.get(&id).map(|(_, record)| record);
        let is_there = is_me || record.is_some() && self.alive.contains_key(&id);
        Node {
            id: id.to_string(),
            addresses: record.map(|record| &record.addresses).map_or_else(Addresses::default, |addresses| {
                Addresses {
                    ip: addresses.host.clone(),
                    port: addresses.port,
                    tls_port: addresses.tls_port,
                    hostname: addresses.hostname.clone(),
                }
            }),
            human_name: record.map_or(String::new(), |record| record.name.clone()),
            zone: record.map_or(String::new(), |record| record.zone.clone()),
            health: if is_there { Health::Online } else { Health::Failed },
            is_silent: !is_there && silent.contains(&id),
            offset: 0,
        }
    }
}

/// Sets a record; the error if it cannot be read, and then the last one that could remains.
fn put<R: Record>(
    place: &mut Option<Stored<R>>,
    value: Option<&[u8]>,
    revision: Revision,
) -> Option<RecordError> {
    match value.map(R::decode) {
        None => *place = None,
        Some(Ok(record)) => *place = Some((revision, record)),
        Some(Err(error)) => return Some(error),
    }
    None
}

/// Puts a record that threads share.
fn put_shared<R: Record>(
    place: &mut Option<Stored<Arc<R>>>,
    value: Option<&[u8]>,
    revision: Revision,
) -> Option<RecordError> {
    let mut decoded = None;
    let error = put(&mut decoded, value, revision);
    if error.is_none() {
        *place = decoded.map(|(revision, record)| (revision, Arc::new(record)));
    }
    error
}

/// Puts a record into a map.
fn put_at<I: Ord, R: Record>(
    map: &mut BTreeMap<I, Stored<R>>,
    id: I,
    value: Option<&[u8]>,
    revision: Revision,
) -> Option<RecordError> {
    match value.map(R::decode) {
        None => drop(map.remove(&id)),
        Some(Ok(record)) => drop(map.insert(id, (revision, record))),
        Some(Err(error)) => return Some(error),
    }
    None
}

#[cfg(test)]
pub(crate) mod tests {
    use dunlin_cluster::{
        BootId, HistoryId, SlotMap, SlotRange,
        records::{self, History, NodeState},
    };

    use super::*;

    pub(crate) fn node_id(number: u8) -> NodeId {
        NodeId::from_bytes([number; 20])
    }

    /// A node's record.
    pub(crate) fn node_record(number: u8, host: &str) -> NodeRecord {
        NodeRecord {
            addresses: records::Addresses {
                host: "127.0.0.1".to_owned(),
                port: 7000 + u16::from(number),
                tls_port: 0,
                replication_port: 0,
                hostname: String::new(),
            },
            name: String::new(),
            host: host.to_owned(),
            zone: String::new(),
            weight: 1,
            version: "0".to_owned(),
            state: NodeState::Active,
            boot: BootId::from_bytes([number; 20]),
            restart: None,
        }
    }

    /// A view of nodes that are alive.
    pub(crate) fn view_of(hosts: &[&str]) -> View {
        let mut view = View::default();
        for (number, host) in (1..).zip(hosts) {
            view.nodes.insert(node_id(number), (number.into(), node_record(number, host)));
            let alive =
                AliveRecord { boot: BootId::from_bytes([number; 20]), used_bytes: 0, heavy: Vec::new() };
            view.alive.insert(node_id(number), (number.into(), alive));
        }
        view
    }

    #[test]
    fn view_makes_a_topology_of_records() {
        let (mut view, nobody) = (view_of(&["a", "b", "c"]), BTreeSet::new());
        assert!(view.topology(node_id(9), &nobody).is_none(), "it has not registered");
        let id = ShardId::from_bytes([50; 20]);
        let record = ShardRecord {
            epoch: 4,
            primary: node_id(1),
            in_sync: [node_id(1)].into(),
            learners: [node_id(2), node_id(8)].into(),
            history: History { id: HistoryId::from_bytes([1; 20]), from: 0, previous: None },
            requested: None,
        };
        view.shards.insert(id, (5, record.clone()));
        let mut slots = SlotMap::default();
        slots.assign(&SlotRange::new(3, 9).unwrap().into(), Some(id));
        view.slots = Some((6, SlotsRecord { slots, ..SlotsRecord::default() }));
        view.alive.remove(&node_id(1));
        let topology = view.topology(node_id(2), &nobody).unwrap();
        assert_eq!(topology.my_slots()[..], [(3, 9)]);
        assert_eq!((topology.failed_shards(), topology.uncovered()), (1, SLOTS - 7));
        let silent = view.topology(node_id(2), &[node_id(1), node_id(3)].into()).unwrap();
        assert_eq!(
            (silent.assigned(), silent.uncovered()),
            (7, SLOTS),
            "its presence has ended, and it does not answer"
        );
        assert!(!topology.is_primary() && topology.is_mine(3) && !topology.is_mine(10));
        let [shard] = topology.shards() else { panic!("one shard") };
        let health = |place: usize| topology.nodes()[place].health;
        assert_eq!((shard.epoch, health(shard.primary)), (4, Health::Failed));
        // Node 8 has no record, and is a member all the same.
        let replicas: Vec<Health> = shard.replicas.iter().map(|place| health(*place)).collect();
        assert_eq!(replicas, [Health::Online, Health::Failed]);
        // The node may know more of its shard than the view.
        let record = ShardRecord { epoch: 5, primary: node_id(2), in_sync: [node_id(2)].into(), ..record };
        for (revision, epoch) in [(5, 4), (6, 5)] {
            let newest = Newest { shard: Some((id, revision, &record)), slots: None };
            let topology = view.renewed(&newest).topology(node_id(2), &nobody).unwrap();
            assert_eq!((topology.my_shard().unwrap().epoch, topology.is_primary()), (epoch, epoch == 5));
        }
    }

    #[test]
    fn view_keeps_the_last_record_that_it_could_read() {
        let keys = Keys::new("c").unwrap();
        let mut view = View::default();
        let key = keys.text(Key::Slots);
        let mut change = |value: Option<&[u8]>, revision| {
            let change = Change { key: key.clone(), value: value.map(<[u8]>::to_vec), revision, lease: None };
            view.apply(&keys, &change);
            (view.slots.is_some(), view.unreadable.len(), view.revision)
        };
        assert_eq!(change(Some(&SlotsRecord::default().encode()), 3), (true, 0, 3));
        assert_eq!(change(Some(b"{\"v\":9}"), 4), (true, 1, 4));
        assert_eq!(change(Some(&SlotsRecord::default().encode()), 5), (true, 0, 5));
        assert_eq!(change(None, 6), (false, 0, 6));
    }
}
