//! The changes of commands, as records of canonical commands: the log's bytes.
//!
//! ```text
//! record    = command                                   one command in database 0, as nearly all are
//!           | [SELECT n] command [SELECT 0]             in another database
//!           | [SELECT n] MULTI command… EXEC [SELECT 0] several commands that belong together
//! command   = a RESP array of bulk strings
//! ```
//!
//! A command's effect is its own words, unless its handler says otherwise ([`super::WriteContext::effect`]) because
//! they would not do the same again: times become absolute, and the outcome stands for chance and conditions. A command
//! that a replay would not need is not recorded at all. The forms are those that Redis 7 writes to its append-only
//! file, so that it can read ours.
//!
//! Clients encode commands in just this form. If such a command is a record by itself, the bytes that it
//! came in are handed to the log as they are (docs/decisions/0015).
//!
//! A word that is now the text of a long string, or that arrived in a block of its own, is not copied. The record
//! shares the bytes, and a writer copies them before it changes them (docs/decisions/0023).
//!
//! Invariants:
//! - A record starts and ends in database 0: no state crosses records.
//! - A record is handed to the [`Log`] under the locks of everything it speaks of. So the order of
//!   records is consistent with the locks, and a replay of any prefix is a state that the store was
//!   in.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU32, Ordering},
    },
};

use dunlin_resp::SharedSlice;

use crate::{
    execute::Request,
    long_words::{LongWord, LongWords},
    value::{StringRope, shared_slices},
};

/// The receiver of records.
pub trait Log: fmt::Debug + Send + Sync {
    /// Appends one record; the offset behind it. `participant` is the caller's place in the gate.
    /// Called under locks: it must not wait for anything slow.
    fn append(&self, participant: usize, record: &[u8]) -> u64;

    /// Appends a record that stands in parts, some of which others hold, too. O(parts): nothing is copied.
    fn append_shared(&self, participant: usize, record: Vec<SharedSlice>) -> u64;
}

/// The readers of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum LogConsumer {
    /// The log's files.
    File = 1,
    /// Replicas, and the backlog that is kept for them.
    Replicas = 2,
}

/// The bit, beside those of [`LogConsumer`], of a data set that follows a primary.
const FOLLOWS: u8 = 1 << 7;

/// The store's connection to its log: on while a consumer reads the records.
#[derive(Debug, Default)]
pub struct LogSwitch {
    log: Option<Arc<dyn Log>>,
    /// The [`LogConsumer`]s that there are, as bits.
    consumers: AtomicU8,
    /// See [`Self::admissions`].
    admissions: AtomicU32,
}

impl LogSwitch {
    /// A connection to this log that carries nothing yet.
    pub fn new(log: Arc<dyn Log>) -> Self {
        Self { log: Some(log), consumers: AtomicU8::new(0), admissions: AtomicU32::new(0) }
    }

    /// Whether changes are recorded.
    #[inline]
    pub fn is_on(&self) -> bool {
        // Changes only behind the closed gate, which orders it. None, and all with the bit of a replica, are out of range.
        self.consumers.load(Ordering::Relaxed).wrapping_sub(1) < FOLLOWS - 1
    }

    /// How often what had been let in was to be let in anew. A command that gives its pass up to close the gate compares it
    /// with the number from when it was let in ([`Caller::admission`]): the server may have another role by then.
    ///
    /// [`Caller::admission`]: crate::Caller::admission
    #[inline]
    pub fn admissions(&self) -> u32 {
        self.admissions.load(Ordering::Relaxed)
    }

    /// Makes commands that were let in, and do not run yet, be let in anew. The caller holds the gate closed.
    pub fn end_admissions(&self) {
        self.admissions.fetch_add(1, Ordering::Relaxed);
    }

    /// From now on only a primary's stream is recorded ([`Propagation::relay`]), not changes by commands here; or as
    /// before. The caller holds the gate closed.
    pub(crate) fn follow(&self, follows: bool) {
        self.end_admissions();
        match follows {
            true => self.consumers.fetch_or(FOLLOWS, Ordering::Relaxed),
            false => self.consumers.fetch_and(!FOLLOWS, Ordering::Relaxed),
        };
    }

    /// Whether changes are those of a primary's stream ([`Self::follow`]).
    pub fn follows(&self) -> bool {
        self.consumers.load(Ordering::Relaxed) & FOLLOWS != 0
    }

    /// Whether there is a consumer of records, or of a primary's stream.
    pub fn has_consumers(&self) -> bool {
        self.consumers.load(Ordering::Relaxed) & !FOLLOWS != 0
    }

    /// Whether one of the consumers reads the records.
    #[inline]
    pub fn is_on_for(&self, consumer: LogConsumer) -> bool {
        self.consumers.load(Ordering::Relaxed) & consumer as u8 != 0
    }

    fn log(&self) -> &dyn Log {
        &**self.log.as_ref().expect("changes are recorded only where there is a log")
    }

