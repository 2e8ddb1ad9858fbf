//! Decoding of requests, in place and incrementally.
//!
//! The decoder is given the unread part of a connection's input again and again; it takes whole commands off its front.
//! The decoder remembers how many arguments an arriving command has, and where each lies, so that it scans a command of
//! a million arguments once, however many pieces the command comes in.
//!
//! A long argument can be cut out of the input while it arrives ([`RequestDecoder::detach`]): the caller keeps its bytes, and
//! presents the rest of the input as if they had never been there.
//!
//! Invariants:
//! - A span in a [`Batch`] lies inside the input that the batch was decoded from (or inside the
//!   batch's own text, for quoted inline words, or is a detached argument).
//! - A command with detached arguments is the only one of its batch.
//! - Nothing is allocated for an announced length; memory follows the bytes that have arrived.
//! - After an error the connection must be closed: the input cannot be resynchronized.

use crate::{
    SharedSlice,
    detached::{Detached, DetachedArguments, Place},
    number::parse_integer,
};

/// Longest header line, and longest inline request, in bytes.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// Most arguments of one request.
const ARGUMENTS_MAX: i64 = i32::MAX as i64;
/// Most arguments of a request before the client has authenticated.
const UNAUTHENTICATED_ARGUMENTS_MAX: i64 = 10;
/// Longest argument, header line and inline request, in bytes, before the client has authenticated.
const UNAUTHENTICATED_BULK_BYTES_MAX: usize = 16 * 1024;
/// Longest request, in bytes, before the client has authenticated: one argument that is as long as may be, and its headers.
const UNAUTHENTICATED_REQUEST_BYTES_MAX: usize = UNAUTHENTICATED_BULK_BYTES_MAX + 1024;
/// Marks a span into [`Batch::text`] instead of the input; inputs stay below 2 GiB.
const IN_TEXT: u32 = 1 << 31;
/// Marks a span that is one of [`Batch::detached`], beside [`IN_TEXT`]: text stays far below 1 GiB.
const IS_DETACHED: u32 = 1 << 30;

/// Limits of a request.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Longest argument in bytes (`proto-max-bulk-len`).
    pub bulk_bytes_max: u64,
    /// Whether the client has authenticated; strangers get far less room.
    pub authenticated: bool,
}

impl Limits {
    /// Longest header line, and longest inline request, in bytes.
    fn line_bytes_max(&self) -> usize {
        if self.authenticated { LINE_BYTES_MAX } else { UNAUTHENTICATED_BULK_BYTES_MAX }
    }
}

/// The place of one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    start: u32,
    length: u32,
}

impl Span {
    fn new(start: usize, length: usize) -> Self {
        debug_assert!(start < IN_TEXT as usize && length < IN_TEXT as usize);
        Self { start: start as u32, length: length as u32 }
    }

    fn moved_by(self, offset: usize) -> Self {
        if self.start & IN_TEXT != 0 { self } else { Self { start: self.start + offset as u32, ..self } }
    }

    fn relative_to(self, offset: usize) -> Self {
        if self.start & IN_TEXT != 0 { self } else { Self { start: self.start - offset as u32, ..self } }
    }

    /// Length in bytes.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a span is a place, not a container")]
    pub fn len(self) -> usize {
        self.length as usize
    }
}

/// The complete commands found in one piece of input.
#[derive(Debug, Default)]
pub struct Batch {
    spans: Vec<Span>,
    /// For each command, the end of its spans and the end of its bytes in the input.
    ends: Vec<(u32, u32)>,
    /// Unquoted words of inline requests.
    text: Vec<u8>,
    /// Detached arguments of the only command.
    detached: Vec<SharedSlice>,
}

impl Batch {
    /// Forgets the commands, keeps the memory (unless it has become very large).
    pub fn clear(&mut self) {
        const SPANS_KEPT_MAX: usize = 64 * 1024;
        self.spans.clear();
        self.spans.shrink_to(SPANS_KEPT_MAX);
        self.ends.clear();
        self.text.clear();
        self.text.shrink_to(LINE_BYTES_MAX);
        self.detached.clear();
    }

    /// Whether the only command has detached arguments.
    #[inline]
    pub fn has_detached(&self) -> bool {
        !self.detached.is_empty()
    }

    /// How many commands.
    #[inline]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no command.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The spans of command `index`, its name first; never empty.
    #[inline]
    pub fn spans(&self, index: usize) -> &[Span] {
        let start = if index == 0 { 0 } else { self.ends[index - 1].0 };
        &self.spans[start as usize..self.ends[index].0 as usize]
    }

    /// The commands in order: the spans of each, its name first, never empty, and its end in the input.
    #[inline]
    pub fn commands(&self) -> impl Iterator<Item = (&[Span], usize)> {
        let mut start = 0;
        self.ends.iter().map(move |(end, input_end)| {
            let spans = &self.spans[start..*end as usize];
            start = *end as usize;
            (spans, *input_end as usize)
        })
    }

