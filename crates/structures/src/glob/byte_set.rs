//! Sets of bytes: one bit for each of the 256.

/// A set of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ByteSet([u64; 4]);

/// `A` to `Z`, and `a` to `z`, in the word that has both.
const UPPER: u64 = ((1 << 26) - 1) << 1;
const LOWER: u64 = UPPER << 32;
const LETTERS_WORD: usize = 1;

impl ByteSet {
    pub(super) const EMPTY: Self = Self([0; 4]);
    pub(super) const ALL: Self = Self([u64::MAX; 4]);

    /// The set of one byte.
    pub(super) fn of(byte: u8) -> Self {
        let mut set = Self::EMPTY;
        set.insert(byte);
        set
    }

    #[inline]
    pub(super) fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 != 0
    }

    pub(super) fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    /// Adds a byte, and the same letter in the other case.
    pub(super) fn insert_ignoring_case(&mut self, byte: u8) {
        self.insert(byte.to_ascii_lowercase());
        self.insert(byte.to_ascii_uppercase());
    }

    /// Adds the bytes from `low` to `high`, as C compares them if a `char` has a sign. None if `low` is higher.
    pub(super) fn insert_range(&mut self, low: i8, high: i8) {
        if low > high {
            return;
        }
        if low < 0 && high >= 0 {
            self.insert_unsigned_range(low as u8, u8::MAX);
            self.insert_unsigned_range(0, high as u8);
        } else {
            self.insert_unsigned_range(low as u8, high as u8);
        }
    }

    fn insert_unsigned_range(&mut self, low: u8, high: u8) {
        for (word, bits) in self.0.iter_mut().enumerate() {
            let start = 64 * word as i32;
            let first = (i32::from(low) - start).clamp(0, 64) as u32;
            let behind = (i32::from(high) + 1 - start).clamp(0, 64) as u32;
            if first < behind {
                *bits |= u64::MAX >> (64 - (behind - first)) << first;
            }
        }
    }

    /// The bytes whose lowercase form is in the set.
    pub(super) fn folded(mut self) -> Self {
        let letters = &mut self.0[LETTERS_WORD];
        *letters = *letters & !UPPER | (*letters & LOWER) >> 32;
        self
    }

    pub(super) fn union(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    pub(super) fn complement(self) -> Self {
        Self(self.0.map(|word| !word))
    }

    /// The byte of a set that has only one.
    pub(super) fn only(&self) -> Option<u8> {
        let mut bytes = self.bytes();
        bytes.next().filter(|_| bytes.next().is_none())
    }

    /// The bytes in ascending order.
    pub(super) fn bytes(&self) -> impl Iterator<Item = u8> {
        self.0.into_iter().zip([0, 64, 128, 192]).flat_map(|(mut word, start)| {
            std::iter::from_fn(move || {
                let bit = word.trailing_zeros();
                word &= word.wrapping_sub(1);
                (bit < 64).then(|| start + bit as u8)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_set_is_a_set_of_bytes() {
        for (low, high) in
            [(0_i8, 0), (-128, 127), (-1, 0), (5, 4), (60, 70), (-128, -1), (63, 64), (-65, -64)]
        {
            let mut set = ByteSet::EMPTY;
            set.insert_range(low, high);
            let expected: Vec<u8> =
                (0..=u8::MAX).filter(|byte| (low..=high).contains(&(*byte as i8))).collect();
            assert_eq!(set.bytes().collect::<Vec<u8>>(), expected, "{low} to {high}");
            let folded = |byte: &u8| (low..=high).contains(&(byte.to_ascii_lowercase() as i8));
            let expected: Vec<u8> = (0..=u8::MAX).filter(folded).collect();
            assert_eq!(set.folded().bytes().collect::<Vec<u8>>(), expected, "{low} to {high} in any case");
            assert!((0..=u8::MAX).all(|byte| set.contains(byte) != set.complement().contains(byte)));
            assert_eq!(set.union(set.complement()), ByteSet::ALL);
        }
    }

    #[test]
    fn byte_set_finds_its_only_byte() {
        let mut set = ByteSet::EMPTY;
        assert_eq!(set.only(), None);
        set.insert(200);
        assert_eq!(set.only(), Some(200));
        set.insert_ignoring_case(b'k');
        assert_eq!((set.only(), set.bytes().collect::<Vec<u8>>()), (None, vec![b'K', b'k', 200]));
    }
}
