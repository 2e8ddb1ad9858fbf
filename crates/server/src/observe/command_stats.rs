//! The cost of commands: calls, time, failures and a histogram of latencies per command.
//!
//! Every worker has counters of its own, with plain loads and stores, and they are summed when
//! asked. The clock is not read per command: commands of one kind that follow each other and are
//! known to be short form a *run*, whose time is shared out evenly.
//!
//! ```text
//! window   GET GET GET GET │ SADD SADD │ ZRANGE │ GET GET │
//! clock   ▲                ▲           ▲        ▲         ▲
//! ```
//!
//! A run ends where the kind changes, after a command that is not of constant time or has moved
//! much data, and with the window. In exact mode, which low thresholds of the slow log and the
//! latency monitor ask for, or a session of HOTKEYS, every command is a run.
//!
//! Between the commands of a script there is Lua, so they form no runs. Of those that are known to be short one in
//! [`CALLS_PER_SAMPLE`] is timed, and its time is taken for that of the next ones, too.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use dunlin_engine::{
    Counter,
    command::{CommandTable, Entry, Flags, KeyShape, Run},
};

use crate::{
    config::Config,
    observe::error_counts::{ErrorCodes, ErrorCounts},
};

/// Requests and replies above this many bytes end their run.
const LARGE_BYTES: usize = 64 * 1024;
/// Calls of a short command by scripts of which one is timed.
const CALLS_PER_SAMPLE: u8 = 16;
/// Thresholds of the slow log below this many microseconds need exact times.
const EXACT_BELOW_US: i64 = 1000;

/// The counts of one worker for one command.
#[derive(Debug, Default)]
pub(crate) struct CommandCounters {
    /// Executed, whatever came of it.
    pub(crate) calls: Counter,
    /// Time spent executing.
    pub(crate) nanoseconds: Counter,
    /// Of these calls and this time, those by scripts.
    pub(crate) called: Counter,
    pub(crate) called_ns: Counter,
    /// Refused before they ran (arity, authentication, memory).
    pub(crate) rejected: Counter,
    /// Ran and answered an error.
    pub(crate) failed: Counter,
    /// Made by the first recording.
    histogram: OnceLock<Box<Histogram>>,
}

/// The counts of one worker.
#[derive(Debug)]
pub(crate) struct WorkerStatistics {
    /// By [`Entry::index`].
    pub(crate) commands: Box<[CommandCounters]>,
    /// Calls of scripts, which `commands` has, too.
    pub(crate) calls: CommandCounters,
    /// The errors that it has answered.
    pub(crate) errors: ErrorCounts,
    /// Rounds of background expiry that ran out of time, and the time all rounds took.
    pub(crate) expiry_caps: Counter,
    pub(crate) expiry_us: Counter,
    /// Time on the processor so far, in user and kernel mode, in microseconds.
    pub(crate) user_us: Counter,
    pub(crate) system_us: Counter,
}

impl WorkerStatistics {
    pub(crate) fn new(table: &CommandTable, codes: &Arc<ErrorCodes>) -> Self {
        Self {
            commands: table.entries().iter().map(|_| CommandCounters::default()).collect(),
            calls: CommandCounters::default(),
            errors: ErrorCounts::new(Arc::clone(codes)),
            expiry_caps: Counter::default(),
            expiry_us: Counter::default(),
            user_us: Counter::default(),
            system_us: Counter::default(),
        }
    }

    /// Starts the counters of commands and errors anew (`CONFIG RESETSTAT`); additions of this moment may survive.
    pub(crate) fn reset(&self) {
        for command in self.commands.iter().chain([&self.calls]) {
            command.calls.reset();
            command.nanoseconds.reset();
            command.called.reset();
            command.called_ns.reset();
            command.rejected.reset();
            command.failed.reset();
            command.histogram.get().inspect(|histogram| histogram.reset());
        }
        self.errors.reset();
    }
}

/// The counters of one command over all workers.
#[derive(Debug, Default, Clone)]
pub(crate) struct CommandTotals {
    pub(crate) calls: u64,
    pub(crate) nanoseconds: u64,
    pub(crate) called: u64,
    pub(crate) called_ns: u64,
    pub(crate) rejected: u64,
    pub(crate) failed: u64,
    pub(crate) latencies: Latencies,
}

