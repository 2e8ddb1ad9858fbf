//! How a snapshot stands between the reply to PSYNC and the stream.
//!
//! ```text
//! size form   $<length>\r\n<bytes>
//! EOF form    $EOF:<mark>\r\n<bytes><mark>       mark: 40 random bytes
//! frames      $FRAMES\r\n  S<length><bytes> of the snapshot │ L<length><bytes> of the stream │ …  E<0>
//! ```
//!
//! The stream follows the size form and the frames at once. Behind the EOF form a primary sends nothing until it has an
//! acknowledgement. Frames, whose lengths are 4 bytes, high ones first, bring the stream beside the snapshot: the
//! replica keeps it, and the primary's memory does not grow. Only a Dunlin sends frames, to another that has said
//! `REPLCONF capa frames`.

use std::ops::Range;

/// Length of the mark that ends the EOF form.
pub const MARK_BYTES: usize = 40;

/// How the end of a snapshot is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// By its length in bytes.
    Size(u64),
    /// By a mark that follows it.
    Mark([u8; MARK_BYTES]),
    /// By a frame; the stream comes between its parts.
    Frames,
}

/// The contents of a frame of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotFrame {
    /// Bytes of the snapshot.
    Snapshot,
    /// Bytes of the stream.
    Stream,
    /// The snapshot is complete.
    End,
}

/// Bytes in front of a frame's contents.
pub const FRAME_HEAD_BYTES: usize = 5;

impl SnapshotFrame {
    /// Returns the bytes in front of contents of a length.
    pub fn head(self, length: u32) -> [u8; FRAME_HEAD_BYTES] {
        let kind = match self {
            Self::Snapshot => b'S',
            Self::Stream => b'L',
            Self::End => b'E',
        };
        let [a, b, c, d] = length.to_be_bytes();
        [kind, a, b, c, d]
    }

    fn parse([kind, length @ ..]: [u8; FRAME_HEAD_BYTES]) -> Option<(Self, u32)> {
        let length = u32::from_be_bytes(length);
        match kind {
            b'S' => Some((Self::Snapshot, length)),
            b'L' => Some((Self::Stream, length)),
            b'E' if length == 0 => Some((Self::End, 0)),
            _ => None,
        }
    }
}

impl Framing {
    /// Parses the line in front of a snapshot, without its end.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let rest = line.strip_prefix(b"$")?;
        match rest.strip_prefix(b"EOF:") {
            None if rest == b"FRAMES" => Some(Self::Frames),
            Some(mark) => mark.try_into().ok().map(Self::Mark),
            None => crate::wire::number(rest).map(Self::Size),
        }
    }

    /// Returns the line in front of a snapshot.
    pub fn head(&self) -> Vec<u8> {
        match self {
            Self::Size(length) => format!("${length}\r\n").into_bytes(),
            Self::Mark(mark) => [b"$EOF:", &mark[..], b"\r\n"].concat(),
            Self::Frames => b"$FRAMES\r\n".to_vec(),
        }
    }
}

/// A part of the bytes that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotPart {
    /// Bytes of the snapshot that were held back before, since they could have been the mark; they come first.
    pub held: Vec<u8>,
    /// The place of those among the bytes that came that belong to it.
    pub range: Range<usize>,
    /// Whether they are the stream's, not the snapshot's.
    pub is_stream: bool,
    /// How many of the bytes that came were taken. If the snapshot is not complete, the rest is for the next part.
    pub taken: usize,
    /// The snapshot is complete.
    pub is_complete: bool,
}

/// Finds the end of a snapshot in bytes that come in any pieces.
#[derive(Debug)]
pub struct SnapshotReader {
    framing: Framing,
    read: u64,
    /// The last bytes that came, while they may belong to the mark, or to the head of a frame.
    tail: Vec<u8>,
    /// The frame at hand, and the bytes of it that are to come.
    frame: (SnapshotFrame, u32),
}

impl SnapshotReader {
    /// A reader in front of the first byte.
    pub fn new(framing: Framing) -> Self {
        Self { framing, read: 0, tail: Vec::new(), frame: (SnapshotFrame::Snapshot, 0) }
    }

    /// Bytes of the snapshot so far.
    pub fn read(&self) -> u64 {
        self.read
    }

    /// Bytes in all, if that is known.
    pub fn total(&self) -> Option<u64> {
        match self.framing {
            Framing::Size(total) => Some(total),
            Framing::Mark(_) | Framing::Frames => None,
        }
    }

    /// Takes bytes; `None` if they make no sense. A primary that sends the EOF form sends nothing behind it, so a mark
    /// is looked for at the end only.
    pub fn take(&mut self, input: &[u8]) -> Option<SnapshotPart> {
        let part = match self.framing {
            Framing::Size(total) => {
                let bytes = usize::try_from(total - self.read).unwrap_or(usize::MAX).min(input.len());
                self.read += bytes as u64;
                let is_complete = self.read == total;
                SnapshotPart {
                    held: Vec::new(),
                    range: 0..bytes,
                    is_stream: false,
                    taken: bytes,
                    is_complete,
                }
            }
            Framing::Mark(mark) => {
                let mut held = std::mem::take(&mut self.tail);
                let all = held.len() + input.len();
                let kept = all.min(MARK_BYTES);
                // The last bytes of both together may be the mark.
                let bytes = input.len().saturating_sub(kept);
                let out_of_held = (all - kept).min(held.len());
                self.tail = held.split_off(out_of_held);
                self.tail.extend_from_slice(&input[bytes..]);
                let is_complete = self.tail == mark;
                self.read += (held.len() + bytes) as u64;
                SnapshotPart { held, range: 0..bytes, is_stream: false, taken: input.len(), is_complete }
            }
            Framing::Frames => return self.take_frame(input),
        };
        Some(part)
    }

