//! The manifest: which files, in which order, make up the append-only log. The format is Redis 7's.
//!
//! ```text
//! file appendonly.aof.1.base.rdb seq 1 type b       the state that the log begins with; none or one
//! file appendonly.aof.3.incr.aof seq 3 type i       commands since then, in the order of seq; the last grows
//! file appendonly.aof.2.incr.aof seq 2 type h       superseded: to be removed
//! file appendonly.aof.2.incr.aof seq 2 type h kept replicas   superseded, and kept for replicas that were away
//! # log 0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c 2  which log this is, see [`LogId`]: a comment to Redis and Valkey
//! # replication 00112233445566778899aabbccddeeff00112233 170   whose stream the log is, see [`StreamId`]
//! # a comment
//! ```
//!
//! Names with blanks or quotes stand in double quotes with backslash escapes. Only a manifest that was
//! replaced as a whole, durably, changes what the log is: files that it does not name do not count.

use std::fmt;

/// Longest manifest that is read.
pub const MANIFEST_BYTES_MAX: u64 = 64 << 20;
/// Longest line, as in Redis.
const LINE_BYTES_MAX: usize = 1024;
/// The beginning of the comment that names the log.
const ID_PREFIX: &[u8] = b"# log ";
/// The beginning of the comment that names the history of replication.
const STREAM_PREFIX: &[u8] = b"# replication ";
/// Hexadecimal digits of a log's name.
const ID_DIGITS: usize = 40;

/// A file of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFile {
    /// Its name in the directory of the log.
    pub name: String,
    /// Its number among its kind.
    pub sequence: u64,
}

/// The format of a log's base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaseFormat {
    /// An RDB file.
    Rdb,
    /// Commands that make the data set (`aof-use-rdb-preamble no`).
    Commands,
}

/// Which log the files of a manifest are.
///
/// ```text
/// # log NAME GENERATION [ORIGIN]
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogId {
    /// 40 hexadecimal digits, drawn at random. A log that is begun by a data set that held all of another one has its name.
    pub name: String,
    /// How many logs of this name there have been: each holds all of the one before.
    pub generation: u64,
    /// The RDB file that the first of them began with, in a word.
    pub origin: Option<String>,
}

/// The history of replication that a log is part of: its records are the bytes of its stream.
///
/// ```text
/// # replication ID BASE [SECOND-ID SECOND-OFFSET]
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamId {
    /// The id of the history that the end of the log belongs to.
    pub id: String,
    /// The stream's offset at the log's offset 0, modulo 2^64.
    pub base: u64,
    /// The id of the history before, and the first offset of the stream that it is not valid for.
    pub second: Option<(String, u64)>,
}

/// The files of the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Which log it is. Redis writes none, and drops it when it replaces the manifest.
    pub id: Option<LogId>,
    /// The history whose stream it is, if there are or were replicas.
    pub stream: Option<StreamId>,
    /// The state that the log begins with: an RDB file, or commands that make it.
    pub base: Option<LogFile>,
    /// Commands since then, oldest first; the last file grows.
    pub increments: Vec<LogFile>,
    /// Files that a newer base has made superfluous.
    pub history: Vec<LogFile>,
    /// Superfluous files whose records replicas may still lack, oldest first: the commands of this log right before its
    /// increments. Redis reads them as superfluous.
    pub retained: Vec<LogFile>,
    /// Files of another log whose place this one takes. These are kept, so no name of theirs is used; a file does not
    /// say this.
    pub kept: Vec<LogFile>,
}

/// A fault of a manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestError {
    /// From 1.
    pub line: usize,
    /// The fault.
    pub reason: &'static str,
}

impl fmt::Display for ManifestError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {}: {}", self.line, self.reason)
    }
}

impl std::error::Error for ManifestError {}

/// Appends the kind and the number of a file: `.1.incr.aof`.
fn suffix(sequence: u64, kind: &str, format: &str) -> String {
    format!(".{sequence}.{kind}.{format}")
}

