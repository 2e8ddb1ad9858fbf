//! A command as a template, and the buffer of ready-to-send requests made from it.
//!
//! ```text
//! SET key:__rand_int__ __data__
//!
//! *3␍␊$3␍␊SET␍␊$16␍␊key:000000417731␍␊$100␍␊…random bytes…␍␊ | *3␍␊$3␍␊SET␍␊… | …
//!                      ^ twelve digits, patched in place before each send
//! ```
//!
//! Invariant: placeholders have a fixed width, so all requests of a template have the same length
//! and a pipeline is a prefix of one buffer.

use crate::random::Random;

/// Bytes of requests that are rendered ahead. More would leave the processor's cache.
const RENDERED_BYTES_MAX: usize = 256 * 1024;
/// Digits of `__rand_int__` and `__seq_int__`, as in redis-benchmark.
pub const INTEGER_DIGITS: usize = 12;
/// Largest key space that twelve digits can name.
pub const KEYSPACE_MAX: u64 = 1_000_000_000_000;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(Vec<u8>),
    /// `__rand_int__`: below the key space, drawn anew for every occurrence.
    RandomInteger,
    /// `__seq_int__`: the request's number, modulo the key space.
    SequenceInteger,
    /// `__data__`: random bytes.
    Data,
}

const PLACEHOLDERS: [(&[u8], Piece); 3] = [
    (b"__rand_int__", Piece::RandomInteger),
    (b"__seq_int__", Piece::SequenceInteger),
    (b"__data__", Piece::Data),
];

/// A command whose arguments may hold placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Template {
    /// Sent as it is, without RESP framing.
    Inline(Vec<u8>),
    /// Sent as an array of bulk strings.
    Command(Arguments),
}

/// The arguments of a command, cut at their placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments(Vec<Vec<Piece>>);

impl Template {
    /// A command of the given arguments.
    pub fn command<A: AsRef<[u8]>>(arguments: &[A]) -> Self {
        Self::Command(Arguments(arguments.iter().map(|argument| pieces(argument.as_ref())).collect()))
    }

    /// A command written as words separated by blanks.
    pub fn words(text: &str) -> Self {
        let words: Vec<&str> = text.split_whitespace().collect();
        Self::command(&words)
    }
}

fn pieces(argument: &[u8]) -> Vec<Piece> {
    let (mut pieces, mut rest) = (Vec::new(), argument);
    while !rest.is_empty() {
        let next = PLACEHOLDERS
            .iter()
            .filter_map(|(text, piece)| Some((memchr::memmem::find(rest, text)?, text.len(), piece)))
            .min_by_key(|(at, ..)| *at);
        let literal_bytes = next.map_or(rest.len(), |(at, ..)| at);
        if literal_bytes > 0 {
            pieces.push(Piece::Literal(rest[..literal_bytes].to_vec()));
        }
        rest = match next {
            Some((at, length, piece)) => {
                pieces.push(piece.clone());
                &rest[at + length..]
            }
            None => &[],
        };
    }
    pieces
}

/// What placeholders stand for.
#[derive(Debug, Clone, Copy)]
pub struct Filling {
    /// `__rand_int__` is below this; 1 when the user named no key space, so it is always 0.
    pub keyspace: u64,
    /// Whether the user named a key space; without one, `__seq_int__` counts on without end.
    pub keyspace_given: bool,
    /// Length of `__data__` in bytes.
    pub data_bytes: usize,
}

impl Filling {
    /// The key space of `-r` (nothing when omitted) and the payload of `-d`.
    pub fn new(keyspace: Option<u64>, data_bytes: usize) -> Self {
        Self { keyspace: keyspace.unwrap_or(1).max(1), keyspace_given: keyspace.is_some(), data_bytes }
    }
}

/// Requests ready to send; only their digits change from one pipeline to the next.
#[derive(Debug)]
pub struct RequestBuffer {
    bytes: Vec<u8>,
    request_bytes: usize,
    requests: usize,
    /// Where in a request the random integers lie.
    random_at: Vec<usize>,
    /// Where in a request its sequence number lies.
    sequence_at: Vec<usize>,
    filling: Filling,
    random: Random,
}

