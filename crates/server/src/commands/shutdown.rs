//! SHUTDOWN.

use std::time::Duration;

use dunlin_engine::command::{
    Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, Run,
};
use dunlin_net::Next;
use dunlin_resp::ReplyBuffer;

use super::save;
use crate::{
    config::{Config, ShutdownFlags},
    executor::{Flow, Handler, ServerContext},
    shared::{Shared, Stop},
};

pub(super) const COMMANDS: &[Command] = &[SHUTDOWN];

const SHUTDOWN: Command = Command {
    name: "shutdown",
    summary: "Ends the server, with SAVE after a snapshot; clients that are being answered get shutdown-timeout to take their replies.",
    since: "1.0.0",
    group: Group::Server,
    complexity: "O(N) where N is the number of clients.",
    arity: Arity::AtLeast(1),
    run: Run::Host(&Handler(shutdown)),
    flags: Flags::ADMIN
        .and(Flags::NO_SCRIPT)
        .and(Flags::LOADING)
        .and(Flags::STALE)
        .and(Flags::NO_MULTI)
        .and(Flags::ALLOW_BUSY),
    args: &[
        Argument::one_of(
            "nosave_save",
            &[Argument::word("nosave", "NOSAVE"), Argument::word("save", "SAVE")],
        )
        .optional(),
        Argument::word("now", "NOW").since("7.0.0").optional(),
        Argument::word("force", "FORCE").since("7.0.0").optional(),
        Argument::word("abort", "ABORT").since("7.0.0").optional(),
    ],
    ..Command::DEFAULT
};

fn shutdown(context: &mut ServerContext<'_, '_>, args: &mut Args<'_>, _: &mut ReplyBuffer) -> CommandResult {
    let mut flags = ShutdownFlags::default();
    let mut abort = false;
    while let Some(word) = args.optional() {
        match word.to_ascii_lowercase().as_slice() {
            b"nosave" => flags.nosave = true,
            b"save" => flags.save = true,
            b"now" => flags.now = true,
            b"force" => flags.force = true,
            b"abort" => abort = true,
            _ => return Err(CommandError::Syntax),
        }
    }
    if (abort && flags != ShutdownFlags::default()) || (flags.save && flags.nosave) {
        return Err(CommandError::Syntax);
    }
    if abort {
        // A shutdown that has begun cannot be aborted: no client is served by then.
        return Err(CommandError::text("ERR No shutdown in progress."));
    }
    if !flags.nosave && (context.turn.inside.is_none() || context.shared.engine.keyspace.is_held_for_long()) {
        return Err(CommandError::Busy);
    }
    tracing::warn!("User requested shutdown by {}", context.session.client);
    let shared = context.shared;
    let saved = !saves(flags, shared)
        || save::alone(context, |exclusive| shared.save_last(exclusive, !flags.now))?.is_ok();
    if !saved && !flags.force {
        return Err(CommandError::text("ERR Errors trying to SHUTDOWN. Check logs."));
    }
    context.shared.stop(Stop { grace: grace(flags, context.executor.config.config()) });
    context.flow = Flow::Stop(Next::CloseAfterReply);
    Ok(())
}

/// Whether a snapshot is written before the end: when it is asked for, or there are save points; never of a
/// data set that is not loaded yet.
pub(crate) fn saves(flags: ShutdownFlags, shared: &Shared) -> bool {
    let wanted = flags.save || (!flags.nosave && !shared.config.current().save.is_empty());
    wanted && !shared.loading.is_active()
}

/// How long clients get to take their last replies.
pub(crate) fn grace(flags: ShutdownFlags, config: &Config) -> Duration {
    if flags.now { Duration::ZERO } else { Duration::from_secs(config.shutdown_timeout.into()) }
}
