//! MULTI, EXEC, DISCARD, WATCH, UNWATCH; what happens behind them is in [`crate::executor::transaction`].
//!
//! Texts and flags are those of redis-server 7.0; conditions of EXEC are of Valkey 9.2.

use dunlin_engine::{
    Condition,
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
};
use dunlin_resp::ReplyBuffer;

use crate::{
    executor::{
        Handler, ServerContext,
        transaction::{Executed, KeyCondition},
    },
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
    arity: Arity::AtLeast(1),
    run: Run::Host(&Handler(exec)),
    flags: ALWAYS.and(Flags::SKIP_SLOWLOG).and(Flags::UNQUEUED).and(Flags::RUNS_QUEUE),
    keys: &[
        KeySpec::found_by(key_of_condition::<0>).accesses(),
        KeySpec::found_by(key_of_condition::<1>).accesses(),
        KeySpec::found_by(key_of_condition::<2>).accesses(),
        KeySpec::found_by(key_of_condition::<3>).accesses(),
    ],
    args: &[Argument::one_of(
        "condition",
        &[
            Argument::block("equal", &[Argument::key("key"), Argument::string("value")]).after("IFEQ"),
            Argument::block("not-equal", &[Argument::key("key"), Argument::string("value")]).after("IFNE"),
            Argument::key("present-key").after("XX"),
            Argument::key("missing-key").after("NX"),
        ],
    )
    .optional()
    .multiple()
    .since("9.2.0")],
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

/// Conditions of an EXEC: its row says where the key of each is.
const CONDITIONS_MAX: usize = EXEC.keys.len();

/// The position of the key of a condition of EXEC among the words, by the number of the condition.
fn key_of_condition<const NUMBER: usize>(words: &[&[u8]]) -> Option<usize> {
    let mut at = 1;
    for _ in 0..NUMBER {
        at += 1 + operands_of_condition(words.get(at)?)?;
    }
    let operands = operands_of_condition(words.get(at)?)?;
    (at + operands < words.len()).then_some(at + 1)
}

/// How many words a condition takes behind its own.
fn operands_of_condition(word: &[u8]) -> Option<usize> {
    let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    if is("IFEQ") || is("IFNE") {
        Some(2)
    } else if is("XX") || is("NX") {
        Some(1)
    } else {
        None
    }
}

/// Reads the conditions of EXEC. The text of the error is Valkey's, as far as its tests show it.
fn conditions<'a>(args: &mut Args<'a>) -> Result<Vec<KeyCondition<'a>>, CommandError> {
    let mut conditions = Vec::new();
    while !args.is_empty() {
        let condition = if args.token_with("IFEQ", 2) {
            (args.word(), Condition::Equal(args.word()))
        } else if args.token_with("IFNE", 2) {
            (args.word(), Condition::NotEqual(args.word()))
        } else if args.token_with("XX", 1) {
            (args.word(), Condition::Present)
        } else if args.token_with("NX", 1) {
            (args.word(), Condition::Missing)
        } else {
            return Err(CommandError::text(
                "EXECABORT Transaction discarded because of: invalid check condition syntax",
            ));
        };
        conditions.push(condition);
    }
    if conditions.len() > CONDITIONS_MAX {
        let text =
            format!("EXECABORT Transaction discarded because of: more than {CONDITIONS_MAX} conditions");
        return Err(CommandError::owned(text));
    }
    Ok(conditions)
}

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
    let words = args.words();
    let conditions = conditions(args).inspect_err(|_| {
        // Nothing of it is left.
        context.executor.unwatch(context.session, context.turn.inside.as_ref());
    });
    let (executor, session) = (&mut *context.executor, &mut *context.session);
    let conditions = match conditions {
        Ok(conditions) => conditions,
        Err(error) => {
            executor.recycle_queue(queue);
            return Err(error);
        }
    };
    let replies = session.replies;
    let request = (words, &conditions[..]);
    match executor.execute_queue(context.shared, session, request, queue, context.turn, reply)? {
        Executed::Done(flow) => context.flow = flow,
        Executed::Refused(error) => return Err(error),
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
