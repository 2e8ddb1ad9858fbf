//! Replication at work: what workers, the two threads of replication and INFO share. The states of a link are the crate
//! `dunlin-replication`'s.
//!
//! ```text
//! primary   workers ─▶ ring ─▶ thread `feeder` ─▶ sockets of replicas        REPLCONF ACK comes through workers
//!                              thread `snapshot` ─▶ the same, for a full resynchronisation
//! replica   thread `replica`: socket ─▶ spool, loader ─▶ keyspace; then stream ─▶ keyspace and ring
//! ```
//!
//! Offsets of replication are the ring's offsets, plus a number that changes only behind the closed gate
//! ([`Replication::offset`]): the stream is the ring's bytes.

mod apply;
mod catch_up;
mod commit;
mod failover;
mod feeder;
mod link;
mod migration;
mod roles;
mod transfer;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{
            AtomicBool, AtomicU8, AtomicU64, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release, SeqCst},
        },
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use dunlin_engine::{LogConsumer, command::CommandError};
use dunlin_persist::{RingReader, manifest::StreamId};
use dunlin_replication::{Failover, History, Id, LinkState, Place};

pub(crate) use self::{
    failover::{abort as abort_failover, begin as begin_failover, redirection},
    feeder::AckWait,
    migration::send as send_keys,
};
pub(crate) use crate::session::replica::{ReplicaClient, Wanted};
use crate::{
    admission::{Check, Conditions, NOREPLICAS, READONLY},
    config::{Config, PrimaryAddress},
    shared::Shared,
    system::host,
};

/// How long the threads wait at most for the workers to begin.
const BEGIN_TIME_MAX: Duration = Duration::from_secs(5);

/// Between two looks whether replicas have all, at the end.
const DRAIN_PAUSE: Duration = Duration::from_millis(2);

/// The bits of [`Replication::state`]. None is set on a primary that nobody needs replicas of.
const REPLICA: u8 = 1 << 0;
/// The stream does not come.
const STALE: u8 = 1 << 1;
/// There are fewer good replicas than `min-replicas-to-write`.
const LONELY: u8 = 1 << 2;

/// An order for the thread `replica`.
#[derive(Debug)]
pub(crate) enum RoleOrder {
    /// Follow this primary; where the server `hands_over`, it is a replica that is asked to become one.
    Follow { primary: PrimaryAddress, hands_over: bool },
    /// Follow nobody.
    Promote,
    /// A node of a cluster: follow this primary, or wait for one. An empty data set without a history `begins` this one.
    Join { primary: Option<PrimaryAddress>, begins: Option<Id> },
    /// A node of a cluster: be the primary, under this history, which continues another.
    /// The data set ends at `from`, or it stays a follower.
    Lead { history: Id, previous: Option<Id>, from: u64 },
    /// A node of a cluster: throw the data set away, and wait.
    Clear,
    /// A node of a cluster: see to it that no command is under way that was let in before.
    Rest,
}

/// The data set as the machine of a shard has to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DataState {
    /// Snapshots of primaries that were begun and ended; an odd number: one has not replaced the data set as a whole.
    pub(crate) copies: u64,
    /// The history that it is part of.
    pub(crate) history: Option<Id>,
    /// Where it ends.
    pub(crate) end: u64,
    /// How much of it a crash leaves, under `appendfsync always`; all of it otherwise.
    pub(crate) held: u64,
}

impl DataState {
    /// Whether the data set is there as a whole.
    pub(crate) fn is_whole(&self) -> bool {
        self.copies.is_multiple_of(2)
    }
}

/// The link to the primary, as INFO and ROLE show it.
#[derive(Debug, Clone)]
pub(crate) struct LinkStatus {
    pub(crate) primary: Option<PrimaryAddress>,
    pub(crate) state: LinkState,
    pub(crate) heard_ms: u64,
    /// Since when the stream does not come; 0 while it does.
    pub(crate) down_since_ms: u64,
    /// Bytes of a snapshot, and in all where that is known, while one comes.
    pub(crate) snapshot: Option<(u64, Option<u64>)>,
    /// Why the link was given up for good.
    pub(crate) stopped: Option<String>,
}

/// Resynchronisations so far.
#[derive(Debug, Default)]
pub(crate) struct SyncCounts {
    pub(crate) full: AtomicU64,
    pub(crate) partial_ok: AtomicU64,
    pub(crate) partial_refused: AtomicU64,
}

