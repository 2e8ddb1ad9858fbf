//! Listpack: a sequence of strings and integers in one run of bytes, exactly as Redis 7.0 lays it out, so
//! that RDB files and DUMP payloads are validated and copied, never translated.
//!
//! ```text
//! listpack   total bytes: u32 LE | count: u16 LE, 65535 = unknown | entry … | FF
//! entry      encoding and contents | back length: size of the former, read backwards, 1 to 5 bytes
//!
//! 0vvvvvvv                                 integer 0 to 127
//! 10llllll contents                        string of up to 63 bytes
//! 110vvvvv vvvvvvvv                        integer of 13 bits, two's complement, high bits first
//! 1110llll llllllll contents               string of up to 4095 bytes, high bits first
//! F0 length: u32 LE, contents              longer string
//! F1 / F2 / F3 / F4                        integer of 16 / 24 / 32 / 64 bits, little-endian
//! FF                                       end of the listpack
//! ```
//!
//! [`ListpackRef`] reads, [`Listpack`] owns and edits, [`validate`] admits bytes from outside. All code here
//! is safe: the worst that bytes which never passed [`validate`] can do is make a reader panic or answer
//! nonsense.
//!
//! Invariants of listpacks written here: the count is exact or 65535; every element has its smallest
//! encoding; a string that is the canonical text of an integer is stored as that integer.
//!
//! Source of the format: Redis 7.0 `listpack.c` and <https://github.com/antirez/listpack>.

mod edit;
mod encoding;
#[cfg(test)]
mod tests;
mod validate;

use std::borrow::Cow;

pub use edit::Listpack;
pub use validate::validate;

use crate::decimal::parse_integer;
use encoding::{END, Encoded, head, integer, read_back_length, short_head, short_string};

/// Bytes before the first entry.
const HEADER_BYTES: usize = 6;
/// The count that says "count them yourself".
const COUNT_UNKNOWN: u16 = u16::MAX;
/// Bytes of a listpack without elements.
pub const LISTPACK_BYTES_EMPTY: usize = HEADER_BYTES + 1;
/// Larger than this no listpack may grow (Redis's safety limit of 1 GiB).
pub const LISTPACK_BYTES_MAX: usize = 1 << 30;

/// The end of a text that [`ListpackRef::find_from`] looks for, as one word to compare.
#[derive(Clone, Copy)]
struct Tail {
    /// The first byte of the text's entry.
    first: u8,
    /// The last eight bytes of the text, or all of a shorter one, at the word's upper end.
    word: u64,
    /// Bits below the text in the word.
    below: u32,
}

impl Tail {
    /// Bytes of a text that the word covers whole.
    const BYTES: usize = 8;

    /// `None`: the text is empty, long, or may be stored as an integer.
    #[inline]
    fn of(text: &[u8]) -> Option<Self> {
        let first = short_head(text.len())?;
        if parse_integer(text).is_some() {
            return None;
        }
        let below = 8 * Self::BYTES.saturating_sub(text.len()) as u32;
        let word = match text.last_chunk() {
            Some(last) => u64::from_le_bytes(*last),
            None => text.iter().rfold(0, |word, &byte| word << 8 | u64::from(byte)) << below,
        };
        Some(Self { first, word, below })
    }

    /// Whether the bytes before `end` end as the text does, if they are as many. The header, the entry's first byte and one
    /// byte of contents are eight bytes before any end.
    #[inline]
    fn is_before(self, bytes: &[u8], end: usize) -> bool {
        match bytes.get(end.wrapping_sub(Self::BYTES)..).and_then(<[u8]>::first_chunk) {
            Some(before) => (u64::from_le_bytes(*before) ^ self.word) >> self.below == 0,
            None => false,
        }
    }
}

/// An element of a listpack.
///
/// As something to store, `String` may hold any bytes; text of an integer is turned into one on the way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element<'a> {
    /// Kept as a number; its text is the canonical decimal one.
    Integer(i64),
    /// Kept as bytes.
    String(&'a [u8]),
}

impl<'a> Element<'a> {
    /// Bytes that the element takes in a listpack.
    #[inline]
    pub fn encoded_bytes(self) -> usize {
        Encoded::new(self).entry_bytes()
    }

    /// Whether the element's text is `text`.
    #[inline]
    pub fn eq_bytes(self, text: &[u8]) -> bool {
        match self {
            Element::Integer(value) => parse_integer(text) == Some(value),
            Element::String(own) => own == text,
        }
    }

    /// The element as an integer, also if it is kept as text (which foreign listpacks may do).
    #[inline]
    pub fn as_integer(self) -> Option<i64> {
        match self {
            Element::Integer(value) => Some(value),
            Element::String(text) => parse_integer(text),
        }
    }

