//! Giving keys an expiry, and taking it away.

use dunlin_resp::ReplyBuffer;

use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, KeySpec, Run},
    commands::expiry::Conditions,
    context::WriteContext,
    notify::EventClass,
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
.optional()
.since("7.0.0");

const ROW: Command = Command {
    since: "2.6.0",
    complexity: "O(1)",
    arity: Arity::AtLeast(3),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).read_write().updates()],
    ..Command::DEFAULT
};

pub(super) const EXPIRE: Command = Command {
    name: "expire",
    summary: "Lets a key expire after a number of seconds.",
    since: "1.0.0",
    run: Run::Write(expire),
    args: &[Argument::key("key"), Argument::integer("seconds"), CONDITION],
    ..ROW
};

pub(super) const PEXPIRE: Command = Command {
    name: "pexpire",
    summary: "Lets a key expire after a number of milliseconds.",
    run: Run::Write(pexpire),
    args: &[Argument::key("key"), Argument::integer("milliseconds"), CONDITION],
    ..ROW
};

pub(super) const EXPIREAT: Command = Command {
    name: "expireat",
    summary: "Lets a key expire at a unix time in seconds.",
    since: "1.2.0",
    run: Run::Write(expireat),
    args: &[Argument::key("key"), Argument::unix_time("unix-time-seconds"), CONDITION],
    ..ROW
};

pub(super) const PEXPIREAT: Command = Command {
    name: "pexpireat",
    summary: "Lets a key expire at a unix time in milliseconds.",
    run: Run::Write(pexpireat),
    args: &[Argument::key("key"), Argument::unix_time("unix-time-milliseconds"), CONDITION],
    ..ROW
};

pub(super) const PERSIST: Command = Command {
    name: "persist",
    summary: "Takes the expiry away from a key.",
    since: "2.2.0",
    arity: Arity::Exactly(2),
    run: Run::Write(persist),
    args: &[Argument::key("key")],
    ..ROW
};

fn expire(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let base_ms = context.clock_ms();
    set(context, args, reply, "expire", 1000, base_ms)
}

fn pexpire(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let base_ms = context.clock_ms();
    set(context, args, reply, "pexpire", 1, base_ms)
}

fn expireat(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    set(context, args, reply, "expireat", 1000, 0)
}

fn pexpireat(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    set(context, args, reply, "pexpireat", 1, 0)
}

fn set(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
    name: &'static str,
    unit_ms: i64,
    base_ms: u64,
) -> CommandResult {
    let key = args.word();
    let conditions = Conditions::parse(args.rest().get(1..).unwrap_or_default())?;
    let time = args.integer();
    args.check()?;
    let at = time.checked_mul(unit_ms).and_then(|time| time.checked_add_unsigned(base_ms));
    let at = at.ok_or(CommandError::InvalidExpire(name))?;
    let allowed = match context.find(key) {
        Some(entry) => conditions.allow(entry.expiry(), at),
        None => false,
    };
    // A time before 1970 has passed like any other.
    let at = u64::try_from(at).unwrap_or(0);
    let set = allowed && context.set_expiry(key, Some(at));
    if set {
        context.record_expiry(key, at);
        let name = if at <= context.now_ms() { "del" } else { "expire" };
        context.notify(EventClass::Generic, name, key);
    }
    reply.integer(set.into());
    Ok(())
}

