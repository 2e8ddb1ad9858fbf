//! Strings as arrays of integers of any width.

use std::ops::Range;

use dunlin_resp::{ReplyBuffer, number::parse_integer};
use dunlin_structures::bits;

use super::{
    overflow::{FieldType, Overflow},
    parse_field_offset,
};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::{ReadContext, WriteContext},
    notify::EventClass,
    value::{StringRef, TextMut},
};

const ENCODING_AND_OFFSET: [Argument; 2] = [Argument::string("encoding"), Argument::integer("offset")];

pub(super) const BITFIELD: Command = Command {
    name: "bitfield",
    summary: "Reads, sets and counts up integers of any width inside the string under a key.",
    since: "3.2.0",
    group: Group::Bitmap,
    complexity: "O(1) for each operation",
    arity: Arity::AtLeast(2),
    run: Run::Write(bitfield),
    flags: Flags::DENY_OOM,
    keys: &[KeySpec::at(1).read_write().accesses().updates().varies()],
    args: &[
        Argument::key("key"),
        Argument::one_of(
            "operation",
            &[
                Argument::block("encoding_offset", &ENCODING_AND_OFFSET).after("GET"),
                Argument::block(
                    "write",
                    &[
                        Argument::one_of(
                            "wrap_sat_fail",
                            &[
                                Argument::word("wrap", "WRAP"),
                                Argument::word("sat", "SAT"),
                                Argument::word("fail", "FAIL"),
                            ],
                        )
                        .after("OVERFLOW")
                        .optional(),
                        Argument::one_of(
                            "write_operation",
                            &[
                                Argument::block(
                                    "encoding_offset_value",
                                    &[
                                        Argument::string("encoding"),
                                        Argument::integer("offset"),
                                        Argument::integer("value"),
                                    ],
                                )
                                .after("SET"),
                                Argument::block(
                                    "encoding_offset_increment",
                                    &[
                                        Argument::string("encoding"),
                                        Argument::integer("offset"),
                                        Argument::integer("increment"),
                                    ],
                                )
                                .after("INCRBY"),
                            ],
                        ),
                    ],
                ),
            ],
        )
        .multiple()
        .optional(),
    ],
    ..Command::DEFAULT
};

pub(super) const BITFIELD_RO: Command = Command {
    name: "bitfield_ro",
    summary: "Reads integers of any width inside the string under a key.",
    since: "6.0.0",
    group: Group::Bitmap,
    complexity: "O(1) for each operation",
    arity: Arity::AtLeast(2),
    run: Run::Read(bitfield_ro),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).accesses()],
    args: &[
        Argument::key("key"),
        Argument::block("encoding_offset", &ENCODING_AND_OFFSET).after("GET").multiple_token().optional(),
    ],
    ..Command::DEFAULT
};

/// Bytes that a field of 64 bits is in at most.
const FIELD_BYTES_MAX: usize = 9;

/// An operation on a field.
#[derive(Debug, Clone, Copy)]
struct Operation {
    field: FieldType,
    offset: u64,
    action: Action,
}

#[derive(Debug, Clone, Copy)]
enum Action {
    Get,
    Set(i64, Overflow),
    Add(i64, Overflow),
}

impl Operation {
    /// Reads all operations of a request.
    fn read_all(args: &mut Args<'_>, bytes_max: usize) -> Result<Vec<Self>, CommandError> {
        let mut operations = Vec::new();
        let mut overflow = Overflow::Wrap;
        while !args.is_empty() {
            if args.token_with("OVERFLOW", 1) {
                overflow = read_overflow(args)?;
                continue;
            }
            let make: fn(i64, Overflow) -> Action = if args.token_with("GET", 2) {
                |_, _| Action::Get
            } else if args.token_with("SET", 3) {
                Action::Set
            } else if args.token_with("INCRBY", 3) {
                Action::Add
            } else {
                return Err(CommandError::Syntax);
            };
            let field = FieldType::parse(args.word())?;
            let offset = parse_field_offset(args.word(), field.width, bytes_max)?;
            let mut action = make(0, overflow);
            if action.is_write() {
                let amount = parse_integer(args.word()).ok_or(CommandError::NotInteger)?;
                action = make(amount, overflow);
            }
            operations.push(Self { field, offset, action });
        }
        Ok(operations)
    }

