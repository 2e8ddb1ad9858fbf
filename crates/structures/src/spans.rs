//! Blocks of more than 1 KiB for the general allocator: a few of one size stand in a *span*, a run of pages of its own.
//!
//! ```text
//! span    whole pages, an extent ([`Extents`])     │ block │ block │ block │      1 to 8 blocks of one class
//! head    what is free in it, at the region's start   next · prev · page · class · shard · free (a bit a block) · back
//!
//!                          take from the fullest                     empty: a few stay for the next block
//! shelf   1 free ─ span ─ span      2 free ─ span      3 free ─ none      4 of 4 free ─ span
//! ```
//!
//! General allocators put some twenty to a thousand blocks of a class into a page. A block that survives pins all of
//! its page: 20,000 strings of 3,000 bytes, 19 in 20 deleted, left 79 of 80 MB. A span has eight blocks at most, and
//! from 16 KiB on two: it becomes empty soon. New blocks come from the fullest spans. [`Spans::relocate`] moves a block
//! whose owner can follow out of a sparse span: with it, no sequence of sizes keeps memory.
//!
//! Threads take from shards of their own, each under a lock; a block goes back to the shard it came from. O(1).

use std::{
    cell::Cell,
    ptr::{self, NonNull},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use crate::extents::{EXTENT_ALIGN, EXTENT_BYTES_MIN, Extents, PageHead, is_in_region, page_head};

/// Blocks of more bytes than this, and of less than [`EXTENT_BYTES_MIN`], are worth a span.
pub const SPAN_BYTES_ABOVE: usize = 1024;
/// Alignment of all blocks.
pub const SPAN_ALIGN: usize = 16;
/// Most blocks of a span.
const BLOCKS_MAX: usize = 8;
/// Parts with a lock of their own.
const SHARDS: usize = 16;
/// Bytes of empty spans that a shard keeps of each class, but always one span.
const EMPTY_BYTES_MAX: usize = 64 << 10;

/// A size of blocks.
struct Class {
    block_bytes: usize,
    pages: usize,
    blocks: usize,
}

/// The classes: an eighth apart or so, and powers of two among them, which buffers have. Few blocks for a span come first, little
/// waste second: 7% of a block on average, 15% at most.
const CLASSES: [Class; 26] = {
    const fn class(block_bytes: usize, pages: usize, blocks: usize) -> Class {
        Class { block_bytes, pages, blocks }
    }
    [
        class(1168, 2, 7),
        class(1360, 1, 3),
        class(1536, 3, 8),
        class(1744, 3, 7),
        class(2048, 1, 2),
        class(2336, 4, 7),
        class(2720, 2, 3),
        class(3072, 3, 4),
        class(3504, 6, 7),
        class(4096, 1, 1),
        class(4768, 7, 6),
        class(5456, 4, 3),
        class(6144, 3, 2),
        class(7168, 7, 4),
        class(8192, 2, 1),
        class(9552, 7, 3),
        class(10912, 8, 3),
        class(12288, 3, 1),
        class(14336, 7, 2),
        class(16384, 4, 1),
        class(18432, 9, 2),
        class(20480, 5, 1),
        class(22528, 11, 2),
        class(24576, 6, 1),
        class(28672, 7, 1),
        class(32768, 8, 1),
    ]
};

/// The class of a block, by its bytes divided by [`SPAN_ALIGN`] and rounded up.
const CLASS_OF: [u8; EXTENT_BYTES_MIN / SPAN_ALIGN + 1] = {
    let mut classes = [0; EXTENT_BYTES_MIN / SPAN_ALIGN + 1];
    let (mut units, mut class) = (0, 0);
    while units < classes.len() {
        while CLASSES[class].block_bytes < units * SPAN_ALIGN {
            class += 1;
        }
        classes[units] = class as u8;
        units += 1;
    }
    classes
};

const _: () = {
    let mut number = 0;
    while number < CLASSES.len() {
        let Class { block_bytes, pages, blocks } = CLASSES[number];
        assert!(block_bytes.is_multiple_of(SPAN_ALIGN) && block_bytes * blocks <= pages * EXTENT_ALIGN);
        assert!(blocks >= 1 && blocks <= BLOCKS_MAX && pages <= u8::MAX as usize);
        number += 1;
    }
    assert!(CLASSES[CLASSES.len() - 1].block_bytes >= EXTENT_BYTES_MIN - 1);
};

#[inline]
fn class_of(bytes: usize) -> usize {
    usize::from(CLASS_OF[bytes.div_ceil(SPAN_ALIGN)])
}

/// Bytes that the allocator sets aside for a block of `bytes`, as far as is known: its share of a span, or whole pages.
/// Smaller blocks count as they are.
#[inline]
pub fn allocated_bytes(bytes: usize) -> usize {
    if bytes <= SPAN_BYTES_ABOVE {
        bytes
    } else if bytes < EXTENT_BYTES_MIN {
        let Class { pages, blocks, .. } = CLASSES[class_of(bytes)];
        pages * EXTENT_ALIGN / blocks
    } else {
        bytes.saturating_add(EXTENT_ALIGN - 1) & !(EXTENT_ALIGN - 1)
    }
}

/// The memory that spans hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SpanUsage {
    /// In blocks that have an owner.
    pub used_bytes: usize,
    /// Beside them, in spans that have some: what [`Spans::relocate`] may gain.
    pub sparse_bytes: usize,
    /// In empty spans: [`Spans::release_empty`] gives them up.
    pub empty_bytes: usize,
}

