//! The sample of a second: the differences of counters that are there anyway, and the events that these betray.
//!
//! Nothing here is on the way of a command: the workers' own counters are read, as INFO reads them.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use dunlin_acl::Reason;
use dunlin_replication::{LinkState, Phase};

use crate::{
    config::{Config, DIRECTIVES, escape_control},
    observe::{
        command_log::{LogEntry, LogKind},
        command_stats::{CommandTotals, Latencies},
        recorder::{EventKind, Field, HOT_KEY_BYTES_MAX, HOT_SHARE_MIN, HotSecond, NO_COMMAND, Sample},
        stats::TrafficTotals,
    },
    session::ClientFlags,
    shared::Shared,
    system::host::{self, IdleTime, ProcessorTime},
};

/// Slow commands of one second that become events: the slowest.
const SLOW_EVENTS_MAX: usize = 5;
/// A sync of the log that takes at least this long is an event, in nanoseconds.
const SLOW_SYNC_NS: u64 = 1_000_000_000;
/// Seconds between two events about hot keys, at least: two keys that take turns are no news.
const HOT_EVENT_INTERVAL: Duration = Duration::from_secs(60);
/// Nanoseconds of the unit in which samples have latencies.
const UNIT_NS: u64 = 100;

/// The counters of a second ago.
#[derive(Default)]
struct Before {
    at: Option<Instant>,
    commands: Vec<CommandTotals>,
    calls: CommandTotals,
    errors: u64,
    denied: u64,
    traffic: TrafficTotals,
    keyspace: [u64; 4],
    processor: ProcessorTime,
    workers_us: Vec<u64>,
    idle: Option<IdleTime>,
    syncs: Latencies,
    slow_id: Option<u64>,
}

/// States whose changes are events.
#[derive(Default, Clone, PartialEq)]
struct States {
    snapshot: bool,
    saves: u64,
    save_failed: bool,
    rewrite: bool,
    unwritable: Option<String>,
    loading: bool,
    held: bool,
    disconnections: (u64, u64, u64),
    rejected: bool,
    is_over: bool,
    evicting: bool,
    is_replica: bool,
    failover: &'static str,
    link_up: bool,
    replicas: BTreeMap<String, String>,
    history: String,
    flushes: u64,
    users: u64,
}

/// Reads the state of the server once a second.
#[derive(Default)]
pub(super) struct Sampler {
    before: Before,
    states: Option<States>,
    config: Option<std::sync::Arc<Config>>,
    /// The last survey of the keyspace that was possible.
    keys: u64,
    /// When there was an event about a hot key last.
    hot_event_at: Option<Instant>,
}

/// The result of a look.
pub(super) struct Seen {
    pub(super) sample: Sample,
    pub(super) events: Vec<(EventKind, String)>,
    pub(super) hot_key: Option<HotSecond>,
}

impl Sampler {
    /// Looks at the server. The first time there is nothing to compare with, and no sample.
    pub(super) fn look(&mut self, shared: &Shared, time_s: u32) -> Option<Seen> {
        let mut sample = Sample::new(time_s);
        let mut events = Vec::new();
        let is_first = self.before.at.is_none();
        let now = Instant::now();
        let seconds =
            self.before.at.replace(now).map_or(1.0, |at| now.duration_since(at).as_secs_f64().max(0.001));
        self.look_at_commands(shared, &mut sample);
        self.look_at_slow_commands(shared, &mut sample, &mut events);
        self.look_at_traffic(shared, &mut sample);
        self.look_at_memory(shared, &mut sample);
        self.look_at_processors(shared, &mut sample, seconds);
        self.look_at_log(shared, &mut sample, &mut events);
        let states = look_at_states(shared, &mut sample);
        if let Some(before) = self.states.replace(states) {
            let after = self.states.as_ref().expect("it was put there");
            compare_states(&before, after, &sample, &mut events);
        }
        self.look_at_config(shared, &mut events);
        let hot_key = self.look_at_keys(shared, &mut sample, &mut events);
        (!is_first).then_some(Seen { sample, events, hot_key })
    }

