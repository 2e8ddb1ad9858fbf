//! Snapshots: the data set in an RDB file, written by SAVE and SHUTDOWN, read at start and by DEBUG RELOAD.
//!
//! Everything here runs behind the closed gate: nothing else runs meanwhile.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::Instant,
};

use dunlin_engine::{
    ExclusiveContext, Worker,
    rdb::{Compressor, Version, version_of},
};
use dunlin_persist::{
    rdb::{Item, ReadOptions, Reader, Writer},
    replace_file,
};

use crate::{
    config::{Config, VersionCheck},
    executor::environment,
    info::COMPATIBLE_VERSION,
    process::unix_us,
    shared::Shared,
};

/// The oldest version that is written: Redis 7.0 and newer read it.
const VERSION_MIN: Version = Version::Redis(10);

/// What is known of snapshots.
#[derive(Debug)]
pub(crate) struct Persistence {
    /// Unix time of the last snapshot; of the start until there is one.
    pub(crate) last_save_s: AtomicU64,
    /// Whether the last one was written.
    pub(crate) last_save_ok: AtomicBool,
    /// How many were written.
    pub(crate) saves: AtomicU64,
    /// Changes to the data set that the last one holds.
    pub(crate) saved_changes: AtomicU64,
    /// Keys that were loaded last.
    pub(crate) loaded_keys: AtomicU64,
    /// Keys that had expired when they were to be loaded last.
    pub(crate) expired_keys: AtomicU64,
}

/// What was read.
#[derive(Debug, Default)]
struct Loaded {
    keys: u64,
    expired: u64,
    empty: u64,
}

/// What happens where a key of a file is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    /// The file is refused.
    Refused,
    /// It gives way.
    Replaced,
}

impl Persistence {
    pub(crate) fn new(started_s: u64) -> Self {
        Self {
            last_save_s: AtomicU64::new(started_s),
            last_save_ok: AtomicBool::new(true),
            saves: AtomicU64::default(),
            saved_changes: AtomicU64::default(),
            loaded_keys: AtomicU64::default(),
            expired_keys: AtomicU64::default(),
        }
    }
}

/// The file of the snapshot.
pub(crate) fn path(config: &Config) -> PathBuf {
    config.dir.join(&config.dbfilename)
}

impl Shared {
    /// Writes a snapshot. On an error, which is one line, the file of before is as it was.
    pub(crate) fn save(&self, context: &ExclusiveContext<'_>) -> Result<(), String> {
        let config = self.config.snapshot();
        let (path, begun) = (path(&config), Instant::now());
        let written = replace_file(&path, |file| self.write(context, &config, false, file));
        self.persistence.last_save_ok.store(written.is_ok(), Relaxed);
        if let Err(error) = written {
            tracing::warn!("Cannot write {}: {error}", path.display());
            return Err(format!("cannot write {}: {error}", path.display()));
        }
        self.persistence.saves.fetch_add(1, Relaxed);
        self.persistence.last_save_s.store((unix_us() / 1_000_000) as u64, Relaxed);
        self.note_saved();
        tracing::info!("DB saved on disk: {:.3} seconds", begun.elapsed().as_secs_f64());
        Ok(())
    }

    /// A snapshot was loaded: so many keys of it, while so many others had expired.
    pub(crate) fn note_loaded(&self, keys: u64, expired: u64) {
        self.persistence.loaded_keys.store(keys, Relaxed);
        self.persistence.expired_keys.store(expired, Relaxed);
        self.note_saved();
    }

    /// From here on changes count as not saved.
    fn note_saved(&self) {
        let changes = self.monitor.keyspace_total(|counters| &counters.changes);
        self.persistence.saved_changes.store(changes, Relaxed);
    }

    /// Writes the data set as the base of an append-only log.
    pub(crate) fn write_base(
        &self,
        context: &ExclusiveContext<'_>,
        config: &Config,
        path: &Path,
    ) -> io::Result<()> {
        replace_file(path, |file| self.write(context, config, true, file))
    }

