//! The parts of the log that a reply may have seen, by the keys that its command has looked at.
//!
//! ```text
//! worker, under its locks:  append a record ─▶ its end becomes the mark of each key in it
//! worker, behind a command: the greatest mark of its keys ─▶ its reply waits for that much of the log
//! ```
//!
//! A server that withholds replies keeps marks; any other pays one load a record. Keys share marks by their hashes, so a
//! reply may wait for a little more than it has seen, and never for less.
//!
//! Invariants:
//! - A mark only grows. A command that finds a key's value under its lock finds the mark of the record that made it.
//! - A record of which some keys are unknown (FLUSHALL, SWAPDB, FUNCTION LOAD) marks everything.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc, OnceLock,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
};

use dunlin_engine::{
    Log,
    command::{CommandTable, Entry},
};
use dunlin_persist::Ring;
use dunlin_resp::SharedSlice;

/// Marks for keys, a power of two: 512 KiB, from the moment that replies are withheld.
const MARKS: usize = 1 << 16;
/// Longest key and longest name of a command that are looked at; a record with longer ones marks everything.
const WORD_BYTES_MAX: usize = 1 << 20;
/// Words of a command at most, likewise.
const WORDS_MAX: usize = 1 << 16;
/// Commands of records that change no data.
const WITHOUT_DATA: [&[u8]; 7] =
    [b"select", b"multi", b"exec", b"ping", b"publish", b"spublish", b"replconf"];

/// The marks.
#[derive(Default)]
pub(crate) struct SeenMarks {
    /// Whether records are marked from now on.
    is_on: AtomicBool,
    /// Whether all records since are marked, and those before stand for everything.
    is_ready: AtomicBool,
    /// Whether a client has a durability of its own, or had one.
    is_wanted: AtomicBool,
    /// The mark of everything.
    everything: AtomicU64,
    by_key: OnceLock<Box<[AtomicU64]>>,
    hasher: RandomState,
}

impl fmt::Debug for SeenMarks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SeenMarks").field("is_ready", &self.is_ready).finish_non_exhaustive()
    }
}

impl SeenMarks {
    /// Whether marks can be asked for.
    #[inline]
    pub(crate) fn are_kept(&self) -> bool {
        self.is_ready.load(SeqCst)
    }

    /// Keeps marks from now on. `tail` is the log's end, which is read after the change.
    pub(crate) fn keep(&self, tail: impl Fn() -> u64) {
        if self.are_kept() {
            return;
        }
        self.marks();
        self.is_on.store(true, SeqCst);
        // A worker that does not see the flag has reserved its record's place before, which the tail includes.
        self.everything.fetch_max(tail(), SeqCst);
        self.is_ready.store(true, SeqCst);
    }

    /// Whether a client's own choice asks for marks.
    pub(crate) fn are_wanted(&self) -> bool {
        self.is_wanted.load(Relaxed)
    }

    /// Notes that a client's own choice asks for marks.
    pub(crate) fn want(&self) {
        self.is_wanted.store(true, Relaxed);
    }

    /// Marks all keys: the data set is another one.
    pub(crate) fn mark_everything(&self, end: u64) {
        self.everything.fetch_max(end, SeqCst);
    }

    /// Keeps no marks from now on.
    pub(crate) fn give_up(&self) {
        if self.are_kept() {
            self.is_ready.store(false, SeqCst);
            self.is_on.store(false, SeqCst);
        }
    }

    fn marks(&self) -> &[AtomicU64] {
        self.by_key.get_or_init(|| (0..MARKS).map(|_| AtomicU64::new(0)).collect())
    }

    fn mark_of(&self, key: &[u8]) -> &AtomicU64 {
        &self.marks()[self.hasher.hash_one(key) as usize % MARKS]
    }

    /// How much of the log a command has seen at most that has looked at these keys and nothing else.
    pub(crate) fn seen<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) -> u64 {
        if !self.are_kept() {
            return u64::MAX;
        }
        let everything = self.everything.load(SeqCst);
        keys.into_iter().map(|key| self.mark_of(key).load(SeqCst)).fold(everything, u64::max)
    }

    /// Notes a record that ends there. The caller holds the locks of its keys.
    fn note(&self, commands: &CommandTable, parts: &[&[u8]], end: u64) {
        let mut words = Vec::new();
        let mut record = Parts { parts, at: 0 };
        while !record.is_empty() {
            let is_known =
                record.read_command(&mut words).is_some() && self.note_command(commands, &words, end);
            if !is_known {
                self.everything.fetch_max(end, SeqCst);
                return;
            }
        }
    }

    /// Marks the keys of a command; `false`: they are not known.
    fn note_command(&self, commands: &CommandTable, words: &[Option<&[u8]>], end: u64) -> bool {
        let Some(Some(name)) = words.first() else { return false };
        // Words that stand elsewhere are values; a key that does is noticed below.
        let known: Vec<&[u8]> = words.iter().map(|word| word.unwrap_or_default()).collect();
        let Some(entry) = commands.find_row(name) else { return false };
        let entry = commands.resolve(entry, &known);
        let mut has_keys = false;
        for position in key_positions(entry, &known) {
            let Some(Some(key)) = words.get(position) else { return false };
            self.mark_of(key).fetch_max(end, SeqCst);
            has_keys = true;
        }
        has_keys || WITHOUT_DATA.iter().any(|other| name.eq_ignore_ascii_case(other))
    }
}

/// The positions of a command's keys among its words.
pub(crate) fn key_positions<'w>(entry: &'w Entry, words: &'w [&[u8]]) -> impl Iterator<Item = usize> + 'w {
    entry.command.keys.iter().flat_map(|spec| spec.positions(words))
}

