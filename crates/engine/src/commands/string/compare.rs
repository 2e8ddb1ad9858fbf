//! Strings compared with a client's expectation: whole, or by their digest.

use dunlin_resp::ReplyBuffer;
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::{ReadContext, WriteContext, string_of},
    notify::EventClass,
    value::{StringRef, ValueType},
};

/// Bytes that are hashed or compared in the time that visiting an element of a collection takes.
const BYTES_PER_VISIT: usize = 1024;
/// Digits of a digest as clients see it.
const DIGEST_HEX_DIGITS: usize = 16;

/// How a stored string is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    /// `IFEQ`: it is the operand.
    Equal,
    /// `IFNE`: it is not.
    NotEqual,
    /// `IFDEQ`: its digest is the operand.
    DigestEqual,
    /// `IFDNE`: its digest is not.
    DigestNotEqual,
}

impl Comparison {
    const TOKENS: [(&'static str, Comparison); 4] = [
        ("IFEQ", Comparison::Equal),
        ("IFNE", Comparison::NotEqual),
        ("IFDEQ", Comparison::DigestEqual),
        ("IFDNE", Comparison::DigestNotEqual),
    ];

    /// Reads a comparison and its operand if they come next.
    pub(super) fn read<'a>(args: &mut Args<'a>) -> Option<(Self, &'a [u8])> {
        let (_, comparison) = Self::TOKENS.into_iter().find(|(token, _)| args.token_with(token, 1))?;
        Some((comparison, args.word()))
    }

    /// Whether it holds for a stored string. The length of a digest is looked at only here: for a
    /// missing key any operand will do.
    pub(super) fn holds(self, value: StringRef<'_>, operand: &[u8]) -> Result<bool, CommandError> {
        Ok(match self {
            Self::Equal => value.is_text(operand),
            Self::NotEqual => !value.is_text(operand),
            Self::DigestEqual => has_digest(value, operand)?,
            Self::DigestNotEqual => !has_digest(value, operand)?,
        })
    }

    /// Whether it holds if there is no string.
    pub(super) fn holds_for_missing(self) -> bool {
        matches!(self, Self::NotEqual | Self::DigestNotEqual)
    }
}

fn has_digest(value: StringRef<'_>, operand: &[u8]) -> Result<bool, CommandError> {
    if operand.len() != DIGEST_HEX_DIGITS {
        return Err(CommandError::text("ERR must be exactly 16 hexadecimal characters"));
    }
    Ok(digest(value).eq_ignore_ascii_case(operand))
}

/// The XXH3 hash of 64 bits, in hexadecimal. O(n).
fn digest(value: StringRef<'_>) -> [u8; DIGEST_HEX_DIGITS] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let hash = match value {
        StringRef::Rope(rope) => {
            let mut hasher = Xxh3Default::new();
            rope.rope().slices(0..value.len()).for_each(|slice| hasher.update(slice));
            hasher.digest()
        }
        other => xxh3_64(other.short_text(&mut itoa::Buffer::new()).expect("it is no rope")),
    };
    std::array::from_fn(|at| DIGITS[(hash >> (60 - 4 * at)) as usize & 0xf])
}

pub(super) const DIGEST: Command = Command {
    name: "digest",
    summary: "Returns the XXH3 hash of the string under a key as 16 hexadecimal digits.",
    since: "8.4.0",
    group: Group::String,
    complexity: "O(n) in the length of the string",
    arity: Arity::Exactly(2),
    run: Run::Read(digest_command),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).accesses()],
    args: &[Argument::key("key")],
    ..Command::DEFAULT
};

fn digest_command(
    context: &mut ReadContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    match context.string(args.word())? {
        Some(value) => {
            context.weigh(value.len() / BYTES_PER_VISIT)?;
            reply.bulk(&digest(value));
        }
        None => reply.null(),
    }
    Ok(())
}

pub(super) const DELIFEQ: Command = Command {
    name: "delifeq",
    summary: "Removes a key if it holds the given string.",
    since: "9.0.0",
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    run: Run::Write(delifeq),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).remove().deletes()],
    args: &[Argument::key("key"), Argument::string("value")],
    ..Command::DEFAULT
};

fn delifeq(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, operand) = (args.word(), args.word());
    let holds = match context.string(key)? {
        Some(value) => Comparison::Equal.holds(value, operand)?,
        None => false,
    };
    let removed = holds && context.remove(key);
    if removed {
        context.propagate(&[b"DEL", key]);
        context.notify(EventClass::Generic, "del", key);
    }
    reply.integer(removed.into());
    Ok(())
}

