//! CBOR (RFC 8949) with typed arrays (RFC 8746), as Redis 8.8 and newer keep documents.
//!
//! Read are null, booleans, integers of 64 bits, floats, texts, arrays and maps, definite and indefinite, and typed arrays
//! of all widths in both orders of bytes; [`BF16`] is a tag of Redis' own. Maps have texts as keys. Floats that are not
//! finite are null, as in Redis; in typed arrays they are refused.

use super::{LoadError, utf8};
use crate::{
    Builder, DEPTH_MAX, Document, Number, ValueRef,
    packed::{self, Scalar},
    typed::half,
    value::Items,
};

/// The tag of an array of BF16, for which RFC 8746 has none.
const BF16: u64 = 0x1_0000;
const FP16: u64 = 84;
/// More than this in a compressed document's first bytes is not CBOR: zstd's magic number.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

struct Reader<'a> {
    bytes: &'a [u8],
}

/// The first byte of an item, and its argument.
struct Head {
    major: u8,
    /// The low five bits of the first byte.
    low: u8,
    argument: u64,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: u64) -> Result<&'a [u8], LoadError> {
        let count = usize::try_from(count).ok().filter(|&count| count <= self.bytes.len());
        let count = count.ok_or(LoadError::Malformed("it is cut"))?;
        let (taken, rest) = self.bytes.split_at(count);
        self.bytes = rest;
        Ok(taken)
    }

    fn head(&mut self) -> Result<Head, LoadError> {
        let first = self.take(1)?[0];
        let (major, low) = (first >> 5, first & 31);
        let argument = match low {
            0..=23 => u64::from(low),
            24..=27 => {
                self.take(1 << (low - 24))?.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
            }
            31 if (2..=5).contains(&major) || major == 7 => 0,
            _ => return Err(LoadError::Malformed("a head that CBOR does not have")),
        };
        Ok(Head { major, low, argument })
    }

    /// A text or byte string, whose parts are joined if its length is not told.
    fn string(&mut self, head: &Head, joined: &mut Vec<u8>) -> Result<&'a [u8], LoadError> {
        if head.low != 31 {
            return self.take(head.argument);
        }
        joined.clear();
        loop {
            let part = self.head()?;
            if part.major == 7 && part.low == 31 {
                return Ok(&[]);
            }
            if part.major != head.major || part.low == 31 {
                return Err(LoadError::Malformed("a string in parts of another kind"));
            }
            joined.extend_from_slice(self.take(part.argument)?);
        }
    }
}

/// An open container: items that it still wants, `None` until a break; whether it is a map.
struct Open {
    left: Option<u64>,
    map: bool,
}

/// The document of CBOR bytes.
pub(super) fn read(bytes: &[u8]) -> Result<Document, LoadError> {
    if bytes.starts_with(&ZSTD) {
        return Err(LoadError::Malformed("it is compressed"));
    }
    let mut reader = Reader { bytes };
    let mut builder = Builder::new();
    let mut open: Vec<Open> = Vec::new();
    let mut joined = Vec::new();
    loop {
        while let Some(Open { left: Some(0), .. }) = open.last() {
            open.pop();
            builder.end();
        }
        if open.is_empty() && builder.has_value() {
            break;
        }
        let mut head = reader.head()?;
        if let Some(container) = open.last_mut() {
            if head.major == 7 && head.low == 31 {
                if container.left.is_some() {
                    return Err(LoadError::Malformed("a break out of place"));
                }
                container.left = Some(0);
                continue;
            }
            container.left = container.left.map(|left| left - 1);
            if container.map {
                if head.major != 3 {
                    return Err(LoadError::Malformed("a key that is no text"));
                }
                let text = reader.string(&head, &mut joined)?;
                builder.name(utf8(if head.low == 31 { &joined } else { text })?);
                head = reader.head()?;
            }
        }
        match head.major {
            0 => builder.uint(head.argument),
            1 => match i64::try_from(head.argument) {
                Ok(number) => builder.int(-1 - number),
                Err(_) => return Err(LoadError::Malformed("an integer out of range")),
            },
            3 => {
                let text = reader.string(&head, &mut joined)?;
                builder.string(utf8(if head.low == 31 { &joined } else { text })?);
            }
            4 | 5 => {
                if open.len() + 1 >= DEPTH_MAX {
                    return Err(LoadError::Malformed("containers in one another"));
                }
                let map = head.major == 5;
                open.push(Open { left: (head.low != 31).then_some(head.argument), map });
                if map {
                    builder.begin_object();
                } else {
                    builder.begin_array();
                }
            }
            6 => {
                let bytes = reader.head()?;
                if bytes.major != 2 {
                    return Err(LoadError::Malformed("a typed array without bytes"));
                }
                let content = reader.string(&bytes, &mut joined)?;
                let content = if bytes.low == 31 { &joined } else { content };
                typed_array(&mut builder, head.argument, content, open.len())?;
            }
            7 => match head.low {
                20 | 21 => builder.bool(head.low == 21),
                22 | 23 => builder.null(),
                25 => double(&mut builder, half(head.argument as u16)),
                26 => double(&mut builder, f64::from(f32::from_bits(head.argument as u32))),
                27 => double(&mut builder, f64::from_bits(head.argument)),
                _ => return Err(LoadError::Malformed("a simple value that JSON does not have")),
            },
            _ => return Err(LoadError::Malformed("bytes outside of a typed array")),
        }
    }
    if !reader.bytes.is_empty() {
        return Err(LoadError::Malformed("bytes behind it"));
    }
    Ok(builder.finish())
}

