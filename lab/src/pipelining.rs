//! E1, "How many requests per second?": GET and SET of one key and of a million, and the curve of
//! requests per second over the depth of pipelines.

use super::contender::{Contender, Settings};
use super::experiment::{CLIENTS, Cost, Experiment, Lab, Size, expect_hits, names};
use super::results::{Results, Section};
use super::server::Server;
use dunlin_bench::figures::{Sample, thousands};

/// The row of the lab's table.
pub const PIPELINING: Experiment = Experiment {
    name: "pipelining",
    founding: "E1",
    title: "How many requests per second?",
    explanation: [
        "GET and SET from 50 connections, of one key and of {keys}, then of all of them in pipelines.",
        "Answers how much a pipeline of 1, 2, 4 … 1000 requests saves, and whether many keys cost more.",
        "Look at the server's CPU time per request: it stays true where the load is what limits the rate.",
    ],
    sizes: &[KEYS],
    cost: Cost { always_s: 1.5, timed_s: 35.0, sized_s: 2.0 },
    run,
};

const KEYS: Size = Size::new("keys", 1_000_000, 100);
const VALUE_BYTES: usize = 100;
const DEPTHS: [usize; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000];

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
    let keys = lab.scale.of(KEYS);
    let mut results = Results::new(&PIPELINING, lab.scale);
    let servers = lab.start(&mut results, Settings::MemoryOnly, Contender::speaks_redis)?;
    results.setting(format!(
        "{} keys, {VALUE_BYTES} random bytes each; {CLIENTS} connections, closed loop",
        thousands(keys)
    ));
    lab.prepare(&servers, keys, VALUE_BYTES)?;
    let names = names(&servers);

    let mut plain = Section::new(
        &format!("One key and {}", thousands(keys)),
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
    let timed =
        |round, row: &(Verb, usize, Option<u64>), server: &Server| measure(lab, round, server, *row, keys);
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
    results.checks.push(format!("every server held exactly {} keys after every timed run", thousands(keys)));
    Ok(results)
}

fn measure(
    lab: &Lab,
    round: u32,
    server: &Server,
    (verb, depth, keyspace): (Verb, usize, Option<u64>),
    keys: u64,
) -> Result<Vec<Sample>, String> {
    let mut plan = lab.plan(verb.words(), keyspace, VALUE_BYTES, round);
    plan.pipeline = depth;
    let measured = lab.timed(&plan, |plan| server.measure(plan))?;
    if verb == Verb::Get {
        expect_hits(&measured.outcome, VALUE_BYTES)?;
    }
    server.expect_keys(keys)?;
    Ok(measured.samples())
}
