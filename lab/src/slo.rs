//! A latency to keep, and the search for the highest rate that keeps it.

use std::time::Duration;

/// `p99.9=2ms`: this share of the requests within this time, counted from when they were due.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slo {
    /// The fraction of requests.
    pub quantile: f64,
    /// The time.
    pub within: Duration,
}

impl Slo {
    /// Reads `p99.9=2ms`; units are us, ms and s.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("'{text}' is not a quantile and a time such as p99.9=2ms");
        let (quantile, time) =
            text.strip_prefix('p').and_then(|text| text.split_once('=')).ok_or_else(bad)?;
        let percent = quantile.parse::<f64>().map_err(|_| bad())?;
        // 99.9 / 100 is not the number 0.999, but its millionths are the same.
        let quantile = (percent * 1e6).round() / 1e8;
        let (number, unit_s) = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)]
            .into_iter()
            .find_map(|(unit, seconds)| Some((time.strip_suffix(unit)?, seconds)))
            .ok_or_else(bad)?;
        let seconds = number.parse::<f64>().map_err(|_| bad())? * unit_s;
        let within = Duration::try_from_secs_f64(seconds).map_err(|_| bad())?;
        if !(0.0..1.0).contains(&quantile) || within.is_zero() {
            return Err(bad());
        }
        Ok(Self { quantile, within })
    }

    /// The time in milliseconds.
    pub fn within_ms(&self) -> f64 {
        self.within.as_secs_f64() * 1e3
    }
}

impl std::fmt::Display for Slo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let percent = (self.quantile * 1e8).round() / 1e6;
        write!(f, "p{percent} within {} ms", self.within_ms())
    }
}

/// The highest rate up to `most` that `keeps` finds good, to a 2^`steps`th of it, by bisection: a
/// server that keeps a rate keeps all lower ones. 0 when none was good.
pub fn highest_rate(
    most: f64,
    steps: u32,
    mut keeps: impl FnMut(f64) -> Result<bool, String>,
) -> Result<f64, String> {
    let (mut good, mut bad) = (0.0, most);
    for _ in 0..steps {
        let rate = (good + bad) / 2.0;
        if keeps(rate)? {
            good = rate;
        } else {
            bad = rate;
        }
    }
    Ok(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_are_read_and_shown() {
        let slo = Slo::parse("p99.9=2ms").unwrap();
        assert_eq!(
            (slo.quantile, slo.within_ms(), slo.to_string()),
            (0.999, 2.0, "p99.9 within 2 ms".into())
        );
        assert_eq!(Slo::parse("p50=500us").unwrap().within, Duration::from_micros(500));
        for bad in ["", "p99", "99=2ms", "p100=2ms", "p99=2", "p99=0ms", "p99=-1s", "px=1ms"] {
            assert!(Slo::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn search_closes_in_on_the_limit() {
        let mut tried = Vec::new();
        let found = highest_rate(100_000.0, 8, |rate| {
            tried.push(rate);
            Ok(rate <= 61_803.0)
        });
        assert_eq!(tried.len(), 8);
        assert!((0.0..100_000.0 / 256.0).contains(&(61_803.0 - found.unwrap())));
        assert_eq!(highest_rate(1000.0, 5, |_| Ok(false)), Ok(0.0));
        assert_eq!(highest_rate(1000.0, 5, |_| Err("broken".into())), Err("broken".into()));
    }
}
