//! Replacing a file as a whole: after a crash at any moment there is the old file or the new one.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use crate::removed::Removed;

/// New contents for a file of a directory, on their way: in a file of another name, which goes again unless
/// they are put in place.
#[derive(Debug)]
pub struct Replacement {
    file: File,
    beside: PathBuf,
    directory: PathBuf,
    /// Whether they were put in place, or given up.
    is_over: bool,
}

impl Replacement {
    /// Begins with new contents, under the name `beside`.
    pub fn create(directory: &Path, beside: &str) -> io::Result<Self> {
        let path = directory.join(beside);
        let file = File::create(&path)?;
        Ok(Self { file, beside: path, directory: directory.to_owned(), is_over: false })
    }

    /// The file that takes the contents.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Makes the contents durable, as long as that may take; [`Self::put_in_place`] is quick then.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Puts the contents in the place of the file that has that name, durably; the old file takes its room as long as
    /// the returned value lives. On an error before the file was renamed the old one is as it was.
    pub fn put_in_place(mut self, name: impl AsRef<Path>) -> io::Result<Removed> {
        self.sync()?;
        let path = self.directory.join(name);
        let replaced = Removed::about_to_be(&path);
        fs::rename(&self.beside, path)?;
        self.is_over = true;
        File::open(&self.directory)?.sync_all()?;
        Ok(replaced)
    }

    /// Gives the contents up; their file takes its room for as long as the result exists.
    pub fn give_up(mut self) -> Removed {
        let removed = Removed::about_to_be(&self.beside);
        self.remove();
        removed
    }

    fn remove(&mut self) {
        self.is_over = true;
        // An error here would hide the one that matters.
        let _ = fs::remove_file(&self.beside);
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.is_over {
            self.remove();
        }
    }
}

/// The directory of a path, and the name in it.
pub fn directory_and_name(path: &Path) -> io::Result<(&Path, &OsStr)> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    Ok((directory, path.file_name().ok_or(io::ErrorKind::InvalidInput)?))
}

/// Writes a file in place of the one at `path`, if there is one: the new contents go to a file beside it,
/// which is synced, renamed, and made known to its directory. The old file takes its room for as long as what is answered; on an
/// error it is as it was.
pub fn replace_file(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<Removed> {
    let (directory, name) = directory_and_name(path)?;
    let mut replacement = Replacement::create(directory, &format!("temp-{}.rdb", std::process::id()))?;
    write(replacement.file())?;
    replacement.put_in_place(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// A directory of its own, removed at the end.
    struct Scratch(std::path::PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("dunlin-persist-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn new_file_replaces_the_old_one() {
        let scratch = Scratch::new("replaced");
        let path = scratch.0.join("dump.rdb");
        for text in ["first", "second"] {
            replace_file(&path, |file| file.write_all(text.as_bytes())).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(scratch.names(), ["dump.rdb"]);
    }

    #[test]
    fn failure_leaves_the_old_file_alone() {
        let scratch = Scratch::new("failed");
        let path = scratch.0.join("dump.rdb");
        fs::write(&path, "old").unwrap();
        let failed = replace_file(&path, |file| {
            file.write_all(b"ne")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(scratch.names(), ["dump.rdb"]);
        replace_file(&scratch.0.join("none").join("dump.rdb"), |_| Ok(())).unwrap_err();
        let begun = Replacement::create(&scratch.0, "temp.rdb").unwrap();
        let removed = begun.give_up();
        assert_eq!(scratch.names(), ["dump.rdb"]);
        // Another process's file by now.
        fs::write(scratch.0.join("temp.rdb"), "").unwrap();
        drop(removed);
        assert_eq!(scratch.names().len(), 2);
        fs::create_dir(scratch.0.join("folder")).unwrap();
        replace_file(&scratch.0.join("folder"), |_| Ok(())).unwrap_err();
    }
}
