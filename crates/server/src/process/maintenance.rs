//! Work that must not hold up a worker: freeing large values and whole databases, giving memory back and
//! getting it ahead of growth, sampling statistics, beginning snapshots that are due.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use dunlin_net::Now;

use crate::{
    aof::rewrite_if_due,
    observe::stats::SAMPLE_INTERVAL,
    rdb::save_if_due,
    shared::Shared,
    system::{allocator, host::lower_priority},
    workers::maintenance::Order,
};

/// How often the pages of the keyspace that are free are given back.
const RELEASE_INTERVAL: Duration = Duration::from_millis(250);
/// How often the general allocator gives back what is free: seldom enough that memory in use by turns mostly stays
/// (docs/decisions/0024).
const COLLECT_INTERVAL: Duration = Duration::from_secs(1);

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
                    shared.maintenance.note_warm_up();
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
                // If a script runs for long, the next round will do.
                if !shared.engine.keyspace.is_held_for_long() {
                    save_if_due(&shared, Now::read().steady_ms);
                    rewrite_if_due(&shared);
                }
            }
            if now >= next_release {
                shared.engine.release_memory(shared.engine.keyspace.pool().pages_to_keep());
                next_release = Instant::now() + RELEASE_INTERVAL;
            }
            if now >= next_collect {
                shared.durability.ring().trim(0);
                allocator::collect();
                next_collect = Instant::now() + COLLECT_INTERVAL;
            }
        }
    })?;
    Ok(())
}
