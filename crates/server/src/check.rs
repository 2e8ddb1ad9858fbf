//! `dunlin check`: whether files of a server are whole, and where not.
//!
//! ```text
//! dunlin check dump.rdb                       an RDB file
//! dunlin check appendonly.aof.1.incr.aof      an append-only file, with or without an RDB file in front
//! dunlin check appendonly.aof.manifest        a log: the manifest and all its files
//! dunlin check appendonlydir                  the same
//! ```
//!
//! With `--fix`, a file of commands that is damaged is cut at the end of its last good command or
//! transaction, after asking. What is behind is lost, so a damage in the middle is told with what it costs.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{self, BufRead, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use dunlin_engine::{
    keyspace::Keyspace,
    value::{CollectionLimits, Layout},
};
use dunlin_persist::{
    aof::{Progress, ReadError, Reader},
    manifest::{MANIFEST_BYTES_MAX, Manifest},
    rdb::{self, Item, ReadOptions},
};

use crate::config::describe;

/// Verifies files of a server: RDB, append-only files, manifests.
#[derive(Debug, Parser)]
#[command(name = "dunlin check")]
struct Arguments {
    /// Files, manifests, or directories that hold one.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Cut damaged append-only files at the end of what is good, after asking.
    #[arg(long)]
    fix: bool,
    /// Do not ask.
    #[arg(long, requires = "fix")]
    yes: bool,
}

/// What was found in one file.
#[derive(Debug)]
struct Finding {
    path: PathBuf,
    bytes: u64,
    /// What is good, in words.
    good: String,
    damage: Option<Damage>,
}

/// What is wrong with a file.
#[derive(Debug)]
struct Damage {
    /// Where, in bytes.
    offset: u64,
    reason: String,
    /// Where the file can be cut so that it is good again.
    cut_at: Option<u64>,
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.damage {
            None => write!(out, "{path}: good: {}", self.good),
            Some(damage) => {
                write!(
                    out,
                    "{path}: damaged at byte {} of {}: {}",
                    damage.offset, self.bytes, damage.reason
                )?;
                write!(out, "; good before: {}", self.good)?;
                match damage.cut_at {
                    Some(at) => write!(out, "; cutting it at byte {at} loses {} bytes", self.bytes - at),
                    None => Ok(()),
                }
            }
        }
    }
}

/// `dunlin check …`: 0 where everything is good, 1 where not. `words` are those behind `check`.
pub fn main(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let words = std::iter::once(OsString::from("dunlin check")).chain(words);
    let arguments = Arguments::parse_from(words);
    let mut all_good = true;
    for path in &arguments.paths {
        match check(path) {
            Ok(findings) => {
                for finding in findings {
                    println!("{finding}");
                    if finding.damage.is_some() {
                        all_good &= arguments.fix && fix(&finding, arguments.yes);
                    }
                }
            }
            Err(reason) => {
                eprintln!("dunlin: {}: {reason}", path.display());
                all_good = false;
            }
        }
    }
    if all_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Cuts a damaged file; whether it is good now.
fn fix(finding: &Finding, without_asking: bool) -> bool {
    let Some(at) = finding.damage.as_ref().and_then(|damage| damage.cut_at) else {
        println!("{}: cannot be repaired by cutting", finding.path.display());
        return false;
    };
    if !without_asking && !ask(&format!("Cut {} at byte {at}? [y/N] ", finding.path.display())) {
        return false;
    }
    let cut = || {
        let file = fs::OpenOptions::new().write(true).open(&finding.path)?;
        file.set_len(at)?;
        file.sync_all()
    };
    match cut() {
        Ok(()) => {
            println!("{}: cut at byte {at}", finding.path.display());
            true
        }
        Err(error) => {
            eprintln!("dunlin: cannot cut {}: {}", finding.path.display(), describe(&error));
            false
        }
    }
}

fn ask(question: &str) -> bool {
    print!("{question}");
    let mut answer = String::new();
    // Nobody there to answer is a no.
    let read = io::stdout().flush().and_then(|()| io::stdin().lock().read_line(&mut answer));
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

fn check(path: &Path) -> Result<Vec<Finding>, String> {
    let data = fs::metadata(path).map_err(|error| describe(&error))?;
    if data.is_dir() {
        return check_log(&manifest_in(path)?);
    }
    if path.extension().is_some_and(|extension| extension == "manifest") {
        return check_log(path);
    }
    Ok(vec![check_file(path).map_err(|error| describe(&error))?])
}

/// The one manifest of a directory. One that was being written when its server was killed has another name yet,
/// and means nothing.
fn manifest_in(directory: &Path) -> Result<PathBuf, String> {
    let entries = fs::read_dir(directory).map_err(|error| describe(&error))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut manifests = paths.filter(|path| {
        let is_unfinished =
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"temp-"));
        !is_unfinished && path.extension().is_some_and(|extension| extension == "manifest")
    });
    match (manifests.next(), manifests.next()) {
        (Some(manifest), None) => Ok(manifest),
        (None, _) => Err("there is no manifest in it; name a file".to_owned()),
        (Some(_), Some(_)) => Err("there are several manifests in it; name one".to_owned()),
    }
}

