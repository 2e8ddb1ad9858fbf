//! Intset: a set of integers as a sorted array of one width, exactly as Redis lays it out, so that RDB files
//! and DUMP payloads are validated and copied.
//!
//! ```text
//! width: u32 LE, 2, 4 or 8 | length: u32 LE | length integers of that width, LE, strictly ascending
//! ```
//!
//! The width is that of the widest integer ever added since the set was made; it never shrinks.
//! [`IntSetRef`] reads, [`IntSet`] owns and edits, [`validate`] admits bytes from outside. All code is safe:
//! the worst that bytes which never passed [`validate`] can do is make a reader panic or answer nonsense.
//!
//! Source of the format: Redis 7.0 `intset.c`.

use std::fmt;

use crate::{Corrupt, block::Block};

const HEADER_BYTES: usize = 8;

/// Bytes of one integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Width {
    Two = 2,
    Four = 4,
    Eight = 8,
}

impl Width {
    #[inline]
    fn of(value: i64) -> Width {
        if i16::try_from(value).is_ok() {
            Width::Two
        } else if i32::try_from(value).is_ok() {
            Width::Four
        } else {
            Width::Eight
        }
    }

    #[inline]
    fn from_number(number: u32) -> Option<Width> {
        match number {
            2 => Some(Width::Two),
            4 => Some(Width::Four),
            8 => Some(Width::Eight),
            _ => None,
        }
    }

    #[inline]
    fn bytes(self) -> usize {
        self as usize
    }
}

/// Checks every rule that readers rely on, and answers the number of integers. O(n).
///
/// As Redis's deep integrity check: a known width, a length that fits the bytes and is not zero, integers
/// that strictly ascend. Not demanded: the smallest width.
pub fn validate(bytes: &[u8]) -> Result<usize, Corrupt> {
    let Some((header, _)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Err(Corrupt("intset is shorter than its header"));
    };
    let [a, b, c, d, e, f, g, h] = *header;
    let width = Width::from_number(u32::from_le_bytes([a, b, c, d]));
    let width = width.ok_or(Corrupt("intset has an unknown width"))?;
    let length = u32::from_le_bytes([e, f, g, h]) as u64;
    if length * width.bytes() as u64 + HEADER_BYTES as u64 != bytes.len() as u64 {
        return Err(Corrupt("intset states another length than it has"));
    }
    if length == 0 {
        return Err(Corrupt("intset is empty"));
    }
    if !IntSetRef::new(bytes).iter().is_sorted_by(|a, b| a < b) {
        return Err(Corrupt("intset is not in strictly ascending order"));
    }
    Ok(length as usize)
}

/// Reads an intset where its bytes lie.
#[derive(Clone, Copy)]
pub struct IntSetRef<'a> {
    width: Width,
    integers: &'a [u8],
}

impl<'a> IntSetRef<'a> {
    /// A view of bytes that an [`IntSet`] wrote or [`validate`] admitted.
    ///
    /// # Panics
    /// When the header is not that of an intset.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> IntSetRef<'a> {
        let (width, rest) = bytes.split_first_chunk::<4>().expect("an intset has a header");
        let width = Width::from_number(u32::from_le_bytes(*width)).expect("an intset has a width");
        IntSetRef { width, integers: &rest[4..] }
    }

    /// Number of integers. O(1).
    #[inline]
    pub fn len(self) -> usize {
        self.integers.len() / self.width.bytes()
    }

    /// Whether there is no integer.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.integers.is_empty()
    }

    #[inline]
    fn read(self, index: usize) -> i64 {
        let bytes = &self.integers[index * self.width.bytes()..];
        match self.width {
            Width::Two => i16::from_le_bytes(*bytes.first_chunk().expect("index < len")).into(),
            Width::Four => i32::from_le_bytes(*bytes.first_chunk().expect("index < len")).into(),
            Width::Eight => i64::from_le_bytes(*bytes.first_chunk().expect("index < len")),
        }
    }

    /// The integer with number `index` in ascending order. O(1), and so the way to a random one.
    #[inline]
    pub fn get(self, index: usize) -> Option<i64> {
        (index < self.len()).then(|| self.read(index))
    }

    /// The place of `value`, or the place that it would have. O(log n).
    #[inline]
    pub fn search(self, value: i64) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.read(middle).cmp(&value) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Whether `value` is in the set. O(log n); O(1) when it is too wide.
    #[inline]
    pub fn contains(self, value: i64) -> bool {
        Width::of(value) <= self.width && self.search(value).is_ok()
    }

    /// The smallest integer.
    pub fn min(self) -> Option<i64> {
        self.get(0)
    }

    /// The largest integer.
    pub fn max(self) -> Option<i64> {
        self.get(self.len().wrapping_sub(1))
    }

    /// All integers, ascending.
    #[inline]
    pub fn iter(self) -> impl DoubleEndedIterator<Item = i64> + ExactSizeIterator + 'a {
        (0..self.len()).map(move |index| self.read(index))
    }
}

