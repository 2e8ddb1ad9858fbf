//! Whether the data set is being loaded, and how far that is.
//!
//! Meanwhile clients get LOADING, but for commands that need no data (the flag `loading` of their rows).

use std::path::Path;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::{Duration, Instant};

use dunlin_net::Now;

/// How often progress is logged.
const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// Why something was not loaded.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// A line for the operator.
    Failed(String),
    /// The server is to stop.
    Abandoned,
}

impl LoadError {
    /// The error of the load of an RDB file, with the file's name and a remedy.
    pub(crate) fn of_file(self, path: &Path) -> Self {
        match self {
            Self::Failed(reason) => {
                let path = path.display();
                Self::Failed(format!(
                    "cannot load {path}: {reason}. Nothing was changed. 'dunlin check {path}' shows how much of the file is sound. Put a copy of it in its place, or move it away to start without it"
                ))
            }
            Self::Abandoned => self,
        }
    }
}

impl From<String> for LoadError {
    fn from(line: String) -> Self {
        Self::Failed(line)
    }
}

/// The state of loading. Written by the thread that loads.
#[derive(Debug, Default)]
pub(crate) struct Loading {
    active: AtomicBool,
    /// Loading is to end as soon as possible: the server stops.
    abandoned: AtomicBool,
    started_ms: AtomicU64,
    started_steady_ms: AtomicU64,
    bytes_total: AtomicU64,
    bytes_loaded: AtomicU64,
}

/// How far loading is, in bytes of the files.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoadingProgress {
    /// Unix time in milliseconds.
    pub(crate) started_ms: u64,
    /// The start by [`Now::steady_ms`].
    pub(crate) started_steady_ms: u64,
    pub(crate) bytes_total: u64,
    pub(crate) bytes_loaded: u64,
}

impl LoadingProgress {
    /// 0 if the size is not known, as of a snapshot that is loaded while it comes.
    pub(crate) fn percent(&self) -> f64 {
        if self.bytes_total == 0 { 0.0 } else { self.bytes_loaded as f64 * 100.0 / self.bytes_total as f64 }
    }

    /// Seconds that the rest takes at the speed so far.
    pub(crate) fn seconds_left(&self, steady_ms: u64) -> u64 {
        let elapsed_ms = steady_ms.saturating_sub(self.started_steady_ms);
        let left = self.bytes_total.saturating_sub(self.bytes_loaded);
        let ms = u128::from(elapsed_ms) * u128::from(left) / u128::from(self.bytes_loaded.max(1));
        (ms / 1000) as u64
    }
}

impl Loading {
    /// Whether the data set is being loaded.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Acquire)
    }

    /// How far it is, while it goes on.
    pub(crate) fn progress(&self) -> Option<LoadingProgress> {
        self.is_active().then(|| LoadingProgress {
            started_ms: self.started_ms.load(Relaxed),
            started_steady_ms: self.started_steady_ms.load(Relaxed),
            bytes_total: self.bytes_total.load(Relaxed),
            bytes_loaded: self.bytes_loaded.load(Relaxed),
        })
    }

    /// Notes that loading begins.
    pub(crate) fn begin(&self, now: Now) {
        self.started_ms.store(now.unix_ms, Relaxed);
        self.started_steady_ms.store(now.steady_ms, Relaxed);
        self.bytes_total.store(0, Relaxed);
        self.bytes_loaded.store(0, Relaxed);
        self.active.store(true, Release);
    }

    /// Sets how many bytes there are to load.
    pub(crate) fn expect(&self, bytes_total: u64) {
        self.bytes_total.store(bytes_total, Relaxed);
    }

    /// Notes that loading has ended; clients are served.
    pub(crate) fn end(&self) {
        self.active.store(false, Release);
    }

    /// Makes loading end as soon as possible.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Relaxed);
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Relaxed)
    }
}

/// How many threads work beside the reader of the file.
pub(crate) fn helpers(workers: usize) -> usize {
    workers.saturating_sub(1).max(1)
}

/// Reports its progress from time to time.
#[derive(Debug)]
pub(crate) struct Reporter<'a> {
    loading: &'a Loading,
    /// Bytes of the files before the one at hand.
    before: u64,
    next_line: Instant,
}

impl<'a> Reporter<'a> {
    pub(crate) fn new(loading: &'a Loading) -> Self {
        Self { loading, before: 0, next_line: Instant::now() + LOG_INTERVAL }
    }

    /// Notes that `bytes` of the file at hand have been loaded. Call it often: it returns whether to go on.
    pub(crate) fn report(&mut self, bytes: u64) -> bool {
        let loading = self.loading;
        loading.bytes_loaded.store(self.before + bytes, Relaxed);
        let now = Instant::now();
        if now >= self.next_line {
            self.next_line = now + LOG_INTERVAL;
            match loading.progress() {
                Some(progress) if progress.bytes_total == 0 => {
                    tracing::info!("loading: {} bytes so far", progress.bytes_loaded);
                }
                Some(progress) => {
                    tracing::info!("loading: {:.0}% of {} bytes", progress.percent(), progress.bytes_total);
                }
                None => {}
            }
        }
        !loading.is_abandoned()
    }

    /// Notes that a file of `bytes` has been loaded.
    pub(crate) fn next_file(&mut self, bytes: u64) {
        self.before += bytes;
        self.loading.bytes_loaded.store(self.before, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loading_estimates_seconds_left_by_its_progress() {
        let progress =
            LoadingProgress { started_ms: 7, started_steady_ms: 1000, bytes_total: 400, bytes_loaded: 100 };
        assert_eq!((progress.percent(), progress.seconds_left(11_000)), (25.0, 30));
        let none = LoadingProgress { bytes_total: 0, bytes_loaded: 0, ..progress };
        assert_eq!((none.percent(), none.seconds_left(11_000)), (0.0, 0));
    }

    #[test]
    fn progress_counts_over_files() {
        let loading = Loading::default();
        assert_eq!(loading.progress(), None);
        let now = Now::read();
        loading.begin(now);
        loading.expect(30);
        let mut reporter = Reporter::new(&loading);
        assert!(reporter.report(4));
        reporter.next_file(10);
        assert!(reporter.report(3));
        assert_eq!(
            loading.progress(),
            Some(LoadingProgress {
                started_ms: now.unix_ms,
                started_steady_ms: now.steady_ms,
                bytes_total: 30,
                bytes_loaded: 13
            })
        );
        loading.abandon();
        assert!(!reporter.report(5));
        loading.end();
        assert!(!loading.is_active());
    }
}
