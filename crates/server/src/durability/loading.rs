//! Loading the log at start: its files in order, its commands by way of [`super::replay`].
//!
//! ```text
//! manifest ─▶ base ─▶ incremental files ─▶ where to go on: manifest, the log's offset, what has no check
//! a file `appendonly.aof` as Redis before 7 has it ─▶ it becomes the base
//! an RDB file ─▶ a copy of it becomes the base
//! ```
//!
//! Which of them is loaded [`super::source`] says.
//!
//! A last file that was cut by a crash is cut back to its last whole command or transaction, and what was
//! cut is told, unless `aof-load-truncated no`. Anything else that is wrong ends the start: nothing of the
//! files is changed then.

use std::fs;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use dunlin_persist::{
    Disk, ReadAhead, Replacement, Storage,
    aof::{Aside, Progress, ReadError, Reader, Resume, Roomy, Tail, WriterOptions},
    manifest::{BaseFormat, Manifest},
};

use super::source::{self, Found, LogFacts, Source};
use super::{LogThread, replay::Replay, thread::tell_kept};
use crate::{
    config::{Config, describe},
    data_directory,
    files::{self, Part},
    loading::{Expired, LoadError, Reporter, load_dump, load_snapshot},
    net::Now,
    persistence,
    shared::Shared,
};

/// Commands between two looks at the clock.
const COMMANDS_PER_REPORT: u64 = 1024;
/// What is wrong with a file that ends with room, and before it with a batch that no check proves.
pub(crate) const TORN_IN_ROOM: &str = "the last batch is torn, as by a power cut";
/// What is wrong with one where more than that is.
const DAMAGED: &str = "no check proves what follows";
/// What an RDB file begins with.
const RDB_MAGIC: &[u8] = b"REDIS";
/// The same, of newer versions of Valkey.
const VALKEY_MAGIC: &[u8] = b"VALKE";

/// The log that was loaded, and how to go on with it.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) manifest: Manifest,
    /// What was read of the last file, where there is one to go on with.
    pub(super) resume: Option<Resume>,
    /// The log's offset.
    pub(super) lsn: u64,
    /// The files tell it; otherwise it begins anew.
    pub(super) knows_lsn: bool,
    /// The database that the last file leaves selected, which is not 0 where Redis has written it.
    pub(super) database: usize,
    /// Commands replayed.
    pub(super) commands: u64,
    /// The snapshot, where the engine holds all that it does.
    pub(super) recognized: Option<PathBuf>,
}

/// The manifest, `None` where there is none.
pub(super) fn read_manifest(options: &WriterOptions) -> Result<Option<Manifest>, String> {
    let path = options.manifest_path();
    if fs::metadata(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(None);
    }
    files::read_manifest(&path)
        .map(|(manifest, _)| Some(manifest))
        .map_err(|reason| format!("the manifest {}: {reason}", path.display()))
}

/// What a start has found and is to load.
#[derive(Debug)]
pub(super) struct First {
    found: Found,
    source: Source,
}

impl First {
    /// Looks at what a directory holds, and says what becomes of it where that is not plain.
    pub(super) fn find(config: &Config) -> Result<Self, LoadError> {
        let found = source::find(config)?;
        let source = match source::choose(&found) {
            Ok(source) => source,
            // Nothing of it is touched.
            Err(lacks) if !config.appendonly => {
                tracing::warn!(
                    "{lacks}. The log is off, so it is left as it is, and nothing of it is loaded"
                );
                found.snapshot.as_ref().map_or(Source::Nothing, |_| Source::Snapshot)
            }
            Err(lacks) => {
                let directory = LogThread::options(config).directory;
                return Err(LoadError::Failed(format!(
                    "{lacks}. Nothing was changed. Put the files back as they were; or move {} away, to start without this log",
                    directory.display()
                )));
            }
        };
        let first = Self { found, source };
        first.tell(config);
        Ok(first)
    }

