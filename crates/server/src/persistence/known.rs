//! Files that a snapshot may take the place of: those that this server has loaded or written, or whose content it has gone
//! through. Any other file of that name is kept under another one.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// So many files of a name are kept.
const KEPT_MAX: u32 = 99;
/// Names that are remembered: a server writes one file, some write several in turn.
const NAMES_MAX: usize = 16;

/// The files.
#[derive(Debug, Default)]
pub(super) struct KnownFiles(Mutex<Vec<(PathBuf, Identity)>>);

/// What tells a file, as it is, from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    written: (i64, i64),
}

impl Identity {
    /// `None` where nothing of that name would be lost.
    fn of(path: &Path) -> Option<Self> {
        let data = fs::symlink_metadata(path).ok()?;
        (data.is_file() || data.is_symlink()).then(|| Self {
            device: data.dev(),
            inode: data.ino(),
            bytes: data.len(),
            written: (data.mtime(), data.mtime_nsec()),
        })
    }
}

impl KnownFiles {
    /// The file that has that name now may go.
    pub(super) fn recognize(&self, path: &Path) {
        let Some(identity) = Identity::of(path) else { return };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(other, _)| other != path);
        if known.len() == NAMES_MAX {
            known.remove(0);
        }
        known.push((path.to_owned(), identity));
    }

    fn is_known(&self, path: &Path, identity: Identity) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.contains(&(path.to_owned(), identity))
    }

    /// Gives a file that is not known another name; which.
    pub(super) fn keep_unknown(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        if Identity::of(path).is_none_or(|identity| self.is_known(path, identity)) {
            return Ok(None);
        }
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
        let named = |number| path.with_file_name(format!("kept-{number}-{name}"));
        let free = (1..=KEPT_MAX).map(named).find(|kept| fs::symlink_metadata(kept).is_err());
        let kept = free.ok_or_else(|| {
            io::Error::other(format!("{KEPT_MAX} older files of this name are kept beside it: remove some"))
        })?;
        fs::rename(path, &kept)?;
        Ok(Some(kept))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::ScratchDir;

    #[test]
    fn snapshot_keeps_a_file_that_it_does_not_know() {
        let dir = ScratchDir::new("known");
        let path = dir.path("dump.rdb");
        let known = KnownFiles::default();
        assert_eq!(known.keep_unknown(&path).unwrap(), None, "there is none");
        dir.write("dump.rdb", "theirs");
        assert_eq!(known.keep_unknown(&path).unwrap(), Some(dir.path("kept-1-dump.rdb")));
        dir.write("dump.rdb", "ours");
        known.recognize(&path);
        assert_eq!(known.keep_unknown(&path).unwrap(), None);
        dir.write("dump.rdb", "theirs again");
        assert_eq!(known.keep_unknown(&path).unwrap(), Some(dir.path("kept-2-dump.rdb")));
        assert_eq!(fs::read_to_string(dir.path("kept-1-dump.rdb")).unwrap(), "theirs");
        fs::create_dir(&path).unwrap();
        assert_eq!(known.keep_unknown(&path).unwrap(), None, "what cannot be replaced stays");
    }

    #[test]
    fn snapshot_keeps_so_many_files_and_no_more() {
        let dir = ScratchDir::new("kept");
        for number in 1..=KEPT_MAX {
            dir.write(&format!("kept-{number}-dump.rdb"), "");
        }
        dir.write("dump.rdb", "theirs");
        let error = KnownFiles::default().keep_unknown(&dir.path("dump.rdb")).unwrap_err();
        assert!(error.to_string().contains("remove some"), "{error}");
        assert_eq!(fs::read_to_string(dir.path("dump.rdb")).unwrap(), "theirs");
    }
}
