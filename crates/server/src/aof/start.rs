//! The start: loads the files that [`super::source`] chooses, and makes the rest harmless.
//!
//! ```text
//!                  appendonly yes                                           appendonly no
//! the log wins     load it, go on with it; the next snapshot keeps          the RDB file is loaded;
//!                  an RDB file that the log does not hold                   without one, the log, unchanged
//! the RDB file     load it ─ copy it to a base ─ manifest (`Writer::open`)
//! wins             ─ the files of the old log go to kept-N
//! ```
//!
//! Until the manifest that names the base is in place a start that is interrupted has changed nothing that counts: the next one
//! finds the same files and chooses the same. From then on the log holds the RDB file, which its manifest says.

use std::{
    fs::{self, File},
    io::{self, Read, Seek},
    path::Path,
};

use dunlin_persist::{
    Disk, Replacement, Storage,
    aof::{KeptFiles, WriterOptions},
    manifest::{BaseFormat, LogId, Manifest},
};
use dunlin_replication::StreamPosition;

use super::{
    loading::{self, Loaded},
    source::{self, Found, LogFacts, Source, Why},
};
use crate::{
    cluster::ending::Ending,
    config::{Config, describe},
    durability::log_options,
    loading::LoadError,
    persistence::stamp::{LogRelation, next_id},
    persistence::{
        self, data_directory,
        files::{self, DataSet, Part},
    },
    rdb::load_dump,
    shared::Shared,
};

/// Loads the data set for a log to go on with, into an engine that no client changes meanwhile.
pub(super) fn load_for_log(shared: &Shared, config: &Config) -> Result<Loaded, LoadError> {
    let options = log_options(config);
    let found = source::find(config)?;
    expect_unwritten(config, &options, &found)?;
    let source = source::choose(&found);
    expect_decided(config, &options, &found, source)?;
    announce(config, &options, source);
    if !options.manifest_path().exists() {
        announce_others(config);
    }
    let snapshot = found.snapshot.and_then(|snapshot| snapshot.fingerprint);
    match (source, found.log) {
        (Source::Log(why), Some(log)) => {
            if log.is_single {
                set_aside(&options, None)?;
                adopt_single_file(&options, &log.manifest)?;
            }
            move_single_file(config, &options, &log.manifest)?;
            let mut loaded = loading::load(shared, config, log.manifest)?;
            if why == Why::Later {
                // The log has gone on by itself, so that the stamp of the snapshot now says nothing of it.
                loaded.manifest.id = None;
            }
            Ok(Loaded { holds_snapshot: why == Why::Contains, ..loaded })
        }
        (Source::Snapshot(_), log) => {
            Ending::forget_synced(&config.dir)?;
            if log.as_ref().is_none_or(|log| log.is_single) {
                set_aside(&options, snapshot.as_deref())?;
            }
            take_over(shared, config, &options, snapshot, log)
        }
        (Source::Nothing | Source::Log(_) | Source::Undecided, _) => {
            set_aside(&options, None)?;
            loading::load(shared, config, Manifest::default())
        }
    }
}

/// Loads the data set for a server without a log. Returns how the data set stands to the log that lies there, if one
/// does. No file is changed.
pub(super) fn load_without_log(
    shared: &Shared,
    config: &Config,
) -> Result<(Option<LogId>, LogRelation, Option<StreamPosition>), LoadError> {
    let (options, path) = (log_options(config), persistence::path(config));
    let directory = options.directory.display();
    let has_snapshot = fs::metadata(&path).is_ok();
    let found = source::find(config).unwrap_or_else(|reason| {
        tracing::warn!("{reason}. No append-only log is loaded, since appendonly is no");
        Found::default()
    });
    let id = found.log.as_ref().and_then(|log| log.manifest.id.clone());
    let holds_log = has_snapshot && source::holds_log(&found);
    let mut place = None;
    let log = found.log.as_ref().filter(|log| !log.is_void);
    if has_snapshot {
        match log {
            Some(_) if !holds_log => tracing::warn!(
                "Loading {}, since appendonly is no. The append-only log in {directory} may hold more: it is left as it is. To load it instead, end this server with SHUTDOWN NOSAVE, move {} away, and start with --appendonly yes",
                path.display(),
                path.display()
            ),
            _ => tracing::info!("Loading {}", path.display()),
        }
        Ending::forget_synced(&config.dir)?;
        place = load_dump(shared)?.place();
    } else if let Some(log) = log {
        return Ok((id, load_log_unchanged(shared, config, log)?, None));
    } else {
        announce_others(config);
    }
    Ok((id, if holds_log { LogRelation::Off } else { LogRelation::Apart }, place))
}

