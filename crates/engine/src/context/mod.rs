//! The context of a running command: keys under lock, the time, limits, its worker.
//!
//! The type carries the permission: [`ReadContext`] has no way to change a value. All changes go
//! through [`WriteContext`], which counts them, so that every part that must learn of a change has
//! one place to stand.

mod environment;
mod exclusive;
mod keys;
mod keyspace;
mod read;
mod walk;
mod worker;
mod write;

use crate::{
    command::CommandError,
    keyspace::EntryRef,
    value::{Collection, StringRef},
};

pub use environment::{Caller, DatabaseLimits, Environment, EvictedKeys, Policy};
pub use exclusive::ExclusiveContext;
pub use keyspace::KeyspaceContext;
pub use read::ReadContext;
pub use walk::Host;
pub use worker::{BlockedByScript, Garbage, Worker};
pub use write::{Change, WriteContext};

/// The change of a key's expiry when its value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpiryChange {
    /// The expiry stays as it is.
    Keep,
    /// The expiry is removed.
    Clear,
    /// The expiry becomes this unix time in milliseconds.
    At(u64),
}

impl ExpiryChange {
    /// The expiry of a value that had `current`.
    #[inline]
    pub(crate) fn over(self, current: Option<u64>) -> Option<u64> {
        match self {
            Self::Keep => current,
            Self::Clear => None,
            Self::At(at) => Some(at),
        }
    }
}

/// The string of an entry; an error if it holds another type.
#[inline]
pub(crate) fn string_of(entry: EntryRef<'_>) -> Result<StringRef<'_>, CommandError> {
    if entry.is_object() { Err(CommandError::WrongType) } else { Ok(entry.string()) }
}

/// The collection of an entry; an error if it holds another type.
#[inline]
fn collection_of<T: Collection>(entry: EntryRef<'_>) -> Result<T::Ref<'_>, CommandError> {
    entry.object().and_then(T::of_ref).ok_or(CommandError::WrongType)
}
