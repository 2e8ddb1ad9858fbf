//! The library `cmsgpack`: MessagePack (msgpack.org, without the `bin` and `ext` types), with the choices of
//! the library of that name. Whole numbers are integers, fractions are floats if that loses nothing, a table
//! with the keys 1 to n is an array.

use std::ffi::c_int;

use crate::stack::{Kind, NativeFn, NativeResult, Raised, Stack, TABLE_ROOM_MAX, native};

/// Deepest table that is packed; deeper ones become nil.
const DEPTH_MAX: usize = 16;

/// Deepest nesting that is unpacked.
const UNPACKED_DEPTH_MAX: usize = 1_000;

/// Bytes that an element or a field takes in a table that is made with room for it, at most.
const FIELD_BYTES: usize = 80;

/// Makes the table and leaves it on the stack.
pub(crate) fn push_table(stack: Stack<'_>) {
    let functions: [(&str, NativeFn); 4] = [
        ("pack", native!(pack)),
        ("unpack", native!(unpack)),
        ("unpack_one", native!(unpack_one)),
        ("unpack_limit", native!(unpack_limit)),
    ];
    let texts = [
        ("_NAME", "cmsgpack"),
        ("_VERSION", "lua-cmsgpack 0.4.0"),
        ("_COPYRIGHT", "Copyright (C) 2012, Salvatore Sanfilippo"),
        ("_DESCRIPTION", "MessagePack C implementation for Lua"),
    ];
    stack.push_table(0, functions.len() + texts.len());
    for (name, function) in functions {
        stack.push_native(function);
        stack.raw_set_field(-2, name);
    }
    for (name, text) in texts {
        stack.push_bytes(text);
        stack.raw_set_field(-2, name);
    }
}

fn pack(stack: Stack<'_>) -> NativeResult {
    let values = stack.top();
    if values == 0 {
        return Err(stack.raise_argument(0, "MessagePack pack needs input."));
    }
    let stack = stack.room_or_raise(1, "in function mp_pack")?;
    let mut packed = Vec::new();
    for at in 1..=values {
        stack.push_copy(at);
        write(stack, &mut packed, 0)?;
    }
    stack.push_result(packed)?;
    Ok(1)
}

/// Packs the value on top and pops it.
fn write(stack: Stack<'_>, packed: &mut Vec<u8>, depth: usize) -> Result<(), Raised> {
    stack.step(packed.len())?;
    match stack.kind(-1) {
        Kind::String => {
            let text = stack.text(-1);
            stack.has_memory(packed.len().saturating_add(text.len()))?;
            write_head(packed, text.len(), (0xa0, 32), &[0xd9, 0xda, 0xdb]);
            packed.extend_from_slice(text);
        }
        Kind::Boolean => packed.push(if stack.boolean(-1) { 0xc3 } else { 0xc2 }),
        Kind::Number => write_number(packed, stack.number(-1)),
        Kind::Table if depth < DEPTH_MAX => {
            let room = stack.room_or_raise(4, "in function mp_pack")?;
            write_table(room, packed, depth + 1)?;
        }
        _ => packed.push(0xc0),
    }
    stack.pop(1);
    Ok(())
}

/// A type with a length: in the byte of the type if it is below `small.1`, or else behind it.
fn write_head(packed: &mut Vec<u8>, length: usize, small: (u8, usize), kinds: &[u8]) {
    let wide = &kinds[kinds.len() - 2..];
    if length < small.1 {
        packed.push(small.0 | length as u8);
    } else if kinds.len() == 3 && length <= 0xff {
        packed.extend_from_slice(&[kinds[0], length as u8]);
    } else if length <= 0xffff {
        packed.push(wide[0]);
        packed.extend_from_slice(&(length as u16).to_be_bytes());
    } else {
        packed.push(wide[1]);
        packed.extend_from_slice(&(length as u32).to_be_bytes());
    }
}

fn write_number(packed: &mut Vec<u8>, value: f64) {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&value) && value.fract() == 0.0 {
        return write_integer(packed, value as i64);
    }
    let float = value as f32;
    if f64::from(float) == value {
        packed.push(0xca);
        packed.extend_from_slice(&float.to_be_bytes());
    } else {
        packed.push(0xcb);
        packed.extend_from_slice(&value.to_be_bytes());
    }
}