impl Manifest {
    /// Reads a manifest.
    pub fn parse(bytes: &[u8]) -> Result<Self, ManifestError> {
        let mut manifest = Self::default();
        let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').enumerate();
        let mut found = false;
        for (index, line) in &mut lines {
            let error = |reason| ManifestError { line: index + 1, reason };
            if line.len() > LINE_BYTES_MAX {
                return Err(error("the line is too long"));
            }
            let Some(line) = line.strip_suffix(b"\n") else {
                return Err(error("the line does not end: the file was cut"));
            };
            if line.starts_with(b"#") {
                manifest.id = line.strip_prefix(ID_PREFIX).and_then(parse_id).or(manifest.id);
                let stream = line.strip_prefix(STREAM_PREFIX).and_then(parse_stream);
                manifest.stream = stream.or(manifest.stream);
                continue;
            }
            let line = line.trim_ascii();
            if line.is_empty() {
                return Err(error("the line is empty"));
            }
            found = true;
            manifest.add(line).map_err(error)?;
        }
        if !found {
            return Err(ManifestError { line: 1, reason: "the manifest names no file" });
        }
        Ok(manifest)
    }

    fn add(&mut self, line: &[u8]) -> Result<(), &'static str> {
        let words = split_words(line).ok_or("quotes are not balanced")?;
        let (mut name, mut sequence, mut kind, mut retained) = (None, None, None, false);
        let (pairs, rest) = words.as_chunks::<2>();
        if !rest.is_empty() || pairs.len() < 3 {
            return Err("a line is made of 'file NAME seq NUMBER type b|i|h'");
        }
        for [key, value] in pairs {
            match key.to_ascii_lowercase().as_slice() {
                b"file" => name = Some(value),
                b"seq" => sequence = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()),
                b"type" => kind = value.first().copied().filter(|_| value.len() == 1),
                b"kept" => retained = value == b"replicas",
                // A field of a newer version.
                _ => {}
            }
        }
        let name = name.ok_or("no file is named")?;
        let name = String::from_utf8(name.clone()).map_err(|_| "the name of the file is not text")?;
        if name.is_empty() || name.contains('/') {
            return Err("a file has to be named without a path");
        }
        let sequence =
            sequence.filter(|sequence| *sequence > 0).ok_or("the number behind 'seq' is not one")?;
        let file = LogFile { name, sequence };
        match kind {
            Some(b'b') if self.base.is_some() => return Err("there is a base already"),
            Some(b'b') => self.base = Some(file),
            Some(b'h') if retained => self.retained.push(file),
            Some(b'h') => self.history.push(file),
            Some(b'i') => {
                if self.increments.last().is_some_and(|last| last.sequence >= sequence) {
                    return Err("the numbers of incremental files do not grow");
                }
                self.increments.push(file);
            }
            _ => return Err("the type is none of b, i and h"),
        }
        Ok(())
    }

    /// The manifest as a file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(LogId { name, generation, origin }) = &self.id {
            let origin = origin.iter().map(|origin| format!(" {origin}")).collect::<String>();
            out.extend([ID_PREFIX, format!("{name} {generation}{origin}\n").as_bytes()].concat());
        }
        if let Some(StreamId { id, base, second }) = &self.stream {
            let second = second.iter().map(|(id, offset)| format!(" {id} {offset}")).collect::<String>();
            out.extend([STREAM_PREFIX, format!("{id} {base}{second}\n").as_bytes()].concat());
        }
        let base = self.base.iter().map(|file| (file, "b"));
        let history = self.history.iter().map(|file| (file, "h"));
        let retained = self.retained.iter().map(|file| (file, "h kept replicas"));
        let increments = self.increments.iter().map(|file| (file, "i"));
        for (file, kind) in base.chain(history).chain(retained).chain(increments) {
            out.extend_from_slice(b"file ");
            write_word(&mut out, file.name.as_bytes());
            out.extend_from_slice(format!(" seq {} type {kind}\n", file.sequence).as_bytes());
        }
        out
    }

    /// All files that make up the log, in the order of their loading.
    pub fn files(&self) -> impl Iterator<Item = &LogFile> {
        self.base.iter().chain(&self.increments)
    }

    /// Names the next incremental file and makes it the one that grows.
    pub fn push_increment(&mut self, filename: &str) -> &LogFile {
        let sequence = self.sequences(&self.increments) + 1;
        let name = format!("{filename}{}", suffix(sequence, "incr", "aof"));
        self.increments.push(LogFile { name, sequence });
        self.increments.last().expect("it was just pushed")
    }

    /// The file of the next base, with its name.
    pub fn next_base(&self, filename: &str, format: BaseFormat) -> LogFile {
        let format = match format {
            BaseFormat::Rdb => "rdb",
            BaseFormat::Commands => "aof",
        };
        let sequence = self.sequences(self.base.as_slice()) + 1;
        LogFile { name: format!("{filename}{}", suffix(sequence, "base", format)), sequence }
    }

    /// The highest number of some files, and of those that are to be removed: no name is used again while
    /// there may be something under it.
    fn sequences(&self, files: &[LogFile]) -> u64 {
        let others = [&self.history, &self.retained, &self.kept].into_iter().flatten();
        files.iter().chain(others).map(|file| file.sequence).max().unwrap_or(0)
    }

    /// Makes room for another log, beside which the files of this one are kept.
    pub fn set_aside(&mut self) {
        self.kept.extend(self.base.take());
        self.kept.append(&mut self.increments);
        self.kept.append(&mut self.history);
        self.kept.append(&mut self.retained);
        (self.id, self.stream) = (None, None);
    }

    /// Makes everything history.
    pub fn supersede(&mut self) {
        self.stream = None;
        self.history.extend(self.base.take());
        self.history.append(&mut self.retained);
        self.history.append(&mut self.increments);
    }

    /// Puts a new base in place of the old one and of all incremental files before the one numbered
    /// `since`: they become history, which replicas may still need if there are or were any.
    pub fn replace_base(&mut self, base: LogFile, since: u64) {
        self.history.extend(self.base.replace(base));
        let behind = self.increments.partition_point(|file| file.sequence < since);
        let superseded = self.increments.drain(..behind);
        match self.stream {
            Some(_) => self.retained.extend(superseded),
            None => self.history.extend(superseded),
        }
    }

    /// Makes the oldest of the files that are kept for replicas superfluous, until the rest takes at most `bytes_max`.
    pub fn limit_retained(&mut self, bytes_max: u64, bytes: impl Fn(&LogFile) -> u64) {
        let mut left = bytes_max;
        let fits = |file: &&LogFile| {
            let rest = left.checked_sub(bytes(file));
            left = rest.unwrap_or(0);
            rest.is_some() && bytes_max > 0
        };
        let kept = self.retained.iter().rev().take_while(fits).count();
        let gone = self.retained.len() - kept;
        self.history.extend(self.retained.drain(..gone));
    }
}

