//! Loading the log: its files in order, its commands by way of [`super::replay`]. [`super::start`] decides which files
//! a start loads.
//!
//! ```text
//! manifest ─▶ base ─▶ incremental files ─▶ where to go on: manifest, the log's offset, the bytes without a check
//! ```
//!
//! A last file that was cut by a crash is cut back to its last whole command or transaction, and the server log reports
//! the cut, unless `aof-load-truncated no`. Any other fault ends the start: nothing of the files is changed then.

use std::fs;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use dunlin_net::Now;
use dunlin_persist::{
    ReadAhead,
    aof::{Progress, ReadError, Reader, Resume, Roomy, Tail},
    manifest::{Manifest, StreamId},
};
use dunlin_replication::{History, Id, StreamPosition};

use super::replay::Replay;
use crate::{
    config::{Config, describe},
    durability::{log_options, read_manifest},
    loading::{LoadError, Reporter},
    persistence::files::{self, Part},
    rdb::{Expired, LoadedSnapshot, load_snapshot},
    shared::Shared,
};

/// Commands between two looks at the clock.
const COMMANDS_PER_REPORT: u64 = 1024;
/// The fault of a file that ends with room, and before it with a batch that no check proves.
pub const TORN_IN_ROOM: &str = "the last batch is torn, as by a power cut";
/// The fault of one with more damage than that.
const DAMAGED: &str = "no check proves what follows";
/// The beginning of an RDB file.
const RDB_MAGIC: &[u8] = b"REDIS";
/// Magic of RDB files of newer versions of Valkey.
const VALKEY_MAGIC: &[u8] = b"VALKE";

/// The log that was loaded, and how to go on with it.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) manifest: Manifest,
    /// The end of the last file, as read, if there is one to go on with.
    pub(super) resume: Option<Resume>,
    /// The log's offset.
    pub(super) lsn: u64,
    /// The database that the last file leaves selected, which is not 0 if Redis has written it.
    pub(super) database: usize,
    /// Commands replayed.
    pub(super) commands: u64,
    /// The log holds all that the file of the snapshot does.
    pub(super) holds_snapshot: bool,
    /// The file of a Redis before 7 whose place the log takes.
    pub(super) single: Option<PathBuf>,
    /// The place in a stream of replication that it shows.
    pub(super) place: Option<StreamPosition>,
}

/// Loads the log that this server writes again.
pub(super) fn load_again(shared: &Shared, config: &Config) -> Result<Loaded, LoadError> {
    let manifest = read_manifest(&log_options(config))?.unwrap_or_default();
    load(shared, config, manifest)
}

/// Loads the log of a manifest, to go on with it, into an engine that no client changes meanwhile.
pub(super) fn load(shared: &Shared, config: &Config, manifest: Manifest) -> Result<Loaded, LoadError> {
    let parts = files::parts(&log_options(config).manifest_path(), &manifest);
    expect_bytes(shared, &parts);
    let mut knows_lsn = false;
    let mut loaded = Loader::with(shared, config, |loader| {
        let mut loaded = Loaded::default();
        for part in &parts {
            let may_cut = config.aof_load_truncated && part.is_last;
            let progress = loader.part(part, if may_cut { Cut::Torn } else { Cut::Room })?;
            if part.is_increment {
                let unproven = (progress.unproven_sum, progress.unproven_bytes);
                let unproven = Some(unproven).filter(|(_, bytes)| *bytes > 0);
                loaded.resume = Some(Resume { bytes: progress.offset, unproven });
            }
        }
        // A log without a base begins at 0.
        knows_lsn = loader.lsn.is_some() || manifest.base.is_none();
        loaded.lsn = loader.lsn.unwrap_or(loader.counted);
        (loaded.commands, loaded.database) = (loader.replay.commands(), loader.replay.database());
        Ok(loaded)
    })?;
    let stream = manifest.stream.as_ref().filter(|_| knows_lsn);
    loaded.place = stream.and_then(|stream| place(stream, loaded.lsn, loaded.database));
    if manifest.stream.is_some() && loaded.place.is_none() {
        // As after an older version, which began files without saying where the log is.
        tracing::warn!(
            "The log does not say how much of its primary's stream it holds, so replication begins anew"
        );
    }
    loaded.manifest = manifest;
    Ok(loaded)
}

/// The place in a stream behind a log of `lsn` bytes.
fn place(stream: &StreamId, lsn: u64, database: usize) -> Option<StreamPosition> {
    let id = Id::parse(stream.id.as_bytes())?;
    let second = match &stream.second {
        Some((id, end)) => Some((Id::parse(id.as_bytes())?, *end)),
        None => None,
    };
    Some(StreamPosition { history: History { id, second }, offset: stream.base.wrapping_add(lsn), database })
}

/// Loads the files of a log that is not gone on with, and changes none of them; the commands that were replayed.
pub(super) fn load_unchanged(shared: &Shared, config: &Config, parts: &[Part]) -> Result<u64, LoadError> {
    expect_bytes(shared, parts);
    Loader::with(shared, config, |loader| {
        for part in parts {
            let forgives = config.aof_load_truncated && part.is_last;
            loader.part(part, if forgives { Cut::Ignored } else { Cut::Nothing })?;
        }
        Ok(loader.replay.commands())
    })
}

