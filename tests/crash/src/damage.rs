//! Files that end too early, and files with a wrong bit.

use std::fs;
use std::path::Path;

use dunlin_test_support::random::Random;

use crate::server::{Folder, Server, Started, number};

/// Writes of the file that is damaged.
const WRITES: u64 = 40;
/// Bytes at its end at which it is cut.
const CUT_BYTES_MAX: usize = 400;

/// A directory with a log of `SET n 1`, `SET n 2`, …, in several batches, and the bytes of its file.
fn prepare(program: &Path, name: &str) -> Result<(Folder, Vec<u8>), String> {
    let folder = Folder::new(name)?;
    let server = Server::start(program, &folder, &["--appendfsync", "always"])?;
    let mut connection = server.connect()?;
    for value in 1..=WRITES {
        connection.call(&["SET", "n", &value.to_string()]).map_err(|error| error.to_string())?;
    }
    server.stop()?;
    let bytes = fs::read(folder.increment()?).map_err(|error| error.to_string())?;
    Ok((folder, bytes))
}

/// The number that the last whole command of a file sets.
fn last_whole(bytes: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(bytes);
    let whole = |command: &&str| {
        let mut lines = command.split("\r\n");
        let digits = lines.nth(4).unwrap_or_default();
        let value = lines.next();
        value.is_some_and(|value| lines.next().is_some() && digits == format!("${}", value.len()))
    };
    let commands = text.split("*3\r\n").skip(1).filter(whole);
    commands.last().and_then(|command| command.split("\r\n").nth(5)?.parse().ok()).unwrap_or(0)
}

/// The byte from which on bytes were cut off, and how many, from the server's log.
fn told(log: &str) -> Option<(usize, usize)> {
    let (before, _) = log.split_once(" on were cut off")?;
    let mut words = before.rsplit(' ');
    let from = words.next()?.parse().ok()?;
    let bytes = words.nth(3)?.parse().ok()?;
    Some((from, bytes))
}

pub fn cuts(program: &Path) -> Result<String, String> {
    let (folder, bytes) = prepare(program, "cuts")?;
    let path = folder.increment()?;
    let first = bytes.len().saturating_sub(CUT_BYTES_MAX);
    for length in first..=bytes.len() {
        let cut = &bytes[..length];
        fs::write(&path, cut).map_err(|error| error.to_string())?;
        let server = Server::start(program, &folder, &[])?;
        let found = number(&mut server.connect()?, &["GET", "n"])?;
        let (expected, log) = (last_whole(cut), server.log());
        server.stop()?;
        if found != expected {
            return Err(format!("cut at byte {length}: found {found}, not {expected}\n{log}"));
        }
        match told(&log) {
            Some((from, bytes)) if from + bytes == length => {}
            Some(_) => return Err(format!("cut at byte {length}: it tells something else\n{log}")),
            // Only a file that ends behind a line can be whole.
            None if cut.is_empty() || cut.ends_with(b"\r\n") => {}
            None => return Err(format!("cut at byte {length}: it does not tell\n{log}")),
        }
        // Records that are written after the cut have to be readable too.
        let server = Server::start(program, &folder, &["--aof-load-truncated", "no"])?;
        let again = number(&mut server.connect()?, &["GET", "n"])?;
        server.stop()?;
        if again != expected {
            return Err(format!("cut at byte {length}: {again} at the second start, not {expected}"));
        }
    }
    Ok(format!("{} cuts", bytes.len() - first + 1))
}

pub fn flips(program: &Path, rounds: u64, seed: u64) -> Result<String, String> {
    let (folder, bytes) = prepare(program, "flips")?;
    let path = folder.increment()?;
    let mut random = Random::new(seed);
    let (mut refused, mut harmless) = (0, 0);
    for _ in 0..rounds {
        let bit = random.below(bytes.len() * 8);
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, &flipped).map_err(|error| error.to_string())?;
        match Server::try_start(program, &folder, &[], &[])? {
            Started::Refused(log) if log.contains("is damaged at byte") => {
                refused += 1;
                let kept = fs::read(&path).map_err(|error| error.to_string())?;
                if kept != flipped {
                    return Err(format!("bit {bit}: the damaged file was changed\n{log}"));
                }
            }
            Started::Refused(log) => return Err(format!("bit {bit}: it does not say what is wrong\n{log}")),
            Started::Serving(server) => {
                harmless += 1;
                let found = number(&mut server.connect()?, &["GET", "n"])?;
                let log = server.log();
                let told = log.contains("were cut off");
                if found != WRITES && !told {
                    return Err(format!(
                        "bit {bit}: found {found}, not {WRITES}, and nothing was said\n{log}"
                    ));
                }
                server.stop()?;
            }
        }
    }
    Ok(format!("{refused} files refused, {harmless} loaded"))
}
