//! Decoding of replies on the client's side, RESP2 and RESP3, incrementally.
//!
//! ```text
//! + simple   - error   : integer   $ bulk   * array                          RESP2
//! _ null  # boolean  , double  ( big number  ! bulk error  = verbatim        RESP3
//! % map   ~ set      > push    | attribute (decoded and dropped)             RESP3
//! ```
//!
//! A [`ValueDecoder`] is given the unread input again and again and says how much of it is used up.
//! Only a header line that has not fully arrived is ever left for the next call, so a reply of any
//! size is scanned once however many pieces it comes in.
//!
//! Invariants:
//! - Nothing is allocated for an announced length; memory follows the bytes that have arrived.
//! - Nesting, elements and payloads are bounded by [`ReplyLimits`].
//! - After an error the connection must be closed: the input cannot be resynchronized.

use std::fmt;

use crate::number::parse_integer;

/// Longest header line, simple string or error, in bytes.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// A reply as a value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A status such as `OK`.
    Simple(Vec<u8>),
    /// An error, simple or bulk, without its marker.
    Error(Vec<u8>),
    /// A 64-bit integer.
    Integer(i64),
    /// A string of bytes.
    Bulk(Vec<u8>),
    /// Nothing: RESP3's null, RESP2's null bulk and null array.
    Null,
    /// Elements in order.
    Array(Vec<Value>),
    /// True or false.
    Boolean(bool),
    /// A floating-point number.
    Double(f64),
    /// An integer of any size, as its decimal text.
    BigNumber(Vec<u8>),
    /// A text with its three-letter format (`txt`, `mkd`).
    Verbatim {
        /// The format.
        format: [u8; 3],
        /// The text behind the format.
        text: Vec<u8>,
    },
    /// Pairs in the order the server sent them.
    Map(Vec<(Value, Value)>),
    /// Distinct elements in the order the server sent them.
    Set(Vec<Value>),
    /// Out-of-band data: not the reply to a request.
    Push(Vec<Value>),
}

impl Value {
    /// The bytes of a simple string, a bulk string or a verbatim text.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Simple(bytes) | Value::Bulk(bytes) | Value::Verbatim { text: bytes, .. } => Some(bytes),
            _ => None,
        }
    }
}

/// Limits of a reply.
#[derive(Debug, Clone, Copy)]
pub struct ReplyLimits {
    /// Longest payload in bytes.
    pub bulk_bytes_max: u64,
    /// Most elements of one reply, those of nested aggregates included.
    pub elements_max: u64,
    /// Deepest nesting of aggregates.
    pub depth_max: usize,
}

impl Default for ReplyLimits {
    fn default() -> Self {
        Self { bulk_bytes_max: 512 << 20, elements_max: 64 << 20, depth_max: 128 }
    }
}

/// Why the input is not a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueError {
    /// The byte is not a marker of the protocol.
    UnknownMarker(u8),
    /// A header or a number that cannot be read.
    Malformed,
    /// A line ran on past 64 KiB.
    LineTooLong,
    /// A payload longer than [`ReplyLimits::bulk_bytes_max`].
    BulkTooLong,
    /// More elements than [`ReplyLimits::elements_max`].
    TooManyElements,
    /// Deeper than [`ReplyLimits::depth_max`].
    TooDeep,
}

impl fmt::Display for ValueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownMarker(byte) => write!(f, "'{}' starts no reply", byte.escape_ascii()),
            Self::Malformed => f.write_str("malformed reply"),
            Self::LineTooLong => f.write_str("a line of the reply is too long"),
            Self::BulkTooLong => f.write_str("a string of the reply is too long"),
            Self::TooManyElements => f.write_str("the reply has too many elements"),
            Self::TooDeep => f.write_str("the reply is nested too deeply"),
        }
    }
}

impl std::error::Error for ValueError {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Array,
    Set,
    Push,
    Map,
    Attribute,
}

