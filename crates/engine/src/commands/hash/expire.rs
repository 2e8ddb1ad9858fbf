//! Giving fields a deadline, and taking it away.

use dunlin_resp::ReplyBuffer;

use super::named::{FIELDS, WRONG_COUNT, behind_fields, counted, split_options};
use crate::{
    command::{Args, Argument, Arity, Command, CommandResult, Flags, Group, KeySpec, Run},
    commands::expiry::{Clock, Conditions},
    context::WriteContext,
    notify::EventClass,
    value::Hash,
};

const CONDITION: Argument = Argument::one_of(
    "condition",
    &[
        Argument::word("nx", "NX"),
        Argument::word("xx", "XX"),
        Argument::word("gt", "GT"),
        Argument::word("lt", "LT"),
    ],
)
.optional();

pub(super) const HEXPIRE: Command = Command {
    name: "hexpire",
    summary: "Lets fields of a hash expire after a number of seconds.",
    since: "7.4.0",
    group: Group::Hash,
    complexity: "O(n log m) for n fields given and m fields that expire",
    arity: Arity::AtLeast(6),
    run: Run::Write(hexpire),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).read_write().updates()],
    args: &[Argument::key("key"), Argument::integer("seconds"), CONDITION, FIELDS],
    ..Command::DEFAULT
};

pub(super) const HPEXPIRE: Command = Command {
    name: "hpexpire",
    summary: "Lets fields of a hash expire after a number of milliseconds.",
    run: Run::Write(hpexpire),
    args: &[Argument::key("key"), Argument::integer("milliseconds"), CONDITION, FIELDS],
    ..HEXPIRE
};

pub(super) const HEXPIREAT: Command = Command {
    name: "hexpireat",
    summary: "Lets fields of a hash expire at a unix time in seconds.",
    run: Run::Write(hexpireat),
    args: &[Argument::key("key"), Argument::unix_time("unix-time-seconds"), CONDITION, FIELDS],
    ..HEXPIRE
};

pub(super) const HPEXPIREAT: Command = Command {
    name: "hpexpireat",
    summary: "Lets fields of a hash expire at a unix time in milliseconds.",
    run: Run::Write(hpexpireat),
    args: &[Argument::key("key"), Argument::unix_time("unix-time-milliseconds"), CONDITION, FIELDS],
    ..HEXPIRE
};

pub(super) const HPERSIST: Command = Command {
    name: "hpersist",
    summary: "Takes the deadlines of fields of a hash away.",
    arity: Arity::AtLeast(5),
    run: Run::Write(hpersist),
    args: &[Argument::key("key"), FIELDS],
    ..HEXPIRE
};

/// The reply for a field that is not there.
pub(super) const NO_FIELD: i64 = -2;
/// The reply for a field that does not expire.
pub(super) const NO_DEADLINE: i64 = -1;
/// The reply for a field whose deadline was not changed, as a condition did not hold.
const NOT_CHANGED: i64 = 0;
/// The reply for a field whose deadline was changed.
const CHANGED: i64 = 1;
/// The reply for a field that was removed, as the deadline had come.
const REMOVED: i64 = 2;

fn hexpire(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    set(context, args, reply, Clock::Seconds, "hexpire")
}

fn hpexpire(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    set(context, args, reply, Clock::Milliseconds, "hpexpire")
}

fn hexpireat(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    set(context, args, reply, Clock::AtSeconds, "hexpireat")
}

fn hpexpireat(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    set(context, args, reply, Clock::AtMilliseconds, "hpexpireat")
}

fn set(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
    clock: Clock,
    name: &'static str,
) -> CommandResult {
    let (key, time) = (args.word(), args.word());
    let (options, rest) = split_options(args.take_rest())?;
    let conditions = Conditions::parse(options)?;
    let fields = counted(rest, 1, WRONG_COUNT)?;
    let (now_ms, layout) = (context.now_ms(), context.layout());
    let deadline_ms = clock.at_from(0, time, context.clock_ms(), name)?;
    let mut touched: Vec<&[u8]> = Vec::new();
    let change = |hash: &mut Hash, field: &[u8]| {
        let Some(current) = hash.deadline_ms(field, now_ms) else { return NO_FIELD };
        if !conditions.allow(current, deadline_ms as i64) {
            return NOT_CHANGED;
        }
        if deadline_ms <= now_ms {
            hash.remove(field, now_ms);
            return REMOVED;
        }
        hash.set_deadline(field, Some(deadline_ms), layout);
        CHANGED
    };
    let outcome = context.update(key, |hash: &mut Hash| {
        reply.array(fields.len());
        let mut changed = 0;
        for field in fields {
            let answer = change(hash, field);
            if answer > NOT_CHANGED {
                changed += 1;
                touched.push(field);
            }
            reply.integer(answer);
        }
        hash.settle(layout);
        ((changed, hash.is_empty()), changed > 0)
    })?;
    context.count_changes(touched.len());
    match outcome {
        None => reply_to_all(reply, fields, NO_FIELD),
        Some((0, _)) => {}
        Some((_, is_empty)) if deadline_ms <= now_ms => {
            record_removal(context, key, &touched);
            notify_removal(context, key, is_empty);
        }
        Some(_) => {
            record_deadline(context, key, deadline_ms, &touched);
            context.notify(EventClass::Hash, "hexpire", key);
        }
    }
    Ok(())
}

