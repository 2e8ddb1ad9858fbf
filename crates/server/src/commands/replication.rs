//! REPLICAOF, SLAVEOF, ROLE, and what replicas say to their primary: REPLCONF, PSYNC, SYNC.

use std::sync::Arc;

use dunlin_engine::command::{
    Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, Run,
};
use dunlin_replication::Phase;
use dunlin_resp::{ReplyBuffer, number::parse_integer};

use crate::{
    config::PrimaryAddress,
    executor::{Handler, ServerContext},
    replication::{self, ReplicaClient, RoleOrder, Wanted},
    session::Replies,
};

pub(super) const COMMANDS: &[Command] = &[PSYNC, REPLCONF, REPLICAOF, ROLE, SLAVEOF, SYNC];

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
    flags: Flags::ADMIN.and(Flags::NO_SCRIPT).and(Flags::LOADING).and(Flags::STALE).and(Flags::ALLOW_BUSY),
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
            Some(PrimaryAddress { host: host.to_owned(), port })
        }
    };
    let shared = context.shared;
    let current = context.executor.newest_config().replicaof.clone();
    if primary.is_some() && primary == current {
        reply.simple("OK Already connected to specified master");
        return Ok(());
    }
    if primary.is_none() && current.is_none() {
        reply.ok();
        return Ok(());
    }
    shared.config.follow(primary.clone());
    shared.replication.order(primary.map_or(RoleOrder::Promote, RoleOrder::Follow));
    // Inside of a transaction, whose locks the change may need, it comes right behind.
    if !context.in_transaction {
        context.outside_gate(|shared| shared.replication.await_order());
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

/// The client as a replica, which it is from now on where it was not.
fn replica(context: &mut ServerContext<'_, '_>) -> Result<Arc<ReplicaClient>, CommandError> {
    let session = &mut *context.session;
    if session.replica.is_none() {
        let socket = session.client.stream().ok_or(CommandError::text("ERR the connection is closing"))?;
        session.replica = Some(Arc::new(ReplicaClient::new(&session.client, socket)));
    }
    Ok(Arc::clone(session.replica.as_ref().expect("it was put there")))
}

fn replconf(
    context: &mut ServerContext<'_, '_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let replica = replica(context)?;
    let now_ms = replication::now_ms();
    let words = &args.words()[1..];
    let answered = replica.peer().options(words, now_ms);
    match answered {
        Ok(true) => reply.ok(),
        Ok(false) => context.shared.replication.note_acknowledged(),
        Err(error) => return Err(CommandError::owned(error.to_string())),
    }
    Ok(())
}

fn psync(context: &mut ServerContext<'_, '_>, args: &mut Args<'_>, _: &mut ReplyBuffer) -> CommandResult {
    let id = args.word().to_vec();
    let offset = parse_integer(args.word())
        .ok_or(CommandError::text("ERR value is not an integer or out of range"))?;
    if let Some(option) = args.optional() {
        // The replica tries again, and finds a primary.
        if option.eq_ignore_ascii_case(b"failover") {
            return Err(CommandError::text("NOMASTERLINK Can't SYNC: failover by PSYNC is not available"));
        }
        return Err(CommandError::text("ERR syntax error"));
    }
    follow(context, Wanted::Stream { id, offset })
}

fn sync(context: &mut ServerContext<'_, '_>, _: &mut Args<'_>, _: &mut ReplyBuffer) -> CommandResult {
    follow(context, Wanted::Snapshot)
}

fn follow(context: &mut ServerContext<'_, '_>, wanted: Wanted) -> CommandResult {
    let replication = &context.shared.replication;
    if !replication.may_feed() {
        return Err(CommandError::text("NOMASTERLINK Can't SYNC while not connected with my master"));
    }
    let replica = replica(context)?;
    if !replica.peer().reads_eof() && !matches!(&wanted, Wanted::Stream { offset: 0.., .. }) {
        return Err(CommandError::text(
            "ERR a snapshot has no length in front: announce REPLCONF capa eof before",
        ));
    }
    // Nothing but the stream is sent to it from now on, by a thread of its own.
    context.session.replies = Replies::Off;
    replication.join(&replica, wanted);
    Ok(())
}
