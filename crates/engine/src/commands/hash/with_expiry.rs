//! Reading or writing fields and changing their deadlines, or removing them, in one step.

use std::collections::BTreeMap;

use dunlin_resp::ReplyBuffer;

use super::{
    expire::{notify_removal, record_deadline, record_removal},
    fields::reply_value,
    named::{FIELDS, WRONG_COUNT, behind_fields, counted, split_options},
};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    commands::expiry::ExpiryOption,
    context::{ExpiryChange, WriteContext},
    notify::EventClass,
    value::Hash,
};

const TIMES: [Argument; 4] = [
    Argument::integer("seconds").after("EX"),
    Argument::integer("milliseconds").after("PX"),
    Argument::unix_time("unix-time-seconds").after("EXAT"),
    Argument::unix_time("unix-time-milliseconds").after("PXAT"),
];

pub(super) const HGETEX: Command = Command {
    name: "hgetex",
    summary: "Returns the values of fields of a hash and changes when the fields expire.",
    since: "8.0.0",
    group: Group::Hash,
    complexity: "O(n log m) for n fields given and m fields that expire",
    arity: Arity::AtLeast(5),
    run: Run::Write(hgetex),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).read_write().accesses().updates()],
    args: &[
        Argument::key("key"),
        Argument::one_of(
            "expiration",
            &[TIMES[0], TIMES[1], TIMES[2], TIMES[3], Argument::word("persist", "PERSIST")],
        )
        .optional(),
        FIELDS,
    ],
    ..Command::DEFAULT
};

/// The change of the deadlines of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deadlines {
    Keep,
    Clear,
    At(u64),
    /// Their time has come already: the fields go.
    Passed,
}

impl Deadlines {
    /// Returns the change that the options ask for; the time is 0 or more.
    fn of(
        option: ExpiryOption<'_>,
        (now_ms, clock_ms): (u64, u64),
        name: &'static str,
    ) -> Result<Self, CommandError> {
        Ok(match option {
            ExpiryOption::None | ExpiryOption::Keep => Self::Keep,
            ExpiryOption::Persist => Self::Clear,
            ExpiryOption::Time(clock, amount) => match clock.at_from(0, amount, clock_ms, name)? {
                passed if passed <= now_ms => Self::Passed,
                at => Self::At(at),
            },
        })
    }
}

fn hgetex(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let (options, rest) = split_options(args.take_rest())?;
    let (mut options, mut expiry) = (Args::new(options, 0), ExpiryOption::None);
    while !options.is_empty() && expiry.read(&mut options, ("PERSIST", ExpiryOption::Persist)) {}
    options.finish()?;
    let fields = counted(rest, 1, WRONG_COUNT)?;
    let is_there = context.collection::<Hash>(key)?.is_some();
    context.count_lookup(key, is_there);
    let (now_ms, clock_ms, layout) = (context.now_ms(), context.clock_ms(), context.layout());
    let deadlines = Deadlines::of(expiry, (now_ms, clock_ms), "hgetex")?;
    reply.array(fields.len());
    let mut touched: Vec<&[u8]> = Vec::new();
    let outcome = context.update(key, |hash: &mut Hash| {
        let mut changes = 0;
        for field in fields {
            reply_value(reply, hash.get(field, now_ms));
            let Some(current) = hash.deadline_ms(field, now_ms) else { continue };
            let wanted = match deadlines {
                Deadlines::Keep => continue,
                Deadlines::Passed => {
                    if hash.remove(field, now_ms) {
                        changes += 1;
                        touched.push(field);
                    }
                    continue;
                }
                Deadlines::Clear if current.is_none() => continue,
                Deadlines::Clear => None,
                Deadlines::At(at) => Some(at),
            };
            hash.set_deadline(field, wanted, layout);
            changes += 1;
            touched.push(field);
        }
        hash.settle(layout);
        ((changes, hash.is_empty()), changes > 0)
    })?;
    context.count_changes(touched.len());
    match outcome {
        None => fields.iter().for_each(|_| reply.null()),
        Some((0, _)) => {}
        Some((_, is_empty)) => match deadlines {
            Deadlines::Keep => {}
            Deadlines::Clear => {
                if context.is_recorded() {
                    let mut count = itoa::Buffer::new();
                    let count = count.format(touched.len()).as_bytes();
                    context.propagate(&[&[b"HPERSIST", key, b"FIELDS", count], &touched[..]].concat());
                }
                context.notify_fields("hpersist", key, touched);
            }
            Deadlines::At(at) => {
                record_deadline(context, key, at, &touched);
                context.notify_fields("hexpire", key, touched);
            }
            Deadlines::Passed => {
                record_removal(context, key, &touched);
                notify_removal(context, key, &touched, is_empty);
            }
        },
    }
    Ok(())
}

