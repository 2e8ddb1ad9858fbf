//! Work that must not hold up a worker: freeing large values and whole databases, giving memory back,
//! sampling statistics.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use dunlin_engine::{Engine, Garbage};

use crate::{monitor::SAMPLE_INTERVAL, shared::Shared};

/// How often memory is given back.
const RELEASE_INTERVAL: Duration = Duration::from_millis(250);
/// Free pages kept for what comes next: at least this many, and a share of those in use.
const PAGES_KEPT_MIN: usize = 128;
const PAGES_KEPT_DIVISOR: usize = 32;

/// Where workers hand in what they have thrown away.
#[derive(Debug)]
pub(crate) struct Maintenance {
    orders: Sender<Garbage>,
}

impl Maintenance {
    /// The workers' end and the thread's.
    pub(crate) fn new() -> (Self, Receiver<Garbage>) {
        let (sender, receiver) = channel();
        (Self { orders: sender }, receiver)
    }

    /// Has garbage freed elsewhere, soon.
    pub(crate) fn discard(&self, garbage: Garbage) {
        // The thread ends only when the server does; then freeing here is as good.
        let _ = self.orders.send(garbage);
    }
}

/// Starts the thread; it ends with the server.
pub(crate) fn start(orders: Receiver<Garbage>, shared: &Arc<Shared>) -> io::Result<()> {
    let shared = Arc::downgrade(shared);
    thread::Builder::new().name("maintenance".to_owned()).spawn(move || {
        let mut next_release = Instant::now() + RELEASE_INTERVAL;
        let mut next_sample = Instant::now();
        loop {
            let next = next_release.min(next_sample);
            match orders.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(garbage) => drop(garbage),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let Some(shared) = shared.upgrade() else { return };
            let now = Instant::now();
            if now >= next_sample {
                shared.monitor.sample(&shared.engine, now);
                next_sample = now + SAMPLE_INTERVAL;
            }
            if now >= next_release {
                release_memory(&shared.engine);
                next_release = Instant::now() + RELEASE_INTERVAL;
            }
        }
    })?;
    Ok(())
}

fn release_memory(engine: &Engine) {
    let used = engine.keyspace.pool().usage();
    let kept = (used.handed_out_bytes / dunlin_engine::PAGE_BYTES / PAGES_KEPT_DIVISOR).max(PAGES_KEPT_MIN);
    engine.release_memory(kept);
}