    fn tell(&self, config: &Config) {
        let snapshot = persistence::path(config);
        let (snapshot, log) = (snapshot.display(), LogThread::options(config).directory);
        let log = log.display();
        match (self.source, &self.found.snapshot, &self.found.log) {
            (Source::Snapshot, _, Some(facts)) if facts.lacks.is_none() && !facts.is_void => tracing::warn!(
                "{snapshot} is newer than the append-only log in {log}, so it is what is loaded"
            ),
            (Source::Log, Some(facts), Some(log_facts)) if !facts.is_of(log_facts) => tracing::info!(
                "{snapshot} is older than the append-only log in {log}, so the log is what is loaded; the next snapshot keeps that file under another name"
            ),
            _ => {}
        }
        if self.source == Source::Log && self.found.log.as_ref().is_some_and(|facts| facts.is_guessed) {
            tracing::warn!("{log} has no manifest; the names of its files say in which order they belong");
        }
    }
}

/// Loads what a start has found, for a log to go on with, into an engine that nobody else changes meanwhile.
pub(super) fn load_first(shared: &Shared, config: &Config, first: First) -> Result<Loaded, LoadError> {
    let options = LogThread::options(config);
    let First { found, source } = first;
    match (source, found.log) {
        (Source::Log, Some(facts)) => {
            let mut manifest = facts.manifest.clone();
            if facts.is_single {
                manifest = adopt_single_file(&options, manifest, found.older_log.unwrap_or_default())?;
            }
            move_single_file(config, &options, &manifest)?;
            expect_unwritten(&options, &manifest)?;
            let mut loaded = load(shared, config, manifest)?;
            let snapshot = found.snapshot.filter(|snapshot| snapshot.is_of(&facts) && loaded.knows_lsn);
            match snapshot.and_then(|snapshot| snapshot.log) {
                Some((_, lsn)) if loaded.lsn < lsn => {
                    tracing::warn!(
                        "The append-only log ends at offset {}, and {} holds it up to offset {lsn}, so that is what is loaded",
                        loaded.lsn,
                        persistence::path(config).display()
                    );
                    shared.alone(|context| context.flush(None, false));
                    shared.libraries.flush();
                    load_as_base(shared, config, &options, loaded.manifest)
                }
                Some(_) => {
                    loaded.recognized = Some(persistence::path(config));
                    Ok(loaded)
                }
                None => Ok(loaded),
            }
        }
        (Source::Snapshot, facts) => {
            let is_of_manifest = |facts: &LogFacts| !facts.is_guessed && !facts.is_single;
            let older = facts.filter(is_of_manifest).map(|facts| facts.manifest).or(found.older_log);
            if older.is_none() {
                set_aside(&options)?;
            }
            load_as_base(shared, config, &options, older.unwrap_or_default())
        }
        (Source::Nothing | Source::Log, _) => load(shared, config, Manifest::default()),
    }
}

/// Loads the log again that this server writes.
pub(super) fn load_again(shared: &Shared, config: &Config) -> Result<Loaded, LoadError> {
    let manifest = read_manifest(&LogThread::options(config))?.unwrap_or_default();
    load(shared, config, manifest)
}

/// Loads what a start has found, where no log is to be written: no file is changed. Whether that was the log.
pub(super) fn load_apart(shared: &Shared, config: &Config, first: First) -> Result<bool, LoadError> {
    let First { found, source } = first;
    let log = match (source, found.log) {
        (Source::Log, Some(log)) => log,
        _ => return load_dump(shared).map(|()| false),
    };
    let options = LogThread::options(config);
    let parts = match log.is_single {
        true => vec![Part::alone(config.dir.join(&config.appendfilename))],
        false => files::parts(&options.manifest_path(), &log.manifest),
    };
    tracing::warn!(
        "appendonly is off, but the append-only log holds what is newest: it is loaded and left as it is; from now on only snapshots keep changes"
    );
    expect_bytes(shared, &parts);
    let commands = Loader::with(shared, config, |loader| {
        for part in &parts {
            let forgives = config.aof_load_truncated && part.is_last;
            loader.part(part, if forgives { Cut::Forgiven } else { Cut::Nothing })?;
        }
        Ok(loader.replay.commands())
    })?;
    tracing::info!("{commands} commands of the append-only log loaded");
    Ok(!log.is_single && !log.is_guessed)
}

