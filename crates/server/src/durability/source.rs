//! Which of a directory's files a start loads: the best of them, whatever `appendonly` says.
//!
//! ```text
//! dump.rdb    RDB file                                   cut at a time that it tells
//! log         manifest, or the files that it would name  last written to when its newest file was
//! single      appendonly.aof, as Redis before 7 has it   likewise
//! ```
//!
//! | | found | loaded |
//! |---|---|---|
//! | 1 | nothing | nothing |
//! | 2 | a log that lacks files, and no newer RDB file | nothing: the start is refused |
//! | 3 | one of the two | that one |
//! | 4 | a log that was never written to, and an RDB file | the RDB file |
//! | 5 | an RDB file that says that this log was recording when it was cut | the log |
//! | 6 | an RDB file that was cut after the log was last written to | the RDB file |
//! | 7 | any other two | the log |
//!
//! Of a log and a single file the one that was written to last counts as the log. Nothing that is not loaded is lost by that:
//! see docs/decisions/0026.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::UNIX_EPOCH,
};

use dunlin_persist::{
    aof::{Reader, Roomy, WriterOptions},
    manifest::{LogFile, Manifest},
    rdb::Head,
};

use super::{LogThread, loading::read_manifest};
use crate::{
    config::{Config, describe},
    files, persistence,
};

/// What an RDB file says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SnapshotFacts {
    /// When it was cut, in unix milliseconds; `None` where nobody knows.
    pub(super) cut_ms: Option<u64>,
    /// That is exact; otherwise it may have been up to a second later.
    pub(super) is_exact: bool,
    /// The log that was recording at that time, and its offset then.
    pub(super) log: Option<(String, u64)>,
    /// There is a key or a library in it, as far as was looked.
    pub(super) has_data: bool,
}

/// What is known of a log without loading it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct LogFacts {
    pub(super) manifest: Manifest,
    /// When one of its files was last written to, in unix milliseconds.
    pub(super) written_ms: u64,
    /// When its base was cut, where that is known exactly.
    pub(super) base_ms: Option<u64>,
    /// Nothing was ever recorded in it.
    pub(super) is_void: bool,
    /// What is not there of it, in words.
    pub(super) lacks: Option<String>,
    /// The manifest was gone, and was made from the names of the files.
    pub(super) is_guessed: bool,
    /// It is the single file of a Redis before 7.
    pub(super) is_single: bool,
}

/// What a directory holds.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) snapshot: Option<SnapshotFacts>,
    pub(super) log: Option<LogFacts>,
    /// A log beside a single file that was written to later.
    pub(super) older_log: Option<Manifest>,
}

/// What is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Nothing,
    Snapshot,
    Log,
}

impl SnapshotFacts {
    /// Whether the file was cut after the log was last written to.
    fn is_newer_than(&self, log: &LogFacts) -> bool {
        let Some(cut_ms) = self.cut_ms else { return false };
        match self.is_exact {
            // It was cut while no log was recording: one that was begun since has a newer base.
            true => cut_ms >= log.written_ms && log.base_ms.is_none_or(|base_ms| cut_ms > base_ms),
            false => cut_ms > log.written_ms,
        }
    }

    /// Whether the file is a state that the log has gone through.
    pub(super) fn is_of(&self, log: &LogFacts) -> bool {
        self.log.as_ref().is_some_and(|(id, _)| log.manifest.id.as_ref() == Some(id))
    }
}

/// The table above. The error says what a log lacks.
pub(super) fn choose(found: &Found) -> Result<Source, &str> {
    let (snapshot, log) = match (&found.snapshot, &found.log) {
        (None, None) => return Ok(Source::Nothing),
        (Some(_), None) => return Ok(Source::Snapshot),
        (snapshot, Some(log)) => (snapshot.as_ref(), log),
    };
    let is_newer = snapshot.is_some_and(|snapshot| snapshot.is_newer_than(log));
    match (snapshot, &log.lacks) {
        (_, Some(lacks)) if !is_newer => Err(lacks),
        (Some(_), Some(_)) => Ok(Source::Snapshot),
        (None, _) => Ok(Source::Log),
        (Some(_), None) if log.is_void => Ok(Source::Snapshot),
        (Some(snapshot), None) if snapshot.is_of(log) => Ok(Source::Log),
        (Some(_), None) if is_newer => Ok(Source::Snapshot),
        (Some(_), None) => Ok(Source::Log),
    }
}

