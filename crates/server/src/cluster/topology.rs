//! [`Topology`]: the cluster as this node knows it at one moment.
//!
//! ```text
//! nodes    [ n0 · n1 · n2 · n3 ]          each with its shard
//! shards   [ s0: n0 ← n3 · s1: n1 · s2: n2 ]   primary ← replicas, runs of slots
//! owners   slot → shard                  16,384 numbers of two bytes
//! ```
//!
//! A topology never changes; the node's agent makes another one of the cluster's records. Invariants: every slot of a run is
//! the shard's in `owners`; a node is a member of one shard at most.

use std::sync::Arc;

use dunlin_engine::keyspace::{SLOTS, SlotBits};

/// No shard has the slot.
const NOBODY: u16 = u16::MAX;

/// How a node stands, as far as this one knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    /// The node renews its presence.
    Online,
    /// The node's presence has run out.
    Failed,
}

impl Health {
    /// The word in `CLUSTER SHARDS`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Failed => "failed",
        }
    }
}

/// The addresses of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) ip: String,
    /// 0 for none.
    pub(crate) port: u16,
    /// 0 for none.
    pub(crate) tls_port: u16,
    /// Empty for none.
    pub(crate) hostname: String,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    /// 40 hexadecimal digits.
    pub(crate) id: String,
    pub(crate) addresses: Addresses,
    /// For people; empty for none.
    pub(crate) human_name: String,
    /// Empty for none.
    pub(crate) zone: String,
    pub(crate) health: Health,
    /// Whether it is failed, and does not answer this node either ([`super::silence`]).
    pub(crate) is_silent: bool,
    /// Bytes of its data set's history, as last recorded.
    pub(crate) offset: u64,
}

/// A shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shard {
    /// 40 hexadecimal digits.
    pub(crate) id: String,
    pub(crate) epoch: u64,
    /// A place among the nodes.
    pub(crate) primary: usize,
    /// Places among the nodes.
    pub(crate) replicas: Vec<usize>,
    /// Runs of slots, first and last, ascending.
    pub(crate) slots: Arc<[(u16, u16)]>,
}

impl Shard {
    /// The primary, then the replicas.
    pub(crate) fn members(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.primary).chain(self.replicas.iter().copied())
    }
}

/// The cluster as this node knows it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Topology {
    nodes: Vec<Node>,
    shards: Vec<Shard>,
    /// By slot: a place among the shards, or [`NOBODY`].
    owners: Box<[u16]>,
    /// By slot, a bit: whether any request with keys there runs here. None of a cluster that does not serve all slots, whose
    /// requests are asked more.
    served: Box<[u64]>,
    assigned: u16,
    /// Slots among them whose shard's primary is not silent.
    covered: u16,
    /// By node: the place of its shard, or [`NOBODY`].
    shard_of: Box<[u16]>,
    /// This node's place among the nodes.
    me: usize,
    /// This node's shard, once it has one.
    my_shard: Option<usize>,
    /// Slots that this node imports, being the primary, by the ids of their moves.
    imports: Vec<(String, SlotBits)>,
}

impl Topology {
    /// Makes a topology. `me` is this node's place among the nodes.
    ///
    /// # Panics
    /// If a shard names a node that is not there, or a slot that is none, or there are 65,535 shards. The records have been
    /// checked.
    pub(crate) fn new(nodes: Vec<Node>, shards: Vec<Shard>, me: usize) -> Self {
        let mut owners = vec![NOBODY; SLOTS.into()].into_boxed_slice();
        assert!(shards.len() < usize::from(NOBODY), "a shard's place fits");
        let mut shard_of = vec![NOBODY; nodes.len()].into_boxed_slice();
        let (mut assigned, mut covered) = (0, 0);
        for (place, shard) in shards.iter().enumerate() {
            shard.members().for_each(|node| shard_of[node] = place as u16);
            for (first, last) in shard.slots.iter() {
                owners[usize::from(*first)..=usize::from(*last)].fill(place as u16);
                assigned += last - first + 1;
                covered += if nodes[shard.primary].is_silent { 0 } else { last - first + 1 };
            }
        }
        let my_shard = Some(shard_of[me]).filter(|shard| *shard != NOBODY).map(usize::from);
        let mut served = vec![0; usize::from(SLOTS / 64)].into_boxed_slice();
        if let Some(shard) = my_shard.map(|place| &shards[place])
            && shard.primary == me
            && covered == SLOTS
        {
            let slots = shard.slots.iter().flat_map(|(first, last)| *first..=*last);
            slots.for_each(|slot| served[usize::from(slot / 64)] |= 1 << (slot % 64));
        }
        let imports = Vec::new();
        Self { nodes, shards, owners, served, assigned, covered, shard_of, me, my_shard, imports }
    }

