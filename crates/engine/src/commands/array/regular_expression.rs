//! POSIX extended regular expressions of bytes, for ARGREP's RE.
//!
//! An expression is translated into one of the crate `regex`, whose matching takes time linear in the text whatever the expression, and no
//! more memory than asked for. Differences from Redis's matcher (TRE) are in decision 0096.
//!
//! ```text
//! [a\]-z[:alpha:]]     [\x61\x5c\x5d-\x7a[:alpha:]]     in brackets a backslash stands for itself
//! \< \> \w \W \s \S \d \D \b \B \t \n \r \f \a \e \x    as they are; any other escaped byte stands for itself
//! \1 … \9                                               refused
//! ```

use std::fmt::Write;

use regex::bytes::{Regex, RegexBuilder};

use crate::command::CommandError;

/// Bytes of the longest expression.
const PATTERN_BYTES_MAX: usize = 2048;
/// Bytes that all compiled expressions of a command take together, about.
const COMPILED_BYTES_MAX: usize = 16 << 20;
/// Bytes that a compiled expression may take, however many there are: one of [`PATTERN_BYTES_MAX`] letters takes less.
const COMPILED_BYTES_MIN: usize = 512 << 10;
/// Bytes of an expression's cache while it matches.
const CACHE_BYTES_MAX: usize = 256 << 10;

/// The classes of characters that POSIX names.
const CLASSES: [&str; 12] = [
    "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper",
    "xdigit",
];

/// Refuses an expression that is too long.
pub(super) fn check_length(pattern: &[u8]) -> Result<(), CommandError> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(CommandError::text("ERR regular expression is too long, maximum is 2048 bytes"));
    }
    Ok(())
}

/// Elements that could be visited in the time that compiling takes, about.
pub(super) fn compile_visits(pattern: &[u8]) -> usize {
    let repeats = if pattern.contains(&b'{') { 64 } else { 1 };
    pattern.len() * repeats
}

/// Compiles an expression, one of `count` in a command.
///
/// # Errors
/// If it is empty, breaks a rule of the grammar, refers back to a group, or takes too much memory.
pub(super) fn compile(pattern: &[u8], ignores_case: bool, count: usize) -> Result<Regex, CommandError> {
    if pattern.is_empty() {
        return Err(CommandError::text("ERR regular expression is empty"));
    }
    RegexBuilder::new(&translated(pattern)?)
        .unicode(false)
        .case_insensitive(ignores_case)
        .dot_matches_new_line(true)
        .size_limit((COMPILED_BYTES_MAX / count).max(COMPILED_BYTES_MIN))
        .dfa_size_limit(CACHE_BYTES_MAX)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => invalid("Out of memory"),
            _ => invalid("Invalid regexp"),
        })
}

fn invalid(why: &str) -> CommandError {
    CommandError::owned(format!("ERR invalid regular expression: {why}"))
}

/// Adds a byte that stands for itself.
fn literal(byte: u8, out: &mut String) {
    _ = write!(out, "\\x{byte:02x}");
}

fn translated(pattern: &[u8]) -> Result<String, CommandError> {
    let (mut out, mut rest) = (String::with_capacity(pattern.len() * 2), pattern);
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'[' => rest = bracket(rest, &mut out)?,
            b'\\' => {
                let (&escaped, behind) = rest.split_first().ok_or_else(|| invalid("Trailing backslash"))?;
                rest = behind;
                escape(escaped, &mut out)?;
            }
            b'(' if rest.first() == Some(&b'?') => {
                return Err(invalid("Invalid use of repetition operators"));
            }
            b'^' | b'$' | b'.' | b'|' | b'(' | b')' | b'*' | b'+' | b'?' | b'{' | b'}' | b',' => {
                out.push(char::from(byte));
            }
            _ if byte.is_ascii_alphanumeric() => out.push(char::from(byte)),
            _ => literal(byte, &mut out),
        }
    }
    Ok(out)
}

fn escape(escaped: u8, out: &mut String) -> Result<(), CommandError> {
    match escaped {
        b'1'..=b'9' => {
            return Err(CommandError::text("ERR regular expression backreferences are not supported"));
        }
        b'<' => out.push_str("\\b{start}"),
        b'>' => out.push_str("\\b{end}"),
        b'e' => literal(0x1b, out),
        b'w' | b'W' | b's' | b'S' | b'd' | b'D' | b'b' | b'B' | b't' | b'n' | b'r' | b'f' | b'a' | b'x' => {
            out.push('\\');
            out.push(char::from(escaped));
        }
        _ => literal(escaped, out),
    }
    Ok(())
}

