//! Strings: integers, short texts inside the entry, long ones in a shared block.
//!
//! ```text
//! text that prints back from an i64   Integer   1–8 bytes in the entry
//! up to INLINE_BYTES_MAX              Inline    bytes in the entry
//! longer                              Shared    pointer to an `Arc<Vec<u8>>`, sent without a copy
//! ```

use std::{ptr, sync::Arc};

use dunlin_resp::{
    ReplyBuffer,
    number::{INTEGER_TEXT_MAX, parse_integer},
};

use super::ExtendedFloat;

/// Longest string that is kept inside its entry. Two such entries share a page comfortably; a
/// longer string gains nothing from standing beside its key.
pub(crate) const INLINE_BYTES_MAX: usize = 1536;
/// Longest string that `OBJECT ENCODING` calls `embstr`; longer ones are `raw`.
pub(crate) const EMBEDDED_BYTES_MAX: usize = 44;

/// A stored string.
#[derive(Debug, Clone, Copy)]
pub enum StringRef<'a> {
    /// An integer, kept as one.
    Integer(i64),
    /// Bytes inside the entry.
    Inline(&'a [u8]),
    /// Bytes in a block of their own.
    Shared(Payload<'a>),
}

/// The block of a long string, borrowed from the keyspace.
#[derive(Debug, Clone, Copy)]
pub struct Payload<'a>(&'a Vec<u8>);

impl<'a> Payload<'a> {
    /// # Safety
    /// `bytes` must stand inside an `Arc<Vec<u8>>` that lives for `'a`.
    pub(crate) unsafe fn new(bytes: &'a Vec<u8>) -> Self {
        Self(bytes)
    }

    /// The block of a string that is about to be stored.
    pub(crate) fn of(block: &'a Arc<Vec<u8>>) -> Self {
        Self(block)
    }

    /// The bytes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Bytes that the block has room for.
    pub(crate) fn capacity(self) -> usize {
        self.0.capacity()
    }

    /// A share of the block.
    pub fn share(self) -> Arc<Vec<u8>> {
        let pointer: *const Vec<u8> = self.0;
        // SAFETY: by the contract of `new` the pointer came from an Arc that is alive.
        unsafe {
            Arc::increment_strong_count(pointer);
            Arc::from_raw(pointer)
        }
    }
}

impl<'a> StringRef<'a> {
    /// Length of the text in bytes.
    pub fn len(self) -> usize {
        match self {
            Self::Integer(value) => itoa::Buffer::new().format(value).len(),
            Self::Inline(bytes) => bytes.len(),
            Self::Shared(payload) => payload.bytes().len(),
        }
    }

    /// Whether both are one and the same block, or equal where they are short.
    pub(crate) fn is(self, other: StringRef<'_>) -> bool {
        match (self, other) {
            (Self::Integer(integer), StringRef::Integer(other)) => integer == other,
            (Self::Inline(text), StringRef::Inline(other)) => text == other,
            (Self::Shared(payload), StringRef::Shared(other)) => ptr::eq(payload.0, other.0),
            _ => false,
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
            Self::Shared(payload) => {
                if payload.bytes().len() >= ReplyBuffer::SPLICE_BYTES_MIN {
                    reply.bulk_shared(&payload.share());
                } else {
                    reply.bulk(payload.bytes());
                }
            }
        }
    }

    /// The text; `buffer` holds it where the string is kept as an integer.
    pub fn text<'b>(self, buffer: &'b mut itoa::Buffer) -> &'b [u8]
    where
        'a: 'b,
    {
        match self {
            Self::Integer(value) => buffer.format(value).as_bytes(),
            Self::Inline(bytes) => bytes,
            Self::Shared(payload) => payload.bytes(),
        }
    }

    /// The text, owned.
    pub fn to_vec(self) -> Vec<u8> {
        self.text(&mut itoa::Buffer::new()).to_vec()
    }

    /// The integer that the text spells, if it is one of 64 bits.
    pub fn integer(self) -> Option<i64> {
        match self {
            Self::Integer(value) => Some(value),
            other => parse_integer(other.text(&mut itoa::Buffer::new())),
        }
    }

    /// The same string to be stored elsewhere; long ones are shared, not copied.
    pub fn to_new(self) -> NewString<'a> {
        match self {
            Self::Integer(value) => NewString::Integer(value),
            Self::Inline(bytes) => NewString::Inline(bytes),
            Self::Shared(payload) => NewString::Shared(payload.share()),
        }
    }
}

/// A string to be stored.
#[derive(Debug, Clone)]
pub enum NewString<'a> {
    /// As an integer.
    Integer(i64),
    /// Inside the entry: at most [`INLINE_BYTES_MAX`] bytes.
    Inline(&'a [u8]),
    /// Inside the entry, and known to have been edited: never called `embstr`.
    Edited(&'a [u8]),
    /// In a block of its own.
    Shared(Arc<Vec<u8>>),
}

impl<'a> NewString<'a> {
    /// Chooses the storage for a text as `SET` does: an integer where it prints back the same.
    #[inline]
    pub fn from_text(text: &'a [u8]) -> Self {
        if text.len() <= INTEGER_TEXT_MAX
            && let Some(value) = parse_integer(text)
        {
            return Self::Integer(value);
        }
        if text.len() <= INLINE_BYTES_MAX {
            Self::Inline(text)
        } else {
            Self::Shared(Arc::new(text.to_vec()))
        }
    }

    /// [`Self::from_text`] of an argument; where it arrived in a block of its own, that is shared, not copied.
    #[inline]
    pub(crate) fn from_argument(text: &'a [u8], block: Option<Arc<Vec<u8>>>) -> Self {
        match block {
            Some(block) if text.len() > INLINE_BYTES_MAX => Self::Shared(block),
            _ => Self::from_text(text),
        }
    }

    /// The same string, its bytes moved to `buffer` where it borrows them.
    pub(crate) fn copied_to(self, buffer: &mut Vec<u8>) -> NewString<'_> {
        let mut copy = |bytes: &[u8]| {
            buffer.clear();
            buffer.extend_from_slice(bytes);
        };
        match self {
            NewString::Integer(value) => NewString::Integer(value),
            NewString::Shared(payload) => NewString::Shared(payload),
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
        if text.len() <= INLINE_BYTES_MAX {
            Self::from_text(text)
        } else {
            Self::Shared(Arc::new(std::mem::take(text)))
        }
    }

    /// Chooses the storage for a text that was edited in place (`APPEND`, `SETRANGE`, `SETBIT`):
    /// it stays text even if it looks like a number. A long one is taken out of `text`.
    pub fn from_edited(text: &'a mut Vec<u8>) -> Self {
        if text.len() <= INLINE_BYTES_MAX {
            Self::Edited(text)
        } else {
            Self::Shared(Arc::new(std::mem::take(text)))
        }
    }

    /// Chooses the storage for a text that a command computed: as [`Self::from_text`], but never an
    /// integer.
    pub fn from_computed(text: &'a [u8]) -> Self {
        if text.len() <= INLINE_BYTES_MAX {
            Self::Inline(text)
        } else {
            Self::Shared(Arc::new(text.to_vec()))
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
