//! The backlog of the stream, the replicas that are fed from it, and clients that wait for their acknowledgements. The thread
//! `feeder` works on it.

use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
    atomic::{
        AtomicBool, AtomicU64, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release, SeqCst},
        fence,
    },
};

use dunlin_engine::{Engine, LogConsumer};
use dunlin_net::{Address, WorkerQueues};
use dunlin_persist::RingReader;
use dunlin_replication::{History, Phase};
use mio::Waker;

use super::{LONELY, ReplicaClient, Replication, Wanted, commit::ring_mark};
use crate::{config::Config, durability::Durability, system::host::monotonic_ms, workers::WorkerMessage};

/// A client that waits until a number of replicas have acknowledged the log up to a mark.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AckWait {
    pub(crate) mark: u64,
    pub(crate) replicas: u64,
    /// Offsets that they have on disk count, not those that they have applied.
    pub(crate) fsynced: bool,
    pub(crate) client: Address,
}

/// The state of the thread `feeder` that others see.
#[derive(Default)]
pub(crate) struct Feed {
    reader: Mutex<Option<RingReader>>,
    clients: Mutex<Vec<Arc<ReplicaClient>>>,
    waits: Mutex<Vec<AckWait>>,
    /// How many waits there are.
    pub(crate) waiting: AtomicUsize,
    pub(crate) acks_wanted: AtomicBool,
    /// A client has chosen to wait for replicas.
    pub(crate) is_awaited: AtomicBool,
    /// The thread sleeps until something is recorded.
    pub(crate) is_resting: AtomicBool,
    pub(crate) waker: OnceLock<Waker>,
    pub(crate) queues: OnceLock<WorkerQueues<WorkerMessage>>,
    /// Replicas that have acknowledged something lately.
    good: AtomicUsize,
    /// The replicas that writes ask for.
    asked: Mutex<Asked>,
    /// Readers beside the replicas.
    holds: Mutex<Vec<Weak<Hold>>>,
}

/// The directives about good replicas.
#[derive(Debug, Clone, Copy, Default)]
struct Asked {
    /// `min-replicas-to-write`
    replicas: usize,
    /// `min-replicas-max-lag`; 0 asks for none.
    max_lag_s: u64,
}

/// Bytes of the ring that are kept for a reader beside the replicas: those behind an offset.
#[derive(Debug)]
pub(crate) struct Hold(AtomicU64);

impl Hold {
    /// Bytes before an offset are not needed from now on.
    pub(crate) fn advance(&self, offset: u64) {
        self.0.store(offset, Release);
    }
}

impl Feed {
    /// The least offset that a reader beside the replicas holds.
    pub(crate) fn held(&self) -> Option<u64> {
        let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
        holds.retain(|hold| hold.strong_count() > 0);
        holds.iter().filter_map(Weak::upgrade).map(|hold| hold.0.load(Acquire)).min()
    }

    pub(crate) fn reader(&self) -> MutexGuard<'_, Option<RingReader>> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clients(&self) -> MutexGuard<'_, Vec<Arc<ReplicaClient>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn waits(&self) -> MutexGuard<'_, Vec<AckWait>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            let _ = waker.wake();
        }
    }

    /// Ends all links: the histories differ from here on.
    pub(crate) fn cut_all(&self) {
        self.clients().iter().for_each(|replica| replica.cut("the history changes"));
    }
}

impl Replication {
    /// The data set is another one: that of a history at an offset. Its stream begins here.
    pub(crate) fn restart_stream(&self, engine: &Engine, history: History, offset: u64) {
        let mut reader = self.feed.reader();
        let Some(reader) = &mut *reader else { return };
        let _closed = engine.keyspace.close();
        reader.park();
        let tail = reader.resume();
        engine.log.turn(LogConsumer::Replicas, true);
        self.base.store(offset.wrapping_sub(tail), Release);
        *self.lock_history() = history;
        self.backlog_from.store(tail, Release);
        self.has_backlog.store(true, Release);
    }

    /// Ends what is kept for replicas.
    pub(crate) fn end_stream_for_replicas(&self, engine: &Engine) {
        let mut reader = self.feed.reader();
        let Some(reader) = &mut *reader else { return };
        let _closed = engine.keyspace.close();
        engine.log.turn(LogConsumer::Replicas, false);
        self.has_backlog.store(false, Release);
        reader.park();
    }

    /// A worker has recorded something.
    #[inline]
    pub(crate) fn note_recorded(&self) {
        fence(SeqCst);
        if self.feed.is_resting.load(Relaxed) {
            self.wake_feeder();
        }
    }

    #[cold]
    fn wake_feeder(&self) {
        if self.feed.is_resting.swap(false, SeqCst) {
            self.feed.wake();
        }
    }

    /// A client asks for the stream. From now on only the thread `feeder` writes to it.
    pub(crate) fn join(&self, replica: &Arc<ReplicaClient>, wanted: Wanted) {
        *replica.wanted() = Some(wanted);
        let mut clients = self.feed.clients();
        if !clients.iter().any(|other| Arc::ptr_eq(other, replica)) {
            clients.push(Arc::clone(replica));
        }
        drop(clients);
        self.feed.wake();
    }

    /// A client has gone.
    pub(crate) fn leave(&self, replica: &Arc<ReplicaClient>) {
        replica.is_gone.store(true, SeqCst);
        self.feed.clients().retain(|other| !Arc::ptr_eq(other, replica));
        self.count_good();
        self.feed.wake();
    }

