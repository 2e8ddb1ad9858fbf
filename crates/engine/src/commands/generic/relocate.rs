//! Values that go elsewhere: renamed, moved to another database, copied.

use dunlin_resp::ReplyBuffer;

use super::{database_index, elements_about};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, KeySpec, Run},
    context::WriteContext,
    keyspace::EntryRef,
    notify::EventClass,
};

const SAME_OBJECT: CommandError = CommandError::text("ERR source and destination objects are the same");

pub(super) const RENAME: Command = Command {
    name: "rename",
    summary: "Gives a value with its expiry another key, replacing what that key held.",
    since: "1.0.0",
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    run: Run::Write(rename),
    keys: &[KeySpec::at(1).read_write().accesses().deletes(), KeySpec::at(2).overwrite().updates()],
    args: &[Argument::key("key"), Argument::key("newkey").key_spec(1)],
    ..Command::DEFAULT
};

pub(super) const RENAMENX: Command = Command {
    name: "renamenx",
    summary: "Gives a value with its expiry another key, unless that key is there.",
    run: Run::Write(renamenx),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).read_write().accesses().deletes(), KeySpec::at(2).overwrite().inserts()],
    ..RENAME
};

pub(super) const MOVE: Command = Command {
    name: "move",
    summary: "Moves a key with its value and expiry to another database, unless it is there.",
    since: "1.0.0",
    complexity: "O(1)",
    arity: Arity::AtLeast(3),
    run: Run::Write(move_key),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).read_write().accesses().updates()],
    args: &[
        Argument::key("key"),
        Argument::integer("db"),
        Argument::word("replace", "REPLACE").optional().since("9.2.0"),
    ],
    ..Command::DEFAULT
};

pub(super) const COPY: Command = Command {
    name: "copy",
    summary: "Copies a value with its expiry to another key.",
    since: "6.2.0",
    complexity: "O(1) for strings: long ones are shared until one side changes",
    arity: Arity::AtLeast(3),
    run: Run::Write(copy),
    flags: Flags::DENY_OOM,
    keys: &[KeySpec::at(1).accesses(), KeySpec::at(2).overwrite().updates()],
    args: &[
        Argument::key("source"),
        Argument::key("destination").key_spec(1),
        Argument::integer("destination-db").after("DB").optional(),
        Argument::word("replace", "REPLACE").optional(),
    ],
    ..Command::DEFAULT
};

/// Gives a key another name.
fn relocate(context: &mut WriteContext<'_>, from: &[u8], to: &[u8]) {
    let database = context.database();
    context.relocate((database, from), (database, to));
    context.notify(EventClass::Generic, "rename_from", from);
    context.notify(EventClass::Generic, "rename_to", to);
}

fn rename(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (from, to, database) = (args.word(), args.word(), context.database());
    if !context.contains_in(database, from) {
        return Err(CommandError::NoSuchKey);
    }
    if from != to {
        relocate(context, from, to);
    }
    reply.ok();
    Ok(())
}

fn renamenx(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (from, to, database) = (args.word(), args.word(), context.database());
    if !context.contains_in(database, from) {
        return Err(CommandError::NoSuchKey);
    }
    let free = from != to && !context.contains_in(database, to);
    if free {
        relocate(context, from, to);
    }
    reply.integer(free.into());
    Ok(())
}

fn move_key(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, from) = (args.word(), context.database());
    let to = database_index(args, context.databases())?;
    let replaces = args.token("REPLACE");
    args.finish()?;
    if from == to {
        return Err(SAME_OBJECT);
    }
    let taken = context.contains_in(to, key);
    let may_move = replaces || !taken;
    if may_move {
        context.check_room_for(to, (from, key))?;
    }
    let moved = may_move && context.relocate((from, key), (to, key));
    if moved && replaces {
        // Only Valkey from 9.2 on knows REPLACE.
        if taken {
            context.propagate_in(to, &[b"DEL", key]);
        }
        context.propagate(&[b"MOVE", key, itoa::Buffer::new().format(to).as_bytes()]);
    }
    if moved {
        context.notify_in(from, EventClass::Generic, "move_from", key);
        context.notify_in(to, EventClass::Generic, "move_to", key);
    }
    reply.integer(moved.into());
    Ok(())
}

