//! The state of a deque at an instant, while it changes: for a snapshot that is written bit by bit.
//!
//! The snapshot asks for the blocks of the cut in their order. Blocks that have not changed since are still in the
//! deque, in *runs* whose places move when blocks are inserted or removed before them. A block that is about to
//! change, or to go, is kept aside as it was.
//!
//! ```text
//! then   0 1 2 3 4 5 6 7 8 9       given: 0 1
//! now    n n 2 c 4 n 5 6 7 8       kept:  3 9            n is new, c has changed
//!            ▲   ▲   └─────┘       runs:  2 at 2, 4 at 4, 5 to 8 at 6
//! ```
//!
//! A queue, which changes at its ends, has one run. Each change in the middle may make one more, and one that inserts
//! or removes a block moves all runs behind it, as the deque itself moves blocks.
//!
//! Invariant: a number from `next` on is in one of the runs or among those kept, never in both; runs are in order of
//! their numbers and of their places.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt, mem,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{Block, BlockDeque};

/// A past, as the deque and the reader of its blocks share it.
pub type SharedPast = Arc<Mutex<Past>>;

/// A deque's pasts. A copy of the deque has none.
#[derive(Default)]
pub(super) struct Pasts(Mutex<Vec<SharedPast>>);

/// Blocks of a deque as they were; see the module's head.
pub struct Past {
    /// The number of the block that is given next.
    next: usize,
    /// How many blocks there were.
    end: usize,
    runs: VecDeque<Run>,
    kept: BTreeMap<usize, Block>,
    kept_bytes: usize,
    /// Learns how many bytes have been kept; `None` once the reader has ended: the deque may keep this for long.
    on_kept: Option<Box<dyn Fn(usize) + Send>>,
}

/// Unchanged blocks at the places that this says.
#[derive(Clone, Copy)]
struct Run {
    /// The number of the first one.
    number: usize,
    /// Its place in the deque.
    at: usize,
    len: usize,
}

/// The lock of a past.
pub fn lock_past(past: &SharedPast) -> MutexGuard<'_, Past> {
    past.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Past {
    /// How many blocks are still to be given.
    pub fn left(&self) -> usize {
        self.end - self.next
    }

    /// Bytes of the blocks that are kept.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// The next block as it was, and whether it had to be copied; `None` at the end, and if `deque` is not the one
    /// whose past this is while that is needed. O(log blocks kept), and O(bytes) for a block that is still in the
    /// deque.
    pub fn give(&mut self, deque: Option<&BlockDeque>) -> Option<(Block, bool)> {
        let given = match self.kept.remove(&self.next) {
            Some(block) => {
                self.kept_bytes -= block.heap_bytes();
                (block, false)
            }
            None => {
                let run = *self.runs.front().filter(|run| run.number == self.next)?;
                let block = deque?.blocks.get(run.at)?.clone();
                self.lift(run.at);
                (block, true)
            }
        };
        self.next += 1;
        Some(given)
    }

    /// The reader has ended. Returns how many bytes were kept.
    pub fn end(&mut self) -> usize {
        self.on_kept = None;
        self.runs.clear();
        self.kept.clear();
        mem::take(&mut self.kept_bytes)
    }

    /// Takes the block at a place out of its run. Returns its number, if it is in one.
    fn lift(&mut self, at: usize) -> Option<usize> {
        let index = self.runs.partition_point(|run| run.at <= at).checked_sub(1)?;
        let run = &mut self.runs[index];
        let offset = at - run.at;
        if offset >= run.len {
            return None;
        }
        let rest = Run { number: run.number + offset + 1, at: at + 1, len: run.len - offset - 1 };
        run.len = offset;
        match (offset, rest.len) {
            (0, 0) => _ = self.runs.remove(index),
            (0, _) => *run = rest,
            (_, 0) => {}
            _ => self.runs.insert(index + 1, rest),
        }
        Some(rest.number - 1)
    }

    /// Keeps the block at a place, unless that was done, or was given.
    fn keep(&mut self, at: usize, block: impl FnOnce() -> Block) {
        if let Some(number) = self.lift(at)
            && let Some(on_kept) = &self.on_kept
        {
            let block = block();
            let bytes = block.heap_bytes();
            self.kept.insert(number, block);
            self.kept_bytes += bytes;
            on_kept(bytes);
        }
    }

    /// A block is inserted at a place.
    fn note_inserted(&mut self, at: usize) {
        let mut index = self.runs.partition_point(|run| run.at + run.len <= at);
        if let Some(run) = self.runs.get_mut(index)
            && run.at < at
        {
            let before = at - run.at;
            let rest = Run { number: run.number + before, at, len: run.len - before };
            run.len = before;
            index += 1;
            self.runs.insert(index, rest);
        }
        self.runs.range_mut(index..).for_each(|run| run.at += 1);
    }

    /// Blocks in none of the runs are removed.
    fn note_removed(&mut self, range: Range<usize>) {
        let behind = self.runs.partition_point(|run| run.at < range.end);
        self.runs.range_mut(behind..).for_each(|run| run.at -= range.len());
    }

    /// All blocks without elements, which are in none of the runs, are removed. O(blocks).
    fn note_emptied(&mut self, blocks: &VecDeque<Block>) {
        let (mut seen, mut empty) = (0, 0);
        for run in &mut self.runs {
            empty += blocks.range(seen..run.at).filter(|block| block.count == 0).count();
            seen = run.at;
            run.at -= empty;
        }
    }
}

