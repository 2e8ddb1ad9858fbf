//! Writing the parts that everything is made of; [`super::input`] draws them.

use std::io;

use dunlin_resp::number::parse_integer;
use dunlin_structures::Element;

use crate::value::{LongText, StringRope};

use super::{
    Compressor,
    input::{INTEGER_8, INTEGER_16, INTEGER_32, LENGTH_14, LENGTH_32, LENGTH_64, LZF},
};

/// Longest text that is looked at for being an integer of 32 bits.
const INTEGER_TEXT_MAX: usize = 11;
/// Longest string that is never compressed.
const PLAIN_BYTES_MAX: usize = 20;

/// A string that has yet to be compressed, or to be put in its place.
#[derive(Debug)]
pub(crate) struct LongString {
    /// Its place in the output.
    pub(crate) at: usize,
    pub(crate) text: Text,
}

/// The text of a [`LongString`].
#[derive(Debug)]
pub(crate) enum Text {
    /// This many bytes behind their length, as it is.
    Here(usize),
    /// Nothing of it is in its place.
    Elsewhere(LongText),
}

/// Bytes that the length of a text takes.
pub(crate) fn length_bytes(length: usize) -> usize {
    match length {
        0..64 => 1,
        64..16_384 => 2,
        16_384..=0xffff_ffff => 5,
        _ => 9,
    }
}

/// Writes the format's parts.
#[derive(Debug)]
pub struct Output<'a, W> {
    sink: W,
    /// Bytes written.
    written: usize,
    compression: Compression<'a>,
    compressed: Vec<u8>,
}

