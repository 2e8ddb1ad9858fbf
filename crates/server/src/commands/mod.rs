//! The commands of the server: connections, configuration, the process.

mod acl;
mod backup;
mod client;
mod cluster;
mod command;
mod config;
mod connection;
mod debug;
#[cfg(test)]
mod differences;
#[cfg(test)]
mod documents;
mod durability;
mod eval;
mod function;
mod himport;
mod hot_keys;
mod hyperloglog;
mod info;
mod latency;
mod lolwut;
mod memory;
mod migrate;
mod module;
mod monitor;
mod pubsub;
mod recorder;
mod replication;
mod save;
mod script;
mod shutdown;
mod slowlog;
mod time;
mod transaction;

use dunlin_engine::command::{Args, Command, CommandResult, CommandTable, RenameError, describe};
use dunlin_resp::ReplyBuffer;

use crate::{admission, config::Config, executor::ServerContext};

/// The rows of all families.
const FAMILIES: &[&[Command]] = &[
    acl::COMMANDS,
    backup::COMMANDS,
    client::COMMANDS,
    cluster::COMMANDS,
    command::COMMANDS,
    config::COMMANDS,
    connection::COMMANDS,
    debug::COMMANDS,
    eval::COMMANDS,
    function::COMMANDS,
    himport::COMMANDS,
    hot_keys::COMMANDS,
    hyperloglog::COMMANDS,
    durability::COMMANDS,
    info::COMMANDS,
    latency::COMMANDS,
    lolwut::COMMANDS,
    memory::COMMANDS,
    migrate::COMMANDS,
    module::COMMANDS,
    monitor::COMMANDS,
    pubsub::COMMANDS,
    recorder::COMMANDS,
    replication::COMMANDS,
    save::COMMANDS,
    script::COMMANDS,
    shutdown::COMMANDS,
    slowlog::COMMANDS,
    time::COMMANDS,
    transaction::COMMANDS,
];

/// All commands: the store's and the server's.
pub(crate) fn table() -> CommandTable {
    let mut table = CommandTable::new(&[dunlin_engine::commands::FAMILIES, FAMILIES].concat());
    table.set_concerns(admission::concerns);
    table
}

/// All commands, as a configuration has clients call them. The error is a line for the operator.
pub(crate) fn table_of(config: &Config) -> Result<CommandTable, String> {
    let mut table = table();
    for line in &config.renames {
        let (name, other) = (line.name.escape_ascii(), line.other.escape_ascii());
        table.rename(&line.name, &line.other).map_err(|error| match error {
            RenameError::Unknown => format!("{}: rename-command {name}: there is no such command", line.origin),
            RenameError::Taken => {
                format!("{}: rename-command {name}: {other} is the name of a command", line.origin)
            }
            RenameError::Unusable => {
                format!("{}: rename-command {name}: {other} cannot be a name: it takes 255 visible characters at most", line.origin)
            }
        })?;
    }
    Ok(table)
}

/// `HELP` of any container: its subcommands, from the table.
fn help(context: &mut ServerContext<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let table = &context.shared.commands;
    let container = table.find_row(args.words()[0]).expect("the command that was found to run this");
    describe::write_help(table, container, reply);
    Ok(())
}
