//! Writers that count upwards, each under keys of its own, and know which numbers were acknowledged and when.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dunlin_test_support::connection::{Connection, ReadError};
use dunlin_test_support::random::Random;
use dunlin_test_support::resp::encode_command;

use crate::server::{Server, number};

const WRITERS: usize = 6;
/// The work of a transaction, as a script.
const SCRIPT: &str = "redis.call('SET', KEYS[1], ARGV[1]) redis.call('RPUSH', KEYS[2], ARGV[1]) redis.call('SET', KEYS[3], ARGV[1])";

/// The numbers that a writer finds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Found {
    /// The number that it writes first. If two commands write it, they may have been cut apart,
    first: u64,
    /// and this is the last one that is there as a whole.
    pub whole: u64,
}

/// The knowledge of one writer.
#[derive(Debug)]
pub struct Writer {
    index: usize,
    sent: AtomicU64,
    /// The last number that was sent before it went on from an older one.
    sent_before: AtomicU64,
    /// The number that it found at first.
    base: AtomicU64,
    /// The numbers up to which everything was acknowledged since, and when.
    acknowledged: History,
    /// The numbers up to which everything was in a file, and when the server reported that.
    saved: History,
}

/// Numbers that became larger, and when.
#[derive(Debug, Default)]
struct History(Mutex<Vec<(Instant, u64)>>);

impl History {
    fn entries(&self) -> MutexGuard<'_, Vec<(Instant, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, number: u64) {
        self.entries().push((Instant::now(), number));
    }

    /// The number at a moment, if there was one.
    fn by(&self, moment: Instant) -> Option<u64> {
        self.entries().iter().rev().find(|(at, _)| *at <= moment).map(|(_, number)| *number)
    }
}

impl Writer {
    /// Writers that have written nothing.
    pub fn all() -> Vec<Self> {
        let writer = |index| Self {
            index,
            sent: AtomicU64::new(0),
            sent_before: AtomicU64::new(0),
            base: AtomicU64::new(0),
            acknowledged: History::default(),
            saved: History::default(),
        };
        (0..WRITERS).map(writer).collect()
    }

    /// The last number that was sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(SeqCst)
    }

    /// The number that it found at first.
    pub fn base(&self) -> u64 {
        self.base.load(SeqCst)
    }

    /// The last number that had been acknowledged at a moment, or found before.
    pub fn acknowledged_by(&self, moment: Instant) -> u64 {
        self.acknowledged.by(moment).unwrap_or(self.base())
    }

    /// The last number that was reported to be in a file at a moment, or that was found before.
    pub fn saved_by(&self, moment: Instant) -> u64 {
        self.saved.by(moment).unwrap_or(self.base())
    }

    /// Notes that all is in a file that was acknowledged at a moment.
    pub fn note_saved(&self, moment: Instant) {
        self.saved.note(self.acknowledged_by(moment));
    }

    /// Begins behind the numbers that it has found, and forgets those before.
    pub fn begin_from(&self, found: Found) {
        self.sent.store(found.whole, SeqCst);
        self.sent_before.store(found.first, SeqCst);
        self.base.store(found.whole, SeqCst);
        self.acknowledged.entries().clear();
        self.saved.entries().clear();
    }

    /// Goes on behind the numbers that it has found, which count as acknowledged.
    pub fn go_on_from(&self, found: Found) {
        self.sent_before.fetch_max(self.sent().max(found.first), SeqCst);
        self.sent.store(found.whole, SeqCst);
        self.acknowledged.note(found.whole);
    }

    /// Writes until the server is gone, with pauses: batches of steps, of which each has a number of its own under all keys.
    fn write(&self, mut connection: Connection, pause: Duration, mut random: Random) {
        let index = self.index;
        let (key, other, list) = (format!("n:{index}"), format!("m:{index}"), format!("l:{index}"));
        loop {
            let depth = 1 + random.below(8);
            let (mut batch, mut replies) = (Vec::new(), 0);
            for _ in 0..depth {
                let number = (self.sent.fetch_add(1, SeqCst) + 1).to_string();
                match random.below(4) {
                    0 => {
                        encode_command(&["MSET", &key, &number, &other, &number], &mut batch);
                        replies += 1;
                    }
                    1 => {
                        encode_command(&["MULTI"], &mut batch);
                        encode_command(&["SET", &key, &number], &mut batch);
                        encode_command(&["RPUSH", &list, &number], &mut batch);
                        encode_command(&["SET", &other, &number], &mut batch);
                        encode_command(&["EXEC"], &mut batch);
                        replies += 5;
                    }
                    2 => {
                        encode_command(&["EVAL", SCRIPT, "3", &key, &list, &other, &number], &mut batch);
                        replies += 1;
                    }
                    _ => {
                        encode_command(&["SET", &key, &number], &mut batch);
                        encode_command(&["SET", &other, &number], &mut batch);
                        replies += 2;
                    }
                }
            }
            let last = self.sent();
            let (answers, error) = connection.exchange(&batch, replies);
            if error.is_some() || answers.iter().any(|reply| reply.is_error()) {
                return;
            }
            self.acknowledged.note(last);
            std::thread::sleep(pause);
        }
    }
}

