//! Which of a directory's files a start loads: the one that holds more.
//!
//! ```text
//! dump.rdb         RDB file                           says when it was cut, and how it stood to the log (`stamp.rs`)
//! appendonlydir    the log: a manifest, its files     written to last when the newest of them was
//! appendonly.aof   the log of a Redis before 7        likewise; counts where there is no manifest
//! ```
//!
//! With `appendonly yes`, the first row that fits:
//!
//! | | found | loaded |
//! |---|---|---|
//! | 1 | one of the two, or neither | that |
//! | 2 | a log that began with a copy of this RDB file | the log |
//! | 3 | an RDB file that was cut while this log recorded, or a generation before it | the log |
//! | 4 | one that was cut while this log was off, or a later generation recorded | the RDB file, unless the log was written to later |
//! | 5 | one that was cut while this log lay unloaded beside it | neither: the start is refused |
//! | 6 | a log in which nothing was ever recorded | the RDB file |
//! | 7 | an RDB file that was cut some time after the log was last written to | the RDB file |
//! | 8 | any other two | the log |
//!
//! With `appendonly no` the RDB file is loaded, as in Redis, and the log if there is no RDB file.
//!
//! The times of rows 4 and 7 are those of clocks and file systems; if two files say by themselves how they stand to
//! each other, no time counts. The reasons, and the place of the other file: docs/decisions/0026.

use std::{
    cmp::Ordering,
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use dunlin_persist::{
    aof::{Reader, Roomy, WriterOptions},
    manifest::{LogFile, Manifest},
    rdb::Head,
};

use crate::{
    config::{Config, describe},
    durability::{log_options, read_manifest},
    persistence::stamp::{LogRelation, LogStamp},
    persistence::{self, files},
};

/// The log's files have to be younger by this much than an RDB file that was cut while the log was off. The time of a
/// file may be another clock's than the server's.
const WRITTEN_LATER_MS: u64 = 1000;
/// An RDB file has to be younger by this much than a log that it says nothing of: Redis gives the second of the cut.
const CUT_LATER_MS: u64 = 2000;
/// The last bytes of an RDB file: its checksum.
const CHECKSUM_BYTES: u64 = 8;

/// An RDB file, as far as its head and its times say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SnapshotFacts {
    /// When it was cut, in unix milliseconds; `None` if it does not say.
    pub(super) cut_ms: Option<u64>,
    /// When the file was last written to, in unix milliseconds.
    pub(super) written_ms: u64,
    pub(super) stamp: Option<LogStamp>,
    /// A word that identifies it, for the manifest of a log that begins with it; `None` if it cannot be read.
    pub(super) fingerprint: Option<String>,
}

/// A log, as far as its manifest and the sizes and times of its files say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LogFacts {
    pub(super) manifest: Manifest,
    /// When one of its files was last written to, in unix milliseconds.
    pub(super) written_ms: u64,
    /// Nothing was ever recorded in it.
    pub(super) is_void: bool,
    /// Files that the manifest names and that are not there.
    pub(super) missing: Vec<String>,
    /// Whether it is the file of a Redis before 7.
    pub(super) is_single: bool,
}

/// The data sets that a directory holds.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) snapshot: Option<SnapshotFacts>,
    pub(super) log: Option<LogFacts>,
    /// A file of a Redis before 7 that lies beside a log and was written to after it.
    pub(super) newer_single: Option<PathBuf>,
}

/// The data set that a start loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Nothing,
    /// The RDB file, with the reason if there is a log, too.
    Snapshot(Why),
    Log(Why),
    /// Neither holds all that the other one does.
    Undecided,
}

/// Why one of two was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// There is no other.
    Alone,
    /// The log holds all of the snapshot.
    Contains,
    /// The chosen one was written or cut later.
    Later,
    /// Nothing was ever recorded in the log.
    Void,
}

