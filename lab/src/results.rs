//! The results of an experiment: sections, each a table with plots, the checks that were passed, and
//! the parts that were left out.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::experiment::Scale;
use dunlin_bench::figures::{Figure, Table};
use dunlin_bench::plot::{Bar, Curve, Plot};

/// The results of an experiment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Results {
    /// The experiment's name.
    pub experiment: Cow<'static, str>,
    /// The founding experiment it belongs to.
    pub founding: Cow<'static, str>,
    /// Its heading.
    pub title: String,
    /// Its procedure.
    pub explanation: String,
    /// Settings of the servers and sizes.
    pub settings: Vec<String>,
    /// Checks of the answers that held.
    pub checks: Vec<String>,
    /// Parts that were left out, and why; facts worth knowing beside the figures.
    pub notes: Vec<String>,
    /// Tables and plots.
    pub sections: Vec<Section>,
}

impl Results {
    /// Results without any figure, of a run at this scale.
    pub fn new(experiment: &super::Experiment, scale: Scale) -> Self {
        Self {
            experiment: experiment.name.into(),
            founding: experiment.founding.into(),
            title: experiment.title_at(scale),
            explanation: experiment.explanation_at(scale).join(" "),
            settings: Vec::new(),
            checks: Vec::new(),
            notes: Vec::new(),
            sections: Vec::new(),
        }
    }

    /// Adds a setting, once.
    pub fn setting(&mut self, text: String) {
        if !self.settings.contains(&text) {
            self.settings.push(text);
        }
    }
}

/// A table and its plots.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Section {
    /// Heading.
    pub title: String,
    /// How the figures are made and how to read them.
    pub method: String,
    /// The figures.
    #[serde(flatten)]
    pub table: Table,
    /// The plots of it.
    pub plots: Vec<Plot>,
}

impl Section {
    /// A section without figures; ratios refer to the first column that is not Dunlin's.
    pub fn new(title: &str, method: &str, servers: &[String]) -> Self {
        let baseline = servers.iter().find(|name| *name != "dunlin").map_or("", String::as_str);
        let table = Table::new(servers.to_vec(), baseline);
        Self { title: title.into(), method: method.into(), table, plots: Vec::new() }
    }

    /// Draws a metric of all rows as bars.
    pub fn plot_bars(&mut self, metric: &str) {
        let mut bars = Vec::new();
        let mut unit = "";
        for line in self.table.lines().iter().filter(|line| line.metric == metric) {
            for server in &self.table.servers {
                if let Some(figure) = self.table.figure(line.row, metric, server) {
                    let (server, row) = (server.clone(), line.row.to_string());
                    let (value, spread) = (figure.median(), spread(figure));
                    bars.push(Bar { row, server, value, spread, label: None });
                    unit = line.unit;
                }
            }
        }
        let title = format!("{}: {metric}, {unit}", self.title);
        self.plots.push(Plot::Bars { title, bars, reference: None });
    }

    /// Draws a metric as one curve a server, over the rows' names, which are numbers. Both axes are
    /// logarithmic.
    pub fn plot_curve(&mut self, x_axis: &str, metric: &str) {
        let mut unit = String::new();
        let mut curves = Vec::new();
        for server in &self.table.servers {
            let (mut points, mut spreads) = (Vec::new(), Vec::new());
            for line in self.table.lines().iter().filter(|line| line.metric == metric) {
                let figure = self.table.figure(line.row, metric, server);
                if let (Some(figure), Ok(x)) = (figure, line.row.parse::<f64>()) {
                    points.push((x, figure.median()));
                    spreads.extend(spread(figure));
                    unit = line.unit.into();
                }
            }
            if !points.is_empty() {
                curves.push(Curve { server: server.clone(), points, spreads });
            }
        }
        self.plots.push(Plot::Curves {
            title: format!("{}: {metric}", self.title),
            x_axis: x_axis.into(),
            y_axis: unit,
            is_logarithmic: true,
            curves,
            bands: Vec::new(),
        });
    }
}

/// The bounds of a figure's samples, if there are several.
fn spread(figure: &Figure) -> Option<(f64, f64)> {
    (figure.samples.len() > 1).then(|| figure.bounds())
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_bench::figures::sample;

    #[test]
    fn plots_take_the_medians_of_their_metric() {
        let mut section = Section::new("Sweep", "", &["dunlin".into(), "redis".into()]);
        assert_eq!(section.table.baseline, "redis");
        for (row, value) in [("1", 10.0), ("1", 30.0), ("16", 100.0)] {
            section.table.add(row, "dunlin", vec![sample("speed", "1/s", value), sample("other", "s", 0.0)]);
        }
        section.plot_curve("depth", "speed");
        section.plot_bars("speed");
        let [Plot::Curves { curves, y_axis, .. }, Plot::Bars { bars, title, .. }] = &section.plots[..] else {
            panic!("{:?}", section.plots)
        };
        assert_eq!((curves.len(), &curves[0].points[..]), (1, &[(1.0, 20.0), (16.0, 100.0)][..]));
        assert_eq!((y_axis.as_str(), bars.len(), title.as_str()), ("1/s", 2, "Sweep: speed, 1/s"));
    }
}
