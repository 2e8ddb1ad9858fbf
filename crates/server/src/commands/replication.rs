//! REPLICAOF, SLAVEOF, FAILOVER, ROLE, and what replicas say to their primary: REPLCONF, PSYNC, SYNC.

use std::sync::{Arc, atomic::Ordering::SeqCst};

use dunlin_engine::command::{
    Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, Run,
};
use dunlin_replication::{FailoverOptions, Phase};
use dunlin_resp::{ReplyBuffer, number::parse_integer};

use crate::{
    config::{PrimaryAddress, is_host},
    executor::{Handler, ServerContext},
    replication::{ReplicaClient, RoleOrder, Wanted},
    replicator,
    session::Replies,
    shared::Shared,
    system::host::monotonic_ms,
};

pub(super) const COMMANDS: &[Command] = &[FAILOVER, PSYNC, REPLCONF, REPLICAOF, ROLE, SLAVEOF, SYNC];

const REPLICAOF: Command = Command {
    name: "replicaof",
    summary: "Makes the server a replica of another one, or a primary.",
    since: "5.0.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    run: Run::Host(&Handler(replicaof)),
    flags: Flags::ADMIN.and(Flags::NO_SCRIPT).and(Flags::STALE).and(Flags::NO_ASYNC_LOADING),
    args: &[Argument::word("host", ""), Argument::word("port", "")],
    ..Command::DEFAULT
};

const SLAVEOF: Command = Command {
    name: "slaveof",
    summary: "Makes the server a replica of another one, or a primary.",
    since: "1.0.0",
    ..REPLICAOF
};

const FAILOVER: Command = Command {
    name: "failover",
    summary: "Hands over to a replica: pauses writes, waits until it has all, and follows it.",
    since: "6.2.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::AtLeast(1),
    run: Run::Host(&Handler(failover)),
    flags: Flags::ADMIN.and(Flags::NO_SCRIPT).and(Flags::STALE),
    args: &[
        Argument::block(
            "target",
            &[
                Argument::string("host"),
                Argument::integer("port"),
                Argument::word("force", "FORCE").optional(),
            ],
        )
        .after("TO")
        .optional(),
        Argument::word("abort", "ABORT").optional(),
        Argument::integer("milliseconds").after("TIMEOUT").optional(),
    ],
    ..Command::DEFAULT
};

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

const REPLCONF: Command = Command {
    name: "replconf",
    summary: "Used by replicas: what they are, and how far.",
    since: "3.0.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::AtLeast(1),
    run: Run::Host(&Handler(replconf)),
    flags: Flags::ADMIN
        .and(Flags::NO_SCRIPT)
        .and(Flags::LOADING)
        .and(Flags::STALE)
        .and(Flags::ALLOW_BUSY)
        .and(Flags::UNPAUSED),
    ..Command::DEFAULT
};

const PSYNC: Command = Command {
    name: "psync",
    summary: "Used by replicas: asks for the stream behind an offset.",
    since: "2.8.0",
    group: Group::Server,
    arity: Arity::AtLeast(3),
    run: Run::Host(&Handler(psync)),
    flags: Flags::ADMIN.and(Flags::NO_SCRIPT).and(Flags::NO_MULTI).and(Flags::NO_ASYNC_LOADING),
    args: &[Argument::word("replicationid", ""), Argument::integer("offset")],
    ..Command::DEFAULT
};

const SYNC: Command = Command {
    name: "sync",
    summary: "Used by replicas and tools: asks for a snapshot and the stream behind it.",
    since: "1.0.0",
    group: Group::Server,
    arity: Arity::Exactly(1),
    run: Run::Host(&Handler(sync)),
    flags: Flags::ADMIN.and(Flags::NO_SCRIPT).and(Flags::NO_MULTI).and(Flags::NO_ASYNC_LOADING),
    ..Command::DEFAULT
};

