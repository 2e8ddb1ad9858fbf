//! What a snapshot has of a stripe, and the queue that it makes.

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

use dunlin_structures::Handle;

use super::{Chunk, Form, SnapshotOptions, Snapshots};
use crate::keyspace::{EntryRef, LentEntry, STAMP_BITS, ViewMark};

/// Bytes of a chunk from which on it is handed over.
pub(super) const CHUNK_BYTES: usize = 16 * 1024;
/// Entries that are fetched from memory together.
const PREFETCH_ENTRIES: usize = 32;
/// Steps of the walk that look for them at most: where a table is nearly empty.
const PREFETCH_STEPS_MAX: usize = 16;
/// What looking at an entry or a step of the walk counts for, in bytes copied.
const VISIT_BYTES: usize = 64;

/// What lending an entry counts for, in bytes copied.
const LENT_COST_BYTES: usize = 1024;

/// Where the copies of all stripes go.
pub(crate) struct Intake {
    index: usize,
    snapshots: Arc<Snapshots>,
    /// When the cut was made, in unix milliseconds: what had expired then is not copied.
    cut_ms: u64,
    options: SnapshotOptions,
    queue: Mutex<VecDeque<Chunk>>,
    /// Bytes of chunks in the queue, and of those that were taken and have not been released; changed under its lock.
    waiting_bytes: AtomicUsize,
    cancelled: AtomicBool,
    /// Whether strings of new chunks are noted that may be compressed.
    compresses: AtomicBool,
    /// While there is a snapshot, whoever changes a value looks whether it has to be lent first.
    mark: ViewMark,
}

impl fmt::Debug for Intake {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Intake").field("index", &self.index).finish_non_exhaustive()
    }
}

impl Intake {
    pub(super) fn new(
        index: usize,
        snapshots: Arc<Snapshots>,
        mark: ViewMark,
        cut_ms: u64,
        options: SnapshotOptions,
    ) -> Self {
        Self {
            index,
            snapshots,
            mark,
            cut_ms,
            options,
            queue: Mutex::default(),
            waiting_bytes: AtomicUsize::new(0),
            cancelled: AtomicBool::new(false),
            compresses: AtomicBool::new(options.form.compress),
        }
    }

    /// Which of the snapshots that can be under way.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    fn queue(&self) -> MutexGuard<'_, VecDeque<Chunk>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, chunk: Chunk) {
        let mut queue = self.queue();
        if self.is_cancelled() {
            return;
        }
        let waiting = self.waiting_bytes.load(Relaxed) + chunk.memory_bytes();
        self.waiting_bytes.store(waiting, Relaxed);
        if waiting > self.options.queue_bytes_max {
            self.snapshots.congested.fetch_or(1 << self.index, Relaxed);
        }
        // Somebody may wait for what is lent.
        if chunk.lends() { queue.push_front(chunk) } else { queue.push_back(chunk) }
    }

    /// Writers need not wait any more; whether they had to. The queue is locked.
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
        mem::take(&mut *self.queue()).into_iter()
    }

    pub(super) fn release(&self, chunk: Chunk) -> bool {
        let bytes = chunk.memory_bytes();
        drop(chunk);
        let _queue = self.queue();
        let waiting = self.waiting_bytes.load(Relaxed) - bytes;
        self.waiting_bytes.store(waiting, Relaxed);
        waiting <= self.options.queue_bytes_max / 2 && self.relieve()
    }

    pub(super) fn waiting_bytes(&self) -> usize {
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
        // Whoever copies reads what is beside it.
        if self.compresses.load(Relaxed) != compresses {
            self.compresses.store(compresses, Relaxed);
        }
    }

    /// A chunk to be filled.
    fn chunk(&self, database: usize) -> Chunk {
        Chunk::new(database, Form { compress: self.compresses.load(Relaxed), ..self.options.form })
    }

    /// All snapshots.
    pub(crate) fn snapshots(&self) -> &Arc<Snapshots> {
        &self.snapshots
    }
}

/// What a snapshot has of a stripe.
pub(crate) struct Capture {
    intake: Arc<Intake>,
    /// Where the walk over the table goes on.
    cursor: u64,
    chunk: Chunk,
    /// Memory for the walk.
    handles: Vec<Handle>,
}

impl Capture {
    pub(crate) fn new(intake: Arc<Intake>, database: usize) -> Self {
        let chunk = intake.chunk(database);
        Self { intake, cursor: 0, chunk, handles: Vec::new() }
    }

    pub(crate) fn intake(&self) -> &Arc<Intake> {
        &self.intake
    }

    /// Whether an entry is lent as it is, not copied: it is large, and commands can wait.
    pub(crate) fn lends(&self, entry: EntryRef<'_>) -> bool {
        let bytes_min = self.intake.options.lent_bytes_min;
        !self.intake.is_cancelled() && entry.object().is_some_and(|object| object.heap_bytes() >= bytes_min)
    }

