//! Parts of strings.

use dunlin_resp::ReplyBuffer;

use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::{ExpiryChange, ReadContext, WriteContext},
    notify::EventClass,
    value::StringRef,
};

pub(super) const APPEND: Command = Command {
    name: "append",
    summary: "Appends to the string under a key, which is created if it does not exist.",
    since: "2.0.0",
    group: Group::String,
    complexity: "O(1) amortized over a long row of short appends",
    arity: Arity::Exactly(3),
    run: Run::Write(append),
    flags: Flags::DENY_OOM.and(Flags::FAST),
    keys: &[KeySpec::at(1).read_write().inserts()],
    args: &[Argument::key("key"), Argument::string("value")],
    ..Command::DEFAULT
};

fn append(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, tail) = (args.word(), args.word());
    let bytes_max = context.policy().string_bytes_max;
    let check = |length| check_length(length, tail.len(), bytes_max);
    let length = context.append_to_existing(key, tail, check)?;
    if length.is_none() {
        context.set_word(key, tail, ExpiryChange::Clear);
    }
    context.notify(EventClass::String, "append", key);
    reply.count(length.unwrap_or(tail.len()));
    Ok(())
}

fn check_length(offset: usize, length: usize, bytes_max: usize) -> CommandResult {
    match offset.checked_add(length) {
        Some(end) if end <= bytes_max => Ok(()),
        _ => Err(CommandError::StringTooLong),
    }
}

pub(super) const SETRANGE: Command = Command {
    name: "setrange",
    summary: "Overwrites part of the string under a key, which grows with zero bytes as needed.",
    since: "2.2.0",
    group: Group::String,
    complexity: "O(n) in the length of the value",
    arity: Arity::Exactly(4),
    run: Run::Write(setrange),
    flags: Flags::DENY_OOM,
    keys: &[KeySpec::at(1).read_write().updates()],
    args: &[Argument::key("key"), Argument::integer("offset"), Argument::string("value")],
    ..Command::DEFAULT
};

fn setrange(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, offset, part) = (args.word(), args.integer(), args.word());
    args.check()?;
    let offset = usize::try_from(offset).map_err(|_| CommandError::text("ERR offset is out of range"))?;
    let length = context.string(key)?.map_or(0, StringRef::len);
    if part.is_empty() {
        reply.count(length);
        return Ok(());
    }
    check_length(offset, part.len(), context.policy().string_bytes_max)?;
    let end = offset + part.len();
    let edited = (end <= length)
        .then(|| {
            context.edit_string_in_place(key, |text| {
                text.get_mut(offset..end).map(|to| (to.copy_from_slice(part), true))
            })
        })
        .flatten();
    if edited.is_none() {
        context.overwrite_string(key, offset, part)?;
    }
    context.notify(EventClass::String, "setrange", key);
    reply.count(length.max(end));
    Ok(())
}

pub(super) const GETRANGE: Command = Command {
    name: "getrange",
    summary: "Returns part of the string under a key; negative positions count from its end.",
    since: "2.4.0",
    group: Group::String,
    complexity: "O(n) in the length of the part, which is sent without a copy where it is long",
    arity: Arity::Exactly(4),
    run: Run::Read(getrange),
    flags: Flags::NONE,
    keys: &[KeySpec::at(1).accesses()],
    args: &[Argument::key("key"), Argument::integer("start"), Argument::integer("end")],
    ..Command::DEFAULT
};

pub(super) const SUBSTR: Command = Command {
    name: "substr",
    deprecated: Some(("2.0.0", "GETRANGE")),
    summary: "Returns part of the string under a key: the old name of GETRANGE.",
    since: "1.0.0",
    ..GETRANGE
};

fn getrange(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, start, end) = (args.word(), args.integer(), args.integer());
    args.check()?;
    let Some(value) = context.string(key)? else {
        reply.bulk(b"");
        return Ok(());
    };
    value.reply_range(resolve(start, end, value.len()), reply);
    Ok(())
}