/// Reads the text behind [`ID_PREFIX`].
fn parse_id(text: &[u8]) -> Option<LogId> {
    let mut words = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
    let is_name = |name: &&str| name.len() == ID_DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    let name = words.next().filter(is_name)?.to_owned();
    let generation = words.next()?.parse().ok()?;
    Some(LogId { name, generation, origin: words.next().map(str::to_owned) })
}

/// Reads what stands behind [`STREAM_PREFIX`].
fn parse_stream(text: &[u8]) -> Option<StreamId> {
    let mut words = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
    let is_id = |id: &&str| id.len() == ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let id = words.next().filter(is_id)?.to_owned();
    let base = words.next()?.parse().ok()?;
    let second = match words.next() {
        None => None,
        Some(second) => Some((Some(second).filter(is_id)?.to_owned(), words.next()?.parse().ok()?)),
    };
    Some(StreamId { id, base, second })
}

fn needs_quotes(word: &[u8]) -> bool {
    word.is_empty()
        || word.iter().any(|byte| !byte.is_ascii_graphic() || matches!(byte, b'"' | b'\'' | b'\\'))
}

fn write_word(out: &mut Vec<u8>, word: &[u8]) {
    if !needs_quotes(word) {
        return out.extend_from_slice(word);
    }
    out.push(b'"');
    for byte in word {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b' '..=b'~' => out.push(*byte),
            other => out.extend_from_slice(format!("\\x{other:02x}").as_bytes()),
        }
    }
    out.push(b'"');
}

