//! A file that goes to disk as it grows.
//!
//! ```text
//!        on disk        on its way    in the system's memory
//! ├──────────────────┼──────────────┼────────────┤ grows
//!        thread `file-sync`: begin ─ wait …        the writer
//! ```
//!
//! A writer here copies for others, which wait for that: so a thread beside it waits for the disk.

use std::{
    fs::File,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
};

use crate::storage::uncache;

/// Bytes after which the writer makes the system write the new ones.
const STEP_BYTES: u64 = 4 << 20;
/// Bytes that may be on their way to the disk while more are begun.
const BEGUN_BYTES_MAX: u64 = 4 * STEP_BYTES;
/// Bytes that the writer may be ahead of the disk.
const AHEAD_BYTES_MAX: u64 = 256 << 20;

/// How a file goes to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncedFileOptions {
    /// Sends the file to disk as it grows; otherwise when it is synced.
    pub incremental: bool,
    /// The system need not keep the written part in memory: others want the memory, and no process reads the file
    /// soon.
    pub uncached: bool,
}

/// A file that is written to disk every few megabytes, so that other users of the disk, the append-only log first of
/// all, need not wait for all of it at once. The file is not durable before it is synced.
#[derive(Debug)]
pub struct SyncedFile<'a> {
    file: &'a mut File,
    written: u64,
    /// The offset of the last message to the syncing thread.
    told: u64,
    syncing: Option<Syncing>,
}

/// The thread that sends the file to disk. The thread ends with this.
#[derive(Debug)]
struct Syncing {
    course: Arc<Course>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Course {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    written: u64,
    /// The wait for bytes before it is over.
    ended: u64,
    error: Option<io::Error>,
    closed: bool,
}

impl<'a> SyncedFile<'a> {
    /// A sink for a new file.
    pub fn new(file: &'a mut File, options: SyncedFileOptions) -> Self {
        // If no thread can be started, the file is synced in the end.
        let syncing = if options.incremental { Syncing::start(file, options.uncached).ok() } else { None };
        Self { file, written: 0, told: 0, syncing }
    }
}

impl io::Write for SyncedFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.written += written as u64;
        if let Some(syncing) = &self.syncing
            && self.written - self.told >= STEP_BYTES
        {
            self.told = self.written;
            syncing.course.advance(self.written)?;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Syncing {
    fn start(file: &File, uncached: bool) -> io::Result<Self> {
        let (file, course) = (file.try_clone()?, Arc::new(Course::default()));
        let run = {
            let course = Arc::clone(&course);
            move || course.run(&file, uncached)
        };
        let thread = thread::Builder::new().name("file-sync".to_owned()).spawn(run)?;
        Ok(Self { course, thread: Some(thread) })
    }
}

impl Drop for Syncing {
    fn drop(&mut self) {
        self.course.state().closed = true;
        self.course.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // Its result would come out of a sync of the file, too.
            let _ = thread.join();
        }
    }
}

impl Course {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports how far the file is written; waits if the disk is too far behind.
    fn advance(&self, written: u64) -> io::Result<()> {
        let mut state = self.state();
        state.written = written;
        self.changed.notify_all();
        let is_ahead = |state: &mut State| {
            state.error.is_none() && written.saturating_sub(state.ended) > AHEAD_BYTES_MAX
        };
        let mut state = self.changed.wait_while(state, is_ahead).unwrap_or_else(PoisonError::into_inner);
        match state.error.take() {
            // The thread has ended: no writer waits for the disk after that.
            Some(error) => {
                state.ended = u64::MAX;
                Err(error)
            }
            None => Ok(()),
        }
    }

    fn run(&self, file: &File, uncached: bool) {
        let (mut begun, mut ended) = (0, 0);
        loop {
            let has_news = |state: &mut State| !state.closed && state.written == begun;
            let state = self.changed.wait_while(self.state(), has_news);
            let state = state.unwrap_or_else(PoisonError::into_inner);
            if state.closed {
                return;
            }
            let written = state.written;
            drop(state);
            let end = written.saturating_sub(BEGUN_BYTES_MAX).max(ended);
            let result = begin_writing(file, begun, written - begun)
                .and_then(|()| await_written(file, ended, end - ended));
            if uncached && result.is_ok() {
                uncache(file, ended, end - ended);
            }
            (begun, ended) = (written, end);
            let mut state = self.state();
            state.ended = end;
            state.error = result.err();
            let has_failed = state.error.is_some();
            drop(state);
            self.changed.notify_all();
            if has_failed {
                return;
            }
        }
    }
}

/// Makes the system begin to write a part of a file to disk.
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
    fn synced_file_has_what_was_written_and_syncs_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let mut file = File::create(&path).unwrap();
        let mut synced = SyncedFile::new(&mut file, SyncedFileOptions { incremental: true, uncached: true });
        let course = Arc::clone(&synced.syncing.as_ref().unwrap().course);
        let piece: Vec<u8> = (0..1 << 20).map(|at| (at % 251) as u8).collect();
        for pieces in 1..=40_u64 {
            synced.write_all(&piece).unwrap();
            assert_eq!(synced.written, pieces << 20);
            assert!(synced.written - synced.told < STEP_BYTES);
        }
        let behind = |state: &mut State| state.ended < (40 << 20) - BEGUN_BYTES_MAX;
        let state = course.changed.wait_while(course.state(), behind).unwrap();
        assert_eq!(state.ended, (40 << 20) - BEGUN_BYTES_MAX);
        drop(state);
        drop(synced);
        assert!(std::fs::read(&path).unwrap().chunks(1 << 20).all(|read| read == piece));
    }

    #[test]
    fn writer_too_far_ahead_waits_until_the_disk_follows_or_fails() {
        for fails in [false, true] {
            let course = Arc::new(Course::default());
            let writing = {
                let course = Arc::clone(&course);
                thread::spawn(move || course.advance(AHEAD_BYTES_MAX + 1))
            };
            drop(course.changed.wait_while(course.state(), |state| state.written == 0).unwrap());
            assert!(!writing.is_finished());
            let mut state = course.state();
            match fails {
                true => state.error = Some(io::ErrorKind::StorageFull.into()),
                false => state.ended = 1,
            }
            drop(state);
            course.changed.notify_all();
            assert_eq!(writing.join().unwrap().is_err(), fails);
        }
    }
}