/// An aggregate whose elements are still arriving.
#[derive(Debug)]
struct Frame {
    kind: Aggregate,
    /// Elements still missing; never 0 while the frame is on the stack.
    missing: u64,
    elements: Vec<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Payload {
    Bulk,
    Error,
    Verbatim,
}

/// A payload that is still arriving.
#[derive(Debug)]
struct Partial {
    kind: Payload,
    /// Bytes announced, without the CRLF behind them.
    length: usize,
    bytes: Vec<u8>,
}

/// Decodes one reply after the other.
#[derive(Debug, Default)]
pub struct ValueDecoder {
    limits: ReplyLimits,
    stack: Vec<Frame>,
    partial: Option<Partial>,
    /// Elements announced so far by the reply in progress.
    elements: u64,
}

impl ValueDecoder {
    /// A decoder between replies.
    pub fn new(limits: ReplyLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Takes bytes off the front of `input` until a reply is complete or the input is used up.
    /// Returns how many bytes were taken, which the caller must not pass again, and the reply.
    pub fn decode(&mut self, input: &[u8]) -> Result<(usize, Option<Value>), ValueError> {
        let mut at = 0;
        loop {
            let Some(rest) = input.get(at..) else { return Err(ValueError::Malformed) };
            let (used, element) =
                if self.partial.is_some() { self.payload(rest)? } else { self.header(rest)? };
            at += used;
            match element {
                Step::Value(value) => {
                    if let Some(reply) = self.attach(value) {
                        self.elements = 0;
                        return Ok((at, Some(reply)));
                    }
                }
                Step::Opened => {}
                Step::Starved => return Ok((at, None)),
            }
        }
    }

    fn header(&mut self, input: &[u8]) -> Result<(usize, Step), ValueError> {
        let Some(line_feed) = memchr::memchr(b'\n', &input[..input.len().min(LINE_BYTES_MAX)]) else {
            if input.len() >= LINE_BYTES_MAX {
                return Err(ValueError::LineTooLong);
            }
            return Ok((0, Step::Starved));
        };
        let [marker, text @ .., b'\r'] = &input[..line_feed] else { return Err(ValueError::Malformed) };
        let used = line_feed + 1;
        let value = match marker {
            b'+' => Value::Simple(text.to_vec()),
            b'-' => Value::Error(text.to_vec()),
            b':' => Value::Integer(integer(text)?),
            b'_' if text.is_empty() => Value::Null,
            b'#' if text == b"t" || text == b"f" => Value::Boolean(text == b"t"),
            b',' => Value::Double(double(text)?),
            b'(' => Value::BigNumber(big_number(text)?),
            b'$' => return self.open_payload(Payload::Bulk, text).map(|step| (used, step)),
            b'!' => return self.open_payload(Payload::Error, text).map(|step| (used, step)),
            b'=' => return self.open_payload(Payload::Verbatim, text).map(|step| (used, step)),
            b'*' => return self.open(Aggregate::Array, text).map(|step| (used, step)),
            b'~' => return self.open(Aggregate::Set, text).map(|step| (used, step)),
            b'>' => return self.open(Aggregate::Push, text).map(|step| (used, step)),
            b'%' => return self.open(Aggregate::Map, text).map(|step| (used, step)),
            b'|' => return self.open(Aggregate::Attribute, text).map(|step| (used, step)),
            b'_' | b'#' => return Err(ValueError::Malformed),
            other => return Err(ValueError::UnknownMarker(*other)),
        };
        Ok((used, Step::Value(value)))
    }

    fn open_payload(&mut self, kind: Payload, text: &[u8]) -> Result<Step, ValueError> {
        let length = integer(text)?;
        if length == -1 && kind == Payload::Bulk {
            return Ok(Step::Value(Value::Null));
        }
        let length = u64::try_from(length).map_err(|_| ValueError::Malformed)?;
        if length > self.limits.bulk_bytes_max {
            return Err(ValueError::BulkTooLong);
        }
        let length = usize::try_from(length).map_err(|_| ValueError::BulkTooLong)?;
        self.partial = Some(Partial { kind, length, bytes: Vec::new() });
        Ok(Step::Opened)
    }

    fn open(&mut self, kind: Aggregate, text: &[u8]) -> Result<Step, ValueError> {
        let count = integer(text)?;
        if count == -1 && kind == Aggregate::Array {
            return Ok(Step::Value(Value::Null));
        }
        let count = u64::try_from(count).map_err(|_| ValueError::Malformed)?;
        let per_entry = if matches!(kind, Aggregate::Map | Aggregate::Attribute) { 2 } else { 1 };
        let missing = count.checked_mul(per_entry).ok_or(ValueError::TooManyElements)?;
        self.elements = self.elements.checked_add(missing).ok_or(ValueError::TooManyElements)?;
        if self.elements > self.limits.elements_max {
            return Err(ValueError::TooManyElements);
        }
        if missing == 0 {
            return Ok(match kind {
                Aggregate::Attribute => Step::Opened,
                _ => Step::Value(close(kind, Vec::new())),
            });
        }
        if self.stack.len() >= self.limits.depth_max {
            return Err(ValueError::TooDeep);
        }
        self.stack.push(Frame { kind, missing, elements: Vec::new() });
        Ok(Step::Opened)
    }

    fn payload(&mut self, input: &[u8]) -> Result<(usize, Step), ValueError> {
        let Some(partial) = self.partial.as_mut() else { return Ok((0, Step::Opened)) };
        let take = (partial.length - partial.bytes.len()).min(input.len());
        let (bytes, rest) = input.split_at(take);
        partial.bytes.extend_from_slice(bytes);
        if partial.bytes.len() < partial.length || rest.len() < 2 {
            return Ok((take, Step::Starved));
        }
        if !rest.starts_with(b"\r\n") {
            return Err(ValueError::Malformed);
        }
        let kind = partial.kind;
        let bytes = std::mem::take(&mut partial.bytes);
        self.partial = None;
        let value = match kind {
            Payload::Bulk => Value::Bulk(bytes),
            Payload::Error => Value::Error(bytes),
            Payload::Verbatim => match bytes.as_slice() {
                [a, b, c, b':', text @ ..] => Value::Verbatim { format: [*a, *b, *c], text: text.to_vec() },
                _ => return Err(ValueError::Malformed),
            },
        };
        Ok((take + 2, Step::Value(value)))
    }

    /// Puts a finished value into the aggregate that waits for it; gives back the reply when that
    /// finishes it.
    fn attach(&mut self, mut value: Value) -> Option<Value> {
        while let Some(mut frame) = self.stack.pop() {
            frame.elements.push(value);
            frame.missing -= 1;
            if frame.missing > 0 {
                self.stack.push(frame);
                return None;
            }
            if frame.kind == Aggregate::Attribute {
                return None;
            }
            value = close(frame.kind, frame.elements);
        }
        Some(value)
    }
}

#[derive(Debug)]
enum Step {
    /// An element is complete.
    Value(Value),
    /// A header was read; its elements or its payload follow.
    Opened,
    /// More input is needed.
    Starved,
}

fn close(kind: Aggregate, elements: Vec<Value>) -> Value {
    match kind {
        Aggregate::Array => Value::Array(elements),
        Aggregate::Set => Value::Set(elements),
        Aggregate::Push => Value::Push(elements),
        Aggregate::Map | Aggregate::Attribute => {
            let mut pairs = Vec::with_capacity(elements.len() / 2);
            let mut elements = elements.into_iter();
            while let (Some(key), Some(value)) = (elements.next(), elements.next()) {
                pairs.push((key, value));
            }
            Value::Map(pairs)
        }
    }
}

fn integer(text: &[u8]) -> Result<i64, ValueError> {
    parse_integer(text).ok_or(ValueError::Malformed)
}

fn double(text: &[u8]) -> Result<f64, ValueError> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(ValueError::Malformed)
}

fn big_number(text: &[u8]) -> Result<Vec<u8>, ValueError> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(ValueError::Malformed);
    }
    Ok(text.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.into())
    }

    /// Input and the replies it holds.
    fn table() -> Vec<(&'static [u8], Vec<Value>)> {
        vec![
            (b"+OK\r\n", vec![Value::Simple("OK".into())]),
            (b"-ERR no\r\n", vec![Value::Error("ERR no".into())]),
            (b":-42\r\n:0\r\n", vec![Value::Integer(-42), Value::Integer(0)]),
            (b"$0\r\n\r\n$2\r\n\r\n\r\n", vec![bulk(""), bulk("\r\n")]),
            (b"$-1\r\n*-1\r\n_\r\n", vec![Value::Null, Value::Null, Value::Null]),
            (b"*0\r\n%0\r\n~0\r\n", vec![Value::Array(vec![]), Value::Map(vec![]), Value::Set(vec![])]),
            (
                b"*2\r\n*1\r\n:1\r\n$3\r\nabc\r\n",
                vec![Value::Array(vec![Value::Array(vec![Value::Integer(1)]), bulk("abc")])],
            ),
            (
                b"#t\r\n#f\r\n,1.5\r\n,-inf\r\n(-12345678901234567890\r\n",
                vec![
                    Value::Boolean(true),
                    Value::Boolean(false),
                    Value::Double(1.5),
                    Value::Double(f64::NEG_INFINITY),
                    Value::BigNumber("-12345678901234567890".into()),
                ],
            ),
            (
                b"!5\r\nERR x\r\n=7\r\ntxt:abc\r\n",
                vec![Value::Error("ERR x".into()), Value::Verbatim { format: *b"txt", text: "abc".into() }],
            ),
            (
                b"%1\r\n+k\r\n~2\r\n:1\r\n:2\r\n",
                vec![Value::Map(vec![(
                    Value::Simple("k".into()),
                    Value::Set(vec![Value::Integer(1), Value::Integer(2)]),
                )])],
            ),
            (
                b">2\r\n+invalidate\r\n_\r\n:7\r\n",
                vec![Value::Push(vec![Value::Simple("invalidate".into()), Value::Null]), Value::Integer(7)],
            ),
            (
                b"|1\r\n+ttl\r\n:9\r\n*2\r\n|0\r\n:1\r\n|1\r\n+a\r\n*1\r\n:3\r\n:2\r\n",
                vec![Value::Array(vec![Value::Integer(1), Value::Integer(2)])],
            ),
        ]
    }

    #[test]
    fn decoder_reads_every_type_however_the_input_is_cut() {
        for (input, expected) in table() {
            for cut in 0..=input.len() {
                let mut decoder = ValueDecoder::default();
                let mut replies = Vec::new();
                let mut unread = Vec::new();
                for piece in [&input[..cut], &input[cut..]] {
                    unread.extend_from_slice(piece);
                    loop {
                        let (used, reply) = decoder.decode(&unread).unwrap();
                        unread.drain(..used);
                        match reply {
                            Some(reply) => replies.push(reply),
                            None => break,
                        }
                    }
                }
                assert_eq!(replies, expected, "{:?} cut at {cut}", input.escape_ascii().to_string());
                assert!(unread.is_empty());
            }
        }
    }

    #[test]
    fn decoder_gives_the_same_replies_byte_by_byte() {
        for (input, expected) in table() {
            let mut decoder = ValueDecoder::default();
            let mut replies = Vec::new();
            let mut unread = Vec::new();
            for byte in input {
                unread.push(*byte);
                let (used, reply) = decoder.decode(&unread).unwrap();
                unread.drain(..used);
                replies.extend(reply);
            }
            assert_eq!(replies, expected);
        }
    }

    #[test]
    fn decoder_refuses_malformed_replies() {
        let limits = ReplyLimits { bulk_bytes_max: 10, elements_max: 4, depth_max: 2 };
        let cases: &[(&[u8], ValueError)] = &[
            (b"hello\r\n", ValueError::UnknownMarker(b'h')),
            (b"\r\n", ValueError::Malformed),
            (b"+OK\n", ValueError::Malformed),
            (b":12a\r\n", ValueError::Malformed),
            (b"$-2\r\n", ValueError::Malformed),
            (b"%-1\r\n", ValueError::Malformed),
            (b"_x\r\n", ValueError::Malformed),
            (b"#y\r\n", ValueError::Malformed),
            (b",pi\r\n", ValueError::Malformed),
            (b"(1.5\r\n", ValueError::Malformed),
            (b"=2\r\nab\r\n", ValueError::Malformed),
            (b"$1\r\nab\r\n", ValueError::Malformed),
            (b"$11\r\n", ValueError::BulkTooLong),
            (b"*5\r\n", ValueError::TooManyElements),
            (b"%9223372036854775807\r\n", ValueError::TooManyElements),
            (b"*1\r\n*1\r\n*1\r\n", ValueError::TooDeep),
        ];
        for (input, expected) in cases {
            let error = ValueDecoder::new(limits).decode(input).unwrap_err();
            assert_eq!(error, *expected, "{}", input.escape_ascii());
        }
        let endless = vec![b'+'; LINE_BYTES_MAX];
        assert_eq!(ValueDecoder::default().decode(&endless).unwrap_err(), ValueError::LineTooLong);
    }

    #[test]
    fn announced_length_allocates_nothing() {
        let mut decoder = ValueDecoder::default();
        let (used, reply) = decoder.decode(b"*60000000\r\n$500000000\r\nabc").unwrap();
        assert_eq!((used, reply), (26, None));
        assert!(decoder.stack[0].elements.capacity() == 0);
        assert!(decoder.partial.unwrap().bytes.capacity() < 100);
    }
}
