//! Clocks and roles: TIME, ROLE.

use dunlin_engine::command::{Args, Arity, Command, CommandResult, Flags, Group, Run};
use dunlin_resp::ReplyBuffer;

use crate::{
    executor::{Handler, ServerContext},
    system::host::unix_us,
};

pub(super) const COMMANDS: &[Command] = &[ROLE, TIME];

const ROLE: Command = Command {
    name: "role",
    summary: "Returns the server's role in replication.",
    since: "2.8.12",
    group: Group::Server,
    arity: Arity::Exactly(1),
    run: Run::Host(&Handler(role)),
    flags: Flags::NO_SCRIPT
        .and(Flags::LOADING)
        .and(Flags::STALE)
        .and(Flags::FAST)
        .and(Flags::DANGEROUS)
        .and(Flags::ADMIN_CATEGORY),
    ..Command::DEFAULT
};

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

fn role(_: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    reply.array(3);
    reply.bulk(b"master");
    reply.integer(0);
    reply.array(0);
    Ok(())
}

fn time(_: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let now_us = unix_us();
    reply.array(2);
    reply.bulk_integer((now_us / 1_000_000) as i64);
    reply.bulk_integer((now_us % 1_000_000) as i64);
    Ok(())
}
