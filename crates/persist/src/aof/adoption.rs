//! A new base on its way into the log.
//!
//! ```text
//! thread `log`      begin ─ writes on into the newest file ─ … ─ end
//! another thread       └─ name the base ─ manifest ─ remove the old files ───┘
//! ```

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::WriterOptions;
use super::foreign_change::KnownManifest;
use super::kept_files::KeptFiles;
use crate::manifest::{LogFile, Manifest};
use crate::removed::Removed;
use crate::storage::Storage;

/// A base that is to become the log's: for any thread, since it waits for the disk time and again.
#[derive(Debug)]
pub struct Adoption {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) options: WriterOptions,
    /// The manifest with the base.
    pub(super) manifest: Manifest,
    pub(super) known: KnownManifest,
    pub(super) base: LogFile,
    pub(super) since: u64,
    pub(super) older_bytes: u64,
    pub(super) kept: Option<KeptFiles>,
}

impl Adoption {
    /// Makes the log's manifest name the base. `put` gives the base's file the name in its argument, durably. After
    /// a crash at any moment there is the old log or the new one; on an error there is the old one.
    pub fn put_in_place(&mut self, put: impl FnOnce(&str) -> io::Result<()>) -> io::Result<()> {
        put(&self.base.name)?;
        let newest = self.manifest.increments.len().saturating_sub(1);
        let older = self.manifest.base.iter().chain(&self.manifest.increments[..newest]);
        let bytes = |file: &LogFile| self.storage.len(&self.options.directory.join(&file.name));
        self.older_bytes = older.map(bytes).sum::<io::Result<u64>>()?;
        if !self.manifest.kept.is_empty() {
            self.kept = Some(KeptFiles::begin(&*self.storage, &self.options, self.known.bytes())?);
        }
        // After a failure the base's file stays: the manifest may be in place nonetheless.
        self.known.replace(&*self.storage, &self.options, &self.manifest)
    }

    /// Moves the files of another log, whose place this one has taken, to where they are kept; that directory, if there were
    /// any.
    pub fn keep_others(&mut self) -> io::Result<Option<PathBuf>> {
        let Some(kept) = self.kept.take() else { return Ok(None) };
        kept.take(&*self.storage, &self.options, &self.manifest.kept)?;
        Ok(Some(kept.directory().to_owned()))
    }

    /// Removes the files that the base, which is in place, has made superfluous; they take their room until what is
    /// answered is dropped.
    pub fn remove_history(&mut self) -> io::Result<Vec<Removed>> {
        remove_history(&*self.storage, &self.options, &mut self.manifest, &mut self.known)
    }
}

/// Removes the files that a manifest names as history, and has it name them no longer.
pub(super) fn remove_history(
    storage: &dyn Storage,
    options: &WriterOptions,
    manifest: &mut Manifest,
    known: &mut KnownManifest,
) -> io::Result<Vec<Removed>> {
    let mut removed = Vec::new();
    let mut shorter = manifest.clone();
    // A file that cannot be looked at is of no use to a replica.
    let bytes = |file: &LogFile| storage.len(&options.directory.join(&file.name)).unwrap_or(u64::MAX);
    shorter.limit_retained(options.retained_bytes_max, bytes);
    if shorter.history.is_empty() {
        return Ok(removed);
    }
    known.expect(storage, options)?;
    for file in std::mem::take(&mut shorter.history) {
        match storage.remove(&options.directory.join(&file.name)) {
            Ok(file) => removed.push(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    known.replace(storage, options, &shorter)?;
    *manifest = shorter;
    Ok(removed)
}
