//! Numbers with one writer and any number of readers.
//!
//! The owner adds with a plain load and store: it is the only writer, so no read-modify-write
//! instruction is needed and a counter costs what an ordinary integer costs. Readers see each
//! number whole, and may see it a moment late.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::StageTimes;

/// A number that one thread writes and all may read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Starts at `value`.
    pub const fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    /// The current value.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Replaces the value. Owner only.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }

    /// Adds to the value. Owner only: two writers would lose counts.
    #[inline]
    pub fn add(&self, amount: u64) {
        self.set(self.get().wrapping_add(amount));
    }
}

/// Counts of one worker. On cache lines of its own, since workers write these all the time.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Traffic {
    /// Connections accepted since the start, whichever worker serves them (written by worker 0).
    pub connections_received: Counter,
    /// Connections refused for `maxclients` or protected mode (written by worker 0).
    pub connections_rejected: Counter,
    /// Bytes read from clients.
    pub input_bytes: Counter,
    /// Bytes written to clients.
    pub output_bytes: Counter,
    /// Reads from clients' sockets.
    pub reads: Counter,
    /// Writes to clients' sockets.
    pub writes: Counter,
    /// Clients closed for `client-query-buffer-limit`.
    pub query_buffer_disconnections: Counter,
    /// Clients closed for `client-output-buffer-limit`.
    pub output_buffer_disconnections: Counter,
    /// Handshakes of TLS that were completed.
    pub handshakes: Counter,
    /// The handshakes among them that resumed a session.
    pub handshakes_resumed: Counter,
    /// Handshakes that failed because of the peer's bytes.
    pub handshakes_failed: Counter,
    /// Handshakes that were given up: they took too long, or there were too many.
    pub handshakes_given_up: Counter,
    /// Ticks.
    pub ticks: Counter,
    /// Nanoseconds between the beginning of a tick and the wait for the next one, summed up.
    pub tick_ns: Counter,
    /// Stages of requests, of the ticks that are measured.
    pub stages: StageTimes,
}
