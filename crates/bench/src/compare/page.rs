//! A topic's results as a page: Markdown, JSON and a plot.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use plotters::prelude::*;
use serde::Serialize;

use super::{
    compaction::{Course, WINDOW},
    rows::Topic,
};
use crate::{
    figures::{Line, Table, short},
    lab::{self, compaction::plot_course},
    latency::Latencies,
};

/// The results of a topic.
#[derive(Debug, Clone, Serialize)]
pub struct Page {
    #[serde(skip)]
    pub topic: Topic,
    /// The topic's name.
    pub name: &'static str,
    /// How the figures came about.
    pub method: &'static str,
    /// Machine, servers and sizes.
    pub settings: Vec<String>,
    /// The figures.
    #[serde(flatten)]
    pub table: Table,
    /// By row and server, what went on in the last round.
    #[serde(skip)]
    courses: Vec<(&'static str, Course)>,
}

/// What is drawn of a course, for each window: the end of the file's name, heading and unit, and the figure.
type CoursePlot = (&'static str, &'static str, &'static str, fn(&Latencies) -> f64);
const COURSE_PLOTS: [CoursePlot; 2] = [
    ("throughput", "Throughput over time", "requests/s", |window| {
        window.count() as f64 / WINDOW.as_secs_f64()
    }),
    ("latency", "p99.9 over time", "ms", |window| window.quantile_ms(0.999)),
];

impl Page {
    /// A page without figures. Ratios refer to `redis`, or to the first column where that is missing.
    pub fn new(topic: Topic, servers: Vec<String>, settings: Vec<String>) -> Self {
        let table = Table::new(servers, "redis");
        Self { topic, name: topic.file(), method: topic.method(), settings, table, courses: Vec::new() }
    }

    /// Adds what went on during a measurement, in the place of what did in an earlier round.
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
        fs::write(folder.join(format!("{}.svg", self.name)), self.plot()?).map_err(failed)?;
        for row in self.courses_of() {
            let courses = self.courses.iter().filter(|(of, _)| *of == row);
            let runs: Vec<_> = courses
                .map(|(_, course)| (course.server.clone(), course.windows.clone(), course.stretch))
                .collect();
            for (end, title, unit, figure) in COURSE_PLOTS {
                let plot = plot_course(&format!("{row}: {title}"), unit, WINDOW, &runs, figure);
                let path = folder.join(format!("{}-{row}-{end}.svg", self.name));
                fs::write(path, lab::svg(&plot)?).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Horizontal bars: the headline of each row on each server, as a ratio to the baseline.
    pub fn plot(&self) -> Result<String, String> {
        const WIDTH: i32 = 860;
        const LEFT: i32 = 250;
        const BAR: i32 = 16;
        const GAP: i32 = 14;
        const TOP: i32 = 60;
        let table = &self.table;
        let lines: Vec<_> = table.lines().into_iter().filter(|line| line.headline).collect();
        let group = BAR * table.servers.len() as i32 + GAP;
        let height = TOP + group * lines.len() as i32 + 30;
        let ratios = lines.iter().flat_map(|line| {
            table.servers.iter().filter_map(|server| table.ratio(line.row, line.metric, server))
        });
        let scale = f64::from(WIDTH - LEFT - 110) / ratios.fold(1.0, f64::max);
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32)).into_drawing_area();
            let failed = |error: DrawingAreaErrorKind<_>| format!("cannot draw the plot: {error:?}");
            area.fill(&WHITE).map_err(failed)?;
            let title = format!("{} (bars: ratio to {})", self.topic.title(), table.baseline);
            area.draw(&Text::new(title, (20, 20), ("sans-serif", 18))).map_err(failed)?;
            for (index, Line { row, metric, unit, .. }) in lines.iter().enumerate() {
                let top = TOP + group * index as i32;
                for (column, server) in table.servers.iter().enumerate() {
                    let y = top + BAR * column as i32;
                    let label = if column == 0 { format!("{row}  {server}") } else { server.clone() };
                    area.draw(&Text::new(label, (20, y + 2), ("sans-serif", 12))).map_err(failed)?;
                    let Some(figure) = table.figure(row, metric, server) else { continue };
                    let length = table.ratio(row, metric, server).map_or(0, |ratio| (ratio * scale) as i32);
                    let corners = [(LEFT, y), (LEFT + length.max(1), y + BAR - 2)];
                    area.draw(&Rectangle::new(corners, Palette99::pick(column).filled())).map_err(failed)?;
                    let value = format!("{} {unit}", short(figure.median()));
                    area.draw(&Text::new(value, (LEFT + length + 6, y + 2), ("sans-serif", 12)))
                        .map_err(failed)?;
                }
            }
            let one = LEFT + scale as i32;
            let bottom = TOP + group * lines.len() as i32 - GAP;
            area.draw(&PathElement::new([(one, TOP - 6), (one, bottom)], BLACK.mix(0.4))).map_err(failed)?;
            area.present().map_err(failed)?;
        }
        svg.push('\n');
        Ok(svg)
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
    fn a_page_has_its_settings_its_table_and_its_plot() {
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
    fn the_plot_has_a_bar_for_each_headline_and_server() {
        let svg = page().plot().unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        // The background and two bars.
        assert_eq!(svg.matches("<rect").count(), 3);
        assert!(!svg.contains("123456"), "throughput is no headline");
    }
}
