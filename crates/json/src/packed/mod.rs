//! The packed form: a JSON value as one run of bytes in which every part can be found without reading the rest.
//!
//! ```text
//! 00–7f                        integer 0 to 127
//! 80–87  bytes                 integer, little-endian two's complement of 1 to 8 bytes
//! 88     8 bytes               integer above i64::MAX
//! 89     8 bytes               double
//! 90–95  exponent  bytes       double that is m / 10^e: e in seven bits, the sign above them, m in 1 to 6 bytes
//! a0 a1 a2                     null, false, true
//! a3     4 bytes               link: number of a node beside a run (see `tree`); never inside a packed container
//! a4 a5                        empty array, empty object
//! a8–aa  array                 with numbers of 1, 2 or 4 bytes in its header
//! ac–ae  object                likewise
//! b0–b3  count: 4  elements    array of FP16, BF16, FP32 or FP64, little-endian
//! c0–df  bytes                 string of up to 31 bytes
//! e0–e2  length  bytes         string with a length of 1, 2 or 4 bytes
//!
//! array   tag │ size │ count │ samples │ items                       w = 1, 2 or 4 bytes for each number
//! object  tag │ size │ count │ samples │ sorted │ items              an item is a name (a string), then a value
//!               │              │         └─ ordinals of the members by name (1, 2 or 4 bytes each), from 9 members on
//!               │              └─ offsets of items 8, 16, 24 … from the first item
//!               └─ bytes after this number
//! ```
//!
//! A value knows its size, so the item after an offset is found by skipping up to seven: item *i* costs O(1), a member
//! O(log n) comparisons of names, which are ordered by length, then by bytes. Members stand in the order in which they
//! came. A value takes at most as many bytes as its minified JSON text with the comma behind it, except the headers of
//! containers with fewer than eight small items, which exceed it by two bytes at most
//! (`packed_form_is_no_longer_than_the_text`).
//!
//! Bytes in this form come only from [`Builder`](crate::Builder) and the edits of this crate, so readers check nothing
//! but bounds.

mod edit;
mod numbers;

use std::cmp::Ordering;

pub(crate) use edit::{insert, reference_value, remove, replace};
use numbers::{decimal_of, int_of};
pub(crate) use numbers::{push_decimal, push_double, push_int, push_uint};

/// Items between two samples of a header.
pub(crate) const SAMPLE_EVERY: usize = 8;
/// Most members of an object without a sorted list of their names.
pub(crate) const SCANNED_MAX: usize = 8;

pub(crate) const INT: u8 = 0x80;
pub(crate) const UINT: u8 = 0x88;
pub(crate) const DOUBLE: u8 = 0x89;
pub(crate) const DECIMAL: u8 = 0x90;
pub(crate) const NULL: u8 = 0xa0;
pub(crate) const FALSE: u8 = 0xa1;
pub(crate) const TRUE: u8 = 0xa2;
pub(crate) const LINK: u8 = 0xa3;
pub(crate) const EMPTY_ARRAY: u8 = 0xa4;
pub(crate) const EMPTY_OBJECT: u8 = 0xa5;
const ARRAY: u8 = 0xa8;
const OBJECT: u8 = 0xac;
pub(crate) const TYPED: u8 = 0xb0;
const STRING: u8 = 0xc0;
const STRING_8: u8 = 0xe0;
const STRING_16: u8 = 0xe1;
const STRING_32: u8 = 0xe2;

/// Bytes of a link.
pub(crate) const LINK_BYTES: usize = 5;

/// A packed value that is no container and no link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scalar<'a> {
    Null,
    Bool(bool),
    Int(i64),
    /// Above `i64::MAX`.
    Uint(u64),
    Double(f64),
    String(&'a [u8]),
}

/// A little-endian number of 1, 2 or 4 bytes.
#[inline]
pub(crate) fn number_at(bytes: &[u8], at: usize, width: usize) -> usize {
    match width {
        1 => bytes[at] as usize,
        2 => u16::from_le_bytes([bytes[at], bytes[at + 1]]) as usize,
        _ => u32::from_le_bytes(*bytes[at..].first_chunk().expect("four bytes")) as usize,
    }
}

#[inline]
fn push_number(out: &mut Vec<u8>, number: usize, width: usize) {
    out.extend_from_slice(&(number as u32).to_le_bytes()[..width]);
}

/// Width of the numbers of a container by its tag's low bits: 0, 1, 2 stand for 1, 2, 4 bytes.
#[inline]
fn width_of(tag: u8) -> usize {
    1 << (tag & 3)
}

#[inline]
pub(crate) fn is_object(tag: u8) -> bool {
    matches!(tag, 0xac..=0xae | EMPTY_OBJECT)
}

#[inline]
pub(crate) fn is_array(tag: u8) -> bool {
    matches!(tag, 0xa8..=0xaa | EMPTY_ARRAY | 0xb0..=0xb3)
}

