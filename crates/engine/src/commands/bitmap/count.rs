//! Counting and searching.

use std::ops::Range;

use dunlin_resp::{ReplyBuffer, number::parse_integer};
use dunlin_structures::bits;

use super::BYTES_PER_VISIT;
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::ReadContext,
};

const INDEX_UNIT: Argument =
    Argument::one_of("index_unit", &[Argument::word("byte", "BYTE"), Argument::word("bit", "BIT")])
        .optional()
        .since("7.0.0");

/// The unit of positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Byte,
    Bit,
}

impl Unit {
    fn read(args: &mut Args<'_>) -> Result<Self, CommandError> {
        if args.is_empty() || args.token("BYTE") {
            Ok(Self::Byte)
        } else if args.token("BIT") {
            Ok(Self::Bit)
        } else {
            Err(CommandError::Syntax)
        }
    }

    /// The bits that two positions, both inclusive and counted from the end if negative, mean in a
    /// string of `bytes` bytes.
    fn range(self, start: i64, end: i64, bytes: usize) -> Range<u64> {
        let (bits_per_unit, units) = match self {
            Self::Byte => (8, bytes as i64),
            Self::Bit => (1, bytes as i64 * 8),
        };
        let from = |at: i64| if at < 0 { at.saturating_add(units).max(0) } else { at };
        let (start, end) = (from(start), from(end).min(units - 1));
        if start > end { 0..0 } else { start as u64 * bits_per_unit..(end as u64 + 1) * bits_per_unit }
    }
}

/// The bytes that some bits are in.
fn bytes_of(bits: &Range<u64>) -> Range<usize> {
    (bits.start / 8) as usize..bits.end.div_ceil(8) as usize
}

/// The bits of a range, counted from a byte on that is not behind the first, or from its first bit.
fn range_from(bits: &Range<u64>, byte: usize) -> Range<u64> {
    let first = 8 * byte as u64;
    bits.start.saturating_sub(first)..bits.end.saturating_sub(first)
}

/// The range of a string that the command reads. Parsed before the key is read, as in Redis 7.2 and newer:
/// a mistake is reported for any value of the key.
struct Part {
    start: i64,
    end: Option<i64>,
    unit: Unit,
}

impl Part {
    /// Reads `[start [end [BYTE | BIT]]]`.
    fn read(args: &mut Args<'_>) -> Result<Self, CommandError> {
        if args.remaining() > 3 {
            return Err(CommandError::Syntax);
        }
        let start = if args.is_empty() { 0 } else { args.integer() };
        args.check()?;
        let end = args.optional();
        let unit = Unit::read(args)?;
        let end = end.map(|word| parse_integer(word).ok_or(CommandError::NotInteger)).transpose()?;
        Ok(Self { start, end, unit })
    }

    /// Its bits in a string of `bytes` bytes.
    fn range(&self, bytes: usize) -> Range<u64> {
        self.unit.range(self.start, self.end.unwrap_or(-1), bytes)
    }

    /// Whether it ends before it starts, both counted from the end of the string.
    fn is_reversed(&self) -> bool {
        self.end.is_some_and(|end| self.start < 0 && end < 0 && self.start > end)
    }
}

pub(super) const BITCOUNT: Command = Command {
    name: "bitcount",
    summary: "Counts the bits that are 1 in the string under a key, or in part of it.",
    since: "2.6.0",
    group: Group::Bitmap,
    complexity: "O(n) in the length of the part",
    arity: Arity::AtLeast(2),
    run: Run::Read(bitcount),
    flags: Flags::NONE,
    keys: &[KeySpec::at(1).accesses()],
    args: &[
        Argument::key("key"),
        Argument::block(
            "index",
            &[
                Argument::integer("start"),
                Argument::block("end_index", &[Argument::integer("end"), INDEX_UNIT]).optional(),
            ],
        )
        .optional(),
    ],
    ..Command::DEFAULT
};

fn bitcount(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let part = Part::read(args)?;
    let Some(value) = context.string(key)? else {
        reply.integer(0);
        return Ok(());
    };
    let range = if part.is_reversed() { 0..0 } else { part.range(value.len()) };
    context.weigh(bytes_of(&range).len() / BYTES_PER_VISIT)?;
    let mut buffer = itoa::Buffer::new();
    let ones = value.pieces(&mut buffer, bytes_of(&range));
    let ones = ones.map(|(at, piece)| bits::count_ones_in(piece, range_from(&range, at)));
    reply.integer(ones.sum::<u64>() as i64);
    Ok(())
}

pub(super) const BITPOS: Command = Command {
    name: "bitpos",
    summary: "Finds the first bit that is 0 or 1 in the string under a key, or in part of it.",
    since: "2.8.7",
    group: Group::Bitmap,
    complexity: "O(n) in the length of the part",
    arity: Arity::AtLeast(3),
    run: Run::Read(bitpos),
    flags: Flags::NONE,
    keys: &[KeySpec::at(1).accesses()],
    args: &[
        Argument::key("key"),
        Argument::integer("bit"),
        Argument::block(
            "index",
            &[
                Argument::integer("start"),
                Argument::block("end_index", &[Argument::integer("end"), INDEX_UNIT]).optional(),
            ],
        )
        .optional(),
    ],
    ..Command::DEFAULT
};

