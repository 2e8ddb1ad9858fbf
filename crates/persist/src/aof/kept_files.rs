//! Keeping the files of a log whose place another one takes.
//!
//! ```text
//! appendonlydir/appendonly.aof.manifest       names the new log
//!               appendonly.aof.3.base.rdb
//!               appendonly.aof.3.incr.aof
//!               kept-1/appendonly.aof.manifest        names the old one
//!                      appendonly.aof.2.base.rdb
//!                      appendonly.aof.2.incr.aof
//! ```
//!
//! 1. The old manifest is copied. 2. The new one takes its place. 3. The files that only the old one names follow the copy.
//!
//! After a crash between these the files are where they were or beside the copy; nothing removes them.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::WriterOptions;
use crate::manifest::LogFile;
use crate::storage::Storage;

/// More directories of kept files than any server has.
const NUMBER_MAX: u32 = 1_000_000;

/// A directory for the files of an old log.
#[derive(Debug)]
pub struct KeptFiles {
    directory: PathBuf,
}

impl KeptFiles {
    /// Makes the directory, with a copy of the manifest in it, if there is one.
    pub fn begin(
        storage: &dyn Storage,
        options: &WriterOptions,
        manifest: Option<&[u8]>,
    ) -> io::Result<Self> {
        let named = |number| options.directory.join(format!("kept-{number}"));
        let free = (1..NUMBER_MAX).map(named).find(|path| !path.exists());
        let directory = free.ok_or(io::ErrorKind::AlreadyExists)?;
        storage.create_directory(&directory)?;
        if let Some(manifest) = manifest {
            let path = options.manifest_path();
            let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
            storage.replace(&directory.join(name), manifest)?;
        }
        Ok(Self { directory })
    }

    /// Moves files there, those that are left.
    pub fn take(&self, storage: &dyn Storage, options: &WriterOptions, files: &[LogFile]) -> io::Result<()> {
        for file in files {
            match storage.rename(&options.directory.join(&file.name), &self.directory.join(&file.name)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                moved => moved?,
            }
        }
        storage.sync_directory(&self.directory)?;
        storage.sync_directory(&options.directory)
    }

    /// Puts the files there, too: by further names, or as copies if a file can have but one name.
    pub fn copy(&self, storage: &dyn Storage, options: &WriterOptions, files: &[LogFile]) -> io::Result<()> {
        for file in files {
            match storage.copy(&options.directory.join(&file.name), &self.directory.join(&file.name)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                copied => copied?,
            }
        }
        storage.sync_directory(&self.directory)
    }

    /// The directory of the files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}