impl SpanUsage {
    /// Bytes of all spans.
    pub fn span_bytes(&self) -> usize {
        self.used_bytes + self.sparse_bytes + self.empty_bytes
    }
}

/// Hands out blocks of 1 to 32 KiB. The type may serve as a part of the global allocator: it allocates nothing itself,
/// and its extents allocate less than [`SPAN_BYTES_ABOVE`].
#[derive(Debug)]
pub struct Spans {
    extents: &'static Extents,
    shards: [Shard; SHARDS],
}

/// The spans of some threads; apart in the caches of processors.
#[derive(Debug)]
#[repr(align(128))]
struct Shard(Mutex<[Shelf; CLASSES.len()]>);

/// The spans of a class with free blocks, by how many are free. Full ones are in no list.
#[derive(Debug)]
struct Shelf {
    lists: [*mut PageHead; BLOCKS_MAX + 1],
    /// A bit for each list that has a span.
    listed: u16,
    /// Spans without a block in use.
    empty: usize,
    /// All spans, full ones too.
    spans: usize,
    /// Free blocks of all.
    free: usize,
}

// SAFETY: heads belong to the shelf that lists them, and are reached under its lock.
unsafe impl Send for Shelf {}

impl Shelf {
    const EMPTY: Self =
        Self { lists: [ptr::null_mut(); BLOCKS_MAX + 1], listed: 0, empty: 0, spans: 0, free: 0 };

    /// # Safety
    /// The head is that of a span of this shelf, in no list, with `free` free blocks, more than none.
    #[inline]
    unsafe fn link(&mut self, head: *mut PageHead, free: usize) {
        let next = self.lists[free];
        // SAFETY: the caller's; heads in lists are live.
        unsafe {
            (*head).next = next;
            (*head).prev = ptr::null_mut();
            if !next.is_null() {
                (*next).prev = head;
            }
        }
        self.lists[free] = head;
        self.listed |= 1 << free;
    }

    /// # Safety
    /// The head is in the list of spans with `free` free blocks.
    #[inline]
    unsafe fn unlink(&mut self, head: *mut PageHead, free: usize) {
        // SAFETY: the caller's; heads in lists are live.
        unsafe {
            let PageHead { next, prev, .. } = *head;
            if !next.is_null() {
                (*next).prev = prev;
            }
            if !prev.is_null() {
                (*prev).next = next;
                return;
            }
            self.lists[free] = next;
            if next.is_null() {
                self.listed &= !(1 << free);
            }
        }
    }

