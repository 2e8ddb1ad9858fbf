//! A block of bytes on the heap, with its size and one number that its owner keeps beside it.
//!
//! ```text
//! Block   pointer: 8 bytes │ size: 4 bytes │ mark: 4 bytes
//! ```
//!
//! 16 bytes where a `Vec<u8>` takes 24: most keys of a store of small collections have one.

use std::{
    mem,
    ops::{Deref, DerefMut},
    ptr::NonNull,
    slice,
};

/// Bytes on the heap, all of them in use, up to 4 GiB; see the module's head.
pub(crate) struct Block {
    /// From a `Box<[u8]>` of `size` bytes, which the block owns.
    pointer: NonNull<u8>,
    size: u32,
    /// The owner's number; 0 in a new block.
    pub(crate) mark: u32,
}

// SAFETY: a block owns its bytes as the box does that they come from.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// A block of zeros.
    #[inline]
    pub(crate) fn zeroed(size: usize) -> Self {
        Self::from(vec![0; size])
    }

    /// Makes it as large as `size`, with zeros in the new part; the mark stays.
    pub(crate) fn resize(&mut self, size: usize) {
        let mark = self.mark;
        let mut bytes = mem::take(self).into_vec();
        bytes.reserve_exact(size.saturating_sub(bytes.len()));
        bytes.resize(size, 0);
        *self = Self::from(bytes);
        self.mark = mark;
    }

    /// The bytes.
    pub(crate) fn into_vec(mut self) -> Vec<u8> {
        let bytes = self.take();
        mem::forget(self);
        bytes.into_vec()
    }

    /// The box that the block was made from; nothing may be done with the block afterwards.
    fn take(&mut self) -> Box<[u8]> {
        let bytes: *mut [u8] = &mut **self;
        // SAFETY: pointer and size are those of the box, which is taken once: by `into_vec`, which forgets the
        // block, or by its drop.
        unsafe { Box::from_raw(bytes) }
    }
}

impl From<Vec<u8>> for Block {
    /// # Panics
    /// Where there are more bytes than 32 bits count.
    #[inline]
    fn from(bytes: Vec<u8>) -> Self {
        let size = u32::try_from(bytes.len()).expect("a block has less than 4 GiB");
        let bytes = Box::into_raw(bytes.into_boxed_slice());
        Self { pointer: NonNull::new(bytes.cast()).expect("a box is somewhere"), size, mark: 0 }
    }
}

impl Default for Block {
    /// No bytes; allocates nothing.
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl Deref for Block {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the box has `size` bytes, and lives as long as the block.
        unsafe { slice::from_raw_parts(self.pointer.as_ptr(), self.size as usize) }
    }
}

impl DerefMut for Block {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes this the only use of it.
        unsafe { slice::from_raw_parts_mut(self.pointer.as_ptr(), self.size as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_where_the_block_grows_and_shrinks() {
        let mut block = Block::from(vec![1, 2, 3]);
        block.mark = 7;
        block.resize(5);
        assert_eq!((&*block, block.mark), (&[1, 2, 3, 0, 0][..], 7));
        block[4] = 9;
        block.resize(2);
        assert_eq!((&*block, block.mark), (&[1, 2][..], 7));
        block.resize(0);
        assert_eq!(block.into_vec(), []);
        assert_eq!(&*Block::zeroed(2), [0, 0]);
        assert!(Block::default().is_empty());
    }
}