    /// The end of command `index` in the input, in bytes from the input's start.
    #[inline]
    pub fn input_end(&self, index: usize) -> usize {
        self.ends[index].1 as usize
    }

    /// The words of all commands in order, as [`Self::bytes`].
    #[inline]
    pub fn words<'a>(&'a self, input: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        self.spans.iter().map(|span| self.bytes(input, *span))
    }

    /// The bytes of one argument; `input` is the input that the batch was decoded from.
    #[inline]
    pub fn bytes<'a>(&'a self, input: &'a [u8], span: Span) -> &'a [u8] {
        &self.text_from(input, span)[..span.len()]
    }

    /// The bytes of one argument and all bytes behind it.
    #[inline]
    pub fn text_from<'a>(&'a self, input: &'a [u8], span: Span) -> &'a [u8] {
        if span.start & IN_TEXT == 0 { &input[span.start as usize..] } else { self.own_text_from(span) }
    }

    #[cold]
    fn own_text_from(&self, span: Span) -> &[u8] {
        let start = (span.start & !IN_TEXT) as usize;
        match span.start & IS_DETACHED {
            0 => &self.text[start..],
            _ => &self.detached[start & !(IS_DETACHED as usize)],
        }
    }

    fn finish_command(&mut self, input_end: usize) {
        self.ends.push((self.spans.len() as u32, input_end as u32));
    }

    /// Spans that belong to no finished command yet.
    fn unfinished_from(&self) -> usize {
        self.ends.last().map_or(0, |end| end.0 as usize)
    }
}

/// Why decoding stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decoded {
    /// The batch holds as many commands as were asked for; there may be more.
    Full,
    /// The rest of the input is the beginning of a command. `wanted` is how many more bytes the
    /// argument that is arriving needs at least (0 when its length is not known yet).
    Incomplete {
        /// Bytes still missing, including the line end behind them.
        wanted: usize,
    },
}

/// A request that breaks the protocol. The client gets the text, behind `-ERR `.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProtocolError {
    /// A header line of the argument count without an end.
    CountLineTooLong,
    /// Not a number, or too large a number of arguments.
    InvalidCount,
    /// More arguments than a stranger may send.
    UnauthenticatedCount,
    /// A header line of an argument length without an end.
    LengthLineTooLong,
    /// Something else where `$` should be.
    ExpectedDollar(u8),
    /// Not a number, negative, or over the limit.
    InvalidLength,
    /// A longer argument, or longer arguments together, than a stranger may send.
    UnauthenticatedLength,
    /// The bytes behind an argument are not CR LF.
    MissingLineEnd,
    /// An inline request without an end.
    InlineTooLong,
    /// A quote that is not closed, or followed by a letter.
    UnbalancedQuotes,
}

impl std::fmt::Display for ProtocolError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Protocol error: ")?;
        match self {
            Self::CountLineTooLong => out.write_str("too big mbulk count string"),
            Self::InvalidCount => out.write_str("invalid multibulk length"),
            Self::UnauthenticatedCount => out.write_str("unauthenticated multibulk length"),
            Self::LengthLineTooLong => out.write_str("too big bulk count string"),
            // The text is one line of a reply: a byte that would break the line is shown as a blank.
            Self::ExpectedDollar(byte) => {
                let shown = if byte.is_ascii_graphic() { *byte as char } else { ' ' };
                write!(out, "expected '$', got '{shown}'")
            }
            Self::InvalidLength => out.write_str("invalid bulk length"),
            Self::UnauthenticatedLength => out.write_str("unauthenticated bulk length"),
            Self::MissingLineEnd => out.write_str("expected CRLF after bulk"),
            Self::InlineTooLong => out.write_str("too big inline request"),
            Self::UnbalancedQuotes => out.write_str("unbalanced quotes in request"),
        }
    }
}

impl std::error::Error for ProtocolError {}

/// The state of the command that is arriving: one of these a connection.
#[derive(Debug, Default)]
pub struct RequestDecoder {
    /// Arguments still to come; 0 between commands.
    remaining: i64,
    /// Bytes of the command already understood, from its first byte.
    scanned: usize,
    /// Arguments already complete, relative to the command's first byte.
    spans: Vec<Span>,
    /// Its arguments that were cut out of the input, if there are any.
    detached: Option<Box<DetachedArguments>>,
}

impl RequestDecoder {
    /// Forgets the command that is arriving: the input will be presented from an earlier place. Detached arguments stay
    /// detached.
    pub fn restart(&mut self) {
        self.remaining = 0;
        self.scanned = 0;
        self.spans.clear();
        if let Some(detached) = &mut self.detached {
            detached.restart();
        }
    }