/// An intset in a block of its own.
pub struct IntSet {
    /// Its mark is the number of bytes in use.
    block: Block,
}

impl IntSet {
    /// Moves its bytes to where the general allocator would rather have them.
    pub fn relocate(&mut self, relocator: &mut crate::Relocator) {
        self.block.relocate(relocator);
    }
}

impl Clone for IntSet {
    fn clone(&self) -> Self {
        Self::of(self.bytes().to_vec())
    }
}

impl PartialEq for IntSet {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for IntSet {}

impl Default for IntSet {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for IntSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.view().iter()).finish()
    }
}

impl IntSet {
    /// An intset without integers.
    pub fn new() -> IntSet {
        IntSet::of(vec![2, 0, 0, 0, 0, 0, 0, 0])
    }

    fn of(bytes: Vec<u8>) -> IntSet {
        let mut block = Block::from(bytes);
        block.mark = block.len() as u32;
        IntSet { block }
    }

    /// Takes bytes from outside, once they pass [`validate`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<IntSet, Corrupt> {
        validate(&bytes)?;
        Ok(IntSet::of(bytes))
    }

    /// Takes bytes that an intset gave. Others make later calls panic.
    pub fn from_trusted(bytes: Vec<u8>) -> IntSet {
        debug_assert!(bytes.len() == HEADER_BYTES || validate(&bytes).is_ok());
        IntSet::of(bytes)
    }

    /// An intset that reads the bytes of another one where they are.
    ///
    /// # Safety
    /// The bytes must stay as they are, and the intset must be forgotten: it may be neither changed nor dropped.
    #[inline]
    pub unsafe fn lent(bytes: &[u8]) -> IntSet {
        // SAFETY: the caller vouches.
        let mut block: Block = unsafe { Block::lent(bytes) };
        block.mark = bytes.len() as u32;
        IntSet { block }
    }

    /// Copies the bytes that an intset gave to the beginning of a buffer, which becomes its block: there is room for more
    /// behind them. The inverse is [`Self::into_buffer`].
    ///
    /// # Panics
    /// If the buffer is shorter than the bytes.
    #[inline]
    pub fn in_buffer(mut buffer: Vec<u8>, bytes: &[u8]) -> IntSet {
        buffer[..bytes.len()].copy_from_slice(bytes);
        let mut integers = IntSet::of(buffer);
        integers.block.mark = bytes.len() as u32;
        integers
    }

    /// The whole block, whatever is in it.
    #[inline]
    pub fn into_buffer(self) -> Vec<u8> {
        self.block.into_vec()
    }

    /// Gives back the memory beyond the bytes in use.
    pub fn shrink_to_fit(&mut self) {
        if self.block.len() > self.used() {
            *self = self.clone();
        }
    }

    /// The bytes, header included.
    pub fn into_bytes(self) -> Vec<u8> {
        let used = self.used();
        let mut bytes = self.block.into_vec();
        bytes.truncate(used);
        bytes
    }

    /// The bytes, header included.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.block[..self.used()]
    }

    #[inline]
    fn used(&self) -> usize {
        self.block.mark as usize
    }

    /// Bytes allocated.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.block.len()
    }

    /// The reader.
    #[inline]
    pub fn view(&self) -> IntSetRef<'_> {
        IntSetRef::new(self.bytes())
    }

    /// Number of integers.
    #[inline]
    pub fn len(&self) -> usize {
        self.view().len()
    }

    /// Whether there is no integer.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.view().is_empty()
    }

    /// Adds `value`; answers whether it was new. O(n) for the move, and for the rewrite when `value` is the
    /// first of its width.
    pub fn insert(&mut self, value: i64) -> bool {
        let width = Width::of(value);
        let index = if width > self.view().width {
            self.widen(width);
            // Wider than all others: below them or above them.
            if value < 0 { 0 } else { self.len() }
        } else {
            match self.view().search(value) {
                Ok(_) => return false,
                Err(index) => index,
            }
        };
        let width = self.view().width.bytes();
        let (before, at) = (self.used(), HEADER_BYTES + index * width);
        if before + width > self.block.len() {
            // An eighth, not double: see the listpack.
            self.block.resize(before + (before / 8).next_multiple_of(16).max(width));
        }
        self.block.copy_within(at..before, at + width);
        self.block[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
        self.block.mark += width as u32;
        self.write_length();
        true
    }

    /// Removes `value`; answers whether it was there. O(n).
    pub fn remove(&mut self, value: i64) -> bool {
        let view = self.view();
        if Width::of(value) > view.width {
            return false;
        }
        let Ok(index) = view.search(value) else { return false };
        let width = view.width.bytes();
        let at = HEADER_BYTES + index * width;
        let end = self.used();
        self.block.copy_within(at + width..end, at);
        self.block.mark -= width as u32;
        self.write_length();
        true
    }

    fn widen(&mut self, width: Width) {
        let old = self.view();
        let mut bytes = Vec::with_capacity(HEADER_BYTES + old.len() * width.bytes());
        bytes.extend_from_slice(&(width.bytes() as u32).to_le_bytes());
        bytes.extend_from_slice(&(old.len() as u32).to_le_bytes());
        for value in old.iter() {
            bytes.extend_from_slice(&value.to_le_bytes()[..width.bytes()]);
        }
        *self = Self::of(bytes);
    }

    fn write_length(&mut self) {
        let length = u32::try_from(self.len()).expect("an intset counts in 32 bits");
        self.block[4..HEADER_BYTES].copy_from_slice(&length.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    /// Payloads of DUMP from redis-server 7.0.15, after each command.
    #[test]
    fn bytes_equal_those_of_redis_as_the_set_widens() {
        let mut set = IntSet::new();
        for value in [5, -3, 100] {
            assert!(set.insert(value));
        }
        assert_eq!(set.bytes(), hex("0200000003000000fdff05006400"));
        assert!(set.insert(70_000));
        assert_eq!(set.bytes(), hex("0400000004000000fdffffff050000006400000070110100"));
        assert!(set.insert(-5_000_000_000));
        assert_eq!(
            set.bytes(),
            hex(
                "0800000005000000000efad5fefffffffdffffffffffffff050000000000000064000000000000007011010000000000"
            )
        );
        assert!(set.remove(-5_000_000_000));
        assert_eq!(
            set.bytes(),
            hex("0800000004000000fdffffffffffffff050000000000000064000000000000007011010000000000"),
            "the width stays"
        );
        assert_eq!(validate(set.bytes()), Ok(4));
    }

    #[test]
    fn corrupt_bytes_are_refused_with_the_rule_they_break() {
        for (bytes, rule) in [
            ("02000000010000", "shorter"),
            ("03000000010000000500", "width"),
            ("02000000020000000500", "another length"),
            ("02000000ffffffff0500", "another length"),
            ("0200000000000000", "empty"),
            ("020000000200000005000500", "ascending"),
            ("020000000200000005000400", "ascending"),
        ] {
            assert!(validate(&hex(bytes)).unwrap_err().0.contains(rule), "{bytes}");
        }
    }

    fn value() -> impl Strategy<Value = i64> {
        prop_oneof![
            6 => -20i64..20,
            2 => any::<i16>().prop_map(i64::from),
            1 => any::<i32>().prop_map(i64::from),
            1 => any::<i64>(),
            1 => prop::sample::select(vec![-32769, -32768, 32767, 32768, i64::MIN, i64::MAX]),
        ]
    }

    proptest! {
        #[test]
        fn edits_agree_with_a_btree_set(
            edits in prop::collection::vec((any::<bool>(), value()), 1..100),
        ) {
            let mut set = IntSet::new();
            let mut model = BTreeSet::new();
            for (add, value) in edits {
                if add {
                    prop_assert_eq!(set.insert(value), model.insert(value));
                } else {
                    prop_assert_eq!(set.remove(value), model.remove(&value));
                }
                prop_assert_eq!(set.view().contains(value), add);
                let view = set.view();
                prop_assert!(view.iter().eq(model.iter().copied()));
                prop_assert_eq!(view.min(), model.first().copied());
                prop_assert_eq!(view.max(), model.last().copied());
                prop_assert_eq!(view.get(model.len()), None);
                if !model.is_empty() {
                    prop_assert_eq!(validate(set.bytes()), Ok(model.len()));
                }
            }
        }

        #[test]
        fn validated_bytes_read_without_panic(
            width in prop::sample::select(vec![2u8, 4, 8, 3]),
            length in 0u8..4,
            mut body in prop::collection::vec(any::<u8>(), 0..32),
        ) {
            let mut bytes = vec![width, 0, 0, 0, length, 0, 0, 0];
            bytes.append(&mut body);
            if let Ok(count) = validate(&bytes) {
                let view = IntSetRef::new(&bytes);
                prop_assert_eq!(view.iter().filter(|&value| view.contains(value)).count(), count);
            }
        }
    }
}
