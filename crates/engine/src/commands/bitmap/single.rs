//! Single bits.

use dunlin_resp::ReplyBuffer;
use dunlin_structures::bits;

use super::parse_offset;
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::{ReadContext, WriteContext},
    notify::EventClass,
};

pub(super) const GETBIT: Command = Command {
    name: "getbit",
    summary: "Returns one bit of the string under a key; bits behind its end are 0.",
    since: "2.2.0",
    group: Group::Bitmap,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    run: Run::Read(getbit),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).accesses()],
    args: &[Argument::key("key"), Argument::integer("offset")],
    ..Command::DEFAULT
};

fn getbit(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, offset) = (args.word(), args.word());
    let offset = parse_offset(offset, context.policy().string_bytes_max)?;
    let mut byte = [0];
    if let Some(value) = context.string(key)? {
        value.read((offset / 8) as usize, &mut byte);
    }
    let bit = bits::bit(&byte, offset % 8);
    reply.integer(bit.into());
    Ok(())
}

pub(super) const SETBIT: Command = Command {
    name: "setbit",
    summary: "Sets one bit of the string under a key, which grows as needed, and returns the old one.",
    since: "2.2.0",
    group: Group::Bitmap,
    complexity: "O(1)",
    arity: Arity::Exactly(4),
    run: Run::Write(setbit),
    flags: Flags::DENY_OOM,
    keys: &[KeySpec::at(1).read_write().accesses().updates()],
    args: &[Argument::key("key"), Argument::integer("offset"), Argument::integer("value")],
    ..Command::DEFAULT
};

fn setbit(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, offset, value) = (args.word(), args.word(), args.word());
    let offset = parse_offset(offset, context.policy().string_bytes_max)?;
    let value = match value {
        b"0" => false,
        b"1" => true,
        _ => return Err(CommandError::text("ERR bit is not an integer or out of range")),
    };
    let bytes = (offset / 8) as usize + 1;
    let fits = |text: &mut [u8]| {
        let before = (bytes <= text.len()).then(|| bits::set_bit(text, offset, value))?;
        Some(((before, before != value), before != value))
    };
    let (before, changed) = match context.edit_string_in_place(key, fits) {
        Some(edited) => edited,
        None => context.update_string(key, bytes, |mut text| {
            let grows = text.len() < bytes;
            text.grow(bytes);
            let mut byte = [0];
            text.read(bytes - 1, &mut byte);
            let before = bits::set_bit(&mut byte, offset % 8, value);
            // An unchanged string may be shared, and must not be copied.
            if before != value {
                text.write(bytes - 1, &byte);
            }
            ((before, grows || before != value), grows || before != value)
        })?,
    };
    if changed {
        context.notify(EventClass::String, "setbit", key);
    }
    reply.integer(before.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::{Scenario, check};
    use dunlin_resp::Protocol;

    #[test]
    fn bits_are_set_and_read() {
        check(
            "
            > GETBIT k 0
            :0
            > SETBIT k 7 1
            :0
            > SETBIT k 7 1
            :1
            > GETBIT k 7
            :1
            > GETBIT k 6
            :0
            > GETBIT k 4294967295
            :0
            > STRLEN k
            :1
            > SETBIT k 20 0
            :0
            > STRLEN k
            :3
            > SET n 12
            +OK
            > GETBIT n 3
            :1
            > SETBIT n 6 0
            :0
            > SETBIT n 7 0
            :1
            > GET n
            $2 02
            ",
        );
    }

    #[test]
    fn offsets_and_values_have_limits() {
        check(
            "
            > SETBIT k 4294967296 1
            -ERR bit offset is not an integer or out of range
            > SETBIT k -1 1
            -ERR bit offset is not an integer or out of range
            > SETBIT k x 2
            -ERR bit offset is not an integer or out of range
            > SETBIT k 0 2
            -ERR bit is not an integer or out of range
            > SETBIT k 0 x
            -ERR bit is not an integer or out of range
            > GETBIT k x
            -ERR bit offset is not an integer or out of range
            > GETBIT k 4294967296
            -ERR bit offset is not an integer or out of range
            > GETBIT k
            -ERR wrong number of arguments for 'getbit' command
            ",
        );
    }

    #[test]
    fn setbit_fills_a_large_bitmap_and_keeps_its_expiry() {
        let mut scenario = Scenario::new();
        scenario.play(
            "
            > SET k a PX 100
            +OK
            ",
        );
        for offset in (8..40_000).step_by(97) {
            assert_eq!(scenario.reply(&format!("SETBIT k {offset} 1"), Protocol::Resp2), b":0\r\n");
        }
        for offset in (8..40_000).step_by(97) {
            assert_eq!(scenario.reply(&format!("GETBIT k {offset}"), Protocol::Resp2), b":1\r\n");
        }
        scenario.play(
            "
            > BITCOUNT k 1 -1
            :413
            @ +100
            > GETBIT k 8
            :0
            ",
        );
    }
}
