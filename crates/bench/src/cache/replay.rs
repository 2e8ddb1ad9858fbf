//! A trace against a server: GET, and SET of missed keys, as a cache is used.

use std::io::Write as _;
use std::time::Instant;

use dunlin_resp::Value;

use crate::latency::Latencies;
use crate::target::{Client, encode};

use super::trace::{Operation, Trace};

/// Parts of a run whose hit ratios are reported one by one.
pub const PARTS: usize = 50;

/// The result of a run.
#[derive(Debug, Default)]
pub struct Replayed {
    pub gets: u64,
    pub hits: u64,
    /// Bytes of values that were asked for, and of those that were found.
    pub get_bytes: u64,
    pub hit_bytes: u64,
    /// Values stored, and replies that were errors.
    pub sets: u64,
    pub errors: u64,
    /// The first error.
    pub error: Option<String>,
    /// By part: gets and hits.
    pub parts: Vec<(u64, u64)>,
    /// Latencies of batches.
    pub latencies: Latencies,
}

/// Replays a trace over one connection, `depth` requests at a time. `after_part` is called behind each part.
pub fn replay(
    trace: &Trace,
    client: &mut Client,
    depth: usize,
    mut after_part: impl FnMut(&mut Client),
) -> Result<Replayed, String> {
    let mut run = Replayed::default();
    let longest = trace.requests.iter().map(|request| request.value_bytes).max().unwrap_or(0);
    // Text that no server could shorten.
    let mut value = vec![0; longest as usize];
    crate::random::Random::new(1).fill(&mut value);
    let mut out = Vec::new();
    let part = trace.requests.len().div_ceil(PARTS).max(1);
    for requests in trace.requests.chunks(part) {
        let before = (run.gets, run.hits);
        for batch in requests.chunks(depth) {
            let started = Instant::now();
            out.clear();
            for request in batch {
                let key = trace.keys[request.key as usize].as_bytes();
                match request.operation {
                    Operation::Get => encode(&[&b"GET"[..], key], &mut out),
                    Operation::Set => {
                        set(key, &value[..request.value_bytes as usize], request.ttl_s, &mut out)
                    }
                    Operation::Delete => encode(&[&b"DEL"[..], key], &mut out),
                }
            }
            let mut replies = Vec::with_capacity(batch.len());
            let failed = |error: crate::target::TargetError| error.to_string();
            client.pipeline(&out, batch.len(), |reply| replies.push(reply)).map_err(failed)?;
            out.clear();
            let mut missed = Vec::new();
            for (request, reply) in batch.iter().zip(replies) {
                if let Value::Error(line) = &reply {
                    note_error(&mut run, line);
                }
                match request.operation {
                    Operation::Get => {
                        run.gets += 1;
                        run.get_bytes += u64::from(request.value_bytes);
                        if matches!(reply, Value::Bulk(_)) {
                            run.hits += 1;
                            run.hit_bytes += u64::from(request.value_bytes);
                        } else if !missed.contains(&request.key) {
                            missed.push(request.key);
                            let key = trace.keys[request.key as usize].as_bytes();
                            set(key, &value[..request.value_bytes as usize], request.ttl_s, &mut out);
                        }
                    }
                    Operation::Set => run.sets += 1,
                    Operation::Delete => {}
                }
            }
            if !missed.is_empty() {
                run.sets += missed.len() as u64;
                let stored = &mut run;
                let take = |reply| {
                    if let Value::Error(line) = &reply {
                        note_error(stored, line);
                    }
                };
                client.pipeline(&out, missed.len(), take).map_err(failed)?;
            }
            run.latencies.record(started.elapsed().as_nanos() as u64, 1);
        }
        run.parts.push((run.gets - before.0, run.hits - before.1));
        after_part(client);
    }
    Ok(run)
}

fn set(key: &[u8], value: &[u8], ttl_s: u32, out: &mut Vec<u8>) {
    if ttl_s == 0 {
        return encode(&[&b"SET"[..], key, value], out);
    }
    let mut seconds = Vec::with_capacity(10);
    // Writing to memory does not fail.
    let _ = write!(seconds, "{ttl_s}");
    encode(&[&b"SET"[..], key, value, b"EX", &seconds], out);
}

fn note_error(run: &mut Replayed, line: &[u8]) {
    run.errors += 1;
    run.error.get_or_insert_with(|| String::from_utf8_lossy(line).into_owned());
}
