//! `dunlin check`: whether files of a server are whole, and which part is not.
//!
//! ```text
//! dunlin check dump.rdb                       an RDB file
//! dunlin check appendonly.aof.1.incr.aof      an append-only file, with or without an RDB file in front
//! dunlin check appendonly.aof.manifest        a log: the manifest and all its files
//! dunlin check appendonlydir                  the same
//! dunlin check /var/lib/redis                 all of these that are in the directory of a server
//! ```
//!
//! With `--fix`, a file of commands that is damaged is cut at the end of its last good command or transaction, after
//! asking. The rest is lost, so a damage in the middle is reported with its cost. A file of a log that is not its last
//! is not cut, as the next one would then follow the wrong state.
//!
//! A file that does not begin as one of ours is none, and is not cut. The cut part is kept beside the file, as
//! `NAME.cut-BYTE`, until the user removes it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io::{self, BufRead, Read, Seek};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use dunlin_engine::{
    keyspace::Keyspace,
    rdb::Value,
    value::{CollectionLimits, Layout},
};
use dunlin_persist::{
    aof::{Progress, ReadError, Reader, Roomy, Tail},
    rdb::{self, Item, ReadOptions},
};

use dunlin_server::offline::{
    BEGINS_INSIDE, ENDS_OUTSIDE, LogCommands, TORN_IN_ROOM, describe, expect_unused, expect_unwritten,
    files::{self, DataSet},
    forget_synced, is_for_replicas,
};

/// The fault of a file that no server has written.
const NOT_OURS: &str = "it begins neither as an append-only file nor as an RDB file";
/// Lines that an append-only file may begin with besides a command: a time, a check, room.
const FIRST_COMMENTS: [&[u8]; 3] = [b"#TS:", b"#CRC32C:", b"####"];
/// Bytes of a file that show how it begins.
const HEAD_BYTES: u64 = 64;
/// The number of parts cut off at one byte of a file that are kept.
const KEPT_MAX: u32 = 99;

const EXAMPLES: &str = "\
Examples:
  A snapshot, and an append-only file of any Redis or Valkey:
      dunlin check dump.rdb appendonly.aof

  A log with all its files, in the order in which they are loaded:
      dunlin check /data/appendonlydir

  Whatever a server has in its directory:
      dunlin check /var/lib/redis

  After a crash, when the server refuses the end of its log (with aof-load-truncated yes it cuts by itself):
      dunlin check --fix /data/appendonlydir

The server must not run: --fix refuses files of one that does. The end is 0 where everything is good, or was made so, and 1 where not.";

/// Verifies files of a server: RDB, append-only files, manifests.
#[derive(Debug, Parser)]
#[command(name = "dunlin check", version, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Files, manifests, directories of a log, directories of a server.
    #[arg(required = true)]
    paths: Vec<PathBuf>,
    /// Cut damaged append-only files at the end of what is good, after asking.
    #[arg(long)]
    fix: bool,
    /// Do not ask.
    #[arg(long, requires = "fix")]
    yes: bool,
}

/// The result of checking one file.
#[derive(Debug)]
struct Finding {
    path: PathBuf,
    bytes: u64,
    /// The good part, in words.
    good: String,
    damage: Option<Damage>,
}

