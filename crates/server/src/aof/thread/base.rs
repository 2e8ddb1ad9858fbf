//! Rewrites: when one begins, and how its base takes the place of the files before its cut.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use dunlin_persist::{
    Disk, Removed, Storage,
    aof::{Adoption, WriterOptions},
    manifest::{LogId, Manifest},
};

use super::{
    LogThread, State,
    left::{keep_log, left_log, warn_of_kept},
};
use crate::{
    aof::rewrite,
    config::describe,
    durability::{Base, LogOrder, log_options, read_manifest},
    rdb::{cancelled, is_cancellation},
    system::removal::{give_back, in_background},
};

impl LogThread {
    /// Begins the file behind the boundary, unless that has been done.
    pub(super) fn rotate(&mut self) {
        if !self.shared.durability.ring.has_boundary() {
            return;
        }
        self.cut_at = None;
        self.settle_sync();
        let durability = &self.shared.durability;
        if let State::On(writer) = &mut self.state {
            match writer.rotate(durability.boundary_database.load(SeqCst)) {
                Ok(outgrown) => {
                    self.cut_at = Some(writer.increment());
                    in_background(|| outgrown.end_reserving());
                }
                Err(error) => {
                    tracing::warn!("cannot begin the next file of the log: {}", describe(&error));
                    durability.rewriting().current.iter().for_each(|progress| progress.cancel());
                }
            }
        }
        durability.ring.lift_boundary();
    }

    /// Puts the base of a written rewrite in place, on a thread of its own: that waits for the disk time and
    /// again, and removes what may be large.
    pub(super) fn adopt(&mut self, written: io::Result<Base>) {
        let retained_bytes_max = self.shared.config.current().repl_backlog_disk_size;
        let adopted = written.and_then(|base| match &mut self.state {
            State::On(writer) => {
                writer.retain(retained_bytes_max);
                let since = self.cut_at.take().ok_or_else(cancelled)?;
                let adoption = writer.begin_adopting(since, base.format)?;
                let shared = Arc::clone(&self.shared);
                let run = move || {
                    shared.durability.order(LogOrder::EndAdopting(Box::new(put_in_place(adoption, base))));
                };
                let thread = thread::Builder::new().name("log-base".to_owned()).spawn(run)?;
                self.is_adopting = true;
                self.shared.durability.rewriting().set_thread(thread);
                Ok(true)
            }
            State::Off(_) => {
                let options = log_options(&self.shared.config.current());
                let manifest = read_manifest(&options).map_err(io::Error::other)?;
                let manifest = manifest.unwrap_or_default();
                if self.left.as_ref().is_none_or(|left| !left.is_in(&options, &manifest)) {
                    keep_log(&options, &manifest)?;
                }
                let id = self.shared.durability.status().log.clone();
                let files = replace_log(&options, manifest, id, base)?;
                give_back(files);
                self.left = left_log(&options);
                Ok(false)
            }
            State::Turning => Err(cancelled()),
        });
        match adopted {
            Ok(true) => {}
            Ok(false) => self.end_rewrite(Ok(())),
            Err(error) => self.end_rewrite(Err(error)),
        }
    }

    pub(super) fn end_adopting(&mut self, adopted: io::Result<Adoption>) {
        self.is_adopting = false;
        let mut was_in_vain = false;
        let result = adopted.map(|adoption| {
            let State::On(writer) = &mut self.state else { return };
            was_in_vain = writer.is_torn() || writer.is_in_background();
            writer.end_adopting(adoption);
        });
        self.end_rewrite(result);
        // A client that learns that its writes are durable finds the rewrite over.
        if was_in_vain && let State::On(writer) = &self.state {
            let durability = &self.shared.durability;
            durability.lacks_base.store(writer.is_in_background(), SeqCst);
            durability.publish(writer.synced(), writer.synced());
        }
    }

