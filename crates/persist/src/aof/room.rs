//! Room at the end of a file: bytes that are there to be written over.
//!
//! ```text
//! file  batch… ####…#⏎ ####…#⏎    room: lines of 512 bytes, each ends where a multiple of 512 does; durable, and the
//!       batch… batch …#⏎ ###…#⏎   length stays: the next sync needs no write to the file system's journal
//! ```
//!
//! Redis and Valkey skip lines that begin with `#`, so a file with room is a log that they read, and may append to. A batch
//! does not end in front of the end of a line, which would be left as a line of its own: see [`cuts_a_line`].
//!
//! After a power cut, a batch in room may have holes, which look like `#` within a value. So of a file that ends with
//! room, the reader believes only batches that a check proves. The end of a file shows whether it has room, since the
//! last [`BYTES_MIN`] are never written over.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::check::{Check, Checksum, PREFIX};
use super::reader::{ReadError, Reader};

/// Bytes of a line of room.
pub(super) const LINE_BYTES: u64 = 512;
/// The padding behind the records of a batch that would end in front of the end of a line.
pub(super) const PADDING: &[u8] = b"#\r\n";
/// Bytes of room that a file with room ends with, at least.
pub(super) const BYTES_MIN: u64 = 4096;
/// Larger batches are written without room: filling it would cost as much as it spares.
pub(super) const BATCH_BYTES_MAX: u64 = 256 << 10;
/// Bytes that are looked at together.
const PIECE_BYTES: u64 = 64 << 10;
/// The longest line of a check.
pub(super) const CHECK_BYTES_MAX: u64 = 128;

/// The state of the bytes before room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// Its check proves the last batch.
    Whole,
    /// Nothing proves the last batch: a power cut has torn it, before any client had a reply that says it is durable.
    Torn,
    /// More than the last batch is damaged.
    Damaged,
}

/// A file that ends with room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roomy {
    /// Start of the room.
    pub room: u64,
    /// End of the proven part.
    pub proven: u64,
    /// The state of the bytes between the two.
    pub tail: Tail,
}

/// The byte of room at an offset of the file.
fn byte_at(offset: u64) -> u8 {
    if offset % LINE_BYTES == LINE_BYTES - 1 { b'\n' } else { b'#' }
}

/// Room between two offsets of a file.
pub(super) fn bytes(from: u64, end: u64) -> Vec<u8> {
    (from..end).map(byte_at).collect()
}

/// Whether a batch that ends there would leave nothing of a line of room but its end.
pub(super) fn cuts_a_line(end: u64) -> bool {
    byte_at(end) == b'\n'
}

impl Roomy {
    /// Looks at the end of a file; `None` if there is no room. Reads the last batch if it is whole, and otherwise the
    /// whole file.
    pub fn find(file: &File) -> io::Result<Option<Self>> {
        let length = file.metadata()?.len();
        // A file system may have given a file its length, but not its last bytes.
        let end = run_start(file, length, |_| 0)?;
        let run = run_start(file, end, byte_at)?;
        if end - run < BYTES_MIN {
            return Ok(None);
        }
        // If a batch ends with a line of room, the end of its own line looks like that one's.
        let room = if cuts_a_line(run) { run + 1 } else { run };
        if room == 0 || ends_with_check(file, room)? {
            return Ok(Some(Self { room, proven: room, tail: Tail::Whole }));
        }
        let proven = proven_end(file)?;
        let tail = if is_one_batch(file, proven, room)? { Tail::Torn } else { Tail::Damaged };
        Ok(Some(Self { room, proven, tail }))
    }
}

/// Whether the bytes there can be those that one sync was to make durable: no check stands in them but at their end.
fn is_one_batch(file: &File, from: u64, end: u64) -> io::Result<bool> {
    if end - from > BATCH_BYTES_MAX + CHECK_BYTES_MAX {
        return Ok(false);
    }
    let bytes = read(file, from, end)?;
    let check =
        bytes.windows(PREFIX.len()).position(|bytes| bytes == PREFIX).map_or(&[][..], |at| &bytes[at..]);
    Ok(check.iter().position(|byte| *byte == b'\n').is_none_or(|at| at + 1 == check.len()))
}

