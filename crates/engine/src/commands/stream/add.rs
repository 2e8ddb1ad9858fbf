//! XADD.

use std::borrow::Cow;

use dunlin_resp::ReplyBuffer;
use xxhash_rust::xxh3::Xxh3;

use super::{
    INVALID_ID,
    propagation::record_edit,
    reply_id,
    trim::{REFERENCES, TRIM, TrimOptions, discard},
};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::WriteContext,
    notify::EventClass,
    value::{
        Stream,
        stream::{AddError, NewId, Producers, StreamId},
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
        Argument::one_of(
            "idempotency",
            &[
                Argument::string("producer-id").after("IDMPAUTO"),
                Argument::block(
                    "explicit",
                    &[Argument::string("producer-id"), Argument::string("idempotent-id")],
                )
                .after("IDMP"),
            ],
        )
        .optional()
        .since("8.6.0"),
        TRIM.optional(),
        Argument::one_of("id-selector", &[Argument::word("auto-id", "*"), Argument::string("id")]),
        Argument::block("data", &[Argument::string("field"), Argument::string("value")]).multiple(),
    ],
    tips: &["nondeterministic_output"],
    ..Command::DEFAULT
};

/// The mark by which an entry that was added before is recognised.
#[derive(Debug, Clone, Copy)]
struct Once<'a> {
    producer: &'a [u8],
    /// The producer's name for the entry; without one the entry stands for itself.
    name: Option<&'a [u8]>,
}

impl<'a> Once<'a> {
    /// Reads `IDMP` or `IDMPAUTO`, if one is next.
    fn read(args: &mut Args<'a>, former: Option<Self>) -> Result<Option<Self>, CommandError> {
        let (option, once) = if args.token_with("IDMP", 2) {
            ("IDMP", Self { producer: args.word(), name: Some(args.word()) })
        } else if args.token_with("IDMPAUTO", 1) {
            ("IDMPAUTO", Self { producer: args.word(), name: None })
        } else {
            return Ok(None);
        };
        if former.is_some() {
            return Err(CommandError::text("ERR IDMP/IDMPAUTO specified multiple times"));
        }
        let missing = |what| CommandError::owned(format!("ERR {option} requires a non-empty {what} ID"));
        if once.producer.is_empty() {
            return Err(missing("producer"));
        }
        if once.name.is_some_and(<[u8]>::is_empty) {
            return Err(missing("idempotent"));
        }
        Ok(Some(once))
    }

    /// The name of an entry with these fields and values.
    fn name_of(&self, pairs: &[&[u8]]) -> Cow<'a, [u8]> {
        self.name.map_or_else(|| Cow::Owned(digest(pairs).to_vec()), Cow::Borrowed)
    }
}

/// A digest of fields and values, independent of their order.
///
/// Redis combines the hashes of pairs with an exclusive or, and ignores where a field ends: entries that differ can
/// have one digest, and the second is lost. Here a pair counts with the length of its field, and hashes are added up.
fn digest(pairs: &[&[u8]]) -> [u8; 16] {
    let sum = pairs.chunks_exact(2).fold(0_u128, |sum, pair| {
        let mut hash = Xxh3::new();
        hash.update(&(pair[0].len() as u64).to_le_bytes());
        hash.update(pair[0]);
        hash.update(pair[1]);
        sum.wrapping_add(hash.digest128())
    });
    sum.to_le_bytes()
}

/// The outcome for an entry.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    Added(StreamId),
    /// The entry was added before.
    Known(StreamId),
}

