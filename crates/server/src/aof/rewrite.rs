//! Rewriting the log: a snapshot becomes its base, and the records before the cut go.
//!
//! ```text
//!                 cut, gate closed        thread `log`                     thread `log-base`
//! records  ───────────┤ boundary ├──▶ … rotates there ──────────────▶ adopts the base ─▶ removes
//!  files    incr 1    │          │     incr 1 │ incr 2               base │ incr 2
//! snapshot            └── thread `snapshot` writes ── done ─────────────┘
//! ```
//!
//! A log that is turned on begins the same way, but that there is nothing before the cut: its first
//! incremental file is in no manifest until the base is there.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, atomic::Ordering::SeqCst},
};

use dunlin_engine::{ExclusiveContext, LogConsumer};
use dunlin_persist::{Disk, Storage};

use crate::{
    config::Config,
    durability::{BackupState, Base, LogOrder, log_options},
    persistence::{
        saving::SaveError,
        stamp::{LogRelation, next_id},
    },
    rdb::{Cut, Destination, cancelled, thread_for_cut},
    shared::Shared,
};

/// Begins a rewrite that was asked for earlier, if it is possible now. To be called often.
pub(crate) fn rewrite_if_due(shared: &Arc<Shared>) {
    let is_wanted = shared.durability.backup().state() == BackupState::Basing;
    shared.durability.rewriting().schedule_if(is_wanted);
    if shared.durability.rewriting().is_due() && !shared.loading.is_active() {
        // If it cannot begin, the next round tries again.
        let _ = begin_rewrite(shared, |work| _ = shared.alone_unless_long(work));
    }
}

/// Begins a rewrite. `alone` does something behind the closed gate.
pub(crate) fn begin_rewrite(
    shared: &Arc<Shared>,
    alone: impl FnOnce(&mut dyn FnMut(&mut ExclusiveContext<'_>)),
) -> Result<(), SaveError> {
    let durability = &shared.durability;
    if durability.rewriting().current.is_some() {
        return Err(SaveError::InProgress);
    }
    if durability.backup().holds_rewrites() {
        return Err(SaveError::Busy);
    }
    let config = shared.config.current();
    let directory = durability.status().directory.clone();
    let directory = match directory {
        Some(directory) => directory,
        // There is no log that has it.
        None => {
            let held = shared.directory.hold(&config);
            held.map_err(|in_use| SaveError::InUse(in_use.to_string()))?;
            log_options(&config).directory
        }
    };
    begin(shared, directory, &config, |work| {
        alone(&mut |context| {
            work(context).inspect(|_| {
                if shared.engine.log.is_on_for(LogConsumer::File) {
                    durability.ring.set_boundary();
                    durability.boundary_database.store(shared.replication.stream_database(), SeqCst);
                } else {
                    // The log holds the data set of the cut; snapshots that are cut later hold more.
                    let mut status = durability.status();
                    status.log = next_id(status.held_log()).ok();
                    status.relation = LogRelation::Off;
                }
                // Nothing behind the boundary is written before the log has seen it.
                durability.order(LogOrder::Rotate);
            });
        })
    })
}

/// Makes a cut behind the gate that `alone` closes, and writes it for the log in a directory.
pub(super) fn begin(
    shared: &Arc<Shared>,
    directory: PathBuf,
    config: &Config,
    alone: impl FnOnce(&mut dyn FnMut(&mut ExclusiveContext<'_>) -> Option<()>),
) -> Result<(), SaveError> {
    let durability = &shared.durability;
    let (thread, order) = thread_for_cut(shared, Destination::File, move |shared, cut| {
        let written = write_base(shared, cut, &directory);
        shared.durability.order(LogOrder::Adopt(written));
    })?;
    let mut begun = Err(SaveError::BlockedByScript);
    alone(&mut |context| {
        let mut rewriting = durability.rewriting();
        begun = match (&rewriting.current, rewriting.ended) {
            (Some(_), _) => Err(SaveError::InProgress),
            (None, true) => Err(SaveError::NoThread),
            (None, false) => shared.cut(context, config, true).ok_or(SaveError::Busy),
        };
        let cut = begun.as_ref().ok()?;
        rewriting.current = Some(Arc::clone(&cut.progress));
        rewriting.scheduled = false;
        rewriting.count += 1;
        Some(())
    });
    let cut = begun?;
    tracing::info!("Background append only file rewriting started: {} keys", cut.progress.keys().1);
    durability.rewriting().thread = Some(thread);
    order.send(cut).unwrap_or_else(|_| unreachable!("the thread waits for it"));
    Ok(())
}

/// Writes a snapshot as the base of a log, for the log to put in place.
fn write_base(shared: &Shared, cut: Cut, directory: &std::path::Path) -> io::Result<Base> {
    let (progress, format) = (Arc::clone(&cut.progress), cut.base_format());
    // If this fails, so does the writing, which brings the snapshot to its end.
    let made = Disk.create_directory(directory);
    let beside = format!("temp-{}.rdb", std::process::id());
    let written = shared.write_cut(cut, directory, &beside)?;
    made?;
    if progress.is_cancelled() { Err(cancelled()) } else { Ok(Base { file: written, format }) }
}
