//! Giving back the room of files that are no longer needed, while others use the disk.

use std::{
    thread,
    time::{Duration, Instant},
};

use dunlin_persist::Removed;

/// Shortest rest between two pieces.
const REST_MIN: Duration = Duration::from_millis(1);

/// Gives the room of removed files back, with half of the disk's time, on a thread of its own without waiters: when the
/// process ends, so do the files.
pub(crate) fn give_back(files: Vec<Removed>) {
    if files.is_empty() {
        return;
    }
    let run = move || {
        for file in files {
            let mut begun = Instant::now();
            while file.shrink() {
                thread::sleep(begun.elapsed().max(REST_MIN));
                begun = Instant::now();
            }
        }
    };
    in_background(run);
}

/// Runs work that waits for the disk, on a thread of its own without waiters. If no thread can be started, the
/// work is dropped, and its files with it.
pub(crate) fn in_background(run: impl FnOnce() + Send + 'static) {
    let _ = thread::Builder::new().name("file-removal".to_owned()).spawn(run);
}