/// Loads an RDB file that a log is to begin with.
pub(super) fn load_first_base(
    shared: &Shared,
    config: &Config,
    file: &fs::File,
    path: &Path,
) -> Result<LoadedSnapshot, LoadError> {
    expect_bytes(shared, &[Part::alone(path.to_owned())]);
    Loader::with(shared, config, |loader| loader.snapshot(file, path))
}

fn expect_bytes(shared: &Shared, parts: &[Part]) {
    let bytes = |part: &Part| fs::metadata(&part.path).map_or(0, |data| data.len());
    shared.loading.expect(parts.iter().map(bytes).sum());
}

/// Loads the files of one data set, in order, into an engine of its own. A file that is cut or damaged is refused.
pub(crate) fn load_files(shared: &Shared, parts: &[Part]) -> Result<(), LoadError> {
    let config = shared.config.current();
    shared.loading.begin(Now::read());
    expect_bytes(shared, parts);
    Loader::with(shared, &config, |loader| {
        parts.iter().try_for_each(|part| loader.part(part, Cut::Nothing).map(drop))
    })?;
    shared.loading.end();
    Ok(())
}

/// The part that may be cut off the end of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// The file is to stay as it is.
    Nothing,
    /// The file is to stay as it is, and a batch that a crash has torn is passed over.
    Ignored,
    /// Room, which holds nothing: the next writes go there.
    Room,
    /// Also a batch that a crash has torn.
    Torn,
}

/// Loads the files of a log, one after the other.
struct Loader<'a, 'b> {
    shared: &'a Shared,
    reporter: Reporter<'a>,
    now_ms: u64,
    replay: &'b mut Replay<'a>,
    /// The log's offset behind the last increment, if a check in one has said so.
    lsn: Option<u64>,
    /// Bytes of records in increments before any such check.
    counted: u64,
}

impl<'a> Loader<'a, '_> {
    /// Lets `work` load files; returns when all that they hold is in the engine.
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
                counted: 0,
            })
        });
        loaded.unwrap_or_else(|error| {
            Err(LoadError::Failed(format!("cannot load the log: {}", describe(&error))))
        })
    }

    /// Loads one file; returns how far it was read. A base has no place in the log.
    fn part(&mut self, part: &Part, may_cut: Cut) -> Result<Progress, LoadError> {
        let progress = self.file(part, may_cut, self.lsn.filter(|_| part.is_increment))?;
        self.reporter.next_file(progress.offset);
        if part.is_increment {
            self.lsn = progress.log_end(self.lsn);
            self.counted += progress.unproven_record_bytes;
        }
        Ok(progress)
    }

    /// Loads one file, in front of which the log is at `lsn`; returns how far it was read.
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
            start = self.snapshot(&file, path)?.bytes;
            // Commands follow: the file of a Redis before 7.
            file.seek(io::SeekFrom::Start(start)).map_err(|error| named(&describe(&error)))?;
        } else if files::is_named_rdb(path) {
            // A file whose beginning is gone is not a log that happens to be short.
            return Err(named(&files::NO_RDB).into());
        }
        let end = settle_room(&file, part, may_cut)?;
        let input = ReadAhead::new(file, start).take(end.saturating_sub(start));
        let mut reader = Reader::new(input, start).going_on_from(lsn);
        // The progress before the transaction, in one.
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
            Err(ReadError::Cut) if may_cut == Cut::Ignored => {
                tracing::warn!(
                    "{} ends in the middle of a command, as after a crash, at byte {}. The {} commands before are loaded",
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

    /// Loads the RDB file that a file begins with.
    fn snapshot(&mut self, file: &fs::File, path: &Path) -> Result<LoadedSnapshot, LoadError> {
        self.replay.settle();
        let loaded = load_snapshot(self.shared, file, Expired::Kept, self.now_ms, &mut self.reporter);
        loaded.map_err(|error| error.of_file(path))
    }
}

/// Cuts off the room that a file ends with, and before it what a crash has torn: nothing of that was acknowledged. Returns where
/// the commands end.
fn settle_room(file: &fs::File, part: &Part, may_cut: Cut) -> Result<u64, LoadError> {
    let path = &part.path;
    let named = |error: io::Error| format!("{}: {}", path.display(), describe(&error));
    let Some(roomy) = Roomy::find(file).map_err(named)? else { return Ok(u64::MAX) };
    match (roomy.tail, may_cut) {
        (Tail::Whole, Cut::Nothing | Cut::Ignored) => Ok(roomy.room),
        (Tail::Whole, Cut::Room | Cut::Torn) => {
            cut(path, roomy.room).map_err(named)?;
            Ok(roomy.room)
        }
        (Tail::Torn, Cut::Ignored) => Ok(roomy.proven),
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
    // Only the whole log shows where a file has to go on, and the cost of cutting one.
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
