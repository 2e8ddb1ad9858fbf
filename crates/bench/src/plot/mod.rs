//! Plots as SVG: bars and curves of several servers, for the lab's report and the pages of `bench compare`.
//!
//! ```text
//! Plot (what is drawn) ─┐
//! Palette (whose mark) ─┴→ svg ─→ text, light or dark as the reader's system is
//! ```
//!
//! Invariants: a server has one colour and one mark in every plot that shares a palette; every axis has
//! numbers; a logarithmic axis says that it is one.

mod axis;
pub mod course;
mod palette;
mod svg;

use serde::{Deserialize, Serialize};

pub use palette::Palette;
pub use svg::svg;

/// A smallest and a largest sample, drawn as a bar through the median.
pub type Spread = (f64, f64);

/// A bar of a plot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Bar {
    /// The group it stands in.
    pub row: String,
    /// The server that it belongs to.
    pub server: String,
    /// Its length.
    pub value: f64,
    /// The spread of the samples whose median the length is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// Text behind the bar; the value when omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

/// A line of a plot.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Curve {
    /// The server that it belongs to.
    pub server: String,
    /// In the order of x.
    pub points: Vec<(f64, f64)>,
    /// The spread at each point, or nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spreads: Vec<Spread>,
}

/// A stretch of the x axis that is set off.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Band {
    /// The event of the band; the text begins with the server's name.
    pub label: String,
    /// Start of the band on the axis.
    pub from: f64,
    /// End of the band on the axis.
    pub to: f64,
}

/// A table of ratios whose cells are coloured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Heat {
    /// Heading.
    pub title: String,
    /// Headings of columns.
    pub columns: Vec<String>,
    /// Headings of rows.
    pub rows: Vec<String>,
    /// Row by row; nothing if there is no figure.
    pub values: Vec<Option<f64>>,
}

/// A picture.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Plot {
    /// Horizontal bars, a group for each row.
    Bars {
        /// Heading, with the unit.
        title: String,
        /// All bars, those of a row together.
        bars: Vec<Bar>,
        /// A value that a line is drawn at.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reference: Option<f64>,
    },
    /// Lines over a common x axis.
    Curves {
        /// Heading.
        title: String,
        /// Name of the x axis.
        x_axis: String,
        /// Name or unit of the y axis.
        y_axis: String,
        /// Whether both axes are logarithmic; both begin at 0 otherwise.
        is_logarithmic: bool,
        /// The lines.
        curves: Vec<Curve>,
        /// Stretches that are set off.
        bands: Vec<Band>,
    },
    /// Tables of ratios, one below the other: a lower ratio is the better one.
    Heat {
        /// Heading.
        title: String,
        /// Ratio up to which a cell has the colour of success.
        goal: f64,
        /// The tables.
        panels: Vec<Heat>,
    },
}
