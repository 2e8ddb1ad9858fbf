//! Zipmap, the packed form of small hashes before the ziplist (Redis before 2.6). Zipmaps are only read.
//!
//! ```text
//! zipmap   count: u8, 254 and 255 = unknown │ entry … │ FF
//! entry    length │ field │ length │ unused bytes: u8 │ value │ so many unused bytes
//! length   a byte below 254, or FE and u32 LE
//! ```
//!
//! Source: Redis `zipmap.c`.

use dunlin_structures::Corrupt;

const END: u8 = 0xff;
const LONG_LENGTH: u8 = 0xfe;
const BEYOND: Corrupt = Corrupt("zipmap entry reaches beyond the end");

fn length(bytes: &[u8]) -> Result<(usize, &[u8]), Corrupt> {
    match bytes {
        [LONG_LENGTH, a, b, c, d, rest @ ..] => Ok((u32::from_le_bytes([*a, *b, *c, *d]) as usize, rest)),
        [length @ 0..LONG_LENGTH, rest @ ..] => Ok((usize::from(*length), rest)),
        _ => Err(BEYOND),
    }
}

/// Visits the fields and values of a zipmap. Every rule of the format is checked, but for fields that
/// appear twice. O(n).
pub(crate) fn for_each<'a, E: From<Corrupt>>(
    bytes: &'a [u8],
    mut visit: impl FnMut(&'a [u8], &'a [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let (&stated, rest) = bytes.split_first().ok_or(Corrupt("zipmap is empty"))?;
    let Some((&END, mut rest)) = rest.split_last() else {
        return Err(Corrupt("zipmap does not end with its end byte").into());
    };
    let mut count = 0;
    while !rest.is_empty() {
        let (field_bytes, behind) = length(rest)?;
        let (field, behind) = behind.split_at_checked(field_bytes).ok_or(BEYOND)?;
        let (value_bytes, behind) = length(behind)?;
        let (&unused, behind) = behind.split_first().ok_or(BEYOND)?;
        let (value, behind) = behind.split_at_checked(value_bytes).ok_or(BEYOND)?;
        let (_, behind) = behind.split_at_checked(usize::from(unused)).ok_or(BEYOND)?;
        rest = behind;
        count += 1;
        visit(field, value)?;
    }
    if stated < LONG_LENGTH && usize::from(stated) != count {
        return Err(Corrupt("zipmap states another number of fields than it has").into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

    fn pairs(bytes: &[u8]) -> Result<Pairs, Corrupt> {
        let mut pairs = Vec::new();
        for_each(bytes, |field, value| {
            pairs.push((field.to_vec(), value.to_vec()));
            Ok::<(), Corrupt>(())
        })?;
        Ok(pairs)
    }

    const SAMPLE: &[u8] = b"\x02\x03foo\x03\x00bar\x05hello\x05\x02world??\xff";

    #[test]
    fn fields_and_values_are_read() {
        let expected = [(b"foo".to_vec(), b"bar".to_vec()), (b"hello".to_vec(), b"world".to_vec())];
        assert_eq!(pairs(SAMPLE).unwrap(), expected);
        let long = [&b"\xfe\xfe\x2c\x01\x00\x00"[..], &[b'f'; 300], b"\x01\x00v\xff"].concat();
        assert_eq!(pairs(&long).unwrap(), [(vec![b'f'; 300], b"v".to_vec())]);
        assert_eq!(pairs(b"\0\xff").unwrap(), []);
        for bad in [
            &b""[..],
            b"\0",
            b"\x01\xff",
            b"\x01\x03foo\xff",
            b"\x01\x01f\x05\x00v\xff",
            b"\x03\x01f\x01\x00v\xff",
        ] {
            pairs(bad).unwrap_err();
        }
    }

    proptest! {
        #[test]
        fn damaged_bytes_never_panic(flips in prop::collection::vec((0usize..SAMPLE.len(), any::<u8>()), 1..4)) {
            let mut bytes = SAMPLE.to_vec();
            for (at, byte) in flips {
                bytes[at] = byte;
            }
            let _ = pairs(&bytes);
        }
    }
}