fn double(builder: &mut Builder, number: f64) {
    if number.is_finite() { builder.double(number) } else { builder.null() }
}

fn typed_array(builder: &mut Builder, tag: u64, bytes: &[u8], depth: usize) -> Result<(), LoadError> {
    if depth + 1 >= DEPTH_MAX {
        return Err(LoadError::Malformed("containers in one another"));
    }
    // RFC 8746: 010, then bits for floats, signed integers, little-endian, and two for the width.
    let (float, signed, little, width) = match tag {
        64..=87 => {
            let (float, signed) = (tag & 16 != 0, tag & 8 != 0);
            if float && signed {
                return Err(LoadError::Malformed("an unknown tag"));
            }
            (float, signed, tag & 4 != 0, (1usize << (tag & 3)) << usize::from(float))
        }
        BF16 => (true, false, true, 2),
        _ => return Err(LoadError::Malformed("an unknown tag")),
    };
    if width > 8 {
        return Err(LoadError::Malformed("floats of 128 bits"));
    }
    if !bytes.len().is_multiple_of(width) {
        return Err(LoadError::Malformed("a typed array that is cut"));
    }
    let mut element = [0; 8];
    let elements = bytes.chunks_exact(width).map(|bytes| {
        element = [0; 8];
        element[..width].copy_from_slice(bytes);
        if !little {
            element[..width].reverse();
        }
        (element, u64::from_le_bytes(element))
    });
    if !float {
        builder.begin_array();
        for (_, number) in elements {
            if signed {
                let unused = 64 - 8 * width as u32;
                builder.int((number << unused) as i64 >> unused);
            } else {
                builder.uint(number);
            }
        }
        builder.end();
        return Ok(());
    }
    let code = match (tag, width) {
        (BF16, _) => 1,
        (_, 2) => 0,
        (_, 4) => 2,
        _ => 3,
    };
    let mut little_endian = Vec::with_capacity(bytes.len());
    for (element, _) in elements {
        if !crate::typed::element(code, &element[..width]).is_finite() {
            return Err(LoadError::Malformed("a number that is not finite"));
        }
        little_endian.extend_from_slice(&element[..width]);
    }
    builder.typed_array(code, &little_endian);
    Ok(())
}

fn push_head(out: &mut Vec<u8>, major: u8, argument: u64) {
    let bytes = argument.to_be_bytes();
    let (low, width) = match argument {
        0..=23 => (argument as u8, 0),
        24..=0xff => (24, 1),
        0x100..=0xffff => (25, 2),
        0x1_0000..=0xffff_ffff => (26, 4),
        _ => (27, 8),
    };
    out.push(major << 5 | low);
    out.extend_from_slice(&bytes[8 - width..]);
}

/// Appends a value as CBOR: for receivers that read form 4. Typed arrays stay typed.
pub fn write_cbor(value: ValueRef<'_>, out: &mut Vec<u8>) {
    let mut open: Vec<Items<'_>> = Vec::new();
    begin(value, out, &mut open);
    while let Some(items) = open.last_mut() {
        let named = items.have_names();
        match items.next() {
            Some((name, value)) => {
                if named {
                    push_head(out, 3, name.len() as u64);
                    out.extend_from_slice(name);
                }
                begin(value, out, &mut open);
            }
            None => {
                open.pop();
            }
        }
    }
}

fn begin<'a>(value: ValueRef<'a>, out: &mut Vec<u8>, open: &mut Vec<Items<'a>>) {
    match value.scalar() {
        Some(Scalar::Null) => out.push(0xf6),
        Some(Scalar::Bool(value)) => out.push(0xf4 + u8::from(value)),
        Some(Scalar::String(text)) => {
            push_head(out, 3, text.len() as u64);
            out.extend_from_slice(text);
        }
        Some(_) => match value.as_number() {
            Some(Number::Int(number)) if number < 0 => push_head(out, 1, (-1 - number) as u64),
            Some(Number::Int(number)) => push_head(out, 0, number as u64),
            Some(Number::Uint(number)) => push_head(out, 0, number),
            Some(Number::Double(number)) => {
                out.push(0xfb);
                out.extend_from_slice(&number.to_bits().to_be_bytes());
            }
            None => unreachable!("the scalar is a number"),
        },
        None => match (value.typed(), value.bytes()) {
            (Some(tag), Some(bytes)) => {
                let tag = match tag - packed::TYPED {
                    0 => FP16,
                    1 => BF16,
                    2 => FP16 + 1,
                    _ => FP16 + 2,
                };
                push_head(out, 6, tag);
                push_head(out, 2, bytes.len() as u64 - 5);
                out.extend_from_slice(&bytes[5..]);
            }
            _ => {
                push_head(out, if value.is_object() { 5 } else { 4 }, value.len() as u64);
                open.push(value.items());
            }
        },
    }
}
