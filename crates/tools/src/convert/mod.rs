//! `dunlin convert`: a data set from one kind of files into another.
//!
//! ```text
//! SOURCE ─▶ loaded as at start, nothing forgiven ─▶ written beside DEST ─▶ checked ─▶ put in the place of DEST
//! ```
//!
//! The data set is in memory meanwhile: a conversion needs as much as a server that holds it. Nothing expires on the way:
//! a key that has expired is written with its time, for the server that loads it to judge.
//!
//! Invariant: until all of DEST is written and checked, the former files are as they were.

mod bar;

use std::{
    ffi::OsString,
    fmt, fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use clap::{Parser, ValueEnum};
use dunlin_engine::{
    ExclusiveContext,
    rdb::{Version, unfit},
    snapshot::Form,
};
use dunlin_persist::{
    Disk, Replacement, Storage, aof::WriterOptions, directory_and_name, manifest::BaseFormat,
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
    low_level::emulate_default_handler,
};

use dunlin_server::offline::{
    self, Store, describe, expect_unused, expect_unwritten,
    files::{self, DataSet, Part},
    replace_log,
};

use self::bar::watched;
use crate::check;

const EXAMPLES: &str = "\
Examples:
  The snapshot of any Redis, KeyDB or Valkey as a log, for a server with appendonly yes:
      dunlin convert dump.rdb /data/appendonlydir

  A log as one snapshot, to keep or to load elsewhere:
      dunlin convert /data/appendonlydir backup.rdb

  Back to Redis 6.2 or older, as a snapshot or as the one append-only file that it reads:
      dunlin convert --rdb-version 9 /data/appendonlydir dump.rdb
      dunlin convert --rdb-version 9 dump.rdb appendonly.aof

  The old append-only file of a Redis before 7.0 as a log:
      dunlin convert appendonly.aof /data/appendonlydir

Neither may be in use by a running server. What SOURCE may be: an RDB file (Redis 2.4 to 8, KeyDB, Valkey), an append-only file with or without an RDB file in
front, a manifest, a directory with one, or a server's directory that holds just one of these. It is read to its end and
every checksum is verified; what is damaged or cut is refused with its place, and 'dunlin check' says what can be done.

Versions of RDB files and who loads them:
   9  Redis 5.0 to 6.2, and everything newer; no functions, no fields that expire
  10  Redis 7.0 and newer, Valkey; no fields that expire
  11  Redis 7.2 and newer, Valkey; no fields that expire
  12  Redis 7.4 and newer, Dunlin
  13  Redis 8.6 and newer, Dunlin; with the producers of streams
  14  Redis 8.8 and newer, Dunlin; with arrays and with deliveries that XNACK has released
  15  Redis 8.10 and newer, Dunlin
  80  Valkey 9 and newer, Dunlin
Without --rdb-version it is 10, or 80 where fields of hashes expire. What a version cannot hold is refused with the key
that has it. Version 9 has no place for what Redis 7.0 counts of streams (entries added and read): that alone is left
out. Where --commands or an append-only file is written, the version says whose commands it is made of.";

/// Writes a data set as files of another kind: RDB, append-only file, log; also for older servers.
#[derive(Debug, Parser)]
#[command(name = "dunlin convert", version, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The files to read.
    source: PathBuf,
    /// The file or directory to write.
    #[arg(value_name = "DEST")]
    destination: PathBuf,
    /// The format to write [default: by the name of DEST: .rdb, .aof, or else a directory].
    #[arg(long, value_enum)]
    to: Option<Target>,
    /// The version of RDB files to write, for the servers that are to load it: 9 to 15, or 80.
    #[arg(long, value_name = "VERSION", value_parser = parse_version)]
    rdb_version: Option<Version>,
    /// Begin the log with commands instead of an RDB file (aof-use-rdb-preamble no).
    #[arg(long)]
    commands: bool,
    /// The name of a log's files (appendfilename).
    #[arg(long, value_name = "NAME", default_value = "appendonly.aof")]
    appendfilename: String,
    /// How many databases SOURCE may have.
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=65536))]
    databases: u32,
    /// Leave long strings of RDB files as they are (rdbcompression no).
    #[arg(long)]
    no_compression: bool,
    /// Take the place of what is at DEST.
    #[arg(long)]
    force: bool,
    /// Say nothing but errors.
    #[arg(long)]
    quiet: bool,
}

/// The kind of files to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Target {
    /// A snapshot.
    Rdb,
    /// One append-only file of commands, as Redis before 7.0 has it.
    AofFile,
    /// A log: a directory with a manifest.
    AofDir,
}

fn parse_version(text: &str) -> Result<Version, String> {
    let version = text.parse().ok().and_then(Version::writable);
    version.ok_or_else(|| "versions that can be written are 9 to 15, and 80".to_owned())
}

