//! Commands on strings.

mod counter;
mod get;
mod set;

use crate::command::Command;

/// The rows of the family.
pub(super) const COMMANDS: &[Command] = &[get::GET, set::SET, counter::INCR];
