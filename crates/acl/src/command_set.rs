//! Sets of commands: a bit for each.

/// A set of commands by their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandSet(Box<[u64]>);

impl CommandSet {
    /// The set of none of `count` commands.
    pub(crate) fn none(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)].into())
    }

    /// The set of all of `count` commands.
    pub(crate) fn all(count: usize) -> Self {
        let mut set = Self::none(count);
        (0..count).for_each(|command| set.set(command, true));
        set
    }

    /// O(1); false for a number that is not a command's.
    #[inline]
    pub(crate) fn contains(&self, command: usize) -> bool {
        self.0.get(command / 64).is_some_and(|word| word >> (command % 64) & 1 != 0)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Adds or removes a command.
    pub(crate) fn set(&mut self, command: usize, is_in: bool) {
        let (word, bit) = (&mut self.0[command / 64], 1 << (command % 64));
        if is_in { *word |= bit } else { *word &= !bit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_set_has_exactly_its_members() {
        let mut set = CommandSet::none(130);
        for command in [0, 63, 64, 129] {
            assert!(!set.contains(command));
            set.set(command, true);
            assert!(set.contains(command));
        }
        assert_eq!((0..200).filter(|command| set.contains(*command)).count(), 4);
        set.set(64, false);
        assert!(!set.contains(64) && set.contains(63));
        let all = CommandSet::all(130);
        assert_eq!((0..200).filter(|command| all.contains(*command)).count(), 130);
        assert_eq!((all.count(), set.count()), (130, 3));
    }
}
