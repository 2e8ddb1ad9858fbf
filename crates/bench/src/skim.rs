//! Counts replies without building them.
//!
//! A load generator needs to know of a reply only if it ends, whether it was an error, whether it
//! was empty and how much it carried. The [`Skimmer`] jumps over payloads and keeps one number, the
//! elements still missing, in place of a stack:
//!
//! ```text
//! *3 ⏎ :1 ⏎ *2 ⏎ $1 ⏎ a ⏎ $1 ⏎ b ⏎ :9 ⏎        missing: 3 2 3 2 1 0 → one reply
//! ```
//!
//! RESP3's push and attribute frames at the top are passed over: they answer no request.
//!
//! Invariant: the rest of the input after a call is less than one header line.

use std::fmt;

/// Longest header line, simple string or error, in bytes.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Most elements or bytes that one header may announce.
const ANNOUNCED_MAX: u64 = 1 << 32;

/// Counts of the replies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Complete replies.
    pub replies: u64,
    /// Replies that were an error as a whole.
    pub errors: u64,
    /// Replies that were null as a whole.
    pub nulls: u64,
    /// Bytes of all string payloads, nested ones included.
    pub payload_bytes: u64,
}

impl Tally {
    /// Adds the counts of another thread.
    pub fn add(&mut self, other: &Tally) {
        self.replies += other.replies;
        self.errors += other.errors;
        self.nulls += other.nulls;
        self.payload_bytes += other.payload_bytes;
    }
}

/// The input is not a sequence of replies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAReply {
    /// The first bytes that could not be read.
    pub near: Vec<u8>,
}

impl fmt::Display for NotAReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server's answer is not a reply of the protocol, near \"{}\"", self.near.escape_ascii())
    }
}

/// The place of a connection in the stream of replies.
#[derive(Debug, Default)]
pub struct Skimmer {
    /// Elements missing from the frame in progress; 0 between frames.
    missing: u64,
    /// Bytes missing from the payload in progress, its CRLF included; 0 outside of payloads.
    payload_left: u64,
    /// The frame in progress answers no request.
    out_of_band: bool,
}

impl Skimmer {
    /// Takes complete headers and payload bytes off the front of `input`, stopping early when
    /// `tally.replies` reaches `replies_max`. Returns how many bytes were taken. `on_error` gets the
    /// text of each error reply.
    pub fn skim(
        &mut self,
        input: &[u8],
        replies_max: u64,
        tally: &mut Tally,
        mut on_error: impl FnMut(&[u8]),
    ) -> Result<usize, NotAReply> {
        let mut at = 0;
        while at < input.len() {
            let rest = &input[at..];
            if self.payload_left > 0 {
                let used = self.skip_payload(rest, tally)?;
                if used == 0 {
                    break;
                }
                at += used;
                continue;
            }
            if self.missing == 0 && tally.replies >= replies_max {
                break;
            }
            let used = self.header(rest, tally, &mut on_error)?;
            if used == 0 {
                break;
            }
            at += used;
        }
        Ok(at)
    }

    /// Whether the next byte would start a new frame.
    pub fn is_between_replies(&self) -> bool {
        self.missing == 0 && self.payload_left == 0
    }

