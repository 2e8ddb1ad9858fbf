//! Commands on strings as HyperLogLogs: estimates of how many different elements there were. The
//! bytes are Redis's; `dunlin_structures::hyperloglog` draws them.

mod debug;
mod merge;
mod single;

use dunlin_structures::{
    Corrupt,
    hyperloglog::{DENSE_BYTES, HyperLogLog},
};

use crate::{
    command::{Command, CommandError},
    value::{BLOCK_BYTES_MAX, StringRef},
};

/// The rows of the family.
pub(super) const COMMANDS: &[Command] = &[single::PFADD, single::PFCOUNT, debug::PFDEBUG, merge::PFMERGE];

/// The header is right, the rest is not.
fn corrupt(_: Corrupt) -> CommandError {
    CommandError::text("INVALIDOBJ Corrupted HLL object detected")
}

/// The HyperLogLog in a string.
fn hyperloglog_of(string: StringRef<'_>) -> Result<HyperLogLog<'_>, CommandError> {
    const NONE: CommandError = CommandError::text("WRONGTYPE Key is not a valid HyperLogLog string value.");
    const _: () = assert!(DENSE_BYTES <= BLOCK_BYTES_MAX);
    let bytes = match string {
        // The text of a number is too short.
        StringRef::Integer(_) => &[],
        StringRef::Inline(bytes) => bytes,
        StringRef::Shared(payload) => payload.bytes(),
        // No HyperLogLog is that long: its head decides which error it gets.
        StringRef::Rope(rope) => {
            let head = rope.rope().slices(0..rope.rope().len()).next().unwrap_or_default();
            return Err(HyperLogLog::read(head).map_or(NONE, |_| corrupt(Corrupt("it is too long"))));
        }
    };
    HyperLogLog::read(bytes).ok_or(NONE)
}