    /// Cuts the argument that is arriving out of the input if it has at least `bytes_min` bytes. To be called when
    /// [`Self::decode`] has found the input incomplete from `input[0]` on. The caller keeps what has arrived of it and what
    /// follows on the connection up to its length, and then calls [`Self::attach`]; until then nothing is decoded.
    pub fn detach(&mut self, input: &[u8], limits: &Limits, bytes_min: usize) -> Option<Detached> {
        if self.remaining == 0 || input.len() <= self.scanned || !limits.authenticated {
            return None;
        }
        let (length, data) = read_length(input, self.scanned, limits).ok()??;
        let length = usize::try_from(length).ok()?;
        let arrived = input.len() - data;
        let is_detached = || self.detached.as_ref().is_some_and(|detached| detached.has(data));
        if length < bytes_min || arrived >= length || is_detached() {
            return None;
        }
        self.detached.get_or_insert_default().begin(data);
        Some(Detached { length, arrived })
    }

    /// All bytes of the argument that was detached last.
    ///
    /// # Panics
    /// If there is none, or it was attached.
    pub fn attach(&mut self, bytes: SharedSlice) {
        self.detached.as_mut().expect("an argument was detached").complete(bytes);
    }

    /// Forgets the detached arguments: their command will not be presented again.
    #[inline]
    pub fn forget_detached(&mut self) {
        self.detached = None;
    }

    /// Takes complete commands off `input[*position..]` into `batch`, at most `commands_max`, and
    /// moves `position` behind them. Until a command is complete, the input from `position` on
    /// must be presented again, with more behind it. O(bytes) over all calls.
    pub fn decode(
        &mut self,
        input: &[u8],
        position: &mut usize,
        batch: &mut Batch,
        limits: &Limits,
        commands_max: usize,
    ) -> Result<Decoded, ProtocolError> {
        if self.detached.is_none() {
            return self.decode_up_to::<false>(input, position, batch, limits, commands_max);
        }
        debug_assert!(batch.is_empty(), "what is presented begins with the command");
        let decoded = self.decode_up_to::<true>(input, position, batch, limits, 1);
        if !batch.is_empty() {
            batch.detached.extend(self.detached.iter().flat_map(|detached| detached.share()));
        }
        decoded
    }

    /// [`Self::decode`], compiled once for commands without detached arguments and once for others (`HAS_DETACHED`):
    /// only the latter look for them, at any length.
    #[inline]
    fn decode_up_to<const HAS_DETACHED: bool>(
        &mut self,
        input: &[u8],
        position: &mut usize,
        batch: &mut Batch,
        limits: &Limits,
        commands_max: usize,
    ) -> Result<Decoded, ProtocolError> {
        while batch.len() < commands_max {
            let start = *position;
            if self.remaining == 0 {
                match input.get(start) {
                    None => return Ok(Decoded::Incomplete { wanted: 0 }),
                    Some(b'*') => {}
                    Some(_) => {
                        match decode_inline(&input[start..], start, batch, limits)? {
                            0 => return Ok(Decoded::Incomplete { wanted: 0 }),
                            length => *position += length,
                        }
                        continue;
                    }
                }
            }
            match self.decode_multibulk::<HAS_DETACHED>(input, start, batch, limits)? {
                Ok(end) => *position = end,
                Err(wanted) => return Ok(Decoded::Incomplete { wanted }),
            }
        }
        Ok(Decoded::Full)
    }

