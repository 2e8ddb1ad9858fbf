//! Commands on strings as arrays of bits. Bit 0 is the top bit of the first byte.

mod combine;
mod count;
mod field;
mod overflow;
mod single;

use dunlin_resp::number::parse_integer;

use crate::command::{Command, CommandError};

/// The rows of the family.
pub(super) const COMMANDS: &[Command] = &[
    count::BITCOUNT,
    field::BITFIELD,
    field::BITFIELD_RO,
    combine::BITOP,
    count::BITPOS,
    single::GETBIT,
    single::SETBIT,
];

const BAD_OFFSET: CommandError = CommandError::text("ERR bit offset is not an integer or out of range");

/// Bytes that are looked through in the time that visiting an element of a collection takes.
const BYTES_PER_VISIT: usize = 1024;

/// Reads the offset of a bit that a string of at most `bytes_max` bytes can have.
fn parse_offset(text: &[u8], bytes_max: usize) -> Result<u64, CommandError> {
    let offset = parse_integer(text).and_then(|offset| u64::try_from(offset).ok());
    checked_offset(offset, bytes_max)
}

/// Reads an offset, which may count in fields (`#3`: behind three fields of `width` bits).
fn parse_field_offset(text: &[u8], width: u32, bytes_max: usize) -> Result<u64, CommandError> {
    let Some(fields) = text.strip_prefix(b"#") else { return parse_offset(text, bytes_max) };
    let fields = parse_integer(fields).and_then(|fields| u64::try_from(fields).ok());
    checked_offset(fields.and_then(|fields| fields.checked_mul(width.into())), bytes_max)
}

fn checked_offset(offset: Option<u64>, bytes_max: usize) -> Result<u64, CommandError> {
    offset.filter(|offset| offset / 8 < bytes_max as u64).ok_or(BAD_OFFSET)
}