/// Words separated by blanks, quoted with `'` or `"` if need be, as on an inline request.
fn split_words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line.trim_ascii_start();
    while let Some(first) = rest.first() {
        let mut word = Vec::new();
        if let quote @ (b'"' | b'\'') = *first {
            rest = &rest[1..];
            loop {
                let (byte, behind) = rest.split_first()?;
                rest = behind;
                match byte {
                    byte if *byte == quote => break,
                    b'\\' if quote == b'"' => {
                        let (escaped, behind) = rest.split_first()?;
                        rest = behind;
                        word.push(match escaped {
                            b'x' => {
                                let (digits, behind) = rest.split_at_checked(2)?;
                                rest = behind;
                                u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?
                            }
                            b'n' => b'\n',
                            b'r' => b'\r',
                            b't' => b'\t',
                            b'a' => 7,
                            b'b' => 8,
                            other => *other,
                        });
                    }
                    byte => word.push(*byte),
                }
            }
            if rest.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
                return None;
            }
        } else {
            let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
            word.extend_from_slice(&rest[..end]);
            rest = &rest[end..];
        }
        words.push(word);
        rest = rest.trim_ascii_start();
    }
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, sequence: u64) -> LogFile {
        LogFile { name: name.to_owned(), sequence }
    }

    /// A manifest of redis-server 7.0.
    const REDIS: &str = "file appendonly.aof.2.base.rdb seq 2 type b\nfile appendonly.aof.1.incr.aof seq 1 type h\nfile appendonly.aof.2.incr.aof seq 2 type i\n";

    #[test]
    fn stream_line_is_read_as_it_is_written_only() {
        let (id, second) = ("0a".repeat(20), ("ff".repeat(20), 71));
        for second in [None, Some(second)] {
            let stream = StreamId { id: id.clone(), base: u64::MAX - 5, second };
            let manifest = Manifest {
                stream: Some(stream),
                increments: vec![file("appendonly.aof.1.incr.aof", 1)],
                ..Manifest::default()
            };
            assert_eq!(Manifest::parse(&manifest.encode()).unwrap(), manifest);
        }
        for wrong in
            ["", "x 1", &id.to_string(), &format!("{id} x"), &format!("{id} 1 y 2"), &format!("{id} 1 {id}")]
        {
            let text = format!("# replication {wrong}\nfile a seq 1 type i\n");
            assert_eq!(Manifest::parse(text.as_bytes()).unwrap().stream, None, "{wrong}");
        }
    }

    #[test]
    fn manifests_are_read_and_written_as_redis_does() {
        let manifest = Manifest::parse(REDIS.as_bytes()).unwrap();
        assert_eq!(
            manifest,
            Manifest {
                base: Some(file("appendonly.aof.2.base.rdb", 2)),
                increments: vec![file("appendonly.aof.2.incr.aof", 2)],
                history: vec![file("appendonly.aof.1.incr.aof", 1)],
                ..Manifest::default()
            }
        );
        assert_eq!(String::from_utf8(manifest.encode()).unwrap(), REDIS);
        let quoted =
            Manifest { increments: vec![file("my \"log\"\\ \u{e9}.1.incr.aof", 1)], ..Manifest::default() };
        let text = String::from_utf8(quoted.encode()).unwrap();
        assert_eq!(text, "file \"my \\\"log\\\"\\\\ \\xc3\\xa9.1.incr.aof\" seq 1 type i\n");
        assert_eq!(Manifest::parse(text.as_bytes()), Ok(quoted));
        let lax = "# comment\nSEQ 1 TYPE i FILE 'a b' startoffset 7\n";
        assert_eq!(Manifest::parse(lax.as_bytes()).unwrap().increments, [file("a b", 1)]);
    }

    #[test]
    fn manifest_names_its_log_in_a_comment() {
        let name = "0123456789abcdef0123456789abcdef01234567";
        for (rest, origin) in [("", None), (" 12-ff-7", Some("12-ff-7".to_owned()))] {
            let text = format!("# log {name} 3{rest}\nfile a seq 1 type i\n");
            let manifest = Manifest::parse(text.as_bytes()).unwrap();
            assert_eq!(manifest.id, Some(LogId { name: name.to_owned(), generation: 3, origin }));
            assert_eq!(String::from_utf8(manifest.encode()).unwrap(), text);
        }
        let (bare, odd) = (format!("# log {name}"), format!("# log {name} x"));
        for other in ["# log", "# log 12 1", "# log x123456789abcdef0123456789abcdef01234567 1", &bare, &odd]
        {
            let manifest = Manifest::parse(format!("{other}\nfile a seq 1 type i\n").as_bytes()).unwrap();
            assert_eq!(manifest.id, None, "{other}");
        }
    }

    #[test]
    fn manifest_uses_no_name_of_a_log_that_is_kept() {
        let mut manifest = Manifest::parse(REDIS.as_bytes()).unwrap();
        manifest.set_aside();
        assert_eq!(manifest.kept.len(), 3);
        assert_eq!(manifest.next_base("a", BaseFormat::Rdb).name, "a.3.base.rdb");
        assert_eq!(manifest.push_increment("a").name, "a.3.incr.aof");
        assert_eq!(String::from_utf8(manifest.encode()).unwrap(), "file a.3.incr.aof seq 3 type i\n");
    }

    #[test]
    fn files_are_kept_for_replicas_up_to_a_limit() {
        let stream = Some(StreamId { id: "0a".repeat(20), base: 0, second: None });
        let mut manifest = Manifest { stream, ..Manifest::default() };
        for sequence in 1..=4 {
            manifest.push_increment("a");
            manifest.replace_base(file("b", sequence), sequence);
        }
        let names = |files: &[LogFile]| files.iter().map(|file| file.sequence).collect::<Vec<_>>();
        assert_eq!((names(&manifest.retained), names(&manifest.increments)), (vec![1, 2, 3], vec![4]));
        assert_eq!(Manifest::parse(&manifest.encode()).unwrap(), manifest);
        manifest.history.clear();
        manifest.limit_retained(300, |file| file.sequence * 100);
        assert_eq!((names(&manifest.retained), names(&manifest.history)), (vec![3], vec![1, 2]));
        assert_eq!(manifest.push_increment("a").sequence, 5, "no name is used again");
        manifest.limit_retained(299, |file| file.sequence * 100);
        assert_eq!(names(&manifest.history), [1, 2, 3]);
        manifest.replace_base(file("b", 5), 5);
        manifest.supersede();
        assert_eq!((names(&manifest.retained), manifest.history.len()), (vec![], 7), "another log begins");
    }

    #[test]
    fn files_come_and_go() {
        let mut manifest = Manifest::default();
        assert_eq!(manifest.push_increment("a").name, "a.1.incr.aof");
        assert_eq!(manifest.push_increment("a").name, "a.2.incr.aof");
        let base = manifest.next_base("a", BaseFormat::Rdb);
        assert_eq!(base, file("a.1.base.rdb", 1));
        manifest.replace_base(base, 2);
        assert_eq!(manifest.history, [file("a.1.incr.aof", 1)]);
        assert_eq!(
            manifest.files().map(|file| &*file.name).collect::<Vec<_>>(),
            ["a.1.base.rdb", "a.2.incr.aof"]
        );
        assert_eq!(manifest.next_base("a", BaseFormat::Commands).name, "a.2.base.aof");
        manifest.supersede();
        assert_eq!(manifest.history.len(), 3);
        assert_eq!(manifest.push_increment("a").name, "a.3.incr.aof", "the file before may still be there");
    }

    #[test]
    fn manifest_errors_name_their_line() {
        for (text, line, reason) in [
            ("", 1, "names no file"),
            ("# only a comment\n", 1, "names no file"),
            ("file a seq 1 type i", 1, "was cut"),
            ("file a seq 1 type i\n\n", 2, "is empty"),
            ("file a seq 1\n", 1, "a line is made of"),
            ("file a seq x type i\n", 1, "not one"),
            ("file a seq 0 type i\n", 1, "not one"),
            ("file a seq 1 type x\n", 1, "none of"),
            ("file ../a seq 1 type i\n", 1, "without a path"),
            ("file \"a seq 1 type i\n", 1, "not balanced"),
            ("file a seq 1 type b\nfile b seq 2 type b\n", 2, "a base already"),
            ("file a seq 2 type i\nfile b seq 2 type i\n", 2, "do not grow"),
        ] {
            let error = Manifest::parse(text.as_bytes()).unwrap_err();
            assert_eq!(error.line, line, "{text}");
            assert!(error.reason.contains(reason), "{text}: {error}");
        }
        let long = format!("file {} seq 1 type i\n", "x".repeat(1100));
        assert_eq!(Manifest::parse(long.as_bytes()).unwrap_err().reason, "the line is too long");
    }
}
