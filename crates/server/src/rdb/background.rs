//! Snapshots that are written while commands go on.
//!
//! ```text
//! worker or thread `log`      thread `snapshot`
//! gate closed: cut ─────────▶ advance a slice ─ write all the copies ─ rest ─ … ─ sync ─ put in place
//! commands: copy what they                     ▲
//!   are about to change ───────────────────────┘
//! ```
//!
//! A snapshot that fails or is cancelled is still advanced to its end, without copying anything: see
//! [`dunlin_engine::snapshot`].

use std::{
    fmt, io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering::Relaxed},
        mpsc::{Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use dunlin_engine::{
    ExclusiveContext,
    keyspace::SlotBits,
    rdb::{Compressor, Output},
    snapshot::{Advance, Form, Snapshot, SnapshotOptions},
};
use dunlin_persist::{Replacement, directory_and_name, manifest::BaseFormat};
use dunlin_replication::StreamPosition;

use super::{
    CommandsOfKeys, CutForm, Head, KeySink, SINK_BYTES, Writer, cut_ms,
    pace::{Destination, Pace},
    write_file,
};
use crate::{
    config::{Config, SavePoint},
    persistence::{
        path,
        saving::{Progress, SaveError},
    },
    shared::Shared,
    system::{host::lower_priority, removal::give_back},
};

/// Bytes of copies that may wait to be written: a small part of the data set, within bounds.
const QUEUE_DATA_PARTS: usize = 12;
const QUEUE_BYTES: (usize, usize) = (8 << 20, 256 << 20);
/// Collections of at least this size are not copied under a lock, which would take a millisecond or more.
const LENT_BYTES_MIN: usize = 512 << 10;
/// Longest sleep of the writer thread: bounds how late copies reach the file and how late a cancel is noticed.
const NAP_MAX: Duration = Duration::from_millis(2);
/// How long it waits if a script holds a lock for long.
const HELD_PAUSE: Duration = Duration::from_millis(1);
/// The pause of save points after a snapshot that failed, as in Redis.
const RETRY: Duration = Duration::from_secs(5);

/// A snapshot that was begun.
pub(crate) struct Cut {
    snapshot: Snapshot,
    head: Head,
    /// Changes to the data set that it holds.
    changes: u64,
    /// The log's offset.
    logged_to: u64,
    pub(crate) progress: Arc<Progress>,
}

impl Cut {
    /// The format of a base that it becomes.
    pub(crate) fn base_format(&self) -> BaseFormat {
        if self.head.form.commands { BaseFormat::Commands } else { BaseFormat::Rdb }
    }
}

/// The snapshot was cancelled.
#[derive(Debug)]
struct Cancelled;

impl fmt::Display for Cancelled {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("cancelled")
    }
}

impl std::error::Error for Cancelled {}

pub(crate) fn cancelled() -> io::Error {
    io::Error::other(Cancelled)
}

pub(crate) fn is_cancellation(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Cancelled>())
}

impl Shared {
    /// Begins a snapshot of the present data set; `None` if there are too many under way.
    pub(crate) fn cut(
        &self,
        context: &mut ExclusiveContext<'_>,
        config: &Config,
        is_base: bool,
    ) -> Option<Cut> {
        let commands = is_base && !config.aof_use_rdb_preamble;
        let form = Form { commands, ..Form::rdb(config.rdbcompression) };
        self.cut_in_form(context, form, is_base, None, None)
    }

    /// Begins a snapshot for replicas; `None` if there are too many under way.
    pub(crate) fn cut_for_replicas(
        &self,
        context: &mut ExclusiveContext<'_>,
        config: &Config,
        form: CutForm,
    ) -> Option<Cut> {
        let CutForm { version, place } = form;
        let form = Form { version: Some(version), ..Form::rdb(config.rdbcompression) };
        self.cut_in_form(context, form, false, Some(place), None)
    }

