//! A listpack entry: how it is laid out, read and written.

use super::Element;
use crate::decimal::parse_integer;

/// The byte behind the last entry.
pub(super) const END: u8 = 0xFF;

const STRING_6: u8 = 0x80;
const INTEGER_13: u8 = 0xC0;
const STRING_12: u8 = 0xE0;
const STRING_32: u8 = 0xF0;
const INTEGER_16: u8 = 0xF1;
const INTEGER_24: u8 = 0xF2;
const INTEGER_32: u8 = 0xF3;
const INTEGER_64: u8 = 0xF4;

/// Facts that the head of an entry states, before its contents are touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    /// Bytes before a string's contents; 0 for integers, which a string never has.
    pub string_at: usize,
    /// Bytes of the entry without its back length.
    pub size: usize,
}

impl Head {
    /// Bytes of the whole entry.
    #[inline]
    pub fn entry_bytes(self) -> usize {
        self.size + back_length_bytes(self.size)
    }
}

/// Bytes of contents of a short string, if `first` begins one: its head is this byte, and its back length another.
#[inline]
pub(super) fn short_string(first: u8) -> Option<usize> {
    (STRING_6..INTEGER_13).contains(&first).then_some(usize::from(first & 0x3F))
}

/// The first byte of a short string of `length` bytes; `None` for the empty one and for longer ones.
#[inline]
pub(super) fn short_head(length: usize) -> Option<u8> {
    (1..=0x3F).contains(&length).then_some(STRING_6 | length as u8)
}

/// Reads the head of the entry that starts `bytes`. `None` if there is no entry: at the end byte, at a
/// byte that starts no encoding, and if the bytes stop within the head.
#[inline]
pub(super) fn head(bytes: &[u8]) -> Option<Head> {
    let integer = |size| Some(Head { string_at: 0, size });
    let first = *bytes.first()?;
    match first {
        0..0x80 => integer(1),
        STRING_6..0xC0 => Some(Head { string_at: 1, size: 1 + usize::from(first & 0x3F) }),
        INTEGER_13..0xE0 => integer(2),
        STRING_12..0xF0 => {
            let low = *bytes.get(1)?;
            Some(Head { string_at: 2, size: 2 + (usize::from(first & 0x0F) << 8 | usize::from(low)) })
        }
        STRING_32 => {
            let length = u32::from_le_bytes(*bytes.get(1..)?.first_chunk()?);
            Some(Head { string_at: 5, size: 5 + length as usize })
        }
        INTEGER_16 => integer(3),
        INTEGER_24 => integer(4),
        INTEGER_32 => integer(5),
        INTEGER_64 => integer(9),
        _ => None,
    }
}

/// The integer that the `head.size` bytes of an entry hold.
#[inline]
pub(super) fn integer(entry: &[u8]) -> i64 {
    match *entry {
        [value @ 0..0x80] => i64::from(value),
        // Thirteen bits: shifted to the top of sixteen and back, so that the sign spreads.
        [high, low] => i64::from(i16::from_be_bytes([high << 3 | low >> 5, low << 3]) >> 3),
        [_, a, b] => i64::from(i16::from_le_bytes([a, b])),
        [_, a, b, c] => i64::from(i32::from_le_bytes([0, a, b, c]) >> 8),
        [_, a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
        [_, a, b, c, d, e, f, g, h] => i64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => unreachable!("head() gives integers one of these sizes"),
    }
}

/// Copies a text over another of its length. Most have 8 to 32 bytes, which two words at their ends cover, and a call
/// would take longer.
#[inline]
fn copy_text(to: &mut [u8], from: &[u8]) {
    #[inline(always)]
    fn copy_ends<const N: usize>(to: &mut [u8], from: &[u8]) {
        if let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) {
            to[..N].copy_from_slice(first);
            let rest = to.len() - N;
            to[rest..].copy_from_slice(last);
        }
    }
    match from.len() {
        0 => {}
        8..=16 => copy_ends::<8>(to, from),
        17..=32 => copy_ends::<16>(to, from),
        _ => to.copy_from_slice(from),
    }
}

