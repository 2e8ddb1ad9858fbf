//! E4, "Redis and Aerospike on one big machine": ten million keys, inserted, then read and updated in
//! three mixes by 90 clients, in memory and with an append-only file.

use super::contender::{Contender, Settings};
use super::experiment::{Cost, Experiment, Lab, Size, names};
use super::results::{Results, Section};
use super::server::{Measured, Server};
use super::slo::{self, Slo};
use dunlin_bench::figures::{Sample, sample, thousands};
use dunlin_bench::load::Plan;
use dunlin_bench::template::Template;

/// The row of the lab's table.
pub const MIXES: Experiment = Experiment {
    name: "mixes",
    founding: "E4",
    title: "{keys} keys: insert, then 50/50, 80/20 and 100/0",
    explanation: [
        "Inserts {keys} keys of 100 bytes, then reads and updates them in three mixes from 90 connections.",
        "Once in memory only and once with an append-only file; add --peer sharded=K for K processes of Redis.",
        "Look at the share of operations over 1, 2, 4 and 8 ms, and at bytes per key.",
    ],
    sizes: &[KEYS],
    cost: Cost { always_s: 2.0, timed_s: 8.0, sized_s: 60.0 },
    run,
};

const KEYS: Size = Size::new("keys", 10_000_000, 1000);
const VALUE_BYTES: usize = 100;
const CLIENTS: usize = 90;
const INSERT_PIPELINE: usize = 16;
const LIMITS_MS: [(&str, f64); 4] =
    [("over 1 ms", 1.0), ("over 2 ms", 2.0), ("over 4 ms", 4.0), ("over 8 ms", 8.0)];
/// Reads in a hundred operations.
pub const MIXES_OF_READS: [(&str, u32); 3] = [("50/50", 50), ("80/20", 80), ("100/0", 100)];
const SLO_STEPS: u32 = 7;

fn run(lab: &Lab) -> Result<Results, String> {
    let keys = lab.scale.of(KEYS);
    let mut results = Results::new(&MIXES, lab.scale);
    results
        .setting(format!("{} keys, {VALUE_BYTES} random bytes each; {CLIENTS} connections", thousands(keys)));
    let servers = lab.start(&mut results, Settings::MemoryOnly, Contender::speaks_redis)?;
    measure_all(lab, &mut results, "In memory", servers, keys)?;
    let servers = lab.start_appending(&mut results, Contender::speaks_redis)?;
    if !servers.is_empty() {
        measure_all(lab, &mut results, "With an append-only file", servers, keys)?;
    }
    results.checks.push("every read found its key and carried a whole value".into());
    results.checks.push(format!(
        "every server held exactly {} keys after the insert and after every mix",
        thousands(keys)
    ));
    Ok(results)
}

fn measure_all(
    lab: &Lab,
    results: &mut Results,
    title: &str,
    servers: Vec<Server>,
    keys: u64,
) -> Result<(), String> {
    let mut insert = Section::new(
        &format!("{title}: insert"),
        "Every key once into an empty server, 16 requests in a pipeline; memory is what the processes hold above what \
         they held empty, when it has come to rest.",
        &names(&servers),
    );
    for server in &servers {
        lab.bar.set_message(format!("{title}: insert on {}", server.name));
        let failed = |error: String| format!("{title}: insert on {}: {error}", server.name);
        server.check_answers(2 * VALUE_BYTES).map_err(failed)?;
        insert.table.add("insert", &server.name, insert_keys(lab, server, keys).map_err(failed)?);
    }
    insert.plot_bars("throughput");
    results.sections.push(insert);

    let mut mixes = Section::new(
        &format!("{title}: reads and updates"),
        "Rows are reads/updates in a hundred, closed loop. Where an SLO was asked for, the highest rate of an open loop \
         that keeps it.",
        &names(&servers),
    );
    let rows = MIXES_OF_READS.map(|(name, reads)| (name.to_string(), reads));
    lab.alternate(&mut mixes, &servers, &rows, |round, reads, server| {
        let plan = mix(lab, *reads, keys, round);
        let measured = lab.timed(&plan, |plan| checked(server, plan, keys))?;
        let mut samples = measured.samples();
        samples.push(sample("max", "ms", measured.outcome.latencies.summary().max));
        for (name, limit_ms) in LIMITS_MS {
            let share = measured.outcome.latencies.fraction_over_ms(limit_ms) * 100.0;
            samples.push(sample(name, "% of operations", share));
        }
        if let Some(slo) = lab.slo {
            samples.push(within(lab, server, &plan, slo, keys, measured.outcome.requests_per_second())?);
        }
        Ok(samples)
    })?;
    mixes.plot_bars("throughput");
    if let Some(slo) = lab.slo {
        results.setting(format!("{SLO_METRIC}: {slo}, open loop"));
        mixes.plot_bars(SLO_METRIC);
    }
    results.sections.push(mixes);
    Ok(())
}

const SLO_METRIC: &str = "highest rate that keeps the SLO";

fn mix(lab: &Lab, reads: u32, keys: u64, round: u32) -> Plan {
    let mut plan = lab.plan("", Some(keys), VALUE_BYTES, round);
    plan.template =
        Template::mix(&[(reads, "GET key:__rand_int__"), (100 - reads, "SET key:__rand_int__ __data__")]);
    plan.clients = CLIENTS;
    plan
}

fn insert_keys(lab: &Lab, server: &Server, keys: u64) -> Result<Vec<Sample>, String> {
    let empty = server.settled_bytes()?;
    let mut plan = lab.plan("SET key:__seq_int__ __data__", Some(keys), VALUE_BYTES, 0);
    plan.requests = Some(keys);
    plan.clients = CLIENTS;
    plan.pipeline = INSERT_PIPELINE;
    let measured = server.measure(&plan)?;
    server.expect_keys(keys)?;
    let mut samples = measured.samples();
    samples.push(sample("memory per key", "B", (server.settled_bytes()? - empty) / keys as f64));
    Ok(samples)
}

/// A run whose reads must all have found whole values.
fn checked(server: &Server, plan: &Plan, keys: u64) -> Result<Measured, String> {
    let measured = server.measure(plan)?;
    let tally = &measured.outcome.tally;
    if tally.nulls > 0 || tally.payload_bytes % VALUE_BYTES as u64 != 0 {
        return Err(format!(
            "wrong answers: {} reads found nothing, {} bytes came",
            tally.nulls, tally.payload_bytes
        ));
    }
    server.expect_keys(keys)?;
    Ok(measured)
}

/// The highest rate of an open loop that keeps the objective, searched up to the rate of the closed loop.
fn within(lab: &Lab, server: &Server, plan: &Plan, slo: Slo, keys: u64, most: f64) -> Result<Sample, String> {
    let rate = slo::highest_rate(most, SLO_STEPS, |rate| {
        let mut open = plan.clone();
        open.rate = Some(rate);
        let outcome = lab.timed(&open, |plan| checked(server, plan, keys))?.outcome;
        Ok(outcome.unsent == 0 && outcome.latencies.quantile_ms(slo.quantile) <= slo.within_ms())
    })?;
    Ok(sample(SLO_METRIC, "requests/s", rate))
}