fn write_integer(packed: &mut Vec<u8>, value: i64) {
    let (kind, bytes) = match value {
        -32..=0x7f => return packed.push(value as u8),
        0x80..=0xff => (0xcc, 1),
        0x100..=0xffff => (0xcd, 2),
        0x1_0000..=0xffff_ffff => (0xce, 4),
        0x1_0000_0000.. => (0xcf, 8),
        -0x80..=-33 => (0xd0, 1),
        -0x8000..=-0x81 => (0xd1, 2),
        -0x8000_0000..=-0x8001 => (0xd2, 4),
        ..=-0x8000_0001 => (0xd3, 8),
    };
    packed.push(kind);
    packed.extend_from_slice(&value.to_be_bytes()[8 - bytes..]);
}

fn write_table(stack: Stack<'_>, packed: &mut Vec<u8>, depth: usize) -> Result<(), Raised> {
    match array_length(stack) {
        Some(length) => {
            write_head(packed, length, (0x90, 16), &[0xdc, 0xdd]);
            for index in 1..=length {
                stack.raw_get_index(-1, index as c_int);
                write(stack, packed, depth)?;
            }
        }
        None => {
            let mut length = 0;
            stack.push_nil();
            while stack.next(-2) {
                stack.pop(1);
                length += 1;
            }
            write_head(packed, length, (0x80, 16), &[0xde, 0xdf]);
            stack.push_nil();
            while stack.next(-2) {
                stack.push_copy(-2);
                write(stack, packed, depth)?;
                write(stack, packed, depth)?;
            }
        }
    }
    Ok(())
}

/// How many elements the table on top has, if its keys are 1 to that.
fn array_length(stack: Stack<'_>) -> Option<usize> {
    let (mut largest, mut count) = (0, 0);
    stack.push_nil();
    while stack.next(-2) {
        stack.pop(1);
        let key = stack.number(-1);
        let is_index =
            stack.kind(-1) == Kind::Number && key > 0.0 && key <= f64::from(i32::MAX) && key.fract() == 0.0;
        if !is_index {
            stack.pop(1);
            return None;
        }
        largest = largest.max(key as usize);
        count += 1;
    }
    (largest == count).then_some(count)
}

fn unpack(stack: Stack<'_>) -> NativeResult {
    unpack_values(stack, None)
}

fn unpack_one(stack: Stack<'_>) -> NativeResult {
    let offset = stack.optional_integer(2, 0)? as i32;
    unpack_values(stack, Some((1, offset)))
}

fn unpack_limit(stack: Stack<'_>) -> NativeResult {
    let limit = stack.integer_argument(2)? as i32;
    let offset = stack.optional_integer(3, 0)? as i32;
    unpack_values(stack, Some((limit, offset)))
}

/// Pushes the values of the first argument: all, or a number of them from an offset, behind the next
/// offset, or -1 at the end.
fn unpack_values(mut stack: Stack<'_>, part: Option<(i32, i32)>) -> NativeResult {
    let data = stack.text_argument(1)?;
    stack.set_top(1);
    let (limit, offset) = part.unwrap_or((i32::MAX, 0));
    let length = data.len();
    if offset < 0 || limit < 0 {
        return Err(
            stack.raise(format!("Invalid request to unpack with offset of {offset} and limit of {length}."))
        );
    }
    let Some(rest) = data.get(offset as usize..) else {
        return Err(stack.raise(format!("Start offset {offset} greater than input length {length}.")));
    };
    let mut reader = Reader { rest };
    let mut results = 0;
    while !reader.rest.is_empty() && results < limit {
        // The value, and the offset at the end.
        let message = "too many return values at once; use unpack_one or unpack_limit instead.";
        stack = stack.room_or_raise(2, message)?;
        match reader.push(stack, UNPACKED_DEPTH_MAX) {
            Ok(()) => results += 1,
            Err(Fault::Missing) => return Err(stack.raise("Missing bytes in input.")),
            Err(Fault::Format) => return Err(stack.raise("Bad data format in input.")),
            Err(Fault::Key(what)) => return Err(stack.raise_plain(&format!("table index is {what}"))),
            Err(Fault::Depth) => return Err(stack.raise("stack overflow (too many nested values)")),
            Err(Fault::Refused(raised)) => return Err(raised),
        }
    }
    if part.is_some() {
        let left = reader.rest.len();
        stack.push_number(if left == 0 { -1.0 } else { (length - left) as f64 });
        stack.insert(2);
        results += 1;
    }
    Ok(results)
}

