//! The report of a run: one HTML file with its plots inside, a Markdown summary, and the raw figures as
//! JSON and CSV.

mod html;
mod summary;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::experiment::Lab;
use super::results::{Results, Section};
use dunlin_bench::figures::Figure;
use dunlin_bench::plot::{self, Palette, Plot};
use dunlin_bench::process;
use summary::Verdict;

/// Everything that a run gave.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Version of the program.
    pub dunlin_bench: Cow<'static, str>,
    /// When the run began, in UTC.
    #[serde(default)]
    pub date: String,
    /// The machine.
    pub machine: String,
    /// Columns and their versions, scale, rounds, seed, processors.
    pub conditions: Vec<String>,
    /// The results of the experiments.
    pub results: Vec<Results>,
}

impl Report {
    /// A report without results.
    pub fn new(lab: &Lab, scales: &str) -> Self {
        let mut conditions: Vec<String> = (lab.contenders.iter())
            .map(|contender| format!("{}: {}", contender.name, contender.version()))
            .collect();
        conditions.push(format!("scale {scales}; {} rounds; seed {}", lab.rounds, lab.seed));
        let list =
            |processors: &[usize]| processors.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        conditions.push(format!(
            "servers that the lab starts run on processors {}; the load on {}",
            list(&lab.server_processors),
            list(&lab.client_processors)
        ));
        let all = [&lab.server_processors[..], &lab.client_processors].concat();
        let mut distinct = all.clone();
        distinct.sort_unstable();
        distinct.dedup();
        Self {
            dunlin_bench: env!("CARGO_PKG_VERSION").into(),
            date: httpdate::fmt_http_date(SystemTime::now()),
            machine: process::machine(&distinct),
            conditions,
            results: Vec::new(),
        }
    }

    /// Reads the `results.json` of an earlier run.
    pub fn read(file: &Path) -> Result<Self, String> {
        let text =
            fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        serde_json::from_str(&text)
            .map_err(|error| format!("{} is no results.json of the lab: {error}", file.display()))
    }

    /// Adds a line about the run as a whole.
    pub fn remark(&mut self, line: String) {
        self.conditions.push(line);
    }

    /// The colours of all its servers: those that take part in most experiments first.
    fn palette(&self) -> Palette {
        let sections = self.results.iter().flat_map(|results| &results.sections);
        Palette::new(sections.flat_map(|section| &section.table.servers).map(String::as_str))
    }

    fn verdicts(&self) -> impl Iterator<Item = Verdict> {
        self.results.iter().flat_map(Verdict::on)
    }

    /// Everything that was checked, with the experiment's name.
    fn checks(&self) -> impl Iterator<Item = (&str, &String)> {
        self.results
            .iter()
            .flat_map(|results| results.checks.iter().map(|check| (&*results.experiment, check)))
    }