/// Bytes of an element of the typed array of that tag.
#[inline]
pub(crate) fn element_bytes(tag: u8) -> usize {
    match tag & 3 {
        0 | 1 => 2,
        2 => 4,
        _ => 8,
    }
}

/// Size of the value that `bytes` begins with.
#[inline]
pub(crate) fn value_bytes(bytes: &[u8]) -> usize {
    let tag = bytes[0];
    match tag {
        0x00..=0x7f | NULL..=TRUE | EMPTY_ARRAY | EMPTY_OBJECT => 1,
        0x80..=0x87 => 2 + (tag - INT) as usize,
        UINT | DOUBLE => 9,
        0x90..=0x95 => 3 + (tag - DECIMAL) as usize,
        0xc0..=0xdf => 1 + (tag - STRING) as usize,
        STRING_8..=STRING_32 => {
            let width = 1 << (tag - STRING_8);
            1 + width + number_at(bytes, 1, width)
        }
        0xa8..=0xaa | 0xac..=0xae => 1 + width_of(tag) + number_at(bytes, 1, width_of(tag)),
        0xb0..=0xb3 => 5 + number_at(bytes, 1, 4) * element_bytes(tag),
        LINK => LINK_BYTES,
        _ => unreachable!("a packed value with the tag {tag:#x}"),
    }
}

/// Appends a string.
#[inline]
pub(crate) fn push_string(out: &mut Vec<u8>, text: &[u8]) {
    match text.len() {
        short @ 0..=31 => out.push(STRING + short as u8),
        short @ 32..=0xff => out.extend_from_slice(&[STRING_8, short as u8]),
        long => {
            let (tag, width) = if long <= 0xffff { (STRING_16, 2) } else { (STRING_32, 4) };
            out.push(tag);
            push_number(out, long, width);
        }
    }
    out.extend_from_slice(text);
}

/// The string that `bytes` begins with, and its size there.
#[inline]
pub(crate) fn string_at(bytes: &[u8]) -> (&[u8], usize) {
    let tag = bytes[0];
    let (head, len) = if tag < STRING_8 {
        (1, (tag - STRING) as usize)
    } else {
        let width = 1 << (tag - STRING_8);
        (1 + width, number_at(bytes, 1, width))
    };
    (&bytes[head..head + len], head + len)
}

/// The scalar that `bytes` begins with; `None` for containers and links.
#[inline]
pub(crate) fn scalar(bytes: &[u8]) -> Option<Scalar<'_>> {
    let tag = bytes[0];
    Some(match tag {
        0x00..=0x7f => Scalar::Int(i64::from(tag)),
        0x80..=0x87 => Scalar::Int(int_of(&bytes[1..2 + (tag - INT) as usize])),
        UINT => Scalar::Uint(u64::from_le_bytes(*bytes[1..].first_chunk()?)),
        DOUBLE => Scalar::Double(f64::from_le_bytes(*bytes[1..].first_chunk()?)),
        0x90..=0x95 => Scalar::Double(decimal_of(bytes[1], &bytes[2..3 + (tag - DECIMAL) as usize])),
        NULL => Scalar::Null,
        FALSE => Scalar::Bool(false),
        TRUE => Scalar::Bool(true),
        0xc0..=0xe2 => Scalar::String(string_at(bytes).0),
        _ => return None,
    })
}

/// Order of names: by length, then by bytes.
#[inline]
pub(crate) fn compare_names(a: &[u8], b: &[u8]) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

/// A container with its header read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Container<'a> {
    /// From the tag to the last item.
    bytes: &'a [u8],
    object: bool,
    width: usize,
    count: usize,
    /// Offset of the sorted ordinals.
    sorted: usize,
    /// Bytes of each, 0 if there are none.
    sorted_width: usize,
    /// Offset of the items.
    items: usize,
}

/// Samples in the header of a container.
#[inline]
fn sample_count(count: usize) -> usize {
    count.saturating_sub(1) / SAMPLE_EVERY
}

/// Bytes of each sorted ordinal, 0 if there are none.
#[inline]
fn sorted_width(object: bool, count: usize) -> usize {
    match count {
        _ if !object => 0,
        0..=SCANNED_MAX => 0,
        9..=0x100 => 1,
        0x101..=0x1_0000 => 2,
        _ => 4,
    }
}