/// The table above.
pub(super) fn choose(found: &Found) -> Source {
    let (snapshot, log) = match (&found.snapshot, &found.log) {
        (None, None) => return Source::Nothing,
        (Some(_), None) => return Source::Snapshot(Why::Alone),
        (None, Some(_)) => return Source::Log(Why::Alone),
        (Some(snapshot), Some(log)) => (snapshot, log),
    };
    let is_written_later = |slack_ms| snapshot.cut_ms.is_none_or(|cut_ms| log.written_ms > cut_ms + slack_ms);
    if let Some(id) = &log.manifest.id {
        if id.origin.is_some() && id.origin == snapshot.fingerprint {
            return Source::Log(Why::Contains);
        }
        if let Some(stamp) = snapshot.stamp.as_ref().filter(|stamp| stamp.name == id.name) {
            return match (stamp.generation.cmp(&id.generation), stamp.relation) {
                (_, LogRelation::Apart) => Source::Undecided,
                (Ordering::Less | Ordering::Equal, LogRelation::On) => Source::Log(Why::Contains),
                (Ordering::Less, LogRelation::Off) => Source::Log(Why::Later),
                _ if is_written_later(WRITTEN_LATER_MS) => Source::Log(Why::Later),
                _ => Source::Snapshot(Why::Later),
            };
        }
    }
    match snapshot.cut_ms {
        _ if log.is_void => Source::Snapshot(Why::Void),
        Some(cut_ms) if cut_ms >= log.written_ms + CUT_LATER_MS => Source::Snapshot(Why::Later),
        _ => Source::Log(Why::Later),
    }
}

/// Whether a snapshot that is loaded alone holds all that the log beside it does, as far as is known.
pub(super) fn holds_log(found: &Found) -> bool {
    let (Some(snapshot), Some(log)) = (&found.snapshot, &found.log) else { return found.log.is_none() };
    match choose(found) {
        Source::Snapshot(_) => true,
        // Nothing was recorded after it: both were closed together.
        Source::Log(Why::Contains) => log.written_ms <= snapshot.written_ms + CUT_LATER_MS,
        _ => false,
    }
}

/// Looks at the files that a configuration names. The error is a line for the operator.
pub(super) fn find(config: &Config) -> Result<Found, String> {
    let options = log_options(config);
    let snapshot = look_at_snapshot(&persistence::path(config))?;
    let single = look_at_single(config, &options);
    let Some(manifest) = read_manifest(&options)? else {
        return Ok(Found { snapshot, log: single, newer_single: None });
    };
    let log = look_at_log(config, &options, manifest);
    // A single file that the manifest names already is about to be moved.
    let is_moving = log.manifest.base.as_ref().is_some_and(|base| base.name == options.filename);
    let is_newer = |single: &LogFacts| {
        !single.is_void && !is_moving && single.written_ms >= log.written_ms + CUT_LATER_MS
    };
    let newer_single = single.filter(is_newer).map(|_| single_path(config));
    Ok(Found { snapshot, log: Some(log), newer_single })
}

/// The file of a Redis before 7.
pub(super) fn single_path(config: &Config) -> PathBuf {
    config.dir.join(&config.appendfilename)
}

/// When a file was last written to, in unix milliseconds.
fn written_ms(path: &Path) -> io::Result<u64> {
    let written = fs::metadata(path)?.modified()?;
    Ok(written.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64))
}

fn look_at_snapshot(path: &Path) -> Result<Option<SnapshotFacts>, String> {
    let unreadable = |error: io::Error| format!("cannot read {}: {}", path.display(), describe(&error));
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(error)),
        // A pipe can be read but once.
        Ok(data) if !data.is_file() => Ok(None),
        Ok(_) => {
            let file = File::open(path).map_err(unreadable)?;
            // A head that makes no sense is reported by the load.
            let head = Head::read(&file).unwrap_or_default();
            let (cut_ms, stamp) = read_fields(&head);
            let written_ms = written_ms(path).map_err(unreadable)?;
            let fingerprint = fingerprint(&file, cut_ms).ok();
            Ok(Some(SnapshotFacts { cut_ms, written_ms, stamp, fingerprint }))
        }
    }
}