    fn write(
        &self,
        context: &ExclusiveContext<'_>,
        config: &Config,
        is_base: bool,
        file: &mut File,
    ) -> io::Result<()> {
        let now_ms = context.environment().now_ms;
        let mut compressor = Compressor::default();
        let compressor = config.rdbcompression.then_some(&mut compressor);
        let mut writer = Writer::begin(file, version(context), compressor, config.rdbchecksum)?;
        let number = |value: u64| value.to_string().into_bytes();
        writer.aux("redis-ver", COMPATIBLE_VERSION.as_bytes())?;
        writer.aux("redis-bits", &number(usize::BITS.into()))?;
        writer.aux("ctime", &number(now_ms / 1000))?;
        writer.aux("used-mem", &number(self.monitor.used_bytes(&self.engine) as u64))?;
        writer.aux("aof-base", if is_base { b"1" } else { b"0" })?;
        for library in self.libraries.now().iter() {
            writer.function(&library.code)?;
        }
        for database in 0..context.databases() {
            let usage = context.usage(database);
            if usage.keys > 0 {
                writer.database(database, usage.keys, usage.expiring)?;
                context.try_for_each(database, |entry| writer.key(entry, now_ms))?;
            }
        }
        writer.finish()
    }

    /// Reads the snapshot, if there is a file; whether there is one. The error is one line.
    pub(crate) fn load(
        &self,
        context: &mut ExclusiveContext<'_>,
        existing: Existing,
    ) -> Result<bool, String> {
        let config = self.config.snapshot();
        let (path, begun) = (path(&config), Instant::now());
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
        };
        let loaded = self
            .read(context, &config, file, existing)
            .map_err(|reason| format!("cannot load {}: {reason}", path.display()))?;
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

    fn read(
        &self,
        context: &mut ExclusiveContext<'_>,
        config: &Config,
        file: File,
        existing: Existing,
    ) -> Result<Loaded, String> {
        let options = ReadOptions {
            checksum: config.rdbchecksum,
            known_versions: config.rdb_version_check == VersionCheck::Strict,
        };
        let (now_ms, layout) = (context.environment().now_ms, context.layout());
        let (mut loaded, mut libraries) = (Loaded::default(), Vec::new());
        let mut reader = Reader::open(file, options).map_err(|error| error.to_string())?;
        while let Some(item) = reader.next(layout).map_err(|error| error.to_string())? {
            match item {
                Item::Aux { name, value } => tell(&name, &value, now_ms),
                Item::Function(code) => libraries.push(code),
                Item::ModuleAux(module) => {
                    tracing::warn!("The file holds data of the module {module}, which are passed over");
                }
                Item::Key { value: None, .. } => loaded.empty += 1,
                Item::Key { expiry_ms: Some(at), .. } if at < 0 || at as u64 <= now_ms => loaded.expired += 1,
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
                    if existing == Existing::Replaced {
                        context.remove(database, &key);
                    }
                    let expiry_ms = expiry_ms.map(|at| at as u64);
                    if !context.insert(database, &key, value, expiry_ms, idle_seconds.unwrap_or(0)) {
                        return Err(refused("is there twice"));
                    }
                    loaded.keys += 1;
                }
            }
        }
        self.libraries.replace_all(&self.commands, &libraries);
        Ok(loaded)
    }

    /// Does some work behind the closed gate, outside of any worker.
    pub(crate) fn alone<R>(&self, work: impl FnOnce(&mut ExclusiveContext<'_>) -> R) -> R {
        let mut environment = environment(&self.config.snapshot());
        environment.now_ms = (unix_us() / 1000) as u64;
        self.engine.exclusively(0, &environment, &mut Worker::new(0, 0), work)
    }

    /// Writes a snapshot after which nothing changes any more: all commands are held back from the moment
    /// that it shows on. On an error all goes on as before.
    pub(crate) fn save_last(&self, context: &ExclusiveContext<'_>) -> Result<(), String> {
        self.save(context)?;
        self.pause.begin(Instant::now(), i64::MAX as u64, crate::pause::Held::Everything);
        Ok(())
    }
}

/// The oldest version that all values can be written in.
fn version(context: &ExclusiveContext<'_>) -> Version {
    let mut version = VERSION_MIN;
    for database in 0..context.databases() {
        // It stops at the first that says so: no version is newer than that.
        let _ = context.try_for_each(database, |entry| {
            let needed = version_of(entry);
            let is_newer = needed.number() > version.number();
            version = if is_newer { needed } else { version };
            if is_newer { Err(()) } else { Ok(()) }
        });
    }
    version
}

/// Tells the operator what a file says of itself.
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
