//! Calls, time and failures of commands, and errors by their codes.

use std::{collections::BTreeMap, time::Instant};

use super::{
    Reading,
    metric::{Family, Metric, Number, Row, Unit},
};
use crate::observe::command_stats::CommandTotals;

pub(super) const COMMANDS_ROWS: &[Row] = &[Row::Each(Family {
    prefix: "cmdstat_",
    label: "command",
    summary: "Each command that has been asked for since the last reset.",
    fields: &[
        ("calls", Unit::Count, "How often it ran."),
        ("usec", Unit::Microseconds, "How long these calls took."),
        ("usec_per_call", Unit::Microseconds, "The same of one on average."),
        ("rejected_calls", Unit::Count, "Refused before they ran."),
        ("failed_calls", Unit::Count, "Answered with an error."),
    ],
    read: |reading, line| {
        for (name, CommandTotals { calls, nanoseconds, rejected, failed, .. }) in totals(reading) {
            if calls + rejected + failed == 0 {
                continue;
            }
            let per_call = nanoseconds as f64 / 1000.0 / calls.max(1) as f64;
            let fields = [
                ("calls", calls.into()),
                ("usec", (nanoseconds / 1000).into()),
                ("usec_per_call", Number::Decimal(per_call, 2)),
                ("rejected_calls", rejected.into()),
                ("failed_calls", failed.into()),
            ];
            line(&name, &fields);
        }
    },
})];

pub(super) const ERRORS_ROWS: &[Row] = &[Row::Each(Family {
    prefix: "errorstat_",
    label: "code",
    summary: "Errors by their first word, since the last reset.",
    fields: &[("count", Unit::Count, "How many.")],
    read: |reading, line| {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for worker in &reading.shared.stats.workers {
            for (code, count) in worker.errors.by_code().iter() {
                *sums.entry(code.clone()).or_default() += count;
            }
        }
        for (code, count) in sums {
            line(&code, &[("count", count.into())]);
        }
    },
})];

pub(super) const LATENCIES_ROWS: &[Row] = &[Row::Each(COMMAND_LATENCIES), Row::Each(STAGE_LATENCIES)];

/// The stages of requests and their times.
const STAGE_LATENCIES: Family = Family {
    prefix: "latency_stage_usec_",
    label: "stage",
    summary: "How long requests waited for other connections of their worker (queue), slept for locks (lock), were executed (run), and how long writes to sockets took (write), of one tick in 61, but of all sleeps; since the start.",
    fields: &[
        ("count", Unit::Count, "How many were measured."),
        ("p50", Unit::Microseconds, "Power of two (in nanoseconds) below which half of them lie."),
        ("p99", Unit::Microseconds, "The same of 99%."),
        ("p99.9", Unit::Microseconds, "The same of 99.9%."),
    ],
    read: |reading, line| {
        for (stage, counts) in reading.shared.stats.stages() {
            let bound = |percent| Number::Decimal(counts.percentile(percent) as f64 / 1000.0, 3);
            let count = counts.count().into();
            line(
                &stage,
                &[("count", count), ("p50", bound(50.0)), ("p99", bound(99.0)), ("p99.9", bound(99.9))],
            );
        }
    },
};

const COMMAND_LATENCIES: Family = Family {
    prefix: "latency_percentiles_usec_",
    label: "command",
    summary: "How long each command took, since the last reset.",
    fields: &[(
        "p50, p99, p99.9",
        Unit::Microseconds,
        "Percentiles, as `latency-tracking-info-percentiles` names them.",
    )],
    read: |reading, line| {
        let percentiles = &reading.config.latency_tracking_info_percentiles;
        let names: Vec<String> = percentiles.iter().map(|percentile| format!("p{percentile}")).collect();
        for (name, totals) in totals(reading) {
            if totals.latencies.count() == 0 {
                continue;
            }
            let microseconds = |percentile: &f64| {
                Number::Decimal(totals.latencies.percentile(*percentile) as f64 / 1000.0, 3)
            };
            let values = percentiles.iter().map(microseconds);
            let fields: Vec<_> = names.iter().map(String::as_str).zip(values).collect();
            line(&name, &fields);
        }
    },
};

/// The names have hyphens in Redis 8.6, too.
pub(super) const HOT_KEYS_ROWS: &[Row] = &[
    Row::One(Metric::gauge("tracking-active", Unit::Flag, "Whether keys are being counted.", |reading| {
        reading.hot_keys().is_some_and(|session| session.is_active(Instant::now())).into()
    })),
    Row::One(Metric::gauge("used-memory", Unit::Bytes, "Memory of the counts.", |reading| {
        reading.hot_keys().map_or(0, |session| session.used_bytes()).into()
    })),
    // Redis adds up the whole milliseconds that each update of its tables takes, which come to none.
    Row::One(Metric::none("cpu-time", "Whole milliseconds that counting took for each command: none.")),
];

/// Every command that has been asked for since the last reset, by full name.
fn totals<'a>(reading: &'a Reading<'_>) -> impl Iterator<Item = (String, CommandTotals)> + use<'a> {
    let entries = reading.shared.commands.entries().iter();
    entries.map(|entry| (entry.full_name(), CommandTotals::of(&reading.shared.stats.workers, entry.index)))
}
