//! Bitwise operations between strings. Shorter strings are continued with zeros.

use dunlin_resp::ReplyBuffer;
use dunlin_structures::bits;

use super::BYTES_PER_VISIT;
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::{ExpiryChange, WriteContext, string_of},
    keyspace::EntryRef,
    notify::EventClass,
    value::{NewText, StringRef, StringRope},
};

pub(super) const BITOP: Command = Command {
    name: "bitop",
    summary: "Stores the result of a bitwise operation between strings under another key.",
    since: "2.6.0",
    group: Group::Bitmap,
    complexity: "O(n) in the length of all strings",
    arity: Arity::AtLeast(4),
    run: Run::Write(bitop),
    flags: Flags::DENY_OOM,
    keys: &[KeySpec::at(2).overwrite().updates(), KeySpec::at(3).through(-1, 1).accesses()],
    args: &[
        Argument::one_of(
            "operation",
            &[
                Argument::word("and", "AND"),
                Argument::word("or", "OR"),
                Argument::word("xor", "XOR"),
                Argument::word("not", "NOT"),
                Argument::word("diff", "DIFF").since("8.2.0"),
                Argument::word("diff1", "DIFF1").since("8.2.0"),
                Argument::word("andor", "ANDOR").since("8.2.0"),
                Argument::word("one", "ONE").since("8.2.0"),
            ],
        ),
        Argument::key("destkey"),
        Argument::key("key").key_spec(1).multiple(),
    ],
    ..Command::DEFAULT
};

/// The operation that combines the first string with the others, bit by bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    /// Not the first, which is the only one.
    Not,
    /// The first and none of the others.
    Diff,
    /// Bits of one of the others and not of the first.
    Diff1,
    /// The first and one of the others.
    AndOr,
    /// Exactly one of all.
    One,
}

impl Operation {
    const NAMES: [(&'static str, Operation); 8] = [
        ("AND", Operation::And),
        ("OR", Operation::Or),
        ("XOR", Operation::Xor),
        ("NOT", Operation::Not),
        ("DIFF", Operation::Diff),
        ("DIFF1", Operation::Diff1),
        ("ANDOR", Operation::AndOr),
        ("ONE", Operation::One),
    ];

    fn read(args: &mut Args<'_>) -> Result<(&'static str, Self), CommandError> {
        let found = Self::NAMES.into_iter().find(|(name, _)| args.token(name));
        found.ok_or(CommandError::Syntax)
    }

    fn check_sources(self, name: &str, sources: usize) -> CommandResult {
        match self {
            Self::Not if sources != 1 => {
                Err(CommandError::text("ERR BITOP NOT must be called with a single source key."))
            }
            Self::Diff | Self::Diff1 | Self::AndOr if sources < 2 => {
                let text = format!("ERR BITOP {name} must be called with at least two source keys.");
                Err(CommandError::owned(text))
            }
            _ => Ok(()),
        }
    }
}

fn bitop(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (name, operation) = Operation::read(args)?;
    let target = args.word();
    let sources = args.take_rest();
    operation.check_sources(name, sources.len())?;
    context.check_entries(sources, |entry| string_of(entry).map(drop))?;
    let bytes = |entries: &[Option<EntryRef<'_>>]| {
        let strings = entries.iter().flatten().filter_map(|entry| string_of(*entry).ok());
        strings.map(|string| string.len() / BYTES_PER_VISIT).sum()
    };
    let mut result = context.compute(sources, bytes, |entries, _| {
        let strings = entries.iter().map(|entry| entry.and_then(|entry| string_of(entry).ok()));
        operation.combine(&strings.collect::<Vec<_>>())
    })?;
    let length = result.len();
    if length == 0 {
        if context.remove(target) {
            context.notify(EventClass::Generic, "del", target);
        }
    } else {
        context.set_string(target, result.take(), ExpiryChange::Clear);
        context.notify(EventClass::String, "set", target);
    }
    reply.count(length);
    Ok(())
}

impl Operation {
    /// Returns the combination of the sources; missing ones count as empty. Long sources are read a chunk at a time,
    /// so that only the sources and the result take memory. O(n) in the length of all sources.
    fn combine(self, sources: &[Option<StringRef<'_>>]) -> NewText {
        let length = sources.iter().flatten().map(|string| string.len()).max().unwrap_or(0);
        let mut result = NewText::with_capacity(length);
        for start in (0..length).step_by(StringRope::CHUNK_BYTES) {
            let mut fold = Fold::new(self);
            for source in sources {
                let mut buffer = itoa::Buffer::new();
                let window = start..start + StringRope::CHUNK_BYTES;
                // The window is one chunk of a rope, as it begins where chunks do.
                let piece = source.and_then(|string| string.pieces(&mut buffer, window).next());
                fold.add(piece.map_or(&[], |(_, piece)| piece));
            }
            result.append(&fold.finish());
        }
        result
    }
}

/// An operation on its way through pieces of the sources that begin at the same place.
struct Fold {
    operation: Operation,
    sources: usize,
    /// The first source, for the operations in which it has a role of its own.
    first: Vec<u8>,
    /// The result so far; for those operations, of the other sources.
    result: Vec<u8>,
    /// For [`Operation::One`]: the bits that more than one source has.
    repeated: Vec<u8>,
}

impl Fold {
    fn new(operation: Operation) -> Self {
        Self { operation, sources: 0, first: Vec::new(), result: Vec::new(), repeated: Vec::new() }
    }

