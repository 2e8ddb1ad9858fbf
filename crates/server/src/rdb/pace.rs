//! How fast a snapshot goes: as fast as it can while there are cores to spare, and with a small share of them
//! while there are none.
//!
//! The walk goes in slices, each under the lock of one stripe: short enough that a client which needs the stripe does
//! not notice. Between them it rests, so that its thread takes no more than its share of a core. Copies by commands
//! have to be written at once and count too: while there are many, the walk rests longer, up to a limit that lets it
//! come to an end.
//!
//! A snapshot for replicas takes a larger share whatever there is to do: the stream behind it waits in memory until it has
//! arrived, and until then there is no replica.
//!
//! ```text
//! share   1 ┤              ╭──────      work ▮ and rest    ▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮▮  cores to spare
//!           │          ╭───╯                               ▮▯▯▯▯▯▮▯▯▯▯▯▮▯▯▯▯  none
//!     least ┤──────────╯
//!           └──────────┬───┬──────      cores that neither this process nor others of the machine use
//!                   margin  1 + margin
//! ```

use std::time::{Duration, Instant};

use crate::system::host::{IdleTime, ProcessorTime};

/// How long a slice holds a lock, about.
const SLICE: Duration = Duration::from_micros(10);
/// Bytes that a slice copies at least and at most.
const BUDGET_BYTES: (usize, usize) = (1024, 512 * 1024);
/// Slices between two rests: sleeping has a price of its own, and a precision; but a longer turn keeps a worker or a
/// client from its core, and others wait for that one.
const SLICES_PER_REST: u32 = 10;
/// The longest rest: with this the walk has a fiftieth of a core at least, however much writers copy.
const REST_MAX: Duration = Duration::from_millis(5);
/// The share of all cores that it may take whatever else there is to do. Writing others' copies counts, too: while
/// there is much of it, the walk rests for as long as it may, and it gets faster as the copies get fewer.
const CORES_MIN: f64 = 0.015;
/// The least share of all cores for a snapshot that replicas wait for.
const CORES_MIN_FOR_REPLICAS: f64 = 0.125;
/// The share of all cores that it leaves idle, but for that: with less, others wait for a core now and then.
const CORES_MARGIN: f64 = 0.15;
/// How long the processors are watched between two judgements, the first time and later.
const WATCH: (Duration, Duration) = (Duration::from_millis(30), Duration::from_millis(100));
/// How much larger the share becomes by one judgement at most: processors are idle for a moment, too, when the
/// threads that keep them busy wait for the disk.
const GROWTH_MAX: f64 = 4.0;
/// The share of a core from which on there is time for work that makes files smaller.
const LEISURE: f64 = 0.5;

/// The destination of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Destination {
    /// A file.
    File,
    /// The sockets of replicas.
    Replicas,
}

impl Destination {
    /// The share of all cores that is taken whatever else there is to do.
    fn cores_min(self) -> f64 {
        match self {
            Self::File => CORES_MIN,
            Self::Replicas => CORES_MIN_FOR_REPLICAS,
        }
    }
}

/// The pace of one snapshot.
#[derive(Debug)]
pub(super) struct Pace {
    destination: Destination,
    budget_bytes: usize,
    slices: u32,
    /// Time on the processor at the end of the last rest.
    rested_at: Duration,
    watch: Watch,
    /// The share of a core that its thread may take, up to 1.
    share: f64,
    /// Whether there is time for work that makes files smaller.
    has_leisure: bool,
}

impl Pace {
    /// The pace of the calling thread.
    pub(super) fn new(destination: Destination) -> Self {
        let watch = Watch::begin(WATCH.0);
        let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
        // Careful until it is known: a snapshot is often begun while there is most to do.
        let share = share_of(0.0, cores, destination.cores_min());
        Self {
            destination,
            budget_bytes: BUDGET_BYTES.0,
            slices: 0,
            rested_at: watch.own,
            watch,
            share,
            has_leisure: false,
        }
    }

    /// Does a slice of work, which gets the number of bytes that it may copy.
    pub(super) fn slice<R>(&mut self, work: impl FnOnce(usize) -> R) -> R {
        let begun = Instant::now();
        let result = work(self.budget_bytes);
        let took = begun.elapsed();
        self.slices += 1;
        // A slice during which the thread was not let run shows nothing: the budget is halved or doubled at most.
        let fitting = self.budget_bytes as f64 * SLICE.as_secs_f64() / took.as_secs_f64().max(1e-9);
        let near = fitting.clamp(self.budget_bytes as f64 / 2.0, self.budget_bytes as f64 * 2.0);
        self.budget_bytes = (near as usize).clamp(BUDGET_BYTES.0, BUDGET_BYTES.1);
        result
    }

