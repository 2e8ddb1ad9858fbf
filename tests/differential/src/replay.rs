//! Runs a stream on a server that records it, kills the server, and compares its data set with the one that
//! the same or another program loads from the log.
//!
//! ```text
//! stream ─▶ writer ─▶ data set ══ the same after DEBUG LOADAOF ══ data set ◀─ reader
//!             └───────── appendonlydir, copied after SIGKILL ─────────────────┘
//!                        [rewritten] [converted into an RDB file and back]
//! ```
//!
//! State that no reply shows is compared too: times of expiry, of keys and of fields, groups of streams with
//! their pending entries, libraries of functions. A reader that reports refused commands has failed as well.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use dunlin_test_support::connection::Connection;
use dunlin_test_support::process::{Server, is_redis};
use dunlin_test_support::resp::{self, Reply};

use crate::compare::{without_group_counts, without_own_affairs};
use crate::generate::Step;
use crate::grammar::Action;
use crate::report::command_line;
use crate::run::{Failure, Mismatch};

/// Everything that is written is durable when it is answered.
const DIRECTIVES: [&str; 6] =
    ["--appendonly", "yes", "--appendfsync", "always", "--enable-debug-command", "yes"];
const DATABASES: usize = 16;
/// Commands in one pipelined batch.
const BATCH_COMMANDS: usize = 50;
/// How long a key that lives for 1 ms is given to be gone.
const EXPIRY_WAIT: Duration = Duration::from_millis(4);

/// A writer and a reader.
pub struct Replay {
    writer: PathBuf,
    reader: PathBuf,
    directives: Vec<String>,
    /// Whether the log is rewritten before it is loaded.
    pub rewrites: bool,
    /// The version of RDB files that the data set is taken through on its way to the reader (`dunlin convert`).
    pub through: Option<u16>,
}

/// The contents of a server: by a line that names a part of it, the server's reply about that.
type DataSet = BTreeMap<String, String>;

impl Replay {
    /// Streams run on `writer`, with further directives; `reader` loads its log.
    pub fn new(writer: &Path, reader: &Path, directives: &[String]) -> Self {
        let (writer, reader) = (writer.to_owned(), reader.to_owned());
        Self { writer, reader, directives: directives.to_vec(), rewrites: false, through: None }
    }

    /// Runs a stream.
    pub fn run(&mut self, steps: &[Step]) -> Result<(), Failure> {
        let trouble = |what: &str| {
            let what = what.to_owned();
            move |error: io::Error| Failure::Trouble(format!("{what}: {error}"))
        };
        let further: Vec<&str> = self.directives.iter().map(String::as_str).collect();
        let directives = [DIRECTIVES.as_slice(), &further].concat();
        let mut server = Server::start(&self.writer, &directives).map_err(trouble("the writer"))?;
        play(&server, steps).map_err(trouble("the writer"))?;
        let written = self.data_set(&server, steps)?;
        if self.rewrites {
            rewrite(&server)?;
        }
        call(&server, &["DEBUG", "LOADAOF"])?;
        let expected = self.data_set(&server, steps)?;
        // Redis does not record how many entries a group has read; its own result from its log is right.
        if !is_redis(&self.writer) {
            self.compare(&written, &expected, "after DEBUG LOADAOF", steps)?;
        }
        self.expect_no_refusal(&server, steps)?;
        server.kill().map_err(trouble("the writer"))?;
        let files = server.folder().join("appendonlydir");
        let copy = |folder: &Path| match self.through {
            None => copy_directory(&files, &folder.join("appendonlydir")),
            Some(version) => {
                let snapshot = folder.join("converted.rdb");
                self.convert(&files, &snapshot, &["--rdb-version", &version.to_string()])?;
                self.convert(&snapshot, &folder.join("appendonlydir"), &[])
            }
        };
        let reader = Server::start_with(&self.reader, &DIRECTIVES, copy);
        let reader = reader.map_err(|error| self.mismatch("LOAD", "", &error.to_string(), steps))?;
        self.compare(&expected, &self.data_set(&reader, steps)?, "in the reader", steps)?;
        self.expect_no_refusal(&reader, steps)
    }

    fn convert(&self, from: &Path, to: &Path, options: &[&str]) -> io::Result<()> {
        let done = Command::new(&self.writer).arg("convert").args(options).args([from, to]).output()?;
        let told = || io::Error::other(String::from_utf8_lossy(&done.stderr).into_owned());
        if done.status.success() { Ok(()) } else { Err(told()) }
    }

    fn mismatch(&self, part: &str, written: &str, read: &str, steps: &[Step]) -> Failure {
        Failure::Mismatch(Box::new(Mismatch {
            at: steps.len(),
            command: part.split(' ').map(|word| word.as_bytes().to_vec()).collect(),
            ours: format!("as written: {written}"),
            oracle: format!("as read: {read}"),
        }))
    }

    fn expect_no_refusal(&self, server: &Server, steps: &[Step]) -> Result<(), Failure> {
        let log = server.log();
        // A command that has changed something before it failed does so again.
        let is_refusal =
            |line: &&str| line.contains("in the log was refused") && !line.contains("Corrupted HLL object");
        match log.lines().find(is_refusal) {
            Some(line) => Err(self.mismatch("REFUSED", "", line, steps)),
            None => Ok(()),
        }
    }

