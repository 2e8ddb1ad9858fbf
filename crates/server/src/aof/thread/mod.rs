//! The thread that writes the log.
//!
//! ```text
//!             ┌────────────────────────── turned off ◀─────────┐
//!  orders ──▶ │ off ── turned on: gate closed, base ──▶ on ────┤
//!             └────────────────────────────────────────────────┘
//!  on: the base of a log that is turned on comes later, from a snapshot: [`super::rewrite`]
//!      write the published records ─ sync where the policy asks for it ─ publish ─ rest
//!      `everysec` has another thread sync: [`super::syncer`]
//!      on an error: failing until an attempt, one a second, has succeeded
//! ```

mod backup;
mod base;
mod left;
mod switch;

use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{
    Arc,
    atomic::Ordering::{Relaxed, SeqCst},
};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dunlin_persist::{
    RingReader,
    aof::{FinishedSync, Writer, is_foreign_change},
};

pub(crate) use self::base::replace_log;
use self::left::LeftLog;
use super::{group_commit::GroupCommit, syncer::Syncer};
use crate::{
    config::{AppendFsync, ConfigReader, describe},
    durability::{Durability, LogOrder, ROOM_BYTES, SYNC_INTERVAL},
    loading::LoadError,
    persistence::{data_directory::DirectoryLock, stamp::LogRelation},
    shared::{Shared, Stop},
};

/// How long it lets a batch grow if no client waits for it: each has a price of its own.
const PAUSE: Duration = Duration::from_millis(10);
/// How often the thread gives way to others at most before a sync.
const YIELDS_MAX: usize = 8;
/// How often the ring's room is fit to the data set.
const SIZE_INTERVAL: Duration = Duration::from_millis(500);
/// How long clients of a server that starts wait for the data set, before they are answered LOADING.
const QUICK_LOADING: Duration = Duration::from_millis(100);
/// How long after a failure the next attempt is made.
const RETRY: Duration = Duration::from_secs(1);
/// Bytes that are not durable at most before `everysec` does not wait for its second: the ring keeps them.
const UNSYNCED_BYTES_MAX: u64 = ROOM_BYTES.0 / 3;
/// Bytes that the ring keeps at most for a sync under `everysec` that takes its time.
const KEPT_BYTES_MAX: u64 = ROOM_BYTES.0 / 3 * 2;
/// How long ago what is not durable was written at most, under `everysec`: if the disk is slower, writers
/// wait for it. Redis too goes on for two seconds beyond the one that it promises.
const UNSYNCED_TIME_MAX: Duration = Duration::from_secs(3);

/// The thread, before it runs.
pub(crate) struct LogThread {
    shared: Arc<Shared>,
    config: ConfigReader,
    state: State,
    /// The thread that syncs under `everysec`.
    syncer: Syncer,
    /// When the last sync began under `everysec` that has ended well.
    synced_at: Instant,
    /// When the ring's room was last fit to the data set.
    sized_at: Instant,
    /// All that was written before is durable, under `everysec`.
    unsynced_since: Instant,
    /// When to try again after a failure.
    retry_at: Option<Instant>,
    /// How long syncs wait under `always`.
    group_commit: GroupCommit,
    /// The first file after the cut of the snapshot that is to be the base; `None` if there is none, or
    /// the log was turned off.
    cut_at: Option<u64>,
    /// The lock of the log's directory, while the log is on.
    lock: Option<Arc<DirectoryLock>>,
    /// The log that the directory holds since recording was turned off.
    left: Option<LeftLog>,
    /// A base is being put in place.
    is_adopting: bool,
    /// The log before the one that is on for a backup's sake.
    before_backup: Option<backup::LogBefore>,
}

enum State {
    Off(RingReader),
    On(Box<Writer>),
    /// Between the two, while it is being turned on or off.
    Turning,
}

/// The thread's next pause.
enum Rest {
    /// Goes on at once.
    None,
    /// Lets a batch grow.
    Nap,
    /// Until there is something to do, or this much time has passed.
    For(Option<Duration>),
    /// Until a moment, unless there is work.
    Regardless(Duration),
    /// Until there is an order: the log is off, and records are not for it.
    Off,
}

impl LogThread {
    /// A thread whose log is off.
    pub(crate) fn new(shared: Arc<Shared>, mut ring: RingReader) -> io::Result<Self> {
        ring.park();
        let syncer = Syncer::start(&shared)?;
        let config = ConfigReader::new(Arc::clone(&shared.config));
        let now = Instant::now();
        Ok(Self {
            shared,
            config,
            state: State::Off(ring),
            syncer,
            synced_at: now,
            sized_at: now,
            unsynced_since: now,
            retry_at: None,
            group_commit: GroupCommit::default(),
            cut_at: None,
            lock: None,
            left: None,
            is_adopting: false,
            before_backup: None,
        })
    }

