//! The latency monitor: events that took `latency-monitor-threshold` milliseconds or more, as short
//! time series for `LATENCY`.
//!
//! An event is a kind of work (`command`, `fast-command`, `command-unblocking`, `expire-cycle`, …). Its series keeps one
//! sample a second, the worst of that second, and the 160 newest of these.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Samples kept of an event.
const SAMPLES_MAX: usize = 160;

/// The worst latency of one second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Unix time in seconds.
    pub(crate) time_s: u64,
    pub(crate) latency_ms: u64,
}

/// The samples of one event, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Series {
    samples: VecDeque<Sample>,
    /// The worst latency of all, samples that are gone included.
    pub(crate) worst_ms: u64,
}

/// A series in sentences, for `LATENCY DOCTOR`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Summary {
    pub(crate) samples: usize,
    pub(crate) average_ms: u64,
    /// Mean absolute deviation from the average.
    pub(crate) deviation_ms: u64,
    /// Seconds between samples, on average.
    pub(crate) period_s: f64,
}

impl Series {
    fn add(&mut self, sample: Sample) {
        self.worst_ms = self.worst_ms.max(sample.latency_ms);
        match self.samples.back_mut() {
            Some(last) if last.time_s == sample.time_s => {
                last.latency_ms = last.latency_ms.max(sample.latency_ms);
            }
            _ => {
                if self.samples.len() == SAMPLES_MAX {
                    self.samples.pop_front();
                }
                self.samples.push_back(sample);
            }
        }
    }

    pub(crate) fn samples(&self) -> impl ExactSizeIterator<Item = Sample> {
        self.samples.iter().copied()
    }

    /// The newest sample; every series has one.
    pub(crate) fn latest(&self) -> Sample {
        *self.samples.back().expect("a series begins with a sample")
    }

    pub(crate) fn summary(&self, now_s: u64) -> Summary {
        let count = self.samples.len() as u64;
        let latencies = || self.samples.iter().map(|sample| sample.latency_ms);
        let average_ms = latencies().sum::<u64>() / count.max(1);
        let deviation_ms =
            latencies().map(|latency| latency.abs_diff(average_ms)).sum::<u64>() / count.max(1);
        let oldest_s = self.samples.front().map_or(now_s, |sample| sample.time_s);
        let period_s = now_s.saturating_sub(oldest_s) as f64 / count.max(1) as f64;
        Summary { samples: self.samples.len(), average_ms, deviation_ms, period_s }
    }
}

