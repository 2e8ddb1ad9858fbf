//! Figures of a comparison: the samples of each row on each server, round by round, and the table
//! that shows medians, spread and ratios.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// A figure of one measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Its name.
    pub metric: &'static str,
    /// Unit of the value.
    pub unit: &'static str,
    /// The figure.
    pub value: f64,
}

/// A figure with its name.
pub fn sample(metric: &'static str, unit: &'static str, value: f64) -> Sample {
    Sample { metric, unit, value }
}

/// All samples of one metric of one row on one server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Figure {
    /// The row's name.
    pub row: String,
    /// The metric.
    pub metric: Cow<'static, str>,
    /// Unit of the samples.
    pub unit: Cow<'static, str>,
    /// The server's column.
    pub server: String,
    /// Whether it is the row's main figure.
    pub headline: bool,
    /// A value for each round.
    pub samples: Vec<f64>,
}

impl Figure {
    /// The middle sample.
    pub fn median(&self) -> f64 {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        match (sorted.len(), sorted.len() / 2) {
            (0, _) => f64::NAN,
            (length, middle) if length % 2 == 1 => sorted[middle],
            (_, middle) => (sorted[middle - 1] + sorted[middle]) / 2.0,
        }
    }

    /// The smallest and the largest sample.
    pub fn bounds(&self) -> (f64, f64) {
        let fold = |pick: fn(f64, f64) -> f64| self.samples.iter().copied().reduce(pick).unwrap_or(f64::NAN);
        (fold(f64::min), fold(f64::max))
    }
}

/// A line of a table: a metric of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line<'a> {
    /// The row's name.
    pub row: &'a str,
    /// The metric.
    pub metric: &'a str,
    /// Its unit.
    pub unit: &'a str,
    /// Whether it is the row's main figure.
    pub headline: bool,
}

/// Rows of metrics, columns of servers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Table {
    /// Columns, in order; ratios refer to `baseline`.
    pub servers: Vec<String>,
    /// The column that others are compared with.
    pub baseline: String,
    /// The figures, in the order they were first measured.
    pub figures: Vec<Figure>,
}

impl Table {
    /// A table without figures. Ratios refer to `baseline`, or to the first column if that is
    /// missing.
    pub fn new(servers: Vec<String>, baseline: &str) -> Self {
        let baseline =
            servers.iter().find(|name| *name == baseline).or(servers.first()).cloned().unwrap_or_default();
        Self { servers, baseline, figures: Vec::new() }
    }

    /// Adds the samples of one measurement; the first of them is the row's headline.
    pub fn add(&mut self, row: &str, server: &str, samples: Vec<Sample>) {
        for (index, sample) in samples.into_iter().enumerate() {
            let known = self.figures.iter_mut().find(|figure| {
                figure.row == row && figure.server == server && figure.metric == sample.metric
            });
            match known {
                Some(figure) => figure.samples.push(sample.value),
                None => self.figures.push(Figure {
                    row: row.into(),
                    metric: sample.metric.into(),
                    unit: sample.unit.into(),
                    server: server.into(),
                    headline: index == 0,
                    samples: vec![sample.value],
                }),
            }
        }
    }

    /// Rows and their metrics: rows in the order they were first measured, metrics within their row.
    pub fn lines(&self) -> Vec<Line<'_>> {
        let mut rows: Vec<&str> = Vec::new();
        let mut lines: Vec<Line> = Vec::new();
        for figure in &self.figures {
            let Figure { row, metric, unit, headline, .. } = figure;
            if !rows.contains(&row.as_str()) {
                rows.push(row);
            }
            let line = Line { row, metric, unit, headline: *headline };
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines.sort_by_key(|line| rows.iter().position(|row| *row == line.row));
        lines
    }

    /// The figure of one cell.
    pub fn figure(&self, row: &str, metric: &str, server: &str) -> Option<&Figure> {
        self.figures
            .iter()
            .find(|figure| figure.row == row && figure.metric == metric && figure.server == server)
    }

    /// A server's median over the baseline's.
    pub fn ratio(&self, row: &str, metric: &str, server: &str) -> Option<f64> {
        let ratio =
            self.figure(row, metric, server)?.median() / self.figure(row, metric, &self.baseline)?.median();
        ratio.is_finite().then_some(ratio)
    }

