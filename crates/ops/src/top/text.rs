//! `dunlin top --once`: the same figures as text, for scripts. Figures are plain numbers, fields are separated by tabs.

use std::fmt::Write;

use super::{table::Page, view::View};

/// The summary as `name<TAB>value` lines, then a table for each page below `# Title`. A figure that is not known is `-`; sentences begin
/// with `#`, too.
pub(super) fn write(view: &View) -> String {
    let mut out = String::new();
    let summary = view.summary();
    let last = summary.last.unwrap_or_default();
    let us = |tenths: u32| summary.last.map(|_| f64::from(tenths) / 10.0);
    let worst = us(last.worst).filter(|_| summary.has_longest);
    let words = [("version", summary.version.as_deref()), ("role", summary.role)];
    let figures = [
        ("uptime_seconds", summary.uptime_s),
        ("commands_per_second", summary.rate),
        ("p50_us", us(last.p50)),
        ("p99_us", us(last.p99)),
        ("p99.9_us", us(last.p999)),
        ("longest_us", worst),
        ("used_bytes", summary.used),
        ("maxmemory_bytes", summary.limit),
        ("resident_bytes", summary.resident),
        ("keys", summary.keys),
        ("evicted_per_second", summary.evicted_rate),
        ("expired_per_second", summary.expired_rate),
        ("hit_share", summary.hit_share),
        ("clients", summary.clients),
        ("blocked_clients", summary.blocked),
        ("in_bytes_per_second", summary.in_rate),
        ("out_bytes_per_second", summary.out_rate),
        ("cores", summary.cores),
    ];
    for (name, value) in words {
        let _ = writeln!(out, "{name}\t{}", value.unwrap_or("-").replace(char::is_control, " "));
    }
    for (name, value) in figures {
        let _ = writeln!(out, "{name}\t{}", plain(value));
    }
    for (name, reason) in view.now().iter().flat_map(|now| &now.refused) {
        let _ = writeln!(out, "# {name} is refused: {}", reason.replace(char::is_control, " "));
    }
    for page in Page::ALL {
        let mut table = view.table(page);
        table.sort(page.order());
        let _ = writeln!(out, "\n# {}", page.title());
        let names: Vec<&str> = page.columns().iter().map(|column| column.name).collect();
        let _ = writeln!(out, "{}", names.join("\t"));
        for row in &table.rows {
            let cells = row.iter().zip(page.columns()).map(|(cell, column)| match cell.number {
                number @ Some(_) if column.is_number => plain(number),
                None if column.is_number => plain(None),
                _ => cell.text.clone(),
            });
            let _ = writeln!(out, "{}", cells.collect::<Vec<_>>().join("\t"));
        }
    }
    out
}

fn plain(figure: Option<f64>) -> String {
    match figure {
        None => "-".to_owned(),
        Some(figure) if figure.fract() == 0.0 => format!("{figure:.0}"),
        Some(figure) => format!("{figure:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::view::tests::sample_view;

    #[test]
    fn text_has_plain_numbers_between_tabs() {
        let text = write(&sample_view());
        for line in [
            "version\tdunlin 0.1.0",
            "commands_per_second\t10000",
            "p99.9_us\t1234.500",
            "hit_share\t0.900",
            "get\t10000\t0.750\t1.500\t1\t1\t0\t1\t20900",
            "14:03:12\tconfig\tmaxmemory changed",
            "10.0.0.2:6379\treplica\tonline\t1000\t1\t4000",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        let empty = write(&View::default());
        assert!(empty.contains("commands_per_second\t-\n") && empty.contains("# Events"), "{empty}");
    }
}
