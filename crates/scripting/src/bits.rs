//! The library `bit`: operations on 32-bit integers, as the BitOp library of Mike Pall defines them.

use std::ffi::c_int;

use crate::stack::{NativeFn, NativeResult, Raised, Stack, native};

/// Makes the table and leaves it on the stack.
pub(crate) fn push_table(stack: Stack<'_>) {
    let functions: [(&str, NativeFn); 12] = [
        ("tobit", native!(to_bit)),
        ("bnot", native!(not)),
        ("band", native!(and)),
        ("bor", native!(or)),
        ("bxor", native!(xor)),
        ("lshift", native!(shift_left)),
        ("rshift", native!(shift_right)),
        ("arshift", native!(shift_arithmetic)),
        ("rol", native!(rotate_left)),
        ("ror", native!(rotate_right)),
        ("bswap", native!(swap_bytes)),
        ("tohex", native!(to_hex)),
    ];
    stack.push_table(0, functions.len());
    for (name, function) in functions {
        stack.push_native(function);
        stack.raw_set_field(-2, name);
    }
}

/// The argument modulo 2^32, rounded to the nearest integer: the low bits of the sum with 2^52 + 2^51.
fn argument(stack: Stack<'_>, at: c_int) -> Result<u32, Raised> {
    const MAGIC: f64 = 6_755_399_441_055_744.0;
    Ok((stack.number_argument(at)? + MAGIC).to_bits() as u32)
}

fn answer(stack: Stack<'_>, value: u32) -> NativeResult {
    stack.push_number(f64::from(value as i32));
    Ok(1)
}

fn fold(stack: Stack<'_>, join: fn(u32, u32) -> u32) -> NativeResult {
    let mut value = argument(stack, 1)?;
    for at in 2..=stack.top() {
        value = join(value, argument(stack, at)?);
    }
    answer(stack, value)
}

fn shift(stack: Stack<'_>, shift: fn(u32, u32) -> u32) -> NativeResult {
    let (value, places) = (argument(stack, 1)?, argument(stack, 2)?);
    answer(stack, shift(value, places & 31))
}

fn to_bit(stack: Stack<'_>) -> NativeResult {
    answer(stack, argument(stack, 1)?)
}

fn not(stack: Stack<'_>) -> NativeResult {
    answer(stack, !argument(stack, 1)?)
}

fn and(stack: Stack<'_>) -> NativeResult {
    fold(stack, |one, other| one & other)
}

fn or(stack: Stack<'_>) -> NativeResult {
    fold(stack, |one, other| one | other)
}

fn xor(stack: Stack<'_>) -> NativeResult {
    fold(stack, |one, other| one ^ other)
}

fn shift_left(stack: Stack<'_>) -> NativeResult {
    shift(stack, |value, places| value << places)
}

fn shift_right(stack: Stack<'_>) -> NativeResult {
    shift(stack, |value, places| value >> places)
}

fn shift_arithmetic(stack: Stack<'_>) -> NativeResult {
    shift(stack, |value, places| (value as i32 >> places) as u32)
}

fn rotate_left(stack: Stack<'_>) -> NativeResult {
    shift(stack, u32::rotate_left)
}

fn rotate_right(stack: Stack<'_>) -> NativeResult {
    shift(stack, u32::rotate_right)
}

fn swap_bytes(stack: Stack<'_>) -> NativeResult {
    answer(stack, argument(stack, 1)?.swap_bytes())
}

/// The second argument is how many digits, negative for upper case.
fn to_hex(stack: Stack<'_>) -> NativeResult {
    let value = argument(stack, 1)?;
    let digits = if stack.top() < 2 { 8 } else { argument(stack, 2)? as i32 };
    let text = if digits < 0 { format!("{value:08X}") } else { format!("{value:08x}") };
    let shown = digits.unsigned_abs().min(8) as usize;
    stack.push_bytes(&text[8 - shown..]);
    Ok(1)
}
