//! All clients of all workers, for `CLIENT LIST`, `CLIENT KILL` and `INFO`.
//!
//! The worker that owns the connection writes a [`Client`], with relaxed stores; any thread that
//! lists clients reads it. The registry is locked only when a client comes, goes, or clients are
//! listed.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use super::{ClientPushes, Counter, Now, Stream};

/// A client's transport and address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// A TCP connection.
    Tcp {
        /// The client's end.
        peer: SocketAddr,
        /// Our end.
        local: SocketAddr,
    },
    /// A connection to the Unix socket at this path.
    Unix(Arc<Path>),
}

impl Transport {
    /// `addr` of `CLIENT LIST`: the client's address and port, or the socket's path and `:0`.
    pub fn peer_text(&self) -> String {
        match self {
            Self::Tcp { peer, .. } => peer.to_string(),
            Self::Unix(path) => format!("{}:0", path.display()),
        }
    }

    /// Whether the client is on this host: on a Unix socket or a loopback address.
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp { peer, .. } => peer.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// `laddr` of `CLIENT LIST`: our address and port, or the socket's path and `:0`.
    pub fn local_text(&self) -> String {
        match self {
            Self::Tcp { local, .. } => local.to_string(),
            Self::Unix(path) => format!("{}:0", path.display()),
        }
    }
}

/// The numbers of the user and the group that a process runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerIds {
    /// The user.
    pub user: u32,
    /// The group.
    pub group: u32,
}

impl PeerIds {
    /// The process that has connected to this end of a Unix socket, if the system knows it.
    pub(crate) fn of(socket: &socket2::Socket) -> Option<Self> {
        #[cfg(target_os = "linux")]
        if let Ok(peer) = rustix::net::sockopt::socket_peercred(socket) {
            return Some(Self { user: peer.uid.as_raw(), group: peer.gid.as_raw() });
        }
        let _ = socket;
        None
    }
}

/// The destination of messages for a client. Stays unique after the client has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address {
    /// The client's number, growing from 1.
    pub id: u64,
    /// The worker that owns the connection.
    pub worker: u32,
    /// The connection's place in that worker.
    pub slot: u32,
}

/// In place of the worker of a connection that this process has made.
const OUTGOING: u32 = u32::MAX;

/// Which `client-output-buffer-limit` applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum OutputClass {
    /// Clients that send requests.
    #[default]
    Normal = 0,
    /// Replicas.
    Replica = 1,
    /// Clients with a subscription.
    Pubsub = 2,
}

/// The names that clients give themselves; written rarely.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// `CLIENT SETNAME`.
    pub name: Vec<u8>,
    /// `CLIENT SETINFO lib-name`.
    pub library_name: Vec<u8>,
    /// `CLIENT SETINFO lib-ver`.
    pub library_version: Vec<u8>,
    /// The user it authenticated as.
    pub user: Vec<u8>,
}

/// A client as other threads see it. Fields above the line are the layer's, those below the
/// service's.
#[derive(Debug)]
pub struct Client {
    /// The address for its messages.
    pub address: Address,
    /// How it is connected.
    pub transport: Transport,
    /// Its socket, while it is connected.
    pub(super) stream: OnceLock<Weak<Stream>>,
    /// Whether it is connected inside TLS.
    pub is_tls: bool,
    /// The process at the other end of a Unix socket.
    pub peer: Option<PeerIds>,
    /// The number of its socket in this process.
    pub descriptor: i32,
    /// When it connected, by [`Now::steady_ms`].
    pub created_ms: u64,
    /// When bytes last arrived, by [`Now::steady_ms`].
    pub last_interaction_ms: Counter,
    /// `qbuf`: received bytes that wait to be served.
    pub query_buffer_bytes: Counter,
    /// `qbuf-free`: unused bytes of the client's own input buffer.
    pub query_buffer_free_bytes: Counter,
    /// `oll`: chunks that wait to be sent.
    pub output_chunks: Counter,
    /// `omem`: bytes that wait to be sent.
    pub output_bytes: Counter,
    /// `tot-net-in`.
    pub input_bytes_total: Counter,
    /// `tot-net-out`.
    pub output_bytes_total: Counter,
    /// Bytes of the stream of replication that wait to be sent to it: in the log's ring, not in a buffer of its own.
    /// Written by the thread that feeds replicas.
    pub stream_bytes: Counter,

