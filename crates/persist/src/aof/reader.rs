//! Reading an append-only file: its commands, one by one, and whether its batches are whole.
//!
//! Nothing of the file is believed: no announced length sizes an allocation, and bytes that are no command end the
//! reading with their place. The two ways in which a file ends early are distinguished: if it just stops, or goes on
//! with nothing but zeros, it was *cut*, as a crash does it; anything else is *corrupt*.

use std::fmt;
use std::io::{self, Read};
use std::ops::Range;

use super::check::{Check, Checksum, PREFIX};

/// Bytes of the first read; more if a command is longer.
const READ_BYTES: usize = 1 << 20;
/// Longest line: heads of commands and comments, as Redis has it.
const LINE_BYTES_MAX: usize = 1024;
/// Longest word of a command.
const WORD_BYTES_MAX: u64 = 1 << 40;
/// Words of a command at most.
const WORDS_MAX: u64 = i32::MAX as u64;

/// Why reading has ended before the end of the file.
#[derive(Debug)]
pub enum ReadError {
    /// The file cannot be read.
    Io(io::Error),
    /// The file stops in the middle of something, or only zeros follow.
    Cut,
    /// The bytes there make no sense.
    Corrupt(&'static str),
    /// A check stands there, and the batch before it has changed since it was written.
    Disproved(&'static str),
}

impl fmt::Display for ReadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(out),
            Self::Cut => out.write_str("the file was cut off"),
            Self::Corrupt(reason) | Self::Disproved(reason) => out.write_str(reason),
        }
    }
}

impl std::error::Error for ReadError {}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// How far a file has been read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Offset of the next command, in bytes from the start of the file.
    pub offset: u64,
    /// Commands read.
    pub commands: u64,
    /// Batches whose check was right.
    pub batches: u64,
    /// The log's offset behind the last such batch, 0 before the first.
    pub lsn: u64,
    /// Bytes behind the last check, which nothing proves.
    pub unproven_bytes: u64,
    /// Bytes of commands among them.
    pub unproven_record_bytes: u64,
    /// Their checksum.
    pub unproven_sum: Checksum,
}

impl Progress {
    /// Returns the log's offset behind the part of a file that was read, if a check in it says so or it was at `lsn` in
    /// front of it.
    pub fn log_end(&self, lsn: Option<u64>) -> Option<u64> {
        let proven = if self.batches > 0 { Some(self.lsn) } else { lsn };
        proven.map(|lsn| lsn.saturating_add(self.unproven_record_bytes))
    }
}

/// Reads the commands of a file.
#[derive(Debug)]
pub struct Reader<R> {
    source: R,
    buffer: Vec<u8>,
    /// Place of the next command in `buffer`.
    at: usize,
    ended: bool,
    words: Vec<Range<usize>>,
    progress: Progress,
    proven: Progress,
    before: Progress,
    /// The log's offset at the beginning of the file, if that is known.
    begins_at: Option<u64>,
}

/// The line in front of a command that is in the file alone, and not in the log: it has no offsets. A file that begins while
/// another database than 0 is selected begins with a SELECT of that kind, in its opening.
pub const HEAD: &[u8] = b"#HEAD\r\n";

/// The item at one place of a file.
enum Parsed {
    /// A line that begins with `#`, and its length with its end.
    Comment(usize),
    /// A command, and its length.
    Command(usize),
    /// A command that is not part of the log, and its length with [`HEAD`].
    Head(usize),
}

/// Why the bytes there could not be parsed.
enum Stop {
    /// More bytes are needed.
    Incomplete,
    /// A zero stands at this distance, a place in which none can be.
    Zero(usize),
    /// The bytes make no sense.
    Corrupt(&'static str),
}

impl<R: Read> Reader<R> {
    /// Reads from `source`, whose first byte is the one at `offset` of the file.
    pub fn new(source: R, offset: u64) -> Self {
        let progress = Progress { offset, ..Progress::default() };
        let (buffer, words) = (Vec::new(), Vec::new());
        let (proven, before) = (progress, progress);
        Self { source, buffer, at: 0, ended: false, words, progress, proven, before, begins_at: None }
    }

