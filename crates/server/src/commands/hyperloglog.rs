//! PFSELFTEST: computes, but touches no key.

use dunlin_engine::{
    command::{Args, Arity, Command, CommandError, CommandResult, Flags, Group, Run},
    hyperloglog_self_test,
};
use dunlin_resp::ReplyBuffer;

use crate::executor::{Handler, ServerContext};

pub(super) const COMMANDS: &[Command] = &[PFSELFTEST];

const PFSELFTEST: Command = Command {
    name: "pfselftest",
    summary: "Checks the arithmetic of HyperLogLogs.",
    since: "2.8.9",
    group: Group::HyperLogLog,
    complexity: "O(1), about a tenth of a second",
    arity: Arity::Exactly(1),
    run: Run::Host(&Handler(self_test)),
    flags: Flags::ADMIN,
    ..Command::DEFAULT
};

fn self_test(_: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    hyperloglog_self_test().map_err(|error| CommandError::owned(format!("TESTFAILED {error}")))?;
    reply.ok();
    Ok(())
}
