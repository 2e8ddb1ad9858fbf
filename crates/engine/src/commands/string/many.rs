//! Several strings at once, all or nothing.

use dunlin_resp::ReplyBuffer;

use super::{
    get::reply_or_null,
    set::{notify_set, record_set},
};
use crate::{
    command::{
        Args, Argument, Arity, Command, CommandError, CommandResult, FindKeys, Flags, Group, KeySpec, Run,
    },
    commands::expiry::ExpiryOption,
    context::{ExpiryChange, ReadContext, WriteContext, string_of},
};

pub(super) const MGET: Command = Command {
    name: "mget",
    summary: "Returns the strings under several keys; null for keys that hold none.",
    since: "1.0.0",
    group: Group::String,
    complexity: "O(n) in the number of keys",
    arity: Arity::AtLeast(2),
    run: Run::Read(mget),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).through(-1, 1).accesses()],
    args: &[Argument::key("key").multiple()],
    tips: &["request_policy:multi_shard"],
    ..Command::DEFAULT
};

fn mget(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let keys = args.take_rest();
    reply.array(keys.len());
    for key in keys {
        // Another type is no error here.
        reply_or_null(context.find(key).and_then(|entry| string_of(entry).ok()), reply);
    }
    Ok(())
}

pub(super) const MSET: Command = Command {
    name: "mset",
    summary: "Stores strings under several keys, whatever they held.",
    since: "1.0.1",
    group: Group::String,
    complexity: "O(n) in the number of keys",
    arity: Arity::AtLeast(3),
    run: Run::Write(mset),
    flags: Flags::DENY_OOM,
    keys: &[KeySpec::at(1).through(-1, 2).overwrite().updates()],
    args: &[Argument::block("key_value", &[Argument::key("key"), Argument::string("value")]).multiple()],
    tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
    ..Command::DEFAULT
};

fn mset(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (pairs, []) = args.take_rest().as_chunks::<2>() else {
        return Err(CommandError::WrongArity("mset".to_owned()));
    };
    store_all(context, pairs, ExpiryChange::Clear);
    reply.ok();
    Ok(())
}

fn store_all(context: &mut WriteContext<'_>, pairs: &[[&[u8]; 2]], expiry: ExpiryChange) {
    for [key, value] in pairs {
        context.set_word(key, value, expiry);
        notify_set(context, key, expiry);
    }
}

pub(super) const MSETNX: Command = Command {
    name: "msetnx",
    summary: "Stores strings under several keys if none of the keys exists.",
    since: "1.0.1",
    group: Group::String,
    complexity: "O(n) in the number of keys",
    arity: Arity::AtLeast(3),
    run: Run::Write(msetnx),
    flags: Flags::DENY_OOM,
    keys: &[KeySpec::at(1).through(-1, 2).overwrite().inserts()],
    args: &[Argument::block("key_value", &[Argument::key("key"), Argument::string("value")]).multiple()],
    tips: &["request_policy:multi_shard", "response_policy:agg_min"],
    ..Command::DEFAULT
};

fn msetnx(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (pairs, []) = args.take_rest().as_chunks::<2>() else {
        return Err(CommandError::WrongArity("msetnx".to_owned()));
    };
    let free = pairs.iter().all(|[key, _]| context.find(key).is_none());
    if free {
        store_all(context, pairs, ExpiryChange::Clear);
    }
    reply.integer(free.into());
    Ok(())
}

pub(super) const MSETEX: Command = Command {
    name: "msetex",
    summary: "Stores strings under several keys with one expiry, on a condition if one is given.",
    since: "8.4.0",
    group: Group::String,
    complexity: "O(n) in the number of keys",
    arity: Arity::AtLeast(4),
    run: Run::Write(msetex),
    flags: Flags::DENY_OOM,
    keys: &[KeySpec {
        find: FindKeys::Count { count_at: 0, first: 1, step: 2 },
        ..KeySpec::at(1).overwrite().updates()
    }],
    args: &[
        Argument::integer("numkeys"),
        Argument::block("data", &[Argument::key("key"), Argument::string("value")]).multiple(),
        Argument::one_of("condition", &[Argument::word("nx", "NX"), Argument::word("xx", "XX")]).optional(),
        Argument::one_of(
            "expiration",
            &[
                Argument::integer("seconds").after("EX"),
                Argument::integer("milliseconds").after("PX"),
                Argument::unix_time("unix-time-seconds").after("EXAT"),
                Argument::unix_time("unix-time-milliseconds").after("PXAT"),
                Argument::word("keepttl", "KEEPTTL"),
            ],
        )
        .optional(),
    ],
    tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
    ..Command::DEFAULT
};