/// Loads a log without going on with it.
fn load_log_unchanged(shared: &Shared, config: &Config, log: &LogFacts) -> Result<LogRelation, LoadError> {
    let (options, path) = (log_options(config), persistence::path(config));
    let directory = options.directory.display();
    // A server that keeps nothing may share the directory of another one, which goes on writing.
    let in_use = if config.keeps_data() { Ok(()) } else { data_directory::expect_unused(&config.dir) };
    let reason = match in_use {
        Err(in_use) => in_use,
        Ok(()) if !log.missing.is_empty() => missing(&options, log),
        Ok(()) => {
            let parts = match log.is_single {
                true => vec![Part::alone(source::single_path(config))],
                false => files::parts(&options.manifest_path(), &log.manifest),
            };
            tracing::warn!(
                "Loading the append-only log in {directory}, since there is no {}. appendonly is no, so the log is left as it is: only snapshots keep what changes from now on",
                path.display()
            );
            let commands = loading::load_unchanged(shared, config, &parts)?;
            tracing::info!("{commands} commands of the append-only log loaded");
            return Ok(LogRelation::Off);
        }
    };
    tracing::warn!("The append-only log in {directory} is not loaded, and left as it is: {reason}");
    Ok(LogRelation::Apart)
}

/// Refuses a log that another process is writing: a server that knows nothing of the lock on the directory.
fn expect_unwritten(config: &Config, options: &WriterOptions, found: &Found) -> Result<(), String> {
    let Some(log) = &found.log else { return Ok(()) };
    let newest = log.manifest.increments.last().map(|file| options.directory.join(&file.name));
    let newest = if log.is_single { Some(source::single_path(config)) } else { newest };
    newest.map_or(Ok(()), |path| data_directory::expect_unwritten(&path))
}

/// Refuses to start if the choice is the operator's. Nothing has been changed.
fn expect_decided(
    config: &Config,
    options: &WriterOptions,
    found: &Found,
    source: Source,
) -> Result<(), String> {
    let (snapshot, directory) = (persistence::path(config), options.directory.display());
    let snapshot = snapshot.display();
    if let Some(log) = found.log.as_ref().filter(|log| !log.missing.is_empty()) {
        let without =
            if found.snapshot.is_some() { format!("which loads {snapshot}") } else { "empty".into() };
        return Err(format!(
            "{}. Nothing was changed. Put these files back; or move {directory} away to start without this log, {without}",
            missing(options, log)
        ));
    }
    if let Some(single) = &found.newer_single {
        let single = single.display();
        return Err(format!(
            "{single} was written to after the append-only log in {directory}, as by a Redis before 7: each may hold changes that the other one lacks. Nothing was changed. To go on with {single}, move {directory} away; to go on with the log, move {single} away"
        ));
    }
    if source == Source::Undecided {
        return Err(format!(
            "{snapshot} was saved by a server that did not have all of the append-only log in {directory}: each may hold changes that the other one lacks. Nothing was changed. To go on with {snapshot}, move {directory} away; to go on with the log, move {snapshot} away"
        ));
    }
    Ok(())
}

fn missing(options: &WriterOptions, log: &LogFacts) -> String {
    let manifest = options.manifest_path();
    format!("{} names files that are not there: {}", manifest.display(), log.missing.join(", "))
}

/// Logs which file is loaded, why, and what becomes of the other one.
fn announce(config: &Config, options: &WriterOptions, source: Source) {
    let (snapshot, directory) = (persistence::path(config), options.directory.display());
    let snapshot = snapshot.display();
    match source {
        Source::Nothing => {
            tracing::info!(
                "There is neither {snapshot} nor an append-only log in {directory}: nothing is loaded"
            );
        }
        Source::Log(Why::Alone | Why::Void) => tracing::info!("Loading the append-only log in {directory}"),
        Source::Log(Why::Contains) => {
            tracing::info!("Loading the append-only log in {directory}, which holds all that {snapshot} does")
        }
        Source::Log(Why::Later) => tracing::warn!(
            "Loading the append-only log in {directory}, which is newer than {snapshot}. That file is not loaded; the next snapshot keeps it under another name"
        ),
        Source::Snapshot(Why::Alone | Why::Contains) => tracing::warn!(
            "Loading {snapshot}, since there is no append-only log in {directory} yet: a copy of the file becomes the base of the log"
        ),
        Source::Snapshot(Why::Void) => tracing::warn!(
            "Loading {snapshot}, since the append-only log in {directory} is empty: a copy of the file becomes the base of a new log, and the old one is kept"
        ),
        Source::Snapshot(Why::Later) => tracing::warn!(
            "Loading {snapshot}, which is newer than the append-only log in {directory}: a copy of the file becomes the base of a new log, and the old one is kept"
        ),
        Source::Undecided => unreachable!("the start was refused"),
    }
}

/// Logs data sets of other names in the directory: the configuration may have had others.
fn announce_others(config: &Config) {
    let options = log_options(config);
    let own = [persistence::path(config), source::single_path(config), options.manifest_path()];
    // If the directory is empty or cannot be read there is nothing to say.
    let others = files::find(&config.dir).unwrap_or_default();
    let others = others.iter().map(DataSet::path).filter(|path| !own.iter().any(|own| own == path));
    let others: Vec<String> = others.map(|path| path.display().to_string()).collect();
    if !others.is_empty() {
        tracing::warn!(
            "Also in {}, and not loaded, since dbfilename, appendfilename and appenddirname name other files: {}",
            config.dir.display(),
            others.join(", ")
        );
    }
}

