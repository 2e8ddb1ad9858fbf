//! A set of stripes: those that a command must lock, in the one order in which stripes are locked.

/// Most stripes there can be.
pub const STRIPES_MAX: usize = 1024;
const WORDS: usize = STRIPES_MAX / 64;

/// A set of stripe numbers. Adding sorts and removes duplicates, because it is a bitmap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StripeSet {
    words: [u64; WORDS],
}

impl StripeSet {
    /// No stripe.
    pub const EMPTY: Self = Self { words: [0; WORDS] };

    /// Adds one.
    #[inline]
    pub fn insert(&mut self, stripe: usize) {
        self.words[stripe / 64] |= 1 << (stripe % 64);
    }

    /// The only stripe, if there is just one.
    #[inline]
    pub fn only(&self) -> Option<usize> {
        let count: u32 = self.words.iter().map(|word| word.count_ones()).sum();
        let position = self.words.iter().position(|word| *word != 0)?;
        (count == 1).then(|| position * 64 + self.words[position].trailing_zeros() as usize)
    }

    /// Whether the set has it.
    #[inline]
    pub fn contains(&self, stripe: usize) -> bool {
        self.words[stripe / 64] & 1 << (stripe % 64) != 0
    }

    /// Whether the set has all of `other`.
    pub fn contains_all(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).all(|(own, other)| other & !own == 0)
    }

    /// The stripes in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        let words = self.words;
        words.into_iter().enumerate().flat_map(|(position, word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
                rest &= rest - 1;
                Some(position * 64 + bit)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iterates_ascending_without_duplicates() {
        let mut set = StripeSet::EMPTY;
        for stripe in [900, 3, 64, 3, 0, 63, 1023] {
            set.insert(stripe);
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 3, 63, 64, 900, 1023]);
        assert!(set.contains(64) && !set.contains(65));
    }

    #[test]
    fn only_gives_the_stripe_of_a_set_of_one() {
        for stripe in [0, 63, 64, 1023] {
            let mut set = StripeSet::EMPTY;
            assert_eq!(set.only(), None);
            set.insert(stripe);
            assert_eq!(set.only(), Some(stripe));
            set.insert(stripe ^ 1);
            assert_eq!(set.only(), None);
            set = StripeSet::EMPTY;
            set.insert(stripe);
            set.insert((stripe + 512) % 1024);
            assert_eq!(set.only(), None);
        }
    }
}