pub(super) const HGETDEL: Command = Command {
    name: "hgetdel",
    summary: "Returns the values of fields of a hash and removes the fields.",
    complexity: "O(n) for n fields given",
    run: Run::Write(hgetdel),
    keys: &[KeySpec::at(1).read_write().accesses().deletes()],
    args: &[Argument::key("key"), FIELDS],
    ..HGETEX
};

fn hgetdel(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let fields = counted(behind_fields(args.take_rest())?, 1, WRONG_COUNT)?;
    let (now_ms, layout) = (context.now_ms(), context.layout());
    let mut removed: Vec<&[u8]> = Vec::new();
    let outcome = context.update(key, |hash: &mut Hash| {
        reply.array(fields.len());
        for field in fields {
            reply_value(reply, hash.get(field, now_ms));
            if hash.remove(field, now_ms) {
                removed.push(field);
            }
        }
        hash.settle(layout);
        (hash.is_empty(), !removed.is_empty())
    })?;
    match outcome {
        None => {
            reply.array(fields.len());
            fields.iter().for_each(|_| reply.null());
        }
        Some(_) if removed.is_empty() => {}
        Some(is_empty) => {
            context.count_changes(removed.len());
            record_removal(context, key, &removed);
            notify_removal(context, key, &removed, is_empty);
        }
    }
    Ok(())
}

pub(super) const HSETEX: Command = Command {
    name: "hsetex",
    summary: "Gives fields of a hash their values and a time to expire at.",
    arity: Arity::AtLeast(6),
    run: Run::Write(hsetex),
    flags: Flags::DENY_OOM.and(Flags::FAST),
    keys: &[KeySpec::at(1).read_write().inserts()],
    args: &[
        Argument::key("key"),
        Argument::one_of("key-condition", &[Argument::word("nx", "NX"), Argument::word("xx", "XX")])
            .optional(),
        Argument::one_of("fields-condition", &[Argument::word("fnx", "FNX"), Argument::word("fxx", "FXX")])
            .optional(),
        Argument::one_of(
            "expiration",
            &[TIMES[0], TIMES[1], TIMES[2], TIMES[3], Argument::word("keepttl", "KEEPTTL")],
        )
        .optional(),
        Argument::block(
            "fields",
            &[
                Argument::integer("numfields"),
                Argument::block("data", &[Argument::string("field"), Argument::string("value")]).multiple(),
            ],
        )
        .after("FIELDS"),
    ],
    ..HGETEX
};

/// The options of HSETEX; a condition that was given says whether its key or fields must be there.
#[derive(Debug, Default)]
struct SetOptions<'a> {
    key_exists: Option<bool>,
    fields_exist: Option<bool>,
    expiry: ExpiryOption<'a>,
}

impl<'a> SetOptions<'a> {
    fn parse(words: &'a [&'a [u8]]) -> Result<Self, CommandError> {
        let (mut options, mut args) = (Self::default(), Args::new(words, 0));
        while !args.is_empty() {
            let (condition, wanted) = if args.token("NX") {
                (&mut options.key_exists, false)
            } else if args.token("XX") {
                (&mut options.key_exists, true)
            } else if args.token("FNX") {
                (&mut options.fields_exist, false)
            } else if args.token("FXX") {
                (&mut options.fields_exist, true)
            } else if options.expiry.read(&mut args, ("KEEPTTL", ExpiryOption::Keep)) {
                continue;
            } else {
                return Err(CommandError::Syntax);
            };
            if condition.replace(wanted).is_some_and(|before| before != wanted) {
                return Err(CommandError::Syntax);
            }
        }
        args.check()?;
        Ok(options)
    }
}

