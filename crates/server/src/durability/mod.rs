//! Durability at work: state that workers, the log's thread and INFO share.
//!
//! ```text
//! worker: locks ─ run ─ append to the ring ─ unlock … end of tick: ring the wakeup
//! thread `log`: wakeup or pause ─ write ─ sync ─ released ▶ messages to workers that withhold replies
//! ```
//!
//! With `appendfsync everysec` a thread beside it makes the syncs, so that a slow disk holds up no client: see
//! [`syncer`].
//!
//! With `appendfsync always`, the replies to a connection leave once the log is durable up to its end at that time: it
//! has the client's own writes, and all that its reads can have seen. A failure of the disk releases nothing and
//! refuses writes; the thread tries again until it succeeds.

mod backup;
mod files;
mod orders;
mod rewriting;
mod seen;
mod status;
mod wakeup;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, SeqCst},
};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use dunlin_engine::command::CommandError;
use dunlin_net::WorkerQueues;
use dunlin_persist::{Ring, RingSizes, aof::Follower, manifest::StreamId};

use self::wakeup::Wakeup;
pub(crate) use self::{
    backup::{Backup, BackupState},
    files::{log_options, read_manifest},
    orders::{Base, LogOrder},
    rewriting::Rewriting,
    seen::{MarkedRing, SeenMarks, key_positions},
    status::{SYNC_INTERVAL, Status},
};
use crate::{
    config::Config,
    observe::command_stats::{Histogram, Latencies},
    persistence::stamp::LogStamp,
    workers::WorkerMessage,
};

/// The ring. Its spare segments are its contents at [`ROOM_BYTES`]'s least, and a bit.
pub(crate) const RING: RingSizes = RingSizes { segment_bytes: 1 << 20, segments_max: 512, spare_max: 64 };
/// Bytes that workers can be ahead of the disk before they wait for it: a part of the data set's memory, so that
/// memory does not grow by more if the disk hangs, between these.
const ROOM_DATA_PARTS: u64 = 16;
pub(crate) const ROOM_BYTES: (u64, u64) = (48 << 20, 384 << 20);
/// Bytes that are worth being written before the thread's pause is over: as many as the caches of its processor may
/// still hold.
const HASTE_BYTES: u64 = 1 << 20;
/// How often a snapshot looks whether the log is on disk.
const SETTLE_PAUSE: Duration = Duration::from_millis(2);
/// How often a manifest is read again whose files have gone.
const FOLLOW_TRIES_MAX: usize = 3;
/// No worker waits.
const NO_MARK: u64 = u64::MAX;

/// The marks that a worker waits for; on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Awaited {
    /// The first mark that replies are withheld to, or [`NO_MARK`].
    mark: AtomicU64,
    /// The first mark that clients wait for on disk (WAITAOF), or [`NO_MARK`].
    sync_mark: AtomicU64,
}

/// Durability as all threads see it.
#[derive(Debug)]
pub(crate) struct Durability {
    pub(crate) ring: Arc<Ring>,
    /// The offsets of the log that keys have seen.
    pub(crate) marks: Arc<SeenMarks>,
    /// How far the log is as durable as `appendfsync` asks for.
    durable: AtomicU64,
    /// How far it is on disk.
    synced: AtomicU64,
    /// Whether it was turned on, and has no base yet: nothing of it would be loaded.
    pub(crate) lacks_base: AtomicBool,
    /// How far it has been given to the system.
    pub(crate) written: AtomicU64,
    /// The log cannot be written at the moment.
    pub(crate) failing: AtomicBool,
    /// A worker waits for room in the ring.
    starved: AtomicBool,
    /// By worker.
    awaited: Box<[Awaited]>,
    /// A snapshot waits for the disk, see [`Self::settle_for_snapshot`].
    snapshot_waits: AtomicBool,
    /// The database that the log has selected at the ring's boundary.
    pub(crate) boundary_database: AtomicUsize,
    pub(crate) wakeup: Wakeup,
    orders: Mutex<Vec<LogOrder>>,
    queues: OnceLock<WorkerQueues<WorkerMessage>>,
    status: Mutex<Status>,
    rewriting: Mutex<Rewriting>,
    backup: Mutex<Backup>,
    /// How long syncs took; the thread `log` writes both.
    sync_times: Box<Histogram>,
    sync_ns: AtomicU64,
}