/// Refuses a log that another process is writing: a server that knows nothing of the lock on the directory.
fn expect_unwritten(options: &WriterOptions, manifest: &Manifest) -> Result<(), String> {
    let newest = manifest.increments.last().map(|file| options.directory.join(&file.name));
    newest.map_or(Ok(()), |path| data_directory::expect_unwritten(&path))
}

fn expect_bytes(shared: &Shared, parts: &[Part]) {
    let bytes = |part: &Part| fs::metadata(&part.path).map_or(0, |data| data.len());
    shared.loading.expect(parts.iter().map(bytes).sum());
}

/// Loads a log that can be gone on with.
fn load(shared: &Shared, config: &Config, manifest: Manifest) -> Result<Loaded, LoadError> {
    let options = LogThread::options(config);
    let parts = files::parts(&options.manifest_path(), &manifest);
    expect_bytes(shared, &parts);
    let mut loaded = Loader::with(shared, config, |loader| {
        let mut loaded = Loaded { knows_lsn: manifest.begins_at.is_some(), ..Loaded::default() };
        loader.begins_at = manifest.begins_at.unwrap_or(0);
        for part in parts {
            let may_cut = config.aof_load_truncated && part.is_last;
            let progress = loader.part(&part, if may_cut { Cut::Torn } else { Cut::Room })?;
            if part.is_increment {
                let unproven = (progress.unproven_sum, progress.unproven_bytes);
                let unproven = Some(unproven).filter(|(_, bytes)| *bytes > 0);
                loaded.resume = Some(Resume { bytes: progress.offset, unproven });
                loaded.knows_lsn |= progress.batches > 0;
            }
        }
        loaded.lsn = loader.lsn.unwrap_or(loader.begins_at);
        (loaded.commands, loaded.database) = (loader.replay.commands(), loader.replay.database());
        Ok(loaded)
    })?;
    loaded.manifest = manifest;
    Ok(loaded)
}

/// Loads the snapshot and makes a copy of it the base of a log. The log that was there before is to be kept.
///
/// A copy, not another name: whoever later writes into the snapshot's file is not to change the log.
fn load_as_base(
    shared: &Shared,
    config: &Config,
    options: &WriterOptions,
    mut manifest: Manifest,
) -> Result<Loaded, LoadError> {
    let path = persistence::path(config);
    let unwritable = |error: io::Error| {
        let (path, directory) = (path.display(), options.directory.display());
        format!("{path} was to become the base of the append-only log in {directory}: {}", describe(&error))
    };
    Disk.create_directory(&options.directory).map_err(unwritable)?;
    let beside = format!("temp-base-{}.rdb", std::process::id());
    let mut base = Replacement::create(&options.directory, &beside).map_err(unwritable)?;
    let mut copy = || {
        io::copy(&mut fs::File::open(&path)?, base.file())?;
        base.sync()
    };
    copy().map_err(unwritable)?;
    let parts = [Part::alone(path.clone())];
    expect_bytes(shared, &parts);
    Loader::with(shared, config, |loader| {
        parts.iter().try_for_each(|part| loader.part(part, Cut::Nothing).map(drop))
    })?;
    manifest.set_aside();
    let file = manifest.next_base(&options.filename, BaseFormat::Rdb);
    base.put_in_place(&file.name).map_err(unwritable)?;
    tracing::warn!(
        "{} is loaded, and a copy of it is the base of the append-only log: {}",
        path.display(),
        options.directory.join(&file.name).display()
    );
    manifest.base = Some(file);
    Ok(Loaded { manifest, recognized: Some(path), ..Loaded::default() })
}

