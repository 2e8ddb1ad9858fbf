//! A file that goes to disk as it grows.
//!
//! ```text
//!        on disk        on its way    in the system's memory
//! ├──────────────────┼──────────────┼────────────┤ grows
//!                    └── AHEAD_BYTES_MAX ─┴ STEP ┘
//! ```

use std::{fs::File, io};

/// Bytes after which the system is told to write what is new.
const STEP_BYTES: u64 = 4 << 20;
/// Bytes that may be on their way to the disk before their turn is waited for. Enough for a disk that is busy
/// with something else for a moment: who writes here must not wait for it.
const AHEAD_BYTES_MAX: u64 = 32 << 20;

/// A file that is written to disk every few megabytes, so that nobody who wants the disk meanwhile, the
/// append-only log first of all, has to wait for all of it at once. It is not durable before it is synced.
#[derive(Debug)]
pub struct SyncedFile<'a> {
    file: &'a mut File,
    incremental: bool,
    written: u64,
    /// The system was told to write what is before.
    begun: u64,
    /// What is before was waited for.
    ended: u64,
}

impl<'a> SyncedFile<'a> {
    /// A sink for a new file. Without `incremental`, the file alone.
    pub fn new(file: &'a mut File, incremental: bool) -> Self {
        Self { file, incremental, written: 0, begun: 0, ended: 0 }
    }

    fn advance(&mut self) -> io::Result<()> {
        begin_writing(self.file, self.begun, self.written - self.begun)?;
        self.begun = self.written;
        let end = self.written.saturating_sub(AHEAD_BYTES_MAX);
        if end > self.ended {
            await_written(self.file, self.ended, end - self.ended)?;
            self.ended = end;
        }
        Ok(())
    }
}

impl io::Write for SyncedFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.written += written as u64;
        if self.incremental && self.written - self.begun >= STEP_BYTES {
            self.advance()?;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Has the system begin to write a part of a file to disk.
fn begin_writing(file: &File, from: u64, bytes: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return sync_range(file, from, bytes, libc::SYNC_FILE_RANGE_WRITE);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (from, bytes);
        file.sync_data()
    }
}

/// Waits until a part of a file is written to disk that was begun.
fn await_written(file: &File, from: u64, bytes: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    return sync_range(file, from, bytes, libc::SYNC_FILE_RANGE_WAIT_BEFORE);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (file, from, bytes);
        Ok(())
    }
}

#[cfg(target_os = "linux")]
fn sync_range(file: &File, from: u64, bytes: u64, flags: libc::c_uint) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let (from, bytes) = (from.cast_signed(), bytes.cast_signed());
    // SAFETY: the descriptor is open, and the call touches no memory of ours.
    match unsafe { libc::sync_file_range(file.as_raw_fd(), from, bytes, flags) } {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            // Not every file system can, and none has to: the file is synced in the end.
            error if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL | libc::ESPIPE)) => {
                Ok(())
            }
            error => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_is_written_is_in_the_file_and_goes_to_disk_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let mut file = File::create(&path).unwrap();
        let mut synced = SyncedFile::new(&mut file, true);
        let piece: Vec<u8> = (0..1 << 20).map(|at| (at % 251) as u8).collect();
        for pieces in 1..=40_u64 {
            synced.write_all(&piece).unwrap();
            assert_eq!(synced.written, pieces << 20);
            assert!(synced.written - synced.begun < STEP_BYTES);
            assert!(synced.written - synced.ended < AHEAD_BYTES_MAX + STEP_BYTES);
            assert!(synced.ended <= synced.begun);
        }
        assert_eq!((synced.begun, synced.ended), (40 << 20, 8 << 20));
        assert!(std::fs::read(&path).unwrap().chunks(1 << 20).all(|read| read == piece));
    }
}
