//! The history of a data set: its id, its offset, and the history that it continues.
//!
//! ```text
//! second id valid up to ──┐
//!   old primary's bytes ──┤── bytes since the promotion ──▶ offset
//!   ──────────────────────┼───────────────────────────────
//!            backlog: first … offset
//! ```

use std::fmt;

/// The id of a history: 40 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Id([u8; 40]);

impl Id {
    /// Makes an id out of 20 unpredictable bytes.
    pub fn from_random(bytes: [u8; 20]) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digit = |at: usize| DIGITS[usize::from(bytes[at / 2] >> (4 * (1 - at % 2)) & 15)];
        Self(std::array::from_fn(digit))
    }

    /// Parses an id: exactly 40 bytes that can stand in a line.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let id: [u8; 40] = text.try_into().ok()?;
        id.iter().all(u8::is_ascii_alphanumeric).then_some(Self(id))
    }

    /// Returns its digits.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("ASCII, see `parse`")
    }
}

impl fmt::Display for Id {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// The id of a data set's history, and that of the history that it continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct History {
    /// The id of the present records.
    pub id: Id,
    /// The id that the same bytes had under the primary before, and the first offset that it is not valid for.
    pub second: Option<(Id, u64)>,
}

/// A place in a stream: what a data set that was kept in files is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamPosition {
    /// The history.
    pub history: History,
    /// Bytes of it.
    pub offset: u64,
    /// The database that it has selected there.
    pub database: usize,
}

/// The answer to a PSYNC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resync {
    /// The stream goes on behind this offset.
    Partial {
        /// Bytes that the replica has.
        from: u64,
    },
    /// A snapshot comes first.
    Full,
}

impl History {
    /// A history that continues no other.
    pub fn new(id: Id) -> Self {
        Self { id, second: None }
    }

    /// Becomes the primary's: the stream applied up to `offset` keeps its id as the second one.
    pub fn promote(&mut self, id: Id, offset: u64) {
        self.second = Some((self.id, offset + 1));
        self.id = id;
    }

    /// Goes on under the id that a primary has answered to a PSYNC, which is the same history up to `offset`.
    pub fn continue_as(&mut self, id: Id, offset: u64) {
        if id != self.id {
            self.promote(id, offset);
        }
    }

    /// Decides between a partial and a full resynchronisation. `asked` is the first byte that the replica lacks, counted
    /// from 1 as on the wire; the backlog holds the bytes behind `backlog.0`, up to `backlog.1`.
    pub fn decide(&self, id: &[u8], asked: i64, backlog: Option<(u64, u64)>) -> Resync {
        let Some((first, end)) = backlog else { return Resync::Full };
        let Some(from) = u64::try_from(asked).ok().and_then(|asked| asked.checked_sub(1)) else {
            return Resync::Full;
        };
        let continues = Id::parse(id).is_some_and(|id| {
            id == self.id || self.second.is_some_and(|(second, end)| id == second && from < end)
        });
        if continues && (first..=end).contains(&from) { Resync::Partial { from } } else { Resync::Full }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(byte: u8) -> Id {
        Id::from_random([byte; 20])
    }

    #[test]
    fn id_has_forty_digits() {
        let id = id(0x3f);
        assert_eq!(id.as_str(), "3f".repeat(20));
        assert_eq!(Id::parse(id.as_str().as_bytes()), Some(id));
        for wrong in [&b""[..], b"?", &[b'a'; 39], &[b'a'; 41], &[b' '; 40]] {
            assert_eq!(Id::parse(wrong), None);
        }
    }

    #[test]
    fn psync_is_partial_where_the_backlog_has_all_that_is_lacking() {
        let mut history = History::new(id(1));
        history.promote(id(2), 150);
        let backlog = Some((100, 200));
        let partial = |from| Resync::Partial { from };
        for (asker, asked, expected) in [
            (id(2), 101, partial(100)),
            (id(2), 201, partial(200)),
            (id(2), 100, Resync::Full),
            (id(2), 202, Resync::Full),
            (id(1), 101, partial(100)),
            (id(1), 151, partial(150)),
            (id(1), 152, Resync::Full),
            (id(3), 150, Resync::Full),
            (id(2), 0, Resync::Full),
            (id(2), -1, Resync::Full),
            (id(2), i64::MIN, Resync::Full),
        ] {
            let decided = history.decide(asker.as_str().as_bytes(), asked, backlog);
            assert_eq!(decided, expected, "{asker} {asked}");
        }
        assert_eq!(history.decide(b"?", -1, backlog), Resync::Full);
        assert_eq!(history.decide(history.id.as_str().as_bytes(), 150, None), Resync::Full);
    }

    #[test]
    fn continue_with_the_same_id_keeps_the_second_one() {
        let mut history = History::new(id(1));
        history.continue_as(id(2), 10);
        assert_eq!(history.second, Some((id(1), 11)));
        history.continue_as(id(2), 99);
        assert_eq!(history, History { id: id(2), second: Some((id(1), 11)) });
    }
}