    fn compare(
        &self,
        written: &DataSet,
        read: &DataSet,
        where_read: &str,
        steps: &[Step],
    ) -> Result<(), Failure> {
        let none = String::from("nothing");
        let parts = written.keys().chain(read.keys().filter(|part| !written.contains_key(*part)));
        for part in parts {
            let (written, read) = (written.get(part).unwrap_or(&none), read.get(part).unwrap_or(&none));
            if written != read {
                return Err(self.mismatch(part, written, &format!("{where_read}: {read}"), steps));
            }
        }
        Ok(())
    }

    fn data_set(&self, server: &Server, steps: &[Step]) -> Result<DataSet, Failure> {
        let both_newer = !is_redis(&self.writer) && !is_redis(&self.reader);
        let mut connection = connect(server)?;
        let mut ask = |words: &[&[u8]]| {
            connection.call(words).map_err(|error| {
                let line = command_line(&words.iter().map(|word| word.to_vec()).collect::<Vec<_>>());
                self.mismatch(&line, "", &format!("{error}\n{}", server.log()), steps)
            })
        };
        let mut found = DataSet::new();
        for database in 0..DATABASES {
            ask(&[b"SELECT", database.to_string().as_bytes()])?;
            // This makes Redis part with expired keys.
            ask(&[b"SCAN", b"0", b"COUNT", b"1000000"])?;
            let keys = ask(&[b"KEYS", b"*"])?;
            for key in keys.elements().unwrap_or_default().iter().filter_map(Reply::bytes) {
                let value_type = ask(&[b"TYPE", key])?.show();
                let mut told = format!(
                    "expires {}, digest {}",
                    ask(&[b"PEXPIRETIME", key])?.show(),
                    ask(&[b"DEBUG", b"DIGEST-VALUE", key])?.show()
                );
                if value_type == "+stream" {
                    let stream = ask(&[b"XINFO", b"STREAM", key, b"FULL", b"COUNT", b"0"])?;
                    let stream = if both_newer { stream } else { without_group_counts(&stream) };
                    told += &format!(", {}", without_own_affairs(&stream).show());
                }
                if value_type == "+hash" && both_newer {
                    let mut fields = ask(&[b"HKEYS", key])?;
                    if let Reply::Array(_, fields) = &mut fields {
                        fields.sort();
                    }
                    let fields: Vec<&[u8]> =
                        fields.elements().unwrap_or_default().iter().filter_map(Reply::bytes).collect();
                    let count = fields.len().to_string();
                    let head: [&[u8]; 4] = [b"HPEXPIRETIME", key, b"FIELDS", count.as_bytes()];
                    told += &format!(", fields expire {}", ask(&[&head[..], &fields[..]].concat())?.show());
                }
                found.insert(format!("{value_type} {} {database}", key.escape_ascii()), told);
            }
        }
        found.insert("FUNCTIONS".to_owned(), ask(&[b"FUNCTION", b"LIST", b"WITHCODE"])?.show());
        found.insert("DIGEST".to_owned(), ask(&[b"DEBUG", b"DIGEST"])?.show());
        Ok(found)
    }
}

fn connect(server: &Server) -> Result<Connection, Failure> {
    Connection::unix(&server.socket())
        .map_err(|error| Failure::Trouble(format!("cannot connect: {error}\n{}", server.log())))
}

fn call(server: &Server, words: &[&str]) -> Result<Reply, Failure> {
    connect(server)?.call(words).map_err(|error| Failure::Trouble(format!("{words:?}: {error}")))
}

/// Rewrites the log and waits until it is written.
fn rewrite(server: &Server) -> Result<(), Failure> {
    call(server, &["BGREWRITEAOF"])?;
    let is_under_way = || {
        let info = call(server, &["INFO", "persistence"])?;
        let info = String::from_utf8_lossy(info.bytes().unwrap_or_default()).into_owned();
        Ok(info.contains("aof_rewrite_in_progress:1") || info.contains("aof_rewrite_scheduled:1"))
    };
    while is_under_way()? {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Sends the steps; the replies are another test's affair.
fn play(server: &Server, steps: &[Step]) -> io::Result<()> {
    let mut connection = Connection::unix(&server.socket())?;
    connection
        .call(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"])
        .map_err(|error| io::Error::other(error.to_string()))?;
    let mut rest = steps;
    while !rest.is_empty() {
        let ends = |step: &Step| matches!(step.action, Action::LetExpire | Action::Forget | Action::Raw);
        let length =
            rest.iter().take(BATCH_COMMANDS).position(ends).unwrap_or(rest.len().min(BATCH_COMMANDS));
        let (batch, last) = match rest.get(length).filter(|step| length < BATCH_COMMANDS && ends(step)) {
            Some(step) => (&rest[..length], Some(step)),
            None => (&rest[..length], None),
        };
        rest = &rest[length + usize::from(last.is_some())..];
        let mut commands: Vec<Vec<Vec<u8>>> = batch.iter().map(|step| step.arguments.clone()).collect();
        if let Some(step) = last.filter(|step| step.action != Action::Raw) {
            commands.push(step.arguments.clone());
            if step.action == Action::Forget {
                commands.push(vec![b"DEL".to_vec(), step.arguments.get(1).cloned().unwrap_or_default()]);
            }
        }
        let mut bytes = Vec::new();
        commands.iter().for_each(|words| resp::encode_command(words, &mut bytes));
        let (_, error) = connection.exchange(&bytes, commands.len());
        if error.is_some() {
            // A command of the stream has ended the connection.
            connection = Connection::unix(&server.socket())?;
        }
        if last.is_some_and(|step| step.action == Action::LetExpire) {
            std::thread::sleep(EXPIRY_WAIT);
        }
    }
    Ok(())
}

fn copy_directory(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}
