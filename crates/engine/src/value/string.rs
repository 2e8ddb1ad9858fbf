//! Strings: integers, short texts inside the entry, longer ones in a shared block, the longest in chunks.
//!
//! ```text
//! text that prints back from an i64   Integer   1–8 bytes in the entry
//! up to INLINE_BYTES_MAX              Inline    bytes in the entry
//! up to BLOCK_BYTES_MAX               Shared    pointer to an `Arc<Vec<u8>>`, sent without a copy
//! longer                              Rope      pointer to an `Arc<Rope>`: chunks, each shared until it is changed
//! ```
//!
//! A command that changes a block which a reply or a snapshot shares copies all of it, of a rope one chunk: no change
//! of a string takes longer than that (docs/decisions/0023).

use std::{borrow::Cow, mem, ops::Range, ptr, sync::Arc};

use dunlin_resp::{
    ReplyBuffer, SharedSlice,
    number::{INTEGER_TEXT_MAX, parse_integer},
};
use dunlin_structures::Rope;

use super::{ExtendedFloat, block_bytes, rope_bytes};
use crate::long_words::LongWord;

/// Longest string that is kept inside its entry. Two such entries share a page comfortably; a
/// longer string gains nothing from standing beside its key.
pub(crate) const INLINE_BYTES_MAX: usize = 1536;
/// Longest string that `OBJECT ENCODING` calls `embstr`; longer ones are `raw`.
pub(crate) const EMBEDDED_BYTES_MAX: usize = 44;
/// Bytes of a chunk: a change of a long string copies as many at most. Smaller ones make more work of sharing them all,
/// larger ones of changing one.
const CHUNK_BYTES: usize = if cfg!(test) { 4 * 1024 } else { 64 * 1024 };
/// Longest string that stands in one block.
pub(crate) const BLOCK_BYTES_MAX: usize = 4 * CHUNK_BYTES;

const _: () = assert!(INLINE_BYTES_MAX < BLOCK_BYTES_MAX);

/// The text of a string of more than [`BLOCK_BYTES_MAX`] bytes.
pub type StringRope = Rope<CHUNK_BYTES>;

/// A stored string.
#[derive(Debug, Clone, Copy)]
pub enum StringRef<'a> {
    /// An integer, kept as one.
    Integer(i64),
    /// Bytes inside the entry.
    Inline(&'a [u8]),
    /// Bytes in a block of their own.
    Shared(Payload<'a>),
    /// Bytes in chunks.
    Rope(RopeRef<'a>),
}

/// The contents of an `Arc` of which the keyspace owns a count, borrowed from there.
#[derive(Debug)]
pub struct ArcRef<'a, T>(&'a T);

/// The block of a long string, borrowed from the keyspace.
pub type Payload<'a> = ArcRef<'a, Vec<u8>>;
/// The rope of a longer one.
pub type RopeRef<'a> = ArcRef<'a, StringRope>;

impl<T> Clone for ArcRef<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ArcRef<'_, T> {}

impl<'a, T> ArcRef<'a, T> {
    /// # Safety
    /// `value` must stand inside an `Arc<T>` that lives for `'a`.
    pub(crate) unsafe fn new(value: &'a T) -> Self {
        Self(value)
    }

    /// A share of it.
    pub fn share(self) -> Arc<T> {
        let pointer: *const T = self.0;
        // SAFETY: by the contract of `new` the pointer came from an Arc that is alive.
        unsafe {
            Arc::increment_strong_count(pointer);
            Arc::from_raw(pointer)
        }
    }
}

impl<'a> Payload<'a> {
    /// The bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }
}

impl<'a> RopeRef<'a> {
    /// The rope.
    pub fn rope(self) -> &'a StringRope {
        self.0
    }
}

impl<'a> StringRef<'a> {
    /// Length of the text in bytes.
    pub fn len(self) -> usize {
        match self {
            Self::Integer(value) => itoa::Buffer::new().format(value).len(),
            Self::Inline(bytes) => bytes.len(),
            Self::Shared(payload) => payload.bytes().len(),
            Self::Rope(rope) => rope.rope().len(),
        }
    }

