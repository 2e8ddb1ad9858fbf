//! Work that must not hold up a worker: freeing large values and whole databases, giving memory back and
//! getting it ahead of growth, sampling statistics, beginning snapshots that are due.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use dunlin_engine::Garbage;

use crate::{
    durability::rewrite_if_due,
    observe::stats::SAMPLE_INTERVAL,
    persistence::save_if_due,
    shared::Shared,
    system::{
        allocator,
        host::{lower_priority, unix_us},
    },
};

/// How often the pages of the keyspace that are free are given back.
const RELEASE_INTERVAL: Duration = Duration::from_millis(250);
/// How often the general allocator gives back what is free: seldom enough that memory in use by turns mostly stays
/// (docs/decisions/0024).
const COLLECT_INTERVAL: Duration = Duration::from_secs(1);

/// Spare segments of the log's ring that stay, however idle it is.
const SEGMENTS_KEPT: usize = 1;

/// What a worker leaves to the thread.
#[derive(Debug)]
pub(crate) enum Order {
    /// To free this, of so many bytes.
    Discard(Garbage, usize),
    /// To get memory for growth.
    WarmUp,
}

/// Where workers hand in their orders.
#[derive(Debug)]
pub(crate) struct Maintenance {
    orders: Sender<Order>,
    /// Whether warming up has been ordered and has not begun.
    warm_up_ordered: AtomicBool,
    /// Values and keys that wait to be freed.
    pending_objects: AtomicUsize,
    /// Their bytes.
    pending_bytes: AtomicUsize,
    /// Those that the thread has freed since the statistics were reset.
    freed_objects: AtomicU64,
}

impl Maintenance {
    /// The workers' end and the thread's.
    pub(crate) fn new() -> (Self, Receiver<Order>) {
        let (sender, receiver) = channel();
        let maintenance = Self {
            orders: sender,
            warm_up_ordered: AtomicBool::new(false),
            pending_objects: AtomicUsize::new(0),
            pending_bytes: AtomicUsize::new(0),
            freed_objects: AtomicU64::new(0),
        };
        (maintenance, receiver)
    }

    /// Has garbage freed elsewhere, soon.
    pub(crate) fn discard(&self, garbage: Garbage) {
        self.pending_objects.fetch_add(garbage.objects(), Ordering::Relaxed);
        let bytes = garbage.bytes();
        self.pending_bytes.fetch_add(bytes, Ordering::Relaxed);
        // The thread ends only when the server does; then freeing here is as good.
        let _ = self.orders.send(Order::Discard(garbage, bytes));
    }

    /// Values and keys that wait to be freed (`lazyfree_pending_objects`).
    pub(crate) fn pending_objects(&self) -> usize {
        self.pending_objects.load(Ordering::Relaxed)
    }

    /// Bytes of these.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending_bytes.load(Ordering::Relaxed)
    }

    /// Values and keys freed in the background (`lazyfreed_objects`).
    pub(crate) fn freed_objects(&self) -> u64 {
        self.freed_objects.load(Ordering::Relaxed)
    }

    fn note_freed(&self, objects: usize, bytes: usize) {
        self.pending_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.freed_objects.fetch_add(objects as u64, Ordering::Relaxed);
        self.pending_objects.fetch_sub(objects, Ordering::Relaxed);
    }

    /// Has memory put behind pages that will soon be wanted.
    pub(crate) fn warm_up(&self) {
        if !self.warm_up_ordered.swap(true, Ordering::Relaxed) {
            let _ = self.orders.send(Order::WarmUp);
        }
    }
}

/// Starts the thread; it ends with the server.
pub(crate) fn start(orders: Receiver<Order>, shared: &Arc<Shared>) -> io::Result<()> {
    allocator::leave_to_collect();
    let shared = Arc::downgrade(shared);
    thread::Builder::new().name("maintenance".to_owned()).spawn(move || {
        lower_priority();
        let mut next_release = Instant::now() + RELEASE_INTERVAL;
        let mut next_collect = Instant::now() + COLLECT_INTERVAL;
        let mut next_sample = Instant::now();
        loop {
            let next = next_release.min(next_collect).min(next_sample);
            match orders.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Order::Discard(garbage, bytes)) => {
                    let objects = garbage.objects();
                    drop(garbage);
                    let Some(shared) = shared.upgrade() else { return };
                    shared.maintenance.note_freed(objects, bytes);
                }
                Ok(Order::WarmUp) => {
                    let Some(shared) = shared.upgrade() else { return };
                    shared.maintenance.warm_up_ordered.store(false, Ordering::Relaxed);
                    shared.engine.keyspace.pool().warm_up();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let Some(shared) = shared.upgrade() else { return };
            let now = Instant::now();
            if now >= next_sample {
                shared.stats.note_held(&shared.held());
                shared.stats.sample(&shared.engine, now);
                next_sample = now + SAMPLE_INTERVAL;
                // Where a script runs for long, the next round will do.
                if !shared.engine.keyspace.is_held_for_long() {
                    save_if_due(&shared, (unix_us() / 1_000_000) as u64);
                    rewrite_if_due(&shared);
                }
            }
            if now >= next_release {
                shared.engine.release_memory(shared.engine.keyspace.pool().pages_to_keep());
                next_release = Instant::now() + RELEASE_INTERVAL;
            }
            if now >= next_collect {
                shared.durability.ring().trim(SEGMENTS_KEPT);
                allocator::collect();
                next_collect = Instant::now() + COLLECT_INTERVAL;
            }
        }
    })?;
    Ok(())
}
