//! JSON.*: commands on JSON documents, with paths of both dialects, as RedisJSON answers them.
//!
//! ```text
//! words ──▶ path (compiled once, cached) ──▶ dunlin_json::operations on the document ──▶ answer ──▶ RESP2 or RESP3
//! ```
//!
//! A command that would read or make much is offloaded (decision 0013): readers run on a view, writers compute a changed
//! clone of the document beside the others. A clone shares all blocks but those that it changes.

mod arrays;
mod debug;
mod expand;
mod numbers;
mod paths;
mod read;
mod reply;
mod set;
#[cfg(test)]
mod tests;
mod write;

use dunlin_json::operations::Refusal;

use crate::{
    command::{Command, CommandError},
    keyspace::EntryRef,
    value::{CollectionRef, Json},
};

/// The rows of the family.
pub(super) const COMMANDS: &[Command] = &[
    arrays::ARRAPPEND,
    arrays::ARRINDEX,
    arrays::ARRINSERT,
    arrays::ARRLEN,
    arrays::ARRPOP,
    arrays::ARRTRIM,
    set::CLEAR,
    debug::DEBUG,
    set::DEL,
    set::FORGET,
    read::GET,
    set::MERGE,
    read::MGET,
    set::MSET,
    numbers::NUMINCRBY,
    numbers::NUMMULTBY,
    numbers::NUMPOWBY,
    read::OBJKEYS,
    read::OBJLEN,
    read::RESP,
    set::SET,
    numbers::STRAPPEND,
    read::STRLEN,
    numbers::TOGGLE,
    read::TYPE,
];

/// Bytes of a document or a text that take about as long as a visit to an element of a collection.
const BYTES_PER_ELEMENT: usize = 16;

const NO_SUCH_KEY: CommandError =
    CommandError::text("ERR could not perform this operation on a key that doesn't exist");
const NOT_AT_THE_ROOT: CommandError = CommandError::text("ERR new objects must be created at the root");

/// The error of a refused operation.
fn refused(refusal: impl Into<Refusal>) -> CommandError {
    CommandError::owned(refusal.into().to_string())
}

/// The document of an entry.
fn json_of(entry: EntryRef<'_>) -> Option<CollectionRef<'_, Json>> {
    entry.object().and_then(CollectionRef::of)
}

/// Reads an integer as RedisJSON does.
fn integer(word: &[u8]) -> Result<i64, CommandError> {
    let number = std::str::from_utf8(word).ok().and_then(|word| word.parse().ok());
    number.ok_or(CommandError::text("Couldn't parse as integer"))
}
