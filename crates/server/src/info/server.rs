//! What the server is: process, persistence, replication.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use super::{Lines, REDIS_VERSION, Source};
use crate::{persistence::Progress, process};

pub(super) fn server(source: &Source<'_>, lines: &mut Lines) {
    let (config, process) = (source.config, &source.shared.monitor.process);
    let uptime_s = process.uptime().as_secs();
    lines.add("redis_version", REDIS_VERSION);
    lines.add("server_name", "dunlin");
    lines.add("dunlin_version", env!("CARGO_PKG_VERSION"));
    lines.add("redis_git_sha1", "00000000");
    lines.add("redis_git_dirty", 0);
    lines.add("redis_build_id", 0);
    lines.add("redis_mode", "standalone");
    lines.add("os", &process.system);
    lines.add("arch_bits", usize::BITS);
    lines.add("monotonic_clock", "POSIX clock_gettime");
    lines.add("multiplexing_api", if cfg!(target_os = "linux") { "epoll" } else { "kqueue" });
    lines.add("process_id", std::process::id());
    lines.add("process_supervised", "no");
    lines.add("run_id", &process.run_id);
    lines.add("tcp_port", config.port);
    lines.add("server_time_usec", process::unix_us());
    lines.add("uptime_in_seconds", uptime_s);
    lines.add("uptime_in_days", uptime_s / 86_400);
    lines.add("hz", config.hz);
    lines.add("configured_hz", config.hz);
    // Seconds in 24 bits, the unit of OBJECT IDLETIME elsewhere.
    lines.add("lru_clock", (source.now_ms / 1000) & 0xff_ffff);
    lines.add("executable", process.executable.display());
    let file = source.shared.config.file().unwrap_or_default();
    lines.add("config_file", file.display());
    lines.add("io_threads_active", 0);
    lines.add("worker_threads", source.shared.workers);
}

pub(super) fn persistence(source: &Source<'_>, lines: &mut Lines) {
    let changes = source.shared.monitor.keyspace_total(|counters| &counters.changes);
    let loading = source.shared.loading.progress();
    lines.add("loading", u8::from(loading.is_some()));
    lines.add_all(&["async_loading", "current_cow_peak", "current_cow_size", "current_cow_size_age"], 0);
    let (saving, last_save) = source.shared.background_save();
    let durability = &source.shared.durability;
    let (rewriting, rewrite) = {
        let rewriting = durability.rewriting();
        let state = (rewriting.scheduled, rewriting.last_took, rewriting.count, rewriting.failures);
        (rewriting.current.clone(), state)
    };
    let (done, total) = saving.as_ref().or(rewriting.as_ref()).map_or((0, 0), |progress| progress.keys());
    lines.add("current_fork_perc", format_args!("{:.2}", done as f64 * 100.0 / total.max(1) as f64));
    lines.add("current_save_keys_processed", done);
    lines.add("current_save_keys_total", total);
    let persistence = &source.shared.persistence;
    let saved = persistence.saved_changes.load(Relaxed);
    let seconds = |time: Option<Duration>| time.map_or(-1, |time| time.as_secs() as i64);
    let elapsed = |progress: &Option<Arc<Progress>>| progress.as_ref().map(|current| current.begun.elapsed());
    lines.add("rdb_changes_since_last_save", changes.saturating_sub(saved));
    lines.add("rdb_bgsave_in_progress", u8::from(saving.is_some()));
    lines.add("rdb_last_save_time", persistence.last_save_s.load(Relaxed));
    let status = if persistence.last_save_ok.load(Relaxed) { "ok" } else { "err" };
    lines.add("rdb_last_bgsave_status", status);
    lines.add("rdb_last_bgsave_time_sec", seconds(last_save));
    lines.add("rdb_current_bgsave_time_sec", seconds(elapsed(&saving)));
    lines.add("rdb_saves", persistence.saves.load(Relaxed));
    lines.add("rdb_last_cow_size", 0);
    lines.add("rdb_last_load_keys_expired", persistence.expired_keys.load(Relaxed));
    lines.add("rdb_last_load_keys_loaded", persistence.loaded_keys.load(Relaxed));
    let (scheduled, last_rewrite, rewrites, failures) = rewrite;
    lines.add("aof_enabled", u8::from(source.config.appendonly));
    lines.add("aof_rewrite_in_progress", u8::from(rewriting.is_some()));
    lines.add("aof_rewrite_scheduled", u8::from(scheduled));
    lines.add("aof_last_rewrite_time_sec", seconds(last_rewrite));
    lines.add("aof_current_rewrite_time_sec", seconds(elapsed(&rewriting)));
    lines.add("aof_last_bgrewrite_status", if failures == 0 { "ok" } else { "err" });
    lines.add("aof_rewrites", rewrites);
    lines.add("aof_rewrites_consecutive_failures", failures);
    let status = durability.status().clone();
    lines.add("aof_last_write_status", if status.write_error.is_none() { "ok" } else { "err" });
    lines.add_all(&["aof_last_cow_size", "module_fork_in_progress", "module_fork_last_cow_size"], 0);
    if source.config.appendonly {
        lines.add("aof_current_size", status.log_bytes);
        lines.add("aof_base_size", status.base_bytes);
        lines.add("aof_pending_rewrite", u8::from(scheduled));
        lines.add("aof_buffer_length", source.shared.durability.buffered_bytes());
        lines.add("aof_pending_bio_fsync", u8::from(status.syncing_since.is_some()));
        lines.add("aof_delayed_fsync", status.delayed_syncs_by_now());
    }
    if let Some(loading) = loading {
        lines.add("loading_start_time", loading.started_ms / 1000);
        lines.add("loading_total_bytes", loading.bytes_total);
        lines.add("loading_rdb_used_mem", 0);
        lines.add("loading_loaded_bytes", loading.bytes_loaded);
        lines.add("loading_loaded_perc", format_args!("{:.2}", loading.percent()));
        lines.add("loading_eta_seconds", loading.seconds_left(source.now_ms));
    }
}

pub(super) fn replication(source: &Source<'_>, lines: &mut Lines) {
    lines.add("role", "master");
    lines.add("connected_slaves", 0);
    lines.add("master_failover_state", "no-failover");
    lines.add("master_replid", source.shared.monitor.process.replication_id());
    lines.add("master_replid2", "0".repeat(40));
    lines.add("master_repl_offset", 0);
    lines.add("second_repl_offset", -1);
    lines.add_all(
        &[
            "repl_backlog_active",
            "repl_backlog_size",
            "repl_backlog_first_byte_offset",
            "repl_backlog_histlen",
        ],
        0,
    );
}
