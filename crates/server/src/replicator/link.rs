//! The thread `replica`: the link to the primary, while there is one.
//!
//! ```text
//! socket ─▶ Replica (handshake, framing) ─ snapshot ─▶ load (`snapshot.rs`)
//!                 └────────────────────── stream ───▶ Applier
//! ```
//!
//! The thread `replica` carries out changes of roles, since no other thread applies anything then.

use std::{
    io::{self, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, ToSocketAddrs},
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::Ordering::Relaxed,
        mpsc::{Receiver, TryRecvError, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use dunlin_net::{Address, Client, Now, Stream, Transport, WorkerQueues, begin_connection};
use dunlin_replication::{Action, Event, LinkState, Replica, ReplicaOptions};
use mio::{Events, Interest, Poll, Token, Waker, unix::SourceFd};
use socket2::SockAddr;

use super::{apply::Applier, failover, snapshot::Incoming, waiting::WaitingStream};
use crate::{
    config::{Config, PrimaryAddress},
    replication::STALE,
    shared::Shared,
    system::{host::monotonic_ms, sockets::limit_silence},
    workers::WorkerMessage,
};

const WAKER: Token = Token(0);
const SOCKET: Token = Token(1);
/// How often the clock is looked at, whatever comes.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// Bytes that are read at once.
pub(super) const READ_BYTES: usize = 256 << 10;
/// Bytes that are applied between two looks at orders and the clock.
const TURN_BYTES_MAX: usize = 8 << 20;

/// In a cluster: the link is made anew when the primary's machine has acknowledged nothing for this long. After a cut
/// of the network, TCP waits for up to as long again, and with it all writes that need this member.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Starts the thread.
pub(super) fn start(
    shared: &Arc<Shared>,
    queues: &WorkerQueues<WorkerMessage>,
) -> io::Result<JoinHandle<()>> {
    let poll = Poll::new()?;
    let waker = Waker::new(poll.registry(), WAKER)?;
    let _ = shared.replication.replica_waker.set(waker);
    let (shared, queues) = (Arc::clone(shared), queues.clone());
    thread::Builder::new()
        .name("replica".to_owned())
        // The stream of an old Redis may hold scripts.
        .stack_size(dunlin_scripting::STACK_BYTES)
        .spawn(move || {
            let applier = Applier::new(&shared, &queues);
            Link {
                shared,
                poll,
                events: Events::with_capacity(8),
                applier,
                primary: None,
                resolving: None,
                connection: None,
                incoming: None,
                waiting: WaitingStream::default(),
                to_unblock: Vec::new(),
            }
            .run();
        })
}

/// The socket to the primary.
pub(super) struct Connection {
    pub(super) stream: Stream,
    is_made: bool,
    pub(super) readable: bool,
    writable: bool,
    /// Bytes that it could not be sent yet.
    output: Vec<u8>,
    /// Bytes that have come and that have left.
    received: u64,
    sent: u64,
    /// The link as CLIENT LIST shows it, once the stream comes.
    client: Option<Arc<Client>>,
}

/// The primary that is followed.
pub(super) struct Primary {
    pub(super) address: PrimaryAddress,
    pub(super) replica: Replica,
    /// The link was given up for good.
    pub(super) is_stopped: bool,
}

pub(super) struct Link {
    pub(super) shared: Arc<Shared>,
    poll: Poll,
    events: Events,
    pub(super) applier: Applier,
    pub(super) primary: Option<Primary>,
    /// The address of the primary's name, which a thread looks up.
    resolving: Option<Receiver<io::Result<SocketAddr>>>,
    pub(super) connection: Option<Connection>,
    /// The snapshot that comes, and the stream that has come and waits for it.
    pub(super) incoming: Option<Incoming>,
    pub(super) waiting: WaitingStream,
    /// Clients whose waits are to end.
    pub(super) to_unblock: Vec<Address>,
}

impl Link {
    fn run(mut self) {
        let mut buffer = vec![0; READ_BYTES];
        while self.shared.loading.is_active() && !self.shared.replication.has_ended() {
            thread::sleep(Duration::from_millis(10));
        }
        while !self.shared.replication.has_ended() {
            let ordered = self.shared.replication.ordered.load(std::sync::atomic::Ordering::SeqCst);
            let order = self.shared.replication.take_order();
            let has_order = order.is_some();
            order.into_iter().for_each(|order| self.carry_out(order));
            self.shared.replication.note_carried_out(ordered);
            if has_order {
                // The thread that drives a shard's machine waits for it.
                self.shared.cluster.shard.wake();
            }
            let may_read =
                self.connection.as_ref().is_some_and(|connection| connection.readable) && !self.is_held();
            let timeout = match &self.primary {
                // A link that is ordered is made at once.
                _ if may_read || has_order => Duration::ZERO,
                Some(_) => TICK,
                None => Duration::from_secs(1),
            };
            if let Err(error) = self.wait(timeout) {
                tracing::error!("the link to the primary cannot be waited for: {error}");
                return;
            }
            if self.primary.as_ref().is_some_and(|primary| !primary.is_stopped) {
                self.advance(&mut buffer);
            }
            if !self.to_unblock.is_empty() {
                self.unblock_clients();
            }
            self.publish();
            self.show_client();
        }
    }

    /// Waits for the socket and for orders.
    pub(super) fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for event in self.events.iter().filter(|event| event.token() == SOCKET) {
            if let Some(connection) = &mut self.connection {
                connection.readable |= event.is_readable() || event.is_read_closed() || event.is_error();
                connection.writable |= event.is_writable() || event.is_error();
            }
        }
        Ok(())
    }

    /// Shows INFO and ROLE how the link is.
    pub(super) fn publish(&self) {
        let replication = &self.shared.replication;
        let mut status = replication.link();
        let Some(Primary { address, replica, .. }) = &self.primary else {
            status.primary = None;
            return;
        };
        if status.primary.as_ref() != Some(address) {
            status.primary = Some(address.clone());
        }
        let has_changed = std::mem::replace(&mut status.state, replica.link()) != replica.link();
        status.heard_ms = replica.heard_ms();
        status.down_since_ms = replica.down_since_ms().unwrap_or(0);
        status.snapshot = replica.snapshot_progress();
        if status.state == LinkState::Connected {
            status.failed = None;
        }
        drop(status);
        replication.set_state(STALE, replica.link() != LinkState::Connected);
        if has_changed {
            // A shard's follower that is sent away tries again soon.
            self.shared.cluster.shard.wake();
        }
    }

    /// Shows the link among the clients while the stream comes, and obeys CLIENT KILL.
    fn show_client(&mut self) {
        let is_connected =
            self.primary.as_ref().is_some_and(|primary| primary.replica.link() == LinkState::Connected);
        let (Some(connection), Some(clients)) = (&mut self.connection, self.shared.stats.clients()) else {
            return;
        };
        if connection.client.is_none() && is_connected {
            let socket = connection.stream.socket();
            let address =
                |address: io::Result<SockAddr>| address.ok().and_then(|address| address.as_socket());
            let (peer, local) = (address(socket.peer_addr()), address(socket.local_addr()));
            // Without an address it is gone already, which the next read shows.
            let (Some(peer), Some(local)) = (peer, local) else { return };
            let (transport, is_tls) = (Transport::Tcp { peer, local }, connection.stream.is_tls());
            connection.client = Some(clients.add_outgoing(transport, is_tls, connection.stream.as_raw_fd()));
        }
        let Some(client) = &connection.client else { return };
        if client.is_killed() {
            return self.lose("CLIENT KILL has closed it");
        }
        if client.input_bytes_total.get() != connection.received {
            client.last_interaction_ms.set(Now::read().steady_ms);
        }
        client.input_bytes_total.set(connection.received);
        client.output_bytes_total.set(connection.sent);
        client.output_bytes.set(connection.output.len() as u64);
        client.query_buffer_bytes.set(self.applier.waiting_bytes() as u64);
        client.database.set(self.applier.database() as u64);
        let (commands, last) = self.applier.applied();
        client.commands_total.set(commands);
        client.command.set(last.map_or(u64::MAX, |index| index as u64));
    }

    pub(super) fn step(&mut self, event: Event<'_>) -> (Vec<Action>, usize) {
        let mut actions = Vec::new();
        let Some(primary) = &mut self.primary else { return (actions, 0) };
        let taken = primary.replica.step(monotonic_ms(), event, &mut actions);
        (actions, taken)
    }

    /// Does what is due, and what has come.
    fn advance(&mut self, buffer: &mut [u8]) {
        self.note_fsynced();
        if let Some(primary) = &mut self.primary {
            primary.replica.options = options(&self.shared);
        }
        // The socket is read before timeouts are looked at: this server may have been stopped for longer than they last.
        self.read_what_came(buffer);
        let (actions, _) = self.step(Event::Tick);
        self.act(actions, &[]);
        self.take_resolved();
        self.connect_further();
        self.send();
    }

    /// Whether the stream waits for the end of CLIENT PAUSE, as the writes of clients do.
    fn is_held(&self) -> bool {
        let is_connected =
            self.primary.as_ref().is_some_and(|primary| primary.replica.link() == LinkState::Connected);
        let pause = &self.shared.pause;
        // A failover's own pause has no end by the clock, and needs the stream.
        is_connected && pause.is_set() && matches!(pause.in_force(Instant::now()), Some((_, Some(_))))
    }

    fn read_what_came(&mut self, buffer: &mut [u8]) {
        if self.is_held() {
            // The link is not read from meanwhile, which is not the primary's silence.
            self.step(Event::Received(&[]));
            return;
        }
        let mut read = 0;
        while read < TURN_BYTES_MAX
            && !self.shared.replication.has_order()
            && !self.shared.replication.has_ended()
        {
            let Some(connection) = self.connection.as_mut() else { return };
            if !connection.readable || !connection.is_made {
                return;
            }
            match (&connection.stream).read(buffer) {
                Ok(0) => return self.lose("it was closed"),
                Ok(bytes) => {
                    connection.readable = true;
                    connection.received += bytes as u64;
                    self.shared.stats.links.from_primary.fetch_add(bytes as u64, Relaxed);
                    read += bytes;
                    self.receive(&buffer[..bytes]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => connection.readable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.lose(&error.to_string()),
            }
        }
    }

    /// Takes how much of the data set is on disk, for acknowledgements.
    pub(super) fn note_fsynced(&mut self) {
        let fsynced = self.shared.durability.fsynced();
        if let Some(primary) = &mut self.primary {
            primary.replica.fsynced = fsynced.map(|synced| self.shared.replication.offset(synced));
        }
    }

    fn receive(&mut self, bytes: &[u8]) {
        let (actions, taken) = self.step(Event::Received(bytes));
        self.act(actions, bytes);
        match self.loads_now() {
            true => {
                self.keep_stream(&bytes[taken..]);
                self.load();
                self.apply_waiting();
            }
            false => self.apply(&bytes[taken..]),
        }
    }

    /// Keeps bytes of the stream until the snapshot is loaded. Returns whether there is room for more.
    pub(super) fn keep_stream(&mut self, bytes: &[u8]) -> bool {
        let kept = self.waiting.push(bytes, &self.shared.config.current());
        if let Err(error) = &kept {
            tracing::warn!("the stream behind the snapshot cannot be kept in a file: {error}");
        }
        kept.is_ok()
    }

    /// Applies the stream that has waited for the snapshot. Bytes that an order or the server's end keep from being applied are lost
    /// with the link.
    fn apply_waiting(&mut self) {
        let (mut buffer, mut shown) = (Vec::new(), Instant::now());
        while !self.shared.replication.has_order() && !self.shared.replication.has_ended() {
            match self.waiting.next(&mut buffer) {
                Ok(0) => return,
                Ok(_) => self.apply(&buffer),
                Err(error) => return self.fail(&format!("the stream that was kept cannot be read: {error}")),
            }
            if shown.elapsed() >= TICK {
                shown = Instant::now();
                // The link is not read from meanwhile, which is not the primary's silence.
                self.step(Event::Received(&[]));
                self.pass_time();
            }
        }
    }

    /// Does what is due while something takes long. A link that is gone is seen when it is read from again.
    pub(super) fn pass_time(&mut self) {
        let (actions, _) = self.step(Event::Tick);
        self.act(actions, &[]);
        self.publish();
        if let Some(connection) = &mut self.connection
            && let Ok(sent) = connection.send()
        {
            self.shared.stats.links.to_primary.fetch_add(sent, Relaxed);
        }
    }

    /// Applies bytes of the stream.
    fn apply(&mut self, bytes: &[u8]) {
        let Some(primary) = &self.primary else { return };
        if self.connection.is_none() || primary.replica.link() != LinkState::Connected {
            return;
        }
        let applied = self.applier.take(bytes);
        self.applier.leave_kept_out();
        match applied {
            Ok(()) => {
                let offset = self.shared.replication.offset(self.shared.durability.tail());
                self.step(Event::Applied(offset));
                let imports = !self.shared.engine.keyspace.hidden().is_empty();
                if self.shared.cluster.is_sync() || imports || self.applier.ack_wanted {
                    // The primary's clients wait for this, or the source of a move.
                    self.shared.cluster.shard.wake();
                }
                if std::mem::take(&mut self.applier.ack_wanted) {
                    let (actions, _) = self.step(Event::AckWanted);
                    self.act(actions, &[]);
                }
            }
            Err(reason) => self.give_up(&reason),
        }
    }

    pub(super) fn act(&mut self, actions: Vec<Action>, bytes: &[u8]) {
        for action in actions {
            match action {
                Action::Connect => self.connect(),
                Action::Send(bytes) => {
                    if let Some(connection) = &mut self.connection {
                        connection.output.extend_from_slice(&bytes);
                    }
                }
                Action::Close(reason) => {
                    tracing::warn!("The link to the primary is closed: {reason}");
                    self.break_off(&reason);
                }
                Action::Warn(line) => tracing::warn!("{line}"),
                Action::BeginSnapshot { id, offset, framing } => self.begin_snapshot(id, offset, framing),
                Action::Snapshot { held, range } => self.take_snapshot(&[&held, &bytes[range]]),
                Action::Stream(range) => {
                    if !self.keep_stream(&bytes[range]) {
                        self.fail("there is no room for the stream beside the snapshot");
                    }
                }
                Action::EndSnapshot => self.end_snapshot(),
                Action::HandedOver(true) => {
                    tracing::info!("The replica takes over");
                    failover::end(&self.shared);
                }
                Action::HandedOver(false) => {
                    // The order to be a primary again is carried out next.
                    failover::give_up(&self.shared, "Failover target rejected psync request");
                }
                Action::Continue(id) => {
                    let replication = &self.shared.replication;
                    let offset = replication.offset(self.shared.durability.tail());
                    tracing::info!("Partial resynchronisation: the stream of {id} goes on at {offset}");
                    let before = replication.history().id;
                    replication.lock_history().continue_as(id, offset);
                    if before != id {
                        replication.feed.cut_all();
                        // Before anything of the new history is applied.
                        replication.keep_stream(&self.shared.durability);
                    }
                }
            }
        }
    }

    /// Throws the data set away: it has no history now.
    pub(super) fn clear(&mut self) {
        let replication = &self.shared.replication;
        replication.feed.cut_all();
        match self.empty() {
            Ok(has_log) => {
                replication.end_stream_for_replicas(&self.shared.engine);
                replication.end_copy(&self.shared.durability);
                self.shared.loading.end();
                self.turn_log_on(has_log);
                tracing::info!("The data set is thrown away: the node has left its shard");
            }
            Err(reason) => tracing::error!("the data set cannot be thrown away: {reason}"),
        }
    }

    fn connect(&mut self) {
        let Some(primary) = &self.primary else { return };
        let PrimaryAddress { host, port } = &primary.address;
        match host.parse::<IpAddr>() {
            Ok(address) => self.connect_to(Ok(SocketAddr::new(address, *port))),
            Err(_) => self.resolving = Some(resolve(&self.shared, host.clone(), *port)),
        }
    }

    /// Goes on when the primary's name is known.
    fn take_resolved(&mut self) {
        let Some(resolving) = &self.resolving else { return };
        let resolved = match resolving.try_recv() {
            Err(TryRecvError::Empty) => return,
            Ok(resolved) => resolved,
            Err(TryRecvError::Disconnected) => Err(io::Error::other("no thread looks the name up")),
        };
        self.resolving = None;
        self.connect_to(resolved);
    }

    fn connect_to(&mut self, address: io::Result<SocketAddr>) {
        let Some(primary) = &self.primary else { return };
        match address.and_then(|address| self.open(address, &primary.address.host)) {
            Ok(connection) => self.connection = Some(connection),
            Err(error) => self.lose(&error.to_string()),
        }
    }

    fn open(&self, address: SocketAddr, host: &str) -> io::Result<Connection> {
        let socket = begin_connection(address, self.shared.config.current().source_address())?;
        if self.shared.cluster.is_on() {
            limit_silence(&socket, SILENCE_MAX)?;
        }
        let stream = match self.shared.tls.client(&self.shared.config.current(), host).transpose()? {
            Some(tls) => Stream::connect(socket, &tls)?,
            None => Stream::plain(socket),
        };
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut SourceFd(&stream.as_raw_fd()), SOCKET, interest)?;
        Ok(Connection {
            stream,
            is_made: false,
            readable: false,
            writable: false,
            output: Vec::new(),
            received: 0,
            sent: 0,
            client: None,
        })
    }

    /// Goes on with a connection that is being made.
    fn connect_further(&mut self) {
        let Some(connection) = self.connection.as_mut().filter(|connection| !connection.is_made) else {
            return;
        };
        match connection.stream.socket().take_error() {
            Ok(None) if !connection.writable => return,
            Ok(None) => {}
            Ok(Some(error)) | Err(error) => return self.lose(&error.to_string()),
        }
        match connection.stream.socket().peer_addr() {
            Ok(_) => {
                connection.is_made = true;
                // Acknowledgements are small, and clients may wait for them.
                let _ = connection.stream.socket().set_tcp_nodelay(true);
                let (actions, _) = self.step(Event::Connected);
                self.act(actions, &[]);
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
            Err(error) => self.lose(&error.to_string()),
        }
    }

    pub(super) fn send(&mut self) {
        let Some(connection) = self.connection.as_mut().filter(|connection| connection.is_made) else {
            return;
        };
        match connection.send() {
            Ok(sent) => _ = self.shared.stats.links.to_primary.fetch_add(sent, Relaxed),
            Err(error) => self.lose(&error.to_string()),
        }
    }

    /// The connection is gone, or could not be made.
    pub(super) fn lose(&mut self, reason: &str) {
        tracing::warn!("The link to the primary is lost: {reason}");
        self.break_off(reason);
    }

    /// Ends a link that has failed. INFO shows why, until another attempt succeeds.
    fn break_off(&mut self, reason: &str) {
        self.disconnect(reason);
        self.shared.replication.link().failed = Some(reason.to_owned());
    }

    pub(super) fn disconnect(&mut self, reason: &str) {
        if let Some(connection) = self.connection.take() {
            if let (Some(clients), Some(client)) = (self.shared.stats.clients(), &connection.client) {
                clients.remove_outgoing(client);
            }
            let _ = self.poll.registry().deregister(&mut SourceFd(&connection.stream.as_raw_fd()));
            let _ = connection.stream.shutdown(Shutdown::Both);
        }
        self.resolving = None;
        self.incoming = None;
        self.waiting.clear();
        self.applier.cut();
        self.step(Event::Closed(reason));
    }

    /// Something here went wrong; it is tried again.
    pub(super) fn fail(&mut self, reason: &str) {
        tracing::error!("Replication fails: {reason}");
        self.break_off(reason);
    }

    /// The primary has something that this server cannot hold: trying again would come to the same.
    pub(super) fn give_up(&mut self, reason: &str) {
        tracing::error!("Replication is stopped: {reason}. Nothing more is applied; REPLICAOF begins anew");
        self.disconnect(reason);
        // No replica is to go on from here: the data set may lack something that the stream has.
        if let Err(reason) = self.shared.replication.change_id(&self.shared.durability) {
            tracing::error!("{reason}");
        }
        self.shared.replication.feed.cut_all();
        self.shared.replication.link().stopped = Some(reason.to_owned());
        if let Some(primary) = &mut self.primary {
            primary.replica.forget_position();
            primary.is_stopped = true;
        }
    }
}

/// Looks the address of a name up on a thread of its own: that may take long, and orders are carried out meanwhile.
fn resolve(shared: &Arc<Shared>, host: String, port: u16) -> Receiver<io::Result<SocketAddr>> {
    let (sender, receiver) = channel();
    let shared = Arc::downgrade(shared);
    let run = move || {
        let none = || io::Error::other("the name has no address");
        let resolved =
            (host, port).to_socket_addrs().and_then(|mut addresses| addresses.next().ok_or_else(none));
        // The link may have been given up meanwhile.
        let _ = sender.send(resolved);
        shared.upgrade().iter().for_each(|shared| shared.replication.wake_replica());
    };
    // Without a thread, the receiver sees the end of the sender.
    let _ = thread::Builder::new().name("resolve".to_owned()).spawn(run);
    receiver
}

impl Connection {
    /// Sends what the socket takes; how many bytes that was.
    fn send(&mut self) -> io::Result<u64> {
        let before = self.sent;
        while !self.output.is_empty() {
            match (&self.stream).write(&self.output) {
                Ok(sent) => {
                    self.sent += sent as u64;
                    drop(self.output.drain(..sent));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        // Records of earlier bytes may wait.
        self.stream.flush()?;
        Ok(self.sent - before)
    }
}

/// The port that the primary tells others of.
fn announced_port(config: &Config) -> u16 {
    match config.replica_announce_port {
        0 if config.tls_replication && config.tls_port != 0 => config.tls_port,
        0 => config.port,
        announced => announced,
    }
}

pub(super) fn options(shared: &Shared) -> ReplicaOptions {
    let config = &*shared.config.current();
    ReplicaOptions {
        user: config.masteruser.bytes().to_vec(),
        password: config.masterauth.bytes().to_vec(),
        port: announced_port(config),
        announce_ip: config.replica_announce_ip.clone(),
        timeout_ms: u64::from(config.repl_timeout) * 1000,
        is_node: shared.cluster.is_on(),
    }
}
