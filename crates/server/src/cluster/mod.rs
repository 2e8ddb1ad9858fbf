//! The server as a node of a cluster: the topology that its commands obey, and the agent that follows the cluster's records.
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

mod agent;
mod bus;
mod controller;
mod ending;
mod identity;
mod lease;
pub(crate) mod moves;
pub(crate) mod overview;
pub(crate) mod route;
mod shard;
pub(crate) mod topology;
mod view;
pub(crate) mod wide;

use std::{
    net::UdpSocket,
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
};

use arc_swap::ArcSwapOption;
use dunlin_cluster::{ClusterId, HistoryId, SLOTS, meta::Meta, records::Keys};
use dunlin_engine::keyspace::slot;
use dunlin_net::Commitment;

pub(crate) use self::{agent::AgentThread, shard::Letter};
use self::{
    bus::Bus,
    ending::Ending,
    identity::Identity,
    lease::Lease,
    moves::{Moves, Parked},
    overview::Overview,
    route::{EndpointRule, Rules},
    topology::{Addresses, Health, Node, Topology},
    wide::Wide,
};
use crate::{
    admission::Slots,
    config::{ClusterDurability, Config},
    push::pubsub::Kind,
    shared::Shared,
    workers::WorkerMessage,
};

/// How long a node counts as there that has stopped saying so, in milliseconds. A hint: no safety rests on it.
pub(crate) const ALIVE_MS: u64 = 5000;

/// The state of the cluster that all threads share.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    /// This node's id, once it is one of a cluster.
    id: OnceLock<String>,
    /// The cluster's id, once it is known. Only nodes can say it.
    cluster: OnceLock<ClusterId>,
    /// The cluster's name.
    name: OnceLock<String>,
    /// The reason why the agent does not follow the records; `None` where it does.
    trouble: ArcSwapOption<String>,
    overview: ArcSwapOption<Overview>,
    topology: ArcSwapOption<Topology>,
    /// Grows by one with each topology.
    version: AtomicU64,
    /// Messages of pub/sub for other nodes.
    pub(crate) bus: Bus,
    /// Inputs for the thread that drives the node's shard.
    pub(crate) shard: shard::Inbox,
    /// Whether this node may answer as a primary.
    pub(crate) lease: Lease,
    /// Replies wait for the shard's commit (`cluster-durability sync`).
    is_sync: Arc<AtomicBool>,
    /// There are fewer members than a write needs.
    lacks_members: AtomicBool,
    /// The history of a data set that is all that this process has acknowledged, at its end.
    clean: OnceLock<HistoryId>,
    /// Slots on their way from and to this node.
    pub(crate) moves: Moves,
    /// Changes of users, functions and settings.
    pub(crate) wide: Wide,
    /// The agent is to take its leave.
    ended: AtomicBool,
    /// Why the server could not go on as this node: a line for the operator.
    failure: OnceLock<String>,
}

impl Cluster {
    /// Makes the server a node of a cluster, which has no slots yet. Once, before it is connected to.
    fn begin(&self, name: String, topology: Topology) {
        // Both are set here only.
        let _ = self.name.set(name);
        self.id.set(topology.me().id.clone()).expect("a server becomes a node once");
        self.store(topology);
    }

    /// Whether replies wait for the shard's commit.
    #[inline]
    pub(crate) fn is_sync(&self) -> bool {
        self.is_sync.load(Relaxed)
    }

    /// The same, for whoever needs nothing else of the cluster.
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

    /// The cluster's name; empty where there is none.
    pub(crate) fn name(&self) -> &str {
        self.name.get().map_or("", String::as_str)
    }

    /// The reason why the node does not follow the cluster's records, for operators; empty where it does.
    pub(crate) fn trouble(&self) -> String {
        match (self.trouble.load_full(), self.overview.load().is_some()) {
            (Some(trouble), _) => String::clone(&trouble),
            (None, false) => "etcd has not answered since this node has started".to_owned(),
            (None, true) => String::new(),
        }
    }

    /// The records' contents beside the topology, once they have been seen.
    pub(crate) fn overview(&self) -> Option<Arc<Overview>> {
        self.overview.load_full()
    }

