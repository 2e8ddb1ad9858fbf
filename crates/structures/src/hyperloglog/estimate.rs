//! From registers to a cardinality: Algorithm 6 of Ertl's paper, which needs no tables and no switch
//! between regimes.

use super::{COUNTED_BITS, HLL_REGISTERS};

/// 1 / (2 ln 2).
const ALPHA: f64 = 0.721_347_520_444_481_7;

/// How many registers have each value.
#[derive(Debug)]
pub(super) struct Histogram([u32; 64]);

impl Default for Histogram {
    fn default() -> Self {
        Self([0; 64])
    }
}

impl Histogram {
    /// Counts `registers` more with `value`, which is below 64.
    #[inline]
    pub(super) fn add(&mut self, value: u8, registers: u32) {
        self.0[usize::from(value)] += registers;
    }

    /// The cardinality.
    pub(super) fn estimate(&self) -> u64 {
        let registers = HLL_REGISTERS as f64;
        let count = |value: usize| f64::from(self.0[value]);
        let full = COUNTED_BITS as usize + 1;
        let mut z = registers * tau((registers - count(full)) / registers);
        for value in (1..full).rev() {
            z = (z + count(value)) * 0.5;
        }
        z += registers * sigma(count(0) / registers);
        (ALPHA * registers * registers / z).round() as u64
    }
}

/// The contribution of registers at 0: x + Σ x^(2^k) 2^(k−1).
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut weight, mut sum) = (1.0, x);
    loop {
        x *= x;
        let before = sum;
        sum += x * weight;
        weight += weight;
        if sum == before {
            return sum;
        }
    }
}

/// The contribution of registers at their maximum: ⅓ (1 − x − Σ (1 − x^(2^−k))² 2^−k).
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut weight, mut sum) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = sum;
        weight *= 0.5;
        sum -= (1.0 - x).powi(2) * weight;
        if sum == before {
            return sum / 3.0;
        }
    }
}