    /// Takes a block of a span that has some.
    ///
    /// # Safety
    /// The head is in the list of spans with `free` free blocks, of this class.
    #[inline]
    unsafe fn take_from(&mut self, head: *mut PageHead, free: usize, class: usize) -> NonNull<u8> {
        // SAFETY: the caller's.
        unsafe {
            self.unlink(head, free);
            let block = (*head).free.trailing_zeros() as usize;
            (*head).free &= (*head).free - 1;
            if free > 1 {
                self.link(head, free - 1);
            }
            self.free -= 1;
            self.empty -= usize::from(free == CLASSES[class].blocks);
            PageHead::start(head).add(block * CLASSES[class].block_bytes)
        }
    }

    /// Takes a block of the fullest span that has one.
    #[inline]
    fn take(&mut self, class: usize) -> Option<NonNull<u8>> {
        let free = self.listed.trailing_zeros() as usize;
        let head = *self.lists.get(free)?;
        // SAFETY: it stands first in that list.
        Some(unsafe { self.take_from(head, free, class) })
    }

    /// Takes a span without a block in use off the shelf.
    fn take_empty(&mut self, class: usize) -> Option<NonNull<u8>> {
        let blocks = CLASSES[class].blocks;
        let head = self.lists[blocks];
        if head.is_null() {
            return None;
        }
        // SAFETY: it stands first in that list.
        unsafe { self.unlink(head, blocks) };
        self.empty -= 1;
        self.spans -= 1;
        self.free -= blocks;
        // SAFETY: the head of a live span.
        Some(unsafe { PageHead::start(head) })
    }

    /// A span to which a block of `from` can move: the fullest other one, with at most `free_max` free blocks.
    fn target(&self, from: *mut PageHead, free_max: usize) -> Option<(*mut PageHead, usize)> {
        (1..=free_max).find_map(|free| {
            let first = self.lists[free];
            // SAFETY: heads in lists are live.
            let found = if first == from { unsafe { (*first).next } } else { first };
            (!found.is_null()).then_some((found, free))
        })
    }
}

thread_local! {
    /// The shard that the thread takes blocks from; none before the first.
    static SHARD: Cell<usize> = const { Cell::new(SHARDS) };
}
static NEXT_SHARD: AtomicUsize = AtomicUsize::new(0);

#[inline]
fn own_shard() -> usize {
    let shard = SHARD.get();
    if shard < SHARDS { shard } else { choose_shard() }
}

#[cold]
fn choose_shard() -> usize {
    let shard = NEXT_SHARD.fetch_add(1, Relaxed) % SHARDS;
    SHARD.set(shard);
    shard
}

impl Spans {
    /// None yet; they are going to be extents of `extents`.
    pub const fn new(extents: &'static Extents) -> Self {
        Self { extents, shards: [const { Shard(Mutex::new([Shelf::EMPTY; CLASSES.len()])) }; SHARDS] }
    }

    #[inline]
    fn shard(&self, number: usize) -> MutexGuard<'_, [Shelf; CLASSES.len()]> {
        // No code panics in the middle of a change, so a poisoned lock guards sound data.
        self.shards[number].0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a block of at least `bytes` bytes, more than [`SPAN_BYTES_ABOVE`] and less than [`EXTENT_BYTES_MIN`];
    /// `None` if the system has no memory.
    #[inline]
    pub fn take(&self, bytes: usize) -> Option<NonNull<u8>> {
        let (class, shard) = (class_of(bytes), own_shard());
        let found = self.shard(shard)[class].take(class);
        found.or_else(|| self.take_of_new(class, shard))
    }

