//! The part of a stream that has come before the snapshot that it follows is loaded: in memory up to a bound, then in a file
//! without a name.
//!
//! ```text
//! taken ─▶ file ─────────────────── ◀─ memory is written to its end when there is much ◀─ pushed
//!          └ taken   └ read from here
//! ```

use std::{fs::File, io, os::unix::fs::FileExt};

use super::snapshot::spool_file;
use crate::config::Config;

/// Bytes in memory at most.
const MEMORY_BYTES_MAX: usize = 1 << 20;
/// Bytes that are taken at once.
const TAKEN_BYTES: usize = 256 << 10;

/// A queue of bytes.
#[derive(Default)]
pub(super) struct WaitingStream {
    file: Option<File>,
    /// Bytes of the file that were taken, and bytes in it.
    taken: u64,
    written: u64,
    /// Bytes behind those of the file.
    memory: Vec<u8>,
}

impl WaitingStream {
    /// Puts bytes at the end. If they cannot be written to the file, memory has them.
    pub(super) fn push(&mut self, bytes: &[u8], config: &Config) -> io::Result<()> {
        self.memory.extend_from_slice(bytes);
        if self.memory.len() < MEMORY_BYTES_MAX {
            return Ok(());
        }
        if self.file.is_none() {
            self.file = Some(spool_file(&config.dir)?);
        }
        if let Some(file) = &self.file {
            file.write_all_at(&self.memory, self.written)?;
            self.written += self.memory.len() as u64;
            self.memory.clear();
        }
        Ok(())
    }

    /// Puts the first bytes in the place of what `buffer` holds. Returns how many they are, 0 if none are left.
    pub(super) fn next(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        buffer.clear();
        match &self.file {
            Some(file) if self.taken < self.written => {
                let bytes = (self.written - self.taken).min(TAKEN_BYTES as u64) as usize;
                buffer.resize(bytes, 0);
                file.read_exact_at(buffer, self.taken)?;
                self.taken += bytes as u64;
            }
            _ => {
                std::mem::swap(buffer, &mut self.memory);
                *self = Self::default();
            }
        }
        Ok(buffer.len())
    }

    /// Forgets all of it.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::ScratchDir;

    #[test]
    fn bytes_come_out_as_they_went_in_whatever_there_is_of_them() {
        // Empty, whatever a process with the same number has left behind.
        let scratch = ScratchDir::new("waiting-stream");
        let config = Config { dir: scratch.path(""), ..Config::default() };
        let mut waiting = WaitingStream::default();
        for lengths in [&[0][..], &[5, 100], &[MEMORY_BYTES_MAX, 3], &[700_000, 700_000, 700_000], &[1; 3000]]
        {
            let (mut pushed, mut taken, mut buffer) = (Vec::new(), Vec::new(), Vec::new());
            for (at, length) in lengths.iter().enumerate() {
                let bytes: Vec<u8> = (0..*length).map(|n| (n * 31 + at) as u8).collect();
                waiting.push(&bytes, &config).unwrap();
                pushed.extend(bytes);
            }
            assert!(waiting.memory.len() < MEMORY_BYTES_MAX);
            while waiting.next(&mut buffer).unwrap() > 0 {
                taken.extend_from_slice(&buffer);
            }
            assert_eq!(taken, pushed);
        }
        // The file has no name.
        std::fs::remove_dir(scratch.path("")).unwrap();
    }
}
