//! MONITOR; what is shown and how is in [`crate::push::monitor`].

use dunlin_engine::command::{Args, Arity, Command, CommandError, CommandResult, Flags, Group, Run};
use dunlin_resp::ReplyBuffer;

use crate::{
    executor::{Handler, ServerContext},
    session::ClientFlags,
};

pub(super) const COMMANDS: &[Command] = &[MONITOR];

const MONITOR: Command = Command {
    name: "monitor",
    summary: "Shows every command that the server runs from now on, until RESET.",
    since: "1.0.0",
    group: Group::Server,
    arity: Arity::Exactly(1),
    run: Run::Host(&Handler(monitor)),
    flags: Flags::ADMIN.and(Flags::NO_SCRIPT).and(Flags::LOADING).and(Flags::STALE),
    ..Command::DEFAULT
};

fn monitor(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    if context.in_transaction {
        return Err(CommandError::text("ERR MONITOR isn't allowed for DENY BLOCKING client"));
    }
    let session = &mut *context.session;
    if !session.flags.has(ClientFlags::MONITOR) {
        session.flags.set(ClientFlags::MONITOR, true);
        session.client.listening.set(1);
        session.take_pushes();
        context.shared.monitor.join(&session.client);
    }
    reply.ok();
    Ok(())
}
