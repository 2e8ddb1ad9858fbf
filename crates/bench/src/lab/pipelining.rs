//! E1, "How many requests per second?": GET and SET of one key and of a million, and the curve of
//! requests per second over the depth of pipelines.

use std::time::Duration;

use super::contender::{Contender, Settings};
use super::experiment::{Experiment, Lab};
use super::results::{Results, Section};
use super::server::Server;
use crate::figures::{Sample, sample};
use crate::load::{Outcome, Progress};

/// The row of the lab's table.
pub const PIPELINING: Experiment = Experiment {
    name: "pipelining",
    founding: "E1",
    title: "How many requests per second?",
    explanation: [
        "GET and SET from 50 connections, of one key and of a million, then of the million in pipelines.",
        "Answers how much a pipeline of 1, 2, 4 … 1000 requests saves, and whether many keys cost more.",
        "Look at the server's CPU time per request: it stays true where the load is what limits the rate.",
    ],
    run,
};

const KEYS: u64 = 1_000_000;
const VALUE_BYTES: usize = 100;
const CLIENTS: usize = 50;
const DEPTHS: [usize; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000];
const MEASURED: Duration = Duration::from_millis(1500);
const WARMUP: Duration = Duration::from_millis(300);
const FILL_PIPELINE: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Get,
    Set,
}

impl Verb {
    fn words(self) -> &'static str {
        match self {
            Self::Get => "GET key:__rand_int__",
            Self::Set => "SET key:__rand_int__ __data__",
        }
    }
}

fn run(lab: &Lab) -> Result<Results, String> {
    let keys = lab.scale.count(KEYS, 100);
    let mut results = Results::new(&PIPELINING);
    let servers = lab.start(&mut results, Settings::MemoryOnly, Contender::speaks_redis)?;
    results
        .setting(format!("{keys} keys, {VALUE_BYTES} random bytes each; {CLIENTS} connections, closed loop"));
    for server in &servers {
        lab.bar.set_message(format!("filling {}", server.name));
        server
            .check_answers(VALUE_BYTES * 2)
            .and_then(|()| fill(lab, server, keys))
            .map_err(|error| format!("{}: {error}", server.name))?;
    }
    let names: Vec<String> = servers.iter().map(|server| server.name.clone()).collect();

    let mut plain = Section::new(
        "One key and a million",
        "Requests one by one. The second row of each command draws its key at random out of all.",
        &names,
    );
    let one_by_one = [
        ("SET, one key", (Verb::Set, 1, None)),
        ("SET, random keys", (Verb::Set, 1, Some(keys))),
        ("GET, one key", (Verb::Get, 1, None)),
        ("GET, random keys", (Verb::Get, 1, Some(keys))),
    ]
    .map(|(name, row)| (name.to_string(), row));
    let timed = |round, (verb, depth, keyspace): &(Verb, usize, Option<u64>), server: &Server| {
        measure(lab, round, server, *verb, *depth, *keyspace, keys)
    };
    lab.alternate(&mut plain, &servers, &one_by_one, timed)?;
    plain.plot_bars("throughput");
    results.sections.push(plain);

    for (verb, title) in [(Verb::Get, "GET in pipelines"), (Verb::Set, "SET in pipelines")] {
        let mut sweep = Section::new(
            title,
            "Rows are requests in a pipeline; random keys. Latency counts from the sending of a pipeline to the reply.",
            &names,
        );
        let rows = DEPTHS.map(|depth| (depth.to_string(), (verb, depth, Some(keys))));
        lab.alternate(&mut sweep, &servers, &rows, timed)?;
        sweep.plot_curve("requests in a pipeline", "throughput");
        sweep.plot_curve("requests in a pipeline", "server CPU per request");
        results.sections.push(sweep);
    }
    results.checks.push("500 values of every length up to 200 bytes came back byte for byte".into());
    results.checks.push("every GET of a timed run found its key and carried the whole value".into());
    results.checks.push(format!("every server held exactly {keys} keys after every timed run"));
    Ok(results)
}

/// Writes exactly the keys that will be read.
pub fn fill(lab: &Lab, server: &Server, keys: u64) -> Result<(), String> {
    let mut plan = lab.plan("SET key:__seq_int__ __data__", Some(keys), VALUE_BYTES, 0);
    plan.requests = Some(keys);
    plan.clients = 8;
    plan.pipeline = FILL_PIPELINE;
    server.load(&plan, &Progress::default())?;
    server.expect_keys(keys)
}

/// Figures of a warmed-up, timed run.
pub fn measure_words(
    lab: &Lab,
    round: u32,
    server: &Server,
    words: &str,
    depth: usize,
    keyspace: Option<u64>,
) -> Result<(Outcome, Vec<Sample>), String> {
    let mut plan = lab.plan(words, keyspace, VALUE_BYTES, round);
    plan.clients = CLIENTS;
    plan.pipeline = depth;
    plan.requests = None;
    plan.duration = Some(lab.scale.time(WARMUP));
    server.load(&plan, &Progress::default())?;
    plan.duration = Some(lab.scale.time(MEASURED));
    let measured = server.measure(&plan)?;
    let outcome = measured.outcome;
    let mut samples = vec![sample("throughput", "requests/s", outcome.requests_per_second())];
    if let Some(cpu) = measured.cpu {
        let per_request = cpu.as_secs_f64() * 1e6 / outcome.tally.replies as f64;
        samples.push(sample("server CPU per request", "µs", per_request));
    }
    samples.push(sample("p50", "ms", outcome.latencies.quantile_ms(0.5)));
    samples.push(sample("p99", "ms", outcome.latencies.quantile_ms(0.99)));
    Ok((outcome, samples))
}

fn measure(
    lab: &Lab,
    round: u32,
    server: &Server,
    verb: Verb,
    depth: usize,
    keyspace: Option<u64>,
    keys: u64,
) -> Result<Vec<Sample>, String> {
    let (outcome, samples) = measure_words(lab, round, server, verb.words(), depth, keyspace)?;
    if verb == Verb::Get {
        expect_hits(&outcome)?;
    }
    server.expect_keys(keys)?;
    Ok(samples)
}

/// Fails unless every reply carried a whole value.
pub fn expect_hits(outcome: &Outcome) -> Result<(), String> {
    let tally = &outcome.tally;
    let expected = tally.replies * VALUE_BYTES as u64;
    if tally.nulls > 0 || tally.payload_bytes != expected {
        return Err(format!(
            "wrong answers: {} of {} GETs found nothing, {} bytes came instead of {expected}",
            tally.nulls, tally.replies, tally.payload_bytes
        ));
    }
    Ok(())
}