/// `dunlin convert …`: 0 where DEST was written. `words` are those behind `convert`.
pub fn main(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let words = std::iter::once(OsString::from("dunlin convert")).chain(words);
    let arguments = Arguments::parse_from(words);
    // Warnings of loading, as of commands that were refused.
    offline::install_warnings();
    match convert(&arguments) {
        Ok(done) => {
            if !arguments.quiet {
                dunlin_print::say!("{done}");
            }
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("dunlin: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// The result of a conversion.
#[derive(Debug)]
struct Done {
    destination: PathBuf,
    keys: u64,
    libraries: usize,
    bytes: u64,
    form: String,
}

impl fmt::Display for Done {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { destination, keys, libraries, bytes, form } = self;
        let plural = |count: u64| if count == 1 { "" } else { "s" };
        write!(out, "{}: {keys} key{}", destination.display(), plural(*keys))?;
        if *libraries > 0 {
            write!(out, ", {libraries} librar{} of functions", if *libraries == 1 { "y" } else { "ies" })?;
        }
        write!(out, ", {bytes} bytes, {form}, checked")
    }
}

fn convert(arguments: &Arguments) -> Result<Done, String> {
    let target = target(arguments);
    let form = Form {
        commands: target == Target::AofFile || target == Target::AofDir && arguments.commands,
        version: arguments.rdb_version,
        compress: !arguments.no_compression,
    };
    if target == Target::AofDir && form.version.is_some_and(|version| !version.has_listpacks()) {
        return Err(
            "servers that load no newer RDB files than version 9 have one append-only file, no directory of them: \
             give DEST a name that ends in .aof"
                .to_owned(),
        );
    }
    for path in [&arguments.source, &arguments.destination] {
        expect_unused(path)?;
    }
    let sources = sources(&arguments.source)?;
    sources.iter().try_for_each(|part| expect_unwritten(&part.path))?;
    expect_room(arguments, target)?;
    let data = load(arguments, &sources)?;
    data.with(|context| {
        expect_fit(&data, context, form.version)?;
        write(arguments, target, form, &data, context)
    })
}

fn target(arguments: &Arguments) -> Target {
    arguments.to.unwrap_or_else(|| match arguments.destination.extension() {
        _ if arguments.destination.is_dir() => Target::AofDir,
        Some(extension) if extension == "rdb" => Target::Rdb,
        Some(extension) if extension == "aof" => Target::AofFile,
        _ => Target::AofDir,
    })
}

/// The files of the one data set at a path, in the order in which they are loaded.
fn sources(path: &Path) -> Result<Vec<Part>, String> {
    let named = |reason: String| format!("{}: {reason}", path.display());
    let found = files::find(path).map_err(named)?;
    match found.as_slice() {
        [DataSet::File(file)] => Ok(vec![Part::alone(file.clone())]),
        [DataSet::Log(manifest)] => {
            let (read, _) = files::read_manifest(manifest)
                .map_err(|reason| format!("the manifest {}: {reason}", manifest.display()))?;
            Ok(files::parts(manifest, &read))
        }
        several => {
            let names: Vec<_> = several.iter().map(|set| set.path().display().to_string()).collect();
            Err(named(format!("there are several data sets in it, name one: {}", names.join(", "))))
        }
    }
}

/// Refuses to take the place of a file that no flag says is to go.
fn expect_room(arguments: &Arguments, target: Target) -> Result<(), String> {
    let path = &arguments.destination;
    let taken = |what: &str| Err(format!("{} {what}: --force replaces it", path.display()));
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!("{}: {}", path.display(), describe(&error))),
        Ok(_) if target != Target::AofDir && path.is_dir() => {
            Err(format!("{} is a directory: name a file in it", path.display()))
        }
        Ok(_) if target == Target::AofDir && !path.is_dir() => Err(format!(
            "{} is no directory; for a file, give DEST a name that ends in .rdb or .aof, or say --to",
            path.display()
        )),
        // The rename would put a file in the place of the device or the pipe.
        Ok(_) if fs::metadata(path).is_ok_and(|data| !data.is_file() && !data.is_dir()) => {
            Err(format!("{} is neither a file nor a directory: name one", path.display()))
        }
        Ok(_) if arguments.force => Ok(()),
        Ok(_) if target == Target::AofDir => match files::find(path) {
            Ok(_) => taken("holds a data set"),
            Err(_) => Ok(()),
        },
        Ok(_) => taken("is there"),
    }
}

/// Loads some files.
fn load(arguments: &Arguments, sources: &[Part]) -> Result<Store, String> {
    let data = Store::new(arguments.databases)?;
    watched("loading", arguments.quiet, || data.progress(), || data.load(sources))?;
    Ok(data)
}

/// Refuses values that a version has no form for.
fn expect_fit(data: &Store, context: &ExclusiveContext<'_>, version: Option<Version>) -> Result<(), String> {
    let Some(version) = version else { return Ok(()) };
    let libraries = data.libraries();
    let number = version.number();
    if libraries > 0 && !version.has_listpacks() {
        return Err(format!(
            "the data set has libraries of functions ({libraries}), which servers that load no newer RDB files than \
             version {number} do not know: delete them (FUNCTION FLUSH), or write version 10 or newer"
        ));
    }
    let (mut first, mut others) = (None, 0_u64);
    for database in 0..context.databases() {
        let visited: Result<(), std::convert::Infallible> = context.try_for_each(database, |entry| {
            if let Some(reason) = unfit(entry, version) {
                match first {
                    None => first = Some((database, entry.key().escape_ascii().to_string(), reason)),
                    Some(_) => others += 1,
                }
            }
            Ok(())
        });
        let Ok(()) = visited;
    }
    let Some((database, key, reason)) = first else { return Ok(()) };
    let more = if others > 0 { format!(" (and {others} more keys)") } else { String::new() };
    Err(format!("key \"{key}\" in database {database}{more} has no form in version {number}: {reason}"))
}

/// Makes a signal that ends the process (Ctrl-C) first remove half-written files.
fn remove_when_interrupted(path: PathBuf) -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let remove = move || {
        for signal in signals.forever() {
            // If it was put in place, or was not begun, there is nothing of that name.
            let _ = fs::remove_file(&path);
            let _ = emulate_default_handler(signal);
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(remove).map(drop)
}

/// Writes the data set, checks the files, and puts them in place.
fn write(
    arguments: &Arguments,
    target: Target,
    form: Form,
    data: &Store,
    context: &ExclusiveContext<'_>,
) -> Result<Done, String> {
    let destination = &arguments.destination;
    let failed = |error: io::Error| format!("cannot write {}: {}", destination.display(), describe(&error));
    let log = (target == Target::AofDir).then(|| WriterOptions {
        directory: destination.clone(),
        filename: arguments.appendfilename.clone(),
        retained_bytes_max: 0,
    });
    if log.is_some() {
        Disk.create_directory(destination).map_err(failed)?;
    }
    let (directory, name) = match &log {
        Some(log) => (log.directory.as_path(), None),
        None => directory_and_name(destination)
            .map(|(directory, name)| (directory, Some(name)))
            .map_err(failed)?,
    };
    let beside = format!("temp-convert-{}", std::process::id());
    remove_when_interrupted(directory.join(&beside)).map_err(failed)?;
    let mut replacement = Replacement::create(directory, &beside).map_err(failed)?;
    let keys: u64 = (0..context.databases()).map(|database| context.usage(database).keys as u64).sum();
    let written = AtomicU64::new(0);
    let progress = || (written.load(Relaxed), keys);
    watched("writing", arguments.quiet, progress, || {
        let note = |keys| {
            written.fetch_add(keys, Relaxed);
        };
        data.write(context, form, log.is_some(), replacement.file(), note)?;
        replacement.sync()
    })
    .map_err(failed)?;
    // Without those that were to go before 1970.
    let keys = written.into_inner();
    let path = directory.join(&beside);
    let bytes = fs::metadata(&path).map_err(failed)?.len();
    let read = AtomicU64::new(0);
    let progress = || (read.load(Relaxed), bytes);
    let checked = watched("checking", arguments.quiet, progress, || {
        check::verify(&path, &|offset| read.store(offset, Relaxed))
    })?;
    if !form.commands && checked != keys {
        return Err(format!("{} was to hold {keys} keys and holds {checked}", destination.display()));
    }
    if target != Target::Rdb {
        offline::forget_synced(destination)?;
    }
    match (&log, name) {
        (Some(log), _) => {
            // Any fault of a manifest that may be there is passed over: it is to go.
            let manifest = files::read_manifest(&log.manifest_path()).map(|(manifest, _)| manifest);
            let format = if form.commands { BaseFormat::Commands } else { BaseFormat::Rdb };
            replace_log(log, manifest.unwrap_or_default(), replacement, format).map_err(failed)?;
        }
        (None, Some(name)) => drop(replacement.put_in_place(name).map_err(failed)?),
        (None, None) => unreachable!("a file has a name"),
    }
    let form = match (form.commands, form.version) {
        (true, _) => "commands".to_owned(),
        (false, Some(version)) => format!("RDB version {}", version.number()),
        (false, None) => "RDB".to_owned(),
    };
    let libraries = data.libraries();
    Ok(Done { destination: destination.clone(), keys, libraries, bytes, form })
}