    /// Appends the element's text to `out`.
    #[inline]
    pub fn write_text(self, out: &mut Vec<u8>) {
        match self {
            Element::Integer(value) => out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes()),
            Element::String(text) => out.extend_from_slice(text),
        }
    }

    /// The element's text; borrowed if it is kept as text.
    pub fn text(self) -> Cow<'a, [u8]> {
        match self {
            Element::Integer(value) => Cow::Owned(itoa::Buffer::new().format(value).as_bytes().to_vec()),
            Element::String(text) => Cow::Borrowed(text),
        }
    }

    /// Bytes of the element's text.
    #[inline]
    pub fn text_len(self) -> usize {
        match self {
            Element::Integer(value) => itoa::Buffer::new().format(value).len(),
            Element::String(text) => text.len(),
        }
    }
}

impl From<i64> for Element<'_> {
    fn from(value: i64) -> Self {
        Element::Integer(value)
    }
}

impl<'a> From<&'a [u8]> for Element<'a> {
    fn from(text: &'a [u8]) -> Self {
        Element::String(text)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Element<'a> {
    fn from(text: &'a [u8; N]) -> Self {
        Element::String(text)
    }
}

impl<'a> From<&'a Vec<u8>> for Element<'a> {
    fn from(text: &'a Vec<u8>) -> Self {
        Element::String(text)
    }
}

/// The start of an entry, counted in bytes from the start of its listpack. An edit before it makes it stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(u32);

impl Position {
    #[inline]
    fn at(self) -> usize {
        self.0 as usize
    }
}

/// Reads a listpack where its bytes lie.
#[derive(Clone, Copy)]
pub struct ListpackRef<'a> {
    bytes: &'a [u8],
}

