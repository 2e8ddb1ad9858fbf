//! The commands of the server: connections, configuration, the process.

mod connection;

use dunlin_engine::command::Command;

/// The rows of all families.
pub(crate) const FAMILIES: &[&[Command]] = &[connection::COMMANDS];
