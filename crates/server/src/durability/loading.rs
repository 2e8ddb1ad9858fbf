//! Loading the log at start: its files in order, its commands by way of [`super::replay`].
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
use std::path::Path;

use dunlin_persist::{
    Disk, ReadAhead, Storage,
    aof::{Progress, ReadError, Reader, Resume, Roomy, Tail, WriterOptions},
    manifest::{LogFile, Manifest},
};

use super::{LogThread, replay::Replay};
use crate::{
    config::{Config, describe},
    data_directory,
    files::{self, Part},
    loading::{Expired, LoadError, Reporter, load_snapshot},
    net::Now,
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

/// Refuses a log that another process is writing: a server that knows nothing of the lock on the directory.
pub(super) fn expect_unwritten(config: &Config) -> Result<(), String> {
    let options = LogThread::options(config);
    let manifest = read_manifest(&options)?.unwrap_or_default();
    let newest = manifest.increments.last().map(|file| options.directory.join(&file.name));
    newest.map_or(Ok(()), |path| data_directory::expect_unwritten(&path))
}

/// Loads the log that the configuration names into an engine that nobody else changes meanwhile.
pub(super) fn load(shared: &Shared, config: &Config) -> Result<Loaded, LoadError> {
    let options = LogThread::options(config);
    let manifest = match read_manifest(&options)? {
        Some(manifest) => manifest,
        None => {
            set_aside(&options)?;
            adopt_single_file(config, &options)?
        }
    };
    move_single_file(config, &options, &manifest)?;
    let bytes =
        |file: &LogFile| fs::metadata(options.directory.join(&file.name)).map_or(0, |data| data.len());
    shared.loading.expect(manifest.files().map(bytes).sum());
    let mut loaded = Loader::with(shared, config, |loader| {
        let mut loaded = Loaded::default();
        for part in files::parts(&options.manifest_path(), &manifest) {
            let may_cut = config.aof_load_truncated && part.is_last;
            let progress = loader.part(&part, if may_cut { Cut::Torn } else { Cut::Room })?;
            if part.is_increment {
                let unproven = (progress.unproven_sum, progress.unproven_bytes);
                let unproven = Some(unproven).filter(|(_, bytes)| *bytes > 0);
                loaded.resume = Some(Resume { bytes: progress.offset, unproven });
            }
        }
        loaded.lsn = loader.lsn.unwrap_or(0);
        (loaded.commands, loaded.database) = (loader.replay.commands(), loader.replay.database());
        Ok(loaded)
    })?;
    loaded.manifest = manifest;
    Ok(loaded)
}

/// Loads the files of one data set, in order, into an engine that nobody else uses. What is cut or damaged is refused.
pub(crate) fn load_files(shared: &Shared, parts: &[Part]) -> Result<(), LoadError> {
    let config = shared.config.snapshot();
    shared.loading.begin(Now::read().unix_ms);
    let bytes = |part: &Part| fs::metadata(&part.path).map_or(0, |data| data.len());
    shared.loading.expect(parts.iter().map(bytes).sum());
    Loader::with(shared, &config, |loader| {
        parts.iter().try_for_each(|part| loader.part(part, Cut::Nothing).map(drop))
    })?;
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
            work(&mut Loader { shared, reporter: Reporter::new(&shared.loading), now_ms, replay, lsn: None })
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
            self.lsn = Some(progress.log_end(self.lsn.unwrap_or(0)));
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
        settle_room(&file, part, may_cut)?;
        let mut reader = Reader::new(ReadAhead::new(file, start), start).going_on_from(lsn);
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

/// Cuts off the room that a file ends with, and before it what a crash has torn: nothing of that was acknowledged.
fn settle_room(file: &fs::File, part: &Part, may_cut: Cut) -> Result<(), LoadError> {
    let path = &part.path;
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
        (Tail::Torn, _) => return Err(damaged(part, roomy.proven, &TORN_IN_ROOM, roomy.proven)),
        (Tail::Damaged, _) => return Err(damaged(part, roomy.proven, &DAMAGED, roomy.proven)),
    }
    Ok(())
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
