//! Logs that are no longer written: which of them this process knows, and which are kept.

use std::io;

use dunlin_persist::{
    Disk, Storage,
    aof::{KeptFiles, WriterOptions},
    manifest::{LogFile, Manifest},
};

use crate::durability::read_manifest;

/// A log that this process has written and that is not written now.
pub(super) struct LeftLog {
    manifest: Manifest,
    /// Bytes of all its files.
    bytes: u64,
}

impl LeftLog {
    /// Whether a directory holds this log and nothing else.
    pub(super) fn is_in(&self, options: &WriterOptions, found: &Manifest) -> bool {
        let bytes = |file: &LogFile| Disk.len(&options.directory.join(&file.name)).unwrap_or(0);
        *found == self.manifest && found.files().map(bytes).sum::<u64>() == self.bytes
    }
}

/// The log that this process has just left in a directory.
pub(super) fn left_log(options: &WriterOptions) -> Option<LeftLog> {
    let manifest = read_manifest(options).ok().flatten()?;
    let bytes = |file: &LogFile| Disk.len(&options.directory.join(&file.name)).unwrap_or(0);
    let bytes = manifest.files().map(bytes).sum();
    Some(LeftLog { manifest, bytes })
}

/// Keeps a copy of a log that is about to be replaced, by further names of its files.
pub(super) fn keep_log(options: &WriterOptions, manifest: &Manifest) -> io::Result<()> {
    let files: Vec<LogFile> = manifest.files().chain(&manifest.history).cloned().collect();
    if files.is_empty() {
        return Ok(());
    }
    let kept = KeptFiles::begin(&Disk, options, Some(&manifest.encode()))?;
    kept.copy(&Disk, options, &files)?;
    warn_of_kept(kept.directory());
    Ok(())
}

/// Logs the place of a log that was replaced without having been loaded.
pub(super) fn warn_of_kept(directory: &std::path::Path) {
    tracing::warn!(
        "The log that was there before, which this server has not loaded, is kept in {}; 'dunlin check' shows what it holds. Remove it when it is not needed",
        directory.display()
    );
}