/// Bytes that the back length of an entry of `size` bytes takes. The limits are those of Redis, each one
/// below what the seven-bit groups could hold.
#[inline]
pub(super) fn back_length_bytes(size: usize) -> usize {
    match size {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

/// Writes the back length of an entry of `size` bytes over the whole of `out`: groups of seven bits, the
/// highest first, the top bit set in all but the first, so that it reads from its end backwards.
#[inline]
pub(super) fn write_back_length(out: &mut [u8], size: usize) {
    let mut rest = size;
    for (at, byte) in out.iter_mut().enumerate().rev() {
        *byte = (rest & 0x7F) as u8 | if at == 0 { 0 } else { 0x80 };
        rest >>= 7;
    }
}

/// Reads the back length that ends `bytes`: (size of the entry, bytes of the back length itself).
/// `None` if it does not begin within five bytes.
#[inline]
pub(super) fn read_back_length(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut size = 0;
    for (group, &byte) in bytes.iter().rev().take(5).enumerate() {
        size |= usize::from(byte & 0x7F) << (7 * group);
        if byte & 0x80 == 0 {
            return Some((size, group + 1));
        }
    }
    None
}

/// An element made ready to be written: the head (or all of an integer), then a string's contents.
pub(super) struct Encoded<'a> {
    head: [u8; 9],
    head_bytes: u8,
    contents: &'a [u8],
}

impl<'a> Encoded<'a> {
    /// Chooses the smallest encoding; text that is canonical for an integer becomes that integer.
    #[inline]
    pub fn new(element: Element<'a>) -> Encoded<'a> {
        match element {
            Element::Integer(value) => Self::integer(value),
            Element::String(text) => match parse_integer(text) {
                Some(value) => Self::integer(value),
                None => Self::string(text),
            },
        }
    }

    fn integer(value: i64) -> Encoded<'a> {
        let mut head = [0; 9];
        let low = value.to_le_bytes();
        let (mark, width) = match value {
            0..=127 => {
                head[0] = low[0];
                return Encoded { head, head_bytes: 1, contents: &[] };
            }
            -4096..=4095 => {
                head[0] = INTEGER_13 | low[1] & 0x1F;
                head[1] = low[0];
                return Encoded { head, head_bytes: 2, contents: &[] };
            }
            -0x8000..=0x7FFF => (INTEGER_16, 2),
            -0x80_0000..=0x7F_FFFF => (INTEGER_24, 3),
            -0x8000_0000..=0x7FFF_FFFF => (INTEGER_32, 4),
            _ => (INTEGER_64, 8),
        };
        head[0] = mark;
        head[1..=width].copy_from_slice(&low[..width]);
        Encoded { head, head_bytes: width as u8 + 1, contents: &[] }
    }

    fn string(text: &'a [u8]) -> Encoded<'a> {
        let mut head = [0; 9];
        let length = (text.len() as u32).to_le_bytes();
        let head_bytes = match text.len() {
            0..64 => {
                head[0] = STRING_6 | length[0];
                1
            }
            64..4096 => {
                head[0] = STRING_12 | length[1];
                head[1] = length[0];
                2
            }
            _ => {
                head[0] = STRING_32;
                head[1..5].copy_from_slice(&length);
                5
            }
        };
        Encoded { head, head_bytes, contents: text }
    }

    /// Bytes without the back length.
    #[inline]
    pub fn size(&self) -> usize {
        usize::from(self.head_bytes) + self.contents.len()
    }

    /// Bytes of the whole entry.
    #[inline]
    pub fn entry_bytes(&self) -> usize {
        self.size() + back_length_bytes(self.size())
    }

    /// Writes the entry over the whole of `out`, which is `entry_bytes` long.
    #[inline]
    pub fn write(&self, out: &mut [u8]) {
        let (head, rest) = out.split_at_mut(usize::from(self.head_bytes));
        // Most heads have one byte or two, and most integers nothing else: a copy would be a call.
        match head {
            [first] => *first = self.head[0],
            [first, second] => [*first, *second] = [self.head[0], self.head[1]],
            head => head.copy_from_slice(&self.head[..head.len()]),
        }
        let (contents, back_length) = rest.split_at_mut(self.contents.len());
        copy_text(contents, self.contents);
        match back_length {
            [byte] => *byte = self.size() as u8,
            long => write_back_length(long, self.size()),
        }
    }
}
