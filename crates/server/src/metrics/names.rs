//! The names that rows of INFO have in `/metrics`.
//!
//! If redis_exporter (github.com/oliver006/redis_exporter) exports the line of that name, its name is taken, so that
//! dashboards and alerts made for it work. Every other row has a name by rule: `dunlin_`, the row's own, the unit in
//! full.

use std::borrow::Cow;

use crate::info::{Metric, Number, Read, Unit};

use super::exposition::Value;

/// Rows of INFO under redis_exporter's names, both in the order of INFO.
const OF_EXPORTER: &[(&str, &str)] = &[
    ("process_id", "redis_process_id"),
    ("uptime_in_seconds", "redis_uptime_in_seconds"),
    ("hz", "redis_hz"),
    ("configured_hz", "redis_configured_hz"),
    ("io_threads_active", "redis_io_threads_active"),
    ("connected_clients", "redis_connected_clients"),
    ("cluster_connections", "redis_cluster_connections"),
    ("maxclients", "redis_max_clients"),
    ("client_recent_max_input_buffer", "redis_client_recent_max_input_buffer_bytes"),
    ("client_recent_max_output_buffer", "redis_client_recent_max_output_buffer_bytes"),
    ("blocked_clients", "redis_blocked_clients"),
    ("tracking_clients", "redis_tracking_clients"),
    ("pubsub_clients", "redis_pubsub_clients"),
    ("watching_clients", "redis_watching_clients"),
    ("clients_in_timeout_table", "redis_clients_in_timeout_table"),
    ("total_watched_keys", "redis_total_watched_keys"),
    ("total_blocking_keys", "redis_total_blocking_keys"),
    ("total_blocking_keys_on_nokey", "redis_total_blocking_keys_on_nokey"),
    ("used_memory", "redis_memory_used_bytes"),
    ("used_memory_rss", "redis_memory_used_rss_bytes"),
    ("used_memory_peak", "redis_memory_used_peak_bytes"),
    ("used_memory_overhead", "redis_memory_used_overhead_bytes"),
    ("used_memory_startup", "redis_memory_used_startup_bytes"),
    ("used_memory_dataset", "redis_memory_used_dataset_bytes"),
    ("allocator_allocated", "redis_allocator_allocated_bytes"),
    ("allocator_active", "redis_allocator_active_bytes"),
    ("allocator_resident", "redis_allocator_resident_bytes"),
    ("total_system_memory", "redis_total_system_memory_bytes"),
    ("used_memory_lua", "redis_memory_used_lua_bytes"),
    ("used_memory_vm_eval", "redis_memory_used_vm_eval_bytes"),
    ("used_memory_scripts_eval", "redis_memory_used_scripts_eval_bytes"),
    ("number_of_cached_scripts", "redis_number_of_cached_scripts"),
    ("number_of_functions", "redis_number_of_functions"),
    ("number_of_libraries", "redis_number_of_libraries"),
    ("used_memory_vm_functions", "redis_memory_used_vm_functions_bytes"),
    ("used_memory_vm_total", "redis_memory_used_vm_total_bytes"),
    ("used_memory_functions", "redis_memory_used_functions_bytes"),
    ("used_memory_scripts", "redis_memory_used_scripts_bytes"),
    ("maxmemory", "redis_memory_max_bytes"),
    ("allocator_frag_ratio", "redis_allocator_frag_ratio"),
    ("allocator_frag_bytes", "redis_allocator_frag_bytes"),
    ("allocator_rss_ratio", "redis_allocator_rss_ratio"),
    ("allocator_rss_bytes", "redis_allocator_rss_bytes"),
    ("mem_fragmentation_ratio", "redis_mem_fragmentation_ratio"),
    ("mem_fragmentation_bytes", "redis_mem_fragmentation_bytes"),
    ("mem_not_counted_for_evict", "redis_mem_not_counted_for_eviction_bytes"),
    ("mem_total_replication_buffers", "redis_mem_total_replication_buffers_bytes"),
    ("mem_clients_slaves", "redis_mem_clients_slaves"),
    ("mem_clients_normal", "redis_mem_clients_normal"),
    ("active_defrag_running", "redis_active_defrag_running"),
    ("lazyfree_pending_objects", "redis_lazyfree_pending_objects"),
    ("loading", "redis_loading_dump_file"),
    ("async_loading", "redis_async_loading"),
    ("rdb_changes_since_last_save", "redis_rdb_changes_since_last_save"),
    ("rdb_bgsave_in_progress", "redis_rdb_bgsave_in_progress"),
    ("rdb_last_save_time", "redis_rdb_last_save_timestamp_seconds"),
    ("rdb_last_bgsave_status", "redis_rdb_last_bgsave_status"),
    ("rdb_last_bgsave_time_sec", "redis_rdb_last_bgsave_duration_sec"),
    ("rdb_current_bgsave_time_sec", "redis_rdb_current_bgsave_duration_sec"),
    ("rdb_saves", "redis_rdb_saves_total"),
    ("rdb_last_cow_size", "redis_rdb_last_cow_size_bytes"),
    ("rdb_last_load_keys_expired", "redis_rdb_last_load_expired_keys"),
    ("rdb_last_load_keys_loaded", "redis_rdb_last_load_loaded_keys"),
    ("aof_enabled", "redis_aof_enabled"),
    ("aof_rewrite_in_progress", "redis_aof_rewrite_in_progress"),
    ("aof_rewrite_scheduled", "redis_aof_rewrite_scheduled"),
    ("aof_last_rewrite_time_sec", "redis_aof_last_rewrite_duration_sec"),
    ("aof_current_rewrite_time_sec", "redis_aof_current_rewrite_duration_sec"),
    ("aof_last_bgrewrite_status", "redis_aof_last_bgrewrite_status"),
    ("aof_last_write_status", "redis_aof_last_write_status"),
    ("aof_last_cow_size", "redis_aof_last_cow_size_bytes"),
    ("module_fork_in_progress", "redis_module_fork_in_progress"),
    ("module_fork_last_cow_size", "redis_module_fork_last_cow_size"),
    ("aof_current_size", "redis_aof_current_size_bytes"),
    ("aof_base_size", "redis_aof_base_size_bytes"),
    ("aof_pending_rewrite", "redis_aof_pending_rewrite"),
    ("aof_buffer_length", "redis_aof_buffer_length"),
    ("aof_pending_bio_fsync", "redis_aof_pending_bio_fsync"),
    ("aof_delayed_fsync", "redis_aof_delayed_fsync"),
    ("total_connections_received", "redis_connections_received_total"),
    ("total_commands_processed", "redis_commands_processed_total"),
    ("instantaneous_ops_per_sec", "redis_instantaneous_ops_per_sec"),
    ("total_net_input_bytes", "redis_net_input_bytes_total"),
    ("total_net_output_bytes", "redis_net_output_bytes_total"),
    ("total_net_repl_input_bytes", "redis_net_repl_input_bytes_total"),
    ("total_net_repl_output_bytes", "redis_net_repl_output_bytes_total"),
    ("rejected_connections", "redis_rejected_connections_total"),
    ("sync_full", "redis_replica_resyncs_full"),
    ("sync_partial_ok", "redis_replica_partial_resync_accepted"),
    ("sync_partial_err", "redis_replica_partial_resync_denied"),
    ("expired_keys", "redis_expired_keys_total"),
    ("expired_stale_perc", "redis_expired_stale_percentage"),
    ("expired_time_cap_reached_count", "redis_expired_time_cap_reached_total"),
    ("expire_cycle_cpu_milliseconds", "redis_expire_cycle_cpu_time_ms_total"),
    ("evicted_keys", "redis_evicted_keys_total"),
    ("evicted_clients", "redis_evicted_clients_total"),
    ("total_eviction_exceeded_time", "redis_eviction_exceeded_time_ms_total"),
    ("current_eviction_exceeded_time", "redis_current_eviction_exceeded_time_ms"),
    ("keyspace_hits", "redis_keyspace_hits_total"),
    ("keyspace_misses", "redis_keyspace_misses_total"),
    ("pubsub_channels", "redis_pubsub_channels"),
    ("pubsub_patterns", "redis_pubsub_patterns"),
    ("pubsubshard_channels", "redis_pubsubshard_channels"),
    ("latest_fork_usec", "redis_latest_fork_usec"),
    ("slave_expires_tracked_keys", "redis_slave_expires_tracked_keys"),
    ("active_defrag_hits", "redis_defrag_hits"),
    ("active_defrag_misses", "redis_defrag_misses"),
    ("active_defrag_key_hits", "redis_defrag_key_hits"),
    ("active_defrag_key_misses", "redis_defrag_key_misses"),
    ("tracking_total_keys", "redis_tracking_total_keys"),
    ("tracking_total_items", "redis_tracking_total_items"),
    ("tracking_total_prefixes", "redis_tracking_total_prefixes"),
    ("unexpected_error_replies", "redis_unexpected_error_replies"),
    ("total_error_replies", "redis_total_error_replies"),
    ("dump_payload_sanitizations", "redis_dump_payload_sanitizations"),
    ("total_reads_processed", "redis_total_reads_processed"),
    ("total_writes_processed", "redis_total_writes_processed"),
    ("io_threaded_reads_processed", "redis_io_threaded_reads_processed"),
    ("io_threaded_writes_processed", "redis_io_threaded_writes_processed"),
    ("client_query_buffer_limit_disconnections", "redis_client_query_buffer_limit_disconnections_total"),
    ("client_output_buffer_limit_disconnections", "redis_client_output_buffer_limit_disconnections_total"),
    ("reply_buffer_shrinks", "redis_reply_buffer_shrinks_total"),
    ("reply_buffer_expands", "redis_reply_buffer_expands_total"),
    ("acl_access_denied_auth", "redis_acl_access_denied_auth_total"),
    ("acl_access_denied_cmd", "redis_acl_access_denied_cmd_total"),
    ("acl_access_denied_key", "redis_acl_access_denied_key_total"),
    ("acl_access_denied_channel", "redis_acl_access_denied_channel_total"),
    ("master_link_status", "redis_master_link_up"),
    ("master_last_io_seconds_ago", "redis_master_last_io_seconds_ago"),
    ("master_sync_in_progress", "redis_master_sync_in_progress"),
    ("slave_repl_offset", "redis_slave_repl_offset"),
    ("slave_priority", "redis_slave_priority"),
    ("connected_slaves", "redis_connected_slaves"),
    ("master_repl_offset", "redis_master_repl_offset"),
    ("second_repl_offset", "redis_second_repl_offset"),
    ("repl_backlog_active", "redis_repl_backlog_is_active"),
    ("repl_backlog_size", "redis_replication_backlog_bytes"),
    ("repl_backlog_first_byte_offset", "redis_repl_backlog_first_byte_offset"),
    ("repl_backlog_histlen", "redis_repl_backlog_history_bytes"),
    ("used_cpu_sys", "redis_cpu_sys_seconds_total"),
    ("used_cpu_user", "redis_cpu_user_seconds_total"),
    ("used_cpu_sys_children", "redis_cpu_sys_children_seconds_total"),
    ("used_cpu_user_children", "redis_cpu_user_children_seconds_total"),
    ("used_cpu_sys_main_thread", "redis_cpu_sys_main_thread_seconds_total"),
    ("used_cpu_user_main_thread", "redis_cpu_user_main_thread_seconds_total"),
    ("cluster_enabled", "redis_cluster_enabled"),
];

