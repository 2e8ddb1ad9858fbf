//! A growable set of small numbers that finds its lowest member quickly.

/// Invariant: every word below `first` is zero, so a search starts there instead of at the beginning.
#[derive(Debug, Default)]
pub(crate) struct BitSet {
    words: Vec<u64>,
    first: usize,
}

impl BitSet {
    pub(crate) fn insert(&mut self, member: usize) {
        let word = member / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (member % 64);
        self.first = self.first.min(word);
    }

    pub(crate) fn remove(&mut self, member: usize) {
        if let Some(word) = self.words.get_mut(member / 64) {
            *word &= !(1 << (member % 64));
        }
    }

    /// The lowest member. O(1) while the low end is busy, at worst one word per 64 numbers.
    pub(crate) fn lowest(&mut self) -> Option<usize> {
        while let Some(word) = self.words.get(self.first) {
            if *word != 0 {
                return Some(self.first * 64 + word.trailing_zeros() as usize);
            }
            self.first += 1;
        }
        None
    }

    /// All members, lowest first.
    pub(crate) fn ascending(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().skip(self.first).flat_map(|(index, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                Some(index * 64 + bit as usize)
            })
        })
    }

    /// All members, highest first.
    pub(crate) fn descending(&self) -> impl Iterator<Item = usize> + '_ {
        self.words.iter().enumerate().rev().flat_map(|(index, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = 63_u32.checked_sub(left.leading_zeros())?;
                left &= !(1 << bit);
                Some(index * 64 + bit as usize)
            })
        })
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_as_a_set_of_numbers(steps in proptest::collection::vec((any::<bool>(), 0_usize..400), 0..300)) {
            let mut set = BitSet::default();
            let mut model = BTreeSet::new();
            for (add, member) in steps {
                if add {
                    set.insert(member);
                    model.insert(member);
                } else {
                    set.remove(member);
                    model.remove(&member);
                }
                prop_assert_eq!(set.lowest(), model.first().copied());
            }
            prop_assert!(set.ascending().eq(model.iter().copied()));
            prop_assert!(set.descending().eq(model.iter().rev().copied()));
        }
    }
}
