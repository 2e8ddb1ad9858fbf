//! The output of a test: text, one line, CSV or JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use crate::cli::Test;
use crate::latency::LatencySummary;
use crate::load::Outcome;

/// How a report is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Several lines for each test.
    Full,
    /// A line for each test.
    Quiet,
    /// Comma-separated values with a header.
    Csv,
}

/// The figures of one test.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The test's title.
    pub test: String,
    /// `closed` or `open`.
    pub r#loop: &'static str,
    /// Requests a second asked for, in an open loop.
    pub rate: Option<f64>,
    /// Connections.
    pub clients: usize,
    /// Generating threads.
    pub threads: usize,
    /// Most requests under way on a connection.
    pub pipeline: usize,
    /// Length of values in bytes.
    pub data_bytes: usize,
    /// Whether connections were kept.
    pub keep_alive: bool,
    /// Replies.
    pub requests: u64,
    /// Seconds from the first request to the last reply.
    pub seconds: f64,
    /// Replies a second.
    pub requests_per_second: f64,
    /// CPU time of the server for each request, in microseconds; nothing when it does not say.
    pub server_cpu_us_per_request: Option<f64>,
    /// Latencies in milliseconds.
    pub latency_ms: LatencySummary,
    /// Null replies.
    pub nulls: u64,
    /// Replies that were neither null nor an error, of commands that answer null if there is nothing to read.
    pub hits: Option<u64>,
    /// Requests that an open loop could not send in its time.
    pub unsent: u64,
    /// Error replies.
    pub errors: u64,
    /// Error replies by text.
    pub error_texts: BTreeMap<String, u64>,
    /// Seed of all random numbers.
    pub seed: u64,
}

impl Report {
    /// The figures of a test that has run. `cpu_seconds` is the processor time of the server during it.
    pub fn new(test: &Test, outcome: &Outcome, cpu_seconds: Option<f64>) -> Self {
        let plan = &test.plan;
        Self {
            test: test.title.clone(),
            r#loop: if plan.rate.is_some() { "open" } else { "closed" },
            rate: plan.rate,
            clients: plan.clients,
            threads: plan.threads.min(plan.clients),
            pipeline: plan.pipeline,
            data_bytes: plan.filling.data_bytes,
            keep_alive: plan.keep_alive,
            requests: outcome.tally.replies,
            seconds: outcome.elapsed.as_secs_f64(),
            requests_per_second: outcome.requests_per_second(),
            server_cpu_us_per_request: cpu_seconds
                .filter(|_| outcome.tally.replies > 0)
                .map(|seconds| seconds * 1e6 / outcome.tally.replies as f64),
            latency_ms: outcome.latencies.summary(),
            nulls: outcome.tally.nulls,
            hits: test
                .can_miss
                .then(|| outcome.tally.replies.saturating_sub(outcome.tally.nulls + outcome.tally.errors)),
            unsent: outcome.unsent,
            errors: outcome.tally.errors,
            error_texts: outcome.errors.clone(),
            seed: plan.seed,
        }
    }

    fn cpu(&self) -> String {
        self.server_cpu_us_per_request.map_or("n/a".into(), |microseconds| format!("{microseconds:.3} µs"))
    }

    /// How many requests found their key: `12 of 100 hit (12.0%)`.
    fn hits(&self) -> Option<String> {
        let hits = self.hits?;
        let percent = 100.0 * hits as f64 / self.requests.max(1) as f64;
        Some(format!("{hits} of {} hit ({percent:.1}%)", self.requests))
    }

    /// Text for a person.
    pub fn text(&self, layout: Layout, precision: usize) -> String {
        match layout {
            Layout::Full => self.full(precision),
            Layout::Quiet => format!(
                "{}: {:.2} requests per second, p50={:.precision$} ms, server CPU per request: {}{}{}\n",
                self.test,
                self.requests_per_second,
                self.latency_ms.p50,
                self.cpu(),
                self.hits().map_or(String::new(), |hits| format!(", {hits}")),
                if self.errors > 0 { format!(", {} errors", self.errors) } else { String::new() },
            ),
            Layout::Csv => self.csv(precision),
        }
    }

