//! Copies of entries on their way into a file: parts of RDB files, or commands that make the keys anew.

use std::io;

use dunlin_structures::prefetch_span_for_write;

use crate::{
    aof_rewrite,
    keyspace::{EntryRef, LentEntry},
    rdb::{
        LongString, Output, Text, Version, length_bytes, version_of, whole_version_of, write_elements,
        write_key, write_value,
    },
    value::{
        LongText,
        incremental_copy::Elements,
        stream::{StreamTail, write_tail},
    },
};

/// The time of writing: a snapshot has all that is there, even if it has expired. Only the server that reads it knows
/// whether it may remove that: a replica, or a primary that has replicas, waits for the DEL of the stream that it goes
/// on in.
const NOTHING_EXPIRED_MS: u64 = 0;
/// Bytes of a chunk from which on it is finished.
pub(super) const CHUNK_BYTES: usize = 16 * 1024;
/// Bytes that the last entry of a chunk takes behind [`CHUNK_BYTES`], usually.
const ENTRY_BYTES_USUAL: usize = 512;
/// Most bytes behind an entry that are fetched for the next.
const FETCHED_BYTES_MAX: usize = 512;

/// The form of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    /// Commands instead of parts of RDB files.
    pub commands: bool,
    /// The version of RDB files that the servers load which are to read it; `None` for the oldest from
    /// [`Version::OLDEST`] on that carries the values. If it is given, each value fits: [`crate::rdb::unfit`].
    pub version: Option<Version>,
    /// Whether the writer of the chunks may compress long strings of RDB files.
    pub compress: bool,
}

impl Form {
    /// RDB files for Redis 7.0 and newer.
    pub const fn rdb(compress: bool) -> Self {
        Self { commands: false, version: None, compress }
    }

    /// The version that an entry is written for.
    pub(super) fn version_of(self, entry: EntryRef<'_>) -> Version {
        match self.version {
            Some(version) => version,
            // Commands have no auxiliary fields.
            None if self.commands => whole_version_of(entry),
            None => version_of(entry),
        }
    }
}

/// Entries of one database, in the form of the file but for long strings, which may yet be compressed, or are shared
/// with the keyspace and stand elsewhere. Or one large entry that is shared as a whole.
#[derive(Debug)]
pub struct Chunk {
    database: usize,
    form: Form,
    keys: u64,
    /// The oldest version that all values have a form in.
    version: Version,
    bytes: Vec<u8>,
    long: Vec<LongString>,
    /// Bytes of the strings that stand elsewhere, as far as a change copies them all.
    shared_bytes: usize,
    /// An entry that was not copied: it is alone.
    lent: Option<LentEntry>,
    /// A piece of a collection: it is alone.
    piece: Option<Piece>,
}

/// A piece of a collection that is copied in pieces.
#[derive(Debug)]
pub(super) struct Piece {
    /// The bytes before the elements in the file; empty but for the first piece.
    pub(super) head: Vec<u8>,
    pub(super) elements: Elements,
    /// The part behind them; none but in the last piece.
    pub(super) tail: Option<Box<StreamTail>>,
    /// Whether it is not the last piece, or all elements of the cut were in one of them.
    pub(super) is_sound: bool,
}

impl Chunk {
    pub(super) fn new(database: usize, form: Form) -> Self {
        let version = form.version.unwrap_or(Version::OLDEST);
        let (bytes, long) = (Vec::new(), Vec::new());
        Self { database, form, keys: 0, version, bytes, long, shared_bytes: 0, lent: None, piece: None }
    }

    /// A chunk of `length` bytes.
    #[cfg(all(test, loom))]
    pub(super) fn of_bytes(length: usize) -> Self {
        Self { bytes: vec![0; length], ..Self::new(0, Form::rdb(false)) }
    }

    /// A chunk of an entry that is read when it is written.
    pub(super) fn lent(database: usize, form: Form, entry: LentEntry) -> Self {
        let version = form.version_of(entry.get());
        Self { keys: 1, version, lent: Some(entry), ..Self::new(database, form) }
    }

    /// A chunk of a piece of a collection. No other chunk may come between it and the next piece.
    pub(super) fn piece(database: usize, form: Form, version: Version, piece: Piece) -> Self {
        let keys = u64::from(!piece.head.is_empty());
        Self { keys, version, piece: Some(piece), ..Self::new(database, form) }
    }

    /// Whether it has a view of an entry.
    pub(super) fn lends(&self) -> bool {
        self.lent.is_some()
    }

    /// The database of the keys.
    pub fn database(&self) -> usize {
        self.database
    }

    /// How many keys; a collection in pieces counts with its first one.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// The version that the chunk was made for, or else the oldest one that all values have a form in.
    pub fn version(&self) -> Version {
        self.version
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys == 0
    }