    /// Decodes a command from `start`. Returns its end, or how many bytes are wanted.
    #[inline]
    fn decode_multibulk<const HAS_DETACHED: bool>(
        &mut self,
        input: &[u8],
        start: usize,
        batch: &mut Batch,
        limits: &Limits,
    ) -> Result<Result<usize, usize>, ProtocolError> {
        let mut at = start + self.scanned;
        let mut remaining = self.remaining;
        let mut name = None;
        if !HAS_DETACHED
            && remaining == 0
            && let Some((count, length)) = read_front(input, at)
        {
            remaining = count;
            at += FRONT_COUNT_BYTES;
            name = Some((length, at + FRONT_COUNT_BYTES));
        } else if remaining == 0 {
            let (count, next) = match read_short(input, at, b'*') {
                Some(header) => header,
                None => match read_header(input, at + 1, limits) {
                    Header::Value(count, next) => (count, next),
                    Header::Incomplete => return Ok(Err(0)),
                    Header::Invalid => return Err(ProtocolError::InvalidCount),
                    Header::TooLong => return Err(ProtocolError::CountLineTooLong),
                },
            };
            if count > ARGUMENTS_MAX {
                return Err(ProtocolError::InvalidCount);
            }
            if count > UNAUTHENTICATED_ARGUMENTS_MAX && !limits.authenticated {
                return Err(ProtocolError::UnauthenticatedCount);
            }
            if count <= 0 {
                return Ok(Ok(next));
            }
            remaining = count;
            at = next;
        } else if !self.spans.is_empty() {
            batch.spans.extend(self.spans.drain(..).map(|span| span.moved_by(start)));
        }
        let mut wanted = 0;
        while remaining > 0 {
            let short = || if HAS_DETACHED { None } else { read_short(input, at, b'$') };
            let (length, data) = match name.take().or_else(short) {
                Some(header) => header,
                None => match read_length(input, at, limits)? {
                    None => break,
                    Some(header) if !HAS_DETACHED => header,
                    Some((length, data)) => match self.find_detached(data - start) {
                        Place::Input => (length, data),
                        Place::Arriving => break,
                        Place::Detached(index, length) => {
                            match input.get(data..).and_then(<[u8]>::first_chunk) {
                                Some(b"\r\n") => {}
                                Some(_) => return Err(ProtocolError::MissingLineEnd),
                                None => {
                                    wanted = data + 2 - input.len();
                                    break;
                                }
                            }
                            let start = index as u32 | IN_TEXT | IS_DETACHED;
                            batch.spans.push(Span { start, length: length as u32 });
                            self.detached.as_mut().expect("it was found there").pass();
                            at = data + 2;
                            remaining -= 1;
                            continue;
                        }
                    },
                },
            };
            if length < 0 || length as u64 > limits.bulk_bytes_max {
                return Err(ProtocolError::InvalidLength);
            }
            let end = data + length as usize;
            if !limits.authenticated
                && (length as usize > UNAUTHENTICATED_BULK_BYTES_MAX
                    || end - start > UNAUTHENTICATED_REQUEST_BYTES_MAX)
            {
                return Err(ProtocolError::UnauthenticatedLength);
            }
            match input.get(end..).and_then(<[u8]>::first_chunk) {
                Some(b"\r\n") => {}
                Some(_) => return Err(ProtocolError::MissingLineEnd),
                None => {
                    wanted = end + 2 - input.len();
                    break;
                }
            }
            batch.spans.push(Span::new(data, length as usize));
            at = end + 2;
            remaining -= 1;
        }
        if remaining == 0 {
            self.remaining = 0;
            self.scanned = 0;
            batch.finish_command(at);
            return Ok(Ok(at));
        }
        self.remaining = remaining;
        self.scanned = at - start;
        let unfinished = batch.unfinished_from();
        self.spans.extend(batch.spans.drain(unfinished..).map(|span| span.relative_to(start)));
        Ok(Err(wanted))
    }

    /// Finds the argument that begins at a place of the input, from the command's first byte.
    fn find_detached(&self, at: usize) -> Place {
        self.detached.as_ref().map_or(Place::Input, |detached| detached.find(at))
    }
}

enum Header {
    /// A number, and the start of the line behind it.
    Value(i64, usize),
    Incomplete,
    Invalid,
    TooLong,
}

/// Bytes of `*3\r\n`.
const FRONT_COUNT_BYTES: usize = 4;

/// The front of nearly every request, `*3\r\n$5\r\n`, read as one word: the count and the length of the name, if
/// both have one digit, which is not 0.
#[inline]
fn read_front(input: &[u8], at: usize) -> Option<(i64, i64)> {
    const ZEROS: u64 = u64::from_le_bytes(*b"*0\r\n$0\r\n");
    const LOW_BITS: u64 = u64::from_le_bytes([0, 0xf, 0, 0, 0, 0xf, 0, 0]);
    let digits = u64::from_le_bytes(*input.get(at..)?.first_chunk()?) ^ ZEROS;
    let (count, length) = (digits >> 8 & 0xf, digits >> 40 & 0xf);
    let is_digit = |number: u64| number.wrapping_sub(1) < 9;
    (digits & !LOW_BITS == 0 && is_digit(count) && is_digit(length)).then_some((count as i64, length as i64))
}

/// A header from `at`: its kind, a number of one to three digits and the line end, looked at as one word.
/// Nearly every header is one.
#[inline]
fn read_short(input: &[u8], at: usize, kind: u8) -> Option<(i64, usize)> {
    const LINE_END: u64 = u16::from_le_bytes(*b"\r\n") as u64;
    let word = u64::from_le_bytes(*input.get(at..)?.first_chunk()?);
    let byte = |index: u32| word >> (8 * index) & 0xff;
    let digit = |index| byte(index).wrapping_sub(u64::from(b'0'));
    let ends_behind = |digits: u32| word >> (8 * (1 + digits)) & 0xffff == LINE_END;
    let (first, second, third) = (digit(1), digit(2), digit(3));
    if byte(0) != u64::from(kind) {
        return None;
    }
    if ends_behind(1) {
        return (first <= 9).then_some((first as i64, at + 4));
    }
    let leads = first.wrapping_sub(1) <= 8 && second <= 9;
    if ends_behind(2) {
        return leads.then_some((first as i64 * 10 + second as i64, at + 5));
    }
    let value = first.wrapping_mul(100).wrapping_add(second.wrapping_mul(10)).wrapping_add(third);
    (ends_behind(3) && leads && third <= 9).then_some((value as i64, at + 6))
}

