//! SHUTDOWN.

use dunlin_engine::{
    OwnedWord,
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, Run},
};
use dunlin_net::Next;
use dunlin_resp::ReplyBuffer;

use super::save;
use crate::{
    config::ShutdownFlags,
    executor::{Flow, Handler, ServerContext},
    replicator::shutdown,
    session::{ClientFlags, IsHeard, OffloadedCommand, Replies},
    shared::Stop,
    workers::shutdown::ShutdownClient,
};

pub(super) const COMMANDS: &[Command] = &[SHUTDOWN];

const SHUTDOWN: Command = Command {
    name: "shutdown",
    summary: "Ends the server, with SAVE after a snapshot; replicas get shutdown-timeout to catch up, meanwhile ABORT calls it off. Clients get as long to take their replies.",
    since: "1.0.0",
    group: Group::Server,
    complexity: "O(N) where N is the number of clients.",
    arity: Arity::AtLeast(1),
    run: Run::Host(&Handler(shut_down)),
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

fn shut_down(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
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
        if !shutdown::abort(context.shared) {
            return Err(CommandError::text("ERR No shutdown in progress."));
        }
        reply.ok();
        return Ok(());
    }
    if !flags.nosave && (context.turn.inside.is_none() || context.shared.engine.keyspace.is_held_for_long()) {
        return Err(CommandError::Busy);
    }
    tracing::warn!("User requested shutdown by {}", context.session.client);
    let shared = context.shared;
    if shutdown::waits(flags, shared) {
        return wait_for_replicas(context, args, flags);
    }
    let grace = shutdown::grace(flags, context.executor.config.config());
    let saved = !shutdown::saves(flags, shared)
        || save::alone(context, |exclusive| shared.save_last(exclusive, !grace.is_zero()))?.is_ok();
    if !saved && !flags.force {
        return Err(CommandError::text(shutdown::NOT_SHUT_DOWN));
    }
    context.shared.stop(Stop::within(grace));
    context.flow = Flow::Stop(Next::CloseAfterReply);
    Ok(())
}

/// Leaves the rest to another thread, which answers the client if the server goes on.
fn wait_for_replicas(
    context: &mut ServerContext<'_, '_>,
    args: &Args<'_>,
    flags: ShutdownFlags,
) -> CommandResult {
    let (wait, is_mine) = shutdown::begin(context.shared, flags);
    let address = context.session.client.address;
    let words = args.words().iter().map(|word| OwnedWord::Short(Box::from(*word))).collect();
    wait.join(ShutdownClient { address, words }).map_err(|_| CommandError::text(shutdown::NOT_SHUT_DOWN))?;
    if is_mine && let Err(error) = shutdown::start(&context.executor.shared, wait, flags) {
        tracing::error!("cannot start a thread: {error}");
        shutdown::abort(context.shared);
    }
    let session = &mut *context.session;
    let is_heard = IsHeard(session.replies == Replies::On);
    session.offloaded = Some(OffloadedCommand { is_heard, is_decided: false });
    session.flags.set(ClientFlags::BLOCKED, true);
    context.flow = Flow::Stop(Next::Await);
    Ok(())
}
