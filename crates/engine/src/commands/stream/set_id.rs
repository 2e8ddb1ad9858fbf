//! XSETID.

use dunlin_resp::ReplyBuffer;

use super::parse_id;
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::{Change, WriteContext},
    notify::EventClass,
    value::{
        Stream,
        stream::{StreamId, StreamLog},
    },
};

pub(super) const XSETID: Command = Command {
    name: "xsetid",
    summary: "Sets what a stream remembers of its past: its last ID, and on demand counts.",
    since: "5.0.0",
    group: Group::Stream,
    complexity: "O(1)",
    arity: Arity::AtLeast(3),
    run: Run::Write(xsetid),
    flags: Flags::DENY_OOM.and(Flags::FAST),
    keys: &[KeySpec::at(1).read_write().updates()],
    args: &[
        Argument::key("key"),
        Argument::string("last-id"),
        Argument::integer("entries-added").after("ENTRIESADDED").optional().since("7.0.0"),
        Argument::string("max-deleted-id").after("MAXDELETEDID").optional().since("7.0.0"),
    ],
    ..Command::DEFAULT
};

fn xsetid(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, id) = (args.word(), parse_id(args.word())?);
    let (mut entries_added, mut max_deleted_id) = (None, None);
    while !args.is_empty() {
        if args.token_with("ENTRIESADDED", 1) {
            let entries = args.integer();
            args.check()?;
            let entries = u64::try_from(entries);
            entries_added =
                Some(entries.map_err(|_| CommandError::text("ERR entries_added must be positive"))?);
        } else if args.token_with("MAXDELETEDID", 1) {
            let deleted = parse_id(args.word())?;
            if id < deleted {
                return Err(CommandError::text(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                ));
            }
            max_deleted_id = Some(deleted).filter(|deleted| *deleted != StreamId::MIN);
        } else {
            return Err(CommandError::Syntax);
        }
    }
    let is_replayed = context.is_replaying();
    let done = context.update(key, |stream: &mut Stream| {
        let checked = check(stream.log(), id, entries_added, is_replayed);
        if checked.is_ok() {
            stream.set_ids(id, entries_added, max_deleted_id);
        }
        let changed = Change::of_groups(checked.is_ok());
        (checked, changed)
    })?;
    done.ok_or(CommandError::NoSuchKey)??;
    context.notify(EventClass::Stream, "xsetid", key);
    reply.ok();
    Ok(())
}

/// Whether the IDs and entries of the stream stay in order. A log is believed if it is behind the largest deleted ID:
/// Redis 7.0 does not check that, and records it.
fn check(log: &StreamLog, id: StreamId, entries_added: Option<u64>, is_replayed: bool) -> CommandResult {
    if !is_replayed && id < log.max_deleted_id() {
        return Err(CommandError::text(
            "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
        ));
    }
    if log.last_entry_id().is_some_and(|last| id < last) {
        return Err(CommandError::text(
            "ERR The ID specified in XSETID is smaller than the target stream top item",
        ));
    }
    if !log.is_empty() && entries_added.is_some_and(|entries| entries < log.len()) {
        return Err(CommandError::text(
            "ERR The entries_added specified in XSETID is smaller than the target stream length",
        ));
    }
    Ok(())
}