    /// An [`OutputClass`] as a number.
    output_class: Counter,
    /// `db`.
    pub database: Counter,
    /// Index of the last command in the command table, `u64::MAX` before the first.
    pub command: Counter,
    /// `resp`: 2 or 3.
    pub protocol: Counter,
    /// Not 0 if it waits for actions of others: then it may be idle for as long as it likes.
    pub listening: Counter,
    /// Flags of the service (`flags` is rendered from them).
    pub flags: Counter,
    /// `sub`: channels subscribed to.
    pub channels: Counter,
    /// `psub`: patterns subscribed to.
    pub patterns: Counter,
    /// `ssub`: shard channels subscribed to.
    pub shard_channels: Counter,
    /// Bytes of these subscriptions, here and in the tables of publishers.
    pub subscribed_bytes: Counter,
    /// Commands queued by `MULTI`, plus 1; 0 outside of a transaction.
    pub queued_commands: Counter,
    /// `multi-mem`: bytes of the queued commands.
    pub queued_bytes: Counter,
    /// `watch`: keys watched.
    pub watched_keys: Counter,
    /// Bytes of these keys, here and in the tables of writers.
    pub watched_bytes: Counter,
    /// Bytes of the prefixes that it tracks.
    pub prefix_bytes: Counter,
    /// Bytes of the fieldsets that it has prepared.
    pub fieldset_bytes: Counter,
    /// Its queue of pushes; there once it can be sent any.
    pub pushes: OnceLock<Box<ClientPushes>>,
    /// Not 0 if the client that it has redirected invalidations to has gone.
    pub broken_redirection: Counter,
    /// Whether a key that it watches has changed; there once it has watched one.
    pub has_dirty_watch: OnceLock<Arc<AtomicBool>>,
    /// `argv-mem`: bytes of the request in progress, outside of the input buffer.
    pub argument_bytes: Counter,
    /// `redir`: the client that invalidations go to, plus 1; 0 for none.
    pub redirection: Counter,
    /// `tot-cmds`.
    pub commands_total: Counter,
    names: Mutex<Names>,
    killed: AtomicBool,
}

impl Client {
    pub(crate) fn new(
        address: Address,
        transport: Transport,
        is_tls: bool,
        peer: Option<PeerIds>,
        descriptor: i32,
        now: Now,
    ) -> Self {
        let zero = Counter::default;
        Self {
            address,
            transport,
            stream: OnceLock::new(),
            is_tls,
            peer,
            descriptor,
            created_ms: now.steady_ms,
            last_interaction_ms: Counter::new(now.steady_ms),
            query_buffer_bytes: zero(),
            query_buffer_free_bytes: zero(),
            output_chunks: zero(),
            output_bytes: zero(),
            input_bytes_total: zero(),
            output_bytes_total: zero(),
            stream_bytes: zero(),
            output_class: zero(),
            database: zero(),
            command: Counter::new(u64::MAX),
            protocol: Counter::new(2),
            listening: zero(),
            flags: zero(),
            channels: zero(),
            patterns: zero(),
            shard_channels: zero(),
            subscribed_bytes: zero(),
            queued_commands: zero(),
            queued_bytes: zero(),
            watched_keys: zero(),
            watched_bytes: zero(),
            prefix_bytes: zero(),
            fieldset_bytes: zero(),
            pushes: OnceLock::new(),
            broken_redirection: zero(),
            has_dirty_watch: OnceLock::new(),
            argument_bytes: zero(),
            redirection: zero(),
            commands_total: zero(),
            names: Mutex::default(),
            killed: AtomicBool::new(false),
        }
    }