/// All series. Locked only when an event is recorded or looked at.
#[derive(Debug, Default)]
pub(crate) struct LatencyMonitor(Mutex<BTreeMap<&'static str, Series>>);

impl LatencyMonitor {
    fn series(&self) -> MutexGuard<'_, BTreeMap<&'static str, Series>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an event that has reached the threshold.
    pub(crate) fn record(&self, event: &'static str, time_s: u64, latency_ms: u64) {
        self.series().entry(event).or_default().add(Sample { time_s, latency_ms });
    }

    /// All events with their series, by name.
    pub(crate) fn all(&self) -> Vec<(&'static str, Series)> {
        self.series().iter().map(|(event, series)| (*event, series.clone())).collect()
    }

    /// An event's name as we spell it, and its series.
    pub(crate) fn find(&self, event: &[u8]) -> Option<(&'static str, Series)> {
        self.all().into_iter().find(|(name, _)| name.as_bytes() == event)
    }

    /// Forgets some events, or all. Returns how many there were.
    pub(crate) fn reset(&self, events: &[&[u8]]) -> usize {
        let mut series = self.series();
        let before = series.len();
        series.retain(|name, _| !events.is_empty() && !events.contains(&name.as_bytes()));
        before - series.len()
    }
}

/// Rows of a graph above the base line.
const GRAPH_ROWS: usize = 4;

/// `LATENCY GRAPH`: a head line, the samples as columns of up to four rows, and below each column
/// how long ago it was, read downwards (`12s`, `5m`).
pub(crate) fn graph(event: &str, series: &Series, now_s: u64) -> String {
    let latencies = || series.samples().map(|sample| sample.latency_ms);
    let (high, low) = (latencies().max().unwrap_or(0), latencies().min().unwrap_or(0));
    let mut out = format!(
        "{event} - high {high} ms, low {low} ms (all time high {} ms)\n{}\n",
        series.worst_ms,
        "-".repeat(80)
    );
    // Two marks a row, '_' below '|': a column's height in half rows.
    let heights: Vec<usize> = latencies()
        .map(|latency| ((latency - low) * (2 * GRAPH_ROWS as u64 - 1) / (high - low).max(1)) as usize)
        .collect();
    for row in (0..GRAPH_ROWS).rev() {
        for &height in &heights {
            out.push(match height / 2 {
                top if top > row => '|',
                top if top < row => ' ',
                _ if height == 2 * GRAPH_ROWS - 1 => '#',
                _ if height % 2 == 0 => '_',
                _ => 'o',
            });
        }
        out.push('\n');
    }
    out.push('\n');
    let labels: Vec<Vec<u8>> =
        series.samples().map(|sample| age(now_s.saturating_sub(sample.time_s)).into_bytes()).collect();
    for row in 0..labels.iter().map(Vec::len).max().unwrap_or(0) {
        for label in &labels {
            out.push(label.get(row).map_or(' ', |byte| char::from(*byte)));
        }
        out.push('\n');
    }
    out
}

fn age(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_samples_are_the_worst_of_each_second() {
        let monitor = LatencyMonitor::default();
        for (time_s, latency_ms) in [(1, 5), (1, 9), (1, 7), (2, 3)] {
            monitor.record("command", time_s, latency_ms);
        }
        let (_, series) = monitor.find(b"command").unwrap();
        let samples: Vec<_> = series.samples().map(|sample| (sample.time_s, sample.latency_ms)).collect();
        assert_eq!(samples, [(1, 9), (2, 3)]);
        assert_eq!((series.latest().latency_ms, series.worst_ms), (3, 9));
        let summary = series.summary(5);
        assert_eq!((summary.average_ms, summary.deviation_ms, summary.period_s), (6, 3, 2.0));
    }

    #[test]
    fn old_samples_go_and_the_record_stays() {
        let monitor = LatencyMonitor::default();
        for time_s in 0..500 {
            monitor.record("command", time_s, 500 - time_s);
        }
        let (_, series) = monitor.find(b"command").unwrap();
        assert_eq!(series.samples().len(), SAMPLES_MAX);
        assert_eq!(series.samples().next().unwrap().time_s, 340);
        assert_eq!(series.worst_ms, 500);
    }

    #[test]
    fn resetting_takes_names_or_all() {
        let monitor = LatencyMonitor::default();
        for event in ["command", "fast-command", "expire-cycle"] {
            monitor.record(event, 1, 1);
        }
        assert_eq!(monitor.reset(&[b"command", b"nothing"]), 1);
        assert!(monitor.find(b"command").is_none());
        assert_eq!(monitor.reset(&[]), 2);
    }

    #[test]
    fn latency_graph_shows_ages_below() {
        let mut series = Series::default();
        for (time_s, latency_ms) in [(0, 10), (60, 80), (90, 40), (118, 20)] {
            series.add(Sample { time_s, latency_ms });
        }
        let drawn = graph("command", &series, 120);
        let rule = "-".repeat(80);
        let expected = [
            "command - high 80 ms, low 10 ms (all time high 80 ms)",
            &rule,
            " #  ",
            " |  ",
            " |o ",
            "_||o",
            "",
            "2132",
            "mm0s",
            "  s ",
        ];
        assert_eq!(drawn.lines().collect::<Vec<_>>(), expected);
    }
}
