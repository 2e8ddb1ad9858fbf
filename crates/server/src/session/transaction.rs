//! The commands since `MULTI` and the keys since `WATCH`.
//!
//! ```text
//! bytes      SETkey1GETkey…            all words of all commands, one behind the other
//! words      3 6 7 10 13 …             where each ends
//! commands   {SET, 3 words, 1 key} …
//! ```
//!
//! The needs of `EXEC` (locks, whether memory may run short) gather as commands are queued.

use std::sync::Arc;

use dunlin_engine::{
    Footprint, LongWord, LongWords, Request,
    command::{CommandTable, Entry, Flags},
    keyspace::{Keyspace, Watcher},
};
use dunlin_resp::number::parse_integer;

use crate::admission::{Effects, Slots};

/// Memory of a queue that is kept for the next transaction of any client of the worker.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Memory of a watched key beside its name, which stands in two places: the client's list and the stripe's table.
pub(crate) const WATCH_BYTES: usize = 160;

/// A queued command: the ends of its words and keys, and its place in the command table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queued {
    pub(crate) words_end: usize,
    pub(crate) keys_end: usize,
    pub(crate) entry: usize,
}

/// Bytes of arguments of commands that may need memory, and the database that they fill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) database: usize,
    pub(crate) bytes: usize,
}

/// The commands since `MULTI`.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) bytes: Vec<u8>,
    pub(crate) words: Vec<usize>,
    /// Long words, each with its place among the words: they are shared, not copied.
    pub(crate) long_words: Vec<(usize, Arc<LongWord>)>,
    /// Hashes, stripes and slots of the keys.
    pub(crate) keys: Vec<(u64, usize, u16)>,
    pub(crate) commands: Vec<Queued>,
    pub(crate) footprint: Footprint,
    /// The slots of all keys and channels, on a node of a cluster.
    pub(crate) slots: Slots,
    /// A command was refused: `EXEC` will run none.
    pub(crate) aborted: bool,
    /// The version of the topology at `MULTI`.
    pub(crate) topology_version: u64,
    /// The node to which all refused commands were sent, if the topology has changed since `MULTI`: `EXEC` is sent
    /// there, too.
    pub(crate) redirection: Option<Box<[u8]>>,
    /// The database of the commands that come: that of the client, unless one of the commands selects another.
    pub(crate) database: Option<usize>,
    /// The effects of the commands, those of scripts aside.
    pub(crate) effects: Effects,
    /// Whether a command runs a script.
    pub(crate) has_scripts: bool,
    /// Bytes that databases with a limit are given.
    pub(crate) given: Vec<Given>,
    /// Whether a command replaces databases as a whole.
    pub(crate) is_exclusive: bool,
}

impl Queue {
    /// How many commands there are.
    pub(crate) fn len(&self) -> usize {
        self.commands.len()
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        let long: usize = self.long_words.iter().map(|(_, word)| word.len()).sum();
        self.bytes.len()
            + long
            + size_of_val(&self.words[..])
            + size_of_val(&self.keys[..])
            + size_of_val(&self.commands[..])
    }

    /// Adds a command, which has some of these long words.
    pub(crate) fn push(&mut self, keyspace: &Keyspace, request: &Request<'_>, long_words: &LongWords) {
        let command = request.entry.command;
        for word in request.words {
            match long_words.find(word) {
                Some(long) => self.long_words.push((self.words.len(), Arc::clone(long))),
                None => self.bytes.extend_from_slice(word),
            }
            self.words.push(self.bytes.len());
        }
        self.keys.extend(request.keys.iter().map(|key| (key.hash, key.stripe, key.slot)));
        self.commands.push(Queued {
            words_end: self.words.len(),
            keys_end: self.keys.len(),
            entry: request.entry.index,
        });
        self.footprint.add(keyspace, request);
        self.effects = self.effects.and(Effects::of(command));
        self.has_scripts |= command.flags.has(Flags::RUNS_SCRIPT);
        self.is_exclusive |= command.is_exclusive();
        if command.name == "select" {
            let chosen = request.words.get(1).and_then(|index| parse_integer(index));
            let chosen = chosen.and_then(|index| usize::try_from(index).ok());
            // Any other one is refused when its turn comes.
            self.database = chosen.filter(|index| *index < keyspace.databases()).or(self.database);
        }
    }

    /// Notes that a command which may need memory gives `bytes` to a database.
    pub(crate) fn give(&mut self, database: usize, bytes: usize) {
        match self.given.iter_mut().find(|given| given.database == database) {
            Some(given) => given.bytes += bytes,
            None => self.given.push(Given { database, bytes }),
        }
    }

    /// The entries and the words of the commands.
    pub(crate) fn requests<'q>(
        &'q self,
        table: &'q CommandTable,
    ) -> impl Iterator<Item = (&'q Entry, Vec<&'q [u8]>)> {
        let mut start = 0;
        let mut words: Vec<&[u8]> =
            self.words.iter().map(|end| &self.bytes[std::mem::replace(&mut start, *end)..*end]).collect();
        self.long_words.iter().for_each(|(at, word)| words[*at] = word.bytes());
        let mut start = 0;
        self.commands.iter().map(move |queued| {
            let own = words[std::mem::replace(&mut start, queued.words_end)..queued.words_end].to_vec();
            (&table.entries()[queued.entry], own)
        })
    }

    /// Empties it, keeping memory that is worth keeping.
    pub(crate) fn recycle(mut self: Box<Self>) -> Option<Box<Self>> {
        if self.bytes.capacity() > KEPT_BYTES_MAX || self.words.capacity() > KEPT_BYTES_MAX / 8 {
            return None;
        }
        debug_assert!(self.long_words.is_empty(), "they are taken out first");
        self.bytes.clear();
        self.words.clear();
        self.keys.clear();
        self.commands.clear();
        self.footprint = Footprint::default();
        self.slots = Slots::None;
        (self.aborted, self.has_scripts, self.is_exclusive) = (false, false, false);
        (self.database, self.effects) = (None, Effects::NONE);
        self.given.clear();
        self.redirection = None;
        Some(self)
    }
}

/// The keys that a client watches.
#[derive(Debug)]
pub(crate) struct Watching {
    pub(crate) watcher: Watcher,
    /// The keys, with their databases.
    pub(crate) keys: Vec<(usize, Box<[u8]>)>,
}
