//! The ring's memory: segments that are taken as the log comes to them and given back as it leaves them.
//!
//! ```text
//! offsets    ── … ─┤ number 6 ├ number 7 ├ number 8 ├ number 9 ┼ … ─▶
//!                       ┌──────────┴──────┐
//! slots      [ 8 ]   [ 9 ]   [ none ]  [ 7 ]       number modulo how many there are; none: not written yet
//! spare      a few, the one that was given back last first
//! ```
//!
//! As many segments are in use as the log is ahead of the disk, and most often the same few.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

#[cfg(loom)]
use loom::sync::{Mutex, MutexGuard, atomic::AtomicPtr};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard, atomic::AtomicPtr};

use self::bytes::Byte;
use super::RingSizes;

/// Bytes that many threads write and one reads, each its own part.
pub(super) struct Memory {
    sizes: RingSizes,
    /// By number; null if there is none.
    slots: Box<[AtomicPtr<Byte>]>,
    spare: Mutex<Spare>,
}

/// Segments without a number.
#[derive(Default)]
struct Spare {
    segments: Vec<Segment>,
    /// The fewest that there were since the last [`Memory::trim`].
    fewest: usize,
}

/// A segment with no other pointer to it.
struct Segment(Box<[Byte]>);

// SAFETY: no other thread reads or writes its bytes.
unsafe impl Send for Segment {}

// SAFETY: access is through the unsafe functions below, whose callers keep to their own parts.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Segment {
    fn into_raw(self) -> *mut Byte {
        Box::into_raw(self.0).cast()
    }

    /// # Safety
    /// The pointer comes from [`Self::into_raw`] of a segment of that size, once.
    unsafe fn from_raw(bytes: *mut Byte, length: usize) -> Self {
        // SAFETY: the caller's.
        Self(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(bytes, length)) })
    }
}

impl Memory {
    /// # Panics
    /// If a size is not a power of two.
    pub(super) fn new(sizes: RingSizes) -> Self {
        assert!(sizes.segment_bytes.is_power_of_two() && sizes.segments_max.is_power_of_two());
        let slots = (0..sizes.segments_max).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect();
        Self { sizes, slots, spare: Mutex::default() }
    }

    /// The offset up to which there can be memory while `head` is the first that is kept: a slot has one
    /// segment at a time.
    #[inline]
    pub(super) fn end(&self, head: u64) -> u64 {
        let start = head & !(self.sizes.segment_bytes as u64 - 1);
        start + self.sizes.capacity()
    }

    fn number(&self, offset: u64) -> u64 {
        offset >> self.sizes.segment_bytes.trailing_zeros()
    }

    fn slot(&self, number: u64) -> &AtomicPtr<Byte> {
        &self.slots[number as usize & (self.slots.len() - 1)]
    }

    fn spare(&self) -> MutexGuard<'_, Spare> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The segment that an offset is in; it gets one if need be.
    #[inline]
    fn segment(&self, offset: u64) -> *mut Byte {
        let slot = self.slot(self.number(offset));
        let found = slot.load(Acquire);
        if found.is_null() { self.install(slot) } else { found }
    }

    #[cold]
    fn install(&self, slot: &AtomicPtr<Byte>) -> *mut Byte {
        let mut spare = self.spare();
        // Another thread may have been quicker.
        let found = slot.load(Acquire);
        if !found.is_null() {
            return found;
        }
        let found = spare.segments.pop();
        spare.fewest = spare.fewest.min(spare.segments.len());
        let segment = found.unwrap_or_else(|| Segment(bytes::zeroed(self.sizes.segment_bytes)));
        let segment = segment.into_raw();
        slot.store(segment, Release);
        segment
    }

    /// Splits a range where segments meet: offset, place in the segment, length.
    fn parts(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, usize, usize)> {
        let segment_bytes = self.sizes.segment_bytes;
        let mut at = from;
        std::iter::from_fn(move || {
            let place = at as usize & (segment_bytes - 1);
            let length = (segment_bytes - place).min((to - at) as usize);
            let part = (at, place, length);
            at += length as u64;
            (length > 0).then_some(part)
        })
    }

    /// # Safety
    /// No other thread reads or writes these bytes meanwhile; they are neither behind [`Self::end`] nor released.
    #[inline]
    pub(super) unsafe fn write(&self, offset: u64, bytes: &[u8]) {
        let (mut at, mut rest) = (offset, bytes);
        loop {
            let place = at as usize & (self.sizes.segment_bytes - 1);
            let (part, behind) = rest.split_at(rest.len().min(self.sizes.segment_bytes - place));
            // SAFETY: the part is inside its segment, and the caller is alone there.
            unsafe { bytes::write(self.segment(at).add(place), part) };
            if behind.is_empty() {
                return;
            }
            (at, rest) = (at + part.len() as u64, behind);
        }
    }

    /// Fetches where the record behind `end` will be, of about that length: no thread has touched that for a
    /// while.
    #[inline]
    pub(super) fn prefetch(&self, end: u64, length: usize) {
        // A guess: if the segment ends or is yet to come, the next one makes up for it.
        let place = end as usize & (self.sizes.segment_bytes - 1);
        let segment = self.slot(self.number(end)).load(Acquire);
        bytes::prefetch(segment, place, length);
    }

    /// # Safety
    /// No thread writes these bytes meanwhile, and all of them have been written and not released.
    pub(super) unsafe fn read(&self, from: u64, to: u64, show: &mut impl FnMut(&[u8])) {
        for (at, place, length) in self.parts(from, to) {
            // SAFETY: the part is inside its segment, and no thread writes it.
            unsafe { bytes::read(self.segment(at).add(place), length, show) };
        }
    }