fn replicaof(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    if context.shared.cluster.is_on() {
        return Err(CommandError::text("ERR REPLICAOF not allowed in cluster mode."));
    }
    let (host, port) = (args.word(), args.word());
    args.finish()?;
    let is_no_one = host.eq_ignore_ascii_case(b"no") && port.eq_ignore_ascii_case(b"one");
    let primary = match is_no_one {
        true => None,
        false => {
            let port = parse_integer(port).and_then(|port| u16::try_from(port).ok());
            let port = port.ok_or(CommandError::text("ERR Invalid master port"))?;
            let host =
                std::str::from_utf8(host).map_err(|_| CommandError::text("ERR Invalid master host"))?;
            if host.is_empty() || !is_host(host) {
                return Err(CommandError::text("ERR Invalid master host"));
            }
            Some(PrimaryAddress { host: host.to_owned(), port })
        }
    };
    let shared = context.shared;
    if let Some(order) = awaited_order(context) {
        if await_order(context, order) {
            reply.ok();
        }
        return Ok(());
    }
    if shared.replication.is_failing_over() {
        return Err(CommandError::text("ERR REPLICAOF not allowed while failing over."));
    }
    let current = context.executor.newest_config().replicaof.clone();
    let is_stopped = shared.replication.link().stopped.is_some();
    if primary.is_some() && primary == current && !is_stopped {
        reply.simple("OK Already connected to specified master");
        return Ok(());
    }
    if primary.is_none() && current.is_none() {
        reply.ok();
        return Ok(());
    }
    shared.config.follow(primary.clone());
    let follow = |primary| RoleOrder::Follow { primary, hands_over: false };
    let order = shared.replication.order(primary.map_or(RoleOrder::Promote, follow));
    // Inside of a transaction, whose locks the change may need, it comes right behind.
    if !context.in_transaction {
        context.session.role_order = Some(order);
        if !await_order(context, order) {
            return Ok(());
        }
    }
    reply.ok();
    Ok(())
}

/// The order that the command has given when it was presented before.
fn awaited_order(context: &ServerContext<'_, '_>) -> Option<u64> {
    context.session.held_since.and(context.session.role_order)
}

/// Presents the command again until the role has changed, which takes a load's time if one has to be given up. The
/// worker serves its other clients meanwhile. Returns whether it has changed.
fn await_order(context: &mut ServerContext<'_, '_>, order: u64) -> bool {
    let is_carried_out = context.shared.replication.is_carried_out(order);
    match is_carried_out {
        true => context.session.role_order = None,
        false => context.flow = context.executor.hold(context.session),
    }
    is_carried_out
}