/// Looks at the files that a configuration names. The error is a line for the operator.
pub(super) fn find(config: &Config) -> Result<Found, String> {
    let options = LogThread::options(config);
    let snapshot = look_at_snapshot(&persistence::path(config))?;
    let log = find_log(config, &options)?;
    let single = look_at_single(config, &options);
    let is_base = |log: &LogFacts| {
        let names_it = log.manifest.base.as_ref().is_some_and(|base| base.name == options.filename);
        names_it && !options.directory.join(&options.filename).exists()
    };
    Ok(match (log, single) {
        (Some(log), Some(_)) if is_base(&log) => Found { snapshot, log: Some(log), older_log: None },
        (Some(log), Some(single)) if single.written_ms > log.written_ms && !single.is_void => {
            Found { snapshot, log: Some(single), older_log: Some(log.manifest) }
        }
        (log, single) => Found { snapshot, log: log.or(single), older_log: None },
    })
}

/// When a file was last written to, in unix milliseconds.
fn written_ms(path: &Path) -> io::Result<u64> {
    let written = fs::metadata(path)?.modified()?;
    Ok(written.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64))
}

/// What an RDB file says of itself; `None` where there is none.
fn look_at_snapshot(path: &Path) -> Result<Option<SnapshotFacts>, String> {
    let unreadable = |error: io::Error| format!("cannot read {}: {}", path.display(), describe(&error));
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(error)),
        // What a pipe says can be read but once.
        Ok(data) if !data.is_file() => Ok(Some(SnapshotFacts::default())),
        Ok(_) => {
            let mut facts = File::open(path).map(peek).map_err(unreadable)?;
            if facts.cut_ms.is_none() {
                facts.cut_ms = written_ms(path).ok();
            }
            Ok(Some(facts))
        }
    }
}

/// Reads what stands in front of a file's data. What is wrong with the file whoever loads it finds out.
fn peek(file: File) -> SnapshotFacts {
    let mut facts = SnapshotFacts::default();
    match Head::read(file) {
        Ok(head) => {
            head.fields.iter().for_each(|(name, value)| facts.note(name, value));
            facts.has_data = !head.is_all;
        }
        Err(_) => facts.has_data = true,
    }
    facts
}

impl SnapshotFacts {
    fn note(&mut self, name: &[u8], value: &[u8]) {
        let text = std::str::from_utf8(value).unwrap_or_default();
        let is = |field: &str| name == field.as_bytes();
        match name {
            // `dunlin convert` writes what was there at no time.
            b"ctime" if !self.is_exact => {
                self.cut_ms = text.parse().ok().filter(|cut_s| *cut_s > 0).map(|cut_s: u64| cut_s * 1000);
            }
            _ if is(persistence::TIME_FIELD) => {
                if let Ok(cut_ms) = text.parse() {
                    (self.cut_ms, self.is_exact) = (Some(cut_ms), true);
                }
            }
            _ if is(persistence::LOG_FIELD) => {
                let position = text.split_once(' ');
                self.log = position.and_then(|(id, lsn)| Some((id.to_owned(), lsn.parse().ok()?)));
            }
            _ => {}
        }
    }
}

/// The log of a directory: the one of its manifest, or the one that its files must have been.
fn find_log(config: &Config, options: &WriterOptions) -> Result<Option<LogFacts>, String> {
    match read_manifest(options)? {
        Some(manifest) => Ok(Some(look_at_log(config, options, manifest))),
        None => {
            let strays = files::strays(&options.manifest_path(), &Manifest::default());
            let strays: Vec<PathBuf> = strays.into_iter().filter(|path| has_bytes(path)).collect();
            if strays.is_empty() {
                return Ok(None);
            }
            let mut facts = match guess(options, &strays) {
                Some(manifest) => look_at_log(config, options, manifest),
                None => {
                    let names =
                        strays.iter().filter_map(|path| path.file_name()).map(|name| name.to_string_lossy());
                    let written_ms = strays.iter().filter_map(|path| written_ms(path).ok()).max();
                    LogFacts {
                        written_ms: written_ms.unwrap_or(0),
                        lacks: Some(format!(
                            "{} has no manifest, and the names of its files do not say which of them belong together: {}",
                            options.directory.display(),
                            names.collect::<Vec<_>>().join(", ")
                        )),
                        ..LogFacts::default()
                    }
                }
            };
            facts.is_guessed = true;
            Ok(Some(facts))
        }
    }
}

fn has_bytes(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|data| data.is_file() && data.len() > 0)
}

