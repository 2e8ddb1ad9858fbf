//! Snapshots on demand: SAVE, BGSAVE, LASTSAVE.

use std::sync::atomic::Ordering::Relaxed;

use dunlin_engine::{
    ExclusiveContext,
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, Run},
};
use dunlin_resp::ReplyBuffer;

use crate::executor::{Handler, ServerContext};

pub(super) const COMMANDS: &[Command] = &[BGSAVE, LASTSAVE, SAVE];

const SAVE: Command = Command {
    name: "save",
    summary: "Writes the data set to the file that dbfilename names. No other command runs meanwhile.",
    since: "1.0.0",
    group: Group::Server,
    complexity: "O(n) in the number of keys",
    arity: Arity::Exactly(1),
    run: Run::Host(&Handler(save)),
    flags: Flags::ADMIN.and(Flags::NO_SCRIPT).and(Flags::NO_MULTI).and(Flags::NO_ASYNC_LOADING),
    ..Command::DEFAULT
};

const BGSAVE: Command = Command {
    name: "bgsave",
    summary: "Would write the data set while other commands run; this version can only SAVE, and says so.",
    since: "1.0.0",
    group: Group::Server,
    arity: Arity::AtLeast(1),
    run: Run::Host(&Handler(background_save)),
    flags: Flags::ADMIN.and(Flags::NO_SCRIPT).and(Flags::NO_ASYNC_LOADING),
    args: &[Argument::word("schedule", "SCHEDULE").since("3.2.2").optional()],
    ..Command::DEFAULT
};

const LASTSAVE: Command = Command {
    name: "lastsave",
    summary: "Returns the unix time of the last snapshot, of the server's start where there was none since.",
    since: "1.0.0",
    group: Group::Server,
    arity: Arity::Exactly(1),
    run: Run::Host(&Handler(last_save)),
    flags: Flags::LOADING.and(Flags::STALE).and(Flags::FAST).and(Flags::DANGEROUS).and(Flags::ADMIN_CATEGORY),
    tips: &["nondeterministic_output"],
    ..Command::DEFAULT
};

/// Does some work behind the closed gate, in the client's stead.
pub(super) fn alone<R>(
    context: &mut ServerContext<'_, '_>,
    work: impl FnOnce(&mut ExclusiveContext<'_>) -> R,
) -> R {
    let engine = &context.shared.engine;
    let (environment, worker) = (&context.executor.environment, &mut context.executor.worker);
    *context.inside = None;
    let result = engine.exclusively(context.session.database, environment, worker, work);
    *context.inside = Some(engine.keyspace.enter(worker.id()));
    result
}

fn save(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let shared = context.shared;
    alone(context, |exclusive| shared.save(exclusive))
        .map_err(|reason| CommandError::owned(format!("ERR {reason}")))?;
    reply.ok();
    Ok(())
}

fn background_save(_: &mut ServerContext<'_, '_>, args: &mut Args<'_>, _: &mut ReplyBuffer) -> CommandResult {
    args.token("SCHEDULE");
    args.finish()?;
    Err(CommandError::text("ERR BGSAVE is not available in this version: use SAVE"))
}

fn last_save(
    context: &mut ServerContext<'_, '_>,
    _: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    reply.integer(context.shared.persistence.last_save_s.load(Relaxed) as i64);
    Ok(())
}
