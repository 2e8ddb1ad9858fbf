//! Which key a request is about: uniform, by Zipf's law, or near the latest one.

use crate::random::Random;

/// Numbers 1 to n, k with a probability proportional to k^-s.
///
/// By rejection-inversion (W. Hörmann, G. Derflinger: "Rejection-inversion to generate variates from
/// monotone discrete distributions", 1996): exact, without a table, at about one uniform number a sample.
#[derive(Debug, Clone)]
pub struct Zipf {
    items: u64,
    exponent: f64,
    integral_first: f64,
    integral_last: f64,
    squeeze: f64,
}

impl Zipf {
    /// A distribution over 1 to `items`, with an exponent above 0.
    pub fn new(items: u64, exponent: f64) -> Self {
        assert!(items > 0 && exponent > 0.0);
        let mut zipf = Self { items, exponent, integral_first: 0.0, integral_last: 0.0, squeeze: 0.0 };
        zipf.integral_first = zipf.integral(1.5) - 1.0;
        zipf.integral_last = zipf.integral(items as f64 + 0.5);
        zipf.squeeze = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// A number from 1 to `items`.
    #[inline]
    pub fn sample(&self, random: &mut Random) -> u64 {
        loop {
            let height = self.integral_last + random.unit() * (self.integral_first - self.integral_last);
            let at = self.inverse(height);
            let nearest = (at + 0.5).floor().clamp(1.0, self.items as f64);
            if nearest - at <= self.squeeze || height >= self.integral(nearest + 0.5) - self.density(nearest)
            {
                return nearest as u64;
            }
        }
    }

    fn density(&self, at: f64) -> f64 {
        (-self.exponent * at.ln()).exp()
    }

    /// The integral of the density from 1, up to a constant; stable if the exponent is near 1.
    fn integral(&self, at: f64) -> f64 {
        let log = at.ln();
        exp_minus_1_over((1.0 - self.exponent) * log) * log
    }

    fn inverse(&self, height: f64) -> f64 {
        let scaled = (height * (1.0 - self.exponent)).max(-1.0);
        (log_plus_1_over(scaled) * height).exp()
    }
}

/// Another number below `items`: it scatters neighbours, so that popular items do not lie side by side.
/// Several numbers may fall together, as in YCSB's scrambled distribution.
#[inline]
pub fn scattered(number: u64, items: u64) -> u64 {
    Random::new(number).below(items)
}

/// (e^x - 1) / x, whose limit at 0 is 1.
fn exp_minus_1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 }
}

/// ln(1 + x) / x, whose limit at 0 is 1.
fn log_plus_1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pearson's statistic of `samples` samples against the exact probabilities.
    fn chi_squared(items: u64, exponent: f64, samples: u64) -> f64 {
        let (zipf, mut random) = (Zipf::new(items, exponent), Random::new(42));
        let mut seen = vec![0u64; items as usize];
        for _ in 0..samples {
            seen[zipf.sample(&mut random) as usize - 1] += 1;
        }
        let weight = |k: u64| (k as f64).powf(-exponent);
        let total: f64 = (1..=items).map(weight).sum();
        (1..=items)
            .map(|k| {
                let expected = samples as f64 * weight(k) / total;
                (seen[k as usize - 1] as f64 - expected).powi(2) / expected
            })
            .sum()
    }

    #[test]
    fn frequencies_follow_the_law() {
        for exponent in [0.5, 0.99, 1.0, 1.5] {
            // 19 degrees of freedom: beyond 43.8 with a probability of one in a thousand.
            let statistic = chi_squared(20, exponent, 200_000);
            assert!(statistic < 43.8, "{statistic} for {exponent}");
        }
        assert!(chi_squared(1, 0.99, 10) == 0.0);
    }

    #[test]
    fn zipf_head_of_a_million_has_its_weight() {
        let (zipf, mut random) = (Zipf::new(1_000_000, 0.99), Random::new(1));
        let samples = 200_000;
        let firsts = (0..samples).filter(|_| zipf.sample(&mut random) == 1).count();
        // The expected share is one over the sum of k^-0.99 up to a million.
        let expected = 1.0 / (1..=1_000_000).map(|k| f64::from(k).powf(-0.99)).sum::<f64>();
        assert!((firsts as f64 / f64::from(samples) - expected).abs() < 0.003, "{firsts}");
    }
}
