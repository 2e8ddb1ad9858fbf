//! What goes on: clients, counts since the start, processor time.

use std::time::{Duration, Instant};

use super::{Lines, Source};
use crate::{net::OutputClass, process::ProcessorTime, pubsub::Kind, session::ClientFlags};

pub(super) fn clients(source: &Source<'_>, lines: &mut Lines) {
    let monitor = &source.shared.monitor;
    let clients = monitor.clients().map(|clients| clients.list()).unwrap_or_default();
    let largest = |size: fn(&crate::net::Client) -> u64| clients.iter().map(|client| size(client)).max();
    lines.add("connected_clients", monitor.clients().map_or(0, |clients| clients.connected()));
    lines.add("cluster_connections", 0);
    lines.add("maxclients", source.config.maxclients);
    lines.add(
        "client_recent_max_input_buffer",
        largest(|client| client.query_buffer_bytes.get()).unwrap_or(0),
    );
    lines.add("client_recent_max_output_buffer", largest(|client| client.waiting_bytes()).unwrap_or(0));
    let count = |is: fn(&crate::net::Client) -> bool| clients.iter().filter(|client| is(client)).count();
    lines.add("blocked_clients", count(|client| ClientFlags::of(client).has(ClientFlags::BLOCKED)));
    lines.add("tracking_clients", source.shared.trackers.clients());
    lines.add("pubsub_clients", count(|client| client.output_class() == OutputClass::Pubsub));
    lines.add("watching_clients", count(|client| client.watched_keys.get() > 0));
    lines.add("clients_in_timeout_table", 0);
    lines.add("total_watched_keys", clients.iter().map(|client| client.watched_keys.get()).sum::<u64>());
    let blocking = source.shared.engine.blocking_keys();
    lines.add("total_blocking_keys", blocking.keys);
    lines.add("total_blocking_keys_on_nokey", blocking.on_loss);
}

pub(super) fn stats(source: &Source<'_>, lines: &mut Lines) {
    let monitor = &source.shared.monitor;
    let (moved, rates) = (monitor.moved(), monitor.rates());
    let kilobytes = |bytes: f64| format!("{:.2}", bytes / 1024.0);
    let of_workers = |counter: fn(&crate::statistics::WorkerStatistics) -> &dunlin_engine::Counter| {
        monitor.workers.iter().map(|worker| counter(worker).get()).sum::<u64>()
    };
    lines.add("total_connections_received", moved.connections_received);
    lines.add("total_commands_processed", monitor.commands_processed());
    lines.add("instantaneous_ops_per_sec", rates.commands.round() as u64);
    lines.add("total_net_input_bytes", moved.input_bytes);
    lines.add("total_net_output_bytes", moved.output_bytes);
    lines.add_all(&["total_net_repl_input_bytes", "total_net_repl_output_bytes"], 0);
    lines.add("instantaneous_input_kbps", kilobytes(rates.input_bytes));
    lines.add("instantaneous_output_kbps", kilobytes(rates.output_bytes));
    lines.add_all(&["instantaneous_input_repl_kbps", "instantaneous_output_repl_kbps"], "0.00");
    lines.add("rejected_connections", moved.connections_rejected);
    lines.add_all(&["sync_full", "sync_partial_ok", "sync_partial_err"], 0);
    lines.add("expired_keys", monitor.keyspace_total(|counters| &counters.expired_keys));
    lines.add("expired_fields", monitor.keyspace_total(|counters| &counters.expired_fields));
    // What is due is known, not sampled: nothing stale is left behind by a finished round.
    lines.add("expired_stale_perc", "0.00");
    lines.add("expired_time_cap_reached_count", of_workers(|worker| &worker.expiry_caps));
    lines.add("expire_cycle_cpu_milliseconds", of_workers(|worker| &worker.expiry_us) / 1000);
    lines.add_all(
        &[
            "evicted_keys",
            "evicted_clients",
            "total_eviction_exceeded_time",
            "current_eviction_exceeded_time",
        ],
        0,
    );
    lines.add("keyspace_hits", monitor.keyspace_total(|counters| &counters.keyspace_hits));
    lines.add("keyspace_misses", monitor.keyspace_total(|counters| &counters.keyspace_misses));
    let exchange = &source.shared.exchange;
    lines.add("pubsub_channels", exchange.count(Kind::Channel));
    lines.add("pubsub_patterns", exchange.count(Kind::Pattern));
    lines.add("pubsubshard_channels", exchange.count(Kind::ShardChannel));
    lines.add_all(
        &[
            "latest_fork_usec",
            "total_forks",
            "migrate_cached_sockets",
            "slave_expires_tracked_keys",
            "active_defrag_hits",
            "active_defrag_misses",
            "active_defrag_key_hits",
            "active_defrag_key_misses",
            "total_active_defrag_time",
            "current_active_defrag_time",
        ],
        0,
    );
    let (tracked_keys, tracked_readers) = source.shared.engine.keyspace.tracked();
    lines.add("tracking_total_keys", tracked_keys);
    lines.add("tracking_total_items", tracked_readers);
    lines.add("tracking_total_prefixes", source.shared.trackers.prefixes());
    lines.add("unexpected_error_replies", 0);
    lines.add("total_error_replies", of_workers(|worker| &worker.errors.total));
    lines.add("dump_payload_sanitizations", 0);
    lines.add("total_reads_processed", moved.reads);
    lines.add("total_writes_processed", moved.writes);
    lines.add_all(&["io_threaded_reads_processed", "io_threaded_writes_processed"], 0);
    lines.add("client_query_buffer_limit_disconnections", moved.query_buffer_disconnections);
    lines.add("client_output_buffer_limit_disconnections", moved.output_buffer_disconnections);
    lines.add_all(&["reply_buffer_shrinks", "reply_buffer_expands"], 0);
    lines.add("eventloop_cycles", moved.ticks);
}

/// The names have hyphens in Redis 8.6, too.
pub(super) fn hot_keys(source: &Source<'_>, lines: &mut Lines) {
    let Some(session) = source.shared.hot_keys.session() else { return };
    lines.add("tracking-active", u8::from(session.is_active(Instant::now())));
    lines.add("used-memory", session.used_bytes());
    // Redis adds up the whole milliseconds that each update of its tables takes, which come to none.
    lines.add("cpu-time", 0);
}

pub(super) fn cpu(source: &Source<'_>, lines: &mut Lines) {
    let seconds = |time: Duration| format!("{:.6}", time.as_secs_f64());
    let process = ProcessorTime::of_process();
    lines.add("used_cpu_sys", seconds(process.system));
    lines.add("used_cpu_user", seconds(process.user));
    lines.add_all(&["used_cpu_sys_children", "used_cpu_user_children"], "0.000000");
    let workers = &source.shared.monitor.workers;
    let of_worker = |index: usize| {
        let worker = &workers[index];
        let micros = |counter: &dunlin_engine::Counter| seconds(Duration::from_micros(counter.get()));
        (micros(&worker.system_us), micros(&worker.user_us))
    };
    // There is no main thread that executes commands; the first worker is the nearest to it.
    let (system, user) = of_worker(0);
    lines.add("used_cpu_sys_main_thread", system);
    lines.add("used_cpu_user_main_thread", user);
    for index in 0..workers.len() {
        let (system, user) = of_worker(index);
        lines.add(format_args!("used_cpu_worker_{index}"), format_args!("sys={system},user={user}"));
    }
}
