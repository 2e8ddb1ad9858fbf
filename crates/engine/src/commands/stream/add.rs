//! XADD.

use dunlin_resp::ReplyBuffer;

use super::{
    INVALID_ID,
    effect::record_edit,
    reply_id,
    trim::{REFERENCES, TRIM, TrimOptions, discard},
};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::WriteContext,
    notify::EventClass,
    value::{
        Stream,
        stream::{AddError, NewId, StreamId},
    },
};

pub(super) const XADD: Command = Command {
    name: "xadd",
    summary: "Appends an entry to a stream, which is created where the key is missing, and returns its ID.",
    since: "5.0.0",
    group: Group::Stream,
    complexity: "O(1), and O(n) in the number of entries trimmed away",
    arity: Arity::AtLeast(5),
    run: Run::Write(xadd),
    flags: Flags::DENY_OOM.and(Flags::FAST),
    keys: &[KeySpec::at(1).read_write().updates()],
    args: &[
        Argument::key("key"),
        Argument::word("nomkstream", "NOMKSTREAM").optional().since("6.2.0"),
        REFERENCES.optional(),
        TRIM.optional(),
        Argument::one_of("id-selector", &[Argument::word("auto-id", "*"), Argument::string("id")]),
        Argument::block("data", &[Argument::string("field"), Argument::string("value")]).multiple(),
    ],
    tips: &["nondeterministic_output"],
    ..Command::DEFAULT
};

fn xadd(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let limits = context.layout().limits;
    let (mut options, mut creates) = (TrimOptions::default(), true);
    let id = loop {
        match args.peek() {
            Some(b"*") => {
                args.word();
                break Some(NewId::Auto);
            }
            None => break None,
            Some(_) if options.read(args)? => {}
            Some(_) if args.token("NOMKSTREAM") => creates = false,
            Some(_) => break Some(NewId::parse(args.word()).ok_or(INVALID_ID)?),
        }
    };
    let plan = options.plan(limits, context.is_replaying())?;
    let id_at = args.words().len() - args.remaining() - 1;
    let pairs = args.take_rest();
    let Some(id) = id.filter(|_| pairs.len() >= 2 && pairs.len().is_multiple_of(2)) else {
        return Err(CommandError::WrongArity("xadd".to_owned()));
    };
    if id == NewId::Exactly(StreamId::MIN) {
        return Err(CommandError::text("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let now_ms = context.now_ms();
    let add = |stream: &mut Stream| {
        let added = stream.log_mut().add(id, pairs, now_ms, limits);
        let trimmed = match (added, plan) {
            (Ok(_), Some(plan)) => Some(plan.run(stream)),
            _ => None,
        };
        ((added, trimmed), added.is_ok())
    };
    let (added, trimmed) = if creates {
        context.update_or_create(key, add)?
    } else if let Some(done) = context.update(key, add)? {
        done
    } else {
        reply.null();
        return Ok(());
    };
    let id = added.map_err(|error| {
        CommandError::text(match error {
            AddError::Exhausted => {
                "ERR The stream has exhausted the last possible ID, unable to add more items"
            }
            AddError::NotBehindLast => {
                "ERR The ID specified in XADD is equal or smaller than the target stream top item"
            }
            AddError::TooLarge => "ERR Elements are too large to be stored",
        })
    })?;
    record_edit(context, key, args.words(), Some((id_at, id)));
    context.notify(EventClass::Stream, "xadd", key);
    if trimmed.is_some_and(|trimmed| discard(context, trimmed) > 0) {
        context.notify(EventClass::Stream, "xtrim", key);
    }
    reply_id(reply, id);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn ids_are_given_or_made() {
        check(
            "
            > XADD s 5-1 a 1
            $3 5-1
            > XADD s 5-* a 2
            $3 5-2
            > XADD s 4-* a 2
            -ERR The ID specified in XADD is equal or smaller than the target stream top item
            > XADD s * a 3
            $15 1700000000000-0
            > XADD s * a 3
            $15 1700000000000-1
            > XADD new 0-0 a 1
            -ERR The ID specified in XADD must be greater than 0-0
            > XADD new 0-* a 1
            $3 0-1
            > XADD missing NOMKSTREAM * a 1
            $-1
            > XADD s 18446744073709551615-18446744073709551615 a 1
            $41 18446744073709551615-18446744073709551615
            > XADD s * a 1
            -ERR The stream has exhausted the last possible ID, unable to add more items
            > XADD s * a
            -ERR wrong number of arguments for 'xadd' command
            > XADD s * a 1 b
            -ERR wrong number of arguments for 'xadd' command
            ",
        );
    }

    #[test]
    fn old_entries_are_trimmed_away() {
        check(
            "
            > XADD s 1 a 1
            $3 1-0
            > XADD s MAXLEN 2 2 a 1
            $3 2-0
            > XADD s MAXLEN = 2 3 a 1
            $3 3-0
            > XRANGE s - +
            *2 *2 $3 2-0 *2 $1 a $1 1 *2 $3 3-0 *2 $1 a $1 1
            > XADD s MINID 4 4 a 1
            $3 4-0
            > XLEN s
            :1
            > XTRIM s MAXLEN ~ 0 LIMIT 10
            :1
            > XTRIM s MAXLEN 5 LIMIT 3
            -ERR syntax error, LIMIT cannot be used without the special ~ option
            > XTRIM s LIMIT 5
            -ERR syntax error, LIMIT cannot be used without specifying a trimming strategy
            > XTRIM s MAXLEN 1 MINID 1
            -ERR syntax error, MAXLEN and MINID options at the same time are not compatible
            ",
        );
    }
}
