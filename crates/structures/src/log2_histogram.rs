//! A histogram by powers of two that any thread may add to.
//!
//! ```text
//! bucket 0: 0 │ 1: 1 │ 2: 2, 3 │ 3: 4 to 7 │ … │ n: 2ⁿ⁻¹ to 2ⁿ − 1 │ … │ 64
//! ```
//!
//! An addition is two atomic additions: it is for rare or sampled events.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Numbers have up to 64 bits.
const BUCKETS: usize = u64::BITS as usize + 1;

/// A histogram by powers of two.
#[derive(Debug)]
pub struct Log2Histogram {
    /// By the number of bits.
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

/// The counts of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log2Counts {
    buckets: [u64; BUCKETS],
    /// The sum of all numbers; it wraps around.
    pub sum: u64,
}

impl Log2Histogram {
    /// An empty one.
    pub const fn new() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum: AtomicU64::new(0) }
    }

    /// Adds a number.
    pub fn record(&self, number: u64) {
        self.buckets[(u64::BITS - number.leading_zeros()) as usize].fetch_add(1, Relaxed);
        self.sum.fetch_add(number, Relaxed);
    }

    /// The counts so far.
    pub fn counts(&self) -> Log2Counts {
        let buckets = self.buckets.each_ref().map(|bucket| bucket.load(Relaxed));
        Log2Counts { buckets, sum: self.sum.load(Relaxed) }
    }
}

impl Default for Log2Histogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for Log2Counts {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], sum: 0 }
    }
}

impl Log2Counts {
    /// How many numbers there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// How many numbers lie below two to the `power`.
    pub fn below(&self, power: u32) -> u64 {
        self.buckets.iter().take(power as usize + 1).sum()
    }

    /// Two to the power below which `percent` percent of the numbers lie; 0 of no numbers.
    pub fn percentile(&self, percent: f64) -> u64 {
        let wanted = ((percent / 100.0 * self.count() as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (bits, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return 1_u64.checked_shl(bits as u32).unwrap_or(u64::MAX);
            }
        }
        0
    }

    /// Adds what another one has counted.
    pub fn add(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(sum, count)| *sum += count);
        self.sum = self.sum.wrapping_add(other.sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_counted_by_their_bits() {
        let histogram = Log2Histogram::new();
        for number in [0, 1, 2, 3, 1000, 1023, 1024, u64::MAX] {
            histogram.record(number);
        }
        let mut counts = histogram.counts();
        assert_eq!(counts.count(), 8);
        assert_eq!([0, 1, 2, 9, 10, 11, 63, 64].map(|power| counts.below(power)), [1, 2, 4, 4, 6, 7, 7, 8]);
        assert_eq!(
            [0.0, 50.0, 75.0, 100.0].map(|percent| counts.percentile(percent)),
            [1, 4, 1024, u64::MAX]
        );
        assert_eq!(counts.sum, 3052_u64);
        counts.add(&counts.clone());
        assert_eq!((counts.count(), counts.below(1)), (16, 4));
        assert_eq!(Log2Counts::default().percentile(50.0), 0);
    }
}