fn look_at_log(config: &Config, options: &WriterOptions, manifest: Manifest) -> LogFacts {
    let path = |file: &LogFile| match options.directory.join(&file.name) {
        // A single file that is yet to be moved.
        path if file.name == options.filename && !path.exists() => config.dir.join(&file.name),
        path => path,
    };
    let missing: Vec<&str> =
        manifest.files().filter(|file| !path(file).exists()).map(|file| file.name.as_str()).collect();
    let lacks = (!missing.is_empty()).then(|| {
        format!(
            "{} names files that are not there: {}",
            options.manifest_path().display(),
            missing.join(", ")
        )
    });
    let base = manifest.base.as_ref().map(path).filter(|path| files::is_named_rdb(path));
    let base = base.and_then(|path| File::open(path).ok()).map(peek);
    let is_void_base = match (&manifest.base, &base) {
        (None, _) => true,
        (Some(_), Some(base)) => !base.has_data,
        (Some(file), None) => !has_bytes(&path(file)),
    };
    let is_void_increment = |file: &LogFile| {
        let roomy = File::open(path(file)).and_then(|file| Ok((file.metadata()?.len(), Roomy::find(&file)?)));
        roomy.is_ok_and(|(bytes, roomy)| bytes == 0 || roomy.is_some_and(|roomy| roomy.room == 0))
    };
    LogFacts {
        written_ms: manifest.files().filter_map(|file| written_ms(&path(file)).ok()).max().unwrap_or(0),
        base_ms: base.filter(|base| base.is_exact).and_then(|base| base.cut_ms),
        is_void: is_void_base && manifest.increments.iter().all(is_void_increment),
        lacks,
        manifest,
        is_guessed: false,
        is_single: false,
    }
}

fn look_at_single(config: &Config, options: &WriterOptions) -> Option<LogFacts> {
    let path = config.dir.join(&config.appendfilename);
    if !path.is_file() {
        return None;
    }
    let base = LogFile { name: options.filename.clone(), sequence: 1 };
    Some(LogFacts {
        manifest: Manifest { base: Some(base), ..Manifest::default() },
        written_ms: written_ms(&path).unwrap_or(0),
        is_void: !has_bytes(&path),
        is_single: true,
        ..LogFacts::default()
    })
}

/// The manifest that files must have had, by their names: with one base at most, and all increments since.
///
/// Without a base the first increment has to be the log's beginning, which its first check tells.
fn guess(options: &WriterOptions, paths: &[PathBuf]) -> Option<Manifest> {
    let mut manifest = Manifest::default();
    for path in paths {
        let name = path.file_name()?.to_str()?;
        let rest = name.strip_prefix(&options.filename)?.strip_prefix('.')?;
        let (sequence, kind) = rest.split_once('.')?;
        let file = LogFile { name: name.to_owned(), sequence: sequence.parse().ok()? };
        match kind {
            "incr.aof" => manifest.increments.push(file),
            "base.rdb" | "base.aof" if manifest.base.is_none() => manifest.base = Some(file),
            _ => return None,
        }
    }
    manifest.increments.sort_by_key(|file| file.sequence);
    let is_whole = manifest.increments.windows(2).all(|pair| pair[0].sequence + 1 == pair[1].sequence);
    let begins = || {
        let first = manifest.increments.first();
        first.is_some_and(|file| begins_a_log(&options.directory.join(&file.name)))
    };
    (is_whole && (manifest.base.is_some() || begins())).then_some(manifest)
}

