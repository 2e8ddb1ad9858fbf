//! The line of `CLIENT LIST` and `CLIENT INFO`.
//!
//! Fields stand in the order of Redis 7.0, with Valkey's additions if Valkey has them. A worker
//! answers from one reply buffer for all its connections: clients have none of their own, so `rbs`,
//! `rbp` and `obl` are 0.

use std::{fmt::Write, sync::atomic::Ordering::Relaxed};

use dunlin_acl::DEFAULT_USER;
use dunlin_engine::command::CommandTable;
use dunlin_net::{Client, Names, Now, OutputClass, Transport};

use super::stats::CONNECTION_BYTES;
use crate::session::ClientFlags;

/// The user of the link to the primary: the stream is subject to no rule. No list of users has it.
const PRIMARYS_USER: &[u8] = b"(superuser)";
/// A chunk of a replica's stream: a segment of the log's ring.
const STREAM_CHUNK_BYTES: u64 = 1 << 20;

/// A client as `CLIENT INFO` shows it, without the end of the line.
pub(crate) fn describe(client: &Client, commands: &CommandTable, now: Now) -> String {
    let mut text = String::new();
    write(&mut text, client, commands, now);
    text
}

/// The kind of a client, by the output limits that apply to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Replica,
    Pubsub,
    /// The server that this one replicates from.
    Primary,
}

impl Kind {
    pub(crate) fn parse(word: &[u8]) -> Option<Self> {
        Some(match &word.to_ascii_lowercase()[..] {
            b"normal" => Self::Normal,
            b"replica" | b"slave" => Self::Replica,
            b"pubsub" => Self::Pubsub,
            b"primary" | b"master" => Self::Primary,
            _ => return None,
        })
    }

    pub(crate) fn of(client: &Client) -> Self {
        match client.output_class() {
            _ if client.is_outgoing() => Self::Primary,
            OutputClass::Normal => Self::Normal,
            OutputClass::Replica => Self::Replica,
            OutputClass::Pubsub => Self::Pubsub,
        }
    }
}

/// The user that a client acts as.
pub(crate) fn user(names: &Names) -> &[u8] {
    if names.user.is_empty() { DEFAULT_USER } else { &names.user }
}

/// `flags`: one letter for each property, `N` for none.
pub(crate) fn flags(client: &Client) -> String {
    let own = ClientFlags::of(client);
    let subscribed = client.channels.get() + client.patterns.get() + client.shard_channels.get() > 0;
    let letters: String = [
        (client.output_class() == OutputClass::Replica, 'S'),
        (client.is_outgoing(), 'M'),
        (own.has(ClientFlags::MONITOR), 'O'),
        (subscribed, 'P'),
        (client.queued_commands.get() > 0, 'x'),
        (own.has(ClientFlags::BLOCKED), 'b'),
        (own.has(ClientFlags::TRACKING), 't'),
        (client.broken_redirection.get() > 0, 'R'),
        (own.has(ClientFlags::BROADCAST), 'B'),
        (client.has_dirty_watch.get().is_some_and(|is_dirty| is_dirty.load(Relaxed)), 'd'),
        (own.has(ClientFlags::CLOSING), 'c'),
        (matches!(client.transport, Transport::Unix(_)), 'U'),
        (own.has(ClientFlags::NO_EVICT), 'e'),
        (own.has(ClientFlags::NO_TOUCH), 'T'),
    ]
    .into_iter()
    .filter_map(|(on, letter)| on.then_some(letter))
    .collect();
    if letters.is_empty() { "N".to_owned() } else { letters }
}

/// `capa`: one letter for each capability that the client has claimed.
pub(crate) fn capabilities(client: &Client) -> &'static str {
    if ClientFlags::of(client).has(ClientFlags::CAN_REDIRECT) { "r" } else { "" }
}

/// Appends a client's line, without its end.
pub(crate) fn write(out: &mut String, client: &Client, commands: &CommandTable, now: Now) {
    let seconds_since = |then_ms: u64| now.steady_ms.saturating_sub(then_ms) / 1000;
    let names = client.names();
    let text = String::from_utf8_lossy;
    let command = usize::try_from(client.command.get()).ok();
    let command = command.and_then(|index| commands.entries().get(index)).map(|entry| entry.full_name());
    let redirection = client.redirection.get() as i64 - 1;
    let queued = client.queued_commands.get() as i64 - 1;
    let query_bytes = client.query_buffer_bytes.get();
    let query_free_bytes = client.query_buffer_free_bytes.get();
    let names_bytes =
        names.name.len() + names.library_name.len() + names.library_version.len() + names.user.len();
    // The log's ring holds the part of the stream that a replica lacks.
    let stream_bytes = client.stream_bytes.get();
    let waiting_bytes = client.waiting_bytes() + stream_bytes;
    let total_bytes = (CONNECTION_BYTES + names_bytes) as u64 + client.held_bytes() + stream_bytes;
    let output_chunks = client.output_chunks.get() + stream_bytes.div_ceil(STREAM_CHUNK_BYTES);
    let events = if waiting_bytes > 0 { "rw" } else { "r" };
    let user = if client.is_outgoing() { PRIMARYS_USER } else { user(&names) };
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={} capa={} db={} sub={} psub={} ssub={} \
         multi={queued} watch={} qbuf={query_bytes} qbuf-free={query_free_bytes} argv-mem={} multi-mem={} \
         rbs=0 rbp=0 obl=0 oll={} omem={} tot-mem={total_bytes} events={events} cmd={} user={} \
         redir={redirection} resp={} lib-name={} lib-ver={} tot-net-in={} tot-net-out={} tot-cmds={}",
        client.id(),
        client.transport.peer_text(),
        client.transport.local_text(),
        client.descriptor,
        text(&names.name),
        seconds_since(client.created_ms),
        seconds_since(client.last_interaction_ms.get()),
        flags(client),
        capabilities(client),
        client.database.get(),
        client.channels.get(),
        client.patterns.get(),
        client.shard_channels.get(),
        client.watched_keys.get(),
        client.argument_bytes.get(),
        client.queued_bytes.get(),
        output_chunks,
        waiting_bytes,
        command.as_deref().unwrap_or("NULL"),
        text(user),
        client.protocol.get(),
        text(&names.library_name),
        text(&names.library_version),
        client.input_bytes_total.get(),
        client.sent_bytes_total(),
        client.commands_total.get(),
    );
}
