//! A line of a recording.

use std::time::Duration;

/// A command that a client sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// When, since 1970.
    pub at: Duration,
    /// In which database.
    pub database: u32,
    /// The client: an address, or `lua` for a command that a script called.
    pub client: String,
    /// The command.
    pub arguments: Vec<Vec<u8>>,
}

impl Recorded {
    /// Whether a script has called it: a replay of the script replays it.
    pub fn is_from_script(&self) -> bool {
        self.client == "lua"
    }
}

/// Reads a line; nothing when it is none of MONITOR's.
pub fn parse(line: &[u8]) -> Option<Recorded> {
    let (head, rest) = split(line, b' ')?;
    let (seconds, micros) = std::str::from_utf8(head).ok()?.split_once('.')?;
    if micros.len() != 6 {
        return None;
    }
    let at = Duration::from_secs(seconds.parse().ok()?) + Duration::from_micros(micros.parse().ok()?);
    let (place, mut rest) = split(rest.strip_prefix(b"[")?, b']')?;
    let (database, client) = split(place, b' ')?;
    let mut arguments = Vec::new();
    while let Some(quoted) = rest.strip_prefix(b" \"") {
        let (argument, behind) = unquoted(quoted)?;
        arguments.push(argument);
        rest = behind;
    }
    if !rest.is_empty() || arguments.is_empty() {
        return None;
    }
    Some(Recorded {
        at,
        database: std::str::from_utf8(database).ok()?.parse().ok()?,
        client: String::from_utf8_lossy(client).into_owned(),
        arguments,
    })
}

fn split(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let position = memchr::memchr(at, bytes)?;
    Some((&bytes[..position], &bytes[position + 1..]))
}

/// An argument up to its closing quote, and the text behind that.
fn unquoted(mut quoted: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut argument = Vec::new();
    loop {
        let (first, rest) = quoted.split_first()?;
        quoted = rest;
        match first {
            b'"' => return Some((argument, quoted)),
            b'\\' => {
                let (escape, rest) = quoted.split_first()?;
                quoted = rest;
                argument.push(match escape {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'a' => 7,
                    b'b' => 8,
                    b'x' => {
                        let digits = std::str::from_utf8(quoted.get(..2)?).ok()?;
                        quoted = &quoted[2..];
                        u8::from_str_radix(digits, 16).ok()?
                    }
                    b'\\' | b'"' => *escape,
                    _ => return None,
                });
            }
            byte => argument.push(*byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_monitor_are_read() {
        let line = br#"1339518083.107412 [3 127.0.0.1:60866] "SET" "a b" "\x00\"\\\n\xff]" """#;
        let recorded = parse(line).unwrap();
        assert_eq!(recorded.at, Duration::from_micros(1_339_518_083_107_412));
        assert_eq!((recorded.database, recorded.client.as_str()), (3, "127.0.0.1:60866"));
        assert_eq!(recorded.arguments, [&b"SET"[..], b"a b", b"\x00\"\\\n\xff]", b""]);
        assert!(!recorded.is_from_script());
        assert!(parse(br#"1.000000 [0 lua] "GET" "k""#).unwrap().is_from_script());
        assert_eq!(parse(br#"1.000000 [0 unix:/tmp/s] "PING""#).unwrap().client, "unix:/tmp/s");
    }

    #[test]
    fn lines_that_monitor_does_not_write_are_refused() {
        for line in [
            &b"OK"[..],
            b"",
            br#"1.5 [0 a] "GET""#,
            br#"1.000000 [0 a]"#,
            br#"1.000000 [0 a] "GET"#,
            br#"1.000000 [0 a] "GET" k"#,
            br#"1.000000 [x a] "GET""#,
            br#"1.000000 [0 a] "\xg0""#,
            br#"1.000000 [0 a] "\x1"#,
            br#"x.000000 [0 a] "GET""#,
        ] {
            assert_eq!(parse(line), None, "{}", line.escape_ascii());
        }
    }
}
