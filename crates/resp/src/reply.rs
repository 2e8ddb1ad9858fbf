//! Encoding of replies.
//!
//! A [`ReplyBuffer`] is bytes in order, with *splices*: places where a shared payload is to be sent
//! without having been copied.
//!
//! ```text
//! bytes    $3\r\nabc\r\n$1048576\r\n|\r\n+OK\r\n
//! splices                          ^ payload of 1 MiB
//! ```
//!
//! Every method appends one complete RESP element (or the header of an aggregate, whose elements the caller then
//! appends). A type that RESP2 lacks is written as its RESP2 equivalent, so that handlers
//! describe the reply once.

use std::sync::Arc;

use crate::{
    number::{exact_integer, write_double},
    shared::{ReplyChunk, SharedSlice},
};

/// The protocol version a connection speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// RESP2, the protocol with which every connection starts.
    #[default]
    Resp2,
    /// RESP3, after `HELLO 3`.
    Resp3,
}

/// A place in a [`ReplyBuffer`], to go back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    bytes: usize,
    splices: usize,
}

#[derive(Debug)]
struct Splice {
    /// The payload goes in front of this byte.
    at: usize,
    payload: SharedSlice,
}

/// Replies on their way to one connection.
#[derive(Debug, Default)]
pub struct ReplyBuffer {
    bytes: Vec<u8>,
    splices: Vec<Splice>,
    protocol: Protocol,
}

/// The last piece of a reply that is long. A worker's buffer that grew by a whole piece took the worker 5 ms, most of them
/// for the system to clear a huge page.
const TAIL_BYTES: usize = 64;

impl ReplyBuffer {
    /// Payloads of at least this many bytes are worth sending by reference: below it one more
    /// element of a vectored write costs more than the copy.
    pub const SPLICE_BYTES_MIN: usize = 16 * 1024;

    /// Bytes of a piece of a long reply: each is freed when it has left, since giving hundreds of megabytes
    /// back to the system at once takes long.
    pub const PIECE_BYTES: usize = 256 * 1024;

    /// The protocol that elements are written in.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Changes the protocol for the next replies.
    #[inline]
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// Whether nothing waits to be sent.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes that wait to be sent, spliced payloads included. O(splices).
    pub fn len(&self) -> usize {
        self.bytes.len() + self.splices.iter().map(|splice| splice.payload.len()).sum::<usize>()
    }

    /// Forgets everything, keeps up to `capacity_max` bytes of memory.
    pub fn clear(&mut self, capacity_max: usize) {
        self.bytes.clear();
        self.splices.clear();
        if self.bytes.capacity() > capacity_max {
            self.bytes.shrink_to(capacity_max);
        }
    }