/// The bytes that two positions, both inclusive, mean in a text.
fn resolve(start: i64, end: i64, length: usize) -> std::ops::Range<usize> {
    let length = length as i64;
    let from = |position: i64| if position < 0 { position.saturating_add(length).max(0) } else { position };
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let (start, end) = (from(start), from(end).min(length - 1));
    if start > end { 0..0 } else { start as usize..end as usize + 1 }
}

#[cfg(test)]
mod tests {
    use crate::transcript::{Scenario, check};
    use dunlin_resp::Protocol;

    #[test]
    fn append_builds_up() {
        check(
            "
            > APPEND k 12
            :2
            > INCR k
            :13
            > APPEND k 4
            :3
            > INCR k
            :135
            > APPEND k ''
            :3
            > GET k
            $3 135
            > APPEND empty ''
            :0
            > STRLEN empty
            :0
            ",
        );
    }

    #[test]
    fn long_strings_grow_past_every_way_of_storing_them() {
        let mut scenario = Scenario::new();
        let piece = "0123456789".repeat(15);
        for length in (150..=150 * 40).step_by(150) {
            let reply = scenario.reply(&format!("APPEND k {piece}"), Protocol::Resp2);
            assert_eq!(reply, format!(":{length}\r\n").as_bytes());
        }
        let whole = piece.repeat(40);
        let expected = format!("${}\r\n{whole}\r\n", whole.len());
        assert_eq!(scenario.reply("GET k", Protocol::Resp2), expected.as_bytes());
        assert_eq!(scenario.reply("GETRANGE k 5995 -1", Protocol::Resp2), b"$5\r\n56789\r\n");
        assert_eq!(scenario.reply("SETRANGE k 3000 xyz", Protocol::Resp2), b":6000\r\n");
        assert_eq!(scenario.reply("GETRANGE k 2999 3003", Protocol::Resp2), b"$5\r\n9xyz3\r\n");
    }

    #[test]
    fn strings_have_a_limit() {
        let mut scenario = Scenario::new();
        scenario.policy.string_bytes_max = 10;
        scenario.play(
            "
            > SET k 12345
            +OK
            > APPEND k 67890
            :10
            > APPEND k x
            -ERR string exceeds maximum allowed size (proto-max-bulk-len)
            > SETRANGE k 9 0
            :10
            > SETRANGE k 10 0
            -ERR string exceeds maximum allowed size (proto-max-bulk-len)
            > SETRANGE k 9223372036854775807 0
            -ERR string exceeds maximum allowed size (proto-max-bulk-len)
            > SETRANGE k 100 ''
            :10
            ",
        );
    }

    #[test]
    fn setrange_overwrites_and_pads() {
        check(
            "
            > SETRANGE k 0 ''
            :0
            > GET k
            $-1
            > SETRANGE k 2 ab
            :4
            > GETRANGE k 2 3
            $2 ab
            > SETRANGE k 1 xyz
            :4
            > GETRANGE k 1 -1
            $3 xyz
            > SET n 1234
            +OK
            > SETRANGE n 1 0
            :4
            > INCR n
            :1035
            > SETRANGE n -1 a
            -ERR offset is out of range
            > SETRANGE n x a
            -ERR value is not an integer or out of range
            ",
        );
    }

    #[test]
    fn getrange_counts_from_both_ends() {
        check(
            "
            > SET k 'Hello World'
            +OK
            > GETRANGE k 0 4
            $5 Hello
            > GETRANGE k -5 -1
            $5 World
            > GETRANGE k 0 -1
            $11 Hello World
            > GETRANGE k -100 100
            $11 Hello World
            > GETRANGE k 5 1
            $0
            > GETRANGE k -1 -5
            $0
            > GETRANGE k 20 30
            $0
            > GETRANGE k -9223372036854775808 -9223372036854775808
            $1 H
            > SUBSTR k 0 0
            $1 H
            > SET n -1234
            +OK
            > GETRANGE n 1 2
            $2 12
            > GETRANGE missing 0 -1
            $0
            > GETRANGE k a 1
            -ERR value is not an integer or out of range
            ",
        );
    }
}