fn check_log(path: &Path) -> Result<Vec<Finding>, String> {
    let file = fs::File::open(path).map_err(|error| describe(&error))?;
    let mut bytes = Vec::new();
    file.take(MANIFEST_BYTES_MAX).read_to_end(&mut bytes).map_err(|error| describe(&error))?;
    let manifest = Manifest::parse(&bytes).map_err(|error| error.to_string())?;
    let good = format!("a manifest of {} files", manifest.files().count());
    let own = Finding { path: path.to_owned(), bytes: bytes.len() as u64, good, damage: None };
    let mut findings = vec![own];
    for file in manifest.files() {
        let path = path.with_file_name(&file.name);
        findings.push(check_file(&path).map_err(|error| format!("{}: {}", file.name, describe(&error)))?);
    }
    Ok(findings)
}

fn check_file(path: &Path) -> io::Result<Finding> {
    let mut file = fs::File::open(path)?;
    let bytes = file.metadata()?.len();
    let mut magic = Vec::new();
    (&mut file).take(5).read_to_end(&mut magic)?;
    file.rewind()?;
    let (mut start, mut good) = (0, String::new());
    if matches!(magic.as_slice(), b"REDIS" | b"VALKE") {
        match check_snapshot(&file) {
            Ok((keys, end)) => (start, good) = (end, format!("an RDB file of {keys} keys")),
            Err((offset, reason)) => {
                let damage = Some(Damage { offset, reason, cut_at: None });
                return Ok(Finding {
                    path: path.to_owned(),
                    bytes,
                    good: "nothing that could be kept".to_owned(),
                    damage,
                });
            }
        }
        file.seek(io::SeekFrom::Start(start))?;
    }
    let (whole, progress, damage) = check_commands(&file, start)?;
    if start == 0 || progress.commands > 0 || damage.is_some() {
        let joint = if good.is_empty() { "" } else { ", then " };
        let unproven = match progress.unproven_bytes {
            0 => String::new(),
            bytes => format!(", {bytes} bytes of them without a check"),
        };
        let (commands, batches) = (whole.commands, progress.batches);
        good += &format!("{joint}{commands} commands in {batches} checked batches{unproven}");
    }
    Ok(Finding { path: path.to_owned(), bytes, good, damage })
}

/// Keys of an RDB file, and where it ends; or where it is damaged, and how.
fn check_snapshot(file: &fs::File) -> Result<(u64, u64), (u64, String)> {
    let keyspace = Keyspace::new(1, 1, 1, [0; 4]);
    let limits = CollectionLimits::default();
    let layout = Layout { limits: &limits, resources: keyspace.resources() };
    let options = ReadOptions { checksum: true, known_versions: true };
    let mut reader = rdb::Reader::open(file, options).map_err(|error| (error.offset, error.to_string()))?;
    let mut keys = 0;
    while let Some(item) = reader.next(layout).map_err(|error| (error.offset, error.to_string()))? {
        keys += u64::from(matches!(item, Item::Key { .. }));
    }
    Ok((keys, reader.offset()))
}

/// How far the commands of a file are whole, how far they are good, and what is wrong behind.
fn check_commands(file: &fs::File, start: u64) -> io::Result<(Progress, Progress, Option<Damage>)> {
    let mut reader = Reader::new(file, start);
    let mut whole = reader.progress();
    let mut in_transaction = false;
    let error = loop {
        match reader.read_command() {
            Ok(Some(words)) => {
                let is = |name: &[u8]| matches!(words.as_slice(), [word] if word.eq_ignore_ascii_case(name));
                let (begins, ends) = (is(b"multi"), is(b"exec"));
                in_transaction = begins || in_transaction && !ends;
            }
            Ok(None) if in_transaction => break Some("the file ends inside a transaction".to_owned()),
            Ok(None) => break None,
            Err(ReadError::Io(error)) => return Err(error),
            Err(error) => break Some(error.to_string()),
        }
        if !in_transaction {
            whole = reader.progress();
        }
    };
    let progress = reader.progress();
    let damage = error.map(|reason| Damage { offset: progress.offset, reason, cut_at: Some(whole.offset) });
    Ok((whole, progress, damage))
}