/// The load of a server.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub time: Duration,
    /// Between two batches of a writer.
    pub pause: Duration,
    pub beside: Beside,
    pub seed: u64,
}

/// The work beside the writers, again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    Nothing,
    /// The log is rewritten, and snapshots are written.
    Rewrites,
    /// All is saved.
    Saves,
}

impl Load {
    /// Makes all write, and then ends the server, or kills it.
    pub fn play(
        self,
        server: Server<'_>,
        writers: &[Writer],
        end: impl FnOnce(Server<'_>),
    ) -> Result<(), String> {
        let mut connections = Vec::new();
        for _ in writers {
            connections.push(server.connect()?);
        }
        let disturber = server.connect()?;
        std::thread::scope(|scope| {
            for (writer, connection) in writers.iter().zip(connections) {
                let random = Random::new(self.seed ^ writer.index as u64);
                scope.spawn(move || writer.write(connection, self.pause, random));
            }
            let random = Random::new(self.seed);
            match self.beside {
                Beside::Nothing => {}
                Beside::Rewrites => _ = scope.spawn(move || rewrite(disturber, random)),
                Beside::Saves => _ = scope.spawn(move || save(disturber, writers, random)),
            }
            std::thread::sleep(self.time);
            end(server);
        });
        Ok(())
    }
}

/// Rewrites the log, and writes snapshots, until the server is gone.
fn rewrite(mut connection: Connection, mut random: Random) {
    loop {
        let words: &[&str] = match random.below(8) {
            0 => &["BGSAVE"],
            1 => &["BGSAVE", "CANCEL"],
            _ => &["BGREWRITEAOF"],
        };
        if connection.call(words).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(random.below(15) as u64));
    }
}

/// Saves all of it, in one way or the other, until the server is gone; numbers acknowledged before are saved then.
fn save(mut connection: Connection, writers: &[Writer], mut random: Random) {
    loop {
        let begun = Instant::now();
        let saved = match random.below(5) {
            0 | 1 => connection.call(&["SAVE"]).map(|reply| !reply.is_error()),
            2 => cancel(&mut connection),
            _ => save_in_background(&mut connection),
        };
        match saved {
            Ok(true) => writers.iter().for_each(|writer| writer.note_saved(begun)),
            Ok(false) => {}
            Err(_) => return,
        }
        std::thread::sleep(Duration::from_millis(random.below(15) as u64));
    }
}

/// Begins a snapshot and gives it up, unless it is over already: which of both happened is unknown.
fn cancel(connection: &mut Connection) -> Result<bool, ReadError> {
    connection.call(&["BGSAVE"])?;
    connection.call(&["BGSAVE", "CANCEL"])?;
    Ok(false)
}

/// Writes a snapshot, and waits for it. Returns whether it was written.
fn save_in_background(connection: &mut Connection) -> Result<bool, ReadError> {
    if connection.call(&["BGSAVE"])?.is_error() {
        return Ok(false);
    }
    loop {
        let reply = connection.call(&["INFO", "persistence"])?;
        let info = String::from_utf8_lossy(reply.bytes().unwrap_or_default()).into_owned();
        if info.contains("rdb_bgsave_in_progress:0") {
            return Ok(info.contains("rdb_last_bgsave_status:ok"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Compares the recovered data of a server with the writers' knowledge, of which it must have the part that is
/// `needed`; returns the numbers that each writer finds.
pub fn check(
    server: &Server<'_>,
    writers: &[Writer],
    needed: impl Fn(&Writer) -> u64,
) -> Result<Vec<Found>, String> {
    let mut connection = server.connect()?;
    let look = |writer: &Writer| {
        let index = writer.index;
        let first = number(&mut connection, &["GET", &format!("n:{index}")])?;
        let second = number(&mut connection, &["GET", &format!("m:{index}")])?;
        let last = number(&mut connection, &["LINDEX", &format!("l:{index}"), "-1"])?;
        let (sent, needed) = (writer.sent().max(writer.sent_before.load(SeqCst)), needed(writer));
        let state = format!(
            "writer {index}: sent {sent}, acknowledged {needed}, found {first} and {second}, {last} in the list"
        );
        if first < needed || second < needed {
            return Err(format!("{state}: an acknowledged write is lost"));
        }
        if first > sent || second > first || last > first {
            return Err(format!("{state}: that was never written, or not in this order"));
        }
        if first - second > 1 {
            return Err(format!("{state}: a transaction or a command is there by half"));
        }
        Ok(Found { first, whole: second })
    };
    writers.iter().map(look).collect()
}