    #[inline]
    fn header(
        &mut self,
        input: &[u8],
        tally: &mut Tally,
        on_error: &mut impl FnMut(&[u8]),
    ) -> Result<usize, NotAReply> {
        let top = self.missing == 0;
        match input[0] {
            b'$' | b'=' | b'!' => {
                let Some((length, used)) = announced(input)? else { return Ok(0) };
                let Some(length) = length else {
                    if input[0] != b'$' {
                        return Err(refused(input));
                    }
                    tally.nulls += u64::from(top);
                    self.begin();
                    self.end_element(tally);
                    return Ok(used);
                };
                if top && input[0] == b'!' {
                    // Errors are short: wait for the whole text, so that it can be reported.
                    if length > LINE_BYTES_MAX as u64 {
                        return Err(refused(input));
                    }
                    let Some(text) = input.get(used..used + length as usize + 2) else { return Ok(0) };
                    tally.errors += 1;
                    on_error(&text[..length as usize]);
                }
                self.begin();
                tally.payload_bytes += length;
                self.payload_left = length + 2;
                Ok(used)
            }
            b'*' | b'~' | b'%' | b'>' | b'|' => self.aggregate(input, top, tally),
            b'+' if input.starts_with(b"+OK\r\n") => {
                self.begin();
                self.end_element(tally);
                Ok(5)
            }
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {
                let window = &input[..input.len().min(LINE_BYTES_MAX)];
                let Some(line_feed) = memchr::memchr(b'\n', window) else {
                    return if input.len() >= LINE_BYTES_MAX { Err(refused(input)) } else { Ok(0) };
                };
                if input[line_feed - 1] != b'\r' {
                    return Err(refused(input));
                }
                match input[0] {
                    b'-' if top => {
                        tally.errors += 1;
                        on_error(&input[1..line_feed - 1]);
                    }
                    b'_' if top => tally.nulls += 1,
                    _ => {}
                }
                self.begin();
                self.end_element(tally);
                Ok(line_feed + 1)
            }
            _ => Err(refused(input)),
        }
    }

    fn aggregate(&mut self, input: &[u8], top: bool, tally: &mut Tally) -> Result<usize, NotAReply> {
        let Some((count, used)) = announced(input)? else { return Ok(0) };
        let marker = input[0];
        let Some(count) = count else {
            if marker != b'*' {
                return Err(refused(input));
            }
            tally.nulls += u64::from(top);
            self.begin();
            self.end_element(tally);
            return Ok(used);
        };
        match marker {
            // An attribute does not count as an element: at the top it is a frame of its own.
            b'|' => {
                self.out_of_band |= top && count > 0;
                self.missing += 2 * count;
            }
            _ => {
                self.out_of_band |= top && marker == b'>';
                self.begin();
                self.missing += if marker == b'%' { 2 * count } else { count };
                self.end_element(tally);
            }
        }
        Ok(used)
    }

    #[inline]
    fn skip_payload(&mut self, input: &[u8], tally: &mut Tally) -> Result<usize, NotAReply> {
        let take = (self.payload_left - 2).min(input.len() as u64);
        self.payload_left -= take;
        let rest = &input[take as usize..];
        if self.payload_left > 2 || rest.len() < 2 {
            return Ok(take as usize);
        }
        if !rest.starts_with(b"\r\n") {
            return Err(refused(rest));
        }
        self.payload_left = 0;
        self.end_element(tally);
        Ok(take as usize + 2)
    }

    #[inline]
    fn begin(&mut self) {
        if self.missing == 0 {
            self.missing = 1;
        }
    }

    #[inline]
    fn end_element(&mut self, tally: &mut Tally) {
        self.missing -= 1;
        if self.missing == 0 {
            tally.replies += u64::from(!self.out_of_band);
            self.out_of_band = false;
        }
    }
}

/// Reads `marker number CRLF`: the number (`None` for -1) and the length of the line; nothing when
/// the line has not fully arrived.
#[inline]
fn announced(input: &[u8]) -> Result<Option<(Option<u64>, usize)>, NotAReply> {
    let mut number: u64 = 0;
    for (index, &byte) in input.iter().enumerate().skip(1) {
        match byte {
            b'0'..=b'9' => {
                number = number * 10 + u64::from(byte - b'0');
                if number > ANNOUNCED_MAX {
                    return Err(refused(input));
                }
            }
            b'\r' if index > 1 => {
                return match input.get(index + 1) {
                    Some(b'\n') => Ok(Some((Some(number), index + 2))),
                    Some(_) => Err(refused(input)),
                    None => Ok(None),
                };
            }
            b'-' if index == 1 => {
                let text = &input[1..input.len().min(5)];
                return match text {
                    b"-1\r\n" => Ok(Some((None, 5))),
                    _ if b"-1\r\n".starts_with(text) => Ok(None),
                    _ => Err(refused(input)),
                };
            }
            _ => return Err(refused(input)),
        }
    }
    Ok(None)
}

