//! The forms in which files and dumps of other servers hold documents: the values of module type `ReJSON-RL`.
//!
//! ```text
//! encver 0   a tree of nodes: kind (unsigned), then what the kind has                   RedisJSON 1
//!            1 null                       10h boolean: string "1" or another
//!            2 string: string             20h object: count (unsigned), count × (80h, name: string, node)
//!            4 number: double             40h array: count (unsigned), count × node
//!            8 integer: signed
//! encver 2   string: JSON text │ unsigned: 0, or else two strings of an index          RedisJSON 1 with an index
//! encver 3   string: JSON text                                                         RedisJSON 2, valkey-json
//! encver 4   string: CBOR, see `cbor`                                                  Redis 8.8 and newer
//! ```
//!
//! Nothing is allocated by an announced count or length: memory follows the bytes that are there. Nothing recurses.

mod cbor;
#[cfg(test)]
mod tests;

use std::fmt;

pub use cbor::write_cbor;

use crate::{Builder, DEPTH_MAX, Document, ParseError, parse};

/// An item of a module's value, as the file's opcodes tell them apart.
#[derive(Debug, Clone, Copy, PartialEq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Item<'a> {
    Signed(i64),
    Unsigned(u64),
    Double(f64),
    String(&'a [u8]),
}

/// Why a value is no document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadError {
    /// The form is newer than this program, or none.
    UnknownVersion(u16),
    /// The items are not those of the form.
    Malformed(&'static str),
    /// The text is no JSON.
    Text(ParseError),
}

impl fmt::Display for LoadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownVersion(version) => write!(out, "a JSON document in the unknown form {version}"),
            Self::Malformed(what) => write!(out, "a JSON document that is malformed: {what}"),
            Self::Text(error) => write!(out, "a JSON document that is malformed: {error}"),
        }
    }
}

impl std::error::Error for LoadError {}

impl From<ParseError> for LoadError {
    fn from(error: ParseError) -> Self {
        Self::Text(error)
    }
}

const NULL: u64 = 0x1;
const STRING: u64 = 0x2;
const NUMBER: u64 = 0x4;
const INTEGER: u64 = 0x8;
const BOOLEAN: u64 = 0x10;
const OBJECT: u64 = 0x20;
const ARRAY: u64 = 0x40;
const MEMBER: u64 = 0x80;

/// The document of a module's value in a form (the low ten bits of its module id), of its items in their order. O(items)
pub fn load<'a>(version: u16, items: impl IntoIterator<Item = Item<'a>>) -> Result<Document, LoadError> {
    let mut items = items.into_iter();
    let document = match version {
        0 => load_tree(&mut items)?,
        2 => {
            let document = parse(string(&mut items)?)?;
            if unsigned(&mut items)? > 0 {
                string(&mut items)?;
                string(&mut items)?;
            }
            document
        }
        3 => parse(string(&mut items)?)?,
        4 => cbor::read(string(&mut items)?)?,
        unknown => return Err(LoadError::UnknownVersion(unknown)),
    };
    match items.next() {
        None => Ok(document),
        Some(_) => Err(LoadError::Malformed("more items than its form has")),
    }
}

fn string<'a>(items: &mut impl Iterator<Item = Item<'a>>) -> Result<&'a [u8], LoadError> {
    match items.next() {
        Some(Item::String(text)) => Ok(text),
        _ => Err(LoadError::Malformed("a string is missing")),
    }
}

fn unsigned<'a>(items: &mut impl Iterator<Item = Item<'a>>) -> Result<u64, LoadError> {
    match items.next() {
        Some(Item::Unsigned(number)) => Ok(number),
        _ => Err(LoadError::Malformed("a number is missing")),
    }
}

fn utf8(text: &[u8]) -> Result<&[u8], LoadError> {
    match std::str::from_utf8(text) {
        Ok(_) => Ok(text),
        Err(_) => Err(LoadError::Malformed("a string is not UTF-8")),
    }
}

fn load_tree<'a>(items: &mut impl Iterator<Item = Item<'a>>) -> Result<Document, LoadError> {
    let mut builder = Builder::new();
    // Nodes that the open containers still want, and whether they are members.
    let mut open: Vec<(u64, bool)> = Vec::new();
    loop {
        while let Some((0, _)) = open.last() {
            open.pop();
            builder.end();
            if open.is_empty() {
                return Ok(builder.finish());
            }
        }
        if let Some((left, object)) = open.last_mut() {
            *left -= 1;
            if *object {
                if unsigned(items)? != MEMBER {
                    return Err(LoadError::Malformed("a member is missing"));
                }
                builder.name(utf8(string(items)?)?);
            }
        }
        match unsigned(items)? {
            NULL => builder.null(),
            STRING => builder.string(utf8(string(items)?)?),
            NUMBER => match items.next() {
                Some(Item::Double(number)) if number.is_finite() => builder.double(number),
                _ => return Err(LoadError::Malformed("a finite number is missing")),
            },
            INTEGER => match items.next() {
                Some(Item::Signed(number)) => builder.int(number),
                _ => return Err(LoadError::Malformed("an integer is missing")),
            },
            BOOLEAN => builder.bool(string(items)? == b"1"),
            kind @ (OBJECT | ARRAY) => {
                if open.len() + 1 >= DEPTH_MAX {
                    return Err(LoadError::Malformed("containers in one another"));
                }
                open.push((unsigned(items)?, kind == OBJECT));
                if kind == OBJECT {
                    builder.begin_object();
                } else {
                    builder.begin_array();
                }
                continue;
            }
            _ => return Err(LoadError::Malformed("a node of an unknown kind")),
        }
        if open.is_empty() {
            return Ok(builder.finish());
        }
    }
}