fn bitpos(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, wanted) = (args.word(), args.integer());
    args.check()?;
    let wanted = match wanted {
        0 => false,
        1 => true,
        _ => return Err(CommandError::text("ERR The bit argument must be 1 or 0.")),
    };
    let part = Part::read(args)?;
    // A missing key is endless zeros.
    let Some(value) = context.string(key)? else {
        reply.integer(if wanted { -1 } else { 0 });
        return Ok(());
    };
    let range = part.range(value.len());
    context.weigh(bytes_of(&range).len() / BYTES_PER_VISIT)?;
    let mut buffer = itoa::Buffer::new();
    let mut pieces = value.pieces(&mut buffer, bytes_of(&range));
    let found = pieces.find_map(|(at, piece)| {
        let found = bits::find_bit(piece, range_from(&range, at), wanted)?;
        Some(8 * at as u64 + found)
    });
    let found = match found {
        Some(found) => found as i64,
        // Without an end the string goes on with zeros.
        None if !wanted && part.end.is_none() && !range.is_empty() => range.end as i64,
        None => -1,
    };
    reply.integer(found);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn bitcount_counts_ones() {
        check(
            "
            > BITCOUNT k
            :0
            > SET k foobar
            +OK
            > BITCOUNT k
            :26
            > BITCOUNT k 0 0
            :4
            > BITCOUNT k 1 1 BYTE
            :6
            > BITCOUNT k 4
            :7
            > BITCOUNT k -2
            :7
            > BITCOUNT k 6
            :0
            > BITCOUNT k 5 30 BIT
            :17
            > BITCOUNT k 0 -5 bit
            :25
            > BITCOUNT k -2 -1
            :7
            > BITCOUNT k 5 1
            :0
            > BITCOUNT k -1 -5
            :0
            > BITCOUNT k -9223372036854775808 9223372036854775807 BIT
            :26
            > SET n 12
            +OK
            > BITCOUNT n
            :6
            ",
        );
    }

    #[test]
    fn bitcount_refuses_what_makes_no_sense() {
        check(
            "
            > BITCOUNT missing x
            -ERR value is not an integer or out of range
            > BITCOUNT missing 0 1 FOO
            -ERR syntax error
            > RPUSH list a
            :1
            > BITCOUNT list 0 x
            -ERR value is not an integer or out of range
            > BITCOUNT list 0
            -WRONGTYPE Operation against a key holding the wrong kind of value
            > SET k foobar
            +OK
            > BITCOUNT k 0 x
            -ERR value is not an integer or out of range
            > BITCOUNT k 0 x FOO
            -ERR syntax error
            > BITCOUNT k x 0 FOO
            -ERR value is not an integer or out of range
            > BITCOUNT k 0 1 FOO
            -ERR syntax error
            > BITCOUNT k 0 1 BIT BIT
            -ERR syntax error
            > BITCOUNT
            -ERR wrong number of arguments for 'bitcount' command
            ",
        );
    }

    #[test]
    fn bits_are_found() {
        check(
            "
            > BITPOS missing 0
            :0
            > BITPOS missing 1
            :-1
            > SETBIT k 12 1
            :0
            > BITPOS k 1
            :12
            > BITPOS k 0 1
            :8
            > BITPOS k 1 0 0
            :-1
            > BITPOS k 0 12 12 BIT
            :-1
            > BITPOS k 0 12 13 BIT
            :13
            > BITPOS k 1 -8 -1 BIT
            :12
            > BITFIELD full SET i64 0 -1
            *1 :0
            > BITPOS full 0
            :64
            > BITPOS full 0 3
            :64
            > BITPOS full 0 0 -1
            :-1
            > BITPOS full 0 8
            :-1
            > SET empty ''
            +OK
            > BITPOS empty 0
            :-1
            ",
        );
    }

    #[test]
    fn bitpos_refuses_what_makes_no_sense() {
        check(
            "
            > BITPOS missing 1 x
            -ERR value is not an integer or out of range
            > BITPOS missing 0 0 1 FOO
            -ERR syntax error
            > RPUSH list a
            :1
            > BITPOS list 1 0 x
            -ERR value is not an integer or out of range
            > SET k v
            +OK
            > BITPOS k 2
            -ERR The bit argument must be 1 or 0.
            > BITPOS k x
            -ERR value is not an integer or out of range
            > BITPOS k 0 x 1 FOO
            -ERR value is not an integer or out of range
            > BITPOS k 0 0 x FOO
            -ERR syntax error
            > BITPOS k 0 0 x
            -ERR value is not an integer or out of range
            > BITPOS k 0 0 1 BIT BIT
            -ERR syntax error
            ",
        );
    }
}
