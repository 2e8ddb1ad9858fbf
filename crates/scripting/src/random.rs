//! The random numbers of scripts: the 48-bit linear congruential generator of POSIX `lrand48`, which begins
//! at the same place in every machine and goes on from script to script, as in Redis 7.

/// A generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Random48(u64);

impl Random48 {
    /// Largest number plus one that [`Self::next`] draws.
    pub(crate) const RANGE: i32 = i32::MAX;

    /// `srand48(seed)`.
    pub(crate) fn new(seed: u32) -> Self {
        Self(u64::from(seed) << 16 | 0x330e)
    }

    /// `lrand48()`: 31 bits.
    pub(crate) fn next(&mut self) -> i32 {
        self.0 = (self.0.wrapping_mul(0x5_deec_e66d) + 0xb) & 0xffff_ffff_ffff;
        (self.0 >> 17) as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_what_posix_says() {
        let mut random = Random48::new(0);
        assert_eq!([random.next(), random.next(), random.next()], [366_850_414, 1_610_402_240, 206_956_554]);
    }
}
