//! A block of bytes on the heap, with its size and one number that its owner keeps beside it.
//!
//! ```text
//! Block        pointer: 8 bytes │ size: 4 bytes │ mark: 4 bytes     the mark of a listpack: 3 bytes, and one that has
//!                                                                   a single value
//! ThinBlock    pointer ─▶ size: 4 bytes │ bytes
//! ```
//!
//! Its owner holds 16 bytes, or 8, instead of the 24 of a `Vec<u8>`: most keys of a store of small collections have
//! one. The byte of one value lets the compiler keep there which of several forms a collection has.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, realloc},
    fmt, mem,
    ops::{Deref, DerefMut},
    ptr::NonNull,
    slice,
};

use crate::{
    Relocator,
    extents::{EXTENT_ALIGN, EXTENT_BYTES_MIN},
};

/// Bytes from one size that the allocator rounds up to, to the next, around `bytes`: there are four sizes to a doubling, 16
/// bytes between small ones, and whole pages from [`EXTENT_BYTES_MIN`] on.
#[inline]
fn allocation_step(bytes: usize) -> usize {
    if bytes >= EXTENT_BYTES_MIN { EXTENT_ALIGN } else { (bytes.next_power_of_two() / 8).max(16) }
}

/// Bytes of the block that an allocator takes for `bytes`: asking for less of it wastes the rest.
#[inline]
pub fn allocation_bytes(bytes: usize) -> usize {
    bytes.next_multiple_of(allocation_step(bytes))
}

/// Bytes of the largest block that has no more than `bytes`.
#[inline]
pub(crate) fn whole_allocation_bytes(bytes: usize) -> usize {
    bytes - bytes % allocation_step(bytes)
}

/// A number of 24 bits, and a byte of which the compiler knows that it has a single value.
#[derive(Clone, Copy, Default)]
pub(crate) struct ShortMark {
    number: [u8; 3],
    _single: Single,
}

#[derive(Clone, Copy, Default)]
#[repr(u8)]
enum Single {
    #[default]
    Value,
}

impl ShortMark {
    /// The largest number.
    pub(crate) const MAX: usize = (1 << 24) - 1;

    #[inline]
    pub(crate) fn new(number: usize) -> Self {
        debug_assert!(number <= Self::MAX);
        let [a, b, c, _] = (number as u32).to_le_bytes();
        Self { number: [a, b, c], _single: Single::Value }
    }

    #[inline]
    pub(crate) fn get(self) -> usize {
        let [a, b, c] = self.number;
        u32::from_le_bytes([a, b, c, 0]) as usize
    }
}

/// Bytes on the heap, all of them in use, up to 4 GiB; see the module's head.
pub(crate) struct Block<M = u32> {
    /// From a `Box<[u8]>` of `size` bytes, which the block owns.
    pointer: NonNull<u8>,
    size: u32,
    /// The owner's number; 0 in a new block.
    pub(crate) mark: M,
}

// SAFETY: a block owns its bytes as the box does that they come from.
unsafe impl<M: Send> Send for Block<M> {}
// SAFETY: as above.
unsafe impl<M: Sync> Sync for Block<M> {}

impl<M: Copy + Default> Block<M> {
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
}

impl<M: Default> Block<M> {
    /// A block that reads bytes which belong to another owner.
    ///
    /// # Safety
    /// The bytes must stay as they are, and the block must be forgotten: it may be neither changed nor dropped.
    ///
    /// # Panics
    /// If there are more bytes than 32 bits count.
    #[inline]
    pub(crate) unsafe fn lent(bytes: &[u8]) -> Self {
        let size = u32::try_from(bytes.len()).expect("a block has less than 4 GiB");
        Self { pointer: NonNull::from(bytes).cast(), size, mark: M::default() }
    }
}

impl<M> Block<M> {
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

impl<M> Block<M> {
    /// Moves the bytes to where the general allocator would rather have them.
    pub(crate) fn relocate(&mut self, relocator: &mut Relocator) {
        if self.size > 0 {
            // SAFETY: the block owns the bytes of a box of that size.
            self.pointer = unsafe { relocator.block(self.pointer, self.size as usize) };
        }
    }
}

impl<M: Default> From<Vec<u8>> for Block<M> {
    /// # Panics
    /// If there are more bytes than 32 bits count.
    #[inline]
    fn from(bytes: Vec<u8>) -> Self {
        let size = u32::try_from(bytes.len()).expect("a block has less than 4 GiB");
        let bytes = Box::into_raw(bytes.into_boxed_slice());
        Self { pointer: NonNull::new(bytes.cast()).expect("a box is somewhere"), size, mark: M::default() }
    }
}

impl<M: Default> Default for Block<M> {
    /// No bytes; allocates nothing.
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

impl<M> Drop for Block<M> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<M> Deref for Block<M> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the box has `size` bytes, and lives as long as the block.
        unsafe { slice::from_raw_parts(self.pointer.as_ptr(), self.size as usize) }
    }
}

impl<M> DerefMut for Block<M> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes this the only use of it.
        unsafe { slice::from_raw_parts_mut(self.pointer.as_ptr(), self.size as usize) }
    }
}

/// Bytes on the heap, with their size in front of them; see the module's head.
pub struct ThinBlock {
    /// From `allocate`, filled: the size of the allocation, then as many bytes less those of the size.
    pointer: NonNull<u32>,
}

// SAFETY: a block owns its bytes.
unsafe impl Send for ThinBlock {}
// SAFETY: as above.
unsafe impl Sync for ThinBlock {}

impl ThinBlock {
    /// Bytes in front of those of the owner.
    pub const HEAD_BYTES: usize = size_of::<u32>();

