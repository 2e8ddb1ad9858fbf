//! A file that is made durable as it grows.

use std::{fs::File, io};

/// Bytes after which a file is made durable, where that is wanted: what the system has to write at once in
/// the end.
const SYNC_BYTES: usize = 4 << 20;

/// A file that is made durable every few megabytes, so that nobody who wants the disk meanwhile, the
/// append-only log first of all, has to wait for all of it at once.
#[derive(Debug)]
pub struct SyncedFile<'a> {
    file: &'a mut File,
    /// Bytes since it was last made durable; `None` where nobody wants that.
    unsynced: Option<usize>,
}

impl<'a> SyncedFile<'a> {
    /// A sink for a file. Without `incremental`, the file alone.
    pub fn new(file: &'a mut File, incremental: bool) -> Self {
        Self { file, unsynced: incremental.then_some(0) }
    }
}

impl io::Write for SyncedFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        if let Some(unsynced) = &mut self.unsynced {
            *unsynced += written;
            if *unsynced >= SYNC_BYTES {
                *unsynced = 0;
                self.file.sync_data()?;
            }
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
