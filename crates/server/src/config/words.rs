//! Lines of a configuration file, split into words and put together again.
//!
//! ```text
//! line   = blank* [ "#" anything | word (blank+ word)* ] blank*
//! word   = plain+ | '"' ( char | escape )* '"' | "'" ( char | "\'" )* "'"
//! escape = "\n" | "\r" | "\t" | "\b" | "\a" | "\x" hex hex | "\" char
//! ```
//! A closing quote must be followed by a blank or by the end of the line. `#` begins a comment only
//! as the first character of a line, as in redis.conf.

use std::fmt;

/// A quote that is never closed, or a character right after a closing one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnbalancedQuotes;

impl fmt::Display for UnbalancedQuotes {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("unbalanced quotes in configuration line")
    }
}

impl std::error::Error for UnbalancedQuotes {}

/// The words of one line; none for a blank line or a comment. O(length).
pub fn split(line: &[u8]) -> Result<Vec<Vec<u8>>, UnbalancedQuotes> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii();
    if rest.first() == Some(&b'#') {
        return Ok(words);
    }
    while let Some(&first) = rest.first() {
        let (word, after) = match first {
            b'"' => double_quoted(rest.get(1..).unwrap_or_default())?,
            b'\'' => single_quoted(rest.get(1..).unwrap_or_default())?,
            _ => plain(rest)?,
        };
        words.push(word);
        rest = after.trim_ascii_start();
    }
    Ok(words)
}

type Taken<'a> = Result<(Vec<u8>, &'a [u8]), UnbalancedQuotes>;

fn plain(text: &[u8]) -> Taken<'_> {
    let mut word = Vec::new();
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        if byte.is_ascii_whitespace() {
            break;
        }
        // A quote may open in the middle of a word and ends it, as in `a"b c"`.
        if matches!(byte, b'"' | b'\'') {
            let (quoted, after) = if *byte == b'"' { double_quoted(after)? } else { single_quoted(after)? };
            word.extend(quoted);
            return Ok((word, after));
        }
        word.push(*byte);
        rest = after;
    }
    Ok((word, rest))
}

fn double_quoted(text: &[u8]) -> Taken<'_> {
    let mut word = Vec::new();
    let mut rest = text;
    loop {
        rest = match rest {
            [b'"', after @ ..] => return closed(word, after),
            [b'\\', b'x', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                word.push(hex_digit(*high) << 4 | hex_digit(*low));
                after
            }
            [b'\\', escaped, after @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                after
            }
            [byte, after @ ..] => {
                word.push(*byte);
                after
            }
            [] => return Err(UnbalancedQuotes),
        };
    }
}

fn single_quoted(text: &[u8]) -> Taken<'_> {
    let mut word = Vec::new();
    let mut rest = text;
    loop {
        rest = match rest {
            [b'\'', after @ ..] => return closed(word, after),
            [b'\\', b'\'', after @ ..] => {
                word.push(b'\'');
                after
            }
            [byte, after @ ..] => {
                word.push(*byte);
                after
            }
            [] => return Err(UnbalancedQuotes),
        };
    }
}

fn closed(word: Vec<u8>, after: &[u8]) -> Taken<'_> {
    match after.first() {
        Some(byte) if !byte.is_ascii_whitespace() => Err(UnbalancedQuotes),
        _ => Ok((word, after)),
    }
}

fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

/// Appends `word` so that [`split`] gives it back: quoted only if it has to be.
pub fn push_quoted(line: &mut Vec<u8>, word: &[u8]) {
    let plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\' | b'#');
    if !word.is_empty() && word.iter().all(plain) {
        line.extend_from_slice(word);
        return;
    }
    line.push(b'"');
    for &byte in word {
        match byte {
            b'"' | b'\\' => line.extend([b'\\', byte]),
            b'\n' => line.extend(b"\\n"),
            b'\r' => line.extend(b"\\r"),
            b'\t' => line.extend(b"\\t"),
            b' '..=b'~' | 0x80.. => line.push(byte),
            _ => line.extend(format!("\\x{byte:02x}").bytes()),
        }
    }
    line.push(b'"');
}

/// A whole line: `name` and its values, quoted where needed; `""` stands for no value.
pub fn join(name: &str, values: &[Vec<u8>]) -> Vec<u8> {
    let mut line = name.as_bytes().to_vec();
    if values.is_empty() {
        line.extend(b" \"\"");
    }
    for value in values {
        line.push(b' ');
        push_quoted(&mut line, value);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_split_into_words() {
        let cases: &[(&str, Option<&[&str]>)] = &[
            ("", Some(&[])),
            ("   \t\r", Some(&[])),
            ("# port 1", Some(&[])),
            ("  # port 1", Some(&[])),
            ("port 6379\r", Some(&["port", "6379"])),
            ("bind  127.0.0.1\t::1 ", Some(&["bind", "127.0.0.1", "::1"])),
            ("requirepass a#b", Some(&["requirepass", "a#b"])),
            (r#"save """#, Some(&["save", ""])),
            (r#"dir "/a b""#, Some(&["dir", "/a b"])),
            (r#"dir '/a "b" \'c'"#, Some(&["dir", r#"/a "b" 'c"#])),
            (r#"x "\x41\n\t\\\"\q""#, Some(&["x", "A\n\t\\\"q"])),
            (r#"x a"b c""#, Some(&["x", "ab c"])),
            (r#"x "a"#, None),
            (r#"x "a"b"#, None),
            ("x 'a", None),
            (r#"x "\"#, None),
        ];
        for (line, expected) in cases {
            let words = split(line.as_bytes()).ok();
            let expected =
                expected.map(|words| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>());
            assert_eq!(words, expected, "{line:?}");
        }
    }

    proptest! {
        #[test]
        fn split_takes_or_refuses_any_bytes(line: Vec<u8>) {
            let _ = split(&line);
        }

        #[test]
        fn split_gives_back_what_join_wrote(values: Vec<Vec<u8>>) {
            let mut expected = vec![b"name".to_vec()];
            if values.is_empty() {
                expected.push(Vec::new());
            }
            expected.extend(values.iter().cloned());
            prop_assert_eq!(split(&join("name", &values)), Ok(expected));
        }
    }
}
