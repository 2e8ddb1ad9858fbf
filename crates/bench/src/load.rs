//! A run: a number of connections send one template until the requests or the time are used up.
//!
//! Closed loop (no rate): each connection sends a pipeline, waits for all its replies, sends the
//! next; a request's latency counts from when its pipeline was sent. Open loop (a rate): requests are
//! due on a fixed [`Schedule`] and their latency counts from then.
//!
//! Every thread has its own connections, event loop and requests; threads share only the count of
//! requests still to be sent.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crate::connection::Connection;
use crate::latency::Latencies;
use crate::random::Random;
use crate::schedule::Schedule;
use crate::skim::{NotAReply, Tally};
use crate::target::{Target, TargetError};
use crate::template::{Filling, RequestBuffer, Template};
use crate::worker::Worker;

/// Distinct error texts with a count of their own; the rest count as one.
const ERROR_TEXTS_MAX: usize = 100;
const OTHER_ERRORS: &str = "(other errors)";

/// The load of a run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The command.
    pub template: Template,
    /// The values of its placeholders.
    pub filling: Filling,
    /// How many requests, all threads together; endless without.
    pub requests: Option<u64>,
    /// How long; without, until the requests are used up.
    pub duration: Option<Duration>,
    /// Connections, all threads together.
    pub clients: usize,
    /// Threads that generate load.
    pub threads: usize,
    /// Most requests under way on a connection.
    pub pipeline: usize,
    /// Requests a second for an open loop; closed without.
    pub rate: Option<f64>,
    /// Whether connections live on after their pipeline was answered.
    pub keep_alive: bool,
    /// Seed of all random numbers.
    pub seed: u64,
    /// How long a run may see no reply at all before it is given up.
    pub stall_max: Option<Duration>,
    /// Processor to pin all generating threads to.
    pub pin_to: Option<usize>,
    /// Whether threads of an open loop sleep until a request is due, if the system can wake them to the
    /// microsecond. Otherwise they spin, and take a processor each.
    pub sleeps: bool,
    /// Length of the slices of time with latencies of their own; without it there are none.
    pub slice: Option<Duration>,
}

impl Plan {
    /// A single thread, 50 connections, no pipeline: redis-benchmark's defaults for `template`.
    pub fn new(template: Template, filling: Filling) -> Self {
        Self {
            template,
            filling,
            requests: Some(100_000),
            duration: None,
            clients: 50,
            threads: 1,
            pipeline: 1,
            rate: None,
            keep_alive: true,
            seed: 0,
            stall_max: Some(Duration::from_secs(60)),
            pin_to: None,
            sleeps: false,
            slice: None,
        }
    }
}

/// The outcome of a run.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Counts of replies.
    pub tally: Tally,
    /// Error replies by text.
    pub errors: BTreeMap<String, u64>,
    /// Latencies of all requests.
    pub latencies: Latencies,
    /// Latencies of the requests that were answered in each slice of the time.
    pub slices: Vec<Latencies>,
    /// From the first request to the last reply.
    pub elapsed: Duration,
    /// Requests that an open loop could not send before its time was over. Their latencies are in
    /// the histogram with their wait by then.
    pub unsent: u64,
}

impl Outcome {
    /// Replies a second.
    pub fn requests_per_second(&self) -> f64 {
        self.tally.replies as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Counts one error reply.
    pub(crate) fn count_error(&mut self, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        if let Some(count) = self.errors.get_mut(text.as_ref()) {
            *count += 1;
        } else if self.errors.len() < ERROR_TEXTS_MAX {
            self.errors.insert(text.into_owned(), 1);
        } else {
            *self.errors.entry(OTHER_ERRORS.to_string()).or_default() += 1;
        }
    }

    /// Adds the outcome of another thread, or of the load of another server.
    pub fn add(&mut self, other: Outcome) {
        self.tally.add(&other.tally);
        for (text, count) in other.errors {
            *self.errors.entry(text).or_default() += count;
        }
        self.latencies.add(&other.latencies);
        if self.slices.len() < other.slices.len() {
            self.slices.resize_with(other.slices.len(), Latencies::default);
        }
        for (slice, other) in self.slices.iter_mut().zip(&other.slices) {
            slice.add(other);
        }
        self.elapsed = self.elapsed.max(other.elapsed);
        self.unsent += other.unsent;
    }
}

/// Why a run was given up.
#[derive(Debug)]
pub enum LoadError {
    /// The server could not be reached or refused the introduction.
    Target(TargetError),
    /// The answer is not the protocol's.
    NotAReply(NotAReply),
    /// A reply came without a request.
    Unasked,
    /// No reply came for this long.
    Stalled(Duration),
    /// The poller or a thread could not be set up.
    Setup(io::Error),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(error) => error.fmt(f),
            Self::NotAReply(error) => error.fmt(f),
            Self::Unasked => f.write_str("the server sent more replies than there were requests"),
            Self::Stalled(limit) => write!(f, "the server sent no reply for {} s", limit.as_secs_f64()),
            Self::Setup(error) => write!(f, "the load generator cannot be set up: {error}"),
        }
    }
}

