//! The state of a backup (BACKUP): files of the log that have a second name in a directory of their own.
//!
//! ```text
//! idle ─START─▶ basing ─ base in place: linked ─▶ incrementing ─SEAL─▶ sealed ─CLEANUP, backup-sealed-ttl─▶ idle
//!                 └────────── ABORT, a failure ──────────┴─▶ failed ─START, CLEANUP─▶
//!
//! appendonlydir/appendonly.aof.3.base.rdb  ══ hard link ══  backupdir/appendonly.aof.3.base.rdb
//! appendonlydir/appendonly.aof.4.incr.aof  ══ at SEAL ════  backupdir/appendonly.aof.4.incr.aof     ends at SEAL
//!                                                           backupdir/appendonly.aof.manifest       last, durably
//! ```
//!
//! A directory without a manifest is no backup. While a backup is incrementing no rewrite begins, so the log is the base and what came
//! after it. The sealed files never change: the log goes on in a new file.
//!
//! Names, states, fields and errors are those of Redis 8.10 (its command reference, `tests/integration/backup.tcl`).

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use dunlin_persist::{
    Disk, Storage,
    aof::WriterOptions,
    manifest::{LogFile, Manifest},
};

use crate::system::removal::give_back;

/// The state of a backup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum BackupState {
    /// There is none.
    #[default]
    Idle,
    /// The base is being written, or waits for a rewrite to begin.
    Basing,
    /// The base is there; the log grows.
    Incrementing,
    /// All files are there, and do not change.
    Sealed,
    /// The backup failed or was aborted; its files are gone.
    Failed,
}

/// A backup.
#[derive(Debug, Default)]
pub(crate) struct Backup {
    state: BackupState,
    /// Why it failed; empty if it did not.
    error: String,
    /// Unix seconds, 0 for never.
    started_s: u64,
    sealed_s: u64,
    directory: PathBuf,
    /// The files that it has made, in the order of their loading, the manifest last.
    files: Vec<PathBuf>,
    base: Option<LogFile>,
    /// A client is sealing it.
    pub(crate) is_being_sealed: bool,
    /// The log is on for the backup's sake: `appendonly` was no at START.
    pub(crate) owns_log: bool,
}

impl Backup {
    pub(crate) fn state(&self) -> BackupState {
        self.state
    }

    pub(crate) fn error(&self) -> &str {
        &self.error
    }

    /// When it was started and sealed, in Unix seconds; 0 for never.
    pub(crate) fn times_s(&self) -> (u64, u64) {
        (self.started_s, self.sealed_s)
    }

