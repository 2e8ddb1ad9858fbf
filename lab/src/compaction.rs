//! E4, the wall: throughput over time while the append-only file is rewritten. Its author switched
//! rewrites off on purpose, because "during these times peak throughput is reduced".

use std::thread;
use std::time::{Duration, Instant};

use super::contender::Contender;
use super::experiment::{Cost, Experiment, Lab, Size, names};
use super::mixes::MIXES_OF_READS;
use super::results::{Results, Section};
use super::server::Server;
use dunlin_bench::figures::{Sample, sample, thousands};
use dunlin_bench::latency::Latencies;
use dunlin_bench::plot::course::{Stretch, plot_course, stretches};
use dunlin_bench::target::Client;
use dunlin_bench::template::Template;

/// The row of the lab's table.
pub const COMPACTION: Experiment = Experiment {
    name: "compaction",
    founding: "E4",
    title: "Throughput over time while the append-only file is compacted",
    explanation: [
        "Reads and updates of {keys} keys in three mixes; a quarter into each, BGREWRITEAOF.",
        "Answers whether compaction costs throughput and latency, and for how long.",
        "Look at the dip of the curve inside the shaded stretch, and at p99.9 and max there.",
    ],
    sizes: &[KEYS],
    cost: Cost { always_s: 0.5, timed_s: 60.0, sized_s: 10.0 },
    run,
};

const KEYS: Size = Size::new("keys", 5_000_000, 1000);
const VALUE_BYTES: usize = 100;
const CLIENTS: usize = 90;
const PIPELINE: usize = 4;
const MEASURED: Duration = Duration::from_secs(20);
/// Slices of a run.
const SLICES: u32 = 80;
const POLL: Duration = Duration::from_millis(5);
/// How long a compaction may go on after the load has ended.
const COMPACTION_MAX: Duration = Duration::from_secs(300);

fn run(lab: &Lab) -> Result<Results, String> {
    let keys = lab.scale.of(KEYS);
    let measured = lab.scale.time(MEASURED).max(Duration::from_millis(800));
    let mut results = Results::new(&COMPACTION, lab.scale);
    let mut servers = lab.start_appending(&mut results, Contender::speaks_redis)?;
    servers.retain(|server| {
        let can = server.knows("BGREWRITEAOF");
        if !can {
            results.notes.push(format!("{} is left out: it has no BGREWRITEAOF", server.name));
        }
        can
    });
    if servers.is_empty() {
        return Err(format!("no server can do it: {}", results.notes.join("; ")));
    }
    results.setting(format!(
        "{} keys, {VALUE_BYTES} random bytes each; {CLIENTS} connections, {PIPELINE} requests in a pipeline, \
         closed loop for {} s",
        thousands(keys),
        measured.as_secs_f64()
    ));
    lab.prepare(&servers, keys, VALUE_BYTES)?;
    for (mix, reads) in MIXES_OF_READS {
        results.sections.push(measure(lab, &servers, (mix, reads), keys, measured)?);
    }
    results.checks.push("every read found its key and carried a whole value, compaction or not".into());
    results.checks.push(format!(
        "every server held exactly {} keys in the end, and said that compaction succeeded",
        thousands(keys)
    ));
    Ok(results)
}

/// Measures one mix on all servers, in all rounds.
fn measure(
    lab: &Lab,
    servers: &[Server],
    (mix, reads): (&str, u32),
    keys: u64,
    measured: Duration,
) -> Result<Section, String> {
    let mut section = Section::new(
        &format!("{mix} reads and updates before, during and after compaction"),
        "Requests that were answered in slices of time wholly inside each stretch; the curves are those of the last round.",
        &names(servers),
    );
    let (mut curves, slice) = (Vec::new(), measured / SLICES);
    lab.bar.inc_length(u64::from(lab.rounds) * servers.len() as u64);
    for round in 0..lab.rounds {
        curves.clear();
        for turn in 0..servers.len() {
            let server = &servers[(turn + round as usize) % servers.len()];
            lab.bar.set_message(format!("compaction under {mix} on {}", server.name));
            let failed = |error: String| format!("{mix} on {}: {error}", server.name);
            let (slices, stretch) = over_time(lab, server, reads, keys, measured, round).map_err(failed)?;
            for (row, latencies) in stretches(&slices, slice, stretch) {
                if let Some(samples) = samples(&latencies, slice) {
                    section.table.add(row, &server.name, samples);
                }
            }
            section.table.add(
                "compaction",
                &server.name,
                vec![sample("time", "s", (stretch.1 - stretch.0).as_secs_f64())],
            );
            curves.push((server.name.clone(), slices, stretch));
            lab.bar.inc(1);
        }
    }
    curves.sort_by_key(|(name, ..)| servers.iter().position(|server| server.name == *name));
    let throughput = format!("{mix}: throughput over time");
    section.plots.push(plot_course(&throughput, "requests/s", slice, &curves, |latencies| {
        latencies.count() as f64 / slice.as_secs_f64()
    }));
    for (quantile, name) in [(0.99, "p99"), (0.999, "p99.9")] {
        let title = format!("{mix}: {name} over time");
        section
            .plots
            .push(plot_course(&title, "ms", slice, &curves, |latencies| latencies.quantile_ms(quantile)));
    }
    Ok(section)
}

