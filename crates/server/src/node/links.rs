//! Connections on which a node sends requests to other nodes: the messages of its shard, and those of the bus.
//!
//! A request that cannot be sent is dropped, with all that wait behind it: what goes here is either said again, and newer, or
//! not kept. Answers are read and not looked at.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr},
    os::fd::AsRawFd,
    time::{Duration, Instant},
};

use dunlin_cluster::NodeId;
use dunlin_net::Stream;
use mio::{Interest, Registry, Token, net::TcpStream, unix::SourceFd};

use crate::{config::Config, shared::Shared};

/// How long a connection may take to be made.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(1);
/// Memory of a link that it keeps when it has sent everything.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// A node's address, as its record says it.
pub(super) type Place = (String, u16);

struct Link {
    token: Token,
    place: Place,
    /// The address of the place, once it is known.
    address: Option<SocketAddr>,
    stream: Option<Stream>,
    is_made: bool,
    tried: Option<Instant>,
    /// Requests, of which the first `sent` bytes are on their way.
    waiting: Vec<u8>,
    sent: usize,
}

/// The connections.
pub(super) struct Links {
    links: BTreeMap<NodeId, Link>,
    next: usize,
    /// Bytes that wait for a node at most.
    waiting_bytes_max: usize,
    /// Between two attempts to connect to a node.
    retry: Duration,
}

impl Links {
    pub(super) fn new(waiting_bytes_max: usize, retry: Duration) -> Self {
        Self { links: BTreeMap::new(), next: 0, waiting_bytes_max, retry }
    }

    /// Has a connection to each of these nodes, and to no other. Returns the names that have to be looked up.
    pub(super) fn set(&mut self, registry: &Registry, nodes: &[(NodeId, Place)]) -> Vec<(NodeId, Place)> {
        let mut before = std::mem::take(&mut self.links);
        let mut unresolved = Vec::new();
        for (node, place) in nodes {
            let known = before.remove(node).filter(|link| link.place == *place);
            let link = known.unwrap_or_else(|| {
                self.next += 1;
                let address = place.0.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, place.1));
                if address.is_none() {
                    unresolved.push((*node, place.clone()));
                }
                Link {
                    token: Token(self.next),
                    place: place.clone(),
                    address,
                    stream: None,
                    is_made: false,
                    tried: None,
                    waiting: Vec::new(),
                    sent: 0,
                }
            });
            self.links.insert(*node, link);
        }
        before.values_mut().for_each(|link| link.disconnect(registry));
        unresolved
    }

    /// The address of a name is known.
    pub(super) fn resolved(&mut self, node: NodeId, place: &Place, address: SocketAddr) {
        if let Some(link) = self.links.get_mut(&node).filter(|link| link.place == *place) {
            link.address = Some(address);
        }
    }

    /// Sends a request; whether there was room for it.
    pub(super) fn send(&mut self, node: NodeId, encoded: &[u8]) -> bool {
        let Some(link) = self.links.get_mut(&node) else { return true };
        let has_room = link.waiting.len() - link.sent + encoded.len() <= self.waiting_bytes_max;
        if has_room {
            link.waiting.extend_from_slice(encoded);
        }
        has_room
    }

    /// Connects where something is to be sent, and sends what the sockets take.
    pub(super) fn go_on(&mut self, registry: &Registry, shared: &Shared) {
        let now = Instant::now();
        for link in self.links.values_mut() {
            if let Err(error) = link.go_on(registry, shared, now, self.retry)
                && error.kind() != ErrorKind::WouldBlock
                && error.kind() != ErrorKind::Interrupted
            {
                tracing::debug!("The connection to {}:{} is lost: {error}", link.place.0, link.place.1);
                link.disconnect(registry);
            }
        }
    }
}

impl Link {
    fn go_on(
        &mut self,
        registry: &Registry,
        shared: &Shared,
        now: Instant,
        retry: Duration,
    ) -> io::Result<()> {
        if self.stream.is_none() {
            let is_due = self.tried.is_none_or(|tried| now >= tried + retry);
            let Some(address) = self.address.filter(|_| is_due && !self.waiting.is_empty()) else {
                return Ok(());
            };
            self.tried = Some(now);
            self.connect(registry, shared, address)?;
        }
        let Some(stream) = &self.stream else { return Ok(()) };
        if !self.is_made {
            if let Some(error) = stream.socket().take_error()? {
                return Err(error);
            }
            match stream.socket().peer_addr() {
                Ok(_) => self.is_made = true,
                Err(error) if error.kind() == ErrorKind::NotConnected => {
                    let is_late = self.tried.is_some_and(|tried| now >= tried + CONNECT_TIME_MAX);
                    return if is_late { Err(ErrorKind::TimedOut.into()) } else { Ok(()) };
                }
                Err(error) => return Err(error),
            }
            let _ = stream.socket().set_tcp_nodelay(true);
        }
        let mut answers = [0; 1024];
        loop {
            match (&*stream).read(&mut answers) {
                Ok(0) => return Err(ErrorKind::ConnectionReset.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        while self.sent < self.waiting.len() {
            match (&*stream).write(&self.waiting[self.sent..]) {
                Ok(sent) => self.sent += sent,
                Err(error) => {
                    // Half at least, so that moving the rest costs no more than sending did.
                    if self.sent > self.waiting.len() / 2 {
                        self.waiting.drain(..std::mem::take(&mut self.sent));
                    }
                    return Err(error);
                }
            }
        }
        self.waiting.clear();
        self.waiting.shrink_to(KEPT_BYTES_MAX);
        self.sent = 0;
        stream.flush().map(drop)
    }

    fn connect(&mut self, registry: &Registry, shared: &Shared, address: SocketAddr) -> io::Result<()> {
        let config = shared.config.current();
        let socket = std::net::TcpStream::from(TcpStream::connect(address)?).into();
        let stream = match shared.tls.cluster_client(&config, &self.place.0).transpose()? {
            Some(tls) => Stream::connect(socket, &tls)?,
            None => Stream::plain(socket),
        };
        let interest = Interest::READABLE | Interest::WRITABLE;
        registry.register(&mut SourceFd(&stream.as_raw_fd()), self.token, interest)?;
        (self.stream, self.is_made) = (Some(stream), false);
        if let Some(login) = login(&config) {
            self.waiting.splice(..0, login);
        }
        Ok(())
    }

    /// Gives the connection up, and with it what was to be sent.
    fn disconnect(&mut self, registry: &Registry) {
        if let Some(stream) = self.stream.take() {
            let _ = registry.deregister(&mut SourceFd(&stream.as_raw_fd()));
        }
        self.is_made = false;
        (self.waiting, self.sent) = (Vec::new(), 0);
    }
}

/// The request by which a node makes itself known to another one, where that is needed.
fn login(config: &Config) -> Option<Vec<u8>> {
    let user: &[u8] = if config.masteruser.is_empty() { b"default" } else { config.masteruser.bytes() };
    (!config.masterauth.is_empty())
        .then(|| dunlin_replication::request(&[b"AUTH", user, config.masterauth.bytes()]))
}
