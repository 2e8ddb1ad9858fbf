//! What commands cost, and how they fail.

use std::collections::BTreeMap;

use super::{Lines, Source};
use crate::statistics::CommandTotals;

/// Every command that has been asked for since the last reset, by full name.
fn totals<'a>(source: &'a Source<'_>) -> impl Iterator<Item = (String, CommandTotals)> + use<'a> {
    let entries = source.shared.commands.entries().iter();
    entries.map(|entry| (entry.full_name(), CommandTotals::of(&source.shared.monitor.workers, entry.index)))
}

pub(super) fn commands(source: &Source<'_>, lines: &mut Lines) {
    for (name, CommandTotals { calls, nanoseconds, rejected, failed, .. }) in totals(source) {
        if calls + rejected + failed == 0 {
            continue;
        }
        let per_call = nanoseconds as f64 / 1000.0 / calls.max(1) as f64;
        let total_us = nanoseconds / 1000;
        lines.add(
            format_args!("cmdstat_{name}"),
            format_args!(
                "calls={calls},usec={total_us},usec_per_call={per_call:.2},rejected_calls={rejected},failed_calls={failed}"
            ),
        );
    }
}

pub(super) fn errors(source: &Source<'_>, lines: &mut Lines) {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for worker in &source.shared.monitor.workers {
        for (code, count) in worker.errors.by_code().iter() {
            *sums.entry(code.clone()).or_default() += count;
        }
    }
    for (code, count) in sums {
        lines.add(format_args!("errorstat_{code}"), format_args!("count={count}"));
    }
}

pub(super) fn latencies(source: &Source<'_>, lines: &mut Lines) {
    let percentiles = &source.config.latency_tracking_info_percentiles;
    for (name, totals) in totals(source) {
        if totals.latencies.count() == 0 {
            continue;
        }
        let parts: Vec<String> = percentiles
            .iter()
            .map(|percentile| {
                let nanoseconds = totals.latencies.percentile(*percentile);
                format!("p{percentile}={:.3}", nanoseconds as f64 / 1000.0)
            })
            .collect();
        lines.add(format_args!("latency_percentiles_usec_{name}"), parts.join(","));
    }
}
