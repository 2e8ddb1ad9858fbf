//! The commands on a document, with replies as plain data: no protocol, no keys.
//!
//! A JSONPath is answered for each match ([`Answer::Each`], `None` for a value of another type),
//! a legacy path once ([`Answer::One`]): readers take the first match, writers change all and answer the last. Errors are
//! the texts of RedisJSON 2.8, with the code that its replies begin with, if they have one.
//!
//! Nothing is changed if an operation is refused: results are computed for all matches first. Matches are edited from the
//! last to the first, so that no edit moves a place that is still to come; very many are changed in passes over the
//! document.

mod arrays;
mod merge;
mod numbers;
mod read;
mod set;
#[cfg(test)]
mod tests;

use std::{cmp::Reverse, fmt};

pub use arrays::{arr_append, arr_index, arr_insert, arr_len, arr_pop, arr_trim};
pub use merge::merge;
pub use numbers::{Arithmetic, arithmetic, operand};
pub use read::{get, obj_keys, obj_len, str_len, types};
pub use set::{Condition, clear, delete, set, str_append, toggle};

use crate::{
    Document, Kind, Location, ParseError, Problem, ValueRef,
    path::{Budget, Path, PathError, TooExpensive},
};

/// More matches than these are not edited one after another in a block.
const EDITED_IN_PLACE_MAX: usize = 16;

/// Answers to a path.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer<T> {
    /// Of a legacy path.
    One(T),
    /// Of a JSONPath: one for each match, in document order.
    Each(Vec<Option<T>>),
}

