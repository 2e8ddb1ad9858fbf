//! Stream IDs: `<milliseconds>-<sequence>`, two numbers of 64 bits.

use std::fmt;

/// The name of an entry; entries are ordered by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct StreamId {
    /// Unix time in milliseconds, unless the client chose otherwise.
    pub ms: u64,
    /// Distinguishes entries of the same millisecond.
    pub seq: u64,
}

/// Longest text of an ID that is looked at.
const TEXT_MAX: usize = 127;

impl StreamId {
    /// `0-0`, which no entry has.
    pub const MIN: Self = Self { ms: 0, seq: 0 };
    /// The last ID there can be.
    pub const MAX: Self = Self { ms: u64::MAX, seq: u64::MAX };

    /// An ID of its two numbers.
    pub const fn new(ms: u64, seq: u64) -> Self {
        Self { ms, seq }
    }

    /// The next ID; none behind the last.
    pub fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    /// The ID before; none before `0-0`.
    pub fn previous(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(Self { seq, ..self }),
            None => Some(Self { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }

    /// Reads `ms-seq`, or `ms` alone with `missing_seq` for the rest.
    pub fn parse(text: &[u8], missing_seq: u64) -> Option<Self> {
        let (ms, seq) = split(text)?;
        let seq = seq.map_or(Some(missing_seq), parse_number);
        Some(Self { ms: parse_number(ms)?, seq: seq? })
    }

    /// [`Self::parse`] where `-` and `+` are the smallest and the largest ID.
    pub fn parse_bound(text: &[u8], missing_seq: u64) -> Option<Self> {
        match text {
            b"-" => Some(Self::MIN),
            b"+" => Some(Self::MAX),
            _ => Self::parse(text, missing_seq),
        }
    }
}

/// The argument of `XADD` for the ID of a new entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewId {
    /// `*`: now, or behind the last.
    Auto,
    /// `ms-*`: the next of this millisecond.
    Millisecond(u64),
    /// This one.
    Exactly(StreamId),
}

impl NewId {
    /// Reads an ID other than `*`, or `ms-*`.
    pub fn parse(text: &[u8]) -> Option<Self> {
        match split(text)? {
            (ms, Some(b"*")) => Some(Self::Millisecond(parse_number(ms)?)),
            _ => StreamId::parse(text, 0).map(Self::Exactly),
        }
    }
}

/// The numbers of an ID before and after its first dash. The text ends at a NUL, as for Redis.
fn split(text: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    if text.len() > TEXT_MAX {
        return None;
    }
    let text = text.split(|byte| *byte == 0).next()?;
    let mut parts = text.splitn(2, |byte| *byte == b'-');
    Some((parts.next()?, parts.next()))
}

/// Reads a number as Redis does: a canonical integer that is not negative, or what C's `strtoull`
/// makes of the whole text (blanks before it, a sign, zeros before it).
fn parse_number(text: &[u8]) -> Option<u64> {
    if let Some(integer) = dunlin_resp::number::parse_integer(text) {
        return u64::try_from(integer).ok();
    }
    // The blanks of C's `isspace`.
    let blanks = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
    let text = &text[blanks..];
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let number = digits.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })?;
    Some(if negative { number.wrapping_neg() } else { number })
}

impl fmt::Display for StreamId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}", self.ms, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_read_as_redis_reads_them() {
        let id = StreamId::new;
        for (text, expected) in [
            ("1-2", Some(id(1, 2))),
            ("7", Some(id(7, 9))),
            ("18446744073709551615-18446744073709551615", Some(StreamId::MAX)),
            ("18446744073709551616-0", None),
            ("007-01", Some(id(7, 1))),
            (" 5-+3", Some(id(5, 3))),
            ("1--0", Some(id(1, 0))),
            ("1--5", None),
            ("1-", None),
            ("-1", None),
            ("", None),
            ("-", None),
            ("+", None),
            ("1-1-1", None),
            ("x", None),
            ("1-*", None),
            ("1-2\0rest", Some(id(1, 2))),
        ] {
            assert_eq!(StreamId::parse(text.as_bytes(), 9), expected, "{text:?}");
        }
        assert_eq!(StreamId::parse_bound(b"-", 0), Some(StreamId::MIN));
        assert_eq!(StreamId::parse_bound(b"+", 0), Some(StreamId::MAX));
        assert_eq!(NewId::parse(b"5-*"), Some(NewId::Millisecond(5)));
        assert_eq!(NewId::parse(b"5"), Some(NewId::Exactly(id(5, 0))));
        assert_eq!(NewId::parse(b"*-*"), None);
    }

    #[test]
    fn neighbours_carry_over() {
        let id = StreamId::new;
        assert_eq!(id(1, u64::MAX).next(), Some(id(2, 0)));
        assert_eq!(StreamId::MAX.next(), None);
        assert_eq!(id(2, 0).previous(), Some(id(1, u64::MAX)));
        assert_eq!(StreamId::MIN.previous(), None);
    }
}