fn hsetex(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let (options, rest) = split_options(args.take_rest())?;
    let options = SetOptions::parse(options)?;
    let pairs = counted(rest, 2, WRONG_COUNT)?;
    let (now_ms, clock_ms, layout) = (context.now_ms(), context.clock_ms(), context.layout());
    let hash = context.collection::<Hash>(key)?;
    if options.key_exists.is_some_and(|wanted| wanted != hash.is_some()) {
        reply.integer(0);
        return Ok(());
    }
    let deadlines = Deadlines::of(options.expiry, (now_ms, clock_ms), "hsetex")?;
    let exists = |field| hash.as_deref().is_some_and(|hash| hash.get(field, now_ms).is_some());
    if let Some(wanted) = options.fields_exist
        && pairs.chunks_exact(2).any(|pair| exists(pair[0]) != wanted)
    {
        reply.integer(0);
        return Ok(());
    }
    let expiry = match deadlines {
        Deadlines::Passed => {
            let fields: Vec<&[u8]> = pairs.iter().step_by(2).copied().collect();
            let outcome = context.update(key, |hash: &mut Hash| {
                let removed = pairs.chunks_exact(2).filter(|pair| hash.remove(pair[0], now_ms)).count();
                hash.settle(layout);
                ((removed, hash.is_empty()), removed > 0)
            })?;
            if outcome.is_some_and(|(removed, _)| removed > 0) {
                context.count_changes(fields.len());
                record_removal(context, key, &fields);
            }
            // As in Redis, the events are those of fields that are set and then removed.
            if outcome.is_none() {
                context.notify(EventClass::New, "new", key);
            }
            context.notify_fields("hset", key, fields.iter().copied());
            notify_removal(context, key, &fields, outcome.is_none_or(|(_, is_empty)| is_empty));
            reply.integer(1);
            return Ok(());
        }
        Deadlines::At(at) => ExpiryChange::At(at),
        Deadlines::Keep | Deadlines::Clear if options.expiry == ExpiryOption::Keep => ExpiryChange::Keep,
        Deadlines::Keep | Deadlines::Clear => ExpiryChange::Clear,
    };
    context.edit_or_create(key, |hash: &mut Hash| {
        hash.expect(pairs, layout);
        for pair in pairs.chunks_exact(2) {
            hash.set(pair[0], pair[1], expiry, now_ms, layout);
        }
    })?;
    context.count_changes(pairs.len() / 2);
    if context.is_recorded() {
        record_values(context, key, expiry, pairs);
    }
    let fields = || pairs.iter().step_by(2).copied();
    context.notify_fields("hset", key, fields());
    if let ExpiryChange::At(_) = expiry {
        context.notify_fields("hexpire", key, fields());
    }
    reply.integer(1);
    Ok(())
}

/// Records that fields got values and deadlines: conditions held, and times are absolute. Not as HSETEX, which servers
/// before Redis 8 do not know.
fn record_values(context: &mut WriteContext<'_>, key: &[u8], expiry: ExpiryChange, pairs: &[&[u8]]) {
    context.propagate(&[&[b"HSET", key], pairs].concat());
    let fields = pairs.iter().step_by(2).copied();
    match expiry {
        ExpiryChange::Clear => {}
        ExpiryChange::At(at) => record_deadline(context, key, at, &fields.collect::<Vec<_>>()),
        ExpiryChange::Keep => {
            for (at, fields) in deadlines_of(context, key, fields) {
                record_deadline(context, key, at, &fields);
            }
        }
    }
}

