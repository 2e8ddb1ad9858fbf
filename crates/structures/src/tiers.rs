//! An array that grows without ever moving an element.
//!
//! ```text
//! index   64..127   128..255   256..511 …            (FIRST_LOG2 = 6: indices start at 2^6)
//! tier       0          1          2                 tier t holds 2^(FIRST_LOG2 + t) elements
//! ```
//!
//! Starting the indices at the size of the first tier makes the tier the position of the index's highest
//! bit, with nothing to add first. Elements are atomics: readers on other threads see a tier either not
//! at all or whole. Invariant: a tier pointer changes once, from null to an array that lives as long as `self`.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// `TIERS` doubling arrays of `T`; the valid indices are `2^FIRST_LOG2 .. 2^(FIRST_LOG2 + TIERS)`.
pub(crate) struct Tiers<T, const TIERS: usize, const FIRST_LOG2: u32> {
    tiers: [AtomicPtr<T>; TIERS],
}

impl<T: Default + Sync + Send, const TIERS: usize, const FIRST_LOG2: u32> Tiers<T, TIERS, FIRST_LOG2> {
    pub(crate) const fn new() -> Self {
        Self { tiers: [const { AtomicPtr::new(ptr::null_mut()) }; TIERS] }
    }

    const fn tier_len(tier: usize) -> usize {
        1 << (FIRST_LOG2 as usize + tier)
    }

    /// The element at `index`, or `None` if its tier does not exist (yet). O(1), two loads.
    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        debug_assert!(index >> FIRST_LOG2 != 0, "indices start at the length of the first tier");
        let high_bit = 31 - (index | 1).leading_zeros();
        let tier = self.tiers.get(high_bit.wrapping_sub(FIRST_LOG2) as usize)?.load(Ordering::Acquire);
        if tier.is_null() {
            return None;
        }
        // SAFETY: a tier that is not null is an initialized array of 2^high_bit elements, published with
        // `Release` and freed only by `drop`; clearing the highest bit leaves an offset below that length.
        Some(unsafe { &*tier.add((index ^ (1 << high_bit)) as usize) })
    }

    /// The element at `index`, after creating its tier where needed; returns the bytes that this allocated.
    pub(crate) fn ensure(&self, index: u32) -> (&T, usize) {
        let mut allocated = 0;
        if self.get(index).is_none() {
            let number = (31 - index.leading_zeros() - FIRST_LOG2) as usize;
            let tier: Box<[T]> = (0..Self::tier_len(number)).map(|_| T::default()).collect();
            allocated = size_of_val(&*tier);
            let fresh = Box::into_raw(tier).cast::<T>();
            let replaced = self.tiers[number].swap(fresh, Ordering::AcqRel);
            assert!(replaced.is_null(), "only the owner grows the tiers");
        }
        let Some(element) = self.get(index) else { unreachable!("the tier was just created") };
        (element, allocated)
    }
}

impl<T, const TIERS: usize, const FIRST_LOG2: u32> Drop for Tiers<T, TIERS, FIRST_LOG2> {
    fn drop(&mut self) {
        for (number, tier) in self.tiers.iter_mut().enumerate() {
            let first = *tier.get_mut();
            if !first.is_null() {
                let len = 1 << (FIRST_LOG2 as usize + number);
                // SAFETY: `ensure` made it from a boxed slice of exactly this length; `&mut self` is the last user.
                drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(first, len)) });
            }
        }
    }
}