fn copy(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let from = (context.database(), args.word());
    let mut to = (context.database(), args.word());
    let mut replace = false;
    while !args.is_empty() {
        if args.token("REPLACE") {
            replace = true;
        } else if args.token_with("DB", 1) {
            to.0 = database_index(args, context.databases())?;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    if from == to {
        return Err(SAME_OBJECT);
    }
    if !context.is_offloaded() {
        let found = context.contains_in(from.0, from.1);
        context.count_lookup(from.1, found);
        if !found || !replace && context.contains_in(to.0, to.1) {
            reply.integer(0);
            return Ok(());
        }
        if from.0 != to.0 {
            context.check_room_for(to.0, from)?;
        }
    }
    let elements = |entry: Option<EntryRef<'_>>| entry.map_or(0, elements_about);
    let copy =
        context.compute_offloaded(from.1, elements, |entry, _| entry.and_then(EntryRef::copied_object))?;
    let copied = context.copy(from, to, copy.flatten());
    if copied {
        context.notify_in(to.0, EventClass::Generic, "copy_to", to.1);
    }
    reply.integer(copied.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::{Scenario, check};

    #[test]
    fn renaming_takes_value_and_expiry_along() {
        check(
            "
            > RENAME a b
            -ERR no such key
            > RENAMENX a a
            -ERR no such key
            > SET a 1
            +OK
            > SET b 2
            +OK
            > EXPIRE a 100
            :1
            > RENAME a a
            +OK
            > RENAMENX a a
            :0
            > RENAMENX a b
            :0
            > RENAME a b
            +OK
            > GET a
            $-1
            > GET b
            $1 1
            > TTL b
            :100
            > RENAMENX b a
            :1
            > TTL a
            :100
            > SET b 2
            +OK
            > RENAME b a
            +OK
            > TTL a
            :-1
            > DBSIZE
            :1
            ",
        );
    }

    #[test]
    fn rename_and_copy_ignore_an_expired_destination() {
        check(
            "
            > SET a 1
            +OK
            > SET b 2
            +OK
            > PEXPIRE b 5
            :1
            @ +5
            > RENAMENX a b
            :1
            > TTL b
            :-1
            > PEXPIRE b 5
            :1
            @ +5
            > COPY b c
            :0
            > RENAME b c
            -ERR no such key
            ",
        );
    }

    #[test]
    fn keys_move_between_databases() {
        let mut scenario = Scenario::new();
        scenario.play(
            "
            > SET a 1
            +OK
            > EXPIRE a 100
            :1
            > MOVE a 2
            :1
            > MOVE a 2
            :0
            > DBSIZE
            :0
            > SET a 3
            +OK
            > MOVE a 2
            :0
            > MOVE a 0
            -ERR source and destination objects are the same
            > MOVE a 16
            -ERR DB index is out of range
            > MOVE a -1
            -ERR DB index is out of range
            > MOVE a x
            -ERR value is not an integer or out of range
            > MOVE a 4294967296
            -ERR value is out of range, value must between -2147483648 and 2147483647
            ",
        );
        scenario.database = 2;
        scenario.play("> GET a\n$1 1\n> TTL a\n:100");
    }

    #[test]
    fn copies_are_independent() {
        let mut scenario = Scenario::new();
        scenario.play(
            "
            > COPY a b
            :0
            > SET a 1
            +OK
            > EXPIRE a 100
            :1
            > COPY a b
            :1
            > COPY a b
            :0
            > INCR a
            :2
            > GET b
            $1 1
            > TTL b
            :100
            > PERSIST a
            :1
            > COPY a b REPLACE
            :1
            > GET b
            $1 2
            > TTL b
            :-1
            > COPY a a
            -ERR source and destination objects are the same
            > COPY a a DB 0 REPLACE
            -ERR source and destination objects are the same
            > COPY a a DB 3
            :1
            > COPY a a replace db 3
            :1
            > COPY a b DB
            -ERR syntax error
            > COPY a b NX
            -ERR syntax error
            > COPY a b DB x
            -ERR value is not an integer or out of range
            > COPY a b DB 16
            -ERR DB index is out of range
            ",
        );
        scenario.database = 3;
        scenario.play("> GET a\n$1 2");
    }

    #[test]
    fn long_values_travel_whole() {
        let long = "x".repeat(100_000);
        let mut scenario = Scenario::new();
        scenario.play(&format!(
            "> SET a {long}\n+OK\n> RENAME a b\n+OK\n> COPY b a\n:1\n> MOVE b 1\n:1\n> DEL a\n:1"
        ));
        assert!(scenario.worker.garbage.is_empty(), "renaming and moving throw nothing away");
        scenario.database = 1;
        scenario.play(&format!("> GET b\n$100000 {long}"));
    }
}