impl Durability {
    pub(crate) fn new(ring: Arc<Ring>, marks: Arc<SeenMarks>, workers: usize) -> Self {
        ring.set_room(ROOM_BYTES.0);
        let none = || AtomicU64::new(NO_MARK);
        let awaited = (0..workers).map(|_| Awaited { mark: none(), sync_mark: none() });
        Self {
            durable: AtomicU64::new(ring.tail()),
            synced: AtomicU64::new(ring.tail()),
            lacks_base: AtomicBool::new(false),
            written: AtomicU64::new(ring.tail()),
            ring,
            marks,
            failing: AtomicBool::new(false),
            starved: AtomicBool::new(false),
            awaited: awaited.collect(),
            snapshot_waits: AtomicBool::new(false),
            boundary_database: AtomicUsize::new(0),
            wakeup: Wakeup::default(),
            orders: Mutex::default(),
            queues: OnceLock::new(),
            status: Mutex::default(),
            rewriting: Mutex::default(),
            backup: Mutex::default(),
            sync_times: Histogram::new(),
            sync_ns: AtomicU64::new(0),
        }
    }

    /// The workers' messages introduces itself; each of them does it, the first is kept.
    pub(crate) fn attach(&self, queues: &WorkerQueues<WorkerMessage>) {
        self.queues.get_or_init(|| queues.clone());
    }

    /// The workers' message queues, once they run.
    pub(crate) fn queues(&self) -> Option<&WorkerQueues<WorkerMessage>> {
        self.queues.get()
    }

    /// The ring of the log.
    pub(crate) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// How far a start would load the log from disk; `None` if there is no log, or it has no base yet.
    pub(crate) fn fsynced(&self) -> Option<u64> {
        // A log that is turned off is off, for every reader, before the offset says that no reply needs to wait for it.
        let synced = self.synced.load(SeqCst);
        (!self.is_off() && !self.lacks_base.load(SeqCst)).then_some(synced)
    }

    /// Notifies the workers, which know the clients that wait for room to write, that there is some.
    pub(crate) fn tell_room(&self) {
        if let Some(queues) = self.queues.get() {
            queues.send_to_services(WorkerMessage::HasRoom);
        }
    }

    /// The offset behind all that has been recorded.
    #[inline]
    pub(crate) fn tail(&self) -> u64 {
        self.ring.tail()
    }

    /// Whether the log is on disk up to `mark`, for a start to load.
    pub(crate) fn is_on_disk(&self, mark: u64) -> bool {
        !self.lacks_base.load(SeqCst) && self.synced.load(SeqCst) >= mark
    }

