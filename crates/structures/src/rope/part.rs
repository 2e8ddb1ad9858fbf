//! An allocation that is divided among several owners.
//!
//! ```text
//! allocation   ├─ part ─┼─ part ─┼─ part ─┼─ part ─┤ spare │
//! ```
//!
//! A large vector or mapping that comes from elsewhere becomes chunks without a copy. The owner of a part may change it,
//! regardless of the holders of the others. A part that is dropped gives its whole pages back to the system; the last
//! one frees the allocation.
//!
//! Invariant: the parts of an allocation do not overlap.

use std::{
    mem::ManuallyDrop,
    ops::{Deref, DerefMut},
    ptr::NonNull,
    slice,
    sync::Arc,
};

use crate::memory_map;

/// A part of an allocation, owned by its holder.
pub(super) struct Part {
    start: NonNull<u8>,
    length: usize,
    /// Whether its pages go back to the system as soon as it is dropped.
    discards: bool,
    allocation: Arc<Allocation>,
}

// SAFETY: no other pointer to the bytes of a part exists, and the allocation is only counted and freed.
unsafe impl Send for Part {}
// SAFETY: as above.
unsafe impl Sync for Part {}

/// Memory that was given up to be divided, freed with the last part.
pub(super) struct Allocation {
    start: NonNull<u8>,
    /// Bytes that are initialized, from the first on.
    length: usize,
    origin: Origin,
}

/// The source of an allocation, and so how it is freed.
#[derive(Clone, Copy)]
enum Origin {
    /// A vector of this capacity.
    Vector { capacity: usize },
    /// A mapping of this many bytes.
    Mapping { bytes: usize },
}

// SAFETY: its pointer is used to free it once, and by holders that keep threads from writing where others read.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// The memory of a vector. Its spare capacity goes back to the system, as far as it is whole pages.
    pub(super) fn of_vector(bytes: Vec<u8>) -> Arc<Self> {
        let mut bytes = ManuallyDrop::new(bytes);
        let (length, capacity) = (bytes.len(), bytes.capacity());
        let start = NonNull::from(bytes.as_mut_slice()).cast::<u8>();
        // SAFETY: the spare room is part of the allocation, and no code has written there or will read it.
        unsafe { discard_pages(start.add(length), capacity - length) };
        Arc::new(Self { start, length, origin: Origin::Vector { capacity } })
    }

    /// A mapping, of which the first `length` bytes count.
    pub(super) fn of_mapping(mapping: Mapping, length: usize) -> Arc<Self> {
        assert!(length <= mapping.committed, "what counts is memory");
        let mapping = ManuallyDrop::new(mapping);
        Arc::new(Self { start: mapping.start, length, origin: Origin::Mapping { bytes: mapping.reserved } })
    }

    /// Bytes that can be divided.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    /// All bytes.
    ///
    /// # Safety
    /// No thread changes any of them while the result exists.
    pub(super) unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: the bytes are initialized, and alive as long as `self`; no thread changes them, by the caller.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

/// An address range that becomes memory from its beginning on, step by step, and never moves.
pub(super) struct Mapping {
    start: NonNull<u8>,
    /// Bytes of the range.
    reserved: usize,
    /// Bytes that are memory, zeros at first.
    committed: usize,
}

// SAFETY: it is memory without any other pointer to it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// A range for `bytes` bytes, not one of them memory yet. `None` if the system refuses.
    pub(super) fn reserve(bytes: usize) -> Option<Self> {
        let reserved = bytes.max(1).checked_next_multiple_of(rustix::param::page_size())?;
        let start = memory_map::reserve(reserved)?;
        Some(Self { start, reserved, committed: 0 })
    }

    /// Makes at least the first `bytes` memory. Returns whether the system did.
    pub(super) fn commit(&mut self, bytes: usize) -> bool {
        let wanted = bytes.next_multiple_of(rustix::param::page_size()).min(self.reserved);
        if wanted <= self.committed {
            return bytes <= self.reserved;
        }
        // SAFETY: whole pages inside the range.
        let done = unsafe { memory_map::commit(self.start.add(self.committed), wanted - self.committed) };
        if done {
            self.committed = wanted;
        }
        done && bytes <= self.reserved
    }

    /// The bytes that are backed by memory.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: these are initialized bytes (zeros, unless the owner has written), and `&mut self` is the only way to
        // them.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.committed) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the whole range as it was reserved; it was not given up, or this would not run.
        unsafe { memory_map::unreserve(self.start, self.reserved) };
    }
}

impl Part {
    /// Divides a vector into parts of `part_bytes`; the last may be shorter. The vector's spare capacity goes back to
    /// the system, as far as it is whole pages.
    ///
    /// # Panics
    /// If `part_bytes` is 0.
    pub(super) fn divide(bytes: Vec<u8>, part_bytes: usize) -> impl Iterator<Item = Self> {
        // SAFETY: the allocation is new, and not shared yet.
        unsafe { Self::divide_from(Allocation::of_vector(bytes), 0, part_bytes) }
    }

    /// Divides the bytes of an allocation from `start` on.
    ///
    /// # Safety
    /// An allocation is divided once, and no thread uses [`Allocation::bytes`] while a part is changed.
    ///
    /// # Panics
    /// If `part_bytes` is 0.
    pub(super) unsafe fn divide_from(
        allocation: Arc<Allocation>,
        start: usize,
        part_bytes: usize,
    ) -> impl Iterator<Item = Self> {
        assert!(part_bytes > 0);
        let length = allocation.length;
        (start..length).step_by(part_bytes).map(move |at| Self {
            // SAFETY: `at` is below the allocation's length.
            start: unsafe { allocation.start.add(at) },
            length: part_bytes.min(length - at),
            discards: true,
            allocation: Arc::clone(&allocation),
        })
    }