    /// Bytes on the heap; none if the string stands in its entry. O(1).
    #[inline]
    pub(crate) fn heap_bytes(self) -> usize {
        match self {
            Self::Integer(_) | Self::Inline(_) => 0,
            Self::Shared(payload) => block_bytes(payload.0.capacity()),
            Self::Rope(rope) => rope_bytes(rope.0),
        }
    }

    /// Whether both are one and the same block or rope, or equal if they are short.
    pub(crate) fn is(self, other: StringRef<'_>) -> bool {
        match (self, other) {
            (Self::Integer(integer), StringRef::Integer(other)) => integer == other,
            (Self::Inline(text), StringRef::Inline(other)) => text == other,
            (Self::Shared(payload), StringRef::Shared(other)) => ptr::eq(payload.0, other.0),
            (Self::Rope(rope), StringRef::Rope(other)) => ptr::eq(rope.0, other.0),
            _ => false,
        }
    }

    /// Whether this is the text. O(n).
    pub(crate) fn is_text(self, text: &[u8]) -> bool {
        match self {
            Self::Rope(rope) => *rope.rope() == *text,
            other => other.short_text(&mut itoa::Buffer::new()) == Some(text),
        }
    }

    /// Whether the text is empty.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Writes the text as a bulk string.
    #[inline]
    pub fn reply(self, reply: &mut ReplyBuffer) {
        match self {
            Self::Integer(value) => reply.bulk_integer(value),
            Self::Inline(bytes) => reply.bulk(bytes),
            Self::Shared(_) | Self::Rope(_) => self.reply_range(0..self.len(), reply),
        }
    }

    /// Writes a range of the text as a bulk string; a long one, by reference. The range must be inside.
    pub fn reply_range(self, range: Range<usize>, reply: &mut ReplyBuffer) {
        match self {
            Self::Shared(payload) if range.len() >= ReplyBuffer::SPLICE_BYTES_MIN => {
                reply.bulk_pieces(range.len(), [SharedSlice::new(payload.share(), range)]);
            }
            Self::Rope(rope) if range.len() >= ReplyBuffer::SPLICE_BYTES_MIN => {
                reply.bulk_pieces(range.len(), shared_slices(rope.rope(), range));
            }
            Self::Rope(rope) => {
                let mut part = vec![0; range.len()];
                rope.rope().read(range.start, &mut part);
                reply.bulk(&part);
            }
            Self::Integer(_) | Self::Inline(_) | Self::Shared(_) => {
                let mut buffer = itoa::Buffer::new();
                let text = self.short_text(&mut buffer).expect("it is no rope");
                reply.bulk(&text[range]);
            }
        }
    }