    /// Begins a snapshot of the keys of some slots, as the commands that make them; `None` if there are too many under
    /// way.
    pub(crate) fn cut_of_slots(
        &self,
        context: &mut ExclusiveContext<'_>,
        slots: Arc<SlotBits>,
    ) -> Option<Cut> {
        let form = Form { commands: true, ..Form::rdb(false) };
        self.cut_in_form(context, form, false, None, Some(slots))
    }

    fn cut_in_form(
        &self,
        context: &mut ExclusiveContext<'_>,
        form: Form,
        is_base: bool,
        for_replicas: Option<StreamPosition>,
        slots: Option<Arc<SlotBits>>,
    ) -> Option<Cut> {
        let used_bytes = self.stats.used_bytes(&self.engine);
        let queue_bytes_max = (used_bytes / QUEUE_DATA_PARTS).clamp(QUEUE_BYTES.0, QUEUE_BYTES.1);
        let options = SnapshotOptions { form, queue_bytes_max, lent_bytes_min: LENT_BYTES_MIN, slots };
        let snapshot = context.begin_snapshot(options)?;
        let progress = Arc::new(Progress {
            begun: Instant::now(),
            keys_total: snapshot.keys(),
            keys_written: AtomicU64::new(0),
            visited: AtomicU16::new(0),
            cancelled: AtomicBool::new(false),
        });
        let cut_ms = cut_ms(context);
        let log = self.durability.stamp().filter(|_| !is_base && for_replicas.is_none());
        let place = || self.replication.place(self.durability.tail()).filter(|_| !is_base);
        let place = for_replicas.or_else(place);
        let libraries = self.libraries.now();
        let head = Head { cut_ms, used_bytes, is_base, form, libraries, log, place };
        Some(Cut { snapshot, head, changes: self.changes(), logged_to: self.durability.tail(), progress })
    }

    /// Writes a snapshot into a file of a directory, under the name `beside`: it is to be put in place. On an
    /// error the snapshot has ended nonetheless.
    pub(crate) fn write_cut(&self, mut cut: Cut, directory: &Path, beside: &str) -> io::Result<Replacement> {
        let replacement = Replacement::create(directory, beside);
        let written = replacement.and_then(|mut replacement| match self.fill(&mut replacement, &mut cut) {
            Ok(()) => Ok(replacement),
            Err(error) => {
                give_back(vec![replacement.give_up()]);
                Err(error)
            }
        });
        self.end_snapshot(&mut cut.snapshot);
        written
    }

    /// Writes a snapshot for replicas to a sink, in the version that it was begun for. On an error it has ended nonetheless.
    pub(crate) fn write_cut_to<W: io::Write>(
        &self,
        mut cut: Cut,
        sink: &mut W,
        functions_only: bool,
        checksum: bool,
    ) -> io::Result<()> {
        let write = || {
            let sizes = if functions_only { Vec::new() } else { cut.snapshot.databases().to_vec() };
            let mut compressor = Compressor::default();
            let compressor = cut.head.form.compress.then_some(&mut compressor);
            let sink = io::BufWriter::with_capacity(SINK_BYTES, sink);
            let mut writer = cut.head.begin(sink, compressor, checksum)?;
            cut.head.libraries.iter().try_for_each(|library| writer.function(&library.code))?;
            sizes.iter().try_for_each(|size| writer.size(size))?;
            let mut writer = Writer::Replicas(Box::new(writer));
            if !functions_only {
                self.write_keys(&mut cut.snapshot, &cut.progress, &mut writer, Destination::Replicas)?;
            }
            match writer.finish()? {
                None => Ok(()),
                Some(_) => Err(io::Error::other("a value does not fit the version; this is a bug")),
            }
        };
        let written = write();
        self.end_snapshot(&mut cut.snapshot);
        written
    }

