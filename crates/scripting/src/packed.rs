//! The library `struct`: binary layouts by format strings, as Roberto Ierusalimschy's library defines them.
//!
//! ```text
//! <  >  !n       byte order, largest alignment (8 without n); blanks are skipped
//! b B h H l L T  signed and unsigned: 1, 2, 8 bytes, size_t       iN IN  of N bytes (4 without N)
//! f d            float, double                                    x      a byte of padding
//! s              ends in NUL                                      cN     N bytes; c0: all, or as many as
//!                                                                        the number unpacked before says
//! ```

use crate::{
    budget::STEP_BYTES,
    stack::{NativeFn, NativeResult, Raised, Stack, native},
};

/// Largest integer that a format may ask for, in bytes.
const INTEGER_BYTES_MAX: usize = 32;
/// Alignment of `!` without a number.
const ALIGN_MAX: usize = 8;
/// Longest string that `pack` makes: padding by `c` and `!` could ask for anything.
const PACKED_BYTES_MAX: usize = 512 << 20;

/// Makes the table and leaves it on the stack.
pub(crate) fn push_table(stack: Stack<'_>) {
    let functions: [(&str, NativeFn); 3] =
        [("pack", native!(pack)), ("unpack", native!(unpack)), ("size", native!(size))];
    stack.push_table(0, functions.len());
    for (name, function) in functions {
        stack.push_native(function);
        stack.raw_set_field(-2, name);
    }
}

/// The next item of a format.
struct Item {
    option: u8,
    /// Bytes that it takes; 0 if that is not known from the format.
    bytes: usize,
}

struct Format<'s> {
    stack: Stack<'s>,
    rest: &'s [u8],
    big_endian: bool,
    align: usize,
}

impl<'s> Format<'s> {
    /// The first argument, up to its first NUL.
    fn argument(stack: Stack<'s>) -> Result<Self, Raised> {
        let text = stack.text_argument(1)?;
        let rest = text.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(Self { stack, rest, big_endian: cfg!(target_endian = "big"), align: 1 })
    }

    fn next(&mut self) -> Result<Option<Item>, Raised> {
        let Some((option, rest)) = self.rest.split_first() else { return Ok(None) };
        self.rest = rest;
        let bytes = match option {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'l' | b'L' | b'T' | b'd' => 8,
            b'f' => 4,
            b'c' => self.number(1)?,
            b'i' | b'I' => {
                let bytes = self.number(4)?;
                if bytes > INTEGER_BYTES_MAX {
                    return Err(self.stack.raise(format!(
                        "integral size {bytes} is larger than limit of {INTEGER_BYTES_MAX}"
                    )));
                }
                bytes
            }
            _ => 0,
        };
        Ok(Some(Item { option: *option, bytes }))
    }

    fn number(&mut self, default: usize) -> Result<usize, Raised> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.rest.split_at(digits);
        self.rest = rest;
        if digits.is_empty() {
            return Ok(default);
        }
        let value = digits
            .iter()
            .try_fold(0_i32, |value, digit| value.checked_mul(10)?.checked_add(i32::from(digit - b'0')));
        value.map(|value| value as usize).ok_or_else(|| self.stack.raise("integral size overflow"))
    }

    /// Bytes of padding in front of an item that would begin at `at`.
    fn padding(&self, at: usize, item: &Item) -> usize {
        if item.bytes == 0 || item.option == b'c' {
            return 0;
        }
        let align = item.bytes.min(self.align);
        // As the original has it, also for sizes that are no power of two.
        (align.wrapping_sub(at & (align - 1))) & (align - 1)
    }

    fn control(&mut self, option: u8) -> Result<(), Raised> {
        match option {
            b' ' => {}
            b'>' => self.big_endian = true,
            b'<' => self.big_endian = false,
            b'!' => {
                let align = self.number(ALIGN_MAX)?;
                if !align.is_power_of_two() {
                    return Err(self.stack.raise(format!("alignment {align} is not a power of 2")));
                }
                self.align = align;
            }
            other => {
                let message = format!("invalid format option '{}'", char::from(other));
                return Err(self.stack.raise_argument(1, &message));
            }
        }
        Ok(())
    }
}