/// A record in parts, read from its front.
struct Parts<'p> {
    parts: &'p [&'p [u8]],
    at: usize,
}

impl<'p> Parts<'p> {
    /// Whether nothing is left.
    fn is_empty(&mut self) -> bool {
        while self.parts.first().is_some_and(|part| self.at == part.len()) {
            (self.parts, self.at) = (&self.parts[1..], 0);
        }
        self.parts.is_empty()
    }

    /// The rest of the first part.
    fn front(&mut self) -> &'p [u8] {
        if self.is_empty() { &[] } else { &self.parts[0][self.at..] }
    }

    /// The number of a head such as `*3` or `$10`, which stands in one part.
    fn read_head(&mut self, sign: u8) -> Option<usize> {
        let front = self.front();
        let end = front.iter().take(24).position(|byte| *byte == b'\r')?;
        let digits = front[..end].strip_prefix(&[sign])?;
        self.at += end + 2;
        std::str::from_utf8(digits).ok()?.parse().ok()
    }

    fn skip(&mut self, mut count: usize) -> Option<()> {
        while count > 0 {
            let step = self.front().len().min(count);
            if step == 0 {
                return None;
            }
            self.at += step;
            count -= step;
        }
        Some(())
    }

    /// Reads the words of the next command: `None` for one that is long or stands in several parts.
    fn read_command(&mut self, words: &mut Vec<Option<&'p [u8]>>) -> Option<()> {
        words.clear();
        let count = self.read_head(b'*')?;
        if count > WORDS_MAX {
            return None;
        }
        for _ in 0..count {
            let length = self.read_head(b'$')?;
            let front = self.front();
            words.push(front.get(..length).filter(|_| length <= WORD_BYTES_MAX));
            self.skip(length + 2)?;
        }
        Some(())
    }
}

/// The log's ring, with marks of what is recorded.
#[derive(Debug)]
pub(crate) struct MarkedRing {
    pub(crate) ring: Arc<Ring>,
    pub(crate) marks: Arc<SeenMarks>,
    pub(crate) commands: Arc<CommandTable>,
}

impl MarkedRing {
    #[cold]
    fn note(&self, parts: &[&[u8]], end: u64) {
        self.marks.note(&self.commands, parts, end);
    }
}

impl Log for MarkedRing {
    #[inline]
    fn append(&self, participant: usize, record: &[u8]) -> u64 {
        let end = self.ring.append(participant, record);
        if self.marks.is_on.load(SeqCst) {
            self.note(&[record], end);
        }
        end
    }

    fn append_shared(&self, participant: usize, record: Vec<SharedSlice>) -> u64 {
        if !self.marks.is_on.load(Relaxed) {
            let end = self.ring.append_shared(participant, record);
            if self.marks.is_on.load(SeqCst) {
                self.marks.everything.fetch_max(end, SeqCst);
            }
            return end;
        }
        let end = self.ring.append_shared(participant, record.clone());
        let parts: Vec<&[u8]> = record.iter().map(|part| &part[..]).collect();
        self.note(&parts, end);
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{commands, config::Config};

    const KEY: &[u8] = b"k";

    fn marked(record: &[&[u8]]) -> SeenMarks {
        let marks = SeenMarks::default();
        marks.keep(|| 3);
        marks.note(&commands::table_of(&Config::default()).unwrap(), record, 90);
        marks
    }

    fn check(record: &[&[u8]], of_key: u64, of_another: u64) {
        let marks = marked(record);
        assert_eq!((marks.seen([KEY]), marks.seen([&b"other"[..]])), (of_key, of_another), "{record:?}");
        assert_eq!(marks.seen([]), of_another.min(of_key));
    }

    #[test]
    fn records_mark_their_keys() {
        check(&[b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n"], 90, 3);
        check(&[b"*2\r\n$6\r\nSELECT\r\n$1\r\n1\r\n*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n"], 90, 3);
        check(&[b"*3\r\n$3\r\nDEL\r\n$1\r\nz\r\n$1\r\nk\r\n"], 90, 3);
        check(&[b"*3\r\n$7\r\nPUBLISH\r\n$1\r\nk\r\n$1\r\nv\r\n"], 3, 3);
        // The value stands in parts of its own.
        check(
            &[b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\n", b"va", b"lu", b"\r\n*2\r\n$3\r\nDEL\r\n$1\r\nz\r\n"],
            90,
            3,
        );
    }

    #[test]
    fn records_of_unknown_keys_mark_everything() {
        check(&[b"*1\r\n$8\r\nFLUSHALL\r\n"], 90, 90);
        check(&[b"*3\r\n$6\r\nSWAPDB\r\n$1\r\n0\r\n$1\r\n1\r\n"], 90, 90);
        check(&[b"*1\r\n$7\r\nNOTHING\r\n"], 90, 90);
        check(&[b"*2\r\n$3\r\nDEL\r\n$2\r\nk", b"k\r\n"], 90, 90);
        for torn in [&b"*"[..], b"*2\r\n$3\r\nDEL\r\n", b"*99999999\r\n", b"junk", b"*1\r\n$9\r\nDEL\r\n"] {
            check(&[torn], 90, 90);
        }
    }

    #[test]
    fn marks_begin_with_the_end_of_the_log() {
        let marks = SeenMarks::default();
        assert!(!marks.are_kept());
        marks.keep(|| 7);
        assert!(marks.are_kept() && marks.seen([KEY]) == 7);
        marks.keep(|| 9);
        assert_eq!(marks.seen([KEY]), 7, "they are kept already");
        marks.give_up();
        assert_eq!(marks.seen([KEY]), u64::MAX, "nothing is known");
        marks.keep(|| 9);
        assert_eq!(marks.seen([KEY]), 9);
    }
}