/// Why an operation was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the texts say it")]
pub enum Refusal {
    NoSuchPath(Vec<u8>),
    NoSuchArray(Vec<u8>),
    NoSuchObject(Vec<u8>),
    NoSuchString(Vec<u8>),
    NoSuchBoolean(Vec<u8>),
    NoSuchNumber(Vec<u8>),
    WrongType { expected: Kind, found: Kind },
    NotAString(Vec<u8>),
    BadNumber,
    NotANumber,
    IntegerOutOfRange,
    IndexOutOfBounds,
    IndexOutOfRange,
    NotStatic,
    TooDeep,
    TooExpensive,
    Text(ParseError),
    Path(PathError),
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = |out: &mut fmt::Formatter<'_>, path: &[u8], rest: &str| {
            write!(out, "ERR Path '{}' does not exist{rest}", String::from_utf8_lossy(path))
        };
        match self {
            Self::NoSuchPath(text) => path(out, text, ""),
            Self::NoSuchArray(text) => path(out, text, " or not an array"),
            Self::NoSuchObject(text) => path(out, text, " or not an object"),
            Self::NoSuchString(text) => path(out, text, " or not a string"),
            Self::NoSuchBoolean(text) => path(out, text, " or not a bool"),
            Self::NoSuchNumber(text) => path(out, text, " or does not contains a number"),
            Self::WrongType { expected, found } => write!(
                out,
                "WRONGTYPE wrong type of path value - expected {} but found {}",
                expected.name(),
                found.name()
            ),
            Self::NotAString(text) => write!(
                out,
                "WRONGTYPE wrong type of path value - expected string but found {}",
                String::from_utf8_lossy(text)
            ),
            Self::BadNumber => out.write_str("bad input number"),
            Self::NotANumber => out.write_str("ERR result is not a number"),
            Self::IntegerOutOfRange => out.write_str("ERR result is an integer out of range"),
            Self::IndexOutOfBounds => out.write_str("ERR index out of bounds"),
            Self::IndexOutOfRange => out.write_str("ERR array index out of range"),
            Self::NotStatic => out.write_str("Err wrong static path"),
            Self::TooDeep => out.write_str("ERR recursion limit exceeded"),
            Self::TooExpensive => out.write_str("ERR the path takes too many steps"),
            Self::Text(error) if error.problem == Problem::TooDeep => write!(out, "ERR {error}"),
            Self::Text(error) => error.fmt(out),
            Self::Path(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<TooExpensive> for Refusal {
    fn from(_: TooExpensive) -> Self {
        Self::TooExpensive
    }
}

impl From<ParseError> for Refusal {
    fn from(error: ParseError) -> Self {
        Self::Text(error)
    }
}

impl From<PathError> for Refusal {
    fn from(error: PathError) -> Self {
        Self::Path(error)
    }
}

/// Locations of all matches, each once.
fn places(document: &Document, path: &Path) -> Result<Vec<Location>, Refusal> {
    Ok(path.locations(document, &mut Budget::default())?)
}

/// The answers of a reader: `read` of the first match of a legacy path, `missing` if there is none; of each match of a
/// JSONPath, `None` for an error.
fn answer_reads<T>(
    root: ValueRef<'_>,
    path: &Path,
    missing: impl FnOnce() -> Result<T, Refusal>,
    mut read: impl FnMut(ValueRef<'_>) -> Result<T, Refusal>,
) -> Result<Answer<T>, Refusal> {
    let values = path.values(root, &mut Budget::default())?;
    if path.is_legacy() {
        return Ok(Answer::One(values.first().map_or_else(missing, |&value| read(value))?));
    }
    Ok(Answer::Each(values.into_iter().map(|value| read(value).ok()).collect()))
}

/// The answers of a writer: `prepare` computes what becomes of a match, `None` for a value of another type; `apply` then
/// does it to the document or a copy of the match, at the location that it is given. A legacy path without a match of the right type is `missing`.
fn answer_writes<P, T>(
    document: &mut Document,
    path: &Path,
    missing: impl FnOnce() -> Refusal,
    mut prepare: impl FnMut(&[u32], ValueRef<'_>) -> Result<Option<P>, Refusal>,
    mut apply: impl FnMut(&mut Document, &[u32], P) -> T,
) -> Result<Answer<T>, Refusal> {
    let mut prepared = Vec::new();
    for (order, location) in places(document, path)?.into_iter().enumerate() {
        let value = document.at(&location).expect("a match has a place");
        if let Some(change) = prepare(&location, value)? {
            prepared.push((order, Some((location, change))));
        } else {
            prepared.push((order, None));
        }
    }
    if path.is_legacy() && prepared.iter().all(|(_, change)| change.is_none()) {
        return Err(missing());
    }
    let mut answers: Vec<Option<T>> = prepared.iter().map(|_| None).collect();
    let mut changes: Vec<(Location, P, usize)> = prepared
        .into_iter()
        .filter_map(|(order, change)| change.map(|(location, change)| (location, change, order)))
        .collect();
    if changes.len() <= EDITED_IN_PLACE_MAX {
        changes.sort_unstable_by(|a, b| b.0.cmp(&a.0));
        for (location, change, order) in changes {
            answers[order] = Some(apply(document, &location, change));
        }
    } else {
        // Matches of one depth are not below each other, so all of them are changed in one pass; the deepest come first.
        changes.sort_by_key(|(location, ..)| Reverse(location.len()));
        let mut changes = changes.into_iter().peekable();
        while let Some(depth) = changes.peek().map(|(location, ..)| location.len()) {
            let mut changed = Vec::new();
            while let Some((location, change, order)) =
                changes.next_if(|(location, ..)| location.len() == depth)
            {
                let mut copy = Document::copied(document.at(&location).expect("a match has a place"));
                answers[order] = Some(apply(&mut copy, &[], change));
                changed.push((location, Some(copy)));
            }
            document.change_many(changed);
        }
    }
    if path.is_legacy() {
        let last = answers.into_iter().flatten().next_back();
        return Ok(Answer::One(last.expect("one match is of the right type")));
    }
    Ok(Answer::Each(answers))
}

/// The answers of a writer that puts other values in place of the matches: `compute` gives the new value and the answer,
/// `None` for a value of another type. A legacy path without a match of the right type is `missing`.
fn answer_replacements<T>(
    document: &mut Document,
    path: &Path,
    missing: impl FnOnce() -> Refusal,
    mut compute: impl FnMut(ValueRef<'_>) -> Result<Option<(Document, T)>, Refusal>,
) -> Result<Answer<T>, Refusal> {
    let mut changes = Vec::new();
    let mut answers = Vec::new();
    for location in places(document, path)? {
        let value = document.at(&location).expect("a match has a place");
        answers.push(compute(value)?.map(|(new, answer)| {
            changes.push((location, Some(new)));
            answer
        }));
    }
    if path.is_legacy() {
        let last = answers.into_iter().flatten().next_back().ok_or_else(missing)?;
        document.change_many(changes);
        return Ok(Answer::One(last));
    }
    document.change_many(changes);
    Ok(Answer::Each(answers))
}
