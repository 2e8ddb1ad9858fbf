//! Passwords: kept as SHA-256, compared in constant time.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Bytes of a hash.
const HASH_BYTES: usize = 32;

/// Most bits of a password that `ACL GENPASS` makes.
pub const GENPASS_BITS_MAX: usize = 4096;

/// The SHA-256 of a password. Displays as 64 hexadecimal digits in lower case.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash([u8; HASH_BYTES]);

impl PasswordHash {
    /// The hash of a password. O(password).
    pub fn of(password: &[u8]) -> Self {
        Self(Sha256::digest(password).into())
    }

    /// Reads 64 hexadecimal digits in lower case.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let text: &[u8; 2 * HASH_BYTES] = text.try_into().ok()?;
        let mut hash = [0; HASH_BYTES];
        for (byte, pair) in hash.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(Self(hash))
    }

    /// Whether one of `hashes` equals this one. The time depends on their number only.
    pub(crate) fn is_among(&self, hashes: &[PasswordHash]) -> bool {
        let equal = |found, hash: &PasswordHash| found | self.0.ct_eq(&hash.0);
        hashes.iter().fold(subtle::Choice::from(0), equal).into()
    }
}

impl fmt::Display for PasswordHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for PasswordHash {
    /// Shows nothing of it: it may stand in a log.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("PasswordHash(…)")
    }
}

/// Bytes of randomness for a password of `bits` bits.
fn random_bytes(bits: usize) -> usize {
    bits.div_ceil(8)
}

/// A password of `bits` bits, rounded up to whole hexadecimal digits, out of random bytes from `fill`. `None` for none
/// or too many bits.
pub fn random_password(bits: usize, fill: impl FnOnce(&mut [u8])) -> Option<String> {
    if !(1..=GENPASS_BITS_MAX).contains(&bits) {
        return None;
    }
    let mut bytes = vec![0; random_bytes(bits)];
    fill(&mut bytes);
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let shown = digits.take(bits.div_ceil(4)).map(|digit| char::from_digit(digit.into(), 16));
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn password_hash_is_the_published_one() {
        let text = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb";
        assert_eq!(PasswordHash::of(b"a").to_string(), text);
        assert_eq!(PasswordHash::parse(text.as_bytes()), Some(PasswordHash::of(b"a")));
        for bad in [&text[1..], &text.to_uppercase(), &format!("{text}0"), &text.replace("ca9", "cg9"), ""] {
            assert_eq!(PasswordHash::parse(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(format!("{:?}", PasswordHash::of(b"a")), "PasswordHash(…)");
    }

    #[test]
    fn password_is_found_among_several() {
        let hashes = [PasswordHash::of(b"old"), PasswordHash::of(b"new")];
        assert!(PasswordHash::of(b"old").is_among(&hashes) && PasswordHash::of(b"new").is_among(&hashes));
        assert!(!PasswordHash::of(b"no").is_among(&hashes) && !PasswordHash::of(b"old").is_among(&[]));
    }

    #[test]
    fn random_password_has_as_many_digits_as_it_takes() {
        let made = |bits| random_password(bits, |bytes| bytes.fill(0xa5));
        assert_eq!(made(1).as_deref(), Some("a"));
        assert_eq!(made(4).as_deref(), Some("a"));
        assert_eq!(made(5).as_deref(), Some("a5"));
        assert_eq!(made(256).map(|text| text.len()), Some(64));
        assert_eq!(made(4096).map(|text| text.len()), Some(1024));
        assert_eq!((made(0), made(4097)), (None, None));
    }
}
