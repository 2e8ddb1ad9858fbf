//! Admission of listpack bytes from outside.

use super::encoding::{END, back_length_bytes, head, write_back_length};
use super::{COUNT_UNKNOWN, HEADER_BYTES, LISTPACK_BYTES_EMPTY};
use crate::Corrupt;

/// Checks every rule that readers rely on, and answers the number of elements. O(n).
///
/// The rules are those of Redis's deep integrity check. The stated size is that of the bytes, entries follow
/// one another without gap or overlap, each ends with its own length, the end byte comes exactly last, the
/// count is right or 65535. Not demanded, as in Redis: at least one element, the smallest encodings.
pub fn validate(bytes: &[u8]) -> Result<usize, Corrupt> {
    if bytes.len() < LISTPACK_BYTES_EMPTY {
        return Err(Corrupt("listpack is shorter than its header"));
    }
    let (&size, rest) = bytes.split_first_chunk::<4>().expect("longer than the header");
    if u32::from_le_bytes(size) as usize != bytes.len() {
        return Err(Corrupt("listpack states another size than it has"));
    }
    let stated = u16::from_le_bytes([rest[0], rest[1]]);
    if bytes[bytes.len() - 1] != END {
        return Err(Corrupt("listpack does not end with its end byte"));
    }
    // The end byte does not count among the bytes that entries may use.
    let entries = &bytes[..bytes.len() - 1];
    let mut at = HEADER_BYTES;
    let mut count = 0;
    while at < entries.len() {
        let rest = &entries[at..];
        let head = head(rest).ok_or(Corrupt("listpack entry has no valid encoding"))?;
        if head.entry_bytes() > rest.len() {
            return Err(Corrupt("listpack entry reaches beyond the end"));
        }
        let mut expected = [0; 5];
        let expected = &mut expected[..back_length_bytes(head.size)];
        write_back_length(expected, head.size);
        if &rest[head.size..head.entry_bytes()] != expected {
            return Err(Corrupt("listpack entry does not end with its length"));
        }
        at += head.entry_bytes();
        count += 1;
    }
    if stated != COUNT_UNKNOWN && usize::from(stated) != count {
        return Err(Corrupt("listpack states another number of elements than it has"));
    }
    Ok(count)
}
