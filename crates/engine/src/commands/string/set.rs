//! Writing strings whole.

use dunlin_resp::ReplyBuffer;

use super::{compare::Comparison, get::reply_or_null};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    commands::expiry::{Clock, ExpiryOption},
    context::{ExpiryChange, WriteContext, string_of},
    notify::EventClass,
    value::NewString,
};

pub(super) const SET: Command = Command {
    name: "set",
    summary: "Stores a string under a key, whatever the key held, on a condition if one is given.",
    since: "1.0.0",
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::AtLeast(3),
    run: Run::Write(set),
    flags: Flags::DENY_OOM,
    keys: &[KeySpec::at(1).read_write().accesses().updates().varies()],
    args: &[
        Argument::key("key"),
        Argument::string("value"),
        Argument::one_of(
            "condition",
            &[
                Argument::word("nx", "NX").since("2.6.12"),
                Argument::word("xx", "XX").since("2.6.12"),
                Argument::string("comparison-value").after("IFEQ").since("8.1.0"),
                Argument::string("ifne-value").after("IFNE").since("8.4.0"),
                Argument::string("ifdeq-digest").after("IFDEQ").since("8.4.0"),
                Argument::string("ifdne-digest").after("IFDNE").since("8.4.0"),
            ],
        )
        .optional(),
        Argument::word("get", "GET").optional().since("6.2.0"),
        Argument::one_of(
            "expiration",
            &[
                Argument::integer("seconds").after("EX").since("2.6.12"),
                Argument::integer("milliseconds").after("PX").since("2.6.12"),
                Argument::unix_time("unix-time-seconds").after("EXAT").since("6.2.0"),
                Argument::unix_time("unix-time-milliseconds").after("PXAT").since("6.2.0"),
                Argument::word("keepttl", "KEEPTTL").since("6.0.0"),
            ],
        )
        .optional(),
    ],
    ..Command::DEFAULT
};

/// When `SET` stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition<'a> {
    Always,
    Missing,
    Present,
    Compares(Comparison, &'a [u8]),
}

/// The options of `SET`.
#[derive(Debug)]
struct SetOptions<'a> {
    condition: Condition<'a>,
    get: bool,
    expiry: ExpiryOption<'a>,
}

impl<'a> SetOptions<'a> {
    fn read(args: &mut Args<'a>) -> Result<Self, CommandError> {
        let mut options = Self { condition: Condition::Always, get: false, expiry: ExpiryOption::None };
        while !args.is_empty() {
            if args.token("GET") {
                options.get = true;
            } else if args.token("NX") {
                options.only(Condition::Missing, args);
            } else if args.token("XX") {
                options.only(Condition::Present, args);
            } else if let Some((comparison, operand)) = Comparison::read(args) {
                if options.condition != Condition::Always {
                    args.fail(CommandError::Syntax);
                }
                options.condition = Condition::Compares(comparison, operand);
            } else if !options.expiry.read(args, ("KEEPTTL", ExpiryOption::Keep)) {
                break;
            }
        }
        args.finish()?;
        Ok(options)
    }

    fn only(&mut self, condition: Condition<'a>, args: &mut Args<'a>) {
        if self.condition != Condition::Always && self.condition != condition {
            args.fail(CommandError::Syntax);
        }
        self.condition = condition;
    }
}

fn set(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, value) = (args.word(), args.word());
    if args.is_empty() {
        context.set_word(key, value, ExpiryChange::Clear);
        context.notify(EventClass::String, "set", key);
        reply.ok();
        return Ok(());
    }
    let options = SetOptions::read(args)?;
    let expiry = options.expiry.change(context.clock_ms(), "set")?;
    if options.get {
        let found = context.find(key).is_some();
        context.count_lookup(key, found);
    }
    let long = context.long_word(value);
    let stored = context.replace_string(key, expiry, |entry| {
        if options.get {
            reply_or_null(entry.map(string_of).transpose()?, reply);
        }
        let holds = match options.condition {
            Condition::Always => true,
            Condition::Missing => entry.is_none(),
            Condition::Present => entry.is_some(),
            Condition::Compares(comparison, operand) => match entry {
                Some(entry) => comparison.holds(string_of(entry)?, operand)?,
                None => comparison.holds_for_missing(),
            },
        };
        Ok(holds.then(|| NewString::from_word(value, long.as_deref())))
    })?;
    if stored {
        notify_set(context, key, expiry);
        context.note_stored(key, value);
        if context.is_recorded() {
            record_options(context, key, value, &options, expiry, args.words());
        }
    }
    match (options.get, stored) {
        (true, _) => {}
        (false, true) => reply.ok(),
        (false, false) => reply.null(),
    }
    Ok(())
}

