//! A bucket: a cache line of twelve handles.
//!
//! ```text
//! byte  0           12      16                                        64
//!       12 × fp     meta    12 × handle (u32)
//!
//! fp    0 = empty slot, else the hash's highest byte (1 where that is 0)
//! meta  bits 0-23   earliest deadline in the chain as a tick, 0 = none
//!       bit  24     chained: slot 11 is no slot, its handle field is the number of an overflow bucket
//!       bits 25-31  not used, zero
//! ```
//!
//! Everything is read and written as relaxed atomics, which compile to plain moves: only the owner writes,
//! while other threads may look for addresses to prefetch and cope with anything they see.

use super::tick::Tick;
use crate::slab::Handle;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Slots of a bucket; a chained bucket has one less.
pub const SLOTS_PER_BUCKET: usize = 12;
const LINK_SLOT: usize = SLOTS_PER_BUCKET - 1;

const META_SHIFT: u32 = 32;
const DEADLINE_BITS: u64 = (Tick::MASK as u64) << META_SHIFT;
const CHAINED: u64 = 1 << (24 + META_SHIFT);

/// A set of slots of one bucket, as bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotSet(pub(super) u32);

impl SlotSet {
    pub(super) const ALL: Self = Self((1 << SLOTS_PER_BUCKET) - 1);

    #[inline]
    pub(super) fn lowest(self) -> Option<usize> {
        if self.0 == 0 { None } else { Some(self.0.trailing_zeros() as usize) }
    }

    #[inline]
    pub(super) fn highest(self) -> Option<usize> {
        31_u32.checked_sub(self.0.leading_zeros()).map(|slot| slot as usize)
    }

    #[inline]
    pub(super) fn len(self) -> usize {
        self.0.count_ones() as usize
    }
}

impl Iterator for SlotSet {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        let slot = self.lowest()?;
        self.0 &= self.0 - 1;
        Some(slot)
    }
}

/// The byte that a hash leaves in its slot. The bucket number uses the other end of the hash.
#[inline]
pub(super) const fn fingerprint(hash: u64) -> u8 {
    let byte = (hash >> 56) as u8;
    if byte == 0 { 1 } else { byte }
}

#[repr(C, align(64))]
#[derive(Debug)]
pub(super) struct Bucket {
    /// Fingerprints 0-7, then fingerprints 8-11 below meta; the arithmetic is the same on every byte order.
    head: [AtomicU64; 2],
    handles: [AtomicU32; SLOTS_PER_BUCKET],
}

const _: () = assert!(size_of::<Bucket>() == 64, "a bucket is a cache line");

impl Bucket {
    #[inline]
    fn head(&self) -> [u64; 2] {
        [self.head[0].load(Relaxed), self.head[1].load(Relaxed)]
    }

    /// Slots whose fingerprint is `byte`.
    #[inline]
    pub(super) fn matches(&self, byte: u8) -> SlotSet {
        SlotSet(equal_bytes(self.head(), byte) & SlotSet::ALL.0)
    }

    /// Slots with an entry.
    #[inline]
    pub(super) fn occupied(&self) -> SlotSet {
        SlotSet(!equal_bytes(self.head(), 0) & SlotSet::ALL.0)
    }

    /// The lowest slot that an entry could be put into.
    #[inline]
    pub(super) fn vacant(&self) -> Option<usize> {
        let head = self.head();
        let link = if head[1] & CHAINED == 0 { 0 } else { 1 << LINK_SLOT };
        SlotSet(equal_bytes(head, 0) & SlotSet::ALL.0 & !link).lowest()
    }

    #[inline]
    pub(super) fn handle(&self, slot: usize) -> Option<Handle> {
        Handle::from_raw(self.handles[slot].load(Relaxed))
    }

    #[inline]
    pub(super) fn set_handle(&self, slot: usize, handle: Handle) {
        self.handles[slot].store(handle.raw(), Relaxed);
    }

    #[inline]
    pub(super) fn fingerprint(&self, slot: usize) -> u8 {
        (self.head[slot / 8].load(Relaxed) >> (slot % 8 * 8)) as u8
    }

    #[inline]
    fn set_fingerprint(&self, slot: usize, byte: u8) {
        let shift = slot % 8 * 8;
        let word = self.head[slot / 8].load(Relaxed) & !(0xff << shift);
        self.head[slot / 8].store(word | u64::from(byte) << shift, Relaxed);
    }

    #[inline]
    pub(super) fn put(&self, slot: usize, byte: u8, handle: Handle) {
        self.set_handle(slot, handle);
        self.set_fingerprint(slot, byte);
    }

    /// Empties a slot.
    #[inline]
    pub(super) fn vacate(&self, slot: usize) {
        self.set_fingerprint(slot, 0);
    }

    /// The number of the next overflow bucket.
    #[inline]
    pub(super) fn link(&self) -> Option<u32> {
        if self.head[1].load(Relaxed) & CHAINED == 0 {
            None
        } else {
            Some(self.handles[LINK_SLOT].load(Relaxed))
        }
    }

    /// Chains an overflow bucket behind this one, or unchains; slot 11 must be empty.
    pub(super) fn set_link(&self, link: Option<u32>) {
        debug_assert_eq!(self.fingerprint(LINK_SLOT), 0, "the link takes the place of slot 11");
        let word = self.head[1].load(Relaxed);
        match link {
            Some(number) => {
                self.handles[LINK_SLOT].store(number, Relaxed);
                self.head[1].store(word | CHAINED, Relaxed);
            }
            None => self.head[1].store(word & !CHAINED, Relaxed),
        }
    }

