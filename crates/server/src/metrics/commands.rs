//! Series of commands: calls, time and failures of each, latencies of each and of each family.

use dunlin_engine::command::Group;

use super::exposition::{Exposition, Kind};
use crate::{info::Reading, observe::command_stats::CommandTotals};

/// Upper bounds of the histograms, as powers of two in nanoseconds: 1 µs to 0.5 ms by the factor 2, from there to 17 s by
/// the factor 4.
pub(super) const BOUNDS: [u32; 18] = [10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 22, 24, 26, 28, 30, 32, 34];

/// The counts of one command over all workers.
struct Counted {
    name: String,
    group: Group,
    totals: CommandTotals,
}

pub(super) fn write(reading: &Reading<'_>, out: &mut Exposition) {
    let entries = reading.shared.commands.entries().iter();
    let counted: Vec<Counted> = entries
        .map(|entry| Counted {
            name: entry.full_name(),
            group: entry.command.group,
            totals: CommandTotals::of(&reading.shared.stats.workers, entry.index),
        })
        .filter(|Counted { totals, .. }| totals.calls + totals.rejected + totals.failed > 0)
        .collect();
    write_counts(&counted, out);
    write_percentiles(reading, &counted, out);
    write_latencies(&counted, out);
    write_families(&counted, out);
}

fn write_counts(counted: &[Counted], out: &mut Exposition) {
    let mut each = |name: &str, help: &str, value: fn(&CommandTotals) -> f64| {
        out.begin(name, Kind::Counter, help);
        for Counted { name: command, totals, .. } in counted {
            out.sample(name, &[("cmd", command)], value(totals));
        }
    };
    each("redis_commands_total", "How often each command ran.", |totals| totals.calls as f64);
    each("redis_commands_duration_seconds_total", "How long the calls of each command took.", |totals| {
        totals.nanoseconds as f64 / 1e9
    });
    each("redis_commands_rejected_calls_total", "Calls refused before they ran.", |totals| {
        totals.rejected as f64
    });
    each("redis_commands_failed_calls_total", "Calls answered with an error.", |totals| totals.failed as f64);
}

fn write_percentiles(reading: &Reading<'_>, counted: &[Counted], out: &mut Exposition) {
    const NAME: &str = "redis_latency_percentiles_usec";
    out.begin(NAME, Kind::Summary, "Percentiles of `latency-tracking-info-percentiles`, in microseconds.");
    for Counted { name, totals, .. } in counted.iter().filter(|counted| counted.totals.latencies.count() > 0)
    {
        let labels = [("cmd", name.as_str())];
        for percentile in &reading.config.latency_tracking_info_percentiles {
            let microseconds = totals.latencies.percentile(*percentile) as f64 / 1000.0;
            // Rounded, so that 99.9% is 0.999 and nothing near it.
            let quantile = (percentile * 1e6).round() / 1e8;
            out.bounded(NAME, &labels, ("quantile", quantile), microseconds);
        }
        out.sample("redis_latency_percentiles_usec_sum", &labels, totals.nanoseconds as f64 / 1000.0);
        out.sample("redis_latency_percentiles_usec_count", &labels, totals.calls);
    }
}

/// The bounds have the labels that LATENCY HISTOGRAM gives them, as redis_exporter's have.
fn write_latencies(counted: &[Counted], out: &mut Exposition) {
    out.begin(
        "redis_commands_latencies_usec",
        Kind::Histogram,
        "Latencies of each command, in microseconds.",
    );
    for Counted { name, totals, .. } in counted.iter().filter(|counted| counted.totals.latencies.count() > 0)
    {
        let labels = [("cmd", name.as_str())];
        let below = totals.latencies.below(&BOUNDS);
        for (power, count) in BOUNDS.iter().zip(&below) {
            let bound = (1_u64 << power) + (1 << (power - 7)) - 1;
            out.bounded(
                "redis_commands_latencies_usec_bucket",
                &labels,
                ("le", (bound / 1000) as f64),
                *count,
            );
        }
        let count = totals.latencies.count();
        out.bounded("redis_commands_latencies_usec_bucket", &labels, ("le", f64::INFINITY), count);
        out.sample("redis_commands_latencies_usec_sum", &labels, totals.nanoseconds as f64 / 1000.0);
        out.sample("redis_commands_latencies_usec_count", &labels, count);
    }
}

fn write_families(counted: &[Counted], out: &mut Exposition) {
    const NAME: &str = "dunlin_command_duration_seconds";
    out.begin(NAME, Kind::Histogram, "Latencies of the commands of each family.");
    let mut groups: Vec<Group> = Vec::new();
    for Counted { group, totals, .. } in counted {
        if totals.latencies.count() > 0 && !groups.contains(group) {
            groups.push(*group);
        }
    }
    for group in groups {
        let (mut below, mut count, mut nanoseconds) = ([0; BOUNDS.len()], 0, 0);
        for Counted { totals, .. } in counted.iter().filter(|counted| counted.group == group) {
            let add = |(sum, of): (&mut u64, u64)| *sum += of;
            below.iter_mut().zip(totals.latencies.below(&BOUNDS)).for_each(add);
            count += totals.latencies.count();
            nanoseconds += totals.nanoseconds;
        }
        write_histogram(out, NAME, &[("family", group.name())], &below, (count, nanoseconds));
    }
}

/// A histogram of seconds over [`BOUNDS`]: how many lie below each, how many there are, and their sum in nanoseconds.
pub(super) fn write_histogram(
    out: &mut Exposition,
    name: &str,
    labels: &[(&str, &str)],
    below: &[u64],
    (count, nanoseconds): (u64, u64),
) {
    let bucket = format!("{name}_bucket");
    for (power, below) in BOUNDS.iter().zip(below) {
        out.bounded(&bucket, labels, ("le", (1_u64 << power) as f64 / 1e9), *below);
    }
    out.bounded(&bucket, labels, ("le", f64::INFINITY), count);
    out.sample(&format!("{name}_sum"), labels, nanoseconds as f64 / 1e9);
    out.sample(&format!("{name}_count"), labels, count);
}
