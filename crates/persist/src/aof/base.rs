//! Writing the base of a log as commands, with `aof-use-rdb-preamble no`.
//!
//! ```text
//! base = [FUNCTION LOAD …] [SELECT n] command…         in batches with checks, as increments
//! ```
//!
//! A base has no place in the log: `LSN` counts from its own beginning.

use std::io;

use dunlin_engine::{rdb::Output, snapshot::Chunk, write_command};

use super::check::{Check, Checksum};

/// Bytes of a batch, about.
const BATCH_BYTES: u64 = 1 << 20;
const BUFFER_BYTES: usize = 256 << 10;

/// Writes commands that make a data set: functions, then keys.
pub struct BaseWriter<W: io::Write> {
    output: Output<'static, io::BufWriter<Summed<W>>>,
    database: usize,
    /// Bytes of all commands so far, and of those that have a check.
    checked: u64,
    checks: bool,
}

/// A sink that sums the bytes that pass.
struct Summed<W> {
    sink: W,
    sum: Checksum,
}

impl<W: io::Write> io::Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.sink.write(bytes)?;
        self.sum.add(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

impl<W: io::Write> BaseWriter<W> {
    /// Begins a file. Redis before 7.0 does not pass over `checks`.
    pub fn begin(sink: W, checks: bool) -> Self {
        let summed = Summed { sink, sum: Checksum::default() };
        let output = Output::new(io::BufWriter::with_capacity(BUFFER_BYTES, summed), None);
        Self { output, database: 0, checked: 0, checks }
    }

    /// Writes a library of functions.
    pub fn function(&mut self, code: &[u8]) -> io::Result<()> {
        self.command(&[b"FUNCTION", b"LOAD", code])
    }

    fn command(&mut self, words: &[&[u8]]) -> io::Result<()> {
        let mut command = Vec::new();
        write_command(&mut command, words);
        self.output.raw(&command)
    }

    /// Writes keys.
    pub fn chunk(&mut self, chunk: &Chunk) -> io::Result<()> {
        if chunk.database() != self.database {
            self.database = chunk.database();
            self.command(&[b"SELECT", self.database.to_string().as_bytes()])?;
        }
        chunk.write(&mut self.output, false)?;
        if self.written() - self.checked >= BATCH_BYTES { self.check() } else { Ok(()) }
    }

    /// Bytes of the commands so far.
    pub fn written(&self) -> u64 {
        self.output.written() as u64
    }

    /// Ends a batch.
    fn check(&mut self) -> io::Result<()> {
        let lsn = self.written();
        let length = lsn - std::mem::replace(&mut self.checked, lsn);
        if self.checks && length > 0 {
            let buffer = self.output.sink();
            io::Write::flush(buffer)?;
            let Summed { sink, sum } = buffer.get_mut();
            sink.write_all(&Check { lsn, length }.line(std::mem::take(sum)))?;
        }
        Ok(())
    }

    /// Ends the file: all of it is in the sink.
    pub fn finish(mut self) -> io::Result<()> {
        self.check()?;
        io::Write::flush(self.output.sink())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aof::Reader;

    #[test]
    fn base_is_commands_with_checks() {
        for checks in [false, true] {
            let mut file = Vec::new();
            let mut base = BaseWriter::begin(&mut file, checks);
            base.function(b"#!lua name=f\n").unwrap();
            base.check().unwrap();
            base.command(&[b"SELECT", b"3"]).unwrap();
            base.finish().unwrap();
            let mut reader = Reader::new(&file[..], 0);
            let mut commands = Vec::new();
            while let Some(words) = reader.read_command().unwrap() {
                commands.push(words.iter().map(|word| word.to_vec()).collect::<Vec<_>>());
            }
            assert_eq!(
                commands,
                [
                    vec![b"FUNCTION".to_vec(), b"LOAD".to_vec(), b"#!lua name=f\n".to_vec()],
                    vec![b"SELECT".to_vec(), b"3".to_vec()]
                ]
            );
            let progress = reader.progress();
            assert_eq!(
                (progress.batches, progress.unproven_bytes == 0),
                if checks { (2, true) } else { (0, false) }
            );
        }
    }
}
