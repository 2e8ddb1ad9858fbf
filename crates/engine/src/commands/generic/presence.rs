//! Keys as such: their presence, type and removal.

use dunlin_resp::ReplyBuffer;

use crate::{
    command::{Args, Argument, Arity, Command, CommandResult, Flags, KeySpec, Run},
    context::{ReadContext, WriteContext},
    notify::EventClass,
};

/// The row of a command that counts something over many keys.
const COUNT: Command = Command {
    since: "1.0.0",
    complexity: "O(n) for n keys",
    arity: Arity::AtLeast(2),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).through(-1, 1)],
    args: &[Argument::key("key").multiple()],
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    ..Command::DEFAULT
};

pub(super) const DEL: Command = Command {
    name: "del",
    summary: "Removes keys and frees what they held.",
    complexity: "O(n) for n keys, beside freeing collections and long strings",
    run: Run::Write(del),
    flags: Flags::NONE,
    keys: &[KeySpec::at(1).through(-1, 1).remove().deletes()],
    ..COUNT
};

pub(super) const UNLINK: Command = Command {
    name: "unlink",
    summary: "Removes keys; collections and long strings are freed in the background.",
    since: "4.0.0",
    run: Run::Write(unlink),
    keys: &[KeySpec::at(1).through(-1, 1).remove().deletes()],
    ..COUNT
};

pub(super) const EXISTS: Command = Command {
    name: "exists",
    summary: "Counts which of the named keys are there; a key named twice counts twice.",
    run: Run::Read(exists),
    ..COUNT
};

pub(super) const TOUCH: Command = Command {
    name: "touch",
    summary: "Notes an access to keys and counts which of them are there.",
    since: "3.2.1",
    run: Run::Read(touch),
    ..COUNT
};

pub(super) const TYPE: Command = Command {
    name: "type",
    summary: "Returns the type of the value under a key.",
    since: "1.0.0",
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    run: Run::Read(value_type),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1)],
    args: &[Argument::key("key")],
    ..Command::DEFAULT
};

fn del(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    if !context.policy().lazyfree_user_del {
        context.free_before_answering();
    }
    unlink(context, args, reply)
}

fn unlink(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let mut removed = 0;
    for key in args.take_rest() {
        if context.remove(key) {
            context.notify(EventClass::Generic, "del", key);
            removed += 1;
        }
    }
    reply.count(removed);
    Ok(())
}

fn exists(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    reply.count(args.take_rest().iter().filter(|key| context.inspect(key).is_some()).count());
    Ok(())
}

fn touch(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    reply.count(args.take_rest().iter().filter(|key| context.touch(key)).count());
    Ok(())
}

fn value_type(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    match context.inspect(args.word()) {
        None => reply.simple("none"),
        Some(entry) => reply.simple(entry.type_name()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::{Scenario, check};

    #[test]
    fn keys_are_counted_and_removed() {
        check(
            "
            > SET a 1
            +OK
            > SET b 2
            +OK
            > EXISTS a b c a
            :3
            > TOUCH a b c a
            :3
            > TYPE a
            +string
            > TYPE c
            +none
            > DEL a c a
            :1
            > UNLINK b b
            :1
            > EXISTS a b
            :0
            > DEL
            -ERR wrong number of arguments for 'del' command
            ",
        );
    }

    #[test]
    fn expired_keys_are_not_there() {
        check(
            "
            > SET a 1
            +OK
            > SET b 1
            +OK
            > PEXPIRE a 1
            :1
            > PEXPIRE b 1
            :1
            @ +1
            > EXISTS a
            :0
            > DBSIZE
            :1
            > DEL a b
            :0
            > DBSIZE
            :0
            ",
        );
    }

    #[test]
    fn unlink_leaves_long_values_to_be_freed_later() {
        let long = "x".repeat(100_000);
        let mut scenario = Scenario::new();
        scenario.play(&format!("> SET a {long}\n+OK\n> SET b {long}\n+OK\n> SET c {long}\n+OK"));
        scenario.play("> UNLINK a\n:1");
        assert!(!scenario.worker.garbage.take().is_empty(), "handed over");
        scenario.play("> DEL b\n:1");
        assert!(scenario.worker.garbage.is_empty(), "freed before the answer");
        scenario.policy.lazyfree_user_del = true;
        scenario.play("> DEL c\n:1");
        assert!(!scenario.worker.garbage.is_empty());
    }
}
