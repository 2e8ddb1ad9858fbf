//! Files that have lost their names, and give their room back piece by piece.
//!
//! ```text
//!  unlink           shrink        shrink
//! ├── file ───────────────────────┤        others that have it open, or another name for it, keep all of it
//! ├── file ────────────┤▒▒▒▒▒▒▒▒▒▒ given back: the disk serves others in between
//! ```
//!
//! The last name of a file of some gigabytes goes in no time, its blocks do not. If the file system makes the disk
//! discard them, the disk may do nothing else for a second, and a thread that syncs then waits as long.

use std::{fs::File, os::unix::fs::MetadataExt, path::Path};

use crate::lease::is_open_once;

/// Bytes that are given back at once: a disk that discards half a gigabyte a second is at it for some 60 ms.
const PIECE_BYTES: u64 = 32 << 20;

/// A file that has lost its name. The file takes its room until this is dropped.
#[derive(Debug)]
pub struct Removed {
    /// `None` if it could not be opened: its room went with its name.
    file: Option<File>,
}

impl Removed {
    /// The file that is about to lose that name, by removal or replacement.
    pub(crate) fn about_to_be(path: &Path) -> Self {
        // Opening a pipe would wait for its reader; a link's name is not the file's.
        let is_file = std::fs::symlink_metadata(path).is_ok_and(|data| data.is_file());
        let open = || File::options().write(true).open(path).ok();
        Self { file: if is_file { open() } else { None } }
    }

    /// Gives a piece of its room back, as long as the disk takes for that. Returns whether there is more. There is
    /// none if another process may yet read the file: it then goes as a whole with its last user.
    pub fn shrink(&self) -> bool {
        let Some(file) = &self.file else { return false };
        let Ok(data) = file.metadata() else { return false };
        // The last piece goes with the file.
        let left = data.len().saturating_sub(PIECE_BYTES);
        left > 0 && data.nlink() == 0 && is_open_once(file) && file.set_len(left).is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::{fs, io::Read};

    const BYTES: u64 = 2 * PIECE_BYTES + 1000;

    /// A file of that many bytes, most of them holes.
    fn file(path: &Path) -> File {
        let file = File::create(path).unwrap();
        file.set_len(BYTES).unwrap();
        file
    }

    #[test]
    fn removed_file_takes_its_room_until_given_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        drop(file(&path));
        let removed = Removed::about_to_be(&path);
        assert!(!removed.shrink(), "it has its name");
        fs::remove_file(&path).unwrap();
        // Another handle of the same opening.
        let same = removed.file.as_ref().expect("it could be opened").try_clone().unwrap();
        let bytes = || same.metadata().unwrap().len();
        assert_eq!(bytes(), BYTES);
        if is_open_once(&same) {
            assert!(removed.shrink());
            assert_eq!(bytes(), BYTES - PIECE_BYTES);
            assert!(removed.shrink());
            assert_eq!(bytes(), 1000);
        }
        assert!(!removed.shrink());
    }

    #[test]
    fn removed_file_that_is_open_or_linked_stays_whole() {
        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("file"), directory.path().join("link"));
        drop(file(&path));
        let mut reading = File::open(&path).unwrap();
        let removed = Removed::about_to_be(&path);
        fs::remove_file(&path).unwrap();
        assert!(!removed.shrink());
        drop(removed);
        assert_eq!(reading.read_to_end(&mut Vec::new()).unwrap() as u64, BYTES);

        drop(file(&path));
        fs::hard_link(&path, &link).unwrap();
        let removed = Removed::about_to_be(&path);
        fs::remove_file(&path).unwrap();
        assert!(!removed.shrink());
        assert_eq!(fs::metadata(&link).unwrap().len(), BYTES);

        std::os::unix::fs::symlink(&link, &path).unwrap();
        assert!(Removed::about_to_be(&path).file.is_none(), "the name is the link's");
    }
}