    /// The client's number.
    #[inline]
    pub fn id(&self) -> u64 {
        self.address.id
    }

    /// Whether this process has made the connection. Then no worker serves it: messages to it are dropped, and nothing is to be pushed
    /// to it. Its maker looks at [`Self::is_killed`].
    #[inline]
    pub fn is_outgoing(&self) -> bool {
        self.address.worker == OUTGOING
    }

    /// The names that the client gives itself.
    pub fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks the client as about to be closed: it is no longer listed. Returns whether it was not marked before. Any
    /// thread; to be followed by [`super::WorkerQueues::kill`].
    pub fn mark_killed(&self) -> bool {
        !self.killed.swap(true, Relaxed)
    }

    /// Whether [`Self::mark_killed`] was called.
    #[inline]
    pub fn is_killed(&self) -> bool {
        self.killed.load(Relaxed)
    }

    /// Bytes that it holds beside its connection: its buffers, for requests and replies, and what it has registered.
    pub fn held_bytes(&self) -> u64 {
        self.query_buffer_bytes.get()
            + self.query_buffer_free_bytes.get()
            + self.waiting_bytes()
            + self.argument_bytes.get()
            + self.queued_bytes.get()
            + self.subscribed_bytes.get()
            + self.watched_bytes.get()
            + self.prefix_bytes.get()
            + self.fieldset_bytes.get()
    }

    /// Its socket, while it is connected.
    #[inline]
    pub fn stream(&self) -> Option<Arc<Stream>> {
        self.stream.get()?.upgrade()
    }

    /// Which limit applies to it.
    pub fn output_class(&self) -> OutputClass {
        match self.output_class.get() {
            1 => OutputClass::Replica,
            2 => OutputClass::Pubsub,
            _ => OutputClass::Normal,
        }
    }

    /// Changes which output limit applies. Owner only.
    pub fn set_output_class(&self, class: OutputClass) {
        self.output_class.set(class as u64);
    }
}

impl std::fmt::Display for Client {
    /// For log lines: number, address and name.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.names();
        write!(out, "client {} ({}", self.id(), self.transport.peer_text())?;
        if !name.name.is_empty() {
            write!(out, ", {}", name.name.escape_ascii())?;
        }
        out.write_str(")")
    }
}

/// Sums over all clients, in bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Buffers {
    /// All that they hold beside their connections.
    pub held_bytes: usize,
    /// The number of replicas among them.
    pub replicas: usize,
    /// The share of replicas in `held_bytes`.
    pub replicas_held_bytes: usize,
    /// The largest buffers for requests of one client.
    pub input_bytes_max: u64,
    /// The most bytes that wait to be sent to one client.
    pub output_bytes_max: u64,
}

/// The registry.
#[derive(Debug, Default)]
pub struct Clients {
    /// Clients admitted and not yet gone, those on their way to a worker included.
    connected: AtomicUsize,
    id_last: AtomicU64,
    by_id: Mutex<HashMap<u64, Arc<Client>>>,
}

impl Clients {
    /// How many clients are connected.
    pub fn connected(&self) -> usize {
        self.connected.load(Relaxed)
    }

    /// All clients that are not about to be closed, oldest first. O(n log n).
    pub fn list(&self) -> Vec<Arc<Client>> {
        let mut clients: Vec<_> =
            self.by_id().values().filter(|client| !client.is_killed()).cloned().collect();
        clients.sort_unstable_by_key(|client| client.id());
        clients
    }

    /// Sums up the buffers of all clients. O(n).
    pub fn buffers(&self) -> Buffers {
        let mut sum = Buffers::default();
        for client in self.by_id().values() {
            let held = client.held_bytes() as usize;
            sum.held_bytes += held;
            if client.output_class() == OutputClass::Replica {
                sum.replicas += 1;
                sum.replicas_held_bytes += held;
            }
            let input = client.query_buffer_bytes.get()
                + client.query_buffer_free_bytes.get()
                + client.argument_bytes.get();
            sum.input_bytes_max = sum.input_bytes_max.max(input);
            let output = client.waiting_bytes() + client.stream_bytes.get();
            sum.output_bytes_max = sum.output_bytes_max.max(output);
        }
        sum
    }