    fn add(&mut self, source: &[u8]) {
        self.sources += 1;
        if self.sources == 1 {
            match self.operation {
                Operation::Diff | Operation::Diff1 | Operation::AndOr => self.first.extend_from_slice(source),
                Operation::Not => self.result.extend(source.iter().map(|byte| !byte)),
                Operation::And | Operation::Or | Operation::Xor | Operation::One => {
                    self.result.extend_from_slice(source);
                }
            }
            return;
        }
        let result = &mut self.result;
        result.resize(result.len().max(source.len()), 0);
        match self.operation {
            Operation::And => {
                bits::combine(result, source, |one, other| one & other);
                result[source.len()..].fill(0);
            }
            Operation::Xor => bits::combine(result, source, |one, other| one ^ other),
            Operation::One => {
                self.repeated.resize(result.len(), 0);
                for ((repeated, result), source) in self.repeated.iter_mut().zip(result.iter()).zip(source) {
                    *repeated |= result & source;
                }
                bits::combine(result, source, |one, other| one | other);
            }
            Operation::Or | Operation::Diff | Operation::Diff1 | Operation::AndOr => {
                bits::combine(result, source, |one, other| one | other);
            }
            Operation::Not => unreachable!("NOT has one source"),
        }
    }

    fn finish(mut self) -> Vec<u8> {
        let length = self.result.len().max(self.first.len());
        self.result.resize(length, 0);
        self.first.resize(length, 0);
        match self.operation {
            Operation::Diff => bits::combine(&mut self.result, &self.first, |others, first| first & !others),
            Operation::Diff1 => bits::combine(&mut self.result, &self.first, |others, first| others & !first),
            Operation::AndOr => bits::combine(&mut self.result, &self.first, |others, first| others & first),
            Operation::One => {
                bits::combine(&mut self.result, &self.repeated, |any, repeated| any & !repeated)
            }
            Operation::And | Operation::Or | Operation::Xor | Operation::Not => {}
        }
        self.result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::check;
    use proptest::{collection::vec, prelude::*};

    #[test]
    fn results_are_stored() {
        check(
            "
            > MSET a abc b 5 empty ''
            +OK
            > BITOP AND d a b
            :3
            > BITCOUNT d
            :2
            > BITOP or d a
            :3
            > GET d
            $3 abc
            > BITOP XOR d a a
            :3
            > BITCOUNT d
            :0
            > BITOP NOT d a
            :3
            > BITOP NOT d d
            :3
            > GET d
            $3 abc
            > BITOP DIFF d a b
            :3
            > BITOP OR d b
            :1
            > BITOP AND d missing empty
            :0
            > GET d
            $-1
            ",
        );
    }

    #[test]
    fn bitop_replaces_the_expiry() {
        check(
            "
            > SET a 1 PX 100
            +OK
            > SET d 1 PX 100
            +OK
            > BITOP OR d a
            :1
            @ +100
            > GET d
            $1 1
            ",
        );
    }

    #[test]
    fn bitop_refuses_what_makes_no_sense() {
        check(
            "
            > BITOP FOO d a
            -ERR syntax error
            > BITOP NOT d a b
            -ERR BITOP NOT must be called with a single source key.
            > BITOP diff1 d a
            -ERR BITOP DIFF1 must be called with at least two source keys.
            > BITOP AND d
            -ERR wrong number of arguments for 'bitop' command
            ",
        );
    }

    fn naive(operation: Operation, sources: &[bool]) -> bool {
        let (first, others) = (sources[0], &sources[1..]);
        let any_other = others.contains(&true);
        match operation {
            Operation::And => sources.iter().all(|bit| *bit),
            Operation::Or => first || any_other,
            Operation::Xor => sources.iter().filter(|bit| **bit).count() % 2 == 1,
            Operation::Not => !first,
            Operation::Diff => first && !any_other,
            Operation::Diff1 => any_other && !first,
            Operation::AndOr => first && any_other,
            Operation::One => sources.iter().filter(|bit| **bit).count() == 1,
        }
    }

    proptest! {
        #[test]
        fn operations_work_bit_by_bit(sources in vec(vec(any::<u8>(), 0..20), 2..6)) {
            let length = sources.iter().map(Vec::len).max().unwrap();
            for (name, operation) in Operation::NAMES {
                let sources = if operation == Operation::Not { &sources[..1] } else { &sources[..] };
                let length = if operation == Operation::Not { sources[0].len() } else { length };
                let strings: Vec<_> = sources.iter().map(|source| Some(StringRef::Inline(source))).collect();
                let result = match operation.combine(&strings) {
                    NewText::Flat(text) => text,
                    NewText::Rope(rope) => rope.to_vec(),
                };
                prop_assert_eq!(result.len(), length);
                for offset in 0..length as u64 * 8 {
                    let source_bits: Vec<bool> =
                        sources.iter().map(|source| bits::bit(source, offset)).collect();
                    prop_assert_eq!(bits::bit(&result, offset), naive(operation, &source_bits), "{}", name);
                }
            }
        }
    }
}
