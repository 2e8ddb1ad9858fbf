//! Snapshots, the append-only file, and loading them.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use dunlin_net::Now;

use super::{
    Reading,
    metric::{Metric, Number, Row, Shown, Unit},
};
use crate::{loading::LoadingProgress, persistence::saving::Progress};

const fn with_log(
    name: &'static str,
    unit: Unit,
    summary: &'static str,
    read: fn(&Reading<'_>) -> Number,
) -> Row {
    Row::One(Metric::gauge(name, unit, summary, read).shown(Shown::WithLog))
}

const fn while_loading(
    name: &'static str,
    unit: Unit,
    summary: &'static str,
    read: fn(&Reading<'_>) -> Number,
) -> Row {
    Row::One(Metric::gauge(name, unit, summary, read).shown(Shown::WhileLoading))
}

pub(super) const ROWS: &[Row] = &[
    Row::One(Metric::gauge("loading", Unit::Flag, "Whether a data set is being loaded.", |reading| {
        reading.loading().is_some().into()
    })),
    Row::One(Metric::none("async_loading", "Whether an old data set is served while one is loaded: never.")),
    Row::One(Metric::none("current_cow_peak", "Memory that a forked child has copied: none forks here.")),
    Row::One(Metric::none("current_cow_size", "Memory that a forked child has copied: none forks here.")),
    Row::One(Metric::none("current_cow_size_age", "The age of that number: there is none.")),
    Row::One(Metric::gauge("current_fork_perc", Unit::Percent, "How far a save or rewrite is.", |reading| {
        let (done, total) = keys(reading);
        Number::Decimal(done as f64 * 100.0 / total.max(1) as f64, 2)
    })),
    Row::One(Metric::gauge(
        "current_save_keys_processed",
        Unit::Count,
        "Keys that it has written.",
        |reading| keys(reading).0.into(),
    )),
    Row::One(Metric::gauge(
        "current_save_keys_total",
        Unit::Count,
        "Keys that it will have written.",
        |reading| keys(reading).1.into(),
    )),
    Row::One(Metric::gauge(
        "rdb_changes_since_last_save",
        Unit::Count,
        "Changes that no snapshot has.",
        |reading| {
            let saved = reading.shared.persistence.saved_changes.load(Relaxed);
            reading.of_keyspace(|counters| &counters.changes).saturating_sub(saved).into()
        },
    )),
    Row::One(Metric::gauge(
        "rdb_bgsave_in_progress",
        Unit::Flag,
        "Whether a snapshot is being saved.",
        |reading| reading.saving().0.is_some().into(),
    )),
    Row::One(Metric::gauge(
        "rdb_last_save_time",
        Unit::UnixSeconds,
        "When the last snapshot was saved.",
        |reading| reading.shared.persistence.last_save_s.load(Relaxed).into(),
    )),
    Row::One(Metric::text(
        "rdb_last_bgsave_status",
        "Whether the last snapshot could be saved.",
        |reading| ok_or_err(reading.shared.persistence.last_save_ok.load(Relaxed)).into(),
    )),
    Row::One(Metric::gauge(
        "rdb_last_bgsave_time_sec",
        Unit::Seconds,
        "How long the last snapshot took; -1 for none.",
        |reading| seconds(reading.saving().1),
    )),
    Row::One(Metric::gauge(
        "rdb_current_bgsave_time_sec",
        Unit::Seconds,
        "How long the snapshot of now has taken; -1 for none.",
        |reading| seconds(elapsed(reading.saving().0)),
    )),
    Row::One(Metric::counter("rdb_saves", Unit::Count, "Snapshots saved.", |reading| {
        reading.shared.persistence.saves.load(Relaxed)
    })),
    Row::One(Metric::none("rdb_last_cow_size", "Memory that a forked child has copied: none forks here.")),
    Row::One(Metric::gauge(
        "rdb_last_load_keys_expired",
        Unit::Count,
        "Keys of the last file loaded that had expired.",
        |reading| reading.shared.persistence.expired_keys.load(Relaxed).into(),
    )),
    Row::One(Metric::gauge(
        "rdb_last_load_keys_loaded",
        Unit::Count,
        "Keys of it that were loaded.",
        |reading| reading.shared.persistence.loaded_keys.load(Relaxed).into(),
    )),
    Row::One(Metric::gauge("aof_enabled", Unit::Flag, "The directive `appendonly`.", |reading| {
        reading.config.appendonly.into()
    })),
    Row::One(Metric::gauge(
        "aof_rewrite_in_progress",
        Unit::Flag,
        "Whether the log is being rewritten.",
        |reading| reading.rewriting().current.is_some().into(),
    )),
    Row::One(Metric::gauge(
        "aof_rewrite_scheduled",
        Unit::Flag,
        "Whether it is to be as soon as possible.",
        |reading| reading.rewriting().scheduled.into(),
    )),
    Row::One(Metric::gauge(
        "aof_last_rewrite_time_sec",
        Unit::Seconds,
        "How long the last rewrite took; -1 for none.",
        |reading| seconds(reading.rewriting().last_took),
    )),
    Row::One(Metric::gauge(
        "aof_current_rewrite_time_sec",
        Unit::Seconds,
        "How long the rewrite of now has taken; -1 for none.",
        |reading| seconds(elapsed(reading.rewriting().current.as_deref())),
    )),
    Row::One(Metric::text("aof_last_bgrewrite_status", "Whether the log could be rewritten.", |reading| {
        ok_or_err(reading.rewriting().failures == 0).into()
    })),
    Row::One(Metric::counter("aof_rewrites", Unit::Count, "Rewrites begun.", |reading| {
        reading.rewriting().count
    })),
    Row::One(Metric::gauge(
        "aof_rewrites_consecutive_failures",
        Unit::Count,
        "Rewrites that have failed in a row.",
        |reading| reading.rewriting().failures.into(),
    )),
    Row::One(Metric::text("aof_last_write_status", "Whether the log can be written.", |reading| {
        ok_or_err(reading.log().write_error.is_none()).into()
    })),
    Row::One(Metric::none("aof_last_cow_size", "Memory that a forked child has copied: none forks here.")),
    Row::One(Metric::none("module_fork_in_progress", "Whether a module has forked: there are no modules.")),
    Row::One(Metric::none("module_fork_last_cow_size", "Memory that its child has copied: none.")),
    Row::One(Metric::gauge(
        "backup_in_progress",
        Unit::Flag,
        "Whether a backup (BACKUP) has been started and not been sealed.",
        |reading| reading.shared.durability.backup().is_active().into(),
    )),
    with_log("aof_current_size", Unit::Bytes, "The files of the log.", |reading| {
        reading.log().log_bytes.into()
    }),
    with_log("aof_base_size", Unit::Bytes, "The same after the last rewrite, or at the start.", |reading| {
        reading.log().base_bytes.into()
    }),
    with_log("aof_pending_rewrite", Unit::Flag, "As `aof_rewrite_scheduled`.", |reading| {
        reading.rewriting().scheduled.into()
    }),
    with_log("aof_buffer_length", Unit::Bytes, "Of the log, not written to its file yet.", |reading| {
        reading.shared.durability.buffered_bytes().into()
    }),
    with_log("aof_pending_bio_fsync", Unit::Flag, "Whether the log's file is being synced.", |reading| {
        reading.log().syncing_since.is_some().into()
    }),
    Row::One(
        Metric::resettable(
            "aof_delayed_fsync",
            Unit::Count,
            "Syncs that took longer than the time between two of them.",
            |reading| reading.log().delayed_syncs_by_now(),
        )
        .shown(Shown::WithLog),
    ),
    while_loading("loading_start_time", Unit::UnixSeconds, "When loading began.", |reading| {
        (loading(reading).started_ms / 1000).into()
    }),
    while_loading("loading_total_bytes", Unit::Bytes, "The size of the files.", |reading| {
        loading(reading).bytes_total.into()
    }),
    Row::One(
        Metric::none("loading_rdb_used_mem", "Memory of the server that saved the file: not read.")
            .shown(Shown::WhileLoading),
    ),
    while_loading("loading_loaded_bytes", Unit::Bytes, "How much has been loaded.", |reading| {
        loading(reading).bytes_loaded.into()
    }),
    while_loading("loading_loaded_perc", Unit::Percent, "The same as a part of the whole.", |reading| {
        Number::Decimal(loading(reading).percent(), 2)
    }),
    while_loading("loading_eta_seconds", Unit::Seconds, "How long the rest will take.", |reading| {
        loading(reading).seconds_left(Now::read().steady_ms).into()
    }),
];

/// How far loading is, for rows that are there only while it goes on.
fn loading(reading: &Reading<'_>) -> LoadingProgress {
    reading.loading().copied().unwrap_or_default()
}

/// Keys that a save or rewrite has written, and all that it will have.
fn keys(reading: &Reading<'_>) -> (u64, u64) {
    let current = reading.saving().0.or(reading.rewriting().current.as_deref());
    current.map_or((0, 0), Progress::keys)
}

fn ok_or_err(is_ok: bool) -> &'static str {
    if is_ok { "ok" } else { "err" }
}

/// Whole seconds, -1 for none.
fn seconds(time: Option<Duration>) -> Number {
    time.map_or(-1, |time| time.as_secs() as i64).into()
}

fn elapsed(progress: Option<&Progress>) -> Option<Duration> {
    progress.map(|progress| progress.begun.elapsed())
}
