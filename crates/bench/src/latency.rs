//! Latencies of a run: an HdrHistogram of nanoseconds and the figures shown of it.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Longest latency with a count of its own; longer ones count as this.
const LATENCY_NS_MAX: u64 = 600_000_000_000;
/// Significant decimal digits: any figure is within 0.1% of the truth.
const DIGITS: u8 = 3;

/// Latencies in nanoseconds.
#[derive(Debug, Clone)]
pub struct Latencies {
    histogram: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, DIGITS);
        Self { histogram: histogram.expect("the bounds are constants that the histogram accepts") }
    }
}

impl Latencies {
    /// Counts `count` requests that took `latency_ns`.
    #[inline]
    pub fn record(&mut self, latency_ns: u64, count: u64) {
        self.histogram.saturating_record_n(latency_ns, count);
    }

    /// How many requests were counted.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The fraction of requests that took longer than `latency_ms`.
    pub fn fraction_over_ms(&self, latency_ms: f64) -> f64 {
        let within = self.histogram.count_between(0, (latency_ms * 1e6) as u64);
        (self.count() - within) as f64 / self.count().max(1) as f64
    }

    /// Adds the latencies of another thread or round.
    pub fn add(&mut self, other: &Latencies) {
        self.histogram.add(&other.histogram).expect("all histograms have the same bounds");
    }

    /// Latency that a fraction `quantile` of the requests stayed within, in milliseconds.
    pub fn quantile_ms(&self, quantile: f64) -> f64 {
        self.histogram.value_at_quantile(quantile) as f64 / 1e6
    }

    /// The figures shown of a run.
    pub fn summary(&self) -> LatencySummary {
        LatencySummary {
            min: if self.histogram.is_empty() { 0.0 } else { self.histogram.min() as f64 / 1e6 },
            avg: self.histogram.mean() / 1e6,
            p50: self.quantile_ms(0.5),
            p95: self.quantile_ms(0.95),
            p99: self.quantile_ms(0.99),
            p99_9: self.quantile_ms(0.999),
            max: self.histogram.max() as f64 / 1e6,
        }
    }
}

/// Latencies in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LatencySummary {
    /// Fastest request.
    pub min: f64,
    /// Mean.
    pub avg: f64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p99_9: f64,
    /// Slowest request.
    pub max: f64,
}

impl LatencySummary {
    /// Column titles and values, in the order they are shown.
    pub fn columns(&self) -> [(&'static str, f64); 7] {
        [
            ("min", self.min),
            ("avg", self.avg),
            ("p50", self.p50),
            ("p95", self.p95),
            ("p99", self.p99),
            ("p99.9", self.p99_9),
            ("max", self.max),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(seen: f64, expected: f64) -> bool {
        (seen - expected).abs() <= expected * 0.001
    }

    #[test]
    fn quantiles_of_a_known_distribution() {
        let mut latencies = Latencies::default();
        for microseconds in 1..=10_000 {
            latencies.record(microseconds * 1000, 1);
        }
        let summary = latencies.summary();
        let expected = [0.001, 5.0005, 5.0, 9.5, 9.9, 9.99, 10.0];
        for ((name, seen), expected) in summary.columns().into_iter().zip(expected) {
            assert!(close(seen, expected), "{name}: {seen} instead of {expected}");
        }
    }

    #[test]
    fn counts_weigh_and_threads_add_up() {
        let (mut one, mut other) = (Latencies::default(), Latencies::default());
        one.record(1_000_000, 99);
        other.record(100_000_000, 1);
        one.add(&other);
        assert!(close(one.quantile_ms(0.99), 1.0) && close(one.summary().max, 100.0));
        assert!(close(one.summary().avg, 1.99));
    }

    #[test]
    fn fractions_over_a_limit() {
        let mut latencies = Latencies::default();
        latencies.record(500_000, 90);
        latencies.record(3_000_000, 10);
        let fractions = [0.1, 1.0, 2.0, 4.0].map(|limit_ms| latencies.fraction_over_ms(limit_ms));
        assert_eq!((fractions, latencies.count()), ([1.0, 0.1, 0.1, 0.0], 100));
        assert_eq!(Latencies::default().fraction_over_ms(1.0), 0.0);
    }

    #[test]
    fn summary_of_nothing_is_zero_and_endless_waits_are_capped() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.summary().columns().map(|(_, value)| value), [0.0; 7]);
        latencies.record(u64::MAX, 1);
        assert!(close(latencies.summary().max, 600_000.0));
    }
}