    fn full(&self, precision: usize) -> String {
        let mut text = format!("====== {} ======\n", self.test);
        let plural =
            |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
        let _ = writeln!(text, "  {} requests completed in {:.2} seconds", self.requests, self.seconds);
        let _ = writeln!(
            text,
            "  {}, {}, pipeline {}, {} bytes payload, keep alive {}",
            plural(self.clients, "parallel client"),
            plural(self.threads, "thread"),
            self.pipeline,
            self.data_bytes,
            u8::from(self.keep_alive)
        );
        let _ = match self.rate {
            None => writeln!(text, "  closed loop: latency from sending, a slow server slows the load"),
            Some(rate) => {
                writeln!(text, "  open loop: {rate} requests per second due, latency from when due")
            }
        };
        let columns = self.latency_ms.columns();
        let _ = write!(text, "\n  latency (ms) ");
        for (name, _) in columns {
            let _ = write!(text, "{name:>10}");
        }
        let _ = write!(text, "\n               ");
        for (_, value) in columns {
            let _ = write!(text, "{value:>10.precision$}");
        }
        let _ = write!(
            text,
            "\n\n  throughput: {:.2} requests per second\n  server CPU per request: {}\n",
            self.requests_per_second,
            self.cpu()
        );
        if let Some(hits) = self.hits() {
            let _ = writeln!(text, "  {hits}");
        } else if self.nulls > 0 {
            let _ = writeln!(text, "  null replies: {}", self.nulls);
        }
        if self.unsent > 0 {
            let _ = writeln!(
                text,
                "  requests due but not sent in time (their wait is in the latencies): {}",
                self.unsent
            );
        }
        if self.errors > 0 {
            let _ = writeln!(text, "  ERROR REPLIES: {}", self.errors);
            for (error, count) in &self.error_texts {
                let _ = writeln!(text, "    {count} × {error}");
            }
        }
        text.push('\n');
        text
    }

    /// The titles of the CSV columns; the first eight are redis-benchmark's.
    pub fn csv_header() -> &'static str {
        "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\
         \"p99_latency_ms\",\"max_latency_ms\",\"p99.9_latency_ms\",\"server_cpu_us_per_request\",\"errors\"\n"
    }

    fn csv(&self, precision: usize) -> String {
        let latency = &self.latency_ms;
        let mut line = format!("\"{}\",\"{:.2}\"", self.test.replace('"', "\"\""), self.requests_per_second);
        for value in
            [latency.avg, latency.min, latency.p50, latency.p95, latency.p99, latency.max, latency.p99_9]
        {
            let _ = write!(line, ",\"{value:.precision$}\"");
        }
        let cpu =
            self.server_cpu_us_per_request.map_or("n/a".into(), |microseconds| format!("{microseconds:.3}"));
        let _ = writeln!(line, ",\"{cpu}\",\"{}\"", self.errors);
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Plan;
    use crate::template::{Filling, Template};
    use std::time::Duration;

    fn report() -> Report {
        let plan = Plan::new(Template::words("GET \"k\""), Filling::new(None, 3));
        let mut outcome = Outcome { elapsed: Duration::from_secs(2), ..Outcome::default() };
        outcome.tally.replies = 1000;
        outcome.tally.errors = 1;
        outcome.tally.nulls = 250;
        outcome.latencies.record(1_000_000, 1000);
        outcome.count_error(b"ERR odd");
        Report::new(&Test { title: "GET \"k\"".into(), plan, can_miss: true }, &outcome, Some(0.004))
    }

    #[test]
    fn quiet_report_is_one_line() {
        assert_eq!(
            report().text(Layout::Quiet, 3),
            "GET \"k\": 500.00 requests per second, p50=1.000 ms, server CPU per request: 4.000 µs, \
             749 of 1000 hit (74.9%), 1 errors\n"
        );
    }

    #[test]
    fn full_report_labels_the_loop_and_lists_errors() {
        let text = report().text(Layout::Full, 1);
        for part in [
            "1000 requests completed in 2.00 seconds",
            "closed loop",
            "1 × ERR odd",
            "\n  749 of 1000 hit (74.9%)\n",
            "50 parallel clients, 1 thread,",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        let unknown = Report { server_cpu_us_per_request: None, rate: Some(10.0), hits: None, ..report() };
        let text = unknown.text(Layout::Full, 1);
        assert!(text.contains("\n  null replies: 250\n") && !text.contains("hit"), "{text}");
        assert!(text.contains("server CPU per request: n/a") && text.contains("open loop: 10 requests"));
    }

    #[test]
    fn csv_has_as_many_values_as_titles_and_quotes_quotes() {
        let line = report().text(Layout::Csv, 3);
        assert_eq!(line.matches("\",\"").count(), Report::csv_header().matches("\",\"").count());
        assert!(line.starts_with("\"GET \"\"k\"\"\",\"500.00\",\"1.000\""), "{line}");
    }

    #[test]
    fn json_carries_everything() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["loop"], "closed");
        assert_eq!(json["latency_ms"]["p50"].as_f64().unwrap().round(), 1.0);
        assert_eq!(json["error_texts"]["ERR odd"], 1);
    }
}
