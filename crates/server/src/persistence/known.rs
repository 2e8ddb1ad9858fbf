//! Files that a snapshot may take the place of: those that this server has loaded or written, or whose data a log holds
//! that it has loaded. A snapshot keeps any other file of that name under another one.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use dunlin_persist::{Disk, Storage, directory_and_name};

/// More files than any user keeps of one name.
const KEPT_MAX: u32 = 1_000_000;
/// Names that are remembered: a server writes one file, some write several in turn.
const NAMES_MAX: usize = 16;

/// The known files.
#[derive(Debug, Default)]
pub(crate) struct KnownFiles(Mutex<Vec<(PathBuf, Identity)>>);

/// Identifies a file in its present state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    written: (i64, i64),
}

impl Identity {
    /// The state of the file of that name; `None` if a snapshot destroys nothing: there is none, or one that holds no
    /// data, such as a pipe.
    fn of(path: &Path) -> Option<Self> {
        let data = fs::metadata(path).ok()?;
        (data.is_file() && data.len() > 0).then(|| Self {
            device: data.dev(),
            inode: data.ino(),
            bytes: data.len(),
            written: (data.mtime(), data.mtime_nsec()),
        })
    }
}

impl KnownFiles {
    /// Marks the file that has this name now: a snapshot may take its place.
    pub(crate) fn add(&self, path: &Path) {
        if let Some(identity) = Identity::of(path) {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            add(&mut known, path, identity);
        }
    }

    /// Gives a file that is not known a further name, durably, and returns that. The file keeps its own name, so that a crash
    /// before the snapshot is in place changes nothing.
    pub(crate) fn keep_unknown(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        let Some(identity) = Identity::of(path) else { return Ok(None) };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(&(path.to_owned(), identity)) {
            return Ok(None);
        }
        let (directory, name) = directory_and_name(path)?;
        let named = |number| path.with_file_name(kept_name(name, number));
        let kept = (1..KEPT_MAX).map(named).find(|kept| fs::symlink_metadata(kept).is_err());
        let kept = kept.ok_or(io::ErrorKind::AlreadyExists)?;
        Disk.copy(path, &kept)?;
        Disk.sync_directory(directory)?;
        // If the snapshot cannot be put in place, the next one need not keep the same again.
        add(&mut known, path, identity);
        Ok(Some(kept))
    }
}

fn add(known: &mut Vec<(PathBuf, Identity)>, path: &Path, identity: Identity) {
    known.retain(|(other, _)| other != path);
    if known.len() == NAMES_MAX {
        known.remove(0);
    }
    known.push((path.to_owned(), identity));
}

/// `dump.rdb.kept-1`: the extension is not that of an RDB file, so that no tool takes it for one of the server's.
fn kept_name(name: &std::ffi::OsStr, number: u32) -> std::ffi::OsString {
    let mut kept = name.to_owned();
    kept.push(format!(".kept-{number}"));
    kept
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
        let replace = |text: &str| {
            dir.write("new", text);
            fs::rename(dir.path("new"), &path).unwrap();
        };
        assert_eq!(known.keep_unknown(&path).unwrap(), None, "there is none");
        replace("theirs");
        assert_eq!(known.keep_unknown(&path).unwrap(), Some(dir.path("dump.rdb.kept-1")));
        assert_eq!(known.keep_unknown(&path).unwrap(), None, "it is kept");
        replace("ours");
        known.add(&path);
        assert_eq!(known.keep_unknown(&path).unwrap(), None);
        replace("theirs again");
        assert_eq!(known.keep_unknown(&path).unwrap(), Some(dir.path("dump.rdb.kept-2")));
        assert_eq!(fs::read_to_string(dir.path("dump.rdb.kept-1")).unwrap(), "theirs");
        replace("");
        assert_eq!(known.keep_unknown(&path).unwrap(), None, "it holds nothing");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(known.keep_unknown(&path).unwrap(), None, "a snapshot cannot replace it");
    }
}