pub(super) const DELEX: Command = Command {
    name: "delex",
    summary: "Removes a key, on a condition about its string or the string's digest if one is given.",
    since: "8.4.0",
    group: Group::String,
    complexity: "O(1); O(n) in the length of the string with a digest",
    arity: Arity::AtLeast(2),
    run: Run::Write(delex),
    flags: Flags::FAST,
    keys: &[KeySpec::at(1).read_write().deletes().varies()],
    args: &[
        Argument::key("key"),
        Argument::one_of(
            "condition",
            &[
                Argument::string("ifeq-value").after("IFEQ"),
                Argument::string("ifne-value").after("IFNE"),
                Argument::string("ifdeq-digest").after("IFDEQ"),
                Argument::string("ifdne-digest").after("IFDNE"),
            ],
        )
        .optional(),
    ],
    ..Command::DEFAULT
};

fn delex(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    if args.is_empty() {
        let removed = context.remove(key);
        if removed {
            context.propagate(&[b"DEL", key]);
        }
        reply.integer(removed.into());
        return Ok(());
    }
    if args.remaining() != 2 {
        return Err(CommandError::WrongArity("delex".to_owned()));
    }
    let Some(entry) = context.find(key) else {
        reply.integer(0);
        return Ok(());
    };
    if entry.value_type() != ValueType::String {
        return Err(CommandError::text("ERR Key should be of string type if conditions are specified"));
    }
    let Some((comparison, operand)) = Comparison::read(args) else {
        return Err(CommandError::text("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"));
    };
    let holds = comparison.holds(string_of(entry)?, operand)?;
    let removed = holds && context.remove(key);
    if removed {
        context.propagate(&[b"DEL", key]);
        context.notify(EventClass::Generic, "del", key);
    }
    reply.integer(removed.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{StringRef, digest};
    use crate::transcript::check;

    #[test]
    fn digests_are_xxh3_with_leading_zeros() {
        // The empty string's value stands in the specification of XXH3; the long one is the example of
        // Redis issue 14496.
        for (text, expected) in [
            ("", "2d06800538d394c2"),
            (
                "v8lf0c11xh8ymlqztfd3eeq16kfn4sspw7fqmnuuq3k3t75em5wdizgcdw7uc26nnf961u2jkfzkjytls2kwlj7626sd",
                "00006c38adf31777",
            ),
        ] {
            assert_eq!(std::str::from_utf8(&digest(StringRef::Inline(text.as_bytes()))), Ok(expected));
        }
    }

    #[test]
    fn digest_reads_strings_and_integers() {
        check(
            "
            > DIGEST k
            $-1
            3> DIGEST k
            _
            > SET k v8lf0c11xh8ymlqztfd3eeq16kfn4sspw7fqmnuuq3k3t75em5wdizgcdw7uc26nnf961u2jkfzkjytls2kwlj7626sd
            +OK
            > DIGEST k
            $16 00006c38adf31777
            > DELEX k IFDNE 00006C38ADF31777
            :0
            > DELEX k IFDEQ 00006C38ADF31777
            :1
            ",
        );
    }

    #[test]
    fn delifeq_and_delex_remove_on_conditions() {
        check(
            "
            > DELIFEQ k v
            :0
            > SET k 12
            +OK
            > DELIFEQ k 1
            :0
            > DELIFEQ k 12
            :1
            > GET k
            $-1
            > SET k v
            +OK
            > DELEX k IFEQ w
            :0
            > DELEX k IFNE v
            :0
            > DELEX k ifne w
            :1
            > DELEX k IFNE w
            :0
            > SET k v
            +OK
            > DELEX k
            :1
            > DELEX k
            :0
            ",
        );
    }

    #[test]
    fn delex_refuses_what_makes_no_sense() {
        check(
            "
            > DELEX k IFEQ
            -ERR wrong number of arguments for 'delex' command
            > DELEX k IFFY v
            :0
            > SET k v
            +OK
            > DELEX k IFFY v
            -ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE
            > DELEX k IFEQ v more
            -ERR wrong number of arguments for 'delex' command
            > DELEX k IFDEQ 123
            -ERR must be exactly 16 hexadecimal characters
            ",
        );
    }
}
