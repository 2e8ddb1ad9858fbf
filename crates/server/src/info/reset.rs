//! `CONFIG RESETSTAT`.

use super::{Reading, metric::Read, metrics};

/// Starts all statistics anew.
pub(crate) fn reset(reading: &Reading<'_>) {
    let stats = &reading.shared.stats;
    stats.reset();
    let counters = metrics().filter_map(|metric| match metric.read {
        Read::Counter { since_reset: true, read } => Some((metric.name, read(reading))),
        _ => None,
    });
    let values = counters.collect();
    stats.baseline.set(values);
}