impl<'a> Container<'a> {
    /// The container that `bytes` begins with; `None` if it is another value, a typed array or a link.
    #[inline]
    pub(crate) fn at(bytes: &'a [u8]) -> Option<Self> {
        let tag = bytes[0];
        match tag {
            0xa8..=0xaa | 0xac..=0xae => {
                let (object, width) = (tag >= OBJECT, width_of(tag));
                let size = number_at(bytes, 1, width);
                let count = number_at(bytes, 1 + width, width);
                let sorted = 1 + 2 * width + sample_count(count) * width;
                let sorted_width = sorted_width(object, count);
                let items = sorted + count * sorted_width;
                Some(Self {
                    bytes: &bytes[..1 + width + size],
                    object,
                    width,
                    count,
                    sorted,
                    sorted_width,
                    items,
                })
            }
            EMPTY_ARRAY | EMPTY_OBJECT => Some(Self {
                bytes: &bytes[..1],
                object: tag == EMPTY_OBJECT,
                width: 1,
                count: 0,
                sorted: 1,
                sorted_width: 0,
                items: 1,
            }),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    #[inline]
    pub(crate) fn is_object(&self) -> bool {
        self.object
    }

    /// The bytes of all items.
    #[inline]
    pub(crate) fn items(&self) -> &'a [u8] {
        &self.bytes[self.items..]
    }

    /// Offset of an item from the container's tag; of its end if `ordinal` is the count. O(1).
    #[inline]
    pub(crate) fn item_at(&self, ordinal: usize) -> usize {
        debug_assert!(ordinal <= self.count);
        if ordinal == self.count {
            return self.bytes.len();
        }
        let sample = ordinal / SAMPLE_EVERY;
        let mut at = self.items;
        if sample > 0 {
            at += number_at(self.bytes, 1 + 2 * self.width + (sample - 1) * self.width, self.width);
        }
        for _ in sample * SAMPLE_EVERY..ordinal {
            at += item_bytes(self.object, &self.bytes[at..]);
        }
        at
    }

    /// Offset of an item's value from the container's tag.
    #[inline]
    pub(crate) fn value_at(&self, ordinal: usize) -> usize {
        let at = self.item_at(ordinal);
        if self.object { at + value_bytes(&self.bytes[at..]) } else { at }
    }

    /// The name of a member. O(1).
    #[inline]
    pub(crate) fn name(&self, ordinal: usize) -> &'a [u8] {
        string_at(&self.bytes[self.item_at(ordinal)..]).0
    }

    /// The member of that name: its ordinal. O(log n) comparisons of names.
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        if !self.object {
            return None;
        }
        if self.sorted_width == 0 {
            let mut rest = self.items();
            for ordinal in 0..self.count {
                let (candidate, bytes) = string_at(rest);
                if candidate == name {
                    return Some(ordinal);
                }
                rest = &rest[bytes..];
                rest = &rest[value_bytes(rest)..];
            }
            return None;
        }
        self.search(name).ok().map(|place| self.sorted(place))
    }

    /// The ordinal at a place among the sorted ones.
    #[inline]
    fn sorted(&self, place: usize) -> usize {
        number_at(self.bytes, self.sorted + place * self.sorted_width, self.sorted_width)
    }

    /// The place of a name among the sorted ones, or where it would be.
    fn search(&self, name: &[u8]) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match compare_names(self.name(self.sorted(middle)), name) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }
}

/// Size of the item that `bytes` begins with.
#[inline]
pub(crate) fn item_bytes(object: bool, bytes: &[u8]) -> usize {
    if object {
        let name = value_bytes(bytes);
        name + value_bytes(&bytes[name..])
    } else {
        value_bytes(bytes)
    }
}

/// Appends the header of a container of items that take `items_bytes`: `samples` are the offsets of every eighth,
/// `sorted` the ordinals of the members by name, if there are more than [`SCANNED_MAX`].
pub(crate) fn push_header(
    out: &mut Vec<u8>,
    object: bool,
    count: usize,
    items_bytes: usize,
    samples: impl ExactSizeIterator<Item = usize>,
    sorted: &[u32],
) {
    if count == 0 {
        out.push(if object { EMPTY_OBJECT } else { EMPTY_ARRAY });
        return;
    }
    let sorted_width = sorted_width(object, count);
    debug_assert_eq!(samples.len(), sample_count(count));
    debug_assert!(sorted_width == 0 || sorted.len() == count);
    let size = |width: usize| width + samples.len() * width + sorted_width * count + items_bytes;
    let (code, width) = match () {
        () if size(1) <= 0xff => (0, 1),
        () if size(2) <= 0xffff => (1, 2),
        () => (2, 4),
    };
    out.push(code + if object { OBJECT } else { ARRAY });
    push_number(out, size(width), width);
    push_number(out, count, width);
    for sample in samples {
        push_number(out, sample, width);
    }
    if sorted_width > 0 {
        for &ordinal in sorted {
            push_number(out, ordinal as usize, sorted_width);
        }
    }
}

/// Appends the header of a container of these items, which begin at `starts`. `order` is room for the sorted ordinals.
pub(crate) fn push_header_of(
    out: &mut Vec<u8>,
    object: bool,
    items: &[u8],
    starts: &[u32],
    order: &mut Vec<u32>,
) {
    order.clear();
    if object && starts.len() > SCANNED_MAX {
        order.extend(0..starts.len() as u32);
        let name = |&ordinal: &u32| string_at(&items[starts[ordinal as usize] as usize..]).0;
        order.sort_unstable_by(|a, b| compare_names(name(a), name(b)));
    }
    let samples = (0..sample_count(starts.len())).map(|sample| starts[(sample + 1) * SAMPLE_EVERY] as usize);
    push_header(out, object, starts.len(), items.len(), samples, order);
}