/// The header of an argument from `at`: its length, and the start of its bytes; `None` if that has not arrived.
#[inline(never)]
fn read_length(input: &[u8], at: usize, limits: &Limits) -> Result<Option<(i64, usize)>, ProtocolError> {
    match input.get(at) {
        None => return Ok(None),
        Some(b'$') => {}
        Some(&other) => return Err(ProtocolError::ExpectedDollar(other)),
    }
    match read_header(input, at + 1, limits) {
        Header::Value(length, data) => Ok(Some((length, data))),
        Header::Incomplete => Ok(None),
        Header::Invalid => Err(ProtocolError::InvalidLength),
        Header::TooLong => Err(ProtocolError::LengthLineTooLong),
    }
}

/// The number from `at` up to CR LF.
#[inline(never)]
fn read_header(input: &[u8], at: usize, limits: &Limits) -> Header {
    let line = &input[at.min(input.len())..];
    match memchr::memchr(b'\r', line) {
        None if line.len() > limits.line_bytes_max() => Header::TooLong,
        None => Header::Incomplete,
        Some(length) => match (line.get(length + 1), parse_integer(&line[..length])) {
            (None, Some(_)) => Header::Incomplete,
            (Some(b'\n'), Some(value)) => Header::Value(value, at + length + 2),
            _ => Header::Invalid,
        },
    }
}

/// Decodes an inline request. Returns how many bytes it took, 0 when its end has not arrived.
fn decode_inline(
    input: &[u8],
    start: usize,
    batch: &mut Batch,
    limits: &Limits,
) -> Result<usize, ProtocolError> {
    let Some(length) = memchr::memchr(b'\n', input) else {
        return if input.len() > limits.line_bytes_max() { Err(ProtocolError::InlineTooLong) } else { Ok(0) };
    };
    let line = input[..length].strip_suffix(b"\r").unwrap_or(&input[..length]);
    let first = batch.spans.len();
    let mut at = 0;
    loop {
        while line.get(at).is_some_and(|byte| is_blank(*byte)) {
            at += 1;
        }
        if at == line.len() {
            break;
        }
        let word = at;
        while line.get(at).is_some_and(|byte| !is_blank(*byte) && !matches!(byte, b'"' | b'\'')) {
            at += 1;
        }
        if line.get(at).is_none_or(|byte| is_blank(*byte)) {
            batch.spans.push(Span::new(start + word, at - word));
        } else {
            let text_start = batch.text.len();
            at = match unquote(line, word, &mut batch.text) {
                Some(end) => end,
                None => {
                    batch.spans.truncate(first);
                    return Err(ProtocolError::UnbalancedQuotes);
                }
            };
            let length = batch.text.len() - text_start;
            batch.spans.push(Span { start: text_start as u32 | IN_TEXT, length: length as u32 });
        }
    }
    if batch.spans.len() > first {
        batch.finish_command(start + length + 1);
    }
    Ok(length + 1)
}

/// Whether a byte separates inline words; a NUL ends them, as in the reference server.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c | 0)
}

/// Appends the word that begins at `at`, its quotes and escapes resolved; its end, or `None` when a
/// quote is not closed or is followed by something other than a blank.
fn unquote(line: &[u8], mut at: usize, out: &mut Vec<u8>) -> Option<usize> {
    while let Some(&byte) = line.get(at) {
        match byte {
            b'"' => {
                at += 1;
                loop {
                    match *line.get(at)? {
                        b'"' => break,
                        b'\\' => {
                            let hex = line
                                .get(at + 1..at + 4)
                                .filter(|code| code[0] == b'x')
                                .and_then(|code| Some(hex_digit(code[1])? << 4 | hex_digit(code[2])?));
                            if let Some(byte) = hex {
                                out.push(byte);
                                at += 4;
                            } else {
                                out.push(match *line.get(at + 1)? {
                                    b'n' => b'\n',
                                    b'r' => b'\r',
                                    b't' => b'\t',
                                    b'b' => 0x08,
                                    b'a' => 0x07,
                                    other => other,
                                });
                                at += 2;
                            }
                        }
                        other => {
                            out.push(other);
                            at += 1;
                        }
                    }
                }
                return closes(line, at + 1);
            }
            b'\'' => {
                at += 1;
                loop {
                    match *line.get(at)? {
                        b'\'' => break,
                        b'\\' if line.get(at + 1) == Some(&b'\'') => {
                            out.push(b'\'');
                            at += 2;
                        }
                        other => {
                            out.push(other);
                            at += 1;
                        }
                    }
                }
                return closes(line, at + 1);
            }
            byte if is_blank(byte) => return Some(at),
            other => {
                out.push(other);
                at += 1;
            }
        }
    }
    Some(at)
}

