//! HOTKEYS: which keys take the processor's time and the network's bytes.
//!
//! ```text
//! HotKeys ── session: options, start, end ─┬─ worker 0: totals │ heavy keys by time │ by bytes
//!                                          └─ worker 1: …
//! ```
//!
//! There is one session at a time. Each worker notes what it has run in a collector of its own, whose lock is contended
//! only while a client asks; the collectors are summed then. A command's time and bytes are shared out evenly among its
//! keys. A script counts as one command on the keys that it was called with, those of a transaction one by one, and one
//! that waits for a key as it was when it came.
//!
//! While no session runs, a worker looks at one number a tick and nothing is done per command: a session has the meter time
//! every command by itself, and what the meter measures is noted.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use dunlin_net::Now;

use crate::system::host::ProcessorTime;

/// Keys that a worker counts at a time, by each of the metrics.
const COUNTERS_MAX: usize = 1024;
/// Longer keys are left out, so that a few of them cannot take much memory.
const KEY_BYTES_MAX: usize = 16 * 1024;

/// The plan of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HotKeyOptions {
    /// Whether to count the processor's time.
    pub(crate) by_time: bool,
    /// Whether to count the bytes of requests and replies.
    pub(crate) by_bytes: bool,
    /// How many keys are told.
    pub(crate) count: usize,
    /// When it ends by itself; `None` for never.
    pub(crate) duration: Option<Duration>,
    /// The number of commands of which one is looked at.
    pub(crate) sample_ratio: u32,
}

/// The keys with the largest sums, in bounded memory.
///
/// If the table is full, what its middle counter has is taken off all, and those that have nothing left go: Misra and
/// Gries, 1982, in the form of Anderson et al., 2017, "A High-Performance Algorithm for Identifying Frequent Items in
/// Data Streams". A counter is never too high, and too low by less than `2 × total / COUNTERS_MAX`; it is exact while
/// there are at most as many keys as counters. O(1) amortized.
#[derive(Debug, Default)]
pub(super) struct HeavyKeys {
    pub(super) counters: HashMap<Box<[u8]>, u64>,
    /// All that was added, whatever became of it.
    pub(super) total: u64,
}

impl HeavyKeys {
    pub(super) fn add(&mut self, key: &[u8], amount: u64) {
        self.total += amount;
        if key.len() > KEY_BYTES_MAX || amount == 0 {
            return;
        }
        if let Some(counter) = self.counters.get_mut(key) {
            *counter += amount;
            return;
        }
        if self.counters.len() >= COUNTERS_MAX {
            self.prune();
        }
        self.counters.insert(key.into(), amount);
    }

    /// Bytes of the table and the keys in it.
    fn used_bytes(&self) -> usize {
        let keys: usize = self.counters.keys().map(|key| key.len()).sum();
        // The table has a byte of metadata for each place.
        keys + self.counters.capacity() * (size_of::<(Box<[u8]>, u64)>() + 1)
    }

    #[cold]
    fn prune(&mut self) {
        let mut amounts: Vec<u64> = self.counters.values().copied().collect();
        let middle = amounts.len() / 2;
        let (_, median, _) = amounts.select_nth_unstable(middle);
        let median = *median;
        self.counters.retain(|_, counter| {
            *counter = counter.saturating_sub(median);
            *counter > 0
        });
    }
}

/// The collection of one worker.
#[derive(Debug, Default)]
struct Collector {
    /// The time of all commands with keys.
    nanoseconds: u64,
    bytes: u64,
    by_time: HeavyKeys,
    by_bytes: HeavyKeys,
}

/// The collections of all workers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Collected {
    /// The processor's time for all commands with keys, in nanoseconds.
    pub(crate) nanoseconds: u64,
    /// The bytes of their requests and replies.
    pub(crate) bytes: u64,
    /// The bytes of those that were looked at.
    pub(crate) sampled_bytes: u64,
    /// Keys with their nanoseconds, the largest first.
    pub(crate) by_time: Vec<(Box<[u8]>, u64)>,
    /// Keys with their bytes, the largest first.
    pub(crate) by_bytes: Vec<(Box<[u8]>, u64)>,
}

/// A session of HOTKEYS.
#[derive(Debug)]
pub(crate) struct HotKeySession {
    pub(crate) options: HotKeyOptions,
    /// When it began, in Unix milliseconds.
    pub(crate) started_ms: u64,
    started: Instant,
    /// The process's processor time of that moment.
    pub(crate) processor_time: ProcessorTime,
    stopped: OnceLock<Instant>,
    /// By worker.
    collectors: Box<[Mutex<Collector>]>,
}