impl<'a> ListpackRef<'a> {
    /// A view of bytes that a [`Listpack`] wrote or [`validate`] admitted. Panics, now or when read, on
    /// others.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> ListpackRef<'a> {
        debug_assert!(bytes.len() >= LISTPACK_BYTES_EMPTY && bytes.last() == Some(&END));
        ListpackRef { bytes }
    }

    /// All bytes, header and end included.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The count in the header, if it holds one.
    #[inline]
    fn counted(self) -> Option<usize> {
        let count = u16::from_le_bytes([self.bytes[4], self.bytes[5]]);
        (count != COUNT_UNKNOWN).then_some(usize::from(count))
    }

    /// Number of elements. O(1) below 65535, O(n) from there.
    #[inline]
    pub fn len(self) -> usize {
        self.counted().unwrap_or_else(|| self.positions_from(self.first()).count())
    }

    /// Whether there is no element. O(1).
    #[inline]
    pub fn is_empty(self) -> bool {
        self.bytes[HEADER_BYTES] == END
    }

    /// Bytes of the entry at `at`.
    #[inline]
    fn entry_bytes(self, at: usize) -> usize {
        head(&self.bytes[at..]).expect("a position names an entry").entry_bytes()
    }

    /// The offset as a position, unless it is that of the end byte.
    #[inline]
    fn position(self, at: usize) -> Option<Position> {
        (self.bytes[at] != END).then_some(Position(at as u32))
    }

    /// The first entry.
    #[inline]
    pub fn first(self) -> Option<Position> {
        self.position(HEADER_BYTES)
    }

    /// The last entry.
    #[inline]
    pub fn last(self) -> Option<Position> {
        self.before(self.bytes.len() - 1)
    }

    /// The entry that ends where offset `at` begins.
    #[inline]
    fn before(self, at: usize) -> Option<Position> {
        if at == HEADER_BYTES {
            return None;
        }
        let (size, own) = read_back_length(&self.bytes[..at]).expect("an entry ends with its length");
        Some(Position((at - size - own) as u32))
    }

    /// The entry behind `position`.
    #[inline]
    pub fn next(self, position: Position) -> Option<Position> {
        self.position(position.at() + self.entry_bytes(position.at()))
    }

    /// The entry before `position`.
    #[inline]
    pub fn previous(self, position: Position) -> Option<Position> {
        self.before(position.at())
    }

    /// The element at `position`.
    #[inline]
    pub fn element(self, position: Position) -> Element<'a> {
        self.read(position.at()).0
    }

    /// The element at offset `at`, and the offset behind it.
    #[inline]
    fn read(self, at: usize) -> (Element<'a>, usize) {
        let rest = &self.bytes[at..];
        let head = head(rest).expect("a position names an entry");
        let entry = &rest[..head.size];
        let element = match head.string_at {
            0 => Element::Integer(integer(entry)),
            start => Element::String(&entry[start..]),
        };
        (element, at + head.entry_bytes())
    }

    /// The entry with number `index`; negative numbers count from the end, -1 being the last.
    /// O(distance from the nearer end).
    pub fn seek(self, index: i64) -> Option<Position> {
        let (forward, steps) = match (self.counted(), index) {
            (Some(len), 0..) => {
                let steps = usize::try_from(index).ok().filter(|&steps| steps < len)?;
                if steps <= len / 2 { (true, steps) } else { (false, len - 1 - steps) }
            }
            (Some(len), _) => {
                let steps = usize::try_from(-1 - index).ok().filter(|&steps| steps < len)?;
                if steps <= len / 2 { (false, steps) } else { (true, len - 1 - steps) }
            }
            (None, 0..) => (true, usize::try_from(index).ok()?),
            (None, _) => (false, usize::try_from(-1 - index).ok()?),
        };
        let mut position = if forward { self.first()? } else { self.last()? };
        for _ in 0..steps {
            position = if forward { self.next(position)? } else { self.previous(position)? };
        }
        Some(position)
    }

    /// The element with number `index`, negative ones from the end.
    pub fn get(self, index: i64) -> Option<Element<'a>> {
        self.seek(index).map(|position| self.element(position))
    }

    /// The first entry from `from` on whose text is `text`; after each comparison `skip` entries are passed
    /// over (1 to compare only the fields of field-value pairs).
    #[inline]
    pub fn find_from(self, from: Option<Position>, text: &[u8], skip: usize) -> Option<Position> {
        let from = from?.at();
        match Tail::of(text) {
            Some(tail) => self.find_short(from, text, tail, skip),
            None => self.find_any(from, text, skip),
        }
    }

    /// [`Self::find_from`] for any text.
    fn find_any(self, mut at: usize, text: &[u8], skip: usize) -> Option<Position> {
        let number = parse_integer(text);
        loop {
            let rest = &self.bytes[at..];
            let head = head(rest)?;
            let same = match head.string_at {
                0 => number.is_some_and(|number| number == integer(&rest[..head.size])),
                start => head.size - start == text.len() && &rest[start..head.size] == text,
            };
            if same {
                return Some(Position(at as u32));
            }
            at = self.pass(at + head.entry_bytes(), skip)?;
        }
    }

    /// [`Self::find_from`] for a text that integers cannot be, and that one byte announces: nearly all fields and members.
    /// Two words are compared before any text is.
    fn find_short(self, mut at: usize, text: &[u8], tail: Tail, skip: usize) -> Option<Position> {
        loop {
            let first = *self.bytes.get(at)?;
            let bytes = if let Some(contents) = short_string(first) {
                if first == tail.first
                    && tail.is_before(self.bytes, at + 1 + contents)
                    && (contents <= Tail::BYTES || self.bytes[at + 1..][..contents] == *text)
                {
                    return Some(Position(at as u32));
                }
                // The first byte and a back length of one.
                contents + 2
            } else {
                let head = head(&self.bytes[at..])?;
                // A longer head than the text needs, which foreign listpacks may have.
                if head.string_at > 1 && self.bytes[at..][head.string_at..head.size] == *text {
                    return Some(Position(at as u32));
                }
                head.entry_bytes()
            };
            at = self.pass(at + bytes, skip)?;
        }
    }

    /// Where the entry begins that stands `count` entries behind the one at `at`.
    #[inline]
    fn pass(self, mut at: usize, count: usize) -> Option<usize> {
        for _ in 0..count {
            at += match short_string(*self.bytes.get(at)?) {
                Some(contents) => contents + 2,
                None => head(&self.bytes[at..])?.entry_bytes(),
            };
        }
        Some(at)
    }

    /// The first entry whose text is `text`, as [`Self::find_from`].
    #[inline]
    pub fn find(self, text: &[u8], skip: usize) -> Option<Position> {
        self.find_from(self.first(), text, skip)
    }

    /// All elements, from both ends.
    #[inline]
    pub fn iter(self) -> Elements<'a> {
        Elements { listpack: self, at: HEADER_BYTES, end: self.bytes.len() - 1 }
    }

    /// The elements from `position` to the last.
    #[inline]
    pub fn iter_from(self, position: Position) -> Elements<'a> {
        Elements { at: position.at(), ..self.iter() }
    }

    /// The elements from the first to the one at `position`.
    #[inline]
    pub fn iter_through(self, position: Position) -> Elements<'a> {
        Elements { end: position.at() + self.entry_bytes(position.at()), ..self.iter() }
    }

    /// The positions from `start` on.
    #[inline]
    pub fn positions_from(self, start: Option<Position>) -> impl Iterator<Item = Position> {
        std::iter::successors(start, move |&position| self.next(position))
    }
}

impl<'a> IntoIterator for ListpackRef<'a> {
    type Item = Element<'a>;
    type IntoIter = Elements<'a>;

    fn into_iter(self) -> Elements<'a> {
        self.iter()
    }
}

/// The elements of a listpack, or of the part that is left, from both ends.
#[derive(Clone)]
pub struct Elements<'a> {
    listpack: ListpackRef<'a>,
    at: usize,
    end: usize,
}

impl<'a> Elements<'a> {
    /// The rest, but no further than the entry at `position`, which must be one of them.
    #[inline]
    pub fn through(self, position: Position) -> Elements<'a> {
        Elements { end: position.at() + self.listpack.entry_bytes(position.at()), ..self }
    }

    /// The position of the next element.
    #[inline]
    pub fn position(&self) -> Option<Position> {
        (self.at < self.end).then_some(Position(self.at as u32))
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        if self.at >= self.end {
            return None;
        }
        let (element, next) = self.listpack.read(self.at);
        self.at = next;
        Some(element)
    }
}

impl DoubleEndedIterator for Elements<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.at >= self.end {
            return None;
        }
        let position = self.listpack.before(self.end)?;
        self.end = position.at();
        Some(self.listpack.element(position))
    }
}