/// Whether all keys of `MSETEX` must be missing or present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition {
    Always,
    AllMissing,
    AllPresent,
}

fn msetex(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let count_error = CommandError::text("ERR invalid numkeys value or out of range");
    let count = args.integer_in(1..=i64::from(i32::MAX), count_error);
    args.check()?;
    let (pairs, _) = args.take(2 * count as usize).as_chunks::<2>();
    args.check()?;
    let (mut condition, mut expiry) = (Condition::Always, ExpiryOption::None);
    while !args.is_empty() {
        let told = if args.token("NX") {
            Condition::AllMissing
        } else if args.token("XX") {
            Condition::AllPresent
        } else if expiry.read(args, ("KEEPTTL", ExpiryOption::Keep)) {
            continue;
        } else {
            break;
        };
        if condition != Condition::Always && condition != told {
            args.fail(CommandError::Syntax);
        }
        condition = told;
    }
    args.finish()?;
    let expiry = expiry.change(context.clock_ms(), "msetex")?;
    let holds = match condition {
        Condition::Always => true,
        Condition::AllMissing => pairs.iter().all(|[key, _]| context.find(key).is_none()),
        Condition::AllPresent => pairs.iter().all(|[key, _]| context.find(key).is_some()),
    };
    if holds {
        store_all(context, pairs, expiry);
        if context.is_recorded() {
            pairs.iter().for_each(|[key, value]| record_set(context, key, value, expiry));
        }
    }
    reply.integer(holds.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn mset_writes_and_mget_reads_many_keys() {
        check(
            "
            > MSET a 1 b two a 3
            +OK
            > MGET a b c
            *3 $1 3 $3 two $-1
            3> MGET a c
            *2 $1 3 _
            > MSET a
            -ERR wrong number of arguments for 'mset' command
            > MSET a 1 b
            -ERR wrong number of arguments for 'mset' command
            > MGET
            -ERR wrong number of arguments for 'mget' command
            ",
        );
    }

    #[test]
    fn msetnx_is_all_or_nothing() {
        check(
            "
            > MSETNX a 1 b 2
            :1
            > MSETNX c 3 b 4
            :0
            > MGET a b c
            *3 $1 1 $1 2 $-1
            > MSETNX d 1 d 2
            :1
            > GET d
            $1 2
            > MSETNX a 1 b
            -ERR wrong number of arguments for 'msetnx' command
            ",
        );
    }

    #[test]
    fn mset_clears_the_expiry() {
        check(
            "
            > SET a 1 PX 100
            +OK
            > MSET a 2
            +OK
            @ +100
            > GET a
            $1 2
            ",
        );
    }

    #[test]
    fn msetex_sets_one_expiry_for_all() {
        check(
            "
            > MSETEX 2 a 1 b 2 XX
            :0
            > MSETEX 2 a 1 b 2 NX PX 100
            :1
            > MSETEX 2 b 3 c 4 NX
            :0
            > MSETEX 2 a 5 b 6 XX KEEPTTL
            :1
            > MGET a b c
            *3 $1 5 $1 6 $-1
            @ +100
            > MGET a b
            *2 $-1 $-1
            > MSETEX 1 a 1
            :1
            > MSETEX 1 a 2 EXAT 1
            :1
            > GET a
            $-1
            ",
        );
    }

    #[test]
    fn msetex_refuses_what_makes_no_sense() {
        check(
            "
            > MSETEX 0 a 1
            -ERR invalid numkeys value or out of range
            > MSETEX x a 1
            -ERR invalid numkeys value or out of range
            > MSETEX 2147483648 a 1
            -ERR invalid numkeys value or out of range
            > MSETEX 2147483647 a 1
            -ERR syntax error
            > MSETEX 2 a 1
            -ERR syntax error
            > MSETEX 1 a 1 b 2
            -ERR syntax error
            > MSETEX 1 a 1 NX XX
            -ERR syntax error
            > MSETEX 1 a 1 EX 1 PX 1
            -ERR syntax error
            > MSETEX 1 a 1 EX
            -ERR syntax error
            > MSETEX 1 a 1 EX 0
            -ERR invalid expire time in 'msetex' command
            > MSETEX 1 a 1 PXAT x
            -ERR value is not an integer or out of range
            > GET a
            $-1
            ",
        );
    }
}