impl HotKeySession {
    fn new(options: HotKeyOptions, workers: usize, now: Now) -> Self {
        Self {
            options,
            started_ms: now.unix_ms,
            started: now.instant,
            processor_time: ProcessorTime::of_process(),
            stopped: OnceLock::new(),
            collectors: (0..workers).map(|_| Mutex::default()).collect(),
        }
    }

    /// How long it has collected.
    pub(crate) fn age(&self, now: Instant) -> Duration {
        let age = self.stopped.get().unwrap_or(&now).saturating_duration_since(self.started);
        self.options.duration.map_or(age, |duration| duration.min(age))
    }

    /// Whether it goes on collecting.
    pub(crate) fn is_active(&self, now: Instant) -> bool {
        self.stopped.get().is_none() && self.options.duration.is_none_or(|duration| self.age(now) < duration)
    }

    fn collector(&self, worker: usize) -> MutexGuard<'_, Collector> {
        self.collectors[worker].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a command has cost; nothing if it has no keys. `random` decides whether its keys are looked at.
    pub(crate) fn note<'a>(
        &self,
        worker: usize,
        keys: impl Iterator<Item = &'a [u8]> + Clone,
        (nanoseconds, bytes): (u64, u64),
        random: u64,
    ) {
        let count = keys.clone().count() as u64;
        if count == 0 {
            return;
        }
        let mut collector = self.collector(worker);
        collector.nanoseconds += nanoseconds;
        collector.bytes += bytes;
        if !random.is_multiple_of(u64::from(self.options.sample_ratio)) {
            return;
        }
        for key in keys {
            if self.options.by_time {
                collector.by_time.add(key, nanoseconds / count);
            }
            if self.options.by_bytes {
                collector.by_bytes.add(key, bytes / count);
            }
        }
    }

    /// Bytes that it takes.
    pub(crate) fn used_bytes(&self) -> usize {
        let workers = 0..self.collectors.len();
        let tables = workers.map(|worker| {
            let collector = self.collector(worker);
            size_of::<Mutex<Collector>>() + collector.by_time.used_bytes() + collector.by_bytes.used_bytes()
        });
        size_of::<Self>() + tables.sum::<usize>()
    }

    /// The collections of all workers.
    pub(crate) fn collected(&self) -> Collected {
        let mut sum = Collected::default();
        let (mut by_time, mut by_bytes) = (HashMap::new(), HashMap::new());
        for worker in 0..self.collectors.len() {
            let collector = self.collector(worker);
            sum.nanoseconds += collector.nanoseconds;
            sum.bytes += collector.bytes;
            sum.sampled_bytes += collector.by_bytes.total;
            for (sums, heavy) in [(&mut by_time, &collector.by_time), (&mut by_bytes, &collector.by_bytes)] {
                for (key, amount) in &heavy.counters {
                    *sums.entry(key.clone()).or_insert(0) += *amount;
                }
            }
        }
        sum.by_time = largest(by_time, self.options.count);
        sum.by_bytes = largest(by_bytes, self.options.count);
        sum
    }
}

/// The keys with the largest sums, those before the others; of equal sums the smaller key.
fn largest(sums: HashMap<Box<[u8]>, u64>, count: usize) -> Vec<(Box<[u8]>, u64)> {
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_unstable_by(|(key, sum), (other, others)| others.cmp(sum).then_with(|| key.cmp(other)));
    sums.truncate(count);
    sums
}

/// The session that there is.
#[derive(Debug, Default)]
pub(crate) struct HotKeys {
    session: Mutex<Option<Arc<HotKeySession>>>,
    /// Grows with whatever happens to it: what workers look at.
    changes: AtomicU64,
}

impl HotKeys {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<HotKeySession>>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A number that differs from former ones if something has happened to the session.
    #[inline]
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    /// The session, running or not.
    pub(crate) fn session(&self) -> Option<Arc<HotKeySession>> {
        self.lock().clone()
    }

    /// Begins a session in the place of the last one; `false` if one is running.
    pub(crate) fn start(&self, options: HotKeyOptions, workers: usize, now: Now) -> bool {
        let mut session = self.lock();
        if session.as_ref().is_some_and(|session| session.is_active(now.instant)) {
            return false;
        }
        *session = Some(Arc::new(HotKeySession::new(options, workers, now)));
        self.changes.fetch_add(1, Relaxed);
        true
    }

    /// Ends the session, whose results stay; `false` if none is running.
    pub(crate) fn stop(&self, now: Instant) -> bool {
        let session = self.lock();
        let Some(session) = session.as_ref().filter(|session| session.is_active(now)) else { return false };
        session.stopped.get_or_init(|| now);
        self.changes.fetch_add(1, Relaxed);
        true
    }

