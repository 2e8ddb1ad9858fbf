//! Strings as arrays of bits. Bit 0 is the top bit of the first byte, as Redis numbers them.
//!
//! ```text
//! byte    0                 1
//! bit     0 1 2 3 4 5 6 7   8 9 …
//! value   128 … 1           128 …
//! ```
//!
//! So a run of bits read from left to right is a number in big-endian order, and eight bytes at a
//! time are one big-endian word: counting and searching work on those.

use std::ops::Range;

const WORD_BYTES: usize = size_of::<u64>();
/// Most bits of a field that [`read_field`] and [`write_field`] deal with.
pub const FIELD_BITS_MAX: u32 = 64;

/// The bit at `offset`; bits behind the end are 0.
#[inline]
pub fn bit(bytes: &[u8], offset: u64) -> bool {
    let byte = usize::try_from(offset / 8).ok().and_then(|at| bytes.get(at));
    byte.is_some_and(|byte| byte & mask(offset) != 0)
}

/// Sets the bit at `offset` and answers the one that was there.
///
/// # Panics
/// When the bit lies behind the end.
#[inline]
pub fn set_bit(bytes: &mut [u8], offset: u64, value: bool) -> bool {
    let byte = &mut bytes[(offset / 8) as usize];
    let before = *byte & mask(offset) != 0;
    if value {
        *byte |= mask(offset);
    } else {
        *byte &= !mask(offset);
    }
    before
}

/// The bit's place in its byte.
#[inline]
fn mask(offset: u64) -> u8 {
    0x80 >> (offset % 8)
}

/// How many bits are 1. O(n), a few bytes a cycle.
pub fn count_ones(bytes: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") && std::arch::is_x86_feature_detected!("popcnt") {
        // SAFETY: the processor has the features that the function is compiled for.
        return unsafe { count_ones_avx2(bytes) };
    }
    count_ones_portable(bytes)
}

/// The portable loop, compiled for processors whose vectors count bits by table look-up (Muła,
/// Kurz, Lemire: Faster population counts using AVX2 instructions, 2018): the compiler knows how.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt")]
fn count_ones_avx2(bytes: &[u8]) -> u64 {
    count_ones_portable(bytes)
}

#[inline(always)]
fn count_ones_portable(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
    let whole: u64 = words.iter().map(|word| u64::from(u64::from_ne_bytes(*word).count_ones())).sum();
    whole + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
}

/// How many of the bits in `range` are 1; bits behind the end are 0. O(n).
pub fn count_ones_in(bytes: &[u8], range: Range<u64>) -> u64 {
    let Some((head, body, tail)) = split(bytes, range) else { return 0 };
    u64::from(head.value.count_ones()) + count_ones(body) + u64::from(tail.value.count_ones())
}

/// The first bit in `range` that is `value`, among the bits that are there. O(n).
pub fn find_bit(bytes: &[u8], range: Range<u64>, value: bool) -> Option<u64> {
    let (head, body, tail) = split(bytes, range)?;
    if let Some(found) = head.find(value) {
        return Some(found);
    }
    let body_start = head.next_byte * 8;
    if let Some(found) = find_in_whole_bytes(body, value) {
        return Some(body_start + found);
    }
    tail.find(value)
}

fn find_in_whole_bytes(bytes: &[u8], value: bool) -> Option<u64> {
    // A word in which nothing is found: all bits are the other value.
    let other = if value { 0 } else { u64::MAX };
    let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
    let leading = |word: u64| u64::from((word ^ other).leading_zeros());
    if let Some(at) = words.iter().position(|word| u64::from_ne_bytes(*word) != other) {
        return Some(at as u64 * 64 + leading(u64::from_be_bytes(words[at])));
    }
    let at = rest.iter().position(|byte| *byte != other as u8)?;
    let bit = (rest[at] ^ other as u8).leading_zeros();
    Some((words.len() * WORD_BYTES + at) as u64 * 8 + u64::from(bit))
}

/// Some bits of one byte.
struct Partial {
    /// The bits that belong, the others 0.
    value: u8,
    /// Which belong.
    mask: u8,
    /// The first bit of the byte.
    start: u64,
    /// The byte behind.
    next_byte: u64,
}

impl Partial {
    fn find(&self, value: bool) -> Option<u64> {
        let candidates = if value { self.value } else { !self.value & self.mask };
        (candidates != 0).then(|| self.start + u64::from(candidates.leading_zeros()))
    }
}

/// A range of bits as part of a byte, whole bytes, part of a byte; `None` if it is empty. The part
/// of the range behind the end is left out.
fn split(bytes: &[u8], range: Range<u64>) -> Option<(Partial, &[u8], Partial)> {
    let end = range.end.min(bytes.len() as u64 * 8);
    if range.start >= end {
        return None;
    }
    let partial = |byte: u64, bits: Range<u64>| {
        let mask =
            if bits.is_empty() { 0 } else { (0xff >> bits.start) & (0xff_u16 << (8 - bits.end)) as u8 };
        let value = bytes.get(byte as usize).map_or(0, |value| value & mask);
        let next_byte = byte + u64::from(mask != 0);
        Partial { value, mask, start: byte * 8, next_byte }
    };
    let (first, last) = (range.start / 8, end / 8);
    Some(if range.start.is_multiple_of(8) {
        (partial(first, 0..0), &bytes[first as usize..last as usize], partial(last, 0..end % 8))
    } else if first == last {
        (partial(first, range.start % 8..end % 8), &[], partial(last, 0..0))
    } else {
        let head = partial(first, range.start % 8..8);
        (head, &bytes[first as usize + 1..last as usize], partial(last, 0..end % 8))
    })
}