    /// How far it had come where the last command begins.
    pub fn before(&self) -> Progress {
        self.before
    }

    /// Expects the file to go on with a log that has come to `lsn`, if that is known.
    pub fn going_on_from(self, lsn: Option<u64>) -> Self {
        Self { begins_at: lsn, ..self }
    }

    /// How far it has come: behind the last command.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// The good part of the file, if reading has ended with `error`: in a transaction, if there is what was read before
    /// it. Of a batch that its check disproves nothing is good, since the damage may be in any of its commands.
    pub fn good_before(&self, error: &ReadError, before_transaction: Option<Progress>) -> Progress {
        match error {
            ReadError::Disproved(_) => self.proven,
            ReadError::Io(_) | ReadError::Cut | ReadError::Corrupt(_) => {
                before_transaction.unwrap_or(self.progress)
            }
        }
    }

    /// How far it had come at the last check.
    pub(super) fn proven(&self) -> Progress {
        self.proven
    }

    /// The words of the next command; `None` at the end of the file. After an error, [`Self::progress`] has the place.
    pub fn read_command(&mut self) -> Result<Option<Vec<&[u8]>>, ReadError> {
        loop {
            let parsed = parse(&self.buffer[self.at..], &mut self.words);
            match parsed {
                Err(Stop::Incomplete) if self.fill()? => {}
                Err(Stop::Incomplete) if self.at == self.buffer.len() => return Ok(None),
                Err(Stop::Incomplete) => return Err(ReadError::Cut),
                Err(Stop::Zero(distance)) => return Err(self.judge_zeros(distance)?),
                Err(Stop::Corrupt(reason)) => return Err(ReadError::Corrupt(reason)),
                Ok(Parsed::Comment(length)) => self.pass_comment(length)?,
                Ok(Parsed::Command(length) | Parsed::Head(length)) => {
                    let start = self.at;
                    self.before = self.progress;
                    self.advance(length);
                    self.progress.commands += 1;
                    if let Ok(Parsed::Command(_)) = parsed {
                        self.progress.unproven_record_bytes += length as u64;
                    }
                    let bytes = &self.buffer[start..start + length];
                    return Ok(Some(self.words.iter().filter_map(|word| bytes.get(word.clone())).collect()));
                }
            }
        }
    }

    /// The bytes of the next record of the log, as [`Self::read_command`] finds it; heads are passed over.
    pub(super) fn read_record(&mut self) -> Result<Option<&[u8]>, ReadError> {
        loop {
            if self.read_command()?.is_none() {
                return Ok(None);
            }
            let length = (self.progress.offset - self.before.offset) as usize;
            let is_head = self.progress.unproven_record_bytes == self.before.unproven_record_bytes;
            if !is_head {
                return Ok(Some(&self.buffer[self.at - length..self.at]));
            }
        }
    }

    /// Whether the file ends before there is a record.
    pub fn has_no_record(mut self) -> bool {
        matches!(self.read_record(), Ok(None))
    }

    fn advance(&mut self, length: usize) {
        self.progress.unproven_sum.add(&self.buffer[self.at..self.at + length]);
        self.at += length;
        self.progress.offset += length as u64;
        self.progress.unproven_bytes += length as u64;
    }

    fn pass_comment(&mut self, length: usize) -> Result<(), ReadError> {
        let line = &self.buffer[self.at..self.at + length];
        if !line.starts_with(PREFIX) {
            self.advance(length);
            return Ok(());
        }
        let progress = &mut self.progress;
        let line = line.strip_suffix(b"\r\n").unwrap_or(line);
        let Some((check, true)) = Check::parse(line, progress.unproven_sum) else {
            return Err(ReadError::Disproved("the checksum of the batch before is wrong"));
        };
        if check.length != progress.unproven_bytes {
            return Err(ReadError::Disproved("the batch before has another length than its check says"));
        }
        let before = if progress.batches > 0 { Some(progress.lsn) } else { self.begins_at };
        let belongs = |before: u64| before.checked_add(progress.unproven_record_bytes) == Some(check.lsn);
        if !before.is_none_or(belongs) {
            return Err(ReadError::Disproved("the batch before is not the one that belongs here"));
        }
        self.at += length;
        progress.offset += length as u64;
        progress.batches += 1;
        progress.lsn = check.lsn;
        progress.unproven_bytes = 0;
        progress.unproven_record_bytes = 0;
        progress.unproven_sum = Checksum::default();
        self.proven = *progress;
        Ok(())
    }