#[cold]
fn refused(input: &[u8]) -> NotAReply {
    NotAReply { near: input[..input.len().min(40)].to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_resp::{Value, ValueDecoder};
    use proptest::prelude::*;

    fn encode(value: &Value, out: &mut Vec<u8>) {
        let line = |out: &mut Vec<u8>, marker: u8, text: &[u8]| {
            out.push(marker);
            out.extend_from_slice(text);
            out.extend_from_slice(b"\r\n");
        };
        let count = |out: &mut Vec<u8>, marker: u8, count: usize| {
            line(out, marker, count.to_string().as_bytes());
        };
        match value {
            Value::Simple(text) => line(out, b'+', text),
            Value::Error(text) => line(out, b'-', text),
            Value::Integer(number) => line(out, b':', number.to_string().as_bytes()),
            Value::Bulk(bytes) => {
                count(out, b'$', bytes.len());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Value::Null => out.extend_from_slice(b"$-1\r\n"),
            Value::Boolean(truth) => line(out, b'#', if *truth { b"t" } else { b"f" }),
            Value::Double(number) => line(out, b',', number.to_string().as_bytes()),
            Value::BigNumber(text) => line(out, b'(', text),
            Value::Verbatim { format, text } => {
                count(out, b'=', text.len() + 4);
                out.extend_from_slice(format);
                out.push(b':');
                out.extend_from_slice(text);
                out.extend_from_slice(b"\r\n");
            }
            Value::Array(items) | Value::Set(items) | Value::Push(items) => {
                let marker = match value {
                    Value::Array(_) => b'*',
                    Value::Set(_) => b'~',
                    _ => b'>',
                };
                count(out, marker, items.len());
                items.iter().for_each(|item| encode(item, out));
            }
            Value::Map(pairs) => {
                count(out, b'%', pairs.len());
                for (key, value) in pairs {
                    encode(key, out);
                    encode(value, out);
                }
            }
        }
    }

    fn scalar() -> impl Strategy<Value = Value> {
        let text = prop::collection::vec(b' '..=b'~', 0..12);
        let bytes = prop::collection::vec(any::<u8>(), 0..40);
        prop_oneof![
            text.clone().prop_map(Value::Simple),
            Just(Value::Simple(b"OK".to_vec())),
            text.prop_map(Value::Error),
            any::<i64>().prop_map(Value::Integer),
            bytes.clone().prop_map(Value::Bulk),
            Just(Value::Null),
            any::<bool>().prop_map(Value::Boolean),
            (-1e9..1e9).prop_map(Value::Double),
            Just(Value::BigNumber(b"-123456789012345678901234567890".to_vec())),
            bytes.prop_map(|text| Value::Verbatim { format: *b"txt", text }),
        ]
    }

    fn reply() -> impl Strategy<Value = Value> {
        let nested = scalar().prop_recursive(4, 24, 5, |inner| {
            let items = prop::collection::vec(inner.clone(), 0..5);
            prop_oneof![
                items.clone().prop_map(Value::Array),
                items.prop_map(Value::Set),
                prop::collection::vec((inner.clone(), inner), 0..4).prop_map(Value::Map),
            ]
        });
        let pushes = prop::collection::vec(scalar(), 1..4).prop_map(Value::Push);
        prop_oneof![8 => nested, 1 => pushes]
    }

    fn payload_bytes(value: &Value) -> u64 {
        match value {
            Value::Bulk(bytes) => bytes.len() as u64,
            Value::Verbatim { text, .. } => text.len() as u64 + 4,
            Value::Array(items) | Value::Set(items) | Value::Push(items) => {
                items.iter().map(payload_bytes).sum()
            }
            Value::Map(pairs) => pairs.iter().map(|(k, v)| payload_bytes(k) + payload_bytes(v)).sum(),
            _ => 0,
        }
    }

    /// The full decoder's result for the input.
    fn oracle(input: &[u8]) -> (Tally, Vec<Vec<u8>>) {
        let (mut tally, mut texts, mut at) = (Tally::default(), Vec::new(), 0);
        let mut decoder = ValueDecoder::default();
        while let (used, Some(value)) = decoder.decode(&input[at..]).unwrap() {
            at += used;
            tally.payload_bytes += payload_bytes(&value);
            match value {
                Value::Push(_) => continue,
                Value::Error(text) => {
                    tally.errors += 1;
                    texts.push(text);
                }
                Value::Null => tally.nulls += 1,
                _ => {}
            }
            tally.replies += 1;
        }
        (tally, texts)
    }

    fn skim_pieces(pieces: &[&[u8]]) -> (Tally, Vec<Vec<u8>>, usize) {
        let (mut skimmer, mut tally, mut texts) = (Skimmer::default(), Tally::default(), Vec::new());
        let mut unread = Vec::new();
        for piece in pieces {
            unread.extend_from_slice(piece);
            let used = skimmer.skim(&unread, u64::MAX, &mut tally, |text| texts.push(text.to_vec())).unwrap();
            unread.drain(..used);
        }
        (tally, texts, unread.len())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn agrees_with_the_full_decoder_wherever_the_stream_is_cut(replies in prop::collection::vec(reply(), 1..8)) {
            let mut stream = Vec::new();
            replies.iter().for_each(|reply| encode(reply, &mut stream));
            let (expected, texts) = oracle(&stream);
            for cut in 0..=stream.len() {
                let (seen, seen_texts, left) = skim_pieces(&[&stream[..cut], &stream[cut..]]);
                prop_assert_eq!(seen, expected);
                prop_assert_eq!(&seen_texts, &texts);
                prop_assert_eq!(left, 0);
            }
            let bytes: Vec<&[u8]> = stream.chunks(1).collect();
            prop_assert_eq!(skim_pieces(&bytes).0, expected);
        }

        #[test]
        fn garbage_never_panics(stream in prop::collection::vec(prop::sample::select(&b"$*+-:%~>|!=_#,(012\r\nOK"[..]), 0..60)) {
            let (mut skimmer, mut tally) = (Skimmer::default(), Tally::default());
            let _ = skimmer.skim(&stream, u64::MAX, &mut tally, |_| {});
        }
    }

    #[test]
    fn stops_at_the_number_of_replies_asked_for() {
        let (mut skimmer, mut tally) = (Skimmer::default(), Tally::default());
        let used = skimmer.skim(b"+OK\r\n:1\r\n:2\r\n", 2, &mut tally, |_| {}).unwrap();
        assert_eq!((used, tally.replies), (9, 2));
    }

    #[test]
    fn attributes_and_bulk_errors_are_understood() {
        let stream = b"|1\r\n+ttl\r\n:3\r\n$-1\r\n!7\r\nERR bad\r\n*1\r\n|1\r\n+a\r\n+b\r\n:1\r\n";
        for cut in 0..=stream.len() {
            let (tally, texts, _) = skim_pieces(&[&stream[..cut], &stream[cut..]]);
            assert_eq!((tally.replies, tally.nulls, tally.errors), (3, 1, 1), "cut at {cut}");
            assert_eq!(texts, [b"ERR bad".to_vec()]);
        }
    }

    #[test]
    fn skim_refuses_malformed_replies() {
        let cases: &[&[u8]] = &[
            b"hello\r\n",
            b"HTTP/1.1 400 Bad Request\r\n",
            b"+OK\n",
            b"\n",
            b"$x\r\n",
            b"$-2\r\n",
            b"$\r\n",
            b"%-1\r\n",
            b"$1\r\nabc",
            b"$99999999999999999999\r\n",
        ];
        for input in cases {
            let (mut skimmer, mut tally) = (Skimmer::default(), Tally::default());
            assert!(skimmer.skim(input, u64::MAX, &mut tally, |_| {}).is_err(), "{}", input.escape_ascii());
        }
    }
}
