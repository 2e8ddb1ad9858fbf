//! The commands of the server: connections, configuration, the process.

mod client;
mod cluster;
mod command;
mod config;
mod connection;
mod debug;
#[cfg(test)]
mod documents;
mod durability;
mod eval;
mod function;
mod hot_keys;
mod hyperloglog;
mod info;
mod latency;
mod lolwut;
mod memory;
mod module;
mod monitor;
mod pubsub;
mod replication;
mod save;
mod script;
mod shutdown;
mod slowlog;
mod time;
mod transaction;

use dunlin_engine::command::{Args, Command, CommandError, CommandResult, CommandTable, Entry, describe};
use dunlin_resp::ReplyBuffer;

pub(crate) use self::durability::WITHOUT_LOG;
pub(crate) use self::eval::{Operands, operands};
use crate::{
    executor::ServerContext,
    session::{ClientFlags, Session},
};

/// The rows of all families.
const FAMILIES: &[&[Command]] = &[
    client::COMMANDS,
    cluster::COMMANDS,
    command::COMMANDS,
    config::COMMANDS,
    connection::COMMANDS,
    debug::COMMANDS,
    eval::COMMANDS,
    function::COMMANDS,
    hot_keys::COMMANDS,
    hyperloglog::COMMANDS,
    durability::COMMANDS,
    info::COMMANDS,
    latency::COMMANDS,
    lolwut::COMMANDS,
    memory::COMMANDS,
    module::COMMANDS,
    monitor::COMMANDS,
    pubsub::COMMANDS,
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
    CommandTable::new(&[dunlin_engine::commands::FAMILIES, FAMILIES].concat())
}

/// Whether the command may change the data set, or the commands that it runs.
pub(crate) fn writes(session: &Session, entry: &Entry) -> bool {
    let runs_writes =
        || entry.command.name == "exec" && session.queue.as_ref().is_some_and(|queue| queue.writes);
    entry.command.may_write() || runs_writes()
}

/// Whether the command changes the data set, or what is told to others as changes are.
pub(crate) fn is_held_with_writes(session: &Session, entry: &Entry) -> bool {
    writes(session, entry) || pubsub::is_publishing(entry)
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