    /// Says that these parts are about to be dropped together. If they are all that is left of their allocation, it is
    /// freed at once then: to give the pages of each back first would be a system call for each.
    pub(super) fn prepare_drop(parts: &mut [&mut Self]) {
        for parts in parts.chunk_by_mut(|one, next| Arc::ptr_eq(&one.allocation, &next.allocation)) {
            if Arc::strong_count(&parts[0].allocation) == parts.len() {
                parts.iter_mut().for_each(|part| part.discards = false);
            }
        }
    }
}

impl Deref for Part {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: these are initialized bytes of an allocation that lives as long as the part, and they belong to it
        // alone.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for Part {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes this the only use of them.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // The last one frees everything at once, next.
        if self.discards && Arc::strong_count(&self.allocation) > 1 {
            // SAFETY: the bytes are the part's own, and are not read again.
            unsafe { discard_pages(self.start, self.length) };
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        match self.origin {
            Origin::Vector { capacity } => {
                // SAFETY: pointer and capacity are those of a vector of bytes that was given up; no part is left.
                drop(unsafe { Vec::from_raw_parts(self.start.as_ptr(), 0, capacity) });
            }
            // SAFETY: start and length are those of a mapping that was given up; no part is left.
            Origin::Mapping { bytes } => unsafe { memory_map::unreserve(self.start, bytes) },
        }
    }
}

/// Gives the pages that lie wholly in a range back to the system.
///
/// # Safety
/// The range is inside one allocation, and its bytes are not read before they are written again.
unsafe fn discard_pages(start: NonNull<u8>, bytes: usize) {
    let page_bytes = rustix::param::page_size();
    let skipped = start.as_ptr().addr().next_multiple_of(page_bytes) - start.as_ptr().addr();
    let pages = bytes.saturating_sub(skipped) / page_bytes;
    if pages > 0 {
        // SAFETY: whole pages of the range, by the caller. Their contents are not read after this.
        unsafe { memory_map::discard(start.add(skipped), pages * page_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn numbers(length: usize) -> Vec<u8> {
        (0..length).map(|at| (at % 251) as u8).collect()
    }

    #[test]
    fn parts_are_the_vector() {
        for length in [0, 1, 7, 8, 9, 100] {
            let parts: Vec<Part> = Part::divide(numbers(length), 8).collect();
            assert_eq!(parts.len(), length.div_ceil(8));
            assert_eq!(parts.iter().flat_map(|part| part.to_vec()).collect::<Vec<u8>>(), numbers(length));
        }
    }

    #[test]
    fn parts_are_changed_and_dropped_apart() {
        const PART_BYTES: usize = 64 * 1024;
        let length = if cfg!(miri) { 5 * PART_BYTES / 2 } else { 40 * PART_BYTES + 1 };
        let mut bytes = numbers(length);
        bytes.reserve(3 * PART_BYTES);
        let mut expected = bytes.clone();
        let parts: Vec<Part> = Part::divide(bytes, PART_BYTES).collect();
        let changed = parts.into_iter().enumerate().filter_map(|(at, mut part)| {
            (at % 3 != 1).then(|| {
                thread::spawn(move || {
                    part[0] = at as u8;
                    (at, part)
                })
            })
        });
        for (at, part) in changed.collect::<Vec<_>>().into_iter().map(|thread| thread.join().unwrap()) {
            let range = at * PART_BYTES..((at + 1) * PART_BYTES).min(length);
            expected[range.start] = at as u8;
            assert_eq!(*part, expected[range]);
        }
    }

    #[test]
    fn parts_that_are_all_of_their_allocations_are_freed_at_once() {
        let mut first: Vec<Part> = Part::divide(numbers(100), 8).collect();
        let mut second: Vec<Part> = Part::divide(numbers(100), 8).collect();
        let kept = second.pop();
        Part::prepare_drop(&mut first.iter_mut().chain(&mut second).collect::<Vec<_>>());
        assert!(first.iter().all(|part| !part.discards));
        assert!(second.iter().all(|part| part.discards), "one part is elsewhere");
        drop((first, second));
        assert_eq!(**kept.as_ref().unwrap(), numbers(100)[96..]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    #[cfg_attr(miri, ignore = "it asks the system")]
    fn dropped_part_is_not_resident() {
        const PART_BYTES: usize = 64 * 1024;
        const BYTES: usize = 64 << 20;
        let mut parts: Vec<Part> = Part::divide(vec![1; BYTES], PART_BYTES).collect();
        // Whole pages of the allocation.
        let start = parts[0].as_ptr().addr().next_multiple_of(rustix::param::page_size());
        let resident_bytes = || memory_map::resident_bytes(start, BYTES - PART_BYTES);
        // Not all of them: this changes nothing.
        Part::prepare_drop(&mut parts[1..].iter_mut().collect::<Vec<_>>());
        assert!(parts.iter().all(|part| part.discards));
        assert_eq!(resident_bytes(), BYTES - PART_BYTES);
        parts.drain(1..).for_each(drop);
        let after = resident_bytes();
        assert!(after < BYTES / 4, "{after} bytes");
        assert_eq!(parts[0][..], [1; PART_BYTES]);
    }
}
