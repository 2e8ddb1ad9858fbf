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
    workers::maintenance::MaintenanceOrder,
};

/// How often the pages of the keyspace that are free are given back.
const RELEASE_INTERVAL: Duration = Duration::from_millis(250);
/// How often the general allocator gives back what is free: seldom enough that memory in use by turns mostly stays
/// (docs/decisions/0024).
const COLLECT_INTERVAL: Duration = Duration::from_secs(1);

/// How often the thread looks at an empty server without requests.
const RESTING_INTERVAL: Duration = Duration::from_secs(1);
/// Samples of such a server in a row behind which it rests: as many as the rates of INFO remember.
const QUIET_SAMPLES: u32 = 16;

/// For how long the server has been empty and unused.
#[derive(Default)]
struct Quiet {
    samples: u32,
    /// Reads from sockets, and connections.
    uses: u64,
}

impl Quiet {
    /// Looks at the server; whether it may rest.
    fn look(&mut self, shared: &Shared) -> bool {
        let traffic = shared.stats.traffic();
        let uses = traffic.reads + traffic.connections_received + traffic.link_input_bytes;
        let is_quiet = std::mem::replace(&mut self.uses, uses) == uses
            && shared.engine.keyspace.used_bytes() == 0
            && shared.maintenance.pending_bytes() == 0
            && !shared.loading.is_active();
        self.samples = if is_quiet { self.samples.saturating_add(1) } else { 0 };
        self.is_long()
    }

    fn is_long(&self) -> bool {
        self.samples > QUIET_SAMPLES
    }

    fn interval(&self) -> Duration {
        if self.is_long() { RESTING_INTERVAL } else { Duration::ZERO }
    }
}

/// A fall of the memory in use behind which workers give back what they have set aside: by an eighth, and by as many bytes.
const FALL_BYTES_MIN: usize = 8 << 20;

/// The memory in use, watched for large falls.
#[derive(Debug, Default)]
struct Falls {
    highest: usize,
}

impl Falls {
    /// Whether it has fallen far since the last time that it had.
    fn note(&mut self, used_bytes: usize) -> bool {
        self.highest = self.highest.max(used_bytes);
        let has_fallen = self.highest - used_bytes > FALL_BYTES_MIN.max(self.highest / 8);
        if has_fallen {
            self.highest = used_bytes;
        }
        has_fallen
    }
}

/// Starts the thread; it ends with the server.
pub(crate) fn start(orders: Receiver<MaintenanceOrder>, shared: &Arc<Shared>) -> io::Result<()> {
    allocator::leave_to_collect();
    let shared = Arc::downgrade(shared);
    thread::Builder::new().name("maintenance".to_owned()).spawn(move || {
        lower_priority();
        let mut next_release = Instant::now() + RELEASE_INTERVAL;
        let mut next_collect = Instant::now() + COLLECT_INTERVAL;
        let mut next_sample = Instant::now();
        let mut quiet = Quiet::default();
        let mut falls = Falls::default();
        loop {
            let next = next_release.min(next_collect).min(next_sample);
            match orders.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(MaintenanceOrder::Discard(garbage, bytes)) => {
                    let objects = garbage.objects();
                    drop(garbage);
                    let Some(shared) = shared.upgrade() else { return };
                    shared.maintenance.note_freed(objects, bytes);
                }
                Ok(MaintenanceOrder::WarmUp) => {
                    let Some(shared) = shared.upgrade() else { return };
                    shared.maintenance.note_warm_up();
                    shared.engine.keyspace.pool().warm_up();
                }
                Ok(MaintenanceOrder::Awake) => {
                    quiet = Quiet::default();
                    next_sample = Instant::now();
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
                if quiet.look(&shared) {
                    shared.rest.begin();
                    // Everything at once: an empty server wakes up seldom.
                    next_sample = now + RESTING_INTERVAL;
                    (next_release, next_collect) = (next_sample, next_sample);
                }
                // If a script runs for long, the next round will do.
                if !shared.engine.keyspace.is_held_for_long() {
                    save_if_due(&shared, Now::read().steady_ms);
                    rewrite_if_due(&shared);
                    let ttl_s = u64::from(shared.config.current().backup_sealed_ttl);
                    shared.durability.backup().expire(ttl_s, Now::read().unix_ms / 1000);
                }
            }
            if now >= next_release {
                shared.engine.release_memory(shared.engine.keyspace.pool().pages_to_keep());
                next_release = Instant::now() + RELEASE_INTERVAL.max(quiet.interval());
            }
            if now >= next_collect {
                shared.durability.ring().trim(0);
                if falls.note(shared.stats.used_bytes(&shared.engine)) {
                    shared.maintenance.request_purge();
                }
                allocator::collect();
                next_collect = Instant::now() + COLLECT_INTERVAL;
            }
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_fall_is_noted_once() {
        let mut falls = Falls::default();
        let noted = [50, 100, 93, 90, 85, 84, 70, 200, 180, 170].map(|mb: usize| falls.note(mb << 20));
        assert_eq!(noted, [false, false, false, false, true, false, true, false, false, true]);
    }
}