fn failover(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    if context.shared.cluster.is_on() {
        return Err(CommandError::text(
            "ERR FAILOVER not allowed in cluster mode. Use CLUSTER FAILOVER command instead.",
        ));
    }
    let (mut options, is_alone) = (FailoverOptions::default(), args.remaining() == 1);
    let mut aborts = false;
    while let Some(option) = args.optional() {
        let is = |name: &[u8]| option.eq_ignore_ascii_case(name);
        if is(b"abort") && is_alone {
            aborts = true;
        } else if is(b"timeout") && args.remaining() >= 1 && options.timeout_ms.is_none() {
            let timeout_ms = parse_integer(args.word()).ok_or(CommandError::NotInteger)?;
            let timeout_ms = u64::try_from(timeout_ms).ok().filter(|timeout_ms| *timeout_ms > 0);
            let refusal = CommandError::text("ERR FAILOVER timeout must be greater than 0");
            options.timeout_ms = Some(timeout_ms.ok_or(refusal)?);
        } else if is(b"to") && args.remaining() >= 2 && options.target.is_none() {
            let host = String::from_utf8_lossy(args.word()).into_owned();
            let port = parse_integer(args.word()).ok_or(CommandError::NotInteger)?;
            // No replica listens on what is not a port.
            options.target = Some((host, u16::try_from(port).unwrap_or(0)));
        } else if is(b"force") && !options.force {
            options.force = true;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    match aborts {
        true => replicator::abort_failover(context.shared)?,
        false => replicator::begin_failover(context.shared, options)?,
    }
    reply.ok();
    Ok(())
}

fn role(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let shared = context.shared;
    let replication = &shared.replication;
    let offset = replication.offset(shared.durability.tail()) as i64;
    if replication.is_replica() {
        let link = replication.link().clone();
        let config = context.executor.newest_config();
        let primary = link.primary.or_else(|| config.replicaof.clone());
        reply.array(5);
        reply.bulk(b"slave");
        reply.bulk(primary.as_ref().map_or("", |primary| &primary.host).as_bytes());
        reply.integer(primary.as_ref().map_or(0, |primary| primary.port).into());
        reply.bulk(link.state.name().as_bytes());
        reply.integer(if replication.backlog(0).is_some() { offset } else { -1 });
        return Ok(());
    }
    let replicas: Vec<_> = replication
        .replicas()
        .into_iter()
        .filter(|replica| replica.peer().phase() == Phase::Online)
        .map(|replica| (replica.address(), replica.peer().acked))
        .collect();
    reply.array(3);
    reply.bulk(b"master");
    reply.integer(offset);
    reply.array(replicas.len());
    for ((address, port), acked) in replicas {
        reply.array(3);
        reply.bulk(address.as_bytes());
        reply.bulk(port.to_string().as_bytes());
        reply.bulk(acked.to_string().as_bytes());
    }
    Ok(())
}

/// The client as a replica, which it is from now on if it was not.
fn replica(context: &mut ServerContext<'_, '_>) -> Result<Arc<ReplicaClient>, CommandError> {
    let session = &mut *context.session;
    if session.replica.is_none() {
        let socket = session.client.stream().ok_or(CommandError::text("ERR the connection is closing"))?;
        session.replica = Some(Arc::new(ReplicaClient::new(&session.client, socket, monotonic_ms())));
    }
    Ok(Arc::clone(session.replica.as_ref().expect("it was put there")))
}

fn replconf(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let replica = replica(context)?;
    let now_ms = monotonic_ms();
    let words = &args.words()[1..];
    let answered = replica.peer().options(words, now_ms);
    match answered {
        Ok(true) => reply.ok(),
        Ok(false) => {
            let shared = context.shared;
            shared.replication.note_acknowledged(&shared.durability, context.executor.config.config());
        }
        Err(error) => return Err(CommandError::owned(error.to_string())),
    }
    Ok(())
}

fn psync(context: &mut ServerContext<'_, '_>, args: &mut Args<'_>, _: &mut ReplyBuffer) -> CommandResult {
    let id = args.word().to_vec();
    let offset = parse_integer(args.word())
        .ok_or(CommandError::text("ERR value is not an integer or out of range"))?;
    if let Some(option) = args.optional()
        && option.eq_ignore_ascii_case(b"failover")
        && !take_over(context, &id)?
    {
        return Ok(());
    }
    follow(context, Wanted::Stream { id, offset })
}

/// A primary hands over to this replica, which is one from now on. Returns whether it is one by now.
fn take_over(context: &mut ServerContext<'_, '_>, id: &[u8]) -> Result<bool, CommandError> {
    if let Some(order) = awaited_order(context) {
        return Ok(await_order(context, order));
    }
    let shared = context.shared;
    let replication = &shared.replication;
    if !replication.is_replica() {
        return Err(CommandError::text("ERR PSYNC FAILOVER can't be sent to a master."));
    }
    let own = replication.history().id;
    if !id.eq_ignore_ascii_case(own.as_str().as_bytes()) {
        return Err(CommandError::text("ERR PSYNC FAILOVER replid must match my replid."));
    }
    tracing::info!("Failover request received from {} for replid {own}.", context.session.client);
    shared.config.follow(None);
    let order = replication.order(RoleOrder::Promote);
    context.session.role_order = Some(order);
    Ok(await_order(context, order))
}

/// Begins the backlog if replies wait for replicas, even if none has come yet. In a transaction, whose locks are in the
/// way, the thread `feeder` does it a moment later.
pub(super) fn ensure_backlog(context: &mut ServerContext<'_, '_>) {
    let replication = &context.shared.replication;
    if !replication.needs_backlog(context.executor.newest_config()) || replication.has_place() {
        return;
    }
    let begin = |shared: &Shared| shared.replication.begin_backlog(&shared.engine, &shared.durability);
    let may_wait = !context.executor.caller.deny_blocking && !context.shared.loading.is_active();
    if !may_wait || context.outside_gate(begin).is_none() {
        context.shared.replication.feed.wake();
    }
}

fn sync(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, _: &mut ReplyBuffer) -> CommandResult {
    follow(context, Wanted::Snapshot)
}

fn follow(context: &mut ServerContext<'_, '_>, wanted: Wanted) -> CommandResult {
    let replication = &context.shared.replication;
    if replication.is_failing_over() {
        return Err(CommandError::text("NOMASTERLINK Can't SYNC while failing over"));
    }
    if !replication.may_feed() {
        return Err(CommandError::text("NOMASTERLINK Can't SYNC while not connected with my master"));
    }
    let replica = replica(context)?;
    if replica.has_asked.swap(true, SeqCst) {
        return Ok(());
    }
    // Nothing but the stream is sent to it from now on, by a thread of its own.
    context.session.replies = Replies::Off;
    replication.join(&replica, wanted);
    Ok(())
}
