//! Reading strings whole.

use dunlin_resp::ReplyBuffer;

use crate::{
    command::{Args, Argument, Arity, Command, CommandResult, Flags, Group, KeySpec, Run},
    context::ReadContext,
};

pub(super) const GET: Command = Command {
    name: "get",
    summary: "Returns the string under a key.",
    since: "1.0.0",
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    run: Run::Read(get),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).accesses()],
    args: &[Argument::key("key")],
    ..Command::DEFAULT
};

fn get(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    match context.string(args.word())? {
        Some(value) => value.reply(reply),
        None => reply.null(),
    }
    Ok(())
}
