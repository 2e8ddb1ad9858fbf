//! Blocks of memory for a Lua state: free lists for the small ones, before the process's allocator.
//!
//! ```text
//! class   1       2       3           16
//! bytes ..16    ..32    ..48   …    ..256    larger
//!         │       │       │           │         └─▶ the process's allocator
//!         ▼       ▼       ▼           ▼
//!        free ─▶ free ─▶ free      at most KEPT_MAX each, linked through themselves
//! ```
//!
//! A script lives on small objects that are garbage when it ends: a table for its keys, a string for each of them, a
//! table for every status reply. A state belongs to one thread, so that taking a block is a load and a store.

use std::{
    alloc::{Layout, alloc, dealloc, realloc},
    cell::Cell,
    ptr,
};

/// Every block begins at a multiple of this many bytes, and small ones are multiples of it.
const ALIGN: usize = 16;
const CLASSES: usize = 16;
/// Most bytes of a small block. Under a fuzzer none is: a sanitizer sees the use of a block after it was freed only if
/// it is really freed.
const SMALL_MAX: usize = if cfg!(fuzzing) { 0 } else { CLASSES * ALIGN };
/// Free blocks of one class that are kept.
const KEPT_MAX: u32 = 1024;

/// A free block, whose first word is the next one.
struct Free {
    next: *mut Free,
}

/// The free blocks of one class.
struct List {
    first: Cell<*mut Free>,
    kept: Cell<u32>,
}

/// The source of a state's blocks.
pub(crate) struct Blocks {
    lists: [List; CLASSES],
}

impl Default for Blocks {
    fn default() -> Self {
        Self {
            lists: std::array::from_fn(|_| List { first: Cell::new(ptr::null_mut()), kept: Cell::new(0) }),
        }
    }
}

impl Blocks {
    /// A block of at least `size` bytes, which is not 0; null when there is no memory.
    #[inline]
    pub(crate) fn take(&self, size: usize) -> *mut u8 {
        if size > SMALL_MAX {
            // SAFETY: the size is not 0, and one that no layout can have is refused.
            return layout(size).map_or(ptr::null_mut(), |layout| unsafe { alloc(layout) });
        }
        let class = class(size);
        let list = &self.lists[class];
        let first = list.first.get();
        if first.is_null() {
            // SAFETY: the size is not 0.
            return unsafe { alloc(small_layout(class)) };
        }
        // SAFETY: a listed block is of this class and unused, and its first word was written by `give`.
        list.first.set(unsafe { (*first).next });
        list.kept.set(list.kept.get() - 1);
        first.cast()
    }

    /// Takes a block back.
    ///
    /// # Safety
    /// The block came from these `Blocks`, for `size` bytes, and is not used afterwards.
    #[inline]
    pub(crate) unsafe fn give(&self, block: *mut u8, size: usize) {
        if size > SMALL_MAX {
            // SAFETY: the block was taken with this size, for which there was a layout.
            return unsafe { dealloc(block, Layout::from_size_align_unchecked(size, ALIGN)) };
        }
        let class = class(size);
        let list = &self.lists[class];
        if list.kept.get() == KEPT_MAX {
            // SAFETY: blocks of a class are all allocated with its layout.
            return unsafe { dealloc(block, small_layout(class)) };
        }
        let free = block.cast::<Free>();
        // SAFETY: the block is unused, has room for a word and begins where one may.
        unsafe { free.write(Free { next: list.first.get() }) };
        list.first.set(free);
        list.kept.set(list.kept.get() + 1);
    }

    /// Makes a block larger or smaller; null, and the block as it was, when there is no memory.
    ///
    /// # Safety
    /// The block came from these `Blocks`, for `old` bytes; `new` is not 0.
    #[cold]
    pub(crate) unsafe fn resize(&self, block: *mut u8, old: usize, new: usize) -> *mut u8 {
        if old <= SMALL_MAX && new <= SMALL_MAX && class(old) == class(new) {
            return block;
        }
        if old > SMALL_MAX && new > SMALL_MAX {
            let Some(_) = layout(new) else { return ptr::null_mut() };
            // SAFETY: both sizes have layouts, and the block was allocated with the first.
            return unsafe { realloc(block, Layout::from_size_align_unchecked(old, ALIGN), new) };
        }
        let moved = self.take(new);
        if !moved.is_null() {
            // SAFETY: both blocks have this many bytes, and they are two.
            unsafe {
                ptr::copy_nonoverlapping(block, moved, old.min(new));
                self.give(block, old);
            }
        }
        moved
    }
}