    /// The text, unless it stands in chunks; `buffer` holds it if the string is kept as an integer.
    pub fn short_text<'b>(self, buffer: &'b mut itoa::Buffer) -> Option<&'b [u8]>
    where
        'a: 'b,
    {
        match self {
            Self::Integer(value) => Some(buffer.format(value).as_bytes()),
            Self::Inline(bytes) => Some(bytes),
            Self::Shared(payload) => Some(payload.bytes()),
            Self::Rope(_) => None,
        }
    }

    /// The text in one piece, copied where it stands in chunks. O(n) then.
    pub fn gathered<'b>(self, buffer: &'b mut itoa::Buffer) -> Cow<'b, [u8]>
    where
        'a: 'b,
    {
        match self {
            Self::Rope(rope) => Cow::Owned(rope.rope().to_vec()),
            other => Cow::Borrowed(other.short_text(buffer).expect("it is no rope")),
        }
    }

    /// The bytes of a range of the text in order, each piece with its place; `buffer` holds them if the string is
    /// kept as an integer. A part of the range behind the end is left out.
    pub fn pieces<'b>(
        self,
        buffer: &'b mut itoa::Buffer,
        range: Range<usize>,
    ) -> impl Iterator<Item = (usize, &'b [u8])>
    where
        'a: 'b,
    {
        let range = range.start.min(self.len())..range.end.min(self.len());
        let mut at = range.start;
        let (whole, rope) = match self {
            Self::Rope(rope) => (None, Some(rope.rope())),
            other => (other.short_text(buffer).and_then(|text| text.get(range.clone())), None),
        };
        let slices =
            whole.into_iter().chain(rope.into_iter().flat_map(move |rope| rope.slices(range.clone())));
        slices.map(move |slice| {
            let start = at;
            at += slice.len();
            (start, slice)
        })
    }

    /// Copies bytes from `at` on to `out`. Returns how many there were.
    pub fn read(self, at: usize, out: &mut [u8]) -> usize {
        match self {
            Self::Rope(rope) => rope.rope().read(at, out),
            other => {
                let mut buffer = itoa::Buffer::new();
                let text = other.short_text(&mut buffer).and_then(|text| text.get(at..)).unwrap_or_default();
                let length = text.len().min(out.len());
                out[..length].copy_from_slice(&text[..length]);
                length
            }
        }
    }

    /// Appends the text to `out`. O(n).
    pub fn write_to(self, out: &mut Vec<u8>) {
        let mut buffer = itoa::Buffer::new();
        out.reserve(self.len());
        self.pieces(&mut buffer, 0..self.len()).for_each(|(_, piece)| out.extend_from_slice(piece));
    }

    /// The text, owned.
    pub fn to_vec(self) -> Vec<u8> {
        let mut text = Vec::new();
        self.write_to(&mut text);
        text
    }

    /// The integer that the text spells, if it is one of 64 bits.
    pub fn integer(self) -> Option<i64> {
        match self {
            Self::Integer(value) => Some(value),
            other => parse_integer(other.short_text(&mut itoa::Buffer::new())?),
        }
    }

    /// This string to be stored elsewhere; long ones are shared, not copied.
    pub fn to_new(self) -> NewString<'a> {
        match self {
            Self::Integer(value) => NewString::Integer(value),
            Self::Inline(bytes) => NewString::Inline(bytes),
            Self::Shared(payload) => NewString::Shared(payload.share()),
            Self::Rope(rope) => NewString::Rope(rope.share()),
        }
    }
}

/// A range of a rope for replies and records, chunk by chunk.
pub(crate) fn shared_slices(rope: &StringRope, range: Range<usize>) -> impl Iterator<Item = SharedSlice> {
    rope.chunks(range).map(|(chunk, range)| SharedSlice::new(chunk.share(), range))
}

/// A long text that others may hold, too.
#[derive(Debug, Clone)]
pub(crate) enum LongText {
    /// In one block.
    Block(Arc<Vec<u8>>),
    /// In chunks.
    Rope(Arc<StringRope>),
}

impl LongText {
    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Block(block) => block.len(),
            Self::Rope(rope) => rope.len(),
        }
    }

    /// Bytes that a change of the text copies while it is shared.
    pub(crate) fn shared_bytes(&self) -> usize {
        match self {
            Self::Block(block) => block.len(),
            Self::Rope(rope) => rope.list_bytes(),
        }
    }
}