    /// The bytes where they stand, a part for each segment.
    ///
    /// # Safety
    /// As for [`Self::read`], as long as the parts are borrowed.
    #[cfg(not(loom))]
    pub(super) unsafe fn slices(&self, from: u64, to: u64) -> Vec<&[u8]> {
        let slice = |(at, place, length)| {
            // SAFETY: as in `read`.
            unsafe {
                std::slice::from_raw_parts(self.segment(at).add(place).cast::<u8>().cast_const(), length)
            }
        };
        self.parts(from, to).map(slice).collect()
    }

    /// Gives back the segments that end between the offsets, or at the second one.
    ///
    /// # Safety
    /// No thread reads or writes there now or later, and none has written at or behind [`Self::end`] of the
    /// first one.
    pub(super) unsafe fn release(&self, from: u64, to: u64) {
        let numbers = self.number(from)..self.number(to);
        let mut surplus = Vec::new();
        for number in numbers.take(self.slots.len()) {
            let segment = self.slot(number).swap(std::ptr::null_mut(), AcqRel);
            if !segment.is_null() {
                // SAFETY: it was installed, and its slot has it no longer.
                let segment = unsafe { Segment::from_raw(segment, self.sizes.segment_bytes) };
                let mut spare = self.spare();
                match spare.segments.len() < self.sizes.spare_max {
                    true => spare.segments.push(segment),
                    false => surplus.push(segment),
                }
            }
        }
        // Freed here: no thread waits for the list.
        drop(surplus);
    }

    /// Gives back all segments.
    ///
    /// # Safety
    /// No thread reads or writes.
    pub(super) unsafe fn clear(&self) {
        // SAFETY: each slot is visited once; the caller's.
        unsafe { self.release(0, self.sizes.capacity()) };
    }

    /// Frees the spare segments that were not needed since the last call, but for `spare_min`.
    pub(super) fn trim(&self, spare_min: usize) {
        let mut spare = self.spare();
        let kept = spare.segments.len().saturating_sub(spare.fewest).max(spare_min);
        let kept = kept.min(spare.segments.len());
        let idle = spare.segments.split_off(kept);
        spare.fewest = kept;
        drop(spare);
        drop(idle);
    }

    /// Bytes of all segments, in use or spare. O(segments).
    pub(super) fn bytes(&self) -> usize {
        let (used, spare) = self.segments();
        (used + spare) * self.sizes.segment_bytes
    }

    /// Segments in use, and spare ones.
    pub(super) fn segments(&self) -> (usize, usize) {
        (self.slots.iter().filter(|slot| !slot.load(Acquire).is_null()).count(), self.spare().segments.len())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: no other thread has it.
        unsafe { self.clear() };
    }
}

#[cfg(not(loom))]
mod bytes {
    /// A byte that several threads may reach, one at a time.
    pub(super) type Byte = std::cell::UnsafeCell<u8>;

    /// A line of the processor's cache.
    const LINE_BYTES: usize = 64;
    /// How far ahead of the last record the memory of others is fetched, and how much of it at most.
    const PREFETCH_BYTES: usize = 256;

    /// Bytes that the system gives as they are touched.
    pub(super) fn zeroed(length: usize) -> Box<[Byte]> {
        let bytes = Box::into_raw(vec![0_u8; length].into_boxed_slice());
        // SAFETY: `UnsafeCell<u8>` has the layout of `u8`, and the box is whole.
        unsafe { Box::from_raw(bytes as *mut [Byte]) }
    }

    /// # Safety
    /// There are as many bytes, and the caller is alone there.
    #[inline]
    pub(super) unsafe fn write(to: *mut Byte, bytes: &[u8]) {
        // SAFETY: the caller's.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.cast(), bytes.len()) };
    }

    /// # Safety
    /// There are as many bytes, and no thread writes them.
    pub(super) unsafe fn read(from: *mut Byte, length: usize, show: &mut impl FnMut(&[u8])) {
        // SAFETY: the caller's.
        show(unsafe { std::slice::from_raw_parts(from.cast::<u8>().cast_const(), length) });
    }

    #[inline]
    pub(super) fn prefetch(segment: *mut Byte, place: usize, length: usize) {
        for at in (0..length.min(PREFETCH_BYTES)).step_by(LINE_BYTES) {
            let line = segment.wrapping_add(place + PREFETCH_BYTES + at);
            dunlin_structures::prefetch(line.cast::<u8>().cast_const());
        }
    }
}

#[cfg(loom)]
mod bytes {
    /// As above; loom sees which threads meet where.
    pub(super) type Byte = loom::cell::UnsafeCell<u8>;

    pub(super) fn zeroed(length: usize) -> Box<[Byte]> {
        (0..length).map(|_| Byte::new(0)).collect()
    }

    pub(super) unsafe fn write(to: *mut Byte, bytes: &[u8]) {
        for (at, byte) in bytes.iter().enumerate() {
            // SAFETY: the caller vouches, and loom checks.
            unsafe { (*to.add(at)).with_mut(|cell| *cell = *byte) };
        }
    }

    pub(super) unsafe fn read(from: *mut Byte, length: usize, show: &mut impl FnMut(&[u8])) {
        for at in 0..length {
            // SAFETY: as above.
            let byte = unsafe { (*from.add(at)).with(|cell| *cell) };
            show(&[byte]);
        }
    }

    pub(super) fn prefetch(_segment: *mut Byte, _place: usize, _length: usize) {}
}