    fn look_at_commands(&mut self, shared: &Shared, sample: &mut Sample) {
        // The commands of a primary's stream are not requests here.
        let workers = &shared.stats.workers[..shared.workers];
        let entries = shared.commands.entries();
        self.before.commands.resize(entries.len(), CommandTotals::default());
        let (mut latencies, mut commands, mut busy_ns) = (Latencies::default(), 0, 0);
        let (mut worst, mut top) = ((0, NO_COMMAND), (0, NO_COMMAND, 0));
        for (entry, before) in entries.iter().zip(&mut self.before.commands) {
            let calls: u64 = workers.iter().map(|worker| worker.commands[entry.index].calls.get()).sum();
            if calls == before.calls {
                continue;
            }
            let totals = CommandTotals::of(workers, entry.index);
            // After a reset the counts are below what they were.
            let new_calls = totals.calls.saturating_sub(before.calls);
            let new_ns = totals.nanoseconds.saturating_sub(before.nanoseconds);
            let new = totals.latencies.since(&before.latencies);
            commands += new_calls;
            busy_ns += new_ns;
            // Calls of scripts are part of the time of EVAL.
            let own_ns = new_ns.saturating_sub(totals.called_ns.saturating_sub(before.called_ns));
            if own_ns > top.0 {
                let own_calls = new_calls.saturating_sub(totals.called.saturating_sub(before.called));
                top = (own_ns, entry.index as u32, own_calls);
            }
            let longest = new.longest();
            if longest > worst.0 {
                worst = (longest, entry.index as u32);
            }
            latencies.add_all(&new);
            *before = totals;
        }
        // A call runs inside the time of its script, and is not a request.
        let calls = CommandTotals::of_calls(workers);
        let new_calls = calls.calls.saturating_sub(self.before.calls.calls);
        latencies.remove_all(&calls.latencies.since(&self.before.calls.latencies));
        let call_ns = calls.nanoseconds.saturating_sub(self.before.calls.nanoseconds);
        busy_ns = u64::saturating_sub(busy_ns, call_ns);
        commands = u64::saturating_sub(commands, new_calls);
        self.before.calls = calls;
        sample.set(Field::Commands, commands);
        sample.set(Field::Calls, new_calls);
        sample.set(Field::BusyTime, busy_ns / UNIT_NS);
        for (field, percentile) in [(Field::P50, 50.0), (Field::P99, 99.0), (Field::P999, 99.9)] {
            sample.set(field, latencies.percentile(percentile) / UNIT_NS);
        }
        sample.set(Field::Worst, worst.0 / UNIT_NS);
        sample.set(Field::WorstCommand, worst.1.into());
        sample.set(Field::TopTime, top.0 / UNIT_NS);
        sample.set(Field::TopCommand, top.1.into());
        sample.set(Field::TopCalls, top.2);
        let errors = workers.iter().map(|worker| worker.errors.total.get()).sum();
        sample.set(Field::Errors, difference(&mut self.before.errors, errors));
    }

    fn look_at_slow_commands(
        &mut self,
        shared: &Shared,
        sample: &mut Sample,
        events: &mut Vec<(EventKind, String)>,
    ) {
        let logs = &shared.stats.logs;
        let is_new = |entry: &LogEntry| self.before.slow_id.is_none_or(|last| entry.id > last);
        let mut new: Vec<LogEntry> =
            logs.newest(LogKind::Slow, 128).into_iter().take_while(|entry| is_new(entry)).collect();
        if let Some(newest) = new.first() {
            self.before.slow_id = Some(newest.id);
        }
        sample.set(Field::SlowCommands, new.len() as u64);
        new.sort_by_key(|entry| std::cmp::Reverse(entry.value));
        let clients = shared.stats.clients().map(|clients| clients.list()).unwrap_or_default();
        for entry in new.iter().take(SLOW_EVENTS_MAX) {
            let of =
                |client: &&std::sync::Arc<dunlin_net::Client>| client.transport.peer_text() == entry.peer;
            let user = clients.iter().find(of).map(|client| client.names().user.clone());
            events.push((EventKind::Slow, describe_slow(entry, user.as_deref())));
        }
    }

