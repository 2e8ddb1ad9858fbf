//! The files of a path that make up data sets, for `dunlin check` and `dunlin convert`.
//!
//! ```text
//! dump.rdb, appendonly.aof        a file
//! appendonly.aof.manifest         a log
//! appendonlydir                   the same: a directory with a manifest
//! /var/lib/redis                  the directory of a server: all of these that are in it
//! ```

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
};

use dunlin_persist::manifest::{LogFile, MANIFEST_BYTES_MAX, Manifest};

use crate::config::describe;

/// The prefix of files that are being written. If their server was killed then, they stay, and mean nothing.
const UNFINISHED: &[u8] = b"temp-";

/// The text in a file's name between the name of the one that it was cut off from, and the byte.
pub const CUT_OFF: &str = ".cut-";

/// Files that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataSet {
    /// An RDB file or an append-only file.
    File(PathBuf),
    /// A log, by its manifest.
    Log(PathBuf),
}

impl DataSet {
    /// The path that stands for it.
    pub fn path(&self) -> &Path {
        match self {
            Self::File(path) | Self::Log(path) => path,
        }
    }
}

/// The data sets at a path: at least one. The error is one line, without the path.
pub fn find(path: &Path) -> Result<Vec<DataSet>, String> {
    let data = fs::metadata(path).map_err(|error| describe(&error))?;
    if !data.is_dir() {
        return Ok(vec![if has_extension(path, "manifest") {
            DataSet::Log(path.to_owned())
        } else {
            DataSet::File(path.to_owned())
        }]);
    }
    if let Some(log) = log_in(path)? {
        return Ok(vec![log]);
    }
    let mut found = Vec::new();
    for path in entries(path)? {
        if path.is_dir() {
            found.extend(log_in(&path).map_err(|reason| format!("{}: {reason}", path.display()))?);
        } else if has_extension(&path, "rdb") || has_extension(&path, "aof") {
            found.push(DataSet::File(path));
        }
    }
    if found.is_empty() {
        return Err("there is no manifest, RDB file or append-only file in it; name a file".to_owned());
    }
    Ok(found)
}

/// The log of a directory, if it holds one.
fn log_in(directory: &Path) -> Result<Option<DataSet>, String> {
    let mut manifests = entries(directory)?.into_iter().filter(|path| has_extension(path, "manifest"));
    match (manifests.next(), manifests.next()) {
        (_, Some(_)) => Err("there are several manifests in it; name one".to_owned()),
        (manifest, None) => Ok(manifest.map(DataSet::Log)),
    }
}

/// Whether a file says by its name that it begins with an RDB file.
pub fn is_named_rdb(path: &Path) -> bool {
    has_extension(path, "rdb")
}

/// The message about one that does not.
pub const NO_RDB: &str = "the file does not begin like an RDB file, as its name says";

fn has_extension(path: &Path, wanted: &str) -> bool {
    path.extension().is_some_and(|extension| extension == wanted)
}

/// The contents of a directory, by name, without unfinished files.
fn entries(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(directory).map_err(|error| describe(&error))?;
    let paths: io::Result<Vec<PathBuf>> = entries.map(|entry| Ok(entry?.path())).collect();
    let mut paths = paths.map_err(|error| describe(&error))?;
    let is_finished = |path: &PathBuf| {
        !path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(UNFINISHED))
    };
    paths.retain(is_finished);
    paths.sort();
    Ok(paths)
}

/// Removes files that servers have left unfinished in a directory. Files that a process has open stay.
pub(crate) fn remove_unfinished(directory: &Path) {
    let is_left = |name: &str| {
        let number = name.strip_prefix("temp-").and_then(|name| name.strip_suffix(".rdb"));
        let number = number.map(|number| number.trim_start_matches("bg-").trim_start_matches("base-"));
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    // If it cannot be read, a start has more to say of it.
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && entry.file_name().to_str().is_some_and(is_left) && dunlin_persist::is_unused(&path) {
            match fs::remove_file(&path) {
                Ok(()) => tracing::info!("{} was never finished, and is removed", path.display()),
                Err(error) => tracing::warn!("cannot remove {}: {}", path.display(), describe(&error)),
            }
        }
    }
}

/// Reads a manifest. The error is one line, without the path.
pub fn read_manifest(path: &Path) -> Result<(Manifest, u64), String> {
    let file = fs::File::open(path).map_err(|error| describe(&error))?;
    let mut bytes = Vec::new();
    file.take(MANIFEST_BYTES_MAX).read_to_end(&mut bytes).map_err(|error| describe(&error))?;
    let manifest = Manifest::parse(&bytes).map_err(|error| error.to_string())?;
    Ok((manifest, bytes.len() as u64))
}