enum Fault {
    Missing,
    Format,
    Key(&'static str),
    Depth,
    /// The script is to end, or has no memory.
    Refused(Raised),
}

struct Reader<'d> {
    rest: &'d [u8],
}

impl<'d> Reader<'d> {
    fn take(&mut self, count: usize) -> Result<&'d [u8], Fault> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Fault::Missing)?;
        self.rest = rest;
        Ok(taken)
    }

    /// An unsigned integer of `bytes` bytes.
    fn number(&mut self, bytes: usize) -> Result<u64, Fault> {
        Ok(self.take(bytes)?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn push(&mut self, stack: Stack<'_>, depth: usize) -> Result<(), Fault> {
        stack.step(0).map_err(Fault::Refused)?;
        let kind = self.take(1)?[0];
        match kind {
            0x00..=0x7f => stack.push_number(f64::from(kind)),
            0x80..=0x8f => self.push_map(stack, usize::from(kind & 0xf), depth)?,
            0x90..=0x9f => self.push_array(stack, usize::from(kind & 0xf), depth)?,
            0xa0..=0xbf => stack.push_bytes(self.take(usize::from(kind & 0x1f))?),
            0xc0 => stack.push_nil(),
            0xc2 | 0xc3 => stack.push_boolean(kind == 0xc3),
            0xca => stack.push_number(f64::from(f32::from_bits(self.number(4)? as u32))),
            0xcb => stack.push_number(f64::from_bits(self.number(8)?)),
            // As the original has it, also of numbers that only fit without a sign.
            0xcc..=0xcf => stack.push_number(self.number(1 << (kind - 0xcc))? as i64 as f64),
            0xd0 => stack.push_number(f64::from(self.number(1)? as i8)),
            0xd1 => stack.push_number(f64::from(self.number(2)? as i16)),
            0xd2 => stack.push_number(f64::from(self.number(4)? as i32)),
            0xd3 => stack.push_number(self.number(8)? as i64 as f64),
            0xd9..=0xdb => {
                let length = self.number(1 << (kind - 0xd9))? as usize;
                stack.push_bytes(self.take(length)?);
            }
            0xdc | 0xdd => {
                let length = self.number(2 << (kind - 0xdc))? as usize;
                self.push_array(stack, length, depth)?;
            }
            0xde | 0xdf => {
                let length = self.number(2 << (kind - 0xde))? as usize;
                self.push_map(stack, length, depth)?;
            }
            0xe0..=0xff => stack.push_number(f64::from(kind as i8)),
            _ => return Err(Fault::Format),
        }
        Ok(())
    }

    /// Room for the values of a table with `count` elements or fields, as many as there can be.
    fn descend<'s>(stack: Stack<'s>, depth: usize, count: usize) -> Result<(Stack<'s>, usize), Fault> {
        let depth = depth.checked_sub(1).ok_or(Fault::Depth)?;
        stack.has_memory(count.min(TABLE_ROOM_MAX) * FIELD_BYTES).map_err(Fault::Refused)?;
        Ok((stack.room(4).ok_or(Fault::Depth)?, depth))
    }

    fn push_array(&mut self, stack: Stack<'_>, length: usize, depth: usize) -> Result<(), Fault> {
        // Every element takes a byte.
        let count = length.min(self.rest.len());
        let (stack, depth) = Self::descend(stack, depth, count)?;
        stack.push_table(count, 0);
        for index in 1..=length {
            self.push(stack, depth)?;
            stack.raw_set_index(-2, c_int::try_from(index).map_err(|_| Fault::Format)?);
        }
        Ok(())
    }

    fn push_map(&mut self, stack: Stack<'_>, length: usize, depth: usize) -> Result<(), Fault> {
        let count = length.min(self.rest.len() / 2);
        let (stack, depth) = Self::descend(stack, depth, count)?;
        stack.push_table(0, count);
        for _ in 0..length {
            self.push(stack, depth)?;
            self.push(stack, depth)?;
            match stack.kind(-2) {
                Kind::Nil => return Err(Fault::Key("nil")),
                Kind::Number if stack.number(-2).is_nan() => return Err(Fault::Key("NaN")),
                _ => stack.raw_set(-3),
            }
        }
        Ok(())
    }
}
