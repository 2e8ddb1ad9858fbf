//! Buffers in which copies of entries gather until there is a chunk of them.

use std::sync::PoisonError;

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};

use super::Chunk;

/// How many buffers there are. Threads beyond that share them.
const BUFFERS: usize = 64;

/// Unfinished chunks: a buffer for each thread that copies, so that no two processors write to one chunk, and what a thread fills
/// stays in its cache, however many parts its entries are in.
pub(super) struct ThreadBuffers(Box<[ThreadBuffer]>);

/// Chunks by database. Two cache lines of its own, as processors fetch lines in pairs.
#[repr(align(128))]
#[derive(Default)]
struct ThreadBuffer(Mutex<Vec<Chunk>>);

impl ThreadBuffers {
    pub(super) fn new() -> Self {
        Self((0..BUFFERS).map(|_| ThreadBuffer::default()).collect())
    }

    /// The unfinished chunks of the calling thread. The caller may hold the lock of a stripe, and takes none before it
    /// lets go.
    pub(super) fn own(&self) -> MutexGuard<'_, Vec<Chunk>> {
        lock(&self.0[own_index() % BUFFERS])
    }

    /// Takes all unfinished chunks that have entries.
    pub(super) fn drain(&self) -> impl Iterator<Item = Chunk> {
        let chunks = self.0.iter().flat_map(|buffer| std::mem::take(&mut *lock(buffer)));
        chunks.filter(|chunk| !chunk.is_empty())
    }
}

fn lock(ThreadBuffer(chunks): &ThreadBuffer) -> MutexGuard<'_, Vec<Chunk>> {
    chunks.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number of the calling thread: threads are numbered as they first copy something.
#[cfg(not(loom))]
fn own_index() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: usize = NEXT.fetch_add(1, Relaxed);
    }
    OWN.with(|own| *own)
}

/// Threads of a model are numbered by it; two of them share a buffer.
#[cfg(loom)]
fn own_index() -> usize {
    0
}