/// A file of a data set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its path.
    pub path: PathBuf,
    /// The manifest that names it, if one does.
    pub manifest: Option<PathBuf>,
    /// Nothing of the data set follows.
    pub is_last: bool,
    /// Whether it goes on with the log at the end of the increment before it. Anything else begins by itself.
    pub is_increment: bool,
}

impl Part {
    /// A file that is a data set by itself.
    pub fn alone(path: PathBuf) -> Self {
        Self { path, manifest: None, is_last: true, is_increment: false }
    }
}

/// The files that a manifest at a path names, in the order in which they are loaded.
pub fn parts(path: &Path, manifest: &Manifest) -> Vec<Part> {
    let last = manifest.files().last();
    let part = |file: &LogFile, is_increment| Part {
        path: path.with_file_name(&file.name),
        manifest: Some(path.to_owned()),
        is_last: last.is_some_and(|last| std::ptr::eq(last, file)),
        is_increment,
    };
    let base = manifest.base.iter().map(|file| part(file, false));
    base.chain(manifest.increments.iter().map(|file| part(file, true))).collect()
}

/// Files beside a manifest that look like those of its log but are not named by it, by name.
pub fn unlisted(path: &Path, manifest: &Manifest) -> Vec<PathBuf> {
    let prefix = path.file_stem().unwrap_or_default().as_encoded_bytes().to_vec();
    let named = |name: &[u8]| {
        let files = manifest.files().chain(&manifest.history);
        files.into_iter().any(|file| file.name.as_bytes() == name)
    };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut paths = entries(directory).unwrap_or_default();
    paths.retain(|path| {
        let name = path.file_name().unwrap_or_default();
        let is_cut_off = name.to_string_lossy().contains(CUT_OFF);
        let name = name.as_encoded_bytes();
        name.starts_with(&prefix) && !has_extension(path, "manifest") && !is_cut_off && !named(name)
    });
    paths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::ScratchDir;

    #[test]
    fn unfinished_files_are_removed_where_nobody_writes_them() {
        let dir = ScratchDir::new("unfinished");
        let stays = ["dump.rdb", "temp-x.rdb", "temp-.rdb", "temp-1.aof", "temp-convert-1"];
        for name in stays.iter().chain(&["temp-12.rdb", "temp-bg-7.rdb", "temp-base-3.rdb", "temp-9.rdb"]) {
            dir.write(name, "");
        }
        fs::create_dir(dir.path("temp-5.rdb")).unwrap();
        let open = fs::File::options().write(true).open(dir.path("temp-9.rdb")).unwrap();
        remove_unfinished(&dir.path(""));
        remove_unfinished(&dir.path("none"));
        let mut left: Vec<_> = fs::read_dir(dir.path(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        drop(open);
        let mut expected = [&stays[..], &["temp-5.rdb", "temp-9.rdb"]].concat();
        expected.sort_unstable();
        // If the system gives no leases, it is unknown whether they are written.
        if left.len() == expected.len() {
            assert_eq!(left, expected);
        }
    }

    #[test]
    fn data_sets_are_found_wherever_they_are() {
        let dir = ScratchDir::new("files");
        assert!(find(&dir.path("")).unwrap_err().contains("name a file"));
        assert_eq!(find(&dir.path("none")).unwrap_err(), "No such file or directory");
        for name in ["dump.rdb", "temp-17.rdb", "appendonly.aof", "redis.conf"] {
            dir.write(name, "");
        }
        fs::create_dir_all(dir.path("appendonlydir")).unwrap();
        fs::create_dir_all(dir.path("other")).unwrap();
        dir.write("appendonlydir/temp-a.manifest", "");
        let files = [DataSet::File(dir.path("appendonly.aof")), DataSet::File(dir.path("dump.rdb"))];
        assert_eq!(find(&dir.path("")).unwrap(), files);
        dir.write("appendonlydir/a.manifest", "");
        let log = [DataSet::Log(dir.path("appendonlydir/a.manifest"))];
        assert_eq!(find(&dir.path("appendonlydir")).unwrap(), log);
        assert_eq!(find(log[0].path()).unwrap(), log);
        assert_eq!(find(&dir.path("")).unwrap(), [&files[..1], &log, &files[1..]].concat());
        dir.write("appendonlydir/b.manifest", "");
        assert!(find(&dir.path("appendonlydir")).unwrap_err().contains("several"));
        let manifest = Manifest::parse(b"file a.1.incr.aof seq 1 type i\n").unwrap();
        for name in ["a.1.incr.aof", "a.1.base.rdb", "b.1.base.rdb"] {
            dir.write(&format!("appendonlydir/{name}"), "");
        }
        assert_eq!(
            unlisted(&dir.path("appendonlydir/a.manifest"), &manifest),
            [dir.path("appendonlydir/a.1.base.rdb")]
        );
    }
}