/// Loads the files of one data set, in order, into an engine that nobody else uses. What is cut or damaged is refused.
pub(crate) fn load_files(shared: &Shared, parts: &[Part]) -> Result<(), LoadError> {
    let config = shared.config.snapshot();
    shared.loading.begin(Now::read().unix_ms);
    expect_bytes(shared, parts);
    Loader::with(shared, &config, |loader| {
        parts.iter().try_for_each(|part| loader.part(part, Cut::Nothing).map(drop))
    })?;
    shared.loading.end();
    Ok(())
}

/// Takes over the file of a Redis before 7, as Redis 7 does: it becomes the base of a new log. First there is a
/// manifest that names it: whatever happens before the file is moved, the next start goes on from there. A log that is older
/// than the file is kept.
fn adopt_single_file(
    options: &WriterOptions,
    manifest: Manifest,
    mut older: Manifest,
) -> Result<Manifest, String> {
    let mut name = || {
        Disk.create_directory(&options.directory)?;
        let path = options.manifest_path();
        let before = Disk.read(&path)?;
        let aside = before.as_ref().map(|before| Aside::begin(&Disk, options, Some(before))).transpose()?;
        Disk.replace(&path, &manifest.encode())?;
        if let Some(aside) = aside {
            older.set_aside();
            aside.take(&Disk, options, &older.kept)?;
            tell_kept(aside.directory());
        }
        io::Result::Ok(())
    };
    name().map_err(|error| format!("{}: {}", options.directory.display(), describe(&error)))?;
    Ok(manifest)
}

/// Renames what looks like files of a log whose manifest is gone. Nobody knows what of them counts, so they are not loaded; but the
/// log that begins now gives its files the same names.
fn set_aside(options: &WriterOptions) -> Result<(), String> {
    let mut names = Vec::new();
    for path in files::strays(&options.manifest_path(), &Manifest::default()) {
        let has_bytes = fs::metadata(&path).is_ok_and(|data| data.is_file() && data.len() > 0);
        let Some(name) = path.file_name().filter(|_| has_bytes).map(|name| name.to_string_lossy()) else {
            continue;
        };
        let aside = (1_u32..)
            .map(|number| path.with_file_name(format!("lost-{number}-{name}")))
            .find(|aside| !aside.exists())
            .expect("a directory has fewer files than there are numbers");
        fs::rename(&path, &aside).map_err(|error| {
            format!("cannot move {} to {}: {}", path.display(), aside.display(), describe(&error))
        })?;
        names.push(aside.display().to_string());
    }
    if !names.is_empty() {
        Disk.sync_directory(&options.directory)
            .map_err(|error| format!("{}: {}", options.directory.display(), describe(&error)))?;
        tracing::warn!(
            "{} has no manifest, so nothing of this log was loaded. What was there is kept: {}. To have it back, stop the server, give these files their names again, and put the manifest back; or remove them",
            options.directory.display(),
            names.join(", ")
        );
    }
    Ok(())
}

/// Moves the file of a Redis before 7 to where the manifest has it, unless that is done.
fn move_single_file(config: &Config, options: &WriterOptions, manifest: &Manifest) -> Result<(), String> {
    let single = config.dir.join(&config.appendfilename);
    let target = options.directory.join(&options.filename);
    let is_named = manifest.base.as_ref().is_some_and(|base| base.name == options.filename);
    if !is_named || target.exists() || !single.is_file() {
        return Ok(());
    }
    let moved = fs::rename(&single, &target)
        .and_then(|()| Disk.sync_directory(&options.directory))
        .and_then(|()| Disk.sync_directory(&config.dir));
    moved.map_err(|error| {
        format!("cannot move {} to {}: {}", single.display(), target.display(), describe(&error))
    })?;
    tracing::warn!("{} is the base of the log now, as {}", single.display(), target.display());
    Ok(())
}

/// What may be cut off the end of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// It is to stay as it is.
    Nothing,
    /// It is to stay as it is, and what a crash has torn is passed over.
    Forgiven,
    /// Room, which holds nothing: what is written next goes there.
    Room,
    /// Also what a crash has torn.
    Torn,
}