impl RequestBuffer {
    /// Renders up to `requests_max` requests ahead; at least one, and only as many as stay in cache.
    pub fn new(template: &Template, requests_max: usize, filling: Filling, mut random: Random) -> Self {
        let mut buffer = Self {
            bytes: Vec::new(),
            request_bytes: 0,
            requests: 1,
            random_at: Vec::new(),
            sequence_at: Vec::new(),
            filling,
            random: Random::new(random.next()),
        };
        let mut data_at = Vec::new();
        match template {
            Template::Inline(text) => buffer.bytes.extend_from_slice(text),
            Template::Command(Arguments(arguments)) => {
                buffer.bytes.extend_from_slice(format!("*{}\r\n", arguments.len()).as_bytes());
                for argument in arguments {
                    buffer.append_argument(argument, &mut data_at);
                }
            }
        }
        buffer.request_bytes = buffer.bytes.len();
        buffer.requests = (RENDERED_BYTES_MAX / buffer.request_bytes.max(1)).clamp(1, requests_max.max(1));
        buffer.bytes = buffer.bytes.repeat(buffer.requests);
        for request in buffer.bytes.chunks_exact_mut(buffer.request_bytes.max(1)) {
            for &at in &data_at {
                random.fill(&mut request[at..at + filling.data_bytes]);
            }
        }
        buffer
    }