    fn look_at_traffic(&mut self, shared: &Shared, sample: &mut Sample) {
        let stats = &shared.stats;
        let traffic = stats.traffic();
        let before = std::mem::replace(&mut self.before.traffic, traffic);
        let since = |of: fn(&TrafficTotals) -> u64| of(&traffic).saturating_sub(of(&before));
        sample.set(Field::Connected, since(|traffic| traffic.connections_received));
        sample.set(Field::Rejected, since(|traffic| traffic.connections_rejected));
        sample.set(Field::InputKb, since(|traffic| traffic.input_bytes).div_ceil(1024));
        sample.set(Field::OutputKb, since(|traffic| traffic.output_bytes).div_ceil(1024));
        let clients = stats.clients();
        sample.set(Field::Clients, clients.map_or(0, |clients| clients.connected()) as u64);
        let is_blocked =
            |client: &std::sync::Arc<dunlin_net::Client>| ClientFlags::of(client).has(ClientFlags::BLOCKED);
        let blocked =
            clients.map_or(0, |clients| clients.list().iter().filter(|client| is_blocked(client)).count());
        sample.set(Field::Blocked, blocked as u64);
        sample.set(Field::BuffersKb, (stats.client_bytes() / 1024) as u64);
        let reasons =
            [Reason::Authentication, Reason::Command, Reason::Key, Reason::Channel, Reason::Database];
        let denied = reasons.into_iter().map(|reason| shared.access.denied(reason)).sum();
        sample.set(Field::Denied, difference(&mut self.before.denied, denied));
    }

    fn look_at_memory(&mut self, shared: &Shared, sample: &mut Sample) {
        let stats = &shared.stats;
        sample.set(Field::UsedKb, (stats.used_bytes(&shared.engine) / 1024) as u64);
        sample.set(Field::ResidentKb, host::resident_bytes() / 1024);
        if let Some(survey) = shared.engine.survey_unless_long() {
            self.keys = survey.total().keys as u64;
        }
        sample.set(Field::Keys, self.keys);
        let counts = [
            (Field::Evicted, stats.keyspace_total(|counters| &counters.evicted_keys)),
            (Field::Expired, stats.keyspace_total(|counters| &counters.expired_keys)),
            (Field::Hits, stats.keyspace_total(|counters| &counters.keyspace_hits)),
            (Field::Misses, stats.keyspace_total(|counters| &counters.keyspace_misses)),
        ];
        for ((field, count), before) in counts.into_iter().zip(&mut self.before.keyspace) {
            sample.set(field, difference(before, count));
        }
    }

    fn look_at_processors(&mut self, shared: &Shared, sample: &mut Sample, seconds: f64) {
        let permille = |seconds_used: f64| (seconds_used / seconds * 1000.0).round() as u64;
        let processor = ProcessorTime::of_process();
        let used = processor.total().saturating_sub(self.before.processor.total());
        self.before.processor = processor;
        sample.set(Field::Processor, permille(used.as_secs_f64()));
        let workers: Vec<u64> =
            shared.stats.workers.iter().map(|worker| worker.user_us.get() + worker.system_us.get()).collect();
        let of_before = self.before.workers_us.iter().copied().chain(std::iter::repeat(0));
        let busiest = workers.iter().zip(of_before).map(|(now, before)| now.saturating_sub(before)).max();
        sample.set(Field::BusiestWorker, permille(busiest.unwrap_or(0) as f64 / 1e6));
        self.before.workers_us = workers;
        let idle = IdleTime::now();
        if let (Some(now), Some(before)) = (&idle, &self.before.idle) {
            let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
            sample.set(Field::Idle, permille(now.since(before).as_secs_f64() / cores).min(1000));
        }
        self.before.idle = idle;
    }

    fn look_at_log(&mut self, shared: &Shared, sample: &mut Sample, events: &mut Vec<(EventKind, String)>) {
        let (syncs, _) = shared.durability.sync_times();
        let new = syncs.since(&self.before.syncs);
        self.before.syncs = syncs;
        let (waiting_ns, write_error) = {
            let status = shared.durability.status();
            let waiting = status.syncing_since.map_or(0, |since| since.elapsed().as_nanos() as u64);
            (waiting, status.write_error.is_some())
        };
        let longest = new.longest();
        sample.set(Field::Syncs, new.count());
        sample.set(Field::SyncWorst, longest.max(waiting_ns) / UNIT_NS);
        sample.set(Field::LogBufferKb, shared.durability.buffered_bytes() / 1024);
        sample.set(Field::Unwritable, write_error.into());
        if longest >= SLOW_SYNC_NS {
            let text = format!("a sync of the append-only file took {:.1} s", longest as f64 / 1e9);
            events.push((EventKind::Disk, text));
        }
    }

