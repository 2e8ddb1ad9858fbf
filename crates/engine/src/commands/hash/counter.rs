//! Fields as counters.

use dunlin_resp::ReplyBuffer;

use super::expire::record_deadline;
use crate::{
    command::{
        Args, Argument, Arity, Command, CommandError, CommandResult, ElementWords, Flags, Group, KeySpec, Run,
    },
    context::{ExpiryChange, WriteContext},
    value::{ExtendedFloat, Hash, Layout},
};

pub(super) const HINCRBY: Command = Command {
    name: "hincrby",
    summary: "Adds an integer to the one in a field of a hash; a missing field counts from 0.",
    since: "2.0.0",
    group: Group::Hash,
    complexity: "O(1)",
    arity: Arity::Exactly(4),
    run: Run::Write(hincrby),
    flags: Flags::DENY_OOM.and(Flags::FAST),
    keys: &[KeySpec::at(1).read_write().accesses().updates()],
    args: &[Argument::key("key"), Argument::string("field"), Argument::integer("increment")],
    elements: Some(ElementWords::BEFORE_VALUES),
    ..Command::DEFAULT
};

fn hincrby(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, field, amount) = (args.word(), args.word(), args.integer());
    args.check()?;
    let (layout, now_ms) = (context.layout(), context.now_ms());
    let sum = context.update_or_create(key, |hash| {
        let sum = add_integer(hash, field, amount, now_ms, layout);
        let changed = sum.is_ok();
        (sum, changed)
    })??;
    context.notify_fields("hincrby", key, [field]);
    reply.integer(sum);
    Ok(())
}

fn add_integer(
    hash: &mut Hash,
    field: &[u8],
    amount: i64,
    now_ms: u64,
    layout: Layout<'_>,
) -> Result<i64, CommandError> {
    let current = match hash.get(field, now_ms) {
        Some(value) => value.as_integer().ok_or(CommandError::text("ERR hash value is not an integer"))?,
        None => 0,
    };
    let overflow = CommandError::text("ERR increment or decrement would overflow");
    let sum = current.checked_add(amount).ok_or(overflow)?;
    hash.set(field, itoa::Buffer::new().format(sum).as_bytes(), ExpiryChange::Keep, now_ms, layout);
    Ok(sum)
}

pub(super) const HINCRBYFLOAT: Command = Command {
    name: "hincrbyfloat",
    summary: "Adds a floating-point number to the number in a field of a hash; a missing field counts from 0.",
    since: "2.6.0",
    run: Run::Write(hincrbyfloat),
    args: &[Argument::key("key"), Argument::string("field"), Argument::double("increment")],
    ..HINCRBY
};

fn hincrbyfloat(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    let (key, field, amount) = (args.word(), args.word(), args.word());
    let amount = ExtendedFloat::parse(amount).ok_or(CommandError::NotFloat)?;
    if amount == ExtendedFloat::Infinite {
        return Err(CommandError::text("ERR value is NaN or Infinity"));
    }
    let (layout, now_ms) = (context.layout(), context.now_ms());
    let (sum, deadline_ms) = context.update_or_create(key, |hash| {
        let sum = add_float(hash, field, amount, now_ms, layout);
        let changed = sum.is_ok();
        let deadline_ms = hash.deadline_ms(field, now_ms).flatten();
        (sum.map(|sum| (sum, deadline_ms)), changed)
    })??;
    // Sums of decimal fractions may come out differently elsewhere.
    context.propagate(&[b"HSET", key, field, sum.as_bytes()]);
    if let Some(deadline_ms) = deadline_ms {
        // Which HSET takes away.
        record_deadline(context, key, deadline_ms, &[field]);
    }
    context.notify_fields("hincrbyfloat", key, [field]);
    reply.bulk(sum.as_bytes());
    Ok(())
}

fn add_float(
    hash: &mut Hash,
    field: &[u8],
    amount: ExtendedFloat,
    now_ms: u64,
    layout: Layout<'_>,
) -> Result<String, CommandError> {
    let current = match hash.get(field, now_ms) {
        Some(value) => {
            ExtendedFloat::parse(&value.text()).ok_or(CommandError::text("ERR hash value is not a float"))?
        }
        None => ExtendedFloat::ZERO,
    };
    let not_finite = CommandError::text("ERR increment would produce NaN or Infinity");
    let sum = (current + amount).to_text().ok_or(not_finite)?;
    hash.set(field, sum.as_bytes(), ExpiryChange::Keep, now_ms, layout);
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn counting() {
        check(
            "
            > HINCRBY h n 5
            :5
            > HINCRBY h n -7
            :-2
            > HGET h n
            $2 -2
            > HINCRBYFLOAT h f 0.1
            $3 0.1
            > HINCRBYFLOAT h f 0.2
            $3 0.3
            > HINCRBYFLOAT h n 2.5
            $3 0.5
            > HINCRBY h n 1
            -ERR hash value is not an integer
            > HSET h t text max 9223372036854775807
            :2
            > HINCRBY h max 1
            -ERR increment or decrement would overflow
            > HINCRBYFLOAT h t 1
            -ERR hash value is not a float
            > HINCRBYFLOAT h f x
            -ERR value is not a valid float
            > HINCRBYFLOAT h f inf
            -ERR value is NaN or Infinity
            > HINCRBY h n x
            -ERR value is not an integer or out of range
            > HINCRBY missing n x
            -ERR value is not an integer or out of range
            > EXISTS missing
            :0
            > SET text v
            +OK
            > HINCRBY text n 1
            -WRONGTYPE Operation against a key holding the wrong kind of value
            ",
        );
    }
}