    fn append_argument(&mut self, argument: &[Piece], data_at: &mut Vec<usize>) {
        let length: usize = argument
            .iter()
            .map(|piece| match piece {
                Piece::Literal(text) => text.len(),
                Piece::RandomInteger | Piece::SequenceInteger => INTEGER_DIGITS,
                Piece::Data => self.filling.data_bytes,
            })
            .sum();
        self.bytes.extend_from_slice(format!("${length}\r\n").as_bytes());
        for piece in argument {
            let at = self.bytes.len();
            match piece {
                Piece::Literal(text) => self.bytes.extend_from_slice(text),
                Piece::RandomInteger => self.random_at.push(at),
                Piece::SequenceInteger => self.sequence_at.push(at),
                Piece::Data => data_at.push(at),
            }
            let width = match piece {
                Piece::Literal(_) => 0,
                Piece::RandomInteger | Piece::SequenceInteger => INTEGER_DIGITS,
                Piece::Data => self.filling.data_bytes,
            };
            self.bytes.resize(self.bytes.len() + width, b'0');
        }
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// How many requests one call to [`fresh`](Self::fresh) can give.
    pub fn requests_max(&self) -> usize {
        self.requests
    }

    /// The bytes of `count` requests with fresh random integers; the first of them has the number
    /// `first` in the sequence.
    #[inline]
    pub fn fresh(&mut self, count: usize, first: u64) -> &[u8] {
        assert!(count <= self.requests, "more requests than were rendered");
        let used = &mut self.bytes[..count * self.request_bytes];
        if !self.random_at.is_empty() || !self.sequence_at.is_empty() {
            for (index, request) in used.chunks_exact_mut(self.request_bytes).enumerate() {
                for &at in &self.random_at {
                    write_digits(
                        &mut request[at..at + INTEGER_DIGITS],
                        self.random.below(self.filling.keyspace),
                    );
                }
                let mut number = first + index as u64;
                if self.filling.keyspace_given {
                    number %= self.filling.keyspace;
                }
                for &at in &self.sequence_at {
                    write_digits(&mut request[at..at + INTEGER_DIGITS], number % KEYSPACE_MAX);
                }
            }
        }
        used
    }
}

/// The texts `00` to `99` side by side.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

/// Writes `number` (below 10^12) as twelve digits.
#[inline]
fn write_digits(out: &mut [u8], number: u64) {
    debug_assert!(number < KEYSPACE_MAX && out.len() == INTEGER_DIGITS);
    let halves = [(number / 1_000_000) as u32, (number % 1_000_000) as u32];
    for (half, out) in halves.into_iter().zip(out.chunks_exact_mut(6)) {
        out[0..2].copy_from_slice(&PAIRS[(half / 10_000) as usize % 100]);
        out[2..4].copy_from_slice(&PAIRS[(half / 100) as usize % 100]);
        out[4..6].copy_from_slice(&PAIRS[half as usize % 100]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dunlin_resp::{Value, ValueDecoder};
    use std::collections::HashSet;

    fn buffer(
        template: &Template,
        requests: usize,
        keyspace: Option<u64>,
        data_bytes: usize,
    ) -> RequestBuffer {
        RequestBuffer::new(template, requests, Filling::new(keyspace, data_bytes), Random::new(1))
    }

    /// The arguments of every request in `bytes`: a request is a valid reply, so the decoder of
    /// replies reads it.
    fn requests(bytes: &[u8]) -> Vec<Vec<Vec<u8>>> {
        let (mut requests, mut at) = (Vec::new(), 0);
        while let (used, Some(Value::Array(items))) = ValueDecoder::default().decode(&bytes[at..]).unwrap() {
            at += used;
            requests.push(items.iter().map(|item| item.as_bytes().unwrap().to_vec()).collect());
        }
        assert_eq!(at, bytes.len());
        requests
    }

    #[test]
    fn a_template_without_placeholders_is_sent_as_written() {
        let mut buffer = buffer(&Template::command(&["GET", "a b"]), 2, None, 3);
        assert_eq!(buffer.fresh(2, 0), b"*2\r\n$3\r\nGET\r\n$3\r\na b\r\n*2\r\n$3\r\nGET\r\n$3\r\na b\r\n");
        assert_eq!(buffer.fresh(1, 0).len(), 22);
    }

    #[test]
    fn every_occurrence_is_drawn_anew_below_the_key_space() {
        let template = Template::words("MSET k:__rand_int__ v__rand_int__x k:__rand_int__ __data__");
        let mut buffer = buffer(&template, 50, Some(1_000_000), 20);
        let mut seen = HashSet::new();
        for _ in 0..2 {
            for request in requests(buffer.fresh(50, 0)) {
                let digits = |argument: &[u8]| std::str::from_utf8(argument).unwrap().parse::<u64>().unwrap();
                for number in [digits(&request[1][2..]), digits(&request[2][1..13]), digits(&request[3][2..])]
                {
                    assert!(number < 1_000_000);
                    seen.insert(number);
                }
                assert_eq!((request[1].len(), request[2].len(), request[4].len()), (14, 14, 20));
            }
        }
        assert!(seen.len() > 295, "300 draws of a million gave only {} numbers", seen.len());
    }

    #[test]
    fn without_a_key_space_there_is_one_key() {
        let mut buffer = buffer(&Template::words("GET key:__rand_int__"), 3, None, 3);
        for request in requests(buffer.fresh(3, 0)) {
            assert_eq!(request[1], b"key:000000000000");
        }
    }

    #[test]
    fn sequence_numbers_count_requests_and_wrap_at_the_key_space() {
        let template = Template::words("SET __seq_int__ a__seq_int__");
        let mut counted = buffer(&template, 3, Some(10), 3);
        let keys: Vec<_> =
            requests(counted.fresh(3, 8)).into_iter().map(|mut request| request.remove(1)).collect();
        assert_eq!(keys, [b"000000000008".to_vec(), b"000000000009".to_vec(), b"000000000000".to_vec()]);
        let mut endless = buffer(&template, 1, None, 3);
        assert_eq!(requests(endless.fresh(1, 123_456_789_012))[0][2], b"a123456789012");
    }

    #[test]
    fn payloads_are_random_and_differ_between_requests() {
        let mut buffer = buffer(&Template::words("SET k __data__"), 100, None, 64);
        let payloads: HashSet<_> =
            requests(buffer.fresh(100, 0)).into_iter().map(|mut request| request.remove(2)).collect();
        assert_eq!(payloads.len(), 100);
        assert!(payloads.iter().all(|payload| payload.iter().collect::<HashSet<_>>().len() > 20));
    }

    #[test]
    fn large_requests_are_not_rendered_far_ahead() {
        let buffer = buffer(&Template::words("SET k __data__"), 1000, None, 1 << 20);
        assert_eq!(buffer.requests_max(), 1);
        assert!(buffer.bytes.len() < 2 << 20);
    }

    #[test]
    fn digits_are_exact_at_the_edges() {
        for number in [0, 9, 10, 99_999, 1_000_000, 123_456_789_012, KEYSPACE_MAX - 1] {
            let mut out = [0; INTEGER_DIGITS];
            write_digits(&mut out, number);
            assert_eq!(std::str::from_utf8(&out).unwrap(), format!("{number:012}"));
        }
    }
}
