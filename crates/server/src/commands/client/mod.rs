//! `CLIENT`: what a client says about itself, and how clients are listed, paused and closed.
//!
//! Clients are found in the registry, whichever worker they belong to. Messages close a client of another
//! worker; from the moment it is marked, it is not listed and nothing more of it is run.

mod docs;
mod filter;
mod tracking;

use std::sync::{Arc, atomic::Ordering::SeqCst};

use dunlin_engine::command::{Args, Command, CommandError, CommandResult};
use dunlin_net::{Client, Next, Now};
use dunlin_resp::{Protocol, ReplyBuffer, number::parse_integer};

use self::filter::{Filter, Known, Purpose};
use super::replication::ensure_backlog;
use crate::{
    admission::PauseScope,
    config::SYNC_REPLICAS_MAX,
    executor::{Flow, QUOTED_BYTES_MAX, ServerContext},
    observe::client_line,
    session::{ClientFlags, Durability, DurabilityWait, Replies},
    shared::Shared,
    workers::{
        WorkerMessage,
        blocked::{self, Ending, Unblocked},
    },
};

pub(super) const COMMANDS: &[Command] = &[docs::CLIENT];

type Context<'a, 'b, 'k> = &'a mut ServerContext<'b, 'k>;

/// Whether a word can be a name: it must not break the lines of `CLIENT LIST`.
fn is_printable(word: &[u8]) -> bool {
    word.iter().all(|byte| (b'!'..=b'~').contains(byte))
}

/// Refuses what cannot be a client's name; the empty word takes the name away.
pub(super) fn check_name(word: &[u8]) -> CommandResult {
    if is_printable(word) {
        return Ok(());
    }
    Err(CommandError::text("ERR Client names cannot contain spaces, newlines or special characters."))
}

/// Reads `ON` or `OFF`.
fn switch(args: &mut Args<'_>) -> Result<bool, CommandError> {
    match args.word() {
        word if word.eq_ignore_ascii_case(b"on") => Ok(true),
        word if word.eq_ignore_ascii_case(b"off") => Ok(false),
        _ => Err(CommandError::Syntax),
    }
}

fn id(context: Context<'_, '_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    reply.integer(context.session.client.id() as i64);
    Ok(())
}

fn get_name(context: Context<'_, '_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let names = context.session.client.names();
    if names.name.is_empty() {
        reply.null()
    } else {
        reply.bulk(&names.name)
    }
    Ok(())
}

fn set_name(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let name = args.word();
    check_name(name)?;
    context.session.client.names().name = name.to_vec();
    reply.ok();
    Ok(())
}

fn set_info(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (attribute, value) = (args.word(), args.word());
    let mut names = context.session.client.names();
    let field = if attribute.eq_ignore_ascii_case(b"lib-name") {
        &mut names.library_name
    } else if attribute.eq_ignore_ascii_case(b"lib-ver") {
        &mut names.library_version
    } else {
        return Err(CommandError::quoting_within("ERR Unrecognized option '", attribute, "'"));
    };
    if !is_printable(value) {
        let refusal = " cannot contain spaces, newlines or special characters.";
        return Err(CommandError::quoting_within("ERR ", attribute, refusal));
    }
    *field = value.to_vec();
    reply.ok();
    Ok(())
}

fn capa(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    // Capabilities of the future are none of ours.
    if args.take_rest().iter().any(|word| word.eq_ignore_ascii_case(b"redirect")) {
        context.session.flags.set(ClientFlags::CAN_REDIRECT, true);
    }
    reply.ok();
    Ok(())
}

fn info(context: Context<'_, '_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    context.session.publish();
    let mut text = String::new();
    client_line::write(&mut text, &context.session.client, &context.shared.commands, context.executor.now());
    text.push('\n');
    reply.verbatim(b"txt", text.as_bytes());
    Ok(())
}

fn parse_filter<'a>(
    context: &ServerContext<'_, '_>,
    args: &mut Args<'a>,
    purpose: Purpose,
) -> Result<Filter<'a>, CommandError> {
    let databases = context.shared.engine.keyspace.databases();
    let is_user = |name: &[u8]| context.shared.access.find(name).is_some();
    Filter::parse(args, purpose, Known { databases, is_user: &is_user })
}

