//! The state of replication that workers, INFO and the threads of [`crate::replicator`] share. The states of a link are the crate
//! `dunlin-replication`'s.
//!
//! Offsets of replication are the ring's offsets, plus a number that changes only behind the closed gate
//! ([`Replication::offset`]): the stream is the ring's bytes.

mod commit;
pub(crate) mod connection;
mod failover;
mod feed;
pub(crate) mod migration;

use std::sync::{
    Mutex, MutexGuard, OnceLock, PoisonError,
    atomic::{
        AtomicBool, AtomicU8, AtomicU64, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
    },
};

use dunlin_engine::{Engine, command::CommandError};
use dunlin_persist::{RingReader, manifest::StreamId};
use dunlin_replication::{Failover, History, Id, LinkState, StreamPosition};

use self::feed::Feed;
pub(crate) use self::feed::{AckWait, Hold};
pub(crate) use crate::session::replica::{ReplicaClient, Wanted};
use crate::{
    admission::{Check, Conditions, NOREPLICAS, READONLY},
    config::{Config, PrimaryAddress},
    durability::Durability,
};

/// The bits of [`Replication::state`]. A primary whose replies and writes do not depend on replicas has none of them
/// set.
pub(crate) const REPLICA: u8 = 1 << 0;
/// The stream does not come.
pub(crate) const STALE: u8 = 1 << 1;
/// There are fewer good replicas than `min-replicas-to-write`.
pub(crate) const LONELY: u8 = 1 << 2;

/// An order for the thread `replica`.
#[derive(Debug)]
pub(crate) enum RoleOrder {
    /// Follow this primary; if the server `hands_over`, it is a replica that is asked to become one.
    Follow { primary: PrimaryAddress, hands_over: bool },
    /// Follow no server.
    Promote,
    /// A node of a cluster: follow this primary, or wait for one. An empty data set without a history `begins` this one.
    Join { primary: Option<ShardPrimary>, begins: Option<Id> },
    /// A node of a cluster: be the primary, under this history, which continues another.
    /// The data set ends at `from`, or it stays a follower.
    Lead { history: Id, previous: Option<Id>, from: u64 },
    /// A node of a cluster: throw the data set away, and wait.
    Clear,
    /// A node of a cluster: make sure that no command is under way that was let in before.
    Rest,
}

/// A shard's primary, by its record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShardPrimary {
    pub(crate) address: PrimaryAddress,
    /// The shard's history. A copy of another one is refused: the server at the address is not the primary.
    pub(crate) history: Id,
}

/// The data set as the machine of a shard has to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DataState {
    /// Snapshots of primaries that were begun and ended; an odd number: one has not replaced the data set as a whole.
    pub(crate) copies: u64,
    /// The history that the data set is part of.
    pub(crate) history: Option<Id>,
    /// The offset up to which the data set has that history.
    pub(crate) end: u64,
    /// How much of it a start loads after a crash, under `appendfsync always`; all of it otherwise.
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
    /// The time since which the stream does not come; 0 while it does.
    pub(crate) down_since_ms: u64,
    /// Bytes of a snapshot, and in all if that is known, while one comes.
    pub(crate) snapshot: Option<(u64, Option<u64>)>,
    /// Why the link was given up for good.
    pub(crate) stopped: Option<String>,
    /// Why the last attempt to have the stream failed, until the stream comes.
    pub(crate) failed: Option<String>,
}

impl LinkStatus {
    /// Returns why the stream does not come, if that is known.
    pub(crate) fn error(&self) -> Option<&str> {
        self.stopped.as_deref().or(self.failed.as_deref())
    }

    /// A link to a primary is made, or ended, by order: former errors are none of its.
    pub(crate) fn begin_anew(&mut self) {
        (self.stopped, self.failed) = (None, None);
    }
}

