//! Noticing that another process writes the log's files: another server of the same directory, or a tool.
//!
//! A file is as long as this writer has made it, and the manifest has this writer's contents. Otherwise nothing
//! more is written: another batch would stand in the midst of another writer's.

use std::{fmt, io};

use super::WriterOptions;
use crate::manifest::Manifest;
use crate::storage::Storage;

/// Another process has changed a file.
#[derive(Debug)]
struct ForeignChange {
    name: String,
}

impl fmt::Display for ForeignChange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "another process has changed {}", self.name)
    }
}

impl std::error::Error for ForeignChange {}

/// Whether the log cannot be written because another process has changed its files.
pub fn is_foreign_change(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<ForeignChange>())
}

pub(super) fn foreign_change(name: &str) -> io::Error {
    io::Error::other(ForeignChange { name: name.to_owned() })
}

/// How long a file is by all that its writer has done to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    bytes: u64,
    /// The file may be shorter: an attempt to change it has failed.
    at_most: bool,
}

impl Extent {
    pub(super) fn exactly(bytes: u64) -> Self {
        Self { bytes, at_most: false }
    }

    /// Expects the file to grow to `bytes`, unless that fails.
    pub(super) fn grow(&mut self, bytes: u64) {
        *self = Self { bytes: self.bytes.max(bytes), at_most: true };
    }

    /// Notes that an unknown number of the last writes may not have lasted.
    pub(super) fn doubt(&mut self) {
        self.at_most = true;
    }

    pub(super) fn allows(&self, bytes: u64) -> bool {
        if self.at_most { bytes <= self.bytes } else { bytes == self.bytes }
    }
}

/// The manifest in the directory, as its writer has left it.
#[derive(Debug, Clone)]
pub(super) struct KnownManifest(Option<Vec<u8>>);

impl KnownManifest {
    /// The one that is there now.
    pub(super) fn read(storage: &dyn Storage, options: &WriterOptions) -> io::Result<Self> {
        storage.read(&options.manifest_path()).map(Self)
    }

    /// The bytes of the file, if there is one.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        self.0.as_deref()
    }

    /// Refuses a directory if another one is in its place.
    pub(super) fn expect(&self, storage: &dyn Storage, options: &WriterOptions) -> io::Result<()> {
        let path = options.manifest_path();
        let name = || path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match storage.read(&path)? {
            found if found == self.0 => Ok(()),
            Some(_) => Err(foreign_change(&name())),
            None => {
                let gone = format!("{} has been moved away or removed", name());
                Err(io::Error::new(io::ErrorKind::NotFound, gone))
            }
        }
    }

    /// Puts another one in its place, durably.
    pub(super) fn replace(
        &mut self,
        storage: &dyn Storage,
        options: &WriterOptions,
        manifest: &Manifest,
    ) -> io::Result<()> {
        self.expect(storage, options)?;
        let (path, bytes) = (options.manifest_path(), manifest.encode());
        let result = storage.replace(&path, &bytes);
        // An error does not say which of the two is in place.
        if result.is_ok() || storage.read(&path).is_ok_and(|found| found.as_ref() == Some(&bytes)) {
            self.0 = Some(bytes);
        }
        result
    }
}