    /// Starts it; it loads the data set first, which has been said to be loading: the log, or the snapshot if there is
    /// to be none. Then it calls `loaded`. A data set that loads quickly is loaded when this returns. If the thread
    /// cannot load, it ends with an error, a line for the operator, and stops the server.
    pub(crate) fn start(
        self,
        loaded: impl FnOnce() + Send + 'static,
    ) -> io::Result<JoinHandle<Result<(), String>>> {
        let (quick, news) = channel();
        let run = move || self.run(loaded, quick);
        let thread = thread::Builder::new().name("log".to_owned()).spawn(run)?;
        // Clients that come at once are not to get LOADING for the sake of milliseconds.
        let _ = news.recv_timeout(QUICK_LOADING);
        Ok(thread)
    }

    fn run(mut self, loaded: impl FnOnce(), quick: Sender<()>) -> Result<(), String> {
        let shared = Arc::clone(&self.shared);
        let durability = &shared.durability;
        durability.wakeup.attach();
        match self.begin() {
            Ok(()) => {
                shared.loading.end();
                loaded();
            }
            Err(LoadError::Failed(line)) => {
                shared.stop(Stop::within(Duration::ZERO));
                return Err(line);
            }
            Err(LoadError::Abandoned) => return Ok(()),
        }
        drop(quick);
        loop {
            for order in durability.take_orders() {
                match order {
                    LogOrder::Turn { on, done } => {
                        self.config.refresh();
                        let result = if on { self.turn_on() } else { self.turn_off() };
                        // No client waits for the reply when the server is ending.
                        let _ = done.send(result);
                    }
                    LogOrder::Reload { done } => {
                        let _ = done.send(self.reload());
                    }
                    LogOrder::SetStream { stream, done } => {
                        let _ = done.send(self.set_stream(stream));
                    }
                    LogOrder::BeginBackupWithLog { directory, done } => {
                        self.config.refresh();
                        let _ = done.send(self.begin_backup_with_log(directory));
                    }
                    LogOrder::SealBackup { done } => {
                        let _ = done.send(self.seal_backup());
                    }
                    LogOrder::EndLogOfBackup => self.end_log_of_backup(),
                    LogOrder::Rotate => self.rotate(),
                    LogOrder::Adopt(written) => self.adopt(written),
                    LogOrder::EndAdopting(adopted) => self.end_adopting(*adopted),
                    LogOrder::Stop => {
                        self.await_rewriting();
                        self.flush();
                        if let State::On(writer) = self.state {
                            backup::remove_unfinished(&shared, *writer);
                        }
                        return Ok(());
                    }
                }
            }
            self.config.refresh();
            match self.work(Instant::now()) {
                Rest::None => {}
                Rest::Nap => durability.wakeup.nap(PAUSE),
                Rest::Off => durability.wakeup.sleep(),
                Rest::Regardless(time) => durability.wakeup.nap(time),
                Rest::For(time) => durability.wakeup.rest(time, || match &mut self.state {
                    State::On(writer) => {
                        let can_sync = !self.syncer.is_busy() && writer.unsynced_bytes() > 0;
                        let must_sync = can_sync && durability.is_sync_awaited();
                        writer.has_more() || self.syncer.has_ended() || must_sync
                    }
                    State::Off(_) | State::Turning => false,
                }),
            }
        }
    }

    fn work(&mut self, now: Instant) -> Rest {
        if !matches!(self.state, State::On(_)) {
            return Rest::Off;
        }
        if let Some(retry_at) = self.retry_at.filter(|retry_at| now < *retry_at) {
            return Rest::Regardless(retry_at - now);
        }
        let advanced = self.advance(now);
        self.order_mending();
        match advanced {
            Ok(rest) => {
                recover(&self.shared.durability, &mut self.retry_at);
                rest
            }
            Err(error) => {
                self.fail(&error, now);
                Rest::Regardless(RETRY)
            }
        }
    }