/// Translates a bracket expression whose first byte has been read. Returns the pattern behind it.
fn bracket<'p>(mut rest: &'p [u8], out: &mut String) -> Result<&'p [u8], CommandError> {
    const UNCLOSED: &str = "Missing ']'";
    out.push('[');
    if let Some(behind) = rest.strip_prefix(b"^") {
        out.push('^');
        rest = behind;
    }
    let mut is_first = true;
    loop {
        let (&byte, behind) = rest.split_first().ok_or_else(|| invalid(UNCLOSED))?;
        match (byte, behind.first()) {
            (b']', _) if !is_first => {
                out.push(']');
                return Ok(behind);
            }
            (b'[', Some(b':')) => {
                let end = behind.windows(2).position(|two| two == b":]").filter(|end| *end > 0);
                let name = end.map(|end| &behind[1..end]).ok_or_else(|| invalid(UNCLOSED))?;
                let known = CLASSES.into_iter().find(|known| known.as_bytes() == name);
                let known = known.ok_or_else(|| invalid("Unknown character class name"))?;
                _ = write!(out, "[:{known}:]");
                rest = &behind[name.len() + 3..];
            }
            (b'[', Some(b'.' | b'=')) => return Err(invalid("Unknown collating element")),
            _ => {
                literal(byte, out);
                rest = behind;
                if let [b'-', end, more @ ..] = rest
                    && *end != b']'
                {
                    if *end < byte {
                        return Err(invalid("Invalid character range"));
                    }
                    out.push('-');
                    literal(*end, out);
                    rest = more;
                }
            }
        }
        is_first = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_match_as_posix_has_them() {
        for (pattern, text, matches) in [
            ("^.*[0-9]{3}$", "foo123", true),
            ("^.*[0-9]{3}$", "foo12", false),
            ("^item-(foo|bar)-[0-9]{3}$", "item-foo-123", true),
            ("[]a]", "]", true),
            ("[^]a]", "]a", false),
            ("[\\n]", "\\", true),
            ("[a-]", "-", true),
            ("[[:digit:]x]+", "12x", true),
            ("[&&a]", "&", true),
            ("[[a]", "[", true),
            ("a.b", "a\nb", true),
            ("\\.", "x", false),
            ("\\<word\\>", "a word here", true),
            ("\\<word\\>", "a sword here", false),
            ("a]", "a]", true),
            ("#x y", "#x y", true),
            ("é", "née", true),
            ("[é]", "\u{e9}", true),
        ] {
            let compiled =
                compile(pattern.as_bytes(), false, 1).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert_eq!(compiled.is_match(text.as_bytes()), matches, "{pattern} {text}");
        }
        assert!(compile(b"\xff[\xfe-\xff]", false, 1).unwrap().is_match(b"a\xff\xff"));
        assert!(compile(b"^straSSe$", true, 1).unwrap().is_match(b"STRasse"));
        let longest = [b'a'; PATTERN_BYTES_MAX];
        assert!(compile(&longest, true, 250).unwrap().is_match(&longest));
    }

    #[test]
    fn broken_and_costly_expressions_are_refused() {
        for (pattern, error) in [
            ("", "ERR regular expression is empty"),
            ("(a)\\1", "ERR regular expression backreferences are not supported"),
            ("(", "ERR invalid regular expression: Invalid regexp"),
            ("\\x{1", "ERR invalid regular expression: Invalid regexp"),
            ("a\\", "ERR invalid regular expression: Trailing backslash"),
            ("[a", "ERR invalid regular expression: Missing ']'"),
            ("[[:no:]]", "ERR invalid regular expression: Unknown character class name"),
            ("[b-a]", "ERR invalid regular expression: Invalid character range"),
            ("(?i)a", "ERR invalid regular expression: Invalid use of repetition operators"),
            ("((((a{1,100}){1,100}){1,100}){1,100})", "ERR invalid regular expression: Out of memory"),
        ] {
            let refused = compile(pattern.as_bytes(), false, 1).expect_err(pattern);
            assert_eq!(refused.to_string(), error);
        }
        let nested = "(".repeat(1000) + &")".repeat(1000);
        assert!(compile(nested.as_bytes(), false, 1).is_err());
    }
}
