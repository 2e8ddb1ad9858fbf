//! Databases as a whole: emptied, exchanged.

use dunlin_resp::ReplyBuffer;

use super::in_range;
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, Run},
    context::ExclusiveContext,
};

const FLUSH_ARGS: &[Argument] = &[Argument::one_of(
    "async",
    &[Argument::word("async", "ASYNC").since("4.0.0"), Argument::word("sync", "SYNC").since("6.2.0")],
)
.optional()];

const FLUSH: Command = Command {
    since: "1.0.0",
    group: Group::Server,
    complexity: "O(stripes) while other commands wait; freeing n keys is O(n), before the answer or behind it",
    arity: Arity::AtLeast(1),
    flags: Flags::KEYSPACE.and(Flags::DANGEROUS),
    args: FLUSH_ARGS,
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    ..Command::DEFAULT
};

pub(super) const FLUSHALL: Command = Command {
    name: "flushall",
    summary: "Removes all keys of all databases.",
    run: Run::Exclusive(flushall),
    ..FLUSH
};

pub(super) const FLUSHDB: Command = Command {
    name: "flushdb",
    summary: "Removes all keys of the selected database.",
    run: Run::Exclusive(flushdb),
    ..FLUSH
};

pub(super) const SWAPDB: Command = Command {
    name: "swapdb",
    summary: "Exchanges the keys of two databases.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "O(stripes)",
    arity: Arity::Exactly(3),
    run: Run::Exclusive(swapdb),
    flags: Flags::FAST.and(Flags::KEYSPACE).and(Flags::DANGEROUS),
    args: &[Argument::integer("index1"), Argument::integer("index2")],
    ..Command::DEFAULT
};

fn flushall(
    context: &mut ExclusiveContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    flush(context, None, args, reply)
}

fn flushdb(
    context: &mut ExclusiveContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    flush(context, Some(context.database()), args, reply)
}

/// Why no database is emptied now.
const HELD: CommandError =
    CommandError::text("TRYAGAIN slots are changing hands: databases can be emptied when that is over");

fn flush(
    context: &mut ExclusiveContext<'_>,
    database: Option<usize>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let lazy = if args.token("ASYNC") {
        true
    } else if args.token("SYNC") {
        false
    } else {
        context.policy().lazyfree_user_flush
    };
    args.finish()?;
    if context.holds_flushes() && !context.caller().follows_primary {
        return Err(HELD);
    }
    context.flush(database, lazy);
    if database.is_none() {
        context.note_emptied();
    }
    reply.ok();
    Ok(())
}

fn swapdb(context: &mut ExclusiveContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    const INTS: std::ops::RangeInclusive<i64> = i32::MIN as i64..=i32::MAX as i64;
    let one = args.integer_in(INTS, CommandError::text("ERR invalid first DB index"));
    let other = args.integer_in(INTS, CommandError::text("ERR invalid second DB index"));
    args.finish()?;
    let (one, other) = (in_range(one, context.databases())?, in_range(other, context.databases())?);
    if one != other {
        context.check_swap(one, other)?;
        context.swap(one, other);
    }
    reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::{Scenario, check};

    #[test]
    fn databases_are_emptied_one_by_one_or_all() {
        let mut scenario = Scenario::new();
        scenario.play("> SET a 1\n+OK");
        scenario.database = 3;
        scenario.play(
            "> SET b 1\n+OK\n> SET c 1\n+OK\n> DBSIZE\n:2\n> FLUSHDB\n+OK\n> DBSIZE\n:0\n> SET b 1\n+OK",
        );
        scenario.database = 0;
        scenario.play("> DBSIZE\n:1\n> FLUSHALL ASYNC\n+OK\n> DBSIZE\n:0\n> GET a\n$-1");
        scenario.database = 3;
        scenario.play("> DBSIZE\n:0\n> FLUSHDB sync\n+OK");
        check(
            "
            > FLUSHALL NOW
            -ERR syntax error
            > FLUSHDB ASYNC SYNC
            -ERR syntax error
            ",
        );
    }

    #[test]
    fn databases_are_not_emptied_while_that_is_held_back_but_by_a_primary() {
        let mut scenario = Scenario::new();
        scenario.engine.keyspace.hold_flushes(true);
        scenario.play(
            "
            > SET a 1
            +OK
            > FLUSHALL
            -TRYAGAIN slots are changing hands: databases can be emptied when that is over
            > FLUSHDB ASYNC
            -TRYAGAIN slots are changing hands: databases can be emptied when that is over
            > DBSIZE
            :1
            ",
        );
        scenario.caller.follows_primary = true;
        scenario.play("> FLUSHALL\n+OK\n> DBSIZE\n:0");
        scenario.caller.follows_primary = false;
        scenario.engine.keyspace.hold_flushes(false);
        scenario.play("> SET a 1\n+OK\n> FLUSHALL\n+OK\n> DBSIZE\n:0");
    }

    #[test]
    fn flush_frees_memory_as_its_option_says() {
        let mut scenario = Scenario::new();
        scenario.play("> SET a 1\n+OK\n> FLUSHALL\n+OK");
        assert!(scenario.worker.garbage.is_empty(), "freed before the answer");
        scenario.play("> SET a 1\n+OK\n> FLUSHALL ASYNC\n+OK");
        assert!(!scenario.worker.garbage.take().is_empty(), "handed over");
        scenario.policy.lazyfree_user_flush = true;
        scenario.play("> SET a 1\n+OK\n> FLUSHALL SYNC\n+OK");
        assert!(scenario.worker.garbage.is_empty());
        scenario.play("> SET a 1\n+OK\n> FLUSHALL\n+OK");
        assert!(!scenario.worker.garbage.is_empty());
    }

    #[test]
    fn swapdb_exchanges_databases() {
        let mut scenario = Scenario::new();
        scenario.play("> SET a 1\n+OK\n> SWAPDB 0 5\n+OK\n> DBSIZE\n:0\n> SET b 2\n+OK\n> SWAPDB 0 0\n+OK\n> GET b\n$1 2");
        scenario.database = 5;
        scenario.play("> GET a\n$1 1\n> SWAPDB 5 0\n+OK\n> GET a\n$-1\n> GET b\n$1 2");
        check(
            "
            > SWAPDB x 1
            -ERR invalid first DB index
            > SWAPDB 0 4294967296
            -ERR invalid second DB index
            > SWAPDB 0 16
            -ERR DB index is out of range
            > SWAPDB -1 0
            -ERR DB index is out of range
            > SWAPDB 1
            -ERR wrong number of arguments for 'swapdb' command
            ",
        );
    }
}
