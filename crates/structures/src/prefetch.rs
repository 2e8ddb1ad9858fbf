//! One hint to the processor: "this line will be read soon".

const CACHE_LINE_BYTES: usize = 64;

/// [`prefetch`] for all lines that `bytes` bytes from `start` on lie in, wherever in its line the first is.
#[inline(always)]
pub fn prefetch_span(start: *const u8, bytes: usize) {
    let last = bytes.saturating_sub(1);
    for line in 0..=last / CACHE_LINE_BYTES {
        prefetch(start.wrapping_add(line * CACHE_LINE_BYTES));
    }
    prefetch(start.wrapping_add(last));
}

/// Asks for the cache line at `address` in every cache level. Never faults, whatever the address is, and
/// reads nothing in the sense of the language; does nothing where there is no stable instruction for it.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no architectural effect: it neither faults nor changes memory.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    {
        // SAFETY: as above; `prfm` only hints, and touches no register, flag or stack.
        unsafe {
            std::arch::asm!("prfm pldl1keep, [{0}]", in(reg) address,
                options(readonly, nostack, preserves_flags));
        }
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
    let _ = address;
}
