//! A new base on its way into the log.
//!
//! ```text
//! thread `log`      begin ─ writes on into the newest file ─ … ─ end
//! another thread       └─ name the base ─ manifest ─ remove what it replaces ─┘
//! ```

use std::io;
use std::sync::Arc;

use super::WriterOptions;
use crate::manifest::{LogFile, Manifest};
use crate::removed::Removed;
use crate::storage::Storage;

/// A base that is to become the log's: for any thread, since it waits for the disk time and again.
#[derive(Debug)]
pub struct Adoption {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) options: WriterOptions,
    /// With the base.
    pub(super) manifest: Manifest,
    pub(super) base: LogFile,
    pub(super) since: u64,
    pub(super) older_bytes: u64,
}

impl Adoption {
    /// Has the log's manifest name the base. `put` gives the base's file the name that it is told, durably.
    /// After a crash at any moment there is the old log or the new one; on an error there is the old one.
    pub fn put_in_place(&mut self, put: impl FnOnce(&str) -> io::Result<()>) -> io::Result<()> {
        put(&self.base.name)?;
        let newest = self.manifest.increments.len().saturating_sub(1);
        let older = self.manifest.base.iter().chain(&self.manifest.increments[..newest]);
        let bytes = |file: &LogFile| self.storage.len(&self.options.directory.join(&file.name));
        self.older_bytes = older.map(bytes).sum::<io::Result<u64>>()?;
        // Where it fails the base's file stays: the manifest may be in place nonetheless.
        self.storage.replace(&self.options.manifest_path(), &self.manifest.encode())
    }

    /// Removes the files that the base, which is in place, has made superfluous; they take their room until what is
    /// answered is dropped.
    pub fn remove_history(&mut self) -> io::Result<Vec<Removed>> {
        remove_history(&*self.storage, &self.options, &mut self.manifest)
    }
}

/// Removes the files that a manifest names as history, and has it name them no longer.
pub(super) fn remove_history(
    storage: &dyn Storage,
    options: &WriterOptions,
    manifest: &mut Manifest,
) -> io::Result<Vec<Removed>> {
    let mut removed = Vec::new();
    if manifest.history.is_empty() {
        return Ok(removed);
    }
    let mut shorter = manifest.clone();
    for file in std::mem::take(&mut shorter.history) {
        match storage.remove(&options.directory.join(&file.name)) {
            Ok(file) => removed.push(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    storage.replace(&options.manifest_path(), &shorter.encode())?;
    *manifest = shorter;
    Ok(removed)
}
