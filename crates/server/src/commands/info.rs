//! INFO.

use dunlin_engine::command::{Args, Argument, Arity, Command, CommandResult, Flags, Group, Run};
use dunlin_resp::ReplyBuffer;

use crate::{
    executor::{Handler, ServerContext},
    info::{Reading, render},
};

pub(super) const COMMANDS: &[Command] = &[INFO];

const INFO: Command = Command {
    name: "info",
    summary: "Returns the state of the server, its memory, its clients and its work, in sections.",
    since: "1.0.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::AtLeast(1),
    run: Run::Host(&Handler(info)),
    flags: Flags::LOADING.and(Flags::STALE).and(Flags::DANGEROUS).and(Flags::WHOLE_KEYSPACE),
    args: &[Argument::string("section").optional().multiple()],
    tips: &["nondeterministic_output", "request_policy:all_shards", "response_policy:special"],
    ..Command::DEFAULT
};

fn info(context: &mut ServerContext<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let now_ms = context.executor.caller.now_ms;
    let reading = Reading::new(context.shared, context.executor.config.config(), now_ms);
    reply.verbatim(b"txt", render(&reading, args.take_rest()).as_bytes());
    Ok(())
}
