//! Slots whose keys clients do not see: those that a cluster's node is importing, and those that it has given away and
//! not removed yet.
//!
//! Commands on such keys run at other nodes. Whole-keyspace walks (SCAN, DBSIZE, eviction, expiry, events)
//! ask [`HiddenSlots`] for each key. While there are none, which is nearly always, that is one load.

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use super::{SLOTS, slot};

const WORDS: usize = SLOTS as usize / 64;

/// A set of slots, a bit for each.
#[derive(Clone, PartialEq, Eq)]
pub struct SlotBits(Box<[u64; WORDS]>);

impl Default for SlotBits {
    fn default() -> Self {
        Self(Box::new([0; WORDS]))
    }
}

impl std::fmt::Debug for SlotBits {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let slots: u32 = self.0.iter().map(|word| word.count_ones()).sum();
        out.debug_struct("SlotBits").field("slots", &slots).finish_non_exhaustive()
    }
}

impl SlotBits {
    /// Whether the set has a slot.
    #[inline]
    pub fn contains(&self, slot: u16) -> bool {
        self.0[usize::from(slot / 64)] & 1 << (slot % 64) != 0
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }
}

impl FromIterator<u16> for SlotBits {
    fn from_iter<I: IntoIterator<Item = u16>>(slots: I) -> Self {
        let mut bits = Self::default();
        slots.into_iter().for_each(|slot| bits.0[usize::from(slot / 64)] |= 1 << (slot % 64));
        bits
    }
}

/// The slots of a keyspace whose keys clients do not see.
#[derive(Debug)]
pub struct HiddenSlots {
    any: AtomicBool,
    words: Box<[AtomicU64]>,
}

impl Default for HiddenSlots {
    fn default() -> Self {
        Self { any: AtomicBool::new(false), words: (0..WORDS).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl HiddenSlots {
    /// Whether it is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.any.load(Acquire)
    }

    /// Whether a key is in one of them.
    #[inline]
    pub fn has_key(&self, key: &[u8]) -> bool {
        !self.is_empty() && self.has_slot(slot(key))
    }

    #[cold]
    fn has_slot(&self, slot: u16) -> bool {
        self.words[usize::from(slot / 64)].load(Relaxed) & 1 << (slot % 64) != 0
    }

    /// Hides these slots and no others.
    pub fn set(&self, slots: &SlotBits) {
        self.words.iter().zip(slots.0.iter()).for_each(|(word, bits)| word.store(*bits, Relaxed));
        self.any.store(!slots.is_empty(), Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_slots_are_those_that_were_set_last() {
        let hidden = HiddenSlots::default();
        assert!(hidden.is_empty() && !hidden.has_key(b"foo"));
        hidden.set(&[12_182, 0, 16_383].into_iter().collect());
        assert!(hidden.has_key(b"foo") && hidden.has_key(b"a{foo}b") && !hidden.has_key(b"bar"));
        hidden.set(&SlotBits::default());
        assert!(hidden.is_empty() && !hidden.has_key(b"foo"));
    }
}