    /// Why the server could not go on as this node: a line for the operator.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.get().cloned()
    }

    /// Notes how the process has ended: nothing is added to the data set any more.
    pub(crate) fn note_end(&self, shared: &Shared) {
        let Some(history) = self.clean.get().copied() else { return };
        let config = shared.config.current();
        let is_durable = shard::is_durable(&config);
        let data = shared.replication.data(shared, false);
        if data.is_whole() && data.history.map(shard::history_of) == Some(history) {
            let ending = Ending { is_durable, clean: Some((history, data.end)) };
            if let Err(line) = ending.keep(&config.dir) {
                tracing::error!("{line}");
            }
        }
    }

    /// The cluster as it is known now; `None` where there is none.
    pub(crate) fn topology(&self) -> Option<Arc<Topology>> {
        self.topology.load_full()
    }

    fn store(&self, topology: Topology) {
        self.topology.store(Some(Arc::new(topology)));
        self.version.fetch_add(1, Release);
    }

    /// Has workers look at the topology, and at what is parked, again.
    fn touch(&self) {
        self.version.fetch_add(1, Release);
    }

    /// Whether a topology says something else than the one in force.
    fn differs(&self, topology: &Topology) -> bool {
        self.topology().is_none_or(|known| *known != *topology)
    }

    /// Publishes another topology. Where the node has lost slots, or its role, that is done behind the closed gate, and clients
    /// learn of it: those that wait for keys, and those that listen to channels of shards. The caller is not inside the gate.
    fn publish(&self, shared: &Shared, topology: Topology) {
        let Some(before) = self.topology() else { return self.store(topology) };
        let switch = before.switch_to(&topology);
        let is_demoted = before.is_primary() && !topology.is_primary();
        self.replace(shared, &before, topology);
        let Some(queues) = shared.durability.queues() else { return };
        if let Some(addresses) = switch {
            let message = format!("{} {addresses}", self.name());
            // Another primary is there, whatever becomes of the data.
            let at_once = Commitment::default();
            shared.exchange.publish(Kind::Channel, b"+switch-master", message.as_bytes(), at_once, queues);
        }
        if is_demoted && self.serves_plain_clients(&shared.config.current()) {
            // Sentinel does it, so that clients ask it where to go.
            shared.connected(queues).disconnect_all();
        }
    }

    /// Whether clients without cluster support are served: the operator wants it, and there is one shard.
    fn serves_plain_clients(&self, config: &Config) -> bool {
        config.cluster_plain_clients && self.topology().is_some_and(|topology| topology.shards().len() == 1)
    }

    fn replace(&self, shared: &Shared, before: &Topology, topology: Topology) {
        let has_lost = !before.is_part_of(&topology);
        let has_gained = (0..SLOTS).any(|slot| topology.is_mine(slot) && !before.is_mine(slot));
        let is_demoted = before.is_primary() && !topology.is_primary();
        if !has_lost && !has_gained && !is_demoted {
            return self.store(topology);
        }
        {
            let closed = shared.engine.keyspace.close();
            let is_lost = |slot| before.is_mine(slot) && !topology.is_mine(slot);
            closed.mark_moved(is_lost);
            self.moves.lose((0..SLOTS).filter(|slot| is_lost(*slot)));
            self.moves.hide(shared, &topology);
            self.store(topology);
        }
        if !has_lost && !is_demoted {
            return;
        }
        let (Some(now), Some(queues)) = (self.topology(), shared.durability.queues()) else { return };
        let is_lost = |name: &[u8]| !now.is_mine(slot(name));
        let listeners = shared.exchange.subscribers_where(Kind::ShardChannel, |_, name| is_lost(name));
        let mut clients = shared.blocked.all();
        clients.extend(listeners.iter().map(|client| client.address));
        for client in clients {
            queues.send(client, WorkerMessage::SlotsMoved);
        }
    }
}

/// Draws the bytes of an id.
fn draw() -> Result<[u8; 20], String> {
    let mut bytes = [0; 20];
    getrandom::fill(&mut bytes).map_err(|error| format!("cannot draw a random identity: {error}"))?;
    Ok(bytes)
}

/// The settings with which a node takes part in its cluster.
pub(crate) struct Membership {
    identity: Identity,
    keys: Keys,
    meta: Arc<dyn Meta>,
    addresses: Addresses,
}

/// Settles the configuration of a server that is to be a node, or not. The error is one line for the operator.
pub(crate) fn settle(config: &mut Config) -> Result<(), String> {
    if config.cluster_join.is_empty() {
        return match config.cluster_enabled {
            true => Err(
                "cluster-enabled yes: say which cluster instead, with cluster-join etcd://HOST:2379/NAME (docs/cluster.md)"
                    .to_owned(),
            ),
            false => Ok(()),
        };
    }
    let refusals = [
        (
            config.cluster_min_sync > 1 && config.cluster_durability == ClusterDurability::Async,
            "cluster-min-sync above 1 needs cluster-durability sync",
        ),
        (
            config.cluster_min_sync > config.cluster_replicas + 1,
            "cluster-min-sync is larger than a shard's number of nodes: a primary and cluster-replicas",
        ),
        (
            config.replicaof.is_some(),
            "replicaof and cluster-join exclude each other: the cluster chooses its primaries",
        ),
        (config.port == 0 && config.tls_port == 0, "a node of a cluster needs a port or a tls-port"),
    ];
    if let Some((_, why)) = refusals.iter().find(|(is_met, _)| *is_met) {
        return Err((*why).to_owned());
    }
    config.cluster_enabled = true;
    // A cluster has one database.
    config.databases = 1;
    Ok(())
}