    /// Writes the published records, and makes them durable if that is due.
    fn advance(&mut self, now: Instant) -> io::Result<Rest> {
        let State::On(writer) = &mut self.state else { return Ok(Rest::For(None)) };
        let config = self.config.config();
        let stamp_s = config.aof_timestamp_enabled.then(unix_time_s);
        let policy = match config.no_appendfsync_on_rewrite && is_writing_snapshot(&self.shared) {
            true => AppendFsync::No,
            false => config.appendfsync,
        };
        let pending = |writer: &Writer| writer.ring().ring().tail() - writer.written();
        if policy == AppendFsync::Always
            && self.retry_at.is_none()
            && let Some(step) = self.group_commit.wait(pending(writer), now)
        {
            return Ok(Rest::Regardless(step));
        }
        if now.duration_since(self.sized_at) >= SIZE_INTERVAL {
            self.sized_at = now;
            self.shared.durability.size_room(self.shared.stats.used_bytes(&self.shared.engine));
        }
        if policy == AppendFsync::Always {
            give_way(|| pending(writer));
        }
        // Syncs run one at a time; and a failed write must have been made durable before the disk is said to work.
        let syncs_in_background = policy == AppendFsync::Everysec && self.retry_at.is_none();
        let ended = if syncs_in_background { self.syncer.take() } else { self.syncer.wait() };
        if let Some((sync, begun_at)) = ended {
            self.end_sync(sync, begun_at)?;
        }
        let State::On(writer) = &mut self.state else { return Ok(Rest::For(None)) };
        if writer.unsynced_bytes() == 0 {
            self.unsynced_since = now;
        }
        writer.keep_room(policy == AppendFsync::Always)?;
        let written = writer.write(stamp_s)?;
        let durability = &self.shared.durability;
        durability.written.store(writer.written(), Relaxed);
        match policy {
            AppendFsync::Always => {
                let status = || durability.status();
                status().syncing_since = Some(now);
                let released = writer.unsynced_bytes();
                let result = writer.sync();
                status().syncing_since = None;
                result?;
                if released > 0 {
                    durability.note_sync(now.elapsed());
                    self.group_commit.note(now.elapsed(), released, pending(writer));
                }
                let synced = writer.synced();
                // Clients that learn that the disk works may write at once.
                recover(durability, &mut self.retry_at);
                durability.publish(synced, synced);
            }
            AppendFsync::Everysec => {
                let is_due = now.duration_since(self.synced_at) >= SYNC_INTERVAL
                    || writer.unsynced_bytes() > UNSYNCED_BYTES_MAX
                    || durability.is_sync_awaited();
                if self.syncer.is_busy() {
                    let is_full = writer.ring().ring().used_bytes() > KEPT_BYTES_MAX;
                    if is_full && now.duration_since(self.unsynced_since) < UNSYNCED_TIME_MAX {
                        writer.trust_system()?;
                        durability.publish(writer.synced(), writer.synced());
                    }
                } else if is_due && let Some(sync) = writer.begin_sync()? {
                    durability.status().syncing_since = Some(now);
                    match syncs_in_background {
                        true => self.syncer.begin(sync, now),
                        false => self.end_sync(sync.run(), now)?,
                    }
                }
            }
            AppendFsync::No => {
                if durability.is_sync_awaited() {
                    writer.sync()?;
                }
                writer.trust_system()?;
                durability.publish(writer.written(), writer.synced());
            }
        }
        let State::On(writer) = &mut self.state else { return Ok(Rest::For(None)) };
        let has_more = writer.has_more();
        let is_synced = writer.unsynced_bytes() == 0;
        if written {
            self.note_size();
            self.rewrite_if_due();
        }
        Ok(match policy {
            _ if has_more && policy == AppendFsync::Always => Rest::None,
            _ if written && policy != AppendFsync::Always => Rest::Nap,
            _ if has_more => Rest::None,
            AppendFsync::Everysec if !is_synced && !self.syncer.is_busy() => {
                Rest::For(Some(SYNC_INTERVAL.saturating_sub(self.synced_at.elapsed())))
            }
            _ => Rest::For(None),
        })
    }

    /// Orders a new log in place of one that a failed sync may have torn.
    fn order_mending(&self) {
        let State::On(writer) = &self.state else { return };
        if !writer.is_torn() {
            return;
        }
        self.fail_backup("the log has to be rewritten, since its disk has failed");
        let mut rewriting = self.shared.durability.rewriting();
        if rewriting.current.is_none() && !rewriting.scheduled {
            rewriting.scheduled = true;
            tracing::warn!(
                "a part of the append-only log may not have reached the disk before it failed: the log is to be rewritten, and until then a crash of the machine may lose what is behind offset {}",
                writer.synced()
            );
        }
    }