    /// Writes a snapshot of slots to a sink: commands, and nothing else. On an error it has ended nonetheless.
    pub(crate) fn write_slots_to<W: KeySink>(&self, mut cut: Cut, sink: &mut W) -> io::Result<()> {
        let output = Output::new(io::BufWriter::with_capacity(SINK_BYTES, sink), None);
        let mut writer = Writer::Replicas(Box::new(CommandsOfKeys(output)));
        let written = self.write_keys(&mut cut.snapshot, &cut.progress, &mut writer, Destination::Replicas);
        let written = written.and_then(|()| writer.finish().map(drop));
        self.end_snapshot(&mut cut.snapshot);
        written
    }

    /// Writes all of a snapshot, and makes it durable.
    fn fill(&self, replacement: &mut Replacement, cut: &mut Cut) -> io::Result<()> {
        let (config, sizes) = (self.config.current(), cut.snapshot.databases().to_vec());
        let uncached = true;
        write_file(&config, replacement.file(), &cut.head, &sizes, uncached, |writer| {
            self.write_keys(&mut cut.snapshot, &cut.progress, writer, Destination::File)
        })?;
        replacement.sync()?;
        if cut.progress.is_cancelled() { Err(cancelled()) } else { Ok(()) }
    }

    fn write_keys(
        &self,
        snapshot: &mut Snapshot,
        progress: &Progress,
        writer: &mut Writer<'_, '_>,
        destination: Destination,
    ) -> io::Result<()> {
        let mut pace = Pace::new(destination);
        loop {
            let advance = pace.slice(|bytes| snapshot.advance(&self.engine.keyspace, bytes));
            progress.visited.store(snapshot.visited(), Relaxed);
            self.write_chunks(snapshot, progress, writer, pace.has_leisure())?;
            writer.meanwhile()?;
            let mut rest = match advance {
                Advance::Complete => return Ok(()),
                Advance::More if snapshot.is_held_up() => Duration::ZERO,
                Advance::More => pace.rest(),
                Advance::Held => HELD_PAUSE,
            };
            snapshot.set_compresses(pace.has_leisure());
            // Copies by writers do not wait for the end of a long rest.
            while !rest.is_zero() {
                let nap = rest.min(NAP_MAX);
                thread::sleep(nap);
                rest -= nap;
                self.write_chunks(snapshot, progress, writer, pace.has_leisure())?;
                writer.meanwhile()?;
            }
        }
    }

    /// Writes the copies, `small` if there is time for that.
    fn write_chunks(
        &self,
        snapshot: &Snapshot,
        progress: &Progress,
        writer: &mut Writer<'_, '_>,
        small: bool,
    ) -> io::Result<()> {
        for chunk in snapshot.take() {
            if progress.is_cancelled() {
                return Err(cancelled());
            }
            writer.chunk(&chunk, small)?;
            progress.keys_written.fetch_add(chunk.keys(), Relaxed);
            self.delay(chunk.keys(), progress, writer)?;
            if snapshot.release(chunk) {
                self.durability.tell_room();
            }
            writer.meanwhile()?;
        }
        if progress.is_cancelled() { Err(cancelled()) } else { Ok(()) }
    }

    /// Sleeps for `rdb-key-save-delay` a key, unless the snapshot is cancelled or the directive becomes less meanwhile.
    fn delay(&self, keys: u64, progress: &Progress, writer: &mut Writer<'_, '_>) -> io::Result<()> {
        let delay = || Duration::from_micros(self.config.current().rdb_key_save_delay.into()) * keys as u32;
        if delay().is_zero() {
            return Ok(());
        }
        let begun = Instant::now();
        while !progress.is_cancelled()
            && let Some(left) = delay().checked_sub(begun.elapsed())
        {
            thread::sleep(left.min(Duration::from_millis(10)));
            writer.meanwhile()?;
        }
        Ok(())
    }