/// Records the value that SET with options has stored.
fn record_options(
    context: &mut WriteContext<'_>,
    key: &[u8],
    value: &[u8],
    options: &SetOptions<'_>,
    expiry: ExpiryChange,
    words: &[&[u8]],
) {
    let compares = matches!(options.condition, Condition::Compares(..));
    if compares || matches!(expiry, ExpiryChange::At(_)) {
        record_set(context, key, value, expiry);
    } else if options.get {
        let (command, rest) = words.split_at(3);
        let rest = rest.iter().filter(|word| !word.eq_ignore_ascii_case(b"GET"));
        let words: Vec<&[u8]> = command.iter().chain(rest).copied().collect();
        context.propagate(&words);
    }
}

/// Records that a string was stored: conditions held, and times are absolute.
pub(super) fn record_set(context: &mut WriteContext<'_>, key: &[u8], value: &[u8], expiry: ExpiryChange) {
    match expiry {
        ExpiryChange::Clear => context.propagate(&[b"SET", key, value]),
        ExpiryChange::Keep => context.propagate(&[b"SET", key, value, b"KEEPTTL"]),
        // The key is gone at once, which a replay, knowing no time, would not see.
        ExpiryChange::At(at) if at <= context.now_ms() => context.record_removal(key),
        ExpiryChange::At(at) => {
            context.propagate(&[b"SET", key, value, b"PXAT", itoa::Buffer::new().format(at).as_bytes()]);
        }
    }
}

pub(super) const SETNX: Command = Command {
    name: "setnx",
    summary: "Stores a string under a key if the key does not exist.",
    since: "1.0.0",
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    run: Run::Write(setnx),
    flags: Flags::DENY_OOM.and(Flags::FAST),
    keys: &[KeySpec::at(1).overwrite().inserts()],
    args: &[Argument::key("key"), Argument::string("value")],
    ..Command::DEFAULT
};

fn setnx(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, value) = (args.word(), args.word());
    let long = context.long_word(value);
    let stored = context.replace_string(key, ExpiryChange::Clear, |entry| {
        Ok(entry.is_none().then(|| NewString::from_word(value, long.as_deref())))
    })?;
    if stored {
        context.note_stored(key, value);
        context.notify(EventClass::String, "set", key);
    }
    reply.integer(stored.into());
    Ok(())
}

pub(super) const SETEX: Command = Command {
    name: "setex",
    summary: "Stores a string under a key that expires after a number of seconds.",
    since: "2.0.0",
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::Exactly(4),
    run: Run::Write(setex),
    flags: Flags::DENY_OOM,
    keys: &[KeySpec::at(1).overwrite().updates()],
    args: &[Argument::key("key"), Argument::integer("seconds"), Argument::string("value")],
    ..Command::DEFAULT
};

fn setex(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    set_for(context, args, Clock::Seconds, "setex", reply)
}

pub(super) const PSETEX: Command = Command {
    name: "psetex",
    summary: "Stores a string under a key that expires after a number of milliseconds.",
    since: "2.6.0",
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::Exactly(4),
    run: Run::Write(psetex),
    flags: Flags::DENY_OOM,
    keys: &[KeySpec::at(1).overwrite().updates()],
    args: &[Argument::key("key"), Argument::integer("milliseconds"), Argument::string("value")],
    ..Command::DEFAULT
};

fn psetex(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    set_for(context, args, Clock::Milliseconds, "psetex", reply)
}

fn set_for(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    clock: Clock,
    command: &'static str,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let (key, amount, value) = (args.word(), args.word(), args.word());
    let at = clock.at(amount, context.clock_ms(), command)?;
    let expiry = ExpiryChange::At(at);
    context.set_word(key, value, expiry);
    record_set(context, key, value, expiry);
    notify_set(context, key, expiry);
    reply.ok();
    Ok(())
}

