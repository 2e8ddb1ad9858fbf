//! The memory of all workers' Lua machines of one kind, as the workers publish it.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use dunlin_scripting::Heap;

/// Bytes of each worker's machine.
#[derive(Debug)]
pub(crate) struct HeapFigures(Box<[Figures]>);

#[derive(Debug, Default)]
struct Figures {
    used: AtomicUsize,
    /// Bytes that a limit is compared with: without garbage.
    limited: AtomicUsize,
}

impl HeapFigures {
    pub(crate) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| Figures::default()).collect())
    }

    /// Publishes the memory of a worker's machine, if it has one.
    #[inline]
    pub(crate) fn publish(&self, worker: usize, heap: Option<Heap<'_>>) {
        let Figures { used, limited } = &self.0[worker];
        used.store(heap.map_or(0, Heap::used_bytes), Relaxed);
        limited.store(heap.map_or(0, Heap::limited_bytes), Relaxed);
    }

    /// All machines are about to be given up: from now on they count for no limit.
    pub(crate) fn forget_limited(&self) {
        self.0.iter().for_each(|figures| figures.limited.store(0, Relaxed));
    }

    /// Bytes of all machines, with garbage.
    pub(crate) fn used_bytes(&self) -> usize {
        self.0.iter().map(|figures| figures.used.load(Relaxed)).sum()
    }

    /// Bytes of them that a limit is compared with.
    pub(crate) fn limited_bytes(&self) -> usize {
        self.0.iter().map(|figures| figures.limited.load(Relaxed).min(figures.used.load(Relaxed))).sum()
    }
}
