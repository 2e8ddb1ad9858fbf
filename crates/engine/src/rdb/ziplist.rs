//! Ziplist, the packed form of small collections before the listpack: translated to listpacks where it is read,
//! and from them where a file is written that Redis before 7.0 is to load.
//!
//! ```text
//! ziplist   total bytes: u32 LE │ offset of the last entry: u32 LE │ count: u16 LE, 65535 = unknown │ entry … │ FF
//! entry     size of the entry before: a byte below 254, or FE and u32 LE │ encoding │ contents
//!
//! 00llllll contents                       string of up to 63 bytes
//! 01llllll llllllll contents              string of up to 16383 bytes, high bits first
//! 10______ length: u32 BE, contents       longer string
//! C0 i16 LE │ D0 i32 LE │ E0 i64 LE       integers
//! F0 i24 LE │ FE i8
//! F1 to FD                                integers 0 to 12
//! ```
//!
//! Source: Redis 6.2 `ziplist.c`.

use std::io;

use dunlin_structures::{Corrupt, Element, Listpack, ListpackRef};

use super::Output;

const HEADER_BYTES: usize = 10;
const COUNT_UNKNOWN: u16 = u16::MAX;
const END: u8 = 0xff;
const LONG_BEFORE: u8 = 0xfe;
/// Longest texts whose length takes one byte, and two.
const SHORT_TEXT_MAX: usize = 0x3f;
const MIDDLE_TEXT_MAX: usize = 0x3fff;
/// Bytes of a ziplist of one element besides its text.
const LONGEST_FRAME_BYTES: usize = HEADER_BYTES + 10 + 1;
/// Longest element that a ziplist can hold alone: it states its size in 32 bits.
pub(crate) const TEXT_BYTES_MAX: usize = u32::MAX as usize - LONGEST_FRAME_BYTES;

/// A ziplist of some elements, which come from a listpack or are one of at most [`TEXT_BYTES_MAX`] bytes: each takes
/// a few bytes more than there, so that all are within what a ziplist can state. O(n).
pub(crate) fn from_elements<'e>(elements: impl IntoIterator<Item = Element<'e>>) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    let (mut last_at, mut before_bytes, mut count) = (HEADER_BYTES, 0, 0_usize);
    for element in elements {
        last_at = bytes.len();
        match u8::try_from(before_bytes) {
            Ok(size @ 0..LONG_BEFORE) => bytes.push(size),
            _ => {
                bytes.push(LONG_BEFORE);
                bytes.extend_from_slice(&(before_bytes as u32).to_le_bytes());
            }
        }
        match element.as_integer() {
            Some(integer) => push_integer(integer, &mut bytes),
            None => push_text(&element.text(), &mut bytes),
        }
        before_bytes = bytes.len() - last_at;
        count += 1;
    }
    bytes.push(END);
    let total = u32::try_from(bytes.len()).expect("the elements fit");
    bytes[0..4].copy_from_slice(&total.to_le_bytes());
    bytes[4..8].copy_from_slice(&(last_at as u32).to_le_bytes());
    bytes[8..10].copy_from_slice(&u16::try_from(count).unwrap_or(COUNT_UNKNOWN).to_le_bytes());
    bytes
}

/// Writes a listpack as a ziplist in a string.
pub(crate) fn write<W: io::Write>(listpack: &[u8], output: &mut Output<'_, W>) -> io::Result<()> {
    output.string(&from_elements(ListpackRef::new(listpack).iter()))
}

fn push_text(text: &[u8], out: &mut Vec<u8>) {
    match text.len() {
        length @ 0..=SHORT_TEXT_MAX => out.push(length as u8),
        length @ ..=MIDDLE_TEXT_MAX => out.extend_from_slice(&[0x40 | (length >> 8) as u8, length as u8]),
        length => {
            out.push(0x80);
            out.extend_from_slice(&(length as u32).to_be_bytes());
        }
    }
    out.extend_from_slice(text);
}

fn push_integer(integer: i64, out: &mut Vec<u8>) {
    let bytes = integer.to_le_bytes();
    let (head, width) = match integer {
        0..=12 => return out.push(0xf1 + integer as u8),
        -0x80..0x80 => (0xfe, 1),
        -0x8000..0x8000 => (0xc0, 2),
        -0x80_0000..0x80_0000 => (0xf0, 3),
        -0x8000_0000..0x8000_0000 => (0xd0, 4),
        _ => (0xe0, 8),
    };
    out.push(head);
    out.extend_from_slice(&bytes[..width]);
}

/// The elements of a ziplist as a listpack. Every rule of the format is checked. O(n).
pub(crate) fn to_listpack(bytes: &[u8]) -> Result<Listpack, Corrupt> {
    let mut listpack = Listpack::with_capacity(bytes.len());
    for_each(bytes, |element| {
        if !listpack.fits(element.encoded_bytes()) {
            return Err(Corrupt("ziplist is larger than a listpack may be"));
        }
        listpack.push(element);
        Ok(())
    })?;
    Ok(listpack)
}