    /// Whether any request whose keys are in this slot runs here. If not, [`super::route`] knows more.
    #[inline]
    pub(crate) fn serves(&self, slot: u16) -> bool {
        self.served[usize::from(slot / 64)] >> (slot % 64) & 1 == 1
    }

    /// All nodes.
    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// All shards.
    pub(crate) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// Adds the slots that this node imports, by the ids of their moves.
    pub(crate) fn importing(self, imports: Vec<(String, SlotBits)>) -> Self {
        Self { imports, ..self }
    }

    /// Whether a move to this node goes on.
    pub(crate) fn imports(&self, id: &str) -> bool {
        self.import(id).is_some()
    }

    /// The ids of the moves to this node that go on.
    pub(crate) fn import_ids(&self) -> impl Iterator<Item = &str> {
        self.imports.iter().map(|(id, _)| &**id)
    }

    /// The slots of a move to this node.
    pub(crate) fn import(&self, id: &str) -> Option<&SlotBits> {
        self.imports.iter().find(|(other, _)| other == id).map(|(_, slots)| slots)
    }

    /// Whether every move to this node goes on in another topology, which has all slots of this node.
    pub(crate) fn is_part_of(&self, other: &Self) -> bool {
        let keeps = |(id, slots): &(String, SlotBits)| other.import(id) == Some(slots);
        self.imports.iter().all(keeps) && (0..SLOTS).all(|slot| !self.is_mine(slot) || other.is_mine(slot))
    }

    /// This node.
    pub(crate) fn me(&self) -> &Node {
        &self.nodes[self.me]
    }

    /// The place of this node among the nodes.
    pub(crate) fn my_place(&self) -> usize {
        self.me
    }

    /// This node's shard, once it has one.
    pub(crate) fn my_shard(&self) -> Option<&Shard> {
        self.my_shard.map(|shard| &self.shards[shard])
    }

    /// The shard of a node.
    pub(crate) fn shard_of(&self, node: usize) -> Option<&Shard> {
        self.shards.get(usize::from(self.shard_of[node]))
    }

    /// Whether this node is its shard's primary.
    pub(crate) fn is_primary(&self) -> bool {
        self.my_shard().is_some_and(|shard| shard.primary == self.me)
    }

    /// The place of a slot's shard.
    #[inline]
    pub(crate) fn owner(&self, slot: u16) -> Option<usize> {
        let owner = self.owners[usize::from(slot)];
        (owner != NOBODY).then_some(owner.into())
    }

    /// Whether this node's shard has the slot.
    #[inline]
    pub(crate) fn is_mine(&self, slot: u16) -> bool {
        self.my_shard.is_some() && self.owner(slot) == self.my_shard
    }

    /// The runs of slots of this node's shard.
    pub(crate) fn my_slots(&self) -> Arc<[(u16, u16)]> {
        self.my_shard().map_or_else(|| Arc::from([]), |shard| Arc::clone(&shard.slots))
    }

    /// How many slots have a shard.
    pub(crate) fn assigned(&self) -> u16 {
        self.assigned
    }

    /// Returns the number of shards with slots whose primary is gone.
    pub(crate) fn failed_shards(&self) -> usize {
        let is_failed =
            |shard: &&Shard| self.nodes[shard.primary].health == Health::Failed && !shard.slots.is_empty();
        self.shards.iter().filter(is_failed).count()
    }

    /// Returns the number of slots whose shard's primary is gone: they are not served until a member takes over, or the
    /// primary comes back.
    pub(crate) fn failed(&self) -> u16 {
        let is_failed = |shard: &&Shard| self.nodes[shard.primary].health == Health::Failed;
        let slots = |shard: &Shard| shard.slots.iter().map(|(first, last)| last - first + 1).sum::<u16>();
        self.shards.iter().filter(is_failed).map(slots).sum()
    }

    /// Returns the number of slots that no node serves: they have no shard, or its primary is silent.
    pub(crate) fn uncovered(&self) -> u16 {
        SLOTS - self.covered
    }

    /// Whether slots are served: all of them have a shard whose primary is not silent, unless that is not demanded. A cluster without
    /// slots is down.
    #[inline]
    pub(crate) fn is_ok(&self, require_full_coverage: bool) -> bool {
        self.covered == SLOTS || !require_full_coverage && self.assigned > 0
    }