    /// Ends a snapshot, complete or not.
    fn end_snapshot(&self, snapshot: &mut Snapshot) {
        snapshot.cancel();
        self.durability.tell_room();
        loop {
            match snapshot.advance(&self.engine.keyspace, 1 << 20) {
                Advance::Complete => return,
                Advance::More => thread::yield_now(),
                Advance::Held => thread::sleep(HELD_PAUSE),
            }
        }
    }

    /// How a snapshot in the background is doing: the one under way, and how long the last one took.
    pub(crate) fn background_save(&self) -> (Option<Arc<Progress>>, Option<Duration>) {
        let saving = self.persistence.saving();
        (saving.current.clone(), saving.last_took)
    }

    /// Orders a snapshot to begin as soon as possible.
    pub(crate) fn schedule_save(&self) {
        self.persistence.saving().scheduled = true;
    }

    /// Cancels the snapshot that is written in the background, or the one that is to be: which of them there
    /// was.
    pub(crate) fn cancel_save(&self) -> Option<CancelledSave> {
        let _installing = self.persistence.installing();
        let mut saving = self.persistence.saving();
        if let Some(progress) = &saving.current {
            progress.cancel();
            return Some(CancelledSave::Current);
        }
        std::mem::take(&mut saving.scheduled).then_some(CancelledSave::Scheduled)
    }

    /// Follows FLUSHALL as Redis does: the snapshot in the background would be of what is gone, and if there are save
    /// points the file is to be empty, too, before the client hears of it. An error is logged.
    pub(crate) fn follow_flush(&self, context: &ExclusiveContext<'_>) {
        if self.loading.is_active() {
            return;
        }
        {
            let _installing = self.persistence.installing();
            self.persistence.saving().current.iter().for_each(|progress| progress.cancel());
        }
        if !self.config.current().save.is_empty() {
            let _ = self.save(context);
        }
    }

    /// Ends writing snapshots: those under way have no result.
    pub(crate) fn end_saving(&self) {
        let thread = {
            let mut saving = self.persistence.saving();
            saving.ended = true;
            if let Some(progress) = &saving.current {
                progress.cancel();
            }
            saving.thread.take()
        };
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the thread that writes snapshots failed");
        }
    }

    /// Whether writes are to be refused because snapshots cannot be written.
    pub(crate) fn denies_writes(&self, config: &Config) -> bool {
        self.persistence.has_failed() && config.stop_writes_on_bgsave_error && !config.save.is_empty()
    }

    /// Whether a save point has been reached, or a snapshot was scheduled.
    fn is_save_due(&self, config: &Config, steady_ms: u64) -> Option<Option<SavePoint>> {
        if self.loading.is_active() {
            return None;
        }
        {
            let saving = self.persistence.saving();
            if saving.current.is_some() || saving.ended {
                return None;
            }
            if saving.scheduled {
                return Some(None);
            }
            if saving.failed_at.is_some_and(|failed_at| failed_at.elapsed() < RETRY) {
                return None;
            }
        }
        let changes = self.changes().saturating_sub(self.persistence.saved_changes.load(Relaxed));
        let age_s = steady_ms.saturating_sub(self.persistence.last_save_steady_ms.load(Relaxed)) / 1000;
        let reached = |point: &&SavePoint| changes >= point.changes && age_s > point.seconds;
        config.save.iter().find(reached).map(|point| Some(*point))
    }
}

/// Which snapshot was cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CancelledSave {
    Current,
    Scheduled,
}

