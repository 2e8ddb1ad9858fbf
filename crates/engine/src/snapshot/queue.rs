//! The queue of a snapshot's copies, on their way to the writer of the file.

use std::{
    collections::VecDeque,
    fmt, mem,
    sync::{Arc, PoisonError, atomic::Ordering::Relaxed},
};

#[cfg(loom)]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize},
};
#[cfg(not(loom))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicUsize},
};

use super::{Chunk, Form, SnapshotOptions, Snapshots, chunk::CHUNK_BYTES, thread_buffers::ThreadBuffers};
use crate::keyspace::{EntryRef, LentEntry, ViewMark};

/// The part of the queue's bytes from which on pieces do not wait for the end of the walk.
const PIECES_DUE_PART: usize = 4;

/// The receiver of the copies of all parts.
pub(crate) struct SnapshotQueue {
    index: usize,
    snapshots: Arc<Snapshots>,
    pub(super) options: SnapshotOptions,
    buffers: ThreadBuffers,
    queue: Mutex<Queue>,
    /// Bytes of chunks in the queue, of those that were taken and have not been released, and of copies for pieces to
    /// come; changed under the queue's lock.
    waiting_bytes: AtomicUsize,
    /// Collections that are copied in pieces.
    incremental: AtomicUsize,
    /// The number of removed ones among them.
    gone: AtomicUsize,
    cancelled: AtomicBool,
    /// Whether strings of new chunks are noted that may be compressed.
    compresses: AtomicBool,
    /// While there is a snapshot, a command that changes a value looks whether it has to be lent first.
    mark: ViewMark,
}

/// Which collection is next to be copied in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// The one of which there are some pieces already.
    Begun,
    /// A collection that was removed: all of its memory is there for the snapshot alone.
    Gone,
    /// Any.
    Any,
}

/// Chunks that are ready to be written.
#[derive(Default)]
struct Queue {
    chunks: VecDeque<Chunk>,
    /// Pieces of a collection, which go first.
    pieces: VecDeque<Chunk>,
    /// Whether there will be more of them: until then nothing else can be written.
    is_in_pieces: bool,
    /// Strings in chunks, which take long to be written and no memory before: they go last, when no thread copies
    /// anything.
    ropes: Vec<Chunk>,
    /// Views that are no longer needed. Millions of elements may hang on them: the thread that frees them holds no
    /// locks.
    done: Vec<LentEntry>,
}

impl fmt::Debug for SnapshotQueue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SnapshotQueue").field("index", &self.index).finish_non_exhaustive()
    }
}

impl SnapshotQueue {
    pub(super) fn new(
        index: usize,
        snapshots: Arc<Snapshots>,
        mark: ViewMark,
        options: SnapshotOptions,
    ) -> Self {
        let compresses = AtomicBool::new(options.form.compress);
        Self {
            index,
            snapshots,
            mark,
            options,
            buffers: ThreadBuffers::new(),
            queue: Mutex::default(),
            waiting_bytes: AtomicUsize::new(0),
            incremental: AtomicUsize::new(0),
            gone: AtomicUsize::new(0),
            cancelled: AtomicBool::new(false),
            compresses,
        }
    }

    /// The queue of a snapshot without a reader.
    #[cfg(test)]
    pub(crate) fn alone() -> Arc<Self> {
        let options = SnapshotOptions {
            form: Form::rdb(false),
            queue_bytes_max: usize::MAX,
            lent_bytes_min: usize::MAX,
            slots: None,
        };
        Arc::new(Self::new(0, Arc::default(), ViewMark::alone(), options))
    }

    /// Which of the snapshots that can be under way.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies an entry of a database. Returns how many bytes that took. The copy is ready to be written when the copies
    /// of the calling thread fill a chunk, or everything is handed in ([`Self::finish_chunks`]).
    pub(super) fn copy(&self, database: usize, entry: EntryRef<'_>) -> usize {
        let mut chunks = self.buffers.own();
        if chunks.len() <= database {
            let next = chunks.len();
            chunks.extend((next..=database).map(|database| self.chunk(database)));
        }
        let chunk = &mut chunks[database];
        let before = chunk.memory_bytes();
        chunk.add(entry);
        let after = chunk.memory_bytes();
        if after >= CHUNK_BYTES {
            let full = mem::replace(chunk, self.chunk(database));
            drop(chunks);
            self.push(full);
        }
        after - before
    }

