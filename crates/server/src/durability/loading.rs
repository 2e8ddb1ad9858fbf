//! Loading the log at start: its files in order, its commands through the engine.
//!
//! ```text
//! manifest ─▶ base ─▶ incremental files ─▶ where to go on: manifest, the log's offset, what has no check
//! no manifest, but a file `appendonly.aof` as Redis before 7 has it ─▶ it becomes the base
//! ```
//!
//! A last file that was cut by a crash is cut back to its last whole command or transaction, and what was
//! cut is told, unless `aof-load-truncated no`. Anything else that is wrong ends the start: nothing of the
//! files is changed then.

use std::fs;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use dunlin_engine::{
    Environment, Request, Worker,
    command::{Args, Entry, Run},
};
use dunlin_persist::{
    Disk, ReadAhead, Storage,
    aof::{Checksum, Progress, ReadError, Reader, Roomy, Tail, WriterOptions},
    manifest::{LogFile, Manifest},
};
use dunlin_resp::{ReplyBuffer, number::parse_integer};

use super::{
    LogThread,
    scripts::{Scripts, Surroundings},
};
use crate::{
    config::{Config, describe},
    executor::environment,
    files,
    loading::{Expired, LoadError, Reporter, load_snapshot},
    net::Now,
    scripting::{LibraryChange, LoadedLibraries},
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
    /// What the last file has behind its last check.
    pub(super) unproven: Option<(Checksum, u64)>,
    /// The log's offset.
    pub(super) lsn: u64,
    /// The database that the last file leaves selected, which is not 0 where Redis has written it.
    pub(super) database: usize,
    /// Commands replayed.
    pub(super) commands: u64,
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

/// Loads the log that the configuration names into an engine that nobody else changes meanwhile.
pub(super) fn load(shared: &Shared, config: &Config) -> Result<Loaded, LoadError> {
    let options = LogThread::options(config);
    let manifest = match read_manifest(&options)? {
        Some(manifest) => manifest,
        None => adopt_single_file(config, &options)?,
    };
    move_single_file(config, &options, &manifest)?;
    let bytes =
        |file: &LogFile| fs::metadata(options.directory.join(&file.name)).map_or(0, |data| data.len());
    shared.loading.expect(manifest.files().map(bytes).sum());
    let mut replay = Replay::new(shared, config);
    let mut loaded = Loaded::default();
    let last = manifest.files().count().saturating_sub(1);
    for (index, file) in manifest.files().enumerate() {
        let path = options.directory.join(&file.name);
        let may_cut = config.aof_load_truncated && index == last;
        let progress = replay.file(&path, if may_cut { Cut::Torn } else { Cut::Room })?;
        replay.reporter.next_file(progress.offset);
        // A base has no place in the log; an increment goes on behind the one before.
        if manifest.base.as_ref().is_none_or(|base| !std::ptr::eq(base, file)) {
            loaded.lsn = progress.lsn.max(loaded.lsn) + progress.unproven_record_bytes;
            loaded.unproven =
                (progress.unproven_bytes > 0).then_some((progress.unproven_sum, progress.unproven_bytes));
        }
    }
    (loaded.commands, loaded.database) = (replay.commands, replay.database);
    replay.tell_refused();
    loaded.manifest = manifest;
    Ok(loaded)
}

/// Loads the files of one data set, in order, into an engine that nobody else uses. What is cut or damaged is refused.
pub(crate) fn load_files(shared: &Shared, paths: &[PathBuf]) -> Result<(), LoadError> {
    let config = shared.config.snapshot();
    shared.loading.begin(Now::read().unix_ms);
    shared.loading.expect(paths.iter().map(|path| fs::metadata(path).map_or(0, |data| data.len())).sum());
    let mut replay = Replay::new(shared, &config);
    for path in paths {
        let progress = replay.file(path, Cut::Nothing)?;
        replay.reporter.next_file(progress.offset);
    }
    replay.tell_refused();
    shared.loading.end();
    Ok(())
}

/// Takes over the file of a Redis before 7, as Redis 7 does: it becomes the base of a new log. First there is a
/// manifest that names it: whatever happens before the file is moved, the next start goes on from there.
fn adopt_single_file(config: &Config, options: &WriterOptions) -> Result<Manifest, String> {
    if !config.dir.join(&config.appendfilename).is_file() {
        return Ok(Manifest::default());
    }
    let base = LogFile { name: options.filename.clone(), sequence: 1 };
    let manifest = Manifest { base: Some(base), ..Manifest::default() };
    let name = || {
        Disk.create_directory(&options.directory)?;
        Disk.replace(&options.manifest_path(), &manifest.encode())
    };
    name().map_err(|error| format!("{}: {}", options.directory.display(), describe(&error)))?;
    Ok(manifest)
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
    /// Room, which holds nothing: what is written next goes there.
    Room,
    /// Also what a crash has torn.
    Torn,
}

/// Runs the log's commands.
struct Replay<'a> {
    shared: &'a Shared,
    reporter: Reporter<'a>,
    environment: Environment,
    worker: Worker,
    libraries: LoadedLibraries,
    scripts: Scripts,
    database: usize,
    /// The commands since MULTI, while there is no EXEC.
    queued: Option<Vec<Vec<Vec<u8>>>>,
    commands: u64,
    /// Commands that were answered with an error.
    refused: u64,
    reply: ReplyBuffer,
}