    /// From now on changes are recorded for a consumer, or are not. The caller holds the gate closed, or no client has
    /// been let in yet: a command is recorded wholly or not at all.
    ///
    /// # Panics
    /// When there is no log to turn on.
    pub fn turn(&self, consumer: LogConsumer, on: bool) {
        assert!(!on || self.log.is_some(), "a store that was made without a log cannot record");
        match on {
            true => self.consumers.fetch_or(consumer as u8, Ordering::Relaxed),
            false => self.consumers.fetch_and(!(consumer as u8), Ordering::Relaxed),
        };
    }
}

/// Encoded commands, but for words that stand elsewhere.
#[derive(Debug, Default)]
struct Record {
    bytes: Vec<u8>,
    /// Long words, each in front of a byte; in order.
    long: Vec<(usize, SharedWord)>,
}

/// A word of a record that others hold, too.
#[derive(Debug, Clone)]
enum SharedWord {
    /// The word is now a string.
    Stored(Arc<StringRope>),
    /// The word arrived in a block of its own.
    Arrived(Arc<LongWord>),
}

impl SharedWord {
    /// Its bytes in pieces of a chunk, so that the log can free the written ones.
    fn push_to(&self, parts: &mut Vec<SharedSlice>) {
        match self {
            Self::Stored(rope) => parts.extend(shared_slices(rope, 0..rope.len())),
            Self::Arrived(word) => {
                parts.extend((0..word.len()).step_by(StringRope::CHUNK_BYTES).map(|start| {
                    let end = word.len().min(start + StringRope::CHUNK_BYTES);
                    // Named, since the other `clone` would not be one of the trait object.
                    let word: Arc<LongWord> = Arc::clone(word);
                    SharedSlice::new(word, start..end)
                }))
            }
        }
    }
}

impl Record {
    fn append(&mut self, other: &Self) {
        let start = self.bytes.len();
        self.long.extend(other.long.iter().map(|(at, word)| (start + at, word.clone())));
        self.bytes.extend_from_slice(&other.bytes);
    }

    /// The parts that the record consists of.
    #[cold]
    fn parts(&self) -> Vec<SharedSlice> {
        let (mut parts, mut written) = (Vec::new(), 0);
        for (at, word) in &self.long {
            parts.push(self.bytes[written..*at].to_vec().into());
            word.push_to(&mut parts);
            written = *at;
        }
        parts.push(self.bytes[written..].to_vec().into());
        parts
    }

    fn append_to(&self, log: &dyn Log, participant: usize) -> u64 {
        match self.long.is_empty() {
            true => log.append(participant, &self.bytes),
            false => log.append_shared(participant, self.parts()),
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES_MAX);
        self.long = Vec::new();
    }
}

/// The record that a worker's commands are making.
#[derive(Debug, Default)]
pub struct Propagation {
    /// Whether changes are recorded.
    on: bool,
    /// The running command makes a record by itself.
    alone: bool,
    /// Whether that record is its own words, in database 0.
    own: bool,
    /// The commands so far, without the frame.
    commands: Record,
    /// How many.
    count: usize,
    /// Databases that the first one and the next one run in.
    databases: (usize, usize),
    /// The running command has recorded its changes.
    told: bool,
    /// Changes by commands are left out (`redis.set_repl`); expiries are not.
    muted: bool,
    /// The commands come from a primary: its own bytes are the record ([`Self::relay`]).
    relays: bool,
    /// A frame with commands inside, in databases and transactions.
    framed: Record,
    /// Words of the running command that are now long strings, each by its place and length.
    stored: Vec<((usize, usize), Arc<StringRope>)>,
    /// Words of the running command, or transaction, that arrived in blocks of their own.
    pub long_words: LongWords,
    /// The offset behind the last record.
    logged_to: u64,
}