    /// Takes a share of a string that stands in chunks, in no time. The string is written last, unless it `leaves` the
    /// keyspace: then its memory is there for the snapshot alone.
    pub(super) fn share(&self, database: usize, entry: EntryRef<'_>, leaves: bool) {
        let mut chunk = self.chunk(database);
        chunk.add(entry);
        if leaves {
            return self.push(chunk);
        }
        let mut queue = self.queue();
        if !self.is_cancelled() {
            self.add_waiting(chunk.memory_bytes());
            queue.ropes.push(chunk);
        }
    }

    /// Hands in the copies of all threads. No thread copies anything afterwards.
    pub(super) fn finish_chunks(&self) {
        self.buffers.drain().for_each(|chunk| self.push(chunk));
        let mut queue = self.queue();
        let ropes = mem::take(&mut queue.ropes);
        queue.chunks.extend(ropes);
    }

    /// A chunk to be filled.
    fn chunk(&self, database: usize) -> Chunk {
        Chunk::new(database, Form { compress: self.compresses.load(Relaxed), ..self.options.form })
    }

    pub(super) fn push(&self, chunk: Chunk) {
        let mut queue = self.queue();
        if self.is_cancelled() {
            return;
        }
        self.add_waiting(chunk.memory_bytes());
        // A command may wait for a lent value.
        if chunk.lends() { queue.chunks.push_front(chunk) } else { queue.chunks.push_back(chunk) }
    }

    /// The next piece of a collection, the last of it or not.
    pub(super) fn push_piece(&self, piece: Chunk, is_last: bool) {
        let mut queue = self.queue();
        self.add_waiting(piece.memory_bytes());
        queue.pieces.push_back(piece);
        queue.is_in_pieces = !is_last;
    }

    /// The queue is locked.
    fn set_waiting(&self, bytes: usize) {
        self.waiting_bytes.store(bytes, Relaxed);
        self.snapshots.copied_bytes[self.index].store(bytes, Relaxed);
    }

    /// The queue is locked.
    fn add_waiting(&self, bytes: usize) {
        let waiting = self.waiting_bytes.load(Relaxed) + bytes;
        self.set_waiting(waiting);
        if waiting > self.options.queue_bytes_max && !self.is_cancelled() {
            self.snapshots.congested.fetch_or(1 << self.index, Relaxed);
        }
    }

    /// Notes that `bytes` bytes were copied for a piece to come.
    pub(crate) fn hold(&self, bytes: usize) {
        let _queue = self.queue();
        self.add_waiting(bytes);
    }

    /// These bytes are about to be in the piece.
    pub(crate) fn let_go(&self, bytes: usize) {
        let _queue = self.queue();
        self.set_waiting(self.waiting_bytes.load(Relaxed) - bytes);
    }

    /// A view of an entry, for as long as it takes to write it.
    pub(super) fn lend(&self, entry: EntryRef<'_>) -> LentEntry {
        LentEntry::new(entry, self.mark.clone())
    }

    /// A collection begins to be copied in pieces.
    pub(super) fn begin_pieces(&self) {
        self.incremental.fetch_add(1, Relaxed);
    }

    /// Notes that one of these was removed.
    pub(super) fn note_gone(&self) {
        self.gone.fetch_add(1, Relaxed);
    }

    /// Notes that one of these was copied as a whole, or is given up. `gone` is it if it was removed.
    pub(super) fn end_pieces(&self, gone: Option<LentEntry>) {
        self.incremental.fetch_sub(1, Relaxed);
        self.gone.fetch_sub(usize::from(gone.is_some()), Relaxed);
        self.queue().done.extend(gone);
    }

    /// How many collections are copied in pieces.
    pub(super) fn incremental(&self) -> usize {
        self.incremental.load(Relaxed)
    }

    /// Which of them had better be written before the walk is over: one that was removed, or any if what changes have
    /// copied takes too much memory.
    pub(super) fn due(&self) -> Option<Due> {
        match self.incremental() {
            0 => None,
            _ if self.gone.load(Relaxed) > 0 => Some(Due::Gone),
            _ => self.waits_for_pieces().then_some(Due::Any),
        }
    }

    fn waits_for_pieces(&self) -> bool {
        self.waiting_bytes() > self.options.queue_bytes_max / PIECES_DUE_PART
    }

    /// Whether others' copies, or much memory, wait for the last piece of a collection.
    pub(super) fn is_held_up(&self) -> bool {
        let queue = self.queue();
        let is_urgent = || self.gone.load(Relaxed) > 0 || self.waits_for_pieces();
        queue.is_in_pieces && (!queue.chunks.is_empty() || is_urgent())
    }

