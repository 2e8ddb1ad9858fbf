//! Messages of pub/sub for subscribers at other nodes: those of channels go to all nodes, those of shard channels to the
//! members of the shard.
//!
//! ```text
//! PUBLISH ─▶ subscribers here
//!         └▶ queue ─▶ thread `cluster-bus` ─▶ one connection a node ─▶ CLUSTER RELAY ─▶ subscribers there
//! ```
//!
//! As in Redis, a message is sent once and not kept: a node that cannot be reached misses it, and one that is slow misses those
//! that have no room in its queue. The messages of one node come to another one in their order.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, ToSocketAddrs},
    sync::{
        Arc,
        atomic::Ordering::{Acquire, SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use mio::{Events, Interest, Poll, Token, Waker, net::TcpStream};

use super::shard::login;
use crate::{
    cluster::bus::{Message, Queue},
    config::Config,
    shared::Shared,
};

/// Bytes of messages that wait for a node at most.
const QUEUE_BYTES_MAX: usize = 32 << 20;
/// Between two attempts to connect to a node.
const RETRY: Duration = Duration::from_secs(1);
/// The longest sleep: how late the thread notices another topology.
const SLEEP: Duration = Duration::from_millis(200);

const WAKER: Token = Token(usize::MAX);

/// Starts the thread. Inside TLS nothing is relayed in this version: messages go to the replicas of a primary only, in its stream.
pub(super) fn start(shared: &Arc<Shared>) -> Result<(), String> {
    if shared.config.current().tls_cluster {
        tracing::warn!("Cluster: with tls-cluster, PUBLISH does not reach the subscribers of other shards");
        return Ok(());
    }
    let failed = |error: std::io::Error| format!("cannot start the bus of the cluster: {error}");
    let poll = Poll::new().map_err(failed)?;
    let waker = Waker::new(poll.registry(), WAKER).map_err(failed)?;
    // There is one thread.
    let _ = shared.cluster.bus.waker.set(waker);
    let thread =
        Thread { shared: Arc::clone(shared), poll, peers: BTreeMap::new(), next: 0, version: u64::MAX };
    thread::Builder::new()
        .name("cluster-bus".to_owned())
        .spawn(move || thread.run())
        .map(drop)
        .map_err(failed)
}

struct Thread {
    shared: Arc<Shared>,
    poll: Poll,
    /// By the node's id.
    peers: BTreeMap<String, Peer>,
    /// The number of the next connection.
    next: usize,
    /// The number of the topology that they are of.
    version: u64,
}

/// A node, and the messages for it.
struct Peer {
    token: Token,
    address: (String, u16),
    is_of_shard: bool,
    socket: Option<TcpStream>,
    /// When the last attempt to connect was made.
    tried: Option<Instant>,
    waiting: VecDeque<Arc<[u8]>>,
    bytes: usize,
    /// Bytes of the first of them that are on their way.
    sent: usize,
}

impl Thread {
    fn run(mut self) {
        let mut events = Events::with_capacity(128);
        while !self.shared.cluster.ended.load(SeqCst) {
            if self
                .poll
                .poll(&mut events, Some(SLEEP))
                .is_err_and(|error| error.kind() != ErrorKind::Interrupted)
            {
                return tracing::error!("the bus of the cluster cannot wait for its sockets");
            }
            self.follow_topology();
            let Queue { messages, dropped, .. } = self.shared.cluster.bus.take();
            if dropped > 0 {
                tracing::warn!(
                    "Cluster: {dropped} messages of pub/sub had no room in the queue for other nodes"
                );
            }
            let config = self.shared.config.current();
            for peer in self.peers.values_mut() {
                for message in &messages {
                    if !message.is_of_shard || peer.is_of_shard {
                        peer.push(message);
                    }
                }
                peer.go_on(&self.poll, &config);
            }
        }
    }

    /// Has a peer for each other node.
    fn follow_topology(&mut self) {
        let version = self.shared.cluster.version.load(Acquire);
        if version == self.version {
            return;
        }
        self.version = version;
        let Some(topology) = self.shared.cluster.topology() else { return };
        let my_shard = topology.my_shard().map(|shard| shard.id.as_str());
        let mut peers = std::mem::take(&mut self.peers);
        for (place, node) in topology.nodes().iter().enumerate() {
            let address = (node.addresses.ip.clone(), node.addresses.port);
            if place == topology.my_place() || address.1 == 0 || address.0.is_empty() {
                continue;
            }
            let is_of_shard =
                my_shard.is_some() && topology.shard_of(place).map(|shard| shard.id.as_str()) == my_shard;
            let known = peers.remove(&node.id).filter(|peer| peer.address == address);
            let peer = known.unwrap_or_else(|| {
                self.next += 1;
                Peer {
                    token: Token(self.next),
                    address,
                    is_of_shard,
                    socket: None,
                    tried: None,
                    waiting: VecDeque::new(),
                    bytes: 0,
                    sent: 0,
                }
            });
            self.peers.insert(node.id.clone(), Peer { is_of_shard, ..peer });
        }
    }
}

impl Peer {
    fn push(&mut self, message: &Message) {
        if self.bytes + message.encoded.len() <= QUEUE_BYTES_MAX {
            self.bytes += message.encoded.len();
            self.waiting.push_back(Arc::clone(&message.encoded));
        }
    }

    /// Connects where there is something to send, and sends what the socket takes.
    fn go_on(&mut self, poll: &Poll, config: &Config) {
        if self.socket.is_none() {
            let is_due = self.tried.is_none_or(|tried| tried.elapsed() >= RETRY);
            if self.waiting.is_empty() || !is_due {
                return;
            }
            self.tried = Some(Instant::now());
            self.connect(poll, config);
        }
        if let Err(error) = self.exchange()
            && error.kind() != ErrorKind::WouldBlock
            && error.kind() != ErrorKind::NotConnected
        {
            self.disconnect();
        }
    }

    fn connect(&mut self, poll: &Poll, config: &Config) {
        let address = (self.address.0.as_str(), self.address.1).to_socket_addrs();
        let Some(address) = address.ok().and_then(|mut found: std::vec::IntoIter<SocketAddr>| found.next())
        else {
            return;
        };
        let Ok(mut socket) = TcpStream::connect(address) else { return };
        let interest = Interest::READABLE | Interest::WRITABLE;
        if poll.registry().register(&mut socket, self.token, interest).is_ok() {
            let _ = socket.set_nodelay(true);
            self.socket = Some(socket);
            if let Some(login) = login(config) {
                self.bytes += login.len();
                self.waiting.push_front(login.into());
            }
        }
    }

    /// Reads what the node answers, which nobody needs, and writes.
    fn exchange(&mut self) -> std::io::Result<()> {
        let Some(socket) = &mut self.socket else { return Ok(()) };
        let mut answers = [0; 4096];
        loop {
            match socket.read(&mut answers) {
                Ok(0) => return Err(ErrorKind::ConnectionReset.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        while let Some(first) = self.waiting.front() {
            self.sent += socket.write(&first[self.sent..])?;
            if self.sent == first.len() {
                self.bytes -= first.len();
                self.sent = 0;
                self.waiting.pop_front();
            }
        }
        Ok(())
    }

    /// Gives the connection up, and with it what was to be sent: messages of pub/sub are not kept.
    fn disconnect(&mut self) {
        self.socket = None;
        self.waiting.clear();
        (self.bytes, self.sent) = (0, 0);
    }
}