    /// The log's files at an offset, if they go back that far. Waits for the disk.
    pub(crate) fn follow_files(&self, config: &Config, at: u64) -> Option<Follower> {
        if self.is_off() || self.lacks_base.load(SeqCst) {
            return None;
        }
        let options = log_options(config);
        // Files of a manifest may go while they are opened: the next manifest names others.
        for _ in 0..FOLLOW_TRIES_MAX {
            let manifest = read_manifest(&options).ok().flatten()?;
            match Follower::open(&options.directory, &manifest, at) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!("the log's files cannot be read for a replica: {error}");
                    return None;
                }
                Ok(follower) => return follower,
            }
        }
        None
    }

    /// Shows a follower the files that the log's thread has begun meanwhile.
    pub(crate) fn show_new_files(&self, config: &Config, follower: &mut Follower) -> io::Result<()> {
        let options = log_options(config);
        match read_manifest(&options) {
            Ok(Some(manifest)) => follower.learn(&options.directory, &manifest),
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Whether there is no log, or it was turned off.
    pub(crate) fn is_off(&self) -> bool {
        self.status().directory.is_none()
    }

    /// For a snapshot that is cut now, behind the closed gate.
    pub(crate) fn stamp(&self) -> Option<LogStamp> {
        self.status().stamp()
    }

    /// Asks for a message when the log is on disk up to `mark`; `false`: it is.
    pub(crate) fn await_sync(&self, worker: usize, mark: u64) -> bool {
        if self.is_on_disk(mark) {
            return false;
        }
        // Others of the worker may wait for less.
        self.awaited[worker].sync_mark.fetch_min(mark, SeqCst);
        // As in `await_durable`. A message without a receiver does no harm.
        let waits = !self.is_on_disk(mark);
        if waits {
            self.wakeup.notify(true);
        }
        waits
    }

    /// How far the log is on disk, for a start to load.
    pub(crate) fn on_disk(&self) -> u64 {
        if self.lacks_base.load(SeqCst) { 0 } else { self.synced.load(SeqCst) }
    }

    /// Whether a client waits for the disk, under any policy.
    pub(crate) fn is_sync_awaited(&self) -> bool {
        self.snapshot_waits.load(SeqCst)
            || self.awaited.iter().any(|awaited| awaited.sync_mark.load(SeqCst) != NO_MARK)
    }

    /// Waits until the log is on disk up to `mark`, the cut of a snapshot that is about to be put in place. The
    /// snapshot's stamp says that the log holds what it does, which must be so after a power cut, too. Does not wait
    /// for a log that cannot be written. The caller is neither a worker nor the log's thread, and there is one at a
    /// time.
    pub(crate) fn settle_for_snapshot(&self, mark: u64, is_cancelled: impl Fn() -> bool) {
        let is_open = || self.synced.load(SeqCst) < mark && !self.is_off() && !self.is_failing();
        while is_open() && !is_cancelled() {
            self.snapshot_waits.store(true, SeqCst);
            self.wakeup.notify(true);
            std::thread::sleep(SETTLE_PAUSE);
        }
        self.snapshot_waits.store(false, SeqCst);
    }

    /// How far the log is as durable as `appendfsync` asks for.
    #[inline]
    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Acquire)
    }

    /// Asks for a message when the log is durable up to `mark`; `false`: it is.
    pub(crate) fn await_durable(&self, worker: usize, mark: u64) -> bool {
        let awaited = &self.awaited[worker];
        awaited.mark.store(mark, SeqCst);
        // The thread stores how far it is before it looks at the marks: one of the two sees the other.
        if self.durable.load(SeqCst) < mark {
            return true;
        }
        awaited.mark.store(NO_MARK, Relaxed);
        false
    }

    /// The reply to a command that changes something while the disk fails.
    #[cold]
    pub(crate) fn refusal(&self) -> CommandError {
        CommandError::owned(format!("MISCONF Errors writing to the AOF file: {}", self.write_error()))
    }

    /// Why the log cannot be written, in the system's words.
    pub(crate) fn write_error(&self) -> String {
        self.status().write_error.clone().unwrap_or_default()
    }

    /// Makes workers wait for the disk if they are ahead of it by a part of a data set of `data_bytes`.
    pub(crate) fn size_room(&self, data_bytes: usize) {
        self.ring.set_room((data_bytes as u64 / ROOM_DATA_PARTS).clamp(ROOM_BYTES.0, ROOM_BYTES.1));
    }

    /// Whether there is no room for records at the moment.
    #[inline]
    pub(crate) fn lacks_room(&self) -> bool {
        !self.ring.has_room()
    }

    /// Whether there is room for records; if not, [`WorkerMessage::HasRoom`] comes when there is.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.ring.has_room() || self.await_room()
    }

    #[cold]
    fn await_room(&self) -> bool {
        self.starved.store(true, SeqCst);
        // Looked at again: the thread makes room before it looks whether a worker waits.
        self.ring.has_room()
    }

    /// Whether background work may change something by itself.
    #[inline]
    pub(crate) fn may_expire(&self) -> bool {
        !self.failing.load(Relaxed) && self.ring.has_room()
    }

    /// Wakes the workers whose clients wait for a log that cannot be written: they are refused.
    pub(crate) fn wake_waiting(&self) {
        let Some(queues) = self.queues.get() else { return };
        for (worker, awaited) in self.awaited.iter().enumerate() {
            let waits = |mark: &AtomicU64| mark.load(SeqCst) != NO_MARK;
            if waits(&awaited.mark) || waits(&awaited.sync_mark) {
                queues.send_to_service(worker, WorkerMessage::Durable);
            }
        }
    }

    /// Whether the log cannot be written at the moment.
    #[inline]
    pub(crate) fn is_failing(&self) -> bool {
        self.failing.load(Relaxed)
    }

    /// Says that there is something to write up to `recorded_to`, after a tick in which there was.
    #[inline]
    pub(crate) fn wake_log(&self, recorded_to: u64) {
        self.wakeup.notify(recorded_to.saturating_sub(self.written.load(Relaxed)) > HASTE_BYTES);
    }

    /// The state for INFO.
    pub(crate) fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how long a sync took. The thread `log` alone.
    pub(crate) fn note_sync(&self, took: Duration) {
        let nanoseconds = took.as_nanos() as u64;
        self.sync_times.record(nanoseconds, 1);
        self.sync_ns.fetch_add(nanoseconds, Relaxed);
    }

    /// How long syncs of the log took since the start, and their sum in nanoseconds.
    pub(crate) fn sync_times(&self) -> (Latencies, u64) {
        let mut times = Latencies::default();
        times.add(&self.sync_times);
        (times, self.sync_ns.load(Relaxed))
    }

    /// Bytes that are recorded but not durable.
    pub(crate) fn buffered_bytes(&self) -> u64 {
        self.ring.used_bytes()
    }

    /// Gives the thread something to do.
    pub(crate) fn order(&self, order: LogOrder) {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).push(order);
        self.wakeup.wake();
    }

    pub(crate) fn take_orders(&self) -> Vec<LogOrder> {
        std::mem::take(&mut *self.orders.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Turns the log on or off and waits until it is. The caller is not inside the gate. The error is for
    /// the client, without prefix.
    pub(crate) fn turn(&self, on: bool) -> Result<(), String> {
        self.order_and_wait(|done| LogOrder::Turn { on, done })
    }

    /// Makes the log say whose stream of replication it is, durably. The caller is not inside the gate.
    pub(crate) fn set_stream(&self, stream: Option<StreamId>) -> Result<(), String> {
        self.order_and_wait(|done| LogOrder::SetStream { stream, done })
    }

    /// Turns the log on for a backup in that directory, as `appendonly` is no. The caller is not inside the gate. The error is
    /// for the client, without its code.
    pub(crate) fn begin_backup_with_log(&self, directory: PathBuf) -> Result<(), String> {
        self.order_and_wait(|done| LogOrder::BeginBackupWithLog { directory, done })
    }

    /// The backup.
    pub(crate) fn backup(&self) -> MutexGuard<'_, Backup> {
        self.backup.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Empties the data set and loads the log again. The caller is not inside the gate.
    pub(crate) fn reload(&self) -> Result<(), String> {
        self.order_and_wait(|done| LogOrder::Reload { done })
    }

    fn order_and_wait(
        &self,
        order: impl FnOnce(Sender<Result<(), String>>) -> LogOrder,
    ) -> Result<(), String> {
        let (done, result) = std::sync::mpsc::channel();
        self.order(order(done));
        result.recv().map_err(|_| "the server is ending".to_owned())?
    }

    /// Publishes how far the log is durable, and wakes the workers that wait for that.
    pub(crate) fn publish(&self, durable: u64, synced: u64) {
        self.durable.store(durable, SeqCst);
        self.synced.store(synced, SeqCst);
        let Some(queues) = self.queues.get() else { return };
        let has_base = !self.lacks_base.load(SeqCst);
        for (worker, awaited) in self.awaited.iter().enumerate() {
            let passes = |mark: &AtomicU64, offset| {
                let value = mark.load(SeqCst);
                value <= offset && mark.compare_exchange(value, NO_MARK, SeqCst, Relaxed).is_ok()
            };
            if passes(&awaited.mark, durable) | (has_base && passes(&awaited.sync_mark, synced)) {
                queues.send_to_service(worker, WorkerMessage::Durable);
            }
        }
        if self.starved.load(SeqCst) && self.ring.has_room() && self.starved.swap(false, SeqCst) {
            self.tell_room();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_net::{TestQueues, To};

    /// Workers notify their clients, and only those that wait.
    #[test]
    fn room_is_told_of_to_workers() {
        let (queues, messages) = TestQueues::of_workers(2);
        let durability = Durability::new(Ring::new(RING, 2, 0).0, Arc::default(), 2);
        durability.tell_room();
        durability.attach(&queues);
        assert_eq!(messages.recipients(0), [], "workers that have not begun");
        durability.tell_room();
        assert_eq!([messages.recipients(0), messages.recipients(1)], [[To::Service], [To::Service]]);
    }
}