impl CommandTotals {
    /// Sums what `workers` have counted of the command at `index`.
    pub(crate) fn of(workers: &[Arc<WorkerStatistics>], index: usize) -> Self {
        Self::sum(workers.iter().map(|worker| &worker.commands[index]))
    }

    /// Sums what `workers` have counted of scripts' calls, over all commands.
    pub(crate) fn of_calls(workers: &[Arc<WorkerStatistics>]) -> Self {
        Self::sum(workers.iter().map(|worker| &worker.calls))
    }

    fn sum<'a>(all: impl Iterator<Item = &'a CommandCounters>) -> Self {
        let mut totals = Self::default();
        for counters in all {
            totals.calls += counters.calls.get();
            totals.nanoseconds += counters.nanoseconds.get();
            totals.called += counters.called.get();
            totals.called_ns += counters.called_ns.get();
            totals.rejected += counters.rejected.get();
            totals.failed += counters.failed.get();
            counters.histogram.get().inspect(|histogram| totals.latencies.add(histogram));
        }
        totals
    }
}

/// Bits of a latency that tell the buckets of an octave apart: the relative error is below 1/32.
const SUB_BITS: u32 = 5;
/// Latencies of 2^37 ns (137 s) and more share the last bucket.
const BITS_MAX: u32 = 37;
const BUCKETS: usize = ((BITS_MAX - SUB_BITS) as usize + 1) << SUB_BITS;

/// Latencies in nanoseconds, in buckets whose width grows with the value: exact up to 32 ns, then
/// 32 buckets an octave (the layout of HdrHistogram with fewer digits).
pub(crate) struct Histogram([AtomicU64; BUCKETS]);

impl std::fmt::Debug for Histogram {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Histogram")
    }
}

impl Histogram {
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self(std::array::from_fn(|_| AtomicU64::new(0))))
    }

    fn bucket(nanoseconds: u64) -> usize {
        let value = nanoseconds.min((1 << BITS_MAX) - 1);
        let shift = (u64::BITS - (value | ((1 << SUB_BITS) - 1)).leading_zeros()) - SUB_BITS;
        // Values below 32 are their own buckets; above, the leading bit adds one octave.
        let shift = if value < 1 << SUB_BITS { 0 } else { shift - 1 };
        ((shift as usize) << SUB_BITS) + (value >> shift) as usize
    }

    /// The largest latency that falls into a bucket.
    fn highest(bucket: usize) -> u64 {
        let shift = (bucket >> SUB_BITS).saturating_sub(1);
        let first = (bucket - (shift << SUB_BITS)) as u64;
        ((first + 1) << shift) - 1
    }

    /// Counts `count` latencies. Owner only.
    pub(crate) fn record(&self, nanoseconds: u64, count: u64) {
        let bucket = &self.0[Self::bucket(nanoseconds)];
        bucket.store(bucket.load(Relaxed) + count, Relaxed);
    }

    fn reset(&self) {
        self.0.iter().for_each(|bucket| bucket.store(0, Relaxed));
    }
}

/// A sum of histograms.
#[derive(Debug, Default, Clone)]
pub(crate) struct Latencies {
    /// Empty as long as nothing has been added.
    buckets: Vec<u64>,
}

impl Latencies {
    pub(crate) fn add(&mut self, histogram: &Histogram) {
        self.buckets.resize(BUCKETS, 0);
        for (sum, bucket) in self.buckets.iter_mut().zip(&histogram.0) {
            *sum += bucket.load(Relaxed);
        }
    }

