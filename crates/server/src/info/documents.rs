//! docs/info.md, written from the table: `UPDATE_DOCS=1 cargo test -p dunlin-server documentation` writes it anew.

use std::fmt::Write;

use super::{
    Breadth, SECTIONS, Section,
    metric::{Family, Metric, Read, Row, Shown, Unit},
};

impl Unit {
    /// As the page names it.
    fn words(self) -> &'static str {
        match self {
            Unit::Count => "",
            Unit::Flag => "0 or 1",
            Unit::Bytes => "bytes",
            Unit::KilobytesPerSecond => "KiB/s",
            Unit::PerSecond => "per second",
            Unit::Days => "days",
            Unit::Seconds => "seconds",
            Unit::Milliseconds => "milliseconds",
            Unit::Microseconds => "microseconds",
            Unit::UnixSeconds => "seconds since 1970",
            Unit::UnixMicroseconds => "microseconds since 1970",
            Unit::Percent => "percent",
            Unit::Ratio => "ratio",
        }
    }
}

fn page() -> String {
    let mut out = String::from(
        "# INFO\n\
         \n\
         <!-- Generated from crates/server/src/info by\n     \
         UPDATE_DOCS=1 cargo test -p dunlin-server documentation -->\n\
         \n\
         `INFO [section ...]` answers these lines, `name:value`, under the titles of their sections. Without a section, or\n\
         with `default`, it leaves out those that say so below; `all` and `everything` leave out none.\n\
         \n\
         A *counter* only grows. One *since the reset* counts from the last `CONFIG RESETSTAT` on, or from the start. A\n\
         *gauge* rises and falls. *Always* means that the thing is not there, and the name is for tools that read it.\n",
    );
    for section in SECTIONS {
        write_section(&mut out, section);
    }
    out
}

fn write_section(out: &mut String, section: &Section) {
    let _ = writeln!(out, "\n## {}\n", section.title);
    if section.breadth == Breadth::All {
        out.push_str("Only in `all`, `everything`, and by its name.\n\n");
    }
    if section.rows.is_empty() {
        out.push_str("Empty.\n");
        return;
    }
    out.push_str("| name | kind | unit | meaning |\n|---|---|---|---|\n");
    for row in section.rows {
        match row {
            Row::One(metric) => write_metric(out, metric),
            Row::Each(family) => write_family(out, family),
            Row::Texts(texts) => {
                let _ = writeln!(out, "| `{}` | text | | {} |", texts.name, texts.summary);
            }
        }
    }
}

fn write_metric(out: &mut String, metric: &Metric) {
    let kind = match metric.read {
        Read::Counter { since_reset: true, .. } => "counter since the reset".to_owned(),
        Read::Counter { since_reset: false, .. } => "counter".to_owned(),
        Read::Gauge(_) => "gauge".to_owned(),
        Read::Text(_) => "text".to_owned(),
        Read::Always(value) => format!("always `{value}`"),
    };
    let human =
        if metric.human { format!(" `{}_human` has it with a unit.", metric.name) } else { String::new() };
    let shown = match metric.shown {
        Shown::Always => "",
        Shown::WithLog => " Only with `appendonly yes`.",
        Shown::WhileLoading => " Only while a data set is loaded.",
        Shown::OfReplicas => " Only on replicas.",
        Shown::WhileSyncing => " Only while a snapshot comes from the primary.",
        Shown::WhileLinkIsDown => " Only on replicas whose link is down.",
        Shown::WhileLinkFails => " Only on replicas whose link has failed and is not up again.",
        Shown::WhileShuttingDown => " Only while a shutdown waits for replicas.",
        Shown::WithMinReplicas => " Only where `min-replicas-to-write` is set.",
    };
    let (name, unit, summary) = (metric.name, metric.unit.words(), metric.summary);
    let _ = writeln!(out, "| `{name}` | {kind} | {unit} | {summary}{human}{shown} |");
}

fn write_family(out: &mut String, family: &Family) {
    let (prefix, label, summary) = (family.prefix, family.label, family.summary);
    let _ = writeln!(out, "| `{prefix}`*{label}* | a line for each | | {summary} |");
    for (field, unit, summary) in family.fields {
        let _ = writeln!(out, "| … `{field}` | | {} | {summary} |", unit.words());
    }
}

#[test]
fn info_documentation_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/info.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, page()).unwrap();
    }
    let current = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(
        current,
        page(),
        "docs/info.md is stale: run UPDATE_DOCS=1 cargo test -p dunlin-server documentation"
    );
}
