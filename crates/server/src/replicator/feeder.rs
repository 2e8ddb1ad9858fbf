//! The thread `feeder`: sends the log's ring to replicas, keeps the backlog, and answers PSYNC.
//!
//! ```text
//!        backlog, at least                  being sent to the slowest replica
//! ring ──┼──────────────────────────────────┼───────────────────────┼──▶ tail
//!        held for those that come back      └ no further behind than client-output-buffer-limit replica
//! ```
//!
//! The worker that has accepted a replica's socket reads it, and runs its REPLCONF ACK like any command. Once the
//! replica has asked for the stream, only this thread writes to the socket: nothing else is said to it.

use std::{
    collections::HashMap,
    io::{self, IoSlice, Write},
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::{
            Ordering::{Acquire, Relaxed, Release, SeqCst},
            fence,
        },
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use dunlin_engine::LogConsumer;
use dunlin_net::{OutputClass, WorkerQueues};
use dunlin_persist::{RingReader, aof::Follower};
use dunlin_replication::{GETACK, PING, Peer, PeerTick, Phase, Resync};
use mio::{Events, Interest, Poll, Token, Waker, unix::SourceFd};

use super::{catch_up, failover, transfer};
use crate::{
    config::{Config, ConfigReader},
    session::replica::{ReplicaClient, Wanted},
    shared::Shared as Server,
    system::host::monotonic_ms,
    workers::WorkerMessage,
};

const WAKER: Token = Token(usize::MAX);
/// How often the clock is looked at, whatever comes.
const TICK: Duration = Duration::from_millis(100);
/// The longest that records wait to be sent together, if no client waits for an acknowledgement: each write to a socket
/// wakes its reader, which costs more than all else that is done here (decision 0063).
const GATHERING: Duration = Duration::from_millis(1);
/// Bytes that are offered to a socket at once, and slices of them.
const OFFERED_BYTES_MAX: u64 = 1 << 20;
const SLICES_MAX: usize = 64;
/// Bytes that one replica is sent before the others have their turn.
const TURN_BYTES_MAX: u64 = 8 << 20;

/// Starts the thread.
pub(super) fn start(
    server: &Arc<Server>,
    queues: &WorkerQueues<WorkerMessage>,
) -> io::Result<JoinHandle<()>> {
    let poll = Poll::new()?;
    let shared = &server.replication.feed;
    let _ = shared.waker.set(Waker::new(poll.registry(), WAKER)?);
    let _ = shared.queues.set(queues.clone());
    let config = ConfigReader::new(Arc::clone(&server.config));
    let feeder = Feeder {
        server: Arc::clone(server),
        config,
        poll,
        known: HashMap::new(),
        pinged_ms: monotonic_ms(),
        alone_since_ms: monotonic_ms(),
        transfer: None,
        gathers_since_ms: None,
        failover: failover::Progress::default(),
    };
    thread::Builder::new().name("feeder".to_owned()).spawn(move || feeder.run())
}

/// The thread's own state of a replica.
#[derive(Default)]
struct Known {
    /// The socket is full until the poller reports room.
    is_full: bool,
}

struct Feeder {
    server: Arc<Server>,
    config: ConfigReader,
    poll: Poll,
    /// By the client's number.
    known: HashMap<u64, Known>,
    pinged_ms: u64,
    /// The time since which there has been no replica.
    alone_since_ms: u64,
    transfer: Option<transfer::Transfer>,
    /// The time since which the first of the replicas that wait for the next snapshot has waited.
    gathers_since_ms: Option<u64>,
    failover: failover::Progress,
}

impl Feeder {
    fn run(mut self) {
        let mut events = Events::with_capacity(64);
        while !self.server.replication.has_ended() {
            self.config.refresh();
            let replicas = self.server.replication.replicas();
            self.keep_watch(&replicas);
            self.keep_time(&replicas);
            self.failover.advance(&self.server);
            self.answer(&replicas);
            // A replica that goes on where it was counts from here on.
            self.server.replication.count_good();
            let (has_sent, has_more) = self.send(&replicas);
            self.end_transfer();
            let shared = &self.server.replication.feed;
            let timeout = match replicas.is_empty() {
                _ if has_more => Duration::ZERO,
                // The backlog is cut to its size though no replica follows.
                true if !self.server.replication.has_backlog.load(Acquire) => Duration::from_secs(1),
                _ => TICK,
            };
            let is_awaited = shared.waiting.load(SeqCst) > 0 || shared.acks_wanted.load(SeqCst);
            let timeout = if has_sent && !has_more && !is_awaited {
                // Records do not wake this thread now; a client that waits for an acknowledgement does.
                GATHERING
            } else {
                let is_following = replicas.iter().any(|replica| replica.peer().takes_stream());
                shared.is_resting.store(is_following, SeqCst);
                fence(SeqCst);
                if is_following && self.lags(&replicas) { Duration::ZERO } else { timeout }
            };
            if let Err(error) = self.poll.poll(&mut events, Some(timeout))
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!("replicas cannot be waited for: {error}");
                return;
            }
            shared.is_resting.store(false, SeqCst);
            for event in &events {
                if let Some(known) = self.known.get_mut(&(event.token().0 as u64)) {
                    known.is_full = false;
                }
            }
        }
    }

    /// Whether there is something for a replica that can take it.
    fn lags(&self, replicas: &[Arc<ReplicaClient>]) -> bool {
        let tail = self.server.durability.tail();
        replicas.iter().any(|replica| {
            let is_full = self.known.get(&replica.client.id()).is_some_and(|known| known.is_full);
            let is_fed = !is_full && !replica.is_catching_up.load(SeqCst);
            let peer = replica.peer();
            is_fed && peer.takes_stream() && replica.sent.load(Acquire) < self.stream_end(&peer, tail)
        })
    }

    /// The end of what a replica is sent of the stream, which has come to `tail`. A replica that is not a node of a
    /// cluster sees nothing that could be lost with this primary: what the shard has committed, under
    /// `cluster-durability sync`.
    fn stream_end(&self, peer: &Peer, tail: u64) -> u64 {
        match peer.is_node || !self.server.cluster.is_sync() {
            true => tail,
            false => tail.min(self.server.replication.shard_committed()),
        }
    }

    /// Registers sockets with the poller, which reports when they can take more.
    fn keep_watch(&mut self, replicas: &[Arc<ReplicaClient>]) {
        let registry = self.poll.registry();
        self.known.retain(|id, _| replicas.iter().any(|replica| replica.client.id() == *id));
        for replica in replicas {
            let id = replica.client.id();
            if let std::collections::hash_map::Entry::Vacant(entry) = self.known.entry(id) {
                let mut source = SourceFd(&replica.socket.as_raw_fd());
                match registry.register(&mut source, Token(id as usize), Interest::WRITABLE) {
                    Ok(()) => _ = entry.insert(Known::default()),
                    Err(error) => replica.cut(&format!("it cannot be waited for: {error}")),
                }
            }
        }
    }

    /// Does what only time brings about.
    fn keep_time(&mut self, replicas: &[Arc<ReplicaClient>]) {
        let (now_ms, config) = (monotonic_ms(), self.config.config());
        let replication = &self.server.replication;
        let timeout_ms = u64::from(config.repl_timeout) * 1000;
        for replica in replicas.iter().filter(|replica| !replica.is_gone()) {
            let tick = replica.peer().tick(now_ms, timeout_ms);
            match tick {
                PeerTick::Nothing => {}
                PeerTick::Newline => _ = (&*replica.socket).write(b"\n"),
                PeerTick::Cut => replica.cut("it has been silent for repl-timeout"),
            }
        }
        if replication.needs_backlog(config) && !self.server.loading.is_active() {
            self.begin_backlog();
        }
        replication.count_good();
        replication.note_commits(&self.server.durability, config);
        if !replicas.is_empty() {
            self.alone_since_ms = now_ms;
        } else if config.repl_backlog_ttl > 0
            && !self.server.cluster.is_on()
            && !replication.needs_backlog(config)
            && replication.feed.held().is_none()
            && now_ms.saturating_sub(self.alone_since_ms) >= u64::from(config.repl_backlog_ttl) * 1000
        {
            self.end_backlog();
        }
        if replication.is_replica() {
            return;
        }
        // Nothing is put into a stream whose end a replica is to come to.
        if replication.is_failing_over() {
            return;
        }
        let is_ping_due =
            now_ms.saturating_sub(self.pinged_ms) >= u64::from(config.repl_ping_replica_period) * 1000;
        if is_ping_due {
            self.pinged_ms = now_ms;
        }
        let wants_acks = replication.feed.acks_wanted.swap(false, SeqCst);
        let is_followed = replicas.iter().any(|replica| replica.peer().phase() != Phase::Handshake);
        if is_followed && (is_ping_due || wants_acks) {
            self.record(if wants_acks { GETACK } else { PING });
        }
    }

    /// Puts something of the link's own into the stream.
    fn record(&self, bytes: &[u8]) {
        let (server, id) = (&self.server, self.server.feeder());
        // If a script has closed the gate for long, nothing else happens either.
        let Some(_inside) = server.engine.keyspace.enter_unless_long(id) else { return };
        let replication = &server.replication;
        // Checked again inside the gate: a change of the role notes the stream's end behind the closed gate.
        let changes_role = replication.is_replica() || replication.is_failing_over();
        let has_ended =
            changes_role || replication.stream_ended.load(SeqCst) || replication.is_stream_held.load(SeqCst);
        if server.engine.log.is_on_for(LogConsumer::Replicas) && !has_ended {
            server.durability.ring().append(id, bytes);
            server.durability.wake_log(server.durability.tail());
        }
    }

    /// Gives the backlog up: no replica has come for long. Records from now on belong to another history.
    fn end_backlog(&self) {
        let replication = &self.server.replication;
        if !replication.has_backlog.load(Acquire) || replication.is_replica() {
            return;
        }
        {
            let mut reader = replication.feed.reader();
            let Some(reader) = &mut *reader else { return };
            let _closed = self.server.engine.keyspace.close();
            self.server.engine.log.turn(LogConsumer::Replicas, false);
            replication.has_backlog.store(false, Release);
            reader.park();
        }
        if replication.change_id(&self.server.durability).is_ok() {
            tracing::info!("The backlog is freed: no replica has come for repl-backlog-ttl");
        }
    }

    /// Begins to record for replicas, unless that is done.
    fn begin_backlog(&self) {
        self.server.replication.begin_backlog(&self.server.engine, &self.server.durability);
    }

    /// Answers those that ask for the stream or for a snapshot.
    fn answer(&mut self, replicas: &[Arc<ReplicaClient>]) {
        let server = Arc::clone(&self.server);
        let replication = &server.replication;
        for replica in replicas.iter().filter(|replica| !replica.is_gone()) {
            let Some(wanted) = replica.wanted().take() else { continue };
            replica.client.set_output_class(OutputClass::Replica);
            let now_ms = monotonic_ms();
            let resync = match &wanted {
                Wanted::Stream { id, offset } => {
                    let timeout = Duration::from_secs(self.config.config().repl_timeout.into());
                    if let Some(follower) = follow_files(&server, id, *offset) {
                        let from = replication.offset(follower.at());
                        self.go_on(replica, from);
                        if let Err(error) = catch_up::begin(&server, replica, follower, timeout) {
                            replica.cut(&format!("it cannot be sent the log's files: {error}"));
                        }
                        continue;
                    }
                    let reader = replication.feed.reader();
                    let tail = server.durability.tail();
                    let backlog = replication.backlog(tail);
                    let backlog =
                        backlog.map(|(first, end)| (replication.offset(first), replication.offset(end)));
                    let resync = replication.history().decide(id, *offset, backlog);
                    if let Resync::Partial { from } = resync {
                        // Held by what the reader holds, until it is sent.
                        replica.sent.store(replication.ring_offset(from), Release);
                    }
                    drop(reader);
                    resync
                }
                Wanted::Snapshot => {
                    replica.peer().is_old = true;
                    Resync::Full
                }
            };
            match resync {
                Resync::Partial { from } => self.go_on(replica, from),
                Resync::Full => {
                    if let Wanted::Stream { offset: 0.., .. } = wanted {
                        replication.syncs.partial_refused.fetch_add(1, Relaxed);
                    }
                    replication.syncs.full.fetch_add(1, Relaxed);
                    // The next one may be elsewhere in them, or they are others by then.
                    replication.files_failed.store(false, SeqCst);
                    replica.peer().wait(now_ms);
                }
            }
        }
        let waiting: Vec<_> = replicas
            .iter()
            .filter(|replica| !replica.is_gone() && replica.peer().phase() == Phase::Waiting)
            .map(Arc::clone)
            .collect();
        if self.transfer.is_none()
            && !server.loading.is_active()
            && self.has_gathered(waiting.len(), monotonic_ms())
        {
            self.gathers_since_ms = None;
            self.begin_backlog();
            self.transfer = transfer::Transfer::begin(&server, waiting, self.config.config());
        }
    }

    /// Whether a snapshot for `waiting` replicas begins now, or waits for more (`repl-diskless-sync-delay`).
    fn has_gathered(&mut self, waiting: usize, now_ms: u64) -> bool {
        if waiting == 0 {
            self.gathers_since_ms = None;
            return false;
        }
        let config = self.config.config();
        let since = *self.gathers_since_ms.get_or_insert(now_ms);
        let delay_ms =
            if config.repl_diskless_sync { u64::from(config.repl_diskless_sync_delay) * 1000 } else { 0 };
        let enough = config.repl_diskless_sync_max_replicas as usize;
        now_ms.saturating_sub(since) >= delay_ms || (enough > 0 && waiting >= enough)
    }

    /// Answers a replica that goes on where it was.
    fn go_on(&self, replica: &ReplicaClient, from: u64) {
        let replication = &self.server.replication;
        replication.syncs.partial_ok.fetch_add(1, Relaxed);
        let id = replication.history().id;
        let line = replica.peer().continue_online(id.as_str(), from, monotonic_ms());
        tracing::info!("{} goes on at {from}", replica.client);
        // A new socket takes a line.
        if (&*replica.socket).write(&line).ok() != Some(line.len()) {
            replica.cut("it takes no reply");
        }
    }

    fn end_transfer(&mut self) {
        if self.transfer.as_ref().is_some_and(transfer::Transfer::has_ended)
            && let Some(transfer) = self.transfer.take()
        {
            transfer.end();
        }
    }

    /// Sends what there is. Returns whether something was sent, and whether there is more that can be.
    fn send(&mut self, replicas: &[Arc<ReplicaClient>]) -> (bool, bool) {
        let server = Arc::clone(&self.server);
        let replication = &server.replication;
        let mut guard = replication.feed.reader();
        let Some(reader) = guard.as_mut().filter(|_| replication.has_backlog.load(Acquire)) else {
            return (false, false);
        };
        let config = self.config.config();
        let (published, bound) = (reader.published(), lag_max(config));
        let (mut has_sent, mut has_more) = (false, false);
        let is_catching_up = |replica: &Arc<ReplicaClient>| replica.is_catching_up.load(SeqCst);
        let kept = match replicas.iter().any(is_catching_up) {
            true => config.repl_backlog_size.max(catch_up::KEPT_BYTES_MIN),
            false => config.repl_backlog_size,
        };
        let mut held = published.saturating_sub(kept);
        for replica in replicas.iter().filter(|replica| !replica.is_gone()) {
            let (phase, takes_stream, end) = {
                let peer = replica.peer();
                (peer.phase(), peer.takes_stream(), self.stream_end(&peer, published))
            };
            let sent = match phase {
                Phase::Handshake | Phase::Waiting => continue,
                Phase::Online if is_catching_up(replica) => {
                    replica.note_lag(published);
                    continue;
                }
                // The replica goes on after its snapshot.
                Phase::Sending | Phase::AwaitingAck if !takes_stream => replica.sent.load(Acquire),
                Phase::Sending | Phase::AwaitingAck | Phase::Online => {
                    let known = self.known.entry(replica.client.id()).or_default();
                    let before = replica.sent.load(Acquire);
                    let result = send_to(reader, replica, before, end, known);
                    let sent = result.unwrap_or_else(|error| {
                        replica.cut(&error.to_string());
                        before
                    });
                    server.stats.links.to_replicas.fetch_add(sent - before, Relaxed);
                    has_sent |= sent > before;
                    has_more |= sent < end && !known.is_full;
                    replica.sent.store(sent, Release);
                    sent
                }
            };
            replica.note_lag(published);
            if published.saturating_sub(sent) > bound {
                replica.cut("it is behind by more than client-output-buffer-limit replica allows");
                continue;
            }
            held = held.min(sent);
        }
        let held = replication.feed.held().map_or(held, |other| other.min(held));
        let from = held.max(replication.backlog_from.load(Acquire));
        replication.backlog_from.store(from, Release);
        reader.give_up(from);
        (has_sent, has_more)
    }
}