    /// The counts that are not among `before`, an earlier sum of these histograms; all if these were reset since.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let mut new = self.clone();
        for (count, before) in new.buckets.iter_mut().zip(&before.buckets) {
            let Some(difference) = count.checked_sub(*before) else { return self.clone() };
            *count = difference;
        }
        new
    }

    /// Takes others away, which are among these.
    pub(crate) fn remove_all(&mut self, others: &Self) {
        self.buckets
            .iter_mut()
            .zip(&others.buckets)
            .for_each(|(sum, count)| *sum = sum.saturating_sub(*count));
    }

    /// Adds others.
    pub(crate) fn add_all(&mut self, others: &Self) {
        if self.buckets.len() < others.buckets.len() {
            self.buckets.resize(others.buckets.len(), 0);
        }
        self.buckets.iter_mut().zip(&others.buckets).for_each(|(sum, count)| *sum += count);
    }

    /// The longest in nanoseconds, to the precision of the buckets; 0 when there are none.
    pub(crate) fn longest(&self) -> u64 {
        self.buckets.iter().rposition(|count| *count > 0).map_or(0, Histogram::highest)
    }

    /// How many.
    pub(crate) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The latency in nanoseconds that `percentile` percent do not exceed, to the precision of the
    /// buckets; 0 when there are none.
    pub(crate) fn percentile(&self, percentile: f64) -> u64 {
        let wanted = ((percentile / 100.0 * self.count() as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Histogram::highest(bucket);
            }
        }
        0
    }

    /// How many latencies lie below two to the power of each of `powers` (ascending, 5 to 37), in nanoseconds. O(buckets).
    pub(crate) fn below(&self, powers: &[u32]) -> Vec<u64> {
        let (mut seen, mut next) = (0, 0);
        let add = |power: &u32| {
            let end = Histogram::bucket((1 << power) - 1) + 1;
            seen += self.buckets.get(next..end).map_or(0, |buckets| buckets.iter().sum());
            next = end;
            seen
        };
        powers.iter().map(add).collect()
    }

    /// How many latencies lie below each power of two from 1024 ns on, in microseconds; powers that
    /// add none are left out.
    pub(crate) fn cumulative(&self) -> Vec<(u64, u64)> {
        let (mut rows, mut seen, mut told) = (Vec::new(), 0, 0);
        let mut bound: u64 = 1024;
        for (bucket, count) in self.buckets.iter().enumerate() {
            while Histogram::highest(bucket) >= bound {
                if seen > told {
                    rows.push((Self::label(bound), seen));
                    told = seen;
                }
                bound *= 2;
            }
            seen += count;
        }
        if seen > told {
            rows.push((Self::label(bound), seen));
        }
        rows
    }

    /// The value by which tools know a power of two: in the histogram of two digits that they were made for,
    /// the bucket of 2^k ends 1/128 above it.
    fn label(bound: u64) -> u64 {
        (bound + bound / 128 - 1) / 1000
    }
}

/// The directives about measuring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Thresholds {
    /// Every command is timed by itself.
    exact: bool,
    /// Whether histograms are kept.
    tracking: bool,
    /// From here on a command is slow, in nanoseconds.
    pub(crate) slow_ns: u64,
    /// From here on a command is a latency event, in milliseconds.
    pub(crate) event_ms: u64,
    /// Above this many bytes, a request is large.
    pub(crate) request_bytes: u64,
    /// Above this many bytes, a reply is large.
    pub(crate) reply_bytes: u64,
}

impl Thresholds {
    pub(crate) fn new(config: &Config) -> Self {
        let slower_than_us = config.slowlog_log_slower_than;
        let from = |value: i64| u64::try_from(value).unwrap_or(u64::MAX);
        let event_ms = config.latency_monitor_threshold;
        Self {
            exact: (0..EXACT_BELOW_US).contains(&slower_than_us) || event_ms > 0,
            tracking: config.latency_tracking,
            slow_ns: from(slower_than_us).saturating_mul(1000),
            event_ms: if event_ms == 0 { u64::MAX } else { event_ms },
            request_bytes: from(config.commandlog_request_larger_than),
            reply_bytes: from(config.commandlog_reply_larger_than),
        }
    }
}

/// A run that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Measured {
    /// The command of the run, by [`Entry::index`].
    pub(crate) index: usize,
    /// How many.
    pub(crate) count: u64,
    /// How long they took together.
    pub(crate) nanoseconds: u64,
}

/// A run that others have interrupted.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    index: usize,
    count: u64,
    since: Instant,
    alone: bool,
}

/// The last measurement of a command that scripts have called.
#[derive(Debug, Default, Clone, Copy)]
struct CallSample {
    nanoseconds: u64,
    /// How many more calls it stands for.
    calls_left: u8,
}

