//! XCFGSET.

use dunlin_resp::ReplyBuffer;

use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::{Change, WriteContext},
    value::{Stream, stream::ProducerLimits},
};

pub(super) const XCFGSET: Command = Command {
    name: "xcfgset",
    summary: "Sets for how many seconds, and how many of each producer, entries are remembered that are to be added once. A change forgets all of them.",
    since: "8.6.0",
    group: Group::Stream,
    complexity: "O(1)",
    arity: Arity::AtLeast(2),
    run: Run::Write(xcfgset),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).read_write().updates()],
    args: &[
        Argument::key("key"),
        Argument::integer("duration").after("IDMP-DURATION").optional(),
        Argument::integer("maxsize").after("IDMP-MAXSIZE").optional(),
    ],
    ..Command::DEFAULT
};

fn xcfgset(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let (mut duration_s, mut entries_max) = (None, None);
    while !args.is_empty() {
        let (place, range, error) = if args.token_with("IDMP-DURATION", 1) {
            let error = "ERR IDMP-DURATION must be between 1 and 86400 seconds";
            (&mut duration_s, 1..=ProducerLimits::DURATION_S_MAX, error)
        } else if args.token_with("IDMP-MAXSIZE", 1) {
            let error = "ERR IDMP-MAXSIZE must be between 1 and 10000 entries";
            (&mut entries_max, 1..=ProducerLimits::ENTRIES_MAX, error)
        } else {
            return Err(CommandError::Syntax);
        };
        let value = args.integer();
        args.check()?;
        let value = u32::try_from(value).ok().filter(|value| range.contains(value));
        *place = Some(value.ok_or(CommandError::text(error))?);
    }
    if duration_s.is_none() && entries_max.is_none() {
        return Err(CommandError::text("ERR At least one parameter must be specified"));
    }
    let defaults = context.layout().limits.producers;
    let done = context.update(key, |stream: &mut Stream| {
        let former = stream.producers().map_or(defaults, |producers| producers.limits());
        let limits = ProducerLimits {
            duration_s: duration_s.unwrap_or(former.duration_s),
            entries_max: entries_max.unwrap_or(former.entries_max),
        };
        // Today's default may be another one later.
        let is_first = stream.producers().is_none();
        let changed = stream.edit_producers(defaults, |producers| producers.set_limits(limits));
        ((), Change::of_groups(changed || is_first))
    })?;
    done.ok_or(CommandError::NoSuchKey)?;
    reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn limits_are_set_within_their_ranges() {
        check(
            "
            > XCFGSET s IDMP-DURATION 5
            -ERR no such key
            > XADD s IDMP p a 1-1 f v
            -ERR IDMP/IDMPAUTO can be used only with auto-generated IDs
            > XADD s * f v
            $15 1700000000000-0
            > XCFGSET s
            -ERR At least one parameter must be specified
            > XCFGSET s IDMP-DURATION
            -ERR syntax error
            > XCFGSET s IDMP-DURATION 0
            -ERR IDMP-DURATION must be between 1 and 86400 seconds
            > XCFGSET s IDMP-DURATION 86401
            -ERR IDMP-DURATION must be between 1 and 86400 seconds
            > XCFGSET s IDMP-MAXSIZE 10001
            -ERR IDMP-MAXSIZE must be between 1 and 10000 entries
            > XCFGSET s IDMP-MAXSIZE 0001
            -ERR value is not an integer or out of range
            > XCFGSET s IDMP-MAXSIZE 10000 IDMP-DURATION 86400
            +OK
            > XCFGSET s OTHER 1
            -ERR syntax error
            > SET t v
            +OK
            > XCFGSET t IDMP-DURATION 5
            -WRONGTYPE Operation against a key holding the wrong kind of value
            ",
        );
    }
}
