//! XGROUP: making, moving and removing groups and their consumers.

use dunlin_resp::ReplyBuffer;

use super::{INVALID_ID, no_such_group, parse_id, wrong_subcommand};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::{Change, WriteContext},
    notify::EventClass,
    value::{
        Stream,
        stream::{ConsumerGroup, StreamId, StreamLog},
    },
};

pub(super) const XGROUP: Command = Command {
    name: "xgroup",
    summary: "Holds the commands on consumer groups.",
    since: "5.0.0",
    group: Group::Stream,
    complexity: "Depends on the subcommand.",
    arity: Arity::AtLeast(2),
    run: Run::Container,
    subcommands: &[CREATE, CREATECONSUMER, DELCONSUMER, DESTROY, HELP, SETID],
    ..Command::DEFAULT
};

const SUBCOMMAND: Command =
    Command { since: "5.0.0", group: Group::Stream, complexity: "O(1)", ..Command::DEFAULT };

const POSITION: Argument =
    Argument::one_of("id-selector", &[Argument::string("id"), Argument::word("new-id", "$")]);
const ENTRIES_READ: Argument =
    Argument::integer("entries-read").after("ENTRIESREAD").optional().since("7.0.0");

const CREATE: Command = Command {
    name: "create",
    summary: "Creates a group that reads a stream from behind an ID on.",
    arity: Arity::AtLeast(5),
    run: Run::Write(create),
    flags: Flags::DENY_OOM,
    keys: &[KeySpec::at(2).read_write().inserts()],
    args: &[
        Argument::key("key"),
        Argument::string("group"),
        POSITION,
        Argument::word("mkstream", "MKSTREAM").optional(),
        ENTRIES_READ,
    ],
    ..SUBCOMMAND
};

const CREATECONSUMER: Command = Command {
    name: "createconsumer",
    summary: "Adds a consumer to a group; 1 if it is new.",
    since: "6.2.0",
    arity: Arity::Exactly(5),
    run: Run::Write(create_consumer),
    flags: Flags::DENY_OOM,
    keys: &[KeySpec::at(2).read_write().inserts()],
    args: &[Argument::key("key"), Argument::string("group"), Argument::string("consumer")],
    ..SUBCOMMAND
};

const DELCONSUMER: Command = Command {
    name: "delconsumer",
    summary: "Removes a consumer with its deliveries and returns how many these were.",
    complexity: "O(n) in the number of its deliveries",
    arity: Arity::Exactly(5),
    run: Run::Write(delete_consumer),
    keys: &[KeySpec::at(2).read_write().deletes()],
    args: &[Argument::key("key"), Argument::string("group"), Argument::string("consumer")],
    ..SUBCOMMAND
};

const DESTROY: Command = Command {
    name: "destroy",
    summary: "Removes a group; 1 if it was there.",
    complexity: "O(n) in the number of its deliveries",
    arity: Arity::Exactly(4),
    run: Run::Write(destroy),
    keys: &[KeySpec::at(2).read_write().deletes()],
    args: &[Argument::key("key"), Argument::string("group")],
    ..SUBCOMMAND
};

const HELP: Command = Command {
    name: "help",
    summary: "Lists the subcommands.",
    arity: Arity::Exactly(2),
    run: Run::Help(&[
        "XGROUP <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "CREATE <key> <groupname> <id|$> [MKSTREAM] [ENTRIESREAD <entries-read>]",
        "    Create a group that reads from behind <id>. MKSTREAM creates a missing stream.",
        "CREATECONSUMER <key> <groupname> <consumer>",
        "    Add a consumer to a group.",
        "DELCONSUMER <key> <groupname> <consumer>",
        "    Remove a consumer with its deliveries.",
        "DESTROY <key> <groupname>",
        "    Remove a group.",
        "SETID <key> <groupname> <id|$> [ENTRIESREAD <entries-read>]",
        "    Have a group go on from behind <id>.",
        "HELP",
        "    This text.",
    ]),
    flags: Flags::LOADING.and(Flags::STALE),
    ..SUBCOMMAND
};

const SETID: Command = Command {
    name: "setid",
    summary: "Has a group go on from behind another ID.",
    arity: Arity::AtLeast(5),
    run: Run::Write(set_id),
    keys: &[KeySpec::at(2).read_write().updates()],
    args: &[Argument::key("key"), Argument::string("group"), POSITION, ENTRIES_READ],
    ..SUBCOMMAND
};

const NO_KEY: CommandError = CommandError::text(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM \
     option to create an empty stream automatically.",
);