/// Rows about the link to the primary: their samples have its host and port as labels.
pub(super) const OF_PRIMARY: &[&str] =
    &["master_link_status", "master_last_io_seconds_ago", "master_sync_in_progress", "slave_repl_offset"];

/// Rows that no series is worth.
const LEFT_OUT: &[&str] = &[
    // The port is a label of redis_instance_info; these do not change, or are the time itself.
    "arch_bits",
    "tcp_port",
    "server_time_usec",
    "lru_clock",
    "uptime_in_days",
    // A rate of a counter that has a series.
    "instantaneous_eventloop_cycles_per_sec",
    // Labels of the series of the primary.
    "master_port",
];

/// How a row is exported.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Export {
    pub(super) name: Cow<'static, str>,
    /// The factor from the row's unit to the metric's.
    pub(super) scale: f64,
}

impl Export {
    /// The row's number in the unit of the metric.
    pub(super) fn value(&self, number: Number) -> Value {
        match number {
            Number::Integer(value) if self.scale == 1.0 => Value::Integer(value),
            Number::Integer(value) => Value::Decimal(value as f64 * self.scale),
            Number::Decimal(value, _) | Number::Percent(value) => Value::Decimal(value * self.scale),
        }
    }
}

/// How a row is exported; `None` if it is not.
pub(super) fn export_of(metric: &Metric) -> Option<Export> {
    if let Some((_, name)) = OF_EXPORTER.iter().find(|(row, _)| *row == metric.name) {
        return Some(Export { name: Cow::Borrowed(name), scale: 1.0 });
    }
    if LEFT_OUT.contains(&metric.name) {
        return None;
    }
    match metric.read {
        Read::Counter { .. } => Some(by_rule(metric.name, metric.unit, true)),
        Read::Gauge(_) => Some(by_rule(metric.name, metric.unit, false)),
        Read::Text(_) | Read::Always(_) => None,
    }
}

