//! The commands of the server: connections, configuration, the process.

mod client;
mod command;
mod config;
mod connection;
mod debug;
#[cfg(test)]
mod documents;
mod eval;
mod info;
mod latency;
mod lolwut;
mod memory;
mod script;
mod shutdown;
mod slowlog;
mod time;

use dunlin_engine::command::{Args, Command, CommandResult, CommandTable, describe};
use dunlin_resp::ReplyBuffer;

use crate::executor::ServerContext;

/// The rows of all families.
const FAMILIES: &[&[Command]] = &[
    client::COMMANDS,
    command::COMMANDS,
    config::COMMANDS,
    connection::COMMANDS,
    debug::COMMANDS,
    eval::COMMANDS,
    info::COMMANDS,
    latency::COMMANDS,
    lolwut::COMMANDS,
    memory::COMMANDS,
    script::COMMANDS,
    shutdown::COMMANDS,
    slowlog::COMMANDS,
    time::COMMANDS,
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
