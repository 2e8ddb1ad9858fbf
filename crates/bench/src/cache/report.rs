//! The report of `dunlin bench cache`: a table, JSON and a plot over time for each trace.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::figures::{short, thousands};
use crate::plot::{self, Curve, Palette, Plot};

/// Figures of a server with one policy on one trace.
#[derive(Debug, Serialize)]
pub struct Row {
    pub trace: String,
    pub server: String,
    pub policy: String,
    pub hit_percent: f64,
    pub byte_hit_percent: f64,
    /// Processor time of the server for each request, in microseconds.
    pub cpu_us: f64,
    /// Latency of a batch, in microseconds: the median and the 99.9th percentile.
    pub p50_us: f64,
    pub p999_us: f64,
    pub keys: u64,
    pub used_bytes: u64,
    pub resident_bytes: u64,
    pub evicted: u64,
    pub errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Hit percentages in parts of the run.
    pub over_time: Vec<f64>,
}

/// The optimum of a trace.
#[derive(Debug, Serialize)]
pub struct Optimum {
    pub trace: String,
    pub hit_percent: f64,
}

#[derive(Debug, Serialize)]
pub struct Report {
    pub machine: String,
    pub limit_bytes: u64,
    pub requests: u64,
    pub rows: Vec<Row>,
    pub optima: Vec<Optimum>,
}

impl Report {
    /// A table in Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!(
            "{}; a limit of {} bytes, {} requests a trace.\n\n\
             | trace | server | policy | hits | bytes | µs of processor | p50 µs | p99.9 µs | keys | used MB | resident MB | evicted | errors |\n\
             |---|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
            self.machine,
            thousands(self.limit_bytes),
            thousands(self.requests)
        );
        for optimum in &self.optima {
            for row in self.rows.iter().filter(|row| row.trace == optimum.trace) {
                text += &format!(
                    "| {} | {} | {} | {:.2}% | {:.2}% | {} | {} | {} | {} | {} | {} | {} | {} |\n",
                    row.trace,
                    row.server,
                    row.policy,
                    row.hit_percent,
                    row.byte_hit_percent,
                    short(row.cpu_us),
                    short(row.p50_us),
                    short(row.p999_us),
                    thousands(row.keys),
                    megabytes(row.used_bytes),
                    megabytes(row.resident_bytes),
                    thousands(row.evicted),
                    thousands(row.errors),
                );
            }
            text += &format!(
                "| {} | (offline) | farthest next use | {:.2}% | | | | | | | | | |\n",
                optimum.trace, optimum.hit_percent
            );
        }
        text
    }

    /// Writes `cache.json`, `cache.md` and a plot for each trace into a folder.
    pub fn write(&self, folder: &Path) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("cannot write {}: {error}", folder.display());
        fs::create_dir_all(folder).map_err(failed)?;
        let json = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        fs::write(folder.join("cache.json"), json + "\n").map_err(failed)?;
        fs::write(folder.join("cache.md"), self.markdown()).map_err(failed)?;
        let name = |row: &Row| format!("{} {}", row.server, row.policy);
        for optimum in &self.optima {
            let rows = || self.rows.iter().filter(|row| row.trace == optimum.trace);
            let names: Vec<String> = rows().map(name).collect();
            let palette = Palette::new(names.iter().map(String::as_str));
            let curve = |row: &Row| {
                let step = self.requests as f64 / row.over_time.len().max(1) as f64;
                let points = row.over_time.iter().enumerate();
                let points = points.map(|(part, percent)| ((part + 1) as f64 * step, *percent)).collect();
                Curve { server: name(row), points, spreads: Vec::new() }
            };
            let plot = Plot::Curves {
                title: format!("{}: hits in percent", optimum.trace),
                x_axis: "requests".into(),
                y_axis: "hits, %".into(),
                is_logarithmic: false,
                curves: rows().map(curve).collect(),
                bands: Vec::new(),
            };
            let file = folder.join(format!("cache-{}.svg", plain(&optimum.trace)));
            fs::write(file, plot::svg(&plot, &palette)?).map_err(failed)?;
        }
        Ok(())
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

/// A name without characters that file systems refuse.
fn plain(name: &str) -> String {
    name.chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || ".-".contains(letter) { letter } else { '-' })
        .collect()
}
