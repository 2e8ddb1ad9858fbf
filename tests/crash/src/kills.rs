//! SIGKILL under load, now and then while the server is ending.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use dunlin_test_support::connection::Connection;
use dunlin_test_support::random::Random;
use dunlin_test_support::resp::encode_command;

use crate::server::{Folder, Server, number};

const WRITERS: usize = 6;
/// Longest time under load, in milliseconds.
const LOAD_MS_MAX: i64 = 120;
/// How often, of 100 times, SIGTERM comes first, and how long at most, in milliseconds.
const TERM_PERCENT: u32 = 20;
const TERM_MS_MAX: i64 = 8;
/// What a transaction does, as a script.
const SCRIPT: &str = "redis.call('SET', KEYS[1], ARGV[1]) redis.call('RPUSH', KEYS[2], ARGV[1]) redis.call('SET', KEYS[3], ARGV[1])";
/// What `everysec` may lose, and what the clocks of the test may be off.
const LOSS_MAX: Duration = Duration::from_millis(1000);

/// What one writer knows.
#[derive(Debug, Default)]
struct Writer {
    sent: AtomicU64,
    acknowledged: AtomicU64,
    /// Acknowledged at least a [`LOSS_MAX`] before the kill.
    old: AtomicU64,
}

pub fn play(program: &Path, rounds: u64, appendfsync: &str, seed: u64) -> Result<String, String> {
    let folder = Folder::new("kills")?;
    let writers: Vec<Writer> = (0..WRITERS).map(|_| Writer::default()).collect();
    // Some bases are RDB files, some are commands.
    let directives = |round: u64| {
        let preamble = if round % 4 < 2 { "yes" } else { "no" };
        ["--appendfsync", appendfsync, "--aof-use-rdb-preamble", preamble]
    };
    let mut lost_max = 0;
    for round in 0..rounds {
        let mut random = Random::new(seed + round);
        let server = Server::start(program, &folder, &directives(round))?;
        let lost = check(&server, &writers, appendfsync == "always")
            .map_err(|why| format!("round {round}, seed {seed}: {why}\n{}", server.log()))?;
        lost_max = lost_max.max(lost);
        let mut connections = Vec::new();
        for _ in 0..WRITERS {
            connections.push(server.connect()?);
        }
        let disturber = server.connect()?;
        let pause = Duration::from_millis(random.between(0, LOAD_MS_MAX) as u64);
        std::thread::scope(|scope| {
            for (index, (writer, connection)) in writers.iter().zip(connections).enumerate() {
                let random = Random::new(seed ^ (round << 8) ^ index as u64);
                scope.spawn(move || write(index, writer, connection, random));
            }
            // Every other round, so that logs grow too.
            if round % 2 == 0 {
                scope.spawn(move || rewrite(disturber, Random::new(seed ^ round)));
            }
            std::thread::sleep(pause);
            if random.chance(TERM_PERCENT) {
                server.terminate();
                std::thread::sleep(Duration::from_millis(random.between(0, TERM_MS_MAX) as u64));
            }
            server.kill();
        });
    }
    let server = Server::start(program, &folder, &directives(rounds))?;
    check(&server, &writers, appendfsync == "always")?;
    let total: u64 = writers.iter().map(|writer| writer.sent.load(SeqCst)).sum();
    Ok(format!("{rounds} kills, {total} writes, at most {lost_max} acknowledged ones of a writer lost"))
}

/// Writes until the server is gone: batches of commands that all carry the same number.
fn write(index: usize, writer: &Writer, mut connection: Connection, mut random: Random) {
    let (key, other, list) = (format!("n:{index}"), format!("m:{index}"), format!("l:{index}"));
    let mut history: Vec<(Instant, u64)> = Vec::new();
    loop {
        let depth = 1 + random.below(8);
        let (mut batch, mut replies) = (Vec::new(), 0);
        for _ in 0..depth {
            let number = (writer.sent.fetch_add(1, SeqCst) + 1).to_string();
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
        let last = writer.sent.load(SeqCst);
        let (answers, error) = connection.exchange(&batch, replies);
        if error.is_some() || answers.iter().any(|reply| reply.is_error()) {
            let old = history.iter().rev().find(|(at, _)| at.elapsed() >= LOSS_MAX);
            writer.old.store(old.map_or(0, |(_, number)| *number), SeqCst);
            return;
        }
        writer.acknowledged.store(last, SeqCst);
        history.push((Instant::now(), last));
    }
}

/// Has the log rewritten, and snapshots written, until the server is gone.
fn rewrite(mut connection: Connection, mut random: Random) {
    loop {
        let words: &[&str] = match random.below(8) {
            0 => &["BGSAVE"],
            1 => &["BGSAVE", "CANCEL"],
            _ => &["BGREWRITEAOF"],
        };
        let mut batch = Vec::new();
        encode_command(words, &mut batch);
        if connection.exchange(&batch, 1).1.is_some() {
            return;
        }
        std::thread::sleep(Duration::from_millis(random.below(15) as u64));
    }
}

/// Compares what a server has recovered with what is known; how many acknowledged writes of one writer
/// are lost at most. What is there from now on counts as acknowledged.
fn check(server: &Server<'_>, writers: &[Writer], always: bool) -> Result<u64, String> {
    let mut connection = server.connect()?;
    let mut lost_max = 0;
    for (index, writer) in writers.iter().enumerate() {
        let first = number(&mut connection, &["GET", &format!("n:{index}")])?;
        let second = number(&mut connection, &["GET", &format!("m:{index}")])?;
        let last = number(&mut connection, &["LINDEX", &format!("l:{index}"), "-1"])?;
        let (sent, acknowledged) = (writer.sent.load(SeqCst), writer.acknowledged.load(SeqCst));
        let old = writer.old.load(SeqCst);
        let state = format!(
            "writer {index}: sent {sent}, acknowledged {acknowledged}, found {first} and {second}, {last} in the list"
        );
        let needed = if always { acknowledged } else { old };
        if first < needed || second < needed {
            return Err(format!("{state}: an acknowledged write is lost"));
        }
        if first > sent || second > first || last > first {
            return Err(format!("{state}: that was never written, or not in this order"));
        }
        // The two are written by one command, or by two that may be cut apart.
        if first - second > 1 {
            return Err(format!("{state}: a transaction or a command is there by half"));
        }
        lost_max = lost_max.max(acknowledged.saturating_sub(first));
        writer.sent.store(first, SeqCst);
        writer.acknowledged.store(first, SeqCst);
        writer.old.store(first, SeqCst);
    }
    Ok(lost_max)
}
