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

use std::io;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{
    Arc,
    atomic::Ordering::{Relaxed, SeqCst},
};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use dunlin_persist::{
    Disk, Removed, RingReader, Storage,
    aof::{Adoption, Aside, FinishedSync, Writer, WriterOptions, is_intrusion},
    manifest::{LogFile, LogId, Manifest, StreamId},
};

use dunlin_engine::{LogConsumer, write_command};
use dunlin_net::Now;

use super::{group_commit::GroupCommit, loading, rewrite, start, syncer::Syncer};
use crate::{
    config::{AppendFsync, Config, ConfigReader, describe},
    durability::{Base, Durability, Order, ROOM_BYTES, SYNC_INTERVAL, log_options, read_manifest},
    loading::LoadError,
    persistence::{
        self,
        data_directory::DirectoryLock,
        stamp::{Standing, next_id},
    },
    rdb::{cancelled, is_cancellation},
    shared::{Shared, Stop},
    system::removal::{give_back, in_background},
};

/// How long it lets a batch grow where no client waits for it: each has a price of its own.
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
/// How long ago what is not durable was written at most, under `everysec`: where the disk is slower, writers
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
    /// The first file behind the cut of the snapshot that is to be the base; `None` where there is none, or
    /// the log was turned off.
    cut_at: Option<u64>,
    /// That of the directory where the log is, while it is on.
    lock: Option<Arc<DirectoryLock>>,
    /// The log that the directory holds since recording was turned off.
    left: Option<LeftLog>,
    /// A base is being put in place.
    is_adopting: bool,
}

/// A log that this process has written and that is not written now.
struct LeftLog {
    manifest: Manifest,
    /// Of all its files.
    bytes: u64,
}

