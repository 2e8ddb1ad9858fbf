//! Copies of entries on their way into a file.

use std::io;

use crate::{
    keyspace::EntryRef,
    rdb::{LongString, Output, Text, Version, length_bytes, version_of, write_key, write_value},
};

/// Entries of one database, in the form of RDB files but for long strings, which may yet be compressed, or
/// are shared with the keyspace and stand elsewhere.
#[derive(Debug)]
pub struct Chunk {
    database: usize,
    keys: u64,
    /// The oldest version that all values have a form in.
    version: Version,
    bytes: Vec<u8>,
    long: Vec<LongString>,
    /// Bytes of the strings that stand elsewhere.
    shared_bytes: usize,
}

impl Chunk {
    pub(super) fn new(database: usize) -> Self {
        let version = Version::OLDEST;
        Self { database, keys: 0, version, bytes: Vec::new(), long: Vec::new(), shared_bytes: 0 }
    }

    /// The database of the keys.
    pub fn database(&self) -> usize {
        self.database
    }

    /// How many keys.
    pub fn keys(&self) -> u64 {
        self.keys
    }

    /// The oldest version that all values have a form in.
    pub fn version(&self) -> Version {
        self.version
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys == 0
    }

    /// Bytes that the chunk keeps in memory.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.long.len() * size_of::<LongString>() + self.shared_bytes
    }

    /// Adds an entry, without the elements that have expired by `now_ms`. O(its value), O(1) for long
    /// strings.
    pub(super) fn add(&mut self, entry: EntryRef<'_>, now_ms: u64, compress: bool) {
        self.keys += 1;
        self.version = self.version.newer(version_of(entry));
        let at = self.bytes.len();
        let long = compress.then_some(&mut self.long);
        let mut output = Output::deferring(&mut self.bytes, at, long);
        let write = |output: &mut Output<'_, _>| {
            write_key(entry, output)?;
            if entry.shared_block().is_none() { write_value(entry, now_ms, output) } else { Ok(()) }
        };
        write(&mut output).expect("a vector takes everything");
        if let Some(block) = entry.shared_block() {
            self.shared_bytes += block.len();
            self.long.push(LongString { at: self.bytes.len(), text: Text::Elsewhere(block) });
        }
    }

    /// Writes the entries; strings are compressed where `output` does that.
    pub fn write<W: io::Write>(&self, output: &mut Output<'_, W>) -> io::Result<()> {
        let mut written = 0;
        for LongString { at, text } in &self.long {
            output.raw(&self.bytes[written..*at])?;
            written = *at;
            match text {
                Text::Here(length) => {
                    let start = at + length_bytes(*length);
                    written = start + length;
                    output.string(&self.bytes[start..written])?;
                }
                Text::Elsewhere(block) => output.string(block)?,
            }
        }
        output.raw(&self.bytes[written..])
    }
}