/// A text that is about to be changed.
pub enum TextMut<'a> {
    /// A text of at most [`BLOCK_BYTES_MAX`] bytes.
    Flat(&'a mut Vec<u8>),
    /// A longer text.
    Rope(&'a mut StringRope),
}

impl TextMut<'_> {
    /// Bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Flat(text) => text.len(),
            Self::Rope(rope) => rope.len(),
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) {
        match self {
            Self::Flat(text) => text.extend_from_slice(bytes),
            Self::Rope(rope) => rope.append(bytes),
        }
    }

    /// Appends a word, of which `long` has the bytes if it is long: they are shared, not copied.
    pub fn append_word(&mut self, word: &[u8], long: Option<&LongWord>) {
        match (self, long) {
            (Self::Rope(rope), Some(long)) => rope.append_source(long),
            (text, _) => text.append(word),
        }
    }

    /// Appends zeros until it has `length` bytes; does nothing if it has them.
    pub fn grow(&mut self, length: usize) {
        match self {
            Self::Flat(text) if length > text.len() => text.resize(length, 0),
            Self::Flat(_) => {}
            Self::Rope(rope) => rope.grow(length),
        }
    }

    /// Copies bytes from `at` on to `out`. Returns how many there were.
    pub fn read(&self, at: usize, out: &mut [u8]) -> usize {
        match self {
            Self::Flat(text) => StringRef::Inline(text).read(at, out),
            Self::Rope(rope) => rope.read(at, out),
        }
    }

    /// Overwrites bytes from `at` on.
    ///
    /// # Panics
    /// When they would reach behind the end.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        match self {
            Self::Flat(text) => text[at..at + bytes.len()].copy_from_slice(bytes),
            Self::Rope(rope) => rope.write(at, bytes),
        }
    }

    /// Writes a word at a place; `long` has the bytes of a long one: they are shared, not copied. Returns the chunks
    /// whose places they take: it may take long to free them.
    ///
    /// # Panics
    /// When they would reach behind the end.
    pub fn write_word(&mut self, at: usize, word: &[u8], long: Option<&LongWord>) -> StringRope {
        match (self, long) {
            (Self::Rope(rope), Some(long)) => rope.write_source(at, long),
            (text, _) => {
                text.write(at, word);
                StringRope::default()
            }
        }
    }
}

/// A text that is being made, in order, of a length that is known.
#[derive(Debug)]
pub enum NewText {
    /// A text of at most [`BLOCK_BYTES_MAX`] bytes.
    Flat(Vec<u8>),
    /// A longer text.
    Rope(StringRope),
}

impl NewText {
    /// A string that will have `length` bytes.
    pub fn with_capacity(length: usize) -> Self {
        if length <= BLOCK_BYTES_MAX {
            Self::Flat(Vec::with_capacity(length))
        } else {
            Self::Rope(StringRope::default())
        }
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        match self {
            Self::Flat(text) => text.len(),
            Self::Rope(rope) => rope.len(),
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) {
        match self {
            Self::Flat(text) => text.extend_from_slice(bytes),
            Self::Rope(rope) => rope.append(bytes),
        }
    }

    /// The string, never an integer; it is taken out if it is long.
    pub fn take(&mut self) -> NewString<'_> {
        match self {
            Self::Flat(text) => NewString::from_edited(text),
            Self::Rope(rope) => NewString::Rope(Arc::new(mem::take(rope))),
        }
    }
}