/// Replication as all threads see it.
pub(crate) struct Replication {
    state: AtomicU8,
    history: Mutex<History>,
    /// The offset of replication at the ring's offset 0, modulo 2^64.
    base: AtomicU64,
    /// The ring's first byte of the backlog, and whether there is one.
    backlog_from: AtomicU64,
    has_backlog: AtomicBool,
    /// The database that the stream has selected, where it comes from a primary.
    database: AtomicUsize,
    link: Mutex<LinkStatus>,
    order: Mutex<Option<RoleOrder>>,
    /// Orders that were carried out.
    carried_out: AtomicU64,
    ordered: AtomicU64,
    replica_waker: OnceLock<mio::Waker>,
    failover: Mutex<Failover>,
    commits: commit::Commits,
    feeder: feeder::Shared,
    pub(crate) syncs: SyncCounts,
    /// See [`DataState::copies`].
    copies: AtomicU64,
    /// Nothing of the link's own is put into the stream: its end is handed over.
    is_stream_held: AtomicBool,
    /// The log's files could not be read for a replica: they are not tried again.
    files_failed: AtomicBool,
    migrations: migration::Migrations,
    /// The last snapshot shows all of the stream: nothing more is put into it.
    stream_ended: AtomicBool,
    /// The threads are to end.
    ended: AtomicBool,
}