    /// Lists a connection that this process has made among the clients; no limit counts it. The caller owns the client's
    /// counters, and is to [`Self::remove_outgoing`] it.
    pub fn add_outgoing(&self, transport: Transport, is_tls: bool, descriptor: i32) -> Arc<Client> {
        let id = self.id_last.fetch_add(1, Relaxed) + 1;
        let address = Address { id, worker: OUTGOING, slot: 0 };
        let client = Arc::new(Client::new(address, transport, is_tls, None, descriptor, Now::read()));
        self.register(&client);
        client
    }

    /// Takes such a connection off the list.
    pub fn remove_outgoing(&self, client: &Client) {
        debug_assert!(client.is_outgoing());
        self.by_id().remove(&client.id());
    }

    /// Shows every client to `look`, in no order. O(n), with the registry locked.
    pub fn visit(&self, mut look: impl FnMut(&Client)) {
        self.by_id().values().for_each(|client| look(client));
    }

    /// The client with this number.
    pub fn find(&self, id: u64) -> Option<Arc<Client>> {
        self.by_id().get(&id).cloned()
    }

    /// Makes room for one more client and numbers it; `None` when there are `clients_max`. Called
    /// by the one thread that accepts, so that the check cannot be overtaken.
    pub(crate) fn admit(&self, clients_max: usize) -> Option<u64> {
        if self.connected() >= clients_max {
            return None;
        }
        self.connected.fetch_add(1, Relaxed);
        Some(self.id_last.fetch_add(1, Relaxed) + 1)
    }

    /// Takes back what [`Self::admit`] granted to a client that was never registered.
    pub(crate) fn withdraw(&self) {
        self.connected.fetch_sub(1, Relaxed);
    }

    pub(crate) fn register(&self, client: &Arc<Client>) {
        self.by_id().insert(client.id(), client.clone());
    }

    pub(crate) fn remove(&self, id: u64) {
        self.by_id().remove(&id);
        self.connected.fetch_sub(1, Relaxed);
    }

    fn by_id(&self) -> MutexGuard<'_, HashMap<u64, Arc<Client>>> {
        self.by_id.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client that is on no worker.
#[cfg(any(test, feature = "testing"))]
pub fn test_client(id: u64) -> Arc<Client> {
    let address = Address { id, worker: 0, slot: id as u32 };
    Arc::new(Client::new(
        address,
        Transport::Unix(Path::new("/tmp/socket").into()),
        false,
        None,
        0,
        Now::read(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_that_the_process_made_are_listed_and_not_counted() {
        let clients = Clients::default();
        let transport = Transport::Unix(Path::new("/tmp/socket").into());
        let link = clients.add_outgoing(transport, false, 5);
        link.stream_bytes.set(7);
        assert!(link.is_outgoing() && !test_client(1).is_outgoing());
        assert_eq!((clients.connected(), clients.list().len()), (0, 1));
        assert_eq!(clients.buffers().output_bytes_max, 7);
        clients.remove_outgoing(&link);
        assert!(clients.list().is_empty());
    }

    #[test]
    fn clients_of_this_host_are_told_from_others() {
        for (peer, local) in [
            ("127.0.0.1:1", true),
            ("127.1.2.3:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("192.0.2.1:1", false),
            ("[2001:db8::1]:1", false),
            ("[::ffff:192.0.2.1]:1", false),
        ] {
            let peer: SocketAddr = peer.parse().unwrap();
            assert_eq!(Transport::Tcp { peer, local: peer }.is_local(), local, "{peer}");
        }
        assert!(Transport::Unix(Path::new("/tmp/socket").into()).is_local());
    }
}