impl Blocks {
    /// Gives all free blocks to the process's allocator.
    pub(crate) fn give_back_free(&self) {
        for (class, list) in self.lists.iter().enumerate() {
            let mut free = list.first.replace(ptr::null_mut());
            list.kept.set(0);
            while !free.is_null() {
                // SAFETY: a listed block is of this class and unused; its link is read before it goes.
                unsafe {
                    let next = (*free).next;
                    dealloc(free.cast(), small_layout(class));
                    free = next;
                }
            }
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        self.give_back_free();
    }
}

/// The class of a small size.
#[inline]
fn class(size: usize) -> usize {
    size.div_ceil(ALIGN).saturating_sub(1).min(CLASSES - 1)
}

#[inline]
fn small_layout(class: usize) -> Layout {
    // SAFETY: a small multiple of an alignment that is a power of two.
    unsafe { Layout::from_size_align_unchecked((class + 1) * ALIGN, ALIGN) }
}

fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size, ALIGN).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block and its size.
    #[derive(Debug)]
    struct Taken(*mut u8, usize);

    impl Taken {
        fn from(blocks: &Blocks, size: usize) -> Self {
            Self(blocks.take(size), size)
        }

        fn bytes(&mut self) -> &mut [u8] {
            // SAFETY: the block has this length, and `fill` writes its bytes before they are read.
            unsafe { std::slice::from_raw_parts_mut(self.0, self.1) }
        }

        fn fill(&mut self, byte: u8) {
            // SAFETY: the block has this length.
            unsafe { self.0.write_bytes(byte, self.1) };
        }

        fn give(self, blocks: &Blocks) {
            // SAFETY: it came from there with this size, and is not seen again.
            unsafe { blocks.give(self.0, self.1) };
        }

        fn resize(self, blocks: &Blocks, size: usize) -> Result<Self, Self> {
            // SAFETY: it came from there with this size, and no size of these tests is 0.
            let moved = unsafe { blocks.resize(self.0, self.1, size) };
            if moved.is_null() { Err(self) } else { Ok(Self(moved, size)) }
        }
    }

    #[test]
    fn blocks_of_all_sizes_are_apart_and_begin_where_anything_may() {
        let blocks = Blocks::default();
        for round in 0..3u8 {
            let sizes = (1..=2 * SMALL_MAX).chain([4096, 100_000]);
            let mut taken: Vec<_> = sizes.map(|size| Taken::from(&blocks, size)).collect();
            for (at, taken) in taken.iter_mut().enumerate() {
                assert_eq!(taken.0.addr() % ALIGN, 0);
                taken.fill(at as u8 ^ round);
            }
            for (at, mut taken) in taken.into_iter().enumerate() {
                assert!(taken.bytes().iter().all(|byte| *byte == at as u8 ^ round), "{taken:?}");
                taken.give(&blocks);
            }
        }
    }

    #[test]
    fn block_given_back_is_taken_next() {
        let blocks = Blocks::default();
        let first = Taken::from(&blocks, 40);
        let place = first.0;
        first.give(&blocks);
        let (again, other) = (Taken::from(&blocks, 48), Taken::from(&blocks, 33));
        assert_eq!(again.0, place);
        assert_ne!(other.0, place);
        again.give(&blocks);
        other.give(&blocks);
    }

    #[test]
    fn block_keeps_its_content_when_resized() {
        let blocks = Blocks::default();
        let sizes = [1, 16, 17, 100, SMALL_MAX, SMALL_MAX + 1, 5000];
        for old in sizes {
            for new in sizes {
                let mut taken = Taken::from(&blocks, old);
                taken.fill(7);
                let mut taken = taken.resize(&blocks, new).unwrap();
                assert!(taken.bytes()[..old.min(new)].iter().all(|byte| *byte == 7), "{old} to {new}");
                taken.give(&blocks);
            }
        }
    }

    #[test]
    fn blocks_are_kept_up_to_a_limit() {
        let blocks = Blocks::default();
        let taken: Vec<_> = (0..2 * KEPT_MAX).map(|_| Taken::from(&blocks, 64)).collect();
        taken.into_iter().for_each(|taken| taken.give(&blocks));
        assert_eq!(blocks.lists[class(64)].kept.get(), KEPT_MAX);
        blocks.give_back_free();
        assert_eq!(blocks.lists[class(64)].kept.get(), 0);
        Taken::from(&blocks, 64).give(&blocks);
    }

    #[test]
    fn blocks_refuse_an_impossible_size() {
        let blocks = Blocks::default();
        assert!(blocks.take(usize::MAX).is_null());
        Taken::from(&blocks, 1000).resize(&blocks, usize::MAX).unwrap_err().give(&blocks);
    }
}
