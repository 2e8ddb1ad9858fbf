//! Connections on which a node sends requests to other nodes: the messages of its shard, and those of the bus.
//!
//! A request that cannot be sent is dropped, with all that wait behind it: what goes here is either said again, and newer, or
//! not kept. Answers are read and not looked at.
//!
//! A name is looked up before each connection, on a thread of its own: a node may come back with another address, and a lookup
//! may fail, or take its time.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind, Read, Write},
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    os::fd::AsRawFd,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use dunlin_cluster::NodeId;
use dunlin_net::{Stream, begin_connection, tls::refusal};
use mio::{Interest, Registry, Token, unix::SourceFd};
use socket2::Socket;

use crate::{
    cluster::{LinkFigure, LinkFigures},
    config::Config,
    shared::Shared,
    system::sockets::limit_silence,
};

/// How long a connection may take to be made.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(1);
/// Memory of a link that it keeps when it has sent everything.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// A node's address, as its record says it.
pub(super) type HostPort = (String, u16);

struct Link {
    token: Token,
    place: HostPort,
    /// The address for the next connection, or of the one that there is.
    address: Address,
    stream: Option<Stream>,
    is_made: bool,
    tried: Option<Instant>,
    /// Requests, of which the first `sent` bytes are on their way.
    waiting: Vec<u8>,
    sent: usize,
    /// The reason of the last refusal in TLS that the log has.
    refusal: String,
}

/// The address of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Address {
    /// The address is not known, or may be another one by now.
    Unknown,
    /// A thread looks it up.
    Sought,
    Known(SocketAddr),
}

/// The end of a lookup.
type Found = (NodeId, HostPort, io::Result<SocketAddr>);

/// The connections.
pub(super) struct Links {
    links: BTreeMap<NodeId, Link>,
    /// The ends of lookups, which other threads send.
    found: (Sender<Found>, Receiver<Found>),
    look_up: fn(&HostPort) -> io::Result<SocketAddr>,
    next: usize,
    /// Bytes that wait for a node at most.
    waiting_bytes_max: usize,
    /// Between two attempts to connect to a node.
    retry: Duration,
    /// A connection is given up when the other machine has acknowledged nothing for this long.
    silence_max: Duration,
    /// INFO's figures of these connections.
    figure: fn(&LinkFigures) -> &LinkFigure,
}

impl Links {
    pub(super) fn new(
        waiting_bytes_max: usize,
        retry: Duration,
        silence_max: Duration,
        figure: fn(&LinkFigures) -> &LinkFigure,
    ) -> Self {
        let (links, found) = (BTreeMap::new(), channel());
        Self { links, found, look_up, next: 0, waiting_bytes_max, retry, silence_max, figure }
    }

    /// Keeps a connection to each of these nodes, and to no other.
    pub(super) fn set(&mut self, registry: &Registry, nodes: &[(NodeId, HostPort)]) {
        let mut before = std::mem::take(&mut self.links);
        for (node, place) in nodes {
            let known = before.remove(node).filter(|link| link.place == *place);
            let link = known.unwrap_or_else(|| {
                self.next += 1;
                Link {
                    token: Token(self.next),
                    place: place.clone(),
                    address: known_of(place),
                    stream: None,
                    is_made: false,
                    tried: None,
                    waiting: Vec::new(),
                    sent: 0,
                    refusal: String::new(),
                }
            });
            self.links.insert(*node, link);
        }
        before.values_mut().for_each(|link| link.disconnect(registry));
    }

    /// Looks addresses up that connections need, and takes those that have been found.
    fn find_addresses(&mut self, registry: &Registry, now: Instant) {
        for (node, place, address) in self.found.1.try_iter() {
            let Some(link) = self.links.get_mut(&node).filter(|link| link.place == place) else { continue };
            match address {
                // The connection is due at once.
                Ok(address) => (link.address, link.tried) = (Address::Known(address), None),
                Err(error) => {
                    tracing::debug!("Cluster: {} has no address: {error}", place.0);
                    link.disconnect(registry);
                }
            }
        }
        for (node, link) in &mut self.links {
            if link.address != Address::Unknown || !link.is_due(now, self.retry) {
                continue;
            }
            link.tried = Some(now);
            let (node, place, look_up, sender) =
                (*node, link.place.clone(), self.look_up, self.found.0.clone());
            let seek = move || {
                let address = look_up(&place);
                // If the links are gone, no thread waits for the address.
                let _ = sender.send((node, place, address));
            };
            match thread::Builder::new().name("cluster-names".to_owned()).spawn(seek) {
                Ok(_) => link.address = Address::Sought,
                Err(error) => tracing::warn!("Cluster: cannot start a thread: {error}"),
            }
        }
    }

    /// Sends a request. Returns whether there was room for it.
    pub(super) fn send(&mut self, node: NodeId, encoded: &[u8]) -> bool {
        let Some(link) = self.links.get_mut(&node) else { return true };
        let has_room = link.waiting.len() - link.sent + encoded.len() <= self.waiting_bytes_max;
        if has_room {
            link.waiting.extend_from_slice(encoded);
        }
        has_room
    }