/// A fault of a file.
#[derive(Debug)]
struct Damage {
    /// Where, in bytes.
    offset: u64,
    reason: String,
    /// The length to which the file can be cut so that it is good again.
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
        if let Err(reason) = expect_unused(path) {
            eprintln!("dunlin: {reason}");
            if arguments.fix {
                all_good = false;
                continue;
            }
        }
        match check(path) {
            Ok(findings) => {
                for finding in findings {
                    dunlin_print::say!("{finding}");
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

/// Cuts a damaged file. Returns whether it is good now.
fn fix(finding: &Finding, without_asking: bool) -> bool {
    let Some(at) = finding.damage.as_ref().and_then(|damage| damage.cut_at) else {
        dunlin_print::say!("{}: cannot be repaired by cutting", finding.path.display());
        return false;
    };
    if let Err(reason) = expect_unused(&finding.path).and_then(|()| expect_unwritten(&finding.path)) {
        eprintln!("dunlin: {reason}");
        return false;
    }
    let (path, lost) = (finding.path.display(), finding.bytes - at);
    let question =
        format!("Cut {path} at byte {at}? The {lost} bytes behind are kept in a file beside it. [y/N] ");
    if !without_asking && !ask(&question) {
        return false;
    }
    if let Err(reason) = forget_synced(&finding.path) {
        eprintln!("dunlin: {reason}");
        return false;
    }
    let cut = || {
        let kept = keep_end(&finding.path, at)?;
        let file = fs::OpenOptions::new().write(true).open(&finding.path)?;
        file.set_len(at)?;
        file.sync_all()?;
        Ok::<_, io::Error>(kept)
    };
    match cut() {
        Ok(kept) => {
            dunlin_print::say!(
                "{path}: cut at byte {at}; the {lost} bytes behind are kept in {}: remove it when it is not needed",
                kept.display()
            );
            true
        }
        Err(error) => {
            eprintln!("dunlin: cannot cut {}: {}", finding.path.display(), describe(&error));
            false
        }
    }
}

/// Copies the end of a file, from a byte on, durably into a file beside it. Returns which.
fn keep_end(path: &Path, at: u64) -> io::Result<PathBuf> {
    let mut end = fs::File::open(path)?;
    end.seek(io::SeekFrom::Start(at))?;
    let name = path.file_name().map(OsStr::to_owned).unwrap_or_default();
    for number in 1..=KEPT_MAX {
        let mut beside = name.clone();
        beside.push(format!("{}{at}", files::CUT_OFF));
        if number > 1 {
            beside.push(format!("-{number}"));
        }
        let beside = path.with_file_name(beside);
        let mut kept = match fs::OpenOptions::new().write(true).create_new(true).open(&beside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            opened => opened?,
        };
        let copied = io::copy(&mut end, &mut kept).and_then(|_| kept.sync_all()).and_then(|()| {
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            fs::File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
        });
        return match copied {
            Ok(()) => Ok(beside),
            Err(error) => {
                // Half of it is of no use, and the file itself is whole.
                let _ = fs::remove_file(&beside);
                Err(error)
            }
        };
    }
    Err(io::Error::other(format!("{KEPT_MAX} parts that were cut off there are kept beside it: remove some")))
}

fn ask(question: &str) -> bool {
    dunlin_print::text(question);
    let mut answer = String::new();
    // No input is a no.
    let read = io::stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}

/// Whether a file is whole, for the caller that has just written it: its keys where it is an RDB file, its commands
/// otherwise. `note` gets the number of bytes that have been read.
pub fn verify(path: &Path, note: &dyn Fn(u64)) -> Result<u64, String> {
    let (finding, count, _) =
        check_file(path, None, note).map_err(|error| format!("{}: {}", path.display(), describe(&error)))?;
    if finding.damage.is_some() { Err(finding.to_string()) } else { Ok(count) }
}

fn check(path: &Path) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    for found in files::find(path)? {
        match found {
            DataSet::Log(manifest) => findings.append(&mut check_log(&manifest)?),
            DataSet::File(path) => findings.push(check_part(&path, None).0),
        }
    }
    Ok(findings)
}

fn check_log(path: &Path) -> Result<Vec<Finding>, String> {
    let (manifest, bytes) = files::read_manifest(path)
        .map_err(|reason| format!("the manifest {} is damaged: {reason}", path.display()))?;
    let parts = files::parts(path, &manifest);
    let count = parts.len();
    let good = format!("a manifest of {count} file{}", if count == 1 { "" } else { "s" });
    let mut findings = vec![Finding { path: path.to_owned(), bytes, good, damage: None }];
    let mut lsn = None;
    for (behind, part) in (0..count).rev().zip(&parts) {
        let (mut finding, end) = check_part(&part.path, lsn.filter(|_| part.is_increment));
        if part.is_increment {
            // If one is damaged, the offset at which the next one begins is unknown.
            lsn = end;
        }
        if let Some(damage) = &mut finding.damage
            && behind > 0
            && damage.cut_at.take().is_some()
        {
            damage.reason += ", and cutting it would leave a hole before the log's newer files";
        }
        findings.push(finding);
    }
    for path in files::unlisted(path, &manifest) {
        let bytes = fs::metadata(&path).map_or(0, |data| data.len());
        let good = "no part of the log: its manifest does not name it".to_owned();
        findings.push(Finding { path, bytes, good, damage: None });
    }
    Ok(findings)
}

/// The finding about a file that is a part of something, also if it cannot be read; and the log's offset behind it.
fn check_part(path: &Path, lsn: Option<u64>) -> (Finding, Option<u64>) {
    check_file(path, lsn, &|_| ()).map(|(finding, _, end)| (finding, end)).unwrap_or_else(|error| {
        let reason = format!("it cannot be read: {}", describe(&error));
        let damage = Some(Damage { offset: 0, reason, cut_at: None });
        (Finding { path: path.to_owned(), bytes: 0, good: "nothing".to_owned(), damage }, None)
    })
}

/// The finding about a file; its keys, or its commands if it holds nothing else; and the log's offset behind it,
/// unless it is damaged. In front of it the log is at `lsn`, if that is known.
fn check_file(path: &Path, lsn: Option<u64>, note: &dyn Fn(u64)) -> io::Result<(Finding, u64, Option<u64>)> {
    // A device may have no end, and a pipe no writer.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut file = fs::File::open(path)?;
    let bytes = file.metadata()?.len();
    let mut head = Vec::new();
    (&mut file).take(HEAD_BYTES).read_to_end(&mut head)?;
    file.rewind()?;
    let (mut start, mut good, mut count) = (0, String::new(), 0);
    if head.starts_with(b"REDIS") || head.starts_with(b"VALKE") {
        match check_snapshot(&file, note) {
            Ok(found) => {
                (start, good, count) =
                    (found.end, format!("an RDB file of {}", found.keys_in_words()), found.keys);
            }
            Err((offset, reason)) => {
                let damage = Some(Damage { offset, reason, cut_at: None });
                let good = "nothing that could be kept".to_owned();
                return Ok((Finding { path: path.to_owned(), bytes, good, damage }, 0, None));
            }
        }
        file.seek(io::SeekFrom::Start(start))?;
    } else if files::is_named_rdb(path) {
        let damage = Some(Damage { offset: 0, reason: files::NO_RDB.to_owned(), cut_at: None });
        return Ok((Finding { path: path.to_owned(), bytes, good: "nothing".to_owned(), damage }, 0, None));
    }
    let (whole, mut damage) = check_commands(&file, start, lsn, note)?;
    if start == 0 || whole.commands > 0 || damage.is_some() {
        let joint = if good.is_empty() { "" } else { ", then " };
        let roomy = Roomy::find(&file)?;
        let room_bytes = roomy.map_or(0, |roomy| bytes - roomy.room);
        // Room is comments, to a reader.
        let unproven = match whole.unproven_bytes.saturating_sub(room_bytes) {
            0 => String::new(),
            bytes => format!(", {bytes} bytes of them without a check"),
        };
        let room = if room_bytes > 0 { format!(", then {room_bytes} bytes of room") } else { String::new() };
        match roomy {
            // Of the bytes before room, only those that a check proves are believed.
            Some(Roomy { proven, tail: Tail::Torn, .. }) => {
                damage =
                    Some(Damage { offset: proven, reason: TORN_IN_ROOM.to_owned(), cut_at: Some(proven) });
            }
            // Its last line may have been cut off.
            Some(Roomy { room, tail: Tail::Whole, .. }) => {
                damage = damage.filter(|damage| damage.offset < room)
            }
            _ => {}
        }
        let (commands, batches) = (whole.commands, whole.batches);
        good += &format!("{joint}{commands} commands in {batches} checked batches{unproven}{room}");
        count += if start == 0 { commands } else { 0 };
    }
    if start == 0 && whole.commands == 0 && damage.is_some() && !begins_as_log(&head) {
        damage = Some(Damage { offset: 0, reason: NOT_OURS.to_owned(), cut_at: None });
    }
    let end = whole.log_end(lsn).filter(|_| damage.is_none());
    Ok((Finding { path: path.to_owned(), bytes, good, damage }, count, end))
}

/// Whether a file begins as servers begin an append-only file, a crash considered: with the head of a command, a comment
/// of theirs, or nothing that was written.
fn begins_as_log(head: &[u8]) -> bool {
    match head {
        [b'*', rest @ ..] => {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let behind = &rest[digits..];
            let is_torn = digits == rest.len() || behind.iter().all(|byte| *byte == 0) || behind == b"\r";
            is_torn || (digits > 0 && (behind.starts_with(b"\r\n") || behind.starts_with(b"\r\0")))
        }
        [b'#', ..] => {
            FIRST_COMMENTS.iter().any(|comment| head.starts_with(comment) || comment.starts_with(head))
        }
        _ => head.iter().all(|byte| *byte == 0),
    }
}

/// The contents of an RDB file that is good.
#[derive(Debug, Default)]
struct Snapshot {
    keys: u64,
    /// Keys of types that Dunlin does not have, by type.
    foreign: BTreeMap<String, u64>,
    /// Libraries of functions.
    libraries: u64,
    /// Modules with data beside keys.
    modules: BTreeSet<String>,
    /// Its length in bytes.
    end: u64,
}

impl Snapshot {
    fn keys_in_words(&self) -> String {
        let mut words = format!("{} keys", self.keys);
        if !self.foreign.is_empty() {
            let counts: Vec<_> = self.foreign.iter().map(|(name, count)| format!("{name} {count}")).collect();
            words += &format!(
                ", of these {} of types that are kept and that no command here can read: {}",
                self.foreign.values().sum::<u64>(),
                counts.join(", ")
            );
        }
        match self.libraries {
            0 => {}
            1 => words += ", a library of functions",
            count => words += &format!(", {count} libraries of functions"),
        }
        if !self.modules.is_empty() {
            let names: Vec<_> = self.modules.iter().map(String::as_str).collect();
            words += &format!(", data of modules beside keys, which are passed over: {}", names.join(", "));
        }
        words
    }
}

/// The contents of an RDB file; or the place of the damage, and its kind.
fn check_snapshot(file: &fs::File, note: &dyn Fn(u64)) -> Result<Snapshot, (u64, String)> {
    let keyspace = Keyspace::new(1, 1, 1, [0; 4]);
    let limits = CollectionLimits::default();
    let layout = Layout { limits: &limits, resources: keyspace.resources() };
    let options = ReadOptions { checksum: true, known_versions: true };
    let mut reader = rdb::Reader::open(file, options).map_err(|error| (error.offset, error.to_string()))?;
    let mut found = Snapshot::default();
    while let Some(item) = reader.next(layout).map_err(|error| (error.offset, error.to_string()))? {
        match &item {
            Item::Key { value, .. } => {
                found.keys += 1;
                if let Some(name) = value.as_ref().and_then(Value::foreign_type) {
                    *found.foreign.entry(name.to_owned()).or_default() += 1;
                }
            }
            Item::Function(_) => found.libraries += 1,
            Item::ModuleAux(module) => _ = found.modules.insert(module.to_string()),
            Item::Aux { .. } => {}
        }
        note(reader.offset());
    }
    found.end = reader.offset();
    Ok(found)
}

/// How far the commands of a file are good, and the fault behind.
fn check_commands(
    file: &fs::File,
    start: u64,
    lsn: Option<u64>,
    note: &dyn Fn(u64),
) -> io::Result<(Progress, Option<Damage>)> {
    let mut reader = Reader::new(file, start).going_on_from(lsn);
    let table = LogCommands::new();
    // The progress before the transaction, in one.
    let mut transaction = None;
    let ended = loop {
        match reader.read_command() {
            Ok(Some(words)) => {
                let is = |name: &[u8]| matches!(words.as_slice(), [word] if word.eq_ignore_ascii_case(name));
                let is_select = matches!(words.as_slice(), [name, _] if name.eq_ignore_ascii_case(b"select"));
                let refused = match transaction {
                    None if is(b"multi") => {
                        transaction = Some(reader.before());
                        None
                    }
                    None if is(b"exec") => Some(ENDS_OUTSIDE.to_owned()),
                    Some(_) if is(b"multi") => Some(BEGINS_INSIDE.to_owned()),
                    Some(_) if is(b"exec") => {
                        transaction = None;
                        None
                    }
                    // Which databases there are, the configuration says.
                    _ if is_select => None,
                    _ if is_for_replicas(&words) => None,
                    _ => table.find(&words).err(),
                };
                if let Some(reason) = refused {
                    let before = reader.before();
                    let good = transaction.unwrap_or(before);
                    let damage = Damage { offset: before.offset, reason, cut_at: Some(good.offset) };
                    return Ok((good, Some(damage)));
                }
            }
            Ok(None) if transaction.is_some() => {
                break Err((ReadError::Cut, "the file ends inside a transaction".to_owned()));
            }
            Ok(None) => break Ok(()),
            Err(ReadError::Io(error)) => return Err(error),
            Err(error) => {
                let reason = error.to_string();
                break Err((error, reason));
            }
        }
        note(reader.progress().offset);
    };
    let progress = reader.progress();
    let Err((error, reason)) = ended else { return Ok((progress, None)) };
    let good = reader.good_before(&error, transaction);
    Ok((good, Some(Damage { offset: progress.offset, reason, cut_at: Some(good.offset) })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_is_told_from_other_files_by_its_beginning() {
        for head in
            ["", "*", "*3", "*3\r", "*3\r\n$3", "*3\0\0", "#TS:1\r\n", "#T", "#CRC32C:", "#####", "\0\0"]
        {
            assert!(begins_as_log(head.as_bytes()), "{head:?}");
        }
        for head in
            ["notes", "* a list", "*3 apples", "*3\n", "# a title", "#!/bin/sh", "\0\0x", "{}", "PK\x03"]
        {
            assert!(!begins_as_log(head.as_bytes()), "{head:?}");
        }
    }

    #[test]
    fn snapshot_description_has_foreign_types_and_modules() {
        let foreign =
            [("ReJSON-RL", 2), ("TopK-TYPE", 1)].map(|(name, count)| (name.to_owned(), count)).into();
        let modules = ["ft_index0".to_owned()].into();
        let found = Snapshot { keys: 9, foreign, libraries: 2, modules, end: 0 };
        assert_eq!(
            found.keys_in_words(),
            "9 keys, of these 3 of types that are kept and that no command here can read: ReJSON-RL 2, TopK-TYPE 1, 2 libraries of functions, data of modules beside keys, which are passed over: ft_index0"
        );
        let plain = Snapshot { keys: 1, libraries: 1, ..Snapshot::default() };
        assert_eq!(plain.keys_in_words(), "1 keys, a library of functions");
    }

    #[test]
    fn ends_that_are_cut_off_are_kept_beside() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("a.aof"), "0123456789").unwrap();
        assert_eq!(keep_end(&path("a.aof"), 4).unwrap(), path("a.aof.cut-4"));
        assert_eq!(keep_end(&path("a.aof"), 4).unwrap(), path("a.aof.cut-4-2"));
        assert_eq!(fs::read_to_string(path("a.aof.cut-4-2")).unwrap(), "456789");
        assert!(keep_end(&path("none.aof"), 4).is_err());
    }
}