    /// Returns the addresses of the primary before and after, as Sentinel's `+switch-master` has them, if a cluster of
    /// one shard gets another primary.
    pub(crate) fn switch_to(&self, next: &Self) -> Option<String> {
        let [before] = &self.shards[..] else { return None };
        let [after] = &next.shards[..] else { return None };
        let (before, after) = (&self.nodes[before.primary].addresses, &next.nodes[after.primary].addresses);
        let text = |node: &Addresses| {
            let port = if node.port == 0 { node.tls_port } else { node.port };
            format!("{} {port}", node.ip)
        };
        let is_same = (&before.ip, before.port, before.tls_port) == (&after.ip, after.port, after.tls_port);
        (!is_same).then(|| format!("{} {}", text(before), text(after)))
    }

    /// The place of the node with this name, in any letter case.
    pub(crate) fn find(&self, id: &[u8]) -> Option<usize> {
        self.nodes.iter().position(|node| node.id.as_bytes().eq_ignore_ascii_case(id))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A node by its number.
    pub(crate) fn node(number: u16) -> Node {
        Node {
            id: format!("{number:040x}"),
            addresses: Addresses { ip: "127.0.0.1".to_owned(), port: 7000 + number, ..Addresses::default() },
            human_name: String::new(),
            zone: String::new(),
            health: Health::Online,
            is_silent: false,
            offset: 0,
        }
    }

    /// Three shards with the slots of `redis-cli --cluster create`, the first with a replica: node 3. `me` is a number of one
    /// of the four nodes, or of one that has no shard: 4.
    pub(crate) fn three_shards(me: usize) -> Topology {
        let runs: [(u16, u16); 3] = [(0, 5460), (5461, 10922), (10923, SLOTS - 1)];
        let shards = runs.into_iter().enumerate().map(|(number, run)| Shard {
            id: format!("{:040x}", 100 + number),
            epoch: 1 + number as u64,
            primary: number,
            replicas: if number == 0 { vec![3] } else { vec![] },
            slots: Arc::from([run]),
        });
        Topology::new((0..5).map(node).collect(), shards.collect(), me)
    }

    #[test]
    fn topology_knows_the_shard_of_each_slot() {
        let topology = three_shards(3);
        for (slot, owner) in [(0, 0), (5460, 0), (5461, 1), (10922, 1), (10923, 2), (16383, 2)] {
            assert_eq!(topology.owner(slot), Some(owner));
            assert_eq!(topology.is_mine(slot), owner == 0, "{slot}");
            assert_eq!(three_shards(0).serves(slot), owner == 0, "{slot}");
            assert!(!topology.serves(slot), "a replica does not serve every request");
        }
        assert_eq!((topology.is_primary(), topology.assigned()), (false, SLOTS));
        assert!(topology.is_ok(true));
        let joining = three_shards(4);
        assert!(joining.my_shard().is_none() && !joining.is_mine(0) && joining.my_slots().is_empty());
    }

    #[test]
    fn topology_switches_where_one_shard_has_another_primary() {
        let with = |primary: usize| {
            let shard = Shard {
                id: "s".repeat(40),
                epoch: 1,
                primary,
                replicas: vec![1 - primary],
                slots: Arc::from([(0, SLOTS - 1)]),
            };
            Topology::new(vec![node(0), node(1)], vec![shard], 0)
        };
        assert_eq!(with(0).switch_to(&with(1)).as_deref(), Some("127.0.0.1 7000 127.0.0.1 7001"));
        assert_eq!(with(0).switch_to(&with(0)), None);
        assert_eq!(with(0).switch_to(&three_shards(0)), None);
    }

    #[test]
    fn topology_without_all_slots_is_down_where_all_are_demanded() {
        let shard = Shard {
            id: "s".repeat(40),
            epoch: 1,
            primary: 0,
            replicas: vec![],
            slots: Arc::from([(0, 10), (12, 12)]),
        };
        let topology = Topology::new(vec![node(0)], vec![shard], 0);
        assert_eq!((topology.assigned(), topology.owner(11), topology.owner(12)), (12, None, Some(0)));
        assert!(!topology.is_ok(true) && topology.is_ok(false) && !topology.serves(5));
        assert!(!Topology::new(vec![node(0)], vec![], 0).is_ok(false));
    }

    #[test]
    fn slots_of_a_silent_primary_are_not_served() {
        let healthy = three_shards(0);
        assert!(healthy.is_ok(true) && healthy.uncovered() == 0);
        let mut nodes = healthy.nodes;
        (nodes[1].health, nodes[1].is_silent) = (Health::Failed, true);
        let topology = Topology::new(nodes, healthy.shards, 0);
        assert_eq!((topology.assigned(), topology.uncovered()), (SLOTS, 5462));
        assert!(!topology.is_ok(true) && topology.is_ok(false));
        assert!(!topology.serves(0) && topology.is_mine(0), "each request is asked more");
    }
}
