//! docs/metrics.md, written from the answer to a scrape: `UPDATE_DOCS=1 cargo test -p dunlin-server documentation`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    sync::{Arc, mpsc::channel},
};

use super::{
    Format,
    names::{FAMILIES, export_of},
    render,
};
use crate::{
    config::{Config, ConfigStore},
    info::{Reading, Row, rows},
    process::server::assemble,
};

/// A scrape of a server that has a log, is a replica, and has been asked for something.
fn scrape(format: Format) -> String {
    let config = Config { appendonly: true, port: 6379, ..Config::default() };
    let store = Arc::new(ConfigStore::new(config, None));
    let assembled = assemble(store, 2, channel().0).unwrap();
    let shared = assembled.shared;
    shared.replication.expect_primary();
    let config = shared.config.current();
    let get = shared.commands.find(b"get").unwrap().index;
    let meter = crate::observe::command_stats::Meter::new(
        Arc::clone(&shared.stats.workers[0]),
        &shared.commands,
        &config,
    );
    meter.count_alone(get, 1500);
    shared.stats.latency.record("command", 1, 100);
    let survey = shared.engine.survey_unless_long().unwrap();
    render(&Reading::surveyed(&shared, &config, 1, survey), format)
}

/// A metric as the lines of a scrape describe it.
#[derive(Default)]
struct Described {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
}

fn described(text: &str) -> Vec<(String, Described)> {
    let mut all: Vec<(String, Described)> = Vec::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            all.push((name.to_owned(), Described { help: help.to_owned(), ..Described::default() }));
        } else if let Some((_, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            all.last_mut().unwrap().1.kind = kind.to_owned();
        } else if let Some((_, labels)) = line.split_once('{') {
            let names = labels.split("\",").filter_map(|pair| pair.split_once('=')).map(|(name, _)| name);
            let names = names.filter(|name| !["le", "quantile"].contains(name)).map(str::to_owned);
            all.last_mut().unwrap().1.labels.extend(names);
        }
    }
    all
}

/// The rows of INFO by the metrics that they are exported as.
fn rows_of_metrics() -> BTreeMap<String, String> {
    let mut of = BTreeMap::new();
    for row in rows() {
        match row {
            Row::One(metric) => {
                if let Some(export) = export_of(metric) {
                    of.insert(export.name.into_owned(), format!("`{}`", metric.name));
                }
            }
            Row::Each(family) => {
                let export = FAMILIES.iter().find(|export| export.prefix == family.prefix).unwrap();
                for field in export.fields {
                    of.insert(field.name.to_owned(), format!("`{}`… `{}`", family.prefix, field.field));
                }
            }
            Row::Texts(_) => {}
        }
    }
    of
}

fn page() -> String {
    let mut out = String::from(
        "# Metrics\n\
         \n\
         <!-- Generated from crates/server/src/metrics by\n     \
         UPDATE_DOCS=1 cargo test -p dunlin-server documentation -->\n\
         \n\
         `GET /metrics` on `http-port` answers these series, in Prometheus's text format or in OpenMetrics, as `Accept` asks for.\n\
         Names that begin with `redis_` are those of [redis_exporter](https://github.com/oliver006/redis_exporter), whose\n\
         dashboards and alerts work as they are; the others are Dunlin's own. There is no password: `http-port` is 0 unless it is\n\
         set, and listens on the addresses of `bind`. docs/operations.md says how to set up Prometheus and Grafana.\n\
         \n\
         Counters count from the start of the server. `CONFIG RESETSTAT` sets those of commands and errors to zero, which\n\
         `rate()` takes for a restart.\n\
         \n\
         | metric | type | labels | row of INFO | meaning |\n|---|---|---|---|---|\n",
    );
    let of = rows_of_metrics();
    let text = scrape(Format::Text);
    let shown = described(&text);
    for (name, described) in &shown {
        let labels: Vec<String> = described.labels.iter().map(|label| format!("`{label}`")).collect();
        let row = of.get(name).map_or("", String::as_str);
        let help = described.help.replace("\\\\", "\\");
        let _ = writeln!(out, "| `{name}` | {} | {} | {row} | {help} |", described.kind, labels.join(", "));
    }
    out.push_str(
        "\nOnly while docs/info.md says that the row is there:\n\n| metric | row of INFO |\n|---|---|\n",
    );
    let known: BTreeSet<&str> = shown.iter().map(|(name, _)| name.as_str()).collect();
    for (name, row) in of.iter().filter(|(name, _)| !known.contains(name.as_str())) {
        let _ = writeln!(out, "| `{name}` | {row} |");
    }
    out
}

#[test]
fn metrics_documentation_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, page()).unwrap();
    }
    let current = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(
        current,
        page(),
        "docs/metrics.md is stale: run UPDATE_DOCS=1 cargo test -p dunlin-server documentation"
    );
}

#[test]
fn metrics_are_there_once_and_have_an_explanation() {
    for format in [Format::Text, Format::OpenMetrics] {
        let text = scrape(format);
        let mut names = BTreeSet::new();
        for (name, described) in described(&text) {
            assert!(names.insert(name.clone()), "{name} is there twice");
            assert!(described.help.ends_with('.'), "{name}: {}", described.help);
            let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            assert!(name.bytes().all(is_plain), "{name}");
        }
        assert_eq!(text.ends_with("# EOF\n"), format == Format::OpenMetrics);
    }
}
