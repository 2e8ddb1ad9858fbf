//! The subcommands of DEBUG that look at keys. Clients cannot call them directly: the host's
//! DEBUG finds them in a private table, by the name of the subcommand, and runs them on the words
//! from there on.

use dunlin_resp::ReplyBuffer;

use crate::{
    command::{Args, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::{ExpiryChange, KeyspaceContext, ReadContext, WriteContext},
    digest::Digest,
    value::NewString,
};

/// The rows for the host's private table.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "digest",
        summary: "Digest of the data set.",
        arity: Arity::Exactly(1),
        run: Run::Keyspace(digest),
        ..PART
    },
    Command {
        name: "digest-value",
        summary: "Digests of values.",
        arity: Arity::AtLeast(1),
        run: Run::Read(digest_value),
        keys: &[KeySpec::at(1).through(-1, 1)],
        ..PART
    },
    Command {
        name: "object",
        summary: "How a value is stored.",
        arity: Arity::Exactly(2),
        run: Run::Read(object),
        keys: &[KeySpec::at(1)],
        ..PART
    },
    Command {
        name: "populate",
        summary: "Stores a string where there is no key: one step of DEBUG POPULATE.",
        arity: Arity::Exactly(3),
        run: Run::Write(populate),
        keys: &[KeySpec::at(1).overwrite()],
        ..PART
    },
];

const PART: Command = Command { group: Group::Server, flags: Flags::ADMIN, ..Command::DEFAULT };

fn digest(context: &mut KeyspaceContext<'_>, _: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    context.weigh(context.keys_of_all()?)?;
    let (mut digest, now_ms) = (Digest::default(), context.now_ms());
    for database in 0..context.databases() {
        let mut is_empty = true;
        context.for_each_in(database, |entry| {
            if std::mem::take(&mut is_empty) {
                digest.mix_database(database);
            }
            digest.add_key(entry, now_ms);
        })?;
    }
    reply.simple(&digest.to_string());
    Ok(())
}

fn digest_value(
    context: &mut ReadContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let now_ms = context.now_ms();
    reply.array(args.remaining());
    for key in args.take_rest() {
        let mut digest = Digest::default();
        if let Some(entry) = context.peek(key) {
            digest.add_value(entry, now_ms);
        }
        reply.simple(&digest.to_string());
    }
    Ok(())
}

fn object(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let entry = context.peek(args.word()).ok_or(CommandError::NoSuchKey)?;
    // As in Redis, there is no telling here whether the number is a time.
    let idle_seconds = context.idle_seconds(entry).unwrap_or(0);
    let lru = (context.now_ms() / 1000).saturating_sub(idle_seconds) & LRU_MASK;
    reply.simple(&format!(
        "Value at:{:p} refcount:1 encoding:{} serializedlength:{} lru:{lru} lru_seconds_idle:{idle_seconds}",
        entry.address(),
        entry.encoding(),
        context.serialized_bytes(entry),
    ));
    Ok(())
}

/// Bits of the access time that Redis keeps.
const LRU_MASK: u64 = (1 << 24) - 1;

fn populate(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, value) = (args.word(), args.word());
    if context.find(key).is_none() {
        context.set_string(key, NewString::from_text(value), ExpiryChange::Clear);
        context.propagate(&[b"SET", key, value]);
    }
    reply.ok();
    Ok(())
}