/// Makes the server a node, if it is to be one: reads who it is, under the lock of its directory. The error is one line for
/// the operator.
pub(crate) fn prepare(shared: &Shared) -> Result<Option<Membership>, String> {
    let config = shared.config.current();
    if config.cluster_join.is_empty() {
        return Ok(None);
    }
    let wrong = |reason: String| format!("cluster-join {}: {reason}", config.cluster_join);
    let (endpoints, name) =
        dunlin_etcd::parse_url(&config.cluster_join).map_err(|error| wrong(error.to_string()))?;
    let keys = Keys::new(&name).map_err(|error| wrong(error.to_string()))?;
    let lock = shared.directory.hold(&config);
    lock.map_err(|in_use| format!("{in_use}: stop that server, or give this one another --dir"))?;
    let identity = Identity::of(&config.dir, &name, draw)?;
    wide::load_kept(shared)?;
    let addresses = addresses(&config, &endpoints)?;
    let meta = dunlin_etcd::Etcd::new(etcd_options(&config, endpoints)?).map_err(wrong)?;
    let me = Node {
        id: identity.node.to_string(),
        addresses: addresses.clone(),
        human_name: config.cluster_announce_human_nodename.clone(),
        zone: config.cluster_zone.clone(),
        health: Health::Online,
        offset: 0,
    };
    shared.cluster.begin(name.clone(), Topology::new(vec![me], Vec::new(), 0));
    tracing::info!("Node {} of the cluster '{name}'", identity.node);
    Ok(Some(Membership { identity, keys, meta: Arc::new(meta), addresses }))
}

/// How etcd is reached.
fn etcd_options(config: &Config, endpoints: Vec<String>) -> Result<dunlin_etcd::Options, String> {
    let mut options = dunlin_etcd::Options::new(endpoints);
    if !config.cluster_etcd_user.is_empty() {
        let password = std::str::from_utf8(config.cluster_etcd_password.bytes())
            .map_err(|_| "cluster-etcd-password is no text".to_owned())?;
        options.user = Some((config.cluster_etcd_user.clone(), password.to_owned()));
    }
    let read = |path: &std::path::Path| {
        std::fs::read(path)
            .map_err(|error| format!("{}: {}", path.display(), crate::config::describe(&error)))
    };
    let (certificate, key) = (&config.cluster_etcd_cert_file, &config.cluster_etcd_key_file);
    if !config.cluster_etcd_ca_cert_file.as_os_str().is_empty() {
        options.tls.authorities = Some(read(&config.cluster_etcd_ca_cert_file)?);
    }
    match (certificate.as_os_str().is_empty(), key.as_os_str().is_empty()) {
        (true, true) => {}
        (false, false) => options.tls.identity = Some((read(certificate)?, read(key)?)),
        _ => return Err("cluster-etcd-cert-file and cluster-etcd-key-file belong together".to_owned()),
    }
    Ok(options)
}

/// The addresses that the node announces.
fn addresses(config: &Config, endpoints: &[String]) -> Result<Addresses, String> {
    let or = |announced: u16, own: u16| if announced == 0 { own } else { announced };
    let ip = match config.cluster_announce_ip.is_empty() {
        false => config.cluster_announce_ip.clone(),
        true => address_towards(endpoints)
            .ok_or("cannot find out this host's address; set cluster-announce-ip".to_owned())?,
    };
    Ok(Addresses {
        ip,
        port: or(config.cluster_announce_port, config.port),
        tls_port: or(config.cluster_announce_tls_port, config.tls_port),
        hostname: config.cluster_announce_hostname.clone(),
    })
}

/// The address that this host has towards etcd. Nothing is sent.
fn address_towards(endpoints: &[String]) -> Option<String> {
    endpoints.iter().find_map(|endpoint| {
        let (_, host) = endpoint.split_once("://")?;
        let any = if host.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(host).ok()?;
        Some(socket.local_addr().ok()?.ip().to_string())
    })
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
    /// Looks whether there is another topology; whether there was. One load where there was none.
    #[inline]
    pub(crate) fn refresh(&mut self, cluster: &Cluster) -> bool {
        let version = cluster.version.load(Acquire);
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