/// Visits the elements of a ziplist.
pub(crate) fn for_each<'a>(
    bytes: &'a [u8],
    mut visit: impl FnMut(Element<'a>) -> Result<(), Corrupt>,
) -> Result<(), Corrupt> {
    let (header, rest) =
        bytes.split_first_chunk::<HEADER_BYTES>().ok_or(Corrupt("ziplist is shorter than its header"))?;
    let [a, b, c, d, e, f, g, h, i, j] = *header;
    if u32::from_le_bytes([a, b, c, d]) as usize != bytes.len() {
        return Err(Corrupt("ziplist states another size than it has"));
    }
    let Some((&END, entries)) = rest.split_last() else {
        return Err(Corrupt("ziplist does not end with its end byte"));
    };
    let (mut rest, mut before_bytes, mut count) = (entries, 0, 0);
    let mut last_at = HEADER_BYTES;
    while !rest.is_empty() {
        last_at = bytes.len() - 1 - rest.len();
        let (stated, behind) = size_before(rest)?;
        if stated != before_bytes {
            return Err(Corrupt("ziplist entry states another size of the one before it"));
        }
        let (value, behind) = element(behind)?;
        before_bytes = rest.len() - behind.len();
        rest = behind;
        count += 1;
        visit(value)?;
    }
    if u32::from_le_bytes([e, f, g, h]) as usize != last_at {
        return Err(Corrupt("ziplist states another last entry than it has"));
    }
    let stated = u16::from_le_bytes([i, j]);
    if stated != COUNT_UNKNOWN && usize::from(stated) != count {
        return Err(Corrupt("ziplist states another number of elements than it has"));
    }
    Ok(())
}

const BEYOND: Corrupt = Corrupt("ziplist entry reaches beyond the end");

fn size_before(entry: &[u8]) -> Result<(usize, &[u8]), Corrupt> {
    match entry {
        [LONG_BEFORE, a, b, c, d, rest @ ..] => Ok((u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest)),
        [size @ 0..LONG_BEFORE, rest @ ..] => Ok((usize::from(*size), rest)),
        _ => Err(BEYOND),
    }
}

fn element(bytes: &[u8]) -> Result<(Element<'_>, &[u8]), Corrupt> {
    let string = |length: usize, rest: &'_ [u8]| -> Result<(usize, usize), Corrupt> {
        if length > rest.len() { Err(BEYOND) } else { Ok((length, bytes.len() - rest.len())) }
    };
    let (&head, rest) = bytes.split_first().ok_or(BEYOND)?;
    let (length, at) = match head {
        0..0x40 => string(usize::from(head), rest)?,
        0x40..0x80 => {
            let (&low, rest) = rest.split_first().ok_or(BEYOND)?;
            string(usize::from(head & 0x3f) << 8 | usize::from(low), rest)?
        }
        0x80..0xc0 => {
            let (length, rest) = rest.split_first_chunk::<4>().ok_or(BEYOND)?;
            string(u32::from_be_bytes(*length) as usize, rest)?
        }
        _ => return integer(head, rest),
    };
    Ok((Element::String(&bytes[at..at + length]), &bytes[at + length..]))
}