fn list(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let filter = parse_filter(context, args, Purpose::List)?;
    context.session.publish();
    let (me, now) = (context.session.client.id(), context.executor.now());
    let mut text = String::new();
    for client in context.executor.clients().list() {
        if (filter.skip_me && client.id() == me) || !filter.matches(&client, now) {
            continue;
        }
        client_line::write(&mut text, &client, &context.shared.commands, now);
        text.push('\n');
    }
    reply.verbatim(b"txt", text.as_bytes());
    Ok(())
}

fn kill(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    if args.remaining() == 1 {
        return match kill_matching(context, &Filter::address(args.word())) {
            0 => Err(CommandError::text("ERR No such client")),
            _ => {
                reply.ok();
                Ok(())
            }
        };
    }
    let filter = parse_filter(context, args, Purpose::Kill)?;
    reply.count(kill_matching(context, &filter));
    Ok(())
}

/// Closes clients; the client that asks goes once it has been answered. How many.
fn kill_matching(context: Context<'_, '_, '_>, filter: &Filter<'_>) -> usize {
    context.session.publish();
    let (me, now) = (context.session.client.id(), context.executor.now());
    let mut killed = 0;
    for client in context.executor.clients().list() {
        if (filter.skip_me && client.id() == me) || !filter.matches(&client, now) {
            continue;
        }
        killed += 1;
        close(context, &client);
    }
    killed
}

/// Closes a client; the one that asks once it has been answered.
pub(super) fn close(context: &mut ServerContext<'_, '_>, client: &Client) {
    if client.id() == context.session.client.id() {
        context.session.flags.set(ClientFlags::CLOSING, true);
        context.flow = Flow::Stop(Next::CloseAfterReply);
    } else if client.is_outgoing() {
        // The link to the primary: its thread ends the connection, and makes another one.
        client.mark_killed();
        context.shared.replication.wake_replica();
    } else {
        client.mark_killed();
        // The client takes nothing from now on, though its connection is still to be closed.
        context.shared.blocked.cancel_wait(client.address);
        context.executor.queues().kill(client.address);
    }
}

fn replies(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let session = &mut *context.session;
    match &args.word().to_ascii_lowercase()[..] {
        b"on" => {
            session.replies = Replies::On;
            reply.ok();
        }
        b"off" => session.replies = Replies::Off,
        b"skip" if session.replies == Replies::Off => {}
        b"skip" => session.replies = Replies::SkipNext,
        _ => return Err(CommandError::Syntax),
    }
    Ok(())
}

