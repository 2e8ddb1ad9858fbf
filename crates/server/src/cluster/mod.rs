//! The cluster as the workers of a node see it: the topology that its commands obey, the lease, slots that move. The threads of
//! [`crate::node`] follow the cluster's records and change it.
//!
//! ```text
//! etcd ◀──▶ thread `cluster` ──▶ Topology ──▶ workers: admission asks `route`
//!                            └─▶ role: thread `replica`
//! ```
//!
//! Without `cluster-join` there is no topology and no thread, and no command is asked for its slots.
//!
//! A topology that takes slots from this node is published behind the closed gate. A worker looks at its number inside
//! the gate, for each command with keys: so no command on a slot runs here once its loss has been published.

pub(crate) mod cluster_wide;
pub(crate) mod descent;
pub(crate) mod ending;
pub(crate) mod inbox;
mod lease;
pub(crate) mod moves;
pub(crate) mod overview;
mod peer_message;
pub(crate) mod recovery;
pub(crate) mod route;
pub(crate) mod silence;
pub(crate) mod topology;
pub(crate) mod view;

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use arc_swap::ArcSwapOption;
use dunlin_cluster::{ClusterId, HistoryId, MoveId, SlotSet};
use dunlin_engine::{
    Engine,
    command::CommandError,
    keyspace::{Keyspace, slot},
};

pub(crate) use self::peer_message::PeerMessage;
use self::{
    cluster_wide::ClusterWide,
    ending::EndingFile,
    inbox::Inbox,
    lease::Lease,
    moves::{Moves, Parked},
    overview::Overview,
    route::{EndpointRule, Rules},
    silence::Silence,
    topology::Topology,
};
use crate::{admission::Slots, config::Config, session::order::AwaitedChange, system::host::monotonic_ms};

/// How long a node counts as there that has stopped saying so, in milliseconds. A hint: no safety rests on it.
pub(crate) const ALIVE_MS: u64 = dunlin_cluster::times::PRESENCE_MS;

/// Makes the server a node with a configuration; the order is finished when it is one.
pub(crate) type JoinFn = Box<dyn Fn(Config, &Arc<AwaitedChange>) + Send + Sync>;

struct Join(JoinFn);

impl fmt::Debug for Join {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Join")
    }
}

/// The connections of one kind from this node to others.
#[derive(Debug, Default)]
pub(crate) struct LinkFigure {
    open: AtomicUsize,
    bytes: AtomicUsize,
}

impl LinkFigure {
    /// Notes how many are made, and the bytes of their buffers. Their thread only.
    pub(crate) fn note(&self, open: usize, bytes: usize) {
        self.open.store(open, Relaxed);
        self.bytes.store(bytes, Relaxed);
    }
}

/// The connections from this node to others, for INFO.
#[derive(Debug, Default)]
pub(crate) struct LinkFigures {
    /// Of the messages of its shard.
    pub(crate) shard: LinkFigure,
    /// Of pub/sub.
    pub(crate) bus: LinkFigure,
}

impl LinkFigures {
    /// How many are made.
    pub(crate) fn open(&self) -> usize {
        self.shard.open.load(Relaxed) + self.bus.open.load(Relaxed)
    }

    /// The bytes of their buffers.
    pub(crate) fn bytes(&self) -> usize {
        self.shard.bytes.load(Relaxed) + self.bus.bytes.load(Relaxed)
    }
}

/// How long clients without cluster support may take to learn that a node is demoted, in milliseconds.
const LEARNING_MS: u64 = 10_000;