impl<'a> Replay<'a> {
    fn new(shared: &'a Shared, config: &Config) -> Self {
        let environment = Environment {
            replaying_at_ms: Now::read().unix_ms,
            string_bytes_max: usize::MAX,
            deny_blocking: true,
            ..environment(config)
        };
        Self {
            shared,
            reporter: Reporter::new(&shared.loading),
            environment,
            worker: Worker::new(shared.loader(), 0),
            libraries: LoadedLibraries::default(),
            scripts: Scripts::default(),
            database: 0,
            queued: None,
            commands: 0,
            refused: 0,
            reply: ReplyBuffer::default(),
        }
    }

    /// Loads one file; what was read of it.
    fn file(&mut self, path: &Path, may_cut: Cut) -> Result<Progress, LoadError> {
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
        settle_room(&file, path, may_cut)?;
        let mut reader = Reader::new(ReadAhead::new(file, start), start);
        // What has been run as a whole: behind it there may be the beginning of a transaction.
        let mut whole = reader.progress();
        self.database = 0;
        let ended = loop {
            match reader.read_command() {
                Ok(Some(words)) => {
                    let result = self.command(&words);
                    let at = reader.progress();
                    result.map_err(|reason| damaged(path, at.offset, &reason, whole.offset))?;
                }
                Ok(None) if self.queued.is_some() => break Err(ReadError::Cut),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
            if self.queued.is_none() {
                whole = reader.progress();
            }
            if self.commands.is_multiple_of(COMMANDS_PER_REPORT) && !self.reporter.report(whole.offset) {
                return Err(LoadError::Abandoned);
            }
        };
        self.queued = None;
        match ended {
            // Checks and comments behind the last command count too.
            Ok(()) => Ok(reader.progress()),
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
            Err(ReadError::Io(error)) => Err(named(&describe(&error)).into()),
            Err(error) => Err(damaged(path, reader.progress().offset, &error, whole.offset)),
        }
    }

    /// Loads the RDB file that a file begins with; where it ends.
    fn snapshot(&mut self, file: &fs::File, path: &Path) -> Result<u64, LoadError> {
        let now_ms = self.environment.clock_ms();
        load_snapshot(self.shared, file, Expired::Kept, now_ms, &mut self.reporter)
            .map(|loaded| loaded.bytes)
            .map_err(|error| match error {
                LoadError::Failed(reason) => LoadError::Failed(format!("{}: {reason}", path.display())),
                LoadError::Abandoned => error,
            })
    }

    fn tell_refused(&self) {
        if self.refused > 1 {
            tracing::warn!("{} commands of the log were refused; the first one was told", self.refused);
        }
    }

    fn command(&mut self, words: &[&[u8]]) -> Result<(), String> {
        self.commands += 1;
        let name = words[0].to_ascii_lowercase();
        match (name.as_slice(), words.len(), &mut self.queued) {
            (b"multi", 1, None) => self.queued = Some(Vec::new()),
            (b"multi", 1, Some(_)) => return Err("a transaction begins inside another".to_owned()),
            (b"exec", 1, None) => return Err("a transaction ends that has not begun".to_owned()),
            (b"exec", 1, queued) => {
                for words in queued.take().unwrap_or_default() {
                    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
                    self.run(&words)?;
                }
            }
            (_, _, Some(queued)) => queued.push(words.iter().map(|word| word.to_vec()).collect()),
            _ => self.run(words)?,
        }
        Ok(())
    }

    fn run(&mut self, words: &[&[u8]]) -> Result<(), String> {
        if let [name, index] = words
            && name.eq_ignore_ascii_case(b"select")
        {
            let databases = self.shared.engine.keyspace.databases();
            let index = parse_integer(index).and_then(|index| usize::try_from(index).ok());
            self.database = index.filter(|index| *index < databases).ok_or_else(|| {
                format!("it selects a database that there is not; set databases above {databases}")
            })?;
            return Ok(());
        }
        let shown = || String::from_utf8_lossy(words[0]).escape_debug().to_string();
        let entry =
            self.shared.commands.find(words[0]).ok_or_else(|| format!("unknown command '{}'", shown()))?;
        let entry = self.shared.commands.resolve(entry, words);
        if !entry.command.arity.accepts(words.len()) {
            return Err(format!("'{}' has a wrong number of words", shown()));
        }
        let shared = self.shared;
        let result = match entry.command.run {
            Run::Host(_) if is_of_function(entry) && entry.command.is_write() => {
                let change = LibraryChange::read(&mut Args::new(words, entry.name_words()));
                let libraries = (&mut self.libraries, &shared.libraries);
                change
                    .and_then(|change| libraries.0.apply(libraries.1, &shared.commands, &change, || ()))
                    .map(drop)
            }
            Run::Host(_) | Run::Container | Run::Help(_) => {
                let (environment, worker, database) = (&self.environment, &mut self.worker, self.database);
                let surroundings = Surroundings { shared, environment, worker, database };
                self.scripts
                    .command(&entry.full_name(), words, surroundings, &mut self.reply)
                    .ok_or_else(|| format!("'{}' does not belong into a log", shown()))?
            }
            _ => {
                let mut inside = Some(shared.engine.keyspace.enter(self.worker.id()));
                let request = Request { entry, words, keys: &[], encoded: &[] };
                let (environment, worker) = (&self.environment, &mut self.worker);
                shared.engine.execute(
                    &request,
                    self.database,
                    environment,
                    worker,
                    &mut inside,
                    &mut self.reply,
                )
            }
        };
        self.reply.clear(usize::MAX);
        // There is nobody to tell what has changed.
        self.worker.invalidations.clear();
        if !self.worker.garbage.is_empty() {
            drop(self.worker.garbage.take());
        }
        // Redis does not look at replies here, and neither is a log that it wrote worth losing for one.
        if let Err(error) = result {
            self.refused += 1;
            if self.refused == 1 {
                let line = error.line();
                tracing::warn!("'{}' in the log was refused: {}", shown(), String::from_utf8_lossy(&line));
            }
        }
        Ok(())
    }
}

/// Cuts off the room that a file ends with, and before it what a crash has torn: nothing of that was acknowledged.
fn settle_room(file: &fs::File, path: &Path, may_cut: Cut) -> Result<(), LoadError> {
    let named = |error: io::Error| format!("{}: {}", path.display(), describe(&error));
    let Some(roomy) = Roomy::find(file).map_err(named)? else { return Ok(()) };
    match (roomy.tail, may_cut) {
        (Tail::Whole, Cut::Nothing) => {}
        (Tail::Whole, Cut::Room | Cut::Torn) => cut(path, roomy.room).map_err(named)?,
        (Tail::Torn, Cut::Torn) => {
            cut(path, roomy.proven).map_err(named)?;
            tracing::warn!(
                "{} ended with a batch that was not durable yet, as after a power cut: {} bytes from byte {} on were cut off",
                path.display(),
                roomy.room - roomy.proven,
                roomy.proven
            );
        }
        (Tail::Torn, _) => return Err(damaged(path, roomy.proven, &TORN_IN_ROOM, roomy.proven)),
        (Tail::Damaged, _) => return Err(damaged(path, roomy.proven, &DAMAGED, roomy.proven)),
    }
    Ok(())
}

fn is_of_function(entry: &Entry) -> bool {
    entry.container.is_some_and(|container| container.name == "function")
}

/// A file makes no sense from some place on; it is good up to `whole`.
fn damaged(path: &Path, offset: u64, reason: &dyn std::fmt::Display, whole: u64) -> LoadError {
    let path = path.display();
    LoadError::Failed(format!(
        "{path} is damaged at byte {offset}: {reason}. Nothing was changed. 'dunlin check {path}' tells more, and with --fix cuts the file at byte {whole}, which loses all that follows"
    ))
}

/// Cuts a file, durably.
fn cut(path: &Path, length: u64) -> io::Result<()> {
    let file = fs::OpenOptions::new().write(true).open(path)?;
    file.set_len(length)?;
    file.sync_all()
}
