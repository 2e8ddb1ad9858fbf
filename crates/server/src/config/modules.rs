//! The modules of Redis that the server announces (decision 0098).

use dunlin_engine::command::CommandTable;

/// A module of Redis as clients look for it.
pub(crate) struct Module {
    /// The name in MODULE LIST.
    pub(crate) name: &'static str,
    /// The version in Redis Stack 7.4, which clients compare with the one that they need.
    pub(crate) version: i64,
    /// The command that is there if the module's are.
    command: &'static str,
}

/// The modules whose commands clients look for (decision 0098).
const MODULES: &[Module] = &[
    Module { name: "ReJSON", version: 20808, command: "json.set" },
    Module { name: "bf", version: 20812, command: "bf.add" },
    Module { name: "search", version: 21020, command: "ft.search" },
    Module { name: "timeseries", version: 11205, command: "ts.add" },
    Module { name: "vectorset", version: 1, command: "vadd" },
];

/// The modules whose commands are there.
pub(crate) fn announced_modules(table: &CommandTable) -> impl Iterator<Item = &'static Module> {
    MODULES.iter().filter(|module| table.find_full(module.command.as_bytes()).is_some())
}