    /// Connects if something is to be sent, and sends what the sockets take.
    pub(super) fn go_on(&mut self, registry: &Registry, shared: &Shared) {
        let now = Instant::now();
        self.find_addresses(registry, now);
        for link in self.links.values_mut() {
            if let Err(error) = link.go_on(registry, shared, now, (self.retry, self.silence_max))
                && error.kind() != ErrorKind::WouldBlock
                && error.kind() != ErrorKind::Interrupted
            {
                link.note_lost(&error);
                link.disconnect(registry);
            }
        }
        let open = self.links.values().filter(|link| link.is_made).count();
        let bytes = self.links.values().map(|link| link.waiting.capacity()).sum();
        (self.figure)(&shared.cluster.links).note(open, bytes);
    }
}

/// The address of a place that is no name.
fn known_of(place: &HostPort) -> Address {
    let ip = place.0.parse::<IpAddr>();
    ip.map_or(Address::Unknown, |ip| Address::Known(SocketAddr::new(ip, place.1)))
}

fn look_up(place: &HostPort) -> io::Result<SocketAddr> {
    let mut found = (place.0.as_str(), place.1).to_socket_addrs()?;
    found.next().ok_or_else(|| ErrorKind::NotFound.into())
}

/// Begins a connection. After a cut of the network it would stay deaf for up to as long again, until TCP tries once
/// more.
fn open(address: SocketAddr, source: Option<IpAddr>, silence_max: Duration) -> io::Result<Socket> {
    let socket = begin_connection(address, source)?;
    limit_silence(&socket, silence_max)?;
    Ok(socket)
}

impl Link {
    /// Logs why the connection is lost: for operators if it is a matter of certificates, once until it is made again.
    fn note_lost(&mut self, error: &io::Error) {
        let (host, port) = &self.place;
        match refusal(error) {
            Some(reason) if self.refusal != reason => {
                tracing::warn!("Cluster: TLS to {host}:{port} fails: {reason}");
                self.refusal = reason;
            }
            _ => tracing::debug!("The connection to {host}:{port} is lost: {error}"),
        }
    }

    /// Whether a connection is to be made.
    fn is_due(&self, now: Instant, retry: Duration) -> bool {
        let is_early = self.tried.is_some_and(|tried| now < tried + retry);
        self.stream.is_none() && !self.waiting.is_empty() && !is_early
    }

    fn go_on(
        &mut self,
        registry: &Registry,
        shared: &Shared,
        now: Instant,
        (retry, silence_max): (Duration, Duration),
    ) -> io::Result<()> {
        if self.stream.is_none() {
            let Address::Known(address) = self.address else { return Ok(()) };
            if !self.is_due(now, retry) {
                return Ok(());
            }
            self.tried = Some(now);
            let socket = open(address, shared.config.current().source_address(), silence_max)?;
            self.connect(registry, shared, socket)?;
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
        // Requests leave after the handshake.
        self.refusal.clear();
        stream.flush().map(drop)
    }

    fn connect(&mut self, registry: &Registry, shared: &Shared, socket: Socket) -> io::Result<()> {
        let config = shared.config.current();
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
        self.address = known_of(&self.place);
        (self.waiting, self.sent) = (Vec::new(), 0);
    }
}

/// The request by which a node makes itself known to another one, if that is needed.
fn login(config: &Config) -> Option<Vec<u8>> {
    let user: &[u8] = if config.masteruser.is_empty() { b"default" } else { config.masteruser.bytes() };
    (!config.masterauth.is_empty())
        .then(|| dunlin_replication::request(&[b"AUTH", user, config.masterauth.bytes()]))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering::SeqCst};

    use mio::Poll;

    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn link_ends_with_the_silence_of_the_other_machine() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let silence_max = Duration::from_millis(1_234);
        let socket = open(listener.local_addr().unwrap(), None, silence_max).unwrap();
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(silence_max));
    }

    #[test]
    fn link_resolves_its_name_before_each_connection() {
        static LOOKUPS: AtomicU8 = AtomicU8::new(0);
        let address = |last| SocketAddr::new(IpAddr::from([127, 0, 0, last]), 7000);
        let poll = Poll::new().unwrap();
        let mut links = Links::new(100, Duration::ZERO, Duration::ZERO, |figures| &figures.bus);
        links.look_up = |place| match LOOKUPS.fetch_add(1, SeqCst) {
            0 => Err(ErrorKind::NotFound.into()),
            count => Ok(SocketAddr::new(IpAddr::from([127, 0, 0, count]), place.1)),
        };
        let (name, number) = (NodeId::from_bytes([1; 20]), NodeId::from_bytes([2; 20]));
        let places = [(name, ("node".to_owned(), 7000)), (number, ("127.0.0.9".to_owned(), 7000))];
        links.set(poll.registry(), &places);
        links.find_addresses(poll.registry(), Instant::now());
        assert_eq!(LOOKUPS.load(SeqCst), 0, "nothing is to be sent");
        for expected in [1, 2] {
            while links.links[&name].address != Address::Known(address(expected)) {
                links.send(name, b"x");
                links.find_addresses(poll.registry(), Instant::now());
                thread::yield_now();
            }
            links.set(poll.registry(), &places);
            assert_eq!(links.links[&name].address, Address::Known(address(expected)));
            // The connection is lost, or was never made.
            links.links.values_mut().for_each(|link| link.disconnect(poll.registry()));
            assert_eq!(links.links[&number].address, Address::Known(address(9)));
        }
        assert_eq!(LOOKUPS.load(SeqCst), 3);
    }
}