/// Whether a file is the first of a log: its first check says so.
fn begins_a_log(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let mut reader = Reader::new(file, 0).going_on_from(Some(0));
    while reader.progress().batches == 0 {
        if !matches!(reader.read_command(), Ok(Some(_))) {
            break;
        }
    }
    reader.progress().batches > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use Source::{Log, Nothing, Snapshot};

    const ID: &str = "0123456789abcdef0123456789abcdef01234567";

    fn log(written_ms: u64) -> LogFacts {
        let manifest = Manifest { id: Some(ID.to_owned()), ..Manifest::default() };
        LogFacts { manifest, written_ms, ..LogFacts::default() }
    }

    fn exact(cut_ms: u64) -> SnapshotFacts {
        SnapshotFacts { cut_ms: Some(cut_ms), is_exact: true, ..SnapshotFacts::default() }
    }

    fn seconds(cut_s: u64) -> SnapshotFacts {
        SnapshotFacts { cut_ms: Some(cut_s * 1000), ..SnapshotFacts::default() }
    }

    fn of(id: &str, facts: SnapshotFacts) -> SnapshotFacts {
        SnapshotFacts { log: Some((id.to_owned(), 7)), ..facts }
    }

    #[test]
    fn start_loads_the_best_of_what_is_there() {
        let (other, unknown) = ("f".repeat(40), SnapshotFacts::default());
        let void = LogFacts { is_void: true, ..log(9000) };
        let based = |base_ms| LogFacts { base_ms: Some(base_ms), ..log(5000) };
        let lacking = |written_ms| LogFacts { lacks: Some("it lacks".to_owned()), ..log(written_ms) };
        for (row, snapshot, log, expected) in [
            (1, None, None, Ok(Nothing)),
            (2, None, Some(lacking(1)), Err("it lacks")),
            (2, Some(exact(4999)), Some(lacking(5000)), Err("it lacks")),
            (2, Some(of(ID, exact(4999))), Some(lacking(5000)), Err("it lacks")),
            (2, Some(unknown.clone()), Some(lacking(0)), Err("it lacks")),
            (3, Some(exact(1)), None, Ok(Snapshot)),
            (3, Some(unknown.clone()), None, Ok(Snapshot)),
            (3, None, Some(log(1)), Ok(Log)),
            (3, None, Some(void.clone()), Ok(Log)),
            (4, Some(seconds(1)), Some(void.clone()), Ok(Snapshot)),
            (4, Some(unknown.clone()), Some(void), Ok(Snapshot)),
            (5, Some(of(ID, exact(9000))), Some(log(5000)), Ok(Log)),
            (6, Some(of(&other, exact(9000))), Some(log(5000)), Ok(Snapshot)),
            (6, Some(exact(9000)), Some(log(5000)), Ok(Snapshot)),
            (6, Some(exact(5000)), Some(log(5000)), Ok(Snapshot)),
            (6, Some(exact(5000)), Some(based(4999)), Ok(Snapshot)),
            (6, Some(seconds(6)), Some(log(5999)), Ok(Snapshot)),
            (6, Some(exact(5001)), Some(lacking(5000)), Ok(Snapshot)),
            (7, Some(exact(4999)), Some(log(5000)), Ok(Log)),
            (7, Some(exact(5000)), Some(based(5000)), Ok(Log)),
            (7, Some(seconds(5)), Some(log(5000)), Ok(Log)),
            (7, Some(seconds(5)), Some(log(5999)), Ok(Log)),
            (7, Some(unknown), Some(log(0)), Ok(Log)),
        ] {
            let text = format!("row {row}: {snapshot:?} and {log:?}");
            assert_eq!(choose(&Found { snapshot, log, older_log: None }), expected, "{text}");
        }
    }

    #[test]
    fn snapshot_says_when_it_was_cut() {
        let facts = |fields: &[(&[u8], &[u8])]| {
            let mut facts = SnapshotFacts::default();
            fields.iter().for_each(|(name, value)| facts.note(name, value));
            facts
        };
        assert_eq!(facts(&[(b"ctime", b"7")]), seconds(7));
        assert_eq!(facts(&[(b"ctime", b"0"), (b"redis-ver", b"7.0.15")]), SnapshotFacts::default());
        let position = format!("{ID} 7");
        let own: [(&[u8], &[u8]); 3] =
            [(b"ctime", b"7"), (b"dunlin-time", b"7654"), (b"dunlin-log", position.as_bytes())];
        assert_eq!(facts(&own), of(ID, exact(7654)));
        assert_eq!(facts(&[(b"dunlin-time", b"x"), (b"dunlin-log", b"x y")]), SnapshotFacts::default());
    }

    #[test]
    fn manifest_is_guessed_where_names_leave_no_doubt() {
        let dir = crate::config::tests::ScratchDir::new("guess");
        let options = WriterOptions { directory: dir.path(""), filename: "a.aof".to_owned() };
        for (names, expected) in [
            (&["a.aof.2.base.rdb", "a.aof.5.incr.aof", "a.aof.6.incr.aof"][..], Some(3)),
            (&["a.aof.2.base.aof"], Some(1)),
            (&["a.aof.10.incr.aof", "a.aof.2.base.rdb", "a.aof.9.incr.aof"], Some(3)),
            (&["a.aof.1.base.rdb", "a.aof.2.base.rdb"], None),
            (&["a.aof.2.base.rdb", "a.aof.5.incr.aof", "a.aof.7.incr.aof"], None),
            (&["a.aof.1.incr.aof"], None),
            (&["a.aof.1.base.rdb", "a.aof.note"], None),
            (&["a.aof.x.base.rdb"], None),
        ] {
            let paths: Vec<PathBuf> = names.iter().map(|name| dir.path(name)).collect();
            let guessed = guess(&options, &paths);
            assert_eq!(guessed.as_ref().map(|manifest| manifest.files().count()), expected, "{names:?}");
            if let Some(manifest) = guessed {
                assert!(manifest.increments.is_sorted_by_key(|file| file.sequence));
            }
        }
    }
}
