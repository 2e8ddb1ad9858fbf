//! Clocks: TIME.

use dunlin_engine::command::{Args, Arity, Command, CommandResult, Flags, Group, Run};
use dunlin_resp::ReplyBuffer;

use crate::{
    executor::{Handler, ServerContext},
    system::host::unix_us,
};

pub(super) const COMMANDS: &[Command] = &[TIME];

const TIME: Command = Command {
    name: "time",
    summary: "Returns the server's clock: unix seconds, and microseconds into the second.",
    since: "2.6.0",
    group: Group::Server,
    arity: Arity::Exactly(1),
    run: Run::Host(&Handler(time)),
    flags: Flags::LOADING.and(Flags::STALE).and(Flags::FAST),
    tips: &["nondeterministic_output"],
    ..Command::DEFAULT
};

fn time(_: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let now_us = unix_us();
    reply.array(2);
    reply.bulk_integer((now_us / 1_000_000) as i64);
    reply.bulk_integer((now_us % 1_000_000) as i64);
    Ok(())
}