    /// Bytes that a string must have to be written to.
    fn bytes(&self) -> usize {
        (self.offset + u64::from(self.field.width)).div_ceil(8) as usize
    }

    /// Bytes of a string that the field is in.
    fn range(&self) -> Range<usize> {
        (self.offset / 8) as usize..self.bytes()
    }

    /// Writes the reply, and returns whether it has changed the string, of which `bytes` are
    /// [`Self::range`].
    fn run(self, bytes: &mut [u8], reply: &mut ReplyBuffer) -> bool {
        let offset = self.offset % 8;
        let before = self.field.read(bytes, offset);
        let (after, shown) = match self.action {
            Action::Get => {
                reply.integer(before);
                return false;
            }
            Action::Set(value, overflow) => (self.field.convert(value, overflow), before),
            Action::Add(amount, overflow) => {
                let sum = self.field.add(before, amount, overflow);
                (sum, sum.unwrap_or_default())
            }
        };
        match after {
            Some(after) => {
                bits::write_field(bytes, offset, self.field.width, after as u64);
                reply.integer(shown);
                after != before
            }
            None => {
                reply.null();
                false
            }
        }
    }

    /// Runs in a text that is at least as long as every field that is written to.
    fn run_in_slice(self, text: &mut [u8], reply: &mut ReplyBuffer) -> bool {
        match text.get_mut(self.range()) {
            Some(bytes) => self.run(bytes, reply),
            None => self.show(Some(StringRef::Inline(text)), reply),
        }
    }

    /// Answers a field that is not written to; bits behind the end are 0.
    fn show(self, value: Option<StringRef<'_>>, reply: &mut ReplyBuffer) -> bool {
        debug_assert!(!self.action.is_write());
        let mut bytes = [0; FIELD_BYTES_MAX];
        if let Some(value) = value {
            value.read(self.range().start, &mut bytes[..self.range().len()]);
        }
        self.run(&mut bytes, reply)
    }

    /// [`Self::run`] in a text that may stand in chunks.
    fn run_in(self, text: &mut TextMut<'_>, reply: &mut ReplyBuffer) -> bool {
        let mut bytes = [0; FIELD_BYTES_MAX];
        let bytes = &mut bytes[..self.range().len()];
        text.read(self.range().start, bytes);
        let changed = self.run(bytes, reply);
        // An unchanged string may be shared, and must not be copied.
        if changed {
            text.write(self.range().start, bytes);
        }
        changed
    }
}

impl Action {
    fn is_write(self) -> bool {
        !matches!(self, Self::Get)
    }
}

fn read_overflow(args: &mut Args<'_>) -> Result<Overflow, CommandError> {
    if args.token("WRAP") {
        Ok(Overflow::Wrap)
    } else if args.token("SAT") {
        Ok(Overflow::Saturate)
    } else if args.token("FAIL") {
        Ok(Overflow::Fail)
    } else {
        Err(CommandError::text("ERR Invalid OVERFLOW type specified"))
    }
}

fn bitfield(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let operations = Operation::read_all(args, context.policy().string_bytes_max)?;
    let written = operations.iter().filter(|operation| operation.action.is_write());
    let Some(bytes) = written.map(Operation::bytes).max() else {
        let value = context.string(key)?;
        let found = value.is_some();
        get_all(&operations, value, reply);
        context.count_lookup(key, found);
        return Ok(());
    };
    reply.array(operations.len());
    // Every operation runs, whether or not one before it has changed something.
    let mut changes = 0;
    let both = |changed: bool| (changed, changed);
    let fits = |text: &mut [u8]| {
        (bytes <= text.len()).then(|| {
            changes = operations.iter().filter(|operation| operation.run_in_slice(text, reply)).count();
            both(changes > 0)
        })
    };
    let changed = match context.edit_string_in_place(key, fits) {
        Some(changed) => changed,
        None => context.update_string(key, bytes, |mut text| {
            let grows = text.len() < bytes;
            text.grow(bytes);
            changes = operations.iter().filter(|operation| operation.run_in(&mut text, reply)).count();
            both(changes > 0 || grows)
        })?,
    };
    if changed {
        context.count_changes(changes);
        context.notify(EventClass::String, "setbit", key);
    }
    Ok(())
}