    /// The pieces to send, in order.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.splices.iter().map(|splice| splice.at));
        let ends = self.splices.iter().map(|splice| splice.at).chain(std::iter::once(self.bytes.len()));
        let payloads = self.splices.iter().map(|splice| &splice.payload[..]).chain(std::iter::once(&[][..]));
        starts
            .zip(ends)
            .zip(payloads)
            .flat_map(|((start, end), payload)| [&self.bytes[start..end], payload])
            .filter(|chunk| !chunk.is_empty())
    }

    /// Whether the whole buffer is one run of bytes, the usual case; then it is [`Self::bytes`].
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.splices.is_empty()
    }

    /// The encoded bytes without the spliced payloads.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Exchanges the encoded bytes for `other`. Returns whether it did: not if something is spliced in, and not if the
    /// buffer has more memory than `capacity_max` bytes.
    #[inline]
    pub fn exchange(&mut self, other: &mut Vec<u8>, capacity_max: usize) -> bool {
        let may = self.is_contiguous() && self.bytes.capacity() <= capacity_max;
        if may {
            std::mem::swap(&mut self.bytes, other);
        }
        may
    }

    /// Takes the pieces out as owned chunks, leaving the buffer empty.
    pub fn take_chunks(&mut self) -> Vec<ReplyChunk> {
        let mut chunks = Vec::with_capacity(self.splices.len() + 2);
        let mut rest = std::mem::take(&mut self.bytes);
        for splice in self.splices.drain(..).rev() {
            // Payloads often stand side by side.
            if splice.at < rest.len() {
                chunks.push(ReplyChunk::Own(rest.split_off(splice.at)));
            }
            chunks.push(ReplyChunk::Shared(splice.payload));
        }
        if !rest.is_empty() {
            chunks.push(ReplyChunk::Own(rest));
        }
        chunks.reverse();
        chunks
    }

    /// Takes everything out in pieces of at most [`Self::PIECE_BYTES`]; payloads stay whole. The last piece of many
    /// bytes is short, as [`Self::append_pieces`] copies it.
    pub fn take_pieces(&mut self) -> Vec<SharedSlice> {
        let mut chunks = self.take_chunks();
        let tail = match chunks.last_mut() {
            Some(ReplyChunk::Own(last)) if last.len() >= Self::SPLICE_BYTES_MIN => {
                last.split_off(last.len() - TAIL_BYTES)
            }
            _ => Vec::new(),
        };
        let mut pieces = Vec::with_capacity(chunks.len() + 1);
        for chunk in chunks {
            match chunk {
                ReplyChunk::Own(bytes) if bytes.len() > Self::PIECE_BYTES => {
                    pieces.extend(
                        bytes.chunks(Self::PIECE_BYTES).map(|piece| SharedSlice::from(piece.to_vec())),
                    );
                }
                ReplyChunk::Own(bytes) => pieces.push(bytes.into()),
                ReplyChunk::Shared(payload) => pieces.push(payload),
            }
        }
        if !tail.is_empty() {
            pieces.push(tail.into());
        }
        pieces
    }

    /// Appends pieces by reference, all but the last.
    pub fn append_pieces(&mut self, pieces: &[SharedSlice]) {
        let Some((last, others)) = pieces.split_last() else { return };
        others.iter().for_each(|piece| self.raw_shared(piece.clone()));
        self.raw(last);
    }

    /// The encoded bytes, which nothing was spliced into.
    ///
    /// # Panics
    /// When something was: [`Self::bulk_shared`].
    pub fn into_bytes(self) -> Vec<u8> {
        assert!(self.is_contiguous(), "a payload is shared");
        self.bytes
    }

    /// The current end.
    #[inline]
    pub fn mark(&self) -> Mark {
        Mark { bytes: self.bytes.len(), splices: self.splices.len() }
    }

    /// Drops everything behind `mark`.
    pub fn rewind(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        self.splices.truncate(mark.splices);
    }

    /// Takes everything behind `mark` out.
    pub fn split_off(&mut self, mark: Mark) -> ReplyBuffer {
        let bytes = self.bytes.split_off(mark.bytes);
        let splices = self.splices.drain(mark.splices..);
        let splices = splices.map(|splice| Splice { at: splice.at - mark.bytes, ..splice }).collect();
        ReplyBuffer { bytes, splices, protocol: self.protocol }
    }

    /// Bytes written since `mark`, payloads included.
    pub fn bytes_since(&self, mark: Mark) -> usize {
        let spliced: usize = self.splices[mark.splices..].iter().map(|splice| splice.payload.len()).sum();
        self.bytes.len() - mark.bytes + spliced
    }

    /// Appends bytes that are already encoded.
    #[inline]
    pub fn raw(&mut self, encoded: &[u8]) {
        self.bytes.extend_from_slice(encoded);
    }

    /// Appends encoded bytes by reference; something else has to follow them.
    pub fn raw_shared(&mut self, encoded: SharedSlice) {
        self.splices.push(Splice { at: self.bytes.len(), payload: encoded });
    }

    /// Appends everything from `other`, leaving it empty.
    pub fn append(&mut self, other: &mut ReplyBuffer) {
        let offset = self.bytes.len();
        self.bytes.append(&mut other.bytes);
        self.splices
            .extend(other.splices.drain(..).map(|splice| Splice { at: splice.at + offset, ..splice }));
    }

    /// `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.bytes.extend_from_slice(b"+OK\r\n");
    }

    /// A simple string; `text` has no line breaks.
    pub fn simple(&mut self, text: &str) {
        debug_assert!(!text.contains(['\r', '\n']));
        self.line(b'+', text.as_bytes());
    }

    /// An error, code first (`ERR …`, `WRONGTYPE …`). Line breaks in `text`, which may quote a
    /// client's bytes, become blanks.
    pub fn error(&mut self, text: impl AsRef<[u8]>) {
        self.bytes.push(b'-');
        self.bytes.extend(
            text.as_ref().iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }),
        );
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        self.header(b':', value);
    }

    /// A count or length as an integer.
    #[inline]
    pub fn count(&mut self, value: usize) {
        self.header(b':', value as i64);
    }

    /// A bulk string.
    #[inline]
    pub fn bulk(&mut self, payload: &[u8]) {
        self.header(b'$', payload.len() as i64);
        self.bytes.reserve(payload.len() + 2);
        self.bytes.extend_from_slice(payload);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// A bulk string that is shared rather than copied when it is large.
    pub fn bulk_shared(&mut self, payload: &Arc<Vec<u8>>) {
        if payload.len() < Self::SPLICE_BYTES_MIN {
            return self.bulk(payload);
        }
        self.bulk_pieces(payload.len(), [Arc::clone(payload).into()]);
    }

    /// A bulk string of `length` bytes that stand in pieces, which are shared.
    pub fn bulk_pieces(&mut self, length: usize, pieces: impl IntoIterator<Item = SharedSlice>) {
        self.header(b'$', length as i64);
        let before = self.splices.len();
        let at = self.bytes.len();
        self.splices.extend(pieces.into_iter().map(|payload| Splice { at, payload }));
        debug_assert_eq!(
            self.splices[before..].iter().map(|splice| splice.payload.len()).sum::<usize>(),
            length
        );
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// An integer as a bulk string.
    #[inline]
    pub fn bulk_integer(&mut self, value: i64) {
        self.bulk(itoa::Buffer::new().format(value).as_bytes());
    }

    /// The null of the protocol: `_` in RESP3, the null bulk string in RESP2.
    #[inline]
    pub fn null(&mut self) {
        self.bytes.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"$-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// Like [`Self::null`], if RESP2 clients expect the null array.
    pub fn null_array(&mut self) {
        self.bytes.extend_from_slice(match self.protocol {
            Protocol::Resp2 => b"*-1\r\n",
            Protocol::Resp3 => b"_\r\n",
        });
    }

    /// The header of an array of `length` elements.
    #[inline]
    pub fn array(&mut self, length: usize) {
        self.header(b'*', length as i64);
    }

    /// The header of a map of `pairs` keys and values; a flat array in RESP2.
    pub fn map(&mut self, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', 2 * pairs as i64),
            Protocol::Resp3 => self.header(b'%', pairs as i64),
        }
    }

    /// The header of a set; an array in RESP2.
    pub fn set(&mut self, length: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', length as i64),
            Protocol::Resp3 => self.header(b'~', length as i64),
        }
    }

    /// The header of an out-of-band push; an array in RESP2.
    pub fn push(&mut self, length: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header(b'*', length as i64),
            Protocol::Resp3 => self.header(b'>', length as i64),
        }
    }

    /// A double; a bulk string in RESP2.
    pub fn double(&mut self, value: f64) {
        match self.protocol {
            Protocol::Resp2 => match exact_integer(value).filter(|integer| *integer != 0) {
                Some(integer) => self.bulk_integer(integer),
                None => {
                    let mut text = Vec::with_capacity(24);
                    write_double(&mut text, value);
                    self.bulk(&text);
                }
            },
            Protocol::Resp3 => {
                self.bytes.push(b',');
                write_double(&mut self.bytes, value);
                self.bytes.extend_from_slice(b"\r\n");
            }
        }
    }

    /// A double whose text is already there; a bulk string in RESP2.
    pub fn double_text(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => self.line(b',', text.as_bytes()),
        }
    }

    /// A boolean; `:1` or `:0` in RESP2.
    pub fn boolean(&mut self, value: bool) {
        self.bytes.extend_from_slice(match (self.protocol, value) {
            (Protocol::Resp2, true) => b":1\r\n",
            (Protocol::Resp2, false) => b":0\r\n",
            (Protocol::Resp3, true) => b"#t\r\n",
            (Protocol::Resp3, false) => b"#f\r\n",
        });
    }

    /// A number too large for an integer, as decimal digits; a bulk string in RESP2.
    pub fn big_number(&mut self, digits: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(digits.as_bytes()),
            Protocol::Resp3 => self.line(b'(', digits.as_bytes()),
        }
    }

    /// Text with a three-letter format (`txt`, `mkd`); a bulk string in RESP2.
    pub fn verbatim(&mut self, format: &[u8; 3], text: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => {
                self.header(b'=', text.len() as i64 + 4);
                self.bytes.extend_from_slice(format);
                self.bytes.push(b':');
                self.bytes.extend_from_slice(text);
                self.bytes.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Writes the header of an array in front of the elements that were appended since `mark`.
    /// O(bytes since the mark): for replies whose length is known only at the end.
    pub fn array_since(&mut self, mark: Mark, length: usize) {
        self.header_since(mark, b'*', length);
    }

    /// [`Self::array_since`] for a map of `pairs` keys and values; a flat array in RESP2.
    pub fn map_since(&mut self, mark: Mark, pairs: usize) {
        match self.protocol {
            Protocol::Resp2 => self.header_since(mark, b'*', 2 * pairs),
            Protocol::Resp3 => self.header_since(mark, b'%', pairs),
        }
    }

    fn header_since(&mut self, mark: Mark, kind: u8, length: usize) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(length).as_bytes();
        let header = 1 + digits.len() + 2;
        let encoded = std::iter::once(kind).chain(digits.iter().copied()).chain(*b"\r\n");
        self.bytes.splice(mark.bytes..mark.bytes, encoded);
        for splice in &mut self.splices[mark.splices..] {
            splice.at += header;
        }
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(text);
        self.bytes.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn header(&mut self, kind: u8, value: i64) {
        // Lengths and counts are mostly below 1000: one append of a word, cut to its used part.
        if (0..1000).contains(&value) {
            let (word, length) = short_header(kind, value as u32);
            let end = self.bytes.len() + length;
            self.bytes.extend_from_slice(&word);
            self.bytes.truncate(end);
        } else {
            self.long_header(kind, value);
        }
    }

    #[inline(never)]
    fn long_header(&mut self, kind: u8, value: i64) {
        self.line(kind, itoa::Buffer::new().format(value).as_bytes());
    }
}

/// The header of a value below 1000, and how many of the bytes it takes.
#[inline]
fn short_header(kind: u8, value: u32) -> ([u8; 8], usize) {
    debug_assert!(value < 1000);
    let digit = |value: u32| b'0' + value as u8;
    if value < 10 {
        return ([kind, digit(value), b'\r', b'\n', 0, 0, 0, 0], 4);
    }
    let (tens, ones) = (value / 10, value % 10);
    if tens < 10 {
        return ([kind, digit(tens), digit(ones), b'\r', b'\n', 0, 0, 0], 5);
    }
    ([kind, digit(tens / 10), digit(tens % 10), digit(ones), b'\r', b'\n', 0, 0], 6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(protocol: Protocol, expected: &str, write: impl FnOnce(&mut ReplyBuffer)) {
        let mut reply = ReplyBuffer::default();
        reply.set_protocol(protocol);
        write(&mut reply);
        let sent: Vec<u8> = reply.chunks().flatten().copied().collect();
        assert_eq!(String::from_utf8(sent).unwrap(), expected);
        assert_eq!(reply.len(), expected.len());
    }

    #[test]
    fn elements_in_both_protocols() {
        use Protocol::{Resp2, Resp3};
        type Write = fn(&mut ReplyBuffer);
        let rows: &[(Write, &str, &str)] = &[
            (|r| r.ok(), "+OK\r\n", "+OK\r\n"),
            (|r| r.integer(-12), ":-12\r\n", ":-12\r\n"),
            (|r| r.count(10), ":10\r\n", ":10\r\n"),
            (|r| r.count(999), ":999\r\n", ":999\r\n"),
            (|r| r.count(1000), ":1000\r\n", ":1000\r\n"),
            (|r| r.bulk(b""), "$0\r\n\r\n", "$0\r\n\r\n"),
            (|r| r.bulk(b"hello"), "$5\r\nhello\r\n", "$5\r\nhello\r\n"),
            (|r| r.null(), "$-1\r\n", "_\r\n"),
            (|r| r.null_array(), "*-1\r\n", "_\r\n"),
            (|r| r.map(2), "*4\r\n", "%2\r\n"),
            (|r| r.set(2), "*2\r\n", "~2\r\n"),
            (|r| r.push(3), "*3\r\n", ">3\r\n"),
            (|r| r.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
            (|r| r.double_text("0.10"), "$4\r\n0.10\r\n", ",0.10\r\n"),
            (|r| r.boolean(true), ":1\r\n", "#t\r\n"),
            (|r| r.verbatim(b"txt", b"hi"), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"),
            (|r| r.error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n"),
        ];
        for (write, resp2, resp3) in rows {
            check(Resp2, resp2, write);
            check(Resp3, resp3, write);
        }
    }

    #[test]
    fn large_payloads_are_spliced_in_place() {
        let large = Arc::new(vec![b'x'; ReplyBuffer::SPLICE_BYTES_MIN]);
        let write = |reply: &mut ReplyBuffer| {
            let mark = reply.mark();
            reply.bulk(b"a");
            reply.bulk_shared(&large);
            reply.bulk_shared(&large);
            reply.array_since(mark, 3);
        };
        let x = "x".repeat(large.len());
        let expected = format!("*3\r\n$1\r\na\r\n$16384\r\n{x}\r\n$16384\r\n{x}\r\n");
        check(Protocol::Resp2, &expected, write);

        let mut reply = ReplyBuffer::default();
        write(&mut reply);
        let owned: Vec<u8> = reply.take_chunks().iter().flat_map(|chunk| chunk.iter().copied()).collect();
        assert_eq!(owned, expected.as_bytes());
        assert!(reply.is_empty());
    }

    #[test]
    fn little_is_copied_of_pieces_that_are_appended() {
        for length in [0, 1, ReplyBuffer::SPLICE_BYTES_MIN - 1, ReplyBuffer::SPLICE_BYTES_MIN, 3 << 20] {
            let text: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let (mut made, mut sent) = (ReplyBuffer::default(), ReplyBuffer::default());
            made.raw(&text);
            let pieces = made.take_pieces();
            assert!(pieces.iter().all(|piece| (1..=ReplyBuffer::PIECE_BYTES).contains(&piece.len())));
            sent.append_pieces(&pieces);
            assert!(sent.bytes.len() < ReplyBuffer::SPLICE_BYTES_MIN, "{} of {length}", sent.bytes.len());
            assert_eq!(sent.take_chunks().iter().flat_map(|chunk| chunk.to_vec()).collect::<Vec<_>>(), text);
        }
    }

    #[test]
    fn rewinding_drops_what_came_after() {
        let large = Arc::new(vec![b'x'; ReplyBuffer::SPLICE_BYTES_MIN]);
        check(Protocol::Resp2, "+OK\r\n-ERR no\r\n", |reply| {
            reply.ok();
            let mark = reply.mark();
            reply.array(2);
            reply.bulk_shared(&large);
            assert_eq!(reply.bytes_since(mark), 4 + 8 + large.len() + 2);
            reply.rewind(mark);
            reply.error("ERR no");
        });
    }
}
