//! A backup's part of the log's thread: it takes the base of a rewrite, and seals the log behind it.

use std::{
    fs, io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::Ordering::{Relaxed, SeqCst},
    },
};

use dunlin_persist::{
    aof::{Writer, WriterOptions},
    manifest::{LogId, Manifest},
};

use super::{LogThread, State, unix_time_s};
use crate::{
    config::describe,
    durability::{BackupState, LogOrder, log_options, read_manifest},
    persistence::stamp::LogRelation,
    rdb::is_cancellation,
    shared::Shared,
};

/// Why a backup fails when the log is turned off under it, in Redis's words.
pub(super) const LOG_STOPPED: &str = "appendonly is stopped";

impl LogThread {
    /// Turns the log on for a backup, as `appendonly` is no. The error is for the client, without its code.
    pub(super) fn begin_backup_with_log(&mut self, directory: PathBuf) -> Result<(), String> {
        let shared = Arc::clone(&self.shared);
        let options = log_options(&shared.config.current());
        // Before the log is looked for: it may be that of a backup under way.
        shared.durability.backup().expect_ready(&directory)?;
        // The next start would take our log for the one that lies there, which is put aside.
        if read_manifest(&options)?.is_some() {
            return Err(format!(
                "there is a log in {}, of a time with appendonly yes: move it away, or turn appendonly on",
                options.directory.display()
            ));
        }
        let before = {
            let status = shared.durability.status();
            (status.log.clone(), status.relation)
        };
        self.turn_on()?;
        // Before the backup has begun no other thread schedules a rewrite for it; the base comes by this thread's orders.
        if let Err(reason) = shared.durability.backup().begin(directory, unix_time_s()) {
            return self.turn_off().and(Err(reason));
        }
        // The log is not to be loaded at the next start, so no snapshot says how it stands to it.
        {
            let mut status = shared.durability.status();
            (status.log, status.relation) = before.clone();
        }
        shared.durability.backup().owns_log = true;
        self.before_backup = Some(before);
        Ok(())
    }

    /// Takes the base of a rewrite that has just ended, while that still counts as under way.
    pub(super) fn pin_base_of_backup(&mut self, result: &io::Result<()>) {
        let durability = &self.shared.durability;
        let mut backup = durability.backup();
        if backup.state() != BackupState::Basing {
            return;
        }
        let failed = match (result, &self.state) {
            (Ok(()), State::On(writer)) => {
                let pinned = backup.pin_base(writer.directory(), writer.manifest());
                pinned.err().map(|error| format!("the base cannot be linked: {}", describe(&error)))
            }
            (Ok(()), _) => Some(LOG_STOPPED.to_owned()),
            (Err(error), _) if is_cancellation(error) => {
                Some("the rewrite of the log was cancelled".to_owned())
            }
            (Err(error), _) => Some(format!("the log could not be rewritten: {}", describe(error))),
        };
        drop(backup);
        if let Some(reason) = failed {
            self.fail_backup(&reason);
        }
    }

    /// Ends a backup that is under way without a result.
    pub(super) fn fail_backup(&self, reason: &str) {
        let durability = &self.shared.durability;
        let mut backup = durability.backup();
        backup.fail(reason);
        if backup.owns_log {
            durability.order(LogOrder::EndLogOfBackup);
        }
    }

    /// Makes the log up to the ring's boundary a backup. The error is for the client, without its code; the backup goes on then.
    pub(super) fn seal_backup(&mut self) -> Result<(), String> {
        self.settle_sync();
        let shared = Arc::clone(&self.shared);
        let durability = &shared.durability;
        let database = durability.boundary_database.load(SeqCst);
        let sealed = match &mut self.state {
            State::On(writer) => {
                let manifest = writer.manifest().clone();
                let rotated = writer.rotate(database);
                durability.written.store(writer.written(), Relaxed);
                rotated.and_then(|outgrown| {
                    outgrown.end_reserving();
                    durability.backup().seal(writer.options(), &manifest, unix_time_s())
                })
            }
            State::Off(_) | State::Turning => Err(io::Error::other(LOG_STOPPED)),
        };
        durability.ring.lift_boundary();
        durability.backup().is_being_sealed = false;
        sealed.map_err(|error| format!("the backup cannot be sealed: {}", describe(&error)))?;
        tracing::info!("a backup is sealed");
        self.end_log_of_backup();
        Ok(())
    }

    /// Turns the log off again that was on for a backup's sake alone, and removes its files.
    pub(super) fn end_log_of_backup(&mut self) {
        let shared = Arc::clone(&self.shared);
        {
            let mut backup = shared.durability.backup();
            if !backup.owns_log || backup.is_active() {
                return;
            }
            backup.owns_log = false;
        }
        let before = self.before_backup.take();
        self.config.refresh();
        // `appendonly yes` has made the log the server's own meanwhile.
        if self.config.config().appendonly {
            return;
        }
        let State::On(writer) = &mut self.state else { return };
        let (options, manifest) = (writer.options().clone(), writer.manifest().clone());
        let is_ours = writer.is_untouched();
        if let Err(reason) = self.turn_off() {
            return tracing::warn!("the log of a backup cannot be turned off: {reason}");
        }
        let Some((log, relation)) = before.filter(|_| is_ours) else { return };
        self.left = None;
        remove_log(&options, &manifest);
        let mut status = shared.durability.status();
        (status.log, status.relation) = (log, relation);
    }
}

/// Removes what a backup leaves that the end of the server has cut off: it has no log of its own.
pub(super) fn remove_unfinished(shared: &Shared, writer: Writer) {
    let (options, manifest) = (writer.options().clone(), writer.manifest().clone());
    drop(writer.close());
    let mut backup = shared.durability.backup();
    if backup.owns_log && !shared.config.current().appendonly {
        backup.fail("the server has ended");
        remove_log(&options, &manifest);
    }
}

/// The log that the data set had before a backup turned one on, and how it stood to it.
pub(super) type LogBefore = (Option<LogId>, LogRelation);

/// Removes the files of a log that is no longer wanted, and its directory if nothing else is in it.
fn remove_log(options: &WriterOptions, manifest: &Manifest) {
    let files = manifest.files().chain(&manifest.history).chain(&manifest.retained);
    let paths = files.map(|file| options.directory.join(&file.name));
    for path in std::iter::once(options.manifest_path()).chain(paths) {
        _ = fs::remove_file(path);
    }
    _ = fs::remove_dir(&options.directory);
}