/// A closing quote must end its word.
fn closes(line: &[u8], at: usize) -> Option<usize> {
    line.get(at).is_none_or(|byte| is_blank(*byte)).then_some(at)
}

fn hex_digit(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { bulk_bytes_max: 512 << 20, authenticated: true };

    fn words(batch: &Batch, input: &[u8], index: usize) -> Vec<Vec<u8>> {
        batch.spans(index).iter().map(|span| batch.bytes(input, *span).to_vec()).collect()
    }

    /// Feeds `input` in pieces of the given sizes and returns all commands.
    fn decode_pieces(
        input: &[u8],
        piece: usize,
        limits: &Limits,
    ) -> Result<Vec<Vec<Vec<u8>>>, ProtocolError> {
        let mut decoder = RequestDecoder::default();
        let mut batch = Batch::default();
        let mut buffer: Vec<u8> = Vec::new();
        let mut commands = Vec::new();
        for bytes in input.chunks(piece) {
            buffer.extend_from_slice(bytes);
            let mut position = 0;
            loop {
                batch.clear();
                let decoded = decoder.decode(&buffer, &mut position, &mut batch, limits, 3);
                commands.extend((0..batch.len()).map(|index| words(&batch, &buffer, index)));
                if decoded? != Decoded::Full {
                    break;
                }
            }
            buffer.drain(..position);
        }
        Ok(commands)
    }

    fn check(input: &str, expected: &[&[&str]]) {
        let expected: Vec<Vec<Vec<u8>>> = expected
            .iter()
            .map(|command| command.iter().map(|word| word.as_bytes().to_vec()).collect())
            .collect();
        for piece in [1, 2, 3, 7, 1 << 20] {
            let decoded = decode_pieces(input.as_bytes(), piece, &LIMITS).unwrap();
            assert_eq!(decoded, expected, "{input:?} in pieces of {piece}");
        }
    }

    fn check_error(input: &str, expected: ProtocolError) {
        for piece in [1, 5, 1 << 20] {
            let error = decode_pieces(input.as_bytes(), piece, &LIMITS).unwrap_err();
            assert_eq!(error, expected, "{input:?} in pieces of {piece}");
        }
    }

    #[test]
    fn commands_come_out_whole_however_they_are_split() {
        check("*1\r\n$4\r\nPING\r\n", &[&["PING"]]);
        check(
            "*2\r\n$3\r\nGET\r\n$1\r\na\r\n*3\r\n$3\r\nSET\r\n$0\r\n\r\n$2\r\n\r\n\r\n*1\r\n$4\r\nPING\r\n",
            &[&["GET", "a"], &["SET", "", "\r\n"], &["PING"]],
        );
        check("*0\r\n*-1\r\n*1\r\n$4\r\nPING\r\n", &[&["PING"]]);
        check("*1\r\n$0\r\n\r\n*9\r\n$9\r\nsomething", &[&[""]]);
    }

    #[test]
    fn inline_words_follow_the_quoting_rules() {
        check("PING\r\n", &[&["PING"]]);
        check("PING\n", &[&["PING"]]);
        check("\r\n  \r\nget  a\tb \r\n", &[&["get", "a", "b"]]);
        check("set k \"a b\"\n", &[&["set", "k", "a b"]]);
        check("set k 'it\\'s'\n", &[&["set", "k", "it's"]]);
        check("set k \"\\x41\\n\\q\"\n", &[&["set", "k", "A\nq"]]);
        check("set k pre\"fix\"\n", &[&["set", "k", "prefix"]]);
        check("set k \"\"\n", &[&["set", "k", ""]]);
        check("a\n*1\r\n$1\r\nb\r\nc \"d\"\n", &[&["a"], &["b"], &["c", "d"]]);
        check_error("set k \"a\n", ProtocolError::UnbalancedQuotes);
        check_error("set k \"a\"b\n", ProtocolError::UnbalancedQuotes);
    }

    #[test]
    fn broken_frames_are_named() {
        check_error("*x\r\n", ProtocolError::InvalidCount);
        check_error("*+1\r\n", ProtocolError::InvalidCount);
        check_error("*01\r\n", ProtocolError::InvalidCount);
        check_error("*:\r\n$4\r\nPING\r\n", ProtocolError::InvalidCount);
        check_error("*1\r\n$;\r\nPING\r\n", ProtocolError::InvalidLength);
        check_error("*2147483648\r\n", ProtocolError::InvalidCount);
        check_error("*1\r\nPING\r\n", ProtocolError::ExpectedDollar(b'P'));
        check_error("*1\r\n$-1\r\n", ProtocolError::InvalidLength);
        check_error("*1\r\n$536870913\r\n", ProtocolError::InvalidLength);
        check_error("*1\r\n$4\r\nPINGxx", ProtocolError::MissingLineEnd);
        check_error(&"x".repeat(LINE_BYTES_MAX + 1), ProtocolError::InlineTooLong);
        check_error(&format!("*{}", "1".repeat(LINE_BYTES_MAX + 1)), ProtocolError::CountLineTooLong);
        check_error(&format!("*1\r\n${}", "1".repeat(LINE_BYTES_MAX + 1)), ProtocolError::LengthLineTooLong);
    }

    #[test]
    fn short_headers_read_as_long_ones_do() {
        let broken = ["", "01", "00", "-1", "+1", "1a", "a1", "10a", " 1", "1 ", "1:", "1/2", ":9", "1\n"];
        let texts = (0..2000).map(|number| number.to_string()).chain(broken.map(String::from));
        for text in texts {
            for tail in ["\r\n$3\r\nabc", "\r\n", "\r", "\n\r\n\r\n\r\n", "\n\n\n\n\n\n\n\n"] {
                let input = format!("${text}{tail}");
                let long = match read_header(input.as_bytes(), 1, &LIMITS) {
                    Header::Value(value, next) => Some((value, next)),
                    _ => None,
                };
                let short = read_short(input.as_bytes(), 0, b'$');
                assert!(short.is_none() || short == long, "{input:?}: {short:?}");
                let is_short = long.is_some_and(|(value, _)| (0..1000).contains(&value));
                assert_eq!(short.is_some(), is_short && input.len() >= 8, "{input:?}");
                assert_eq!(read_short(input.as_bytes(), 0, b'*'), None, "{input:?}");
            }
        }
    }

    #[test]
    fn strangers_get_little_room() {
        let stranger = Limits { authenticated: false, ..LIMITS };
        let error = |input: &str| decode_pieces(input.as_bytes(), 1, &stranger).unwrap_err();
        assert_eq!(error("*11\r\n"), ProtocolError::UnauthenticatedCount);
        assert_eq!(error("*1\r\n$16385\r\n"), ProtocolError::UnauthenticatedLength);
        // As much in several arguments as one may have.
        let bulk = format!("${}\r\n{}\r\n", 6000, "x".repeat(6000));
        assert!(decode_pieces(format!("*2\r\n{bulk}{bulk}").as_bytes(), 4096, &stranger).is_ok());
        assert_eq!(error(&format!("*3\r\n{bulk}{bulk}$6000\r\n")), ProtocolError::UnauthenticatedLength);
        let long = "1".repeat(UNAUTHENTICATED_BULK_BYTES_MAX + 1);
        assert_eq!(error(&long), ProtocolError::InlineTooLong);
        assert_eq!(error(&format!("*{long}")), ProtocolError::CountLineTooLong);
        assert_eq!(error(&format!("*1\r\n${long}")), ProtocolError::LengthLineTooLong);
        assert!(decode_pieces(b"*1\r\n$4\r\nPING\r\n", 1, &stranger).is_ok());
    }

    #[test]
    fn wanted_tells_how_much_of_an_argument_is_missing() {
        let mut decoder = RequestDecoder::default();
        let mut batch = Batch::default();
        let mut position = 0;
        let input = b"*2\r\n$3\r\nGET\r\n$100\r\nabc";
        let decoded = decoder.decode(input, &mut position, &mut batch, &LIMITS, 10);
        assert_eq!(decoded, Ok(Decoded::Incomplete { wanted: 99 }));
        assert_eq!(position, 0);
    }

    const DETACHED_BYTES_MIN: usize = 5000;

    /// Drives the decoder as a connection does that keeps long arguments elsewhere, in pieces of these lengths; each third
    /// command is decoded anew before it counts as run. The commands, and how many of their arguments were detached.
    fn decode_detaching(stream: &[u8], mut piece: impl FnMut() -> usize) -> (Vec<Vec<Vec<u8>>>, usize) {
        let (mut decoder, mut batch) = (RequestDecoder::default(), Batch::default());
        let (mut input, mut rest, mut found) = (Vec::new(), stream, Vec::new());
        let (mut turns, mut detached_count) = (0, 0);
        let mut arriving: Option<(Vec<u8>, usize)> = None;
        while !rest.is_empty() {
            let count = piece().clamp(1, rest.len());
            if let Some((mut bytes, length)) = arriving.take() {
                let count = count.min(length - bytes.len());
                bytes.extend_from_slice(&rest[..count]);
                rest = &rest[count..];
                match bytes.len() == length {
                    true => decoder.attach(bytes.into()),
                    false => arriving = Some((bytes, length)),
                }
                continue;
            }
            input.extend_from_slice(&rest[..count]);
            rest = &rest[count..];
            loop {
                batch.clear();
                let mut position = 0;
                let decoded = decoder.decode(&input, &mut position, &mut batch, &LIMITS, 2).unwrap();
                turns += 1;
                if !batch.is_empty() && turns % 3 == 0 {
                    decoder.restart();
                    continue;
                }
                found.extend((0..batch.len()).map(|index| words(&batch, &input, index)));
                detached_count += batch.detached.len();
                if !batch.is_empty() {
                    decoder.forget_detached();
                }
                input.drain(..position);
                if decoded != Decoded::Full {
                    if let Some(Detached { length, arrived }) =
                        decoder.detach(&input, &LIMITS, DETACHED_BYTES_MIN)
                    {
                        arriving = Some((input.split_off(input.len() - arrived), length));
                    }
                    break;
                }
            }
        }
        assert!(input.is_empty() && arriving.is_none());
        (found, detached_count)
    }

    #[test]
    fn long_arguments_can_be_kept_elsewhere() {
        let long = |length: usize| (0..length).map(|at| (at % 251) as u8).collect::<Vec<u8>>();
        let commands = [
            vec![b"SET".to_vec(), b"k".to_vec(), long(DETACHED_BYTES_MIN)],
            vec![b"PING".to_vec()],
            vec![b"MSET".to_vec(), long(6000), long(30_000), b"b".to_vec(), long(DETACHED_BYTES_MIN + 1)],
            vec![b"SET".to_vec(), b"k".to_vec(), long(DETACHED_BYTES_MIN - 1), b"XX".to_vec()],
            vec![long(20_000)],
            vec![b"PING".to_vec()],
        ];
        let mut stream = Vec::new();
        for command in &commands {
            stream.extend_from_slice(format!("*{}\r\n", command.len()).as_bytes());
            for word in command {
                stream.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
                stream.extend_from_slice(word);
                stream.extend_from_slice(b"\r\n");
            }
        }
        for piece in [1, 2, 7, 1000, 4999, 16_384, 100_003] {
            for seed in 0..5 {
                let mut state = (piece + seed) as u64;
                let lengths = || {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    1 + (state >> 33) as usize % piece
                };
                let (found, detached) = decode_detaching(&stream, lengths);
                assert!(found == commands, "pieces of up to {piece}");
                assert!(piece > 4999 || detached == 5, "{detached} detached in pieces of up to {piece}");
            }
        }
        let (found, detached) = decode_detaching(&stream, || stream.len());
        assert!(found == commands && detached == 0, "what is there already is not moved");
    }

    /// A decoder that has detached the argument of a command, and the rest of the input.
    fn detached(limits: &Limits) -> (RequestDecoder, Option<Detached>) {
        let mut decoder = RequestDecoder::default();
        let input = b"*1\r\n$10000\r\nx";
        let permissive = Limits { authenticated: true, ..*limits };
        decoder.decode(input, &mut 0, &mut Batch::default(), &permissive, 1).unwrap();
        let detached = decoder.detach(input, limits, DETACHED_BYTES_MIN);
        (decoder, detached)
    }

    #[test]
    fn detached_argument_ends_with_its_line() {
        let (mut decoder, found) = detached(&LIMITS);
        assert_eq!(found, Some(Detached { length: 10_000, arrived: 1 }));
        let (mut batch, mut position) = (Batch::default(), 0);
        let head = b"*1\r\n$10000\r\n";
        let mut decode = |decoder: &mut RequestDecoder, tail: &[u8]| {
            decoder.decode(&[head, tail].concat(), &mut position, &mut batch, &LIMITS, 1)
        };
        assert_eq!(decode(&mut decoder, b""), Ok(Decoded::Incomplete { wanted: 0 }), "it is arriving");
        decoder.attach(vec![b'x'; 10_000].into());
        assert_eq!(decode(&mut decoder, b""), Ok(Decoded::Incomplete { wanted: 2 }));
        assert_eq!(decode(&mut decoder, b"\r"), Ok(Decoded::Incomplete { wanted: 1 }));
        assert_eq!(decode(&mut decoder, b"xx"), Err(ProtocolError::MissingLineEnd));
        assert_eq!(decode(&mut decoder, b"\r\n"), Ok(Decoded::Full));
    }

    #[test]
    fn detach_refuses_unauthenticated_clients_and_second_calls() {
        assert_eq!(detached(&Limits { authenticated: false, ..LIMITS }).1, None);
        let (mut decoder, _) = detached(&LIMITS);
        assert_eq!(decoder.detach(b"*1\r\n$10000\r\n", &LIMITS, DETACHED_BYTES_MIN), None);
    }
}