/// A string to be stored.
#[derive(Debug, Clone)]
pub enum NewString<'a> {
    /// The text as an integer.
    Integer(i64),
    /// Inside the entry: at most [`INLINE_BYTES_MAX`] bytes.
    Inline(&'a [u8]),
    /// Inside the entry, and known to have been edited: never called `embstr`.
    Edited(&'a [u8]),
    /// In a block of its own: at most [`BLOCK_BYTES_MAX`] bytes.
    Shared(Arc<Vec<u8>>),
    /// In chunks: more.
    Rope(Arc<StringRope>),
}

impl<'a> NewString<'a> {
    /// Chooses the storage for a text as `SET` does: an integer if it prints back the same.
    #[inline]
    pub fn from_text(text: &'a [u8]) -> Self {
        if text.len() <= INTEGER_TEXT_MAX
            && let Some(value) = parse_integer(text)
        {
            return Self::Integer(value);
        }
        Self::from_computed(text)
    }

    /// [`Self::from_text`] of a word, of which `long` has the bytes if it is long: they are shared, not copied.
    #[inline]
    pub(crate) fn from_word(word: &'a [u8], long: Option<&LongWord>) -> Self {
        match long.and_then(|long| long.rope_from(0)) {
            Some(rope) => Self::Rope(rope),
            None => Self::from_text(word),
        }
    }

    /// This string, with its bytes moved to `buffer` if it borrows them.
    pub(crate) fn copied_to(self, buffer: &mut Vec<u8>) -> NewString<'_> {
        let mut copy = |bytes: &[u8]| {
            buffer.clear();
            buffer.extend_from_slice(bytes);
        };
        match self {
            NewString::Integer(value) => NewString::Integer(value),
            NewString::Shared(payload) => NewString::Shared(payload),
            NewString::Rope(rope) => NewString::Rope(rope),
            NewString::Inline(bytes) => {
                copy(bytes);
                NewString::Inline(buffer)
            }
            NewString::Edited(bytes) => {
                copy(bytes);
                NewString::Edited(buffer)
            }
        }
    }

    /// [`Self::from_text`]; a long text is taken out of `text`, not copied.
    pub(crate) fn from_owned(text: &'a mut Vec<u8>) -> Self {
        if text.len() <= INLINE_BYTES_MAX { Self::from_text(text) } else { Self::taken_out(text) }
    }

    /// Chooses the storage for a text that was edited in place (`APPEND`, `SETRANGE`, `SETBIT`):
    /// it stays text even if it looks like a number. A long one is taken out of `text`.
    pub fn from_edited(text: &'a mut Vec<u8>) -> Self {
        if text.len() <= INLINE_BYTES_MAX { Self::Edited(text) } else { Self::taken_out(text) }
    }

    fn taken_out(text: &mut Vec<u8>) -> Self {
        let text = mem::take(text);
        if text.len() <= BLOCK_BYTES_MAX {
            Self::Shared(Arc::new(text))
        } else {
            Self::Rope(Arc::new(StringRope::from(text)))
        }
    }

    /// Chooses the storage for a text that a command computed: as [`Self::from_text`], but never an
    /// integer.
    #[inline]
    pub fn from_computed(text: &'a [u8]) -> Self {
        if text.len() <= INLINE_BYTES_MAX { Self::Inline(text) } else { Self::copied_from(text) }
    }

    fn copied_from(text: &[u8]) -> Self {
        if text.len() <= BLOCK_BYTES_MAX {
            Self::Shared(Arc::new(text.to_vec()))
        } else {
            Self::Rope(Arc::new(StringRope::from(text)))
        }
    }

    /// The text if it is long: a share of it.
    pub(crate) fn long_text(&self) -> Option<LongText> {
        match self {
            Self::Shared(block) => Some(LongText::Block(Arc::clone(block))),
            Self::Rope(rope) => Some(LongText::Rope(Arc::clone(rope))),
            Self::Integer(_) | Self::Inline(_) | Self::Edited(_) => None,
        }
    }
}

/// Reads a floating-point number the way commands accept it: decimal or hexadecimal form with an
/// exponent, `inf` and `infinity` with a sign; no blanks, no `nan`, nothing too large for the type or
/// too small.
pub fn parse_float(text: &[u8]) -> Option<f64> {
    let Ok(value) = std::str::from_utf8(text).ok()?.parse::<f64>() else {
        // Hexadecimal form, if it is one.
        let exact = ExtendedFloat::parse(text)?;
        let value = exact.to_f64(false);
        return (value.is_finite() && (value != 0.0 || exact.is_zero())).then_some(value);
    };
    let digits = || text.iter().take_while(|byte| !matches!(byte, b'e' | b'E'));
    let is_spelled_infinite = || matches!(text, [b'i' | b'I', ..] | [b'+' | b'-', b'i' | b'I', ..]);
    let is_lost = value == 0.0 && digits().any(|digit| matches!(digit, b'1'..=b'9'))
        || value.is_infinite() && !is_spelled_infinite();
    (!value.is_nan() && !is_lost).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_read_as_commands_accept_them() {
        for (text, expected) in [
            ("1", Some(1.0)),
            ("+1.5", Some(1.5)),
            ("-1e3", Some(-1000.0)),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            ("inf", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("nan", None),
            ("1e400", None),
            ("1e-400", None),
            ("0e-400", Some(0.0)),
            ("0x1p3", Some(8.0)),
            ("-0X.8", Some(-0.5)),
            ("0x1p-1074", Some(5e-324)),
            ("0x1p-1080", None),
            ("0x1p1024", None),
            ("0xx", None),
            ("", None),
            (" 1", None),
            ("1 ", None),
            ("1x", None),
        ] {
            assert_eq!(parse_float(text.as_bytes()), expected, "{text:?}");
        }
    }
}
