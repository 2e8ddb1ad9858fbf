//! Reading strings whole.

use dunlin_resp::ReplyBuffer;

use crate::{
    command::{Args, Argument, Arity, Command, CommandResult, Flags, Group, KeySpec, Run},
    commands::expiry::ExpiryOption,
    context::{ExpiryChange, ReadContext, WriteContext},
    notify::EventClass,
    value::StringRef,
};

pub(super) const GET: Command = Command {
    name: "get",
    summary: "Returns the string under a key.",
    since: "1.0.0",
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    run: Run::Read(get),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).accesses()],
    args: &[Argument::key("key")],
    ..Command::DEFAULT
};

fn get(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    reply_or_null(context.string(args.word())?, reply);
    Ok(())
}

#[inline]
pub(super) fn reply_or_null(value: Option<StringRef<'_>>, reply: &mut ReplyBuffer) {
    match value {
        Some(value) => value.reply(reply),
        None => reply.null(),
    }
}

pub(super) const STRLEN: Command = Command {
    name: "strlen",
    summary: "Returns the length in bytes of the string under a key.",
    since: "2.2.0",
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    run: Run::Read(strlen),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1)],
    args: &[Argument::key("key")],
    ..Command::DEFAULT
};

fn strlen(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    reply.count(context.string(args.word())?.map_or(0, StringRef::len));
    Ok(())
}

pub(super) const GETDEL: Command = Command {
    name: "getdel",
    summary: "Returns the string under a key and removes the key.",
    since: "6.2.0",
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    run: Run::Write(getdel),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).read_write().accesses().deletes()],
    args: &[Argument::key("key")],
    ..Command::DEFAULT
};

fn getdel(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    if read(context, key, reply)? {
        context.remove(key);
        context.propagate(&[b"DEL", key]);
        context.notify(EventClass::Generic, "del", key);
    }
    Ok(())
}

/// Replies with the value of the key, or null; returns whether there is one. Counted as a lookup.
fn read(
    context: &mut WriteContext<'_>,
    key: &[u8],
    reply: &mut ReplyBuffer,
) -> Result<bool, crate::command::CommandError> {
    let value = context.string(key)?;
    let found = value.is_some();
    reply_or_null(value, reply);
    context.count_lookup(key, found);
    Ok(found)
}

/// The option of GETEX and INCREX that changes when the key expires.
pub(super) const EXPIRATION: Argument = Argument::one_of(
    "expiration",
    &[
        Argument::integer("seconds").after("EX"),
        Argument::integer("milliseconds").after("PX"),
        Argument::unix_time("unix-time-seconds").after("EXAT"),
        Argument::unix_time("unix-time-milliseconds").after("PXAT"),
        Argument::word("persist", "PERSIST"),
    ],
)
.optional();

pub(super) const GETEX: Command = Command {
    name: "getex",
    summary: "Returns the string under a key and sets or removes the key's expiry.",
    since: "6.2.0",
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::AtLeast(2),
    run: Run::Write(getex),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).read_write().accesses().updates()],
    args: &[Argument::key("key"), EXPIRATION],
    ..Command::DEFAULT
};

fn getex(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let mut expiry = ExpiryOption::None;
    while !args.is_empty() && expiry.read(args, ("PERSIST", ExpiryOption::Persist)) {}
    args.finish()?;
    if !read(context, key, reply)? {
        return Ok(());
    }
    match expiry {
        ExpiryOption::None | ExpiryOption::Keep => {}
        ExpiryOption::Persist => {
            if context.find(key).is_some_and(|entry| entry.expiry().is_some()) {
                context.set_expiry(key, None);
                context.propagate(&[b"PERSIST", key]);
                context.notify(EventClass::Generic, "persist", key);
            }
        }
        ExpiryOption::Time(clock, amount) => {
            let at = clock.at(amount, context.clock_ms(), "getex")?;
            context.set_expiry(key, Some(at));
            context.record_expiry(key, at);
            let name = if at <= context.now_ms() { "del" } else { "expire" };
            context.notify(EventClass::Generic, name, key);
        }
    }
    Ok(())
}

pub(super) const GETSET: Command = Command {
    name: "getset",
    deprecated: Some(("6.2.0", "SET with the GET option")),
    summary: "Stores a string under a key and returns the one that was there.",
    since: "1.0.0",
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    run: Run::Write(getset),
    flags: Flags::DENY_OOM.and(Flags::FAST),
    keys: &[KeySpec::at(1).read_write().accesses().updates()],
    args: &[Argument::key("key"), Argument::string("value")],
    ..Command::DEFAULT
};

fn getset(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, value) = (args.word(), args.word());
    read(context, key, reply)?;
    context.set_word(key, value, ExpiryChange::Clear);
    context.propagate(&[b"SET", key, value]);
    context.notify(EventClass::String, "set", key);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn get_and_strlen_read() {
        check(
            "
            > GET k
            $-1
            3> GET k
            _
            > SET k hello
            +OK
            > GET k
            $5 hello
            > STRLEN k
            :5
            > SET n -120
            +OK
            > GET n
            $4 -120
            > STRLEN n
            :4
            > STRLEN missing
            :0
            > GET
            -ERR wrong number of arguments for 'get' command
            > STRLEN a b
            -ERR wrong number of arguments for 'strlen' command
            ",
        );
    }

    #[test]
    fn getdel_takes_the_key_away() {
        check(
            "
            > SET k v
            +OK
            > GETDEL k
            $1 v
            > GETDEL k
            $-1
            3> GETDEL k
            _
            ",
        );
    }

    #[test]
    fn getset_exchanges_and_forgets_the_expiry() {
        check(
            "
            > GETSET k 1
            $-1
            > SET k 2 PX 100
            +OK
            > GETSET k 3
            $1 2
            @ +100
            > GET k
            $1 3
            ",
        );
    }

    #[test]
    fn getex_reads_and_moves_the_expiry() {
        check(
            "
            > GETEX k EX 10
            $-1
            > SET k v
            +OK
            > GETEX k
            $1 v
            > GETEX k PX 100
            $1 v
            @ +99
            > GETEX k EX 1
            $1 v
            @ +999
            > GETEX k PERSIST
            $1 v
            @ +1000
            > GETEX k PXAT 1700000002200
            $1 v
            @ +101
            > GET k
            $1 v
            @ +1
            > GET k
            $-1
            > SET k v
            +OK
            > GETEX k EXAT 1
            $1 v
            > GET k
            $-1
            ",
        );
    }

    #[test]
    fn getex_refuses_what_makes_no_sense() {
        check(
            "
            > SET k v
            +OK
            > GETEX k EX
            -ERR syntax error
            > GETEX k EX 1 PX 1
            -ERR syntax error
            > GETEX k EX 1 PERSIST
            -ERR syntax error
            > GETEX k KEEPTTL
            -ERR syntax error
            > GETEX k EX one
            -ERR value is not an integer or out of range
            > GETEX k EX 0
            -ERR invalid expire time in 'getex' command
            > GETEX k PXAT -1
            -ERR invalid expire time in 'getex' command
            > GETEX k EX 9223372036854775807
            -ERR invalid expire time in 'getex' command
            > GETEX missing EX zero
            $-1
            ",
        );
    }
}
