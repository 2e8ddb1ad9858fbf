//! RESP2 and RESP3 replies: their ends, their contents, and how to show them to a person.
//!
//! ```text
//! + simple   - error   : integer   $ bulk   * array   _ null   # boolean   , double   ( big number
//! ! bulk error   = verbatim   % map (n pairs)   ~ set   > push   | attribute (n pairs, then the reply)
//! ```

use std::fmt::Write;

/// A reply as a tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reply {
    /// A line: the type byte (`+ - : , # ( _`) and the text after it.
    Line(u8, Vec<u8>),
    /// A counted string: the type byte (`$ ! =`) and its bytes.
    Bulk(u8, Vec<u8>),
    /// `$-1` and `*-1`, by their type byte.
    Null(u8),
    /// A counted aggregate: the type byte (`* ~ > %`) and its elements, pairs flattened.
    Array(u8, Vec<Reply>),
}

/// Why bytes are not a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// More bytes are needed.
    Incomplete,
    /// No continuation makes this a reply.
    Invalid(String),
}

/// Nesting no honest reply reaches.
const DEPTH_MAX: usize = 64;

/// Reads one reply from the front of `bytes`; gives it and its length.
pub fn parse(bytes: &[u8]) -> Result<(Reply, usize), Malformed> {
    let mut at = 0;
    let reply = value(bytes, &mut at, 0)?;
    Ok((reply, at))
}

fn line<'a>(bytes: &'a [u8], at: &mut usize) -> Result<&'a [u8], Malformed> {
    let rest = &bytes[*at..];
    let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else {
        return Err(Malformed::Incomplete);
    };
    *at += end + 2;
    Ok(&rest[..end])
}

fn length(text: &[u8]) -> Result<i64, Malformed> {
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .filter(|&n| n >= -1)
        .ok_or_else(|| Malformed::Invalid(format!("length {}", quoted(text))))
}

fn value(bytes: &[u8], at: &mut usize, depth: usize) -> Result<Reply, Malformed> {
    if depth > DEPTH_MAX {
        return Err(Malformed::Invalid("nested too deeply".into()));
    }
    let &kind = bytes.get(*at).ok_or(Malformed::Incomplete)?;
    *at += 1;
    match kind {
        b'+' | b'-' | b':' | b',' | b'#' | b'(' | b'_' => Ok(Reply::Line(kind, line(bytes, at)?.to_vec())),
        b'$' | b'!' | b'=' => {
            let n = length(line(bytes, at)?)?;
            if n < 0 {
                return Ok(Reply::Null(kind));
            }
            let end = *at + n as usize;
            if bytes.len() < end + 2 {
                return Err(Malformed::Incomplete);
            }
            if &bytes[end..end + 2] != b"\r\n" {
                return Err(Malformed::Invalid("a bulk without its line end".into()));
            }
            let body = bytes[*at..end].to_vec();
            *at = end + 2;
            Ok(Reply::Bulk(kind, body))
        }
        b'*' | b'~' | b'>' | b'%' | b'|' => {
            let n = length(line(bytes, at)?)?;
            if n < 0 {
                return Ok(Reply::Null(kind));
            }
            let n = if matches!(kind, b'%' | b'|') { n as usize * 2 } else { n as usize };
            let mut elements = Vec::with_capacity(n.min(1024));
            for _ in 0..n {
                elements.push(value(bytes, at, depth + 1)?);
            }
            // An attribute precedes the reply that it describes.
            if kind == b'|' { value(bytes, at, depth + 1) } else { Ok(Reply::Array(kind, elements)) }
        }
        other => Err(Malformed::Invalid(format!("type byte {}", quoted(&[other])))),
    }
}

impl Reply {
    /// The type byte.
    pub fn kind(&self) -> u8 {
        match self {
            Reply::Line(kind, _) | Reply::Bulk(kind, _) | Reply::Null(kind) | Reply::Array(kind, _) => *kind,
        }
    }