impl fmt::Debug for Past {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Past").field("next", &self.next).field("end", &self.end).finish_non_exhaustive()
    }
}

impl Pasts {
    fn shared(&self) -> MutexGuard<'_, Vec<SharedPast>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pasts, without the lock.
    #[inline]
    pub(super) fn own(&mut self) -> &mut Vec<SharedPast> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(super) fn are_none(&mut self) -> bool {
        self.own().is_empty()
    }

    /// Works on all pasts whose readers have not ended.
    #[inline]
    fn for_each(&mut self, work: impl FnMut(&mut Past)) {
        if !self.are_none() {
            self.for_each_awaited(work);
        }
    }

    #[cold]
    #[inline(never)]
    fn for_each_awaited(&mut self, mut work: impl FnMut(&mut Past)) {
        self.own().retain(|past| {
            let mut past = lock_past(past);
            let is_awaited = past.on_kept.is_some();
            if is_awaited {
                work(&mut past);
            }
            is_awaited
        });
    }

    /// A block is about to change, or to go.
    #[inline]
    pub(super) fn keep(&mut self, at: usize, blocks: &VecDeque<Block>) {
        self.for_each(|past| past.keep(at, || blocks[at].clone()));
    }

    /// A block was inserted.
    #[inline]
    pub(super) fn note_inserted(&mut self, at: usize) {
        self.for_each(|past| past.note_inserted(at));
    }

    /// Blocks that are kept if that is needed were removed.
    #[inline]
    pub(super) fn note_removed(&mut self, range: Range<usize>) {
        self.for_each(|past| past.note_removed(range.clone()));
    }

    /// Blocks from `at` on were taken out; returns those that are not kept.
    pub(super) fn keep_taken(&mut self, at: usize, blocks: VecDeque<Block>) -> VecDeque<Block> {
        if self.are_none() {
            return blocks;
        }
        let range = at..at + blocks.len();
        let mut blocks: VecDeque<_> = blocks.into_iter().map(Some).collect();
        let mut others = self.own().len();
        self.for_each(|past| {
            others -= 1;
            for (at, block) in range.clone().zip(&mut blocks) {
                // Most have only one past, which need not copy a block that no other has.
                let mut kept = || if others == 0 { block.take() } else { block.clone() };
                past.keep(at, || kept().expect("only the last past takes blocks away"));
            }
            past.note_removed(range.clone());
        });
        blocks.into_iter().flatten().collect()
    }

    /// All blocks without elements, which are kept if that is needed, are about to be removed.
    pub(super) fn note_emptied(&mut self, blocks: &VecDeque<Block>) {
        self.for_each(|past| past.note_emptied(blocks));
    }
}

impl BlockDeque {
    /// Remembers the blocks as they are now: they can be asked for one by one ([`Past::give`]) while the deque changes. `on_kept` learns how many bytes
    /// a change has kept. O(1).
    pub fn remember(&self, on_kept: impl Fn(usize) + Send + 'static) -> SharedPast {
        let end = self.blocks.len();
        let past = Arc::new(Mutex::new(Past {
            next: 0,
            end,
            runs: VecDeque::from_iter((end > 0).then_some(Run { number: 0, at: 0, len: end })),
            kept: BTreeMap::new(),
            kept_bytes: 0,
            on_kept: Some(Box::new(on_kept)),
        }));
        let mut all = self.pasts.shared();
        all.retain(|past| lock_past(past).on_kept.is_some());
        all.push(Arc::clone(&past));
        past
    }

    /// Whether it is the one whose past this is.
    pub fn has_past(&self, past: &SharedPast) -> bool {
        self.pasts.shared().iter().any(|own| Arc::ptr_eq(own, past))
    }

    /// Goes on as that of which it is a copy: its pasts are of this from now on.
    pub fn carry_pasts(&self, from: &Self) {
        let carried = mem::take(&mut *from.pasts.shared());
        *self.pasts.shared() = carried;
    }
}
