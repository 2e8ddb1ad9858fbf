//! Collecting the garbage of a worker's Lua machines, between two looks at its clients.
//!
//! Lua collects only while a script allocates. A machine that a script has left large is collected here, in slices that take
//! half of a busy worker's time at most; `maxmemory` never counts its garbage ([`dunlin_scripting::Heap`]). Machines whose
//! scripts or libraries are gone are freed by the maintenance thread.

use std::{
    any::Any,
    time::{Duration, Instant},
};

use dunlin_scripting::Heap;

use super::Executor;

/// How long a slice takes.
const SLICE: Duration = Duration::from_micros(500);

impl Executor {
    /// Publishes the memory of the worker's machines.
    #[inline]
    pub(crate) fn publish_heaps(&self) {
        let (shared, worker) = (&self.shared, self.worker.id());
        shared.scripts.heaps.publish(worker, self.compiled.heap());
        shared.libraries.heaps.publish(worker, self.libraries.heap());
    }

    fn heaps(&self) -> impl Iterator<Item = Heap<'_>> {
        self.compiled.heap().into_iter().chain(self.libraries.heap())
    }

    /// Collects for a slice, if a machine is due; how long the worker may wait before the next.
    pub(super) fn collect_garbage(&mut self) -> Duration {
        self.compiled.catch_up(&self.shared.scripts);
        self.libraries.catch_up(&self.shared.libraries);
        let scripts = self.compiled.take_retired().map(|machine| machine as Box<dyn Any + Send>);
        let libraries = self.libraries.take_retired().map(|machine| machine as Box<dyn Any + Send>);
        let mut has_changed = false;
        for retired in scripts.into_iter().chain(libraries) {
            self.worker.garbage.push_other(retired);
            has_changed = true;
        }
        let purges = self.shared.maintenance.purges();
        if purges != self.purges {
            self.purges = purges;
            self.heaps().for_each(Heap::request_collection);
        }
        let mut pause = Duration::MAX;
        if self.heaps().any(Heap::is_collection_due) {
            has_changed = true;
            let started = Instant::now();
            while self.heaps().any(Heap::is_collection_due) && started.elapsed() < SLICE {
                self.heaps().for_each(Heap::collect_step);
            }
            if self.heaps().any(Heap::is_collection_due) {
                pause = started.elapsed();
            }
        }
        if has_changed {
            self.publish_heaps();
        }
        pause
    }
}
