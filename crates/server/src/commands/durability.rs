//! BGREWRITEAOF, WAIT and WAITAOF: what clients ask of durability.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin_engine::command::{
    Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, Run,
};
use dunlin_net::Next;
use dunlin_resp::{ReplyBuffer, number::parse_integer};

use super::save::alone;
use crate::{
    aof::begin_rewrite,
    executor::{Flow, Handler, ServerContext, WITHOUT_LOG},
    persistence::saving::SaveError,
    session::DurabilityWait,
};

pub(super) const COMMANDS: &[Command] = &[BGREWRITEAOF, WAIT, WAITAOF];

const BGREWRITEAOF: Command = Command {
    name: "bgrewriteaof",
    summary: "Replaces the append-only files by shorter ones that make the same data set, in the background.",
    since: "1.0.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(1),
    run: Run::Host(&Handler(bgrewriteaof)),
    flags: Flags::ADMIN.and(Flags::NO_SCRIPT).and(Flags::NO_ASYNC_LOADING),
    ..Command::DEFAULT
};

fn bgrewriteaof(
    context: &mut ServerContext<'_, '_>,
    _: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let shared = Arc::clone(&context.executor.shared);
    let is_alone = shared.durability.rewriting().current.is_none();
    let begun = match context.in_transaction {
        // A transaction holds locks that the cut would wait for.
        true if is_alone => Err(SaveError::Busy),
        true => Err(SaveError::InProgress),
        false => begin_rewrite(&shared, |work| _ = alone(context, |exclusive| work(exclusive))),
    };
    match begun {
        Ok(()) => reply.simple("Background append only file rewriting started"),
        Err(SaveError::Busy | SaveError::BlockedByScript) => {
            shared.durability.rewriting().scheduled = true;
            reply.simple("Background append only file rewriting scheduled");
        }
        Err(SaveError::InProgress) => {
            let text = "ERR Background append only file rewriting already in progress";
            return Err(CommandError::text(text));
        }
        Err(SaveError::NoThread) => {
            return Err(CommandError::text(
                "ERR Can't execute an AOF background rewriting. Please check the server logs for more information.",
            ));
        }
        Err(SaveError::InUse(reason)) => return Err(CommandError::owned(format!("ERR {reason}"))),
    }
    Ok(())
}

const WAIT: Command = Command {
    name: "wait",
    summary: "Waits until a number of replicas have what the client has written, and answers how many do.",
    since: "3.0.0",
    group: Group::Generic,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    run: Run::Host(&Handler(wait)),
    flags: Flags::NO_SCRIPT.and(Flags::BLOCKING).and(Flags::CONNECTION),
    args: &[Argument::integer("numreplicas"), Argument::integer("timeout")],
    tips: &["request_policy:all_shards", "response_policy:agg_min"],
    ..Command::DEFAULT
};

const WAITAOF: Command = Command {
    name: "waitaof",
    summary: "Waits until what the client has written is durable in the append-only files of this server and of a number of replicas, and answers in how many it is.",
    since: "7.2.0",
    group: Group::Generic,
    complexity: "O(1)",
    arity: Arity::Exactly(4),
    run: Run::Host(&Handler(waitaof)),
    flags: Flags::BLOCKING.and(Flags::CONNECTION),
    args: &[Argument::integer("numlocal"), Argument::integer("numreplicas"), Argument::integer("timeout")],
    tips: &["request_policy:all_shards", "response_policy:agg_min"],
    ..Command::DEFAULT
};

/// Reads a timeout in milliseconds, 0 for none. The moment when it ends must be one that a clock can show.
fn timeout(args: &mut Args<'_>, now_ms: u64) -> Result<u64, CommandError> {
    let timeout = parse_integer(args.word())
        .ok_or(CommandError::text("ERR timeout is not an integer or out of range"))?;
    let timeout_ms = u64::try_from(timeout).map_err(|_| CommandError::text("ERR timeout is negative"))?;
    if timeout_ms > i64::MAX as u64 - now_ms {
        return Err(CommandError::text("ERR timeout is out of range"));
    }
    Ok(timeout_ms)
}

fn wait(context: &mut ServerContext<'_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    if context.shared.replication.is_replica() {
        return Err(CommandError::text(
            "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is configured to be writable (which is not the default) writes to replicas are just local and are not propagated.",
        ));
    }
    let replicas = args.integer();
    args.check()?;
    let timeout_ms = timeout(args, context.executor.caller.now_ms)?;
    let wanted = DurabilityWait {
        mark: recorded_to(context),
        local: false,
        replicas: u64::try_from(replicas).unwrap_or(0),
        counts_local: false,
    };
    wait_for(context, wanted, timeout_ms, reply);
    Ok(())
}

fn waitaof(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    if context.shared.replication.is_replica() {
        return Err(CommandError::text(
            "ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas are just local and are not propagated.",
        ));
    }
    let out_of_range = CommandError::text("ERR value is out of range, value must between 0 and 1");
    let not_positive = CommandError::text("ERR value is out of range, must be positive");
    let local = args.integer();
    args.check()?;
    if !(0..=1).contains(&local) {
        return Err(out_of_range);
    }
    let replicas = args.integer_in(0..=i64::MAX, not_positive);
    args.check()?;
    let timeout_ms = timeout(args, context.executor.caller.now_ms)?;
    if local > 0 && !context.executor.config.config().appendonly {
        return Err(CommandError::text(WITHOUT_LOG));
    }
    let wanted = DurabilityWait {
        mark: recorded_to(context),
        local: local > 0,
        replicas: replicas.unsigned_abs(),
        counts_local: true,
    };
    wait_for(context, wanted, timeout_ms, reply);
    Ok(())
}

/// The log's offset behind all that the client has changed: by this worker, or by another one that has served it.
fn recorded_to(context: &ServerContext<'_, '_>) -> u64 {
    context.executor.worker.propagation.logged_to().max(context.session.served_to)
}

/// Answers at once if nothing has to be waited for, or may be.
fn wait_for(
    context: &mut ServerContext<'_, '_>,
    wanted: DurabilityWait,
    timeout_ms: u64,
    reply: &mut ReplyBuffer,
) {
    let executor = &mut *context.executor;
    if executor.caller.deny_blocking || executor.is_fulfilled(&wanted) {
        return executor.answer_durability(&wanted, reply);
    }
    let until = (timeout_ms > 0).then(|| Instant::now().checked_add(Duration::from_millis(timeout_ms)));
    context.flow = Flow::Stop(Next::Park { until: until.flatten() });
    executor.await_durability(context.session, wanted);
}