/// Reads the options behind the ID of `CREATE` and `SETID`: whether to create the stream, and how many
/// entries have been read.
fn read_options(args: &mut Args<'_>, takes_mkstream: bool) -> Result<(bool, Option<u64>), CommandError> {
    let (mut mkstream, mut entries_read) = (false, None);
    while !args.is_empty() {
        if takes_mkstream && args.token("MKSTREAM") {
            mkstream = true;
        } else if args.token_with("ENTRIESREAD", 1) {
            let entries = args.integer();
            args.check()?;
            if entries < -1 {
                return Err(CommandError::text("ERR value for ENTRIESREAD must be positive or -1"));
            }
            entries_read = u64::try_from(entries).ok();
        } else {
            return Err(wrong_subcommand(args, "XGROUP"));
        }
    }
    Ok((mkstream, entries_read))
}

/// A group cannot have read more entries than there were: clamped, as Redis does since 8.2.2.
fn possible(entries_read: Option<u64>, log: &StreamLog) -> Option<u64> {
    entries_read.map(|read| read.min(log.entries_added()))
}

fn create(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, name, id) = (args.word(), args.word(), args.word());
    let (mkstream, entries_read) = read_options(args, true)?;
    if context.collection::<Stream>(key)?.is_none() && !mkstream {
        return Err(NO_KEY);
    }
    // More words than all options take, each given once.
    if args.words().len() > 8 {
        return Err(wrong_subcommand(args, "XGROUP"));
    }
    let id = if id == b"$" { None } else { Some(parse_id(id)?) };
    let created = context.update_or_create(key, |stream: &mut Stream| {
        let id = id.unwrap_or(stream.log().last_id());
        let entries_read = possible(entries_read, stream.log());
        let created = stream.create_group(name, ConsumerGroup::new(id, entries_read));
        (created, Change::of_groups(created))
    })?;
    if !created {
        return Err(CommandError::text("BUSYGROUP Consumer Group name already exists"));
    }
    context.notify(EventClass::Stream, "xgroup-create", key);
    reply.ok();
    Ok(())
}

fn set_id(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, name, id) = (args.word(), args.word(), args.word());
    let (_, entries_read) = read_options(args, false)?;
    let words = args.words().len();
    let done = edit_group(context, key, name, |group, stream| {
        if words != 5 && words != 7 {
            return (Err(None), false);
        }
        let id = match id {
            b"$" => Some(stream.last_id()),
            id => StreamId::parse_bound(id, 0),
        };
        match id {
            Some(id) => {
                group.set_position(id, possible(entries_read, stream), stream);
                (Ok(()), true)
            }
            None => (Err(Some(INVALID_ID)), false),
        }
    })?;
    done.map_err(|error| error.unwrap_or_else(|| wrong_subcommand(args, "XGROUP")))?;
    context.notify(EventClass::Stream, "xgroup-setid", key);
    reply.ok();
    Ok(())
}

/// Works on a group that must exist; `edit` also answers whether it has changed anything.
fn edit_group<R>(
    context: &mut WriteContext<'_>,
    key: &[u8],
    name: &[u8],
    edit: impl FnOnce(&mut ConsumerGroup, &StreamLog) -> (R, bool),
) -> Result<R, CommandError> {
    let edited = context.update(key, |stream: &mut Stream| {
        match stream.edit_group(name, |group, log| edit(group, log)) {
            Some((result, changed)) => (Some(result), Change::of_groups(changed)),
            None => (None, Change::None),
        }
    })?;
    edited.ok_or(NO_KEY)?.ok_or_else(|| no_such_group(key, name))
}

fn create_consumer(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let (key, name, consumer) = (args.word(), args.word(), args.word());
    let now_ms = context.clock_ms();
    let created = edit_group(context, key, name, |group, _| {
        let created = group.create_consumer(consumer, now_ms);
        (created, created)
    })?;
    if created {
        context.notify(EventClass::Stream, "xgroup-createconsumer", key);
    }
    reply.integer(created.into());
    Ok(())
}

fn delete_consumer(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let (key, name, consumer) = (args.word(), args.word(), args.word());
    let removed = edit_group(context, key, name, |group, _| {
        let removed = group.remove_consumer(consumer);
        (removed, removed.is_some())
    })?;
    if removed.is_some() {
        context.notify(EventClass::Stream, "xgroup-delconsumer", key);
    }
    reply.count(removed.unwrap_or(0));
    Ok(())
}

fn destroy(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, name) = (args.word(), args.word());
    let removed = context.update(key, |stream: &mut Stream| {
        let removed = stream.remove_group(name);
        (removed, Change::of_groups(removed))
    })?;
    let removed = removed.ok_or(NO_KEY)?;
    if removed {
        context.notify(EventClass::Stream, "xgroup-destroy", key);
    }
    reply.integer(removed.into());
    Ok(())
}
