//! Statistics of the server: counters of all workers, logs, samples over time.
//!
//! Workers write their own counters; everything here sums them when asked. The maintenance thread
//! takes a sample ten times a second, from which rates and peaks come.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dunlin_engine::{Engine, Statistics, command::CommandTable, keyspace::lock_sleeps};
use dunlin_net::{
    Clients, Log2Counts, Log2Histogram, Now, SHARED_BYTES, StageTimes, Traffic, connection_bytes,
};

use crate::{
    observe::{
        baseline::Baseline, command_log::CommandLogs, command_stats::WorkerStatistics,
        error_counts::ErrorCodes, latency::LatencyMonitor,
    },
    session::Session,
    system::host::Process,
};

/// How often a sample is taken.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Samples that a rate is the average over.
const SAMPLES_MAX: usize = 16;

/// Statistics of the server.
#[derive(Debug)]
pub(crate) struct Stats {
    /// By worker: what its commands cost; behind them, what the commands of a primary's stream cost.
    pub(crate) workers: Box<[Arc<WorkerStatistics>]>,
    /// By worker: what it did to the keyspace; behind them, what a primary's stream did.
    pub(crate) keyspace: Box<[Arc<Statistics>]>,
    /// The codes of errors that all workers count by their names.
    codes: Arc<ErrorCodes>,
    pub(crate) logs: CommandLogs,
    pub(crate) latency: LatencyMonitor,
    pub(crate) process: Process,
    network: OnceLock<Network>,
    samples: Mutex<Samples>,
    /// The counters of INFO at the last reset.
    pub(crate) baseline: Baseline,
    /// Bytes that links of replication have carried.
    pub(crate) links: LinkTraffic,
    /// The largest buffers of clients in the last seconds.
    recent: Mutex<RecentBuffers>,
    /// Bytes that clients hold, at the last visit.
    client_bytes: AtomicUsize,
    /// When a caller last needed that sum anew, in steady milliseconds.
    revisited_ms: AtomicU64,
    /// The most memory that any sample has seen.
    peak_bytes: AtomicUsize,
    /// Memory of the server's own structures before the first command: stripes, workers' buffers.
    pub(crate) startup_bytes: usize,
    /// For how long memory was short.
    pub(crate) eviction: ExceededTime,
    pub(crate) defragmentation: DefragmentationStats,
    /// Clients closed because of `maxmemory-clients`.
    pub(crate) evicted_clients: AtomicU64,
    /// Buffers of the console's connections, in bytes.
    pub(crate) console_bytes: AtomicUsize,
    /// Bytes of everything else, at the last visit: those that `maxmemory` limits, and those that it does not.
    counted_bytes: AtomicUsize,
    uncounted_bytes: AtomicUsize,
}

/// Memory in use beside the keyspace and what clients hold, in bytes.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Held {
    /// Texts of scripts, and their Lua machines without garbage.
    pub(crate) scripts: usize,
    /// Libraries of functions, and their Lua machines.
    pub(crate) functions: usize,
    /// Garbage of Lua machines.
    pub(crate) script_garbage: usize,
    /// Tables of keys that clients cache.
    pub(crate) tracked: usize,
    /// The ring of the log: what its file lacks, what replicas lack, and the backlog.
    pub(crate) log: usize,
    /// Copies that snapshots have not written yet.
    pub(crate) snapshots: usize,
    /// Removed values that wait to be freed.
    pub(crate) garbage: usize,
    /// Buffers between browsers and workers.
    pub(crate) consoles: usize,
}

impl Held {
    /// Bytes that `maxmemory` limits.
    fn counted(&self) -> usize {
        self.scripts + self.functions + self.tracked
    }

    /// Bytes that it does not: evictions add to them, so that keys would go for nothing, or they go by themselves, as garbage of
    /// scripts does. All of them have limits of their own.
    pub(crate) fn uncounted(&self) -> usize {
        self.log + self.snapshots + self.garbage + self.script_garbage + self.consoles
    }

    /// All bytes.
    pub(crate) fn total(&self) -> usize {
        self.counted() + self.uncounted()
    }
}

/// For how long something, as memory in use, was above its limit.
#[derive(Debug, Default)]
pub(crate) struct ExceededTime {
    /// The time since which it is, in milliseconds of [`Now::steady_ms`](dunlin_net::Now::steady_ms); 0 while it is
    /// not.
    since_ms: AtomicU64,
    /// All earlier times together, in milliseconds.
    total_ms: AtomicU64,
}

