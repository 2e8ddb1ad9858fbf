//! Asking when keys expire.

use dunlin_resp::ReplyBuffer;

use crate::{
    command::{Args, Argument, Arity, Command, CommandResult, Flags, KeySpec, Run},
    commands::expiry::to_seconds,
    context::ReadContext,
};

const ROW: Command = Command {
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).accesses()],
    args: &[Argument::key("key")],
    ..Command::DEFAULT
};

pub(super) const TTL: Command = Command {
    name: "ttl",
    summary: "Returns in how many seconds a key expires.",
    since: "1.0.0",
    run: Run::Read(ttl),
    tips: &["nondeterministic_output"],
    ..ROW
};

pub(super) const PTTL: Command = Command {
    name: "pttl",
    summary: "Returns in how many milliseconds a key expires.",
    since: "2.6.0",
    run: Run::Read(pttl),
    tips: &["nondeterministic_output"],
    ..ROW
};

pub(super) const EXPIRETIME: Command = Command {
    name: "expiretime",
    summary: "Returns when a key expires, as a unix time in seconds.",
    since: "7.0.0",
    run: Run::Read(expiretime),
    ..ROW
};

pub(super) const PEXPIRETIME: Command = Command {
    name: "pexpiretime",
    summary: "Returns when a key expires, as a unix time in milliseconds.",
    since: "7.0.0",
    run: Run::Read(pexpiretime),
    ..ROW
};

/// The reply for a key that is not there.
const NO_KEY: i64 = -2;
/// The reply for a key that does not expire.
const NO_EXPIRY: i64 = -1;

fn ttl(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let clock_ms = context.clock_ms();
    answer(context, args, reply, |expiry| to_seconds(expiry.saturating_sub(clock_ms)))
}

fn pttl(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let clock_ms = context.clock_ms();
    answer(context, args, reply, |expiry| expiry.saturating_sub(clock_ms))
}

fn expiretime(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    answer(context, args, reply, to_seconds)
}

fn pexpiretime(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    answer(context, args, reply, |expiry| expiry)
}

/// `tell` is only asked about expiries that have not passed, except in a replay, in which nothing expires.
fn answer(
    context: &mut ReadContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
    tell: impl Fn(u64) -> u64,
) -> CommandResult {
    reply.integer(match context.inspect(args.word()).map(|entry| entry.expiry()) {
        None => NO_KEY,
        Some(None) => NO_EXPIRY,
        Some(Some(expiry)) => tell(expiry) as i64,
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn times_are_told_in_both_units() {
        check(
            "
            > TTL k
            :-2
            > PEXPIRETIME k
            :-2
            > SET k v
            +OK
            > PTTL k
            :-1
            > EXPIRETIME k
            :-1
            > PEXPIREAT k 1700000001500
            :1
            > TTL k
            :2
            > EXPIRETIME k
            :1700000002
            > PEXPIRETIME k
            :1700000001500
            @ +1
            > TTL k
            :1
            > PTTL k
            :1499
            @ +1000
            > TTL k
            :0
            @ +499
            > TTL k
            :-2
            > TTL
            -ERR wrong number of arguments for 'ttl' command
            ",
        );
    }
}
