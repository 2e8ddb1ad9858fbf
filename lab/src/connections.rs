//! E3, "gevent, eventlet, Node.js": many connections at once are normal.

use super::contender::{CLIENTS_MAX, Contender, Settings};
use super::experiment::{Cost, Experiment, Lab, Size, expect_hits, names};
use super::results::{Results, Section};
use dunlin_bench::figures::thousands;

/// The row of the lab's table.
pub const CONNECTIONS: Experiment = Experiment {
    name: "connections",
    founding: "E3",
    title: "1 to {connections} connections at once",
    explanation: [
        "GET from 1, 10, 100 … {connections} connections that each wait for their reply.",
        "Answers whether a server keeps its rate, and every client its turn, when many are there.",
        "Look at the server's CPU time per request, which should not grow, and at p99.9.",
    ],
    sizes: &[CONNECTIONS_MAX],
    cost: Cost { always_s: 0.3, timed_s: 7.0, sized_s: 1.0 },
    run,
};

const CONNECTIONS_MAX: Size = Size::new("connections", 10_000, 100).at_most_full();
const KEYS: u64 = 100_000;
const VALUE_BYTES: usize = 100;
const COUNTS: [u64; 5] = [1, 10, 100, 1000, CONNECTIONS_MAX.full];
/// Descriptors for everything but the load.
const SPARE_DESCRIPTORS: u64 = 512;

fn run(lab: &Lab) -> Result<Results, String> {
    let keys = lab.scale.count(KEYS, 100);
    let mut results = Results::new(&CONNECTIONS, lab.scale);
    let servers = lab.start(&mut results, Settings::MemoryOnly, Contender::speaks_redis)?;
    results.setting(format!(
        "{} keys, {VALUE_BYTES} random bytes each; closed loop; servers take up to {CLIENTS_MAX} clients",
        thousands(keys)
    ));
    lab.prepare(&servers, keys, VALUE_BYTES)?;
    let (descriptors, _) = rlimit::Resource::NOFILE
        .get()
        .map_err(|error| format!("cannot tell the limit of open files: {error}"))?;
    let most = lab.scale.of(CONNECTIONS_MAX).min(descriptors.saturating_sub(SPARE_DESCRIPTORS));
    let rows: Vec<(String, u64)> =
        COUNTS.iter().filter(|count| **count <= most).map(|count| (count.to_string(), *count)).collect();
    if rows.len() < COUNTS.len() {
        results.notes.push(format!(
            "more than {most} connections are left out: the scale is {}, the limit of open files {descriptors}",
            lab.scale.0
        ));
    }
    let mut section = Section::new(
        "GET from many connections",
        "Rows are connections, one request each.",
        &names(&servers),
    );
    lab.alternate(&mut section, &servers, &rows, |round, connections, server| {
        let mut plan = lab.plan("GET key:__rand_int__", Some(keys), VALUE_BYTES, round);
        plan.clients = *connections as usize;
        let measured = lab.timed(&plan, |plan| server.measure(plan))?;
        expect_hits(&measured.outcome, VALUE_BYTES)?;
        server.expect_keys(keys)?;
        Ok(measured.samples())
    })?;
    section.plot_curve("connections", "throughput");
    section.plot_curve("connections", "server CPU per request");
    section.plot_curve("connections", "p99.9");
    results.sections.push(section);
    results.checks.push("every GET found its key and carried the whole value".into());
    Ok(results)
}
