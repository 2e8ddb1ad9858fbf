//! The client's errors: the replies of commands that cannot do as asked.
//!
//! Client libraries match on these texts, so they are the protocol's, to the letter.

use std::borrow::Cow;

use dunlin_structures::glob::TooComplex;

/// How every handler ends.
pub type CommandResult = Result<(), CommandError>;

/// An error of the client's making. Displays as the line behind `-`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandError {
    /// The key holds another type.
    WrongType,
    /// An option that does not exist, or options that exclude each other.
    Syntax,
    /// Not an integer, or not one of 64 bits.
    NotInteger,
    /// Not a floating-point number.
    NotFloat,
    /// A key that must exist does not.
    NoSuchKey,
    /// An index outside the value.
    IndexOutOfRange,
    /// An expiry that is zero, negative or too far away; the command's name.
    InvalidExpire(&'static str),
    /// A result over `proto-max-bulk-len`.
    StringTooLong,
    /// A number of words that the command does not take; its full name (`config|get`).
    WrongArity(String),
    /// Over `maxmemory`.
    OutOfMemory,
    /// A script has been holding the keys for long.
    Busy,
    /// No mistake: the command would hold others up and is to be offloaded ([`crate::Offloaded`]). The
    /// client never hears of it.
    TooLong,
    /// Not the client's mistake: the client of a command that is offloaded has gone, or the server
    /// ends. The error is not sent.
    Abandoned,
    /// Anything else: code and text. The text may quote what the client sent, hence bytes.
    Text(Cow<'static, [u8]>),
}

impl CommandError {
    /// An error with a fixed text, code included.
    pub const fn text(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text.as_bytes()))
    }

    /// An error with a text made for the occasion, code included.
    pub fn owned(text: String) -> Self {
        Self::Text(Cow::Owned(text.into_bytes()))
    }

    /// An error that ends in a word of the client's as it is, up to its first NUL: Redis, too, ends a
    /// quotation there.
    pub fn quoting(text: &str, word: &[u8]) -> Self {
        Self::quoting_within(text, word, "")
    }

    /// Like [`Self::quoting`], with more text behind the word.
    pub fn quoting_within(before: &str, word: &[u8], after: &str) -> Self {
        let word = word.split(|byte| *byte == 0).next().unwrap_or_default();
        let mut text = [before.as_bytes(), word, after.as_bytes()].concat();
        // Line breaks within become spaces on the wire; at the end Redis drops them.
        let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n'));
        text.truncate(end.map_or(0, |last| last + 1));
        Self::Text(Cow::Owned(text))
    }

    /// The whole line, code first.
    pub fn line(&self) -> Cow<'static, [u8]> {
        let text = match self {
            Self::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            Self::Syntax => "ERR syntax error",
            Self::NotInteger => "ERR value is not an integer or out of range",
            Self::NotFloat => "ERR value is not a valid float",
            Self::NoSuchKey => "ERR no such key",
            Self::IndexOutOfRange => "ERR index out of range",
            Self::StringTooLong => "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            Self::Busy => {
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
            }
            Self::TooLong | Self::Abandoned => unreachable!("the client never hears of it"),
            Self::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.",
            Self::InvalidExpire(name) => {
                return Cow::Owned(format!("ERR invalid expire time in '{name}' command").into_bytes());
            }
            Self::WrongArity(name) => {
                return Cow::Owned(
                    format!("ERR wrong number of arguments for '{name}' command").into_bytes(),
                );
            }
            Self::Text(text) => return text.clone(),
        };
        Cow::Borrowed(text.as_bytes())
    }
}

impl std::fmt::Display for CommandError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&String::from_utf8_lossy(&self.line()))
    }
}

impl std::error::Error for CommandError {}

impl From<TooComplex> for CommandError {
    fn from(_: TooComplex) -> Self {
        const _: () = assert!(TooComplex::CHARACTERS_MAX == 1024);
        Self::text("ERR pattern is too complex: more than 1024 characters in parts with '?' or '[...]'")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_error_keeps_bytes_and_ends_at_a_nul() {
        let line = |error: CommandError| error.line().into_owned();
        assert_eq!(line(CommandError::quoting("ERR no ", b"\xffx")), b"ERR no \xffx");
        assert_eq!(line(CommandError::quoting_within("ERR '", b"a\0b", "' is not")), b"ERR 'a' is not");
        assert_eq!(line(CommandError::quoting_within("ERR '", b"\0", "'")), b"ERR ''");
        assert_eq!(line(CommandError::quoting("ERR no ", b"a\nb\r\n")), b"ERR no a\nb");
    }
}
