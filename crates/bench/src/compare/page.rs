//! A topic's results as a page: Markdown, JSON and a plot.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use plotters::prelude::*;
use serde::Serialize;

use super::measure::Sample;
use super::rows::Topic;

/// All samples of one metric of one row on one server.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// The row's name.
    pub row: String,
    /// What was measured.
    pub metric: &'static str,
    /// Unit of the samples.
    pub unit: &'static str,
    /// The server's column.
    pub server: String,
    /// Whether it is the row's main figure.
    pub headline: bool,
    /// One value for each round.
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

    fn bounds(&self) -> (f64, f64) {
        let fold = |pick: fn(f64, f64) -> f64| self.samples.iter().copied().reduce(pick).unwrap_or(f64::NAN);
        (fold(f64::min), fold(f64::max))
    }
}

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
    /// Columns, in order; ratios refer to `baseline`.
    pub servers: Vec<String>,
    /// The column that others are compared with.
    pub baseline: String,
    /// The figures.
    pub figures: Vec<Figure>,
}

impl Page {
    /// A page without figures. Ratios refer to `redis`, or to the first column where that is missing.
    pub fn new(topic: Topic, servers: Vec<String>, settings: Vec<String>) -> Self {
        let baseline =
            servers.iter().find(|name| *name == "redis").or(servers.first()).cloned().unwrap_or_default();
        let (name, method) = (topic.file(), topic.method());
        Self { topic, name, method, settings, servers, baseline, figures: Vec::new() }
    }

    /// Adds the samples of one measurement.
    pub fn add(&mut self, row: &str, server: &str, samples: Vec<Sample>) {
        for (index, sample) in samples.into_iter().enumerate() {
            let known = self.figures.iter_mut().find(|figure| {
                figure.row == row && figure.server == server && figure.metric == sample.metric
            });
            match known {
                Some(figure) => figure.samples.push(sample.value),
                None => self.figures.push(Figure {
                    row: row.into(),
                    metric: sample.metric,
                    unit: sample.unit,
                    server: server.into(),
                    headline: index == 0,
                    samples: vec![sample.value],
                }),
            }
        }
    }

    /// Rows and their metrics in the order they were measured.
    fn lines(&self) -> Vec<(&str, &'static str, &'static str, bool)> {
        let mut lines = Vec::new();
        for figure in &self.figures {
            let line = (figure.row.as_str(), figure.metric, figure.unit, figure.headline);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines
    }

    fn figure(&self, row: &str, metric: &str, server: &str) -> Option<&Figure> {
        self.figures
            .iter()
            .find(|figure| figure.row == row && figure.metric == metric && figure.server == server)
    }

    /// A server's median over the baseline's.
    fn ratio(&self, row: &str, metric: &str, server: &str) -> Option<f64> {
        let ratio =
            self.figure(row, metric, server)?.median() / self.figure(row, metric, &self.baseline)?.median();
        ratio.is_finite().then_some(ratio)
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
            self.baseline
        );
        let _ = write!(text, "| row | metric |");
        for server in &self.servers {
            let _ = write!(text, " {server} |");
        }
        let _ = write!(text, "\n|---|---|{}\n", "---:|".repeat(self.servers.len()));
        for (row, metric, unit, _) in self.lines() {
            let _ = write!(text, "| {row} | {metric} ({unit}) |");
            for server in &self.servers {
                let cell = self.figure(row, metric, server).map_or("–".to_string(), |figure| {
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
                });
                let _ = write!(text, " {cell} |");
            }
            text.push('\n');
        }
        let _ = writeln!(text, "\n![{}]({}.svg)", self.topic.title(), self.name);
        text
    }

    /// Writes the page, its figures and its plot.
    pub fn write(&self, folder: &Path) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("cannot write to {}: {error}", folder.display());
        fs::create_dir_all(folder).map_err(failed)?;
        let json = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        fs::write(folder.join(format!("{}.md", self.name)), self.markdown()).map_err(failed)?;
        fs::write(folder.join(format!("{}.json", self.name)), json + "\n").map_err(failed)?;
        fs::write(folder.join(format!("{}.svg", self.name)), self.plot()?).map_err(failed)
    }

    /// Horizontal bars: the headline of each row on each server, as a ratio to the baseline.
    pub fn plot(&self) -> Result<String, String> {
        const WIDTH: i32 = 860;
        const LEFT: i32 = 250;
        const BAR: i32 = 16;
        const GAP: i32 = 14;
        const TOP: i32 = 60;
        let lines: Vec<_> = self.lines().into_iter().filter(|(.., headline)| *headline).collect();
        let group = BAR * self.servers.len() as i32 + GAP;
        let height = TOP + group * lines.len() as i32 + 30;
        let ratios = lines.iter().flat_map(|(row, metric, ..)| {
            self.servers.iter().filter_map(|server| self.ratio(row, metric, server))
        });
        let scale = f64::from(WIDTH - LEFT - 110) / ratios.fold(1.0, f64::max);
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32)).into_drawing_area();
            let failed = |error: DrawingAreaErrorKind<_>| format!("cannot draw the plot: {error:?}");
            area.fill(&WHITE).map_err(failed)?;
            let title = format!("{} (bars: ratio to {})", self.topic.title(), self.baseline);
            area.draw(&Text::new(title, (20, 20), ("sans-serif", 18))).map_err(failed)?;
            for (index, (row, metric, unit, _)) in lines.iter().enumerate() {
                let top = TOP + group * index as i32;
                for (column, server) in self.servers.iter().enumerate() {
                    let y = top + BAR * column as i32;
                    let label = if column == 0 { format!("{row}  {server}") } else { server.clone() };
                    area.draw(&Text::new(label, (20, y + 2), ("sans-serif", 12))).map_err(failed)?;
                    let Some(figure) = self.figure(row, metric, server) else { continue };
                    let length = self.ratio(row, metric, server).map_or(0, |ratio| (ratio * scale) as i32);
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

/// Three significant digits, and no fraction of large numbers.
fn short(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude >= 100.0 => format!("{value:.0}"),
        magnitude if magnitude >= 10.0 => format!("{value:.1}"),
        magnitude if magnitude >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> Page {
        let mut page =
            Page::new(Topic::Requests, vec!["dunlin".into(), "redis".into()], vec!["a setting".into()]);
        for (dunlin, redis) in [(1.0, 4.0), (3.0, 5.0), (2.0, 3.0)] {
            for (server, value) in [("dunlin", dunlin), ("redis", redis)] {
                page.add(
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
    fn cells_are_medians_with_bounds_and_ratios_to_redis() {
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
    fn an_even_number_of_rounds_takes_the_mean_of_the_middle_two() {
        let mut page = Page::new(Topic::Growth, vec!["a".into()], vec![]);
        for value in [4.0, 1.0, 2.0, 3.0] {
            page.add("growth", "a", vec![Sample { metric: "m", unit: "u", value }]);
        }
        assert_eq!(page.figures[0].median(), 2.5);
    }

    #[test]
    fn a_server_that_was_not_measured_leaves_its_cell_empty() {
        let mut page = page();
        page.servers.push("limit".into());
        assert!(page.markdown().contains("| 4.00 [3.00..5.00] | – |"));
        assert!(page.plot().unwrap().contains("limit"));
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
