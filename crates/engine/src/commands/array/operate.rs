//! AROP: a result computed from a range of an array.

use dunlin_resp::ReplyBuffer;
use dunlin_structures::Element;

use super::{reply_index, take_range, visits};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    context::ReadContext,
    value::{Array, ExtendedFloat},
};

/// Elements that are visited in the time that one is computed with, if it is no integer.
const VISITS_PER_NUMBER: usize = 8;

pub(super) const AROP: Command = Command {
    name: "arop",
    summary: "Computes one result of the values of an array from one index to another.",
    since: "8.8.0",
    group: Group::Array,
    complexity: "O(log n + m) for m values",
    arity: Arity::AtLeast(5),
    run: Run::Read(arop),
    flags: Flags::NONE,
    keys: &[KeySpec::at(1).accesses()],
    args: &[
        Argument::key("key"),
        Argument::integer("start"),
        Argument::integer("end"),
        Argument::one_of(
            "operation",
            &[
                Argument::word("sum", "SUM"),
                Argument::word("min", "MIN"),
                Argument::word("max", "MAX"),
                Argument::word("and", "AND"),
                Argument::word("or", "OR"),
                Argument::word("xor", "XOR"),
                Argument::string("value").after("MATCH"),
                Argument::word("used", "USED"),
            ],
        ),
    ],
    ..Command::DEFAULT
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation<'a> {
    Sum,
    Min,
    Max,
    And,
    Or,
    Xor,
    Match(&'a [u8]),
    Used,
}

impl<'a> Operation<'a> {
    fn parse(args: &mut Args<'a>) -> Result<Self, CommandError> {
        let words: [(&str, Self); 7] = [
            ("SUM", Self::Sum),
            ("MIN", Self::Min),
            ("MAX", Self::Max),
            ("AND", Self::And),
            ("OR", Self::Or),
            ("XOR", Self::Xor),
            ("USED", Self::Used),
        ];
        if args.token("MATCH") {
            let value = if args.remaining() == 1 { args.optional() } else { None };
            let missing = CommandError::text("ERR MATCH requires a value argument");
            return value.map(Self::Match).ok_or(missing);
        }
        let found = words.into_iter().find(|(word, _)| args.token(word));
        let (_, operation) = found.ok_or(CommandError::text("ERR unknown operation"))?;
        if !args.is_empty() {
            return Err(CommandError::WrongArity("arop".to_owned()));
        }
        Ok(operation)
    }
}

/// A number of the precision that Redis computes with.
#[derive(Clone, Copy)]
enum Number {
    Integer(i64),
    Float(ExtendedFloat),
}

impl Number {
    /// The number that a value is; `None` of other texts, and of infinity.
    fn of(value: Element<'_>) -> Option<Self> {
        match value {
            Element::Integer(integer) => Some(Self::Integer(integer)),
            Element::String(text) => {
                let may_be =
                    text.first().is_some_and(|first| matches!(first, b'0'..=b'9' | b'+' | b'-' | b'.'));
                let float = if may_be { ExtendedFloat::parse(text)? } else { return None };
                float.is_finite().then_some(Self::Float(float))
            }
        }
    }

    fn extended(self) -> ExtendedFloat {
        match self {
            Self::Integer(integer) => ExtendedFloat::from(integer),
            Self::Float(float) => float,
        }
    }

    /// The integer without what is behind the point, if it has 64 bits.
    fn truncated(self) -> Option<i64> {
        match self {
            Self::Integer(integer) => Some(integer),
            Self::Float(float) => float.truncated(),
        }
    }

    fn is_below(self, other: Self) -> bool {
        match (self, other) {
            (Self::Integer(one), Self::Integer(other)) => one < other,
            _ => self.extended().is_below(other.extended()),
        }
    }

    fn plus(self, other: Self) -> Self {
        if let (Self::Integer(one), Self::Integer(other)) = (self, other)
            && let Some(sum) = one.checked_add(other)
        {
            return Self::Integer(sum);
        }
        Self::Float(self.extended() + other.extended())
    }
}

fn arop(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let (low, high, _) = take_range(args)?;
    let operation = Operation::parse(args)?;
    let array = context.collection::<Array>(key)?;
    let count = array.as_deref().map_or(0, |array| visits(array, low, high));
    let is_counted = matches!(operation, Operation::Match(_) | Operation::Used);
    context.weigh(if is_counted { count } else { count.saturating_mul(VISITS_PER_NUMBER) })?;
    let values = || array.iter().flat_map(|array| array.range(low, high, false)).map(|(_, value)| value);
    let numbers = || values().filter_map(Number::of);
    let integers = || numbers().filter_map(Number::truncated);
    let number = match operation {
        Operation::Used => {
            reply_index(reply, values().count() as u64);
            return Ok(());
        }
        Operation::Match(text) => {
            reply_index(reply, values().filter(|value| value.eq_bytes(text)).count() as u64);
            return Ok(());
        }
        Operation::And => return reply_integer(reply, integers().reduce(|one, other| one & other)),
        Operation::Or => return reply_integer(reply, integers().reduce(|one, other| one | other)),
        Operation::Xor => return reply_integer(reply, integers().reduce(|one, other| one ^ other)),
        Operation::Sum => numbers().reduce(Number::plus),
        Operation::Min => numbers().reduce(|least, other| if other.is_below(least) { other } else { least }),
        Operation::Max => numbers().reduce(|most, other| if most.is_below(other) { other } else { most }),
    };
    match number.map(|number| number.extended().to_general_text()) {
        Some(text) => reply.bulk(text.as_bytes()),
        None => reply.null(),
    }
    Ok(())
}

fn reply_integer(reply: &mut ReplyBuffer, integer: Option<i64>) -> CommandResult {
    match integer {
        Some(integer) => reply.integer(integer),
        None => reply.null(),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn arop_computes_one_result() {
        check(
            "
            > ARMSET a 0 10 1 20.5 2 -3 3 text 4 30.0 9 10
            :6
            > AROP a 0 9 SUM
            $4 67.5
            > AROP a 9 0 min
            $2 -3
            > AROP a 0 9 MAX
            $2 30
            > AROP a 0 9 MATCH 10
            :2
            > AROP a 0 9 USED
            :6
            > AROP a 3 3 SUM
            $-1
            3> AROP a 3 3 AND
            _
            > ARMSET f 0 7.9 1 3.2 2 1.8 3 1e30 4 inf
            :5
            > AROP f 0 4 AND
            :1
            > AROP f 0 4 OR
            :7
            > AROP f 0 4 XOR
            :5
            > AROP f 0 3 SUM
            $5 1e+30
            > ARMSET g 0 9223372036854775807 1 9223372036854775807 2 0.1 3 0.2
            :4
            > AROP g 0 1 SUM
            $22 1.8446744073709552e+19
            > AROP g 2 3 SUM
            $3 0.3
            > AROP g 0 3 MAX
            $22 9.2233720368547758e+18
            > AROP missing 0 1 SUM
            $-1
            > AROP missing 0 1 USED
            :0
            > AROP a 0 9 AVG
            -ERR unknown operation
            > AROP a 0 9 MATCH
            -ERR MATCH requires a value argument
            > AROP a 0 9 SUM 1
            -ERR wrong number of arguments for 'arop' command
            > AROP a 0 x SUM
            -ERR invalid array index
            ",
        );
    }
}
