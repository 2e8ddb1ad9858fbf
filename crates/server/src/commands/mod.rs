//! The commands of the server: connections, configuration, the process.

mod client;
mod command;
mod config;
mod connection;
mod debug;
#[cfg(test)]
mod documents;
mod hyperloglog;
mod info;
mod latency;
mod lolwut;
mod memory;
mod monitor;
mod persistence;
mod pubsub;
mod shutdown;
mod slowlog;
mod time;

use dunlin_engine::command::{Args, Command, CommandError, CommandResult, CommandTable, Entry, describe};
use dunlin_resp::ReplyBuffer;

use crate::{
    executor::ServerContext,
    session::{ClientFlags, Session},
};

/// The rows of all families.
const FAMILIES: &[&[Command]] = &[
    client::COMMANDS,
    command::COMMANDS,
    config::COMMANDS,
    connection::COMMANDS,
    debug::COMMANDS,
    hyperloglog::COMMANDS,
    info::COMMANDS,
    latency::COMMANDS,
    lolwut::COMMANDS,
    memory::COMMANDS,
    persistence::COMMANDS,
    monitor::COMMANDS,
    pubsub::COMMANDS,
    shutdown::COMMANDS,
    slowlog::COMMANDS,
    time::COMMANDS,
];

/// All commands: the store's and the server's.
pub(crate) fn table() -> CommandTable {
    CommandTable::new(&[dunlin_engine::commands::FAMILIES, FAMILIES].concat())
}

/// Refuses what a client may not do because of what it is doing: listening to messages that RESP2
/// cannot tell from replies, or watching others.
#[cold]
pub(crate) fn check_restrictions(session: &Session, entry: &Entry) -> CommandResult {
    if session.only_listens() {
        pubsub::check_listener(entry)?;
    }
    let command = entry.command;
    let uses_data = command.is_write() || command.is_read_only() || pubsub::is_publishing(entry);
    if session.flags.has(ClientFlags::MONITOR) && uses_data {
        return Err(CommandError::text("ERR Replica can't interact with the keyspace"));
    }
    Ok(())
}

/// `HELP` of any container: its subcommands, from the table.
fn help(context: &mut ServerContext<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let table = &context.shared.commands;
    let container = table.find(args.words()[0]).expect("the command that was found to run this");
    describe::write_help(table, container, reply);
    Ok(())
}