    /// Copies an entry that the snapshot has not seen, or takes a view of it; the caller stamps it. How many
    /// bytes that took.
    pub(crate) fn add(&mut self, entry: EntryRef<'_>) -> usize {
        let intake = &*self.intake;
        if intake.is_cancelled() || entry.is_expired(intake.cut_ms) {
            return 0;
        }
        if self.lends(entry) {
            let entry = LentEntry::new(entry, intake.mark.clone());
            intake.push(Chunk::lent(self.chunk.database(), intake.options.form, entry, intake.cut_ms));
            return LENT_COST_BYTES;
        }
        let before = self.chunk.memory_bytes();
        self.chunk.add(entry, intake.cut_ms);
        let copied = self.chunk.memory_bytes() - before;
        if before + copied >= CHUNK_BYTES {
            self.hand_over();
        }
        copied
    }

    fn hand_over(&mut self) {
        let empty = self.intake.chunk(self.chunk.database());
        self.intake.push(mem::replace(&mut self.chunk, empty));
    }

    /// Goes on with the walk for about `budget` bytes, which it lowers; whether it has come to the end.
    /// `scan` makes a step of it, `unseen` answers the entry of a handle that the snapshot has not seen.
    pub(crate) fn visit<'e>(
        &mut self,
        budget: &mut usize,
        mut scan: impl FnMut(u64, &mut Vec<Handle>) -> u64,
        unseen: impl Fn(Handle) -> Option<EntryRef<'e>>,
    ) -> bool {
        let bit = STAMP_BITS[self.intake.index];
        while *budget > 0 {
            let mut handles = mem::take(&mut self.handles);
            let mut steps = 0;
            loop {
                self.cursor = scan(self.cursor, &mut handles);
                steps += 1;
                if self.cursor == 0 || handles.len() >= PREFETCH_ENTRIES || steps == PREFETCH_STEPS_MAX {
                    break;
                }
            }
            let mut cost = (steps + handles.len()) * VISIT_BYTES;
            for entry in handles.drain(..).filter_map(&unseen) {
                cost += self.add(entry);
                entry.set_stamps(entry.stamps() ^ bit);
            }
            self.handles = handles;
            *budget = budget.saturating_sub(cost);
            if self.cursor == 0 {
                if !self.chunk.is_empty() {
                    self.hand_over();
                }
                return true;
            }
        }
        false
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::{sync::Arc as Shared, thread};

    /// A queue that is too long with its second chunk, and the mail by which a worker is told of room.
    struct Model {
        snapshots: Arc<Snapshots>,
        intake: Intake,
        mail: Mutex<bool>,
    }

    const BYTES: usize = 8;

    fn model() -> Shared<Model> {
        let snapshots = Arc::new(Snapshots::default());
        let options =
            SnapshotOptions { form: Form::rdb(false), queue_bytes_max: BYTES, lent_bytes_min: usize::MAX };
        let intake = Intake::new(0, Arc::clone(&snapshots), ViewMark::alone(), 0, options);
        Shared::new(Model { snapshots, intake, mail: Mutex::new(false) })
    }

    impl Model {
        fn push(&self) {
            self.intake.push(Chunk::of_bytes(BYTES));
        }

        /// What the snapshot's thread does; how many chunks it got.
        fn take(&self) -> usize {
            let told = |chunk| {
                if self.intake.release(chunk) {
                    *self.mail.lock().unwrap() = true;
                }
            };
            self.intake.take().map(told).count()
        }

        /// A worker that has read its mail wants to write; whether it waits.
        fn waits(&self) -> bool {
            *self.mail.lock().unwrap() = false;
            self.snapshots.is_congested()
        }
    }

    /// A worker that hands in two chunks; whether it waits then.
    fn write_twice(model: &Shared<Model>) -> thread::JoinHandle<bool> {
        let model = Shared::clone(model);
        thread::spawn(move || {
            model.push();
            model.push();
            model.waits()
        })
    }

    #[test]
    fn who_waits_for_the_queue_is_told_and_no_chunk_is_lost() {
        loom::model(|| {
            let model = model();
            let worker = write_twice(&model);
            let mut taken = model.take();
            let waits = worker.join().unwrap();
            assert!(!waits || model.snapshots.is_congested() || *model.mail.lock().unwrap());
            taken += model.take();
            assert!(!waits || *model.mail.lock().unwrap());
            assert!(!model.snapshots.is_congested());
            assert_eq!((taken, model.intake.waiting_bytes()), (2, 0));
        });
    }

    #[test]
    fn nobody_waits_for_a_snapshot_that_was_cancelled() {
        loom::model(|| {
            let model = model();
            let worker = write_twice(&model);
            model.intake.cancel();
            // As `end_snapshot` does, whether or not somebody waits.
            *model.mail.lock().unwrap() = true;
            let waits = worker.join().unwrap();
            assert!(!waits || *model.mail.lock().unwrap());
            assert!(!model.snapshots.is_congested(), "nor will anybody");
            model.push();
            assert!(!model.snapshots.is_congested());
        });
    }
}