    /// The key that most commands of the second named.
    fn look_at_keys(
        &mut self,
        shared: &Shared,
        sample: &mut Sample,
        events: &mut Vec<(EventKind, String)>,
    ) -> Option<HotSecond> {
        let hot = shared.key_samples.take()?;
        sample.set(Field::HotKeyShare, hot.share.into());
        if hot.share < HOT_SHARE_MIN {
            return None;
        }
        let mut key = printable(&hot.key);
        if key.len() > HOT_KEY_BYTES_MAX {
            key.truncate(key.floor_char_boundary(HOT_KEY_BYTES_MAX - 3));
            key.push_str("...");
        }
        if self.hot_event_at.is_none_or(|at| at.elapsed() >= HOT_EVENT_INTERVAL) {
            let text = format!("one key, {key}, got {}% of the commands on keys", hot.share / 10);
            events.push((EventKind::HotKey, text));
        }
        // As long as there is one it stays known.
        self.hot_event_at = Some(Instant::now());
        Some(HotSecond { time_s: sample.time_s, key: key.into(), share: hot.share })
    }

    /// Names of directives that have changed; the values of those that are no secret.
    fn look_at_config(&mut self, shared: &Shared, events: &mut Vec<(EventKind, String)>) {
        let current = shared.config.current();
        if let Some(before) = &self.config
            && !std::sync::Arc::ptr_eq(before, &current)
        {
            for directive in DIRECTIVES.iter().filter(|directive| !directive.is_same(before, &current)) {
                let shown = |config| match directive.is_secret() {
                    true => "(not shown)".to_owned(),
                    false => String::from_utf8_lossy(&directive.print(config)).into_owned(),
                };
                let (old, new) = (shown(before), shown(&current));
                events
                    .push((EventKind::Config, format!("{} changed from {old:?} to {new:?}", directive.name)));
            }
        }
        self.config = Some(current);
    }
}

/// How much `now` is above `before`, which becomes it.
fn difference(before: &mut u64, now: u64) -> u64 {
    now.saturating_sub(std::mem::replace(before, now))
}

/// Bytes of a client for a line of text.
fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().flat_map(escape_control).collect()
}

/// A slow command in words: what, how long, whose.
fn describe_slow(entry: &LogEntry, user: Option<&[u8]>) -> String {
    let words: Vec<String> = entry.words.iter().take(8).map(|word| printable(word)).collect();
    let mut request = words.join(" ");
    if request.len() > 100 {
        request.truncate(request.floor_char_boundary(97));
        request.push_str("...");
    }
    let mut whose = format!("client {}", entry.peer);
    if !entry.client_name.is_empty() {
        whose += &format!(", name {}", printable(&entry.client_name));
    }
    if let Some(user) = user {
        // A client that has not authenticated is the default user.
        let user = if user.is_empty() { &b"default"[..] } else { user };
        whose += &format!(", user {}", printable(user));
    }
    format!("{request} took {:.1} ms ({whose})", entry.value as f64 / 1000.0)
}

