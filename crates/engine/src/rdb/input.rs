//! Reading the parts that everything is made of: lengths, strings, numbers.
//!
//! ```text
//! length   00llllll                  6 bits
//!          01llllll llllllll         14 bits, high bits first
//!          80 u32 BE                 32 bits
//!          81 u64 BE                 64 bits
//! string   length, so many bytes
//!          C0 i8 │ C1 i16 LE │ C2 i32 LE                the text of an integer
//!          C3 length of what follows, length of the text, LZF
//! ```

use std::{fmt, io};

use dunlin_structures::Corrupt;

use super::lzf;
use crate::value::{BLOCK_BYTES_MAX, StringRope};

/// Longest string that is taken: lengths of members are kept in 32 bits.
const STRING_BYTES_MAX: u64 = u32::MAX as u64;
/// Capacity of buffers that are used again, in bytes, at most.
const RECYCLED_BYTES_MAX: usize = 4096;
/// Buffers that wait to be used again, at most.
const RECYCLED_MAX: usize = 16 * 1024;

pub(super) const ENCODED: u8 = 0xc0;
pub(super) const INTEGER_8: u8 = 0xc0;
pub(super) const INTEGER_16: u8 = 0xc1;
pub(super) const INTEGER_32: u8 = 0xc2;
pub(super) const LZF: u8 = 0xc3;
pub(super) const LENGTH_14: u8 = 0x40;
pub(super) const LENGTH_32: u8 = 0x80;
pub(super) const LENGTH_64: u8 = 0x81;

/// Why something was not read.
#[derive(Debug)]
pub enum RdbError {
    /// The source failed or ended too early.
    Io(io::Error),
    /// The bytes break a rule of the format: which one.
    Corrupt(&'static str),
    /// The bytes may be good, but the type of their value does not exist here.
    Unsupported(String),
    /// A collection without elements, read to its end. Old servers wrote some; it is not a key.
    Empty,
}

impl RdbError {
    /// The source ended inside something.
    pub fn cut() -> Self {
        Self::Io(io::ErrorKind::UnexpectedEof.into())
    }
}

impl From<Corrupt> for RdbError {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt(corrupt.0)
    }
}

impl From<io::Error> for RdbError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for RdbError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                out.write_str("the data ends too early")
            }
            Self::Io(error) => error.fmt(out),
            Self::Corrupt(rule) => out.write_str(rule),
            Self::Unsupported(what) => out.write_str(what),
            Self::Empty => out.write_str("a collection without elements"),
        }
    }
}

impl std::error::Error for RdbError {}

/// A length, or the mark of a string that is kept otherwise.
enum Head {
    Length(u64),
    Encoded(u8),
}

/// A string that is a value.
#[derive(Debug)]
pub(super) enum StringValue {
    Text(Vec<u8>),
    /// A text of more than [`BLOCK_BYTES_MAX`] bytes.
    Rope(StringRope),
}

/// Reads the format's parts from a source of bytes and counts them. Memory grows with what has arrived,
/// never with what was announced.
#[derive(Debug)]
pub struct Input<R> {
    source: R,
    offset: u64,
    /// The compressed form of the string that is being read.
    compressed: Vec<u8>,
    /// Empty buffers for strings that are soon done with.
    recycled: Vec<Vec<u8>>,
}

impl<R: io::BufRead> Input<R> {
    /// Reads from the beginning of `source`.
    pub fn new(source: R) -> Self {
        Self { source, offset: 0, compressed: Vec::new(), recycled: Vec::new() }
    }

    /// Bytes read so far.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The source.
    pub fn source(&mut self) -> &mut R {
        &mut self.source
    }