    /// A rewrite has come to its end.
    pub(super) fn end_rewrite(&mut self, result: io::Result<()>) {
        let is_cancelled = result.as_ref().is_err_and(is_cancellation);
        match &result {
            Ok(()) => tracing::info!("Background AOF rewrite finished successfully"),
            Err(_) if is_cancelled => tracing::warn!("Background AOF rewrite cancelled"),
            Err(error) => tracing::warn!("the log could not be rewritten: {}", describe(error)),
        }
        if result.is_ok() {
            self.note_size();
            self.shared.durability.status().base_bytes = self.log_bytes();
        }
        self.pin_base_of_backup(&result);
        let mut rewriting = self.shared.durability.rewriting();
        rewriting.end(result.is_ok() || is_cancelled);
        // A log without a base cannot be loaded.
        rewriting.scheduled |= matches!(&self.state, State::On(writer) if writer.is_in_background());
        drop(rewriting);
    }

    /// Brings a rewrite to its end that has become pointless.
    pub(super) fn settle_rewriting(&mut self) {
        self.shared.durability.rewriting().cancel();
        self.await_rewriting();
    }

    /// Waits until a rewrite has come to its end, if there is one.
    pub(super) fn await_rewriting(&mut self) {
        let shared = Arc::clone(&self.shared);
        // A single thread writes the base, and orders another one to put it in place.
        while shared.durability.await_rewriting() {
            for order in shared.durability.take_orders() {
                match order {
                    LogOrder::Adopt(written) => self.adopt(written),
                    LogOrder::EndAdopting(adopted) => self.end_adopting(*adopted),
                    other => shared.durability.order(other),
                }
            }
        }
    }

    /// Begins a rewrite if the log has grown enough.
    pub(super) fn rewrite_if_due(&mut self) {
        let State::On(writer) = &self.state else { return };
        let shared = Arc::clone(&self.shared);
        let config = self.config.config();
        let is_held = shared.durability.backup().holds_rewrites();
        let is_due = !writer.is_in_background() && !is_held && {
            let (bytes, base) = (writer.log_bytes(), shared.durability.status().base_bytes.max(1));
            let percent = u64::from(config.auto_aof_rewrite_percentage);
            let growth = u128::from(bytes.saturating_sub(base)) * 100 / u128::from(base);
            let is_large =
                percent > 0 && bytes > config.auto_aof_rewrite_min_size && growth >= u128::from(percent);
            is_large && shared.durability.rewriting().may_begin()
        };
        if is_due {
            tracing::info!("Starting automatic rewriting of AOF: {} bytes", writer.log_bytes());
            // If it cannot begin, the next turn tries again.
            let _ = rewrite::begin_rewrite(&shared, |work| _ = shared.alone_unless_long(work));
        }
    }

    /// Removes files that are no longer needed.
    pub(super) fn remove_history(&mut self) {
        let State::On(writer) = &mut self.state else { return };
        if let Err(error) = writer.remove_history() {
            warn_of_history(&error);
        }
    }
}

/// Puts a base in the place of the log before its cut, and removes that.
pub(super) fn put_in_place(mut adoption: Adoption, base: Base) -> io::Result<Adoption> {
    adoption.put_in_place(|name| base.file.put_in_place(name).map(drop))?;
    match adoption.keep_others() {
        Ok(kept) => kept.iter().for_each(|directory| warn_of_kept(directory)),
        Err(error) => tracing::warn!("cannot move the files of the log before: {}", describe(&error)),
    }
    match adoption.remove_history() {
        Ok(files) => give_back(files),
        Err(error) => warn_of_history(&error),
    }
    Ok(adoption)
}

pub(super) fn warn_of_history(error: &io::Error) {
    tracing::warn!("cannot remove files that the log no longer needs: {}", describe(error));
}

/// Puts a base in the place of a log that is not written, of that manifest, as the log `id`; the old files take their
/// room for as long as the result exists.
pub(crate) fn replace_log(
    options: &WriterOptions,
    mut manifest: Manifest,
    id: Option<LogId>,
    base: Base,
) -> io::Result<Vec<Removed>> {
    manifest.supersede();
    manifest.id = id;
    let file = manifest.next_base(&options.filename, base.format);
    base.file.put_in_place(&file.name)?;
    manifest.base = Some(file);
    let history = std::mem::take(&mut manifest.history);
    Disk.replace(&options.manifest_path(), &manifest.encode())?;
    // No manifest names these files: they are superfluous.
    let removed = history.iter().filter_map(|file| Disk.remove(&options.directory.join(&file.name)).ok());
    Ok(removed.collect())
}
