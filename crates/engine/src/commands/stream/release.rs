//! Releasing deliveries: a consumer gives back what it cannot process.

use dunlin_resp::ReplyBuffer;

use super::{no_group, parse_ids, take_counted_ids};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::{Change, WriteContext},
    value::{
        Stream,
        stream::{ReleaseCount, StreamId},
    },
};

/// The count of a delivery that no consumer can process.
const FATAL_COUNT: u64 = i64::MAX as u64;

pub(super) const XNACK: Command = Command {
    name: "xnack",
    summary: "Takes deliveries from their consumers, so that others may claim them at once, and returns how many there were.",
    since: "8.8.0",
    group: Group::Stream,
    complexity: "O(log n) per entry",
    arity: Arity::AtLeast(7),
    run: Run::Write(xnack),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).read_write().updates()],
    args: &[
        Argument::key("key"),
        Argument::string("group"),
        Argument::one_of(
            "mode",
            &[
                Argument::word("silent", "SILENT"),
                Argument::word("fail", "FAIL"),
                Argument::word("fatal", "FATAL"),
            ],
        ),
        Argument::block("ids", &[Argument::integer("numids"), Argument::string("id").multiple()])
            .after("IDS"),
        Argument::integer("count").after("RETRYCOUNT").optional(),
        Argument::word("force", "FORCE").optional(),
    ],
    ..Command::DEFAULT
};

/// The options of XNACK.
struct Options {
    ids: Vec<StreamId>,
    count: ReleaseCount,
    /// Entries that were not delivered become deliveries that were released.
    force: bool,
}

impl Options {
    /// Reads `SILENT | FAIL | FATAL IDS numids id … [RETRYCOUNT count] [FORCE]`.
    fn read(args: &mut Args<'_>) -> Result<Self, CommandError> {
        let mut count = if args.token("SILENT") {
            ReleaseCount::Undone
        } else if args.token("FAIL") {
            ReleaseCount::Kept
        } else if args.token("FATAL") {
            ReleaseCount::Exactly(FATAL_COUNT)
        } else {
            return Err(CommandError::Syntax);
        };
        if !args.token("IDS") {
            return Err(CommandError::Syntax);
        }
        let ids = parse_ids(take_counted_ids(args)?)?;
        let mut force = false;
        while !args.is_empty() {
            if args.token_with("RETRYCOUNT", 1) {
                let negative = CommandError::text("ERR RETRYCOUNT must be a non-negative integer");
                let retries = args.integer_in(0..=i64::MAX, negative);
                args.check()?;
                count = ReleaseCount::Exactly(retries as u64);
            } else if args.token("FORCE") {
                force = true;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(Self { ids, count, force })
    }
}

fn xnack(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, name) = (args.word(), args.word());
    let Options { ids, count, force } = Options::read(args)?;
    let released = context.update(key, |stream: &mut Stream| {
        let released = stream.edit_group(name, |group, log| {
            ids.iter().filter(|id| group.release(**id, count, force && log.contains(**id))).count()
        });
        (released, Change::of_groups(released.is_some_and(|released| released > 0)))
    })?;
    let released = released.flatten().ok_or_else(|| no_group(key, name))?;
    context.count_changes(released);
    reply.count(released);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    const READ: &str = "
        > XADD s 1 a 1
        $3 1-0
        > XADD s 2 a 1
        $3 2-0
        > XADD s 3 a 1
        $3 3-0
        > XGROUP CREATE s g 0
        +OK
        > XREADGROUP GROUP g ann COUNT 2 STREAMS s >
        *1 *2 $1 s *2 *2 $3 1-0 *2 $1 a $1 1 *2 $3 2-0 *2 $1 a $1 1
    ";

    fn check_after_reading(script: &str) {
        check(&[READ, script].concat());
    }

    #[test]
    fn xnack_takes_deliveries_from_their_consumer() {
        check_after_reading(
            "
            > XNACK s g FAIL IDS 2 1 9
            :1
            > XPENDING s g
            *4 :2 $3 1-0 $3 2-0 *1 *2 $3 ann $1 1
            > XPENDING s g - + 1
            *1 *4 $3 1-0 $0  :-1 :1
            > XREADGROUP GROUP g ben STREAMS s >
            *1 *2 $1 s *1 *2 $3 3-0 *2 $1 a $1 1
            > XCLAIM s g ben 9000000000000000000 1 JUSTID
            *1 $3 1-0
            > XPENDING s g
            *4 :3 $3 1-0 $3 3-0 *2 *2 $3 ann $1 1 *2 $3 ben $1 2
            ",
        );
    }

    #[test]
    fn xnack_counts_as_its_mode_says() {
        check_after_reading(
            "
            > XNACK s g SILENT IDS 1 1
            :1
            > XNACK s g FATAL IDS 1 2
            :1
            > XPENDING s g - + 9
            *2 *4 $3 1-0 $0  :-1 :0 *4 $3 2-0 $0  :-1 :9223372036854775807
            > XNACK s g SILENT IDS 1 1
            :1
            > XNACK s g FATAL IDS 1 2 RETRYCOUNT 7
            :1
            > XPENDING s g - + 9
            *2 *4 $3 1-0 $0  :-1 :0 *4 $3 2-0 $0  :-1 :7
            > XACK s g 1 2
            :2
            ",
        );
    }

    #[test]
    fn xnack_makes_deliveries_of_entries_by_force_only() {
        check_after_reading(
            "
            > XNACK s g FAIL IDS 1 3
            :0
            > XNACK s g FAIL IDS 2 3 4 FORCE
            :1
            > XPENDING s g 3 3 1
            *1 *4 $3 3-0 $0  :-1 :0
            > XAUTOCLAIM s g ben 9000000000000000000 0 JUSTID
            *3 $3 0-0 *1 $3 3-0 *0
            ",
        );
    }

    #[test]
    fn xnack_refuses_what_it_does_not_understand() {
        check_after_reading(
            "
            > XNACK s h FAIL IDS 1 1
            -NOGROUP No such key 's' or consumer group 'h'
            > XNACK missing g FAIL IDS 1 1
            -NOGROUP No such key 'missing' or consumer group 'g'
            > XNACK s g LOUD IDS 1 1
            -ERR syntax error
            > XNACK s g FAIL IDS 2 1
            -ERR The `numids` parameter must match the number of arguments
            > XNACK s g FAIL IDS 0 1
            -ERR Number of IDs must be a positive integer
            > XNACK s g FAIL IDS 1 x
            -ERR Invalid stream ID specified as stream command argument
            > XNACK s g FAIL IDS 1 1 RETRYCOUNT -1
            -ERR RETRYCOUNT must be a non-negative integer
            > XNACK s g FAIL IDS 1 1 AGAIN
            -ERR syntax error
            ",
        );
    }
}
