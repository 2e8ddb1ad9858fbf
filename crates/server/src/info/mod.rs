//! `INFO`: the state of the server, in sections of `name:value` lines.
//!
//! Each metric is a row of a table (`metric.rs`). The reply, `CONFIG RESETSTAT` and docs/info.md derive from it.
//! Names, units and their order are those of Redis, for the tools that read them; tests/wire/test_info.py compares
//! them, and has the reason of each difference.
//!
//! ```text
//!  counters of workers, keyspace, network …          rows                     INFO
//!  ───────────────▶ Reading (lazy, one request) ──▶ name · unit · read ──▶ value − baseline of RESETSTAT
//! ```

mod clients;
mod commands;
#[cfg(test)]
mod documents;
mod memory;
mod metric;
mod persistence;
mod reading;
mod replication;
mod reset;
mod server;
mod stats;
mod tls;

use std::fmt::{Display, Write};

pub(crate) use dunlin_scripting::REDIS_VERSION;

pub(crate) use self::{
    metric::{Family, Metric, Number, Read, Row, Unit},
    reading::Reading,
    reset::reset,
};

/// Which requests without its name a section answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Breadth {
    /// `INFO` and `INFO default`.
    Default,
    /// `INFO all` and `INFO everything`.
    All,
}

struct Section {
    /// The title; in lower case, the word that clients ask for it by.
    title: &'static str,
    breadth: Breadth,
    rows: &'static [Row],
    /// Whether the section is there at all.
    exists: fn(&Reading<'_>) -> bool,
}

const fn section(title: &'static str, breadth: Breadth, rows: &'static [Row]) -> Section {
    Section { title, breadth, rows, exists: |_| true }
}

/// All sections, in the order of the reply.
const SECTIONS: &[Section] = &[
    section("Server", Breadth::Default, server::ROWS),
    section("Clients", Breadth::Default, clients::ROWS),
    section("Memory", Breadth::Default, memory::ROWS),
    section("Persistence", Breadth::Default, persistence::ROWS),
    section("Stats", Breadth::Default, stats::ROWS),
    section("TLS", Breadth::Default, tls::ROWS),
    section("Replication", Breadth::Default, replication::ROWS),
    section("CPU", Breadth::Default, server::PROCESSOR_ROWS),
    Section {
        exists: |reading| reading.hot_keys().is_some(),
        ..section("Hotkeys", Breadth::Default, commands::HOT_KEYS_ROWS)
    },
    section("Audit", Breadth::Default, tls::AUDIT_ROWS),
    section("Modules", Breadth::Default, server::MODULES_ROWS),
    section("Commandstats", Breadth::All, commands::COMMANDS_ROWS),
    section("Errorstats", Breadth::Default, commands::ERRORS_ROWS),
    section("Latencystats", Breadth::All, commands::LATENCIES_ROWS),
    section("Cluster", Breadth::Default, replication::CLUSTER_ROWS),
    section("Keyspace", Breadth::Default, memory::KEYSPACE_ROWS),
];

/// All rows, in the order of the reply.
#[cfg(test)]
pub(super) fn rows() -> impl Iterator<Item = &'static Row> {
    SECTIONS.iter().flat_map(|section| section.rows)
}

/// The rows that the reply to `INFO everything` has now.
pub(super) fn shown_rows(reading: &Reading<'_>) -> impl Iterator<Item = &'static Row> {
    let sections = SECTIONS.iter().filter(|section| (section.exists)(reading));
    sections.flat_map(|section| section.rows).filter(|row| match row {
        Row::One(metric) => metric.shown.is_met(reading),
        Row::Each(_) | Row::Texts(_) => true,
    })
}

/// All metrics that stand for themselves.
fn metrics() -> impl Iterator<Item = &'static Metric> {
    SECTIONS.iter().flat_map(|section| section.rows).filter_map(|row| match row {
        Row::One(metric) => Some(metric),
        Row::Each(_) | Row::Texts(_) => None,
    })
}