/// Returns the log's files at the place that a replica asks for, if the ring does not go back that far and they do.
fn follow_files(server: &Server, id: &[u8], asked: i64) -> Option<Follower> {
    let replication = &server.replication;
    let tail = server.durability.tail();
    let (first, end) = replication.backlog(tail)?;
    // Whatever is behind the history's beginning may be in the files.
    let all = Some((0, replication.offset(end)));
    let Resync::Partial { from } = replication.history().decide(id, asked, all) else { return None };
    let at = replication.ring_offset(from);
    if at >= first || replication.files_failed.load(SeqCst) {
        return None;
    }
    server.durability.follow_files(&server.config.current(), at)
}

/// Bytes that a replica may be behind.
fn lag_max(config: &Config) -> u64 {
    let limit = config.client_output_buffer_limit.replica.hard_bytes;
    let limit = if limit == 0 { u64::MAX } else { limit };
    limit.max(config.repl_backlog_size)
}

/// Sends a replica the ring's bytes from one offset to another, as far as it takes them; the offset behind.
fn send_to(
    reader: &mut RingReader,
    replica: &ReplicaClient,
    from: u64,
    to: u64,
    known: &mut Known,
) -> io::Result<u64> {
    let mut at = from;
    known.is_full = known.is_full || !replica.socket.flush()?;
    while at < to && !known.is_full && at - from < TURN_BYTES_MAX {
        let end = to.min(at + OFFERED_BYTES_MAX);
        let result = match reader.slices(at, end) {
            Some(slices) => {
                let slices: Vec<_> = slices.into_iter().take(SLICES_MAX).map(IoSlice::new).collect();
                (&*replica.socket).write_vectored(&slices)
            }
            None => {
                let mut copied = Vec::with_capacity((end - at) as usize);
                reader.read(at, end, |part| copied.extend_from_slice(part));
                (&*replica.socket).write(&copied)
            }
        };
        match result {
            Ok(sent) => at += sent as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => known.is_full = true,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    known.is_full |= replica.socket.has_unsent();
    replica.client.output_bytes_total.add(at - from);
    Ok(at)
}