    /// The replicas that there are.
    pub(crate) fn replicas(&self) -> Vec<Arc<ReplicaClient>> {
        self.feed.clients().clone()
    }

    /// Takes over how many good replicas a configuration asks for: for the next command, before CONFIG SET is answered.
    pub(crate) fn ask_for_replicas(&self, config: &Config) {
        let mut asked = self.feed.asked.lock().unwrap_or_else(PoisonError::into_inner);
        *asked = Asked {
            replicas: config.min_replicas_to_write as usize,
            max_lag_s: config.min_replicas_max_lag.into(),
        };
        drop(asked);
        self.count_good();
    }

    /// Counts the good replicas anew, and looks whether there are enough of them.
    pub(crate) fn count_good(&self) {
        // Held to the end: the last count is that of the last change.
        let asked = self.feed.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let now_ms = monotonic_ms();
        let is_good = |replica: &&Arc<ReplicaClient>| {
            let peer = replica.peer();
            !replica.is_gone() && peer.phase() == Phase::Online && peer.lag_s(now_ms) <= asked.max_lag_s
        };
        let good = self.replicas().iter().filter(is_good).count();
        self.feed.good.store(good, Relaxed);
        self.set_state(LONELY, asked.max_lag_s > 0 && good < asked.replicas);
    }

    /// How many replicas there are that have acknowledged something lately.
    pub(crate) fn good_replicas(&self) -> usize {
        self.feed.good.load(Relaxed)
    }

    /// How many replicas have the log up to a mark: applied, or on disk.
    pub(crate) fn acknowledged(&self, mark: u64, fsynced: bool) -> u64 {
        let base = self.base.load(Acquire);
        let has = |replica: &&Arc<ReplicaClient>| {
            let peer = replica.peer();
            let confirmed = if fsynced { peer.fsynced } else { peer.acked };
            peer.phase() == Phase::Online && !replica.is_gone() && ring_mark(confirmed, base) >= mark
        };
        self.feed.clients().iter().filter(has).count() as u64
    }

    /// Registers a client to be told when enough replicas have acknowledged; they are asked to. The caller looks once
    /// more afterwards.
    pub(crate) fn await_acks(&self, wait: AckWait) {
        let mut waits = self.feed.waits();
        waits.push(wait);
        self.feed.waiting.store(waits.len(), SeqCst);
        drop(waits);
        self.feed.acks_wanted.store(true, SeqCst);
        self.feed.wake();
    }

    /// Ends a client's wait.
    pub(crate) fn end_ack_wait(&self, client: Address) {
        let mut waits = self.feed.waits();
        waits.retain(|wait| wait.client != client);
        self.feed.waiting.store(waits.len(), SeqCst);
    }

    /// Begins to record for replicas and other readers of the ring, unless that is done.
    pub(crate) fn begin_backlog(&self, engine: &Engine, durability: &Durability) {
        if self.turn_backlog_on(engine) {
            self.keep_stream(durability);
        }
    }

    /// Begins to record without a word in the log's manifest. Returns whether it was not done yet.
    pub(crate) fn turn_backlog_on(&self, engine: &Engine) -> bool {
        let mut reader = self.feed.reader();
        if self.has_backlog.load(Acquire) {
            return false;
        }
        let Some(reader) = &mut *reader else { return false };
        let _closed = engine.keyspace.close();
        let tail = reader.resume();
        engine.log.turn(LogConsumer::Replicas, true);
        self.backlog_from.store(tail, Release);
        self.has_backlog.store(true, Release);
        true
    }

    /// Whether there has to be a backlog although no replica has come yet: replies wait for one, as `config` or a client wants it.
    pub(crate) fn needs_backlog(&self, config: &Config) -> bool {
        (config.min_sync_replicas > 0 || self.feed.is_awaited.load(SeqCst)) && !self.is_replica()
    }

    /// Begins to keep the ring's bytes for a reader beside the replicas.
    pub(crate) fn hold(&self, engine: &Engine, durability: &Durability) -> Arc<Hold> {
        self.begin_backlog(engine, durability);
        let reader = self.feed.reader();
        let hold = Arc::new(Hold(AtomicU64::new(self.backlog_from.load(Acquire))));
        let mut holds = self.feed.holds.lock().unwrap_or_else(PoisonError::into_inner);
        holds.push(Arc::downgrade(&hold));
        drop(reader);
        hold
    }

    /// Shows some of the ring's bytes behind an offset that is held, `bytes_max` at most. Returns the offset behind them.
    pub(crate) fn read_held(&self, from: u64, bytes_max: u64, show: impl FnMut(&[u8])) -> u64 {
        let mut reader = self.feed.reader();
        let Some(reader) = reader.as_mut().filter(|_| self.has_backlog.load(Acquire)) else { return from };
        let to = reader.published().min(from + bytes_max);
        if to > from {
            reader.read(from, to, show);
        }
        to.max(from)
    }

    /// A replica has acknowledged something: clients that have waited for it are told.
    pub(crate) fn note_acknowledged(&self, durability: &Durability, config: &Config) {
        self.note_commits(durability, config);
        if self.is_failing_over() {
            self.feed.wake();
        }
        if self.feed.waiting.load(SeqCst) == 0 {
            return;
        }
        let mut waits = self.feed.waits();
        waits.retain(|wait| {
            let is_over = self.acknowledged(wait.mark, wait.fsynced) >= wait.replicas;
            if is_over && let Some(queues) = self.feed.queues.get() {
                queues.send(wait.client, WorkerMessage::Durable);
            }
            !is_over
        });
        self.feed.waiting.store(waits.len(), SeqCst);
    }
}
