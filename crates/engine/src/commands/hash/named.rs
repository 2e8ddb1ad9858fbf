//! Fields as newer commands name them: `… FIELDS count field …`.

use dunlin_resp::number::parse_integer;

use crate::command::{Argument, CommandError};

/// The reply of most commands if the count is not that of the fields.
pub(super) const WRONG_COUNT: CommandError =
    CommandError::text("ERR numfields should be greater than 0 and match the provided number of fields");

/// How the fields appear in a command's description.
pub(super) const FIELDS: Argument =
    Argument::block("fields", &[Argument::integer("numfields"), Argument::string("field").multiple()])
        .after("FIELDS");

/// A run of a request's words.
type Words<'a> = &'a [&'a [u8]];

/// The options of a request, and the words behind FIELDS.
pub(super) fn split_options(words: Words<'_>) -> Result<(Words<'_>, Words<'_>), CommandError> {
    let at = words.iter().position(|word| word.eq_ignore_ascii_case(b"FIELDS"));
    let at = at.filter(|at| at + 1 < words.len()).ok_or(WRONG_COUNT)?;
    Ok((&words[..at], &words[at + 1..]))
}

/// The words behind FIELDS, if no option may come before it.
pub(super) fn behind_fields(words: Words<'_>) -> Result<Words<'_>, CommandError> {
    match words {
        [first, rest @ ..] if first.eq_ignore_ascii_case(b"FIELDS") => Ok(rest),
        _ => Err(CommandError::Syntax),
    }
}

/// The words behind the count, which says how often `words_each` of them there are; `mismatch` where
/// it is wrong.
pub(super) fn counted(
    words: Words<'_>,
    words_each: usize,
    mismatch: CommandError,
) -> Result<Words<'_>, CommandError> {
    let (count, fields) = words.split_first().ok_or(CommandError::Syntax)?;
    let count = parse_integer(count).ok_or(CommandError::NotInteger)?;
    let count = usize::try_from(count).ok().filter(|count| *count > 0);
    let named = count.and_then(|count| count.checked_mul(words_each));
    if named == Some(fields.len()) { Ok(fields) } else { Err(mismatch) }
}