    /// Bytes that the chunk keeps in memory.
    pub fn memory_bytes(&self) -> usize {
        let piece_bytes = self.piece.as_ref().map_or(0, Piece::memory_bytes);
        self.bytes.len() + self.long.len() * size_of::<LongString>() + self.shared_bytes + piece_bytes
    }

    /// Adds an entry. O(its value), O(1) for long strings.
    pub(super) fn add(&mut self, entry: EntryRef<'_>) {
        if self.keys == 0 {
            // All at once: a buffer that grows in steps is copied at each.
            self.bytes.reserve_exact(CHUNK_BYTES + ENTRY_BYTES_USUAL);
        }
        self.keys += 1;
        let before = self.bytes.len();
        self.copy(entry);
        // The next entry goes there and may be as long. The memory comes from the thread that has written the last
        // chunk, and the copying thread is about to release a lock.
        let fetched = (self.bytes.len() - before).min(FETCHED_BYTES_MAX);
        prefetch_span_for_write(self.bytes.as_ptr().wrapping_add(self.bytes.len()), fetched);
    }

    fn copy(&mut self, entry: EntryRef<'_>) {
        let version = self.form.version_of(entry);
        self.version = self.version.newer(version);
        if self.form.commands {
            let share = |at, text: LongText| {
                self.shared_bytes += text.shared_bytes();
                self.long.push(LongString { at, text: Text::Elsewhere(text) });
            };
            aof_rewrite::write(entry, version, NOTHING_EXPIRED_MS, &mut self.bytes, share, &mut |_| {});
            return;
        }
        let at = self.bytes.len();
        let long = self.form.compress.then_some(&mut self.long);
        let mut output = Output::deferring(&mut self.bytes, at, long);
        let text = entry.long_text();
        let write = |output: &mut Output<'_, _>| {
            write_key(entry, version, output)?;
            if text.is_none() { write_value(entry, version, NOTHING_EXPIRED_MS, output) } else { Ok(()) }
        };
        write(&mut output).expect("a vector takes everything");
        if let Some(text) = text {
            self.shared_bytes += text.shared_bytes();
            self.long.push(LongString { at: self.bytes.len(), text: Text::Elsewhere(text) });
        }
    }

    /// Writes the entries. Strings of RDB files are compressed if `output` does that and they are to be `small`.
    pub fn write<W: io::Write>(&self, output: &mut Output<'_, W>, small: bool) -> io::Result<()> {
        if let Some(piece) = &self.piece {
            return piece.write(self.version, output);
        }
        if let Some(entry) = &self.lent {
            if self.form.commands {
                return write_commands(entry.get(), self.version, output);
            }
            write_key(entry.get(), self.version, output)?;
            return write_value(entry.get(), self.version, NOTHING_EXPIRED_MS, output);
        }
        let mut written = 0;
        for LongString { at, text } in &self.long {
            match text {
                Text::Here(length) if small => {
                    output.raw(&self.bytes[written..*at])?;
                    let start = at + length_bytes(*length);
                    written = start + length;
                    output.string(&self.bytes[start..written])?;
                }
                Text::Here(_) => {}
                Text::Elsewhere(text) => {
                    output.raw(&self.bytes[written..*at])?;
                    written = *at;
                    if self.form.commands {
                        output.long_text_bytes(text)?;
                    } else {
                        output.long_text(text, small)?;
                    }
                }
            }
        }
        output.raw(&self.bytes[written..])
    }
}

impl Piece {
    fn memory_bytes(&self) -> usize {
        self.head.len() + self.elements.memory_bytes()
    }

    fn write<W: io::Write>(&self, version: Version, output: &mut Output<'_, W>) -> io::Result<()> {
        if !self.is_sound {
            return Err(io::Error::other("a collection was not copied as a whole; this is a bug"));
        }
        output.raw(&self.head)?;
        write_elements(&self.elements, version, output)?;
        self.tail.iter().try_for_each(|tail| write_tail(tail, version, output))
    }
}

/// Writes the commands that make a collection, in pieces of about the length of a chunk.
fn write_commands<W: io::Write>(
    entry: EntryRef<'_>,
    version: Version,
    output: &mut Output<'_, W>,
) -> io::Result<()> {
    let (mut bytes, mut written) = (Vec::new(), Ok(()));
    let share = |_, _| unreachable!("strings are not lent");
    aof_rewrite::write(entry, version, NOTHING_EXPIRED_MS, &mut bytes, share, &mut |bytes| {
        if bytes.len() >= CHUNK_BYTES {
            if written.is_ok() {
                written = output.raw(bytes);
            }
            bytes.clear();
        }
    });
    written.and_then(|()| output.raw(&bytes))
}