impl LeftLog {
    /// Whether a directory holds this log and nothing else.
    fn is_in(&self, options: &WriterOptions, found: &Manifest) -> bool {
        let bytes = |file: &LogFile| Disk.len(&options.directory.join(&file.name)).unwrap_or(0);
        *found == self.manifest && found.files().map(bytes).sum::<u64>() == self.bytes
    }
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
        })
    }

    /// Starts it; it loads the data set first, which has been said to be loading: the log, or the snapshot where there
    /// is to be none. Then it calls `loaded`. A data set that loads quickly is loaded when this returns. The thread
    /// ends with an error, a line for the operator, where it cannot load, and stops the server.
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

    /// Loads the data set at start.
    fn begin(&mut self) -> Result<(), LoadError> {
        let shared = Arc::clone(&self.shared);
        let config = shared.config.current();
        if config.appendonly {
            return self.load();
        }
        let (log, standing, place) = start::load_without_log(&shared, &config)?;
        if let Some(place) = place {
            shared.replication.restore(&shared.engine, &shared.durability, shared.loader(), place)?;
        }
        let mut status = shared.durability.status();
        (status.log, status.standing) = (log, standing);
        Ok(())
    }

    /// Loads the log, or at a start the data set in any form, and goes on with the log. No client changes anything
    /// meanwhile.
    fn load(&mut self) -> Result<(), LoadError> {
        let started = Instant::now();
        let shared = Arc::clone(&self.shared);
        let config = shared.config.current();
        self.lock = Some(shared.directory.hold(&config).map_err(|in_use| in_use.to_string())?);
        let mut loaded = match self.state {
            State::Off(_) => start::load_for_log(&shared, &config)?,
            State::On(_) | State::Turning => loading::load_again(&shared, &config)?,
        };
        let id = loaded.manifest.id.take().map_or_else(|| next_id(None), Ok)?;
        loaded.manifest.id = Some(id.clone());
        tracing::info!(
            "{} commands of the append-only log loaded in {:.3} seconds",
            loaded.commands,
            started.elapsed().as_secs_f64()
        );
        let mut ring = match std::mem::replace(&mut self.state, State::Turning) {
            State::Off(ring) => ring,
            State::On(writer) => writer.close(),
            State::Turning => unreachable!("turned by this thread alone"),
        };
        ring.restart(loaded.lsn);
        let options = log_options(&config);
        let directory = options.directory.clone();
        match Writer::open(Arc::new(Disk), options, loaded.manifest, loaded.resume, ring) {
            Ok(writer) => {
                self.settle_kept(&writer, loaded.single.as_deref());
                self.state = State::On(Box::new(writer));
            }
            Err((ring, error)) => {
                self.state = State::Off(ring);
                let (directory, reason) = (directory.display(), describe(&error));
                return Err(LoadError::Failed(format!("cannot write the log in {directory}: {reason}")));
            }
        }
        shared.durability.publish(loaded.lsn, loaded.lsn);
        if let Some(place) = loaded.place.take() {
            shared.replication.restore(&shared.engine, &shared.durability, shared.loader(), place)?;
        }
        if loaded.database != 0 && !shared.replication.has_place() {
            // Our records begin in database 0.
            let mut record = Vec::new();
            write_command(&mut record, &[b"SELECT", b"0"]);
            shared.durability.ring.append(shared.loader(), &record);
        }
        if let State::On(writer) = &mut self.state
            && let Err(error) = writer.set_stream(shared.replication.stream_id())
        {
            return Err(LoadError::Failed(format!(
                "cannot write the manifest of the log: {}",
                describe(&error)
            )));
        }
        {
            let _closed = shared.engine.keyspace.close();
            shared.engine.log.turn(LogConsumer::File, true);
        }
        self.remove_history();
        self.note_size();
        let mut status = shared.durability.status();
        status.base_bytes = self.log_bytes();
        status.directory = Some(directory);
        (status.log, status.standing) = (Some(id), Standing::On);
        drop(status);
        if loaded.holds_snapshot {
            shared.persistence.know(&persistence::path(&config));
        }
        Ok(())
    }

    /// Says where the files are kept whose place a log has taken at start, and puts the file of a Redis before 7 there, too.
    fn settle_kept(&self, writer: &Writer, single: Option<&Path>) {
        if let Some(single) = single
            && let Err(error) = start::keep_single(writer.options(), single, writer.kept_in())
        {
            tracing::warn!("cannot move {}, so it stays: {}", single.display(), describe(&error));
        }
        writer.kept_in().into_iter().for_each(tell_kept);
    }

    /// `DEBUG LOADAOF`.
    fn reload(&mut self) -> Result<(), String> {
        if matches!(&self.state, State::On(writer) if writer.ring().is_shared()) {
            return Err("the append-only file cannot be loaded again while there are replicas".to_owned());
        }
        // Its files are about to change, be it that there is no base yet or that there will be another.
        self.await_rewriting();
        if !matches!(self.state, State::On(_)) {
            return Err("the append-only file is off".to_owned());
        }
        if matches!(&self.state, State::On(writer) if writer.is_in_background()) {
            return Err("the append-only file has no base yet".to_owned());
        }
        let shared = Arc::clone(&self.shared);
        shared.loading.begin(Now::read().unix_ms);
        {
            // Clients that are served from here on get LOADING.
            let _closed = shared.engine.keyspace.close();
            shared.engine.log.turn(LogConsumer::File, false);
        }
        self.flush();
        shared.alone(|context| context.flush(None, false));
        shared.libraries.flush();
        let result = self.load();
        shared.loading.end();
        match result {
            Ok(()) => Ok(()),
            Err(LoadError::Failed(line)) => Err(line),
            Err(LoadError::Abandoned) => Err("the server is ending".to_owned()),
        }
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
                shared.stop(Stop { grace: Duration::ZERO });
                return Err(line);
            }
            Err(LoadError::Abandoned) => return Ok(()),
        }
        drop(quick);
        loop {
            for order in durability.take_orders() {
                match order {
                    Order::Turn { on, done } => {
                        self.config.refresh();
                        let result = if on { self.turn_on() } else { self.turn_off() };
                        // No client waits for the reply when the server is ending.
                        let _ = done.send(result);
                    }
                    Order::Reload { done } => {
                        let _ = done.send(self.reload());
                    }
                    Order::SetStream { stream, done } => {
                        let _ = done.send(self.set_stream(stream));
                    }
                    Order::Rotate => self.rotate(),
                    Order::Adopt(written) => self.adopt(written),
                    Order::EndAdopting(adopted) => self.end_adopting(*adopted),
                    Order::Stop => {
                        self.await_rewriting();
                        self.flush();
                        if let State::On(writer) = self.state {
                            drop(writer.close());
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

    /// Writes the published records, and makes them durable where that is due.
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
        // One at a time; and a failed write must have been made durable before the disk is said to work.
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

    /// Has a log written anew that a failed sync may have torn.
    fn order_mending(&self) {
        let State::On(writer) = &self.state else { return };
        if !writer.is_torn() {
            return;
        }
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
        let is_new = durability.status().write_error.replace(reason.clone()).as_ref() != Some(&reason);
        durability.failing.store(true, SeqCst);
        if is_new {
            let State::On(writer) = &self.state else { return };
            let directory = writer.directory().display();
            if is_intrusion(error) {
                durability.status().standing = Standing::Apart;
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

    /// `CONFIG SET appendonly yes`: the log begins with the data set as it is now.
    fn turn_on(&mut self) -> Result<(), String> {
        if matches!(self.state, State::On(_)) {
            return Ok(());
        }
        // One that was begun while the log was off is not to become its base.
        self.settle_rewriting();
        let State::Off(mut ring) = std::mem::replace(&mut self.state, State::Turning) else {
            unreachable!("turned by this thread alone");
        };
        let shared = Arc::clone(&self.shared);
        let config = shared.config.current();
        ring.resume();
        let lock = match shared.directory.hold(&config) {
            Ok(lock) => lock,
            Err(in_use) => {
                ring.park();
                self.state = State::Off(ring);
                return Err(format!("Unable to turn on AOF: {in_use}"));
            }
        };
        shared.durability.lacks_base.store(true, SeqCst);
        let held = shared.durability.status().held_log().cloned();
        // Replicas may be sent records before the cut, which the base holds.
        let (mut cut, mut database, mut stream) = (0, 0, None);
        let begun = begin_log(&config, self.left.as_ref(), held, ring).and_then(|mut writer| {
            let (directory, id) = (writer.directory().to_owned(), writer.manifest().id.clone());
            let begun = rewrite::begin(&shared, directory, &config, |work| {
                shared.alone_unless_long(|context| {
                    work(context).inspect(|()| {
                        shared.engine.log.turn(LogConsumer::File, true);
                        cut = shared.durability.tail();
                        database = shared.replication.stream_database();
                        stream = shared.replication.stream_id();
                        let mut status = shared.durability.status();
                        (status.log, status.standing) = (id.clone(), Standing::On);
                    });
                });
            });
            match begun {
                Ok(()) => {
                    writer.begin_at(cut);
                    begin_in(&mut writer, database);
                    match writer.set_stream(stream) {
                        Ok(()) => Ok(writer),
                        Err(error) => Err((writer.close(), describe(&error))),
                    }
                }
                Err(error) => Err((writer.close(), format!("no snapshot can be begun: {error}"))),
            }
        });
        match begun {
            Ok(writer) => {
                self.cut_at = Some(writer.increment());
                self.lock = Some(lock);
                shared.durability.status().directory = Some(writer.directory().to_owned());
                self.state = State::On(Box::new(writer));
            }
            Err((mut ring, reason)) => {
                ring.park();
                self.state = State::Off(ring);
                tracing::warn!("cannot turn the append-only log on: {reason}");
                return Err(format!("Unable to turn on AOF: {reason}"));
            }
        }
        self.note_size();
        Ok(())
    }

    /// Has the manifest say whose stream the log is. Where there is no log, nobody asks for it.
    fn set_stream(&mut self, stream: Option<StreamId>) -> Result<(), String> {
        if self.is_adopting {
            // It writes the manifest, too.
            self.await_rewriting();
        }
        match &mut self.state {
            State::On(writer) => writer.set_stream(stream).map_err(|error| describe(&error)),
            State::Off(_) | State::Turning => Ok(()),
        }
    }

    /// Begins the file behind the boundary, unless that has been done.
    fn rotate(&mut self) {
        if !self.shared.durability.ring.has_boundary() {
            return;
        }
        self.cut_at = None;
        self.settle_sync();
        let durability = &self.shared.durability;
        if let State::On(writer) = &mut self.state {
            match writer.rotate() {
                Ok(outgrown) => {
                    begin_in(writer, durability.boundary_database.load(SeqCst));
                    self.cut_at = Some(writer.increment());
                    in_background(|| outgrown.end_reserving());
                }
                Err(error) => {
                    tracing::warn!("cannot begin the next file of the log: {}", describe(&error));
                    durability.rewriting().current.iter().for_each(|progress| progress.cancel());
                }
            }
        }
        durability.ring.lift_boundary();
    }

    /// A rewrite has come so far that its base can be put in place, which a thread of its own does: it waits
    /// for the disk time and again, and removes what may be large.
    fn adopt(&mut self, written: io::Result<Base>) {
        let retained_bytes_max = self.shared.config.current().repl_backlog_disk_size;
        let adopted = written.and_then(|base| match &mut self.state {
            State::On(writer) => {
                writer.retain(retained_bytes_max);
                let since = self.cut_at.take().ok_or_else(cancelled)?;
                let adoption = writer.begin_adopting(since, base.format);
                let shared = Arc::clone(&self.shared);
                let run = move || {
                    shared.durability.order(Order::EndAdopting(Box::new(put_in_place(adoption, base))));
                };
                let thread = thread::Builder::new().name("log-base".to_owned()).spawn(run)?;
                self.is_adopting = true;
                self.shared.durability.rewriting().set_thread(thread);
                Ok(true)
            }
            State::Off(_) => {
                let options = log_options(&self.shared.config.current());
                let manifest = read_manifest(&options).map_err(io::Error::other)?;
                let manifest = manifest.unwrap_or_default();
                if self.left.as_ref().is_none_or(|left| !left.is_in(&options, &manifest)) {
                    keep_log(&options, &manifest)?;
                }
                let id = self.shared.durability.status().log.clone();
                let files = replace_log(&options, manifest, id, base)?;
                give_back(files);
                self.left = left_log(&options);
                Ok(false)
            }
            State::Turning => Err(cancelled()),
        });
        match adopted {
            Ok(true) => {}
            Ok(false) => self.end_rewrite(Ok(())),
            Err(error) => self.end_rewrite(Err(error)),
        }
    }

    fn end_adopting(&mut self, adopted: io::Result<Adoption>) {
        self.is_adopting = false;
        let mut was_in_vain = false;
        let result = adopted.map(|adoption| {
            let State::On(writer) = &mut self.state else { return };
            was_in_vain = writer.is_torn() || writer.is_in_background();
            writer.end_adopting(adoption);
        });
        self.end_rewrite(result);
        // A client that learns that its writes are durable finds the rewrite over.
        if was_in_vain && let State::On(writer) = &self.state {
            let durability = &self.shared.durability;
            durability.lacks_base.store(writer.is_in_background(), SeqCst);
            durability.publish(writer.synced(), writer.synced());
        }
    }

    /// A rewrite has come to its end.
    fn end_rewrite(&mut self, result: io::Result<()>) {
        let is_cancelled = result.as_ref().is_err_and(is_cancellation);
        match &result {
            Ok(()) => tracing::info!("Background AOF rewrite finished successfully"),
            Err(_) if is_cancelled => tracing::warn!("Background AOF rewrite cancelled"),
            Err(error) => tracing::warn!("the log could not be rewritten: {}", describe(error)),
        }
        if result.is_ok() {
            self.note_size();
            self.shared.durability.status().base_bytes = self.log_bytes();
        }
        let mut rewriting = self.shared.durability.rewriting();
        rewriting.end(result.is_ok() || is_cancelled);
        // A log without a base cannot be loaded.
        rewriting.scheduled |= matches!(&self.state, State::On(writer) if writer.is_in_background());
        drop(rewriting);
    }

    /// Brings a rewrite to its end that has become pointless.
    fn settle_rewriting(&mut self) {
        self.shared.durability.rewriting().cancel();
        self.await_rewriting();
    }

    /// Waits until a rewrite has come to its end, if there is one.
    fn await_rewriting(&mut self) {
        let shared = Arc::clone(&self.shared);
        // One thread writes the base, and has another one put it in place.
        while shared.durability.await_rewriting() {
            for order in shared.durability.take_orders() {
                match order {
                    Order::Adopt(written) => self.adopt(written),
                    Order::EndAdopting(adopted) => self.end_adopting(*adopted),
                    other => shared.durability.order(other),
                }
            }
        }
    }

    /// Begins a rewrite where the log has grown so much.
    fn rewrite_if_due(&mut self) {
        let State::On(writer) = &self.state else { return };
        let shared = Arc::clone(&self.shared);
        let config = self.config.config();
        let is_due = !writer.is_in_background() && {
            let (bytes, base) = (writer.log_bytes(), shared.durability.status().base_bytes.max(1));
            let percent = u64::from(config.auto_aof_rewrite_percentage);
            let growth = u128::from(bytes.saturating_sub(base)) * 100 / u128::from(base);
            let is_large =
                percent > 0 && bytes > config.auto_aof_rewrite_min_size && growth >= u128::from(percent);
            is_large && shared.durability.rewriting().may_begin()
        };
        if is_due {
            tracing::info!("Starting automatic rewriting of AOF: {} bytes", writer.log_bytes());
            // Where it cannot begin, it is tried again.
            let _ = rewrite::begin_rewrite(&shared, |work| _ = shared.alone_unless_long(work));
        }
    }

    /// Removes files that are not needed any more.
    fn remove_history(&mut self) {
        let State::On(writer) = &mut self.state else { return };
        if let Err(error) = writer.remove_history() {
            warn_of_history(&error);
        }
    }

    /// `CONFIG SET appendonly no`.
    fn turn_off(&mut self) -> Result<(), String> {
        let shared = Arc::clone(&self.shared);
        {
            let _closed = shared.engine.keyspace.close();
            shared.engine.log.turn(LogConsumer::File, false);
            shared.durability.status().standing = Standing::Off;
        }
        // A snapshot that was to be its base comes to nothing.
        self.cut_at = None;
        self.settle_rewriting();
        shared.durability.rewriting().scheduled = false;
        shared.durability.ring.lift_boundary();
        shared.durability.status().directory = None;
        self.flush();
        let state = std::mem::replace(&mut self.state, State::Turning);
        self.lock = None;
        let mut ring = match state {
            State::On(mut writer) => {
                let is_untouched = writer.is_untouched();
                let is_own = !writer.is_in_background() && is_untouched;
                if !is_untouched {
                    shared.durability.status().standing = Standing::Apart;
                }
                let (options, ring) = (writer.options().clone(), writer.close());
                if is_own {
                    self.left = left_log(&options);
                }
                ring
            }
            State::Off(ring) => ring,
            State::Turning => unreachable!("turned by this thread alone"),
        };
        let tail = ring.ring().tail();
        ring.park();
        self.state = State::Off(ring);
        recover(&shared.durability, &mut self.retry_at);
        // Replies that were withheld for the log's sake need not wait any more, and clients that wait for the disk
        // learn of that.
        shared.durability.lacks_base.store(false, SeqCst);
        shared.durability.publish(tail, tail);
        Ok(())
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

/// Puts a base in the place of the log before its cut, and removes that.
fn put_in_place(mut adoption: Adoption, base: Base) -> io::Result<Adoption> {
    adoption.put_in_place(|name| base.file.put_in_place(name).map(drop))?;
    match adoption.keep_others() {
        Ok(kept) => kept.iter().for_each(|directory| tell_kept(directory)),
        Err(error) => tracing::warn!("cannot move the files of the log before: {}", describe(&error)),
    }
    match adoption.remove_history() {
        Ok(files) => give_back(files),
        Err(error) => warn_of_history(&error),
    }
    Ok(adoption)
}

fn warn_of_history(error: &io::Error) {
    tracing::warn!("cannot remove files that the log no longer needs: {}", describe(error));
}

/// Lets others run for as long as that makes the log grow. Where every processor is busy, workers are about to
/// record more, which one sync can cover; where one is idle, this takes a microsecond.
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

/// Has a file that was begun say which database its records are for, where a primary's stream has selected another than 0.
fn begin_in(writer: &mut Writer, database: usize) {
    if database != 0 {
        let mut select = Vec::new();
        write_command(&mut select, &[b"SELECT", database.to_string().as_bytes()]);
        writer.begin_with(&select);
    }
}

/// Begins a new log that has no base yet. The directory's former log is to become history, where this process has
/// `left` it, and to be kept otherwise; until then it stays as it is. On an error the ring comes back.
///
/// `held` is the log that the data set holds all of.
fn begin_log(
    config: &Config,
    left: Option<&LeftLog>,
    held: Option<LogId>,
    ring: RingReader,
) -> Result<Writer, (RingReader, String)> {
    let options = log_options(config);
    let mut manifest = match read_manifest(&options) {
        Ok(manifest) => manifest.unwrap_or_default(),
        Err(reason) => return Err((ring, reason)),
    };
    let id = match next_id(held.filter(|held| is_of(&manifest, held)).as_ref()) {
        Ok(id) => id,
        Err(reason) => return Err((ring, reason)),
    };
    match left {
        Some(left) if left.is_in(&options, &manifest) => manifest.supersede(),
        _ => manifest.set_aside(),
    }
    manifest.id = Some(id);
    let directory = options.directory.clone();
    Writer::begin_in_background(Arc::new(Disk), options, manifest, ring)
        .map_err(|(ring, error)| (ring, format!("{}: {}", directory.display(), describe(&error))))
}

/// Whether a directory holds that log or an earlier generation of it, or none.
fn is_of(manifest: &Manifest, log: &LogId) -> bool {
    manifest.files().next().is_none() || manifest.id.as_ref().is_some_and(|id| id.name == log.name)
}

/// The log that this process has just left in a directory.
fn left_log(options: &WriterOptions) -> Option<LeftLog> {
    let manifest = read_manifest(options).ok().flatten()?;
    let bytes = |file: &LogFile| Disk.len(&options.directory.join(&file.name)).unwrap_or(0);
    let bytes = manifest.files().map(bytes).sum();
    Some(LeftLog { manifest, bytes })
}

/// Keeps a copy of a log that is about to be replaced, by further names of its files.
fn keep_log(options: &WriterOptions, manifest: &Manifest) -> io::Result<()> {
    let files: Vec<LogFile> = manifest.files().chain(&manifest.history).cloned().collect();
    if files.is_empty() {
        return Ok(());
    }
    let aside = Aside::begin(&Disk, options, Some(&manifest.encode()))?;
    aside.copy(&Disk, options, &files)?;
    tell_kept(aside.directory());
    Ok(())
}

/// Logs the place of a log that was replaced without having been loaded.
pub(super) fn tell_kept(directory: &std::path::Path) {
    tracing::warn!(
        "The log that was there before, which this server has not loaded, is kept in {}; 'dunlin check' shows what it holds. Remove it when it is not needed",
        directory.display()
    );
}

/// Puts a base in the place of a log that is not written, of that manifest, as the log `id`; the old files take their
/// room for as long as the result exists.
pub(crate) fn replace_log(
    options: &WriterOptions,
    mut manifest: Manifest,
    id: Option<LogId>,
    base: Base,
) -> io::Result<Vec<Removed>> {
    manifest.supersede();
    manifest.id = id;
    let file = manifest.next_base(&options.filename, base.format);
    base.file.put_in_place(&file.name)?;
    manifest.base = Some(file);
    let history = std::mem::take(&mut manifest.history);
    Disk.replace(&options.manifest_path(), &manifest.encode())?;
    // They are not needed any more; no manifest names them.
    let removed = history.iter().filter_map(|file| Disk.remove(&options.directory.join(&file.name)).ok());
    Ok(removed.collect())
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
