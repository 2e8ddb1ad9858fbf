//! Removing entries by ID, and the treatment of the deliveries that name them.

use dunlin_resp::ReplyBuffer;

use super::{
    parse_ids,
    propagation::{Removals, record_removals},
    take_counted_ids,
    trim::{REFERENCES, References},
};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::{Change, WriteContext},
    notify::EventClass,
    value::{Stream, stream::StreamId},
};

pub(super) const XDEL: Command = Command {
    name: "xdel",
    summary: "Removes entries of a stream by ID and returns how many there were.",
    since: "5.0.0",
    group: Group::Stream,
    complexity: "O(log n) per entry",
    arity: Arity::AtLeast(3),
    run: Run::Write(xdel),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).read_write().deletes()],
    args: &[Argument::key("key"), Argument::string("id").multiple()],
    ..Command::DEFAULT
};

fn xdel(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, ids) = (args.word(), args.take_rest());
    let deleted = context.update(key, |stream: &mut Stream| match parse_ids(ids) {
        Ok(ids) => {
            let deleted = ids.into_iter().filter(|id| stream.log_mut().remove(*id)).count();
            (Ok(deleted), deleted > 0)
        }
        Err(error) => (Err(error), false),
    })?;
    let deleted = deleted.transpose()?.unwrap_or(0);
    context.count_changes(deleted);
    if deleted > 0 {
        context.notify(EventClass::Stream, "xdel", key);
    }
    reply.count(deleted);
    Ok(())
}

const IDS: Argument =
    Argument::block("ids", &[Argument::integer("numids"), Argument::string("id").multiple()]).after("IDS");

pub(super) const XDELEX: Command = Command {
    name: "xdelex",
    summary: "Removes entries of a stream by ID, minding what groups have not acknowledged; tells what became of each.",
    since: "8.2.0",
    group: Group::Stream,
    complexity: "O(log n) per entry, times the number of groups",
    arity: Arity::AtLeast(5),
    run: Run::Write(xdelex),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).read_write().deletes()],
    args: &[Argument::key("key"), REFERENCES.optional(), IDS],
    ..Command::DEFAULT
};

pub(super) const XACKDEL: Command = Command {
    name: "xackdel",
    summary: "Acknowledges entries for a group and removes them; tells what became of each.",
    since: "8.2.0",
    group: Group::Stream,
    complexity: "O(log n) per entry, times the number of groups",
    arity: Arity::AtLeast(6),
    run: Run::Write(xackdel),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).read_write().updates().deletes()],
    args: &[Argument::key("key"), Argument::string("group"), REFERENCES.optional(), IDS],
    ..Command::DEFAULT
};

/// The outcome for an entry, as these commands reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Missing = -1,
    Deleted = 1,
    /// A group has not read it, or not acknowledged it.
    Referenced = 2,
}

/// Reads `[KEEPREF | DELREF | ACKED] IDS numids id …`, in any order.
fn read_ids(args: &mut Args<'_>) -> Result<(References, Vec<StreamId>), CommandError> {
    let (mut references, mut ids) = (None, None);
    while !args.is_empty() {
        if args.token_with("IDS", 1) {
            ids = Some(take_counted_ids(args)?);
        } else if references.is_none()
            && let Some(found) = References::read(args)
        {
            references = Some(found);
        } else {
            return Err(CommandError::Syntax);
        }
    }
    let ids = ids.ok_or(CommandError::Syntax)?;
    Ok((references.unwrap_or_default(), parse_ids(ids)?))
}

/// Removes an entry as `references` says, and notes it for the record.
fn delete(stream: &mut Stream, id: StreamId, references: References, done: &mut Removals) -> Outcome {
    match references {
        References::Acknowledged if stream.log().contains(id) && stream.is_referenced(id) => {
            return Outcome::Referenced;
        }
        References::Delete => {
            stream.forget_deliveries(id, |group| done.acknowledge(group, id));
        }
        References::Acknowledged | References::Keep => {}
    }
    if stream.log_mut().remove(id) {
        done.entries.push(id);
        Outcome::Deleted
    } else {
        Outcome::Missing
    }
}

fn xdelex(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let (references, ids) = read_ids(args)?;
    let mut done = Removals::default();
    let outcomes = context.update(key, |stream: &mut Stream| {
        let bytes = stream.heap_bytes();
        let outcomes: Vec<Outcome> =
            ids.iter().map(|id| delete(stream, *id, references, &mut done)).collect();
        let change = if outcomes.contains(&Outcome::Deleted) {
            Change::Elements
        } else {
            // References may have gone where no entry has.
            Change::of_groups(stream.heap_bytes() != bytes)
        };
        (outcomes, change)
    })?;
    record_removals(context, key, &done);
    answer(context, key, outcomes, ids.len(), reply);
    Ok(())
}