    /// Forgets the session; `false` if it is running.
    pub(crate) fn reset(&self, now: Instant) -> bool {
        let mut session = self.lock();
        if session.as_ref().is_some_and(|session| session.is_active(now)) {
            return false;
        }
        *session = None;
        self.changes.fetch_add(1, Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> HotKeyOptions {
        HotKeyOptions { by_time: true, by_bytes: true, count: 2, duration: None, sample_ratio: 1 }
    }

    fn now() -> Now {
        Now { unix_ms: 1_700_000_000_000, ..Now::read() }
    }

    fn told(keys: &[(Box<[u8]>, u64)]) -> Vec<(String, u64)> {
        keys.iter().map(|(key, sum)| (String::from_utf8_lossy(key).into_owned(), *sum)).collect()
    }

    #[test]
    fn workers_are_summed_and_costs_shared_among_keys() {
        let session = HotKeySession::new(options(), 2, now());
        let note = |worker, keys: &[&'static str], cost| {
            session.note(worker, keys.iter().map(|key| key.as_bytes()), cost, 0);
        };
        note(0, &["a"], (100, 10));
        note(1, &["a", "b"], (60, 40));
        note(1, &["c", "c"], (61, 1));
        note(0, &[], (1000, 1000));
        let collected = session.collected();
        assert_eq!((collected.nanoseconds, collected.bytes, collected.sampled_bytes), (221, 51, 50));
        assert_eq!(told(&collected.by_time), [("a".to_owned(), 130), ("c".to_owned(), 60)]);
        assert_eq!(told(&collected.by_bytes), [("a".to_owned(), 30), ("b".to_owned(), 20)]);
    }

    #[test]
    fn totals_count_what_the_sample_leaves_out() {
        let session = HotKeySession::new(HotKeyOptions { sample_ratio: 4, ..options() }, 1, now());
        for random in 0..8 {
            session.note(0, [b"k".as_slice()].into_iter(), (10, 5), random);
        }
        let collected = session.collected();
        assert_eq!((collected.nanoseconds, collected.bytes, collected.sampled_bytes), (80, 40, 10));
        assert_eq!(told(&collected.by_time), [("k".to_owned(), 20)]);
    }

    /// A hundred heavy keys among a hundred thousand light ones.
    #[test]
    fn heavy_keys_are_found_in_bounded_memory() {
        let mut heavy = HeavyKeys::default();
        for round in 0..1000u32 {
            for light in 0..100 {
                heavy.add(format!("light:{round}:{light}").as_bytes(), 1);
            }
            for key in 0..100u64 {
                heavy.add(format!("heavy:{key}").as_bytes(), 10 + key);
            }
            assert!(heavy.counters.len() <= COUNTERS_MAX);
        }
        let error_max = 2 * heavy.total / COUNTERS_MAX as u64;
        for key in 0..100 {
            let (exact, counted) = (1000 * (10 + key), heavy.counters[format!("heavy:{key}").as_bytes()]);
            assert!(counted <= exact && counted + error_max >= exact, "{key}: {counted} of {exact}");
        }
        heavy.add(&[b'k'; KEY_BYTES_MAX + 1], 1 << 40);
        assert!(heavy.counters.values().all(|counter| *counter < 1 << 40), "too long to be kept");
    }

    #[test]
    fn hotkeys_has_one_session_that_ends_by_itself() {
        let (keys, now) = (HotKeys::default(), now());
        let later =
            |ms| Now { unix_ms: now.unix_ms + ms, instant: now.instant + Duration::from_millis(ms), ..now };
        assert!(!keys.stop(now.instant), "nothing to stop");
        assert!(keys.reset(now.instant));
        assert!(keys.start(options(), 1, now));
        assert!(!keys.start(options(), 1, later(1)));
        assert!(!keys.reset(now.instant));
        assert!(keys.stop(later(20).instant));
        assert!(!keys.stop(later(30).instant));
        let session = keys.session().unwrap();
        assert_eq!(session.age(later(99).instant), Duration::from_millis(20));
        let timed = HotKeyOptions { duration: Some(Duration::from_millis(50)), ..options() };
        assert!(keys.start(timed, 1, later(100)));
        let session = keys.session().unwrap();
        assert!(session.is_active(later(149).instant) && !session.is_active(later(150).instant));
        assert_eq!(session.age(later(999).instant), Duration::from_millis(50));
        assert!(!keys.stop(later(150).instant));
        assert!(keys.reset(later(150).instant));
        assert!(keys.session().is_none());
    }
}
