//! Writing an RDB file.

use std::io;

use dunlin_engine::{
    keyspace::EntryRef,
    rdb::{Compressor, Output, Version, type_of, version_of, write_value},
};

use super::{opcode, summed::SummedSink};

/// Writes an RDB file, part by part: auxiliary fields, functions, then databases with their keys.
pub struct Writer<'a, W: io::Write> {
    output: Output<'a, SummedSink<W>>,
    version: Version,
}

impl<'a, W: io::Write> Writer<'a, W> {
    /// Begins a file. Long strings are compressed where there is a compressor; the checksum is written
    /// where it is wanted.
    pub fn begin(
        sink: W,
        version: Version,
        compressor: Option<&'a mut Compressor>,
        checksum: bool,
    ) -> io::Result<Self> {
        let mut output = Output::new(SummedSink::new(sink, checksum), compressor);
        output.raw(&version.magic())?;
        Ok(Self { output, version })
    }

    /// Writes an auxiliary field.
    pub fn aux(&mut self, name: &str, value: &[u8]) -> io::Result<()> {
        self.output.byte(opcode::AUX)?;
        self.output.string(name.as_bytes())?;
        self.output.string(value)
    }

    /// Writes a library of functions.
    pub fn function(&mut self, code: &[u8]) -> io::Result<()> {
        self.output.byte(opcode::FUNCTION)?;
        self.output.string(code)
    }

    /// Begins a database, with how many keys it has and how many of them expire: hints.
    pub fn database(&mut self, number: usize, keys: usize, expiring: usize) -> io::Result<()> {
        self.output.byte(opcode::SELECT)?;
        self.output.length(number as u64)?;
        self.output.byte(opcode::RESIZE)?;
        self.output.length(keys as u64)?;
        self.output.length(expiring as u64)
    }

    /// Writes a key of the database, its value without what has expired by `now_ms`.
    ///
    /// # Panics
    /// Where the file's version is too old for the value ([`version_of`]): its readers would take it for
    /// something else.
    pub fn key(&mut self, entry: EntryRef<'_>, now_ms: u64) -> io::Result<()> {
        assert!(version_of(entry).number() <= self.version.number(), "the file is of too old a version");
        if let Some(expiry) = entry.expiry() {
            self.output.byte(opcode::EXPIRY_MS)?;
            self.output.milliseconds(expiry as i64)?;
        }
        self.output.byte(type_of(entry))?;
        self.output.string(entry.key())?;
        write_value(entry, now_ms, &mut self.output)
    }

    /// Ends the file. What was written is in the sink.
    pub fn finish(mut self) -> io::Result<()> {
        self.output.byte(opcode::END)?;
        let checksum = self.output.sink().checksum()?.unwrap_or(0);
        self.output.raw(&checksum.to_le_bytes())?;
        io::Write::flush(self.output.sink())
    }
}
