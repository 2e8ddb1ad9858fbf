//! Commands on a client's own connection.

use dunlin_engine::command::{
    Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, Run,
};
use dunlin_resp::ReplyBuffer;

use crate::executor::{Handler, ServerContext};

pub(super) const COMMANDS: &[Command] = &[PING];

const PING: Command = Command {
    name: "ping",
    summary: "Answers PONG, or the message it is given.",
    since: "1.0.0",
    group: Group::Connection,
    arity: Arity::AtLeast(1),
    run: Run::Host(&Handler(ping)),
    flags: Flags::FAST,
    args: &[Argument::string("message").optional()],
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    ..Command::DEFAULT
};

fn ping(_: &mut ServerContext<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    match args.optional() {
        _ if !args.is_empty() => return Err(CommandError::WrongArity("ping".to_owned())),
        Some(message) => reply.bulk(message),
        None => reply.simple("PONG"),
    }
    Ok(())
}
