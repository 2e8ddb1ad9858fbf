//! Replacing a file as a whole: after a crash at any moment there is the old file or the new one.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

/// Writes a file in place of the one at `path`, if there is one: the new contents go to a file beside it,
/// which is synced, renamed, and made known to its directory. On an error the old file is as it was.
pub fn replace_file(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let beside = directory.join(format!("temp-{}.rdb", std::process::id()));
    let written = File::create(&beside).and_then(|mut file| {
        write(&mut file)?;
        file.sync_all()
    });
    let replaced = written.and_then(|()| fs::rename(&beside, path));
    if replaced.is_err() {
        // It may never have been made; an error here would hide the one that matters.
        let _ = fs::remove_file(&beside);
    }
    replaced?;
    File::open(directory)?.sync_all()
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
    fn the_new_file_takes_the_place_of_the_old_one() {
        let scratch = Scratch::new("replaced");
        let path = scratch.0.join("dump.rdb");
        for text in ["first", "second"] {
            replace_file(&path, |file| file.write_all(text.as_bytes())).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(scratch.names(), ["dump.rdb"]);
    }

    #[test]
    fn a_failure_leaves_the_old_file_alone() {
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
        fs::create_dir(scratch.0.join("folder")).unwrap();
        replace_file(&scratch.0.join("folder"), |_| Ok(())).unwrap_err();
    }
}