fn hpersist(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let fields = counted(behind_fields(args.take_rest())?, 1, WRONG_COUNT)?;
    let (now_ms, layout) = (context.now_ms(), context.layout());
    let changed = context.update(key, |hash: &mut Hash| {
        reply.array(fields.len());
        let mut changed = 0;
        for field in fields {
            reply.integer(match hash.deadline_ms(field, now_ms) {
                None => NO_FIELD,
                Some(None) => NO_DEADLINE,
                Some(Some(_)) => {
                    hash.set_deadline(field, None, layout);
                    changed += 1;
                    CHANGED
                }
            });
        }
        (changed, changed > 0)
    })?;
    match changed {
        None => reply_to_all(reply, fields, NO_FIELD),
        Some(0) => {}
        Some(changed) => {
            context.count_changes(changed);
            context.notify(EventClass::Hash, "hpersist", key);
        }
    }
    Ok(())
}

/// Reports that fields were removed, and the hash with the last of them where it `is_empty`. Fields that are given a
/// time in the past are removed by the command, as in Redis: they have not expired.
pub(super) fn notify_removal(context: &mut WriteContext<'_>, key: &[u8], is_empty: bool) {
    context.notify(EventClass::Hash, "hdel", key);
    if is_empty {
        context.notify(EventClass::Generic, "del", key);
    }
}

/// Records that fields were removed.
pub(super) fn record_removal(context: &mut WriteContext<'_>, key: &[u8], fields: &[&[u8]]) {
    if context.is_recorded() {
        context.propagate(&[&[b"HDEL", key], fields].concat());
    }
}

/// Records the time at which fields expire.
pub(super) fn record_deadline(
    context: &mut WriteContext<'_>,
    key: &[u8],
    deadline_ms: u64,
    fields: &[&[u8]],
) {
    if context.is_recorded() {
        let (mut time, mut count) = (itoa::Buffer::new(), itoa::Buffer::new());
        let (time, count) = (time.format(deadline_ms).as_bytes(), count.format(fields.len()).as_bytes());
        context.propagate(&[&[b"HPEXPIREAT", key, time, b"FIELDS", count], fields].concat());
    }
}

/// Gives the same answer for each field.
pub(super) fn reply_to_all(reply: &mut ReplyBuffer, fields: &[&[u8]], answer: i64) {
    reply.array(fields.len());
    fields.iter().for_each(|_| reply.integer(answer));
}

#[cfg(test)]
mod tests {
    use crate::transcript::{Scenario, check};

    #[test]
    fn hpexpire_removes_the_field_at_its_time() {
        check(
            "
            > HSET h a 1 b 2 c 3
            :3
            > HPEXPIRE h 100 FIELDS 2 a nosuch
            *2 :1 :-2
            > OBJECT ENCODING h
            $9 hashtable
            > HPTTL h FIELDS 3 a b nosuch
            *3 :100 :-1 :-2
            @ +99
            > HGET h a
            $1 1
            > HLEN h
            :3
            @ +1
            > HGET h a
            $-1
            > HEXISTS h a
            :0
            > HSTRLEN h a
            :0
            > HLEN h
            :2
            > HMGET h a b
            *2 $-1 $1 2
            > HPTTL h FIELDS 1 a
            *1 :-2
            > HPERSIST h FIELDS 1 a
            *1 :-2
            > HDEL h a
            :0
            > HSET h a 9
            :1
            > HTTL h FIELDS 1 a
            *1 :-1
            ",
        );
    }

    #[test]
    fn expired_field_is_hidden_from_every_command() {
        let mut scenario = Scenario::new();
        let fill = "
            > DEL h
            :1
            > HSET h gone 1 stays 2
            :2
            > HPEXPIRE h 10 FIELDS 1 gone
            *1 :1
            @ +10";
        scenario.play("> HSET h x 1\n:1");
        for (command, reply) in [
            ("HGETALL h", "*2 $5 stays $1 2"),
            ("HKEYS h", "*1 $5 stays"),
            ("HVALS h", "*1 $1 2"),
            ("HSCAN h 0", "*2 $1 0 *2 $5 stays $1 2"),
            ("HRANDFIELD h", "$5 stays"),
            ("HRANDFIELD h 5", "*1 $5 stays"),
            ("HRANDFIELD h -2", "*2 $5 stays $5 stays"),
            ("HINCRBY h gone 5", ":5"),
            ("HINCRBYFLOAT h gone 5", "$1 5"),
            ("HSETNX h gone 5", ":1"),
            ("HSETEX h FXX FIELDS 1 gone 5", ":0"),
            ("HSETEX h FNX FIELDS 1 gone 5", ":1"),
            ("HGETEX h PERSIST FIELDS 1 gone", "*1 $-1"),
            ("HGETDEL h FIELDS 1 gone", "*1 $-1"),
            ("HEXPIRE h 10 FIELDS 1 gone", "*1 :-2"),
        ] {
            scenario.play(&format!("{fill}\n> {command}\n{reply}"));
        }
    }