impl ExceededTime {
    /// Notes whether it is now.
    #[inline]
    pub(crate) fn note(&self, is_over: bool, now_ms: u64) {
        let since_ms = self.since_ms.load(Relaxed);
        if is_over != (since_ms != 0) {
            self.turn(is_over, since_ms, now_ms);
        }
    }

    #[cold]
    fn turn(&self, is_over: bool, since_ms: u64, now_ms: u64) {
        let next = if is_over { now_ms } else { 0 };
        if self.since_ms.compare_exchange(since_ms, next, Relaxed, Relaxed).is_ok() && !is_over {
            self.total_ms.fetch_add(now_ms.saturating_sub(since_ms), Relaxed);
        }
    }

    /// Milliseconds of the time under way.
    pub(crate) fn current_ms(&self, now_ms: u64) -> u64 {
        match self.since_ms.load(Relaxed) {
            0 => 0,
            since_ms => now_ms.saturating_sub(since_ms),
        }
    }

    /// Milliseconds in all.
    pub(crate) fn total_ms(&self, now_ms: u64) -> u64 {
        self.total_ms.load(Relaxed) + self.current_ms(now_ms)
    }
}

/// Counts of the network layer; there once the workers run.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) clients: Arc<Clients>,
    pub(crate) traffic: Arc<[Traffic]>,
}

/// The sums of what all workers have read and written since the start.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct TrafficTotals {
    pub(crate) connections_received: u64,
    pub(crate) connections_rejected: u64,
    pub(crate) input_bytes: u64,
    pub(crate) output_bytes: u64,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) query_buffer_disconnections: u64,
    pub(crate) output_buffer_disconnections: u64,
    pub(crate) handshakes: u64,
    pub(crate) handshakes_resumed: u64,
    pub(crate) handshakes_failed: u64,
    pub(crate) handshakes_given_up: u64,
    pub(crate) ticks: u64,
    pub(crate) tick_ns: u64,
    /// Of `input_bytes`, those from a primary; of `output_bytes`, those to replicas.
    pub(crate) link_input_bytes: u64,
    pub(crate) link_output_bytes: u64,
}

impl TrafficTotals {
    fn add(&mut self, worker: &Traffic) {
        self.connections_received += worker.connections_received.get();
        self.connections_rejected += worker.connections_rejected.get();
        self.input_bytes += worker.input_bytes.get();
        self.output_bytes += worker.output_bytes.get();
        self.reads += worker.reads.get();
        self.writes += worker.writes.get();
        self.handshakes += worker.handshakes.get();
        self.handshakes_resumed += worker.handshakes_resumed.get();
        self.handshakes_failed += worker.handshakes_failed.get();
        self.handshakes_given_up += worker.handshakes_given_up.get();
        self.query_buffer_disconnections += worker.query_buffer_disconnections.get();
        self.output_buffer_disconnections += worker.output_buffer_disconnections.get();
        self.ticks += worker.ticks.get();
        self.tick_ns += worker.tick_ns.get();
    }

    fn add_links(&mut self, links: &LinkTraffic) {
        self.link_input_bytes = links.from_primary.load(Relaxed);
        self.link_output_bytes = links.to_replicas.load(Relaxed);
        self.input_bytes += self.link_input_bytes;
        self.output_bytes += self.link_output_bytes + links.to_primary.load(Relaxed);
    }
}

/// Bytes on links of replication that no worker reads or writes: with their snapshots, since the start.
#[derive(Debug, Default)]
pub(crate) struct LinkTraffic {
    pub(crate) from_primary: AtomicU64,
    pub(crate) to_primary: AtomicU64,
    pub(crate) to_replicas: AtomicU64,
}

/// The largest buffers of one client, for requests and for replies, in bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LargestBuffers {
    pub(crate) input: u64,
    pub(crate) output: u64,
}

impl LargestBuffers {
    fn max(self, other: Self) -> Self {
        Self { input: self.input.max(other.input), output: self.output.max(other.output) }
    }
}

/// Seconds over which the largest buffers are remembered (Redis: `CLIENT_PEAK_MEM_USAGE_SLOTS`).
const RECENT_SECONDS: usize = 8;

/// The largest buffers of each of the last seconds.
#[derive(Debug, Default)]
struct RecentBuffers {
    seconds: [LargestBuffers; RECENT_SECONDS],
    /// The second of the last note, of [`Now::steady_ms`](dunlin_net::Now::steady_ms).
    last_s: u64,
}