    /// Reads more of the file. Returns whether there was any.
    fn fill(&mut self) -> Result<bool, ReadError> {
        if self.ended {
            return Ok(false);
        }
        self.buffer.drain(..std::mem::take(&mut self.at));
        // Twice the present size: a long command is looked at a few times only.
        let wanted = READ_BYTES.max(self.buffer.len()) as u64;
        let read = (&mut self.source).take(wanted).read_to_end(&mut self.buffer)?;
        self.ended = read == 0;
        Ok(read > 0)
    }

    /// A file system may have given a file its length, but not its last bytes: then the rest is zeros.
    fn judge_zeros(&mut self, distance: usize) -> io::Result<ReadError> {
        let mut piece = self.buffer[self.at + distance..].to_vec();
        while !piece.is_empty() {
            if piece.iter().any(|byte| *byte != 0) {
                return Ok(ReadError::Corrupt("zeros stand where a command should be"));
            }
            piece.clear();
            (&mut self.source).take(READ_BYTES as u64).read_to_end(&mut piece)?;
        }
        Ok(ReadError::Cut)
    }
}

/// Looks at the item at the start of `bytes`; of a command, notes where its words are.
fn parse(bytes: &[u8], words: &mut Vec<Range<usize>>) -> Result<Parsed, Stop> {
    match bytes.first() {
        None => return Err(Stop::Incomplete),
        Some(b'#') if bytes.starts_with(HEAD) => {
            let Parsed::Command(length) = parse(&bytes[HEAD.len()..], words)? else {
                return Err(Stop::Corrupt("no command follows the mark of one that is in the file alone"));
            };
            words.iter_mut().for_each(|word| *word = word.start + HEAD.len()..word.end + HEAD.len());
            return Ok(Parsed::Head(HEAD.len() + length));
        }
        Some(b'#') => {
            let within = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
            return match within.iter().position(|byte| matches!(byte, b'\n' | 0)) {
                Some(end) if within[end] == 0 => Err(Stop::Zero(end)),
                Some(end) => Ok(Parsed::Comment(end + 1)),
                None if within.len() == LINE_BYTES_MAX => Err(Stop::Corrupt("a comment does not end")),
                None => Err(Stop::Incomplete),
            };
        }
        _ => {}
    }
    let (count, mut at) = number(bytes, 0, b'*', "neither a command nor a comment begins here")?;
    if count == 0 || count > WORDS_MAX {
        return Err(Stop::Corrupt("a command has an impossible number of words"));
    }
    words.clear();
    for _ in 0..count {
        let (length, start) = number(bytes, at, b'$', "a word of a command does not begin with '$'")?;
        if length > WORD_BYTES_MAX {
            return Err(Stop::Corrupt("a word of a command has an impossible length"));
        }
        let end = start + length as usize;
        expect(bytes, end, b'\r', "a word of a command is longer than it says")?;
        expect(bytes, end + 1, b'\n', "a word of a command is longer than it says")?;
        words.push(start..end);
        at = end + 2;
    }
    Ok(Parsed::Command(at))
}

/// Expects a byte at a place.
fn expect(bytes: &[u8], at: usize, expected: u8, otherwise: &'static str) -> Result<(), Stop> {
    match bytes.get(at) {
        None => Err(Stop::Incomplete),
        Some(byte) if *byte == expected => Ok(()),
        Some(0) => Err(Stop::Zero(at)),
        Some(_) => Err(Stop::Corrupt(otherwise)),
    }
}

/// The number behind the mark that stands at `at`, and the start of the next line.
fn number(bytes: &[u8], at: usize, mark: u8, otherwise: &'static str) -> Result<(u64, usize), Stop> {
    expect(bytes, at, mark, otherwise)?;
    let (mut value, mut end) = (0_u64, at + 1);
    while let Some(digit) = bytes.get(end).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10) {
        let next = value.checked_mul(10).and_then(|value| value.checked_add(u64::from(digit)));
        value = next.ok_or(Stop::Corrupt("a number is too large"))?;
        end += 1;
    }
    expect(bytes, end, b'\r', "a number was expected")?;
    expect(bytes, end + 1, b'\n', "a number is not followed by the end of its line")?;
    if end == at + 1 {
        return Err(Stop::Corrupt("a number was expected"));
    }
    Ok((value, end + 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Gives one byte a read, so that everything is incomplete once.
    struct Trickle<'a>(&'a [u8]);

    impl Read for Trickle<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let count = self.0.len().min(out.len()).min(1);
            out[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    fn command(words: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        dunlin_engine::write_command(&mut out, words);
        out
    }

    /// A batch with its check, behind a log of `lsn` bytes.
    fn batch(lsn: &mut u64, commands: &[&[&[u8]]]) -> Vec<u8> {
        let mut bytes: Vec<u8> = commands.iter().flat_map(|words| command(words)).collect();
        *lsn += bytes.len() as u64;
        let mut sum = Checksum::default();
        sum.add(&bytes);
        bytes.extend(Check { lsn: *lsn, length: bytes.len() as u64 }.line(sum));
        bytes
    }

    type Read1 = (Vec<Vec<Vec<u8>>>, Progress, Option<String>);

    fn read(bytes: &[u8]) -> Read1 {
        let mut reader = Reader::new(bytes, 0);
        let mut commands = Vec::new();
        loop {
            match reader.read_command() {
                Ok(Some(words)) => commands.push(words.iter().map(|word| word.to_vec()).collect()),
                Ok(None) => return (commands, reader.progress(), None),
                Err(error) => return (commands, reader.progress(), Some(error.to_string())),
            }
        }
    }

    fn sample() -> Vec<u8> {
        let mut lsn = 500;
        let long = vec![b'x'; 3000];
        let mut bytes = batch(&mut lsn, &[&[b"SET", b"a", b"1\r\n2"], &[b"DEL", b""]]);
        bytes.extend_from_slice(b"#TS:12\r\n");
        let mut sum = Checksum::default();
        sum.add(b"#TS:12\r\n");
        let record = command(&[b"SET", b"long", &long]);
        sum.add(&record);
        lsn += record.len() as u64;
        bytes.extend_from_slice(&record);
        bytes.extend(Check { lsn, length: record.len() as u64 + 8 }.line(sum));
        bytes.extend(batch(&mut lsn, &[&[b"MULTI"], &[b"INCR", b"n"], &[b"EXEC"]]));
        bytes
    }

    #[test]
    fn reader_takes_a_head_as_a_command_without_offsets() {
        let select: &[&[u8]] = &[b"SELECT", b"3"];
        let mut head = HEAD.to_vec();
        head.extend(command(select));
        let set = command(&[b"SET", b"a", b"1"]);
        let mut sum = Checksum::default();
        sum.add(&head);
        sum.add(&set);
        let lsn = 500 + set.len() as u64;
        let check = Check { lsn, length: (head.len() + set.len()) as u64 }.line(sum);
        let bytes = [&head[..], &set, &check].concat();
        let mut reader = Reader::new(Trickle(&bytes), 0).going_on_from(Some(500));
        assert_eq!(reader.read_command().unwrap().unwrap(), select);
        assert_eq!(reader.progress().unproven_record_bytes, 0);
        assert_eq!(reader.read_command().unwrap().unwrap(), [&b"SET"[..], b"a", b"1"]);
        assert_eq!(reader.read_command().unwrap(), None);
        assert_eq!((reader.progress().lsn, reader.progress().batches), (lsn, 1));
        // A head that a crash has cut is cut off as a whole, with its mark.
        for length in 1..head.len() {
            let mut reader = Reader::new(&head[..length], 0);
            assert!(reader.read_command().is_err(), "{length}");
            assert_eq!(reader.progress().offset, 0);
        }
        let mut twice = HEAD.to_vec();
        twice.extend(&head);
        assert!(matches!(Reader::new(&twice[..], 0).read_command(), Err(ReadError::Corrupt(_))));
    }

    #[test]
    fn commands_come_out_and_checks_are_checked() {
        let bytes = sample();
        let (commands, progress, error) = read(&bytes);
        assert_eq!(error, None);
        assert_eq!(commands.len(), 6);
        assert_eq!(commands[0], [b"SET".to_vec(), b"a".to_vec(), b"1\r\n2".to_vec()]);
        assert_eq!((progress.batches, progress.unproven_bytes), (3, 0));
        assert_eq!(progress.offset, bytes.len() as u64);
        let mut trickled = Reader::new(Trickle(&bytes), 0);
        let mut count = 0;
        while trickled.read_command().unwrap().is_some() {
            count += 1;
        }
        assert_eq!((count, trickled.progress()), (6, progress));
    }

    #[test]
    fn reader_takes_a_file_without_checks_as_it_is() {
        let bytes =
            [command(&[b"SET", b"a", b"1"]), b"# a comment\r\n".to_vec(), command(&[b"DEL", b"a"])].concat();
        let (commands, progress, error) = read(&bytes);
        assert_eq!((commands.len(), error), (2, None));
        assert_eq!((progress.batches, progress.unproven_bytes), (0, bytes.len() as u64));
        assert_eq!(progress.unproven_record_bytes, bytes.len() as u64 - 13);
    }

    #[test]
    fn reader_gives_a_prefix_of_a_file_cut_at_any_byte() {
        let bytes = sample();
        let (all, ..) = read(&bytes);
        for cut in 0..bytes.len() {
            for zeros in [0, 1, 5000] {
                let mut part = bytes[..cut].to_vec();
                part.resize(cut + zeros, 0);
                let (commands, progress, error) = read(&part);
                assert_eq!(commands, all[..commands.len()], "cut at {cut}");
                assert!(progress.offset <= cut as u64);
                if progress.offset < part.len() as u64 {
                    assert_eq!(error.as_deref(), Some("the file was cut off"), "cut at {cut}, {zeros} zeros");
                }
            }
        }
    }

    #[test]
    fn reader_notices_every_flipped_bit() {
        let bytes = sample();
        let (all, ..) = read(&bytes);
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let (commands, progress, error) = read(&flipped);
            let proven = error.is_none() && progress.unproven_bytes == 0;
            assert!(!proven, "bit {bit}");
            // A damaged check of the last batch looks like a comment; the commands are right then.
            assert!(error.is_some() || commands == all, "bit {bit}");
        }
    }

    #[test]
    fn reader_goes_on_in_the_next_file() {
        let mut lsn = 500;
        let (first, second) =
            (batch(&mut lsn, &[&[b"SET", b"a", b"1"]]), batch(&mut lsn, &[&[b"DEL", b"a"]]));
        let unproven = command(&[b"SET", b"b", b"1"]);
        let ends = |bytes: &[u8], from: Option<u64>| {
            let mut reader = Reader::new(bytes, 0).going_on_from(from);
            loop {
                match reader.read_command() {
                    Ok(Some(_)) => {}
                    Ok(None) => return Ok(reader.progress().log_end(from).unwrap()),
                    Err(error) => return Err(error.to_string()),
                }
            }
        };
        let between = ends(&first, None).unwrap();
        assert_eq!(ends(&second, Some(between)), Ok(lsn));
        assert_eq!(ends(b"", Some(between)), Ok(between));
        // A file written by Redis has no checks, and counts.
        assert_eq!(ends(&unproven, Some(7)), Ok(7 + unproven.len() as u64));
        for other in [0, 500, between - 1, between + 1, lsn, u64::MAX] {
            assert_eq!(
                ends(&second, Some(other)).unwrap_err(),
                "the batch before is not the one that belongs here"
            );
        }
    }

    #[test]
    fn reader_takes_nothing_of_a_batch_that_its_check_disproves() {
        let mut lsn = 0;
        let good = batch(&mut lsn, &[&[b"SET", b"a", b"1"]]);
        let others: [&[&[&[u8]]]; 2] = [
            &[&[b"SET", b"b", b"x"], &[b"SET", b"c", b"3"]],
            &[&[b"MULTI"], &[b"SET", b"b", b"x"], &[b"EXEC"]],
        ];
        for other in others {
            let mut lsn = lsn;
            let mut bytes = [&good[..], &batch(&mut lsn, other)].concat();
            let value = bytes.iter().position(|byte| *byte == b'x').unwrap();
            bytes[value] = b'y';
            let mut reader = Reader::new(&bytes[..], 0);
            let error = loop {
                match reader.read_command() {
                    Ok(words) => assert!(words.is_some()),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.to_string(), "the checksum of the batch before is wrong");
            let end = reader.good_before(&error, None);
            assert_eq!((end.offset, end.commands, end.batches), (good.len() as u64, 1, 1));
        }
    }

    #[test]
    fn cut_leaves_the_check_of_what_precedes_it() {
        let mut lsn = 0;
        let good = batch(&mut lsn, &[&[b"SET", b"a", b"1"]]);
        for (torn, is_open) in [(&b"*1\r\n$4\r\nPI"[..], false), (b"*1\r\n$5\r\nMULTI\r\n*1", true)] {
            let bytes = [&good[..], torn].concat();
            let mut reader = Reader::new(&bytes[..], 0);
            reader.read_command().unwrap();
            let error = loop {
                if let Err(error) = reader.read_command() {
                    break error;
                }
            };
            let end = reader.good_before(&error, is_open.then_some(reader.before()));
            assert_eq!((end.offset, end.unproven_bytes), (good.len() as u64, 0));
        }
    }

    #[test]
    fn reader_notices_a_missing_or_moved_batch() {
        let mut lsn = 0;
        let batches = [
            batch(&mut lsn, &[&[b"SET", b"a", b"1"]]),
            batch(&mut lsn, &[&[b"SET", b"b", b"1"]]),
            batch(&mut lsn, &[&[b"SET", b"c", b"1"]]),
        ];
        assert_eq!(read(&batches.concat()).2, None);
        for order in [&[0, 2, 1][..], &[1, 0], &[0, 0]] {
            let bytes: Vec<u8> = order.iter().flat_map(|index| batches[*index].clone()).collect();
            let error = read(&bytes).2;
            assert_eq!(
                error.as_deref(),
                Some("the batch before is not the one that belongs here"),
                "{order:?}"
            );
        }
    }

    #[test]
    fn nonsense_is_refused_and_reserves_nothing() {
        for (bytes, reason) in [
            (&b"SET a 1\r\n"[..], "neither a command"),
            (b"*0\r\n", "impossible number of words"),
            (b"*99999999999\r\n", "impossible number of words"),
            (b"*-1\r\n", "a number was expected"),
            (b"*\r\n", "a number was expected"),
            (b"*1\n", "a number was expected"),
            (b"*1\rx", "end of its line"),
            (b"*1\r\nx", "does not begin with '$'"),
            (b"*1\r\n$99999999999999999999999\r\n", "too large"),
            (b"*1\r\n$9999999999999999\r\n", "impossible length"),
            (b"*1\r\n$2\r\nabc", "longer than it says"),
            (b"*1\r\n$1099511627776\r\nabc", "cut off"),
            (b"*2147483647\r\n$1\r\na\r\n", "cut off"),
            (b"\0\0\0x", "zeros stand"),
            (b"*1\r\n$1\r\na\r\n\0\0", "cut off"),
        ] {
            let error = read(bytes).2.unwrap_or_default();
            assert!(error.contains(reason), "{}: {error}", bytes.escape_ascii());
        }
        let endless = [b"#".as_slice(), &[b'x'; 2000]].concat();
        assert_eq!(read(&endless).2.as_deref(), Some("a comment does not end"));
    }

    proptest! {
        #[test]
        fn reader_ends_within_any_bytes(bytes in prop::collection::vec(prop::sample::select(b"*$#12\r\n\0aC".to_vec()), 0..300)) {
            let (_, progress, _) = read(&bytes);
            prop_assert!(progress.offset <= bytes.len() as u64);
        }
    }
}