    /// Takes the first block of a new span.
    #[cold]
    fn take_of_new(&self, class: usize, shard: usize) -> Option<NonNull<u8>> {
        let Class { pages, blocks, .. } = CLASSES[class];
        let start = self.extents.take(pages * EXTENT_ALIGN, false)?;
        // SAFETY: the extent is whole pages of a region, as it is small, and has no other owner.
        let head = unsafe { PageHead::lay_out(start, pages) };
        let mut shelves = self.shard(shard);
        let shelf = &mut shelves[class];
        // SAFETY: the head is new, and in no list.
        unsafe {
            (*head).class = class as u8;
            (*head).shard = shard as u8;
            (*head).free = (u16::MAX >> (u16::BITS as usize - blocks)) as u8;
            shelf.link(head, blocks);
            (shelf.spans, shelf.free, shelf.empty) = (shelf.spans + 1, shelf.free + blocks, shelf.empty + 1);
            Some(shelf.take_from(head, blocks, class))
        }
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// The block came from [`Self::take`] or [`Self::relocate`], for these bytes or for ones that [`Self::fits`], and
    /// nothing refers to it.
    #[inline]
    pub unsafe fn give_back(&self, block: NonNull<u8>, bytes: usize) {
        let class = class_of(bytes);
        let Class { block_bytes, pages, blocks } = CLASSES[class];
        // SAFETY: the block stands in a span, whose head is live as long as the block is.
        let (head, shard) = unsafe {
            let head = page_head(block);
            let head = head.sub(usize::from((*head).back));
            (head, usize::from((*head).shard))
        };
        let mut shelves = self.shard(shard);
        let shelf = &mut shelves[class];
        // SAFETY: as above, under the lock of its shelf.
        let free = unsafe {
            debug_assert_eq!(usize::from((*head).class), class, "a block goes back with its size");
            let number = (block.addr().get() - PageHead::start(head).addr().get()) / block_bytes;
            let free = (*head).free.count_ones() as usize;
            debug_assert_eq!((*head).free >> number & 1, 0, "a block comes back once");
            if free > 0 {
                shelf.unlink(head, free);
            }
            (*head).free |= 1 << number;
            shelf.link(head, free + 1);
            free + 1
        };
        shelf.free += 1;
        if free < blocks {
            return;
        }
        shelf.empty += 1;
        if shelf.empty > 1 && shelf.empty * pages * EXTENT_ALIGN > EMPTY_BYTES_MAX {
            let span = shelf.take_empty(class);
            drop(shelves);
            self.release(span, class);
        }
    }

    fn release(&self, span: Option<NonNull<u8>>, class: usize) {
        if let Some(span) = span {
            // SAFETY: no block of the span has an owner, and it is in no list; it was taken with this size.
            unsafe { self.extents.give_back(span, CLASSES[class].pages * EXTENT_ALIGN) };
        }
    }

    /// Whether a block for `bytes` bytes has room for `wanted` and wastes no more than a new one would.
    #[inline]
    pub fn fits(bytes: usize, wanted: usize) -> bool {
        wanted > SPAN_BYTES_ABOVE && wanted < EXTENT_BYTES_MIN && class_of(bytes) == class_of(wanted)
    }

    /// Moves a block into a fuller span, so that the one that it leaves may become empty; its new place, with the same bytes.
    /// `None` if that gains nothing, or if the block is none of a span.
    ///
    /// Each move brings the counts of two spans further apart: a walk that relocates all blocks ends.
    ///
    /// # Safety
    /// The block has an owner, which alone refers to it, and lets the new place stand for it. `bytes` is the size of its layout.
    pub unsafe fn relocate(&self, block: NonNull<u8>, bytes: usize) -> Option<NonNull<u8>> {
        if !(SPAN_BYTES_ABOVE + 1..EXTENT_BYTES_MIN).contains(&bytes) || !is_in_region(block.addr().get()) {
            return None;
        }
        let class = class_of(bytes);
        // SAFETY: the block is in a region, so it stands in a span, whose head is live as long as the block is.
        let (head, shard) = unsafe {
            let head = page_head(block);
            let head = head.sub(usize::from((*head).back));
            (head, usize::from((*head).shard))
        };
        let blocks = CLASSES[class].blocks;
        let mut shelves = self.shard(shard);
        let shelf = &mut shelves[class];
        // A span's worth of free blocks, or none can become empty.
        if shelf.free - shelf.empty * blocks < blocks {
            return None;
        }
        // SAFETY: the head is live, and the target stands in its list.
        let moved = unsafe {
            let (target, free) = shelf.target(head, (*head).free.count_ones() as usize)?;
            shelf.take_from(target, free, class)
        };
        drop(shelves);
        // SAFETY: both blocks have the bytes of the class and one owner each; the caller gives the old one up.
        unsafe {
            ptr::copy_nonoverlapping(block.as_ptr(), moved.as_ptr(), bytes);
            self.give_back(block, bytes);
        }
        Some(moved)
    }

    /// Gives all empty spans back to the extents.
    pub fn release_empty(&self) {
        for shard in 0..SHARDS {
            for class in 0..CLASSES.len() {
                loop {
                    let span = self.shard(shard)[class].take_empty(class);
                    if span.is_none() {
                        break;
                    }
                    self.release(span, class);
                }
            }
        }
    }

    /// The memory that they hold now. O(shards × classes).
    pub fn usage(&self) -> SpanUsage {
        let mut usage = SpanUsage::default();
        for shard in 0..SHARDS {
            for (shelf, Class { block_bytes, pages, blocks }) in self.shard(shard).iter().zip(&CLASSES) {
                let used_bytes = (shelf.spans * blocks - shelf.free) * block_bytes;
                let empty_bytes = shelf.empty * pages * EXTENT_ALIGN;
                usage.used_bytes += used_bytes;
                usage.empty_bytes += empty_bytes;
                usage.sparse_bytes += shelf.spans * pages * EXTENT_ALIGN - used_bytes - empty_bytes;
            }
        }
        usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Spans of their own, with extents of their own.
    fn spans() -> &'static Spans {
        let extents: &'static Extents = Box::leak(Box::default());
        Box::leak(Box::new(Spans::new(extents)))
    }

    /// A block, filled with a byte of its own.
    struct Filled {
        block: NonNull<u8>,
        bytes: usize,
        fill: u8,
    }

    // SAFETY: plain memory with one owner.
    unsafe impl Send for Filled {}

    impl Filled {
        fn take(spans: &Spans, bytes: usize, fill: u8) -> Self {
            let block = spans.take(bytes).unwrap();
            assert!(block.addr().get().is_multiple_of(SPAN_ALIGN));
            // SAFETY: it was taken with `bytes` bytes.
            unsafe { block.write_bytes(fill, bytes) };
            Self { block, bytes, fill }
        }

        fn check(&self) {
            // SAFETY: the block has this size, and nothing else writes it.
            let contents = unsafe { std::slice::from_raw_parts(self.block.as_ptr(), self.bytes) };
            assert!(contents.iter().all(|byte| *byte == self.fill), "another block's bytes");
        }

        fn relocate(&mut self, spans: &Spans) -> bool {
            // SAFETY: `bytes` is its size, and only `self` refers to it.
            let moved = unsafe { spans.relocate(self.block, self.bytes) };
            self.block = moved.unwrap_or(self.block);
            self.check();
            moved.is_some()
        }

        fn give_back(self, spans: &Spans) {
            self.check();
            // SAFETY: `bytes` is its size, and only `self` referred to it.
            unsafe { spans.give_back(self.block, self.bytes) };
        }
    }

    #[test]
    fn classes_waste_little() {
        let mut waste = 0.0;
        for bytes in SPAN_BYTES_ABOVE + 1..EXTENT_BYTES_MIN {
            let class = &CLASSES[class_of(bytes)];
            assert!(class.block_bytes >= bytes);
            let part = 1.0 - bytes as f64 / allocated_bytes(bytes) as f64;
            assert!(part < 0.155, "{bytes}: {part}");
            waste += part;
        }
        let average = waste / (EXTENT_BYTES_MIN - SPAN_BYTES_ABOVE - 1) as f64;
        assert!(average < 0.07, "{average}");
        for bytes in [2048, 4096, 8192, 16384] {
            assert_eq!(allocated_bytes(bytes), bytes);
        }
        assert_eq!([0, 1024, 1025, 32 << 10, 40_000].map(allocated_bytes), [0, 1024, 1170, 32 << 10, 40_960]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn blocks_keep_their_bytes_and_all_memory_comes_back(
            steps in prop::collection::vec((0..8_u8, 0..64_usize, SPAN_BYTES_ABOVE + 1..EXTENT_BYTES_MIN), 1..200),
            sizes in 1..4_usize,
        ) {
            let spans = spans();
            let mut blocks: Vec<Filled> = Vec::new();
            for (number, (action, which, bytes)) in steps.into_iter().enumerate() {
                // Few sizes fill spans, all sizes fill classes.
                let bytes = if sizes < 3 { 3000 * sizes } else { bytes };
                match (action, blocks.len()) {
                    (0..4, _) | (_, 0) => blocks.push(Filled::take(spans, bytes, number as u8)),
                    (4..6, count) => blocks.swap_remove(which % count).give_back(spans),
                    (6, count) => _ = blocks[which % count].relocate(spans),
                    _ => spans.release_empty(),
                }
                let used = blocks.iter().map(|block| CLASSES[class_of(block.bytes)].block_bytes).sum::<usize>();
                let usage = spans.usage();
                prop_assert_eq!(usage.used_bytes, used);
                prop_assert_eq!(usage.span_bytes(), spans.extents.usage().used_bytes);
            }
            blocks.into_iter().for_each(|block| block.give_back(spans));
            spans.release_empty();
            prop_assert_eq!(spans.usage(), SpanUsage::default());
            prop_assert_eq!(spans.extents.usage().used_bytes, 0);
        }

        /// Whatever stays: once all blocks have been relocated as far as they go, less than a span of a class is free.
        #[test]
        fn relocation_leaves_no_sparse_spans(
            bytes in SPAN_BYTES_ABOVE + 1..EXTENT_BYTES_MIN,
            kept in prop::collection::vec(any::<bool>(), 1..300),
        ) {
            let spans = spans();
            let blocks: Vec<_> = kept.iter().map(|_| Filled::take(spans, bytes, 7)).collect();
            let mut left = Vec::new();
            for (block, is_kept) in blocks.into_iter().zip(kept) {
                if is_kept { left.push(block) } else { block.give_back(spans) }
            }
            let mut rounds = 0;
            while left.iter_mut().fold(false, |moved, block| block.relocate(spans) | moved) {
                rounds += 1;
                prop_assert!(rounds < 100, "it ends");
            }
            spans.release_empty();
            let Class { block_bytes, pages, blocks } = CLASSES[class_of(bytes)];
            let least = left.len().div_ceil(blocks);
            prop_assert_eq!(spans.usage().span_bytes(), least * pages * EXTENT_ALIGN);
            prop_assert_eq!(spans.usage().used_bytes, left.len() * block_bytes);
            left.into_iter().for_each(|block| block.give_back(spans));
        }
    }

    #[test]
    fn block_of_another_allocator_stays() {
        let spans = spans();
        let mut other = vec![1_u8; 3000];
        let block = NonNull::new(other.as_mut_ptr()).unwrap();
        // SAFETY: the vector is its owner, and keeps its place.
        assert_eq!(unsafe { spans.relocate(block, 3000) }, None);
        assert_eq!(other, [1; 3000]);
    }

    #[test]
    fn threads_never_get_the_same_block() {
        let spans = spans();
        let (sender, receiver) = std::sync::mpsc::channel::<Filled>();
        std::thread::scope(|scope| {
            for thread in 0..3_usize {
                let sender = sender.clone();
                scope.spawn(move || {
                    let mut blocks: Vec<Filled> = Vec::new();
                    for step in 0..400_usize {
                        let mixed = (step * 7919 + thread * 104_729) % 1000;
                        if blocks.len() < 8 || mixed < 500 {
                            blocks.push(Filled::take(
                                spans,
                                1100 + mixed * 4,
                                (thread * 64 + step % 64) as u8,
                            ));
                        }
                        if blocks.len() > 8 {
                            let block = blocks.swap_remove(mixed % blocks.len());
                            // Half of them go back on another thread.
                            if step % 2 == 0 { block.give_back(spans) } else { sender.send(block).unwrap() }
                        }
                        let which = mixed % blocks.len();
                        blocks[which].relocate(spans);
                    }
                    blocks.into_iter().for_each(|block| block.give_back(spans));
                });
            }
            drop(sender);
            receiver.into_iter().for_each(|block| block.give_back(spans));
        });
        spans.release_empty();
        assert_eq!(spans.usage(), SpanUsage::default());
    }
}