impl RecentBuffers {
    fn note(&mut self, now_s: u64, largest: LargestBuffers) {
        // Seconds without a note had nothing.
        for second in (self.last_s + 1..=now_s).take(RECENT_SECONDS) {
            self.seconds[second as usize % RECENT_SECONDS] = LargestBuffers::default();
        }
        if now_s.saturating_sub(self.last_s) > RECENT_SECONDS as u64 {
            self.seconds = Default::default();
        }
        self.last_s = now_s;
        let slot = &mut self.seconds[now_s as usize % RECENT_SECONDS];
        *slot = slot.max(largest);
    }

    fn largest(&self) -> LargestBuffers {
        self.seconds.iter().copied().fold(LargestBuffers::default(), LargestBuffers::max)
    }
}

/// The sampled counts, which only grow.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    commands: u64,
    input_bytes: u64,
    output_bytes: u64,
    link_input_bytes: u64,
    link_output_bytes: u64,
    ticks: u64,
    tick_ns: u64,
}

#[derive(Debug, Default)]
struct Samples {
    last: Option<(Instant, Counts)>,
    /// Rates a second, newest last.
    rates: VecDeque<Rates>,
}

/// How much there is of something a second, averaged over the last samples.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Rates {
    pub(crate) commands: f64,
    pub(crate) input_bytes: f64,
    pub(crate) output_bytes: f64,
    pub(crate) link_input_bytes: f64,
    pub(crate) link_output_bytes: f64,
    pub(crate) ticks: f64,
    pub(crate) tick_ns: f64,
}

impl Samples {
    fn add(&mut self, now: Instant, counts: Counts) {
        if let Some((then, before)) = self.last.replace((now, counts)) {
            let seconds = now.duration_since(then).as_secs_f64().max(1e-9);
            // After a reset the counts are below what they were.
            let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
            if self.rates.len() == SAMPLES_MAX {
                self.rates.pop_front();
            }
            self.rates.push_back(Rates {
                commands: rate(counts.commands, before.commands),
                input_bytes: rate(counts.input_bytes, before.input_bytes),
                output_bytes: rate(counts.output_bytes, before.output_bytes),
                link_input_bytes: rate(counts.link_input_bytes, before.link_input_bytes),
                link_output_bytes: rate(counts.link_output_bytes, before.link_output_bytes),
                ticks: rate(counts.ticks, before.ticks),
                tick_ns: rate(counts.tick_ns, before.tick_ns),
            });
        }
    }

    fn average(&self) -> Rates {
        let count = self.rates.len().max(1) as f64;
        let average = |part: fn(&Rates) -> f64| self.rates.iter().map(part).sum::<f64>() / count;
        Rates {
            commands: average(|rates| rates.commands),
            input_bytes: average(|rates| rates.input_bytes),
            output_bytes: average(|rates| rates.output_bytes),
            link_input_bytes: average(|rates| rates.link_input_bytes),
            link_output_bytes: average(|rates| rates.link_output_bytes),
            ticks: average(|rates| rates.ticks),
            tick_ns: average(|rates| rates.tick_ns),
        }
    }
}

/// The work of all workers against fragmentation, for INFO.
#[derive(Debug)]
pub(crate) struct DefragmentationStats {
    /// By worker: percent of its time.
    efforts: Box<[AtomicU32]>,
    /// For how long any of them has had something to do.
    pub(crate) times: ExceededTime,
}

impl DefragmentationStats {
    pub(crate) fn new(workers: usize) -> Self {
        Self { efforts: (0..workers).map(|_| Default::default()).collect(), times: Default::default() }
    }

    /// Notes what a worker does from now on.
    pub(crate) fn note(&self, worker: usize, effort: u32, now_ms: u64) {
        self.efforts[worker].store(effort, Relaxed);
        self.times.note(self.effort() > 0, now_ms);
    }

    /// The most that any worker does, in percent.
    pub(crate) fn effort(&self) -> u32 {
        self.efforts.iter().map(|effort| effort.load(Relaxed)).max().unwrap_or(0)
    }
}

/// Memory of clients, in bytes.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct ClientMemory {
    /// Of all of them.
    pub(crate) all: usize,
    /// Of those that are replicas, without the ring that their stream stands in.
    pub(crate) replicas: usize,
}

/// Memory of a connection before anything has arrived.
pub(crate) const CONNECTION_BYTES: usize = connection_bytes::<Session>();

