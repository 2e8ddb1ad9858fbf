//! Snapshots on demand: SAVE, BGSAVE, LASTSAVE.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use dunlin_engine::{
    Environment, ExclusiveContext,
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, Run},
};
use dunlin_resp::ReplyBuffer;

use crate::{
    executor::{Handler, ServerContext},
    persistence::saving::SaveError,
    rdb::{CancelledSave, begin_save},
    shared::Shared,
};

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
    summary: "Writes the data set as it is now to the file that dbfilename names, while other commands run.",
    since: "1.0.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::AtLeast(1),
    run: Run::Host(&Handler(background_save)),
    flags: Flags::ADMIN.and(Flags::NO_SCRIPT).and(Flags::NO_ASYNC_LOADING),
    args: &[Argument::one_of(
        "operation",
        &[
            Argument::word("schedule", "SCHEDULE").since("3.2.2"),
            Argument::word("cancel", "CANCEL").since("8.1.0"),
        ],
    )
    .optional()],
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

/// Does some work behind the closed gate, in the client's stead; BUSY where a script has been running for long.
pub(super) fn alone<R>(
    context: &mut ServerContext<'_, '_>,
    work: impl FnOnce(&mut ExclusiveContext<'_>) -> R,
) -> Result<R, CommandError> {
    let engine = &context.shared.engine;
    let (environment, worker) =
        (Environment::new(&context.executor.policy, &context.executor.caller), &mut context.executor.worker);
    context.turn.inside = None;
    let result = engine.exclusively_unless_long(context.session.database, environment, worker, work);
    context.turn.inside = engine.keyspace.enter_unless_long(worker.id());
    result.ok_or(CommandError::Busy)
}

fn save(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let shared = context.shared;
    if shared.background_save().0.is_some() {
        return Err(CommandError::text("ERR Background save already in progress"));
    }
    alone(context, |exclusive| shared.save(exclusive))?
        .map_err(|reason| CommandError::owned(format!("ERR {reason}")))?;
    reply.ok();
    Ok(())
}

fn background_save(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let (schedule, cancel) = (args.token("SCHEDULE"), args.token("CANCEL"));
    args.finish()?;
    if schedule && cancel {
        return Err(CommandError::Syntax);
    }
    let shared = Arc::clone(&context.executor.shared);
    if cancel {
        reply.simple(match shared.cancel_save() {
            Some(CancelledSave::Current) => "Background saving cancelled",
            Some(CancelledSave::Scheduled) => "Scheduled background saving cancelled",
            None => {
                let text = "ERR Background saving is currently not in progress or scheduled";
                return Err(CommandError::text(text));
            }
        });
        return Ok(());
    }
    let is_alone = |shared: &Shared| shared.background_save().0.is_none();
    // A transaction holds locks that the cut would wait for.
    if context.in_transaction && is_alone(&shared) {
        shared.schedule_save();
        reply.simple("Background saving scheduled");
        return Ok(());
    }
    let begun = match context.in_transaction {
        true => Err(SaveError::InProgress),
        false => begin_save(&shared, |work| _ = alone(context, |exclusive| work(exclusive))),
    };
    match begun {
        Ok(()) => reply.simple("Background saving started"),
        Err(SaveError::Busy | SaveError::BlockedByScript) if schedule => {
            shared.schedule_save();
            reply.simple("Background saving scheduled");
        }
        Err(SaveError::InProgress) => {
            return Err(CommandError::text("ERR Background save already in progress"));
        }
        Err(SaveError::Busy) => {
            return Err(CommandError::text(
                "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in order to schedule a BGSAVE whenever possible.",
            ));
        }
        Err(SaveError::BlockedByScript) => return Err(CommandError::Busy),
        Err(SaveError::NoThread) => return Err(CommandError::text("ERR")),
        Err(SaveError::InUse(reason)) => return Err(CommandError::owned(format!("ERR {reason}"))),
    }
    Ok(())
}

fn last_save(
    context: &mut ServerContext<'_, '_>,
    _: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    reply.integer(context.shared.persistence.last_save_s.load(Relaxed) as i64);
    Ok(())
}
