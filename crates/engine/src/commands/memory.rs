//! The part of MEMORY that looks at keys; the host completes the container with its knowledge of
//! the process.

use dunlin_resp::ReplyBuffer;

use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::ReadContext,
};

/// `MEMORY USAGE`, to be listed among the subcommands of the host's MEMORY.
pub const USAGE: Command = Command {
    name: "usage",
    summary: "Returns the bytes that a key and its value take.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "O(N) where N is the number of samples.",
    arity: Arity::AtLeast(3),
    run: Run::Read(usage),
    flags: Flags::NONE,
    keys: &[KeySpec::at(2)],
    args: &[Argument::key("key"), Argument::integer("count").after("SAMPLES").optional()],
    ..Command::DEFAULT
};

/// Sizes are known exactly, so that the number of samples is checked and makes no difference.
fn usage(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    while !args.is_empty() {
        if !args.token_with("SAMPLES", 1) {
            return Err(CommandError::Syntax);
        }
        let samples = args.integer();
        args.check()?;
        if samples < 0 {
            return Err(CommandError::Syntax);
        }
    }
    match context.memory_bytes(key) {
        Some(bytes) => reply.count(bytes),
        None => reply.null(),
    }
    Ok(())
}
