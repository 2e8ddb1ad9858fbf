//! `INFO`: what the server tells of itself, in sections of `name:value` lines.
//!
//! Names and units are those that tools for this protocol already read. What does not exist here
//! (snapshots, an append-only file, replicas, modules) is told as none.

mod activity;
mod commands;
mod memory;
mod server;

use std::fmt::{Display, Write};

pub(crate) use dunlin_scripting::REDIS_VERSION;

use crate::{config::Config, shared::Shared};

/// What sections are rendered from.
pub(crate) struct Source<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) config: &'a Config,
    /// Unix time in milliseconds.
    pub(crate) now_ms: u64,
}

/// Which requests without its name a section answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Breadth {
    /// `INFO` and `INFO default`.
    Default,
    /// `INFO all` and `INFO everything`.
    All,
}

struct Section {
    name: &'static str,
    title: &'static str,
    breadth: Breadth,
    write: fn(&Source<'_>, &mut Lines),
    /// Whether there is anything to tell; without it even the title is left out.
    exists: fn(&Source<'_>) -> bool,
}

const fn section(
    title: &'static str,
    name: &'static str,
    breadth: Breadth,
    write: fn(&Source<'_>, &mut Lines),
) -> Section {
    Section { name, title, breadth, write, exists: |_| true }
}

/// All sections, in the order in which they are told.
const SECTIONS: &[Section] = &[
    section("Server", "server", Breadth::Default, server::server),
    section("Clients", "clients", Breadth::Default, activity::clients),
    section("Memory", "memory", Breadth::Default, memory::memory),
    section("Persistence", "persistence", Breadth::Default, server::persistence),
    section("Stats", "stats", Breadth::Default, activity::stats),
    section("Replication", "replication", Breadth::Default, server::replication),
    section("CPU", "cpu", Breadth::Default, activity::cpu),
    Section {
        exists: |source| source.shared.hot_keys.session().is_some(),
        ..section("Hotkeys", "hotkeys", Breadth::Default, activity::hot_keys)
    },
    section("Modules", "modules", Breadth::Default, |_, _| ()),
    section("Commandstats", "commandstats", Breadth::All, commands::commands),
    section("Errorstats", "errorstats", Breadth::Default, commands::errors),
    section("Latencystats", "latencystats", Breadth::All, commands::latencies),
    section("Cluster", "cluster", Breadth::Default, |_, lines| lines.add("cluster_enabled", 0)),
    section("Keyspace", "keyspace", Breadth::Default, memory::keyspace),
];

/// The text of `INFO` with these arguments. Unknown sections are empty.
pub(crate) fn render(source: &Source<'_>, wanted: &[&[u8]]) -> String {
    let breadth_of = |word: &&[u8]| match word.to_ascii_lowercase().as_slice() {
        b"default" => Some(Breadth::Default),
        b"all" | b"everything" => Some(Breadth::All),
        _ => None,
    };
    let breadth =
        if wanted.is_empty() { Some(Breadth::Default) } else { wanted.iter().filter_map(breadth_of).max() };
    let mut lines = Lines::default();
    for section in SECTIONS {
        let named = wanted.iter().any(|word| word.eq_ignore_ascii_case(section.name.as_bytes()));
        let is_wanted = named || breadth.is_some_and(|breadth| section.breadth <= breadth);
        if is_wanted && (section.exists)(source) {
            lines.begin(section.title);
            (section.write)(source, &mut lines);
        }
    }
    lines.0
}

/// The text as it grows.
#[derive(Debug, Default)]
pub(crate) struct Lines(String);

impl Lines {
    fn begin(&mut self, title: &str) {
        if !self.0.is_empty() {
            self.0.push_str("\r\n");
        }
        let _ = write!(self.0, "# {title}\r\n");
    }

    fn add(&mut self, name: impl Display, value: impl Display) {
        let _ = write!(self.0, "{name}:{value}\r\n");
    }

    /// The same value for several names: what is not there.
    fn add_all(&mut self, names: &[&str], value: impl Display) {
        names.iter().for_each(|name| self.add(name, &value));
    }

    /// A number of bytes, and again with a unit.
    fn add_bytes(&mut self, name: &str, bytes: u64) {
        self.add(name, bytes);
        self.add(format_args!("{name}_human"), human(bytes));
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

/// `part` of `whole`, 0 where there is no whole.
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
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
    fn sections_are_known_by_their_titles() {
        for section in SECTIONS {
            assert_eq!(section.name, section.title.to_lowercase());
        }
    }
}