fn integer(head: u8, rest: &[u8]) -> Result<(Element<'_>, &[u8]), Corrupt> {
    let (width, read): (usize, fn([u8; 8]) -> i64) = match head {
        0xc0 => (2, |[a, b, ..]| i16::from_le_bytes([a, b]).into()),
        0xd0 => (4, |[a, b, c, d, ..]| i32::from_le_bytes([a, b, c, d]).into()),
        0xe0 => (8, i64::from_le_bytes),
        0xf0 => (3, |[a, b, c, ..]| (i32::from_le_bytes([0, a, b, c]) >> 8).into()),
        0xfe => (1, |[a, ..]| i64::from(a as i8)),
        0xf1..=0xfd => return Ok((Element::Integer(i64::from(head - 0xf1)), rest)),
        _ => return Err(Corrupt("ziplist entry has no valid encoding")),
    };
    let (own, rest) = rest.split_at_checked(width).ok_or(BEYOND)?;
    let mut bytes = [0; 8];
    bytes[..width].copy_from_slice(own);
    Ok((Element::Integer(read(bytes)), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A ziplist of entries that are encoded already.
    fn ziplist(entries: &[&[u8]]) -> Vec<u8> {
        let (mut body, mut before, mut last) = (Vec::new(), 0usize, HEADER_BYTES);
        for entry in entries {
            let start = body.len();
            last = HEADER_BYTES + start;
            if before < 254 {
                body.push(before as u8);
            } else {
                body.push(LONG_BEFORE);
                body.extend_from_slice(&(before as u32).to_le_bytes());
            }
            body.extend_from_slice(entry);
            before = body.len() - start;
        }
        let total = (HEADER_BYTES + body.len() + 1) as u32;
        let mut bytes = total.to_le_bytes().to_vec();
        bytes.extend_from_slice(&(last as u32).to_le_bytes());
        bytes.extend_from_slice(&(entries.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes.push(END);
        bytes
    }

    fn long(length: usize) -> Vec<u8> {
        let mut entry = vec![0x80];
        entry.extend_from_slice(&(length as u32).to_be_bytes());
        entry.resize(5 + length, b'x');
        entry
    }

    fn sample() -> (Vec<u8>, Vec<Vec<u8>>) {
        let longest = long(20_000);
        let middle = [&[0x41, 0x2c][..], &[b'y'; 300]].concat();
        let bytes = ziplist(&[
            b"\x03abc",
            b"\x00",
            &middle,
            b"\xc0\xfe\xff",
            b"\xd0\x00\x00\x00\x80",
            b"\xe0\xff\xff\xff\xff\xff\xff\xff\x7f",
            b"\xf0\x00\x00\x80",
            b"\xfe\x80",
            b"\xf1",
            b"\xfd",
            &longest,
            b"\x0212",
        ]);
        let texts = [
            b"abc".to_vec(),
            Vec::new(),
            vec![b'y'; 300],
            b"-2".to_vec(),
            b"-2147483648".to_vec(),
            b"9223372036854775807".to_vec(),
            b"-8388608".to_vec(),
            b"-128".to_vec(),
            b"0".to_vec(),
            b"12".to_vec(),
            vec![b'x'; 20_000],
            b"12".to_vec(),
        ];
        (bytes, texts.to_vec())
    }

    #[test]
    fn ziplist_encodings_are_all_translated() {
        let (bytes, texts) = sample();
        let listpack = to_listpack(&bytes).unwrap();
        let read: Vec<Vec<u8>> = listpack.view().iter().map(|element| element.text().into_owned()).collect();
        assert_eq!(read, texts);
        assert_eq!(to_listpack(&ziplist(&[])).unwrap().len(), 0);
    }

    #[test]
    fn ziplist_is_written_as_redis_writes_it() {
        let (_, texts) = sample();
        let (written, elements) = (|elements: &[Element<'_>]| from_elements(elements.iter().copied()), {
            texts.iter().map(|text| Element::String(text)).collect::<Vec<_>>()
        });
        // Integers are distinguished from texts by their looks: the last one of the sample takes its short form.
        let listpack = to_listpack(&written(&elements)).unwrap();
        let read: Vec<Vec<u8>> = listpack.view().iter().map(|element| element.text().into_owned()).collect();
        assert_eq!(read, texts);
        // RPUSH a -1 12 x*70 of redis-server 6.2, as OBJECT ENCODING ziplist had it.
        let long = [b'x'; 70];
        let bytes = written(&[
            Element::String(b"a"),
            Element::Integer(-1),
            Element::Integer(12),
            Element::String(&long),
        ]);
        let body = [&b"\x00\x01a\x03\xfe\xff\x03\xfd\x02\x40\x46"[..], &long, b"\xff"].concat();
        assert_eq!(bytes[HEADER_BYTES..], body);
        assert_eq!(bytes[..HEADER_BYTES], [92, 0, 0, 0, 18, 0, 0, 0, 4, 0]);
    }

    #[test]
    fn ziplist_that_breaks_a_rule_is_refused() {
        let good = ziplist(&[b"\x03abc", b"\xf1"]);
        assert!(to_listpack(&good).is_ok());
        for (at, byte) in
            [(0, 1), (4, 1), (8, 3), (10, 1), (11, 9), (11, 0x7f), (11, 0xff), (15, 7), (good.len() - 1, 0)]
        {
            let mut bad = good.clone();
            bad[at] = byte;
            assert!(to_listpack(&bad).is_err(), "byte {at} as {byte}");
        }
        for length in 0..good.len() {
            assert!(to_listpack(&good[..length]).is_err(), "{length}");
        }
    }

    proptest! {
        #[test]
        fn listpacks_come_back(
            texts in prop::collection::vec(
                prop_oneof![any::<i64>().prop_map(|number| number.to_string().into_bytes()), prop::collection::vec(any::<u8>(), 0..300)],
                0..40,
            ),
        ) {
            let mut listpack = Listpack::new();
            listpack.extend(texts.iter().map(|text| &text[..]));
            let back = to_listpack(&from_elements(listpack.view().iter())).unwrap();
            prop_assert_eq!(back.bytes(), listpack.bytes());
        }

        #[test]
        fn damaged_bytes_never_panic(flips in prop::collection::vec((0usize..500, any::<u8>()), 1..6)) {
            let (mut bytes, _) = sample();
            for (at, byte) in flips {
                bytes[at] = byte;
            }
            if let Ok(listpack) = to_listpack(&bytes) {
                prop_assert_eq!(dunlin_structures::validate_listpack(listpack.bytes()), Ok(listpack.len()));
            }
        }
    }
}