    /// Bytes that have arrived and not been read; none at the end of the source.
    fn arrived(&mut self) -> Result<&[u8], RdbError> {
        loop {
            match self.source.fill_buf() {
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        // Borrowed anew, because a borrow that is returned from a loop lasts for all of it.
        Ok(self.source.fill_buf()?)
    }

    fn consume(&mut self, bytes: usize) {
        self.source.consume(bytes);
        self.offset += bytes as u64;
    }

    /// Reads something by `read`; returns the bytes that it has read, too.
    pub(crate) fn recorded<T>(
        &mut self,
        read: impl FnOnce(&mut Input<Recording<'_>>) -> Result<T, RdbError>,
    ) -> Result<(T, Vec<u8>), RdbError> {
        let mut input = Input::new(Recording { source: &mut self.source, bytes: Vec::new() });
        let result = read(&mut input);
        let (offset, mut bytes) = (input.offset, input.source.bytes);
        self.offset += offset;
        bytes.shrink_to_fit();
        Ok((result?, bytes))
    }

    /// Whether the source has ended.
    pub fn is_at_end(&mut self) -> Result<bool, RdbError> {
        Ok(self.arrived()?.is_empty())
    }

    /// Reads a byte.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, RdbError> {
        let byte = *self.arrived()?.first().ok_or_else(RdbError::cut)?;
        self.consume(1);
        Ok(byte)
    }

    /// Reads as many bytes as the array has.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], RdbError> {
        let mut bytes = [0; N];
        let mut filled = 0;
        while filled < N {
            let arrived = self.arrived()?;
            let count = arrived.len().min(N - filled);
            if count == 0 {
                return Err(RdbError::cut());
            }
            bytes[filled..filled + count].copy_from_slice(&arrived[..count]);
            self.consume(count);
            filled += count;
        }
        Ok(bytes)
    }

    /// Reads `length` bytes.
    pub(crate) fn bytes(&mut self, length: u64) -> Result<Vec<u8>, RdbError> {
        let mut bytes = Vec::new();
        self.append(length, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads `length` bytes to the end of `out`.
    fn append(&mut self, length: u64, out: &mut Vec<u8>) -> Result<(), RdbError> {
        self.append_to(length, |bytes| out.extend_from_slice(bytes))
    }

    /// Reads `length` bytes, as they arrive.
    fn append_to(&mut self, length: u64, mut append: impl FnMut(&[u8])) -> Result<(), RdbError> {
        if length > STRING_BYTES_MAX {
            return Err(RdbError::Corrupt("a string is longer than 4 GiB"));
        }
        let mut rest = length as usize;
        while rest > 0 {
            let arrived = self.arrived()?;
            let count = arrived.len().min(rest);
            if count == 0 {
                return Err(RdbError::cut());
            }
            append(&arrived[..count]);
            self.consume(count);
            rest -= count;
        }
        Ok(())
    }

    fn head(&mut self) -> Result<Head, RdbError> {
        let first = self.byte()?;
        Ok(match first {
            0..LENGTH_14 => Head::Length(first.into()),
            LENGTH_14..LENGTH_32 => Head::Length(u64::from(first & 0x3f) << 8 | u64::from(self.byte()?)),
            LENGTH_32 => Head::Length(u32::from_be_bytes(self.array()?).into()),
            LENGTH_64 => Head::Length(u64::from_be_bytes(self.array()?)),
            ENCODED.. => Head::Encoded(first),
            _ => return Err(RdbError::Corrupt("a length has no known form")),
        })
    }

    /// Reads a length.
    pub fn length(&mut self) -> Result<u64, RdbError> {
        match self.head()? {
            Head::Length(length) => Ok(length),
            Head::Encoded(_) => Err(RdbError::Corrupt("the mark of a string stands for a length")),
        }
    }

    /// Reads a string in place of the contents of `out`.
    pub fn string_into(&mut self, out: &mut Vec<u8>) -> Result<(), RdbError> {
        let head = self.head()?;
        self.string_behind(head, out)
    }

    fn string_behind(&mut self, head: Head, out: &mut Vec<u8>) -> Result<(), RdbError> {
        out.clear();
        let integer: i32 = match head {
            Head::Length(length) => return self.append(length, out),
            Head::Encoded(LZF) => return self.compressed(out),
            Head::Encoded(INTEGER_8) => i8::from_le_bytes(self.array()?).into(),
            Head::Encoded(INTEGER_16) => i16::from_le_bytes(self.array()?).into(),
            Head::Encoded(INTEGER_32) => i32::from_le_bytes(self.array()?),
            Head::Encoded(_) => return Err(RdbError::Corrupt("a string has no known form")),
        };
        out.extend_from_slice(itoa::Buffer::new().format(integer).as_bytes());
        Ok(())
    }

    fn compressed(&mut self, out: &mut Vec<u8>) -> Result<(), RdbError> {
        let (packed, length) = (self.length()?, self.length()?);
        let length = usize::try_from(length).ok().filter(|length| *length as u64 <= STRING_BYTES_MAX);
        let length = length.ok_or(RdbError::Corrupt("a string is longer than 4 GiB"))?;
        let mut compressed = std::mem::take(&mut self.compressed);
        compressed.clear();
        self.append(packed, &mut compressed)?;
        *out = lzf::decompress(&compressed, length)?;
        self.compressed = compressed;
        Ok(())
    }

    /// Reads a string.
    pub fn string(&mut self) -> Result<Vec<u8>, RdbError> {
        let mut text = Vec::new();
        self.string_into(&mut text)?;
        // The text grew as its bytes came, and may be kept for long.
        text.shrink_to_fit();
        Ok(text)
    }

    /// Reads a string into a buffer that was given back, if there is one ([`Self::recycle`]).
    pub fn recycled_string(&mut self) -> Result<Vec<u8>, RdbError> {
        let head = self.head()?;
        self.recycled_behind(head)
    }

    fn recycled_behind(&mut self, head: Head) -> Result<Vec<u8>, RdbError> {
        let mut text = self.recycled.pop().unwrap_or_default();
        self.string_behind(head, &mut text)?;
        if text.len() > RECYCLED_BYTES_MAX {
            text.shrink_to_fit();
        }
        Ok(text)
    }

    /// Reads a string that is a value: in chunks as they come if it is long, otherwise as [`Self::recycled_string`]
    /// does.
    pub(super) fn string_value(&mut self) -> Result<StringValue, RdbError> {
        let head = self.head()?;
        if let Head::Length(length) = head
            && length > BLOCK_BYTES_MAX as u64
        {
            return self.rope(length).map(StringValue::Rope);
        }
        self.recycled_behind(head).map(StringValue::Text)
    }

    /// Reads `length` bytes.
    fn rope(&mut self, length: u64) -> Result<StringRope, RdbError> {
        let mut rope = StringRope::default();
        self.append_to(length, |bytes| rope.append(bytes))?;
        Ok(rope)
    }

    /// Takes back buffers that are done with, with any contents; those of more than 4 KiB are freed.
    pub fn recycle(&mut self, buffers: impl IntoIterator<Item = Vec<u8>>) {
        let fits = |buffer: &Vec<u8>| (1..=RECYCLED_BYTES_MAX).contains(&buffer.capacity());
        let room = RECYCLED_MAX - self.recycled.len();
        self.recycled.extend(buffers.into_iter().filter(fits).take(room));
    }

    /// Reads a time in milliseconds.
    pub fn milliseconds(&mut self) -> Result<i64, RdbError> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// Reads a floating-point number of eight bytes.
    pub fn double(&mut self) -> Result<f64, RdbError> {
        Ok(f64::from_le_bytes(self.array()?))
    }
}

/// A source that keeps what is read from it.
pub(crate) struct Recording<'r> {
    source: &'r mut dyn io::BufRead,
    bytes: Vec<u8>,
}

impl io::Read for Recording<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(out)?;
        self.bytes.extend_from_slice(&out[..count]);
        Ok(count)
    }
}