/// The stopwatch of one worker.
#[derive(Debug)]
pub(crate) struct Meter {
    statistics: Arc<WorkerStatistics>,
    thresholds: Thresholds,
    /// By [`Entry::index`]: takes so little time, whatever its arguments of usual size, that runs
    /// are as good as single measurements.
    brief: Box<[bool]>,
    /// By [`Entry::index`].
    samples: Box<[CallSample]>,
    /// The command of the current run and how many of it there were.
    index: usize,
    count: u64,
    /// When the run began.
    since: Instant,
    /// The command at hand must be timed by itself.
    alone: bool,
    /// Whether a client wants the time of each command, whatever the configuration says.
    times_each: bool,
    /// Requests and replies from here on end their run.
    large_request: usize,
    large_reply: usize,
}

impl Meter {
    pub(crate) fn new(statistics: Arc<WorkerStatistics>, table: &CommandTable, config: &Config) -> Self {
        let brief: Box<[bool]> = table.entries().iter().map(is_brief).collect();
        let samples = vec![CallSample::default(); brief.len()].into();
        let thresholds = Thresholds::new(config);
        let mut meter = Self {
            statistics,
            thresholds,
            brief,
            samples,
            index: 0,
            count: 0,
            since: Instant::now(),
            alone: false,
            times_each: false,
            large_request: 0,
            large_reply: 0,
        };
        meter.configure(config);
        meter
    }

    /// Follows a change of the configuration.
    pub(crate) fn configure(&mut self, config: &Config) {
        self.thresholds = Thresholds::new(config);
        self.thresholds.exact |= self.times_each;
        let clip = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX).min(LARGE_BYTES);
        self.large_request = clip(self.thresholds.request_bytes);
        self.large_reply = clip(self.thresholds.reply_bytes);
    }

    /// Times each command by itself from the next one on, or as the configuration says.
    pub(crate) fn time_each(&mut self, times_each: bool, config: &Config) {
        self.times_each = times_each;
        self.configure(config);
    }

    pub(crate) fn thresholds(&self) -> &Thresholds {
        &self.thresholds
    }

    pub(crate) fn statistics(&self) -> &WorkerStatistics {
        &self.statistics
    }

    /// A window begins.
    #[inline]
    pub(crate) fn start(&mut self) {
        debug_assert_eq!(self.count, 0, "the last window was measured to its end");
        self.since = Instant::now();
    }

    /// A command is about to run.
    #[inline]
    pub(crate) fn begin(&mut self, index: usize) {
        if self.index != index {
            if self.count > 0 {
                self.finish();
            }
            self.index = index;
        }
        self.count += 1;
        self.alone = self.thresholds.exact || !self.brief[index];
    }

    /// The command that was begun last has not run after all.
    pub(crate) fn take_back(&mut self) {
        self.count -= 1;
    }

    /// The command that was begun last is left unfinished: it is counted when it ends. Returns how long it has taken
    /// so far; nothing if it is one of a run, whose time that is.
    pub(crate) fn set_aside(&mut self) -> u64 {
        self.count -= 1;
        if self.finish().is_some() {
            return 0;
        }
        Instant::now().duration_since(self.since).as_nanos() as u64
    }

    /// A script is about to call a command. Returns when that begins, if it is to be timed.
    #[inline]
    pub(crate) fn begin_call(&mut self, index: usize) -> Option<Instant> {
        let sample = &mut self.samples[index];
        if sample.calls_left > 0 && self.brief[index] && !self.thresholds.exact {
            sample.calls_left -= 1;
            return None;
        }
        Some(Instant::now())
    }

    /// Counts a command that a script has called. Returns its time, if it was timed.
    #[inline]
    pub(crate) fn end_call(&mut self, index: usize, begun: Option<Instant>) -> Option<u64> {
        if let Some(begun) = begun {
            let nanoseconds = begun.elapsed().as_nanos() as u64;
            self.samples[index] = CallSample { nanoseconds, calls_left: CALLS_PER_SAMPLE - 1 };
        }
        let nanoseconds = self.samples[index].nanoseconds;
        self.count_alone(index, nanoseconds);
        let counters = &self.statistics.commands[index];
        counters.called.add(1);
        counters.called_ns.add(nanoseconds);
        self.add(&self.statistics.calls, nanoseconds);
        begun.map(|_| nanoseconds)
    }

    /// Stops in the middle of a run, so that others can be measured.
    pub(crate) fn stop(&mut self) -> Stopwatch {
        let stopped =
            Stopwatch { index: self.index, count: self.count, since: self.since, alone: self.alone };
        (self.count, self.alone) = (0, false);
        stopped
    }

    /// Goes on with a run.
    pub(crate) fn go_on(&mut self, stopped: Stopwatch) {
        debug_assert_eq!(self.count, 0, "others were measured to their end");
        Stopwatch { index: self.index, count: self.count, since: self.since, alone: self.alone } = stopped;
    }

    /// Counts a command that was timed by itself.
    pub(crate) fn count_alone(&self, index: usize, nanoseconds: u64) -> Measured {
        self.add(&self.statistics.commands[index], nanoseconds);
        Measured { index, count: 1, nanoseconds }
    }

    fn add(&self, counters: &CommandCounters, nanoseconds: u64) {
        counters.calls.add(1);
        counters.nanoseconds.add(nanoseconds);
        if self.thresholds.tracking {
            counters.histogram.get_or_init(Histogram::new).record(nanoseconds, 1);
        }
    }

    /// Whether the command that has just run must be measured now.
    #[inline]
    pub(crate) fn is_due(&self, request_bytes: usize, reply_bytes: usize) -> bool {
        self.alone || request_bytes > self.large_request || reply_bytes > self.large_reply
    }

    /// Ends the current run and counts it; `None` when nothing ran.
    #[inline(never)]
    pub(crate) fn finish(&mut self) -> Option<Measured> {
        self.alone = false;
        if self.count == 0 {
            return None;
        }
        let now = Instant::now();
        let nanoseconds = now.duration_since(self.since).as_nanos() as u64;
        let measured = Measured { index: self.index, count: self.count, nanoseconds };
        let counters = &self.statistics.commands[self.index];
        counters.calls.add(self.count);
        counters.nanoseconds.add(nanoseconds);
        if self.thresholds.tracking {
            let histogram = counters.histogram.get_or_init(Histogram::new);
            histogram.record(nanoseconds / self.count, self.count);
        }
        self.since = now;
        self.count = 0;
        Some(measured)
    }
}

