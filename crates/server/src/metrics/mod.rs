//! `GET /metrics`: the rows of INFO as series for Prometheus, and what INFO has no row for.
//!
//! ```text
//! rows of INFO ─▶ names.rs: redis_exporter's name, or one by rule ─┐
//! counters of commands ─▶ commands.rs: counts, histograms ─────────┼▶ exposition.rs: text or OpenMetrics
//! users, replicas, slow log, latency events, log syncs ────────────┘
//! ```
//!
//! A row that is added to INFO is exported without further ado. Counters count from the start: `CONFIG RESETSTAT` sets only
//! those of commands and errors to zero. docs/metrics.md lists all metrics; a test writes it from the same tables.

mod commands;
mod exposition;
mod names;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Instant};

use dunlin_replication::Phase;

pub(crate) use self::exposition::Format;
use self::{
    exposition::{Exposition, Kind, Value},
    names::{FAMILIES, FamilyExport, OF_PRIMARY, export_of, number_of_text},
};
use crate::{
    info::{Family, Metric, Number, REDIS_VERSION, Read, Reading, Row, shown_rows},
    observe::{command_log::LogKind, latency},
    system::host::unix_us,
};

/// Users that have series of their own; the others share the name "".
const USERS_MAX: usize = 100;

/// The answer to a scrape.
pub(crate) fn render(reading: &Reading<'_>, format: Format) -> String {
    let begun = Instant::now();
    let mut out = Exposition::new(format);
    write_instance(reading, &mut out);
    for row in shown_rows(reading) {
        match row {
            Row::One(metric) => write_metric(metric, reading, &mut out),
            Row::Each(family) => write_family(family, reading, &mut out),
            // Lines of replicas: `write_replicas`.
            Row::Texts(_) => {}
        }
    }
    commands::write(reading, &mut out);
    write_stages(reading, &mut out);
    write_log_syncs(reading, &mut out);
    write_replicas(reading, &mut out);
    write_users(reading, &mut out);
    write_logs(reading, &mut out);
    let help = "How long this answer took to write.";
    out.single("dunlin_scrape_duration_seconds", help, begun.elapsed().as_secs_f64());
    out.finish()
}

