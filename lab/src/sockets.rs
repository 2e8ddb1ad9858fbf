//! E2, Unix domain sockets: the author patched Redis 1.02 to get them, and saw up to twice the requests
//! in redis-benchmark and 30 to 50% in practice.

use super::contender::{Contender, Settings};
use super::experiment::{Cost, Experiment, Lab, expect_hits, names};
use super::results::{Results, Section};
use super::server::Server;
use dunlin_bench::figures::{Sample, sample, thousands};

/// The row of the lab's table.
pub const SOCKETS: Experiment = Experiment {
    name: "sockets",
    founding: "E2",
    title: "Unix domain sockets against TCP",
    explanation: [
        "GET over TCP on the loopback interface and over a Unix domain socket of the same server, back to back.",
        "Answers how much of a request is the network stack of the kernel.",
        "Look at the ratio of the two: it shrinks as pipelines get deeper.",
    ],
    sizes: &[],
    cost: Cost { always_s: 0.3, timed_s: 8.0, sized_s: 1.0 },
    run,
};

const KEYS: u64 = 100_000;
const VALUE_BYTES: usize = 100;

fn run(lab: &Lab) -> Result<Results, String> {
    let keys = lab.scale.count(KEYS, 100);
    let mut results = Results::new(&SOCKETS, lab.scale);
    let mut servers = lab.start(&mut results, Settings::MemoryOnly, Contender::is_whole)?;
    servers.retain(|server| {
        let both = server.unix.as_ref().is_some_and(|unix| *unix != server.fronts[0]);
        if !both {
            results.notes.push(format!("{} is left out: only one of its sockets is known", server.name));
        }
        both
    });
    if servers.is_empty() {
        return Err("no server whose Unix socket and port are both known was chosen".into());
    }
    results.setting(format!(
        "{} keys, {VALUE_BYTES} random bytes each; 50 connections, closed loop",
        thousands(keys)
    ));
    lab.prepare(&servers, keys, VALUE_BYTES)?;
    let mut section = Section::new(
        "GET over both sockets",
        "Rows are requests in a pipeline. The first figure is throughput over the Unix socket divided by that over TCP.",
        &names(&servers),
    );
    let rows = [1, 16, 100].map(|depth: usize| (format!("pipeline {depth}"), depth));
    lab.alternate(&mut section, &servers, &rows, |round, depth, server| {
        measure(lab, round, *depth, server, keys)
    })?;
    section.plot_bars("Unix ÷ TCP");
    results.sections.push(section);
    results.checks.push("every GET found its key and carried the whole value, over both sockets".into());
    Ok(results)
}

fn measure(lab: &Lab, round: u32, depth: usize, server: &Server, keys: u64) -> Result<Vec<Sample>, String> {
    let mut plan = lab.plan("GET key:__rand_int__", Some(keys), VALUE_BYTES, round);
    plan.pipeline = depth;
    let over = |fronts: &[_]| {
        let measured = lab.timed(&plan, |plan| server.measure_at(fronts, plan))?;
        expect_hits(&measured.outcome, VALUE_BYTES)?;
        Ok::<_, String>(measured)
    };
    let tcp = over(&server.fronts)?;
    let unix = over(server.unix.as_slice())?;
    let (tcp_rate, unix_rate) = (tcp.outcome.requests_per_second(), unix.outcome.requests_per_second());
    let mut samples = vec![
        sample("Unix ÷ TCP", "×", unix_rate / tcp_rate),
        sample("over TCP", "requests/s", tcp_rate),
        sample("over Unix", "requests/s", unix_rate),
    ];
    for (metric, measured) in [("server CPU, TCP", &tcp), ("server CPU, Unix", &unix)] {
        if let Some(cpu) = measured.cpu {
            let replies = measured.outcome.tally.replies as f64;
            samples.push(sample(metric, "µs per request", cpu.as_secs_f64() * 1e6 / replies));
        }
    }
    Ok(samples)
}