impl Propagation {
    /// Whether changes are recorded: if not, handlers need not find out their effect.
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
        self.on = switch.is_on() & !self.relays;
        self.alone = false;
        self.told = false;
        self.muted = false;
        self.stored.clear();
    }

    /// Does what [`Self::begin`] does, for a command that makes a record by itself: [`Self::publish_alone`] follows.
    #[inline]
    pub(crate) fn begin_alone(&mut self, switch: &LogSwitch) {
        self.begin(switch);
        self.alone = true;
    }

    /// Makes these bytes of a primary's stream the next record, whatever the result of the commands that run next:
    /// replicas behind this one have the same bytes at the same offsets. From the first call on nothing else is
    /// recorded.
    pub fn relay(&mut self, bytes: &[u8]) {
        debug_assert!(self.relays || self.count == 0, "a record is being made");
        self.relays = true;
        self.commands.bytes.extend_from_slice(bytes);
        (self.count, self.databases) = (1, (0, 0));
    }

    /// Leaves changes by the commands from here to the next [`Self::begin`] out, or does not.
    pub(crate) fn mute(&mut self, muted: bool) {
        self.muted = muted;
    }

    /// Says that a word of the running command is now a string: records of it share that.
    #[cold]
    pub(crate) fn note_stored(&mut self, word: &[u8], rope: Arc<StringRope>) {
        debug_assert_eq!(word.len(), rope.len());
        self.stored.push((place_of(word), rope));
    }

    /// Adds a command to the record.
    pub(crate) fn add(&mut self, database: usize, words: &[&[u8]]) {
        debug_assert!(!self.own, "a command that has ended changes nothing");
        if !self.on {
            return;
        }
        if self.count == 0 {
            self.databases = (database, database);
        } else if self.databases.1 != database {
            write_select(&mut self.commands.bytes, database);
            self.databases.1 = database;
        }
        self.count += 1;
        if self.stored.is_empty() && self.long_words.is_empty() {
            write_command(&mut self.commands.bytes, words);
        } else {
            self.write_sharing(words);
        }
    }

    /// Writes a command of which some words stand elsewhere.
    #[cold]
    fn write_sharing(&mut self, words: &[&[u8]]) {
        let Record { bytes, long } = &mut self.commands;
        write_head(bytes, b'*', words.len());
        for word in words {
            let stored = || self.stored.iter().find(|(place, _)| *place == place_of(word));
            let shared = match (self.long_words.find(word), stored()) {
                (Some(word), _) => SharedWord::Arrived(Arc::clone(word)),
                (None, Some((_, rope))) => SharedWord::Stored(Arc::clone(rope)),
                (None, None) => {
                    write_word(bytes, word);
                    continue;
                }
            };
            write_head(bytes, b'$', word.len());
            long.push((bytes.len(), shared));
            bytes.extend_from_slice(b"\r\n");
        }
    }

    /// Adds the removal of fields of a hash.
    pub(crate) fn add_removal(&mut self, database: usize, key: &[u8], fields: &[Vec<u8>]) {
        if self.on && !fields.is_empty() {
            let mut words: Vec<&[u8]> = vec![b"HDEL", key];
            words.extend(fields.iter().map(Vec::as_slice));
            self.add(database, &words);
        }
    }

    /// Adds a command that stands for the changes of the running one.
    pub(crate) fn replace(&mut self, database: usize, words: &[&[u8]]) {
        self.told = true;
        if !self.muted {
            self.add(database, words);
        }
    }

    /// The running command has ended: if it has changed something and has not said what, its words
    /// say it.
    #[inline]
    pub(crate) fn end(&mut self, database: usize, words: &[&[u8]], changed: bool) {
        if self.on && !std::mem::take(&mut self.told) && changed && !self.muted {
            let shares = !self.stored.is_empty() || !self.long_words.is_empty();
            self.own = self.alone && self.count == 0 && database == 0 && !shares;
            if !self.own {
                self.add(database, words);
            }
        }
        // The words of the next command may take the place of these.
        self.stored.clear();
    }

    /// Hands the record over of a command that makes one by itself, if there is one. The locks are still held.
    #[inline]
    pub(crate) fn publish_alone(&mut self, switch: &LogSwitch, participant: usize, request: &Request<'_>) {
        if self.own {
            self.hand_over_own(switch, participant, request);
        } else {
            self.publish(switch, participant);
        }
    }

    /// Hands the record over, if there is one. The locks are still held.
    #[inline]
    pub(crate) fn publish(&mut self, switch: &LogSwitch, participant: usize) {
        if self.count > 0 {
            self.hand_over(switch, participant);
        }
    }

    /// Gives the record up.
    pub fn forget(&mut self) {
        self.count = 0;
        self.commands.clear();
        self.framed.clear();
    }

    /// Hands the running command's own words over: the bytes that they came in, if these are canonical.
    #[inline(never)]
    fn hand_over_own(&mut self, switch: &LogSwitch, participant: usize, request: &Request<'_>) {
        self.own = false;
        if is_canonical(request.encoded, request.words) {
            self.logged_to = switch.log().append(participant, request.encoded);
        } else {
            self.add(0, request.words);
            self.hand_over(switch, participant);
        }
    }

    #[inline(never)]
    fn hand_over(&mut self, switch: &LogSwitch, participant: usize) {
        if self.relays && !switch.has_consumers() {
            return self.forget();
        }
        let plain = self.count == 1 && self.databases == (0, 0);
        let record = if plain { &self.commands } else { self.frame() };
        self.logged_to = record.append_to(switch.log(), participant);
        self.forget();
    }

    fn frame(&mut self) -> &Record {
        let (first, last) = self.databases;
        let framed = &mut self.framed;
        if first != 0 {
            write_select(&mut framed.bytes, first);
        }
        if self.count > 1 {
            write_command(&mut framed.bytes, &[b"MULTI"]);
        }
        framed.append(&self.commands);
        if self.count > 1 {
            write_command(&mut framed.bytes, &[b"EXEC"]);
        }
        if last != 0 {
            write_select(&mut framed.bytes, 0);
        }
        framed
    }
}

/// Which word of the running command it is: no two of them stand at the same place but empty ones.
fn place_of(word: &[u8]) -> (usize, usize) {
    (word.as_ptr().addr(), word.len())
}

/// The word that removes a key whose freeing is left for later, or is not.
pub(crate) fn removal_word(lazy: bool) -> &'static [u8] {
    if lazy { b"UNLINK" } else { b"DEL" }
}

/// Memory that a worker keeps for its next record.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Bytes around a word at most, and the usual head of an array in the room that others leave.
const WORD_FRAME_BYTES: usize = 16;

/// Writes a command as a RESP array of bulk strings.
#[inline]
pub fn write_command(out: &mut Vec<u8>, words: &[&[u8]]) {
    out.reserve(words.iter().map(|word| word.len() + WORD_FRAME_BYTES).sum());
    write_head(out, b'*', words.len());
    words.iter().for_each(|word| write_word(out, word));
}

