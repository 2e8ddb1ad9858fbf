//! For how long a command may wait.

use std::num::NonZeroU64;

use crate::{
    command::{Args, CommandError},
    value::ExtendedFloat,
};

/// Reads a timeout in seconds, decimals allowed: the milliseconds, rounded up; `None` for ever.
pub(super) fn parse_seconds(args: &mut Args<'_>, now_ms: u64) -> Result<Option<NonZeroU64>, CommandError> {
    let word = args.word();
    args.check()?;
    let seconds = ExtendedFloat::parse(word)
        .ok_or(CommandError::text("ERR timeout is not a float or out of range"))?
        .to_f64(word.starts_with(b"-"));
    let milliseconds = (seconds * 1000.0).ceil();
    if milliseconds < 0.0 {
        return Err(CommandError::text("ERR timeout is negative"));
    }
    // The moment when it ends must be one that a clock can show.
    if milliseconds >= i64::MAX as f64 || milliseconds as u64 > i64::MAX as u64 - now_ms {
        return Err(CommandError::text("ERR timeout is out of range"));
    }
    Ok(NonZeroU64::new(milliseconds as u64))
}

/// Reads a timeout in milliseconds; `None` for ever.
pub(super) fn parse_milliseconds(
    args: &mut Args<'_>,
    now_ms: u64,
) -> Result<Option<NonZeroU64>, CommandError> {
    let timeout_ms = args.integer_or(CommandError::text("ERR timeout is not an integer or out of range"));
    args.check()?;
    let timeout_ms = u64::try_from(timeout_ms).map_err(|_| CommandError::text("ERR timeout is negative"))?;
    if timeout_ms > i64::MAX as u64 - now_ms {
        return Err(CommandError::text("ERR timeout is out of range"));
    }
    Ok(NonZeroU64::new(timeout_ms))
}
