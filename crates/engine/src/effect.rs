//! What commands change, as records of canonical commands: the log's bytes.
//!
//! ```text
//! record    = command                                   one command in database 0, as nearly all are
//!           | [SELECT n] command [SELECT 0]             in another database
//!           | [SELECT n] MULTI command… EXEC [SELECT 0] several commands that belong together
//! command   = a RESP array of bulk strings
//! ```
//!
//! A command's effect is its own words, unless its handler says otherwise ([`super::WriteContext::effect`])
//! because they would not do the same again: times become absolute, chance and conditions become what they
//! came to. What a replay would not change is not recorded at all. The forms are those that Redis 7 writes
//! to its append-only file, so that it can read ours.
//!
//! Invariants:
//! - A record starts and ends in database 0: no state crosses records.
//! - It is handed to the [`Log`] under the locks of everything it speaks of: the order of records is
//!   consistent with the locks, and a replay of any prefix is a state that the store was in.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// Where records go.
pub trait Log: fmt::Debug + Send + Sync {
    /// Appends one record; the offset behind it. `participant` is the caller's place in the gate.
    /// Called under locks: it must not wait for anything slow.
    fn append(&self, participant: usize, record: &[u8]) -> u64;
}

/// The store's connection to its log.
#[derive(Debug, Default)]
pub struct LogSwitch {
    log: Option<Arc<dyn Log>>,
    on: AtomicBool,
}

impl LogSwitch {
    /// A connection to this log that carries nothing yet.
    pub fn new(log: Arc<dyn Log>) -> Self {
        Self { log: Some(log), on: AtomicBool::new(false) }
    }

    /// Whether changes are recorded.
    #[inline]
    pub fn is_on(&self) -> bool {
        // Changes only behind the closed gate, which orders it.
        self.on.load(Ordering::Relaxed)
    }

    /// From now on changes are recorded, or are not. The caller holds the gate closed, or nobody has
    /// been let in yet: a command is recorded wholly or not at all.
    ///
    /// # Panics
    /// When there is no log to turn on.
    pub fn turn(&self, on: bool) {
        assert!(!on || self.log.is_some(), "a store that was made without a log cannot record");
        self.on.store(on, Ordering::Relaxed);
    }
}

/// The record that a worker's commands are making.
#[derive(Debug, Default)]
pub struct Effects {
    /// Whether changes are recorded.
    on: bool,
    /// The commands so far, without the frame.
    commands: Vec<u8>,
    /// How many.
    count: usize,
    /// Databases that the first one and the next one run in.
    databases: (usize, usize),
    /// The running command has said what it changes.
    told: bool,
    /// A frame with commands inside, in databases and transactions.
    framed: Vec<u8>,
    /// The offset behind the last record.
    logged_to: u64,
}

impl Effects {
    /// Whether changes are recorded: handlers need not find out what their effect is where not.
    #[inline]
    pub(crate) fn are_recorded(&self) -> bool {
        self.on
    }

    /// The offset behind the worker's last record, 0 before the first.
    pub fn logged_to(&self) -> u64 {
        self.logged_to
    }

    /// A command is about to run under its locks.
    #[inline]
    pub(crate) fn begin(&mut self, switch: &LogSwitch) {
        self.on = switch.is_on();
        self.told = false;
    }

    /// Adds a command to the record.
    pub(crate) fn add(&mut self, database: usize, words: &[&[u8]]) {
        if !self.on {
            return;
        }
        if self.count == 0 {
            self.databases = (database, database);
        } else if self.databases.1 != database {
            write_select(&mut self.commands, database);
            self.databases.1 = database;
        }
        self.count += 1;
        write_command(&mut self.commands, words);
    }

    /// Adds the removal of fields of a hash.
    pub(crate) fn add_removal(&mut self, database: usize, key: &[u8], fields: &[Vec<u8>]) {
        if self.on && !fields.is_empty() {
            let mut words: Vec<&[u8]> = vec![b"HDEL", key];
            words.extend(fields.iter().map(Vec::as_slice));
            self.add(database, &words);
        }
    }

    /// Adds a command that stands for what the running one changes.
    pub(crate) fn tell(&mut self, database: usize, words: &[&[u8]]) {
        self.told = true;
        self.add(database, words);
    }

    /// The running command's words are not to be recorded.
    pub(crate) fn silence(&mut self) {
        self.told = true;
    }

    /// The running command has ended: where it has changed something and has not said what, its words
    /// say it.
    #[inline]
    pub(crate) fn settle(&mut self, database: usize, words: &[&[u8]], changed: bool) {
        if self.on && !std::mem::take(&mut self.told) && changed {
            self.add(database, words);
        }
    }

    /// Hands the record over, if there is one. The locks are still held.
    #[inline]
    pub(crate) fn publish(&mut self, switch: &LogSwitch, participant: usize) {
        if self.count > 0 {
            self.hand_over(switch, participant);
        }
    }

    fn hand_over(&mut self, switch: &LogSwitch, participant: usize) {
        let log = switch.log.as_ref().expect("changes are recorded only where there is a log");
        let plain = self.count == 1 && self.databases == (0, 0);
        let record = if plain { &self.commands } else { self.frame() };
        self.logged_to = log.append(participant, record);
        self.count = 0;
        shrink(&mut self.commands);
        shrink(&mut self.framed);
    }

    fn frame(&mut self) -> &Vec<u8> {
        let (first, last) = self.databases;
        if first != 0 {
            write_select(&mut self.framed, first);
        }
        if self.count > 1 {
            write_command(&mut self.framed, &[b"MULTI"]);
        }
        self.framed.extend_from_slice(&self.commands);
        if self.count > 1 {
            write_command(&mut self.framed, &[b"EXEC"]);
        }
        if last != 0 {
            write_select(&mut self.framed, 0);
        }
        &self.framed
    }
}

/// The word that removes a key whose freeing is left for later, or is not.
pub(crate) fn removal_word(lazy: bool) -> &'static [u8] {
    if lazy { b"UNLINK" } else { b"DEL" }
}

/// Memory that a worker keeps for its next record.
const KEPT_BYTES_MAX: usize = 64 * 1024;

fn shrink(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.shrink_to(KEPT_BYTES_MAX);
}

/// Writes a command as a RESP array of bulk strings.
#[inline]
pub fn write_command(out: &mut Vec<u8>, words: &[&[u8]]) {
    write_head(out, b'*', words.len());
    for word in words {
        write_head(out, b'$', word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

fn write_select(out: &mut Vec<u8>, database: usize) {
    write_command(out, &[b"SELECT", itoa::Buffer::new().format(database).as_bytes()]);
}

#[inline]
fn write_head(out: &mut Vec<u8>, mark: u8, number: usize) {
    if number < 10 {
        out.extend_from_slice(&[mark, b'0' + number as u8, b'\r', b'\n']);
    } else {
        out.push(mark);
        out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}