    /// Takes bytes of one frame.
    fn take_frame(&mut self, input: &[u8]) -> Option<SnapshotPart> {
        let mut at = 0;
        while self.frame.1 == 0 {
            let lacking = FRAME_HEAD_BYTES - self.tail.len();
            let taken = lacking.min(input.len() - at);
            self.tail.extend_from_slice(&input[at..at + taken]);
            at += taken;
            let head = <[u8; FRAME_HEAD_BYTES]>::try_from(&self.tail[..]).ok();
            if let Some(head) = head {
                self.frame = SnapshotFrame::parse(head)?;
                self.tail.clear();
            }
            let is_complete = self.frame.0 == SnapshotFrame::End;
            if is_complete || head.is_none() {
                return Some(SnapshotPart {
                    held: Vec::new(),
                    range: at..at,
                    is_stream: false,
                    taken: at,
                    is_complete,
                });
            }
        }
        let (kind, left) = self.frame;
        let bytes = (input.len() - at).min(left as usize);
        self.frame.1 -= bytes as u32;
        let is_stream = kind == SnapshotFrame::Stream;
        if !is_stream {
            self.read += bytes as u64;
        }
        let range = at..at + bytes;
        Some(SnapshotPart { held: Vec::new(), taken: range.end, range, is_stream, is_complete: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The snapshot, the stream beside it, the bytes that were taken, and whether it is complete.
    fn read(framing: Framing, input: &[u8], step: usize) -> (Vec<u8>, Vec<u8>, usize, bool) {
        let (mut reader, mut out, mut stream, mut at) =
            (SnapshotReader::new(framing), Vec::new(), Vec::new(), 0);
        while at < input.len() {
            let piece = &input[at..input.len().min(at + step)];
            let part = reader.take(piece).expect("good bytes");
            let bytes = &piece[part.range.clone()];
            out.extend_from_slice(&part.held);
            if part.is_stream { &mut stream } else { &mut out }.extend_from_slice(bytes);
            at += part.taken;
            assert_eq!(reader.read(), out.len() as u64);
            if part.is_complete {
                return (out, stream, at, true);
            }
        }
        (out, stream, at, false)
    }

    #[test]
    fn snapshot_ends_where_its_framing_says_however_it_is_cut() {
        let mark: [u8; MARK_BYTES] = std::array::from_fn(|at| b'a' + (at % 7) as u8);
        let body: Vec<u8> = (0..200_u8).chain(mark[..39].iter().copied()).collect();
        let sized = [&body[..], b"*1\r\n"].concat();
        let marked = [&body[..], &mark].concat();
        for step in 1..250 {
            assert_eq!(
                read(Framing::Size(body.len() as u64), &sized, step),
                (body.clone(), vec![], body.len(), true)
            );
            assert_eq!(
                read(Framing::Mark(mark), &marked, step),
                (body.clone(), vec![], body.len() + 40, true)
            );
            assert!(!read(Framing::Mark(mark), &marked[..marked.len() - 1], step).3);
        }
    }

    #[test]
    fn frames_part_the_snapshot_from_the_stream() {
        let body: Vec<u8> = (0..200_u8).collect();
        let frame = |kind: SnapshotFrame, bytes: &[u8]| [&kind.head(bytes.len() as u32)[..], bytes].concat();
        let input = [
            frame(SnapshotFrame::Snapshot, &body[..70]),
            frame(SnapshotFrame::Stream, b"SET"),
            frame(SnapshotFrame::Stream, b""),
            frame(SnapshotFrame::Snapshot, b""),
            frame(SnapshotFrame::Snapshot, &body[70..]),
            frame(SnapshotFrame::Stream, b" a b"),
            frame(SnapshotFrame::End, b""),
            b"behind".to_vec(),
        ]
        .concat();
        for step in 1..250 {
            let expected = (body.clone(), b"SET a b".to_vec(), input.len() - 6, true);
            assert_eq!(read(Framing::Frames, &input, step), expected, "{step}");
            assert!(!read(Framing::Frames, &input[..input.len() - 7], step).3);
        }
        for wrong in [&b"X\0\0\0\x01"[..], b"E\0\0\0\x01", b"S\0\0\0\x01aQ\0\0\0\0"] {
            let mut reader = SnapshotReader::new(Framing::Frames);
            let mut at = 0;
            while let Some(part) = reader.take(&wrong[at..]) {
                assert!(!part.is_complete);
                at += part.taken;
                assert!(at < wrong.len(), "{wrong:?}");
            }
        }
    }

    #[test]
    fn framing_is_parsed_as_it_is_written() {
        for framing in [Framing::Size(0), Framing::Size(u64::MAX), Framing::Mark([b'x'; 40]), Framing::Frames]
        {
            let head = framing.head();
            assert_eq!(Framing::parse(head.strip_suffix(b"\r\n").unwrap()), Some(framing));
        }
        for wrong in [&b"$"[..], b"$-1", b"$x", b"$EOF:", b"$EOF:short", b"5", b"+OK", b""] {
            assert_eq!(Framing::parse(wrong), None);
        }
    }
}