impl Stats {
    pub(crate) fn new(engine: &Engine, table: &CommandTable, workers: usize, process: Process) -> Self {
        let startup_bytes = engine.keyspace.fixed_bytes() + workers * SHARED_BYTES;
        let codes = Arc::default();
        Self {
            // The last ones are those of the stream of a primary.
            workers: (0..=workers).map(|_| Arc::new(WorkerStatistics::new(table, &codes))).collect(),
            codes,
            keyspace: (0..=workers).map(|_| Arc::default()).collect(),
            logs: CommandLogs::default(),
            latency: LatencyMonitor::default(),
            process,
            network: OnceLock::new(),
            samples: Mutex::default(),
            baseline: Baseline::default(),
            links: LinkTraffic::default(),
            recent: Mutex::default(),
            client_bytes: AtomicUsize::new(0),
            revisited_ms: AtomicU64::new(0),
            peak_bytes: AtomicUsize::new(startup_bytes),
            startup_bytes,
            eviction: ExceededTime::default(),
            defragmentation: DefragmentationStats::new(workers),
            evicted_clients: AtomicU64::new(0),
            console_bytes: AtomicUsize::new(0),
            counted_bytes: AtomicUsize::new(0),
            uncounted_bytes: AtomicUsize::new(0),
        }
    }

    /// The workers' network layer introduces itself; each of them does, the first is kept.
    pub(crate) fn attach(&self, clients: Arc<Clients>, traffic: Arc<[Traffic]>) {
        self.network.get_or_init(|| Network { clients, traffic });
    }

    pub(crate) fn clients(&self) -> Option<&Clients> {
        self.network.get().map(|network| &*network.clients)
    }

    /// The sums of what all workers have read and written since the start. O(workers).
    pub(crate) fn traffic(&self) -> TrafficTotals {
        let mut totals = TrafficTotals::default();
        for traffic in self.network.get().iter().flat_map(|network| network.traffic.iter()) {
            totals.add(traffic);
        }
        totals.add_links(&self.links);
        totals
    }