    /// A block whose allocation has `size` bytes, those of the owner zeros.
    ///
    /// # Panics
    /// If `size` has no room for itself, or is more than 32 bits count.
    pub fn zeroed(size: usize) -> Self {
        let layout = Self::layout(size);
        // SAFETY: the layout is not empty.
        let pointer = unsafe { alloc_zeroed(layout) };
        let pointer = NonNull::new(pointer.cast::<u32>()).unwrap_or_else(|| crate::out_of_memory(size));
        // SAFETY: the allocation begins with room for its size, and is aligned for it.
        unsafe { pointer.write(u32::try_from(size).expect("a block has less than 4 GiB")) };
        Self { pointer }
    }

    /// Makes the allocation as large as `size`; the owner's bytes are zeros in the new part.
    ///
    /// # Panics
    /// As [`Self::zeroed`].
    pub fn resize(&mut self, size: usize) {
        let old = self.size();
        let layout = Self::layout(size);
        // SAFETY: the allocation was made with this layout, and the new size is not zero.
        let pointer = unsafe { realloc(self.pointer.as_ptr().cast(), Self::layout(old), layout.size()) };
        self.pointer = NonNull::new(pointer.cast::<u32>()).unwrap_or_else(|| crate::out_of_memory(size));
        // SAFETY: the allocation has `size` bytes, of which those from `old` on are new.
        unsafe {
            self.pointer.write(u32::try_from(size).expect("a block has less than 4 GiB"));
            if size > old {
                self.pointer.cast::<u8>().add(old).write_bytes(0, size - old);
            }
        }
    }

    /// Moves the bytes to where the general allocator would rather have them.
    pub fn relocate(&mut self, relocator: &mut Relocator) {
        // SAFETY: the block owns its allocation, of that size.
        self.pointer = unsafe { relocator.block(self.pointer.cast(), self.size()) }.cast();
    }

    /// Bytes of the allocation.
    #[inline]
    pub fn size(&self) -> usize {
        // SAFETY: the allocation begins with its size.
        unsafe { self.pointer.read() as usize }
    }

    fn layout(size: usize) -> Layout {
        assert!(size >= Self::HEAD_BYTES, "an allocation holds its own size");
        Layout::from_size_align(size, align_of::<u64>()).expect("less than 4 GiB")
    }

    #[inline]
    fn bytes(&self) -> NonNull<[u8]> {
        // SAFETY: the allocation has `size` bytes, of which the first are the size.
        let first = unsafe { self.pointer.add(1) };
        NonNull::slice_from_raw_parts(first.cast(), self.size() - Self::HEAD_BYTES)
    }
}

impl Drop for ThinBlock {
    fn drop(&mut self) {
        // SAFETY: the allocation was made with this layout, and is not used again.
        unsafe { dealloc(self.pointer.as_ptr().cast(), Self::layout(self.size())) };
    }
}

impl Clone for ThinBlock {
    fn clone(&self) -> Self {
        let mut copy = Self::zeroed(self.size());
        copy.copy_from_slice(self);
        copy
    }
}

impl PartialEq for ThinBlock {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for ThinBlock {}

impl Deref for ThinBlock {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: all bytes of the block are initialized, and live as long as it.
        unsafe { self.bytes().as_ref() }
    }
}

impl DerefMut for ThinBlock {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes this the only use of them.
        unsafe { self.bytes().as_mut() }
    }
}

impl fmt::Debug for ThinBlock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ThinBlock").field("size", &self.size()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_the_sizes_of_the_allocator() {
        for (bytes, size) in [
            (1, 16),
            (100, 112),
            (130, 160),
            (1025, 1280),
            (4560, 5120),
            (28_673, 32_768),
            (32_768, 32_768),
            (32_769, 36_864),
            (51_500, 53_248),
            (65_535, 65_536),
        ] {
            assert_eq!(allocation_bytes(bytes), size, "{bytes}");
            assert!(whole_allocation_bytes(bytes) <= bytes && whole_allocation_bytes(size) == size);
        }
    }

    #[test]
    fn bytes_stay_where_the_block_grows_and_shrinks() {
        let mut block = Block::<u32>::from(vec![1, 2, 3]);
        block.mark = 7;
        block.resize(5);
        assert_eq!((&*block, block.mark), (&[1, 2, 3, 0, 0][..], 7));
        block[4] = 9;
        block.resize(2);
        assert_eq!((&*block, block.mark), (&[1, 2][..], 7));
        block.resize(0);
        assert_eq!(block.into_vec(), []);
        assert_eq!(&*Block::<u32>::zeroed(2), [0, 0]);
        assert!(Block::<ShortMark>::default().is_empty());
    }

    #[test]
    fn thin_blocks_keep_their_bytes() {
        let mut block = ThinBlock::zeroed(16);
        assert_eq!(*block, [0; 12]);
        block.copy_from_slice(&[7; 12]);
        let copy = block.clone();
        block.resize(32);
        assert_eq!((&block[..12], &block[12..], block.size()), (&[7; 12][..], &[0; 16][..], 32));
        block.resize(8);
        assert_eq!((&*block, &*copy), (&[7; 4][..], &[7; 12][..]));
        assert!(copy != block && copy == copy.clone());
        assert_eq!(*ThinBlock::zeroed(4), []);
    }

    #[test]
    fn forms_share_the_bytes_of_a_short_mark() {
        #[allow(dead_code, reason = "only its size counts")]
        enum Form {
            Marked(Block<ShortMark>),
            Thin(ThinBlock),
            Other(Box<u8>),
        }
        assert_eq!((size_of::<Form>(), size_of::<Block<ShortMark>>()), (16, 16));
        for number in [0, 1, 0x1_0203, ShortMark::MAX] {
            assert_eq!(ShortMark::new(number).get(), number);
        }
    }
}