/// Loads the files of a log, one after the other.
struct Loader<'a, 'b> {
    shared: &'a Shared,
    reporter: Reporter<'a>,
    now_ms: u64,
    replay: &'b mut Replay<'a>,
    /// The log's offset behind the last increment, if there was one.
    lsn: Option<u64>,
    /// The log's offset in front of the first one, as far as that is known.
    begins_at: u64,
}

impl<'a> Loader<'a, '_> {
    /// Has `work` load files; comes back when all that they hold is in the engine.
    fn with<R>(
        shared: &'a Shared,
        config: &Config,
        work: impl FnOnce(&mut Loader<'a, '_>) -> Result<R, LoadError>,
    ) -> Result<R, LoadError> {
        let now_ms = Now::read().unix_ms;
        let loaded = Replay::with(shared, config, now_ms, |replay| {
            work(&mut Loader {
                shared,
                reporter: Reporter::new(&shared.loading),
                now_ms,
                replay,
                lsn: None,
                begins_at: 0,
            })
        });
        loaded.unwrap_or_else(|error| {
            Err(LoadError::Failed(format!("cannot load the log: {}", describe(&error))))
        })
    }

    /// Loads one file; what was read of it. A base has no place in the log.
    fn part(&mut self, part: &Part, may_cut: Cut) -> Result<Progress, LoadError> {
        let progress = self.file(part, may_cut, self.lsn.filter(|_| part.is_increment))?;
        self.reporter.next_file(progress.offset);
        if part.is_increment {
            self.lsn = Some(progress.log_end(self.lsn.unwrap_or(self.begins_at)));
        }
        Ok(progress)
    }

    /// Loads one file, in front of which the log is at `lsn`; what was read of it.
    fn file(&mut self, part: &Part, may_cut: Cut, lsn: Option<u64>) -> Result<Progress, LoadError> {
        let path = &part.path;
        let named = |reason: &dyn std::fmt::Display| format!("{}: {reason}", path.display());
        let mut file = fs::File::open(path).map_err(|error| named(&describe(&error)))?;
        let mut magic = Vec::new();
        (&mut file)
            .take(RDB_MAGIC.len() as u64)
            .read_to_end(&mut magic)
            .map_err(|error| named(&describe(&error)))?;
        file.rewind().map_err(|error| named(&describe(&error)))?;
        let mut start = 0;
        if magic == RDB_MAGIC || magic == VALKEY_MAGIC {
            start = self.snapshot(&file, path)?;
            // What follows are commands: the file of a Redis before 7.
            file.seek(io::SeekFrom::Start(start)).map_err(|error| named(&describe(&error)))?;
        } else if files::is_named_rdb(path) {
            // Where its beginning is gone, it is no log that happens to be short.
            return Err(named(&files::NO_RDB).into());
        }
        let end = settle_room(&file, part, may_cut)?;
        let source = ReadAhead::new(file, start).take(end.saturating_sub(start));
        let mut reader = Reader::new(source, start).going_on_from(lsn);
        // What was read before the transaction, in one.
        let mut transaction = None;
        self.replay.begin_file();
        let ended = loop {
            match reader.read_command() {
                Ok(Some(words)) => {
                    let result = self.replay.command(&words);
                    let before = reader.before();
                    let good = transaction.unwrap_or(before);
                    result.map_err(|reason| damaged(part, before.offset, &reason, good.offset))?;
                    transaction = self.replay.is_in_transaction().then_some(good);
                }
                Ok(None) if self.replay.is_in_transaction() => break Err(ReadError::Cut),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
            if self.replay.commands().is_multiple_of(COMMANDS_PER_REPORT)
                && !self.reporter.report(reader.progress().offset)
            {
                return Err(LoadError::Abandoned);
            }
        };
        let good = |error| reader.good_before(error, transaction);
        let whole = ended.as_ref().map_or_else(good, |()| reader.progress());
        match ended {
            Ok(()) => Ok(whole),
            Err(ReadError::Cut) if may_cut == Cut::Torn => {
                let length = fs::metadata(path).map_err(|error| named(&describe(&error)))?.len();
                cut(path, whole.offset).map_err(|error| named(&describe(&error)))?;
                tracing::warn!(
                    "{} ended in the middle of a command, as after a crash: {} bytes from byte {} on were cut off. The {} commands before are loaded",
                    path.display(),
                    length - whole.offset,
                    whole.offset,
                    whole.commands
                );
                Ok(whole)
            }
            Err(ReadError::Cut) if may_cut == Cut::Forgiven => {
                tracing::warn!(
                    "{} ends in the middle of a command, as after a crash, at byte {}; the {} commands before are loaded",
                    path.display(),
                    whole.offset,
                    whole.commands
                );
                Ok(whole)
            }
            Err(ReadError::Io(error)) => Err(named(&describe(&error)).into()),
            Err(error) => Err(damaged(part, reader.progress().offset, &error, whole.offset)),
        }
    }

    /// Loads the RDB file that a file begins with; where it ends.
    fn snapshot(&mut self, file: &fs::File, path: &Path) -> Result<u64, LoadError> {
        self.replay.settle();
        load_snapshot(self.shared, file, Expired::Kept, self.now_ms, &mut self.reporter)
            .map(|loaded| loaded.bytes)
            .map_err(|error| match error {
                LoadError::Failed(reason) => LoadError::Failed(format!("{}: {reason}", path.display())),
                LoadError::Abandoned => error,
            })
    }
}