/// Reports that a string was stored, and its expiry if it was given one.
pub(super) fn notify_set(context: &mut WriteContext<'_>, key: &[u8], expiry: ExpiryChange) {
    context.notify(EventClass::String, "set", key);
    if let ExpiryChange::At(at) = expiry {
        context.notify(EventClass::Generic, "expire", key);
        if at <= context.now_ms() {
            context.notify(EventClass::Expired, "expired", key);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn set_stores_and_obeys_nx_and_xx() {
        check(
            "
            > SET k 1 XX
            $-1
            3> SET k 1 XX
            _
            > SET k 1 NX
            +OK
            > SET k 2 NX
            $-1
            > SET k 2 xx
            +OK
            > GET k
            $1 2
            > SET k 3 NX XX
            -ERR syntax error
            > SET k 3 NX NX
            $-1
            > SET k 3 FOO
            -ERR syntax error
            > SET k
            -ERR wrong number of arguments for 'set' command
            ",
        );
    }

    #[test]
    fn set_get_answers_the_old_value() {
        check(
            "
            > SET k 1 GET
            $-1
            > SET k 2 GET
            $1 1
            > SET k 3 NX GET
            $1 2
            > SET k 3 GET XX
            $1 2
            > GET k
            $1 3
            > SET missing 1 XX GET
            $-1
            > GET missing
            $-1
            3> SET missing 1 GET
            _
            ",
        );
    }

    #[test]
    fn set_moves_keeps_and_clears_the_expiry() {
        check(
            "
            > SET k v PX 100
            +OK
            > SET k w KEEPTTL
            +OK
            @ +99
            > GET k
            $1 w
            @ +1
            > GET k
            $-1
            > SET k v EX 1
            +OK
            > SET k w
            +OK
            @ +1000
            > GET k
            $1 w
            > SET k v EXAT 1700000002
            +OK
            @ +899
            > GET k
            $1 v
            @ +1
            > GET k
            $-1
            > SET k v EX 5 EX 1
            +OK
            @ +1000
            > GET k
            $-1
            ",
        );
    }

    #[test]
    fn set_with_a_past_expiry_leaves_no_key() {
        check(
            "
            > SET k v
            +OK
            > SET k w EXAT 1
            +OK
            > GET k
            $-1
            > SET new w PXAT 1
            +OK
            > SETNX new w
            :1
            ",
        );
    }

    #[test]
    fn set_refuses_what_makes_no_sense() {
        check(
            "
            > SET k v EX
            -ERR syntax error
            > SET k v EX 1 PX 1
            -ERR syntax error
            > SET k v EX 1 KEEPTTL
            -ERR syntax error
            > SET k v PERSIST
            -ERR syntax error
            > SET k v EX 0 FOO
            -ERR syntax error
            > SET k v EX one
            -ERR value is not an integer or out of range
            > SET k v EX 0
            -ERR invalid expire time in 'set' command
            > SET k v PX -1
            -ERR invalid expire time in 'set' command
            > SET k v EX 9223372036854775
            -ERR invalid expire time in 'set' command
            > SET k v PX 9223372036854775807
            -ERR invalid expire time in 'set' command
            > SET k v EXAT 9223372036854775807
            -ERR invalid expire time in 'set' command
            > GET k
            $-1
            ",
        );
    }

    #[test]
    fn set_compares_with_what_is_there() {
        check(
            "
            > SET k 2 IFEQ 1
            $-1
            > SET k 1 IFNE 1
            +OK
            > SET k 2 IFNE 1
            $-1
            > SET k 2 IFEQ 1
            +OK
            > SET k 3 IFEQ 1 GET
            $1 2
            > SET k 3 IFEQ 2 GET
            $1 2
            > GET k
            $1 3
            > SET k 4 IFEQ 3 NX
            -ERR syntax error
            > SET k 4 XX IFEQ 3
            -ERR syntax error
            > SET k 4 IFEQ 3 IFEQ 3
            -ERR syntax error
            > SET k 4 IFEQ
            -ERR syntax error
            > SET k hello
            +OK
            > SET k a IFDEQ 0000000000000000
            $-1
            > SET k b IFDNE 0000000000000000
            +OK
            > SET k c IFDEQ short
            -ERR must be exactly 16 hexadecimal characters
            > SET missing c IFDEQ short
            $-1
            > SET missing c IFDNE short
            +OK
            > SET k v IFEQ b PX 100
            +OK
            @ +100
            > GET k
            $-1
            ",
        );
    }

    #[test]
    fn setnx_setex_and_psetex() {
        check(
            "
            > SETNX k 1
            :1
            > SETNX k 2
            :0
            > SETEX k 1 v
            +OK
            @ +999
            > GET k
            $1 v
            @ +1
            > GET k
            $-1
            > PSETEX k 100 v
            +OK
            @ +100
            > GET k
            $-1
            > SETEX k 0 v
            -ERR invalid expire time in 'setex' command
            > SETEX k 9223372036854775 v
            -ERR invalid expire time in 'setex' command
            > PSETEX k -5 v
            -ERR invalid expire time in 'psetex' command
            > PSETEX k x v
            -ERR value is not an integer or out of range
            > SETEX k 10
            -ERR wrong number of arguments for 'setex' command
            ",
        );
    }
}