/// The state of the cluster that all threads share.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    /// This node's id, once it is one of a cluster.
    pub(crate) id: OnceLock<String>,
    /// The cluster's id, once it is known. Only nodes can say it.
    pub(crate) cluster: OnceLock<ClusterId>,
    /// The cluster's name.
    name: OnceLock<String>,
    /// The reason why the agent does not follow the records; `None` if it does.
    pub(crate) trouble: ArcSwapOption<String>,
    pub(crate) overview: ArcSwapOption<Overview>,
    /// Why etcd refuses changes though it answers; `None` where it does not.
    pub(crate) refuses: ArcSwapOption<String>,
    /// The records in etcd are not to be obeyed, and have not been obeyed since.
    pub(crate) strays: AtomicBool,
    /// Primaries that neither etcd nor this node hears of.
    pub(crate) silence: Silence,
    topology: ArcSwapOption<Topology>,
    /// Grows by one with each topology.
    version: AtomicU64,
    /// Inputs for the thread that drives the node's shard.
    pub(crate) shard: Inbox,
    /// Whether this node may answer as a primary.
    pub(crate) lease: Lease,
    /// Replies wait for the shard's commit (`cluster-durability sync`).
    pub(crate) is_sync: Arc<AtomicBool>,
    /// There are fewer members than a write needs.
    pub(crate) lacks_members: AtomicBool,
    /// The word on disk that the data set is all that was acknowledged.
    pub(crate) ending: EndingFile,
    /// The history of a data set that is all that this process has acknowledged, at its end.
    pub(crate) clean: OnceLock<HistoryId>,
    /// This node's connections to other nodes.
    pub(crate) links: LinkFigures,
    /// Slots on their way from and to this node.
    pub(crate) moves: Moves,
    /// Changes of users, functions and settings.
    pub(crate) cluster_wide: ClusterWide,
    /// Makes the server a node, while it runs.
    join: OnceLock<Join>,
    /// The agent is to take its leave.
    pub(crate) ended: AtomicBool,
    /// The node leaves the cluster for good.
    pub(crate) leaves: AtomicBool,
    /// When this node was demoted last, with clients that know no cluster, in monotonic milliseconds; 0 for never.
    pub(crate) demoted_ms: AtomicU64,
    /// Why the server could not go on as this node: a line for the operator.
    pub(crate) failure: OnceLock<String>,
    /// Whether the store is the one that this node has obeyed, once it is a node.
    pub(crate) descent: OnceLock<Arc<descent::Descent>>,
}

impl Cluster {
    /// Makes the server a node of a cluster, which has no slots yet. Once, before it is connected to.
    pub(crate) fn begin(&self, name: String, topology: Topology) {
        // Both are set here only.
        let _ = self.name.set(name);
        self.id.set(topology.me().id.clone()).expect("a server becomes a node once");
        self.store(topology);
    }

    /// Sets how a server that runs becomes a node of a cluster.
    pub(crate) fn on_join(&self, join: JoinFn) {
        // The process sets it once.
        let _ = self.join.set(Join(join));
    }

    /// Makes the server the first node of a cluster, with this configuration.
    pub(crate) fn join(&self, config: Config) -> Arc<AwaitedChange> {
        let order = Arc::new(AwaitedChange::default());
        match self.join.get() {
            Some(Join(join)) => join(config, &order),
            None => order.finish(Err(CommandError::text("ERR the server is about to start; try again"))),
        }
        order
    }

    /// Whether replies wait for the shard's commit.
    #[inline]
    pub(crate) fn is_sync(&self) -> bool {
        self.is_sync.load(Relaxed)
    }

