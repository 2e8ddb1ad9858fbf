//! E2, the wall that cost the author days. Client libraries broke on values over 1,024 bytes, and a
//! length of exactly 1000 was sent as 100, so that the rest of the value was read as commands.

use std::io::ErrorKind;
use std::time::Instant;

use dunlin_resp::Value;

use super::contender::Settings;
use super::experiment::{Cost, Experiment, Lab, Size, names};
use super::memcached::Memcached;
use super::results::{Results, Section};
use super::server::{Protocol, Server, shown};
use dunlin_bench::figures::{Sample, sample};
use dunlin_bench::random::Random;
use dunlin_bench::target::{TargetError, encode};

/// The row of the lab's table.
pub const LENGTHS: Experiment = Experiment {
    name: "lengths",
    founding: "E2",
    title: "Values of every length come back",
    explanation: [
        "Writes and reads values of every length from 0 to {lengths}, and around every power of 2 and of 10.",
        "A length that is off by one digit must not turn the rest of a value into commands: malformed lengths",
        "must get a protocol error and a closed connection. (tests/clients does it with real client libraries.)",
    ],
    sizes: &[EVERY_LENGTH_MAX],
    cost: Cost { always_s: 0.5, timed_s: 0.0, sized_s: 4.0 },
    run,
};

const EVERY_LENGTH_MAX: Size = Size::new("lengths", 70_000, 100).at_most_full();
const LENGTH_MAX: usize = 16 << 20;
/// Longest value for memcached as the lab starts it: its limit, less its own headers.
const MEMCACHED_LENGTH_MAX: usize = 16 << 20;
/// Bytes of values in one round trip.
const BATCH_BYTES: usize = 1 << 20;
const KEY: &str = "lab:length";

/// Requests whose lengths are wrong. Behind each lies a PING that must not be answered.
const MALFORMED: [(&str, &[u8]); 5] = [
    ("no number", b"*2\r\n$3\r\nGET\r\n$1x\r\nk\r\n"),
    ("negative", b"*2\r\n$3\r\nGET\r\n$-5\r\nk\r\n"),
    ("too large", b"*2\r\n$3\r\nGET\r\n$99999999999999\r\nk\r\n"),
    ("too many arguments", b"*99999999999\r\n$3\r\nGET\r\n"),
    ("no length", b"*2\r\n$3\r\nGET\r\nk\r\n"),
];

fn run(lab: &Lab) -> Result<Results, String> {
    let lengths = lengths(lab.scale.of(EVERY_LENGTH_MAX) as usize);
    let mut results = Results::new(&LENGTHS, lab.scale);
    let servers = lab.start(&mut results, Settings::MemoryOnly, |_| true)?;
    results.setting(format!("{} lengths, the largest {LENGTH_MAX} bytes; one connection", lengths.len()));
    let mut section = Section::new(
        "All lengths, written and read",
        "Each value has other bytes than its neighbours, so that a shifted or cut one shows.",
        &names(&servers),
    );
    let rows = [("all lengths".to_string(), ())];
    lab.alternate(&mut section, &servers, &rows, |_, (), server| match server.protocol {
        Protocol::Redis => over_redis(server, &lengths),
        Protocol::Memcached => over_memcached(server, &lengths),
    })?;
    results.sections.push(section);
    for server in servers.iter().filter(|server| server.protocol == Protocol::Redis) {
        for (what, request) in MALFORMED {
            refuses(server, request).map_err(|error| format!("{}: {what}: {error}", server.name))?;
        }
    }
    results.checks.push(format!("all {} values came back byte for byte from every server", lengths.len()));
    results.checks.push(format!(
        "{} requests with malformed lengths got an error or nothing, then a closed connection, and no byte behind \
         them was read as a command",
        MALFORMED.len()
    ));
    Ok(results)
}

