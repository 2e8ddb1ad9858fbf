//! How a snapshot stands between the reply to PSYNC and the stream.
//!
//! ```text
//! size form   $<length>\r\n<bytes>
//! EOF form    $EOF:<mark>\r\n<bytes><mark>       mark: 40 random bytes
//! ```
//!
//! The stream follows the size form at once. Behind the EOF form a primary sends nothing until it has an acknowledgement.

/// Length of the mark that ends the EOF form.
pub const MARK_BYTES: usize = 40;

/// How the end of a snapshot is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// By its length in bytes.
    Size(u64),
    /// By a mark that follows it.
    Mark([u8; MARK_BYTES]),
}

impl Framing {
    /// Parses the line in front of a snapshot, without its end.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let rest = line.strip_prefix(b"$")?;
        match rest.strip_prefix(b"EOF:") {
            Some(mark) => mark.try_into().ok().map(Self::Mark),
            None => crate::wire::number(rest).map(Self::Size),
        }
    }

    /// Returns the line in front of a snapshot.
    pub fn head(&self) -> Vec<u8> {
        match self {
            Self::Size(length) => format!("${length}\r\n").into_bytes(),
            Self::Mark(mark) => [b"$EOF:", &mark[..], b"\r\n"].concat(),
        }
    }
}

/// A part of the bytes that came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotPart {
    /// Bytes of the snapshot that were held back before, since they could have been the mark; they come first.
    pub held: Vec<u8>,
    /// How many of the bytes that came belong to the snapshot, from the first one on.
    pub bytes: usize,
    /// How many of them were taken: the rest is the stream.
    pub taken: usize,
    /// The snapshot is complete.
    pub is_complete: bool,
}

/// Finds the end of a snapshot in bytes that come in any pieces.
#[derive(Debug)]
pub struct SnapshotReader {
    framing: Framing,
    read: u64,
    /// The last bytes that came, while they may belong to the mark.
    tail: Vec<u8>,
}

impl SnapshotReader {
    /// A reader in front of the first byte.
    pub fn new(framing: Framing) -> Self {
        Self { framing, read: 0, tail: Vec::new() }
    }

    /// Bytes of the snapshot so far.
    pub fn read(&self) -> u64 {
        self.read
    }

    /// Bytes in all, where that is known.
    pub fn total(&self) -> Option<u64> {
        match self.framing {
            Framing::Size(total) => Some(total),
            Framing::Mark(_) => None,
        }
    }

    /// Takes bytes. A primary that sends the EOF form sends nothing behind it, so a mark is looked for at the end only.
    pub fn take(&mut self, input: &[u8]) -> SnapshotPart {
        match self.framing {
            Framing::Size(total) => {
                let bytes = usize::try_from(total - self.read).unwrap_or(usize::MAX).min(input.len());
                self.read += bytes as u64;
                let is_complete = self.read == total;
                SnapshotPart { held: Vec::new(), bytes, taken: bytes, is_complete }
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
                SnapshotPart { held, bytes, taken: input.len(), is_complete }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(framing: Framing, input: &[u8], step: usize) -> (Vec<u8>, usize, bool) {
        let (mut reader, mut out, mut at) = (SnapshotReader::new(framing), Vec::new(), 0);
        while at < input.len() {
            let piece = &input[at..input.len().min(at + step)];
            let part = reader.take(piece);
            out.extend_from_slice(&part.held);
            out.extend_from_slice(&piece[..part.bytes]);
            at += part.taken;
            assert_eq!(reader.read(), out.len() as u64);
            if part.is_complete {
                return (out, at, true);
            }
        }
        (out, at, false)
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
                (body.clone(), body.len(), true)
            );
            assert_eq!(read(Framing::Mark(mark), &marked, step), (body.clone(), marked.len(), true));
            assert!(!read(Framing::Mark(mark), &marked[..marked.len() - 1], step).2);
        }
    }

    #[test]
    fn framing_is_parsed_as_it_is_written() {
        for framing in [Framing::Size(0), Framing::Size(u64::MAX), Framing::Mark([b'x'; 40])] {
            let head = framing.head();
            assert_eq!(Framing::parse(head.strip_suffix(b"\r\n").unwrap()), Some(framing));
        }
        for wrong in [&b"$"[..], b"$-1", b"$x", b"$EOF:", b"$EOF:short", b"5", b"+OK", b""] {
            assert_eq!(Framing::parse(wrong), None);
        }
    }
}