fn pause(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    if args.remaining() > 2 {
        return Err(too_many(args));
    }
    let timeout_ms = parse_integer(args.word());
    let held = match args.optional() {
        None => PauseScope::Everything,
        Some(word) if word.eq_ignore_ascii_case(b"write") => PauseScope::Writes,
        Some(word) if word.eq_ignore_ascii_case(b"all") => PauseScope::Everything,
        Some(_) => return Err(CommandError::text("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let Some(timeout_ms) = timeout_ms else {
        return Err(CommandError::text("ERR timeout is not an integer or out of range"));
    };
    let timeout_ms = u64::try_from(timeout_ms).map_err(|_| CommandError::text("ERR timeout is negative"))?;
    // Counted from now, not from the beginning of the tick, which may be a while ago.
    let now = Now::read();
    if timeout_ms > i64::MAX as u64 - now.unix_ms {
        return Err(CommandError::text("ERR timeout is out of range"));
    }
    // Commands that wait for the gate, and were admitted before, are presented again.
    let begin = |shared: &Shared| {
        shared.pause.begin(now.instant, timeout_ms, held);
        shared.engine.log.end_admissions();
    };
    // Batches that are under way would not see it: it begins behind their end. A transaction has waited for that.
    let begun = context.outside_gate(|shared| {
        let _closed = shared.engine.keyspace.close_unless_long()?;
        begin(shared);
        Some(())
    });
    match begun {
        Some(None) => context.flow = context.executor.hold(context.session),
        Some(Some(())) => reply.ok(),
        None => {
            begin(context.shared);
            reply.ok();
        }
    }
    Ok(())
}

fn unpause(context: Context<'_, '_, '_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    context.shared.pause.end();
    // Behind the store: a client that has parked before finds the message in its worker's queue.
    context.executor.queues().send_to_everyone(WorkerMessage::Unpaused);
    reply.ok();
    Ok(())
}

fn durability(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let mode = args.word();
    let is = |name: &[u8]| mode.eq_ignore_ascii_case(name);
    let chosen = if is(b"configured") {
        Durability::Configured
    } else if is(b"async") {
        Durability::Async
    } else if is(b"disk") {
        if !context.executor.newest_config().appendonly {
            return Err(CommandError::text("ERR CLIENT DURABILITY DISK needs appendonly yes"));
        }
        Durability::Disk
    } else if is(b"sync") {
        let replicas = args.optional().map_or(Some(1), parse_integer);
        let replicas = replicas.filter(|replicas| (1..=SYNC_REPLICAS_MAX).contains(replicas));
        let refusal = CommandError::text("ERR the number of replicas must be between 1 and 16");
        Durability::Sync(replicas.ok_or(refusal)? as u8)
    } else {
        return Err(CommandError::Syntax);
    };
    args.finish()?;
    if matches!(chosen, Durability::Sync(_)) {
        context.shared.replication.feed.is_awaited.store(true, SeqCst);
        ensure_backlog(context);
    }
    context.session.durability_mode = chosen;
    if chosen != Durability::Configured {
        context.executor.want_marks();
    }
    reply.ok();
    Ok(())
}

fn no_evict(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let on = switch(args)?;
    context.session.flags.set(ClientFlags::NO_EVICT, on);
    reply.ok();
    Ok(())
}

fn no_touch(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let on = switch(args)?;
    context.session.flags.set(ClientFlags::NO_TOUCH, on);
    context.executor.act_for(context.session);
    reply.ok();
    Ok(())
}

fn unblock(context: Context<'_, '_, '_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    if args.remaining() > 2 {
        return Err(too_many(args));
    }
    let id = args.word();
    let ending = match args.optional() {
        None => Ending::Timeout,
        Some(reason) if reason.eq_ignore_ascii_case(b"timeout") => Ending::Timeout,
        Some(reason) if reason.eq_ignore_ascii_case(b"error") => Ending::Error,
        Some(_) => {
            return Err(CommandError::text("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
        }
    };
    let id = parse_integer(id).ok_or(CommandError::NotInteger)?;
    // A client that is held back by a pause waits for no key: it is left alone.
    let client = u64::try_from(id).ok().and_then(|id| context.executor.clients().find(id));
    let client = client.filter(|client| !client.is_outgoing());
    let blocked = &context.shared.blocked;
    let ended = match client {
        None => None,
        Some(client) => match blocked.end_durability(client.address) {
            Some(wanted) => Some((client.address, encode_durability(context, ending, &wanted))),
            None => blocked
                .end(&context.shared.engine, client.address)?
                .map(|waiter| (client.address, ending.encode(&waiter))),
        },
    };
    reply.integer(ended.is_some().into());
    if let Some((address, unblocked)) = ended {
        context.executor.queues().send(address, WorkerMessage::Unblocked(Arc::new(unblocked)));
    }
    Ok(())
}

/// The answer to WAIT or WAITAOF whose wait was ended; it is the same in both protocols.
fn encode_durability(context: &ServerContext<'_, '_>, ending: Ending, wanted: &DurabilityWait) -> Unblocked {
    Unblocked::with(blocked::encode(Protocol::Resp2, |reply| match ending {
        Ending::Timeout => context.executor.answer_durability(wanted, reply),
        Ending::Error | Ending::Demoted => ending.answer(reply),
    }))
}

fn too_many(args: &Args<'_>) -> CommandError {
    let typed = args.words()[1];
    CommandError::quoting_within(
        "ERR unknown subcommand or wrong number of arguments for '",
        &typed[..typed.len().min(QUOTED_BYTES_MAX)],
        "'. Try CLIENT HELP.",
    )
}
