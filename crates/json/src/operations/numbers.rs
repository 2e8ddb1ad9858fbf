//! Arithmetic: exact with integers, which stay integers; doubles otherwise.

use super::{Answer, Refusal, answer_replacements};
use crate::{
    Document, Number,
    packed::{push_double, push_int, push_uint},
    parse,
    path::Path,
};

/// An operation on numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Arithmetic {
    Add,
    Multiply,
    Power,
}

/// The number that a command was given.
pub fn operand(text: &[u8]) -> Result<Number, Refusal> {
    parse(text)?.root().as_number().ok_or(Refusal::BadNumber)
}

/// JSON.NUMINCRBY, NUMMULTBY, NUMPOWBY: the new numbers.
pub fn arithmetic(
    document: &mut Document,
    path: &Path,
    operation: Arithmetic,
    operand: Number,
) -> Result<Answer<Number>, Refusal> {
    let missing = || Refusal::NoSuchNumber(path.text().to_vec());
    answer_replacements(document, path, missing, |value| {
        let Some(number) = value.as_number() else { return Ok(None) };
        let number = compute(number, operation, operand)?;
        Ok(Some((of_number(number), number)))
    })
}

/// A document of a number.
pub(super) fn of_number(number: Number) -> Document {
    Document::scalar(|out| match number {
        Number::Int(number) => push_int(out, number),
        Number::Uint(number) => push_uint(out, number),
        Number::Double(number) => push_double(out, number),
    })
}

fn compute(number: Number, operation: Arithmetic, operand: Number) -> Result<Number, Refusal> {
    let wide = |number: Number| match number {
        Number::Int(number) => Some(i128::from(number)),
        Number::Uint(number) => Some(i128::from(number)),
        Number::Double(_) => None,
    };
    if let (Some(a), Some(b)) = (wide(number), wide(operand)) {
        let result = match operation {
            Arithmetic::Add => a.checked_add(b),
            Arithmetic::Multiply => a.checked_mul(b),
            // A fraction is no integer; its nearest double is the answer.
            Arithmetic::Power if b < 0 => return double((a as f64).powf(b as f64)),
            Arithmetic::Power => match a {
                0 | 1 => Some(if b == 0 { 1 } else { a }),
                -1 => Some(if b % 2 == 0 { 1 } else { -1 }),
                _ => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
            },
        };
        let result = result.ok_or(Refusal::IntegerOutOfRange)?;
        return match (i64::try_from(result), u64::try_from(result)) {
            (Ok(number), _) => Ok(Number::Int(number)),
            (_, Ok(number)) => Ok(Number::Uint(number)),
            _ => Err(Refusal::IntegerOutOfRange),
        };
    }
    let (a, b) = (number.as_f64(), operand.as_f64());
    double(match operation {
        Arithmetic::Add => a + b,
        Arithmetic::Multiply => a * b,
        Arithmetic::Power => a.powf(b),
    })
}

fn double(number: f64) -> Result<Number, Refusal> {
    if number.is_finite() { Ok(Number::Double(number)) } else { Err(Refusal::NotANumber) }
}
