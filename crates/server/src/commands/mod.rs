//! The commands of the server: connections, configuration, the process.

mod client;
mod command;
mod connection;
#[cfg(test)]
mod documents;
mod info;
mod latency;
mod slowlog;

use dunlin_engine::command::{Args, Command, CommandResult, CommandTable, describe};
use dunlin_resp::ReplyBuffer;

use crate::executor::ServerContext;

/// The rows of all families.
const FAMILIES: &[&[Command]] = &[
    client::COMMANDS,
    command::COMMANDS,
    connection::COMMANDS,
    info::COMMANDS,
    latency::COMMANDS,
    slowlog::COMMANDS,
];

/// All commands: the store's and the server's.
pub(crate) fn table() -> CommandTable {
    CommandTable::new(&[dunlin_engine::commands::FAMILIES, FAMILIES].concat())
}

/// `HELP` of any container: its subcommands, from the table.
fn help(context: &mut ServerContext<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let table = &context.shared.commands;
    let container = table.find(args.words()[0]).expect("the command that was found to run this");
    describe::write_help(table, container, reply);
    Ok(())
}