    #[test]
    fn hash_goes_with_its_last_expired_field() {
        check(
            "
            > HSET h a 1 b 2
            :2
            > HPEXPIRE h 10 FIELDS 1 a
            *1 :1
            > HPEXPIRE h 20 FIELDS 1 b
            *1 :1
            @ +10
            > EXISTS h
            :1
            @ +10
            > EXISTS h
            :0
            > TYPE h
            +none
            > DBSIZE
            :0
            > SET h text
            +OK
            ",
        );
    }

    #[test]
    fn conditions_compare_with_the_deadline_of_the_field() {
        check(
            "
            > HSET h a 1 b 2
            :2
            > HEXPIRE h 100 XX FIELDS 1 a
            *1 :0
            > HEXPIRE h 100 GT FIELDS 1 a
            *1 :0
            > OBJECT ENCODING h
            $8 listpack
            > HEXPIRE h 100 NX FIELDS 1 a
            *1 :1
            > HEXPIRE h 100 NX FIELDS 2 a b
            *2 :0 :1
            > HEXPIRE h 50 GT FIELDS 1 a
            *1 :0
            > HEXPIRE h 50 LT FIELDS 1 a
            *1 :1
            > HEXPIRE h 60 XX GT FIELDS 1 a
            *1 :1
            > HTTL h FIELDS 2 a b
            *2 :60 :100
            > HEXPIRE h 0 NX FIELDS 1 a
            *1 :0
            > HEXPIRE h 0 XX LT FIELDS 2 a nosuch
            *2 :2 :-2
            > HEXPIREAT h 1 FIELDS 1 b
            *1 :2
            > EXISTS h
            :0
            ",
        );
    }

    #[test]
    fn deadlines_follow_their_field() {
        check(
            "
            > HSET h a 1 b 2
            :2
            > HPEXPIREAT h 1800000000000 FIELDS 2 a b
            *2 :1 :1
            > HINCRBY h a 1
            :2
            > HINCRBYFLOAT h a 0.5
            $3 2.5
            > HSETNX h a 1
            :0
            > HPEXPIRETIME h FIELDS 1 a
            *1 :1800000000000
            > HEXPIRETIME h FIELDS 1 a
            *1 :1800000000
            > COPY h c
            :1
            > RENAME c r
            +OK
            > HPEXPIRETIME r FIELDS 2 a b
            *2 :1800000000000 :1800000000000
            > HSET h a 1
            :0
            > HPERSIST h FIELDS 3 a b nosuch
            *3 :-1 :1 :-2
            > HTTL h FIELDS 2 a b
            *2 :-1 :-1
            > HTTL r FIELDS 1 a
            *1 :100000000
            ",
        );
    }

    #[test]
    fn mistakes_are_told_in_their_order() {
        check(
            "
            > SET s v
            +OK
            > HSET h a 1
            :1
            > HEXPIRE missing 10 FIELDS 2 a b
            *2 :-2 :-2
            > HPERSIST missing FIELDS 1 a
            *1 :-2
            > HTTL missing FIELDS 2 a b
            *2 :-2 :-2
            > HEXPIRE s 10 FIELDS 1 a
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > HEXPIRE s -1 FIELDS 1 a
            -ERR invalid expire time in 'hexpire' command
            > HEXPIRE h x FIELDS 2 a
            -ERR numfields should be greater than 0 and match the provided number of fields
            > HEXPIRE h x FIELDS 1 a
            -ERR value is not an integer or out of range
            > HEXPIRE h x FIELDS x a
            -ERR value is not an integer or out of range
            > HEXPIRE h x NX XX FIELDS x a
            -ERR NX and XX, GT or LT options at the same time are not compatible
            > HEXPIRE h 10 GT LT FIELDS 1 a
            -ERR GT and LT options at the same time are not compatible
            > HEXPIRE h 10 OR FIELDS 1 a
            -ERR Unsupported option OR
            > HEXPIRE h 10 OR 1 a
            -ERR numfields should be greater than 0 and match the provided number of fields
            > HPEXPIRE h 9223372036854775807 FIELDS 1 a
            -ERR invalid expire time in 'hpexpire' command
            > HEXPIRE h 10 FIELDS 0 a
            -ERR numfields should be greater than 0 and match the provided number of fields
            > HEXPIRE h 10 FIELDS 1
            -ERR wrong number of arguments for 'hexpire' command
            > HPERSIST h OR x a
            -ERR syntax error
            > HPERSIST h FIELDS 2 a
            -ERR numfields should be greater than 0 and match the provided number of fields
            > HPERSIST s FIELDS 1 a
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > HTTL h FIELDS 2 a
            -ERR syntax error
            > HTTL h FIELDS x a
            -ERR value is not an integer or out of range
            > HTTL s FIELDS 1 a
            -WRONGTYPE Operation against a key holding the wrong kind of value
            ",
        );
    }
}
