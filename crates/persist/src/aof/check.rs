//! The line behind a batch that proves it whole.

use std::fmt;

/// The beginning of the line.
pub const PREFIX: &[u8] = b"#CRC32C:";
/// A CRC-32C (Castagnoli, RFC 3720) in the making.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checksum(u32);

impl Checksum {
    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }
}

/// The fields of a check besides its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Check {
    /// The log's offset behind the batch.
    pub lsn: u64,
    /// Bytes of the batch.
    pub length: u64,
}

impl fmt::Display for Check {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, " LSN:{} LEN:{}", self.lsn, self.length)
    }
}

impl Check {
    /// The line behind a batch with this checksum.
    pub fn line(&self, mut sum: Checksum) -> Vec<u8> {
        let rest = self.to_string();
        sum.add(rest.as_bytes());
        format!("#CRC32C:{:08x}{rest}\r\n", sum.0).into_bytes()
    }

    /// Reads a line (without its end) behind a batch with this checksum. `None` if it is not a
    /// check; otherwise its fields, and whether it is the check of that batch.
    pub fn parse(line: &[u8], sum: Checksum) -> Option<(Self, bool)> {
        let (_, rest) = line.strip_prefix(PREFIX)?.split_at_checked(8)?;
        let numbers = std::str::from_utf8(rest).ok()?.strip_prefix(" LSN:")?;
        let (lsn, length) = numbers.split_once(" LEN:")?;
        let check = Self { lsn: lsn.parse().ok()?, length: length.parse().ok()? };
        Some((check, check.line(sum).strip_suffix(b"\r\n") == Some(line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_line_is_frozen() {
        let mut sum = Checksum::default();
        sum.add(b"1234");
        sum.add(b"56789");
        // The check value of CRC-32C in the catalogue of parametrised CRC algorithms.
        assert_eq!(sum.0, 0xe306_9283);
        let check = Check { lsn: 4711, length: 9 };
        let line = check.line(sum);
        assert_eq!(String::from_utf8(line.clone()).unwrap(), "#CRC32C:3009eea9 LSN:4711 LEN:9\r\n");
        let text = line.strip_suffix(b"\r\n").unwrap();
        assert_eq!(Check::parse(text, sum), Some((check, true)));
        assert_eq!(Check::parse(text, Checksum::default()), Some((check, false)));
        let longest = Check { lsn: u64::MAX, length: u64::MAX }.line(sum);
        assert!(longest.len() < 1024, "Redis reads no longer ones");
    }

    #[test]
    fn check_sees_every_flipped_bit() {
        let mut sum = Checksum::default();
        sum.add(b"batch");
        let check = Check { lsn: 77, length: 5 };
        let line = check.line(sum);
        let text = line.strip_suffix(b"\r\n").unwrap();
        for bit in 0..text.len() * 8 {
            let mut flipped = text.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(Check::parse(&flipped, sum), Some((_, true))), "bit {bit}");
        }
    }
}
