//! Whether other processes have a file open. The system knows: it gives a lease only to a sole user of the file.
//!
//! ```text
//! lease to write   given where no other process has the file open
//! lease to read    given where no other process has it open for writing
//! ```
//!
//! A lease is given back at once. If the system gives none (another owner, a network's file system), the answer is
//! unknown.

use std::{fs::File, path::Path};

/// Whether no process has the file open; `false` if that is unknown.
pub fn is_unused(path: &Path) -> bool {
    File::options().write(true).open(path).is_ok_and(|file| is_open_once(&file))
}

/// Whether no other process has the file open; `false` if that is unknown. The file is open for writing.
pub(crate) fn is_open_once(file: &File) -> bool {
    #[cfg(target_os = "linux")]
    return matches!(lease(file, libc::F_WRLCK), Ok(()));
    #[cfg(not(target_os = "linux"))]
    {
        let _ = file;
        false
    }
}

/// Whether a process has the file open for writing, which may be this one; `false` if that is unknown.
pub fn is_being_written(path: &Path) -> bool {
    #[cfg(target_os = "linux")]
    return File::open(path).is_ok_and(|file| matches!(lease(&file, libc::F_RDLCK), Err(libc::EAGAIN)));
    #[cfg(not(target_os = "linux"))]
    {
        let _ = path;
        false
    }
}

/// Takes a lease and gives it back; the system's error number if it gives none.
#[cfg(target_os = "linux")]
fn lease(file: &File, kind: libc::c_int) -> Result<(), libc::c_int> {
    use std::os::fd::AsRawFd;
    /// The command that sets the signal for a lease that has to end; the system's headers have it, libc for this
    /// target has not.
    const F_SETSIG: libc::c_int = 10;
    let control = |command, argument: libc::c_int| {
        // SAFETY: the descriptor is open, and the commands touch no memory of ours.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        }
    };
    // If a process opens the file within these microseconds, the kernel sends a signal, which must not end this one.
    control(F_SETSIG, libc::SIGURG)?;
    control(libc::F_SETLEASE, kind)?;
    control(libc::F_SETLEASE, libc::F_UNLCK)
}

#[cfg(all(test, not(loom), target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn lease_tells_readers_from_writers() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let writer = File::create(&path).unwrap();
        if !is_open_once(&writer) {
            // This file system knows no leases.
            return;
        }
        assert!(is_being_written(&path));
        let reader = File::open(&path).unwrap();
        assert!(!is_open_once(&writer));
        drop(writer);
        assert!(!is_being_written(&path), "a reader does not write");
        drop(reader);
        assert!(!is_being_written(&path));
        assert!(!is_being_written(&directory.path().join("none")));
    }
}