    /// The number of an integer reply.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Reply::Line(b':', text) => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// The bytes of a string, a status or an error.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Reply::Line(_, text) | Reply::Bulk(_, text) => Some(text),
            _ => None,
        }
    }

    /// The elements of an aggregate.
    pub fn elements(&self) -> Option<&[Reply]> {
        match self {
            Reply::Array(_, elements) => Some(elements),
            _ => None,
        }
    }

    /// Whether this is an error of either protocol version.
    pub fn is_error(&self) -> bool {
        matches!(self.kind(), b'-' | b'!')
    }

    /// Text for a person, in the manner of redis-cli but with every type marked.
    pub fn show(&self) -> String {
        let mut text = String::new();
        self.show_into(&mut text, 0);
        text
    }

    fn show_into(&self, text: &mut String, indent: usize) {
        match self {
            Reply::Line(kind, body) => {
                text.push(*kind as char);
                text.push_str(&escaped(body));
            }
            Reply::Bulk(b'$', body) => text.push_str(&quoted(body)),
            Reply::Bulk(kind, body) => {
                let _ = write!(text, "{}{}", *kind as char, quoted(body));
            }
            Reply::Null(kind) => {
                let _ = write!(text, "({}-1)", *kind as char);
            }
            Reply::Array(kind, elements) if elements.is_empty() => {
                let _ = write!(text, "({}0)", *kind as char);
            }
            Reply::Array(kind, elements) => {
                for (index, element) in elements.iter().enumerate() {
                    if index > 0 {
                        text.push('\n');
                        text.extend(std::iter::repeat_n(' ', indent));
                    }
                    let label = format!("{}{}) ", *kind as char, index + 1);
                    text.push_str(&label);
                    element.show_into(text, indent + label.len());
                }
            }
        }
    }
}

fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    for &byte in bytes {
        match byte {
            b'\r' => text.push_str("\\r"),
            b'\n' => text.push_str("\\n"),
            b'"' | b'\\' => {
                text.push('\\');
                text.push(byte as char);
            }
            0x20..=0x7e => text.push(byte as char),
            _ => {
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
    }
    text
}

/// Bytes as a string that redis-cli reads back; long ones are cut, with their length.
pub fn quoted(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 256;
    if bytes.len() <= SHOWN_MAX {
        format!("\"{}\"", escaped(bytes))
    } else {
        format!("\"{}\"... ({} bytes)", escaped(&bytes[..SHOWN_MAX]), bytes.len())
    }
}

/// Appends a command as an array of bulks.
pub fn encode_command<A: AsRef<[u8]>>(arguments: &[A], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", arguments.len()).as_bytes());
    for argument in arguments {
        let argument = argument.as_ref();
        out.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_reads_every_type_to_its_end() {
        let table: &[(&[u8], &str)] = &[
            (b"+OK\r\n", "+OK"),
            (b"-ERR no\r\n", "-ERR no"),
            (b":-7\r\n", ":-7"),
            (b"$3\r\na\r\n\r\n", "\"a\\r\\n\""),
            (b"$0\r\n\r\n", "\"\""),
            (b"$-1\r\n", "($-1)"),
            (b"*-1\r\n", "(*-1)"),
            (b"*0\r\n", "(*0)"),
            (b"_\r\n", "_"),
            (b"#t\r\n", "#t"),
            (b",1.5\r\n", ",1.5"),
            (b"=7\r\ntxt:abc\r\n", "=\"txt:abc\""),
            (b"%1\r\n+a\r\n:1\r\n", "%1) +a\n%2) :1"),
            (b"*2\r\n*2\r\n:1\r\n:2\r\n:3\r\n", "*1) *1) :1\n    *2) :2\n*2) :3"),
            (b"|1\r\n+k\r\n+v\r\n:3\r\n", ":3"),
        ];
        for (bytes, shown) in table {
            let (reply, used) = parse(bytes).expect(shown);
            assert_eq!((reply.show().as_str(), used), (*shown, bytes.len()));
            for cut in 0..bytes.len() {
                assert_eq!(parse(&bytes[..cut]), Err(Malformed::Incomplete), "{shown} cut at {cut}");
            }
        }
    }

    #[test]
    fn parse_refuses_other_bytes() {
        for bytes in [&b"?\r\n"[..], b"$x\r\n", b"$-2\r\n", b"$1\r\nabc\r\n", b"*1\r\n!\r\n"] {
            assert!(matches!(parse(bytes), Err(Malformed::Invalid(_))), "{}", quoted(bytes));
        }
    }
}