/// The compression of long strings.
#[derive(Debug)]
enum Compression<'a> {
    /// Strings stay as they are.
    Never,
    /// Strings are compressed if it pays.
    Now(&'a mut Compressor),
    /// Strings stay as they are, and their places are noted.
    Later(&'a mut Vec<LongString>),
}

impl<'a, W: io::Write> Output<'a, W> {
    /// Writes to `sink`; strings are compressed if there is a compressor and it pays.
    pub fn new(sink: W, compressor: Option<&'a mut Compressor>) -> Self {
        let compression = compressor.map_or(Compression::Never, Compression::Now);
        Self { sink, written: 0, compression, compressed: Vec::new() }
    }

    /// Writes to `sink`, to which `written` bytes have been written before; strings that are worth trying
    /// to compress are noted in `long`, if that is given.
    pub(crate) fn deferring(sink: W, written: usize, long: Option<&'a mut Vec<LongString>>) -> Self {
        let compression = long.map_or(Compression::Never, Compression::Later);
        Self { sink, written, compression, compressed: Vec::new() }
    }

    /// Bytes written.
    pub fn written(&self) -> usize {
        self.written
    }

    /// The receiver of the bytes.
    pub fn sink(&mut self) -> &mut W {
        &mut self.sink
    }

    /// Writes bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len();
        self.sink.write_all(bytes)
    }

    /// Writes a byte.
    pub fn byte(&mut self, byte: u8) -> io::Result<()> {
        self.raw(&[byte])
    }

    /// Writes a length, in as few bytes as it takes.
    pub fn length(&mut self, length: u64) -> io::Result<()> {
        match length {
            0..64 => self.byte(length as u8),
            64..16_384 => self.raw(&[LENGTH_14 | (length >> 8) as u8, length as u8]),
            16_384..=0xffff_ffff => {
                self.byte(LENGTH_32)?;
                self.raw(&(length as u32).to_be_bytes())
            }
            _ => {
                self.byte(LENGTH_64)?;
                self.raw(&length.to_be_bytes())
            }
        }
    }

    /// Writes a string in its smallest form.
    pub fn string(&mut self, text: &[u8]) -> io::Result<()> {
        if text.len() <= INTEGER_TEXT_MAX
            && let Some(value) = parse_integer(text)
            && self.small_integer(value)?
        {
            return Ok(());
        }
        if text.len() > PLAIN_BYTES_MAX {
            match &mut self.compression {
                Compression::Never => {}
                Compression::Now(compressor) => {
                    if compressor.compress(text, &mut self.compressed) {
                        return self.compressed(text.len());
                    }
                }
                Compression::Later(long) => {
                    long.push(LongString { at: self.written, text: Text::Here(text.len()) });
                }
            }
        }
        self.plain(text)
    }

    /// Writes a string as it is.
    pub(crate) fn plain(&mut self, text: &[u8]) -> io::Result<()> {
        self.length(text.len() as u64)?;
        self.raw(text)
    }

    /// Writes a string that stands in chunks: compressed, if strings are and its compressed form does not take too much
    /// memory.
    pub(crate) fn rope(&mut self, rope: &StringRope) -> io::Result<()> {
        if self.compressed_rope(rope)? {
            return Ok(());
        }
        self.length(rope.len() as u64)?;
        self.rope_bytes(rope)
    }

    /// Writes the compressed form of a rope if that is worth it. Returns whether it is.
    pub(crate) fn compressed_rope(&mut self, rope: &StringRope) -> io::Result<bool> {
        let Compression::Now(compressor) = &mut self.compression else { return Ok(false) };
        let slices = rope.slices(0..rope.len());
        let is_smaller = compressor.compress_pieces(slices, rope.len(), &mut self.compressed);
        if is_smaller {
            self.compressed(rope.len())?;
        }
        // The buffer may be large, and short strings need little.
        self.compressed = Vec::new();
        Ok(is_smaller)
    }

    /// Writes the bytes of a rope as they are.
    pub(crate) fn rope_bytes(&mut self, rope: &StringRope) -> io::Result<()> {
        rope.slices(0..rope.len()).try_for_each(|slice| self.raw(slice))
    }

    /// Writes a long string.
    pub(crate) fn long_text(&mut self, text: &LongText, small: bool) -> io::Result<()> {
        match text {
            LongText::Block(block) if small => self.string(block),
            LongText::Block(block) => self.plain(block),
            LongText::Rope(rope) if small => self.rope(rope),
            LongText::Rope(rope) => {
                self.length(rope.len() as u64)?;
                self.rope_bytes(rope)
            }
        }
    }

    /// Writes the bytes of a long text as they are, without their length.
    pub(crate) fn long_text_bytes(&mut self, text: &LongText) -> io::Result<()> {
        match text {
            LongText::Block(block) => self.raw(block),
            LongText::Rope(rope) => self.rope_bytes(rope),
        }
    }

    /// Writes the compressed form of a text of `text_bytes` bytes.
    fn compressed(&mut self, text_bytes: usize) -> io::Result<()> {
        let compressed = std::mem::take(&mut self.compressed);
        self.byte(LZF)?;
        self.length(compressed.len() as u64)?;
        self.length(text_bytes as u64)?;
        self.raw(&compressed)?;
        self.compressed = compressed;
        Ok(())
    }

    /// Writes an integer as a string.
    pub fn integer(&mut self, value: i64) -> io::Result<()> {
        if self.small_integer(value)? {
            return Ok(());
        }
        let mut buffer = itoa::Buffer::new();
        let text = buffer.format(value).as_bytes();
        self.length(text.len() as u64)?;
        self.raw(text)
    }

    /// Writes an element as a string.
    pub fn element(&mut self, element: Element<'_>) -> io::Result<()> {
        match element {
            Element::Integer(value) => self.integer(value),
            Element::String(text) => self.string(text),
        }
    }

    /// Writes an integer of up to 32 bits as a string. Returns whether it is one.
    fn small_integer(&mut self, value: i64) -> io::Result<bool> {
        if let Ok(value) = i8::try_from(value) {
            self.raw(&[INTEGER_8, value as u8])?;
        } else if let Ok(value) = i16::try_from(value) {
            let [low, high] = value.to_le_bytes();
            self.raw(&[INTEGER_16, low, high])?;
        } else if let Ok(value) = i32::try_from(value) {
            let [a, b, c, d] = value.to_le_bytes();
            self.raw(&[INTEGER_32, a, b, c, d])?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Writes a time in milliseconds.
    pub fn milliseconds(&mut self, time: i64) -> io::Result<()> {
        self.raw(&time.to_le_bytes())
    }

    /// Writes a floating-point number in eight bytes.
    pub fn double(&mut self, value: f64) -> io::Result<()> {
        self.raw(&value.to_le_bytes())
    }
}