    /// The flag behind [`Self::is_sync`], for a thread that needs nothing else of the cluster.
    pub(crate) fn sync_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_sync)
    }

    /// Whether writes are refused: the primary has fewer members in sync than `cluster-min-sync`.
    #[inline]
    pub(crate) fn lacks_members(&self) -> bool {
        self.lacks_members.load(Relaxed)
    }

    /// Whether the node is of this cluster.
    pub(crate) fn is_of(&self, cluster: ClusterId) -> bool {
        self.cluster.get() == Some(&cluster)
    }

    /// Whether the server is a node of a cluster.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.id.get().is_some()
    }

    /// The cluster's name; empty if there is none.
    pub(crate) fn name(&self) -> &str {
        self.name.get().map_or("", String::as_str)
    }

    /// The reason why the node does not follow the cluster's records, for operators; empty if it does.
    pub(crate) fn trouble(&self) -> String {
        match (self.trouble.load_full(), self.overview.load().is_some()) {
            (Some(trouble), _) => String::clone(&trouble),
            (None, false) => "etcd has not answered since this node has started".to_owned(),
            (None, true) => String::new(),
        }
    }

    /// Why etcd refused changes of the records when it was asked last, for operators; empty where it did not.
    pub(crate) fn refusal(&self) -> String {
        self.refuses.load_full().map_or(String::new(), |why| String::clone(&why))
    }

    /// The records' contents beside the topology, once they have been seen.
    pub(crate) fn overview(&self) -> Option<Arc<Overview>> {
        self.overview.load_full()
    }

    /// Why the server could not go on as this node: a line for the operator.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.get().cloned()
    }

    /// The cluster as it is known now; `None` if there is none.
    pub(crate) fn topology(&self) -> Option<Arc<Topology>> {
        self.topology.load_full()
    }

    /// Counts the changes of the topology and of what is parked.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Acquire)
    }

    pub(crate) fn store(&self, topology: Topology) {
        self.topology.store(Some(Arc::new(topology)));
        self.version.fetch_add(1, Release);
    }

    /// Makes workers look at the topology, and at what is parked, again.
    pub(crate) fn touch(&self) {
        self.version.fetch_add(1, Release);
    }

    /// Whether a topology says something else than the one in force.
    pub(crate) fn differs(&self, topology: &Topology) -> bool {
        self.topology().is_none_or(|known| *known != *topology)
    }

    /// Makes commands on slots wait. When this returns, none of them runs.
    pub(crate) fn park(&self, engine: &Engine, id: MoveId, slots: &SlotSet) {
        let _closed = engine.keyspace.close();
        // Transactions and scripts may be waiting for the gate with the slots as they were.
        engine.log.end_admissions();
        self.moves.change_parked(&engine.keyspace, |parked| _ = parked.insert(id, slots.clone()));
        self.touch();
    }

    /// Lets commands on the slots of a move run again, or be sent away, as soon as workers look.
    pub(crate) fn unpark(&self, keyspace: &Keyspace, id: MoveId) {
        let _closed = keyspace.close();
        self.moves.change_parked(keyspace, |parked| _ = parked.remove(&id));
        self.touch();
    }

    /// Whether the node was demoted a moment ago, and clients without cluster support may not know it yet.
    pub(crate) fn was_just_demoted(&self) -> bool {
        let demoted_ms = self.demoted_ms.load(Relaxed);
        demoted_ms != 0 && monotonic_ms() < demoted_ms + LEARNING_MS
    }

    /// Whether clients without cluster support are served: the operator wants it, and there is one shard.
    pub(crate) fn serves_plain_clients(&self, config: &Config) -> bool {
        config.cluster_plain_clients && self.topology().is_some_and(|topology| topology.shards().len() == 1)
    }
}

/// A worker's view of the topology.
#[derive(Debug, Default)]
pub(crate) struct TopologyReader {
    version: u64,
    topology: Option<Arc<Topology>>,
    /// Slots whose commands wait for the outcome of a move.
    parked: Option<Arc<Parked>>,
}

impl TopologyReader {
    /// Returns whether there is another topology. Costs one load if there was none.
    #[inline]
    pub(crate) fn refresh(&mut self, cluster: &Cluster) -> bool {
        let version = cluster.version();
        if version == self.version {
            return false;
        }
        // The version first: a change in between costs a second look, never a missed one.
        self.version = version;
        self.topology = cluster.topology();
        self.parked = cluster.moves.parked();
        true
    }

    /// Whether any request whose keys are in this slot runs here.
    #[inline]
    pub(crate) fn serves(&self, slot: u16) -> bool {
        self.parked.is_none() && self.topology.as_ref().is_some_and(|topology| topology.serves(slot))
    }

    /// Whether any commands wait for the outcome of a move.
    #[inline]
    pub(crate) fn has_parked(&self) -> bool {
        self.parked.is_some()
    }

    /// Whether a command with keys in these slots waits for the outcome of a move.
    #[inline]
    pub(crate) fn parks(&self, slots: Slots) -> bool {
        match (&self.parked, slots) {
            (Some(parked), Slots::One(slot)) => parked.contains(slot),
            _ => false,
        }
    }

    /// The topology, of a node of a cluster.
    #[inline]
    pub(crate) fn topology(&self) -> Option<&Arc<Topology>> {
        self.topology.as_ref()
    }
}

/// The operator's rules while some slots are not served.
#[inline]
pub(crate) fn rules(config: &Config) -> Rules {
    Rules {
        require_full_coverage: config.cluster_require_full_coverage,
        reads_when_down: config.cluster_allow_reads_when_down,
        pubsub_when_down: config.cluster_allow_pubsubshard_when_down,
        plain_clients: config.cluster_plain_clients,
    }
}

/// How a client is sent to other nodes.
pub(crate) fn endpoints(config: &Config, tls: bool) -> EndpointRule {
    EndpointRule { kind: config.cluster_preferred_endpoint_type, tls }
}

/// The slots of names.
pub(crate) fn slots_of<'a>(names: impl IntoIterator<Item = &'a [u8]>) -> Slots {
    names.into_iter().map(slot).collect()
}
