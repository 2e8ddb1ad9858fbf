//! The bounds of ranges: scores, members and indices as clients write them.

use std::ops::Range;

use crate::{
    command::CommandError,
    value::{ExtendedFloat, SortedSet},
};

/// A bound: a value and whether it is left out itself.
#[derive(Debug, Clone, Copy)]
struct Bound<T> {
    value: T,
    is_exclusive: bool,
}

/// A range of scores.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScoreRange {
    low: Bound<f64>,
    high: Bound<f64>,
}

/// A member as a bound, or the end below or above all members.
#[derive(Debug, Clone, Copy)]
enum LexBound<'a> {
    Lowest,
    Highest,
    Member(Bound<&'a [u8]>),
}

/// A range of members.
#[derive(Debug, Clone, Copy)]
pub(super) struct LexRange<'a> {
    low: LexBound<'a>,
    high: LexBound<'a>,
}

/// Reads a score as C's `strtod` does, which stops at a NUL, skips blanks in front, takes an empty
/// text for 0 and numbers that are too large for infinity.
fn parse_bound(text: &[u8]) -> Option<f64> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    if text.is_empty() {
        return Some(0.0);
    }
    let blanks = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
    let text = &text[blanks..];
    let value = match std::str::from_utf8(text).ok()?.parse::<f64>() {
        Ok(value) => value,
        // Hexadecimal form, if it is one.
        Err(_) => ExtendedFloat::parse(text)?.to_f64(text.starts_with(b"-")),
    };
    (!value.is_nan()).then_some(value)
}

fn parse_score_bound(text: &[u8]) -> Option<Bound<f64>> {
    Some(match text {
        [b'(', rest @ ..] => Bound { value: parse_bound(rest)?, is_exclusive: true },
        _ => Bound { value: parse_bound(text)?, is_exclusive: false },
    })
}

fn parse_lex_bound(text: &[u8]) -> Option<LexBound<'_>> {
    Some(match text {
        b"-" => LexBound::Lowest,
        b"+" => LexBound::Highest,
        [b'(', member @ ..] => LexBound::Member(Bound { value: member, is_exclusive: true }),
        [b'[', member @ ..] => LexBound::Member(Bound { value: member, is_exclusive: false }),
        _ => return None,
    })
}

impl ScoreRange {
    /// Reads both bounds.
    pub(super) fn parse(low: &[u8], high: &[u8]) -> Result<Self, CommandError> {
        let error = CommandError::text("ERR min or max is not a float");
        let (low, high) = (parse_score_bound(low), parse_score_bound(high));
        low.zip(high).map(|(low, high)| Self { low, high }).ok_or(error)
    }

    /// The ranks of the members in the range. O(log n); in a listpack O(n).
    pub(super) fn ranks(self, set: &SortedSet) -> Range<usize> {
        let Self { low, high } = self;
        let start = set
            .partition_scores(|score| if low.is_exclusive { score <= low.value } else { score < low.value });
        let end =
            set.partition_scores(
                |score| {
                    if high.is_exclusive { score < high.value } else { score <= high.value }
                },
            );
        start..end.max(start)
    }
}

impl<'a> LexRange<'a> {
    /// Reads both bounds.
    pub(super) fn parse(low: &'a [u8], high: &'a [u8]) -> Result<Self, CommandError> {
        let error = CommandError::text("ERR min or max not valid string range item");
        let (low, high) = (parse_lex_bound(low), parse_lex_bound(high));
        low.zip(high).map(|(low, high)| Self { low, high }).ok_or(error)
    }

    /// The ranks of the members in the range, if all scores are equal. O(log n); in a listpack
    /// O(n).
    pub(super) fn ranks(self, set: &SortedSet) -> Range<usize> {
        let start = match self.low {
            LexBound::Lowest => 0,
            LexBound::Highest => set.len(),
            LexBound::Member(Bound { value, is_exclusive }) => {
                set.partition_members(|member| if is_exclusive { member <= value } else { member < value })
            }
        };
        let end = match self.high {
            LexBound::Lowest => 0,
            LexBound::Highest => set.len(),
            LexBound::Member(Bound { value, is_exclusive }) => {
                set.partition_members(|member| if is_exclusive { member < value } else { member <= value })
            }
        };
        start..end.max(start)
    }
}

/// The ranks between two indices, both included; negative ones count from the end.
pub(super) fn index_ranks(start: i64, end: i64, len: usize) -> Range<usize> {
    let resolve = |index: i64| if index < 0 { index.saturating_add(len as i64) } else { index };
    let start = resolve(start).max(0) as usize;
    let end = (resolve(end).saturating_add(1).max(0) as usize).min(len);
    start.min(end)..end
}