fn pack(stack: Stack<'_>) -> NativeResult {
    let mut format = Format::argument(stack)?;
    let mut packed: Vec<u8> = Vec::new();
    let mut argument = 1;
    // Behind the last argument is nil, not nothing: complaints say so.
    stack.push_nil();
    while let Some(item) = format.next()? {
        packed.resize(packed.len() + format.padding(packed.len(), &item), 0);
        match item.option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                argument += 1;
                let value = stack.number_argument(argument)?;
                // A number that no integer can be gets the value that the processors which Redis runs on
                // give it.
                let value = match value {
                    value if value < 0.0 => value as i64 as u64,
                    value if value.is_nan() => 1 << 63,
                    value if value >= 18_446_744_073_709_551_616.0 => 0,
                    value => value as u64,
                };
                let mut bytes = [0; INTEGER_BYTES_MAX];
                bytes[..8].copy_from_slice(&value.to_le_bytes());
                push_ordered(&mut packed, &mut bytes[..item.bytes], format.big_endian);
            }
            b'x' => packed.push(0),
            b'f' => {
                argument += 1;
                let value = stack.number_argument(argument)? as f32;
                push_ordered(&mut packed, &mut value.to_le_bytes(), format.big_endian);
            }
            b'd' => {
                argument += 1;
                let value = stack.number_argument(argument)?;
                push_ordered(&mut packed, &mut value.to_le_bytes(), format.big_endian);
            }
            b'c' | b's' => {
                argument += 1;
                let text = stack.text_argument(argument)?;
                let bytes = if item.bytes == 0 { text.len() } else { item.bytes };
                let Some(text) = text.get(..bytes) else {
                    return Err(stack.raise_argument(argument + 1, "string too short"));
                };
                packed.extend_from_slice(text);
                if item.option == b's' {
                    packed.push(0);
                }
            }
            other => format.control(other)?,
        }
        if packed.len() > PACKED_BYTES_MAX {
            return Err(stack.raise("result too large"));
        }
        stack.steps(item.bytes / STEP_BYTES + 1)?;
        stack.has_memory(packed.len())?;
    }
    stack.push_result(packed)?;
    Ok(1)
}

/// Appends bytes that are in little-endian order.
fn push_ordered(packed: &mut Vec<u8>, bytes: &mut [u8], big_endian: bool) {
    if big_endian {
        bytes.reverse();
    }
    packed.extend_from_slice(bytes);
}

fn unpack(mut stack: Stack<'_>) -> NativeResult {
    let mut format = Format::argument(stack)?;
    let data = stack.text_argument(2)?;
    let start = stack.optional_integer(3, 1)?;
    if start <= 0 {
        return Err(stack.raise_argument(3, "offset must be 1 or greater"));
    }
    let arguments = stack;
    let too_short = || arguments.raise_argument(2, "data string too short");
    let mut at = usize::try_from(start - 1).unwrap_or(usize::MAX);
    let mut results = 0;
    while let Some(item) = format.next()? {
        at = at.checked_add(format.padding(at, &item)).ok_or_else(too_short)?;
        let rest = data.get(at..).ok_or_else(too_short)?;
        let mut bytes = item.bytes;
        let field = rest.get(..bytes).ok_or_else(too_short)?;
        // A place for the result, and one for the place behind it.
        stack = stack.room_or_raise(2, "too many results")?;
        stack.step(0)?;
        results += 1;
        match item.option {
            b'b' | b'h' | b'l' | b'i' => {
                let value = integer(field, format.big_endian);
                let mask = u64::MAX.wrapping_shl((bytes * 8).wrapping_sub(1) as u32);
                let value = if value & mask != 0 { value | mask } else { value };
                stack.push_number(value as i64 as f64);
            }
            b'B' | b'H' | b'L' | b'T' | b'I' => stack.push_number(integer(field, format.big_endian) as f64),
            b'f' => {
                let value = integer(field, format.big_endian) as u32;
                stack.push_number(f64::from(f32::from_bits(value)));
            }
            b'd' => stack.push_number(f64::from_bits(integer(field, format.big_endian))),
            b'c' => {
                if bytes == 0 {
                    if results == 1 || !stack.is_numeric(-1) {
                        return Err(stack.raise("format 'c0' needs a previous size"));
                    }
                    bytes = stack.number(-1) as usize;
                    stack.pop(1);
                    results -= 1;
                }
                stack.push_bytes(rest.get(..bytes).ok_or_else(too_short)?);
            }
            b's' => {
                let Some(end) = rest.iter().position(|byte| *byte == 0) else {
                    return Err(stack.raise("unfinished string in data"));
                };
                stack.push_bytes(&rest[..end]);
                bytes = end + 1;
            }
            b'x' => results -= 1,
            other => {
                results -= 1;
                format.control(other)?;
            }
        }
        at += bytes;
    }
    stack.push_number(at as f64 + 1.0);
    Ok(results + 1)
}

/// Joins the bytes of an integer; those beyond eight are lost.
fn integer(field: &[u8], big_endian: bool) -> u64 {
    let join = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    if big_endian { field.iter().fold(0, join) } else { field.iter().rev().fold(0, join) }
}

fn size(stack: Stack<'_>) -> NativeResult {
    let mut format = Format::argument(stack)?;
    let mut at: usize = 0;
    while let Some(item) = format.next()? {
        match (item.option, item.bytes) {
            (b's', _) => return Err(stack.raise_argument(1, "option 's' has no fixed size")),
            (b'c', 0) => return Err(stack.raise_argument(1, "option 'c0' has no fixed size")),
            (option, _) if !option.is_ascii_alphanumeric() => format.control(option)?,
            _ => {}
        }
        at = at.saturating_add(format.padding(at, &item)).saturating_add(item.bytes);
    }
    stack.push_number(at as f64);
    Ok(1)
}