/// The fields among these that expire, by their deadlines.
fn deadlines_of<'w>(
    context: &mut WriteContext<'_>,
    key: &[u8],
    fields: impl Iterator<Item = &'w [u8]>,
) -> BTreeMap<u64, Vec<&'w [u8]>> {
    let (now_ms, mut found) = (context.now_ms(), BTreeMap::<u64, Vec<&[u8]>>::new());
    if let Ok(Some(hash)) = context.collection::<Hash>(key) {
        for field in fields {
            if let Some(at) = hash.deadline_ms(field, now_ms).flatten() {
                found.entry(at).or_default().push(field);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn fields_are_read_and_get_another_deadline() {
        check(
            "
            > HSET h a 1 b 2
            :2
            > HGETEX h FIELDS 2 a nosuch
            *2 $1 1 $-1
            > HGETEX h EX 100 FIELDS 1 a
            *1 $1 1
            > HTTL h FIELDS 2 a b
            *2 :100 :-1
            > HGETEX h PERSIST FIELDS 2 a b
            *2 $1 1 $1 2
            > HTTL h FIELDS 1 a
            *1 :-1
            > HGETEX h PXAT 1 FIELDS 3 a a b
            *3 $1 1 $-1 $1 2
            > EXISTS h
            :0
            3> HGETEX h EX 10 FIELDS 1 a
            *1 _
            ",
        );
    }

    #[test]
    fn fields_are_read_and_removed() {
        check(
            "
            > HSET h a 1 b 2
            :2
            > HGETDEL h FIELDS 3 a nosuch a
            *3 $1 1 $-1 $-1
            > HGETDEL h FIELDS 1 b
            *1 $1 2
            > EXISTS h
            :0
            > HGETDEL h FIELDS 2 a b
            *2 $-1 $-1
            ",
        );
    }

    #[test]
    fn fields_are_written_with_a_deadline() {
        check(
            "
            > HSETEX h EX 100 FIELDS 2 a 1 b 2
            :1
            > HSETEX h KEEPTTL FIELDS 1 a 3
            :1
            > HSETEX h FIELDS 1 b 3
            :1
            > HTTL h FIELDS 2 a b
            *2 :100 :-1
            > HSETEX h FNX FIELDS 2 a 4 c 4
            :0
            > HSETEX h FXX FIELDS 2 a 4 c 4
            :0
            > HMGET h a b c
            *3 $1 3 $1 3 $-1
            > HSETEX h FNX PX 10 FIELDS 1 c 4
            :1
            > HSETEX h NX FIELDS 1 a 5
            :0
            > HSETEX h XX FXX FIELDS 1 a 5
            :1
            > HSETEX missing XX FIELDS 1 a 5
            :0
            > HSETEX missing FXX FIELDS 1 a 5
            :0
            > HSETEX missing PXAT 1 FIELDS 1 a 5
            :1
            > EXISTS missing
            :0
            > HSETEX h PXAT 1 FIELDS 3 a 6 b 6 c 6
            :1
            > EXISTS h
            :0
            ",
        );
    }

    #[test]
    fn mistakes_are_told_in_their_order() {
        check(
            "
            > SET s v
            +OK
            > HGETEX h EX 10 PX 10 FIELDS 1 a
            -ERR syntax error
            > HGETEX h EX FIELDS 1 a
            -ERR syntax error
            > HGETEX h KEEPTTL FIELDS 1 a
            -ERR syntax error
            > HGETEX s EX x FIELDS 2 a
            -ERR numfields should be greater than 0 and match the provided number of fields
            > HGETEX s EX x FIELDS 1 a
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > HGETEX h EX x FIELDS 1 a
            -ERR value is not an integer or out of range
            > HGETEX h EX -1 FIELDS 1 a
            -ERR invalid expire time in 'hgetex' command
            > HGETDEL s FIELDS 0 a
            -ERR numfields should be greater than 0 and match the provided number of fields
            > HGETDEL s OR 1 a
            -ERR syntax error
            > HGETDEL s FIELDS 1 a
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > HSETEX h FNX FXX FIELDS 1 a 1
            -ERR syntax error
            > HSETEX h EX 10 KEEPTTL FIELDS 1 a 1
            -ERR syntax error
            > HSETEX h PERSIST FIELDS 1 a 1
            -ERR syntax error
            > HSETEX h OR 1 a 1
            -ERR numfields should be greater than 0 and match the provided number of fields
            > HSETEX h FIELDS 2 a 1
            -ERR numfields should be greater than 0 and match the provided number of fields
            > HSETEX s EX x FIELDS 1 a 1
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > HSETEX missing XX EX x FIELDS 1 a 1
            :0
            > HSETEX missing EX -1 FIELDS 1 a 1
            -ERR invalid expire time in 'hsetex' command
            ",
        );
    }
}