impl std::error::Error for LoadError {}

impl From<TargetError> for LoadError {
    fn from(error: TargetError) -> Self {
        Self::Target(error)
    }
}

impl From<NotAReply> for LoadError {
    fn from(error: NotAReply) -> Self {
        Self::NotAReply(error)
    }
}

/// The counters that a run's threads share, and that a spectator may read while it goes on.
#[derive(Debug, Default)]
pub struct Progress {
    /// Requests handed out to connections.
    claimed: AtomicU64,
    /// Replies of all threads, updated as they come.
    replies: AtomicU64,
    /// Set when a thread has failed or the spectator wants an end.
    stopped: AtomicBool,
}

impl Progress {
    /// Replies so far.
    pub fn replies(&self) -> u64 {
        self.replies.load(Ordering::Relaxed)
    }

    /// Ends the run: no new requests, replies under way are still awaited.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    pub(crate) fn add_replies(&self, count: u64) {
        self.replies.fetch_add(count, Ordering::Relaxed);
    }

    /// Takes up to `wanted` requests out of `limit`: the number of the first, and how many.
    pub(crate) fn claim(&self, wanted: u64, limit: Option<u64>) -> (u64, u64) {
        let first = self.claimed.fetch_add(wanted, Ordering::Relaxed);
        (first, limit.map_or(wanted, |limit| limit.saturating_sub(first).min(wanted)))
    }
}

/// Connections that are open and a plan that has not begun.
#[derive(Debug)]
pub struct Load<'a> {
    target: &'a Target,
    plan: &'a Plan,
    groups: Vec<Vec<Connection>>,
}

impl<'a> Load<'a> {
    /// Opens all connections of the plan.
    pub fn connect(target: &'a Target, plan: &'a Plan) -> Result<Self, LoadError> {
        let threads = plan.threads.clamp(1, plan.clients.max(1));
        let mut groups: Vec<Vec<Connection>> = (0..threads).map(|_| Vec::new()).collect();
        for client in 0..plan.clients.max(1) {
            groups[client % threads].push(Connection::open(target)?);
        }
        Ok(Self { target, plan, groups })
    }

    /// Runs the plan to its end. `error_texts` gets the text of error replies as they come, at most
    /// one a second from each thread.
    pub fn run(
        self,
        progress: &Progress,
        error_texts: Option<mpsc::Sender<String>>,
    ) -> Result<Outcome, LoadError> {
        let Self { target, plan, groups } = self;
        let threads = groups.len();
        let mut seeds = Random::new(plan.seed);
        let ready = Barrier::new(threads);
        let results: Vec<Result<Outcome, LoadError>> = thread::scope(|scope| {
            let mut handles = Vec::new();
            for (index, connections) in groups.into_iter().enumerate() {
                let random = Random::new(seeds.draw());
                let (ready, error_texts) = (&ready, error_texts.clone());
                handles.push(scope.spawn(move || {
                    let schedule = plan.rate.map(|rate| Schedule::new(rate, index as u64, threads as u64));
                    let buffer = RequestBuffer::new(&plan.template, plan.pipeline, plan.filling, random);
                    let worker = crate::affinity::pin(plan.pin_to).and_then(|()| {
                        Worker::new(target, plan, progress, connections, schedule, buffer, error_texts)
                    });
                    ready.wait();
                    let outcome =
                        worker.map_err(LoadError::Setup).and_then(|worker| worker.run(Instant::now()));
                    if outcome.is_err() {
                        progress.stop();
                    }
                    outcome
                }));
            }
            handles.into_iter().map(|handle| handle.join().expect("a load thread panicked")).collect()
        });
        let mut total = Outcome::default();
        for result in results {
            total.add(result?);
        }
        Ok(total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_hand_out_exactly_the_requests_there_are() {
        let progress = Progress::default();
        assert_eq!(progress.claim(4, Some(10)), (0, 4));
        assert_eq!(progress.claim(4, Some(10)), (4, 4));
        assert_eq!(progress.claim(4, Some(10)), (8, 2));
        assert_eq!(progress.claim(4, Some(10)).1, 0);
        assert_eq!(progress.claim(4, None).1, 4);
    }

    #[test]
    fn error_texts_are_bounded() {
        let mut outcome = Outcome::default();
        for number in 0..1000 {
            outcome.count_error(format!("ERR {number}").as_bytes());
        }
        outcome.count_error(b"ERR 1");
        assert_eq!(outcome.errors.len(), ERROR_TEXTS_MAX + 1);
        assert_eq!((outcome.errors["ERR 1"], outcome.errors[OTHER_ERRORS]), (2, 900));
    }
}
