//! Moving the blocks of values, so that the general allocator's sparse spans become empty ([`crate::Spans::relocate`]).
//!
//! A value that is the only owner of its block gives it to a [`Relocator`], which may put the bytes elsewhere. Nothing else
//! may hold a pointer into the block.

use std::{
    fmt,
    mem::{self, ManuallyDrop},
    ptr::NonNull,
};

/// Moves a block of the global allocator, with the size of its layout, to another place that takes its part; `None` if it stays.
///
/// Its callers own the block, and let the new place stand for it.
pub type Relocate = unsafe fn(NonNull<u8>, usize) -> Option<NonNull<u8>>;

/// Moves blocks, and counts those that it has moved.
#[derive(Clone, Copy)]
pub struct Relocator {
    relocate: Relocate,
    /// Blocks moved.
    pub moved: usize,
}

impl fmt::Debug for Relocator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Relocator").field("moved", &self.moved).finish_non_exhaustive()
    }
}

impl Relocator {
    /// A relocator that moves blocks by a function.
    ///
    /// # Safety
    /// The new place is one of the global allocator for the same layout (of alignment 8 at most) and has the same bytes; the
    /// old one is given back.
    pub const unsafe fn new(relocate: Relocate) -> Self {
        Self { relocate, moved: 0 }
    }

    /// Moves the bytes of a vector.
    pub fn vector(&mut self, vector: &mut Vec<u8>) {
        if vector.capacity() == 0 {
            return;
        }
        let Some(place) = NonNull::new(vector.as_mut_ptr()) else { return };
        let bytes = ManuallyDrop::new(mem::take(vector));
        let (length, capacity) = (bytes.len(), bytes.capacity());
        // SAFETY: the vector owned the block, of that capacity, and is made again from where it is now.
        *vector = unsafe { Vec::from_raw_parts(self.block(place, capacity).as_ptr(), length, capacity) };
    }

    /// Moves a block; its place from now on.
    ///
    /// # Safety
    /// The block is the caller's alone, of the global allocator, with a layout of `bytes` bytes and an alignment of 8 at most.
    pub(crate) unsafe fn block(&mut self, block: NonNull<u8>, bytes: usize) -> NonNull<u8> {
        // SAFETY: the caller's.
        match unsafe { (self.relocate)(block, bytes) } {
            Some(moved) => {
                self.moved += 1;
                moved
            }
            None => block,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::{Layout, alloc, dealloc};

    use super::*;
    use crate::{IntSet, IntSetRef, Listpack, ThinBlock};

    /// Moves every block, by the allocator of the tests.
    unsafe fn move_all(block: NonNull<u8>, bytes: usize) -> Option<NonNull<u8>> {
        let layout = Layout::from_size_align(bytes, 8).ok()?;
        // SAFETY: the block has `bytes` bytes; alignments up to 16 are the same to the system's allocator.
        unsafe {
            let moved = NonNull::new(alloc(layout))?;
            moved.copy_from_nonoverlapping(block, bytes);
            block.write_bytes(0xEE, bytes);
            dealloc(block.as_ptr(), layout);
            Some(moved)
        }
    }

    #[test]
    fn values_are_the_same_at_another_place() {
        // SAFETY: it allocates, copies and frees.
        let mut relocator = unsafe { Relocator::new(move_all) };
        let mut vector = Vec::with_capacity(100);
        vector.extend_from_slice(b"text");
        let before = vector.as_ptr();
        relocator.vector(&mut vector);
        assert!(before != vector.as_ptr() && vector == b"text" && vector.capacity() == 100);
        relocator.vector(&mut Vec::new());
        assert_eq!(relocator.moved, 1);

        let mut thin = ThinBlock::zeroed(64);
        thin.fill(7);
        thin.relocate(&mut relocator);
        assert_eq!((&*thin, thin.size(), relocator.moved), (&[7; 60][..], 64, 2));

        let mut listpack = Listpack::new();
        (0..100).for_each(|number| _ = listpack.push(number.to_string().as_bytes()));
        let copy = listpack.clone();
        listpack.relocate(&mut relocator);
        assert_eq!((listpack.bytes(), relocator.moved), (copy.bytes(), 3));
        listpack.push(&b"one more"[..]);

        let mut set = IntSet::default();
        (0..100).for_each(|number| _ = set.insert(number * 7));
        set.relocate(&mut relocator);
        assert!(
            (0..100).all(|number| IntSetRef::new(set.bytes()).contains(number * 7)) && relocator.moved == 4
        );
        set.insert(1);
    }
}