fn read_fields(head: &Head) -> (Option<u64>, Option<LogStamp>) {
    let field = |name: &str| {
        let field = head.fields.iter().find(|(other, _)| other == name.as_bytes());
        field.and_then(|(_, value)| std::str::from_utf8(value).ok())
    };
    let exact = field(persistence::TIME_FIELD).and_then(|text| text.parse().ok());
    // A conversion writes 0.
    let cut_s = field("ctime").and_then(|text| text.parse::<u64>().ok()).filter(|cut_s| *cut_s > 0);
    (
        exact.or(cut_s.map(|cut_s| cut_s.saturating_mul(1000))),
        field(persistence::LOG_FIELD).and_then(LogStamp::parse),
    )
}

/// The fingerprint of a file, if it has one.
pub(super) fn fingerprint_of(path: &Path) -> Option<String> {
    look_at_snapshot(path).ok().flatten()?.fingerprint
}

/// Length, checksum and time of the cut.
fn fingerprint(file: &File, cut_ms: Option<u64>) -> io::Result<String> {
    let (bytes, mut checksum) = (file.metadata()?.len(), [0; CHECKSUM_BYTES as usize]);
    file.read_exact_at(&mut checksum, bytes.saturating_sub(CHECKSUM_BYTES))?;
    Ok(format!("{bytes}-{:016x}-{}", u64::from_le_bytes(checksum), cut_ms.unwrap_or(0)))
}

/// Whether there is a file of that name that is not empty.
pub(super) fn has_bytes(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|data| data.is_file() && data.len() > 0)
}

fn look_at_log(config: &Config, options: &WriterOptions, manifest: Manifest) -> LogFacts {
    let path = |file: &LogFile| match options.directory.join(&file.name) {
        // A start was interrupted that was to move it.
        path if file.name == options.filename && !path.exists() => single_path(config),
        path => path,
    };
    let is_missing = |file: &&LogFile| fs::metadata(path(file)).is_err();
    let missing = manifest.files().filter(is_missing).map(|file| file.name.clone()).collect();
    let is_void_base = manifest.base.as_ref().map(path).is_none_or(|path| match files::is_named_rdb(&path) {
        true => File::open(path).is_ok_and(|file| Head::read(file).is_ok_and(|head| head.is_all)),
        false => !has_bytes(&path),
    });
    let is_void_increment = |file: &LogFile| {
        let looked_at = File::open(path(file)).and_then(|file| Ok((Roomy::find(&file)?, file)));
        looked_at.is_ok_and(|(roomy, file)| {
            roomy.is_some_and(|roomy| roomy.room == 0) || Reader::new(file, 0).has_no_record()
        })
    };
    LogFacts {
        written_ms: manifest.files().filter_map(|file| written_ms(&path(file)).ok()).max().unwrap_or(0),
        is_void: is_void_base && manifest.increments.iter().all(is_void_increment),
        missing,
        manifest,
        is_single: false,
    }
}