fn persist(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let expires = context.find(key).is_some_and(|entry| entry.expiry().is_some());
    let persisted = expires && context.set_expiry(key, None);
    if persisted {
        context.notify(EventClass::Generic, "persist", key);
    }
    reply.integer(persisted.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn expiry_of_a_key_is_kept_exactly() {
        check(
            "
            > SET k v PXAT 9223372036854775807
            +OK
            > PEXPIRETIME k
            :9223372036854775807
            > PTTL k
            :9223370336854775807
            > TTL k
            :9223370336854776
            > APPEND k w
            :2
            > COPY k copy
            :1
            > RENAME copy other
            +OK
            > PEXPIRETIME other
            :9223372036854775807
            > PEXPIREAT k 281474976710654
            :1
            > PEXPIRETIME k
            :281474976710654
            > GETEX k PXAT 281474976710655
            $2 vw
            > PEXPIRETIME k
            :281474976710655
            > PEXPIREAT k 281474976710656 LT
            :0
            > PEXPIREAT k 281474976710656 GT
            :1
            > PEXPIRETIME k
            :281474976710656
            > EXPIREAT k 9223372036854775
            :1
            > PEXPIRETIME k
            :9223372036854775000
            > PEXPIREAT k 9223372036854775807 GT
            :1
            > EXPIREAT k 9223372036854776
            -ERR invalid expire time in 'expireat' command
            > PEXPIRE k 9223372036854775807
            -ERR invalid expire time in 'pexpire' command
            > PEXPIRETIME k
            :9223372036854775807
            > INCR k
            -ERR value is not an integer or out of range
            > SET k 7 KEEPTTL
            +OK
            > INCRBY k 1000000
            :1000007
            > PEXPIRETIME k
            :9223372036854775807
            > PERSIST k
            :1
            > GET k
            $7 1000007
            ",
        );
    }

    #[test]
    fn expiry_of_a_field_is_kept_exactly() {
        check(
            "
            > HSETEX h PXAT 9223372036854775807 FIELDS 2 a 1 b 2
            :1
            > HPEXPIRETIME h FIELDS 2 a b
            *2 :9223372036854775807 :9223372036854775807
            > HPTTL h FIELDS 1 a
            *1 :9223370336854775807
            > HPEXPIREAT h 281474976710656 FIELDS 1 a
            *1 :1
            > HGETEX h PXAT 281474976710655 FIELDS 1 b
            *1 $1 2
            > HPEXPIREAT h 281474976710654 LT FIELDS 2 a b
            *2 :1 :1
            > HPEXPIREAT h 9007199254740993 GT FIELDS 1 b
            *1 :1
            > HSET h c 3
            :1
            > HPEXPIRETIME h FIELDS 3 a b c
            *3 :281474976710654 :9007199254740993 :-1
            > HPERSIST h FIELDS 2 a b
            *2 :1 :1
            > HMGET h a b c
            *3 $1 1 $1 2 $1 3
            ",
        );
    }

    #[test]
    fn expire_removes_the_key_at_its_time() {
        check(
            "
            > SET k v
            +OK
            > EXPIRE k 10
            :1
            > PTTL k
            :10000
            @ +9999
            > GET k
            $1 v
            @ +1
            > GET k
            $-1
            > DBSIZE
            :0
            > EXPIRE k 10
            :0
            > SET k 77
            +OK
            > PEXPIREAT k 1700000010100
            :1
            > EXPIRETIME k
            :1700000010
            > INCR k
            :78
            > PTTL k
            :100
            > EXPIREAT k 1
            :1
            > EXISTS k
            :0
            > SET k v
            +OK
            > PEXPIRE k -5
            :1
            > DBSIZE
            :0
            ",
        );
    }

    #[test]
    fn persist_takes_the_expiry_away() {
        check(
            "
            > PERSIST k
            :0
            > SET k v
            +OK
            > PERSIST k
            :0
            > EXPIRE k 1
            :1
            > PERSIST k
            :1
            > TTL k
            :-1
            @ +5000
            > GET k
            $1 v
            > EXPIRE k 1
            :1
            > SET k w
            +OK
            > TTL k
            :-1
            > EXPIRE k 1
            :1
            @ +1000
            > PERSIST k
            :0
            ",
        );
    }

    #[test]
    fn conditions_guard_the_expiry_that_is_there() {
        check(
            "
            > SET k v
            +OK
            > EXPIRE k 100 XX
            :0
            > EXPIRE k 100 GT
            :0
            > EXPIRE k 100 NX
            :1
            > EXPIRE k 200 NX
            :0
            > EXPIRE k 50 GT
            :0
            > EXPIRE k 100 gt
            :0
            > EXPIRE k 200 GT XX
            :1
            > EXPIRE k 200 LT
            :0
            > EXPIRE k 20 lt
            :1
            > TTL k
            :20
            > PERSIST k
            :1
            > EXPIRE k 30 LT
            :1
            > PERSIST k
            :1
            > EXPIRE k 30 LT XX
            :0
            > EXPIREAT k 1 GT
            :0
            > EXPIREAT k 9000000000000000
            :1
            > PEXPIRE k 9000000000000000 GT
            :0
            > EXPIRE k -1 LT
            :1
            > EXISTS k
            :0
            ",
        );
    }

    #[test]
    fn mistakes_are_told() {
        check(
            "
            > EXPIRE k
            -ERR wrong number of arguments for 'expire' command
            > EXPIRE k x
            -ERR value is not an integer or out of range
            > EXPIRE k x foo
            -ERR Unsupported option foo
            > EXPIRE k 1 nx gt
            -ERR NX and XX, GT or LT options at the same time are not compatible
            > EXPIRE k 1 lt gt
            -ERR GT and LT options at the same time are not compatible
            > EXPIRE k 9223372036854775
            -ERR invalid expire time in 'expire' command
            > EXPIRE k -9223372036854776
            -ERR invalid expire time in 'expire' command
            > EXPIREAT k 9223372036854776
            -ERR invalid expire time in 'expireat' command
            > PEXPIRE k 9223372036854775807
            -ERR invalid expire time in 'pexpire' command
            > PEXPIREAT k 9223372036854775807
            :0
            ",
        );
    }
}
