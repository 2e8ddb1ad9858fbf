//! A topic's results as a page: Markdown, JSON and a plot.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::Serialize;

use super::{
    compaction::{Course, WINDOW},
    rows::Topic,
};
use crate::{
    figures::{Line, Table, short},
    latency::Latencies,
    plot::{self, Bar, Palette, Plot, course::plot_course},
};

/// The results of a topic.
#[derive(Debug, Clone, Serialize)]
pub struct Page {
    #[serde(skip)]
    pub topic: Topic,
    /// The topic's name.
    pub name: &'static str,
    /// How the figures were made.
    pub method: &'static str,
    /// Machine, servers and sizes.
    pub settings: Vec<String>,
    /// The figures.
    #[serde(flatten)]
    pub table: Table,
    /// By row and server, the course of the last round.
    #[serde(skip)]
    courses: Vec<(&'static str, Course)>,
}

/// A plot of a course, for each window: the end of the file's name, heading and unit, and the figure.
type CoursePlot = (&'static str, &'static str, &'static str, fn(&Latencies) -> f64);
const COURSE_PLOTS: [CoursePlot; 2] = [
    ("throughput", "Throughput over time", "requests/s", |window| {
        window.count() as f64 / WINDOW.as_secs_f64()
    }),
    ("latency", "p99.9 over time", "ms", |window| window.quantile_ms(0.999)),
];

impl Page {
    /// A page without figures. Ratios refer to `redis`, or to the first column if that is missing.
    pub fn new(topic: Topic, servers: Vec<String>, settings: Vec<String>) -> Self {
        let table = Table::new(servers, "redis");
        Self { topic, name: topic.file(), method: topic.method(), settings, table, courses: Vec::new() }
    }

    /// Adds the course of a measurement, in the place of that of an earlier round.
    pub fn add_course(&mut self, row: &'static str, course: Option<Course>) {
        let Some(course) = course else { return };
        self.courses.retain(|(known, other)| *known != row || other.server != course.server);
        self.courses.push((row, course));
        self.courses
            .sort_by_key(|(_, course)| self.table.servers.iter().position(|server| *server == course.server));
    }

    /// The names of rows with courses.
    fn courses_of(&self) -> Vec<&'static str> {
        let mut rows: Vec<_> = self.courses.iter().map(|(row, _)| *row).collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    /// The page as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("# {}\n\n{}\n\n", self.topic.title(), self.method);
        for setting in &self.settings {
            let _ = writeln!(text, "- {setting}");
        }
        let better = if self.topic.lower_is_better() { "lower" } else { "higher" };
        let _ = writeln!(
            text,
            "\nMedian [smallest..largest] of all rounds; in brackets the ratio to {}. For the first metric of each row \
             {better} is better.\n",
            self.table.baseline
        );
        text.push_str(&self.table.markdown());
        let _ = writeln!(text, "\n![{}]({}.svg)", self.topic.title(), self.name);
        for row in self.courses_of() {
            for (end, title, ..) in COURSE_PLOTS {
                let _ = writeln!(text, "\n![{row}: {title}]({}-{row}-{end}.svg)", self.name);
            }
        }
        text
    }

    /// Writes the page, its figures and its plot.
    pub fn write(&self, folder: &Path) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("cannot write to {}: {error}", folder.display());
        fs::create_dir_all(folder).map_err(failed)?;
        let json = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        fs::write(folder.join(format!("{}.md", self.name)), self.markdown()).map_err(failed)?;
        fs::write(folder.join(format!("{}.json", self.name)), json + "\n").map_err(failed)?;
        let plot = plot::svg(&self.plot(), &self.palette())?;
        fs::write(folder.join(format!("{}.svg", self.name)), plot).map_err(failed)?;
        for row in self.courses_of() {
            let courses = self.courses.iter().filter(|(of, _)| *of == row);
            let runs: Vec<_> = courses
                .map(|(_, course)| (course.server.clone(), course.windows.clone(), course.stretch))
                .collect();
            for (end, title, unit, figure) in COURSE_PLOTS {
                let plot = plot_course(&format!("{row}: {title}"), unit, WINDOW, &runs, figure);
                let path = folder.join(format!("{}-{row}-{end}.svg", self.name));
                fs::write(path, plot::svg(&plot, &self.palette())?).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn palette(&self) -> Palette {
        Palette::new(self.table.servers.iter().map(String::as_str))
    }

    /// Bars of the headline of each row on each server, as ratios to the baseline with the figure behind each.
    fn plot(&self) -> Plot {
        let table = &self.table;
        let mut bars = Vec::new();
        for Line { row, metric, unit, .. } in table.lines().into_iter().filter(|line| line.headline) {
            for server in &table.servers {
                let Some(figure) = table.figure(row, metric, server) else { continue };
                let ratio = table.ratio(row, metric, server).unwrap_or(0.0);
                let per_unit = ratio / figure.median();
                let (low, high) = figure.bounds();
                let spread = (figure.samples.len() > 1 && per_unit.is_finite())
                    .then_some((low * per_unit, high * per_unit));
                let label = Some(format!("{} {unit}", short(figure.median())));
                bars.push(Bar { row: row.into(), server: server.clone(), value: ratio, spread, label });
            }
        }
        let title = format!("{} (bars: ratio to {})", self.topic.title(), table.baseline);
        Plot::Bars { title, bars, reference: Some(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Sample;

    fn page() -> Page {
        let mut page =
            Page::new(Topic::Requests, vec!["dunlin".into(), "redis".into()], vec!["a setting".into()]);
        for (dunlin, redis) in [(1.0, 4.0), (3.0, 5.0), (2.0, 3.0)] {
            for (server, value) in [("dunlin", dunlin), ("redis", redis)] {
                page.table.add(
                    "get-tcp-1",
                    server,
                    vec![
                        Sample { metric: "server CPU per request", unit: "µs", value },
                        Sample { metric: "throughput", unit: "requests/s", value: 123_456.0 },
                    ],
                );
            }
        }
        page
    }

    #[test]
    fn page_has_its_settings_its_table_and_its_plot() {
        let text = page().markdown();
        assert!(
            text.contains(
                "| get-tcp-1 | server CPU per request (µs) | 2.00 [1.00..3.00] (0.50×) | 4.00 [3.00..5.00] |"
            ),
            "{text}"
        );
        assert!(
            text.contains("- a setting\n") && text.contains("![Processor time per request](requests.svg)")
        );
    }

    #[test]
    fn plot_has_a_bar_for_each_headline_and_server() {
        let page = page();
        let svg = plot::svg(&page.plot(), &page.palette()).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        // The background and two bars.
        assert_eq!(svg.matches("<rect").count(), 3);
        assert!(!svg.contains("123456"), "throughput is no headline");
    }
}