/// Returns the start of the run, ending at `end`, of bytes that are as `expected` at their offsets.
fn run_start(file: &File, mut end: u64, expected: impl Fn(u64) -> u8) -> io::Result<u64> {
    while end > 0 {
        let from = end.saturating_sub(PIECE_BYTES);
        let piece = read(file, from, end)?;
        let is_other = |at: usize| piece[at] != expected(from + at as u64);
        match (0..piece.len()).rev().find(|at| is_other(*at)) {
            Some(at) => return Ok(from + at as u64 + 1),
            None => end = from,
        }
    }
    Ok(0)
}

fn read(file: &File, from: u64, end: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; (end - from) as usize];
    file.read_exact_at(&mut bytes, from)?;
    Ok(bytes)
}

/// Whether a batch and its check end at `end`.
fn ends_with_check(file: &File, end: u64) -> io::Result<bool> {
    let from = end.saturating_sub(CHECK_BYTES_MAX);
    let tail = read(file, from, end)?;
    let Some(at) = tail.windows(PREFIX.len()).rposition(|bytes| bytes == PREFIX) else { return Ok(false) };
    let Some(line) = tail[at..].strip_suffix(b"\r\n") else { return Ok(false) };
    let Some((check, _)) = Check::parse(line, Checksum::default()) else { return Ok(false) };
    let batch_end = from + at as u64;
    let Some(mut at) = batch_end.checked_sub(check.length) else { return Ok(false) };
    let mut sum = Checksum::default();
    while at < batch_end {
        let piece_end = batch_end.min(at + PIECE_BYTES);
        sum.add(&read(file, at, piece_end)?);
        at = piece_end;
    }
    Ok(matches!(Check::parse(line, sum), Some((_, true))))
}

/// Returns the end of the last batch whose check is right, as have been those of all before it.
fn proven_end(file: &File) -> io::Result<u64> {
    let mut reader = Reader::new(PositionedReader { file, at: 0 }, 0);
    loop {
        match reader.read_command() {
            Ok(Some(_)) => {}
            Err(ReadError::Io(error)) => return Err(error),
            Ok(None) | Err(ReadError::Cut | ReadError::Corrupt(_) | ReadError::Disproved(_)) => {
                return Ok(reader.proven().offset);
            }
        }
    }
}

/// Reads a file from its beginning without moving its position.
struct PositionedReader<'a> {
    file: &'a File,
    at: u64,
}