    /// Median, spread and ratio of a cell; a dash if nothing was measured.
    pub fn cell(&self, row: &str, metric: &str, server: &str) -> String {
        let Some(figure) = self.figure(row, metric, server) else { return "–".into() };
        let (low, high) = figure.bounds();
        let range = match figure.samples.len() {
            1 => String::new(),
            _ => format!(" [{}..{}]", short(low), short(high)),
        };
        let ratio = self
            .ratio(row, metric, server)
            .filter(|_| *server != self.baseline)
            .map_or(String::new(), |ratio| format!(" ({ratio:.2}×)"));
        format!("{}{range}{ratio}", short(figure.median()))
    }

    /// The table as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::from("| row | metric |");
        for server in &self.servers {
            let _ = write!(text, " {server} |");
        }
        let _ = write!(text, "\n|---|---|{}\n", "---:|".repeat(self.servers.len()));
        for Line { row, metric, unit, .. } in self.lines() {
            let _ = write!(text, "| {row} | {metric} ({unit}) |");
            for server in &self.servers {
                let _ = write!(text, " {} |", self.cell(row, metric, server));
            }
            text.push('\n');
        }
        text
    }
}

/// Whether more of a unit is better: rates and ratios of rates, but not times, bytes and counts.
pub fn higher_is_better(unit: &str) -> bool {
    unit.ends_with("/s") || unit == "×" || unit == "× of before"
}

/// A whole number with a comma before every three digits.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Three significant digits, and no fraction of large numbers.
pub fn short(value: f64) -> String {
    match value.abs() {
        magnitude if (999.5..1e18).contains(&magnitude) => {
            let sign = if value < 0.0 { "-" } else { "" };
            format!("{sign}{}", thousands(magnitude.round() as u64))
        }
        magnitude if magnitude >= 100.0 => format!("{value:.0}"),
        magnitude if magnitude >= 10.0 => format!("{value:.1}"),
        magnitude if magnitude >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(vec!["dunlin".into(), "redis".into()], "redis");
        for (dunlin, redis) in [(1.0, 4.0), (3.0, 5.0), (2.0, 3.0)] {
            for (server, value) in [("dunlin", dunlin), ("redis", redis)] {
                table.add(
                    "get",
                    server,
                    vec![sample("CPU", "µs", value), sample("throughput", "1/s", 123_456.0)],
                );
            }
        }
        table
    }

    #[test]
    fn cells_are_medians_with_bounds_and_ratios_to_the_baseline() {
        let text = table().markdown();
        let line = "| get | CPU (µs) | 2.00 [1.00..3.00] (0.50×) | 4.00 [3.00..5.00] |";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn numbers_have_three_digits_or_separators() {
        let texts = [0.1234, 9.876, 55.55, 999.4, 999.6, 1234.4, 2_100_000.0, -1e6].map(short);
        assert_eq!(texts, ["0.123", "9.88", "55.5", "999", "1,000", "1,234", "2,100,000", "-1,000,000"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn median_of_an_even_number_is_the_mean_of_the_middle_two() {
        let mut table = Table::new(vec!["a".into()], "redis");
        for value in [4.0, 1.0, 2.0, 3.0] {
            table.add("growth", "a", vec![sample("m", "u", value)]);
        }
        assert_eq!((table.figures[0].median(), table.baseline.as_str()), (2.5, "a"));
    }

    #[test]
    fn table_leaves_cells_of_unmeasured_servers_empty() {
        let mut table = table();
        table.servers.push("limit".into());
        assert!(table.markdown().contains("| 4.00 [3.00..5.00] | – |"));
    }

    #[test]
    fn table_keeps_the_row_of_a_metric_that_one_server_lacks() {
        let mut table = table();
        table.add("set", "dunlin", vec![sample("CPU", "µs", 1.0)]);
        table.add("get", "redis", vec![sample("memory", "B", 1.0)]);
        let metrics: Vec<_> = table.lines().iter().map(|line| (line.row, line.metric)).collect();
        assert_eq!(metrics, [("get", "CPU"), ("get", "throughput"), ("get", "memory"), ("set", "CPU")]);
    }
}
