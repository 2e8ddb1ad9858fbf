//! Counts of what clients, the network and the keyspace did.

use dunlin_acl::Reason;
use dunlin_net::Now;

use super::{
    Reading,
    metric::{Metric, Number, Row, Unit},
};
use crate::push::pubsub::Kind;
use std::sync::atomic::Ordering::Relaxed;

/// A count since the last reset.
const fn counter(name: &'static str, summary: &'static str, read: fn(&Reading<'_>) -> u64) -> Row {
    Row::One(Metric::resettable(name, Unit::Count, summary, read))
}

const fn count(name: &'static str, summary: &'static str, read: fn(&Reading<'_>) -> Number) -> Row {
    Row::One(Metric::gauge(name, Unit::Count, summary, read))
}

/// A number that is 0 always.
const fn none(name: &'static str, summary: &'static str) -> Row {
    Row::One(Metric::none(name, summary))
}

pub(super) const ROWS: &[Row] = &[
    counter("total_connections_received", "Connections accepted.", |reading| {
        reading.traffic().connections_received
    }),
    counter("total_commands_processed", "Commands executed.", |reading| {
        reading.shared.stats.commands_processed()
    }),
    Row::One(Metric::gauge(
        "instantaneous_ops_per_sec",
        Unit::PerSecond,
        "Commands executed, on average of the last 1.6 seconds.",
        |reading| (reading.rates().commands.round() as u64).into(),
    )),
    Row::One(Metric::resettable(
        "total_net_input_bytes",
        Unit::Bytes,
        "Bytes read from clients and from the primary.",
        |reading| reading.traffic().input_bytes,
    )),
    Row::One(Metric::resettable(
        "total_net_output_bytes",
        Unit::Bytes,
        "Bytes sent to clients, replicas and the primary.",
        |reading| reading.traffic().output_bytes,
    )),
    Row::One(Metric::resettable(
        "total_net_repl_input_bytes",
        Unit::Bytes,
        "Of these, bytes read from the primary, with its snapshots.",
        |reading| reading.traffic().link_input_bytes,
    )),
    Row::One(Metric::resettable(
        "total_net_repl_output_bytes",
        Unit::Bytes,
        "Of these, bytes sent to replicas, with their snapshots.",
        |reading| reading.traffic().link_output_bytes,
    )),
    Row::One(Metric::gauge(
        "instantaneous_input_kbps",
        Unit::KilobytesPerSecond,
        "Read from clients and from the primary, on average of the last 1.6 seconds.",
        |reading| kilobytes(reading.rates().input_bytes),
    )),
    Row::One(Metric::gauge(
        "instantaneous_output_kbps",
        Unit::KilobytesPerSecond,
        "Sent to clients, replicas and the primary, on average of the last 1.6 seconds.",
        |reading| kilobytes(reading.rates().output_bytes),
    )),
    Row::One(Metric::gauge(
        "instantaneous_input_repl_kbps",
        Unit::KilobytesPerSecond,
        "Read from the primary, on average of the last 1.6 seconds.",
        |reading| kilobytes(reading.rates().link_input_bytes),
    )),
    Row::One(Metric::gauge(
        "instantaneous_output_repl_kbps",
        Unit::KilobytesPerSecond,
        "Sent to replicas, on average of the last 1.6 seconds.",
        |reading| kilobytes(reading.rates().link_output_bytes),
    )),
    counter("rejected_connections", "Connections refused because of `maxclients`.", |reading| {
        reading.traffic().connections_rejected
    }),
    counter("sync_full", "Full resynchronisations of replicas.", |reading| {
        reading.shared.replication.syncs.full.load(Relaxed)
    }),
    counter("sync_partial_ok", "Partial resynchronisations of replicas.", |reading| {
        reading.shared.replication.syncs.partial_ok.load(Relaxed)
    }),
    counter(
        "sync_partial_err",
        "Partial resynchronisations that were refused, so that a full one followed.",
        |reading| reading.shared.replication.syncs.partial_refused.load(Relaxed),
    ),
    counter("expired_keys", "Keys removed because their time had come.", |reading| {
        reading.of_keyspace(|counters| &counters.expired_keys)
    }),
    counter("expired_fields", "Fields of hashes removed because their time had come.", |reading| {
        reading.of_keyspace(|counters| &counters.expired_fields)
    }),
    // Keys that are due are known, not sampled: a finished round leaves none behind.
    Row::One(Metric::always("expired_stale_perc", "0.00", "Expired keys that are still there: none stay.")),
    counter("expired_time_cap_reached_count", "Rounds of expiry that ran out of their time.", |reading| {
        reading.of_workers(|worker| &worker.expiry_caps)
    }),
    Row::One(Metric::resettable(
        "expire_cycle_cpu_milliseconds",
        Unit::Milliseconds,
        "Time that rounds of expiry took.",
        |reading| reading.of_workers(|worker| &worker.expiry_us) / 1000,
    )),
    counter("evicted_keys", "Keys removed to stay below `maxmemory`.", |reading| {
        reading.of_keyspace(|counters| &counters.evicted_keys)
    }),
    counter("evicted_clients", "Clients closed because of `maxmemory-clients`.", |reading| {
        reading.shared.stats.evicted_clients.load(Relaxed)
    }),
    Row::One(Metric::resettable(
        "total_eviction_exceeded_time",
        Unit::Milliseconds,
        "Time with more memory in use than `maxmemory`.",
        |reading| reading.shared.stats.eviction.total_ms(Now::read().steady_ms),
    )),
    Row::One(Metric::gauge(
        "current_eviction_exceeded_time",
        Unit::Milliseconds,
        "How long more memory than `maxmemory` has been in use, if it is.",
        |reading| reading.shared.stats.eviction.current_ms(reading.now_ms).into(),
    )),
    counter("keyspace_hits", "Reads that found their key.", |reading| {
        reading.of_keyspace(|counters| &counters.keyspace_hits)
    }),
    counter("keyspace_misses", "Reads that found no key.", |reading| {
        reading.of_keyspace(|counters| &counters.keyspace_misses)
    }),
    count("pubsub_channels", "Channels with subscribers.", |reading| {
        reading.shared.exchange.count(Kind::Channel).into()
    }),
    count("pubsub_patterns", "Patterns with subscribers.", |reading| {
        reading.shared.exchange.count(Kind::Pattern).into()
    }),
    count("pubsubshard_channels", "Shard channels with subscribers.", |reading| {
        reading.shared.exchange.count(Kind::ShardChannel).into()
    }),
    none("latest_fork_usec", "How long the last fork took: none forks here."),
    none("total_forks", "Forks of the process: none forks here."),
    count("migrate_cached_sockets", "Idle connections of MIGRATE.", |reading| {
        reading.shared.replication.idle_migrations().into()
    }),
    count(
        "slave_expires_tracked_keys",
        "Keys with an expiry that clients have written on this replica, which expires them itself.",
        |reading| reading.shared.engine.keyspace.own_expiring_keys().into(),
    ),
    counter("active_defrag_hits", "Entries moved against fragmentation.", |reading| {
        reading.of_keyspace(|counters| &counters.moved_entries)
    }),
    counter("active_defrag_misses", "Entries looked at and left where they were.", |reading| {
        reading.of_keyspace(|counters| &counters.left_entries)
    }),
    counter(
        "active_defrag_key_hits",
        "As `active_defrag_hits`: a key and its value are one entry.",
        |reading| reading.of_keyspace(|counters| &counters.moved_entries),
    ),
    counter("active_defrag_key_misses", "As `active_defrag_misses`.", |reading| {
        reading.of_keyspace(|counters| &counters.left_entries)
    }),
    Row::One(Metric::resettable(
        "total_active_defrag_time",
        Unit::Milliseconds,
        "Time with enough fragmentation for entries to be moved.",
        |reading| reading.shared.stats.defragmentation.times.total_ms(Now::read().steady_ms),
    )),
    Row::One(Metric::gauge(
        "current_active_defrag_time",
        Unit::Milliseconds,
        "How long that has been so, if it is.",
        |reading| reading.shared.stats.defragmentation.times.current_ms(reading.now_ms).into(),
    )),
    count("tracking_total_keys", "Keys that clients cache.", |reading| {
        reading.shared.engine.keyspace.tracked().0.into()
    }),
    count("tracking_total_items", "Keys that clients cache, counted once for each client.", |reading| {
        reading.shared.engine.keyspace.tracked().1.into()
    }),
    count("tracking_total_prefixes", "Prefixes that clients follow in mode BCAST.", |reading| {
        reading.shared.trackers.prefixes().into()
    }),
    counter("unexpected_error_replies", "Commands of the primary's stream that failed here.", |reading| {
        reading.shared.stats.workers[reading.shared.workers].errors.total.get()
    }),
    counter("total_error_replies", "Commands that were refused or failed.", |reading| {
        reading.of_workers(|worker| &worker.errors.total)
    }),
    none("dump_payload_sanitizations", "Deep checks of payloads of RESTORE: each is checked, none counted."),
    counter("total_reads_processed", "Reads from sockets.", |reading| reading.traffic().reads),
    counter("total_writes_processed", "Writes to sockets.", |reading| reading.traffic().writes),
    none("io_threaded_reads_processed", "Reads by threads that only read and write: there are none."),
    none("io_threaded_writes_processed", "Writes by threads that only read and write: there are none."),
    counter(
        "client_query_buffer_limit_disconnections",
        "Clients closed because of `client-query-buffer-limit`.",
        |reading| reading.traffic().query_buffer_disconnections,
    ),
    counter(
        "client_output_buffer_limit_disconnections",
        "Clients closed because of `client-output-buffer-limit`.",
        |reading| reading.traffic().output_buffer_disconnections,
    ),
    none("reply_buffer_shrinks", "Reply buffers made smaller: not counted."),
    none("reply_buffer_expands", "Reply buffers made larger: not counted."),
    counter("eventloop_cycles", "Turns of all event loops.", |reading| reading.traffic().ticks),
    Row::One(Metric::resettable(
        "eventloop_duration_sum",
        Unit::Microseconds,
        "Time that turns of all event loops took, without the waits between them.",
        |reading| reading.traffic().tick_ns / 1000,
    )),
    Row::One(Metric::resettable(
        "eventloop_duration_cmd_sum",
        Unit::Microseconds,
        "Time that commands of clients took, in event loops or offloaded.",
        |reading| reading.shared.stats.commands_ns() / 1000,
    )),
    Row::One(Metric::gauge(
        "instantaneous_eventloop_cycles_per_sec",
        Unit::PerSecond,
        "Turns of all event loops, on average of the last 1.6 seconds.",
        |reading| (reading.rates().ticks.round() as u64).into(),
    )),
    Row::One(Metric::gauge(
        "instantaneous_eventloop_duration_usec",
        Unit::Microseconds,
        "Time that a turn took, on average of the last 1.6 seconds.",
        |reading| {
            let rates = reading.rates();
            let ns = if rates.ticks > 0.0 { rates.tick_ns / rates.ticks } else { 0.0 };
            ((ns / 1000.0).round() as u64).into()
        },
    )),
    counter("acl_access_denied_auth", "Attempts to authenticate that failed.", |reading| {
        reading.shared.access.denied(Reason::Authentication)
    }),
    counter("acl_access_denied_cmd", "Commands that users may not run.", |reading| {
        reading.shared.access.denied(Reason::Command)
    }),
    counter("acl_access_denied_key", "Commands on keys that users may not use.", |reading| {
        reading.shared.access.denied(Reason::Key)
    }),
    counter("acl_access_denied_channel", "Commands on channels that users may not use.", |reading| {
        reading.shared.access.denied(Reason::Channel)
    }),
    counter("acl_access_denied_db", "Commands in databases that users may not use.", |reading| {
        reading.shared.access.denied(Reason::Database)
    }),
    counter("acl_access_denied_tls_cert", "Certificates of clients that name no enabled user.", |reading| {
        reading.shared.access.denied(Reason::Certificate)
    }),
    counter(
        "acl_auth_delayed",
        "Attempts to authenticate that had to wait, behind many failures.",
        |reading| reading.shared.access.failures.delayed(),
    ),
    count(
        "module_commands_passed_over",
        "Commands of modules that are not here, in a primary's stream or in the log that was made of one, since the data set was loaded.",
        |reading| reading.shared.module_commands.passed_over.load(Relaxed).into(),
    ),
    count(
        "module_values_stale",
        "Kept values of modules that such commands have named and that are stale since, each counted once.",
        |reading| reading.shared.module_commands.stale.load(Relaxed).into(),
    ),
];

fn kilobytes(bytes: f64) -> Number {
    Number::Decimal(bytes / 1024.0, 2)
}
