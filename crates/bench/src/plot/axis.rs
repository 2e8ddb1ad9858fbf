//! An axis: its range, the places of its numbers, and how they read.
//!
//! An axis is a coordinate of the drawing library. The numbers of a logarithmic one are 1, 2 and 5 of each power of
//! ten, only the powers if there are many, and round steps if it spans less than a decade. So an axis has at least
//! two numbers, at any range.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// Smallest value that a logarithmic axis shows.
const POSITIVE_MIN: f64 = 1e-9;
/// Numbers on a linear axis, at most.
const STEPS_MAX: f64 = 6.0;
/// Decades up to which 2 and 5 have numbers, too.
const FINE_DECADES_MAX: f64 = 3.2;

/// A range with its numbers.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    is_logarithmic: bool,
    range: (f64, f64),
    /// The values that have numbers.
    ticks: Vec<f64>,
}

impl Axis {
    /// An axis from 0 to `high`.
    pub(super) fn linear(high: f64) -> Self {
        let high = if high.is_finite() { high.max(POSITIVE_MIN) } else { 1.0 };
        Self { is_logarithmic: false, range: (0.0, high), ticks: round_steps(0.0, high) }
    }

    /// A logarithmic axis that holds `low` to `high` with a margin.
    pub(super) fn logarithmic(low: f64, high: f64) -> Self {
        let low = low.max(POSITIVE_MIN);
        let (low, high) = (low * 0.85, high.max(low * 1.3) * 1.15);
        let decades = (high / low).log10();
        let ticks = if decades < 1.0 {
            round_steps(low, high)
        } else {
            let digits: &[f64] = if decades <= FINE_DECADES_MAX { &[1.0, 2.0, 5.0] } else { &[1.0] };
            let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
            let all = powers.flat_map(|power| digits.iter().map(move |digit| digit * 10_f64.powi(power)));
            all.filter(|tick| (low..=high).contains(tick)).collect()
        };
        Self { is_logarithmic: true, range: (low, high), ticks }
    }

    /// The axis's name, which says where it is logarithmic.
    pub(super) fn named(&self, name: &str) -> String {
        if self.is_logarithmic { format!("{name} (logarithmic)") } else { name.into() }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let place = |value: f64| if self.is_logarithmic { value.max(POSITIVE_MIN).log10() } else { value };
        let (low, high) = (place(self.range.0), place(self.range.1));
        from + (f64::from(to - from) * (place(*value) - low) / (high - low)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.range.0..self.range.1
    }
}

impl ValueFormatter<f64> for Axis {
    fn format(value: &f64) -> String {
        number(*value)
    }
}

/// Multiples of 1, 2 or 5 times a power of ten between both ends.
fn round_steps(low: f64, high: f64) -> Vec<f64> {
    let least = (high - low) / STEPS_MAX;
    let power = 10_f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power).into_iter().find(|step| *step >= least);
    let step = step.unwrap_or(10.0 * power);
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    (first..=last).map(|multiple| multiple as f64 * step).collect()
}

/// 1500000 → 1.5M
fn number(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        magnitude if magnitude >= 1e6 => (value / 1e6, "M"),
        magnitude if magnitude >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    // Four significant digits: the rounding errors of floating-point multiplication are cut.
    let places = 3 - scaled.abs().max(1e-9).log10().floor() as i32;
    let factor = 10_f64.powi(places.clamp(0, 12));
    format!("{}{suffix}", (scaled * factor).round() / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(axis: &Axis) -> Vec<String> {
        axis.ticks.iter().copied().map(number).collect()
    }

    #[test]
    fn axes_have_round_numbers() {
        assert_eq!(numbers(&Axis::linear(10.0)), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!(numbers(&Axis::linear(2_100_000.0)), ["0", "500k", "1M", "1.5M", "2M"]);
        assert_eq!(
            numbers(&Axis::logarithmic(1.0, 1000.0)),
            ["1", "2", "5", "10", "20", "50", "100", "200", "500", "1000"]
        );
        assert_eq!(numbers(&Axis::logarithmic(1.0, 1e5)), ["1", "10", "100", "1000", "10k", "100k"]);
        assert_eq!(numbers(&Axis::logarithmic(3.1, 4.2)), ["3", "3.5", "4", "4.5"]);
        assert_eq!(numbers(&Axis::logarithmic(0.003, 0.04)), ["0.005", "0.01", "0.02"]);
    }

    #[test]
    fn axis_has_numbers_in_its_range() {
        for exponent in -8..12 {
            for factor in [1.0, 1.0001, 1.3, 2.7, 9.0, 11.0, 1e3, 1e9] {
                let low = 3.3 * 10_f64.powi(exponent);
                for axis in [Axis::logarithmic(low, low * factor), Axis::linear(low * factor)] {
                    assert!((2..=12).contains(&axis.ticks.len()), "{low} {factor}: {axis:?}");
                    let (from, to) = axis.range;
                    assert!(axis.ticks.iter().all(|tick| (from..=to).contains(tick)), "{axis:?}");
                    assert!((from..=to).contains(&(low * factor)));
                    assert_eq!([axis.map(&from, (10, 110)), axis.map(&to, (10, 110))], [10, 110]);
                }
            }
        }
        for odd in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Axis::linear(odd).ticks.len() >= 2);
        }
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.5, 9_000.0, 12_000.0, 1.5e6, 0.30000000000000004].map(number),
            ["0.5", "9000", "12k", "1.5M", "0.3"]
        );
    }
}
