//! The thread `cluster-bus`: messages of pub/sub for subscribers at other nodes. Messages of channels go to all nodes,
//! those of shard channels to the members of the shard.
//!
//! ```text
//! PUBLISH ─▶ subscribers here
//!         └▶ queue ─▶ thread `cluster-bus`: committed? ─▶ one connection a node ─▶ CLUSTER RELAY ─▶ subscribers there
//! ```
//!
//! As in Redis, a message is sent once and not kept: a node that cannot be reached misses it, and one that is slow misses those
//! that have no room in its queue. The messages of one node come to another one in their order.
//!
//! A message leaves when all that it may show is committed, as it does for subscribers here (decision 0054). If the
//! node stops being the primary, that cannot happen, and the message is dropped.

use std::{
    collections::VecDeque,
    io::ErrorKind,
    sync::{Arc, atomic::Ordering::SeqCst},
    thread,
    time::Duration,
};

use dunlin_cluster::NodeId;
use mio::{Events, Poll, Token, Waker};

use super::links::{HostPort, Links};
use crate::{
    push::pubsub::{BusMessage, BusQueue},
    shared::Shared,
};

/// Bytes of messages that wait for a node at most.
const WAITING_BYTES_MAX: usize = 32 << 20;
/// Bytes of messages that wait for a commit at most.
const WITHHELD_BYTES_MAX: usize = 32 << 20;
/// Between two attempts to connect to a node.
const RETRY: Duration = Duration::from_secs(1);
/// A connection is made anew when the other machine has acknowledged nothing for this long. A node that is busy for
/// longer than a script may be is sent what waits for it all the same.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// The longest sleep: how late the thread notices another topology.
const SLEEP: Duration = Duration::from_millis(200);
/// The longest sleep while messages wait for a commit: how much later than one here they leave.
const NAP: Duration = Duration::from_millis(1);
const WAKER: Token = Token(usize::MAX);

/// Starts the thread.
pub(super) fn start(shared: &Arc<Shared>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot start the bus of the cluster: {error}");
    let poll = Poll::new().map_err(failed)?;
    shared.exchange.bus.attach(Waker::new(poll.registry(), WAKER).map_err(failed)?);
    let thread = Thread {
        shared: Arc::clone(shared),
        poll,
        links: Links::new(WAITING_BYTES_MAX, RETRY, SILENCE_MAX, |figures| &figures.bus),
        peers: Vec::new(),
        withheld: VecDeque::new(),
        withheld_bytes: 0,
        version: u64::MAX,
    };
    thread::Builder::new()
        .name("cluster-bus".to_owned())
        .spawn(move || thread.run())
        .map(drop)
        .map_err(failed)
}

struct Thread {
    shared: Arc<Shared>,
    poll: Poll,
    links: Links,
    /// The other nodes, and whether each is of this node's shard.
    peers: Vec<(NodeId, bool)>,
    /// Messages that wait for a commit, and those behind them.
    withheld: VecDeque<BusMessage>,
    withheld_bytes: usize,
    /// The number of the topology that the peers are of.
    version: u64,
}

impl Thread {
    fn run(mut self) {
        let mut events = Events::with_capacity(128);
        while !self.shared.cluster.ended.load(SeqCst) {
            let sleep = if self.withheld.is_empty() { SLEEP } else { NAP };
            if self
                .poll
                .poll(&mut events, Some(sleep))
                .is_err_and(|error| error.kind() != ErrorKind::Interrupted)
            {
                return tracing::error!("the bus of the cluster cannot wait for its sockets");
            }
            self.follow_topology();
            let BusQueue { messages, mut dropped, .. } = self.shared.exchange.bus.take();
            for message in messages {
                if self.withheld_bytes + message.encoded.len() > WITHHELD_BYTES_MAX {
                    dropped += 1;
                    continue;
                }
                self.withheld_bytes += message.encoded.len();
                self.withheld.push_back(message);
            }
            dropped += self.release();
            if dropped > 0 {
                tracing::warn!(
                    "Cluster: {dropped} messages of pub/sub had no room in the queue for other nodes"
                );
            }
            self.links.go_on(self.poll.registry(), &self.shared);
        }
    }

    /// Sends the messages that may leave. Returns how many had no room.
    fn release(&mut self) -> u64 {
        let Some(queues) = self.shared.durability.queues() else { return 0 };
        let mut dropped = 0;
        while let Some(first) = self.withheld.front() {
            let is_void = queues.is_void(first.commitment);
            if !is_void && !queues.is_met(first.commitment) {
                break;
            }
            let Some(message) = self.withheld.pop_front() else { break };
            self.withheld_bytes -= message.encoded.len();
            if is_void {
                continue;
            }
            for (node, is_of_shard) in &self.peers {
                if (!message.is_of_shard || *is_of_shard) && !self.links.send(*node, &message.encoded) {
                    dropped += 1;
                }
            }
        }
        dropped
    }

    /// Sets up a peer for each other node.
    fn follow_topology(&mut self) {
        let version = self.shared.cluster.version();
        if version == self.version {
            return;
        }
        self.version = version;
        let Some(topology) = self.shared.cluster.topology() else { return };
        let config = self.shared.config.current();
        let my_shard = topology.my_shard().map(|shard| shard.id.as_str());
        let others = topology.nodes().iter().enumerate().filter(|(at, _)| *at != topology.my_place());
        let reached = others.filter_map(|(at, node)| {
            let shard = topology.shard_of(at).map(|shard| shard.id.as_str());
            let addresses = &node.addresses;
            let port = if config.tls_cluster { addresses.tls_port } else { addresses.port };
            let place = (addresses.ip.clone(), port);
            let is_known = place.1 != 0 && !place.0.is_empty();
            let id: NodeId = node.id.parse().ok().filter(|_| is_known)?;
            Some(((id, place), my_shard.is_some() && shard == my_shard))
        });
        let (places, is_of_shard): (Vec<(NodeId, HostPort)>, Vec<bool>) = reached.unzip();
        self.peers = places.iter().map(|(id, _)| *id).zip(is_of_shard).collect();
        self.links.set(self.poll.registry(), &places);
    }
}
