//! The two text formats that Prometheus reads: its own (0.0.4) and OpenMetrics 1.0.
//!
//! ```text
//! text          # TYPE redis_expired_keys_total counter      OpenMetrics   # TYPE redis_expired_keys counter
//!               redis_expired_keys_total 7                                 redis_expired_keys_total 7
//!                                                                          # EOF
//! ```

use std::fmt::{self, Display, Write};

/// A format of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// Prometheus's own.
    Text,
    /// OpenMetrics.
    OpenMetrics,
}

impl Format {
    /// The format that an `Accept` header prefers; text unless OpenMetrics is asked for by its name.
    pub(crate) fn accepted(accept: &str) -> Self {
        let (mut text, mut open) = (0.0, 0.0_f64);
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let quality = parts
                .find_map(|parameter| parameter.strip_prefix("q="))
                .map_or(1.0, |quality| quality.parse().unwrap_or(0.0));
            match &*media {
                "application/openmetrics-text" => open = open.max(quality),
                "text/plain" | "text/*" | "*/*" => text = f64::max(text, quality),
                _ => {}
            }
        }
        if open > 0.0 && open >= text { Self::OpenMetrics } else { Self::Text }
    }

    /// The value of `Content-Type`.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A count that only grows; its name ends with `_total`.
    Counter,
    Gauge,
    Histogram,
    Summary,
}

impl Kind {
    /// The type that a name promises.
    pub(super) fn named(name: &str) -> Self {
        if name.ends_with("_total") { Self::Counter } else { Self::Gauge }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
        }
    }
}

/// The value of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    Integer(i64),
    Decimal(f64),
}

impl Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => write!(out, "{value}"),
            Self::Decimal(value) => write!(out, "{value}"),
        }
    }
}

macro_rules! value_from {
    ($($integer:ty),*) => {
        $(impl From<$integer> for Value {
            /// Numbers beyond 63 bits are clipped: nothing here is that large.
            fn from(value: $integer) -> Self {
                Self::Integer(i64::try_from(value).unwrap_or(i64::MAX))
            }
        })*
    };
}
value_from!(u16, u32, i64, u64, usize);

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Decimal(value)
    }
}

/// Labels of a sample: names that need no escape, and any values.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// The answer as it grows. All samples of a metric follow its [`Exposition::begin`].
#[derive(Debug)]
pub(super) struct Exposition {
    out: String,
    format: Format,
}

impl Exposition {
    pub(super) fn new(format: Format) -> Self {
        Self { out: String::with_capacity(64 * 1024), format }
    }

    /// Begins a metric.
    pub(super) fn begin(&mut self, name: &str, kind: Kind, help: &str) {
        let family = match (self.format, kind) {
            (Format::OpenMetrics, Kind::Counter) => name.strip_suffix("_total").unwrap_or(name),
            _ => name,
        };
        let _ = write!(self.out, "# HELP {family} ");
        self.escape(help, self.format == Format::OpenMetrics);
        let _ = writeln!(self.out, "\n# TYPE {family} {}", kind.word());
    }

    /// Adds a sample.
    pub(super) fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl Into<Value>) {
        self.out.push_str(name);
        self.labels(labels, None);
        let _ = writeln!(self.out, " {}", value.into());
    }

    /// Adds a metric of one sample without labels.
    pub(super) fn single(&mut self, name: &str, help: &str, value: impl Into<Value>) {
        self.begin(name, Kind::named(name), help);
        self.sample(name, &[], value);
    }

    /// Adds a bucket of a histogram or a quantile of a summary: `bound` is the value of the label `label`.
    pub(super) fn bounded(
        &mut self,
        name: &str,
        labels: Labels<'_>,
        (label, bound): (&str, f64),
        value: impl Into<Value>,
    ) {
        self.out.push_str(name);
        self.labels(labels, Some((label, bound)));
        let _ = writeln!(self.out, " {}", value.into());
    }

    fn labels(&mut self, labels: Labels<'_>, bound: Option<(&str, f64)>) {
        if labels.is_empty() && bound.is_none() {
            return;
        }
        self.out.push('{');
        for (index, (name, value)) in labels.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let _ = write!(self.out, "{comma}{name}=\"");
            self.escape(value, true);
            self.out.push('"');
        }
        if let Some((name, bound)) = bound {
            let comma = if labels.is_empty() { "" } else { "," };
            let _ = match (bound.is_finite(), self.format) {
                (false, _) => write!(self.out, "{comma}{name}=\"+Inf\""),
                // OpenMetrics writes a point in numbers that are whole.
                (true, Format::OpenMetrics) if bound.fract() == 0.0 => {
                    write!(self.out, "{comma}{name}=\"{bound:.1}\"")
                }
                (true, _) => write!(self.out, "{comma}{name}=\"{bound}\""),
            };
        }
        self.out.push('}');
    }

    /// Backslashes and line feeds are escaped everywhere, double quotes if they would end the text.
    fn escape(&mut self, text: &str, is_quoted: bool) {
        for char in text.chars() {
            match char {
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '"' if is_quoted => self.out.push_str("\\\""),
                other => self.out.push(other),
            }
        }
    }

    pub(super) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_chooses_the_format() {
        for (accept, format) in [
            ("", Format::Text),
            ("*/*", Format::Text),
            ("text/html, text/plain;q=0.9", Format::Text),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("Application/OpenMetrics-Text; version=1.0.0", Format::OpenMetrics),
            ("application/openmetrics-text;q=0", Format::Text),
            ("application/openmetrics-text;q=0.5,text/plain;version=0.0.4;q=0.8", Format::Text),
            ("application/openmetrics-text;q=nonsense", Format::Text),
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                 text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                Format::OpenMetrics,
            ),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept}");
        }
    }

    fn written(format: Format) -> String {
        let mut out = Exposition::new(format);
        out.begin("a_total", Kind::Counter, "Says \"a\".\\");
        out.sample("a_total", &[("user", "x\"\\\n")], 1_u64);
        out.begin("b", Kind::Histogram, "B.");
        out.bounded("b_bucket", &[("cmd", "get")], ("le", 1.0), 2_u64);
        out.bounded("b_bucket", &[], ("le", f64::INFINITY), 0.25);
        out.finish()
    }

    #[test]
    fn samples_are_written_in_both_formats() {
        let text = "# HELP a_total Says \"a\".\\\\\n# TYPE a_total counter\na_total{user=\"x\\\"\\\\\\n\"} 1\n\
                    # HELP b B.\n# TYPE b histogram\nb_bucket{cmd=\"get\",le=\"1\"} 2\nb_bucket{le=\"+Inf\"} 0.25\n";
        assert_eq!(written(Format::Text), text);
        let open = "# HELP a Says \\\"a\\\".\\\\\n# TYPE a counter\na_total{user=\"x\\\"\\\\\\n\"} 1\n\
                    # HELP b B.\n# TYPE b histogram\nb_bucket{cmd=\"get\",le=\"1.0\"} 2\nb_bucket{le=\"+Inf\"} 0.25\n# EOF\n";
        assert_eq!(written(Format::OpenMetrics), open);
    }
}
