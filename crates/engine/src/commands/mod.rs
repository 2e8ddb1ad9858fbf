//! The commands of the store, a module a family; each row stands beside its handler.

mod array;
mod bitmap;
pub mod debug;
mod draw;
mod expiry;
mod generic;
mod geo;
mod hash;
pub mod himport;
mod hyperloglog;
mod json;
mod list;
pub mod memory;
mod scan;
mod set;
pub mod slots;
mod sorted_set;
mod stream;
mod string;
mod timeout;

use crate::command::Command;

/// The rows of all families.
pub const FAMILIES: &[&[Command]] = &[
    array::COMMANDS,
    bitmap::COMMANDS,
    generic::COMMANDS,
    geo::COMMANDS,
    hash::COMMANDS,
    hyperloglog::COMMANDS,
    json::COMMANDS,
    list::COMMANDS,
    set::COMMANDS,
    sorted_set::COMMANDS,
    stream::COMMANDS,
    string::COMMANDS,
];