    /// Writes `report.html`, `report.md` with its plots, `results.json` and `results.csv`.
    pub fn write(&self, folder: &Path) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("cannot write to {}: {error}", folder.display());
        fs::create_dir_all(folder).map_err(failed)?;
        let json = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        fs::write(folder.join("results.json"), json + "\n").map_err(failed)?;
        fs::write(folder.join("results.csv"), self.csv()).map_err(failed)?;
        fs::write(folder.join("report.html"), html::page(self)?).map_err(failed)?;
        fs::write(folder.join("report.md"), self.markdown()).map_err(failed)?;
        let palette = self.palette();
        for results in &self.results {
            for (name, plot) in plots(results) {
                fs::write(folder.join(name), plot::svg(plot, &palette)?).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// CSV text with a line for each sample.
    pub fn csv(&self) -> String {
        let mut text = String::from("experiment,section,row,server,metric,unit,round,value\n");
        for results in &self.results {
            for Section { title, table, .. } in &results.sections {
                for figure in &table.figures {
                    let Figure { row, server, metric, unit, .. } = figure;
                    let names: [&str; 6] = [&results.experiment, title, row, server, metric, unit];
                    let names = names.map(|name| format!("\"{}\"", name.replace('"', "\"\""))).join(",");
                    for (round, value) in figure.samples.iter().enumerate() {
                        let _ = writeln!(text, "{names},{},{value}", round + 1);
                    }
                }
            }
        }
        text
    }

    /// The summary: all tables, with the plots beside them as files.
    pub fn markdown(&self) -> String {
        let mut text = String::from("# dunlin-lab\n\n");
        for line in self.lines() {
            let _ = writeln!(text, "- {line}");
        }
        let _ = write!(
            text,
            "\n## Summary\n\n| {} |\n|{}\n",
            Verdict::HEADINGS.join(" | "),
            "---|".repeat(Verdict::HEADINGS.len())
        );
        for verdict in self.verdicts() {
            let _ = writeln!(text, "| {} |", verdict.cells().join(" | "));
        }
        let _ = writeln!(
            text,
            "\n{} checks of answers held; each experiment lists its own.",
            self.checks().count()
        );
        for results in &self.results {
            let _ =
                write!(text, "\n## {} ({})\n\n{}\n\n", results.title, results.founding, results.explanation);
            for (label, lines) in results.remarks() {
                for line in lines {
                    let _ = writeln!(text, "- {label}: {line}");
                }
            }
            let files = plots(results);
            let mut names = files.iter().map(|(name, _)| name);
            for section in &results.sections {
                let _ = write!(
                    text,
                    "\n### {}\n\n{} {}\n\n{}",
                    section.title,
                    section.method,
                    reading(section),
                    section.table.markdown()
                );
                for name in names.by_ref().take(section.plots.len()) {
                    let _ = writeln!(text, "\n![{}]({name})", section.title);
                }
            }
        }
        text
    }

    /// An experiment's tables for a terminal.
    pub fn terminal(&self, results: &Results) -> String {
        let mut text = format!("{} ({})\n", results.title, results.founding);
        for section in &results.sections {
            let _ = writeln!(text, "\n  {}", section.title);
            let mut cells = vec![vec!["".to_string(), "".into()]];
            cells[0].extend(section.table.servers.iter().cloned());
            let mut last = "";
            for line in section.table.lines() {
                let row = if line.row == last { "" } else { line.row };
                last = line.row;
                let mut cell = vec![row.to_string(), format!("{} ({})", line.metric, line.unit)];
                cell.extend(
                    section
                        .table
                        .servers
                        .iter()
                        .map(|server| section.table.cell(line.row, line.metric, server)),
                );
                cells.push(cell);
            }
            text.push_str(&aligned(&cells));
        }
        for (label, lines) in results.remarks() {
            for line in lines.iter().filter(|_| label != "setting") {
                let _ = writeln!(text, "  {label}: {line}");
            }
        }
        text
    }

    /// The conditions of the run.
    fn lines(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let date = (!self.date.is_empty()).then(|| format!("begun {}", self.date).into());
        let others = std::iter::once(&self.machine).chain(&self.conditions);
        date.into_iter().chain(others.map(|line| Cow::from(line.as_str())))
    }
}

impl Results {
    /// Everything beside the figures, with its name.
    fn remarks(&self) -> [(&'static str, &[String]); 3] {
        [("setting", &self.settings), ("checked", &self.checks), ("note", &self.notes)]
    }
}

/// How the cells of a section are to be read.
fn reading(section: &Section) -> String {
    format!("Median [smallest..largest] of all rounds; in brackets the ratio to {}.", section.table.baseline)
}

/// File names of all plots, and the plots, section by section.
fn plots(results: &Results) -> Vec<(String, &Plot)> {
    let plots = results.sections.iter().flat_map(|section| &section.plots);
    plots
        .enumerate()
        .map(|(index, plot)| (format!("{}-{}.svg", results.experiment, index + 1), plot))
        .collect()
}

/// Columns side by side; the first two to the left, figures to the right.
fn aligned(cells: &[Vec<String>]) -> String {
    let columns = cells.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        cells.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in cells {
        let mut line = String::from(" ");
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let _ =
                if column < 2 { write!(line, " {cell:<width$}") } else { write!(line, "  {cell:>width$}") };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EXPERIMENTS;
    use crate::experiment::Scale;
    use dunlin_bench::figures::sample;

    fn report() -> Report {
        let mut section =
            Section::new("A \"sweep\" & more", "How <it> was done.", &["dunlin".into(), "redis".into()]);
        for (row, value) in [("1", 10.0), ("16", 100.0)] {
            section.table.add(row, "dunlin", vec![sample("speed", "1/s", value)]);
            section.table.add(row, "redis", vec![sample("speed", "1/s", value / 2.0)]);
        }
        section.plot_curve("depth", "speed");
        section.plot_bars("speed");
        let mut results = Results::new(&EXPERIMENTS[0], Scale(1.0));
        results.checks.push("all well".into());
        results.sections.push(section);
        let (machine, conditions) = ("a machine".to_string(), vec!["redis: v=7".to_string()]);
        let date = "Wed, 25 Nov 2026 01:30:26 GMT".into();
        Report { dunlin_bench: "0".into(), date, machine, conditions, results: vec![results] }
    }

    #[test]
    fn csv_has_a_line_for_each_sample_and_quotes_quotes() {
        let csv = report().csv();
        assert_eq!(csv.lines().count(), 5);
        assert!(
            csv.contains("\"A \"\"sweep\"\" & more\",\"16\",\"redis\",\"speed\",\"1/s\",1,50\n"),
            "{csv}"
        );
    }

    #[test]
    fn report_is_written_completely_in_every_form() {
        let folder = dunlin_bench::process::ScratchFolder::new().unwrap();
        let report = report();
        report.write(folder.path()).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let (html, markdown) = (read("report.html"), read("report.md"));
        let first = EXPERIMENTS[0].name;
        for number in [1, 2] {
            assert!(markdown.contains(&format!("]({first}-{number}.svg)")), "{markdown}");
            assert!(read(&format!("{first}-{number}.svg")).trim_end().ends_with("</svg>"));
        }
        assert!(markdown.contains("| 16 | speed (1/s) | 100 (2.00×) | 50.0 |"), "{markdown}");
        assert_eq!(html.matches("<svg").count(), 2);
        assert!(html.contains("How &lt;it&gt; was done.") && !html.contains("How <it>"));
        // Self-contained: nothing is loaded from elsewhere.
        assert!(!html.contains("src=") && !html.contains("href=\"http") && !html.contains("@import"));
        assert!(markdown.contains("| dunlin in 2 of 2 rows | 2.00× [2.00..2.00] of redis |"), "{markdown}");
        assert!(
            html.contains("<li>begun Wed, 25 Nov 2026") && html.contains("right (1)</summary>"),
            "{html}"
        );
        let json: serde_json::Value = serde_json::from_str(&read("results.json")).unwrap();
        assert_eq!(json["results"][0]["sections"][0]["figures"][0]["samples"][0], 10.0);
    }

    #[test]
    fn report_is_rewritten_from_its_results() {
        let folder = dunlin_bench::process::ScratchFolder::new().unwrap();
        let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
        report().write(&first).unwrap();
        Report::read(&first.join("results.json")).unwrap().write(&second).unwrap();
        for file in fs::read_dir(&first).unwrap() {
            let name = file.unwrap().file_name();
            let [old, new] = [&first, &second].map(|folder| fs::read_to_string(folder.join(&name)).unwrap());
            assert_eq!(old, new, "{name:?}");
        }
        let no_results = first.join("report.md");
        assert!(Report::read(&no_results).unwrap_err().contains("is no results.json of the lab"));
    }

    #[test]
    fn terminal_report_has_aligned_columns() {
        let report = report();
        let text = report.terminal(&report.results[0]);
        assert!(text.contains("\n  1  speed (1/s)  10.0 (2.00×)   5.00\n"), "{text}");
    }
}
