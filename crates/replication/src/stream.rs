//! The stream of commands, parsed: whole commands, transactions as one, and exact offsets.

use std::{fmt, ops::Range};

use crate::wire::number;

/// Words of a command at most, as of a client's. Words are kept as they come: no number is believed.
const WORDS_MAX: u64 = i32::MAX as u64;
/// Bytes of a word at most, as in the log.
const WORD_BYTES_MAX: u64 = 1 << 40;
/// Digits of a length, with its mark and the line's end: a longer text is not a length.
const HEAD_BYTES_MAX: usize = 24;

/// The stream makes no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamError(pub &'static str);

impl fmt::Display for StreamError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.0)
    }
}

impl std::error::Error for StreamError {}

/// A command of the stream, and its place in the bytes that were read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frame {
    /// Its words.
    pub words: Vec<Range<usize>>,
    /// The place behind it.
    pub end: usize,
}

/// Finds commands in bytes that come in any pieces. The reader remembers its place in a command that is incomplete, so
/// that it looks at a long one once.
#[derive(Debug, Default)]
pub struct StreamReader {
    /// The words of the command that is incomplete so far, counted from its first byte.
    words: Vec<Range<usize>>,
    /// How many words it has in all, once that is known.
    expected: Option<usize>,
    /// How far it has been looked at.
    at: usize,
}

impl StreamReader {
    /// Reads the command that `input` begins with; `None` while it is incomplete. The next call has the same input and
    /// more, or what follows the command.
    pub fn next(&mut self, input: &[u8]) -> Result<Option<Frame>, StreamError> {
        let expected = match self.expected {
            Some(expected) => expected,
            None => {
                let Some((count, at)) = head(input, 0, b'*')? else { return Ok(None) };
                if count == 0 || count > WORDS_MAX {
                    return Err(StreamError("a command has no words, or too many"));
                }
                self.at = at;
                *self.expected.insert(count as usize)
            }
        };
        while self.words.len() < expected {
            let Some((length, start)) = head(input, self.at, b'$')? else { return Ok(None) };
            if length > WORD_BYTES_MAX {
                return Err(StreamError("a word is too long"));
            }
            let end = start + length as usize;
            match input.get(end..end + 2) {
                Some(b"\r\n") => {}
                Some(_) => return Err(StreamError("a word does not end where it should")),
                None => return Ok(None),
            }
            self.words.push(start..end);
            self.at = end + 2;
        }
        let frame = Frame { words: std::mem::take(&mut self.words), end: self.at };
        (self.expected, self.at) = (None, 0);
        Ok(Some(frame))
    }

    /// Takes back the memory of a frame that is no longer needed.
    pub fn recycle(&mut self, mut words: Vec<Range<usize>>) {
        if self.words.is_empty() {
            words.clear();
            self.words = words;
        }
    }
}

/// Reads a length behind its mark: it and the place behind its line, or `None` while that is incomplete.
fn head(input: &[u8], at: usize, mark: u8) -> Result<Option<(u64, usize)>, StreamError> {
    let input = input.get(at..).unwrap_or_default();
    let shown = &input[..input.len().min(HEAD_BYTES_MAX)];
    match shown.first() {
        None => return Ok(None),
        Some(first) if *first == mark => {}
        Some(_) => return Err(StreamError("a command or a word does not begin as one")),
    }
    let Some(end) = shown.iter().position(|byte| *byte == b'\n') else {
        return if shown.len() < HEAD_BYTES_MAX {
            Ok(None)
        } else {
            Err(StreamError("a length is too long"))
        };
    };
    let digits = shown[1..end].strip_suffix(b"\r").ok_or(StreamError("a length has no end"))?;
    let value = number(digits).ok_or(StreamError("a length is no number"))?;
    Ok(Some((value, at + end + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GETACK, PING, request};

    #[test]
    fn commands_have_the_lengths_that_the_field_knows() {
        let select = request(&[b"SELECT", b"3"]);
        assert_eq!((PING.len(), select.len(), GETACK.len()), (14, 23, 37));
    }

    #[test]
    fn commands_are_found_however_the_stream_is_cut() {
        let commands: Vec<Vec<&[u8]>> =
            vec![vec![b"SET", b"", b"\r\n*1\r\n"], vec![b"PING"], vec![b"DEL", b"a", b"b", b"c"]];
        let stream: Vec<u8> = commands.iter().flat_map(|words| request(words)).collect();
        for step in 1..=stream.len() {
            let (mut reader, mut start, mut shown, mut found) = (StreamReader::default(), 0, 0, Vec::new());
            while shown < stream.len() {
                shown = stream.len().min(shown + step);
                while let Some(frame) = reader.next(&stream[start..shown]).unwrap() {
                    let input = &stream[start..];
                    found.push(frame.words.iter().map(|word| &input[word.clone()]).collect::<Vec<_>>());
                    start += frame.end;
                }
            }
            assert_eq!((found, start), (commands.clone(), stream.len()));
        }
    }

    #[test]
    fn stream_that_makes_no_sense_is_refused() {
        for wrong in [
            &b"PING\r\n"[..],
            b"*0\r\n",
            b"*-1\r\n",
            b"*2147483648\r\n",
            b"*1\r\n+PING\r\n",
            b"*1\r\n$-1\r\n",
            b"*1\r\n$4\r\nPINGxx",
            b"*1\r\n$1099511627777\r\n",
            b"*1\n$4\r\nPING\r\n",
            b"*11111111111111111111111111111111",
        ] {
            assert!(StreamReader::default().next(wrong).is_err(), "{}", wrong.escape_ascii());
        }
        // Commands may be as large as those of a primary's clients.
        for begun in
            [&b"*1\r\n$1000000000\r\nabc"[..], b"*2000000\r\n$5\r\nRPUSH\r\n", b"*1\r\n$1099511627776\r\n"]
        {
            assert_eq!(StreamReader::default().next(begun), Ok(None), "{}", begun.escape_ascii());
        }
    }
}