/// The name of a row that redis_exporter does not know: the unit is a base unit and stands at the end.
pub(super) fn by_rule(row: &str, unit: Unit, is_count: bool) -> Export {
    let (endings, ending, scale): (&[&str], &str, f64) = match unit {
        Unit::Count | Unit::Flag | Unit::PerSecond => (&[], "", 1.0),
        Unit::Bytes => (&["_bytes"], "_bytes", 1.0),
        Unit::KilobytesPerSecond => (&["_kbps"], "_bytes_per_second", 1024.0),
        Unit::Days => (&["_in_days"], "_seconds", 86_400.0),
        Unit::Seconds => (&["_in_seconds", "_seconds", "_sec"], "_seconds", 1.0),
        Unit::Milliseconds => (&["_milliseconds", "_ms"], "_seconds", 1e-3),
        Unit::Microseconds => (&["_usec", "_us"], "_seconds", 1e-6),
        Unit::UnixSeconds => (&["_time"], "_timestamp_seconds", 1.0),
        Unit::UnixMicroseconds => (&["_time_usec"], "_timestamp_seconds", 1e-6),
        Unit::Percent => (&["_perc"], "_ratio", 0.01),
        Unit::Ratio => (&["_ratio"], "_ratio", 1.0),
    };
    let stem = endings.iter().find_map(|ending| row.strip_suffix(ending)).unwrap_or(row).replace('-', "_");
    let total = if is_count { "_total" } else { "" };
    let stem = if is_count { stem.strip_prefix("total_").unwrap_or(&stem) } else { &stem };
    Export { name: Cow::Owned(format!("dunlin_{stem}{ending}{total}")), scale }
}