/// Bytes of the ring that are kept for replication.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) backlog: u64,
    /// Beyond the backlog, for the replica that is furthest behind.
    pub(crate) for_replicas: u64,
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
    pub(crate) backlog_from: AtomicU64,
    pub(crate) has_backlog: AtomicBool,
    /// The database that the stream has selected, if it comes from a primary.
    pub(crate) database: AtomicUsize,
    link: Mutex<LinkStatus>,
    order: Mutex<Option<RoleOrder>>,
    /// Orders that were carried out.
    carried_out: AtomicU64,
    pub(crate) ordered: AtomicU64,
    pub(crate) replica_waker: OnceLock<mio::Waker>,
    failover: Mutex<Failover>,
    commits: commit::Commits,
    pub(crate) feed: Feed,
    pub(crate) syncs: SyncCounts,
    /// See [`DataState::copies`].
    copies: AtomicU64,
    /// Nothing of the link's own is put into the stream: its end is handed over.
    pub(crate) is_stream_held: AtomicBool,
    /// The log's files could not be read for a replica: they are not tried again.
    pub(crate) files_failed: AtomicBool,
    pub(crate) migrations: migration::Migrations,
    /// The last snapshot shows all of the stream: nothing more is put into it.
    pub(crate) stream_ended: AtomicBool,
    /// The threads are to end.
    pub(crate) ended: AtomicBool,
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
                failed: None,
            }),
            order: Mutex::default(),
            carried_out: AtomicU64::new(0),
            ordered: AtomicU64::new(0),
            replica_waker: OnceLock::new(),
            failover: Mutex::default(),
            commits: commit::Commits::new(workers),
            feed: Feed::default(),
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
        *self.feed.reader() = Some(second);
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

    pub(crate) fn set_state(&self, bit: u8, on: bool) {
        match on {
            true => self.state.fetch_or(bit, SeqCst),
            false => self.state.fetch_and(!bit, SeqCst),
        };
    }

    /// The history of the data set.
    pub(crate) fn history(&self) -> History {
        *self.lock_history()
    }

    pub(crate) fn lock_history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the threads are to end, since the server does.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(SeqCst)
    }

    /// Begins another history: `DEBUG CHANGE-REPL-ID`.
    pub(crate) fn change_id(&self, durability: &Durability) -> Result<(), String> {
        *self.lock_history() = History::new(new_id()?);
        self.keep_stream(durability);
        Ok(())
    }

    /// The offset of replication at an offset of the ring.
    pub(crate) fn offset(&self, ring_offset: u64) -> u64 {
        ring_offset.wrapping_add(self.base.load(Acquire))
    }

    /// The ring's offset at one of replication.
    pub(crate) fn ring_offset(&self, offset: u64) -> u64 {
        offset.wrapping_sub(self.base.load(Acquire))
    }

    /// The stream has selected a database.
    pub(crate) fn select(&self, database: usize) {
        self.database.store(database, Release);
    }

    /// The database that a replica of this server has to select at the end of the log.
    pub(crate) fn stream_database(&self) -> usize {
        if self.is_replica() { self.database.load(Acquire) } else { 0 }
    }

    /// The place in the stream at an offset of the ring.
    pub(crate) fn place_of(&self, ring_offset: u64) -> StreamPosition {
        StreamPosition {
            history: self.history(),
            offset: self.offset(ring_offset),
            database: self.stream_database(),
        }
    }

    /// The place in the stream at an offset of the ring, if something is kept for replicas.
    pub(crate) fn place(&self, ring_offset: u64) -> Option<StreamPosition> {
        self.has_place().then(|| self.place_of(ring_offset))
    }

    /// Whether there is a stream.
    pub(crate) fn has_place(&self) -> bool {
        self.has_backlog.load(Acquire)
    }

    /// Returns what data there is, for the machine of a shard. The end is no further than the history reaches. If only
    /// what is synced counts, nothing does while there is no log, or the log has no base: a start would load what was
    /// there before.
    pub(crate) fn data(&self, durability: &Durability, is_synced: bool) -> DataState {
        loop {
            let (copies, before) = (self.copies.load(SeqCst), self.history().id);
            let has_place = self.has_place();
            let tail = durability.tail();
            let end = self.offset(tail);
            let held = match is_synced {
                false => end,
                true => durability.fsynced().map_or(0, |synced| self.offset(synced.min(tail))),
            };
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

    /// Makes workers look again at the replies that they withhold.
    pub(crate) fn wake_withheld(&self, durability: &Durability) {
        self.end_commits(durability);
    }

    /// See [`DataState::copies`].
    pub(crate) fn copies(&self) -> u64 {
        self.copies.load(SeqCst)
    }

    /// A snapshot is about to take the place of the data set. Returns whether that was whole: no copy of it had begun.
    pub(crate) fn begin_copy(&self) -> bool {
        self.copies.fetch_or(1, SeqCst).is_multiple_of(2)
    }

    /// The copy was given up, and nothing was removed.
    pub(crate) fn abandon_copy(&self) {
        self.copies.fetch_and(!1, SeqCst);
    }

    /// It has. No thread reads yet.
    pub(crate) fn end_copy(&self, durability: &Durability) {
        self.forget_shard_commit();
        durability.marks.mark_everything(durability.tail());
        self.copies.fetch_add(1, SeqCst);
    }

    /// The history whose stream the log is, for its manifest.
    pub(crate) fn stream_id(&self) -> Option<StreamId> {
        let History { id, second } = self.history();
        let second = second.map(|(id, end)| (id.to_string(), end));
        self.has_place().then(|| StreamId { id: id.to_string(), base: self.base.load(Acquire), second })
    }

    /// Goes on in the stream that the data set was part of when it was kept. The ring is at its end, and no thread
    /// appends. A replica's history goes on; a primary begins one of its own, whose second is the former. `writer` is
    /// the caller's place in the log.
    pub(crate) fn restore(
        &self,
        engine: &Engine,
        durability: &Durability,
        writer: usize,
        place: StreamPosition,
    ) -> Result<(), String> {
        let StreamPosition { mut history, offset, database } = place;
        if !self.is_replica() {
            history.promote(new_id()?, offset);
        }
        self.restart_stream(engine, history, offset);
        let mut restored = database;
        if !self.is_replica() {
            if database != 0 {
                // Records from here on begin in database 0.
                let select = dunlin_replication::request(&[b"SELECT", b"0"]);
                durability.ring().append(writer, &select);
            }
            restored = 0;
        }
        self.select(restored);
        tracing::info!("The data set goes on in the history {} at {offset}", history.id);
        Ok(())
    }

    /// Makes the log say whose stream it is now. If it cannot, it is the log that does not go on. The caller is not
    /// inside the gate.
    pub(crate) fn keep_stream(&self, durability: &Durability) {
        if let Err(reason) = durability.set_stream(self.stream_id()) {
            tracing::error!(
                "the manifest of the log cannot say whose stream it is: {reason}. Nothing more is written to the log before it does"
            );
        }
    }

    /// Nothing more is put into the stream. The caller has closed the gate.
    pub(crate) fn end_stream(&self) {
        self.stream_ended.store(true, SeqCst);
    }

    /// The ring's bytes that are kept for replicas: from the first to behind the last, if there are any.
    pub(crate) fn backlog(&self, tail: u64) -> Option<(u64, u64)> {
        self.has_backlog.load(Acquire).then(|| (self.backlog_from.load(Acquire).min(tail), tail))
    }

    /// Returns how much of the ring is kept for replication: of the backlog, `repl-backlog-size` at most, and beyond it for replicas
    /// that are behind.
    pub(crate) fn kept(&self, tail: u64, backlog_size: u64) -> Kept {
        let bytes = self.backlog(tail).map_or(0, |(first, end)| end - first);
        let for_replicas = if self.replicas().is_empty() { 0 } else { bytes.saturating_sub(backlog_size) };
        Kept { backlog: bytes - for_replicas, for_replicas }
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

    /// Orders the thread `replica` to change the role. Returns the order's number, for [`Self::is_carried_out`]. A
    /// server that is to follow another one is a replica for its clients from here on.
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

    pub(crate) fn take_order(&self) -> Option<RoleOrder> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) fn has_order(&self) -> bool {
        self.order.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// All orders so far have been carried out.
    pub(crate) fn note_carried_out(&self, ordered: u64) {
        self.carried_out.store(ordered, SeqCst);
    }

    pub(crate) fn wake_replica(&self) {
        if let Some(waker) = self.replica_waker.get() {
            // Waking fails only if the thread has ended.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::durability::RING;
    use dunlin_persist::Ring;

    #[test]
    fn data_of_a_log_without_a_base_does_not_count_as_synced() {
        let durability = Durability::new(Ring::new(RING, 1, 0).0, Arc::default(), 1);
        let replication = Replication::new(Id::from_random([1; 20]), 1);
        replication.has_backlog.store(true, SeqCst);
        durability.ring().append(0, b"record");
        let held = |is_synced| replication.data(&durability, is_synced).held;
        durability.publish(6, 6);
        assert_eq!((held(false), held(true)), (6, 0), "there is no log");
        durability.lacks_base.store(true, SeqCst);
        durability.status().directory = Some("appendonlydir".into());
        assert_eq!((held(false), held(true)), (6, 0), "a start would load the log before");
        durability.lacks_base.store(false, SeqCst);
        assert_eq!((held(false), held(true)), (6, 6));
        // As while the log is rewritten under `no-appendfsync-on-rewrite yes`.
        durability.publish(6, 4);
        assert_eq!((held(false), held(true)), (6, 4));
    }
}