/// Whether a command does so little that timing it by itself would cost more than it does: constant
/// or logarithmic time as its row says, or constant time on one key.
fn is_brief(entry: &Entry) -> bool {
    let command = entry.command;
    let on_values = matches!(command.run, Run::Read(_) | Run::Write(_) | Run::Block(_));
    let on_one_key = matches!(entry.keys, KeyShape::One(_));
    let waits = command.flags.has(Flags::BLOCKING);
    on_values
        && !waits
        && (command.flags.has(Flags::FAST) || (on_one_key && command.complexity.starts_with("O(1)")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_contiguous_and_narrow() {
        let mut previous = 0;
        for bucket in 0..BUCKETS {
            let highest = Histogram::highest(bucket);
            assert_eq!(Histogram::bucket(highest), bucket);
            let lowest = if bucket == 0 { 0 } else { previous + 1 };
            assert_eq!(Histogram::bucket(lowest), bucket, "from {lowest}");
            assert!((highest - lowest) * 32 <= highest, "{lowest} to {highest}");
            previous = highest;
        }
        assert_eq!(previous, (1 << BITS_MAX) - 1);
        assert_eq!(Histogram::bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_and_cumulative_counts() {
        let histogram = Histogram::new();
        for (nanoseconds, count) in [(500, 90), (3_000, 9), (40_000_000, 1)] {
            histogram.record(nanoseconds, count);
        }
        let mut latencies = Latencies::default();
        latencies.add(&histogram);
        assert_eq!(latencies.count(), 100);
        assert!((500..520).contains(&latencies.percentile(50.0)));
        assert!((3_000..3_100).contains(&latencies.percentile(99.0)));
        assert!((40_000_000..41_300_000).contains(&latencies.percentile(99.9)));
        assert_eq!(latencies.cumulative(), [(1, 90), (4, 99), (67633, 100)]);
        assert_eq!(Latencies::default().percentile(50.0), 0);
    }

    fn meter(change: impl FnOnce(&mut Config)) -> (Meter, usize, usize, usize) {
        let table = CommandTable::new(dunlin_engine::commands::FAMILIES);
        let mut config = Config::default();
        change(&mut config);
        let statistics = Arc::new(WorkerStatistics::new(&table, &Arc::default()));
        let index = |name: &[u8]| table.find(name).unwrap().index;
        (Meter::new(statistics, &table, &config), index(b"get"), index(b"set"), index(b"incr"))
    }

    #[test]
    fn run_ends_when_the_command_changes() {
        let (mut meter, get, set, _) = meter(|_| ());
        meter.start();
        for index in [get, get, get, set, set] {
            meter.begin(index);
            assert!(!meter.is_due(100, 100), "short commands are not timed one by one");
        }
        let calls = |meter: &Meter, index: usize| meter.statistics.commands[index].calls.get();
        assert_eq!((calls(&meter, get), calls(&meter, set)), (3, 0));
        let last = meter.finish().unwrap();
        assert_eq!((last.index, last.count), (set, 2));
        assert_eq!((calls(&meter, get), calls(&meter, set)), (3, 2));
        assert_eq!(meter.finish(), None);
    }

    #[test]
    fn calls_by_scripts_are_counted_apart_too() {
        let (mut meter, get, set, _) = meter(|_| ());
        for index in [get, set, get] {
            let begun = meter.begin_call(index);
            meter.end_call(index, begun);
        }
        meter.count_alone(get, 7);
        let workers = [Arc::clone(&meter.statistics)];
        let totals = CommandTotals::of(&workers, get);
        assert_eq!((totals.calls, totals.called), (3, 2));
        assert_eq!(totals.nanoseconds - totals.called_ns, 7, "the time of requests is the rest");
    }

    #[test]
    fn unfinished_command_is_counted_when_it_ends() {
        let (mut meter, get, set, _) = meter(|_| ());
        let calls = |meter: &Meter, index: usize| meter.statistics.commands[index].calls.get();
        meter.start();
        meter.begin(get);
        meter.begin(set);
        meter.set_aside();
        assert_eq!(meter.finish(), None);
        assert_eq!((calls(&meter, get), calls(&meter, set)), (1, 0));
        meter.count_alone(set, 7);
        assert_eq!((calls(&meter, set), meter.statistics.commands[set].nanoseconds.get()), (1, 7));

        meter.start();
        meter.begin(get);
        meter.begin(get);
        assert_eq!(meter.set_aside(), 0, "it is one of a run");
        assert_eq!((calls(&meter, get), meter.finish()), (2, None));
    }

    #[test]
    fn calls_of_scripts_are_all_counted_and_some_of_the_short_ones_are_timed() {
        let timed = |meter: &mut Meter, index: usize| -> usize {
            let calls = (0..2 * usize::from(CALLS_PER_SAMPLE)).map(|_| {
                let begun = meter.begin_call(index);
                meter.end_call(index, begun)
            });
            calls.flatten().count()
        };
        let (mut meter, get, ..) = meter(|_| ());
        assert_eq!(timed(&mut meter, get), 2);
        let counters = &meter.statistics.commands[get];
        assert_eq!(
            (
                counters.calls.get(),
                CommandTotals::of(&[Arc::clone(&meter.statistics)], get).latencies.count()
            ),
            (32, 32)
        );
        let (mut exact, get, ..) = self::meter(|config| config.slowlog_log_slower_than = 0);
        assert_eq!(timed(&mut exact, get), 32);
        let table = CommandTable::new(dunlin_engine::commands::FAMILIES);
        let keys = table.find(b"keys").unwrap().index;
        assert_eq!(timed(&mut meter, keys), 32, "it may take long");
    }

    #[test]
    fn run_ends_after_much_data() {
        let (mut meter, get, ..) = meter(|config| config.commandlog_reply_larger_than = 1000);
        meter.start();
        meter.begin(get);
        assert!(meter.is_due(LARGE_BYTES + 1, 0));
        assert!(!meter.is_due(LARGE_BYTES, 1000));
        assert!(meter.is_due(0, 1001), "the command log asks for it");
    }

    #[test]
    fn low_thresholds_ask_for_exact_times() {
        for (slower_than_us, monitor_ms, exact) in [
            (10_000, 0, false),
            (-1, 0, false),
            (1000, 0, false),
            (999, 0, true),
            (0, 0, true),
            (-1, 5, true),
        ] {
            let (mut meter, get, ..) = meter(|config| {
                config.slowlog_log_slower_than = slower_than_us;
                config.latency_monitor_threshold = monitor_ms;
            });
            meter.start();
            meter.begin(get);
            assert_eq!(meter.is_due(0, 0), exact, "{slower_than_us} {monitor_ms}");
        }
    }
}