impl Replication {
    pub(crate) fn new(id: Id, workers: usize) -> Self {
        Self {
            state: AtomicU8::new(0),
            history: Mutex::new(History::new(id)),
            base: AtomicU64::new(0),
            backlog_from: AtomicU64::new(0),
            has_backlog: AtomicBool::new(false),
            database: AtomicUsize::new(0),
            link: Mutex::new(LinkStatus {
                primary: None,
                state: LinkState::Connect,
                heard_ms: 0,
                down_since_ms: 0,
                snapshot: None,
                stopped: None,
            }),
            order: Mutex::default(),
            carried_out: AtomicU64::new(0),
            ordered: AtomicU64::new(0),
            replica_waker: OnceLock::new(),
            failover: Mutex::default(),
            commits: commit::Commits::new(workers),
            feeder: feeder::Shared::default(),
            syncs: SyncCounts::default(),
            copies: AtomicU64::new(0),
            is_stream_held: AtomicBool::new(false),
            files_failed: AtomicBool::new(false),
            migrations: migration::Migrations::default(),
            stream_ended: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// Hands over the ring's second reader. Called once, before anything is loaded.
    pub(crate) fn attach(&self, mut second: RingReader) {
        second.park();
        *self.feeder.reader() = Some(second);
    }

    /// Whether the data set follows a primary.
    #[inline]
    pub(crate) fn is_replica(&self) -> bool {
        self.state.load(Relaxed) & REPLICA != 0
    }

    /// The server is to be a replica as soon as it has started: nothing is written before.
    pub(crate) fn expect_primary(&self) {
        self.set_state(REPLICA | STALE, true);
    }

    /// The conditions of the server's role for its clients.
    #[inline]
    pub(crate) fn conditions(&self, config: &Config) -> Conditions {
        let state = self.state.load(Relaxed);
        if state == 0 {
            return Conditions::default();
        }
        let is_replica = state & REPLICA != 0;
        Conditions::default()
            .with(Check::FewReplicas, !is_replica && state & LONELY != 0)
            .with(Check::ReadOnlyReplica, is_replica && config.replica_read_only)
            .with(Check::StaleReplica, is_replica && state & STALE != 0 && !config.replica_serve_stale_data)
    }

    /// Why nothing may be written because of the role.
    pub(crate) fn write_refusal(&self, config: &Config) -> Option<CommandError> {
        let conditions = self.conditions(config);
        if conditions.has(Check::FewReplicas) {
            return Some(NOREPLICAS);
        }
        conditions.has(Check::ReadOnlyReplica).then_some(READONLY)
    }

    fn set_state(&self, bit: u8, on: bool) {
        match on {
            true => self.state.fetch_or(bit, SeqCst),
            false => self.state.fetch_and(!bit, SeqCst),
        };
    }

    /// The history of the data set.
    pub(crate) fn history(&self) -> History {
        *self.lock_history()
    }

    fn lock_history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the threads are to end, since the server does.
    fn has_ended(&self) -> bool {
        self.ended.load(SeqCst)
    }

    /// Begins another history: `DEBUG CHANGE-REPL-ID`.
    pub(crate) fn change_id(&self, shared: &Shared) -> Result<(), String> {
        *self.lock_history() = History::new(new_id()?);
        self.keep_stream(shared);
        Ok(())
    }

    /// The offset of replication at an offset of the ring.
    pub(crate) fn offset(&self, ring_offset: u64) -> u64 {
        ring_offset.wrapping_add(self.base.load(Acquire))
    }

    /// The ring's offset at one of replication.
    fn ring_offset(&self, offset: u64) -> u64 {
        offset.wrapping_sub(self.base.load(Acquire))
    }

    /// The stream has selected a database.
    fn select(&self, database: usize) {
        self.database.store(database, Release);
    }

    /// The database that a replica of this server has to select at the end of the log.
    pub(crate) fn stream_database(&self) -> usize {
        if self.is_replica() { self.database.load(Acquire) } else { 0 }
    }

    /// The place in the stream at an offset of the ring.
    pub(crate) fn place_of(&self, ring_offset: u64) -> Place {
        Place { history: self.history(), offset: self.offset(ring_offset), database: self.stream_database() }
    }

    /// The same, where there is a stream: something is kept for replicas.
    pub(crate) fn place(&self, ring_offset: u64) -> Option<Place> {
        self.has_place().then(|| self.place_of(ring_offset))
    }

    /// Whether there is a stream.
    pub(crate) fn has_place(&self) -> bool {
        self.has_backlog.load(Acquire)
    }

    /// Returns what data there is, for the machine of a shard. The end is no further than the history reaches. Where only what is
    /// synced counts, nothing does while there is no log.
    pub(crate) fn data(&self, shared: &Shared, is_synced: bool) -> DataState {
        loop {
            let (copies, before) = (self.copies.load(SeqCst), self.history().id);
            let has_place = self.has_place();
            let durability = &shared.durability;
            let tail = durability.tail();
            let has_log = shared.engine.log.is_on_for(LogConsumer::File);
            let (end, held) = (
                self.offset(tail),
                match (is_synced, has_log) {
                    (false, _) => self.offset(tail),
                    (true, true) => self.offset(durability.durable().min(tail)),
                    (true, false) => 0,
                },
            );
            if (copies, before, has_place) == (self.copies.load(SeqCst), self.history().id, self.has_place())
            {
                return match has_place {
                    true => DataState { copies, history: Some(before), end, held: held.min(end) },
                    false => DataState { copies, history: None, end: 0, held: 0 },
                };
            }
        }
    }

    /// Whether the data set is one of those that begin anew with every second copy: readers of the one before know it by that.
    pub(crate) fn is_copy_odd(&self) -> bool {
        self.copies.load(SeqCst) / 2 % 2 == 1
    }

    /// Puts nothing of the link's own into the stream, or does so again.
    pub(crate) fn hold_stream(&self, on: bool) {
        self.is_stream_held.store(on, SeqCst);
    }

    /// Has workers look again at the replies that they withhold.
    pub(crate) fn wake_withheld(&self, shared: &Shared) {
        self.end_commits(shared);
    }

    /// A snapshot is about to take the place of the data set.
    fn begin_copy(&self) {
        self.copies.fetch_or(1, SeqCst);
    }

    /// It has. Nobody reads yet.
    fn end_copy(&self) {
        self.forget_shard_commit();
        self.copies.fetch_add(1, SeqCst);
    }

    /// The history whose stream the log is, for its manifest.
    pub(crate) fn stream_id(&self) -> Option<StreamId> {
        let History { id, second } = self.history();
        let second = second.map(|(id, end)| (id.to_string(), end));
        self.has_place().then(|| StreamId { id: id.to_string(), base: self.base.load(Acquire), second })
    }

    /// Goes on in the stream that the data set was part of when it was kept. The ring is at its end, and nobody appends. A
    /// replica's history goes on; a primary begins one of its own, whose second is the former.
    pub(crate) fn restore(&self, shared: &Shared, place: Place) -> Result<(), String> {
        let Place { mut history, offset, database } = place;
        if !self.is_replica() {
            history.promote(new_id()?, offset);
        }
        self.feeder.restart(shared, history, offset);
        let mut restored = database;
        if !self.is_replica() {
            if database != 0 {
                // Records from here on begin in database 0.
                let select = dunlin_replication::request(&[b"SELECT", b"0"]);
                shared.durability.ring().append(shared.loader(), &select);
            }
            restored = 0;
        }
        self.select(restored);
        tracing::info!("The data set goes on in the history {} at {offset}", history.id);
        Ok(())
    }

    /// Has the log say whose stream it is now. The caller is not inside the gate.
    fn keep_stream(&self, shared: &Shared) {
        if let Err(reason) = shared.durability.set_stream(self.stream_id()) {
            tracing::error!("the manifest of the log cannot say whose stream it is: {reason}");
        }
    }

    /// Has replicas get all that they lack before the server ends, within a time: after a restart they go on from there. Writes
    /// are held back for good.
    pub(crate) fn drain(&self, shared: &Shared, time: Duration) {
        let is_behind = |replica: &Arc<ReplicaClient>| replica.is_behind(shared.durability.tail());
        if time.is_zero() || self.replicas().is_empty() {
            return;
        }
        let until = Instant::now() + time;
        shared.pause.begin(Instant::now(), i64::MAX as u64, crate::admission::PauseScope::Writes);
        // Batches that are under way may not have seen it.
        if shared.alone_unless_long(|_| self.end_stream()).is_none() {
            return;
        }
        self.feeder.wake();
        while self.replicas().iter().any(is_behind) && Instant::now() < until {
            std::thread::sleep(DRAIN_PAUSE);
        }
    }

    /// Nothing more is put into the stream. The caller has closed the gate.
    pub(crate) fn end_stream(&self) {
        self.stream_ended.store(true, SeqCst);
    }

    /// The ring's bytes that are kept for replicas: from the first to behind the last, where there are any.
    pub(crate) fn backlog(&self, tail: u64) -> Option<(u64, u64)> {
        self.has_backlog.load(Acquire).then(|| (self.backlog_from.load(Acquire).min(tail), tail))
    }

    /// Whether replicas of this server can be told something: it is a primary, or its own link is up.
    pub(crate) fn may_feed(&self) -> bool {
        self.state.load(Relaxed) & (REPLICA | STALE) != REPLICA | STALE
    }

    /// Idle connections to servers that MIGRATE has sent keys to.
    pub(crate) fn idle_migrations(&self) -> usize {
        self.migrations.idle_connections()
    }

    /// The link to the primary.
    pub(crate) fn link(&self) -> MutexGuard<'_, LinkStatus> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the thread `replica` change the role; the order's number, for [`Self::is_carried_out`]. A server that is to follow
    /// another one is a replica for its clients from here on.
    pub(crate) fn order(&self, order: RoleOrder) -> u64 {
        let mut slot = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(order, RoleOrder::Promote | RoleOrder::Lead { .. } | RoleOrder::Rest) {
            self.set_state(REPLICA | STALE, true);
        }
        *slot = Some(order);
        let number = self.ordered.fetch_add(1, SeqCst) + 1;
        drop(slot);
        self.wake_replica();
        number
    }

    /// Whether an order, or a later one, has been carried out.
    pub(crate) fn is_carried_out(&self, number: u64) -> bool {
        self.carried_out.load(SeqCst) >= number
    }

    fn take_order(&self) -> Option<RoleOrder> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn has_order(&self) -> bool {
        self.order.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// All orders so far have been carried out.
    fn note_carried_out(&self, ordered: u64) {
        self.carried_out.store(ordered, SeqCst);
    }

    fn wake_replica(&self) {
        if let Some(waker) = self.replica_waker.get() {
            // It fails only where the thread has ended.
            let _ = waker.wake();
        }
    }
}

/// Draws an id.
pub(crate) fn new_id() -> Result<Id, String> {
    let mut bytes = [0; 20];
    getrandom::fill(&mut bytes).map_err(|error| format!("cannot draw a random identity: {error}"))?;
    Ok(Id::from_random(bytes))
}

/// The threads of replication.
pub(crate) struct Threads {
    replica: JoinHandle<()>,
    feeder: JoinHandle<()>,
}

impl Threads {
    /// Starts them. [`Replication::attach`] has been called.
    pub(crate) fn start(shared: &Arc<Shared>) -> std::io::Result<Self> {
        let until = Instant::now() + BEGIN_TIME_MAX;
        // The first worker that runs brings it.
        let queues = loop {
            match shared.durability.queues() {
                Some(queues) => break queues,
                None if Instant::now() < until => std::thread::sleep(Duration::from_micros(200)),
                None => return Err(std::io::Error::other("the workers do not run")),
            }
        };
        let feeder = feeder::start(shared, queues)?;
        let replica = link::start(shared, queues)?;
        let config = shared.config.current();
        if let Some(primary) = config.replicaof.clone() {
            shared.replication.order(RoleOrder::Follow { primary, hands_over: false });
        }
        Ok(Self { replica, feeder })
    }

    /// Ends them.
    pub(crate) fn join(self, shared: &Shared) {
        shared.replication.ended.store(true, SeqCst);
        shared.replication.wake_replica();
        shared.replication.feeder.wake();
        for thread in [self.replica, self.feeder] {
            if thread.join().is_err() {
                tracing::error!("a thread of replication failed");
            }
        }
    }
}

/// Milliseconds of a clock that only goes forward; never 0.
pub(crate) fn now_ms() -> u64 {
    host::monotonic_ns() / 1_000_000 + 1
}