fn xackdel(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, group) = (args.word(), args.word());
    let (references, ids) = read_ids(args)?;
    let mut done = Removals::default();
    let outcomes = context.update(key, |stream: &mut Stream| {
        let entries = stream.log().len();
        let acknowledge = |id: &StreamId| {
            let found = stream.edit_group(group, |group, _| group.acknowledge(*id)) == Some(true);
            if !found {
                return Outcome::Missing;
            }
            done.acknowledge(group, *id);
            // A delivered entry may have been removed since: then nothing is left to be deleted.
            match delete(stream, *id, references, &mut done) {
                Outcome::Missing => Outcome::Deleted,
                outcome => outcome,
            }
        };
        let outcomes: Vec<Outcome> = ids.iter().map(acknowledge).collect();
        let change = if stream.log().len() != entries {
            Change::Elements
        } else {
            Change::of_groups(outcomes.iter().any(|outcome| *outcome != Outcome::Missing))
        };
        (outcomes, change)
    })?;
    record_removals(context, key, &done);
    answer(context, key, outcomes, ids.len(), reply);
    Ok(())
}

/// Replies with the outcome for each entry; without a stream none was there.
fn answer(
    context: &mut WriteContext<'_>,
    key: &[u8],
    outcomes: Option<Vec<Outcome>>,
    count: usize,
    reply: &mut ReplyBuffer,
) {
    let outcomes = outcomes.unwrap_or_else(|| vec![Outcome::Missing; count]);
    let deleted = outcomes.iter().filter(|outcome| **outcome == Outcome::Deleted).count();
    context.count_changes(deleted);
    if deleted > 0 {
        context.notify(EventClass::Stream, "xdel", key);
    }
    reply.array(outcomes.len());
    outcomes.iter().for_each(|outcome| reply.integer(*outcome as i64));
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    const READ_BY_ONE_OF_TWO: &str = "
        > XADD s 1 a 1
        $3 1-0
        > XADD s 2 a 1
        $3 2-0
        > XADD s 3 a 1
        $3 3-0
        > XGROUP CREATE s g 0
        +OK
        > XGROUP CREATE s h 2
        +OK
        > XREADGROUP GROUP g ann COUNT 2 STREAMS s >
        *1 *2 $1 s *2 *2 $3 1-0 *2 $1 a $1 1 *2 $3 2-0 *2 $1 a $1 1
    ";

    fn check_after_reading(script: &str) {
        check(&[READ_BY_ONE_OF_TWO, script].concat());
    }

    #[test]
    fn references_are_kept_deleted_or_respected() {
        check_after_reading(
            "
            > XDELEX s ACKED IDS 3 1 3 9
            *3 :2 :2 :-1
            > XDELEX s IDS 1 1
            *1 :1
            > XPENDING s g
            *4 :2 $3 1-0 $3 2-0 *1 *2 $3 ann $1 2
            > XDELEX s DELREF IDS 2 1 2
            *2 :-1 :1
            > XPENDING s g
            *4 :0 $-1 $-1 *-1
            > XLEN s
            :1
            > XDELEX missing IDS 2 1 2
            *2 :-1 :-1
            ",
        );
    }

    #[test]
    fn acknowledging_and_deleting_is_one_step() {
        check_after_reading(
            "
            > XACKDEL s g ACKED IDS 3 1 2 3
            *3 :1 :1 :-1
            > XLEN s
            :1
            > XACKDEL s nobody IDS 1 3
            *1 :-1
            > XREADGROUP GROUP g ann STREAMS s >
            *1 *2 $1 s *1 *2 $3 3-0 *2 $1 a $1 1
            > XACKDEL s g ACKED IDS 1 3
            *1 :2
            > XLEN s
            :1
            ",
        );
    }

    #[test]
    fn trimming_minds_references() {
        check_after_reading(
            "
            > XACK s g 2
            :1
            > XTRIM s MAXLEN 1 ACKED
            :1
            > XRANGE s - +
            *2 *2 $3 1-0 *2 $1 a $1 1 *2 $3 3-0 *2 $1 a $1 1
            > XTRIM s MAXLEN 0 DELREF
            :2
            > XPENDING s g
            *4 :0 $-1 $-1 *-1
            ",
        );
    }

    #[test]
    fn ids_are_counted() {
        check(
            "
            > XDELEX s IDS 0 1
            -ERR Number of IDs must be a positive integer
            > XDELEX s IDS 2 1
            -ERR The `numids` parameter must match the number of arguments
            > XDELEX s KEEPREF ACKED IDS 1 1
            -ERR syntax error
            > XDELEX s IDS 1 x
            -ERR Invalid stream ID specified as stream command argument
            ",
        );
    }
}