    /// Lets waiting writers go on. Returns whether there were any. The queue is locked.
    fn relieve(&self) -> bool {
        let bit = 1 << self.index;
        // All workers read this all the time; it is changed when there is something to change.
        let is_congested = self.snapshots.congested.load(Relaxed) & bit != 0;
        if is_congested {
            self.snapshots.congested.fetch_and(!bit, Relaxed);
        }
        is_congested
    }

    pub(super) fn take(&self) -> impl Iterator<Item = Chunk> + use<> {
        let mut queue = self.queue();
        let mut taken = mem::take(&mut queue.pieces);
        if !queue.is_in_pieces {
            taken.append(&mut queue.chunks);
        }
        let done = mem::take(&mut queue.done);
        drop(queue);
        drop(done);
        taken.into_iter()
    }

    pub(super) fn release(&self, chunk: Chunk) -> bool {
        let bytes = chunk.memory_bytes();
        drop(chunk);
        let _queue = self.queue();
        let waiting = self.waiting_bytes.load(Relaxed) - bytes;
        self.set_waiting(waiting);
        waiting <= self.options.queue_bytes_max / 2 && self.relieve()
    }

    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes.load(Relaxed)
    }

    pub(super) fn cancel(&self) {
        let _queue = self.queue();
        self.cancelled.store(true, Relaxed);
        self.relieve();
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
    }

    pub(super) fn set_compresses(&self, compresses: bool) {
        let compresses = compresses && self.options.form.compress;
        // Threads that copy read the fields beside it.
        if self.compresses.load(Relaxed) != compresses {
            self.compresses.store(compresses, Relaxed);
        }
    }

    /// All snapshots.
    pub(crate) fn snapshots(&self) -> &Arc<Snapshots> {
        &self.snapshots
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::{sync::Arc as Shared, thread};

    /// A queue that is too long with its second chunk, and the message that wakes a worker when there is room.
    struct Model {
        snapshots: Arc<Snapshots>,
        snapshot_queue: SnapshotQueue,
        has_message: Mutex<bool>,
    }

    const BYTES: usize = 8;

    fn model() -> Shared<Model> {
        let snapshots = Arc::new(Snapshots::default());
        let options = SnapshotOptions {
            form: Form::rdb(false),
            queue_bytes_max: BYTES,
            lent_bytes_min: usize::MAX,
            slots: None,
        };
        let snapshot_queue = SnapshotQueue::new(0, Arc::clone(&snapshots), ViewMark::alone(), options);
        Shared::new(Model { snapshots, snapshot_queue, has_message: Mutex::new(false) })
    }

    impl Model {
        fn push(&self) {
            self.snapshot_queue.push(Chunk::of_bytes(BYTES));
        }

        /// Does the work of the snapshot's thread; returns how many chunks it got.
        fn take(&self) -> usize {
            let told = |chunk| {
                if self.snapshot_queue.release(chunk) {
                    *self.has_message.lock().unwrap() = true;
                }
            };
            self.snapshot_queue.take().map(told).count()
        }

        /// A worker that has read its messages wants to write. Returns whether it waits.
        fn waits(&self) -> bool {
            *self.has_message.lock().unwrap() = false;
            self.snapshots.is_congested()
        }
    }

    /// A worker that hands in two chunks. Returns whether it waits then.
    fn write_twice(model: &Shared<Model>) -> thread::JoinHandle<bool> {
        let model = Shared::clone(model);
        thread::spawn(move || {
            model.push();
            model.push();
            model.waits()
        })
    }

    #[test]
    fn snapshot_queue_wakes_its_waiters_and_loses_no_chunk() {
        loom::model(|| {
            let model = model();
            let worker = write_twice(&model);
            let mut taken = model.take();
            let waits = worker.join().unwrap();
            assert!(!waits || model.snapshots.is_congested() || *model.has_message.lock().unwrap());
            taken += model.take();
            assert!(!waits || *model.has_message.lock().unwrap());
            assert!(!model.snapshots.is_congested());
            assert_eq!((taken, model.snapshot_queue.waiting_bytes()), (2, 0));
        });
    }

    #[test]
    fn snapshot_queue_keeps_no_waiter_after_a_cancel() {
        loom::model(|| {
            let model = model();
            let worker = write_twice(&model);
            model.snapshot_queue.cancel();
            // As `end_snapshot` does, whether or not a worker waits.
            *model.has_message.lock().unwrap() = true;
            let waits = worker.join().unwrap();
            assert!(!waits || *model.has_message.lock().unwrap());
            assert!(!model.snapshots.is_congested(), "nor will anybody");
            model.push();
            assert!(!model.snapshots.is_congested());
        });
    }
}
