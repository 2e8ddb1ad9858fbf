//! Snapshots: the data set in an RDB file, written by BGSAVE, SAVE and SHUTDOWN and as the base of the
//! append-only log, read at start and by DEBUG RELOAD.
//!
//! SAVE, SHUTDOWN and commands that load work behind the closed gate: nothing else runs meanwhile. Writing in the
//! background is in [`background`].

mod background;
mod foreign;
mod load;
mod pace;

use std::{
    fs::File,
    io::{self, Seek, Write},
    path::Path,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

use dunlin_engine::{
    ExclusiveContext,
    rdb::{Compressor, Version},
    snapshot::{Chunk, DatabaseSize, Form},
};
use dunlin_net::Now;
use dunlin_persist::{
    Removed, Replacement, SyncedFile, SyncedFileOptions,
    aof::BaseWriter,
    directory_and_name,
    rdb::{self, Item, ReadOptions, Reader},
};
use dunlin_replication::StreamPosition;

use dunlin_scripting::REDIS_VERSION;

use self::foreign::ForeignValues;
use crate::{
    config::{Config, VersionCheck},
    lua::Libraries,
    persistence::{LOG_FIELD, TIME_FIELD, path, stamp::LogStamp},
    shared::Shared,
    system::{host::unix_us, removal::give_back},
};

pub(crate) use self::{
    background::{CancelledSave, Cut, begin_save, cancelled, is_cancellation, save_if_due, thread_for_cut},
    load::{Expired, LoadedSnapshot, load as load_snapshot, load_dump},
    pace::Destination,
};

/// Writes a file of a snapshot.
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and it is not moved")]
enum Writer<'a, 'f> {
    Rdb(rdb::Writer<'a, SyncedFile<'f>>),
    Commands(BaseWriter<SyncedFile<'f>>),
    /// To sockets.
    Replicas(Box<dyn SnapshotWriter + 'a>),
}

/// An RDB writer over any sink.
trait SnapshotWriter {
    fn function(&mut self, code: &[u8]) -> io::Result<()>;
    fn chunk(&mut self, chunk: &Chunk, small: bool) -> io::Result<()>;
    /// Does what its sink has to do besides ([`KeySink`]).
    fn meanwhile(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn finish(self: Box<Self>) -> io::Result<Option<[u8; 9]>>;
}

impl<W: Write> SnapshotWriter for rdb::Writer<'_, W> {
    fn function(&mut self, code: &[u8]) -> io::Result<()> {
        rdb::Writer::function(self, code)
    }

    fn chunk(&mut self, chunk: &Chunk, small: bool) -> io::Result<()> {
        rdb::Writer::chunk(self, chunk, small)
    }

    fn finish(self: Box<Self>) -> io::Result<Option<[u8; 9]>> {
        rdb::Writer::finish(*self)
    }
}

/// Receiver of the commands that make the keys of some slots.
pub(crate) trait KeySink: Write {
    /// Does what else is to be done while the keyspace is walked: several times a second, also if no key is found.
    fn meanwhile(&mut self) -> io::Result<()>;
}

impl<W: KeySink> KeySink for &mut W {
    fn meanwhile(&mut self) -> io::Result<()> {
        (**self).meanwhile()
    }
}

/// Commands that make keys, and nothing else.
struct CommandsOfKeys<W: Write>(dunlin_engine::rdb::Output<'static, io::BufWriter<W>>);

impl<W: KeySink> SnapshotWriter for CommandsOfKeys<W> {
    fn function(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn chunk(&mut self, chunk: &Chunk, _: bool) -> io::Result<()> {
        chunk.write(&mut self.0, false)
    }

    fn meanwhile(&mut self) -> io::Result<()> {
        self.0.sink().get_mut().meanwhile()
    }

    fn finish(mut self: Box<Self>) -> io::Result<Option<[u8; 9]>> {
        self.0.sink().flush().map(|()| None)
    }
}

impl Writer<'_, '_> {
    fn function(&mut self, code: &[u8]) -> io::Result<()> {
        match self {
            Self::Rdb(writer) => writer.function(code),
            Self::Commands(writer) => writer.function(code),
            Self::Replicas(writer) => writer.function(code),
        }
    }

    fn chunk(&mut self, chunk: &Chunk, small: bool) -> io::Result<()> {
        match self {
            Self::Rdb(writer) => writer.chunk(chunk, small),
            Self::Commands(writer) => writer.chunk(chunk),
            Self::Replicas(writer) => writer.chunk(chunk, small),
        }
    }

    fn meanwhile(&mut self) -> io::Result<()> {
        match self {
            Self::Rdb(_) | Self::Commands(_) => Ok(()),
            Self::Replicas(writer) => writer.meanwhile(),
        }
    }

    /// Ends the file; returns the bytes to put in the place of its first ones, if any.
    fn finish(self) -> io::Result<Option<[u8; 9]>> {
        match self {
            Self::Rdb(writer) => writer.finish(),
            Self::Commands(writer) => writer.finish().map(|()| None),
            Self::Replicas(writer) => writer.finish(),
        }
    }
}

/// Counts of a load.
#[derive(Debug, Default)]
struct Loaded {
    keys: u64,
    expired: u64,
    empty: u64,
}

/// The treatment of keys of a file that are there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    /// The file is refused.
    Refused,
    /// The key that is there gives way.
    Replaced,
}

impl Shared {
    /// Writes a snapshot while nothing else runs. On an error, which is one line, the file of before is as
    /// it was.
    pub(crate) fn save(&self, context: &ExclusiveContext<'_>) -> Result<(), String> {
        let config = self.config.current();
        let (path, begun) = (path(&config), Instant::now());
        let _lock = self.directory.hold(&config).map_err(|in_use| {
            let reason = format!("cannot write {}: {in_use}", path.display());
            tracing::warn!("{reason}");
            reason
        })?;
        let write = || {
            let (directory, _) = directory_and_name(&path)?;
            let beside = format!("temp-{}.rdb", std::process::id());
            let mut replacement = Replacement::create(directory, &beside)?;
            self.write(context, &config, replacement.file())?;
            self.put_in_place(replacement, &path)
        };
        let written = write();
        self.note_saved(&path, written, self.changes(), begun)
    }

    /// Puts a snapshot in the place of the one before. Any other file that has the name keeps its content under another one.
    fn put_in_place(&self, snapshot: Replacement, path: &Path) -> io::Result<Removed> {
        // First, so that nothing is kept for the sake of a snapshot that cannot be written.
        snapshot.sync()?;
        let (_, name) = directory_and_name(path)?;
        if let Some(kept) = self.persistence.known.keep_unknown(path)? {
            tracing::warn!(
                "{} was there before this snapshot, and this server has not loaded it: it is kept as {}. Remove it when it is not needed",
                path.display(),
                kept.display()
            );
        }
        let replaced = snapshot.put_in_place(name)?;
        self.persistence.known.add(path);
        Ok(replaced)
    }

    /// Notes how writing a snapshot has ended, which holds `changes` changes and was begun at that time, and gives back
    /// the room of the one before.
    fn note_saved(
        &self,
        path: &Path,
        written: io::Result<Removed>,
        changes: u64,
        begun: Instant,
    ) -> Result<(), String> {
        let persistence = &self.persistence;
        match written {
            Ok(replaced) => give_back(vec![replaced]),
            Err(error) => {
                tracing::warn!("Cannot write {}: {error}", path.display());
                return Err(format!("cannot write {}: {error}", path.display()));
            }
        }
        persistence.last_save_ok.store(true, Relaxed);
        persistence.saves.fetch_add(1, Relaxed);
        let now = Now::read();
        persistence.last_save_s.store(now.unix_ms / 1000, Relaxed);
        persistence.last_save_steady_ms.store(now.steady_ms, Relaxed);
        persistence.saved_changes.store(changes, Relaxed);
        tracing::info!("DB saved on disk: {:.3} seconds", begun.elapsed().as_secs_f64());
        Ok(())
    }

    fn write(&self, context: &ExclusiveContext<'_>, config: &Config, file: &mut File) -> io::Result<()> {
        self.write_as(context, Form::rdb(config.rdbcompression), false, file, |_| ())
    }

    /// Writes the data set as a file of a form, whose version holds all of it; `note` gets the number of keys of each
    /// part.
    pub(crate) fn write_as(
        &self,
        context: &ExclusiveContext<'_>,
        form: Form,
        is_base: bool,
        file: &mut File,
        mut note: impl FnMut(u64),
    ) -> io::Result<()> {
        let sizes: Vec<DatabaseSize> = (0..context.databases())
            .map(|database| (database, context.usage(database)))
            .filter(|(_, usage)| usage.keys > 0)
            .map(|(database, usage)| DatabaseSize { database, keys: usage.keys, expiring: usage.expiring })
            .collect();
        let head = Head {
            cut_ms: cut_ms(context),
            used_bytes: self.stats.used_bytes(&self.engine),
            is_base,
            form,
            libraries: self.libraries.now(),
            log: self.durability.stamp().filter(|_| !is_base),
            place: self.replication.place(self.durability.tail()).filter(|_| !is_base),
        };
        // No other part of the server wants the memory, and the file may be for a restart.
        let uncached = false;
        write_file(&self.config.current(), file, &head, &sizes, uncached, |writer| {
            for size in &sizes {
                context.try_for_each_chunk(size.database, head.form, |chunk| {
                    note(chunk.keys());
                    writer.chunk(chunk, true)
                })?;
            }
            Ok(())
        })
    }

    /// Reads the snapshot, if there is a file. Returns whether there is one. The error is one line.
    pub(crate) fn load(
        &self,
        context: &mut ExclusiveContext<'_>,
        existing: Existing,
    ) -> Result<bool, String> {
        let config = self.config.current();
        let (path, begun) = (path(&config), Instant::now());
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
        };
        let loaded = self
            .read(context, &config, file, existing)
            .map_err(|reason| format!("cannot load {}: {reason}", path.display()))?;
        if existing == Existing::Refused {
            self.persistence.know(&path);
        }
        self.note_loaded(loaded.keys, loaded.expired);
        tracing::info!(
            "DB loaded from disk: {:.3} seconds, keys loaded: {}, keys expired: {}, empty keys skipped: {}",
            begun.elapsed().as_secs_f64(),
            loaded.keys,
            loaded.expired,
            loaded.empty,
        );
        Ok(true)
    }

    /// Reads the snapshot that the configuration names to its end, and stores nothing. No file is no error.
    ///
    /// # Errors
    /// Returns a line with the file's name for a file that cannot be read or that [`Shared::load`] would refuse
    /// half-way.
    pub(crate) fn check_dump(&self, context: &ExclusiveContext<'_>) -> Result<(), String> {
        let config = self.config.current();
        let path = path(&config);
        let check = || {
            let file = File::open(&path).map_err(|error| error.to_string())?;
            let mut reader = Reader::open(file, read_options(&config)).map_err(|error| error.to_string())?;
            while let Some(item) = reader.next(context.layout()).map_err(|error| error.to_string())? {
                if let Item::Key { database, key, value: Some(_), .. } = item
                    && usize::try_from(database).is_ok_and(|database| database >= context.databases())
                {
                    let key = key.escape_ascii();
                    return Err(format!("key \"{key}\" is in database {database}, which does not exist"));
                }
            }
            Ok(())
        };
        match path.exists() {
            true => check().map_err(|reason: String| format!("cannot load {}: {reason}", path.display())),
            false => Ok(()),
        }
    }

    fn read(
        &self,
        context: &mut ExclusiveContext<'_>,
        config: &Config,
        file: File,
        existing: Existing,
    ) -> Result<Loaded, String> {
        let options = read_options(config);
        let (now_ms, layout) = (context.caller().now_ms, context.layout());
        let (mut loaded, mut libraries) = (Loaded::default(), Vec::new());
        let mut foreign = ForeignValues::new(config.module_data);
        // Otherwise a key goes with a DEL in the stream, and not before.
        let drops_expired = !self.replication.has_place();
        let is_past = |at: i64| at < 0 || at as u64 <= now_ms;
        let mut reader = Reader::open(file, options).map_err(|error| error.to_string())?;
        while let Some(item) = reader.next(layout).map_err(|error| error.to_string())? {
            match item {
                Item::Aux { name, value } => tell(&name, &value, now_ms),
                Item::Function(code) => libraries.push(code),
                Item::ModuleAux(module) => {
                    tracing::warn!("The file holds data of the module {module}, which are passed over");
                }
                Item::Key { value: None, .. } => loaded.empty += 1,
                Item::Key { expiry_ms: Some(at), .. } if drops_expired && is_past(at) => loaded.expired += 1,
                Item::Key { database, key, value: Some(value), expiry_ms, idle_seconds } => {
                    let databases = context.databases();
                    let refused = |why: &str| {
                        format!("at byte {}: key \"{}\" {why}", reader.offset(), key.escape_ascii())
                    };
                    let database = usize::try_from(database).ok().filter(|number| *number < databases);
                    let database = database.ok_or_else(|| {
                        refused(&format!(
                            "is in a database that does not exist: raise databases above {databases}"
                        ))
                    })?;
                    if !foreign.admit(&value).map_err(|why| refused(&why))? {
                        continue;
                    }
                    if existing == Existing::Replaced {
                        context.remove(database, &key);
                    }
                    let expiry_ms = expiry_ms.map(|at| u64::try_from(at).unwrap_or(0));
                    if !context.insert(database, &key, value, expiry_ms, idle_seconds.unwrap_or(0)) {
                        return Err(refused("is there twice"));
                    }
                    loaded.keys += 1;
                }
            }
        }
        foreign.report();
        self.libraries.replace_all(&self.commands, &libraries)?;
        Ok(loaded)
    }

    /// Writes a snapshot after which nothing changes: all commands are held back from the moment that it shows on. On
    /// an error all goes on as before. `awaited`: replicas are waited for afterwards, and asked how far they are.
    pub(crate) fn save_last(&self, context: &ExclusiveContext<'_>, awaited: bool) -> Result<(), String> {
        self.cancel_save();
        if awaited {
            self.ask_replicas();
        }
        self.save(context)?;
        self.engine.log.end_admissions();
        self.replication.end_stream();
        self.pause.begin(Instant::now(), i64::MAX as u64, crate::admission::PauseScope::Everything);
        Ok(())
    }
}

/// How the configuration wants files read.
fn read_options(config: &Config) -> ReadOptions {
    ReadOptions {
        checksum: config.rdbchecksum,
        known_versions: config.rdb_version_check == VersionCheck::Strict,
    }
}

/// The time of a cut that is made now, 0 if the data set has none. Files of the log may have been written since the
/// time by which commands run was read.
fn cut_ms(context: &ExclusiveContext<'_>) -> u64 {
    if context.caller().now_ms > 0 { (unix_us() / 1000) as u64 } else { 0 }
}

/// The fields at the head of a file.
struct Head {
    cut_ms: u64,
    used_bytes: usize,
    is_base: bool,
    form: Form,
    libraries: Arc<Libraries>,
    /// The log beside the data set.
    log: Option<LogStamp>,
    /// The place in the stream of replication that it shows, if there is one.
    place: Option<StreamPosition>,
}

/// The form of a snapshot for replicas.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CutForm {
    /// The version of RDB files that they load.
    pub(crate) version: Version,
    /// The place in the stream that it shows.
    pub(crate) place: StreamPosition,
}

/// Bytes that are gathered before they are sent to replicas.
const SINK_BYTES: usize = 256 << 10;

/// Writes a file; its keys are `keys`'s to write. `uncached`: [`SyncedFileOptions::uncached`].
fn write_file(
    config: &Config,
    file: &mut File,
    head: &Head,
    sizes: &[DatabaseSize],
    uncached: bool,
    keys: impl FnOnce(&mut Writer<'_, '_>) -> io::Result<()>,
) -> io::Result<()> {
    let mut compressor = Compressor::default();
    let incremental = config.rdb_save_incremental_fsync;
    let sink = SyncedFile::new(file, SyncedFileOptions { incremental, uncached });
    let mut writer = if head.form.commands {
        Writer::Commands(BaseWriter::begin(sink, head.version().has_listpacks()))
    } else {
        let compressor = head.form.compress.then_some(&mut compressor);
        Writer::Rdb(head.begin(sink, compressor, config.rdbchecksum)?)
    };
    for library in head.libraries.iter() {
        writer.function(&library.code)?;
    }
    if let Writer::Rdb(writer) = &mut writer {
        sizes.iter().try_for_each(|size| writer.size(size))?;
    }
    keys(&mut writer)?;
    if let Some(magic) = writer.finish()? {
        file.rewind()?;
        file.write_all(&magic)?;
    }
    Ok(())
}

impl Head {
    /// The version that a file begins with.
    fn version(&self) -> Version {
        self.form.version.unwrap_or(Version::OLDEST)
    }

    /// Begins an RDB file.
    fn begin<'a, W: Write>(
        &self,
        sink: W,
        compressor: Option<&'a mut Compressor>,
        checksum: bool,
    ) -> io::Result<rdb::Writer<'a, W>> {
        let mut writer = rdb::Writer::begin(sink, self.version(), compressor, checksum)?;
        let number = |value: u64| value.to_string().into_bytes();
        writer.aux("redis-ver", REDIS_VERSION.as_bytes())?;
        writer.aux("redis-bits", &number(usize::BITS.into()))?;
        writer.aux("ctime", &number(self.cut_ms / 1000))?;
        writer.aux("used-mem", &number(self.used_bytes as u64))?;
        if let Some(place) = &self.place {
            writer.aux("repl-stream-db", &number(place.database as u64))?;
            writer.aux("repl-id", place.history.id.as_str().as_bytes())?;
            writer.aux("repl-offset", &number(place.offset))?;
        }
        writer.aux("aof-base", if self.is_base { b"1" } else { b"0" })?;
        // A conversion has no time, since its data set was nowhere at any.
        if self.cut_ms > 0 {
            writer.aux(TIME_FIELD, &number(self.cut_ms))?;
        }
        if let Some(log) = &self.log {
            writer.aux(LOG_FIELD, log.to_string().as_bytes())?;
        }
        Ok(writer)
    }
}

/// Logs a field of a file's head for the operator.
pub(crate) fn tell(name: &[u8], value: &[u8], now_ms: u64) {
    let text = value.escape_ascii();
    match name {
        b"redis-ver" => tracing::info!("Loading RDB produced by version {text} of Redis, or one like it"),
        b"valkey-ver" => tracing::info!("Loading RDB produced by Valkey version {text}"),
        b"ctime" => {
            let written_s = std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
            let age_s = written_s.map(|written_s| (now_ms / 1000).saturating_sub(written_s));
            age_s.inspect(|age_s| tracing::info!("RDB age {age_s} seconds"));
        }
        _ => {}
    }
}