fn bitfield_ro(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let operations = Operation::read_all(args, context.policy().string_bytes_max)?;
    if operations.iter().any(|operation| operation.action.is_write()) {
        return Err(CommandError::text("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    get_all(&operations, context.string(key)?, reply);
    Ok(())
}

fn get_all(operations: &[Operation], value: Option<StringRef<'_>>, reply: &mut ReplyBuffer) {
    reply.array(operations.len());
    for operation in operations {
        operation.show(value, reply);
    }
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn fields_are_read_set_and_counted() {
        check(
            "
            > BITFIELD k GET u8 0
            *1 :0
            > STRLEN k
            :0
            > BITFIELD k SET u8 #1 255 INCRBY i5 100 1 GET u4 8 GET i4 8
            *4 :0 :1 :15 :-1
            > STRLEN k
            :14
            > BITFIELD k SET i8 8 -1 GET u8 #1
            *2 :-1 :255
            > BITFIELD k
            *0
            > BITFIELD_RO k GET u16 0 GET i16 0
            *2 :255 :255
            > BITFIELD_RO k
            *0
            > SET n 12
            +OK
            > BITFIELD n GET u8 0 INCRBY u8 8 1
            *2 :49 :51
            > GET n
            $2 13
            > INCR n
            :14
            ",
        );
    }

    #[test]
    fn overflow_wraps_saturates_or_fails() {
        check(
            "
            > BITFIELD k SET u8 0 250 INCRBY u8 0 10 OVERFLOW SAT INCRBY u8 0 300 SET u8 0 -1
            *4 :0 :4 :255 :255
            > BITFIELD k OVERFLOW FAIL INCRBY u8 0 1 SET u8 0 256 INCRBY u8 0 -1
            *3 $-1 $-1 :254
            3> BITFIELD k OVERFLOW fail INCRBY u8 0 2
            *1 _
            > BITFIELD k OVERFLOW FAIL INCRBY u8 0 2 OVERFLOW wrap INCRBY u8 0 2
            *2 $-1 :0
            > BITFIELD grown OVERFLOW FAIL SET u8 100 300
            *1 $-1
            > STRLEN grown
            :14
            ",
        );
    }

    #[test]
    fn bitfield_refuses_what_makes_no_sense() {
        check(
            "
            > BITFIELD k GET u64 0
            -ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.
            > BITFIELD k GET u8 -1
            -ERR bit offset is not an integer or out of range
            > BITFIELD k GET u8 #-1
            -ERR bit offset is not an integer or out of range
            > BITFIELD k GET u8 #536870912
            -ERR bit offset is not an integer or out of range
            > BITFIELD k GET u8 #9223372036854775807
            -ERR bit offset is not an integer or out of range
            > BITFIELD k GET u8
            -ERR syntax error
            > BITFIELD k SET u8 0
            -ERR syntax error
            > BITFIELD k FOO
            -ERR syntax error
            > BITFIELD k OVERFLOW
            -ERR syntax error
            > BITFIELD k OVERFLOW FOO
            -ERR Invalid OVERFLOW type specified
            > BITFIELD k SET u8 0 x
            -ERR value is not an integer or out of range
            > BITFIELD_RO k SET u8 0 1
            -ERR BITFIELD_RO only supports the GET subcommand
            > BITFIELD_RO k GET u8 0 OVERFLOW SAT
            *1 :0
            ",
        );
    }
}
