//! Coarse points in time that fit three bytes.
//!
//! The unit is the owner's business (Dunlin: 64 ms, so the range is 12.4 days). A tick is a count modulo
//! 2^24 - 1, plus 1, because 0 means "no deadline" in memory. Two ticks are compared as TCP compares sequence
//! numbers (RFC 1982): by the sign of their distance on a ring of 2^24 points, of which 0 is never used and so
//! changes no order. That is right as long as all ticks in a table lie within half a ring of each other, so:
//!
//! - a deadline is noted at most [`Tick::REACH`] (a quarter of the range, 3.1 days) ahead; one that lies
//!   farther is noted as that far, which only means that its bucket is looked at once more on the way;
//! - the owner asks for due entries at least once per [`Tick::REACH`].
//!
//! An owner that breaks the second rule (a machine suspended for days) has no deadline lost, but some may
//! be found up to half a range late.

/// A point in time, 1..2^24. See the module's head for the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tick(u32);

impl Tick {
    /// The farthest that a deadline is noted ahead of now, in ticks.
    pub const REACH: u64 = 1 << 22;
    pub(super) const MASK: u32 = (1 << 24) - 1;

    /// The tick of an absolute count, for "now".
    #[inline]
    pub const fn new(count: u64) -> Self {
        Self((count % Self::MASK as u64) as u32 + 1)
    }

    /// The tick to note for a deadline at an absolute count, moved to the nearest of `now ..= now + REACH`.
    #[inline]
    pub const fn deadline(count: u64, now: u64) -> Self {
        let ahead = count.saturating_sub(now);
        Self::new(now.wrapping_add(if ahead < Self::REACH { ahead } else { Self::REACH }))
    }

    /// The tick as kept in memory, 1..2^24.
    #[inline]
    pub(super) const fn raw(self) -> u32 {
        self.0
    }

    #[inline]
    pub(super) const fn from_raw(raw: u32) -> Option<Self> {
        if raw == 0 { None } else { Some(Self(raw & Self::MASK)) }
    }

    /// Whether `self` comes before `other`.
    #[inline]
    pub const fn is_before(self, other: Self) -> bool {
        // Shifted to the top, bit 23 of the difference becomes the sign.
        ((self.0.wrapping_sub(other.0) << 8) as i32) < 0
    }

    /// Whether a deadline has come.
    #[inline]
    pub const fn is_due(self, now: Self) -> bool {
        !now.is_before(self)
    }

    /// The earlier of two deadlines; none is later than any.
    #[inline]
    pub fn earlier(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(a), Some(b)) => Some(if b.is_before(a) { b } else { a }),
            (found, None) | (None, found) => found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparison_survives_the_wrap_and_zero() {
        for start in [
            0_u64,
            1,
            1 << 23,
            (1 << 24) - 3,
            (1 << 24) - 2,
            (1 << 24) - 1,
            1 << 24,
            (1 << 30) - 1,
            u64::from(u32::MAX),
        ] {
            for ahead in [1, 2, 100, Tick::REACH - 1, Tick::REACH] {
                let now = Tick::new(start);
                let deadline = Tick::deadline(start + ahead, start);
                assert!(now.is_before(deadline) && !deadline.is_before(now), "{start} + {ahead}");
                assert!(!deadline.is_due(Tick::new(start + ahead - 1)), "not early: {start} + {ahead}");
                assert!(deadline.is_due(Tick::new(start + ahead)), "not late: {start} + {ahead}");
                assert_eq!(Tick::earlier(Some(now), Some(deadline)), Some(now));
            }
        }
    }

    #[test]
    fn deadlines_far_away_or_past_are_noted_within_reach() {
        let now = 5_000_000_000;
        assert_eq!(Tick::deadline(u64::MAX, now), Tick::new(now + Tick::REACH));
        assert_eq!(Tick::deadline(7, now), Tick::new(now));
        assert_eq!(Tick::deadline(now + 9, now), Tick::new(now + 9));
    }
}
