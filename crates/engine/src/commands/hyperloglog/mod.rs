//! Commands on strings as HyperLogLogs: estimates of how many different elements there were. The
//! bytes are Redis's; `dunlin_structures::hyperloglog` draws them.

mod debug;
mod merge;
mod single;

use dunlin_structures::{Corrupt, hyperloglog::HyperLogLog};

use crate::{
    command::{Command, CommandError},
    value::StringRef,
};

/// The rows of the family.
pub(super) const COMMANDS: &[Command] = &[single::PFADD, single::PFCOUNT, debug::PFDEBUG, merge::PFMERGE];

/// The header is right, what it heads is not.
fn corrupt(_: Corrupt) -> CommandError {
    CommandError::text("INVALIDOBJ Corrupted HLL object detected")
}

/// The HyperLogLog in a string.
fn hyperloglog_of(string: StringRef<'_>) -> Result<HyperLogLog<'_>, CommandError> {
    let bytes = match string {
        // The text of a number is too short.
        StringRef::Integer(_) => &[],
        StringRef::Inline(bytes) => bytes,
        StringRef::Shared(payload) => payload.bytes(),
    };
    HyperLogLog::read(bytes)
        .ok_or(CommandError::text("WRONGTYPE Key is not a valid HyperLogLog string value."))
}
