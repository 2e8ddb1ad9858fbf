//! A set of shards: what a command must lock, in the one order in which shards are locked.

/// Most shards there can be.
pub const SHARDS_MAX: usize = 1024;
const WORDS: usize = SHARDS_MAX / 64;

/// A set of shard numbers. Adding sorts and removes duplicates, because it is a bitmap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardSet {
    words: [u64; WORDS],
}

impl ShardSet {
    /// No shard.
    pub const EMPTY: Self = Self { words: [0; WORDS] };

    /// Adds one.
    #[inline]
    pub fn insert(&mut self, shard: usize) {
        self.words[shard / 64] |= 1 << (shard % 64);
    }

    /// The only one, where there is one.
    #[inline]
    pub fn only(&self) -> Option<usize> {
        let count: u32 = self.words.iter().map(|word| word.count_ones()).sum();
        let position = self.words.iter().position(|word| *word != 0)?;
        (count == 1).then(|| position * 64 + self.words[position].trailing_zeros() as usize)
    }

    /// Whether the set has it.
    #[inline]
    pub fn contains(&self, shard: usize) -> bool {
        self.words[shard / 64] & 1 << (shard % 64) != 0
    }

    /// Whether the set has all of `other`.
    pub fn contains_all(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).all(|(own, other)| other & !own == 0)
    }

    /// The shards in ascending order.
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
        let mut set = ShardSet::EMPTY;
        for shard in [900, 3, 64, 3, 0, 63, 1023] {
            set.insert(shard);
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 3, 63, 64, 900, 1023]);
        assert!(set.contains(64) && !set.contains(65));
    }

    #[test]
    fn the_only_one_is_alone() {
        for shard in [0, 63, 64, 1023] {
            let mut set = ShardSet::EMPTY;
            assert_eq!(set.only(), None);
            set.insert(shard);
            assert_eq!(set.only(), Some(shard));
            set.insert(shard ^ 1);
            assert_eq!(set.only(), None);
            set = ShardSet::EMPTY;
            set.insert(shard);
            set.insert((shard + 512) % 1024);
            assert_eq!(set.only(), None);
        }
    }
}