/// Begins a snapshot that is written in the background. `alone` does something behind the closed gate.
pub(crate) fn begin_save(
    shared: &Arc<Shared>,
    alone: impl FnOnce(&mut dyn FnMut(&mut ExclusiveContext<'_>)),
) -> Result<(), SaveError> {
    if shared.persistence.saving().current.is_some() {
        return Err(SaveError::InProgress);
    }
    let config = shared.config.current();
    let path = path(&config);
    // Until it is written, even if `dir` changes meanwhile.
    let lock = shared.directory.hold(&config).map_err(|in_use| SaveError::InUse(in_use.to_string()))?;
    let (thread, order) = thread_for_cut(shared, Destination::File, move |shared, cut| {
        save(shared, cut, &path);
        drop(lock);
    })?;
    let mut begun = Err(SaveError::BlockedByScript);
    alone(&mut |context| {
        // Here, since two that want to begin come one after the other.
        let mut saving = shared.persistence.saving();
        begun = match (&saving.current, saving.ended) {
            (Some(_), _) => Err(SaveError::InProgress),
            (None, true) => Err(SaveError::NoThread),
            (None, false) => shared.cut(context, &config, false).ok_or(SaveError::Busy),
        };
        if let Ok(cut) = &begun {
            saving.current = Some(Arc::clone(&cut.progress));
            saving.scheduled = false;
        }
    });
    let cut = begun?;
    tracing::info!("Background saving started: {} keys", cut.progress.keys_total);
    shared.persistence.saving().thread = Some(thread);
    order.send(cut).unwrap_or_else(|_| unreachable!("the thread waits for it"));
    Ok(())
}

/// Starts a thread for a snapshot that is yet to be begun: once there is a cut, it must be advanced. A thread that
/// writes a file has a low priority; if it writes too slowly, commands that write wait for it and leave it the
/// processor.
pub(crate) fn thread_for_cut(
    shared: &Arc<Shared>,
    destination: Destination,
    work: impl FnOnce(&Shared, Cut) + Send + 'static,
) -> Result<(JoinHandle<()>, Sender<Cut>), SaveError> {
    let (order, cut) = channel();
    let shared = Arc::clone(shared);
    let run = move || {
        if destination == Destination::File {
            lower_priority();
        }
        if let Ok(cut) = cut.recv() {
            work(&shared, cut);
        }
    };
    let thread = thread::Builder::new().name("snapshot".to_owned()).spawn(run).map_err(|error| {
        tracing::error!("cannot start a thread for a snapshot: {error}");
        SaveError::NoThread
    })?;
    Ok((thread, order))
}

/// Writes a snapshot, on a thread of its own.
fn save(shared: &Shared, cut: Cut, path: &Path) {
    let (changes, logged_to, progress) = (cut.changes, cut.logged_to, Arc::clone(&cut.progress));
    let write = || {
        let (directory, _) = directory_and_name(path)?;
        let written = shared.write_cut(cut, directory, &format!("temp-bg-{}.rdb", std::process::id()))?;
        shared.durability.settle_for_snapshot(logged_to, || progress.is_cancelled());
        // A caller that cancels holds this lock, and may then write a newer snapshot to the same file.
        let _installing = shared.persistence.installing();
        if progress.is_cancelled() { Err(cancelled()) } else { shared.put_in_place(written, path) }
    };
    let written = write();
    let mut failed = false;
    match written {
        Err(error) if is_cancellation(&error) => tracing::warn!("Background saving cancelled"),
        written => {
            // The error has been logged.
            failed = shared.note_saved(path, written, changes, progress.begun).is_err();
            if failed {
                shared.persistence.last_save_ok.store(false, Relaxed);
            }
        }
    }
    let mut saving = shared.persistence.saving();
    saving.current = None;
    saving.failed_at = failed.then(Instant::now);
    saving.last_took = Some(progress.begun.elapsed());
}

/// Begins a snapshot if a save point has been reached or one was scheduled. To be called often.
pub(crate) fn save_if_due(shared: &Arc<Shared>, steady_ms: u64) {
    let config = shared.config.current();
    let Some(point) = shared.is_save_due(&config, steady_ms) else { return };
    if let Some(SavePoint { seconds, changes }) = point {
        tracing::info!("{changes} changes in {seconds} seconds. Saving...");
    }
    // If it cannot begin, the next round tries again.
    let _ = begin_save(shared, |work| _ = shared.alone_unless_long(work));
}