/// The text of `INFO` with these arguments. Unknown sections are empty.
pub(crate) fn render(reading: &Reading<'_>, wanted: &[&[u8]]) -> String {
    let breadth_of = |word: &&[u8]| match word.to_ascii_lowercase().as_slice() {
        b"default" => Some(Breadth::Default),
        b"all" | b"everything" => Some(Breadth::All),
        _ => None,
    };
    let breadth =
        if wanted.is_empty() { Some(Breadth::Default) } else { wanted.iter().filter_map(breadth_of).max() };
    let mut lines = Lines::default();
    for section in SECTIONS {
        let named = wanted.iter().any(|word| word.eq_ignore_ascii_case(section.title.as_bytes()));
        let is_wanted = named || breadth.is_some_and(|breadth| section.breadth <= breadth);
        if is_wanted && (section.exists)(reading) {
            lines.begin(section.title);
            section.rows.iter().for_each(|row| lines.add_row(row, reading));
        }
    }
    lines.0
}

/// The text as it grows.
#[derive(Debug, Default)]
struct Lines(String);

impl Lines {
    fn begin(&mut self, title: &str) {
        if !self.0.is_empty() {
            self.0.push_str("\r\n");
        }
        let _ = write!(self.0, "# {title}\r\n");
    }

    fn add_row(&mut self, row: &Row, reading: &Reading<'_>) {
        match row {
            Row::One(metric) => self.add_metric(metric, reading),
            Row::Texts(texts) => (texts.read)(reading, &mut |line| {
                let _ = write!(self.0, "{line}\r\n");
            }),
            Row::Each(family) => (family.read)(reading, &mut |label, fields| {
                let _ = write!(self.0, "{}{label}:", family.prefix);
                for (index, (field, value)) in fields.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    let _ = write!(self.0, "{comma}{field}={value}");
                }
                self.0.push_str("\r\n");
            }),
        }
    }

    fn add_metric(&mut self, metric: &Metric, reading: &Reading<'_>) {
        if !metric.shown.is_met(reading) {
            return;
        }
        let name = metric.name;
        match metric.read {
            Read::Counter { since_reset: true, read } => {
                self.add(name, reading.since_reset(name, read(reading)))
            }
            Read::Counter { since_reset: false, read } => self.add(name, read(reading)),
            Read::Text(read) => self.add(name, read(reading)),
            Read::Always(value) => self.add(name, value),
            Read::Gauge(read) => {
                let value = read(reading);
                self.add(name, value);
                if let (true, Number::Integer(bytes)) = (metric.human, value) {
                    self.add(format_args!("{name}_human"), human(bytes.unsigned_abs()));
                }
            }
        }
    }

    fn add(&mut self, name: impl Display, value: impl Display) {
        let _ = write!(self.0, "{name}:{value}\r\n");
    }
}

/// Bytes with the largest unit that leaves a number of one or more.
fn human(bytes: u64) -> String {
    let units = ["K", "M", "G", "T", "P"];
    let mut value = bytes as f64;
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    for unit in units {
        value /= 1024.0;
        if value < 1024.0 {
            return format!("{value:.2}{unit}");
        }
    }
    format!("{bytes}B")
}

/// `part` of `whole`, 0 if there is no whole.
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn bytes_for_humans() {
        for (bytes, text) in
            [(0, "0B"), (1023, "1023B"), (1024, "1.00K"), (1_500_000, "1.43M"), (25_276_502_016, "23.54G")]
        {
            assert_eq!(human(bytes), text);
        }
        assert_eq!((ratio(5, 0), ratio(1, 4)), (0.0, 0.25));
    }

    #[test]
    fn info_rows_have_names_of_their_own_and_a_summary() {
        let mut names = BTreeSet::new();
        for metric in metrics() {
            assert!(names.insert(metric.name), "{} is there twice", metric.name);
            assert!(metric.summary.ends_with('.'), "{}: a sentence ends with a full stop", metric.name);
            assert!(metric.summary.len() < 200, "{}: one sentence is enough", metric.name);
        }
    }
}