    /// Absolute paths of its files so far.
    pub(crate) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Whether it has begun and not come to an end.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self.state, BackupState::Basing | BackupState::Incrementing)
    }

    /// Whether a rewrite of the log would take files from it.
    pub(crate) fn holds_rewrites(&self) -> bool {
        self.state == BackupState::Incrementing
    }

    /// Makes the directory if it is missing, and looks whether a backup can begin in it.
    ///
    /// # Errors
    /// Returns the error for the client, without its code.
    pub(crate) fn expect_ready(&self, directory: &Path) -> Result<(), String> {
        match self.state {
            BackupState::Basing | BackupState::Incrementing => {
                return Err("A backup is already in progress, ABORT it first".to_owned());
            }
            BackupState::Sealed => return Err("A sealed backup exists, CLEANUP it first".to_owned()),
            BackupState::Idle | BackupState::Failed => {}
        }
        let shown = directory.display();
        let is_empty = Disk
            .create_directory(directory)
            .and_then(|()| fs::read_dir(directory))
            .map_err(|error| format!("Backup directory '{shown}' cannot be used: {error}"))?
            .next()
            .is_none();
        if !is_empty {
            return Err(format!("Backup directory '{shown}' is not empty"));
        }
        Ok(())
    }

    /// Begins in an empty directory, which is made if it is missing.
    ///
    /// # Errors
    /// Returns the error for the client, without its code.
    pub(crate) fn begin(&mut self, directory: PathBuf, now_s: u64) -> Result<(), String> {
        self.expect_ready(&directory)?;
        let owns_log = self.owns_log;
        *self = Self { state: BackupState::Basing, started_s: now_s, directory, owns_log, ..Self::default() };
        Ok(())
    }

    /// Takes the base that a rewrite has just put in place.
    pub(crate) fn pin_base(&mut self, log: &Path, manifest: &Manifest) -> io::Result<()> {
        let base = manifest.base.clone().ok_or(io::ErrorKind::NotFound)?;
        self.pin(log, &base)?;
        self.base = Some(base);
        self.state = BackupState::Incrementing;
        Ok(())
    }

    /// Takes a file of the log that does not change from now on.
    fn pin(&mut self, log: &Path, file: &LogFile) -> io::Result<()> {
        let to = self.directory.join(&file.name);
        if !self.files.contains(&to) {
            Disk.copy(&log.join(&file.name), &to)?;
            self.files.push(to);
        }
        Disk.sync_directory(&self.directory)
    }

    /// Takes the last files of the log, `manifest`'s, and writes the manifest of the backup. After an error it can be tried again,
    /// with the same files and those that have come after them.
    pub(crate) fn seal(
        &mut self,
        options: &WriterOptions,
        manifest: &Manifest,
        now_s: u64,
    ) -> io::Result<()> {
        if manifest.base != self.base {
            return Err(io::Error::other("the log has another base"));
        }
        for file in &manifest.increments {
            self.pin(&options.directory, file)?;
        }
        let (base, increments) = (self.base.clone(), manifest.increments.clone());
        let sealed = Manifest { base, increments, ..Manifest::default() };
        let name = options.manifest_path().file_name().map(PathBuf::from).unwrap_or_default();
        let path = self.directory.join(name);
        Disk.replace(&path, &sealed.encode())?;
        self.files.push(path);
        (self.state, self.sealed_s) = (BackupState::Sealed, now_s);
        Ok(())
    }

    /// Fails a backup that is under way, and removes its files.
    pub(crate) fn fail(&mut self, reason: &str) {
        if self.is_active() {
            tracing::warn!("the backup in {} has failed: {reason}", self.directory.display());
            self.remove_files();
            (self.state, self.error) = (BackupState::Failed, reason.to_owned());
        }
    }

    /// Forgets it, and removes its files.
    ///
    /// # Errors
    /// Returns the error for the client, without its code, if it is under way.
    pub(crate) fn clean_up(&mut self) -> Result<(), String> {
        if self.is_active() {
            return Err("Backup is in progress".to_owned());
        }
        self.remove_files();
        *self = Self { owns_log: self.owns_log, ..Self::default() };
        Ok(())
    }

    /// Removes a sealed backup that is `ttl_s` seconds old; 0 for never.
    pub(crate) fn expire(&mut self, ttl_s: u64, now_s: u64) {
        let is_old = now_s.saturating_sub(self.sealed_s) >= ttl_s;
        if self.state == BackupState::Sealed && ttl_s > 0 && is_old {
            tracing::info!("the backup in {} is removed after backup-sealed-ttl", self.directory.display());
            _ = self.clean_up();
        }
    }

    /// Removes the manifest first: what is left is no backup. The room of large files is given back in the background.
    fn remove_files(&mut self) {
        let mut removed = Vec::new();
        for path in self.files.drain(..).rev() {
            match Disk.remove(&path) {
                Ok(file) => removed.push(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => tracing::warn!("cannot remove {}: {error}", path.display()),
            }
        }
        give_back(removed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::ScratchDir;

    fn file(name: &str, sequence: u64) -> LogFile {
        LogFile { name: name.to_owned(), sequence }
    }

    /// A log of a base and some increments, and the place of a backup.
    fn log(name: &str, increments: &[&str]) -> (ScratchDir, WriterOptions, Manifest) {
        let directory = ScratchDir::new(name);
        let log = directory.path("log");
        fs::create_dir(&log).unwrap();
        for name in ["base", "other"].iter().chain(increments) {
            fs::write(log.join(name), name).unwrap();
        }
        let increments = increments.iter().zip(1..).map(|(name, sequence)| file(name, sequence)).collect();
        let manifest = Manifest { base: Some(file("base", 1)), increments, ..Manifest::default() };
        let options = WriterOptions { directory: log, filename: "a".to_owned(), retained_bytes_max: 0 };
        (directory, options, manifest)
    }

    fn names(directory: &Path) -> Vec<String> {
        let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn backup_goes_from_state_to_state() {
        let (directory, options, mut manifest) = log("backup-states", &["incr"]);
        let place = directory.path("backup");
        let mut backup = Backup::default();
        assert!(backup.clean_up().is_ok(), "there is nothing to remove");
        backup.begin(place.clone(), 10).unwrap();
        assert_eq!((backup.state(), backup.times_s()), (BackupState::Basing, (10, 0)));
        assert_eq!(
            backup.begin(place.clone(), 11),
            Err("A backup is already in progress, ABORT it first".to_owned())
        );
        assert_eq!(backup.clean_up(), Err("Backup is in progress".to_owned()));
        backup.pin_base(&options.directory, &manifest).unwrap();
        assert!(backup.holds_rewrites());
        assert_eq!(names(&place), ["base"]);
        backup.seal(&options, &manifest, 12).unwrap();
        assert_eq!(names(&place), ["a.manifest", "base", "incr"]);
        assert_eq!(
            fs::read_to_string(place.join("a.manifest")).unwrap(),
            "file base seq 1 type b\nfile incr seq 1 type i\n"
        );
        assert_eq!((backup.state(), backup.times_s()), (BackupState::Sealed, (10, 12)));
        assert_eq!(
            backup.begin(place.clone(), 13),
            Err("A sealed backup exists, CLEANUP it first".to_owned())
        );
        backup.expire(0, 1000);
        backup.expire(5, 16);
        assert_eq!(backup.state(), BackupState::Sealed);
        backup.expire(5, 17);
        assert_eq!((backup.state(), backup.files().len(), names(&place)), (BackupState::Idle, 0, vec![]));
        assert_eq!(names(&options.directory), ["base", "incr", "other"], "the log's own files stay");
        // A base that has been replaced meanwhile would leave a hole.
        backup.begin(place.clone(), 20).unwrap();
        backup.pin_base(&options.directory, &manifest).unwrap();
        manifest.base = Some(file("other", 2));
        backup.seal(&options, &manifest, 21).unwrap_err();
        backup.fail("why");
        assert_eq!((backup.state(), backup.error(), names(&place)), (BackupState::Failed, "why", vec![]));
    }

    #[test]
    fn backup_is_sealed_again_after_a_failure() {
        let (directory, options, manifest) = log("backup-again", &["incr", "incr2"]);
        let place = directory.path("backup");
        let mut backup = Backup::default();
        backup.begin(place.clone(), 1).unwrap();
        backup.pin_base(&options.directory, &manifest).unwrap();
        fs::rename(options.directory.join("incr2"), options.directory.join("away")).unwrap();
        backup.seal(&options, &manifest, 2).unwrap_err();
        assert_eq!(
            (backup.state(), names(&place)),
            (BackupState::Incrementing, vec!["base".into(), "incr".into()])
        );
        fs::rename(options.directory.join("away"), options.directory.join("incr2")).unwrap();
        backup.seal(&options, &manifest, 3).unwrap();
        assert_eq!(backup.files().len(), 4);
    }

    #[test]
    fn backup_never_touches_files_of_others() {
        let (directory, ..) = log("backup-others", &[]);
        let place = directory.path("backup");
        fs::create_dir(&place).unwrap();
        fs::write(place.join("stale"), "").unwrap();
        let mut backup = Backup::default();
        let error = backup.begin(place.clone(), 1).unwrap_err();
        assert_eq!(error, format!("Backup directory '{}' is not empty", place.display()));
        assert!(backup.clean_up().is_ok());
        assert_eq!((backup.state(), names(&place)), (BackupState::Idle, vec!["stale".to_owned()]));
    }
}