fn xadd(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let limits = context.layout().limits;
    let (mut options, mut creates, mut once) = (TrimOptions::default(), true, None);
    let id = loop {
        match args.peek() {
            Some(b"*") => {
                args.word();
                break Some(NewId::Auto);
            }
            None => break None,
            Some(_) if options.read(args)? => {}
            Some(_) if args.token("NOMKSTREAM") => creates = false,
            Some(_) if let Some(read) = Once::read(args, once)? => once = Some(read),
            Some(_) => break Some(NewId::parse(args.word()).ok_or(INVALID_ID)?),
        }
    };
    // The log says which ID it was.
    if once.is_some() && id.is_some_and(|id| id != NewId::Auto) && !context.is_replaying() {
        return Err(CommandError::text("ERR IDMP/IDMPAUTO can be used only with auto-generated IDs"));
    }
    let plan = options.plan(limits, context.is_replaying())?;
    let id_at = args.words().len() - args.remaining() - 1;
    let pairs = args.take_rest();
    let Some(id) = id.filter(|_| pairs.len() >= 2 && pairs.len().is_multiple_of(2)) else {
        return Err(CommandError::WrongArity("xadd".to_owned()));
    };
    if id == NewId::Exactly(StreamId::MIN) {
        return Err(CommandError::text("ERR The ID specified in XADD must be greater than 0-0"));
    }
    let (now_ms, clock_ms, is_replaying) = (context.now_ms(), context.clock_ms(), context.is_replaying());
    let once = once.map(|once: Once<'_>| (once.producer, once.name_of(pairs)));
    let add = |stream: &mut Stream| {
        if let Some((producer, name)) = &once
            && let Some(former) = stream.producers().and_then(|known| known.find(producer, name, now_ms))
            // Nothing is past its time while a log is replayed: the ID shows whether the entry was known at its
            // recording.
            && (!is_replaying || id == NewId::Exactly(former))
        {
            stream.edit_producers(limits.producers, Producers::count_duplicate);
            return ((Ok(Outcome::Known(former)), None), false);
        }
        let added = stream.log_mut().add(id, pairs, clock_ms, limits);
        if let (Ok(id), Some((producer, name))) = (added, &once) {
            stream.edit_producers(limits.producers, |known| known.remember(producer, name, id, now_ms));
        }
        let trimmed = match (added, plan) {
            (Ok(_), Some(plan)) => Some(plan.run(stream)),
            _ => None,
        };
        ((added.map(Outcome::Added), trimmed), added.is_ok())
    };
    let (added, trimmed) = if creates {
        context.update_or_create(key, add)?
    } else if let Some(done) = context.update(key, add)? {
        done
    } else {
        reply.null();
        return Ok(());
    };
    let outcome = added.map_err(|error| {
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
    let (Outcome::Added(id) | Outcome::Known(id)) = outcome;
    // An entry that was known is counted.
    record_edit(context, key, args.words(), Some((id_at, id)));
    if let Outcome::Known(_) = outcome {
        reply_id(reply, id);
        return Ok(());
    }
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
    fn xadd_adds_a_producers_repeated_entry_once() {
        check(
            "
            > XADD s IDMP ann 7 * a 1
            $15 1700000000000-0
            > XADD s IDMP ann 7 MAXLEN 0 * b 2
            $15 1700000000000-0
            > XADD s IDMP bob 7 * a 1
            $15 1700000000000-1
            > XADD s IDMPAUTO ann * a 1 b 2
            $15 1700000000000-2
            > XADD s NOMKSTREAM IDMPAUTO ann KEEPREF * b 2 a 1
            $15 1700000000000-2
            > XADD s IDMPAUTO ann * a 1b 2 ''
            $15 1700000000000-3
            > XADD s IDMPAUTO ann * a 1 a 1
            $15 1700000000000-4
            > XADD s IDMPAUTO ann * a 2 a 2
            $15 1700000000000-5
            > XLEN s
            :6
            > XDEL s 1700000000000-0
            :1
            > XADD s IDMP ann 7 * a 1
            $15 1700000000000-0
            > XCFGSET s IDMP-DURATION 100
            +OK
            > XADD s IDMP ann 7 * a 1
            $15 1700000000000-0
            > COPY s t
            :1
            @ +99999
            > XADD t IDMP ann 7 * a 1
            $15 1700000000000-0
            @ +1
            > XADD t IDMP ann 7 * a 1
            $15 1700000100000-0
            > XADD t IDMP ann 7 * a 1
            $15 1700000100000-0
            > XCFGSET t IDMP-MAXSIZE 1
            +OK
            > XADD t IDMP ann 7 * a 1
            $15 1700000100000-1
            > XADD t IDMP ann 8 * a 1
            $15 1700000100000-2
            > XADD t IDMP ann 7 * a 1
            $15 1700000100000-3
            > XADD missing NOMKSTREAM IDMP p 1 * f v
            $-1
            > XADD s IDMP p * f v
            -ERR Invalid stream ID specified as stream command argument
            > XADD s IDMP p 1 5-* f v
            -ERR IDMP/IDMPAUTO can be used only with auto-generated IDs
            > XADD s IDMP p 1 IDMPAUTO p * f v
            -ERR IDMP/IDMPAUTO specified multiple times
            > XADD s IDMP '' 1 * f v
            -ERR IDMP requires a non-empty producer ID
            > XADD s IDMP p '' * f v
            -ERR IDMP requires a non-empty idempotent ID
            > XADD s IDMPAUTO '' * f v
            -ERR IDMPAUTO requires a non-empty producer ID
            > XADD s IDMP p 1 * f
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