/// The number of a row of text that says whether something is as it should be.
pub(super) fn number_of_text(text: &str) -> Option<Number> {
    match text {
        "ok" | "up" => Some(Number::Integer(1)),
        "err" | "down" => Some(Number::Integer(0)),
        text => text.parse().ok().map(|value| Number::Decimal(value, 0)),
    }
}

/// A field of a family of lines, as a metric.
#[derive(Debug, Clone, Copy)]
pub(super) struct FieldExport {
    /// The field's name in INFO.
    pub(super) field: &'static str,
    pub(super) name: &'static str,
    pub(super) scale: f64,
}

/// How a family of lines of INFO is exported.
#[derive(Debug, Clone, Copy)]
pub(super) struct FamilyExport {
    /// The beginning of the lines' names.
    pub(super) prefix: &'static str,
    /// The label that has the rest of the name.
    pub(super) label: &'static str,
    /// The text before it there.
    pub(super) label_prefix: &'static str,
    /// Empty if `metrics/commands.rs` exports the family.
    pub(super) fields: &'static [FieldExport],
}

const fn field(field: &'static str, name: &'static str, scale: f64) -> FieldExport {
    FieldExport { field, name, scale }
}

/// Every family of lines of INFO.
pub(super) const FAMILIES: &[FamilyExport] = &[
    FamilyExport { prefix: "cmdstat_", label: "cmd", label_prefix: "", fields: &[] },
    FamilyExport { prefix: "latency_percentiles_usec_", label: "cmd", label_prefix: "", fields: &[] },
    // As a histogram: `write_stages`.
    FamilyExport { prefix: "latency_stage_usec_", label: "stage", label_prefix: "", fields: &[] },
    FamilyExport {
        prefix: "errorstat_",
        label: "err",
        label_prefix: "",
        fields: &[field("count", "redis_errors_total", 1.0)],
    },
    FamilyExport {
        prefix: "db",
        label: "db",
        label_prefix: "db",
        fields: &[
            field("keys", "redis_db_keys", 1.0),
            field("expires", "redis_db_keys_expiring", 1.0),
            field("avg_ttl", "redis_db_avg_ttl_seconds", 1e-3),
        ],
    },
    FamilyExport {
        prefix: "db_maxmemory_",
        label: "db",
        label_prefix: "db",
        fields: &[
            field("limit", "dunlin_db_maxmemory_bytes", 1.0),
            field("used", "dunlin_db_used_bytes", 1.0),
            field("evicted", "dunlin_db_evicted_keys_total", 1.0),
        ],
    },
    FamilyExport {
        prefix: "used_cpu_worker_",
        label: "worker",
        label_prefix: "",
        fields: &[
            field("sys", "dunlin_worker_cpu_sys_seconds_total", 1.0),
            field("user", "dunlin_worker_cpu_user_seconds_total", 1.0),
        ],
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::info::{Row, rows};

    #[test]
    fn metrics_name_only_rows_that_are_there() {
        let names: BTreeSet<_> = rows()
            .filter_map(|row| match row {
                Row::One(metric) => Some(metric.name),
                _ => None,
            })
            .collect();
        let named = OF_EXPORTER.iter().map(|(row, _)| row).chain(OF_PRIMARY).chain(LEFT_OUT);
        for row in named {
            assert!(names.contains(row), "INFO has no row {row}");
        }
    }

    #[test]
    fn metrics_have_every_family_of_info() {
        for row in rows() {
            let Row::Each(family) = row else { continue };
            let export = FAMILIES.iter().find(|export| export.prefix == family.prefix);
            let export = export.unwrap_or_else(|| panic!("{} has no name in /metrics", family.prefix));
            for field in export.fields {
                assert!(family.fields.iter().any(|(name, ..)| *name == field.field), "{}", field.field);
            }
        }
    }

    #[test]
    fn names_by_rule_end_with_their_unit() {
        for (row, unit, is_count, name, scale) in [
            ("worker_threads", Unit::Count, false, "dunlin_worker_threads", 1.0),
            ("eventloop_cycles", Unit::Count, true, "dunlin_eventloop_cycles_total", 1.0),
            ("total_forks", Unit::Count, true, "dunlin_forks_total", 1.0),
            ("aof_size", Unit::Bytes, false, "dunlin_aof_size_bytes", 1.0),
            ("used_memory_peak_perc", Unit::Percent, false, "dunlin_used_memory_peak_ratio", 0.01),
            ("used-memory", Unit::Bytes, false, "dunlin_used_memory_bytes", 1.0),
            (
                "instantaneous_input_kbps",
                Unit::KilobytesPerSecond,
                false,
                "dunlin_instantaneous_input_bytes_per_second",
                1024.0,
            ),
            ("loading_start_time", Unit::UnixSeconds, false, "dunlin_loading_start_timestamp_seconds", 1.0),
        ] {
            assert_eq!(by_rule(row, unit, is_count), Export { name: name.into(), scale });
        }
    }
}