/// Every length up to `every_max`, then around all powers of 2 and of 10.
fn lengths(every_max: usize) -> Vec<usize> {
    let powers = (0..=24).map(|power| 1usize << power).chain((0..=7).map(|power| 10usize.pow(power)));
    let around = powers.flat_map(|power| [power - 1, power, power + 1]);
    let mut lengths: Vec<usize> =
        (0..=every_max).chain(around).filter(|length| *length <= LENGTH_MAX).collect();
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// Bytes of which every value is a prefix, but for its first eight, which hold its length.
fn pattern(length_max: usize) -> Vec<u8> {
    let mut bytes = vec![0; length_max];
    Random::new(1000).fill(&mut bytes);
    bytes
}

fn value(pattern: &[u8], length: usize) -> Vec<u8> {
    let mut value = pattern[..length].to_vec();
    for (byte, mark) in value.iter_mut().zip((length as u64).to_le_bytes()) {
        *byte ^= mark;
    }
    value
}

fn over_redis(server: &Server, lengths: &[usize]) -> Result<Vec<Sample>, String> {
    let pattern = pattern(LENGTH_MAX);
    let mut client = server.client()?;
    let (start, mut rest) = (Instant::now(), lengths);
    while !rest.is_empty() {
        let mut bytes = 0;
        let count = rest.iter().take_while(|length| {
            bytes += **length;
            bytes <= BATCH_BYTES
        });
        let (batch, later) = rest.split_at(count.count().max(1));
        rest = later;
        let mut requests = Vec::new();
        for length in batch {
            encode(&[b"SET", KEY.as_bytes(), &value(&pattern, *length)], &mut requests);
            encode(&["GET", KEY], &mut requests);
        }
        let (mut number, mut wrong) = (0, None);
        client
            .pipeline(&requests, 2 * batch.len(), |reply| {
                let length = batch[number / 2];
                let right = match number % 2 {
                    0 => reply == Value::Simple(b"OK".to_vec()),
                    _ => reply.as_bytes() == Some(&value(&pattern, length)),
                };
                if !right && wrong.is_none() {
                    wrong = Some(format!("wrong answer at length {length}: {}", shown(&reply)));
                }
                number += 1;
            })
            .map_err(|error| error.to_string())?;
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
    }
    let elapsed = start.elapsed();
    server.erase()?;
    Ok(samples(lengths, elapsed))
}

fn over_memcached(server: &Server, lengths: &[usize]) -> Result<Vec<Sample>, String> {
    let pattern = pattern(LENGTH_MAX);
    let mut client = Memcached::connect(&server.fronts[0])?;
    let start = Instant::now();
    for length in lengths.iter().filter(|length| **length <= MEMCACHED_LENGTH_MAX) {
        let value = value(&pattern, *length);
        client.set(KEY, &value)?;
        if client.get(KEY)?.as_ref() != Some(&value) {
            return Err(format!("wrong answer at length {length}"));
        }
    }
    let elapsed = start.elapsed();
    client.delete(std::iter::once(KEY.to_string()))?;
    Ok(samples(lengths, elapsed))
}

fn samples(lengths: &[usize], elapsed: std::time::Duration) -> Vec<Sample> {
    let bytes = 2 * lengths.iter().sum::<usize>();
    vec![
        sample("whole run", "s", elapsed.as_secs_f64()),
        sample("values there and back", "MiB/s", bytes as f64 / f64::from(1 << 20) / elapsed.as_secs_f64()),
    ]
}

/// Sends a malformed request with a PING behind it. There may be one error reply; then the connection
/// must be closed.
fn refuses(server: &Server, request: &[u8]) -> Result<(), String> {
    let mut client = server.client()?;
    client.send(&[request, b"*1\r\n$4\r\nPING\r\n"].concat()).map_err(|error| error.to_string())?;
    let mut reply = client.receive();
    if matches!(reply, Ok(Value::Error(_))) {
        reply = client.receive();
    }
    match reply {
        Ok(reply) => Err(format!("wrong answer, something was read as a command: {}", shown(&reply))),
        Err(TargetError::Closed) => Ok(()),
        Err(TargetError::Io { source }) if source.kind() == ErrorKind::ConnectionReset => Ok(()),
        Err(error) => Err(format!("the connection was not closed: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_every_one_and_the_landmarks() {
        let lengths = lengths(2000);
        assert!((0..=2000).all(|length| lengths.contains(&length)));
        for landmark in [4095, 4096, 4097, 9_999, 10_000, 65_537, 1_000_001, LENGTH_MAX] {
            assert!(lengths.contains(&landmark), "{landmark}");
        }
        assert!(!lengths.contains(&3000) && lengths.is_sorted());
    }

    #[test]
    fn values_of_neighbouring_lengths_differ_early() {
        let pattern = pattern(2000);
        assert_ne!(value(&pattern, 1000)[..100], value(&pattern, 100)[..]);
        assert_eq!(value(&pattern, 1000).len(), 1000);
    }
}