fn look_at_states(shared: &Shared, sample: &mut Sample) -> States {
    use std::sync::atomic::Ordering::Relaxed;
    let replication = &shared.replication;
    let rewrite = shared.durability.rewriting().current.is_some();
    let snapshot = shared.background_save().0.is_some();
    let link = replication.link();
    let (is_replica, link_up) = (replication.is_replica(), link.state == LinkState::Connected);
    drop(link);
    let end = replication.offset(shared.durability.tail());
    let (mut replicas, mut lag) = (BTreeMap::new(), 0);
    for replica in replication.replicas() {
        let (address, port) = replica.address();
        let peer = replica.peer();
        if peer.phase() == Phase::Online {
            lag = lag.max(end.saturating_sub(peer.acked));
        }
        replicas.insert(format!("{address}:{port}"), peer.phase().name().to_owned());
    }
    let loading = shared.loading.is_active();
    let held = shared.engine.keyspace.is_held_for_long();
    let traffic = shared.stats.traffic();
    let config = shared.config.current();
    let over = config.maxmemory > 0 && shared.stats.used_bytes(&shared.engine) as u64 > config.maxmemory;
    for (field, is_so) in [
        (Field::Snapshot, snapshot),
        (Field::Rewrite, rewrite),
        (Field::Loading, loading),
        (Field::Held, held),
        (Field::LinkDown, is_replica && !link_up),
    ] {
        sample.set(field, is_so.into());
    }
    sample.set(Field::Replicas, replicas.len() as u64);
    sample.set(Field::ReplicaLagKb, lag / 1024);
    let flushes = ["flushall", "flushdb"].iter().filter_map(|name| shared.commands.find(name.as_bytes()));
    let calls = |index: usize| -> u64 {
        shared.stats.workers.iter().map(|worker| worker.commands[index].calls.get()).sum()
    };
    States {
        snapshot,
        saves: shared.persistence.saves.load(Relaxed),
        save_failed: !shared.persistence.last_save_ok.load(Relaxed),
        rewrite,
        unwritable: shared.durability.status().write_error.clone(),
        loading,
        held,
        disconnections: (
            traffic.output_buffer_disconnections,
            traffic.query_buffer_disconnections,
            shared.stats.evicted_clients.load(Relaxed),
        ),
        rejected: sample.get(Field::Rejected) > 0,
        is_over: over,
        evicting: sample.get(Field::Evicted) > 0,
        is_replica,
        failover: replication.failover_state(),
        link_up,
        replicas,
        history: replication.history().id.to_string(),
        flushes: flushes.map(|entry| calls(entry.index)).sum(),
        users: shared.access.version(),
    }
}