impl io::Read for PositionedReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(out, self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(lsn: &mut u64, words: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        dunlin_engine::write_command(&mut bytes, words);
        *lsn += bytes.len() as u64;
        let mut sum = Checksum::default();
        sum.add(&bytes);
        bytes.extend(Check { lsn: *lsn, length: bytes.len() as u64 }.line(sum));
        bytes
    }

    fn find(bytes: &[u8]) -> Option<Roomy> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, bytes).unwrap();
        Roomy::find(&File::open(path).unwrap()).unwrap()
    }

    fn whole(end: u64) -> Roomy {
        Roomy { room: end, proven: end, tail: Tail::Whole }
    }

    fn with_room(mut content: Vec<u8>, room_bytes: u64) -> Vec<u8> {
        let end = content.len() as u64;
        content.extend(bytes(end, end + room_bytes));
        content
    }

    #[test]
    fn room_is_told_from_what_is_before_it() {
        let mut lsn = 0;
        let bytes = batch(&mut lsn, &[b"SET", b"a", b"1"]);
        let length = bytes.len() as u64;
        assert!(!cuts_a_line(length));
        for more in [0, 1, 3 * PIECE_BYTES] {
            let roomy = with_room(bytes.clone(), BYTES_MIN + more);
            assert_eq!(find(&roomy), Some(whole(length)));
            let with_zeros = [roomy, vec![0; 5000]].concat();
            assert_eq!(find(&with_zeros), Some(whole(length)));
        }
        assert_eq!(find(&with_room(Vec::new(), BYTES_MIN)), Some(whole(0)), "nothing was written yet");
        assert_eq!(find(&with_room(bytes.clone(), BYTES_MIN - 1)), None);
        assert_eq!(find(&bytes), None);
        assert_eq!(find(b""), None);
        assert_eq!(find(&vec![0; 5000]), None);
        for length in 0..2 * LINE_BYTES as usize {
            assert_eq!(find(&vec![b'x'; length]), None);
        }
    }

    #[test]
    fn batch_with_holes_is_refused_whichever_they_are() {
        const SECTOR: usize = 512;
        let mut lsn = 0;
        let long = vec![b'v'; 3 * SECTOR];
        let before =
            [batch(&mut lsn, &[b"SET", b"a", b"1"]), batch(&mut lsn, &[b"SET", b"b", &long])].concat();
        let last = batch(&mut lsn, &[b"SET", b"c", &long]);
        let end = before.len() + last.len();
        let whole_bytes = with_room([before.clone(), last].concat(), BYTES_MIN);
        assert_eq!(find(&whole_bytes), Some(whole(end as u64)));
        // The bytes that the last sync was to make durable, sector by sector; of the first one the part behind the
        // batch before.
        let sectors: Vec<_> = (before.len() / SECTOR..=end / SECTOR)
            .map(|sector| (sector * SECTOR).max(before.len())..((sector + 1) * SECTOR).min(end))
            .collect();
        for lost in 1..1_u32 << sectors.len() {
            let mut torn = whole_bytes.clone();
            for (at, sector) in sectors.iter().enumerate() {
                if lost & 1 << at != 0 {
                    torn[sector.clone()].copy_from_slice(&bytes(sector.start as u64, sector.end as u64));
                }
            }
            let found = find(&torn).unwrap();
            assert_eq!(found.proven, before.len() as u64, "lost: {lost:b}");
            let is_all_lost = lost + 1 == 1 << sectors.len();
            assert_eq!(found.tail, if is_all_lost { Tail::Whole } else { Tail::Torn }, "lost: {lost:b}");
        }
    }

    #[test]
    fn batch_may_end_at_the_end_of_a_line_but_not_just_before() {
        for length in 0..2 * LINE_BYTES as usize {
            let mut lsn = 0;
            let content = batch(&mut lsn, &[b"SET", b"a", &vec![b'v'; length]]);
            let end = content.len() as u64;
            let roomy = with_room(content, BYTES_MIN);
            match cuts_a_line(end) {
                true => assert_eq!(roomy[end as usize], b'\n', "which is no line of Redis's"),
                false => assert_eq!(find(&roomy), Some(whole(end)), "{length}"),
            }
        }
    }

    #[test]
    fn damage_before_the_last_batch_is_not_taken_for_a_torn_one() {
        let mut lsn = 0;
        let batches: Vec<_> = (0..3).map(|_| batch(&mut lsn, &[b"SET", b"a", b"12"])).collect();
        let mut bytes = with_room(batches.concat(), BYTES_MIN);
        let (second, end) = (batches[0].len(), batches.concat().len());
        // The last one proves itself; a replay finds those before.
        bytes[second + 4] ^= 1;
        assert_eq!(find(&bytes).unwrap().tail, Tail::Whole);
        bytes[end - 10] ^= 1;
        let damaged = Roomy { room: end as u64, proven: second as u64, tail: Tail::Damaged };
        assert_eq!(find(&bytes), Some(damaged));
        bytes[second + 4] ^= 1;
        assert_eq!(find(&bytes).unwrap().tail, Tail::Torn);
    }
}