/// Whether `encoded`, from which the words were decoded, has the form of [`write_command`]. O(words).
#[inline]
fn is_canonical(encoded: &[u8], words: &[&[u8]]) -> bool {
    // Numbers are written in one way only: a request that differs has empty ones before the array, and is longer.
    let word_bytes = |word: &&[u8]| head_bytes(word.len()) + word.len() + 2;
    encoded.first() == Some(&b'*')
        && encoded.len() == head_bytes(words.len()) + words.iter().map(word_bytes).sum::<usize>()
}

/// Bytes that [`write_head`] writes.
#[inline]
fn head_bytes(number: usize) -> usize {
    let digits = if number < 1000 {
        1 + usize::from(number >= 10) + usize::from(number >= 100)
    } else {
        1 + number.ilog10() as usize
    };
    1 + digits + 2
}

/// Writes a bulk string.
#[inline]
pub(crate) fn write_word(out: &mut Vec<u8>, word: &[u8]) {
    write_head(out, b'$', word.len());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

fn write_select(out: &mut Vec<u8>, database: usize) {
    write_command(out, &[b"SELECT", itoa::Buffer::new().format(database).as_bytes()]);
}

#[inline]
pub(crate) fn write_head(out: &mut Vec<u8>, mark: u8, number: usize) {
    let digit = |place: usize| b'0' + (number / place % 10) as u8;
    if number < 10 {
        out.extend_from_slice(&[mark, digit(1), b'\r', b'\n']);
    } else if number < 100 {
        out.extend_from_slice(&[mark, digit(10), digit(1), b'\r', b'\n']);
    } else if number < 1000 {
        out.extend_from_slice(&[mark, digit(100), digit(10), digit(1), b'\r', b'\n']);
    } else {
        out.push(mark);
        out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use dunlin_resp::{Batch, Limits, Protocol, RequestDecoder};
    use proptest::prelude::*;

    use super::*;
    use crate::{
        context::{Caller, Worker},
        offload::OffloadOutcome,
        transcript::{ConnectedHost, Records, Scenario},
    };

    /// Plays lines and compares the record of each: none if it is empty. `@ +100` lets time pass and
    /// expires in the background.
    fn check(script: &str) {
        let (mut scenario, records) = Scenario::recorded();
        let lines: Vec<&str> = script.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        for line in lines {
            let (command, expected) = line.split_once(" => ").unwrap_or((line.trim_end_matches(" =>"), ""));
            if let Some(passed) = command.strip_prefix("@ +") {
                scenario.caller.now_ms += passed.parse::<u64>().unwrap();
                scenario.expire();
            } else if let Some(database) = command.strip_prefix("@ database ") {
                scenario.database = database.parse().unwrap();
                continue;
            } else if let Some(passed) = command.strip_prefix("@ unnoticed +") {
                scenario.caller.now_ms += passed.parse::<u64>().unwrap();
                continue;
            } else {
                scenario.reply(command, Protocol::Resp2);
            }
            assert_eq!(records.take().join(" | "), expected, "{command}");
        }
    }

    #[test]
    fn commands_without_effect_are_not_recorded() {
        check(
            "
            GET k =>
            SET k v XX =>
            SET k v => SET k v
            SET k v NX =>
            SETNX k v =>
            APPEND k w => APPEND k w
            SETRANGE k 0 '' =>
            INCR k =>
            DEL missing =>
            DEL k missing => DEL k missing
            EXPIRE missing 10 =>
            PERSIST missing =>
            SADD s 1 2 => SADD s 1 2
            SADD s 1 =>
            SREM s 7 =>
            LPUSHX missing 1 =>
            RENAME missing other =>
            FLUSHALL => FLUSHALL
            FLUSHDB => FLUSHDB
            SWAPDB 1 1 =>
            SWAPDB 1 2 => SWAPDB 1 2
            ",
        );
    }

    #[test]
    fn times_are_absolute() {
        check(
            "
            SET k v EX 10 => SET k v PXAT 1700000010000
            SET k v PX 10 XX GET => SET k v PXAT 1700000000010
            SET k v KEEPTTL => SET k v KEEPTTL
            SET k w GET => SET k w
            SET k w GET XX KEEPTTL => SET k w XX KEEPTTL
            SETEX k 10 v => SET k v PXAT 1700000010000
            PSETEX k 10 v => SET k v PXAT 1700000000010
            EXPIRE k 100 => PEXPIREAT k 1700000100000
            EXPIRE k 50 GT =>
            PEXPIREAT k 1700000200000 XX => PEXPIREAT k 1700000200000
            GETEX k =>
            GETEX k EX 7 => PEXPIREAT k 1700000007000
            GETEX k PERSIST => PERSIST k
            GETEX k PERSIST =>
            EXPIRE k -1 => DEL k
            SET k v EXAT 1 => DEL k
            MSETEX 2 a 1 b 2 EX 10 => MULTI; SET a 1 PXAT 1700000010000; SET b 2 PXAT 1700000010000; EXEC
            HSET h a 1 b 2 => HSET h a 1 b 2
            HEXPIRE h 10 FIELDS 2 a missing => HPEXPIREAT h 1700000010000 FIELDS 1 a
            HGETEX h EX 20 FIELDS 1 b => HPEXPIREAT h 1700000020000 FIELDS 1 b
            HGETEX h PERSIST FIELDS 1 b => HPERSIST h FIELDS 1 b
            HSETEX h EX 30 FIELDS 2 c 3 d 4 => MULTI; HSET h c 3 d 4; HPEXPIREAT h 1700000030000 FIELDS 2 c d; EXEC
            HSETEX h KEEPTTL FIELDS 3 a 1 c 3 d 4 => MULTI; HSET h a 1 c 3 d 4; HPEXPIREAT h 1700000010000 FIELDS 1 a; HPEXPIREAT h 1700000030000 FIELDS 2 c d; EXEC
            HSETEX h KEEPTTL FIELDS 1 b 2 => HSET h b 2
            HSETEX h FXX FIELDS 1 c 3 => HSET h c 3
            ",
        );
    }

    #[test]
    fn conditions_and_sums_are_what_they_came_to() {
        check(
            "
            SET k 1 => SET k 1
            SET k 2 IFEQ 1 => SET k 2
            SET k 3 IFEQ 1 =>
            DELIFEQ k 3 =>
            DELIFEQ k 2 => DEL k
            GETSET k 5 => SET k 5
            INCRBYFLOAT k 0.5 => SET k 5.5 KEEPTTL
            INCREX k BYFLOAT 0.5 UBOUND 9 => SET k 6 KEEPTTL
            INCREX k BYINT 5 UBOUND 9 =>
            INCREX k BYINT 5 UBOUND 9 SATURATE => SET k 9 KEEPTTL
            INCREX k EX 10 => SET k 10 PXAT 1700000010000
            INCREX k EX 20 ENX => SET k 11 KEEPTTL
            INCREX k PERSIST => SET k 12
            INCREX k PERSIST => SET k 13 KEEPTTL
            INCREX k PX 20 ENX => SET k 14 PXAT 1700000000020
            INCREX k EXAT 1 => DEL k
            INCREX k EXAT 1 =>
            SET k 5 => SET k 5
            GETDEL k => DEL k
            HINCRBYFLOAT h f 1.5 => HSET h f 1.5
            HEXPIREAT h 1700000100 FIELDS 1 f => HPEXPIREAT h 1700000100000 FIELDS 1 f
            HINCRBYFLOAT h f 1.5 => MULTI; HSET h f 3; HPEXPIREAT h 1700000100000 FIELDS 1 f; EXEC
            HGETDEL h FIELDS 1 f => HDEL h f
            SADD s 1 => SADD s 1
            SPOP s => SREM s 1
            SADD s 1 2 => SADD s 1 2
            SPOP s 5 => DEL s
            RPUSH l 1 2 3 4 => RPUSH l 1 2 3 4
            LMPOP 2 x l RIGHT COUNT 2 => RPOP l 2
            BLPOP x l 0 => LPOP l
            BLMOVE l m LEFT right 0 => LMOVE l m LEFT right
            BRPOPLPUSH m l 0 => RPOPLPUSH m l
            BLMPOP 0 1 l LEFT COUNT 9 => LPOP l 1
            ZADD z 1 a 2 b 3 c => ZADD z 1 a 2 b 3 c
            ZMPOP 2 x z MAX COUNT 9 => ZPOPMAX z 3
            ZADD z 1 a 2 b 3 c => ZADD z 1 a 2 b 3 c
            BZPOPMIN x z 0 => ZPOPMIN z
            BZMPOP 0 2 x z MAX COUNT 9 => ZPOPMAX z 2
            ZADD z 1.5 a 2 b => ZADD z 1.5 a 2 b
            ZUNIONSTORE y 1 z => ZUNIONSTORE y 1 z
            ZUNIONSTORE y 2 z y WEIGHTS 0.5 1 AGGREGATE COUNT => MULTI; DEL y; ZADD y 1.5 a 1.5 b; EXEC
            ZINTERSTORE new 2 z y AGGREGATE COUNT => ZADD new 2 a 2 b
            ZINTERSTORE y 2 z x AGGREGATE COUNT => DEL y
            ZINTERSTORE y 2 z x AGGREGATE COUNT =>
            ",
        );
    }

    #[test]
    fn deliveries_are_told_as_what_they_came_to() {
        check(
            "
            XADD s 1 a 1 => XADD s 1-0 a 1
            XADD s 2 b 2 => XADD s 2-0 b 2
            XGROUP CREATE s g 0 => XGROUP CREATE s g 0
            XREADGROUP GROUP g ann COUNT 1 STREAMS s > => MULTI; XCLAIM s g ann 0 1-0 TIME 1700000000000 RETRYCOUNT 1 FORCE JUSTID LASTID 1-0; XGROUP SETID s g 1-0 ENTRIESREAD 1; EXEC
            @ unnoticed +10
            XREADGROUP GROUP g bob COUNT 1 CLAIM 10 STREAMS s > => XCLAIM s g bob 0 1-0 TIME 1700000000010 RETRYCOUNT 2 FORCE JUSTID LASTID 1-0
            XREADGROUP GROUP g bob COUNT 1 CLAIM 1 NOACK STREAMS s > => XGROUP SETID s g 2-0 ENTRIESREAD 2
            XREADGROUP GROUP g bob CLAIM 1 STREAMS s > =>
            XREADGROUP GROUP g cyd CLAIM 1 STREAMS s > => XGROUP CREATECONSUMER s g cyd
            ",
        );
    }

    #[test]
    fn xautoclaim_offloaded_is_recorded_as_in_place() {
        let told = |visits_max: Option<usize>, count: usize| {
            let (mut scenario, records) = Scenario::recorded();
            for line in
                ["XADD s 1 a 1", "XADD s 2 b 2", "XADD s 3 c 3", "XADD s 4 d 4", "XGROUP CREATE s g 0"]
            {
                scenario.reply(line, Protocol::Resp2);
            }
            scenario.reply("XREADGROUP GROUP g ann STREAMS s >", Protocol::Resp2);
            scenario.reply("XDEL s 2", Protocol::Resp2);
            records.take();
            scenario.caller.visits_max = visits_max;
            let line = format!("XAUTOCLAIM s g bob 0 0 COUNT {count}");
            let reply = scenario.reply(&line, Protocol::Resp2);
            let Some(offloaded) = scenario.offloaded.take() else { return (reply, records.take()) };
            assert_eq!(records.take(), [""; 0], "it has not run");
            let OffloadOutcome::Computed(computed) =
                offloaded.run(&scenario.engine, &mut Worker::new(9, 9), &ConnectedHost)
            else {
                panic!("it is to be run again");
            };
            scenario.computed = Some(Box::new(computed));
            (scenario.reply(&line, Protocol::Resp2), records.take())
        };
        for count in [1, 2, 3, 4] {
            // By a copy of the group, and under the locks.
            for visits_max in [0, 3] {
                assert_eq!(told(Some(visits_max), count), told(None, count), "{count} with {visits_max}");
            }
        }
        let records = told(None, 2).1.concat();
        assert_eq!(
            records,
            "MULTI; XCLAIM s g bob 0 1-0 TIME 1700000000000 RETRYCOUNT 2 FORCE JUSTID LASTID 4-0; XACK s g 2-0; EXEC"
        );
    }

    #[test]
    fn xadd_of_a_producer_is_recorded_with_its_id() {
        check(
            "
            XADD s IDMP LIMIT maxlen MAXLEN ~ 5 * a 1 => XADD s IDMP LIMIT maxlen MAXLEN = 1 1700000000000-0 a 1
            XADD s IDMP LIMIT maxlen * b 2 => XADD s IDMP LIMIT maxlen 1700000000000-0 b 2
            XADD s IDMPAUTO limit * a 1 => XADD s IDMPAUTO limit 1700000000000-1 a 1
            XCFGSET s IDMP-DURATION 100 =>
            XCFGSET s IDMP-DURATION 5 => XCFGSET s IDMP-DURATION 5
            ",
        );
    }

    /// Plays lines, and their records in a second store that knows no time, as a replica or a replay of the log does:
    /// both answer each line behind `> ` alike.
    fn check_replay(scenario: &mut Scenario, records: &Records, script: &str) {
        let mut again = Scenario::new();
        again.caller = Caller { now_ms: 0, replaying_at_ms: scenario.caller.now_ms, ..Caller::default() };
        for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if let Some(query) = line.strip_prefix("> ") {
                let replies =
                    [&mut *scenario, &mut again].map(|scenario| scenario.reply(query, Protocol::Resp2));
                let [here, there] = replies.map(|reply| String::from_utf8(reply).unwrap());
                assert_eq!(here, there, "{query} in {script}");
            } else if let Some(passed) = line.strip_prefix("@ unnoticed +") {
                scenario.caller.now_ms += passed.parse::<u64>().unwrap();
            } else {
                scenario.reply(line, Protocol::Resp2);
                for record in records.take() {
                    for command in record.split("; ").filter(|command| !["MULTI", "EXEC"].contains(command)) {
                        let reply = again.reply(command, Protocol::Resp2);
                        assert_ne!(
                            reply.first(),
                            Some(&b'-'),
                            "{command}: {}",
                            String::from_utf8_lossy(&reply)
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn approximate_trims_are_recorded_as_the_length_that_is_left() {
        check(
            "
            XADD s 1 a 1 => XADD s 1-0 a 1
            XTRIM s MINID ~ 5 LIMIT 10 => XTRIM s MAXLEN = 0
            XADD s KEEPREF MINID ~ 100 5 a 1 => XADD s MAXLEN = 0 5-0 a 1
            XADD s 6 a 1 => XADD s 6-0 a 1
            XADD s 7 a 1 => XADD s 7-0 a 1
            XGROUP CREATE s g 6 => XGROUP CREATE s g 6
            XTRIM s minid ~ 100 ACKED => XTRIM s MAXLEN = 1 ACKED
            XADD s 8 a 1 => XADD s 8-0 a 1
            XTRIM s MINID 8 => XTRIM s MINID 8
            XADD s 9 a 1 => XADD s 9-0 a 1
            XTRIM s MAXLEN 1 KEEPREF => XTRIM s MAXLEN 1
            XTRIM s MINID ~ 100 DELREF => XTRIM s MAXLEN = 0 DELREF
            ",
        );
    }

    #[test]
    fn approximate_trims_remove_the_same_in_a_replay() {
        for bound in ["MINID ~ 100", "MINID ~ 6", "MAXLEN ~ 3", "MAXLEN ~ 0 LIMIT 5"] {
            for references in ["KEEPREF", "DELREF", "ACKED"] {
                for trim in
                    [format!("XTRIM s {bound} {references}"), format!("XADD s {references} {bound} 10 a 1")]
                {
                    let (mut scenario, records) = Scenario::recorded();
                    // Of other sizes than in the replay.
                    scenario.policy.collection_limits.stream_node_max_entries = 2;
                    let mut lines: Vec<String> = (1..10).map(|id| format!("XADD s {id} a 1")).collect();
                    lines.extend(
                        [
                            "XGROUP CREATE s g 0",
                            "XREADGROUP GROUP g ann COUNT 7 STREAMS s >",
                            "XACK s g 2 3 5 6 7",
                            &trim,
                            "> XRANGE s - +",
                            "> XPENDING s g - + 100",
                            "> XLEN s",
                        ]
                        .map(str::to_owned),
                    );
                    check_replay(&mut scenario, &records, &lines.join("\n"));
                }
            }
        }
    }

    #[test]
    fn removals_from_streams_are_recorded_as_acknowledged_and_deleted() {
        let setup = "
            XADD s 1 a 1
            XADD s 2 a 1
            XADD s 3 a 1
            XADD s 4 a 1
            XGROUP CREATE s g 0
            XGROUP CREATE s h 0
            XREADGROUP GROUP g ann STREAMS s >
            XREADGROUP GROUP h bob COUNT 2 STREAMS s >
        ";
        let removals = [
            ("XDELEX s ACKED IDS 2 1 9", ""),
            ("XDELEX s DELREF IDS 2 1 9", "MULTI; XACK s g 1-0; XACK s h 1-0; XDEL s 1-0; EXEC"),
            ("XDELEX s IDS 2 2 2", "XDEL s 2-0"),
            // The entry is gone already.
            ("XACKDEL s g IDS 2 2 9", "XACK s g 2-0"),
            ("XDELEX s DELREF IDS 1 2", "XACK s h 2-0"),
            // A group has not read it.
            ("XACKDEL s g ACKED IDS 1 3", "XACK s g 3-0"),
            ("XACKDEL s g DELREF IDS 1 4", "MULTI; XACK s g 4-0; XDEL s 4-0; EXEC"),
        ];
        let (mut scenario, records) = Scenario::recorded();
        check_replay(&mut scenario, &records, setup);
        for (removal, expected) in removals {
            scenario.reply(removal, Protocol::Resp2);
            assert_eq!(records.take().concat(), expected, "{removal}");
        }
        let removals = removals.map(|(removal, _)| removal).join("\n");
        let queries = "
            > XRANGE s - +
            > XPENDING s g - + 100
            > XPENDING s h - + 100
        ";
        let (mut scenario, records) = Scenario::recorded();
        check_replay(&mut scenario, &records, &[setup, &removals, queries].concat());
    }

    #[test]
    fn fields_keep_their_values_and_deadlines_in_a_replay() {
        let (mut scenario, records) = Scenario::recorded();
        check_replay(
            &mut scenario,
            &records,
            "
            HSETEX h EX 10 FIELDS 3 a 1 b 2 c 3
            HEXPIRE h 20 FIELDS 1 b
            HSETEX h KEEPTTL FIELDS 4 a 5 b 6 b 7 d 8
            HINCRBYFLOAT h c 0.5
            > HGETALL h
            > HPEXPIRETIME h FIELDS 4 a b c d
            ",
        );
    }

    #[test]
    fn sort_stores_no_field_that_has_expired() {
        let script = "
            RPUSH l a b
            HSET h_a f 1 g 2
            HSET h_b f 3
            HPEXPIRE h_a 10 FIELDS 1 f
            HPEXPIRE h_b 10 FIELDS 1 f
            @ unnoticed +10
            SORT l BY nosort GET h_*->f GET h_*->g STORE d
            > LRANGE d 0 -1
            > HLEN h_a
            > EXISTS h_b
        ";
        let (mut scenario, records) = Scenario::recorded();
        check_replay(&mut scenario, &records, script);
        check(
            "
            RPUSH l a => RPUSH l a
            HSET h_a f 1 g 2 => HSET h_a f 1 g 2
            HPEXPIRE h_a 10 FIELDS 1 f => HPEXPIREAT h_a 1700000000010 FIELDS 1 f
            @ unnoticed +10
            SORT l BY h_*->g GET h_*->f STORE d => MULTI; HDEL h_a f; SORT l BY h_*->g GET h_*->f STORE d; EXEC
            ",
        );
    }

    #[test]
    fn expired_keys_are_removed_by_the_record() {
        check(
            "
            SET k v PX 10 => SET k v PXAT 1700000000010
            @ +100 => DEL k
            SET k v PX 10 => SET k v PXAT 1700000000110
            SET l v PX 10 => SET l v PXAT 1700000000110
            @ unnoticed +10
            GET k => DEL k
            APPEND l x => MULTI; DEL l; APPEND l x; EXEC
            HSET h a 1 b 2 => HSET h a 1 b 2
            HPEXPIRE h 10 FIELDS 1 a => HPEXPIREAT h 1700000000120 FIELDS 1 a
            @ unnoticed +10
            HSETNX h a 7 => MULTI; HDEL h a; HSETNX h a 7; EXEC
            HPEXPIRE h 10 FIELDS 1 a => HPEXPIREAT h 1700000000130 FIELDS 1 a
            @ +100 => HDEL h a
            HPEXPIRE h 10 FIELDS 1 b => HPEXPIREAT h 1700000000230 FIELDS 1 b
            @ unnoticed +10
            HSETNX h a 8 => MULTI; DEL h; HSETNX h a 8; EXEC
            ",
        );
    }

    #[test]
    fn record_begins_and_ends_in_database_0() {
        check(
            "
            @ database 3
            SET k v PX 10 => SELECT 3; SET k v PXAT 1700000000010; SELECT 0
            MOVE k 5 REPLACE => SELECT 3; MOVE k 5; SELECT 0
            MOVE k 5 REPLACE =>
            SET k w PX 10 => SELECT 3; SET k w PXAT 1700000000010; SELECT 0
            MOVE k 5 =>
            MOVE k 5 REPLACE => SELECT 5; MULTI; DEL k; SELECT 3; MOVE k 5; EXEC; SELECT 0
            @ database 5
            @ unnoticed +10
            APPEND k x => SELECT 5; MULTI; DEL k; APPEND k x; EXEC; SELECT 0
            COPY k l DB 0 => SELECT 5; COPY k l DB 0; SELECT 0
            FLUSHDB => SELECT 5; FLUSHDB; SELECT 0
            @ database 0
            SET k v PX 5 => SET k v PXAT 1700000000015
            @ database 1
            SET other v => SELECT 1; SET other v; SELECT 0
            @ +100 => DEL k
            ",
        );
    }

    #[test]
    fn command_is_recorded_in_one_form_however_it_arrives() {
        let (mut scenario, records) = Scenario::recorded();
        let table = Arc::clone(&scenario.table);
        for input in [
            "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n",
            "*0\r\n*-1\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n",
            "\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n",
            "SET k v\r\n",
            // As long as the first.
            "SET k                   v\r\n",
            "'SET' k \"v\"              \r\n",
        ] {
            scenario.reply_to(&table, input.as_bytes(), Protocol::Resp2);
            assert_eq!(records.take(), ["SET k v"], "{input:?}");
        }
    }

    proptest! {
        #[test]
        fn canonical_form_is_exactly_what_write_command_writes(
            words in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..1200), 1..12),
            before in prop::sample::select(vec!["", "*0\r\n", "\r\n", "*-1\r\n"]),
        ) {
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let mut encoded = before.as_bytes().to_vec();
            write_command(&mut encoded, &words);
            let (mut batch, mut position) = (Batch::default(), 0);
            let limits = Limits { bulk_bytes_max: 1 << 20, authenticated: true };
            RequestDecoder::default().decode(&encoded, &mut position, &mut batch, &limits, 1).unwrap();
            prop_assert_eq!(position, encoded.len());
            let decoded: Vec<&[u8]> = batch.words(&encoded).collect();
            prop_assert_eq!(&decoded, &words);
            prop_assert_eq!(is_canonical(&encoded, &decoded), before.is_empty());
        }
    }

    #[test]
    fn log_that_is_off_records_nothing() {
        let (mut scenario, records) = Scenario::recorded();
        scenario.reply("SET k v", Protocol::Resp2);
        assert_eq!(records.take(), ["SET k v"]);
        scenario.turn_log(false);
        scenario.reply("SPOP k", Protocol::Resp2);
        scenario.reply("SET k v", Protocol::Resp2);
        scenario.turn_log(true);
        scenario.reply("SET k w", Protocol::Resp2);
        assert_eq!(records.take(), ["SET k w"]);
    }

    #[test]
    fn relay_records_the_primarys_bytes_and_nothing_of_the_commands_own() {
        let (mut scenario, records) = Scenario::recorded();
        scenario.engine.log.follow(true);
        scenario.reply("SET k v", Protocol::Resp2);
        assert_eq!(records.take(), [""; 0], "what clients change on a replica is no part of the stream");
        let mut stream = Vec::new();
        write_command(&mut stream, &[b"select", b"7"]);
        write_command(&mut stream, &[b"spop", b"k"]);
        scenario.worker.propagation.relay(&stream);
        scenario.reply("APPEND k w", Protocol::Resp2);
        assert_eq!(records.take(), ["select 7; spop k"]);
        // With any result of the command.
        scenario.worker.propagation.relay(&stream);
        scenario.reply("GET k", Protocol::Resp2);
        assert_eq!(records.take(), ["select 7; spop k"]);
        scenario.turn_log(false);
        scenario.worker.propagation.relay(&stream);
        scenario.reply("APPEND k w", Protocol::Resp2);
        scenario.turn_log(true);
        assert_eq!(records.take(), [""; 0], "nobody reads");
    }
}
