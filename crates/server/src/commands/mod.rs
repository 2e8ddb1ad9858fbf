//! The commands of the server: connections, configuration, the process.

mod acl;
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
mod recorder;
mod replication;
mod save;
mod script;
mod shutdown;
mod slowlog;
mod time;
mod transaction;

use dunlin_engine::command::{Args, Command, CommandResult, CommandTable, describe};
use dunlin_resp::ReplyBuffer;

pub(crate) use self::client::describe as describe_client;
pub(crate) use self::durability::WITHOUT_LOG;
pub(crate) use self::eval::{Operands, operands};
use crate::{admission, executor::ServerContext};

/// The rows of all families.
const FAMILIES: &[&[Command]] = &[
    acl::COMMANDS,
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

/// `HELP` of any container: its subcommands, from the table.
fn help(context: &mut ServerContext<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let table = &context.shared.commands;
    let container = table.find(args.words()[0]).expect("the command that was found to run this");
    describe::write_help(table, container, reply);
    Ok(())
}