/// Loads the snapshot and makes a copy of it the base of a log; the files of the log that was there before are to be kept.
///
/// A copy, not a further name: a user who later copies another file over the snapshot's must not change the log.
fn take_over(
    shared: &Shared,
    config: &Config,
    options: &WriterOptions,
    fingerprint: Option<String>,
    log: Option<LogFacts>,
) -> Result<Loaded, LoadError> {
    let path = persistence::path(config);
    let mut file =
        File::open(&path).map_err(|error| format!("cannot read {}: {}", path.display(), describe(&error)))?;
    let loaded = loading::load_first_base(shared, config, &file, &path)?;
    let is_single = log.as_ref().is_some_and(|log| log.is_single);
    let mut manifest = log.map(|log| log.manifest).unwrap_or_default();
    manifest.set_aside();
    let base = manifest.next_base(&options.filename, BaseFormat::Rdb);
    let mut copy = || -> io::Result<()> {
        Disk.create_directory(&options.directory)?;
        let beside = format!("temp-base-{}.rdb", std::process::id());
        let mut copy = Replacement::create(&options.directory, &beside)?;
        file.rewind()?;
        let bytes = io::copy(&mut (&file).take(loaded.bytes), copy.file())?;
        if bytes != loaded.bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        copy.put_in_place(&base.name).map(drop)
    };
    copy().map_err(|error| {
        format!(
            "cannot copy {} into {}, for the append-only log to begin with: {}. Nothing was changed",
            path.display(),
            options.directory.display(),
            describe(&error)
        )
    })?;
    shared.note_loaded(loaded.keys, loaded.expired);
    tracing::info!("{} keys of {} loaded", loaded.keys, path.display());
    manifest.id = Some(LogId { origin: fingerprint, ..next_id(None)? });
    manifest.base = Some(base);
    let single = is_single.then(|| source::single_path(config));
    Ok(Loaded { manifest, holds_snapshot: true, single, place: loaded.place(), ..Loaded::default() })
}

/// Moves the file of a Redis before 7, whose place a log has taken, to where old logs are kept.
pub(super) fn keep_single(options: &WriterOptions, single: &Path, kept_in: Option<&Path>) -> io::Result<()> {
    let kept = match kept_in {
        Some(directory) => directory.to_owned(),
        None => KeptFiles::begin(&Disk, options, None)?.directory().to_owned(),
    };
    Disk.rename(single, &kept.join(single.file_name().ok_or(io::ErrorKind::InvalidInput)?))?;
    Disk.sync_directory(&kept)
}

/// Takes over the file of a Redis before 7, as Redis 7 does: it becomes the base of a new log. First there is a
/// manifest that names it: if the server ends before the file is moved, the next start goes on from there.
fn adopt_single_file(options: &WriterOptions, manifest: &Manifest) -> Result<(), String> {
    let name = || {
        Disk.create_directory(&options.directory)?;
        Disk.replace(&options.manifest_path(), &manifest.encode())
    };
    name().map_err(|error| format!("{}: {}", options.directory.display(), describe(&error)))
}

/// Renames files that look like those of a log whose manifest is gone. We cannot know which of them count, so they
/// are not loaded; but the log that begins now gives its files the same names. A copy of the snapshot of that
/// fingerprint stays: it was to become the base when a start was interrupted, and it will be replaced by the same.
fn set_aside(options: &WriterOptions, snapshot: Option<&str>) -> Result<(), String> {
    let mut names = Vec::new();
    for path in files::unlisted(&options.manifest_path(), &Manifest::default()) {
        let is_copy = || snapshot.is_some() && source::fingerprint_of(&path).as_deref() == snapshot;
        let has_bytes = source::has_bytes(&path) && !is_copy();
        let Some(name) = path.file_name().filter(|_| has_bytes).map(|name| name.to_string_lossy()) else {
            continue;
        };
        let kept = (1_u32..)
            .map(|number| path.with_file_name(format!("lost-{number}-{name}")))
            .find(|kept| !kept.exists())
            .expect("a directory has fewer files than there are numbers");
        fs::rename(&path, &kept).map_err(|error| {
            format!("cannot move {} to {}: {}", path.display(), kept.display(), describe(&error))
        })?;
        names.push(kept.display().to_string());
    }
    if !names.is_empty() {
        Disk.sync_directory(&options.directory)
            .map_err(|error| format!("{}: {}", options.directory.display(), describe(&error)))?;
        tracing::warn!(
            "{} has no manifest, so nothing of this log was loaded. Its files are kept as {}. To load them, stop the server, give them their old names, and put the manifest back; or remove them",
            options.directory.display(),
            names.join(", ")
        );
    }
    Ok(())
}

/// Moves the file of a Redis before 7 to where the manifest has it, unless that is done.
fn move_single_file(config: &Config, options: &WriterOptions, manifest: &Manifest) -> Result<(), String> {
    let single = source::single_path(config);
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