    /// How long to rest now.
    pub(super) fn rest(&mut self) -> Duration {
        if self.slices < SLICES_PER_REST {
            return Duration::ZERO;
        }
        self.slices = 0;
        if let Some((idle, cores)) = self.watch.judge() {
            self.share = next_share(self.share, share_of(idle, cores, self.destination.cores_min()));
            self.has_leisure = share_of(idle, cores, 0.0) >= LEISURE;
        }
        let own = ProcessorTime::of_thread().total();
        let worked = own.saturating_sub(std::mem::replace(&mut self.rested_at, own));
        worked.mul_f64(1.0 / self.share - 1.0).min(REST_MAX)
    }

    /// Whether there is time to make the file smaller.
    pub(super) fn has_leisure(&self) -> bool {
        self.has_leisure
    }
}

/// Returns the share of a core for a thread that finds `idle` of `cores` cores idle, and takes a share of `cores_min`
/// of them all at least.
fn share_of(idle: f64, cores: f64, cores_min: f64) -> f64 {
    (idle - cores * CORES_MARGIN).max(cores * cores_min).min(1.0)
}

/// The share after one of `before`, for a thread that finds one of `found`.
fn next_share(before: f64, found: f64) -> f64 {
    found.min(before * GROWTH_MAX)
}

/// The time of the processors, watched for a while.
#[derive(Debug)]
struct Watch {
    since: Instant,
    until: Instant,
    /// Time on the processor of the calling thread, and of the process.
    own: Duration,
    process: Duration,
    /// The machine's idle time; `None` if the system does not report it.
    idle: Option<IdleTime>,
}

impl Watch {
    fn begin(time: Duration) -> Self {
        let since = Instant::now();
        let own = ProcessorTime::of_thread().total();
        let process = ProcessorTime::of_process().total();
        Self { since, until: since + time, own, process, idle: IdleTime::now() }
    }

    /// The cores that others leave to the calling thread, and how many there are, when it is time to look again.
    fn judge(&mut self) -> Option<(f64, f64)> {
        if Instant::now() < self.until {
            return None;
        }
        let before = std::mem::replace(self, Self::begin(WATCH.1));
        let took = (self.since - before.since).as_secs_f64();
        let own = (self.own - before.own).as_secs_f64() / took;
        let process = (self.process - before.process).as_secs_f64() / took;
        // Processors that the process may use can be fewer than there are.
        let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
        let unused = cores - (process - own);
        let idle = match (&before.idle, &self.idle) {
            (Some(before), Some(now)) => {
                let left = now.since(before).as_secs_f64() / took;
                // If others get less than the margin, they get back half of this thread's share.
                let own = if left < cores * CORES_MARGIN { own / 2.0 } else { own };
                (left + own).min(unused)
            }
            _ => unused,
        };
        Some((idle, cores))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_grow_and_shrink_with_the_time_they_take() {
        let mut pace = Pace::new(Destination::File);
        assert_eq!(pace.slice(|bytes| bytes), BUDGET_BYTES.0);
        // A slice during which the thread is not let run needs another try.
        let reaches_most = (0..1000).any(|_| pace.slice(|bytes| bytes) == BUDGET_BYTES.1);
        assert!(reaches_most, "work that takes no time");
        let long = |bytes| {
            let begun = Instant::now();
            while begun.elapsed() < 20 * SLICE {}
            bytes
        };
        assert!((0..1000).any(|_| pace.slice(long) == BUDGET_BYTES.0), "work that takes too long");
    }

    #[test]
    fn share_is_what_others_leave() {
        let is_about = |idle, cores, share: f64| (share_of(idle, cores, CORES_MIN) - share).abs() < 1e-9;
        assert!(is_about(2.0, 2.0, 1.0), "all to spare");
        assert!(is_about(0.0, 2.0, 0.03) && is_about(0.0, 1.0, 0.015), "none");
        assert!(is_about(0.8, 2.0, 0.5), "some");
        assert!(is_about(0.0, 128.0, 1.0), "one core is a small share of many");
        let for_replicas = share_of(0.0, 2.0, Destination::Replicas.cores_min());
        assert!((for_replicas - 0.25).abs() < 1e-9, "a quarter of a core of two for replicas");
    }

    #[test]
    fn share_grows_step_by_step_and_shrinks_at_once() {
        let mut share = share_of(0.0, 2.0, CORES_MIN);
        let grown = [1.0; 4].map(|found| {
            share = next_share(share, found);
            share
        });
        assert_eq!(grown, [0.12, 0.48, 1.0, 1.0]);
        assert_eq!(next_share(share, 0.03), 0.03);
    }
}