fn write_instance(reading: &Reading<'_>, out: &mut Exposition) {
    let (config, process) = (reading.config, &reading.shared.stats.process);
    out.single("redis_up", "1: the server answers.", 1_u64);
    let (port, process_id) = (config.port.to_string(), std::process::id().to_string());
    let is_replica = reading.shared.replication.is_replica();
    let history = reading.shared.replication.history().id.to_string();
    out.begin("redis_instance_info", Kind::Gauge, "Facts about the server as labels; always 1.");
    let labels = [
        ("role", if is_replica { "slave" } else { "master" }),
        ("redis_version", REDIS_VERSION),
        ("redis_build_id", "0"),
        ("redis_mode", "standalone"),
        ("os", &process.system),
        ("maxmemory_policy", &config.maxmemory_policy.to_string()),
        ("tcp_port", &port),
        ("run_id", &process.run_id),
        ("process_id", &process_id),
        ("master_replid", &history),
    ];
    out.sample("redis_instance_info", &labels, 1_u64);
    out.begin("dunlin_build_info", Kind::Gauge, "The version of Dunlin; always 1.");
    out.sample("dunlin_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1_u64);
    out.single(
        "redis_start_time_seconds",
        "When the server started, in seconds since 1970.",
        process.started_s,
    );
    out.single("redis_config_maxclients", "The directive `maxclients`.", config.maxclients);
    out.single("redis_config_maxmemory", "The directive `maxmemory`.", config.maxmemory);
    if let (true, Some(primary)) = (is_replica, reading.primary()) {
        out.begin("redis_slave_info", Kind::Gauge, "Facts about the replica as labels; always 1.");
        let labels = [
            ("master_host", primary.host.as_str()),
            ("master_port", &primary.port.to_string()),
            ("read_only", if config.replica_read_only { "1" } else { "0" }),
        ];
        out.sample("redis_slave_info", &labels, 1_u64);
    }
}

fn write_metric(metric: &Metric, reading: &Reading<'_>, out: &mut Exposition) {
    let Some(export) = export_of(metric) else { return };
    let value = match metric.read {
        Read::Counter { read, .. } => export.value(Number::from(read(reading))),
        Read::Gauge(read) => export.value(read(reading)),
        Read::Text(read) => match number_of_text(&read(reading)) {
            Some(number) => export.value(number),
            None => return,
        },
        Read::Always(text) => match number_of_text(text) {
            Some(number) => export.value(number),
            None => return,
        },
    };
    out.begin(&export.name, Kind::named(&export.name), metric.summary);
    match reading.primary().filter(|_| OF_PRIMARY.contains(&metric.name)) {
        Some(primary) => {
            let labels = [("master_host", &*primary.host), ("master_port", &*primary.port.to_string())];
            out.sample(&export.name, &labels, value);
        }
        None => out.sample(&export.name, &[], value),
    }
}

/// The lines of a family, turned into metrics of its fields.
fn write_family(family: &Family, reading: &Reading<'_>, out: &mut Exposition) {
    let Some(FamilyExport { label, label_prefix, fields, .. }) = FAMILIES
        .iter()
        .find(|export| export.prefix == family.prefix)
        .filter(|export| !export.fields.is_empty())
    else {
        return;
    };
    let mut lines: Vec<(String, Vec<Option<Number>>)> = Vec::new();
    (family.read)(reading, &mut |of, values| {
        let value_of = |name: &str| values.iter().find(|(field, _)| *field == name).map(|(_, value)| *value);
        let values = fields.iter().map(|field| value_of(field.field)).collect();
        lines.push((format!("{label_prefix}{of}"), values));
    });
    for (index, field) in fields.iter().enumerate() {
        let summary =
            family.fields.iter().find(|(name, ..)| *name == field.field).map_or("", |known| known.2);
        out.begin(field.name, Kind::named(field.name), summary);
        for (of, values) in &lines {
            let Some(number) = values[index] else { continue };
            let export = names::Export { name: field.name.into(), scale: field.scale };
            out.sample(field.name, &[(label, of)], export.value(number));
        }
    }
}

/// Writes the times of the stages of requests.
fn write_stages(reading: &Reading<'_>, out: &mut Exposition) {
    const NAME: &str = "dunlin_stage_duration_seconds";
    const HELP: &str = "How long requests waited for other connections of their worker (queue), slept for locks (lock), \
                        were executed (run), and how long a write to a socket took (write). Of one tick in 61, but of all sleeps.";
    out.begin(NAME, Kind::Histogram, HELP);
    for (stage, counts) in reading.shared.stats.stages() {
        let below = commands::BOUNDS.map(|power| counts.below(power));
        commands::write_histogram(out, NAME, &[("stage", stage)], &below, (counts.count(), counts.sum));
    }
}

fn write_log_syncs(reading: &Reading<'_>, out: &mut Exposition) {
    const NAME: &str = "dunlin_aof_fsync_duration_seconds";
    if !reading.config.appendonly {
        return;
    }
    let (latencies, nanoseconds) = reading.shared.durability.sync_times();
    out.begin(NAME, Kind::Histogram, "How long syncs of the append-only file took.");
    let below = latencies.below(&commands::BOUNDS);
    commands::write_histogram(out, NAME, &[], &below, (latencies.count(), nanoseconds));
}

fn write_replicas(reading: &Reading<'_>, out: &mut Exposition) {
    struct Replica {
        labels: [String; 3],
        offset: u64,
        lag_s: u64,
    }
    let now_ms = (unix_us() / 1000) as u64;
    let described = reading.shared.replication.replicas().into_iter().map(|replica| {
        let (address, port) = replica.address();
        let peer = replica.peer();
        let (offset, lag_s) = match peer.phase() {
            Phase::Online => (peer.acked, peer.lag_s(now_ms)),
            _ => (0, 0),
        };
        Replica { labels: [address, port.to_string(), peer.phase().name().to_owned()], offset, lag_s }
    });
    let replicas: Vec<Replica> = described.collect();
    let mut each = |name: &str, help: &str, value: fn(&Replica) -> u64| {
        out.begin(name, Kind::Gauge, help);
        for replica in &replicas {
            let [address, port, state] = &replica.labels;
            let labels = [("slave_ip", &**address), ("slave_port", &**port), ("slave_state", &**state)];
            out.sample(name, &labels, value(replica));
        }
    };
    each("redis_connected_slave_offset_bytes", "The offset that each replica has acknowledged.", |replica| {
        replica.offset
    });
    each("redis_connected_slave_lag_seconds", "Time since each replica last acknowledged one.", |replica| {
        replica.lag_s
    });
}

fn write_users(reading: &Reading<'_>, out: &mut Exposition) {
    let mut users: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    // The link to the primary is no user's.
    for client in reading.clients().iter().filter(|client| !client.is_outgoing()) {
        let name = match client.names().user.as_slice() {
            // A client that has not authenticated is the default user.
            b"" => "default".to_owned(),
            name => String::from_utf8_lossy(name).into_owned(),
        };
        let (clients, bytes) = users.entry(name).or_default();
        (*clients, *bytes) = (*clients + 1, *bytes + client.held_bytes());
    }
    let mut users: Vec<(String, (u64, u64))> = users.into_iter().collect();
    if users.len() > USERS_MAX {
        users.sort_by_key(|(_, (clients, _))| std::cmp::Reverse(*clients));
        let others = users.split_off(USERS_MAX);
        let sum = |part: fn(&(u64, u64)) -> u64| others.iter().map(|(_, user)| part(user)).sum();
        users.push((String::new(), (sum(|user| user.0), sum(|user| user.1))));
    }
    let mut each = |name: &str, help: &str, value: fn(&(u64, u64)) -> u64| {
        out.begin(name, Kind::Gauge, help);
        for (user, figures) in &users {
            out.sample(name, &[("user", user)], value(figures));
        }
    };
    each("dunlin_user_clients", "Connections of each user.", |user| user.0);
    each("dunlin_user_held_bytes", "Memory that the connections of each user hold.", |user| user.1);
}

/// The slow log, and the events of LATENCY.
fn write_logs(reading: &Reading<'_>, out: &mut Exposition) {
    let stats = &reading.shared.stats;
    let newest = stats.logs.newest(LogKind::Slow, 1).pop();
    let (id, slowest_us) = newest.map_or((0, 0), |entry| (entry.id, entry.value));
    out.single("redis_slowlog_length", "Entries of the slow log.", stats.logs.len(LogKind::Slow));
    out.single("redis_slowlog_last_id", "The number of its newest entry.", id);
    let help = "How long the newest command of the slow log took.";
    out.single("redis_last_slow_execution_duration_seconds", help, slowest_us as f64 / 1e6);
    let events = stats.latency.all();
    let mut each = |name: &str, help: &str, value: fn(latency::Sample) -> Value| {
        out.begin(name, Kind::Gauge, help);
        for (event, series) in &events {
            out.sample(name, &[("event_name", event)], value(series.latest()));
        }
    };
    let at = |sample: latency::Sample| sample.time_s.into();
    each("redis_latency_spike_last", "When each event of LATENCY was last slow, in seconds since 1970.", at);
    each("redis_latency_spike_duration_seconds", "How long it took then.", |sample| {
        (sample.latency_ms as f64 / 1000.0).into()
    });
}
