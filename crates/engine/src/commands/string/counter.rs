//! Strings as counters.

use dunlin_resp::ReplyBuffer;

use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::{ExpiryChange, WriteContext},
    value::NewString,
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

fn add(context: &mut WriteContext<'_>, key: &[u8], amount: i64, reply: &mut ReplyBuffer) -> CommandResult {
    let current = match context.string(key)? {
        Some(value) => value.integer().ok_or(CommandError::NotInteger)?,
        None => 0,
    };
    let sum =
        current.checked_add(amount).ok_or(CommandError::text("ERR increment or decrement would overflow"))?;
    context.set_string(key, NewString::Integer(sum), ExpiryChange::Keep);
    reply.integer(sum);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn incr_counts_and_refuses_what_is_not_a_number() {
        check(
            "
            > INCR n
            :1
            > SET n 9223372036854775807
            +OK
            > INCR n
            -ERR increment or decrement would overflow
            > SET n x
            +OK
            > INCR n
            -ERR value is not an integer or out of range
            > INCR
            -ERR wrong number of arguments for 'incr' command
            ",
        );
    }
}
