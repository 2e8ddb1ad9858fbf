//! [`Slots`]: which slots of a cluster a request is about.

/// The slots of a request, or of all requests that EXEC runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Slots {
    /// The request has no keys.
    #[default]
    None,
    /// All keys are in this slot.
    One(u16),
    /// The first key is in this slot, another one is not.
    Several(u16),
}

impl Slots {
    /// With another slot.
    #[inline]
    #[must_use]
    pub(crate) fn and(self, slot: u16) -> Self {
        match self {
            Self::None => Self::One(slot),
            Self::One(first) if first == slot => self,
            Self::One(first) | Self::Several(first) => Self::Several(first),
        }
    }

    /// The slots of two requests, this one the first.
    #[must_use]
    pub(crate) fn join(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, other) => other,
            (slots, Self::None) => slots,
            (slots, Self::One(slot)) => slots.and(slot),
            (Self::One(first) | Self::Several(first), Self::Several(_)) => Self::Several(first),
        }
    }
}

impl FromIterator<u16> for Slots {
    #[inline]
    fn from_iter<I: IntoIterator<Item = u16>>(slots: I) -> Self {
        slots.into_iter().fold(Self::None, Self::and)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_a_request_are_none_one_or_several() {
        assert_eq!([].into_iter().collect::<Slots>(), Slots::None);
        assert_eq!([7, 7].into_iter().collect::<Slots>(), Slots::One(7));
        assert_eq!([7, 8, 7].into_iter().collect::<Slots>(), Slots::Several(7));
        for (one, other, expected) in [
            (Slots::None, Slots::Several(3), Slots::Several(3)),
            (Slots::One(7), Slots::None, Slots::One(7)),
            (Slots::One(7), Slots::One(7), Slots::One(7)),
            (Slots::One(7), Slots::One(8), Slots::Several(7)),
            (Slots::One(7), Slots::Several(7), Slots::Several(7)),
        ] {
            assert_eq!(one.join(other), expected);
        }
    }
}
