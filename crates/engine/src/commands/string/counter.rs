//! Strings as counters.

use dunlin_resp::ReplyBuffer;

use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::{ExpiryChange, WriteContext, string_of},
    notify::EventClass,
    value::{ExtendedFloat, NewString},
};

pub(super) const INCR: Command = Command {
    name: "incr",
    summary: "Adds one to the integer under a key; a missing key counts from 0.",
    since: "1.0.0",
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    run: Run::Write(incr),
    flags: Flags::DENY_OOM.and(Flags::FAST),
    keys: &[KeySpec::at(1).read_write().accesses().updates()],
    args: &[Argument::key("key")],
    ..Command::DEFAULT
};

fn incr(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    add(context, args.word(), 1, reply)
}

pub(super) const INCRBY: Command = Command {
    name: "incrby",
    summary: "Adds an integer to the one under a key; a missing key counts from 0.",
    arity: Arity::Exactly(3),
    run: Run::Write(incrby),
    args: &[Argument::key("key"), Argument::integer("increment")],
    ..INCR
};

fn incrby(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, amount) = (args.word(), args.integer());
    args.check()?;
    add(context, key, amount, reply)
}

pub(super) const DECR: Command = Command {
    name: "decr",
    summary: "Subtracts one from the integer under a key; a missing key counts from 0.",
    run: Run::Write(decr),
    ..INCR
};

fn decr(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    add(context, args.word(), -1, reply)
}

pub(super) const DECRBY: Command = Command {
    name: "decrby",
    summary: "Subtracts an integer from the one under a key; a missing key counts from 0.",
    arity: Arity::Exactly(3),
    run: Run::Write(decrby),
    args: &[Argument::key("key"), Argument::integer("decrement")],
    ..INCR
};

fn decrby(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, amount) = (args.word(), args.integer());
    args.check()?;
    let amount = amount.checked_neg().ok_or(CommandError::text("ERR decrement would overflow"))?;
    add(context, key, amount, reply)
}

#[inline]
fn add(context: &mut WriteContext<'_>, key: &[u8], amount: i64, reply: &mut ReplyBuffer) -> CommandResult {
    context.replace_string(key, ExpiryChange::Keep, |entry| {
        let current = match entry {
            Some(entry) => string_of(entry)?.integer().ok_or(CommandError::NotInteger)?,
            None => 0,
        };
        let overflow = CommandError::text("ERR increment or decrement would overflow");
        let sum = current.checked_add(amount).ok_or(overflow)?;
        reply.integer(sum);
        Ok(Some(NewString::Integer(sum)))
    })?;
    context.notify(EventClass::String, "incrby", key);
    Ok(())
}

pub(super) const INCRBYFLOAT: Command = Command {
    name: "incrbyfloat",
    summary: "Adds a floating-point number to the number under a key; a missing key counts from 0.",
    since: "2.6.0",
    arity: Arity::Exactly(3),
    run: Run::Write(incrbyfloat),
    args: &[Argument::key("key"), Argument::double("increment")],
    ..INCR
};

fn incrbyfloat(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let (key, amount) = (args.word(), args.word());
    let current = match context.string(key)? {
        // A number is never long enough to stand in chunks.
        Some(value) => value
            .short_text(&mut itoa::Buffer::new())
            .and_then(ExtendedFloat::parse)
            .ok_or(CommandError::NotFloat)?,
        None => ExtendedFloat::ZERO,
    };
    let amount = ExtendedFloat::parse(amount).ok_or(CommandError::NotFloat)?;
    let not_finite = CommandError::text("ERR increment would produce NaN or Infinity");
    let sum = (current + amount).to_text().ok_or(not_finite)?;
    context.set_string(key, NewString::from_computed(sum.as_bytes()), ExpiryChange::Keep);
    // Sums of decimal fractions may come out differently elsewhere.
    context.propagate(&[b"SET", key, sum.as_bytes(), b"KEEPTTL"]);
    context.notify(EventClass::String, "incrbyfloat", key);
    reply.bulk(sum.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn counting_up_and_down() {
        check(
            "
            > INCR n
            :1
            > INCRBY n 41
            :42
            > DECR n
            :41
            > DECRBY n 50
            :-9
            > DECRBY n -10
            :1
            > GET n
            $1 1
            > DECR other
            :-1
            ",
        );
    }

    #[test]
    fn counters_refuse_what_is_not_a_number() {
        check(
            "
            > SET n 9223372036854775807
            +OK
            > INCR n
            -ERR increment or decrement would overflow
            > INCRBY n -9223372036854775808
            :-1
            > DECRBY n 9223372036854775807
            :-9223372036854775808
            > DECR n
            -ERR increment or decrement would overflow
            > DECRBY n -9223372036854775808
            -ERR decrement would overflow
            > INCRBY n 9223372036854775808
            -ERR value is not an integer or out of range
            > INCRBY n 1.5
            -ERR value is not an integer or out of range
            > SET n x
            +OK
            > INCR n
            -ERR value is not an integer or out of range
            > SET n 01
            +OK
            > INCR n
            -ERR value is not an integer or out of range
            > INCR
            -ERR wrong number of arguments for 'incr' command
            ",
        );
    }

    #[test]
    fn counting_keeps_the_expiry() {
        check(
            "
            > SET n 1 PX 100
            +OK
            > INCR n
            :2
            > INCRBYFLOAT n 0.5
            $3 2.5
            @ +100
            > GET n
            $-1
            ",
        );
    }

    #[test]
    fn adding_fractions() {
        check(
            "
            > INCRBYFLOAT f 0.1
            $3 0.1
            > INCRBYFLOAT f 0.2
            $3 0.3
            > SET f 5.0e3
            +OK
            > INCRBYFLOAT f 2.0e2
            $4 5200
            > INCR f
            :5201
            > INCRBYFLOAT f -5201
            $1 0
            > INCRBYFLOAT f x
            -ERR value is not a valid float
            > INCRBYFLOAT f inf
            -ERR increment would produce NaN or Infinity
            > SET f x
            +OK
            > INCRBYFLOAT f 1
            -ERR value is not a valid float
            ",
        );
    }
}
