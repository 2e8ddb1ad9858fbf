//! Writing an RDB file.

use std::io;

use dunlin_engine::{
    rdb::{Compressor, ModuleAux, Output, Version},
    snapshot::{Chunk, DatabaseSize},
};

use super::{
    opcode,
    summed::{SummedSink, checksum_with_other_start},
};

/// Writes an RDB file, part by part: auxiliary fields, functions, how large databases are, then keys.
pub struct Writer<'a, W: io::Write> {
    output: Output<'a, SummedSink<W>>,
    /// The version that the file begins with.
    begun: Version,
    /// The oldest version that has a form for all that was written.
    needed: Version,
    /// The database of the keys that come.
    database: Option<usize>,
}

impl<'a, W: io::Write> Writer<'a, W> {
    /// Begins a file. Long strings are compressed if there is a compressor; the checksum is written if
    /// it is wanted.
    pub fn begin(
        sink: W,
        version: Version,
        compressor: Option<&'a mut Compressor>,
        checksum: bool,
    ) -> io::Result<Self> {
        let mut output = Output::new(SummedSink::new(sink, checksum), compressor);
        output.raw(&version.magic())?;
        Ok(Self { output, begun: version, needed: version, database: None })
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

    /// Writes data of a module as they were read.
    pub fn module_aux(&mut self, aux: &ModuleAux) -> io::Result<()> {
        self.output.byte(opcode::MODULE_AUX)?;
        self.output.raw(&aux.bytes)
    }

    /// Says how many keys a database has: a hint.
    pub fn size(&mut self, size: &DatabaseSize) -> io::Result<()> {
        self.select(size.database)?;
        self.output.byte(opcode::RESIZE)?;
        self.output.length(size.keys as u64)?;
        self.output.length(size.expiring as u64)
    }

    /// Writes keys: `small`, with long strings compressed if there is a compressor, or quickly.
    pub fn chunk(&mut self, chunk: &Chunk, small: bool) -> io::Result<()> {
        self.needed = self.needed.newer(chunk.version());
        self.select(chunk.database())?;
        chunk.write(&mut self.output, small)
    }

    fn select(&mut self, database: usize) -> io::Result<()> {
        if self.database != Some(database) {
            self.output.byte(opcode::SELECT)?;
            self.output.length(database as u64)?;
            self.database = Some(database);
        }
        Ok(())
    }

    /// Bytes written so far.
    pub fn written(&self) -> usize {
        self.output.written()
    }

    /// Ends the file. All bytes are in the sink, but for those that are returned: the file is of a newer
    /// version than it was begun with, and these bytes belong in the place of its first ones. The
    /// checksum is that of the file with them.
    pub fn finish(mut self) -> io::Result<Option<[u8; 9]>> {
        self.output.byte(opcode::END)?;
        let (was, is) = (self.begun.magic(), self.needed.magic());
        let behind = self.output.written() - was.len();
        let checksum = self.output.sink().checksum()?;
        let checksum = checksum.map_or(0, |sum| checksum_with_other_start(sum, was, is, behind));
        self.output.raw(&checksum.to_le_bytes())?;
        io::Write::flush(self.output.sink())?;
        Ok((was != is).then_some(is))
    }
}