    /// How long requests took in each stage, in nanoseconds: those of the ticks that workers measure, and every sleep for
    /// a lock. Since the start.
    pub(crate) fn stages(&self) -> [(&'static str, Log2Counts); 4] {
        let sum = |of: fn(&StageTimes) -> &Log2Histogram| {
            let mut sum = Log2Counts::default();
            for traffic in self.network.get().iter().flat_map(|network| network.traffic.iter()) {
                sum.add(&of(&traffic.stages).counts());
            }
            sum
        };
        [
            ("queue", sum(|times| &times.queue)),
            ("lock", lock_sleeps()),
            ("run", sum(|times| &times.run)),
            ("write", sum(|times| &times.write)),
        ]
    }

    /// Nanoseconds in which commands of clients ran, without those that ran inside scripts. O(commands × workers).
    pub(crate) fn commands_ns(&self) -> u64 {
        let workers = &self.workers[..self.workers.len() - 1];
        let all = workers.iter().flat_map(|worker| worker.commands.iter());
        let inside: u64 = workers.iter().map(|worker| worker.calls.nanoseconds.get()).sum();
        all.map(|command| command.nanoseconds.get()).sum::<u64>().saturating_sub(inside)
    }

    /// Commands executed. O(commands × workers).
    pub(crate) fn commands_processed(&self) -> u64 {
        let commands = self.workers.iter().flat_map(|worker| worker.commands.iter());
        commands.map(|command| command.calls.get()).sum()
    }

    /// Sums a counter of what workers did to the keyspace.
    pub(crate) fn keyspace_total(&self, counter: fn(&Statistics) -> &dunlin_engine::Counter) -> u64 {
        self.keyspace.iter().map(|worker| counter(worker).get()).sum()
    }

    /// When the last sample was taken.
    pub(crate) fn sampled_at(&self) -> Option<Instant> {
        lock(&self.samples).last.map(|(at, _)| at)
    }

    /// The rates of the last seconds.
    pub(crate) fn rates(&self) -> Rates {
        lock(&self.samples).average()
    }

    /// Takes a sample.
    pub(crate) fn sample(&self, engine: &Engine, now: Instant) {
        let traffic = self.traffic();
        let counts = Counts {
            commands: self.commands_processed(),
            input_bytes: traffic.input_bytes,
            output_bytes: traffic.output_bytes,
            link_input_bytes: traffic.link_input_bytes,
            link_output_bytes: traffic.link_output_bytes,
            ticks: traffic.ticks,
            tick_ns: traffic.tick_ns,
        };
        lock(&self.samples).add(now, counts);
        self.visit_clients();
        self.peak_bytes(engine);
    }

    /// Sums up what clients hold: their buffers, what they have registered, and their connections. O(clients).
    pub(crate) fn visit_clients(&self) -> ClientMemory {
        let Some(clients) = self.clients() else { return ClientMemory::default() };
        let buffers = clients.buffers();
        let all = buffers.held_bytes + clients.connected() * CONNECTION_BYTES;
        self.client_bytes.store(all, Relaxed);
        let largest = LargestBuffers { input: buffers.input_bytes_max, output: buffers.output_bytes_max };
        lock(&self.recent).note(Now::read().steady_ms / 1000, largest);
        ClientMemory { all, replicas: buffers.replicas_held_bytes + buffers.replicas * CONNECTION_BYTES }
    }

    /// The largest buffers of a client that a sample has seen in the last seconds.
    pub(crate) fn recent_buffers(&self) -> LargestBuffers {
        lock(&self.recent).largest()
    }

    /// Calls [`Self::visit_clients`] for a worker that would refuse or evict something on the strength of the last sum,
    /// which may count a large argument that is gone by now. Runs once in a millisecond at most, and as much rarer as
    /// there are thousands of clients. Returns whether it ran.
    pub(crate) fn revisit_clients(&self, now_ms: u64) -> bool {
        let pause_ms = self.clients().map_or(0, |clients| clients.connected() as u64 / 1000);
        let is_due = now_ms.saturating_sub(self.revisited_ms.load(Relaxed)) > pause_ms;
        if is_due {
            self.revisited_ms.store(now_ms, Relaxed);
            self.visit_clients();
        }
        is_due
    }

    /// Memory that `maxmemory` limits: the keyspace as of now, what clients hold and the rest as of the last visit, at
    /// most a [`SAMPLE_INTERVAL`] ago. O(stripes), no lock.
    pub(crate) fn limited_bytes(&self, engine: &Engine) -> usize {
        self.limited_bytes_with(engine, 0)
    }

    /// The limited bytes once `coming` bytes of arguments are stored. These may already stand in their client's buffer,
    /// and be counted there.
    pub(crate) fn limited_bytes_with(&self, engine: &Engine, coming: usize) -> usize {
        let visited = self.client_bytes.load(Relaxed).max(coming) + self.counted_bytes.load(Relaxed);
        self.startup_bytes + engine.keyspace.used_bytes() + visited
    }

    /// Memory in use (`used_memory`): with what `maxmemory` does not limit. As [`Self::limited_bytes`].
    pub(crate) fn used_bytes(&self, engine: &Engine) -> usize {
        self.limited_bytes(engine) + self.uncounted_bytes.load(Relaxed)
    }

    /// Bytes that clients held at the last visit.
    pub(crate) fn client_bytes(&self) -> usize {
        self.client_bytes.load(Relaxed)
    }

    /// Notes what the rest takes.
    pub(crate) fn note_held(&self, held: &Held) {
        self.counted_bytes.store(held.counted(), Relaxed);
        self.uncounted_bytes.store(held.uncounted(), Relaxed);
    }

    /// The most memory that was in use at any sample, and now.
    pub(crate) fn peak_bytes(&self, engine: &Engine) -> usize {
        let bytes = self.used_bytes(engine);
        self.peak_bytes.fetch_max(bytes, Relaxed).max(bytes)
    }

    /// Starts the statistics of commands, errors and rates anew; [`crate::info::reset`] has the others.
    pub(crate) fn reset(&self) {
        self.codes.reset();
        self.workers.iter().for_each(|worker| worker.reset());
        lock(&self.samples).rates.clear();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_buffers_are_those_of_the_last_seconds() {
        let mut recent = RecentBuffers::default();
        let at = |input: u64, output: u64| LargestBuffers { input, output };
        recent.note(100, at(5, 1));
        recent.note(100, at(3, 2));
        assert_eq!(recent.largest(), at(5, 2));
        recent.note(101, at(4, 0));
        recent.note(107, at(0, 0));
        assert_eq!(recent.largest(), at(5, 2));
        recent.note(108, at(0, 0));
        assert_eq!(recent.largest(), at(4, 0), "the first second is over");
        recent.note(1_000, at(1, 1));
        assert_eq!(recent.largest(), at(1, 1));
    }

    #[test]
    fn rates_are_averages_over_the_samples() {
        let start = Instant::now();
        let mut samples = Samples::default();
        let at = |tenths: u32, commands: u64| {
            (start + SAMPLE_INTERVAL * tenths, Counts { commands, ..Counts::default() })
        };
        for (now, counts) in [at(0, 1000), at(1, 1100), at(2, 1100), at(4, 1140)] {
            samples.add(now, counts);
        }
        let rate = samples.average().commands;
        assert!((rate - (1000.0 + 0.0 + 200.0) / 3.0).abs() < 0.01, "{rate}");
        let (now, counts) = at(5, 0);
        samples.add(now, counts);
        assert!(samples.average().commands >= 0.0, "a reset is no negative rate");
    }
}
