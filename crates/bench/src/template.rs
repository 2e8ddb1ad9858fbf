//! A command as a template, and the buffer of ready-to-send requests made from it.
//!
//! ```text
//! SET key:__rand_int__ __data__
//!
//! *3␍␊$3␍␊SET␍␊$16␍␊key:000000417731␍␊$100␍␊…random bytes…␍␊ | *3␍␊$3␍␊SET␍␊… | …
//!                      ^ twelve digits, patched in place before each send
//! ```
//!
//! Invariant: placeholders have a fixed width, so all requests of a command have the same length and a
//! pipeline is a prefix of one buffer. Only a mix of several commands is copied together.

use crate::distribution::{Zipf, scattered};
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
    /// Each request is one of several commands, drawn by their shares. A mix holds no mixes.
    Mix(Vec<(u32, Template)>),
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

    /// Several commands, written as words, with their shares of the requests.
    pub fn mix(commands: &[(u32, &str)]) -> Self {
        assert!(commands.iter().any(|(share, _)| *share > 0), "a mix needs a share");
        Self::Mix(commands.iter().map(|(share, words)| (*share, Self::words(words))).collect())
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

/// The values of placeholders.
#[derive(Debug, Clone, Copy)]
pub struct Filling {
    /// `__rand_int__` is below this; 1 when the user named no key space, so it is always 0.
    pub keyspace: u64,
    /// Whether the user named a key space; without one, `__seq_int__` counts on without end.
    pub keyspace_given: bool,
    /// Exponent of Zipf's law by which `__rand_int__` is drawn, popular numbers scattered over the key
    /// space; uniform without.
    pub zipf_exponent: Option<f64>,
    /// Length of `__data__` in bytes.
    pub data_bytes: usize,
}

impl Filling {
    /// The key space of `-r` (nothing when omitted) and the payload of `-d`.
    pub fn new(keyspace: Option<u64>, data_bytes: usize) -> Self {
        let keyspace_given = keyspace.is_some();
        Self { keyspace: keyspace.unwrap_or(1).max(1), keyspace_given, zipf_exponent: None, data_bytes }
    }
}

/// Requests of one command, rendered ahead; only their digits change.
#[derive(Debug)]
struct Rendered {
    bytes: Vec<u8>,
    request_bytes: usize,
    requests: usize,
    /// Places of the random integers in a request.
    random_at: Vec<usize>,
    /// Place of its sequence number in a request.
    sequence_at: Vec<usize>,
}

/// Draws the numbers that `__rand_int__` stands for.
#[derive(Debug)]
struct Keys {
    filling: Filling,
    zipf: Option<Zipf>,
    random: Random,
}

impl Keys {
    fn new(filling: Filling, random: Random) -> Self {
        let zipf = filling.zipf_exponent.map(|exponent| Zipf::new(filling.keyspace, exponent));
        Self { filling, zipf, random }
    }

    #[inline]
    fn draw(&mut self) -> u64 {
        match &self.zipf {
            None => self.random.below(self.filling.keyspace),
            Some(zipf) => scattered(zipf.sample(&mut self.random) - 1, self.filling.keyspace),
        }
    }

    fn number(&self, request: u64) -> u64 {
        let number = if self.filling.keyspace_given { request % self.filling.keyspace } else { request };
        number % KEYSPACE_MAX
    }
}

impl Rendered {
    fn new(arguments: &[Vec<Piece>], requests_max: usize, data_bytes: usize, random: &mut Random) -> Self {
        let mut rendered = Self {
            bytes: format!("*{}\r\n", arguments.len()).into_bytes(),
            request_bytes: 0,
            requests: 1,
            random_at: Vec::new(),
            sequence_at: Vec::new(),
        };
        let mut data_at = Vec::new();
        for argument in arguments {
            rendered.append_argument(argument, data_bytes, &mut data_at);
        }
        rendered.repeat(requests_max);
        for request in rendered.bytes.chunks_exact_mut(rendered.request_bytes) {
            for &at in &data_at {
                random.fill(&mut request[at..at + data_bytes]);
            }
        }
        rendered
    }

    fn inline(text: &[u8], requests_max: usize) -> Self {
        let (random_at, sequence_at) = (Vec::new(), Vec::new());
        let mut rendered =
            Self { bytes: text.to_vec(), request_bytes: 0, requests: 1, random_at, sequence_at };
        rendered.repeat(requests_max);
        rendered
    }

    fn append_argument(&mut self, argument: &[Piece], data_bytes: usize, data_at: &mut Vec<usize>) {
        let width = |piece: &Piece| match piece {
            Piece::Literal(text) => text.len(),
            Piece::RandomInteger | Piece::SequenceInteger => INTEGER_DIGITS,
            Piece::Data => data_bytes,
        };
        let length: usize = argument.iter().map(width).sum();
        self.bytes.extend_from_slice(format!("${length}\r\n").as_bytes());
        for piece in argument {
            let at = self.bytes.len();
            match piece {
                Piece::Literal(_) => {}
                Piece::RandomInteger => self.random_at.push(at),
                Piece::SequenceInteger => self.sequence_at.push(at),
                Piece::Data => data_at.push(at),
            }
            match piece {
                Piece::Literal(text) => self.bytes.extend_from_slice(text),
                _ => self.bytes.resize(at + width(piece), b'0'),
            }
        }
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Makes of the one request as many as stay in cache.
    fn repeat(&mut self, requests_max: usize) {
        self.request_bytes = self.bytes.len().max(1);
        self.requests = (RENDERED_BYTES_MAX / self.request_bytes).clamp(1, requests_max.max(1));
        self.bytes = self.bytes.repeat(self.requests);
    }

    /// The bytes of `count` requests from the `from`-th rendered one on, with fresh integers.
    #[inline]
    fn fresh(&mut self, from: usize, count: usize, first: u64, keys: &mut Keys) -> &[u8] {
        let used = &mut self.bytes[from * self.request_bytes..(from + count) * self.request_bytes];
        if !self.random_at.is_empty() || !self.sequence_at.is_empty() {
            for (index, request) in used.chunks_exact_mut(self.request_bytes).enumerate() {
                for &at in &self.random_at {
                    write_digits(&mut request[at..at + INTEGER_DIGITS], keys.draw());
                }
                let number = keys.number(first + index as u64);
                for &at in &self.sequence_at {
                    write_digits(&mut request[at..at + INTEGER_DIGITS], number);
                }
            }
        }
        used
    }
}

/// Requests ready to send.
#[derive(Debug)]
pub struct RequestBuffer {
    /// The commands, each with the end of its share among 0 to `shares`.
    commands: Vec<(u64, Rendered)>,
    shares: u64,
    /// Requests of several commands side by side.
    mixed: Vec<u8>,
    requests: usize,
    keys: Keys,
}

impl RequestBuffer {
    /// Renders up to `requests_max` requests ahead; at least one, and only as many as stay in cache.
    pub fn new(template: &Template, requests_max: usize, filling: Filling, mut random: Random) -> Self {
        let keys = Keys::new(filling, Random::new(random.draw()));
        let mut render = |template: &Template| match template {
            Template::Inline(text) => Rendered::inline(text, requests_max),
            Template::Command(Arguments(arguments)) => {
                Rendered::new(arguments, requests_max, filling.data_bytes, &mut random)
            }
            Template::Mix(_) => unreachable!("a mix holds plain commands"),
        };
        let mut commands = Vec::new();
        let mut shares = 0;
        match template {
            Template::Mix(mix) => {
                for (share, command) in mix {
                    shares += u64::from(*share);
                    commands.push((shares, render(command)));
                }
            }
            plain => commands.push((1, render(plain))),
        }
        let requests = commands.iter().map(|(_, rendered)| rendered.requests).min().unwrap_or(1);
        Self { commands, shares, mixed: Vec::new(), requests, keys }
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
        let Self { commands, shares, mixed, keys, .. } = self;
        if commands.len() == 1 {
            return commands[0].1.fresh(0, count, first, keys);
        }
        mixed.clear();
        for index in 0..count {
            let drawn = keys.random.below(*shares);
            let chosen = commands.iter().position(|(end, _)| drawn < *end).unwrap_or(0);
            let number = first + index as u64;
            mixed.extend_from_slice(commands[chosen].1.fresh(index, 1, number, keys));
        }
        mixed
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
    fn template_without_placeholders_is_sent_as_written() {
        let mut buffer = buffer(&Template::command(&["GET", "a b"]), 2, None, 3);
        assert_eq!(buffer.fresh(2, 0), b"*2\r\n$3\r\nGET\r\n$3\r\na b\r\n*2\r\n$3\r\nGET\r\n$3\r\na b\r\n");
        assert_eq!(buffer.fresh(1, 0).len(), 22);
    }

    #[test]
    fn placeholders_are_drawn_anew_below_the_key_space() {
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
    fn placeholder_without_a_key_space_is_one_key() {
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
    fn mix_draws_its_commands_by_their_shares() {
        let mix = Template::mix(&[(80, "GET key:__rand_int__"), (20, "SET key:__seq_int__ __data__")]);
        let mut buffer = buffer(&mix, 16, Some(1000), 10);
        let (mut gets, mut sets) = (0, 0);
        for batch in 0..500 {
            for (index, request) in requests(buffer.fresh(16, batch * 16)).into_iter().enumerate() {
                if request[0] == b"GET" {
                    gets += 1;
                } else {
                    let number = (batch * 16 + index as u64) % 1000;
                    assert_eq!(
                        (request[1].clone(), request[2].len()),
                        (format!("key:{number:012}").into(), 10)
                    );
                    sets += 1;
                }
            }
        }
        assert_eq!(gets + sets, 8000);
        assert!((1450..1750).contains(&sets), "{sets} of 8000 instead of a fifth");
    }

    #[test]
    fn zipf_exponent_gives_few_keys_many_requests() {
        let filling = Filling { zipf_exponent: Some(0.99), ..Filling::new(Some(10_000), 3) };
        let mut buffer =
            RequestBuffer::new(&Template::words("GET __rand_int__"), 100, filling, Random::new(1));
        let mut seen = std::collections::HashMap::new();
        for _ in 0..200 {
            for request in requests(buffer.fresh(100, 0)) {
                *seen.entry(request[1].clone()).or_insert(0) += 1;
            }
        }
        // The first of 10,000 has a probability of about a tenth, and is not the number 0.
        let (key, count) = seen.iter().max_by_key(|(_, count)| **count).unwrap();
        assert!((1700..2500).contains(count) && **key != b"000000000000"[..], "{count}");
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
        assert!(buffer.commands[0].1.bytes.len() < 2 << 20);
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