/// The unsigned number in the `width` bits from `offset`; bits behind the end are 0.
///
/// # Panics
/// When `width` is 0 or over [`FIELD_BITS_MAX`].
pub fn read_field(bytes: &[u8], offset: u64, width: u32) -> u64 {
    let (window, shift) = window(bytes, offset, width);
    (window >> shift) as u64 & low_bits(width)
}

/// Writes the low `width` bits of `value` as the number in the bits from `offset`.
///
/// # Panics
/// When `width` is 0 or over [`FIELD_BITS_MAX`], or the bits lie behind the end.
pub fn write_field(bytes: &mut [u8], offset: u64, width: u32, value: u64) {
    let (window, shift) = window(bytes, offset, width);
    let mask = u128::from(low_bits(width)) << shift;
    let changed = window & !mask | u128::from(value) << shift & mask;
    let first = (offset / 8) as usize;
    let last = ((offset + u64::from(width) - 1) / 8) as usize;
    bytes[first..=last].copy_from_slice(&changed.to_be_bytes()[..=last - first]);
}

/// Sixteen bytes from the one where a field begins, and how far from their right end it ends.
fn window(bytes: &[u8], offset: u64, width: u32) -> (u128, u32) {
    assert!((1..=FIELD_BITS_MAX).contains(&width), "a field of {width} bits");
    let mut window = [0; size_of::<u128>()];
    let from = usize::try_from(offset / 8).ok().and_then(|first| bytes.get(first..)).unwrap_or(&[]);
    let length = from.len().min(window.len());
    window[..length].copy_from_slice(&from[..length]);
    (u128::from_be_bytes(window), u128::BITS - (offset % 8) as u32 - width)
}

fn low_bits(width: u32) -> u64 {
    u64::MAX >> (u64::BITS - width)
}

/// Combines the bytes of `source` into those of `target`, one by one, as far as both reach: words at
/// a time, once the compiler is done.
#[inline]
pub fn combine(target: &mut [u8], source: &[u8], operation: impl Fn(u8, u8) -> u8) {
    target.iter_mut().zip(source).for_each(|(target, source)| *target = operation(*target, *source));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    /// The bits one by one.
    fn spread(bytes: &[u8]) -> Vec<bool> {
        bytes.iter().flat_map(|byte| (0..8).map(move |at| byte >> (7 - at) & 1 == 1)).collect()
    }

    /// Bytes that are mostly all zeros or all ones, so that searches go far.
    fn dull_bytes() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![20 => Just(0u8), 20 => Just(0xff), 1 => any::<u8>()];
        prop_oneof![vec(byte, 0..80), vec(Just(0u8), 0..80), vec(Just(0xffu8), 0..80)]
    }

    #[test]
    fn bits_are_numbered_from_the_left() {
        let mut bytes = [0b1000_0001, 0];
        assert!(bit(&bytes, 0) && bit(&bytes, 7) && !bit(&bytes, 1) && !bit(&bytes, 8));
        assert!(!bit(&bytes, 16) && !bit(&bytes, u64::MAX), "behind the end");
        assert!(!set_bit(&mut bytes, 9, true));
        assert!(set_bit(&mut bytes, 0, false));
        assert_eq!(bytes, [1, 0b0100_0000]);
    }

    #[test]
    fn field_may_span_nine_bytes() {
        let mut bytes = [0; 9];
        write_field(&mut bytes, 7, 64, u64::MAX);
        assert_eq!(bytes, [1, 255, 255, 255, 255, 255, 255, 255, 254]);
        assert_eq!(read_field(&bytes, 7, 64), u64::MAX);
        assert_eq!(read_field(&bytes, 6, 64), u64::MAX >> 1);
        assert_eq!(read_field(&bytes, 70, 64), 1 << 63);
        assert_eq!(read_field(&bytes, u64::MAX - 64, 5), 0);
    }

    proptest! {
        #[test]
        fn counting_and_searching(bytes in dull_bytes(), start in 0u64..700, end in 0u64..700, value: bool) {
            let bits = spread(&bytes);
            let inside = |at: &usize| (start..end).contains(&(*at as u64));
            let ones = (0..bits.len()).filter(inside).filter(|at| bits[*at]).count() as u64;
            prop_assert_eq!(count_ones_in(&bytes, start..end), ones);
            let found = (0..bits.len()).filter(inside).find(|at| bits[*at] == value).map(|at| at as u64);
            prop_assert_eq!(find_bit(&bytes, start..end, value), found);
            prop_assert_eq!(count_ones(&bytes), count_ones_portable(&bytes));
        }

        #[test]
        fn fields_are_runs_of_bits(mut bytes in vec(any::<u8>(), 20), offset in 0u64..90, width in 1u32..=64, value: u64) {
            let mut bits = spread(&bytes);
            let field = offset as usize..offset as usize + width as usize;
            let number = bits[field.clone()].iter().fold(0u64, |number, bit| number << 1 | u64::from(*bit));
            prop_assert_eq!(read_field(&bytes, offset, width), number);
            write_field(&mut bytes, offset, width, value);
            for (at, bit) in bits[field].iter_mut().rev().enumerate() {
                *bit = value >> at & 1 == 1;
            }
            prop_assert_eq!(spread(&bytes), bits);
        }
    }
}