impl io::BufRead for Recording<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.source.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        // The caller has seen them, so they are there.
        if let Ok(arrived) = self.source.fill_buf() {
            self.bytes.extend_from_slice(&arrived[..count]);
        }
        self.source.consume(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdb::{Compressor, Output};
    use proptest::prelude::*;

    #[test]
    fn buffers_are_used_again_and_large_ones_are_not_kept() {
        let mut bytes = Vec::new();
        let mut output = Output::new(&mut bytes, None);
        for text in [&b"first"[..], &[b'x'; RECYCLED_BYTES_MAX + 1], b"2nd"] {
            output.string(text).unwrap();
        }
        let mut input = Input::new(&bytes[..]);
        let short = |input: &mut Input<_>| match input.string_value().unwrap() {
            StringValue::Text(text) => text,
            StringValue::Rope(rope) => panic!("{rope:?}"),
        };
        let first = short(&mut input);
        let place = first.as_ptr();
        let large = short(&mut input);
        assert_eq!((large.len(), large.capacity()), (RECYCLED_BYTES_MAX + 1, RECYCLED_BYTES_MAX + 1));
        input.recycle([large, first, Vec::new()]);
        assert_eq!(input.recycled.len(), 1);
        let second = short(&mut input);
        assert_eq!((&second[..], second.as_ptr()), (&b"2nd"[..], place));
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            any::<i64>().prop_map(|value| value.to_string().into_bytes()),
            any::<i32>().prop_map(|value| value.to_string().into_bytes()),
            (-40000i32..40000).prop_map(|value| value.to_string().into_bytes()),
            prop::collection::vec(any::<u8>(), 0..100),
            (any::<u8>(), 0..20000usize).prop_map(|(byte, count)| vec![byte; count]),
        ]
    }

    proptest! {
        #[test]
        fn input_reads_back_what_was_written(
            texts in prop::collection::vec(text(), 0..6),
            lengths in prop::collection::vec((any::<u64>(), 0..64u32), 0..6),
            compress: bool,
            piece in 1..40usize,
        ) {
            let mut bytes = Vec::new();
            let mut compressor = Compressor::default();
            let mut output = Output::new(&mut bytes, compress.then_some(&mut compressor));
            for text in &texts {
                output.string(text).unwrap();
            }
            for (length, shift) in &lengths {
                output.length(length >> shift).unwrap();
            }
            let mut input = Input::new(io::BufReader::with_capacity(piece, bytes.as_slice()));
            for text in &texts {
                prop_assert_eq!(&input.string().unwrap(), text);
            }
            for (length, shift) in &lengths {
                prop_assert_eq!(input.length().unwrap(), length >> shift);
            }
            prop_assert_eq!(input.offset(), bytes.len() as u64);
            prop_assert!(input.is_at_end().unwrap());
        }
    }

    #[test]
    fn input_refuses_announced_bytes_that_do_not_come() {
        for bytes in [
            &b""[..],
            b"\x05abcd",
            b"\x80\xff\xff\xff\xff",
            b"\x81\0\0\0\0\xff\xff\xff\xffabc",
            b"\x81\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\xc2\0\0\0",
            b"\xc3\x05\x05\x00a",
            b"\xc3\x02\x80\xff\xff\xff\xff\x00a",
            b"\xc4abcd",
            b"\x82abcd",
        ] {
            Input::new(bytes).string().unwrap_err();
        }
        Input::new(&b"\xc0\x01"[..]).length().unwrap_err();
    }
}