/// Cuts off the room that a file ends with, and before it what a crash has torn: nothing of that was acknowledged. Where what
/// is to be read ends.
fn settle_room(file: &fs::File, part: &Part, may_cut: Cut) -> Result<u64, LoadError> {
    let path = &part.path;
    let named = |error: io::Error| format!("{}: {}", path.display(), describe(&error));
    let Some(roomy) = Roomy::find(file).map_err(named)? else { return Ok(u64::MAX) };
    match (roomy.tail, may_cut) {
        (Tail::Whole, Cut::Nothing | Cut::Forgiven) => Ok(roomy.room),
        (Tail::Whole, Cut::Room | Cut::Torn) => {
            cut(path, roomy.room).map_err(named)?;
            Ok(roomy.room)
        }
        (Tail::Torn, Cut::Forgiven) => Ok(roomy.proven),
        (Tail::Torn, Cut::Torn) => {
            cut(path, roomy.proven).map_err(named)?;
            tracing::warn!(
                "{} ended with a batch that was not durable yet, as after a power cut: {} bytes from byte {} on were cut off",
                path.display(),
                roomy.room - roomy.proven,
                roomy.proven
            );
            Ok(roomy.proven)
        }
        (Tail::Torn, _) => Err(damaged(part, roomy.proven, &TORN_IN_ROOM, roomy.proven)),
        (Tail::Damaged, _) => Err(damaged(part, roomy.proven, &DAMAGED, roomy.proven)),
    }
}

/// A file makes no sense from some place on; it is good up to `whole`.
fn damaged(part: &Part, offset: u64, reason: &dyn std::fmt::Display, whole: u64) -> LoadError {
    let path = part.path.display();
    // Only the whole log shows where a file has to go on, and what cutting one costs.
    let checked = part.manifest.as_ref().unwrap_or(&part.path).display();
    let advice = match part.is_last {
        true => format!(", and with --fix cuts the file at byte {whole}, which loses all that follows"),
        false => {
            "; it cuts the log's last file only, since behind a hole the others would follow something else"
                .to_owned()
        }
    };
    LoadError::Failed(format!(
        "{path} is damaged at byte {offset}: {reason}. Nothing was changed. 'dunlin check {checked}' tells more{advice}"
    ))
}

/// Cuts a file, durably.
fn cut(path: &Path, length: u64) -> io::Result<()> {
    let file = fs::OpenOptions::new().write(true).open(path)?;
    file.set_len(length)?;
    file.sync_all()
}
