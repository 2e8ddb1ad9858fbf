//! MULTI, EXEC, DISCARD, WATCH, UNWATCH; what happens behind them is in [`crate::executor::transaction`].
//!
//! Texts and flags are those of redis-server 7.0.

use dunlin_engine::command::{
    Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run,
};
use dunlin_resp::ReplyBuffer;

use crate::{
    executor::{Handler, ServerContext, transaction::Executed},
    session::Replies,
};

pub(super) const COMMANDS: &[Command] = &[DISCARD, EXEC, MULTI, UNWATCH, WATCH];

const ALWAYS: Flags = Flags::NO_SCRIPT.and(Flags::LOADING).and(Flags::STALE);
const BRIEF: Flags = ALWAYS.and(Flags::FAST).and(Flags::ALLOW_BUSY);

const MULTI: Command = Command {
    name: "multi",
    summary: "Begins a transaction: commands are queued until EXEC.",
    since: "1.2.0",
    group: Group::Transactions,
    arity: Arity::Exactly(1),
    run: Run::Host(&Handler(multi)),
    flags: BRIEF.and(Flags::UNQUEUED),
    ..Command::DEFAULT
};

const EXEC: Command = Command {
    name: "exec",
    summary: "Runs the queued commands as one, unless a watched key has changed.",
    since: "1.2.0",
    group: Group::Transactions,
    complexity: "as the commands in the transaction",
    arity: Arity::Exactly(1),
    run: Run::Host(&Handler(exec)),
    flags: ALWAYS.and(Flags::SKIP_SLOWLOG).and(Flags::UNQUEUED).and(Flags::RUNS_QUEUE),
    ..Command::DEFAULT
};

const DISCARD: Command = Command {
    name: "discard",
    summary: "Ends a transaction without running anything, and stops watching keys.",
    since: "2.0.0",
    group: Group::Transactions,
    complexity: "O(n) in the number of queued commands",
    arity: Arity::Exactly(1),
    run: Run::Host(&Handler(discard)),
    flags: BRIEF.and(Flags::UNQUEUED),
    ..Command::DEFAULT
};

const WATCH: Command = Command {
    name: "watch",
    summary: "Makes the next transaction depend on these keys: if one changes, it does not happen.",
    since: "2.2.0",
    group: Group::Transactions,
    complexity: "O(n) in the number of keys",
    arity: Arity::AtLeast(2),
    run: Run::Host(&Handler(watch)),
    flags: BRIEF.and(Flags::UNQUEUED).and(Flags::WATCHES_KEYS),
    keys: &[KeySpec::at(1).through(-1, 1)],
    args: &[Argument::key("key").multiple()],
    ..Command::DEFAULT
};

const UNWATCH: Command = Command {
    name: "unwatch",
    summary: "Stops watching all keys.",
    since: "2.2.0",
    group: Group::Transactions,
    complexity: "O(n) in the number of watched keys",
    arity: Arity::Exactly(1),
    run: Run::Host(&Handler(unwatch)),
    flags: BRIEF,
    ..Command::DEFAULT
};

/// Why a transaction of which a command was refused is not run.
const ABORTED: CommandError =
    CommandError::text("EXECABORT Transaction discarded because of previous errors.");

type Context<'a, 'b, 'k> = &'a mut ServerContext<'b, 'k>;

fn multi(context: Context<'_, '_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    if context.session.queue.is_some() {
        return Err(CommandError::text("ERR MULTI calls can not be nested"));
    }
    context.executor.begin_queue(context.session);
    reply.ok();
    Ok(())
}

fn exec(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let queue = context.session.queue.take_if(|queue| !queue.aborted);
    let Some(queue) = queue else {
        let Some(queue) = &mut context.session.queue else {
            return Err(CommandError::text("ERR EXEC without MULTI"));
        };
        let redirection = queue.redirection.take().map(|line| CommandError::Text(line.into_vec().into()));
        context.executor.discard(context.session, context.turn.inside.as_ref());
        return Err(redirection.unwrap_or(ABORTED));
    };
    let (executor, session) = (&mut *context.executor, &mut *context.session);
    let replies = session.replies;
    match executor.execute_queue(context.shared, session, args.words(), queue, context.turn, reply)? {
        Executed::Done(flow) => context.flow = flow,
        Executed::Changed => reply.null_array(),
        Executed::Again => {
            context.flow = executor.hold(session);
            return Ok(());
        }
    }
    // CLIENT REPLY SKIP among the commands concerns the one after EXEC.
    context.session.pushed = replies != Replies::SkipNext && context.session.replies == Replies::SkipNext;
    Ok(())
}

fn discard(context: Context<'_, '_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    if context.session.queue.is_none() {
        return Err(CommandError::text("ERR DISCARD without MULTI"));
    }
    context.executor.discard(context.session, context.turn.inside.as_ref());
    reply.ok();
    Ok(())
}

fn watch(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    if context.session.queue.is_some() {
        return Err(CommandError::text("ERR WATCH inside MULTI is not allowed"));
    }
    let inside = context.turn.inside.as_ref().ok_or(CommandError::Busy)?;
    for key in args.take_rest() {
        context.executor.watch(context.session, key, inside)?;
    }
    reply.ok();
    Ok(())
}

fn unwatch(context: Context<'_, '_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    context.executor.unwatch(context.session, context.turn.inside.as_ref());
    reply.ok();
    Ok(())
}
