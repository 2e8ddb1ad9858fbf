//! Writing strings whole.

use dunlin_resp::ReplyBuffer;

use crate::{
    command::{Args, Argument, Arity, Command, CommandResult, Flags, Group, KeySpec, Run},
    context::{ExpiryChange, WriteContext},
    value::NewString,
};

pub(super) const SET: Command = Command {
    name: "set",
    summary: "Stores a string under a key, whatever the key held.",
    since: "1.0.0",
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::AtLeast(3),
    run: Run::Write(set),
    flags: Flags::DENY_OOM,
    keys: &[KeySpec::at(1).read_write().accesses().updates().inserts().varies()],
    args: &[Argument::key("key"), Argument::string("value")],
    ..Command::DEFAULT
};

fn set(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, value) = (args.word(), args.word());
    args.finish()?;
    context.set_string(key, NewString::from_text(value), ExpiryChange::Clear);
    reply.ok();
    Ok(())
}