fn compare_states(before: &States, after: &States, sample: &Sample, events: &mut Vec<(EventKind, String)>) {
    let mut note = |kind: EventKind, text: String| events.push((kind, text));
    match (before.snapshot, after.snapshot) {
        (false, true) => note(EventKind::Snapshot, "a snapshot began".to_owned()),
        (true, false) if after.save_failed => note(EventKind::Snapshot, "a snapshot failed".to_owned()),
        (true, false) => note(EventKind::Snapshot, "the snapshot ended".to_owned()),
        (false, false) if after.saves > before.saves => {
            note(EventKind::Snapshot, "a snapshot was saved".to_owned())
        }
        _ => {}
    }
    for (kind, was, is, begins, ends) in [
        (
            EventKind::Rewrite,
            before.rewrite,
            after.rewrite,
            "a rewrite of the log began",
            "the rewrite of the log ended",
        ),
        (
            EventKind::Server,
            before.loading,
            after.loading,
            "loading of a data set began",
            "the data set was loaded",
        ),
        (
            EventKind::Script,
            before.held,
            after.held,
            "a script or command began to hold keys for long",
            "it holds them no longer",
        ),
        (
            EventKind::Memory,
            before.is_over,
            after.is_over,
            "more memory than maxmemory is in use",
            "memory is below maxmemory again",
        ),
        (
            EventKind::Memory,
            before.evicting,
            after.evicting,
            "keys are being evicted",
            "no key was evicted for a second",
        ),
    ] {
        match (was, is) {
            (false, true) => note(kind, begins.to_owned()),
            (true, false) => note(kind, ends.to_owned()),
            _ => {}
        }
    }
    match (&before.unwritable, &after.unwritable) {
        (None, Some(reason)) => {
            note(EventKind::Disk, format!("the append-only file cannot be written: {reason}"))
        }
        (Some(_), None) => note(EventKind::Disk, "the append-only file can be written again".to_owned()),
        _ => {}
    }
    let closed = |now: u64, then: u64, why: &str| {
        let count = now.saturating_sub(then);
        let plural = if count == 1 { " was" } else { "s were" };
        (count > 0).then(|| format!("{count} client{plural} closed: {why}"))
    };
    let (now, then) = (after.disconnections, before.disconnections);
    for text in [
        closed(now.0, then.0, "client-output-buffer-limit"),
        closed(now.1, then.1, "client-query-buffer-limit"),
        closed(now.2, then.2, "maxmemory-clients"),
    ] {
        text.into_iter().for_each(|text| note(EventKind::Client, text));
    }
    if after.rejected && !before.rejected {
        let count = sample.get(Field::Rejected);
        note(EventKind::Client, format!("connections are refused: {count} in this second"));
    }
    match (before.is_replica, after.is_replica) {
        (false, true) => note(EventKind::Replication, "the server became a replica".to_owned()),
        (true, false) => note(EventKind::Replication, "the replica became a primary".to_owned()),
        (true, true) if before.link_up != after.link_up => {
            let text = if after.link_up {
                "the link to the primary is up"
            } else {
                "the link to the primary is down"
            };
            note(EventKind::Replication, text.to_owned());
        }
        _ => {}
    }
    if before.failover != after.failover {
        let text = match after.failover {
            // A failover that was given up leaves a primary behind, one that has succeeded a replica.
            "no-failover" if after.is_replica => {
                "the failover ended: another server is the primary now".to_owned()
            }
            "no-failover" => "the failover was given up".to_owned(),
            state => format!("a failover is under way: {state}"),
        };
        note(EventKind::Replication, text);
    }
    if before.is_replica == after.is_replica && before.history != after.history && !after.is_replica {
        note(EventKind::Replication, format!("the history of the data set is {} now", after.history));
    }
    for (address, state) in &after.replicas {
        if before.replicas.get(address) != Some(state) {
            note(EventKind::Replication, format!("replica {address} is {state}"));
        }
    }
    for address in before.replicas.keys().filter(|address| !after.replicas.contains_key(*address)) {
        note(EventKind::Replication, format!("replica {address} has gone"));
    }
    if after.flushes > before.flushes {
        note(EventKind::Keys, "FLUSHALL or FLUSHDB removed all keys of a database".to_owned());
    }
    if after.users != before.users {
        note(EventKind::Access, "users were changed".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_command_is_described_with_its_client() {
        let entry = LogEntry {
            id: 0,
            time_s: 1,
            value: 812_345,
            words: vec![b"KEYS".to_vec(), b"*\n".to_vec()],
            peer: "10.0.0.5:1234".to_owned(),
            client_name: b"worker".to_vec(),
        };
        assert_eq!(
            describe_slow(&entry, Some(b"app")),
            "KEYS *\\n took 812.3 ms (client 10.0.0.5:1234, name worker, user app)"
        );
        let long = LogEntry { words: vec![vec![b'x'; 128]; 8], client_name: vec![], ..entry };
        assert!(describe_slow(&long, None).len() < 160);
    }

    #[test]
    fn changes_of_state_are_events_and_states_are_none() {
        let calm = States { failover: "no-failover", ..States::default() };
        let busy = States {
            snapshot: true,
            rewrite: true,
            unwritable: Some("No space left on device".to_owned()),
            disconnections: (2, 1, 0),
            is_replica: true,
            failover: "failover-in-progress",
            replicas: [("10.0.0.1:7000".to_owned(), "online".to_owned())].into(),
            flushes: 1,
            ..States::default()
        };
        let between = |one: &States, other: &States| {
            let mut events = Vec::new();
            compare_states(one, other, &Sample::new(1), &mut events);
            events.into_iter().map(|(_, text)| text).collect::<Vec<_>>()
        };
        assert_eq!(between(&calm, &calm), Vec::<String>::new());
        assert_eq!(between(&busy, &busy), Vec::<String>::new());
        assert_eq!(
            between(&calm, &busy),
            [
                "a snapshot began",
                "a rewrite of the log began",
                "the append-only file cannot be written: No space left on device",
                "2 clients were closed: client-output-buffer-limit",
                "1 client was closed: client-query-buffer-limit",
                "the server became a replica",
                "a failover is under way: failover-in-progress",
                "replica 10.0.0.1:7000 is online",
                "FLUSHALL or FLUSHDB removed all keys of a database",
            ]
        );
        assert_eq!(
            between(&busy, &calm),
            [
                "the snapshot ended",
                "the rewrite of the log ended",
                "the append-only file can be written again",
                "the replica became a primary",
                "the failover was given up",
                "replica 10.0.0.1:7000 has gone",
            ]
        );
    }
}
