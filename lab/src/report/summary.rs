//! The summary of a report: for each section the best server, and by how much Dunlin differs from the baseline.
//!
//! A section is judged by the headline metric of its rows. The best server is the one with the best median in most
//! rows. The difference is the geometric mean of the rows' ratios, with the smallest and the largest.

use std::borrow::Cow;

use super::super::results::{Results, Section};
use dunlin_bench::figures::{Line, Table, higher_is_better};

/// The column that is compared with the baseline.
const OWN: &str = "dunlin";

/// The verdict on the rows of a section that share a headline metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The experiment's name.
    pub experiment: Cow<'static, str>,
    section: String,
    metric: String,
    best: String,
    difference: String,
}

impl Verdict {
    /// The names of the cells.
    pub const HEADINGS: [&str; 5] = ["experiment", "section", "figure", "best", "Dunlin beside the baseline"];

    /// The verdicts on an experiment's results.
    pub fn on(results: &Results) -> Vec<Self> {
        let mut verdicts = Vec::new();
        for section in &results.sections {
            let lines: Vec<_> = section.table.lines().into_iter().filter(|line| line.headline).collect();
            let mut metrics: Vec<(&str, &str)> = Vec::new();
            for line in &lines {
                if !metrics.contains(&(line.metric, line.unit)) {
                    metrics.push((line.metric, line.unit));
                }
            }
            for (metric, unit) in metrics {
                let rows: Vec<_> = lines.iter().filter(|line| line.metric == metric).collect();
                verdicts.push(Self {
                    experiment: results.experiment.clone(),
                    section: section.title.clone(),
                    metric: format!("{metric}, {unit}"),
                    best: best(&section.table, &rows, higher_is_better(unit)),
                    difference: difference(section, &rows),
                });
            }
        }
        verdicts
    }

    /// The cells of its row.
    pub fn cells(&self) -> [&str; 5] {
        [&self.experiment, &self.section, &self.metric, &self.best, &self.difference]
    }
}

/// The server with the best median in most of the rows.
fn best(table: &Table, rows: &[&Line<'_>], higher: bool) -> String {
    let mut wins = vec![0; table.servers.len()];
    let mut contested = 0;
    for line in rows {
        let medians = table.servers.iter().enumerate().filter_map(|(index, server)| {
            let median = table.figure(line.row, line.metric, server)?.median();
            median.is_finite().then_some((index, if higher { -median } else { median }))
        });
        let medians: Vec<_> = medians.collect();
        if let Some((index, _)) = medians.iter().min_by(|one, other| one.1.total_cmp(&other.1)) {
            wins[*index] += 1;
            contested += usize::from(medians.len() > 1);
        }
    }
    let Some((winner, won)) =
        wins.iter().enumerate().max_by_key(|(index, won)| (**won, std::cmp::Reverse(*index)))
    else {
        return "–".into();
    };
    match contested {
        0 => "no other server was measured".into(),
        1 => table.servers[winner].clone(),
        _ => format!("{} in {won} of {} rows", table.servers[winner], rows.len()),
    }
}

/// Dunlin's ratios to the baseline.
fn difference(section: &Section, rows: &[&Line<'_>]) -> String {
    let table = &section.table;
    if table.baseline == OWN {
        return "–".into();
    }
    let ratios = rows.iter().filter_map(|line| table.ratio(line.row, line.metric, OWN));
    let ratios: Vec<f64> = ratios.filter(|ratio| *ratio > 0.0).collect();
    if ratios.is_empty() {
        return "–".into();
    }
    let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
    let (low, high) = ratios
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(low, high), ratio| (low.min(*ratio), high.max(*ratio)));
    let range = if ratios.len() > 1 { format!(" [{low:.2}..{high:.2}]") } else { String::new() };
    format!("{mean:.2}×{range} of {}", table.baseline)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EXPERIMENTS;
    use crate::experiment::Scale;
    use dunlin_bench::figures::sample;

    fn verdict(unit: &'static str, rows: &[(&str, f64, f64)]) -> Vec<Verdict> {
        let mut results = Results::new(&EXPERIMENTS[0], Scale(1.0));
        let mut section = Section::new("Sweep", "", &["dunlin".into(), "redis-server".into()]);
        for (row, dunlin, redis) in rows {
            section.table.add(
                row,
                "dunlin",
                vec![sample("figure", unit, *dunlin), sample("other", "s", 9.0)],
            );
            section.table.add(
                row,
                "redis-server",
                vec![sample("figure", unit, *redis), sample("other", "s", 1.0)],
            );
        }
        results.sections.push(section);
        Verdict::on(&results)
    }

    #[test]
    fn rates_are_won_by_the_highest_and_times_by_the_lowest() {
        let rows = [("1", 200.0, 100.0), ("2", 200.0, 50.0), ("3", 10.0, 20.0)];
        let [rate] = &verdict("requests/s", &rows)[..] else { panic!("one metric") };
        assert_eq!(
            rate.cells()[2..],
            ["figure, requests/s", "dunlin in 2 of 3 rows", "1.59× [0.50..4.00] of redis-server"]
        );
        let [time] = &verdict("ms", &rows)[..] else { panic!("one metric") };
        assert_eq!(time.cells()[3], "redis-server in 2 of 3 rows");
        assert_eq!(verdict("ms", &rows[..1])[0].cells()[3..], ["redis-server", "2.00× of redis-server"]);
    }
}