/// Loads a server in slices of time and has it compact its file meanwhile.
fn over_time(
    lab: &Lab,
    server: &Server,
    reads: u32,
    keys: u64,
    measured: Duration,
    round: u32,
) -> Result<(Vec<Latencies>, Stretch), String> {
    let mut plan = lab.plan("", Some(keys), VALUE_BYTES, round);
    plan.template =
        Template::mix(&[(reads, "GET key:__rand_int__"), (100 - reads, "SET key:__rand_int__ __data__")]);
    plan.clients = CLIENTS;
    plan.pipeline = PIPELINE;
    plan.requests = None;
    plan.duration = Some(measured);
    plan.slice = Some(measured / SLICES);
    let start = Instant::now();
    let (outcome, stretch) = thread::scope(|scope| {
        let compacting = scope.spawn(|| compact(server, start, measured / 4));
        let outcome = server.load(&plan);
        (outcome, compacting.join().expect("the compacting thread panicked"))
    });
    let (outcome, stretch) = (outcome?, stretch?);
    let tally = &outcome.tally;
    if tally.nulls > 0 || tally.payload_bytes % VALUE_BYTES as u64 != 0 {
        return Err(format!("wrong answers: {} reads found nothing", tally.nulls));
    }
    server.expect_keys(keys)?;
    let mut slices = outcome.slices;
    // Requests under way when the time was over fell into a slice of their own.
    slices.truncate(SLICES as usize);
    Ok((slices, stretch))
}

/// Makes all processes of a server compact their files when it is due, and watches them to the end of the last.
fn compact(server: &Server, start: Instant, due: Duration) -> Result<Stretch, String> {
    thread::sleep(due.saturating_sub(start.elapsed()));
    let begun = start.elapsed();
    server.ask_all(&["BGREWRITEAOF"])?;
    for backend in &server.backends {
        let mut client = backend.client().map_err(|error| error.to_string())?;
        while is_compacting(&mut client)? {
            if start.elapsed() > begun + COMPACTION_MAX {
                return Err(format!("compaction goes on after {} s", COMPACTION_MAX.as_secs()));
            }
            thread::sleep(POLL);
        }
    }
    Ok((begun, start.elapsed()))
}

/// Whether a process has not yet compacted its file; fails if that did not succeed.
fn is_compacting(client: &mut Client) -> Result<bool, String> {
    let info = client.info("persistence").map_err(|error| error.to_string())?;
    let info = info.ok_or("INFO persistence was refused")?;
    let is_pending = ["aof_rewrite_in_progress", "aof_rewrite_scheduled"]
        .iter()
        .any(|field| info.number(field).is_some_and(|value| value > 0.0));
    match info.field("aof_last_bgrewrite_status") {
        _ if is_pending => Ok(true),
        Some("ok") => Ok(false),
        other => Err(format!("compaction ended with status {}", other.unwrap_or("unknown"))),
    }
}

fn samples(slices: &[&Latencies], slice: Duration) -> Option<Vec<Sample>> {
    let mut all = Latencies::default();
    slices.iter().for_each(|latencies| all.add(latencies));
    if slices.is_empty() || all.count() == 0 {
        return None;
    }
    let rate = |latencies: &Latencies, slices: usize| {
        latencies.count() as f64 / (slice.as_secs_f64() * slices as f64)
    };
    let slowest = slices.iter().map(|latencies| rate(latencies, 1)).fold(f64::INFINITY, f64::min);
    Some(vec![
        sample("throughput", "requests/s", rate(&all, slices.len())),
        sample("slowest slice", "requests/s", slowest),
        sample("p50", "ms", all.quantile_ms(0.5)),
        sample("p99", "ms", all.quantile_ms(0.99)),
        sample("p99.9", "ms", all.quantile_ms(0.999)),
        sample("max", "ms", all.summary().max),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_fall_before_during_and_after() {
        let slices: Vec<Latencies> = (0..10)
            .map(|index| {
                let mut slice = Latencies::default();
                slice.record(1_000_000, if index == 4 { 10 } else { 100 });
                slice
            })
            .collect();
        let second = Duration::from_secs(1);
        let parts = stretches(&slices, second, (second * 7 / 2, second * 11 / 2));
        assert_eq!(parts.each_ref().map(|(_, slices)| slices.len()), [3, 3, 4]);
        let during = samples(&parts[1].1, second).unwrap();
        assert_eq!((during[0].value, during[1].value), (70.0, 10.0));
        assert!(samples(&[], second).is_none());
    }
}