fn look_at_single(config: &Config, options: &WriterOptions) -> Option<LogFacts> {
    let path = single_path(config);
    if !path.is_file() {
        return None;
    }
    let base = LogFile { name: options.filename.clone(), sequence: 1 };
    Some(LogFacts {
        manifest: Manifest { base: Some(base), ..Manifest::default() },
        written_ms: written_ms(&path).unwrap_or(0),
        is_void: !has_bytes(&path),
        missing: Vec::new(),
        is_single: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use Source::{Log, Nothing, Snapshot, Undecided};
    use dunlin_persist::manifest::LogId;

    fn log(written_ms: u64) -> LogFacts {
        let id = LogId { name: "a".into(), generation: 5, origin: Some("origin".into()) };
        let manifest = Manifest { id: Some(id), ..Manifest::default() };
        LogFacts { manifest, written_ms, ..LogFacts::default() }
    }

    fn cut(cut_ms: u64) -> SnapshotFacts {
        SnapshotFacts { cut_ms: Some(cut_ms), ..SnapshotFacts::default() }
    }

    fn stamped(text: &str, cut_ms: u64) -> SnapshotFacts {
        SnapshotFacts { stamp: Some(LogStamp::parse(text).unwrap()), ..cut(cut_ms) }
    }

    #[test]
    fn start_loads_the_file_that_holds_more() {
        let void = LogFacts { is_void: true, ..log(50_000) };
        let of_redis = LogFacts { manifest: Manifest::default(), ..log(50_000) };
        let origin = SnapshotFacts { fingerprint: Some("origin".into()), ..cut(90_000) };
        for (row, snapshot, log, expected) in [
            (1, None, None, Nothing),
            (1, Some(cut(1)), None, Snapshot(Why::Alone)),
            (1, None, Some(log(1)), Log(Why::Alone)),
            (2, Some(origin), Some(log(50_000)), Log(Why::Contains)),
            (3, Some(stamped("a 5 on", 90_000)), Some(log(50_000)), Log(Why::Contains)),
            (3, Some(stamped("a 5 on", 90_000)), Some(void.clone()), Log(Why::Contains)),
            (3, Some(stamped("a 4 on", 90_000)), Some(log(50_000)), Log(Why::Contains)),
            (3, Some(stamped("a 4 off", 90_000)), Some(log(50_000)), Log(Why::Later)),
            (4, Some(stamped("a 5 off", 50_000)), Some(log(50_900)), Snapshot(Why::Later)),
            (4, Some(stamped("a 5 off", 50_000)), Some(log(51_001)), Log(Why::Later)),
            (4, Some(stamped("a 6 on", 50_000)), Some(log(50_000)), Snapshot(Why::Later)),
            (4, Some(stamped("a 6 off", 50_000)), Some(log(50_000)), Snapshot(Why::Later)),
            (4, Some(stamped("a 6 on", 50_000)), Some(log(52_000)), Log(Why::Later)),
            (5, Some(stamped("a 5 apart", 90_000)), Some(log(50_000)), Undecided),
            (6, Some(stamped("b 5 apart", 1)), Some(void.clone()), Snapshot(Why::Void)),
            (6, Some(cut(1)), Some(void), Snapshot(Why::Void)),
            (7, Some(cut(52_000)), Some(of_redis.clone()), Snapshot(Why::Later)),
            (7, Some(stamped("b 5 on", 52_000)), Some(log(50_000)), Snapshot(Why::Later)),
            (8, Some(cut(51_999)), Some(of_redis.clone()), Log(Why::Later)),
            (8, Some(SnapshotFacts::default()), Some(of_redis), Log(Why::Later)),
        ] {
            let found = Found { snapshot, log, newer_single: None };
            assert_eq!(choose(&found), expected, "row {row}: {found:?}");
        }
    }

    #[test]
    fn snapshot_that_is_loaded_alone_holds_the_log_or_not() {
        let closed = |written_ms| SnapshotFacts { written_ms, ..stamped("a 5 on", 1) };
        for (snapshot, log, expected) in [
            (None, None, true),
            (Some(cut(1)), None, true),
            (None, Some(log(1)), false),
            (Some(closed(50_000)), Some(log(50_500)), true),
            (Some(closed(50_000)), Some(log(60_000)), false),
            (Some(stamped("a 5 off", 60_000)), Some(log(50_000)), true),
            (Some(stamped("a 5 apart", 60_000)), Some(log(50_000)), false),
            (Some(cut(1)), Some(log(50_000)), false),
        ] {
            let found = Found { snapshot, log, newer_single: None };
            assert_eq!(holds_log(&found), expected, "{found:?}");
        }
    }

    #[test]
    fn fields_of_a_snapshot_are_read() {
        let head = |fields: &[(&str, &str)]| Head {
            fields: fields
                .iter()
                .map(|(name, value)| (name.as_bytes().into(), value.as_bytes().into()))
                .collect(),
            is_all: false,
        };
        assert_eq!(read_fields(&head(&[("ctime", "7")])), (Some(7000), None));
        assert_eq!(read_fields(&head(&[("ctime", "0")])), (None, None));
        assert_eq!(read_fields(&head(&[("ctime", "7"), ("dunlin-time", "7123")])), (Some(7123), None));
        let stamp = LogStamp::parse("a 1 off");
        assert_eq!(read_fields(&head(&[("dunlin-log", "a 1 off"), ("ctime", "x")])), (None, stamp));
    }
}