    /// Takes the entry of slot 11 out, to make place for a link.
    pub(super) fn take_link_slot(&self) -> Option<(u8, Handle)> {
        let byte = self.fingerprint(LINK_SLOT);
        let handle = self.handle(LINK_SLOT)?;
        self.vacate(LINK_SLOT);
        (byte != 0).then_some((byte, handle))
    }

    #[inline]
    pub(super) fn deadline(&self) -> Option<Tick> {
        Tick::from_raw((self.head[1].load(Relaxed) >> META_SHIFT) as u32 & Tick::MASK)
    }

    #[inline]
    pub(super) fn set_deadline(&self, deadline: Option<Tick>) {
        let raw = u64::from(deadline.map_or(0, Tick::raw));
        let word = self.head[1].load(Relaxed) & !DEADLINE_BITS;
        self.head[1].store(word | raw << META_SHIFT, Relaxed);
    }

    /// Makes the bucket as good as new.
    pub(super) fn reset(&self) {
        self.head[0].store(0, Relaxed);
        self.head[1].store(0, Relaxed);
    }
}

/// Bit i is set where byte i of the 16 is `byte`.
#[inline]
fn equal_bytes(head: [u64; 2], byte: u8) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        equal_bytes_sse2(head, byte)
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        equal_bytes_portable(head, byte)
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn equal_bytes_sse2(head: [u64; 2], byte: u8) -> u32 {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set_epi64x, _mm_set1_epi8};
    // SAFETY: SSE2 is part of every x86-64 processor, and these instructions only touch registers.
    unsafe {
        let bytes = _mm_set_epi64x(head[1] as i64, head[0] as i64);
        _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(byte as i8))) as u32
    }
}

/// The comparison in two words. The detection of zero bytes is the exact one, without carries between
/// bytes (Warren, Hacker's Delight, 6-1).
#[cfg(any(test, not(target_arch = "x86_64")))]
#[inline]
fn equal_bytes_portable(head: [u64; 2], byte: u8) -> u32 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const LOW_BITS: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let word_mask = |word: u64| {
        let difference = word ^ (u64::from(byte) * ONES);
        let zero_bytes = !(((difference & LOW_BITS) + LOW_BITS) | difference | LOW_BITS);
        // Gathers the highest bits of the eight bytes into one byte, lowest byte first.
        ((zero_bytes >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
    };
    word_mask(head[0]) | word_mask(head[1]) << 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn empty() -> Bucket {
        Bucket { head: [const { AtomicU64::new(0) }; 2], handles: [const { AtomicU32::new(0) }; 12] }
    }

    fn naive(head: [u64; 2], byte: u8) -> u32 {
        let bytes = head.iter().flat_map(|word| word.to_le_bytes());
        bytes.enumerate().map(|(index, other)| u32::from(other == byte) << index).sum()
    }

    proptest! {
        #[test]
        fn comparisons_all_agree_with_a_loop(
            bytes in proptest::collection::vec(prop_oneof![Just(0_u8), Just(1), Just(0x80), Just(0xff), any::<u8>()], 16),
            other in any::<u8>(),
        ) {
            let word = |half: usize| u64::from_le_bytes(bytes[half * 8..][..8].try_into().unwrap());
            let head = [word(0), word(1)];
            for byte in bytes.iter().copied().chain([other, 0]) {
                prop_assert_eq!(equal_bytes_portable(head, byte), naive(head, byte));
                prop_assert_eq!(equal_bytes(head, byte), naive(head, byte));
            }
        }
    }

    #[test]
    fn fingerprint_of_a_hash_is_never_that_of_an_empty_slot() {
        for top in 0..=255_u64 {
            assert_ne!(fingerprint(top << 56), 0);
        }
    }

    #[test]
    fn fingerprints_link_and_deadline_do_not_disturb_each_other() {
        let bucket = empty();
        let handle = |n: u32| Handle::from_raw(0x10000 + n).unwrap();
        for slot in 0..SLOTS_PER_BUCKET {
            assert_eq!(bucket.vacant(), Some(slot));
            bucket.put(slot, slot as u8 + 1, handle(slot as u32));
        }
        assert_eq!(bucket.vacant(), None);
        bucket.set_deadline(Tick::from_raw(0xffffff));
        assert_eq!(bucket.take_link_slot(), Some((12, handle(11))));
        assert_eq!(bucket.vacant(), Some(11));
        bucket.set_link(Some(7));
        assert_eq!(bucket.vacant(), None, "the link occupies slot 11");
        assert_eq!(bucket.occupied().0, 0x7ff);
        assert_eq!((bucket.link(), bucket.deadline()), (Some(7), Tick::from_raw(0xffffff)));
        bucket.set_deadline(None);
        bucket.vacate(10);
        assert_eq!((bucket.link(), bucket.deadline(), bucket.vacant()), (Some(7), None, Some(10)));
        bucket.set_link(None);
        assert_eq!(bucket.link(), None);
        for slot in 0..10 {
            assert_eq!(bucket.matches(slot as u8 + 1).collect::<Vec<_>>(), [slot]);
            assert_eq!(bucket.handle(slot), Some(handle(slot as u32)));
        }
    }
}