    /// A sync under `everysec` has ended.
    fn end_sync(&mut self, sync: FinishedSync, begun_at: Instant) -> io::Result<()> {
        let durability = &self.shared.durability;
        durability.note_sync(begun_at.elapsed());
        let mut status = durability.status();
        status.syncing_since = None;
        status.delayed_syncs += u64::from(begun_at.elapsed() > SYNC_INTERVAL);
        drop(status);
        let State::On(writer) = &mut self.state else { return Ok(()) };
        writer.end_sync(sync)?;
        (self.synced_at, self.unsynced_since) = (begun_at, begun_at);
        durability.publish(writer.synced(), writer.synced());
        Ok(())
    }

    /// Waits for the sync that is under way: the file is to change. That it has failed is found again by the
    /// next one.
    fn settle_sync(&mut self) {
        if let Some((sync, begun_at)) = self.syncer.wait() {
            let _ = self.end_sync(sync, begun_at);
        }
    }

    fn log_bytes(&self) -> u64 {
        match &self.state {
            State::On(writer) => writer.log_bytes(),
            State::Off(_) | State::Turning => 0,
        }
    }

    fn note_size(&self) {
        self.shared.durability.status().log_bytes = self.log_bytes();
    }

    /// The disk has failed: from now on nothing is acknowledged that would have to be durable.
    fn fail(&mut self, error: &io::Error, now: Instant) {
        let durability = &self.shared.durability;
        let reason = describe(error);
        let is_on = matches!(self.state, State::On(_));
        // INFO shows the failure last: by then writes are refused, and the files are noted as another server's. A refusal has
        // its reason from the status, too.
        let mut status = durability.status();
        durability.failing.store(true, SeqCst);
        if is_on && is_foreign_change(error) {
            status.relation = LogRelation::Apart;
        }
        let is_new = status.write_error.replace(reason.clone()).as_ref() != Some(&reason);
        drop(status);
        durability.wake_waiting();
        if self.shared.durability.backup().owns_log {
            // The server itself needs no log: its clients are not to wait for the disk.
            self.fail_backup(&reason);
        }
        if is_new {
            let State::On(writer) = &self.state else { return };
            let directory = writer.directory().display();
            if is_foreign_change(error) {
                tracing::error!(
                    "cannot write the append-only log in {directory}: {reason}. Writes are refused, and the files are left as they are. Stop the other server; then begin a new log with CONFIG SET appendonly no and then yes, which keeps these files and holds all that this server has acknowledged"
                );
            } else {
                tracing::warn!(
                    "cannot write the append-only log in {directory}: {reason}. Writes are refused until it works again, which is tried once a second: {}",
                    remedy(error)
                );
            }
        }
        self.retry_at = Some(now + RETRY);
    }

    /// Makes everything durable, as well as it can be done.
    fn flush(&mut self) {
        self.rotate();
        self.settle_sync();
        let State::On(writer) = &mut self.state else { return };
        let mut flush = || {
            while writer.write(None)? {}
            writer.sync()
        };
        match flush() {
            Ok(()) => self.shared.durability.publish(writer.synced(), writer.synced()),
            Err(error) => {
                let lost = writer.ring().ring().tail() - writer.synced();
                tracing::error!(
                    "the last {lost} bytes of the append-only log in {} could not be made durable: {}",
                    writer.directory().display(),
                    describe(&error)
                );
            }
        }
    }
}

/// Lets others run for as long as that makes the log grow. If every processor is busy, workers are about to
/// record more, which one sync can cover; if one is idle, this takes a microsecond.
fn give_way(log_bytes: impl Fn() -> u64) {
    let mut before = log_bytes();
    for _ in 0..YIELDS_MAX {
        thread::yield_now();
        let now = log_bytes();
        if now == before {
            return;
        }
        before = now;
    }
}

/// Accepts writes again, if they were refused.
fn recover(durability: &Durability, retry_at: &mut Option<Instant>) {
    if retry_at.take().is_none() {
        return;
    }
    durability.status().write_error = None;
    durability.failing.store(false, SeqCst);
    tracing::warn!("the append-only log can be written again; writes are accepted");
}

/// Whether the disk is busy with a snapshot.
fn is_writing_snapshot(shared: &Shared) -> bool {
    shared.durability.rewriting().current.is_some() || shared.background_save().0.is_some()
}

/// Advice to an operator about a failure.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room on the disk",
        io::ErrorKind::NotFound => {
            "put the directory back, or begin a new log with CONFIG SET appendonly no and then yes"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "make the directory writable for the server"
        }
        _ => "look at the system's log; the disk may be failing",
    }
}

fn unix_time_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
