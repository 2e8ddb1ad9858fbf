//! What a snapshot has of a stripe, and the queue that it makes.

use std::{
    collections::VecDeque,
    fmt, mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use dunlin_structures::Handle;

use super::{Chunk, SnapshotOptions, Snapshots};
use crate::keyspace::{EntryRef, STAMP_BITS};

/// Bytes of a chunk from which on it is handed over.
pub(super) const CHUNK_BYTES: usize = 16 * 1024;
/// Entries that are fetched from memory together.
const PREFETCH_ENTRIES: usize = 32;
/// Steps of the walk that look for them at most: where a table is nearly empty.
const PREFETCH_STEPS_MAX: usize = 16;
/// What looking at an entry or a step of the walk counts for, in bytes copied.
const VISIT_BYTES: usize = 64;

/// Where the copies of all stripes go.
pub(crate) struct Intake {
    index: usize,
    snapshots: Arc<Snapshots>,
    /// When the cut was made, in unix milliseconds: what had expired then is not copied.
    cut_ms: u64,
    options: SnapshotOptions,
    queue: Mutex<VecDeque<Chunk>>,
    /// Bytes in the queue; written under its lock.
    queued_bytes: AtomicUsize,
    cancelled: AtomicBool,
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
        cut_ms: u64,
        options: SnapshotOptions,
    ) -> Self {
        Self {
            index,
            snapshots,
            cut_ms,
            options,
            queue: Mutex::default(),
            queued_bytes: AtomicUsize::new(0),
            cancelled: AtomicBool::new(false),
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
        let queued = self.queued_bytes.load(Relaxed) + chunk.memory_bytes();
        self.queued_bytes.store(queued, Relaxed);
        if queued > self.options.queue_bytes_max {
            self.snapshots.congested.fetch_or(1 << self.index, Relaxed);
        }
        queue.push_back(chunk);
    }

    /// Writers need not wait any more; whether they had to. The queue is locked.
    fn relieve(&self) -> bool {
        let bit = 1 << self.index;
        self.snapshots.congested.fetch_and(!bit, Relaxed) & bit != 0
    }

    pub(super) fn take(&self) -> (impl Iterator<Item = Chunk> + use<>, bool) {
        let mut queue = self.queue();
        self.queued_bytes.store(0, Relaxed);
        let relieved = self.relieve();
        (mem::take(&mut *queue).into_iter(), relieved)
    }

    pub(super) fn queued_bytes(&self) -> usize {
        self.queued_bytes.load(Relaxed)
    }

    pub(super) fn cancel(&self) {
        let _queue = self.queue();
        self.cancelled.store(true, Relaxed);
        self.relieve();
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Relaxed)
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
        Self { intake, cursor: 0, chunk: Chunk::new(database), handles: Vec::new() }
    }

    pub(crate) fn intake(&self) -> &Arc<Intake> {
        &self.intake
    }

    /// Copies an entry that the snapshot has not seen; the caller stamps it. How many bytes that took.
    pub(crate) fn add(&mut self, entry: EntryRef<'_>) -> usize {
        let intake = &*self.intake;
        if intake.is_cancelled() || entry.is_expired(intake.cut_ms) {
            return 0;
        }
        let before = self.chunk.memory_bytes();
        self.chunk.add(entry, intake.cut_ms, intake.options.compress);
        let copied = self.chunk.memory_bytes() - before;
        if before + copied >= CHUNK_BYTES {
            self.hand_over();
        }
        copied
    }

    fn hand_over(&mut self) {
        let empty = Chunk::new(self.chunk.database());
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
